//! `maps`: the store compared with hashbrown, dashmap and papaya, on one thread of one process.
//!
//! The maps allocate with mimalloc, which packs small boxes tightly; the C library takes at least 32 bytes for each. It
//! asks for huge pages when `MIMALLOC_ALLOW_LARGE_OS_PAGES` is set. The program therefore executes itself again with
//! that variable.

use std::process::ExitCode;

use clap::Parser;
use skep_benches::maps::{Plan, run};
use skep_benches::output::{Output, exit_code};
use skep_benches::process::{MIMALLOC_HUGE_PAGES, with_huge_pages};
use skep_measure::SLICE;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compares the store with Rust's maps.
#[derive(Parser)]
struct Arguments {
    /// Pairs of 8 + 2 bytes in every contender.
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1..=200_000_000))]
    pairs: u64,
    /// Operations in a batch.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    batch: u64,
    /// Rounds of every case, each after a warm-up.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=101))]
    rounds: u64,
    /// Operations of each case whose replies are compared before the rounds.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    operations: u64,
    /// Share of the store's memory that holds keys and values.
    #[arg(long, default_value_t = 0.3)]
    utilization: f64,
    #[command(flatten)]
    output: Output,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(reason) = with_huge_pages() {
        eprintln!("{reason}");
        return ExitCode::FAILURE;
    }
    if !(arguments.utilization > 0.0 && arguments.utilization <= 0.6) {
        eprintln!(
            "--utilization is above 0 and at most 0.6: five pairs of 10 bytes and their bucket's header are 64 bytes"
        );
        return ExitCode::FAILURE;
    }
    let plan = Plan {
        pairs: arguments.pairs as usize,
        batch: arguments.batch as usize,
        rounds: arguments.rounds as usize,
        operations: arguments.operations as usize,
        slice: SLICE,
        utilization: arguments.utilization,
    };
    let outcome = run(&plan, &format!("mimalloc with {MIMALLOC_HUGE_PAGES}"))
        .and_then(|report| arguments.output.show("maps", &report, report.tables(), &report.origin));
    exit_code(outcome)
}
