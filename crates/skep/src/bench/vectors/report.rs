//! Formats the report of `skep bench vectors`: as tables for people, as JSON and CSV for programs.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use skep_measure::{Figure, VectorLine, VectorSpeed, VectorsReport};
use skep_nic::paper::Item;

/// Returns the speeds that KV-Direct has published.
pub(super) fn published() -> Vec<VectorLine> {
    let mut lines: Vec<VectorLine> = Vec::new();
    for reference in Item::named("table2").expect("the evaluation has Table 2").references() {
        let speed =
            VectorSpeed { size: reference.x() as u64, bytes_per_s: Figure::with_spread(reference.y * 1e9, 0.0) };
        add(&mut lines, "KV-Direct's card", &reference.series, speed);
    }
    lines
}

/// Adds a speed to the line of its way, which is appended if it is not there.
pub(super) fn add(lines: &mut Vec<VectorLine>, over: &str, way: &str, speed: VectorSpeed) {
    match lines.iter_mut().find(|line| (line.over.as_str(), line.way.as_str()) == (over, way)) {
        Some(line) => line.speeds.push(speed),
        None => lines.push(VectorLine { over: over.to_owned(), way: way.to_owned(), speeds: vec![speed] }),
    }
}

/// Formats the report as one line of JSON.
pub(super) fn json(report: &VectorsReport) -> String {
    serde_json::to_string(report).expect("numbers and text are always valid JSON")
}

/// Formats the speeds as CSV, with a line for each. Sizes are in bytes, speeds in GB/s.
pub(super) fn csv(report: &VectorsReport) -> String {
    let mut text = "vectors,over,way,size,gb_per_s,spread".to_owned();
    for (name, lines) in report.parts() {
        for VectorLine { over, way, speeds } in lines {
            for VectorSpeed { size, bytes_per_s } in speeds {
                let speed = bytes_per_s.noisy_median().map_or(String::new(), |speed| format!("{:.4}", speed / 1e9));
                // Some names have a comma.
                text += &format!("\n{name},{over},\"{way}\",{size},{speed},{:.3}", bytes_per_s.spread());
            }
        }
    }
    text
}

/// Formats the report as tables, with the settings below.
pub(super) fn tables(report: &VectorsReport) -> String {
    let mut text = String::new();
    for (name, lines) in report.parts() {
        let sizes = VectorLine::sizes(lines);
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(VectorLine::header(name, lines));
        table.add_rows(lines.iter().map(|line| line.cells(&sizes)));
        table.column_iter_mut().skip(2).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        text += &format!("{table}\n");
    }
    text + &format!("{}\n{}; version {}", report.note(), report.machine, report.skep)
}
