//! Descents: from the root to the leaf of a key, as of a version (Honeycomb, section 3.3).

use super::super::key_head::Target;
use super::super::memory::number::Lid;
use super::super::node::frame::Node;
use super::super::node::interior;
use super::super::node::shortcut::SegmentPosition;
use super::super::store::OrderedStore;
use super::super::version::epoch::Guard;

/// The position of a key, or the position at which it would be inserted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyPosition<'g> {
    pub(crate) leaf: Node<'g>,
    pub(crate) segment: SegmentPosition,
    pub(crate) fingerprint: u8,
}

impl OrderedStore {
    /// Returns the state of a node as of a version, which was readable when the guard's operation began.
    #[inline]
    pub(crate) fn as_of<'g>(&'g self, lid: Lid, version: u64, guard: &'g Guard<'_>) -> Node<'g> {
        older_to(self.latest(lid, guard), version)
    }

    /// Finds the leaf of a target as of a version. Inlined, since callers know the kind of target.
    #[inline(always)]
    pub(crate) fn find_leaf<'g>(&'g self, target: Target<'_>, version: u64, guard: &'g Guard<'_>) -> Node<'g> {
        let mut node = self.as_of(Lid::ROOT, version, guard);
        while node.level() > 0 {
            let child = interior::find(node, target);
            self.frames.prefetch_hinted(child.hint);
            node = older_to(self.frames.latest_of(child.lid, child.hint, guard).open(), version);
        }
        node
    }

    /// Finds the leaf of a target, and the lowest key that it may have. That is `None` for the leftmost leaf.
    pub(crate) fn find_leaf_and_low_fence<'g>(
        &'g self,
        target: Target<'_>,
        version: u64,
        guard: &'g Guard<'_>,
    ) -> (Node<'g>, Option<&'g [u8]>) {
        let mut node = self.as_of(Lid::ROOT, version, guard);
        let mut low = None;
        while node.level() > 0 {
            let position = interior::find(node, target);
            low = interior::low_fence(node, position).or(low);
            node = self.as_of(position.lid, version, guard);
        }
        (node, low)
    }
}

/// Follows old-version pointers down to a version.
#[inline]
pub(crate) fn older_to(mut node: Node<'_>, version: u64) -> Node<'_> {
    while node.version() > version {
        node = node.older().open();
    }
    node
}
