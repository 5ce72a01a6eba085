//! Honeycomb's evaluation (section 6) on the running store, its published figures beside ours.
//!
//! They are here, and not among the items of `skep paper`, because they run on the cores of this machine and beside
//! masstree: the same seed does not give the same figures again.
//!
//! ```text
//! figure 10, 11, 13    over masstree, one thread           the paper: over eRPC-Masstree, ten threads and an FPGA
//!        14            over the smallest keys              no figures in the paper
//!        15            versions off / on, all cores        the paper: ten threads
//!        17            over no log block, one thread       the paper: the FPGA's scans
//! ```
//!
//! What is compared is measured by turns in one process, on pairs of 16 + 16 bytes unless the figure is about their size.

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

/// What was found.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Always `honeycomb`.
    pub kind: String,
    /// When and where.
    #[serde(flatten)]
    pub origin: Origin,
    /// Which figure, such as `fig17`.
    pub figure: String,
    /// What it shows.
    pub title: String,
    /// What is varied.
    pub x: String,
    /// What the curves say.
    pub y: String,
    /// How it was measured, and how the paper's points are to be read.
    pub note: String,
    /// The places along x.
    pub places: Vec<String>,
    /// Ours.
    pub curves: Vec<Curve>,
    /// The paper's.
    pub points: Vec<PaperPoint>,
    /// What the curves were made from, in operations a second.
    pub rates: Vec<Curve>,
}

/// A figure for each place.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Curve {
    /// What it is of.
    pub name: String,
    /// In the order of the places; none where there is nothing to measure.
    pub figures: Vec<Option<Figure>>,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PaperPoint {
    /// The name of the curve of ours that it stands beside.
    pub curve: String,
    /// The place.
    pub place: String,
    /// What was published.
    pub y: f64,
    /// Whether that is the figure, or the least or most that it is.
    pub bound: Bound,
}

/// How a published figure is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// As it stands.
    Exact,
    /// At least.
    Least,
    /// At most.
    Most,
}

impl PaperPoint {
    /// As text.
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
    /// The tables: a row for each place.
    pub fn tables(&self) -> Tables {
        let has_points = |curve: &&Curve| self.points.iter().any(|point| point.curve == curve.name);
        let of_paper: Vec<&Curve> = self.curves.iter().filter(has_points).collect();
        let cell = |figure: Option<&Figure>, text: fn(f64) -> String| {
            figure.map_or(String::new(), |figure| cell(figure, text))
        };
        let rows = self.places.iter().enumerate().map(|(number, place)| {
            let ours = self.curves.iter().map(|curve| cell(curve.figures[number].as_ref(), |y| format!("{y:.2}")));
            let paper = of_paper.iter().map(|curve| {
                let mut points = self.points.iter();
                let point = points.find(|point| point.curve == curve.name && point.place == *place);
                point.map_or(String::new(), PaperPoint::text)
            });
            let rates = self.rates.iter().map(|curve| cell(curve.figures[number].as_ref(), millions));
            std::iter::once(place.clone()).chain(ours).chain(paper).chain(rates).collect()
        });
        let ours = self.curves.iter().map(|curve| curve.name.clone());
        let paper = of_paper.iter().map(|curve| format!("paper, {}", curve.name));
        let rates = self.rates.iter().map(|curve| format!("{}, M/s", curve.name));
        let header: Vec<String> = std::iter::once(self.x.clone()).chain(ours).chain(paper).chain(rates).collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        Tables { tables: vec![table(&header, 1, rows)], note: format!("{} {}", sentence(&self.y), self.note) }
    }

    /// Draws it.
    pub fn write_picture(&self, path: &Path) -> Result<(), String> {
        curve::draw(self, path).map_err(|error| format!("cannot draw {}: {error}", path.display()))
    }
}

/// With a capital letter and a stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}
