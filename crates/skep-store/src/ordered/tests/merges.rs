//! Merges of log and sorted block: how little they write, and the boundaries of segments.

use std::collections::BTreeMap;

use super::super::key_head::Target;
use super::super::leaf::build::{Part, Sorted};
use super::super::leaf::edit::Edits;
use super::super::memory::number::Lid;
use super::super::node::segment::Segment;
use super::super::node::shortcut::Shortcuts;
use super::super::{LogBlock, OrderedSettings, OrderedStore, Range, Session};
use crate::naive::{SplitMix64, test_seeds};
use skep_core::operation::{PutCondition, Reply};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store in which every write merges.
fn merging_store() -> OrderedStore {
    let log_block = LogBlock::new(LogBlock::SIZE_MIN, 0).unwrap();
    OrderedStore::new(&OrderedSettings { log_block, ..OrderedSettings::new(64 << 20) }).unwrap()
}

fn put(session: &mut Session<'_>, map: &mut Map, key: &[u8], value: &[u8]) {
    assert_eq!(session.put(key, value, PutCondition::Always), Reply::Done);
    map.insert(key.to_vec(), value.to_vec());
}

fn delete(session: &mut Session<'_>, map: &mut Map, key: &[u8]) {
    let expected = if map.remove(key).is_some() { Reply::Done } else { Reply::NotFound };
    assert_eq!(session.delete(key), expected);
}

fn assert_same(session: &mut Session<'_>, map: &Map) {
    session.check();
    let mut expected = map.iter();
    session.scan(Range::ALL, |key, value| {
        assert_eq!(expected.next(), Some((&key.to_vec(), &value.to_vec())));
        true
    });
    assert_eq!(expected.next(), None);
}

/// The keys of each segment of the leaf that holds a key. The log is empty.
fn segments_at(session: &mut Session<'_>, key: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let (store, guard) = session.enter();
    let leaf = store.find_leaf(Target::AtOrBelow(key), u64::MAX, &guard);
    assert_eq!(leaf.state().log_count(), 0);
    let shortcuts = Shortcuts::open(leaf);
    let keys = |index| {
        let segment = Segment::open(leaf, shortcuts.segment_start(index), index);
        let mut items = Vec::new();
        segment.collect(shortcuts.first_key(index), 0..segment.count(), &mut items);
        items.iter().map(|item| item.key.to_vec()).collect()
    };
    (0..shortcuts.segment_count()).map(keys).collect()
}

fn sixteen(number: u64) -> [u8; 16] {
    (u128::from(number) << 64).to_be_bytes()
}

/// A leaf whose log has entries for two of its segments.
#[test]
fn only_segments_with_entries_are_written() {
    let store = OrderedStore::new(&OrderedSettings::new(64 << 20)).unwrap();
    let mut session = store.session().unwrap();
    let mut map = Map::new();
    for number in 0..150 {
        put(&mut session, &mut map, &sixteen(10 * number), &[1; 16]);
    }
    // So that the log is merged.
    while {
        let (store, guard) = session.enter();
        store.latest(Lid::ROOT, &guard).state().log_count() > 0
    } {
        put(&mut session, &mut map, &sixteen(0), &[2; 16]);
    }
    put(&mut session, &mut map, &sixteen(5), &[3; 16]);
    put(&mut session, &mut map, &sixteen(10 * 75), &[4; 16]);
    put(&mut session, &mut map, &sixteen(10 * 75), &[5; 16]);
    let (store, guard) = session.enter();
    let leaf = store.latest(Lid::ROOT, &guard);
    let edits = Edits::of_log(leaf);
    assert_eq!(edits.edits.len(), 2, "of one key the newest counts");
    let sorted = Sorted::edited(leaf, &edits.edits).expect("the segments can be edited");
    assert_eq!(sorted.parts.len(), Shortcuts::open(leaf).segment_count());
    let is_copied = |part: &&Part<'_>| matches!(part, Part::Kept { .. });
    assert_eq!(sorted.parts.iter().filter(is_copied).count(), sorted.parts.len() - 2);
    assert!(sorted.items.is_empty(), "pairs of one size are not taken apart");
}

