//! Datagrams of memcached's protocol. Each is a connection of its own: the request in it is the whole input, and the
//! reply leaves in datagrams when it is complete.
//!
//! ```text
//!   socket ─ datagram ─▶ read ─▶ connection ─▶ write ─▶ reply ─ finish ─▶ datagrams ─▶ socket
//! ```
//!
//! UDP has no handshake, so a sender can forge its address, and a short request can have a long reply. Therefore the
//! socket is bound to a loopback address, and a datagram from another address is dropped, because the kernel delivers
//! one if a neighbour sends it and loopback addresses are routed (`route_localnet`). So it serves this machine only, with
//! and without a password.
//!
//! With a forged port, the reply of one server would be a request to another one, and its error message a request to the
//! first one again, without end. A reply begins with a capital letter or a digit, and no command does. Such a datagram is
//! dropped, so a reply has no reply.
//!
//! State is bounded. A datagram that arrives while [`MEMCACHED_DATAGRAMS_MAX`] are in work is dropped. A reply of more
//! than [`MEMCACHED_REPLY_SIZE_MAX`] bytes is replaced with an error message. Its request may be executed, in part or as a
//! whole: the commands of a datagram are executed together, before their replies are written.

use std::cell::{Cell, RefCell};
use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use skep_wire::memcached::{DATAGRAM_SIZE_MAX, FRAME_SIZE, Frame, frames};

use super::poller::{Poller, Source};
use crate::limits::{MEMCACHED_DATAGRAMS_MAX, MEMCACHED_REPLY_SIZE_MAX};
use crate::memcached_counts::Count;
use crate::start::Steps;
use crate::start_error::StartError;

/// The reply to a request whose reply is too large.
const TOO_LARGE: &[u8] =
    b"SERVER_ERROR the reply is too large for UDP: the request may be executed in part; read over TCP\r\n";
/// Bytes of the largest datagram.
const ARRIVAL_SIZE_MAX: usize = 64 << 10;

/// The UDP socket of memcached's clients.
#[derive(Debug)]
pub(crate) struct MemcachedSocket {
    /// The datagrams in work have it too.
    socket: Arc<UdpSocket>,
    local: SocketAddr,
    /// Memory for a datagram that arrives.
    arrival: Box<[u8]>,
}

impl MemcachedSocket {
    /// Binds the socket, and sets the address to the one that was bound.
    pub(crate) fn bind(address: &mut SocketAddr, steps: &mut Steps) -> std::result::Result<Self, StartError> {
        let wanted = *address;
        let bind = || {
            let socket = UdpSocket::bind(wanted)?;
            socket.set_nonblocking(true)?;
            *address = socket.local_addr()?;
            let arrival = vec![0; ARRIVAL_SIZE_MAX].into();
            Ok::<_, Error>(MemcachedSocket { socket: Arc::new(socket), local: *address, arrival })
        };
        let front_end = "memcached UDP";
        steps.take(bind, |source| match source.kind() {
            ErrorKind::AddrInUse => StartError::AddressInUse { front_end, address: wanted },
            _ => StartError::Listen { front_end, address: wanted, source },
        })
    }

    /// Lets the poller report when datagrams arrive.
    pub(crate) fn register(&self, poller: &Poller) -> rustix::io::Result<()> {
        poller.add(&self.socket, Source::MemcachedDatagrams, EventFlags::IN)
    }

    /// Ends the registration. Datagrams in work keep the socket open, so the poller would go on reporting new ones.
    pub(crate) fn deregister(&self, poller: &Poller) {
        poller.remove(&self.socket);
    }

