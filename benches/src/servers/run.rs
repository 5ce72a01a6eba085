//! The order of a comparison: start all servers, load all, measure in rounds. Then measure Redis's own commands, and run
//! redis-benchmark, against newly started servers.

use std::collections::BTreeSet;

use skep_measure::{Progress, Rounds, Row as Measurement};

use super::child::Setting;
use super::conditions::Conditions;
use super::measure::{Load, figures, load, measure};
use super::plan::Plan;
use super::redis_benchmark::{self, BenchmarkRow, Settings};
use super::report::Report;
use super::rows::{DEPTHS, Row};
use super::template::{Protocol, Verb};
use super::{commands, defaults};
use crate::keys::PairForm;
use crate::process::cores;
use crate::program::Failed;
use crate::results::Head;

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

/// Measures all servers. A failure comes with what was measured before it.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Report, Failed<Report>> {
    let setting = Setting::new(plan, &["redis-server", "memcached"])?;
    let mut report = Report {
        head: Head::here("servers"),
        conditions: Conditions::new(plan, &setting),
        rows: Vec::new(),
        commands: Vec::new(),
        redis_benchmark: Vec::new(),
        default: Vec::new(),
        ratios: Vec::new(),
    };
    let outcome = measure_all(&setting, plan, progress, &mut report);
    report.compute();
    match outcome {
        Ok(()) => Ok(report),
        Err(reason) => Err(Failed { reason, so_far: (!report.rows.is_empty()).then(|| Box::new(report)) }),
    }
}

/// Measures the parts of the report, one after the other.
fn measure_all(setting: &Setting, plan: &Plan, progress: &Progress, report: &mut Report) -> Result<(), String> {
    let cases = cases(plan);
    let rounds = rounds(plan, &cases);
    let has_benchmark = redis_benchmark::is_installed();
    progress.expect(3.0 * plan.load_seconds() + rounds.expected_seconds() + commands::expected_seconds(plan));
    if has_benchmark {
        progress.expect(benchmark_rounds(plan).expected_seconds() + 2.0 * plan.load_seconds());
        progress.expect(defaults::expected_seconds(plan));
    }
    measure_servers(setting, plan, &cases, &rounds, progress, &mut report.rows)?;
    commands::run(setting, plan, progress, &mut report.commands)?;
    if has_benchmark {
        run_redis_benchmark(setting, plan, progress, &mut report.redis_benchmark)?;
        defaults::run(setting, cores()?, plan, progress, &mut report.default)?;
    }
    Ok(())
}

/// Returns the verbs and depths at which all servers are measured.
fn cases(plan: &Plan) -> Vec<(Verb, usize)> {
    let depths: BTreeSet<usize> = DEPTHS.into_iter().chain([1, plan.depth]).collect();
    [Verb::Get, Verb::Set].into_iter().flat_map(|verb| depths.iter().map(move |depth| (verb, *depth))).collect()
}

/// Returns the rounds: a row for each case, a side for each target.
fn rounds(plan: &Plan, cases: &[(Verb, usize)]) -> Rounds {
    let rows = cases.iter().map(|(verb, depth)| Measurement::new(format!("{verb:?}, depth {depth}"), TARGETS.len()));
    Rounds::new(plan.effort(), rows.collect())
}

/// Measures all servers with one client program. Adds a row for each target and verb.
fn measure_servers(
    setting: &Setting,
    plan: &Plan,
    cases: &[(Verb, usize)],
    rounds: &Rounds,
    progress: &Progress,
    rows: &mut Vec<Row>,
) -> Result<(), String> {
    let servers = [setting.skep(PairForm::Random)?, setting.redis()?, setting.memcached()?, setting.echo()?];
    let mut bytes_per_pair = Vec::new();
    for server in &servers {
        let empty = server.resident_size();
        if server.front_ends[0].0 != Protocol::Echo {
            load(server, plan, PairForm::Random, progress)?;
        }
        bytes_per_pair.push(server.resident_size().saturating_sub(empty) as f64 / plan.keys as f64);
    }
    let (samples, outcome) = rounds.run_partly(progress, |turn| {
        let (target, (verb, depth)) = (&TARGETS[turn.side], cases[turn.row]);
        let load = Load { form: PairForm::Random, verb, depth };
        measure(turn, &servers[target.server], target.protocol, load, plan)
            .map_err(|error| format!("{}: {error}", target.name))
    });
    for verb in [Verb::Get, Verb::Set] {
        for (side, target) in TARGETS.iter().enumerate() {
            let of_verb = cases.iter().zip(&samples).filter(|(case, samples)| case.0 == verb && !samples[0].is_empty());
            let depths: Vec<_> = of_verb.map(|((_, depth), samples)| figures(&samples[side], *depth)).collect();
            let (server, bytes_per_pair) = (target.name.to_owned(), bytes_per_pair[target.server]);
            rows.extend((!depths.is_empty()).then_some(Row { server, verb, bytes_per_pair, depths }));
        }
    }
    outcome
}

/// Returns the depths and verbs of redis-benchmark, with the requests of a run.
fn benchmark_cases(plan: &Plan) -> Vec<(Verb, Settings)> {
    let settings = |depth, requests_per_s: u64| Settings {
        keys: plan.keys,
        connections: plan.connections,
        depth,
        requests: (requests_per_s as f64 * plan.seconds) as u64,
    };
    let depths = [settings(plan.depth, BENCHMARK_REQUESTS[0]), settings(1, BENCHMARK_REQUESTS[1])];
    depths.into_iter().flat_map(|settings| [Verb::Set, Verb::Get].map(|verb| (verb, settings))).collect()
}

/// Returns their rounds. A side takes about as long as all slices of a case.
fn benchmark_rounds(plan: &Plan) -> Rounds {
    let row = |(verb, settings): (Verb, Settings)| {
        Measurement::new(format!("redis-benchmark: {verb:?}, depth {}", settings.depth), 2)
    };
    let rows = benchmark_cases(plan).into_iter().map(row).collect();
    Rounds::new(plan.effort(), rows).with_seconds(plan.seconds)
}

/// Runs redis-benchmark against Redis and Skep in turn, with and without pipelines. Adds two rows for each case.
fn run_redis_benchmark(
    setting: &Setting,
    plan: &Plan,
    progress: &Progress,
    rows: &mut Vec<BenchmarkRow>,
) -> Result<(), String> {
    let servers = [setting.skep(PairForm::RedisBenchmark)?, setting.redis()?];
    for server in &servers {
        load(server, plan, PairForm::RedisBenchmark, progress)?;
    }
    let cases = benchmark_cases(plan);
    let (samples, outcome) = benchmark_rounds(plan).run_partly(progress, |turn| {
        let (server, (verb, settings)) = (&servers[turn.side], cases[turn.row]);
        let address = server.address(Protocol::Resp).ok_or("there is no RESP port")?;
        redis_benchmark::run(server, address, verb, settings)
    });
    for mut rounds in samples.into_iter().flatten().filter(|rounds| !rounds.is_empty()) {
        let rates: Vec<f64> = rounds.iter().flat_map(|row| row.rates.iter().copied()).collect();
        rounds.sort_by(|a, b| a.rates[0].total_cmp(&b.rates[0]));
        let middle = rounds.len() / 2;
        rows.push(BenchmarkRow { rates, ..rounds.swap_remove(middle) });
    }
    outcome
}
