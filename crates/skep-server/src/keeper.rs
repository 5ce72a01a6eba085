//! The thread that keeps the data directory: it prepares segments, writes the chunks of snapshots, and then the manifest
//! that names them.
//!
//! ```text
//!   begin: number, first group and block ─▶ chunks of all shards ─▶ ends of all shards
//!         ─▶ wait: the log is on disk up to the last end ─▶ manifest ─▶ old snapshots and segments go
//! ```
//!
//! A snapshot is taken when a command asks for it, when the log has grown since the last one by twice the size of the pairs
//! and by a segment, when its segments have filled the disk, and when the log is broken. In the last case a fresh log begins
//! with it. See [`crate::durability::Log`]. The growth does not count operations that were logged while a snapshot was taken: otherwise
//! a store under load would take one after another.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use skep_log::{
    Directory, Files, LogError, Manifest, ManifestShard, Segments, SnapshotFile, SnapshotPart, SnapshotWriter,
};
use skep_store::ordered::OrderedStore;

use crate::durability::compaction::GROWTH;
use crate::durability::recovery::{Recovered, segment_size};
use crate::durability::tasks::{CHUNKS_MAX, Piece};
use crate::durability::writers::Writers;
use crate::durability::{DiskSpace, Log, Trouble};
use crate::shared::Shared;
use crate::start::Steps;
use crate::start_error::StartError;
use crate::threads::Threads;
use crate::vocabulary::{Durability, Reached};

/// The keeper looks at the length of the log after this time.
const LOOK_TIME: Duration = Duration::from_secs(1);
/// It looks whether the end of a snapshot is on disk after this time.
const END_TIME: Duration = Duration::from_millis(1);
/// A snapshot that was given up, and a segment that could not be prepared, are tried again after this time.
const RETRY_TIME: Duration = Duration::from_secs(5);
/// A snapshot whose end is not in the log after this time, when no segment can be prepared, is given up.
const FULL_TIME: Duration = Duration::from_secs(1);
/// Distance between the numbers of the last block of a broken log and the first of a fresh one: more than are sealed while
/// it begins.
const FRESH_DISTANCE: u64 = 1 << 32;

/// The keeper of a data directory.
pub(crate) struct Keeper {
    log: Arc<Log>,
    shared: Arc<Shared>,
    writers: Arc<Writers>,
    disk: Arc<Files>,
    directory: Directory<Files>,
    segments: Segments<Files>,
    /// What the manifest states about the server: the snapshot is added to it.
    manifest: Manifest,
    taking: Option<Taking>,
    /// Bytes of the log that are not needed any more because of a snapshot.
    trimmed_bytes: u64,
    /// Bytes of the log before the start.
    bytes_before: u64,
    /// Bytes of the log when the last snapshot was complete: of what was executed while it was taken.
    bytes_of_snapshot: u64,
    /// The number of the last snapshot that was begun, and the last request before it. No other has this number: shards
    /// walk once for each.
    last_snapshot: u64,
    last_request: u64,
    /// What failed is not tried again before this time.
    next_segment: Instant,
    next_snapshot: Instant,
    /// The directory, and when it is measured next.
    path: PathBuf,
    next_measurement: Instant,
    random: RandomState,
}

/// A snapshot that is being taken.
struct Taking {
    number: u64,
    first_group: u64,
    /// The bytes of the log that are on disk and not needed after it.
    bytes: u64,
    begins_log: bool,
    files: Vec<Option<SnapshotWriter<Files>>>,
    finished: Vec<SnapshotFile>,
    /// Walks that are not over.
    left: usize,
    /// When the last one was over.
    walked: Option<Instant>,
    /// What the pairs contain: a manifest needs a log that has all of it.
    reached: Reached,
    pairs: u64,
    begun: Instant,
}

