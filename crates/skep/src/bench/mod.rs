//! `skep bench`: runs the YCSB workloads and Honeycomb's cloud storage against a server, or against stores in this
//! process.
//!
//! With `--addr` every client is a thread with its own connections. With `--embedded` every client is a thread with its
//! own store, which holds its share of the records. This is the work of a server's shards without the network.
//!
//! By default a client sends a batch when it has all replies to the last one. This measures the highest rate of a
//! server. With `--rate` a client sends a batch when it is due. This measures latencies at any rate, also above the
//! server's limit.
//!
//! At its end a run deletes the keys that it has put into a server, also if it fails or a signal ends it (see
//! [`interrupt`]). Runs with the same seed have the same keys, so a run also deletes the keys that a killed run has left.

mod drive;
mod engine;
mod inserts;
mod interrupt;
mod modify;
mod offer;
mod report;
mod saturation;
mod server_delays;
mod settings;
mod target;
pub(crate) mod transport;
mod vectors;
mod workload;

use std::io::{self, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use skep::StoreSettings;

use crate::cli::Space;
use crate::failure::Failure;
use crate::output_file::OutputFile;
use crate::password::Login;
use crate::size::MemorySize;
use crate::tls::LoginSource;
use drive::{Findings, Limit, Plan, drive, load, unload, unload_inserts};
use inserts::Inserts;
use offer::{OfferFlags, Offerer};
use report::{Report, microseconds_at};
use saturation::{Saturation, Search};
use server_delays::{ServerDelays, Snapshot};
use settings::{check_transport, counted, plan};
use skep_measure::distribution::{Distribution, Generator};
use skep_measure::{Progress, machine};
use target::{Target, not_opened};
use workload::{RECORD_BITS, Workload, draw};

/// Measures a server or the store.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
#[command(mut_args(|argument| argument.global(false)))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    /// YCSB workload: a (half puts), b (5% puts), c (reads only), d (5% inserts), e (scans of 1 to 100 pairs, 5%
    /// inserts), f (half read-modify-writes, each one atomic update); cloud (scans of 3 or 4 pairs from a floor, and inserts); or
    /// reduce (sums of the elements of values, which are costly if the values are large).
    #[arg(long, value_name = "NAME", default_value = "a", ignore_case = true, hide_possible_values = true)]
    workload: Workload,
    /// Reads in a hundred operations of the workload cloud [default: 80].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    reads: Option<u32>,
    /// Popularity of the records: a few are far more popular (zipf), all are alike (uniform), or the last ones are the
    /// most popular (latest) [default: zipf; latest for d].
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    distribution: Option<Distribution>,
    /// Space of the server: hash or ordered [default: hash; ordered for e and cloud].
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    space: Option<Space>,
    /// Native address of the server: HOST:PORT, tls:HOST:PORT, udp:HOST:PORT, or shm:PATH for shared memory.
    #[arg(long, value_name = "ADDRESS", default_value = crate::cli::DEFAULT_ADDRESS, value_parser = crate::cli::native_address)]
    addr: String,
    #[command(flatten)]
    source: LoginSource,
    /// Measure stores in this process instead, one for each client.
    #[arg(long, conflicts_with = "addr")]
    embedded: bool,
    /// Records to load before the clock runs; they are deleted at the end.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << RECORD_BITS))]
    records: u64,
    /// Operations to execute, all clients together [default: as many as possible in 10 seconds].
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Seconds to run, instead of a number of operations.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    #[command(flatten)]
    offer: OfferFlags,
    /// RESP address of the same server, to print its own delays too, from the read of a request to its reply.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "embedded", value_parser = crate::cli::address)]
    resp: Option<String>,
    /// Bytes of a key.
    #[arg(long, value_name = "BYTES", default_value_t = 8)]
    key_size: usize,
    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 8)]
    value_size: usize,
    /// Operations sent together; the latency of an operation is that of its batch.
    #[arg(long, value_name = "N", default_value_t = 32)]
    batch: usize,
    /// Threads, or connections of one thread with --rate [default: 4, or 1 with --embedded].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: Option<u16>,
    /// Memory of all embedded stores together [default: enough for the records].
    #[arg(long, value_name = "SIZE", requires = "embedded")]
    memory: Option<MemorySize>,
    /// Seed of the operations and the keys; runs on one server at the same time need different seeds.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one line of JSON instead of a table.
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "The keys begin with `bench:`, with `b:` if --key-size is below 14, and are bare numbers if it \
                          is below 8. In the workloads d, e and cloud every client inserts its own records; they are \
                          then the latest ones. A scan begins at a loaded record, or with latest also at an inserted one. \
                          At its end a run deletes its keys from the server, also if it fails or Ctrl-C ends it. A \
                          second Ctrl-C leaves them in the server until the next run with the same settings.";

