//! The contents of a disk: what programs see, and what remains when power is lost.
//!
//! ```text
//! names   durable ──▶ creates, renames, removals since the last flush of the directory ──▶ visible
//! file    durable ──▶ writes, changes of the size since the last flush of the file ──────▶ visible
//! ```
//!
//! When power is lost:
//! - A prefix of the changes of names survives.
//! - Each sector of 512 bytes of each write survives or not. Of the last write of a file, the first sectors survive: it
//!   is torn. A file may become longer though the bytes that made it longer are lost: they are zeros.
//! - How likely a change survives is drawn first, so all, none and some are about as frequent.
//!
//! After a flush that fails, changes that it should have made durable are visible, but each sector is durable or not, and
//! no later flush repeats them.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::io::Errno;

pub(crate) const SECTOR_SIZE: usize = 512;

/// The parts in which the bytes of a file are kept: those of zeros take no memory.
const PART_SIZE: usize = 16 << 10;

/// The number of a file. After power was lost, no file has a number that one had before.
pub(crate) type FileNumber = u64;

/// The number of the directory.
pub(crate) const DIRECTORY: FileNumber = 1;

/// A file.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    pub(crate) mode: u32,
    pub(crate) visible: Content,
    durable: Content,
    changes: Vec<Change>,
}

/// The bytes of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub(crate) size: usize,
    /// The parts that have others than zeros, by number.
    parts: BTreeMap<usize, Arc<[u8; PART_SIZE]>>,
}

impl Content {
    /// Cuts the end off, or adds zeros.
    fn resize(&mut self, size: usize) {
        if size < self.size {
            self.parts.split_off(&size.div_ceil(PART_SIZE));
            if let Some(last) = self.parts.get_mut(&(size / PART_SIZE)) {
                Arc::make_mut(last)[size % PART_SIZE..].fill(0);
            }
        }
        self.size = size;
    }

    /// Writes bytes, after zeros if the offset is beyond the end.
    fn write(&mut self, mut offset: usize, mut bytes: &[u8]) {
        self.size = self.size.max(offset + bytes.len());
        while !bytes.is_empty() {
            let begin = offset % PART_SIZE;
            let (now, rest) = bytes.split_at(bytes.len().min(PART_SIZE - begin));
            let number = offset / PART_SIZE;
            if self.parts.contains_key(&number) || *now != [0; PART_SIZE][..now.len()] {
                let part = self.parts.entry(number).or_insert_with(|| Arc::new([0; PART_SIZE]));
                Arc::make_mut(part)[begin..begin + now.len()].copy_from_slice(now);
            }
            (offset, bytes) = (offset + now.len(), rest);
        }
    }

    /// Returns at most this many bytes from an offset on.
    pub(crate) fn read(&self, offset: usize, size: usize) -> Vec<u8> {
        let end = self.size.min(offset + size);
        let begin = end.min(offset);
        let mut bytes = vec![0; end - begin];
        for (number, part) in self.parts.range(begin / PART_SIZE..end.div_ceil(PART_SIZE)) {
            let part_begin = number * PART_SIZE;
            let (from, to) = (begin.max(part_begin), end.min(part_begin + PART_SIZE));
            bytes[from - begin..to - begin].copy_from_slice(&part[from - part_begin..to - part_begin]);
        }
        bytes
    }
}

/// A change of a file that is not durable.
#[derive(Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Size(usize),
}

impl Change {
    fn apply(&self, content: &mut Content) {
        match self {
            Change::Write { offset, bytes } => content.write(*offset, bytes),
            Change::Size(size) => content.resize(*size),
        }
    }
}

/// A change of the names that is not durable.
#[derive(Clone, Debug)]
enum NameChange {
    Create(String, FileNumber),
    Rename(String, String),
    Remove(String),
}

/// A directory and its files.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) names: BTreeMap<String, FileNumber>,
    durable_names: BTreeMap<String, FileNumber>,
    name_changes: Vec<NameChange>,
    pub(crate) files: BTreeMap<FileNumber, FileState>,
    next_number: FileNumber,
    /// Bytes that all files may have together.
    pub(crate) limit: Option<u64>,
    random: Xoshiro256PlusPlus,
}

impl Image {
    /// Returns an empty directory.
    pub(crate) fn new() -> Self {
        Image {
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            files: BTreeMap::new(),
            next_number: DIRECTORY + 1,
            limit: None,
            random: Xoshiro256PlusPlus::seed_from_u64(0),
        }
    }

    /// Returns a file. Fails for one of before power was lost.
    pub(crate) fn file(&mut self, number: FileNumber) -> Result<&mut FileState, Errno> {
        self.files.get_mut(&number).ok_or(Errno::STALE)
    }

    /// Creates an empty file. Fails if the name exists.
    pub(crate) fn create(&mut self, name: &str, mode: u32) -> Result<FileNumber, Errno> {
        if self.names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let number = self.new_number();
        self.files.insert(number, FileState { mode, ..FileState::default() });
        self.change_names(NameChange::Create(name.to_owned(), number));
        Ok(number)
    }

