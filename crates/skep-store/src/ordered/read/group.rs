//! Groups of gets: all gets of a group descend in lock step, so that their cache misses overlap.
//!
//! ```text
//! level by level   page table entry, header and shortcut index ─▶ segment of children ─▶ next level
//! leaf             page table entry, header and shortcut index ─▶ head of a segment ─▶ item ─▶ value
//!                                                       └ a tie ─▶ boundary keys ─┘
//!                                                       └ log directory ─▶ entry ─▶ value
//! ```
//!
//! Each arrow is a loop over the group. It reads the lines that the previous loop has prefetched, and prefetches those
//! of the next loop. The stages use the same searches as a single get, without futures, which would take about fifty
//! nanoseconds more for each get. All gets of a batch are one operation and read one version. Groups of scans and of
//! writes begin in the same way.

use super::super::key_head::{Target, fingerprint};
use super::super::leaf::find;
use super::super::node::frame::Node;
use super::super::node::segment::ItemPosition;
use super::super::node::shortcut::{SegmentPosition, Shortcuts};
use super::super::node::value::Value;
use super::super::node::{log, shortcut};
use super::super::store::OrderedStore;
use super::super::version::clock::Snapshot;
use super::super::version::epoch::Guard;
use super::descent::{GROUP_SIZE, KeyPosition};
use crate::memory::LINE_SIZE;

impl OrderedStore {
    /// Calls `f` with the values of up to [`GROUP_SIZE`] keys as of a snapshot, in the order of the keys.
    pub(crate) fn get_group<'g>(
        &'g self,
        keys: &[&[u8]],
        Snapshot { version, now }: Snapshot,
        guard: &'g Guard<'_>,
        mut f: impl FnMut(Option<Value<'g>>),
    ) {
        assert!(keys.len() <= GROUP_SIZE, "a group has a limit");
        let leaves = self.find_leaves(keys, version, guard);
        let mut fingerprints = [0_u8; GROUP_SIZE];
        // Log entries that may have the key.
        let mut in_log = [0_u16; GROUP_SIZE];
        for (index, key) in keys.iter().enumerate() {
            let leaf = leaves[index];
            fingerprints[index] = fingerprint(key);
            in_log[index] = find::log_candidates(leaf, fingerprints[index]) as u16;
            if in_log[index] != 0 {
                leaf.frame().prefetch_line(leaf.log_start());
            }
        }
        let positions = find_segments(&leaves, keys);
        // The item that the key is compared with first.
        let mut item_positions = [ItemPosition::NONE; GROUP_SIZE];
        for index in 0..keys.len() {
            let (leaf, position) = (leaves[index], positions[index]);
            if in_log[index] != 0 {
                log::prefetch(leaf, in_log[index].ilog2() as usize);
            }
            let item_position = find::first_item_position(leaf, position, fingerprints[index]);
            if item_position != ItemPosition::NONE {
                let (offset, size) = (
                    usize::from(item_position.offset),
                    usize::from(item_position.key_size) + usize::from(item_position.value_size),
                );
                leaf.frame().prefetch(offset, size);
            }
            item_positions[index] = item_position;
        }
        for (index, key) in keys.iter().enumerate() {
            let leaf = leaves[index];
            let logged = match in_log[index] {
                0 => None,
                candidates => find::read_log(leaf.frame(), key, u32::from(candidates), version),
            };
            let sorted = || find::read_sorted(leaf, positions[index], item_positions[index], key, fingerprints[index]);
            f(logged.unwrap_or_else(sorted).filter(|value| !value.has_expired(now)));
        }
    }
}

/// The positions of the keys of a group.
pub(crate) struct KeyPositions<'g> {
    leaves: [Node<'g>; GROUP_SIZE],
    segments: [SegmentPosition; GROUP_SIZE],
    fingerprints: [u8; GROUP_SIZE],
}

impl<'g> KeyPositions<'g> {
    /// Returns the position of one key.
    #[inline]
    pub(crate) fn of(&self, index: usize) -> KeyPosition<'g> {
        let (leaf, segment) = (self.leaves[index], self.segments[index]);
        KeyPosition { leaf, segment, fingerprint: self.fingerprints[index] }
    }
}

impl OrderedStore {
    /// Finds the positions of up to [`GROUP_SIZE`] keys that will be written. Prefetches the first lines that a write
    /// reads: the item that may have the key, or all of its segment; the log's directory and end, and the log entry
    /// that may have the key; all of a leaf that will be merged.
    pub(crate) fn positions_of_group<'g>(&'g self, keys: &[&[u8]], guard: &'g Guard<'_>) -> KeyPositions<'g> {
        let leaves = self.find_leaves(keys, u64::MAX, guard);
        let segments = find_segments(&leaves, keys);
        let mut fingerprints = [0; GROUP_SIZE];
        for (index, key) in keys.iter().enumerate() {
            fingerprints[index] = fingerprint(key);
            log::prefetch_end(leaves[index]);
        }
        for (index, fingerprint) in fingerprints[..keys.len()].iter().enumerate() {
            let leaf = leaves[index];
            if self.log_block.is_full(leaf) {
                leaf.frame().prefetch(0, leaf.log_start() + LINE_SIZE + leaf.state().log_size());
                continue;
            }
            let candidates = find::log_candidates(leaf, *fingerprint);
            if candidates != 0 {
                log::prefetch(leaf, candidates.ilog2() as usize);
            }
            find::prefetch_position(leaf, segments[index], *fingerprint);
        }
        KeyPositions { leaves, segments, fingerprints }
    }
}

/// Finds the segments of keys in their leaves, and prefetches their first lines.
#[inline]
pub(crate) fn find_segments(leaves: &[Node<'_>; GROUP_SIZE], keys: &[&[u8]]) -> [SegmentPosition; GROUP_SIZE] {
    let mut positions = [SegmentPosition::default(); GROUP_SIZE];
    let mut tied = 0_u32;
    for (index, (leaf, key)) in leaves.iter().zip(keys).enumerate() {
        let shortcuts = Shortcuts::open(*leaf);
        match shortcuts.find_untied(Target::AtOrBelow(key)) {
            Ok(position) => {
                positions[index] = position;
                leaf.frame().prefetch_line(usize::from(position.start));
            }
            Err(tie) => {
                tied |= 1 << index;
                shortcut::prefetch_tied(leaf.frame(), tie, key);
            }
        }
    }
    while tied != 0 {
        let index = tied.trailing_zeros() as usize;
        tied &= tied - 1;
        positions[index] = Shortcuts::open(leaves[index]).find(Target::AtOrBelow(keys[index]));
        leaves[index].frame().prefetch_line(usize::from(positions[index].start));
    }
    positions
}
