//! Isolated commands of a shard's connections, and the loans between shards that they need.
//!
//! ```text
//!   connections that wait ─▶ hold: the union of their shards
//!      ascending: 0 ── ask ──▶ lends at the end of its turn ── store ──▶ │
//!                 1   this shard: stops at once                          ├─▶ run all ─▶ give back
//!                 3 ── ask ──▶ … ── store ──▶                            │
//! ```
//!
//! 1. A command whose keys are all this shard's is run in the turn in which the replies before it are written. Nothing else
//!    is stopped. One whose keys all belong to one other shard is run there (`visits.rs`).
//! 2. Other commands wait for a *hold*. A shard has one hold at a time, for the first commands that wait when it begins: many
//!    of small effort, some of medium effort, and then one of large effort ([`Effort`]). It takes the shards one after
//!    another in ascending order, its own one too: it asks an owner and waits for the store ([`ShardPart`]).
//! 3. An owner lends its store at the end of a turn, to those that asked in their order, and once in a turn. Until the store
//!    is back it executes nothing on stores.
//!    A store is used in rotation: in a turn of its owner, which may go on with a long command, then by a shard that has
//!    asked for it, then in a hold of its owner.
//! 4. The holder runs the commands, and gives the stores back. If the commands are more than the work of a turn, it gives
//!    them back between two commands, and the connections that are left wait for another hold, before others. So a hold
//!    lasts as long as some turns and one command, which is bounded (`transaction/forecast.rs`). A command that has begun and is not done takes
//!    most of the next turns, because others wait for its stores.
//! 5. A shard without its store, or whose command has begun, serves all that needs no store (`beside_hold.rs`): the
//!    replies that the server makes itself, such as those to `PING`, `INFO`, `CLIENT KILL` and `SHUTDOWN`.
//!
//! Holds never wait for each other in a circle. A hold that waits for shard n has all of its shards below n, and none from n
//! on. So of all holds that have a shard, the one whose highest shard is the highest waits for a shard that no hold has, or
//! for none. An owner that has not lent its store lends it after its turn, and a hold that has all of its shards needs no
//! other shard to end: it has the stores themselves.
//!
//! If a store defers operations of a command that has begun, because free memory is being merged, the holder keeps what it
//! has, executes nothing else, and tries again after [`NAP`](crate::limits::NAP). A connection that ends meanwhile is closed
//! after its command. A shard that does not hold a command's shards has executed nothing of it, so a connection that ends
//! while it waits just goes.

use std::collections::VecDeque;
use std::time::Instant;

use super::execution::{Execution, Replied};
use super::isolation::Isolation;
use super::replies_held::{list_held, release};
use super::{Message, Shard, Visitor};
use crate::connection::{Connection, Next};
use crate::limits::{ENCODED_MAX, HELD_FOR_MAX, ISOLATED_IN_TURN_MAX, TURNS_OF_SMALL_MAX};
use crate::memory_budget::ShardBudget;
use crate::resp_command::Context;
use crate::spaces::{ShardPart, SpaceReplies, Stores};
use crate::transaction::Bounds;
use crate::vocabulary::{Effort, EncodedReplies, Refusal, ShardSet, Step, Token};

/// The loans of a shard, and its connections that wait for those of others.
#[derive(Default)]
pub(super) struct Holds {
    /// Shards that have asked for this shard's store.
    asked: VecDeque<u16>,
    /// The store is lent.
    is_lent: bool,
    /// The store, when it has come back.
    returned: Option<Box<ShardPart>>,
    /// The store that another shard has just lent.
    arrived: Option<(u16, Box<ShardPart>)>,
    /// Connections that wait for a hold, by the effort of their next commands, as far as it is known.
    waiting: [VecDeque<Waiting>; Effort::ALL.len()],
    /// The last hold ended before its large effort. That of the next one comes first.
    missed_large: bool,
    /// Holds in succession without a large effort, because more small ones have waited than a hold serves.
    holds_of_small: usize,
    hold: Option<Hold>,
    /// Empty; it keeps its memory.
    spare: VecDeque<Waiting>,
    /// A command on this shard's keys that has begun, and waits.
    own_run: Option<(Caller, Step)>,
    /// A command that had begun was abandoned.
    is_abandoned: bool,
}

