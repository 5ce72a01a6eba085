//! The operations of the connections of a turn: how many of each go to the stores and to other shards.
//!
//! The connections of a batch are of four kinds, in this order. The bytes of a turn are [`TURN_SIZE_MAX`]; each kind has a part
//! of them that those before it cannot use up. So a turn submits at most 1.75 times as many, and of each kind the rest of an
//! operation:
//!
//! | connections | bytes |
//! |---|---|
//! | that come first: postponed or returned before, those with small operations first | a quarter at most |
//! | ready, with small operations | three quarters at least |
//! | ready, with large operations | a half at least |
//! | stuck | a quarter at least |
//!
//! In one of eight turns the connections with large operations are before the others, as one kind with them. Otherwise they
//! would never be the first. Small operations could use up the memory or the copied bytes of each batch, or contain a
//! flush in each turn, and the large ones would wait forever.

use std::ops::Range;
use std::time::Instant;

use skep_wire::partition::Partition;

use crate::connections::Connections;
use crate::dispatch::{Dispatch, Outgoing};
use crate::exchange::Peer;
use crate::limits::{OPERATIONS_WITHOUT_MEMORY_MAX, RESUMED_PART, SUBMISSION_SIZE_MAX, TURN_SIZE_MAX};
use crate::memory_budget::ShardBudget;
use crate::metrics::Metrics;
use crate::reply_queue::ReplyRange;
use crate::resp_command::list_denied_operation;
use crate::shared::Shared;
use crate::spaces::SpaceRequests;
use crate::unix_time::UnixTime;
use crate::vocabulary::{Limit, Pause, Refusal, Token};
use crate::window::Window;

/// A connection's part of a batch.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) token: Token,
    /// Its part of [`super::Shard::destinations`].
    pub(super) destinations: Range<usize>,
    pub(super) forwarded_count: usize,
    /// There was no memory for forwarded batches.
    pub(super) lacks_memory: bool,
    /// It had operations to submit.
    pub(super) is_waiting: bool,
    /// They are large ones.
    pub(super) is_large: bool,
    /// Its next operation must wait for the end of a pause.
    pub(super) is_held: bool,
    /// A shard for which it has operations, but no slot for a batch.
    pub(super) without_slot: Option<usize>,
    /// It is queued at the end of the turn, after connections whose operations were deferred.
    pub(super) continues: bool,
}

/// Where the kinds of connections begin in a batch.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    /// The first one from the queue of ready connections.
    pub(super) ready: usize,
    /// The first of these whose operations are large.
    pub(super) large: usize,
    /// The first stuck one.
    pub(super) stuck: usize,
}

/// The bytes that a turn submits.
pub(super) struct Bytes<'k> {
    kinds: &'k Kinds,
    /// The number of the kind of the last connection.
    kind: usize,
    /// The bytes that the next connection cannot use: at most those of the operations so far.
    used: usize,
    /// The bytes of all operations so far.
    pub(super) submitted: usize,
}

impl Bytes<'_> {
    pub(super) fn new(kinds: &Kinds) -> Bytes<'_> {
        Bytes { kinds, kind: 0, used: 0, submitted: 0 }
    }

    /// Returns the bytes that the connection at this index of the batch may submit; 0: it has to wait.
    pub(super) fn left(&mut self, index: usize) -> usize {
        let Kinds { ready, large, stuck } = *self.kinds;
        let kind = [ready, large, stuck].into_iter().filter(|first| index >= *first).count();
        if kind != self.kind {
            // Of four quarters, each kind leaves one to the next.
            self.used = self.used.min(kind * (TURN_SIZE_MAX / RESUMED_PART));
            self.kind = kind;
        }
        let max = if kind == 0 { TURN_SIZE_MAX / RESUMED_PART } else { TURN_SIZE_MAX };
        max.saturating_sub(self.used)
    }

    /// Counts the operations of a connection.
    pub(super) fn count(&mut self, size: usize) {
        self.used += size;
        self.submitted += size;
    }
}

/// What a shard uses to submit the operations of connections.
pub(super) struct Submitter<'s> {
    pub(super) own: u16,
    pub(super) partition: &'s Partition,
    pub(super) shared: &'s Shared,
    /// The time of the turn.
    pub(super) time: UnixTime,
    pub(super) metrics: &'s Metrics,
    pub(super) connections: &'s Connections,
    pub(super) window: &'s mut Window,
    pub(super) shard_budget: &'s mut ShardBudget,
    pub(super) peers: &'s mut [Option<Peer>],
    pub(super) destinations: &'s mut Vec<ReplyRange>,
    pub(super) outgoing: &'s mut [Outgoing],
    pub(super) pause: Option<Pause>,
    /// The operations that are refused.
    pub(super) refusal: Refusal,
    /// The time at which it is judged whether operations are late; `None`: none are.
    pub(super) judged_at: Option<Instant>,
    /// More than one connection or forwarded batch waits.
    pub(super) others_wait: bool,
    /// Memory for connections is low.
    pub(super) is_low: bool,
}

