//! An item as an SVG. The paper's points are rings on thin lines, ours are discs on thick lines. Other curves are
//! dashed: the first curve of a series has long dashes, the next ones have short dashes. A series without points of the
//! paper has only discs.
//!
//! ```text
//! title
//! y ┤      ○──●
//!   │  ○──●             one colour for each series, the same for the paper and for us
//!   └──────────── x
//! ○ ● series   ┄ other curve
//! ```

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, DashedPathElement, PathElement, Text};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle};
use skep_nic::paper::{Axis, Curve, Findings, Item};

type Pixel = (i32, i32);
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: i32 = 860;
const LEFT: i32 = 76;
const RIGHT: i32 = 24;
const TOP: i32 = 56;
const PLOT_HEIGHT: i32 = 380;
const BELOW_PLOT: i32 = 56;
const LEGEND_LINE: i32 = 22;
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const GRID: RGBColor = RGBColor(0xe2, 0xe4, 0xe6);
/// Colours of the series, in their order. People who see few colours can tell them apart, too.
const SERIES: [RGBColor; 8] = [
    RGBColor(0xc2, 0x6a, 0x00),
    RGBColor(0x00, 0x6b, 0xa6),
    RGBColor(0x2a, 0x85, 0x4e),
    RGBColor(0xa3, 0x2a, 0x6b),
    RGBColor(0x6b, 0x5b, 0xc4),
    RGBColor(0x6e, 0x6e, 0x6e),
    RGBColor(0x9c, 0x8a, 0x00),
    RGBColor(0x00, 0x8f, 0x9c),
];
/// Colours of curves that belong to no series.
const OTHERS: [RGBColor; 3] = [RGBColor(0x33, 0x33, 0x33), RGBColor(0x8a, 0x9a, 0xa8), RGBColor(0xb0, 0x80, 0x80)];

/// The content of a plot.
pub(crate) struct Picture<'a> {
    pub(crate) name: &'a str,
    pub(crate) title: &'a str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series<'a>>,
    pub(crate) curves: &'a [Curve],
}

/// Points of one colour.
pub(crate) struct Series<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<SeriesPoint>,
}

#[derive(Clone, Copy)]
pub(crate) struct SeriesPoint {
    pub(crate) x: f64,
    pub(crate) paper: Option<f64>,
    pub(crate) ours: f64,
}

impl Series<'_> {
    fn has_paper(&self) -> bool {
        self.points.iter().any(|point| point.paper.is_some())
    }
}

impl<'a> Picture<'a> {
    /// Returns the content of an item.
    pub(crate) fn of(item: &'a Item, findings: &'a Findings) -> Self {
        let mut series: Vec<Series<'a>> = Vec::new();
        // Further figures of the paper, such as percentiles, would hide the curves.
        for point in findings.points.iter().take(item.references().len()) {
            let known = series.iter().position(|series| series.name == point.series);
            let index = known.unwrap_or_else(|| {
                series.push(Series { name: &point.series, points: Vec::new() });
                series.len() - 1
            });
            series[index].points.push(SeriesPoint { x: point.x, paper: Some(point.paper), ours: point.ours });
        }
        series.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
        Picture { name: item.name, title: item.title, x: item.x, y: item.y, series, curves: &findings.curves }
    }

    /// Draws the plot. Fails only if the drawing library fails.
    pub(crate) fn svg(&self) -> Result<String, String> {
        let mut text = String::new();
        draw(&mut text, self).map_err(|error| format!("cannot draw {}: {error}", self.name))?;
        Ok(text)
    }
}

