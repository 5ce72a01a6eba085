//! Questions of a planner that need several sizes or loads of one board: the number of cards for a rate, and the rate
//! for a latency.

use super::demand::{check_room, refuse};
use super::{Bench, Demand, Latency, SizingError, median, of_seeds};
use crate::hardware::Hardware;
use crate::time::Time;

/// Most cards of a server that are tried.
const CARDS_MAX: u32 = 16;
/// Steps of the search for a load.
const BISECTIONS: usize = 7;
/// Share of the throughput at which the latency of an idle card is measured.
const IDLE_LOAD: f64 = 0.05;
/// Operations of a run whose latencies are searched.
const OPERATIONS: u32 = 12_000;

/// Cards that reach a rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Cards {
    /// Their number.
    pub cards: u32,
    /// Millions of operations a second of these, as medians of the seeds.
    pub mops: f64,
    /// The busiest card's share of all requests, over the average.
    pub busiest: f64,
    /// Millions of operations a second of each number of cards that was tried.
    pub tried: Vec<Tried>,
}

/// A number of cards, and its rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// Their number.
    pub cards: u32,
    /// Millions of operations a second.
    pub mops: f64,
}

/// The largest load of a board at which a latency holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Within {
    /// The latencies at that load, as medians of the seeds.
    pub at: Latency,
    /// Millions of operations a second without a limit of the latency.
    pub full_mops: f64,
    /// 99th percentile in µs at a twentieth of that.
    pub idle_p99_us: f64,
}

/// Returns the smallest number of cards that reaches this rate, in millions of operations a second. Each card has a
/// region and keys of its own, as in Figure 20. Calls `progress` with the share that is done.
///
/// # Errors
/// If the demand is impossible, or no number of cards reaches the rate: the error names the highest rate.
pub fn cards_for(
    hardware: &Hardware,
    demand: &Demand,
    target_mops: f64,
    seeds: &[u64],
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Cards, SizingError> {
    if !(target_mops > 0.0 && target_mops.is_finite()) {
        return refuse("target", format!("{target_mops} million/s is not above 0"));
    }
    let mut tried: Vec<Tried> = Vec::new();
    let mut cards = 1;
    loop {
        let of_seed = |seed: u64, _: &mut dyn FnMut(f64)| rate_of_cards(hardware, demand, cards, seed);
        let all = of_seeds(seeds, &|_| (), of_seed)?;
        let mops = median(all.iter().map(|one| one.0));
        let busiest = median(all.iter().map(|one| one.1));
        tried.push(Tried { cards, mops });
        progress((mops / target_mops).min(1.0));
        if mops >= target_mops {
            return Ok(Cards { cards, mops, busiest, tried });
        }
        // The rate of more cards is at most proportional. So no smaller number can be enough.
        let needed = (target_mops / mops * f64::from(cards)).ceil() as u32;
        if cards == CARDS_MAX {
            let best = tried.iter().map(|one| one.mops).fold(0.0, f64::max);
            let reason = format!(
                "{target_mops:.1} million/s is not reached by {CARDS_MAX} cards: at most {best:.1}, because the busiest card has \
                 {busiest:.2} times the average load"
            );
            return refuse("target", reason);
        }
        cards = needed.clamp(cards + 1, CARDS_MAX);
    }
}

/// Returns the rate of a server with this many cards, and the busiest card's share over the average.
fn rate_of_cards(hardware: &Hardware, demand: &Demand, cards: u32, seed: u64) -> Result<(f64, f64), SizingError> {
    let mut server = hardware.clone();
    server.server.nics = cards;
    server.server.memory_nodes = server.server.memory_nodes.min(cards);
    server.check()?;
    demand.check()?;
    let (loaded, mut bench) = Bench::load(&server, demand, seed)?;
    let ratio = bench.tuned(&server).ratio;
    let run = bench.run_of(&server, ratio, Time::ZERO, OPERATIONS);
    check_room(&run, loaded.utilization)?;
    Ok((run.carried_mops, run.busiest.over_average))
}

/// Returns the largest rate at which the 99th percentile of the latency, from client to client, is at most this. Calls
/// `progress` with the share that is done.
///
/// # Errors
/// If the demand is impossible, or if the latency of an idle card is larger: the error names that latency.
pub fn rate_within(
    hardware: &Hardware,
    demand: &Demand,
    p99_us: f64,
    seeds: &[u64],
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Within, SizingError> {
    if !(p99_us > 0.0 && p99_us.is_finite()) {
        return refuse("p99", format!("{p99_us} µs is not above 0"));
    }
    hardware.check()?;
    demand.check()?;
    let all = of_seeds(seeds, progress, |seed, progress| {
        let (loaded, mut bench) = Bench::load(hardware, demand, seed)?;
        let ratio = bench.tuned(hardware).ratio;
        let full = bench.run_of(hardware, ratio, Time::ZERO, OPERATIONS);
        check_room(&full, loaded.utilization)?;
        let mut at = |share: f64| {
            let interval = Time::from_ns(1e3 / (share * full.carried_mops));
            Latency::of(&bench.run_of(hardware, ratio, interval, OPERATIONS), hardware)
        };
        let idle = at(IDLE_LOAD);
        let (mut low, mut high, mut best) = (IDLE_LOAD, 1.0, idle);
        for step in 0..BISECTIONS {
            let middle = f64::midpoint(low, high);
            let latency = at(middle);
            if latency.p99_us <= p99_us {
                (low, best) = (middle, latency);
            } else {
                high = middle;
            }
            progress((step + 1) as f64 / BISECTIONS as f64);
        }
        Ok(Within { at: best, full_mops: full.carried_mops, idle_p99_us: idle.p99_us })
    })?;
    let of = |figure: &dyn Fn(&Within) -> f64| median(all.iter().map(figure));
    let idle_p99_us = of(&|one| one.idle_p99_us);
    if idle_p99_us > p99_us {
        let nearest = (idle_p99_us * 10.0).ceil() / 10.0;
        return refuse(
            "p99",
            format!("{p99_us} µs is below the {idle_p99_us:.2} µs of an idle card: use {nearest:.1} or more"),
        );
    }
    Ok(Within {
        at: Latency {
            mops: of(&|one| one.at.mops),
            mean_us: of(&|one| one.at.mean_us),
            p95_us: of(&|one| one.at.p95_us),
            p99_us: of(&|one| one.at.p99_us),
        },
        full_mops: of(&|one| one.full_mops),
        idle_p99_us,
    })
}
