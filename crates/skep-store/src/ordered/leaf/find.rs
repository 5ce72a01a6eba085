//! Searches a leaf for one key, as of a version (Honeycomb, sections 3.3 and 4.3).

use std::hint::select_unpredictable;

use super::super::key_head::Target;
use super::super::key_head::lanes::{Ranks, equal};
use super::super::node::frame::{Frame, LockedNode, Node};
use super::super::node::log::{BackPointer, DirectoryWord, Entry, read_delta};
use super::super::node::segment::{ItemPosition, SEGMENT_SIZE_GOAL, Segment};
use super::super::node::shortcut::{SegmentPosition, Shortcuts};
use super::super::node::value::Value;
use crate::memory::LINE_SIZE;
use crate::short;

/// Returns a bit for each published log entry with this fingerprint, the oldest lowest.
#[inline(always)]
pub(crate) fn log_candidates(leaf: Node<'_>, fingerprint: u8) -> u32 {
    let published = (1_u32 << leaf.state().log_count()) - 1;
    equal(&leaf.log_fingerprints(), fingerprint) & published
}

/// Returns the newest log entry of a key up to a version, among `candidates`.
#[inline]
pub(crate) fn find_in_log<'g>(leaf: Node<'g>, key: &[u8], mut candidates: u32, version: u64) -> Option<Entry<'g>> {
    // Entries were made in the order of their versions.
    while candidates != 0 {
        let newest = candidates.ilog2();
        candidates &= !(1 << newest);
        let entry = Entry::read(leaf, newest as usize);
        if short::equal(entry.key, key) && leaf.version() + entry.delta <= version {
            return Some(entry);
        }
    }
    None
}

/// Does the same for a reader: returns the value, or `None` within `Some` for a delete. The arguments fit registers, so
/// callers need not write to memory for this call.
#[inline(never)]
pub(crate) fn read_log<'g>(frame: Frame<'g>, key: &[u8], candidates: u32, version: u64) -> Option<Option<Value<'g>>> {
    let entry = find_in_log(frame.open(), key, candidates, version)?;
    Some((!entry.word.flags.is_delete).then_some(entry.value))
}

/// Returns the value of a key as of a version that is not below the leaf's.
#[inline(always)]
pub(crate) fn get<'g>(leaf: Node<'g>, key: &[u8], fingerprint: u8, version: u64) -> Option<Value<'g>> {
    let position = Shortcuts::open(leaf).find(Target::AtOrBelow(key));
    prefetch_segment(leaf, position);
    let candidates = log_candidates(leaf, fingerprint);
    if candidates != 0
        && let Some(value) = read_log(leaf.frame(), key, candidates, version)
    {
        return value;
    }
    read_sorted(leaf, position, first_item_position(leaf, position, fingerprint), key, fingerprint)
}

/// Lines of a segment that a single read prefetches: all of most segments. To look up the segment's end takes longer.
const PREFETCHED_LINES: usize = SEGMENT_SIZE_GOAL / LINE_SIZE + 2;

/// The first item of a segment that may have a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstItem {
    /// Its position, [`ItemPosition::NONE`] if no item may have the key.
    pub(crate) position: ItemPosition,
    /// Its index in the segment.
    pub(crate) index: u8,
}

impl FirstItem {
    /// No item may have the key.
    pub(crate) const NONE: FirstItem = FirstItem { position: ItemPosition::NONE, index: 0 };
}

/// Returns the first item of a segment that may have a key.
#[inline(always)]
pub(crate) fn first_item(leaf: Node<'_>, position: SegmentPosition, fingerprint: u8) -> FirstItem {
    let segment = Segment::open(leaf, usize::from(position.start), usize::from(position.segment));
    match segment.matching(fingerprint) {
        0 => FirstItem::NONE,
        candidates => {
            let index = candidates.trailing_zeros();
            FirstItem { position: segment.item_position(index as usize), index: index as u8 }
        }
    }
}

/// Returns the position of the first item of a segment that may have a key.
#[inline(always)]
pub(crate) fn first_item_position(leaf: Node<'_>, position: SegmentPosition, fingerprint: u8) -> ItemPosition {
    first_item(leaf, position, fingerprint).position
}

