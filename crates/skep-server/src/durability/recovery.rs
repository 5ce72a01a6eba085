//! Recovery: the stores get back what the snapshot and the log have, before the server serves.
//!
//! 1. The pairs of the snapshot are put, those of all files side by side.
//! 2. The operations of the log are executed at the time of day at which they were executed first. So the same ones
//!    succeed, and the same keys have expired. One is left out if the snapshot contains it already: see
//!    `skep_log::Boundary`. If memory is short, that of expired keys is freed.
//! 3. The server goes on at the latest of these times, or later: time does not go back for its keys, also if the machine's
//!    clock was set back.
//!
//! Until then, the only time is that which the directory states: keys that have expired by the machine's clock alone are
//! loaded, and are in a snapshot that the start writes. So a wrong clock costs nothing if no client meets it.
//!
//! Keys are assigned to shards by the seed that the directory states, also if the number of shards has changed. The
//! positions of the snapshot are those of the shards that wrote it.

mod contained;

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use skep_core::operation::{Operation, OperationError, Request};
use skep_log::{
    BlockView, Boundary, Chunk, Directory, Files, GroupWriter, LogEnd, LogError, LogSettings, Manifest, ManifestShard,
    SEGMENT_SIZE, Section, Segments, SnapshotFile,
};
use skep_store::hash::Settings;
use skep_store::ordered::OrderedStore;
use skep_store::processor::{Processor, Replies};
use skep_wire::native::WireError;
use skep_wire::partition::Partition;

use super::compaction::{self, Loaded};
use super::flushes::Written;
use super::loading::Progress;
use super::ordered_recovery::OrderedReplay;
use super::sliced_recovery::{Slice, Source};
use crate::limits::{EFFECTS_PART, EFFECTS_SIZE_MIN, REPLY_BUDGET};
use crate::recovery_error::RecoveryError;
use crate::settings::ServerSettings;
use crate::unix_time::since_1970;
use crate::vocabulary::{Durability, Reached};
use contained::Contained;

/// Operations that a store executes together.
const BATCH: usize = 1024;
/// The longest time, in milliseconds, after which a shard that has logged nothing counts as idle. It may execute one long
/// command until then, which is logged as a whole.
const IDLE_TIME: u64 = 600_000;

/// A directory that was read, and whose log can be continued.
pub struct Recovered {
    /// The files of the directory.
    pub disk: Arc<Files>,
    /// The directory, which is locked.
    pub directory: Directory<Files>,
    /// The writer of the log.
    pub groups: GroupWriter,
    /// The files of the log.
    pub segments: Segments<Files>,
    /// What the next manifest states about the server.
    pub manifest: Manifest,
    /// The last block of the log, and the last version of the ordered space in it.
    pub(crate) reached: Reached,
    /// Bytes of the log that recovery reads next time, as far as they are known: those of whole segments.
    pub log_bytes: u64,
    /// The latest time in the log, in milliseconds since 1970, or that of the recovery if that is later.
    pub(crate) last_time: u64,
    /// The latest time that the directory states.
    pub stated_time: u64,
    /// Keys have an expiry, or were left out because they have expired.
    pub(crate) has_expiries: bool,
    /// The time that it took to read the directory.
    pub(crate) load_time: Duration,
    /// The manifest has another number of shards or a gap, or a loss was accepted: a snapshot is to be taken.
    pub needs_snapshot: bool,
}

/// A store that gets its keys back.
pub(super) struct Store<'s> {
    pub(super) processor: &'s mut Processor,
    replies: Replies,
    /// After it, nothing is executed.
    pub(super) failure: Option<OperationError>,
    /// Bytes of slab memory for pairs that did not fit.
    pub(super) missing: u64,
}

impl Store<'_> {
    /// Executes operations of this time; no later ones are of a time before `all_after`. Afterwards the list is empty.
    pub(super) fn execute(&mut self, times: (u64, u64), requests: &mut Vec<Request<'_>>) {
        if self.failure.is_some() {
            requests.clear();
        } else if let Err(error) = self.processor.replay(times, requests, &mut self.replies) {
            self.failure = Some(error);
        }
    }
}

