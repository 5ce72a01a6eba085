//! The small machines that threads meet in, in every interleaving and with weak memory: loom runs the very source files of
//! the store, with its own atomics behind their `sync`. Memory that is read plainly is watched: loom fails on a race.
//! Each protocol has a broken control, which must fail.
#![expect(unsafe_code, reason = "loom's cells find races only if they are shared, and are not `Sync`")]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

#[path = "small_machines/memory.rs"]
mod memory;
#[path = "small_machines/space.rs"]
mod space;
#[path = "small_machines/sync.rs"]
mod sync;

#[path = "../src/ordered/node"]
mod node {
    #[expect(dead_code, reason = "the models have no log bytes")]
    pub(crate) mod lock;
}

#[path = "../src/ordered/version"]
mod version {
    pub(crate) mod asks;
    #[expect(dead_code, reason = "the models count no pairs")]
    pub(crate) mod epoch;
    pub(crate) mod floors;
    #[expect(dead_code, reason = "the models have no LIDs, and no batches of frames")]
    pub(crate) mod garbage;
    #[expect(unreachable_pub, reason = "the store exports limits and statistics")]
    pub(crate) mod lease;
    #[expect(dead_code, reason = "the models take no memory from the space")]
    pub(crate) mod reclaim;
    #[expect(dead_code, reason = "the models make no version deltas")]
    pub(crate) mod versions;
}

#[path = "ordered_small_machines/floors.rs"]
mod floors;
#[path = "ordered_small_machines/moving.rs"]
mod moving;

use std::time::{Duration, Instant};

use memory::frame_state::RetiredFrame;
use memory::page_table::PageTable;
use node::lock::State;
use space::Space;
use sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence};
use version::epoch::{Epochs, Guard, Tag};
use version::garbage::{Garbage, GarbageList};
use version::lease::{LEASE_COUNT_MAX, LEASE_TIME, LeaseReading, LeaseStatistics, Leases};
use version::reclaim::Reclaimer;
use version::versions::Versions;

/// Owner and secret of leases.
const OWNER: u64 = 1;
const SEED: u64 = 2;

/// Runs a model. Three preemptions find what there is to find in models of this size, in seconds.
fn model(run: impl Fn() + Sync + Send + 'static) {
    model_with(3, run);
}

/// Runs a model with at most this number of preemptions.
fn model_with(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = runs.clone();
    builder.check(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        run();
    });
    println!("{runs:?} interleavings");
}

/// A model that must fail.
fn control(run: impl Fn() + Sync + Send + 'static) {
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model(run))).is_err();
    assert!(failed, "the control was not caught");
}

/// Bytes that are read and written plainly.
struct Bytes {
    watch: UnsafeCell<()>,
    value: AtomicU64,
}

impl Default for Bytes {
    fn default() -> Self {
        Bytes { watch: UnsafeCell::new(()), value: AtomicU64::new(0) }
    }
}

// SAFETY: the cell holds nothing; it is there to tell loom of each access.
unsafe impl Sync for Bytes {}

impl Bytes {
    fn get(&self) -> u64 {
        self.watch.with(|_| self.value.load(Ordering::Relaxed))
    }

    fn set(&self, value: u64) {
        self.watch.with_mut(|_| self.value.store(value, Ordering::Relaxed));
    }
}

/// A leaf: its state, and the bytes of its log entries.
struct Leaf {
    state: AtomicU64,
    entries: [Bytes; 2],
}

impl Leaf {
    fn new() -> Self {
        Leaf { state: AtomicU64::new(State::NEW.bits()), entries: Default::default() }
    }

    fn append(&self, value: u64) -> bool {
        let seen = State::load(&self.state);
        let locked = State::try_lock(&self.state, seen);
        if locked {
            self.entries[seen.log_count()].set(value);
            State::publish(&self.state, seen, 8 * (seen.log_count() + 1), seen.log_count() + 1);
        }
        locked
    }

    fn read(&self) -> Vec<u64> {
        let state = State::load(&self.state);
        assert_eq!(state.log_size(), 8 * state.log_count(), "sizes are published together");
        self.entries[..state.log_count()].iter().map(Bytes::get).collect()
    }
}

