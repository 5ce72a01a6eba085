//! The ordered store when memory is short: which writes wait, for what, and for how long; which leases end for it; and that
//! nothing is freed in one go.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use skep_core::operation::{
    Operation, OperationError, Page, PutCondition, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
};
use skep_store::ordered::{LogBlock, OrderedSettings, OrderedStore, OwnerRun, Range, Session, Trace};
use skep_store::processor::Replies;

const MEMORY: u64 = 16 << 20;
const PAIRS: u32 = 20_000;
const FULL: Reply<'static> = Reply::Failed(OperationError::NodesFull);

/// A page of a few keys.
const SCAN: Scan<'_> = Scan {
    start: ScanStart::AtOrAbove,
    end: ScanEnd::Last,
    reverse: false,
    limit: 10,
    answer: ScanAnswer::Keys,
    lease: ScanLease::None,
};

/// Counts reads.
#[derive(Debug, Default)]
struct Touches(AtomicU64);

impl Trace for Touches {
    fn touch(&self, _: usize, _: usize) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A store in which some pairs take a small part of the memory.
fn store_with_pairs() -> OrderedStore<Touches> {
    let store = OrderedStore::with_trace(&OrderedSettings::new(MEMORY), Touches::default()).unwrap();
    let mut session = store.session().unwrap();
    (0..PAIRS).for_each(|key| assert_eq!(overwrite(&mut session, key), Reply::Done));
    drop(session);
    store
}

fn overwrite<T: Trace>(session: &mut Session<'_, T>, number: u32) -> Reply<'static> {
    session.put(&key(number), &[7; 16], PutCondition::Always)
}

/// Keys that follow each other lie in different leaves.
fn key(number: u32) -> [u8; 4] {
    (number.wrapping_mul(7919) % PAIRS).to_be_bytes()
}

fn put(key: &[u8]) -> Request<'_> {
    Request { key, operation: Operation::Put { value: &[8; 16], condition: PutCondition::Always } }
}

fn get(key: &[u8]) -> Request<'_> {
    Request { key, operation: Operation::Get }
}

