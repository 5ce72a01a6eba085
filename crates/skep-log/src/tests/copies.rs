//! Copies of a directory to which a server writes: between the pages that a copy reads, the server goes on.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use skep_core::operation::{Operation, PutCondition, Request};

use super::functions::loaded;
use super::model::{Pairs, execute, shard};
use super::{Random, Rule};
use crate::{
    BlockWriter, ChunkWriter, CopyError, Directory, Disk, FunctionsFile, GroupWriter, LogError, LogSettings, Manifest,
    ManifestShard, PAGE_SIZE, Page, Pages, Segments, SimulatedDisk, SimulatedFile, SnapshotPart, SnapshotWriter, Write,
    copy,
};
use crate::{functions_file, segment};

const SETTINGS: LogSettings = LogSettings { segment_size: 16 * PAGE_SIZE as u64, group_size: 8192 };
const SHARDS: usize = 2;
const KEYS: usize = 7;
/// Most loads of functions: their files are read page by page.
const LOADS_MAX: u32 = 40;

/// A server. Each block puts the number of the block.
struct Server {
    disk: Arc<SimulatedDisk>,
    directory: Directory<SimulatedDisk>,
    groups: GroupWriter,
    segments: Segments<SimulatedDisk>,
    writer: BlockWriter,
    /// Writes in flight, and their pages that are not written yet.
    writes: Vec<(Write, Vec<usize>)>,
    /// The keys and values of all blocks.
    history: Vec<(Vec<u8>, Vec<u8>)>,
    functions: FunctionsFile<SimulatedDisk>,
    /// For each block, the number of loads before it: it may name all their functions.
    loads: Vec<u32>,
    last_load: u32,
    /// A snapshot that waits for its last block: first group, last block, number, files.
    taking: Option<(u64, u64, u64, Vec<ManifestShard>)>,
    snapshots: u64,
    /// The last block before a fresh log whose snapshot is not complete: later ones are not acknowledged.
    fresh_after: Option<u64>,
    fresh_logs: u64,
    random: Random,
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request { key, operation: Operation::Put { value, condition: PutCondition::Always } }
}

impl Server {
    fn start(disk: SimulatedDisk, seed: u64) -> Server {
        let disk = Arc::new(disk);
        let mut directory = Directory::open(Arc::clone(&disk)).unwrap();
        let end = directory.read_log(false, |_| Ok(())).unwrap();
        let new = Manifest { shards: vec![ManifestShard::default(); SHARDS], ..Manifest::default() };
        let (groups, segments) = directory.begin(end, SETTINGS, new, || 77).unwrap();
        let (writer, random) = (BlockWriter::new(), Random(seed));
        let (_, functions) = directory.functions().unwrap();
        let (writes, history, taking) = (Vec::new(), Vec::new(), None);
        Server {
            disk,
            directory,
            groups,
            segments,
            writer,
            writes,
            history,
            functions,
            loads: Vec::new(),
            last_load: 0,
            taking,
            snapshots: 0,
            fresh_after: None,
            fresh_logs: 0,
            random,
        }
    }

    /// Returns the last block that a client may know of.
    fn acknowledged(&self) -> u64 {
        self.fresh_after.unwrap_or(self.groups.durable_block())
    }

    /// Returns the pairs after the first blocks.
    fn pairs(&self, blocks: u64) -> Pairs {
        let mut pairs = Pairs::new();
        self.history[..blocks as usize].iter().for_each(|(key, value)| execute(&mut pairs, &put(key, value)));
        pairs
    }

    fn step(&mut self) {
        match self.random.below(12) {
            0..=2 if self.groups.queued_size() < 20_000 => {
                let number = self.history.len() + 1;
                let mut value = number.to_string().into_bytes();
                value.resize(10 + self.random.below(3000), b' ');
                self.history.push((format!("key {}", number % KEYS).into_bytes(), value));
                self.loads.push(self.last_load);
                let (key, value) = self.history.last().unwrap();
                assert!(self.writer.append(0, 1, &put(key, value)));
                assert_eq!(self.groups.push(self.writer.seal(0).unwrap()), number as u64);
            }
            3 if self.groups.needs_segment() => {
                let segment = self.segments.prepare(self.random.next()).unwrap();
                self.groups.add_segment(segment);
            }
            4..=5 => {
                if let Some(write) = self.groups.next_write().or_else(|| self.groups.next_seal()) {
                    let pages = (0..write.pages().len()).collect();
                    self.writes.push((write, pages));
                }
            }
            6..=10 if !self.writes.is_empty() => {
                let index = self.random.below(self.writes.len());
                let (write, pages) = &mut self.writes[index];
                let page = pages.swap_remove(self.random.below(pages.len()));
                let offset = write.offset + (page * PAGE_SIZE) as u64;
                let file = self.segments.file(write.segment);
                self.disk.write_at(&file, offset, &write.pages()[page..=page]).unwrap();
                if pages.is_empty() {
                    let (write, _) = self.writes.swap_remove(index);
                    self.groups.written(write, Ok(()));
                }
            }
            11 if self.random.once_in(20) => self.snapshot(),
            11 if self.random.once_in(4) && self.last_load < LOADS_MAX => {
                self.last_load += 1;
                self.functions.write(&loaded(self.last_load)).unwrap();
            }
            11 if self.random.once_in(10) && self.may_begin_log() => self.begin_log(),
            _ => {}
        }
    }

