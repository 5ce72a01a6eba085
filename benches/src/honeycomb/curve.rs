//! Draws the curves of a figure as an SVG: ours as discs on lines, the paper's points as rings of the same colour.
//!
//! ```text
//! title
//! y ┤    ○ ≥ 2.3
//!   │ ●──●──●        labels at equal distances along x
//!   └─────────── x
//! ● ours   ○ the paper
//! ```

use std::path::Path;

use plotters::backend::SVGBackend;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{Circle, PathElement, Text};
use plotters::style::{Color, IntoFont, RGBColor, TextStyle};

use skep_measure::Figure;

use super::{Bound, Report};

const WIDTH: i32 = 860;
const LEFT: i32 = 76;
const RIGHT: i32 = 40;
const TOP: i32 = 62;
const PLOT_HEIGHT: i32 = 320;
const BELOW_PLOT: i32 = 60;
const LEGEND_LINE: i32 = 22;
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const GRID: RGBColor = RGBColor(0xe2, 0xe4, 0xe6);
/// Colours of the curves, in their order. Colour-blind readers can tell them apart.
const CURVES: [RGBColor; 2] = [RGBColor(0xc2, 0x6a, 0x00), RGBColor(0x00, 0x6b, 0xa6)];

pub(super) fn draw(report: &Report, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let has_points = |name: &str| report.points.iter().any(|point| point.curve == name);
    let lines: usize = report.curves.iter().map(|curve| 1 + usize::from(has_points(&curve.name))).sum();
    let height = TOP + PLOT_HEIGHT + BELOW_PLOT + lines as i32 * LEGEND_LINE + 34;
    let area = SVGBackend::new(path, (WIDTH as u32, height as u32)).into_drawing_area();
    area.fill(&RGBColor(0xff, 0xff, 0xff))?;
    let style = |size| -> TextStyle<'_> { ("sans-serif", size).into_font().color(&INK) };
    let title = format!("Honeycomb, Figure {}: {}", report.figure.trim_start_matches("fig"), report.title);
    area.draw(&Text::new(title, (LEFT - 60, 12), style(19)))?;
    area.draw(&Text::new(report.y.clone(), (LEFT - 60, TOP - 20), style(14)))?;

    let ours = report.curves.iter().flat_map(|curve| curve.figures.iter().flatten()).filter_map(Figure::median);
    let largest = ours.chain(report.points.iter().map(|point| point.y)).fold(f64::MIN_POSITIVE, f64::max);
    let step = tick_step(largest);
    let top = (largest / step).ceil() * step;
    let y_of = |y: f64| TOP + PLOT_HEIGHT - (y / top * f64::from(PLOT_HEIGHT)).round() as i32;
    let x_of = |position: usize| {
        LEFT + 30 + (position as i32 * (WIDTH - LEFT - RIGHT - 60)) / (report.labels.len() as i32 - 1).max(1)
    };
    for tick in 0..=(top / step).round() as i32 {
        let y = y_of(f64::from(tick) * step);
        area.draw(&PathElement::new([(LEFT, y), (WIDTH - RIGHT, y)], GRID))?;
        let digits = usize::from(step < 1.0) + usize::from(step < 0.1);
        area.draw(&Text::new(format!("{:.digits$}", f64::from(tick) * step), (LEFT - 50, y - 7), style(14)))?;
    }
    for (position, label) in report.labels.iter().enumerate() {
        let x = x_of(position) - 4 * label.chars().count() as i32;
        area.draw(&Text::new(label.clone(), (x, TOP + PLOT_HEIGHT + 8), style(14)))?;
    }
    area.draw(&Text::new(report.x.clone(), (WIDTH / 2 - 60, TOP + PLOT_HEIGHT + 30), style(14)))?;

    let mut line = TOP + PLOT_HEIGHT + BELOW_PLOT;
    for (curve, colour) in report.curves.iter().zip(CURVES.iter().cycle()) {
        let figures = curve.figures.iter().enumerate();
        let path: Vec<(i32, i32)> =
            figures.filter_map(|(position, figure)| Some((x_of(position), y_of(figure.as_ref()?.median()?)))).collect();
        area.draw(&PathElement::new(path.clone(), colour.stroke_width(2)))?;
        for point in path {
            area.draw(&Circle::new(point, 4, colour.filled()))?;
        }
        for point in report.points.iter().filter(|point| point.curve == curve.name) {
            let position = report.labels.iter().position(|label| *label == point.label).unwrap_or_default();
            let (x, y) = (x_of(position), y_of(point.y));
            area.draw(&Circle::new((x, y), 7, colour.stroke_width(2)))?;
            if point.bound != Bound::Exact {
                area.draw(&Text::new(point.text(), (x + 12, y - 8), style(14)))?;
            }
        }
        area.draw(&Circle::new((LEFT, line + 7), 4, colour.filled()))?;
        area.draw(&Text::new(curve.name.clone(), (LEFT + 16, line), style(15)))?;
        line += LEGEND_LINE;
        if has_points(&curve.name) {
            area.draw(&Circle::new((LEFT, line + 7), 7, colour.stroke_width(2)))?;
            area.draw(&Text::new(format!("{}, the paper", curve.name), (LEFT + 16, line), style(15)))?;
            line += LEGEND_LINE;
        }
    }
    let note = format!("{}, {}", report.origin.machine, report.origin.date);
    area.draw(&Text::new(note, (LEFT - 60, line + 10), style(14)))?;
    area.present()?;
    Ok(())
}

/// Returns the distance of the grid lines: between four and ten of them up to the largest figure.
fn tick_step(largest: f64) -> f64 {
    let power = 10_f64.powf((largest / 10.0).log10().ceil());
    [power / 2.0, power / 4.0].into_iter().find(|step| largest / step >= 4.0 && largest / step <= 10.0).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_grid_lines_is_bounded() {
        for largest in [0.01, 0.9, 1.0, 1.16, 2.0, 3.3, 4.1, 7.0, 10.0, 24.0, 99.0, 1e6] {
            let steps = largest / tick_step(largest);
            assert!((1.0..=10.5).contains(&steps), "{largest}: {steps}");
        }
    }
}
