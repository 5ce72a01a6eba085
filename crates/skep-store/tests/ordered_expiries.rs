//! Keys of the ordered store that expire: scans and leases over them, and the memory that they give back.
//! `ordered_operations.rs` compares all operations with those of the naive store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{
    Condition, Expiry, ExpiryChange, ExpiryCondition, Operation, OperationError, PAGE_SKIPPED_MAX, Page, PutCondition,
    Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart, StringWrite,
};
use skep_store::naive::seeds;
use skep_store::ordered::{OrderedSettings, OrderedStore, Range, STEP_KEYS_MAX, Session, Start};
use skep_store::processor::Replies;

const FULL: Reply<'static> = Reply::Failed(OperationError::NodesFull);

fn store(memory: u64) -> OrderedStore {
    OrderedStore::new(&OrderedSettings::new(memory)).unwrap()
}

fn at(time: u64) -> ExpiryChange {
    ExpiryChange::set(Expiry::at(time as i64).unwrap())
}

fn set(value: &[u8], expiry: ExpiryChange) -> Operation<'_> {
    Operation::StringWrite(StringWrite::Set { value, condition: Condition::ALWAYS, expiry, return_old: false })
}

fn persist() -> Operation<'static> {
    let (expiry, condition) = (ExpiryChange::CLEAR, ExpiryCondition::Always);
    Operation::StringWrite(StringWrite::Expire { expiry, condition, return_value: false })
}

/// Executes one operation, as often as it is deferred.
fn execute<'r>(session: &mut Session<'_>, replies: &'r mut Replies, key: &[u8], operation: Operation<'_>) -> Reply<'r> {
    loop {
        session.execute(&[Request { key, operation }], replies, Instant::now());
        if replies.get(0) != Reply::Deferred {
            return replies.get(0);
        }
    }
}

/// Makes steps until none is due. Returns the number of keys that were removed.
fn reclaim(session: &mut Session<'_>, now: u64) -> usize {
    let mut removed = 0;
    while session.reclaim_from().is_some_and(|from| from <= now) {
        let keys = session.reclaim().unwrap_or(0);
        assert!(keys <= STEP_KEYS_MAX);
        removed += keys;
    }
    removed
}

/// Returns the numbers of the keys of a range.
fn numbers(session: &mut Session<'_>, range: Range<'_>, reverse: bool) -> Vec<u32> {
    let mut numbers = Vec::new();
    let f = |key: &[u8], _: &[u8]| {
        numbers.push(u32::from_be_bytes(*key.first_chunk().unwrap()));
        true
    };
    if reverse {
        session.scan_reverse(range, f);
    } else {
        session.scan(range, f);
    }
    numbers
}

/// A part of the keys expires; values are short, of several sizes, and overflow values.
#[test]
fn scans_show_no_expired_key() {
    const COUNT: u32 = 3000;
    let value_of = |number: u32| match number % 50 {
        0 => vec![1; 600],
        1 => vec![2; 465],
        2..10 => vec![3; number as usize % 30],
        _ => vec![4; 8],
    };
    // Single keys, and runs of keys that are longer than a leaf.
    let expires = |number: u32| number % 7 == 3 || (1000..2000).contains(&number);
    let store = store(64 << 20);
    let mut session = store.session().unwrap();
    let mut replies = Replies::with_budget(16 << 20);
    let insert = |session: &mut Session<'_>, replies: &mut Replies, number: u32| {
        let expiry = if expires(number) { at(100) } else { ExpiryChange::CLEAR };
        let reply = execute(session, replies, &number.to_be_bytes(), set(&value_of(number), expiry));
        assert_eq!(reply, Reply::Done);
    };
    // Every fifth key is only in a log.
    (0..COUNT).filter(|number| number % 5 > 0).for_each(|number| insert(&mut session, &mut replies, number));
    (0..COUNT).filter(|number| number % 5 == 0).for_each(|number| insert(&mut session, &mut replies, number));
    let mut left: Vec<u32> = (0..COUNT).collect();
    for (now, is_reclaimed) in [(99, false), (100, false), (100, true)] {
        store.set_now(now);
        if now == 100 {
            left.retain(|number| !expires(*number));
        }
        if is_reclaimed {
            assert_eq!(reclaim(&mut session, now), COUNT as usize - left.len());
        }
        assert_eq!(numbers(&mut session, Range::ALL, false), left, "at {now}");
        assert!(numbers(&mut session, Range::ALL, true).iter().rev().eq(&left), "at {now}");
        for number in (0..COUNT).step_by(13) {
            let key = number.to_be_bytes();
            for limit in [1, 2, 30] {
                let first = left.partition_point(|other| *other < number);
                let floor = first.saturating_sub(usize::from(left.get(first) != Some(&number)));
                for (start, first) in [(Start::AtOrAbove(&key), first), (Start::Floor(&key), floor)] {
                    let range = Range { start, ..Range::ALL }.limit(limit);
                    let expected: Vec<u32> = left[first..].iter().copied().take(limit).collect();
                    assert_eq!(numbers(&mut session, range, false), expected, "from {number} at {now}");
                }
            }
            assert_eq!(session.get(&key, &mut Vec::new()), left.binary_search(&number).is_ok());
        }
    }
    let checked = session.check();
    assert_eq!((checked.pairs, checked.expiring), (left.len() as u64, 0));
    assert_eq!(session.reclaim_from(), None, "no key has an expiry");
}

