//! `skep bench transport`: the same operations over every transport, beside an ECHO (HERD, section 3.2).
//!
//! Two servers of one shard run in this process: one has a store, the other one only *echoes*. It decodes the same
//! requests, and replies to each with a value of the same size, and touches no store. So an ECHO is the upper bound of a
//! transport. Both shards share one core, and the client has another one. While one server works, the other one sleeps.
//!
//! In each round every transport and depth runs ECHO, GET and PUT in turn, each after a warm-up. Shares are calculated
//! round by round. A depth is the number of operations in a batch; the client waits for all replies of a batch.

mod report;

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep::{Client, Operation, PutCondition, Reply, Request, Responses};
use skep_measure::distribution::{Distribution, Generator};
use skep_measure::{Effort, Progress, Rounds, Row, Work};
use skep_server::EchoSettings;

use self::report::Report;
use crate::failure::Failure;
use crate::local_server::{Cores, LocalServer, LocalServerSettings, TRANSPORTS};

/// Measures the transports of a server on one core, with one client on another.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Records in the store, with keys of 8 bytes.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    records: u64,
    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    value_size: u16,
    /// Operations in a batch; several numbers are separated by commas [default: 16,256,4096].
    #[arg(long, value_name = "N,N…", value_delimiter = ',', default_values_t = [16, 256, 4096], hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    depths: Vec<u32>,
    #[command(flatten)]
    effort: Effort,
    /// Print one line of JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// What is measured of all transports.
pub(crate) struct Plan<'a> {
    pub(crate) records: u64,
    pub(crate) value_size: u16,
    pub(crate) verbs: &'a [Verb],
    pub(crate) depths: &'a [u32],
    pub(crate) rounds: u64,
    pub(crate) slice: Duration,
    /// Single operations that are timed in a round.
    pub(crate) timed_count: usize,
}

/// What the client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// A GET that the server answers without its store.
    Echo,
    Get,
    Put,
}

const VERBS: [Verb; 3] = [Verb::Echo, Verb::Get, Verb::Put];

/// The rates of all rounds for each verb, by its number.
pub(crate) type Rates = [Vec<f64>; VERBS.len()];

/// The latencies of single operations for each verb, in nanoseconds.
type Latencies = [Histogram<u64>; VERBS.len()];

/// A transport, with a client of each server.
struct Transport {
    name: &'static str,
    echo: Client,
    store: Client,
}

/// What was measured of a transport.
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    /// For each depth.
    pub(crate) rates: Vec<Rates>,
    latencies: Latencies,
}

/// The operations of the client, which are the same for all transports.
struct Requests<'a> {
    gets: Vec<Request<'a>>,
    puts: Vec<Request<'a>>,
    /// The index of the next operation.
    next: usize,
}

/// Operations that are drawn before the clock runs; after the last one the first one follows.
const DRAWN_COUNT: usize = 1 << 20;
/// Single operations that are timed in a round.
const TIMED_COUNT: usize = 5000;
/// The longest latency that is told apart, in nanoseconds.
const LATENCY_MAX: u64 = 10_000_000_000;
/// Records that are put in a batch before the measurement.
const LOADED_AT_ONCE: u64 = 4096;
/// Bytes of the store for each record, besides its value: the hash index with room for all keys.
const MEMORY_PER_RECORD: u64 = 64;
/// Bytes of the smallest store.
const MEMORY_MIN: u64 = 64 << 20;

/// Measures and prints.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let plan = Plan {
        records: arguments.records,
        value_size: arguments.value_size,
        verbs: &VERBS,
        depths: &arguments.depths,
        rounds: arguments.effort.rounds as u64,
        slice: arguments.effort.slice,
        timed_count: TIMED_COUNT,
    };
    let cores = Cores::divide(1)?;
    let progress = Progress::shown();
    progress.begin("measuring the transports", 0.0);
    let measured = measure(&plan, &cores, &mut |share| progress.advance(share))?;
    drop(progress);
    Report::new(arguments, cores.are_apart(), &measured).print(arguments.json)
}

/// Starts both servers, loads the store and measures all transports. Calls `progress` with the share that is done.
/// Pins this thread to the core of the client.
pub(crate) fn measure(plan: &Plan<'_>, cores: &Cores, progress: &mut dyn FnMut(f64)) -> Result<Vec<Measured>, Failure> {
    let value_size = usize::from(plan.value_size);
    let memory = (2 * plan.records * (MEMORY_PER_RECORD + u64::from(plan.value_size))).max(MEMORY_MIN);
    let settings = LocalServerSettings { shards: 1, memory, value_size, echo: None };
    let store = LocalServer::start(cores, settings)?;
    let echo = Some(EchoSettings { size: value_size, accesses: 0, prefetches: false });
    let echo = LocalServer::start(cores, LocalServerSettings { memory: MEMORY_MIN, echo, ..settings })?;
    cores.pin_client(0)?;
    let connect = |name| Ok(Transport { name, echo: echo.connect(name)?, store: store.connect(name)? });
    let mut transports = TRANSPORTS.map(connect).into_iter().collect::<Result<Vec<_>, Failure>>()?;
    let keys = draw(plan.records);
    let values: Vec<&[u8]> = keys.as_flattened().windows(value_size).step_by(size_of::<u64>()).collect();
    load(&mut transports[0].store, plan.records, values[0])?;
    let mut requests = Requests::new(&keys, &values);
    let mut measured: Vec<Measured> =
        transports.iter().map(|transport| Measured::new(transport.name, plan.depths.len())).collect();
    let row = |transport: &Transport, depth: &u32| Row::new(format!("{}, {depth}", transport.name), plan.verbs.len());
    let rows = transports.iter().flat_map(|transport| plan.depths.iter().map(|depth| row(transport, depth))).collect();
    let effort = Effort { rounds: plan.rounds as usize, slice: plan.slice };
    let (samples, outcome) = Rounds::new(effort, rows).run_watched(&mut |step| progress(step.share), |turn| {
        let (index, depth) = (turn.row / plan.depths.len(), turn.row % plan.depths.len());
        let (transport, verb) = (&mut transports[index], plan.verbs[turn.side]);
        let size = plan.depths[depth] as usize;
        let rate = turn.rate(|at_least| transport.run(verb, size, &mut requests, at_least))?;
        if depth + 1 == plan.depths.len() {
            transport.time(verb, plan.timed_count, &mut requests, &mut measured[index].latencies[verb as usize])?;
        }
        Ok::<_, Failure>(rate)
    });
    outcome?;
    for (row, of_verbs) in samples.into_iter().enumerate() {
        let rates = &mut measured[row / plan.depths.len()].rates[row % plan.depths.len()];
        plan.verbs.iter().zip(of_verbs).for_each(|(verb, of_verb)| rates[*verb as usize] = of_verb);
    }
    Ok(measured)
}

