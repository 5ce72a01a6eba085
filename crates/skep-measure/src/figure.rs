//! A figure: the median of several rounds and their spread. It is noisy if the rounds differ too much.

use crate::steady::median;

/// The largest spread of a figure that is not noisy. If rounds differ by more, other load has disturbed the
/// measurement. A noisy figure is printed, saved and drawn with its spread and the word [`NOISY`], but nothing is
/// concluded from it.
pub const SPREAD_MAX: f64 = 0.25;
/// The word after a noisy figure in a table. Older results have no median of a noisy figure; then the word is alone.
pub const NOISY: &str = "noisy";

/// The median of the rounds and their spread.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Figure {
    /// `None` in older results, which have no median of a noisy figure, and if the spread is no number.
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
        Figure { median: spread.is_finite().then_some(median), spread }
    }

    /// Returns the figure in another unit, which is this many times as large.
    pub fn divided_by(self, unit: f64) -> Figure {
        Figure { median: self.median.map(|median| median / unit), ..self }
    }

    /// Returns true if the spread is above [`SPREAD_MAX`], or if there is no median.
    pub fn is_noisy(&self) -> bool {
        // A NaN spread has no median.
        self.median.is_none() || self.spread > SPREAD_MAX
    }

    /// Returns the median unless the figure is noisy: a number from which something can be concluded.
    pub fn median(&self) -> Option<f64> {
        self.median.filter(|_| !self.is_noisy())
    }

    /// Returns the median, also that of a noisy figure: a number to show.
    pub fn noisy_median(&self) -> Option<f64> {
        self.median
    }

    /// Returns (upper quartile − lower quartile) / median.
    pub fn spread(&self) -> f64 {
        self.spread
    }

    /// Returns the median as text. That of a noisy figure is followed by [`NOISY`].
    pub fn text(&self, number: impl FnOnce(f64) -> String) -> String {
        match self.median {
            None => NOISY.to_owned(),
            Some(median) if self.is_noisy() => format!("{} {NOISY}", number(median)),
            Some(median) => number(median),
        }
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
    fn a_figure_is_noisy_beyond_the_bound_of_the_spread() {
        let (within, beyond) = (Figure::of(&[100.0, 112.0, 125.0 - 1e-9]), Figure::of(&[100.0, 101.0, 126.3]));
        assert_eq!((within.median(), within.text(|number| number.to_string())), (Some(112.0), "112".to_owned()));
        assert_eq!((beyond.median(), beyond.noisy_median()), (None, Some(101.0)));
        assert_eq!(beyond.text(|number| number.to_string()), "101 noisy");
        assert!(beyond.spread() > SPREAD_MAX && beyond.is_noisy() && !within.is_noisy());
        assert_eq!(Figure::of(&[0.0, 0.0]).noisy_median(), None, "a spread that is no number");
    }
}
