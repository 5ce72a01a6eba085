//! The counters of each shard. Only the shard writes them, so they cost a plain store; readers sum them up.

use std::time::Duration;

use skep_store::cache::Statistics as CacheStatistics;
use skep_store::hash::slab::SlabClass;
use skep_store::memory::LINE_SIZE;
use skep_store::processor::Statistics;
use skep_transport::datagram::Dropped;

use crate::command_metrics::{AllCommandMetrics, ErrorMetrics};
use crate::counter::Counter;
use crate::delays::{DelayCounts, Delays};
use crate::front_end::FrontEnd;
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
    pub(crate) connections: ConnectionMetrics,
    /// Times that a client sent a wrong password, or none in a native handshake.
    pub(crate) passwords_refused: Counter,
    pub(crate) operations: OperationMetrics,
    /// Bytes that arrived.
    pub(crate) input_bytes: Counter,
    /// Bytes that left.
    pub(crate) output_bytes: Counter,
    /// Commands whose reply was an error.
    pub(crate) error_replies: Counter,
    /// Connections closed because of bytes without meaning.
    pub(crate) protocol_errors: Counter,
    pub(crate) store: StoreMetrics,
    /// The counters of its cache.
    pub(crate) cache: CacheMetrics,
    /// The commands of memcached's protocol.
    pub(crate) memcached: MemcachedMetrics,
    pub(crate) window: WindowMetrics,
    pub(crate) turns: TurnMetrics,
    /// Connections over shared memory closed because their clients wrote an invalid word.
    pub(crate) shared_memory_invalid: Counter,
    /// The lines about connections that were closed.
    pub(crate) closed_lines: LogPace,
    /// Monitors closed because they did not read.
    pub(crate) monitors_closed: Counter,
    /// The counters of packets over UDP, and over RDMA.
    pub(crate) datagrams: PacketMetrics,
    pub(crate) rdma: PacketMetrics,
    /// Delays of the operations of each front end, in the order of [`FrontEnd::ALL`].
    delays: [Delays; FrontEnd::ALL.len()],
    /// The counters of RESP commands.
    pub(crate) commands: AllCommandMetrics,
    /// The counters of errors.
    pub(crate) errors: ErrorMetrics,
}

/// The counters of connections.
#[derive(Debug, Default)]
pub(crate) struct ConnectionMetrics {
    /// Connections that were accepted.
    pub(crate) accepted: Counter,
    /// Connections that were refused because there were too many.
    pub(crate) refused: Counter,
    /// Connections from other machines that were refused, because there was no password.
    pub(crate) denied: Counter,
    /// Connections closed because they held memory without progress, or wanted more than one may.
    pub(crate) closed_for_memory: Counter,
    /// Connections closed because their clients sent nothing for `timeout` seconds.
    pub(crate) closed_idle: Counter,
    /// Connections closed because their clients did not log in, in time.
    pub(crate) closed_without_login: Counter,
    /// Connections that ended before their handshake of TLS was over.
    pub(crate) handshakes_failed: Counter,
    /// Bytes that connections hold.
    pub(crate) memory: Counter,
}

/// The counters of operations.
#[derive(Debug, Default)]
pub(crate) struct OperationMetrics {
    /// Operations that arrived by the native protocol.
    pub(crate) native: Counter,
    /// Operations that the shard's store executed.
    pub(crate) executed: Counter,
    /// Operations that the shards that own their keys executed for it.
    pub(crate) forwarded: Counter,
    /// Operations refused with `BUSY`.
    pub(crate) refused: Counter,
    /// Operations over the native protocol beyond the limits of their users.
    pub(crate) too_fast: Counter,
    /// Operations over the native protocol that their users may not do.
    pub(crate) denied: Counter,
}

/// The counters of the hash store of a shard.
#[derive(Debug, Default)]
pub(crate) struct StoreMetrics {
    /// Keys.
    pub(crate) pairs: Counter,
    /// Keys that have an expiry.
    pub(crate) expiring: Counter,
    /// Expired keys that the shard has removed from both spaces.
    pub(crate) expired: Counter,
    /// Bytes of keys and values.
    pub(crate) pair_bytes: Counter,
    /// Bytes of the memory that are index or hold keys and values.
    pub(crate) taken_bytes: Counter,
    /// Buckets of the index, and of chains besides.
    pub(crate) index_buckets: Counter,
    pub(crate) overflow_buckets: Counter,
    /// Slabs in use, by class.
    pub(crate) slabs: [Counter; SlabClass::COUNT],
    /// Gets that found their key.
    pub(crate) hits: Counter,
    /// Gets that did not.
    pub(crate) misses: Counter,
}

/// The window of a shard, and the delays of its operations in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct WindowMetrics {
    /// Operations that may be in flight, and that are.
    pub(crate) limit: Counter,
    pub(crate) in_flight: Counter,
    /// The running average, the smallest and the largest of the delays.
    pub(crate) delay: Counter,
    pub(crate) delay_min: Counter,
    pub(crate) delay_max: Counter,
}

/// The counters of turns.
#[derive(Debug, Default)]
pub(crate) struct TurnMetrics {
    /// Turns that had something to do, and the most that a connection waited until it was served.
    pub(crate) count: Counter,
    pub(crate) waited_max: Counter,
    /// Connections that waited for the next turn because a turn had enough to do, each time.
    pub(crate) held_back: Counter,
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
    /// Returns the delays of the operations of a front end.
    pub(crate) fn delays_of(&self, front_end: FrontEnd) -> &Delays {
        &self.delays[front_end as usize]
    }

    /// Adds the delays of the operations of all front ends to `sum`.
    pub(crate) fn add_delays_to(&self, sum: &mut DelayCounts) {
        self.delays.iter().for_each(|delays| delays.add_to(sum));
    }

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

    /// Records `count` operations of a front end that got their replies after this delay.
    pub(crate) fn replied(&self, front_end: FrontEnd, count: u64, delay: Duration) {
        self.delays_of(front_end).add(delay, count);
        let delay_max = &self.window.delay_max;
        delay_max.set(delay_max.get().max(nanoseconds(delay)));
    }

    /// Publishes the state of the window.
    pub(crate) fn publish_window(&self, window: &Window) {
        let metrics = &self.window;
        metrics.limit.set(window.limit() as u64);
        metrics.in_flight.set(window.in_flight() as u64);
        metrics.delay.set(nanoseconds(window.delay()));
        metrics.delay_min.set(nanoseconds(window.delay_min()));
    }

    /// Publishes the memory that connections hold.
    pub(crate) fn publish_memory(&self, shard_budget: &ShardBudget) {
        self.connections.memory.set(shard_budget.used() as u64);
    }

    /// Publishes the statistics of the store.
    pub(crate) fn publish(&self, statistics: &Statistics) {
        let store = &self.store;
        store.pairs.set(statistics.pairs);
        store.expiring.set(statistics.expiring);
        store.expired.set(statistics.expired);
        store.pair_bytes.set(statistics.pair_bytes);
        store.taken_bytes.set(statistics.memory_bytes - statistics.slab_free_bytes);
        store.index_buckets.set(statistics.index_bytes / LINE_SIZE as u64);
        store.overflow_buckets.set(statistics.overflow_buckets);
        store.slabs.iter().zip(statistics.slab.in_use).for_each(|(slabs, in_use)| slabs.set(in_use));
        store.hits.set(statistics.hits);
        store.misses.set(statistics.misses);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
