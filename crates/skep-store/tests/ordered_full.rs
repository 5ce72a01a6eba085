//! The ordered store when its memory is full: what cannot fail does not, and memory that was freed serves every size.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{OperationError, PutCondition, Reply};
use skep_store::naive::seeds;
use skep_store::ordered::{OrderedSettings, OrderedStore, Range, Session};

const FULL: Reply<'static> = Reply::Failed(OperationError::NodesFull);
const MIB: u64 = 1 << 20;

/// Sizes of values within nodes, at the border, and in frames of their own, one and many.
const SIZES: [usize; 11] = [16, 100, 400, 469, 500, 1000, 4000, 8000, 10_000, 1 << 16, 1 << 20];

type Key = [u8; 16];

fn seed() -> u64 {
    seeds(&[61])[0]
}

fn store(memory: u64) -> OrderedStore {
    OrderedStore::new(&OrderedSettings::new(memory)).unwrap()
}

/// Puts a pair. False if there is no memory for it.
fn put(session: &mut Session<'_>, key: &Key, value: &[u8]) -> bool {
    let reply = session.put(key, value, PutCondition::Always);
    assert!(reply == Reply::Done || reply == FULL, "{reply:?}");
    reply == Reply::Done
}

/// Puts pairs with random keys until this many in a row are refused. Returns the keys that were put.
fn fill(session: &mut Session<'_>, random: &mut Xoshiro256PlusPlus, size: usize, refused_max: u32) -> Vec<Key> {
    let (mut keys, mut refused) = (Vec::new(), 0);
    let value = vec![7; size];
    while refused < refused_max {
        let key: Key = random.random();
        if put(session, &key, &value) {
            keys.push(key);
            refused = 0;
        } else {
            refused += 1;
        }
    }
    keys
}

fn delete_all(session: &mut Session<'_>, keys: &[Key], context: &str) {
    for (place, key) in keys.iter().enumerate() {
        assert_eq!(session.delete(key), Reply::Done, "{context}: delete {place} of {}", keys.len());
    }
}

#[test]
fn a_full_store_can_be_emptied_and_filled_again() {
    let seed = seed();
    println!("seed {seed}");
    for size in SIZES {
        for refused_max in [1, 1000] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let store = store(if size > 1 << 16 { 32 * MIB } else { 8 * MIB });
            let mut session = store.session().unwrap();
            let context = format!("seed {seed}, values of {size}, {refused_max} refused");
            let mut first_count = 0;
            for round in 0..3 {
                let mut keys = fill(&mut session, &mut random, size, refused_max);
                if round == 0 {
                    first_count = keys.len();
                }
                println!("{context}: {} pairs fit, {:?}", keys.len(), store.statistics().space);
                // Of sequences of keys some fill leaves better than others.
                assert!(keys.len() * 100 >= first_count * 95, "{context}: {} of {first_count}", keys.len());
                keys.shuffle(&mut random);
                delete_all(&mut session, &keys, &context);
                let checked = session.check();
                assert_eq!((checked.pairs, checked.leaves), (0, 1), "{context}");
                assert_eq!(
                    store.statistics().space.used_bytes,
                    checked.frame_bytes,
                    "{context}: nothing else is in use"
                );
            }
        }
    }
}

/// Keys in order, deleted in either order: leaves are emptied one after the other.
#[test]
fn a_store_that_was_filled_in_order_can_be_emptied() {
    for (size, reverse) in [(16, false), (16, true), (500, false), (500, true), (9000, false)] {
        let store = store(4 * MIB);
        let mut session = store.session().unwrap();
        let mut keys: Vec<Key> = Vec::new();
        loop {
            let key = (keys.len() as u128).to_be_bytes();
            if !put(&mut session, &key, &vec![1; size]) {
                break;
            }
            keys.push(key);
        }
        if reverse {
            keys.reverse();
        }
        delete_all(&mut session, &keys, &format!("values of {size}, reverse {reverse}"));
        assert_eq!(session.check().pairs, 0);
    }
}

