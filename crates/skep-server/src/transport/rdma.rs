//! RDMA: the listeners, and a session whose packets verbs move. [`skep_transport::rdma`] has the slots and the device.
//!
//! ```text
//!   accepted: waits for the request ─▶ ready: the session moves bytes ─▶ over: the client has no access to memory
//! ```
//!
//! Each shard has a TCP listener at a port of its own, and opens the device itself. So its clients never move to another
//! shard. A TCP connection that was accepted counts as a connection at once: all limits of connections hold for it before
//! it has sent its request. Its end ends the session. One that has not sent a hello in time is closed, in every state.
//!
//! The device takes long to create the objects of a client. So a shard accepts one request in a turn.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::io::{ErrorKind, Read, Result, Write};
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use skep_transport::datagram::{Control, Dropped, Packet, WINDOW_MAX, packets};
use skep_transport::rdma::{PAYLOAD_SIZE_MAX, REQUEST_SIZE, RdmaEnd, RdmaPort, Refusal, Request};
use socket2::{Domain, Protocol, Socket, Type};

use super::Event;
use super::datagram::bind_shard_ports;
use super::poller::{Poller, Source};
use super::session::{SessionEnd, Sessions};
use super::tcp::prepare;
use crate::limits::{ACCEPT_PAUSE, BACKLOG, RDMA_CONNECTIONS_MAX, SESSION_HELLO_TIME};
use crate::metrics::PacketMetrics;
use crate::start::Steps;
use crate::start_error::StartError;
use crate::vocabulary::{Address, Token};

/// A session over RDMA.
#[derive(Debug)]
pub(crate) struct Rdma {
    socket: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    end: SessionEnd,
    /// The time at which its TCP connection was accepted.
    begun: Instant,
    state: RefCell<State>,
}

#[derive(Debug)]
enum State {
    /// It has received the first bytes of the request.
    Waits([u8; REQUEST_SIZE], usize),
    /// Its request is in the shard's queue.
    Queued(Request),
    Ready(Box<RdmaEnd>),
    Over,
}

impl Rdma {
    /// Returns the session.
    pub(crate) fn end(&self) -> &SessionEnd {
        &self.end
    }

    /// Returns the addresses of the TCP connection.
    pub(crate) fn addresses(&self) -> (Address, Address) {
        (self.peer.into(), self.local.into())
    }

    /// Lets the poller report the request, and the end of the client.
    pub(super) fn register(&self, poller: &Poller, source: Source) -> rustix::io::Result<()> {
        poller.add(&self.socket, source, EventFlags::IN | EventFlags::RDHUP | EventFlags::ET)
    }

    /// Ends the registration of [`Rdma::register`].
    pub(super) fn deregister(&self, poller: &Poller) {
        poller.remove(&self.socket);
    }

    /// Returns true if a packet may have arrived.
    #[inline]
    pub(crate) fn has_packet(&self) -> bool {
        matches!(&*self.state.borrow(), State::Ready(end) if end.has_packet())
    }

    /// Asks for an event when the client wakes the shard.
    pub(super) fn arm(&self) {
        if let State::Ready(end) = &mut *self.state.borrow_mut() {
            end.arm();
        }
    }

    /// Tells the client why it gets no session.
    pub(crate) fn refuse(&self, refusal: Refusal) {
        // The socket is new: its buffer has room for this, or the client has closed it.
        _ = (&self.socket).write_all(&refusal.encode());
    }

    /// Reads the rest of the request. Returns it when it is complete, or an error if the connection has ended. After the
    /// request, a client sends nothing.
    fn read_request(&self) -> Result<Option<[u8; REQUEST_SIZE]>> {
        let mut state = self.state.borrow_mut();
        loop {
            let mut byte = [0];
            let (bytes, size) = match &mut *state {
                State::Waits(bytes, size) => (&mut bytes[*size..], Some(size)),
                _ => (&mut byte[..], None),
            };
            match ((&self.socket).read(bytes), size) {
                (Err(error), _) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                (Err(error), _) if error.kind() == ErrorKind::Interrupted => {}
                (Err(error), _) => return Err(error),
                (Ok(0), _) | (Ok(_), None) => return Err(ErrorKind::ConnectionReset.into()),
                (Ok(read), Some(size)) => *size += read,
            }
            if let State::Waits(bytes, REQUEST_SIZE) = *state {
                return Ok(Some(bytes));
            }
        }
    }
}

/// Binds a listener for each shard, as UDP sockets are bound.
pub(crate) fn bind(
    address: &mut SocketAddr,
    shards: u16,
    steps: &mut Steps,
) -> std::result::Result<Vec<TcpListener>, StartError> {
    let bind_one = |address: SocketAddr| {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket)
    };
    let sockets = bind_shard_ports("RDMA", address, shards, steps, bind_one)?;
    Ok(sockets.into_iter().map(TcpListener::from).collect())
}

