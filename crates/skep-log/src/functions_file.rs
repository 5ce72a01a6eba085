//! The modules of functions that users have loaded: their sources, and the numbers of their functions.
//!
//! ```text
//! 0       8     16        18  20     24           32           36             40
//! | magic | crc | version | 0 | size | generation | name count | module count | name | ... | module | ... | zeros to 4096 |
//!   8 B     u64   u16           u32    u64          u32          u32
//!
//! name    0      1
//!         | size | bytes |
//!           u8
//!
//! module  0          4             8           9       10  12
//!         | revision | source size | name size | flags | 0 | name | source |
//!           u32        u32           u8          u8
//! ```
//!
//! - *crc*: CRC-64/NVME of all bytes after it, up to the size.
//! - *generation*: grows with each write. There are two files, `functions.a` and `functions.b`.
//! - *name*: of a function, with its module: `limits.take`. The first name has the number 1. A name keeps its number.
//! - *revision*: number of the load that has brought this source, from 1. An operation in the log names its function by
//!   the number of the name and the revision.
//! - *flags*: 1 if the source is the current one of its module; the others are needed by the log.
//!
//! **How it is written.** Each generation is written to both files:
//! 1. Overwrite the file that has not the newest generation; the first time, create `functions.a`.
//! 2. When this is durable, overwrite the other one; the first time, create `functions.b`.
//! 3. When this is durable, the functions may be used: blocks that name them may be written.
//!
//! **Why the newest functions are read.** From the first write on, one file is always valid: step 2 begins when the file of
//! step 1 is durable. Step 3 begins when both files have the generation. So if one of them is not valid later, there are two cases: a
//! write was interrupted, and its functions were not used; or the file is damaged, and the other one has the same functions.
//!
//! | files | what has happened | functions |
//! |---|---|---|
//! | none | nothing was written | none |
//! | `a` valid, of generation 1 | a crash during the first write, after step 1 | those of `a` |
//! | `a` not valid, without a greater generation | a crash during the first step of all: nothing was used | none |
//! | one or both valid | see above | those of the greater generation |
//! | both not valid; `a` alone, with a greater generation; `b` alone | damage, or a copy in part | refused |
//!
//! **What a start repairs.** After a crash between the steps, one file may have the new generation alone. So a start makes it
//! durable, and writes the other one, before a block names its functions.
//!
//! **A write that fails** leaves the newest file valid. Its functions may be on disk nevertheless, and a later start may find
//! them. If the disk is full this is only so for the first write of all: before step 1, the newest file gets the bytes that
//! step 2 needs, after those that it has.

use std::sync::Arc;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc64;
use crate::disk::Disk;
use crate::error::{LogError, is_full};
use crate::pages::{PAGE_SIZE, Pages, padded_size};
use crate::{NUMBER_END, VERSION, is_readable, manifest};

const MAGIC: [u8; 8] = *b"SKEPfun\0";
/// The names of the two files.
pub(crate) const NAMES: [&str; 2] = ["functions.a", "functions.b"];
/// The first version that has such files.
const VERSION_MIN: u16 = 4;

/// Most names of functions.
pub const FUNCTION_NAMES_MAX: usize = 65_535;
/// Most bytes of the name of a function or module.
pub const FUNCTION_NAME_SIZE_MAX: usize = u8::MAX as usize;
/// Most bytes of the source of a module.
pub const FUNCTION_SOURCE_SIZE_MAX: usize = 64 << 10;
/// Most bytes of a file: of all names and sources.
pub const FUNCTIONS_SIZE_MAX: usize = 64 << 20;

/// A server can make a read of its files begin again this many times.
const TRIES: usize = 10;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    crc: U64,
    version: U16,
    zeros: [u8; 2],
    size: U32,
    generation: U64,
    name_count: U32,
    module_count: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ModuleHeader {
    revision: U32,
    source_size: U32,
    name_size: u8,
    flags: u8,
    zeros: [u8; 2],
}

const HEADER_SIZE: usize = size_of::<Header>();
const MODULE_HEADER_SIZE: usize = size_of::<ModuleHeader>();
const CRC_END: usize = 16;
/// Fewest bytes of a name.
const NAME_SIZE_MIN: usize = 2;
const IS_CURRENT: u8 = 1;
const _: () = assert!(HEADER_SIZE == 40 && MODULE_HEADER_SIZE == 12);
const _: () = assert!(FUNCTIONS_SIZE_MAX <= u32::MAX as usize && FUNCTIONS_SIZE_MAX.is_multiple_of(PAGE_SIZE));

