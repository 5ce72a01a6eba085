//! `connections`: a thousand connections to one server, half of them slow or silent, at full load.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use skep_benches::connections::{Plan, run};

/// Compares the latencies of 500 connections alone and beside 500 slow or silent ones.
#[derive(Parser)]
struct Arguments {
    /// Duration of the crowded phase. The calm phase takes a fifth of it.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    skep: PathBuf,
    /// Fail also if latencies are more than twice those of the calm phase, or memory grows.
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
    let crowded = Duration::from_secs(arguments.seconds);
    let report = match run(&Plan { skep: arguments.skep, calm: crowded / 5, crowded, interrupted }) {
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
