//! Walks over all keys of the hash store, while the store changes: no key that exists throughout is missed.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Condition, Expiry, ExpiryChange, Operation, PutCondition, Reply, Request, StringWrite};
use skep_store::hash::{STEP_BUCKETS_MAX, STEP_SLABS_MAX, Settings, WalkLimit};
use skep_store::processor::{Processor, Replies};

/// Random runs, unless `SKEP_SEED` names one.
const RUNS: u64 = 10_000;

/// A step of a walk: takes the position, returns the keys and the next position.
type Step = fn(&mut Processor, u64, WalkLimit) -> (Vec<Vec<u8>>, Option<u64>);

/// Returns the position of a cursor, which has fewer bits than a position.
fn of_cursor(position: u64) -> u64 {
    position >> 24 << 24
}

/// The step of the store.
fn step_of_store(store: &mut Processor, from: u64, limit: WalkLimit) -> (Vec<Vec<u8>>, Option<u64>) {
    let mut keys = Vec::new();
    let step = store.walk(from, limit, |key| keys.push(key.to_vec()));
    assert!(step.buckets <= STEP_BUCKETS_MAX);
    (keys, step.next.map(of_cursor))
}

/// A control: the position is the number of keys so far, as if their order did not change.
fn step_by_number(store: &mut Processor, from: u64, limit: WalkLimit) -> (Vec<Vec<u8>>, Option<u64>) {
    let (mut all, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        next = store.walk(from, limit, |key| all.push(key.to_vec())).next;
    }
    let end = all.len().min(from as usize + limit.keys);
    let keys = all.get(from as usize..end).map(<[_]>::to_vec).unwrap_or_default();
    (keys, (end < all.len()).then_some(end as u64))
}

struct Run {
    store: Processor,
    replies: Replies,
    random: Xoshiro256PlusPlus,
    now: u64,
    /// The keys that exist, and when they expire.
    keys: BTreeMap<Vec<u8>, Option<u64>>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let settings = match random.random_range(0..4) {
            ratio @ 0..3 => {
                let hash_index_ratio = [0.01, 0.1, 0.5][ratio];
                Settings { memory: 64 << 10, hash_index_ratio, inline_threshold: 30, grows: false, seed }
            }
            _ => Settings::growing(64 << 10, seed),
        };
        let store = Processor::new(&settings).unwrap();
        Run { store, replies: Replies::with_budget(1 << 20), random, now: 1000, keys: BTreeMap::new() }
    }

    /// Executes an operation until it is not deferred. Returns true if it was done.
    fn execute(&mut self, key: &[u8], operation: Operation<'_>) -> bool {
        for _ in 0..10_000 {
            self.store.execute(&[Request { key, operation }], &mut self.replies);
            if !self.replies.is_deferred(0) {
                return self.replies.get(0) == Reply::Done;
            }
        }
        panic!("an operation is not deferred for ever");
    }

    /// Sets a key to a value that is inline, in a slab, or large.
    fn set(&mut self, key: &[u8], may_expire: bool) {
        let size = [0, 3, 20, 60, 200, 450, 700, 3000][self.random.random_range(0..8)];
        let value = vec![7; size];
        let expires = may_expire && self.random.random_range(0..4) == 0;
        let is_done = if expires {
            let time = self.now + self.random.random_range(1..50);
            let expiry = ExpiryChange::set(Expiry::at(time as i64).unwrap());
            let condition = Condition::ALWAYS;
            let set = StringWrite::Set { value: &value, condition, expiry, return_old: false };
            let is_done = self.execute(key, Operation::StringWrite(set));
            if is_done {
                self.keys.insert(key.to_vec(), Some(time));
            }
            return;
        } else {
            self.execute(key, Operation::Put { value: &value, condition: PutCondition::Always })
        };
        if is_done {
            self.keys.insert(key.to_vec(), None);
        }
    }

    fn delete(&mut self, key: &[u8]) {
        self.execute(key, Operation::Delete);
        self.keys.remove(key);
    }

    fn random_key(&mut self) -> Vec<u8> {
        let size = [2, 9, 30, 200][self.random.random_range(0..4)];
        let mut key = vec![b'k'; size];
        key[..2].copy_from_slice(&self.random.random_range(0..400_u16).to_le_bytes());
        key
    }

    /// Walks over the store while it grows and shrinks. Returns the number of keys that were missed although they existed
    /// throughout, and how often such a key was returned again.
    fn walk(mut self, step: Step) -> (usize, usize) {
        for _ in 0..self.random.random_range(0..200) {
            let key = self.random_key();
            self.set(&key, true);
        }
        // These are never deleted. Their values change, so that they move between buckets and slabs.
        let stable: Vec<Vec<u8>> =
            self.keys.iter().filter(|(_, expiry)| expiry.is_none()).map(|(key, _)| key.clone()).collect();
        let stable: BTreeSet<Vec<u8>> = stable.into_iter().filter(|_| self.random.random_range(0..3) == 0).collect();
        let grows = self.random.random_range(0..100);
        let (mut found, mut again, mut next) = (BTreeSet::new(), 0, Some(0));
        while let Some(from) = next {
            let limit = WalkLimit { keys: self.random.random_range(1..20), size: 4096 };
            self.store.set_now(self.now);
            let keys;
            (keys, next) = step(&mut self.store, from, limit);
            for key in keys {
                let expiry = self.keys.get(&key).unwrap_or_else(|| panic!("{key:?} does not exist"));
                assert!(expiry.is_none_or(|time| time > self.now), "{key:?} has expired");
                let is_again = stable.contains(&key) && !found.insert(key);
                again += usize::from(is_again);
            }
            for _ in 0..self.random.random_range(0..20) {
                let key = self.random_key();
                let is_stable = stable.contains(&key);
                if self.random.random_range(0..100) < grows || is_stable {
                    self.set(&key, !is_stable);
                } else {
                    self.delete(&key);
                }
            }
            self.now += self.random.random_range(0..5);
            self.store.set_now(self.now);
            self.store.reclaim();
        }
        (stable.difference(&found).count(), again)
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("SKEP_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKEP_SEED is a number")],
        Err(_) => (0..RUNS).collect(),
    }
}