/// The modules of functions of a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredFunctions {
    /// The names of functions, with their modules. The number of a name is its index and 1.
    pub names: Vec<String>,
    /// The sources: the current one of each module, and earlier ones that the log may name.
    pub modules: Vec<StoredModule>,
}

/// The source of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredModule {
    /// The name of the module.
    pub name: String,
    /// The number of the load that has brought this source, from 1.
    pub revision: u32,
    /// True if later calls use this source.
    pub is_current: bool,
    /// The text that was loaded.
    pub source: String,
}

/// The reason why a file of functions cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionsFault {
    /// It is not such a file, or it is damaged.
    Invalid,
    /// It has a later version than [`VERSION`].
    Newer(u16),
}

impl StoredFunctions {
    /// Returns the name of a function by its number.
    pub fn name(&self, id: u32) -> Option<&str> {
        let index = (id as usize).checked_sub(1)?;
        self.names.get(index).map(String::as_str)
    }

    /// Returns true if nothing was ever loaded.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.modules.is_empty()
    }

    /// Returns the bytes that a file with them has.
    pub fn size(&self) -> usize {
        let names = self.names.iter().map(|name| 1 + name.len());
        let modules = self.modules.iter().map(|module| MODULE_HEADER_SIZE + module.name.len() + module.source.len());
        HEADER_SIZE + names.sum::<usize>() + modules.sum::<usize>()
    }

    /// Returns an error that names a limit if they exceed it: such functions cannot be written.
    pub fn check_limits(&self) -> Result<(), LogError> {
        let exceeded = |limit: String| Err(LogError::FunctionsExceed { limit });
        let is_name = |name: &String| (1..=FUNCTION_NAME_SIZE_MAX).contains(&name.len());
        if self.names.len() > FUNCTION_NAMES_MAX {
            return exceeded(format!("at most {FUNCTION_NAMES_MAX} names"));
        }
        if !self.names.iter().chain(self.modules.iter().map(|module| &module.name)).all(is_name) {
            return exceeded(format!("names of 1 to {FUNCTION_NAME_SIZE_MAX} bytes"));
        }
        if self.modules.iter().any(|module| module.source.len() > FUNCTION_SOURCE_SIZE_MAX) {
            return exceeded(format!("sources of at most {FUNCTION_SOURCE_SIZE_MAX} bytes"));
        }
        if self.size() > FUNCTIONS_SIZE_MAX {
            return exceeded(format!("at most {FUNCTIONS_SIZE_MAX} bytes, with the sources that were replaced"));
        }
        Ok(())
    }

    /// Writes a file of this generation into an empty buffer.
    ///
    /// # Panics
    /// If a limit is exceeded, or a revision is 0.
    pub fn encode(&self, generation: u64, pages: &mut Pages) {
        if let Err(error) = self.check_limits() {
            panic!("{error}");
        }
        let header = Header {
            magic: MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            zeros: [0; 2],
            size: (self.size() as u32).into(),
            generation: generation.into(),
            name_count: (self.names.len() as u32).into(),
            module_count: (self.modules.len() as u32).into(),
        };
        pages.extend(header.as_bytes());
        for name in &self.names {
            pages.extend(&[name.len() as u8]);
            pages.extend(name.as_bytes());
        }
        for StoredModule { name, revision, is_current, source } in &self.modules {
            assert!(*revision > 0, "revisions begin at 1");
            let header = ModuleHeader {
                revision: (*revision).into(),
                source_size: (source.len() as u32).into(),
                name_size: name.len() as u8,
                flags: if *is_current { IS_CURRENT } else { 0 },
                zeros: [0; 2],
            };
            pages.extend(header.as_bytes());
            pages.extend(name.as_bytes());
            pages.extend(source.as_bytes());
        }
        set_checksum(pages.bytes_mut());
        pages.padded();
    }

    /// Decodes a file. Returns its functions and its generation.
    ///
    /// What it allocates is in proportion to the bytes of the file, also if the counts in it are wrong.
    pub fn decode(bytes: &[u8]) -> Result<(Self, u64), FunctionsFault> {
        let (header, _) = Header::ref_from_prefix(bytes).map_err(|_| FunctionsFault::Invalid)?;
        let bytes = bytes.get(..header.size.get() as usize).ok_or(FunctionsFault::Invalid)?;
        if header.magic != MAGIC || bytes.len() < HEADER_SIZE || header.crc.get() != crc64(&bytes[CRC_END..]) {
            return Err(FunctionsFault::Invalid);
        }
        if header.version.get() > VERSION {
            return Err(FunctionsFault::Newer(header.version.get()));
        }
        let generation = header.generation.get();
        let is_version = is_readable(header.version.get()) && header.version.get() >= VERSION_MIN;
        let is_valid = is_version && header.zeros == [0; 2] && (1..NUMBER_END).contains(&generation);
        let functions = if is_valid { decode_functions(header, &bytes[HEADER_SIZE..]) } else { None };
        functions.map(|functions| (functions, generation)).ok_or(FunctionsFault::Invalid)
    }
}

