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
//! Operations on large values run one at a time, outside the waves; those on values without an index, which keep their size,
//! in a stage of their own (`resident_large`). All slabs of a new value are allocated before any is
//! written, and the value is complete before the index points to it.
//!
//! An operation on a part of a value reads only the lines of the index that lead to the part, and only the lines of the data
//! that have it. If the value keeps its size, it is written in place. If it grows, each level of it grows at its end:
//!
//! ```text
//! before  ├── full slabs ──┤ last slab ├                       the full slabs stay
//! after   ├── full slabs ──┤ last slab grown ├─ new slabs ─┤   in place if its class stays, otherwise a copy in a new slab
//! ```
//!
//! The root is written last, with the new size. The slabs of copies are freed after that.

use std::ops::{ControlFlow, Range};

use super::large_layout::{
    INDEX_POINTERS, LevelGrowth, PIECE_SIZE, POINTER_SIZE, ROOT_POINTERS_MAX, growths, index_class, level_sizes,
    piece_class, piece_sizes,
};
use super::object::LargeRoot;
use super::slab::SlabClass;
use super::table::HashTable;
use crate::apply::NewValue;
use crate::memory::{Effect, LINE_SIZE, Memory, Pointer, Span};

/// Pieces prefetched ahead of the one being read.
const PIECES_AHEAD: usize = 8;

/// The slabs that have a part of a large value.
pub(crate) struct Pieces {
    /// The number of the first data slab.
    first: usize,
    data: Vec<Pointer>,
    /// Index slabs, each with its number of pointers.
    index: Vec<(Pointer, usize)>,
    /// Bytes of them that were read.
    index_size: usize,
    value_size: usize,
}

impl Pieces {
    /// Returns the bytes of the index that were read.
    pub(crate) fn index_size(&self) -> usize {
        self.index_size
    }

    /// Returns the span of a data slab that has a part of a range of the value, and its offset in the value.
    fn span(&self, index: usize, range: &Range<usize>) -> (usize, Span) {
        piece_span(self.data[index - self.first], index, self.value_size, range)
    }

    /// Returns the number of slabs of the value and of its index.
    pub(crate) fn slab_count(&self) -> usize {
        self.data.len() + self.index.len()
    }
}

