//! The average costs of chains, in closed form (KV-Direct, section 5.1.1).
//!
//! Keys are hashed to buckets at random, so the number of pairs in a chain has a Poisson distribution:
//!
//! ```text
//! chain   ┌ home bucket ┐ ─▶ ┌ overflow ┐ ─▶ ┌ overflow ┐      N pairs, n of them in a bucket:
//!         └ pairs 1 … n ┘    └ n+1 … 2n ┘    └ 2n+1 … N ┘      ⌈N / n⌉ buckets, ⌊N / n⌋ of them full
//! ```
//!
//! Settings are chosen by these costs. Tests and the paper's figures compare them with counted accesses.

/// Returns the average position of a pair's bucket in its chain, from 1, given the mean number of pairs in a chain and the
/// pairs that a bucket holds.
pub fn mean_position(mean: f64, pairs_per_bucket: u32) -> f64 {
    // Σ of the positions of all pairs of a chain, over the pairs.
    let positions = |pairs: u32| {
        let (full, rest) = (f64::from(pairs / pairs_per_bucket), f64::from(pairs % pairs_per_bucket));
        f64::from(pairs_per_bucket) * full * (full + 1.0) / 2.0 + rest * (full + 1.0)
    };
    expectation(mean, positions) / mean
}

/// Returns the average number of full buckets in a chain.
pub fn full_buckets(mean: f64, pairs_per_bucket: u32) -> f64 {
    expectation(mean, |pairs| f64::from(pairs / pairs_per_bucket))
}

/// Returns the average number of buckets of a chain after its first.
pub fn overflow_buckets(mean: f64, pairs_per_bucket: u32) -> f64 {
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
        assert!(overflow_buckets(0.1, 5) < 1e-6);
        // A long chain is full except for its last bucket, which is half full on average.
        assert!((overflow_buckets(500.0, 5) - (500.0 / 5.0 - 0.6)).abs() < 0.05);
        assert!(overflow_buckets(5000.0, 10).is_finite());
    }
}
