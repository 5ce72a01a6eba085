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
use skep_measure::Figure;

use crate::results::Origin;

const WIDTH: i32 = 860;
const MARGIN: i32 = 24;
const TITLE: i32 = 34;
const BAR: i32 = 18;
const GROUP_GAP: i32 = 36;
/// Left end of the bars, at least; names are to the left of it.
const BAR_START: i32 = 220;
/// Left end of the names, and the width of one of their characters, about.
const NAME_START: i32 = MARGIN + 12;
const CHARACTER: i32 = 8;
/// Width of the number to the right of the longest bar.
const NUMBER: i32 = 100;
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
    /// Name and length of each bar.
    pub bars: Vec<(String, Figure)>,
}

impl Group {
    /// Returns a group of these bars.
    pub fn new(name: impl Into<String>, bars: impl Iterator<Item = (String, Figure)>) -> Group {
        Group { name: name.into(), bars: bars.collect() }
    }
}

impl Plot {
    /// Returns the picture of a measurement with this origin.
    pub fn new(title: String, origin: &Origin, groups: Vec<Group>) -> Plot {
        Plot { title, note: format!("{}, {}", origin.machine, origin.date), groups }
    }

    /// Draws the picture into a file.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        self.draw(path).map_err(|error| format!("cannot draw {}: {error}", path.display()))
    }

    /// Returns the left end of the bars.
    fn bar_start(&self) -> i32 {
        let names = self.groups.iter().flat_map(|group| &group.bars).map(|(name, _)| name.chars().count());
        BAR_START.max(NAME_START + CHARACTER * names.max().unwrap_or(0) as i32)
    }

    fn draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let bars: usize = self.groups.iter().map(|group| group.bars.len()).sum();
        let height = 2 * MARGIN + 2 * TITLE + bars as i32 * BAR + self.groups.len() as i32 * GROUP_GAP;
        let area = SVGBackend::new(path, (WIDTH as u32, height as u32)).into_drawing_area();
        area.fill(&RGBColor(0xff, 0xff, 0xff))?;
        let style = |size| -> TextStyle<'_> { ("sans-serif", size).into_font().color(&INK) };
        area.draw(&Text::new(self.title.clone(), (MARGIN, MARGIN), style(21)))?;
        let bar_start = self.bar_start();
        let mut y = MARGIN + TITLE;
        for group in &self.groups {
            area.draw(&Text::new(group.name.clone(), (MARGIN, y + 8), style(17)))?;
            y += GROUP_GAP - 8;
            let lengths = group.bars.iter().filter_map(|bar| bar.1.noisy_median());
            let largest = lengths.fold(f64::MIN_POSITIVE, f64::max);
            for (index, (name, figure)) in group.bars.iter().enumerate() {
                let length =
                    figure.noisy_median().unwrap_or(0.0) / largest * f64::from(WIDTH - bar_start - NUMBER - MARGIN);
                let length = length as i32;
                let colour = if name.starts_with("skep") { OURS } else { OTHERS };
                area.draw(&Text::new(name.clone(), (NAME_START, y + 3), style(15)))?;
                let corners = [(bar_start, y + 2), (bar_start + length.max(1), y + BAR - 2)];
                area.draw(&Rectangle::new(corners, colour.filled()))?;
                let text = figure.text(|number| {
                    let digits = if number < 0.1 { 3 } else { 1 + usize::from(number < 10.0) };
                    format!("{number:.digits$}")
                });
                area.draw(&Text::new(text, (bar_start + length + 6, y + 3), style(15)))?;
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

/// Returns a rate in millions.
pub fn in_millions(figure: &Figure) -> Figure {
    figure.divided_by(1e6)
}

/// Returns a number that has no spread.
pub fn exact(number: f64) -> Figure {
    Figure::with_spread(number, 0.0)
}

/// Returns a count in millions, as text.
pub fn in_millions_text(count: u64) -> String {
    let millions = count as f64 / 1e6;
    if millions >= 1.0 { format!("{millions:.0}") } else { format!("{millions}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn_to_scale() {
        let bars = vec![
            ("skep".to_owned(), exact(10.0)),
            ("a & b".to_owned(), Figure::with_spread(2.5, 0.3)),
            ("c".to_owned(), Figure::with_spread(1.0, f64::NAN)),
        ];
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
        for text in ["title", "note", "skep", "a &amp; b", "10.0", "2.50 noisy", "noisy\n"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }
}
