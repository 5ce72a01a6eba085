//! Crashes, kills and failed calls at random moments, compared with a model that keeps all blocks.
//!
//! Each seed is a few lives of a process: it recovers the directory, checks what it finds, and then appends blocks and
//! transactions, takes snapshots, trims and recycles segments, until a call fails. After a recovery:
//! 1. the hash space has the state after one of the blocks, and all blocks up to it
//! 2. the ordered space has the state at the greatest floor of these blocks
//! 3. block and floor are not before the last ones that were acknowledged
//!
//! `SKEP_LONG` multiplies the seeds: 10⁴ without it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use skep_core::operation::{Operation, PutCondition, Request};

use super::model::{Change, Effect, Model, ModelBlock, Pairs, position, shard, take_effect};
use super::{Random, Rule, recover};
use crate::{
    Block, BlockWriter, ChunkWriter, Directory, GroupWriter, LogEnd, LogError, LogSettings, Manifest, ManifestShard,
    PAGE_SIZE, Pages, Segments, SimulatedDisk, SimulatedFile, SnapshotFile, SnapshotPart, SnapshotWriter, Write,
    WriteInFlight,
};

/// Why a life ended.
enum End {
    /// A call failed, or the life was long enough.
    Stopped,
    /// The directory was refused.
    Refused(LogError),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        End::Stopped
    }
}

impl From<LogError> for End {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Io { .. } => End::Stopped,
            error => End::Refused(error),
        }
    }
}

/// What has happened in all lives of all seeds. A test that does not come across these proves little.
#[derive(Debug, Default)]
struct Seen {
    blocks: u64,
    cuts: u64,
    snapshots: u64,
    recycled: u64,
    failed_writes: u64,
    long_groups: u64,
    dropped_effects: u64,
    fresh_logs: u64,
}

/// What is wrong after a recovery.
#[derive(Debug)]
#[expect(dead_code, reason = "a failing test prints the fields")]
enum Fault {
    /// Acknowledged blocks are missing.
    Lost(String),
    /// The state is not that after one of the blocks.
    Wrong(String),
    /// The directory was refused.
    Refused(LogError),
}

/// A snapshot that is being taken.
struct Walk {
    number: u64,
    first_group: u64,
    /// The shards, and then the ordered space.
    parts: Vec<PartWalk>,
    /// The last block and version that the snapshot contains.
    last_block: u64,
    last_version: u64,
}

struct PartWalk {
    chunks: ChunkWriter,
    file: Option<SnapshotWriter<SimulatedDisk>>,
    finished: SnapshotFile,
    /// Where the next step begins: the position of a shard, or the key. `None` after the last one.
    next: Option<(u64, Vec<u8>)>,
}

/// One life of a process. It has one thread for each shard.
struct Process<'a> {
    random: &'a mut Random,
    model: &'a mut Model,
    seen: &'a mut Seen,
    rule: Rule,
    segment_size: u64,
    disk: Arc<SimulatedDisk>,
    directory: Directory<SimulatedDisk>,
    groups: GroupWriter,
    segments: Segments<SimulatedDisk>,
    writers: Vec<BlockWriter>,
    /// The block that each thread writes.
    open: Vec<ModelBlock>,
    next_version: u64,
    pairs: [Pairs; 2],
    /// Blocks that were sealed and have not reached the group writer.
    sealed: VecDeque<Block>,
    in_flight: Vec<(Write, WriteInFlight)>,
    walk: Option<Walk>,
    /// A fresh log was begun, and no manifest names it yet.
    is_fresh: bool,
}

fn manifest(shards: usize) -> Manifest {
    Manifest { shards: vec![ManifestShard::default(); shards], ..Manifest::default() }
}

/// Compares what was recovered with the model, and forgets the blocks that were lost. Returns the fault.
fn check(model: &mut Model, pairs: &[Pairs; 2], end: &LogEnd, seen: &mut Seen) -> Result<(), Fault> {
    let last = end.next_block() - 1;
    let sealed = model.blocks.len() as u64;
    if last < model.acknowledged || last > sealed {
        let acknowledged = model.acknowledged;
        return Err(Fault::Lost(format!("{last} blocks of {sealed}, {acknowledged} were acknowledged")));
    }
    let effects = |model: &Model| model.blocks.iter().map(|block| block.effects.len() as u64).sum::<u64>();
    model.blocks.truncate(last as usize);
    let before = effects(model);
    let (expected, floor) = model.truncate(last);
    seen.dropped_effects += before - effects(model);
    if end.floor() != floor || floor < model.acknowledged_floor {
        let acknowledged = model.acknowledged_floor;
        return Err(Fault::Lost(format!("floor {} instead of {floor}, acknowledged: {acknowledged}", end.floor())));
    }
    match *pairs == expected {
        true => Ok(()),
        false => Err(Fault::Wrong(format!("not the state after block {last} and at version {floor}"))),
    }
}