/// Starts the threads of a log that was recovered.
pub(crate) fn spawn(
    threads: &mut Threads,
    log: Arc<Log>,
    shared: Arc<Shared>,
    recovered: Recovered,
    steps: &mut Steps,
) -> Result<(), StartError> {
    let Recovered { disk, directory, groups, segments, manifest, log_bytes, needs_snapshot, .. } = recovered;
    if groups.current_segment().is_none() {
        log.begin_without_segment();
    }
    let writers = Arc::new(Writers::new(Arc::clone(&log), Arc::clone(&disk), groups, &segments));
    writers.spawn(threads, steps)?;
    let level = log.level();
    // Each start begins a segment: so the log of a server that restarts often is not longer than two.
    let is_snapshot_due = needs_snapshot || level != Durability::Memory && log_bytes > segment_size(&shared.settings);
    if is_snapshot_due {
        log.tasks.take_snapshot();
    }
    let now = Instant::now();
    let path = shared.settings.data_dir.clone().expect("a log has a directory");
    if DiskSpace::is_in_memory(&path) {
        tracing::warn!("the data directory is in memory: it is lost when the machine stops");
    }
    log.disk_space.measure(&path);
    let (used, free) = (log.disk_space.used(), log.disk_space.free());
    // The log may grow to twice the size of all pairs, and there are two snapshots of them for a moment.
    let needed =
        (GROWTH + 2) * (shared.settings.memory + shared.settings.ordered_memory) + 4 * segment_size(&shared.settings);
    if used + free < needed {
        let (free, needed) = (free >> 20, needed.saturating_sub(used) >> 20);
        tracing::warn!(
            "the disk of the data directory has {free} MiB left, and the directory may take {needed} MiB more: make room, or \
             start with less memory"
        );
    }
    let keeper = Keeper {
        log,
        shared,
        writers,
        disk,
        directory,
        segments,
        manifest,
        taking: None,
        trimmed_bytes: 0,
        bytes_before: log_bytes,
        bytes_of_snapshot: 0,
        last_snapshot: 0,
        last_request: 0,
        next_segment: now,
        next_snapshot: now,
        path,
        next_measurement: now,
        random: RandomState::new(),
    };
    let name = "skep-log-keeper";
    let refusal = |source| StartError::Thread { name: name.to_owned(), source };
    steps.take(|| threads.spawn(name.to_owned(), None, || keeper.run()), refusal)
}

impl Keeper {
    /// Works until the server has ended.
    pub(crate) fn run(mut self) {
        loop {
            let (needs_segment, wants_snapshot, piece, is_over) = self.wait();
            if is_over {
                return self.end();
            }
            let now = Instant::now();
            if now >= self.next_measurement {
                self.next_measurement = now + LOOK_TIME;
                let is_there = self.log.disk_space.measure(&self.path);
                if !is_there && !self.log.troubles.have(Trouble::NoDirectory) {
                    let reason = "the data directory is gone: restart the server".to_owned();
                    tracing::error!("{reason}");
                    self.log.troubles.set(Trouble::NoDirectory, Some(reason));
                }
            }
            if self.log.level() == Durability::Memory && self.log.records() && self.taking.is_none() {
                self.end_log();
            }
            if needs_segment && now >= self.next_segment {
                self.prepare_segment();
            }
            if let Some(piece) = piece {
                self.take(piece);
            }
            if let Some(taking) = &self.taking
                && self.log.is_broken()
            {
                // Its end would not get into the log.
                let reason =
                    if self.log.troubles.have(Trouble::Failed) { "a write has failed" } else { "it is too slow" };
                let begins_log = taking.begins_log;
                self.give_up(begins_log, &io("write", "the log", std::io::Error::other(reason)));
                if !begins_log {
                    self.next_snapshot = Instant::now();
                }
            }
            if self.taking.as_ref().is_some_and(|taking| taking.left == 0) {
                self.complete();
            }
            let is_stopping = self.shared.stopping.load(Ordering::Relaxed);
            let is_due = wants_snapshot || now >= self.next_snapshot && !is_stopping && self.needs_snapshot();
            if self.taking.is_none() && is_due {
                let begins_log = self.log.level() == Durability::Memory || self.log.troubles.have(Trouble::Failed);
                // Noted before the beginning, so that a request made meanwhile asks for one more snapshot.
                let mut list = self.log.tasks.lock();
                list.begun_requests = list.requests;
                self.last_request = list.requests;
                drop(list);
                if self.log.troubles.have(Trouble::NoSegment) {
                    self.next_snapshot = now + RETRY_TIME;
                }
                self.begin(begins_log);
            }
        }
    }

