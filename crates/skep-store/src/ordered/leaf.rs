//! Reading a leaf: one key, or all pairs in order, as of a version (Honeycomb, sections 3.3 and 4.3).

use std::hint::select_unpredictable;

use super::frame::Node;
use super::lanes::equal;
use super::log::{self, BackPointer, DirectoryWord, Entry, LogOrder, read_delta};
use super::segment::{Item, Segment, Spot, Value};
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
        let (found, value) = pair(&segment, index, item);
        if short::equal(found, key) {
            return Some(value);
        }
    }
    None
}

/// Says that the place of a key will be looked for in a segment whose head is at hand: announces the item that may have it, or
/// all of the segment.
#[inline]
pub(super) fn announce_place<T: Trace>(leaf: Node<'_, T>, place: SegmentPlace, fingerprint: u8) {
    let (start, number) = (usize::from(place.start), usize::from(place.segment));
    let segment = Segment::open(leaf, start, number);
    if number > 0 && segment.matching(fingerprint) & 1 == 1 {
        Shortcuts::open(leaf).announce_boundary(number, segment.key_size());
    } else if let Some(Spot { offset, key_size, value_size, .. }) = segment.first_spot(fingerprint) {
        leaf.frame().announce(usize::from(offset), usize::from(key_size) + usize::from(value_size));
    } else {
        Shortcuts::open(leaf).announce_segment(number);
    }
}

/// Where the sorted block has a key, or would have it, in the segment that was found for it.
#[inline]
pub(super) fn sorted_place<T: Trace>(
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
    if let Some(below) = count_below(leaf, &segment, first, key) {
        return (BackPointer { segment: index as u8, index: (first + below) as u8 }, false);
    }
    let item = first_admitted(&segment, index, |other| !short::is_below(other, key));
    (BackPointer { segment: index as u8, index: item as u8 }, false)
}

/// The first item of a segment whose key is admitted, as are those of all behind it. The boundary key is left out.
#[inline(always)]
fn first_admitted<T: Trace>(segment: &Segment<'_, T>, segment_index: usize, admits: impl Fn(&[u8]) -> bool) -> usize {
    let first = usize::from(segment_index > 0);
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
pub(super) fn newest_version<T: Trace>(leaf: Node<'_, T>) -> u64 {
    let last = leaf.state().log_count().checked_sub(1);
    leaf.version() + last.map_or(0, |last| read_delta(leaf, DirectoryWord::from_bits(leaf.log_word(last))))
}

/// The fingerprint of a published entry.
fn log_fingerprint<T: Trace>(leaf: Node<'_, T>, entry: usize) -> u8 {
    leaf.log_fingerprints()[entry]
}

/// Key and value of an item, the boundary key from the shortcut block.
#[inline(always)]
fn pair<'g, T: Trace>(segment: &Segment<'g, T>, segment_index: usize, item: usize) -> (&'g [u8], Value<'g>) {
    let (mut key, value) = segment.pair(item);
    if item == 0
        && let Some(first) = Shortcuts::open(segment.node()).first_key(segment_index)
    {
        key = first;
    }
    (key, value)
}

