//! The shortcut block: which segment of a node holds a key (Honeycomb, section 3.1).
//!
//! ```text
//! offset  64                        104               125    126          128                          at most 512
//!         ├ 20 windows of 2 bytes ┼ 21 segment offsets ┼ count ┼ scale 2 ┼ ends, 2 bytes each ┼ boundary keys ┤
//! ```
//!
//! A node with `count` boundary keys has `count + 1` segments; boundary key `b` is the first key of segment `b + 1` and is
//! stored here only. Segment offsets count 32 bytes. Windows, offsets and counts fit line 1, so a search reads a boundary
//! key only on a tie. The scale is what makes windows of keys; its base, and an edge, are in line 0. Windows
//! that are not used are the greatest number. Zero boundary keys are legal: long ones do not fit.

use std::ops::Range;

use super::super::key_head::encoding::{Edge, Scale};
use super::super::key_head::lanes::{LANES_SIZE, WINDOW_LANES, below, below_of_two};
use super::super::key_head::{Side, Target, Tie, WINDOW_COUNT_MAX, WINDOW_SIZE, count_untied};
use super::super::trace::Trace;
use super::frame::{Frame, Node};
use crate::memory::LINE_SIZE;
use crate::short;

/// Where line 1 begins.
pub(crate) const INDEX_START: usize = LINE_SIZE;
/// Most segments of a node.
pub(crate) const SEGMENT_COUNT_MAX: usize = WINDOW_COUNT_MAX + 1;
/// What segment offsets count in.
pub(crate) const SEGMENT_ALIGNMENT: usize = 32;
/// Where the ends of the boundary keys begin.
pub(crate) const BOUNDARIES_START: usize = 2 * LINE_SIZE;
/// Bytes for boundary keys and their ends: header and shortcut block have 512 in all.
pub(crate) const BOUNDARIES_SIZE_MAX: usize = 512 - BOUNDARIES_START;
/// Bytes of the end of a boundary key.
pub(crate) const END_SIZE: usize = 2;

const OFFSETS_START: usize = WINDOW_COUNT_MAX * WINDOW_SIZE;
const COUNT_PLACE: usize = OFFSETS_START + SEGMENT_COUNT_MAX;
const SCALE_PLACE: usize = COUNT_PLACE + 1;
const _: () = assert!(SCALE_PLACE + 2 == LINE_SIZE);

/// A segment that a search has found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentPlace {
    /// Where it begins in its frame.
    pub(crate) start: u16,
    pub(crate) segment: u16,
    /// The window of what is looked for.
    pub(crate) window: i16,
}

/// The shortcut block of a node.
#[derive(Debug)]
pub(crate) struct Shortcuts<'g, T> {
    node: Node<'g, T>,
    index: &'g [u8; LINE_SIZE],
}

impl<T> Clone for Shortcuts<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shortcuts<'_, T> {}

impl<'g, T: Trace> Shortcuts<'g, T> {
    /// Reads line 1.
    #[inline]
    pub(crate) fn open(node: Node<'g, T>) -> Self {
        let index = node.read(INDEX_START, LINE_SIZE).first_chunk().expect("a line was read");
        Shortcuts { node, index }
    }

    #[inline]
    pub(crate) fn segment_count(self) -> usize {
        usize::from(self.index[COUNT_PLACE]) + 1
    }

    /// What makes a window of a key.
    #[inline(always)]
    pub(crate) fn scale(self) -> Scale {
        let bits = u16::from_le_bytes([self.index[SCALE_PLACE], self.index[SCALE_PLACE + 1]]);
        Scale { bits, base: self.node.window_base() }
    }

    /// Where a segment begins in its frame.
    #[inline]
    pub(crate) fn segment_start(self, segment: usize) -> usize {
        debug_assert!(segment < self.segment_count());
        usize::from(self.index[OFFSETS_START + segment]) * SEGMENT_ALIGNMENT
    }

    /// Where it ends, or up to an alignment behind.
    #[inline]
    pub(crate) fn segment_end(self, segment: usize) -> usize {
        if segment + 1 < self.segment_count() { self.segment_start(segment + 1) } else { self.node.log_start() }
    }

