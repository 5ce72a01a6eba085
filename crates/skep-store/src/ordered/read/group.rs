//! Batches of gets: all of a group go through the tree in step, so that their cache misses overlap.
//!
//! ```text
//! level by level   page table entry, header and shortcut index ─▶ segment of children ─▶ next level
//! leaf             page table entry, header and shortcut index ─▶ head of a segment ─▶ item ─▶ answer
//!                                                       └ a tie ─▶ boundary keys ─┘
//!                                                       └ log directory ─▶ entry ─▶ answer
//! ```
//!
//! Each arrow is a loop over the group: it visits what the loop before has prefetched, and prefetches what the next one
//! will visit. The stages are written out by hand over the same searches as a single get: as futures they would take
//! about fifty nanoseconds more each. All gets of a batch are one operation and read one version. Scans in batches begin in
//! the same way, and so do groups of writes.

use super::super::key_head::{Target, fingerprint};
use super::super::leaf::find;
use super::super::memory::number::Lid;
use super::super::node::frame::Node;
use super::super::node::interior;
use super::super::node::interior::ChildPlace;
use super::super::node::log;
use super::super::node::segment::{Spot, Value};
use super::super::node::shortcut;
use super::super::node::shortcut::{SegmentPlace, Shortcuts};
use super::super::store::OrderedStore;
use super::super::trace::Trace;
use super::super::version::epoch::Guard;
use super::descent::{KeyPlace, older_to};
use crate::memory::LINE_SIZE;

/// Gets that are under way together: enough to keep all misses in flight that a core can have.
pub(crate) const GROUP_SIZE: usize = 32;

impl<T: Trace> OrderedStore<T> {
    /// The leaves of up to [`GROUP_SIZE`] keys as of a version, in the order of the keys: header and shortcut index are at
    /// hand. Behind them is the root.
    #[inline]
    pub(crate) fn find_leaves<'g>(
        &'g self,
        keys: &[&[u8]],
        version: u64,
        guard: &'g Guard<'_>,
    ) -> [Node<'g, T>; GROUP_SIZE] {
        assert!(keys.len() <= GROUP_SIZE, "a group has a limit");
        let root = self.as_of(Lid::ROOT, version, guard);
        let mut nodes = [root; GROUP_SIZE];
        let mut places = [SegmentPlace::default(); GROUP_SIZE];
        let mut children = [None; GROUP_SIZE];
        // The root is hot; the levels below it are not.
        for _ in 0..root.level() {
            for ((key, node), place) in keys.iter().zip(&nodes).zip(&mut places) {
                *place = Shortcuts::open(*node).find(Target::AtOrBelow(key));
                interior::prefetch_segment(*node, *place);
            }
            for (((key, node), place), child) in keys.iter().zip(&nodes).zip(&places).zip(&mut children) {
                let ChildPlace { lid, hint, .. } = interior::find_in_segment(*node, *place, Target::AtOrBelow(key));
                self.frames.prefetch_entry(lid);
                self.frames.prefetch_hinted(hint);
                *child = Some((lid, hint));
            }
            for (child, node) in children[..keys.len()].iter().zip(&mut nodes) {
                let Some((lid, hint)) = child else { break };
                *node = older_to(self.frames.latest_of(*lid, *hint, guard).open(), version);
            }
        }
        nodes
    }

    /// The values of up to [`GROUP_SIZE`] keys as of a version, shown in the order of the keys.
    pub(crate) fn get_group<'g>(
        &'g self,
        keys: &[&[u8]],
        version: u64,
        guard: &'g Guard<'_>,
        mut show: impl FnMut(Option<Value<'g>>),
    ) {
        assert!(keys.len() <= GROUP_SIZE, "a group has a limit");
        let leaves = self.find_leaves(keys, version, guard);
        let mut fingerprints = [0_u8; GROUP_SIZE];
        // Entries of the log in which each key may be.
        let mut in_log = [0_u16; GROUP_SIZE];
        for (number, key) in keys.iter().enumerate() {
            let leaf = leaves[number];
            fingerprints[number] = fingerprint(key);
            in_log[number] = find::log_candidates(leaf, fingerprints[number]) as u16;
            if in_log[number] != 0 {
                leaf.frame().prefetch_line(leaf.log_start());
            }
        }
        let places = find_segments(&leaves, keys);
        // The item that a key is compared with first.
        let mut spots = [Spot::NONE; GROUP_SIZE];
        for number in 0..keys.len() {
            let (leaf, place) = (leaves[number], places[number]);
            if in_log[number] != 0 {
                log::prefetch(leaf, in_log[number].ilog2() as usize);
            }
            let spot = find::first_spot(leaf, place, fingerprints[number]);
            if spot != Spot::NONE {
                let (offset, size) =
                    (usize::from(spot.offset), usize::from(spot.key_size) + usize::from(spot.value_size));
                leaf.frame().prefetch(offset, size);
            }
            spots[number] = spot;
        }
        for (number, key) in keys.iter().enumerate() {
            let leaf = leaves[number];
            let logged = match in_log[number] {
                0 => None,
                candidates => find::read_log(leaf.frame(), key, u32::from(candidates), version),
            };
            let sorted = || find::read_sorted(leaf, places[number], spots[number], key, fingerprints[number]);
            show(logged.unwrap_or_else(sorted));
        }
    }
}

