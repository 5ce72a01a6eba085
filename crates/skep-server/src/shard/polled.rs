//! The connections over shared memory or RDMA whose words the shard polls, and those that ring instead.
//!
//! ```text
//!            bytes or room: an event
//!   polled ───────────────────────────▶ queue
//!     │ ▲
//!     │ └──── doorbell, through epoll ──┐
//!     └── no change for 1024 turns, or ─┘
//!         the shard is about to sleep: it rings
//! ```
//!
//! In each turn, the shard compares the words of its polled connections with those of the last turn. That costs a line
//! of the cache for each, and no system call. A connection without a change for [`EMPTY_POLLS_MAX`] turns is asked to
//! ring, and so is each before the shard sleeps. So a turn costs nothing for an idle connection, and a shard that sleeps
//! uses no core.
//!
//! No connection is missed: after the shard has asked for doorbells, it compares the words once more. The client
//! publishes a word before it looks if the shard wants doorbells (`skep_transport::shared`). Over RDMA, the words are
//! those of the client's slots, and a doorbell is a completion event (`skep_transport::rdma`).
//!
//! While words are polled, epoll is polled only every [`KERNEL_POLL_TIME`].

use std::time::Instant;

use skep_transport::shared::Changes;

use super::Shard;
use crate::limits::{EMPTY_POLLS_MAX, KERNEL_POLL_TIME, POLLS_BEFORE_YIELD, SHARED_MEMORY_CONNECTIONS_MAX};
use crate::transport::shared_memory::SharedMemory;
use crate::transport::{Event, Transport};
use crate::vocabulary::Token;

/// The connections whose words the shard polls.
pub(super) struct Polled {
    connections: Vec<PolledConnection>,
    /// When epoll is polled next.
    next_kernel_poll: Instant,
}

struct PolledConnection {
    token: Token,
    /// Turns without a change.
    empty_polls: u32,
}

impl Polled {
    /// Creates an empty list.
    pub(super) fn new(now: Instant) -> Polled {
        Polled { connections: Vec::new(), next_kernel_poll: now }
    }

    /// Returns true if no words are polled: all clients ring.
    pub(super) fn awaits_doorbells(&self) -> bool {
        self.connections.is_empty()
    }

    /// Returns true if epoll is to be polled in this turn.
    pub(super) fn is_kernel_due(&mut self, now: Instant) -> bool {
        let is_due = self.connections.is_empty() || now >= self.next_kernel_poll;
        if is_due {
            self.next_kernel_poll = now + KERNEL_POLL_TIME;
        }
        is_due
    }
}

/// Returns the event for the changes of a connection.
fn event_of(changes: Changes) -> Option<Event> {
    let event = Event { is_readable: changes.has_bytes, is_writable: changes.has_room, ..Event::default() };
    (event != Event::default()).then_some(event)
}

impl Shard {
    /// Accepts the clients that ask for shared memory.
    pub(super) fn accept_shared_memory(&mut self, now: Instant) {
        let Some(mut listeners) = self.parts.listeners.take() else { return };
        let room = SHARED_MEMORY_CONNECTIONS_MAX.saturating_sub(self.parts.shared.shared_memory_connections());
        let mut accepted = Vec::new();
        listeners.accept_shared_memory(&self.poller, room, now, |shared| accepted.push(shared));
        self.parts.listeners = Some(listeners);
        for shared in accepted {
            match shared {
                Some(shared) => self.welcome_shared_memory(shared, now),
                None => self.metrics().connections.refused.add(1),
            }
        }
    }

    fn shared_memory(&self, token: Token) -> Option<&SharedMemory> {
        match &self.connections.get(token)?.transport {
            Transport::SharedMemory(shared) => Some(shared),
            _ => None,
        }
    }

