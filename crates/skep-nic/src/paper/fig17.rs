//! Figure 17: latency under load, by size of the pairs, with and without network batching.
//!
//! Run: Figure 16 with clients that always have another request. The congestion window limits their operations in
//! flight to at most the 256 of the pipeline. The latency of an operation begins with its credit, ends when its reply
//! has left the wire, and includes the network. With batching it also includes the delay of Figure 15b's run at this
//! size: the wait for a full packet, and the packet.

use super::corpus::{Corpus, Workload};
use super::fig15;
use super::fig16::{LINE_BITS, tuned};
use super::{Axis, Context, Curve, Findings, Item, Point, Tolerance};
use crate::hardware::Hardware;
use crate::network::packet_bytes;
use crate::resource::mops;
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
    /// Operations in flight, on average.
    in_flight: f64,
}

/// Runs a workload and returns its latencies. Both directions together take the network's delay once. The paper's 2 µs
/// must be those of a round trip, because otherwise its shortest latencies would leave no time for the NIC.
pub(super) fn latency(corpus: &mut Corpus, workload: &Workload, batched: bool, kv_bytes: u32) -> Latency {
    let passages = corpus.run_closed(workload);
    let hardware = &corpus.hardware;
    let spec = &hardware.network;
    // Time that a separate packet occupies the wires beyond its share of a full packet, without a queue.
    let packet = Time::of_bytes(packet_bytes(spec, 1, kv_bytes).into(), spec.bandwidth_gb_per_s);
    let batching = if batched { fig15::added_by_batching_us(hardware, kv_bytes) } else { 0.0 };
    let network = spec.delay_us + 2.0 * packet.as_us() + batching;
    // In the first half, the window adjusts. In the last tenth, the pipeline empties.
    let middle = &passages[passages.len() / 2..passages.len() * 9 / 10];
    let mut latencies: Vec<f64> =
        middle.iter().map(|passage| network + (passage.replied - passage.sent).as_us()).collect();
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    let mean = latencies.iter().sum::<f64>() / latencies.len() as f64;
    let rate = mops(middle.iter().map(|passage| passage.replied).collect());
    // Little's law, applied to the operations that the window counts.
    let in_flight = rate * (mean - network);
    Latency { mops: rate, mean, low: at(0.05), high: at(0.95), in_flight }
}

fn measure(context: &mut Context<'_>, item: &Item, batched: bool) -> Findings {
    let hardware = Hardware::kv_direct();
    let mut open = hardware.clone();
    open.name += "-without-congestion-window";
    open.processor.delay_target_us = 1e6;
    let references = item.references();
    let mut found: Vec<Option<[Latency; 2]>> = references.iter().map(|_| None).collect();
    let mut done = 0;
    for kv_bytes in [5, 15, 62, 254] {
        let mut corpus = Corpus::load(&hardware, LINE_BITS, kv_bytes, context.seed);
        for (index, reference) in references.iter().enumerate() {
            if reference.x() != f64::from(kv_bytes) {
                continue;
            }
            context.progress(done, references.len());
            done += 1;
            let put_share = if reference.series.starts_with("PUT") { 1.0 } else { 0.0 };
            let workload = tuned(&mut corpus, reference.series.ends_with("skewed"), put_share, context.seed);
            let ours = latency(&mut corpus, &workload, batched, kv_bytes);
            corpus.hardware = open.clone();
            let filled = latency(&mut corpus, &workload, batched, kv_bytes);
            corpus.hardware = hardware.clone();
            found[index] = Some([ours, filled]);
        }
    }
    let found: Vec<[Latency; 2]> = found.into_iter().flatten().collect();
    let points: Vec<Point> =
        references.iter().zip(&found).map(|(reference, [ours, _])| Point::new(reference, ours.mean)).collect();
    let curve = |series: &str, name: &str, of: fn(&[Latency; 2]) -> f64| {
        let of_series = references.iter().zip(&found).filter(|(reference, _)| reference.series == series);
        Curve::beside(series, name, of_series.map(|(reference, found)| (reference.x(), of(found))).collect())
    };
    let curves = vec![
        curve("PUT uniform", "5th percentile", |[ours, _]| ours.low),
        curve("PUT uniform", "95th percentile", |[ours, _]| ours.high),
        curve("GET uniform", "without a congestion window", |[_, filled]| filled.mean),
        curve("PUT skewed", "without a congestion window", |[_, filled]| filled.mean),
    ];
    let tails = || found.iter().map(|[ours, _]| ours.high);
    // The operations in flight that the paper's latencies imply at our rates, by Little's law.
    let theirs = references
        .iter()
        .zip(&found)
        .map(|(reference, [ours, _])| ours.in_flight + ours.mops * (reference.y - ours.mean));
    let theirs: Vec<f64> = theirs.collect();
    let range = |of: &[f64]| {
        let (least, most) = (of.iter().copied().fold(f64::INFINITY, f64::min), of.iter().copied().fold(0.0, f64::max));
        format!("{least:.0} to {most:.0}")
    };
    let of_size = |large: bool, figures: &[f64]| {
        let of_size = references.iter().zip(figures).filter(|(reference, _)| (reference.x() == 254.0) == large);
        range(&of_size.map(|(_, figure)| *figure).collect::<Vec<_>>())
    };
    let held: Vec<f64> = found.iter().map(|[ours, _]| ours.in_flight).collect();
    let rates: Vec<String> = references
        .iter()
        .zip(&found)
        .map(|(reference, [ours, _])| format!("{} {} B {:.0}", reference.series, reference.x, ours.mops))
        .collect();
    let filled = found.iter().map(|[_, filled]| filled.mean).fold(0.0, f64::max);
    let added = [5, 15, 62, 254].map(|kv_bytes| format!("{:.2}", fig15::added_by_batching_us(&hardware, kv_bytes)));
    let added = added.join(", ");
    Findings {
        points,
        curves,
        setting: format!(
            "As Figure 16, with load dispatch ratios chosen in the same way. Million/s: {}. 95th percentiles from \
             {:.1} to {:.1} µs (paper: {}). Single packets could not carry these rates (Figure 15a). So without \
             batching, an operation is charged the time of its own packets, but no queue for the wire. With batching \
             it is charged {added} µs more at 5, 15, 62 and 254 B, as measured for Figure 15b (paper: 1.00, 1.02, \
             0.52, 0.26).",
            rates.join(", "),
            tails().fold(f64::INFINITY, f64::min),
            tails().fold(0.0, f64::max),
            if batched { "6.7 to 9.7" } else { "3 to 9 in the text, 5.8 to 9.4 in the plot" },
        ),
        explanation: format!(
            "A NIC that completes X million operations a second with N in flight holds each for N / X µs. Up to 62 B, \
             ours has {} in flight, of 256 at most. At the same rates the paper's latencies imply {}. The largest of \
             them are GETs of the long tail, where the clock is the bound. There more than 256 operations must wait \
             before the paper's pipeline, while ours wait at the client. At 254 B the wire is the bound. If every \
             slot may be in use, the mean is up to {filled:.1} µs (dashed; the thesis says above 10), and no bar of \
             the paper shows that. With the congestion window, ours has {} in flight, and the delay of all four bars \
             is the window's target, which was fitted to them. The paper's bars imply {}. For GETs they equal the \
             bars of 62 B plus the time of 192 B on a wire, 0.04 µs, although the load of the memory is a quarter. So \
             they are explained neither by a bound on operations in flight, nor by a bound on their delay.",
            of_size(false, &held),
            of_size(false, &theirs),
            of_size(true, &held),
            of_size(true, &theirs),
        ),
    }
}
