//! A data directory: it is accepted or refused, read, and then continued.
//!
//! ```text
//! data directory   lock
//!                  manifest.a  manifest.b
//!                  functions.a  functions.b   if functions were loaded
//!                  log-<number>            16 hexadecimal digits
//!                  snapshot-<number>-<shard>  snapshot-<number>-ordered
//! ```
//!
//! 1. [`Directory::open`] refuses a directory that is foreign, locked, of a later version or without a valid manifest.
//! 2. [`Directory::functions`], [`Directory::read_snapshot`] and [`Directory::read_log`] return its content. They change
//!    nothing.
//! 3. [`Directory::begin`] makes durable what was read, and begins a new segment. Nothing is ever written after the
//!    groups that were read, so that a group which a crash has torn is not part of the log, even if it can be read
//!    later.
//!
//! **The first files.** The first manifest is durable before another file exists. So a directory with files of the log or
//! of functions and without a manifest is incomplete, and never new.
//!
//! **Why nothing acknowledged is lost when a process was killed.** The bytes of its last writes can be read, but may
//! only be in a cache. Step 3 flushes each file on which later steps depend, before it changes one.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::VERSION;
use crate::disk::Disk;
use crate::error::{LogError, is_full};
use crate::functions_file::{self, FunctionsFile, StoredFunctions};
use crate::group_writer::{GROUP_SIZE, GroupWriter, Start, UsedSegment};
use crate::log_end::LogEnd;
use crate::manifest::{self, Manifest, ManifestFault, ManifestShard, SnapshotFile};
use crate::pages::{PAGE_SIZE, Pages};
use crate::segment::{self, SegmentHeader, SegmentKind};
use crate::segments::{SEGMENT_SIZE, SPARES_MAX, Segments};
use crate::snapshot_name;

/// A directory that a file system has put there.
pub(crate) const LOST_AND_FOUND: &str = "lost+found";
pub(crate) const LOCK: &str = "lock";

/// Sizes of the log. Tests choose small ones.
#[derive(Clone, Copy, Debug)]
pub struct LogSettings {
    /// Bytes of a segment, a multiple of 4096.
    pub segment_size: u64,
    /// Bytes from which on a group takes no further block.
    pub group_size: usize,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings { segment_size: SEGMENT_SIZE, group_size: GROUP_SIZE }
    }
}

/// A data directory that was accepted and locked.
pub struct Directory<D: Disk> {
    pub(crate) disk: Arc<D>,
    pub(crate) manifest: Option<Manifest>,
    /// The name that has this manifest.
    newest: usize,
    damaged: Option<&'static str>,
    /// The snapshot of a manifest whose write has failed: the other name may have it.
    doubtful: Option<u64>,
}

impl<D: Disk> Directory<D> {
    /// Locks a directory and reads its manifests.
    pub fn open(disk: Arc<D>) -> Result<Self, LogError> {
        Self::open_with(disk, true)
    }

    /// Reads the manifests of a directory that a server may use.
    pub(crate) fn open_unlocked(disk: Arc<D>) -> Result<Self, LogError> {
        Self::open_with(disk, false)
    }

    fn open_with(disk: Arc<D>, locks: bool) -> Result<Self, LogError> {
        let names = disk.list().map_err(LogError::io("list", "."))?;
        let is_content = |name: &str| {
            let is_numbered = segment::number_of(name).is_some() || snapshot_name::number_of(name).is_some();
            is_numbered || functions_file::NAMES.contains(&name)
        };
        let has_content = names.iter().any(|name| is_content(name));
        if !names.iter().any(|name| manifest::NAMES.contains(&name.as_str())) {
            if let Some(name) = names.iter().find(|name| !is_content(name) && *name != LOCK && *name != LOST_AND_FOUND)
            {
                return Err(LogError::Foreign { name: name.clone() });
            }
            if has_content {
                return Err(LogError::Incomplete { what: "both manifests are missing".into() });
            }
        }
        if locks && !disk.lock().map_err(LogError::io("lock", "the file lock"))? {
            return Err(LogError::Locked);
        }
        let (mut found, mut damaged): (Option<(usize, Manifest)>, _) = (None, None);
        for (slot, name) in manifest::NAMES.into_iter().enumerate() {
            if !names.iter().any(|other| other == name) {
                continue;
            }
            match read_manifest(&*disk, name)? {
                Ok(manifest) if found.as_ref().is_none_or(|(_, other)| other.generation < manifest.generation) => {
                    found = Some((slot, manifest));
                }
                Ok(_) => {}
                Err(ManifestFault::Invalid) => damaged = Some(name),
                Err(ManifestFault::Newer(found)) => return Err(LogError::Newer { found, supported: VERSION }),
            }
        }
        match found {
            Some((newest, manifest)) => {
                Ok(Directory { disk, manifest: Some(manifest), newest, damaged, doubtful: None })
            }
            None if has_content => Err(LogError::ManifestDamaged),
            None => Ok(Directory { disk, manifest: None, newest: 1, damaged, doubtful: None }),
        }
    }

