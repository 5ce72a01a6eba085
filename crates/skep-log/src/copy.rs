//! Copies a data directory, also while a server writes to it: a backup, or a backup that becomes a data directory again.
//!
//! ```text
//! 1. read the manifest
//! 2. open the snapshot files     they stay readable when the server removes them
//! 3. copy the groups             from the manifest's first one up to the first one that is not complete
//! 4. were the segments still in place, under the same log? if not, begin again
//! 5. copy the functions
//! 6. copy the snapshot files
//! 7. write a manifest            the log ends with the last group that was copied
//! 8. check the copy as any data directory
//! ```
//!
//! **What a copy contains.** All that was durable when the copy began, and perhaps more: some of the operations that ran
//! meanwhile, in the order of the log and without a gap. So it is the state of one moment, as after a crash.
//!
//! **Why.** Let b be a block that was durable when the copy began.
//! - The manifest of 1 is that of this moment or a later one. Its snapshot contains b, or its log does.
//! - *If the log does:* before a segment is used again, it gets another name, and its name is never used again. So if all
//!   segments have their names at 4, no read of 3 saw bytes of a later use. The group of b, its segment's header and all
//!   groups before it were durable, so no write changes them: they were read whole. Hence 3 does not end before b.
//! - *Order:* 3 reads the groups as a recovery does, each with the checksum of the one before it. So it copies a sequence
//!   that the server has written, without a gap.
//! - *Snapshot:* a manifest names only files that are complete, and these never change.
//! - *Functions:* a function is durable before the first block that names it, and sources and names are only ever added. The
//!   blocks of the copy were written before 5, so the functions that are read then have all that these blocks name.
//!
//! **Another manifest at 4** may tell that the log of 1 has ended: blocks are left out, or a fresh log has begun. Then the
//! gap differs, or the first group is beyond those that were read, because no fresh log uses the number of the group
//! after the last. If neither is so, it only names a later snapshot of the same log, and the copy is right.
//!
//! **Where the log ends.** The last groups may be in flight while they are read. A recovery calls a group damaged if a
//! later one proves that it was durable. Here the proof may be younger than the read. So a group that was not valid is
//! read again after the proof ([`Reading::Live`]): if it was durable then, it is valid now, and the log is cut before it.
//! It was not durable when the copy began, since it was read as not valid later. If it is not valid again, it is damaged.
//! The same holds for the header of the next segment, which is durable before the end of the segment before it.
//!
//! A segment whose header was not written when the segments were listed may get one, and groups, before the copy searches
//! it for a proof. This may look like damage. So a copy that finds damage begins again: the header is there then.
//!
//! Nothing of the cut remains in the copy, and nothing from before the first group: a segment has only groups that are
//! needed, and its header states its first group and its size. A server does not use such a file again. The manifest
//! states that all groups are durable, so each byte that is lost from a copy later is found.
//!
//! **A copy that is not complete** has no manifest, and is refused.

use std::io;
use std::sync::Arc;

use crate::check::{CheckedFunctions, CheckedLog, CheckedSnapshot};
use crate::chunk::SnapshotPart;
use crate::directory::{Directory, LOCK, LOST_AND_FOUND};
use crate::disk::Disk;
use crate::error::LogError;
use crate::functions_file::{self, StoredFunctions};
use crate::group::Group;
use crate::log_end::LogEnd;
use crate::manifest::{self, Manifest};
use crate::pages::{PAGE_SIZE, Pages, padded_size};
use crate::recovery::Reading;
use crate::segment::{self, SegmentHeader};
use crate::snapshot_name;

/// A server can make a copy begin again this many times. The log is short after each snapshot.
const TRIES: usize = 20;
/// Bytes that are read or written at a time.
const WINDOW: usize = 1 << 20;

