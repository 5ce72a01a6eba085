//! The verdict on a statement, which follows from the measured ratio and its spread.
//!
//! ```text
//! at_least ≤ lower end    holds          │ ├──●──┤
//! at_least > upper end    does not hold    ├──●──┤ │
//! otherwise               undecided        ├──│●─┤
//! ```
//!
//! ● is the median. The ends are the median, minus and plus half of the distance of the quartiles.

use skep_measure::Figure;

/// The verdict on a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::paper) enum Verdict {
    Holds,
    DoesNotHold,
    /// The bound is within the spread.
    Undecided,
    /// There is no figure, or it is withheld.
    NotMeasured,
}

impl Verdict {
    /// Judges if a ratio is at least this number.
    pub(super) fn of(ratio: &Figure, at_least: f64) -> Verdict {
        let Some(median) = ratio.median() else {
            return Verdict::NotMeasured;
        };
        let half = median * ratio.spread() / 2.0;
        if median - half >= at_least {
            Verdict::Holds
        } else if median + half < at_least {
            Verdict::DoesNotHold
        } else {
            Verdict::Undecided
        }
    }

    /// Returns the words for people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "does not hold",
            Verdict::Undecided => "undecided",
            Verdict::NotMeasured => "not measured",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_the_whole_spread_on_one_side() {
        let verdict = |median, spread| Verdict::of(&Figure::with_spread(median, spread), 1.0);
        assert_eq!(verdict(1.2, 0.2), Verdict::Holds);
        assert_eq!(verdict(1.0, 0.0), Verdict::Holds);
        assert_eq!(verdict(1.05, 0.2), Verdict::Undecided);
        assert_eq!(verdict(0.95, 0.2), Verdict::Undecided);
        assert_eq!(verdict(0.8, 0.2), Verdict::DoesNotHold);
        assert_eq!(verdict(5.0, 0.9), Verdict::NotMeasured, "a withheld figure proves nothing");
    }
}
