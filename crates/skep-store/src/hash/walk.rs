//! A walk over all keys of a table, in steps, while operations between the steps change it.
//!
//! ```text
//! positions     ├──── returned ────▶ next ──── of later steps ────┤
//! a step                            ▐ 64 buckets: prefetch them with their chains, then the slabs to which they point,
//!                                     then return their keys; and again, up to the limits
//! ```
//!
//! Groups of buckets without a pair are skipped, as far as their summary shows them (`used`).
//!
//! Home buckets are in the order of the positions of their keys (`index.rs`). A step returns the keys from one position to
//! another: it reads the home buckets from that of the first position on, and ends where one begins. Its limits are compared
//! after each chain.
//!
//! **Why no key is missed, and none returned twice.** A key has one position for the whole life of the table, and is always in
//! the chain of the home bucket of that position, also while the index grows. Edits move it within this chain, or between its
//! bucket and a slab. Steps run between batches, when no edit is in flight. So a key that exists from the first step to the
//! last is found by the step that has its position.
//!
//! A group that is skipped had no pair at a moment between the two, so the key was not in it.
//!
//! **What it costs.** A step reads at most [`STEP_BUCKETS_MAX`] home buckets and begins no further chain after
//! [`STEP_SLABS_MAX`] slabs. Of a slab it reads the lines up to the end of the key.

use std::cell::Cell;
use std::ops::Range;

use super::bucket::{Bucket, Entry, SlabSlot};
use super::bucket_index::BucketIndex;
use super::object;
use super::table::HashTable;
pub(super) use super::used::GROUP_BUCKETS;
use crate::memory::{LINE_SIZE, Memory, Pointer, ResidentLines};

/// Most home buckets of a step.
pub const STEP_BUCKETS_MAX: u32 = 16 << 10;
/// Slabs from which on a step ends.
pub const STEP_SLABS_MAX: usize = 256;

/// The limits of a step. A step ends after the chain with which it reaches one of them.
#[derive(Clone, Copy, Debug)]
pub struct WalkLimit {
    /// Keys.
    pub keys: usize,
    /// Bytes of keys.
    pub size: usize,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkStep {
    /// The position with which the next step begins; `None` after the last one.
    pub next: Option<u64>,
    /// Home buckets that were read, and lines of the summary of those that were skipped.
    pub buckets: u32,
    /// Slabs that were read.
    pub slabs: usize,
}

impl<M: Memory> HashTable<M> {
    /// Calls `each` with the keys from a position on, up to the limit. Keys that have expired are left out. `group` is for its
    /// memory.
    pub(crate) async fn walk(
        &self,
        group: &mut Vec<(BucketIndex, Bucket)>,
        from: u64,
        limit: WalkLimit,
        mut each: impl FnMut(&[u8]),
    ) -> WalkStep {
        let (keys, size) = (Cell::new(0), Cell::new(0));
        let first = self.index.bucket(from);
        let begins_within = from > self.index.first_position(first.0);
        let mut each = |home: BucketIndex, key: &[u8]| {
            if home == first && self.position(key) < from {
                return;
            }
            keys.set(keys.get() + 1);
            size.set(size.get() + key.len());
            each(key);
        };
        if self.pair_count() == 0 {
            return WalkStep { next: None, buckets: 0, slabs: 0 };
        }
        let (mut buckets, mut summary_words) = (0, 0);
        let (mut next, mut slabs) = (first.0, 0);
        let mut is_complete = false;
        while let Some(begin) = self.next_used(next, &mut summary_words) {
            if is_complete || buckets >= STEP_BUCKETS_MAX {
                let next = Some(self.index.first_position(begin));
                return WalkStep { next, buckets: buckets + summary_lines(summary_words), slabs };
            }
            let group_end = self.index.end_of_run(begin).min((begin / GROUP_BUCKETS + 1) * GROUP_BUCKETS);
            let end = group_end.min(begin + (STEP_BUCKETS_MAX - buckets));
            self.read_group(group, begin..end).await;
            let is_whole =
                begin.is_multiple_of(GROUP_BUCKETS) && (end == begin + GROUP_BUCKETS || end == self.index.count());
            if is_whole && group.iter().all(|(_, copy)| copy.used_slot_count() == 0) {
                self.used.clear(begin);
            }
            let mut copies = group.iter().peekable();
            while let Some((bucket, copy)) = copies.next() {
                for (_, entry) in copy.entries() {
                    match entry {
                        Entry::Inline(pair) => each(*bucket, copy.inline_key(pair)),
                        Entry::Slab(slab) => {
                            slabs += 1;
                            self.read_key(slab, |key| each(*bucket, key)).await;
                        }
                    }
                }
                let is_end_of_chain = copies.peek().is_none_or(|(following, _)| following != bucket);
                if is_end_of_chain {
                    next = bucket.0 + 1;
                    is_complete = keys.get() >= limit.keys || size.get() >= limit.size || slabs >= STEP_SLABS_MAX;
                    // A position within a chain is that of a cursor, which has fewer bits. If the step ended with this chain,
                    // the next one would begin there again.
                    is_complete &= !(begins_within && *bucket == first);
                    if is_complete {
                        break;
                    }
                }
            }
            buckets += next - begin;
        }
        WalkStep { next: None, buckets: buckets + summary_lines(summary_words), slabs }
    }

