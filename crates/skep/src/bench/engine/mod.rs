//! `skep bench engine`: the store alone, on one core, as a share of what the memory allows.
//!
//! Every case runs in rounds that alternate with its bare loop over the same number of bytes, so that whatever else the
//! machine does meets both. The figures are medians of the rounds; the spread is (largest − smallest) / median. Accesses
//! and lines are counted on a smaller store of the same utilization.

mod case;
mod corpus;
mod limit;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_store::hash::Settings;
use skep_store::memory::{CountingMemory, LocalMemory, Memory};
use skep_store::operation::Reply;

use self::case::{CASES, Case, Draw, execute};
use self::corpus::{Corpus, Shape};
use self::limit::{BareLoop, Ideal};
use super::distribution::Distribution;
use super::report::{grouped, machine};
use crate::failure::Failure;
use crate::size::MemorySize;

/// Measures the store alone against the limit of the memory.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Memory of the store; the bare loop takes as much again.
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    memory: MemorySize,
    /// Bytes of a pair, key and value.
    #[arg(long, value_name = "BYTES", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=508))]
    kv_size: u64,
    /// Share of the memory that is keys and values.
    #[arg(long, value_name = "SHARE", default_value_t = 0.3)]
    utilization: f64,
    /// Operations of a batch.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    batch: u64,
    /// Leave out the cases of the other distribution [default: both, zipf and uniform].
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    distribution: Option<Distribution>,
    /// Rounds of every case.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=101))]
    rounds: u64,
    /// Milliseconds of a case in a round.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    milliseconds: u64,
    /// Print one line of JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Memory of the store on which accesses are counted.
const COUNTED_MEMORY_SIZE: u64 = 32 << 20;
/// Operations over which they are counted.
const COUNTED_OPERATIONS: usize = 64 << 10;

/// What was measured, in the order of the JSON.
#[derive(Debug, serde::Serialize)]
struct Report {
    skep: &'static str,
    machine: String,
    memory: u64,
    kv_size: u64,
    utilization: f64,
    hash_index_ratio: f64,
    batch: u64,
    rounds: u64,
    /// Random lines read a second by the bare loop.
    limit_read: f64,
    /// Random lines read and written a second.
    limit_rmw: f64,
    cases: Vec<Figures>,
}

/// The figures of a case.
#[derive(Debug, serde::Serialize)]
struct Figures {
    case: &'static str,
    ops_per_s: f64,
    accesses: f64,
    lines: f64,
    of_limit: f64,
    spread: f64,
    cycles: f64,
}

/// Loads, measures and prints.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let kv_size = arguments.kv_size as usize;
    let utilization = arguments.utilization;
    let settings = |memory| {
        // A few per mille more than the corpus needs, for the pairs that are put and deleted again.
        Settings::for_utilization(memory, kv_size, utilization + 0.01, 1).filter(|_| utilization > 0.0).ok_or_else(
            || {
                Failure::Usage(format!(
                    "pairs of {kv_size} bytes cannot fill {utilization} of a memory: choose another --utilization"
                ))
            },
        )
    };
    let store_settings = settings(arguments.memory.0)?;
    let runtime = Failure::Runtime;
    let region = || LocalMemory::new(arguments.memory.0).map_err(|error| runtime(error.to_string()));
    let memory = region()?;
    memory.prefault();
    let bare_loop = BareLoop::new(region()?);
    let shape = |memory| Shape::new(kv_size, memory, utilization);
    let mut corpus = Corpus::new(memory, &store_settings, shape(arguments.memory.0)).map_err(runtime)?;
    let cases: Vec<Case> = CASES.into_iter().filter(|case| case.takes_part(arguments.distribution)).collect();
    let is_inline = kv_size <= store_settings.inline_threshold;
    let ideals: Vec<Ideal> = cases.iter().map(|case| case.ideal(is_inline, kv_size)).collect();

    let mut times = vec![(Vec::new(), Vec::new()); cases.len()];
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    let mut draw = Draw::new(Xoshiro256PlusPlus::seed_from_u64(1), corpus.shape.pair_count);
    let mut random = {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        move || rand::Rng::next_u64(&mut random)
    };
    let (batch, at_least) = (arguments.batch as usize, Duration::from_millis(arguments.milliseconds));
    for _ in 0..arguments.rounds {
        let one_line = |all_write| Ideal { dependent_lines: 0, writes_in_256: 0, all_write };
        reads.push(bare_loop.run(one_line(false), batch, at_least, &mut random));
        writes.push(bare_loop.run(one_line(true), batch, at_least, &mut random));
        for ((case, ideal), (ours, bare)) in cases.iter().zip(&ideals).zip(&mut times) {
            bare.push(bare_loop.run(*ideal, batch, at_least / 2, &mut random));
            ours.push(measure(&mut corpus, &mut draw, case, batch, at_least).map_err(Failure::Runtime)?);
        }
    }

    let counted_settings = settings(COUNTED_MEMORY_SIZE)?;
    let counted_memory = LocalMemory::new(COUNTED_MEMORY_SIZE).map_err(|error| Failure::Runtime(error.to_string()))?;
    let counted_memory = CountingMemory::new(counted_memory);
    let mut counted =
        Corpus::new(counted_memory, &counted_settings, shape(COUNTED_MEMORY_SIZE)).map_err(Failure::Runtime)?;
    let frequency = frequency();
    let figures = |(case, (ours, bare)): (&Case, &(Vec<f64>, Vec<f64>))| {
        let (seconds, spread) = median(ours);
        let (accesses, lines) = count(&mut counted, case, batch);
        let of_limit = median(bare).0 / seconds;
        Figures {
            case: case.name,
            ops_per_s: 1.0 / seconds,
            accesses,
            lines,
            of_limit,
            spread,
            cycles: seconds * frequency,
        }
    };
    let report = Report {
        skep: env!("CARGO_PKG_VERSION"),
        machine: machine(),
        memory: arguments.memory.0,
        kv_size: arguments.kv_size,
        utilization,
        hash_index_ratio: store_settings.hash_index_ratio,
        batch: arguments.batch,
        rounds: arguments.rounds,
        limit_read: 1.0 / median(&reads).0,
        limit_rmw: 1.0 / median(&writes).0,
        cases: cases.iter().zip(&times).map(figures).collect(),
    };
    let text = if arguments.json { report.json() } else { report.table() };
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

