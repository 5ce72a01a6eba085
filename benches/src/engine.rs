//! The report of `skep bench engine`, with its date and machine: a store alone, as a share of the limit of the memory.
//!
//! The program measures and prints the report. This module runs the program, saves the report and shows it.

use std::path::PathBuf;

use comfy_table::Table;
use skep_measure::{EngineCase, EngineReport, Figure, Progress};

use crate::figures::{millions, percent, ratio};
use crate::plot::{Group, Plot, in_millions};
use crate::program::Measured;
use crate::results::Head;
use crate::skep_bench::report_of;
use crate::tables::{Tables, table};

/// The settings of a run.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    skep: PathBuf,
    /// Arguments of `skep bench engine`, such as --kv-size 62.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// The report with its origin.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The kind is `engine`.
    #[serde(flatten)]
    pub head: Head,
    /// The report that the program printed.
    pub engine: EngineReport,
}

/// Runs `skep bench engine`, which shows its own progress and errors.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Report, String> {
    let engine = report_of(&plan.skep, "engine", &plan.arguments, progress)?;
    Ok(Report { head: Head::here("engine"), engine })
}

impl Measured for Report {
    fn kind(&self) -> String {
        let ordered = if self.is_ordered() { "ordered-" } else { "" };
        format!("engine-{ordered}{}", self.engine.kv_size)
    }

    fn head(&self) -> &Head {
        &self.head
    }

    fn plot(&self) -> Plot {
        let engine = &self.engine;
        let bars = |of: fn(&EngineCase) -> Figure| {
            engine.cases.iter().map(move |case| (format!("skep, {}", case.case), of(case)))
        };
        let groups = vec![
            Group::new("share of the limit", bars(|case| case.of_limit)),
            Group::new("million/s", bars(|case| in_millions(&case.ops_per_s))),
        ];
        let (size, memory) = (engine.kv_size, engine.memory >> 20);
        let title = format!("Pairs of {size} B fill {} of {memory} MiB, one core", engine.utilization);
        Plot::new(title, self.origin(), groups)
    }

    fn tables(&self) -> Tables {
        let engine = &self.engine;
        let mut tables = vec![self.cases()];
        if !engine.station.is_empty() {
            let station = engine.station.iter().map(|cost| {
                let percent = |time: f64| format!("{:+.0} %", 100.0 * (time - 1.0));
                vec![cost.case.clone(), cost.time_over_without.text(percent), spread(&cost.time_over_without)]
            });
            tables.push(table(&["reservation station", "costs", "spread"], 1, station));
        }
        if !engine.limit_with_work.is_empty() {
            let work = engine.limit_with_work.iter().map(|work| {
                let nanoseconds = work.nanoseconds.text(|nanoseconds| format!("{nanoseconds:.0} ns"));
                vec![nanoseconds, ratio(&work.of_limit), spread(&work.of_limit)]
            });
            tables.push(table(&["work for each line, in the cache", "of the limit", "spread"], 1, work));
        }
        Tables { tables, note: self.note() }
    }
}

impl Report {
    /// Returns true if the store is the ordered one.
    pub fn is_ordered(&self) -> bool {
        self.engine.engine == "ordered"
    }

    /// Returns the table of the cases.
    fn cases(&self) -> Table {
        let rows = self.engine.cases.iter().map(|case| {
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
        table(&header, 1, rows)
    }

    /// Returns the note on the settings of the tables.
    fn note(&self) -> String {
        let engine = &self.engine;
        let about = match &engine.tree {
            Some(tree) => format!(
                "{} pairs in a tree of {} levels, loaded in random order, take {:.3} bytes for each byte of keys and \
                 values. Accesses and lines are those that an operation reads; lines that it writes are not counted. The \
                 limit of a case is a loop over one line and the lines of the pairs: the fewest lines that a store touches \
                 whose upper levels are in the caches.",
                tree.pairs, tree.height, tree.memory_per_raw_byte
            ),
            None => "The limit of a case is a loop over the lines that an ideal store touches for it. The station is compared \
                     with no station on batches without dependences and on Zipf reads, and with one request at a time on \
                     one key."
                .to_owned(),
        };
        let about_work = match engine.limit_with_work.as_slice() {
            [] => "",
            _ => {
                " Work: the bare loop over one line, with additional work that touches no other line. The first column is the \
                 time for a line and its work in the cache. An operation of the store that takes as long in the cache \
                 cannot be expected to have a larger share of the limit."
            }
        };
        let per_second = |lines: f64| format!("{} M/s", millions(lines));
        format!(
            "{} B pairs fill {:.2} of {} MiB, one core, batches of {}, medians of {} rounds; a figure with a spread above \
             ±{}% is noisy. Random lines of the bare loop: {} read, {} read and written. Each case has its own bare \
             loop; \"lines each\" is the number of lines that the loop touches for an operation. {about}{about_work}",
            engine.kv_size,
            engine.utilization,
            engine.memory >> 20,
            engine.batch,
            engine.rounds,
            50.0 * engine.spread_max,
            engine.limit_read.text(per_second),
            engine.limit_rmw.text(per_second),
        )
    }
}

/// Returns half of the spread of a figure, as text.
fn spread(figure: &Figure) -> String {
    format!("±{}", percent(figure.spread() / 2.0))
}
