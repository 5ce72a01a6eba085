//! Scans: the pairs of a range in order, as of one version (Honeycomb, section 3.3).
//!
//! ```text
//! header, shortcut index ─▶ head of a segment, log directory ─▶ pairs, boundary keys, log entries ─▶ shown
//!        ▲                                                      ▲                                     │
//!        │                                                      └──── more than fit one step ◀────────┤
//!        └────────────────────────────── leaf to the right ◀──────────────────────────────────────────┘
//! ```
//!
//! The fingerprints in the head tell where the start is, if it is a key that exists, so that no pair before it is fetched.
//! No more is prefetched than the limit allows.
//!
//! Each arrow is a step of a scan: it visits what was prefetched behind the step before. Of several scans each takes a step in
//! turn, and then all prefetch: prefetches stand close together, so that their page walks overlap.
//!
//! Forwards, leaves are crossed by right siblings. Backwards, and for the floor of a key that the leaf resident does not
//! have, the tree is descended again for what lies below the lowest key of the leaf: a left sibling may have been merged
//! since, and an old-version pointer leads to the leftmost of the leaves that were replaced only.

use super::super::key_head::Target;
use super::super::leaf::cursor::LeafCursor;
use super::super::leaf::range::{End, Range, Start};
use super::super::node::frame::{LOG_COUNT_MAX, Node};
use super::super::node::segment::{ITEM_COUNT_MAX, Item, Value};
use super::super::node::shortcut::Shortcuts;
use super::super::store::OrderedStore;
use super::super::trace::Trace;
use super::super::version::epoch::Guard;
use super::group::{self, GROUP_SIZE};
use crate::short::is_below;

/// Most pairs of a segment, with those of the log that belong there.
const SEGMENT_PAIRS_MAX: usize = ITEM_COUNT_MAX + LOG_COUNT_MAX;

/// A scan on its way.
struct Scan<'g, 'k, T> {
    stage: Stage<'g, T>,
    /// The start, until the first segment is visited.
    start: Option<Start<'k>>,
    end: End<'k>,
    /// How many pairs are still wanted: one at least.
    left: usize,
    /// Whether nothing else is done while lines travel. Then more is prefetched at each segment.
    is_alone: bool,
}

