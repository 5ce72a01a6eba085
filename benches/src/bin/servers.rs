//! `servers`: compares Skep's server with redis-server, memcached and a bare echo, using one client program and the
//! same cores.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use skep_benches::output::{Output, exit_code};
use skep_benches::servers::{Plan, run, serve_echo};

/// Compares the server with redis-server, memcached and a bare echo.
#[derive(Parser)]
struct Arguments {
    /// Pairs of 8 + 2 bytes in every server.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: u64,
    /// Requests in a batch, for the figures that compare all servers at one depth.
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
    // Set for the child process that serves the echo.
    #[arg(long, hide = true)]
    echo: Option<SocketAddr>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.echo {
        Some(address) => {
            TcpListener::bind(address).and_then(|listener| serve_echo(&listener)).map_err(|error| error.to_string())
        }
        None => compare(&arguments),
    };
    exit_code(outcome)
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
    let report = run(&plan, |step| eprintln!("{step}"))?;
    arguments.output.show("servers", &report, report.tables(), &report.origin)
}
