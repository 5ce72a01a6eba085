//! The state of a turn that all commands of it share, and the context of one connection's commands.

use std::time::{Duration, Instant};

use super::{Parts, Shard};
use crate::account::Account;
use crate::command_metrics::TurnCalls;
use crate::resp_command::{Context, Outcome};
use crate::slow_log::{slow_from, slow_time};
use crate::unix_time::UnixTime;
use crate::vocabulary::Pause;

/// The state of a turn that its commands read.
#[derive(Clone, Copy)]
pub(super) struct CommandTurn {
    time: UnixTime,
    pub(super) now: Instant,
    /// Commands that wait, if some do.
    pub(super) pause: Option<Pause>,
    /// The time from which on a command is slow, if any is.
    slow_from: Option<Duration>,
    executed_at: Instant,
    /// Milliseconds after the start of the server.
    pub(super) served_at: u64,
    is_monitored: bool,
}

impl Shard {
    /// Returns the state for commands that are run `now`.
    pub(super) fn command_turn(&self, now: Instant) -> CommandTurn {
        let shared = &self.parts.shared;
        let slow_from = slow_from(shared.adjustable.slow_log_from.get());
        CommandTurn {
            time: self.turn.time,
            now,
            pause: self.pause(now),
            slow_from,
            executed_at: if slow_from.is_some() && self.ticks.has_clock { Instant::now() } else { now },
            served_at: now.saturating_duration_since(shared.started).as_millis() as u64,
            is_monitored: !shared.monitors.is_empty(),
        }
    }
}

impl CommandTurn {
    /// Begins the commands of a connection, which has this number and has waited since `read_at`. `slow_room` commands may
    /// be entered in the slow log, and the commands spend from the account. The first connection of a turn makes progress in
    /// any case, if it `is_first`.
    pub(super) fn context<'a>(
        &self,
        parts: &'a Parts,
        (connection, read_at): (u64, Instant),
        (calls, monitor_lines): (&'a mut TurnCalls, &'a mut Vec<u8>),
        (slow_room, account, is_first): (usize, &'a mut Account, bool),
    ) -> Context<'a> {
        calls.begin_connection();
        Context {
            shared: &parts.shared,
            wakers: &parts.wakers,
            shard: usize::from(parts.index),
            connection,
            time: self.time,
            now: self.now,
            pause: self.pause,
            calls,
            monitor_lines: if self.is_monitored { Some(monitor_lines) } else { None },
            read_at,
            slow: slow_time(self.slow_from, read_at, self.executed_at),
            slow_room,
            spent_before: account.spent(),
            account,
            is_first,
            reply_max: 0,
            may_hold_reply: true,
            outcome: Outcome::default(),
        }
    }
}