enum Stage<'g, T> {
    /// At a segment of a leaf whose first lines are resident.
    Leaf(Node<'g, T>, usize),
    /// Within a leaf.
    Pairs(LeafCursor<'g, T>),
}

impl<'g: 'k, 'k, T: Trace> Scan<'g, 'k, T> {
    /// In the leaf in which the start lies, at its segment. None if no pair is wanted.
    fn new(leaf: Node<'g, T>, segment: usize, range: Range<'k>, is_alone: bool) -> Option<Self> {
        let start = (range.start != Start::First).then_some(range.start);
        let scan = Scan { stage: Stage::Leaf(leaf, segment), start, end: range.end, left: range.limit, is_alone };
        (range.limit > 0).then_some(scan)
    }

    /// Prefetches what the next step will visit.
    #[inline(always)]
    fn prefetch(&mut self) {
        match &mut self.stage {
            Stage::Leaf(leaf, segment) => {
                LeafCursor::prefetch(*leaf, *segment, self.start.is_none() || self.is_alone, self.end);
            }
            Stage::Pairs(cursor) => cursor.prefetch_ahead(self.left, self.end),
        }
    }

    /// Goes on, through what was prefetched. Whether it has not ended.
    #[inline(always)]
    fn step(
        &mut self,
        store: &'g OrderedStore<T>,
        version: u64,
        guard: &'g Guard<'_>,
        visit: &mut impl FnMut(&'g [u8], Value<'g>) -> bool,
    ) -> bool {
        match &mut self.stage {
            Stage::Leaf(leaf, segment) => {
                let (leaf, segment) = (*leaf, *segment);
                if let Some(Start::Floor(key)) = self.start
                    && !self.pass_floor(leaf, segment, key, (store, version, guard), visit)
                {
                    return false;
                }
                let mut cursor = LeafCursor::new(leaf, segment, version);
                if let Some(start) = self.start {
                    cursor.guess_start(start.key());
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
                        End::Last => cursor.visit_segment(&mut self.left, visit),
                        _ => match cursor.next_boundary() {
                            Some(key) if end.admits(key) => cursor.visit_segment(&mut self.left, visit),
                            next => cursor.visit_up_to(|key| end.admits(key), &mut self.left, visit) && next.is_none(),
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
                    self.stage = Stage::Leaf(store.as_of(right, version, guard), 0);
                }
                true
            }
        }
    }

    /// Sets the start to the floor of a key, or shows that floor if it lies before the segment. Whether the scan has not
    /// ended.
    #[inline(never)]
    fn pass_floor(
        &mut self,
        leaf: Node<'g, T>,
        segment: usize,
        key: &[u8],
        (store, version, guard): (&'g OrderedStore<T>, u64, &'g Guard<'_>),
        visit: &mut impl FnMut(&'g [u8], Value<'g>) -> bool,
    ) -> bool {
        let floor = LeafCursor::new(leaf, segment, version).last_in_segment(|other| other <= key);
        self.start = floor.map(|floor| Start::AtOrAbove(floor.key));
        if floor.is_some() {
            return true;
        }
        let Some(floor) = store.find_last(Target::AtOrBelow(key), version, guard) else { return true };
        self.left -= 1;
        self.end.admits(floor.key) && visit(floor.key, floor.value) && self.left > 0
    }
}

impl<T: Trace> OrderedStore<T> {
    /// Shows the pairs of a range as of a version, until `visit` answers false.
    pub(crate) fn scan<'g: 'k, 'k>(
        &'g self,
        range: Range<'k>,
        version: u64,
        guard: &'g Guard<'_>,
        mut visit: impl FnMut(&'g [u8], Value<'g>) -> bool,
    ) {
        let target = Target::AtOrBelow(range.start.key());
        let leaf = self.find_leaf(target, version, guard);
        let segment = Shortcuts::open(leaf).find(target).segment;
        let Some(mut scan) = Scan::new(leaf, usize::from(segment), range, true) else { return };
        scan.prefetch();
        while scan.step(self, version, guard, &mut visit) {
            scan.prefetch();
        }
    }

    /// Shows the pairs of up to [`GROUP_SIZE`] ranges as of a version, runs of different ranges in turn. `visit` gets the
    /// number of the range too, and ends that scan by false.
    pub(crate) fn scan_group<'g: 'k, 'k>(
        &'g self,
        ranges: &[Range<'k>],
        version: u64,
        guard: &'g Guard<'_>,
        mut visit: impl FnMut(usize, &'g [u8], Value<'g>) -> bool,
    ) {
        assert!(ranges.len() <= GROUP_SIZE, "a group has a limit");
        let mut keys = [&[][..]; GROUP_SIZE];
        for (key, range) in keys.iter_mut().zip(ranges) {
            *key = range.start.key();
        }
        let keys = &keys[..ranges.len()];
        let leaves = self.find_leaves(keys, version, guard);
        let places = group::find_segments(&leaves, keys);
        let mut scans: [Option<Scan<'g, 'k, T>>; GROUP_SIZE] = std::array::from_fn(|number| {
            Scan::new(leaves[number], usize::from(places[number].segment), *ranges.get(number)?, false)
        });
        let mut is_under_way = true;
        while is_under_way {
            scans.iter_mut().flatten().for_each(Scan::prefetch);
            is_under_way = false;
            for (number, slot) in scans.iter_mut().enumerate() {
                let Some(scan) = slot else { continue };
                match scan.step(self, version, guard, &mut |key, value| visit(number, key, value)) {
                    true => is_under_way = true,
                    false => *slot = None,
                }
            }
        }
    }

    /// Shows the pairs of a range as of a version, the greatest key first, until `visit` answers false.
    pub(crate) fn scan_reverse<'g>(
        &'g self,
        range: Range<'_>,
        version: u64,
        guard: &'g Guard<'_>,
        mut visit: impl FnMut(&'g [u8], Value<'g>) -> bool,
    ) {
        let mut left = range.limit;
        if left == 0 {
            return;
        }
        // A floor is the first pair that is not above its key: it is not looked for before, or it could be gone when the
        // scan comes there without versions.
        let floor_of = match range.start {
            Start::Floor(key) => Some(key),
            _ => None,
        };
        let target = floor_of.filter(|key| !range.end.admits(key)).map_or(range.end.target(), Target::AtOrBelow);
        // A segment is merged with its log entries forwards.
        let mut items = [None; SEGMENT_PAIRS_MAX];
        self.segments_before(target, version, guard, |cursor, target| {
            let mut count = 0;
            while let Some(item) = cursor.next_of_segment() {
                items[count] = Some(item);
                count += 1;
            }
            let in_range = items[..count].iter().rev().flatten().filter(|item| target.is_right_of(item.key));
            for item in in_range {
                left -= 1;
                let is_floor = floor_of.is_some_and(|key| !is_below(key, item.key));
                let is_in_range = if is_floor { range.end.admits(item.key) } else { range.start.admits(item.key) };
                if !(is_in_range && visit(item.key, item.value)) || is_floor || left == 0 {
                    return false;
                }
            }
            true
        });
    }

    /// The greatest pair at the target or to the left of it.
    fn find_last<'g>(&'g self, target: Target<'_>, version: u64, guard: &'g Guard<'_>) -> Option<Item<'g>> {
        let mut last = None;
        self.segments_before(target, version, guard, |cursor, target| {
            last = cursor.last_in_segment(|key| target.is_right_of(key));
            last.is_none()
        });
        last
    }

    /// Shows segments from that of the target to the left, until `visit` answers false, each with the target that it holds
    /// or lies to the left of. Without versions a segment may hold more: what was to the right of the leaf before.
    fn segments_before<'g>(
        &'g self,
        target: Target<'_>,
        version: u64,
        guard: &'g Guard<'_>,
        mut visit: impl FnMut(&mut LeafCursor<'g, T>, Target<'_>) -> bool,
    ) {
        let mut target = target;
        let (mut leaf, mut low) = self.find_leaf_and_low_fence(target, version, guard);
        let mut segment = usize::from(Shortcuts::open(leaf).find(target).segment);
        loop {
            if !visit(&mut LeafCursor::new(leaf, segment, version), target) {
                return;
            }
            if segment > 0 {
                segment -= 1;
                continue;
            }
            let Some(fence) = low else { return };
            target = Target::Below(fence);
            (leaf, low) = self.find_leaf_and_low_fence(target, version, guard);
            segment = usize::from(Shortcuts::open(leaf).find(target).segment);
        }
    }
}
