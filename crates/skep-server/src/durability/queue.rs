//! The queue between the shards and the writers of the log.

use std::time::{Duration, Instant};

use skep_log::Block;

use crate::vocabulary::Durability;

/// The longest time for which a block waits, except at the level `always`.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(500);
/// Bytes of blocks from which on they do not wait.
const WAIT_SIZE_MAX: usize = 512 << 10;
/// Spent blocks that are kept for their memory, and the longest of them.
const SPENT_MAX: usize = 64;
const SPENT_SIZE_MAX: usize = 1 << 20;

/// The blocks that the writers have not taken.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) blocks: Vec<Block>,
    /// Blocks that are no longer needed, for their memory.
    pub(super) spent: Vec<Block>,
    /// Bytes of the blocks.
    pub(super) size: usize,
    /// The time at which the first of them arrived.
    pub(super) since: Option<Instant>,
    /// There is something else to do.
    pub(super) is_rung: bool,
    /// A write has failed: blocks are dropped until a fresh log begins.
    pub(super) is_broken: bool,
    /// No more blocks arrive.
    pub(super) is_over: bool,
}

impl Queue {
    /// Returns true if the blocks are to be written now.
    pub(super) fn is_due(&self, level: Durability) -> bool {
        match level {
            _ if self.blocks.is_empty() => false,
            Durability::Always => true,
            // At the level `memory` a snapshot is being taken. Its end rings.
            Durability::Second | Durability::Memory => {
                let is_old = self.since.is_some_and(|since| since.elapsed() >= WAIT_MAX);
                self.is_over || self.is_rung || self.size >= WAIT_SIZE_MAX || is_old
            }
        }
    }

    /// Takes all blocks.
    pub(super) fn take(&mut self) -> Vec<Block> {
        (self.size, self.since) = (0, None);
        std::mem::take(&mut self.blocks)
    }

    /// Keeps the memory of blocks that were written.
    pub(super) fn reuse(&mut self, blocks: impl Iterator<Item = Block>) {
        let room = SPENT_MAX.saturating_sub(self.spent.len());
        self.spent.extend(blocks.filter(|block| block.bytes().len() <= SPENT_SIZE_MAX).take(room));
    }
}
