//! The end of a turn for the connections of its batch: their replies, and the lists in which they wait for their next step.
//!
//! For each connection, in the order of the batch:
//!
//! 1. The replies to its operations are recorded ([`Shard::record_replies`]).
//! 2. As many as possible are encoded, in the order of its requests. Isolated commands are run when it is their turn
//!    ([`Shard::encode_replies`]).
//! 3. They are written ([`Shard::write_replies`]).
//! 4. The connection is put where it waits ([`Place`]).

use std::time::Instant;

use super::Shard;
use super::command_turn::CommandTurn;
use super::execution::{Execution, Replied};
use super::hold::{Caller, run};
use super::isolation::Isolation;
use super::replies_held::{list_held, release};
use super::submission::Submission;
use crate::connection::Next;
use crate::endpoint::Endpoint;
use crate::limits::{ENCODE_BUFFER_SIZE_MAX, RESUMED_PART, TURN_SIZE_MAX};
use crate::reply_queue::ReplyRange;
use crate::spaces::Stores;
use crate::transaction::Bounds;
use crate::vocabulary::{Effort, EncodedReplies, Refusal, Release, ShardSet};

/// What the turn has done so far.
struct Course {
    /// An operation of the batch was executed.
    has_progress: bool,
    /// Bytes that were written.
    written: usize,
    /// Connections that were put back to the head of the postponed ones.
    postponed_again: usize,
}

/// What the turn has done for a connection.
struct Served {
    /// Operations whose replies were recorded.
    done: usize,
    /// Replies that were encoded.
    replied: usize,
    /// They rest on no operation of a store.
    rests_on_nothing: bool,
    isolation: Isolation,
    /// Its next command waits for this time.
    held_until: Option<Instant>,
    /// Its next command has to wait for another turn.
    is_postponed: bool,
    /// It was tried before the others, and nothing was encoded.
    is_first_again: bool,
}

/// Where a connection waits for its next step.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In no list: it is run by the command that has begun, or it waits for its transport or for other shards.
    Nowhere,
    /// See [`Shard::hold_until`] and [`Shard::hold_for_pause`].
    HeldUntil(Instant),
    Paused,
    /// For a loan of these shards, or a visit to one.
    Visit(ShardSet),
    /// With the isolated commands of this effort.
    Later(Effort),
    Postponed,
    /// At the head of the queue: its operations are to be refused.
    Head,
    Returned,
    Slotless(usize),
    Stuck,
    /// At the tail of the queue.
    Tail,
    /// At the tail of the queue, after those whose operations were deferred.
    Last,
    /// Where each connection with this next step is.
    Of(Next),
}

impl Shard {
    /// Writes the replies of the batch, and puts connections that can continue into the queue. `has_progress` says that
    /// an operation before those of the connections was executed.
    pub(super) fn reply_to_connections(&mut self, has_progress: bool, stores: &mut Stores<'_>, now: Instant) {
        let turn = self.command_turn(now);
        let mut course = Course { has_progress, written: 0, postponed_again: 0 };
        let mut bounds = Bounds::new(stores, ShardSet::one(self.parts.index));
        // A visit may have begun that is not done.
        bounds.is_over = self.holds.is_held();
        bounds.is_careful = self.waits.later.is_careful(self.turn.number);
        for index in 0..self.turn.batch.len() {
            if index == self.turn.kinds.ready {
                course.written = course.written.min(TURN_SIZE_MAX / RESUMED_PART);
            }
            let done = self.record_replies(index, &mut course);
            if let Some(served) = self.encode_replies(index, done, &turn, &mut bounds)
                && let Some(next) = self.write_replies(index, &served, &mut bounds, &mut course, now)
                && let Some(place) = self.place(index, &served, next, &course, now)
            {
                self.put(index, place, &served, &turn, &mut course);
            }
        }
        for index in 0..self.turn.batch.len() {
            if self.turn.batch[index].continues {
                self.queue(self.turn.batch[index].token);
            }
        }
        if bounds.executed > 0 {
            bounds.stores.publish(&self.parts.shared);
        }
        self.waits.later.note(bounds.has_misjudged, self.turn.number);
        self.execution.executed += bounds.executed;
        self.turn.batch.clear();
        self.execution.encoded.shrink_to(ENCODE_BUFFER_SIZE_MAX);
        self.feed_monitors();
        self.retry_starved();
    }

