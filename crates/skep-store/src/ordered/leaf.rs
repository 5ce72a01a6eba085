//! Reading a leaf: one key, or all pairs in order, as of a version (Honeycomb, sections 3.3 and 4.3).

use super::frame::Node;
use super::lanes::equal;
use super::log::{self, BackPointer, DirectoryWord, Entry, LogOrder, read_delta};
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
    shortcuts.announce_segment(usize::from(place.segment));
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
pub(super) fn sorted_place<T: Trace>(leaf: Node<'_, T>, key: &[u8], fingerprint: u8) -> (BackPointer, bool) {
    let shortcuts = Shortcuts::open(leaf);
    let place = shortcuts.find(Target::AtOrBelow(key));
    let index = usize::from(place.segment);
    shortcuts.announce_segment(index);
    let segment = Segment::open(leaf, usize::from(place.start), index);
    let mut candidates = segment.matching(fingerprint);
    while candidates != 0 {
        let item = candidates.trailing_zeros() as usize;
        candidates &= candidates - 1;
        if short::equal(item_key(shortcuts, &segment, index, item), key) {
            return (BackPointer { segment: index as u8, index: item as u8 }, true);
        }
    }
    // The boundary key is at or below any key that is looked for here.
    let (mut low, mut high) = (usize::from(index > 0), segment.count());
    if let Some(below) = count_below(leaf, &segment, low, key) {
        return (BackPointer { segment: index as u8, index: (low + below) as u8 }, false);
    }
    while low < high {
        let middle = (low + high) / 2;
        let is_below = short::is_below(item_key(shortcuts, &segment, index, middle), key);
        if is_below { low = middle + 1 } else { high = middle }
    }
    (BackPointer { segment: index as u8, index: low as u8 }, false)
}

/// How many items of a run from `first` on are below a key, if their first eight bytes tell. All are looked at: that is
/// quicker than to guess which half they are in.
#[inline]
fn count_below<T: Trace>(leaf: Node<'_, T>, segment: &Segment<'_, T>, first: usize, key: &[u8]) -> Option<usize> {
    let own = u64::from_be_bytes(*key.first_chunk()?);
    if first >= segment.count() || !segment.is_run_from(first) {
        return None;
    }
    let (offset, key_size, value_size) = segment.place(first);
    if key_size < size_of_val(&own) {
        return None;
    }
    let pair_size = key_size + value_size;
    let (mut below, mut is_tied) = (0, false);
    for pair in leaf.read(offset, (segment.count() - first) * pair_size).chunks_exact(pair_size) {
        let other = pair.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        below += usize::from(other < own);
        is_tied |= other == own;
    }
    (!is_tied).then_some(below)
}

/// The value of the item at a place of the sorted block.
pub(super) fn sorted_value<T: Trace>(leaf: Node<'_, T>, place: BackPointer) -> Value<'_> {
    let index = usize::from(place.segment);
    let segment = Segment::open(leaf, Shortcuts::open(leaf).segment_start(index), index);
    segment.value(usize::from(place.index))
}

/// How many log entries have a lower key than one whose place in the sorted block is `back`, and whether one has the same.
#[inline]
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
///
/// Between log entries the items of a uniform segment are a run: one lies behind the other, and nothing is to be decided.
#[derive(Debug)]
pub(super) struct LeafCursor<'g, T> {
    leaf: Node<'g, T>,
    version: u64,
    order: LogOrder,
    /// The next entry in that order, its word, and the item of the segment before which it stands: none if it is in a later
    /// segment.
    place: usize,
    entry_word: Option<DirectoryWord>,
    entry_item: usize,
    /// The next entry in order that was not announced.
    place_announced: usize,
    segment: Segment<'g, T>,
    segment_index: usize,
    /// The next item of the segment, the end of its run, and where it begins if it is in one.
    item: usize,
    run_end: usize,
    offset: usize,
    key_size: usize,
    pair_size: usize,
}

