//! Real threads on one tree: histories of scans, what is left at the end, and readers beside a writer that has stopped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::super::key_head::Target;
use super::super::leaf::cursor::Seen;
use super::super::version::clock::Snapshot;
use super::super::{End, OrderedSettings, OrderedStore, Range, Session, Start};
use super::history::{History, Scan, Write};
use crate::naive::{SplitMix64, test_seeds};
use skep_core::operation::{PutCondition, Reply};

pub(super) const KEY_COUNT: usize = 240;
/// Long, so that a leaf holds a dozen pairs, and splits and merges are frequent.
const VALUE_SIZE: usize = 400;

fn key_of(number: usize) -> [u8; 16] {
    let mut key = *b"stress-key-00000";
    key[11..].copy_from_slice(format!("{number:05}").as_bytes());
    key
}

fn number_of(key: &[u8]) -> usize {
    std::str::from_utf8(&key[11..]).unwrap().parse().unwrap()
}

/// The value of a write: its number, over and over, so that a torn value shows.
fn value_of(write: usize) -> Vec<u8> {
    (write as u32).to_le_bytes().repeat(VALUE_SIZE / 4)
}

fn write_of(value: &[u8]) -> usize {
    let first = &value[..4];
    assert!(value.len() == VALUE_SIZE && value.chunks(4).all(|part| part == first), "a value is not torn");
    u32::from_le_bytes(first.try_into().unwrap()) as usize
}

fn store(memory: u64) -> OrderedStore {
    OrderedStore::new(&OrderedSettings::new(memory)).unwrap()
}

/// The scan of a scanning thread.
pub(super) type ScanWith = fn(&mut Session<'_>, Range<'_>, &mut dyn FnMut(&[u8], &[u8]));

pub(super) fn scan_as_it_is(session: &mut Session<'_>, range: Range<'_>, f: &mut dyn FnMut(&[u8], &[u8])) {
    session.scan(range, |key, value| {
        f(key, value);
        true
    });
}

pub(super) fn scan_backwards(session: &mut Session<'_>, range: Range<'_>, f: &mut dyn FnMut(&[u8], &[u8])) {
    session.scan_reverse(range, |key, value| {
        f(key, value);
        true
    });
}

/// Broken: reads the newest state of each leaf, as a tree without versions does. It makes room for writers now and then,
/// also where cores are few.
fn scan_without_versions(session: &mut Session<'_>, range: Range<'_>, f: &mut dyn FnMut(&[u8], &[u8])) {
    let (store, guard) = session.enter();
    store.scan(range, Snapshot::ALL, &guard, |key, seen| {
        let Seen::Pair(value) = seen else { return true };
        f(key, value.bytes);
        if number_of(key).is_multiple_of(8) {
            thread::yield_now();
        }
        true
    });
}

/// Returns a history in which leaves were split. If one writer is far ahead of the other, fewer keys exist at a time, and
/// there are fewer leaves: such a run says less, so there is another one.
pub(super) fn run_history(settings: &OrderedSettings, seed: u64, write_count: usize, scan_with: ScanWith) -> History {
    let mut lids = Vec::new();
    for _ in 0..8 {
        let (history, lid_count) = run_once(settings, seed, write_count, scan_with);
        lids.push(lid_count);
        if lid_count > 20 {
            return history;
        }
    }
    panic!("seed {seed}: leaves were not split: {lids:?} nodes");
}

