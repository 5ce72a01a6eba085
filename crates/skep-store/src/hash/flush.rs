//! Removes all keys at one moment, and clears the memory that they took later, in steps.
//!
//! ```text
//! home buckets  ├── cleared ──▶ next ─── stale, except those that a request has used since ───┤
//! slab memory   ├── free ─────▶ zone ─── free too, but not in the pools of the allocator ─────┤
//! ```
//!
//! 1. [`HashTable::flush`] sets the counts to zero, forgets the contents of the allocator, makes the index as small as at the
//!    start, and marks all home buckets as *stale*: such a bucket counts as empty, with any content.
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

use super::bucket::Bucket;
use super::bucket_index::BucketIndex;
use super::table::HashTable;
use crate::memory::Memory;

/// Home buckets that a step clears.
pub const STEP_BUCKETS: u32 = 256;
/// Zones of slab memory that a step returns to the allocator.
const STEP_ZONES: usize = 4;

impl<M: Memory> HashTable<M> {
    /// Removes all keys.
    pub(crate) fn flush(&self) {
        if self.pair_count() == 0 && self.index.count() == self.growth.first_count() {
            return;
        }
        self.forget_pairs();
        self.index.reset(self.growth.first_count());
        self.growth.consider_at(self.growth.first_count());
        self.stale.begin(self.bucket_count());
    }

    /// Returns true while home buckets may be stale.
    #[inline]
    pub(crate) fn is_flushing(&self) -> bool {
        self.stale.is_running()
    }

    /// Returns true if a home bucket counts as empty, with any content.
    pub(super) fn is_stale(&self, bucket: BucketIndex) -> bool {
        self.stale.contains(bucket)
    }

    /// Clears a home bucket if it is stale, for a request that will use it.
    pub(crate) async fn clear_stale(&self, bucket: BucketIndex) {
        if self.stale.contains(bucket) {
            self.memory().write_line(bucket.pointer(), Bucket::EMPTY.as_line()).await;
            self.stale.note_cleared(bucket);
        }
    }

    /// Makes a step of a flush. Returns true if there is another one to make.
    pub(crate) async fn flush_step(&self) -> bool {
        if !self.is_flushing() {
            return false;
        }
        let next = self.stale.next();
        let end = self.bucket_count().min(next.saturating_add(STEP_BUCKETS));
        for bucket in (next..end).map(BucketIndex) {
            if self.stale.contains(bucket) {
                self.memory().write_line(bucket.pointer(), Bucket::EMPTY.as_line()).await;
            }
        }
        self.stale.set_next(end);
        let has_zones = self.return_zones(STEP_ZONES);
        if end == self.bucket_count() && !has_zones {
            self.stale.end();
        }
        self.is_flushing()
    }
}
