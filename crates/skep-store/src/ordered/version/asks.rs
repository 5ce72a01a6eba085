//! The asks of writers for the newest request of an accelerator, as [`super::window`] explains them: two words that the
//! epochs have.

use super::super::sync::{AtomicU64, Ordering};

/// The asks of writers, and how many of them were passed.
#[derive(Debug)]
pub(crate) struct Asks {
    pub(super) asked: AtomicU64,
    /// [`Asks::CLOSED`] without an accelerator.
    pub(super) passed: AtomicU64,
}

impl Asks {
    /// The word while there is no accelerator.
    pub(super) const CLOSED: u64 = u64::MAX;

    pub(crate) fn new() -> Self {
        Asks { asked: AtomicU64::new(0), passed: AtomicU64::new(Asks::CLOSED) }
    }

    /// Asks, if there is an accelerator. Returns the number of the ask. The caller has passed a SeqCst fence.
    pub(crate) fn ask(&self) -> Option<u64> {
        let is_open = self.passed.load(Ordering::Acquire) != Asks::CLOSED;
        is_open.then(|| self.asked.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Returns true if an ask was passed.
    pub(crate) fn is_past(&self, ask: u64) -> bool {
        self.passed.load(Ordering::Acquire) >= ask
    }
}