    /// Calls `each` with the key of a slab, unless it has expired.
    async fn read_key(&self, slab: SlabSlot, mut each: impl FnMut(&[u8])) {
        let first_line = slab.pointer.span(slab.class.size().min(LINE_SIZE));
        let key_of = |bytes: &[u8]| {
            let (key, expiry) = object::key(slab.class, bytes);
            if self.has_expired(expiry) {
                return None;
            }
            bytes.get(key.clone()).map_or(Some(key.end), |key| {
                each(key);
                None
            })
        };
        // A long key ends in a later line.
        if let Some(key_end) = self.memory().read(first_line, key_of).await {
            let key_of = |bytes: &[u8]| each(&bytes[object::key(slab.class, bytes).0]);
            self.memory().read(slab.pointer.span(key_end), key_of).await;
        }
    }

    /// Returns the first home bucket from `from` on whose group may have pairs. Counts the words of the summary that it
    /// skips.
    fn next_used(&self, from: u32, words: &mut usize) -> Option<u32> {
        let mut from = self.index.next(from)?;
        loop {
            let (next, count) = self.used.next(from);
            *words += count.saturating_sub(1);
            from = self.index.next(next?)?;
            if Some(from) == next {
                return next;
            }
        }
    }

    /// Copies the chains of these home buckets, and prefetches the slabs to which they point.
    pub(super) async fn read_group(&self, group: &mut Vec<(BucketIndex, Bucket)>, buckets: Range<u32>) {
        group.clear();
        for bucket in buckets.clone() {
            self.prefetch(BucketIndex(bucket));
        }
        for bucket in buckets.map(BucketIndex) {
            if self.is_stale(bucket) {
                group.push((bucket, Bucket::EMPTY));
                continue;
            }
            let mut at = Some(bucket.pointer());
            while let Some(pointer) = at {
                let copy = self.copy_bucket(pointer).await;
                at = copy.chain();
                if copy.has_slabs() {
                    self.prefetch_keys(&copy);
                }
                group.push((bucket, copy));
            }
        }
    }

    /// Returns a copy of a bucket, which was prefetched unless it is an overflow bucket.
    #[inline(always)]
    async fn copy_bucket(&self, at: Pointer) -> Bucket {
        match self.memory().resident() {
            Some(mut lines) => *Bucket::from_line_mut(lines.line(at)),
            None => Bucket::from_line(self.memory().read_line(at).await),
        }
    }

    /// Prefetches the slabs of a bucket up to the end of short keys.
    fn prefetch_keys(&self, bucket: &Bucket) {
        for (_, entry) in bucket.entries() {
            if let Entry::Slab(slab) = entry {
                self.memory().prefetch(slab.pointer.span(slab.class.size().min(LINE_SIZE)));
            }
        }
    }
}

/// Returns the lines that have this number of words.
fn summary_lines(words: usize) -> u32 {
    (words * size_of::<u64>() / LINE_SIZE) as u32
}
