//! An ordered store comes back from the effects of its sessions and from snapshots in steps: random operations of several
//! sessions, whose effects are sealed in random order as blocks. `SKEP_SEED` repeats a run.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Expiry, Request};
use skep_store::naive::{EXPIRIES_END, Generator, GeneratorSettings, OwnedRequest, seeds};
use skep_store::ordered::{OrderedSettings, OrderedStore, Session};
use skep_store::processor::Replies;

#[path = "recovery/mod.rs"]
mod recovery;

use recovery::{Block, Dump, Fault, Snapshot, dump, floor_of, recover};

const RUNS: u64 = 1000;
const SESSIONS: usize = 3;

/// All that is left of a store: its log, its snapshots, and its pairs at some versions.
struct Left {
    blocks: Vec<Block>,
    snapshots: Vec<Snapshot>,
    dumps: BTreeMap<u64, Dump>,
    now: u64,
}

fn store() -> OrderedStore {
    OrderedStore::new(&OrderedSettings::new(32 << 20)).unwrap()
}

fn logged(store: &OrderedStore) -> Session<'_> {
    let mut session = store.session().unwrap();
    session.record_effects();
    session
}

fn generator(seed: u64, key_count: u32) -> Generator {
    Generator::new(GeneratorSettings { seed, key_count, key_size: 1..=12, ..GeneratorSettings::default() })
}

fn execute(session: &mut Session<'_>, replies: &mut Replies, requests: &[OwnedRequest]) {
    let requests: Vec<Request<'_>> = requests.iter().map(OwnedRequest::as_request).collect();
    session.execute(&requests, replies, Instant::now());
}