/// The second page of a lease is read when keys of its version have expired, and other keys have replaced them.
#[test]
fn pages_of_a_lease_show_no_expired_key() {
    let store = store(16 << 20);
    let mut session = store.session().unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    for number in 0..300_u32 {
        let expiry = if number % 3 == 0 { at(100) } else { ExpiryChange::CLEAR };
        assert_eq!(execute(&mut session, &mut replies, &number.to_be_bytes(), set(b"old", expiry)), Reply::Done);
    }
    let scan = Scan {
        start: ScanStart::AtOrAbove,
        end: ScanEnd::Last,
        reverse: false,
        limit: 100,
        answer: ScanAnswer::Pairs,
        lease: ScanLease::Open,
    };
    let Reply::Value(page) = execute(&mut session, &mut replies, b"", Operation::Scan(scan)) else { panic!("a page") };
    let page = Page::decode(page).unwrap();
    let (count, lease) = (page.count(), page.lease().unwrap());
    assert_eq!(count, 100);
    store.set_now(100);
    for is_reclaimed in [false, true] {
        if is_reclaimed {
            assert!(reclaim(&mut session, 100) > 0);
        } else {
            assert_eq!(execute(&mut session, &mut replies, &120_u32.to_be_bytes(), set(b"new", at(999))), Reply::Done);
        }
        let next = Scan { start: ScanStart::Above, lease: ScanLease::Continue(lease), ..scan };
        let key = if is_reclaimed { 199_u32 } else { 99 }.to_be_bytes();
        let Reply::Value(page) = execute(&mut session, &mut replies, &key, Operation::Scan(next)) else { panic!() };
        let page = Page::decode(page).unwrap();
        let shown: Vec<u32> = page.pairs().map(|(key, _)| u32::from_be_bytes(*key.first_chunk().unwrap())).collect();
        let first = u32::from_be_bytes(key) + 1;
        assert!(shown.iter().copied().eq((first..).filter(|number| number % 3 > 0).take(100).take_while(|n| *n < 300)));
    }
}

/// Values of all kinds fill a store. They keep size and expiry when they are overwritten, which never fails. When all of
/// them have expired, the store takes as many again.
#[test]
fn a_full_store_takes_its_load_again_when_all_keys_have_expired() {
    for size in [16, 465, 500, 10_000] {
        let store = store(4 << 20);
        let mut session = store.session().unwrap();
        let mut replies = Replies::with_budget(1 << 20);
        let mut first_count = 0;
        for round in 1..=3 {
            let now = round * 1000;
            store.set_now(now);
            reclaim(&mut session, now);
            let checked = session.check();
            assert_eq!((checked.pairs, checked.leaves), (0, 1), "values of {size}");
            let mut count = 0_u32;
            let key_of = |number: u32| number.wrapping_mul(0x9e37_79b1).to_be_bytes();
            loop {
                match execute(&mut session, &mut replies, &key_of(count), set(&vec![1; size], at(now + 500))) {
                    Reply::Done => count += 1,
                    reply => break assert_eq!(reply, FULL),
                }
            }
            if round == 1 {
                first_count = count;
            }
            // The frames are in other chunks than at first.
            assert!(count * 100 >= first_count * 99, "values of {size}: {count} keys, {first_count} at first");
            for number in 0..count {
                let keep = if number % 2 == 0 { ExpiryChange::KEEP } else { at(now + 400) };
                let reply = execute(&mut session, &mut replies, &key_of(number), set(&vec![2; size], keep));
                assert_eq!(reply, Reply::Done, "values of {size}: {number} of {count}");
            }
            assert_eq!(store.statistics().expiring, u64::from(count));
        }
        println!("values of {size}: {first_count} keys fit");
    }
}

