//! The order of a comparison: start all servers, load all, measure in rounds. Then measure Redis's own commands, and run
//! redis-benchmark, against newly started servers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_measure::{Figure, Times, Work, median};

use super::child::{Server, Setting};
use super::client::{Client, Source, Tally};
use super::redis_benchmark::{self, BenchmarkRow, Settings};
use super::report::{DEPTHS, DepthFigures, Report, Row};
use super::template::{Protocol, Template, Verb};
use super::{commands, defaults};
use crate::keys::{Draw, PairForm};
use crate::process::cores;
use crate::results::Origin;

/// Rounds for each case.
pub(crate) const ROUNDS: usize = 9;
/// Depth of the batches that load the pairs.
pub(super) const LOAD_DEPTH: usize = 256;
/// Requests of redis-benchmark for each second of a case: with pipelines, and without.
const BENCHMARK_REQUESTS: [u64; 2] = [1_000_000, 100_000];

/// The settings of a comparison, as the programs take them.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// Pairs in every server.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub keys: u64,
    /// Requests in a batch, for the figures that compare all servers at one depth.
    #[arg(long, default_value_t = 64, value_parser = up_to_1024())]
    pub depth: usize,
    /// Connections of the client.
    #[arg(long, default_value_t = 16, value_parser = up_to_1024())]
    pub connections: usize,
    /// Seconds for a case, all its rounds together: above 0, up to 3600.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,
    /// The program skep.
    #[arg(long, default_value = "target/release/skep")]
    pub skep: PathBuf,
}

/// Returns the parser of a number from 1 to 1024.
fn up_to_1024() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1024)
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| *seconds > 0.0 && *seconds <= 3600.0)
        .ok_or("choose above 0, up to 3600".to_owned())
}

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

/// The result of one round of a case.
pub(crate) struct Sample {
    pub(crate) tally: Tally,
    server_cpu: f64,
}

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

/// Puts all pairs, and waits until the server is idle: memcached goes on to enlarge its table in a thread of its own.
pub(crate) fn load(server: &Server, plan: &Plan, form: PairForm) -> Result<(), String> {
    let (protocol, address) = server.front_ends[0];
    let template = Template::new(protocol, Verb::Set, form, LOAD_DEPTH);
    let mut client = Client::connect(address, template, plan.connections)?;
    client.run(&mut Source::Each(0..plan.keys), None).map_err(|error| format!("loading {}: {error}", server.name))?;
    server.wait_until_idle()
}

/// Returns the figures of the rounds of a case.
pub(super) fn figures(samples: &[Sample], depth: usize) -> DepthFigures {
    let rounds = |of: fn(&Sample) -> f64| samples.iter().map(of).collect::<Vec<_>>();
    let rates = rounds(|sample| sample.tally.operations as f64 / sample.tally.seconds);
    DepthFigures {
        depth,
        ops_per_s: Figure::of(&rates),
        rates,
        server_cpu: median(&rounds(|sample| sample.server_cpu)),
        client_cpu: median(&rounds(|sample| sample.tally.client_cpu)),
        client_waiting: median(&rounds(|sample| sample.tally.waiting)),
    }
}

/// Measures one round of a case against one target: the form of its pairs, the verb and the depth.
pub(crate) fn measure(
    server: &Server,
    protocol: Protocol,
    (form, verb, depth): (PairForm, Verb, usize),
    plan: &Plan,
    seed: u64,
) -> Result<Sample, String> {
    let address = server.address(protocol).ok_or("the server has no port for this protocol")?;
    let template = Template::new(protocol, verb, form, depth);
    let mut client = Client::connect(address, template, plan.connections)?;
    let mut source = Source::Drawn(Draw::uniform(Xoshiro256PlusPlus::seed_from_u64(seed), plan.keys));
    let mut slice = None;
    Times::for_slice(Duration::from_secs_f64(plan.seconds / ROUNDS as f64)).measure(|at_least| {
        let begun = server.processor_seconds();
        let tally = client.run(&mut source, Some(at_least))?;
        slice = Some(Sample { tally, server_cpu: (server.processor_seconds() - begun) / tally.seconds });
        let spent = Duration::from_secs_f64(tally.seconds);
        Ok::<_, String>(Work { spent, operations: tally.operations as usize })
    })?;
    Ok(slice.expect("the slice ends a measurement"))
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
