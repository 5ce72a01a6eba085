//! Merges log and sorted block (Honeycomb, section 3.4), and rewrites as little of the sorted block as possible.
//!
//! ```text
//! segments       │ a  │ b  │ c        │ d  │ e  │
//! edits              1      2 3 4 5
//! merged         │ a  │ b′   │ c₁    │ c₂   │ d  │ e  │     kept; edited; edited as two, since it was too large
//! leaf too large │ a  │ b′   │ c₁    ┃ c₂   │ d  │ e  │     two leaves, cut between segments
//! ```
//!
//! 1. A segment without edits is copied.
//! 2. One that keeps one pair size is copied and edited, as two if it has too many items.
//! 3. Any other is written from its items.
//!
//! All pairs of the leaf are divided evenly again if a boundary key has no room, or if little is left of a segment.

use std::ops::Range;

use super::super::key_head::separator;
use super::super::node::division::middle_of;
use super::super::node::frame::Node;
use super::super::node::log::LogBlock;
use super::super::node::segment::{ITEM_COUNT_MAX, Item, SEGMENT_SIZE_GOAL, Segment};
use super::super::node::shortcut::{BOUNDARIES_SIZE_MAX, END_SIZE, SEGMENT_COUNT_MAX, Shortcuts};
use super::build::{LeafPlan, Part, Sorted, size_of_pair};
use super::edit::{self, Edit, Middle};

/// Size of pairs beyond which a segment is divided, if there is room for its boundary key.
const SEGMENT_SIZE_HIGH: usize = 2 * SEGMENT_SIZE_GOAL;
/// Size of pairs below which a segment does not shrink.
const SEGMENT_SIZE_LOW: usize = SEGMENT_SIZE_GOAL / 4;

/// Two leaves that replace one.
#[derive(Debug)]
pub(crate) struct Halves<'a> {
    pub(crate) left: LeafPlan<'a>,
    pub(crate) right: LeafPlan<'a>,
    /// The lowest key that belongs to the right one.
    pub(crate) separator: &'a [u8],
}

/// The room of a leaf for more segments, and for their boundaries in bytes.
struct Room {
    segments: usize,
    boundaries: usize,
}

impl Room {
    /// Returns true if there is room for a segment with a boundary of this size.
    fn has(&self, boundary: usize) -> bool {
        self.segments > 0 && boundary <= self.boundaries
    }

    /// Takes the room of a segment with a boundary of this size.
    fn take(&mut self, boundary: usize) {
        self.segments -= 1;
        self.boundaries -= boundary;
    }
}

/// A segment of the present leaf that has edits.
struct Changed<'a> {
    leaf: Node<'a>,
    segment_index: usize,
    segment: Segment<'a>,
    /// Its offset in the leaf.
    start: usize,
    /// Its boundary key.
    first_key: &'a [u8],
    /// Its edits, as a range of those of the leaf.
    edits: Range<usize>,
}

