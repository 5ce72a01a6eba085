//! The packets of a shard's sessions: it takes those that arrived before the work of a turn, and sends others after it.
//!
//! 1. Each packet is decoded. A malformed one, or one of no session, is dropped and counted with the reason.
//! 2. A hello without a valid cookie gets a challenge, and nothing is kept. One with a cookie begins a session, which is
//!    a native connection. It stays in this shard: a client finds the other shards at the ports after the first one.
//! 3. A data packet goes to its session. If there is more to read or room to write, the connection is queued.
//! 4. After the turn, the sessions that were read, written or whose time has come send their packets.
//!
//! A turn takes a bounded number of packets, and acts on a bounded number of those that ask for a control packet: on one
//! of each buffer that was received. So a flood of hellos takes no memory, gets no more than it has sent, and begins a
//! bounded number of sessions.

use std::net::SocketAddr;
use std::time::Instant;

use skep_transport::datagram::{Control, Data, Dropped, Packet, packets};

use super::{Parts, Shard};
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::limits::{ARRIVALS_IN_TURN_MAX, TURN_ARRIVALS_WORK};
use crate::parsed_batch::ParsedBatch;
use crate::transport::datagram::{Datagram, Datagrams};
use crate::transport::{Event, Transport};
use crate::vocabulary::Token;

impl Shard {
    /// Takes the packets that have arrived.
    pub(super) fn receive_datagrams(&mut self, now: Instant) {
        let Some(mut datagrams) = self.parts.datagrams.take() else { return };
        datagrams.begin_turn();
        let mut arrival = datagrams.lend_memory();
        let mut count = 0;
        for _ in 0..ARRIVALS_IN_TURN_MAX {
            let Some((bytes, from)) = datagrams.receive(&mut arrival) else { break };
            if bytes.is_empty() {
                self.metrics().datagrams.dropped[Dropped::Short as usize].add(1);
            }
            for packet in packets(bytes) {
                count += 1;
                let taken = packet.and_then(|packet| self.take_packet(packet, from, &mut datagrams, now));
                if let Err(reason) = taken {
                    self.metrics().datagrams.dropped[reason as usize].add(1);
                }
            }
            self.turn.account.spend_operations(1, bytes.len());
            if self.turn.account.spent() >= TURN_ARRIVALS_WORK {
                break;
            }
        }
        self.metrics().datagrams.received.add(count);
        datagrams.take_memory(arrival);
        self.parts.datagrams = Some(datagrams);
    }

    fn take_packet(
        &mut self,
        packet: Packet<'_>,
        from: SocketAddr,
        datagrams: &mut Datagrams,
        now: Instant,
    ) -> Result<(), Dropped> {
        match packet {
            Packet::Data(data) => self.take_data(&data, from, datagrams, now),
            Packet::Control(Control::Hello { client, cookie }) => self.take_hello(client, cookie, from, datagrams, now),
            Packet::Control(Control::Unknown { session }) => {
                let token = datagrams.token(from).ok_or(Dropped::Session)?;
                let datagram = self.datagram(token).filter(|datagram| datagram.end().number() == session);
                datagram.ok_or(Dropped::Session)?.end().end();
                self.on_event(token, Event::OVER, now);
                Ok(())
            }
            Packet::Control(Control::Challenge { .. } | Control::Accept { .. }) => Err(Dropped::Kind),
        }
    }

    fn take_data(
        &mut self,
        data: &Data<'_>,
        from: SocketAddr,
        datagrams: &mut Datagrams,
        now: Instant,
    ) -> Result<(), Dropped> {
        let session = datagrams.token(from).and_then(|token| Some((token, self.datagram(token)?)));
        let Some((token, datagram)) = session.filter(|(_, datagram)| datagram.end().number() == data.session) else {
            datagrams.take_reply()?;
            datagrams.send_control(Control::Unknown { session: data.session }, from);
            return Err(Dropped::Session);
        };
        let is_known = self.connections.connection(token).is_some_and(|connection| !connection.waits_for_hello());
        let received = datagram.end().receive(data, is_known, now)?;
        datagrams.sessions().list(token, datagram.end());
        let is_finished = received.is_readable && datagram.end().has_end();
        if received.is_readable || received.is_writable {
            let (is_readable, is_writable) = (received.is_readable, received.is_writable);
            self.on_event(token, Event { is_readable, is_writable, is_finished, is_over: false }, now);
            // One that is held has written at once.
            if let Some(datagram) = self.datagram(token) {
                datagrams.sessions().list(token, datagram.end());
            }
        }
        received.dropped.map_or(Ok(()), Err)
    }