/// A connection that waits for a hold.
#[derive(Clone, Copy)]
struct Waiting {
    token: Token,
    /// The shards that its next command involves.
    shards: ShardSet,
    effort: Effort,
}

/// Who has called a command on a shard's own keys.
pub(super) enum Caller {
    /// A connection: its next one.
    Connection(Token),
    /// A visit: its next one.
    Visit(Visitor),
}

/// A hold of shards.
struct Hold {
    shards: ShardSet,
    /// The next shard to be taken, unless all are.
    next: Option<u16>,
    /// The owner of the next one was asked.
    has_asked: bool,
    /// This shard itself is held: it executes nothing else.
    has_own: bool,
    /// Connections whose commands are run.
    connections: VecDeque<Waiting>,
    /// The command of the first of them has begun, and waits.
    blocked: Option<Step>,
}

impl Holds {
    /// Takes a message of another shard.
    pub(super) fn take(&mut self, message: Message) {
        match message {
            Message::Ask(shard) => self.asked.push_back(shard),
            Message::Lend(shard, part, _) => self.arrived = Some((shard, part)),
            Message::GiveBack(part, _) => self.returned = Some(part),
        }
    }

    /// Returns true if this shard executes nothing on stores, except a command that holds it.
    pub(super) fn is_held(&self) -> bool {
        self.is_lent || self.own_run.is_some() || self.hold.as_ref().is_some_and(|hold| hold.has_own)
    }

    /// Returns true if a command on this shard's keys has begun and is not done.
    #[cfg(test)]
    pub(super) fn have_own_run(&self) -> bool {
        self.own_run.is_some()
    }

    /// Returns true if there is something to do for holds.
    pub(super) fn have_work(&self) -> bool {
        let may_begin = self.hold.is_none() && self.has_waiting();
        let goes_on = self.blocked().any(|(_, step)| step == Step::More);
        self.returned.is_some() || self.arrived.is_some() || goes_on || may_begin || self.may_lend()
    }

    /// Returns true if a command that has begun waits for memory.
    pub(super) fn wait_for_memory(&self) -> bool {
        self.blocked().any(|(_, step)| step == Step::Wait)
    }

    /// Returns the connections of this shard whose commands have begun and are not done, and what these wait for. Of a
    /// visit, there is no connection.
    fn blocked(&self) -> impl Iterator<Item = (Option<Token>, Step)> {
        let of_hold = self.hold.as_ref().and_then(|hold| Some((Some(hold.connections.front()?.token), hold.blocked?)));
        let own_run = self.own_run.as_ref().map(|(begun, step)| match begun {
            Caller::Connection(token) => (Some(*token), *step),
            Caller::Visit(_) => (None, *step),
        });
        own_run.into_iter().chain(of_hold)
    }

    fn may_lend(&self) -> bool {
        !self.asked.is_empty() && !self.is_held()
    }

    /// Returns true if a command of this connection has begun and is not done.
    pub(super) fn keep(&self, token: Token) -> bool {
        self.blocked().any(|(blocked, _)| blocked == Some(token))
    }

    /// Returns true if a command has begun and is not done.
    fn has_begun(&self) -> bool {
        self.blocked().next().is_some()
    }

    /// Abandons the command that has begun: the server ends.
    pub(super) fn abandon(&mut self) {
        self.is_abandoned |= self.own_run.take().is_some();
        if let Some(hold) = &mut self.hold {
            self.is_abandoned |= hold.blocked.take().is_some();
            hold.connections.clear();
        }
    }

    /// Returns true, once, if a command that has begun was abandoned: a part of it must not get into the log.
    pub(super) fn take_abandoned(&mut self) -> bool {
        std::mem::take(&mut self.is_abandoned)
    }

    /// Lets a connection, whose next command has this effort, wait for a hold of these shards.
    pub(super) fn wait(&mut self, token: Token, shards: ShardSet, effort: Effort) {
        self.waiting[effort as usize].push_back(Waiting { token, shards, effort });
    }