    /// Waits for something to do.
    fn wait(&self) -> (bool, bool, Option<Piece>, bool) {
        let tasks = &self.log.tasks;
        let is_ending = self.taking.as_ref().is_some_and(|taking| taking.left == 0);
        let limit = if is_ending { END_TIME } else { LOOK_TIME };
        let mut list = tasks.lock();
        let begins =
            list.begun_requests < list.requests && self.taking.is_none() || std::mem::take(&mut list.has_level);
        let until_segment = self.next_segment.saturating_duration_since(Instant::now());
        let prepares = list.needs_segment && until_segment.is_zero();
        let limit = if list.needs_segment && !prepares { limit.min(until_segment) } else { limit };
        if !begins && !prepares && list.pieces.is_empty() && !list.is_over {
            list = tasks.bell.wait_timeout(list, limit).unwrap_or_else(PoisonError::into_inner).0;
        }
        let was_full = list.pieces.len() >= CHUNKS_MAX;
        let piece = list.pieces.pop_front();
        let (needs_segment, is_over) = (list.needs_segment, list.is_over);
        let wants_snapshot = list.begun_requests < list.requests;
        drop(list);
        if was_full {
            self.log.wake_shards();
        }
        (needs_segment, wants_snapshot, piece, is_over)
    }

    fn uid(&self) -> u64 {
        self.random.hash_one(Instant::now())
    }

    /// Prepares the next segment. If the disk is full, this is noticed here: one segment ahead.
    fn prepare_segment(&mut self) {
        let prepared = self.segments.prepare(self.uid());
        match prepared {
            Ok(header) => {
                let mut state = self.writers.lock();
                state.add_segment(header, &self.segments);
                self.log.note_segment();
                // While the state is locked, no writer asks for another one.
                self.log.tasks.lock().needs_segment = state.groups.needs_segment();
                drop(state);
                if self.log.troubles.have(Trouble::NoSegment) {
                    tracing::warn!("the log has room again");
                }
                self.log.troubles.set(Trouble::NoSegment, None);
                self.log.flush();
            }
            Err(error) => {
                let reason = format!("the next segment of the log cannot be prepared: {error}");
                if !self.log.troubles.have(Trouble::NoSegment) {
                    tracing::error!("{reason}; writes are refused until it can");
                }
                self.log.troubles.set(Trouble::NoSegment, Some(reason));
                self.next_segment = Instant::now() + RETRY_TIME;
            }
        }
    }

    /// Returns the latest time at which keys may have been seen to expire, in milliseconds since 1970.
    fn last_time(&self) -> u64 {
        self.log.stated_time.get().max(self.directory.manifest().map_or(0, |manifest| manifest.last_time))
    }

    /// Returns the bytes of the log that recovery would read, with the zeros that fill pages.
    fn log_bytes(&self) -> u64 {
        self.bytes_before + self.log.file_bytes() - self.trimmed_bytes
    }

    /// Returns true if a snapshot is needed, or worth its time.
    fn needs_snapshot(&self) -> bool {
        let level = self.log.level();
        let is_ending = level == Durability::Memory && self.log.records();
        if self.log.troubles.have(Trouble::Failed) || level != self.log.wanted_level() || is_ending {
            return true;
        }
        if level == Durability::Memory {
            return false;
        }
        let ordered = self.shared.ordered.as_ref().map_or(0, |store| store.statistics().space.used_bytes);
        let live = self.shared.sum(|metrics| &metrics.store.pair_bytes) + ordered;
        if self.log.troubles.have(Trouble::NoSegment) && live <= self.log.disk_space.free() {
            // The segments before the present one are room for the next.
            return self.writers.lock().groups.used_segment_count() > 1;
        }
        let growth_max = (GROWTH * live).max(segment_size(&self.shared.settings));
        self.log_bytes() - self.bytes_of_snapshot > growth_max
    }