    /// Records the replies to the operations of a connection. Returns their number.
    fn record_replies(&mut self, index: usize, course: &mut Course) -> usize {
        let share = self.window.share();
        let Submission { token, ref destinations, forwarded_count, lacks_memory, .. } = self.turn.batch[index];
        let Some(connection) = self.connections.connection_mut(token) else { return 0 };
        let destinations = &self.execution.destinations[destinations.clone()];
        let done = match destinations.is_empty() {
            true => 0,
            false => connection.record_submission(
                destinations,
                forwarded_count,
                &self.execution.replies,
                share,
                course.has_progress,
            ),
        };
        if lacks_memory {
            connection.starve();
        }
        course.has_progress |= done > 0;
        done
    }

    /// Encodes replies of a connection, and runs its isolated commands, as far as possible. Returns `None` if it is no longer
    /// there.
    fn encode_replies(
        &mut self,
        index: usize,
        done: usize,
        turn: &CommandTurn,
        bounds: &mut Bounds<'_, '_>,
    ) -> Option<Served> {
        let Submission { token, ref destinations, .. } = self.turn.batch[index];
        let destinations = &self.execution.destinations[destinations.clone()];
        let endpoint = self.connections.get_mut(token)?;
        let connection = &mut endpoint.connection;
        // Replies of the server itself, such as to PING, rest on nothing.
        let rests_on_nothing = !connection.awaits_replies() && !connection.has_isolated();
        let read_at = connection.read_at();
        let touched = destinations.iter().map(|range| range.bytes_touched(&self.execution.replies)).sum::<usize>();
        let Execution { ref mut calls, ref replies, ref mut encoded, .. } = self.execution;
        let (lines, account) = (&mut self.monitoring.lines, &mut self.turn.account);
        let mut context = turn.context(&self.parts, connection.number, read_at, calls, lines, account);
        (context.slow_room, context.is_first) = (bounds.slow_room, index == 0);
        let mut replied = connection.encode(replies, encoded, &mut context, &self.shard_budget);
        let mut isolation = Isolation::Over;
        if connection.has_isolated() {
            let left = connection.operations_left();
            let is_late =
                self.stop.until.is_none() && self.window.is_late(read_at, turn.now, left, self.turn.others_wait);
            let refusal = if is_late { Refusal::Late } else { self.log.write_refusal };
            let shard_budget = &mut self.shard_budget;
            let (over, count) = run(connection, bounds, replies, encoded, &mut context, shard_budget, refusal);
            (isolation, replied) = (over, replied + count);
            if let Isolation::Blocked(step) = isolation {
                // Nothing else is executed until it is done.
                bounds.is_over = true;
                self.holds.begin_own(Caller::Connection(token), step);
            }
        }
        if replied > 0 {
            let (front_end, read_at) = (connection.front_end(), connection.read_at());
            self.execution.replied.push(Replied { front_end, count: replied, read_at });
        } else if done == 0 && destinations.iter().any(|range| range.is_deferred_for_room(&self.execution.replies)) {
            connection.starve();
        }
        bounds.slow_room = context.slow_room;
        endpoint.activity.record(context.outcome.last_command, turn.served_at);
        // A turn in which its next command only began to wait says nothing of what that costs.
        if replied > 0 || !matches!(isolation, Isolation::Needs(_) | Isolation::Later(_)) {
            let spent = touched + context.account.spent() - context.spent_before;
            endpoint.record_cost(spent, self.turn.number, self.waits.ready.idle_turn, self.waits.ready.len());
        }
        let is_first_again = index < self.turn.resumed && self.execution.encoded.is_empty();
        let (held_until, is_postponed) = (context.outcome.held_until, context.outcome.is_postponed);
        Some(Served { done, replied, rests_on_nothing, isolation, held_until, is_postponed, is_first_again })
    }

    /// Writes the replies that were encoded for a connection, unless they wait for the disk. Returns its next step.
    fn write_replies(
        &mut self,
        index: usize,
        served: &Served,
        bounds: &mut Bounds<'_, '_>,
        course: &mut Course,
        now: Instant,
    ) -> Option<Next> {
        let token = self.turn.batch[index].token;
        let endpoint = self.connections.get_mut(token)?;
        let output_size = endpoint.connection.output_size() + self.execution.encoded.len();
        if !bounds.is_over {
            bounds.stores.seal();
        }
        let release = match served.rests_on_nothing {
            true => Release::Same,
            false => release(bounds.stores, served.isolation, &mut endpoint.connection, self.log.failure()),
        };
        let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
        let may_write_much = course.written < TURN_SIZE_MAX;
        let replies = EncodedReplies { bytes: &self.execution.encoded, release };
        let next = endpoint.write(replies, may_write_much, metrics, now, &mut self.shard_budget);
        list_held(&mut self.waits.awaiting, token, &endpoint.connection, release);
        self.execution.encoded.clear();
        course.written += output_size - endpoint.connection.output_size();
        Some(next)
    }