/// Returns the value of a key in a segment. `first` is the position of the first candidate.
#[inline(always)]
pub(crate) fn read_sorted<'g>(
    leaf: Node<'g>,
    position: SegmentPosition,
    first: ItemPosition,
    key: &[u8],
    fingerprint: u8,
) -> Option<Value<'g>> {
    if !first.exists() {
        return None;
    }
    let (found, value) = first.read(leaf);
    if short::equal(found, key) {
        return Some(value);
    }
    // A boundary key, or another key with this fingerprint.
    search_segment(leaf.frame(), position, key, fingerprint)
}

/// Does the same with all candidates. The arguments fit registers, so callers need not write to memory for this call.
#[inline(never)]
fn search_segment<'g>(frame: Frame<'g>, position: SegmentPosition, key: &[u8], fingerprint: u8) -> Option<Value<'g>> {
    let index = usize::from(position.segment);
    let segment = Segment::open(frame.open(), usize::from(position.start), index);
    let mut candidates = segment.matching(fingerprint);
    while candidates != 0 {
        let item = candidates.trailing_zeros() as usize;
        candidates &= candidates - 1;
        let (found, value) = pair(&segment, index, item);
        if short::equal(found, key) {
            return Some(value);
        }
    }
    None
}

/// Prefetches the item that may have a key, or all of the segment. The segment's head is resident.
#[inline(always)]
pub(crate) fn prefetch_item(leaf: Node<'_>, position: SegmentPosition, item: FirstItem) {
    let FirstItem { position: ItemPosition { offset, key_size, value_size, .. }, index } = item;
    if !item.position.exists() {
        Shortcuts::open(leaf).prefetch_segment(usize::from(position.segment));
        return;
    }
    leaf.frame().prefetch(usize::from(offset), usize::from(key_size) + usize::from(value_size));
    if index == 0 && position.segment > 0 {
        let segment = Segment::open(leaf, usize::from(position.start), usize::from(position.segment));
        Shortcuts::open(leaf).prefetch_boundary(usize::from(position.segment), segment.key_size());
    }
}

/// Prefetches all of most segments.
#[inline(always)]
pub(crate) fn prefetch_segment(leaf: Node<'_>, position: SegmentPosition) {
    leaf.frame().prefetch_lines(usize::from(position.start), PREFETCHED_LINES);
}

/// The position of a key in the sorted block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SortedPosition {
    /// The item with the key, or else with the next greater one.
    pub(crate) back: BackPointer,
    /// True if that item has the key.
    pub(crate) is_exact: bool,
}

/// Returns the position of a key in the sorted block, in the segment that was found for it. `first` is the first item
/// that may have the key.
#[inline(always)]
pub(crate) fn sorted_position(
    leaf: Node<'_>,
    position: SegmentPosition,
    first: FirstItem,
    key: &[u8],
    fingerprint: u8,
) -> SortedPosition {
    if first.position.exists() && short::equal(first.position.read(leaf).0, key) {
        let back = BackPointer { segment: position.segment as u8, index: first.index };
        return SortedPosition { back, is_exact: true };
    }
    search_sorted(leaf.frame(), position, key, fingerprint)
}

/// Does the same without knowing an item. The arguments fit registers, so callers need not write to memory for this
/// call.
#[inline(never)]
pub(crate) fn search_sorted(
    frame: Frame<'_>,
    position: SegmentPosition,
    key: &[u8],
    fingerprint: u8,
) -> SortedPosition {
    let (leaf, index) = (frame.open(), usize::from(position.segment));
    let segment = Segment::open(leaf, usize::from(position.start), index);
    let mut candidates = segment.matching(fingerprint);
    while candidates != 0 {
        let item = candidates.trailing_zeros() as usize;
        candidates &= candidates - 1;
        if short::equal(pair(&segment, index, item).0, key) {
            return SortedPosition { back: BackPointer { segment: index as u8, index: item as u8 }, is_exact: true };
        }
    }
    // The boundary key is at or below any key that is searched for in its segment.
    let first = usize::from(index > 0);
    if let Some((below, false)) = count_below(&segment, first, key) {
        let back = BackPointer { segment: index as u8, index: (first + below) as u8 };
        return SortedPosition { back, is_exact: false };
    }
    let item = first_admitted(&segment, first, |other| !short::is_below(other, key));
    SortedPosition { back: BackPointer { segment: index as u8, index: item as u8 }, is_exact: false }
}

