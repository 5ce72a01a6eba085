//! A summary of the hash index, so that walks over all keys skip the parts that have none.
//!
//! ```text
//! home buckets   ├─ 64 ─┼─ 64 ─┼─ 64 ─┼─ 64 ─┤ …
//! a bit of each      1      0      0      1        0: no pair of the group
//! ```
//!
//! 1. An insertion sets the bit of the group that has the home bucket of its key.
//! 2. A removal leaves the bit. A walk that has read a whole group without a pair clears it, and a flush clears all bits.
//!
//! **Why it is right.** A key has one home bucket. [`HashTable::count_insertion`](super::HashTable::count_insertion) sets its bit, and no pair is inserted without
//! being counted. Growth of the index sets the bits of all buckets to which it moves pairs. Walks and flushes run between
//! batches, so no insertion is in flight when they clear a bit.
//!
//! **What it costs.** A bit for 4 KiB of index, and a few instructions for an insertion. A walk over an empty index of
//! 1 GiB reads 32 KiB.

use std::cell::Cell;
use std::ops::Range;

/// Home buckets of a group.
pub(super) const GROUP_BUCKETS: u32 = 64;
const BITS: u32 = u64::BITS;

/// The bits.
#[derive(Debug)]
pub(super) struct UsedGroups {
    words: Box<[Cell<u64>]>,
}

impl UsedGroups {
    /// Returns the bits of an empty index.
    pub(super) fn new(bucket_count: u32) -> Self {
        let word_count = bucket_count.div_ceil(GROUP_BUCKETS).div_ceil(BITS);
        UsedGroups { words: (0..word_count).map(|_| Cell::new(0)).collect() }
    }

    /// Clears all bits.
    pub(super) fn clear_all(&self) {
        self.words.iter().for_each(|word| word.set(0));
    }

    /// Clears the bit of the group of a home bucket.
    pub(super) fn clear(&self, bucket: u32) {
        let (word, mask) = self.position(bucket);
        word.set(word.get() & !mask);
    }

    /// Sets the bit of the group of a home bucket.
    #[inline(always)]
    pub(super) fn set(&self, bucket: u32) {
        let (word, mask) = self.position(bucket);
        word.set(word.get() | mask);
    }

    /// Sets the bits of the groups of these home buckets.
    pub(super) fn set_all(&self, buckets: Range<u32>) {
        let groups = buckets.start / GROUP_BUCKETS..buckets.end.div_ceil(GROUP_BUCKETS);
        groups.for_each(|group| self.set(group * GROUP_BUCKETS));
    }

    #[inline(always)]
    fn position(&self, bucket: u32) -> (&Cell<u64>, u64) {
        let group = bucket / GROUP_BUCKETS;
        (&self.words[(group / BITS) as usize], 1 << (group % BITS))
    }

    /// Returns the first home bucket from `from` on whose group may have pairs, if there is one, and the number of words that
    /// were read.
    pub(super) fn next(&self, from: u32) -> (Option<u32>, usize) {
        let group = from / GROUP_BUCKETS;
        let first = (group / BITS) as usize;
        let Some(words) = self.words.get(first..) else { return (None, 0) };
        for (index, word) in words.iter().enumerate() {
            let skipped = if index == 0 { group % BITS } else { 0 };
            let bits = word.get() >> skipped << skipped;
            if bits != 0 {
                let found = (first + index) as u32 * BITS + bits.trailing_zeros();
                return (Some(from.max(found * GROUP_BUCKETS)), index + 1);
            }
        }
        (None, words.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_from_every_position() {
        for bucket_count in [1, 64, 65, 4096, 4097, 20_000] {
            let used = UsedGroups::new(bucket_count);
            assert_eq!(used.next(0).0, None);
            let last = bucket_count - 1;
            used.set(last);
            let group = last / GROUP_BUCKETS * GROUP_BUCKETS;
            for from in 0..bucket_count {
                assert_eq!(used.next(from).0, Some(from.max(group)), "{bucket_count} {from}");
            }
            assert_eq!(used.next(u32::MAX).0, None);
            used.set(0);
            assert_eq!(used.next(0), (Some(0), 1));
            used.clear(last);
            used.clear(0);
            assert_eq!(used.next(0).0, None);
        }
    }
}
