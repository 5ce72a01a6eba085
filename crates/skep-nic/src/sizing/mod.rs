//! Calculates the throughput of a board with a given load, the tuning of the store for it, and the bottleneck. It
//! generalizes the tuning of KV-Direct, section 5.2.1, to any [`Hardware`].
//!
//! ```text
//! sizes, utilization ─▶ index ratio, inline threshold     the store's own choice, skep_store::hash::Settings
//! runs of one NIC at several l ─▶ the middle of the best l     as for the points of Figure 16
//! a run ─▶ throughput;  runs below it ─▶ latencies;  runs with one resource doubled, and l chosen again ─▶ bottleneck
//! ```
//!
//! Of a server with several NICs, one NIC is tuned, with its part of the shared memory node. All other figures are of
//! all NICs together. As in Figure 20, their clients draw keys without regard to their owners. So the busiest NIC is
//! the limit, and the shares of busy time are those of this NIC.
//!
//! All figures are measured on the model with a scaled memory: the same operations, tables and packets, but fewer keys.
//! The most popular keys of a long tail have the shares that they have among all keys of the whole memory.

mod demand;
mod ordered;
mod questions;
mod resources;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use demand::Demand;
pub use ordered::{LastTree, OrderedDemand, OrderedResource, OrderedSizing, size_ordered};
pub use questions::{Cards, Tried, Within, cards_for, rate_within};
pub use resources::{Part, Resource};

use crate::dispatcher::Policy;
use crate::hardware::{Hardware, HardwareError};
use crate::load::corpus::{Corpus, Workload};
use crate::load::mix::Popularity;
use crate::load::run::Outcome;
pub use crate::load::tuner::Tuned;
use crate::pipeline::Hazard;
use crate::time::Time;
use demand::Loaded;
use resources::{Change, DOUBLINGS, HOST_CORES, Observed, PARTS_OF_PCIE, bottleneck};

/// Operations of a reported run. With several NICs, each has fewer.
const OPERATIONS: u32 = 20_000;
const OPERATIONS_OF_SEVERAL: u32 = 12_000;
/// Operations of a run with something doubled, and of those that compare ratios for it.
const OPERATIONS_IF: u32 = 10_000;
const OPERATIONS_OF_RATIO: u32 = 4_000;
/// Distance of the other ratios that are compared if something is doubled.
const RATIO_STEP: f64 = 0.2;
/// Fewest operations of a run. Pairs that are divided have fewer operations than others, each with several requests.
const OPERATIONS_MIN: f64 = 1_000.0;
/// Shares of the throughput at which latencies are measured.
const LATENCY_LOADS: [f64; 2] = [0.5, 0.9];
/// A resource is not the bottleneck if its doubling gains less than this.
const GAIN_MIN: f64 = 0.02;

/// The throughput of the board, and its tuning: of one seed, or medians over several.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizing {
    /// The busiest NIC's share of all requests, over the average. It is 1 for a single NIC.
    pub busiest_nic: f64,
    /// Bytes of keys and values over bytes of memory.
    pub utilization: f64,
    /// Number of pairs in the whole memory of all NICs at that utilization.
    pub pairs: u64,
    /// Requests that an operation has, because clients divide pairs of more than a slab.
    pub parts: f64,
    /// The best hash index ratio.
    pub hash_index_ratio: f64,
    /// The best inline threshold, in bytes.
    pub inline_threshold: usize,
    /// The best load dispatch ratio, and those that are nearly as good.
    pub dispatch: Tuned,
    /// Millions of operations a second.
    pub mops: f64,
    /// The lowest and the highest of the seeds.
    pub mops_range: [f64; 2],
    /// Lines of memory that one operation accesses.
    pub lines: f64,
    /// Share of the lines that the NIC's DRAM served.
    pub near_share: f64,
    /// Share of operations that got their value from another operation on their key.
    pub forwarded_share: f64,
    /// Latencies at lower throughputs.
    pub latencies: Vec<Latency>,
    /// The share of time in which each resource was busy, and the gain if it was doubled.
    pub resources: Vec<Resource>,
    /// The bottleneck: the resource whose doubling gains most.
    pub bottleneck: &'static str,
    /// If PCIe is the bottleneck: its parts, and millions of operations a second if only that part is doubled.
    pub widened: Vec<Widened>,
}

