//! Operations on all keys of the ordered store: removing all, a random key, removing all that have expired.

use std::collections::BTreeSet;
use std::thread;
use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{
    Condition, Expiry, ExpiryChange, Operation, Page, PutCondition, Reply, Request, Scan, ScanAnswer, ScanEnd,
    ScanLease, ScanStart, StringWrite,
};
use skep_store::ordered::{FLUSH_KEYS_MAX, FlushStep, OrderedSettings, OrderedStore, Range, Session};
use skep_store::processor::Replies;

fn store(memory: u64) -> OrderedStore {
    OrderedStore::new(&OrderedSettings::new(memory)).unwrap()
}

/// Inserts keys with values of several sizes. Returns their number when memory is full, or at this number.
fn fill(session: &mut Session<'_>, count_max: u32) -> u32 {
    let value = vec![7; 3000];
    let mut is_put = |number: u32| {
        let size = [0, 10, 100, 600, 3000][number as usize % 5];
        session.put(&number.to_be_bytes(), &value[..size], PutCondition::Always) == Reply::Done
    };
    (0..count_max).find(|number| !is_put(*number)).unwrap_or(count_max)
}

/// Removes all keys. Returns the number of steps.
fn flush(session: &mut Session<'_>) -> usize {
    let mut position = Vec::new();
    for steps in 1.. {
        let before = session.count_pairs();
        match session.flush_step(&mut position) {
            FlushStep::Done => return steps,
            FlushStep::More => assert!(session.count_pairs() + FLUSH_KEYS_MAX as u64 >= before),
            FlushStep::Waits => {
                session.collect();
            }
        }
    }
    unreachable!("the loop has no end")
}

trait Pairs {
    fn count_pairs(&mut self) -> u64;
}

impl Pairs for Session<'_> {
    /// Counts the pairs by a scan.
    fn count_pairs(&mut self) -> u64 {
        let mut count = 0;
        self.scan(Range::ALL, |_, _| {
            count += 1;
            true
        });
        count
    }
}

#[test]
fn a_flush_removes_all_keys_in_bounded_steps_and_frees_their_memory() {
    let store = store(8 << 20);
    let mut session = store.session().unwrap();
    assert_eq!(flush(&mut session), 1);
    for count in [1, 63, 64, 65, 1000] {
        assert_eq!(fill(&mut session, count), count);
        let steps = flush(&mut session);
        assert!(steps >= (count as usize).div_ceil(FLUSH_KEYS_MAX), "{steps} steps for {count} keys");
        assert_eq!((store.pair_count(), session.count_pairs()), (0, 0));
    }
    session.collect();
    let used = store.statistics().space.used_bytes;
    let counts: Vec<u32> = (0..3)
        .map(|_| {
            let count = fill(&mut session, u32::MAX);
            flush(&mut session);
            session.collect();
            assert_eq!((store.pair_count(), store.statistics().space.used_bytes), (0, used));
            count
        })
        .collect();
    assert!(counts[0] > 5000 && counts.iter().all(|count| count.abs_diff(counts[0]) < counts[0] / 50), "{counts:?}");
}

#[test]
fn pages_of_a_lease_show_keys_that_were_removed_since() {
    let store = store(64 << 20);
    let (mut session, mut other) = (store.session().unwrap(), store.session().unwrap());
    fill(&mut session, 1000);
    let mut replies = Replies::with_budget(1 << 20);
    let whole = Scan {
        start: ScanStart::Above,
        end: ScanEnd::Last,
        reverse: false,
        limit: 100,
        answer: ScanAnswer::Keys,
        lease: ScanLease::Open,
    };
    let (mut found, mut after, mut lease) = (0, Vec::new(), ScanLease::Open);
    loop {
        let scan = Scan { lease, ..whole };
        session.execute(&[Request { key: &after, operation: Operation::Scan(scan) }], &mut replies, Instant::now());
        let Reply::Value(bytes) = replies.get(0) else { panic!("{:?}", replies.get(0)) };
        let page = Page::decode(bytes).unwrap();
        found += page.count();
        after = page.last_key().to_vec();
        let Some(number) = page.lease() else { break };
        lease = ScanLease::Continue(number);
        if found == 100 {
            flush(&mut other);
            assert_eq!(store.pair_count(), 0);
        }
    }
    assert_eq!(found, 1000);
}

/// Keys above the position are removed, those that are set below it stay; a flush ends although others insert.
#[test]
fn a_flush_beside_writers_removes_every_key_that_existed_before() {
    let store = store(16 << 20);
    let mut session = store.session().unwrap();
    for round in 0..5 {
        fill(&mut session, 3000);
        thread::scope(|scope| {
            for writer in 0..2 {
                let store = &store;
                scope.spawn(move || {
                    let mut session = store.session().unwrap();
                    for number in 0..5000_u32 {
                        let key = [&[0xff, writer][..], &number.to_be_bytes()].concat();
                        assert_eq!(session.put(&key, b"new", PutCondition::Always), Reply::Done);
                        let key = (number % 3000).to_be_bytes();
                        session.put(&key, b"changed", PutCondition::IfPresent);
                    }
                });
            }
            flush(&mut session);
        });
        let mut old = 0;
        session.scan(Range::ALL, |key, _| {
            old += usize::from(key[0] != 0xff);
            true
        });
        assert_eq!((old, store.pair_count()), (0, session.count_pairs()), "round {round}");
    }
}

#[test]
fn random_keys_exist_and_have_not_expired() {
    let store = store(8 << 20);
    let mut session = store.session().unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut key = Vec::new();
    assert!(!session.random_key(random.random(), &mut key) && key.is_empty());
    store.set_now(1000);
    let mut replies = Replies::with_budget(1 << 20);
    for number in 0..3000_u32 {
        let (value, condition) = (&[1; 50][..], Condition::ALWAYS);
        let time = if number % 3 == 0 { 2000 } else { 3000 };
        let expiry = ExpiryChange::set(Expiry::at(time).unwrap());
        let set = StringWrite::Set { value, condition, expiry, return_old: false };
        let request = Request { key: &number.to_be_bytes(), operation: Operation::StringWrite(set) };
        session.execute(&[request], &mut replies, Instant::now());
    }
    let mut found = |session: &mut Session<'_>| -> BTreeSet<u32> {
        (0..3000)
            .filter_map(|_| {
                key.clear();
                let is_found = session.random_key(random.random(), &mut key);
                is_found.then(|| u32::from_be_bytes(key[..].try_into().unwrap()))
            })
            .collect()
    };
    let before = found(&mut session);
    assert!(before.len() > 1000 && before.iter().any(|number| number % 3 == 0));
    store.set_now(2000);
    let after = found(&mut session);
    assert!(after.len() > 800 && after.iter().all(|number| number % 3 != 0));
    assert_eq!((store.pair_count(), store.expiring_count()), (3000, 3000));
    assert!(session.reclaim_all(1000));
    assert_eq!((store.pair_count(), store.expiring_count()), (2000, 2000));
    store.set_now(3000);
    assert!(found(&mut session).is_empty());
    // In the pause after the last pass, with fewer steps than are needed.
    assert!(!session.reclaim_all(1) && store.pair_count() > 0);
    assert!(session.reclaim_all(1000));
    assert_eq!(store.pair_count(), 0);
}
