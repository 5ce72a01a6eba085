//! Where the node of a logical id is (Honeycomb, sections 2 and 3.1): one word for each, so that a node, and with it a
//! subtree, is replaced by one store.

use super::super::sync::{AtomicU32, Ordering};

/// The words of a table that lies in memory of another's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageTable<'m>(&'m [AtomicU32]);

impl<'m> PageTable<'m> {
    /// A table in these words.
    #[inline]
    pub(crate) fn new(words: &'m [AtomicU32]) -> Self {
        PageTable(words)
    }

    /// Number of the latest frame of a node. What was written to it before it was set here can be read.
    #[inline]
    pub(crate) fn frame(self, lid: usize) -> u32 {
        self.0[lid].load(Ordering::Acquire)
    }

    /// Sets the frame of a node, by the holder of the lock of the frame before, or before anyone knows the id. Answers the
    /// frame before.
    #[inline]
    pub(crate) fn replace(self, lid: usize, frame: u32) -> u32 {
        let before = self.0[lid].load(Ordering::Relaxed);
        self.0[lid].store(frame, Ordering::Release);
        before
    }
}
