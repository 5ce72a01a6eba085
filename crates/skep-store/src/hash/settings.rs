//! The two free parameters of the hash table, and how to choose them (KV-Direct, sections 3.3.1 and 5.1.1).
//!
//! The **hash index ratio** is the share of memory that is index. A larger one means fewer overflow buckets, so fewer
//! accesses, but less slab memory; the best is the largest that still holds the corpus. The **inline threshold** is the
//! size up to which a pair is stored in its bucket: inline saves the access of a slab, and fills buckets sooner.
//!
//! By default the index grows with the pairs ([`Settings::growing`]). Fixed values of both follow from the size of the pairs, the
//! utilization of the memory and the cost of chains ([`poisson`]). The server, the library and the model of the NIC use the
//! same function.
//!
//! ```text
//! size, utilization ─▶ inline: largest index with room ─▶ accesses of a GET ─┐
//!                  └─▶ in slabs: the same             ─▶ accesses of a GET ─┴─▶ the one with fewer
//! ```

use super::bucket::{INLINE_SIZE_MAX, SLOT_COUNT, slots_for};
use super::{large_layout, object, poisson};
use crate::memory::{LINE_SIZE, MEMORY_SIZE_MAX, RegionError};
use skep_core::operation::{KEY_SIZE_MAX, VALUE_SIZE_MAX};

/// Smallest memory of a table.
const MEMORY_SIZE_MIN: u64 = 4096;
/// If average pairs are inline, so are pairs of up to twice the average, and at least this size.
const INLINE_THRESHOLD_MIN: usize = 30;
/// If average pairs are in slabs, pairs of up to this size are inline: the few small ones must leave slots for the others.
const INLINE_THRESHOLD_AMONG_SLABS: usize = 2 * super::bucket::SLOT_SIZE;
/// If only the average is known, pairs are inline up to this average: with larger averages, some pairs do not fit a bucket,
/// and a large index leaves no room for their slabs.
const INLINE_AVERAGE_MAX: usize = 40;
/// The hash index ratio from which on an index grows. It is no less because slabs of another time may be where the index would
/// grow: even then, chains of small pairs are not endless.
const GROWING_RATIO: f64 = 1.0 / 16.0;
/// Default utilization of an index of inline pairs, as a share of the most at a ratio near zero. Up to it, one per cent more
/// room costs less than one per cent more accesses while filling, as `tests/settings.rs` counts.
const FILL_INLINE: f64 = 0.80;
/// The same for pairs in slabs, whose chains stay short: memory counts for more.
const FILL_SLAB: f64 = 0.92;

/// The division of a hash table's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Bytes of the memory, index and slabs together.
    pub memory: u64,
    /// Share of it that is hash index, between 0 and 1.
    pub hash_index_ratio: f64,
    /// Largest size of a pair, key and value, that is stored in its bucket: at most 50, and more counts as 50. In an index that
    /// grows, only if that takes no more memory than a slab.
    pub inline_threshold: usize,
    /// The hash index grows with the pairs, from this ratio on.
    pub grows: bool,
    /// Seed of the secret hash. Random for each start, so that no client can choose keys of one bucket.
    pub seed: u64,
}

impl Settings {
    /// Returns settings for pairs of any sizes: the index grows with them, as long as memory is plentiful. Pairs are inline if
    /// that takes no more memory than a slab. On a memory without resident lines, the index does not grow.
    pub fn growing(memory: u64, seed: u64) -> Self {
        Settings { memory, hash_index_ratio: GROWING_RATIO, inline_threshold: INLINE_SIZE_MAX, grows: true, seed }
    }

    /// Returns the number of home buckets at the start; all there are, if the index does not grow.
    pub fn first_home_buckets(&self) -> u32 {
        self.bucket_count(self.memory).unwrap_or(1)
    }

    /// Returns the sizes of pairs that are inline: bit s for s bytes.
    pub(super) fn inline_sizes(&self) -> u64 {
        let takes_less_in_slab = |size: usize| {
            let inline = LINE_SIZE / (SLOT_COUNT / slots_for(size));
            let in_slab = slab_size(size) + LINE_SIZE / SLOT_COUNT;
            inline > in_slab
        };
        let sizes =
            (1..=self.inline_threshold.min(INLINE_SIZE_MAX)).filter(|size| !self.grows || !takes_less_in_slab(*size));
        sizes.fold(0, |sizes, size| sizes | 1 << size)
    }

