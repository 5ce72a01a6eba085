//! The criterion that ends a warm-up: a pure function of the rates of consecutive pieces.
//!
//! ```text
//! rates   17 17 18 19 23 25 24 30 | 32 33 33 35 …        one for each piece, the latest last
//!                [ earlier window ][ later window ]      steady: their medians differ by at most TOLERANCE
//! ```
//!
//! The criterion compares medians, so that one piece with an interrupt neither hides nor simulates a rise. The two
//! windows have [`WINDOW`] pieces each, so that two or three equal rates during a rise are not taken for its end.

/// Pieces of one window.
const WINDOW: usize = 8;
/// The largest difference of the windows' medians that counts as steady, as a share of the earlier median.
const TOLERANCE: f64 = 0.03;

/// Returns true if the latest of these rates neither rise nor fall.
pub fn is_steady(rates: &[f64]) -> bool {
    let Some(start) = rates.len().checked_sub(2 * WINDOW) else { return false };
    let (earlier, later) = rates[start..].split_at(WINDOW);
    let (earlier, later) = (median(earlier), median(later));
    (later - earlier).abs() <= TOLERANCE * earlier
}

/// Returns the median. For an even number of rates, it is the mean of the middle two.
pub fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of a bare loop after a change of the working set, in million lines per second for each millisecond.
    const RISE: [f64; 13] = [17.0, 17.0, 18.0, 19.0, 23.0, 25.0, 24.0, 30.0, 32.0, 33.0, 33.0, 35.0, 50.0];

    /// Returns the number of pieces after which these rates are first steady.
    fn steady_after(rates: &[f64]) -> Option<usize> {
        (0..=rates.len()).find(|&count| is_steady(&rates[..count]))
    }

    /// Returns the rise and then its last rate, with every rate repeated `times` times.
    fn rise_and_end(times: usize) -> Vec<f64> {
        let rates = RISE.into_iter().chain([50.0; 40]);
        rates.flat_map(|rate| std::iter::repeat_n(rate, times)).collect()
    }

    #[test]
    fn a_rise_is_not_steady_before_its_end() {
        assert_eq!(steady_after(&RISE), None);
        let reached = RISE.len() - 1;
        let after = steady_after(&rise_and_end(1)).expect("it becomes steady");
        assert!(after > reached + WINDOW, "{after}");
    }

    #[test]
    fn a_rise_in_finer_pieces_is_not_steady_before_its_end() {
        for times in 2..=4 {
            let reached = (RISE.len() - 1) * times;
            let after = steady_after(&rise_and_end(times)).expect("it becomes steady");
            assert!(after > reached, "each rate {times} times: steady after {after}, reached after {reached}");
        }
    }

    #[test]
    fn a_slow_rise_and_a_fall_are_not_steady() {
        let rise: Vec<f64> = (0..60).map(|piece| 17.0 * 1.01_f64.powi(piece)).collect();
        assert_eq!(steady_after(&rise), None);
        let fall: Vec<f64> = rise.iter().rev().copied().collect();
        assert_eq!(steady_after(&fall), None);
    }

    #[test]
    fn noise_and_single_disturbances_are_steady() {
        let noise: Vec<f64> = (0..16).map(|piece| 50.0 + [0.4, -0.6, 0.1, -0.3][piece % 4]).collect();
        assert_eq!(steady_after(&noise), Some(2 * WINDOW));
        let mut disturbed = noise;
        (disturbed[3], disturbed[12]) = (9.0, 4.0);
        assert!(is_steady(&disturbed));
    }

    #[test]
    fn rates_that_are_no_numbers_are_not_steady() {
        for rate in [f64::NAN, f64::INFINITY] {
            assert!(!is_steady(&[rate; 2 * WINDOW]), "{rate}");
        }
        assert!(!is_steady(&[]));
    }
}
