//! `memcached`: compares Skep's cache with memcached over memcached's protocol, using one client program and the same
//! cores.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use skep_benches::output::{Output, exit_code};
use skep_benches::servers::{Plan, compare_memcached};

/// Compares Skep's cache with memcached over memcached's protocol.
#[derive(Parser)]
struct Arguments {
    /// Pairs of 8 + 8 bytes in every server.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: u64,
    /// Requests in a batch.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024))]
    depth: u64,
    /// Connections of the client.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1024))]
    connections: u64,
    /// Seconds for a case, all its rounds together.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    skep: PathBuf,
    #[command(flatten)]
    output: Output,
}

fn main() -> ExitCode {
    exit_code(compare(&Arguments::parse()))
}

fn compare(arguments: &Arguments) -> Result<(), String> {
    if !(arguments.seconds > 0.0 && arguments.seconds <= 3600.0) {
        return Err("--seconds is above 0 and at most 3600".to_owned());
    }
    let plan = Plan {
        keys: arguments.keys,
        depth: arguments.depth as usize,
        connections: arguments.connections as usize,
        seconds: arguments.seconds,
        skep: arguments.skep.clone(),
    };
    let report = compare_memcached(&plan, |step| eprintln!("{step}"))?;
    arguments.output.show("memcached", &report, report.tables(), &report.origin)
}
