//! The shortcut block: finds the segment of a key (Honeycomb, section 3.1).
//!
//! ```text
//! offset  64                        104                  125     126          128                          at most 512
//!         ├ 20 key heads of 2 bytes ┼ 21 segment offsets ┼ count ┼ encoding 2 ┼ ends, 2 bytes each ┼ boundary keys ┤
//! ```
//!
//! A node with `count` boundary keys has `count + 1` segments. Boundary key `b` is the first key of segment `b + 1` and
//! is stored only in this block. Segment offsets count 32 bytes. Key heads, offsets and count fit line 1, so a search
//! reads boundary keys only on a tie. The `encoding` makes key heads of keys; its offset, and the outer bound, are in
//! line 0. Unused key heads are the greatest number. A node may have no boundary keys, if its keys are long.

use std::ops::Range;

use super::super::key_head::encoding::{Encoding, OuterBound};
use super::super::key_head::lanes::{KEY_HEAD_LANES, LANES_SIZE, below, below_of_two};
use super::super::key_head::{KEY_HEAD_COUNT_MAX, KEY_HEAD_SIZE, Side, Target, Tie, count_untied};
use super::frame::{Frame, Node};
use crate::memory::LINE_SIZE;
use crate::short;

/// The offset of line 1.
pub(crate) const INDEX_START: usize = LINE_SIZE;
/// Most segments of a node.
pub(crate) const SEGMENT_COUNT_MAX: usize = KEY_HEAD_COUNT_MAX + 1;
/// Bytes that segment offsets count.
pub(crate) const SEGMENT_ALIGNMENT: usize = 32;
/// The offset of the ends of the boundary keys.
pub(crate) const BOUNDARIES_START: usize = 2 * LINE_SIZE;
/// Most bytes of boundary keys and their ends: header and shortcut block have 512 bytes.
pub(crate) const BOUNDARIES_SIZE_MAX: usize = 512 - BOUNDARIES_START;
/// Bytes of the end of a boundary key.
pub(crate) const END_SIZE: usize = 2;

const OFFSETS_START: usize = KEY_HEAD_COUNT_MAX * KEY_HEAD_SIZE;
const COUNT_OFFSET: usize = OFFSETS_START + SEGMENT_COUNT_MAX;
const ENCODING_OFFSET: usize = COUNT_OFFSET + 1;
const _: () = assert!(ENCODING_OFFSET + 2 == LINE_SIZE);

/// A segment that a search has found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentPosition {
    /// Its offset in the frame.
    pub(crate) start: u16,
    pub(crate) segment: u16,
    /// The key head of the target.
    pub(crate) key_head: i16,
}

/// The shortcut block of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortcuts<'g> {
    node: Node<'g>,
    index: &'g [u8; LINE_SIZE],
}

impl<'g> Shortcuts<'g> {
    /// Reads line 1.
    #[inline]
    pub(crate) fn open(node: Node<'g>) -> Self {
        let index = node.read(INDEX_START, LINE_SIZE).first_chunk().expect("a line was read");
        Shortcuts { node, index }
    }

    #[inline]
    pub(crate) fn segment_count(self) -> usize {
        usize::from(self.index[COUNT_OFFSET]) + 1
    }

    /// Returns the key-head encoding.
    #[inline(always)]
    pub(crate) fn encoding(self) -> Encoding {
        let bits = u16::from_le_bytes([self.index[ENCODING_OFFSET], self.index[ENCODING_OFFSET + 1]]);
        Encoding { bits, offset: self.node.key_head_offset() }
    }

    /// Returns the offset of a segment in its frame.
    #[inline]
    pub(crate) fn segment_start(self, segment: usize) -> usize {
        debug_assert!(segment < self.segment_count());
        usize::from(self.index[OFFSETS_START + segment]) * SEGMENT_ALIGNMENT
    }

    /// Returns the offset at which it ends, rounded up to the alignment.
    #[inline]
    pub(crate) fn segment_end(self, segment: usize) -> usize {
        if segment + 1 < self.segment_count() { self.segment_start(segment + 1) } else { self.node.log_start() }
    }

