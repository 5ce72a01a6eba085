//! The pairs of a leaf in order, as of a version: its sorted block and its log together (Honeycomb, sections 3.3 and 4.3).
//!
//! ```text
//! items of a segment   ├ 0 ┼ 1 ┼ 2 ┼ 3 ┼ 4 ┼ 5 ┼ 6 ┤
//! log entries          ▲           ▲       ▲                back pointers say before which item each stands
//!                        └── run ──┘└ run ─┘└ run ─┘        in a run one pair lies behind the other
//! ```
//!
//! What a cursor comes to is prefetched first, as far as pairs are wanted and a few segments at a time: their lines travel
//! together.

use super::super::key_head::fingerprint;
use super::super::node::frame::Node;
use super::super::node::log::{self, BackPointer, Entry, LogOrder, read_delta};
use super::super::node::segment::{Item, Segment, UNIFORM_HEAD_SIZE, Value};
use super::super::node::shortcut::{SEGMENT_ALIGNMENT, Shortcuts};
use super::super::trace::Trace;
use super::find::{self, pair};
use super::range::{End, Start};
use crate::short;

/// The pairs of a leaf as of a version, in order.
#[derive(Debug)]
pub(crate) struct LeafCursor<'g, T> {
    version: u64,
    order: LogOrder,
    /// The next entry in that order, and the item of the segment before which it stands: none if it is in a later segment.
    place: usize,
    entry_item: usize,
    /// The next entry in order that was not prefetched.
    place_prefetched: usize,
    segment: Segment<'g, T>,
    segment_index: usize,
    /// The next segment that was not prefetched.
    segment_prefetched: usize,
    /// The next item of the segment.
    item: usize,
}

/// In the place of an item that no segment has.
const NO_ITEM: usize = usize::MAX;
/// Bytes of pairs behind a segment that are prefetched at a time: many lines travel together, and all stay resident until
/// they are visited.
const AHEAD_SIZE: usize = 2048;

impl<'g, T: Trace> LeafCursor<'g, T> {
    /// Says that a cursor will begin with this segment, with all of it or with its head, and go on as far as to an end. The
    /// lines of header and shortcut index are resident.
    #[inline(always)]
    pub(crate) fn prefetch(leaf: Node<'g, T>, segment: usize, is_whole: bool, end: End<'_>) {
        if leaf.state().log_count() > 0 {
            leaf.frame().prefetch_line(leaf.log_start());
        }
        let shortcuts = Shortcuts::open(leaf);
        match is_whole {
            true => shortcuts.prefetch_segment(segment),
            false => leaf.frame().prefetch_line(shortcuts.segment_start(segment)),
        }
        // Whether the range ends before the next segment is asked before anything else of that is read.
        if let Some(key) = end.key()
            && segment + 1 < shortcuts.segment_count()
        {
            shortcuts.prefetch_boundary(segment + 1, key.len());
        }
        if leaf.log_start() - shortcuts.segment_end(segment) < AHEAD_SIZE {
            leaf.prefetch_right_entry();
        }
    }

    /// Begins with the first pair of a segment. The version is at or above the leaf's.
    #[inline(always)]
    pub(crate) fn new(leaf: Node<'g, T>, segment_index: usize, version: u64) -> Self {
        let (order, place) = LogOrder::read_from(leaf, segment_index);
        let segment = Segment::open(leaf, Shortcuts::open(leaf).segment_start(segment_index), segment_index);
        let entry_item = entry_item(leaf, order, place, segment_index);
        LeafCursor {
            version,
            order,
            place,
            entry_item,
            place_prefetched: place,
            segment,
            segment_index,
            segment_prefetched: segment_index,
            item: 0,
        }
    }

