//! Latency against throughput, over shared memory, TCP and UDP: KV-Direct's Figure 17 and Honeycomb's Figure 12 on this
//! machine.
//!
//! ```text
//! batches of 1, 2, 4 … ─▶ skep bench, one client ─▶ a server with one shard, on the other core
//! ```
//!
//! The client sends a batch, waits for its replies, and sends the next one. So a point is what a client gets that wants this
//! many operations at once: its throughput, and the latency of each batch. Both of a pair's reads and writes are equally
//! frequent, and all keys are (YCSB's workload a, uniform).

use std::path::PathBuf;
use std::process::{Command, Stdio};

use skep_measure::Progress;

use crate::plot::{Group, Plot, exact, in_millions_text};
use crate::program::{Measured, number};
use crate::results::Head;
use crate::servers::{Plan as ServersPlan, Protocol, Server, Setting, free_udp_address};
use crate::tables::{Tables, table};

/// Operations of a batch.
const BATCHES: [usize; 8] = [1, 4, 16, 32, 64, 128, 256, 1024];
/// The spaces, with the memory that their pairs need.
const SPACES: [&str; 2] = ["hash", "ordered"];
const TRANSPORTS: [&str; 3] = ["shared memory", "TCP", "UDP"];
/// The greatest latency of the points in the picture, in microseconds.
const PICTURED_P99: f64 = 100.0;
/// About how many seconds a point takes besides its measurement: the pairs are loaded.
const LOAD_SECONDS: f64 = 2.0;

/// The settings of a run.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    pub skep: PathBuf,
    /// Pairs of 8 + 8 bytes in each space.
    #[arg(long, default_value_t = 1_000_000, value_parser = number(1..=50_000_000))]
    pub records: usize,
    /// Seconds of each point.
    #[arg(long, default_value_t = 3, value_parser = number(1..=600))]
    pub seconds: usize,
}

/// The curves, with their origin.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The kind is `latency`.
    #[serde(flatten)]
    pub head: Head,
    /// See [`Plan::records`].
    pub records: usize,
    /// See [`Plan::seconds`].
    pub seconds: usize,
    /// A curve for each transport of each space.
    pub curves: Vec<Curve>,
}

/// A curve.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Curve {
    /// The space.
    pub space: String,
    /// The transport.
    pub transport: String,
    /// Its points, small batches first.
    pub points: Vec<Point>,
}

/// What `skep bench` prints, as far as it matters here.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct Point {
    /// Operations of a batch.
    pub batch: usize,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Latencies of batches, in microseconds.
    pub p50_us: f64,
    /// The same.
    pub p99_us: f64,
    /// Operations without the expected reply.
    pub errors: u64,
}

/// Measures all curves.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Report, String> {
    let servers = ServersPlan { keys: 0, depth: 1, connections: 1, seconds: 1.0, skep: plan.skep.clone() };
    let setting = Setting::new(&servers, &[])?;
    let socket = std::env::temp_dir().join(format!("skep-latency-{}", std::process::id()));
    let shared = format!("shm:{}", socket.display());
    let udp = free_udp_address()?.to_string();
    let path = socket.to_string_lossy();
    let listen = ["--shards", "1", "--resp", "off", "--shared-memory", &path, "--udp", &udp];
    let server = setting.skep_with(&[&listen[..], &["--memory", "2GiB", "--ordered-memory", "2GiB"]].concat())?;
    let addresses = [shared, native_address(&server)?, format!("udp:{udp}")];
    let seconds = plan.seconds as f64 + LOAD_SECONDS;
    progress.expect((SPACES.len() * TRANSPORTS.len() * BATCHES.len()) as f64 * seconds);
    let mut curves = Vec::new();
    for space in SPACES {
        for (transport, address) in TRANSPORTS.iter().zip(&addresses) {
            let mut points = Vec::new();
            for batch in BATCHES {
                progress.begin(format!("{space}, {transport}, batches of {batch}"), seconds);
                points.push(point(plan, space, address, batch)?);
            }
            curves.push(Curve { space: space.to_owned(), transport: (*transport).to_owned(), points });
        }
    }
    let (records, seconds) = (plan.records, plan.seconds);
    Ok(Report { head: Head::here("latency"), records, seconds, curves })
}

/// Returns the address of the server's native port.
fn native_address(server: &Server) -> Result<String, String> {
    let address = server.address(Protocol::Native).ok_or("the server does not listen")?;
    Ok(address.to_string())
}

/// Measures a point.
fn point(plan: &Plan, space: &str, address: &str, batch: usize) -> Result<Point, String> {
    let failed = |reason: &dyn std::fmt::Display| format!("skep bench at {address}: {reason}");
    let mut command = Command::new(&plan.skep);
    command.args([
        "bench",
        "--json",
        "--clients",
        "1",
        "--distribution",
        "uniform",
        "--addr",
        address,
        "--space",
        space,
    ]);
    for (flag, number) in [("--records", plan.records), ("--seconds", plan.seconds), ("--batch", batch)] {
        command.args([flag, &number.to_string()]);
    }
    let output = command.stderr(Stdio::piped()).output().map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr)));
    }
    let point: Point = serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))?;
    if point.errors > 0 { Err(failed(&format!("{} wrong replies", point.errors))) } else { Ok(point) }
}

impl Measured for Report {
    fn head(&self) -> &Head {
        &self.head
    }

    fn plot(&self) -> Plot {
        let group = |space: &str| {
            let curves = self.curves.iter().filter(|curve| curve.space == space);
            let bars = curves.map(|curve| {
                let fast = curve.points.iter().filter(|point| point.p99_us <= PICTURED_P99);
                let most = fast.map(|point| point.ops_per_s).fold(0.0, f64::max);
                (format!("skep, {}", curve.transport), exact(most / 1e6))
            });
            Group::new(format!("{space} space, million operations/s"), bars.collect::<Vec<_>>().into_iter())
        };
        let title = format!("One client, p99 of a batch at most {PICTURED_P99} µs");
        Plot::new(title, self.origin(), SPACES.map(group).to_vec())
    }

    fn tables(&self) -> Tables {
        let of_space = |space: &&str| {
            let curves: Vec<&Curve> = self.curves.iter().filter(|curve| curve.space == *space).collect();
            let names = curves.iter().map(|curve| format!("{}: M/s · p50 · p99 µs", curve.transport));
            let header: Vec<String> = std::iter::once(format!("{space} space, batch")).chain(names).collect();
            let row = |index: usize, batch: usize| {
                let cell = |curve: &&Curve| {
                    let point = &curve.points[index];
                    format!("{:.2} · {:.0} · {:.0}", point.ops_per_s / 1e6, point.p50_us, point.p99_us)
                };
                std::iter::once(batch.to_string()).chain(curves.iter().map(cell)).collect::<Vec<String>>()
            };
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            let rows = BATCHES.iter().enumerate().filter(|(index, _)| curves.iter().all(|c| *index < c.points.len()));
            table(&header, 1, rows.map(|(index, batch)| row(index, *batch)))
        };
        let note = format!(
            "One client thread on a core of its own, one shard on another; {} pairs of 8 + 8 bytes, half reads, uniform \
             keys; {} s for each point. A latency is that of a batch, from its first byte sent to its last reply.",
            in_millions_text(self.records as u64) + " million",
            self.seconds
        );
        Tables { tables: SPACES.iter().map(of_space).collect(), note }
    }
}
