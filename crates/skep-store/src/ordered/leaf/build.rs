//! Builds a leaf: a sorted block, followed by room for a log block (Honeycomb, section 3.4).
//!
//! ```text
//! parts ─ plan ─▶ shortcut block │ segment │ segment ...     a part: a segment, kept or edited; or items
//! ```

use std::ops::Range;

use super::super::key_head::encoding::Encoding;
use super::super::memory::frame_state::SealedFrame;
use super::super::memory::number::{FRAME_SIZE_MAX, FRAME_UNITS_MAX, FrameNumber, Lid, UNIT_512_SIZE};
use super::super::node::builder::{FrameBuilder, Siblings};
use super::super::node::division::{Division, Measure};
use super::super::node::header::Extent;
use super::super::node::log::LogBlock;
use super::super::node::segment::{self, ITEM_COUNT_MAX, Item, SEGMENT_SIZE_GOAL};
use super::super::node::shortcut::{self, SEGMENT_ALIGNMENT, SEGMENT_COUNT_MAX};
use super::edit::{self, Edit};
use crate::memory::LINE_SIZE;

const MEASURE: Measure = Measure { goal: SEGMENT_SIZE_GOAL, entry_count_max: ITEM_COUNT_MAX };
/// Bytes of header, shortcut block and sorted block below which a leaf is joined with a neighbour.
pub(crate) const LEAF_SIZE_LOW: usize = 2048;
/// Most bytes of a leaf that two leaves are joined into.
pub(crate) const LEAF_SIZE_MERGED_MAX: usize = 6144;
const _: () = assert!(LEAF_SIZE_MERGED_MAX + LogBlock::SIZE_MAX <= FRAME_SIZE_MAX);

/// The source of a segment.
#[derive(Clone, Debug)]
pub(crate) enum Part<'a> {
    /// The segment with this index of the present leaf: its bytes and boundary key.
    Kept { segment_index: usize, bytes: &'a [u8], first_key: &'a [u8] },
    /// Some items of such a segment, and edits that give it this size. `first_key` is the key of the first of these
    /// items.
    Edited {
        segment_index: usize,
        bytes: &'a [u8],
        first_key: &'a [u8],
        items: Range<usize>,
        edits: Range<usize>,
        size: usize,
    },
    /// Items.
    Written(Range<usize>),
}

/// The source of a sorted block.
#[derive(Clone, Debug)]
pub(crate) struct Sorted<'a> {
    pub(crate) parts: Vec<Part<'a>>,
    pub(crate) items: Vec<Item<'a>>,
    pub(crate) edits: &'a [Edit<'a>],
}