/// Returns how many pairs of a size fit a store from which most pairs were deleted, as a part of those that fit an empty
/// one.
fn share_that_fits(memory: u64, first: usize, then: usize, empty_count: usize, seed: u64) -> f64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let store = store(memory);
    let mut session = store.session().unwrap();
    let mut keys: Vec<Key> = Vec::new();
    let value = vec![1; first];
    while store.statistics().space.used_bytes < memory / 100 * 90 {
        let key: Key = random.random();
        if !put(&mut session, &key, &value) {
            break;
        }
        keys.push(key);
    }
    for (place, key) in keys.iter().enumerate() {
        if place % 64 != 0 {
            assert_eq!(session.delete(key), Reply::Done, "values of {first}: delete {place} of {}", keys.len());
        }
    }
    let count = fill(&mut session, &mut random, then, 200).len();
    session.check();
    count as f64 / empty_count as f64
}

fn every_size_is_served(memory: u64, sizes: &[usize], share_min: f64) {
    let seed = seed();
    println!("seed {seed}");
    for then in sizes {
        let store = store(memory);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed + 1);
        let empty_count = fill(&mut store.session().unwrap(), &mut random, *then, 200).len();
        for first in sizes {
            let share = share_that_fits(memory, *first, *then, empty_count, seed);
            println!("{memory} B: values of {first}, then of {then}: {:.1} % of {empty_count}", 100.0 * share);
            assert!(share >= share_min, "seed {seed}: values of {first}, then of {then}: {share}");
        }
    }
}

#[test]
fn memory_that_one_size_freed_serves_every_other() {
    every_size_is_served(16 * MIB, &[16, 100, 400, 469, 500, 1000, 4000, 8000, 1 << 16], 0.85);
}

#[test]
fn memory_that_one_size_freed_serves_every_other_in_a_larger_region() {
    every_size_is_served(64 * MIB, &[16, 500, 3000, 1 << 20], 0.85);
}

/// Every second value of one granule is deleted: no two free granules are side by side.
#[test]
fn memory_that_was_freed_in_the_smallest_pieces_serves_the_largest_frames() {
    let seed = seed();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let store = store(16 * MIB);
    let mut session = store.session().unwrap();
    let keys = fill(&mut session, &mut random, 500, 1);
    let gone: Vec<Key> = keys.iter().copied().step_by(2).collect();
    delete_all(&mut session, &gone, "every second value");
    let freed = gone.len() as u64 * 512;
    let count = fill(&mut session, &mut random, 8000, 200).len() as u64;
    println!("seed {seed}: {freed} bytes were freed, {count} values of 8000 B fit");
    assert!(count * 8192 >= freed * 8 / 10, "seed {seed}: {count} values in {freed} bytes");
    session.check();
}

#[test]
fn a_region_of_any_size_recycles_its_memory() {
    for extra in [0, 512, 2048, 4096, 100_000] {
        let store = store(64 * MIB + extra);
        let mut session = store.session().unwrap();
        for size in [3000, 5000, 3000, 8000, 1000, 3000] {
            let mut count = 0_u128;
            while put(&mut session, &count.to_be_bytes(), &vec![1; size]) {
                count += 1;
            }
            assert!(count * size as u128 > u128::from(60 * MIB) * 8 / 10, "64 MiB + {extra}: {count} values of {size}");
            (0..count).for_each(|key| assert_eq!(session.delete(&key.to_be_bytes()), Reply::Done));
        }
        session.check();
    }
}

#[test]
fn values_of_a_full_store_are_overwritten_by_others_of_their_size() {
    let seed = seed();
    println!("seed {seed}");
    for size in SIZES {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let store = store(if size > 1 << 16 { 32 * MIB } else { 8 * MIB });
        let mut session = store.session().unwrap();
        let keys = fill(&mut session, &mut random, size, 100);
        let mut value = vec![0; size];
        let mut latest = BTreeMap::new();
        for round in 0..(20_000_000 / (size as u32 + 1000)) {
            let key = keys[random.random_range(0..keys.len())];
            value.fill(round as u8);
            assert!(put(&mut session, &key, &value), "seed {seed}, values of {size}: overwrite {round}");
            latest.insert(key, round as u8);
        }
        let checked = session.check();
        assert_eq!(checked.pairs, keys.len() as u64);
        for (key, byte) in latest {
            value.clear();
            assert!(session.get(&key, &mut value) && value == vec![byte; size], "seed {seed}, values of {size}");
        }
    }
}

