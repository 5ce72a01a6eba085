//! Room for several puts: an upper bound of the memory that they take, before the first one.
//!
//! A put builds at most these frames:
//!
//! 1. Its value, if that is not in a node: a frame for each part.
//! 2. If its leaf is split: two leaves, two interior nodes for each level above, and a root. The write begins again
//!    afterwards, and may merge its leaf: another one.
//!
//! The first put may split the root. The new root has two children, and a node is split when it has twelve or more. A put
//! splits at most one node of each level, so each further level takes six times as many puts.
//!
//! A frame takes at most one block of free units. So if as many blocks are free as frames may be built, no put fails for lack
//! of memory, even if nothing that the puts replace becomes free meanwhile. Blocks do not become scarce either, so no frames
//! are moved. This holds while no other session writes.

use super::node::interior::CHILD_COUNT_LOW;
use super::node::overflow::{PART_SIZE_MAX, VALUE_IN_NODE_SIZE_MAX};
use super::store::OrderedStore;

/// Levels of the highest tree for which there is a reserve.
const HEIGHT_MAX: u32 = 7;
/// Children that a node gets, after it was split, before it is split again: at least this many.
const CHILDREN_UNTIL_SPLIT: usize = CHILD_COUNT_LOW / 2;

impl OrderedStore {
    /// Returns true if puts of values of these sizes cannot fail for lack of memory, if no other session writes before they
    /// are done. If it returns false, they may succeed nevertheless.
    pub fn has_room_for(&self, sizes: impl ExactSizeIterator<Item = usize>) -> bool {
        let growth = sizes.len().checked_ilog(CHILDREN_UNTIL_SPLIT).map_or(0, |levels| 1 + levels);
        let height = self.height().unwrap_or(HEIGHT_MAX) + growth;
        let (mut frames, mut parts_max) = (0, 0);
        for size in sizes {
            let parts = if size > VALUE_IN_NODE_SIZE_MAX { size.div_ceil(PART_SIZE_MAX) } else { 0 };
            frames += u64::from(2 * height + 2) + parts as u64;
            parts_max = parts_max.max(parts as u32);
        }
        self.space().has_room_for(frames, parts_max)
    }
}
