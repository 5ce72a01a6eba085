//! Reading a leaf: one key, or all pairs in order, as of a version (Honeycomb, sections 3.3 and 4.3).

use super::frame::Node;
use super::lanes::equal;
use super::log::{BackPointer, DirectoryWord, Entry, LogOrder, read_delta};
use super::segment::{Item, Segment, Value};
use super::shortcut::{SegmentPlace, Shortcuts};
use super::trace::Trace;
use super::window::Target;
use crate::short;

/// The published entries of the log with this fingerprint, the oldest in bit 0.
#[inline(always)]
pub(super) fn log_candidates<T: Trace>(leaf: Node<'_, T>, fingerprint: u8) -> u32 {
    let published = (1_u32 << leaf.state().log_count()) - 1;
    equal(&leaf.log_fingerprints(), fingerprint) & published
}

/// The newest entry of the log for a key, of those up to a version. `candidates` are those that are looked at.
#[inline]
pub(super) fn find_in_log<'g, T: Trace>(
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

/// The value of a key as of a version at or above the leaf's.
#[inline]
pub(super) fn get<'g, T: Trace>(leaf: Node<'g, T>, key: &[u8], fingerprint: u8, version: u64) -> Option<Value<'g>> {
    let shortcuts = Shortcuts::open(leaf);
    let place = shortcuts.find(Target::AtOrBelow(key));
    shortcuts.announce_segment(place);
    if let Some(entry) = find_in_log(leaf, key, log_candidates(leaf, fingerprint), version) {
        return (!entry.word.flags.is_delete).then_some(entry.value);
    }
    get_sorted(leaf, place, key, fingerprint)
}

/// The value of a key in a segment of the sorted block.
#[inline]
pub(super) fn get_sorted<'g, T: Trace>(
    leaf: Node<'g, T>,
    place: SegmentPlace,
    key: &[u8],
    fingerprint: u8,
) -> Option<Value<'g>> {
    let index = usize::from(place.segment);
    let segment = Segment::open(leaf, usize::from(place.start), index);
    let mut candidates = segment.matching(fingerprint);
    while candidates != 0 {
        let item = candidates.trailing_zeros() as usize;
        candidates &= candidates - 1;
        let (mut found, value) = segment.pair(item);
        if item == 0 && index > 0 {
            found = item_key(Shortcuts::open(leaf), &segment, index, item);
        }
        if short::equal(found, key) {
            return Some(value);
        }
    }
    None
}

/// Where the sorted block has a key, or would have it.
pub(super) fn sorted_place<T: Trace>(leaf: Node<'_, T>, key: &[u8]) -> (BackPointer, bool) {
    let shortcuts = Shortcuts::open(leaf);
    let place = shortcuts.find(Target::AtOrBelow(key));
    let index = usize::from(place.segment);
    let segment = Segment::open(leaf, usize::from(place.start), index);
    let (mut low, mut high) = (0, segment.count());
    let mut is_exact = false;
    while low < high {
        let middle = (low + high) / 2;
        let order = item_key(shortcuts, &segment, index, middle).cmp(key);
        is_exact |= order.is_eq();
        if order.is_lt() { low = middle + 1 } else { high = middle }
    }
    (BackPointer { segment: index as u8, index: low as u8 }, is_exact)
}

/// The value of the item at a place of the sorted block.
pub(super) fn sorted_value<T: Trace>(leaf: Node<'_, T>, place: BackPointer) -> Value<'_> {
    let index = usize::from(place.segment);
    let segment = Segment::open(leaf, Shortcuts::open(leaf).segment_start(index), index);
    segment.value(usize::from(place.index))
}

/// How many log entries have a lower key than one whose place in the sorted block is `back`, and whether one has the same.
pub(super) fn log_rank<T: Trace>(leaf: Node<'_, T>, key: &[u8], back: BackPointer) -> (usize, bool) {
    let (mut rank, mut is_followed) = (0, false);
    for entry in 0..leaf.state().log_count() {
        let other = DirectoryWord::from_bits(leaf.log_word(entry)).back;
        // Between two places of the sorted block lies one of its items, so the keys are ordered as the places.
        let order = other.cmp(&back).then_with(|| Entry::read(leaf, entry).key.cmp(key));
        rank += usize::from(order.is_lt());
        is_followed |= order.is_eq();
    }
    (rank, is_followed)
}

/// The version of the last change of a leaf.
pub(super) fn newest_version<T: Trace>(leaf: Node<'_, T>) -> u64 {
    let last = leaf.state().log_count().checked_sub(1);
    leaf.version() + last.map_or(0, |last| read_delta(leaf, DirectoryWord::from_bits(leaf.log_word(last))))
}

/// The fingerprint of a published entry.
fn log_fingerprint<T: Trace>(leaf: Node<'_, T>, entry: usize) -> u8 {
    leaf.log_fingerprints()[entry]
}

#[inline]
fn item_key<'g, T: Trace>(
    shortcuts: Shortcuts<'g, T>,
    segment: &Segment<'g, T>,
    segment_index: usize,
    item: usize,
) -> &'g [u8] {
    match segment.key(item) {
        Some(key) => key,
        None => shortcuts.first_key(segment_index).expect("a segment without the key of item 0 has a boundary key"),
    }
}

