//! Scans: the pairs of a range in order, as of one version (Honeycomb, section 3.3).
//!
//! Forwards, leaves are crossed by right siblings. Backwards, and for the floor of a key that the leaf at hand does not
//! have, the tree is descended again for what lies below the lowest key of the leaf: a left sibling may have been merged
//! since, and an old-version pointer leads to the leftmost of the leaves that were replaced only.

use super::batch;
use super::epoch::Guard;
use super::frame::{Frame, LOG_COUNT_MAX, Node};
use super::header::Lid;
use super::interior;
use super::leaf::LeafCursor;
use super::segment::{ITEM_COUNT_MAX, Item, Value};
use super::shortcut::Shortcuts;
use super::trace::Trace;
use super::tree::{OrderedStore, older_to};
use super::window::Target;
use crate::memory::LINE_SIZE;
use crate::short::is_below;

/// Most pairs of a segment, with those of the log that belong there.
const SEGMENT_PAIRS_MAX: usize = ITEM_COUNT_MAX + LOG_COUNT_MAX;

/// Where a range begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'k> {
    /// At the lowest key.
    First,
    /// At the lowest key not below this one.
    AtOrAbove(&'k [u8]),
    /// At the lowest key above this one.
    Above(&'k [u8]),
    /// At the greatest key not above this one, or at the lowest if there is none: the paper's `SCAN`.
    Floor(&'k [u8]),
}

/// Where a range ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<'k> {
    /// With the greatest key.
    Last,
    /// With the greatest key not above this one: the paper's `SCAN`.
    AtOrBelow(&'k [u8]),
    /// With the greatest key below this one.
    Below(&'k [u8]),
}

impl<'k> Start<'k> {
    /// The key in whose segment the range begins.
    fn key(self) -> &'k [u8] {
        match self {
            Start::First => &[],
            Start::AtOrAbove(key) | Start::Above(key) | Start::Floor(key) => key,
        }
    }

    fn admits(self, key: &[u8]) -> bool {
        debug_assert!(!matches!(self, Start::Floor(_)), "the floor is looked for");
        match self {
            Start::Above(start) => is_below(start, key),
            _ => !is_below(key, self.key()),
        }
    }
}

impl<'k> End<'k> {
    #[inline]
    fn admits(self, key: &[u8]) -> bool {
        match self {
            End::Last => true,
            End::AtOrBelow(end) => !is_below(end, key),
            End::Below(end) => is_below(key, end),
        }
    }

    fn target(self) -> Target<'k> {
        match self {
            End::Last => Target::Last,
            End::AtOrBelow(end) => Target::AtOrBelow(end),
            End::Below(end) => Target::Below(end),
        }
    }
}

/// A scan on its way. A step visits what was announced behind the step before. Of several scans each takes a step in turn,
/// and then all announce: prefetches stand close together, so that their page walks overlap.
struct Scan<'g, 'k, T> {
    stage: Stage<'g, T>,
    /// The start, until a pair has been shown.
    start: Option<Start<'k>>,
    end: End<'k>,
    /// The floor of the start, if it lies before the segment of the start.
    floor: Option<Item<'g>>,
}

enum Stage<'g, T> {
    /// At a segment of a leaf whose first lines are at hand.
    Leaf(Node<'g, T>, usize),
    /// Within a leaf.
    Pairs(LeafCursor<'g, T>),
    /// At the page table entry of a leaf.
    Entry(Lid),
    /// At the first lines of a leaf.
    Frame(Frame<'g, T>),
}

impl<'g: 'k, 'k, T: Trace> Scan<'g, 'k, T> {
    /// In the leaf in which the start lies, at its segment.
    fn new(leaf: Node<'g, T>, segment: usize, start: Start<'k>, end: End<'k>) -> Self {
        let start = (start != Start::First).then_some(start);
        Scan { stage: Stage::Leaf(leaf, segment), start, end, floor: None }
    }

    /// Announces what the next step will visit.
    #[inline(always)]
    fn announce(&mut self, store: &'g OrderedStore<T>) {
        match &mut self.stage {
            Stage::Leaf(leaf, segment) => LeafCursor::announce(*leaf, *segment),
            Stage::Pairs(cursor) => cursor.announce_ahead(),
            Stage::Entry(lid) => store.frames.announce_entry(*lid),
            Stage::Frame(frame) => frame.announce(0, 2 * LINE_SIZE),
        }
    }

    /// Goes on, by a segment at most. Whether it has not ended.
    #[inline]
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
                self.stage = Stage::Pairs(LeafCursor::new(leaf, segment, version));
                if let Some(Start::Floor(key)) = self.start {
                    let floor = LeafCursor::new(leaf, segment, version).last_in_segment(|other| other <= key);
                    self.start = floor.map(|floor| Start::AtOrAbove(floor.key));
                    if floor.is_none() {
                        self.floor = store.find_last(Target::AtOrBelow(key), version, guard);
                    }
                }
                true
            }
            Stage::Pairs(cursor) => {
                let end = self.end;
                if let Some(floor) = self.floor {
                    self.floor = None;
                    if !(end.admits(floor.key) && visit(floor.key, floor.value)) {
                        return false;
                    }
                }
                if let Some(start) = self.start {
                    let low = start.key();
                    let is_found = match start {
                        Start::Above(_) => cursor.pass_until(|key| is_below(low, key)),
                        _ => cursor.pass_until(|key| !is_below(key, low)),
                    };
                    if is_found {
                        self.start = None;
                    }
                }
                let is_wanted = match end == End::Last || cursor.next_boundary().is_some_and(|key| end.admits(key)) {
                    true => cursor.visit_segment(|item| visit(item.key, item.value)),
                    false => cursor.visit_up_to(|key| end.admits(key), visit),
                };
                if !is_wanted {
                    return false;
                }
                if !cursor.next_segment() {
                    let Some(right) = cursor.leaf().right() else { return false };
                    self.stage = Stage::Entry(right);
                }
                true
            }
            Stage::Entry(lid) => {
                self.stage = Stage::Frame(store.frames.latest(*lid, guard));
                true
            }
            Stage::Frame(frame) => {
                self.stage = Stage::Leaf(older_to(frame.open(), version), 0);
                true
            }
        }
    }
}

