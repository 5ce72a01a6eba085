//! Connections that wait for memory, and those that keep it from them.
//!
//! A connection that may not hold what its next step needs is *starved*: it is not read and its requests are not worked on.
//! It is tried again when this shard releases memory and is not short, and, since another shard may have released some, at
//! every tick at which something has changed, and once a second.
//!
//! Once a second, while connections hold more than their shares:
//!
//! 1. Empty buffers of connections that were silent for a second are returned, and a senior that waits for its client
//!    stops being it. A starved connection is closed if its client has closed its side and it was silent for [`SILENCE_MAX`].
//! 2. A connection is *stalled* if it holds more than its share and has neither read nor written a byte for [`SILENCE_MAX`].
//! 3. A stalled connection that waits for its client is closed if memory is scarce, or if it waits for memory itself: its
//!    client sends requests and takes no replies. The longest stalled ones are closed first, until memory is not scarce.
//!    One is also closed if a request lacks memory although some is free.
//! 4. If there is none and memory is scarce or lacking, stalled connections that wait for memory wait for each other's. The one that
//!    holds most is closed, so that the others go on; the senior only if there is no other one.

use std::time::Instant;

use super::Shard;
use crate::connection::{Connection, Next};
use crate::connections::Token;
use crate::limits::{MEMORY_SCAN_TIME, SILENCE_MAX};

impl Shard {
    /// Puts a connection on the list of those that wait for memory, once.
    pub(super) fn starve(&mut self, token: Token) {
        if let Some(endpoint) = self.connections.get_mut(token)
            && !endpoint.waits_for_memory
        {
            endpoint.waits_for_memory = true;
            self.purse.ledger().begin_wait();
            self.starved.push(token);
        }
    }

    /// Returns true if memory is to be looked after from time to time, also while nothing else happens.
    pub(super) fn watches_memory(&self) -> bool {
        self.purse.borrowed() > 0 || !self.starved.is_empty() || self.purse.has_wanting()
    }

    /// Tries starved connections again if memory was released.
    pub(super) fn retry_starved(&mut self) {
        if self.purse.take_released() && !self.starved.is_empty() && !self.purse.is_short() {
            self.queue_starved();
        }
    }

    fn queue_starved(&mut self) {
        let mut starved = std::mem::take(&mut self.starved);
        starved.sort_by_cached_key(|token| self.connections.connection(*token).map(Connection::rank));
        for token in starved {
            self.purse.ledger().end_wait();
            if let Some(endpoint) = self.connections.get_mut(token) {
                endpoint.waits_for_memory = false;
            }
            self.queue(token);
        }
    }

    /// Tries starved connections again, returns what silent connections do not need, and closes stalled ones.
    pub(super) fn scan_memory(&mut self, now: Instant) {
        let is_due = now >= self.next_memory_scan;
        let wants_room = |token: &Token| self.connections.connection(*token).is_some_and(Connection::wants_room);
        let wanting = self.starved.iter().filter(|token| wants_room(token)).count();
        self.purse.publish_wanting(wanting);
        if is_due {
            self.next_memory_scan = now + MEMORY_SCAN_TIME;
        }
        if is_due && self.watches_memory() {
            let (mut stalled, mut left) = (Vec::new(), Vec::new());
            for (token, endpoint) in self.connections.iter_mut() {
                let connection = &mut endpoint.connection;
                let silent = now.saturating_duration_since(connection.progress_at());
                if connection.waits_for_client() || silent >= SILENCE_MAX && !connection.wants_room() {
                    // The others may borrow little beside a senior, and its client may never send the rest of its request.
                    connection.resign(&self.purse);
                }
                if connection.is_left() && silent >= SILENCE_MAX {
                    left.push(token);
                } else if connection.borrows() && silent >= MEMORY_SCAN_TIME {
                    connection.release(&mut self.purse);
                    if connection.borrows() && silent >= SILENCE_MAX {
                        stalled.push((connection.progress_at(), token));
                    }
                }
            }
            left.into_iter().for_each(|token| self.close(token));
            stalled.sort_unstable_by_key(|(progress_at, _)| *progress_at);
            self.close_stalled(&stalled, now);
            self.metrics().publish_memory(&self.purse);
        }
        if wanting == 0 {
            self.purse.ledger().end_seniority();
        }
        if self.purse.take_change() || is_due {
            self.queue_starved();
        }
    }

    /// Closes stalled connections, the longest stalled first, as far as memory is needed.
    fn close_stalled(&mut self, stalled: &[(Instant, Token)], now: Instant) {
        let mut is_one_closed = false;
        let mut largest = None;
        for &(_, token) in stalled {
            let Some(connection) = self.connections.connection(token) else { continue };
            let waits_for_client = connection.waits_for_client();
            if connection.is_starved() && !waits_for_client {
                largest = largest.max(Some((!connection.is_senior(), connection.held(), token.to_u64())));
            }
            let ledger = self.purse.ledger();
            let is_needed = ledger.is_scarce() || ledger.is_wanted() && !is_one_closed;
            if waits_for_client && (connection.is_starved() || is_needed) {
                self.close_one_stalled(token, now);
                is_one_closed = true;
            }
        }
        if let Some((.., word)) = largest
            && !is_one_closed
            && (self.purse.ledger().is_scarce() || self.purse.ledger().is_wanted())
        {
            self.close_one_stalled(Token::from_u64(word), now);
        }
    }

    fn close_one_stalled(&mut self, token: Token, now: Instant) {
        let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
        let Some(endpoint) = self.connections.get_mut(token) else { return };
        match endpoint.close_stalled(metrics, now, &mut self.purse) {
            Next::Drain => self.lingering.push(token),
            _ => self.close(token),
        }
    }
}
