//! A full store may only refuse pairs that need more memory. Overwrites that keep the size and deletes never fail.

use std::time::Instant;

use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_store::hash::Settings;
use skep_store::naive::NaiveStore;
use skep_store::ordered::{OrderedSettings, OrderedStore};
use skep_store::processor::{Processor, Replies};

const MEMORY: u64 = 8 << 20;

/// Fills a store with values of one size until one is refused, overwrites all of them, and deletes all. Returns how many
/// overwrites and deletes were refused.
fn refused(
    value_size: usize,
    mut naive: NaiveStore,
    mut execute: impl FnMut(&[Request<'_>], &mut Replies),
) -> [usize; 2] {
    let mut replies = Replies::with_budget(1 << 20);
    let mut refused = [0, 0];
    let mut run = |key: u32, operation: Operation<'_>| {
        let key = key.to_be_bytes();
        let request = Request { key: &key, operation };
        // A request that is deferred is to be submitted again; it is not deferred for ever.
        (0..1_000).find(|_| {
            execute(&[request], &mut replies);
            !replies.is_deferred(0)
        });
        let reply = replies.get(0);
        let is_refused = matches!(reply, Reply::Failed(error) if error.is_out_of_memory());
        let is_accepted = naive.check(&request, reply).is_ok();
        assert!(is_accepted || is_refused, "{request:?}");
        (is_refused, is_accepted)
    };
    let put = |value| Operation::Put { value, condition: PutCondition::Always };
    let (first, second) = (vec![1; value_size], vec![2; value_size]);
    let count = (0_u32..).find(|key| run(*key, put(&first)).0).expect("memory is full at last");
    for key in 0..count {
        refused[0] += usize::from(!run(key, put(&second)).1);
    }
    for key in 0..count {
        refused[1] += usize::from(!run(key, Operation::Delete).1);
    }
    println!("values of {value_size} B: {count} pairs, refused {} overwrites, {} deletes", refused[0], refused[1]);
    refused
}

const VALUE_SIZES: [usize; 8] = [0, 16, 100, 400, 600, 3_000, 40_000, 1_000_000];

#[test]
fn a_full_hash_store_refuses_no_overwrite_of_the_same_size_and_no_delete() {
    let of_size = |value_size: usize| {
        let mut processor = Processor::new(&Settings::for_kv_size(MEMORY, 8 + value_size.min(500), 1)).unwrap();
        refused(value_size, NaiveStore::new(), |requests, replies| processor.execute(requests, replies))
    };
    assert_eq!(VALUE_SIZES.map(of_size), [[0, 0]; 8]);
}

#[test]
fn a_full_ordered_store_refuses_no_overwrite_of_the_same_size_and_no_delete() {
    let of_size = |value_size: usize| {
        let store = OrderedStore::new(&OrderedSettings::new(MEMORY)).unwrap();
        let mut session = store.session().unwrap();
        let now = Instant::now();
        refused(value_size, NaiveStore::ordered(), |requests, replies| session.execute(requests, replies, now))
    };
    assert_eq!(VALUE_SIZES.map(of_size), [[0, 0]; 8]);
}
