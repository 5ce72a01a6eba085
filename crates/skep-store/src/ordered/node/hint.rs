//! Child hints: a child's frame number, cached next to its LID in the parent.
//!
//! ```text
//!           ┌ hint ─▶ first lines of a frame, prefetched ┐
//! parent ───┤                                           ├─▶ the latest frame
//!           └ LID ──▶ entry of the page table ──────────┘
//! ```
//!
//! A hint is only used to prefetch: the frame is loaded at the same time as the page table's entry, which names the
//! latest frame. So a hint may have any value, and its accesses need no ordering. A reader that finds a stale hint
//! repairs it. A hint becomes stale when a merge gives the child another frame, which is once in many writes.

use super::super::memory::number::FrameNumber;
use super::super::sync::{AtomicU32, Ordering};

/// Bytes of a hint.
pub(crate) const HINT_SIZE: usize = size_of::<AtomicU32>();
/// A hint that is not known yet.
pub(crate) const NO_HINT: u32 = 0;

/// The hint of a child.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hint<'g>(&'g AtomicU32);

impl<'g> Hint<'g> {
    #[inline(always)]
    pub(crate) fn new(word: &'g AtomicU32) -> Self {
        Hint(word)
    }

    /// Returns the number of the frame that it names. It may be stale.
    #[inline(always)]
    pub(crate) fn guess(self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Stores the latest frame.
    #[inline(always)]
    pub(crate) fn repair(self, frame: FrameNumber) {
        // A line that is only read stays in the caches of all cores.
        if self.guess() != frame.bits() {
            self.0.store(frame.bits(), Ordering::Relaxed);
        }
    }
}
