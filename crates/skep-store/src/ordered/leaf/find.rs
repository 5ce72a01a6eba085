//! Reading a leaf: one key as of a version (Honeycomb, sections 3.3 and 4.3).

use std::hint::select_unpredictable;

use super::super::key_head::Target;
use super::super::key_head::lanes::equal;
use super::super::node::frame::{Frame, Node};
use super::super::node::log::{BackPointer, DirectoryWord, Entry, read_delta};
use super::super::node::segment::SEGMENT_SIZE_GOAL;
use super::super::node::segment::{Segment, Spot, Value};
use super::super::node::shortcut::{SegmentPlace, Shortcuts};
use super::super::trace::Trace;
use crate::memory::LINE_SIZE;
use crate::short;

/// The published entries of the log with this fingerprint, the oldest in bit 0.
#[inline(always)]
pub(crate) fn log_candidates<T: Trace>(leaf: Node<'_, T>, fingerprint: u8) -> u32 {
    let published = (1_u32 << leaf.state().log_count()) - 1;
    equal(&leaf.log_fingerprints(), fingerprint) & published
}

/// The newest entry of the log for a key, of those up to a version. `candidates` are those that are looked at.
#[inline]
pub(crate) fn find_in_log<'g, T: Trace>(
    leaf: Node<'g, T>,
    key: &[u8],
    mut candidates: u32,
    version: u64,
) -> Option<Entry<'g>> {
    // Entries were made in the order of their versions.
    while candidates != 0 {
        let place = candidates.ilog2();
        candidates &= !(1 << place);
        let entry = Entry::read(leaf, place as usize);
        if short::equal(entry.key, key) && leaf.version() + entry.delta <= version {
            return Some(entry);
        }
    }
    None
}

/// The same for a reader: the value, if an entry puts one. Given what fits registers, so that callers write nothing to memory
/// for its sake.
#[inline(never)]
pub(crate) fn read_log<'g, T: Trace>(
    frame: Frame<'g, T>,
    key: &[u8],
    candidates: u32,
    version: u64,
) -> Option<Option<Value<'g>>> {
    let entry = find_in_log(frame.open(), key, candidates, version)?;
    Some((!entry.word.flags.is_delete).then_some(entry.value))
}

/// The value of a key as of a version at or above the leaf's.
#[inline(always)]
pub(crate) fn get<'g, T: Trace>(leaf: Node<'g, T>, key: &[u8], fingerprint: u8, version: u64) -> Option<Value<'g>> {
    let place = Shortcuts::open(leaf).find(Target::AtOrBelow(key));
    leaf.frame().prefetch_lines(usize::from(place.start), ANNOUNCED_LINES);
    let candidates = log_candidates(leaf, fingerprint);
    if candidates != 0
        && let Some(value) = read_log(leaf.frame(), key, candidates, version)
    {
        return value;
    }
    read_sorted(leaf, place, first_spot(leaf, place, fingerprint), key, fingerprint)
}

/// Lines of a segment that a single read prefetches, all of most segments: to look where it ends takes longer.
const ANNOUNCED_LINES: usize = SEGMENT_SIZE_GOAL / LINE_SIZE + 2;

/// Where the first item of a segment lies that may have a key.
#[inline(always)]
pub(crate) fn first_spot<T: Trace>(leaf: Node<'_, T>, place: SegmentPlace, fingerprint: u8) -> Spot {
    let segment = Segment::open(leaf, usize::from(place.start), usize::from(place.segment));
    match segment.matching(fingerprint) {
        0 => Spot::NONE,
        candidates => segment.spot(candidates.trailing_zeros() as usize),
    }
}

/// The value of a key in a segment of the sorted block, whose first spot is known.
#[inline(always)]
pub(crate) fn read_sorted<'g, T: Trace>(
    leaf: Node<'g, T>,
    place: SegmentPlace,
    first: Spot,
    key: &[u8],
    fingerprint: u8,
) -> Option<Value<'g>> {
    if first == Spot::NONE {
        return None;
    }
    let (found, value) = first.read(leaf);
    if short::equal(found, key) {
        return Some(value);
    }
    // A boundary key, or another with this fingerprint.
    search_segment(leaf.frame(), place, key, fingerprint)
}

/// The same by all items that may have it. Given what fits registers, so that callers write nothing to memory for its sake.
#[inline(never)]
fn search_segment<'g, T: Trace>(
    frame: Frame<'g, T>,
    place: SegmentPlace,
    key: &[u8],
    fingerprint: u8,
) -> Option<Value<'g>> {
    let index = usize::from(place.segment);
    let segment = Segment::open(frame.open(), usize::from(place.start), index);
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

