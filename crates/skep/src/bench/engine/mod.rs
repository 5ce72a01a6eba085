//! `skep bench engine`: measures a store alone on one core, as a share of the limit of the memory.
//!
//! Every case runs in rounds. Within a round it alternates with its bare loop over the same number of bytes. Both are
//! warmed up until their rates are steady before a slice is measured (`skep_measure`). A figure is the median of the
//! rounds; a share of the limit is the median of the shares in each round. The spread is (upper quartile − lower
//! quartile) / median. A row whose spread is above the bound is not measured. Accesses and lines are counted on another
//! store, which is not timed.

mod effort;
mod hash;
mod limit;
mod measure;
mod ordered;
mod report;
mod work;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use skep_measure::Times;
use skep_store::memory::LocalMemory;

use self::effort::Effort;
use self::limit::BareLoop;
use crate::failure::Failure;
use crate::size::MemorySize;
use skep_measure::distribution::Distribution;

/// Measures a store alone, as a share of the limit of the memory.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The store: hash or ordered.
    #[arg(long, value_name = "NAME", default_value = "hash", hide_possible_values = true)]
    engine: Engine,
    /// Memory of the store; the bare loop takes the same amount again.
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    memory: MemorySize,
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
    /// Rounds for each case.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=101))]
    rounds: u64,
    /// Milliseconds of each measured slice; below 200 the rate of a machine is not steady.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    milliseconds: u64,
    /// Print one line of JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// A store that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    // Plain comments, as in `Distribution`.
    // KV-Direct's.
    Hash,
    // Honeycomb's.
    Ordered,
}

impl Arguments {
    fn effort(&self) -> Effort {
        let times = Times::for_slice(Duration::from_millis(self.milliseconds));
        Effort { batch: self.batch as usize, rounds: self.rounds, times }
    }
}

/// Loads a store, measures it and prints the report.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if io::stderr().is_terminal() {
        eprintln!("loading a store of {}", arguments.memory);
    }
    let report = match arguments.engine {
        Engine::Hash => hash::measure(arguments)?,
        Engine::Ordered => ordered::measure(arguments)?,
    };
    let text = if arguments.json { report::json(&report) } else { report::table(&report) };
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

/// Returns a bare loop over a region of `size` bytes.
fn bare_loop(size: u64, random: &mut impl FnMut() -> u64) -> Result<BareLoop, Failure> {
    let memory = LocalMemory::new(size).map_err(|error| Failure::Runtime(error.to_string()))?;
    Ok(BareLoop::new(memory, random))
}
