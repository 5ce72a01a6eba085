//! A snapshot that a start writes before it serves, if the log is so long that the directory would exceed its bound.
//!
//! A server begins a segment at each start, and takes a snapshot soon if the log is long. One that is killed before that
//! snapshot is complete, again and again, would add a segment each time. So a start that finds a log of more than
//! [`GROWTH`] times the pairs, and a segment, writes the snapshot itself, from the stores that were just loaded.
//! Nothing else changes them, so it needs no log. If it cannot be written, the start goes on with the log.

use std::sync::Arc;

use skep_log::{
    ChunkWriter, Directory, Files, LogEnd, LogError, Manifest, ManifestShard, Pages, SnapshotFile, SnapshotPart,
    SnapshotWriter, last_position,
};
use skep_store::ordered::OrderedStore;
use skep_store::processor::Processor;

use super::keeper::GROWTH;
use super::walk::{CHUNK_SIZE, ORDERED_PAIRS, ORDERED_SIZE};

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

    /// Writes all pairs into a snapshot, and a manifest that names it, so that nothing of the log that was read is needed.
    /// Returns false if there is no room for it.
    pub(super) fn compact(
        &mut self,
        disk: &Arc<Files>,
        directory: &mut Directory<Files>,
        end: &mut LogEnd,
        manifest: &Manifest,
    ) -> Result<bool, LogError> {
        directory.remove_old_snapshots()?;
        let number = directory.manifest().map_or(0, |old| old.generation.max(old.snapshot.unwrap_or(0))) + 1;
        match self.write(disk, number, end.next_block() - 1) {
            Ok((files, ordered)) => {
                let shards = std::iter::zip(&manifest.shards, files);
                let shards = shards.map(|(shard, file)| ManifestShard { file, ..*shard }).collect();
                let manifest = Manifest { snapshot: Some(number), shards, ordered, ..manifest.clone() };
                directory.replace_log(end, manifest)?;
                tracing::info!(number, "the log was long: a snapshot was taken before the server serves");
                Ok(true)
            }
            Err(error) => {
                tracing::warn!("the log is long, and a snapshot could not be written: {error}");
                directory.remove_old_snapshots()?;
                Ok(false)
            }
        }
    }

    /// Writes the files of a snapshot. The pairs contain the blocks up to this one.
    fn write(
        &mut self,
        disk: &Arc<Files>,
        number: u64,
        block: u64,
    ) -> std::io::Result<(Vec<SnapshotFile>, SnapshotFile)> {
        let mut files = Vec::new();
        for (shard, processor) in (0..).zip(&mut self.processors) {
            let mut file = Part::new(disk, number, SnapshotPart::Shard(shard))?;
            let mut next = Some(0);
            while let Some(from) = next {
                next = processor.walk_pairs(from, |key, value, expiry| file.chunks.push(key, value, expiry));
                file.chunks.end_step(last_position(next, processor.home_bucket_count()), block);
                file.write(next.is_none())?;
            }
            files.push(file.file.finish()?);
        }
        let Some(store) = self.ordered else { return Ok((files, SnapshotFile::default())) };
        let mut session = store.session().expect("a store that was loaded has sessions");
        let mut file = Part::new(disk, number, SnapshotPart::Ordered)?;
        let mut walk = session.begin_snapshot();
        loop {
            let push = |key: &[u8], value: &[u8], expiry| file.chunks.push(key, value, expiry);
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
struct Part {
    chunks: ChunkWriter,
    file: SnapshotWriter<Files>,
    pages: Pages,
}

impl Part {
    fn new(disk: &Arc<Files>, number: u64, part: SnapshotPart) -> std::io::Result<Part> {
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
mod tests {
    use skep_core::operation::{Operation, PutCondition, Request};
    use skep_log::{BlockWriter, LogSettings};
    use skep_store::hash::Settings;
    use skep_wire::native::HASH_SPACE;

    use crate::durability::embedding::recover_store;
    use crate::durability::recovery::Recovered;

    const SEGMENT_SIZE: u64 = 64 << 10;

    /// Each start begins a segment, and the process ends before a snapshot is complete.
    #[test]
    fn processes_that_are_killed_soon_do_not_make_a_directory_grow() {
        let directory = tempfile::tempdir().unwrap();
        let log = LogSettings { segment_size: SEGMENT_SIZE, ..LogSettings::default() };
        for start in 0..40_u64 {
            let settings = Settings::for_kv_size(1 << 20, 10, start);
            let (mut processor, recovered) = recover_store(directory.path(), &settings, log).unwrap();
            let mut keys = Vec::new();
            let mut next = Some(0);
            while let Some(from) = next {
                next = processor.walk_pairs(from, |key, _, _| keys.push(key.to_vec()));
            }
            keys.sort();
            assert!(keys.into_iter().eq((0..start).map(|key| key.to_be_bytes().to_vec())), "start {start}");
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
}
