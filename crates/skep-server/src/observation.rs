//! What a server has done and holds, read while it runs.
//!
//! Shards write their counters with plain stores, whether anyone reads them or not. A reader adds them up, and takes no lock
//! that an operation waits for. So an observation costs the server nothing but the time of the reader's thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use skep_core::function::{CallCounts, CallTotals};
use skep_store::hash::slab::SlabClass;

use crate::certificates::Certificates;
use crate::command_metrics::{COMMAND_COUNT, ERROR_PREFIXES};
use crate::delays::DelayCounts;
use crate::durability::Log;
use crate::front_end::FrontEnd;
use crate::hot_keys::HotKey;
use crate::metrics::Metrics;
use crate::resp_command::{begins_with_key, command_name};
use crate::shared::Shared;
use crate::slow_log::SlowCommand;
use crate::vocabulary::{Durability, Space};

/// Observes a server. It stays valid when the server has stopped.
#[derive(Clone, Debug)]
pub struct Observer {
    shared: Arc<Shared>,
}

/// The state of a server at a moment. All counts are since its start.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Since the start.
    pub uptime: Duration,
    /// The operations.
    pub operations: OperationFigures,
    /// The time from the read of each operation to its reply.
    pub delays: DelayFigures,
    /// The same for each front end, with its name.
    pub front_end_delays: Vec<(&'static str, DelayFigures)>,
    /// The connections.
    pub connections: ConnectionFigures,
    /// The spaces that the server has: hash, ordered, cache.
    pub spaces: Vec<SpaceFigures>,
    /// The index and the slabs of the hash space.
    pub hash: HashFigures,
    /// The cache's evictions, if there is a cache.
    pub evictions: Option<EvictionFigures>,
    /// The log, if the server has a data directory.
    pub log: Option<LogFigures>,
    /// The shards, in their order.
    pub shards: Vec<ShardFigures>,
    /// The commands of RESP that were called, in the order of their table.
    pub commands: Vec<CommandFigures>,
    /// Commands of RESP and memcached that their user may not do: because of the command, and because of a key or a space.
    pub denied: [u64; 2],
    /// The number of error replies over RESP, by their first word.
    pub errors: Vec<(&'static str, u64)>,
    /// The calls of user functions, by name.
    pub functions: Vec<(String, CallTotals)>,
}

/// The operations of all shards.
#[derive(Clone, Copy, Debug)]
pub struct OperationFigures {
    /// Executed by the stores.
    pub executed: u64,
    /// Of these, those that another shard than that of the connection executed.
    pub forwarded: u64,
    /// Refused as `BUSY`.
    pub refused: u64,
    /// Over the native protocol and beyond a limit of their user.
    pub too_fast: u64,
    /// That arrived by the native protocol.
    pub native: u64,
    /// Of these, those that their user may not do.
    pub denied: u64,
}

/// A histogram of delays.
#[derive(Clone, Debug)]
pub struct DelayFigures {
    /// The buckets that are not empty, shortest delays first: the longest delay, and the number of operations that had it
    /// or a shorter one that is in no bucket before. A bucket ends at most a quarter later than it begins, and powers of
    /// two of nanoseconds are ends.
    pub buckets: Vec<(Duration, u64)>,
    /// The number of operations.
    pub count: u64,
    /// The sum of all delays, at most a quarter too large: each counts as the end of its bucket.
    pub sum: Duration,
}

/// The connections of all shards.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionFigures {
    /// At this moment.
    pub open: u64,
    /// The most that may be open.
    pub limit: u64,
    /// Accepted so far.
    pub accepted: u64,
    /// Refused because too many were open, or because a client of another machine needs a password.
    pub refused: u64,
    /// Closed because they held memory without progress, or sent nothing for `timeout` seconds.
    pub closed: u64,
    /// Wrong passwords.
    pub passwords_refused: u64,
    /// When the certificate of the server expires, in seconds since 1970, if it speaks TLS.
    pub certificate_expiry: Option<i64>,
    /// Connections that ended before their handshake of TLS was over.
    pub handshakes_failed: u64,
    /// Bytes of memory that they take.
    pub memory: u64,
    /// Bytes of memory that they may take.
    pub memory_limit: u64,
    /// Bytes that arrived.
    pub input_bytes: u64,
    /// Bytes that left.
    pub output_bytes: u64,
    /// Closed because of bytes without meaning.
    pub protocol_errors: u64,
}