/// Decodes the bytes after the header.
fn decode_functions(header: &Header, mut rest: &[u8]) -> Option<StoredFunctions> {
    let (name_count, module_count) = (header.name_count.get() as usize, header.module_count.get() as usize);
    if name_count > FUNCTION_NAMES_MAX || name_count > rest.len() / NAME_SIZE_MIN {
        return None;
    }
    let mut names = Vec::with_capacity(name_count);
    for _ in 0..name_count {
        let (size, after) = rest.split_first()?;
        rest = after;
        names.push(take_text(&mut rest, usize::from(*size)).filter(|name| !name.is_empty())?);
    }
    if module_count > rest.len() / MODULE_HEADER_SIZE {
        return None;
    }
    let mut modules = Vec::with_capacity(module_count);
    for _ in 0..module_count {
        let (header, after) = ModuleHeader::ref_from_prefix(rest).ok()?;
        rest = after;
        let (revision, source_size) = (header.revision.get(), header.source_size.get() as usize);
        if revision == 0 || source_size > FUNCTION_SOURCE_SIZE_MAX || header.flags & !IS_CURRENT != 0 {
            return None;
        }
        let name = take_text(&mut rest, usize::from(header.name_size)).filter(|name| !name.is_empty())?;
        let source = take_text(&mut rest, source_size).filter(|_| header.zeros == [0; 2])?;
        modules.push(StoredModule { name, revision, is_current: header.flags == IS_CURRENT, source });
    }
    let functions = StoredFunctions { names, modules };
    (rest.is_empty() && functions.size() <= FUNCTIONS_SIZE_MAX).then_some(functions)
}

/// Takes UTF-8 text off the front of some bytes.
fn take_text(rest: &mut &[u8], size: usize) -> Option<String> {
    let (text, after) = rest.split_at_checked(size)?;
    *rest = after;
    Some(str::from_utf8(text).ok()?.to_owned())
}

/// Writes a valid checksum into a file.
pub(crate) fn set_checksum(bytes: &mut [u8]) {
    let Ok((header, _)) = Header::ref_from_prefix(bytes) else { return };
    let size = (header.size.get() as usize).clamp(HEADER_SIZE, bytes.len());
    let crc = crc64(&bytes[CRC_END..size]);
    bytes[8..CRC_END].copy_from_slice(&crc.to_le_bytes());
}

/// What is read of one file.
enum State {
    Missing,
    /// With the generation in its header, or 0 if it has none.
    Invalid(u64),
    Valid(StoredFunctions, u64),
}

impl State {
    /// Returns the generation of a valid file, or 0.
    fn generation(&self) -> u64 {
        if let State::Valid(_, generation) = self { *generation } else { 0 }
    }

    fn functions(self) -> Option<StoredFunctions> {
        if let State::Valid(functions, _) = self { Some(functions) } else { None }
    }
}

/// The two files of the functions of a data directory.
pub struct FunctionsFile<D: Disk> {
    disk: Arc<D>,
    /// The file that has the newest generation; the first of both if both have it.
    newest: Option<usize>,
    /// Its generation; 0 without one.
    generation: u64,
    /// The other file has the same generation.
    has_copy: bool,
    /// The newest file is known to be durable.
    is_durable: bool,
    damaged: Option<&'static str>,
}

