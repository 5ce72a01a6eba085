//! The hash store against the obvious one: random batches of all operations, from a printed seed.
//!
//! Every case is a memory of some size, settings, and a population of keys; the small memories fill up, so that chains,
//! splitting, merging and full memory take part. `SKEP_SEED` repeats a run.

use skep_core::operation::{Operation, OperationError, Reply, Request};
use skep_store::hash::{STEP_KEYS_MAX, Settings};
use skep_store::memory::{CountingMemory, LocalMemory};
use skep_store::naive::{Generator, GeneratorSettings, Harness, Mix, NaiveStore, OwnedRequest, SizeWeights, seeds};
use skep_store::processor::{Processor, Replies, Statistics};

/// The outcomes that a case had, so that a test can require them.
#[derive(Debug, Default)]
struct Seen {
    index_full: u64,
    slab_full: u64,
    deferred: u64,
    merge_passes: u64,
    has_grown: bool,
}

struct Case {
    settings: Settings,
    generator: GeneratorSettings,
    operations: u64,
    reply_budget: usize,
}

/// Returns settings of an index that does not grow.
fn fixed(memory: u64, hash_index_ratio: f64, inline_threshold: usize) -> Settings {
    Settings { memory, hash_index_ratio, inline_threshold, grows: false, seed: seed() }
}

fn seed() -> u64 {
    seeds(&[20_170_910])[0]
}

/// Runs a case in batches of 1 to 600, and compares every reply, then every pair.
fn run(case: Case) -> Seen {
    let seed = case.generator.seed;
    println!("seed {seed}");
    let settings = &case.settings;
    let mut processor = Processor::new(settings).unwrap();
    let empty = processor.statistics();
    let mut harness = Harness::new(NaiveStore::new(), case.reply_budget, seed);
    let mut generator = Generator::new(case.generator);
    let mut utilization = 0.0_f64;
    let (mut batch_size, mut batches) = (0, 0);
    while harness.operations() < case.operations {
        batch_size = (batch_size * 31 + 17) % 601;
        let batch: Vec<OwnedRequest> = generator.by_ref().take(batch_size.max(1)).collect();
        // Keys expire in the first half of the run. Most of them are overwritten or read before they are reclaimed.
        batches += 1;
        let now = harness.operations() * 2000 / case.operations;
        processor.set_now(now);
        harness.set_now(now);
        harness.execute_owned(&batch, |requests, replies| processor.execute(requests, replies));
        if batches % 16 != 0 {
            continue;
        }
        reclaim(&mut processor, now);
        let statistics = processor.statistics();
        assert_eq!(statistics.pairs, harness.naive().len() as u64, "seed {seed}");
        assert_eq!(statistics.expiring, harness.naive().expiring() as u64, "seed {seed}");
        assert_eq!(statistics.pair_bytes, harness.naive().key_and_value_bytes(), "seed {seed}");
        utilization = utilization.max(statistics.pair_bytes as f64 / settings.memory as f64);
    }
    reclaim(&mut processor, 2000);
    read_all(&mut processor, harness.naive(), seed);
    remove_all(&mut processor, harness.naive(), seed);
    let statistics = processor.statistics();
    let unused = |statistics: Statistics| statistics.slab_free_bytes + statistics.index_bytes;
    assert_eq!(unused(statistics), unused(empty), "seed {seed}: all slabs are free again");
    assert!(settings.grows || statistics.index_bytes == empty.index_bytes);
    let seen = Seen {
        index_full: harness.failed(OperationError::IndexFull),
        slab_full: harness.failed(OperationError::SlabFull),
        deferred: harness.deferred(),
        merge_passes: statistics.slab.merge_passes,
        has_grown: statistics.index_bytes > empty.index_bytes,
    };
    println!("{} operations, at most {utilization} of the memory, {seen:?}", harness.operations());
    seen
}

/// Frees the memory of all keys that have expired. Each step removes a bounded number of them.
fn reclaim(processor: &mut Processor, now: u64) {
    while processor.reclaim_from().is_some_and(|from| from <= now) {
        assert!(processor.reclaim() <= STEP_KEYS_MAX);
    }
}

fn read_all(processor: &mut Processor, naive: &NaiveStore, seed: u64) {
    let mut replies = Replies::with_budget(usize::MAX);
    for (key, value) in naive.iter() {
        processor.execute(&[Request { key, operation: Operation::Get }], &mut replies);
        assert_eq!(replies.get(0), Reply::Value(value), "seed {seed} key {key:?}");
    }
}

fn remove_all(processor: &mut Processor, naive: &NaiveStore, seed: u64) {
    let mut replies = Replies::with_budget(usize::MAX);
    let requests: Vec<_> = naive.iter().map(|(key, _)| Request { key, operation: Operation::Delete }).collect();
    processor.execute(&requests, &mut replies);
    assert!(replies.iter().all(|reply| reply == Reply::Done), "seed {seed}");
    let statistics = processor.statistics();
    assert_eq!((statistics.pairs, statistics.pair_bytes, statistics.expiring), (0, 0, 0), "seed {seed}");
}

