//! `durable`: measures what a log costs a store inside a program.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use skep_benches::durable::{Plan, run, tables};
use skep_benches::output::exit_code;
use skep_measure::SLICE;

/// Measures what a log costs a store inside a program.
#[derive(Parser)]
struct Arguments {
    /// Where the data directory is created, and removed at the end: by default in memory, so that no disk is measured.
    #[arg(long, default_value = "/dev/shm")]
    parent: PathBuf,
    /// Pairs of 8 + 2 bytes in each store.
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1000..=200_000_000))]
    pairs: u64,
    /// Operations in a batch.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    batch: u64,
    /// Rounds of both stores, each after a warm-up.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u64).range(1..=101))]
    rounds: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let plan = Plan {
        pairs: arguments.pairs,
        batch: arguments.batch as usize,
        requests: 1 << 20,
        rounds: arguments.rounds as usize,
        slice: SLICE,
    };
    let directory = arguments.parent.join(format!("skep-durable-{}", std::process::id()));
    let cases = run(&plan, &directory);
    _ = std::fs::remove_dir_all(&directory);
    exit_code(cases.map(|cases| println!("{}", tables(&plan, &directory, &cases).text())))
}