    /// Returns true if connections wait for a hold.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.iter().any(|waiting| !waiting.is_empty())
    }

    /// Lets this shard execute nothing but a command that has begun in a turn.
    pub(super) fn begin_own(&mut self, begun: Caller, step: Step) {
        assert!(!self.is_held(), "a held shard runs no other command");
        self.own_run = Some((begun, step));
    }

    /// Begins a hold for the connections that have waited longest, some of each effort. Large efforts come last, unless the
    /// last hold has left one.
    fn begin(&mut self) {
        let (mut shards, mut connections) = (ShardSet::default(), std::mem::take(&mut self.spare));
        let large_is_first = std::mem::take(&mut self.missed_large);
        let has_many = self.waiting[Effort::Small as usize].len() > HELD_FOR_MAX[Effort::Small as usize];
        let is_of_small = has_many && !large_is_first && self.holds_of_small < TURNS_OF_SMALL_MAX;
        self.holds_of_small = if is_of_small { self.holds_of_small + 1 } else { 0 };
        for effort in Effort::ALL {
            let waiting = &mut self.waiting[effort as usize];
            let most = if is_of_small && effort == Effort::Large { 0 } else { HELD_FOR_MAX[effort as usize] };
            let count = waiting.len().min(most);
            connections.extend(waiting.drain(..count).inspect(|waiting| shards.extend(waiting.shards)));
            if effort == Effort::Large && large_is_first {
                connections.rotate_right(count);
            }
        }
        self.hold = Some(Hold::new(shards, connections));
    }

    /// Lets connections of a hold that were not served wait for the next one, before all others.
    fn put_back(&mut self, connections: &mut VecDeque<Waiting>) {
        while let Some(waiting) = connections.pop_back() {
            self.missed_large |= waiting.effort == Effort::Large;
            self.waiting[waiting.effort as usize].push_front(waiting);
        }
    }
}

impl Hold {
    fn new(shards: ShardSet, connections: VecDeque<Waiting>) -> Hold {
        Hold { shards, next: shards.next(0), has_asked: false, has_own: false, connections, blocked: None }
    }

    /// Notes that the next shard was taken.
    fn advance(&mut self) {
        self.next = self.next.and_then(|shard| self.shards.next(shard + 1));
        self.has_asked = false;
    }
}

impl Shard {
    /// Continues commands that have begun, and the holds. Returns true if something was done.
    pub(super) fn serve_holds(&mut self, stores: &mut Stores<'_>, now: Instant) -> bool {
        let mut worked = false;
        if self.holds.has_begun()
            && let Some(log) = &self.parts.shared.log
            && log.holds_up(self.log.write_refusal)
        {
            // A long command waits for the disk.
            return false;
        }
        if let Some(part) = self.holds.returned.take() {
            stores.take_back(part);
            self.holds.is_lent = false;
            worked = true;
        }
        if let Some((shard, part)) = self.holds.arrived.take() {
            stores.borrow(shard, part);
            self.holds.hold.as_mut().expect("a hold has asked for it").advance();
            worked = true;
        }
        if let Some((mut begun, _)) = self.holds.own_run.take() {
            let mut bounds = Bounds::of_begun(stores, ShardSet::one(self.parts.index));
            let step = match &mut begun {
                Caller::Connection(token) => self.run_held(*token, &mut bounds, now),
                Caller::Visit(visitor) => self.run_visit(visitor, &mut bounds, now),
            };
            worked |= bounds.executed > 0 || step.is_none_or(|step| step == Step::More);
            stores.publish(&self.parts.shared);
            match (begun, step) {
                (begun, Some(step)) => self.holds.own_run = Some((begun, step)),
                (Caller::Visit(visitor), None) => {
                    stores.seal();
                    self.send_back(visitor);
                }
                (Caller::Connection(_), None) => {}
            }
            // That was its turn: a shard that has asked comes before the next hold of this one.
            self.lend(stores);
        }
        if self.holds.hold.is_none() && self.holds.has_waiting() {
            self.holds.begin();
            worked = true;
        }
        self.take_shards();
        if self.holds.hold.as_ref().is_some_and(|hold| hold.next.is_none()) {
            worked |= self.run_hold(stores, now);
        }
        self.feed_monitors();
        worked
    }

    /// Takes the next shards of the hold, or asks for the next one.
    fn take_shards(&mut self) {
        let own = self.parts.index;
        while let Some(hold) = &mut self.holds.hold
            && let Some(shard) = hold.next
        {
            if shard == own {
                if self.holds.is_lent || self.holds.own_run.is_some() {
                    return;
                }
                hold.has_own = true;
                hold.advance();
            } else {
                if !hold.has_asked {
                    hold.has_asked = true;
                    self.parts.handovers[usize::from(shard)].send(Message::Ask(own));
                }
                return;
            }
        }
    }