    /// Returns where a connection waits for its next step.
    fn place(&mut self, index: usize, served: &Served, next: Next, course: &Course, now: Instant) -> Option<Place> {
        let Submission { token, ref destinations, is_waiting, is_held, without_slot, .. } = self.turn.batch[index];
        let destinations = &self.execution.destinations[destinations.clone()];
        let Endpoint { connection, transport, waits_since, .. } = self.connections.get_mut(token)?;
        let works = next == Next::Work;
        let is_deferred = works && (is_waiting && served.done == 0 || served.is_postponed);
        if !is_deferred && let Some(since) = waits_since.take() {
            let most = &self.parts.shared.metrics(usize::from(self.parts.index)).turns.waited_max;
            most.set(most.get().max(self.turn.number - since));
        }
        self.parts.list_session(token, transport);
        let is_late = works && self.stop.until.is_none() && {
            let left = connection.operations_left();
            self.window.is_late(connection.read_at(), now, left, self.turn.others_wait)
        };
        // The usual case is `Next::Wait`.
        Some(match next {
            _ if matches!(served.isolation, Isolation::Blocked(_)) => Place::Nowhere,
            Next::Work if let Some(until) = served.held_until => Place::HeldUntil(until),
            Next::Work if is_held && destinations.is_empty() && served.replied == 0 => Place::Paused,
            Next::Work if served.is_postponed => Place::Postponed,
            Next::Work if let Isolation::Needs(shards) = served.isolation => Place::Visit(shards),
            Next::Work if let Isolation::Later(effort) = served.isolation => Place::Later(effort),
            Next::Work if is_late && connection.may_be_refused() => Place::Head,
            // There was no slot for a batch that is sent again.
            Next::Work if is_deferred && connection.is_returned() => Place::Returned,
            // It waits for a slot aside: there may be many such connections, and a turn has a few slots.
            Next::Work
                if is_deferred
                    && !destinations.is_empty()
                    && destinations.iter().all(ReplyRange::is_pending)
                    && let Some(shard) = without_slot =>
            {
                Place::Slotless(shard)
            }
            Next::Work if is_deferred && (destinations.is_empty() || course.has_progress) => Place::Tail,
            Next::Work if is_deferred => Place::Stuck,
            Next::Work => Place::Last,
            Next::Wait => Place::Nowhere,
            Next::Starve | Next::Drain | Next::Close => Place::Of(next),
        })
    }

    /// Puts a connection where it waits.
    fn put(&mut self, index: usize, place: Place, served: &Served, turn: &CommandTurn, course: &mut Course) {
        let token = self.turn.batch[index].token;
        let is_blocked = matches!(served.isolation, Isolation::Blocked(_));
        let is_listed = matches!(
            place,
            Place::Visit(_)
                | Place::Later(_)
                | Place::Postponed
                | Place::Head
                | Place::Returned
                | Place::Slotless(_)
                | Place::Stuck
        );
        if (is_blocked || is_listed)
            && let Some(endpoint) = self.connections.get_mut(token)
        {
            endpoint.is_queued = true;
        }
        match place {
            Place::Nowhere => {}
            Place::HeldUntil(until) => self.hold_until(token, turn.pause, until),
            Place::Paused => self.hold_for_pause(token),
            Place::Visit(shards) => self.leave_for(token, shards),
            Place::Later(effort) => self.waits.later.push(effort, Caller::Connection(token)),
            Place::Postponed => {
                // Before the connections that were postponed after it.
                let at = if served.is_first_again { course.postponed_again } else { self.waits.postponed.len() };
                self.waits.postponed.insert(at, token);
                course.postponed_again += usize::from(served.is_first_again);
            }
            // A refusal is cheap.
            Place::Head => self.waits.ready.push_front(token, false),
            Place::Returned => {
                self.waits.returned.push_again(token, self.turn.batch[index].is_large);
            }
            Place::Slotless(shard) => self.waits.push_slotless(shard, token),
            Place::Stuck => self.waits.stuck.push_back(token),
            Place::Tail => self.queue(token),
            Place::Last => self.turn.batch[index].continues = true,
            Place::Of(next) => self.act_on(token, next),
        }
    }
}
