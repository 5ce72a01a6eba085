//! A data directory: it is accepted or refused, read, and then continued.
//!
//! ```text
//! data directory   lock
//!                  manifest.a  manifest.b
//!                  log-<number>            16 hexadecimal digits
//!                  snapshot-<number>-<shard>
//! ```
//!
//! 1. [`Directory::open`] refuses a directory that is foreign, locked, of a later version or without a valid manifest.
//! 2. [`Directory::read_snapshot`] and [`Directory::read_log`] return its content. They change nothing.
//! 3. [`Directory::begin`] makes durable what was read, and begins a new segment. Nothing is ever written after the
//!    groups that were read, so that a group which a crash has torn is not part of the log, even if it can be read
//!    later.
//!
//! **The first files.** The first manifest is durable before another file exists. So a directory with files of the log
//! and without a manifest is incomplete, and never new.
//!
//! **Why nothing acknowledged is lost when a process was killed.** The bytes of its last writes can be read, but may
//! only be in a cache. Step 3 flushes each file on which later steps depend, before it changes one.

use std::sync::Arc;

use crate::VERSION;
use crate::disk::Disk;
use crate::error::LogError;
use crate::group_writer::{GROUP_SIZE, GroupWriter, Start};
use crate::manifest::{self, Manifest, ManifestFault, ManifestShard};
use crate::pages::{PAGE_SIZE, Pages};
use crate::recovery::LogEnd;
use crate::segment::{self, SegmentHeader};
use crate::segments::{SEGMENT_SIZE, SPARES_MAX, Segments};
use crate::snapshot_file;

/// A directory that a file system has put there.
const LOST_AND_FOUND: &str = "lost+found";
const LOCK: &str = "lock";

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
}

impl<D: Disk> Directory<D> {
    /// Locks a directory and reads its manifests.
    pub fn open(disk: Arc<D>) -> Result<Self, LogError> {
        let names = disk.list().map_err(LogError::io("list", "."))?;
        let is_content = |name: &str| segment::number_of(name).is_some() || snapshot_file::number_of(name).is_some();
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
        if !disk.lock().map_err(LogError::io("lock", LOCK))? {
            return Err(LogError::Locked);
        }
        let mut found: Option<(usize, Manifest)> = None;
        for (slot, name) in manifest::NAMES.into_iter().enumerate() {
            if !names.iter().any(|other| other == name) {
                continue;
            }
            match read_manifest(&*disk, name)? {
                Ok(manifest) if found.as_ref().is_none_or(|(_, other)| other.generation < manifest.generation) => {
                    found = Some((slot, manifest));
                }
                Ok(_) | Err(ManifestFault::Invalid) => {}
                Err(ManifestFault::Newer(found)) => return Err(LogError::Newer { found, supported: VERSION }),
            }
        }
        match found {
            Some((newest, manifest)) => Ok(Directory { disk, manifest: Some(manifest), newest }),
            None if has_content => Err(LogError::ManifestDamaged),
            None => Ok(Directory { disk, manifest: None, newest: 1 }),
        }
    }

