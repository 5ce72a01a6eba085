//! Datagrams: the server's end of a session, as a transport, and the UDP socket that the sessions of a shard share.
//!
//! ```text
//!   socket ─ packets ─▶ session ─ read ──▶ connection ── write ─▶ session ─ packets ─▶ socket
//! ```
//!
//! A session has no socket, so reads and writes of a connection make no system call. The shard moves the packets of all
//! sessions, before and after the work of a turn (`shard/datagrams.rs`).
//!
//! The buffers of all sessions of a shard have a common bound. When it is reached, a session takes a packet only if it
//! can be read at once, and a write only up to one packet. So each session continues with two packets of memory.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::RandomState;
use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use skep_transport::datagram::{
    ARRIVAL_SIZE_MAX, Burst, Control, Cookies, Data, DatagramSocket, Dropped, PAYLOAD_SIZE_MAX, Received, SESSION_TIME,
    Session,
};
use socket2::{Domain, Protocol, Socket, Type};

use super::poller::{Poller, Source};
use crate::connections::Token;
use crate::limits::{
    CONTROL_PACKETS_IN_TURN_MAX, DRAIN_TIME, SESSION_BUFFERS_MAX, SESSION_HELLO_TIME, UDP_PORT_ATTEMPTS,
};
use crate::settings::StartError;
use crate::start::Steps;

/// The bytes that the sessions of a shard hold.
#[derive(Debug, Default)]
struct Held(AtomicUsize);

impl Held {
    fn has_room(&self) -> bool {
        self.0.load(Ordering::Relaxed) < SESSION_BUFFERS_MAX
    }
}

/// The server's end of a session.
#[derive(Debug)]
pub(crate) struct Datagram {
    session: RefCell<Session>,
    /// The number that the client chose for itself.
    client: u64,
    begun: Instant,
    peer: SocketAddr,
    local: SocketAddr,
    held: Arc<Held>,
    /// The part of this session in it.
    counted: Cell<usize>,
    /// It is in its shard's list of sessions that may have packets to send.
    is_listed: Cell<bool>,
    /// The time at which this side ended the stream.
    finished_at: Cell<Option<Instant>>,
    /// The time at which its shard checks its timers.
    timer: Cell<Option<Instant>>,
}

