//! One turn of a shard: the work that it takes on, in which order, and how much of it.
//!
//! ```text
//!   queue of connections ──────────────▶ read, decode ─┐                      ┌─▶ replies, output
//!                                                      ├─▶ one batch ─▶ stores┤
//!   forwarded batches of other shards ─────────────────┘                      └─▶ forwarded batches, back
//! ```
//!
//! A turn is bounded, and so is the number of turns that a request waits:
//!
//! - **Work.** All that a turn does is spent from one [account](crate::account). It takes connections on until half of the
//!   account is spent: for the bytes that they have sent, for decoding them, and for their operations. The rest is for
//!   what the stores touch, and for commands that the server executes itself, such as `CLIENT LIST`, a pattern of
//!   `KEYS`, or memcached's `stats`. A connection whose next command has to wait is *postponed*: it is tried first in one
//!   of the next turns. None gets more than a part of the turn for such commands.
//! - **Operations.** The connections of a turn submit as many operations as the window has room for, each at most its
//!   share, and the other shards as many again.
//! - **Bytes.** A turn submits about [`crate::limits::TURN_SIZE_MAX`] bytes, of each kind of connections some ([`super::submission`]). It writes
//!   as many. The last connection may exceed each limit by one read, one operation or its whole output. The stores bound the bytes that
//!   they copy ([`crate::spaces::SpaceReplies`]).
//! - **Order.** Connections are served in rotation: one that was served is put at the tail of the queue, and each turn
//!   serves at least the first one. Those whose last turns were costly wait in a queue of their own ([`super::ready`]), from
//!   which each turn serves at least one too. Only connections whose operations are to be refused are put at the head: a refusal
//!   is cheap, and useful only if it is sent soon. Forwarded batches are taken from each of the other shards in
//!   rotation, and in every other turn after the connections.
//! - **Isolated commands.** Each connection runs its next ones with its replies, while they are a small effort and there is
//!   time for them. All others wait, by their effort ([`super::later`]).
//!
//! A store may defer operations: because it has copied all bytes that it may for one batch, or because it has no memory
//! for them at the moment. If all operations of a connection are deferred, the shard continues as follows:
//!
//! 1. If an earlier operation of the batch was executed, it may have taken the memory. The connection is tried again
//!    before those that were served.
//! 2. If none was, memory was really missing: the connection is *stuck*. From then on it is tried at the end of each
//!    batch, after all others. A shard that has only stuck connections sleeps for a moment between turns.
//! 3. A connection whose next operations belong to another shard, when there is no slot for a batch to it, is *slotless*:
//!    it is tried again when there is one, in every other turn before the connections of the queue.
//! 4. A forwarded batch whose requests were all deferred is returned to its sender, so that the path is free for
//!    others. The connection is called *returned* too, and submits an operation again after [`NAP`].

use std::time::{Duration, Instant};

use super::execution::Replied;
use super::forwarded::submit_arrivals;
use super::submission::{Bytes, Kinds, Submission, Submitter};
use super::{Parts, Shard};
use crate::account::Account;
use crate::limits::{COSTLY_WORK, RESUMED_MAX, RESUMED_PART, TURN_INTAKE_WORK, TURN_WORK, TURNS_WITH_LARGE_FIRST};
use crate::spaces::Stores;
use crate::unix_time::UnixTime;
use crate::vocabulary::Token;

/// The turn: what it has taken on, and what it has spent.
#[derive(Debug)]
pub(super) struct Turn {
    /// Turns so far that had something to do.
    pub(super) number: u64,
    /// The time of day at which it began.
    pub(super) time: UnixTime,
    /// Its work. It begins with the events.
    pub(super) account: Account,
    /// Work that the stores are expected to do for its connections: what these have cost before.
    expected_work: usize,
    /// Connections that take part in the batch.
    pub(super) batch: Vec<Submission>,
    /// Number of postponed connections at the start of the batch.
    pub(super) resumed: usize,
    /// Where the kinds of connections begin in the batch.
    pub(super) kinds: Kinds,
    /// Connections of the batch whose operations are large, until they follow the others. Empty between batches.
    large: Vec<Submission>,
    /// In all, more than one connection or forwarded batch waits.
    pub(super) others_wait: bool,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn {
            number: 0,
            time: UnixTime::default(),
            account: Account::new(TURN_WORK),
            expected_work: 0,
            batch: Vec::new(),
            resumed: 0,
            kinds: Kinds::default(),
            large: Vec::new(),
            others_wait: false,
        }
    }
}

