//! A point of the paper with our value, its worth as evidence, and its judgement.
//!
//! Only *evidence* counts for the model. A point that the model was given, or that is calculated, agrees with the paper
//! for other reasons than the model.

use std::cmp::Ordering;

use serde::Serialize;

use super::Reference;

/// A point of the paper, with our value.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The curve of the point.
    pub series: String,
    /// Position on the x axis. Several series of one table may use 0, 1, 2 for its columns.
    pub x: f64,
    /// The published figure or bound. For a statement, the limit that we read into its words.
    pub paper: f64,
    /// Our figure: the median over the seeds.
    pub ours: f64,
    /// The lowest of our figures.
    pub low: f64,
    /// The highest of them.
    pub high: f64,
    /// Its tolerance, if it is not that of its item.
    pub tolerance: Option<Tolerance>,
}

/// The worth of a point as evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Simulated or counted. It could have failed.
    Evidence,
    /// A closed form, a solver, or another item's figure, perhaps with a constant.
    Calculation,
    /// Given back: the model got this figure, or a constant was fitted to its series.
    Input,
}

/// The form in which the paper gives a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    /// A figure, which ours is near to or not.
    Figure,
    /// An upper bound, which holds or not.
    Bound,
    /// Words without a number, which hold or not. The limit is ours.
    Statement,
}

/// A distance from the paper's number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tolerance {
    /// As a share of it.
    Relative(f64),
    /// In its own unit.
    Absolute(f64),
    /// Below it by any distance, because the paper states an upper bound.
    AtMost,
    /// Below a limit of ours, because the paper has only words.
    StatedAtMost,
    /// Above a limit of ours, because the paper has only words.
    StatedAtLeast,
}

/// The judgement of a point by the figures of all seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// All of them are within the tolerance.
    Within,
    /// All of them are above it, or all below it.
    Beyond,
    /// An end of the tolerance is between them.
    Undecided,
}

/// Points of an item that are no evidence.
#[derive(Clone, Copy, Debug)]
pub struct NoEvidence {
    /// The kind of these points.
    pub kind: Kind,
    /// The reason, as a sentence.
    pub reason: &'static str,
    /// Returns true for the points of a series, at an x, that are meant.
    pub includes: fn(&str, f64) -> bool,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 3] = [Kind::Evidence, Kind::Calculation, Kind::Input];

    /// Returns the word for people.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Evidence => "evidence",
            Kind::Calculation => "calculation",
            Kind::Input => "input",
        }
    }
}

impl Claim {
    /// All claims.
    pub const ALL: [Claim; 3] = [Claim::Figure, Claim::Bound, Claim::Statement];

    /// Returns the word for people.
    pub fn word(self) -> &'static str {
        match self {
            Claim::Figure => "figure",
            Claim::Bound => "bound",
            Claim::Statement => "statement",
        }
    }
}

impl Judgement {
    /// Returns the word for people.
    pub fn word(self) -> &'static str {
        match self {
            Judgement::Within => "yes",
            Judgement::Beyond => "no",
            Judgement::Undecided => "undecided",
        }
    }
}

impl NoEvidence {
    /// Marks points as inputs.
    pub(super) const fn input(reason: &'static str, includes: fn(&str, f64) -> bool) -> Self {
        NoEvidence { kind: Kind::Input, reason, includes }
    }

    /// Marks points as calculations.
    pub(super) const fn calculation(reason: &'static str, includes: fn(&str, f64) -> bool) -> Self {
        NoEvidence { kind: Kind::Calculation, reason, includes }
    }
}

impl Tolerance {
    /// Returns true if a figure is this near to the paper's.
    pub fn allows(self, ours: f64, paper: f64) -> bool {
        self.side(ours, paper) == Ordering::Equal
    }

    /// Returns the form in which the paper gives points with this tolerance.
    pub fn claim(self) -> Claim {
        match self {
            Tolerance::Relative(_) | Tolerance::Absolute(_) => Claim::Figure,
            Tolerance::AtMost => Claim::Bound,
            Tolerance::StatedAtMost | Tolerance::StatedAtLeast => Claim::Statement,
        }
    }

    /// Returns *equal* if a figure is this near to the paper's, and otherwise the side on which it is.
    pub fn side(self, ours: f64, paper: f64) -> Ordering {
        let (distance, most) = match self {
            Tolerance::Relative(share) => (ours / paper - 1.0, share),
            Tolerance::Absolute(distance) => (ours - paper, distance),
            Tolerance::AtMost | Tolerance::StatedAtMost => ((ours - paper).max(0.0), 0.0),
            Tolerance::StatedAtLeast => ((ours - paper).min(0.0), 0.0),
        };
        if distance.abs() <= most { Ordering::Equal } else { distance.total_cmp(&0.0) }
    }
}

impl Point {
    /// Returns a published point with our value.
    pub fn new(paper: &Reference, ours: f64) -> Self {
        Point::further(paper.series.clone(), paper.x(), paper.y, ours)
    }

    /// Returns a further figure of the paper with our value. It is not a row of the item's file.
    pub fn further(series: impl Into<String>, x: f64, paper: f64, ours: f64) -> Self {
        Point { series: series.into(), x, paper, ours, low: ours, high: ours, tolerance: None }
    }

    /// Returns the point with a tolerance of its own.
    #[must_use]
    pub fn within(self, tolerance: Tolerance) -> Self {
        Point { tolerance: Some(tolerance), ..self }
    }

    /// Returns its name within the item: `read 64`.
    pub fn name(&self) -> String {
        format!("{} {}", self.series, self.x)
    }

    /// Returns the quotient of our value and the paper's, minus one.
    pub fn deviation(&self) -> f64 {
        self.ours / self.paper - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_shares_distances_and_bounds() {
        for (tolerance, ours, is_within) in [
            (Tolerance::Relative(0.1), 10.9, true),
            (Tolerance::Relative(0.1), 8.9, false),
            (Tolerance::Absolute(0.5), 10.4, true),
            (Tolerance::Absolute(0.5), 9.4, false),
            (Tolerance::AtMost, 0.1, true),
            (Tolerance::AtMost, 10.1, false),
            (Tolerance::StatedAtMost, 10.1, false),
            (Tolerance::StatedAtLeast, 10.1, true),
            (Tolerance::StatedAtLeast, 9.9, false),
        ] {
            assert_eq!(tolerance.allows(ours, 10.0), is_within, "{tolerance:?}, {ours}");
        }
    }
}
