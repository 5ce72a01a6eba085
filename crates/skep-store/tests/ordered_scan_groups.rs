//! Short scans of a batch run as a group: their pages are those of the naive store, in batches of scans alone and mixed
//! with writes, with values that are larger than a page, and while there is little room for replies.

use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Operation, PutCondition, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart};
use skep_store::naive::{Harness, NaiveStore, seeds};
use skep_store::ordered::{OrderedSettings, OrderedStore};
use skep_store::processor::Replies;

const KEYS: u32 = 2000;

fn key(number: u32) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// Returns a scan that is short as a rule.
fn scan<'a>(random: &mut Xoshiro256PlusPlus, end: &'a [u8]) -> Scan<'a> {
    let ends = [ScanEnd::Last, ScanEnd::Below(end), ScanEnd::AtOrBelow(end), ScanEnd::Prefix(b"key01")];
    Scan {
        start: [ScanStart::AtOrAbove, ScanStart::Above, ScanStart::Floor][random.random_range(0..3)],
        end: ends[random.random_range(0..ends.len())],
        reverse: random.random_ratio(1, 10),
        limit: [1, 2, 50, 100, 256, 257, u32::MAX][random.random_range(0..7)],
        answer: ScanAnswer::ALL[random.random_range(0..3)],
        lease: ScanLease::None,
    }
}

#[test]
fn groups_of_scans_have_the_pages_of_the_naive_store() {
    for seed in seeds(&[1, 2, 3]) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
        let mut session = store.session().unwrap();
        let mut harness = Harness::new(NaiveStore::ordered(), 256 << 10, seed);
        let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
        // Some values are larger than a page, and some pages larger than the room below.
        let values = [vec![b's'; 10], vec![b'm'; 1000], vec![b'l'; 30_000], vec![b'h'; 200_000]];
        let now = Instant::now();
        let puts: Vec<Request<'_>> = keys
            .iter()
            .map(|key| {
                let value = &values[[0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2][random.random_range(0..12)]];
                let value = if random.random_ratio(1, 200) { &values[3] } else { value };
                Request { key, operation: Operation::Put { value, condition: PutCondition::Always } }
            })
            .collect();
        harness.execute(&puts, |requests, replies| session.execute(requests, replies, now));
        for round in 0..200 {
            let part_of_scans = [1, 2, 10][round % 3];
            let requests: Vec<Request<'_>> = (0..random.random_range(1..150))
                .map(|_| {
                    let key = &keys[random.random_range(0..keys.len())];
                    let end = &keys[random.random_range(0..keys.len())];
                    let operation = match random.random_range(0..3 * part_of_scans) {
                        0 if part_of_scans > 1 => Operation::Delete,
                        1 if part_of_scans > 1 => Operation::Get,
                        2 if part_of_scans > 1 => {
                            let value = &values[random.random_range(0..3)];
                            Operation::Put { value, condition: PutCondition::Always }
                        }
                        _ => Operation::Scan(scan(&mut random, end)),
                    };
                    Request { key, operation }
                })
                .collect();
            let room = [usize::MAX, 300 << 10, 1 << 20][random.random_range(0..3)];
            harness.execute(&requests, |requests, replies| {
                replies.set_room(room);
                session.execute(requests, replies, now);
            });
        }
        assert!(harness.deferred() > 0, "the budget defers scans");
    }
}

#[test]
fn no_scan_of_a_batch_overtakes_a_deferred_one() {
    let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
    let mut session = store.session().unwrap();
    for number in 0..200 {
        assert_eq!(session.put(&key(number), &[b'm'; 1000], PutCondition::Always), Reply::Done);
    }
    assert_eq!(session.put(b"large", &[b'l'; 200_000], PutCondition::Always), Reply::Done);
    let scan = |limit| Scan {
        start: ScanStart::AtOrAbove,
        end: ScanEnd::Last,
        reverse: false,
        limit,
        answer: ScanAnswer::Pairs,
        lease: ScanLease::None,
    };
    let small = key(0);
    let mut is_cut = false;
    for before in 0..8 {
        let mut requests = vec![Request { key: &small, operation: Operation::Scan(scan(60)) }; before];
        requests.push(Request { key: b"large", operation: Operation::Scan(scan(1)) });
        requests.extend([Request { key: &small, operation: Operation::Scan(scan(60)) }; 7]);
        for room in (0..24).map(|step| step * (64 << 10)) {
            let mut replies = Replies::with_budget(256 << 10);
            replies.set_room(room);
            session.execute(&requests, &mut replies, Instant::now());
            let are_deferred: Vec<bool> =
                (0..requests.len()).map(|index| replies.get(index) == Reply::Deferred).collect();
            assert!(are_deferred.is_sorted(), "{before} scans before, room for {room} B: {are_deferred:?}");
            is_cut |= are_deferred[requests.len() - 1] && !are_deferred[0];
        }
    }
    assert!(is_cut, "some batches are executed in part");
}

#[test]
fn a_scan_needs_room_for_its_page_only() {
    let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
    let mut session = store.session().unwrap();
    for number in 0..200 {
        assert_eq!(session.put(&key(number), &[b'm'; 1000], PutCondition::Always), Reply::Done);
    }
    for reverse in [false, true] {
        let scan = Scan {
            start: ScanStart::AtOrAbove,
            end: ScanEnd::Last,
            reverse,
            limit: 2,
            answer: ScanAnswer::Pairs,
            lease: ScanLease::None,
        };
        let first = key(0);
        let requests = [Request { key: &first, operation: Operation::Scan(scan) }; 3];
        let mut replies = Replies::with_budget(256 << 10);
        session.execute(&requests, &mut replies, Instant::now());
        let Reply::Value(page) = replies.get(0) else { panic!("{:?}", replies.get(0)) };
        let size = page.len();
        assert!(size < 3000, "two pairs of a thousand bytes take {size}");
        for executed in 0..=requests.len() {
            replies.set_room(executed * size + size - 1);
            session.execute(&requests, &mut replies, Instant::now());
            let done = (0..requests.len()).filter(|index| replies.get(*index) != Reply::Deferred).count();
            assert_eq!(done, executed.min(requests.len()), "reverse: {reverse}, room for {executed} pages");
        }
    }
}