/// A part of PCIe that is doubled alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Widened {
    /// Its name.
    pub name: &'static str,
    /// Millions of operations a second.
    pub mops: f64,
}

/// The latency of operations at a load, from client to client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Throughput in millions of operations a second, at regular times.
    pub mops: f64,
    /// Mean latency in µs.
    pub mean_us: f64,
    /// 95th percentile in µs.
    pub p95_us: f64,
    /// 99th percentile in µs.
    pub p99_us: f64,
}

/// The reason why a demand is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizingError {
    /// The hardware is impossible.
    #[error(transparent)]
    Hardware(#[from] HardwareError),
    /// A value that is impossible, or that the model does not support.
    #[error("{field}: {reason}")]
    Demand {
        /// The name of the field.
        field: &'static str,
        /// The reason.
        reason: String,
    },
}

/// The stores for all measurements of one seed.
struct Bench<'a> {
    demand: &'a Demand,
    seed: u64,
    /// One NIC, on which l is chosen.
    nic: Corpus,
    /// All NICs, if there are several.
    server: Option<Corpus>,
}

/// Sizes a board with several seeds, and returns medians. The same seeds give the same figures. Calls `progress` with
/// the share that is done.
///
/// # Panics
/// If there is no seed.
pub fn size(
    hardware: &Hardware,
    demand: &Demand,
    seeds: &[u64],
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Sizing, SizingError> {
    let all = of_seeds(seeds, progress, |seed, progress| size_one(hardware, demand, seed, progress))?;
    Ok(Sizing::merged(&all))
}

/// Calls `measure` for each seed, on all cores. Returns the results in the order of the seeds, or the first error.
pub(crate) fn of_seeds<T: Send>(
    seeds: &[u64],
    progress: &(dyn Fn(f64) + Sync),
    measure: impl Fn(u64, &mut dyn FnMut(f64)) -> Result<T, SizingError> + Sync,
) -> Result<Vec<T>, SizingError> {
    let shares = Mutex::new(vec![0.0; seeds.len()]);
    let results: Mutex<Vec<Option<Result<T, SizingError>>>> = Mutex::new(seeds.iter().map(|_| None).collect());
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(seeds.len());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(seed) = seeds.get(index) else { return };
                    let result = measure(*seed, &mut |share| {
                        let mut shares = shares.lock().expect("no thread panics with it");
                        shares[index] = share;
                        progress(shares.iter().sum::<f64>() / seeds.len() as f64);
                    });
                    results.lock().expect("no thread panics with it")[index] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().expect("no thread panics with it");
    results.into_iter().map(|result| result.expect("every seed was measured")).collect()
}

/// Sizes a board with one seed.
fn size_one(
    hardware: &Hardware,
    demand: &Demand,
    seed: u64,
    progress: &mut dyn FnMut(f64),
) -> Result<Sizing, SizingError> {
    hardware.check()?;
    demand.check()?;
    let (loaded, mut bench) = Bench::load(hardware, demand, seed)?;
    let has_cores = hardware.host_cpu.cores_per_link > 0;
    let doublings: Vec<&Change> = DOUBLINGS.iter().filter(|change| has_cores || change.name != HOST_CORES).collect();
    let steps = 3 + LATENCY_LOADS.len() + doublings.len();
    let mut done = 0_usize;
    let mut step = || {
        done += 1;
        progress(done as f64 / steps as f64);
    };
    let dispatch = bench.tuned(hardware);
    step();
    let run = bench.run(hardware, dispatch.ratio, Time::ZERO);
    demand::check_room(&run, loaded.utilization)?;
    step();
    let mut latencies = Vec::new();
    let mut unhindered = Time::ZERO;
    for share in LATENCY_LOADS {
        let interval = Time::from_ns(1e3 / (share * run.carried_mops));
        let slower = bench.run(hardware, dispatch.ratio, interval);
        if latencies.is_empty() {
            unhindered = slower.busiest.held.part(u64::from(slower.busiest.requests));
        }
        latencies.push(Latency::of(&slower, hardware));
        step();
    }
    let observed = Observed { hardware, run: &run, unhindered };
    let mut resources = Vec::new();
    for change in doublings {
        let mops_if_doubled = bench.rate_if(hardware, change, dispatch.ratio);
        resources.push(Resource { name: change.name, parts: observed.parts(change.name), mops_if_doubled });
        step();
    }
    let bottleneck = bottleneck(&resources, run.carried_mops);
    let widen = |change: &Change| Widened { name: change.name, mops: bench.rate_if(hardware, change, dispatch.ratio) };
    let widened = if bottleneck == "PCIe" { PARTS_OF_PCIE.iter().map(widen).collect() } else { Vec::new() };
    step();
    let host_bytes = hardware.host_dram.size_gib * f64::from(1_u32 << 30) * f64::from(hardware.server.nics);
    Ok(Sizing {
        busiest_nic: run.busiest.over_average,
        utilization: loaded.utilization,
        pairs: (host_bytes * loaded.utilization / demand.pairs.mean()) as u64,
        parts: demand.parts(),
        hash_index_ratio: loaded.hash_index_ratio,
        inline_threshold: loaded.inline_threshold,
        dispatch,
        mops: run.carried_mops,
        mops_range: [run.carried_mops; 2],
        lines: run.lines,
        near_share: run.near_share,
        forwarded_share: run.forwarded_share,
        latencies,
        bottleneck,
        resources,
        widened,
    })
}

/// What the store chose when the memory was loaded.
struct Chosen {
    utilization: f64,
    hash_index_ratio: f64,
    inline_threshold: usize,
}

impl<'a> Bench<'a> {
    /// Loads the stores. Returns them with their settings.
    fn load(hardware: &Hardware, demand: &'a Demand, seed: u64) -> Result<(Chosen, Self), SizingError> {
        let Loaded { corpus: nic, settings, utilization } = demand.load(&hardware.one_nic(), OPERATIONS, seed)?;
        let chosen = Chosen {
            utilization,
            hash_index_ratio: settings.hash_index_ratio,
            inline_threshold: settings.inline_threshold,
        };
        let mut server = None;
        if hardware.server.nics > 1 {
            server = Some(demand.load(hardware, OPERATIONS_OF_SEVERAL, seed)?.corpus);
        }
        Ok((chosen, Bench { demand, seed, nic, server }))
    }

    fn workload(&self, dispatch_ratio: f64, count: u32) -> Workload {
        let Demand { skew, mix, hot_share, .. } = *self.demand;
        Workload {
            policy: Policy::Dispatch(dispatch_ratio),
            popularity: if skew > 0.0 { Popularity::LongTail { theta: skew } } else { Popularity::Uniform },
            mix,
            hot_share,
            hazard: Hazard::Waits,
            whole_pairs: false,
            count: (f64::from(count) / self.demand.parts()).max(OPERATIONS_MIN) as u32,
            seed: self.seed,
        }
    }

    /// Returns the load dispatch ratio at which a NIC of this hardware is fastest.
    fn tuned(&mut self, hardware: &Hardware) -> Tuned {
        self.nic.hardware = hardware.one_nic();
        self.nic.tuned(&self.workload(0.0, OPERATIONS))
    }

    /// Returns the throughput after a change, with the fastest of three ratios.
    fn rate_if(&mut self, hardware: &Hardware, change: &Change, dispatch_ratio: f64) -> f64 {
        let mut changed = hardware.clone();
        (change.apply)(&mut changed);
        self.nic.hardware = changed.one_nic();
        let ratios = [-RATIO_STEP, 0.0, RATIO_STEP].map(|step| (dispatch_ratio + step).clamp(0.0, 1.0));
        let rates = ratios.map(|ratio| (ratio, self.nic.run(&self.workload(ratio, OPERATIONS_OF_RATIO)).carried_mops));
        let best = rates.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)).expect("there are three");
        self.run_of(&changed, best.0, Time::ZERO, OPERATIONS_IF).carried_mops
    }

    /// Runs the demand on hardware that may differ in its speeds from that for which the stores were loaded. Clients
    /// have another operation after each `interval`.
    fn run(&mut self, hardware: &Hardware, dispatch_ratio: f64, interval: Time) -> Outcome {
        self.run_of(hardware, dispatch_ratio, interval, OPERATIONS)
    }

    fn run_of(&mut self, hardware: &Hardware, dispatch_ratio: f64, interval: Time, operations: u32) -> Outcome {
        let of_each = if self.server.is_some() { operations.min(OPERATIONS_OF_SEVERAL) } else { operations };
        let workload = self.workload(dispatch_ratio, of_each);
        let corpus = self.server.as_mut().unwrap_or(&mut self.nic);
        corpus.hardware = hardware.clone();
        corpus.offer(&workload, interval)
    }
}

