//! The observer of the ordered store's reads and writes: none, so that it costs nothing. [`counted`](crate::counted) has one.

/// Observes nothing.
#[derive(Debug)]
pub(crate) struct Lines;

impl Lines {
    /// Returns the observer of a store that is not observed.
    pub(crate) fn none() -> Self {
        Lines
    }

    /// Is called for each read of bytes of the region.
    #[inline(always)]
    pub(crate) fn touch(&self, _offset: usize, _size: usize) {}

    /// Is called for each read of the page table.
    #[inline(always)]
    pub(crate) fn enter_node(&self, _lid: usize) {}

    /// Is called before each change of the page table.
    #[inline(always)]
    pub(crate) fn before_publish(&self) {}

    /// Is called when a writer has changed bytes of the region that readers may read.
    #[inline(always)]
    pub(crate) fn wrote(&self, _offset: usize, _bytes: impl FnOnce() -> Vec<u8>) {}

    /// Is called for each change of the page table, after the bytes of the frame.
    #[inline(always)]
    pub(crate) fn set_entry(&self, _lid: usize, _frame: u32) {}

    /// Is called when a writer has published its version, with the read version.
    #[inline(always)]
    pub(crate) fn set_read_version(&self, _version: impl FnOnce() -> u64) {}
}