impl Shard {
    /// Reads and decodes postponed and returned connections and those at the head of the queue, until there is enough
    /// for a batch. Stuck connections are the last ones. Requests of other shards have their own limit, so they cannot
    /// keep this shard's connections waiting.
    pub(super) fn gather(&mut self, now: Instant) {
        let operations_max = self.window.room();
        let mut operations = 0;
        self.turn.expected_work = 0;
        while self.turn.batch.len() < RESUMED_MAX
            && operations < operations_max.div_ceil(RESUMED_PART).max(1)
            && (self.turn.batch.is_empty()
                || self.turn.account.spent() + self.turn.expected_work < TURN_INTAKE_WORK / RESUMED_PART)
            && let Some(token) = self.waits.postponed.pop_front()
        {
            operations += self.take_on(token, now);
        }
        self.turn.resumed = self.turn.batch.len();
        let (small, large) = self.waits.returned.begin(now);
        for (is_large, count) in [(false, small), (true, large)] {
            for _ in 0..count {
                self.waits.returned.pop(is_large).map(|token| self.take_on(token, now));
            }
        }
        self.turn.kinds.ready = self.turn.batch.len();
        self.send_waiting_visits();
        self.waits.begin_promises();
        // In every other turn those that have waited for a slot come first: others may want the same slots.
        if self.turn.number.is_multiple_of(2) {
            let spent_before = self.turn.account.spent();
            while operations < operations_max.div_ceil(RESUMED_PART)
                && self.turn.account.spent() - spent_before < TURN_INTAKE_WORK / RESUMED_PART
                && let Some(token) = self.waits.next_with_slot(&self.parts.peers)
            {
                operations += self.take_on_ready(token, now);
            }
        }
        let before = self.turn.account.spent() + self.turn.expected_work;
        for is_costly in [false, true] {
            let first = self.turn.batch.len() + self.turn.large.len();
            while (self.turn.batch.len() + self.turn.large.len() == first
                || operations < operations_max && self.may_take_more(is_costly, before))
                && let Some(token) = self.waits.ready.pop_of(is_costly)
            {
                operations += self.take_on_ready(token, now);
            }
        }
        self.turn.kinds.large = self.turn.batch.len();
        let large_count = self.turn.large.len();
        self.turn.batch.append(&mut self.turn.large);
        self.turn.kinds.stuck = self.turn.batch.len();
        if self.turn.number.is_multiple_of(TURNS_WITH_LARGE_FIRST) {
            self.turn.batch[self.turn.kinds.ready..].rotate_right(large_count);
            self.turn.kinds.large = self.turn.kinds.stuck;
        }
        while let Some(token) = self.waits.next_with_slot(&self.parts.peers) {
            self.waits.ready.push_back(token, 0);
        }
        self.metrics().turns.held_back.add(self.waits.ready.len() as u64);
        let have_others =
            !self.waits.later.is_empty() || !self.arrivals.visitors.is_empty() || self.has_commands_away();
        if self.waits.ready.is_empty() && !have_others {
            // None waits for what another owes.
            self.waits.ready.idle_turn = self.turn.number;
        }
        for _ in 0..self.waits.begin_stuck() {
            self.waits.stuck.pop_front().map(|token| self.take_on(token, now));
        }
    }

    /// Takes a ready connection on, apart from the others if its operations are large.
    fn take_on_ready(&mut self, token: Token, now: Instant) -> usize {
        let before = self.turn.batch.len();
        let operations = self.take_on(token, now);
        // It may have been closed, or handed to another shard.
        let is_taken = self.turn.batch.len() > before;
        if is_taken && let Some(large) = self.turn.batch.pop_if(|submission| submission.is_large) {
            self.turn.large.push(large);
        }
        operations
    }

    /// Returns true if the turn may take another connection: the work of those that it has taken is not enough. Costly ones
    /// leave their part to what the turn has taken on before, which was or is expected to be the work `before`.
    fn may_take_more(&self, is_costly: bool, before: usize) -> bool {
        let work = self.turn.account.spent() + self.turn.expected_work;
        (if is_costly { work } else { work.saturating_sub(before) }) < TURN_INTAKE_WORK
    }

    /// Reads and decodes a connection and adds it to the batch. Spends the work, also that of its operations. Returns the
    /// number of operations for which it counts.
    pub(super) fn take_on(&mut self, token: Token, now: Instant) -> usize {
        let share = self.window.share();
        let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
        let access = &self.parts.shared.access;
        let Some(endpoint) = self.connections.get_mut(token) else { return 0 };
        endpoint.is_queued = false;
        if endpoint.connection.has_other_rules(access) {
            // What the new rules say of each request that waits is not known: the client sends them again.
            self.close(token);
            return 1;
        }
        self.turn.expected_work += endpoint.debt(self.turn.number, self.waits.ready.idle_turn, self.waits.ready.len());
        endpoint.connection.retry(&self.shard_budget);
        if self.shard_budget.is_exhausted() {
            // When its empty buffers are freed, its share may cover the next step.
            endpoint.connection.release(&mut self.shard_budget);
        }
        endpoint.read(metrics, share, now, &mut self.shard_budget);
        if let Some(hello) = endpoint.connection.decode(metrics, self.turn.time, access, &mut self.shard_budget)
            && self.handshake(token, &hello, now)
        {
            self.turn.account.spend_operations(1, 0);
            return 1;
        }
        let Some(endpoint) = self.connections.get_mut(token) else { return 1 };
        let connection = &mut endpoint.connection;
        connection.record_memory(&mut self.shard_budget);
        let is_waiting = connection.wants_submission();
        self.turn.batch.push(Submission {
            token,
            destinations: 0..0,
            forwarded_count: 0,
            lacks_memory: false,
            is_waiting,
            is_large: connection.operation_size() >= COSTLY_WORK,
            is_held: false,
            without_slot: None,
            continues: false,
        });
        // A connection without operations costs time too.
        let operations = if is_waiting { connection.submission_max(share) } else { 1 };
        endpoint.decoding_work = connection.take_work();
        self.turn.account.spend_operations(operations, endpoint.decoding_work);
        operations
    }

