//! What each shard counts. Only the shard writes its counters, so they cost a plain store; whoever asks sums up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use skep_store::processor::Statistics;

use crate::delays::Delays;
use crate::ledger::Purse;
use crate::resp_command::COMMAND_COUNT;
use crate::window::Window;

/// A number that one thread writes and all may read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds; only for the thread that owns the counter.
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.get() + count, Ordering::Relaxed);
    }

    /// Sets; only for the thread that owns the counter.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The number.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one shard counts since its start.
///
/// Aligned so that no two shards write to one line, nor to the pair of lines that is fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Metrics {
    /// Connections that were accepted.
    pub(crate) connections_accepted: Counter,
    /// Connections that were refused because there were too many.
    pub(crate) connections_refused: Counter,
    /// Operations that arrived by the native protocol.
    pub(crate) operations_native: Counter,
    /// Operations that its store carried out.
    pub(crate) operations: Counter,
    /// Operations that the shards that own their keys carried out for it.
    pub(crate) operations_forwarded: Counter,
    /// Bytes that arrived.
    pub(crate) input_bytes: Counter,
    /// Bytes that left.
    pub(crate) output_bytes: Counter,
    /// Commands answered with an error.
    pub(crate) error_replies: Counter,
    /// Connections closed because of bytes without meaning.
    pub(crate) protocol_errors: Counter,
    /// Keys in its store.
    pub(crate) pairs: Counter,
    /// Bytes of keys and values in its store.
    pub(crate) pair_bytes: Counter,
    /// Bytes of its memory that are index or hold keys and values.
    pub(crate) taken_bytes: Counter,
    /// Gets that found their key.
    pub(crate) hits: Counter,
    /// Gets that did not.
    pub(crate) misses: Counter,
    /// Operations that may be in flight, and that are.
    pub(crate) window: Counter,
    pub(crate) in_flight: Counter,
    /// The running average, the smallest and the largest of the delays, in nanoseconds.
    pub(crate) delay: Counter,
    pub(crate) delay_min: Counter,
    pub(crate) delay_max: Counter,
    /// How often a connection waited for the next turn because a turn had enough to do.
    pub(crate) held_back: Counter,
    /// Turns that had something to do, and the most that a connection waited until it was served.
    pub(crate) turns: Counter,
    pub(crate) turns_waited_max: Counter,
    /// Bytes that connections hold.
    pub(crate) connection_memory: Counter,
    /// Connections closed because they held memory without progress, or wanted more than one may.
    pub(crate) connections_closed_for_memory: Counter,
    /// Operations answered `BUSY`.
    pub(crate) refused: Counter,
    /// Delays of all operations.
    pub(crate) delays: Delays,
    commands: [Counter; COMMAND_COUNT],
}

impl Metrics {
    /// Counts a RESP command.
    pub(crate) fn command(&self, command: usize) {
        self.commands[command].add(1);
    }

    /// How often a RESP command was answered.
    pub(crate) fn command_count(&self, command: usize) -> u64 {
        self.commands[command].get()
    }

    /// `count` operations were answered, with this delay.
    pub(crate) fn answered(&self, count: u64, delay: Duration) {
        self.delays.add(delay, count);
        self.delay_max.set(self.delay_max.get().max(nanoseconds(delay)));
    }

    /// Takes over where the window stands.
    pub(crate) fn publish_window(&self, window: &Window) {
        self.window.set(window.limit() as u64);
        self.in_flight.set(window.in_flight() as u64);
        self.delay.set(nanoseconds(window.delay()));
        self.delay_min.set(nanoseconds(window.delay_min()));
    }

    /// Takes over what connections hold.
    pub(crate) fn publish_memory(&self, purse: &Purse) {
        self.connection_memory.set(purse.used() as u64);
    }

    /// Takes over what the store counts.
    pub(crate) fn publish(&self, statistics: &Statistics) {
        self.pairs.set(statistics.pairs);
        self.pair_bytes.set(statistics.pair_bytes);
        self.taken_bytes.set(statistics.memory_bytes - statistics.slab_free_bytes);
        self.hits.set(statistics.hits);
        self.misses.set(statistics.misses);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
