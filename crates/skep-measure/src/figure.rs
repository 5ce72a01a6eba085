//! A figure: the median of several rounds, withheld if the rounds differ too much.

use crate::steady::median;

/// The largest spread of a figure. If rounds differ by more, other load has disturbed the measurement. The median of
/// such rounds is not printed, saved, drawn or divided by.
pub const SPREAD_MAX: f64 = 0.25;
/// The text of a withheld figure in a table.
pub const NOT_MEASURED: &str = "not measured";

/// The median of the rounds and their spread.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Figure {
    /// `None` if the figure is withheld.
    median: Option<f64>,
    spread: f64,
}

impl Figure {
    /// Returns the figure of these rounds. The spread is that of the middle half of the rounds, because a shared machine
    /// disturbs single rounds. With fewer than five rounds it is that of all rounds.
    ///
    /// # Panics
    /// If there are no rounds.
    pub fn of(rounds: &[f64]) -> Self {
        let median = median(rounds);
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        let (lower, upper) = (sorted[last / 4], sorted[(3 * last).div_ceil(4)]);
        Figure::with_spread(median, (upper - lower) / median)
    }

    /// Returns the figure of `numerator / denominator`, calculated round by round, so that a disturbance of the machine
    /// affects both.
    pub fn of_ratio(numerator: &[f64], denominator: &[f64]) -> Self {
        let ratios: Vec<f64> = numerator.iter().zip(denominator).map(|(above, below)| above / below).collect();
        Self::of(&ratios)
    }

    /// Returns the figure of this median and this spread.
    pub fn with_spread(median: f64, spread: f64) -> Self {
        // A NaN spread is not within the bound either.
        Figure { median: (spread <= SPREAD_MAX).then_some(median), spread }
    }

    /// Returns the median, or `None` if the spread is above [`SPREAD_MAX`].
    pub fn median(&self) -> Option<f64> {
        self.median.filter(|_| self.spread <= SPREAD_MAX)
    }

    /// Returns (upper quartile − lower quartile) / median.
    pub fn spread(&self) -> f64 {
        self.spread
    }

    /// Returns the median as text, or [`NOT_MEASURED`] if it is withheld.
    pub fn text(&self, number: impl FnOnce(f64) -> String) -> String {
        self.median().map_or_else(|| NOT_MEASURED.to_owned(), number)
    }

    /// Returns the figures of one row. Withholds all medians if one of them is withheld, because a row is measured
    /// together.
    pub fn row<const N: usize>(figures: [Figure; N]) -> [Figure; N] {
        let is_measured = figures.iter().all(|figure| figure.median().is_some());
        figures.map(|figure| Figure { median: figure.median().filter(|_| is_measured), ..figure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        let figure = Figure::of(&[10.5, 10.0, 11.0]);
        assert_eq!(figure.median(), Some(10.5));
        assert!((figure.spread() - 1.0 / 10.5).abs() < 1e-12);
        assert_eq!(Figure::of(&[4.0, 3.6]).median(), Some(3.8));
        assert_eq!(Figure::of_ratio(&[4.0, 9.0, 2.0], &[2.0, 4.5, 1.0]), Figure::with_spread(2.0, 0.0));
    }

    #[test]
    fn a_round_that_was_disturbed_does_not_count_among_many() {
        assert!((Figure::of(&[10.0, 11.0, 2.0, 10.5, 99.0]).spread() - 1.0 / 10.5).abs() < 1e-12, "the middle three");
        assert!((Figure::of(&[10.0, 11.0, 2.0, 10.0]).spread() - 9.0 / 10.0).abs() < 1e-12, "all four");
        let nine: Vec<f64> = [1.0, 2.0, 8.0, 9.0, 10.0, 11.0, 12.0, 20.0, 30.0].to_vec();
        assert!((Figure::of(&nine).spread() - 4.0 / 10.0).abs() < 1e-12, "the middle five");
        assert_eq!(Figure::of(&[10.0, 2.0, 99.0, 3.0, 50.0]).median(), None, "two disturbed rounds of five");
    }

    #[test]
    fn a_figure_is_withheld_beyond_the_bound_of_the_spread() {
        let (within, beyond) = (Figure::of(&[100.0, 112.0, 125.0 - 1e-9]), Figure::of(&[100.0, 100.0, 125.1]));
        assert_eq!(within.median(), Some(112.0));
        assert_eq!((beyond.median(), beyond.text(|number| number.to_string())), (None, NOT_MEASURED.to_owned()));
        assert!(beyond.spread() > SPREAD_MAX);
        assert_eq!(Figure::of(&[0.0, 0.0]).median(), None, "a spread that is no number");
    }

    #[test]
    fn a_row_is_withheld_as_a_whole() {
        let (good, bad) = (Figure::with_spread(2.0, 0.1), Figure::with_spread(3.0, 0.9));
        assert_eq!(Figure::row([good, good]), [good, good]);
        let row = Figure::row([good, bad]);
        assert_eq!(row.map(|figure| figure.median()), [None, None]);
        assert_eq!(row.map(|figure| figure.spread()), [0.1, 0.9]);
    }
}
