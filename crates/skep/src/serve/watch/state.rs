//! The figures of the page, as JSON.

use serde_json::json;
use skep_server::{LogFigures, Observation, SpaceFigures};

/// Returns the figures. Times are in seconds, sizes in bytes; all counts are since the start.
pub(super) fn encode(observation: &Observation) -> String {
    let Observation { operations, delays, connections, .. } = observation;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime": observation.uptime.as_secs_f64(),
        "operations": operations.executed,
        "forwarded": operations.forwarded,
        "refused": operations.refused,
        "delays": delays.buckets.iter().map(|(delay, count)| (delay.as_secs_f64(), count)).collect::<Vec<_>>(),
        "connections": connections.open,
        "connections_limit": connections.limit,
        "connection_memory": connections.memory,
        "connection_memory_limit": connections.memory_limit,
        "input_bytes": connections.input_bytes,
        "output_bytes": connections.output_bytes,
        "spaces": observation.spaces.iter().map(space).collect::<Vec<_>>(),
        "evictions": observation.evictions.map(|evictions| evictions.index + evictions.log),
        "log": observation.log.as_ref().map(log),
        "commands": observation.commands.iter().map(|command| (command.name, command.calls)).collect::<Vec<_>>(),
        "shards": observation.shards.iter().map(|shard| shard.executed).collect::<Vec<_>>(),
    })
    .to_string()
}

fn space(space: &SpaceFigures) -> serde_json::Value {
    json!({
        "name": space.name,
        "keys": space.keys,
        "used": space.used,
        "memory": space.memory,
        "hits": space.hits,
        "misses": space.misses,
        "expired": space.expired,
    })
}

fn log(log: &LogFigures) -> serde_json::Value {
    json!({
        "durability": log.durability.to_string(),
        "unflushed": log.unflushed_bytes,
        "durable": log.durable_bytes,
        "snapshots": log.snapshots,
        "snapshot_at": log.snapshot_at,
        "disk_used": log.disk_used,
        "disk_free": log.disk_free,
        "trouble": log.trouble,
    })
}