impl Process<'_> {
    fn change(&mut self, thread: usize, change: Change) {
        change.execute(&mut self.pairs[0], self.model.shards);
        let now = 1000 + self.random.next() % 2;
        match (change.request(), &change) {
            (Some(request), _) => assert!(self.writers[thread].append(0, now, &request)),
            (None, Change::Flush(shard)) => self.writers[thread].append_flush(0, *shard as u16, 4),
            (None, _) => unreachable!("only a flush has no request"),
        }
        self.open[thread].changes.push(change);
    }

    /// Writes to the ordered space, whose keys all threads share.
    fn effect(&mut self, thread: usize) {
        let (key, value) = match Change::random(self.random) {
            Change::Put(key, value) | Change::Append(key, value) => (key, Some(value)),
            Change::Delete(key) => (key, None),
            Change::Flush(_) => return,
        };
        let effect = Effect { version: self.next_version, key, value };
        self.next_version += 1 + self.random.next() % 200;
        take_effect(&mut self.pairs[1], &effect);
        let operation = match &effect.value {
            Some(value) => Operation::Put { value, condition: PutCondition::Always },
            None => Operation::Delete,
        };
        assert!(self.writers[thread].append_effect(1, effect.version, &Request { key: &effect.key, operation }));
        self.open[thread].effects.push(effect);
    }

    /// Executes some operations on the shard of a thread and in the ordered space.
    fn execute(&mut self, thread: usize) {
        for _ in 0..1 + self.random.below(4) {
            match self.random.below(40) {
                0 => self.change(thread, Change::Flush(thread)),
                1..10 => self.effect(thread),
                _ => {
                    let change = loop {
                        let change = Change::random(self.random);
                        if change.key().is_some_and(|key| shard(key, self.model.shards) == thread) {
                            break change;
                        }
                    };
                    self.change(thread, change);
                }
            }
        }
    }

    /// Seals the block of a thread. The queue of blocks is locked meanwhile.
    fn seal(&mut self, thread: usize) {
        let unsealed = self.open.iter().enumerate().filter(|(other, _)| *other != thread);
        let first = unsealed.filter_map(|(_, block)| block.effects.first().map(|effect| effect.version)).min();
        let floor = first.unwrap_or(self.next_version);
        if let Some(block) = self.writers[thread].seal(floor) {
            self.model.blocks.push(ModelBlock { floor, ..std::mem::take(&mut self.open[thread]) });
            self.sealed.push_back(block);
            self.seen.blocks += 1;
        }
    }

    /// Executes a transaction on all shards: their threads lend them to one of them.
    fn transact(&mut self, thread: usize) {
        (0..self.model.shards).for_each(|shard| self.seal(shard));
        for _ in 0..1 + self.random.below(6) {
            let change = Change::random(self.random);
            self.change(thread, change);
            self.effect(thread);
        }
        self.seal(thread);
    }

    /// Gives sealed blocks to the group writer.
    fn push(&mut self) {
        for _ in 0..1 + self.random.below(3) {
            let next = self.model.blocks.len() - self.sealed.len() + 1;
            if let Some(block) = self.sealed.pop_front() {
                assert_eq!(self.groups.push(block), next as u64);
            }
        }
    }

    fn begin_writes(&mut self) -> Result<(), End> {
        if self.groups.needs_segment() && self.random.once_in(2) {
            // It can be tried again later.
            if let Ok(segment) = self.segments.prepare(self.random.next()) {
                self.groups.add_segment(segment);
            }
        }
        let write = if self.random.once_in(3) { self.groups.next_seal() } else { self.groups.next_write() };
        let Some(write) = write else { return Ok(()) };
        let end = write.offset + (write.pages().len() * PAGE_SIZE) as u64;
        self.seen.long_groups += u64::from(end > self.segment_size);
        if self.rule == Rule::Early {
            self.model.acknowledged = self.groups.next_block() - 1;
        }
        let file: Arc<SimulatedFile> = self.segments.file(write.segment);
        match self.disk.begin_write(&file, write.offset, write.pages()) {
            Ok(in_flight) => self.in_flight.push((write, in_flight)),
            Err(error) => self.fail(write, error)?,
        }
        while let Some(block) = self.groups.take_spent() {
            let thread = self.random.below(self.writers.len());
            self.writers[thread].reuse(block);
        }
        Ok(())
    }

    /// After a failed write, nothing is acknowledged any more, or a fresh log is begun.
    fn fail(&mut self, write: Write, error: io::Error) -> Result<(), End> {
        self.seen.failed_writes += 1;
        let durable = self.groups.durable_block();
        self.groups.written(write, Err(error));
        for (write, in_flight) in std::mem::take(&mut self.in_flight) {
            self.disk.end_write(&in_flight);
            self.groups.written(write, Ok(()));
        }
        assert_eq!(self.groups.durable_block(), durable);
        assert!(
            self.groups.failure().is_some() && self.groups.next_write().is_none() && self.groups.next_seal().is_none()
        );
        if self.random.once_in(4) {
            return Err(End::Stopped);
        }
        self.walk = None;
        let earlier = if self.is_fresh { self.groups.fresh_segments() } else { Vec::new() };
        self.is_fresh = true;
        if self.groups.needs_segment() {
            let uid = self.random.next();
            self.groups.add_segment(self.segments.prepare(uid).map_err(LogError::io("prepare", "a segment"))?);
        }
        let (floor, next_block) = (self.next_version, self.groups.next_block());
        self.directory.begin_fresh(&mut self.groups, &mut self.segments, next_block, floor)?;
        self.groups.remove_segments(&earlier);
        for number in earlier {
            self.segments.recycle(number).map_err(LogError::io("recycle", "a segment"))?;
        }
        Ok(())
    }

    fn end_write(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let (write, in_flight) = self.in_flight.swap_remove(self.random.below(self.in_flight.len()));
        self.disk.end_write(&in_flight);
        self.groups.written(write, Ok(()));
        self.acknowledge();
    }

    fn acknowledge(&mut self) {
        if !self.is_fresh {
            self.model.acknowledged = self.model.acknowledged.max(self.groups.durable_block());
            self.model.acknowledged_floor = self.groups.durable_floor();
        }
    }

    /// Begins a snapshot, makes a step of it, or completes it.
    fn walk(&mut self) -> Result<(), End> {
        let Some(mut walk) = self.walk.take() else {
            let number = self.directory.manifest().map_or(0, |manifest| manifest.generation) + 1;
            let parts = (0..self.model.shards as u16).map(SnapshotPart::Shard).chain([SnapshotPart::Ordered]);
            let part = |part| PartWalk {
                chunks: ChunkWriter::new(number, part),
                file: None,
                finished: SnapshotFile::default(),
                next: Some((0, Vec::new())),
            };
            // The open blocks have operations from before the walk, and belong to a later group.
            let first_group = self.groups.next_group();
            self.walk =
                Some(Walk { number, first_group, parts: parts.map(part).collect(), last_block: 0, last_version: 0 });
            return Ok(());
        };
        let part = self.random.below(walk.parts.len());
        if walk.parts[part].next.is_some() {
            self.step(&mut walk, part)?;
        }
        let is_complete = walk.parts.iter().all(|part| part.next.is_none());
        let is_durable =
            walk.last_block <= self.groups.durable_block() && walk.last_version < self.groups.durable_floor();
        if !is_complete || !is_durable {
            self.walk = Some(walk);
            return Ok(());
        }
        let (ordered, shards) = walk.parts.split_last().expect("the ordered space");
        let shard = |shard: &PartWalk| ManifestShard { secret_seed: 0, file: shard.finished };
        let manifest = Manifest {
            snapshot: Some(walk.number),
            first_group: walk.first_group,
            shards: shards.iter().map(shard).collect(),
            ordered: ordered.finished,
            ..self.directory.manifest().expect("a manifest").clone()
        };
        self.directory.write_manifest(manifest, &self.groups)?;
        self.seen.snapshots += 1;
        self.seen.fresh_logs += u64::from(std::mem::take(&mut self.is_fresh));
        self.acknowledge();
        self.directory.remove_old_snapshots()?;
        while let Some(number) = self.groups.trim(walk.first_group) {
            self.segments.recycle(number)?;
            self.seen.recycled += 1;
        }
        Ok(())
    }

    fn step(&mut self, walk: &mut Walk, part: usize) -> Result<(), End> {
        let shards = self.model.shards;
        let is_shard = part < shards;
        if is_shard {
            self.seal(part);
        }
        let PartWalk { next, chunks, file, finished } = &mut walk.parts[part];
        let (from, from_key) = next.take().expect("the walk is not at its end");
        if is_shard {
            let to = from.saturating_add(self.random.next() / 2);
            for (key, value) in &self.pairs[0] {
                if shard(key, shards) == part && (from..=to).contains(&position(key)) {
                    chunks.push(key, value, None);
                }
            }
            walk.last_block = self.model.blocks.len() as u64;
            chunks.end_step(to, walk.last_block);
            *next = to.checked_add(1).map(|next| (next, Vec::new()));
        } else {
            let end = format!("key {}", self.random.below(24)).into_bytes();
            let end = Some(end).filter(|end| *end > from_key && !self.random.once_in(3));
            for (key, value) in &self.pairs[1] {
                if *key >= from_key && end.as_ref().is_none_or(|end| key < end) {
                    chunks.push(key, value, None);
                }
            }
            walk.last_version = self.next_version - 1;
            chunks.end_ordered_step(end.as_deref(), walk.last_version);
            *next = end.map(|end| (0, end));
        }
        if next.is_none() || chunks.size() > PAGE_SIZE {
            let mut pages = Pages::default();
            assert!(chunks.finish(&mut pages));
            if file.is_none() {
                let part = if is_shard { SnapshotPart::Shard(part as u16) } else { SnapshotPart::Ordered };
                *file = Some(SnapshotWriter::create(Arc::clone(&self.disk), walk.number, part)?);
            }
            file.as_mut().expect("it was created").write(&pages)?;
        }
        if next.is_none() {
            *finished = file.take().expect("the last chunk was written").finish()?;
        }
        Ok(())
    }

    fn live(&mut self, steps: usize) -> Result<(), End> {
        for _ in 0..steps {
            let thread = self.random.below(self.model.shards);
            match self.random.below(19) {
                0..4 => {
                    self.execute(thread);
                    if !self.random.once_in(4) {
                        self.seal(thread);
                    }
                }
                4 => self.transact(thread),
                5..8 => self.push(),
                8..11 => self.begin_writes()?,
                11..14 => self.end_write(),
                _ => self.walk()?,
            }
        }
        Err(End::Stopped)
    }
}