/// Runs a case at least for this long; seconds for an operation. Fresh keys last for a while: then the round ends.
fn measure<M: Memory>(
    corpus: &mut Corpus<M>,
    draw: &mut Draw,
    case: &Case,
    batch: usize,
    at_least: Duration,
) -> Result<f64, String> {
    let (mut spent, mut operations) = (Duration::ZERO, 0);
    let mut records = Vec::new();
    // At most one pair of a hundred is new at a time, and all are deleted again.
    let fresh_max = corpus.shape.pair_count / 100;
    while if case.name == "delete" { draw.fresh_count() > 0 } else { spent < at_least } {
        let size = if case.name == "delete" { batch.min(draw.fresh_count() as usize) } else { batch };
        if case.name == "put_new" && draw.fresh_count() + size as u64 > fresh_max.max(size as u64) {
            break;
        }
        draw.batch(case, size, &mut records);
        spent += execute(corpus, case, &records, |corpus, requests| {
            let begun = Instant::now();
            corpus.processor.execute(requests, &mut corpus.replies);
            begun.elapsed()
        });
        if let Some(reply) = corpus.replies.iter().find(|reply| !matches!(reply, Reply::Done | Reply::Value(_))) {
            return Err(format!("{}: answered {reply:?}", case.name));
        }
        operations += size;
    }
    Ok(spent.as_secs_f64() / operations.max(1) as f64)
}

/// Accesses and lines of an operation.
fn count(corpus: &mut Corpus<CountingMemory<LocalMemory>>, case: &Case, batch: usize) -> (f64, f64) {
    let mut draw = Draw::new(Xoshiro256PlusPlus::seed_from_u64(3), corpus.shape.pair_count);
    let mut records = Vec::new();
    let operations = if case.name == "put_new" || case.name == "delete" {
        (corpus.shape.pair_count / 200) as usize
    } else {
        COUNTED_OPERATIONS
    };
    let before = corpus.processor.memory().counts();
    let mut done = 0;
    while done < operations {
        draw.batch(case, batch.min(operations - done), &mut records);
        done += records.len();
        execute(corpus, case, &records, |corpus, requests| corpus.processor.execute(requests, &mut corpus.replies));
    }
    let counts = corpus.processor.memory().counts() - before;
    (counts.accesses() as f64 / done.max(1) as f64, counts.lines() as f64 / done.max(1) as f64)
}

/// The median, and (largest − smallest) / median.
fn median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    (median, (sorted[sorted.len() - 1] - sorted[0]) / median)
}

/// Cycles a second, as the kernel says; NaN where it does not.
fn frequency() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("cpu MHz")).and_then(|line| line.split_once(':'));
    line.and_then(|(_, number)| number.trim().parse::<f64>().ok()).map_or(f64::NAN, |megahertz| megahertz * 1e6)
}

impl Report {
    fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and text are always valid JSON")
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(["case", "operations/s", "of the limit", "spread", "accesses", "lines", "cycles"]);
        for figures in &self.cases {
            table.add_row([
                figures.case.to_owned(),
                grouped(figures.ops_per_s),
                format!("{:.2}", figures.of_limit),
                format!("{:.2}", figures.spread),
                format!("{:.2}", figures.accesses),
                format!("{:.2}", figures.lines),
                format!("{:.0}", figures.cycles),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!(
            "{table}\nlimit: {} random lines/s read, {} read and written\n\
             {} B pairs fill {:.2} of {}, hash index ratio {:.3}; batches of {}; medians of {} rounds\n{}",
            grouped(self.limit_read),
            grouped(self.limit_rmw),
            self.kv_size,
            self.utilization,
            MemorySize(self.memory),
            self.hash_index_ratio,
            self.batch,
            self.rounds,
            self.machine,
        )
    }
}
