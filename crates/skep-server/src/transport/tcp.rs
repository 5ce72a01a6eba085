//! TCP: sockets that do not block, and edge-triggered epoll, which reports each change once.

use std::io::{Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use rustix::event::epoll::EventFlags;

use super::poller::{Poller, Source};

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

    /// Tells the peer that no more bytes will leave.
    pub(super) fn finish(&self) -> Result<()> {
        self.0.shutdown(Shutdown::Write)
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
}