/// Runs one life: recovers, checks, and works for some steps.
fn life(
    random: &mut Random,
    model: &mut Model,
    seen: &mut Seen,
    disk: &Arc<SimulatedDisk>,
    rule: Rule,
    settings: LogSettings,
) -> Result<(), Fault> {
    let mut fault = None;
    let mut run = || -> Result<(), End> {
        let mut directory = Directory::open(Arc::clone(disk))?;
        let shards = model.shards;
        let (pairs, end) = recover(&directory, shards, false, rule)?;
        if let Err(found) = check(model, &pairs, &end, seen) {
            fault = Some(found);
            return Err(End::Stopped);
        }
        seen.cuts += u64::from(end.cut.is_some());
        let next_version = end.floor().max(1);
        let (groups, segments) = directory.begin(end, settings, manifest(shards), || random.next())?;
        model.acknowledged = model.blocks.len() as u64;
        let steps = random.below(300);
        let mut process = Process {
            random,
            model,
            seen,
            rule,
            segment_size: settings.segment_size,
            disk: Arc::clone(disk),
            directory,
            groups,
            segments,
            writers: (0..shards).map(|_| BlockWriter::new()).collect(),
            open: vec![ModelBlock::default(); shards],
            next_version,
            pairs,
            sealed: VecDeque::new(),
            in_flight: Vec::new(),
            walk: None,
            is_fresh: false,
        };
        process.live(steps)
    };
    match (run(), fault) {
        (_, Some(fault)) => Err(fault),
        (Err(End::Refused(error)), None) => Err(Fault::Refused(error)),
        (Ok(()) | Err(End::Stopped), None) => Ok(()),
    }
}