#[test]
fn all_operations_in_a_memory_with_room() {
    let generator = GeneratorSettings { seed: seed(), key_count: 20_000, ..GeneratorSettings::default() };
    let seen = run(Case { settings: fixed(64 << 20, 0.1, 30), generator, operations: 400_000, reply_budget: 1 << 20 });
    assert_eq!((seen.index_full, seen.slab_full), (0, 0));
}

/// Small and large pairs come and go, so that the index grows while chains are edited in all ways.
#[test]
fn all_operations_while_the_index_grows() {
    for round in 0..6 {
        let generator = GeneratorSettings {
            seed: seed() + 50 + round,
            key_count: 12_000 << (round / 2),
            sizes: SizeWeights { empty: 1, inline: 8, slab: 2, large: 0 },
            key_size: 1..=if round % 2 == 0 { 12 } else { 64 },
            mix: Mix { put: 40, delete: 8, ..Mix::default() },
            ..GeneratorSettings::default()
        };
        let settings = Settings::growing(2 << 20 << (round / 2), seed());
        let seen = run(Case { settings, generator, operations: 60_000 << (round / 2), reply_budget: 1 << 20 });
        assert!(seen.has_grown);
    }
}

#[test]
fn few_hot_keys_are_forwarded() {
    for inline_threshold in [0, 50] {
        let generator = GeneratorSettings { seed: seed() + 1, key_count: 12, ..GeneratorSettings::default() };
        run(Case {
            settings: fixed(1 << 20, 0.01, inline_threshold),
            generator,
            operations: 150_000,
            reply_budget: 1 << 20,
        });
    }
}

#[test]
fn one_bucket_with_everything_in_its_chain() {
    let generator = GeneratorSettings {
        seed: seed() + 2,
        key_count: 300,
        key_size: 1..=40,
        sizes: SizeWeights { empty: 1, inline: 8, slab: 3, large: 0 },
        ..GeneratorSettings::default()
    };
    run(Case { settings: fixed(256 << 10, 1e-6, 50), generator, operations: 100_000, reply_budget: 1 << 20 });
}

#[test]
fn small_memories_fill_up() {
    let (mut index_full, mut slab_full, mut merge_passes) = (0, 0, 0);
    for (round, memory) in [4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20].into_iter().enumerate() {
        let fixed_ones = [(0.02, 0), (0.3, 25), (0.8, 50)].map(|(ratio, threshold)| fixed(memory, ratio, threshold));
        for settings in fixed_ones.into_iter().chain([Settings::growing(memory, seed())]) {
            let generator = GeneratorSettings {
                seed: seed() + 10 + round as u64,
                key_count: (memory / 20) as u32,
                key_size: 1..=64,
                mix: Mix { put: 50, delete: 12, ..Mix::default() },
                ..GeneratorSettings::default()
            };
            let operations = 30_000;
            let seen = run(Case { settings, generator, operations, reply_budget: 1 << 20 });
            assert!(seen.index_full + seen.slab_full > 0, "the memory of {memory} filled up: {seen:?}");
            index_full += seen.index_full;
            slab_full += seen.slab_full;
            merge_passes += seen.merge_passes;
        }
    }
    assert!(index_full > 0 && slab_full > 0 && merge_passes > 0);
}

#[test]
fn large_values_and_a_small_reply_budget() {
    let generator = GeneratorSettings {
        seed: seed() + 30,
        key_count: 60,
        sizes: SizeWeights { empty: 1, inline: 2, slab: 2, large: 10 },
        large_size_max: 200_000,
        ..GeneratorSettings::default()
    };
    let seen = run(Case { settings: fixed(16 << 20, 0.01, 20), generator, operations: 8_000, reply_budget: 100_000 });
    assert!(seen.deferred > 0);
}

/// The same operations on a memory that counts: the same answers.
#[test]
fn counting_changes_no_answer() {
    let settings = Settings::for_kv_size(8 << 20, 64, 1);
    let memory = CountingMemory::new(LocalMemory::new(settings.memory).unwrap());
    let mut processor = Processor::with_memory(memory, &settings).unwrap();
    let mut harness = Harness::new(NaiveStore::new(), 1 << 20, seed());
    let mut generator = Generator::new(GeneratorSettings { seed: seed() + 40, key_count: 2000, ..Default::default() });
    while harness.operations() < 100_000 {
        let batch: Vec<OwnedRequest> = generator.by_ref().take(300).collect();
        harness.execute_owned(&batch, |requests, replies| processor.execute(requests, replies));
    }
    assert!(processor.memory().counts().accesses() > 0);
}
