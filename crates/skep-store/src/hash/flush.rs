//! Removes all keys at one moment, and clears the memory that they took later, in steps.
//!
//! ```text
//! home buckets  ├── cleared ──▶ next ─── stale, except those that a request has used since ───┤
//! slab memory   ├── free ─────▶ zone ─── free too, but not in the pools of the allocator ─────┤
//! ```
//!
//! 1. [`HashTable::flush`] sets the counts to zero, forgets the contents of the allocator, and marks all home buckets as
//!    *stale*: such a bucket counts as empty, with any content.
//! 2. Requests that are admitted first clear their home buckets if these are stale. A bitmap remembers which were cleared.
//! 3. A step clears [`STEP_BUCKETS`] home buckets in their order, except those of the bitmap, and returns the memory of
//!    [`STEP_ZONES`] zones to the allocator. After the last step, no bucket is stale.
//!
//! **Why it is right.** Every access to a chain begins with its home bucket, and every operation is admitted first. So no
//! operation reads a stale bucket, and no chain or slab from before the flush is reached. The allocator gives out memory of a
//! zone only after the flush has reached it, so no slab has two owners.
//!
//! **What it costs.** The flush itself takes the same time for every number of keys, besides two bitmaps: that of `used`, and a
//! bit for each home bucket, zeroed by the system when it is touched. Meanwhile, a request writes its home bucket once more.

use std::cell::{Cell, RefCell};

use super::bucket::Bucket;
use super::table::{BucketIndex, HashTable};
use crate::memory::Memory;

/// Home buckets that a step clears.
pub const STEP_BUCKETS: u32 = 256;
/// Zones of slab memory that a step returns to the allocator.
const STEP_ZONES: usize = 4;

const BITS: u32 = u64::BITS;

/// The progress of a flush.
#[derive(Debug, Default)]
pub(super) struct Flush {
    is_running: Cell<bool>,
    /// The next home bucket that a step clears.
    next: Cell<u32>,
    /// A bit for each home bucket: a request has cleared it.
    cleared: RefCell<Vec<u64>>,
}

impl Flush {
    /// Returns true if a home bucket counts as empty, with any content.
    fn is_stale(&self, bucket: BucketIndex) -> bool {
        let is_cleared = |word: &u64| word & 1 << (bucket.0 % BITS) != 0;
        self.is_running.get()
            && bucket.0 >= self.next.get()
            && !self.cleared.borrow().get((bucket.0 / BITS) as usize).is_some_and(is_cleared)
    }
}

impl<M: Memory> HashTable<M> {
    /// Removes all keys.
    pub(crate) fn flush(&self) {
        if self.pair_count() == 0 {
            return;
        }
        self.forget_pairs();
        self.flush.next.set(0);
        *self.flush.cleared.borrow_mut() = vec![0; self.bucket_count().div_ceil(BITS) as usize];
        self.flush.is_running.set(true);
    }

    /// Returns true while home buckets may be stale.
    #[inline]
    pub(crate) fn is_flushing(&self) -> bool {
        self.flush.is_running.get()
    }

    /// Returns true if a home bucket counts as empty, with any content.
    pub(super) fn is_stale(&self, bucket: BucketIndex) -> bool {
        self.flush.is_stale(bucket)
    }

    /// Clears a home bucket if it is stale, for a request that will use it.
    pub(crate) async fn clear_stale(&self, bucket: BucketIndex) {
        if self.flush.is_stale(bucket) {
            self.memory().write_line(bucket.pointer(), Bucket::EMPTY.as_line()).await;
            self.flush.cleared.borrow_mut()[(bucket.0 / BITS) as usize] |= 1 << (bucket.0 % BITS);
        }
    }

    /// Makes a step of a flush. Returns true if there is another one to make.
    pub(crate) async fn flush_step(&self) -> bool {
        if !self.is_flushing() {
            return false;
        }
        let next = self.flush.next.get();
        let end = self.bucket_count().min(next.saturating_add(STEP_BUCKETS));
        for bucket in (next..end).map(BucketIndex) {
            if self.flush.is_stale(bucket) {
                self.memory().write_line(bucket.pointer(), Bucket::EMPTY.as_line()).await;
            }
        }
        self.flush.next.set(end);
        let has_zones = self.return_zones(STEP_ZONES);
        if end == self.bucket_count() && !has_zones {
            self.flush.is_running.set(false);
            *self.flush.cleared.borrow_mut() = Vec::new();
        }
        self.is_flushing()
    }
}
