//! `skep-benches`: measures Skep beside other servers, and alone. See the table of commands in the library.

use std::process::ExitCode;

use clap::Parser;
use skep_benches::process::catch_signals;
use skep_benches::program::{self, Comparison};
use skep_benches::{
    connections, durability, durable, engine, expiry, functions, instructions, latency, page, servers, shards, soak,
    vectors,
};
use skep_measure::Progress;

/// Measures Skep beside other servers, and alone.
#[derive(Parser)]
enum Command {
    /// Compares the server with redis-server, memcached and a bare echo.
    Servers(Comparison<servers::Plan>),
    /// Compares Skep's cache with memcached over memcached's protocol.
    Memcached(Comparison<servers::Plan>),
    /// Measures what TLS and a scrape of the metrics each second cost a server.
    Operation(servers::Plan),
    /// Measures one and two shards in one process.
    Shards(Comparison<shards::Plan>),
    /// Measures what durability costs and how fast a server is back, also against redis-server.
    Durability(Comparison<durability::Plan>),
    /// Runs `skep bench engine` and saves the report that it prints.
    Engine(Comparison<engine::Plan>),
    /// Measures what a log costs a store inside a program.
    Durable(durable::Plan),
    /// Measures how long the hash store takes to free the memory of keys that have expired.
    Expiry(expiry::Plan),
    /// Compares user functions with built-in ones, with Lua in redis-server, and with clients that compute.
    Functions(functions::Plan),
    /// Runs `skep bench vectors` beside redis-server and saves the report that it prints.
    Vectors(Comparison<vectors::Plan>),
    /// Measures latency against throughput over shared memory, TCP and UDP.
    Latency(Comparison<latency::Plan>),
    /// Counts the instructions of one operation of a store with callgrind. Wants valgrind, and a release build.
    Instructions(instructions::Plan),
    /// Runs all attacks against one server at once and checks two well-behaved clients.
    Soak(soak::Plan),
    /// Compares the latencies of 500 connections alone and beside 500 slow or silent ones.
    Connections(connections::Plan),
    /// Writes docs/performance.md, the pages of the machines, and a picture for each saved result.
    Plots,
    /// Serves the bare echo on a free port, which it prints.
    #[command(hide = true)]
    Echo,
}

fn main() -> ExitCode {
    program::main(run)
}

fn run(command: Command, progress: Progress) -> Result<(), String> {
    match command {
        Command::Servers(comparison) => comparison.run(progress, servers::run),
        Command::Memcached(comparison) => comparison.run(progress, servers::compare_memcached),
        Command::Operation(plan) => {
            servers::measure_operation(&plan, &progress).map(|tables| println!("{}", tables.text()))
        }
        Command::Shards(comparison) => comparison.run(progress, shards::run),
        Command::Durability(comparison) => comparison.run(progress, durability::run),
        Command::Engine(comparison) => comparison.run(progress, engine::run),
        Command::Durable(plan) => durable::run(&plan, &progress).map(|report| println!("{}", report.text())),
        Command::Expiry(plan) => expiry::run(&plan, &progress).map(|report| println!("{}", report.tables().text())),
        Command::Functions(plan) => functions::run(&plan, &progress).map(|tables| println!("{}", tables.text())),
        Command::Vectors(comparison) => comparison.run(progress, vectors::run),
        Command::Latency(comparison) => comparison.run(progress, latency::run),
        Command::Instructions(plan) => instructions::run(&plan, &progress).map(|text| println!("{text}")),
        Command::Soak(plan) => {
            catch_signals(&plan.interrupted)?;
            let report = soak::run(&plan, &progress)?;
            let slow = if plan.judge { report.slow_failures() } else { Vec::new() };
            program::judge(&report.text(), &[report.failures(), slow].concat())
        }
        Command::Connections(plan) => {
            catch_signals(&plan.interrupted)?;
            let report = connections::run(&plan, &progress)?;
            let slow = if plan.judge { report.slow_failures() } else { Vec::new() };
            program::judge(&report.text(), &[report.failures(), slow].concat())
        }
        Command::Plots => page::write_all(),
        Command::Echo => {
            // The program that starts it shows progress.
            drop(progress);
            servers::serve_echo()
        }
    }
}
