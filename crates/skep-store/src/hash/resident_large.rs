//! The slabs of a large value whose root points to its data, without an index: up to 4 KiB.

use std::ops::Range;

use super::large::piece_span;
use super::large_layout::{PIECE_SIZE, ROOT_POINTERS_MAX};
use super::object::LargeRoot;
use super::table::HashTable;
use crate::memory::{Memory, Span};

impl LargeRoot {
    /// Returns true if the root points to the data, and not to an index.
    pub(crate) fn has_no_index(&self) -> bool {
        self.value_size as usize <= ROOT_POINTERS_MAX * PIECE_SIZE
    }

    /// Returns the runs of lines that have a part of a range of the value, in order, each with its offset in the value. The
    /// value has no index.
    #[inline]
    pub(crate) fn data_spans(&self, range: Range<usize>) -> impl Iterator<Item = (usize, Span)> + '_ {
        let pieces = range.start / PIECE_SIZE..range.end.div_ceil(PIECE_SIZE);
        let pointers = self.pointers().enumerate().take(pieces.end).skip(pieces.start);
        pointers.map(move |(index, pointer)| piece_span(pointer, index, self.value_size as usize, &range))
    }
}

impl<M: Memory> HashTable<M> {
    /// Prefetches the data of a large value without an index.
    #[inline]
    pub(crate) fn prefetch_data(&self, root: &LargeRoot) {
        for (_, span) in root.data_spans(0..root.value_size as usize) {
            self.memory().prefetch_bulk(span);
        }
    }
}
