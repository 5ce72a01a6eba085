//! The figures of the page, from an observation.

use skep_server::{HotKey as HotKeyFigures, LogFigures, Observer, SlowFigures, SpaceFigures};

use crate::cli::escape;
use crate::live::{HotKey, Log, Slow, Space, State};

/// Slow commands that are shown.
const SLOW_SHOWN: usize = 8;

/// Returns the figures as JSON, with keys if these may be shown.
pub(super) fn encode(observer: &Observer, shows_keys: bool) -> String {
    let observation = observer.observe();
    let (operations, delays, connections) = (&observation.operations, &observation.delays, &observation.connections);
    let slow = |figures: SlowFigures| Slow {
        at: figures.at,
        seconds: figures.duration.as_secs_f64(),
        command: figures.command,
        key: figures.key.filter(|_| shows_keys).map(|key| escape(&key)),
    };
    let state = State {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime: observation.uptime.as_secs_f64(),
        operations: operations.executed,
        forwarded: operations.forwarded,
        refused: operations.refused,
        delays: delays.buckets.iter().map(|(delay, count)| (delay.as_secs_f64(), *count)).collect(),
        connections: connections.open,
        connections_limit: connections.limit,
        connection_memory: connections.memory,
        connection_memory_limit: connections.memory_limit,
        input_bytes: connections.input_bytes,
        output_bytes: connections.output_bytes,
        spaces: observation.spaces.iter().map(space).collect(),
        evictions: observation.evictions.map(|evictions| evictions.index + evictions.log),
        log: observation.log.as_ref().map(log),
        commands: observation.commands.iter().map(|command| (command.name.to_owned(), command.calls)).collect(),
        shards: observation.shards.iter().map(|shard| shard.executed).collect(),
        hot_keys: shows_keys.then(|| observer.hot_keys().into_iter().map(hot_key).collect()),
        slow: observer.slow_commands(SLOW_SHOWN).into_iter().map(slow).collect(),
    };
    serde_json::to_string(&state).expect("its names and numbers are JSON")
}

fn hot_key(figures: HotKeyFigures) -> HotKey {
    let HotKeyFigures { space, key, rate, share } = figures;
    HotKey { space: space.to_owned(), key: escape(&key), rate, share }
}

fn space(space: &SpaceFigures) -> Space {
    let SpaceFigures { name, keys, used, memory, hits, misses, expired } = *space;
    Space { name: name.to_owned(), keys, used, memory, hits, misses, expired }
}

fn log(log: &LogFigures) -> Log {
    Log {
        durability: log.durability.to_string(),
        unflushed: log.unflushed_bytes,
        durable: log.durable_bytes,
        snapshots: log.snapshots,
        snapshot_at: log.snapshot_at,
        disk_used: log.disk_used,
        disk_free: log.disk_free,
        trouble: log.trouble.clone(),
    }
}