impl<'s> Submitter<'s> {
    /// Submits operations of a connection, of about `size_max` bytes: those of this shard to its batch, the others to other
    /// shards. Returns their bytes.
    pub(super) fn submit(
        &mut self,
        submission: &mut Submission,
        requests: &mut SpaceRequests<'s>,
        size_max: usize,
    ) -> usize {
        let Some(connection) = self.connections.connection(submission.token) else { return 0 };
        if requests.has_flush() || connection.is_throttled(self.shard_budget) {
            // It is queued before the connections that were served, or waits for memory.
            return 0;
        }
        if self.pause.is_some_and(|pause| !pause.writes_only) {
            submission.is_held = true;
            return 0;
        }
        if self.peers.len() > 1 && connection.borrows() && !self.shard_budget.may_forward() {
            submission.lacks_memory = true;
            return 0;
        }
        requests.begin(connection.number);
        let start = self.destinations.len();
        let left = connection.operations_left();
        let is_late =
            self.judged_at.is_some_and(|now| self.window.is_late(connection.read_at(), now, left, self.others_wait));
        let share = if self.is_low { OPERATIONS_WITHOUT_MEMORY_MAX } else { self.window.share() };
        let mut limit = Limit {
            count: connection.submission_max(share),
            size_max: SUBMISSION_SIZE_MAX.min(size_max),
            size: 0,
            holds_writes: self.pause.is_some(),
            is_held: false,
        };
        let mut dispatch = Dispatch {
            requests,
            destinations: self.destinations,
            start,
            own: self.own,
            partition: self.partition,
            peers: self.peers,
            outgoing: self.outgoing,
            is_retry: connection.is_returned(),
            busy: 0,
            too_fast: 0,
            denied: 0,
            denial: None,
        };
        let (parsed, input, ranges) = connection.submission();
        dispatch.submit(parsed, input, ranges, if is_late { Refusal::Late } else { self.refusal }, &mut limit);
        self.metrics.operations.refused.add(dispatch.busy);
        self.metrics.operations.too_fast.add(dispatch.too_fast);
        self.metrics.operations.denied.add(dispatch.denied);
        if let (Some(denial), Some(login)) = (dispatch.denial, parsed.login()) {
            list_denied_operation(denial, login, connection.number, self.shared, self.time);
        }
        submission.destinations = start..self.destinations.len();
        submission.is_held = limit.is_held;
        self.forward(submission);
        limit.size
    }

    /// Sends the operations of a connection for other shards to these.
    fn forward(&mut self, submission: &mut Submission) {
        for (shard, (peer, out)) in self.peers.iter_mut().zip(self.outgoing.iter_mut()).enumerate() {
            match (peer, std::mem::replace(out, Outgoing::Nothing)) {
                (Some(peer), Outgoing::Batch(mut forwarded)) => {
                    forwarded.connection = submission.token;
                    forwarded.counted = forwarded.capacity();
                    self.shard_budget.memory_budget().record_batch(0, forwarded.counted);
                    submission.forwarded_count += 1;
                    self.window.submitted(forwarded.len());
                    peer.send_requests(forwarded);
                }
                (_, Outgoing::NoSlot) => submission.without_slot = Some(shard),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes that are left to each connection of a batch, of which each that may submit submits `size`.
    fn left(kinds: &Kinds, count: usize, size: usize) -> (Vec<usize>, usize) {
        let mut bytes = Bytes::new(kinds);
        let left = (0..count).map(|index| {
            let left = bytes.left(index);
            bytes.count(if left > 0 { size } else { 0 });
            left
        });
        (left.collect(), bytes.submitted)
    }

    #[test]
    fn each_kind_of_connections_has_bytes_of_its_own() {
        const QUARTER: usize = TURN_SIZE_MAX / 4;
        let kinds = Kinds { ready: 2, large: 4, stuck: 6 };
        let expected = [QUARTER, 0, 3 * QUARTER, 0, 2 * QUARTER, 0, QUARTER, 0];
        assert_eq!(left(&kinds, 8, TURN_SIZE_MAX), (expected.to_vec(), 4 * TURN_SIZE_MAX));
        let (small, submitted) = left(&kinds, 8, 1);
        assert!(small.iter().all(|left| *left >= QUARTER - 1) && submitted == 8);
        // Stuck ones follow small ones.
        let kinds = Kinds { ready: 0, large: 1, stuck: 1 };
        assert_eq!(left(&kinds, 2, TURN_SIZE_MAX).0, [TURN_SIZE_MAX, QUARTER]);
    }
}