    /// Begins a snapshot, and a fresh log if the present one is broken.
    fn begin(&mut self, begins_log: bool) {
        self.log.troubles.set_given_up(false);
        if let Err(error) = self.try_begin(begins_log) {
            self.give_up(begins_log, &error);
        }
    }

    fn try_begin(&mut self, begins_log: bool) -> Result<(), LogError> {
        self.directory.settle()?;
        // Those of a snapshot that was given up.
        self.directory.remove_old_snapshots()?;
        let newest = |manifest: &Manifest| manifest.generation.max(manifest.snapshot.unwrap_or(0));
        let number = self.directory.manifest().map_or(0, newest).max(self.last_snapshot) + 1;
        self.last_snapshot = number;
        // Blocks that are sealed from now on are in this group or a later one.
        let first_group = if begins_log { self.begin_log()? } else { self.writers.lock().groups.next_group() };
        let mut files = Vec::new();
        let shards = (0..self.shared.settings.shards).map(SnapshotPart::Shard);
        for part in shards.chain(self.shared.ordered.is_some().then_some(SnapshotPart::Ordered)) {
            let file = SnapshotWriter::create(Arc::clone(&self.disk), number, part);
            files.push(Some(file.map_err(|source| io("create", "a snapshot", source))?));
        }
        let left = files.len();
        self.taking = Some(Taking {
            number,
            first_group,
            bytes: self.log.file_bytes(),
            begins_log,
            finished: vec![SnapshotFile::default(); left],
            files,
            left,
            walked: None,
            reached: Reached::default(),
            pairs: 0,
            begun: Instant::now(),
        });
        self.log.set_records(true);
        self.log.snapshots.begin(number);
        self.log.wake_shards();
        tracing::info!(number, "taking a snapshot");
        Ok(())
    }

    /// Begins a fresh log. Returns its first group.
    fn begin_log(&mut self) -> Result<u64, LogError> {
        let uid = self.uid();
        let mut state = self.writers.lock();
        state.pauses = true;
        while state.groups.is_writing() {
            if self.shared.stopping.load(Ordering::Relaxed) {
                state.pauses = false;
                return Err(io("begin", "a fresh log", std::io::Error::other("the server is stopping")));
            }
            drop(state);
            std::thread::sleep(END_TIME);
            state = self.writers.lock();
        }
        // While the state is locked, no writer begins another write.
        state.pauses = false;
        if state.groups.needs_segment() {
            let header = self.segments.prepare(uid).map_err(|source| io("prepare", "a segment", source))?;
            state.add_segment(header, &self.segments);
            self.log.note_segment();
        }
        // A fresh log that no manifest has named is not needed any more.
        let earlier = if state.is_fresh { state.groups.fresh_segments() } else { Vec::new() };
        let last = self.log.sealed() + FRESH_DISTANCE;
        let version = self.shared.ordered.as_ref().map_or(0, OrderedStore::newest_version);
        self.directory.begin_fresh(&mut state.groups, &mut self.segments, last + 1, version + 1)?;
        state.begin_fresh(&earlier);
        self.log.begin_fresh(last);
        let first_group = state.groups.next_group();
        drop(state);
        earlier
            .into_iter()
            .try_for_each(|number| self.segments.recycle(number))
            .map_err(|source| io("recycle", "a segment", source))?;
        Ok(first_group)
    }