/// Reads the functions of a directory while a server may write them.
///
/// *Why they are not older than those that were used when it began:* a file that had their generation then has it, or a
/// later one, or is not valid while it is overwritten. If both were overwritten while they were read, they are read again. A
/// name that appeared meanwhile may have changed the meaning of the other file, so this is read again, too.
pub(crate) fn read_live<D: Disk>(disk: &Arc<D>) -> Result<StoredFunctions, LogError> {
    let mut names = present(&**disk)?;
    let mut tries = 1;
    loop {
        let read = FunctionsFile::read(disk, names);
        let names_after = present(&**disk)?;
        if names_after == names && (read.is_ok() || tries == TRIES) {
            return read.map(|(functions, _)| functions);
        }
        tries = (tries + 1).min(TRIES);
        names = names_after;
    }
}

/// Returns which of the two files exist.
fn present<D: Disk>(disk: &D) -> Result<[bool; 2], LogError> {
    let names = disk.list().map_err(LogError::io("list", "."))?;
    Ok(NAMES.map(|name| names.iter().any(|other| other == name)))
}

fn read_file<D: Disk>(disk: &D, name: &str) -> Result<State, LogError> {
    let file = disk.open(name).map_err(LogError::io("open", name))?;
    let size = disk.size(&file).map_err(LogError::io("read", name))?;
    let mut pages = Pages::default();
    pages.set_size((size.min(FUNCTIONS_SIZE_MAX as u64) as usize) / PAGE_SIZE * PAGE_SIZE);
    disk.read_at(&file, 0, pages.pages_mut()).map_err(LogError::io("read", name))?;
    match StoredFunctions::decode(pages.bytes()) {
        Ok((functions, generation)) => Ok(State::Valid(functions, generation)),
        Err(FunctionsFault::Newer(found)) => Err(LogError::Newer { found, supported: VERSION }),
        Err(FunctionsFault::Invalid) => {
            let header = Header::ref_from_prefix(pages.bytes()).ok().filter(|(header, _)| header.magic == MAGIC);
            Ok(State::Invalid(header.map_or(0, |(header, _)| header.generation.get())))
        }
    }
}

impl<D: Disk> FunctionsFile<D> {
    /// Reads the files. Changes nothing.
    pub(crate) fn open(disk: &Arc<D>) -> Result<(StoredFunctions, Self), LogError> {
        Self::read(disk, present(&**disk)?)
    }

    /// Reads those of the files that exist.
    fn read(disk: &Arc<D>, exists: [bool; 2]) -> Result<(StoredFunctions, Self), LogError> {
        let state = |slot: usize| if exists[slot] { read_file(&**disk, NAMES[slot]) } else { Ok(State::Missing) };
        let states = [state(0)?, state(1)?];
        match &states {
            [State::Missing | State::Invalid(..=1) | State::Valid(_, 1), State::Missing] => {}
            [State::Missing, _] => return Err(missing(0)),
            [State::Valid(..), State::Missing] => return Err(missing(1)),
            [State::Invalid(_), State::Missing | State::Invalid(_)] => return Err(LogError::FunctionsDamaged),
            [State::Valid(..), _] | [_, State::Valid(..)] => {}
        }
        let damaged = NAMES.into_iter().zip(&states).find(|(_, state)| matches!(state, State::Invalid(_)));
        let damaged = damaged.map(|(name, _)| name);
        let [first, second] = [states[0].generation(), states[1].generation()];
        let (slot, generation, has_copy) = (usize::from(first < second), first.max(second), first == second);
        let [first, second] = states.map(State::functions);
        let functions = if slot == 0 { first } else { second };
        let newest = functions.is_some().then_some(slot);
        let file = FunctionsFile { disk: Arc::clone(disk), newest, generation, has_copy, is_durable: false, damaged };
        Ok((functions.unwrap_or_default(), file))
    }

