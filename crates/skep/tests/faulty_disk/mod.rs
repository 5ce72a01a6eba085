//! A disk for tests of the real program: a directory whose file system (FUSE) is in the memory of the test. It forgets
//! what was not flushed when power is lost, fails at chosen calls, is full at a chosen size, and is slow.
//!
//! ```no_run
//! let Some(disk) = FaultyDisk::mount() else { return };
//! // Start a server with its data in `disk.path()`, and use it.
//! disk.power_off();
//! // Kill the server, and wait for its end.
//! disk.power_loss(seed);
//! // Start it again: what it has acknowledged is there.
//! ```
//!
//! - Each request of a program reaches this process at once: the kernel caches neither pages nor names nor attributes.
//! - A write with `RWF_DSYNC`, or to a file with `O_DSYNC`, is durable when it returns. Other writes need `fsync` or
//!   `fdatasync`. Names need `fsync` of the directory.
//! - `flock` is the kernel's own. There are no directories in the directory.

pub(crate) mod image;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;
use tempfile::TempDir;

use image::{DIRECTORY, FileNumber, Image};

/// A directory on a disk that has faults.
pub(crate) struct FaultyDisk {
    state: Arc<Mutex<State>>,
    /// Ends the mount when it is dropped, before the directory is removed.
    _session: BackgroundSession,
    directory: TempDir,
}

struct State {
    image: Image,
    /// Number of writing calls.
    calls: u64,
    /// Those of each kind.
    kinds: BTreeMap<String, u64>,
    faults: Vec<Fault>,
    is_off: bool,
    /// The threads whose first write since the power went off has arrived.
    interrupted: Vec<u32>,
    /// Writes take this time, and none returns before this moment.
    delay: Duration,
    stopped_until: Option<Instant>,
}

/// Calls that fail.
enum Fault {
    Call(u64, Errno),
    OfKind(String, u64, Errno),
    All(Errno),
}

impl FaultyDisk {
    /// Mounts an empty disk. Prints the reason and returns nothing if the machine does not allow that.
    pub(crate) fn mount() -> Option<FaultyDisk> {
        let directory = TempDir::new().expect("there is room for a folder");
        let state = Arc::new(Mutex::new(State::default()));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("faulty-disk".to_owned()), MountOption::NoAtime];
        match fuser::spawn_mount(FileSystem(Arc::clone(&state)), directory.path(), &config) {
            Ok(session) => Some(FaultyDisk { state, _session: session, directory }),
            Err(error) => {
                println!("FAULTS OF A DISK WERE NOT TESTED: a file system cannot be mounted: {error} (/dev/fuse)");
                None
            }
        }
    }

    /// Returns the directory.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Lets every call fail from now on, until [`power_loss`](Self::power_loss). So a program that runs on can do nothing
    /// more to the disk. The first write of each thread counts as one that was in flight: each of its sectors may
    /// survive.
    pub(crate) fn power_off(&self) {
        self.state().is_off = true;
    }

    /// Loses power: a part of what is not durable disappears, by chance. Files that are open can no longer be used, and
    /// faults and the limit end. Then the disk works again.
    pub(crate) fn power_loss(&self, seed: u64) {
        let mut state = self.state();
        state.image.power_loss(seed);
        let image = std::mem::replace(&mut state.image, Image::new());
        *state = State { image, calls: state.calls, kinds: std::mem::take(&mut state.kinds), ..State::default() };
        state.image.limit = None;
    }

    /// Returns the number of writing calls so far: write, flush, create, rename, remove, change of a size.
    pub(crate) fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Lets a writing call fail: 1 is the next one.
    ///
    /// A write that fails has written some of its sectors. A flush that fails has made some of them durable, and no later
    /// flush repeats the others. Any other call that fails has changed nothing.
    pub(crate) fn fail_call(&self, number: u64, errno: Errno) {
        let mut state = self.state();
        let number = state.calls + number;
        state.faults.push(Fault::Call(number, errno));
    }

    /// Returns how many writing calls of each kind there were so far: what they do, and the first letters of the file's
    /// name.
    pub(crate) fn kinds(&self) -> BTreeMap<String, u64> {
        self.state().kinds.clone()
    }

    /// Lets a writing call of a kind fail: 1 is the next one.
    pub(crate) fn fail_call_of(&self, kind: &str, number: u64, errno: Errno) {
        let mut state = self.state();
        let number = state.kinds.get(kind).unwrap_or(&0) + number;
        state.faults.push(Fault::OfKind(kind.to_owned(), number, errno));
    }

    /// Lets all writing calls fail, or none.
    pub(crate) fn fail_all(&self, errno: Option<Errno>) {
        self.state().faults = errno.map(Fault::All).into_iter().collect();
    }

    /// Returns true if all calls that were to fail have failed.
    pub(crate) fn has_failed(&self) -> bool {
        let state = self.state();
        state.faults.iter().all(|fault| match fault {
            Fault::Call(number, _) => state.calls >= *number,
            Fault::OfKind(kind, number, _) => state.kinds.get(kind).is_some_and(|count| count >= number),
            Fault::All(_) => false,
        })
    }

    /// Lets each write take this time.
    pub(crate) fn slow(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// Lets no write return for this time.
    pub(crate) fn stop_for(&self, time: Duration) {
        self.state().stopped_until = Some(Instant::now() + time);
    }

    /// Returns the bytes that all files have together.
    pub(crate) fn used(&self) -> u64 {
        self.state().image.used()
    }

    /// Limits the bytes of all files together. Writes beyond it fail with `ENOSPC`.
    pub(crate) fn limit(&self, bytes: Option<u64>) {
        self.state().image.limit = bytes;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }
}