/// Scans that are under way together. Each has more lines in flight than a get.
pub(super) const SCAN_GROUP_SIZE: usize = 16;

impl<T: Trace> OrderedStore<T> {
    /// Shows the pairs of a range as of a version, until `visit` answers false.
    pub(super) fn scan<'g: 'k, 'k>(
        &'g self,
        start: Start<'k>,
        end: End<'k>,
        version: u64,
        guard: &'g Guard<'_>,
        mut visit: impl FnMut(&'g [u8], Value<'g>) -> bool,
    ) {
        let target = Target::AtOrBelow(start.key());
        let leaf = self.find_leaf(target, version, guard);
        let segment = Shortcuts::open(leaf).find(target).segment;
        let mut scan = Scan::new(leaf, usize::from(segment), start, end);
        scan.announce(self);
        while scan.step(self, version, guard, &mut visit) {
            scan.announce(self);
        }
    }

    /// Shows the pairs of up to [`SCAN_GROUP_SIZE`] ranges as of a version, segments of different ranges in turn. `visit`
    /// gets the number of the range too, and ends that scan by false.
    pub(super) fn scan_group<'g: 'k, 'k>(
        &'g self,
        ranges: &[(Start<'k>, End<'k>)],
        version: u64,
        guard: &'g Guard<'_>,
        mut visit: impl FnMut(usize, &'g [u8], Value<'g>) -> bool,
    ) {
        assert!(ranges.len() <= SCAN_GROUP_SIZE, "a group has a limit");
        let mut keys = [&[][..]; SCAN_GROUP_SIZE];
        for (key, (start, _)) in keys.iter_mut().zip(ranges) {
            *key = start.key();
        }
        let keys = &keys[..ranges.len()];
        let leaves = self.find_leaves(keys, version, guard);
        let places = batch::find_segments(&leaves, keys);
        let mut scans: [Option<Scan<'g, 'k, T>>; SCAN_GROUP_SIZE] = std::array::from_fn(|number| {
            let (start, end) = *ranges.get(number)?;
            Some(Scan::new(leaves[number], usize::from(places[number].segment), start, end))
        });
        let mut under_way = ranges.len();
        while under_way > 0 {
            scans.iter_mut().flatten().for_each(|scan| scan.announce(self));
            for (number, slot) in scans.iter_mut().enumerate() {
                let Some(scan) = slot else { continue };
                if !scan.step(self, version, guard, &mut |key, value| visit(number, key, value)) {
                    *slot = None;
                    under_way -= 1;
                }
            }
        }
    }

    /// Shows the pairs of a range as of a version, the greatest key first, until `visit` answers false.
    pub(super) fn scan_reverse<'g>(
        &'g self,
        start: Start<'_>,
        end: End<'_>,
        version: u64,
        guard: &'g Guard<'_>,
        mut visit: impl FnMut(&'g [u8], Value<'g>) -> bool,
    ) {
        let start = match start {
            Start::Floor(key) => match self.find_last(Target::AtOrBelow(key), version, guard) {
                Some(floor) => Start::AtOrAbove(floor.key),
                None => Start::First,
            },
            other => other,
        };
        // A segment is merged with its log entries forwards.
        let mut items = [None; SEGMENT_PAIRS_MAX];
        self.segments_before(end.target(), version, guard, |cursor, target| {
            let mut count = 0;
            while let Some(item) = cursor.next_of_segment() {
                items[count] = Some(item);
                count += 1;
            }
            let in_range = items[..count].iter().rev().flatten().filter(|item| target.is_right_of(item.key));
            for item in in_range {
                if !(start.admits(item.key) && visit(item.key, item.value)) {
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

    /// The leaf in which a target lies, and the lowest key that it may hold if it is not the leftmost.
    fn find_leaf_and_low_fence<'g>(
        &'g self,
        target: Target<'_>,
        version: u64,
        guard: &'g Guard<'_>,
    ) -> (Node<'g, T>, Option<&'g [u8]>) {
        let mut node = self.as_of(Lid::ROOT, version, guard);
        let mut low = None;
        while node.level() > 0 {
            let place = interior::find(node, target);
            low = interior::low_fence(node, place).or(low);
            node = self.as_of(place.lid, version, guard);
        }
        (node, low)
    }
}
