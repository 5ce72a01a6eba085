//! Figures as people read them.

use skep_measure::Figure;

/// Returns a figure's median as this text and half of its spread; of one that is withheld, that it was not measured.
pub fn cell(figure: &Figure, number: impl FnOnce(f64) -> String) -> String {
    format!("{} ±{}", figure.text(number), percent(figure.spread() / 2.0))
}

/// Returns a ratio with two digits behind the point, or that it was not measured.
pub fn ratio(figure: &Figure) -> String {
    figure.text(|ratio| format!("{ratio:.2}"))
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
    fn figures_are_text() {
        assert_eq!(cell(&Figure::with_spread(1_234_567.0, 0.2), millions), "1.23 ±10%");
        assert_eq!(cell(&Figure::with_spread(1_234_567.0, 0.6), millions), "not measured ±30%");
        assert_eq!(ratio(&Figure::with_spread(0.456, 0.1)), "0.46");
    }
}
