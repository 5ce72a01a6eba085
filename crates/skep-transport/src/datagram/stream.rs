//! A client's session with its socket: a stream that a blocking client reads and writes.
//!
//! The client's thread drives it. Nothing is repeated or acknowledged between two calls of the client; the session is
//! made for that ([`super::session`]). A thread that waits for bytes does these steps until there are some:
//!
//! 1. [`DatagramStream::prepare_wait`] sends what is due and returns the latest time to wake up.
//! 2. The thread waits until the socket is readable, or until that time.
//! 3. [`DatagramStream::on_wake`] takes the packets that arrived, and repeats what was lost.

use std::hash::{BuildHasher, RandomState};
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::handshake::Opening;
use super::packet::{Control, Packet};
use super::session::{SESSION_TIME, Session, Side};
use super::socket::{Arrivals, Burst, DatagramSocket};

/// Arrivals that are taken at a time: replies leave the server in bursts of up to 64 KiB.
const ARRIVALS: usize = 4;

/// A client's end of a session.
#[derive(Debug)]
pub struct DatagramStream {
    socket: DatagramSocket,
    address: SocketAddr,
    session: Session,
    arrivals: Arrivals,
    burst: Burst,
}

impl DatagramStream {
    /// Begins a session with a server. Fails if it does not accept within the timeout.
    pub fn connect(address: SocketAddr, timeout: Duration) -> Result<DatagramStream> {
        let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(address)?;
        let socket = DatagramSocket::new(socket)?;
        let mut arrivals = Arrivals::new(ARRIVALS);
        let begun = Instant::now();
        let mut opening = Opening::new(RandomState::new().hash_one(begun), begun);
        loop {
            let now = Instant::now();
            if now >= begun + timeout {
                return Err(ErrorKind::TimedOut.into());
            }
            if let Some(hello) = opening.hello(now) {
                let hello = hello.encode();
                socket.send(address, None, &hello, hello.len())?;
            }
            wait_readable(&socket, opening.deadline().min(begun + timeout))?;
            let now = Instant::now();
            socket.receive(&mut arrivals)?;
            let accepted = arrivals.packets().find_map(|arrival| match Packet::decode(arrival.bytes) {
                Ok(Packet::Control(control)) => opening.receive(control, now),
                _ => None,
            });
            if let Some(number) = accepted {
                let session = Session::new(number, Side::Client, now);
                return Ok(DatagramStream { socket, address, session, arrivals, burst: Burst::default() });
            }
        }
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends the first of the bytes that there is room for. Returns how many these are, or
    /// [`ErrorKind::WouldBlock`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize> {
        if self.session.is_over() {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let size = self.session.write(bytes, usize::MAX);
        self.flush(Instant::now())?;
        if size > 0 || bytes.is_empty() { Ok(size) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    /// Moves bytes that arrived to the buffer. Returns their number, or zero if the server has ended the stream, or
    /// [`ErrorKind::WouldBlock`].
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.session.readable() == 0 {
            self.on_wake()?;
        }
        match self.session.read(buffer) {
            Some(size) => Ok(size),
            None if self.session.is_over() => Err(ErrorKind::ConnectionReset.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Sends what is due before the client waits. Returns the time at which [`DatagramStream::on_wake`] is to be called
    /// if nothing arrives.
    pub fn prepare_wait(&mut self) -> Result<Option<Instant>> {
        let now = Instant::now();
        self.session.wait(now);
        self.flush(now)?;
        Ok(self.session.deadline())
    }

    /// Takes the packets that arrived, and repeats what was lost.
    pub fn on_wake(&mut self) -> Result<()> {
        let now = Instant::now();
        loop {
            let has_more = self.socket.receive(&mut self.arrivals)?;
            for arrival in self.arrivals.packets() {
                match Packet::decode(arrival.bytes) {
                    Ok(Packet::Data(data)) => _ = self.session.receive(&data, true, now),
                    Ok(Packet::Control(Control::Unknown { session })) if session == self.session.number() => {
                        self.session.end();
                    }
                    // Late replies to a hello, and packets without meaning.
                    _ => {}
                }
            }
            if !has_more {
                break;
            }
        }
        if self.session.deadline().is_some_and(|deadline| now >= deadline) {
            self.session.on_deadline(now);
        }
        self.flush(now)
    }

    /// Waits until there is something to read, for no longer than `limit`, and moves it to the buffer. Returns the number
    /// of bytes, or `None` if nothing arrived; zero means that the server has ended the stream.
    pub fn receive_within(&mut self, buffer: &mut [u8], limit: Duration) -> Result<Option<usize>> {
        let until = Instant::now() + limit;
        while !self.is_readable() {
            let deadline = self.prepare_wait()?.map_or(until, |deadline| deadline.min(until));
            wait_readable(&self.socket, deadline)?;
            self.on_wake()?;
            if !self.is_readable() && Instant::now() >= until {
                return Ok(None);
            }
        }
        self.receive(buffer).map(Some)
    }

    /// Returns true if there are bytes or an end to receive.
    pub fn is_readable(&self) -> bool {
        self.session.readable() > 0 || self.session.has_end() || self.session.is_over()
    }

    /// Returns true if there is room for bytes to send.
    pub fn is_writable(&self) -> bool {
        self.session.room() > 0
    }

    /// Returns true if the session can be used for another call: it has not ended, it will not end soon, and no bytes
    /// wait to be read.
    pub fn is_silent(&mut self) -> bool {
        let is_usable = self.on_wake().is_ok() && !self.session.is_over() && !self.session.has_end();
        is_usable && self.session.readable() == 0 && self.session.heard_at().elapsed() < SESSION_TIME / 2
    }

    /// Sends the packets that are due.
    fn flush(&mut self, now: Instant) -> Result<()> {
        if !self.session.has_packet() {
            return Ok(());
        }
        match self.burst.send(&mut self.session, &self.socket, self.address, None, now) {
            // A full socket loses packets, as a network does.
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for DatagramStream {
    /// Tells the server that the session has ended. If that is lost, the server learns it when the session expires.
    fn drop(&mut self) {
        if !self.session.is_over() {
            let unknown = Control::Unknown { session: self.session.number() }.encode();
            _ = self.socket.send(self.address, None, &unknown, unknown.len());
        }
    }
}

impl AsFd for DatagramStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until a socket is readable, or until a time.
fn wait_readable(socket: &DatagramSocket, until: Instant) -> Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