/// In the place of an item that no segment has.
const NO_ITEM: usize = usize::MAX;
/// Segments for which entries are announced ahead.
const SEGMENTS_AHEAD: usize = 2;

impl<'g, T: Trace> LeafCursor<'g, T> {
    /// Says that a cursor will begin with this segment. The lines of header and shortcut index are at hand.
    #[inline(always)]
    pub(super) fn announce(leaf: Node<'g, T>, segment: usize) {
        if leaf.state().log_count() > 0 {
            leaf.frame().announce_line(leaf.log_start());
        }
        Shortcuts::open(leaf).announce_segment(segment);
    }

    /// Says that the cursor will go on: announces the boundary key of its segment, what is behind that, another segment or
    /// the leaf to the right, and the log entries that come soon. To be called when the cursor comes to a segment.
    #[inline(always)]
    pub(super) fn announce_ahead(&mut self) {
        let shortcuts = Shortcuts::open(self.leaf);
        if self.segment_index > 0 {
            shortcuts.announce_boundary(self.segment_index, self.segment.key_size());
        }
        if self.segment_index + 1 < shortcuts.segment_count() {
            shortcuts.announce_segment(self.segment_index + 1);
        } else {
            self.leaf.announce_right();
        }
        while self.place_announced < self.order.count()
            && self.order.segment(self.leaf, self.place_announced) <= self.segment_index + SEGMENTS_AHEAD
        {
            log::announce(self.leaf, self.order.entry(self.place_announced));
            self.place_announced += 1;
        }
    }

    /// Begins with the first pair of a segment. The version is at or above the leaf's.
    #[inline]
    pub(super) fn new(leaf: Node<'g, T>, segment_index: usize, version: u64) -> Self {
        let shortcuts = Shortcuts::open(leaf);
        let order = LogOrder::read(leaf);
        let segment = Segment::open(leaf, shortcuts.segment_start(segment_index), segment_index);
        let mut place = 0;
        if segment_index > 0 {
            while place < order.count() && order.segment(leaf, place) < segment_index {
                place += 1;
            }
        }
        let mut cursor = LeafCursor {
            leaf,
            version,
            order,
            place,
            entry_word: None,
            entry_item: NO_ITEM,
            place_announced: place,
            segment,
            segment_index,
            item: 0,
            run_end: 0,
            offset: 0,
            key_size: 0,
            pair_size: 0,
        };
        cursor.begin_segment();
        cursor
    }

