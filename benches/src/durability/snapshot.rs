//! Puts while a snapshot is taken against puts without one, at the levels `second` and `memory`, over the native
//! protocol; the latencies of both; and the memory that a snapshot takes.
//!
//! Both sides are measured in pieces. Between two pieces the client asks whether the snapshot is complete, and that time
//! does not count. The highest resident memory is that of the kernel, which is reset before the snapshot begins.

use std::fs;
use std::time::Duration;

use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_measure::median;

use super::latency::{histogram, microseconds};
use super::report::{Bar, Row};
use super::side::Asker;
use super::{CONNECTIONS, DEPTH, LONG_ROUNDS, Run, Section};
use crate::figures::millions;
use crate::keys::{Draw, PairForm};
use crate::servers::{Client, Protocol, Server, Source, Template, Verb};

/// The part of a side between two questions, in seconds.
const PIECE: f64 = 0.1;
/// Attempts to measure without a snapshot: the server may begin one meanwhile, because its log is long.
const ATTEMPTS: usize = 5;

/// Puts of one side.
struct Puts {
    operations: u64,
    seconds: f64,
    latencies: Histogram<u64>,
}

impl Puts {
    fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

pub(super) fn run(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for level in ["second", "memory"] {
        rows.extend(at(run, level)?);
    }
    Ok(rows)
}

/// Measures at a level.
fn at(run: &Run<'_>, level: &str) -> Result<Vec<Row>, String> {
    let (form, keys) = (PairForm::Random, run.plan.keys);
    let server = run.skep(form, keys, Some((&run.folder.empty("snapshot")?, level)))?;
    run.load(&server, form, keys)?;
    let mut asker = Asker::of(&server)?;
    let address = server.address(Protocol::Native).ok_or("the server has no native port")?;
    let template = Template::new(Protocol::Native, Verb::Set, form, DEPTH);
    let mut client = Client::connect(address, template, CONNECTIONS)?;
    let mut source = Source::Drawn(Draw::uniform(Xoshiro256PlusPlus::seed_from_u64(1), keys));
    // The buffers of a first snapshot stay, and so does the memory of a first load.
    asker.take_snapshot()?;
    client.run(&mut source, Some(Duration::from_secs_f64(run.plan.seconds)))?;
    let (mut rates, mut tails): ([Vec<f64>; 2], [Vec<f64>; 2]) = Default::default();
    let (mut extra, mut lengths) = (Vec::new(), Vec::new());
    run.rounds(format!("snapshot, {level}"), 1, LONG_ROUNDS).run(run.progress, |_| {
        let without = without(run, &mut client, &mut source, &mut asker)?;
        let before = reset_peak(&server)?;
        let saves = asker.persistence("rdb_saves")?;
        asker.ask("BGSAVE")?;
        let during = pieces(&mut client, &mut source, |_| Ok(asker.persistence("rdb_saves")? != saves))?;
        extra.push(memory_of(&server, "VmHWM:")?.saturating_sub(before) as f64 / f64::from(1 << 20));
        lengths.push(during.seconds);
        for (side, puts) in [&during, &without].into_iter().enumerate() {
            rates[side].push(puts.rate());
            tails[side].push(microseconds(&puts.latencies, 0.999));
        }
        Ok::<_, String>(during.rate() / without.rate())
    })?;
    let name = format!("puts during a snapshot / without, {level}");
    let mut puts = Row::of_ratio(Section::Snapshot, name, Some(Bar::AtLeast(0.8)), &rates[0], &rates[1]);
    puts.from = format!(
        "{} / {} M/s; a snapshot of {keys} pairs takes {:.2} s",
        millions(median(&rates[0])),
        millions(median(&rates[1])),
        median(&lengths),
    );
    let name = format!("p99.9 of a batch during a snapshot / without, {level}");
    let mut tail = Row::of_ratio(Section::Snapshot, name, None, &tails[0], &tails[1]);
    tail.from = format!("{} / {} µs", list(&tails[0]), list(&tails[1]));
    // The worst round counts. A snapshot that takes no memory has no spread.
    let worst = extra.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let name = format!("extra memory of a snapshot, {level}");
    let mut memory = Row::new(Section::Snapshot, name, "MiB", Some(Bar::AtMost(64.0)), vec![worst]);
    memory.from = format!("highest resident memory during a snapshot less that before it: {} MiB", list(&extra));
    Ok(vec![puts, tail, memory])
}

/// Returns numbers as text, in the order of the rounds.
fn list(numbers: &[f64]) -> String {
    numbers.iter().map(|number| format!("{number:.0}")).collect::<Vec<_>>().join(", ")
}

/// Measures puts without a snapshot. The server may begin one because its log is long; then it measures again.
fn without(run: &Run<'_>, client: &mut Client, source: &mut Source, asker: &mut Asker) -> Result<Puts, String> {
    for _ in 0..ATTEMPTS {
        asker.wait_for_zero("rdb_bgsave_in_progress")?;
        let before = asker.persistence("rdb_saves")?;
        let puts = pieces(client, source, |seconds| Ok(seconds >= run.plan.seconds))?;
        if asker.persistence("rdb_bgsave_in_progress")? == 0 && asker.persistence("rdb_saves")? == before {
            return Ok(puts);
        }
    }
    Err("the server took a snapshot during each attempt to measure without one: choose less --seconds".to_owned())
}

/// Puts in pieces, at least one, until `is_over` returns true. It gets the seconds until now.
fn pieces(
    client: &mut Client,
    source: &mut Source,
    mut is_over: impl FnMut(f64) -> Result<bool, String>,
) -> Result<Puts, String> {
    client.latencies = Some(histogram());
    let (mut operations, mut seconds) = (0, 0.0);
    loop {
        let tally = client.run(source, Some(Duration::from_secs_f64(PIECE)))?;
        operations += tally.operations;
        seconds += tally.seconds;
        if is_over(seconds)? {
            let latencies = client.latencies.take().unwrap_or_else(histogram);
            return Ok(Puts { operations, seconds, latencies });
        }
    }
}

/// Lets the kernel forget the highest resident memory of a server. Returns the present one.
fn reset_peak(server: &Server) -> Result<u64, String> {
    let path = format!("/proc/{}/clear_refs", server.process());
    fs::write(&path, "5").map_err(|error| format!("cannot write {path}: {error}"))?;
    memory_of(server, "VmRSS:")
}

/// Returns a size of `/proc/PID/status` in bytes.
fn memory_of(server: &Server, field: &str) -> Result<u64, String> {
    let path = format!("/proc/{}/status", server.process());
    let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let size = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    size.map(|size| size << 10).ok_or_else(|| format!("{path} has no size {field}"))
}
