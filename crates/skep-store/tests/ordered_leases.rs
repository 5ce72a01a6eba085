//! Leases: pages of one version while everything is overwritten, what they cost, and how they end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{
    Operation, OperationError, Page, PutCondition, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
};
use skep_store::naive::seeds;
use skep_store::ordered::{LEASE_COUNT_MAX, LEASE_TIME, OrderedSettings, OrderedStore, OwnerRun, Session};
use skep_store::processor::Replies;

#[path = "../src/ordered/tests/history.rs"]
mod history;

use history::{History, Write};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A scan that reads a page now and then.
struct Pages {
    key: Vec<u8>,
    scan: Scan<'static>,
    end: Vec<u8>,
    replies: Replies,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    owner: u64,
}

impl Pages {
    /// A scan of all pairs by a lease.
    fn new(reverse: bool, limit: u32) -> Self {
        let scan = Scan {
            start: ScanStart::AtOrAbove,
            end: ScanEnd::Last,
            reverse,
            limit,
            answer: ScanAnswer::Pairs,
            lease: ScanLease::Open,
        };
        let replies = Replies::with_budget(1 << 20);
        Pages { key: Vec::new(), scan, end: Vec::new(), replies, pairs: Vec::new(), owner: 0 }
    }

    /// Returns scans of an owner by leases, with one pair a page.
    fn of(owner: u64, count: usize) -> Vec<Self> {
        (0..count).map(|_| Pages { owner, ..Pages::new(false, 1) }).collect()
    }

    /// Reads the next page. Whether more follows.
    fn read(&mut self, session: &mut Session<'_>, now: Instant) -> Result<bool, OperationError> {
        let end = self.scan.end.with_bytes(&self.end);
        let request = Request { key: &self.key, operation: Operation::Scan(Scan { end, ..self.scan }) };
        session.execute_for(&[OwnerRun { end: 1, owner: self.owner }], &[request], &mut self.replies, now);
        let page = match self.replies.get(0) {
            Reply::Value(page) => Page::decode(page).unwrap(),
            Reply::Failed(error) => return Err(error),
            other => panic!("{other:?}"),
        };
        self.pairs.extend(page.pairs().map(|(key, value)| (key.to_vec(), value.to_vec())));
        let Some(Request { key, operation: Operation::Scan(next) }) = request.after_page(&page) else {
            return Ok(false);
        };
        let Scan { start, end, reverse, limit, answer, lease } = next;
        let (key, end_bytes) = (key.to_vec(), end.bytes().to_vec());
        self.scan = Scan { start, end: end.with_bytes(&[]), reverse, limit, answer, lease };
        (self.key, self.end) = (key, end_bytes);
        Ok(true)
    }
}

fn seed() -> u64 {
    seeds(&[41])[0]
}

fn put(session: &mut Session<'_>, key: &[u8], value: &[u8]) {
    assert_eq!(session.put(key, value, PutCondition::Always), Reply::Done);
}

/// Writes all over the tree: values inside and outside of nodes, and phases of growing and shrinking.
fn overwrite(session: &mut Session<'_>, map: &mut Map, random: &mut Xoshiro256PlusPlus, count: usize, deletes: u32) {
    for _ in 0..count {
        let key = format!("key{:05}", random.random_range(0..5000)).into_bytes();
        if random.random_range(0..100) < deletes {
            let expected = if map.remove(&key).is_some() { Reply::Done } else { Reply::NotFound };
            assert_eq!(session.delete(&key), expected);
        } else {
            let size = if random.random_range(0..20) == 0 { random.random_range(450..3000) } else { 30 };
            let value = vec![random.random(); size];
            put(session, &key, &value);
            map.insert(key, value);
        }
    }
}