/// A part of the measurement that runs alone.
#[derive(clap::Subcommand, Debug)]
enum Part {
    /// Measure a store alone, on one core, as a share of the limit of the memory.
    Engine(engine::Arguments),
    /// Measure the transports between a client and a server.
    ///
    /// Two servers of one shard run in this process, so no other server is needed. One has a store, the other one only
    /// echoes: it decodes the same requests, and replies to each with a value of the same size, and touches no store. So an
    /// ECHO is the upper bound of a transport, and GET and PUT are also printed as shares of it. Both shards share one core,
    /// and the client has another one. While one server works, the other one sleeps.
    ///
    /// In each round every transport and depth runs ECHO, GET and PUT in turn, each after a warm-up. Shares are calculated
    /// round by round. A depth is the number of operations in a batch; the client waits for all replies of a batch.
    Transport(transport::Arguments),
    /// Measure how fast vectors are changed, as in KV-Direct's Table 2.
    ///
    /// Every element of a vector is incremented in four ways: by one update in the store, without and with the old vector
    /// as the reply; with one key per element; and by a client that gets the vector and puts it. All start from the
    /// same vectors, in cache and out of it, in a store of this process and in a server that this process starts.
    Vectors(vectors::Arguments),
}

/// About how many records are loaded or deleted in a second. Progress says how many they are on this machine.
const TRANSFERS_PER_S: f64 = 1e6;

/// About how many rates a search of the saturation measures.
const SATURATION_STEPS: f64 = 15.0;

/// The most operations that a client draws before the clock runs; after the last one it repeats them.
const DRAW_COUNT_MAX: u64 = 1 << 22;

/// Loads the records, measures and prints. Operations with errors are counted; one is enough for the run to fail.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.part {
        Some(Part::Engine(arguments)) => return engine::run(arguments),
        Some(Part::Transport(arguments)) => return transport::run(arguments),
        Some(Part::Vectors(arguments)) => return vectors::run(arguments),
        None => {}
    }
    let client_count = usize::from(arguments.clients.unwrap_or(if arguments.embedded { 1 } else { 4 }));
    let (space, plan) = plan(arguments)?;
    let shares = shares(arguments.records, client_count as u64);
    let login = arguments.source.login(&arguments.addr)?;
    check_transport(arguments, &login)?;
    let svg = arguments.offer.svg.as_deref().map(OutputFile::open).transpose()?;
    interrupt::watch(match arguments.embedded {
        true => "the run ends",
        false => "the run deletes its keys; a second signal ends it at once, and leaves them in the server",
    });
    let mut targets = targets(arguments, &login, plan.space, client_count)?;
    let mut inserts: Vec<Inserts> = (0..client_count as u64)
        .zip(&shares)
        .map(|(client, share)| match arguments.embedded {
            true => Inserts::new(share.end - share.start, 0, 1),
            false => Inserts::new(arguments.records, client, client_count as u64),
        })
        .collect();

    let progress = Progress::shown();
    let transfer_seconds = arguments.records as f64 / TRANSFERS_PER_S;
    let rates = if arguments.offer.saturate { SATURATION_STEPS } else { 1.0 };
    let seconds = rates * arguments.seconds as f64;
    let measured_seconds = arguments.operations.map_or(seconds, |operations| operations as f64 / TRANSFERS_PER_S);
    progress.expect(2.0 * transfer_seconds + measured_seconds);
    progress.begin(format!("loading {} records", arguments.records), transfer_seconds);
    let loading = load_all(arguments, &plan, &mut targets, &shares, &progress);
    let loaded: Vec<_> = loading
        .iter()
        .zip(&shares)
        .map(|(outcome, share)| outcome.as_ref().err().map_or(share, |(_, loaded)| loaded).clone())
        .collect();
    if let Some((error, _)) = loading.into_iter().find_map(Result::err) {
        let left = clean_up(arguments, &login, plan, &mut targets, &loaded, &inserts).err().unwrap_or_default();
        let failed = || Failure::Runtime(format!("loading {} records: {error}{left}", arguments.records));
        return Err(interrupt::failure(&left).unwrap_or_else(failed));
    }

    progress.begin("measuring", measured_seconds);
    let measured = if arguments.offer.saturate {
        saturate(arguments, &login, plan, &mut targets, &shares, &mut inserts).map(Measured::Saturation)
    } else {
        let measured = measure_with_delays(arguments, &login, plan, &mut targets, &shares, &mut inserts);
        measured.map(|(findings, seconds, server)| Measured::Run(Box::new(findings), seconds, server))
    };
    progress.begin("deleting the records", transfer_seconds);
    let cleaned_up = clean_up(arguments, &login, plan, &mut targets, &loaded, &inserts);
    drop(progress);
    let measured =
        measured.map_err(|error| Failure::Runtime(error + cleaned_up.as_ref().err().map_or("", String::as_str)))?;
    let left = cleaned_up.err().unwrap_or_default();
    let first_error = print(arguments, space, &plan, client_count, measured, svg)?;
    if let Some(interrupted) = interrupt::failure(&left) {
        return Err(interrupted);
    }
    match first_error {
        None if left.is_empty() => Ok(()),
        None => Err(Failure::Runtime(format!("the figures are valid{left}"))),
        Some((errors, error)) => {
            Err(Failure::Runtime(format!("{}, the first: {error}{left}", counted(errors, "error"))))
        }
    }
}