    /// Ends the log for the level `memory`. Shards stop to record one after another: what they still write is not executed
    /// by a recovery.
    fn end_log(&mut self) {
        let Some(manifest) = self.directory.manifest() else { return };
        // While the state is locked, the writers take no block from the queue.
        let state = self.writers.lock();
        let last_block = self.log.sealed();
        if state.is_fresh {
            // No manifest has named this log, so recovery does not read it.
            return self.log.set_records(false);
        }
        if manifest.gap.is_some() {
            // There is one gap at most: a snapshot is needed, which ends the earlier one.
            return;
        }
        let manifest = Manifest { gap: Some((last_block, u64::MAX)), ..manifest.clone() };
        let written = (0..2).try_for_each(|_| self.directory.write_manifest(manifest.clone(), &state.groups));
        match written {
            Ok(()) => self.log.set_records(false),
            Err(error) => {
                // The manifest may be on disk nevertheless: blocks after the last one would not be applied. They are in the
                // queue, which drops them.
                self.log.fail(error.to_string());
                self.log.refuse_level();
            }
        }
        drop(state);
    }

    /// Takes a part of a snapshot.
    fn take(&mut self, piece: Piece) {
        let shard_count = usize::from(self.shared.settings.shards);
        let Some(taking) = &mut self.taking else { return };
        let result = match piece {
            Piece::Chunk { snapshot, part, pages } if snapshot == taking.number => {
                let file = taking.files[index_of(part, shard_count)].as_mut().expect("chunks come before the end");
                let result = file.write(&pages);
                self.log.tasks.lock().spare.push(pages);
                result
            }
            Piece::End { snapshot, part, reached, pairs } if snapshot == taking.number => {
                let index = index_of(part, shard_count);
                taking.reached.block = taking.reached.block.max(reached.block);
                taking.reached.version = taking.reached.version.max(reached.version);
                taking.pairs += pairs;
                taking.left -= 1;
                let file = taking.files[index].take().expect("a walk ends once");
                file.finish().map(|finished| taking.finished[index] = finished)
            }
            _ => Ok(()),
        };
        if taking.left == 0 {
            taking.walked.get_or_insert_with(Instant::now);
            self.log.flush();
        }
        if let Err(error) = result {
            let begins_log = taking.begins_log;
            self.give_up(begins_log, &io("write", "a snapshot", error));
        }
    }

    /// Writes the manifest, if the log is on disk up to the end of the snapshot.
    fn complete(&mut self) {
        let Some(taking) = self.taking.take() else { return };
        let mut state = self.writers.lock();
        if state.groups.failure().is_some() {
            drop(state);
            return self
                .give_up(taking.begins_log, &io("write", "the log", std::io::Error::other("a write has failed")));
        }
        if self.log.has_abandoned() {
            drop(state);
            let reason = std::io::Error::other("the server ends, and has abandoned a command");
            return self.give_up(taking.begins_log, &io("complete", "a snapshot", reason));
        }
        if !state.reached().covers(taking.reached) {
            drop(state);
            let waits_long = taking.walked.is_some_and(|walked| walked.elapsed() >= FULL_TIME);
            if waits_long && self.log.troubles.have(Trouble::NoSegment) {
                // The room that the log needs is that of the snapshot.
                let full = std::io::Error::other("there is no room for the log");
                return self.give_up(taking.begins_log, &io("write", "the log", full));
            }
            self.taking = Some(taking);
            return;
        }
        let level = self.log.wanted_level();
        let shards = std::iter::zip(&self.manifest.shards, &taking.finished);
        let manifest = Manifest {
            first_group: taking.first_group,
            snapshot: Some(taking.number),
            shards: shards.map(|(shard, file)| ManifestShard { file: *file, ..*shard }).collect(),
            ordered: taking.finished.get(self.manifest.shards.len()).copied().unwrap_or_default(),
            // At the level `memory` the shards stop to record, one after another. Until then all have recorded.
            gap: (level == Durability::Memory).then_some((state.groups.durable_block(), u64::MAX)),
            last_time: self.last_time(),
            ..self.manifest.clone()
        };
        if let Err(error) = self.directory.write_manifest(manifest.clone(), &state.groups) {
            drop(state);
            return self.give_up(taking.begins_log, &error);
        }
        // After a fresh log began, the older manifest would lead to the older state if this one were damaged.
        if taking.begins_log
            && let Err(error) = self.directory.write_manifest(manifest, &state.groups)
        {
            tracing::warn!("the second copy of the manifest was not written: {error}");
        }
        self.trimmed_bytes = self.bytes_before + taking.bytes;
        self.bytes_of_snapshot = self.log_bytes();
        let trimmed = state.trim(taking.first_group);
        if taking.begins_log {
            // What was executed before is in the snapshot, so all held replies may leave.
            state.is_fresh = false;
            state.publish(&self.log);
            if self.log.troubles.have(Trouble::Failed) {
                self.log.troubles.set(Trouble::Failed, None);
                tracing::warn!("a fresh log has begun: writes are accepted again");
            }
        }
        // From the check above on the state was locked: a write that has failed since is noted after this.
        drop(state);
        self.log.settle_level(level);
        let recycled = trimmed.into_iter().try_for_each(|number| self.segments.recycle(number));
        let removed = recycled
            .map_err(|source| io("recycle", "a segment", source))
            .and_then(|()| self.directory.remove_old_snapshots());
        if let Err(error) = removed {
            tracing::warn!("{error}");
        }
        self.log.snapshots.end(true, self.last_request);
        // There may be room again.
        self.next_segment = Instant::now();
        tracing::info!(
            number = taking.number,
            pairs = taking.pairs,
            seconds = taking.begun.elapsed().as_secs_f64(),
            "a snapshot is complete"
        );
    }