#[test]
fn pages_of_a_lease_show_one_version() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let store = OrderedStore::new(&OrderedSettings::new(1 << 30)).unwrap();
    let mut session = store.session().unwrap();
    let now = Instant::now();
    let mut map = Map::new();
    for round in 0..12 {
        overwrite(&mut session, &mut map, &mut random, 5_000, 20);
        let mut scans: Vec<(Pages, Map)> = Vec::new();
        for place in 0..6_u32 {
            let mut pages = Pages::new(place % 2 == 1, [1, 17, 400][place as usize / 2]);
            assert_eq!(pages.read(&mut session, now), Ok(true));
            scans.push((pages, map.clone()));
            overwrite(&mut session, &mut map, &mut random, 1_000, 80 * (round % 2));
        }
        let mut left: Vec<usize> = (0..scans.len()).collect();
        while !left.is_empty() {
            overwrite(&mut session, &mut map, &mut random, 100, 90 * (round % 2));
            left.retain(|place| {
                // Several pages at a time of the scan of single pairs.
                let count = if *place < 2 { 300 } else { 1 };
                (0..count).all(|_| scans[*place].0.read(&mut session, now).unwrap())
            });
        }
        for (place, (pages, expected)) in scans.into_iter().enumerate() {
            let mut expected: Vec<_> = expected.into_iter().collect();
            if pages.scan.reverse {
                expected.reverse();
            }
            assert!(pages.pairs == expected, "seed {seed} round {round} scan {place}");
        }
        let figures = store.statistics();
        assert_eq!((figures.leases.open, figures.leases.expired), (0, 0), "all were read to their end");
    }
    session.check();
    assert_eq!(store.statistics().garbage_bytes, 0, "nothing is kept any more");
}

#[test]
fn a_lease_expires_by_time() {
    let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
    let mut session = store.session().unwrap();
    (0..100_u8).for_each(|key| put(&mut session, &[key], b"value"));
    let now = Instant::now();
    let almost = LEASE_TIME - Duration::from_millis(1);
    let mut pages = Pages::new(false, 1);
    assert_eq!(pages.read(&mut session, now), Ok(true));
    assert_eq!(pages.read(&mut session, now + almost), Ok(true), "each page keeps it for as long again");
    assert_eq!(pages.read(&mut session, now + 2 * almost), Ok(true));
    // Any batch sees to it.
    session.execute(&[], &mut Replies::with_budget(0), now + 2 * almost + LEASE_TIME);
    assert_eq!(store.statistics().leases.expired, 1);
    assert_eq!(pages.read(&mut session, now), Err(OperationError::LeaseExpired));
    assert!(OperationError::LeaseExpired.to_string().contains("begin the scan again"));
}

#[test]
fn leases_are_few() {
    let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
    let mut session = store.session().unwrap();
    (0..100_u8).for_each(|key| put(&mut session, &[key], b"value"));
    let now = Instant::now();
    let mut scans: Vec<Pages> = (0..=LEASE_COUNT_MAX).map(|_| Pages::new(false, 1)).collect();
    scans.iter_mut().for_each(|pages| assert_eq!(pages.read(&mut session, now), Ok(true)));
    assert_eq!(store.statistics().leases.open, LEASE_COUNT_MAX as u64);
    assert_eq!(scans[0].read(&mut session, now), Err(OperationError::LeaseExpired), "the oldest");
    scans[1..].iter_mut().for_each(|pages| assert_eq!(pages.read(&mut session, now), Ok(true)));
}

/// An owner that opens leases without end has those that the others leave, and they keep theirs.
#[test]
fn one_owner_does_not_take_the_leases_of_others() {
    let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
    let mut session = store.session().unwrap();
    (0..100_u8).for_each(|key| put(&mut session, &[key], b"value"));
    let now = Instant::now();
    let mut read = |pages: &mut Pages| pages.read(&mut session, now);
    let mut of_others: Vec<Pages> = (2..5).flat_map(|owner| Pages::of(owner, 2)).collect();
    of_others.iter_mut().for_each(|pages| assert_eq!(read(pages), Ok(true)));
    Pages::of(1, 3 * LEASE_COUNT_MAX).iter_mut().for_each(|pages| assert_eq!(read(pages), Ok(true)));
    // They are all in use. Another owner gets some all the same, and keeps them.
    let late = Pages::of(5, 4).into_iter();
    of_others.extend(late);
    of_others.iter_mut().for_each(|pages| assert_eq!(read(pages), Ok(true)));
    Pages::of(1, 3 * LEASE_COUNT_MAX).iter_mut().for_each(|pages| assert_eq!(read(pages), Ok(true)));
    of_others.iter_mut().for_each(|pages| assert_eq!(read(pages), Ok(true)));
    assert_eq!(store.statistics().leases.open, LEASE_COUNT_MAX as u64);
}