    /// Runs the commands of a hold that has all its shards. Then gives the stores back. Returns true if something was done.
    fn run_hold(&mut self, stores: &mut Stores<'_>, now: Instant) -> bool {
        // A key must not be expired in one shard and exist in another.
        stores.set_time(self.turn.time);
        let hold = self.holds.hold.as_mut().expect("a hold is complete");
        let (held, mut connections) = (hold.shards, std::mem::take(&mut hold.connections));
        stores.swap_log();
        let mut bounds = match hold.blocked.take() {
            Some(_) => Bounds::of_begun(stores, held),
            None => Bounds::new(stores, held),
        };
        // A single one keeps no other waiting.
        bounds.is_careful = self.waits.later.is_careful(self.turn.number) && connections.len() > 1;
        let (mut unserved, mut effort) = (VecDeque::new(), Effort::Small);
        while let Some(waiting) = connections.pop_front() {
            // Each effort has time of its own.
            if waiting.effort != effort {
                bounds.left = bounds.left.max(ISOLATED_IN_TURN_MAX);
            }
            (bounds.effort_max, effort) = (waiting.effort, waiting.effort);
            if bounds.is_over || bounds.left == 0 {
                unserved.push_back(waiting);
            } else if let Some(step) = self.run_held(waiting.token, &mut bounds, now) {
                connections.push_front(waiting);
                self.holds.put_back(&mut unserved);
                self.waits.later.note(bounds.has_misjudged, self.turn.number);
                let executed = bounds.executed;
                let hold = self.holds.hold.as_mut().expect("a hold is complete");
                (hold.connections, hold.blocked) = (connections, Some(step));
                bounds.stores.swap_log();
                return executed > 0 || step == Step::More;
            }
        }
        self.holds.put_back(&mut unserved);
        self.waits.later.note(bounds.has_misjudged, self.turn.number);
        stores.swap_log();
        stores.publish(&self.parts.shared);
        for (shard, part) in stores.give_back() {
            self.parts.handovers[usize::from(shard)].send(Message::GiveBack(part, self.turn.time));
        }
        self.holds.hold = None;
        self.holds.spare = connections;
        true
    }

    /// Lends the store after a turn, and after the part of a snapshot's walk that follows it: a shard whose store is asked for
    /// all the time makes steps too.
    pub(super) fn lend_after_turn(&mut self, stores: &mut Stores<'_>) {
        if !self.log.is_behind {
            self.lend(stores);
        }
    }

    /// Lends the store to a shard that has asked for it: the shard is between two batches.
    pub(super) fn lend(&mut self, stores: &mut Stores<'_>) {
        if self.holds.may_lend()
            && let Some(shard) = self.holds.asked.pop_front()
            && let Some(part) = stores.lend()
        {
            self.holds.is_lent = true;
            let message = Message::Lend(self.parts.index, part, self.turn.time);
            self.parts.handovers[usize::from(shard)].send(message);
        }
    }

