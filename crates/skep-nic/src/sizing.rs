//! What a board reaches with a given load, how the store should be tuned for it, and what limits it: the tuning of KV-Direct,
//! section 5.2.1, for any [`Hardware`].
//!
//! ```text
//! size, utilization ─▶ index ratio, inline threshold     the store's own choice, skep_store::hash::Settings
//! runs at several l ─▶ what DRAM and PCIe have to do ─▶ the l at which the busier has least: balance::least_busy
//! a run ─▶ throughput;  runs below it ─▶ latencies;  a run with each resource doubled ─▶ what limits it
//! ```
//!
//! All of it is measured on the model with a scaled memory: the same operations, tables and packets, fewer keys. Of a long
//! tail over fewer keys the first ones are more popular and the NIC's DRAM holds less of the rest, as in Figure 16.

use skep_store::hash::Settings;

use crate::balance::least_busy;
use crate::dispatcher::{LINE_BYTES, Policy};
use crate::hardware::{Hardware, HardwareError};
use crate::network::{operations_per_packet, packet_bytes};
use crate::paper::corpus::{Corpus, KEY_BYTES, Outcome, Workload};
use crate::pipeline::Hazard;
use crate::time::Time;

/// Lines of the scaled memory, as a power of two.
const LINE_BITS: u32 = 17;
/// Operations of a run that is reported.
const OPERATIONS: u32 = 20_000;
/// Operations of a run that is looked at for l.
const OPERATIONS_FOR_BALANCE: u32 = 6_000;
/// Load dispatch ratios that are tried; between them what was measured is interpolated.
const RATIOS: [f64; 8] = [0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0];
/// Shares of the throughput at which latencies are measured.
const LATENCY_LOADS: [f64; 2] = [0.5, 0.9];
/// Pairs that lie in one slab: the pipeline has no others.
const KV_BYTES_MAX: u32 = 508;
const SKEW_MAX: f64 = 1.5;
/// A resource whose doubling gains less than this is not what limits.
const GAIN_MIN: f64 = 0.02;

/// What is asked of the board.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Bytes of key and value, all alike.
    pub kv_bytes: u32,
    /// Share of PUTs, of existing keys; the others are GETs.
    pub put_share: f64,
    /// θ of Zipf's law; 0: all keys are equally popular. YCSB's long tail is 0.99.
    pub skew: f64,
    /// Bytes of pairs over bytes of memory. `None`: as far as the store lays itself out for if all that it knows is the size.
    pub utilization: Option<f64>,
}

/// What the board reaches, and how it is tuned for that.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizing {
    /// Bytes of pairs over bytes of memory.
    pub utilization: f64,
    /// Pairs in the whole memory of the board, at that utilization.
    pub pairs: u64,
    /// The best hash index ratio.
    pub hash_index_ratio: f64,
    /// The best inline threshold, in bytes.
    pub inline_threshold: usize,
    /// The best load dispatch ratio.
    pub dispatch_ratio: f64,
    /// Millions of operations a second.
    pub mops: f64,
    /// Lines of memory for an operation.
    pub lines: f64,
    /// Share of the lines that the NIC's DRAM answered.
    pub near_share: f64,
    /// Share of operations that got their value from another of their key.
    pub forwarded_share: f64,
    /// Below that throughput.
    pub latencies: Vec<Latency>,
    /// How busy each resource was, and what twice as much of it would gain.
    pub resources: Vec<Resource>,
    /// The resource that limits: the one of which twice as much gains most.
    pub bottleneck: &'static str,
}

/// How long operations take at a load, from client to client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Millions of operations a second, at regular times.
    pub mops: f64,
    /// On average, in µs.
    pub mean_us: f64,
    /// What 95 % do not exceed, in µs.
    pub p95_us: f64,
    /// What 99 % do not exceed, in µs.
    pub p99_us: f64,
}

/// Something that can be short.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// What it is.
    pub name: &'static str,
    /// The share of the time in which it was busy, of several parts the busiest one's.
    pub busy: f64,
    /// Its parts, if it has several.
    pub parts: Vec<(&'static str, f64)>,
    /// Millions of operations a second with twice as much of it, and l chosen anew.
    pub mops_if_doubled: f64,
}

