//! A client's session with its socket: a stream that a blocking client reads and writes.
//!
//! The client's thread drives it. Nothing is repeated or acknowledged between two calls of the client; the session is
//! made for that ([`super::session`]). A thread that waits for bytes does these steps until there are some:
//!
//! 1. [`DatagramStream::prepare_wait`] sends what is due and returns the latest time to wake up.
//! 2. The thread waits until the socket is readable, or until that time.
//! 3. [`DatagramStream::on_wake`] takes the packets that arrived, and repeats what was lost.
//!
//! A client that waits for this stream alone needs only the `recv` that waits: [`DatagramStream::receive_within`].

use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::handshake::Opening;
use super::packet::{Control, PAYLOAD_SIZE_MAX, Packet, packets};
use super::session::{Role, SESSION_TIME, Session};
use super::socket::{ARRIVAL_SIZE_MAX, Burst, DatagramSocket};

/// The shortest timeout of a receive that waits.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// A client's end of a session.
#[derive(Debug)]
pub struct DatagramStream {
    socket: DatagramSocket,
    address: SocketAddr,
    session: Session,
    arrival: Box<[u8]>,
    burst: Burst,
    /// The time after which a receive that waits ends.
    wait_max: Duration,
}

impl DatagramStream {
    /// Begins a session with a server. Fails if it does not accept within the timeout.
    pub fn connect(address: SocketAddr, timeout: Duration) -> Result<DatagramStream> {
        let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(address)?;
        let socket = DatagramSocket::new(socket);
        let mut arrival: Box<[u8]> = vec![0; ARRIVAL_SIZE_MAX].into();
        let begun = Instant::now();
        let mut opening = Opening::new(RandomState::new().hash_one(begun), begun);
        loop {
            let now = Instant::now();
            if now >= begun + timeout {
                return Err(ErrorKind::TimedOut.into());
            }
            if let Some(hello) = opening.hello(now) {
                socket.send(&hello.encode(), None)?;
            }
            let left = opening.deadline().min(begun + timeout).saturating_duration_since(now);
            socket.set_timeout(left.max(WAIT_MIN))?;
            let bytes = socket.receive(&mut arrival, true)?.unwrap_or_default();
            let now = Instant::now();
            let accepted = packets(bytes).find_map(|packet| match packet {
                Ok(Packet::Control(control)) => opening.receive(control, now),
                _ => None,
            });
            if let Some(number) = accepted {
                let session = Session::new(number, Role::Client, PAYLOAD_SIZE_MAX, now);
                socket.set_timeout(WAIT_MIN)?;
                let (burst, wait_max) = (Burst::default(), WAIT_MIN);
                return Ok(DatagramStream { socket, address, session, arrival, burst, wait_max });
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
        let flushed = self.flush(Instant::now());
        if size > 0 || bytes.is_empty() {
            // Some of the packets may have left before the error or after it, so the bytes count as sent. An error that
            // lasts comes again with the wait for the reply.
            return Ok(size);
        }
        flushed?;
        Err(ErrorKind::WouldBlock.into())
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

    /// Takes packets that arrived until there are bytes to read, and repeats what was lost.
    pub fn on_wake(&mut self) -> Result<()> {
        while self.session.readable() == 0 && self.receive_packets(false)? {}
        self.act(Instant::now())
    }

    /// Takes packets that arrived together. With `waits`, waits for them if there are none. Returns true if there were
    /// some.
    fn receive_packets(&mut self, waits: bool) -> Result<bool> {
        let Some(bytes) = self.socket.receive(&mut self.arrival, waits)? else { return Ok(false) };
        let now = Instant::now();
        for packet in packets(bytes) {
            match packet {
                Ok(Packet::Data(data)) => _ = self.session.receive(&data, true, now),
                Ok(Packet::Control(Control::Unknown { session })) if session == self.session.number() => {
                    self.session.end();
                }
                // Late replies to a hello, and packets without meaning.
                _ => {}
            }
        }
        Ok(true)
    }

    /// Repeats what was lost, and sends what is due.
    fn act(&mut self, now: Instant) -> Result<()> {
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
            let left = deadline.saturating_duration_since(Instant::now());
            // In powers of two, so that it seldom changes.
            let wait_max = Duration::from_millis((left.as_millis() as u64 + 1).next_power_of_two()).max(WAIT_MIN);
            if wait_max != self.wait_max {
                self.socket.set_timeout(wait_max)?;
                self.wait_max = wait_max;
            }
            self.receive_packets(true)?;
            self.act(Instant::now())?;
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
        match self.burst.send(&mut self.session, &self.socket, None, now) {
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
            _ = self.socket.send(&unknown, None);
        }
    }
}

impl AsFd for DatagramStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_left_beside_an_error_count_as_sent() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(address).unwrap();
        let mut stream = DatagramStream {
            socket: DatagramSocket::new(socket),
            address,
            session: Session::new(7, Role::Client, PAYLOAD_SIZE_MAX, Instant::now()),
            arrival: vec![0; ARRIVAL_SIZE_MAX].into(),
            burst: Burst::default(),
            wait_max: WAIT_MIN,
        };
        assert_eq!(stream.send(b"short").unwrap(), 5);
        // The packet is lost, so its copy and the next packet leave with a call each. The first of the calls returns the
        // error of the packet to the closed port.
        stream.session.on_deadline(stream.session.deadline().expect("a packet is in flight"));
        drop(server);
        stream.socket.send(b"to a closed port", None).unwrap();
        let server = UdpSocket::bind(address).unwrap();
        assert_eq!(stream.send(b"update").unwrap(), 6);
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut packet = [0; 100];
        let size = server.recv(&mut packet).expect("the second packet has left");
        let Ok(Packet::Data(data)) = Packet::decode(&packet[..size]) else { panic!("{packet:?}") };
        assert_eq!((data.number, data.payload), (Some(1), &b"update"[..]));
    }
}
