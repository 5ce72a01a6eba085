//! A disk in memory that loses at a crash what a real one may lose. It is for tests.
//!
//! ```text
//! file       durable bytes  +  writes that are not durable, in their order
//! directory  durable names  +  changes of names that are not durable, in their order
//! ```
//!
//! - **Crash** ([`SimulatedDisk::crash`]): of the writes that are not durable, any subset of the sectors of 512 bytes
//!   survives; of the changes of names, the first ones survive, as in a file system with a journal. All open files are
//!   lost.
//! - **Kill** ([`SimulatedDisk::kill`]): the process ends. What it wrote remains, and is not more durable than before.
//! - **Faults** ([`SimulatedDisk::fail_at`]): a call fails with an error. A write that fails may have written any
//!   sectors, until a later one has written them.
//! - **Full** ([`SimulatedDisk::limit`]): a write that would exceed a number of bytes fails.
//! - **Lies** ([`SimulatedDisk::lie`]): the disk reports writes and flushes as durable that are not.
//! - **Writes in flight** ([`SimulatedDisk::begin_write`]): a crash may come before several of them have ended.
//!
//! Each process has its own handle. Handles from before a crash or kill fail.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use zerocopy::IntoBytes;

use crate::disk::Disk;
use crate::pages::Page;

/// Bytes that survive together.
const SECTOR_SIZE: usize = 512;

/// The handle of one process on a disk in memory.
#[derive(Debug)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    life: u64,
}

/// A file that one process has opened.
#[derive(Clone, Debug)]
pub struct SimulatedFile {
    id: usize,
}

/// A write that has begun.
#[derive(Debug)]
#[must_use = "a write becomes durable only by `end_write`"]
pub struct WriteInFlight {
    file: usize,
    number: u64,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<FileState>,
    /// Durable names.
    durable: BTreeMap<String, usize>,
    /// Names that a process sees.
    names: BTreeMap<String, usize>,
    /// Changes of names since the directory was flushed: all names after each.
    changes: Vec<BTreeMap<String, usize>>,
    life: u64,
    is_locked: bool,
    calls: u64,
    fault: Option<(u64, io::ErrorKind)>,
    /// Bytes of all files at most.
    limit: Option<u64>,
    /// One of this number of writes and flushes is not made durable.
    lies: Option<u64>,
    writes: u64,
    random: u64,
}

#[derive(Clone, Debug, Default)]
struct FileState {
    durable: Vec<u8>,
    /// Number, offset and bytes of each write that is not durable.
    pending: Vec<(u64, usize, Vec<u8>)>,
}

impl FileState {
    /// Returns the bytes that a process reads.
    fn content(&self) -> Vec<u8> {
        let mut content = self.durable.clone();
        for (_, offset, bytes) in &self.pending {
            overwrite(&mut content, *offset, bytes);
        }
        content
    }

    fn size(&self) -> usize {
        self.pending.iter().map(|(_, offset, bytes)| offset + bytes.len()).fold(self.durable.len(), usize::max)
    }
}

fn overwrite(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if content.len() < offset + bytes.len() {
        content.resize(offset + bytes.len(), 0);
    }
    content[offset..][..bytes.len()].copy_from_slice(bytes);
}

impl State {
    /// Returns a random number (splitmix64).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Chooses sectors of all writes that are not durable, and forgets the others.
    fn tear(&mut self, file: usize) {
        let pending = std::mem::take(&mut self.files[file].pending);
        for (_, offset, bytes) in pending {
            let style = self.random() % 4;
            let first = self.random() as usize % (bytes.len() / SECTOR_SIZE + 1);
            for (sector, bytes) in bytes.chunks(SECTOR_SIZE).enumerate() {
                let survives = match style {
                    0 => false,
                    1 => true,
                    2 => sector < first,
                    _ => self.random().is_multiple_of(2),
                };
                if survives {
                    overwrite(&mut self.files[file].durable, offset + sector * SECTOR_SIZE, bytes);
                }
            }
        }
    }

    fn end_process(&mut self) {
        self.life += 1;
        self.is_locked = false;
        self.fault = None;
    }

    fn change_names(&mut self, change: impl FnOnce(&mut BTreeMap<String, usize>)) {
        change(&mut self.names);
        self.changes.push(self.names.clone());
    }

