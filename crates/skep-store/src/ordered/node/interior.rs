//! Interior nodes: separators and the LIDs of children (Honeycomb, section 3.1).
//!
//! ```text
//! segment, from a multiple of 64 on
//! offset  0              64      65  66          66 + 2c   66 + 6c
//!         hints (4 B)    count c 0   key heads   LIDs      ends of separators 1 to c − 1 (2 B each), separators
//! ```
//!
//! Child `i` has the keys from separator `i` up to separator `i + 1`. The first separator of a segment is its boundary
//! key; child 0 of segment 0, the leftmost, has none. Ten children fit a line, besides the line of their hints;
//! separators are read on ties only. Except for its hints an interior node never changes: another frame is built. It
//! has at least two children.

use super::super::key_head::encoding::InteriorEncoding;
use super::super::key_head::lanes::{KEY_HEAD_LANES, LANES_SIZE, below_of_two};
use super::super::key_head::{KEY_HEAD_SIZE, Side, Target, Tie, count_untied};
use super::super::memory::frame_state::SealedFrame;
use super::super::memory::number::{FRAME_SIZE_MAX, FrameNumber, Lid, UNIT_512_SIZE};
use super::super::sync::AtomicU32;
use super::builder::FrameBuilder;
use super::division::{Division, Measure};
use super::frame::{Frame, HINT_COUNT_MAX, Node};
use super::header::Extent;
use super::hint::{HINT_SIZE, Hint};
use super::shortcut::{self, SEGMENT_COUNT_MAX, SegmentPosition, Shortcuts};
use crate::memory::LINE_SIZE;
use crate::short;

/// Bytes of the hints of a segment. They have a line of their own, since they are read as atomics.
const HINTS_SIZE: usize = LINE_SIZE;
const HEAD_SIZE: usize = 2;
/// Bytes of a child besides its separator.
const CHILD_SIZE: usize = KEY_HEAD_SIZE + Lid::SIZE;
const END_SIZE: usize = 2;
/// Children of a segment that fit one line.
const CHILDREN_OF_LINE: usize = (LINE_SIZE - HEAD_SIZE) / CHILD_SIZE;
/// Most children of a segment, if boundary keys are too long for more segments.
const CHILD_COUNT_MAX: usize = 16;
/// Most children of a node. With these no segment is longer than its line, unless long separators allow few boundary
/// keys.
pub(crate) const CHILD_COUNT_HIGH: usize = CHILDREN_OF_LINE * SEGMENT_COUNT_MAX;
const MEASURE: Measure = Measure { goal: CHILDREN_OF_LINE - 1, entry_count_max: CHILD_COUNT_MAX };
/// A node that lost children and has fewer than these is joined with a neighbour.
pub(crate) const CHILD_COUNT_LOW: usize = 12;

/// The offset of the key heads of the children that have a separator.
const SEPARATOR_KEY_HEADS: usize = HEAD_SIZE + KEY_HEAD_SIZE;

const _: () = assert!(CHILDREN_OF_LINE == 10 && CHILD_COUNT_MAX <= HINT_COUNT_MAX);
const _: () = assert!(CHILD_COUNT_MAX - 1 < 2 * KEY_HEAD_LANES && SEPARATOR_KEY_HEADS + 2 * LANES_SIZE <= LINE_SIZE);

/// A child, and the lowest key it may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child<'n> {
    /// Empty for the leftmost child of a node.
    pub(crate) separator: &'n [u8],
    pub(crate) lid: Lid,
    /// The number of its frame, possibly stale.
    pub(crate) hint: u32,
}

/// The child of a target, and its position among its siblings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildPosition<'g> {
    pub(crate) lid: Lid,
    pub(crate) hint: Hint<'g>,
    pub(crate) segment: usize,
    pub(crate) index: usize,
}

/// Prefetches a segment: its hints and its key heads.
#[inline(always)]
pub(crate) fn prefetch_segment(node: Node<'_>, position: SegmentPosition) {
    let start = usize::from(position.start);
    node.frame().prefetch_line(start);
    node.frame().prefetch_line(start + LINE_SIZE);
}

