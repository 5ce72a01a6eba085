//! `expiry`: measures how long the hash store takes to free the memory of keys that have expired.

use std::process::ExitCode;

use clap::Parser;
use skep_benches::output::exit_code;

/// Measures how long the hash store takes to free the memory of keys that have expired.
#[derive(Parser)]
struct Arguments {
    /// Keys, about.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    keys: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    exit_code(skep_benches::expiry::run(arguments.keys).map(|report| println!("{}", report.tables().text())))
}