    /// Returns true if this write or flush is a lie.
    fn lies(&mut self) -> bool {
        match self.lies {
            Some(one_of) => self.random().is_multiple_of(one_of),
            None => false,
        }
    }

    /// Returns true if there is no room for this file with this size.
    fn exceeds_limit(&self, file: usize, size: usize) -> bool {
        let Some(limit) = self.limit.filter(|_| size > self.files[file].size()) else { return false };
        let others = self.names.values().filter(|id| **id != file).map(|id| self.files[*id].size());
        (others.sum::<usize>() + size) as u64 > limit
    }

    fn id(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl SimulatedDisk {
    /// Returns an empty disk. The seed decides what survives crashes.
    pub fn new(seed: u64) -> Self {
        let state = State { random: seed, ..State::default() };
        SimulatedDisk { state: Arc::new(Mutex::new(state)), life: 0 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }

    /// Begins a call: fails if the process has ended, or if it is the one that is to fail.
    fn call(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        if state.life != self.life {
            return Err(io::Error::other("the process has ended"));
        }
        state.calls += 1;
        match state.fault {
            Some((number, kind)) if number == state.calls => Err(kind.into()),
            _ => Ok(state),
        }
    }

    /// Ends all processes and cuts the power. Returns the handle of the next process.
    #[must_use]
    pub fn crash(&self) -> SimulatedDisk {
        let mut state = self.state();
        state.end_process();
        for file in 0..state.files.len() {
            state.tear(file);
        }
        let changes = std::mem::take(&mut state.changes);
        let survivors = state.random() as usize % (changes.len() + 1);
        if survivors > 0 {
            state.durable = changes[survivors - 1].clone();
        }
        state.names = state.durable.clone();
        SimulatedDisk { state: Arc::clone(&self.state), life: state.life }
    }

    /// Ends all processes. Returns the handle of the next one.
    #[must_use]
    pub fn kill(&self) -> SimulatedDisk {
        let mut state = self.state();
        state.end_process();
        SimulatedDisk { state: Arc::clone(&self.state), life: state.life }
    }

    /// Returns the handle of another process that runs at the same time.
    #[must_use]
    pub fn other_process(&self) -> SimulatedDisk {
        SimulatedDisk { state: Arc::clone(&self.state), life: self.life }
    }

    /// Lets the call with this number fail, counted from now on, beginning with 1, until the process ends.
    pub fn fail_at(&self, number: u64, kind: io::ErrorKind) {
        let mut state = self.state();
        state.fault = Some((state.calls + number, kind));
    }

    /// From now on, all files that have a name have room for this many bytes. A write that needs more fails.
    pub fn limit(&self, bytes: u64) {
        self.state().limit = Some(bytes);
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// From now on, reports one of this number of writes and flushes as durable although it is not; none if `None`.
    pub fn lie(&self, one_of: Option<u64>) {
        self.state().lies = one_of;
    }

    /// Begins a write. It can be read, but becomes durable only by [`end_write`](Self::end_write).
    pub fn begin_write(&self, file: &SimulatedFile, offset: u64, pages: &[Page]) -> io::Result<WriteInFlight> {
        let mut state = match self.call() {
            Ok(state) => state,
            Err(error) => {
                let mut state = self.state();
                if state.life == self.life {
                    // What a failed write has written may become durable at any time, or not.
                    state.writes += 1;
                    let number = state.writes;
                    state.files[file.id].pending.push((number, offset as usize, pages.as_bytes().to_vec()));
                }
                return Err(error);
            }
        };
        if state.exceeds_limit(file.id, offset as usize + size_of_val(pages)) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.writes += 1;
        let number = state.writes;
        state.files[file.id].pending.push((number, offset as usize, pages.as_bytes().to_vec()));
        Ok(WriteInFlight { file: file.id, number })
    }

    /// Ends a write: it is durable.
    pub fn end_write(&self, write: &WriteInFlight) {
        let mut state = self.state();
        if state.life != self.life || state.lies() {
            return;
        }
        let file = &mut state.files[write.file];
        if let Some(position) = file.pending.iter().position(|(number, ..)| *number == write.number) {
            let (_, offset, bytes) = file.pending.remove(position);
            overwrite(&mut file.durable, offset, &bytes);
            // What an earlier write has left there, one that failed, does not return.
            file.pending[..position].iter_mut().for_each(|(_, start, earlier)| {
                let (from, to) = (offset.max(*start), (offset + bytes.len()).min(*start + earlier.len()));
                if from < to {
                    earlier[from - *start..to - *start].copy_from_slice(&bytes[from - offset..to - offset]);
                }
            });
        }
    }

    /// Returns the bytes of a file.
    pub fn content(&self, name: &str) -> io::Result<Vec<u8>> {
        let state = self.state();
        Ok(state.files[state.id(name)?].content())
    }

    /// Replaces the bytes of a file, or creates it. They are durable.
    pub fn set_content(&self, name: &str, content: Vec<u8>) {
        let mut state = self.state();
        let id = state.files.len();
        state.files.push(FileState { durable: content, pending: Vec::new() });
        state.names.insert(name.to_owned(), id);
        state.durable = state.names.clone();
        state.changes.clear();
    }
}

impl Disk for SimulatedDisk {
    type File = SimulatedFile;

    fn lock(&self) -> io::Result<bool> {
        let mut state = self.call()?;
        if state.is_locked {
            return Ok(false);
        }
        state.is_locked = true;
        if !state.names.contains_key("lock") {
            let id = state.files.len();
            state.files.push(FileState::default());
            state.change_names(|names| _ = names.insert("lock".into(), id));
        }
        Ok(true)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.call()?.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<SimulatedFile> {
        let mut state = self.call()?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = state.files.len();
        state.files.push(FileState::default());
        state.change_names(|names| _ = names.insert(name.into(), id));
        Ok(SimulatedFile { id })
    }

    fn open(&self, name: &str) -> io::Result<SimulatedFile> {
        Ok(SimulatedFile { id: self.call()?.id(name)? })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.call()?;
        let id = state.id(from)?;
        if state.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.change_names(|names| {
            names.remove(from);
            names.insert(to.into(), id);
        });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.call()?;
        state.id(name)?;
        state.change_names(|names| _ = names.remove(name));
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.call()?;
        if !state.lies() {
            state.durable = state.names.clone();
            state.changes.clear();
        }
        Ok(())
    }

    fn sync(&self, file: &SimulatedFile) -> io::Result<()> {
        let mut state = self.call()?;
        if !state.lies() {
            let file = &mut state.files[file.id];
            file.durable = file.content();
            file.pending.clear();
        }
        Ok(())
    }

    fn size(&self, file: &SimulatedFile) -> io::Result<u64> {
        Ok(self.call()?.files[file.id].size() as u64)
    }

    fn read_at(&self, file: &SimulatedFile, offset: u64, pages: &mut [Page]) -> io::Result<()> {
        let state = self.call()?;
        let file = &state.files[file.id];
        let bytes = pages.as_mut_bytes();
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if end > file.size() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.fill(0);
        let pieces =
            std::iter::once((0, &file.durable)).chain(file.pending.iter().map(|(_, offset, bytes)| (*offset, bytes)));
        for (offset, piece) in pieces {
            let (from, to) = (start.max(offset), end.min(offset + piece.len()));
            if from < to {
                bytes[from - start..to - start].copy_from_slice(&piece[from - offset..to - offset]);
            }
        }
        Ok(())
    }

    fn write_at(&self, file: &SimulatedFile, offset: u64, pages: &[Page]) -> io::Result<()> {
        let write = self.begin_write(file, offset, pages)?;
        self.end_write(&write);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::PAGE_SIZE;

    #[test]
    fn a_write_that_failed_does_not_return_where_a_later_one_is_durable() {
        let page = |byte| {
            let mut page = Page::ZERO;
            page.as_mut_bytes().fill(byte);
            page
        };
        let mut survived = 0;
        for seed in 0..100 {
            let disk = SimulatedDisk::new(seed);
            let file = disk.create("file").unwrap();
            disk.write_at(&file, 0, &[page(1); 3]).unwrap();
            disk.sync_directory().unwrap();
            disk.fail_at(1, io::ErrorKind::Other);
            disk.write_at(&file, 0, &[page(2); 3]).unwrap_err();
            disk.write_at(&file, PAGE_SIZE as u64, &[page(3); 1]).unwrap();
            let content = disk.crash().content("file").unwrap();
            assert_eq!(content[PAGE_SIZE..2 * PAGE_SIZE], [3; PAGE_SIZE], "seed {seed}");
            survived += usize::from(content[..PAGE_SIZE].contains(&2));
        }
        assert!(survived > 20, "{survived}");
    }
}
