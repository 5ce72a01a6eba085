//! Descents: from the root to the leaf of a key, as of a version (Honeycomb, section 3.3).
//!
//! ```text
//! node ── find_segment ──▶ segment ── find_child ──▶ child ── open_child ──▶ node of the level below
//! header,                  key heads,                page table entry,       header,
//! shortcut index           LIDs, hints               frame of the hint       shortcut index
//! ```
//!
//! Each step returns the name of the block that the next step reads, so a driver can prefetch it. There are two drivers:
//!
//! 1. [`OrderedStore::descend`] takes the steps for one target and reports the path. Gets, scans, reverse scans, writes,
//!    splits and joins use it.
//! 2. [`OrderedStore::find_leaves`] takes each step for a group of keys before the next step, so their cache misses
//!    overlap.

use super::super::key_head::Target;
use super::super::memory::number::Lid;
use super::super::node::frame::Node;
use super::super::node::hint::Hint;
use super::super::node::interior::{self, ChildPosition};
use super::super::node::shortcut::{SegmentPosition, Shortcuts};
use super::super::store::OrderedStore;
use super::super::version::epoch::Guard;

/// Most keys of a group: enough for all misses that a core can have in flight.
pub(crate) const GROUP_SIZE: usize = 32;

/// The position of a key, or the position at which it would be inserted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyPosition<'g> {
    pub(crate) leaf: Node<'g>,
    pub(crate) segment: SegmentPosition,
    pub(crate) fingerprint: u8,
}

/// Finds the segment of the target in an interior node.
#[inline(always)]
fn find_segment(node: Node<'_>, target: Target<'_>) -> SegmentPosition {
    Shortcuts::open(node).find(target)
}

/// Finds the child of the target in a segment.
#[inline(always)]
fn find_child<'g>(node: Node<'g>, segment: SegmentPosition, target: Target<'_>) -> ChildPosition<'g> {
    interior::find_in_segment(node, segment, target)
}

impl OrderedStore {
    /// Loads the latest frame of a child, repairs its hint, and opens its node as of a version.
    #[inline(always)]
    fn open_child<'g>(&'g self, lid: Lid, hint: Hint<'g>, version: u64, guard: &'g Guard<'_>) -> Node<'g> {
        older_to(self.frames.latest_of(lid, hint, guard).open(), version)
    }

    /// Returns the state of a node as of a version, which was readable when the guard's operation began.
    #[inline]
    pub(crate) fn as_of<'g>(&'g self, lid: Lid, version: u64, guard: &'g Guard<'_>) -> Node<'g> {
        older_to(self.latest(lid, guard), version)
    }

    /// Finds the leaf of a target as of a version. Calls `f` with each interior node on the path and its child. Inlined,
    /// since callers know the kind of target.
    #[inline(always)]
    pub(crate) fn descend<'g>(
        &'g self,
        target: Target<'_>,
        version: u64,
        guard: &'g Guard<'_>,
        mut f: impl FnMut(Node<'g>, ChildPosition<'g>),
    ) -> Node<'g> {
        let mut node = self.as_of(Lid::ROOT, version, guard);
        while node.level() > 0 {
            let segment = find_segment(node, target);
            // Its key heads are read at once.
            node.frame().prefetch_line(usize::from(segment.start));
            let child = find_child(node, segment, target);
            self.frames.prefetch_hinted(child.hint);
            f(node, child);
            node = self.open_child(child.lid, child.hint, version, guard);
        }
        node
    }

    /// Finds the leaf of a target as of a version.
    #[inline(always)]
    pub(crate) fn find_leaf<'g>(&'g self, target: Target<'_>, version: u64, guard: &'g Guard<'_>) -> Node<'g> {
        self.descend(target, version, guard, |_, _| ())
    }

    /// Finds the leaf of a target, and the lowest key that it may have. That is `None` for the leftmost leaf.
    pub(crate) fn find_leaf_and_low_fence<'g>(
        &'g self,
        target: Target<'_>,
        version: u64,
        guard: &'g Guard<'_>,
    ) -> (Node<'g>, Option<&'g [u8]>) {
        let mut low = None;
        let leaf = self.descend(target, version, guard, |node, child| low = interior::low_fence(node, child).or(low));
        (leaf, low)
    }

    /// Finds the leaves of up to [`GROUP_SIZE`] keys as of a version, in the order of the keys. Header and shortcut
    /// index of each leaf are resident. The remaining nodes are the root.
    #[inline]
    pub(crate) fn find_leaves<'g>(
        &'g self,
        keys: &[&[u8]],
        version: u64,
        guard: &'g Guard<'_>,
    ) -> [Node<'g>; GROUP_SIZE] {
        assert!(keys.len() <= GROUP_SIZE, "a group has a limit");
        let root = self.as_of(Lid::ROOT, version, guard);
        let mut nodes = [root; GROUP_SIZE];
        let mut segments = [SegmentPosition::default(); GROUP_SIZE];
        let mut children = [None; GROUP_SIZE];
        // The root is in the cache; the levels below it are not.
        for _ in 0..root.level() {
            for ((key, node), segment) in keys.iter().zip(&nodes).zip(&mut segments) {
                *segment = find_segment(*node, Target::AtOrBelow(key));
                interior::prefetch_segment(*node, *segment);
            }
            for (((key, node), segment), child) in keys.iter().zip(&nodes).zip(&segments).zip(&mut children) {
                let found = find_child(*node, *segment, Target::AtOrBelow(key));
                self.frames.prefetch_entry(found.lid);
                self.frames.prefetch_hinted(found.hint);
                *child = Some((found.lid, found.hint));
            }
            for (child, node) in children[..keys.len()].iter().zip(&mut nodes) {
                let Some((lid, hint)) = child else { break };
                *node = self.open_child(*lid, *hint, version, guard);
            }
        }
        nodes
    }
}

/// Follows old-version pointers down to a version.
#[inline]
fn older_to(mut node: Node<'_>, version: u64) -> Node<'_> {
    while node.version() > version {
        node = node.older().open();
    }
    node
}
