//! Connections that wait for memory, and those that keep it from them.
//!
//! A connection that may not hold what its next step needs is *starved*: it is not read and its requests are not worked on.
//! It is tried again when this shard releases memory, and, since another shard may have released some, at every tick.
//!
//! Once a second, while connections hold more than their shares:
//!
//! 1. Empty buffers of connections that were silent for a second are returned.
//! 2. A connection is *stalled* if it holds more than its share and has neither read nor written a byte for [`STALL`]. The
//!    longest stalled ones are closed: all that are while memory is scarce, so that the others go on; otherwise one, if it
//!    is itself starved. So connections that wait for each other's memory do not wait for ever.

use std::time::{Duration, Instant};

use super::Shard;
use crate::connection::Next;
use crate::connections::Token;

/// How often memory is looked after, and how long a connection is silent before its empty buffers are returned.
const SCAN: Duration = Duration::from_secs(1);
/// How long a connection may hold more than its share without progress while memory is wanted.
const STALL: Duration = Duration::from_secs(10);

impl Shard {
    /// Puts a connection on the list of those that wait for memory, once.
    pub(super) fn starve(&mut self, token: Token) {
        if let Some(connection) = self.connections.get_mut(token)
            && !connection.waits_for_memory
        {
            connection.waits_for_memory = true;
            self.purse.ledger().begin_wait();
            self.starved.push(token);
        }
    }

    /// Returns true if memory is to be looked after from time to time, also while nothing else happens.
    pub(super) fn watches_memory(&self) -> bool {
        self.purse.lends() || !self.starved.is_empty()
    }

    /// Tries starved connections again if memory was released.
    pub(super) fn retry_starved(&mut self) {
        if self.purse.take_released() && !self.starved.is_empty() {
            self.queue_starved();
        }
    }

    fn queue_starved(&mut self) {
        for token in std::mem::take(&mut self.starved) {
            self.purse.ledger().end_wait();
            if let Some(connection) = self.connections.get_mut(token) {
                connection.waits_for_memory = false;
            }
            self.queue(token);
        }
    }

    /// Tries starved connections again, returns what silent connections do not need, and closes stalled ones.
    pub(super) fn scan_memory(&mut self, now: Instant) {
        if now >= self.next_memory_scan && self.purse.lends() {
            self.next_memory_scan = now + SCAN;
            let mut stalled = Vec::new();
            for (token, connection) in self.connections.iter_mut() {
                let silent = now.saturating_duration_since(connection.progress_at());
                if connection.borrows() && silent >= SCAN {
                    connection.release(&mut self.purse);
                    if connection.borrows() && silent >= STALL {
                        stalled.push((connection.progress_at(), token));
                    }
                }
            }
            stalled.sort_unstable_by_key(|(progress_at, _)| *progress_at);
            self.close_stalled(&stalled, now);
            self.metrics().publish_memory(&self.purse);
        }
        self.queue_starved();
    }

    fn close_stalled(&mut self, stalled: &[(Instant, Token)], now: Instant) {
        let mut is_one_closed = false;
        for &(_, token) in stalled {
            let is_scarce = self.purse.ledger().is_scarce();
            let Some(connection) = self.connections.get_mut(token) else { continue };
            if is_scarce || (connection.is_starved() && !is_one_closed) {
                is_one_closed = true;
                let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
                match connection.close_stalled(metrics, now, &mut self.purse) {
                    Next::Linger(_) => self.lingering.push(token),
                    _ => self.close(token),
                }
            }
        }
    }
}
