//! Histories of small pairs, so that logs hold many entries: writes alone, in groups and in batches, beside scans, floors,
//! batches of reads and leased pages. Each history is checked to be linearizable; broken reads are caught.
//! `SKEP_SEED` repeats a run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{
    Operation, Page, PutCondition, Reply, Request, Scan, ScanAnswer, ScanEnd, ScanLease, ScanStart,
};
use skep_store::naive;
use skep_store::ordered::{End, LogBlock, OrderedSettings, OrderedStore, Range, Session, Start};
use skep_store::processor::Replies;

#[path = "../src/ordered/tests/history.rs"]
mod history;

use history::{History, Write};

const KEYS: usize = 300;
const WRITERS: usize = 3;
/// Least writes of a writer, and scans of all. Beside a busy machine's other work a writer may do more until there are enough.
const WRITES: usize = 3_000;
const SCANS: u64 = 150;
const WRITES_MAX: usize = 30 * WRITES;

/// The kinds of keys. Their order is that of their numbers.
#[derive(Clone, Copy, Debug)]
enum Keys {
    /// Short and of one size.
    Plain,
    /// A long common prefix.
    Prefixed,
    /// So long that few boundary keys fit a node.
    Longest,
    /// Each a prefix of the next two.
    Nested,
}

impl Keys {
    const ALL: [Keys; 4] = [Keys::Plain, Keys::Prefixed, Keys::Longest, Keys::Nested];

    fn key(self, number: usize) -> Vec<u8> {
        let of = |number: usize| (number as u16).to_be_bytes();
        match self {
            Keys::Plain => format!("key-{number:05}").into_bytes(),
            Keys::Prefixed => [&[b'p'; 40][..], &of(number)].concat(),
            Keys::Longest => [&[b'l'; 458][..], &of(number)].concat(),
            Keys::Nested => [&b"n"[..], &of(number / 3), &[0; 2][..number % 3]].concat(),
        }
    }

    fn number(self, key: &[u8]) -> usize {
        let at = |place: usize| usize::from(u16::from_be_bytes([key[place], key[place + 1]]));
        match self {
            Keys::Plain => std::str::from_utf8(&key[4..]).unwrap().parse().unwrap(),
            Keys::Prefixed => at(40),
            Keys::Longest => at(458),
            Keys::Nested => at(1) * 3 + key.len() - 3,
        }
    }
}

/// Sizes of values, of which each write takes the next: small ones, such of all sizes, such in and outside of nodes.
const SIZES: [&[usize]; 3] = [&[4], &[4, 100, 4, 16, 4, 600, 8, 40, 4, 400], &[4, 16, 480, 9000]];

/// The value of a key's write: its number, over and over, so that a torn value shows.
fn value_of(sizes: &[usize], write: usize) -> Vec<u8> {
    (write as u32).to_le_bytes().repeat(sizes[write % sizes.len()] / 4)
}

fn write_of(value: &[u8]) -> usize {
    let first = value.first_chunk().expect("a value has a number");
    assert!(value.chunks(4).all(|part| part == first), "a value is whole");
    u32::from_le_bytes(*first) as usize
}

/// A store, and all that its threads share.
struct Run<'s> {
    store: &'s OrderedStore,
    keys: Keys,
    sizes: &'static [usize],
    seed: u64,
    clock: AtomicU64,
    writers_left: AtomicU64,
    scans: AtomicU64,
}

