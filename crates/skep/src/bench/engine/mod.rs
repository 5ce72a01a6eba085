//! `skep bench engine`: measures a store alone on one core, as a share of the limit of the memory.
//!
//! Every case runs in rounds. Within a round it alternates with its bare loop over the same number of bytes. Both are
//! warmed up until their rates are steady before a slice is measured (`skep_measure`). A figure is the median of the
//! rounds; a share of the limit is the median of the shares in each round. The spread is (upper quartile − lower
//! quartile) / median. A case whose spread is above the bound gets more rounds, and is marked if that does not help.
//! Accesses and lines are counted on another store, which is not timed.

mod hash;
mod limit;
mod measure;
mod ordered;
mod report;
mod work;

use std::io::{self, Write};

use skep_measure::{Effort, Progress};
use skep_store::memory::LocalMemory;

use self::limit::BareLoop;
use crate::failure::Failure;
use crate::size::MemorySize;
use skep_measure::distribution::Distribution;

/// Measures a store alone, as a share of the limit of the memory. With default settings this takes less than three
/// minutes.
#[derive(clap::Args, Debug)]
#[command(mut_arg("rounds", |argument| argument.default_value("3")))]
pub(crate) struct Arguments {
    /// The store: hash or ordered.
    #[arg(long, value_name = "NAME", default_value = "hash", hide_possible_values = true)]
    engine: Engine,
    /// Memory of the store; the bare loop takes the same amount again [default: 4GiB, or 512MiB of an ordered store].
    #[arg(long, value_name = "SIZE")]
    memory: Option<MemorySize>,
    /// Bytes of a pair, key and value [default: 10, or 32 of an ordered store, half of them the key].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(2..=508))]
    kv_size: Option<u64>,
    /// Share of the memory that holds keys and values.
    #[arg(long, value_name = "SHARE", default_value_t = 0.3)]
    utilization: f64,
    /// Operations in a batch.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    batch: u64,
    /// Leave out the cases of other distributions [default: all cases].
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    distribution: Option<Distribution>,
    #[command(flatten)]
    effort: Effort,
    /// Print one line of JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Default memories. An ordered store takes longer to load, and is loaded twice.
const HASH_MEMORY: MemorySize = MemorySize(4 << 30);
const ORDERED_MEMORY: MemorySize = MemorySize(512 << 20);

/// A store that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    // Plain comments, as in `Distribution`.
    // KV-Direct's.
    Hash,
    // Honeycomb's.
    Ordered,
}

/// What every part of a run needs.
#[derive(Clone, Copy)]
struct Setup<'a> {
    memory: MemorySize,
    batch: usize,
    effort: Effort,
    progress: &'a Progress,
}

impl Setup<'_> {
    /// Returns about how many seconds the longest warm-up takes.
    fn warm_up_seconds(self) -> f64 {
        self.effort.times().expected_seconds() / 2.0
    }

    /// Returns about how many seconds all rounds of this many sides take.
    fn seconds(self, sides: usize) -> f64 {
        (self.effort.rounds * sides) as f64 * self.effort.times().expected_seconds()
    }
}

/// Loads a store, measures it and prints the report.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let progress = Progress::shown();
    let default = match arguments.engine {
        Engine::Hash => HASH_MEMORY,
        Engine::Ordered => ORDERED_MEMORY,
    };
    let (memory, batch) = (arguments.memory.unwrap_or(default), arguments.batch as usize);
    let setup = Setup { memory, batch, effort: arguments.effort, progress: &progress };
    let report = match arguments.engine {
        Engine::Hash => hash::measure(arguments, setup)?,
        Engine::Ordered => ordered::measure(arguments, setup)?,
    };
    drop(progress);
    let text = if arguments.json { report::json(&report) } else { report::table(&report) };
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

/// Returns a bare loop over a region of `size` bytes.
fn bare_loop(size: u64, random: &mut impl FnMut() -> u64) -> Result<BareLoop, Failure> {
    let memory = LocalMemory::new(size).map_err(|error| Failure::Runtime(error.to_string()))?;
    Ok(BareLoop::new(memory, random))
}