/// Returns the first item, from `first` on, whose key is admitted. All items after it are admitted too. The boundary
/// key is not compared.
#[inline(always)]
fn first_admitted(segment: &Segment<'_>, first: usize, admits: impl Fn(&[u8]) -> bool) -> usize {
    let run = segment.is_run_from(first).then(|| segment.layout(first));
    let key_of = |item| match run {
        Some((start, key_size, value_size)) => {
            segment.node().read(start + (item - first) * (key_size + value_size), key_size)
        }
        None => segment.pair(item).0,
    };
    let (mut low, mut high) = (first, segment.count());
    while low < high {
        let middle = (low + high) / 2;
        let is_admitted = admits(key_of(middle));
        high = select_unpredictable(is_admitted, middle, high);
        low = select_unpredictable(is_admitted, low, middle + 1);
    }
    low
}

/// Returns an item at or after `first`. The items before it are below a key; the items from it on are only below if
/// they have the key's first eight bytes.
#[inline(always)]
pub(crate) fn first_not_below(segment: &Segment<'_>, first: usize, key: &[u8]) -> usize {
    match count_below(segment, first, key) {
        Some((below, _)) => first + below,
        None => first_admitted(segment, first, |other| !short::is_below(other, key)),
    }
}

/// Counts the items of a run from `first` on that are below a key by their first eight bytes. The flag is true if
/// others have the same eight bytes. Returns `None` if eight bytes do not exist. All items are compared, which is
/// faster than guessing the half.
#[inline]
fn count_below(segment: &Segment<'_>, first: usize, key: &[u8]) -> Option<(usize, bool)> {
    let own = u64::from_be_bytes(*key.first_chunk()?);
    if first >= segment.count() || !segment.is_run_from(first) {
        return None;
    }
    let (mut run, key_size, pair_size) = segment.run(first, segment.count());
    if key_size < size_of_val(&own) {
        return None;
    }
    let (mut below, mut is_tied) = (0, false);
    while let Some((pair, others)) = run.split_at_checked(pair_size) {
        let other = pair.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        below += usize::from(other < own);
        is_tied |= other == own;
        run = others;
    }
    Some((below, is_tied))
}

/// Returns the value of an item of the sorted block.
pub(crate) fn sorted_value(leaf: Node<'_>, position: BackPointer) -> Value<'_> {
    let index = usize::from(position.segment);
    let segment = Segment::open(leaf, Shortcuts::open(leaf).segment_start(index), index);
    segment.value(usize::from(position.index))
}

/// The place of an entry among those of a log, in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogRank {
    /// Number of entries with a lower key.
    pub(crate) below: usize,
    /// True if an entry has the same key.
    pub(crate) is_followed: bool,
}

/// Finds the place of a key in the log of a locked leaf. `back` is the back pointer that its entry has.
#[inline(always)]
pub(crate) fn log_rank(locked: &LockedNode<'_>, key: &[u8], back: BackPointer) -> LogRank {
    let leaf = locked.node();
    let published = (1 << leaf.state().log_count()) - 1;
    let Ranks { below, equal } = back.compare(locked.directory_words());
    let below = (below & published).count_ones() as usize;
    let mut tied = equal & published;
    let mut rank = LogRank { below, is_followed: false };
    // Different back pointers have an item of the sorted block between them, so their keys have the same order.
    while tied != 0 {
        let order = Entry::read(leaf, tied.trailing_zeros() as usize).key.cmp(key);
        tied &= tied - 1;
        rank.below += usize::from(order.is_lt());
        rank.is_followed |= order.is_eq();
    }
    rank
}

/// Returns the version of the last change of a leaf.
pub(crate) fn newest_version(leaf: Node<'_>) -> u64 {
    let last = leaf.state().log_count().checked_sub(1);
    leaf.version() + last.map_or(0, |last| read_delta(leaf, DirectoryWord::from_bits(leaf.log_word(last))))
}

/// Returns key and value of an item. The boundary key is read from the shortcut block.
#[inline(always)]
pub(crate) fn pair<'g>(segment: &Segment<'g>, segment_index: usize, item: usize) -> (&'g [u8], Value<'g>) {
    let (mut key, value) = segment.pair(item);
    if item == 0
        && let Some(first) = Shortcuts::open(segment.node()).first_key(segment_index)
    {
        key = first;
    }
    (key, value)
}
