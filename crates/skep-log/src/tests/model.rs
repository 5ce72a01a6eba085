//! The plainest store and log: maps, and all blocks that were sealed.

use std::collections::BTreeMap;

use skep_core::operation::{Operation, PutCondition, Request, StringWrite};

use super::Random;

/// Pairs of a space.
pub(crate) type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Something in the hash space that took place. Appending is not idempotent, so a replay that applies it twice is
/// noticed.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(Vec<u8>, Vec<u8>),
    Append(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    /// All keys of a shard were removed.
    Flush(usize),
}

impl Change {
    /// Returns an operation on a key.
    pub(crate) fn random(random: &mut Random) -> Change {
        let key = format!("key {}", random.below(24)).into_bytes();
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

    /// Returns the key; `None` for a flush.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            Change::Put(key, _) | Change::Append(key, _) | Change::Delete(key) => Some(key),
            Change::Flush(_) => None,
        }
    }

    /// Returns the request; `None` for a flush.
    pub(crate) fn request(&self) -> Option<Request<'_>> {
        let operation = match self {
            Change::Put(_, value) => Operation::Put { value, condition: PutCondition::Always },
            Change::Append(_, bytes) => Operation::StringWrite(StringWrite::Append(bytes)),
            Change::Delete(_) => Operation::Delete,
            Change::Flush(_) => return None,
        };
        Some(Request { key: self.key()?, operation })
    }

    /// Executes it.
    pub(crate) fn execute(&self, pairs: &mut Pairs, shards: usize) {
        match (self, self.request()) {
            (_, Some(request)) => execute(pairs, &request),
            (Change::Flush(flushed), _) => pairs.retain(|key, _| shard(key, shards) != *flushed),
            _ => unreachable!("it has a request"),
        }
    }
}

/// Executes an operation of the log.
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

/// Returns the shard of a key.
pub(crate) fn shard(key: &[u8], shards: usize) -> usize {
    Random(position(key)).below(shards)
}

/// An effect in the ordered space: its version, its key, and the value of a put.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) version: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Vec<u8>>,
}

/// Executes an effect.
pub(crate) fn take_effect(pairs: &mut Pairs, effect: &Effect) {
    match &effect.value {
        Some(value) => _ = pairs.insert(effect.key.clone(), value.clone()),
        None => _ = pairs.remove(&effect.key),
    }
}

/// A block as it was sealed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelBlock {
    pub(crate) changes: Vec<Change>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) floor: u64,
}

/// The blocks of all threads, the first of which has the number 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) shards: usize,
    pub(crate) blocks: Vec<ModelBlock>,
    /// Last block and floor that were acknowledged.
    pub(crate) acknowledged: u64,
    pub(crate) acknowledged_floor: u64,
}

impl Model {
    /// Forgets the blocks after the first ones, and the effects that no floor of these covers. Returns the pairs of both
    /// spaces and the floor.
    pub(crate) fn truncate(&mut self, blocks: u64) -> ([Pairs; 2], u64) {
        self.blocks.truncate(blocks as usize);
        let floor = self.blocks.iter().map(|block| block.floor).max().unwrap_or(0);
        let mut pairs = [Pairs::new(), Pairs::new()];
        let mut effects = Vec::new();
        for block in &mut self.blocks {
            block.changes.iter().for_each(|change| change.execute(&mut pairs[0], self.shards));
            block.effects.retain(|effect| effect.version < floor);
            effects.extend(&block.effects);
        }
        effects.sort_by_key(|effect| effect.version);
        effects.into_iter().for_each(|effect| take_effect(&mut pairs[1], effect));
        (pairs, floor)
    }
}