    /// Returns true if the forwarded batches of other shards come before the connections in this turn.
    pub(super) fn inbox_is_first(&self) -> bool {
        self.turn.number.is_multiple_of(2)
    }

    /// Executes the operations of all connections of the batch, and of the inbox, as one batch. Operations of a
    /// divided space whose keys belong to another shard are forwarded. Operations that would be executed too late are
    /// refused, unless the server stops: then no connection waits after them.
    pub(super) fn execute(&mut self, stores: &mut Stores<'_>, now: Instant) {
        let inbox_is_first = self.inbox_is_first();
        let operations_max = self.window.limit();
        self.turn.others_wait = self.do_others_wait();
        // The requests of the turn were read before: one that was sent after the reply to an order finds it in force.
        self.take_orders();
        let pause = self.pause(now);
        // Another shard may have returned memory that this one lacks.
        self.shard_budget.balance();
        self.execution.replies.set_room(self.shard_budget.reply_room());
        // True also if only another shard uses its reserve.
        let is_low = self.shard_budget.is_low();
        let mut requests = std::mem::take(&mut self.execution.requests).recycle();
        self.execution.destinations.clear();
        let Parts { index, shared, peers, partition, .. } = &mut self.parts;
        let metrics = shared.metrics(usize::from(*index));
        self.arrivals.inbox.iter_mut().for_each(|arrival| arrival.refuse_if(is_low));
        let mut arrivals = self.arrivals.inbox.iter_mut().filter(|arrival| !arrival.is_refused());
        if inbox_is_first {
            submit_arrivals(arrivals.by_ref(), operations_max, &mut requests);
            self.turn.account.spend_operations(requests.len(), 0);
        }
        let mut submitter = Submitter {
            own: *index,
            partition,
            shared,
            time: self.turn.time,
            metrics,
            connections: &self.connections,
            window: &mut self.window,
            shard_budget: &mut self.shard_budget,
            peers,
            destinations: &mut self.execution.destinations,
            outgoing: &mut self.execution.outgoing,
            pause,
            refusal: self.log.write_refusal,
            judged_at: self.stop.until.is_none().then_some(now),
            others_wait: self.turn.others_wait,
            is_low,
        };
        let mut bytes = Bytes::new(&self.turn.kinds);
        for (index, submission) in
            self.turn.batch.iter_mut().enumerate().filter(|(_, submission)| submission.is_waiting)
        {
            let left = bytes.left(index);
            if left > 0 {
                bytes.count(submitter.submit(submission, &mut requests, left));
            }
        }
        if !inbox_is_first {
            let before = requests.len();
            submit_arrivals(arrivals, operations_max, &mut requests);
            self.turn.account.spend_operations(requests.len() - before, 0);
        }
        if requests.len() > 0 {
            let executed = stores.execute(&requests, &mut self.execution.replies, now);
            self.execution.executed = executed.operations;
            self.turn.account.spend(executed.bytes.max(bytes.submitted));
            metrics.operations.executed.add(self.execution.executed as u64);
            stores.publish(shared);
        }
        self.execution.requests = requests.recycle();
        stores.seal();
    }

    /// Returns true if, in all, more than one connection or forwarded batch waits.
    fn do_others_wait(&self) -> bool {
        let waiting = self.turn.batch.iter().filter(|submission| submission.is_waiting).count();
        waiting + self.waits.ready.len() + self.waits.blocked_count() + self.arrivals.len() > 1
    }

    /// Sends replies back to other shards, writes the replies of the batch, and puts connections into the lists of the
    /// shard.
    pub(super) fn reply(&mut self, stores: &mut Stores<'_>, now: Instant) {
        // In the order of the batch.
        if self.inbox_is_first() {
            let has_progress = self.reply_to_shards();
            self.reply_to_connections(has_progress, stores, now);
        } else {
            self.reply_to_connections(false, stores, now);
            self.reply_to_shards();
        }
    }

    /// Adjusts the window to the time until the replies of the turn were written; the turn took `spent`.
    pub(super) fn measure(&mut self, now: Instant, spent: Duration) {
        let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
        for Replied { front_end, count, read_at } in self.execution.replied.drain(..) {
            metrics.replied(front_end, count as u64, now.saturating_duration_since(read_at));
            self.window.replied(count as u64, read_at, now);
        }
        self.execution.calls.count(&metrics.commands, now, spent, self.execution.executed);
        self.waits.returned.end(now - spent, now);
        metrics.publish_memory(&self.shard_budget);
        self.window.adjust(now);
        self.window.worked(self.execution.executed, spent);
        metrics.turns.count.set(self.turn.number);
        metrics.publish_window(&self.window);
    }
}