    /// Returns settings for pairs of `kv_size` bytes, key and value, on average, and a memory that is to be filled. They are
    /// chosen as in [`Settings::for_utilization`], at [`Settings::utilization_for`] this size, and for sizes that differ.
    pub fn for_kv_size(memory: u64, kv_size: usize, seed: u64) -> Self {
        let utilization = Settings::utilization_for(kv_size);
        let (ratio, shape) =
            PairShape::best(PairShape::of_average(kv_size), utilization).expect("a shape has room for its own share");
        shape.settings(memory, ratio, seed)
    }

    /// Returns the settings with the fewest accesses for a GET that leave room for a corpus of equal pairs at this utilization:
    /// bytes of keys and values over bytes of memory. Returns `None` if no settings have room for it.
    pub fn for_utilization(memory: u64, kv_size: usize, utilization: f64, seed: u64) -> Option<Self> {
        let (ratio, shape) = PairShape::best(PairShape::all(kv_size), utilization)?;
        Some(shape.settings(memory, ratio, seed))
    }

    /// Returns the default utilization of a memory for pairs of this average size.
    pub fn utilization_for(kv_size: usize) -> f64 {
        let fill = |shape: PairShape| shape.utilization_max() * if shape.is_inline() { FILL_INLINE } else { FILL_SLAB };
        PairShape::of_average(kv_size).map(fill).fold(0.0, f64::max)
    }

    /// Returns the largest utilization of any settings, for equal pairs of this size.
    pub fn utilization_max(kv_size: usize) -> f64 {
        PairShape::all(kv_size).map(|shape| shape.utilization_max()).fold(0.0, f64::max)
    }

    /// Returns the number of buckets of the index in a memory of this size.
    pub(super) fn bucket_count(&self, memory_size: u64) -> Result<u32, RegionError> {
        if memory_size < MEMORY_SIZE_MIN {
            return Err(RegionError::TooSmall { size: memory_size, size_min: MEMORY_SIZE_MIN });
        }
        if memory_size > MEMORY_SIZE_MAX {
            return Err(RegionError::TooLarge { size: memory_size });
        }
        let line_count = memory_size / LINE_SIZE as u64;
        let wanted = (line_count as f64 * self.hash_index_ratio) as u64;
        Ok((wanted as u32).clamp(1, Settings::bucket_count_max(memory_size)))
    }

    /// Returns the most buckets of an index in a memory of this size: at least a sixteenth is slabs, or there could be no
    /// overflow buckets.
    pub(super) fn bucket_count_max(memory_size: u64) -> u32 {
        let line_count = memory_size / LINE_SIZE as u64;
        u32::try_from(line_count - line_count / 16).expect("64 GiB have less than 2³² lines")
    }

    /// Checks that the values are within their limits. The error message names the setting.
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

/// The memory that a pair of one size takes, inline or in a slab.
struct PairShape {
    pair_size: usize,
    /// Pairs that a bucket holds.
    pairs_per_bucket: u32,
    /// Bytes of slab memory for a pair; none if it is inline.
    slab_size: usize,
}

impl PairShape {
    /// The ways to keep such a pair.
    fn all(kv_size: usize) -> impl Iterator<Item = PairShape> {
        let pair_size = kv_size.clamp(1, KEY_SIZE_MAX + VALUE_SIZE_MAX);
        let in_slab = PairShape { pair_size, pairs_per_bucket: SLOT_COUNT as u32, slab_size: slab_size(pair_size) };
        let inline = (pair_size <= INLINE_SIZE_MAX).then(|| {
            let pairs_per_bucket = (SLOT_COUNT / slots_for(pair_size)) as u32;
            PairShape { pair_size, pairs_per_bucket, slab_size: 0 }
        });
        inline.into_iter().chain([in_slab])
    }

    /// The ways to keep pairs of which only the average is known.
    fn of_average(kv_size: usize) -> impl Iterator<Item = PairShape> {
        PairShape::all(kv_size).filter(move |shape| !shape.is_inline() || kv_size <= INLINE_AVERAGE_MAX)
    }

