//! The counters of each shard. Only the shard writes them, so they cost a plain store; readers sum them up.

use std::time::Duration;

use skep_store::cache::Statistics as CacheStatistics;
use skep_store::processor::Statistics;
use skep_transport::datagram::Dropped;

use crate::command_metrics::{AllCommandMetrics, ErrorMetrics};
use crate::counter::Counter;
use crate::delays::Delays;
use crate::memcached_counts::MemcachedMetrics;
use crate::memory_budget::ShardBudget;
use crate::vocabulary::LogPace;
use crate::window::Window;

/// The counters of one shard since its start.
///
/// Aligned so that no two shards write to one line, nor to the pair of lines that is fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Metrics {
    /// Connections that were accepted.
    pub(crate) connections_accepted: Counter,
    /// Connections that were refused because there were too many.
    pub(crate) connections_refused: Counter,
    /// Connections from other machines that were refused, because there was no password.
    pub(crate) connections_denied: Counter,
    /// Times that a client sent a wrong password, or none in a native handshake.
    pub(crate) passwords_refused: Counter,
    /// Operations that arrived by the native protocol.
    pub(crate) operations_native: Counter,
    /// Operations that its store executed.
    pub(crate) operations: Counter,
    /// Operations that the shards that own their keys executed for it.
    pub(crate) operations_forwarded: Counter,
    /// Bytes that arrived.
    pub(crate) input_bytes: Counter,
    /// Bytes that left.
    pub(crate) output_bytes: Counter,
    /// Commands whose reply was an error.
    pub(crate) error_replies: Counter,
    /// Connections closed because of bytes without meaning.
    pub(crate) protocol_errors: Counter,
    /// Keys in its store.
    pub(crate) pairs: Counter,
    /// Keys in its store that have an expiry.
    pub(crate) expiring: Counter,
    /// Expired keys that it has removed from both spaces.
    pub(crate) expired: Counter,
    /// Bytes of keys and values in its store.
    pub(crate) pair_bytes: Counter,
    /// Bytes of its memory that are index or hold keys and values.
    pub(crate) taken_bytes: Counter,
    /// Gets that found their key.
    pub(crate) hits: Counter,
    /// Gets that did not.
    pub(crate) misses: Counter,
    /// The counters of its cache.
    pub(crate) cache: CacheMetrics,
    /// The commands of memcached's protocol.
    pub(crate) memcached: MemcachedMetrics,
    /// Operations that may be in flight, and that are.
    pub(crate) window: Counter,
    pub(crate) in_flight: Counter,
    /// The running average, the smallest and the largest of the delays, in nanoseconds.
    pub(crate) delay: Counter,
    pub(crate) delay_min: Counter,
    pub(crate) delay_max: Counter,
    /// Connections that waited for the next turn because a turn had enough to do, each time.
    pub(crate) held_back: Counter,
    /// Turns that had something to do, and the most that a connection waited until it was served.
    pub(crate) turns: Counter,
    pub(crate) turns_waited_max: Counter,
    /// Bytes that connections hold.
    pub(crate) connection_memory: Counter,
    /// Connections closed because they held memory without progress, or wanted more than one may.
    pub(crate) connections_closed_for_memory: Counter,
    /// Connections closed because their clients sent nothing for `timeout` seconds.
    pub(crate) connections_closed_idle: Counter,
    /// Connections over shared memory closed because their clients wrote an invalid word.
    pub(crate) shared_memory_invalid: Counter,
    /// The lines about connections that were closed.
    pub(crate) closed_lines: LogPace,
    /// Monitors closed because they did not read.
    pub(crate) monitors_closed: Counter,
    /// Operations refused with `BUSY`.
    pub(crate) refused: Counter,
    /// The counters of packets over UDP, and over RDMA.
    pub(crate) datagrams: PacketMetrics,
    pub(crate) rdma: PacketMetrics,
    /// Delays of all operations.
    pub(crate) delays: Delays,
    /// The counters of RESP commands.
    pub(crate) commands: AllCommandMetrics,
    /// The counters of errors.
    pub(crate) errors: ErrorMetrics,
}

/// The counters of the packets of sessions.
#[derive(Debug, Default)]
pub(crate) struct PacketMetrics {
    /// Packets that arrived, that were sent, and that were sent again.
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
    pub(crate) repeated: Counter,
    /// Packets that were dropped, by reason.
    pub(crate) dropped: [Counter; Dropped::ALL.len()],
}

/// The counters of the cache of a shard.
#[derive(Debug, Default)]
pub(crate) struct CacheMetrics {
    pub(crate) items: Counter,
    pub(crate) log_bytes: Counter,
    pub(crate) log_used_bytes: Counter,
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) index_evictions: Counter,
    pub(crate) log_evictions: Counter,
    pub(crate) expired: Counter,
}

impl Metrics {
    /// Publishes the statistics of the cache.
    pub(crate) fn publish_cache(&self, statistics: &CacheStatistics) {
        let cache = &self.cache;
        cache.items.set(statistics.items);
        cache.log_bytes.set(statistics.log_bytes);
        cache.log_used_bytes.set(statistics.log_used_bytes);
        cache.hits.set(statistics.hits);
        cache.misses.set(statistics.misses);
        cache.index_evictions.set(statistics.index_evictions);
        cache.log_evictions.set(statistics.log_evictions);
        cache.expired.set(statistics.expired);
    }

    /// Records `count` operations that got their replies after this delay.
    pub(crate) fn replied(&self, count: u64, delay: Duration) {
        self.delays.add(delay, count);
        self.delay_max.set(self.delay_max.get().max(nanoseconds(delay)));
    }

    /// Publishes the state of the window.
    pub(crate) fn publish_window(&self, window: &Window) {
        self.window.set(window.limit() as u64);
        self.in_flight.set(window.in_flight() as u64);
        self.delay.set(nanoseconds(window.delay()));
        self.delay_min.set(nanoseconds(window.delay_min()));
    }

    /// Publishes the memory that connections hold.
    pub(crate) fn publish_memory(&self, shard_budget: &ShardBudget) {
        self.connection_memory.set(shard_budget.used() as u64);
    }

    /// Publishes the statistics of the store.
    pub(crate) fn publish(&self, statistics: &Statistics) {
        self.pairs.set(statistics.pairs);
        self.expiring.set(statistics.expiring);
        self.expired.set(statistics.expired);
        self.pair_bytes.set(statistics.pair_bytes);
        self.taken_bytes.set(statistics.memory_bytes - statistics.slab_free_bytes);
        self.hits.set(statistics.hits);
        self.misses.set(statistics.misses);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
