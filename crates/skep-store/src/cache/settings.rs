//! The division of a cache's memory into index and log.
//!
//! ```text
//! memory  ├────── index: buckets of 64 B ──────┼────────────── log: units of 32 B ──────────────┤
//! ```
//!
//! The index has a bucket for each [`ITEMS_PER_BUCKET`] items that fill the log. With fewer items for a bucket, the index takes
//! more of the memory. With more, buckets are full more often, and the index evicts items before the log does.
//!
//! With 5 items for the 8 entries, one put of a new key in ten finds its bucket full. It evicts the oldest item of the bucket,
//! which the log would overwrite soon. So the ratio of hits is 0.4 % below that of a queue of the same bytes, under a Zipf
//! distribution with exponent 0.99 (`tests/fifo.rs`). A pair of 8 + 8 bytes takes 45 bytes: a unit of 32 bytes, and a
//! fifth of a bucket.

use super::item::{Attributes, ITEM_SIZE_MAX};
use super::log::UNIT_COUNT_MAX;
use crate::memory::{LINE_SIZE, MEMORY_SIZE_MAX, RegionError, UNIT_SIZE};
use skep_core::operation::{KEY_SIZE_MAX, VALUE_SIZE_MAX};

/// Items of the log for each bucket of the index.
const ITEMS_PER_BUCKET: u64 = 5;
/// Smallest memory of a cache. Its log holds every item.
const MEMORY_SIZE_MIN: u64 = 2 << 20;

/// The size of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of the memory, index and log together: 2 MiB to 64 GiB.
    pub memory: u64,
    /// Bytes of an average pair, key and value. It decides the size of the index.
    pub kv_size: usize,
    /// Seed of the secret hash. Random for each start, so that no client can choose keys of one bucket.
    pub seed: u64,
}

/// The lines of index and log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    pub(super) bucket_count: u32,
    pub(super) log_line_count: u64,
}

impl Settings {
    /// Returns the division of a memory of this size.
    pub(super) fn divide(&self, memory_size: u64) -> Result<Division, RegionError> {
        if memory_size < MEMORY_SIZE_MIN {
            return Err(RegionError::TooSmall { size: memory_size, size_min: MEMORY_SIZE_MIN });
        }
        if memory_size > MEMORY_SIZE_MAX {
            return Err(RegionError::TooLarge { size: memory_size });
        }
        let key_size = self.kv_size.clamp(1, 8);
        let value_size = self.kv_size.saturating_sub(key_size).min(KEY_SIZE_MAX + VALUE_SIZE_MAX - key_size);
        let item_size =
            u64::from(Attributes::default().item_size(key_size, value_size)).next_multiple_of(UNIT_SIZE as u64);
        let line_count = memory_size / LINE_SIZE as u64;
        let bucket_size = LINE_SIZE as u64 + ITEMS_PER_BUCKET * item_size;
        let bucket_count = (memory_size / bucket_size).max(1);
        Ok(Division {
            bucket_count: u32::try_from(bucket_count).expect("64 GiB have less than 2³² lines"),
            log_line_count: (line_count - bucket_count).min(UNIT_COUNT_MAX * UNIT_SIZE as u64 / LINE_SIZE as u64),
        })
    }
}

/// The index is largest for items of one unit.
const _: () = {
    let log_share = ITEMS_PER_BUCKET as usize * UNIT_SIZE;
    assert!(MEMORY_SIZE_MIN as usize / (LINE_SIZE + log_share) * log_share > ITEM_SIZE_MAX);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn divide(memory: u64, kv_size: usize) -> Result<Division, RegionError> {
        Settings { memory, kv_size, seed: 1 }.divide(memory)
    }

    #[test]
    fn index_and_log_fill_the_memory() {
        for (kv_size, share) in [(0, 64.0 / 224.0), (16, 64.0 / 224.0), (56, 64.0 / 384.0), (1 << 20, 0.0)] {
            for memory in [MEMORY_SIZE_MIN, 100 << 20, MEMORY_SIZE_MAX] {
                let Division { bucket_count, log_line_count } = divide(memory, kv_size).unwrap();
                let unused = memory - (u64::from(bucket_count) + log_line_count) * LINE_SIZE as u64;
                let is_limited = log_line_count * LINE_SIZE as u64 == UNIT_COUNT_MAX * UNIT_SIZE as u64;
                assert!(unused == 0 || is_limited && unused <= 512 << 20, "{kv_size} bytes: {unused}");
                assert!(log_line_count * LINE_SIZE as u64 >= ITEM_SIZE_MAX as u64, "{kv_size} bytes");
                let index_share = f64::from(bucket_count) * LINE_SIZE as f64 / memory as f64;
                assert!((index_share - share).abs() < 0.01, "{kv_size} bytes: {index_share}");
            }
        }
    }

    #[test]
    fn sizes_have_limits() {
        let too_small = RegionError::TooSmall { size: MEMORY_SIZE_MIN - 1, size_min: MEMORY_SIZE_MIN };
        assert_eq!(divide(MEMORY_SIZE_MIN - 1, 16), Err(too_small));
        assert_eq!(divide(MEMORY_SIZE_MAX + 1, 16), Err(RegionError::TooLarge { size: MEMORY_SIZE_MAX + 1 }));
        assert!(divide(MEMORY_SIZE_MAX, usize::MAX).is_ok());
    }
}