/// Prints the figures; none if a signal came before the first operation. Returns the number of errors and the first one, if
/// there are any.
fn print(
    arguments: &Arguments,
    space: Space,
    plan: &Plan,
    clients: usize,
    measured: Measured,
    svg: Option<OutputFile>,
) -> Result<Option<(u64, String)>, Failure> {
    match measured {
        Measured::Run(findings, ..) if interrupt::is_set() && findings.operations == 0 => Ok(None),
        Measured::Run(findings, seconds, server) => {
            let report = report(arguments, space, plan, clients, &findings, seconds, server);
            let text = if arguments.json { report.json() } else { report.table() };
            writeln!(io::stdout(), "{text}")?;
            Ok(findings.first_error.map(|error| (findings.errors, error)))
        }
        Measured::Saturation(saturation) => {
            saturation.print(arguments.json, svg)?;
            Ok(None)
        }
    }
}

/// What was measured: a run, its seconds and the delays of the server; or its saturation.
enum Measured {
    Run(Box<Findings>, f64, Option<ServerDelays>),
    Saturation(Saturation),
}

/// Searches the saturation of the server.
fn saturate(
    arguments: &Arguments,
    login: &Login,
    plan: Plan,
    targets: &mut [Target],
    shares: &[Range<u64>],
    inserts: &mut [Inserts],
) -> Result<Saturation, String> {
    let (findings, seconds) = measure(arguments, plan, targets, shares, inserts);
    if let Some(error) = findings.first_error {
        return Err(error);
    }
    let generator = Generator::new(distribution(arguments), arguments.records);
    let draws = draw(plan.mix, &generator, DRAW_COUNT_MAX as usize, arguments.seed);
    let search = Search {
        login,
        plan: &plan,
        draws: &draws,
        inserts,
        connections: targets.len(),
        seconds: Duration::from_secs(arguments.seconds),
        seed: arguments.seed,
        latency_max: arguments.offer.latency_max,
    };
    search.run(findings.operations as f64 / seconds, report::name(&arguments.workload))
}

