//! Connections that wait for memory, and those that hold it.
//!
//! A connection that may not hold the memory for its next step is *starved*: it is not read and its requests are not
//! worked on. It is tried again when this shard releases memory and is not short, and, since another shard may have
//! released some, at every tick at which something has changed, and once a second.
//!
//! Once a second, while connections hold more than their shares:
//!
//! 1. Empty buffers of connections that were silent for a second are returned, and a connection with priority that
//!    waits for its client loses its priority. A starved connection is closed if its client has closed its side and it
//!    was silent for [`SILENCE_MAX`].
//! 2. A connection is *unresponsive* if it holds more than its share and has neither read nor written a byte for
//!    [`SILENCE_MAX`].
//! 3. An unresponsive connection that waits for its client is closed if memory is scarce, or if it waits for memory
//!    itself: its client sends requests and takes no replies. The longest unresponsive ones are closed first, until
//!    memory is not scarce. One is also closed if a request lacks memory although some is free.
//! 4. If none was closed and memory is scarce or lacking, the unresponsive connections that lack memory wait for each
//!    other. The one that holds most is closed, so that the others continue. The one with priority is closed only if
//!    there is no other one.

use std::time::Instant;

use super::Shard;
use crate::connection::{Connection, Next};
use crate::connections::Token;
use crate::limits::{MEMORY_SCAN_TIME, SILENCE_MAX};
use crate::memcached_statistics::Count;
use crate::transport::Transport;

impl Shard {
    /// Puts a connection on the list of those that wait for memory, once. A datagram is dropped: its client may have given
    /// up when there is memory, and others cannot take its place while it waits.
    pub(super) fn starve(&mut self, token: Token) {
        let Some(endpoint) = self.connections.get_mut(token) else { return };
        if let Transport::MemcachedDatagram(_) = endpoint.transport {
            self.metrics().memcached.add(Count::DatagramsRefused);
            self.close(token);
        } else if !endpoint.waits_for_memory {
            endpoint.waits_for_memory = true;
            self.shard_budget.memory_budget().begin_wait();
            self.starved.push(token);
        }
    }

    /// Returns true if memory is to be scanned from time to time, also while nothing else happens.
    pub(super) fn watches_memory(&self) -> bool {
        self.shard_budget.borrowed() > 0 || !self.starved.is_empty() || self.shard_budget.has_wanting()
    }

    /// Tries starved connections again if memory was released.
    pub(super) fn retry_starved(&mut self) {
        if self.shard_budget.take_released() && !self.starved.is_empty() && !self.shard_budget.is_short() {
            self.queue_starved();
        }
    }

    fn queue_starved(&mut self) {
        let mut starved = std::mem::take(&mut self.starved);
        starved.sort_by_cached_key(|token| self.connections.connection(*token).map(Connection::rank));
        for token in starved {
            self.shard_budget.memory_budget().end_wait();
            if let Some(endpoint) = self.connections.get_mut(token) {
                endpoint.waits_for_memory = false;
            }
            self.queue(token);
        }
    }

    /// Tries starved connections again, returns memory that silent connections do not need, and closes unresponsive
    /// ones.
    pub(super) fn scan_memory(&mut self, now: Instant) {
        let is_due = now >= self.next_memory_scan;
        let wants_room = |token: &Token| self.connections.connection(*token).is_some_and(Connection::wants_room);
        let wanting = self.starved.iter().filter(|token| wants_room(token)).count();
        self.shard_budget.publish_wanting(wanting);
        if is_due {
            self.next_memory_scan = now + MEMORY_SCAN_TIME;
        }
        if is_due && self.watches_memory() {
            let (mut unresponsive, mut left) = (Vec::new(), Vec::new());
            for (token, endpoint) in self.connections.iter_mut() {
                let connection = &mut endpoint.connection;
                let silent = now.saturating_duration_since(connection.progress_at());
                if connection.waits_for_client() || silent >= SILENCE_MAX && !connection.wants_room() {
                    // Other connections may borrow little while one has priority, and its client may never send the
                    // rest of its request.
                    connection.yield_priority(&self.shard_budget);
                }
                if connection.is_left() && silent >= SILENCE_MAX {
                    left.push(token);
                } else if connection.borrows() && silent >= MEMORY_SCAN_TIME {
                    connection.release(&mut self.shard_budget);
                    if connection.borrows() && silent >= SILENCE_MAX {
                        unresponsive.push((connection.progress_at(), token));
                    }
                }
            }
            left.into_iter().for_each(|token| self.close(token));
            unresponsive.sort_unstable_by_key(|(progress_at, _)| *progress_at);
            self.close_unresponsive(&unresponsive, now);
            self.metrics().publish_memory(&self.shard_budget);
        }
        if wanting == 0 {
            self.shard_budget.memory_budget().end_priority();
        }
        if self.shard_budget.take_change() || is_due {
            self.queue_starved();
        }
    }

    /// Closes unresponsive connections, the longest unresponsive first, as far as memory is needed.
    fn close_unresponsive(&mut self, unresponsive: &[(Instant, Token)], now: Instant) {
        let mut is_one_closed = false;
        let mut largest = None;
        for &(_, token) in unresponsive {
            let Some(connection) = self.connections.connection(token) else { continue };
            let waits_for_client = connection.waits_for_client();
            if connection.is_starved() && !waits_for_client {
                largest = largest.max(Some((!connection.has_priority(), connection.held(), token.to_u64())));
            }
            let memory_budget = self.shard_budget.memory_budget();
            let is_needed = memory_budget.is_scarce() || memory_budget.is_wanted() && !is_one_closed;
            if waits_for_client && (connection.is_starved() || is_needed) {
                self.close_one_unresponsive(token, now);
                is_one_closed = true;
            }
        }
        if let Some((.., word)) = largest
            && !is_one_closed
            && (self.shard_budget.memory_budget().is_scarce() || self.shard_budget.memory_budget().is_wanted())
        {
            self.close_one_unresponsive(Token::from_u64(word), now);
        }
    }

    fn close_one_unresponsive(&mut self, token: Token, now: Instant) {
        let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
        let Some(endpoint) = self.connections.get_mut(token) else { return };
        let next = endpoint.close_unresponsive(metrics, now, &mut self.shard_budget);
        self.list_session(token);
        match next {
            Next::Drain => self.draining.push(token),
            _ => self.close(token),
        }
    }
}
