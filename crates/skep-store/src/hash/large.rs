//! Values that do not fit a slab together with their key, up to 1 MiB.
//!
//! ```text
//! root (with the key) ──▶ [index slabs ──▶ [index slabs ──▶]] data slabs
//!                          128 pointers      128 pointers     512 B of the value each, the last one of its own class
//! ```
//!
//! The size determines the height: no index for up to 8 data slabs (4 KiB), one level for up to 512 KiB, two for larger
//! values. So all addresses are known before the data is read, and data can be prefetched ahead. In a linked list of pieces,
//! each piece would cost a memory latency.
//!
//! Operations on large values run one at a time, outside the waves. All slabs of a new value are allocated before any is
//! written, and the value is complete before the index points to it.

use std::ops::Range;

use super::large_layout::{INDEX_POINTERS, PIECE_SIZE, ROOT_POINTERS_MAX, index_class, piece_class, piece_sizes};
use super::object::LargeRoot;
use super::slab::SlabClass;
use super::table::HashTable;
use crate::apply::NewValue;
use crate::memory::{Effect, Memory, Pointer};

/// Pieces prefetched ahead of the one being read.
const PIECES_AHEAD: usize = 4;

/// The slabs of a large value.
pub(crate) struct Pieces {
    data: Vec<Pointer>,
    /// Index slabs, each with its number of pointers.
    index: Vec<(Pointer, usize)>,
    value_size: usize,
}

impl Pieces {
    /// Returns the bytes of the index.
    pub(crate) fn index_size(&self) -> usize {
        self.index.iter().map(|(_, count)| count * size_of::<u32>()).sum()
    }

    /// Returns the number of slabs of the value and of its index.
    pub(crate) fn slab_count(&self) -> usize {
        self.data.len() + self.index.len()
    }
}

/// Slabs for a value that is to be written.
#[derive(Default)]
pub(super) struct LargeSlabs {
    by_class: [Vec<Pointer>; SlabClass::COUNT],
}

impl LargeSlabs {
    /// Adds a slab.
    pub(super) fn push(&mut self, class: SlabClass, pointer: Pointer) {
        self.by_class[class.index()].push(pointer);
    }

    /// Removes a slab, and returns it.
    ///
    /// # Panics
    /// If no slab of the class is left.
    pub(super) fn pop(&mut self, class: SlabClass) -> Pointer {
        self.by_class[class.index()].pop().expect("all slabs were taken before")
    }
}

impl<M: Memory> HashTable<M> {
    /// Writes a value to slabs that were allocated for it.
    pub(super) async fn write_large(&self, new: &NewValue<'_>, slabs: &mut LargeSlabs) -> LargeRoot {
        let value = new.bytes();
        let mut level = Vec::with_capacity(value.len().div_ceil(PIECE_SIZE));
        for (index, piece) in value.chunks(PIECE_SIZE).enumerate() {
            let pointer = slabs.pop(piece_class(piece.len()));
            let fill = |bytes: &mut [u8]| {
                bytes.copy_from_slice(piece);
                new.finish(index * PIECE_SIZE, bytes);
            };
            self.memory().write(pointer.span(piece.len()), fill).await;
            level.push(pointer);
        }
        while level.len() > ROOT_POINTERS_MAX {
            let mut above = Vec::new();
            for pointers in level.chunks(INDEX_POINTERS) {
                let pointer = slabs.pop(index_class(pointers.len()));
                let fill = |bytes: &mut [u8]| {
                    for (target, pointer) in bytes.chunks_exact_mut(4).zip(pointers) {
                        target.copy_from_slice(&pointer.unit().to_le_bytes());
                    }
                };
                self.memory().write(pointer.span(pointers.len() * 4), fill).await;
                above.push(pointer);
            }
            level = above;
        }
        let pointers = std::array::from_fn(|i| level.get(i).copied());
        LargeRoot { value_size: value.len() as u32, pointers }
    }

    /// Finds all slabs of a large value.
    pub(crate) async fn pieces(&self, root: &LargeRoot) -> Pieces {
        let value_size = root.value_size as usize;
        // Counts of the levels from the data up to the one that the root points to.
        let mut counts = vec![value_size.div_ceil(PIECE_SIZE)];
        while counts[counts.len() - 1] > ROOT_POINTERS_MAX {
            counts.push(counts[counts.len() - 1].div_ceil(INDEX_POINTERS));
        }
        counts.pop();
        let mut level: Vec<Pointer> = root.pointers().collect();
        let mut index = Vec::new();
        for below_count in counts.into_iter().rev() {
            let mut below = Vec::with_capacity(below_count);
            for pointer in level {
                let count = (below_count - below.len()).min(INDEX_POINTERS);
                let read = |bytes: &[u8]| {
                    let words =
                        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
                    below.extend(words.map(Pointer::new));
                };
                self.memory().read(pointer.span(count * 4), read).await;
                index.push((pointer, count));
            }
            level = below;
        }
        Pieces { data: level, index, value_size }
    }

    /// Calls `f` with the pieces that have a part of a range of the value, in order, each with its offset.
    pub(crate) async fn read_pieces(&self, pieces: &Pieces, range: Range<usize>, mut f: impl FnMut(usize, &[u8])) {
        let (first, end) = (range.start / PIECE_SIZE, range.end.div_ceil(PIECE_SIZE));
        for (index, size) in piece_sizes(pieces.value_size).enumerate().take(end).skip(first) {
            if index + PIECES_AHEAD < end {
                self.prefetch_piece(pieces, index + PIECES_AHEAD);
            }
            let span = pieces.data[index].span(size);
            self.memory().read(span, |bytes| f(index * PIECE_SIZE, bytes)).await;
        }
    }

    /// Calls `f` with the pieces of a value in order, each with its offset. It may change them.
    pub(crate) async fn update_pieces(&self, pieces: &Pieces, mut f: impl FnMut(usize, &mut [u8])) {
        for (index, size) in piece_sizes(pieces.value_size).enumerate() {
            self.prefetch_piece(pieces, index + PIECES_AHEAD);
            let change = |bytes: &mut [u8]| {
                f(index * PIECE_SIZE, bytes);
                (Effect::Changed, ())
            };
            self.memory().update(pieces.data[index].span(size), change).await;
        }
    }

    /// Frees all slabs of a large value.
    pub(crate) fn release_pieces(&self, pieces: &Pieces) {
        for (pointer, size) in pieces.data.iter().zip(piece_sizes(pieces.value_size)) {
            self.release(piece_class(size), *pointer);
        }
        for (pointer, count) in &pieces.index {
            self.release(index_class(*count), *pointer);
        }
    }

    fn prefetch_piece(&self, pieces: &Pieces, index: usize) {
        if let Some(pointer) = pieces.data.get(index) {
            self.memory().prefetch(pointer.span(PIECE_SIZE.min(pieces.value_size - index * PIECE_SIZE)));
        }
    }
}
