//! The closed forms on which Figures 9, 10 and 11 lie: keys fall into buckets at random, so a bucket is asked for a Poisson
//! number of places. They are drawn beside the counts, never instead of them.

/// The bucket of its chain, from 1, in which a pair lies on average: with so many pairs for each chain, and so many in a
/// bucket.
pub(super) fn mean_position(mean: f64, pairs_per_bucket: u32) -> f64 {
    // Σ of the positions of all pairs of a chain, over the pairs.
    let positions = |pairs: u32| {
        let (full, rest) = (pairs / pairs_per_bucket, pairs % pairs_per_bucket);
        f64::from(pairs_per_bucket * full * (full + 1) / 2 + rest * (full + 1))
    };
    expectation(mean, positions) / mean
}

/// Buckets of a chain that are full, on average.
pub(super) fn full_buckets(mean: f64, pairs_per_bucket: u32) -> f64 {
    expectation(mean, |pairs| f64::from(pairs / pairs_per_bucket))
}

/// Buckets of a chain behind its first, on average.
pub(super) fn chained_buckets(mean: f64, pairs_per_bucket: u32) -> f64 {
    expectation(mean, |pairs| f64::from(pairs.div_ceil(pairs_per_bucket).saturating_sub(1)))
}

/// Of a function of a Poisson distributed number.
fn expectation(mean: f64, of: impl Fn(u32) -> f64) -> f64 {
    let last = (mean + 12.0 * mean.sqrt() + 40.0) as u32;
    let mut log_probability = -mean;
    let mut expectation = 0.0;
    for pairs in 0..=last {
        if pairs > 0 {
            log_probability += (mean / f64::from(pairs)).ln();
        }
        expectation += log_probability.exp() * of(pairs);
    }
    expectation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_the_published_curves() {
        // Figure 9b at 50 %, Figure 9a offline at 25 %, Figure 11b at 30 %.
        assert!((mean_position(8.0, 5) - 1.4494).abs() < 1e-3);
        assert!((1.0 + mean_position(3.52 / 0.25, 10) - 2.314).abs() < 2e-3);
        assert!((2.0 + full_buckets(4.8, 5) - 2.55).abs() < 1e-2);
        assert!(chained_buckets(0.1, 5) < 1e-6);
    }
}
