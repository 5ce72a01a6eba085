//! Reads of the ordered store allocate nothing once a session's buffers have grown: batches of all reading operations, and
//! scans in both directions, in pages and with leases, over values inside and outside of nodes.
//!
//! The allocator of this program counts, for all threads. So there is one test, and nothing beside it.

use std::alloc::System;
use std::hint::black_box;
use std::time::Instant;

use skep_core::function::{Element, Fold, Predicate};
use skep_core::operation::{
    Filter, Operation, Page, PutCondition, Reduce, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
};
use skep_store::ordered::{End, OrderedSettings, OrderedStore, Range, Session, Start};
use skep_store::processor::Replies;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PAIRS: u32 = 20_000;

/// Returns how often memory was allocated or grown meanwhile.
fn allocations(work: impl FnOnce()) -> usize {
    let region = Region::new(ALLOCATOR);
    work();
    let change = region.change();
    change.allocations + change.reallocations
}

/// Every reading operation on keys all over the tree, some of which do not exist.
fn reads(keys: &[[u8; 4]]) -> Vec<Request<'_>> {
    let element = Element::U8;
    let reduce = Operation::Reduce(Reduce { fold: Fold::Sum, element, initial: &[1], constants: &[] });
    let filter = Operation::Filter(Filter { predicate: Predicate::NonZero, element, operand: &[] });
    let operations = [Operation::Get, Operation::Contains, reduce, filter, Operation::Get];
    keys.iter().zip(operations.into_iter().cycle()).map(|(key, operation)| Request { key, operation }).collect()
}

/// Reads some pages of a scan from the beginning or the end.
fn read_pages(session: &mut Session<'_>, reverse: bool, answer: ScanAnswer, replies: &mut Replies) -> u32 {
    let mut scan =
        Scan { start: ScanStart::AtOrAbove, end: ScanEnd::Last, reverse, limit: 3_000, answer, lease: ScanLease::Open };
    let (mut last, mut count) = ([0; 4], 0);
    for _ in 0..5 {
        let end = if reverse && count > 0 { ScanEnd::Below(&last) } else { ScanEnd::Last };
        let key = if reverse || count == 0 { &[][..] } else { &last };
        session.execute(&[Request { key, operation: Operation::Scan(Scan { end, ..scan }) }], replies, Instant::now());
        let Reply::Value(page) = replies.get(0) else { panic!("{:?}", replies.get(0)) };
        let page = Page::decode(page).unwrap();
        last.copy_from_slice(page.last_key());
        count += page.count();
        scan.start = if reverse { ScanStart::AtOrAbove } else { ScanStart::Above };
        scan.lease = ScanLease::Continue(page.lease().unwrap());
    }
    count
}

#[test]
fn reads_and_scans_allocate_nothing() {
    assert_eq!(allocations(|| _ = black_box(vec![1u8; 10])), 1, "the counter counts");

    let store = OrderedStore::new(&OrderedSettings::new(256 << 20)).unwrap();
    let mut session = store.session().unwrap();
    for number in 0..PAIRS {
        let size = if number % 50 == 0 { 1000 + number as usize % 9000 } else { number as usize % 40 };
        assert_eq!(session.put(&number.to_be_bytes(), &vec![7; size], PutCondition::Always), Reply::Done);
    }
    let keys: Vec<[u8; 4]> = (0..PAIRS + 1000).step_by(7).map(u32::to_be_bytes).collect();
    let slices: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
    let requests = reads(&keys);
    let mut replies = Replies::with_budget(16 << 20);
    let mut work = |replies: &mut Replies| {
        let mut shown = 0;
        session.get_batch(&slices, |value| shown += value.map_or(0, <[u8]>::len));
        session.scan(Range::ALL, |_, value| {
            shown += value.len();
            true
        });
        session.scan_reverse(Range::new(Start::Floor(&[0, 0, 3]), End::Last), |_, value| {
            shown += value.len();
            true
        });
        session.execute(&requests, replies, Instant::now());
        assert!(replies.iter().all(|reply| !matches!(reply, Reply::Deferred | Reply::Failed(_))));
        for answer in ScanAnswer::ALL {
            for reverse in [false, true] {
                let count = read_pages(&mut session, reverse, answer, replies);
                assert!(count > 300, "{count} pairs");
            }
        }
        black_box(shown);
    };
    work(&mut replies);
    for round in 0..3 {
        assert_eq!(allocations(|| work(&mut replies)), 0, "round {round}");
    }
}