    /// Returns the file that is not valid, if one is: it was being written when a server ended, or it is damaged.
    pub fn damaged(&self) -> Option<&'static str> {
        self.damaged
    }

    /// Writes the functions in place of those before. They are durable when this returns.
    ///
    /// They must have all names and sources that were written before, in the same order of names: the log may name them. If
    /// it fails, call it again, with the same or other functions.
    ///
    /// # Panics
    /// If the directory has no manifest: [`begin`](crate::Directory::begin) writes the first one. If a revision is 0.
    pub fn write(&mut self, functions: &StoredFunctions) -> Result<(), LogError> {
        functions.check_limits()?;
        let names = self.disk.list().map_err(LogError::io("list", "."))?;
        let has_manifest = names.iter().any(|name| manifest::NAMES.contains(&name.as_str()));
        assert!(has_manifest, "a directory begins with a manifest");
        self.make_durable()?;
        let (slot, generation) = (self.newest.map_or(0, |newest| 1 - newest), self.generation + 1);
        let mut pages = Pages::default();
        functions.encode(generation, &mut pages);
        if self.newest.is_some() {
            self.reserve(1 - slot, pages.size() as u64)?;
        }
        self.write_file(slot, &mut pages)?;
        (self.newest, self.generation, self.has_copy, self.is_durable) = (Some(slot), generation, false, true);
        self.write_file(1 - slot, &mut pages)?;
        (self.has_copy, self.damaged) = (true, None);
        Ok(())
    }

    /// Makes the newest file durable, and writes the other one if it is different. If there is no room for that, the newest
    /// one must do.
    pub(crate) fn repair(disk: &Arc<D>) -> Result<(), LogError> {
        let (functions, mut file) = Self::open(disk)?;
        file.make_durable()?;
        let Some(newest) = file.newest.filter(|_| !file.has_copy) else { return Ok(()) };
        let mut pages = Pages::default();
        functions.encode(file.generation, &mut pages);
        match file.write_file(1 - newest, &mut pages) {
            Err(LogError::Io { source, .. }) if is_full(&source) => Ok(()),
            result => result,
        }
    }

    /// Appends zeros to a file, so that it can be overwritten with this many bytes also if the disk is full then.
    fn reserve(&self, slot: usize, size: u64) -> Result<(), LogError> {
        let name = NAMES[slot];
        let file = self.disk.open(name).map_err(LogError::io("open", name))?;
        let pages = self.disk.size(&file).map_err(LogError::io("read", name))? / PAGE_SIZE as u64;
        let (end, mut zeros) = (pages * PAGE_SIZE as u64, Pages::default());
        zeros.set_size(padded_size(size).saturating_sub(end) as usize);
        self.disk.write_at(&file, end, zeros.padded()).map_err(LogError::io("write", name))
    }

    /// Makes durable what was read. An earlier process may have been killed before it was.
    fn make_durable(&mut self) -> Result<(), LogError> {
        if let Some(newest) = self.newest.filter(|_| !self.is_durable) {
            let name = NAMES[newest];
            let file = self.disk.open(name).map_err(LogError::io("open", name))?;
            self.disk.sync(&file).map_err(LogError::io("flush", name))?;
            self.disk.sync_directory().map_err(LogError::io("flush", "the directory"))?;
        }
        self.is_durable = true;
        Ok(())
    }

    /// Writes one of the files. It is durable when this returns.
    fn write_file(&self, slot: usize, pages: &mut Pages) -> Result<(), LogError> {
        let name = NAMES[slot];
        let file = match present(&*self.disk)?[slot] {
            true => self.disk.open(name),
            false => self.disk.create(name),
        };
        let file = file.map_err(LogError::io("open", name))?;
        self.disk.write_at(&file, 0, pages.padded()).map_err(LogError::io("write", name))?;
        self.disk.sync_directory().map_err(LogError::io("flush", "the directory"))
    }
}

