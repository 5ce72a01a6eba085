//! The figures of the page, from an observation.

use skep_server::{LogFigures, Observation, SpaceFigures};

use crate::live::{Log, Space, State};

/// Returns the figures as JSON.
pub(super) fn encode(observation: &Observation) -> String {
    let Observation { operations, delays, connections, .. } = observation;
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
    };
    serde_json::to_string(&state).expect("its names and numbers are JSON")
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