/// Where the keys of a group lie, or would.
pub(crate) struct KeyPlaces<'g, T> {
    leaves: [Node<'g, T>; GROUP_SIZE],
    segments: [SegmentPlace; GROUP_SIZE],
    fingerprints: [u8; GROUP_SIZE],
}

impl<'g, T: Trace> KeyPlaces<'g, T> {
    /// That of one key.
    #[inline]
    pub(crate) fn of(&self, number: usize) -> KeyPlace<'g, T> {
        let (leaf, segment) = (self.leaves[number], self.segments[number]);
        KeyPlace { leaf, segment, fingerprint: self.fingerprints[number] }
    }
}

impl<T: Trace> OrderedStore<T> {
    /// The places of up to [`GROUP_SIZE`] keys that will be written. What a write begins with is prefetched: the item
    /// that may have the key, or all of its segment, the log's directory and its end, and the entry that may have the key; of a
    /// leaf that will be merged, all.
    pub(crate) fn places_of_group<'g>(&'g self, keys: &[&[u8]], guard: &'g Guard<'_>) -> KeyPlaces<'g, T> {
        let leaves = self.find_leaves(keys, u64::MAX, guard);
        let segments = find_segments(&leaves, keys);
        let mut fingerprints = [0; GROUP_SIZE];
        for (number, key) in keys.iter().enumerate() {
            fingerprints[number] = fingerprint(key);
            log::prefetch_end(leaves[number]);
        }
        for (number, fingerprint) in fingerprints[..keys.len()].iter().enumerate() {
            let leaf = leaves[number];
            if self.log_block.is_full(leaf) {
                leaf.frame().prefetch(0, leaf.log_start() + LINE_SIZE + leaf.state().log_size());
                continue;
            }
            let candidates = find::log_candidates(leaf, *fingerprint);
            if candidates != 0 {
                log::prefetch(leaf, candidates.ilog2() as usize);
            }
            find::prefetch_place(leaf, segments[number], *fingerprint);
        }
        KeyPlaces { leaves, segments, fingerprints }
    }
}

/// The segments of leaves in which keys lie, their first lines prefetched.
#[inline]
pub(crate) fn find_segments<T: Trace>(
    leaves: &[Node<'_, T>; GROUP_SIZE],
    keys: &[&[u8]],
) -> [SegmentPlace; GROUP_SIZE] {
    let mut places = [SegmentPlace::default(); GROUP_SIZE];
    let mut tied = 0_u32;
    for (number, (leaf, key)) in leaves.iter().zip(keys).enumerate() {
        let shortcuts = Shortcuts::open(*leaf);
        match shortcuts.find_untied(Target::AtOrBelow(key)) {
            Ok(place) => {
                places[number] = place;
                leaf.frame().prefetch_line(usize::from(place.start));
            }
            Err(tie) => {
                tied |= 1 << number;
                shortcut::prefetch_tied(leaf.frame(), tie, key);
            }
        }
    }
    while tied != 0 {
        let number = tied.trailing_zeros() as usize;
        tied &= tied - 1;
        places[number] = Shortcuts::open(leaves[number]).find(Target::AtOrBelow(keys[number]));
        leaves[number].frame().prefetch_line(usize::from(places[number].start));
    }
    places
}
