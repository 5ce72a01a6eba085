//! The page table (Honeycomb, sections 2 and 3.1): maps each LID to its latest frame. It has one word for each LID, so
//! one store replaces a node, and with it a subtree.

use super::super::sync::{AtomicU32, Ordering};

/// The words of a page table, which the caller's memory contains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageTable<'m>(&'m [AtomicU32]);

impl<'m> PageTable<'m> {
    /// Returns the table in these words.
    #[inline]
    pub(crate) fn new(words: &'m [AtomicU32]) -> Self {
        PageTable(words)
    }

    /// Loads the number of a node's latest frame. All that was written to the frame before it was set can be read.
    #[inline]
    pub(crate) fn frame(self, lid: usize) -> u32 {
        self.0[lid].load(Ordering::Acquire)
    }

    /// Sets the frame of a node and returns the frame before it. For the thread that holds the lock of that frame, or
    /// before the LID is published.
    #[inline]
    pub(crate) fn replace(self, lid: usize, frame: u32) -> u32 {
        let before = self.0[lid].load(Ordering::Relaxed);
        self.0[lid].store(frame, Ordering::Release);
        before
    }
}