    /// Receives a datagram. Returns `None` if there is none, and the reason if it is dropped.
    pub(crate) fn receive(&mut self) -> Option<std::result::Result<MemcachedDatagram, Count>> {
        let (size, peer) = match self.socket.recv_from(&mut self.arrival) {
            Ok(received) => received,
            // The next event reports what has arrived.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return None,
            Err(error) => {
                tracing::debug!(%error, "cannot receive a datagram");
                return None;
            }
        };
        let Some((frame, request)) = Frame::decode(&self.arrival[..size]) else {
            return Some(Err(Count::DatagramsShort));
        };
        if !frame.is_whole_request() {
            return Some(Err(Count::DatagramsInParts));
        }
        if is_forged(peer, self.local, request) {
            return Some(Err(Count::DatagramsForged));
        }
        // This one, and those in work.
        if Arc::strong_count(&self.socket) > MEMCACHED_DATAGRAMS_MAX {
            return Some(Err(Count::DatagramsRefused));
        }
        Some(Ok(MemcachedDatagram {
            socket: self.socket.clone(),
            peer,
            local: self.local,
            number: frame.request,
            request: request.into(),
            read: Cell::new(0),
            reply: RefCell::default(),
        }))
    }
}

/// Returns true if a datagram is from another machine or from the socket itself, or is a reply.
fn is_forged(peer: SocketAddr, local: SocketAddr, request: &[u8]) -> bool {
    let is_reply = request.first().is_some_and(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    !peer.ip().is_loopback() || peer == local || is_reply
}

/// A datagram with a request, as a transport.
#[derive(Debug)]
pub(crate) struct MemcachedDatagram {
    socket: Arc<UdpSocket>,
    peer: SocketAddr,
    local: SocketAddr,
    /// The number of the request, which its client has chosen.
    number: u16,
    request: Box<[u8]>,
    /// Bytes of the request that were read.
    read: Cell<usize>,
    reply: RefCell<Vec<u8>>,
}

impl MemcachedDatagram {
    /// Returns the addresses of the other side and of this one.
    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.peer, self.local)
    }

    /// Returns the bytes of the request.
    pub(crate) fn size(&self) -> usize {
        self.request.len()
    }

    /// Reads the request, and then its end.
    pub(super) fn read(&self, buffer: &mut [u8]) -> usize {
        let rest = &self.request[self.read.get()..];
        let size = rest.len().min(buffer.len());
        buffer[..size].copy_from_slice(&rest[..size]);
        self.read.set(self.read.get() + size);
        size
    }

    /// Adds bytes to the reply. Fails if it becomes too large, and replies so.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<usize> {
        let mut reply = self.reply.borrow_mut();
        if reply.len() + bytes.len() > MEMCACHED_REPLY_SIZE_MAX {
            *reply = TOO_LARGE.to_vec();
            drop(reply);
            self.finish();
            return Err(ErrorKind::BrokenPipe.into());
        }
        reply.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Sends the reply. Datagrams that the socket does not take are lost, as on the network.
    pub(super) fn finish(&self) {
        let reply = self.reply.take();
        let mut datagram = Vec::with_capacity(reply.len().min(DATAGRAM_SIZE_MAX) + FRAME_SIZE);
        for (header, part) in frames(self.number, &reply).into_iter().flatten() {
            datagram.clear();
            datagram.extend_from_slice(&header);
            datagram.extend_from_slice(part);
            _ = self.socket.send_to(&datagram, self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_from_this_machine_are_taken() {
        let local: SocketAddr = "127.0.0.1:11211".parse().unwrap();
        let is_forged = |peer: &str, request: &[u8]| is_forged(peer.parse().unwrap(), local, request);
        for peer in ["192.0.2.1:9", "[2001:db8::1]:9", "0.0.0.0:9", "127.0.0.1:11211"] {
            assert!(is_forged(peer, b"get a\r\n"), "{peer}");
        }
        for peer in ["127.0.0.1:9", "127.0.0.2:11211", "[::1]:11211"] {
            assert!(!is_forged(peer, b"get a\r\n"), "{peer}");
            assert!(!is_forged(peer, b"") && !is_forged(peer, b" mn\r\n"), "{peer}");
            assert!(is_forged(peer, b"ERROR\r\n") && is_forged(peer, b"5\r\n"), "{peer}");
        }
    }
}
