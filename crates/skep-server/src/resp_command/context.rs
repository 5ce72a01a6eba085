//! What a command may read and change besides its connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use skep_wire::partition::Partition;

use super::table::CommandName;
use super::{Arguments, monitor_line, slow_entry};
use crate::account::Account;
use crate::command_metrics::TurnCalls;
use crate::limits::{MONITOR_LINE_WORK, SLOW_ENTRY_WORK, TURN_PART_OF_CONNECTION, TURN_WORK, WAKE_WORK};
use crate::shared::Shared;
use crate::unix_time::UnixTime;
use crate::vocabulary::Pause;
use crate::waker::Waker;

/// The state for commands to which the server replies itself. They may read and change it.
pub(crate) struct Context<'a> {
    /// The state that all shards share.
    pub(crate) shared: &'a Shared,
    /// The partition of the keys among the shards.
    pub(crate) partition: &'a Partition,
    /// The ways to all shards.
    pub(crate) wakers: &'a [Arc<Waker>],
    /// The shard that works.
    pub(crate) shard: usize,
    /// The number of the connection.
    pub(crate) connection: u64,
    /// The time at which the turn began.
    pub(crate) time: UnixTime,
    /// The moment at which the turn began.
    pub(crate) now: Instant,
    /// Commands that wait, if some do.
    pub(crate) pause: Option<Pause>,
    /// Counts the commands of the turn.
    pub(crate) calls: &'a mut TurnCalls,
    /// The lines for monitors, if there are any.
    pub(crate) monitor_lines: Option<&'a mut Vec<u8>>,
    /// The time from which on the requests of the connection have waited.
    pub(crate) read_at: Instant,
    /// The time that the commands of the connection took, if that belongs in the slow log.
    pub(crate) slow: Option<Duration>,
    /// Commands that may be entered in the slow log in this turn.
    pub(crate) slow_room: usize,
    /// The work of this turn of the shard.
    pub(crate) account: &'a mut Account,
    /// What was spent of it before the commands of the connection.
    pub(crate) spent_before: usize,
    /// The connection executes a command of the server in this turn, even if the account is spent.
    pub(crate) is_first: bool,
    /// Bytes of replies after which an isolated command pauses that is run in parts.
    pub(crate) reply_max: usize,
    /// There is memory for a costly reply of the server.
    pub(crate) may_hold_reply: bool,
    pub(crate) outcome: Outcome,
}

/// What the commands of a connection have said of its next step.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The next command is to be tried again from this time on.
    pub(crate) held_until: Option<Instant>,
    /// A command of the server waits for another turn.
    pub(crate) is_postponed: bool,
    /// A reply of the server waits for memory.
    pub(crate) lacks_memory: bool,
    /// The connection ends after this reply.
    pub(crate) closing: bool,
    /// The command that was executed last, unless another one was refused since.
    pub(crate) executed: Option<usize>,
    /// The number of the last command, and one more; 0: there was none.
    pub(crate) last_command: usize,
}

impl Context<'_> {
    /// Returns true if the server stops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.stopping.load(Ordering::Relaxed)
    }

    /// Records the user of the connection, for those who ask for the list of clients.
    pub(crate) fn note_user(&self, user: &Arc<str>) {
        if let Some(client) = self.shared.clients().get_mut(&self.connection) {
            client.user = user.clone();
        }
    }

    /// Wakes all shards, because something has changed that each must notice.
    pub(crate) fn wake_shards(&mut self) {
        self.account.spend(WAKE_WORK * self.wakers.len());
        self.wakers.iter().for_each(|waker| waker.wake());
    }

    /// Counts a command that was executed, and shows it to those who want to see it.
    #[inline]
    pub(crate) fn count_command(&mut self, name: CommandName, arguments: Arguments<'_>, operation_count: usize) {
        self.count_calls(name, 1, operation_count.max(1));
        if self.shows_commands() {
            self.show_command(name, arguments);
        }
    }

    /// Returns true if the commands are shown to those who want to see them.
    #[inline]
    pub(crate) fn shows_commands(&self) -> bool {
        self.monitor_lines.is_some() || self.slow.is_some()
    }

    /// Counts adjacent commands of one name that were executed, with one operation each, none of which is shown.
    #[inline]
    pub(crate) fn count_alike(&mut self, name: CommandName, count: usize) {
        debug_assert!(!self.shows_commands());
        self.count_calls(name, count, count);
    }

    #[inline]
    fn count_calls(&mut self, name: CommandName, count: usize, weight: usize) {
        self.shared.metrics(self.shard).commands.of(name as usize).calls.add(count as u64);
        self.calls.add(name as usize, count as u64, weight as u64, self.read_at);
        self.outcome.executed = Some(name as usize);
        self.outcome.last_command = name as usize + 1;
    }

    /// Shows a command that was executed to monitors, and enters it in the slow log if it belongs there.
    #[cold]
    fn show_command(&mut self, name: CommandName, arguments: Arguments<'_>) {
        if self.monitor_lines.is_some()
            && !name.info().has("admin")
            && let Some(lines) = self.monitor_lines.take()
        {
            let before = lines.len();
            monitor_line::append_line(lines, name, arguments, self.connection, self.time, self.shared);
            self.account.spend(MONITOR_LINE_WORK * (lines.len() - before));
            self.monitor_lines = Some(lines);
        }
        if let Some(duration) = self.slow
            && self.slow_room > 0
            && !name.info().has("skip_slowlog")
        {
            self.slow_room -= 1;
            self.account.spend(SLOW_ENTRY_WORK);
            slow_entry::enter(name, arguments, duration, self.connection, self.time, self.shared);
        }
    }

    /// Counts a reply that is an error.
    pub(crate) fn count_error(&self, reply: &[u8]) {
        let metrics = self.shared.metrics(self.shard);
        metrics.error_replies.add(1);
        metrics.errors.count(reply);
        if let Some(command) = self.outcome.executed {
            metrics.commands.of(command).failed.add(1);
        }
    }

    /// Counts a command that was refused because it would be executed too late, with this reply.
    pub(crate) fn count_refused(&mut self, name: CommandName, reply: &[u8]) {
        let metrics = self.shared.metrics(self.shard);
        metrics.operations.refused.add(1);
        metrics.commands.of(name as usize).rejected.add(1);
        self.outcome.executed = None;
        self.count_error(reply);
    }

    /// Returns true if the server may execute another command of its own for the connection in this turn: the account is
    /// not spent, and the connection has not had its part of it. Otherwise the connection is postponed. One command of a
    /// connection goes on in any case if it `is_small`, so that a `PING` does not wait, or if it is the first connection
    /// of the turn, so that none waits for ever. If there is no memory for a reply that is not small, it waits for that.
    pub(crate) fn may_execute(&mut self, is_small: bool) -> bool {
        if !is_small && !self.may_hold_reply {
            self.outcome.lacks_memory = true;
            return false;
        }
        self.has_time(is_small)
    }

    /// Returns true if the account lets the connection go on, as [`Context::may_execute`] does, also without memory for
    /// another reply: it writes a part of one whose value it holds, and waiting would keep that memory.
    pub(crate) fn has_time(&mut self, is_small: bool) -> bool {
        let spent = self.account.spent() - self.spent_before;
        let is_left = !self.account.is_spent() && spent < TURN_WORK / TURN_PART_OF_CONNECTION;
        self.outcome.is_postponed = !is_left && (spent > 0 || !is_small && !self.is_first);
        !self.outcome.is_postponed
    }
}
