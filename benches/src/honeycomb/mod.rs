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

mod curve;
mod figures;
mod measure;

pub use figures::{FIGURES, Figure as PaperFigure, measure};
pub use measure::Plan;

use std::path::Path;

use skep_measure::Figure;

use crate::figures::{cell, millions};
use crate::results::Origin;
use crate::tables::{Tables, table};

/// The result of one figure.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Always `honeycomb`.
    pub kind: String,
    /// Date and machine.
    #[serde(flatten)]
    pub origin: Origin,
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
        let sign = match self.bound {
            Bound::Exact => "",
            Bound::Least => "≥ ",
            Bound::Most => "≤ ",
        };
        format!("{sign}{}", self.y)
    }
}

impl Report {
    /// Returns the tables, with a row for each label.
    pub fn tables(&self) -> Tables {
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

    /// Draws the picture.
    pub fn write_picture(&self, path: &Path) -> Result<(), String> {
        curve::draw(self, path).map_err(|error| format!("cannot draw {}: {error}", path.display()))
    }
}

/// Capitalises the text and ends it with a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}
