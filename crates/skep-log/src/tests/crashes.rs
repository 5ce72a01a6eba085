//! Crashes, kills and failed calls at random moments, compared with a model that keeps all blocks.
//!
//! Each seed is a few lives of a process: it recovers the directory, checks what it finds, and then appends blocks and
//! transactions, takes snapshots, trims and recycles segments, until a call fails. After a recovery:
//! 1. each shard has the state after one of its blocks, and all blocks up to it
//! 2. this block is not before the last one that was acknowledged
//! 3. of each transaction, all parts are there or none
//!
//! `SKEP_LONG` multiplies the seeds: 10⁴ without it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use super::Random;
use super::model::{Change, ModelBlock, ModelShard, Pairs, execute, position};
use crate::{
    Block, BlockWriter, Boundary, ChunkWriter, Directory, GroupWriter, LogError, LogSettings, Manifest, ManifestShard,
    PAGE_SIZE, Pages, Segments, SimulatedDisk, SimulatedFile, SnapshotWriter, Transaction, Write, WriteInFlight,
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

/// When an operation is acknowledged.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    Durable,
    /// A control: when its block is given to the group writer.
    Early,
    /// A control: as `Durable`, but recovery applies all operations of the log to the snapshot.
    WithoutBoundary,
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
    shards: Vec<ShardWalk>,
}

struct ShardWalk {
    first_block: u64,
    last_block: u64,
    chunks: ChunkWriter,
    file: Option<SnapshotWriter<SimulatedDisk>>,
    finished: crate::SnapshotFile,
    /// `None` after the last position.
    next: Option<u64>,
}

/// One life of a process.
struct Process<'a> {
    random: &'a mut Random,
    model: &'a mut Vec<ModelShard>,
    seen: &'a mut Seen,
    rule: Rule,
    segment_size: u64,
    disk: Arc<SimulatedDisk>,
    directory: Directory<SimulatedDisk>,
    groups: GroupWriter,
    segments: Segments<SimulatedDisk>,
    writers: Vec<BlockWriter>,
    changes: Vec<Vec<Change>>,
    pairs: Vec<Pairs>,
    /// Blocks that were sealed and have not reached the group writer.
    sealed: Vec<VecDeque<Block>>,
    in_flight: Vec<(Write, WriteInFlight)>,
    walk: Option<Walk>,
    transactions: u64,
}

fn manifest(shards: usize) -> Manifest {
    Manifest { shards: vec![ManifestShard::default(); shards], ..Manifest::default() }
}

/// Recovers the directory. Returns the pairs and the next block of each shard.
fn recover(
    directory: &Directory<SimulatedDisk>,
    shards: usize,
    rule: Rule,
) -> Result<(Vec<Pairs>, crate::LogEnd), LogError> {
    let mut pairs = vec![Pairs::new(); shards];
    let mut boundaries = vec![Boundary::default(); shards];
    for (shard, (pairs, boundary)) in pairs.iter_mut().zip(&mut boundaries).enumerate() {
        *boundary = directory.read_snapshot(shard as u16, |chunk| {
            chunk.requests().try_for_each(|request| request.map(|request| execute(pairs, &request)))
        })?;
    }
    let end = directory.read_log(false, |block| {
        let shard = usize::from(block.shard);
        let boundary = if rule == Rule::WithoutBoundary { &Boundary::default() } else { &boundaries[shard] };
        let last = boundary.last_position(block.index);
        for request in block.sections().flat_map(|section| section.operations) {
            let request = request?;
            if last.is_some_and(|last| position(request.key) <= last) {
                execute(&mut pairs[shard], &request);
            }
        }
        Ok(())
    })?;
    Ok((pairs, end))
}

/// Compares what was recovered with the model, and forgets the blocks that were lost. Returns the fault.
fn check(model: &mut [ModelShard], pairs: &[Pairs], end: &crate::LogEnd) -> Result<(), Fault> {
    let mut transactions: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    for (shard, (of_model, pairs)) in model.iter_mut().zip(pairs).enumerate() {
        let last = end.next_block(shard as u16) - 1;
        let sealed = of_model.blocks.len() as u64;
        if last < of_model.acknowledged || last > sealed {
            let acknowledged = of_model.acknowledged;
            return Err(Fault::Lost(format!(
                "shard {shard} has {last} blocks of {sealed}, {acknowledged} were acknowledged"
            )));
        }
        if *pairs != of_model.pairs_after(last) {
            return Err(Fault::Wrong(format!("shard {shard} has not the state after block {last}")));
        }
        for (index, block) in of_model.blocks.iter().enumerate() {
            if let Some(transaction) = block.transaction {
                transactions.entry(transaction).or_default()[usize::from((index as u64) < last)] += 1;
            }
        }
        of_model.blocks.truncate(last as usize);
    }
    match transactions.iter().find(|(_, [lost, recovered])| *lost > 0 && *recovered > 0) {
        Some((transaction, parts)) => Err(Fault::Wrong(format!("transaction {transaction} in parts: {parts:?}"))),
        None => Ok(()),
    }
}

