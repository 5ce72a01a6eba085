//! The home buckets: how keys are divided among them, and how their number grows.
//!
//! The *position* of a key is its secret hash, 64 bits. An index of n home buckets has the key in bucket (position · n) >> 64. So
//! home buckets are in the order of positions, in an index of each size.
//!
//! While the index grows from `below` to `above` buckets, keys below a boundary are in the old buckets, and the others in the
//! new ones. Both are in the same memory:
//!
//! ```text
//! old buckets   ├─────── not moved ───────┤ ◀── the boundary goes down
//! memory        ├─────── old ─────────────┤      gap      ├────────────── new ──────────────┤
//! bucket        0                     gap.start        gap.end                            above
//! new buckets                                             ├── keys of the old ones moved ───┤
//! ```
//!
//! **Why one memory is enough.** The old buckets are moved in descending order, in groups of which all are copied first. A key of
//! old bucket i goes to a new bucket that is not before i, because `above` is the greater number. So no old bucket is written
//! before it is copied.

use std::cell::Cell;

use super::bucket_index::BucketIndex;

/// Overflow buckets for each home bucket from which on the index grows, if pairs are inline and memory is plentiful.
pub(super) const OVERFLOW_INLINE: f64 = 1.0 / 28.0;

/// How keys are divided among home buckets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Division {
    /// Home buckets among which the keys below the boundary are divided.
    below: u32,
    /// Those among which the others are divided.
    above: u32,
    /// The first position of the others. 0 unless the index grows.
    boundary: u64,
}

impl Division {
    /// Returns the home bucket of a position.
    #[inline(always)]
    pub(super) fn bucket(self, position: u64) -> BucketIndex {
        bucket_among(position, if position < self.boundary { self.below } else { self.above })
    }
}

/// The home buckets of a table.
#[derive(Debug)]
pub(super) struct Index {
    division: Cell<Division>,
    /// The first bucket that is none.
    gap_start: Cell<u32>,
    /// The first bucket after it.
    gap_end: Cell<u32>,
}

impl Index {
    /// Returns an index of this many home buckets.
    pub(super) fn new(count: u32) -> Index {
        let division = Division { below: count, above: count, boundary: 0 };
        Index { division: Cell::new(division), gap_start: Cell::new(count), gap_end: Cell::new(count) }
    }

    /// Makes it an index of this many home buckets, which does not grow.
    pub(super) fn reset(&self, count: u32) {
        self.division.set(Division { below: count, above: count, boundary: 0 });
        self.gap_start.set(count);
        self.gap_end.set(count);
    }

    /// Returns the home bucket of a position.
    pub(super) fn bucket(&self, position: u64) -> BucketIndex {
        self.division().bucket(position)
    }

    /// Returns how keys are divided now.
    #[inline(always)]
    pub(super) fn division(&self) -> Division {
        self.division.get()
    }

    /// Returns the first position of a home bucket.
    pub(super) fn first_position(&self, bucket: u32) -> u64 {
        if bucket < self.gap_start.get() && self.is_growing() {
            return first_position_among(bucket, self.division().below);
        }
        self.division().boundary.max(first_position_among(bucket, self.division().above))
    }

    /// Returns the number of home buckets; while it grows, the number that there will be.
    pub(super) fn count(&self) -> u32 {
        self.division().above
    }

    /// Returns this bucket, or the first one after it that is a home bucket, if there is one.
    pub(super) fn next(&self, bucket: u32) -> Option<u32> {
        let is_of_gap = (self.gap_start.get()..self.gap_end.get()).contains(&bucket);
        Some(if is_of_gap { self.gap_end.get() } else { bucket }).filter(|next| *next < self.division().above)
    }

    /// Returns the end of the home buckets without a gap that begin with this one.
    pub(super) fn end_of_run(&self, bucket: u32) -> u32 {
        if bucket < self.gap_start.get() { self.gap_start.get() } else { self.division().above }
    }

    /// Returns true while the index grows.
    #[inline]
    pub(super) fn is_growing(&self) -> bool {
        self.division().below != self.division().above
    }

    /// Begins to grow to this many home buckets. [`Index::note_moved`] follows before any other call for a position.
    ///
    /// # Panics
    /// If the index grows already, or has as many.
    pub(super) fn begin_to_grow(&self, count: u32) {
        assert!(!self.is_growing() && self.division().above < count, "an index that rests grows");
        self.division.set(Division { above: count, boundary: u64::MAX, ..self.division() });
        self.gap_end.set(count);
    }

    /// Returns the end of the old buckets that are not moved yet, while the index grows.
    pub(super) fn end_of_old(&self) -> Option<u32> {
        self.is_growing().then(|| self.gap_start.get())
    }

    /// Returns the last old buckets, from this one on, and the new buckets that only the keys of these and of later ones have.
    pub(super) fn next_to_move(&self, old: u32) -> Moved {
        let first_position = first_position_among(old, self.division().below);
        let first_new = bucket_among(first_position, self.division().above).0;
        Moved { old, first_position, first_new, end_new: self.gap_end.get() }
    }

    /// Returns the new home bucket of a position.
    #[inline(always)]
    pub(super) fn new_bucket(&self, position: u64) -> BucketIndex {
        bucket_among(position, self.division().above)
    }

    /// Notes that the keys of old buckets were moved. Returns true if these were the last ones.
    pub(super) fn note_moved(&self, moved: &Moved) -> bool {
        self.gap_start.set(moved.old);
        self.gap_end.set(moved.first_new);
        self.division.set(Division { boundary: moved.first_position, ..self.division() });
        let is_last = moved.old == 0;
        if is_last {
            self.reset(self.division().above);
        }
        is_last
    }
}

