//! Scans: the pairs of a range in order, as of one snapshot (Honeycomb, section 3.3).
//!
//! ```text
//! header, shortcut index ─▶ head of a segment, log directory ─▶ pairs, boundary keys, log entries ─▶ `f`
//!        ▲                                                      ▲                                     │
//!        │                                                      └──── more than one step can hold ◀───┤
//!        └────────────────────────────── right sibling ◀──────────────────────────────────────────────┘
//! ```
//!
//! Each arrow is a step of a scan: it reads the lines that the previous step has prefetched. Scans of a group take
//! their steps in turn, then all of them prefetch: adjacent prefetches overlap their page walks.
//!
//! If the start is a key that exists, the fingerprints in the segment's head usually find it, so no pair before it is
//! fetched. No more is prefetched than the limit allows.
//!
//! Forwards, a scan follows right siblings. Backwards, it descends again for the greatest key below the leaf, and so
//! does the search for a floor that is not in the segment. A left sibling may have been joined since, and `old` leads
//! only to the leftmost of the leaves that were replaced.
//!
//! Keys that have expired are not pairs of a range, but a scan reads them until they are reclaimed. So `f` is called for
//! them too ([`Seen::Expired`]) and may end the scan there: its work is bounded.

use std::ops::ControlFlow;

use super::super::key_head::Target;
use super::super::leaf::cursor::{LeafCursor, Seen};
use super::super::leaf::range::{is_at_or_after, is_at_or_before, target_of};
use super::super::node::frame::{LOG_COUNT_MAX, Node};
use super::super::node::segment::{ITEM_COUNT_MAX, Item};
use super::super::node::shortcut::Shortcuts;
use super::super::store::OrderedStore;
use super::super::version::clock::Snapshot;
use super::super::version::epoch::Guard;
use super::descent::{GROUP_SIZE, Place};
use crate::short::is_below;
use skep_core::operation::{Range, ScanEnd, Start};

/// Most pairs of a segment with its log entries.
const SEGMENT_PAIRS_MAX: usize = ITEM_COUNT_MAX + LOG_COUNT_MAX;

/// A scan in progress.
struct Scan<'g, 'k> {
    stage: Stage<'g>,
    /// The start, until the first segment is read.
    start: Option<Start<'k>>,
    end: ScanEnd<'k>,
    /// Number of pairs that are still wanted, at least one.
    left: usize,
    /// True for a scan that is not in a group. It prefetches more at each segment, since no other work overlaps its
    /// misses.
    is_alone: bool,
}