/// The listener and the RDMA device of a shard, and its sessions.
#[derive(Debug)]
pub(crate) struct RdmaShard {
    listener: TcpListener,
    port: RdmaPort,
    sessions: Sessions,
    /// Connections that were accepted a short time ago: when, and their tokens.
    young: BTreeSet<(Instant, u64)>,
    /// Connections whose requests are complete.
    requests: VecDeque<Token>,
    /// Sessions that are ready.
    ready_count: usize,
    /// Nothing is accepted before.
    paused_until: Option<Instant>,
    packet: Vec<u8>,
}

impl RdmaShard {
    /// Opens the device that has the address of the listener.
    pub(crate) fn new(listener: TcpListener, steps: &mut Steps) -> std::result::Result<RdmaShard, StartError> {
        let address = steps.open("a listener for RDMA", || listener.local_addr())?;
        let port = steps.take(|| RdmaPort::open(address.ip()), |source| StartError::Rdma { address, source })?;
        let (sessions, young, requests, packet) = Default::default();
        Ok(RdmaShard { listener, port, sessions, young, requests, ready_count: 0, paused_until: None, packet })
    }

    /// Lets the poller report connections and wake-ups.
    pub(crate) fn register(&self, poller: &Poller) -> rustix::io::Result<()> {
        poller.add(&self.listener, Source::RdmaListener, EventFlags::IN)?;
        poller.add(&self.port, Source::RdmaEvents, EventFlags::IN)
    }

    /// Accepts a connection. After an error of the system, none is accepted for a while. After `keepalive` seconds of
    /// silence, unless it is 0, the kernel asks for the peer.
    pub(crate) fn accept(&mut self, poller: &Poller, number: u64, keepalive: i64, now: Instant) -> Option<Rdma> {
        let accepted = || {
            let (socket, peer) = self.listener.accept()?;
            prepare(&socket, keepalive)?;
            Result::Ok((socket.local_addr()?, peer, socket))
        };
        match accepted() {
            Ok((local, peer, socket)) => {
                let end = self.sessions.begin(number, PAYLOAD_SIZE_MAX, now);
                let state = RefCell::new(State::Waits([0; REQUEST_SIZE], 0));
                Some(Rdma { socket, peer, local, end, begun: now, state })
            }
            Err(error) => {
                let is_of_system =
                    error.kind() != ErrorKind::WouldBlock && error.kind() != ErrorKind::ConnectionAborted;
                if is_of_system && self.paused_until.is_none() {
                    tracing::warn!(%error, "cannot accept connections over RDMA");
                    poller.remove(&self.listener);
                    self.paused_until = Some(now + ACCEPT_PAUSE);
                }
                None
            }
        }
    }

    /// Listens again when a pause is over.
    pub(crate) fn resume(&mut self, poller: &Poller, now: Instant) {
        if self.paused_until.is_some_and(|until| now >= until) {
            let resumed = poller.add(&self.listener, Source::RdmaListener, EventFlags::IN);
            self.paused_until = resumed.is_err().then(|| now + ACCEPT_PAUSE);
        }
    }

    /// Begins to count the time of a connection until its hello.
    pub(crate) fn await_hello(&mut self, token: Token, rdma: &Rdma) {
        self.young.insert((rdma.begun, token.to_u64()));
    }

    /// Returns a connection whose time for the hello is over.
    pub(crate) fn next_grown(&mut self, now: Instant) -> Option<Token> {
        let (begun, _) = self.young.first()?;
        (now >= *begun + SESSION_HELLO_TIME)
            .then(|| self.young.pop_first())
            .flatten()
            .map(|(_, word)| Token::from_u64(word))
    }