/// Two threads that write and two that scan. Each key belongs to one writer. Returns their history, and the most nodes that
/// the tree had.
fn run_once(settings: &OrderedSettings, seed: u64, write_count: usize, scan_with: ScanWith) -> (History, u64) {
    let store = OrderedStore::new(settings).unwrap();
    let clock = AtomicU64::new(0);
    let now = || clock.fetch_add(1, Ordering::SeqCst);
    let writers_left = AtomicU64::new(2);
    let write = |writer: usize| {
        let mut random = SplitMix64::stream(seed, writer as u64);
        let mut session = store.session().unwrap();
        let mut counts = [0_usize; KEY_COUNT];
        let mut exists = [false; KEY_COUNT];
        let mut writes = Vec::new();
        for _ in 0..write_count {
            // Now and then the same part of the keys, so that leaves fill and empty.
            let part = writes.len() / 500 % 4 * (KEY_COUNT / 4);
            let number = (part + random.below(KEY_COUNT as u64 / 2) as usize) % KEY_COUNT / 2 * 2 + writer;
            let is_delete = exists[number] && random.chance(1, 2);
            counts[number] += 1;
            exists[number] = !is_delete;
            let begin = now();
            let reply = match is_delete {
                true => session.delete(&key_of(number)),
                false => session.put(&key_of(number), &value_of(counts[number]), PutCondition::Always),
            };
            assert_eq!(reply, Reply::Done, "seed {seed}");
            writes.push(Write { key: number, is_delete, begin, end: now() });
        }
        writers_left.fetch_sub(1, Ordering::SeqCst);
        writes
    };
    let scan = |scanner: usize| {
        let mut random = SplitMix64::stream(seed, 10 + scanner as u64);
        let mut session = store.session().unwrap();
        let mut scans = Vec::new();
        // Not for ever: a writer may have failed.
        while writers_left.load(Ordering::SeqCst) > 0 && scans.len() < 10 * write_count {
            let first = random.below(KEY_COUNT as u64) as usize;
            let last = (first + random.below(80) as usize).min(KEY_COUNT - 1);
            let mut seen = vec![0; last + 1 - first];
            let (low, high) = (key_of(first), key_of(last));
            let begin = now();
            let range = Range::new(Start::AtOrAbove(&low), End::AtOrBelow(&high));
            scan_with(&mut session, range, &mut |key, value| {
                let shown = &mut seen[number_of(key) - first];
                assert_eq!(*shown, 0, "a key is shown once");
                *shown = write_of(value);
            });
            scans.push(Scan { keys: first..last + 1, seen, begin, end: now() });
        }
        scans
    };
    let mut history = History::default();
    thread::scope(|scope| {
        let writers = [0, 1].map(|writer| scope.spawn(move || write(writer)));
        let scanners = [0, 1].map(|scanner| scope.spawn(move || scan(scanner)));
        history.writes.extend(writers.into_iter().flat_map(|thread| thread.join().unwrap()));
        history.scans.extend(scanners.into_iter().flat_map(|thread| thread.join().unwrap()));
    });
    store.session().unwrap().check();
    (history, store.statistics().space.lids)
}

#[test]
fn scans_are_linearizable() {
    for seed in test_seeds() {
        for scan_with in [scan_as_it_is as ScanWith, scan_backwards] {
            let history = run_history(&OrderedSettings::new(64 << 20), seed, 20_000, scan_with);
            println!("seed {seed}: {} writes, {} scans", history.writes.len(), history.scans.len());
            assert!(history.scans.len() > 100);
            assert!(history.is_linearizable(KEY_COUNT), "seed {seed}");
        }
    }
}

#[test]
fn control_scans_without_versions_are_caught() {
    let settings = OrderedSettings::new(64 << 20);
    let history = |seed| run_history(&settings, seed, 20_000, scan_without_versions);
    let caught = (1..=100).any(|seed| !history(seed).is_linearizable(KEY_COUNT));
    assert!(caught, "scans that ignore versions were taken for linearizable");
}

/// Threads that write keys of their own.
const THREADS: u64 = 4;

/// Writes keys that no other thread writes, and reads them. Returns what it left.
fn write_own_keys(store: &OrderedStore, seed: u64, writer: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut random = SplitMix64::stream(seed, writer);
    let mut session = store.session().unwrap();
    let mut map = BTreeMap::new();
    let mut value = Vec::new();
    let key_of = |number: u64| {
        let scattered = (number * THREADS + writer).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [&scattered.to_be_bytes()[..], &[7; 8][..]].concat()
    };
    for operation in 0..150_000_u64 {
        let key = key_of(random.below(40_000));
        // Growing in the first half, shrinking in the second.
        let puts = if operation < 75_000 { 70 } else { 20 };
        if random.below(1000) < puts {
            let new = vec![operation as u8; random.within(0..=40)];
            let pairs: Vec<_> = (0..50).map(|_| (key_of(random.below(40_000)), new.clone())).collect();
            let slices: Vec<(&[u8], &[u8])> = pairs.iter().map(|(key, new)| (&key[..], &new[..])).collect();
            session.put_batch(&slices, PutCondition::Always, |reply| assert_eq!(reply, Reply::Done));
            map.extend(pairs);
        } else if random.below(100) < puts {
            let size = if random.chance(1, 50) { random.within(470..=9000) } else { random.within(0..=40) };
            let new = vec![operation as u8; size];
            assert_eq!(session.put(&key, &new, PutCondition::Always), Reply::Done);
            map.insert(key, new);
        } else if random.chance(1, 3) {
            let expected = if map.remove(&key).is_some() { Reply::Done } else { Reply::NotFound };
            assert_eq!(session.delete(&key), expected, "seed {seed} writer {writer}");
        } else {
            value.clear();
            let found = session.get(&key, &mut value);
            assert_eq!(found.then_some(&value), map.get(&key), "seed {seed} writer {writer}: reads its writes");
        }
    }
    map
}

