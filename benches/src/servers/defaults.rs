//! What a user sees who starts both servers without any setting, and redis-benchmark beside them on the same cores.

use skep_measure::{Progress, Rounds, Row};

use super::child::{Server, Setting};
use super::measure::load;
use super::plan::Plan;
use super::redis_benchmark;
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

/// Returns the rounds of a case. A side takes about as long as a slice.
fn rounds(plan: &Plan, case: &Case) -> Rounds {
    let name = format!("redis-benchmark, default settings: {}, depth {}", case.test, case.depth);
    Rounds::new(plan.effort(), vec![Row::new(name, 2)]).with_seconds(plan.seconds)
}

/// Returns about how many seconds all cases take.
pub(super) fn expected_seconds(plan: &Plan) -> f64 {
    let plan = &Plan { keys: KEYS, ..plan.clone() };
    let of_case = |case| rounds(plan, case).expected_seconds() + 2.0 * plan.load_seconds();
    CASES.iter().map(of_case).sum()
}

/// Runs all cases, Skep and Redis in turn. Adds the rows of each case.
pub(super) fn run(
    setting: &Setting,
    cores: Vec<usize>,
    plan: &Plan,
    progress: &Progress,
    rows: &mut Vec<DefaultRow>,
) -> Result<(), String> {
    let setting = Setting { server_cores: cores.clone(), client_cores: cores, ..setting.clone() };
    let plan = &Plan { keys: KEYS, ..plan.clone() };
    for case in &CASES {
        let servers = [setting.skep_by_default(case.shards)?, setting.redis()?];
        for server in &servers {
            // Keys that redis-benchmark asks for exist.
            load(server, plan, PairForm::RedisBenchmark, progress)?;
        }
        let settings = redis_benchmark::Settings {
            keys: KEYS,
            connections: CONNECTIONS,
            depth: case.depth,
            requests: (case.requests as f64 * plan.seconds) as u64,
        };
        let measure = |server: &Server| {
            let address = server.address(Protocol::Resp).ok_or("there is no RESP port")?;
            redis_benchmark::measure(server, address, case.test, settings)
        };
        for server in &servers {
            progress.begin(format!("redis-benchmark: warming {} up", server.name), plan.seconds);
            measure(server)?;
        }
        let samples = rounds(plan, case).run(progress, |turn| measure(&servers[turn.side]))?;
        rows.extend(servers.iter().zip(&samples[0]).map(|(server, samples)| DefaultRow {
            server: server.name.to_owned(),
            test: case.test.to_owned(),
            depth: case.depth,
            shards: case.shards,
            rates: samples.iter().map(|measured| measured.ops_per_s).collect(),
            p99_ms: samples.iter().map(|measured| measured.p99_ms).collect(),
        }));
    }
    Ok(())
}
