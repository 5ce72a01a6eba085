//! A cache against the naive store, which lets it forget keys. It may forget only what it has evicted.
//!
//! 1. A reply that differs from the naive store's is accepted only if it is the reply for a missing key. The key is counted as
//!    forgotten then.
//! 2. `Contains` is checked before each write, so both stores agree on the keys before it.
//! 3. After some batches, all keys are read. Then the number of forgotten keys is the number of evictions, and the cache has as
//!    many items as the naive store. So a key that is lost without an eviction is noticed, and so is an eviction of no key.
//!
//! No key expires here, except at once; see `expiries.rs`.

use std::collections::HashMap;

use super::super::bucket::KeyHash;
use super::{MEMORY_SIZE, Tested};
use crate::naive::{
    Generator, GeneratorSettings, Harness, Mix, NaiveStore, OwnedOperation, OwnedRequest, SizeWeights, test_seeds,
};
use crate::processor::Replies;
use skep_core::operation::{Operation, OperationError, Reply, Request};

/// Runs of both stores.
struct Run {
    seed: u64,
    tested: Tested,
    harness: Harness,
    /// The keys by their hashes. The cache does not count the eviction of a key by another one with the same hash.
    key_hashes: HashMap<KeyHash, Vec<u8>>,
    /// Evictions before the naive store was created.
    evictions_before: u64,
}

impl Run {
    fn new(seed: u64, kv_size: usize, hash_mask: u64) -> Self {
        let mut tested = Tested::new(kv_size, seed);
        tested.cache.locator.hash_mask = hash_mask;
        let harness = Harness::new(NaiveStore::forgetful(), usize::MAX, seed);
        Run { seed, tested, harness, key_hashes: HashMap::new(), evictions_before: 0 }
    }

    /// Executes a batch.
    fn execute(&mut self, batch: &[OwnedRequest]) {
        let mut requests = Vec::new();
        for request in batch.iter().map(OwnedRequest::as_request) {
            let owner = self
                .key_hashes
                .entry(self.tested.cache.locator.hash(request.key))
                .or_insert_with(|| request.key.to_vec());
            if owner != request.key {
                continue;
            }
            if !request.operation.is_read() {
                requests.push(Request { key: request.key, operation: Operation::Contains });
            }
            requests.push(request);
        }
        self.submit(&requests);
    }