/// Returns the error of a file that is missing.
fn missing(slot: usize) -> LogError {
    LogError::Incomplete { what: format!("{} is missing", NAMES[slot]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str, revision: u32, is_current: bool, source: &str) -> StoredModule {
        StoredModule { name: name.into(), revision, is_current, source: source.into() }
    }

    fn example() -> StoredFunctions {
        let names = ["limits.take", "sums.mean"].map(String::from).to_vec();
        let modules = vec![
            module("limits", 1, false, "mod limits {}"),
            module("sums", 2, true, ""),
            module("limits", 3, true, "mod limits { /* µ */ }"),
        ];
        StoredFunctions { names, modules }
    }

    fn encoded(functions: &StoredFunctions, generation: u64) -> Vec<u8> {
        let mut pages = Pages::default();
        functions.encode(generation, &mut pages);
        pages.bytes().to_vec()
    }

    #[test]
    fn functions_return_and_each_changed_byte_is_found() {
        let bytes = encoded(&example(), 7);
        assert_eq!(bytes.len(), example().size());
        assert_eq!(StoredFunctions::decode(&bytes), Ok((example(), 7)));
        assert_eq!([0, 1, 2, 3].map(|id| example().name(id).map(str::len)), [None, Some(11), Some(9), None]);
        for offset in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[offset] ^= 0x40;
            assert_eq!(StoredFunctions::decode(&changed), Err(FunctionsFault::Invalid), "byte {offset}");
            assert_eq!(StoredFunctions::decode(&bytes[..offset]), Err(FunctionsFault::Invalid));
        }
        let empty = encoded(&StoredFunctions::default(), 1);
        assert_eq!(StoredFunctions::decode(&empty), Ok((StoredFunctions::default(), 1)));
    }

    /// As in the drawing.
    #[test]
    fn the_bytes_are_those_of_the_drawing() {
        let functions = StoredFunctions { names: vec!["m.f".into()], modules: vec![module("m", 9, true, "mod m {}")] };
        let bytes = encoded(&functions, 5);
        assert_eq!(bytes[..8], *b"SKEPfun\0");
        assert_eq!(bytes[16..40], [4, 0, 0, 0, 65, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[40..], *b"\x03m.f\x09\0\0\0\x08\0\0\0\x01\x01\0\0mmod m {}");
    }

    #[test]
    fn a_file_that_is_wrong_with_a_valid_checksum_is_refused() {
        let bytes = encoded(&example(), 7);
        let first_module = HEADER_SIZE + 1 + 11 + 1 + 9;
        let changes: [(usize, &[u8]); 15] = [
            (16, &[0]),                        // version
            (16, &[VERSION_MIN as u8 - 1]),    // a version without functions
            (18, &[1]),                        // zeros
            (20, &[39]),                       // size
            (24, &[0; 8]),                     // generation
            (24, &[0xff; 8]),                  // generation without a next one
            (32, &[0xff; 4]),                  // names
            (32, &[3]),                        // a name more
            (36, &[0xff; 4]),                  // modules
            (36, &[2]),                        // a module less: bytes are left
            (HEADER_SIZE, &[0]),               // an empty name
            (HEADER_SIZE + 1, &[0xff]),        // not UTF-8
            (first_module, &[0; 4]),           // revision
            (first_module + 4, &[1, 0, 1, 0]), // a source that is too long
            (first_module + 9, &[2]),          // flags
        ];
        for (offset, change) in changes {
            let mut bytes = bytes.clone();
            bytes[offset..][..change.len()].copy_from_slice(change);
            set_checksum(&mut bytes);
            assert_eq!(StoredFunctions::decode(&bytes), Err(FunctionsFault::Invalid), "offset {offset}");
        }
        let mut later = bytes;
        later[16] = 9;
        set_checksum(&mut later);
        assert_eq!(StoredFunctions::decode(&later), Err(FunctionsFault::Newer(9)));
    }

    #[test]
    fn functions_that_exceed_a_limit_are_named() {
        let names = |name: &str, count| StoredFunctions { names: vec![name.into(); count], modules: Vec::new() };
        let modules = |name: &str, source: &str, count| StoredFunctions {
            names: Vec::new(),
            modules: vec![module(name, 1, false, source); count],
        };
        let (name, source) = ("x".repeat(FUNCTION_NAME_SIZE_MAX), "x".repeat(FUNCTION_SOURCE_SIZE_MAX));
        let within =
            [names("f", FUNCTION_NAMES_MAX), names(&name, 1), modules(&name, "", 1), modules("m", &source, 1023)];
        assert!(within.iter().all(|functions| functions.check_limits().is_ok()));
        for (functions, message) in [
            (names("f", FUNCTION_NAMES_MAX + 1), "at most 65535 names"),
            (names(&(name.clone() + "x"), 1), "names of 1 to 255 bytes"),
            (names("", 1), "names of 1 to 255 bytes"),
            (modules(&(name + "x"), "", 1), "names of 1 to 255 bytes"),
            (modules("", "", 1), "names of 1 to 255 bytes"),
            (modules("m", &(source.clone() + "x"), 1), "sources of at most 65536 bytes"),
            (modules("m", &source, 1024), "at most 67108864 bytes"),
        ] {
            let error = functions.check_limits().expect_err(message).to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
