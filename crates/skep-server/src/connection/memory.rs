//! The memory that a connection holds, and waits for when it may not hold more: see [`crate::memory_budget`].

use std::cmp::Reverse;
use std::time::Instant;

use super::Connection;
use crate::buffer::Input;
use crate::limits::{CLIENT_SIZE, OUTPUT_ROOM_MIN, SHARE};
use crate::memory_budget::ShardBudget;
use crate::metrics::Metrics;
use crate::parsed_batch::ParsedBatch;
use crate::transport::Transport;

/// Bytes of a connection besides its buffers: itself, and its entry in `CLIENT LIST`.
const CONNECTION_SIZE: usize = size_of::<Connection>() + size_of::<Transport>() + CLIENT_SIZE;

/// The memory that a connection holds, and waits for.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// Bytes of memory that it held when its shard last counted them.
    held: usize,
    /// Bytes of its output when its shard last counted them.
    held_output: usize,
    /// Bytes that the next request needs, if decoding found that there were fewer.
    pub(super) needed: usize,
    want: Want,
    /// It may borrow all that is free.
    has_priority: bool,
    /// Its client does not take replies, and no more of them may be held.
    pub(super) is_full: bool,
}

/// The purpose for which a connection wants memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Want {
    #[default]
    Nothing,
    /// A step, such as a reply.
    Step,
    /// A request that is incomplete without it.
    Request,
}

