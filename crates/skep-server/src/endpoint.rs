//! A connection of a shard, joined with the transport that moves its bytes.
//!
//! ```text
//!   transport ── read ──▶ connection ── write ──▶ transport
//! ```
//!
//! The input buffer is lent to the transport, and replies are written from the buffer in which they were encoded, so no
//! byte is copied between the two.

use std::sync::Arc;
use std::time::Instant;

use crate::activity::Activity;
use crate::connection::{Connection, Next};
use crate::limits::TURN_WORK;
use crate::memory_budget::ShardBudget;
use crate::metrics::Metrics;
use crate::transport::{Event, Transport};
use crate::vocabulary::EncodedReplies;

/// A connection with its transport, and where it is in the lists of its shard.
pub(crate) struct Endpoint {
    pub(crate) connection: Connection,
    pub(crate) transport: Transport,
    /// What other connections may know of it.
    pub(crate) activity: Arc<Activity>,
    /// It is in the queue of its shard.
    pub(crate) is_queued: bool,
    /// Its shard polls its words.
    pub(crate) is_polled: bool,
    /// Its shard holds it: it counts as queued, and is not served.
    pub(crate) is_held: bool,
    /// The turn of its shard since which it has waited, if it waits.
    pub(crate) waits_since: Option<u64>,
    /// Where it waits for memory.
    pub(crate) memory_wait: MemoryWait,
    /// The work of its last turn, besides that of small operations.
    cost: usize,
    /// The part of it that reading and decoding its input took, until the turn ends.
    pub(crate) decoding_work: usize,
    /// The turn of the shard that had that cost.
    cost_turn: u64,
}

/// The list in which a connection waits for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MemoryWait {
    #[default]
    Nowhere,
    /// The list of its shard, for its next step.
    Shard,
    /// The queue of the server, for its request or for the replies of its transaction.
    Queue,
}

impl Endpoint {
    /// Joins a connection with its transport.
    pub(crate) fn new(connection: Connection, transport: Transport) -> Endpoint {
        Endpoint {
            connection,
            transport,
            activity: Arc::default(),
            is_queued: false,
            is_polled: false,
            is_held: false,
            waits_since: None,
            memory_wait: MemoryWait::Nowhere,
            cost: 0,
            decoding_work: 0,
            cost_turn: 0,
        }
    }

    /// Returns the part of the cost that is more than its share of the turns since. `waiting` connections share them with it.
    /// There is none if no connection has waited in the turn `idle_turn` and the cost is older.
    pub(crate) fn debt(&self, turn: u64, idle_turn: u64, waiting: usize) -> usize {
        if self.cost_turn < idle_turn {
            return 0;
        }
        let turns = turn.saturating_sub(self.cost_turn).min(1 << 20) as usize;
        self.cost.saturating_sub(turns * (TURN_WORK / (1 + waiting)))
    }

    /// Records the work of a turn. The debt of the turns before counts if it is more.
    pub(crate) fn record_cost(&mut self, work: usize, turn: u64, idle_turn: u64, waiting: usize) {
        self.cost = (work + std::mem::take(&mut self.decoding_work)).max(self.debt(turn, idle_turn, waiting));
        self.cost_turn = turn;
    }

    /// Adds the work of a visit to another shard to the debt. It counts for the turn that is about to begin.
    pub(crate) fn add_cost(&mut self, work: usize, turn: u64, idle_turn: u64, waiting: usize) {
        if work > 0 {
            self.cost = self.debt(turn, idle_turn, waiting) + work;
            self.cost_turn = turn;
        }
    }

    /// Reads if the connection wants more: see [`Connection::read`].
    pub(crate) fn read(&mut self, metrics: &Metrics, share: usize, now: Instant, shard_budget: &mut ShardBudget) {
        if let Transport::Tls(tls) = &self.transport
            && tls.shake_hands().is_err()
        {
            self.connection.end();
            return;
        }
        self.connection.read(&self.transport, metrics, share, now, shard_budget);
        if let Transport::Tls(tls) = &self.transport {
            self.connection.add_work(tls.take_work());
            if tls.may_have_more() {
                self.connection.on_event(Event { is_readable: true, ..Event::default() });
            }
        }
    }

    /// Reads a last time: see [`Connection::end_input`].
    pub(crate) fn end_input(&mut self, metrics: &Metrics, now: Instant, shard_budget: &mut ShardBudget) {
        self.connection.end_input(&self.transport, metrics, now, shard_budget);
    }

    /// Writes the output and then the replies that were just encoded: see [`Connection::write`]. After the last byte of
    /// a connection that ends, shuts down the write side, and waits until all bytes are delivered. Returns the next
    /// step.
    pub(crate) fn write(
        &mut self,
        replies: EncodedReplies<'_>,
        may_write_much: bool,
        metrics: &Metrics,
        now: Instant,
        shard_budget: &mut ShardBudget,
    ) -> Next {
        if let Transport::Tls(tls) = &self.transport
            && tls.flush().is_err()
        {
            self.connection.end();
        }
        let next = self.connection.write(replies, &self.transport, may_write_much, metrics, now, shard_budget);
        next.unwrap_or_else(|| {
            let is_over = self.transport.finish().is_err();
            if !is_over && !self.transport.is_delivered(now) {
                return Next::Drain;
            }
            self.connection.end_output(&self.transport, is_over, now)
        })
    }

    /// Writes the rest of the output. Returns the next step.
    pub(crate) fn flush(&mut self, metrics: &Metrics, now: Instant, shard_budget: &mut ShardBudget) -> Next {
        self.write(EncodedReplies::NONE, true, metrics, now, shard_budget)
    }

    /// Closes a connection that holds memory and transfers too slowly. A client that has read all replies is told the
    /// reason.
    pub(crate) fn close_slow(&mut self, metrics: &Metrics, now: Instant, shard_budget: &mut ShardBudget) -> Next {
        if self.connection.end_slow(metrics) { self.flush(metrics, now, shard_budget) } else { Next::Close }
    }
}
