//! A client's session over RDMA: a stream that a blocking client reads and writes.
//!
//! The client's thread drives it, as that of a session over UDP ([`crate::datagram::DatagramStream`]), with the same
//! steps: [`RdmaStream::prepare_wait`], a wait for the descriptor, [`RdmaStream::on_wake`]. The descriptor is one of
//! epoll. It is readable when a reply raises an event, or when the server ends the TCP connection.

use std::hash::{BuildHasher, RandomState};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::AWAKE_TIME;
use super::port::{gid_of, open};
use super::sends::SendQueue;
use super::setup::{ACCEPTANCE_SIZE, Acceptance, Request};
use super::slots::{PACKET_SIZE_MAX, PAYLOAD_SIZE_MAX, SLOT_COUNT, SLOT_SIZE, seal};
use super::verbs::{Channel, Domain, Kind, QueuePair, Region, Target};
use crate::datagram::{Control, Packet, Role, Session, packets};

/// Datagrams that may arrive before the client looks at them: more than a session has in flight.
const REPLIES_MAX: usize = 128;
/// The card puts a header before each datagram.
const ROUTE_HEADER_SIZE: usize = 40;
const REPLY_SIZE: usize = ROUTE_HEADER_SIZE + PACKET_SIZE_MAX;
const REPLY_WORDS: usize = REPLY_SIZE / size_of::<u64>();
/// The time for which a client polls before it sleeps: about what the wake-ups of the server and of the client take.
const SPIN_TIME: Duration = Duration::from_micros(50);

const _: () = assert!(REPLY_SIZE.is_multiple_of(size_of::<u64>()));

/// A client's end of a session.
pub struct RdmaStream {
    pub(super) writes: SendQueue,
    replies: QueuePair,
    memory: Region,
    channel: Arc<Channel>,
    pub(super) socket: TcpStream,
    epoll: OwnedFd,
    pub(super) session: Session,
    pub(super) slots: Acceptance,
    /// Packets that were written.
    written: usize,
    written_at: Option<Instant>,
    packet: Vec<u8>,
}

