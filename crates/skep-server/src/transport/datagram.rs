//! Datagrams: the server's end of a session over UDP, and the socket that the sessions of a shard share. The shard moves
//! the packets of all sessions, before and after the work of a turn (`shard/datagrams.rs`).

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::RandomState;
use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use skep_transport::datagram::{
    ARRIVAL_SIZE_MAX, Burst, Control, Cookies, DatagramSocket, Dropped, PAYLOAD_SIZE_MAX, SESSION_TIME,
};
use socket2::{Domain, Protocol, Socket, Type};

use super::poller::{Poller, Source};
use super::session::{SessionEnd, Sessions};
use crate::limits::{CONTROL_PACKETS_IN_TURN_MAX, SESSION_HELLO_TIME, SHARD_PORT_ATTEMPTS};
use crate::start::Steps;
use crate::start_error::StartError;
use crate::vocabulary::Token;

/// The server's end of a session over UDP.
#[derive(Debug)]
pub(crate) struct Datagram {
    end: SessionEnd,
    /// The number that the client chose for itself.
    client: u64,
    begun: Instant,
    peer: SocketAddr,
    local: SocketAddr,
}

impl Datagram {
    /// Returns the session.
    pub(crate) fn end(&self) -> &SessionEnd {
        &self.end
    }

    /// Returns the addresses of the other side and of this one.
    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.peer, self.local)
    }

    /// Returns the number that the client chose for itself.
    pub(crate) fn client(&self) -> u64 {
        self.client
    }
}

/// Binds a socket for each shard: the first one at the address, the others at the ports after it. Sets the address to
/// the one that was bound.
pub(crate) fn bind(
    address: &mut SocketAddr,
    shards: u16,
    steps: &mut Steps,
) -> std::result::Result<Vec<UdpSocket>, StartError> {
    let bind_one = |address: SocketAddr| {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind(&address.into())?;
        Ok(socket)
    };
    let sockets = bind_shard_ports("UDP", address, shards, steps, bind_one)?;
    Ok(sockets.into_iter().map(UdpSocket::from).collect())
}

/// Binds a socket for each shard: the first one at the address, the others at the ports after it. Sets the address to
/// the one that was bound.
pub(super) fn bind_shard_ports(
    front_end: &'static str,
    address: &mut SocketAddr,
    shards: u16,
    steps: &mut Steps,
    bind_one: impl Fn(SocketAddr) -> Result<Socket>,
) -> std::result::Result<Vec<Socket>, StartError> {
    let wanted = *address;
    // The shard whose socket is bound: its address and its number.
    let current = Cell::new((wanted, 0));
    let mut bind_all = || {
        current.set((wanted, 0));
        let first = bind_one(wanted)?;
        let bound = first.local_addr()?.as_socket().ok_or(ErrorKind::InvalidInput)?;
        let mut sockets = vec![first];
        for shard in 1..shards {
            // With the scope of an IPv6 address.
            let mut of_shard = bound;
            // Only a port that the system has chosen may be too near to the last one. Then the shard has none: port 0.
            let port = bound.port().checked_add(shard);
            of_shard.set_port(port.unwrap_or(0));
            current.set((of_shard, shard));
            port.ok_or(ErrorKind::AddrInUse)?;
            sockets.push(bind_one(of_shard)?);
        }
        *address = bound;
        Ok::<_, Error>(sockets)
    };
    let attempts = || {
        // The ports after a free port may be in use.
        let attempts = if wanted.port() == 0 { SHARD_PORT_ATTEMPTS } else { 1 };
        (1..attempts).find_map(|_| bind_all().ok()).map_or_else(&mut bind_all, Ok)
    };
    steps.take(attempts, |source| match (source.kind(), current.get()) {
        (ErrorKind::AddrInUse, (address, shard)) => StartError::ShardPortInUse { front_end, address, shard },
        (_, (address, _)) => StartError::Listen { front_end, address, source },
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
    sessions: Sessions,
    /// The session of each address.
    tokens: HashMap<SocketAddr, Token>,
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
            sessions: Sessions::default(),
            tokens: HashMap::new(),
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
        Datagram {
            end: self.sessions.begin(number, PAYLOAD_SIZE_MAX, now),
            client,
            begun: now,
            peer,
            local: self.local,
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
        if !datagram.end.is_over() {
            self.send_packets(datagram, Instant::now());
            let unknown = Control::Unknown { session: datagram.end.number() }.encode();
            let _ = self.socket.send(&unknown, Some(datagram.peer));
        }
    }

    /// Returns the lists of the sessions.
    pub(crate) fn sessions(&mut self) -> &mut Sessions {
        &mut self.sessions
    }

    /// Sends the packets of a session. Returns the numbers of packets, and of copies among them.
    pub(crate) fn flush(&mut self, token: Token, datagram: &Datagram, now: Instant) -> (u64, u64) {
        let sent = self.send_packets(datagram, now);
        self.sessions.end_flush(token, &datagram.end);
        sent
    }

    fn send_packets(&mut self, datagram: &Datagram, now: Instant) -> (u64, u64) {
        // Packets that the socket did not take are lost, as on the network.
        datagram.end.send(|session| self.burst.send(session, &self.socket, Some(datagram.peer), now).unwrap_or(0))
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
                    expired.extend((datagram.end.expire(now) || is_late).then_some(*token));
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
        let timer = self.sessions.next_timer();
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