#[test]
fn without_versions_there_are_no_leases() {
    let store = OrderedStore::new(&OrderedSettings { mvcc: false, ..OrderedSettings::new(64 << 20) }).unwrap();
    let mut session = store.session().unwrap();
    (0..100_u8).for_each(|key| put(&mut session, &[key], b"value"));
    let mut pages = Pages::new(false, 60);
    assert_eq!(pages.read(&mut session, Instant::now()), Err(OperationError::LeaseExpired));
    pages.scan.lease = ScanLease::None;
    assert_eq!(pages.read(&mut session, Instant::now()), Ok(true));
    assert_eq!(pages.read(&mut session, Instant::now()), Ok(false));
    assert_eq!(pages.pairs.len(), 100);
}

/// A week's worth of updates in miniature, while leases are opened, read on, read to the end and left behind.
#[test]
fn memory_stays_bounded_while_leases_are_held() {
    const PAIRS: usize = 100_000;
    const MEMORY: u64 = 256 << 20;
    let seed = seed();
    println!("seed {seed}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let store = OrderedStore::new(&OrderedSettings::new(MEMORY)).unwrap();
    let mut session = store.session().unwrap();
    let keys: Vec<[u8; 16]> = (0..PAIRS).map(|_| random.random()).collect();
    keys.iter().for_each(|key| put(&mut session, key, key));
    let live = store.statistics().space.used_bytes;
    let mut now = Instant::now();
    let mut scans: Vec<Pages> = Vec::new();
    let (mut complete, mut expired, mut garbage_bytes_max) = (0, 0, 0);
    for number in 0..100 * PAIRS {
        put(&mut session, &keys[random.random_range(0..PAIRS)], &[number as u8; 16]);
        if number % 20_000 == 0 {
            now += Duration::from_millis(50);
            if scans.len() < 4 {
                scans.push(Pages::new(random.random(), 20_000));
            }
            let place = random.random_range(0..scans.len());
            let mut pages = (0..35).map(|_| scans[place].read(&mut session, now));
            match pages.find(|page| *page != Ok(true)) {
                None => {}
                Some(Err(error)) => {
                    expired += 1;
                    assert_eq!(error, OperationError::LeaseExpired);
                    drop(scans.swap_remove(place));
                }
                Some(_) => {
                    complete += 1;
                    assert_eq!(scans.swap_remove(place).pairs.len(), PAIRS, "seed {seed}");
                }
            }
            let figures = store.statistics();
            assert!(figures.garbage_bytes <= MEMORY / 8 + (1 << 20), "seed {seed}: {figures:?}");
            assert!(figures.space.used_bytes <= 2 * live + MEMORY / 8, "seed {seed}: {live} {figures:?}");
            garbage_bytes_max = garbage_bytes_max.max(figures.garbage_bytes);
        }
    }
    println!(
        "{complete} complete, {expired} expired, at most {garbage_bytes_max} bytes of garbage, {:?}",
        store.statistics()
    );
    assert!(complete > 3 && expired > 10 && garbage_bytes_max > MEMORY / 16, "leases were read, and were in the way");
    session.execute(&[], &mut Replies::with_budget(0), now + LEASE_TIME);
    session.check();
    assert_eq!((store.statistics().leases.open, store.statistics().garbage_bytes), (0, 0), "nothing is kept for ever");
}

/// Memory that only leases hold is no reason to refuse a write.
#[test]
fn full_memory_ends_leases() {
    let store = OrderedStore::new(&OrderedSettings::new(8 << 20)).unwrap();
    let mut session = store.session().unwrap();
    let mut count = 0_u32;
    while store.statistics().space.used_bytes < (8 << 20) / 100 * 90 {
        put(&mut session, &count.to_be_bytes(), &[1; 100]);
        count += 1;
    }
    let now = Instant::now();
    let mut pages = Pages::new(false, 1);
    for round in 0..3 {
        assert_eq!(pages.read(&mut session, now), Ok(true));
        (0..count).for_each(|key| put(&mut session, &key.to_be_bytes(), &[round; 100]));
        assert_eq!(pages.read(&mut session, now), Err(OperationError::LeaseExpired));
        pages = Pages::new(false, 1);
    }
    session.check();
}

const KEYS: usize = 120;

/// Two threads that write and two that scan all keys in pages; a value is the number of its write.
fn run_history(seed: u64, write_count: usize, lease: ScanLease) -> History {
    // Room for all garbage, so that no lease expires while its scanner has to wait for a core.
    let store = OrderedStore::new(&OrderedSettings::new(4 << 30)).unwrap();
    let clock = AtomicU64::new(0);
    let now = || clock.fetch_add(1, Ordering::SeqCst);
    let writers_left = AtomicU64::new(2);
    let write = |writer: usize| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed + writer as u64);
        let mut session = store.session().unwrap();
        let (mut counts, mut exists) = ([0_u32; KEYS], [false; KEYS]);
        let mut writes = Vec::new();
        for _ in 0..write_count {
            let key = random.random_range(0..KEYS / 2) * 2 + writer;
            let is_delete = exists[key] && random.random();
            counts[key] += 1;
            exists[key] = !is_delete;
            let begin = now();
            let reply = match is_delete {
                true => session.delete(&[key as u8; 100]),
                false => session.put(&[key as u8; 100], &counts[key].to_le_bytes().repeat(75), PutCondition::Always),
            };
            assert_eq!(reply, Reply::Done, "seed {seed}");
            writes.push(Write { key, is_delete, begin, end: now() });
        }
        writers_left.fetch_sub(1, Ordering::SeqCst);
        writes
    };
    let scan = |reverse: bool| {
        let mut session = store.session().unwrap();
        let mut scans = Vec::new();
        while writers_left.load(Ordering::SeqCst) > 0 && scans.len() < write_count {
            let begin = now();
            let mut pages = Pages::new(reverse, 7);
            pages.scan.lease = lease;
            while pages.read(&mut session, Instant::now()).unwrap() {}
            let mut seen = vec![0; KEYS];
            for (key, value) in pages.pairs {
                assert!(value.chunks(4).all(|part| part == &value[..4]), "a value is whole");
                seen[usize::from(key[0])] = u32::from_le_bytes(*value.first_chunk().unwrap()) as usize;
            }
            scans.push(history::Scan { keys: 0..KEYS, seen, begin, end: now() });
        }
        scans
    };
    let mut history = History::default();
    thread::scope(|scope| {
        let writers = [0, 1].map(|writer| scope.spawn(move || write(writer)));
        let scanners = [false, true].map(|reverse| scope.spawn(move || scan(reverse)));
        history.writes.extend(writers.into_iter().flat_map(|thread| thread.join().unwrap()));
        history.scans.extend(scanners.into_iter().flat_map(|thread| thread.join().unwrap()));
    });
    store.session().unwrap().check();
    history
}

#[test]
fn scans_in_pages_of_a_lease_are_linearizable() {
    let seed = seed();
    println!("seed {seed}");
    let history = run_history(seed, 10_000, ScanLease::Open);
    println!("{} writes, {} scans", history.writes.len(), history.scans.len());
    assert!(history.scans.len() > 20);
    assert!(history.is_linearizable(KEYS), "seed {seed}");
}

#[test]
fn control_pages_without_a_lease_are_caught() {
    let caught = (1..=20).any(|seed| !run_history(seed, 3_000, ScanLease::None).is_linearizable(KEYS));
    assert!(caught, "pages of different versions were taken for one scan");
}
