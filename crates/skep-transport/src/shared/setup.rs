//! The setup of a connection over a unix socket. The server speaks first:
//!
//! ```text
//! greeting  0          8           12
//!           ┌──────────┬───────────┬──────────┐
//!           │ SKEPSHM1 │ ring size │ page: 0  │  and the descriptors of the request file and the reply file
//!           └──────────┴───────────┴──────────┘
//! ```
//!
//! Then both sides use the rings, and the socket carries doorbells only.

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};

use super::End;
use super::layout::{FILE_SIZE, RING_SIZE};
use super::mapping::{OwnMapping, PeerMapping};

const MAGIC: [u8; 8] = *b"SKEPSHM1";
const GREETING_SIZE: usize = 16;

/// Returns the greeting of this version.
fn greeting() -> [u8; GREETING_SIZE] {
    let mut bytes = [0; GREETING_SIZE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&(RING_SIZE as u32).to_le_bytes());
    bytes
}

impl End {
    /// Creates the files of a connection that was accepted, and sends them to the client. Never waits.
    pub fn offer(socket: UnixStream) -> Result<End> {
        let requests = file("skep-requests", SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let replies = file("skep-replies", SealFlags::SHRINK | SealFlags::GROW)?;
        let end = End::new(OwnMapping::new(&replies)?, PeerMapping::new(&requests)?, socket);
        // The mapping of the server stays writable. No other can be made from here on.
        fcntl_add_seals(&replies, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [requests.as_fd(), replies.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&files));
        let greeting = greeting();
        let sent =
            sendmsg(end.as_fd(), &[IoSlice::new(&greeting)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        if sent < GREETING_SIZE { Err(ErrorKind::WriteZero.into()) } else { Ok(end) }
    }

    /// Connects to the server at a path, and maps the files that it sends. Each step waits for at most `limit`.
    pub fn connect(path: &Path, limit: Duration) -> Result<End> {
        let address = SocketAddrUnix::new(path)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        for timeout in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, timeout, Some(limit))?;
        }
        retry_on_intr(|| connect(&socket, &address))?;
        End::take_offer(UnixStream::from(socket))
    }

    /// Maps the files that the server sends over a socket.
    pub(crate) fn take_offer(socket: UnixStream) -> Result<End> {
        let [requests, replies] = receive_files(&socket)?;
        Ok(End::new(OwnMapping::new(requests)?, PeerMapping::new(replies)?, socket))
    }
}

/// Creates a file of a connection.
fn file(name: &str, seals: SealFlags) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // A system may demand that files in memory cannot be executed. Linux before 6.3 does not know the flag.
    let file = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(name, flags)?,
        file => file?,
    };
    ftruncate(&file, FILE_SIZE as u64)?;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// Receives the greeting and the two files.
pub(crate) fn receive_files(socket: &UnixStream) -> Result<[OwnedFd; 2]> {
    let mut bytes = [0; GREETING_SIZE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let files: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        })
        .flatten()
        .collect();
    match received.bytes {
        0 => {
            return Err(Error::new(
                ErrorKind::ConnectionReset,
                "the server takes no more connections over shared memory",
            ));
        }
        GREETING_SIZE if bytes == greeting() => {}
        _ => return Err(Error::new(ErrorKind::InvalidData, "it has sent another greeting than this version of Skep")),
    }
    files.try_into().map_err(|_| Error::new(ErrorKind::InvalidData, "the greeting has no files"))
}