    /// The first key of a segment, which the first segment does not have here.
    #[inline]
    pub(crate) fn first_key(self, segment: usize) -> Option<&'g [u8]> {
        Some(self.boundary_key(segment.checked_sub(1)?))
    }

    /// The segment in which the target lies, or would.
    #[inline(always)]
    pub(crate) fn find(self, target: Target<'_>) -> SegmentPlace {
        let (scale, (side, key)) = (self.scale(), target.parts());
        let own = scale.window_of(target);
        let (segment, own) = match self.count_left(own) {
            Ok(segment) if !scale.has_edge() => (segment, own),
            _ => search(self.node.frame(), side, key),
        };
        self.place(segment, own)
    }

    /// The segment of a leaf in which the target lies, or would, unless a boundary key has to be read for it.
    #[inline(always)]
    pub(crate) fn find_untied(self, target: Target<'_>) -> Result<SegmentPlace, Tie> {
        let own = self.scale().window_of(target);
        Ok(self.place(self.count_left(own)?, own))
    }

    /// The window of a target in any node.
    fn window_of(self, target: Target<'_>) -> i16 {
        let (Some(key), scale) = (target.key(), self.scale()) else { return i16::MAX };
        if scale.has_edge() {
            Edge::of_words(scale, self.node.frame().edge_words()).window(key)
        } else {
            scale.window(key)
        }
    }

    #[inline(always)]
    fn place(self, segment: usize, window: i16) -> SegmentPlace {
        SegmentPlace { start: self.segment_start(segment) as u16, segment: segment as u16, window }
    }

    #[inline(always)]
    fn count_left(self, own: i16) -> Result<usize, Tie> {
        const _: () = assert!(WINDOW_COUNT_MAX <= 3 * WINDOW_LANES && 3 * LANES_SIZE <= LINE_SIZE);
        let lanes = self.index.as_chunks::<LANES_SIZE>().0;
        let below = below_of_two(&lanes[0], &lanes[1], own) | below(&lanes[2], own) << (2 * WINDOW_LANES);
        count_untied(below, self.segment_count() - 1, own, |place| self.window(place))
    }

    /// The window of a boundary key. Of a place behind them it is anything.
    #[inline(always)]
    pub(crate) fn window(self, place: usize) -> i16 {
        let start = place * WINDOW_SIZE % LINE_SIZE;
        i16::from_le_bytes([self.index[start], self.index[start + 1]])
    }

    /// Says that a segment will be read soon, all of it.
    #[inline(always)]
    pub(crate) fn prefetch_segment(self, segment: usize) {
        let start = self.segment_start(segment);
        self.node.frame().prefetch(start, self.segment_end(segment) - start);
    }

    /// Says that the boundary key of a segment will be read soon.
    #[inline(always)]
    pub(crate) fn prefetch_boundary(self, segment: usize, key_size: usize) {
        self.prefetch_boundaries(segment..segment + 1, key_size);
    }

    /// Says that the boundary keys of segments will be read soon: their ends, and the keys themselves, as far as it can be told
    /// if all keys have this size.
    #[inline(always)]
    pub(crate) fn prefetch_boundaries(self, segments: Range<usize>, key_size: usize) {
        let (count, place) = (self.segment_count() - 1, segments.start - 1);
        self.node.frame().prefetch_line(BOUNDARIES_START + place * END_SIZE);
        self.node.frame().prefetch(BOUNDARIES_START + count * END_SIZE + place * key_size, segments.len() * key_size);
    }

    /// Bytes of all boundary keys and their ends.
    pub(crate) fn boundaries_size(self) -> usize {
        let count = self.segment_count() - 1;
        let Some(last) = count.checked_sub(1) else { return 0 };
        count * END_SIZE + self.boundary_end(last)
    }

    /// All boundary keys in order.
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

    fn boundary_end(self, place: usize) -> usize {
        let bytes = self.node.read(BOUNDARIES_START + place * END_SIZE, END_SIZE);
        usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    #[inline]
    fn boundary_key(self, place: usize) -> &'g [u8] {
        let keys_start = BOUNDARIES_START + (self.segment_count() - 1) * END_SIZE;
        // The end of the key before and its own. Before the first end lie two bytes of line 1.
        let ends = self.node.read(BOUNDARIES_START + place * END_SIZE - END_SIZE, 2 * END_SIZE);
        let end = |place: usize| usize::from(u16::from_le_bytes([ends[2 * place], ends[2 * place + 1]]));
        let start = if place == 0 { 0 } else { end(0) };
        self.node.read(keys_start + start, end(1) - start)
    }
}

