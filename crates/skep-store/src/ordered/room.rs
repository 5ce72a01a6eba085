//! Room for several puts: an upper bound of the memory that they take, before the first one.
//!
//! There are two bounds, in blocks, because a frame takes at most one block of free units. There is room if one of them is
//! free. Both hold while no other session writes.
//!
//! **Each put by itself**, for a few puts in a large tree. A put builds its value, a frame for each part. If its leaf is
//! split, it builds two leaves, two interior nodes for each level above, and a root; then it begins again, and may merge its
//! leaf. The first put may split the root. The new root has two children, and a node is split when it has twelve or more, so
//! each further level takes six times as many puts. Nothing that is replaced has to be freed meanwhile.
//!
//! **All puts together**, for many puts. What they replace is freed meanwhile, because a write without memory waits for
//! garbage. So only the nodes in use count, and those of one put more:
//!
//! 1. A leaf that was there is split by the first put into it, and its halves are split again only after
//!    [`GROWTH_UNTIL_SPLIT`] bytes. A split for ascending keys leaves one leaf full, which may be split once more. There are
//!    no more leaves than LIDs of nodes.
//! 2. A leaf that is not split may get a larger frame, and return one that is no block.
//! 3. For six splits there is at most one of a node above.

use super::node::interior::CHILD_COUNT_LOW;
use super::node::overflow::{PART_SIZE_MAX, VALUE_IN_NODE_SIZE_MAX};
use super::store::OrderedStore;
use skep_core::operation::VALUE_SIZE_MAX;

/// Levels of the highest tree for which there is a reserve.
const HEIGHT_MAX: u32 = 7;
/// Children that a node gets, after it was split, before it is split again: at least this many.
const CHILDREN_UNTIL_SPLIT: usize = CHILD_COUNT_LOW / 2;
/// Bytes that half a leaf gets before it is full: a quarter of a frame, since the log and two large pairs take another one.
const GROWTH_UNTIL_SPLIT: u64 = 2048;
/// Bytes that a pair takes in a node besides its key and its value.
const PAIR_OVERHEAD: usize = 16;

impl OrderedStore {
    /// Returns a bound of the size of each value: without overflow values, the values are those of nodes.
    pub fn value_size_max(&self) -> usize {
        let of_parts = self.space().value_part_count() * PART_SIZE_MAX;
        of_parts.clamp(VALUE_IN_NODE_SIZE_MAX, VALUE_SIZE_MAX)
    }

    /// Returns true if puts of pairs whose keys and values have these sizes cannot fail for lack of memory, if no other
    /// session writes before they are done. If it returns false, they may succeed nevertheless.
    pub fn has_room_for(&self, sizes: impl ExactSizeIterator<Item = (usize, usize)>) -> bool {
        let count = sizes.len() as u64;
        let growth = sizes.len().checked_ilog(CHILDREN_UNTIL_SPLIT).map_or(0, |levels| 1 + levels);
        let height = self.height().unwrap_or(HEIGHT_MAX) + growth;
        let of_put = u64::from(2 * height + 2);
        let (mut parts, mut parts_max, mut bytes) = (0, 0, 0);
        for (key_size, value_size) in sizes {
            let of_value = if value_size > VALUE_IN_NODE_SIZE_MAX { value_size.div_ceil(PART_SIZE_MAX) } else { 0 };
            parts += of_value as u64;
            parts_max = parts_max.max(of_value as u32);
            bytes += (key_size + value_size.min(VALUE_IN_NODE_SIZE_MAX) + PAIR_OVERHEAD) as u64;
        }
        let space = self.space();
        let splits = 2 * (count.min(space.statistics().lids_used) + bytes / GROWTH_UNTIL_SPLIT);
        // New leaves and larger ones, and nodes above them.
        let together = 2 * splits + splits / 4 + of_put;
        space.has_room_for((count * of_put).min(together) + parts, parts_max)
    }
}
