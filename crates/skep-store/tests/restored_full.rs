//! A store that was full comes back in the same memory, with another layout. A hash store is packed with its pairs: with the
//! same seed, and in the order of a walk, they take no spare memory. An ordered store is loaded from its pairs, then filled
//! and changed again, some times in a row.

use std::collections::BTreeMap;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Operation, PutCondition, Reply, Request, ScanEnd, Start};
use skep_store::hash::Settings;
use skep_store::naive::seeds;
use skep_store::ordered::{Load, MissingMemory, OrderedSettings, OrderedStore, Session};
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
}

struct Hash {
    store: Processor,
    replies: Replies,
}

impl Hash {
    fn new(memory: u64, pair_size: usize, seed: u64) -> Self {
        let store = Processor::new(&Settings::for_kv_size(memory, pair_size, seed)).unwrap();
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
}

impl Hash {
    /// Restores pairs or deletes. False if there is no memory.
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

#[test]
fn the_pairs_of_a_full_hash_store_fit_its_memory_in_any_order() {
    for seed in seeds(&(0..SEEDS).collect::<Vec<_>>()) {
        for pair_size in PAIR_SIZES {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let average = if pair_size == 0 { 1000 } else { pair_size };
            let mut full = Hash::new(MEMORY[0], average, seed);
            fill(&mut full, pair_size, &mut random);
            let mut pairs: Vec<_> = full.pairs().into_iter().map(|(key, value)| (key, Some(value))).collect();
            let packed = |seed, pairs: &[_]| {
                let mut store = Hash::new(MEMORY[0], average, seed);
                store.store.begin_packing(0);
                assert!(store.restore_all(pairs), "seed {seed}, pairs of {pair_size}");
                assert_eq!(store.store.statistics().pairs, pairs.len() as u64);
                store.store.end_packing()
            };
            assert_eq!(packed(seed, &pairs), 0, "seed {seed}, pairs of {pair_size}");
            pairs.shuffle(&mut random);
            packed(seed, &pairs);
            packed(!seed, &pairs);
        }
    }
}

/// Packs pairs into a store whose index grows, as recovery does: with fewer and fewer home buckets until they fit, with the spare
/// memory that a start may take. Returns the shares of the memory that are spare and index.
fn pack(store: &mut Hash, pairs: &[(Vec<u8>, Option<Vec<u8>>)]) -> Option<(f64, f64)> {
    let first = Settings::growing(MEMORY[0], 0).first_home_buckets();
    let mut home_buckets = store.store.home_bucket_count() / 8 * 7;
    loop {
        store.store.begin_packing(home_buckets);
        let is_restored = store.restore_all(pairs);
        let spare = store.store.end_packing().saturating_sub(store.store.statistics().slab_free_bytes);
        if is_restored && spare <= MEMORY[0] / 16 {
            assert_eq!(store.store.statistics().pairs, pairs.len() as u64);
            let index = store.store.statistics().index_bytes;
            return Some((spare as f64 / MEMORY[0] as f64, index as f64 / MEMORY[0] as f64));
        }
        if home_buckets <= first {
            return None;
        }
        home_buckets /= 2;
    }
}

fn growing(seed: u64) -> Hash {
    let store = Processor::with_spare(&Settings::growing(MEMORY[0], seed), MEMORY[0]).unwrap();
    Hash { store, replies: Replies::with_budget(1 << 20) }
}

/// The index of the full store has grown with its pairs. That of the restored one grows in another order.
#[test]
fn the_pairs_of_a_full_hash_store_whose_index_grows_fit_its_memory_in_any_order() {
    for seed in seeds(&(0..SEEDS).collect::<Vec<_>>()) {
        for pair_size in PAIR_SIZES.into_iter().chain([16, 25, 40]) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut full = growing(seed);
            fill(&mut full, pair_size, &mut random);
            let mut pairs: Vec<_> = full.pairs().into_iter().map(|(key, value)| (key, Some(value))).collect();
            for other_seed in [seed, !seed] {
                let mut store = growing(other_seed);
                let fits = store.restore_all(&pairs);
                let packed = pack(&mut store, &pairs);
                println!("seed {seed}, pairs of {pair_size}: fits {fits}, packed {packed:?}");
                assert!(packed.is_some(), "seed {seed}, pairs of {pair_size}");
                pairs.shuffle(&mut random);
            }
        }
    }
}

/// Values of another time are where the index would grow. So it stays small, and its chains are full. Restored without those
/// values, the index would take the memory of the pairs.
#[test]
fn the_pairs_of_a_store_whose_index_could_not_grow_fit_its_memory() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    for (large, small) in [(300, 16), (4000, 16), (4000, 20), (500, 10), (500, 40)] {
        let mut full = growing(1);
        let key = |number: u64| number.to_be_bytes();
        let count = (0..).find(|number| !full.write(&key(*number), Some(&vec![3; large]))).unwrap();
        for number in 0..count - count / 20 {
            assert!(full.write(&key(number), None));
        }
        let mut refused = 0;
        while refused < REFUSED_MAX {
            let key: [u8; 6] = random.random();
            refused += u32::from(!full.write(&key, Some(&vec![1; small - 6])));
        }
        let index = full.store.statistics().index_bytes as f64 / MEMORY[0] as f64;
        let pairs: Vec<_> = full.pairs().into_iter().map(|(key, value)| (key, Some(value))).collect();
        let mut store = growing(1);
        let fits = store.restore_all(&pairs);
        let packed = pack(&mut store, &pairs);
        println!("{large} B, then {small} B: index {index:.3}, fits {fits}, packed {packed:?}");
        assert!(packed.is_some(), "{large} B, then {small} B");
    }
}