    /// Returns the manifest; `None` in a new directory.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// Returns the manifest that is not valid, if one is: it was being written when a server ended, or it is damaged.
    pub fn damaged_manifest(&self) -> Option<&'static str> {
        self.damaged
    }

    /// Reads the functions that users have loaded. In a directory without them, they are empty. Changes nothing.
    ///
    /// Operations of the log may name them. New ones are written after [`begin`](Self::begin), which makes durable what
    /// was read.
    pub fn functions(&self) -> Result<(StoredFunctions, FunctionsFile<D>), LogError> {
        FunctionsFile::open(&self.disk)
    }

    /// Continues the log in a new segment, after the directory was read. `uid` returns random numbers.
    ///
    /// `new` describes the store that is started. In a new directory it becomes the manifest. In another one the old
    /// manifest stays, because it describes the snapshot and the log that were read, until
    /// [`write_manifest`](Self::write_manifest) states those of the new store.
    pub fn begin(
        &mut self,
        mut end: LogEnd,
        settings: LogSettings,
        new: Manifest,
        uid: impl FnMut() -> u64,
    ) -> Result<(GroupWriter, Segments<D>), LogError> {
        self.make_durable(&end)?;
        FunctionsFile::repair(&self.disk)?;
        if self.manifest.is_none() {
            let seed = |shard: ManifestShard| ManifestShard { file: SnapshotFile::default(), ..shard };
            let shards = new.shards.into_iter().map(seed).collect();
            let Manifest { server_id, partition_seed, memory, kv_size, .. } = new;
            let seeds = Manifest { server_id, partition_seed, memory, kv_size, shards, ..Manifest::default() };
            self.write(Manifest { first_group: 1, ..seeds })?;
        }
        // On a full disk this makes room for a segment.
        self.remove_old_snapshots()?;
        self.remove_dead(&mut end)?;
        let (spares, surplus) = self.divide(&end, settings.segment_size)?;
        self.remove(&surplus)?;
        let server_id = self.manifest.as_ref().expect("it was written").server_id;
        let (disk, next_number) = (Arc::clone(&self.disk), end.last_number + 1);
        let mut segments = Segments::new(disk, settings.segment_size, server_id, next_number, spares);
        let segment = self.begin_segment(&mut segments, &mut end, uid)?;
        let manifest = self.manifest.clone().expect("it was written");
        let (durable_group, durable_block, durable_floor) = (end.next_group - 1, end.next_block - 1, end.floor);
        // A gap that has no end yet ends here. The older manifest would leave out all later blocks, so it is replaced too.
        let gap = manifest.gap.map(|(after, before)| (after, before.min(end.next_block)));
        let copies = if manifest.gap == gap { 1 } else { 2 };
        let named = segment.map(|header| header.number).or(end.used.last().map(|last| last.number));
        let named = named.expect("without room for a segment, there is one");
        let manifest = Manifest { durable_group, durable_block, durable_floor, segment: named, gap, ..manifest };
        (0..copies).try_for_each(|_| self.write(manifest.clone()))?;
        self.remove(&end.dead)?;
        let LogEnd { next_group, used, before, next_block, floor, .. } = end;
        let (group_size, prepared) = (settings.group_size, VecDeque::new());
        let start = Start { segment, next_group, used, before, next_block, floor, group_size, prepared };
        Ok((GroupWriter::new(start), segments))
    }

    /// Begins the segment of a recovery. On a full disk, it takes the one that the last recovery has begun, if no group was
    /// written since. If there is none, it returns none: the log begins its segment when there is room. So starts succeed again
    /// and again while the disk is full. Until then nothing is written, so the next start reads the same log.
    fn begin_segment(
        &self,
        segments: &mut Segments<D>,
        end: &mut LogEnd,
        mut uid: impl FnMut() -> u64,
    ) -> Result<Option<SegmentHeader>, LogError> {
        let prepared = match segments.prepare(uid()) {
            Ok(prepared) => prepared,
            Err(error) => match self.take_unused(segments, end)? {
                Some(unused) => unused,
                None if is_full(&error) && end.can_wait() => return Ok(None),
                None => return Err(LogError::io("prepare", "a segment")(error)),
            },
        };
        // With another uid: what a crash has torn there stays invalid.
        let uid = if prepared.first_group == 0 { prepared.uid } else { uid() };
        let header = SegmentHeader { kind: SegmentKind::Recovered, first_group: end.next_group, uid, ..prepared };
        let name = segment::name(header.number);
        segments.write_header(&segments.file(header.number), &header).map_err(LogError::io("write", name))?;
        Ok(Some(header))
    }

    /// Takes the last segment, if a recovery has begun it and it has no groups.
    fn take_unused(&self, segments: &mut Segments<D>, end: &mut LogEnd) -> Result<Option<SegmentHeader>, LogError> {
        let is_last = |number: u64| end.dead.iter().all(|dead| *dead < number);
        let is_unused = |last: &&UsedSegment| last.first_group == end.next_group && is_last(last.number);
        let Some(last) = end.used.last().filter(is_unused) else { return Ok(None) };
        let header = segments.reopen(last.number).map_err(LogError::io("open", segment::name(last.number)))?;
        let Some(header) = header.filter(|header| header.kind == SegmentKind::Recovered) else { return Ok(None) };
        end.used.pop();
        Ok(Some(header))
    }

    /// Begins a fresh log after a write has failed, or when a server has recorded nothing for some time. No write is in
    /// flight ([`GroupWriter::is_writing`]), and a segment is prepared ([`GroupWriter::needs_segment`]).
    ///
    /// Recovery reads the fresh log only if the manifest needs no group before it. So until a manifest names a snapshot
    /// whose walk began after this call, nothing is acknowledged: neither blocks that the failed writer had, which are
    /// only in the snapshot, nor later ones. The new writer numbers blocks from `next_block` on, and reports those before
    /// as durable. `floor` is the next version of the ordered space, which the snapshot reaches.
    pub fn begin_fresh(
        &self,
        writer: &mut GroupWriter,
        segments: &mut Segments<D>,
        next_block: u64,
        floor: u64,
    ) -> Result<(), LogError> {
        self.remove_old_snapshots()?;
        assert!(!writer.is_writing() && next_block >= writer.next_block(), "the old log has ended");
        let start = writer.fresh_start(next_block, floor);
        let header = start.segment.expect("a fresh log begins with a segment");
        let name = segment::name(header.number);
        segments.write_header(&segments.file(header.number), &header).map_err(LogError::io("write", name))?;
        *writer = GroupWriter::new(start);
        Ok(())
    }

    /// Makes durable what was read.
    fn make_durable(&self, end: &LogEnd) -> Result<(), LogError> {
        let segments = end.used.iter().map(|segment| segment::name(segment.number));
        let manifests = self.manifest.iter().map(|_| manifest::NAMES[self.newest].to_owned());
        for name in segments.chain(manifests) {
            let file = self.disk.open(&name).map_err(LogError::io("open", name.as_str()))?;
            self.disk.sync(&file).map_err(LogError::io("flush", name))?;
        }
        self.disk.sync_directory().map_err(LogError::io("flush", "the directory"))
    }

    fn remove(&self, segments: &[u64]) -> Result<(), LogError> {
        segments.iter().try_for_each(|number| {
            let name = segment::name(*number);
            self.disk.remove(&name).map_err(LogError::io("remove", name))
        })
    }

    /// Writes a manifest whose snapshot has all that was read, so that no group of the log is needed any more. The files of
    /// the snapshot are complete, and nothing was written since the directory was read.
    pub fn replace_log(&mut self, end: &mut LogEnd, manifest: Manifest) -> Result<(), LogError> {
        self.make_durable(end)?;
        let (durable_group, durable_block, durable_floor) = (end.next_group - 1, end.next_block - 1, end.floor);
        let first_group = end.next_group;
        // The last segment stays until another one has begun: without it, the one before would seem to lack its successor.
        let last = end.used.pop();
        let segment = last.map_or(0, |last| last.number);
        self.write(Manifest { first_group, durable_group, durable_block, durable_floor, segment, ..manifest })?;
        end.unused.extend(end.used.drain(..).map(|segment| segment.number));
        end.used.extend(last);
        end.segment_bytes = 0;
        Ok(())
    }

    /// Removes dead segments before another one is prepared, so that they do not keep it from being prepared on a full disk.
    ///
    /// What was read is durable, so the segment that supersedes a dead one is. Each removal is durable before the next one,
    /// and the last segment is removed first. So after a crash, those that are left are dead as before: the first segment of a
    /// fresh log, by which its others are known, is the last one of them that is removed.
    ///
    /// The segment that the manifest names stays until the manifest names another one. After an accepted loss all stay: they
    /// prove the damage until the next segment has begun.
    fn remove_dead(&self, end: &mut LogEnd) -> Result<(), LogError> {
        if end.loss.is_some() || end.missing.is_some() {
            return Ok(());
        }
        let named = self.manifest.as_ref().map_or(0, |manifest| manifest.segment);
        end.dead.sort_unstable();
        while let Some(position) = end.dead.iter().rposition(|number| *number != named) {
            self.remove(&[end.dead.remove(position)])?;
            self.disk.sync_directory().map_err(LogError::io("flush", "the directory"))?;
        }
        Ok(())
    }

    /// Divides the segments that the log no longer needs into those that are used again and those that are removed.
    fn divide(&self, end: &LogEnd, size: u64) -> Result<(Vec<u64>, Vec<u64>), LogError> {
        let (mut spares, mut surplus) = (Vec::new(), Vec::new());
        // The manifest names a segment that must exist until it names another one.
        let named = self.manifest.as_ref().map_or(0, |manifest| manifest.segment);
        for &number in end.unused.iter().filter(|number| **number != named) {
            let name = segment::name(number);
            let file = self.disk.open(&name).map_err(LogError::io("open", name.as_str()))?;
            let has_size = self.disk.size(&file).map_err(LogError::io("read", name))? == size;
            if has_size && spares.len() < SPARES_MAX { &mut spares } else { &mut surplus }.push(number);
        }
        Ok((spares, surplus))
    }

    /// Writes a manifest over the older of the two. It is durable when this returns. The generation, the segment
    /// and what is durable are set here. `writer` is that of the log.
    ///
    /// If the manifest names a snapshot, its files must be complete. The blocks that were sealed before the walk ended
    /// must be durable, and the durable floor must be above the versions of the ordered steps.
    ///
    /// # Panics
    /// If a fresh log was begun, and the manifest needs groups before it: its walk began before.
    pub fn write_manifest(&mut self, manifest: Manifest, writer: &GroupWriter) -> Result<(), LogError> {
        assert!(manifest.first_group >= writer.first_needed(), "a fresh log needs a snapshot that was begun after it");
        self.write(Manifest {
            durable_group: writer.durable_group(),
            durable_block: writer.durable_block(),
            durable_floor: writer.durable_floor(),
            segment: writer.segment(),
            ..manifest
        })
    }

    fn write(&mut self, manifest: Manifest) -> Result<(), LogError> {
        let generation = self.manifest.as_ref().map_or(0, |manifest| manifest.generation) + 1;
        let manifest = Manifest { generation, ..manifest };
        let mut pages = Pages::default();
        manifest.encode(&mut pages);
        let slot = 1 - self.newest;
        let name = manifest::NAMES[slot];
        if self.doubtful.is_none() {
            self.doubtful = manifest.snapshot;
        }
        let names = self.disk.list().map_err(LogError::io("list", "."))?;
        let file = match names.iter().any(|other| other == name) {
            true => self.disk.open(name),
            false => self.disk.create(name),
        };
        let file = file.map_err(LogError::io("open", name))?;
        self.disk.write_at(&file, 0, pages.padded()).map_err(LogError::io("write", name))?;
        self.disk.sync_directory().map_err(LogError::io("flush", "the directory"))?;
        (self.newest, self.manifest, self.doubtful) = (slot, Some(manifest), None);
        Ok(())
    }

    /// Writes the manifest again, over one whose write has failed and that may be on disk nevertheless.
    pub fn settle(&mut self) -> Result<(), LogError> {
        match (self.doubtful, self.manifest.clone()) {
            (Some(_), Some(manifest)) => self.write(manifest),
            _ => Ok(()),
        }
    }

    /// Removes all snapshots except that of the manifest, and that of a manifest whose write has failed: it may be on
    /// disk nevertheless. Call it after a manifest with a new one was written.
    pub fn remove_old_snapshots(&self) -> Result<(), LogError> {
        let kept = self.manifest.as_ref().and_then(|manifest| manifest.snapshot);
        for name in self.disk.list().map_err(LogError::io("list", "."))? {
            if let Some(number) = snapshot_name::number_of(&name)
                && Some(number) != kept
                && Some(number) != self.doubtful
            {
                self.disk.remove(&name).map_err(LogError::io("remove", name))?;
            }
        }
        Ok(())
    }
}

fn read_manifest<D: Disk>(disk: &D, name: &str) -> Result<Result<Manifest, ManifestFault>, LogError> {
    let file = disk.open(name).map_err(LogError::io("open", name))?;
    let size = disk.size(&file).map_err(LogError::io("read", name))?;
    let size_max = manifest::SIZE_MAX.next_multiple_of(PAGE_SIZE);
    let mut pages = Pages::default();
    pages.set_size((size.min(size_max as u64) as usize) / PAGE_SIZE * PAGE_SIZE);
    disk.read_at(&file, 0, pages.pages_mut()).map_err(LogError::io("read", name))?;
    Ok(Manifest::decode(pages.bytes()))
}