    /// Returns the manifest; `None` in a new directory.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// Continues the log in a new segment, after the directory was read. `uid` returns random numbers.
    ///
    /// `new` describes the store that is started: each of its shards has a log. In a new directory it becomes the
    /// manifest. In another one the old manifest stays, because it describes the snapshot and the log that were read,
    /// until [`write_manifest`](Self::write_manifest) states those of the new store.
    pub fn begin(
        &mut self,
        end: LogEnd,
        settings: LogSettings,
        new: Manifest,
        mut uid: impl FnMut() -> u64,
    ) -> Result<(GroupWriter, Segments<D>), LogError> {
        self.make_durable(&end)?;
        let shard_count = new.shards.len().max(end.next_blocks.len());
        if self.manifest.is_none() {
            let shard = |shard: ManifestShard| ManifestShard {
                secret_seed: shard.secret_seed,
                first_block: 1,
                ..Default::default()
            };
            let shards = new.shards.into_iter().map(shard).collect();
            self.write(Manifest { first_group: 1, durable_group: 0, segment: 0, snapshot: None, shards, ..new })?;
        }
        let (spares, surplus) = self.divide(&end, settings.segment_size)?;
        let mut segments = Segments::new(Arc::clone(&self.disk), settings.segment_size, end.last_number + 1, spares);
        let prepared = segments.prepare(uid()).map_err(LogError::io("prepare", "a segment"))?;
        let header = SegmentHeader { first_group: end.next_group, ..prepared };
        let name = segment::name(header.number);
        segments.write_header(&segments.file(header.number), &header).map_err(LogError::io("write", name))?;
        let manifest = self.manifest.clone().expect("it was written");
        self.write(Manifest { durable_group: end.next_group - 1, segment: header.number, ..manifest })?;
        for number in surplus {
            let name = segment::name(number);
            self.disk.remove(&name).map_err(LogError::io("remove", name))?;
        }
        self.remove_old_snapshots()?;
        let durable = (0..shard_count).map(|shard| end.next_block(shard as u16) - 1).collect();
        let start =
            Start { segment: header, used: end.used, before: end.before, durable, group_size: settings.group_size };
        Ok((GroupWriter::new(start), segments))
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

    /// Divides the segments that the log no longer needs into those that are used again and those that are removed.
    fn divide(&self, end: &LogEnd, size: u64) -> Result<(Vec<u64>, Vec<u64>), LogError> {
        let (mut spares, mut surplus) = (Vec::new(), end.dead.clone());
        for &number in &end.unused {
            let name = segment::name(number);
            let file = self.disk.open(&name).map_err(LogError::io("open", name.as_str()))?;
            let has_size = self.disk.size(&file).map_err(LogError::io("read", name))? == size;
            if has_size && spares.len() < SPARES_MAX { &mut spares } else { &mut surplus }.push(number);
        }
        Ok((spares, surplus))
    }

    /// Writes a manifest over the older of the two. It is durable when this returns. The generation, the durable group
    /// and the segment are set here. `writer` is that of the log.
    ///
    /// If the manifest names a snapshot, its files must be complete, and the blocks that were executed before the walk
    /// ended must be durable.
    pub fn write_manifest(&mut self, manifest: Manifest, writer: &GroupWriter) -> Result<(), LogError> {
        self.write(Manifest { durable_group: writer.durable_group(), segment: writer.segment(), ..manifest })
    }

    fn write(&mut self, manifest: Manifest) -> Result<(), LogError> {
        let generation = self.manifest.as_ref().map_or(0, |manifest| manifest.generation) + 1;
        let manifest = Manifest { generation, ..manifest };
        let mut pages = Pages::default();
        manifest.encode(&mut pages);
        let slot = 1 - self.newest;
        let name = manifest::NAMES[slot];
        let names = self.disk.list().map_err(LogError::io("list", "."))?;
        let file = match names.iter().any(|other| other == name) {
            true => self.disk.open(name),
            false => self.disk.create(name),
        };
        let file = file.map_err(LogError::io("open", name))?;
        self.disk.write_at(&file, 0, pages.padded()).map_err(LogError::io("write", name))?;
        self.disk.sync_directory().map_err(LogError::io("flush", "the directory"))?;
        (self.newest, self.manifest) = (slot, Some(manifest));
        Ok(())
    }

    /// Removes all snapshots except that of the manifest. Call it after a manifest with a new one was written.
    pub fn remove_old_snapshots(&self) -> Result<(), LogError> {
        let kept = self.manifest.as_ref().and_then(|manifest| manifest.snapshot);
        for name in self.disk.list().map_err(LogError::io("list", "."))? {
            if let Some(number) = snapshot_file::number_of(&name)
                && Some(number) != kept
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
