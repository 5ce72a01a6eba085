//! Connections that wait for memory, and those that hold it.
//!
//! A connection that may not hold the memory for its next step is *starved*: it is not read and its requests are not
//! worked on.
//!
//! - One whose request or transaction waits for its admission is in the queue of the server, which
//!   [`crate::memory_budget`] explains. The shard that releases memory admits the first ones, and wakes their shards.
//! - The others wait for room for a reply. They are tried again, the oldest request first, when this shard releases memory
//!   and is not short, and, since another shard may have released some, at every tick at which something has changed, and
//!   once a second.
//!
//! While a request or a reply waits, memory is *scarce*. At every tick then:
//!
//! 1. Connections return their empty buffers.
//! 2. A connection that holds memory and waits for its client, to send the rest of a request or to take replies, is
//!    *slow* unless it transfers [`PROGRESS_SIZE_MIN`](crate::limits::PROGRESS_SIZE_MIN) bytes in
//!    [`PROGRESS_TIME`](crate::limits::PROGRESS_TIME). The time for which it waits for the server, such as for memory,
//!    does not count. Replies over TCP are transferred when the client has acknowledged them.
//! 3. Slow connections are closed, the slowest first, until what waits has memory. So a request waits for each of those
//!    before it for about as long as a slow client has.
//!
//! Otherwise, once a second, empty buffers of connections that were silent for a second are returned. A starved
//! connection is closed if its client has closed its side and it was silent for [`SILENCE_MAX`]. One that waits in the queue for a request
//! whose rest never comes, because its client has closed its side, is closed at the next tick.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::Shard;
use crate::connection::{Connection, Next};
use crate::endpoint::{Endpoint, MemoryWait};
use crate::limits::{MEMORY_SCAN_TIME, PARSED_GROWTH_MAX, SILENCE_MAX};
use crate::memcached_counts::Count;
use crate::transport::Transport;
use crate::vocabulary::Token;

impl Shard {
    /// Puts a connection among those that wait for memory, once. A datagram is dropped: its client may have given up when
    /// there is memory, and others cannot take its place while it waits.
    pub(super) fn starve(&mut self, token: Token) {
        let Some(endpoint) = self.connections.get_mut(token) else { return };
        if let Transport::MemcachedDatagram(_) = endpoint.transport {
            self.metrics().memcached.add(Count::DatagramsRefused, 1);
            self.close(token);
            return;
        }
        let memory_budget = self.shard_budget.memory_budget();
        let ticket = endpoint.connection.take_ticket(memory_budget);
        let waiter = endpoint.connection.waiter(self.parts.index, token, ticket);
        let before = endpoint.memory_wait;
        if before == MemoryWait::Nowhere {
            memory_budget.begin_wait();
        }
        match waiter {
            _ if before == MemoryWait::Queue => {}
            Some(waiter) => {
                endpoint.memory_wait = MemoryWait::Queue;
                memory_budget.wait(waiter);
                // It may be the first one, and others keep pieces for nothing from now on.
                self.shard_budget.balance();
                self.admit();
            }
            None if before == MemoryWait::Nowhere => {
                endpoint.memory_wait = MemoryWait::Shard;
                self.waits.starved.push(token);
            }
            None => {}
        }
    }

    /// Returns true if memory is to be scanned from time to time, also while nothing else happens.
    pub(super) fn watches_memory(&self) -> bool {
        let memory_budget = self.shard_budget.memory_budget();
        self.shard_budget.borrowed() > 0 || !self.waits.starved.is_empty() || memory_budget.has_waiting()
    }

    /// Tries starved connections again, and admits requests that wait, if memory was released.
    pub(super) fn retry_starved(&mut self) {
        let unsecured = self.shard_budget.unsecured();
        debug_assert!(
            unsecured <= PARSED_GROWTH_MAX.cast_signed(),
            "a connection holds {unsecured} bytes that it has not secured"
        );
        if !self.shard_budget.take_released() {
            return;
        }
        if self.shard_budget.memory_budget().has_waiting() {
            self.admit();
        }
        if !self.waits.starved.is_empty() && !self.shard_budget.is_short() {
            self.queue_starved();
        }
    }

    /// Admits requests that wait for memory, of all shards.
    fn admit(&mut self) {
        let (own, handovers) = (self.parts.index, &self.parts.handovers);
        let wake = |shard: u16| {
            if shard != own {
                handovers[usize::from(shard)].waker.wake();
            }
        };
        self.shard_budget.memory_budget().admit(wake);
        self.take_admitted();
    }

