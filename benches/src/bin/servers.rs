//! `servers`: compares Skep's server with redis-server, memcached and a bare echo, using one client program and the
//! same cores.

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;

use clap::Parser;
use skep_benches::output::{Output, exit_code};
use skep_benches::servers::{Plan, run, serve_echo};

/// Compares the server with redis-server, memcached and a bare echo.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    plan: Plan,
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
    let report = run(&arguments.plan, |step| eprintln!("{step}"))?;
    arguments.output.show("servers", &report, report.tables(), &report.origin)
}
