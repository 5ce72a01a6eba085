//! The file of a snapshot that has the chunks of one shard, or of the ordered space: how it is written and read.
//!
//! ```text
//! snapshot-<number>-<shard>    | chunk 0 | chunk 1 | ... |       each is whole pages
//! snapshot-<number>-ordered    | chunk 0 | chunk 1 | ... |
//! ```
//!
//! A snapshot is complete when each of its files is, and when a manifest names it. The manifest states the number of
//! chunks of each file and a checksum of their checksums, so that no chunk can be missing or be of another file.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use skep_wire::native::WireError;

use crate::boundary::{Boundary, OrderedBoundary};
use crate::checksum::crc64;
use crate::chunk::{self, Chunk, SnapshotPart};
use crate::directory::Directory;
use crate::disk::Disk;
use crate::error::LogError;
use crate::manifest::SnapshotFile;
use crate::pages::{PAGE_SIZE, Pages, padded_size};
use crate::snapshot_name;

/// Writes the chunks of a part of the store into a file.
pub struct SnapshotWriter<D: Disk> {
    disk: Arc<D>,
    file: D::File,
    offset: u64,
    /// CRC-64/NVME of the chunks so far, and the checksum of the next one.
    file_state: SnapshotFile,
}

impl<D: Disk> SnapshotWriter<D> {
    /// Creates the file. Fails if it exists. The number of the snapshot is one that no earlier snapshot had, such as
    /// the generation of the next manifest. If a snapshot was given up, remove its files first
    /// ([`Directory::remove_old_snapshots`]).
    pub fn create(disk: Arc<D>, snapshot: u64, part: SnapshotPart) -> io::Result<Self> {
        let name = snapshot_name::name(snapshot, part);
        let file = disk.create(&name)?;
        Ok(SnapshotWriter { disk, file, offset: 0, file_state: SnapshotFile::default() })
    }

    /// Appends a chunk that [`ChunkWriter::finish`](crate::ChunkWriter::finish) has written. It is durable when this
    /// returns.
    pub fn write(&mut self, chunk: &Pages) -> io::Result<()> {
        self.disk.write_at(&self.file, self.offset, chunk.pages())?;
        self.offset += padded_size(chunk.size() as u64);
        let crc = Chunk::decode(chunk.bytes()).expect("a chunk that was written is valid").crc;
        self.file_state = extend(self.file_state, crc);
        Ok(())
    }

    /// Makes the name of the file durable, and returns what the manifest states about it.
    pub fn finish(self) -> io::Result<SnapshotFile> {
        self.disk.sync_directory()?;
        Ok(self.file_state)
    }
}

/// Returns the state of a file to which a chunk with this checksum is appended.
fn extend(file: SnapshotFile, crc: u64) -> SnapshotFile {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&file.chunks_crc.to_le_bytes());
    bytes[8..].copy_from_slice(&crc.to_le_bytes());
    SnapshotFile { chunk_count: file.chunk_count + 1, chunks_crc: crc64(&bytes) }
}

