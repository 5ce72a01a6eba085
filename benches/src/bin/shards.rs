//! `shards`: measures one and two shards in one process, and computes how unequal the loads of more shards would be.

use std::process::ExitCode;

use clap::Parser;
use skep_benches::output::{Output, exit_code};
use skep_benches::process::cores;
use skep_benches::shards::{Plan, run};
use skep_measure::SLICE;

/// Measures one and two shards in one process.
#[derive(Parser)]
struct Arguments {
    /// Pairs of 8 + 2 bytes in all shards together.
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1..=200_000_000))]
    pairs: u64,
    /// Operations in a batch.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    batch: u64,
    /// Rounds of every case, each after a warm-up.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=101))]
    rounds: u64,
    /// Operations of each case whose replies are compared before the rounds.
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    operations: u64,
    #[command(flatten)]
    output: Output,
}

/// Share of the memory that holds the pairs.
const UTILIZATION: f64 = 0.3;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let plan = Plan {
        pairs: arguments.pairs as usize,
        batch: arguments.batch as usize,
        rounds: arguments.rounds as usize,
        operations: arguments.operations as usize,
        slice: SLICE,
        utilization: UTILIZATION,
    };
    let outcome = cores().and_then(|cores| {
        if cores.len() < 2 {
            Err("two shards need two cores: run on a machine with more cores, or with a wider taskset".to_owned())
        } else {
            Ok(())
        }
    });
    let outcome = outcome
        .and_then(|()| run(&plan))
        .and_then(|report| arguments.output.show("shards", &report, report.tables(), &report.origin));
    exit_code(outcome)
}