/// Finds the child of the target in a segment.
#[inline(always)]
pub(crate) fn find_in_segment<'g>(node: Node<'g>, position: SegmentPosition, target: Target<'_>) -> ChildPosition<'g> {
    let children = Children::open(node, usize::from(position.start));
    let index = children.find(position.key_head, target);
    ChildPosition {
        lid: children.lid(index),
        hint: children.hint(index),
        segment: usize::from(position.segment),
        index,
    }
}

/// Returns true if a fetched segment can be searched: all that it consists of is in the node.
pub(crate) fn is_searchable(node: Node<'_>, start: usize) -> bool {
    let line = start + HINTS_SIZE;
    if !start.is_multiple_of(LINE_SIZE) || line + LINE_SIZE > node.log_start() {
        return false;
    }
    let count = usize::from(node.read(line, HEAD_SIZE)[0]);
    let ends_start = line + HEAD_SIZE + count * CHILD_SIZE;
    let keys_start = ends_start + count.saturating_sub(1) * END_SIZE;
    if !(1..=CHILD_COUNT_MAX).contains(&count) || keys_start > node.log_start() {
        return false;
    }
    let ends = node.read(ends_start, keys_start - ends_start).as_chunks::<END_SIZE>().0.iter();
    let ends = ends.map(|end| usize::from(u16::from_le_bytes(*end)));
    ends.clone().is_sorted() && keys_start + ends.clone().next_back().unwrap_or(0) <= node.log_start()
}

/// Returns all children.
pub(crate) fn children<'g>(node: Node<'g>) -> Vec<Child<'g>> {
    let shortcuts = Shortcuts::open(node);
    let mut all = Vec::with_capacity(shortcuts.segment_count() * CHILD_COUNT_MAX);
    let first_keys = std::iter::once(&[][..]).chain(shortcuts.boundary_keys());
    for (segment, first_key) in first_keys.enumerate() {
        Children::open(node, shortcuts.segment_start(segment)).collect(first_key, &mut all);
    }
    all
}

/// Returns the lowest key that a child may have. Returns `None` for the leftmost child.
pub(crate) fn low_fence<'g>(node: Node<'g>, position: ChildPosition<'_>) -> Option<&'g [u8]> {
    let shortcuts = Shortcuts::open(node);
    match position.index {
        0 => shortcuts.first_key(position.segment),
        index => Some(Children::open(node, shortcuts.segment_start(position.segment)).separator(index)),
    }
}

/// Returns the key-head encoding of a node between two fences, `None` at the ends of the tree.
pub(crate) fn encoding_of(children: &[Child<'_>], low: Option<&[u8]>, high: Option<&[u8]>) -> InteriorEncoding {
    InteriorEncoding::new(low, high, children[1].separator, children[children.len() - 1].separator)
}

/// The children of a segment.
struct Children<'g> {
    node: Node<'g>,
    start: usize,
    count: usize,
    hints: &'g [AtomicU32; HINT_COUNT_MAX],
    /// The first line after the hints.
    line: &'g [u8; LINE_SIZE],
}

impl<'g> Children<'g> {
    #[inline(always)]
    fn open(node: Node<'g>, start: usize) -> Self {
        let (hints, line) = node.hints_and_line(start);
        Children { node, start, count: usize::from(line[0]), hints, line }
    }

    #[inline(always)]
    fn find(&self, own: i16, target: Target<'_>) -> usize {
        let others = self.count - 1;
        // The bytes after the key heads are compared too, and then ignored.
        let lanes = |offset: usize| self.line[SEPARATOR_KEY_HEADS + offset..].first_chunk().expect("lanes of the line");
        let below = below_of_two(lanes(0), lanes(LANES_SIZE), own);
        let found = count_untied(below, others, own, |index| self.key_head(index));
        let (side, key) = target.parts();
        found.unwrap_or_else(|tie| decide(self.node.frame(), self.start, tie, own, side, key))
    }

