//! Requests that a batch defers, because their replies or values are too many bytes.

use super::{Tested, put};
use crate::naive::{Generator, GeneratorSettings, Harness, Mix, NaiveStore, OwnedRequest, SizeWeights, test_seeds};
use crate::processor::Replies;
use skep_core::operation::{Operation, Reply, Request, StringWrite, VALUE_SIZE_MAX};

/// Operations whose replies show if the key was there.
const MIX: Mix = Mix {
    get: 20,
    contains: 5,
    put: 20,
    put_if_absent: 5,
    put_if_present: 5,
    delete: 2,
    update: 0,
    reduce: 5,
    filter: 5,
    add_decimal: 5,
    string_read: 5,
    string_write: 0,
    call: 5,
    scan: 0,
};

#[test]
fn deferred_requests_are_executed_in_the_order_of_their_keys() {
    for seed in test_seeds() {
        let sizes = SizeWeights { empty: 1, inline: 20, slab: 10, large: 20 };
        let settings =
            GeneratorSettings { seed, key_count: 30, sizes, mix: MIX, large_size_max: 20_000, ..Default::default() };
        let mut tested = Tested::new(1000, seed);
        let mut harness = Harness::new(NaiveStore::forgetful(), 40_000, seed);
        let mut generator = Generator::new(settings);
        for room in 0..100 {
            let batch: Vec<OwnedRequest> = generator.by_ref().take(400).collect();
            let mut room = 1000 * room;
            harness.execute_owned(&batch, |requests, replies| {
                replies.set_room(room);
                room += 10_000;
                tested.cache.execute(requests, replies);
            });
            assert_eq!(tested.cache.statistics().operations, harness.operations(), "SKEP_SEED={seed}");
        }
        assert!(harness.deferred() > 10_000, "SKEP_SEED={seed}: {} deferred", harness.deferred());
    }
}

#[test]
fn a_batch_of_large_values_has_bounds() {
    let mut tested = Tested::new(1000, 1);
    let value = vec![7; VALUE_SIZE_MAX];
    let keys: Vec<[u8; 2]> = (0..600_u16).map(u16::to_le_bytes).collect();
    let puts: Vec<_> = keys.iter().map(|key| Request { key, operation: put(&value) }).collect();
    let mut replies = Replies::with_budget(1 << 20);
    tested.cache.execute(&puts, &mut replies);
    let done = replies.iter().filter(|reply| *reply == Reply::Done).count();
    assert!((1..20).contains(&done), "{done} puts of a mebibyte for a budget of one");
    assert!(replies.iter().skip(done).all(|reply| reply == Reply::Deferred));
    // The log holds one of them. The first reply is always granted, later ones only within the budget.
    let last = keys[done - 1];
    let gets = vec![Request { key: &last, operation: Operation::Get }; 600];
    tested.cache.execute(&gets, &mut replies);
    assert_eq!(replies.get(0), Reply::Value(&value));
    assert_eq!(replies.deferred_count(), 599);
    // Values that are computed have a budget too.
    let appends = vec![
        Request {
            key: &last,
            operation: Operation::StringWrite(StringWrite::Overwrite { offset: 0, bytes: b"8" })
        };
        600
    ];
    let mut unlimited = Replies::with_budget(usize::MAX);
    tested.cache.execute(&appends, &mut unlimited);
    let done = 600 - unlimited.deferred_count();
    assert!((1..20).contains(&done), "{done} values of a mebibyte were computed");
    let other = Request { key: b"other", operation: put(b"value") };
    tested.cache.execute(&[appends.clone(), vec![other]].concat(), &mut unlimited);
    assert_eq!(unlimited.get(600), Reply::Done, "requests on other keys are executed");
}

#[test]
fn a_reply_without_room_defers_its_key_alone() {
    let mut tested = Tested::new(1000, 1);
    let value = vec![7; 10_000];
    tested.put(b"large", &value);
    tested.put(b"small", b"value");
    let request = |key| Request { key, operation: Operation::Get };
    let mut replies = Replies::with_budget(1 << 20);
    replies.set_room(9_999);
    tested.cache.execute(&[request(b"large"), request(b"small"), request(b"large")], &mut replies);
    assert_eq!(
        (replies.get(0), replies.get(1), replies.get(2)),
        (Reply::Deferred, Reply::Value(b"value"), Reply::Deferred)
    );
    assert!(replies.is_deferred_for_room(0) && !replies.is_deferred_for_room(2));
    replies.set_room(20_000);
    tested.cache.execute(&[request(b"large"), request(b"large")], &mut replies);
    assert_eq!(replies.deferred_count(), 0);
}
