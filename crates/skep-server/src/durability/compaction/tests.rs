//! Snapshots that a start writes: the directory keeps its bound and its time, and no failure keeps the start from serving.

use std::path::Path;
use std::sync::Arc;

use skep_core::operation::{Condition, Expiry, ExpiryChange, Operation, PutCondition, Reply, Request, StringWrite};
use skep_log::{
    BlockWriter, Directory, Disk, GroupWriter, LogSettings, Manifest, ManifestShard, Segments, SimulatedDisk,
};
use skep_store::hash::Settings;
use skep_store::ordered::{Effect, OrderedSettings, OrderedStore};
use skep_store::processor::{Processor, Replies};
use skep_wire::native::{HASH_SPACE, ORDERED_SPACE};

use super::Loaded;
use crate::durability::embedding::{random_number, recover_opened, recover_store};
use crate::durability::loading::Progress;
use crate::durability::recovery::{NewStores, Opened, Recovered, recover};
use crate::function_loader::FunctionLoader;
use crate::settings::ServerSettings;
use crate::vocabulary::Durability;

const SEGMENT_SIZE: u64 = 64 << 10;
const LOG: LogSettings = LogSettings { segment_size: SEGMENT_SIZE, group_size: 4096 };

fn settings(seed: u64) -> Settings {
    Settings::for_kv_size(1 << 20, 10, seed)
}

/// Writes a block to the log.
fn write<D: Disk>(groups: &mut GroupWriter, segments: &mut Segments<D>, block: &mut BlockWriter) {
    groups.push(block.seal(0).unwrap());
    while groups.queued_size() > 0 {
        if groups.needs_segment() {
            groups.add_segment(segments.prepare(groups.next_group() << 20).unwrap());
        }
        if let Some(write) = groups.next_write() {
            let written = segments.write(&write);
            groups.written(write, written);
        }
    }
}

fn keys(processor: &mut Processor) -> Vec<Vec<u8>> {
    let (mut keys, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        next = processor.walk_pairs(from, |key, _, _| keys.push(key.to_vec()));
    }
    keys.sort();
    keys
}

/// Each start begins a segment, and the process ends before a snapshot is complete.
#[test]
fn processes_that_are_killed_soon_do_not_make_a_directory_grow() {
    let directory = tempfile::tempdir().unwrap();
    let log = LogSettings { segment_size: SEGMENT_SIZE, ..LogSettings::default() };
    for start in 0..40_u64 {
        let settings = Settings::for_kv_size(1 << 20, 10, start);
        let (mut processor, recovered) = recover_store(directory.path(), &settings, log).unwrap();
        assert!(keys(&mut processor).into_iter().eq((0..start).map(|key| key.to_be_bytes().to_vec())), "start {start}");
        let Recovered { mut groups, segments, .. } = recovered;
        let mut block = BlockWriter::new();
        let operation = Operation::Put { value: b"value", condition: PutCondition::Always };
        assert!(block.append(HASH_SPACE, 1, &Request { key: &start.to_be_bytes(), operation }));
        groups.push(block.seal(0).unwrap());
        let write = groups.next_write().unwrap();
        let written = segments.write(&write);
        groups.written(write, written);
        assert_eq!(groups.durable_block(), start + 1);
        let files = std::fs::read_dir(directory.path()).unwrap();
        let size: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        // The pairs take one page of a snapshot, and there are two manifests.
        assert!(size <= 4 * SEGMENT_SIZE + 4 * 4096, "start {start}: {size} bytes");
    }
}

/// Starts at this time of the machine's clock.
fn start_at(path: &Path, now: u64) -> (Processor, Recovered) {
    let mut opened = Opened::new(path).unwrap();
    opened.now = now;
    recover_opened(opened, &settings(1), LOG).unwrap()
}

/// Writes a log with a key that has expired at its last time, one that has not, and many writes of a third one, which is
/// deleted.
fn write_long_log(path: &Path, value: &[u8]) {
    let Recovered { mut groups, mut segments, directory: _locked, .. } = start_at(path, 1_000_000).1;
    let mut block = BlockWriter::new();
    let lives_until = |expiry| {
        let expiry = ExpiryChange::set(Expiry::at(expiry).unwrap());
        Operation::StringWrite(StringWrite::Set { value, condition: Condition::ALWAYS, expiry, return_old: false })
    };
    assert!(block.append(HASH_SPACE, 1_000_000, &Request { key: b"expires", operation: lives_until(2_000_000) }));
    assert!(block.append(HASH_SPACE, 1_000_000, &Request { key: b"stays", operation: lives_until(9_000_000) }));
    write(&mut groups, &mut segments, &mut block);
    for _ in 0..100 {
        let long = [7; 3000];
        let operation = Operation::Put { value: &long, condition: PutCondition::Always };
        assert!(block.append(HASH_SPACE, 1_000_000, &Request { key: b"long", operation }));
        write(&mut groups, &mut segments, &mut block);
    }
    assert!(block.append(HASH_SPACE, 1_000_000, &Request { key: b"long", operation: Operation::Delete }));
    block.append_time(3_000_000);
    write(&mut groups, &mut segments, &mut block);
}

