//! A directory of the operating system as a [`Disk`].
//!
//! Files are opened past the page cache (`O_DIRECT`), and a write is one system call that returns when its bytes are
//! durable (`pwritev2` with `RWF_DSYNC`). If the file system refuses `O_DIRECT`, as some in memory do, a write goes
//! through the page cache and is followed by `fdatasync`.
//!
//! The directory has the mode 0700 and its files 0600, since they contain all values and the secret seeds.

use std::fs;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use rustix::fd::OwnedFd;
use rustix::fs::{
    Dir, FlockOperation, Mode, OFlags, RenameFlags, fdatasync, flock, fsync, mkdir, openat, renameat_with,
};
use rustix::io::{Errno, ReadWriteFlags, pwritev2, retry_on_intr};
use zerocopy::IntoBytes;

use crate::disk::Disk;
use crate::pages::Page;

/// A directory of the operating system.
#[derive(Debug)]
pub struct Files {
    directory: OwnedFd,
    lock: Mutex<Option<OwnedFd>>,
    is_read_only: bool,
}

/// A file of a directory.
#[derive(Debug)]
pub struct OpenFile {
    file: fs::File,
    is_direct: bool,
    /// Held during a write through the page cache: the system reports a failure of such a write once for an open file, so a
    /// flush beside it could take the report.
    cached_write: Mutex<()>,
}

const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

impl Files {
    /// Opens a directory. Creates it if it does not exist, but not the directories above it.
    pub fn open(path: &Path) -> io::Result<Self> {
        match mkdir(path, Mode::RWXU) {
            // Otherwise the directory could be gone after a loss of power, with all that is in it.
            Ok(()) => match rustix::fs::open(path.join(".."), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
                Ok(parent) => fsync(parent)?,
                // Who may write there but not read cannot flush it.
                Err(Errno::ACCESS) => {}
                Err(error) => return Err(error.into()),
            },
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Self::open_existing(path, false)
    }

    /// Opens a directory that exists, to read it only. Its lock excludes servers, but not other readers.
    pub fn open_to_read(path: &Path) -> io::Result<Self> {
        Self::open_existing(path, true)
    }

    fn open_existing(path: &Path, is_read_only: bool) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Files { directory, lock: Mutex::new(None), is_read_only })
    }

    /// Opens a file past the page cache, if the file system allows it.
    fn open_with(&self, name: &str, flags: OFlags) -> io::Result<OpenFile> {
        let access = if self.is_read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let open = |flags| openat(&self.directory, name, flags | access | OFlags::CLOEXEC, FILE_MODE);
        match open(flags | OFlags::DIRECT) {
            Ok(file) => Ok(OpenFile { file: file.into(), is_direct: true, cached_write: Mutex::default() }),
            Err(Errno::INVAL) => {
                // Some file systems refuse the flag after they have created the file.
                let file = open(flags).or_else(|error| match error {
                    Errno::EXIST if flags.contains(OFlags::EXCL) => open(OFlags::empty()),
                    error => Err(error),
                })?;
                Ok(OpenFile { file: file.into(), is_direct: false, cached_write: Mutex::default() })
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Disk for Files {
    type File = OpenFile;

    fn lock(&self) -> io::Result<bool> {
        let mut held = self.lock.lock().expect("no thread panics while it holds the lock");
        if held.is_some() {
            return Ok(true);
        }
        let operation = match self.is_read_only {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        // The directory too: the file may be removed. Not all file systems can lock a directory.
        if flock(&self.directory, operation) == Err(Errno::WOULDBLOCK) {
            return Ok(false);
        }
        let flags = match self.is_read_only {
            true => OFlags::RDONLY,
            false => OFlags::RDWR | OFlags::CREATE,
        };
        let file = match openat(&self.directory, "lock", flags | OFlags::CLOEXEC, FILE_MODE) {
            // No server has ever used this copy.
            Err(Errno::NOENT) if self.is_read_only => return Ok(true),
            file => file?,
        };
        match flock(&file, operation) {
            Ok(()) => {
                *held = Some(file);
                Ok(true)
            }
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = Dir::read_from(&self.directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.filter(|name| !matches!(name.as_deref(), Ok("." | ".."))).collect()
    }

    fn create(&self, name: &str) -> io::Result<OpenFile> {
        self.open_with(name, OFlags::CREATE | OFlags::EXCL)
    }

    fn open(&self, name: &str) -> io::Result<OpenFile> {
        self.open_with(name, OFlags::empty())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        match renameat_with(&self.directory, from, &self.directory, to, RenameFlags::NOREPLACE) {
            // Not all file systems know the flag. No other process creates files here.
            Err(Errno::INVAL | Errno::NOSYS) => Ok(rustix::fs::renameat(&self.directory, from, &self.directory, to)?),
            result => Ok(result?),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.directory, name, rustix::fs::AtFlags::empty())?)
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(fsync(&self.directory)?)
    }

    fn sync(&self, file: &OpenFile) -> io::Result<()> {
        Ok(fdatasync(&file.file)?)
    }

    fn size(&self, file: &OpenFile) -> io::Result<u64> {
        Ok(file.file.metadata()?.len())
    }

    fn read_at(&self, file: &OpenFile, offset: u64, pages: &mut [Page]) -> io::Result<()> {
        file.file.read_exact_at(pages.as_mut_bytes(), offset)
    }

    fn write_at(&self, file: &OpenFile, offset: u64, pages: &[Page]) -> io::Result<()> {
        let flags = if file.is_direct { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        let _alone = (!file.is_direct).then(|| file.cached_write.lock());
        let mut bytes = pages.as_bytes();
        let mut offset = offset;
        while !bytes.is_empty() {
            // A write of more than 2 GiB takes several calls. An interrupted call has written nothing.
            let written = retry_on_intr(|| pwritev2(&file.file, &[IoSlice::new(bytes)], offset, flags))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = &bytes[written..];
            offset += written as u64;
        }
        if file.is_direct { Ok(()) } else { Ok(fdatasync(&file.file)?) }
    }
}
