//! The removal of all keys of a shard, in a log that another number of shards has written.
//!
//! Such a shard's keys are in all stores, so they would be found by a walk over all buckets. After a walk, the keys that are
//! written are noted: the next removal then removes these. If they become too many, it walks again. So a walk is paid by as
//! many writes as take about as long, and the keys that are noted take about a hundredth of the memory of the stores.

use std::collections::HashSet;

use skep_wire::partition::Partition;

/// Bytes of memory whose home buckets a walk passes in about the time in which a key is removed. At most one key is noted for
/// as many bytes.
const MEMORY_FOR_KEY: u64 = 32 << 10;
/// Keys that are noted for small stores.
const KEYS_MIN: usize = 1024;

/// The keys that were written since all keys of a shard were removed.
pub(super) struct Written {
    seed: u64,
    /// The shards that have written the log, by the last removal.
    partition: Partition,
    /// For each shard the keys that it may have; `None` if they are not known.
    keys: Vec<Option<HashSet<Box<[u8]>>>>,
    /// Number of keys of a shard that are noted at most.
    keys_max: usize,
}

impl Written {
    /// Notes nothing until the first removal.
    pub(super) fn new(seed: u64, memory: u64) -> Written {
        let keys_max = ((memory / MEMORY_FOR_KEY) as usize).max(KEYS_MIN);
        Written { seed, partition: Partition::new(seed, 1), keys: Vec::new(), keys_max }
    }

    /// Notes that an operation on a key is executed.
    pub(super) fn note(&mut self, key: &[u8]) {
        if self.keys.is_empty() {
            return;
        }
        let keys_max = self.keys_max / self.keys.len();
        let keys = &mut self.keys[usize::from(self.partition.shard_of(key))];
        if let Some(known) = keys
            && !known.contains(key)
        {
            known.insert(key.into());
            if known.len() > keys_max {
                *keys = None;
            }
        }
    }

    /// Returns all keys that a shard, one of this number, may have. Returns `None` if they are not known. Either way they are
    /// noted no more.
    pub(super) fn take(&mut self, shard: u16, shard_count: u16) -> Option<HashSet<Box<[u8]>>> {
        if self.keys.len() != usize::from(shard_count) {
            self.partition = Partition::new(self.seed, shard_count);
            self.keys = vec![None; usize::from(shard_count)];
        }
        self.keys[usize::from(shard)].take()
    }

    /// Notes the keys of a shard from now on. It has these at most.
    pub(super) fn begin(&mut self, shard: u16, keys: HashSet<Box<[u8]>>) {
        self.keys[usize::from(shard)] = Some(keys);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use skep_core::operation::{Operation, PutCondition, Request};
    use skep_log::{Block, BlockView, BlockWriter, Boundary, Manifest, ManifestShard};
    use skep_store::hash::Settings;
    use skep_store::naive::seeds;
    use skep_store::ordered::{OrderedSettings, OrderedStore};
    use skep_store::processor::Processor;
    use skep_wire::native::HASH_SPACE;

    use super::*;
    use crate::durability::recovery::simulated::{Recovering, Rule};

    type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

    /// Executes a log of this number of shards in other stores. Returns the pairs, and the number of walks over all buckets.
    fn replay(blocks: &[Block], shards: u16, stores: u16) -> (Pairs, u64) {
        let processor = |seed| Processor::new(&Settings::for_kv_size(1 << 20, 10, seed)).unwrap();
        let mut processors: Vec<Processor> = (0..u64::from(stores)).map(processor).collect();
        let ordered = OrderedStore::new(&OrderedSettings::new(1 << 20)).unwrap();
        let before = Manifest { shards: vec![ManifestShard::default(); usize::from(shards)], ..Manifest::default() };
        let partition = Partition::new(before.partition_seed, stores);
        let recovering = Recovering::new(processors.iter_mut().collect(), &ordered, partition, Rule::Boundary);
        let views = (1..).zip(blocks).map(|(number, block)| BlockView::decode(number, block.bytes()).unwrap().0);
        let views: Vec<BlockView<'_>> = views.collect();
        let (_, walks) = recovering.replay(&before, vec![Boundary::default(); usize::from(shards)], &views);
        let mut pairs = Pairs::new();
        for store in &mut processors {
            let mut next = Some(0);
            while let Some(from) = next {
                next = store.walk_pairs(from, |key, value, _| _ = pairs.insert(key.to_vec(), value.to_vec()));
            }
        }
        (pairs, walks)
    }

    fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
        Request { key, operation: Operation::Put { value, condition: PutCondition::Always } }
    }

    /// A walk takes as long as the store is large, however few keys there are.
    #[test]
    fn removals_of_few_keys_do_not_walk_over_all_buckets() {
        let (mut writer, mut blocks) = (BlockWriter::new(), Vec::new());
        for number in 0..300 {
            assert!(writer.append(HASH_SPACE, 1, &put(format!("a{}", number % 7).as_bytes(), b"value")));
            writer.append_flush(HASH_SPACE, 0, 1);
            blocks.push(writer.seal(0).unwrap());
        }
        assert!(writer.append(HASH_SPACE, 1, &put(b"key", b"value")));
        blocks.push(writer.seal(0).unwrap());
        for (stores, walks) in [(1, 0), (2, 1), (3, 1)] {
            assert_eq!(replay(&blocks, 1, stores), (Pairs::from([(b"key".to_vec(), b"value".to_vec())]), walks));
        }
    }

    #[test]
    fn removals_leave_the_keys_of_other_shards_and_later_ones() {
        let (mut walks_of_all, mut removals) = (0, 0);
        for seed in seeds(&(0..50).collect::<Vec<_>>()) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let (shards, stores) = (random.random_range(1..5), random.random_range(1..5));
            let partition = Partition::new(0, shards);
            let (mut pairs, mut writer, mut blocks) = (Pairs::new(), BlockWriter::new(), Vec::new());
            let key_count = random.random_range(10..3000);
            for number in 0..random.random_range(100..6000_u32) {
                if random.random_ratio(1, 300) {
                    let shard = random.random_range(0..shards);
                    writer.append_flush(HASH_SPACE, shard, shards);
                    pairs.retain(|key, _| partition.shard_of(key) != shard);
                    removals += 1;
                } else {
                    let key = format!("{}", random.random_range(0..key_count)).into_bytes();
                    let value = number.to_le_bytes();
                    assert!(writer.append(HASH_SPACE, 1, &put(&key, &value)));
                    pairs.insert(key, value.to_vec());
                }
                if random.random_ratio(1, 20) {
                    blocks.push(writer.seal(0).unwrap());
                }
            }
            blocks.extend(writer.seal(0));
            let (found, walks) = replay(&blocks, shards, stores);
            assert!(found == pairs, "seed {seed}: other pairs");
            walks_of_all += walks;
        }
        assert!(walks_of_all > 10 && walks_of_all < removals, "{walks_of_all} walks for {removals} removals");
    }
}
