//! User functions: λ that Cranelift compiles, against the built-in functions, a copy, Lua in redis-server, and
//! clients that compute by themselves.
//!
//! ```text
//! vectors      GB/s of a λ / the built-in function of the same meaning, in cache and out of it; built-in / a copy
//! scalar       updates of one number by a λ / by the built-in fetch-and-add, in batches of 256
//! limiter      a token bucket of 12 bytes in Skep / the same as a Lua script in redis-server, best depths
//! contention   8 clients that update 1 KiB in the server / that get it, and compare and set
//! compile      milliseconds to parse, check and compile a module of about ten lines
//! ```
//!
//! All sides of a ratio are measured in each round, in turns, on one core. The first two sections run in this program; a
//! server has the first core, and its clients have the second one.

mod compile;
mod contention;
mod lambda;
mod limiter;
mod report;
mod scalar;
mod table;
mod vectors;
mod wire;

use std::path::PathBuf;

use skep_measure::{Effort, Progress};

use crate::process::{available_size, cores, pin_to};
use crate::program::number;
use crate::servers::{Plan as ServersPlan, Protocol, Server, Setting};
use crate::soak::resp::{Reply, Resp};
use crate::tables::Tables;
use report::Line;

/// The stores of vectors together take at most this part of the memory that is available.
const MEMORY_PART: u64 = 8;

/// A group of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[expect(missing_docs, reason = "the module explains them, and clap would turn the help of all flags into pages")]
pub enum Section {
    Vectors,
    Scalar,
    Limiter,
    Contention,
    Compile,
}

/// The settings of a run.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// The figures to measure, such as `scalar compile` [default: all].
    pub sections: Vec<Section>,
    /// Keys of the scalar updates.
    #[arg(long, default_value_t = 10_000_000, value_parser = number(1..=200_000_000))]
    pub keys: usize,
    /// Buckets of the rate limiter.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub buckets: u64,
    /// MiB of the vectors of each size that are out of cache; less if the machine has little memory.
    #[arg(long, default_value_t = 1024, value_parser = number(1..=65_536))]
    pub memory: usize,
    /// Rounds and slices.
    #[command(flatten)]
    pub effort: Effort,
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    pub skep: PathBuf,
}

/// What the sections need.
struct Run<'p> {
    plan: &'p Plan,
    /// The programs and their cores, if a section needs servers.
    setting: Option<Setting>,
    progress: &'p Progress,
}

impl Run<'_> {
    /// Returns the bytes of all vectors of one size that are out of cache.
    fn memory(&self) -> usize {
        let available = available_size().map_or(usize::MAX, |size| (size / MEMORY_PART) as usize);
        (self.plan.memory << 20).min(available)
    }

    fn expected_seconds(&self, section: Section) -> f64 {
        match section {
            Section::Vectors => vectors::expected_seconds(self),
            Section::Scalar => scalar::expected_seconds(self),
            Section::Limiter => limiter::expected_seconds(self),
            Section::Contention => contention::expected_seconds(self),
            Section::Compile => compile::expected_seconds(self),
        }
    }

    fn lines(&self, section: Section) -> Result<Vec<Line>, String> {
        match section {
            Section::Vectors => vectors::run(self),
            Section::Scalar => scalar::run(self),
            Section::Limiter => limiter::run(self),
            Section::Contention => contention::run(self),
            Section::Compile => compile::run(self),
        }
    }
}

/// Measures the figures, and returns their table.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Tables, String> {
    let all = <Section as clap::ValueEnum>::value_variants();
    let sections = if plan.sections.is_empty() { all } else { &plan.sections };
    let needs = |section: Section| sections.contains(&section);
    let setting = (needs(Section::Limiter) || needs(Section::Contention)).then(|| {
        let programs: &[&str] = if needs(Section::Limiter) { &["redis-server"] } else { &[] };
        let (keys, seconds) = (plan.buckets, 1.0);
        let servers = ServersPlan { keys, depth: 1, connections: 1, seconds, skep: plan.skep.clone() };
        Setting::new(&servers, programs)
    });
    let run = Run { plan, setting: setting.transpose()?, progress };
    pin_to(*cores()?.last().ok_or("there is no core")?)?;
    sections.iter().for_each(|section| progress.expect(run.expected_seconds(*section)));
    let mut lines = Vec::new();
    for section in sections {
        lines.extend(run.lines(*section)?);
    }
    let note = format!(
        "{}. Medians of {} rounds by turns, with half of the spread. Batches of {} or 1 MiB, {} keys of one number, {} MiB of \
         vectors out of cache, {} buckets.",
        skep_measure::machine(),
        plan.effort.rounds,
        table::BATCH,
        plan.keys,
        run.memory() >> 20,
        plan.buckets,
    );
    Ok(report::tables(&lines, note))
}

/// Starts Skep with one shard and the module of the measurements.
fn start_skep(setting: &Setting) -> Result<Server, String> {
    let server = setting.skep_with(&["--shards", "1", "--resp", "127.0.0.1:0", "--memory", "1GiB"])?;
    let address = server.address(Protocol::Resp).ok_or("the server has no port for RESP")?;
    let mut resp = Resp::connect(address, None).map_err(|error| error.to_string())?;
    match resp.call(&[b"SKEP.FUNCTION", b"LOAD", lambda::LIMITS.as_bytes()]) {
        Ok(Reply::Bulk(Some(_))) => Ok(server),
        other => Err(format!("the server does not take the functions: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_sections_without_servers_run() {
        let plan = Plan {
            sections: vec![Section::Vectors, Section::Scalar, Section::Compile],
            keys: 1000,
            buckets: 10,
            memory: 2,
            effort: Effort { rounds: 1, slice: Duration::from_millis(1) },
            skep: PathBuf::new(),
        };
        let text = std::thread::spawn(move || run(&plan, &Progress::hidden()).unwrap().text()).join().unwrap();
        for part in ["f32 v + d, 1 KiB in cache", "1 MiB out of cache", "/ copy", "returns the old", "registering"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