impl Process<'_> {
    /// Executes some operations on a shard.
    fn execute(&mut self, shard: usize) {
        for _ in 0..1 + self.random.below(4) {
            let change = Change::random(self.random);
            execute(&mut self.pairs[shard], &change.request());
            let now = 1000 + self.random.next() % 2;
            assert!(self.writers[shard].append(0, now, &change.request()));
            self.changes[shard].push(change);
        }
    }

    fn seal(&mut self, shard: usize, transaction: Option<Transaction>) {
        if let Some(block) = self.writers[shard].seal(transaction) {
            assert_eq!(block.index(), self.model[shard].blocks.len() as u64 + 1);
            self.model[shard].blocks.push(ModelBlock {
                changes: std::mem::take(&mut self.changes[shard]),
                transaction: transaction.map(|transaction| transaction.number),
            });
            self.sealed[shard].push_back(block);
            self.seen.blocks += 1;
        }
    }

    /// Executes a transaction on some shards.
    fn transact(&mut self) {
        let shards: Vec<usize> = (0..self.model.len()).filter(|_| self.random.once_in(2)).collect();
        self.transactions += 1;
        let transaction = Transaction { number: self.transactions, parts: shards.len() as u16 };
        for shard in shards {
            if self.random.once_in(2) {
                self.seal(shard, None);
            }
            if !self.random.once_in(5) {
                self.execute(shard);
            }
            self.seal(shard, Some(transaction));
        }
    }

    /// Gives sealed blocks of a shard to the group writer.
    fn push(&mut self, shard: usize) {
        for _ in 0..1 + self.random.below(3) {
            if let Some(block) = self.sealed[shard].pop_front() {
                self.groups.push(block);
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
            for (shard, model) in self.model.iter_mut().enumerate() {
                let waiting = self.sealed[shard].len() as u64;
                model.acknowledged = model.blocks.len() as u64 - waiting;
            }
        }
        let file: Arc<SimulatedFile> = self.segments.file(write.segment);
        match self.disk.begin_write(&file, write.offset, write.pages()) {
            Ok(in_flight) => self.in_flight.push((write, in_flight)),
            Err(error) => self.fail(write, error)?,
        }
        while let Some(block) = self.groups.take_spent() {
            self.writers[usize::from(block.shard())].reuse(block);
        }
        Ok(())
    }

    /// After a failed write, nothing is acknowledged any more.
    fn fail(&mut self, write: Write, error: io::Error) -> Result<(), End> {
        self.seen.failed_writes += 1;
        let durable = self.groups.durable().to_vec();
        self.groups.written(write, Err(error));
        for (write, in_flight) in std::mem::take(&mut self.in_flight) {
            self.disk.end_write(&in_flight);
            assert_eq!(self.groups.written(write, Ok(())), durable);
        }
        assert!(
            self.groups.failure().is_some() && self.groups.next_write().is_none() && self.groups.next_seal().is_none()
        );
        Err(End::Stopped)
    }

    fn end_write(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let (write, in_flight) = self.in_flight.swap_remove(self.random.below(self.in_flight.len()));
        self.disk.end_write(&in_flight);
        let durable = self.groups.written(write, Ok(()));
        for (model, &durable) in self.model.iter_mut().zip(durable) {
            model.acknowledged = model.acknowledged.max(durable);
        }
    }

    /// Begins a snapshot, makes a step of it, or completes it.
    fn walk(&mut self) -> Result<(), End> {
        let Some(mut walk) = self.walk.take() else {
            let number = self.directory.manifest().map_or(0, |manifest| manifest.generation) + 1;
            let shard = |(shard, writer): (usize, &BlockWriter)| ShardWalk {
                first_block: writer.index(),
                last_block: 0,
                chunks: ChunkWriter::new(number, shard as u16),
                file: None,
                finished: crate::SnapshotFile::default(),
                next: Some(0),
            };
            let shards = self.writers.iter().enumerate().map(shard).collect();
            // The open blocks have operations from before the walk, and belong to a later group.
            self.walk = Some(Walk { number, first_group: self.groups.next_group(), shards });
            return Ok(());
        };
        let shard = self.random.below(walk.shards.len());
        if walk.shards[shard].next.is_some() {
            self.step(&mut walk, shard)?;
        }
        let is_complete = walk.shards.iter().all(|shard| shard.next.is_none());
        let durable = self.groups.durable();
        if !is_complete || walk.shards.iter().zip(durable).any(|(shard, &durable)| shard.last_block > durable) {
            self.walk = Some(walk);
            return Ok(());
        }
        let shard = |shard: &ShardWalk| ManifestShard {
            secret_seed: 0,
            first_block: shard.first_block,
            last_block: shard.last_block,
            file: shard.finished,
        };
        let manifest = Manifest {
            snapshot: Some(walk.number),
            first_group: walk.first_group,
            shards: walk.shards.iter().map(shard).collect(),
            ..self.directory.manifest().expect("a manifest").clone()
        };
        self.directory.write_manifest(manifest, &self.groups)?;
        self.seen.snapshots += 1;
        self.directory.remove_old_snapshots()?;
        while let Some(number) = self.groups.trim(walk.first_group) {
            self.segments.recycle(number)?;
            self.seen.recycled += 1;
        }
        Ok(())
    }

    fn step(&mut self, walk: &mut Walk, shard: usize) -> Result<(), End> {
        self.seal(shard, None);
        let last_block = self.writers[shard].index() - 1;
        let ShardWalk { next, chunks, file, finished, last_block: of_walk, .. } = &mut walk.shards[shard];
        let from = next.expect("the walk is not at its end");
        let to = from.saturating_add(self.random.next() / 2);
        for (key, value) in &self.pairs[shard] {
            if (from..=to).contains(&position(key)) {
                chunks.push(key, value, None);
            }
        }
        chunks.end_step(to, last_block);
        (*next, *of_walk) = (to.checked_add(1), last_block);
        if next.is_none() || chunks.size() > PAGE_SIZE {
            let mut pages = Pages::default();
            assert!(chunks.finish(&mut pages));
            if file.is_none() {
                *file = Some(SnapshotWriter::create(Arc::clone(&self.disk), walk.number, shard as u16)?);
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
            let shard = self.random.below(self.model.len());
            match self.random.below(16) {
                0..4 => {
                    self.execute(shard);
                    if !self.random.once_in(4) {
                        self.seal(shard, None);
                    }
                }
                4 => self.transact(),
                5..8 => self.push(shard),
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
    model: &mut Vec<ModelShard>,
    seen: &mut Seen,
    disk: &Arc<SimulatedDisk>,
    rule: Rule,
    settings: LogSettings,
) -> Result<(), Fault> {
    let mut fault = None;
    let mut run = || -> Result<(), End> {
        let mut directory = Directory::open(Arc::clone(disk))?;
        let shards = model.len();
        let (pairs, end) = recover(&directory, shards, rule)?;
        if let Err(found) = check(model, &pairs, &end) {
            fault = Some(found);
            return Err(End::Stopped);
        }
        seen.cuts += u64::from(end.cut.is_some());
        let writers = (0..shards as u16).map(|shard| BlockWriter::new(shard, end.next_block(shard))).collect();
        let (groups, segments) = directory.begin(end, settings, manifest(shards), || random.next())?;
        for model in model.iter_mut() {
            model.acknowledged = model.blocks.len() as u64;
        }
        // Numbers that no transaction of another life has.
        let transactions = random.next() >> 16 << 16;
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
            writers,
            changes: vec![Vec::new(); shards],
            pairs,
            sealed: (0..shards).map(|_| VecDeque::new()).collect(),
            in_flight: Vec::new(),
            walk: None,
            transactions,
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
    let mut model = vec![ModelShard::default(); 1 + random.below(3)];
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
    let Seen { blocks, cuts, snapshots, recycled, failed_writes, long_groups } = seen;
    let counts = [blocks, cuts, snapshots, recycled, failed_writes, long_groups];
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
fn a_replay_without_the_boundary_is_caught() {
    let caught = |seed: &u64| {
        matches!(run(*seed, Rule::WithoutBoundary, None, None, &mut Seen::default()), Err(Fault::Wrong(_)))
    };
    let caught = (1..=300).filter(caught).count();
    assert!(caught > 100, "{caught} of 300");
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
