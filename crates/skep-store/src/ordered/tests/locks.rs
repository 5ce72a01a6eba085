//! Who takes the locks of the store: of space, garbage and leases.

use std::time::Instant;

use crate::operation::{Operation, PutCondition, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart};
use crate::ordered::sync::{Mutex, lock_count};
use crate::ordered::{OrderedSettings, OrderedStore, Range};
use crate::processor::Replies;

const SCAN: Scan<'_> = Scan {
    start: ScanStart::AtOrAbove,
    end: ScanEnd::Last,
    reverse: false,
    limit: 100,
    answer: ScanAnswer::Pairs,
    lease: ScanLease::None,
};

/// Gets and scans without a lease take no lock at all, also while leases are open and garbage waits.
#[test]
fn reads_take_no_lock() {
    let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
    let mut session = store.session().unwrap();
    let keys: Vec<[u8; 4]> = (0..5_000_u32).map(u32::to_be_bytes).collect();
    let mut write_all = |value: u8| {
        for key in &keys {
            assert_eq!(session.put(key, &[value; 600], PutCondition::Always), Reply::Done);
        }
    };
    write_all(0);
    let now = Instant::now();
    let mut replies = Replies::with_budget(1 << 20);
    let mut reader = store.session().unwrap();
    let open = Request { key: b"", operation: Operation::Scan(Scan { lease: ScanLease::Open, ..SCAN }) };
    reader.execute(&[open], &mut replies, now);
    write_all(1);
    assert!(store.figures().leases.open == 1 && store.figures().garbage_bytes > 0);
    let before = lock_count();
    let names: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    assert!(reader.get(names[7], &mut Vec::new()));
    reader.get_batch(&names, |value| assert!(value.is_some()));
    reader.scan(Range::ALL, |_, _| true);
    reader.scan_reverse(Range::ALL, |_, _| true);
    reader.scan_batch(&[Range::ALL; 3], |_, _, _| true);
    let gets = names[..1_000].iter().map(|key| Request { key, operation: Operation::Get });
    let scans = names[..10].iter().map(|key| Request { key, operation: Operation::Scan(SCAN) });
    let batch: Vec<Request<'_>> = gets.chain(scans).collect();
    reader.execute(&batch, &mut replies, now);
    assert_eq!(lock_count() - before, 0, "locks taken by readers");
    // The count is one that moves.
    write_all(2);
    assert!(lock_count() > before);
}

#[test]
#[should_panic(expected = "a thread takes a second lock of the store")]
fn control_a_second_lock_is_caught() {
    let (first, second) = (Mutex::new(1), Mutex::new(2));
    let _guard = first.lock();
    let _ = second.lock();
}