/// The pairs of a leaf as of a version, in order.
#[derive(Debug)]
pub(super) struct LeafCursor<'g, T> {
    leaf: Node<'g, T>,
    shortcuts: Shortcuts<'g, T>,
    version: u64,
    order: LogOrder,
    /// The next entry in that order, and its word.
    place: usize,
    next: Option<DirectoryWord>,
    segment: Segment<'g, T>,
    segment_index: usize,
    /// The next item of the segment.
    item: usize,
}

impl<'g, T: Trace> LeafCursor<'g, T> {
    /// Begins with the first pair of a segment. The version is at or above the leaf's.
    #[inline]
    pub(super) fn new(leaf: Node<'g, T>, segment_index: usize, version: u64) -> Self {
        let shortcuts = Shortcuts::open(leaf);
        let order = LogOrder::read(leaf);
        let segment = Segment::open(leaf, shortcuts.segment_start(segment_index), segment_index);
        let mut place = 0;
        if segment_index > 0 {
            let back = |place| DirectoryWord::from_bits(leaf.log_word(order.entry(place))).back;
            while place < order.count() && usize::from(back(place).segment) < segment_index {
                place += 1;
            }
        }
        let next = next_word(leaf, order, place);
        LeafCursor { leaf, shortcuts, version, order, place, next, segment, segment_index, item: 0 }
    }

    /// The leaf.
    #[inline]
    pub(super) fn leaf(&self) -> Node<'g, T> {
        self.leaf
    }

    /// The next pair of the leaf.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Item<'g>> {
        loop {
            if let Some(item) = self.next_of_segment() {
                return Some(item);
            }
            if self.segment_index + 1 == self.shortcuts.segment_count() {
                return None;
            }
            self.segment_index += 1;
            let start = self.shortcuts.segment_start(self.segment_index);
            self.segment = Segment::open(self.leaf, start, self.segment_index);
            self.item = 0;
        }
    }

    /// The next pair of the segment, with the log entries that belong there.
    #[inline]
    pub(super) fn next_of_segment(&mut self) -> Option<Item<'g>> {
        loop {
            if let Some(word) = self.next
                && word.back == (BackPointer { segment: self.segment_index as u8, index: self.item as u8 })
            {
                let Some(entry) = self.newest_of_key() else { continue };
                // An entry with the item's key is the last one before the item, and stands for it.
                self.item += usize::from(word.flags.is_exact);
                let read = Entry::read(self.leaf, entry);
                if !read.word.flags.is_delete {
                    let fingerprint = log_fingerprint(self.leaf, entry);
                    return Some(Item { key: read.key, value: read.value, fingerprint });
                }
            } else if self.item < self.segment.count() {
                let item = self.item;
                self.item += 1;
                let (mut key, value) = self.segment.pair(item);
                if item == 0 && self.segment_index > 0 {
                    key = item_key(self.shortcuts, &self.segment, self.segment_index, item);
                }
                return Some(Item { key, value, fingerprint: self.segment.fingerprint(item) });
            } else {
                return None;
            }
        }
    }

    /// Passes the entries of the next key. The newest of those that can be seen.
    #[inline]
    fn newest_of_key(&mut self) -> Option<usize> {
        let mut newest = None;
        while let Some(word) = self.next {
            let entry = self.order.entry(self.place);
            self.place += 1;
            self.next = next_word(self.leaf, self.order, self.place);
            if newest.is_none() && self.leaf.version() + read_delta(self.leaf, word) <= self.version {
                newest = Some(entry);
            }
            if !word.flags.is_followed {
                break;
            }
        }
        newest
    }
}

/// The directory word of the entry at a place in order.
#[inline]
fn next_word<T: Trace>(leaf: Node<'_, T>, order: LogOrder, place: usize) -> Option<DirectoryWord> {
    (place < order.count()).then(|| DirectoryWord::from_bits(leaf.log_word(order.entry(place))))
}
