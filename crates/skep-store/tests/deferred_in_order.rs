//! What a batch defers comes first in the next one: a request that was submitted first again and again is executed, however
//! much work the requests after it are.

use std::time::Instant;

use skep_core::operation::{
    Condition, Expiry, ExpiryChange, Operation, PutCondition, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease,
    ScanStart, StringRead, StringWrite,
};
use skep_store::hash::Settings;
use skep_store::ordered::{OrderedSettings, OrderedStore};
use skep_store::processor::{Processor, Replies};

/// Operations that take so much work that a batch has no room for all of them.
const SLOW: Operation<'static> = Operation::StringWrite(StringWrite::AddFraction(b"1e-4900"));

fn put(value: &[u8]) -> Operation<'_> {
    Operation::Put { value, condition: PutCondition::Always }
}

fn execute(processor: &mut Processor, replies: &mut Replies, key: &[u8], operation: Operation<'_>) {
    processor.execute(&[Request { key, operation }], replies);
    assert_eq!(replies.get(0), Reply::Done);
}

#[test]
fn writes_that_compute_much_hold_up_no_other_write() {
    let expiry = ExpiryChange::set(Expiry::at(1000).unwrap());
    let set = StringWrite::Set { value: b"v", condition: Condition::ALWAYS, expiry, return_old: false };
    let append = StringWrite::Append(b"more");
    for write in [set, append] {
        for count in [20, 40, 100, 255] {
            let mut processor = Processor::new(&Settings::for_kv_size(16 << 20, 1000, 7)).unwrap();
            let mut replies = Replies::with_budget(1 << 20);
            let keys: Vec<[u8; 2]> = (0..count).map(u16::to_be_bytes).collect();
            // Inline values, which the first stages work on. The first request has a missing key.
            keys.iter().for_each(|key| execute(&mut processor, &mut replies, key, put(b"1")));
            let first = Request { key: b"first", operation: Operation::StringWrite(write) };
            let others = keys.iter().map(|key| Request { key, operation: SLOW });
            let requests: Vec<_> = std::iter::once(first).chain(others).collect();
            processor.execute(&requests, &mut replies);
            assert_ne!(replies.get(0), Reply::Deferred, "{write:?} before {count} others");
            assert_eq!(replies.deferred_count() > 0, count >= 40, "{} of {count}", replies.deferred_count());
        }
    }
}

#[test]
fn requests_on_one_key_share_the_bound_of_the_batch() {
    let mut processor = Processor::new(&Settings::for_kv_size(16 << 20, 1000, 7)).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    execute(&mut processor, &mut replies, b"key", put(b"1"));
    processor.execute(&[Request { key: b"key", operation: SLOW }; 512], &mut replies);
    let done = 512 - replies.deferred_count();
    assert!((1..=48).contains(&done), "{done} are done");
}

/// Two large values: the first one's key is in an overflow bucket, so the stages reach it later.
#[test]
fn large_values_are_read_in_the_order_of_the_requests() {
    let mut processor = Processor::new(&Settings::for_kv_size(64 << 20, 1000, 7)).unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    let home = processor.home_bucket(b"bucket");
    let mut keys: Vec<[u8; 8]> =
        (0u64..).map(u64::to_be_bytes).filter(|key| processor.home_bucket(key) == home).take(14).collect();
    let first = keys.pop().unwrap();
    let large = vec![7; 1 << 20];
    keys.iter().for_each(|key| execute(&mut processor, &mut replies, key, put(&large[..200])));
    execute(&mut processor, &mut replies, &first, put(&large));
    execute(&mut processor, &mut replies, b"other", put(&large));
    for operation in [Operation::Get, Operation::StringRead(StringRead::Digest)] {
        let requests = [&first[..], b"other"].map(|key| Request { key, operation });
        processor.execute(&requests, &mut replies);
        assert_ne!(replies.get(0), Reply::Deferred, "{operation:?}");
        assert_eq!(replies.is_deferred(1), operation == Operation::Get, "{operation:?}");
    }
}

/// A reply budget of any size lets one operation on a large value through.
#[test]
fn a_large_value_is_read_with_the_smallest_budget() {
    let mut processor = Processor::new(&Settings::for_kv_size(64 << 20, 1000, 7)).unwrap();
    execute(&mut processor, &mut Replies::with_budget(1 << 20), b"key", put(&vec![7; 1 << 20]));
    for budget in [1, 4096, 1 << 17, (1 << 17) + 1] {
        let mut replies = Replies::with_budget(budget);
        for operation in [Operation::StringRead(StringRead::Digest), Operation::Get] {
            processor.execute(&[Request { key: b"key", operation }], &mut replies);
            assert_ne!(replies.get(0), Reply::Deferred, "{operation:?} with {budget} B");
        }
    }
}

/// The ordered store: reads wait for each other, but not until the writes and scans after them have used up the work of the
/// batch.
#[test]
fn ordered_reads_are_not_overtaken_by_large_writes_and_scans() {
    let store = OrderedStore::new(&OrderedSettings::new(256 << 20)).unwrap();
    let mut session = store.session().unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    let large = vec![7; 1 << 20];
    let mut put_all = |key: &[u8], value: &[u8]| {
        session.execute(&[Request { key, operation: put(value) }], &mut replies, Instant::now());
        assert_eq!(replies.get(0), Reply::Done);
    };
    put_all(b"small", b"value");
    put_all(b"large", &large);
    let keys: Vec<[u8; 2]> = (0..40).map(u16::to_be_bytes).collect();
    keys.iter().for_each(|key| put_all(key, &large[..30_000]));
    let set_last_byte = Operation::StringWrite(StringWrite::Overwrite { offset: (1 << 20) - 1, bytes: b"x" });
    let scan = Operation::Scan(Scan {
        start: ScanStart::AtOrAbove,
        end: ScanEnd::Last,
        reverse: false,
        limit: 2,
        answer: ScanAnswer::Pairs,
        lease: ScanLease::None,
    });
    for (name, operation) in [("write", set_last_byte), ("put", put(&large)), ("scan", scan)] {
        for first in [&b"small"[..], b"large"] {
            let get = Request { key: first, operation: Operation::Get };
            let others = keys.iter().map(|key| Request { key, operation });
            let requests: Vec<_> = std::iter::once(get).chain(others).collect();
            session.execute(&requests, &mut replies, Instant::now());
            assert_ne!(replies.get(0), Reply::Deferred, "{} before 40 of {name}", first.escape_ascii());
            assert!(replies.deferred_count() > 0, "{name}");
        }
    }
}
