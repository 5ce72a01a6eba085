//! What a user sees who starts both servers without any setting, and redis-benchmark beside them on the same cores.

use super::child::Setting;
use super::measure::load;
use super::plan::{Plan, ROUNDS};
use super::redis_benchmark::{self, Measured};
use super::template::Protocol;
use crate::keys::PairForm;

/// Keys of redis-benchmark.
const KEYS: u64 = 1_000_000;
/// Connections that redis-benchmark opens if it is not told otherwise.
const CONNECTIONS: usize = 50;

/// A test of redis-benchmark.
struct Case {
    test: &'static str,
    depth: usize,
    /// The setting of Skep, if it is not the default.
    shards: Option<usize>,
    /// Requests for each second of a case.
    requests: u64,
}

const fn case(test: &'static str, depth: usize, shards: Option<usize>, requests: u64) -> Case {
    Case { test, depth, shards, requests }
}

const CASES: [Case; 6] = [
    case("set", 32, None, 1_000_000),
    case("get", 32, None, 1_000_000),
    case("set", 1, None, 100_000),
    case("get", 1, None, 100_000),
    case("mset", 1, Some(2), 100_000),
    case("mset", 32, Some(2), 200_000),
];

/// The figures of one server in one test.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct DefaultRow {
    /// Name of the server.
    pub server: String,
    /// The test of redis-benchmark.
    pub test: String,
    /// Requests in a pipeline.
    pub depth: usize,
    /// Skep's shards, if the number is not the default.
    pub shards: Option<usize>,
    /// Requests per second of each round.
    pub rates: Vec<f64>,
    /// The 99th percentile of the latency in each round, in milliseconds.
    pub p99_ms: Vec<f64>,
}

/// Runs all cases, Skep and Redis in turn.
pub(super) fn run(
    setting: &Setting,
    cores: Vec<usize>,
    plan: &Plan,
    progress: &impl Fn(&str),
) -> Result<Vec<DefaultRow>, String> {
    let setting = Setting { server_cores: cores.clone(), client_cores: cores, ..setting.clone() };
    let mut rows = Vec::new();
    for Case { test, depth, shards, requests } in CASES {
        progress(&format!("redis-benchmark, default settings: {test}, depth {depth}"));
        let servers = [setting.skep_by_default(shards)?, setting.redis()?];
        for server in &servers {
            // Keys that redis-benchmark asks for exist.
            load(server, &Plan { keys: KEYS, ..plan.clone() }, PairForm::RedisBenchmark)?;
        }
        let settings = redis_benchmark::Settings {
            keys: KEYS,
            connections: CONNECTIONS,
            depth,
            requests: (requests as f64 * plan.seconds) as u64,
        };
        let mut rounds: [Vec<Measured>; 2] = Default::default();
        // The first round warms up.
        for round in 0..=ROUNDS {
            for (server, rounds) in servers.iter().zip(&mut rounds) {
                let address = server.address(Protocol::Resp).ok_or("there is no RESP port")?;
                let measured = redis_benchmark::measure(server, address, test, settings)?;
                if round > 0 {
                    rounds.push(measured);
                }
            }
        }
        rows.extend(servers.iter().zip(rounds).map(|(server, rounds)| DefaultRow {
            server: server.name.to_owned(),
            test: test.to_owned(),
            depth,
            shards,
            rates: rounds.iter().map(|measured| measured.ops_per_s).collect(),
            p99_ms: rounds.iter().map(|measured| measured.p99_ms).collect(),
        }));
    }
    Ok(rows)
}