/// Returns the report of a run.
fn report(
    arguments: &Arguments,
    space: Space,
    plan: &Plan,
    clients: usize,
    findings: &Findings,
    seconds: f64,
    server: Option<ServerDelays>,
) -> Report {
    Report {
        skep: env!("CARGO_PKG_VERSION"),
        workload: arguments.workload,
        distribution: distribution(arguments),
        space,
        reads_in_100: 100 - plan.mix.writes_in_100,
        target: if arguments.embedded { "embedded" } else { &arguments.addr }.to_owned(),
        records: arguments.records,
        operations: findings.operations,
        seconds,
        key_size: arguments.key_size,
        value_size: arguments.value_size,
        batch: arguments.batch,
        clients,
        seed: arguments.seed,
        machine: machine(),
        ops_per_s: findings.operations as f64 / seconds,
        p50_us: microseconds_at(&findings.latencies, 0.5),
        p99_us: microseconds_at(&findings.latencies, 0.99),
        p999_us: microseconds_at(&findings.latencies, 0.999),
        max_us: microseconds_at(&findings.latencies, 1.0),
        rate: arguments.offer.rate,
        refused: findings.refused,
        unsent: findings.unsent,
        server,
        errors: findings.errors,
    }
}

/// Loads the share of each client, all at the same time. An error has the records that were loaded before it.
fn load_all(
    arguments: &Arguments,
    plan: &Plan,
    targets: &mut [Target],
    shares: &[Range<u64>],
    progress: &Progress,
) -> Vec<Result<(), (String, Range<u64>)>> {
    let loaded_count = AtomicU64::new(0);
    let loaded = |count| {
        let count = count + loaded_count.fetch_add(count, Ordering::Relaxed);
        progress.advance(count as f64 / arguments.records as f64);
    };
    thread::scope(|scope| {
        let loaders: Vec<_> = targets
            .iter_mut()
            .zip(shares)
            .map(|(target, share)| {
                // An embedded store holds its own records, numbered from 0. A server holds the records of all clients.
                let records = if arguments.embedded { 0..share.end - share.start } else { share.clone() };
                scope.spawn(move || load(target, plan, records, loaded))
            })
            .collect();
        loaders.into_iter().map(|loader| loader.join().expect("a loading thread does not panic")).collect()
    })
}

/// Deletes the records that the clients have loaded into a server and inserted. If an old connection has failed, it
/// opens a new one. The error text is meant to be appended to another message.
fn clean_up(
    arguments: &Arguments,
    login: &Login,
    plan: Plan,
    targets: &mut [Target],
    loaded: &[Range<u64>],
    inserts: &[Inserts],
) -> Result<(), String> {
    if arguments.embedded {
        return Ok(());
    }
    let delete_all = |target: &mut Target, records: &Range<u64>, inserts: &Inserts| {
        unload(target, plan.keys, records.clone())?;
        if plan.mix.inserts() { unload_inserts(target, plan.keys, inserts) } else { Ok(()) }
    };
    let outcome = thread::scope(|scope| {
        let deleters: Vec<_> = targets
            .iter_mut()
            .zip(loaded)
            .zip(inserts)
            .map(|((target, records), inserts)| {
                scope.spawn(move || {
                    delete_all(target, records, inserts).or_else(|_| {
                        *target = Target::remote(login, plan.space)?;
                        delete_all(target, records, inserts)
                    })
                })
            })
            .collect();
        deleters.into_iter().try_for_each(|deleter| deleter.join().expect("a deleting thread does not panic"))
    });
    outcome.map_err(|error| format!("; the records could not be deleted and are still in the server: {error}"))
}

/// Returns the distribution of popularity over the records.
fn distribution(arguments: &Arguments) -> Distribution {
    let latest = arguments.workload == Workload::D;
    arguments.distribution.unwrap_or(if latest { Distribution::Latest } else { Distribution::Zipf })
}

/// Divides the records as evenly as possible.
fn shares(record_count: u64, client_count: u64) -> Vec<Range<u64>> {
    let start_of = |client: u64| client * (record_count / client_count) + client.min(record_count % client_count);
    (0..client_count).map(|client| start_of(client)..start_of(client + 1)).collect()
}

