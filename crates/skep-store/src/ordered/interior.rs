//! Interior nodes: separators and the LIDs of children (Honeycomb, section 3.1).
//!
//! ```text
//! segment, from a multiple of 64 on
//! offset  0       1   2           2 + 2c     2 + 8c
//!         count c 0   windows     LIDs       ends of separators 1 to c − 1 (2 B each), separators
//! ```
//!
//! Child `i` holds the keys from separator `i` up to separator `i + 1`. The first separator of a segment is its boundary
//! key; child 0 of segment 0, the leftmost, has none. Seven children fit a line, with separators read on ties only. An
//! interior node never changes: another frame is built. It has two children at least.

use super::division::{Division, Measure};
use super::frame::{FRAME_SIZE_MAX, Frame, FrameBuilder, FrameNumber, GRANULE_SIZE, Node, SealedFrame};
use super::header::{Extent, Lid};
use super::lanes::{LANES_SIZE, WINDOW_LANES, not_below_of_two};
use super::shortcut::{self, SEGMENT_COUNT_MAX, SegmentPlace, Shortcuts};
use super::trace::Trace;
use super::window::{Target, Tie, WINDOW_SIZE, count_untied, window};
use crate::memory::LINE_SIZE;
use crate::short;

const HEAD_SIZE: usize = 2;
/// Bytes of a child beside its separator.
const CHILD_SIZE: usize = WINDOW_SIZE + Lid::SIZE;
const END_SIZE: usize = 2;
/// Children of a segment that fit one line.
const CHILDREN_OF_LINE: usize = (LINE_SIZE - HEAD_SIZE) / CHILD_SIZE;
/// Children of a segment when boundary keys are too long for more segments.
const CHILD_COUNT_MAX: usize = 16;
const MEASURE: Measure = Measure { goal: CHILDREN_OF_LINE, entry_count_max: CHILD_COUNT_MAX };
/// A node that lost children and has fewer is put together with a neighbour.
pub(super) const CHILD_COUNT_LOW: usize = 12;

/// Where the windows of the children that have a separator begin.
const SEPARATOR_WINDOWS: usize = HEAD_SIZE + WINDOW_SIZE;

const _: () = assert!(CHILDREN_OF_LINE == 7);
const _: () = assert!(CHILD_COUNT_MAX - 1 < 2 * WINDOW_LANES && SEPARATOR_WINDOWS + 2 * LANES_SIZE <= LINE_SIZE);

/// A child, and the lowest key it may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child<'n> {
    /// Empty for the leftmost child of a node.
    pub(super) separator: &'n [u8],
    pub(super) lid: Lid,
}

/// The child in which a target lies, and how to find its neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChildPlace {
    pub(super) lid: Lid,
    pub(super) segment: usize,
    pub(super) index: usize,
}

/// Says that a segment will be read soon: of more than seven children, some LIDs are in its second line.
#[inline(always)]
pub(super) fn announce_segment<T: Trace>(node: Node<'_, T>, place: SegmentPlace) {
    let start = usize::from(place.start);
    node.frame().announce_line(start);
    node.frame().announce_line(start + LINE_SIZE);
}

/// The child in which the target lies, in the segment found before.
#[inline(always)]
pub(super) fn find_in_segment<T: Trace>(node: Node<'_, T>, place: SegmentPlace, target: Target<'_>) -> ChildPlace {
    let children = Children::open(node, usize::from(place.start));
    let index = children.find(place.window, target);
    ChildPlace { lid: children.lid(index), segment: usize::from(place.segment), index }
}

/// The child in which the target lies.
#[inline(always)]
pub(super) fn find<T: Trace>(node: Node<'_, T>, target: Target<'_>) -> ChildPlace {
    let place = Shortcuts::open(node).find(target);
    announce_segment(node, place);
    find_in_segment(node, place, target)
}

/// All children.
pub(super) fn children<'g, T: Trace>(node: Node<'g, T>) -> Vec<Child<'g>> {
    let shortcuts = Shortcuts::open(node);
    let mut all = Vec::with_capacity(SEGMENT_COUNT_MAX * CHILDREN_OF_LINE);
    for segment in 0..shortcuts.segment_count() {
        let children = Children::open(node, shortcuts.segment_start(segment));
        for index in 0..children.count {
            let separator = match index {
                0 => shortcuts.first_key(segment).unwrap_or(&[]),
                _ => children.separator(index),
            };
            all.push(Child { separator, lid: children.lid(index) });
        }
    }
    all
}

/// The lowest key that a child may hold, if the node says so.
pub(super) fn low_fence<'g, T: Trace>(node: Node<'g, T>, place: ChildPlace) -> Option<&'g [u8]> {
    let shortcuts = Shortcuts::open(node);
    match place.index {
        0 => shortcuts.first_key(place.segment),
        index => Some(Children::open(node, shortcuts.segment_start(place.segment)).separator(index)),
    }
}

/// The children of a segment.
struct Children<'g, T> {
    node: Node<'g, T>,
    start: usize,
    count: usize,
    /// The first line.
    line: &'g [u8; LINE_SIZE],
}

impl<'g, T: Trace> Children<'g, T> {
    #[inline(always)]
    fn open(node: Node<'g, T>, start: usize) -> Self {
        let line: &[u8; LINE_SIZE] = node.read(start, LINE_SIZE).first_chunk().expect("a line was read");
        Children { node, start, count: usize::from(line[0]), line }
    }

