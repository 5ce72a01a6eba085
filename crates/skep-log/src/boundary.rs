//! Decides which operations of the log are applied to a snapshot.
//!
//! ```text
//! positions   ├── step: block 4 ──┼── step: block 4 ──┼── step: block 6 ──┼── step: block 9 ──┤
//! block 5     │ applied                               │ contained in the snapshot             │
//! block 7     │ applied                                                   │ contained         │
//! ```
//!
//! A step of the walk returned the pairs of its positions as they were after its block. So they contain the operations
//! of blocks up to this one, and none of later blocks. An operation of block n on a key at position p is applied if n
//! is above the block of the step of p. Then each operation takes effect exactly once, also one that is not idempotent.
//!
//! Steps run in the order of their positions, so their blocks never decrease. Hence the operations of block n are
//! applied to all positions up to a boundary, and the boundary moves up as the log is read.

use crate::chunk::Step;

/// The steps of the walk over one shard. Without steps, there is no snapshot: all operations are applied.
#[derive(Clone, Debug, Default)]
pub struct Boundary {
    /// Last position and block of each step. Adjacent steps of one block are merged.
    steps: Vec<(u64, u64)>,
}

impl Boundary {
    /// Appends a step. Steps are in the order of their positions.
    pub(crate) fn push(&mut self, step: Step) {
        match self.steps.last_mut() {
            Some((to, block)) if *block == step.block => *to = step.to,
            _ => self.steps.push((step.to, step.block)),
        }
    }

    /// Returns the block of the last step.
    pub(crate) fn last_block(&self) -> u64 {
        self.steps.last().map_or(0, |&(_, block)| block)
    }

    /// Returns the last position to which the operations of a block are applied; `None` if they are applied to no key.
    /// It is computed once for a block.
    pub fn last_position(&self, block: u64) -> Option<u64> {
        if self.steps.is_empty() {
            return Some(u64::MAX);
        }
        let passed = self.steps.partition_point(|&(_, of_step)| of_step < block);
        passed.checked_sub(1).map(|last| self.steps[last].0)
    }

    /// Returns true if an operation of a block is applied to a key at this position: the secret hash of the key, under
    /// the seed of its shard in the manifest.
    pub fn applies(&self, block: u64, position: u64) -> bool {
        self.last_position(block).is_some_and(|last| position <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_applied_where_the_walk_had_passed() {
        let mut boundary = Boundary::default();
        assert!(boundary.applies(1, 0) && boundary.applies(1, u64::MAX));
        for (to, block) in [(10, 4), (20, 4), (30, 6), (u64::MAX, 9)] {
            boundary.push(Step { to, block, pairs: 0 });
        }
        let expected =
            [(1, None), (4, None), (5, Some(20)), (6, Some(20)), (7, Some(30)), (9, Some(30)), (10, Some(u64::MAX))];
        for (block, last) in expected {
            assert_eq!(boundary.last_position(block), last, "block {block}");
        }
        assert!(boundary.applies(5, 20) && !boundary.applies(5, 21));
        assert_eq!(boundary.last_block(), 9);
    }
}
