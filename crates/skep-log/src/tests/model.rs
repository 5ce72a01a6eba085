//! The plainest store and log: each shard is a map, and all blocks are kept.

use std::collections::BTreeMap;

use skep_core::operation::{Operation, PutCondition, Request, StringWrite};

use super::Random;

/// Pairs of a shard.
pub(crate) type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// An operation that took place. Appending is not idempotent, so a replay that applies it twice is noticed.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(Vec<u8>, Vec<u8>),
    Append(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
}

impl Change {
    pub(crate) fn random(random: &mut Random) -> Change {
        let key = format!("key {}", random.below(12)).into_bytes();
        let bytes = |random: &mut Random, end| {
            let size = random.below(end);
            (0..size).map(|_| random.next() as u8).collect()
        };
        match random.below(8) {
            0 => Change::Delete(key),
            1..4 => {
                let end = if random.once_in(10) { 4000 } else { 100 };
                Change::Put(key, bytes(random, end))
            }
            _ => Change::Append(key, bytes(random, 20)),
        }
    }

    pub(crate) fn request(&self) -> Request<'_> {
        let (key, operation) = match self {
            Change::Put(key, value) => (key, Operation::Put { value, condition: PutCondition::Always }),
            Change::Append(key, bytes) => (key, Operation::StringWrite(StringWrite::Append(bytes))),
            Change::Delete(key) => (key, Operation::Delete),
        };
        Request { key, operation }
    }
}

/// Executes an operation of the log on a shard.
pub(crate) fn execute(pairs: &mut Pairs, request: &Request<'_>) {
    match request.operation {
        Operation::Put { value, .. } => _ = pairs.insert(request.key.to_vec(), value.to_vec()),
        Operation::StringWrite(StringWrite::Append(bytes)) => {
            pairs.entry(request.key.to_vec()).or_default().extend_from_slice(bytes);
        }
        Operation::Delete => _ = pairs.remove(request.key),
        operation => panic!("{operation:?} was never logged"),
    }
}

/// Returns the position of a key: its hash.
pub(crate) fn position(key: &[u8]) -> u64 {
    let mut hash = Random(key.iter().fold(7, |hash, &byte| hash.wrapping_mul(257).wrapping_add(u64::from(byte))));
    hash.next()
}

/// A block as it was sealed.
#[derive(Clone, Debug)]
pub(crate) struct ModelBlock {
    pub(crate) changes: Vec<Change>,
    pub(crate) transaction: Option<u64>,
}

/// The blocks of one shard, the first of which has the index 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelShard {
    pub(crate) blocks: Vec<ModelBlock>,
    /// Last block that was acknowledged.
    pub(crate) acknowledged: u64,
}

impl ModelShard {
    /// Returns the pairs after the first blocks.
    pub(crate) fn pairs_after(&self, blocks: u64) -> Pairs {
        let mut pairs = Pairs::new();
        for change in self.blocks[..blocks as usize].iter().flat_map(|block| &block.changes) {
            execute(&mut pairs, &change.request());
        }
        pairs
    }
}
