//! TCP: sockets that do not block, and edge-triggered epoll, which reports each change once.

use std::io::{IoSlice, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Once;
use std::time::Duration;

use nix::libc;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;
use rustix::event::epoll::EventFlags;
use socket2::{SockRef, TcpKeepalive};

use super::poller::{Poller, Source};
use crate::limits::{KEEPALIVE_INTERVAL_PART, KEEPALIVE_MAX, KEEPALIVE_RETRIES};

/// Prepares a socket that was accepted: it does not block, it sends at once, and after `keepalive` seconds of silence, unless
/// that is 0, the kernel asks for the peer.
///
/// Fails only if the socket would block. A refused option drops no connection, because the connection works without it;
/// the first refusal is logged.
pub(crate) fn prepare(stream: &TcpStream, keepalive: i64) -> Result<()> {
    static REFUSED: Once = Once::new();
    stream.set_nonblocking(true)?;
    let refused = stream.set_nodelay(true).and_then(|()| match keepalive_of(keepalive) {
        Some(keepalive) => SockRef::from(stream).set_tcp_keepalive(&keepalive),
        None => Ok(()),
    });
    if let Err(error) = refused {
        REFUSED.call_once(|| tracing::warn!(%error, "a socket refuses an option; its connection is served without it"));
    }
    Ok(())
}

/// Returns the option of a socket for this number of seconds.
fn keepalive_of(seconds: i64) -> Option<TcpKeepalive> {
    let seconds = u64::try_from(seconds).ok().filter(|&seconds| seconds > 0)?.min(KEEPALIVE_MAX);
    let interval = Duration::from_secs((seconds / KEEPALIVE_INTERVAL_PART).max(1));
    let time = Duration::from_secs(seconds);
    Some(TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(KEEPALIVE_RETRIES))
}

/// The beginning of the kernel's `tcp_info`, up to the bytes that were acknowledged, which are the last word.
type Info = [u64; 16];

/// The option that returns what the kernel knows of a TCP connection.
#[derive(Clone, Copy, Debug)]
struct TcpInfo;

nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, Info, GetStruct<Info>);

/// A TCP socket that does not block.
#[derive(Debug)]
pub(crate) struct Tcp(TcpStream);

impl Tcp {
    /// Takes over a socket that was set not to block.
    pub(crate) fn new(stream: TcpStream) -> Tcp {
        Tcp(stream)
    }

    /// Returns the addresses of the other side and of this one.
    pub(crate) fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        Ok((self.0.peer_addr()?, self.0.local_addr()?))
    }

    /// Returns the socket.
    #[cfg(test)]
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.0
    }

    /// Lets the poller report events.
    pub(super) fn register(&self, poller: &Poller, source: Source) -> rustix::io::Result<()> {
        poller.add(&self.0, source, EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET)
    }

    /// Ends the registration of [`Tcp::register`].
    pub(super) fn deregister(&self, poller: &Poller) {
        poller.remove(&self.0);
    }

    /// Returns the bytes written that the peer's kernel has acknowledged, which it does as far as there is room for those
    /// that its reader has not taken. A system that is not Linux's own may not count them.
    pub(super) fn acknowledged(&self) -> Option<u64> {
        getsockopt(&self.0, TcpInfo).ok()?.last().copied().filter(|&acknowledged| acknowledged > 0)
    }

    /// Tells the peer that no more bytes will leave.
    pub(super) fn finish(&self) -> Result<()> {
        self.0.shutdown(Shutdown::Write)
    }

    /// Returns the bytes that have arrived and were not read; `usize::MAX` if the kernel does not tell.
    pub(super) fn arrived(&self) -> usize {
        rustix::io::ioctl_fionread(&self.0).ok().and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX)
    }

    /// Reads the bytes that have arrived.
    #[inline]
    pub(super) fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        (&self.0).read(buffer)
    }

    /// Writes as many bytes as the socket takes.
    #[inline]
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<usize> {
        (&self.0).write(bytes)
    }

    /// Writes as many bytes of these parts as the socket takes.
    pub(super) fn write_vectored(&self, parts: &[IoSlice<'_>]) -> Result<usize> {
        (&self.0).write_vectored(parts)
    }
}
