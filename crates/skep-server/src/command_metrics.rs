//! What each shard counts about RESP commands and their errors.
//!
//! Commands are executed in batches, so their times cannot be measured one by one. Two numbers take their place:
//!
//! - The *delay* of a command is the time from the read of its request to the end of the turn that has replied to it.
//!   It includes the time in which the request waited.
//! - The *time* of a command is its part of the turn in which its reply was made. A turn is divided equally among the
//!   operations that it executed; a command without operations counts as one.

use std::time::{Duration, Instant};

use crate::counter::Counter;
use crate::delays::Delays;

/// The number of commands in the table of RESP.
pub(crate) const COMMAND_COUNT: usize = 99;

/// The words that errors begin with. Others are counted as `ERR`.
pub(crate) const ERROR_PREFIXES: [&str; 13] = [
    "ERR",
    "WRONGTYPE",
    "NOAUTH",
    "WRONGPASS",
    "NOPROTO",
    "OOM",
    "BUSY",
    "BUSYKEY",
    "MISCONF",
    "EXECABORT",
    "DENIED",
    "NOPERM",
    "UNKILLABLE",
];

/// The counters of a command in one shard.
#[derive(Debug, Default)]
pub(crate) struct CommandMetrics {
    /// Commands that were executed, also those that failed.
    pub(crate) calls: Counter,
    /// Their times, in nanoseconds.
    pub(crate) nanoseconds: Counter,
    /// Commands that were refused before they were executed.
    pub(crate) rejected: Counter,
    /// Executed commands whose reply was an error.
    pub(crate) failed: Counter,
    /// Their delays.
    pub(crate) delays: Delays,
}

/// The counters of all commands, in the order of the table.
#[derive(Debug)]
pub(crate) struct AllCommandMetrics(Box<[CommandMetrics]>);

impl Default for AllCommandMetrics {
    fn default() -> Self {
        AllCommandMetrics((0..COMMAND_COUNT).map(|_| CommandMetrics::default()).collect())
    }
}

impl AllCommandMetrics {
    /// Returns the counters of a command.
    pub(crate) fn of(&self, command: usize) -> &CommandMetrics {
        &self.0[command]
    }
}

/// The counters of errors, in the order of [`ERROR_PREFIXES`].
#[derive(Debug, Default)]
pub(crate) struct ErrorMetrics([Counter; ERROR_PREFIXES.len()]);

impl ErrorMetrics {
    /// Counts an error reply, which begins with `-`.
    pub(crate) fn count(&self, reply: &[u8]) {
        let prefix = reply[1..].split(|byte| matches!(byte, b' ' | b'\r')).next().unwrap_or_default();
        let index = ERROR_PREFIXES.iter().position(|other| other.as_bytes() == prefix).unwrap_or(0);
        self.0[index].add(1);
    }

    /// Returns the number of errors with a prefix.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.0[index].get()
    }
}

/// The commands of a turn, before their times are known.
#[derive(Debug, Default)]
pub(crate) struct TurnCalls {
    calls: Vec<Call>,
    /// The first call of the connection that is being served.
    connection_begin: usize,
    /// The operations of all calls, and the number of those without.
    weight: u64,
}

/// Commands of one name and one connection.
#[derive(Debug)]
struct Call {
    command: usize,
    count: u64,
    weight: u64,
    read_at: Instant,
}

/// Calls of a connection that are searched for the name of its next command.
const SEARCHED_MAX: usize = 4;
/// Calls for which memory is kept from turn to turn.
const KEPT_MAX: usize = 4096;

impl TurnCalls {
    /// Begins with the commands of another connection.
    pub(crate) fn begin_connection(&mut self) {
        self.connection_begin = self.calls.len();
    }

    /// Adds `count` commands of one name, which have waited since `read_at`. Their weight is that of their operations; a
    /// command without has that of one.
    #[inline]
    pub(crate) fn add(&mut self, command: usize, count: u64, weight: u64, read_at: Instant) {
        self.weight += weight;
        let is_of_connection = self.calls.len() > self.connection_begin;
        match self.calls.last_mut() {
            // The usual case: the command that came before it.
            Some(call) if is_of_connection && call.command == command => {
                call.count += count;
                call.weight += weight;
            }
            _ => self.search(command, count, weight, read_at),
        }
    }

    /// Adds commands that differ from the one before them.
    fn search(&mut self, command: usize, count: u64, weight: u64, read_at: Instant) {
        let begin = self.connection_begin.max(self.calls.len().saturating_sub(SEARCHED_MAX));
        match self.calls[begin..].iter_mut().rev().find(|call| call.command == command) {
            Some(call) => {
                call.count += count;
                call.weight += weight;
            }
            None => self.calls.push(Call { command, count, weight, read_at }),
        }
    }

    /// Counts the commands of a turn, which ended `now` and took `spent`. The turn `executed` as many operations.
    pub(crate) fn count(&mut self, metrics: &AllCommandMetrics, now: Instant, spent: Duration, executed: usize) {
        let nanoseconds = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        let divisor = self.weight.max(executed as u64).max(1);
        for call in self.calls.drain(..) {
            let metrics = metrics.of(call.command);
            let part = u128::from(nanoseconds) * u128::from(call.weight) / u128::from(divisor);
            metrics.nanoseconds.add(part as u64);
            metrics.delays.add(now.saturating_duration_since(call.read_at), call.count);
        }
        self.calls.shrink_to(KEPT_MAX);
        (self.connection_begin, self.weight) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{AllCommandMetrics, ERROR_PREFIXES, ErrorMetrics, TurnCalls};
    use crate::delays::DelayCounts;

    #[test]
    fn the_time_of_a_turn_is_divided_among_its_operations() {
        let (metrics, mut calls, begin) = (AllCommandMetrics::default(), TurnCalls::default(), Instant::now());
        let microseconds = Duration::from_micros;
        for _ in 0..3 {
            calls.add(1, 1, 1, begin);
        }
        calls.add(2, 1, 5, begin);
        calls.begin_connection();
        calls.add(1, 1, 1, begin + microseconds(70));
        calls.add(3, 1, 1, begin + microseconds(70));
        calls.count(&metrics, begin + microseconds(100), microseconds(40), 20);
        let of = |command: usize| metrics.of(command).nanoseconds.get();
        assert_eq!([of(0), of(1), of(2), of(3)], [0, 8000, 10_000, 2000]);
        let mut delays = DelayCounts::default();
        metrics.of(1).delays.add_to(&mut delays);
        assert_eq!(delays.buckets().map(|(_, count)| count).collect::<Vec<_>>(), [1, 3]);
        // Commands that take more operations than the turn executed were executed in earlier turns.
        calls.add(2, 1, 100, begin);
        calls.count(&metrics, begin, microseconds(7), 10);
        assert_eq!(of(2), 17_000);
    }

    #[test]
    fn errors_are_counted_by_their_first_word() {
        let errors = ErrorMetrics::default();
        for reply in ["-ERR no\r\n", "-OOM\r\n", "-STRANGE thing\r\n", "-WRONGTYPE x\r\n", "-OOM x\r\n"] {
            errors.count(reply.as_bytes());
        }
        let counts: Vec<(&str, u64)> = (0..ERROR_PREFIXES.len())
            .map(|index| (ERROR_PREFIXES[index], errors.get(index)))
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(counts, [("ERR", 2), ("WRONGTYPE", 1), ("OOM", 2)]);
    }
}
