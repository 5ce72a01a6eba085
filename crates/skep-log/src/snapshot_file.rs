//! The file of a snapshot that has the chunks of one shard: how it is written and read.
//!
//! ```text
//! snapshot-<number>-<shard>   | chunk 0 | chunk 1 | ... |       each is whole pages
//! ```
//!
//! A snapshot is complete when each of its files is, and when a manifest names it. The manifest states the number of
//! chunks of each file and a checksum of their checksums, so that no chunk can be missing or be of another file.

use std::io;
use std::sync::Arc;

use skep_wire::native::WireError;

use crate::boundary::Boundary;
use crate::checksum::crc64;
use crate::chunk::{self, Chunk};
use crate::directory::Directory;
use crate::disk::Disk;
use crate::error::LogError;
use crate::manifest::SnapshotFile;
use crate::pages::{PAGE_SIZE, Pages, padded_size};

/// Returns the name of a file.
fn name(snapshot: u64, shard: u16) -> String {
    format!("snapshot-{snapshot:016x}-{shard:04x}")
}

/// Returns the number of the snapshot that has the file with this name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let (snapshot, shard) = name.strip_prefix("snapshot-")?.split_once('-')?;
    let (snapshot, shard) = (u64::from_str_radix(snapshot, 16).ok()?, u16::from_str_radix(shard, 16).ok()?);
    (self::name(snapshot, shard) == name).then_some(snapshot)
}

/// Writes the chunks of a shard into a file.
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
    pub fn create(disk: Arc<D>, snapshot: u64, shard: u16) -> io::Result<Self> {
        let name = name(snapshot, shard);
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
        let Some((snapshot, expected)) = self
            .manifest
            .as_ref()
            .and_then(|manifest| Some((manifest.snapshot?, manifest.shards.get(usize::from(shard))?.file)))
        else {
            return Ok(boundary);
        };
        let name = name(snapshot, shard);
        let names = self.disk.list().map_err(LogError::io("list", "."))?;
        if !names.contains(&name) {
            return Err(LogError::Incomplete { what: format!("{name} is missing") });
        }
        let file = self.disk.open(&name).map_err(LogError::io("open", name.as_str()))?;
        let size = self.disk.size(&file).map_err(LogError::io("read", name.as_str()))?;
        let mut pages = Pages::default();
        let read = |offset: u64, size: usize, pages: &mut Pages| {
            pages.set_size(size.next_multiple_of(PAGE_SIZE));
            self.disk.read_at(&file, offset, pages.pages_mut()).map_err(LogError::io("read", name.as_str()))
        };
        let (mut offset, mut found, mut next) = (0, SnapshotFile::default(), Some(0));
        let damaged = |offset| LogError::SnapshotDamaged { name: name.clone(), offset, shard };
        while found.chunk_count < expected.chunk_count {
            if size < offset + PAGE_SIZE as u64 {
                return Err(LogError::Incomplete { what: format!("{name} ends after {size} bytes") });
            }
            read(offset, PAGE_SIZE, &mut pages)?;
            let chunk_size = chunk::stated_size(pages.bytes()).ok_or_else(|| damaged(offset))?;
            let padded = padded_size(chunk_size as u64);
            if size - offset < padded {
                return Err(LogError::Incomplete { what: format!("{name} ends after {size} bytes") });
            }
            if padded > PAGE_SIZE as u64 {
                read(offset, chunk_size, &mut pages)?;
            }
            let chunk = Chunk::decode(pages.bytes())
                .filter(|chunk| {
                    (chunk.snapshot, chunk.shard, chunk.number, Some(chunk.from))
                        == (snapshot, shard, found.chunk_count, next)
                        && chunk.steps().next().is_some_and(|step| step.block >= boundary.last_block())
                })
                .ok_or_else(|| damaged(offset))?;
            for step in chunk.steps() {
                next = step.to.checked_add(1);
                boundary.push(step);
            }
            apply(&chunk).map_err(|_| damaged(offset))?;
            found = extend(found, chunk.crc);
            offset += padded;
        }
        if found == expected && next.is_none() { Ok(boundary) } else { Err(damaged(offset)) }
    }
}
