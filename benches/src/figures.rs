//! The figures as text.

use skep_measure::{Figure, NOISY};

/// Formats the median with this function and appends half of the spread. A noisy figure is marked. If a result has no
/// median, its spread says nothing: that of another figure in the same row was too large.
pub fn cell(figure: &Figure, number: impl FnOnce(f64) -> String) -> String {
    let spread = percent(figure.spread() / 2.0);
    match figure.noisy_median() {
        None => NOISY.to_owned(),
        Some(median) if figure.is_noisy() => format!("{} ±{spread} {NOISY}", number(median)),
        Some(median) => format!("{} ±{spread}", number(median)),
    }
}

/// Formats a ratio with two decimals.
pub fn ratio(figure: &Figure) -> String {
    figure.text(|ratio| format!("{ratio:.2}"))
}

/// Formats a ratio with two decimals and half of the spread.
pub fn ratio_cell(figure: &Figure) -> String {
    cell(figure, |ratio| format!("{ratio:.2}"))
}

/// Formats a number in millions with two decimals.
pub fn millions(number: f64) -> String {
    format!("{:.2}", number / 1e6)
}

/// Formats a share as a whole percentage.
pub fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_text() {
        assert_eq!(cell(&Figure::with_spread(1_234_567.0, 0.2), millions), "1.23 ±10%");
        assert_eq!(cell(&Figure::with_spread(1_234_567.0, 0.6), millions), "1.23 ±30% noisy");
        let without_median: Figure = serde_json::from_str(r#"{"median":null,"spread":0.04}"#).unwrap();
        assert_eq!(cell(&without_median, millions), "noisy");
        assert_eq!(ratio(&Figure::with_spread(0.456, 0.1)), "0.46");
    }
}
