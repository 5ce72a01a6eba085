//! Runs Honeycomb's evaluation (section 6) on this machine and shows its published figures next to ours.
//!
//! These figures are separate from `skep paper`, because they run on the cores of this machine together with masstree.
//! Two runs with the same seed give different figures.
//!
//! ```text
//! figure 10, 11, 13    over masstree, one thread           the paper: over eRPC-Masstree, ten threads and an FPGA
//!        14            over the smallest keys              no figures in the paper
//!        15            versions off / on, all cores        the paper: ten threads
//!        17            over no log block, one thread       the paper: the FPGA's scans
//! ```
//!
//! Stores that are compared are measured in turn in one process. Pairs have 16 + 16 bytes, except in the figure that
//! varies their size.

mod figures;
mod measure;

pub use figures::{FIGURES, Figure as PaperFigure, run};
pub use measure::Plan;

use skep_measure::Figure;

use crate::figures::{cell, millions};
use crate::plot::{Group, Plot, exact};
use crate::program::Measured;
use crate::results::Head;
use crate::tables::{Tables, table};

/// The result of one figure.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The kind is `honeycomb`.
    #[serde(flatten)]
    pub head: Head,
    /// Name of the figure, such as `fig17`.
    pub figure: String,
    /// Title of the figure.
    pub title: String,
    /// The setting that is varied.
    pub x: String,
    /// The unit of the curves.
    pub y: String,
    /// How the figure was measured, and how to read the paper's points.
    pub note: String,
    /// Labels along x.
    #[serde(rename = "places")]
    pub labels: Vec<String>,
    /// Our curves.
    pub curves: Vec<Curve>,
    /// The paper's points.
    pub points: Vec<PaperPoint>,
    /// The rates from which the curves are computed, in operations per second.
    pub rates: Vec<Curve>,
}

/// One figure for each label.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Curve {
    /// Name of the curve.
    pub name: String,
    /// In the order of the labels; `None` if there is nothing to measure.
    pub figures: Vec<Option<Figure>>,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PaperPoint {
    /// Name of our curve that it is compared with.
    pub curve: String,
    /// Label along x.
    #[serde(rename = "place")]
    pub label: String,
    /// The published number.
    pub y: f64,
    /// How the number bounds the figure.
    pub bound: Bound,
}

/// How a published number bounds the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The figure itself.
    Exact,
    /// A lower bound.
    Least,
    /// An upper bound.
    Most,
}

impl PaperPoint {
    /// Formats the number with its bound.
    fn text(&self) -> String {
        format!("{}{}", self.bound.sign(), self.y)
    }
}

impl Bound {
    /// Returns the sign before the number.
    fn sign(self) -> &'static str {
        match self {
            Bound::Exact => "",
            Bound::Least => "≥ ",
            Bound::Most => "≤ ",
        }
    }
}

impl Report {
    /// Returns the number and the title of the figure.
    pub(crate) fn name(&self) -> String {
        format!("Figure {}: {}", self.figure.trim_start_matches("fig"), self.title)
    }
}

impl Measured for Report {
    fn kind(&self) -> String {
        format!("honeycomb-{}", self.figure)
    }

    fn head(&self) -> &Head {
        &self.head
    }

    fn tables(&self) -> Tables {
        let has_points = |curve: &&Curve| self.points.iter().any(|point| point.curve == curve.name);
        let of_paper: Vec<&Curve> = self.curves.iter().filter(has_points).collect();
        let cell = |figure: Option<&Figure>, text: fn(f64) -> String| {
            figure.map_or(String::new(), |figure| cell(figure, text))
        };
        let rows = self.labels.iter().enumerate().map(|(index, label)| {
            let ours = self.curves.iter().map(|curve| cell(curve.figures[index].as_ref(), |y| format!("{y:.2}")));
            let paper = of_paper.iter().map(|curve| {
                let mut points = self.points.iter();
                let point = points.find(|point| point.curve == curve.name && point.label == *label);
                point.map_or(String::new(), PaperPoint::text)
            });
            let rates = self.rates.iter().map(|curve| cell(curve.figures[index].as_ref(), millions));
            std::iter::once(label.clone()).chain(ours).chain(paper).chain(rates).collect()
        });
        let ours = self.curves.iter().map(|curve| curve.name.clone());
        let paper = of_paper.iter().map(|curve| format!("paper, {}", curve.name));
        let rates = self.rates.iter().map(|curve| format!("{}, M/s", curve.name));
        let header: Vec<String> = std::iter::once(self.x.clone()).chain(ours).chain(paper).chain(rates).collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        Tables { tables: vec![table(&header, 1, rows)], note: format!("{} {}", sentence(&self.y), self.note) }
    }

    /// Returns the picture: a group for each curve, with a bar for each of our figures and of the paper's.
    fn plot(&self) -> Plot {
        let group = |curve: &Curve| {
            let bars = self.labels.iter().zip(&curve.figures).flat_map(|(label, figure)| {
                let ours = figure.map(|figure| (format!("skep, {label}"), figure));
                let points = self.points.iter().filter(|point| point.curve == curve.name && point.label == *label);
                let name = |point: &PaperPoint| format!("paper, {label} {}", point.bound.sign()).trim_end().to_owned();
                let paper = points.map(|point| (name(point), exact(point.y)));
                ours.into_iter().chain(paper).collect::<Vec<_>>()
            });
            Group::new(format!("{}: {}", curve.name, self.y), bars)
        };
        Plot::new(format!("Honeycomb, {}", self.name()), self.origin(), self.curves.iter().map(group).collect())
    }
}

/// Capitalises the text and ends it with a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}
