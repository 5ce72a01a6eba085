//! What `skep bench engine` prints, with the day and the machine: the store alone, as a share of what the memory allows.
//!
//! The program measures; this only runs it and keeps what it says.

use std::path::Path;
use std::process::Command;

use skep_measure::Figure;

use crate::figures::{millions, ratio};
use crate::results::Origin;
use crate::tables::{Tables, table};

/// What was found.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Always `engine`.
    pub kind: String,
    /// When and where.
    #[serde(flatten)]
    pub origin: Origin,
    /// What the program printed.
    pub engine: Engine,
}

/// The JSON of `skep bench engine`, as far as it is shown.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Engine {
    /// Which store: `hash`, also where it was not said, or `ordered`.
    #[serde(default = "hash")]
    pub engine: String,
    /// Bytes of the store's memory.
    pub memory: u64,
    /// Bytes of a pair.
    pub kv_size: u64,
    /// Share of the memory that is keys and values.
    pub utilization: f64,
    /// Operations of a batch.
    pub batch: u64,
    /// Rounds of a case.
    pub rounds: u64,
    /// The largest spread of a figure that was measured.
    pub spread_max: f64,
    /// Random lines that the bare loop reads per second.
    pub limit_read: Figure,
    /// Random lines that it reads and writes per second.
    pub limit_rmw: Figure,
    /// One for each case.
    pub cases: Vec<Case>,
    /// What the reservation station of the hash store costs in some of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub station: Vec<StationCost>,
    /// The bare loop with work beside each line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limit_with_work: Vec<WorkBeside>,
    /// Of the ordered store: bytes of memory for a byte of keys and values, after a load in random order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_per_raw_byte: Option<f64>,
    /// Of the ordered store: pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<u64>,
    /// Of the ordered store: levels of the tree, leaves included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
}

/// The engine of results that do not say it.
fn hash() -> String {
    "hash".to_owned()
}

/// The bare loop with so much work for each line.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct WorkBeside {
    /// Nanoseconds that line and work take in the cache.
    pub nanoseconds: Figure,
    /// Lines per second over those without the work, none in the cache.
    pub of_limit: Figure,
}

/// What the reservation station costs in a case.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct StationCost {
    /// Its name.
    pub case: String,
    /// Time with the station / time without it: below one it gains.
    pub time_over_without: Figure,
}

/// The figures of a case.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Case {
    /// Its name.
    pub case: String,
    /// Operations per second.
    pub ops_per_s: Figure,
    /// Lines that the bare loop of the case touches per second.
    pub limit_lines_per_s: Figure,
    /// Lines that it touches for an operation.
    pub limit_lines: u64,
    /// Operations per second over those of the bare loop.
    pub of_limit: Figure,
    /// Accesses of an operation.
    pub accesses: f64,
    /// Lines of an operation; of the ordered store those that it reads.
    pub lines: f64,
    /// Of the ordered store: the same in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_read: Option<f64>,
}

/// Runs the program with these arguments of `skep bench engine`.
pub fn run(skep: &Path, arguments: &[String]) -> Result<Report, String> {
    let failed = |reason: &dyn std::fmt::Display| format!("{} bench engine: {reason}", skep.display());
    let mut command = Command::new(skep);
    command.args(["bench", "engine", "--json"]).args(arguments);
    let output = command.output().map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr).trim()));
    }
    let engine = serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))?;
    Ok(Report { kind: "engine".to_owned(), origin: Origin::here(), engine })
}

impl Report {
    /// The table, and below it what it was measured with.
    pub fn tables(&self) -> Tables {
        let engine = &self.engine;
        let rows = engine.cases.iter().map(|case| {
            let spread = |figure: &Figure| format!("{:.2}", figure.spread());
            vec![
                case.case.clone(),
                case.ops_per_s.text(millions),
                spread(&case.ops_per_s),
                case.limit_lines_per_s.text(millions),
                spread(&case.limit_lines_per_s),
                case.limit_lines.to_string(),
                ratio(&case.of_limit),
                spread(&case.of_limit),
                format!("{:.2}", case.accesses),
                format!("{:.2}", case.lines),
            ]
        });
        let header = [
            "case",
            "M/s",
            "spread",
            "limit, M lines/s",
            "spread",
            "lines each",
            "of the limit",
            "spread",
            "accesses",
            "lines",
        ];
        let station = engine.station.iter().map(|cost| {
            let percent = |time: f64| format!("{:+.0} %", 100.0 * (time - 1.0));
            vec![
                cost.case.clone(),
                cost.time_over_without.text(percent),
                format!("{:.2}", cost.time_over_without.spread()),
            ]
        });
        let about = match (engine.memory_per_raw_byte, engine.pairs, engine.height) {
            (Some(memory), Some(pairs), Some(height)) => format!(
                "{pairs} pairs in a tree of {height} levels, loaded in random order, take {memory:.3} bytes for each byte of \
                 keys and values. Accesses and lines are those that an operation reads, without those that a writer writes; \
                 the limit of a case is a loop over one line and behind it those of the pairs, the least that a store touches \
                 whose upper levels are in the caches."
            ),
            _ => "The limit of a case is a loop over the lines that an ideal store touches for it. The station is compared \
                  with none on batches without dependences and on Zipf reads, and with one request at a time on one key."
                .to_owned(),
        };
        let about_work = match engine.limit_with_work.as_slice() {
            [] => "",
            _ => {
                " Work: the bare loop over one line with work that touches no other, which takes so long for a line in the \
                 cache. What an operation of the store takes there bounds its share in the same way."
            }
        };
        let note = format!(
            "{} B pairs fill {:.2} of {} MiB, one core, batches of {}, medians of {} rounds; a row with a spread above {:.2} \
             is not measured. The bare loop reads {} M random lines/s, and reads and writes {} M. The limit of a case is its \
             own bare loop, which touches so many lines each. {about}{about_work}",
            engine.kv_size,
            engine.utilization,
            engine.memory >> 20,
            engine.batch,
            engine.rounds,
            engine.spread_max,
            engine.limit_read.text(millions),
            engine.limit_rmw.text(millions),
        );
        let mut tables = vec![table(&header, 1, rows)];
        if !engine.station.is_empty() {
            tables.push(table(&["reservation station", "costs", "spread"], 1, station));
        }
        if !engine.limit_with_work.is_empty() {
            let work = engine.limit_with_work.iter().map(|work| {
                let nanoseconds = work.nanoseconds.text(|nanoseconds| format!("{nanoseconds:.0} ns"));
                vec![nanoseconds, ratio(&work.of_limit), format!("{:.2}", work.of_limit.spread())]
            });
            tables.push(table(&["work for each line, in the cache", "of the limit", "spread"], 1, work));
        }
        Tables { tables, note }
    }
}
