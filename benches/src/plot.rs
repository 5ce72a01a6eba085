//! Draws a saved result as bars, in an SVG of text and rectangles.
//!
//! ```text
//! title
//! bar group 1   ▇▇▇▇▇▇▇▇▇▇▇ 12.3       one group for each case, one bar for each contender
//!               ▇▇▇▇ 4.5
//! bar group 2   …
//! ```

use std::path::Path;

use plotters::backend::SVGBackend;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{Rectangle, Text};
use plotters::style::{Color, IntoFont, RGBColor, TextStyle};
use skep_measure::{EngineCase, Figure, NOT_MEASURED};

use crate::{durability, engine, maps, ordered, servers, shards};

const WIDTH: i32 = 860;
const MARGIN: i32 = 24;
const TITLE: i32 = 34;
const BAR: i32 = 18;
const GROUP_GAP: i32 = 36;
/// Left end of the bars; names are to the left of it.
const BAR_START: i32 = 220;
/// Width of the number to the right of the longest bar.
const NUMBER: i32 = 70;
const OURS: RGBColor = RGBColor(0xc2, 0x6a, 0x00);
const OTHERS: RGBColor = RGBColor(0x8a, 0x9a, 0xa8);
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);

/// A picture of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Title of the picture.
    pub title: String,
    /// The machine and the date.
    pub note: String,
    /// The groups, from top to bottom.
    pub groups: Vec<Group>,
}

/// Bars that are compared with each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The measured quantity, with its unit.
    pub name: String,
    /// Name and length of each bar; no length if it was not measured.
    pub bars: Vec<(String, Option<f64>)>,
}

impl Plot {
    /// Returns the picture of a comparison with maps.
    pub fn of_maps(report: &maps::Report) -> Self {
        let names = ["get, uniform", "put, existing", "fetch-add", "get, Zipf"];
        let of_case = |(case, name): (usize, &str)| Group {
            name: format!("{name} (million/s)"),
            bars: report.rows.iter().map(|row| (row.name.clone(), in_millions(&row.ops_per_s[case]))).collect(),
        };
        let mut groups: Vec<Group> = names.into_iter().enumerate().map(of_case).collect();
        groups.push(Group {
            name: "memory (bytes a pair)".to_owned(),
            bars: report.rows.iter().map(|row| (row.name.clone(), Some(row.bytes_per_pair))).collect(),
        });
        let title =
            format!("{} million pairs of 8 + 2 B, one thread, batches of {}", millions(report.pairs), report.batch);
        Plot { title, note: format!("{}, {}", report.origin.machine, report.origin.date), groups }
    }

    /// Returns the picture of a comparison with ordered maps.
    pub fn of_ordered(report: &ordered::Report) -> Self {
        let of_case = |(case, name): (usize, &String)| Group {
            name: format!("{name} (million/s)"),
            bars: report.rows.iter().map(|row| (row.name.clone(), in_millions(&row.ops_per_s[case]))).collect(),
        };
        let mut groups: Vec<Group> = report.cases.iter().enumerate().map(of_case).collect();
        groups.push(Group {
            name: "memory (bytes for a byte of keys and values)".to_owned(),
            bars: report.rows.iter().map(|row| (row.name.clone(), Some(row.memory_per_raw_byte))).collect(),
        });
        let title =
            format!("{} million pairs of 16 + 16 B, one thread, batches of {}", millions(report.pairs), report.batch);
        Plot { title, note: format!("{}, {}", report.origin.machine, report.origin.date), groups }
    }

    /// Returns the picture of a comparison with servers.
    pub fn of_servers(report: &servers::Report) -> Self {
        let mut groups = Vec::new();
        for verb in [servers::Verb::Get, servers::Verb::Set] {
            for depth in [1, report.depth] {
                let rows = report.rows.iter().filter(|row| row.verb == verb);
                let bars = rows.filter_map(|row| {
                    let figures = row.depths.iter().find(|figures| figures.depth == depth)?;
                    Some((row.server.clone(), in_millions(&figures.ops_per_s)))
                });
                groups.push(Group { name: format!("{verb:?}, depth {depth} (million/s)"), bars: bars.collect() });
            }
        }
        let keys = usize::try_from(report.keys).unwrap_or(usize::MAX);
        let title = format!(
            "{} million pairs of 8 + 2 B over loopback, one core a server, {} connections",
            millions(keys),
            report.connections
        );
        Plot { title, note: format!("{}, {}", report.origin.machine, report.origin.date), groups }
    }

