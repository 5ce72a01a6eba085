//! Flushes of the hash store: all keys are gone at once, and the memory comes back in bounded steps.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Condition, Expiry, ExpiryChange, Operation, PutCondition, Reply, Request, StringWrite};
use skep_store::hash::{FLUSH_STEP_BUCKETS, Settings, WalkLimit};
use skep_store::memory::{CountingMemory, LocalMemory, Memory};
use skep_store::processor::{Processor, Replies};

const ALL: WalkLimit = WalkLimit { keys: usize::MAX, size: usize::MAX };

fn put(value: &[u8]) -> Operation<'_> {
    Operation::Put { value, condition: PutCondition::Always }
}

/// Executes an operation until it is not deferred.
fn execute<'r, M: Memory>(
    store: &mut Processor<M>,
    replies: &'r mut Replies,
    key: &[u8],
    operation: Operation<'_>,
) -> Reply<'r> {
    for _ in 0..10_000 {
        store.execute(&[Request { key, operation }], replies);
        if !replies.is_deferred(0) {
            return replies.get(0);
        }
    }
    panic!("an operation is not deferred for ever");
}

/// Returns the keys that a walk finds.
fn keys<M: Memory>(store: &mut Processor<M>) -> BTreeSet<Vec<u8>> {
    let (mut keys, mut next) = (BTreeSet::new(), Some(0));
    while let Some(from) = next {
        next = store.walk(from, ALL, |key| assert!(keys.insert(key.to_vec()))).next;
    }
    keys
}

/// Draws operations on different keys: for each a key, the size of a value and a choice.
fn draw_batch(random: &mut Xoshiro256PlusPlus) -> Vec<(Vec<u8>, usize, u32)> {
    let numbers: BTreeSet<u16> = (0..random.random_range(1..40)).map(|_| random.random_range(0..300)).collect();
    numbers
        .into_iter()
        .map(|number| {
            let mut key = vec![b'k'; [2, 10, 40][usize::from(number) % 3]];
            key[..2].copy_from_slice(&number.to_le_bytes());
            (key, [0, 5, 60, 200, 900, 2500][random.random_range(0..6)], random.random_range(0..10))
        })
        .collect()
}

/// Compares a reply with that of a map, which is changed as the store was.
fn assert_reply(request: &Request<'_>, reply: Reply<'_>, expected: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    match (request.operation, reply) {
        (_, Reply::Deferred | Reply::Failed(_)) => {}
        (Operation::Get, Reply::Value(value)) => {
            assert_eq!(Some(value), expected.get(request.key).map(|v| &v[..]));
        }
        (Operation::Get, reply) => {
            assert_eq!((reply, expected.get(request.key)), (Reply::NotFound, None), "{:?}", request.key);
        }
        (Operation::Delete, reply) => {
            assert_eq!(reply == Reply::Done, expected.remove(request.key).is_some());
        }
        (Operation::Put { value, .. } | Operation::StringWrite(StringWrite::Set { value, .. }), _) => {
            expected.insert(request.key.to_vec(), value.to_vec());
        }
        other => panic!("{other:?}"),
    }
}

/// Compares a store with a map while random operations, flushes and steps of flushes run.
fn compare<M: Memory>(mut store: Processor<M>, seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut replies = Replies::with_budget(1 << 20);
    let mut expected: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut flushes_in_flush = 0;
    store.set_now(1000);
    for round in 0..3000 {
        // With an invalid request now and then.
        let batch = draw_batch(&mut random);
        let value = vec![round as u8; 2500];
        let expiry = ExpiryChange::set(Expiry::at(1 << 40).unwrap());
        let mut requests: Vec<Request<'_>> = batch
            .iter()
            .map(|(key, size, choice)| {
                let operation = match choice {
                    0..=3 => put(&value[..*size]),
                    4 => {
                        let (value, condition) = (&value[..*size], Condition::ALWAYS);
                        Operation::StringWrite(StringWrite::Set { value, condition, expiry, return_old: false })
                    }
                    5 | 6 => Operation::Delete,
                    _ => Operation::Get,
                };
                Request { key, operation }
            })
            .collect();
        if round % 10 == 0 {
            requests.insert(requests.len() / 2, Request { key: b"", operation: Operation::Get });
        }
        while !requests.is_empty() {
            store.execute(&requests, &mut replies);
            for (request, reply) in requests.iter().zip(replies.iter()) {
                assert_reply(request, reply, &mut expected);
            }
            let mut index = 0;
            requests.retain(|_| {
                index += 1;
                replies.is_deferred(index - 1)
            });
        }
        if random.random_range(0..20) == 0 {
            flushes_in_flush += u32::from(store.is_flushing());
            store.flush();
            expected.clear();
        }
        for _ in 0..random.random_range(0..3) {
            store.flush_step();
        }
        assert_eq!(store.statistics().pairs, expected.len() as u64, "round {round}");
        if round % 7 == 0 {
            assert_eq!(keys(&mut store), expected.keys().cloned().collect(), "round {round}");
        }
    }
    assert!(flushes_in_flush > 10);
    for key in expected.keys() {
        execute(&mut store, &mut replies, key, Operation::Delete);
    }
    while store.flush_step() {}
    let statistics = store.statistics();
    assert_eq!((statistics.pairs, statistics.pair_bytes, statistics.expiring), (0, 0, 0));
    // No slab is lost or has two owners.
    let memory = statistics.memory_bytes - statistics.index_bytes;
    assert!(statistics.slab_free_bytes <= memory && statistics.slab_free_bytes + 64 >= memory, "{statistics:?}");
}