/// Random operations of several sessions in one thread.
fn run(seed: u64) -> Left {
    let store = store();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut sessions: [Session<'_>; SESSIONS] = std::array::from_fn(|_| logged(&store));
    let key_count = random.random_range(5..80);
    let mut generator = generator(seed, key_count);
    let mut replies = Replies::with_budget(1 << 20);
    let (mut blocks, mut snapshots, mut dumps) =
        (Vec::new(), vec![Snapshot::new(0)], BTreeMap::from([(0, Dump::new())]));
    let mut now = 0;
    let steps = random.random_range(20..120);
    for step in 0..steps + SESSIONS {
        let session = &mut sessions[if step < steps { random.random_range(0..SESSIONS) } else { step - steps }];
        match random.random_range(0..100) {
            // At the end each session seals its effects.
            _ if step >= steps => session.seal(|effects, floor| blocks.push(Block::new(effects, floor))),
            0..50 => {
                let requests: Vec<OwnedRequest> = generator.by_ref().take(random.random_range(1..20)).collect();
                execute(session, &mut replies, &requests);
            }
            50..75 => session.seal(|effects, floor| blocks.push(Block::new(effects, floor))),
            75..90 => {
                let snapshot = snapshots.last_mut().unwrap();
                snapshot.step(session, random.random_range(1..20), random.random_range(1..3000));
                if snapshot.is_complete {
                    snapshots.push(Snapshot::new(blocks.len()));
                }
            }
            90..97 => {
                now += random.random_range(0..EXPIRIES_END / 8);
                store.set_now(now);
                session.reclaim();
            }
            97 => _ = session.flush_step(&mut random.random_range(0..=u8::MAX).to_be_bytes().to_vec()),
            _ => _ = session.delete(&generator.key(random.random_range(0..key_count))),
        }
        let dump = dump(session);
        dumps.insert(session.read_version(), dump);
    }
    assert!(sessions.iter().all(|session| !session.has_unsealed()));
    assert!(floor_of(&blocks) > sessions[0].read_version(), "seed {seed}: the last block tells all");
    Left { blocks, snapshots, dumps, now }
}

/// Returns true if a recovery from the first blocks is the store as it was at their greatest floor. Takes the last snapshot
/// that these blocks cover.
fn comes_back(left: &Left, blocks: &[Block], fault: Fault) -> bool {
    let Left { snapshots, dumps, now, .. } = left;
    let snapshot = snapshots.iter().rev().find(|snapshot| snapshot.is_covered(blocks));
    // A floor may be the version of the first write of a step, or that after expired keys, which the step removes first.
    let at = |floor: u64| dumps.range(..floor.max(1)).next_back().expect("an empty store at version 0").1;
    let floor = snapshot.map_or(0, |snapshot| snapshot.blocks);
    let is_alive = |expiry: Option<Expiry>| expiry.is_none_or(|expiry| !expiry.has_passed(*now));
    let mut expected = at(floor_of(&blocks[floor..])).clone();
    expected.retain(|_, (_, expiry)| is_alive(*expiry));
    recover(snapshot, blocks, *now, fault) == expected
}

/// Returns the number of runs that come back: from all blocks, and from the blocks before a power loss.
fn runs_that_come_back(fault: Fault) -> (usize, usize) {
    let fixed: Vec<u64> = (0..RUNS).collect();
    let seeds = seeds(&fixed);
    let mut equal = 0;
    for seed in &seeds {
        let left = run(*seed);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(*seed);
        let cut = random.random_range(0..=left.blocks.len());
        let is_equal = comes_back(&left, &left.blocks, fault) && comes_back(&left, &left.blocks[..cut], fault);
        assert!(is_equal || fault != Fault::None, "seed {seed}: not the same after block {cut} or the last one");
        equal += usize::from(is_equal);
    }
    (equal, seeds.len())
}

#[test]
fn a_store_comes_back() {
    let (equal, runs) = runs_that_come_back(Fault::None);
    println!("{equal} of {runs} runs");
    assert_eq!(equal, runs);
}

#[test]
fn controls_that_do_not_come_back() {
    for fault in [Fault::BlockOrder, Fault::NoRule, Fault::NoFloor] {
        let (equal, runs) = runs_that_come_back(fault);
        println!("{fault:?}: {equal} of {runs} runs");
        assert!(equal < runs || runs == 1, "{fault:?} was not found");
    }
}

/// Threads write the same keys and queue their blocks, while another thread makes snapshots.
#[test]
fn a_store_that_threads_have_written_comes_back() {
    const THREADS: usize = 4;
    const BATCHES: usize = 1500;
    for seed in seeds(&[1, 2, 3]) {
        println!("seed {seed}");
        let store = store();
        let (blocks, writers_left) = (Mutex::new(Vec::new()), AtomicUsize::new(THREADS));
        let requests: Vec<OwnedRequest> = generator(seed, 300).take(THREADS * BATCHES * 8).collect();
        let write = |thread: usize| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed * 100 + thread as u64);
            let mut session = logged(&store);
            let mut replies = Replies::with_budget(1 << 20);
            for (batch, requests) in requests.chunks(8).skip(thread).step_by(THREADS).enumerate() {
                execute(&mut session, &mut replies, requests);
                // Others write the same keys before the block is sealed.
                thread::yield_now();
                if random.random_range(0..10) == 0 {
                    store.set_now(EXPIRIES_END * batch as u64 / (2 * BATCHES as u64));
                    session.reclaim();
                }
                if random.random_range(0..3) > 0 {
                    session.seal(|effects, floor| blocks.lock().unwrap().push(Block::new(effects, floor)));
                }
            }
            session.seal(|effects, floor| blocks.lock().unwrap().push(Block::new(effects, floor)));
            writers_left.fetch_sub(1, Ordering::Relaxed);
        };
        let mut snapshots = Vec::new();
        thread::scope(|scope| {
            (0..THREADS).for_each(|thread| _ = scope.spawn(move || write(thread)));
            let mut session = store.session().unwrap();
            while writers_left.load(Ordering::Relaxed) > 0 {
                let mut snapshot = Snapshot::new(blocks.lock().unwrap().len());
                while !snapshot.is_complete {
                    snapshot.step(&mut session, 20, 1 << 20);
                    thread::yield_now();
                }
                snapshots.push(snapshot);
            }
        });
        let blocks = blocks.into_inner().unwrap();
        check_floors(&blocks);
        let mut session = store.session().unwrap();
        assert!(floor_of(&blocks) > session.read_version(), "the last floor is above all versions");
        let covered: Vec<&Snapshot> = snapshots.iter().filter(|snapshot| snapshot.is_covered(&blocks)).collect();
        println!("{} blocks, {} of {} snapshots are covered", blocks.len(), covered.len(), snapshots.len());
        assert!(covered.iter().all(|snapshot| snapshot.pair_count() <= 300), "a key is in a snapshot once");
        assert!(covered.len() > 2);
        store.set_now(EXPIRIES_END);
        let expected = dump(&mut session);
        assert!(expected.len() > 50, "{} pairs", expected.len());
        let some = covered.iter().step_by(covered.len().div_ceil(20)).copied().map(Some);
        for snapshot in some.chain([None]) {
            assert!(recover(snapshot, &blocks, EXPIRIES_END, Fault::None) == expected, "seed {seed}");
        }
    }
}

/// Checks that all effects below a floor are in its block or before it, that no version comes twice, and that the blocks are
/// not in the order of versions.
fn check_floors(blocks: &[Block]) {
    let floors = blocks.iter().scan(0, |greatest, block| {
        *greatest = block.floor.max(*greatest);
        Some(*greatest)
    });
    let floors: Vec<u64> = floors.collect();
    let mut lowest_later = u64::MAX;
    for (block, floor) in blocks.iter().zip(floors).rev() {
        assert!(floor <= lowest_later, "version {lowest_later} comes after floor {floor}");
        assert!(block.effects.is_sorted_by(|one, other| one.version < other.version), "a block is in order");
        lowest_later = block.effects.first().map_or(lowest_later, |effect| effect.version.min(lowest_later));
    }
    let mut versions: Vec<u64> = blocks.iter().flat_map(|block| &block.effects).map(|effect| effect.version).collect();
    assert!(!versions.is_sorted(), "no two blocks overlap");
    versions.sort_unstable();
    assert!(versions.is_sorted_by(|one, other| one < other), "a version is that of one write");
}
