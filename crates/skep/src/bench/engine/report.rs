//! What `skep bench engine` prints: one JSON object for programs, a table for people.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use skep_measure::Figure;

use super::hash::Cost;
use super::measure::Speed;
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
    pub(super) tree: Option<TreeStatistics>,
    pub(super) batch: u64,
    pub(super) rounds: u64,
    /// The largest spread of a figure. Medians of larger ones are null.
    pub(super) spread_max: f64,
    /// Random lines that the bare loop reads per second.
    pub(super) limit_read: Figure,
    /// Random lines that it reads and writes per second.
    pub(super) limit_rmw: Figure,
    pub(super) cases: Vec<Figures>,
    /// What the reservation station costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) station: Option<Vec<Cost>>,
    /// The bare loop with work beside each line.
    pub(super) limit_with_work: Vec<WorkBeside>,
}

/// What the ordered store takes after it was loaded in random order.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct TreeStatistics {
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
    pub(super) ops_per_s: Figure,
    /// Lines that the bare loop of the case touches per second.
    pub(super) limit_lines_per_s: Figure,
    /// Lines that it touches for an operation.
    pub(super) limit_lines: u64,
    /// Operations per second over those of the bare loop.
    pub(super) of_limit: Figure,
    pub(super) accesses: f64,
    pub(super) lines: f64,
    /// Of the ordered store: the lines that an operation reads, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_read: Option<f64>,
    pub(super) cycles: Option<f64>,
}

impl Figures {
    /// Returns the figures of a case that has this speed; what an operation touches was counted apart.
    pub(super) fn new(case: &'static str, speed: Speed, accesses: f64, lines: f64) -> Self {
        let Speed { ops_per_s, limit_lines_per_s, of_limit, limit_lines } = speed;
        let cycles = ops_per_s.median().map(|ops_per_s| frequency() / ops_per_s);
        Figures { case, ops_per_s, limit_lines_per_s, limit_lines, of_limit, accesses, lines, bytes_read: None, cycles }
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
        let mut header = vec![
            "case",
            "operations/s",
            "spread",
            "limit, lines/s",
            "spread",
            "lines each",
            "of the limit",
            "spread",
            "accesses",
            "lines",
            "cycles",
        ];
        header.extend(has_bytes.then_some("bytes read"));
        table.set_header(header);
        let spread = |figure: &Figure| format!("{:.2}", figure.spread());
        for figures in &self.cases {
            let mut row = vec![
                figures.case.to_owned(),
                figures.ops_per_s.text(grouped),
                spread(&figures.ops_per_s),
                figures.limit_lines_per_s.text(grouped),
                spread(&figures.limit_lines_per_s),
                figures.limit_lines.to_string(),
                figures.of_limit.text(|share| format!("{share:.2}")),
                spread(&figures.of_limit),
                format!("{:.2}", figures.accesses),
                format!("{:.2}", figures.lines),
                figures.cycles.map_or(String::new(), |cycles| format!("{cycles:.0}")),
            ];
            row.extend(figures.bytes_read.map(|bytes| format!("{bytes:.0}")));
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = format!("{table}\n");
        if let Some(station) = &self.station {
            let cost = |time: f64| format!("{:+.0} %", 100.0 * (time - 1.0));
            let costs = station.iter().map(|of| format!("{} {}", of.case, of.time_over_without.text(cost)));
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
        let beside = |work: &WorkBeside| {
            let nanoseconds = work.nanoseconds.text(|nanoseconds| format!("{nanoseconds:.0} ns"));
            format!("{nanoseconds} {}", work.of_limit.text(|share| format!("{share:.2}")))
        };
        let limit_with_work: Vec<_> = self.limit_with_work.iter().map(beside).collect();
        text + &format!(
            "lines each: lines that the bare loop touches for an operation; a row with a spread above {:.2} is not measured\n\
             limit: {} random lines/s read, {} read and written\n\
             of the limit with so much work for each line, as it takes in the cache: {}\n\
             {} B pairs fill {:.2} of {}{ratio}; batches of {}; medians of {} rounds\n{}",
            self.spread_max,
            self.limit_read.text(grouped),
            self.limit_rmw.text(grouped),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_spreads_is_not_measured_and_shows_no_number() {
        let [ops_per_s, limit_lines_per_s, of_limit] = Figure::row([
            Figure::with_spread(18.7e6, 0.04),
            Figure::with_spread(47.0e6, 0.61),
            Figure::with_spread(0.4, 0.58),
        ]);
        let speed = Speed { ops_per_s, limit_lines_per_s, of_limit, limit_lines: 1 };
        let report = Report {
            skep: "0.0.0",
            machine: "abacus".to_owned(),
            engine: "hash",
            memory: 1 << 30,
            kv_size: 10,
            utilization: 0.3,
            hash_index_ratio: None,
            tree: None,
            batch: 256,
            rounds: 5,
            spread_max: 0.25,
            limit_read: Figure::with_spread(50e6, 0.1),
            limit_rmw: Figure::with_spread(48e6, 0.9),
            cases: vec![Figures::new("get_uniform", speed, 1.01, 1.01)],
            station: None,
            limit_with_work: Vec::new(),
        };
        let (table, json) = (report.table(), report.json());
        let row = table.lines().find(|line| line.contains("get_uniform")).expect("the case has a row");
        assert_eq!(row.matches("not measured").count(), 3, "{row}");
        assert!(row.contains("0.61") && !row.contains("18"), "{row}");
        assert!(table.contains("limit: 50 000 000 random lines/s read, not measured read and written"), "{table}");
        assert_eq!(json.matches("\"median\":null").count(), 4, "{json}");
        assert!(!json.contains("18700000") && !json.contains("47000000"), "{json}");
    }
}
