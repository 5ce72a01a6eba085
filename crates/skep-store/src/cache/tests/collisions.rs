//! Never the value of another key, and never an old value, with a hash that is so weak that different keys have the same bucket,
//! tag and check.
//!
//! `SKEP_LONG` multiplies the operations: 10⁶ without it.

use super::super::bucket::KeyHash;
use super::{MEMORY_SIZE, Tested, put};
use crate::naive::{SplitMix64, test_seeds};
use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, PutCondition, Reply, Request, Shape, Update};

const KEYS: u64 = 1024;
const OPERATIONS: usize = 1_000_000;
const BATCH: usize = 250;

const ADD_ONE: Operation<'static> = Operation::Update(Update {
    function: UpdateFunction::Add,
    element: Element::U64,
    shape: Shape::ScalarToVector,
    operand: &1_u64.to_le_bytes(),
    initial: None,
    return_old: true,
});

/// Returns the value of a key after a number of writes of all keys: the key and the number, and some of their words again.
fn value(key: u64, written: u64) -> Vec<u8> {
    let words = 2 + (key + written) % 9;
    (0..words).flat_map(|word| if word % 2 == 0 { key } else { written }.to_le_bytes()).collect()
}

/// Adds one to each word.
fn add_one(value: &mut [u8]) {
    for word in value.as_chunks_mut::<8>().0 {
        *word = (u64::from_le_bytes(*word).wrapping_add(1)).to_le_bytes();
    }
}

#[test]
fn no_key_has_the_value_of_another() {
    let factor = std::env::var("SKEP_LONG").map_or(1, |factor| factor.parse().expect("SKEP_LONG is a number"));
    for seed in test_seeds() {
        let operations = OPERATIONS * factor / test_seeds().len();
        let mut random = SplitMix64::new(seed);
        let mut tested = Tested::new(16, seed);
        // 32 buckets, 3 tags and 4 checks for 1024 keys.
        tested.cache.locator.hash_mask = 0xf800_0000_0003_0003;
        let key_hashes: std::collections::HashSet<KeyHash> =
            (0..KEYS).map(|key| tested.cache.locator.hash(&key.to_le_bytes())).collect();
        assert!((300..400).contains(&key_hashes.len()), "SKEP_SEED={seed}: {} hashes", key_hashes.len());
        // The last value of each key; `None` if it was deleted or never written.
        let mut last: Vec<Option<Vec<u8>>> = vec![None; KEYS as usize];
        let (mut hits, mut conditional) = (0, 0);
        for batch in 0..operations / BATCH {
            let keys: Vec<[u8; 8]> = (0..BATCH).map(|_| random.below(KEYS).to_le_bytes()).collect();
            let written: Vec<Vec<u8>> = keys
                .iter()
                .enumerate()
                .map(|(index, key)| value(u64::from_le_bytes(*key), (batch * BATCH + index) as u64))
                .collect();
            let requests: Vec<Request<'_>> = keys
                .iter()
                .zip(&written)
                .map(|(key, value)| {
                    let operation = match random.below(8) {
                        0..=2 => put(value),
                        3 => Operation::Put { value, condition: PutCondition::IfAbsent },
                        4 => ADD_ONE,
                        5 if random.chance(1, 4) => Operation::Delete,
                        _ => Operation::Get,
                    };
                    Request { key, operation }
                })
                .collect();
            tested.cache.execute(&requests, &mut tested.replies);
            for (request, reply) in requests.iter().zip(tested.replies.iter()) {
                let key = u64::from_le_bytes(request.key.try_into().unwrap());
                let last = &mut last[key as usize];
                let context = format!("SKEP_SEED={seed}: {request:?}");
                match (request.operation, reply) {
                    (Operation::Put { value, .. }, Reply::Done) => *last = Some(value.to_vec()),
                    (Operation::Put { .. }, Reply::Exists) => {
                        assert!(last.is_some(), "{context}");
                        conditional += 1;
                    }
                    (Operation::Delete, Reply::Done) => assert!(last.take().is_some(), "{context}"),
                    (Operation::Get, Reply::Value(value)) => {
                        assert_eq!(last.as_deref(), Some(value), "{context}");
                        hits += 1;
                    }
                    (Operation::Update(_), Reply::Value(value)) => {
                        assert_eq!(last.as_deref(), Some(value), "{context}");
                        add_one(last.as_mut().unwrap());
                    }
                    // It was evicted, or is missing: none of its values may be returned again.
                    (_, Reply::NotFound) => *last = None,
                    _ => panic!("{context}: {reply:?}"),
                }
            }
        }
        let statistics = tested.cache.statistics();
        assert!(statistics.items <= 32 * 3 && statistics.memory_bytes == MEMORY_SIZE);
        let expected = operations as u64 / 200;
        assert!(hits > expected && conditional > expected, "SKEP_SEED={seed}: {hits} hits, {conditional} not added");
    }
}