    /// Runs isolated commands of a connection, on stores that the shard has. Returns the reason if one has begun and is not
    /// done.
    pub(super) fn run_held(&mut self, token: Token, bounds: &mut Bounds<'_, '_>, now: Instant) -> Option<Step> {
        let shared = self.parts.shared.clone();
        let metrics = shared.metrics(usize::from(self.parts.index));
        let turn = self.command_turn(now);
        let endpoint = self.connections.get_mut(token)?;
        endpoint.connection.retry(&self.shard_budget);
        let (number, read_at) = (endpoint.connection.number, endpoint.connection.read_at());
        let left = endpoint.connection.operations_left();
        let is_late = bounds.refuses_late
            && self.stop.until.is_none()
            && self.window.is_late(read_at, now, left, self.turn.others_wait);
        let refusal = if is_late { Refusal::Late } else { self.log.write_refusal };
        let Execution { ref mut calls, ref replies, ref mut encoded, .. } = self.execution;
        let (lines, account) = (&mut self.monitoring.lines, &mut self.turn.account);
        let mut context = turn.context(&self.parts, number, read_at, calls, lines, account);
        (context.slow_room, context.is_first) = (bounds.slow_room, true);
        let begun = bounds.executed;
        let (connection, shard_budget) = (&mut endpoint.connection, &mut self.shard_budget);
        let (isolation, replied) = run(connection, bounds, replies, encoded, &mut context, shard_budget, refusal);
        self.execution.executed += bounds.executed - begun;
        if replied > 0 {
            let (front_end, read_at) = (endpoint.connection.front_end(), endpoint.connection.read_at());
            self.execution.replied.push(Replied { front_end, count: replied, read_at });
        }
        endpoint.activity.record(context.outcome.last_command, turn.served_at);
        let held_until = context.outcome.held_until;
        bounds.slow_room = context.slow_room;
        endpoint.record_cost(
            context.account.spent() - context.spent_before,
            self.turn.number,
            self.waits.ready.idle_turn,
            self.waits.ready.len(),
        );
        if !matches!(isolation, Isolation::Blocked(_)) {
            bounds.stores.seal();
        }
        let release = release(bounds.stores, isolation, &mut endpoint.connection, self.log.failure());
        let replies = EncodedReplies { bytes: &self.execution.encoded, release };
        let next = endpoint.write(replies, true, metrics, now, &mut self.shard_budget);
        list_held(&mut self.waits.awaiting, token, &endpoint.connection, release);
        self.execution.encoded.clear();
        let is_postponed = context.outcome.is_postponed && next == Next::Work;
        if let Isolation::Blocked(step) = isolation {
            return Some(step);
        }
        endpoint.is_queued = false;
        match next {
            Next::Work if let Some(until) = held_until => self.hold_until(token, turn.pause, until),
            Next::Work if is_postponed => {
                endpoint.is_queued = true;
                self.waits.postponed.push_back(token);
            }
            Next::Work => match isolation {
                Isolation::Needs(shards) => {
                    endpoint.is_queued = true;
                    self.leave_for(token, shards);
                }
                Isolation::Later(effort) => self.put_later(token, effort),
                _ => self.queue(token),
            },
            _ => self.act_on(token, next),
        }
        None
    }
}

/// Runs the isolated commands of a connection as far as the held shards and the operations of the turn permit, and encodes
/// the replies to the commands between them. Returns the number of operations that were executed. Commands that have
/// not begun may be refused.
pub(super) fn run(
    connection: &mut Connection,
    bounds: &mut Bounds<'_, '_>,
    replies: &SpaceReplies,
    output: &mut Vec<u8>,
    context: &mut Context<'_>,
    shard_budget: &mut ShardBudget,
    refusal: Refusal,
) -> (Isolation, usize) {
    let mut count = 0;
    while let Some(shards) = connection.isolated_shards(context.partition, shard_budget) {
        if connection.is_isolated_paused(context) {
            return (Isolation::Over, count);
        }
        if !bounds.held.includes(shards) {
            return (Isolation::Needs(shards), count);
        }
        if bounds.left == 0 && !connection.is_blocked() || bounds.is_over {
            return (Isolation::Later(connection.effort()), count);
        }
        let (executed, has_waited) = (bounds.executed, connection.is_blocked());
        if let Some(error) = connection.isolated_refusal(refusal, &context.shared.access) {
            connection.refuse_isolated(error, output, context);
        } else {
            if output.len() >= ENCODED_MAX && !connection.is_blocked() {
                return (Isolation::Later(connection.effort()), count);
            }
            let Some(permit) = connection.permit(output.len(), shard_budget) else { return (Isolation::Over, count) };
            let done = connection.run_isolated(output, bounds, context, permit, shard_budget);
            // Others may see the metrics a little later.
            if connection.reads_statistics() {
                bounds.stores.publish(context.shared);
            }
            match done {
                // It has had the stores for several turns: others have theirs before the next command.
                Ok(()) => (bounds.is_over, bounds.effort_max) = (bounds.is_over || has_waited, Effort::Small),
                Err(Step::Pause | Step::Room | Step::Later) => return (Isolation::Later(connection.effort()), count),
                #[cfg(test)]
                Err(_) if bounds.stores.is_broken => return (Isolation::Later(Effort::Small), count),
                Err(step) => return (Isolation::Blocked(step), count),
            }
        }
        count += (bounds.executed - executed).max(1);
        connection.encode(replies, output, context, shard_budget);
    }
    (Isolation::Over, count)
}