/// The pairs of a leaf as of a version, in order.
#[derive(Debug)]
pub(super) struct LeafCursor<'g, T> {
    version: u64,
    order: LogOrder,
    /// The next entry in that order, and the item of the segment before which it stands: none if it is in a later segment.
    place: usize,
    entry_item: usize,
    /// The next entry in order that was not announced.
    place_announced: usize,
    segment: Segment<'g, T>,
    segment_index: usize,
    /// The next item of the segment.
    item: usize,
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
        let leaf = self.leaf();
        let shortcuts = Shortcuts::open(leaf);
        if self.segment_index > 0 {
            shortcuts.announce_boundary(self.segment_index, self.segment.key_size());
        }
        if self.segment_index + 1 < shortcuts.segment_count() {
            shortcuts.announce_segment(self.segment_index + 1);
        } else {
            leaf.announce_right();
        }
        while self.place_announced < self.order.count()
            && self.order.segment(leaf, self.place_announced) <= self.segment_index + SEGMENTS_AHEAD
        {
            log::announce(leaf, self.order.entry(self.place_announced));
            self.place_announced += 1;
        }
    }

    /// Begins with the first pair of a segment. The version is at or above the leaf's.
    #[inline(always)]
    pub(super) fn new(leaf: Node<'g, T>, segment_index: usize, version: u64) -> Self {
        let order = LogOrder::read(leaf);
        let place = order.count_before(leaf, segment_index);
        let segment = Segment::open(leaf, Shortcuts::open(leaf).segment_start(segment_index), segment_index);
        let entry_item = entry_item(leaf, order, place, segment_index);
        LeafCursor { version, order, place, entry_item, place_announced: place, segment, segment_index, item: 0 }
    }

    /// The leaf.
    #[inline(always)]
    pub(super) fn leaf(&self) -> Node<'g, T> {
        self.segment.node()
    }

    /// The next pair of the leaf.
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
    #[inline(always)]
    pub(super) fn next_segment(&mut self) -> bool {
        let leaf = self.leaf();
        let shortcuts = Shortcuts::open(leaf);
        let next = self.segment_index + 1;
        if next == shortcuts.segment_count() {
            return false;
        }
        self.segment_index = next;
        self.segment = Segment::open(leaf, shortcuts.segment_start(next), next);
        self.entry_item = entry_item(leaf, self.order, self.place, next);
        self.item = 0;
        true
    }

    /// The next pair of the segment, with the log entries that belong there.
    pub(super) fn next_of_segment(&mut self) -> Option<Item<'g>> {
        loop {
            if self.item == self.entry_item {
                if let Some(item) = self.pass_entries() {
                    return Some(item);
                }
            } else if self.item < self.segment.count() {
                return Some(self.pass_item());
            } else {
                return None;
            }
        }
    }

    /// Shows the pairs of the segment that are left, with the log entries that belong there, until `visit` answers false.
    /// Whether it never did. Between log entries the items of a uniform segment are a run: one lies behind the other, and
    /// nothing is to be decided.
    #[inline(always)]
    pub(super) fn visit_segment(&mut self, mut visit: impl FnMut(Item<'g>) -> bool) -> bool {
        loop {
            let end = self.entry_item.min(self.segment.count());
            while self.item < end && !self.segment.is_run_from(self.item) {
                if !visit(self.pass_item()) {
                    return false;
                }
            }
            if self.item < end {
                let (mut run, key_size, pair_size) = self.segment.run(self.item, end);
                let mut number = self.item;
                self.item = end;
                while let Some((pair, others)) = run.split_at_checked(pair_size) {
                    let (key, bytes) = pair.split_at(key_size);
                    let fingerprint = self.segment.fingerprint(number);
                    (run, number) = (others, number + 1);
                    if !visit(Item { key, value: Value { bytes, is_outside: false }, fingerprint }) {
                        return false;
                    }
                }
            }
            if self.entry_item == NO_ITEM {
                return true;
            }
            if let Some(item) = self.pass_entries()
                && !visit(item)
            {
                return false;
            }
        }
    }

    /// The same for those pairs whose keys are admitted, which come first. False as well when there are others.
    #[inline(never)]
    pub(super) fn visit_up_to(
        &mut self,
        admits: impl Fn(&[u8]) -> bool,
        mut visit: impl FnMut(&'g [u8], Value<'g>) -> bool,
    ) -> bool {
        while let Some(item) = self.next_of_segment() {
            if !(admits(item.key) && visit(item.key, item.value)) {
                return false;
            }
        }
        true
    }

    /// The first key of the next segment of the leaf, if there is one. No pair of this segment reaches it.
    pub(super) fn next_boundary(&self) -> Option<&'g [u8]> {
        let shortcuts = Shortcuts::open(self.leaf());
        let next = self.segment_index + 1;
        if next < shortcuts.segment_count() { shortcuts.first_key(next) } else { None }
    }

    /// Passes the pairs of the segment before the first whose key is admitted, as are those of all behind it. Whether one may
    /// be left.
    #[inline(never)]
    pub(super) fn pass_until(&mut self, admits: impl Fn(&[u8]) -> bool) -> bool {
        self.item = first_admitted(&self.segment, self.segment_index, &admits);
        if self.item == 1 && Shortcuts::open(self.leaf()).first_key(self.segment_index).is_some_and(&admits) {
            self.item = 0;
        }
        // Of the entries that stand before that item, those before an earlier one have lower keys than that.
        while self.entry_item <= self.item {
            let is_admitted = |word| admits(Entry::of_word(self.leaf(), word).key);
            if self.entry_item == self.item && is_admitted(self.order.word(self.leaf(), self.place)) {
                break;
            }
            self.place += 1;
            self.entry_item = entry_item(self.leaf(), self.order, self.place, self.segment_index);
        }
        self.item < self.segment.count() || self.entry_item != NO_ITEM
    }

    /// The last pair of the segment whose key is admitted, as are all before it.
    pub(super) fn last_in_segment(&mut self, admits: impl Fn(&[u8]) -> bool) -> Option<Item<'g>> {
        let mut last = None;
        while let Some(item) = self.next_of_segment().filter(|item| admits(item.key)) {
            last = Some(item);
        }
        last
    }

    /// Passes the next item. Its pair.
    #[inline(always)]
    fn pass_item(&mut self) -> Item<'g> {
        let item = self.item;
        self.item += 1;
        let (key, value) = pair(&self.segment, self.segment_index, item);
        Item { key, value, fingerprint: self.segment.fingerprint(item) }
    }

    /// Passes the entries of the next key, which stand before the next item. Its pair, if the newest of those that can be
    /// seen is one.
    #[inline(never)]
    fn pass_entries(&mut self) -> Option<Item<'g>> {
        let leaf = self.leaf();
        let mut newest = None;
        loop {
            let word = self.order.word(leaf, self.place);
            if newest.is_none() && leaf.version() + read_delta(leaf, word) <= self.version {
                newest = Some((self.order.entry(self.place), word));
            }
            self.place += 1;
            if !word.flags.is_followed {
                break;
            }
        }
        self.entry_item = entry_item(leaf, self.order, self.place, self.segment_index);
        let (entry, word) = newest?;
        // An entry with the item's key is the last one before the item, and stands for it.
        self.item += usize::from(word.flags.is_exact);
        if word.flags.is_delete {
            return None;
        }
        let Entry { key, value, .. } = Entry::of_word(leaf, word);
        Some(Item { key, value, fingerprint: log_fingerprint(leaf, entry) })
    }
}

/// The item of a segment before which the log entry at a place in their order stands, if it stands in that segment.
#[inline(always)]
fn entry_item<T: Trace>(leaf: Node<'_, T>, order: LogOrder, place: usize, segment_index: usize) -> usize {
    if place == order.count() {
        return NO_ITEM;
    }
    let BackPointer { segment, index } = order.word(leaf, place).back;
    if usize::from(segment) == segment_index { usize::from(index) } else { NO_ITEM }
}