/// Overwrites of several sizes leave free runs that none of them fits: these must not use up what deletes need.
#[test]
fn a_full_store_of_several_sizes_is_overwritten_and_emptied() {
    let seed = seed();
    println!("seed {seed}");
    for sizes in [&[500][..], &[8000, 500, 3000], &[500, 40, 700, 200]] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let store = store(32 * MIB);
        let mut session = store.session().unwrap();
        let mut sizes_of = BTreeMap::new();
        let mut refused = 0;
        while refused < 60 {
            let (key, size) = (random.random::<Key>(), sizes[random.random_range(0..sizes.len())]);
            match put(&mut session, &key, &vec![1; size]) {
                true => _ = sizes_of.insert(key, size),
                false => refused += 1,
            }
        }
        let keys: Vec<Key> = sizes_of.keys().copied().collect();
        for round in 0..200_000 {
            let key = keys[random.random_range(0..keys.len())];
            let value = vec![round as u8; sizes_of[&key]];
            assert!(put(&mut session, &key, &value), "seed {seed}, values of {sizes:?}: overwrite {round}");
        }
        delete_all(&mut session, &keys, &format!("seed {seed}, values of {sizes:?}"));
    }
}

/// Overwrites of several sizes leave fewer free blocks than growth must leave. Deletes give memory back all the same.
#[test]
fn deletes_give_memory_back_though_few_blocks_are_free() {
    let seed = seed();
    println!("seed {seed}");
    for (case, sizes) in [&[8000, 40, 3000][..], &[469, 40, 300, 200], &[700, 16]].into_iter().enumerate() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let store = store(8 * MIB);
        let mut session = store.session().unwrap();
        let mut sizes_of = BTreeMap::new();
        let mut refused = 0;
        while refused < 60 {
            let (key, size) = (random.random::<Key>(), sizes[random.random_range(0..sizes.len())]);
            match put(&mut session, &key, &vec![1; size]) {
                true => _ = sizes_of.insert(key, size),
                false => refused += 1,
            }
        }
        let mut keys: Vec<Key> = sizes_of.keys().copied().collect();
        for round in 0..50_000 {
            let key = keys[random.random_range(0..keys.len())];
            assert!(put(&mut session, &key, &vec![round as u8; sizes_of[&key]]), "seed {seed}, case {case}");
        }
        // Not the large values, which would make blocks free.
        keys.retain(|key| sizes_of[key] < 470);
        keys.shuffle(&mut random);
        let used_before = store.statistics().space.used_bytes;
        keys.truncate(keys.len() / 8 * 7);
        delete_all(&mut session, &keys, &format!("seed {seed}, case {case}"));
        let freed = used_before - session.check().frame_bytes;
        let deleted: usize = keys.iter().map(|key| key.len() + sizes_of[key]).sum();
        println!("case {case}: {deleted} bytes of pairs were deleted, {freed} bytes are free for it");
        assert!(freed * 3 > deleted as u64, "seed {seed}, case {case}: {freed} of {deleted} bytes");
    }
}

