//! The observer of the lines that the ordered store reads: none, so that it costs nothing. [`counted`](crate::counted) has
//! one.

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
}
