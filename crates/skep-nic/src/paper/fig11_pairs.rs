//! The pairs of Figure 11: sizes, memory and index ratio, and the closed form of KV-Direct's curve for them.

use skep_store::hash::poisson::{full_buckets, mean_position};

/// The properties of the pairs of one size.
pub(super) struct Pairs {
    /// Bytes, key and value.
    pub(super) size: usize,
    /// Bytes of memory for which utilization is calculated.
    pub(super) memory: u64,
    /// KV-Direct's ratio, for all utilizations.
    pub(super) hash_index_ratio: f64,
    /// The explanation of the ratio.
    pub(super) ratio_note: &'static str,
    /// Returns the size of the pair with this number.
    pub(super) pair_size: fn(u64) -> usize,
}

/// Pairs of 10 B.
pub(super) const TEN: Pairs = Pairs {
    size: 10,
    memory: 4 << 20,
    hash_index_ratio: 0.4,
    ratio_note: "0.4, for which ours is within 0.001 of the bars, not the best for each utilization as the text says",
    pair_size: |_| 10,
};

/// Pairs of 254 B.
pub(super) const LARGE: Pairs = Pairs {
    size: 254,
    memory: 32 << 20,
    hash_index_ratio: 64.0 / (254.0 * 10.3),
    ratio_note: "0.0245 (10.3 pairs a bucket when full), on which the bars lie, not the best for each utilization as the \
                 text says",
    pair_size: |_| 254,
};

impl Pairs {
    /// Returns the number of pairs that fill this share of the memory.
    pub(super) fn count_at(&self, utilization: f64) -> u64 {
        (utilization * self.memory as f64 / self.size as f64) as u64
    }

    /// Returns true if the pairs are in their buckets.
    pub(super) fn is_inline(&self) -> bool {
        self.size <= 50
    }

    /// Returns the closed form of KV-Direct's curve.
    pub(super) fn closed_form(&self, utilization: f64, puts: bool) -> f64 {
        let mean = 64.0 * utilization / (self.size as f64 * self.hash_index_ratio);
        let (pairs_per_bucket, extra) = if self.is_inline() { (5, 0.0) } else { (10, 1.0) };
        let accesses =
            if puts { 2.0 + full_buckets(mean, pairs_per_bucket) } else { mean_position(mean, pairs_per_bucket) };
        accesses + extra
    }
}

/// One in this many pairs is read.
pub(super) const STEP: usize = 3;
/// Number of PUTs of new keys before a utilization, and after it, whose accesses are counted.
pub(super) const PUTS_AROUND: u64 = 2048;