    /// Says that so many pairs will be visited, before an end: prefetches them and the log entries among them. If the leaf does
    /// not have as many, the leaf to the right is next.
    #[inline(always)]
    pub(crate) fn prefetch_ahead(&mut self, pair_count: usize, end: End<'_>) {
        let leaf = self.leaf();
        let shortcuts = Shortcuts::open(leaf);
        let segment_count = shortcuts.segment_count();
        let end_here = shortcuts.segment_end(self.segment_index);
        let pair_size = self.segment.pair_size_mean(end_here);
        let size = pair_count.saturating_mul(pair_size);
        let size_here = (self.segment.count() - self.item) * pair_size;
        if self.segment_prefetched == self.segment_index {
            self.segment_prefetched += 1;
            if self.item == 0 {
                shortcuts.prefetch_segment(self.segment_index);
            } else if self.segment.is_uniform() {
                leaf.frame().prefetch(self.segment.place(self.item).0, size.min(size_here));
            }
        }
        let mut next = self.segment_prefetched;
        let mut end_prefetched = shortcuts.segment_end(next - 1);
        let is_in_range = |segment| match end {
            End::Last => true,
            _ => shortcuts.first_key(segment).is_none_or(|key| end.admits(key)),
        };
        let mut size = size.saturating_sub(size_here + end_prefetched - end_here);
        while size > 0 && next < segment_count && end_prefetched - end_here < AHEAD_SIZE && is_in_range(next) {
            let start = std::mem::replace(&mut end_prefetched, shortcuts.segment_end(next));
            let pairs_size = end_prefetched - start - UNIFORM_HEAD_SIZE;
            leaf.frame().prefetch(start, UNIFORM_HEAD_SIZE + size.min(pairs_size));
            // There lies the value of the boundary key.
            leaf.frame().prefetch_line(end_prefetched - SEGMENT_ALIGNMENT);
            size = size.saturating_sub(pairs_size);
            next += 1;
        }
        if size > 0 && next == segment_count {
            leaf.prefetch_right();
        }
        // That of the segment resident is one of them if its first pair is wanted.
        let first_boundary = (self.segment_prefetched - usize::from(self.item == 0)).max(1);
        if first_boundary < next {
            shortcuts.prefetch_boundaries(first_boundary..next, self.segment.key_size());
        }
        while self.place_prefetched < self.order.count() && self.order.segment(leaf, self.place_prefetched) < next {
            log::prefetch(leaf, self.order.entry(self.place_prefetched));
            self.place_prefetched += 1;
        }
        self.segment_prefetched = next;
    }