    fn take_hello(
        &mut self,
        client: u64,
        cookie: u64,
        from: SocketAddr,
        datagrams: &mut Datagrams,
        now: Instant,
    ) -> Result<(), Dropped> {
        // Before anything else, so that hellos without a reply cost nothing.
        datagrams.take_reply()?;
        if let Some(challenge) = datagrams.check(from, client, cookie, now) {
            datagrams.send_control(challenge, from);
            return if cookie == 0 { Ok(()) } else { Err(Dropped::Cookie) };
        }
        if let Some(token) = datagrams.token(from) {
            match self.datagram(token).map(|datagram| (datagram.client(), datagram.end().number())) {
                Some((known, session)) if known == client => {
                    datagrams.send_control(Control::Accept { client, session }, from);
                    return Ok(());
                }
                // Another client has the address now.
                Some(_) => self.on_event(token, Event::OVER, now),
                None => {}
            }
        }
        let shared = &self.parts.shared;
        let has_room = shared.connection_count() < shared.settings.connections_max;
        if self.stop.until.is_some() || !has_room {
            self.metrics().connections.refused.add(1);
            return Err(Dropped::Sessions);
        }
        let datagram = datagrams.begin(from, client, now);
        let (peer, local) = datagram.addresses();
        let session = datagram.end().number();
        let number = shared.enter(peer, local, 0);
        self.metrics().connections.accepted.add(1);
        let connection = Connection::new(number, ParsedBatch::Handshake, now);
        let endpoint = Endpoint::new(connection, Transport::Datagram(Box::new(datagram)));
        if let Some(token) = self.take(Box::new(endpoint), now) {
            datagrams.insert(peer, token);
        }
        datagrams.send_control(Control::Accept { client, session }, from);
        Ok(())
    }

    fn datagram(&self, token: Token) -> Option<&Datagram> {
        match &self.connections.get(token)?.transport {
            Transport::Datagram(datagram) => Some(datagram),
            _ => None,
        }
    }

    /// Notes that a connection was read or written: if it has a session, that may have packets to send.
    pub(super) fn list_session(&mut self, token: Token) {
        if let Some(endpoint) = self.connections.get(token) {
            self.parts.list_session(token, &endpoint.transport);
        }
    }

    /// Sends the packets of all sessions, and repeats those that are late.
    pub(super) fn send_packets(&mut self, now: Instant) {
        self.send_datagrams(now);
        #[cfg(feature = "rdma")]
        self.send_rdma(now);
    }

    fn send_datagrams(&mut self, now: Instant) {
        let Some(mut datagrams) = self.parts.datagrams.take() else { return };
        while let Some((due, token)) = datagrams.sessions().next_due(now) {
            if let Some(datagram) = self.datagram(token) {
                datagrams.sessions().on_timer(due, token, datagram.end(), now);
            }
        }
        let (mut sent, mut repeated) = (0, 0);
        while let Some(token) = datagrams.sessions().next_listed() {
            if let Some(datagram) = self.datagram(token) {
                let counts = datagrams.flush(token, datagram, now);
                (sent, repeated) = (sent + counts.0, repeated + counts.1);
            }
        }
        self.metrics().datagrams.sent.add(sent);
        self.metrics().datagrams.repeated.add(repeated);
        let session = |token| {
            let waits_for_hello = self.connections.connection(token).is_some_and(Connection::waits_for_hello);
            Some((self.datagram(token)?, waits_for_hello))
        };
        for token in datagrams.expire(now, session) {
            self.on_event(token, Event::OVER, now);
        }
        self.parts.datagrams = Some(datagrams);
    }
}

impl Parts {
    /// Ends the session of a connection, if it has one.
    pub(super) fn end_session(&mut self, token: Token, transport: &Transport) {
        if let (Transport::Datagram(datagram), Some(datagrams)) = (transport, &mut self.datagrams) {
            datagrams.remove(token, datagram);
        }
        #[cfg(feature = "rdma")]
        if let (Transport::Rdma(rdma), Some(shard)) = (transport, &mut self.rdma) {
            shard.remove(token, rdma);
        }
    }

    /// Notes that a connection was read or written: if it has a session, that may have packets to send.
    pub(super) fn list_session(&mut self, token: Token, transport: &Transport) {
        let sessions = match transport {
            Transport::Datagram(_) => self.datagrams.as_mut().map(|datagrams| datagrams.sessions()),
            #[cfg(feature = "rdma")]
            Transport::Rdma(_) => self.rdma.as_mut().map(|rdma| rdma.sessions()),
            _ => None,
        };
        if let (Some(sessions), Some(end)) = (sessions, transport.session()) {
            sessions.list(token, end);
        }
    }
}