/// Between two neighbours: always the same segment grows, and is divided, until the leaf is.
#[test]
fn a_segment_that_grows_is_divided() {
    for sizes in [[16, 16], [3, 30], [8, 600], [300, 460]] {
        let store = merging_store();
        let mut session = store.session().unwrap();
        let mut map = Map::new();
        let key = |number: u32| [&b"same"[..], &number.to_be_bytes()].concat();
        put(&mut session, &mut map, &key(0), &[1; 16]);
        put(&mut session, &mut map, &key(u32::MAX), &[1; 16]);
        let mut segments = 0;
        for number in 0..400_u32 {
            // Upwards in the lower half, downwards in the upper one.
            let number = if number % 2 == 0 { 1 + number } else { u32::MAX - number };
            put(&mut session, &mut map, &key(number), &vec![number as u8; sizes[number as usize / 2 % 2]]);
            segments = segments.max(segments_at(&mut session, &key(number)).len());
            assert_same(&mut session, &map);
        }
        assert!(segments > 3, "{sizes:?}: {segments} segments");
        assert!(session.check().leaves > 1);
    }
}

/// Changes the first and last keys of segments, and the keys next to them.
#[test]
fn keys_at_the_borders_of_segments() {
    for seed in test_seeds() {
        for sizes in [&[16][..], &[8, 600], &[0, 1, 7, 16, 40], &[16, 300]] {
            println!("seed {seed}, values of {sizes:?} bytes");
            let mut random = SplitMix64::new(seed);
            let store = merging_store();
            let mut session = store.session().unwrap();
            let mut map = Map::new();
            for number in 0..250 {
                put(&mut session, &mut map, &sixteen(number << 20), &vec![3; sizes[number as usize % sizes.len()]]);
            }
            for round in 0..1500_u32 {
                let any = sixteen((random.next() % 250) << 20);
                let segments = segments_at(&mut session, &any);
                let segment = &segments[random.next() as usize % segments.len()];
                let (Some(first), Some(last)) = (segment.first(), segment.last()) else { continue };
                let border = if random.next().is_multiple_of(3) { last } else { first };
                let size = sizes[random.next() as usize % sizes.len()];
                let value: Vec<u8> = round.to_le_bytes().iter().copied().cycle().take(size).collect();
                match random.next() % 8 {
                    0 | 1 => delete(&mut session, &mut map, border),
                    2 => put(&mut session, &mut map, border, &value),
                    3 => put(&mut session, &mut map, &[border, &[0][..]].concat(), &value),
                    4 | 5 => {
                        let number = u128::from_be_bytes(*border.first_chunk().unwrap()).wrapping_sub(1);
                        put(&mut session, &mut map, &number.to_be_bytes(), &value);
                    }
                    6 => put(&mut session, &mut map, &any, &value),
                    _ if random.next().is_multiple_of(8) => {
                        segment.iter().for_each(|key| delete(&mut session, &mut map, key));
                    }
                    _ => {}
                }
                if round % 10 == 0 {
                    assert_same(&mut session, &map);
                }
            }
            assert_same(&mut session, &map);
        }
    }
}

/// A reference has eight bytes, and so may values have beside it: nothing is lost, and every frame is given back.
#[test]
fn overflow_values_are_freed_when_they_are_replaced() {
    for log_block in [LogBlock::default(), LogBlock::new(LogBlock::SIZE_MIN, 0).unwrap()] {
        for seed in test_seeds() {
            println!("seed {seed}, {log_block:?}");
            let mut random = SplitMix64::new(seed);
            let settings = OrderedSettings { log_block, ..OrderedSettings::new(64 << 20) };
            let store = OrderedStore::new(&settings).unwrap();
            let mut session = store.session().unwrap();
            let mut map = Map::new();
            for round in 0..20_000_u32 {
                let key = sixteen(random.next() % 300);
                let size = if random.next().is_multiple_of(2) { 8 } else { 1000 };
                match random.next() % 8 {
                    0 => delete(&mut session, &mut map, &key),
                    _ => put(&mut session, &mut map, &key, &vec![round as u8; size]),
                }
            }
            assert_same(&mut session, &map);
            for key in map.clone().keys() {
                delete(&mut session, &mut map, key);
            }
            // The last merge removes the rest of the log.
            let key = sixteen(0);
            for _ in 0..20 {
                put(&mut session, &mut map, &key, &[1]);
            }
            let checked = session.check();
            let used = store.statistics().space.used_bytes;
            assert_eq!(used, checked.frame_bytes, "every frame is a node's or a value's");
        }
    }
}