fn scan(scan: Scan<'static>) -> Request<'static> {
    Request { key: b"", operation: Operation::Scan(scan) }
}

fn replies() -> Replies {
    Replies::with_budget(1 << 20)
}

/// Overwrites pairs, while an operation is in flight, until a write finds no memory and is deferred. Returns the number of
/// that write.
fn write_until_deferred<T: Trace>(writer: &mut Session<'_, T>, now: Instant) -> u32 {
    let mut replies = replies();
    for number in 0.. {
        writer.execute(&[put(&key(number))], &mut replies, now);
        match replies.get(0) {
            Reply::Done => {}
            Reply::Deferred => return number,
            other => panic!("write {number} is answered {other:?} while garbage waits"),
        }
    }
    unreachable!("memory is bounded");
}

/// Runs `during` while a scan is in flight, which keeps all garbage.
fn during_a_scan<T: Trace>(store: &OrderedStore<T>, mut during: impl FnMut()) {
    let is_first = Cell::new(true);
    store.session().unwrap().scan(Range::ALL, |_, _| {
        if is_first.take() {
            during();
        }
        true
    });
}

#[test]
fn a_write_waits_while_garbage_waits_and_is_carried_out_when_it_is_freed() {
    let store = store_with_pairs();
    let mut writer = store.session().unwrap();
    let now = Instant::now();
    let mut waiting = 0;
    during_a_scan(&store, || {
        waiting = write_until_deferred(&mut writer, now);
        let almost = now + Duration::from_millis(999);
        for time in [now, almost, almost] {
            let mut replies = replies();
            writer.execute(&[put(&key(waiting))], &mut replies, time);
            assert_eq!(replies.get(0), Reply::Deferred, "nothing has changed");
            assert!(!replies.is_deferred_for_room(0));
        }
    });
    let mut replies = replies();
    writer.execute(&[put(&key(waiting))], &mut replies, now + Duration::from_secs(3600));
    assert_eq!(replies.get(0), Reply::Done, "the scan has ended");
    writer.check();
}

#[test]
fn a_write_is_refused_when_no_garbage_was_freed_for_a_second() {
    let store = store_with_pairs();
    let mut writer = store.session().unwrap();
    let now = Instant::now();
    during_a_scan(&store, || {
        let waiting = write_until_deferred(&mut writer, now);
        let later = now + Duration::from_secs(1);
        let mut replies = replies();
        for number in 0..3 {
            writer.execute(&[put(&key(waiting + number))], &mut replies, later);
            // It is known by now that waiting does not help, whichever key is written.
            assert_ne!(replies.get(0), Reply::Deferred);
        }
        let growing = Operation::Put { value: &[8; 17], condition: PutCondition::Always };
        writer.execute(&[Request { key: &key(waiting), operation: growing }], &mut replies, later);
        assert_eq!(replies.get(0), FULL);
    });
}

#[test]
fn a_write_that_must_not_fail_waits_though_others_were_refused_before_it() {
    let store = store_with_pairs();
    let mut writer = store.session().unwrap();
    let now = Instant::now();
    during_a_scan(&store, || {
        let first = key(write_until_deferred(&mut writer, now));
        let [later, almost, latest] = [1000, 1999, 2000].map(|time| now + Duration::from_millis(time));
        let growing = Operation::Put { value: &[8; 17], condition: PutCondition::Always };
        let mut replies = replies();
        let mut execute = |requests: &[Request<'_>], time: Instant| {
            writer.execute(requests, &mut replies, time);
            [Reply::Deferred, FULL].map(|kind| replies.iter().filter(|reply| *reply == kind).count())
        };
        let mut others = (0..).map(key).filter(|key| *key != first);
        let second = others.find(|key| execute(&[put(key)], now) == [1, 0]).unwrap();
        assert_eq!(execute(&[Request { key: &first, operation: growing }], later), [0, 1]);
        assert_eq!(execute(&[get(&first)], later), [0, 0], "no write waits any more");
        let both = [put(&first), put(&second)];
        let ends = [later, almost, latest].map(|time| execute(&both, time));
        assert_eq!(ends, [[2, 0], [2, 0], [0, 2]], "both wait a second, one beside the other");
    });
}

#[test]
fn a_single_write_that_must_not_fail_waits_though_others_were_refused_before_it() {
    let store = store_with_pairs();
    let mut writer = store.session().unwrap();
    let (is_full, was_full) = mpsc::channel::<()>();
    let scan = |until: mpsc::Receiver<()>, is_there: mpsc::Sender<()>| {
        during_a_scan(&store, || {
            is_there.send(()).unwrap();
            until.recv().unwrap();
            thread::sleep(Duration::from_millis(200));
        });
    };
    thread::scope(|scope| {
        let (is_there, was_there) = mpsc::channel();
        scope.spawn(|| scan(was_full, is_there));
        was_there.recv().unwrap();
        let waiting = (0..).find(|number| overwrite(&mut writer, *number) == FULL).unwrap();
        assert_eq!(overwrite(&mut writer, waiting), FULL, "no garbage was freed");
        is_full.send(()).unwrap();
        assert_eq!(overwrite(&mut writer, waiting), Reply::Done, "the scan ends soon");
    });
}

/// No other session collects what the scan has kept.
#[test]
fn a_single_delete_that_waits_collects_garbage() {
    let store = store_with_pairs();
    let mut writer = store.session().unwrap();
    let touched = || store.trace().0.load(Ordering::Relaxed);
    let (is_full, was_full) = mpsc::channel::<u64>();
    let (is_there, was_there) = mpsc::channel();
    let scan = |was_full: mpsc::Receiver<u64>, is_there: mpsc::Sender<()>| {
        during_a_scan(&store, || {
            is_there.send(()).unwrap();
            let before = was_full.recv().unwrap();
            // It ends after the delete has looked for its leaf.
            while touched() == before {
                thread::yield_now();
            }
        });
    };
    thread::scope(|scope| {
        scope.spawn(|| scan(was_full, is_there));
        was_there.recv().unwrap();
        let now = Instant::now();
        write_until_deferred(&mut writer, now);
        let mut replies = replies();
        let delete = |number| (key(number), Operation::Delete);
        let waiting = (0..PAIRS).map(delete).find(|(key, operation)| {
            writer.execute(&[Request { key, operation: *operation }], &mut replies, now);
            replies.get(0) == Reply::Deferred
        });
        let (waiting, _) = waiting.expect("deletes use up what is kept back");
        let garbage = store.statistics().garbage_bytes;
        is_full.send(touched()).unwrap();
        assert_eq!(writer.delete(&waiting), Reply::Done);
        let left = store.statistics().garbage_bytes;
        assert!(left < garbage, "{left} of {garbage} bytes of garbage are left");
    });
    writer.check();
}

#[test]
fn requests_that_need_no_memory_overtake_writes_that_wait() {
    let store = store_with_pairs();
    let mut writer = store.session().unwrap();
    let now = Instant::now();
    during_a_scan(&store, || {
        let waiting = key(write_until_deferred(&mut writer, now));
        let other = (0..).map(key).find(|key| *key != waiting).unwrap();
        let beside = Request { key: b"", operation: Operation::Scan(Scan { end: ScanEnd::Below(&waiting), ..SCAN }) };
        let requests = [put(&waiting), get(&waiting), put(&waiting), get(&other), beside, get(&other)];
        let mut replies = replies();
        writer.execute(&requests, &mut replies, now);
        let kinds: Vec<bool> = replies.iter().map(|reply| reply == Reply::Deferred).collect();
        assert_eq!(kinds, [true, true, true, false, false, false], "all of its key wait, and no other");
        // A scan of its range waits too, and ends the batch: writes after it must not show in it.
        writer.execute(&[put(&waiting), scan(SCAN), get(&other)], &mut replies, now);
        assert!(replies.iter().all(|reply| reply == Reply::Deferred));
    });
}

#[test]
fn the_work_of_a_batch_of_writes_that_wait_is_bounded() {
    let store = store_with_pairs();
    let mut writer = store.session().unwrap();
    let now = Instant::now();
    during_a_scan(&store, || {
        write_until_deferred(&mut writer, now);
        let keys: Vec<[u8; 4]> = (0..PAIRS).map(u32::to_be_bytes).collect();
        let mut touches = [0; 2];
        for (touches, count) in touches.iter_mut().zip([2_000, 20_000]) {
            let requests: Vec<Request<'_>> = keys[..count].iter().map(|key| put(key)).collect();
            let mut replies = replies();
            // Appends to logs are carried out; after a few rounds only merges are left.
            for _ in 0..2_000 {
                writer.execute(&requests, &mut replies, now);
            }
            let before = store.trace().0.load(Ordering::Relaxed);
            writer.execute(&requests, &mut replies, now);
            *touches = store.trace().0.load(Ordering::Relaxed) - before;
            assert_eq!(replies.deferred_count(), count);
        }
        assert_eq!(touches[0], touches[1], "the longer batch costs no more");
    });
}

#[test]
fn a_single_call_that_waits_does_not_repeat_the_merge() {
    let store = store_with_pairs();
    let mut writer = store.session().unwrap();
    during_a_scan(&store, || {
        let touched = || store.trace().0.load(Ordering::Relaxed);
        let (mut number, mut before) = (0, touched());
        while overwrite(&mut writer, number) == Reply::Done {
            (number, before) = (number + 1, touched());
        }
        assert!(touched() - before < 1_000, "{} reads for a refused put", touched() - before);
    });
    assert_eq!(overwrite(&mut writer, 0), Reply::Done);
}

#[test]
fn a_refused_write_ends_no_lease_that_keeps_nothing() {
    let store = OrderedStore::new(&OrderedSettings::new(MEMORY)).unwrap();
    let mut session = store.session().unwrap();
    let mut count = 0_u32;
    let mut fill = |session: &mut Session<'_>| {
        while session.put(&count.to_be_bytes(), &[1; 100], PutCondition::Always) == Reply::Done {
            count += 1;
        }
        count
    };
    fill(&mut session);
    session.collect();
    let now = Instant::now();
    let mut replies = replies();
    for _ in 0..10 {
        session.execute(&[scan(Scan { lease: ScanLease::Open, ..SCAN })], &mut replies, now);
    }
    assert_eq!(store.statistics().garbage_bytes, 0);
    for number in 0..100 {
        let key = (u32::MAX - number).to_be_bytes();
        session.execute(&[put(&key)], &mut replies, now);
        if replies.get(0) == FULL {
            break;
        }
    }
    assert_eq!(replies.get(0), FULL);
    let leases = store.statistics().leases;
    assert_eq!((leases.open, leases.expired, leases.ended_for_memory), (10, 0, 0));
}

