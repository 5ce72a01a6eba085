//! The mapped files of a connection, as words.
//!
//! A file that only the other side writes is mapped for reading, so it can only be loaded.
#![expect(unsafe_code, reason = "maps files that two processes share")]

use std::ffi::c_void;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::layout::{FILE_SIZE, RING_WORD, TAIL_WORD, TAKEN_WORD, WAIT_WORD, WORD_SIZE};
use super::side::{OwnFile, PeerFile};
use super::sync::AtomicU64;
use super::words::PeerWords;

/// The file that this process writes.
#[derive(Debug)]
pub(crate) struct OwnMapping(Mapping);

/// The file that the other process writes.
#[derive(Debug)]
pub(crate) struct PeerMapping(Mapping);

impl OwnMapping {
    /// Maps a file for reading and writing.
    pub(crate) fn new(file: impl AsFd) -> Result<OwnMapping> {
        Mapping::new(file.as_fd(), ProtFlags::READ | ProtFlags::WRITE).map(OwnMapping)
    }

    /// Returns the words of the file.
    #[inline]
    pub(crate) fn file(&self) -> OwnFile<'_> {
        let words = self.0.words();
        let ring = &words[RING_WORD..];
        OwnFile { tail: &words[TAIL_WORD], taken: &words[TAKEN_WORD], wait: &words[WAIT_WORD], ring }
    }
}

impl PeerMapping {
    /// Maps a file for reading.
    pub(crate) fn new(file: impl AsFd) -> Result<PeerMapping> {
        Mapping::new(file.as_fd(), ProtFlags::READ).map(PeerMapping)
    }

    /// Returns the words of the file.
    #[inline]
    pub(crate) fn file(&self) -> PeerFile<'_> {
        let words = PeerWords::new(self.0.words());
        PeerFile { words, tail: TAIL_WORD, taken: TAKEN_WORD, wait: WAIT_WORD, ring: words.from(RING_WORD) }
    }
}

/// A mapped file of [`FILE_SIZE`] bytes.
#[derive(Debug)]
struct Mapping(NonNull<c_void>);

// SAFETY: the pages belong to this value alone, and all accesses to them are atomic.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(file: BorrowedFd<'_>, protection: ProtFlags) -> Result<Mapping> {
        // Access to a page beyond the end of the file would end the process. A file that is sealed keeps its size.
        let is_sealed = fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        if !is_sealed || u64::try_from(fstat(file)?.st_size) != Ok(FILE_SIZE as u64) {
            return Err(Error::new(ErrorKind::InvalidData, "the file of a ring has another size, or may shrink"));
        }
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let pages = unsafe { mmap(std::ptr::null_mut(), FILE_SIZE, protection, MapFlags::SHARED, file, 0) }?;
        NonNull::new(pages).map(Mapping).ok_or_else(|| Error::other("a mapping at address zero"))
    }

    /// Returns all words. [`PeerMapping`] gives out only loads.
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the pages are mapped while `self` lives, aligned, and as long as the slice. The file keeps its size
        // (checked by `new`). The other process may write at any time, but all accesses here are atomic.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), FILE_SIZE / WORD_SIZE) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped in `new` with this size, and no reference to them lives longer than `self`.
        let unmapped = unsafe { munmap(self.0.as_ptr(), FILE_SIZE) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
