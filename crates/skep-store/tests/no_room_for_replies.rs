//! Replies that have no room are deferred, any number of them: requests of one key keep their order, and none is lost.

use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Operation, PutCondition, Request};
use skep_store::hash::Settings;
use skep_store::naive::{Harness, NaiveStore};
use skep_store::ordered::{OrderedSettings, OrderedStore};
use skep_store::processor::{Processor, Replies};

const SEED: u64 = 71;
const MEMORY: u64 = 32 << 20;
const KEYS: u32 = 200;
const BUDGET: usize = 1 << 20;
/// Values of every second key, outside of nodes and slabs.
const LARGE: [u8; 5000] = [1; 5000];

const fn put(value: &[u8]) -> Operation<'_> {
    Operation::Put { value, condition: PutCondition::Always }
}

/// Executes random batches with little room for replies, and submits again what is deferred. Compares all replies with those of
/// the naive store. Returns the most requests of a batch that were deferred for room.
fn most_deferred(naive: NaiveStore, mut execute: impl FnMut(&[Request<'_>], &mut Replies)) -> usize {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let keys: Vec<[u8; 4]> = (0..KEYS).map(u32::to_be_bytes).collect();
    let mut harness = Harness::new(naive, BUDGET, SEED);
    let mut most = 0;
    for round in 0..500 {
        let requests: Vec<Request<'_>> = (0..random.random_range(1..300))
            .map(|_| {
                let key = random.random_range(0..KEYS);
                let operation = match (random.random_range(0..10), key % 2) {
                    (0, _) => Operation::Delete,
                    (1, _) => put(&LARGE[..3000]),
                    (2..=3, 0) => put(&LARGE),
                    (2..=3, _) => put(&LARGE[..20]),
                    (4, _) => Operation::Contains,
                    _ => Operation::Get,
                };
                Request { key: &keys[key as usize], operation }
            })
            .collect();
        let (mut left, mut submissions) = (requests, 0);
        while !left.is_empty() {
            // Only the last of these rooms fits all replies.
            let room = if submissions == 0 { [0, 0, 20_000, usize::MAX][round % 4] } else { usize::MAX };
            left = harness.submit(&left, |requests, replies| {
                replies.set_room(room);
                execute(requests, replies);
                most = most.max((0..requests.len()).filter(|index| replies.is_deferred_for_room(*index)).count());
            });
            submissions += 1;
            assert!(submissions < 100, "round {round}: requests are deferred for ever");
        }
    }
    most
}

#[test]
fn any_number_of_requests_of_an_ordered_store_is_deferred() {
    let store = OrderedStore::new(&OrderedSettings::new(MEMORY)).unwrap();
    let mut session = store.session().unwrap();
    let now = Instant::now();
    let most = most_deferred(NaiveStore::ordered(), |requests, replies| session.execute(requests, replies, now));
    // One more than are deferred one by one: the batch ends with it.
    assert_eq!(most, 33);
}

#[test]
fn any_number_of_requests_of_a_hash_store_is_deferred() {
    let mut processor = Processor::new(&Settings::for_kv_size(MEMORY, 500, 1)).unwrap();
    let most = most_deferred(NaiveStore::new(), |requests, replies| processor.execute(requests, replies));
    assert!(most > 32, "{most} were deferred for their replies");
}
