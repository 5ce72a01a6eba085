//! `ordered`: the ordered store compared with BTreeMap, masstree, scc's TreeIndex and crossbeam's SkipMap, in one
//! process, on one thread and on two.
//!
//! The maps allocate with mimalloc, which asks for huge pages when `MIMALLOC_ALLOW_LARGE_OS_PAGES` is set. The program
//! therefore executes itself again with that variable.

use std::process::ExitCode;

use clap::Parser;
use skep_benches::ordered::{Plan, run};
use skep_benches::output::{Output, exit_code};
use skep_benches::process::{MIMALLOC_HUGE_PAGES, with_huge_pages};
use skep_measure::SLICE;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compares the ordered store with Rust's ordered maps.
#[derive(Parser)]
struct Arguments {
    /// Pairs of 16 + 16 bytes in every contender.
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1..=200_000_000))]
    pairs: u64,
    /// Operations in a batch.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(2..=65_536))]
    batch: u64,
    /// Pairs in a scan.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    scan: u64,
    /// Rounds of every case, each after a warm-up.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=101))]
    rounds: u64,
    /// Operations of each case whose replies are compared before the rounds.
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    operations: u64,
    #[command(flatten)]
    output: Output,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(reason) = with_huge_pages() {
        eprintln!("{reason}");
        return ExitCode::FAILURE;
    }
    let plan = Plan {
        pairs: arguments.pairs as usize,
        batch: arguments.batch as usize,
        scan: arguments.scan as usize,
        rounds: arguments.rounds as usize,
        operations: arguments.operations as usize,
        slice: SLICE,
    };
    let outcome = run(&plan, &format!("mimalloc with {MIMALLOC_HUGE_PAGES}"))
        .and_then(|report| arguments.output.show("ordered", &report, report.tables(), &report.origin));
    exit_code(outcome)
}
