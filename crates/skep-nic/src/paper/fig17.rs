//! Figure 17: latency under load, by size of the pairs, with and without network batching.
//!
//! What runs: Figure 16, in which clients always have more, so that the pipeline is as full as it gets. An operation's
//! latency is that from the moment at which the decoder is free for its packet, plus the network: a client that has to
//! wait for that moment waits at the client. With batching a packet is full, and its operations wait for each other.

use super::corpus::{Corpus, Workload};
use super::fig16::{LINE_BITS, workload};
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

/// Latencies under load, in µs.
pub(super) struct Latency {
    pub(super) mops: f64,
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Runs a workload and looks at its latencies. The way there and back takes the network's delay once: the paper's 2 µs are
/// of a round trip, or nothing of its shortest latencies would be left for the NIC.
pub(super) fn latency(corpus: &mut Corpus, workload: &Workload, batched: bool, kv_bytes: u32) -> Latency {
    let outcome = corpus.run(workload);
    let spec = &corpus.hardware.network;
    let together = if batched { operations_per_packet(spec, kv_bytes) } else { 1 };
    // What the wires take of a packet each way, without a queue: single packets could not carry the peak.
    let packet = Time::of_bytes(packet_bytes(spec, together, kv_bytes).into(), spec.bandwidth_gb_per_s);
    let network = spec.delay_us + 2.0 * packet.as_us();
    let passages = &outcome.passages;
    // The first and the last tenth meet a pipeline that fills or empties.
    let middle = passages.len() / 10..passages.len() * 9 / 10;
    let of_packet = |place: usize| passages[place - place % together as usize].decoded;
    let mut latencies: Vec<f64> =
        middle.map(|place| network + (passages[place].answered - of_packet(place)).as_us()).collect();
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    let mean = latencies.iter().sum::<f64>() / latencies.len() as f64;
    Latency { mops: outcome.carried_mops, mean, low: at(0.05), high: at(0.95) }
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
        .map(|(reference, found)| format!("{} {} B {:.0}", reference.series, reference.x, found.mops))
        .collect();
    Findings {
        points,
        curves,
        setting: format!(
            "As Figure 16, whose rates are here {} million/s. 95th percentiles from {:.1} to {:.1} µs (paper: {}). Single \
             packets could not carry these rates (Figure 15a): without batching an operation is charged the time of its \
             own packets, and no queue for the wire.",
            rates.join(", "),
            tails().fold(f64::INFINITY, f64::min),
            tails().fold(0.0, f64::max),
            if batched { "6.7 to 9.7" } else { "3 to 9 in the text, 5.8 to 9.4 in the plot" },
        ),
        explanation: "A full pipeline with 256 operations in flight that completes X million a second holds each for 256 / X \
            µs: the paper's uniform bars up to 62 B are that and the network's 2 µs, and so are ours. Where the clock or \
            the wire for requests is the bound (GETs of the long tail, PUTs from 62 B) ours is not full: what waits, waits \
            at the client, and the latency is the memory's. GETs of 254 B are bound by the wire for answers, and ours lets \
            any number wait for it. How many may wait where, the paper does not say. Batching adds 1.0 µs to the paper's bars at 5 and \
            15 B, then half and a quarter; to ours it adds what a full packet's operations wait for each other, which \
            falls with their number, and two full packets on the wire instead of two short ones. All of this is inferred from \
            the numbers, not measured."
            .to_owned(),
    }
}