    /// Returns the key head of a child that is not the segment's first. For an index beyond the last child the result
    /// is arbitrary.
    #[inline(always)]
    fn key_head(&self, index: usize) -> i16 {
        let start = (SEPARATOR_KEY_HEADS + index * KEY_HEAD_SIZE) % LINE_SIZE;
        i16::from_le_bytes([self.line[start], self.line[start + 1]])
    }

    #[inline(always)]
    fn lid(&self, index: usize) -> Lid {
        let start = HEAD_SIZE + self.count * KEY_HEAD_SIZE + index * Lid::SIZE;
        let of_line = self.line.get(start..).and_then(<[u8]>::first_chunk);
        Lid::from_bytes(*of_line.unwrap_or_else(|| {
            let bytes = self.node.read(self.start + HINTS_SIZE + start, Lid::SIZE);
            bytes.first_chunk().expect("a LID was read")
        }))
    }

    #[inline(always)]
    fn hint(&self, index: usize) -> Hint<'g> {
        Hint::new(&self.hints[index % HINT_COUNT_MAX])
    }

    /// Appends all of them.
    fn collect(&self, first_key: &'g [u8], to: &mut Vec<Child<'g>>) {
        let lids_start = self.start + HINTS_SIZE + HEAD_SIZE + self.count * KEY_HEAD_SIZE;
        let lids_size = self.count * Lid::SIZE;
        let (lids, ends) = self.node.read(lids_start, lids_size + (self.count - 1) * END_SIZE).split_at(lids_size);
        let ends = ends.as_chunks::<END_SIZE>().0.iter().map(|end| usize::from(u16::from_le_bytes(*end)));
        let size = ends.clone().next_back().unwrap_or(0);
        let keys = self.node.read(lids_start + lids_size + (self.count - 1) * END_SIZE, size);
        let mut start = 0;
        let separators = ends.map(|end| &keys[std::mem::replace(&mut start, end)..end]);
        let separators = std::iter::once(first_key).chain(separators);
        let lids = lids.as_chunks::<{ Lid::SIZE }>().0;
        to.extend(separators.zip(lids).zip(self.hints).map(|((separator, lid), hint)| Child {
            separator,
            lid: Lid::from_bytes(*lid),
            hint: Hint::new(hint).guess(),
        }));
    }

    /// Returns the separator of a child that is not the segment's first.
    fn separator(&self, index: usize) -> &'g [u8] {
        let ends = self.start + HINTS_SIZE + HEAD_SIZE + self.count * CHILD_SIZE;
        let keys = ends + (self.count - 1) * END_SIZE;
        let end = |index: usize| {
            let bytes = self.node.read(ends + (index - 1) * END_SIZE, END_SIZE);
            usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))
        };
        let start = if index == 1 { 0 } else { end(index - 1) };
        self.node.read(keys + start, end(index) - start)
    }
}

/// Finds the child of a target by comparing separators. The arguments fit registers, so callers need not write to
/// memory for this call.
#[cold]
#[inline(never)]
fn decide(frame: Frame<'_>, start: usize, tie: Tie, own: i16, side: Side, key: &[u8]) -> usize {
    let children = Children::open(frame.open(), start);
    let separator = |index| children.separator(index + 1);
    tie.decide(children.count - 1, own, Target::of_parts(side, key), |index| children.key_head(index), separator)
}

/// The layout of children in a node.
#[derive(Clone, Debug)]
pub(crate) struct InteriorPlan {
    division: Division,
    starts: [usize; SEGMENT_COUNT_MAX],
    end: usize,
}