    /// Gives up the snapshot, and tells why.
    fn give_up(&mut self, begins_log: bool, error: &LogError) {
        tracing::error!("the snapshot was given up: {error}");
        self.taking = None;
        self.log.snapshots.end(false, self.last_request);
        if begins_log && self.log.level() == Durability::Memory {
            self.log.set_records(false);
        }
        self.next_snapshot = Instant::now() + RETRY_TIME;
        if begins_log && self.log.troubles.have(Trouble::Failed) {
            self.log.troubles.set_given_up(true);
            self.log.wake_shards();
        }
        if let Err(error) = self.directory.remove_old_snapshots() {
            tracing::warn!("{error}");
        }
    }

    /// Gives up a snapshot that is not complete, when the server ends, and notes the time and where the log ends: damage
    /// before that is then found. Without the note, the next start takes a damaged end for one that a crash has torn.
    fn end(&mut self) {
        if self.log.level() == Durability::Memory {
            tracing::warn!("the level of durability is memory: writes since the last snapshot are not kept");
        } else if self.log.troubles.have(Trouble::Failed) || self.log.is_broken() {
            tracing::error!(
                "the log has failed, and no snapshot was complete since: operations after the failure are lost"
            );
        }
        if let Some(reason) = self.log.trouble().filter(|_| self.log.level() != Durability::Memory) {
            tracing::error!("the server ends while writes are refused: {reason}");
        }
        if self.taking.take().is_some() {
            tracing::warn!("the snapshot that was being taken is given up: the server ends");
            self.log.snapshots.end(false, self.last_request);
            let _ = self.directory.remove_old_snapshots();
        }
        let state = self.writers.lock();
        let is_whole = !state.is_fresh && !self.log.is_broken() && !self.log.troubles.are_any();
        if let Some(manifest) = self.directory.manifest().cloned().filter(|_| is_whole) {
            let manifest = Manifest { last_time: self.last_time(), ..manifest };
            match self.directory.write_manifest(manifest, &state.groups) {
                Ok(()) if !self.log.records() => {}
                Ok(()) => tracing::info!("everything is on disk"),
                Err(error) => tracing::warn!("the end of the log could not be noted: {error}"),
            }
        }
    }
}

/// Returns the index of the file of a part: first those of the shards.
fn index_of(part: SnapshotPart, shard_count: usize) -> usize {
    match part {
        SnapshotPart::Shard(shard) => usize::from(shard),
        SnapshotPart::Ordered => shard_count,
    }
}

fn io(action: &'static str, name: &str, source: std::io::Error) -> LogError {
    LogError::Io { action, name: name.to_owned(), source }
}
