//! Scans: the pairs of a range in order, as of one version (Honeycomb, section 3.3).
//!
//! Forwards, leaves are crossed by right siblings. Backwards, and for the floor of a key that the leaf at hand does not
//! have, the tree is descended again for what lies below the lowest key of the leaf: a left sibling may have been merged
//! since, and an old-version pointer leads to the leftmost of the leaves that were replaced only.

use super::epoch::Guard;
use super::frame::{LOG_COUNT_MAX, Node};
use super::header::Lid;
use super::interior;
use super::leaf::LeafCursor;
use super::segment::{ITEM_COUNT_MAX, Item, Value};
use super::shortcut::Shortcuts;
use super::trace::Trace;
use super::tree::OrderedStore;
use super::window::Target;

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

impl Start<'_> {
    fn admits(self, key: &[u8]) -> bool {
        match self {
            Start::First => true,
            Start::AtOrAbove(start) => key >= start,
            Start::Above(start) => key > start,
            Start::Floor(_) => unreachable!("the floor is looked for"),
        }
    }
}

impl<'k> End<'k> {
    #[inline]
    fn admits(self, key: &[u8]) -> bool {
        match self {
            End::Last => true,
            End::AtOrBelow(end) => key <= end,
            End::Below(end) => key < end,
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

impl<T: Trace> OrderedStore<T> {
    /// Shows the pairs of a range as of a version, until `visit` answers false.
    pub(super) fn scan<'g>(
        &'g self,
        start: Start<'_>,
        end: End<'_>,
        version: u64,
        guard: &'g Guard<'_>,
        mut visit: impl FnMut(&'g [u8], Value<'g>) -> bool,
    ) {
        let mut show = |item: Item<'g>| end.admits(item.key) && visit(item.key, item.value);
        let key = match start {
            Start::First => &[][..],
            Start::AtOrAbove(key) | Start::Above(key) | Start::Floor(key) => key,
        };
        let target = Target::AtOrBelow(key);
        let leaf = self.find_leaf(target, version, guard);
        let mut cursor = LeafCursor::new(leaf, Shortcuts::open(leaf).find(target).segment.into(), version);
        let mut next = cursor.next();
        if let Start::Floor(key) = start {
            let mut floor = None;
            while let Some(item) = next.filter(|item| item.key <= key) {
                floor = Some(item);
                next = cursor.next();
            }
            let floor = floor.or_else(|| self.find_last(target, version, guard));
            if floor.is_some_and(|floor| !show(floor)) {
                return;
            }
        } else {
            while next.is_some_and(|item| !start.admits(item.key)) {
                next = cursor.next();
            }
        }
        loop {
            while let Some(item) = next {
                if !(matches!(start, Start::Floor(_)) || start.admits(item.key)) {
                    // A start above the whole first leaf.
                } else if !show(item) {
                    return;
                }
                next = cursor.next();
            }
            let Some(right) = cursor.leaf().right() else { return };
            cursor = LeafCursor::new(self.as_of(right, version, guard), 0, version);
            next = cursor.next();
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
            while let Some(item) = cursor.next_of_segment().filter(|item| target.is_right_of(item.key)) {
                last = Some(item);
            }
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