fn ordered(memory: u64) -> OrderedStore {
    OrderedStore::new(&OrderedSettings::new(memory)).unwrap()
}

fn load(store: &OrderedStore, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), MissingMemory> {
    let mut load = Load::new(store.session().unwrap());
    pairs.iter().for_each(|(key, value)| load.push(key, value, None).unwrap());
    load.finish()
}

/// Nothing is held back for that.
#[test]
fn a_full_ordered_store_comes_back_in_the_same_memory_some_times_in_a_row() {
    for seed in seeds(&[0, 1]) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for pair_size in PAIR_SIZES {
            let mut store = ordered(MEMORY[1]);
            for restart in 0..3 {
                fill(&mut store.session().unwrap(), pair_size, &mut random);
                let pairs = store.session().unwrap().pairs();
                let next = ordered(MEMORY[1]);
                let context = format!("seed {seed}, pairs of {pair_size}, restart {restart}");
                assert_eq!(load(&next, &pairs), Ok(()), "{context}");
                next.session().unwrap().check();
                assert!(next.session().unwrap().pairs() == pairs, "{context}: other pairs");
                store = next;
            }
        }
    }
}

/// The oldest keys of a full store are deleted, and new ones are set: leaves that writes leave so are the densest.
#[test]
fn a_full_ordered_store_whose_oldest_keys_are_deleted_comes_back_in_the_same_memory() {
    for size in [12, 40, 300, 1000] {
        let store = ordered(MEMORY[1]);
        let mut session = store.session().unwrap();
        let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let (mut head, mut tail) = (0, 0);
        while tail < 20_000 {
            if session.write(&key(head), Some(&vec![7; size])) {
                head += 1;
            } else {
                assert!(session.write(&key(tail), None));
                tail += 1;
            }
        }
        let pairs = session.pairs();
        assert_eq!(pairs.len() as u64, head - tail);
        let next = ordered(MEMORY[1]);
        assert_eq!(load(&next, &pairs), Ok(()), "values of {size}");
        assert!(next.session().unwrap().pairs() == pairs);
        // Deletes do not fail, and leave room.
        let mut next = next.session().unwrap();
        assert!(pairs.iter().all(|(key, _)| next.write(key, None)));
        assert!(next.pairs().is_empty() && next.write(b"key", Some(b"value")));
    }
}

/// Keys and values of all sizes, loaded with room and tightly, and then changed at random.
#[test]
fn a_loaded_tree_is_one_that_writes_can_change() {
    for seed in seeds(&(0..12).collect::<Vec<_>>()) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (key_size, value_size) =
            [(4, 9), (20, 100), (460, 30), (250, 469), (460, 3000), (9, 20_000)][seed as usize % 6];
        let memory = if seed < 6 { 4 << 20 } else { 16 << 20 };
        let mut pairs = BTreeMap::new();
        let mut bytes = 0;
        while bytes < 5 << 19 {
            let key: Vec<u8> =
                (0..random.random_range(1..=key_size)).map(|_| random.random_range(b'a'..b'd')).collect();
            let value = vec![random.random(); random.random_range(0..=value_size)];
            bytes += key.len() + value.len() + 30;
            pairs.insert(key, value);
        }
        let store = ordered(memory);
        let sorted: Vec<_> = pairs.clone().into_iter().collect();
        assert_eq!(load(&store, &sorted), Ok(()), "seed {seed}");
        assert_eq!(store.pair_count(), pairs.len() as u64);
        let mut session = store.session().unwrap();
        session.check();
        for (key, _) in &sorted {
            let value = random.random_bool(0.5).then(|| vec![7; random.random_range(0..=value_size)]);
            if session.write(key, value.as_deref()) {
                match value {
                    Some(value) => _ = pairs.insert(key.clone(), value),
                    None => _ = pairs.remove(key),
                }
            }
        }
        session.check();
        assert!(session.pairs().into_iter().eq(pairs), "seed {seed}");
    }
}

#[test]
fn a_load_tells_how_much_memory_is_missing() {
    for size in [12, 300, 1000, 20_000] {
        let store = ordered(4 * MEMORY[1]);
        let mut session = store.session().unwrap();
        let mut number = 0_u64;
        while session.write(&number.to_be_bytes(), Some(&vec![7; size])) {
            number += 1;
        }
        let pairs = session.pairs();
        let missing = load(&ordered(MEMORY[1]), &pairs).unwrap_err();
        assert!(missing.bytes > 2 * MEMORY[1] && missing.bytes < 4 * MEMORY[1], "values of {size}: {missing:?}");
        assert_eq!(load(&ordered(MEMORY[1] + missing.bytes), &pairs), Ok(()), "values of {size}");
    }
}