/// A smaller value can make a leaf larger: pairs of one size take less than pairs of several. Such puts may be refused. They
/// must not use up the memory that is kept back for deletes and for overwrites of the same size.
#[test]
fn smaller_values_leave_what_deletes_of_a_full_store_need() {
    let seed = seed();
    println!("seed {seed}");
    for (key_size, size) in [(8, 8), (8, 100), (16, 400), (16, 3000)] {
        let context = format!("seed {seed}, keys of {key_size}, values of {size}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let store = store(4 * MIB);
        let mut session = store.session().unwrap();
        let mut put = |key: &Key, value: &[u8]| {
            let reply = session.put(&key[..key_size], value, PutCondition::Always);
            assert!(reply == Reply::Done || reply == FULL, "{context}: {reply:?}");
            reply == Reply::Done
        };
        let (mut map, mut refused) = (BTreeMap::new(), 0);
        while refused < 1000 {
            let (key, value) = (random.random::<Key>(), vec![7; size]);
            match put(&key, &value) {
                true => _ = map.insert(key, value),
                false => refused += 1,
            }
        }
        let mut keys: Vec<Key> = map.keys().copied().collect();
        let (mut smaller_refused, mut same_refused) = (0, 0);
        for round in 0..6_u8 {
            keys.shuffle(&mut random);
            for (place, key) in keys.iter().enumerate() {
                let before = map[key].len();
                let size = if place % 4 == 0 { before } else { before - random.random_range(0..=before.min(3)) };
                let value = vec![round; size];
                match put(key, &value) {
                    true => _ = map.insert(*key, value),
                    // Each has waited a second.
                    false if size == before && same_refused == 9 => panic!("{context}: 10 of the same size refused"),
                    false if size == before => same_refused += 1,
                    false => smaller_refused += 1,
                }
            }
        }
        println!(
            "{context}: {} keys, {smaller_refused} smaller values refused, {same_refused} of the same size",
            keys.len()
        );
        assert_eq!(same_refused, 0, "{context}");
        let mut found = Vec::new();
        for (key, value) in &map {
            found.clear();
            assert!(session.get(&key[..key_size], &mut found) && found == *value, "{context}");
        }
        assert_eq!(session.check().pairs, keys.len() as u64);
        let refused = keys.iter().filter(|key| session.delete(&key[..key_size]) != Reply::Done).count();
        assert_eq!((refused, session.check().pairs), (0, 0), "{context}: deletes refused, of {}", keys.len());
    }
}

/// Threads that write keys of their own.
const WRITERS: u64 = 3;

/// Writes keys that no other thread writes, and compares the replies with those of a map. Returns the map, and the
/// number of puts that were refused.
fn write_own_keys(store: &OrderedStore, memory: u64, seed: u64, writer: u64) -> (BTreeMap<Key, Vec<u8>>, u32) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed + writer);
    let mut session = store.session().unwrap();
    let mut map: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    let (mut refused, mut found) = (0, Vec::new());
    let key_count = memory / 200;
    for round in 0..120_000_u64 {
        let mut key = [writer as u8; 16];
        key[..8].copy_from_slice(&random.random_range(0..key_count).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        let deletes = if round / 5_000 % 2 == 0 { 20 } else { 70 };
        if random.random_range(0..100) < deletes {
            let expected = if map.remove(&key).is_some() { Reply::Done } else { Reply::NotFound };
            assert_eq!(session.delete(&key), expected, "seed {seed} writer {writer} round {round}");
            continue;
        }
        let before = map.get(&key).map(Vec::len);
        let size = match random.random_range(0..20) {
            0 => random.random_range(470..=20_000),
            1..5 => before.unwrap_or(500),
            _ => random.random_range(0..=60),
        };
        let value = vec![round as u8; size];
        if put(&mut session, &key, &value) {
            map.insert(key, value);
        } else {
            refused += 1;
            assert_ne!(before, Some(size), "seed {seed} writer {writer} round {round}: an overwrite of its size");
        }
        if round % 16 == 0 {
            found.clear();
            let is_there = session.get(&key, &mut found);
            assert_eq!(is_there.then_some(&found), map.get(&key), "seed {seed} writer {writer} round {round}");
        }
    }
    (map, refused)
}