/// A pass that removes few of the keys is followed by a pause.
#[test]
fn keys_that_expire_one_by_one_are_not_looked_for_all_the_time() {
    let store = store(16 << 20);
    let mut session = store.session().unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    assert_eq!(session.reclaim_from(), None);
    for number in 0..10_000_u32 {
        let reply =
            execute(&mut session, &mut replies, &number.to_be_bytes(), set(&[0; 64], at(1000 + u64::from(number))));
        assert_eq!(reply, Reply::Done);
    }
    assert_eq!(session.reclaim_from(), Some(1000));
    let (mut now, mut removed, mut last) = (1000, 0, 0);
    store.set_now(now);
    while session.reclaim_from().is_some_and(|from| from <= now) {
        removed += session.reclaim().unwrap_or(0);
        // Each step takes a millisecond.
        last = now;
        now += 1;
        store.set_now(now);
    }
    assert!(last > 1010 && (1..=60).contains(&removed), "{removed} keys until {last}");
    assert_eq!(session.reclaim_from(), Some(last + 8 * (last - 1000)), "a pause");
    store.set_now(20_000);
    assert_eq!(removed + reclaim(&mut session, 20_000), 10_000);
    assert_eq!(session.check().pairs, 0);
}

/// Threads that write keys of their own, and the operations of each.
const THREADS: u64 = 3;
const OPERATIONS: u64 = 40_000;

/// The pairs of a thread, with their expiries.
type Pairs = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

/// Writes keys that no other thread writes, and reclaims those that have expired. Returns the pairs that it left, and the
/// number of keys that it reclaimed.
fn write_own_keys(store: &OrderedStore, time: &AtomicU64, seed: u64, writer: u64) -> (Pairs, usize) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed + writer);
    let mut session = store.session().unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    let mut map = Pairs::new();
    let mut reclaimed = 0;
    for operation in 0..OPERATIONS {
        let key = (random.random_range(0..3000) * THREADS + writer).to_be_bytes().to_vec();
        // The time of the store is this or later: a key that expires until then may be there or not.
        let now = time.load(Ordering::Relaxed);
        let size = if random.random_range(0..100) == 0 { random.random_range(400..2000) } else { operation % 20 };
        let value = vec![operation as u8; size as usize];
        match random.random_range(0..10) {
            0..5 => {
                let expiry = now + random.random_range(0..40);
                assert_eq!(execute(&mut session, &mut replies, &key, set(&value, at(expiry))), Reply::Done);
                map.insert(key, (value, Some(expiry)));
            }
            5..7 => {
                let reply = execute(&mut session, &mut replies, &key, set(&value, ExpiryChange::CLEAR));
                assert_eq!(reply, Reply::Done);
                map.insert(key, (value, None));
            }
            7 => match execute(&mut session, &mut replies, &key, persist()) {
                Reply::Done => map.get_mut(&key).expect("the key exists").1 = None,
                reply => {
                    assert_eq!(reply, Reply::NotFound);
                    let before = map.remove(&key);
                    assert!(before.is_none_or(|(_, expiry)| expiry.is_some()), "seed {seed}");
                }
            },
            8 => {
                execute(&mut session, &mut replies, &key, Operation::Delete);
                map.remove(&key);
            }
            _ => {
                let mut found = Vec::new();
                let exists = session.get(&key, &mut found);
                match map.get(&key) {
                    Some((value, None)) => assert!(exists && found == *value, "seed {seed}"),
                    Some((value, Some(expiry))) => {
                        assert!(!exists || found == *value && *expiry > now, "seed {seed}");
                    }
                    None => assert!(!exists, "seed {seed}"),
                }
            }
        }
        if operation % 64 == 0 {
            store.set_now(now + 1);
            time.fetch_max(now + 1, Ordering::Relaxed);
        }
        reclaimed += session.reclaim().unwrap_or(0);
    }
    (map, reclaimed)
}

