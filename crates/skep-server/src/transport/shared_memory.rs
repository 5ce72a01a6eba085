//! Shared memory: the listener that gives it out, and a connection over it. [`skep_transport::shared`] has the rings.
//!
//! The listener is a unix socket that only the user of the server can use (mode 0600). That is its protected mode. A
//! connection that was accepted gets its two files, and is then a native connection like any other.
//!
//! The server can start again after it was killed: it replaces a socket at its path if no process listens there.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use skep_transport::shared::End;

use super::poller::{Poller, Source};
use crate::limits::BACKLOG;
use crate::start::Steps;
use crate::start_error::StartError;
use crate::vocabulary::Address;

/// What Linux says of the path of a unix socket, in words.
const PATH_TOO_LONG: &str = "a path has at most 107 bytes";

/// A connection over shared memory.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    end: End,
    path: Arc<Path>,
}

impl SharedMemory {
    /// Returns the rings.
    #[inline]
    pub(crate) fn end(&self) -> &End {
        &self.end
    }

    /// Returns the address of both sides.
    pub(crate) fn address(&self) -> Address {
        Address::SharedMemory(self.path.clone())
    }

    /// Lets the poller report doorbells, and the end of the client.
    pub(super) fn register(&self, poller: &Poller, source: Source) -> rustix::io::Result<()> {
        poller.add(&self.end, source, EventFlags::IN | EventFlags::RDHUP | EventFlags::ET)
    }

    /// Ends the registration of [`SharedMemory::register`].
    pub(super) fn deregister(&self, poller: &Poller) {
        poller.remove(&self.end);
    }
}

/// The unix socket that accepts clients. Its file is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct SharedMemoryListener {
    socket: UnixListener,
    path: Arc<Path>,
    /// Device and inode of the file.
    identity: Option<(u64, u64)>,
}

impl SharedMemoryListener {
    /// Listens at a path. A socket at which no process listens is replaced. If two servers start at one path at the same
    /// moment, the later one may replace the socket of the other.
    pub(crate) fn bind(path: &Path, steps: &mut Steps) -> std::result::Result<Self, StartError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = steps
            .open("a socket for shared memory", || socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None))?;
        let listen = || {
            let address = SocketAddrUnix::new(path).map_err(|error| match error {
                Errno::NAMETOOLONG => Error::new(ErrorKind::InvalidFilename, PATH_TOO_LONG),
                error => error.into(),
            })?;
            // The file gets the mode of the socket, so there is no moment at which others can connect.
            fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            match bind(&socket, &address) {
                Err(Errno::ADDRINUSE) if is_left_over(path, &address) => {
                    std::fs::remove_file(path)?;
                    bind(&socket, &address)?;
                }
                bound => bound?,
            }
            listen(&socket, BACKLOG)?;
            Ok::<_, Error>(UnixListener::from(socket))
        };
        let refusal = |source: Error| match source.kind() {
            ErrorKind::AddrInUse if is_socket(path) => StartError::SharedMemoryInUse(path.to_owned()),
            ErrorKind::AddrInUse => StartError::SharedMemoryFile(path.to_owned()),
            _ => StartError::SharedMemory { path: path.to_owned(), source },
        };
        let socket = steps.take(listen, refusal)?;
        Ok(SharedMemoryListener { socket, path: path.into(), identity: identity(path) })
    }

    /// Accepts a connection, and sends it its files.
    pub(crate) fn accept(&self) -> Result<SharedMemory> {
        let (socket, _) = self.socket.accept()?;
        // A client that is already gone is no error of the listener.
        let end = End::offer(socket).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ErrorKind::ConnectionAborted.into(),
            _ => error,
        })?;
        Ok(SharedMemory { end, path: self.path.clone() })
    }

    /// Accepts a connection and closes it.
    pub(crate) fn refuse(&self) -> Result<()> {
        self.socket.accept().map(drop)
    }
}

impl AsFd for SharedMemoryListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for SharedMemoryListener {
    fn drop(&mut self) {
        // Another server may have replaced the file.
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns the device and the inode of a file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|data| (data.dev(), data.ino()))
}

/// Returns true if the file is a socket.
fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket())
}

/// Returns true if the file is a socket at which no process listens.
fn is_left_over(path: &Path, address: &SocketAddrUnix) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = || connect(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?, address);
    is_socket(path) && probe() == Err(Errno::CONNREFUSED)
}