/// A copy that is complete.
#[derive(Clone, Debug)]
pub struct Copied {
    /// Its manifest.
    pub manifest: Manifest,
    /// Its snapshot, as it was read back.
    pub snapshot: CheckedSnapshot,
    /// Its log, as it was read back.
    pub log: CheckedLog,
    /// Its functions, as they were read back.
    pub functions: CheckedFunctions,
    /// Bytes of its files.
    pub bytes: u64,
}

/// The reason why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The directory cannot be read.
    #[error("{0}")]
    Source(LogError),
    /// The directory has no manifest.
    #[error("there is no data to copy: name the data directory of a server, or a backup")]
    Empty,
    /// The copy cannot be written, or not be read back.
    #[error("{0}")]
    Target(LogError),
    /// The directory of the copy has files.
    #[error("the directory contains {name}: name a new or an empty directory")]
    NotEmpty {
        /// One of them.
        name: String,
    },
    /// The server has taken snapshots all the time.
    #[error("the server takes snapshots faster than its log can be copied: try again when it has less to do")]
    Changing,
}

/// Copies a data directory into an empty one, and checks the copy. If it fails, it removes what it has written.
pub fn copy<S: Disk, T: Disk>(source: &Arc<S>, target: &Arc<T>) -> Result<Copied, CopyError> {
    let names = target.list().map_err(LogError::io("list", ".")).map_err(CopyError::Target)?;
    if let Some(name) = names.into_iter().find(|name| name != LOCK && name != LOST_AND_FOUND) {
        return Err(CopyError::NotEmpty { name });
    }
    if !target.lock().map_err(LogError::io("lock", LOCK)).map_err(CopyError::Target)? {
        return Err(CopyError::Target(LogError::Locked));
    }
    let mut was_damaged = false;
    for _ in 0..TRIES {
        let mut writer = Writer::new(target);
        let result = try_copy(source, &mut writer);
        if let Ok(Some(copied)) = result {
            return Ok(copied);
        }
        // The manifest is the last one. Without it the rest is refused.
        let removed = writer.names.iter().rev().try_for_each(|name| target.remove(name));
        let is_damaged = matches!(result, Err(CopyError::Source(LogError::Damaged(_) | LogError::ManifestDamaged)));
        // What a server writes meanwhile may look damaged, once: see "Where the log ends".
        if !is_damaged || was_damaged {
            result?;
        }
        was_damaged = is_damaged;
        removed.map_err(LogError::io("remove", "a file")).map_err(CopyError::Target)?;
    }
    Err(CopyError::Changing)
}

/// Returns `None` if the server no longer needs segments that were read, and may have used them again.
fn try_copy<S: Disk, T: Disk>(source: &Arc<S>, writer: &mut Writer<'_, T>) -> Result<Option<Copied>, CopyError> {
    let open = || Directory::open_unlocked(Arc::clone(source)).map_err(CopyError::Source);
    let directory = open()?;
    let manifest = directory.manifest().cloned().ok_or(CopyError::Empty)?;
    let snapshot = open_snapshot(&**source, &manifest);
    let mut is_written = true;
    let log = directory.read_groups(Reading::Live, |manifest, header, _, group, end| {
        if group.number < manifest.first_group {
            return Ok(());
        }
        if !group.is_end {
            end.blocks += u64::from(group.block_count);
            end.floor = group.blocks().map(|block| block.floor).fold(end.floor, u64::max);
        }
        writer.add_group(header, group).inspect_err(|_| is_written = false)
    });
    if !is_written {
        return Err(CopyError::Target(log.expect_err("a write has failed")));
    }
    let end = log.as_ref().ok().filter(|_| snapshot.is_ok());
    if !is_in_place(&open()?, &manifest, end).map_err(CopyError::Source)? {
        return Ok(None);
    }
    let (snapshot, end) = (snapshot.map_err(CopyError::Source)?, log.map_err(CopyError::Source)?);
    writer.end_segment().map_err(CopyError::Target)?;
    let functions = functions_file::read_live(source).map_err(CopyError::Source)?;
    writer.write_functions(&functions).map_err(CopyError::Target)?;
    for (name, file) in snapshot {
        copy_file(&**source, &name, &file, writer)?;
    }
    let copy = Manifest {
        durable_group: end.next_group - 1,
        durable_block: end.next_block - 1,
        durable_floor: end.floor,
        segment: writer.last_segment,
        ..manifest
    };
    writer.write_manifest(&copy).map_err(CopyError::Target)?;
    let directory = Directory::open_unlocked(Arc::clone(writer.disk)).map_err(CopyError::Target)?;
    let snapshot = directory.check_snapshot().map_err(CopyError::Target)?;
    let log = directory.check_log().map_err(CopyError::Target)?;
    let functions = directory.check_functions().map_err(CopyError::Target)?;
    Ok(Some(Copied { manifest: copy, snapshot, log, functions, bytes: writer.bytes }))
}