/// The parts of the hash space's memory.
#[derive(Clone, Debug)]
pub struct HashFigures {
    /// Buckets of the index, each of which is the first of a chain.
    pub index_buckets: u64,
    /// Buckets of chains besides these: few, unless the memory was sized for larger pairs.
    pub overflow_buckets: u64,
    /// The size of each class of slabs in bytes, and how many of it are in use. Slabs hold pairs and the overflow buckets.
    pub slabs: Vec<(usize, u64)>,
}

/// A space.
#[derive(Clone, Copy, Debug)]
pub struct SpaceFigures {
    /// `hash`, `ordered` or `cache`.
    pub name: &'static str,
    /// Its keys.
    pub keys: u64,
    /// Bytes of its memory that are in use.
    pub used: u64,
    /// Bytes of its memory.
    pub memory: u64,
    /// Gets that found their key. The ordered space does not count them.
    pub hits: u64,
    /// Gets that did not.
    pub misses: u64,
    /// Keys that were removed because they had expired. Those of the ordered space count as those of the hash space.
    pub expired: u64,
}

/// Pairs that the cache has forgotten to make room.
#[derive(Clone, Copy, Debug)]
pub struct EvictionFigures {
    /// Because their bucket of the index was full.
    pub index: u64,
    /// Because the log has overwritten them.
    pub log: u64,
}

/// The log and its snapshots.
#[derive(Clone, Debug)]
pub struct LogFigures {
    /// What a fault may cost.
    pub durability: Durability,
    /// The times that writes of the log took until they were on disk.
    pub write_times: DelayFigures,
    /// Bytes that were acknowledged or wait for it, and are not yet on the disk.
    pub unflushed_bytes: u64,
    /// Bytes of operations that are on the disk.
    pub durable_bytes: u64,
    /// Snapshots that were completed.
    pub snapshots: u64,
    /// The last snapshot failed.
    pub has_snapshot_failed: bool,
    /// When the last snapshot was completed, in seconds since 1970; at first the time of the start.
    pub snapshot_at: i64,
    /// Bytes that the data directory takes.
    pub disk_used: u64,
    /// Bytes that its disk has free.
    pub disk_free: u64,
    /// Why the log refuses writes, if it does.
    pub trouble: Option<String>,
}

/// A shard.
#[derive(Clone, Copy, Debug)]
pub struct ShardFigures {
    /// Operations that its store has executed.
    pub executed: u64,
    /// Operations in flight.
    pub in_flight: u64,
}

/// A command of RESP.
#[derive(Clone, Debug)]
pub struct CommandFigures {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Executed, also if it failed.
    pub calls: u64,
    /// Executed with an error as reply.
    pub failed: u64,
    /// Refused before it was executed.
    pub rejected: u64,
    /// Its part of the shards' time.
    pub time: Duration,
}

/// A slow command of RESP.
#[derive(Clone, Debug)]
pub struct SlowFigures {
    /// When its reply was made, in seconds since 1970.
    pub at: u64,
    /// From the read of its request until it was executed.
    pub duration: Duration,
    /// Its name, in lower case.
    pub command: String,
    /// Its first argument, perhaps shortened, if that is a key.
    pub key: Option<Vec<u8>>,
}

impl Observer {
    /// Returns an observer of a server.
    pub(crate) fn new(shared: Arc<Shared>) -> Observer {
        Observer { shared }
    }

    /// Returns the state at this moment. Counts that belong together may differ by what happens meanwhile.
    pub fn observe(&self) -> Observation {
        let shared = &*self.shared;
        let cache = (shared.settings.cache_memory > 0).then_some(());
        Observation {
            uptime: shared.run.started.elapsed(),
            operations: operations(shared),
            delays: delays(shared),
            front_end_delays: delays_of_front_ends(shared),
            connections: connections(shared),
            spaces: spaces(shared),
            hash: hash(shared),
            evictions: cache.map(|()| EvictionFigures {
                index: shared.sum(|metrics| &metrics.cache.index_evictions),
                log: shared.sum(|metrics| &metrics.cache.log_evictions),
            }),
            log: shared.log.as_deref().map(log),
            shards: shared.all_metrics().map(shard).collect(),
            commands: (0..COMMAND_COUNT).filter_map(|command| command_figures(shared, command)).collect(),
            denied: shared.access.denials.counts(),
            errors: (0..ERROR_PREFIXES.len()).filter_map(|index| error(shared, index)).collect(),
            functions: functions(shared),
        }
    }

