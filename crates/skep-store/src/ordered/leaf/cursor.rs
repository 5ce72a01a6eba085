//! The pairs of a leaf in order, as of a version: its sorted block and its log merged (Honeycomb, sections 3.3 and
//! 4.3).
//!
//! ```text
//! items of a segment   ├ 0 ┼ 1 ┼ 2 ┼ 3 ┼ 4 ┼ 5 ┼ 6 ┤
//! log entries          ▲           ▲       ▲                a back pointer names the item that follows the entry
//!                        └── run ──┘└ run ─┘└ run ─┘        the pairs of a run are contiguous
//! ```
//!
//! Pairs whose keys have expired are [`Seen::Expired`]: they are not counted among those that are wanted, but the reader
//! may stop at them. [`LeafCursor::next`] returns them as others.
//!
//! A cursor prefetches first what it will read, as far as pairs are wanted and a few segments at a time. So cache
//! misses overlap.

use super::super::key_head::fingerprint;
use super::super::node::frame::Node;
use super::super::node::log::{self, BackPointer, Entry, LogOrder, read_delta};
use super::super::node::segment::{Item, Segment, UNIFORM_HEAD_SIZE};
use super::super::node::shortcut::{SEGMENT_ALIGNMENT, Shortcuts};
use super::super::node::value::Value;
use super::super::version::clock::Snapshot;
use super::find::{self, pair};
use super::range::{is_at_or_after, is_at_or_before};
use crate::short;
use skep_core::operation::{ScanEnd, Start};

/// The pairs of a leaf as of a snapshot, in order.
#[derive(Debug)]
pub(crate) struct LeafCursor<'g> {
    snapshot: Snapshot,
    order: LogOrder,
    /// The position of the next log entry in key order, and the item that follows it: `NO_ITEM` if it is in a later
    /// segment.
    position: usize,
    entry_item: usize,
    /// The position of the next entry that was not prefetched.
    position_prefetched: usize,
    segment: Segment<'g>,
    segment_index: usize,
    /// The next segment that was not prefetched.
    segment_prefetched: usize,
    /// The next item of the segment.
    item: usize,
}

/// What a scan comes to at a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen<'g> {
    /// A pair of its snapshot.
    Pair(Value<'g>),
    /// Keys that have expired, this one and others that the scan has come to before: their number.
    Expired(usize),
}

/// The item of an entry that is not in the segment.
const NO_ITEM: usize = usize::MAX;
/// Bytes of further segments that are prefetched at a time. Many misses overlap, and the lines stay in the cache until
/// they are read.
const AHEAD_SIZE: usize = 2048;

impl<'g> LeafCursor<'g> {
    /// Prefetches the beginning of a cursor: all of a segment or its head, the log directory, and the boundary key that
    /// decides if the range ends here. The lines of header and shortcut index are resident.
    #[inline(always)]
    pub(crate) fn prefetch(leaf: Node<'g>, segment: usize, is_entire: bool, end: ScanEnd<'_>) {
        if leaf.state().log_count() > 0 {
            leaf.frame().prefetch_line(leaf.log_start());
        }
        let shortcuts = Shortcuts::open(leaf);
        match is_entire {
            true => shortcuts.prefetch_segment(segment),
            false => leaf.frame().prefetch_line(shortcuts.segment_start(segment)),
        }
        // The next segment is prefetched only if the range does not end before it.
        if end != ScanEnd::Last && segment + 1 < shortcuts.segment_count() {
            shortcuts.prefetch_boundary(segment + 1, end.bytes().len());
        }
        if leaf.log_start() - shortcuts.segment_end(segment) < AHEAD_SIZE {
            leaf.prefetch_right_entry();
        }
    }