impl InteriorPlan {
    /// Plans a node of these children. Returns `None` if they do not fit one.
    pub(crate) fn new(children: &[Child<'_>]) -> Option<Self> {
        if children.len() > CHILD_COUNT_HIGH {
            return None;
        }
        let division = Division::new(children.len(), MEASURE, |_| 1, |index| children[index].separator.len())?;
        let firsts = (1..division.segment_count()).map(|segment| children[division.first(segment)].separator);
        let mut end = shortcut::end_of_boundaries(firsts)?;
        let mut starts = [0; SEGMENT_COUNT_MAX];
        for (segment, start) in starts.iter_mut().enumerate().take(division.segment_count()) {
            *start = end.next_multiple_of(LINE_SIZE);
            let of_segment = &children[division.entries(segment)];
            let separators: usize = of_segment[1..].iter().map(|child| END_SIZE + child.separator.len()).sum();
            end = *start + HINTS_SIZE + HEAD_SIZE + of_segment.len() * CHILD_SIZE + separators;
        }
        let end = end.next_multiple_of(LINE_SIZE);
        (end <= FRAME_SIZE_MAX).then_some(InteriorPlan { division, starts, end })
    }

    /// Returns the units of its frame.
    pub(crate) fn units(&self) -> usize {
        self.end.div_ceil(UNIT_512_SIZE)
    }

    /// Writes the node.
    pub(crate) fn build(
        &self,
        mut frame: FrameBuilder<'_>,
        lid: Lid,
        level: u8,
        encoding: &InteriorEncoding,
        children: &[Child<'_>],
        old: Option<FrameNumber>,
    ) -> SealedFrame {
        let count = self.division.segment_count();
        let firsts: Vec<&[u8]> = (1..count).map(|segment| children[self.division.first(segment)].separator).collect();
        shortcut::write(
            frame.bytes(),
            encoding.encoding(),
            |key| encoding.key_head(key),
            &firsts,
            &self.starts[..count],
        );
        for segment in 0..count {
            let children = &children[self.division.entries(segment)];
            write_segment(&mut frame.bytes()[self.starts[segment]..], encoding, children);
        }
        frame.seal_interior(lid, level, Extent::new(old, self.end, encoding.encoding()), encoding.outer_bound_words())
    }
}

fn write_segment(bytes: &mut [u8], encoding: &InteriorEncoding, children: &[Child<'_>]) {
    let count = children.len();
    let (hints, bytes) = bytes.split_at_mut(HINTS_SIZE);
    let (head, bytes) = bytes.split_at_mut(HEAD_SIZE);
    let (key_heads, bytes) = bytes.split_at_mut(count * KEY_HEAD_SIZE);
    let (lids, bytes) = bytes.split_at_mut(count * Lid::SIZE);
    let (ends, separators) = bytes.split_at_mut((count - 1) * END_SIZE);
    head.copy_from_slice(&[count as u8, 0]);
    let hints = hints.as_chunks_mut::<HINT_SIZE>().0;
    let key_heads = key_heads.as_chunks_mut::<KEY_HEAD_SIZE>().0;
    let lids = lids.as_chunks_mut::<{ Lid::SIZE }>().0;
    for (((child, hint), own), lid) in children.iter().zip(hints).zip(key_heads).zip(lids) {
        *hint = child.hint.to_ne_bytes();
        *own = encoding.key_head(child.separator).to_le_bytes();
        *lid = child.lid.to_bytes();
    }
    let mut end = 0;
    for (child, end_bytes) in children[1..].iter().zip(ends.as_chunks_mut::<END_SIZE>().0) {
        let size = child.separator.len();
        short::overwrite(&mut separators[end..][..size], child.separator);
        end += size;
        *end_bytes = (end as u16).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_lies_as_it_is_drawn() {
        let child = |separator, lid, hint| Child { separator, lid: Lid::new(lid), hint };
        let mut bytes = [0xaa; 88];
        let encoding = InteriorEncoding::new(Some(b"k"), Some(b"l"), b"kbcd", b"kbcd");
        write_segment(&mut bytes, &encoding, &[child(b"ka", 1, 0x0101), child(b"kbcd", 2, 0x0202)]);
        assert_eq!(bytes[..8], [0x0101_u32.to_ne_bytes(), 0x0202_u32.to_ne_bytes()].concat());
        assert!(bytes[8..64].iter().all(|byte| *byte == 0xaa), "hints of no child are not written");
        let drawn = *b"\x02\x00\x80\xb0\x31\xb1\x01\0\0\0\x02\0\0\0\x04\0kbcd\xaa\xaa\xaa\xaa";
        assert_eq!(bytes[64..], drawn);
    }
}
