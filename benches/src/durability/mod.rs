//! What durability costs, and how fast a server is back: figures of the level `memory` against those with a log, of Skep
//! against redis-server, and of the log against a bare loop of the same writes.
//!
//! ```text
//! second     puts at the level second / memory
//! always     puts at the level always / redis-server with `appendfsync always`, each at its best depth
//! bandwidth  the log's groups of 1 MiB / a bare loop of the same writes, two in flight
//! latency    p50 of one put at always / (p50 of a bare write of 4 KiB + p50 of one put at memory)
//! snapshot   puts during a snapshot / without one, p99.9 of both, and the memory that it takes
//! recovery   pairs or operations a second from a snapshot and from a log
//! load       the time of redis-server's start from an RDB file and from an AOF / that of Skep
//! bytes      bytes of the log for one put
//! ```
//!
//! All sides of a ratio are measured in each round, in turns. The servers have the first core and the client has the
//! second one, except for `recovery` and `load`: there is no client, and all programs may use all cores. Skep has one
//! shard. All data directories are in one folder, on one disk.

mod always;
mod bandwidth;
mod bytes;
mod folder;
mod latency;
mod recovery;
mod report;
mod second;
mod side;
mod snapshot;

pub use report::{Bar, Report, Row};

use std::path::PathBuf;
use std::time::Duration;

use skep_measure::{Effort, Progress, Rounds, Row as Measurement};

use crate::process::cores;
use crate::program::number;
use crate::results::Head;
use crate::servers::{Plan as ServersPlan, Setting};
use folder::Folder;

/// Connections of the client.
const CONNECTIONS: usize = 16;
/// Requests in a batch, where the figure does not vary them.
const DEPTH: usize = 64;
/// The most rounds of the figures that take long: those of snapshots and starts.
const LONG_ROUNDS: usize = 5;

/// The time of a side, with its warm-up and what is not measured, divided by that of its slice.
const SIDE_FACTOR: f64 = 1.5;

/// A group of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the module explains them, and clap would turn the help of all flags into pages")]
pub enum Section {
    Second,
    Always,
    Bandwidth,
    Latency,
    Snapshot,
    Recovery,
    Load,
    Bytes,
}

/// The settings of a run, as the program takes them.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// The figures to measure, such as `always latency` [default: all].
    pub sections: Vec<Section>,
    /// A folder on the disk that is measured; the run creates a folder in it and removes that at its end.
    #[arg(long, default_value = "target")]
    pub dir: PathBuf,
    /// Pairs of 10 bytes in every server; of larger pairs there are fewer.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1000..=20_000_000))]
    pub keys: u64,
    /// Seconds of each round of a side.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Rounds; for snapshots and starts at most 5.
    #[arg(long, default_value_t = 9, value_parser = number(1..=101))]
    pub rounds: usize,
    /// Check in a minute that everything runs: few pairs, and two short rounds. Its figures say nothing.
    #[arg(long, conflicts_with_all = ["keys", "seconds", "rounds"])]
    pub quick: bool,
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    pub skep: PathBuf,
}

/// What all sections need.
struct Run<'p> {
    plan: &'p Plan,
    folder: Folder,
    /// The programs, with a core for the servers and one for the client.
    setting: Setting,
    /// All cores.
    cores: Vec<usize>,
    progress: &'p Progress,
}

impl Run<'_> {
    /// Returns rounds of one row with this many sides, each of which takes as long as the plan says. There are at most
    /// `rounds_max` rounds.
    fn rounds(&self, name: impl Into<String>, sides: usize, rounds_max: usize) -> Rounds {
        self.rounds_of(vec![Measurement::new(name, sides)], rounds_max)
    }

    /// Returns rounds of these rows.
    fn rounds_of(&self, rows: Vec<Measurement>, rounds_max: usize) -> Rounds {
        let slice = Duration::from_secs_f64(self.plan.seconds);
        let effort = Effort { rounds: self.plan.rounds.min(rounds_max), slice };
        Rounds::new(effort, rows).with_seconds(SIDE_FACTOR * self.plan.seconds)
    }

    /// Returns about how many seconds a section takes.
    fn expected_seconds(&self, section: Section) -> f64 {
        let (sides, loads, rounds_max) = match section {
            Section::Second => (6, 3, usize::MAX),
            Section::Always => (12, 2, usize::MAX),
            Section::Bandwidth => (2, 0, usize::MAX),
            Section::Latency => (3, 2, usize::MAX),
            Section::Snapshot => (4, 2, LONG_ROUNDS),
            Section::Recovery => (3, 3, LONG_ROUNDS),
            Section::Load => (4, 4, LONG_ROUNDS),
            Section::Bytes => (1, 0, LONG_ROUNDS),
        };
        let load_seconds = servers_plan(self.plan, self.plan.keys, DEPTH).load_seconds();
        f64::from(loads) * load_seconds + self.rounds("", sides, rounds_max).expected_seconds()
    }
}

/// Measures the figures.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Report, String> {
    let mut plan = plan.clone();
    if plan.quick {
        (plan.keys, plan.seconds, plan.rounds) = (20_000, 0.05, 2);
    }
    if !(plan.seconds > 0.0 && plan.seconds <= 600.0) {
        return Err("--seconds must be above 0, and at most 600".to_owned());
    }
    if plan.sections.is_empty() {
        plan.sections = <Section as clap::ValueEnum>::value_variants().to_vec();
    }
    let needs_redis = plan.sections.iter().any(|section| matches!(section, Section::Always | Section::Load));
    let programs: &[&str] = if needs_redis { &["redis-server"] } else { &[] };
    let run = Run {
        folder: Folder::new(&plan.dir)?,
        setting: Setting::new(&servers_plan(&plan, plan.keys, DEPTH), programs)?,
        cores: cores()?,
        plan: &plan,
        progress,
    };
    plan.sections.iter().for_each(|section| progress.expect(run.expected_seconds(*section)));
    let mut rows = Vec::new();
    for section in &plan.sections {
        rows.extend(match section {
            Section::Second => second::run(&run),
            Section::Always => always::run(&run),
            Section::Bandwidth => bandwidth::run(&run),
            Section::Latency => latency::run(&run),
            Section::Snapshot => snapshot::run(&run),
            Section::Recovery => recovery::run(&run),
            Section::Load => recovery::load(&run),
            Section::Bytes => bytes::run(&run),
        }?);
    }
    Ok(Report {
        head: Head::here("durability"),
        keys: plan.keys,
        seconds: plan.seconds,
        rounds: plan.rounds,
        quick: plan.quick,
        file_system: run.folder.file_system(),
        cores: [run.setting.server_cores[0], run.setting.client_cores[0]],
        rows,
    })
}

/// Returns these settings for the functions that load and measure servers.
fn servers_plan(plan: &Plan, keys: u64, depth: usize) -> ServersPlan {
    let seconds = plan.seconds * crate::servers::ROUNDS as f64;
    ServersPlan { keys, depth, connections: CONNECTIONS, seconds, skep: plan.skep.clone() }
}
