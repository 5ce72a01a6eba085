//! Reads the store while a writer is stopped before each change of the page table: a write takes effect at one moment.
//!
//! ```text
//! one write       ──┤ stop ├──┤ stop ├──┤ stop ├── returns
//! all are read       before     before    after      after        before, then after, and never before again
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{PutCondition, Reply};
use skep_store::counted::ordered::{End, LogBlock, OrderedSettings, OrderedStore, Range, Session, Start};
use skep_store::counted::{Observer, observed};
use skep_store::naive::seeds;

const SEEDS: [u64; 3] = [1, 20_171_028, 0x5eed_5eed_5eed_5eed];

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Reads the whole store each time before the page table changes.
#[derive(Debug, Default)]
struct ReadAtStops {
    store: OnceLock<Weak<OrderedStore>>,
    /// Every key that was ever written.
    keys: Mutex<Vec<Vec<u8>>>,
    /// The results of reads since the last write returned, in order.
    seen: Mutex<Vec<(&'static str, Map)>>,
}

impl Observer for ReadAtStops {
    fn touch(&self, _offset: usize, _size: usize) {}

    fn before_publish(&self) {
        // None while the store is made.
        if let Some(store) = self.store.get().and_then(Weak::upgrade) {
            let seen = read_all(&mut store.session().unwrap(), &self.keys.lock().unwrap());
            self.seen.lock().unwrap().extend(seen);
        }
    }
}

/// All pairs, read in every way. Of the ways that go along the leaves and those that descend one follows the other, so that
/// each of them sees whether the others were too early.
fn read_all(session: &mut Session<'_>, keys: &[Vec<u8>]) -> [(&'static str, Map); 6] {
    let [mut forwards, mut gets, mut again, mut backwards, mut batch, mut ranges] = [(); 6].map(|()| Map::new());
    let put = |map: &mut Map, key: &[u8], value: &[u8]| map.insert(key.to_vec(), value.to_vec()).is_none();
    session.scan(Range::ALL, |key, value| put(&mut forwards, key, value));
    for key in keys {
        let mut value = Vec::new();
        if session.get(key, &mut value) {
            gets.insert(key.clone(), value);
        }
    }
    session.scan(Range::ALL, |key, value| put(&mut again, key, value));
    session.scan_reverse(Range::ALL, |key, value| put(&mut backwards, key, value));
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut next = slices.iter();
    session.get_batch(&slices, |value| {
        let key = next.next().unwrap();
        value.map(|value| put(&mut batch, key, value));
    });
    let middle = slices.get(slices.len() / 2).copied().unwrap_or_default();
    let halves = [Range::new(Start::First, End::Below(middle)), Range::new(Start::AtOrAbove(middle), End::Last)];
    session.scan_batch(&halves, |_, key, value| put(&mut ranges, key, value));
    [
        ("a scan", forwards),
        ("single gets", gets),
        ("a scan after the gets", again),
        ("a reverse scan", backwards),
        ("a batch of gets", batch),
        ("a batch of scans", ranges),
    ]
}

/// The sizes of keys and values, and the log block.
struct Case {
    key_size: usize,
    value_sizes: &'static [usize],
    key_count: u16,
    log_block: LogBlock,
}

/// Random puts and deletes, growing and shrinking by turns. Returns how often the page table changed, the most leaves and
/// the greatest height.
fn run(case: &Case, mvcc: bool, seed: u64) -> (usize, u64, u32) {
    let settings = OrderedSettings { mvcc, log_block: case.log_block, ..OrderedSettings::new(64 << 20) };
    let observer = Arc::new(ReadAtStops::default());
    let store = Arc::new(observed(&settings, observer.clone()).unwrap());
    observer.store.set(Arc::downgrade(&store)).unwrap();
    let mut session = store.session().unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut before = Map::new();
    let (mut stops, mut leaves, mut height) = (0, 0, 0);
    for operation in 0..8 * case.key_count {
        let mut key = vec![b'k'; case.key_size - 2];
        key.extend_from_slice(&random.random_range(0..case.key_count).to_be_bytes());
        let puts = if (operation / (2 * case.key_count)).is_multiple_of(2) { 80 } else { 20 };
        let mut after = before.clone();
        let reply = if random.random_range(0..100) < puts {
            let value = vec![operation as u8; case.value_sizes[random.random_range(0..case.value_sizes.len())]];
            after.insert(key.clone(), value.clone());
            let mut keys = observer.keys.lock().unwrap();
            if let Err(index) = keys.binary_search(&key) {
                keys.insert(index, key.clone());
            }
            drop(keys);
            session.put(&key, &value, PutCondition::Always)
        } else {
            let exists = after.remove(&key).is_some();
            let reply = session.delete(&key);
            if exists { reply } else { Reply::Done }
        };
        assert_eq!(reply, Reply::Done);
        let mut seen = std::mem::take(&mut *observer.seen.lock().unwrap());
        stops += seen.len() / 6;
        seen.extend(read_all(&mut session, &observer.keys.lock().unwrap()));
        let mut is_after = false;
        for (index, (way, map)) in seen.iter().enumerate() {
            let context = || format!("seed {seed}, versions {mvcc}, operation {operation}, stop {}, {way}", index / 6);
            assert!(*map == before || *map == after, "{}: neither before the write nor after it", context());
            assert!(!is_after || *map == after, "{}: a write that was seen has disappeared", context());
            is_after |= before != after && *map == after;
        }
        assert!(seen.last().is_some_and(|(_, map)| *map == after), "seed {seed}: a write that returned is not there");
        before = after;
        if operation % 16 == 0 {
            leaves = leaves.max(session.check().leaves);
            height = height.max(store.statistics().height);
        }
    }
    session.check();
    (stops, leaves, height)
}

