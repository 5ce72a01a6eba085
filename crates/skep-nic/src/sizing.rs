//! Calculates the throughput of a board with a given load, the tuning of the store for it, and the bottleneck. It
//! generalizes the tuning of KV-Direct, section 5.2.1, to any [`Hardware`].
//!
//! ```text
//! size, utilization ─▶ index ratio, inline threshold     the store's own choice, skep_store::hash::Settings
//! runs of one NIC at several l ─▶ the fastest l          as for the points of Figure 16
//! a run ─▶ throughput;  runs below it ─▶ latencies;  runs with one resource doubled, and l chosen again ─▶ bottleneck
//! ```
//!
//! Of a server with several NICs, one NIC is tuned, with its part of the shared memory node. All other figures are of
//! all NICs together. As in Figure 20, their clients draw keys without regard to their owners. So the busiest NIC is
//! the limit, and the shares of busy time are those of this NIC.
//!
//! All figures are measured on the model with a scaled memory: the same operations, tables and packets, but fewer keys.
//! In a long tail over fewer keys, the first keys are more popular, and the NIC's DRAM holds less of the rest, as in
//! Figure 16.

use skep_store::hash::Settings;

use crate::dispatcher::{LINE_BYTES, MemoryLoad, Policy};
use crate::hardware::{Hardware, HardwareError};
use crate::network::{operations_per_packet, packet_bytes};
use crate::paper::corpus::{Corpus, KEY_BYTES, Workload};
use crate::paper::server_corpus::{ServerCorpus, ServerWorkload};
use crate::pipeline::Hazard;
use crate::time::Time;

/// Lines of the scaled memory, as a power of two. With several NICs, each has fewer.
const LINE_BITS: u32 = 17;
const LINE_BITS_OF_SEVERAL: u32 = 15;
/// Operations of a reported run. With several NICs, each has fewer.
const OPERATIONS: u32 = 20_000;
const OPERATIONS_OF_SEVERAL: u32 = 8_000;
/// Shares of the throughput at which latencies are measured.
const LATENCY_LOADS: [f64; 2] = [0.5, 0.9];
/// Largest pair that fits one slab: the pipeline has no larger ones.
const KV_BYTES_MAX: u32 = 508;
const SKEW_MAX: f64 = 1.5;
/// A resource is not the bottleneck if its doubling gains less than this.
const GAIN_MIN: f64 = 0.02;

/// The load of the board.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Bytes of key and value, the same for all pairs.
    pub kv_bytes: u32,
    /// Share of PUTs, of existing keys; the others are GETs.
    pub put_share: f64,
    /// θ of Zipf's law. With 0, all keys are equally popular. YCSB's long tail is 0.99.
    pub skew: f64,
    /// Bytes of pairs over bytes of memory. `None`: the utilization that the store assumes if it knows only the size.
    pub utilization: Option<f64>,
}

/// The throughput of the board, and its tuning.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizing {
    /// The busiest NIC's share of all operations, over the average. It is 1 for a single NIC.
    pub busiest_nic: f64,
    /// Bytes of pairs over bytes of memory.
    pub utilization: f64,
    /// Number of pairs in the whole memory of all NICs at that utilization.
    pub pairs: u64,
    /// The best hash index ratio.
    pub hash_index_ratio: f64,
    /// The best inline threshold, in bytes.
    pub inline_threshold: usize,
    /// The best load dispatch ratio.
    pub dispatch_ratio: f64,
    /// Millions of operations a second.
    pub mops: f64,
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

