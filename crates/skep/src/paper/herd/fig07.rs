//! Figure 7: the effect of prefetching (section 4.1.1). An ECHO reads N random lines before its reply.
//!
//! Run: over shared memory, with one client for each shard, each on a core of its own. The paper's clients use an RDMA
//! NIC, whose limit bounds all curves. Here nothing but the cores does. The lines are those of a populated memory that
//! is much larger than the caches. A server reads one number of lines, with or without prefetching. All servers take
//! turns.

use std::time::Instant;

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep::{Client, Operation, Request, Responses};
use skep_measure::{Figure, Times, Work};
use skep_nic::paper::Axis;
use skep_server::EchoSettings;

use super::fig05::VALUE_SIZE;
use super::published::{Published, Row, rows};
use super::{CLAIMS, Curve, Found, Item, Plan, Statement, millions};
use crate::failure::Failure;
use crate::local_server::{Cores, LocalServer, LocalServerSettings};

pub(super) const ITEM: Item = Item {
    name: "herd-fig07",
    title: "ECHOs that read N random lines, with and without prefetching",
    paper: CLAIMS,
    x: Axis::linear("cores with a shard"),
    y: Axis::linear("ECHOs (million/s)"),
    run: measure,
};

/// The lines that an ECHO reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variant {
    accesses: u8,
    prefetches: bool,
}

const VARIANTS: [Variant; 5] = [
    Variant { accesses: 0, prefetches: false },
    Variant { accesses: 2, prefetches: false },
    Variant { accesses: 2, prefetches: true },
    Variant { accesses: 8, prefetches: false },
    Variant { accesses: 8, prefetches: true },
];
/// The paper's cores.
const CORES_MAX: usize = 5;
/// ECHOs in a batch.
const DEPTH: usize = 256;
/// ECHOs that a client repeats.
const DRAWN_COUNT: usize = 16 * DEPTH;
/// Bytes of the smallest memory.
const MEMORY_MIN: u64 = 64 << 20;

impl Variant {
    fn name(self) -> String {
        match (self.accesses, self.prefetches) {
            (0, _) => "Skep, no accesses".to_owned(),
            (accesses, true) => format!("Skep, N = {accesses}, prefetching"),
            (accesses, false) => format!("Skep, N = {accesses}, no prefetching"),
        }
    }

    fn start(self, cores: &Cores, shards: u16, memory: u64) -> Result<Side, Failure> {
        let Variant { accesses, prefetches } = self;
        let echo = Some(EchoSettings { size: VALUE_SIZE.into(), accesses, prefetches });
        let memory = if accesses == 0 { MEMORY_MIN } else { memory };
        let settings = LocalServerSettings { shards, memory, value_size: VALUE_SIZE.into(), echo };
        let server = LocalServer::start(cores, settings)?;
        let clients = (0..shards).map(|_| server.connect("shm")).collect::<Result<_, _>>()?;
        Ok(Side { clients, _server: server })
    }
}

/// A server, with its clients. They are dropped first.
struct Side {
    clients: Vec<Client>,
    _server: LocalServer,
}

/// The rates of all rounds for each variant.
pub(super) struct Rates {
    shards: u16,
    memory: u64,
    are_apart: bool,
    rates: [Vec<f64>; VARIANTS.len()],
}

/// Measures this many shards, if there are as many cores for clients.
pub(super) fn rates_of(
    plan: &Plan,
    shards: f64,
    core_count: usize,
    progress: &mut dyn FnMut(f64),
) -> Result<Option<Rates>, Failure> {
    let is_possible = 2.0 * shards <= core_count as f64;
    is_possible.then(|| rates_with(plan, shards as u16, progress)).transpose()
}

/// Measures every number of shards for which there are as many cores for clients, and at least one shard.
fn all_rates(plan: &Plan, core_count: usize, progress: &mut dyn FnMut(f64)) -> Result<Vec<Rates>, Failure> {
    let shards_max = (core_count / 2).clamp(1, CORES_MAX);
    let mut all = Vec::new();
    for shards in 1..=shards_max {
        let mut part = |share: f64| progress((shards as f64 - 1.0 + share) / shards_max as f64);
        all.push(rates_with(plan, shards as u16, &mut part)?);
    }
    Ok(all)
}