/// An axis and the range of its figures.
struct Scale {
    logarithmic: bool,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Scale {
    /// Returns an axis with room for all figures. If there are few different figures, they are the ticks.
    fn new(axis: Axis, figures: impl Iterator<Item = f64>, from_zero: bool) -> Self {
        let mut distinct: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        let (mut from, mut to) =
            (distinct.first().copied().unwrap_or_default(), distinct.last().copied().unwrap_or(1.0));
        if from_zero && from > 0.0 && !axis.logarithmic {
            from = 0.0;
        }
        if from >= to {
            to = from + 1.0;
        }
        let ticks = if !from_zero && distinct.len() <= 12 {
            distinct
        } else if axis.logarithmic {
            (-12..=12).map(|power| 10_f64.powi(power)).filter(|tick| (from..=to).contains(tick)).collect()
        } else {
            let rough = (to - from) / 6.0;
            let power = 10_f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
            let step = step.unwrap_or(rough);
            let first = (from / step).ceil() as i64;
            (first..).map(|number| number as f64 * step).take_while(|tick| *tick <= to * (1.0 + 1e-9)).collect()
        };
        Scale { logarithmic: axis.logarithmic, from, to, ticks }
    }

    /// Returns the position of a figure on the axis, from 0 to 1.
    fn share(&self, figure: f64) -> f64 {
        let scaled = |figure: f64| if self.logarithmic { figure.max(f64::MIN_POSITIVE).ln() } else { figure };
        (scaled(figure) - scaled(self.from)) / (scaled(self.to) - scaled(self.from))
    }
}

fn draw(text: &mut String, picture: &Picture<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let Picture { series, curves, .. } = picture;
    let legend_lines = series.len() + curves.len();
    let height = TOP + PLOT_HEIGHT + BELOW_PLOT + legend_lines as i32 * LEGEND_LINE + 12;
    let area = SVGBackend::with_string(text, (WIDTH as u32, height as u32)).into_drawing_area();
    area.fill(&RGBColor(0xff, 0xff, 0xff))?;

    let points = || series.iter().flat_map(|series| series.points.iter());
    let others = || curves.iter().flat_map(|curve| curve.points.iter());
    let xs = points().map(|point| point.x).chain(others().map(|point| point.0));
    let ys =
        points().flat_map(|point| point.paper.into_iter().chain([point.ours])).chain(others().map(|point| point.1));
    let (x, y) = (Scale::new(picture.x, xs, false), Scale::new(picture.y, ys, true));
    let pixel = |figures: (f64, f64)| -> Pixel {
        let across = x.share(figures.0) * f64::from(WIDTH - LEFT - RIGHT - 24);
        let up = y.share(figures.1) * f64::from(PLOT_HEIGHT - 12);
        (LEFT + 12 + across.round() as i32, TOP + PLOT_HEIGHT - up.round() as i32)
    };
    frame(&area, picture, &x, &y, &pixel)?;

    let looks = curve_styles(picture);
    for (curve, (colour, dash)) in curves.iter().zip(&looks) {
        let path: Vec<Pixel> = curve.points.iter().map(|point| pixel(*point)).collect();
        area.draw(&DashedPathElement::new(path, *dash, 4, colour.stroke_width(2)))?;
    }
    for (Series { points, .. }, colour) in series.iter().zip(SERIES.iter().cycle()) {
        let of_paper = |point: &SeriesPoint| point.paper.map(|paper| pixel((point.x, paper)));
        let of_ours = |point: &SeriesPoint| pixel((point.x, point.ours));
        let paper: Vec<Pixel> = points.iter().filter_map(of_paper).collect();
        let ours: Vec<Pixel> = points.iter().map(of_ours).collect();
        area.draw(&PathElement::new(paper, colour.mix(0.5).stroke_width(1)))?;
        area.draw(&PathElement::new(ours, colour.stroke_width(2)))?;
        let size = if points.len() > 40 { 2 } else { 4 };
        for point in points {
            area.draw(&Circle::new(of_ours(point), size, colour.filled()))?;
            if let Some(paper) = of_paper(point) {
                area.draw(&Circle::new(paper, size + 2, colour.stroke_width(1)))?;
            }
        }
    }

    let mut line = TOP + PLOT_HEIGHT + BELOW_PLOT;
    for (series, colour) in series.iter().zip(SERIES.iter().cycle()) {
        let has_paper = series.has_paper();
        if has_paper {
            area.draw(&Circle::new((LEFT + 6, line + 7), 6, colour.stroke_width(1)))?;
        }
        area.draw(&Circle::new((LEFT + 28, line + 7), 4, colour.filled()))?;
        let name = if has_paper { format!("{}: paper, ours", series.name) } else { series.name.to_owned() };
        area.draw(&Text::new(name, (LEFT + 44, line), style(15)))?;
        line += LEGEND_LINE;
    }
    for (curve, (colour, dash)) in curves.iter().zip(&looks) {
        let path = [(LEFT, line + 7), (LEFT + 34, line + 7)];
        area.draw(&DashedPathElement::new(path, *dash, 4, colour.stroke_width(2)))?;
        area.draw(&Text::new(curve.name.clone(), (LEFT + 44, line), style(15)))?;
        line += LEGEND_LINE;
    }
    area.present()?;
    Ok(())
}

/// Returns the colour and the dash length of each curve.
fn curve_styles(picture: &Picture<'_>) -> Vec<(RGBColor, u32)> {
    let Picture { series, curves, .. } = picture;
    let curve_style = |index: usize| {
        let of = &curves[index].series;
        let before = curves[..index].iter().filter(|curve| curve.series == *of).count();
        match of.as_deref().and_then(|of| series.iter().position(|series| series.name == of)) {
            Some(series) => (SERIES[series % SERIES.len()], if before == 0 { 8 } else { 2 }),
            None => (OTHERS[before % OTHERS.len()], 8),
        }
    };
    (0..curves.len()).map(curve_style).collect()
}

/// Draws title, grid, ticks and names of the axes.
fn frame(
    area: &Area<'_>,
    picture: &Picture<'_>,
    x: &Scale,
    y: &Scale,
    pixel: &impl Fn((f64, f64)) -> Pixel,
) -> Result<(), Box<dyn std::error::Error>> {
    let line = |from: Pixel, to: Pixel, style: ShapeStyle| PathElement::new([from, to], style);
    let (bottom, right) = (TOP + PLOT_HEIGHT, WIDTH - RIGHT);
    area.draw(&Text::new(format!("{}: {}", picture.name, picture.title), (LEFT - 60, 12), style(19)))?;
    area.draw(&Text::new(picture.y.label, (LEFT - 60, TOP - 18), style(14)))?;
    for tick in &y.ticks {
        let (_, height) = pixel((x.from, *tick));
        area.draw(&line((LEFT, height), (right, height), GRID.into()))?;
        area.draw(&Text::new(tick_text(*tick), (LEFT - 60, height - 7), style(14)))?;
    }
    for tick in &x.ticks {
        let (across, _) = pixel((*tick, y.from));
        area.draw(&line((across, TOP), (across, bottom), GRID.into()))?;
        let text = tick_text(*tick);
        area.draw(&Text::new(text.clone(), (across - 4 * text.chars().count() as i32, bottom + 8), style(14)))?;
    }
    area.draw(&line((LEFT, bottom), (right, bottom), INK.into()))?;
    area.draw(&line((LEFT, TOP), (LEFT, bottom), INK.into()))?;
    area.draw(&Text::new(picture.x.label, (LEFT + (right - LEFT) / 2 - 60, bottom + 30), style(14)))?;
    Ok(())
}

/// Returns the text of a tick. A small figure of the form 1/n is a fraction. Other figures have few digits.
fn tick_text(tick: f64) -> String {
    let whole = 1.0 / tick;
    if tick > 0.0 && tick < 0.1 && whole.fract() == 0.0 {
        return format!("1/{whole}");
    }
    let rounded = (tick * 1e6).round() / 1e6;
    rounded.to_string()
}

fn style(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

#[cfg(test)]
mod tests {
    use super::{OTHERS, Picture, SERIES, Scale, Series, SeriesPoint, tick_text};
    use skep_nic::paper::{Axis, Curve, Findings, Item, Point};

    #[test]
    fn every_point_and_curve_is_drawn_and_named() {
        let point = |series: &str, x, paper, ours| Point::further(series, x, paper, ours);
        let findings = Findings {
            points: vec![point("a & b", 1.0, 10.0, 11.0), point("a & b", 2.0, 20.0, 20.0), point("c", 2.0, 5.0, 6.0)],
            curves: vec![
                Curve::new("closed form", vec![(1.0, 10.0), (2.0, 20.0)]),
                Curve::beside("c", "first", vec![(1.0, 10.0)]),
                Curve::beside("c", "second", vec![(1.0, 10.0)]),
            ],
            ..Findings::default()
        };
        let item = Item::named("fig03a").unwrap();
        let picture = Picture::of(item, &findings);
        let svg = picture.svg().unwrap();
        // A ring and a disc for each point, and for each series in the legend.
        assert_eq!(svg.matches("<circle").count(), 2 * 3 + 2 * 2, "{svg}");
        assert_eq!(super::curve_styles(&picture), [(OTHERS[0], 8), (SERIES[1], 8), (SERIES[1], 2)]);
        for text in [item.title, item.x.label, item.y.label, "a &amp; b: paper, ours", "closed form", "c, second"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn a_series_without_points_of_the_paper_has_only_discs() {
        let axis = Axis::linear("axis");
        let points = vec![SeriesPoint { x: 1.0, paper: None, ours: 2.0 }];
        let series = vec![Series { name: "alone", points }];
        let picture = Picture { name: "a", title: "b", x: axis, y: axis, series, curves: &[] };
        let svg = picture.svg().unwrap();
        assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
        assert!(svg.contains("alone") && !svg.contains("paper"), "{svg}");
    }

    #[test]
    fn figures_have_their_positions() {
        let linear = Scale::new(Axis::linear(""), [10.0, 40.0].into_iter(), true);
        assert_eq!((linear.share(0.0), linear.share(20.0), linear.share(40.0)), (0.0, 0.5, 1.0));
        assert_eq!(linear.ticks, [0.0, 10.0, 20.0, 30.0, 40.0]);
        let logarithmic = Scale::new(Axis::logarithmic(""), [1.0, 4.0, 16.0].into_iter(), false);
        assert!((logarithmic.share(4.0) - 0.5).abs() < 1e-9);
        assert_eq!(logarithmic.ticks, [1.0, 4.0, 16.0]);
        assert_eq!([0.0625, 0.25, 64.0, 0.1 + 0.2].map(tick_text), ["1/16", "0.25", "64", "0.3"]);
    }
}
