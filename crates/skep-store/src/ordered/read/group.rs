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

use super::super::key_head::fingerprint;
use super::super::leaf::find::{self, FirstItem};
use super::super::node::log;
use super::super::node::segment::ItemPosition;
use super::super::node::value::Value;
use super::super::store::OrderedStore;
use super::super::version::clock::Snapshot;
use super::super::version::epoch::Guard;
use super::descent::{GROUP_SIZE, KeyPosition, Place};
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
        let mut fingerprints = [0_u8; GROUP_SIZE];
        // Log entries that may have the key.
        let mut in_log = [0_u16; GROUP_SIZE];
        let mut places = [self.place_at_root(version, guard); GROUP_SIZE];
        self.descend_group(keys, &mut places, version, guard, |index, leaf| {
            fingerprints[index] = fingerprint(keys[index]);
            in_log[index] = find::log_candidates(leaf, fingerprints[index]) as u16;
            if in_log[index] != 0 {
                leaf.frame().prefetch_line(leaf.log_start());
            }
        });
        // The item that the key is compared with first.
        let mut item_positions = [ItemPosition::NONE; GROUP_SIZE];
        for index in 0..keys.len() {
            let Place { node: leaf, segment: position } = places[index];
            if in_log[index] != 0 {
                log::prefetch(leaf, in_log[index].ilog2() as usize);
            }
            let item_position = find::first_item_position(leaf, position, fingerprints[index]);
            if item_position.exists() {
                let (offset, size) = (
                    usize::from(item_position.offset),
                    usize::from(item_position.key_size) + usize::from(item_position.value_size),
                );
                leaf.frame().prefetch(offset, size);
            }
            item_positions[index] = item_position;
        }
        for (index, key) in keys.iter().enumerate() {
            let Place { node: leaf, segment } = places[index];
            let logged = match in_log[index] {
                0 => None,
                candidates => find::read_log(leaf.frame(), key, u32::from(candidates), version),
            };
            let sorted = || find::read_sorted(leaf, segment, item_positions[index], key, fingerprints[index]);
            f(logged.unwrap_or_else(sorted).filter(|value| !value.has_expired(now)));
        }
    }
}

/// The positions of the keys of a group.
pub(crate) struct KeyPositions<'g> {
    places: [Place<'g>; GROUP_SIZE],
    fingerprints: [u8; GROUP_SIZE],
    items: [FirstItem; GROUP_SIZE],
}

impl<'g> KeyPositions<'g> {
    /// Returns the position of one key.
    #[inline(always)]
    pub(crate) fn of(&self, index: usize) -> KeyPosition<'g> {
        let Place { node, segment } = self.places[index];
        KeyPosition { leaf: node, segment, fingerprint: self.fingerprints[index], item: self.items[index] }
    }
}

impl OrderedStore {
    /// Returns positions that [`OrderedStore::find_positions`] can set.
    #[inline(always)]
    pub(crate) fn positions_at_root<'g>(&'g self, guard: &'g Guard<'_>) -> KeyPositions<'g> {
        KeyPositions {
            places: [self.place_at_root(u64::MAX, guard); GROUP_SIZE],
            fingerprints: [0; GROUP_SIZE],
            items: [FirstItem::NONE; GROUP_SIZE],
        }
    }

    /// Finds the positions of up to [`GROUP_SIZE`] keys that will be written, which are at the root until now. Prefetches
    /// the first lines that a write reads: the item that may have the key, or all of its segment; the log's directory
    /// and end, and the log entry that may have the key; all of a leaf that will be merged.
    #[inline(never)]
    pub(crate) fn find_positions<'g>(&'g self, keys: &[&[u8]], positions: &mut KeyPositions<'g>, guard: &'g Guard<'_>) {
        let KeyPositions { places, fingerprints, items } = positions;
        self.descend_group(keys, places, u64::MAX, guard, |index, leaf| {
            fingerprints[index] = fingerprint(keys[index]);
            log::prefetch_end(leaf);
        });
        for ((place, fingerprint), item) in places[..keys.len()].iter().zip(&*fingerprints).zip(items) {
            let Place { node: leaf, segment } = *place;
            *item = find::first_item(leaf, segment, *fingerprint);
            if self.log_block.is_probably_full(leaf) {
                leaf.frame().prefetch_first(leaf.log_start() + LINE_SIZE + leaf.state().log_size());
                continue;
            }
            let candidates = find::log_candidates(leaf, *fingerprint);
            if candidates != 0 {
                log::prefetch(leaf, candidates.ilog2() as usize);
            }
            find::prefetch_item(leaf, segment, *item);
        }
    }
}
