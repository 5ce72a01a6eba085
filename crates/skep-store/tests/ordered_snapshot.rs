//! A snapshot ends, and has few pairs more than the store had when it began, beside writers that insert keys in front of
//! its walk. What it has and the log give the store back.

use skep_core::operation::{PutCondition, Reply};
use skep_store::ordered::{OrderedSettings, OrderedStore, Session};

#[path = "recovery/mod.rs"]
mod recovery;

use recovery::{Block, Fault, Snapshot, dump, recover};

/// Pairs when the snapshot begins.
const LIVE: u64 = 20_000;
/// Pairs of a step.
const STEP: usize = 100;
/// Pairs that the walk passes for each key that is inserted.
const PAIRS_FOR_INSERT: u64 = 8;

fn put(session: &mut Session<'_>, key: &str) {
    assert_eq!(session.put(key.as_bytes(), b"value", PutCondition::Always), Reply::Done);
}

fn delete(session: &mut Session<'_>, key: &str) {
    assert_eq!(session.delete(key.as_bytes()), Reply::Done);
}

/// A writer beside a walk. It is called after each step with the position, which is text except for its last byte. It
/// returns the number of keys that it has inserted.
type Writer<'w> = &'w mut dyn FnMut(&mut Session<'_>, &[u8]) -> u64;

/// Takes a snapshot of the keys `0` to [`LIVE`] beside a writer, and compares what comes back. Returns its pairs.
fn pairs_of_snapshot(first: &dyn Fn(u64) -> String, pays: bool, write: Writer<'_>) -> u64 {
    let store = OrderedStore::new(&OrderedSettings::new(32 << 20)).unwrap();
    let mut session = store.session().unwrap();
    session.record_effects();
    (0..LIVE).for_each(|number| put(&mut session, &first(number)));
    let mut blocks = Vec::new();
    session.seal(|effects, floor| blocks.push(Block::new(effects, floor)));
    assert_eq!(session.take_inserted(), LIVE);
    let (mut snapshot, mut counted) = (Snapshot::new(blocks.len()), 0);
    while !snapshot.is_complete {
        let before = snapshot.pair_count() as u64;
        snapshot.step(&mut session, STEP, 1 << 20);
        counted += snapshot.pair_count() as u64 - before;
        // The next keys are inserted when the walk has paid for the last ones.
        if !pays || session.take_inserted() * PAIRS_FOR_INSERT <= counted {
            counted = 0;
            let position = snapshot.walk.as_ref().unwrap().position().to_vec();
            let inserted = write(&mut session, &position);
            assert!(pays || session.take_inserted() == inserted);
        }
        session.seal(|effects, floor| blocks.push(Block::new(effects, floor)));
        assert!(snapshot.pair_count() as u64 <= 10 * LIVE, "it does not end");
    }
    session.state_floor(|effects, floor| blocks.push(Block::new(effects, floor)));
    assert!(snapshot.is_covered(&blocks));
    assert!(recover(Some(&snapshot), &blocks, 0, Fault::None) == dump(&mut session), "other pairs come back");
    snapshot.pair_count() as u64
}

/// The window moves by two steps while the walk makes one.
#[test]
fn a_window_of_ascending_keys_does_not_lengthen_a_snapshot() {
    let key = |number: u64| format!("{number:012}");
    let mut tail = 0;
    let pairs = pairs_of_snapshot(&key, false, &mut |session, _| {
        for _ in 0..2 * STEP {
            put(session, &key(LIVE + tail));
            delete(session, &key(tail));
            tail += 1;
        }
        2 * STEP as u64
    });
    assert!(pairs <= LIVE, "{pairs} pairs");
}

#[test]
fn a_window_of_descending_keys_does_not_lengthen_a_snapshot() {
    let key = |number: u64| format!("{:012}", 1_000_000_000 - number);
    let mut tail = 0;
    let pairs = pairs_of_snapshot(&key, false, &mut |session, _| {
        for _ in 0..STEP / 2 {
            put(session, &key(LIVE + tail));
            delete(session, &key(tail));
            tail += 1;
        }
        STEP as u64 / 2
    });
    assert!(pairs <= LIVE, "{pairs} pairs");
}

/// The writer inserts keys right after the position, as many as the walk has paid for, and deletes as many that the walk
/// has passed.
#[test]
fn keys_in_front_of_the_walk_lengthen_a_snapshot_by_the_part_that_it_pays_for() {
    let key = |number: u64| format!("{number:012}");
    let (mut written, mut passed) = (0, 0);
    let pairs = pairs_of_snapshot(&key, true, &mut |session, position| {
        let inserts = STEP as u64 / PAIRS_FOR_INSERT;
        // Greater than the position, which has such a number too or is the next of the first keys.
        let position = String::from_utf8_lossy(&position[..12]).into_owned();
        for _ in 0..inserts {
            written += 1;
            put(session, &format!("{position}+{written:09}"));
            delete(session, &key(passed));
            passed += 1;
        }
        inserts
    });
    assert!(pairs <= LIVE * PAIRS_FOR_INSERT / (PAIRS_FOR_INSERT - 1) + STEP as u64, "{pairs} pairs");
    assert!(pairs > LIVE, "no key was inserted in front of the walk");
}
