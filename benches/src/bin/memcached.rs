//! `memcached`: compares Skep's cache with memcached over memcached's protocol, using one client program and the same
//! cores.

use std::process::ExitCode;

use clap::Parser;
use skep_benches::output::{Output, exit_code};
use skep_benches::servers::{Plan, compare_memcached};

/// Compares Skep's cache with memcached over memcached's protocol.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    plan: Plan,
    #[command(flatten)]
    output: Output,
}

fn main() -> ExitCode {
    exit_code(compare(&Arguments::parse()))
}

fn compare(arguments: &Arguments) -> Result<(), String> {
    let report = compare_memcached(&arguments.plan, |step| eprintln!("{step}"))?;
    arguments.output.show("memcached", &report, report.tables(), &report.origin)
}
