//! To record and seal effects allocates nothing once a session's buffers have grown: a store with a log allocates as often
//! as one without.
//!
//! The allocator of this program counts, for all threads. So there is one test, and nothing beside it.

use std::alloc::System;
use std::hint::black_box;
use std::time::Instant;

use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_store::ordered::{OrderedSettings, OrderedStore};
use skep_store::processor::Replies;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const BATCHES: u32 = 200;
const BATCH: u32 = 64;

/// Returns how often memory was allocated or grown by the second half of some batches, and the number of their effects.
fn allocations(records: bool) -> (usize, usize) {
    let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
    let mut session = store.session().unwrap();
    if records {
        session.record_effects();
    }
    let mut replies = Replies::with_budget(1 << 20);
    let (mut region, mut count) = (Region::new(ALLOCATOR), 0);
    for batch in 0..BATCHES {
        let keys: Vec<[u8; 4]> = (0..BATCH).map(|index| (batch * 7919 + index * 31).to_be_bytes()).collect();
        let value_of = |index: usize| if index.is_multiple_of(16) { &[7; 3000][..] } else { &[8; 20] };
        let operation = |index: usize| match index % 5 {
            0 => Operation::Delete,
            1 => Operation::AddDecimal { delta: 3 },
            _ => Operation::Put { value: value_of(index), condition: PutCondition::Always },
        };
        let requests: Vec<Request<'_>> =
            keys.iter().enumerate().map(|(index, key)| Request { key, operation: operation(index) }).collect();
        if batch == BATCHES / 2 {
            (region, count) = (Region::new(ALLOCATOR), 0);
        }
        session.execute(&requests, &mut replies, Instant::now());
        assert!(replies.iter().all(|reply| reply != Reply::Deferred));
        session.seal(|effects, floor| count += black_box((effects.len(), floor)).0);
    }
    let change = region.change();
    (change.allocations + change.reallocations, count)
}

#[test]
fn effects_allocate_nothing() {
    let (without, with) = (allocations(false), allocations(true));
    println!("{without:?} without, {with:?} with effects");
    assert_eq!(without.0, with.0);
    assert!(with.1 > 3000 && without.1 == 0);
}