    /// Returns the first key of a segment. Returns `None` for the first segment, whose first key is not in this block.
    #[inline]
    pub(crate) fn first_key(self, segment: usize) -> Option<&'g [u8]> {
        Some(self.boundary_key(segment.checked_sub(1)?))
    }

    /// Finds the segment of the target.
    #[inline(always)]
    pub(crate) fn find(self, target: Target<'_>) -> SegmentPosition {
        let (encoding, (side, key)) = (self.encoding(), target.parts());
        let own = encoding.key_head_of(target);
        let (segment, own) = match self.count_left(own) {
            Ok(segment) if !encoding.has_outer_bound() => (segment, own),
            _ => search(self.node.frame(), side, key),
        };
        self.position(segment, own)
    }

    /// Finds the segment of the target in a leaf. Fails on a tie, which needs a boundary key.
    #[inline(always)]
    pub(crate) fn find_untied(self, target: Target<'_>) -> Result<SegmentPosition, Tie> {
        let own = self.encoding().key_head_of(target);
        Ok(self.position(self.count_left(own)?, own))
    }

    /// Returns the key head of a target in any node.
    fn key_head_of(self, target: Target<'_>) -> i16 {
        let (Some(key), encoding) = (target.key(), self.encoding()) else { return i16::MAX };
        if encoding.has_outer_bound() {
            OuterBound::of_words(encoding, self.node.frame().outer_bound_words()).key_head(key)
        } else {
            encoding.key_head(key)
        }
    }

    #[inline(always)]
    fn position(self, segment: usize, key_head: i16) -> SegmentPosition {
        SegmentPosition { start: self.segment_start(segment) as u16, segment: segment as u16, key_head }
    }

    #[inline(always)]
    fn count_left(self, own: i16) -> Result<usize, Tie> {
        const _: () = assert!(KEY_HEAD_COUNT_MAX <= 3 * KEY_HEAD_LANES && 3 * LANES_SIZE <= LINE_SIZE);
        let lanes = self.index.as_chunks::<LANES_SIZE>().0;
        let below = below_of_two(&lanes[0], &lanes[1], own) | below(&lanes[2], own) << (2 * KEY_HEAD_LANES);
        count_untied(below, self.segment_count() - 1, own, |index| self.key_head(index))
    }

    /// Returns the key head of a boundary key. For an index beyond the last one the result is arbitrary.
    #[inline(always)]
    pub(crate) fn key_head(self, index: usize) -> i16 {
        let start = index * KEY_HEAD_SIZE % LINE_SIZE;
        i16::from_le_bytes([self.index[start], self.index[start + 1]])
    }

    /// Prefetches all of a segment.
    #[inline(always)]
    pub(crate) fn prefetch_segment(self, segment: usize) {
        let start = self.segment_start(segment);
        self.node.frame().prefetch(start, self.segment_end(segment) - start);
    }

    /// Prefetches the boundary key of a segment.
    #[inline(always)]
    pub(crate) fn prefetch_boundary(self, segment: usize, key_size: usize) {
        self.prefetch_boundaries(segment..segment + 1, key_size);
    }

    /// Prefetches the boundary keys of segments and their ends, at the offsets that they have if all keys have this
    /// size.
    #[inline(always)]
    pub(crate) fn prefetch_boundaries(self, segments: Range<usize>, key_size: usize) {
        let (count, index) = (self.segment_count() - 1, segments.start - 1);
        self.node.frame().prefetch_line(BOUNDARIES_START + index * END_SIZE);
        self.node.frame().prefetch(BOUNDARIES_START + count * END_SIZE + index * key_size, segments.len() * key_size);
    }

    /// Returns the bytes of all boundary keys and their ends.
    pub(crate) fn boundaries_size(self) -> usize {
        let count = self.segment_count() - 1;
        let Some(last) = count.checked_sub(1) else { return 0 };
        count * END_SIZE + self.boundary_end(last)
    }

    /// Returns all boundary keys in order.
    pub(crate) fn boundary_keys(self) -> impl Iterator<Item = &'g [u8]> {
        let count = self.segment_count() - 1;
        let ends = self.node.read(BOUNDARIES_START, count * END_SIZE).as_chunks::<END_SIZE>().0;
        let size = ends.last().map_or(0, |end| usize::from(u16::from_le_bytes(*end)));
        let keys = self.node.read(BOUNDARIES_START + count * END_SIZE, size);
        let mut start = 0;
        ends.iter().map(move |end| {
            let end = usize::from(u16::from_le_bytes(*end));
            &keys[std::mem::replace(&mut start, end)..end]
        })
    }

    fn boundary_end(self, index: usize) -> usize {
        let bytes = self.node.read(BOUNDARIES_START + index * END_SIZE, END_SIZE);
        usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    #[inline]
    fn boundary_key(self, index: usize) -> &'g [u8] {
        let keys_start = BOUNDARIES_START + (self.segment_count() - 1) * END_SIZE;
        // The end of the previous key, then the key's own. Two bytes of line 1 are before the first end.
        let ends = self.node.read(BOUNDARIES_START + index * END_SIZE - END_SIZE, 2 * END_SIZE);
        let end = |index: usize| usize::from(u16::from_le_bytes([ends[2 * index], ends[2 * index + 1]]));
        let start = if index == 0 { 0 } else { end(0) };
        self.node.read(keys_start + start, end(1) - start)
    }
}

