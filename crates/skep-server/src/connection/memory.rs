//! What a connection holds, and what it waits for when it may not hold more: see [`crate::ledger`].

use std::cmp::Reverse;
use std::time::Instant;

use super::Connection;
use crate::buffer::Input;
use crate::chunk::Chunk;
use crate::endpoint::Endpoint;
use crate::ledger::Purse;
use crate::limits::{CLIENT_SIZE, OUTPUT_ROOM_MIN, SHARE};
use crate::metrics::Metrics;

/// Bytes of a connection besides its buffers: itself, and what `CLIENT LIST` tells.
const CONNECTION_SIZE: usize = size_of::<Endpoint>() + CLIENT_SIZE;

/// What a connection holds, and what it waits for.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// Bytes of memory that it held when its shard last counted them.
    held: usize,
    /// Bytes of its output when its shard last counted them.
    held_output: usize,
    /// Bytes that the next request takes, if it was found to need more than there were.
    pub(super) needed: usize,
    want: Want,
    /// It may borrow all that is free.
    is_senior: bool,
    /// Its client does not take replies, and no more of them may be held.
    pub(super) is_full: bool,
}

/// What a connection wants memory for.
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
    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        CONNECTION_SIZE + self.input.capacity() + self.output.capacity() + self.chunk.capacity() + self.round.capacity()
    }

    /// Returns true if it may not go on because the reserve is used up. What a share covers goes on in any case.
    pub(crate) fn is_held_back(&self, purse: &Purse) -> bool {
        purse.is_exhausted() && self.memory() > SHARE
    }

    /// Counts what is held now.
    pub(crate) fn settle(&mut self, purse: &mut Purse) {
        let (held, output) = (self.memory(), self.output.waiting());
        purse.settle(std::mem::replace(&mut self.holding.held, held), held);
        purse.settle_output(std::mem::replace(&mut self.holding.held_output, output), output);
    }

    /// Counts nothing any more: the connection ends, or goes to another shard.
    pub(crate) fn leave(&mut self, purse: &mut Purse) {
        self.resign(purse);
        purse.settle(std::mem::take(&mut self.holding.held), 0);
        purse.settle_output(std::mem::take(&mut self.holding.held_output), 0);
    }

    /// Stops being the senior.
    pub(crate) fn resign(&mut self, purse: &Purse) {
        if std::mem::take(&mut self.holding.is_senior) {
            purse.ledger().resign();
        }
    }

    /// Tries again what was waiting for memory.
    pub(crate) fn retry(&mut self, purse: &Purse) {
        self.holding.want = Want::Nothing;
        self.look_for_room(purse);
    }

    /// Finds out whether the client has to take replies before there are more.
    pub(super) fn look_for_room(&mut self, purse: &Purse) {
        self.holding.is_full = self.output.waiting() > 0 && !self.may_hold_more(purse);
    }

    /// Waits for memory, because operations are left for later for want of it.
    pub(crate) fn starve(&mut self) {
        if self.holding.want == Want::Nothing {
            self.holding.want = Want::Step;
        }
    }

    /// Returns true if more replies may be held. What others might need is not for a client that takes none.
    fn may_hold_more(&self, purse: &Purse) -> bool {
        !purse.ledger().is_tight() && purse.room(self.held(), false) >= OUTPUT_ROOM_MIN.min(purse.one_max() / 8)
    }

    /// A step needs this many bytes more than are allowed: waits for them, or ends if there will never be as many.
    pub(super) fn want_memory(&mut self, size: usize, metrics: &Metrics, purse: &Purse) {
        if self.memory() + size <= purse.one_max() {
            self.holding.want = Want::Request;
            self.holding.is_senior = self.holding.is_senior || purse.ledger().become_senior(self.number);
            return;
        }
        if self.output.waiting() > 0 && self.memory() - self.output.capacity() + size <= purse.one_max() {
            // It fits when the client has taken its replies. Until then, it must not keep others from borrowing.
            self.starve();
            return;
        }
        self.end_with_error("the request takes more than half of the memory for connections", metrics);
    }

    /// Ends a connection that holds memory without progress. Returns true if there is nothing to send but the reason: its
    /// client is told why if it has read all replies.
    pub(crate) fn end_stalled(&mut self, metrics: &Metrics) -> bool {
        let is_idle = self.output.waiting() == 0 && self.chunk.is_finished() && self.life.takes_requests();
        self.end_with_error("memory for connections is short, and this one made no progress for 10 s", metrics);
        is_idle
    }

    /// Gives up the input, and sends a last error if the connection speaks RESP. Counts and logs the reason.
    fn end_with_error(&mut self, reason: &str, metrics: &Metrics) {
        metrics.connections_closed_for_memory.add(1);
        tracing::warn!(connection = self.number, bytes = self.held(), "closing a connection: {reason}");
        if let Chunk::Resp(_) = self.chunk {
            self.output.append(format!("-ERR {reason} (--connection-memory)\r\n").as_bytes());
        }
        self.finish_chunk();
        if self.chunk.size() == 0 {
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
            self.chunk.is_finished() && self.intake.is_exhausted && !self.readiness.is_readable
        }
    }

    /// Returns true if it waits for memory and its client has closed its side.
    pub(crate) fn is_left(&self) -> bool {
        self.is_starved() && self.readiness.is_peer_finished
    }

    /// Bytes of memory that it held when they were last counted.
    pub(crate) fn held(&self) -> usize {
        self.holding.held
    }

    /// Returns true if a request needs more memory than it may hold.
    pub(crate) fn wants_room(&self) -> bool {
        self.holding.want == Want::Request
    }

    /// Returns true if it may borrow all that is free.
    pub(crate) fn is_senior(&self) -> bool {
        self.holding.is_senior
    }

    /// Orders connections that wait for memory: first those that a request is missing some for, the largest first, which
    /// is the next senior; then those whose clients took replies last.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        (Reverse(if self.wants_room() { self.held() } else { 0 }), Reverse(self.progress_at))
    }

    /// When it last read or wrote a byte.
    pub(crate) fn progress_at(&self) -> Instant {
        self.progress_at
    }

    /// Returns the memory of empty buffers.
    pub(crate) fn release(&mut self, purse: &mut Purse) {
        if self.chunk.is_finished() && self.round.is_finished() {
            self.input.release();
            self.chunk.release();
            self.round.release();
            self.settle(purse);
        }
    }
}
