//! Visits: an isolated command whose keys belong to one other shard is run there, and no shard stops.
//!
//! ```text
//!   home: connection ── parsed batch, input ──▶ owner: queue ─▶ run ── the same, replies ──▶ home: write
//! ```
//!
//! 1. The home shard takes the parsed batch out of the connection, with the input that it refers to. A
//!    [`ForwardedBatch`] carries both to the owner of the keys, and none of their bytes is copied. The connection reads
//!    and executes nothing until they are back.
//! 2. The owner runs the next commands of the batch in one of its turns, as it does with those of its own connections:
//!    if a command takes several turns, nothing else is executed meanwhile. The visits of a turn have bounds of their
//!    own, and come before the connections in every other turn. So neither keep the others waiting. Commands of more than a
//!    small effort wait together with those of the owner's connections (`later.rs`).
//! 3. The owner sends them back with the replies, which the home shard writes. A command that is run in parts comes
//!    back after each, so its client has to take the replies of a part before the next one.
//!
//! A visit has a slot of the rings, and its memory counts as that of a forwarded batch. A command
//! begins with a permit for its reply. A connection for which there is no slot waits until there is one; those
//! that wait get half of the slots that come back, requests the other half. Visits of more than a small effort have a part of
//! the slots, because they stay long. A visit never waits for another shard: if
//! its owner is held, it is in the queue there, and the hold ends without it. A connection that ends meanwhile is closed
//! at once. Its commands are dropped when they come back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::Shard;
use super::execution::Replied;
use super::hold::Caller;
use super::replies_held::{list_held, shown_version};
use crate::durability::Log;
use crate::exchange::{ForwardedBatch, Peer, Shortage, Visit, slot_count};
use crate::front_end::FrontEnd;
use crate::limits::{ENCODED_MAX, LARGER_VISITS_PART, TURN_SIZE_MAX};
use crate::memory_budget::{Loan, Permit, ReplyAccount, ShardBudget, VISIT_COPIES};
use crate::resp_batch::RespBatch;
use crate::spaces::Stores;
use crate::transaction::Bounds;
use crate::unix_time::UnixTime;
use crate::vocabulary::{Effort, EncodedReplies, Refusal, Release, ShardSet, Step, Token};

/// A visit from another shard.
pub(super) struct Visitor {
    shard: usize,
    forwarded: Box<ForwardedBatch>,
    /// The permit of its command, in the account of this shard.
    loan: Loan,
}

/// The connections whose commands are to visit a shard, and that wait for a slot. Those of more than a small effort have a
/// part of the slots, so that small ones do not wait for all of them.
#[derive(Default)]
pub(super) struct WaitingVisits {
    small: VecDeque<Token>,
    larger: VecDeque<Token>,
    /// Larger ones that are at the other shard.
    larger_away: usize,
}

impl WaitingVisits {
    pub(super) fn len(&self) -> usize {
        self.small.len() + self.larger.len()
    }

    /// Returns true if one of them may be sent, when there is a slot.
    pub(super) fn may_be_sent(&self, shard_count: usize) -> bool {
        !self.small.is_empty() || !self.larger.is_empty() && self.larger_left(shard_count) > 0
    }

    /// Returns how many of the larger ones may be sent.
    fn larger_left(&self, shard_count: usize) -> usize {
        (slot_count(shard_count) / LARGER_VISITS_PART).saturating_sub(self.larger_away)
    }

    fn push(&mut self, token: Token, is_larger: bool) {
        if is_larger { &mut self.larger } else { &mut self.small }.push_back(token);
    }
}

/// The visits that wait for a turn, in the order of arrival. Those that are not a small effort wait elsewhere
/// ([`super::later`]).
#[derive(Default)]
pub(super) struct Visitors {
    waiting: VecDeque<Visitor>,
    /// Those that are done in this turn.
    done: Vec<Visitor>,
}

impl Visitors {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a visit that has arrived.
    pub(super) fn push(&mut self, visitor: Visitor) {
        self.waiting.push_back(visitor);
    }
}

impl Visitor {
    /// Receives a visit from a shard. Returns the forwarded batch if it is none.
    pub(super) fn new(shard: usize, forwarded: Box<ForwardedBatch>) -> Result<Visitor, Box<ForwardedBatch>> {
        if forwarded.visit.is_some() { Ok(Visitor { shard, forwarded, loan: Loan::default() }) } else { Err(forwarded) }
    }

    /// Returns the time of the shard that has sent it.
    pub(super) fn time(&self) -> UnixTime {
        self.forwarded.visit.as_ref().expect("it is a visit").time
    }

