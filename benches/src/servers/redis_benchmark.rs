//! Runs redis-benchmark, unmodified, against Redis and against Skep's RESP port.
//!
//! Its keys are `key:` and twelve digits. It draws them from as many keys as were loaded before. It runs on the
//! client's core.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use skep_measure::Sample;

use super::child::{Server, find_program};
use super::template::Verb;
use crate::process::processor_seconds_of_children;

/// One line of the report of redis-benchmark.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct BenchmarkRow {
    /// Name of the server.
    pub server: String,
    /// The command.
    pub verb: Verb,
    /// Requests in a pipeline.
    pub depth: usize,
    /// Requests per second of each round. The other fields are those of the median round.
    pub rates: Vec<f64>,
    /// Processor time of the server, in cores.
    pub server_cpu: f64,
    /// Processor time of redis-benchmark, in cores.
    pub client_cpu: f64,
}

/// Arguments of redis-benchmark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) keys: u64,
    pub(super) connections: usize,
    pub(super) depth: usize,
    pub(super) requests: u64,
}

/// Returns true if redis-benchmark is installed.
pub(super) fn is_installed() -> bool {
    find_program("redis-benchmark").is_some()
}

/// What redis-benchmark has printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) ops_per_s: f64,
    pub(super) p99_ms: f64,
}

impl Sample for Measured {
    fn number(&self) -> f64 {
        self.ops_per_s
    }
}

impl Sample for BenchmarkRow {
    fn number(&self) -> f64 {
        self.rates[0]
    }
}

/// Runs one test of redis-benchmark.
pub(super) fn measure(
    server: &Server,
    address: SocketAddr,
    test: &str,
    settings: Settings,
) -> Result<Measured, String> {
    let mut command = Command::new(find_program("redis-benchmark").unwrap_or_default());
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    command.args(["-h", &host, "-p", &port, "-t", test, "--csv", "-d", "3"]);
    for (flag, number) in [
        ("-P", settings.depth as u64),
        ("-c", settings.connections as u64),
        ("-r", settings.keys),
        ("-n", settings.requests),
    ] {
        command.arg(flag).arg(number.to_string());
    }
    let output = command.output().map_err(|error| format!("cannot run redis-benchmark: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    read(&text).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("redis-benchmark printed no rate against {}: {text}{errors}", server.name)
    })
}

/// Runs redis-benchmark once, and measures the processor time.
pub(super) fn run(
    server: &Server,
    address: SocketAddr,
    verb: Verb,
    settings: Settings,
) -> Result<BenchmarkRow, String> {
    let (server_begun, client_begun) = (server.processor_seconds(), processor_seconds_of_children());
    let begun = Instant::now();
    let test = if verb == Verb::Get { "get" } else { "set" };
    let ops_per_s = measure(server, address, test, settings)?.ops_per_s;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(BenchmarkRow {
        server: server.name.to_owned(),
        verb,
        depth: settings.depth,
        rates: vec![ops_per_s],
        server_cpu: (server.processor_seconds() - server_begun) / seconds,
        client_cpu: (processor_seconds_of_children() - client_begun) / seconds,
    })
}

/// Returns the rate and the 99th percentile in the last line of its table.
fn read(csv: &str) -> Option<Measured> {
    let (header, line) = (csv.lines().next()?, csv.lines().nth(1).and(csv.lines().last())?);
    let column = |name: &str| {
        let index = header.split(',').position(|field| field.trim_matches('"') == name)?;
        line.rsplit(',').nth(header.split(',').count() - 1 - index)?.trim_matches('"').parse().ok()
    };
    Some(Measured { ops_per_s: column("rps")?, p99_ms: column("p99_latency_ms")? })
}

#[cfg(test)]
mod tests {
    use super::{Measured, read};

    #[test]
    fn its_table_is_read() {
        let csv = "\"test\",\"rps\",\"p99_latency_ms\"\n\"MSET (10 keys), 1\",\"1234567.89\",\"0.5\"\n";
        assert_eq!(read(csv), Some(Measured { ops_per_s: 1_234_567.89, p99_ms: 0.5 }));
        assert_eq!(read("Could not connect\n"), None);
    }
}
