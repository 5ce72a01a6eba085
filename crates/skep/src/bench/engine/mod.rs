//! `skep bench engine`: the store alone, on one core, as a share of what the memory allows.
//!
//! Every case runs in rounds, and within a round by turns with its bare loop over the same number of bytes, so that
//! whatever else the machine does meets both. The figures are medians of the rounds, a share of the limit that of the
//! shares in each round; the spread is (largest − smallest) / median. Accesses and lines are counted on a smaller store of
//! the same utilization.

mod case;
mod corpus;
mod limit;
mod measure;
mod station;
mod work;

use std::io::{self, Write};
use std::time::Duration;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_store::hash::Settings;
use skep_store::memory::{CountingMemory, LocalMemory};

use self::case::{CASES, Case, Draw};
use self::corpus::{Corpus, Shape};
use self::limit::BareLoop;
use self::measure::{count, limits, median, round};
use self::station::{Cost, costs};
use self::work::{WorkBeside, work_beside};
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
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..=101))]
    rounds: u64,
    /// Milliseconds of a case in a round; its bare loop runs as long.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    milliseconds: u64,
    /// Print one line of JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Memory of the store on which accesses are counted.
const COUNTED_MEMORY_SIZE: u64 = 32 << 20;

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
    /// What the reservation station costs.
    station: Vec<Cost>,
    /// The bare loop with work beside each line.
    limit_with_work: Vec<WorkBeside>,
}

/// The figures of a case.
#[derive(Debug, serde::Serialize)]
struct Figures {
    case: &'static str,
    ops_per_s: f64,
    accesses: f64,
    lines: f64,
    of_limit: f64,
    /// Spread of `ops_per_s`.
    spread: f64,
    of_limit_spread: f64,
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
    let shape = |memory| Shape::new(kv_size, memory, utilization);
    let mut corpus = Corpus::new(memory, &store_settings, shape(arguments.memory.0)).map_err(runtime)?;
    // Behind the corpus: a host that takes back what lies idle would put it away while the corpus is filled.
    let mut random = {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        move || rand::Rng::next_u64(&mut random)
    };
    let bare_loop = BareLoop::new(region()?, &mut random);
    let cases: Vec<Case> = CASES.into_iter().filter(|case| case.takes_part(arguments.distribution)).collect();
    let is_inline = kv_size <= store_settings.inline_threshold;

    let mut rounds = vec![Vec::new(); cases.len()];
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    let mut draw = Draw::new(Xoshiro256PlusPlus::seed_from_u64(1), corpus.shape.pair_count);
    let (batch, at_least) = (arguments.batch as usize, Duration::from_millis(arguments.milliseconds));
    // A round more than is counted: a host that has put pages away brings them back in the first one.
    for number in 0..=arguments.rounds {
        let [read, write] = limits(&bare_loop, batch, at_least, &mut random);
        reads.push(1.0 / read);
        writes.push(1.0 / write);
        for (case, rounds) in cases.iter().zip(&mut rounds) {
            let ideal = case.ideal(is_inline, kv_size);
            let mut bare_slice = |at_least| bare_loop.run(ideal, batch, at_least, &mut random);
            rounds.push(round(&mut corpus, &mut draw, case, batch, at_least, &mut bare_slice).map_err(runtime)?);
        }
        if number == 0 {
            reads.clear();
            writes.clear();
            rounds.iter_mut().for_each(Vec::clear);
        }
    }

    let station = costs(&mut corpus, &mut draw, batch, arguments.rounds, at_least);
    let limit_with_work = work_beside(&bare_loop, batch, arguments.rounds, at_least, &mut random);
    let counted_settings = settings(COUNTED_MEMORY_SIZE)?;
    let counted_memory = LocalMemory::new(COUNTED_MEMORY_SIZE).map_err(|error| runtime(error.to_string()))?;
    let counted_memory = CountingMemory::new(counted_memory);
    let mut counted = Corpus::new(counted_memory, &counted_settings, shape(COUNTED_MEMORY_SIZE)).map_err(runtime)?;
    let mut counted_draw = Draw::new(Xoshiro256PlusPlus::seed_from_u64(3), counted.shape.pair_count);
    let frequency = frequency();
    let figures = |(case, rounds): (&Case, &Vec<(f64, f64)>)| {
        let figure = |of: fn(&(f64, f64)) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
        let (ops_per_s, spread) = figure(|(ops_per_s, _)| *ops_per_s);
        let (of_limit, of_limit_spread) = figure(|(_, of_limit)| *of_limit);
        let (accesses, lines) = count(&mut counted, &mut counted_draw, case, batch);
        let cycles = frequency / ops_per_s;
        Figures { case: case.name, ops_per_s, accesses, lines, of_limit, spread, of_limit_spread, cycles }
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
        limit_read: median(&reads).0,
        limit_rmw: median(&writes).0,
        cases: cases.iter().zip(&rounds).map(figures).collect(),
        station,
        limit_with_work,
    };
    let text = if arguments.json { report.json() } else { report.table() };
    writeln!(io::stdout(), "{text}")?;
    Ok(())
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
        table.set_header(["case", "operations/s", "spread", "of the limit", "spread", "accesses", "lines", "cycles"]);
        for figures in &self.cases {
            table.add_row([
                figures.case.to_owned(),
                grouped(figures.ops_per_s),
                format!("{:.2}", figures.spread),
                format!("{:.2}", figures.of_limit),
                format!("{:.2}", figures.of_limit_spread),
                format!("{:.2}", figures.accesses),
                format!("{:.2}", figures.lines),
                format!("{:.0}", figures.cycles),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let costs: Vec<_> =
            self.station.iter().map(|cost| format!("{} {:+.0} %", cost.case, 100.0 * cost.cost)).collect();
        let beside = |work: &WorkBeside| format!("{:.0} ns {:.2}", work.nanoseconds, work.of_limit);
        let limit_with_work: Vec<_> = self.limit_with_work.iter().map(beside).collect();
        format!(
            "{table}\nreservation station: {}\nlimit: {} random lines/s read, {} read and written\n\
             of the limit with so much work for each line, as it takes in the cache: {}\n\
             {} B pairs fill {:.2} of {}, hash index ratio {:.3}; batches of {}; medians of {} rounds\n{}",
            costs.join(", "),
            grouped(self.limit_read),
            grouped(self.limit_rmw),
            limit_with_work.join(", "),
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