    /// Returns the effort of its next command, as far as it is known.
    pub(super) fn effort(&mut self) -> Effort {
        self.forwarded.visit.as_mut().expect("it is a visit").parsed.effort()
    }

    /// Takes the permit into the account of this shard that its connection has waited for.
    fn take_permit(&mut self, shard_budget: &mut ShardBudget) {
        let visit = self.forwarded.visit.as_mut().expect("it is a visit");
        let permitted = std::mem::take(&mut visit.permitted);
        if permitted > 0 {
            shard_budget.permit_of_batch(&mut self.loan, permitted);
            shard_budget.memory_budget().record_batch(permitted, 0);
            self.forwarded.counted -= permitted;
        }
    }

    /// Counts its memory, which leaves this shard: the replies for the output of the connection too. Ends its permit.
    fn leave(&mut self, shard_budget: &mut ShardBudget) {
        self.forwarded.encoded.shrink_to(ENCODED_MAX);
        let counted = self.forwarded.capacity() + (VISIT_COPIES - 1) * self.forwarded.encoded.len();
        let before = std::mem::replace(&mut self.forwarded.counted, counted);
        shard_budget.memory_budget().record_batch(before, counted);
        shard_budget.end_permit(&mut self.loan);
    }
}

impl Shard {
    /// Lets the next command of a connection, which counts as queued, be run on these shards, which are not held: on a
    /// single other one by a visit.
    pub(super) fn leave_for(&mut self, token: Token, shards: ShardSet) {
        match shards.single() {
            Some(owner) if owner != self.parts.index => self.send_visit(token, usize::from(owner)),
            _ => {
                let Some(endpoint) = self.connections.get_mut(token) else { return };
                self.holds.wait(token, shards, endpoint.connection.effort());
            }
        }
    }

    fn send_visit(&mut self, token: Token, owner: usize) {
        // Monitors get the commands of a connection in their order.
        self.feed_monitors();
        let Some(endpoint) = self.connections.get_mut(token) else { return };
        let connection = &mut endpoint.connection;
        if connection.has_ended() {
            // It has ended while it waited.
            return self.close(token);
        }
        let (is_larger, shard_count) = (connection.effort() > Effort::Small, self.parts.peers.len());
        let Some(peer) = &mut self.parts.peers[owner] else { return };
        let waiting = &mut self.waits.visits[owner];
        let may_be_sent = !is_larger || waiting.larger_left(shard_count) > 0;
        let Some(mut forwarded) = may_be_sent.then(|| peer.forwarded_batch(false)).flatten() else {
            waiting.push(token, is_larger);
            return;
        };
        waiting.larger_away += usize::from(is_larger);
        connection.release_spare(&mut self.shard_budget);
        let (number, read_at) = (connection.number, connection.read_at());
        let operations_left = connection.operations_left();
        let (permitted, reply_max) =
            (connection.permitted_left(), ReplyAccount::most_of(connection.held(), &self.shard_budget));
        let (parsed, input) = connection.begin_visit();
        let size = parsed.capacity() - parsed.reply_memory() + input.capacity();
        let visit = Visit {
            number,
            read_at,
            operations_left,
            parsed,
            input,
            time: self.turn.time,
            commands: 0,
            executed: 0,
            is_larger,
            last_command: 0,
            is_closing: false,
            permitted,
            reply_max,
        };
        forwarded.connection = token;
        forwarded.visit = Some(visit);
        forwarded.counted = forwarded.capacity() + permitted;
        // Both accounts have the bytes for a moment, so that no other shard takes them.
        self.shard_budget.memory_budget().record_batch(0, forwarded.counted);
        connection.set_away(size, &mut self.shard_budget);
        connection.end_visit_permit(&mut self.shard_budget);
        self.window.submitted(forwarded.len());
        peer.send_requests(forwarded);
        self.waits.visits_away += 1;
    }

    /// Returns true if a connection waits for the stores of other shards.
    pub(super) fn has_commands_away(&self) -> bool {
        self.waits.visits_away > 0
            || self.holds.has_waiting()
            || self.waits.visits.iter().any(|waiting| waiting.len() > 0)
    }