    /// Returns the picture of a comparison over memcached's protocol.
    pub fn of_memcached(report: &servers::MemcachedReport) -> Self {
        let group = |pair: &[servers::Row]| Group {
            name: format!("{:?} (million/s)", pair[0].verb),
            bars: pair.iter().map(|row| (row.server.clone(), in_millions(&row.depths[0].ops_per_s))).collect(),
        };
        let mut groups: Vec<Group> = report.memcached_rows.chunks_exact(2).map(group).collect();
        let bars = report.memcached_rows.iter().take(2).map(|row| (row.server.clone(), Some(row.bytes_per_pair)));
        groups.push(Group { name: "memory (bytes for each pair)".to_owned(), bars: bars.collect() });
        let title = format!(
            "{} million pairs of 8 + 8 B over memcached's protocol, one core a server, {} connections",
            millions(usize::try_from(report.keys).unwrap_or(usize::MAX)),
            report.connections
        );
        Plot { title, note: format!("{}, {}", report.origin.machine, report.origin.date), groups }
    }

    /// Returns the picture of the figures of durability that have a bar, each in proportion to it.
    pub fn of_durability(report: &durability::Report) -> Self {
        let bars = report.rows.iter().filter(|row| row.bar.is_some()).map(|row| (row.name.clone(), row.of_bar()));
        let name = "figure / bar, or bar / figure if less is better (reached: 1 or more)".to_owned();
        let keys = millions(usize::try_from(report.keys).unwrap_or(usize::MAX));
        let title = format!("{keys} million pairs of 8 + 2 B with a log and snapshots, one shard");
        let groups = vec![Group { name, bars: bars.collect() }];
        Plot { title, note: format!("{}, {}", report.origin.machine, report.origin.date), groups }
    }

    /// Returns the picture of the store and the limit.
    pub fn of_engine(report: &engine::Report) -> Self {
        let engine = &report.engine;
        let bars = |of: fn(&EngineCase) -> Option<f64>| {
            engine.cases.iter().map(|case| (format!("skep, {}", case.case), of(case))).collect()
        };
        let groups = vec![
            Group { name: "share of the limit".to_owned(), bars: bars(|case| case.of_limit.median()) },
            Group { name: "million/s".to_owned(), bars: bars(|case| in_millions(&case.ops_per_s)) },
        ];
        let title = format!(
            "Pairs of {} B fill {} of {} MiB, one core",
            engine.kv_size,
            engine.utilization,
            engine.memory >> 20
        );
        Plot { title, note: format!("{}, {}", report.origin.machine, report.origin.date), groups }
    }

    /// Returns the picture of one and two shards.
    pub fn of_shards(report: &shards::Report) -> Self {
        let names = ["skep, 1 shard", "skep, 2 shards"];
        let mut groups = Vec::new();
        for row in &report.rows {
            let bars = names.iter().zip(&row.ops_per_s);
            let bars = bars.map(|(name, figure)| ((*name).to_owned(), in_millions(figure))).collect();
            groups.push(Group { name: format!("{} (million/s)", row.case), bars });
        }
        let bars = report.hottest.iter();
        let bars = bars
            .map(|hottest| (format!("skep, {} shards", hottest.shards), Some(hottest.over_average.median)))
            .collect();
        groups.push(Group { name: "load of the hottest shard / average, Zipf".to_owned(), bars });
        let title = format!("{} million pairs of 8 + 2 B, a core for each shard", millions(report.pairs));
        Plot { title, note: format!("{}, {}", report.origin.machine, report.origin.date), groups }
    }