/// Scans all pairs until the writers are done. Returns the number of scans.
fn scan_until(store: &OrderedStore, is_done: &AtomicBool) -> u32 {
    let mut session = store.session().unwrap();
    let mut scans = 0;
    while !is_done.load(Ordering::Relaxed) {
        // Garbage is freed between scans.
        thread::sleep(Duration::from_millis(2));
        let mut last: Option<Key> = None;
        session.scan(Range::ALL, |key, value| {
            let key = Key::try_from(key).unwrap();
            assert!(last.is_none_or(|last| last < key), "keys ascend");
            assert!(value.iter().all(|byte| *byte == value[0]), "a value is whole");
            last = Some(key);
            true
        });
        scans += 1;
    }
    scans
}

/// Several threads write to a full store, each against a map: puts may be refused, nothing else. Other threads read.
#[test]
fn threads_on_a_full_store_lose_nothing() {
    let seed = seed();
    println!("seed {seed}");
    for (memory, mvcc) in [(4 * MIB, true), (4 * MIB, false), (16 * MIB, true)] {
        let store = OrderedStore::new(&OrderedSettings { mvcc, ..OrderedSettings::new(memory) }).unwrap();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (store, is_done) = (&store, &is_done);
            let write = move |writer| scope.spawn(move || write_own_keys(store, memory, seed, writer));
            let writers: Vec<_> = (0..WRITERS).map(write).collect();
            let reader = scope.spawn(move || scan_until(store, is_done));
            let ends: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            is_done.store(true, Ordering::Relaxed);
            let scans = reader.join().unwrap();
            let (mut expected, mut refused) = (BTreeMap::new(), 0);
            for (map, refused_of_writer) in ends.into_iter().map(Result::unwrap) {
                expected.extend(map);
                refused += refused_of_writer;
            }
            println!(
                "{memory} B, versions {mvcc}: {} pairs left, {refused} puts refused, {scans} scans",
                expected.len()
            );
            assert!(refused > 100, "memory was full");
            let mut session = store.session().unwrap();
            let mut left = BTreeMap::new();
            session.scan(Range::ALL, |key, value| {
                left.insert(Key::try_from(key).unwrap(), value.to_vec());
                true
            });
            assert!(left == expected, "seed {seed}: {} pairs of {}", left.len(), expected.len());
            session.check();
            for key in expected.keys() {
                assert_eq!(session.delete(key), Reply::Done);
            }
            assert_eq!(session.check().pairs, 0);
        });
    }
}

/// Puts for which there is room are all done: in trees of different heights, into leaves that are full, and until there is
/// no room.
#[test]
fn puts_for_which_there_is_room_do_not_fail() {
    let seed = seed();
    println!("seed {seed}");
    let (mut groups, mut refused) = (0, 0);
    for size in [16, 100, 469, 500, 9000, 100_000] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let store = store(24 * MIB);
        let mut session = store.session().unwrap();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for _ in 0..800 {
            let count = 1 << random.random_range(0..11);
            let sizes: Vec<(usize, usize)> =
                (0..count).map(|_| (random.random_range(8..=460), random.random_range(1..=2 * size))).collect();
            if !store.has_room_for(sizes.iter().copied()) {
                refused += 1;
                if random.random_ratio(1, 10) {
                    for _ in 0..keys.len() / 4 {
                        let key = keys.swap_remove(random.random_range(0..keys.len()));
                        assert_eq!(session.delete(&key), Reply::Done, "seed {seed}, values of {size}");
                    }
                    session.collect();
                }
                continue;
            }
            groups += 1;
            for (key_size, value_size) in sizes {
                let is_new = keys.is_empty() || random.random_ratio(3, 4);
                let key: Vec<u8> = match is_new {
                    true => (0..key_size).map(|_| random.random()).collect(),
                    false => keys[random.random_range(0..keys.len())].clone(),
                };
                let reply = session.put(&key, &vec![7; value_size], PutCondition::Always);
                assert_eq!(reply, Reply::Done, "seed {seed}, values of {size}, group {groups}");
                if is_new {
                    keys.push(key);
                }
            }
        }
        session.check();
    }
    assert!(groups > 500 && refused > 500, "{groups} groups were put, {refused} were refused");
}