impl Default for State {
    fn default() -> Self {
        State {
            image: Image::new(),
            calls: 0,
            kinds: BTreeMap::new(),
            faults: Vec::new(),
            is_off: false,
            interrupted: Vec::new(),
            delay: Duration::ZERO,
            stopped_until: None,
        }
    }
}

impl State {
    /// Begins a call that only reads.
    fn read(&mut self) -> Result<&mut Image, Errno> {
        if self.is_off { Err(Errno::IO) } else { Ok(&mut self.image) }
    }

    /// Counts a writing call. Returns the error with which it is to fail.
    fn call(&mut self, action: &str, name: &str) -> Result<(), Errno> {
        self.read()?;
        self.calls += 1;
        let letters = name.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(name.len());
        let kind = format!("{action} {}", &name[..letters]);
        let count = self.kinds.entry(kind.clone()).or_insert(0);
        *count += 1;
        let fails = |fault: &&Fault| match fault {
            Fault::Call(number, _) => *number == self.calls,
            Fault::OfKind(of, number, _) => *of == kind && number == count,
            Fault::All(_) => true,
        };
        match self.faults.iter().find(fails) {
            Some(Fault::Call(_, errno) | Fault::OfKind(_, _, errno) | Fault::All(errno)) => Err(*errno),
            None => Ok(()),
        }
    }

    /// Counts a writing call of an open file.
    fn call_of(&mut self, action: &str, number: FileNumber) -> Result<(), Errno> {
        let mut names = self.image.names.iter();
        let name = names.find(|(_, other)| **other == number).map_or_else(String::new, |(name, _)| name.clone());
        self.call(action, &name)
    }

    fn create(&mut self, name: &OsStr, mode: u32) -> Result<FileNumber, Errno> {
        self.call("create", text(name)?)?;
        self.image.create(text(name)?, mode)
    }

    fn write(
        &mut self,
        number: FileNumber,
        offset: u64,
        bytes: &[u8],
        is_durable: bool,
        thread: u32,
    ) -> Result<usize, Errno> {
        if self.is_off && !self.interrupted.contains(&thread) {
            self.interrupted.push(thread);
            _ = self.image.write(number, offset, bytes);
        }
        self.read()?;
        let action = if offset == 0 { "begin" } else { "write" };
        if let Err(errno) = self.call_of(action, number) {
            self.image.fail_write(number, offset, bytes);
            return Err(errno);
        }
        let written = self.image.write(number, offset, bytes)?;
        if is_durable {
            self.image.sync(number)?;
        }
        Ok(written)
    }

    fn sync(&mut self, number: FileNumber) -> Result<(), Errno> {
        self.read()?;
        match (self.call_of("flush", number), number) {
            (Ok(()), DIRECTORY) => self.image.sync_names(),
            (Ok(()), number) => self.image.sync(number)?,
            (Err(errno), DIRECTORY) => return Err(errno),
            (Err(errno), number) => {
                self.image.fail_sync(number)?;
                return Err(errno);
            }
        }
        Ok(())
    }