/// Without versions too: a scan once found a pair in a new leaf by the sibling of the old one, before the parent led there.
#[test]
fn a_write_that_was_seen_does_not_disappear() {
    let default = LogBlock::default();
    let none = LogBlock::new(LogBlock::SIZE_MIN, 0).unwrap();
    let large = LogBlock::new(LogBlock::SIZE_MAX, LogBlock::ENTRY_COUNT_MAX).unwrap();
    for seed in seeds(&SEEDS) {
        println!("seed {seed}");
        for mvcc in [false, true] {
            for log_block in [default, none, large] {
                let wide = Case { key_size: 8, value_sizes: &[400], key_count: 80, log_block };
                let (stops, leaves, _) = run(&wide, mvcc, seed);
                assert!(stops > 50 && leaves > 3, "leaves were split and joined: {stops} {leaves}");
                let mixed = Case { key_size: 12, value_sizes: &[0, 8, 40, 469, 600], key_count: 100, log_block };
                let (stops, leaves, _) = run(&mixed, mvcc, seed);
                assert!(stops > 50 && leaves > 1, "leaves were split and joined: {stops} {leaves}");
            }
            let high = Case { key_size: 460, value_sizes: &[300, 469], key_count: 180, log_block: default };
            let (stops, _, height) = run(&high, mvcc, seed);
            assert!(stops > 200 && height > 2, "interior nodes were divided and joined: {stops} {height}");
        }
    }
}

/// Deletes a key when a number of lines have been read.
#[derive(Debug, Default)]
struct DeleteWhileReading {
    store: OnceLock<Weak<OrderedStore>>,
    reads_left: AtomicU64,
}

const FLOOR: &[u8] = b"key-000030";

impl Observer for DeleteWhileReading {
    fn touch(&self, _offset: usize, _size: usize) {
        if self.reads_left.fetch_sub(1, Ordering::Relaxed) == 1
            && let Some(store) = self.store.get().and_then(Weak::upgrade)
        {
            assert_eq!(store.session().unwrap().delete(FLOOR), Reply::Done);
        }
    }
}

/// The next lower key is the floor then: a reverse scan once looked for the floor first, and ended above all that is left.
#[test]
fn a_scan_shows_a_floor_while_that_key_is_deleted() {
    let observer = Arc::new(DeleteWhileReading::default());
    let settings = OrderedSettings { mvcc: false, ..OrderedSettings::new(64 << 20) };
    let store = Arc::new(observed(&settings, observer.clone()).unwrap());
    observer.store.set(Arc::downgrade(&store)).unwrap();
    let mut session = store.session().unwrap();
    for number in 0..100 {
        let key = format!("key-{:06}", 10 * number);
        assert_eq!(session.put(key.as_bytes(), &[1; 400], PutCondition::Always), Reply::Done);
    }
    for reverse in [false, true] {
        let mut reads = 0;
        while {
            reads += 1;
            assert_eq!(session.put(FLOOR, &[1; 400], PutCondition::Always), Reply::Done);
            observer.reads_left.store(reads, Ordering::Relaxed);
            let mut keys = Vec::new();
            let range = Range::new(Start::Floor(b"key-000035"), End::AtOrBelow(b"key-000900"));
            let mut f = |key: &[u8], _: &[u8]| {
                keys.push(key.to_vec());
                true
            };
            match reverse {
                false => session.scan(range, &mut f),
                true => session.scan_reverse(range, &mut f),
            }
            keys.sort();
            assert!([FLOOR, b"key-000020"].contains(&&keys[0][..]), "reverse {reverse}, after {reads} reads: {keys:?}");
            assert!(keys.iter().filter(|key| key.as_slice() > FLOOR).count() == 87, "reverse {reverse}: {keys:?}");
            // Until the scan ends before the key is deleted.
            let is_left = observer.reads_left.swap(0, Ordering::Relaxed) <= reads;
            !is_left
        } {}
        assert!(reads > 100, "{reads} reads");
    }
}