#[test]
fn leases_that_keep_needed_memory_end_oldest_first() {
    let store = store_with_pairs();
    let mut session = store.session().unwrap();
    let now = Instant::now();
    let open = |session: &mut Session<'_, Touches>| {
        let mut replies = replies();
        session.execute(&[scan(Scan { lease: ScanLease::Open, ..SCAN })], &mut replies, now);
        page_of(&replies).lease().unwrap()
    };
    let old = open(&mut session);
    // A lease ends when garbage goes beyond its budget; until then a second one is opened.
    let mut number = 0;
    while store.statistics().garbage_bytes < MEMORY / 16 {
        assert_eq!(overwrite(&mut session, number), Reply::Done);
        number += 1;
    }
    let young = open(&mut session);
    while store.statistics().leases.open == 2 {
        assert_eq!(overwrite(&mut session, number), Reply::Done);
        number += 1;
    }
    assert_eq!(store.statistics().leases.ended_for_memory, 1);
    let mut replies = replies();
    let next = |lease| scan(Scan { lease: ScanLease::Continue(lease), ..SCAN });
    session.execute(&[next(old), next(young)], &mut replies, now);
    assert_eq!(replies.get(0), Reply::Failed(OperationError::LeaseExpired));
    assert!(matches!(replies.get(1), Reply::Value(_)));
}