/// A key that a client has seen expire must not be back, also if the start that has removed the log is killed at once.
#[test]
fn a_start_that_is_killed_after_its_snapshot_does_not_bring_expired_keys_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let value = &b"value"[..];
    write_long_log(path, value);
    for start in 0..4 {
        let (mut processor, recovered) = start_at(path, 1_500_000 + start);
        // The first of these starts takes a snapshot, and nothing of the log is left.
        assert!(recovered.log_bytes <= 4 * SEGMENT_SIZE, "{} bytes", recovered.log_bytes);
        assert!(recovered.last_time >= 3_000_000, "start {start}: {}", recovered.last_time);
        assert_eq!(processor.now(), recovered.last_time);
        let get = |key| Request { key, operation: Operation::Get };
        let mut replies = Replies::with_budget(1 << 20);
        processor.execute(&[get(b"expires"), get(b"stays")], &mut replies);
        assert_eq!((replies.get(0), replies.get(1)), (Reply::NotFound, Reply::Value(value)), "start {start}");
        let manifest = recovered.directory.manifest().unwrap();
        let mut in_snapshot = 0;
        let read = recovered.directory.read_snapshot(0, |chunk| {
            in_snapshot += chunk.pairs;
            Ok(())
        });
        read.unwrap();
        assert_eq!((manifest.snapshot.is_some(), in_snapshot), (true, 1), "start {start}");
    }
}

/// A clock that was wrong at a start at which no client has seen a key costs nothing.
#[test]
fn a_start_alone_states_no_time() {
    let directory = tempfile::tempdir().unwrap();
    for clock in [5_000, 9_000, 6_000] {
        assert_eq!(start_at(directory.path(), clock).1.last_time, clock);
    }
}

/// Starts with an ordered space at this time of the machine's clock. Returns the number of its keys, the keys of the hash
/// space, and what was recovered.
fn start_with_ordered(path: &Path, now: u64) -> (u64, Vec<Vec<u8>>, Recovered) {
    let mut opened = Opened::new(path).unwrap();
    opened.now = now;
    let server = ServerSettings { shards: 1, memory: 1 << 20, ordered_memory: 1 << 20, ..ServerSettings::default() };
    let server = ServerSettings { durability: Durability::Always, ..server };
    let mut processor = Processor::new(&settings(1)).unwrap();
    let mut ordered = OrderedStore::new(&OrderedSettings::new(1 << 20)).unwrap();
    let (processors, tables) = (vec![&mut processor], &[settings(1)]);
    let loader = FunctionLoader::new(0);
    let stores = NewStores { processors, tables, ordered: Some(&mut ordered), loader: &loader };
    let recovered = recover(opened, &server, LOG, stores, random_number, &Progress::default()).unwrap();
    (ordered.expiring_count(), keys(&mut processor), recovered)
}

/// Keys that have expired by the clock of a start alone are loaded, and are in the snapshot that it takes.
#[test]
fn a_snapshot_of_a_start_has_the_keys_that_have_expired_by_a_wrong_clock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write_long_log(path, b"value");
    let Recovered { mut groups, segments, directory: locked, .. } = start_with_ordered(path, 3_000_000).2;
    let mut block = BlockWriter::new();
    for (version, key, expiry) in [(1, b"a", 2_000_000), (2, b"b", 9_000_000)] {
        let effect = Effect { version, key: &key[..], value: Some((&b"value"[..], Expiry::at(expiry))) };
        assert!(block.append_effect(ORDERED_SPACE, version, &effect.request()));
    }
    groups.push(block.seal_floor(3));
    let write = groups.next_write().unwrap();
    let written = segments.write(&write);
    groups.written(write, written);
    drop((locked, segments));
    for (start, clock) in [50_000_000, 60_000_000, 3_500_000, 70_000_000, 3_600_000].into_iter().enumerate() {
        let (of_ordered, of_hash, recovered) = start_with_ordered(path, clock);
        let manifest = recovered.directory.manifest().unwrap();
        assert_eq!((manifest.last_time, recovered.last_time), (3_000_000, clock), "start {start}");
        assert_eq!((of_ordered, of_hash), (1, vec![b"stays".to_vec()]), "start {start}");
        // Each of these starts after the first one finds a short log.
        assert!(manifest.snapshot.is_some() && recovered.has_expiries, "start {start}");
    }
}

const PAIRS: u64 = 200;

