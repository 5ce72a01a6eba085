//! The slow log: the last commands that took long, from the read of their request until they were executed.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::{SLOW_LOG_REPLY_MAX, SLOW_LOG_SIZE_MAX};
use crate::vocabulary::Address;

/// The last slow commands.
#[derive(Debug, Default)]
pub(crate) struct SlowLog(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    /// The newest first.
    entries: VecDeque<SlowCommand>,
    /// Bytes of all entries.
    size: usize,
    next_number: u64,
}

/// A slow command.
#[derive(Clone, Debug)]
pub(crate) struct SlowCommand {
    /// Its number since the start.
    pub(crate) number: u64,
    /// When its reply was made, in seconds since 1970.
    pub(crate) time: u64,
    /// The time that it took, with the time that its request waited.
    pub(crate) duration: Duration,
    /// The command and its arguments, perhaps shortened.
    pub(crate) arguments: Vec<Vec<u8>>,
    /// The client.
    pub(crate) client: Option<Address>,
    /// The name that the client gave itself.
    pub(crate) client_name: String,
}

impl SlowCommand {
    /// Returns about how many bytes of memory it takes.
    fn size(&self) -> usize {
        let arguments: usize = self.arguments.iter().map(|argument| argument.len() + size_of::<Vec<u8>>()).sum();
        size_of::<SlowCommand>() + arguments + self.client_name.len()
    }
}

/// Returns the time from which on a command is slow; negative: none is.
pub(crate) fn slow_from(microseconds: i64) -> Option<Duration> {
    u64::try_from(microseconds).ok().map(Duration::from_micros)
}

/// Returns the time that commands took which were read at `read_at` and executed at `executed_at`, if they are slow.
pub(crate) fn slow_time(from: Option<Duration>, read_at: Instant, executed_at: Instant) -> Option<Duration> {
    let duration = executed_at.saturating_duration_since(read_at);
    from.filter(|from| duration >= *from).map(|_| duration)
}

impl SlowLog {
    /// Enters a command, and drops the oldest ones if there are more than `length`.
    pub(crate) fn enter(&self, mut command: SlowCommand, length: usize) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        command.number = log.next_number;
        log.next_number += 1;
        log.size += command.size();
        log.entries.push_front(command);
        while log.entries.len() > length || log.size > SLOW_LOG_SIZE_MAX {
            let Some(oldest) = log.entries.pop_back() else { return };
            log.size -= oldest.size();
        }
    }

    /// Returns the newest commands, at most this number, and at most [`SLOW_LOG_REPLY_MAX`] bytes of them.
    pub(crate) fn newest(&self, count: usize) -> Vec<SlowCommand> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut size = 0;
        let fits = |command: &&SlowCommand| {
            size += command.size();
            size <= SLOW_LOG_REPLY_MAX
        };
        log.entries.iter().take(count).take_while(fits).cloned().collect()
    }

    /// Returns the number of commands.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entries.len()
    }

    /// Removes all commands. Returns their bytes.
    pub(crate) fn clear(&self) -> usize {
        let Entries { entries, size, .. } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.clear();
        std::mem::take(size)
    }
}
