//! The requests of an accelerator as one participant of the epochs (Honeycomb, sections 3.2 and 4.1), for any number of them.
//!
//! ```text
//! host   retires ─▶ asks, number 7 ─ ─ ─┐                          frames of ask 7 are free ◀─ passes 7 ─┐
//! card                                  └▶ notes S_new for ask 7 … the oldest request in flight is newer ┘
//! ```
//!
//! 1. A writer that tags retired memory asks for the newest request. Asks have numbers, in their order.
//! 2. The ask arrives at the accelerator after the changes of the page table and the read version that were sent before it.
//!    The accelerator notes its newest request.
//! 3. When all requests up to that one have ended, the accelerator passes the ask. Memory is free when the ask of its tag was
//!    passed.
//!
//! A request that begins after the ask has arrived finds the page table and the read version of a time after the memory was
//! retired. The epoch of a thread needs no such message, since it shares the memory of the writer.

use super::super::sync::{Ordering, fence};
use super::asks::Asks;
use super::epoch::Epochs;

/// An accelerator whose requests in flight keep old versions. Dropping it ends all of them.
#[derive(Debug)]
pub struct Window<'s> {
    epochs: &'s Epochs,
}

impl<'s> Window<'s> {
    /// Opens the window. Returns `None` if another is open.
    pub(crate) fn open(epochs: &'s Epochs) -> Option<Self> {
        let asks = &epochs.asks;
        let now = asks.asked.load(Ordering::Acquire);
        let is_opened = asks.passed.compare_exchange(Asks::CLOSED, now, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        // A writer that has not seen it has retired its memory before a request can begin.
        fence(Ordering::SeqCst);
        // Not `then_some`: a window that is made in vain ends the other one when it is dropped.
        is_opened.then(|| Window { epochs })
    }

    /// Returns the number of the last ask.
    pub fn asked(&self) -> u64 {
        self.epochs.asks.asked.load(Ordering::Acquire)
    }

    /// Passes all asks up to this one. The requests that were in flight when it arrived have ended.
    pub fn pass(&self, ask: u64) {
        self.epochs.asks.passed.fetch_max(ask.min(self.asked()), Ordering::AcqRel);
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.epochs.asks.passed.store(Asks::CLOSED, Ordering::Release);
    }
}