    /// Returns the keys that the most operations of the last second are on, and lets them be counted for the next seconds. A
    /// first call returns none.
    pub fn hot_keys(&self) -> Vec<HotKey> {
        self.shared.hot_keys().look(Instant::now())
    }

    /// Returns the last slow commands of RESP, at most this number, the newest first.
    pub fn slow_commands(&self, count: usize) -> Vec<SlowFigures> {
        let slow = |command: SlowCommand| {
            let mut arguments = command.arguments.into_iter();
            let name = arguments.next().unwrap_or_default();
            let has_key = begins_with_key(&name);
            SlowFigures {
                at: command.time,
                duration: command.duration,
                command: String::from_utf8_lossy(&name).to_ascii_lowercase(),
                key: arguments.next().filter(|_| has_key),
            }
        };
        self.shared.slow_log.newest(count).into_iter().map(slow).collect()
    }

    /// Returns true if the server takes writes: the log has no trouble.
    pub fn takes_writes(&self) -> bool {
        self.shared.log.as_deref().is_none_or(|log| log.trouble().is_none())
    }
}

fn operations(shared: &Shared) -> OperationFigures {
    OperationFigures {
        executed: shared.sum(|metrics| &metrics.operations.executed),
        forwarded: shared.sum(|metrics| &metrics.operations.forwarded),
        refused: shared.sum(|metrics| &metrics.operations.refused),
        too_fast: shared.sum(|metrics| &metrics.operations.too_fast),
        native: shared.sum(|metrics| &metrics.operations.native),
        denied: shared.sum(|metrics| &metrics.operations.denied),
    }
}

/// Returns the delays of the operations of each front end.
fn delays_of_front_ends(shared: &Shared) -> Vec<(&'static str, DelayFigures)> {
    let of = |front_end: FrontEnd| {
        let mut counts = DelayCounts::default();
        shared.all_metrics().for_each(|metrics| metrics.delays_of(front_end).add_to(&mut counts));
        (front_end.name(), delay_figures(&counts))
    };
    FrontEnd::ALL.map(of).into()
}

fn delays(shared: &Shared) -> DelayFigures {
    let mut counts = DelayCounts::default();
    shared.all_metrics().for_each(|metrics| metrics.add_delays_to(&mut counts));
    delay_figures(&counts)
}

fn delay_figures(counts: &DelayCounts) -> DelayFigures {
    let sum = counts.buckets().map(|(delay, count)| delay.as_secs_f64() * count as f64).sum();
    DelayFigures {
        buckets: counts.buckets().collect(),
        count: counts.total(),
        sum: Duration::try_from_secs_f64(sum).unwrap_or(Duration::MAX),
    }
}

fn connections(shared: &Shared) -> ConnectionFigures {
    let refused =
        [shared.sum(|metrics| &metrics.connections.refused), shared.sum(|metrics| &metrics.connections.denied)];
    let closed = [
        shared.sum(|metrics| &metrics.connections.closed_for_memory),
        shared.sum(|metrics| &metrics.connections.closed_idle),
        shared.sum(|metrics| &metrics.connections.closed_without_login),
    ];
    ConnectionFigures {
        open: shared.connection_count() as u64,
        limit: shared.settings.connections_max as u64,
        accepted: shared.sum(|metrics| &metrics.connections.accepted),
        refused: refused.iter().sum(),
        closed: closed.iter().sum(),
        passwords_refused: shared.sum(|metrics| &metrics.passwords_refused),
        certificate_expiry: shared.access.certificates.as_ref().map(Certificates::expiry),
        handshakes_failed: shared.sum(|metrics| &metrics.connections.handshakes_failed),
        memory: shared.sum(|metrics| &metrics.connections.memory) + shared.memory_budget.batches(),
        memory_limit: shared.settings.connection_memory,
        input_bytes: shared.sum(|metrics| &metrics.input_bytes),
        output_bytes: shared.sum(|metrics| &metrics.output_bytes),
        protocol_errors: shared.sum(|metrics| &metrics.protocol_errors),
    }
}