impl Connection {
    /// Returns the bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        CONNECTION_SIZE
            + self.input.capacity()
            + self.output.capacity()
            + self.parsed.capacity()
            + self.queue.capacity()
    }

    /// Returns true if it may not continue because the reserve is used up. A connection within its share always may.
    pub(crate) fn is_throttled(&self, shard_budget: &ShardBudget) -> bool {
        shard_budget.is_exhausted() && self.memory() > SHARE
    }

    /// Records the memory that is held now.
    pub(crate) fn record_memory(&mut self, shard_budget: &mut ShardBudget) {
        let (held, output) = (self.memory(), self.output.waiting());
        shard_budget.record(std::mem::replace(&mut self.holding.held, held), held);
        shard_budget.record_output(std::mem::replace(&mut self.holding.held_output, output), output);
    }

    /// Records that no memory is held: the connection ends, or is handed over to another shard.
    pub(crate) fn leave(&mut self, shard_budget: &mut ShardBudget) {
        self.yield_priority(shard_budget);
        shard_budget.record(std::mem::take(&mut self.holding.held), 0);
        shard_budget.record_output(std::mem::take(&mut self.holding.held_output), 0);
    }

    /// Yields its priority.
    pub(crate) fn yield_priority(&mut self, shard_budget: &ShardBudget) {
        if std::mem::take(&mut self.holding.has_priority) {
            shard_budget.memory_budget().yield_priority();
        }
    }

    /// Lets the step that was waiting for memory be tried again.
    pub(crate) fn retry(&mut self, shard_budget: &ShardBudget) {
        self.holding.want = Want::Nothing;
        self.look_for_room(shard_budget);
    }

    /// Finds out if the client has to take replies before more are encoded.
    pub(super) fn look_for_room(&mut self, shard_budget: &ShardBudget) {
        self.holding.is_full = self.output.waiting() > 0 && !self.may_hold_more(shard_budget);
    }

    /// Waits for memory, because it lacks memory for its next step.
    pub(crate) fn starve(&mut self) {
        if self.holding.want == Want::Nothing {
            self.holding.want = Want::Step;
        }
    }

    /// Returns true if more replies may be held. A client that takes none must leave memory to others.
    fn may_hold_more(&self, shard_budget: &ShardBudget) -> bool {
        !shard_budget.memory_budget().is_tight()
            && shard_budget.room(self.held(), false) >= OUTPUT_ROOM_MIN.min(shard_budget.one_max() / 8)
    }

    /// Waits until it may hold `size` bytes more, or ends if it may never hold that many.
    pub(super) fn want_memory(&mut self, size: usize, metrics: &Metrics, shard_budget: &ShardBudget) {
        if self.memory() + size <= shard_budget.one_max() {
            self.holding.want = Want::Request;
            self.holding.has_priority =
                self.holding.has_priority || shard_budget.memory_budget().take_priority(self.number);
            return;
        }
        if self.output.waiting() > 0 && self.memory() - self.output.capacity() + size <= shard_budget.one_max() {
            // The request fits when the client has taken its replies. Until then, the connection must not keep others
            // from borrowing.
            self.starve();
            return;
        }
        self.end_with_error("the request takes more than half of the memory for connections", metrics);
    }

    /// Ends a connection that holds memory and makes no progress. Returns true if only the reason is left to be sent: a
    /// client that has read all replies is told it.
    pub(crate) fn end_unresponsive(&mut self, metrics: &Metrics) -> bool {
        let is_idle = self.output.waiting() == 0 && self.parsed.is_finished() && self.life.takes_requests();
        self.end_with_error("memory for connections is short, and this one made no progress for 10 s", metrics);
        is_idle
    }

    /// Gives up the input, and sends a last error unless the connection speaks the native protocol. Counts and logs
    /// the reason.
    fn end_with_error(&mut self, reason: &str, metrics: &Metrics) {
        metrics.connections_closed_for_memory.add(1);
        tracing::warn!(connection = self.number, bytes = self.held(), "closing a connection: {reason}");
        if let ParsedBatch::Resp(_) | ParsedBatch::Away = self.parsed {
            self.append_free(format!("-ERR {reason} (--connection-memory)\r\n").as_bytes());
        } else if let ParsedBatch::Memcached(_) = self.parsed {
            self.append_free(format!("SERVER_ERROR {reason} (--connection-memory)\r\n").as_bytes());
        }
        self.finish_parsed();
        if self.parsed.size() == 0 {
            // No request refers to it.
            self.input = Input::default();
        }
        self.life.end_requests();
        self.intake.is_exhausted = true;
    }

    /// Returns true if it holds more than its share.
    pub(crate) fn borrows(&self) -> bool {
        self.held() > SHARE
    }

    /// Returns true if it waits for memory, also for room in its output.
    pub(crate) fn is_starved(&self) -> bool {
        self.holding.want != Want::Nothing || self.holding.is_full
    }

    /// Returns true if it waits for its client: to take replies, or to send the rest of a request.
    pub(crate) fn waits_for_client(&self) -> bool {
        if self.output.waiting() > 0 {
            !self.readiness.is_writable
        } else {
            self.parsed.is_finished() && self.intake.is_exhausted && !self.readiness.is_readable
        }
    }

    /// Returns true if it waits for memory and its client has closed its side.
    pub(crate) fn is_left(&self) -> bool {
        self.is_starved() && self.readiness.is_peer_finished
    }

    /// Returns the bytes of memory that it held when they were last counted.
    pub(crate) fn held(&self) -> usize {
        self.holding.held
    }

    /// Returns true if a request needs more memory than it may hold.
    pub(crate) fn wants_room(&self) -> bool {
        self.holding.want == Want::Request
    }

    /// Returns true if it may borrow all that is free.
    pub(crate) fn has_priority(&self) -> bool {
        self.holding.has_priority
    }

    /// Orders connections that wait for memory. The first ones are those with a request that needs memory, and of these
    /// the one that holds most: it is the next one with priority. Of the others, the one with the latest progress is
    /// the first.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        (Reverse(if self.wants_room() { self.held() } else { 0 }), Reverse(self.progress_at))
    }

    /// Returns the time at which it last read or wrote a byte.
    pub(crate) fn progress_at(&self) -> Instant {
        self.progress_at
    }

    /// Returns the memory of empty buffers.
    pub(crate) fn release(&mut self, shard_budget: &mut ShardBudget) {
        if self.parsed.is_finished() && self.queue.is_finished() {
            self.input.release();
            self.parsed.release();
            self.queue.release();
            self.record_memory(shard_budget);
        }
    }
}