    /// Of those with room, the one with the fewest accesses for a GET, and its hash index ratio.
    fn best(shapes: impl Iterator<Item = PairShape>, utilization: f64) -> Option<(f64, PairShape)> {
        let with_room = shapes.filter(|shape| utilization <= shape.utilization_max());
        let with_accesses = with_room.map(|shape| {
            let ratio = shape.largest_ratio(utilization);
            (shape.get_accesses(utilization, ratio), ratio, shape)
        });
        let (_, ratio, shape) = with_accesses.min_by(|one, other| one.0.total_cmp(&other.0))?;
        Some((ratio, shape))
    }

    fn settings(&self, memory: u64, hash_index_ratio: f64, seed: u64) -> Settings {
        let inline_threshold = if self.is_inline() {
            (2 * self.pair_size).clamp(INLINE_THRESHOLD_MIN, INLINE_SIZE_MAX)
        } else {
            INLINE_THRESHOLD_AMONG_SLABS
        };
        Settings { memory, hash_index_ratio, inline_threshold, grows: false, seed }
    }

    fn is_inline(&self) -> bool {
        self.slab_size == 0
    }

    /// The share of memory that is data if chains may be as long as they like.
    fn utilization_max(&self) -> f64 {
        let slots = LINE_SIZE as f64 / f64::from(self.pairs_per_bucket);
        self.pair_size as f64 / (slots + self.slab_size as f64) * 0.999
    }

    /// Accesses of a GET, on average over the corpus: the chain up to the pair, and its slab.
    fn get_accesses(&self, utilization: f64, ratio: f64) -> f64 {
        let position = poisson::mean_position(self.pairs_per_index_bucket(utilization, ratio), self.pairs_per_bucket);
        if self.is_inline() { position } else { position + 1.0 }
    }

    fn pairs_per_index_bucket(&self, utilization: f64, ratio: f64) -> f64 {
        utilization * LINE_SIZE as f64 / (self.pair_size as f64 * ratio)
    }

    /// The largest ratio at which the slab memory holds the slabs and overflow buckets of a corpus.
    fn largest_ratio(&self, utilization: f64) -> f64 {
        let fits = |ratio: f64| {
            let pairs_per_index_bucket = self.pairs_per_index_bucket(utilization, ratio);
            let overflow = poisson::overflow_buckets(pairs_per_index_bucket, self.pairs_per_bucket);
            // Per bucket of the index, in bytes.
            let slab_needed = pairs_per_index_bucket * self.slab_size as f64 + overflow * LINE_SIZE as f64;
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
    match object::class_for_pair(kv_size.min(16), kv_size.saturating_sub(16), false) {
        Some(class) => class.size(),
        None => {
            let pointer_count = large_layout::root_pointer_count(kv_size);
            object::class_for_root(16, pointer_count, false).size() + large_layout::footprint(kv_size)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuller_store_gets_a_smaller_index() {
        let ratio = |utilization| Settings::for_utilization(1 << 30, 10, utilization, 0).unwrap().hash_index_ratio;
        assert!(ratio(0.3) > ratio(0.5) && ratio(0.5) > ratio(0.65));
        // Figure 11 uses a ratio of 0.4 throughout; at 65 % little more is possible.
        assert!((0.40..0.45).contains(&ratio(0.65)), "{}", ratio(0.65));
        assert_eq!(Settings::for_utilization(1 << 30, 10, 0.79, 0), None);
        assert!(Settings::for_utilization(1 << 30, 10, Settings::utilization_max(10), 0).is_some());
    }

    #[test]
    fn pairs_are_inline_where_that_takes_fewer_accesses() {
        let threshold =
            |size, utilization| Settings::for_utilization(1 << 30, size, utilization, 0).unwrap().inline_threshold;
        // One pair of 30 B fills a bucket: that is worth it while the memory has room for as many buckets.
        assert_eq!([0.3, 0.4, 0.46].map(|utilization| threshold(30, utilization)), [50, 50, 10]);
        assert_eq!([10, 25, 50, 51].map(|size| threshold(size, 0.3)), [30, 50, 50, 10]);
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
