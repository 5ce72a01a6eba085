//! A store that was full comes back in the same memory, with another layout: from its pairs in the order of a walk, and
//! from its successful writes. For that, part of the memory was held back while it was filled.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Operation, PutCondition, Reply, Request, ScanEnd, Start};
use skep_store::hash::Settings;
use skep_store::naive::seeds;
use skep_store::ordered::{Effect, OrderedSettings, OrderedStore, Session};
use skep_store::processor::{Processor, Replies};

/// Sizes of pairs, with keys of 10 bytes at most. The last stands for a mix of all.
const PAIR_SIZES: [usize; 5] = [10, 62, 254, 4000, 0];
const SEEDS: u64 = 4;
/// A store is full when this many writes were refused since the last of each kind of change.
const REFUSED_MAX: u32 = 400;

/// A store that is filled or restored.
trait Target {
    /// Puts a value, or deletes the key. False if there is no memory.
    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> bool;
    /// All pairs in the order of a walk.
    fn pairs(&mut self) -> Vec<(Vec<u8>, Vec<u8>)>;
    /// Restores pairs or deletes. False if there is no memory.
    fn restore_all(&mut self, writes: &[(Vec<u8>, Option<Vec<u8>>)]) -> bool;
}

struct Hash {
    store: Processor,
    replies: Replies,
}

impl Hash {
    fn new(memory: u64, pair_size: usize, seed: u64, held_back: u64) -> Self {
        let mut store = Processor::new(&Settings::for_kv_size(memory, pair_size, seed)).unwrap();
        store.hold_back(held_back);
        Hash { store, replies: Replies::with_budget(1 << 20) }
    }
}

impl Target for Hash {
    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> bool {
        let put = |value| Operation::Put { value, condition: PutCondition::Always };
        let request = Request { key, operation: value.map_or(Operation::Delete, put) };
        loop {
            self.store.execute(&[request], &mut self.replies);
            if !self.replies.is_deferred(0) {
                return !matches!(self.replies.get(0), Reply::Failed(_));
            }
        }
    }

    fn pairs(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (mut pairs, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            next = self.store.walk_pairs(from, |key, value, _| pairs.push((key.to_vec(), value.to_vec())));
        }
        pairs
    }

    fn restore_all(&mut self, writes: &[(Vec<u8>, Option<Vec<u8>>)]) -> bool {
        writes.iter().all(|(key, value)| self.write(key, value.as_deref()))
    }
}

impl Target for Session<'_> {
    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> bool {
        let reply = match value {
            Some(value) => self.put(key, value, PutCondition::Always),
            None => self.delete(key),
        };
        !matches!(reply, Reply::Failed(_))
    }

    fn pairs(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut pairs = Vec::new();
        self.scan(skep_store::ordered::Range::new(Start::AtOrAbove(&[]), ScanEnd::Last), |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            true
        });
        pairs
    }

    fn restore_all(&mut self, writes: &[(Vec<u8>, Option<Vec<u8>>)]) -> bool {
        let effect = |write: &(Vec<u8>, Option<Vec<u8>>)| -> (Vec<u8>, Option<Vec<u8>>) { write.clone() };
        writes.chunks(64).all(|writes| {
            let writes: Vec<_> = writes.iter().map(effect).collect();
            let effects: Vec<Effect<'_>> = writes
                .iter()
                .map(|(key, value)| Effect { version: 0, key, value: value.as_deref().map(|value| (value, None)) })
                .collect();
            Session::restore(self, &effects).is_ok()
        })
    }
}

/// Fills a store, deletes and overwrites some pairs and fills it again. Returns the writes that took place.
fn fill(
    target: &mut impl Target,
    pair_size: usize,
    random: &mut Xoshiro256PlusPlus,
) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut log: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
    let mut keys: BTreeMap<Vec<u8>, ()> = BTreeMap::new();
    for round in 0..3 {
        let mut refused = 0;
        while refused < REFUSED_MAX {
            let size = if pair_size == 0 { PAIR_SIZES[random.random_range(0..4)] } else { pair_size };
            let key_size = if size == 10 { 6 } else { 10 };
            let key = if round > 0 && random.random_ratio(1, 8) && !keys.is_empty() {
                let probe: [u8; 6] = random.random();
                keys.range(probe.to_vec()..).next().map_or_else(|| probe.to_vec(), |(key, ())| key.clone())
            } else {
                random.random_iter().take(key_size).collect()
            };
            let value: Option<Vec<u8>> =
                (round == 0 || !random.random_ratio(1, 16)).then(|| vec![round; size.saturating_sub(key.len())]);
            if target.write(&key, value.as_deref()) {
                match &value {
                    Some(_) => _ = keys.insert(key.clone(), ()),
                    None => _ = keys.remove(&key),
                }
                log.push((key, value));
            } else {
                refused += 1;
            }
        }
        if round < 2 {
            let part = [2, 8][usize::from(round)];
            for key in keys.keys().cloned().collect::<Vec<_>>() {
                if random.random_ratio(1, part) {
                    assert!(target.write(&key, None));
                    keys.remove(&key);
                    log.push((key, None));
                }
            }
        }
    }
    log
}

/// Memory of a hash store and of an ordered store.
const MEMORY: [u64; 2] = [1 << 20, 4 << 20];

/// Fills stores of pairs of this size. Returns how many of the four restored ones lack memory: hash and ordered, each from
/// its pairs and from its writes.
fn refused(pair_size: usize, seed: u64, held_back: [u64; 2]) -> [u32; 4] {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let with_values = |pairs: Vec<(Vec<u8>, Vec<u8>)>| -> Vec<_> {
        pairs.into_iter().map(|(key, value)| (key, Some(value))).collect()
    };
    let average = if pair_size == 0 { 1000 } else { pair_size };
    let hash = |seed, held_back| Hash::new(MEMORY[0], average, seed, held_back);
    let mut full = hash(2 * seed, held_back[0]);
    let log = fill(&mut full, pair_size, &mut random);
    let pairs = with_values(full.pairs());
    let of_hash = [&pairs, &log].map(|writes| u32::from(!hash(2 * seed + 1, 0).restore_all(writes)));
    let ordered = || OrderedStore::new(&OrderedSettings::new(MEMORY[1])).unwrap();
    let mut store = ordered();
    store.hold_back(held_back[1]);
    let mut full = store.session().unwrap();
    let log = fill(&mut full, pair_size, &mut random);
    let pairs = with_values(full.pairs());
    let of_ordered = [&pairs, &log].map(|writes| u32::from(!ordered().session().unwrap().restore_all(writes)));
    [of_hash[0], of_hash[1], of_ordered[0], of_ordered[1]]
}

#[test]
fn a_full_store_comes_back_in_the_same_memory() {
    let held_back = [MEMORY[0] / Processor::HELD_BACK_PART, MEMORY[1] / OrderedStore::HELD_BACK_PART];
    for seed in seeds(&(0..SEEDS).collect::<Vec<_>>()) {
        for pair_size in PAIR_SIZES {
            assert_eq!(refused(pair_size, seed, held_back), [0; 4], "seed {seed}, pairs of {pair_size}");
        }
    }
}

/// The control. Restored from a walk, ordered leaves are fuller than they were.
#[test]
fn without_memory_held_back_a_full_store_does_not_come_back_from_its_writes() {
    let [_, hash, _, ordered] = refused(10, 0, [0; 2]);
    assert_eq!((hash, ordered), (1, 1));
}
