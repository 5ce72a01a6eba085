//! What `skep bench engine` prints: one JSON object for programs, a table for people.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::hash::Cost;
use super::measure::median;
use super::work::WorkBeside;
use crate::bench::report::grouped;
use crate::size::MemorySize;

/// What was measured, in the order of the JSON. What only one of the engines has is left out of the other's.
#[derive(Debug, serde::Serialize)]
pub(super) struct Report {
    pub(super) skep: &'static str,
    pub(super) machine: String,
    pub(super) engine: &'static str,
    pub(super) memory: u64,
    pub(super) kv_size: u64,
    pub(super) utilization: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hash_index_ratio: Option<f64>,
    /// Of the ordered store.
    #[serde(flatten)]
    pub(super) tree: Option<TreeFigures>,
    pub(super) batch: u64,
    pub(super) rounds: u64,
    /// Random lines read a second by the bare loop.
    pub(super) limit_read: f64,
    /// Random lines read and written a second.
    pub(super) limit_rmw: f64,
    pub(super) cases: Vec<Figures>,
    /// What the reservation station costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) station: Option<Vec<Cost>>,
    /// The bare loop with work beside each line.
    pub(super) limit_with_work: Vec<WorkBeside>,
}

/// What the ordered store takes after it was loaded in random order.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct TreeFigures {
    pub(super) pairs: u64,
    /// Levels, leaves included.
    pub(super) height: u32,
    /// Bytes of frames and page table for a byte of keys and values.
    pub(super) memory_per_raw_byte: f64,
}

/// The figures of a case.
#[derive(Debug, serde::Serialize)]
pub(super) struct Figures {
    pub(super) case: &'static str,
    pub(super) ops_per_s: f64,
    pub(super) accesses: f64,
    pub(super) lines: f64,
    /// Of the ordered store: the lines that an operation reads, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_read: Option<f64>,
    pub(super) of_limit: f64,
    /// Spread of `ops_per_s`.
    pub(super) spread: f64,
    pub(super) of_limit_spread: f64,
    pub(super) cycles: f64,
}

impl Figures {
    /// Of a case that was timed in these rounds; what an operation touches was counted apart.
    pub(super) fn new(case: &'static str, rounds: &[(f64, f64)], accesses: f64, lines: f64) -> Self {
        let figure = |of: fn(&(f64, f64)) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
        let (ops_per_s, spread) = figure(|(ops_per_s, _)| *ops_per_s);
        let (of_limit, of_limit_spread) = figure(|(_, of_limit)| *of_limit);
        let cycles = frequency() / ops_per_s;
        Figures { case, ops_per_s, accesses, lines, bytes_read: None, of_limit, spread, of_limit_spread, cycles }
    }
}

/// Cycles a second, as the kernel says; NaN where it does not.
fn frequency() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("cpu MHz")).and_then(|line| line.split_once(':'));
    line.and_then(|(_, number)| number.trim().parse::<f64>().ok()).map_or(f64::NAN, |megahertz| megahertz * 1e6)
}

impl Report {
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and text are always valid JSON")
    }

    pub(super) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        let has_bytes = self.cases.iter().any(|figures| figures.bytes_read.is_some());
        let mut header =
            vec!["case", "operations/s", "spread", "of the limit", "spread", "accesses", "lines", "cycles"];
        header.extend(has_bytes.then_some("bytes read"));
        table.set_header(header);
        for figures in &self.cases {
            let mut row = vec![
                figures.case.to_owned(),
                grouped(figures.ops_per_s),
                format!("{:.2}", figures.spread),
                format!("{:.2}", figures.of_limit),
                format!("{:.2}", figures.of_limit_spread),
                format!("{:.2}", figures.accesses),
                format!("{:.2}", figures.lines),
                format!("{:.0}", figures.cycles),
            ];
            row.extend(figures.bytes_read.map(|bytes| format!("{bytes:.0}")));
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = format!("{table}\n");
        if let Some(station) = &self.station {
            let costs = station.iter().map(|cost| format!("{} {:+.0} %", cost.case, 100.0 * cost.cost));
            text += &format!("reservation station: {}\n", costs.collect::<Vec<_>>().join(", "));
        }
        if let Some(tree) = &self.tree {
            text += &format!(
                "{} pairs in a tree of {} levels, {:.3} bytes for each of theirs; lines are those that are read\n",
                grouped(tree.pairs as f64),
                tree.height,
                tree.memory_per_raw_byte
            );
        }
        let ratio = self.hash_index_ratio.map_or(String::new(), |ratio| format!(", hash index ratio {ratio:.3}"));
        let beside = |work: &WorkBeside| format!("{:.0} ns {:.2}", work.nanoseconds, work.of_limit);
        let limit_with_work: Vec<_> = self.limit_with_work.iter().map(beside).collect();
        text + &format!(
            "limit: {} random lines/s read, {} read and written\n\
             of the limit with so much work for each line, as it takes in the cache: {}\n\
             {} B pairs fill {:.2} of {}{ratio}; batches of {}; medians of {} rounds\n{}",
            grouped(self.limit_read),
            grouped(self.limit_rmw),
            limit_with_work.join(", "),
            self.kv_size,
            self.utilization,
            MemorySize(self.memory),
            self.batch,
            self.rounds,
            self.machine,
        )
    }
}
