//! A batch bounds the memory and the time of the values that its operations compute.
//!
//! The allocator of this program counts, for all threads. So there is one test, and nothing beside it.

use std::alloc::System;
use std::time::Instant;

use skep_core::operation::{Operation, Reply, Request, StringWrite};
use skep_store::hash::Settings;
use skep_store::ordered::{OrderedSettings, OrderedStore};
use skep_store::processor::{Processor, Replies};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const KEYS: u16 = 96;
/// Bytes that one batch may allocate: those of its computed values, twice because an arena doubles, and of a reply or two.
const ALLOCATED_MAX: usize = 24 << 20;

#[test]
fn a_batch_computes_a_bounded_part_of_its_values() {
    let keys: Vec<[u8; 2]> = (0..KEYS).map(u16::to_be_bytes).collect();
    // A value of a mebibyte, of which the request has eight bytes; and a sum whose integers have 4900 digits.
    let large = StringWrite::Overwrite { offset: (1 << 20) - 8, bytes: b"the last" };
    let slow = StringWrite::AddFraction(b"1e4900");
    let settings = Settings::for_kv_size(256 << 20, 1000, 7);
    let mut processor = Processor::new(&settings).unwrap();
    let store = OrderedStore::new(&OrderedSettings::new(512 << 20)).unwrap();
    let mut session = store.session().unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    for (write, done_max) in [(slow, 24), (large, 16)] {
        let requests: Vec<_> =
            keys.iter().map(|key| Request { key, operation: Operation::StringWrite(write) }).collect();
        for is_ordered in [false, true] {
            let (mut left, mut batches) = (requests.clone(), 0);
            while !left.is_empty() {
                let region = Region::new(ALLOCATOR);
                match is_ordered {
                    false => processor.execute(&left, &mut replies),
                    true => session.execute(&left, &mut replies, Instant::now()),
                }
                let allocated = region.change().bytes_allocated;
                let context = format!("batch {batches} of {write:?}, ordered {is_ordered}");
                assert!(allocated <= ALLOCATED_MAX, "{context}: {allocated} B were allocated");
                for index in 0..left.len() {
                    let reply = replies.get(index);
                    assert!(matches!(reply, Reply::Value(_) | Reply::Deferred), "{context}: {reply:?}");
                }
                let before = left.len();
                let mut index = 0;
                left.retain(|_| {
                    index += 1;
                    replies.get(index - 1) == Reply::Deferred
                });
                assert!(before - left.len() <= done_max, "{context}: {} are done", before - left.len());
                batches += 1;
                assert!(batches < 1000, "{context}: {} are left", left.len());
            }
        }
    }
}
