//! Prepares and recycles the files of the log.
//!
//! A segment is prepared ahead, on a thread that may wait for the disk:
//! 1. A file that the log no longer needs is renamed. If there is none, a file is created and filled with zeros.
//! 2. The header is written, with the new number, a new uid and no first group.
//! 3. The directory is flushed.
//!
//! So a disk that is full is noticed here, one segment ahead, and not when a group is written.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::disk::Disk;
use crate::group_writer::Write;
use crate::pages::{PAGE_SIZE, Page, Pages};
use crate::segment::{self, SegmentHeader, SegmentKind};

/// Bytes of a segment by default.
pub const SEGMENT_SIZE: u64 = 256 << 20;
/// Smallest segment: its header, one group, its end.
pub const SEGMENT_SIZE_MIN: u64 = 3 * PAGE_SIZE as u64;
/// Files that are kept to be used again.
pub(crate) const SPARES_MAX: usize = 2;
/// Zeros that are written at a time.
const ZEROS: usize = (1 << 20) / PAGE_SIZE;

/// The files of the log.
pub struct Segments<D: Disk> {
    disk: Arc<D>,
    size: u64,
    /// Identity of the server: each header states it.
    server_id: [u8; 16],
    next_number: u64,
    files: BTreeMap<u64, Arc<D::File>>,
    spares: Vec<u64>,
}

impl<D: Disk> Segments<D> {
    /// Expects spare files of this size.
    pub(crate) fn new(disk: Arc<D>, size: u64, server_id: [u8; 16], next_number: u64, spares: Vec<u64>) -> Self {
        assert!(
            size >= SEGMENT_SIZE_MIN && size.is_multiple_of(PAGE_SIZE as u64),
            "a segment has at least three pages"
        );
        Segments { disk, size, server_id, next_number, files: BTreeMap::new(), spares }
    }

    /// Prepares a segment, whose random number is `uid`. Give it to [`GroupWriter`](crate::GroupWriter). It takes some
    /// milliseconds, or much longer if a file of 256 MiB has to be filled. After an error it can be called again.
    pub fn prepare(&mut self, uid: u64) -> io::Result<SegmentHeader> {
        let number = self.next_number;
        // Each attempt has another number, so no attempt depends on the state of another.
        self.next_number += 1;
        let name = segment::name(number);
        let Segments { size, server_id, .. } = *self;
        let header = SegmentHeader { kind: SegmentKind::Continued, number, uid, size, first_group: 0, server_id };
        let file = match self.spares.pop() {
            Some(spare) => self.rename(spare, &name),
            None => self.create(&name),
        };
        let file = file.and_then(|file| {
            self.write_header(&file, &header)?;
            self.disk.sync_directory()?;
            Ok(file)
        });
        match file {
            Ok(file) => {
                self.files.insert(number, Arc::new(file));
                Ok(header)
            }
            Err(error) => {
                // The bytes of a file that is not complete are given back. If this fails too, the next recovery removes
                // it.
                _ = self.disk.remove(&name);
                Err(error)
            }
        }
    }

    /// Opens a segment of the log again, if it has the size of the others. Returns its header.
    pub(crate) fn reopen(&mut self, number: u64) -> io::Result<Option<SegmentHeader>> {
        let file = self.disk.open(&segment::name(number))?;
        let mut page = Pages::default();
        page.set_size(PAGE_SIZE);
        self.disk.read_at(&file, 0, page.pages_mut())?;
        let header = SegmentHeader::decode(page.bytes());
        let header = header.filter(|header| header.size == self.size && header.number == number);
        if header.is_some() {
            self.files.insert(number, Arc::new(file));
        }
        Ok(header)
    }

    fn rename(&mut self, spare: u64, name: &str) -> io::Result<D::File> {
        self.disk.rename(&segment::name(spare), name)?;
        self.files.remove(&spare);
        let file = self.disk.open(name)?;
        // A failed write may have left bytes that are not durable. They must not appear over later ones.
        self.disk.sync(&file)?;
        Ok(file)
    }

    fn create(&self, name: &str) -> io::Result<D::File> {
        let file = self.disk.create(name)?;
        let zeros = vec![Page::ZERO; ZEROS.min(self.size as usize / PAGE_SIZE)];
        let mut offset = 0;
        while offset < self.size {
            let count = zeros.len().min(((self.size - offset) / PAGE_SIZE as u64) as usize);
            self.disk.write_at(&file, offset, &zeros[..count])?;
            offset += (count * PAGE_SIZE) as u64;
        }
        Ok(file)
    }

    /// Writes the header of a segment.
    pub(crate) fn write_header(&self, file: &D::File, header: &SegmentHeader) -> io::Result<()> {
        let mut pages = Pages::default();
        header.encode(&mut pages);
        self.disk.write_at(file, 0, pages.padded())
    }

    /// Returns the file of a segment that was prepared and not recycled.
    ///
    /// # Panics
    /// If there is no such segment.
    pub fn file(&self, number: u64) -> Arc<D::File> {
        Arc::clone(&self.files[&number])
    }

    /// Makes a write of the log, and waits until it is durable.
    pub fn write(&self, write: &Write) -> io::Result<()> {
        self.disk.write_at(&self.files[&write.segment], write.offset, write.pages())
    }

    /// Takes back a segment that the log no longer needs, as [`GroupWriter::trim`](crate::GroupWriter::trim) returns
    /// it. Keeps two such files, and removes the others.
    pub fn recycle(&mut self, number: u64) -> io::Result<()> {
        let name = segment::name(number);
        let size = match self.files.get(&number) {
            Some(file) => self.disk.size(file)?,
            None => self.disk.size(&self.disk.open(&name)?)?,
        };
        if size == self.size && self.spares.len() < SPARES_MAX {
            self.spares.push(number);
            return Ok(());
        }
        self.files.remove(&number);
        self.disk.remove(&name)
    }
}