fn settings(memory: u64, seed: u64) -> Settings {
    Settings { memory, hash_index_ratio: 0.25, inline_threshold: 30, grows: false, seed }
}

#[test]
fn a_flushed_store_has_only_the_keys_that_were_set_since() {
    for seed in 0..4 {
        // 4096 home buckets, so that a flush has 16 steps.
        let settings = settings(1 << 20, seed);
        compare(Processor::new(&settings).unwrap(), seed);
        let memory = || LocalMemory::new(settings.memory).unwrap();
        compare(Processor::with_memory(CountingMemory::new(memory()), &settings).unwrap(), seed);
        compare(Processor::with_memory(CountingMemory::with_resident_lines(memory()), &settings).unwrap(), seed);
    }
}

#[test]
fn a_flush_beside_a_merge_daemon_loses_no_memory() {
    let mut store = Processor::new(&settings(1 << 20, 9)).unwrap();
    let daemon = store.merge_daemon();
    let thread = std::thread::spawn(|| daemon.run());
    compare(store, 9);
    thread.join().unwrap();
}

#[test]
fn a_flush_and_its_steps_touch_a_bounded_number_of_lines() {
    let settings = settings(8 << 20, 1);
    let memory = CountingMemory::with_resident_lines(LocalMemory::new(settings.memory).unwrap());
    let mut store = Processor::with_memory(memory, &settings).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    for number in 0..20_000_u32 {
        assert_eq!(execute(&mut store, &mut replies, &number.to_le_bytes(), put(&[1; 100])), Reply::Done);
    }
    let touched = |store: &Processor<CountingMemory<LocalMemory>>, before: u64| {
        let counts = store.memory().counts();
        counts.read_accesses + counts.write_accesses - before
    };
    let before = touched(&store, 0);
    store.flush();
    assert_eq!((touched(&store, before), store.statistics().pairs), (0, 0));
    for number in 0..1000_u32 {
        assert_eq!(execute(&mut store, &mut replies, &number.to_le_bytes(), Operation::Get), Reply::NotFound);
    }
    assert_eq!(keys(&mut store), BTreeSet::new());
    assert_eq!(execute(&mut store, &mut replies, b"key", put(b"value")), Reply::Done);
    // A count does not wait for the flush: no key has expired.
    assert!(store.reclaim_all(1) && store.is_flushing());
    let mut steps = 0;
    let mut has_more = true;
    while has_more {
        let before = touched(&store, 0);
        has_more = store.flush_step();
        assert!(touched(&store, before) <= u64::from(FLUSH_STEP_BUCKETS));
        steps += 1;
    }
    assert_eq!(steps, store.home_bucket_count().div_ceil(FLUSH_STEP_BUCKETS));
    assert_eq!(execute(&mut store, &mut replies, b"key", Operation::Get), Reply::Value(b"value"));
    assert_eq!(keys(&mut store).len(), 1);
}

#[test]
fn a_flushed_store_has_room_for_as_many_keys_as_a_new_one() {
    for value_size in [4, 40, 300, 3000] {
        let mut store = Processor::new(&Settings::for_kv_size(4 << 20, 4 + value_size, 5)).unwrap();
        let mut replies = Replies::with_budget(1 << 20);
        let value = vec![3; value_size];
        let mut fill = |store: &mut Processor| {
            (0_u32..)
                .find(|number| {
                    let reply = execute(store, &mut replies, &number.to_le_bytes(), put(&value));
                    matches!(reply, Reply::Failed(error) if error.is_out_of_memory())
                })
                .unwrap()
        };
        let count = fill(&mut store);
        for is_cleared_first in [true, false, false] {
            store.flush();
            while is_cleared_first && store.flush_step() {}
            assert_eq!(fill(&mut store), count, "values of {value_size} bytes");
            assert_eq!(store.statistics().pairs, u64::from(count));
        }
    }
}
