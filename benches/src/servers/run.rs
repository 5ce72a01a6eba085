//! The order of a comparison: start all servers, load all, measure in rounds. Then measure Redis's own commands, and run
//! redis-benchmark, against newly started servers.

use std::collections::BTreeSet;

use super::child::Setting;
use super::measure::{Sample, figures, load, measure};
use super::plan::{Plan, ROUNDS};
use super::redis_benchmark::{self, BenchmarkRow, Settings};
use super::report::Report;
use super::rows::{DEPTHS, Row};
use super::template::{Protocol, Verb};
use super::{commands, defaults};
use crate::keys::PairForm;
use crate::process::cores;
use crate::results::Origin;

/// Requests of redis-benchmark for each second of a case: with pipelines, and without.
const BENCHMARK_REQUESTS: [u64; 2] = [1_000_000, 100_000];

/// A server and the protocol of the client.
struct Target {
    name: &'static str,
    server: usize,
    protocol: Protocol,
}

const SKEP: usize = 0;
const REDIS: usize = 1;
const MEMCACHED: usize = 2;
const ECHO: usize = 3;

const TARGETS: [Target; 5] = [
    Target { name: "skep, native", server: SKEP, protocol: Protocol::Native },
    Target { name: "skep, RESP", server: SKEP, protocol: Protocol::Resp },
    Target { name: "redis", server: REDIS, protocol: Protocol::Resp },
    Target { name: "memcached", server: MEMCACHED, protocol: Protocol::Memcached },
    Target { name: "bare echo", server: ECHO, protocol: Protocol::Echo },
];

/// Measures all servers. `progress` gets a line of text for each step.
pub fn run(plan: &Plan, progress: impl Fn(&str)) -> Result<Report, String> {
    let setting = Setting::new(plan, &["redis-server", "memcached"])?;
    progress("starting the servers");
    let servers = [setting.skep(PairForm::Random)?, setting.redis()?, setting.memcached()?, setting.echo()?];
    let mut bytes_per_pair = Vec::new();
    for server in &servers {
        let empty = server.resident_size();
        if server.front_ends[0].0 != Protocol::Echo {
            progress(&format!("loading {} pairs into {}", plan.keys, server.name));
            load(server, plan, PairForm::Random)?;
        }
        bytes_per_pair.push(server.resident_size().saturating_sub(empty) as f64 / plan.keys as f64);
    }

    let depths: BTreeSet<usize> = DEPTHS.into_iter().chain([1, plan.depth]).collect();
    let cases: Vec<(Verb, usize)> =
        [Verb::Get, Verb::Set].into_iter().flat_map(|verb| depths.iter().map(move |depth| (verb, *depth))).collect();
    let mut samples: Vec<Vec<Vec<Sample>>> =
        TARGETS.iter().map(|_| cases.iter().map(|_| Vec::new()).collect()).collect();
    for round in 0..ROUNDS {
        for (case, (verb, depth)) in cases.iter().enumerate() {
            progress(&format!("round {} of {ROUNDS}: {verb:?}, depth {depth}", round + 1));
            for (target, samples) in TARGETS.iter().zip(&mut samples) {
                let seed = (round * cases.len() + case) as u64;
                let case_of = (PairForm::Random, *verb, *depth);
                let sample = measure(&servers[target.server], target.protocol, case_of, plan, seed)
                    .map_err(|error| format!("{}: {error}", target.name))?;
                samples[case].push(sample);
            }
        }
    }
    drop(servers);
    let commands = commands::run(&setting, plan, &progress)?;
    let (mut benchmark, mut default) = (Vec::new(), Vec::new());
    if redis_benchmark::is_installed() {
        benchmark = run_redis_benchmark(&setting, plan, &progress)?;
        default = defaults::run(&setting, cores()?, plan, &progress)?;
    }

    let mut rows = Vec::new();
    for verb in [Verb::Get, Verb::Set] {
        for (target, samples) in TARGETS.iter().zip(&samples) {
            let of_verb = cases.iter().zip(samples).filter(|((case, _), _)| *case == verb);
            rows.push(Row {
                server: target.name.to_owned(),
                verb,
                bytes_per_pair: bytes_per_pair[target.server],
                depths: of_verb.map(|((_, depth), samples)| figures(samples, *depth)).collect(),
            });
        }
    }
    Ok(Report {
        kind: "servers".to_owned(),
        origin: Origin::here(),
        keys: plan.keys,
        depth: plan.depth,
        connections: plan.connections,
        seconds: plan.seconds,
        rounds: ROUNDS,
        cores: [setting.server_cores[0], setting.client_cores[0]],
        ratios: Report::ratios(&rows, &commands, (&benchmark, &default), plan.depth),
        rows,
        commands,
        redis_benchmark: benchmark,
        default,
    })
}

/// Runs redis-benchmark against Redis and Skep in turn, with and without pipelines.
fn run_redis_benchmark(setting: &Setting, plan: &Plan, progress: &impl Fn(&str)) -> Result<Vec<BenchmarkRow>, String> {
    let servers = [setting.skep(PairForm::RedisBenchmark)?, setting.redis()?];
    for server in &servers {
        progress(&format!("redis-benchmark: loading {}", server.name));
        load(server, plan, PairForm::RedisBenchmark)?;
    }
    let mut rows = Vec::new();
    for (depth, requests) in [(plan.depth, BENCHMARK_REQUESTS[0]), (1, BENCHMARK_REQUESTS[1])] {
        let settings = Settings {
            keys: plan.keys,
            connections: plan.connections,
            depth,
            requests: (requests as f64 * plan.seconds) as u64,
        };
        for verb in [Verb::Set, Verb::Get] {
            progress(&format!("redis-benchmark: {verb:?}, depth {depth}"));
            let mut rounds: [Vec<BenchmarkRow>; 2] = Default::default();
            for _ in 0..ROUNDS {
                for (server, rounds) in servers.iter().zip(&mut rounds) {
                    let address = server.address(Protocol::Resp).ok_or("there is no RESP port")?;
                    rounds.push(redis_benchmark::run(server, address, verb, settings)?);
                }
            }
            for mut rounds in rounds {
                let rates: Vec<f64> = rounds.iter().flat_map(|row| row.rates.iter().copied()).collect();
                rounds.sort_by(|a, b| a.rates[0].total_cmp(&b.rates[0]));
                rows.push(BenchmarkRow { rates, ..rounds.swap_remove(ROUNDS / 2) });
            }
        }
    }
    Ok(rows)
}