/// A resource that can be the bottleneck.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Its name.
    pub name: &'static str,
    /// The share of the time in which it was busy. For several parts or NICs, that of the busiest one.
    pub busy: f64,
    /// Its parts, if it has several.
    pub parts: Vec<(&'static str, f64)>,
    /// Millions of operations a second if it is doubled and l is chosen again.
    pub mops_if_doubled: f64,
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

/// The name of a resource, and the function that doubles it.
type Doubling = (&'static str, fn(&mut Hardware));

/// All resources. A board may lack the last one.
const RESOURCES: [Doubling; 7] = [
    ("clock", |board| board.processor.clock_mhz *= 2.0),
    ("operations in flight", |board| board.processor.operations_in_flight *= 2),
    ("PCIe", |board| board.pcie.links *= 2),
    ("NIC DRAM", |board| board.nic_dram.bandwidth_gb_per_s *= 2.0),
    ("host DRAM", |board| board.host_dram.bandwidth_gb_per_s *= 2.0),
    ("network", |board| board.network.bandwidth_gb_per_s *= 2.0),
    ("host cores", |board| board.host_cpu.cores_per_link *= 2),
];

/// The stores for all measurements.
struct Bench<'a> {
    demand: &'a Demand,
    seed: u64,
    /// One NIC, on which l is chosen.
    nic: Corpus,
    /// All NICs, if there are several.
    server: Option<ServerCorpus>,
}

/// The results of a run.
struct Run {
    mops: f64,
    lines: f64,
    near_share: f64,
    forwarded_share: f64,
    /// Latencies in the order of the replies, without the network's delay.
    latencies: Vec<Time>,
    span: Time,
    /// The busiest NIC's share of all operations, over the average.
    busiest: f64,
    /// Operations of the busiest NIC, their total time in flight, and the load of its memory.
    operations: u64,
    held: Time,
    load: MemoryLoad,
}

/// Sizes a board. The same seed gives the same figures. Calls `progress` with the share that is done.
pub fn size(
    hardware: &Hardware,
    demand: &Demand,
    seed: u64,
    progress: &mut dyn FnMut(f64),
) -> Result<Sizing, SizingError> {
    hardware.check()?;
    let utilization = demand.check()?;
    let (settings, mut bench) = Bench::load(hardware, demand, utilization, seed)?;
    let resources: Vec<Doubling> = RESOURCES
        .into_iter()
        .filter(|(name, _)| *name != "host cores" || hardware.host_cpu.cores_per_link > 0)
        .collect();
    let steps = 2 + LATENCY_LOADS.len() + 2 * resources.len();
    let mut done = 0_usize;
    let mut step = || {
        done += 1;
        progress(done as f64 / steps as f64);
    };
    let dispatch_ratio = bench.tuned_ratio(hardware);
    step();
    let run = bench.run(hardware, dispatch_ratio, Time::ZERO);
    step();
    let mut latencies = Vec::new();
    for share in LATENCY_LOADS {
        let interval = Time::from_ns(1e3 / (share * run.mops));
        latencies.push(Latency::of(&bench.run(hardware, dispatch_ratio, interval), hardware));
        step();
    }
    let mut found = Vec::new();
    for (name, double) in resources {
        let mut doubled = hardware.clone();
        double(&mut doubled);
        let ratio = bench.tuned_ratio(&doubled);
        step();
        let mops_if_doubled = bench.run(&doubled, ratio, Time::ZERO).mops;
        let parts = busy(name, hardware, demand, &run);
        let most = parts.iter().map(|(_, share)| *share).fold(0.0, f64::max);
        let parts = if parts.len() > 1 { parts } else { Vec::new() };
        found.push(Resource { name, busy: most, parts, mops_if_doubled });
        step();
    }
    let host_bytes = hardware.host_dram.size_gib * f64::from(1_u32 << 30) * f64::from(hardware.server.nics);
    Ok(Sizing {
        busiest_nic: run.busiest,
        utilization,
        pairs: (host_bytes * utilization / f64::from(demand.kv_bytes)) as u64,
        hash_index_ratio: settings.hash_index_ratio,
        inline_threshold: settings.inline_threshold,
        dispatch_ratio,
        mops: run.mops,
        lines: run.lines,
        near_share: run.near_share,
        forwarded_share: run.forwarded_share,
        latencies,
        bottleneck: bottleneck(&found, run.mops),
        resources: found,
    })
}

impl<'a> Bench<'a> {
    /// Loads the stores. Returns them with their settings.
    fn load(
        hardware: &Hardware,
        demand: &'a Demand,
        utilization: f64,
        seed: u64,
    ) -> Result<(Settings, Self), SizingError> {
        let loaded = || {
            let settings = demand.settings(LINE_BITS, seed)?;
            let mut nic = Corpus::load_with(&hardware.one_nic(), &settings, demand.kv_bytes, scaled(utilization))?;
            nic.theta = demand.skew;
            if nic.key_count == 0 {
                return None;
            }
            let mut server = None;
            if hardware.server.nics > 1 {
                let settings = demand.settings(LINE_BITS_OF_SEVERAL, seed)?;
                // A scaled memory has so few keys that they are not distributed evenly.
                let keys = settings.memory as f64 * utilization / f64::from(demand.kv_bytes);
                let evenly = scaled(utilization) * (1.0 - 4.0 / keys.sqrt()).max(0.5);
                let mut all = ServerCorpus::load_with(hardware, &settings, demand.kv_bytes, evenly)?;
                all.theta = demand.skew;
                server = Some(all);
            }
            Some((settings, Bench { demand, seed, nic, server }))
        };
        loaded().ok_or_else(|| {
            let kv_size = demand.kv_bytes as usize;
            let most = Settings::utilization_max(kv_size);
            let reason = format!("{utilization} is too high for pairs of {kv_size} B, which fill less than {most:.2}");
            SizingError::Demand { field: "utilization", reason }
        })
    }

    fn workload(&self, dispatch_ratio: f64) -> Workload {
        Workload {
            policy: Policy::Dispatch(dispatch_ratio),
            long_tail: (self.demand.skew > 0.0).then_some(f64::from(self.nic.key_count)),
            put_share: self.demand.put_share,
            hazard: Hazard::Waits,
            whole_pairs: false,
            writes_unchanged: false,
            count: OPERATIONS,
            seed: self.seed,
        }
    }

    /// Returns the load dispatch ratio at which a NIC of this hardware is fastest.
    fn tuned_ratio(&mut self, hardware: &Hardware) -> f64 {
        self.nic.hardware = hardware.one_nic();
        self.nic.tuned_ratio(&self.workload(0.0))
    }

    /// Runs the demand on hardware that may differ in its speeds from that for which the stores were loaded. Clients
    /// have another operation after each `interval`.
    fn run(&mut self, hardware: &Hardware, dispatch_ratio: f64, interval: Time) -> Run {
        let workload = self.workload(dispatch_ratio);
        let Some(server) = &mut self.server else {
            self.nic.hardware = hardware.clone();
            let outcome = self.nic.offer(&workload, interval);
            return Run {
                mops: outcome.carried_mops,
                lines: outcome.lines,
                near_share: outcome.near_share,
                forwarded_share: outcome.forwarded_share,
                latencies: outcome.latencies,
                span: outcome.span,
                busiest: 1.0,
                operations: outcome.passages.len() as u64,
                held: outcome.passages.iter().map(|passage| passage.replied - passage.decoded).sum(),
                load: outcome.load,
            };
        };
        let outcome = server.run(
            hardware,
            &ServerWorkload {
                ratio: dispatch_ratio,
                is_long: workload.long_tail.is_some(),
                put_share: workload.put_share,
                interval,
                count: OPERATIONS_OF_SEVERAL,
                seed: self.seed,
            },
        );
        Run {
            mops: outcome.mops,
            lines: outcome.lines,
            near_share: outcome.near_share,
            forwarded_share: outcome.forwarded,
            latencies: outcome.latencies,
            span: outcome.span,
            busiest: outcome.busiest.over_average,
            operations: outcome.busiest.operations as u64,
            held: outcome.busiest.held,
            load: outcome.busiest.load,
        }
    }
}

/// Returns the utilization of the scaled memory. It is slightly lower, because the scaled memory has fewer buckets, and
/// the last random chains may not get theirs.
fn scaled(utilization: f64) -> f64 {
    utilization - 0.005_f64.min(utilization / 2.0)
}

impl Demand {
    /// Checks that all values are possible. Returns the utilization.
    fn check(&self) -> Result<f64, SizingError> {
        let Demand { kv_bytes, put_share, skew, .. } = *self;
        let least = KEY_BYTES + 1;
        if !(least..=KV_BYTES_MAX).contains(&kv_bytes) {
            let reason = format!("{kv_bytes} is not between {least} and {KV_BYTES_MAX} bytes, the sizes of the model");
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

    /// Returns the store's settings for a memory of this many lines, or `None` if the memory cannot hold the pairs.
    fn settings(&self, line_bits: u32, seed: u64) -> Option<Settings> {
        let memory = u64::from(LINE_BYTES) << line_bits;
        let kv_size = self.kv_bytes as usize;
        match self.utilization {
            None => Some(Settings::for_kv_size(memory, kv_size, seed)),
            Some(utilization) => Settings::for_utilization(memory, kv_size, utilization, seed),
        }
    }
}

impl Latency {
    /// Calculates the latencies of a run. Ignores the first and the last tenth, in which the pipeline is not full.
    fn of(run: &Run, hardware: &Hardware) -> Self {
        let count = run.latencies.len();
        let mut latencies = run.latencies[count / 10..count * 9 / 10].to_vec();
        latencies.sort_unstable();
        let delay_us = 2.0 * hardware.network.delay_us;
        let at = |share: f64| delay_us + latencies[(latencies.len() as f64 * share) as usize].as_us();
        let mean = latencies.iter().copied().sum::<Time>().as_us() / latencies.len() as f64;
        Latency { mops: run.mops, mean_us: delay_us + mean, p95_us: at(0.95), p99_us: at(0.99) }
    }
}

/// Returns how busy the parts of a resource were.
fn busy(name: &str, hardware: &Hardware, demand: &Demand, run: &Run) -> Vec<(&'static str, f64)> {
    let Run { load, span, .. } = run;
    let operations = run.operations as f64;
    match name {
        "clock" => {
            let cycle = Time::cycle(hardware.processor.clock_mhz);
            vec![("decoder", (cycle * run.operations).share_of(*span))]
        }
        "operations in flight" => {
            vec![("in flight", run.held.share_of(*span) / f64::from(hardware.processor.operations_in_flight))]
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
        "host cores" => vec![("cores", load.host_cores)],
        _ => {
            // Packets that are not full would occupy the wire at any load. The figure for full packets shows the
            // required bandwidth.
            let spec = &hardware.network;
            let need = |share: f64, bytes: u32| {
                let together = operations_per_packet(spec, bytes);
                let packet = Time::of_bytes(packet_bytes(spec, together, bytes).into(), spec.bandwidth_gb_per_s);
                packet.as_us() / f64::from(together) * operations * share / span.as_us()
            };
            let (puts, value) = (demand.put_share, demand.kv_bytes - KEY_BYTES);
            vec![
                ("requests", need(puts, demand.kv_bytes) + need(1.0 - puts, KEY_BYTES)),
                ("replies", need(puts, 0) + need(1.0 - puts, value)),
            ]
        }
    }
}

/// Returns the resource whose doubling gains most. If none gains, because two are balanced, returns the busiest.
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
    use crate::hardware::Server;

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

    /// Checks that no load dispatch ratio of a sweep is faster, except for the variation between runs.
    #[test]
    fn the_dispatch_ratio_is_among_the_best() {
        for (kv_bytes, put_share, skew) in [(10, 0.5, 0.99), (62, 0.5, 0.99), (10, 0.0, 0.0)] {
            let demand = demand(kv_bytes, put_share, skew);
            let mut board = Hardware::kv_direct();
            // No other resource may be the bound.
            board.processor.clock_mhz = 1000.0;
            board.network.bandwidth_gb_per_s = 500.0;
            let sizing = size(&board, &demand, 7, &mut |_| ()).unwrap();
            let (_, mut bench) = Bench::load(&board, &demand, 0.4, 7).unwrap();
            let ratios = [0.0, 0.05, 0.1, 0.35, 0.55, 0.75, 1.0];
            let sweep: Vec<f64> = ratios.map(|ratio| bench.run(&board, ratio, Time::ZERO).mops).to_vec();
            let best = sweep.iter().copied().fold(0.0, f64::max);
            assert!(sizing.mops > 0.95 * best, "{kv_bytes} B: {} at {}, {sweep:?}", sizing.mops, sizing.dispatch_ratio);
        }
    }

    /// Checks that NICs work in parallel, that the NICs of a memory node share it, and that a long tail is divided
    /// unevenly.
    #[test]
    fn several_nics_are_sized_together() {
        let puts = demand(10, 1.0, 0.0);
        let sized = |nics: u32, gb_per_s: f64, demand: &Demand| {
            let mut board = Hardware::kv_direct_one_link();
            board.server = Server { nics, memory_nodes: 1 };
            board.host_dram.bandwidth_gb_per_s = gb_per_s;
            size(&board, demand, 7, &mut |_| ()).unwrap()
        };
        let [one, two] = [1, 2].map(|nics| sized(nics, 60.0, &puts));
        assert!((1.8..2.1).contains(&(two.mops / one.mops)), "{} and {}", one.mops, two.mops);
        assert_eq!((two.pairs / 2, two.bottleneck, one.busiest_nic), (one.pairs, one.bottleneck, 1.0));
        assert!((1.0..1.05).contains(&two.busiest_nic), "{}", two.busiest_nic);
        let shared = sized(2, 4.0, &puts);
        assert_eq!(shared.bottleneck, "host DRAM");
        assert!(shared.mops < 0.8 * two.mops, "{} and {}", shared.mops, two.mops);
        let tail = sized(3, 60.0, &demand(10, 0.0, 0.99));
        assert!(tail.busiest_nic > 1.05, "{}", tail.busiest_nic);
        for sizing in [two, shared, tail] {
            assert!(sizing.resources.iter().all(|resource| resource.busy <= 1.03), "{:?}", sizing.resources);
            assert!(sizing.latencies[0].mean_us <= sizing.latencies[1].mean_us, "{:?}", sizing.latencies);
        }
    }

    #[test]
    fn cores_that_gather_are_a_resource() {
        let mut board = Hardware::kv_direct_one_link();
        board.host_cpu.cores_per_link = 1;
        board.processor.operations_in_flight = 4096;
        let sizing = size(&board, &demand(10, 0.0, 0.0), 7, &mut |_| ()).unwrap();
        assert_eq!((sizing.bottleneck, sizing.resources.len()), ("host cores", 7));
    }

    #[test]
    fn an_impossible_value_is_refused_with_its_field_and_the_reason() {
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
