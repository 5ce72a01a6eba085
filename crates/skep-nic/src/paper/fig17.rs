//! Figure 17: latency under load, by size of the pairs, with and without network batching.
//!
//! What runs: first the rate at which Figure 16's pipeline and wires saturate, then operations that begin at 95 % of it.
//! With batching a client begins a packet's worth at once, and answers share packets. Without, an operation has a packet
//! of its own each way, and begins at regular times.

use super::corpus::{Corpus, Workload};
use super::fig16::{LINE_BITS, workload};
use super::wire::Packets;
use super::{Axis, Context, Curve, Findings, Item, Point, Tolerance};
use crate::hardware::Hardware;
use crate::network::{operations_per_packet, packet_bytes};
use crate::time::Time;

pub(super) const BATCHED: Item = Item {
    name: "fig17a",
    title: "Latency with network batching",
    paper: include_str!("../../papers/fig17a-latency-batched.csv"),
    x: Axis::logarithmic("key and value (B)"),
    y: Axis::linear("latency (µs)"),
    tolerance: Tolerance::Relative(0.15),
    run: |context| measure(context, &BATCHED, true),
};

pub(super) const NOT_BATCHED: Item = Item {
    name: "fig17b",
    title: "Latency without network batching",
    paper: include_str!("../../papers/fig17b-latency-nonbatched.csv"),
    x: Axis::logarithmic("key and value (B)"),
    y: Axis::linear("latency (µs)"),
    tolerance: Tolerance::Relative(0.15),
    run: |context| measure(context, &NOT_BATCHED, false),
};

/// Share of the saturating rate.
const LOAD: f64 = 0.95;

/// Latencies under load, in µs.
pub(super) struct Latency {
    pub(super) peak_mops: f64,
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Runs a workload at its saturating rate and then below it. The way there and back takes the network's delay once: the
/// paper's 2 µs are of a round trip, or nothing of its shortest latencies would be left for the NIC.
pub(super) fn latency(corpus: &mut Corpus, workload: &Workload, batched: bool, kv_bytes: u32) -> Latency {
    let peak_mops = corpus.run(workload).carried_mops;
    let spec = corpus.hardware.network.clone();
    let interval = Time::from_ns(1e3 / (peak_mops * LOAD));
    let together = u64::from(if batched { operations_per_packet(&spec, kv_bytes) } else { 1 });
    let begun = |place: u64| interval * (place / together * together);
    let packets = if batched { Packets::Shared } else { Packets::None };
    let [mean, low, high] = corpus.run_begun(workload, packets, begun).latency_us;
    // What the wires of single packets take without a queue: they could not carry the peak.
    let single = Time::of_bytes(packet_bytes(&spec, 1, kv_bytes).into(), spec.bandwidth_gb_per_s);
    let apart = spec.delay_us + if batched { 0.0 } else { 2.0 * single.as_us() };
    Latency { peak_mops, mean: mean + apart, low: low + apart, high: high + apart }
}

fn measure(context: &mut Context<'_>, item: &Item, batched: bool) -> Findings {
    let hardware = Hardware::kv_direct();
    let references = item.references();
    let mut found: Vec<Option<Latency>> = references.iter().map(|_| None).collect();
    let mut done = 0;
    for kv_bytes in [5, 15, 62, 254] {
        let mut corpus = Corpus::load(&hardware, LINE_BITS, kv_bytes, context.seed);
        for (place, reference) in references.iter().enumerate() {
            if reference.x() != f64::from(kv_bytes) {
                continue;
            }
            context.progress(done, references.len());
            done += 1;
            let put_share = if reference.series.starts_with("PUT") { 1.0 } else { 0.0 };
            let workload = workload(&corpus, reference.series.ends_with("skewed"), put_share, context.seed);
            found[place] = Some(latency(&mut corpus, &workload, batched, kv_bytes));
        }
    }
    let found: Vec<Latency> = found.into_iter().flatten().collect();
    let points: Vec<Point> =
        references.iter().zip(&found).map(|(reference, found)| Point::new(reference, found.mean)).collect();
    let curve = |name: &str, of: fn(&Latency) -> f64| {
        let series = "PUT uniform";
        let of_series = references.iter().zip(&found).filter(|(reference, _)| reference.series == series);
        Curve::beside(series, name, of_series.map(|(reference, found)| (reference.x(), of(found))).collect())
    };
    let curves = vec![curve("5th percentile", |found| found.low), curve("95th percentile", |found| found.high)];
    let tails = || found.iter().map(|found| found.high);
    let rates: Vec<String> = references
        .iter()
        .zip(&found)
        .map(|(reference, found)| format!("{} {} B {:.0}", reference.series, reference.x, found.peak_mops))
        .collect();
    Findings {
        points,
        curves,
        setting: format!(
            "As Figure 16, at {:.0} % of the rate that saturates: {} million/s. 95th percentiles from {:.1} to {:.1} µs \
             (paper: {}). Without batching single packets could not carry these rates (Figure 15a); each operation is \
             charged its own packets, and no queue for the wire.",
            100.0 * LOAD,
            rates.join(", "),
            tails().fold(f64::INFINITY, f64::min),
            tails().fold(0.0, f64::max),
            if batched { "6.7 to 9.7" } else { "3 to 9 in the text, 5.8 to 9.4 in the plot" },
        ),
        explanation: "Latency at the peak is a queue's: a pipeline with 256 operations in flight that completes X million \
            a second holds each for 256 / X µs, and what load below the peak is meant, the paper does not say. Where the \
            network is the bound, in pairs of 62 and 254 B, the NIC itself is not full in our runs and answers sooner; the \
            paper's bars there are as long as if it were. A batch adds to ours what its operations wait for each other in \
            the decoder and the memory, most where most fit into a packet."
            .to_owned(),
    }
}