fn rates_with(plan: &Plan, shards: u16, progress: &mut dyn FnMut(f64)) -> Result<Rates, Failure> {
    let cores = Cores::divide(shards.into())?;
    let (mut sides, memory) = start(plan, &cores, shards)?;
    let keys = draw();
    let requests: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
    let times = Times::for_slice(plan.slice);
    let mut rates: [Vec<f64>; VARIANTS.len()] = Default::default();
    for round in 0..plan.rounds {
        progress(round as f64 / plan.rounds as f64);
        for (side, rates) in sides.iter_mut().zip(&mut rates) {
            let work = times.measure(|at_least| {
                std::thread::scope(|scope| {
                    let run = |(number, client)| {
                        let (cores, requests) = (&cores, &requests);
                        scope.spawn(move || {
                            cores.pin_client(number)?;
                            echo(client, requests, at_least)
                        })
                    };
                    let running: Vec<_> = side.clients.iter_mut().enumerate().map(run).collect();
                    let mut all = Work::default();
                    for running in running {
                        let work: Work = running.join().expect("a client does not panic")?;
                        all.operations += work.operations;
                        all.spent = all.spent.max(work.spent);
                    }
                    Ok::<_, Failure>(all)
                })
            })?;
            rates.push(work.rate());
        }
    }
    Ok(Rates { shards, memory, are_apart: cores.are_apart(), rates })
}

/// Starts all servers with as much memory as the plan says, or half of it, and so on.
fn start(plan: &Plan, cores: &Cores, shards: u16) -> Result<(Vec<Side>, u64), Failure> {
    let mut memory = plan.lines_memory;
    loop {
        match VARIANTS.iter().map(|variant| variant.start(cores, shards, memory)).collect() {
            Ok(sides) => return Ok((sides, memory)),
            Err(failure) if memory / 2 < MEMORY_MIN => return Err(failure),
            Err(_) => memory /= 2,
        }
    }
}

/// Returns random keys, which select the shards.
fn draw() -> Vec<[u8; 8]> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    (0..DRAWN_COUNT).map(|_| random.random()).collect()
}