    #[inline(always)]
    fn find(&self, own: u16, target: Target<'_>) -> usize {
        let others = self.count - 1;
        // What lies behind the windows is compared as well, and then left out.
        let lanes = |place: usize| self.line[SEPARATOR_WINDOWS + place..].first_chunk().expect("lanes of the line");
        let windows = not_below_of_two(lanes(0), lanes(LANES_SIZE), own) | 1 << others;
        let found = count_untied(windows, others, own, |place| self.window(place));
        found.unwrap_or_else(|tie| decide(self.node.frame(), self.start, tie, own, &target))
    }

    /// The window of a child that is not the segment's first. Of a place behind them it is anything.
    #[inline(always)]
    fn window(&self, place: usize) -> u16 {
        let start = (SEPARATOR_WINDOWS + place * WINDOW_SIZE) % LINE_SIZE;
        u16::from_le_bytes([self.line[start], self.line[start + 1]])
    }

    #[inline(always)]
    fn lid(&self, index: usize) -> Lid {
        let start = HEAD_SIZE + self.count * WINDOW_SIZE + index * Lid::SIZE;
        let bytes = self.node.read(self.start + start, Lid::SIZE);
        Lid::from_bytes(*bytes.first_chunk().expect("a LID was read"))
    }

    /// The separator of a child that is not the segment's first.
    fn separator(&self, index: usize) -> &'g [u8] {
        let ends = self.start + HEAD_SIZE + self.count * CHILD_SIZE;
        let keys = ends + (self.count - 1) * END_SIZE;
        let end = |index: usize| {
            let bytes = self.node.read(ends + (index - 1) * END_SIZE, END_SIZE);
            usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))
        };
        let start = if index == 1 { 0 } else { end(index - 1) };
        self.node.read(keys + start, end(index) - start)
    }
}

/// The child of a segment in which a target lies that separators tell. Given what fits registers, so that callers write
/// nothing to memory for its sake.
#[cold]
#[inline(never)]
fn decide<T: Trace>(frame: Frame<'_, T>, start: usize, tie: Tie, own: u16, target: &Target<'_>) -> usize {
    let children = Children::open(frame.open(), start);
    let separator = |place| children.separator(place + 1);
    tie.decide(children.count - 1, own, *target, |place| children.window(place), separator)
}

/// How children lie in a node.
#[derive(Clone, Debug)]
pub(super) struct InteriorPlan {
    division: Division,
    starts: [usize; SEGMENT_COUNT_MAX],
    end: usize,
}

impl InteriorPlan {
    /// Plans a node of these children, or says that they do not fit one.
    pub(super) fn new(children: &[Child<'_>]) -> Option<Self> {
        let division = Division::new(children.len(), MEASURE, |_| 1, |place| children[place].separator.len())?;
        let firsts = (1..division.segment_count()).map(|segment| children[division.first(segment)].separator);
        let mut end = shortcut::end_of_boundaries(firsts)?;
        let mut starts = [0; SEGMENT_COUNT_MAX];
        for (segment, start) in starts.iter_mut().enumerate().take(division.segment_count()) {
            *start = end.next_multiple_of(LINE_SIZE);
            let of_segment = &children[division.entries(segment)];
            let separators: usize = of_segment[1..].iter().map(|child| END_SIZE + child.separator.len()).sum();
            end = *start + HEAD_SIZE + of_segment.len() * CHILD_SIZE + separators;
        }
        let end = end.next_multiple_of(LINE_SIZE);
        (end <= FRAME_SIZE_MAX).then_some(InteriorPlan { division, starts, end })
    }

    /// Granules that the node takes.
    pub(super) fn granules(&self) -> usize {
        self.end.div_ceil(GRANULE_SIZE)
    }

    /// Writes the node.
    pub(super) fn build(
        &self,
        mut frame: FrameBuilder<'_>,
        lid: Lid,
        level: u8,
        prefix_size: usize,
        children: &[Child<'_>],
        old: Option<FrameNumber>,
    ) -> SealedFrame {
        let count = self.division.segment_count();
        let firsts: Vec<&[u8]> = (1..count).map(|segment| children[self.division.first(segment)].separator).collect();
        shortcut::write(frame.bytes(), prefix_size, &firsts, &self.starts[..count]);
        for segment in 0..count {
            let children = &children[self.division.entries(segment)];
            write_segment(&mut frame.bytes()[self.starts[segment]..], prefix_size, children);
        }
        frame.seal_node(lid, level, Extent { old, log_start: self.end as u16 }, (None, None))
    }
}

fn write_segment(bytes: &mut [u8], prefix_size: usize, children: &[Child<'_>]) {
    let count = children.len();
    bytes[0] = count as u8;
    bytes[1] = 0;
    let lids = HEAD_SIZE + count * WINDOW_SIZE;
    let ends = HEAD_SIZE + count * CHILD_SIZE;
    let keys = ends + (count - 1) * END_SIZE;
    let mut end = 0;
    for (index, child) in children.iter().enumerate() {
        let own = if index == 0 { 0 } else { window(child.separator, prefix_size) };
        bytes[HEAD_SIZE + index * WINDOW_SIZE..][..WINDOW_SIZE].copy_from_slice(&own.to_le_bytes());
        bytes[lids + index * Lid::SIZE..][..Lid::SIZE].copy_from_slice(&child.lid.to_bytes());
        if index > 0 {
            short::overwrite(&mut bytes[keys + end..][..child.separator.len()], child.separator);
            end += child.separator.len();
            bytes[ends + (index - 1) * END_SIZE..][..END_SIZE].copy_from_slice(&(end as u16).to_le_bytes());
        }
    }
}