fn page_of(replies: &Replies) -> Page<'_> {
    let Reply::Value(page) = replies.get(0) else { panic!("{:?}", replies.get(0)) };
    Page::decode(page).unwrap()
}

/// What a lease has kept is freed in parts of at most 64 pieces, of at most 8 KiB each.
#[test]
fn what_a_lease_has_kept_is_freed_in_parts() {
    const PART_BYTES_MAX: u64 = 64 * 8192;
    // Without log every write replaces a leaf.
    let settings = OrderedSettings { log_block: LogBlock::new(64, 0).unwrap(), ..OrderedSettings::new(256 << 20) };
    let store = OrderedStore::new(&settings).unwrap();
    let mut session = store.session().unwrap();
    (0..PAIRS).for_each(|number| assert_eq!(overwrite(&mut session, number), Reply::Done));
    let now = Instant::now();
    let mut replies = replies();
    session.execute(&[scan(Scan { lease: ScanLease::Open, ..SCAN })], &mut replies, now);
    let lease = page_of(&replies).lease().unwrap();
    let mut number = 0;
    while store.statistics().garbage_bytes < 16 << 20 {
        assert_eq!(overwrite(&mut session, number), Reply::Done);
        number += 1;
    }
    let end = Scan { end: ScanEnd::Below(b""), lease: ScanLease::Continue(lease), ..SCAN };
    session.execute(&[scan(end)], &mut replies, now);
    assert_eq!(store.statistics().leases.open, 0);
    let (mut garbage, mut steps) = (store.statistics().garbage_bytes, 0);
    assert!(garbage > 15 << 20, "the page that ends a lease frees nothing: {garbage}");
    while garbage > 1 << 20 {
        let keys: [[u8; 4]; 32] = std::array::from_fn(|place| key(number + place as u32));
        let requests = keys.each_ref().map(|key| put(key));
        session.execute(&requests, &mut replies, now);
        assert!(replies.iter().all(|reply| reply == Reply::Done));
        (number, steps) = (number + 32, steps + 1);
        let after = store.statistics().garbage_bytes;
        assert!(garbage <= after + PART_BYTES_MAX, "one batch has freed {} bytes", garbage - after);
        garbage = after;
    }
    assert!(steps > 20, "{steps} batches");
    session.check();
    assert_eq!(store.statistics().garbage_bytes, 0);
}