/// Runs the lives of one seed. In the first one, the call with this number fails, or else any call of any life.
fn run(seed: u64, rule: Rule, lies: Option<u64>, failing: Option<u64>, seen: &mut Seen) -> Result<u64, Fault> {
    let mut random = Random(seed.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let mut model = Model { shards: 1 + random.below(3), ..Model::default() };
    let mut disk = Arc::new(SimulatedDisk::new(random.next()));
    disk.lie(lies);
    let settings = LogSettings {
        segment_size: (3 + random.below(8)) as u64 * PAGE_SIZE as u64,
        group_size: 1 << (8 + random.below(7)),
    };
    let mut calls_of_first = 0;
    for number in 0..4 {
        let kind = if random.once_in(2) { io::ErrorKind::Other } else { io::ErrorKind::StorageFull };
        let call = 1 + random.next() % 300;
        match failing {
            Some(call) if number == 0 => disk.fail_at(call, kind),
            None if !random.once_in(3) => disk.fail_at(call, kind),
            _ => {}
        }
        life(&mut random, &mut model, seen, &disk, rule, settings)?;
        if number == 0 {
            calls_of_first = disk.calls();
        }
        disk = Arc::new(if random.once_in(3) { disk.kill() } else { disk.crash() });
    }
    Ok(calls_of_first)
}

/// Returns the factor by which tests are longer.
fn factor() -> u64 {
    std::env::var("SKEP_LONG").map_or(1, |factor| factor.parse().expect("SKEP_LONG is a number"))
}

#[test]
fn nothing_acknowledged_is_lost() {
    let seeds = match std::env::var("SKEP_SEED") {
        Ok(seed) => vec![seed.parse().expect("SKEP_SEED is a number")],
        Err(_) => (1..=10_000 * factor()).collect(),
    };
    let mut seen = Seen::default();
    for &seed in &seeds {
        run(seed, Rule::Durable, None, None, &mut seen).unwrap_or_else(|fault| panic!("SKEP_SEED={seed}: {fault:?}"));
    }
    println!("{seen:?}");
    let Seen { blocks, cuts, snapshots, recycled, failed_writes, long_groups, dropped_effects, fresh_logs } = seen;
    let counts = [blocks, cuts, snapshots, recycled, failed_writes, long_groups, dropped_effects, 3 * fresh_logs];
    assert!(seeds.len() == 1 || counts.iter().all(|&count| count > 300), "{seen:?}");
}

#[test]
fn each_call_may_fail() {
    let mut tried = 0;
    for seed in 1..=60 * factor() {
        let mut call = 1;
        loop {
            let calls = run(seed, Rule::Durable, None, Some(call), &mut Seen::default());
            let calls = calls.unwrap_or_else(|fault| panic!("seed {seed}, call {call}: {fault:?}"));
            tried += 1;
            if calls < call {
                break;
            }
            call += 1;
        }
    }
    assert!(tried > 1000, "{tried}");
}

#[test]
fn an_early_acknowledgement_is_caught() {
    let caught = |seed: &u64| {
        matches!(run(*seed, Rule::Early, None, None, &mut Seen::default()), Err(Fault::Lost(_) | Fault::Refused(_)))
    };
    let caught = (1..=300).filter(caught).count();
    assert!(caught > 100, "{caught} of 300");
}

#[test]
fn a_replay_without_the_boundary_or_the_order_is_caught() {
    for (rule, expected) in [(Rule::WithoutBoundary, 300), (Rule::WithoutOrder, 30)] {
        let caught = |seed: &u64| matches!(run(*seed, rule, None, None, &mut Seen::default()), Err(Fault::Wrong(_)));
        let caught = (1..=1000).filter(caught).count();
        assert!(caught > expected, "{caught} of 1000");
    }
}

/// A disk that ignores flushes may lose what was acknowledged. Then the directory is refused, or the end of the log is
/// missing, which no format can notice. It never has another state.
#[test]
fn a_disk_that_lies_is_noticed_or_loses_the_end() {
    let (mut refused, mut lost) = (0, 0);
    for seed in 1..=1000 * factor() {
        match run(seed, Rule::Durable, Some(30), None, &mut Seen::default()) {
            Ok(_) => {}
            Err(Fault::Refused(_)) => refused += 1,
            Err(Fault::Lost(_)) => lost += 1,
            Err(fault) => panic!("seed {seed}: {fault:?}"),
        }
    }
    println!("{refused} refused, {lost} lost");
    assert!(refused > 100 && lost < refused, "{refused} refused, {lost} lost");
}
