//! The part of the budget that is lent only to small requests, so that they do not wait after large ones.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The part of the budget for small requests.
#[derive(Debug)]
pub(super) struct SmallPart {
    /// Bytes that are not lent.
    free: AtomicUsize,
    /// Small requests wait in the queue. They come before those that begin.
    has_waiting: AtomicBool,
}

impl SmallPart {
    pub(super) fn new(bytes: usize) -> SmallPart {
        SmallPart { free: AtomicUsize::new(bytes), has_waiting: AtomicBool::new(false) }
    }

    /// Returns the bytes that are not lent.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    /// Records if small requests wait in the queue.
    pub(super) fn set_waiting(&self, has_waiting: bool) {
        self.has_waiting.store(has_waiting, Ordering::Relaxed);
    }

    /// Takes bytes for a request that begins. Returns true if it took them.
    pub(super) fn enter(&self, bytes: usize) -> bool {
        !self.has_waiting.load(Ordering::Relaxed) && self.take(bytes)
    }

    /// Takes bytes. Returns true if it took them.
    pub(super) fn take(&self, bytes: usize) -> bool {
        // Relaxed: the counter protects no other memory.
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(bytes)).is_ok()
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.free.fetch_add(bytes, Ordering::Relaxed);
    }
}