impl Measured {
    fn new(name: &'static str, depth_count: usize) -> Measured {
        let histogram = |_| Histogram::new_with_max(LATENCY_MAX, 3).expect("three digits are possible");
        Measured { name, rates: vec![Rates::default(); depth_count], latencies: VERBS.map(histogram) }
    }
}

impl<'a> Requests<'a> {
    /// Makes a GET and a PUT of each key; the values of the PUTs differ.
    fn new(keys: &'a [[u8; 8]], values: &[&'a [u8]]) -> Requests<'a> {
        let put = |value| Operation::Put { value, condition: PutCondition::Always };
        Requests {
            gets: keys.iter().map(|key| Request { key, operation: Operation::Get }).collect(),
            puts: keys.iter().zip(values).map(|(key, value)| Request { key, operation: put(value) }).collect(),
            next: 0,
        }
    }

    /// Returns the next operations.
    fn take(&mut self, verb: Verb, count: usize) -> &[Request<'a>] {
        let of_verb = match verb {
            Verb::Echo | Verb::Get => &self.gets,
            Verb::Put => &self.puts,
        };
        let first = if self.next + count <= of_verb.len() { self.next } else { 0 };
        self.next = first + count;
        &of_verb[first..self.next]
    }
}

impl Transport {
    /// Executes batches of this depth for at least this time.
    fn run(
        &mut self,
        verb: Verb,
        depth: usize,
        requests: &mut Requests<'_>,
        at_least: Duration,
    ) -> Result<Work, Failure> {
        let mut responses = Responses::new();
        let begin = Instant::now();
        let mut operations = 0;
        while begin.elapsed() < at_least {
            self.execute(verb, requests.take(verb, depth), &mut responses)?;
            operations += depth;
        }
        Ok(Work { spent: begin.elapsed(), operations })
    }

    /// Times single operations.
    fn time(
        &mut self,
        verb: Verb,
        count: usize,
        requests: &mut Requests<'_>,
        latencies: &mut Histogram<u64>,
    ) -> Result<(), Failure> {
        let mut responses = Responses::new();
        for _ in 0..count {
            let begin = Instant::now();
            self.execute(verb, requests.take(verb, 1), &mut responses)?;
            latencies.saturating_record(begin.elapsed().as_nanos() as u64);
        }
        Ok(())
    }

    /// Executes a batch, and checks the last reply.
    fn execute(&mut self, verb: Verb, requests: &[Request<'_>], responses: &mut Responses) -> Result<(), Failure> {
        let client = if verb == Verb::Echo { &mut self.echo } else { &mut self.store };
        client.execute(requests, responses).map_err(|error| self.failure(verb, &error))?;
        match (verb, responses.iter().last()) {
            (Verb::Echo | Verb::Get, Some(Ok(Reply::Value(_)))) | (Verb::Put, Some(Ok(Reply::Done))) => Ok(()),
            (_, reply) => Err(self.failure(verb, &format!("the reply {reply:?}"))),
        }
    }

    fn failure(&self, verb: Verb, reason: &impl std::fmt::Display) -> Failure {
        Failure::Runtime(format!("{}, {verb:?}: {reason}", self.name))
    }
}

/// Returns random keys.
fn draw(records: u64) -> Vec<[u8; 8]> {
    let generator = Generator::new(Distribution::Uniform, records);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    (0..DRAWN_COUNT).map(|_| generator.draw(&mut random).to_le_bytes()).collect()
}

/// Puts all records.
fn load(client: &mut Client, records: u64, value: &[u8]) -> Result<(), Failure> {
    let failure = |reason: String| Failure::Runtime(format!("loading the records: {reason}"));
    let mut responses = Responses::new();
    for first in (0..records).step_by(LOADED_AT_ONCE as usize) {
        let keys: Vec<_> = (first..records.min(first + LOADED_AT_ONCE)).map(u64::to_le_bytes).collect();
        let operation = Operation::Put { value, condition: PutCondition::Always };
        let requests: Vec<_> = keys.iter().map(|key| Request { key, operation }).collect();
        client.execute(&requests, &mut responses).map_err(|error| failure(error.to_string()))?;
        if let Some(reply) = responses.iter().find(|reply| !matches!(reply, Ok(Reply::Done))) {
            return Err(failure(format!("the reply {reply:?}")));
        }
    }
    Ok(())
}