/// Returns true if what was read with a manifest was not used again meanwhile. Without an end, it could not be read: if
/// there is another manifest now, this may be the reason.
fn is_in_place<S: Disk>(now: &Directory<S>, manifest: &Manifest, end: Option<&LogEnd>) -> Result<bool, LogError> {
    let (Some(now_manifest), Some(end)) = (now.manifest(), end) else { return Ok(now.manifest() == Some(manifest)) };
    let is_same_log = now_manifest.gap == manifest.gap && now_manifest.first_group <= end.next_group;
    Ok(now_manifest == manifest || is_same_log && now.has_segments(&end.used)?)
}

/// Opens the files of the snapshot.
fn open_snapshot<S: Disk>(source: &S, manifest: &Manifest) -> Result<Vec<(String, S::File)>, LogError> {
    let Some(number) = manifest.snapshot else { return Ok(Vec::new()) };
    let shards = (0..manifest.shards.len()).map(|shard| SnapshotPart::Shard(shard as u16));
    let ordered = (manifest.ordered.chunk_count > 0).then_some(SnapshotPart::Ordered);
    let open = |part| {
        let name = snapshot_name::name(number, part);
        match source.open(&name) {
            Ok(file) => Ok((name, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(LogError::Incomplete { what: format!("{name} is missing") })
            }
            Err(error) => Err(LogError::io("open", name)(error)),
        }
    };
    shards.chain(ordered).map(open).collect()
}

/// Copies a file whose content does not change.
fn copy_file<S: Disk, T: Disk>(
    source: &S,
    name: &str,
    from: &S::File,
    writer: &mut Writer<'_, T>,
) -> Result<(), CopyError> {
    let read = |error| CopyError::Source(LogError::io("read", name)(error));
    let write = |error| CopyError::Target(LogError::io("write", name)(error));
    let size = source.size(from).map_err(read)? / PAGE_SIZE as u64 * PAGE_SIZE as u64;
    let to = writer.create(name).map_err(write)?;
    let mut pages = Pages::default();
    let mut offset = 0;
    while offset < size {
        pages.set_size((size - offset).min(WINDOW as u64) as usize);
        source.read_at(from, offset, pages.pages_mut()).map_err(read)?;
        writer.disk.write_at(&to, offset, pages.pages()).map_err(write)?;
        offset += pages.size() as u64;
    }
    writer.bytes += size;
    Ok(())
}

/// Writes the files of the copy.
struct Writer<'t, T: Disk> {
    disk: &'t Arc<T>,
    /// The files that were created.
    names: Vec<String>,
    bytes: u64,
    segment: Option<Segment<T::File>>,
    last_segment: u64,
}

/// The segment that is being written.
struct Segment<F> {
    header: SegmentHeader,
    file: F,
    /// Groups that are written at this offset.
    pages: Pages,
    offset: u64,
    /// Its end, which is written when the next segment begins: that one may have no groups.
    end: Option<Vec<u8>>,
}