    fn submit(&mut self, requests: &[Request<'_>]) {
        let cache = &mut self.tested.cache;
        self.harness.execute(requests, |requests, replies: &mut Replies| cache.execute(requests, replies));
    }

    /// Reads all keys of the naive store.
    fn read_all(&mut self) {
        let keys: Vec<Vec<u8>> = self.harness.naive().iter().map(|(key, _)| key.to_vec()).collect();
        let gets: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
        self.submit(&gets);
    }

    /// Returns the number of keys that were evicted since the naive store was created.
    fn evictions(&self) -> u64 {
        let statistics = self.tested.cache.statistics();
        statistics.index_evictions + statistics.log_evictions - self.evictions_before
    }

    /// Reads all keys of the naive store, and compares the counts.
    fn audit(&mut self) {
        self.read_all();
        let (statistics, evictions, seed) = (self.tested.cache.statistics(), self.evictions(), self.seed);
        assert_eq!(self.harness.naive().forgotten(), evictions, "SKEP_SEED={seed}: keys were lost without an eviction");
        assert_eq!(statistics.items, self.harness.naive().len() as u64, "SKEP_SEED={seed}: items");
    }
}

/// A run of random batches. Returns evictions by the index and by the log, and how often the log has wrapped around.
fn run(settings: GeneratorSettings, kv_size: usize, hash_mask: u64, batches: usize) -> [u64; 3] {
    let seed = settings.seed;
    let mut run = Run::new(seed, kv_size, hash_mask);
    let mut generator = Generator::new(settings);
    for number in 0..batches {
        let batch: Vec<OwnedRequest> = generator.by_ref().take(1 + number * 37 % 401).collect();
        run.execute(&batch);
        if number % 10 == 9 {
            run.audit();
        }
    }
    assert_eq!(run.harness.deferred(), 0, "SKEP_SEED={seed}: each write follows its `Contains`");
    let (statistics, log) = (run.tested.cache.statistics(), &run.tested.cache.log);
    assert_eq!(statistics.memory_bytes, MEMORY_SIZE);
    [statistics.index_evictions, statistics.log_evictions, log.appended_units() / u64::from(log.unit_count())]
}

#[test]
fn a_cache_that_holds_all_keys_forgets_only_old_ones() {
    for seed in test_seeds() {
        let settings = GeneratorSettings { seed, key_count: 300, large_size_max: 16_000, ..Default::default() };
        let [_, _, wraps] = run(settings, 100, u64::MAX, 300);
        assert!(wraps > 3, "SKEP_SEED={seed}: {wraps} wraps");
    }
}

#[test]
fn a_cache_with_too_many_keys_forgets_by_its_log() {
    for seed in test_seeds() {
        let large_size_max = 16_000;
        let settings =
            GeneratorSettings { seed, key_count: 20_000, key_size: 4..=32, large_size_max, ..Default::default() };
        let [index, log, wraps] = run(settings, 300, u64::MAX, 300);
        assert!(log > 1000 && wraps > 3, "SKEP_SEED={seed}: {index} by the index, {log} by the log, {wraps} wraps");
    }
}

#[test]
fn small_pairs_forget_by_the_index_too() {
    for seed in test_seeds() {
        let sizes = SizeWeights { empty: 1, inline: 1, slab: 0, large: 0 };
        let settings = GeneratorSettings { seed, key_count: 100_000, key_size: 4..=8, sizes, ..Default::default() };
        let [index, _, _] = run(settings, 1000, u64::MAX, 300);
        assert!(index > 1000, "SKEP_SEED={seed}: {index} by the index");
    }
}

/// Four buckets, three tags.
#[test]
fn equal_tags_evict_each_other() {
    for seed in test_seeds() {
        let settings = GeneratorSettings { seed, key_count: 500, key_size: 4..=32, ..Default::default() };
        let [index, _, _] = run(settings, 100, 0xc000_0000_ffff_0003, 300);
        assert!(index > 5000, "SKEP_SEED={seed}: {index} by the index");
    }
}

#[test]
fn large_values_wrap_around() {
    for seed in test_seeds() {
        let sizes = SizeWeights { empty: 1, inline: 20, slab: 20, large: 20 };
        let settings = GeneratorSettings {
            seed,
            key_count: 100,
            key_size: 4..=32,
            sizes,
            large_size_max: 1 << 19,
            // A batch may compute 8 MiB of such values.
            mix: Mix { string_write: 0, call: 0, ..Mix::default() },
            ..Default::default()
        };
        let [_, log, wraps] = run(settings, 100_000, u64::MAX, 40);
        assert!(log > 100 && wraps > 50, "SKEP_SEED={seed}: {log} by the log, {wraps} wraps");
    }
}

#[test]
fn a_flush_removes_all_keys_and_evicts_none() {
    for seed in test_seeds() {
        let mut run = Run::new(seed, 100, u64::MAX);
        let mut generator = Generator::new(GeneratorSettings { seed, key_count: 3000, ..Default::default() });
        for number in 0..60 {
            let batch: Vec<OwnedRequest> = generator.by_ref().take(300).collect();
            run.execute(&batch);
            run.audit();
            if number % 7 == 6 {
                assert!(run.tested.cache.statistics().items > 100);
                run.tested.cache.flush();
                assert_eq!(run.tested.cache.statistics().items, 0);
                let evictions = run.evictions();
                run.read_all();
                assert!(run.harness.naive().is_empty(), "SKEP_SEED={seed}: a key is still there");
                assert_eq!(run.evictions(), evictions, "SKEP_SEED={seed}: a flush evicts no key");
                run.evictions_before += evictions;
                run.harness = Harness::new(NaiveStore::forgetful(), usize::MAX, seed);
            }
        }
    }
}

/// The control: a cache that loses a key without an eviction.
#[test]
#[should_panic(expected = "keys were lost without an eviction")]
fn a_key_that_is_lost_without_an_eviction_is_noticed() {
    let mut run = Run::new(1, 100, u64::MAX);
    let settings = GeneratorSettings { seed: 1, key_count: 1000, ..Default::default() };
    let batch: Vec<OwnedRequest> = Generator::new(settings).take(3000).collect();
    run.execute(&batch);
    run.audit();
    let key = run.harness.naive().iter().next().map(|(key, _)| key.to_vec()).expect("there are keys");
    run.tested.run(&key, Operation::Delete);
    run.audit();
}

/// The control: a cache that returns an old value.
#[test]
#[should_panic(expected = "expected Value")]
fn an_old_value_is_noticed() {
    let mut run = Run::new(1, 100, u64::MAX);
    let settings = GeneratorSettings { seed: 1, key_count: 1000, ..Default::default() };
    let batch: Vec<OwnedRequest> = Generator::new(settings).take(3000).collect();
    run.execute(&batch);
    let key = run.harness.naive().iter().next().map(|(key, _)| key.to_vec()).expect("there are keys");
    run.tested.put(&key, b"an old value");
    run.audit();
}

#[test]
fn scans_have_an_error() {
    let mut tested = Tested::new(16, 1);
    let settings = GeneratorSettings { mix: Mix { scan: 1000, ..Mix::default() }, ..Default::default() };
    let is_scan = |request: &OwnedRequest| matches!(request.operation, OwnedOperation::Scan { .. });
    for scan in Generator::new(settings).filter(is_scan).take(100) {
        let scan = scan.as_request();
        assert_eq!(tested.run(scan.key, scan.operation), Reply::Failed(OperationError::NotOrdered));
    }
}
