//! The clients of a shard over RDMA: from the TCP connection to the packets.
//!
//! 1. A TCP connection is accepted as a native connection. When its request has arrived, the client gets its slots: one
//!    client in a turn, because the device takes long for that. A client that sends no hello in time is closed.
//! 2. The shard polls the slots with the words of shared memory (`polled.rs`). Each packet goes to its session.
//! 3. After the turn, the sessions that were read, written or whose time has come send their packets.

use std::time::Instant;

use skep_transport::rdma::Refusal;

use super::Shard;
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::limits::ACCEPTED_IN_TURN_MAX;
use crate::parsed_batch::ParsedBatch;
use crate::random_number;
use crate::transport::rdma::Rdma;
use crate::transport::{Event, Transport};
use crate::vocabulary::Token;

impl Shard {
    fn rdma(&self, token: Token) -> Option<&Rdma> {
        match &self.connections.get(token)?.transport {
            Transport::Rdma(rdma) => Some(rdma),
            _ => None,
        }
    }

    /// Accepts TCP connections of clients over RDMA.
    pub(super) fn accept_rdma(&mut self, now: Instant) {
        for _ in 0..ACCEPTED_IN_TURN_MAX {
            let keepalive = self.parts.shared.adjustable.tcp_keepalive.get();
            let Some(rdma) = &mut self.parts.rdma else { return };
            let Some(rdma) = rdma.accept(&self.poller, random_number(), keepalive, now) else { return };
            let shared = &self.parts.shared;
            let has_room = shared.connection_count() < shared.settings.connections_max;
            if self.stop.until.is_some() || !has_room {
                rdma.refuse(Refusal::Full);
                self.metrics().connections.refused.add(1);
                continue;
            }
            let (peer, local) = rdma.addresses();
            let number = shared.enter(peer, local, 0);
            self.metrics().connections.accepted.add(1);
            let connection = Connection::new(number, ParsedBatch::Handshake, now);
            let token = self.take(Box::new(Endpoint::new(connection, Transport::Rdma(Box::new(rdma)))), now);
            if let Some(mut shard) = self.parts.rdma.take() {
                if let Some((token, rdma)) = token.and_then(|token| Some((token, self.rdma(token)?))) {
                    shard.await_hello(token, rdma);
                }
                self.parts.rdma = Some(shard);
            }
        }
    }

    /// Takes an event of the TCP connection of a client over RDMA: its request, or its end. Returns the event for the
    /// connection, or `None` if the transport is another.
    pub(super) fn take_rdma_setup(&mut self, token: Token, event: Event) -> Option<Event> {
        let Transport::Rdma(rdma) = &self.connections.get(token)?.transport else { return None };
        let shard = self.parts.rdma.as_mut()?;
        if !event.is_over && shard.take_request(token, rdma) {
            return Some(Event::default());
        }
        rdma.end().end();
        Some(Event::OVER)
    }

    /// Gives one client its slots, and ends the sessions of clients that have not sent a hello in time.
    pub(super) fn begin_sessions(&mut self, now: Instant) {
        let Some(mut shard) = self.parts.rdma.take() else { return };
        let mut ended = Vec::new();
        while let Some(token) = shard.next_request() {
            // Its connection may have ended meanwhile.
            let Some(rdma) = self.rdma(token) else { continue };
            let is_admitted = self.parts.shared.access.admits(rdma.addresses().0.ip());
            if shard.accept_request(token, rdma, is_admitted) {
                self.poll_words_of(token);
            } else {
                ended.push(token);
            }
            break;
        }
        while let Some(token) = shard.next_grown(now) {
            let is_late = self.connections.connection(token).is_some_and(Connection::waits_for_hello);
            ended.extend(is_late.then_some(token));
        }
        self.parts.rdma = Some(shard);
        for token in ended {
            if let Some(rdma) = self.rdma(token) {
                rdma.end().end();
            }
            self.on_event(token, Event::OVER, now);
        }
    }

    /// Takes the wake-ups of clients: it polls their slots from now on.
    pub(super) fn take_wakeups(&mut self, now: Instant) {
        while let Some(token) = self.parts.rdma.as_ref().and_then(|rdma| rdma.next_wakeup()) {
            if let Some(event) = self.receive_slots(token, true, now) {
                self.on_event(token, event, now);
            }
            self.poll_words_of(token);
        }
    }

    /// Takes the packets of a client. Returns the event that they are, which may be empty, or `None` if there was none.
    pub(super) fn receive_slots(&mut self, token: Token, all: bool, now: Instant) -> Option<Event> {
        let is_known = self.connections.connection(token).is_some_and(|connection| !connection.waits_for_hello());
        let Transport::Rdma(rdma) = &self.connections.get(token)?.transport else { return None };
        let metrics = &self.parts.shared.metrics(usize::from(self.parts.index)).rdma;
        let event = self.parts.rdma.as_mut()?.receive(token, rdma, all, is_known, metrics, now)?;
        if event.is_over {
            rdma.end().end();
        }
        Some(event)
    }

    /// Sends the packets of the sessions, and repeats those that are late.
    pub(super) fn send_rdma(&mut self, now: Instant) {
        let Some(mut shard) = self.parts.rdma.take() else { return };
        shard.resume(&self.poller, now);
        while let Some((due, token)) = shard.sessions().next_due(now) {
            if let Some(rdma) = self.rdma(token) {
                shard.sessions().on_timer(due, token, rdma.end(), now);
            }
        }
        let (mut sent, mut repeated) = (0, 0);
        while let Some(token) = shard.next_listed() {
            if let Some(rdma) = self.rdma(token) {
                let counts = shard.flush(token, rdma, now);
                (sent, repeated) = (sent + counts.0, repeated + counts.1);
            }
        }
        let metrics = &self.metrics().rdma;
        metrics.sent.add(sent);
        metrics.repeated.add(repeated);
        self.parts.rdma = Some(shard);
    }
}