impl<'a> Sorted<'a> {
    /// Divides pairs into segments of similar size. Fails with the pairs if they do not fit one leaf.
    pub(crate) fn divided(items: Vec<Item<'a>>) -> Result<Self, Vec<Item<'a>>> {
        let size = |index: usize| size_of_pair(&items[index]);
        let Some(division) = Division::new(items.len(), MEASURE, size, |index| items[index].key.len()) else {
            return Err(items);
        };
        let parts = (0..division.segment_count()).map(|segment| Part::Written(division.entries(segment))).collect();
        Ok(Sorted { parts, items, edits: &[] })
    }

    /// Returns the first key of a part that is not the leaf's first.
    fn first_key(&self, part: &Part<'a>) -> &'a [u8] {
        match part {
            Part::Kept { first_key, .. } | Part::Edited { first_key, .. } => first_key,
            Part::Written(items) => self.items[items.start].key,
        }
    }

    /// Returns the bytes of a part.
    pub(crate) fn size_of(&self, part: &Part<'_>, has_boundary: bool) -> usize {
        match part {
            Part::Kept { bytes, .. } => bytes.len(),
            Part::Edited { size, .. } => *size,
            Part::Written(items) => segment::size(&self.items[items.clone()], has_boundary),
        }
    }
}

/// The layout of parts in a leaf.
#[derive(Clone, Debug)]
pub(crate) struct LeafPlan<'a> {
    sorted: Sorted<'a>,
    starts: [usize; SEGMENT_COUNT_MAX],
    /// The offset of the log block.
    end: usize,
    log_block: LogBlock,
}

impl<'a> LeafPlan<'a> {
    /// Plans a leaf with room for a log block. Fails with the sorted block if it is too large.
    pub(crate) fn new(sorted: Sorted<'a>, log_block: LogBlock) -> Result<Self, Sorted<'a>> {
        let firsts = sorted.parts[1..].iter().map(|part| sorted.first_key(part));
        let mut end = shortcut::end_of_boundaries(firsts).expect("boundary keys fit");
        let mut starts = [0; SEGMENT_COUNT_MAX];
        for (segment, (part, start)) in sorted.parts.iter().zip(&mut starts).enumerate() {
            *start = end.next_multiple_of(SEGMENT_ALIGNMENT);
            end = *start + sorted.size_of(part, segment > 0);
        }
        let end = end.next_multiple_of(LINE_SIZE);
        if end + log_block.size() > FRAME_SIZE_MAX {
            return Err(sorted);
        }
        Ok(LeafPlan { sorted, starts, end, log_block })
    }

    /// Plans a leaf of these pairs, in segments of similar size. Fails with the pairs if they do not fit one leaf.
    pub(crate) fn of_pairs(items: Vec<Item<'a>>, log_block: LogBlock) -> Result<Self, Vec<Item<'a>>> {
        LeafPlan::new(Sorted::divided(items)?, log_block).map_err(|sorted| sorted.items)
    }

    /// Returns the pairs of a plan that was made of pairs.
    pub(crate) fn pairs(&self) -> &[Item<'a>] {
        &self.sorted.items
    }

    /// Returns the bytes of header, shortcut block and sorted block.
    pub(crate) fn size(&self) -> usize {
        self.end
    }

    /// Returns the units of the leaf's frame.
    pub(crate) fn units(&self) -> usize {
        units(self.end, self.log_block)
    }

    /// Writes the leaf.
    pub(crate) fn build(
        &self,
        mut frame: FrameBuilder<'_>,
        lid: Lid,
        encoding: Encoding,
        siblings: Siblings,
        old: Option<FrameNumber>,
    ) -> SealedFrame {
        let sorted = &self.sorted;
        let count = sorted.parts.len();
        let mut firsts = [&[][..]; SEGMENT_COUNT_MAX];
        for (first, part) in firsts.iter_mut().zip(&sorted.parts[1..]) {
            *first = sorted.first_key(part);
        }
        let key_head = |key: &[u8]| encoding.key_head(key);
        shortcut::write(frame.bytes(), encoding, key_head, &firsts[..count - 1], &self.starts[..count]);
        for (index, (part, start)) in sorted.parts.iter().zip(&self.starts).enumerate() {
            let to = &mut frame.bytes()[*start..];
            match part {
                Part::Written(items) => segment::write(to, &sorted.items[items.clone()], index > 0),
                Part::Kept { bytes, .. } => to[..bytes.len()].copy_from_slice(bytes),
                Part::Edited { segment_index, bytes, items, edits, .. } => {
                    edit::write(to, bytes, *segment_index > 0, items.clone(), &sorted.edits[edits.clone()]);
                }
            }
        }
        frame.seal_leaf(lid, Extent::new(old, self.end, encoding), siblings)
    }
}

/// Returns the units of a leaf whose sorted block ends at `end`. A leaf that has grown while memory was full may have
/// less room for its log.
pub(crate) fn units(end: usize, log_block: LogBlock) -> usize {
    (end + log_block.size()).div_ceil(UNIT_512_SIZE).min(FRAME_UNITS_MAX)
}

/// Returns the size of a pair for the division into segments.
pub(crate) fn size_of_pair(item: &Item<'_>) -> usize {
    item.key.len() + item.value.bytes.len() + 1
}