    fn may_begin_log(&self) -> bool {
        let is_idle = self.writes.is_empty() && self.groups.durable_block() == self.history.len() as u64;
        is_idle && self.taking.is_none() && !self.groups.needs_segment()
    }

    /// Begins a fresh log, as at the level `memory` or after a failure, and its snapshot.
    fn begin_log(&mut self) {
        let next_block = self.history.len() as u64 + 1;
        self.directory.begin_fresh(&mut self.groups, &mut self.segments, next_block, 1).unwrap();
        self.fresh_after = Some(next_block - 1);
        self.fresh_logs += 1;
        self.snapshot();
    }

    /// Begins a snapshot, or ends one.
    fn snapshot(&mut self) {
        let Some((first_group, last_block, number, shards)) = self.taking.take() else {
            self.snapshots += 1;
            let number = self.directory.manifest().unwrap().generation + 1;
            let last_block = self.groups.next_block() - 1;
            let pairs = self.pairs(last_block);
            let mut pages = Pages::default();
            let file = |of_file: u16| {
                let part = SnapshotPart::Shard(of_file);
                let mut chunks = ChunkWriter::new(number, part);
                let mut file = SnapshotWriter::create(Arc::clone(&self.disk), number, part).unwrap();
                let of_shard = pairs.iter().filter(|(key, _)| shard(key, SHARDS) == usize::from(of_file));
                of_shard.for_each(|(key, value)| chunks.push(key, value, None));
                chunks.end_step(u64::MAX, last_block);
                assert!(chunks.finish(&mut pages));
                file.write(&pages).unwrap();
                ManifestShard { secret_seed: 0, file: file.finish().unwrap() }
            };
            let files = (0..SHARDS as u16).map(file).collect();
            self.taking = Some((self.groups.next_group(), last_block, number, files));
            return;
        };
        if self.groups.durable_block() < last_block {
            self.taking = Some((first_group, last_block, number, shards));
            return;
        }
        let manifest = self.directory.manifest().unwrap().clone();
        let manifest = Manifest { snapshot: Some(number), first_group, shards, ..manifest };
        self.directory.write_manifest(manifest, &self.groups).unwrap();
        self.fresh_after = None;
        while let Some(number) = self.groups.trim(first_group) {
            self.segments.recycle(number).unwrap();
        }
        self.directory.remove_old_snapshots().unwrap();
    }
}

/// The disk of a server that goes on while another process reads.
struct Live {
    disk: SimulatedDisk,
    server: Mutex<Server>,
    /// Most steps of the server between two reads.
    steps: usize,
    /// A file whose first page is zeros when it is first read: the server has not written it yet.
    new: Mutex<Option<String>>,
    is_new_open: AtomicBool,
}

impl Live {
    fn go_on(&self) {
        let mut server = self.server.lock().unwrap();
        for _ in 0..server.random.below(self.steps + 1) {
            server.step();
        }
    }
}

impl Disk for Live {
    type File = SimulatedFile;

    fn lock(&self) -> io::Result<bool> {
        Ok(false)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.go_on();
        self.disk.list()
    }

    fn open(&self, name: &str) -> io::Result<SimulatedFile> {
        self.go_on();
        if self.new.lock().unwrap().take_if(|new| new == name).is_some() {
            self.is_new_open.store(true, Ordering::Relaxed);
        }
        self.disk.open(name)
    }

    fn size(&self, file: &SimulatedFile) -> io::Result<u64> {
        self.go_on();
        self.disk.size(file)
    }

    /// Reads the pages in any order.
    fn read_at(&self, file: &SimulatedFile, offset: u64, pages: &mut [Page]) -> io::Result<()> {
        if self.is_new_open.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let mut left: Vec<usize> = (0..pages.len()).collect();
        while !left.is_empty() {
            self.go_on();
            let choice = self.server.lock().unwrap().random.below(left.len());
            let page = left.swap_remove(choice);
            self.disk.read_at(file, offset + (page * PAGE_SIZE) as u64, &mut pages[page..=page])?;
        }
        Ok(())
    }

    fn create(&self, _: &str) -> io::Result<SimulatedFile> {
        unreachable!("a copy changes nothing")
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        unreachable!("a copy changes nothing")
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        unreachable!("a copy changes nothing")
    }

    fn sync_directory(&self) -> io::Result<()> {
        unreachable!("a copy changes nothing")
    }

    fn sync(&self, _: &SimulatedFile) -> io::Result<()> {
        unreachable!("a copy changes nothing")
    }