/// Threads write keys of their own while time passes and all of them reclaim. What they have left is there, and nothing
/// else.
#[test]
fn writers_beside_reclaim_lose_nothing() {
    let seed = seeds(&[20_260_101])[0];
    println!("seed {seed}");
    for mvcc in [true, false] {
        let store = OrderedStore::new(&OrderedSettings { mvcc, ..OrderedSettings::new(64 << 20) }).unwrap();
        let time = AtomicU64::new(0);
        let (mut expected, mut reclaimed) = (BTreeMap::new(), 0);
        thread::scope(|scope| {
            let (store, time) = (&store, &time);
            let write = move |writer| scope.spawn(move || write_own_keys(store, time, seed, writer));
            let writers: Vec<_> = (0..THREADS).map(write).collect();
            for writer in writers {
                let (map, removed) = writer.join().unwrap();
                expected.extend(map);
                reclaimed += removed;
            }
        });
        let end = time.into_inner() + 20;
        store.set_now(end);
        expected.retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > end));
        let mut session = store.session().unwrap();
        for is_reclaimed in [false, true] {
            let mut left = BTreeMap::new();
            session.scan(Range::ALL, |key, value| {
                left.insert(key.to_vec(), value.to_vec());
                true
            });
            let are_equal = left.iter().eq(expected.iter().map(|(key, (value, _))| (key, value)));
            assert!(are_equal, "seed {seed}: {} pairs of {}", left.len(), expected.len());
            if !is_reclaimed {
                reclaimed += reclaim(&mut session, end);
            }
        }
        // A pause may have put off the last pass.
        let due = session.reclaim_from().unwrap_or(end).max(end);
        store.set_now(due);
        reclaim(&mut session, due);
        let expiring = expected.values().filter(|(_, expiry)| expiry.is_some_and(|expiry| expiry > due)).count();
        let kept = expected.values().filter(|(_, expiry)| expiry.is_none()).count();
        let checked = session.check();
        assert_eq!((checked.pairs, checked.expiring), ((kept + expiring) as u64, expiring as u64), "seed {seed}");
        assert!(reclaimed > 5000 && expiring < expected.len(), "seed {seed}: {reclaimed} keys were reclaimed");
    }
}

/// Between two keys that are left, as many have expired as three pages skip. Each page ends after it has skipped
/// [`PAGE_SKIPPED_MAX`], and the next one continues there, for every kind of scan.
#[test]
fn no_page_skips_more_expired_keys_than_it_may() {
    const EXPIRED: usize = 3 * PAGE_SKIPPED_MAX;
    let store = store(64 << 20);
    let mut session = store.session().unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    let key = |number: usize| (number as u32).to_be_bytes();
    for number in 0..EXPIRED + 2 {
        let is_left = number == 0 || number == EXPIRED + 1;
        let expiry = if is_left { ExpiryChange::CLEAR } else { at(100) };
        assert_eq!(execute(&mut session, &mut replies, &key(number), set(b"value", expiry)), Reply::Done);
    }
    store.set_now(100);
    let (first, last) = (key(0), key(EXPIRED + 1));
    // Below the last of the keys that have expired.
    let above_all = key(EXPIRED);
    let kinds = [
        (ScanStart::AtOrAbove, &b""[..], ScanEnd::Last, false, vec![first, last]),
        (ScanStart::AtOrAbove, b"", ScanEnd::AtOrBelow(&above_all), false, vec![first]),
        (ScanStart::AtOrAbove, b"", ScanEnd::Last, true, vec![last, first]),
        (ScanStart::Above, &first, ScanEnd::Last, true, vec![last]),
        (ScanStart::Floor, &above_all, ScanEnd::Last, false, vec![first, last]),
        (ScanStart::Floor, &above_all, ScanEnd::AtOrBelow(&above_all), false, vec![first]),
        (ScanStart::Floor, &above_all, ScanEnd::Last, true, vec![last, first]),
    ];
    for (start, key, end, reverse, expected) in kinds {
        for answer in ScanAnswer::ALL {
            for (limit, lease) in [(100, ScanLease::None), (1, ScanLease::None), (1000, ScanLease::Open)] {
                let scan = Scan { start, end, reverse, limit, answer, lease };
                let context = format!("{scan:?} from {key:?}");
                let (mut count, mut shown, mut pages) = (0, Vec::new(), 0);
                let mut next = Some(Request { key, operation: Operation::Scan(scan) });
                while let Some(Request { key, operation }) = next.take() {
                    let Reply::Value(page) = execute(&mut session, &mut replies, key, operation) else { panic!() };
                    // The next request borrows from the page.
                    let page = Page::decode(page.to_vec().leak()).unwrap();
                    (count, pages) = (count + page.count() as usize, pages + 1);
                    shown.extend(page.pairs().map(|(key, _)| key.to_vec()));
                    next = Request { key, operation }.after_page(&page);
                    assert!(pages <= 8, "{context}");
                }
                assert_eq!(count, expected.len(), "{context}");
                assert!(answer == ScanAnswer::Count || shown.iter().eq(&expected), "{context}: {shown:?}");
                assert!(pages >= EXPIRED / PAGE_SKIPPED_MAX, "{context}: {pages} pages");
            }
        }
    }
}

