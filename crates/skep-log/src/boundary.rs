//! Decides which operations of the log are applied to a snapshot.
//!
//! ```text
//! positions   ├── step: block 4 ──┼── step: block 4 ──┼── step: block 6 ──┼── step: block 9 ──┤
//! block 5     │ applied                               │ contained in the snapshot             │
//! block 7     │ applied                                                   │ contained         │
//! ```
//!
//! **Hash space.** A step of the walk returned the pairs of its positions as they were after its block, the last one
//! that any thread had sealed. So they contain the operations on these positions of blocks up to this one, and none of
//! later blocks. An operation of block n on a key at position p is applied if n is above the block of the step of p.
//! Then each operation takes effect exactly once, also one that is not idempotent.
//!
//! Steps run in the order of their positions, so their blocks never decrease. Hence the operations of block n are
//! applied to all positions up to a boundary, and the boundary moves up as the log is read.
//!
//! **Ordered space.** A step returned the pairs of a range of keys at a version. An effect is applied if its version is
//! above that of the step in whose range its key falls. The last step has the keys above the greatest one that existed
//! when the walk began, at the version of that moment. It has no pairs: they were all written later.

use crate::chunk::Step;

/// The steps of the walk over one shard. Without steps, there is no snapshot: all operations are applied.
#[derive(Clone, Debug, Default)]
pub struct Boundary {
    /// Last position and block of each step. Adjacent steps of one block are merged.
    steps: Vec<(u64, u64)>,
}

impl Boundary {
    /// Appends a step. Steps are in the order of their positions. Returns false if its end is not a position.
    pub fn push(&mut self, step: &Step<'_>) -> bool {
        let Some(to) = step.last_position() else { return false };
        match self.steps.last_mut() {
            Some((last, block)) if *block == step.mark => *last = to,
            _ => self.steps.push((to, step.mark)),
        }
        true
    }

    /// Returns the last block of which the snapshot contains something; 0 without a snapshot.
    pub fn last_block(&self) -> u64 {
        self.steps.last().map_or(0, |(_, block)| *block)
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

/// The steps of the walk over the ordered space. Without steps, there is no snapshot: all effects are applied.
#[derive(Clone, Debug, Default)]
pub struct OrderedBoundary {
    /// First key after each step, and its version. Adjacent steps of one version are merged.
    steps: Vec<(Box<[u8]>, u64)>,
}

impl OrderedBoundary {
    /// Appends a step. Steps are in the order of their keys.
    pub fn push(&mut self, step: &Step<'_>) {
        match self.steps.last_mut() {
            Some((end, version)) if *version == step.mark => *end = step.end.into(),
            _ => self.steps.push((step.end.into(), step.mark)),
        }
    }

    /// Returns true if the effect of this version on this key is applied.
    pub fn applies(&self, version: u64, key: &[u8]) -> bool {
        // The last step has no end.
        let step = self.steps.partition_point(|(end, _)| !end.is_empty() && **end <= *key);
        self.steps.get(step).is_none_or(|&(_, of_step)| version > of_step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_applied_where_the_walk_had_passed() {
        let mut boundary = Boundary::default();
        assert!(boundary.applies(1, 0) && boundary.applies(1, u64::MAX));
        for (next, mark) in [(11, 4), (21, 4), (31, 6)] {
            assert!(boundary.push(&Step { end: &u64::to_be_bytes(next), mark, pairs: 0 }));
        }
        assert!(boundary.push(&Step { end: &[], mark: 9, pairs: 0 }));
        let expected =
            [(1, None), (4, None), (5, Some(20)), (6, Some(20)), (7, Some(30)), (9, Some(30)), (10, Some(u64::MAX))];
        for (block, last) in expected {
            assert_eq!(boundary.last_position(block), last, "block {block}");
        }
        assert!(boundary.applies(5, 20) && !boundary.applies(5, 21));
        for end in [&[7][..], &[0; 8]] {
            assert!(!boundary.push(&Step { end, mark: 10, pairs: 0 }));
        }
    }

    #[test]
    fn an_effect_is_applied_above_the_version_of_its_range() {
        let mut boundary = OrderedBoundary::default();
        assert!(boundary.applies(0, b"a"));
        for (end, mark) in [(&b"b"[..], 3), (b"d", 3), (b"f", 7), (b"", 9)] {
            boundary.push(&Step { end, mark, pairs: 0 });
        }
        for (key, version) in [(&b"a"[..], 3), (b"c\xff", 3), (b"d", 7), (b"e", 7), (b"f", 9), (b"z", 9)] {
            assert!(!boundary.applies(version, key) && boundary.applies(version + 1, key), "{key:?}");
        }
    }
}
