//! The two free parameters of the hash table, and how to choose them (KV-Direct, sections 3.3.1 and 5.1.1).
//!
//! The **hash index ratio** is the share of memory that is index. A larger one means fewer chained buckets, so fewer
//! accesses, but less slab memory; the best is the largest that still holds the corpus. The **inline threshold** is the
//! size up to which a pair lies in its bucket.
//!
//! Keys fall into buckets at random, so the number of slots that a bucket is asked for is Poisson distributed. With a
//! mean of `m` pairs a bucket of which `n` fit, the chain has `Σ P(N > n·k), k = 1, 2, …` further buckets on average; each
//! takes 64 bytes of slab memory.

use super::bucket::{INLINE_SIZE_MAX, SLOT_COUNT, slots_for};
use super::{large, object};
use crate::memory::{LINE_SIZE, MEMORY_SIZE_MAX, RegionError};
use crate::operation::{KEY_SIZE_MAX, VALUE_SIZE_MAX};

/// Smallest memory of a table.
const MEMORY_SIZE_MIN: u64 = 4096;
/// Pairs up to this size are best kept inline: in a slab they would take 32 bytes and a slot.
const INLINE_PAIR_SIZE: usize = 30;
/// Where pairs are larger on average, the few small ones must not crowd out the slots of the others.
const INLINE_PAIR_SIZE_AMONG_LARGER: usize = 2 * super::bucket::SLOT_SIZE;
/// How full, of what a ratio near zero would hold, an index of inline pairs is laid out for. Every further per cent makes
/// chains longer for all fills.
const FILL_INLINE: f64 = 0.80;
/// The same for pairs in slabs, whose chains stay short: memory counts for more.
const FILL_SLAB: f64 = 0.92;

/// How a hash table divides its memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Bytes of the memory, index and slabs together.
    pub memory: u64,
    /// Share of it that is hash index, between 0 and 1.
    pub hash_index_ratio: f64,
    /// Largest size of a pair, key and value, that lies in its bucket: at most 50, and more counts as 50.
    pub inline_threshold: usize,
    /// Seed of the secret hash. Random for each start, so that nobody can choose keys of one bucket.
    pub seed: u64,
}

impl Settings {
    /// Settings for pairs of `kv_size` bytes, key and value, on average.
    pub fn for_kv_size(memory: u64, kv_size: usize, seed: u64) -> Self {
        let inline_threshold =
            if kv_size <= INLINE_PAIR_SIZE { INLINE_PAIR_SIZE } else { INLINE_PAIR_SIZE_AMONG_LARGER };
        let fill = if kv_size <= inline_threshold { FILL_INLINE } else { FILL_SLAB };
        let shape = PairShape::new(kv_size, inline_threshold);
        let hash_index_ratio = shape.largest_ratio(fill * shape.utilization_max());
        Settings { memory, hash_index_ratio, inline_threshold, seed }
    }

    /// Settings with the largest index that still leaves room for a corpus of equal pairs at this utilization: bytes of
    /// keys and values over bytes of memory. `None`: no ratio has room for it.
    pub fn for_utilization(memory: u64, kv_size: usize, utilization: f64, seed: u64) -> Option<Self> {
        let inline_threshold = if kv_size <= INLINE_PAIR_SIZE { kv_size } else { 0 };
        let shape = PairShape::new(kv_size, inline_threshold);
        if utilization > shape.utilization_max() {
            return None;
        }
        let hash_index_ratio = shape.largest_ratio(utilization);
        Some(Settings { memory, hash_index_ratio, inline_threshold, seed })
    }

    /// Buckets of the index in a memory of this size.
    pub(super) fn bucket_count(&self, memory_size: u64) -> Result<u32, RegionError> {
        if memory_size < MEMORY_SIZE_MIN {
            return Err(RegionError::TooSmall { size: memory_size, size_min: MEMORY_SIZE_MIN });
        }
        if memory_size > MEMORY_SIZE_MAX {
            return Err(RegionError::TooLarge { size: memory_size });
        }
        let line_count = memory_size / LINE_SIZE as u64;
        let wanted = (line_count as f64 * self.hash_index_ratio) as u64;
        // At least one bucket; at least a sixteenth is slabs, or nothing could be chained.
        Ok(u32::try_from(wanted.clamp(1, line_count - line_count / 16)).expect("64 GiB have less than 2³² lines"))
    }

    /// Whether the values lie within their limits; the message names the setting.
    pub fn validate(&self) -> Result<(), String> {
        if !(self.hash_index_ratio > 0.0 && self.hash_index_ratio < 1.0) {
            return Err(format!("hash index ratio {} is not between 0 and 1", self.hash_index_ratio));
        }
        if self.inline_threshold > INLINE_SIZE_MAX {
            return Err(format!("inline threshold {} is over {INLINE_SIZE_MAX} bytes", self.inline_threshold));
        }
        Ok(())
    }
}

