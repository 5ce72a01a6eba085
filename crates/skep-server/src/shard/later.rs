//! Isolated commands on this shard's keys that wait for a later moment of this turn, or for another turn.
//!
//! ```text
//!   connections ─┐ small effort: at once      ┌─ small: as many as a turn has time for
//!   visits ──────┴─ others, and what is left ─┼─ medium: the same, after the small ones
//!                                             └─ large: after these; one begins in each turn, unless it is short
//! ```
//!
//! 1. A command waits with those of its [`Effort`], in the order of arrival. Each effort has time of its own in each turn, so
//!    a small command waits for the small ones before it, and for one large one that has begun. A large one waits for the
//!    large ones before it, and for some turns of others.
//! 2. No large one begins in some turns in succession in which there was no time for all small ones: it takes as long as many
//!    turns, and clients that send large ones for the first time count as small ones until their commands are judged.
//! 3. Small and medium commands are not interrupted when their time is over. But they may have to wait for memory, or take
//!    longer than was forecast. Then larger ones could not begin in this turn, so they are the first ones of the next turn.
//! 4. A command whose effort turns out to be larger moves to the commands of that effort.

use std::collections::VecDeque;
use std::time::Instant;

use super::Shard;
use super::hold::Caller;
use crate::limits::{FORECAST_TURNS, TURNS_OF_SMALL_MAX};
use crate::spaces::Stores;
use crate::transaction::Bounds;
use crate::vocabulary::{Effort, ShardSet, Step, Token};

/// The commands that wait, and the state of their judgement.
#[derive(Default)]
pub(super) struct Later {
    /// By their effort.
    waiting: [VecDeque<Caller>; Effort::ALL.len()],
    /// None of these efforts could begin in its turn.
    missed: [bool; Effort::ALL.len()],
    /// The turn until which the work of commands is forecast.
    careful_until: u64,
    /// Turns in succession in which no large one has begun, because not all small ones were served.
    turns_of_small: usize,
}

impl Later {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    /// Lets a command wait after those of its effort.
    pub(super) fn push(&mut self, effort: Effort, caller: Caller) {
        self.waiting[effort as usize].push_back(caller);
    }

    /// Notes whether a command `was_misjudged` in this turn: then the work of others is forecast.
    pub(super) fn note(&mut self, was_misjudged: bool, turn: u64) {
        if was_misjudged {
            self.careful_until = turn + FORECAST_TURNS;
        }
    }

    /// Returns true if the work of commands is forecast.
    pub(super) fn is_careful(&self, turn: u64) -> bool {
        turn < self.careful_until
    }
}

impl Shard {
    /// Runs the isolated commands of the turn and writes the replies of its batch.
    pub(super) fn reply_and_run(&mut self, stores: &mut Stores<'_>, now: Instant) {
        for effort in [Effort::Large, Effort::Medium] {
            if std::mem::take(&mut self.waits.later.missed[effort as usize]) {
                self.run_later(effort, stores, now);
            }
        }
        self.run_later(Effort::Small, stores, now);
        // In every other turn before the connections: a command of theirs may take the rest of the turn.
        let visits_are_first = self.inbox_is_first();
        if visits_are_first {
            self.serve_visits(stores, now);
        }
        self.reply(stores, now);
        if !visits_are_first {
            self.serve_visits(stores, now);
        }
        self.run_later(Effort::Medium, stores, now);
        let has_small =
            !self.arrivals.visitors.is_empty() || !self.waits.later.waiting[Effort::Small as usize].is_empty();
        if has_small && self.waits.later.turns_of_small < TURNS_OF_SMALL_MAX {
            self.waits.later.turns_of_small += 1;
        } else {
            self.waits.later.turns_of_small = 0;
            self.run_later(Effort::Large, stores, now);
        }
    }

    /// Runs commands of this effort that wait, as far as the time of a turn permits.
    fn run_later(&mut self, effort: Effort, stores: &mut Stores<'_>, now: Instant) {
        if self.waits.later.waiting[effort as usize].is_empty() {
            return;
        }
        if self.holds.is_held() {
            self.waits.later.missed[effort as usize] = effort > Effort::Small;
            return;
        }
        let mut bounds = Bounds::new(stores, ShardSet::one(self.parts.index));
        (bounds.is_careful, bounds.refuses_late) = (self.waits.later.is_careful(self.turn.number), true);
        while bounds.left > 1
            && let Some(mut caller) = self.waits.later.waiting[effort as usize].pop_front()
        {
            (bounds.effort_max, bounds.left) = (effort, bounds.left - 1);
            let step = match &mut caller {
                Caller::Connection(token) => self.run_held(*token, &mut bounds, now),
                Caller::Visit(visitor) => self.run_visit(visitor, &mut bounds, now),
            };
            match (caller, step) {
                (caller, Some(step)) if step != Step::Later => {
                    self.holds.begin_own(caller, step);
                    break;
                }
                (Caller::Visit(mut visitor), Some(_)) => {
                    self.waits.later.push(visitor.effort(), Caller::Visit(visitor));
                }
                (Caller::Visit(visitor), None) => {
                    bounds.stores.seal();
                    bounds.stores.publish(&self.parts.shared);
                    self.send_back(visitor);
                }
                (Caller::Connection(_), _) => {}
            }
        }
        bounds.stores.publish(&self.parts.shared);
        self.waits.later.note(bounds.has_misjudged, self.turn.number);
        self.feed_monitors();
        self.retry_starved();
    }

    /// Lets the next command of a connection, which is isolated, wait with those of this effort.
    pub(super) fn put_later(&mut self, token: Token, effort: Effort) {
        let Some(endpoint) = self.connections.get_mut(token) else { return };
        endpoint.is_queued = true;
        match endpoint.connection.isolated_shards(&self.parts.partition, &self.shard_budget) {
            Some(shards) if !ShardSet::one(self.parts.index).includes(shards) => self.leave_for(token, shards),
            _ => self.waits.later.push(effort, Caller::Connection(token)),
        }
    }
}