impl<D: Disk> Directory<D> {
    /// Reads the snapshot of a shard, if the manifest names one. Calls `apply` with each chunk, in the order of
    /// positions. Returns the boundary for the operations of the log. Several threads can read different shards.
    pub fn read_snapshot(
        &self,
        shard: u16,
        mut apply: impl FnMut(&Chunk<'_>) -> Result<(), WireError>,
    ) -> Result<Boundary, LogError> {
        let mut boundary = Boundary::default();
        let stated = self.manifest.as_ref().and_then(|manifest| manifest.shards.get(usize::from(shard)));
        if let Some(stated) = stated {
            self.read_file(SnapshotPart::Shard(shard), stated.file, |chunk| {
                chunk.steps().all(|step| boundary.push(&step)) && apply(chunk).is_ok()
            })?;
        }
        Ok(boundary)
    }

    /// Reads the snapshot of the ordered space, if the manifest names one that has it. Calls `apply` with each chunk, in
    /// the order of keys. Returns the boundary for the effects of the log.
    pub fn read_ordered_snapshot(
        &self,
        mut apply: impl FnMut(&Chunk<'_>) -> Result<(), WireError>,
    ) -> Result<OrderedBoundary, LogError> {
        let mut boundary = OrderedBoundary::default();
        if let Some(manifest) = &self.manifest
            && manifest.ordered.chunk_count > 0
        {
            self.read_file(SnapshotPart::Ordered, manifest.ordered, |chunk| {
                chunk.steps().for_each(|step| boundary.push(&step));
                apply(chunk).is_ok()
            })?;
        }
        Ok(boundary)
    }

    /// Reads a file of the snapshot. Calls `apply` with each chunk. It returns false if the chunk is damaged. Another
    /// thread reads the next chunks from the disk meanwhile.
    fn read_file(
        &self,
        part: SnapshotPart,
        expected: SnapshotFile,
        apply: impl FnMut(&Chunk<'_>) -> bool,
    ) -> Result<(), LogError> {
        let Some(snapshot) = self.manifest.as_ref().and_then(|manifest| manifest.snapshot) else { return Ok(()) };
        let name = snapshot_name::name(snapshot, part);
        let names = self.disk.list().map_err(LogError::io("list", "."))?;
        if !names.contains(&name) {
            return Err(LogError::Incomplete { what: format!("{name} is missing") });
        }
        let file = self.disk.open(&name).map_err(LogError::io("open", name.as_str()))?;
        let size = self.disk.size(&file).map_err(LogError::io("read", name.as_str()))?;
        let reader = ChunkReader { disk: &*self.disk, file, name: &name, size };
        let chunks = Chunks { snapshot, part, expected, name: &name };
        let (filled, read) = sync_channel(CHUNKS_AHEAD);
        let (spent, empty) = channel();
        for _ in 0..CHUNKS_AHEAD + 2 {
            spent.send(Pages::default()).expect("it has a receiver");
        }
        thread::scope(|scope| {
            let run = move || reader.run(expected.chunk_count, &empty, &filled);
            thread::Builder::new().spawn_scoped(scope, run).map_err(LogError::io("read", name.as_str()))?;
            // Both ends of its channels are dropped with this call, which ends the thread.
            chunks.check(read, spent, apply)
        })
    }
}

/// Chunks that are read and wait to be applied.
const CHUNKS_AHEAD: usize = 2;

/// A chunk in the pages from this offset on.
type Read = Result<(u64, Pages), LogError>;

/// The reader of a file.
struct ChunkReader<'d, D: Disk> {
    disk: &'d D,
    file: D::File,
    name: &'d str,
    size: u64,
}

impl<D: Disk> ChunkReader<'_, D> {
    /// Reads this number of chunks, up to one that fails, or until the receiver is gone.
    fn run(&self, count: u32, empty: &Receiver<Pages>, filled: &SyncSender<Read>) {
        let (mut offset, mut size) = (0, None);
        for mut pages in empty.iter().take(count as usize) {
            match self.read(offset, size, &mut pages) {
                Ok(next) => {
                    let read = pages.size() as u64;
                    if filled.send(Ok((offset, pages))).is_err() {
                        return;
                    }
                    (offset, size) = (offset + read, next);
                }
                Err(error) => {
                    // If the receiver is gone, an earlier chunk was damaged.
                    _ = filled.send(Err(error));
                    return;
                }
            }
        }
    }

    /// Reads a chunk of this size, if it is known, into the pages. Returns the size that the next one states: its first
    /// page is read along.
    fn read(&self, offset: u64, size: Option<u64>, pages: &mut Pages) -> Result<Option<u64>, LogError> {
        let size = match size {
            Some(size) => size,
            None => {
                self.read_pages(offset, PAGE_SIZE as u64, pages)?;
                let damaged = || LogError::SnapshotDamaged { name: self.name.to_owned(), offset };
                stated_size(pages.bytes()).ok_or_else(damaged)?
            }
        };
        let has_next = offset + size + PAGE_SIZE as u64 <= self.size;
        self.read_pages(offset, if has_next { size + PAGE_SIZE as u64 } else { size }, pages)?;
        let next = if has_next { stated_size(&pages.bytes()[size as usize..]) } else { None };
        pages.set_size(size as usize);
        Ok(next)
    }

    fn read_pages(&self, offset: u64, size: u64, pages: &mut Pages) -> Result<(), LogError> {
        if self.size < offset + size {
            return Err(LogError::Incomplete { what: format!("{} ends after {} bytes", self.name, self.size) });
        }
        pages.set_size(size as usize);
        self.disk.read_at(&self.file, offset, pages.pages_mut()).map_err(LogError::io("read", self.name))
    }
}

/// Returns the size of the pages of the chunk that begins with these bytes, if they are a header.
fn stated_size(bytes: &[u8]) -> Option<u64> {
    chunk::stated_size(bytes).map(|size| padded_size(size as u64))
}

/// What the chunks of a file must be.
struct Chunks<'d> {
    snapshot: u64,
    part: SnapshotPart,
    expected: SnapshotFile,
    name: &'d str,
}

impl Chunks<'_> {
    /// Checks the chunks that were read, applies them, and gives their pages back.
    #[expect(clippy::needless_pass_by_value, reason = "the reader ends when its channels are dropped")]
    fn check(
        &self,
        read: Receiver<Read>,
        spent: Sender<Pages>,
        mut apply: impl FnMut(&Chunk<'_>) -> bool,
    ) -> Result<(), LogError> {
        // The place and the mark at which the next chunk begins; no place after the end.
        let (mut found, mut next, mut mark, mut end) = (SnapshotFile::default(), Some(Vec::new()), 0, 0);
        let damaged = |offset| LogError::SnapshotDamaged { name: self.name.to_owned(), offset };
        for result in read {
            let (offset, pages) = result?;
            let chunk = Chunk::decode(pages.bytes())
                .filter(|chunk| {
                    (chunk.snapshot, chunk.part, chunk.number, Some(chunk.from))
                        == (self.snapshot, self.part, found.chunk_count, next.as_deref())
                        && chunk.steps().next().is_some_and(|step| step.mark >= mark || step.is_above_walk(self.part))
                })
                .ok_or_else(|| damaged(offset))?;
            if let Some(last) = chunk.steps().last() {
                next = Some(last.end.to_vec()).filter(|end| !end.is_empty());
                mark = last.mark;
            }
            if !apply(&chunk) {
                return Err(damaged(offset));
            }
            found = extend(found, chunk.crc);
            end = offset + pages.size() as u64;
            // The reader may have read all.
            _ = spent.send(pages);
        }
        if found == self.expected && next.is_none() { Ok(()) } else { Err(damaged(end)) }
    }
}
