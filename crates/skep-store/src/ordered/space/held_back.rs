//! Blocks that growth leaves beside the reserve, so that a store that was full can be restored in another layout.

use super::super::memory::number::UNIT_512_SIZE;
use super::{BLOCK_UNITS, Space};

impl Space {
    /// Growth leaves this many bytes more from now on, in blocks.
    pub(crate) fn hold_back(&mut self, size: u64) {
        self.held_back = (size / (u64::from(BLOCK_UNITS) * UNIT_512_SIZE as u64)).min(self.block_count.into()) as u32;
    }
}