enum Stage<'g> {
    /// At a segment of a leaf whose first lines are resident.
    Leaf(Node<'g>, usize),
    /// Within a leaf.
    Pairs(LeafCursor<'g>),
}

impl<'g: 'k, 'k> Scan<'g, 'k> {
    /// Begins at the segment of the start. Returns `None` if no pair is wanted.
    fn new(leaf: Node<'g>, segment: usize, range: Range<'k>, is_alone: bool) -> Option<Self> {
        let start = (range.start != Start::First).then_some(range.start);
        let scan = Scan { stage: Stage::Leaf(leaf, segment), start, end: range.end, left: range.limit, is_alone };
        (range.limit > 0).then_some(scan)
    }

    /// Prefetches the lines that the next step will read.
    #[inline(always)]
    fn prefetch(&mut self) {
        match &mut self.stage {
            Stage::Leaf(leaf, segment) => {
                // The search for a floor reads the keys of the segment in the next step.
                let is_entire = self.is_alone || matches!(self.start, None | Some(Start::Floor(_)));
                LeafCursor::prefetch(*leaf, *segment, is_entire, self.end);
            }
            Stage::Pairs(cursor) => cursor.prefetch_ahead(self.left, self.end),
        }
    }

    /// Takes the next step, on lines that were prefetched. Returns true if the scan has not ended.
    #[inline(always)]
    fn step(
        &mut self,
        store: &'g OrderedStore,
        snapshot: Snapshot,
        guard: &'g Guard<'_>,
        f: &mut impl FnMut(&'g [u8], Seen<'g>) -> bool,
    ) -> bool {
        match &mut self.stage {
            Stage::Leaf(leaf, segment) => {
                let (leaf, segment) = (*leaf, *segment);
                let mut cursor = LeafCursor::new(leaf, segment, snapshot);
                match self.start {
                    Some(Start::Floor(key)) => {
                        self.start = None;
                        if !cursor.find_floor(key) && !self.with_floor_before(key, store, snapshot, guard, f) {
                            return false;
                        }
                    }
                    Some(start) => cursor.guess_start(start.key()),
                    None => {}
                }
                self.stage = Stage::Pairs(cursor);
                true
            }
            Stage::Pairs(cursor) => {
                if let Some(start) = self.start.take() {
                    cursor.find_start(start);
                }
                let end = self.end;
                loop {
                    let is_wanted = match end {
                        ScanEnd::Last => cursor.with_segment(&mut self.left, f),
                        _ => match cursor.next_boundary() {
                            Some(key) if is_at_or_before(end, key) => cursor.with_segment(&mut self.left, f),
                            next => {
                                cursor.with_pairs_up_to(|key| is_at_or_before(end, key), &mut self.left, f)
                                    && next.is_none()
                            }
                        },
                    };
                    if !is_wanted {
                        return false;
                    }
                    if !cursor.next_prefetched_segment() {
                        break;
                    }
                    if self.is_alone {
                        cursor.prefetch_ahead(self.left, end);
                    }
                }
                if cursor.is_in_last_segment() {
                    let Some(right) = cursor.leaf().right() else { return false };
                    self.stage = Stage::Leaf(store.as_of(right, snapshot.version, guard), 0);
                }
                true
            }
        }
    }

    /// Calls `f` with the floor of a key, which is before the segment. Returns true if the scan has not ended.
    #[inline(never)]
    fn with_floor_before(
        &mut self,
        key: &'k [u8],
        store: &'g OrderedStore,
        snapshot: Snapshot,
        guard: &'g Guard<'_>,
        f: &mut impl FnMut(&'g [u8], Seen<'g>) -> bool,
    ) -> bool {
        match store.find_last(Target::AtOrBelow(key), snapshot, guard, f) {
            ControlFlow::Break(()) => false,
            ControlFlow::Continue(floor) => {
                // All keys between both have expired.
                let Some(floor) = floor else { return true };
                self.left -= 1;
                is_at_or_before(self.end, floor.key) && f(floor.key, Seen::Pair(floor.value)) && self.left > 0
            }
        }
    }
}