    /// Begins with the first pair of a segment. The version is not below the leaf's.
    #[inline(always)]
    pub(crate) fn new(leaf: Node<'g>, segment_index: usize, snapshot: Snapshot) -> Self {
        let (order, position) = LogOrder::read_from(leaf, segment_index);
        let segment = Segment::open(leaf, Shortcuts::open(leaf).segment_start(segment_index), segment_index);
        let entry_item = entry_item(leaf, order, position, segment_index);
        LeafCursor {
            snapshot,
            order,
            position,
            entry_item,
            position_prefetched: position,
            segment,
            segment_index,
            segment_prefetched: segment_index,
            item: 0,
        }
    }

    /// Prefetches up to `pair_count` pairs before an end, and the log entries among them. If the leaf has fewer,
    /// prefetches the right sibling.
    #[inline(always)]
    pub(crate) fn prefetch_ahead(&mut self, pair_count: usize, end: ScanEnd<'_>) {
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
                leaf.frame().prefetch(self.segment.layout(self.item).0, size.min(size_here));
            }
        }
        let mut next = self.segment_prefetched;
        let mut end_prefetched = shortcuts.segment_end(next - 1);
        let is_in_range = |segment| match end {
            ScanEnd::Last => true,
            _ => shortcuts.first_key(segment).is_none_or(|key| is_at_or_before(end, key)),
        };
        let mut size = size.saturating_sub(size_here + end_prefetched - end_here);
        while size > 0 && next < segment_count && end_prefetched - end_here < AHEAD_SIZE && is_in_range(next) {
            let start = std::mem::replace(&mut end_prefetched, shortcuts.segment_end(next));
            let pairs_size = end_prefetched - start - UNIFORM_HEAD_SIZE;
            leaf.frame().prefetch(start, UNIFORM_HEAD_SIZE + size.min(pairs_size));
            // The value of the boundary key is there.
            leaf.frame().prefetch_line(end_prefetched - SEGMENT_ALIGNMENT);
            size = size.saturating_sub(pairs_size);
            next += 1;
        }
        if size > 0 && next == segment_count {
            leaf.prefetch_right();
        }
        // The boundary key of the present segment is needed too if its first pair is.
        let first_boundary = (self.segment_prefetched - usize::from(self.item == 0)).max(1);
        if first_boundary < next {
            shortcuts.prefetch_boundaries(first_boundary..next, self.segment.key_size());
        }
        while self.position_prefetched < self.order.count() && self.order.segment(leaf, self.position_prefetched) < next
        {
            log::prefetch(leaf, self.order.entry(self.position_prefetched));
            self.position_prefetched += 1;
        }
        self.segment_prefetched = next;
    }

    /// Returns the leaf.
    #[inline(always)]
    pub(crate) fn leaf(&self) -> Node<'g> {
        self.segment.node()
    }

    /// Returns true if this segment is the leaf's last.
    #[inline(always)]
    pub(crate) fn is_in_last_segment(&self) -> bool {
        self.segment_index + 1 == Shortcuts::open(self.leaf()).segment_count()
    }

    /// Returns the next pair of the leaf, also if its key has expired.
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

    /// Goes to the next segment if it was prefetched. Returns true if it did.
    #[inline(always)]
    pub(crate) fn next_prefetched_segment(&mut self) -> bool {
        let is_prefetched = self.segment_index + 1 < self.segment_prefetched;
        if is_prefetched {
            self.pass_segment();
        }
        is_prefetched
    }

    /// Goes to the next segment. The leaf has one.
    #[inline(always)]
    fn pass_segment(&mut self) {
        let leaf = self.leaf();
        self.segment_index += 1;
        self.segment = Segment::open(leaf, Shortcuts::open(leaf).segment_start(self.segment_index), self.segment_index);
        self.entry_item = entry_item(leaf, self.order, self.position, self.segment_index);
        self.item = 0;
    }

    /// Returns the next pair of the segment and its log entries, also if its key has expired.
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

    /// Calls `f` with the remaining pairs of the segment and its log entries, until `f` returns false or `left`, which
    /// counts down, is zero. Returns true if more pairs are wanted. Between log entries the items of a uniform segment
    /// are a contiguous run, which needs no decision for each item.
    #[inline(always)]
    pub(crate) fn with_segment(&mut self, left: &mut usize, f: &mut impl FnMut(&'g [u8], Seen<'g>) -> bool) -> bool {
        loop {
            let end_of_items = self.entry_item.min(self.segment.count());
            let mut end = end_of_items.min(self.item.saturating_add(*left));
            *left -= end - self.item;
            while self.item < end && !self.segment.is_run_from(self.item) {
                let Item { key, value, .. } = self.pass_item();
                if value.has_expired(self.snapshot.now) {
                    // The next item takes its turn, if there is one.
                    let is_next = end < end_of_items;
                    end += usize::from(is_next);
                    *left += usize::from(!is_next);
                    if !f(key, Seen::Expired(1)) {
                        return false;
                    }
                    continue;
                }
                if !f(key, Seen::Pair(value)) {
                    return false;
                }
            }
            if self.item < end {
                let (mut run, key_size, pair_size) = self.segment.run(self.item, end);
                self.item = end;
                while let Some((pair, others)) = run.split_at_checked(pair_size) {
                    let (key, bytes) = pair.split_at(key_size);
                    run = others;
                    if !f(key, Seen::Pair(Value::inside(bytes))) {
                        return false;
                    }
                }
            }
            if *left == 0 || self.entry_item == NO_ITEM {
                return *left > 0;
            }
            if let Some(item) = self.pass_entries() {
                let seen = self.seen(&item);
                *left -= usize::from(matches!(seen, Seen::Pair(_)));
                if !f(item.key, seen) || *left == 0 {
                    return false;
                }
            }
        }
    }

    /// Does the same for the pairs whose keys are admitted, which are the first ones. Also returns false at a pair that
    /// is not.
    #[inline(never)]
    pub(crate) fn with_pairs_up_to(
        &mut self,
        admits: impl Fn(&[u8]) -> bool,
        left: &mut usize,
        f: &mut impl FnMut(&'g [u8], Seen<'g>) -> bool,
    ) -> bool {
        while let Some(item) = self.next_of_segment() {
            let seen = self.seen(&item);
            *left -= usize::from(matches!(seen, Seen::Pair(_)));
            if !(admits(item.key) && f(item.key, seen)) || *left == 0 {
                return false;
            }
        }
        true
    }

    /// Returns the first key of the leaf's next segment, if there is one. All keys of this segment are below it.
    pub(crate) fn next_boundary(&self) -> Option<&'g [u8]> {
        let shortcuts = Shortcuts::open(self.leaf());
        let next = self.segment_index + 1;
        if next < shortcuts.segment_count() { shortcuts.first_key(next) } else { None }
    }

    /// Goes to the item that has the key's fingerprint, which is the start in most scans. Without such an item, goes to
    /// the end and prefetches the whole segment.
    #[inline(always)]
    pub(crate) fn guess_start(&mut self, key: &[u8]) {
        let candidates = if self.segment.is_uniform() { self.segment.matching(fingerprint(key)) } else { 0 };
        self.item = self.segment.count().min(candidates.trailing_zeros() as usize);
        if candidates == 0 {
            Shortcuts::open(self.leaf()).prefetch_segment(self.segment_index);
        }
    }

    /// Skips the pairs of the segment before a start, after [`LeafCursor::guess_start`].
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
        // Among the entries before that item, those that are also before an earlier item have lower keys.
        while self.entry_item <= item {
            let is_admitted = |word| is_at_or_after(start, Entry::of_word(self.leaf(), word).key);
            if self.entry_item == item && is_admitted(self.order.word(self.leaf(), self.position)) {
                break;
            }
            self.position += 1;
            self.entry_item = entry_item(self.leaf(), self.order, self.position, self.segment_index);
        }
    }

    /// Returns the first item at or after a start.
    #[inline(never)]
    fn search_start(&self, start: Start<'_>) -> usize {
        let first = usize::from(self.segment_index > 0);
        let low = find::first_not_below(&self.segment, first, start.key());
        // The boundary key was not compared.
        let low = if low == first { 0 } else { low };
        let is_before = |item: &usize| !is_at_or_after(start, pair(&self.segment, self.segment_index, *item).0);
        low + (low..self.segment.count()).take_while(is_before).count()
    }

    /// Goes to the last pair of the segment that has not expired and whose key is not above this one. Without such a pair,
    /// goes to the first one above the key and returns false. The lines of the segment are resident.
    #[inline(never)]
    pub(crate) fn find_floor(&mut self, key: &[u8]) -> bool {
        let first = self.position;
        self.item = self.segment.count();
        self.find_start(Start::Above(key));
        let (item, position) = (self.item, self.position);
        // Most floors are the item before, or an entry after that one. If both are gone, the whole segment is searched.
        for begin in [item.saturating_sub(1), 0] {
            let mut before = position;
            while before > first && entry_item(self.leaf(), self.order, before - 1, self.segment_index) >= begin {
                before -= 1;
            }
            self.go_to(begin, before);
            let mut floor = None;
            loop {
                let here = (self.item, self.position);
                let Some(item) = self.next_of_segment().filter(|item| item.key <= key) else { break };
                if !item.value.has_expired(self.snapshot.now) {
                    floor = Some(here);
                }
            }
            if let Some((item, position)) = floor {
                self.go_to(item, position);
                return true;
            }
        }
        self.go_to(item, position);
        false
    }

    /// Goes to an item of the segment, and to the first entry that is not before it.
    fn go_to(&mut self, item: usize, position: usize) {
        (self.item, self.position) = (item, position);
        self.entry_item = entry_item(self.leaf(), self.order, position, self.segment_index);
    }

    /// Returns what a scan comes to at an item.
    fn seen(&self, item: &Item<'g>) -> Seen<'g> {
        if item.value.has_expired(self.snapshot.now) { Seen::Expired(1) } else { Seen::Pair(item.value) }
    }

    /// Skips the next item and returns its pair.
    #[inline(always)]
    fn pass_item(&mut self) -> Item<'g> {
        let item = self.item;
        self.item += 1;
        let (key, value) = pair(&self.segment, self.segment_index, item);
        Item { key, value, fingerprint: self.segment.fingerprint(item) }
    }

    /// Skips the entries of the next key, which are before the next item. Returns its pair if the newest readable entry
    /// has one.
    #[inline(never)]
    fn pass_entries(&mut self) -> Option<Item<'g>> {
        let leaf = self.leaf();
        let mut newest = None;
        loop {
            let word = self.order.word(leaf, self.position);
            if newest.is_none() && leaf.version() + read_delta(leaf, word) <= self.snapshot.version {
                newest = Some((self.order.entry(self.position), word));
            }
            self.position += 1;
            if !word.flags.is_followed {
                break;
            }
        }
        self.entry_item = entry_item(leaf, self.order, self.position, self.segment_index);
        let (entry, word) = newest?;
        // An entry with the item's key is the last before the item, and replaces it.
        self.item += usize::from(word.flags.is_exact);
        if word.flags.is_delete {
            return None;
        }
        let Entry { key, value, .. } = Entry::of_word(leaf, word);
        Some(Item { key, value, fingerprint: leaf.log_fingerprints()[entry] })
    }
}

/// Returns the item that follows the log entry at this position, or `NO_ITEM` if it is not in the segment.
#[inline(always)]
fn entry_item(leaf: Node<'_>, order: LogOrder, position: usize, segment_index: usize) -> usize {
    if position == order.count() {
        return NO_ITEM;
    }
    let BackPointer { segment, index } = order.word(leaf, position).back;
    if usize::from(segment) == segment_index { usize::from(index) } else { NO_ITEM }
}