    /// Polls the words of a connection from now on, if its transport has any. Does nothing if they are polled already.
    pub(super) fn poll_words_of(&mut self, token: Token) {
        if let Some(endpoint) = self.connections.get_mut(token)
            && endpoint.transport.has_words()
            && !endpoint.is_polled
        {
            endpoint.is_polled = true;
            self.polled.connections.push(PolledConnection { token, empty_polls: 0 });
        }
    }

    /// Takes the changes of a connection as an event. Returns `None` if it has ended, or another shard has it. With
    /// `all`, it looks into all slots of a client over RDMA. Each packet there is a change, also one without an event:
    /// the client sends the next one without a wake-up.
    #[cfg_attr(not(feature = "rdma"), expect(unused_variables, reason = "shared memory has neither slots nor timers"))]
    fn take_change(&mut self, token: Token, all: bool, now: Instant) -> Option<Option<Event>> {
        match &self.connections.get(token)?.transport {
            Transport::SharedMemory(shared) => Some(event_of(shared.end().take_changes())),
            #[cfg(feature = "rdma")]
            Transport::Rdma(rdma) if !all && !rdma.has_packet() => Some(None),
            #[cfg(feature = "rdma")]
            Transport::Rdma(_) => Some(self.receive_slots(token, all, now)),
            _ => None,
        }
    }

    /// Takes a doorbell of a connection over shared memory. Returns the event, or `None` if the transport is another.
    pub(super) fn take_doorbell(&mut self, token: Token, event: Event) -> Option<Event> {
        let end = self.shared_memory(token)?.end();
        end.end_wait();
        let is_open = end.take_doorbells();
        let Changes { has_bytes, has_room } = end.take_changes();
        self.poll_words_of(token);
        let is_over = event.is_over || !is_open;
        Some(Event { is_readable: has_bytes || is_over, is_writable: has_room, is_finished: is_over, is_over })
    }

    /// Polls the words of all polled connections.
    pub(super) fn poll_words(&mut self, now: Instant) {
        let mut index = 0;
        while let Some(polled) = self.polled.connections.get_mut(index) {
            let token = polled.token;
            polled.empty_polls += 1;
            let is_quiet = polled.empty_polls > EMPTY_POLLS_MAX;
            let Some(change) = self.take_change(token, false, now) else {
                self.polled.connections.swap_remove(index);
                continue;
            };
            if let Some(event) = change {
                self.polled.connections[index].empty_polls = 0;
                self.on_event(token, event, now);
            } else if is_quiet && self.wait_for_doorbell(token, now) {
                self.polled.connections.swap_remove(index);
                continue;
            }
            index += 1;
        }
    }

    /// Asks a connection for doorbells. Returns false if it has changed, and so stays polled.
    fn wait_for_doorbell(&mut self, token: Token, now: Instant) -> bool {
        let Some(endpoint) = self.connections.get(token) else { return true };
        endpoint.transport.begin_wait();
        if let Some(Some(event)) = self.take_change(token, true, now) {
            if let Some(shared) = self.shared_memory(token) {
                shared.end().end_wait();
            }
            self.on_event(token, event, now);
            return false;
        }
        if let Some(endpoint) = self.connections.get_mut(token) {
            endpoint.is_polled = false;
        }
        true
    }

    /// Asks all polled connections for doorbells, before the shard sleeps.
    pub(super) fn wait_for_doorbells(&mut self, now: Instant) {
        let mut polled = std::mem::take(&mut self.polled.connections);
        polled.retain(|polled| !self.wait_for_doorbell(polled.token, now));
        self.polled.connections = polled;
    }

    /// Polls the words of all polled connections for a moment, without a system call. Returns true if one may have
    /// changed, so that the next turn takes the change.
    pub(super) fn watch_words(&self) -> bool {
        let connections = &self.polled.connections;
        if connections.is_empty() {
            return false;
        }
        for _ in 0..POLLS_BEFORE_YIELD.div_ceil(connections.len()) {
            let mut endpoints = connections.iter().filter_map(|polled| self.connections.get(polled.token));
            if endpoints.any(|endpoint| endpoint.transport.has_changes()) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }
}