fn hash(shared: &Shared) -> HashFigures {
    let in_use = |class: SlabClass| shared.all_metrics().map(|metrics| metrics.store.slabs[class.index()].get()).sum();
    let slabs = SlabClass::all().map(|class| (class.size(), in_use(class)));
    HashFigures {
        index_buckets: shared.sum(|metrics| &metrics.store.index_buckets),
        overflow_buckets: shared.sum(|metrics| &metrics.store.overflow_buckets),
        slabs: slabs.collect(),
    }
}

fn spaces(shared: &Shared) -> Vec<SpaceFigures> {
    let mut spaces = vec![SpaceFigures {
        name: "hash",
        keys: shared.pair_count(Space::Hash),
        used: shared.sum(|metrics| &metrics.store.taken_bytes),
        memory: shared.settings.memory,
        hits: shared.sum(|metrics| &metrics.store.hits),
        misses: shared.sum(|metrics| &metrics.store.misses),
        expired: shared.sum(|metrics| &metrics.store.expired),
    }];
    if let Some(ordered) = &shared.ordered {
        spaces.push(SpaceFigures {
            name: "ordered",
            keys: shared.pair_count(Space::Ordered),
            used: ordered.statistics().space.used_bytes,
            memory: shared.settings.ordered_memory,
            hits: 0,
            misses: 0,
            expired: 0,
        });
    }
    if shared.settings.cache_memory > 0 {
        spaces.push(SpaceFigures {
            name: "cache",
            keys: shared.pair_count(Space::Cache),
            used: shared.sum(|metrics| &metrics.cache.log_used_bytes),
            memory: shared.settings.cache_memory,
            hits: shared.sum(|metrics| &metrics.cache.hits),
            misses: shared.sum(|metrics| &metrics.cache.misses),
            expired: shared.sum(|metrics| &metrics.cache.expired),
        });
    }
    spaces
}

fn log(log: &Log) -> LogFigures {
    LogFigures {
        durability: log.level(),
        unflushed_bytes: log.unflushed_bytes(),
        write_times: delay_figures(&log.write_times()),
        durable_bytes: log.durable_bytes(),
        snapshots: log.snapshots.completed(),
        has_snapshot_failed: log.snapshots.has_failed(),
        snapshot_at: log.snapshots.last_at(),
        disk_used: log.disk_space.used(),
        disk_free: log.disk_space.free(),
        trouble: log.trouble(),
    }
}

fn shard(metrics: &Metrics) -> ShardFigures {
    ShardFigures { executed: metrics.operations.executed.get(), in_flight: metrics.window.in_flight.get() }
}

/// Returns the figures of a command, if a client has sent it.
fn command_figures(shared: &Shared, command: usize) -> Option<CommandFigures> {
    let sum = |of: fn(&crate::command_metrics::CommandMetrics) -> &crate::counter::Counter| {
        shared.all_metrics().map(|metrics| of(metrics.commands.of(command)).get()).sum::<u64>()
    };
    let (calls, rejected) = (sum(|command| &command.calls), sum(|command| &command.rejected));
    (calls + rejected > 0).then(|| CommandFigures {
        name: command_name(command),
        calls,
        rejected,
        failed: sum(|command| &command.failed),
        time: Duration::from_nanos(sum(|command| &command.nanoseconds)),
    })
}

fn error(shared: &Shared, index: usize) -> Option<(&'static str, u64)> {
    let count = shared.all_metrics().map(|metrics| metrics.errors.get(index)).sum();
    (count > 0).then_some((ERROR_PREFIXES[index], count))
}

fn functions(shared: &Shared) -> Vec<(String, CallTotals)> {
    let mut functions = Vec::new();
    for module in shared.loader.modules().iter() {
        let own = module.functions().iter();
        functions.extend(own.map(|function| {
            let totals = function.counts.map(CallCounts::totals).unwrap_or_default();
            (function.name.clone(), totals)
        }));
    }
    functions
}
