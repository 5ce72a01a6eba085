//! `durability`: measures what durability costs and how fast a server is back, also against redis-server.

use std::process::ExitCode;

use clap::Parser;
use skep_benches::durability::{Plan, run};
use skep_benches::output::{Output, exit_code};

/// Measures what durability costs and how fast a server is back, also against redis-server.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    plan: Plan,
    #[command(flatten)]
    output: Output,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    exit_code(
        run(&arguments.plan, |step| eprintln!("{step}"))
            .and_then(|report| arguments.output.show("durability", &report, report.tables(), &report.origin)),
    )
}