    /// Lets the connections of this shard continue whose requests were admitted.
    pub(super) fn take_admitted(&mut self) {
        for waiter in self.shard_budget.memory_budget().take_admitted(self.parts.index) {
            match self.connections.get_mut(waiter.token) {
                Some(endpoint) => {
                    endpoint.memory_wait = MemoryWait::Nowhere;
                    self.shard_budget.memory_budget().end_wait();
                    endpoint.connection.accept(&waiter, &mut self.shard_budget);
                    self.queue(waiter.token);
                }
                None => self.shard_budget.decline(&waiter),
            }
        }
    }

    /// Returns all memory of a connection that ends, and removes it from those that wait. It may have been the first one,
    /// or have held what that needs, so the next ones are admitted.
    pub(super) fn leave_memory(&mut self, endpoint: &mut Endpoint) {
        let memory_budget = self.shard_budget.memory_budget();
        if endpoint.memory_wait != MemoryWait::Nowhere {
            memory_budget.end_wait();
        }
        if endpoint.memory_wait == MemoryWait::Queue {
            memory_budget.forget(endpoint.connection.number);
        }
        endpoint.connection.leave(&mut self.shard_budget);
        if self.shard_budget.memory_budget().has_waiting() {
            self.admit();
        }
    }

    /// Tries the connections again that wait for a step, the oldest request first.
    fn queue_starved(&mut self) {
        let mut starved = std::mem::take(&mut self.waits.starved);
        let rank = |token: &Token| self.connections.connection(*token).map(Connection::step_rank);
        starved.sort_by_cached_key(rank);
        for token in starved {
            // Some have ended, or wait in the queue of the server by now.
            if let Some(endpoint) = self.connections.get_mut(token)
                && endpoint.memory_wait == MemoryWait::Shard
            {
                endpoint.memory_wait = MemoryWait::Nowhere;
                self.shard_budget.memory_budget().end_wait();
                self.queue(token);
            }
        }
    }

    /// Tries starved connections again, returns memory that connections do not need, and closes slow ones while memory is
    /// scarce.
    pub(super) fn scan_memory(&mut self, now: Instant) {
        let is_due = now >= self.ticks.next_memory_scan;
        if is_due {
            self.ticks.next_memory_scan = now + MEMORY_SCAN_TIME;
            self.metrics().publish_memory(&self.shard_budget);
        }
        let is_scarce = self.shard_budget.memory_budget().is_scarce();
        if (is_due || is_scarce) && self.watches_memory() {
            let slow = self.scan_connections(now, is_scarce);
            self.shard_budget.balance();
            if is_scarce {
                self.admit();
                self.close_slow(slow, now);
            }
        }
        if self.shard_budget.take_change() || is_due {
            self.queue_starved();
        }
    }

    /// Returns memory that connections do not need, and closes those that were left. Returns the slow ones, the slowest
    /// first.
    fn scan_connections(&mut self, now: Instant, is_scarce: bool) -> Vec<Token> {
        let (mut slow, mut left) = (Vec::new(), Vec::new());
        for (token, endpoint) in self.connections.iter_mut() {
            let connection = &mut endpoint.connection;
            let silent = now.saturating_duration_since(connection.progress_at());
            let transport = &endpoint.transport;
            if connection.is_left() && silent >= SILENCE_MAX || connection.is_left_in_queue(|| transport.arrived()) {
                left.push(token);
            } else if connection.borrows() && (is_scarce || silent >= MEMORY_SCAN_TIME) {
                connection.release(&mut self.shard_budget);
                if is_scarce
                    && connection.borrows()
                    && let Some(slowness) = connection.slowness(now, || endpoint.transport.acknowledged())
                {
                    slow.push((slowness, token));
                }
            }
        }
        left.into_iter().for_each(|token| self.close(token));
        slow.sort_unstable_by_key(|(slowness, _): &((u64, Reverse<Duration>), Token)| *slowness);
        slow.into_iter().map(|(_, token)| token).collect()
    }

    /// Closes slow connections, the slowest first, as far as memory is needed.
    fn close_slow(&mut self, slow: Vec<Token>, now: Instant) {
        for token in slow {
            if !self.shard_budget.memory_budget().is_scarce() {
                return;
            }
            let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
            let Some(endpoint) = self.connections.get_mut(token) else { continue };
            self.shard_budget.memory_budget().end_slow(endpoint.connection.number);
            let next = endpoint.close_slow(metrics, now, &mut self.shard_budget);
            self.list_session(token);
            match next {
                Next::Drain => self.waits.draining.push(token),
                _ => self.close(token),
            }
            self.admit();
        }
    }
}