/// Why a demand is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizingError {
    /// The hardware cannot be.
    #[error(transparent)]
    Hardware(#[from] HardwareError),
    /// A value that cannot be, or that the model does not have.
    #[error("{field}: {reason}")]
    Demand {
        /// Its name.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// What each side of the memory has to do for an operation, in µs, by l.
struct Sides {
    near: [f64; RATIOS.len()],
    far: [f64; RATIOS.len()],
}

/// The name of a resource, and what makes twice as much of it.
type Doubling = (&'static str, fn(&mut Hardware));

/// All resources.
const RESOURCES: [Doubling; 6] = [
    ("clock", |board| board.processor.clock_mhz *= 2.0),
    ("operations in flight", |board| board.processor.operations_in_flight *= 2),
    ("PCIe", |board| board.pcie.links *= 2),
    ("NIC DRAM", |board| board.nic_dram.bandwidth_gb_per_s *= 2.0),
    ("host DRAM", |board| board.host_dram.bandwidth_gb_per_s *= 2.0),
    ("network", |board| board.network.bandwidth_gb_per_s *= 2.0),
];

/// Sizes a board. The same seed gives the same figures. `progress` hears the share that is done.
pub fn size(
    hardware: &Hardware,
    demand: &Demand,
    seed: u64,
    progress: &mut dyn FnMut(f64),
) -> Result<Sizing, SizingError> {
    hardware.check()?;
    let utilization = demand.check()?;
    let memory = u64::from(LINE_BYTES) << LINE_BITS;
    let (settings, mut corpus) = load(hardware, demand, utilization, memory, seed)?;
    corpus.theta = demand.skew;
    let steps = RATIOS.len() + 1 + LATENCY_LOADS.len() + RESOURCES.len();
    let mut done = 0_usize;
    let mut step = || {
        done += 1;
        progress(done as f64 / steps as f64);
    };
    let workload = |corpus: &Corpus, dispatch_ratio: f64, count: u32| Workload {
        policy: Policy::Dispatch(dispatch_ratio),
        long_tail: (demand.skew > 0.0).then_some(f64::from(corpus.key_count)),
        put_share: demand.put_share,
        hazard: Hazard::Waits,
        count,
        seed,
    };

    corpus.hardware = unlimited(hardware);
    let sides = Sides::measure(|ratio| {
        step();
        corpus.run(&workload(&corpus, ratio, OPERATIONS_FOR_BALANCE))
    });
    let dispatch_ratio = sides.dispatch_ratio(1.0, 1.0);
    corpus.hardware = hardware.clone();
    let outcome = corpus.run(&workload(&corpus, dispatch_ratio, OPERATIONS));
    step();
    let mut latencies = Vec::new();
    for share in LATENCY_LOADS {
        let interval = Time::from_ns(1e3 / (share * outcome.carried_mops));
        let offered = corpus.offer(&workload(&corpus, dispatch_ratio, OPERATIONS), interval);
        latencies.push(Latency::of(&offered, hardware));
        step();
    }
    let mut resources = Vec::new();
    for (name, double) in RESOURCES {
        let mut doubled = hardware.clone();
        double(&mut doubled);
        let faster = |one: &str| if name == one { 2.0 } else { 1.0 };
        let ratio = sides.dispatch_ratio(faster("NIC DRAM"), faster("PCIe"));
        corpus.hardware = doubled;
        let mops_if_doubled = corpus.run(&workload(&corpus, ratio, OPERATIONS)).carried_mops;
        let parts = busy(name, hardware, demand, &outcome);
        let most = parts.iter().map(|(_, share)| *share).fold(0.0, f64::max);
        let parts = if parts.len() > 1 { parts } else { Vec::new() };
        resources.push(Resource { name, busy: most, parts, mops_if_doubled });
        step();
    }
    let host_bytes = hardware.host_dram.size_gib * f64::from(1_u32 << 30);
    Ok(Sizing {
        utilization,
        pairs: (host_bytes * utilization / f64::from(demand.kv_bytes)) as u64,
        hash_index_ratio: settings.hash_index_ratio,
        inline_threshold: settings.inline_threshold,
        dispatch_ratio,
        mops: outcome.carried_mops,
        lines: outcome.lines,
        near_share: outcome.near_share,
        forwarded_share: outcome.forwarded_share,
        latencies,
        bottleneck: bottleneck(&resources, outcome.carried_mops),
        resources,
    })
}

impl Demand {
    /// Refuses what cannot be; answers the utilization.
    fn check(&self) -> Result<f64, SizingError> {
        let Demand { kv_bytes, put_share, skew, .. } = *self;
        let least = KEY_BYTES + 1;
        if !(least..=KV_BYTES_MAX).contains(&kv_bytes) {
            let reason = format!("{kv_bytes} is not between {least} and {KV_BYTES_MAX} bytes, which the model has");
            return refuse("kv-size", reason);
        }
        if !(0.0..=1.0).contains(&put_share) {
            return refuse("put-ratio", format!("{put_share} is not between 0 and 1"));
        }
        if !(0.0..=SKEW_MAX).contains(&skew) {
            return refuse("skew", format!("{skew} is not between 0 and {SKEW_MAX}"));
        }
        let utilization = self.utilization.unwrap_or_else(|| Settings::utilization_for(kv_bytes as usize));
        if !(utilization > 0.0 && utilization < 1.0) {
            return refuse("utilization", format!("{utilization} is not above 0 and below 1"));
        }
        Ok(utilization)
    }
}

/// The store's settings, and the pairs in it.
fn load(
    hardware: &Hardware,
    demand: &Demand,
    utilization: f64,
    memory: u64,
    seed: u64,
) -> Result<(Settings, Corpus), SizingError> {
    let kv_size = demand.kv_bytes as usize;
    let settings = match demand.utilization {
        None => Some(Settings::for_kv_size(memory, kv_size, seed)),
        Some(_) => Settings::for_utilization(memory, kv_size, utilization, seed),
    };
    let loaded = settings.and_then(|settings| {
        // A scaled memory has fewer buckets, so that the last random chains may not find theirs.
        let filled = utilization - 0.005_f64.min(utilization / 2.0);
        let corpus = Corpus::load_with(hardware, &settings, demand.kv_bytes, filled)?;
        (corpus.key_count > 0).then_some((settings, corpus))
    });
    loaded.ok_or_else(|| {
        let most = Settings::utilization_max(kv_size);
        let reason = format!("{utilization} leaves no room for pairs of {kv_size} B, which fill less than {most:.2}");
        SizingError::Demand { field: "utilization", reason }
    })
}

impl Sides {
    /// Measures both sides. PCIe's rate is the one without the NIC's DRAM.
    fn measure(mut run: impl FnMut(f64) -> Outcome) -> Self {
        let mut sides = Sides { near: [0.0; RATIOS.len()], far: [0.0; RATIOS.len()] };
        let mut far_line_us = 0.0;
        for (place, ratio) in RATIOS.into_iter().enumerate() {
            let outcome = run(ratio);
            let operations = outcome.passages.len() as f64;
            let far_lines = outcome.counts.far as f64 / operations;
            if place == 0 {
                far_line_us = 1.0 / (outcome.mops * far_lines);
            }
            sides.near[place] = outcome.load.nic_dram * outcome.span.as_us() / operations;
            sides.far[place] = far_lines * far_line_us;
        }
        sides
    }

    /// The best l if the sides were so many times as fast.
    fn dispatch_ratio(&self, near_speed: f64, far_speed: f64) -> f64 {
        least_busy(
            |ratio| interpolated(&self.near, ratio) / near_speed,
            |ratio| interpolated(&self.far, ratio) / far_speed,
        )
    }
}

fn interpolated(values: &[f64; RATIOS.len()], ratio: f64) -> f64 {
    let above = RATIOS.partition_point(|measured| *measured < ratio).clamp(1, RATIOS.len() - 1);
    let part = (ratio - RATIOS[above - 1]) / (RATIOS[above] - RATIOS[above - 1]);
    values[above - 1] + part * (values[above] - values[above - 1])
}

impl Latency {
    /// Without the first and the last tenth, in which the pipeline fills and empties.
    fn of(outcome: &Outcome, hardware: &Hardware) -> Self {
        let count = outcome.latencies.len();
        let mut latencies = outcome.latencies[count / 10..count * 9 / 10].to_vec();
        latencies.sort_unstable();
        let at = |share: f64| hardware.network.delay_us + latencies[(latencies.len() as f64 * share) as usize].as_us();
        let mean = latencies.iter().copied().sum::<Time>().as_us() / latencies.len() as f64;
        Latency {
            mops: outcome.carried_mops,
            mean_us: hardware.network.delay_us + mean,
            p95_us: at(0.95),
            p99_us: at(0.99),
        }
    }
}

/// The board with nothing before its memory that could be short.
fn unlimited(hardware: &Hardware) -> Hardware {
    let mut board = hardware.clone();
    board.processor.clock_mhz = 1e5;
    board.processor.operations_in_flight = board.processor.operations_in_flight.max(1024);
    board.network.bandwidth_gb_per_s = 1e6;
    board
}

/// How busy the parts of a resource were.
fn busy(name: &str, hardware: &Hardware, demand: &Demand, outcome: &Outcome) -> Vec<(&'static str, f64)> {
    let load = &outcome.load;
    let span = outcome.span;
    let operations = outcome.passages.len() as f64;
    match name {
        "clock" => {
            let cycle = Time::cycle(hardware.processor.clock_mhz);
            vec![("decoder", (cycle * outcome.passages.len() as u64).share_of(span))]
        }
        "operations in flight" => {
            let held: Time = outcome.passages.iter().map(|passage| passage.answered - passage.decoded).sum();
            vec![("in flight", held.share_of(span) / f64::from(hardware.processor.operations_in_flight))]
        }
        "PCIe" => vec![
            ("read tags", load.read_tags),
            ("read credits", load.read_credits),
            ("write credits", load.write_credits),
            ("DMA engine", load.dma_engine),
            ("to the host", load.up),
            ("from the host", load.down),
        ],
        "NIC DRAM" => vec![("channels", load.nic_dram)],
        "host DRAM" => vec![("channels", load.host_dram)],
        _ => {
            // Packets that are not full would fill the wire at any load; full ones say what it needs.
            let spec = &hardware.network;
            let need = |share: f64, bytes: u32| {
                let together = operations_per_packet(spec, bytes);
                let packet = Time::of_bytes(packet_bytes(spec, together, bytes).into(), spec.bandwidth_gb_per_s);
                packet.as_us() / f64::from(together) * operations * share / span.as_us()
            };
            let (puts, value) = (demand.put_share, demand.kv_bytes - KEY_BYTES);
            vec![
                ("requests", need(puts, demand.kv_bytes) + need(1.0 - puts, KEY_BYTES)),
                ("answers", need(puts, 0) + need(1.0 - puts, value)),
            ]
        }
    }
}

/// The one whose doubling gains most; if none gains, because two are balanced, the busiest.
fn bottleneck(resources: &[Resource], mops: f64) -> &'static str {
    let most = |of: fn(&Resource) -> f64| {
        resources.iter().max_by(|one, other| of(one).total_cmp(&of(other))).expect("there are resources")
    };
    let gains = most(|resource| resource.mops_if_doubled);
    if gains.mops_if_doubled > (1.0 + GAIN_MIN) * mops { gains.name } else { most(|resource| resource.busy).name }
}

fn refuse<T>(field: &'static str, reason: String) -> Result<T, SizingError> {
    Err(SizingError::Demand { field, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(kv_bytes: u32, put_share: f64, skew: f64) -> Demand {
        Demand { kv_bytes, put_share, skew, utilization: Some(0.4) }
    }

    fn sized(demand: &Demand) -> Sizing {
        size(&Hardware::kv_direct(), demand, 7, &mut |_| ()).unwrap()
    }

    #[test]
    fn the_bottleneck_is_the_one_of_the_papers_figure() {
        for (kv_bytes, put_share, skew, bottleneck) in
            [(5, 0.0, 0.99, "clock"), (10, 0.0, 0.0, "PCIe"), (254, 0.0, 0.99, "network"), (10, 1.0, 0.0, "PCIe")]
        {
            let sizing = sized(&demand(kv_bytes, put_share, skew));
            assert_eq!(sizing.bottleneck, bottleneck, "{kv_bytes} B");
            let of = |name: &str| sizing.resources.iter().find(|resource| resource.name == name).unwrap();
            assert!(of(bottleneck).busy > 0.9, "{:?}", of(bottleneck));
            assert!(of(bottleneck).mops_if_doubled > 1.05 * sizing.mops, "{:?}", of(bottleneck));
            assert!(sizing.resources.iter().all(|resource| resource.busy <= 1.03), "{:?}", sizing.resources);
            assert!(sizing.latencies[0].mean_us <= sizing.latencies[1].mean_us);
            assert!(sizing.latencies.iter().all(|one| one.mean_us < one.p95_us && one.p95_us <= one.p99_us));
            if bottleneck == "clock" {
                assert_eq!(sized(&demand(kv_bytes, put_share, skew)), sizing, "the same seed gives the same figures");
            }
        }
    }

    /// No load dispatch ratio of a sweep reaches more, but for what runs differ by.
    #[test]
    fn the_dispatch_ratio_is_among_the_best() {
        for (kv_bytes, put_share, skew) in [(10, 0.5, 0.99), (62, 0.5, 0.99), (10, 0.0, 0.0)] {
            let demand = demand(kv_bytes, put_share, skew);
            let mut board = Hardware::kv_direct();
            // Nothing else may be the bound.
            board.processor.clock_mhz = 1000.0;
            board.network.bandwidth_gb_per_s = 500.0;
            let sizing = size(&board, &demand, 7, &mut |_| ()).unwrap();
            let memory = u64::from(LINE_BYTES) << LINE_BITS;
            let (_, mut corpus) = load(&board, &demand, 0.4, memory, 7).unwrap();
            corpus.theta = skew;
            let reached = |ratio: f64| {
                let long_tail = (skew > 0.0).then_some(f64::from(corpus.key_count));
                let (policy, hazard) = (Policy::Dispatch(ratio), Hazard::Waits);
                corpus.run(&Workload { policy, long_tail, put_share, hazard, count: OPERATIONS, seed: 7 }).mops
            };
            let sweep: Vec<f64> = RATIOS.map(reached).to_vec();
            let best = sweep.iter().copied().fold(0.0, f64::max);
            assert!(sizing.mops > 0.95 * best, "{kv_bytes} B: {} at {}, {sweep:?}", sizing.mops, sizing.dispatch_ratio);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_field_and_the_reason() {
        let good = demand(10, 0.5, 0.99);
        for (bad, field, reason) in [
            (Demand { kv_bytes: 4, ..good.clone() }, "kv-size", "4 is not between 5"),
            (Demand { kv_bytes: 509, ..good.clone() }, "kv-size", "508"),
            (Demand { put_share: 1.1, ..good.clone() }, "put-ratio", "1.1"),
            (Demand { put_share: f64::NAN, ..good.clone() }, "put-ratio", "NaN"),
            (Demand { skew: -0.1, ..good.clone() }, "skew", "-0.1"),
            (Demand { utilization: Some(0.0), ..good.clone() }, "utilization", "above 0"),
            (Demand { utilization: Some(0.79), ..good.clone() }, "utilization", "less than 0.78"),
        ] {
            let refusal = size(&Hardware::kv_direct(), &bad, 7, &mut |_| ()).unwrap_err().to_string();
            assert!(refusal.starts_with(field) && refusal.contains(reason), "{refusal}");
        }
        let mut board = Hardware::kv_direct();
        board.pcie.links = 0;
        let refusal = size(&board, &good, 7, &mut |_| ()).unwrap_err().to_string();
        assert!(refusal.starts_with("pcie.links"), "{refusal}");
    }

    #[test]
    fn the_smallest_and_the_largest_pairs_are_sized() {
        for kv_bytes in [5, KV_BYTES_MAX] {
            let demand = Demand { utilization: None, ..demand(kv_bytes, 0.05, 0.0) };
            let mut heard = 0.0;
            let sizing = size(&Hardware::kv_direct_one_link(), &demand, 7, &mut |share| heard = share).unwrap();
            assert_eq!((heard, sizing.utilization), (1.0, Settings::utilization_for(kv_bytes as usize)));
            let server = Settings::for_kv_size(1 << 30, kv_bytes as usize, 7);
            assert_eq!(sizing.hash_index_ratio, server.hash_index_ratio, "the server's default");
        }
    }
}
