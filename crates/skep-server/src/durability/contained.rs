//! Which operations of the log a snapshot contains already.

use skep_log::{Boundary, Manifest};
use skep_store::hash::KeyPositions;
use skep_wire::partition::Partition;

/// Which operations of the log the snapshot contains already.
pub(super) struct Contained {
    partition: Partition,
    positions: Vec<KeyPositions>,
    boundaries: Vec<Boundary>,
    /// The last block of which it contains something.
    pub(super) last_block: u64,
}

impl Contained {
    pub(super) fn new(manifest: Option<&Manifest>, boundaries: Vec<Boundary>, seed: u64) -> Contained {
        let shards = manifest.map_or(&[] as &[_], |manifest| &manifest.shards);
        let last_block = boundaries.iter().map(Boundary::last_block).max().unwrap_or(0);
        Contained {
            partition: Partition::new(seed, shards.len().max(1) as u16),
            positions: shards.iter().map(|shard| KeyPositions::new(shard.secret_seed)).collect(),
            boundaries,
            last_block,
        }
    }

    /// Returns the shard that executed the operations of a key.
    pub(super) fn shard_of(&self, key: &[u8]) -> usize {
        usize::from(self.partition.shard_of(key))
    }

    /// Returns true if the snapshot contains what a block has done to a key.
    pub(super) fn contains(&self, block: u64, key: &[u8]) -> bool {
        if block > self.last_block {
            return false;
        }
        let shard = usize::from(self.partition.shard_of(key));
        !self.boundaries[shard].applies(block, self.positions[shard].of(key))
    }
}