/// The stores, and how keys are assigned to them.
pub(super) struct Stores<'s> {
    stores: Vec<Mutex<Store<'s>>>,
    pub(super) partition: Partition,
    progress: &'s Progress,
    /// The keys that are recovered; all keys if it is `None`.
    slice: Option<&'s Slice>,
}

impl<'s> Stores<'s> {
    fn new(processors: Vec<&'s mut Processor>, partition: Partition, progress: &'s Progress) -> Self {
        let replies = || Replies::with_budget(REPLY_BUDGET);
        let store = |processor| Mutex::new(Store { processor, replies: replies(), failure: None, missing: 0 });
        Stores { stores: processors.into_iter().map(store).collect(), partition, progress, slice: None }
    }

    /// Returns stores for the keys of a slice.
    pub(super) fn of_slice(
        processors: Vec<&'s mut Processor>,
        partition: Partition,
        progress: &'s Progress,
        slice: &'s Slice,
    ) -> Self {
        Stores { slice: Some(slice), ..Stores::new(processors, partition, progress) }
    }

    /// Returns true if the key of a store is recovered.
    fn takes(&self, store: usize, key: &[u8]) -> bool {
        self.slice.is_none_or(|slice| slice.contains(store, key))
    }

    /// Calls `f` with each store.
    pub(super) fn each(&self, mut f: impl FnMut(&mut Store<'s>)) {
        (0..self.stores.len()).for_each(|store| self.with(store, &mut f));
    }

    pub(super) fn with<R>(&self, store: usize, f: impl FnOnce(&mut Store<'s>) -> R) -> R {
        f(&mut self.stores[store].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts the pairs of a chunk.
    fn load(&self, chunk: &Chunk<'_>) -> Result<(), WireError> {
        let mut parts: Vec<Vec<Request<'_>>> = self.stores.iter().map(|_| Vec::with_capacity(BATCH)).collect();
        // At the beginning of time: what has expired since was there when later operations ran.
        let put = |store: usize, part: &mut Vec<_>| self.with(store, |store| store.execute((0, 0), part));
        for request in chunk.requests() {
            let request = request?;
            let store = usize::from(self.partition.shard_of(request.key));
            if !self.takes(store, request.key) {
                continue;
            }
            parts[store].push(request);
            if parts[store].len() == BATCH {
                put(store, &mut parts[store]);
            }
        }
        parts.iter_mut().enumerate().for_each(|(store, part)| put(store, part));
        // In slices, each pair is read again.
        self.progress.add_pairs(chunk.size as u64, if self.slice.is_none() { chunk.pairs.into() } else { 0 });
        Ok(())
    }

    /// Ends the replay at this time.
    fn end(&self, now: u64) {
        self.each(|store| store.processor.end_replay(now));
    }

    /// Removes some keys.
    fn remove<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let mut parts: Vec<Vec<Request<'_>>> = vec![Vec::new(); self.stores.len()];
        for key in keys {
            parts[usize::from(self.partition.shard_of(key))].push(Request { key, operation: Operation::Delete });
        }
        parts.iter_mut().enumerate().for_each(|(store, part)| self.with(store, |store| store.execute((0, 0), part)));
    }

    fn into_processors(self) -> Vec<&'s mut Processor> {
        let store = |store: Mutex<Store<'s>>| store.into_inner().unwrap_or_else(PoisonError::into_inner).processor;
        self.stores.into_iter().map(store).collect()
    }

    /// Returns the home buckets of all stores.
    fn bucket_count(&self) -> usize {
        (0..self.stores.len()).map(|store| self.with(store, |store| store.processor.home_bucket_count() as usize)).sum()
    }

    pub(super) fn failure(&self) -> Option<OperationError> {
        (0..self.stores.len()).find_map(|store| self.with(store, |store| store.failure))
    }
}

/// The execution of the log.
pub(super) struct Replay<'s, 'a> {
    stores: &'a Stores<'s>,
    contained: Contained,
    seed: u64,
    ordered: Option<OrderedReplay<'a>>,
    /// There are effects, but no ordered space.
    lacks_ordered: bool,
    times: Times,
    /// What removals of all keys of a shard have to remove.
    written: Written,
    /// Walks over all buckets for that.
    walks: u64,
}

/// The times of the operations that were executed.
struct Times {
    /// The latest of all.
    last: u64,
    /// The latest of each shard that wrote the log. Its later operations have no earlier time.
    of_shards: Vec<u64>,
    /// Each store has the keys of one of these shards.
    are_same: bool,
}

impl Times {
    fn new(shard_count: usize, store_count: usize) -> Times {
        Times { last: 0, of_shards: vec![0; shard_count], are_same: shard_count == store_count }
    }

    /// Notes an operation of a shard.
    fn note(&mut self, shard: usize, time: u64) {
        self.of_shards[shard] = self.of_shards[shard].max(time);
    }

    /// Returns the time before which no later operation on the keys of a store was executed. A shard that has been idle for
    /// long does not count: its clock is that of the machine too.
    fn all_after(&self, store: usize) -> u64 {
        if self.are_same {
            return self.of_shards[store];
        }
        let earliest = self.of_shards.iter().copied().min().unwrap_or(0);
        earliest.max(self.last.saturating_sub(IDLE_TIME))
    }
}

impl<'s, 'a> Replay<'s, 'a> {
    /// Returns the replay of a log after a snapshot was loaded, without an ordered space.
    pub(super) fn new(
        stores: &'a Stores<'s>,
        manifest: Option<&Manifest>,
        boundaries: Vec<Boundary>,
        seed: u64,
    ) -> Replay<'s, 'a> {
        let store_count = stores.stores.len();
        Replay {
            stores,
            contained: Contained::new(manifest, boundaries, seed),
            seed,
            ordered: None,
            lacks_ordered: manifest.is_some_and(|manifest| manifest.ordered != SnapshotFile::default()),
            times: Times::new(manifest.map_or(store_count, |manifest| manifest.shards.len()), store_count),
            written: Written::new(seed, stores.bucket_count()),
            walks: 0,
        }
    }

    /// Executes the blocks of a group.
    pub(super) fn group<'b>(
        &mut self,
        blocks: &mut dyn Iterator<Item = BlockView<'b>>,
    ) -> Result<(), (u64, WireError)> {
        let count = self.stores.stores.len();
        let mut parts: Vec<Vec<Request<'b>>> = vec![Vec::new(); count];
        let mut now = 0;
        let flush = |now, times: &Times, parts: &mut [Vec<Request<'_>>]| {
            for (store, part) in parts.iter_mut().enumerate().filter(|(_, part)| !part.is_empty()) {
                let times = (now, times.all_after(store));
                self.stores.with(store, |store| store.execute(times, part));
            }
        };
        for block in blocks {
            let count = if self.stores.slice.is_none() { block.count.into() } else { 0 };
            self.stores.progress.add_operations(block.size() as u64, count);
            if let Some(ordered) = &mut self.ordered {
                ordered.note_time(self.times.last);
                ordered.block(&block).map_err(|error| (block.number, error))?;
            }
            for section in block.sections() {
                match section {
                    Section::Operations { now: time, operations, .. } => {
                        if time != now {
                            flush(now, &self.times, &mut parts);
                            now = time;
                        }
                        // The section may have no operations.
                        self.times.last = self.times.last.max(time);
                        for request in operations {
                            let request = request.map_err(|error| (block.number, error))?;
                            let store = usize::from(self.stores.partition.shard_of(request.key));
                            let shard = if self.times.are_same { store } else { self.contained.shard_of(request.key) };
                            self.times.note(shard, now);
                            if !self.stores.takes(store, request.key)
                                || self.contained.contains(block.number, request.key)
                            {
                                continue;
                            }
                            self.written.note(request.key);
                            parts[store].push(request);
                            if parts[store].len() == BATCH {
                                let (part, times) = (&mut parts[store], (now, self.times.all_after(store)));
                                self.stores.with(store, |store| store.execute(times, part));
                            }
                        }
                    }
                    Section::Flush { shard, shard_count, .. } => {
                        flush(now, &self.times, &mut parts);
                        self.remove_all(block.number, shard, shard_count);
                    }
                    Section::Effects { .. } => self.lacks_ordered |= self.ordered.is_none(),
                }
            }
        }
        flush(now, &self.times, &mut parts);
        Ok(())
    }

    /// Refuses a directory that the stores cannot have. If there is no memory in the hash space, it is recovered in slices.
    fn check(&self) -> Result<(), RecoveryError> {
        if self.lacks_ordered {
            return Err(RecoveryError::WithoutOrdered);
        }
        let failure = self.stores.failure().filter(|failure| !failure.is_out_of_memory());
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Removes the keys of a shard, except those that the snapshot found after they were removed.
    fn remove_all(&mut self, block: u64, shard: u16, shard_count: u16) {
        if block > self.contained.last_block && usize::from(shard_count) == self.stores.stores.len() {
            return self.stores.with(usize::from(shard), |store| store.processor.flush());
        }
        if let Some(keys) = self.written.take(shard, shard_count) {
            let (kept, removed): (HashSet<_>, HashSet<_>) =
                keys.into_iter().partition(|key| self.contained.contains(block, key));
            self.stores.remove(removed.iter().map(|key| &**key));
            return self.written.begin(shard, kept);
        }
        self.walks += 1;
        let partition = Partition::new(self.seed, shard_count);
        for store in 0..self.stores.stores.len() {
            let mut next = Some(0);
            while let Some(from) = next {
                let mut keys: Vec<Vec<u8>> = Vec::new();
                next = self.stores.with(store, |store| {
                    store.processor.walk_pairs(from, |key, _, _| {
                        if partition.shard_of(key) == shard && !self.contained.contains(block, key) {
                            keys.push(key.to_vec());
                        }
                    })
                });
                self.stores.remove(keys.iter().map(|key| &key[..]));
            }
        }
        if block > self.contained.last_block {
            self.written.begin(shard, HashSet::new());
        }
    }
}

/// A directory that is locked and has valid manifests, or none.
pub(crate) struct Opened {
    disk: Arc<Files>,
    directory: Directory<Files>,
    /// The time of the machine's clock, in milliseconds since 1970.
    pub(super) now: u64,
}

impl Opened {
    pub(crate) fn new(path: &Path) -> Result<Opened, RecoveryError> {
        let disk = Arc::new(Files::open(path).map_err(RecoveryError::Open)?);
        let directory = Directory::open(Arc::clone(&disk))?;
        let now = since_1970(SystemTime::now()).as_millis() as u64;
        Ok(Opened { disk, directory, now })
    }

    /// Returns the secret seed of a shard. If the directory was written by as many shards, it is the one that it states:
    /// so the keys get the same home buckets as before, and chains that have fitted the memory fit it again.
    pub(crate) fn secret_seed(&self, shard: usize, shard_count: usize) -> Option<u64> {
        let shards = &self.directory.manifest()?.shards;
        (shards.len() == shard_count).then(|| shards[shard].secret_seed)
    }
}

/// Reads a directory into new stores with these settings, and begins the next segment of its log.
pub(crate) fn recover(
    opened: Opened,
    settings: &ServerSettings,
    log: LogSettings,
    (processors, tables): (Vec<&mut Processor>, &[Settings]),
    mut ordered: Option<&mut OrderedStore>,
    random: impl Fn() -> u64,
    progress: &Progress,
) -> Result<Recovered, RecoveryError> {
    let directory = &opened.directory;
    let manifest = next_manifest(directory.manifest(), settings, tables, &random);
    let stores = Stores::new(processors, Partition::new(manifest.partition_seed, settings.shards), progress);
    let mut content = load(directory, (settings, tables), &stores, ordered.as_deref(), manifest.partition_seed)?;
    if let Some(ordered) = &mut ordered {
        ordered.begin_versions_after(content.end.floor());
        content.end.raise_floor(ordered.newest_version() + 1);
    }
    content.report(directory, progress.counts());
    let manifest = Manifest { last_time: content.stated_time, ..manifest };
    let loaded = Loaded { processors: stores.into_processors(), ordered: ordered.as_deref() };
    begin(opened, settings, log, loaded, content, manifest, random)
}

/// Returns what the next manifest states about a server: the identity and the public seed are those of the old one.
fn next_manifest(
    old: Option<&Manifest>,
    settings: &ServerSettings,
    tables: &[Settings],
    random: impl Fn() -> u64,
) -> Manifest {
    let new_id = || [random().to_le_bytes(), random().to_le_bytes()].concat().try_into().expect("16 bytes");
    let shard = |table: &Settings| ManifestShard { secret_seed: table.seed, ..ManifestShard::default() };
    Manifest {
        server_id: old.map_or_else(new_id, |manifest| manifest.server_id),
        partition_seed: old.map_or_else(&random, |manifest| manifest.partition_seed),
        memory: settings.memory,
        kv_size: settings.kv_size as u64,
        shards: tables.iter().map(shard).collect(),
        ..Manifest::default()
    }
}

/// What was found in a directory, besides the pairs.
struct Content {
    /// Where the log ends.
    end: LogEnd,
    /// The latest time that the directory states.
    stated_time: u64,
    /// Keys were left out because they have expired, or may have been.
    has_expiries: bool,
    /// Shards take spare memory, because their keys were divided among another number of shards.
    is_uneven: bool,
    /// The time that it took to read the directory.
    load_time: Duration,
}

/// Loads the snapshot, replays the log, and merges both in the ordered space. If the hash space has no memory for that, it
/// is recovered in slices.
fn load(
    directory: &Directory<Files>,
    (settings, tables): (&ServerSettings, &[Settings]),
    stores: &Stores<'_>,
    ordered: Option<&OrderedStore>,
    partition_seed: u64,
) -> Result<Content, RecoveryError> {
    let begun = Instant::now();
    let (old, accept_loss, progress) = (directory.manifest(), settings.accept_loss, stores.progress);
    let time_before = old.map_or(0, |manifest| manifest.last_time);
    let boundaries = read_snapshot(directory, stores)?;
    let mut replay = Replay::new(stores, old, boundaries, partition_seed);
    replay.ordered = ordered.map(|store| {
        let session = store.session().expect("a new store has sessions");
        let effects_size_max = EFFECTS_SIZE_MIN.max(settings.ordered_memory / EFFECTS_PART);
        OrderedReplay::new(session, time_before, effects_size_max as usize)
    });
    replay.lacks_ordered &= replay.ordered.is_none();
    replay.check()?;
    let end = directory.read_log(accept_loss, |blocks| replay.group(blocks))?;
    replay.check()?;
    let stated_time = time_before.max(replay.times.last);
    let mut has_expiries = stores.failure().is_some();
    if let Some(ordered) = replay.ordered.take() {
        let note = |chunk: &Chunk<'_>| progress.add_pairs(chunk.size as u64, chunk.pairs.into());
        has_expiries |= ordered.merge(directory, accept_loss, stated_time, note)?;
    }
    drop(replay);
    let mut is_uneven = false;
    if stores.failure().is_some() {
        let has_other_seeds = old.is_some_and(|old| old.shards.len() != tables.len());
        let time = stated_time;
        let source = Source { directory, tables, partition_seed, accept_loss, time, has_other_seeds, progress };
        // The next start is to find these seeds.
        is_uneven = source.recover(stores)? > 0 && has_other_seeds;
    }
    stores.end(stated_time);
    Ok(Content { end, stated_time, has_expiries, is_uneven, load_time: begun.elapsed() })
}

impl Content {
    /// Logs what was loaded, and what was left out.
    fn report(&self, directory: &Directory<Files>, (pairs, operations): (u64, u64)) {
        let seconds = self.load_time.as_millis() as f64 / 1000.0;
        tracing::info!(pairs, operations, seconds, "the data directory is loaded");
        if let Some((segment, offset)) = self.end.cut {
            tracing::info!(segment, offset, "the log was cut at writes that were not finished");
        }
        if let Some(name) = directory.damaged_manifest() {
            tracing::warn!("{name} was being written when a server ended, or is damaged: the other manifest was used");
        }
        for name in &self.end.foreign {
            tracing::warn!("{name} is from another data directory: it is not used");
        }
        if let Some(loss) = &self.end.loss {
            tracing::warn!("this group and all later ones are dropped, by --accept-loss: {loss}");
        }
        if let Some(missing) = &self.end.missing {
            tracing::warn!("what follows in the log is dropped, by --accept-loss: {missing}");
        }
    }
}

/// Begins the next segment of the log. If the log is long, or keys are divided otherwise, a snapshot is taken before.
fn begin(
    opened: Opened,
    settings: &ServerSettings,
    log: LogSettings,
    mut loaded: Loaded<'_>,
    content: Content,
    manifest: Manifest,
    random: impl Fn() -> u64,
) -> Result<Recovered, RecoveryError> {
    let Opened { disk, mut directory, now } = opened;
    let Content { mut end, stated_time, has_expiries, is_uneven, load_time } = content;
    let has_log = settings.durability != Durability::Memory;
    let is_other = |old: &Manifest| old.shards.len() != manifest.shards.len() || old.gap.is_some();
    let has_changed = directory.manifest().is_some_and(is_other);
    let has_loss = end.loss.is_some() || end.missing.is_some();
    let has_expiries = has_expiries || loaded.have_expiries();
    let is_long = compaction::is_due(end.segment_bytes(), loaded.live_bytes(), log.segment_size);
    let is_compacted =
        (is_long || is_uneven) && !has_loss && has_log && loaded.compact(&disk, &mut directory, &mut end, &manifest);
    // From here on, keys have expired by the machine's clock too.
    let last_time = stated_time.max(now);
    loaded.processors.iter_mut().for_each(|processor| processor.end_replay(last_time));
    let reached = Reached { block: end.next_block() - 1, version: end.floor().saturating_sub(1) };
    let log_bytes = end.segment_bytes();
    let (groups, segments) = directory.begin(end, log, manifest.clone(), &random)?;
    // After an accepted loss at the level `memory` too: until then, a start without the flag is refused.
    let needs_snapshot = has_loss || has_log && has_changed && !is_compacted;
    Ok(Recovered {
        disk,
        directory,
        groups,
        segments,
        manifest,
        reached,
        last_time,
        stated_time,
        has_expiries,
        log_bytes,
        load_time,
        needs_snapshot,
    })
}

/// Returns the bytes of a file of the log: a quarter of what the stores can have, but not more than for large stores.
pub(crate) fn segment_size(settings: &ServerSettings) -> u64 {
    ((settings.memory + settings.ordered_memory) / 4).next_multiple_of(1 << 20).clamp(8 << 20, SEGMENT_SIZE)
}

/// Reads all files of the snapshot. Returns the boundary of each.
pub(super) fn read_snapshot(directory: &Directory<Files>, stores: &Stores<'_>) -> Result<Vec<Boundary>, LogError> {
    let count = directory.manifest().map_or(0, |manifest| manifest.shards.len());
    thread::scope(|scope| {
        let read = |shard| {
            let read = move || directory.read_snapshot(shard as u16, |chunk| stores.load(chunk));
            thread::Builder::new().spawn_scoped(scope, read)
        };
        let threads: Result<Vec<_>, _> = (0..count).map(read).collect();
        let no_thread = |source| LogError::Io { action: "read", name: "a snapshot by a thread".to_owned(), source };
        threads.map_err(no_thread)?.into_iter().map(|thread| thread.join().expect("a reader does not panic")).collect()
    })
}

#[cfg(test)]
pub(crate) mod simulated;
