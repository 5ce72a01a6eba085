//! Medians, spreads, and numbers as people read them.

/// A figure that was measured in several rounds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Figure {
    /// The median of the rounds.
    pub median: f64,
    /// (Largest − smallest) / median.
    pub spread: f64,
}

impl Figure {
    /// The figure of these rounds.
    ///
    /// # Panics
    /// If there were none.
    pub fn of(rounds: &[f64]) -> Self {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Figure { median, spread: (sorted[sorted.len() - 1] - sorted[0]) / median }
    }

    /// The figure of `numerator / denominator`, round by round, so that what the machine does meets both.
    pub fn of_ratio(numerator: &[f64], denominator: &[f64]) -> Self {
        let ratios: Vec<f64> = numerator.iter().zip(denominator).map(|(above, below)| above / below).collect();
        Self::of(&ratios)
    }
}

/// Millions with two digits behind the point.
pub fn millions(number: f64) -> String {
    format!("{:.2}", number / 1e6)
}

/// A share as a whole percentage.
pub fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!(Figure::of(&[3.0, 1.0, 2.0]), Figure { median: 2.0, spread: 1.0 });
        assert_eq!(Figure::of(&[4.0, 2.0]), Figure { median: 3.0, spread: 2.0 / 3.0 });
        assert_eq!(Figure::of_ratio(&[4.0, 9.0, 2.0], &[2.0, 3.0, 2.0]), Figure { median: 2.0, spread: 1.0 });
        assert_eq!((millions(1_234_567.0), percent(0.456)), ("1.23".to_owned(), "46%".to_owned()));
    }
}