    /// Sends visits that have waited for a slot, for half of the slots: requests of other connections get the others.
    pub(super) fn send_waiting_visits(&mut self) {
        for owner in 0..self.parts.peers.len() {
            let slots = |shard: &Shard| shard.parts.peers[owner].as_ref().map_or(0, Peer::slots);
            for _ in 0..self.waits.visits[owner].larger_left(self.parts.peers.len()).min(slots(self)) {
                let Some(token) = self.waits.visits[owner].larger.pop_front() else { break };
                self.send_visit(token, owner);
            }
            for _ in 0..slots(self).div_ceil(2) {
                let Some(token) = self.waits.visits[owner].small.pop_front() else { break };
                self.send_visit(token, owner);
            }
        }
    }

    /// Gives a connection its commands back from their owner, and writes the replies, unless it has ended. Returns the bytes
    /// that were written.
    pub(super) fn end_visit(&mut self, owner: usize, visit: Visit, forwarded: &ForwardedBatch, now: Instant) -> usize {
        let token = forwarded.connection;
        self.waits.visits_away -= 1;
        self.waits.visits[owner].larger_away -= usize::from(visit.is_larger);
        self.turn.time = self.turn.time.max(visit.time);
        let shared = self.parts.shared.clone();
        let metrics = shared.metrics(usize::from(self.parts.index));
        metrics.operations.forwarded.add(visit.executed as u64);
        let Some(endpoint) = self.connections.get_mut(token) else { return 0 };
        endpoint.is_queued = false;
        endpoint.add_cost(forwarded.work, self.turn.number + 1, self.waits.ready.idle_turn, self.waits.ready.len());
        let at = now.saturating_duration_since(shared.run.started).as_millis() as u64;
        endpoint.activity.record(visit.last_command, at);
        let lacks_memory = forwarded.shortage.is_some();
        endpoint.connection.end_visit(
            visit.parsed,
            visit.input,
            visit.is_closing,
            lacks_memory,
            &mut self.shard_budget,
        );
        if self.stop.until.is_some() {
            endpoint.end_input(metrics, now, &mut self.shard_budget);
        }
        if visit.commands > 0 {
            let count = visit.executed.max(visit.commands);
            self.execution.replied.push(Replied { front_end: FrontEnd::Resp, count, read_at: visit.read_at });
        }
        // Its shard has sealed what the visit has executed.
        let (version, known_failure) = (shown_version(Some(&shared)), self.log.failure());
        let release =
            |log: &Arc<Log>| endpoint.connection.with_doubt(|doubt| log.release(doubt, version, known_failure));
        let release = shared.log.as_ref().map_or(Release::Now, release);
        let output_size = endpoint.connection.output_size() + forwarded.encoded.len();
        let replies = EncodedReplies { bytes: &forwarded.encoded, release };
        let next = endpoint.write(replies, true, metrics, now, &mut self.shard_budget);
        let written = output_size.saturating_sub(endpoint.connection.output_size());
        list_held(&mut self.waits.awaiting, token, &endpoint.connection, release);
        self.act_on(token, next);
        written
    }

    /// Runs visits as far as the operations and bytes of a turn permit.
    pub(super) fn serve_visits(&mut self, stores: &mut Stores<'_>, now: Instant) {
        if self.arrivals.visitors.is_empty() || self.holds.is_held() {
            return;
        }
        let mut bounds = Bounds::new(stores, ShardSet::one(self.parts.index));
        let mut size = 0;
        bounds.is_careful = self.waits.later.is_careful(self.turn.number);
        for _ in 0..self.arrivals.visitors.len() {
            // A command that begins with nothing left would hold the shard for nothing.
            if bounds.left <= 1 || size >= TURN_SIZE_MAX {
                break;
            }
            let Some(mut visitor) = self.arrivals.visitors.waiting.pop_front() else { break };
            (bounds.left, bounds.effort_max) = (bounds.left - 1, Effort::Small);
            match self.run_visit(&mut visitor, &mut bounds, now) {
                None => {
                    bounds.stores.seal();
                    size += visitor.forwarded.encoded.len();
                    self.arrivals.visitors.done.push(visitor);
                }
                #[cfg(test)]
                Some(_) if bounds.stores.is_broken => {
                    self.arrivals.visitors.waiting.push_front(visitor);
                    break;
                }
                Some(Step::Later) => self.waits.later.push(visitor.effort(), Caller::Visit(visitor)),
                Some(step) => {
                    self.holds.begin_own(Caller::Visit(visitor), step);
                    break;
                }
            }
        }
        // A client that has its reply finds the metrics of its commands.
        bounds.stores.publish(&self.parts.shared);
        self.waits.later.note(bounds.has_misjudged, self.turn.number);
        let mut done = std::mem::take(&mut self.arrivals.visitors.done);
        done.drain(..).for_each(|visitor| self.send_back(visitor));
        self.arrivals.visitors.done = done;
    }