impl OrderedStore {
    /// Calls `f` with the pairs of a range as of a snapshot and with expired keys among them, until it returns false.
    pub(crate) fn scan<'g: 'k, 'k>(
        &'g self,
        range: Range<'k>,
        snapshot: Snapshot,
        guard: &'g Guard<'_>,
        mut f: impl FnMut(&'g [u8], Seen<'g>) -> bool,
    ) {
        let range = range.with_prefix_as_start();
        let target = Target::AtOrBelow(range.start.key());
        let leaf = self.find_leaf(target, snapshot.version, guard);
        let segment = Shortcuts::open(leaf).find(target).segment;
        let Some(mut scan) = Scan::new(leaf, usize::from(segment), range, true) else { return };
        scan.prefetch();
        while scan.step(self, snapshot, guard, &mut f) {
            scan.prefetch();
        }
    }

    /// Calls `f` with the pairs of up to [`GROUP_SIZE`] ranges as of a snapshot, with runs of different ranges in turn.
    /// `f` also gets the index of the range, and ends that scan by returning false.
    pub(crate) fn scan_group<'g: 'k, 'k>(
        &'g self,
        ranges: &[Range<'k>],
        snapshot: Snapshot,
        guard: &'g Guard<'_>,
        mut f: impl FnMut(usize, &'g [u8], Seen<'g>) -> bool,
    ) {
        assert!(ranges.len() <= GROUP_SIZE, "a group has a limit");
        let mut keys = [&[][..]; GROUP_SIZE];
        for (key, range) in keys.iter_mut().zip(ranges) {
            *key = range.with_prefix_as_start().start.key();
        }
        let keys = &keys[..ranges.len()];
        let mut places = [self.place_at_root(snapshot.version, guard); GROUP_SIZE];
        self.descend_group(keys, &mut places, snapshot.version, guard, |_, _| ());
        let mut scans: [Option<Scan<'g, 'k>>; GROUP_SIZE] = std::array::from_fn(|index| {
            let Place { node, segment } = places[index];
            Scan::new(node, usize::from(segment.segment), ranges.get(index)?.with_prefix_as_start(), false)
        });
        let mut is_in_flight = true;
        while is_in_flight {
            scans.iter_mut().flatten().for_each(Scan::prefetch);
            is_in_flight = false;
            for (index, slot) in scans.iter_mut().enumerate() {
                let Some(scan) = slot else { continue };
                match scan.step(self, snapshot, guard, &mut |key, seen| f(index, key, seen)) {
                    true => is_in_flight = true,
                    false => *slot = None,
                }
            }
        }
    }

    /// Calls `f` with the pairs of a range as of a snapshot, the greatest key first, until it returns false.
    pub(crate) fn scan_reverse<'g>(
        &'g self,
        range: Range<'_>,
        snapshot: Snapshot,
        guard: &'g Guard<'_>,
        mut f: impl FnMut(&'g [u8], Seen<'g>) -> bool,
    ) {
        let mut left = range.limit;
        if left == 0 {
            return;
        }
        // The floor is the first pair that is not above its key. It is not searched for earlier: without versions it
        // could be gone when the scan reaches it.
        let range = range.with_prefix_as_start();
        let mut successor = None;
        let floor_of = match range.start {
            Start::Floor(key) => Some(key),
            _ => None,
        };
        let end = target_of(range.end, &mut successor);
        let target = floor_of.filter(|key| !is_at_or_before(range.end, key)).map_or(end, Target::AtOrBelow);
        // A segment is merged with its log entries forwards.
        let mut items = [None; SEGMENT_PAIRS_MAX];
        self.segments_before(target, snapshot, guard, |cursor, target| {
            let mut count = 0;
            while let Some(item) = cursor.next_of_segment() {
                items[count] = Some(item);
                count += 1;
            }
            let in_range = items[..count].iter().rev().flatten().filter(|item| target.is_right_of(item.key));
            for item in in_range {
                let is_floor = floor_of.is_some_and(|key| !is_below(key, item.key));
                if item.value.has_expired(snapshot.now) {
                    // The floor may be any key below it.
                    if !(is_floor || is_at_or_after(range.start, item.key)) || !f(item.key, Seen::Expired(1)) {
                        return false;
                    }
                    continue;
                }
                left -= 1;
                let is_in_range =
                    if is_floor { is_at_or_before(range.end, item.key) } else { is_at_or_after(range.start, item.key) };
                if !(is_in_range && f(item.key, Seen::Pair(item.value))) || is_floor || left == 0 {
                    return false;
                }
            }
            true
        });
    }

    /// Returns the greatest pair at the target or to the left of it. Breaks if `f`, which is called with the lowest expired
    /// key of each segment that has no such pair, returns false.
    fn find_last<'g>(
        &'g self,
        target: Target<'_>,
        snapshot: Snapshot,
        guard: &'g Guard<'_>,
        f: &mut impl FnMut(&'g [u8], Seen<'g>) -> bool,
    ) -> ControlFlow<(), Option<Item<'g>>> {
        let mut last = ControlFlow::Continue(None);
        self.segments_before(target, snapshot, guard, |cursor, target| {
            let (mut lowest_expired, mut expired) = (None, 0);
            while let Some(item) = cursor.next_of_segment().filter(|item| target.is_right_of(item.key)) {
                if item.value.has_expired(snapshot.now) {
                    lowest_expired = lowest_expired.or(Some(item.key));
                    expired += 1;
                } else {
                    last = ControlFlow::Continue(Some(item));
                }
            }
            match lowest_expired {
                _ if matches!(last, ControlFlow::Continue(Some(_))) => false,
                Some(key) if !f(key, Seen::Expired(expired)) => {
                    last = ControlFlow::Break(());
                    false
                }
                _ => true,
            }
        });
        last
    }

    /// Calls `f` with segments from that of the target to the left, until it returns false. Each segment comes with the
    /// target that is in it or to the right of it. Without versions a segment may have more pairs: those that were to
    /// the right of the previous leaf.
    fn segments_before<'g>(
        &'g self,
        target: Target<'_>,
        snapshot: Snapshot,
        guard: &'g Guard<'_>,
        mut f: impl FnMut(&mut LeafCursor<'g>, Target<'_>) -> bool,
    ) {
        let mut target = target;
        let (mut leaf, mut low) = self.find_leaf_and_low_fence(target, snapshot.version, guard);
        let mut segment = usize::from(Shortcuts::open(leaf).find(target).segment);
        loop {
            if !f(&mut LeafCursor::new(leaf, segment, snapshot), target) {
                return;
            }
            if segment > 0 {
                segment -= 1;
                continue;
            }
            let Some(fence) = low else { return };
            target = Target::Below(fence);
            (leaf, low) = self.find_leaf_and_low_fence(target, snapshot.version, guard);
            segment = usize::from(Shortcuts::open(leaf).find(target).segment);
        }
    }
}