/// A write that is to be done; none of `value` deletes.
struct Planned {
    number: usize,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl Run<'_> {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Writes keys of its own: alone, as a group, or in a batch with reads of its own writes.
    fn write(&self, writer: usize) -> Vec<Write> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed * 1000 + writer as u64);
        let mut session = self.store.session().unwrap();
        let mut replies = Replies::with_budget(64 << 20);
        let (mut counts, mut exists) = ([0; KEYS], [false; KEYS]);
        let mut writes = Vec::new();
        while writes.len() < WRITES || self.scans.load(Ordering::Relaxed) < SCANS && writes.len() < WRITES_MAX {
            if writes.len() >= WRITES {
                thread::yield_now();
            }
            // A part of the keys at a time, so that leaves fill and empty; now and then a dozen only.
            let phase = writes.len() / 1000;
            let part = phase % 3 * (KEYS / 3);
            let span = if phase % 5 == 4 { 12 } else { KEYS / 2 };
            let (deletes, way) = (if phase.is_multiple_of(2) { 25 } else { 80 }, random.random_range(0..4));
            let count = if way == 0 { 1 } else { random.random_range(1..64) };
            let mut planned = Vec::new();
            for _ in 0..count {
                let number = (part + random.random_range(0..span)) % KEYS / WRITERS * WRITERS + writer;
                let is_delete = way != 1 && exists[number] && random.random_range(0..100) < deletes;
                counts[number] += 1;
                exists[number] = !is_delete;
                let value = (!is_delete).then(|| value_of(self.sizes, counts[number]));
                planned.push(Planned { number, key: self.keys.key(number), value });
            }
            let begin = self.now();
            match way {
                0 => write_alone(&mut session, &planned[0]),
                1 => write_group(&mut session, &planned),
                _ => write_batch(&mut session, &mut replies, &planned),
            }
            let end = self.now();
            let write =
                |planned: &Planned| Write { key: planned.number, is_delete: planned.value.is_none(), begin, end };
            writes.extend(planned.iter().map(write));
        }
        self.writers_left.fetch_sub(1, Ordering::SeqCst);
        writes
    }

    /// Reads ranges in every way while writers are left.
    fn scan(&self, scanner: usize) -> Vec<history::Scan> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed * 1000 + 100 + scanner as u64);
        let mut session = self.store.session().unwrap();
        let mut replies = Replies::with_budget(64 << 20);
        let mut scans = Vec::new();
        while self.writers_left.load(Ordering::SeqCst) > 0 && scans.len() < 2 * WRITES {
            let first = random.random_range(0..KEYS);
            let width = if random.random_range(0..4) == 0 { KEYS } else { 60 };
            let last = (first + random.random_range(0..width)).min(KEYS - 1);
            let (low, high) = (self.keys.key(first), self.keys.key(last));
            let mut seen = Seen { keys: self.keys, range: first..last + 1, writes: vec![0; last + 1 - first] };
            let begin = self.now();
            match random.random_range(0..7) {
                0 => session.scan(Range::new(Start::AtOrAbove(&low), End::AtOrBelow(&high)), |k, v| seen.add(k, v)),
                1 => {
                    session
                        .scan_reverse(Range::new(Start::AtOrAbove(&low), End::AtOrBelow(&high)), |k, v| seen.add(k, v));
                }
                2 => scan_floor(&mut session, &low, &high, false, &mut seen),
                3 => scan_floor(&mut session, &low, &high, true, &mut seen),
                4 => scan_ranges(&mut session, &mut random, &mut seen),
                5 => get_all(&mut session, &mut random, &mut seen),
                _ if !scan_pages(&mut session, &mut random, &mut replies, &low, &high, &mut seen) => continue,
                _ => {}
            }
            self.scans.fetch_add(1, Ordering::Relaxed);
            scans.push(history::Scan { keys: seen.range, seen: seen.writes, begin, end: self.now() });
        }
        scans
    }
}

fn write_alone(session: &mut Session<'_>, Planned { key, value, .. }: &Planned) {
    let reply = match value {
        Some(value) => session.put(key, value, PutCondition::Always),
        None => session.delete(key),
    };
    assert_eq!(reply, Reply::Done);
}

fn write_group(session: &mut Session<'_>, planned: &[Planned]) {
    let pair = |planned: &Planned| Some((planned.key.clone(), planned.value.clone()?));
    let pairs: Vec<(Vec<u8>, Vec<u8>)> = planned.iter().filter_map(pair).collect();
    let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    session.put_batch(&pairs, PutCondition::Always, |reply| assert_eq!(reply, Reply::Done));
}