impl Latency {
    /// Calculates the latencies of a run. Ignores the first and the last tenth, in which the pipeline is not full.
    fn of(run: &Outcome, hardware: &Hardware) -> Self {
        let count = run.latencies.len();
        let mut latencies = run.latencies[count / 10..count * 9 / 10].to_vec();
        latencies.sort_unstable();
        let delay_us = 2.0 * hardware.network.delay_us;
        let at = |share: f64| delay_us + latencies[(latencies.len() as f64 * share) as usize].as_us();
        let mean = latencies.iter().copied().sum::<Time>().as_us() / latencies.len() as f64;
        Latency { mops: run.carried_mops, mean_us: delay_us + mean, p95_us: at(0.95), p99_us: at(0.99) }
    }
}

impl Sizing {
    /// Returns the medians of several seeds.
    fn merged(all: &[Sizing]) -> Self {
        let first = all.first().expect("there is a seed");
        let of = |figure: &dyn Fn(&Sizing) -> f64| median(all.iter().map(figure));
        let rates = || all.iter().map(|one| one.mops);
        let mops = median(rates());
        let latencies = (0..first.latencies.len()).map(|at| Latency {
            mops: of(&|one| one.latencies[at].mops),
            mean_us: of(&|one| one.latencies[at].mean_us),
            p95_us: of(&|one| one.latencies[at].p95_us),
            p99_us: of(&|one| one.latencies[at].p99_us),
        });
        let resources = (0..first.resources.len()).map(|at| {
            let part = |index: usize| Part {
                name: first.resources[at].parts[index].name,
                busy: of(&|one| one.resources[at].parts[index].busy),
                bound_mops: of(&|one| one.resources[at].parts[index].bound_mops),
            };
            Resource {
                name: first.resources[at].name,
                parts: (0..first.resources[at].parts.len()).map(part).collect(),
                mops_if_doubled: of(&|one| one.resources[at].mops_if_doubled),
            }
        });
        let resources: Vec<Resource> = resources.collect();
        // Seeds may differ in the bottleneck, and only some of them have widened PCIe.
        let widened = PARTS_OF_PCIE.iter().enumerate().filter_map(|(at, change)| {
            let mops: Vec<f64> = all.iter().filter_map(|one| Some(one.widened.get(at)?.mops)).collect();
            (!mops.is_empty()).then(|| Widened { name: change.name, mops: median(mops.into_iter()) })
        });
        let bottleneck = bottleneck(&resources, mops);
        Sizing {
            busiest_nic: of(&|one| one.busiest_nic),
            dispatch: Tuned {
                ratio: of(&|one| one.dispatch.ratio),
                low: of(&|one| one.dispatch.low),
                high: of(&|one| one.dispatch.high),
            },
            mops,
            mops_range: [rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max)],
            lines: of(&|one| one.lines),
            near_share: of(&|one| one.near_share),
            forwarded_share: of(&|one| one.forwarded_share),
            latencies: latencies.collect(),
            widened: if bottleneck == "PCIe" { widened.collect() } else { Vec::new() },
            bottleneck,
            resources,
            ..first.clone()
        }
    }
}

/// Returns the median, of an even number the lower of the two in the middle.
fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[(figures.len() - 1) / 2]
}

#[cfg(test)]
mod tests;