impl<'a> Sorted<'a> {
    /// Returns the sorted block after these edits, with as few changed segments as possible. Returns `None` if its
    /// pairs have to be divided again.
    pub(crate) fn edited(leaf: Node<'a>, edits: &'a [Edit<'a>]) -> Option<Self> {
        let shortcuts = Shortcuts::open(leaf);
        let count = shortcuts.segment_count();
        let mut sorted = Sorted { parts: Vec::with_capacity(SEGMENT_COUNT_MAX), items: Vec::new(), edits };
        let mut room =
            Room { segments: SEGMENT_COUNT_MAX - count, boundaries: BOUNDARIES_SIZE_MAX - shortcuts.boundaries_size() };
        let mut next = 0;
        let mut boundary_keys = shortcuts.boundary_keys();
        for segment_index in 0..count {
            let first = next;
            while edits.get(next).is_some_and(|edit| usize::from(edit.position.segment) == segment_index) {
                next += 1;
            }
            let own = first..next;
            let start = shortcuts.segment_start(segment_index);
            let first_key = if segment_index == 0 { &[] } else { boundary_keys.next().expect("one for each segment") };
            if own.is_empty() {
                // With the bytes that fill it up to the next segment.
                let size = match segment_index + 1 {
                    next if next < count => shortcuts.segment_start(next) - start,
                    _ => Segment::open(leaf, start, segment_index).size(),
                };
                sorted.parts.push(Part::Kept { segment_index, bytes: leaf.read(start, size), first_key });
                continue;
            }
            let segment = Segment::open(leaf, start, segment_index);
            let changed = Changed { leaf, segment_index, segment, start, first_key, edits: own };
            if !sorted.push_edited(&changed, &mut room)? {
                sorted.push_written(&changed, &mut room)?;
            }
        }
        Some(sorted)
    }

    /// Adds a segment that keeps one pair size, as one part or as two. Returns false if it has to be written from its
    /// items, and `None` if the pairs of the leaf have to be divided again.
    #[inline]
    fn push_edited(&mut self, changed: &Changed<'a>, room: &mut Room) -> Option<bool> {
        let Changed { leaf, segment_index, ref segment, start, first_key, edits: ref own } = *changed;
        let of_segment = &self.edits[own.clone()];
        let Some(item_count) = edit::count_with(segment, of_segment) else { return Some(false) };
        let pairs_size = item_count * (segment.pair_size() + 1);
        if item_count < segment.count() && pairs_size < SEGMENT_SIZE_LOW {
            return None;
        }
        let bytes = leaf.read(start, segment.size());
        let boundary = END_SIZE + segment.key_size();
        let has_room = room.has(boundary);
        let may_grow = item_count <= ITEM_COUNT_MAX && (pairs_size <= SEGMENT_SIZE_HIGH || !has_room);
        if item_count <= segment.count() || may_grow {
            let (items, edits) = (0..segment.count(), own.clone());
            let size = segment.size_with(item_count, segment_index > 0);
            self.parts.push(Part::Edited { segment_index, bytes, first_key, items, edits, size });
            return Some(true);
        }
        let middle = edit::middle_with(segment, of_segment, item_count).filter(|_| has_room);
        let fits = |middle: &Middle| middle.count.max(item_count - middle.count) <= ITEM_COUNT_MAX;
        let Some(middle) = middle.filter(fits) else { return Some(false) };
        room.take(boundary);
        let (items, edits) = (0..middle.item, own.start..own.start + middle.edits);
        let size = segment.size_with(middle.count, segment_index > 0);
        self.parts.push(Part::Edited { segment_index, bytes, first_key, items, edits, size });
        let first_key = segment.pair(middle.item).0;
        let (items, edits) = (middle.item..segment.count(), own.start + middle.edits..own.end);
        let size = segment.size_with(item_count - middle.count, true);
        self.parts.push(Part::Edited { segment_index, bytes, first_key, items, edits, size });
        Some(true)
    }

    /// Adds a segment that is written from its items, as one part or as two. Returns `None` if the pairs of the leaf have
    /// to be divided again.
    #[inline]
    fn push_written(&mut self, changed: &Changed<'a>, room: &mut Room) -> Option<()> {
        let Changed { leaf, segment_index, ref segment, first_key, ref edits, .. } = *changed;
        let first = self.items.len();
        collect(leaf, segment_index, 0..segment.count(), &self.edits[edits.clone()], &mut self.items);
        let items = &self.items[first..];
        let sizes = items.iter().map(size_of_pair);
        let size: usize = sizes.clone().sum();
        if items.is_empty() || items.len() < segment.count() && size < SEGMENT_SIZE_LOW {
            return None;
        }
        if segment_index > 0 {
            room.boundaries = (room.boundaries + first_key.len()).checked_sub(items[0].key.len())?;
        }
        let end = first + items.len();
        if items.len() > ITEM_COUNT_MAX || items.len() > 1 && size > SEGMENT_SIZE_HIGH {
            let middle = middle_of(sizes);
            let boundary = END_SIZE + items[middle].key.len();
            if room.has(boundary) && middle.max(items.len() - middle) <= ITEM_COUNT_MAX {
                room.take(boundary);
                self.parts.push(Part::Written(first..first + middle));
                self.parts.push(Part::Written(first + middle..end));
                return Some(());
            } else if items.len() > ITEM_COUNT_MAX {
                return None;
            }
        }
        self.parts.push(Part::Written(first..end));
        Some(())
    }

    /// Divides a sorted block that does not fit one leaf in two, between segments. Returns `None` if its pairs have to
    /// be divided again.
    pub(crate) fn halves(mut self, leaf: Node<'a>, log_block: LogBlock) -> Option<Halves<'a>> {
        if self.parts.len() < 2 {
            return None;
        }
        let middle = middle_of(self.parts.iter().map(|part| self.size_of(part, true)));
        let mut right = Sorted { parts: self.parts.split_off(middle), items: self.items.clone(), edits: self.edits };
        // The first segment of a leaf contains the key of its first item.
        if !matches!(right.parts[0], Part::Written(_)) {
            let first = right.items.len();
            collect_part(leaf, &right.parts[0], right.edits, &mut right.items);
            right.parts[0] = Part::Written(first..right.items.len());
        }
        let last = match &self.parts[middle - 1] {
            Part::Written(items) => self.items[items.end - 1].key,
            part => {
                let mut items = Vec::with_capacity(ITEM_COUNT_MAX);
                collect_part(leaf, part, self.edits, &mut items);
                items.last()?.key
            }
        };
        let Part::Written(items) = &right.parts[0] else { unreachable!("it was written out") };
        let first = right.items[items.start].key;
        let left = LeafPlan::new(self, log_block).ok()?;
        let right = LeafPlan::new(right, log_block).ok()?;
        Some(Halves { left, right, separator: separator(last, first) })
    }
}

/// Returns all pairs of a leaf after these edits.
pub(crate) fn pairs_with<'a>(leaf: Node<'a>, edits: &[Edit<'a>]) -> Vec<Item<'a>> {
    let mut items = Vec::with_capacity(256);
    let mut rest = edits;
    for segment_index in 0..Shortcuts::open(leaf).segment_count() {
        let own = rest.iter().take_while(|edit| usize::from(edit.position.segment) == segment_index).count();
        let (of_segment, later) = rest.split_at(own);
        collect(leaf, segment_index, 0..ITEM_COUNT_MAX, of_segment, &mut items);
        rest = later;
    }
    items
}

/// Appends the pairs of a part that does not consist of items yet.
fn collect_part<'a>(leaf: Node<'a>, part: &Part<'a>, edits: &[Edit<'a>], items: &mut Vec<Item<'a>>) {
    match part {
        Part::Kept { segment_index, .. } => collect(leaf, *segment_index, 0..ITEM_COUNT_MAX, &[], items),
        Part::Edited { segment_index, items: range, edits: own, .. } => {
            collect(leaf, *segment_index, range.clone(), &edits[own.clone()], items);
        }
        Part::Written(_) => {}
    }
}

/// Appends the pairs of some items of a segment after their edits.
fn collect<'a>(
    leaf: Node<'a>,
    segment_index: usize,
    range: Range<usize>,
    edits: &[Edit<'a>],
    items: &mut Vec<Item<'a>>,
) {
    let shortcuts = Shortcuts::open(leaf);
    let segment = Segment::open(leaf, shortcuts.segment_start(segment_index), segment_index);
    let boundary_key = shortcuts.first_key(segment_index);
    items.reserve(2 * ITEM_COUNT_MAX);
    let mut next = range.start;
    for edit in edits {
        let index = usize::from(edit.position.index);
        segment.collect(boundary_key, next..index, items);
        items.extend(edit.item);
        next = index + usize::from(edit.is_exact);
    }
    segment.collect(boundary_key, next..range.end.min(segment.count()), items);
}
