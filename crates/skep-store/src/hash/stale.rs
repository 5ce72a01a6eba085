//! The home buckets that are stale after a flush: each counts as empty, with any content, until it is cleared.

use std::cell::{Cell, RefCell};

use super::bucket_index::BucketIndex;

const BITS: u32 = u64::BITS;

/// The home buckets that are stale, and the progress of the flush.
#[derive(Debug, Default)]
pub(super) struct Stale {
    is_running: Cell<bool>,
    /// The next home bucket that a step clears.
    next: Cell<u32>,
    /// A bit for each home bucket: a request has cleared it.
    cleared: RefCell<Vec<u64>>,
}

impl Stale {
    /// Makes all home buckets stale.
    pub(super) fn begin(&self, bucket_count: u32) {
        self.next.set(0);
        *self.cleared.borrow_mut() = vec![0; bucket_count.div_ceil(BITS) as usize];
        self.is_running.set(true);
    }

    /// Ends the flush: no home bucket is stale.
    pub(super) fn end(&self) {
        self.is_running.set(false);
        *self.cleared.borrow_mut() = Vec::new();
    }

    /// Returns true while home buckets may be stale.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.is_running.get()
    }

    /// Returns true if a home bucket counts as empty, with any content.
    pub(super) fn contains(&self, bucket: BucketIndex) -> bool {
        let is_cleared = |word: &u64| word & 1 << (bucket.0 % BITS) != 0;
        self.is_running.get()
            && bucket.0 >= self.next.get()
            && !self.cleared.borrow().get((bucket.0 / BITS) as usize).is_some_and(is_cleared)
    }

    /// Notes that a request has cleared a home bucket.
    pub(super) fn note_cleared(&self, bucket: BucketIndex) {
        self.cleared.borrow_mut()[(bucket.0 / BITS) as usize] |= 1 << (bucket.0 % BITS);
    }

    /// Returns the next home bucket that a step clears.
    pub(super) fn next(&self) -> u32 {
        self.next.get()
    }

    /// Notes that the home buckets below this one are cleared.
    pub(super) fn set_next(&self, next: u32) {
        self.next.set(next);
    }
}