/// Sends batches for at least this time.
fn echo(client: &mut Client, requests: &[Request<'_>], at_least: std::time::Duration) -> Result<Work, Failure> {
    let mut responses = Responses::new();
    let begin = Instant::now();
    let mut operations = 0;
    for batch in requests.chunks_exact(DEPTH).cycle() {
        client.execute(batch, &mut responses).map_err(|error| Failure::Runtime(format!("an ECHO: {error}")))?;
        operations += batch.len();
        if begin.elapsed() >= at_least {
            break;
        }
    }
    Ok(Work { spent: begin.elapsed(), operations })
}

impl Rates {
    /// Returns the rates of a variant.
    fn of(&self, accesses: u8, prefetches: bool) -> &[f64] {
        let number = VARIANTS.iter().position(|variant| *variant == Variant { accesses, prefetches });
        &self.rates[number.expect("it is one of the variants")]
    }

    /// Returns the statements of the figure about the gain of prefetching, with these rates.
    fn statements(&self) -> [Statement; 3] {
        let gains = |accesses| -> Vec<f64> {
            let (on, off) = (self.of(accesses, true), self.of(accesses, false));
            on.iter().zip(off).map(|(on, off)| on / off).collect()
        };
        let (two, eight) = (gains(2), gains(8));
        let gap = Figure::of_ratio(&eight, &two);
        let statement = |text: &str, ratio| {
            let shards = self.shards;
            let shards = if shards == 1 { "1 shard".to_owned() } else { format!("{shards} shards") };
            Statement { text: format!("{shards}: {text}"), ratio, at_least: 1.0 }
        };
        [
            statement("N = 2, prefetching over none", Figure::of(&two)),
            statement("N = 8, prefetching over none", Figure::of(&eight)),
            statement("the gain at N = 8 over the gain at N = 2", gap),
        ]
    }

    /// Returns the statement that prefetching hides all of eight accesses, if this many shards were measured.
    pub(super) fn peak(&self, shards: f64) -> Option<Statement> {
        (f64::from(self.shards) == shards && self.are_apart).then(|| Statement {
            text: format!("{shards} shards: N = 8 with prefetching over no accesses"),
            ratio: Figure::of_ratio(self.of(8, true), self.of(0, false)),
            at_least: 1.0,
        })
    }
}

/// Returns the verdict on the statement about cores.
pub(super) fn of_cores(row: Row, of_shards: &[Rates], core_count: usize) -> Published {
    let shards = row.value().unwrap_or_default();
    match of_shards.iter().find_map(|rates| rates.peak(shards)) {
        Some(statement) => {
            let (verdict, ratio) = (statement.verdict(), statement.ratio.text(|ratio| format!("{ratio:.2}")));
            let reason = format!("{}: {ratio}. The peak here is that of the cores, not of a NIC", statement.text);
            Published { row, verdict, reason }
        }
        None => {
            let needed = 2.0 * shards;
            row.not_measured(format!(
                "{shards} shards and as many clients need {needed} cores, and this machine has {core_count}"
            ))
        }
    }
}

fn measure(plan: &Plan, progress: &mut dyn FnMut(f64)) -> Result<Found, Failure> {
    let core_count = Cores::count()?;
    let all = all_rates(plan, core_count, progress)?;
    let point = |of: &Rates, number: usize| (f64::from(of.shards), Figure::of(&millions(&of.rates[number])));
    let curve = |(number, variant): (usize, &Variant)| Curve {
        name: variant.name(),
        points: all.iter().map(|of| point(of, number)).collect(),
    };
    let memory = all.iter().map(|of| of.memory).min().unwrap_or_default();
    let apart = all.iter().all(|of| of.are_apart);
    Ok(Found {
        published: rows(ITEM.paper)
            .into_iter()
            .filter(|row| row.section.contains("Fig 7"))
            .map(|row| of_cores(row, &all, core_count))
            .collect(),
        curves: VARIANTS.iter().enumerate().map(curve).collect(),
        statements: all.iter().flat_map(Rates::statements).collect(),
        setting: format!(
            "Shared memory, batches of {DEPTH}, values of {VALUE_SIZE} B. {} MiB of populated lines for each number of \
             accesses, with and without prefetching; the address of each line follows from the content of the one \
             before. {}. The most shards are {}: each needs a core, and so does its client. Medians of {} rounds, in \
             which all take turns. The store itself has no such switch: it always prefetches. The client repeats \
             {DRAWN_COUNT} requests, that of herd-fig05 a million: rates are comparable only within a figure. No \
             curve of the paper could be read, only its text: prefetching lets fewer cores reach a rate.",
            memory >> 20,
            if apart { "Each shard and each client has a core" } else { "Shard and client share a core" },
            all.len(),
            plan.rounds
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::herd::Verdict;

    fn rates(two: [f64; 2], eight: [f64; 2]) -> Rates {
        let rates = [10.0, two[0], two[1], eight[0], eight[1]].map(|rate| vec![rate; 3]);
        Rates { shards: 5, memory: 0, are_apart: true, rates }
    }

    #[test]
    fn the_shape_is_judged_by_the_rates() {
        let verdicts = |rates: &Rates| rates.statements().map(|statement| statement.verdict());
        assert_eq!(verdicts(&rates([4.0, 6.0], [1.0, 5.0])), [Verdict::Holds; 3]);
        let worse = verdicts(&rates([4.0, 3.0], [1.0, 0.5]));
        assert_eq!(worse, [Verdict::DoesNotHold; 3]);
        let smaller_gap = verdicts(&rates([4.0, 8.0], [1.0, 1.5]));
        assert_eq!(smaller_gap, [Verdict::Holds, Verdict::Holds, Verdict::DoesNotHold]);
    }

    #[test]
    fn the_peak_is_that_of_no_accesses_on_as_many_cores_as_the_paper() {
        let reached = rates([1.0, 1.0], [1.0, 10.0]);
        assert_eq!(reached.peak(5.0).map(|statement| statement.verdict()), Some(Verdict::Holds));
        let missed = rates([1.0, 1.0], [1.0, 9.0]);
        assert_eq!(missed.peak(5.0).map(|statement| statement.verdict()), Some(Verdict::DoesNotHold));
        assert!(reached.peak(4.0).is_none());
        assert!(Rates { are_apart: false, ..reached }.peak(5.0).is_none());
    }

    #[test]
    fn two_shards_and_two_clients_echo() {
        let plan = Plan { rounds: 1, slice: std::time::Duration::from_millis(1), records: 0, lines_memory: 1 << 26 };
        let found = std::thread::spawn(move || rates_with(&plan, 2, &mut |_| ()).map(|found| found.rates)).join();
        assert!(found.unwrap().unwrap().iter().flatten().all(|rate| *rate > 0.0));
    }
}