#[test]
fn keys_that_exist_during_a_whole_walk_are_returned_once() {
    for seed in seeds() {
        assert_eq!(Run::new(seed).walk(step_of_store), (0, 0), "SKEP_SEED={seed}");
    }
}

#[test]
fn a_walk_by_numbers_misses_keys() {
    assert!((0..100).any(|seed| Run::new(seed).walk(step_by_number).0 > 0));
}

/// Each chain has more slabs than a step, and a cursor begins at the end of the chain before.
#[test]
fn a_walk_by_cursors_passes_long_chains() {
    let settings = Settings { memory: 1 << 20, hash_index_ratio: 0.0002, inline_threshold: 0, grows: false, seed: 3 };
    let (mut store, mut replies) = (Processor::new(&settings).unwrap(), Replies::with_budget(1 << 20));
    assert_eq!(store.home_bucket_count(), 3);
    for number in 0..3000_u64 {
        let operation = Operation::Put { value: &[1; 20], condition: PutCondition::Always };
        store.execute(&[Request { key: &number.to_le_bytes(), operation }], &mut replies);
        assert_eq!(replies.get(0), Reply::Done);
    }
    let limit = WalkLimit { keys: 10, size: usize::MAX };
    let (mut found, mut next, mut steps) = (BTreeSet::new(), Some(0), 0);
    while let Some(from) = next {
        let keys;
        (keys, next) = step_of_store(&mut store, from, limit);
        found.extend(keys);
        steps += 1;
        assert!(steps <= 3, "each step passes a chain");
    }
    assert_eq!(found.len(), 3000);
}

#[test]
fn a_step_is_bounded_in_buckets_slabs_and_keys() {
    let settings = Settings { memory: 8 << 20, hash_index_ratio: 0.2, inline_threshold: 10, grows: false, seed: 3 };
    let mut store = Processor::new(&settings).unwrap();
    let all = WalkLimit { keys: usize::MAX, size: usize::MAX };
    let step = store.walk(0, all, |_| panic!("the store is empty"));
    assert_eq!((step.next, step.buckets, step.slabs), (None, 0, 0));

    let mut replies = Replies::with_budget(1 << 20);
    // The last bucket of the index, so that the first step finds nothing.
    let count = store.home_bucket_count();
    let last = (0_u64..).find(|key| store.home_bucket(&key.to_le_bytes()) >= count - 16).unwrap().to_le_bytes();
    store.execute(
        &[Request { key: &last, operation: Operation::Put { value: b"", condition: PutCondition::Always } }],
        &mut replies,
    );
    // Buckets without a key are skipped, except those of its group.
    let mut found = 0;
    let only = store.walk(0, all, |_| found += 1);
    assert_eq!((found, only.next, only.slabs), (1, None, 0));
    assert!(only.buckets <= 64 + count / 4096 / 8, "{only:?}");
    assert_eq!(store.walk(u64::MAX, all, |_| panic!("no position is left")).next, None);
    // A bucket that has lost its keys is read once more.
    let keys: Vec<_> = (0..40_000_u64).map(u64::to_be_bytes).collect();
    for operation in [Operation::Put { value: b"", condition: PutCondition::Always }, Operation::Delete] {
        let requests: Vec<_> = keys.iter().map(|key| Request { key, operation }).collect();
        store.execute(&requests, &mut replies);
        assert!(replies.iter().all(|reply| reply == Reply::Done));
    }
    let step = store.walk(0, all, |_| panic!("the key is in another bucket"));
    // The position is the first one of the next bucket.
    let next = (u128::from(STEP_BUCKETS_MAX) << 64).div_ceil(u128::from(count)) as u64;
    assert_eq!((step.next, step.buckets, step.slabs), (Some(next), STEP_BUCKETS_MAX, 0));
    let mut found = 0;
    assert_eq!(store.walk(next, all, |_| found += 1).next, None);
    assert_eq!((found, store.walk(0, all, |_| found += 1)), (1, only));
    store.execute(&[Request { key: &last, operation: Operation::Delete }], &mut replies);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for _ in 0..40_000 {
        let operation = Operation::Put { value: &[1; 40], condition: PutCondition::Always };
        store.execute(&[Request { key: &random.next_u64().to_le_bytes(), operation }], &mut replies);
        assert_eq!(replies.get(0), Reply::Done);
    }
    let (mut next, mut count) = (Some(0), 0);
    while let Some(from) = next {
        let mut of_step = 0;
        let step = store.walk(from, all, |_| of_step += 1);
        // The last chain may exceed the limit.
        assert!(step.slabs < STEP_SLABS_MAX + 64, "{step:?}");
        count += of_step;
        next = step.next;
    }
    assert_eq!(count, 40_000);
    let mut of_step = 0;
    store.walk(0, WalkLimit { keys: 10, ..all }, |_| of_step += 1);
    assert!((10..40).contains(&of_step), "{of_step}");
    of_step = 0;
    store.walk(0, WalkLimit { size: 80, ..all }, |_| of_step += 1);
    assert!((10..40).contains(&of_step), "{of_step}");
}
