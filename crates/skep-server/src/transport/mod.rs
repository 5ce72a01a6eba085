//! Transports move the bytes of a connection. A connection does not know its transport.
//!
//! ```text
//!   event ──────────▶ connection        readiness: may be read, may be written, the peer has finished, it is over
//!   read  ──────────▶ connection        bytes that arrived
//!   write ◀────────── connection        bytes that leave
//!   finish ◀───────── connection        no more bytes will leave
//! ```
//!
//! A transport is one end of two streams of bytes. No call waits: a read or write that cannot continue returns
//! [`std::io::ErrorKind::WouldBlock`], and an [`Event`] says later that it can.
//!
//! The product has TCP, plain and with TLS, shared memory, sessions over UDP and RDMA, and datagrams of memcached; the simulation has a transport
//! in its own memory. Each is a variant of
//! [`Transport`] with the same functions in the same order.

pub(crate) mod datagram;
pub(crate) mod memcached_datagram;
#[cfg(test)]
pub(crate) mod pipe;
pub(crate) mod poller;
#[cfg(feature = "rdma")]
pub(crate) mod rdma;
pub(crate) mod session;
pub(crate) mod shared_memory;
pub(crate) mod tcp;
pub(crate) mod tls;

use std::io::{Read, Result, Write};
use std::time::{Duration, Instant};

use crate::limits::TLS_HANDSHAKE_TIME;
#[cfg(test)]
use crate::transport::pipe::Pipe;
use crate::vocabulary::Address;
use datagram::Datagram;
use memcached_datagram::MemcachedDatagram;
use poller::{Poller, Source};
#[cfg(feature = "rdma")]
use rdma::Rdma;
use session::SessionEnd;
use shared_memory::SharedMemory;
use tcp::Tcp;
use tls::Tls;

/// The changes at a transport since the last event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// There may be something to read.
    pub(crate) is_readable: bool,
    /// The transport may take something.
    pub(crate) is_writable: bool,
    /// The peer has closed its side. Bytes that it sent before may still have to be read.
    pub(crate) is_finished: bool,
    /// Both directions are closed, or there was an error.
    pub(crate) is_over: bool,
}

impl Event {
    /// The event of a session that has ended.
    pub(crate) const OVER: Event = Event { is_readable: true, is_writable: true, is_finished: true, is_over: true };
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) enum Transport {
    Tcp(Tcp),
    Tls(Box<Tls>),
    SharedMemory(SharedMemory),
    Datagram(Box<Datagram>),
    MemcachedDatagram(Box<MemcachedDatagram>),
    #[cfg(feature = "rdma")]
    Rdma(Box<Rdma>),
    #[cfg(test)]
    Simulated(Pipe),
}

impl Transport {
    /// Lets the poller report events.
    pub(crate) fn register(&self, poller: &Poller, source: Source) -> rustix::io::Result<()> {
        match self {
            Transport::Tcp(tcp) => tcp.register(poller, source),
            Transport::Tls(tls) => tls.tcp().register(poller, source),
            Transport::SharedMemory(shared) => shared.register(poller, source),
            // The shard's socket is registered.
            Transport::Datagram(_) | Transport::MemcachedDatagram(_) => Ok(()),
            #[cfg(feature = "rdma")]
            Transport::Rdma(rdma) => rdma.register(poller, source),
            #[cfg(test)]
            Transport::Simulated(_) => Ok(()),
        }
    }

    /// Returns the bytes that have arrived and were not read; `usize::MAX` if it cannot tell.
    pub(crate) fn arrived(&self) -> usize {
        if let Transport::Tcp(tcp) = self { tcp.arrived() } else { usize::MAX }
    }

    /// Returns true if its client has a certificate, as soon as bytes of it are read.
    pub(crate) fn proves_client(&self) -> bool {
        if let Transport::Tls(tls) = self { tls.proves_client() } else { false }
    }

    /// Returns the time after which a silent client is gone, if there is one; `timeout` is that of an open connection.
    pub(crate) fn timeout(&self, timeout: Option<Duration>) -> Option<Duration> {
        match self {
            Transport::Tls(_) if self.is_handshaking() => {
                Some(timeout.unwrap_or(TLS_HANDSHAKE_TIME).min(TLS_HANDSHAKE_TIME))
            }
            _ => timeout,
        }
    }

    /// Returns true if its handshake of TLS is not over.
    pub(crate) fn is_handshaking(&self) -> bool {
        if let Transport::Tls(tls) = self { tls.is_handshaking() } else { false }
    }

    /// Returns why its session of TLS was refused, if it was.
    pub(crate) fn tls_failure(&self) -> Option<String> {
        if let Transport::Tls(tls) = self { tls.failure() } else { None }
    }

    /// Returns true if it can be served by its shard only.
    pub(crate) fn belongs_to_shard(&self) -> bool {
        self.session().is_some()
    }

    /// Returns true if its shard polls words of it.
    pub(crate) fn has_words(&self) -> bool {
        match self {
            Transport::SharedMemory(_) => true,
            #[cfg(feature = "rdma")]
            Transport::Rdma(_) => true,
            _ => false,
        }
    }