/// Every third write is followed by a read of its key, which has to find it.
fn write_batch(session: &mut Session<'_>, replies: &mut Replies, planned: &[Planned]) {
    let mut requests = Vec::new();
    for (place, Planned { key, value, .. }) in planned.iter().enumerate() {
        let put = |value| Operation::Put { value, condition: PutCondition::Always };
        requests.push(Request { key, operation: value.as_deref().map_or(Operation::Delete, put) });
        if place % 3 == 0 {
            requests.push(Request { key, operation: Operation::Get });
        }
    }
    session.execute(&requests, replies, Instant::now());
    for (place, request) in requests.iter().enumerate() {
        let expected = match (request.operation, place.checked_sub(1).map(|before| requests[before].operation)) {
            (Operation::Get, Some(Operation::Put { value, .. })) => Reply::Value(value),
            (Operation::Get, _) => Reply::NotFound,
            _ => Reply::Done,
        };
        assert_eq!(replies.get(place), expected, "a batch reads its own writes");
    }
}

/// The writes that a scan saw.
struct Seen {
    keys: Keys,
    range: std::ops::Range<usize>,
    writes: Vec<usize>,
}

impl Seen {
    fn add(&mut self, key: &[u8], value: &[u8]) -> bool {
        let place = &mut self.writes[self.keys.number(key) - self.range.start];
        assert_eq!(*place, 0, "a key is shown once");
        *place = write_of(value);
        true
    }
}

/// A scan from the floor of the low key: the range begins there, or with the first key of all.
fn scan_floor(session: &mut Session<'_>, low: &[u8], high: &[u8], reverse: bool, seen: &mut Seen) {
    let range = Range::new(Start::Floor(low), End::AtOrBelow(high));
    let mut found = Vec::new();
    let mut add = |key: &[u8], value: &[u8]| {
        found.push((key.to_vec(), value.to_vec()));
        true
    };
    match reverse {
        false => session.scan(range, &mut add),
        true => session.scan_reverse(range, &mut add),
    }
    let lowest = if reverse { found.last() } else { found.first() }.map(|(key, _)| seen.keys.number(key));
    seen.range.start = lowest.filter(|lowest| *lowest <= seen.range.start).unwrap_or(0);
    seen.writes = vec![0; seen.range.len()];
    found.iter().for_each(|(key, value)| _ = seen.add(key, value));
}

/// The range in a few ranges, which one batch reads in any order.
fn scan_ranges(session: &mut Session<'_>, random: &mut Xoshiro256PlusPlus, seen: &mut Seen) {
    let mut edges: Vec<usize> = (0..5).map(|_| random.random_range(seen.range.clone())).collect();
    edges.extend([seen.range.start, seen.range.end]);
    edges.sort_unstable();
    let edges: Vec<Vec<u8>> = edges.into_iter().map(|number| seen.keys.key(number)).collect();
    let range = |edges: &[Vec<u8>]| (edges[0].clone(), edges[1].clone());
    let mut bounds: Vec<(Vec<u8>, Vec<u8>)> = edges.windows(2).map(range).collect();
    bounds.shuffle(random);
    let range = |(low, high)| Range::new(Start::AtOrAbove(low), End::Below(high));
    let ranges: Vec<Range<'_>> = bounds.iter().map(|(low, high)| range((low, high))).collect();
    session.scan_batch(&ranges, |_, key, value| seen.add(key, value));
}

/// All keys of the range in a batch of gets, in any order.
fn get_all(session: &mut Session<'_>, random: &mut Xoshiro256PlusPlus, seen: &mut Seen) {
    let mut keys: Vec<Vec<u8>> = seen.range.clone().map(|number| seen.keys.key(number)).collect();
    keys.shuffle(random);
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut next = slices.iter();
    session.get_batch(&slices, |value| {
        let key = next.next().expect("as many replies as keys");
        value.map(|value| seen.add(key, value));
    });
    assert_eq!(next.next(), None, "every get is answered");
}