impl<F> Segment<F> {
    /// Appends bytes, and zeros up to the end of their page.
    fn add(&mut self, bytes: &[u8]) {
        self.pages.extend(bytes);
        self.pages.padded();
        self.pages.set_size(self.pages.size().next_multiple_of(PAGE_SIZE));
    }
}

impl<'t, T: Disk> Writer<'t, T> {
    fn new(disk: &'t Arc<T>) -> Self {
        Writer { disk, names: Vec::new(), bytes: 0, segment: None, last_segment: 0 }
    }

    fn create(&mut self, name: &str) -> io::Result<T::File> {
        let file = self.disk.create(name)?;
        self.names.push(name.to_owned());
        Ok(file)
    }

    /// Appends a group. Those of one segment follow each other without a gap.
    fn add_group(&mut self, header: &SegmentHeader, group: &Group<'_>) -> Result<(), LogError> {
        if self.segment.as_ref().is_none_or(|segment| segment.header.number != header.number) {
            self.add_end();
            self.end_segment()?;
            let name = segment::name(header.number);
            let file = self.create(&name).map_err(LogError::io("create", name))?;
            let header = SegmentHeader { first_group: group.number, ..*header };
            self.segment = Some(Segment { header, file, pages: Pages::default(), offset: PAGE_SIZE as u64, end: None });
        }
        let segment = self.segment.as_mut().expect("there is one now");
        if group.is_end {
            segment.end = Some(group.bytes().to_vec());
            return Ok(());
        }
        segment.add(group.bytes());
        if segment.pages.size() >= WINDOW { self.write_groups() } else { Ok(()) }
    }

    fn add_end(&mut self) {
        if let Some(segment) = &mut self.segment
            && let Some(end) = segment.end.take()
        {
            segment.add(&end);
        }
    }

    fn write_groups(&mut self) -> Result<(), LogError> {
        let Some(Segment { header, file, pages, offset, .. }) = &mut self.segment else { return Ok(()) };
        let written = self.disk.write_at(file, *offset, pages.pages());
        written.map_err(LogError::io("write", segment::name(header.number)))?;
        *offset += pages.size() as u64;
        pages.clear();
        Ok(())
    }

    /// Writes the header of the segment, with the size that it has now.
    fn end_segment(&mut self) -> Result<(), LogError> {
        self.write_groups()?;
        let Some(Segment { header, file, mut pages, offset: size, .. }) = self.segment.take() else { return Ok(()) };
        let header = SegmentHeader { size, ..header };
        header.encode(&mut pages);
        let written = self.disk.write_at(&file, 0, pages.padded());
        written.map_err(LogError::io("write", segment::name(header.number)))?;
        self.bytes += size;
        self.last_segment = header.number;
        Ok(())
    }

    /// Writes both files of the functions, if there are any.
    fn write_functions(&mut self, functions: &StoredFunctions) -> Result<(), LogError> {
        if functions.is_empty() {
            return Ok(());
        }
        let mut pages = Pages::default();
        functions.encode(1, &mut pages);
        for name in functions_file::NAMES {
            let file = self.create(name).map_err(LogError::io("create", name))?;
            self.disk.write_at(&file, 0, pages.padded()).map_err(LogError::io("write", name))?;
            self.bytes += padded_size(pages.size() as u64);
        }
        Ok(())
    }

    /// Writes the manifest, when the names of all files are durable.
    fn write_manifest(&mut self, manifest: &Manifest) -> Result<(), LogError> {
        self.disk.sync_directory().map_err(LogError::io("flush", "the directory"))?;
        let name = manifest::NAMES[0];
        let mut pages = Pages::default();
        manifest.encode(&mut pages);
        let file = self.create(name).map_err(LogError::io("create", name))?;
        self.disk.write_at(&file, 0, pages.padded()).map_err(LogError::io("write", name))?;
        self.bytes += padded_size(pages.size() as u64);
        self.disk.sync_directory().map_err(LogError::io("flush", "the directory"))
    }
}