/// Statistics are read all the time while two threads write and leases come and go.
#[test]
fn statistics_beside_writers() {
    const WRITES: u64 = 200_000;
    let settings = OrderedSettings { log_block: LogBlock::new(64, 0).unwrap(), ..OrderedSettings::new(64 << 20) };
    let store = OrderedStore::new(&settings).unwrap();
    let (written, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    let write = |seed: u32| {
        let mut session = store.session().unwrap();
        let mut replies = replies();
        for number in 0..WRITES as u32 / 2 {
            let key = number.wrapping_mul(7919).wrapping_add(seed) % PAIRS;
            assert_eq!(session.put(&key.to_be_bytes(), &[1; 16], PutCondition::Always), Reply::Done);
            if number % 1_000 == 0 {
                session.execute(&[scan(Scan { lease: ScanLease::Open, ..SCAN })], &mut replies, Instant::now());
            }
            written.fetch_add(1, Ordering::Relaxed);
        }
    };
    let figures = || {
        let mut count = 0_u64;
        while !is_done.load(Ordering::Relaxed) {
            assert!(store.statistics().space.used_bytes <= 64 << 20);
            count += 1;
        }
        count
    };
    let count = thread::scope(|scope| {
        let statistics = scope.spawn(figures);
        let writers = [1, 2].map(|seed| scope.spawn(move || write(seed)));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_done.store(true, Ordering::Relaxed);
        statistics.join().unwrap()
    });
    assert_eq!(written.into_inner(), WRITES);
    assert!(count > 100, "statistics were read {count} times");
    println!("{count} times");
    store.session().unwrap().check();
}

#[test]
fn leases_belong_to_their_owners_and_have_numbers_that_cannot_be_guessed() {
    let lease_of = |seed: u64, owner: u64| {
        let store = OrderedStore::new(&OrderedSettings { lease_seed: seed, ..OrderedSettings::new(MEMORY) }).unwrap();
        let mut session = store.session().unwrap();
        (0..100).for_each(|number| assert_eq!(overwrite(&mut session, number), Reply::Done));
        let now = Instant::now();
        let mut replies = replies();
        let open = scan(Scan { lease: ScanLease::Open, ..SCAN });
        let owners = [OwnerRun { end: 1, owner: owner + 1 }, OwnerRun { end: 3, owner }];
        session.execute_for(&owners, &[put(b"k"), open, open], &mut replies, now);
        let numbers = [1, 2].map(|place| {
            let Reply::Value(page) = replies.get(place) else { panic!("{:?}", replies.get(place)) };
            Page::decode(page).unwrap().lease().unwrap()
        });
        let next = scan(Scan { lease: ScanLease::Continue(numbers[0]), ..SCAN });
        let owners = [OwnerRun { end: 1, owner: owner + 1 }, OwnerRun { end: 2, owner }];
        session.execute_for(&owners, &[next, next], &mut replies, now);
        assert_eq!(replies.get(0), Reply::Failed(OperationError::LeaseExpired), "it is another's");
        assert!(matches!(replies.get(1), Reply::Value(_)), "the lease has not ended by that");
        store.end_leases_of(owner);
        session.execute_for(&[OwnerRun { end: 1, owner }], &[next], &mut replies, now);
        assert_eq!(replies.get(0), Reply::Failed(OperationError::LeaseExpired), "its owner is gone");
        numbers
    };
    let (first, second) = (lease_of(1, 5), lease_of(2, 5));
    assert!(first.iter().all(|number| i64::try_from(*number).is_ok()), "signed integers hold them");
    let far = |a: u64, b: u64| a.abs_diff(b) > 1 << 20;
    assert!(far(first[0], first[1]) && far(second[0], second[1]), "the next number does not follow from one");
    assert!(far(first[0], second[0]), "nor from the count");
    assert_eq!(lease_of(1, 9), first, "but from the seed");
}