impl Datagram {
    /// Returns the addresses of the other side and of this one.
    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.peer, self.local)
    }

    /// Returns the number that the client chose for itself.
    pub(crate) fn client(&self) -> u64 {
        self.client
    }

    /// Returns the number of the session.
    pub(crate) fn number(&self) -> u64 {
        self.session.borrow().number()
    }

    /// Takes a packet. Of a client that is not yet known, only one that can be read at once is taken: its hello is one
    /// packet.
    pub(crate) fn receive(
        &self,
        data: &Data<'_>,
        is_known: bool,
        now: Instant,
    ) -> std::result::Result<Received, Dropped> {
        let mut session = self.session.borrow_mut();
        let received = session.receive(data, is_known && self.held.has_room(), now);
        self.count(&session);
        received
    }

    /// Returns true if the client has ended its stream.
    pub(crate) fn has_end(&self) -> bool {
        self.session.borrow().has_end()
    }

    /// Records that the client has ended the session.
    pub(crate) fn end(&self) {
        self.session.borrow_mut().end();
    }

    /// Ends the session if its client was silent for too long. Returns true if it has ended.
    pub(crate) fn expire(&self, now: Instant) -> bool {
        self.session.borrow_mut().expire(now)
    }

    /// Reads the bytes that have arrived.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let mut session = self.session.borrow_mut();
        match session.read(buffer) {
            Some(size) => {
                self.count(&session);
                Ok(size)
            }
            None if session.is_over() => Err(ErrorKind::ConnectionReset.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Writes as many bytes as the session takes.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<usize> {
        let mut session = self.session.borrow_mut();
        if session.is_over() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let size_max = if self.held.has_room() { usize::MAX } else { PAYLOAD_SIZE_MAX };
        let size = session.write(bytes, size_max);
        self.count(&session);
        if size > 0 { Ok(size) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    /// Tells the client that no more bytes will leave.
    pub(super) fn finish(&self) -> Result<()> {
        let mut session = self.session.borrow_mut();
        session.finish();
        if session.is_over() { Err(ErrorKind::NotConnected.into()) } else { Ok(()) }
    }

    /// Returns true if the client has everything that was written, and the end, or does not wait for it: a client that
    /// misses packets asks for them. One that is between two calls acknowledges nothing.
    pub(super) fn is_delivered(&self, now: Instant) -> bool {
        let session = self.session.borrow();
        let finished_at = self.finished_at.get().unwrap_or(now);
        self.finished_at.set(Some(finished_at));
        session.is_delivered() || now >= finished_at.max(session.heard_at()) + DRAIN_TIME
    }

    /// Records the memory of the session.
    fn count(&self, session: &Session) {
        let (before, after) = (self.counted.get(), session.memory());
        if before != after {
            // Only the thread of the shard changes the sum.
            let sum = self.held.0.load(Ordering::Relaxed) + after - before;
            self.held.0.store(sum, Ordering::Relaxed);
            self.counted.set(after);
        }
    }
}

impl Drop for Datagram {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.counted.get(), Ordering::Relaxed);
    }
}

/// Binds a socket for each shard: the first one at the address, the others at the ports after it. Sets the address to
/// the one that was bound.
pub(crate) fn bind(
    address: &mut SocketAddr,
    shards: u16,
    steps: &mut Steps,
) -> std::result::Result<Vec<UdpSocket>, StartError> {
    let wanted = *address;
    let bind_one = |address: SocketAddr| {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind(&address.into())?;
        Ok::<_, Error>(UdpSocket::from(socket))
    };
    // The shard whose socket is bound: its address and its number.
    let current = Cell::new((wanted, 0));
    let mut bind_all = || {
        current.set((wanted, 0));
        let first = bind_one(wanted)?;
        let bound = first.local_addr()?;
        let mut sockets = vec![first];
        for shard in 1..shards {
            // With the scope of an IPv6 address.
            let mut of_shard = bound;
            // Only a port that the system has chosen may be too near to the last one.
            of_shard.set_port(bound.port().checked_add(shard).ok_or(ErrorKind::AddrInUse)?);
            current.set((of_shard, shard));
            sockets.push(bind_one(of_shard)?);
        }
        *address = bound;
        Ok::<_, Error>(sockets)
    };
    let attempts = || {
        // The ports after a free port may be in use.
        let attempts = if wanted.port() == 0 { UDP_PORT_ATTEMPTS } else { 1 };
        (1..attempts).find_map(|_| bind_all().ok()).map_or_else(&mut bind_all, Ok)
    };
    steps.take(attempts, |source| match (source.kind(), current.get()) {
        (ErrorKind::AddrInUse, (address, shard)) => StartError::UdpInUse { address, shard },
        (_, (address, _)) => StartError::Listen { front_end: "UDP", address, source },
    })
}

/// The UDP socket of a shard, and its sessions.
#[derive(Debug)]
pub(crate) struct Datagrams {
    socket: DatagramSocket,
    local: SocketAddr,
    /// Memory for packets that arrive. It is lent while they are worked on.
    arrival: Box<[u8]>,
    burst: Burst,
    cookies: Cookies,
    held: Arc<Held>,
    /// The session of each address.
    tokens: HashMap<SocketAddr, Token>,
    /// Sessions that may have packets to send.
    listed: Vec<Token>,
    /// The times at which the timers of sessions are checked. Entries of an earlier time of a session have no effect.
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
    next_expiry_pass: Instant,
    /// Control packets that may be sent in this turn.
    control_left: usize,
    /// A packet of the buffer that was received last had a control packet as its reply.
    has_replied: bool,
}

/// The time between two passes that look for silent clients.
const EXPIRY_PASS_TIME: Duration = SESSION_TIME.checked_div(12).expect("the divisor is not 0");

impl Datagrams {
    /// Takes over a socket.
    pub(crate) fn new(socket: UdpSocket, now: Instant) -> Result<Datagrams> {
        let socket = DatagramSocket::new(socket);
        Ok(Datagrams {
            local: socket.local_address()?,
            socket,
            arrival: vec![0; ARRIVAL_SIZE_MAX].into(),
            burst: Burst::default(),
            cookies: Cookies::new(RandomState::new(), now),
            held: Arc::default(),
            tokens: HashMap::new(),
            listed: Vec::new(),
            timers: BinaryHeap::new(),
            next_expiry_pass: now,
            control_left: 0,
            has_replied: false,
        })
    }

    /// Lets the poller report when packets arrive.
    pub(crate) fn register(&self, poller: &Poller) -> rustix::io::Result<()> {
        poller.add(&self.socket, Source::Datagrams, EventFlags::IN)
    }

    /// Begins a turn.
    pub(crate) fn begin_turn(&mut self) {
        self.control_left = CONTROL_PACKETS_IN_TURN_MAX;
    }

    /// Lends the memory for packets that arrive.
    pub(crate) fn lend_memory(&mut self) -> Box<[u8]> {
        std::mem::take(&mut self.arrival)
    }

    /// Takes the memory back.
    pub(crate) fn take_memory(&mut self, arrival: Box<[u8]>) {
        self.arrival = arrival;
    }

    /// Receives packets that were sent together, and their sender.
    pub(crate) fn receive<'a>(&mut self, arrival: &'a mut [u8]) -> Option<(&'a [u8], SocketAddr)> {
        self.has_replied = false;
        self.socket.receive_from(arrival).unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot receive packets");
            None
        })
    }

    /// Takes one of the control packets that a turn may send: one for each buffer that was received, so that a forged
    /// address gets no more packets and bytes than were received from it.
    pub(crate) fn take_reply(&mut self) -> std::result::Result<(), Dropped> {
        if self.has_replied {
            return Err(Dropped::Turn);
        }
        self.control_left = self.control_left.checked_sub(1).ok_or(Dropped::Turn)?;
        self.has_replied = true;
        Ok(())
    }

    /// Sends a control packet, after [`Datagrams::take_reply`].
    pub(crate) fn send_control(&self, control: Control, to: SocketAddr) {
        // The client repeats a hello that has no reply.
        let _ = self.socket.send(&control.encode(), Some(to));
    }

    /// Checks the cookie of a hello. Returns the challenge for a client without a valid one.
    pub(crate) fn check(&self, peer: SocketAddr, client: u64, cookie: u64, now: Instant) -> Option<Control> {
        self.cookies.check(peer, client, cookie, now)
    }

    /// Creates a session for a client.
    pub(crate) fn begin(&mut self, peer: SocketAddr, client: u64, now: Instant) -> Datagram {
        let number = self.cookies.session_number();
        let session = Session::new(number, skep_transport::datagram::Role::Server, now);
        Datagram {
            session: RefCell::new(session),
            client,
            begun: now,
            peer,
            local: self.local,
            held: self.held.clone(),
            counted: Cell::new(0),
            is_listed: Cell::new(false),
            finished_at: Cell::new(None),
            timer: Cell::new(None),
        }
    }

    /// Returns the session of an address.
    pub(crate) fn token(&self, peer: SocketAddr) -> Option<Token> {
        self.tokens.get(&peer).copied()
    }

    /// Records the session of an address.
    pub(crate) fn insert(&mut self, peer: SocketAddr, token: Token) {
        self.tokens.insert(peer, token);
    }

    /// Forgets a session that ends on this side: sends what is left, and tells the client.
    pub(crate) fn remove(&mut self, token: Token, datagram: &Datagram) {
        if self.token(datagram.peer) == Some(token) {
            self.tokens.remove(&datagram.peer);
        }
        if !datagram.session.borrow().is_over() {
            self.send_packets(datagram, Instant::now());
            let unknown = Control::Unknown { session: datagram.number() }.encode();
            let _ = self.socket.send(&unknown, Some(datagram.peer));
        }
    }

    /// Puts a session on the list of those that may have packets to send.
    pub(crate) fn list(&mut self, token: Token, datagram: &Datagram) {
        if !datagram.is_listed.get() && datagram.session.borrow().has_packet() {
            datagram.is_listed.set(true);
            self.listed.push(token);
        }
    }

    /// Takes a session from the list.
    pub(crate) fn next_listed(&mut self) -> Option<Token> {
        self.listed.pop()
    }

    /// Sends the packets of a session. Returns the numbers of packets, and of copies among them.
    pub(crate) fn flush(&mut self, token: Token, datagram: &Datagram, now: Instant) -> (u64, u64) {
        datagram.is_listed.set(false);
        let sent = self.send_packets(datagram, now);
        if let Some(deadline) = datagram.session.borrow().deadline()
            && datagram.timer.get().is_none_or(|timer| deadline < timer)
        {
            datagram.timer.set(Some(deadline));
            self.timers.push(Reverse((deadline, token.to_u64())));
        }
        sent
    }

    fn send_packets(&mut self, datagram: &Datagram, now: Instant) -> (u64, u64) {
        let mut session = datagram.session.borrow_mut();
        let sent = self.burst.send(&mut session, &self.socket, Some(datagram.peer), now);
        datagram.count(&session);
        // Packets that the socket did not take are lost, as on the network.
        (sent.unwrap_or(0), session.take_repeated())
    }

    /// Takes a session whose time has come.
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<(Instant, Token)> {
        self.timers.peek().filter(|Reverse((due, _))| *due <= now)?;
        let Reverse((due, word)) = self.timers.pop()?;
        Some((due, Token::from_u64(word)))
    }

    /// Acts on a timer of a session.
    pub(crate) fn on_timer(&mut self, due: Instant, token: Token, datagram: &Datagram, now: Instant) {
        if datagram.timer.get() != Some(due) {
            return;
        }
        datagram.timer.set(None);
        let mut session = datagram.session.borrow_mut();
        match session.deadline() {
            Some(deadline) if deadline > now => {
                datagram.timer.set(Some(deadline));
                self.timers.push(Reverse((deadline, token.to_u64())));
            }
            Some(_) => {
                session.on_deadline(now);
                drop(session);
                // Also one without a packet gets its next timer with the flush.
                if !datagram.is_listed.replace(true) {
                    self.listed.push(token);
                }
            }
            None => {}
        }
    }

    /// Looks for silent clients, if it is time for that: `datagram` returns the session of a token, and true if its client
    /// has not sent its hello. Returns the sessions that have ended.
    pub(crate) fn expire<'d>(
        &mut self,
        now: Instant,
        datagram: impl Fn(Token) -> Option<(&'d Datagram, bool)>,
    ) -> Vec<Token> {
        let mut expired = Vec::new();
        if now >= self.next_expiry_pass && !self.tokens.is_empty() {
            self.next_expiry_pass = now + EXPIRY_PASS_TIME;
            self.tokens.retain(|_, token| match datagram(*token) {
                Some((datagram, waits_for_hello)) => {
                    let is_late = waits_for_hello && now >= datagram.begun + SESSION_HELLO_TIME;
                    expired.extend((datagram.expire(now) || is_late).then_some(*token));
                    true
                }
                // It was closed while packets were taken.
                None => false,
            });
        }
        expired
    }

    /// Returns the time until the timers of a session are to be checked.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let timer = self.timers.peek().map(|Reverse((due, _))| *due);
        let pass = (!self.tokens.is_empty()).then_some(self.next_expiry_pass);
        let due = timer.into_iter().chain(pass).min()?;
        Some(due.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_without_a_hello_ends_early() {
        let now = Instant::now();
        let mut datagrams = Datagrams::new(UdpSocket::bind("127.0.0.1:0").unwrap(), now).unwrap();
        let peer = SocketAddr::from(([127, 0, 0, 1], 9));
        let datagram = datagrams.begin(peer, 7, now);
        datagrams.insert(peer, Token::from_u64(1));
        let mut expired = |after, waits_for_hello| {
            datagrams.next_expiry_pass = now;
            datagrams.expire(now + after, |_| Some((&datagram, waits_for_hello))).len()
        };
        let moment = Duration::from_millis(1);
        assert_eq!(expired(SESSION_HELLO_TIME - moment, true), 0);
        assert_eq!(expired(SESSION_HELLO_TIME, true), 1);
        assert_eq!(expired(SESSION_TIME - moment, false), 0);
        assert_eq!(expired(SESSION_TIME, false), 1);
    }
}
