//! A snapshot that a start writes before it serves, if the log is so long that the directory would exceed its bound.
//!
//! A server begins a segment at each start, and takes a snapshot soon if the log is long. One that is killed before that
//! snapshot is complete, again and again, would add a segment each time. So a start that finds a log of more than
//! [`GROWTH`] times the pairs, and a segment, writes the snapshot itself, from the stores that were just loaded.
//! Nothing else changes them, so it needs no log. If it cannot be written, the start goes on with the log. A start whose
//! shards take spare memory writes a snapshot too, so that the next one finds its seeds.

use std::sync::Arc;

use skep_core::operation::Expiry;
use skep_log::{
    ChunkWriter, Directory, Disk, LogEnd, LogError, Manifest, ManifestShard, Pages, SnapshotFile, SnapshotPart,
    SnapshotWriter, last_position,
};
use skep_store::ordered::OrderedStore;
use skep_store::processor::Processor;

use super::walk::{CHUNK_SIZE, ORDERED_PAIRS, ORDERED_SIZE};

/// The log grows by this many times the size of all pairs until a snapshot is taken.
pub(crate) const GROWTH: u64 = 2;

/// Returns true if a start writes a snapshot: the log has segments of this many bytes in all.
pub(super) fn is_due(log_bytes: u64, live_bytes: u64, segment_size: u64) -> bool {
    log_bytes > GROWTH * live_bytes + segment_size
}

/// The stores that were loaded.
pub(super) struct Loaded<'s> {
    pub(super) processors: Vec<&'s mut Processor>,
    pub(super) ordered: Option<&'s OrderedStore>,
}

impl Loaded<'_> {
    /// Returns the bytes of all pairs.
    pub(super) fn live_bytes(&self) -> u64 {
        let hash: u64 = self.processors.iter().map(|processor| processor.statistics().pair_bytes).sum();
        hash + self.ordered.map_or(0, |store| store.statistics().space.used_bytes)
    }

    /// Returns true if keys have an expiry.
    pub(super) fn have_expiries(&self) -> bool {
        let of_hash = self.processors.iter().any(|processor| processor.statistics().expiring > 0);
        of_hash || self.ordered.is_some_and(|store| store.expiring_count() > 0)
    }

    /// Writes all pairs into a snapshot, and a manifest that names it, so that nothing of the log that was read is needed.
    /// Returns false if it cannot be written, such as on a full disk: then the directory is as it was before.
    pub(super) fn compact<D: Disk>(
        &mut self,
        disk: &Arc<D>,
        directory: &mut Directory<D>,
        end: &mut LogEnd,
        manifest: &Manifest,
    ) -> bool {
        let number = directory.manifest().map_or(0, |old| old.generation.max(old.snapshot.unwrap_or(0))) + 1;
        match self.try_compact(disk, directory, end, number, manifest) {
            Ok(()) => {
                tracing::info!(
                    number,
                    "the log was long, or keys are divided otherwise: a snapshot was taken before the server serves"
                );
                true
            }
            Err(error) => {
                tracing::warn!("the log is long, and a snapshot could not be written: {error}");
                // The manifest may be on disk although its write has failed. It is valid while the snapshot has its files,
                // so these are removed only after the earlier manifest was written again.
                if let Err(error) = directory.settle().and_then(|()| directory.remove_old_snapshots()) {
                    tracing::warn!("the files of the snapshot are left: {error}");
                }
                false
            }
        }
    }

    fn try_compact<D: Disk>(
        &mut self,
        disk: &Arc<D>,
        directory: &mut Directory<D>,
        end: &mut LogEnd,
        number: u64,
        manifest: &Manifest,
    ) -> Result<(), LogError> {
        directory.remove_old_snapshots()?;
        let written = self.write(disk, number, end.next_block() - 1, manifest.last_time);
        let (files, ordered) = written.map_err(|source| {
            let name = "a snapshot".to_owned();
            LogError::Io { action: "write", name, source }
        })?;
        let shards = std::iter::zip(&manifest.shards, files);
        let shards = shards.map(|(shard, file)| ManifestShard { file, ..*shard }).collect();
        directory.replace_log(end, Manifest { snapshot: Some(number), shards, ordered, ..manifest.clone() })
    }

    /// Writes the files of a snapshot. The pairs contain the blocks up to this one. Those that have expired at the time
    /// `now` are left out: the manifest states this time.
    fn write<D: Disk>(
        &mut self,
        disk: &Arc<D>,
        number: u64,
        block: u64,
        now: u64,
    ) -> std::io::Result<(Vec<SnapshotFile>, SnapshotFile)> {
        let is_kept = |expiry: Option<Expiry>| !expiry.is_some_and(|expiry| expiry.has_passed(now));
        let mut files = Vec::new();
        for (shard, processor) in (0..).zip(&mut self.processors) {
            let mut file = Part::new(disk, number, SnapshotPart::Shard(shard))?;
            let mut next = Some(0);
            while let Some(from) = next {
                next = processor.walk_pairs(from, |key, value, expiry| {
                    if is_kept(expiry) {
                        file.chunks.push(key, value, expiry);
                    }
                });
                file.chunks.end_step(last_position(next), block);
                file.write(next.is_none())?;
            }
            files.push(file.file.finish()?);
        }
        let Some(store) = self.ordered else { return Ok((files, SnapshotFile::default())) };
        let mut session = store.session().expect("a store that was loaded has sessions");
        let mut file = Part::new(disk, number, SnapshotPart::Ordered)?;
        let mut walk = session.begin_snapshot(now);
        loop {
            let push = |key: &[u8], value: &[u8], expiry| {
                if is_kept(expiry) {
                    file.chunks.push(key, value, expiry);
                }
            };
            let is_last = session.snapshot_step(&mut walk, ORDERED_PAIRS, ORDERED_SIZE, push).is_last;
            // Nothing was written meanwhile, so all steps are one.
            let end = (!is_last).then_some(walk.position());
            file.chunks.end_ordered_step(end, walk.begun_at());
            file.write(is_last)?;
            if is_last {
                return Ok((files, file.file.finish()?));
            }
        }
    }
}

/// A file of the snapshot.
struct Part<D: Disk> {
    chunks: ChunkWriter,
    file: SnapshotWriter<D>,
    pages: Pages,
}

impl<D: Disk> Part<D> {
    fn new(disk: &Arc<D>, number: u64, part: SnapshotPart) -> std::io::Result<Part<D>> {
        let file = SnapshotWriter::create(Arc::clone(disk), number, part)?;
        Ok(Part { chunks: ChunkWriter::new(number, part), file, pages: Pages::default() })
    }

    /// Writes a chunk if it is complete.
    fn write(&mut self, is_last: bool) -> std::io::Result<()> {
        if (is_last || self.chunks.size() >= CHUNK_SIZE) && self.chunks.finish(&mut self.pages) {
            self.file.write(&self.pages)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