/// What a pair of one size takes.
struct PairShape {
    pair_size: f64,
    /// Pairs that a bucket holds.
    pairs_per_bucket: usize,
    /// Bytes of slab memory for a pair.
    slab_size: f64,
}

impl PairShape {
    fn new(kv_size: usize, inline_threshold: usize) -> Self {
        let kv_size = kv_size.clamp(1, KEY_SIZE_MAX + VALUE_SIZE_MAX);
        let (pairs_per_bucket, slab_size) = if kv_size <= inline_threshold {
            (SLOT_COUNT / slots_for(kv_size), 0)
        } else {
            (SLOT_COUNT, slab_size(kv_size))
        };
        PairShape { pair_size: kv_size as f64, pairs_per_bucket, slab_size: slab_size as f64 }
    }

    /// The share of memory that is data if chains may be as long as they like.
    fn utilization_max(&self) -> f64 {
        self.pair_size / (LINE_SIZE as f64 / self.pairs_per_bucket as f64 + self.slab_size) * 0.999
    }

    /// The largest ratio at which the slab memory holds the slabs and chained buckets of a corpus.
    fn largest_ratio(&self, utilization: f64) -> f64 {
        let fits = |ratio: f64| {
            let pairs_per_index_bucket = utilization * LINE_SIZE as f64 / (self.pair_size * ratio);
            let chained = chained_buckets(pairs_per_index_bucket, self.pairs_per_bucket);
            // Per bucket of the index, in bytes.
            let slab_needed = pairs_per_index_bucket * self.slab_size + chained * LINE_SIZE as f64;
            slab_needed <= LINE_SIZE as f64 * (1.0 - ratio) / ratio
        };
        let (mut low, mut high) = (1e-4, 0.93);
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            *(if fits(middle) { &mut low } else { &mut high }) = middle;
        }
        low
    }
}

/// Bytes of slab memory that a pair of this size takes, with a key of 16 bytes where that matters.
fn slab_size(kv_size: usize) -> usize {
    match object::class_for_pair(kv_size.min(16), kv_size.saturating_sub(16)) {
        Some(class) => class.size(),
        None => {
            let pointer_count = large::root_pointer_count(kv_size);
            object::class_for_root(16, pointer_count).size() + large::footprint(kv_size)
        }
    }
}

/// Chained buckets for each bucket of the index, with a Poisson number of pairs of this mean.
fn chained_buckets(mean: f64, pairs_per_bucket: usize) -> f64 {
    // P(N = n) by recurrence in logarithms, so that a large mean does not underflow.
    let last = (mean + 12.0 * mean.sqrt()) as usize + 4 * pairs_per_bucket;
    let mut log_probability = -mean;
    let mut chained = 0.0;
    for n in 0..=last {
        if n > 0 {
            log_probability += (mean / n as f64).ln();
        }
        chained += log_probability.exp() * (n.div_ceil(pairs_per_bucket).saturating_sub(1)) as f64;
    }
    chained
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_follow_the_poisson_distribution() {
        assert!(chained_buckets(0.1, 5) < 1e-6);
        // A long chain is full but for its last bucket, which is half full on average.
        assert!((chained_buckets(500.0, 5) - (500.0 / 5.0 - 0.6)).abs() < 0.05);
        assert!(chained_buckets(5000.0, 10).is_finite());
    }

    #[test]
    fn a_fuller_store_gets_a_smaller_index() {
        let ratio = |utilization| Settings::for_utilization(1 << 30, 10, utilization, 0).unwrap().hash_index_ratio;
        assert!(ratio(0.3) > ratio(0.5) && ratio(0.5) > ratio(0.65));
        // Figure 11 uses a ratio of 0.4 throughout; at 65 % little more is possible.
        assert!((0.40..0.45).contains(&ratio(0.65)), "{}", ratio(0.65));
        assert_eq!(Settings::for_utilization(1 << 30, 10, 0.79, 0), None);
    }

    #[test]
    fn defaults_are_valid_for_every_size() {
        for kv_size in [0, 1, 10, 30, 31, 64, 254, 1000, 5000, 1 << 20, usize::MAX] {
            let settings = Settings::for_kv_size(1 << 30, kv_size, 0);
            assert_eq!(settings.validate(), Ok(()), "{kv_size} B");
            assert!(settings.bucket_count(1 << 30).unwrap() > 0);
        }
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let mut settings = Settings::for_kv_size(1 << 20, 64, 0);
        settings.inline_threshold = 51;
        assert!(settings.validate().unwrap_err().contains("inline threshold 51"));
        settings.hash_index_ratio = 1.0;
        assert!(settings.validate().unwrap_err().contains("hash index ratio 1"));
        assert!(matches!(settings.bucket_count(64), Err(RegionError::TooSmall { .. })));
        assert!(settings.bucket_count(MEMORY_SIZE_MAX).is_ok());
        assert!(matches!(settings.bucket_count(MEMORY_SIZE_MAX + 64), Err(RegionError::TooLarge { .. })));
    }
}