    /// The leaf.
    #[inline(always)]
    pub(crate) fn leaf(&self) -> Node<'g, T> {
        self.segment.node()
    }

    /// Whether no segment of the leaf lies behind this one.
    #[inline(always)]
    pub(crate) fn is_in_last_segment(&self) -> bool {
        self.segment_index + 1 == Shortcuts::open(self.leaf()).segment_count()
    }

    /// The next pair of the leaf.
    pub(crate) fn next(&mut self) -> Option<Item<'g>> {
        loop {
            if let Some(item) = self.next_of_segment() {
                return Some(item);
            }
            if self.is_in_last_segment() {
                return None;
            }
            self.pass_segment();
        }
    }

    /// Goes on to the next segment, if it was prefetched.
    #[inline(always)]
    pub(crate) fn next_prefetched_segment(&mut self) -> bool {
        let is_prefetched = self.segment_index + 1 < self.segment_prefetched;
        if is_prefetched {
            self.pass_segment();
        }
        is_prefetched
    }

    /// Goes on to the next segment, which the leaf has.
    #[inline(always)]
    fn pass_segment(&mut self) {
        let leaf = self.leaf();
        self.segment_index += 1;
        self.segment = Segment::open(leaf, Shortcuts::open(leaf).segment_start(self.segment_index), self.segment_index);
        self.entry_item = entry_item(leaf, self.order, self.place, self.segment_index);
        self.item = 0;
    }

    /// The next pair of the segment, with the log entries that belong there.
    pub(crate) fn next_of_segment(&mut self) -> Option<Item<'g>> {
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

    /// Shows the pairs of the segment that are left, with the log entries that belong there, but no more than `left`, which
    /// counts down, and until `visit` answers false. Whether more are wanted. Between log entries the items of a uniform
    /// segment are a run: one lies behind the other, and nothing is to be decided.
    #[inline(always)]
    pub(crate) fn visit_segment(
        &mut self,
        left: &mut usize,
        visit: &mut impl FnMut(&'g [u8], Value<'g>) -> bool,
    ) -> bool {
        loop {
            let end = self.entry_item.min(self.segment.count()).min(self.item.saturating_add(*left));
            *left -= end - self.item;
            while self.item < end && !self.segment.is_run_from(self.item) {
                let Item { key, value, .. } = self.pass_item();
                if !visit(key, value) {
                    return false;
                }
            }
            if self.item < end {
                let (mut run, key_size, pair_size) = self.segment.run(self.item, end);
                self.item = end;
                while let Some((pair, others)) = run.split_at_checked(pair_size) {
                    let (key, bytes) = pair.split_at(key_size);
                    run = others;
                    if !visit(key, Value { bytes, is_outside: false }) {
                        return false;
                    }
                }
            }
            if *left == 0 || self.entry_item == NO_ITEM {
                return *left > 0;
            }
            if let Some(item) = self.pass_entries() {
                *left -= 1;
                if !visit(item.key, item.value) || *left == 0 {
                    return false;
                }
            }
        }
    }

    /// The same for those pairs whose keys are admitted, which come first. False as well when there are others.
    #[inline(never)]
    pub(crate) fn visit_up_to(
        &mut self,
        admits: impl Fn(&[u8]) -> bool,
        left: &mut usize,
        visit: &mut impl FnMut(&'g [u8], Value<'g>) -> bool,
    ) -> bool {
        while let Some(item) = self.next_of_segment() {
            *left -= 1;
            if !(admits(item.key) && visit(item.key, item.value)) || *left == 0 {
                return false;
            }
        }
        true
    }

    /// The first key of the next segment of the leaf, if there is one. No pair of this segment reaches it.
    pub(crate) fn next_boundary(&self) -> Option<&'g [u8]> {
        let shortcuts = Shortcuts::open(self.leaf());
        let next = self.segment_index + 1;
        if next < shortcuts.segment_count() { shortcuts.first_key(next) } else { None }
    }

    /// Goes to the item that may be the key's, as its fingerprint tells: in most scans it is there. If there is none, behind
    /// all, and the whole segment is prefetched.
    #[inline(always)]
    pub(crate) fn guess_start(&mut self, key: &[u8]) {
        let candidates = if self.segment.is_uniform() { self.segment.matching(fingerprint(key)) } else { 0 };
        self.item = self.segment.count().min(candidates.trailing_zeros() as usize);
        if candidates == 0 {
            Shortcuts::open(self.leaf()).prefetch_segment(self.segment_index);
        }
    }

    /// Passes the pairs of the segment before a start, behind [`LeafCursor::guess_start`].
    #[inline(always)]
    pub(crate) fn find_start(&mut self, start: Start<'_>) {
        let (count, item) = (self.segment.count(), self.item);
        let is_there = item < count && short::equal(pair(&self.segment, self.segment_index, item).0, start.key());
        let item = match start {
            _ if !is_there => self.search_start(start),
            Start::Above(_) => item + 1,
            _ => item,
        };
        self.item = item;
        // Of the entries that stand before that item, those before an earlier one have lower keys than that.
        while self.entry_item <= item {
            let is_admitted = |word| start.admits(Entry::of_word(self.leaf(), word).key);
            if self.entry_item == item && is_admitted(self.order.word(self.leaf(), self.place)) {
                break;
            }
            self.place += 1;
            self.entry_item = entry_item(self.leaf(), self.order, self.place, self.segment_index);
        }
    }

    /// The first item at or behind a start.
    #[inline(never)]
    fn search_start(&self, start: Start<'_>) -> usize {
        let first = usize::from(self.segment_index > 0);
        let low = find::first_not_below(&self.segment, first, start.key());
        // The boundary key was left out.
        let low = if low == first { 0 } else { low };
        let is_before = |item: &usize| !start.admits(pair(&self.segment, self.segment_index, *item).0);
        low + (low..self.segment.count()).take_while(is_before).count()
    }

    /// The last pair of the segment whose key is admitted, as are all before it.
    pub(crate) fn last_in_segment(&mut self, admits: impl Fn(&[u8]) -> bool) -> Option<Item<'g>> {
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
        Some(Item { key, value, fingerprint: leaf.log_fingerprints()[entry] })
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