/// No key at or below the start of the range is left, and the search for the floor skips about as many expired ones as a
/// page may. However large their number is, each page gets on.
#[test]
fn a_search_for_a_floor_that_there_is_not_ends() {
    let store = store(64 << 20);
    let mut session = store.session().unwrap();
    let mut replies = Replies::with_budget(1 << 20);
    let key = |number: usize| (number as u32).to_be_bytes();
    let count = PAGE_SKIPPED_MAX + 100;
    for number in 0..=count {
        let expiry = if number == count { ExpiryChange::CLEAR } else { at(100) };
        assert_eq!(execute(&mut session, &mut replies, &key(number), set(b"value", expiry)), Reply::Done);
    }
    store.set_now(100);
    for start in PAGE_SKIPPED_MAX - 300..count {
        for lease in [ScanLease::None, ScanLease::Open] {
            let (end, answer) = (ScanEnd::Last, ScanAnswer::Keys);
            let scan = Scan { start: ScanStart::Floor, end, reverse: false, limit: 10, answer, lease };
            let start = key(start);
            let mut request = Request { key: &start, operation: Operation::Scan(scan) };
            let mut pages = 1;
            let shown = loop {
                let Reply::Value(page) = execute(&mut session, &mut replies, request.key, request.operation) else {
                    panic!("a page");
                };
                // The next request borrows from the page.
                let page = Page::decode(page.to_vec().leak()).unwrap();
                match request.after_page(&page) {
                    Some(next) => request = next,
                    None => break page.pairs().map(|(key, _)| key).collect::<Vec<_>>(),
                }
                pages += 1;
                assert!(pages <= 3, "floor of {start:?}");
            };
            assert_eq!(shown, [key(count)], "floor of {start:?}");
        }
    }
}

/// A full store refuses no write of a key with an expiry that takes it away, or sets another one and a value of the same
/// size.
#[test]
fn a_full_store_takes_writes_of_pairs_that_do_not_grow() {
    let value = vec![7; 100_000];
    for size in [16, 100, 448, 500, 4000, 10_000, 100_000] {
        let store = store(if size > 10_000 { 16 << 20 } else { 8 << 20 });
        let mut session = store.session().unwrap();
        let mut replies = Replies::with_budget(1 << 20);
        let mut write = |key: u64, operation| match execute(&mut session, &mut replies, &key.to_be_bytes(), operation) {
            Reply::Done => true,
            FULL => false,
            reply => panic!("{reply:?}"),
        };
        let count = (0..).find(|number| !write(*number, set(&value[..size], at(100)))).unwrap();
        let mut filler = u64::MAX;
        for size in (1..=size.min(4000)).rev().step_by(7) {
            while write(filler, set(&value[..size], at(100))) {
                filler -= 1;
            }
        }
        let put = Operation::Put { value: &value[..size], condition: PutCondition::Always };
        let writes = [("persist", persist()), ("put", put), ("another", set(&value[..size], at(200)))];
        for (number, (name, operation)) in writes.into_iter().enumerate() {
            for key in (number as u64..count).step_by(writes.len()) {
                assert!(write(key, operation), "{name} of pair {key} of {count}, {size} B");
            }
        }
        for key in 0..count {
            assert!(write(key, Operation::Delete), "delete of pair {key} of {count}, {size} B");
        }
    }
}
