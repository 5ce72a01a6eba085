//! The calls of a disk that the log needs: one directory with files, whose contents are read and written in whole
//! pages.
//!
//! There are two disks: [`Files`](crate::Files) is a directory of the operating system, and `SimulatedDisk` (feature
//! `simulated`) is one in memory that loses what a real one may lose.
//!
//! A file's content is durable when [`write_at`](Disk::write_at) returns, also if the write has made the file longer.
//! Its name is durable after [`sync_directory`](Disk::sync_directory). So nothing that was reported as written can be
//! lost by a flush that fails later. [`sync`](Disk::sync) is for what an earlier process wrote: if it was killed during
//! a write, the bytes can be read, but they may not be durable.

use std::io;

use crate::pages::Page;

/// One directory on a disk. Its calls may be made by several threads.
pub trait Disk: Send + Sync {
    /// A file that is open.
    type File: Send + Sync;

    /// Locks the directory against other processes until the disk is dropped. Creates the file `lock` if it does not
    /// exist. Returns false if another process holds the lock.
    fn lock(&self) -> io::Result<bool>;

    /// Returns the names of all files and directories in the directory.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file. Fails if the name exists.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Renames a file, open or not. Fails if the new name exists.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes durable which names exist.
    fn sync_directory(&self) -> io::Result<()>;

    /// Makes durable what can be read from a file.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Returns the bytes of a file.
    fn size(&self, file: &Self::File) -> io::Result<u64>;

    /// Reads pages from an offset on, which is a multiple of the page size. Fails if the file ends before them.
    fn read_at(&self, file: &Self::File, offset: u64, pages: &mut [Page]) -> io::Result<()>;

    /// Writes pages from an offset on, which is a multiple of the page size. They are durable when it returns. If it
    /// fails, each of their sectors of 512 bytes may have been written or not.
    fn write_at(&self, file: &Self::File, offset: u64, pages: &[Page]) -> io::Result<()>;
}
