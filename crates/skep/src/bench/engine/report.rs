//! Formats the report of `skep bench engine`: as JSON for programs, as a table for people.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use skep_measure::{EngineCase, EngineReport, Figure, LimitWithWork};

use super::measure::Speed;
use crate::bench::report::grouped;
use crate::size::MemorySize;

/// Returns the figures of a case with this speed. Accesses and lines were counted on another store.
pub(super) fn figures(case: &str, speed: Speed, accesses: f64, lines: f64) -> EngineCase {
    let Speed { ops_per_s, limit_lines_per_s, of_limit, limit_lines } = speed;
    let cycles = ops_per_s.noisy_median().map(|ops_per_s| frequency() / ops_per_s);
    let (case, bytes_read) = (case.to_owned(), None);
    EngineCase { case, ops_per_s, limit_lines_per_s, limit_lines, of_limit, accesses, lines, bytes_read, cycles }
}

/// Returns the cycles per second that the kernel reports; NaN if it reports none.
fn frequency() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("cpu MHz")).and_then(|line| line.split_once(':'));
    line.and_then(|(_, number)| number.trim().parse::<f64>().ok()).map_or(f64::NAN, |megahertz| megahertz * 1e6)
}

/// Formats the report as one line of JSON.
pub(super) fn json(report: &EngineReport) -> String {
    serde_json::to_string(report).expect("numbers and text are always valid JSON")
}

/// Returns the table of the cases.
fn cases(report: &EngineReport) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    let has_bytes = report.cases.iter().any(|figures| figures.bytes_read.is_some());
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
    for figures in &report.cases {
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
    table
}

/// Formats the report as a table, with its settings below.
pub(super) fn table(report: &EngineReport) -> String {
    let mut text = format!("{}\n", cases(report));
    if !report.station.is_empty() {
        let cost = |time: f64| format!("{:+.0} %", 100.0 * (time - 1.0));
        let costs = report.station.iter().map(|of| format!("{} {}", of.case, of.time_over_without.text(cost)));
        text += &format!("reservation station: {}\n", costs.collect::<Vec<_>>().join(", "));
    }
    if let Some(tree) = &report.tree {
        text += &format!(
            "{} pairs in a tree of {} levels, {:.3} bytes of memory per byte of keys and values; lines are those that are read\n",
            grouped(tree.pairs as f64),
            tree.height,
            tree.memory_per_raw_byte
        );
    }
    let ratio = report.hash_index_ratio.map_or(String::new(), |ratio| format!(", hash index ratio {ratio:.3}"));
    let share_with = |work: &LimitWithWork| {
        let nanoseconds = work.nanoseconds.text(|nanoseconds| format!("{nanoseconds:.0} ns"));
        format!("{nanoseconds} {}", work.of_limit.text(|share| format!("{share:.2}")))
    };
    let limit_with_work: Vec<_> = report.limit_with_work.iter().map(share_with).collect();
    text + &format!(
        "lines each: lines that the bare loop touches for an operation; a figure with a spread above {:.2} is noisy\n\
         limit: {} random lines/s read, {} read and written\n\
         share of the limit with additional work, after the time of a line and its work in the cache: {}\n\
         {} B pairs fill {:.2} of {}{ratio}; batches of {}; medians of {} rounds\n{}",
        report.spread_max,
        report.limit_read.text(grouped),
        report.limit_rmw.text(grouped),
        limit_with_work.join(", "),
        report.kv_size,
        report.utilization,
        MemorySize(report.memory),
        report.batch,
        report.rounds,
        report.machine,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noisy_figures_are_shown_and_marked() {
        let speed = Speed {
            ops_per_s: Figure::with_spread(18.7e6, 0.04),
            limit_lines_per_s: Figure::with_spread(47.0e6, 0.61),
            of_limit: Figure::with_spread(0.4, 0.58),
            limit_lines: 1,
        };
        let report = EngineReport {
            skep: "0.0.0".to_owned(),
            machine: "abacus".to_owned(),
            engine: "hash".to_owned(),
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
            cases: vec![figures("get_uniform", speed, 1.01, 1.01)],
            station: Vec::new(),
            limit_with_work: Vec::new(),
        };
        let (table, json) = (table(&report), json(&report));
        let row = table.lines().find(|line| line.contains("get_uniform")).expect("the case has a row");
        assert_eq!(row.matches("noisy").count(), 2, "{row}");
        for part in ["18 700 000 ", "47 000 000 noisy", "0.61", "0.40 noisy"] {
            assert!(row.contains(part), "{part}: {row}");
        }
        assert!(table.contains("limit: 50 000 000 random lines/s read, 48 000 000 noisy read and written"), "{table}");
        assert!(json.contains("{\"median\":47000000.0,\"spread\":0.61}"), "{json}");
    }
}
