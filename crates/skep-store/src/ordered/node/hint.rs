//! Child hints: where the frame of a child was when somebody last came by, beside its LID in the parent.
//!
//! ```text
//!           ┌ hint ─▶ first lines of a frame, prefetched ┐
//! parent ───┤                                           ├─▶ the latest frame
//!           └ LID ──▶ entry of the page table ──────────┘
//! ```
//!
//! A hint decides nothing. The page table alone says which frame is the latest; the hint lets that frame travel while the
//! entry does. So a hint may say anything, it is read and written in no order, and whoever finds it wrong mends it: a
//! child has another frame after a merge, once in many writes.

use super::super::memory::number::FrameNumber;
use super::super::sync::{AtomicU32, Ordering};

/// Bytes of a hint.
pub(crate) const HINT_SIZE: usize = size_of::<AtomicU32>();
/// In the place of a hint that nobody can give yet.
pub(crate) const NO_HINT: u32 = 0;

/// The hint of a child.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hint<'g>(&'g AtomicU32);

impl<'g> Hint<'g> {
    #[inline(always)]
    pub(crate) fn new(word: &'g AtomicU32) -> Self {
        Hint(word)
    }

    /// The number of the frame that it names, if it is one.
    #[inline(always)]
    pub(crate) fn guess(self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Makes it right.
    #[inline(always)]
    pub(crate) fn mend(self, frame: FrameNumber) {
        // A line that is only read stays in the caches of all.
        if self.guess() != frame.bits() {
            self.0.store(frame.bits(), Ordering::Relaxed);
        }
    }
}