/// Says that the place of a key will be looked for in a segment whose head is resident: prefetches the item that may have it, or
/// all of the segment.
#[inline]
pub(crate) fn prefetch_place<T: Trace>(leaf: Node<'_, T>, place: SegmentPlace, fingerprint: u8) {
    let (start, number) = (usize::from(place.start), usize::from(place.segment));
    let segment = Segment::open(leaf, start, number);
    let candidates = segment.matching(fingerprint);
    if number > 0 && candidates & 1 == 1 {
        Shortcuts::open(leaf).prefetch_boundary(number, segment.key_size());
    } else if candidates != 0 {
        let (offset, key_size, value_size) = segment.place(candidates.trailing_zeros() as usize);
        leaf.frame().prefetch(offset, key_size + value_size);
    } else {
        Shortcuts::open(leaf).prefetch_segment(number);
    }
}

/// Where the sorted block has a key, or would have it, in the segment that was found for it.
#[inline]
pub(crate) fn sorted_place<T: Trace>(
    leaf: Node<'_, T>,
    place: SegmentPlace,
    key: &[u8],
    fingerprint: u8,
) -> (BackPointer, bool) {
    let index = usize::from(place.segment);
    let segment = Segment::open(leaf, usize::from(place.start), index);
    let mut candidates = segment.matching(fingerprint);
    while candidates != 0 {
        let item = candidates.trailing_zeros() as usize;
        candidates &= candidates - 1;
        if short::equal(pair(&segment, index, item).0, key) {
            return (BackPointer { segment: index as u8, index: item as u8 }, true);
        }
    }
    // The boundary key is at or below any key that is looked for here.
    let first = usize::from(index > 0);
    if let Some((below, false)) = count_below(&segment, first, key) {
        return (BackPointer { segment: index as u8, index: (first + below) as u8 }, false);
    }
    let item = first_admitted(&segment, first, |other| !short::is_below(other, key));
    (BackPointer { segment: index as u8, index: item as u8 }, false)
}

/// The first item of a segment, from this one on, whose key is admitted, as are those of all behind it. The boundary key is
/// not looked at.
#[inline(always)]
fn first_admitted<T: Trace>(segment: &Segment<'_, T>, first: usize, admits: impl Fn(&[u8]) -> bool) -> usize {
    let run = segment.is_run_from(first).then(|| segment.place(first));
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

/// An item, `first` or one behind it: those from `first` up to there are below a key, and of those behind it only such can be
/// as have the key's first eight bytes.
#[inline(always)]
pub(crate) fn first_not_below<T: Trace>(segment: &Segment<'_, T>, first: usize, key: &[u8]) -> usize {
    match count_below(segment, first, key) {
        Some((below, _)) => first + below,
        None => first_admitted(segment, first, |other| !short::is_below(other, key)),
    }
}

/// How many items of a run from `first` on are below a key as far as their first eight bytes tell, if those do, and whether
/// others have the same. All are looked at: that is quicker than to guess which half they are in.
#[inline]
fn count_below<T: Trace>(segment: &Segment<'_, T>, first: usize, key: &[u8]) -> Option<(usize, bool)> {
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

/// The value of the item at a place of the sorted block.
pub(crate) fn sorted_value<T: Trace>(leaf: Node<'_, T>, place: BackPointer) -> Value<'_> {
    let index = usize::from(place.segment);
    let segment = Segment::open(leaf, Shortcuts::open(leaf).segment_start(index), index);
    segment.value(usize::from(place.index))
}

/// How many log entries have a lower key than one whose place in the sorted block is `back`, and whether one has the same.
#[inline]
pub(crate) fn log_rank<T: Trace>(leaf: Node<'_, T>, key: &[u8], back: BackPointer) -> (usize, bool) {
    let (own, mut rank, mut tied) = (back.rank(), 0, 0_u32);
    for (entry, word) in leaf.log_words().enumerate() {
        let other = BackPointer::rank_of(word);
        rank += usize::from(other < own);
        tied |= u32::from(other == own) << entry;
    }
    let mut is_followed = false;
    // Between two places of the sorted block lies one of its items, so other keys are ordered as their places.
    while tied != 0 {
        let order = Entry::read(leaf, tied.trailing_zeros() as usize).key.cmp(key);
        tied &= tied - 1;
        rank += usize::from(order.is_lt());
        is_followed |= order.is_eq();
    }
    (rank, is_followed)
}

/// The version of the last change of a leaf.
pub(crate) fn newest_version<T: Trace>(leaf: Node<'_, T>) -> u64 {
    let last = leaf.state().log_count().checked_sub(1);
    leaf.version() + last.map_or(0, |last| read_delta(leaf, DirectoryWord::from_bits(leaf.log_word(last))))
}

/// Key and value of an item, the boundary key from the shortcut block.
#[inline(always)]
pub(crate) fn pair<'g, T: Trace>(segment: &Segment<'g, T>, segment_index: usize, item: usize) -> (&'g [u8], Value<'g>) {
    let (mut key, value) = segment.pair(item);
    if item == 0
        && let Some(first) = Shortcuts::open(segment.node()).first_key(segment_index)
    {
        key = first;
    }
    (key, value)
}