    /// Continues the commands of a visit, as far as they are isolated, this shard has their keys, and the turn permits.
    /// Returns the reason if one has begun and is not done.
    pub(super) fn run_visit(
        &mut self,
        visitor: &mut Visitor,
        bounds: &mut Bounds<'_, '_>,
        now: Instant,
    ) -> Option<Step> {
        let turn = self.command_turn(now);
        visitor.take_permit(&mut self.shard_budget);
        let Visitor { forwarded, loan, .. } = &mut *visitor;
        let ForwardedBatch { visit, encoded, work, shortage, .. } = &mut **forwarded;
        let visit = visit.as_mut().expect("it is a visit");
        let is_late = self.stop.until.is_none()
            && self.window.is_late(visit.read_at, now, visit.operations_left, self.turn.others_wait);
        let refusal = if is_late { Refusal::Late } else { self.log.write_refusal };
        let (calls, lines) = (&mut self.execution.calls, &mut self.monitoring.lines);
        let account = &mut self.turn.account;
        let mut context = turn.context(&self.parts, visit.number, visit.read_at, calls, lines, account);
        (context.slow_room, context.is_first) = (bounds.slow_room, true);
        let (partition, own) = (&self.parts.partition, ShardSet::one(self.parts.index));
        let executed = bounds.executed;
        let Visit { parsed, input, reply_max, .. } = visit;
        let mut step = None;
        loop {
            let (has_begun, has_waited) = (parsed.has_begun_isolated(), parsed.is_blocked());
            if !has_begun && parsed.is_isolated_paused(&mut context) {
                break;
            }
            let done = if let Some(error) = parsed.isolated_refusal(refusal, &context.shared.access) {
                parsed.refuse_isolated(error, encoded, &mut context);
                Ok(())
            } else if let Some(permit) = next_permit(parsed, loan, encoded.len(), &mut self.shard_budget) {
                let account = ReplyAccount::of_visit(loan, encoded.len(), *reply_max, &mut self.shard_budget);
                parsed.run_isolated(input.bytes(), encoded, bounds, &mut context, account, permit)
            } else {
                *shortage = Some(Shortage::Replies);
                break;
            };
            if done == Err(Step::Room) {
                *shortage = Some(Shortage::Replies);
                break;
            }
            if done == Err(Step::Later) {
                if parsed.takes_permit() {
                    // It waits for its turn, and takes another one then.
                    self.shard_budget.end_permit(loan);
                }
                // The replies before it do not wait for it. A larger effort that its shard does not know goes back: it waits
                // there until it may take a slot.
                step = Some(Step::Later).filter(|_| visit.commands == 0 && visit.is_larger);
                break;
            }
            bounds.effort_max = Effort::Small;
            visit.commands += 1;
            if let Err(why) = done {
                step = Some(why).filter(|step| *step != Step::Pause);
                break;
            }
            let has_next = parsed.isolated_shards(partition, input.bytes()) == Some(own);
            if !has_next || has_waited || context.outcome.closing || bounds.left <= 1 || encoded.len() >= ENCODED_MAX {
                break;
            }
        }
        *work += context.account.spent() - context.spent_before;
        visit.executed += bounds.executed - executed;
        visit.last_command = context.outcome.last_command;
        visit.is_closing |= context.outcome.closing;
        bounds.slow_room = context.slow_room;
        self.execution.executed += bounds.executed - executed;
        if step.is_none() {
            visitor.leave(&mut self.shard_budget);
        }
        step
    }

    /// Sends a visit back to the shard of its connection.
    pub(super) fn send_back(&mut self, mut visitor: Visitor) {
        self.feed_monitors();
        if let Some(visit) = &mut visitor.forwarded.visit {
            visit.time = self.turn.time;
        }
        if let Some(peer) = &mut self.parts.peers[visitor.shard] {
            peer.send_replies(visitor.forwarded);
        }
    }
}

/// Returns the permit of the next command of a visit, if there is memory for its reply. One that has begun and keeps its
/// store goes on in any case.
fn next_permit(parsed: &RespBatch, loan: &mut Loan, written: usize, shard_budget: &mut ShardBudget) -> Option<Permit> {
    if !parsed.takes_permit() {
        return Some(Permit::for_short_reply());
    }
    let permit = shard_budget.permit(loan, written);
    if parsed.is_blocked() { permit.or(Some(Permit::for_short_reply())) } else { permit }
}
