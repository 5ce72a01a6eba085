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
//! 2. [`OrderedStore::descend_group`] takes the steps for a group of keys in two loops for each level, so that their
//!    cache misses overlap: one finds children, the other opens them and finds segments.

use super::super::key_head::Target;
use super::super::leaf::find::FirstItem;
use super::super::memory::number::Lid;
use super::super::node::frame::Node;
use super::super::node::hint::Hint;
use super::super::node::interior::{self, ChildPosition};
use super::super::node::shortcut::{self, SegmentPosition, Shortcuts};
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
    /// The first item of the segment that may have the key.
    pub(crate) item: FirstItem,
}

impl KeyPosition<'_> {
    /// Returns the same position in the leaf's present state, which may be locked.
    #[inline(always)]
    pub(crate) fn at_present(self) -> Self {
        KeyPosition { leaf: self.leaf.frame().open(), ..self }
    }
}

/// A node, and the segment of a key in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'g> {
    pub(crate) node: Node<'g>,
    pub(crate) segment: SegmentPosition,
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

    /// Returns the place at which a group's descent as of a version begins.
    #[inline(always)]
    pub(crate) fn place_at_root<'g>(&'g self, version: u64, guard: &'g Guard<'_>) -> Place<'g> {
        Place { node: self.as_of(Lid::ROOT, version, guard), segment: SegmentPosition::default() }
    }

    /// Moves the places of up to [`GROUP_SIZE`] keys from the root to their leaves as of a version, and to their
    /// segments in them. Calls `f` with each key's index and leaf, whose header and shortcut index are resident. Prefetches the
    /// first line of each segment.
    #[inline(always)]
    pub(crate) fn descend_group<'g>(
        &'g self,
        keys: &[&[u8]],
        places: &mut [Place<'g>; GROUP_SIZE],
        version: u64,
        guard: &'g Guard<'_>,
        mut f: impl FnMut(usize, Node<'g>),
    ) {
        assert!(keys.len() <= GROUP_SIZE, "a group has a limit");
        let mut children = [None; GROUP_SIZE];
        let root = places[0].node;
        if root.level() > 0 {
            // The root is in the cache; the levels below it are not.
            let shortcuts = Shortcuts::open(root);
            for (key, place) in keys.iter().zip(&mut *places) {
                place.segment = shortcuts.find(Target::AtOrBelow(key));
                interior::prefetch_segment(root, place.segment);
            }
        }
        for level in (0..root.level()).rev() {
            for ((key, place), child) in keys.iter().zip(&*places).zip(&mut children) {
                let found = find_child(place.node, place.segment, Target::AtOrBelow(key));
                self.frames.prefetch_entry(found.lid);
                self.frames.prefetch_hinted(found.hint);
                *child = Some((found.lid, found.hint));
            }
            if level == 0 {
                break;
            }
            for ((key, place), child) in keys.iter().zip(&mut *places).zip(&children) {
                let Some((lid, hint)) = child else { break };
                let node = self.open_child(*lid, *hint, version, guard);
                let segment = find_segment(node, Target::AtOrBelow(key));
                interior::prefetch_segment(node, segment);
                *place = Place { node, segment };
            }
        }
        let mut tied = 0_u32;
        for (index, ((key, place), child)) in keys.iter().zip(&mut *places).zip(&children).enumerate() {
            if let Some((lid, hint)) = child {
                place.node = self.open_child(*lid, *hint, version, guard);
            }
            match Shortcuts::open(place.node).find_untied(Target::AtOrBelow(key)) {
                Ok(segment) => {
                    place.segment = segment;
                    place.node.frame().prefetch_line(usize::from(segment.start));
                }
                Err(tie) => {
                    tied |= 1 << index;
                    shortcut::prefetch_tied(place.node.frame(), tie, key);
                }
            }
            f(index, place.node);
        }
        while tied != 0 {
            let index = tied.trailing_zeros() as usize;
            tied &= tied - 1;
            let place = &mut places[index];
            place.segment = Shortcuts::open(place.node).find(Target::AtOrBelow(keys[index]));
            place.node.frame().prefetch_line(usize::from(place.segment.start));
        }
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