    /// Returns true if its words have changed.
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        match self {
            Transport::SharedMemory(shared) => shared.end().has_changes(),
            #[cfg(feature = "rdma")]
            Transport::Rdma(rdma) => rdma.has_packet(),
            _ => false,
        }
    }

    /// Asks the client for a doorbell, of a transport that has words.
    pub(crate) fn begin_wait(&self) {
        match self {
            Transport::SharedMemory(shared) => shared.end().begin_wait(false),
            #[cfg(feature = "rdma")]
            Transport::Rdma(rdma) => rdma.arm(),
            _ => {}
        }
    }

    /// Returns the session, of a transport that has one.
    pub(crate) fn session(&self) -> Option<&SessionEnd> {
        match self {
            Transport::Datagram(datagram) => Some(datagram.end()),
            #[cfg(feature = "rdma")]
            Transport::Rdma(rdma) => Some(rdma.end()),
            _ => None,
        }
    }

    /// Ends the registration of [`Transport::register`].
    pub(crate) fn deregister(&self, poller: &Poller) {
        match self {
            Transport::Tcp(tcp) => tcp.deregister(poller),
            Transport::Tls(tls) => tls.tcp().deregister(poller),
            Transport::SharedMemory(shared) => shared.deregister(poller),
            Transport::Datagram(_) | Transport::MemcachedDatagram(_) => {}
            #[cfg(feature = "rdma")]
            Transport::Rdma(rdma) => rdma.deregister(poller),
            #[cfg(test)]
            Transport::Simulated(_) => {}
        }
    }

    /// Returns the event since the last call, of a transport that no poller waits for.
    #[cfg(test)]
    pub(crate) fn take_event(&self) -> Option<Event> {
        match self {
            Transport::Simulated(pipe) => pipe.take_event(),
            _ => None,
        }
    }

    /// Returns the addresses of the other side and of this one.
    pub(crate) fn addresses(&self) -> Result<(Address, Address)> {
        match self {
            Transport::Tcp(tcp) => tcp.addresses().map(|(peer, own)| (peer.into(), own.into())),
            Transport::Tls(tls) => tls.tcp().addresses().map(|(peer, own)| (peer.into(), own.into())),
            Transport::SharedMemory(shared) => Ok((shared.address(), shared.address())),
            Transport::Datagram(datagram) => {
                let (peer, own) = datagram.addresses();
                Ok((peer.into(), own.into()))
            }
            Transport::MemcachedDatagram(datagram) => {
                let (peer, own) = datagram.addresses();
                Ok((peer.into(), own.into()))
            }
            #[cfg(feature = "rdma")]
            Transport::Rdma(rdma) => Ok(rdma.addresses()),
            #[cfg(test)]
            Transport::Simulated(_) => {
                let local = Address::Network(([127, 0, 0, 1], 1).into());
                Ok((local.clone(), local))
            }
        }
    }

    /// Tells the peer that no more bytes will leave.
    pub(crate) fn finish(&self) -> Result<()> {
        match self {
            Transport::Tcp(tcp) => tcp.finish(),
            Transport::Tls(tls) => tls.finish(),
            Transport::SharedMemory(shared) => shared.end().finish(),
            Transport::Datagram(datagram) => datagram.end().finish(),
            Transport::MemcachedDatagram(datagram) => {
                datagram.finish();
                Ok(())
            }
            #[cfg(feature = "rdma")]
            Transport::Rdma(rdma) => rdma.end().finish(),
            #[cfg(test)]
            Transport::Simulated(pipe) => pipe.finish(),
        }
    }

    /// Returns the bytes written that the peer has acknowledged, of a transport that takes many more.
    pub(crate) fn acknowledged(&self) -> Option<u64> {
        match self {
            Transport::Tcp(tcp) => tcp.acknowledged(),
            _ => None,
        }
    }

    /// Returns true if the bytes that were written need this end no more. For one that has finished.
    pub(crate) fn is_delivered(&self, now: Instant) -> bool {
        match self {
            // The kernel or the shared files keep them.
            Transport::Tcp(_) | Transport::SharedMemory(_) | Transport::MemcachedDatagram(_) => true,
            Transport::Tls(tls) => tls.is_delivered(now),
            Transport::Datagram(datagram) => datagram.end().is_delivered(now),
            #[cfg(feature = "rdma")]
            Transport::Rdma(rdma) => rdma.end().is_delivered(now),
            #[cfg(test)]
            Transport::Simulated(_) => true,
        }
    }
}

impl Read for &Transport {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self {
            Transport::Tcp(tcp) => tcp.read(buffer),
            Transport::Tls(tls) => tls.read(buffer),
            Transport::SharedMemory(shared) => shared.end().receive(buffer),
            Transport::Datagram(datagram) => datagram.end().read(buffer),
            Transport::MemcachedDatagram(datagram) => Ok(datagram.read(buffer)),
            #[cfg(feature = "rdma")]
            Transport::Rdma(rdma) => rdma.end().read(buffer),
            #[cfg(test)]
            Transport::Simulated(pipe) => pipe.read(buffer),
        }
    }
}

impl Write for &Transport {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Transport::Tcp(tcp) => tcp.write(bytes),
            Transport::Tls(tls) => tls.write(bytes),
            Transport::SharedMemory(shared) => shared.end().send(bytes),
            Transport::Datagram(datagram) => datagram.end().write(bytes),
            Transport::MemcachedDatagram(datagram) => datagram.write(bytes),
            #[cfg(feature = "rdma")]
            Transport::Rdma(rdma) => rdma.end().write(bytes),
            #[cfg(test)]
            Transport::Simulated(pipe) => pipe.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
