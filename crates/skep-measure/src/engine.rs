//! The report of `skep bench engine`: the program writes it as JSON, and `benches` reads, saves and shows it.

use crate::Figure;

/// The settings and figures of a run. The order of the fields is their order in the JSON. The report of one store leaves
/// out the fields that only the other one has.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct EngineReport {
    /// Version of the program; empty in older results.
    #[serde(default)]
    pub skep: String,
    /// Model of the processor and number of cores; empty in older results.
    #[serde(default)]
    pub machine: String,
    /// The store: `hash` or `ordered`.
    #[serde(default = "hash")]
    pub engine: String,
    /// Bytes of the store's memory.
    pub memory: u64,
    /// Bytes of a pair.
    pub kv_size: u64,
    /// Share of the memory that holds keys and values.
    pub utilization: f64,
    /// Hash store: share of the memory for the hash index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_index_ratio: Option<f64>,
    /// Ordered store: statistics after the load.
    #[serde(flatten)]
    pub tree: Option<TreeStatistics>,
    /// Operations in a batch.
    pub batch: u64,
    /// Rounds for each case.
    pub rounds: u64,
    /// The largest spread of a figure that is not noisy. In older results, medians with a larger one are null.
    pub spread_max: f64,
    /// Random lines per second that the bare loop reads.
    pub limit_read: Figure,
    /// Random lines per second that the bare loop reads and writes.
    pub limit_rmw: Figure,
    /// The figures of the cases.
    pub cases: Vec<EngineCase>,
    /// Hash store: the cost of the reservation station in some of the cases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub station: Vec<StationCost>,
    /// The limit with additional work for each line.
    #[serde(default)]
    pub limit_with_work: Vec<LimitWithWork>,
}

/// Returns the store of older results, which do not name it.
fn hash() -> String {
    "hash".to_owned()
}

/// Statistics of the ordered store after it was loaded in random order.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct TreeStatistics {
    /// Number of pairs.
    pub pairs: u64,
    /// Levels of the tree, including the leaves.
    pub height: u32,
    /// Bytes of frames and page table for each byte of keys and values.
    pub memory_per_raw_byte: f64,
}

/// The figures of a case.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct EngineCase {
    /// Name of the case.
    pub case: String,
    /// Operations per second.
    pub ops_per_s: Figure,
    /// Lines per second that the bare loop of the case touches.
    pub limit_lines_per_s: Figure,
    /// Lines that the bare loop touches for an operation.
    pub limit_lines: u64,
    /// Operations per second divided by those of the bare loop.
    pub of_limit: Figure,
    /// Accesses of an operation.
    pub accesses: f64,
    /// Lines of an operation; those that it reads in the ordered store.
    pub lines: f64,
    /// Ordered store: bytes of these lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_read: Option<f64>,
    /// Cycles of an operation, if the rate was measured and the kernel reports the frequency.
    #[serde(default)]
    pub cycles: Option<f64>,
}

/// The cost of the reservation station in a case.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct StationCost {
    /// Name of the case.
    pub case: String,
    /// Time with the station divided by time without it; below one the station gains.
    pub time_over_without: Figure,
}

/// The bare loop with additional work for each line.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct LimitWithWork {
    /// Nanoseconds of a line and its work in the cache.
    pub nanoseconds: Figure,
    /// Lines per second divided by those without the work, with no line in the cache.
    pub of_limit: Figure,
}
