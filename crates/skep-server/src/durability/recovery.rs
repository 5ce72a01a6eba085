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

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use skep_log::{
    Chunk, Directory, Files, GroupWriter, LogEnd, LogSettings, Manifest, ManifestShard, SEGMENT_SIZE, Segments,
};
use skep_store::hash::Settings;
use skep_store::ordered::OrderedStore;
use skep_store::processor::Processor;
use skep_wire::partition::Partition;

use super::compaction::{self, Loaded};
use super::loading::Progress;
use super::ordered_recovery::OrderedReplay;
use super::replay::{Replay, Stores, read_snapshot};
use super::sliced_recovery::Source;
use crate::function_loader::FunctionLoader;
use crate::limits::{EFFECTS_PART, EFFECTS_SIZE_MIN};
use crate::recovery_error::RecoveryError;
use crate::settings::ServerSettings;
use crate::unix_time::since_1970;
use crate::vocabulary::{Durability, Reached};

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

/// The new stores that a directory is read into.
pub(crate) struct NewStores<'s> {
    /// The hash stores of all shards.
    pub(crate) processors: Vec<&'s mut Processor>,
    /// The settings of the hash stores.
    pub(crate) tables: &'s [Settings],
    pub(crate) ordered: Option<&'s mut OrderedStore>,
    /// Gets the functions of the directory.
    pub(crate) loader: &'s FunctionLoader,
}

/// Reads a directory into new stores with these settings, and begins the next segment of its log.
pub(crate) fn recover(
    opened: Opened,
    settings: &ServerSettings,
    log: LogSettings,
    new: NewStores<'_>,
    random: impl Fn() -> u64,
    progress: &Progress,
) -> Result<Recovered, RecoveryError> {
    let NewStores { processors, tables, mut ordered, loader } = new;
    let directory = &opened.directory;
    let (functions, file) = directory.functions()?;
    loader.restore(functions, file);
    let manifest = next_manifest(directory.manifest(), settings, tables, &random);
    let stores = Stores::new(processors, Partition::new(manifest.partition_seed, settings.shards), progress, loader);
    let mut content = load(directory, settings, tables, &stores, ordered.as_deref(), manifest.partition_seed)?;
    if let Some(ordered) = &mut ordered {
        ordered.begin_versions_after(content.end.floor());
        content.end.raise_floor(ordered.newest_version() + 1);
    }
    let (pairs, operations) = progress.counts();
    content.report(directory, pairs, operations);
    loader.log_refused();
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
        kv_size: settings.kv_size.unwrap_or(0) as u64,
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
    settings: &ServerSettings,
    tables: &[Settings],
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
        let source = Source {
            directory,
            tables,
            partition_seed,
            accept_loss,
            time,
            has_other_seeds,
            progress,
            loader: stores.loader,
        };
        // The next start is to find these seeds.
        is_uneven = source.recover(stores)? > 0 && has_other_seeds;
    }
    stores.end(stated_time);
    Ok(Content { end, stated_time, has_expiries, is_uneven, load_time: begun.elapsed() })
}

impl Content {
    /// Logs what was loaded, and what was left out.
    fn report(&self, directory: &Directory<Files>, pairs: u64, operations: u64) {
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

#[cfg(test)]
pub(crate) mod simulated;