    fn attributes(&mut self, number: FileNumber) -> Result<FileAttr, Errno> {
        let (kind, mode, size) = if number == DIRECTORY {
            (FileType::Directory, 0o700, 0)
        } else {
            let file = self.read()?.file(number)?;
            (FileType::RegularFile, file.mode, file.visible.size as u64)
        };
        Ok(FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: (mode & 0o7777) as u16,
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

fn text(name: &OsStr) -> Result<&str, Errno> {
    name.to_str().ok_or(Errno::ILSEQ)
}

/// The calls of the kernel.
struct FileSystem(Arc<Mutex<State>>);

/// Nothing is cached.
const CACHE_TIME: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);

impl FileSystem {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }
}

fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

/// Replies to a call without a result.
fn reply_empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

impl Filesystem for FileSystem {
    fn lookup(&self, _: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut state = self.state();
        let number = text(name).and_then(|name| state.image.names.get(name).copied().ok_or(Errno::NOENT));
        match number.and_then(|number| state.attributes(number)) {
            Ok(attributes) => reply.entry(&CACHE_TIME, &attributes, GENERATION),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.state().attributes(number.0) {
            Ok(attributes) => reply.attr(&CACHE_TIME, &attributes),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.state();
        let mut set = || {
            if let Some(size) = size {
                state.call_of("resize", number.0)?;
                state.image.resize(number.0, size)?;
            }
            if let (Some(mode), true) = (mode, number.0 != DIRECTORY) {
                state.image.file(number.0)?.mode = mode;
            }
            state.attributes(number.0)
        };
        match set() {
            Ok(attributes) => reply.attr(&CACHE_TIME, &attributes),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn create(
        &self,
        _: &Request,
        _parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut state = self.state();
        match state.create(name, mode).and_then(|number| state.attributes(number)) {
            Ok(attributes) => {
                reply.created(&CACHE_TIME, &attributes, GENERATION, FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.state().read().and_then(|image| image.file(number.0).map(|_| ())) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.state().read().and_then(|image| image.file(number.0)) {
            Ok(file) => {
                reply.data(&file.visible.read(offset as usize, size as usize));
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // The kernel sets the flag also for a single write with RWF_DSYNC. O_SYNC contains it. In rustix, DSYNC is O_SYNC.
        let is_durable = flags.0 & libc::O_DSYNC != 0;
        let wait = {
            let state = self.state();
            let stop = state.stopped_until.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()));
            state.delay.max(stop)
        };
        thread::sleep(wait);
        match self.state().write(number.0, offset, bytes, is_durable, request.pid()) {
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        reply_empty(self.state().sync(number.0), reply);
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        reply_empty(self.state().sync(number.0), reply);
    }

    fn rename(
        &self,
        _: &Request,
        _parent: INodeNo,
        from: &OsStr,
        _new_parent: INodeNo,
        to: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        let mut rename = || {
            if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
                return Err(Errno::INVAL);
            }
            state.call("rename", text(from)?)?;
            state.image.rename(text(from)?, text(to)?, flags.is_empty())
        };
        reply_empty(rename(), reply);
    }

    fn unlink(&self, _: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.state();
        let mut remove = || {
            state.call("remove", text(name)?)?;
            state.image.remove(text(name)?)
        };
        reply_empty(remove(), reply);
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let state = self.state();
        let own = [".", ".."].map(|name| (DIRECTORY, FileType::Directory, name));
        let files = state.image.names.iter().map(|(name, number)| (*number, FileType::RegularFile, name.as_str()));
        for (index, (number, kind, name)) in own.into_iter().chain(files).enumerate().skip(offset as usize) {
            if reply.add(INodeNo(number), index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        const BLOCK: u64 = 4096;
        let state = self.state();
        let image = &state.image;
        let size = image.limit.unwrap_or(1 << 40);
        let free = image.free().unwrap_or(size) / BLOCK;
        reply.statfs(size / BLOCK, free, free, 1 << 20, 1 << 20, BLOCK as u32, 255, BLOCK as u32);
    }
}
