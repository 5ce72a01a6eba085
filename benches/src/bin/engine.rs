//! `engine`: runs `skep bench engine` and saves the report that it prints.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use skep_benches::engine::run;
use skep_benches::output::{Output, exit_code};

/// Runs `skep bench engine` and saves the report that it prints.
#[derive(Parser)]
struct Arguments {
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    skep: PathBuf,
    #[command(flatten)]
    output: Output,
    /// Arguments of `skep bench engine`, such as --kv-size 62.
    #[arg(last = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = run(&arguments.skep, &arguments.arguments).and_then(|report| {
        let ordered = if report.engine.engine == "ordered" { "ordered-" } else { "" };
        let kind = format!("engine-{ordered}{}", report.engine.kv_size);
        arguments.output.show(&kind, &report, report.tables(), &report.origin)
    });
    exit_code(outcome)
}