/// Returns a disk with a log of all pairs, which is long, and a store that has them.
fn long_log() -> (SimulatedDisk, Processor) {
    let disk = Arc::new(SimulatedDisk::new(1));
    let mut directory = Directory::open(Arc::clone(&disk)).unwrap();
    let end = directory.read_log(false, |_| Ok(())).unwrap();
    let (mut groups, mut segments) = directory.begin(end, LOG, manifest(), || 1).unwrap();
    let mut processor = Processor::new(&settings(1)).unwrap();
    let (mut block, mut replies) = (BlockWriter::new(), Replies::with_budget(1 << 20));
    for number in 0..PAIRS {
        let key = number.to_be_bytes();
        let operation = Operation::Put { value: b"value", condition: PutCondition::Always };
        let request = Request { key: &key, operation };
        processor.execute(&[request], &mut replies);
        assert!(block.append(HASH_SPACE, 1, &request));
        write(&mut groups, &mut segments, &mut block);
    }
    (disk.kill(), processor)
}

fn manifest() -> Manifest {
    Manifest { shards: vec![ManifestShard::default()], last_time: 1, ..Manifest::default() }
}

/// Starts with a snapshot if `compacts`, which may fail. Returns whether it was written, or `None` if the start fails.
fn start(disk: &Arc<SimulatedDisk>, processor: &mut Processor, compacts: bool) -> Option<bool> {
    start_noting(disk, processor, compacts, &mut (0..0))
}

/// Starts, and notes which calls of the disk were made for the snapshot.
fn start_noting(
    disk: &Arc<SimulatedDisk>,
    processor: &mut Processor,
    compacts: bool,
    calls: &mut std::ops::Range<u64>,
) -> Option<bool> {
    let mut directory = Directory::open(Arc::clone(disk)).ok()?;
    let mut end = directory.read_log(false, |_| Ok(())).ok()?;
    let mut loaded = Loaded { processors: vec![processor], ordered: None };
    calls.start = disk.calls();
    let is_compacted = compacts && loaded.compact(disk, &mut directory, &mut end, &manifest());
    calls.end = disk.calls();
    directory.begin(end, LOG, manifest(), || 77).ok().map(|_| is_compacted)
}

/// Returns the pairs of the snapshot, and the operations of the log after it.
fn contents(disk: Arc<SimulatedDisk>) -> (u64, u64) {
    let directory = Directory::open(disk).unwrap();
    let (mut pairs, mut operations) = (0, 0);
    let read = directory.read_snapshot(0, |chunk| {
        pairs += u64::from(chunk.pairs);
        Ok(())
    });
    read.unwrap();
    let read = directory.read_log(false, |blocks| {
        blocks.for_each(|block| operations += u64::from(block.count));
        Ok(())
    });
    read.unwrap();
    (pairs, operations)
}

/// Returns another disk with these files.
fn copy(disk: &SimulatedDisk) -> Arc<SimulatedDisk> {
    let copy = SimulatedDisk::new(1);
    for name in disk.list().unwrap() {
        copy.set_content(&name, disk.content(&name).unwrap());
    }
    Arc::new(copy)
}

/// Any call of the disk may fail while the snapshot is written, also that of the manifest. Then the start goes on with the
/// log, and the process may end at any time after that.
#[test]
fn a_snapshot_that_cannot_be_written_does_not_keep_a_server_from_starting() {
    let (original, mut processor) = long_log();
    let disk = copy(&original);
    let mut calls = 0..0;
    assert_eq!(start_noting(&disk, &mut processor, true, &mut calls), Some(true));
    for call in calls.clone() {
        let disk = copy(&original);
        disk.fail_at(call + 1 - disk.calls(), std::io::ErrorKind::StorageFull);
        assert_eq!(start(&disk, &mut processor, true), Some(false), "call {call}");
        let killed = disk.kill();
        for next in [copy(&killed), Arc::new(killed.crash())] {
            let contents = contents(next);
            assert!(contents == (PAIRS, 0) || contents == (0, PAIRS), "call {call}: {contents:?}");
        }
    }
    assert!(calls.end - calls.start > 30, "{calls:?}");
}

/// A start that succeeds without a snapshot succeeds with one, however much room is left.
#[test]
fn a_full_disk_does_not_keep_a_server_with_a_long_log_from_starting() {
    let (original, mut processor) = long_log();
    let used: u64 = original.list().unwrap().iter().map(|name| original.content(name).unwrap().len() as u64).sum();
    let mut outcomes = [0; 2];
    for room in 0..40 {
        let full = |processor: &mut Processor, compacts| {
            let disk = copy(&original);
            disk.limit(used + room * 2048);
            let started = start(&disk, processor, compacts);
            (started, contents(Arc::new(disk.kill())))
        };
        let (without, _) = full(&mut processor, false);
        let (with, contents) = full(&mut processor, true);
        assert!(without.is_none() || with.is_some(), "{room}: the start is refused");
        let is_compacted = with == Some(true);
        assert_eq!(contents, if is_compacted { (PAIRS, 0) } else { (0, PAIRS) }, "{room}");
        outcomes[usize::from(is_compacted)] += 1;
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}
