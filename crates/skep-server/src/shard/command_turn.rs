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
            served_at: now.saturating_duration_since(shared.run.started).as_millis() as u64,
            is_monitored: !shared.monitors.is_empty(),
        }
    }
}

impl CommandTurn {
    /// Begins the commands of a connection, which has this number and has waited since `read_at`. The commands spend
    /// from the account. It is not the first connection of the turn, and none of its commands is entered in the slow
    /// log, unless the caller sets `is_first` and `slow_room`.
    pub(super) fn context<'a>(
        &self,
        parts: &'a Parts,
        connection: u64,
        read_at: Instant,
        calls: &'a mut TurnCalls,
        monitor_lines: &'a mut Vec<u8>,
        account: &'a mut Account,
    ) -> Context<'a> {
        calls.begin_connection();
        Context {
            shared: &parts.shared,
            partition: &parts.partition,
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
            slow_room: 0,
            spent_before: account.spent(),
            account,
            is_first: false,
            reply_max: 0,
            may_hold_reply: true,
            outcome: Outcome::default(),
        }
    }
}