    /// Takes what has arrived over TCP. When that is the request, puts it into the queue. Returns false if the session
    /// is over.
    pub(crate) fn take_request(&mut self, token: Token, rdma: &Rdma) -> bool {
        match rdma.read_request() {
            Ok(Some(request)) => match Request::decode(&request) {
                Ok(request) => {
                    *rdma.state.borrow_mut() = State::Queued(request);
                    self.requests.push_back(token);
                    true
                }
                Err(error) => {
                    tracing::debug!(peer = %rdma.peer, %error, "closing a connection over RDMA");
                    false
                }
            },
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Takes a connection from the queue of requests.
    pub(crate) fn next_request(&mut self) -> Option<Token> {
        self.requests.pop_front()
    }

    /// Gives the client its slots, unless it is not admitted. Returns false if the session is over.
    pub(crate) fn accept_request(&mut self, token: Token, rdma: &Rdma, is_admitted: bool) -> bool {
        let State::Queued(request) = *rdma.state.borrow() else { return true };
        let accepted = match request {
            _ if !is_admitted => Err(Refusal::Protected),
            _ if self.ready_count == RDMA_CONNECTIONS_MAX => Err(Refusal::Full),
            request => {
                let accepted = self.port.accept(rdma.peer.ip(), &request, rdma.end.number(), token.to_u64());
                accepted.map_err(|error| {
                    tracing::warn!(peer = %rdma.peer, %error, "the RDMA device refuses a client");
                    Refusal::Device
                })
            }
        };
        // The socket is new: its buffer has room for this, or the client has closed it.
        match accepted {
            Ok((end, acceptance)) => {
                *rdma.state.borrow_mut() = State::Ready(Box::new(end));
                self.ready_count += 1;
                (&rdma.socket).write_all(&acceptance.encode()).is_ok()
            }
            Err(refusal) => {
                rdma.refuse(refusal);
                false
            }
        }
    }

    /// Returns a connection whose client wakes the shard.
    pub(crate) fn next_wakeup(&self) -> Option<Token> {
        self.port.next_event().map(Token::from_u64)
    }

    /// Takes the packets of a client: from the polled slots, or from all. Returns the event that they are, which may be
    /// empty, or `None` if there was nothing to take.
    pub(crate) fn receive(
        &mut self,
        token: Token,
        rdma: &Rdma,
        all: bool,
        is_known: bool,
        metrics: &PacketMetrics,
        now: Instant,
    ) -> Option<Event> {
        let mut event = Event::default();
        let mut state = rdma.state.borrow_mut();
        let State::Ready(end) = &mut *state else { return None };
        // Wake-ups that are left raise no event, so the shard polls the client until it has taken all.
        let Some(mut has_taken) = end.take_wakeups() else { return Some(Event::OVER) };
        // A client cannot keep the shard here by writing more.
        for _ in 0..WINDOW_MAX {
            let Some(taken) = end.take_packet(all, &mut self.packet) else { break };
            has_taken = true;
            metrics.received.add(1);
            let packet = taken.and_then(|()| packets(&self.packet).next().unwrap_or(Err(Dropped::Short)));
            let received = match packet {
                Ok(Packet::Data(data)) => rdma.end.receive(&data, is_known, now),
                Ok(Packet::Control(Control::Unknown { session })) if session == rdma.end.number() => {
                    return Some(Event::OVER);
                }
                Ok(Packet::Control(_)) => Err(Dropped::Kind),
                Err(reason) => Err(reason),
            };
            match received {
                Ok(received) => {
                    event.is_readable |= received.is_readable;
                    event.is_writable |= received.is_writable;
                    event.is_finished |= received.is_readable && rdma.end.has_end();
                    received.dropped.iter().for_each(|reason| metrics.dropped[*reason as usize].add(1));
                }
                Err(reason) => metrics.dropped[reason as usize].add(1),
            }
        }
        self.sessions.list(token, &rdma.end);
        has_taken.then_some(event)
    }

    /// Returns the lists of the sessions.
    pub(crate) fn sessions(&mut self) -> &mut Sessions {
        &mut self.sessions
    }

    /// Takes a session that may have packets to send, if the device has room for one.
    pub(crate) fn next_listed(&mut self) -> Option<Token> {
        if self.port.has_room() { self.sessions.next_listed() } else { None }
    }

    /// Sends the packets of a session. Returns the numbers of packets, and of copies among them. A session with packets
    /// that found no room is listed again, after the others.
    pub(crate) fn flush(&mut self, token: Token, rdma: &Rdma, now: Instant) -> (u64, u64) {
        let sent = self.send_packets(rdma, now);
        self.sessions.end_flush(token, &rdma.end);
        if !self.port.has_room() {
            self.sessions.list(token, &rdma.end);
        }
        sent
    }

    fn send_packets(&mut self, rdma: &Rdma, now: Instant) -> (u64, u64) {
        let mut state = rdma.state.borrow_mut();
        let State::Ready(end) = &mut *state else { return (0, 0) };
        rdma.end.send(|session| {
            let mut count = 0;
            self.packet.clear();
            while self.port.has_room() && session.next_packet(now, &mut self.packet) {
                // One that the device refuses is lost, as on the network.
                count += u64::from(self.port.send(end, &mut self.packet));
                self.packet.clear();
            }
            count
        })
    }

    /// Ends a session on this side: sends what is left, and ends the client's access to its slots.
    pub(crate) fn remove(&mut self, token: Token, rdma: &Rdma) {
        self.young.remove(&(rdma.begun, token.to_u64()));
        self.send_packets(rdma, Instant::now());
        if let State::Ready(end) = mem::replace(&mut *rdma.state.borrow_mut(), State::Over) {
            self.ready_count -= 1;
            self.port.end(*end);
        }
    }

    /// Returns the time until a session is to be looked at, or connections are accepted again.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        // The device tells nothing when it has room for packets.
        let next_turn = (!self.requests.is_empty() || self.sessions.has_listed()).then_some(now);
        let hello = self.young.first().map(|(begun, _)| *begun + SESSION_HELLO_TIME);
        let due = [self.sessions.next_timer(), self.paused_until, next_turn, hello].into_iter().flatten().min()?;
        Some(due.saturating_duration_since(now))
    }
}
