//! The costs of the ordered store: lines of a lookup, memory of a load in random order, memory after many overwrites.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{PutCondition, Reply};
use skep_store::counted::{LinesTouched, observed};
use skep_store::ordered::{End, OrderedSettings, OrderedStore, Range, Session, Start};

type Part = [u8; 16];

/// The paper's figure for 16 + 16 bytes.
const MEMORY_PER_RAW_BYTE_MAX: f64 = 1.44;

fn keys(seed: u64, count: usize) -> Vec<Part> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..count).map(|_| random.random()).collect()
}

fn put(session: &mut Session<'_>, key: &Part, value: &[u8]) {
    assert_eq!(session.put(key, value, PutCondition::Always), Reply::Done);
}

/// Bytes of the region that were handed out, and of the page table.
fn memory_of(store: &OrderedStore) -> u64 {
    let space = store.statistics().space;
    space.touched_bytes + space.lids * size_of::<u32>() as u64
}

#[test]
fn a_lookup_reads_few_lines() {
    reads_few_lines(&keys(3, 200_000));
}

#[test]
fn a_lookup_of_keys_that_begin_alike_reads_no_more() {
    let mut keys = keys(3, 200_000);
    keys.iter_mut().for_each(|key| key[..5].copy_from_slice(b"user:"));
    reads_few_lines(&keys);
}

fn reads_few_lines(keys: &[Part]) {
    let touched = Arc::new(LinesTouched::default());
    let settings = skep_store::counted::ordered::OrderedSettings::new(256 << 20);
    let store = observed(&settings, touched.clone()).unwrap();
    let mut session = store.session().unwrap();
    keys.iter().for_each(|key| assert_eq!(session.put(key, key, PutCondition::Always), Reply::Done));
    touched.take();
    let sample = &keys[..20_000];
    let mut lines = 0;
    for key in sample {
        assert!(session.get(key, &mut Vec::new()));
        lines += touched.take().lines;
    }
    let height = f64::from(store.statistics().height);
    let lines = lines as f64 / sample.len() as f64;
    let mut scan_lines = 0;
    for key in &sample[..2_000] {
        session.scan(Range::new(Start::AtOrAbove(key), End::Last).limit(24), |_, _| true);
        scan_lines += touched.take().lines;
    }
    let scan_lines = scan_lines as f64 / 2_000.0;
    println!("{lines:.2} lines a get, {scan_lines:.2} a scan of 24, height {height}");
    // Of an interior level: page table, header, shortcuts, hints, segment. Of the leaf: page table, header, shortcuts, head of
    // a segment, item; and now and then a boundary key, or the log.
    assert!(lines < 5.0 * (height - 1.0) + 6.25, "{lines} lines a get");
    // The paper's 1.5 KB for each node are 24 lines.
    assert!(lines < 24.0 * height);
    // 24 pairs are 12 lines; heads of segments, boundary keys and entries of the log are the others.
    assert!(scan_lines < lines + 20.0, "{scan_lines} lines a scan");
}

#[test]
fn a_load_in_random_order_takes_little_memory() {
    let store = OrderedStore::new(&OrderedSettings::new(1 << 30)).unwrap();
    let mut session = store.session().unwrap();
    let keys = keys(4, 1_000_000);
    keys.iter().for_each(|key| put(&mut session, key, key));
    session.collect();
    let per_raw_byte = memory_of(&store) as f64 / (32 * keys.len()) as f64;
    println!("{per_raw_byte:.3} bytes for each raw byte, {:?}", store.statistics());
    assert!(per_raw_byte <= MEMORY_PER_RAW_BYTE_MAX, "{per_raw_byte}");
}

#[test]
fn overwriting_for_long_takes_no_more_memory() {
    const PAIRS: usize = 100_000;
    let store = OrderedStore::new(&OrderedSettings::new(1 << 30)).unwrap();
    let mut session = store.session().unwrap();
    let keys = keys(5, PAIRS);
    keys.iter().for_each(|key| put(&mut session, key, key));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(6);
    let mut after_first = 0;
    for round in 0..100_u8 {
        for _ in 0..PAIRS {
            put(&mut session, &keys[random.random_range(0..PAIRS)], &[round; 16]);
        }
        session.collect();
        if round == 9 {
            after_first = memory_of(&store);
        }
    }
    let checked = session.check();
    assert_eq!(checked.pairs, PAIRS as u64);
    let after_all = memory_of(&store);
    println!("{after_first} bytes after 10 rounds, {after_all} after 100, {:?}", store.statistics());
    assert!(after_all <= after_first + after_first / 10, "memory grows: {after_first}, then {after_all}");
    assert_eq!(store.statistics().garbage_bytes, 0);
}
