//! `soak`: runs all attacks against one server at once, while two well-behaved clients (the witnesses) check that they
//! are not affected.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use skep_benches::soak::{Plan, run};

/// Runs all attacks against one server at once and checks two well-behaved clients.
#[derive(Parser)]
struct Arguments {
    /// Duration of the soak.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    skep: PathBuf,
    /// Fail also if a witness waits too long (p99 of 20 ms), memory grows, or the server takes 3 s to end.
    #[arg(long)]
    judge: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Stops the server before this program ends.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&interrupted)) {
            eprintln!("cannot wait for signals: {error}");
            return ExitCode::FAILURE;
        }
    }
    let plan = Plan { skep: arguments.skep, time: Duration::from_secs(arguments.seconds), interrupted };
    let report = match run(&plan) {
        Ok(report) => report,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", report.text());
    let mut failures = report.failures();
    if arguments.judge {
        failures.extend(report.slow_failures());
    }
    failures.iter().for_each(|failure| println!("{failure}"));
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