/// Returns the span of the data slab with this index that has a part of a range of the value, from a whole line on, and the
/// offset of the span in the value.
#[inline]
pub(super) fn piece_span(slab: Pointer, index: usize, value_size: usize, range: &Range<usize>) -> (usize, Span) {
    let start = index * PIECE_SIZE;
    let skipped = range.start.saturating_sub(start) / LINE_SIZE * LINE_SIZE;
    let end = range.end.min(value_size).min(start + PIECE_SIZE) - start;
    (start + skipped, slab.plus(skipped).span(end - skipped))
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
        self.pieces_of(root, 0..root.value_size as usize).await
    }

    /// Finds the slabs that have a part of a range of a large value.
    pub(crate) async fn pieces_of(&self, root: &LargeRoot, range: Range<usize>) -> Pieces {
        let value_size = root.value_size as usize;
        // For each level from the data up to the one that the root points to: the number of its slabs, and those that are
        // needed.
        let needed = range.start / PIECE_SIZE..range.end.div_ceil(PIECE_SIZE);
        let mut levels = vec![(value_size.div_ceil(PIECE_SIZE), needed)];
        while let Some((count, needed)) = levels.last().filter(|(count, _)| *count > ROOT_POINTERS_MAX).cloned() {
            let above = needed.start / INDEX_POINTERS..needed.end.div_ceil(INDEX_POINTERS);
            levels.push((count.div_ceil(INDEX_POINTERS), above));
        }
        let (_, needed) = levels.pop().expect("there is a level");
        let mut level: Vec<Pointer> = root.pointers().skip(needed.start).take(needed.len()).collect();
        let (mut first, mut index, mut index_size) = (needed.start, Vec::new(), 0);
        for (count, needed) in levels.into_iter().rev() {
            let mut below = Vec::with_capacity(needed.len());
            for (number, pointer) in (first * INDEX_POINTERS..).step_by(INDEX_POINTERS).zip(level) {
                let end = count.min(number + INDEX_POINTERS);
                let (from, to) = (needed.start.max(number) - number, needed.end.min(end) - number);
                let skipped = from * POINTER_SIZE / LINE_SIZE * LINE_SIZE;
                let span = pointer.plus(skipped).span(to * POINTER_SIZE - skipped);
                let read = |bytes: &[u8]| {
                    let words = bytes[from * POINTER_SIZE - skipped..].as_chunks::<POINTER_SIZE>().0;
                    below.extend(words.iter().map(|word| Pointer::new(u32::from_le_bytes(*word))));
                };
                self.memory().read(span, read).await;
                index.push((pointer, end - number));
                index_size += span.size();
            }
            (first, level) = (needed.start, below);
        }
        Pieces { first, data: level, index, index_size, value_size }
    }

    /// Calls `f` with the lines that have a part of a range of the value, in order, each run with its offset.
    pub(crate) async fn read_pieces(&self, pieces: &Pieces, range: Range<usize>, mut f: impl FnMut(usize, &[u8])) {
        let f = |offset: usize, piece: &[u8]| {
            f(offset, piece);
            ControlFlow::Continue(())
        };
        self.read_pieces_until(pieces, range, f).await;
    }

    /// Does the same until `f` breaks.
    pub(crate) async fn read_pieces_until(
        &self,
        pieces: &Pieces,
        range: Range<usize>,
        mut f: impl FnMut(usize, &[u8]) -> ControlFlow<()>,
    ) {
        for index in range.start / PIECE_SIZE..range.end.div_ceil(PIECE_SIZE) {
            self.prefetch_piece(pieces, index + PIECES_AHEAD);
            let (offset, span) = pieces.span(index, &range);
            if self.memory().read(span, |bytes| f(offset, bytes)).await.is_break() {
                break;
            }
        }
    }

    /// Calls `f` with the lines that have a part of a range of the value, in order, each run with its offset. It may change
    /// them.
    pub(crate) async fn update_pieces(
        &self,
        pieces: &Pieces,
        range: Range<usize>,
        mut f: impl FnMut(usize, &mut [u8]),
    ) {
        for index in range.start / PIECE_SIZE..range.end.div_ceil(PIECE_SIZE) {
            self.prefetch_piece(pieces, index + PIECES_AHEAD);
            let (offset, span) = pieces.span(index, &range);
            let change = |bytes: &mut [u8]| {
                f(offset, bytes);
                (Effect::Changed, ())
            };
            self.memory().update(span, change).await;
        }
    }

    /// Lets each level of a large value grow by zeros, up to a value of `size` bytes, in slabs that were allocated for it.
    /// Returns the root that it then has, and the slabs that are to be freed after this root is written.
    pub(super) async fn write_growth(
        &self,
        root: &LargeRoot,
        size: usize,
        slabs: &mut LargeSlabs,
    ) -> (LargeRoot, Vec<(SlabClass, Pointer)>) {
        let value_size = root.value_size as usize;
        let pieces = self.pieces_of(root, value_size - 1..value_size).await;
        // The last slab of each level, from the data on.
        let mut last = pieces.data.iter().chain(pieces.index.iter().rev().map(|(pointer, _)| pointer));
        let mut replaced = Vec::new();
        // The bytes of the next level from a position on. Those of the data are zeros.
        let (mut changed, mut bytes) = (value_size, Vec::<u8>::new());
        let level_count = level_sizes(value_size).count();
        for (level, growth) in growths(value_size, size).enumerate() {
            let fill = |offset: usize, target: &mut [u8]| match level {
                0 => target.fill(0),
                _ => target.copy_from_slice(&bytes[offset - changed..][..target.len()]),
            };
            let grown = self.grow_level(growth, last.next().copied(), changed, fill, slabs, &mut replaced).await;
            let mut kept = growth.last().map_or(0, |last| last.start / PIECE_SIZE);
            let mut pointers: Vec<u8> = Vec::new();
            if level + 1 == level_count {
                // The root has pointed to this level.
                root.pointers().take(kept).for_each(|pointer| pointers.extend(pointer.unit().to_le_bytes()));
                kept = 0;
            }
            grown.iter().for_each(|pointer| pointers.extend(pointer.unit().to_le_bytes()));
            (changed, bytes) = (kept * POINTER_SIZE, pointers);
        }
        let pointers = bytes.as_chunks::<POINTER_SIZE>().0;
        let pointer = |word: &[u8; POINTER_SIZE]| Pointer::new(u32::from_le_bytes(*word));
        let pointers = std::array::from_fn(|index| pointers.get(index).map(pointer));
        (LargeRoot { value_size: size as u32, pointers }, replaced)
    }

    /// Lets a level grow; `last` is its last slab before. `fill` sets its bytes from `changed` on, which is in that slab or
    /// at its end. Returns the slabs from that one on.
    async fn grow_level(
        &self,
        growth: LevelGrowth,
        last: Option<Pointer>,
        changed: usize,
        fill: impl Fn(usize, &mut [u8]),
        slabs: &mut LargeSlabs,
        replaced: &mut Vec<(SlabClass, Pointer)>,
    ) -> Vec<Pointer> {
        let (mut grown, mut next) = (Vec::new(), 0);
        if let (Some(pointer), Some(range)) = (last, growth.last()) {
            let (size, within) = (growth.last_size_after(&range), changed - range.start);
            next = range.start + PIECE_SIZE;
            if piece_class(size) == piece_class(range.len()) {
                let skipped = within / LINE_SIZE * LINE_SIZE;
                let change = |bytes: &mut [u8]| {
                    fill(changed, &mut bytes[within - skipped..]);
                    (Effect::Changed, ())
                };
                if within < size {
                    self.memory().update(pointer.plus(skipped).span(size - skipped), change).await;
                }
                grown.push(pointer);
            } else {
                let mut content = [0; PIECE_SIZE];
                self.memory()
                    .read(pointer.span(range.len()), |bytes| content[..range.len()].copy_from_slice(bytes))
                    .await;
                fill(changed, &mut content[within..size]);
                let new = slabs.pop(piece_class(size));
                self.memory().write(new.span(size), |bytes| bytes.copy_from_slice(&content[..size])).await;
                replaced.push((piece_class(range.len()), pointer));
                grown.push(new);
            }
        }
        for offset in (next..growth.after).step_by(PIECE_SIZE) {
            let size = (growth.after - offset).min(PIECE_SIZE);
            let pointer = slabs.pop(piece_class(size));
            self.memory().write(pointer.span(size), |bytes| fill(offset, bytes)).await;
            grown.push(pointer);
        }
        grown
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
        if let Some(pointer) = pieces.data.get(index - pieces.first) {
            self.memory().prefetch_bulk(pointer.span(PIECE_SIZE.min(pieces.value_size - index * PIECE_SIZE)));
        }
    }
}