/// Says that a boundary key will be read soon that shares the window of a key, which is as long as it as a rule, and one of
/// the segments on both sides of it.
#[cold]
#[inline(never)]
pub(crate) fn prefetch_tied<T: Trace>(frame: Frame<'_, T>, tie: Tie, key: &[u8]) {
    let shortcuts = Shortcuts::open(frame.open());
    let segment = tie.place() + 1;
    shortcuts.prefetch_boundary(segment, key.len());
    frame.prefetch_line(shortcuts.segment_start(segment));
    frame.prefetch_line(shortcuts.segment_start(segment - 1));
}

/// The segment of a node at an end of the tree in which a target lies, or of one whose boundary keys tell, and the target's
/// window. Given what fits registers, so that callers write nothing to memory for its sake.
#[inline(never)]
fn search<T: Trace>(frame: Frame<'_, T>, side: Side, key: &[u8]) -> (usize, i16) {
    let shortcuts = Shortcuts::open(frame.open());
    let target = Target::of_parts(side, key);
    let own = shortcuts.window_of(target);
    let segment = shortcuts.count_left(own).unwrap_or_else(|tie| {
        prefetch_tied(frame, tie, key);
        let (count, window_at) = (shortcuts.segment_count() - 1, |place| shortcuts.window(place));
        tie.decide(count, own, target, window_at, |place| shortcuts.boundary_key(place))
    });
    (segment, own)
}

/// Bytes from the start of a frame to the end of its boundary keys, if they fit.
pub(crate) fn end_of_boundaries<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Option<usize> {
    let size: usize = keys.map(|key| END_SIZE + key.len()).sum();
    (size <= BOUNDARIES_SIZE_MAX).then_some(BOUNDARIES_START + size)
}

/// Writes the shortcut block of a frame.
pub(crate) fn write(
    frame: &mut [u8],
    scale: Scale,
    window: impl Fn(&[u8]) -> i16,
    boundary_keys: &[&[u8]],
    segment_starts: &[usize],
) {
    assert!(boundary_keys.len() + 1 == segment_starts.len() && segment_starts.len() <= SEGMENT_COUNT_MAX);
    let index = &mut frame[INDEX_START..][..LINE_SIZE];
    index.fill(0);
    for window in index[..OFFSETS_START].as_chunks_mut().0 {
        *window = i16::MAX.to_le_bytes();
    }
    for (place, key) in boundary_keys.iter().enumerate() {
        index[place * WINDOW_SIZE..][..WINDOW_SIZE].copy_from_slice(&window(key).to_le_bytes());
    }
    for (segment, start) in segment_starts.iter().enumerate() {
        assert!(start.is_multiple_of(SEGMENT_ALIGNMENT));
        index[OFFSETS_START + segment] = u8::try_from(start / SEGMENT_ALIGNMENT).expect("segments lie in the frame");
    }
    index[COUNT_PLACE] = boundary_keys.len() as u8;
    index[SCALE_PLACE..].copy_from_slice(&scale.bits.to_le_bytes());
    let mut end = 0;
    let keys_start = BOUNDARIES_START + boundary_keys.len() * END_SIZE;
    for (place, key) in boundary_keys.iter().enumerate() {
        short::overwrite(&mut frame[keys_start + end..][..key.len()], key);
        end += key.len();
        let bytes = u16::try_from(end).expect("the shortcut block is short").to_le_bytes();
        frame[BOUNDARIES_START + place * END_SIZE..][..END_SIZE].copy_from_slice(&bytes);
    }
}
