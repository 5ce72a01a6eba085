//! Building a leaf: pairs in order become a sorted block, with room for a log block behind it (Honeycomb, section 3.4).
//!
//! ```text
//! pairs in order  ─ plan ─▶ shortcut block │ segment │ segment ...     keys come or go, or sizes change
//! leaf, log       ─ patches ─▶ the same sorted block, other values     all of the log has new values of the same sizes
//! ```

use super::division::{Division, Measure};
use super::frame::{FRAME_SIZE_MAX, FrameBuilder, FrameNumber, GRANULE_SIZE, LOG_COUNT_MAX, Node, SealedFrame};
use super::header::{Extent, Lid};
use super::log::{BackPointer, Entry, LogBlock};
use super::segment::{self, ITEM_COUNT_MAX, Item, Segment, Value};
use super::shortcut::{self, SEGMENT_ALIGNMENT, SEGMENT_COUNT_MAX, Shortcuts};
use super::trace::Trace;
use super::write::NewEntry;
use crate::memory::LINE_SIZE;
use crate::short;

/// Segments of 256 bytes at least, as in the paper: the goal is above it, since they end with the item that reaches it.
const MEASURE: Measure = Measure { goal: 320, entry_count_max: ITEM_COUNT_MAX };
/// Bytes of a sorted block, with header and shortcut block, below which a leaf is put together with a neighbour.
pub(super) const LEAF_SIZE_LOW: usize = 2048;
/// Bytes up to which two leaves become one.
pub(super) const LEAF_SIZE_MERGED_MAX: usize = 6144;
const _: () = assert!(LEAF_SIZE_MERGED_MAX + LogBlock::SIZE_MAX <= FRAME_SIZE_MAX);

/// How pairs lie in a leaf.
#[derive(Clone, Debug)]
pub(super) struct LeafPlan {
    division: Division,
    starts: [usize; SEGMENT_COUNT_MAX],
    /// Where the log block begins.
    end: usize,
    log_block: LogBlock,
}

impl LeafPlan {
    /// Plans a leaf of these pairs with room for a log block, or says that they do not fit one.
    pub(super) fn new(items: &[Item<'_>], log_block: LogBlock) -> Option<Self> {
        let size = |place: usize| items[place].key.len() + items[place].value.bytes.len() + 1;
        let division = Division::new(items.len(), MEASURE, size, |place| items[place].key.len())?;
        let firsts = (1..division.segment_count()).map(|segment| items[division.first(segment)].key);
        let mut end = shortcut::end_of_boundaries(firsts)?;
        let mut starts = [0; SEGMENT_COUNT_MAX];
        for (segment, start) in starts.iter_mut().enumerate().take(division.segment_count()) {
            *start = end.next_multiple_of(SEGMENT_ALIGNMENT);
            end = *start + segment::size(&items[division.entries(segment)], segment > 0);
        }
        let end = end.next_multiple_of(LINE_SIZE);
        (end + log_block.size() <= FRAME_SIZE_MAX).then_some(LeafPlan { division, starts, end, log_block })
    }

    /// Bytes of header, shortcut block and sorted block.
    pub(super) fn size(&self) -> usize {
        self.end
    }

    /// Granules that the leaf takes.
    pub(super) fn granules(&self) -> usize {
        (self.end + self.log_block.size()).div_ceil(GRANULE_SIZE)
    }

    /// Writes the leaf.
    pub(super) fn build(
        &self,
        mut frame: FrameBuilder<'_>,
        lid: Lid,
        prefix_size: usize,
        items: &[Item<'_>],
        siblings: (Option<Lid>, Option<Lid>),
        old: Option<FrameNumber>,
    ) -> SealedFrame {
        let count = self.division.segment_count();
        let mut firsts = [&[][..]; SEGMENT_COUNT_MAX];
        for segment in 1..count {
            firsts[segment - 1] = items[self.division.first(segment)].key;
        }
        shortcut::write(frame.bytes(), prefix_size, &firsts[..count - 1], &self.starts[..count]);
        for segment in 0..count {
            let items = &items[self.division.entries(segment)];
            segment::write(&mut frame.bytes()[self.starts[segment]..], items, segment > 0);
        }
        frame.seal_node(lid, 0, Extent { old, log_start: self.end as u16 }, siblings)
    }
}

/// Values that take the places of others in a sorted block, the newest last.
#[derive(Debug)]
pub(super) struct Patches<'a> {
    /// Where each begins in the frame.
    values: [(u16, &'a [u8]); LOG_COUNT_MAX + 1],
    count: usize,
    /// Where the log block begins.
    end: usize,
    log_block: LogBlock,
}

impl<'a> Patches<'a> {
    /// What the log of a leaf and a new entry change, if it is nothing but values of the same sizes. `place` is the entry's
    /// in the sorted block, and whether the key is there.
    pub(super) fn new<T: Trace>(
        leaf: Node<'a, T>,
        new: &NewEntry<'a>,
        (back, is_exact): (BackPointer, bool),
        log_block: LogBlock,
    ) -> Option<Self> {
        let end = leaf.log_start();
        let mut patches = Patches { values: [(0, &[]); LOG_COUNT_MAX + 1], count: 0, end, log_block };
        let shortcuts = Shortcuts::open(leaf);
        for number in 0..leaf.state().log_count() {
            let entry = Entry::read(leaf, number);
            let flags = entry.word.flags;
            if !flags.is_exact || flags.is_delete {
                return None;
            }
            patches.add(shortcuts, leaf, entry.word.back, entry.value)?;
        }
        if !is_exact {
            return None;
        }
        patches.add(shortcuts, leaf, back, new.value?)?;
        Some(patches)
    }

    fn add<T: Trace>(
        &mut self,
        shortcuts: Shortcuts<'a, T>,
        leaf: Node<'a, T>,
        back: BackPointer,
        value: Value<'a>,
    ) -> Option<()> {
        let (index, item) = (usize::from(back.segment), usize::from(back.index));
        let segment = Segment::open(leaf, shortcuts.segment_start(index), index);
        let (offset, key_size, value_size) = segment.place(item);
        // A reference that is dropped has frames that must be given back.
        if value.bytes.len() != value_size || value.is_outside || segment.is_outside(item) {
            return None;
        }
        self.values[self.count] = ((offset + key_size) as u16, value.bytes);
        self.count += 1;
        Some(())
    }

    /// Granules that the leaf takes.
    pub(super) fn granules(&self) -> usize {
        (self.end + self.log_block.size()).div_ceil(GRANULE_SIZE)
    }

    /// Writes the leaf anew.
    pub(super) fn build<T: Trace>(&self, mut frame: FrameBuilder<'_>, leaf: Node<'_, T>) -> SealedFrame {
        let bytes = &mut frame.bytes()[..self.end];
        bytes[LINE_SIZE..].copy_from_slice(leaf.read(LINE_SIZE, self.end - LINE_SIZE));
        for (offset, value) in &self.values[..self.count] {
            short::overwrite(&mut bytes[usize::from(*offset)..][..value.len()], value);
        }
        let extent = Extent { old: Some(leaf.number()), log_start: self.end as u16 };
        frame.seal_node(leaf.lid(), 0, extent, (leaf.left(), leaf.right()))
    }
}