    /// The leaf.
    #[inline]
    pub(super) fn leaf(&self) -> Node<'g, T> {
        self.leaf
    }

    /// The next pair of the leaf.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<Item<'g>> {
        loop {
            if let Some(item) = self.next_of_segment() {
                return Some(item);
            }
            if !self.next_segment() {
                return None;
            }
            self.announce_ahead();
        }
    }

    /// Goes on to the next segment, if there is one.
    #[inline]
    pub(super) fn next_segment(&mut self) -> bool {
        let shortcuts = Shortcuts::open(self.leaf);
        let next = self.segment_index + 1;
        if next == shortcuts.segment_count() {
            return false;
        }
        self.segment_index = next;
        self.segment = Segment::open(self.leaf, shortcuts.segment_start(next), next);
        self.begin_segment();
        true
    }

    /// The next pair of the segment, with the log entries that belong there.
    #[inline(always)]
    pub(super) fn next_of_segment(&mut self) -> Option<Item<'g>> {
        if self.item == self.run_end {
            return self.next_beside_run();
        }
        let (key, bytes) = self.leaf.read(self.offset, self.pair_size).split_at(self.key_size);
        let item = self.item;
        self.item += 1;
        self.offset += self.pair_size;
        let value = Value { bytes, is_outside: self.segment.is_outside(item) };
        Some(Item { key, value, fingerprint: self.segment.fingerprint(item) })
    }

    /// Shows the pairs of the segment that are left, with the log entries that belong there, until `visit` answers false.
    /// Whether it never did.
    #[inline(always)]
    pub(super) fn visit_segment(&mut self, mut visit: impl FnMut(Item<'g>) -> bool) -> bool {
        loop {
            if self.item < self.run_end {
                let run = self.leaf.read(self.offset, (self.run_end - self.item) * self.pair_size);
                let (key_size, outside, mut number) = (self.key_size, self.segment.outside(), self.item);
                self.item = self.run_end;
                for pair in run.chunks_exact(self.pair_size) {
                    let (key, bytes) = pair.split_at(key_size);
                    let value = Value { bytes, is_outside: outside >> number & 1 == 1 };
                    let fingerprint = self.segment.fingerprint(number);
                    number += 1;
                    if !visit(Item { key, value, fingerprint }) {
                        return false;
                    }
                }
            }
            if self.entry_item == NO_ITEM && self.item == self.segment.count() {
                return true;
            }
            match self.next_beside_run() {
                None => return true,
                Some(item) if !visit(item) => return false,
                Some(_) => {}
            }
        }
    }

    /// A pair of the log, a boundary key's, or one of a varied segment.
    #[inline(never)]
    fn next_beside_run(&mut self) -> Option<Item<'g>> {
        loop {
            if self.item == self.entry_item {
                let is_exact = self.entry_word.is_some_and(|word| word.flags.is_exact);
                let newest = self.newest_of_key();
                if newest.is_some() {
                    // An entry with the item's key is the last one before the item, and stands for it.
                    self.item += usize::from(is_exact);
                }
                self.find_entry();
                self.begin_run();
                let Some((entry, word)) = newest else { continue };
                if !word.flags.is_delete {
                    let Entry { key, value, .. } = Entry::of_word(self.leaf, word);
                    return Some(Item { key, value, fingerprint: log_fingerprint(self.leaf, entry) });
                }
            } else if self.item < self.segment.count() {
                let item = self.item;
                let (mut key, value) = self.segment.pair(item);
                if item == 0 && self.segment_index > 0 {
                    key = item_key(Shortcuts::open(self.leaf), &self.segment, self.segment_index, item);
                }
                self.item += 1;
                self.begin_run();
                return Some(Item { key, value, fingerprint: self.segment.fingerprint(item) });
            } else {
                return None;
            }
        }
    }

    #[inline]
    fn begin_segment(&mut self) {
        self.item = 0;
        self.find_entry();
        self.begin_run();
    }

    /// Finds out where the next entry stands.
    #[inline]
    fn find_entry(&mut self) {
        let word = (self.place < self.order.count()).then(|| self.order.word(self.leaf, self.place));
        self.entry_item = match word {
            Some(word) if usize::from(word.back.segment) == self.segment_index => usize::from(word.back.index),
            _ => NO_ITEM,
        };
        self.entry_word = word;
    }

    /// Finds out whether the items up to the next entry can be read in a row.
    #[inline]
    fn begin_run(&mut self) {
        self.run_end = self.item;
        if self.item < self.segment.count() && self.segment.is_run_from(self.item) {
            let (offset, key_size, value_size) = self.segment.place(self.item);
            (self.offset, self.key_size, self.pair_size) = (offset, key_size, key_size + value_size);
            self.run_end = self.entry_item.min(self.segment.count());
        }
    }

    /// Passes the entries of the next key. The newest of those that can be seen, and its word.
    #[inline]
    fn newest_of_key(&mut self) -> Option<(usize, DirectoryWord)> {
        let mut newest = None;
        while self.place < self.order.count() {
            let word = self.order.word(self.leaf, self.place);
            if newest.is_none() && self.leaf.version() + read_delta(self.leaf, word) <= self.version {
                newest = Some((self.order.entry(self.place), word));
            }
            self.place += 1;
            if !word.flags.is_followed {
                break;
            }
        }
        newest
    }
}