    fn write_at(&self, _: &SimulatedFile, _: u64, _: &[Page]) -> io::Result<()> {
        unreachable!("a copy changes nothing")
    }
}

/// Starts a server that has made some steps.
fn live(seed: u64) -> Arc<Live> {
    let disk = SimulatedDisk::new(seed);
    let mut server = Server::start(disk.other_process(), seed);
    for _ in 0..server.random.below(3000) {
        server.step();
    }
    let steps = [0, 1, 4, 12][server.random.below(4)];
    Arc::new(Live {
        disk,
        server: Mutex::new(server),
        steps,
        new: Mutex::default(),
        is_new_open: AtomicBool::default(),
    })
}

/// The segment of the fresh log had no header when the copy looked at it, and had groups when it searched for damage.
#[test]
fn a_log_that_begins_during_a_copy_is_no_damage() {
    let disk = SimulatedDisk::new(1);
    let mut server = Server::start(disk.other_process(), 1);
    let segment = server.segments.prepare(5).unwrap();
    let new = Mutex::new(Some(segment::name(segment.number)));
    server.groups.add_segment(segment);
    server.begin_log();
    for number in 1..4 {
        server.history.push((b"key".to_vec(), vec![b' '; number]));
        let (key, value) = server.history.last().unwrap();
        assert!(server.writer.append(0, 1, &put(key, value)));
        server.groups.push(server.writer.seal(0).unwrap());
        while let Some(write) = server.groups.next_write() {
            let result = server.segments.write(&write);
            server.groups.written(write, result);
        }
    }
    assert_eq!((server.groups.durable_block(), server.acknowledged()), (3, 0));
    let live = Arc::new(Live { disk, server: Mutex::new(server), steps: 0, new, is_new_open: AtomicBool::default() });
    let copied = copy(&live, &Arc::new(SimulatedDisk::new(2))).unwrap();
    assert_eq!(copied.log.operations, 0);
    assert!(live.new.lock().unwrap().is_none());
}

#[test]
fn a_copy_has_all_that_was_durable_when_it_began() {
    let (mut begun_again, mut went_on, mut fresh_logs) = (0, 0, 0);
    let (mut read_too_early, mut loaded_meanwhile) = (0, 0);
    for seed in 0..600 {
        let live = live(seed);
        let durable = live.server.lock().unwrap().acknowledged();
        let snapshots = live.server.lock().unwrap().snapshots;
        let loads_before = live.server.lock().unwrap().last_load;
        let read_before = functions_file::read_live(&live).unwrap().modules.len() as u32;
        assert!(read_before >= loads_before, "seed {seed}: {read_before} of {loads_before} loads");
        let target = Arc::new(SimulatedDisk::new(seed));
        match copy(&live, &target) {
            Err(CopyError::Changing) => {
                assert_eq!(target.list().unwrap(), ["lock"], "seed {seed}");
                continue;
            }
            result => drop(result.unwrap_or_else(|error| panic!("seed {seed}: {error}"))),
        }
        let server = live.server.lock().unwrap();
        begun_again += usize::from(server.snapshots > snapshots);
        fresh_logs += server.fresh_logs;
        // The copy is durable.
        let directory = Directory::open(Arc::new(target.crash())).unwrap();
        let ([pairs, _], end) = super::recover(&directory, SHARDS, false, Rule::Durable).unwrap();
        let last_block = end.next_block() - 1;
        assert!(last_block >= durable, "seed {seed}: {last_block} of {durable} blocks");
        assert!(pairs == server.pairs(last_block), "seed {seed}: another state than after block {last_block}");
        went_on += usize::from(last_block > durable);
        let (functions, file) = directory.functions().unwrap();
        let loads = functions.modules.len() as u32;
        assert_eq!((functions, file.damaged()), (loaded(loads), None), "seed {seed}");
        let named = last_block.checked_sub(1).map_or(0, |last| server.loads[last as usize]);
        assert!(loads >= named, "seed {seed}: {loads} loads, of which the log names {named}");
        loaded_meanwhile += usize::from(loads > loads_before);
        // The control: before the log.
        read_too_early += usize::from(read_before < named);
    }
    assert!(begun_again > 20 && went_on > 100 && fresh_logs > 50, "{begun_again} {went_on} {fresh_logs}");
    assert!(read_too_early > 20 && loaded_meanwhile > 50, "{read_too_early} {loaded_meanwhile}");
}

#[test]
fn the_log_of_a_server_that_runs_looks_damaged_to_a_recovery() {
    let looks_damaged = |seed: &u64| {
        let live = live(*seed);
        let directory = Directory::open_unlocked(Arc::clone(&live)).unwrap();
        matches!(
            directory.read_log(false, |_| Ok(())),
            Err(LogError::Damaged(_) | LogError::Incomplete { .. } | LogError::LogIncomplete { .. })
        )
    };
    assert!((0..100).filter(looks_damaged).count() > 10);
}