impl RdmaStream {
    /// Begins a session with the shard at this TCP address. Each step waits for at most the timeout.
    pub fn connect(address: SocketAddr, timeout: Duration) -> Result<RdmaStream> {
        let mut socket = TcpStream::connect_timeout(&address, timeout)?;
        socket.set_read_timeout(Some(timeout))?;
        socket.set_nodelay(true)?;
        let device = open(socket.local_addr()?.ip())?;
        let random = RandomState::new();
        let (reply_key, write_start) = (random.hash_one(0) as u32 >> 1, random.hash_one(1) as u32 >> 8);
        let channel = Channel::new(&device)?;
        let domain = Domain::new(&device)?;
        let memory = Region::new(&domain, REPLIES_MAX * REPLY_WORDS, false)?;
        let kind = Kind::Datagrams { key: reply_key };
        let replies = QueuePair::new(&domain, kind, [1, REPLIES_MAX as u32], 0, Some((&channel, 0)))?;
        for part in 0..REPLIES_MAX {
            replies.receive(part as u64, Some(memory.part(part * REPLY_SIZE, REPLY_SIZE)))?;
        }
        replies.begin()?;
        let writes = SendQueue::new(&domain, Kind::Connected)?;
        let (write_pair, reply_pair) = (writes.pair().number(), replies.number());
        socket.write_all(&Request { write_pair, write_start, reply_pair, reply_key }.encode())?;
        let mut acceptance = [0; ACCEPTANCE_SIZE];
        socket.read_exact(&mut acceptance).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => {
                Error::new(ErrorKind::ConnectionReset, "the server closed the connection without a reply")
            }
            ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
            _ => error,
        })?;
        let decoded = Acceptance::decode(&acceptance).map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
        let slots = decoded.map_err(|refusal| Error::new(ErrorKind::ConnectionRefused, refusal))?;
        writes.pair().connect(gid_of(address.ip()), slots.pair, write_start, slots.start)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &*channel, EventData::new_u64(0), EventFlags::IN)?;
        epoll::add(&epoll, &socket, EventData::new_u64(1), EventFlags::IN | EventFlags::RDHUP)?;
        let session = Session::new(slots.session, Role::Client, PAYLOAD_SIZE_MAX, Instant::now());
        let packet = Vec::with_capacity(SLOT_SIZE);
        let (written, written_at) = (0, None);
        Ok(RdmaStream { writes, replies, memory, channel, socket, epoll, session, slots, written, written_at, packet })
    }

    /// Sends the first of the bytes that there is room for. Returns how many these are, or [`ErrorKind::WouldBlock`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize> {
        if self.session.is_over() {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let size = self.session.write(bytes, usize::MAX);
        self.flush(Instant::now());
        if size > 0 || bytes.is_empty() { Ok(size) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    /// Moves bytes that arrived to the buffer. Returns their number, or zero if the server has ended the stream, or
    /// [`ErrorKind::WouldBlock`].
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.session.readable() == 0 {
            self.on_wake();
        }
        match self.session.read(buffer) {
            Some(size) => Ok(size),
            None if self.session.is_over() => Err(ErrorKind::ConnectionReset.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Sends what is due before the client waits, and asks for events. Returns the time at which
    /// [`RdmaStream::on_wake`] is to be called if nothing arrives.
    pub fn prepare_wait(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if self.replies.arm().is_err() {
            self.session.end();
        }
        // Replies that arrived before raise no event. They are taken first, because each ends the wait of the session.
        self.receive_packets(now);
        self.session.wait(now);
        self.flush(now);
        if self.is_readable() { Some(now) } else { self.session.deadline() }
    }

    /// Takes the packets and events that arrived, and repeats what was lost.
    pub fn on_wake(&mut self) {
        let now = Instant::now();
        while self.channel.next_event().is_some() {}
        self.receive_packets(now);
        if self.session.deadline().is_some_and(|deadline| now >= deadline) {
            self.session.on_deadline(now);
        }
        self.flush(now);
        // The server sends nothing over TCP, so anything there is the end of the session.
        match recv(&self.socket, &mut [0; 1], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => self.session.end(),
        }
    }

    /// Waits until there is something to read, for no longer than `limit`, and moves it to the buffer. Returns the number
    /// of bytes, or `None` if nothing arrived; zero means that the server has ended the stream.
    pub fn receive_within(&mut self, buffer: &mut [u8], limit: Duration) -> Result<Option<usize>> {
        let begun = Instant::now();
        while !self.is_readable() && begun.elapsed() < SPIN_TIME.min(limit) {
            self.receive_packets(Instant::now());
            std::hint::spin_loop();
        }
        while !self.is_readable() {
            let left = limit.saturating_sub(begun.elapsed());
            let now = Instant::now();
            let wait = self.prepare_wait().map_or(left, |deadline| deadline.saturating_duration_since(now).min(left));
            match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Timespec::try_from(wait).ok().as_ref()) {
                Ok(_) | Err(Errno::INTR) => self.on_wake(),
                Err(error) => return Err(error.into()),
            }
            if !self.is_readable() && begun.elapsed() >= limit {
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

    /// Returns true if the session can be used for another call: it has not ended, and no bytes wait to be read.
    pub fn is_silent(&mut self) -> bool {
        self.on_wake();
        !self.is_readable()
    }

    /// Takes the datagrams that arrived.
    fn receive_packets(&mut self, now: Instant) {
        while let Some(completion) = self.replies.next_received() {
            let part = completion.id as usize;
            self.packet.clear();
            let words = &self.memory.words()[part * REPLY_WORDS..(part + 1) * REPLY_WORDS];
            for word in &words[ROUTE_HEADER_SIZE / size_of::<u64>()..] {
                self.packet.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            self.packet.truncate(completion.size.saturating_sub(ROUTE_HEADER_SIZE));
            let received = self.replies.receive(completion.id, Some(self.memory.part(part * REPLY_SIZE, REPLY_SIZE)));
            if !completion.is_success || received.is_err() {
                self.session.end();
                return;
            }
            // The packet is padded.
            match packets(&self.packet).next() {
                Some(Ok(Packet::Data(data))) => _ = self.session.receive(&data, true, now),
                Some(Ok(Packet::Control(Control::Unknown { session }))) if session == self.session.number() => {
                    self.session.end();
                }
                _ => {}
            }
        }
    }

    /// Writes the packets that are due into the slots.
    fn flush(&mut self, now: Instant) {
        loop {
            self.packet.clear();
            if !self.session.next_packet(now, &mut self.packet) {
                return;
            }
            seal(&mut self.packet);
            let slot_end = (self.written % SLOT_COUNT + 1) * SLOT_SIZE;
            let address = self.slots.address + (slot_end - self.packet.len()) as u64;
            let wakes = self.written_at.is_none_or(|at| now.saturating_duration_since(at) > AWAKE_TIME);
            let target = Target::Memory { address, key: self.slots.key, wakes };
            // One that finds no room is lost, as on the network.
            if self.writes.send(&self.packet, target) {
                self.written += 1;
                self.written_at = Some(now);
            } else if self.writes.is_broken() {
                self.session.end();
            }
        }
    }
}

impl AsFd for RdmaStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl std::fmt::Debug for RdmaStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RdmaStream").field("session", &self.session).finish_non_exhaustive()
    }
}