#[test]
fn entries_are_published_whole_and_in_order() {
    model(|| {
        let leaf = Arc::new(Leaf::new());
        let writers = [1, 2].map(|value| {
            let leaf = leaf.clone();
            thread::spawn(move || leaf.append(value))
        });
        let seen = leaf.read();
        assert!(seen.iter().all(|value| [1, 2].contains(value)), "an entry is complete: {seen:?}");
        let later = leaf.read();
        assert_eq!(later[..seen.len()], seen, "a published entry stays");
        let done = writers.map(|writer| writer.join().unwrap());
        assert!(done[0] || done[1], "one writer at least gets the lock");
        assert_eq!(leaf.read().len(), done.iter().filter(|done| **done).count());
    });
}

#[test]
fn control_an_entry_published_before_it_is_written() {
    control(|| {
        let leaf = Arc::new(Leaf::new());
        let writer = leaf.clone();
        let writer = thread::spawn(move || {
            let seen = State::load(&writer.state);
            assert!(State::try_lock(&writer.state, seen));
            State::publish(&writer.state, seen, 8, 1);
            writer.entries[0].set(1);
        });
        leaf.read();
        writer.join().unwrap();
    });
}

#[test]
fn control_a_lock_that_does_not_compare_the_sequence() {
    control(|| {
        let leaf = Arc::new(Leaf::new());
        let writers = [1, 2].map(|value| {
            let leaf = leaf.clone();
            thread::spawn(move || {
                let seen = State::load(&leaf.state);
                leaf.entries[seen.log_count()].set(value);
                State::publish(&leaf.state, seen, 8 * (seen.log_count() + 1), seen.log_count() + 1);
            })
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}

/// Two writers publish versions; what is readable was written.
fn versions_in_order(publish: impl Fn(&Versions, u64) + Copy + Send + Sync + 'static) {
    let shared = Arc::new((Versions::new(2), [Bytes::default(), Bytes::default()]));
    let write = move |(versions, data): &(Versions, [Bytes; 2])| {
        let version = versions.allocate();
        data[version as usize - 1].set(version);
        publish(versions, version);
        versions.wait_until_readable(version);
    };
    let writers = [(), ()].map(|()| {
        let shared = shared.clone();
        thread::spawn(move || write(&shared))
    });
    let (versions, data) = &*shared;
    let read = versions.read();
    for version in 1..=read {
        assert_eq!(data[version as usize - 1].get(), version, "what is readable was written");
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(versions.read(), 2, "both are readable");
}

#[test]
fn versions_are_published_in_order() {
    model(|| versions_in_order(Versions::publish));
}

#[test]
fn control_a_version_published_before_the_one_below() {
    control(|| {
        versions_in_order(|versions, version| {
            // Releases the other version as well, which may not be written yet.
            versions.publish(3 - version);
            versions.publish(version);
        });
    });
}

const OLD: u32 = 0;
const NEW: u32 = 1;
const REUSED: u64 = 99;

/// A node with two frames. The second has version 1 and the first as its old version.
struct Node {
    versions: Versions,
    epochs: Epochs,
    table: [AtomicU32; 1],
    /// Of each frame its version.
    frames: [Bytes; 2],
}

impl Node {
    fn new() -> Arc<Self> {
        Arc::new(Node {
            versions: Versions::new(2),
            epochs: Epochs::new(2, 1),
            table: [AtomicU32::new(OLD)],
            frames: Default::default(),
        })
    }

    /// Reads the node twice as a scan would: both times as of the version of its beginning.
    fn read(&self, guard: &Guard<'_>) {
        let _ = guard;
        self.read_as_of(self.versions.read());
    }

    fn read_as_of(&self, version: u64) {
        for _ in 0..2 {
            let mut frame = PageTable::new(&self.table).frame(0);
            if self.frames[frame as usize].get() > version {
                frame = OLD;
            }
            let found = self.frames[frame as usize].get();
            assert!(found <= version, "a reader at {version} found {found}");
            assert!(found == version, "the newest it may see");
        }
    }

    /// Replaces the frame, and uses it again if it is unreachable.
    fn replace(&self, tag: impl Fn(&Self) -> Tag, early: bool) {
        let version = self.versions.allocate();
        self.frames[NEW as usize].set(version);
        let early = early.then(|| tag(self));
        PageTable::new(&self.table).replace(0, NEW);
        self.versions.publish(version);
        let tag = early.unwrap_or_else(|| tag(self));
        if self.epochs.is_past(&tag) {
            self.frames[OLD as usize].set(REUSED);
        }
    }
}

fn reader_and_writer(tag: impl Fn(&Node) -> Tag + Send + 'static, early: bool) {
    let node = Node::new();
    let reader = node.clone();
    let reader = thread::spawn(move || {
        let mut participant = reader.epochs.join().unwrap();
        let guard = participant.enter();
        reader.read(&guard);
        drop(guard);
    });
    node.replace(tag, early);
    reader.join().unwrap();
}

#[test]
fn a_replaced_frame_is_used_again_when_no_reader_can_reach_it() {
    model(|| reader_and_writer(|node| node.epochs.tag(), false));
}

#[test]
fn control_a_tag_made_before_the_version_is_published() {
    control(|| reader_and_writer(|node| node.epochs.tag(), true));
}

#[test]
fn control_a_frame_used_again_at_once() {
    control(|| reader_and_writer(|_| Tag::default(), false));
}

#[test]
fn control_a_reader_that_reads_the_version_before_it_prefetches_itself() {
    control(|| {
        let node = Node::new();
        let reader = node.clone();
        let reader = thread::spawn(move || {
            let frame = PageTable::new(&reader.table).frame(0);
            let mut participant = reader.epochs.join().unwrap();
            let guard = participant.enter();
            fence(Ordering::SeqCst);
            assert!(reader.frames[frame as usize].get() != REUSED);
            drop(guard);
        });
        node.replace(|node| node.epochs.tag(), false);
        reader.join().unwrap();
    });
}

/// Ends the reading of a page.
fn end(reading: LeaseReading<'_>, more: bool) -> Option<u64> {
    let number = reading.conclude(more);
    drop(reading);
    number
}

/// A lease is opened, and a page of it read beside a writer that lets it expire.
fn lease_and_writer(is_ended_early: bool) {
    let node = Node::new();
    let leases = Arc::new(Leases::new(LEASE_TIME, SEED));
    let (node_read, leases_read) = (node.clone(), leases.clone());
    let reader = thread::spawn(move || {
        let now = Instant::now();
        let reading = leases_read.open(&node_read.epochs, &node_read.versions, OWNER, now).unwrap();
        let mut participant = node_read.epochs.join().unwrap();
        let guard = participant.enter();
        let (version, _) = reading.as_of(&guard);
        drop(guard);
        if is_ended_early {
            end(reading, true);
            node_read.read_as_of(version);
        } else {
            node_read.read_as_of(version);
            end(reading, true);
        }
    });
    node.replace(
        |node| {
            let tag = node.epochs.tag();
            leases.end_oldest_of(&node.epochs, &node.epochs.pins_of(&tag));
            tag
        },
        false,
    );
    reader.join().unwrap();
}

#[test]
fn a_lease_keeps_what_it_reads() {
    model(|| lease_and_writer(false));
}

#[test]
fn control_a_lease_that_is_ended_while_it_is_read() {
    control(|| lease_and_writer(true));
}

/// A later pin in the same slot is not taken for the one before.
#[test]
fn a_tag_waits_for_one_pin() {
    model(|| {
        let epochs = Epochs::new(1, 1);
        let pin = epochs.pin().unwrap();
        assert!(epochs.pin().is_none(), "there is one slot");
        let tag = epochs.tag();
        assert!(epochs.pins_of(&tag) == [pin.name()] && !epochs.is_past(&tag));
        epochs.unpin(pin);
        let later = epochs.pin().unwrap();
        assert!(epochs.pins_of(&tag).is_empty() && epochs.is_past(&tag));
        epochs.unpin(later);
    });
}

#[test]
fn slots_are_one_participant_each() {
    model(|| {
        let epochs = Arc::new(Epochs::new(1, 0));
        let other = epochs.clone();
        let other = thread::spawn(move || other.join().is_some());
        let here = epochs.join();
        let here_joined = here.is_some();
        drop(here);
        let there_joined = other.join().unwrap();
        assert!(here_joined || there_joined);
        assert!(epochs.join().is_some(), "a slot comes back");
    });
}

fn parts() -> (Leases, Epochs, Versions, Instant) {
    (Leases::new(LEASE_TIME, SEED), Epochs::new(1, LEASE_COUNT_MAX), Versions::new(8), Instant::now())
}

#[test]
fn a_lease_that_is_read_is_not_pulled_away() {
    model(|| {
        let (leases, epochs, versions, now) = parts();
        let reading = leases.open(&epochs, &versions, OWNER, now).unwrap();
        let tag = epochs.tag();
        leases.expire_due(&epochs, now + 2 * LEASE_TIME);
        assert!(!leases.end_oldest_of(&epochs, &epochs.pins_of(&tag)), "it is being read");
        assert!(!epochs.pins_of(&tag).is_empty());
        let number = end(reading, true).expect("the reader of the next page is told");
        assert!(epochs.is_past(&tag), "it was let go behind the page");
        assert!(leases.resume(&epochs, number, OWNER, now).is_none());
        assert_eq!(leases.statistics(), LeaseStatistics { open: 0, expired: 1, ended_for_memory: 1 });
    });
}

#[test]
fn two_readers_of_one_lease() {
    model(|| {
        let (leases, epochs, versions, now) = parts();
        let number = end(leases.open(&epochs, &versions, OWNER, now).unwrap(), true).unwrap();
        let tag = epochs.tag();
        let first = leases.resume(&epochs, number, OWNER, now).unwrap();
        let second = leases.resume(&epochs, number, OWNER, now).unwrap();
        assert_eq!(end(first, false), None, "the scan is at its end");
        assert!(!epochs.pins_of(&tag).is_empty(), "the other is not");
        assert!(leases.resume(&epochs, number, OWNER, now).is_none());
        end(second, true);
        assert!(epochs.is_past(&tag));
        assert_eq!(leases.statistics(), LeaseStatistics::default(), "none has expired");
    });
}

#[test]
fn reading_keeps_a_lease() {
    model(|| {
        let (leases, epochs, versions, mut now) = parts();
        let number = end(leases.open(&epochs, &versions, OWNER, now).unwrap(), true).unwrap();
        for _ in 0..10 {
            now += LEASE_TIME - Duration::from_millis(1);
            leases.expire_due(&epochs, now);
            assert_eq!(end(leases.resume(&epochs, number, OWNER, now).unwrap(), true), Some(number));
        }
        assert!(leases.resume(&epochs, number, OWNER, now + LEASE_TIME).is_none());
        assert_eq!(leases.statistics(), LeaseStatistics { open: 0, expired: 1, ended_for_memory: 0 });
        assert!(leases.resume(&epochs, 0, OWNER, now).is_none(), "zero is no number");
    });
}

#[test]
fn the_oldest_makes_room() {
    model(|| {
        let (leases, epochs, versions, now) = parts();
        let open = || leases.open(&epochs, &versions, OWNER, now);
        let numbers: Vec<u64> = (0..LEASE_COUNT_MAX).map(|_| end(open().unwrap(), true).unwrap()).collect();
        let read = leases.resume(&epochs, numbers[0], OWNER, now).unwrap();
        let newest = end(open().unwrap(), true).unwrap();
        assert!(leases.resume(&epochs, numbers[1], OWNER, now).is_none(), "the oldest that was not being read");
        assert_eq!(end(read, true), Some(numbers[0]));
        let readings: Vec<_> =
            numbers.iter().chain([&newest]).filter_map(|number| leases.resume(&epochs, *number, OWNER, now)).collect();
        assert_eq!(readings.len(), LEASE_COUNT_MAX);
        assert!(open().is_none(), "all are being read");
        drop(readings);
        assert!(open().is_some());
    });
}

#[test]
fn a_lease_is_known_to_its_owner_only() {
    model(|| {
        let (leases, epochs, versions, now) = parts();
        let open = |owner| end(leases.open(&epochs, &versions, owner, now).unwrap(), true).unwrap();
        let (number, other) = (open(OWNER), open(OWNER + 1));
        assert!(leases.resume(&epochs, number, OWNER + 1, now).is_none(), "it is another's");
        assert!(leases.resume(&epochs, number, OWNER, now).is_some());
        leases.end_of_owner(&epochs, OWNER);
        assert!(leases.resume(&epochs, number, OWNER, now).is_none(), "its owner is gone");
        assert!(leases.resume(&epochs, other, OWNER + 1, now).is_some());
        assert_eq!(leases.statistics(), LeaseStatistics { open: 1, expired: 0, ended_for_memory: 0 });
    });
}

/// Statistics are read beside a writer that frees garbage and ends a lease for it, and beside a batch that lets it expire.
fn statistics_beside_collection(figures: impl Fn(&Reclaimer) -> u32 + Send + 'static, collect: impl Fn(&Reclaimer)) {
    let leases = Leases::new(LEASE_TIME, SEED);
    let reclaimer = Arc::new(Reclaimer::new(Epochs::new(1, 1), leases, Space::default(), 0));
    let versions = Versions::new(2);
    let now = Instant::now();
    let Reclaimer { leases, epochs, .. } = &*reclaimer;
    end(leases.open(epochs, &versions, OWNER, now).unwrap(), true);
    reclaimer.hand_over(vec![Garbage::Frame(RetiredFrame(1))]);
    let (statistics, batch) = (reclaimer.clone(), reclaimer.clone());
    let statistics = thread::spawn(move || figures(&statistics));
    let batch = thread::spawn(move || batch.leases.expire_due(&batch.epochs, now + LEASE_TIME));
    collect(&reclaimer);
    assert!(statistics.join().unwrap() <= 1);
    batch.join().unwrap();
    reclaimer.collect();
    assert_eq!((reclaimer.space_statistics().free, reclaimer.garbage_bytes()), (1, 0), "all is free");
    assert_eq!(reclaimer.leases.statistics().open, 0);
}

#[test]
fn statistics_and_collection_never_wait_for_each_other() {
    model(|| {
        let figures = |reclaimer: &Reclaimer| {
            let freed = reclaimer.counts().freed;
            let free = reclaimer.space_statistics().free;
            assert!(u64::from(free) >= freed, "what is counted as freed is in the space");
            assert!(reclaimer.garbage_bytes() <= 512);
            assert!(reclaimer.leases.statistics().open <= 1);
            free
        };
        statistics_beside_collection(figures, |reclaimer| {
            reclaimer.make_room();
        });
    });
}

/// Statistics that lock the space, then the garbage, beside collection that locks the garbage, then the space. A model that is
/// found in a deadlock cannot be unwound, so it runs in a process of its own.
#[test]
fn control_locks_that_are_nested_both_ways() {
    const VARIABLE: &str = "SKEP_TEST_DEADLOCK";
    if std::env::var_os(VARIABLE).is_none() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "control_locks_that_are_nested_both_ways", "--nocapture"])
            .env(VARIABLE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stderr);
        assert!(!child.status.success() && text.contains("deadlock; threads"), "the control was not caught: {text}");
        return;
    }
    let run = || {
        let epochs = Epochs::new(1, 1);
        let mut garbage = GarbageList::default();
        garbage.push(epochs.tag(), vec![Garbage::Frame(RetiredFrame(1))]);
        let shared = Arc::new((Mutex::new(Space::default()), Mutex::new(garbage)));
        let statistics = shared.clone();
        let statistics = thread::spawn(move || {
            let (space, garbage) = &*statistics;
            let space = space.lock();
            let _ = garbage.lock().pins_of_oldest(&Epochs::new(1, 1));
            space.statistics().free
        });
        let (space, garbage) = &*shared;
        let mut garbage = garbage.lock();
        space.lock().free(garbage.take_past(&epochs, 1).len() as u32);
        drop(garbage);
        assert!(statistics.join().unwrap() <= 1);
    };
    model(run);
}
