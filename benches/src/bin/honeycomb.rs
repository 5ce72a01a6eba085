//! `honeycomb`: Honeycomb's Figures 10, 11, 13, 14, 15 and 17 on the running store.
//!
//! The maps allocate with mimalloc, which asks for huge pages when `MIMALLOC_ALLOW_LARGE_OS_PAGES` is set. The program
//! therefore executes itself again with that variable.

use std::process::ExitCode;

use clap::Parser;
use skep_benches::honeycomb::{FIGURES, PaperFigure, Plan, measure};
use skep_benches::output::{Output, exit_code};
use skep_benches::process::with_huge_pages;
use skep_measure::SLICE;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures a figure of Honeycomb's evaluation on the running store.
#[derive(Parser)]
struct Arguments {
    /// The figure, such as fig17; each takes a minute or two. Without a figure, all are listed.
    figure: Option<String>,
    /// Pairs in every store at the start.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(100..=200_000_000))]
    pairs: u64,
    /// Operations in a batch.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    batch: u64,
    /// Rounds of every case, each after a warm-up.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=101))]
    rounds: u64,
    /// Operations of each case whose replies are compared before the rounds.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    operations: u64,
    #[command(flatten)]
    output: Output,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(name) = &arguments.figure else {
        FIGURES.iter().for_each(|figure| println!("{}  {}", figure.name, figure.title));
        return ExitCode::SUCCESS;
    };
    let Some(figure) = FIGURES.iter().find(|figure| figure.name == name) else {
        let known: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        eprintln!("no figure `{name}`: write {}", known.join(", "));
        return ExitCode::FAILURE;
    };
    if let Err(reason) = with_huge_pages() {
        eprintln!("{reason}");
        return ExitCode::FAILURE;
    }
    exit_code(run(&arguments, figure))
}

fn run(arguments: &Arguments, figure: &PaperFigure) -> Result<(), String> {
    let plan = Plan {
        pairs: arguments.pairs as usize,
        batch: arguments.batch as usize,
        rounds: arguments.rounds as usize,
        operations: arguments.operations as usize,
        slice: SLICE,
    };
    let report = measure(figure, &plan)?;
    arguments.output.show(&format!("honeycomb-{}", figure.name), &report, report.tables(), &report.origin)
}