/// Connects to the server, or opens stores with memory for the records.
fn targets(arguments: &Arguments, login: &Login, space: u16, client_count: usize) -> Result<Vec<Target>, Failure> {
    if !arguments.embedded {
        return (0..client_count).map(|_| Target::remote(login, space).map_err(Failure::Runtime)).collect();
    }
    let kv_size = arguments.key_size + arguments.value_size;
    let memory = match arguments.memory {
        Some(memory) => memory.0 / client_count as u64,
        // Slabs are powers of two from 32 bytes on, so up to half of a slab stays empty. The index takes as much again.
        None => {
            let records = arguments.records.div_ceil(client_count as u64);
            (records * 4 * (kv_size as u64).max(32)).max(16 << 20)
        }
    };
    let settings = StoreSettings::for_kv_size(memory, kv_size.max(2), rand::random());
    (0..client_count)
        .map(|_| Target::embedded(&settings).map_err(|error| Failure::Runtime(not_opened(&error))))
        .collect()
}

/// Measures. If `--resp` is set, reads the server's delays before and after.
fn measure_with_delays(
    arguments: &Arguments,
    login: &Login,
    plan: Plan,
    targets: &mut [Target],
    shares: &[Range<u64>],
    inserts: &mut [Inserts],
) -> Result<(Findings, f64, Option<ServerDelays>), String> {
    let at_rest = |address| Snapshot::at_rest(address, login.settings.password.as_ref());
    let snapshot = || arguments.resp.as_deref().map(at_rest).transpose();
    let before = snapshot()?;
    let (findings, seconds) = match arguments.offer.rate {
        Some(rate) => {
            let mut offerer = Offerer::connect(login, targets.len())?;
            let generator = Generator::new(distribution(arguments), arguments.records);
            let (limit, count) = limit(arguments, 0, 1);
            let draws = draw(plan.mix, &generator, count, arguments.seed);
            let begun = Instant::now();
            let findings = offerer.offer(&plan, &draws, inserts, rate as f64, limit, arguments.seed);
            (findings, begun.elapsed().as_secs_f64())
        }
        None => measure(arguments, plan, targets, shares, inserts),
    };
    let server = snapshot()?.zip(before).map(|(after, before)| after.since(&before));
    Ok((findings, seconds, server))
}

/// Returns the limit of a client, and how many operations it draws.
fn limit(arguments: &Arguments, number: u64, client_count: u64) -> (Limit, usize) {
    match arguments.operations {
        Some(operations) => {
            let operations = operations / client_count + u64::from(number < operations % client_count);
            (Limit::Operations(operations), operations.clamp(1, DRAW_COUNT_MAX) as usize)
        }
        None => (Limit::Time(Duration::from_secs(arguments.seconds)), DRAW_COUNT_MAX as usize),
    }
}

/// Starts all clients at once. Returns their findings, and the seconds until the last one has ended.
fn measure(
    arguments: &Arguments,
    plan: Plan,
    targets: &mut [Target],
    shares: &[Range<u64>],
    inserts: &mut [Inserts],
) -> (Findings, f64) {
    let client_count = targets.len() as u64;
    let begin = Barrier::new(targets.len() + 1);
    let all = Mutex::new(Findings::new());
    let distribution = distribution(arguments);
    let shared = Generator::new(distribution, arguments.records);
    let mut seconds = 0.0;
    thread::scope(|scope| {
        let mut clients = Vec::new();
        for ((number, target), inserts) in (0u64..).zip(targets).zip(inserts) {
            let (begin, all, shared) = (&begin, &all, &shared);
            let share = shares[usize::try_from(number).unwrap_or_default()].clone();
            let (limit, count) = limit(arguments, number, client_count);
            clients.push(scope.spawn(move || {
                let own;
                let generator = if arguments.embedded {
                    own = Generator::new(distribution, share.end - share.start);
                    &own
                } else {
                    shared
                };
                let seed = arguments.seed.wrapping_mul(1 << 16).wrapping_add(number);
                let draws = draw(plan.mix, generator, count, seed);
                begin.wait();
                let findings = drive(target, &plan, &draws, inserts, limit, seed);
                all.lock().expect("no client panics with the lock").add(findings);
            }));
        }
        begin.wait();
        let begun = Instant::now();
        for client in clients {
            client.join().expect("a client does not panic");
        }
        seconds = begun.elapsed().as_secs_f64();
    });
    (all.into_inner().expect("no client panics with the lock"), seconds)
}

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn records_are_divided_evenly() {
        assert_eq!(shares(10, 3), [0..4, 4..7, 7..10]);
        assert_eq!(shares(2, 3), [0..1, 1..2, 2..2]);
    }
}