/// Threads write keys of their own, all over the tree; at the end it holds what they left.
#[test]
fn nothing_is_lost_between_threads() {
    for seed in test_seeds() {
        println!("seed {seed}");
        let store = store(512 << 20);
        let done = AtomicBool::new(false);
        let scan = || {
            let mut session = store.session().unwrap();
            let mut scans = 0;
            while !done.load(Ordering::Relaxed) && scans < 100_000 {
                let mut last = Vec::new();
                session.scan(Range::ALL, |key, _| {
                    assert!(last.as_slice() < key, "keys ascend");
                    last = key.to_vec();
                    true
                });
                scans += 1;
            }
            scans
        };
        let (mut expected, store) = (BTreeMap::new(), &store);
        thread::scope(|scope| {
            let writers: Vec<_> =
                (0..THREADS).map(|writer| scope.spawn(move || write_own_keys(store, seed, writer))).collect();
            let scanner = scope.spawn(scan);
            writers.into_iter().for_each(|writer| expected.extend(writer.join().unwrap()));
            done.store(true, Ordering::Relaxed);
            assert!(scanner.join().unwrap() > 0);
        });
        let mut session = store.session().unwrap();
        let mut left = BTreeMap::new();
        session.scan(Range::ALL, |key, value| {
            left.insert(key.to_vec(), value.to_vec());
            true
        });
        assert!(left == expected, "seed {seed}: {} pairs of {}", left.len(), expected.len());
        let checked = session.check();
        let figures = store.statistics();
        assert_eq!(figures.garbage_bytes, 0, "no operation is in flight");
        assert_eq!(figures.space.lids_used, checked.leaves + checked.interior_nodes, "LIDs are in the tree");
    }
}

/// Many inserts of the same few keys by several threads: exactly one of each succeeds.
#[test]
fn one_insert_of_a_key_succeeds() {
    let store = store(64 << 20);
    let inserted = AtomicU64::new(0);
    let insert = || {
        let mut session = store.session().unwrap();
        for number in 0..20_000_usize {
            match session.put(&key_of(number), b"", PutCondition::IfAbsent) {
                Reply::Done => drop(inserted.fetch_add(1, Ordering::Relaxed)),
                reply => {
                    assert_eq!(reply, Reply::Exists);
                    assert!(session.get(&key_of(number), &mut Vec::new()), "who is told that it exists can read it");
                }
            }
        }
    };
    thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(insert)));
    });
    assert_eq!(inserted.into_inner(), 20_000);
}

/// A writer that stops while it holds locks, and even after it has taken a version, delays no reader.
#[test]
fn a_stopped_writer_delays_no_reader() {
    let store = store(64 << 20);
    let mut session = store.session().unwrap();
    for number in 0..2_000 {
        assert_eq!(session.put(&key_of(number), &value_of(1), PutCondition::Always), Reply::Done);
    }
    let mut stopped = store.reclaimer.epochs.join().unwrap();
    let guard = stopped.enter();
    let locked: Vec<_> = (0..2_000)
        .step_by(5)
        .filter_map(|number| store.find_leaf(Target::AtOrBelow(&key_of(number)), u64::MAX, &guard).try_lock())
        .collect();
    assert!(locked.len() > 100, "leaves are locked");
    let version = store.versions.allocate();
    let read_all = || {
        let mut session = store.session().unwrap();
        for number in 0..2_000 {
            let mut value = Vec::new();
            assert!(session.get(&key_of(number), &mut value) && write_of(&value) == 1);
        }
        let mut count = 0;
        session.scan(Range::ALL, |_, _| {
            count += 1;
            true
        });
        count
    };
    assert_eq!(thread::scope(|scope| scope.spawn(read_all).join().unwrap()), 2_000);
    store.versions.publish(version);
    drop(locked);
    drop(guard);
    session.check();
}

/// It once opened the lock of the other writer, whose entry was then overwritten.
#[test]
fn failing_to_lock_a_leaf_leaves_it_locked() {
    let store = store(1 << 20);
    let mut participant = store.reclaimer.epochs.join().unwrap();
    let guard = participant.enter();
    let leaf = store.find_leaf(Target::Last, u64::MAX, &guard);
    let locked = leaf.try_lock().unwrap();
    assert!(leaf.try_lock().is_none());
    assert!(leaf.frame().open().state().is_locked());
    drop(locked);
    assert!(!leaf.frame().open().state().is_locked());
}
