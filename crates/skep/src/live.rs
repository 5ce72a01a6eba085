//! The state of a running server as JSON: the reply to `/state`, which the page and `skep top` show.

use serde::{Deserialize, Serialize};

/// The figures of a server. Times are in seconds, sizes in bytes; all counts are since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) version: String,
    pub(crate) uptime: f64,
    /// Operations that were executed; those of another shard than the connection's; those that were refused as `BUSY`.
    pub(crate) operations: u64,
    pub(crate) forwarded: u64,
    pub(crate) refused: u64,
    /// The end of each bucket, and the operations in it: see [`skep_server::DelayFigures`].
    pub(crate) delays: Vec<(f64, u64)>,
    pub(crate) connections: u64,
    pub(crate) connections_limit: u64,
    pub(crate) connection_memory: u64,
    pub(crate) connection_memory_limit: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
    pub(crate) spaces: Vec<Space>,
    /// Absent without a cache.
    pub(crate) evictions: Option<u64>,
    /// Absent without a data directory.
    pub(crate) log: Option<Log>,
    /// The calls of each command of RESP, by name.
    pub(crate) commands: Vec<(String, u64)>,
    /// The operations that each shard has executed.
    pub(crate) shards: Vec<u64>,
    /// The keys that the most operations of the last second were on, the hottest first. Absent if the port shows no keys.
    pub(crate) hot_keys: Option<Vec<HotKey>>,
    /// The last slow commands of RESP, the newest first.
    pub(crate) slow: Vec<Slow>,
}

/// A hot key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HotKey {
    pub(crate) space: String,
    /// The key, escaped, or its first bytes.
    pub(crate) key: String,
    /// Operations on it in a second, and their part of all.
    pub(crate) rate: f64,
    pub(crate) share: f64,
}

/// A slow command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Slow {
    /// Seconds since 1970.
    pub(crate) at: u64,
    /// The time that it took, with that for which its request waited.
    pub(crate) seconds: f64,
    pub(crate) command: String,
    /// Its key, escaped. Absent if it has none, or if the port shows no keys.
    pub(crate) key: Option<String>,
}

/// A space.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Space {
    pub(crate) name: String,
    pub(crate) keys: u64,
    pub(crate) used: u64,
    pub(crate) memory: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
}

/// The log and its snapshots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Log {
    /// The level of durability, as its setting.
    pub(crate) durability: String,
    /// Bytes that are not on the disk yet, and bytes that are.
    pub(crate) unflushed: u64,
    pub(crate) durable: u64,
    pub(crate) snapshots: u64,
    /// Seconds since 1970.
    pub(crate) snapshot_at: i64,
    pub(crate) disk_used: u64,
    pub(crate) disk_free: u64,
    /// Why the log refuses writes, if it does.
    pub(crate) trouble: Option<String>,
}