    /// Draws the picture into a file.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        self.draw(path).map_err(|error| format!("cannot draw {}: {error}", path.display()))
    }

    fn draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let bars: usize = self.groups.iter().map(|group| group.bars.len()).sum();
        let height = 2 * MARGIN + 2 * TITLE + bars as i32 * BAR + self.groups.len() as i32 * GROUP_GAP;
        let area = SVGBackend::new(path, (WIDTH as u32, height as u32)).into_drawing_area();
        area.fill(&RGBColor(0xff, 0xff, 0xff))?;
        let style = |size| -> TextStyle<'_> { ("sans-serif", size).into_font().color(&INK) };
        area.draw(&Text::new(self.title.clone(), (MARGIN, MARGIN), style(21)))?;
        let mut y = MARGIN + TITLE;
        for group in &self.groups {
            area.draw(&Text::new(group.name.clone(), (MARGIN, y + 8), style(17)))?;
            y += GROUP_GAP - 8;
            let largest = group.bars.iter().filter_map(|bar| bar.1).fold(f64::MIN_POSITIVE, f64::max);
            for (index, (name, number)) in group.bars.iter().enumerate() {
                let length = number.unwrap_or(0.0) / largest * f64::from(WIDTH - BAR_START - NUMBER - MARGIN);
                let length = length as i32;
                let colour = if name.starts_with("skep") { OURS } else { OTHERS };
                area.draw(&Text::new(name.clone(), (MARGIN + 12, y + 3), style(15)))?;
                let corners = [(BAR_START, y + 2), (BAR_START + length.max(1), y + BAR - 2)];
                area.draw(&Rectangle::new(corners, colour.filled()))?;
                let text = number.map_or(NOT_MEASURED.to_owned(), |number| {
                    let digits = if number < 10.0 { 2 } else { 1 };
                    format!("{number:.digits$}")
                });
                area.draw(&Text::new(text, (BAR_START + length + 6, y + 3), style(15)))?;
                y += BAR;
                if index + 1 == group.bars.len() {
                    y += 8;
                }
            }
        }
        area.draw(&Text::new(self.note.clone(), (MARGIN, y + 10), style(14)))?;
        area.present()?;
        Ok(())
    }
}

/// Returns a rate in millions, if it was measured.
fn in_millions(figure: &Figure) -> Option<f64> {
    figure.median().map(|rate| rate / 1e6)
}

fn millions(count: usize) -> String {
    let millions = count as f64 / 1e6;
    if millions >= 1.0 { format!("{millions:.0}") } else { format!("{millions}") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Draws a result that was saved and read back: every case has a bar for each contender.
    #[test]
    fn a_saved_result_can_be_drawn() {
        let plan = maps::Plan {
            pairs: 500,
            batch: 32,
            rounds: 1,
            operations: 100,
            utilization: 0.3,
            slice: Duration::from_micros(200),
        };
        let saved = serde_json::to_string(&maps::run(&plan, "the test's").unwrap()).unwrap();
        let plot = Plot::of_maps(&serde_json::from_str(&saved).unwrap());
        assert_eq!(plot.groups.len(), maps::Case::ALL.len() + 1);
        assert!(plot.groups.iter().all(|group| group.bars.len() == maps::KINDS.len()));
    }

    #[test]
    fn bars_are_drawn_to_scale() {
        let bars = vec![("skep".to_owned(), Some(10.0)), ("a & b".to_owned(), Some(2.5)), ("c".to_owned(), None)];
        let groups = vec![Group { name: "get".to_owned(), bars }];
        let plot = Plot { title: "title".to_owned(), note: "note".to_owned(), groups };
        let path = std::env::temp_dir().join(format!("skep-plot-{}.svg", std::process::id()));
        plot.write(&path).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let widths: Vec<i32> = svg
            .lines()
            .filter(|line| line.starts_with("<rect") && !line.contains("#FFFFFF"))
            .filter_map(|line| line.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert_eq!(widths.len(), 3, "{svg}");
        assert_eq!(widths[2], 1);
        assert!((widths[0] - 4 * widths[1]).abs() <= 4, "{widths:?}");
        for text in ["title", "note", "skep", "a &amp; b", "10.0", "2.50", NOT_MEASURED] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }
}