/// Whether the index of a table grows, and when.
#[derive(Debug)]
pub(super) struct Growth {
    /// Home buckets at the start, and after a flush.
    first_count: u32,
    /// The most home buckets. As many as at the start if the index does not grow.
    pub(super) count_max: u32,
    /// Overflow buckets from which on it is considered.
    at: Cell<u64>,
    /// The fewest from which on it may be worthwhile.
    least: Cell<u64>,
    /// A part of the memory for the next home buckets is taken.
    is_taking: Cell<bool>,
}

impl Growth {
    /// Returns growth from one number of home buckets to another.
    pub(super) fn new(first_count: u32, count_max: u32) -> Growth {
        let growth =
            Growth { first_count, count_max, at: Cell::new(0), least: Cell::new(0), is_taking: Cell::new(false) };
        growth.consider_at(first_count);
        growth
    }

    /// Returns true if the index grows.
    pub(super) fn is_possible(&self) -> bool {
        self.first_count < self.count_max
    }

    /// Returns the number of home buckets at the start.
    pub(super) fn first_count(&self) -> u32 {
        self.first_count
    }

    /// Considers growth of this number of home buckets as soon as it may be worthwhile.
    pub(super) fn consider_at(&self, count: u32) {
        let least = if count < self.count_max { (f64::from(count) * OVERFLOW_INLINE) as u64 } else { u64::MAX };
        self.least.set(least);
        self.at.set(least);
        self.is_taking.set(false);
    }

    /// Returns true if a part of the memory for the next home buckets is taken.
    #[inline]
    pub(super) fn is_taking(&self) -> bool {
        self.is_taking.get()
    }

    /// Sets whether a part of the memory for the next home buckets is taken.
    pub(super) fn set_taking(&self, is_taking: bool) {
        self.is_taking.set(is_taking);
    }

    /// Returns true if growth is to be considered, with this many overflow buckets.
    #[inline]
    pub(super) fn is_due(&self, overflow: u64) -> bool {
        if overflow < self.at.get() / 2 && self.at.get() > self.least.get() {
            // Memory was short when it was refused, and may not be any more.
            self.refuse(overflow);
        }
        overflow > self.at.get()
    }

    /// Considers growth again when there are an eighth more overflow buckets.
    pub(super) fn refuse(&self, overflow: u64) {
        self.at.set((overflow + overflow / 8).max(self.least.get()));
    }

    /// Considers growth no more.
    pub(super) fn stop(&self) {
        self.least.set(u64::MAX);
        self.at.set(u64::MAX);
    }
}

/// Old buckets whose keys are moved: from one on, to the last that was not moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    /// The first of them.
    old: u32,
    first_position: u64,
    /// The first new bucket of their keys.
    pub(super) first_new: u32,
    /// The end of the new buckets that are to be emptied first. The bucket there has keys already.
    pub(super) end_new: u32,
}

/// Returns the bucket of a position among this many.
#[inline(always)]
fn bucket_among(position: u64, count: u32) -> BucketIndex {
    BucketIndex(((u128::from(position) * u128::from(count)) >> 64) as u32)
}

/// Returns the smallest position of a bucket among this many.
fn first_position_among(bucket: u32, count: u32) -> u64 {
    // The smallest h with h · count ≥ bucket · 2⁶⁴.
    (u128::from(bucket) << 64).div_ceil(u128::from(count)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    /// Checks that buckets and positions agree, and that the buckets of all positions are in their order.
    fn check(index: &Index, random: &mut impl rand::Rng) {
        let mut buckets = Vec::new();
        let mut next = index.next(0);
        while let Some(bucket) = next {
            buckets.push(bucket);
            next = index.next(bucket + 1);
        }
        assert_eq!(index.first_position(buckets[0]), 0);
        for pair in buckets.windows(2) {
            let (first, second) = (index.first_position(pair[0]), index.first_position(pair[1]));
            // At the boundary, a new bucket may have no positions yet.
            assert!(first <= second);
            if first < second {
                assert_eq!(index.bucket(first).0, pair[0]);
                assert_eq!(index.bucket(second - 1).0, pair[0]);
            }
        }
        for _ in 0..20 {
            let position = random.random();
            let bucket = index.bucket(position).0;
            assert!(buckets.binary_search(&bucket).is_ok(), "{bucket} is a home bucket");
            assert!(index.first_position(bucket) <= position);
        }
    }

    #[test]
    fn each_position_has_a_bucket_while_the_index_grows() {
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
        for (count, grown) in [(1, 2), (1, 7), (2, 3), (64, 96), (64, 65), (100, 199), (100, 200), (97, 1000)] {
            let index = Index::new(count);
            check(&index, &mut random);
            index.begin_to_grow(grown);
            // Each new bucket is emptied once, from the last to the first.
            let mut emptied = grown;
            while let Some(end) = index.end_of_old() {
                let moved = index.next_to_move(end - random.random_range(1..=end.min(5)));
                assert_eq!(moved.end_new, emptied);
                assert!(moved.old <= moved.first_new && moved.first_new <= moved.end_new);
                emptied = moved.first_new;
                assert_eq!(index.note_moved(&moved), moved.old == 0);
                check(&index, &mut random);
            }
            assert_eq!((emptied, index.count()), (0, grown));
            assert!(!index.is_growing());
        }
    }

    #[test]
    fn the_last_position_has_the_last_bucket() {
        for count in [1, 2, 3, 1000, (1 << 30) - 1] {
            let index = Index::new(count);
            assert_eq!(index.bucket(u64::MAX).0, count - 1);
            assert_eq!(index.bucket(0).0, 0);
            let last = index.first_position(count - 1);
            assert_eq!(index.bucket(last).0, count - 1);
            assert!(count == 1 || index.bucket(last - 1).0 == count - 2);
        }
    }
}