/// Returns true if a fetched shortcut block can be searched: its segments are in the node, in order, and so are its
/// boundary keys.
pub(crate) fn is_searchable(node: Node<'_>) -> bool {
    let shortcuts = Shortcuts::open(node);
    let (count, encoding) = (shortcuts.segment_count(), shortcuts.encoding());
    if count > SEGMENT_COUNT_MAX || encoding.has_outer_bound() && u32::from(encoding.offset) >= u64::BITS {
        return false;
    }
    let keys_end = node.log_start().min(BOUNDARIES_START + BOUNDARIES_SIZE_MAX);
    let keys_start = BOUNDARIES_START + (count - 1) * END_SIZE;
    let ends = || (0..count - 1).map(|index| shortcuts.boundary_end(index));
    (0..count).map(|segment| shortcuts.segment_start(segment)).is_sorted_by(|a, b| a < b)
        && shortcuts.segment_start(0) >= BOUNDARIES_START
        && shortcuts.segment_start(count - 1) < node.log_start()
        && keys_start <= keys_end
        && ends().is_sorted()
        && keys_start + ends().next_back().unwrap_or(0) <= keys_end
}

/// Prefetches a boundary key that has the key head of the target, and the segments on both sides of it. The boundary
/// key usually has the size of `key`.
#[cold]
#[inline(never)]
pub(crate) fn prefetch_tied(frame: Frame<'_>, tie: Tie, key: &[u8]) {
    let shortcuts = Shortcuts::open(frame.open());
    let segment = tie.index() + 1;
    shortcuts.prefetch_boundary(segment, key.len());
    frame.prefetch_line(shortcuts.segment_start(segment));
    frame.prefetch_line(shortcuts.segment_start(segment - 1));
}

/// Finds the segment of a target, and its key head, in a node at an end of the tree or on a tie. The arguments fit
/// registers, so callers need not write to memory for this call.
#[inline(never)]
fn search(frame: Frame<'_>, side: Side, key: &[u8]) -> (usize, i16) {
    let shortcuts = Shortcuts::open(frame.open());
    let target = Target::of_parts(side, key);
    let own = shortcuts.key_head_of(target);
    let segment = shortcuts.count_left(own).unwrap_or_else(|tie| {
        prefetch_tied(frame, tie, key);
        let (count, key_head_at) = (shortcuts.segment_count() - 1, |index| shortcuts.key_head(index));
        tie.decide(count, own, target, key_head_at, |index| shortcuts.boundary_key(index))
    });
    (segment, own)
}

/// Returns the bytes from the start of a frame to the end of its boundary keys. Returns `None` if they do not fit.
pub(crate) fn end_of_boundaries<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Option<usize> {
    let size: usize = keys.map(|key| END_SIZE + key.len()).sum();
    (size <= BOUNDARIES_SIZE_MAX).then_some(BOUNDARIES_START + size)
}

/// Writes the shortcut block of a frame.
pub(crate) fn write(
    frame: &mut [u8],
    encoding: Encoding,
    key_head: impl Fn(&[u8]) -> i16,
    boundary_keys: &[&[u8]],
    segment_starts: &[usize],
) {
    assert!(boundary_keys.len() + 1 == segment_starts.len() && segment_starts.len() <= SEGMENT_COUNT_MAX);
    let index = &mut frame[INDEX_START..][..LINE_SIZE];
    index.fill(0);
    for key_head in index[..OFFSETS_START].as_chunks_mut().0 {
        *key_head = i16::MAX.to_le_bytes();
    }
    for (boundary, key) in boundary_keys.iter().enumerate() {
        index[boundary * KEY_HEAD_SIZE..][..KEY_HEAD_SIZE].copy_from_slice(&key_head(key).to_le_bytes());
    }
    for (segment, start) in segment_starts.iter().enumerate() {
        assert!(start.is_multiple_of(SEGMENT_ALIGNMENT));
        index[OFFSETS_START + segment] =
            u8::try_from(start / SEGMENT_ALIGNMENT).expect("segments are within the frame");
    }
    index[COUNT_OFFSET] = boundary_keys.len() as u8;
    index[ENCODING_OFFSET..].copy_from_slice(&encoding.bits.to_le_bytes());
    let mut end = 0;
    let keys_start = BOUNDARIES_START + boundary_keys.len() * END_SIZE;
    for (index, key) in boundary_keys.iter().enumerate() {
        short::overwrite(&mut frame[keys_start + end..][..key.len()], key);
        end += key.len();
        let bytes = u16::try_from(end).expect("the shortcut block is short").to_le_bytes();
        frame[BOUNDARIES_START + index * END_SIZE..][..END_SIZE].copy_from_slice(&bytes);
    }
}