    /// Renames a file. A file that had the new name loses it.
    pub(crate) fn rename(&mut self, from: &str, to: &str, may_replace: bool) -> Result<(), Errno> {
        if !self.names.contains_key(from) {
            return Err(Errno::NOENT);
        }
        if !may_replace && self.names.contains_key(to) {
            return Err(Errno::EXIST);
        }
        self.change_names(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    /// Removes a name.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), Errno> {
        if !self.names.contains_key(name) {
            return Err(Errno::NOENT);
        }
        self.change_names(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    /// Writes bytes. Returns their number, which is smaller than that of `bytes` if the disk is full after them.
    pub(crate) fn write(&mut self, number: FileNumber, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let free = self.free().map(|free| free as usize);
        let file = self.file(number)?;
        let offset = offset as usize;
        let growth = (offset + bytes.len()).saturating_sub(file.visible.size);
        let written = match free {
            Some(free) if growth > free => {
                let fitting = (file.visible.size + free).saturating_sub(offset);
                fitting / SECTOR_SIZE * SECTOR_SIZE
            }
            _ => bytes.len(),
        };
        if written == 0 && !bytes.is_empty() {
            return Err(Errno::NOSPC);
        }
        file.change(Change::Write { offset, bytes: bytes[..written].to_vec() });
        Ok(written)
    }

    /// Changes the size of a file.
    pub(crate) fn resize(&mut self, number: FileNumber, size: u64) -> Result<(), Errno> {
        let free = self.free();
        let file = self.file(number)?;
        if free.is_some_and(|free| size > file.visible.size as u64 + free) {
            return Err(Errno::NOSPC);
        }
        file.change(Change::Size(size as usize));
        Ok(())
    }

    /// Makes a file durable.
    pub(crate) fn sync(&mut self, number: FileNumber) -> Result<(), Errno> {
        let file = self.file(number)?;
        for change in mem::take(&mut file.changes) {
            change.apply(&mut file.durable);
        }
        Ok(())
    }

    /// Makes the names durable.
    pub(crate) fn sync_names(&mut self) {
        self.name_changes.clear();
        self.durable_names.clone_from(&self.names);
    }

    /// Lets a write fail: each of its sectors is written or not.
    pub(crate) fn fail_write(&mut self, number: FileNumber, offset: u64, bytes: &[u8]) {
        for (offset, part) in sectors(offset as usize, bytes) {
            if self.random.random() {
                // It may have no room. The write fails in any case.
                _ = self.write(number, offset as u64, part);
            }
        }
    }

    /// Lets a flush of a file fail: each of the changed sectors becomes durable or not, and no later flush repeats them.
    pub(crate) fn fail_sync(&mut self, number: FileNumber) -> Result<(), Errno> {
        let mut random = self.random.clone();
        let file = self.file(number)?;
        file.durable = file.survivor(0.5, &mut random);
        file.changes.clear();
        self.random = random;
        Ok(())
    }

    /// Loses what is not durable, or only a part of it.
    pub(crate) fn power_loss(&mut self, seed: u64) {
        self.random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let count = self.name_changes.len();
        let survivors = if self.random.random() { self.random.random_range(0..=count) } else { 0 };
        let mut names = mem::take(&mut self.durable_names);
        for change in mem::take(&mut self.name_changes).into_iter().take(survivors) {
            apply(&mut names, change);
        }
        let likelihood = [0.0, 0.5, 0.9, 1.0][self.random.random_range(0..4)];
        let old = mem::take(&mut self.files);
        self.names.clear();
        for (name, number) in names {
            let content = old[&number].survivor(likelihood, &mut self.random);
            let file =
                FileState { mode: old[&number].mode, durable: content.clone(), visible: content, changes: Vec::new() };
            let number = self.new_number();
            self.files.insert(number, file);
            self.names.insert(name, number);
        }
        self.durable_names = self.names.clone();
    }

    /// Returns the number of bytes that files may grow.
    pub(crate) fn free(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_sub(self.used()))
    }

    /// Returns the bytes of all files.
    pub(crate) fn used(&self) -> u64 {
        self.names.values().map(|number| self.files[number].visible.size as u64).sum()
    }

    fn change_names(&mut self, change: NameChange) {
        apply(&mut self.names, change.clone());
        self.name_changes.push(change);
    }

    fn new_number(&mut self) -> FileNumber {
        self.next_number += 1;
        self.next_number - 1
    }
}

impl FileState {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.visible);
        self.changes.push(change);
    }

    /// Returns what remains of the file if each changed sector is durable with this likelihood.
    fn survivor(&self, likelihood: f64, random: &mut Xoshiro256PlusPlus) -> Content {
        let mut content = self.durable.clone();
        for (index, change) in self.changes.iter().enumerate() {
            match change {
                Change::Size(size) => {
                    if random.random_bool(likelihood) {
                        content.resize(*size);
                    }
                }
                Change::Write { offset, bytes } => {
                    let end = offset + bytes.len();
                    if end > content.size && random.random_bool(likelihood / 2.0) {
                        content.resize(end);
                    }
                    let count = sectors(*offset, bytes).count();
                    let is_torn = index + 1 == self.changes.len() && 0.0 < likelihood && likelihood < 1.0;
                    let torn_at = if is_torn { random.random_range(0..=count) } else { count };
                    for (offset, part) in sectors(*offset, bytes).take(torn_at) {
                        if is_torn || random.random_bool(likelihood) {
                            content.write(offset, part);
                        }
                    }
                }
            }
        }
        content
    }
}

fn apply(names: &mut BTreeMap<String, FileNumber>, change: NameChange) {
    match change {
        NameChange::Create(name, number) => _ = names.insert(name, number),
        NameChange::Rename(from, to) => {
            let number = names.remove(&from).expect("the file is renamed after it was created");
            names.insert(to, number);
        }
        NameChange::Remove(name) => _ = names.remove(&name),
    }
}

/// Divides a write into the parts that are in one sector each.
fn sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let first = (SECTOR_SIZE - offset % SECTOR_SIZE).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    let parts = [head].into_iter().filter(|head| !head.is_empty()).chain(rest.chunks(SECTOR_SIZE));
    parts.scan(offset, |next, part| {
        let offset = *next;
        *next += part.len();
        Some((offset, part))
    })
}