/// The range in pages of one lease. Returns false if the lease expired.
fn scan_pages(
    session: &mut Session<'_>,
    random: &mut Xoshiro256PlusPlus,
    replies: &mut Replies,
    low: &[u8],
    high: &[u8],
    seen: &mut Seen,
) -> bool {
    let whole = Scan {
        start: ScanStart::AtOrAbove,
        end: ScanEnd::AtOrBelow(high),
        reverse: random.random(),
        limit: random.random_range(1..40),
        answer: ScanAnswer::Pairs,
        lease: ScanLease::Open,
    };
    let (mut last, mut lease) = (None::<Vec<u8>>, ScanLease::Open);
    loop {
        let (key, start, end) = match &last {
            None => (low, whole.start, whole.end),
            Some(last) if whole.reverse => (low, whole.start, ScanEnd::Below(last)),
            Some(last) => (&last[..], ScanStart::Above, whole.end),
        };
        let request = Request { key, operation: Operation::Scan(Scan { start, end, lease, ..whole }) };
        session.execute(&[request], replies, Instant::now());
        let page = match replies.get(0) {
            Reply::Value(bytes) => Page::decode(bytes).unwrap(),
            Reply::Failed(_) => return false,
            other => panic!("{other:?}"),
        };
        page.pairs().for_each(|(key, value)| _ = seen.add(key, value));
        if !page.more() {
            return true;
        }
        lease = ScanLease::Continue(page.lease().expect("more follows"));
        last = Some(page.last_key().to_vec());
        if random.random_range(0..3) == 0 {
            thread::yield_now();
        }
    }
}

/// Three threads that write and three that read. Each key belongs to one writer.
fn run(settings: &OrderedSettings, seed: u64, keys: Keys, sizes: &'static [usize]) -> History {
    let store = OrderedStore::new(settings).unwrap();
    let (clock, writers_left) = (AtomicU64::new(0), AtomicU64::new(WRITERS as u64));
    let run = Run { store: &store, keys, sizes, seed, clock, writers_left, scans: AtomicU64::new(0) };
    let mut history = History::default();
    thread::scope(|scope| {
        let writers = [0, 1, 2].map(|writer| {
            scope.spawn({
                let run = &run;
                move || run.write(writer)
            })
        });
        let scanners = [0, 1, 2].map(|scanner| {
            scope.spawn({
                let run = &run;
                move || run.scan(scanner)
            })
        });
        history.writes.extend(writers.into_iter().flat_map(|thread| thread.join().unwrap()));
        history.scans.extend(scanners.into_iter().flat_map(|thread| thread.join().unwrap()));
    });
    let checked = store.session().unwrap().check();
    let figures = store.statistics();
    assert_eq!(figures.garbage_bytes, 0, "nothing is kept");
    assert_eq!(figures.space.lids_used, checked.leaves + checked.interior_nodes, "LIDs are in the tree");
    history
}

fn settings(log_block: LogBlock, mvcc: bool) -> OrderedSettings {
    OrderedSettings { log_block, mvcc, ..OrderedSettings::new(256 << 20) }
}

/// The default, one of few entries, and the largest there is.
fn log_blocks() -> [LogBlock; 3] {
    let block = |size, count| LogBlock::new(size, count).unwrap();
    [LogBlock::default(), block(200, 16), block(LogBlock::SIZE_MAX, LogBlock::ENTRY_COUNT_MAX)]
}

fn seeds() -> Vec<u64> {
    naive::seeds(&[1])
}

/// Runs a history of every kind of keys, values and log blocks.
fn for_all_kinds(mvcc: bool, is_valid: impl Fn(&History) -> bool) {
    for seed in seeds() {
        println!("seed {seed}");
        for keys in Keys::ALL {
            for sizes in SIZES {
                for log_block in log_blocks() {
                    let history = run(&settings(log_block, mvcc), seed, keys, sizes);
                    let (writes, scans) = (history.writes.len(), history.scans.len());
                    println!("{keys:?} {sizes:?} {log_block:?}: {writes} writes, {scans} scans");
                    assert!(scans as u64 >= SCANS, "scans ran beside the writes");
                    assert!(is_valid(&history), "seed {seed}: {keys:?} {sizes:?} {log_block:?}");
                }
            }
        }
    }
}

#[test]
fn histories_of_small_pairs_are_linearizable() {
    for_all_kinds(true, |history| history.is_linearizable(KEYS));
}

/// Each key for itself; leases are refused.
#[test]
fn every_key_is_linearizable_without_versions() {
    for_all_kinds(false, |history| history.key_by_key().is_linearizable(KEYS));
}

#[test]
fn control_reads_without_versions_are_caught() {
    let history = |seed| run(&settings(LogBlock::default(), false), seed, Keys::Plain, SIZES[0]);
    let caught = (1..=20).any(|seed| !history(seed).is_linearizable(KEYS));
    assert!(caught, "reads that ignore versions were taken for linearizable");
}
