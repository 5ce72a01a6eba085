//! Figure 17: latency under load, by size of the pairs, with and without network batching.
//!
//! Run: Figure 16 at 90 % of its throughput, so that no queue grows without bound. Operations arrive one by one at
//! regular times. The latency of an operation begins with its packet, ends when its reply has left the wire, and
//! includes the network. With batching it also includes the delay of Figure 15b's run at this size: the wait for a full
//! packet, and the packet.
//!
//! The two latencies of the board that no other figure shows were fitted to two bars without batching: the pipeline's
//! to GETs of 5 B, and the confirmation of a write to PUTs of 5 B, both uniform. All other bars follow.
//!
//! Further curves have clients that always have another request, with and without the congestion window.

use super::corpus::{Corpus, Workload};
use super::fig15;
use super::fig16::{LINE_BITS, tuned};
use super::{Axis, Context, Curve, Findings, Item, Point, Tolerance};
use crate::hardware::Hardware;
use crate::network::packet_bytes;
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

/// Share of the throughput of Figure 16 at which latencies are measured.
const LOAD: f64 = 0.9;

/// Latencies of operations below a throughput.
pub(super) struct Latency {
    /// The throughput, in millions a second.
    pub(super) mops: f64,
    /// Latencies in µs.
    pub(super) mean: f64,
    low: f64,
    high: f64,
}

/// Runs a workload below its throughput and returns its latencies.
pub(super) fn latency(corpus: &mut Corpus, workload: &Workload, batched: bool, kv_bytes: u32) -> Latency {
    let mops = corpus.run(workload).carried_mops;
    let delays = corpus.run_spread(workload, Time::from_ns(1e3 / (LOAD * mops)));
    let network = network_us(&corpus.hardware, batched, kv_bytes);
    // In the first tenth, the pipeline fills. In the last tenth, it empties.
    let middle = &delays[delays.len() / 10..delays.len() * 9 / 10];
    let mut latencies: Vec<f64> = middle.iter().map(|delay| network + delay.as_us()).collect();
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    Latency { mops, mean: latencies.iter().sum::<f64>() / latencies.len() as f64, low: at(0.05), high: at(0.95) }
}

/// Returns the mean latency of clients that always have another request.
fn filled_us(corpus: &mut Corpus, workload: &Workload, batched: bool, kv_bytes: u32) -> f64 {
    let passages = corpus.run_closed(workload);
    // In the first half, the window adjusts. In the last tenth, the pipeline empties.
    let middle = &passages[passages.len() / 2..passages.len() * 9 / 10];
    let total: Time = middle.iter().map(|passage| passage.replied - passage.sent).sum();
    network_us(&corpus.hardware, batched, kv_bytes) + total.as_us() / middle.len() as f64
}

/// Returns the network's part of a latency: the delay there and back, and the packets.
fn network_us(hardware: &Hardware, batched: bool, kv_bytes: u32) -> f64 {
    let spec = &hardware.network;
    // Time that a separate packet occupies the wires beyond its share of a full packet, without a queue.
    let packet = Time::of_bytes(packet_bytes(spec, 1, kv_bytes).into(), spec.bandwidth_gb_per_s);
    let batching = if batched { fig15::added_by_batching_us(hardware, kv_bytes) } else { 0.0 };
    2.0 * (spec.delay_us + packet.as_us()) + batching
}

/// The latencies of one bar's operations, in µs.
struct Bar {
    at_load: Latency,
    /// Means of clients that always have another request, with and without the congestion window. For the series that
    /// show them.
    filled: Option<[f64; 2]>,
}

/// Series whose clients also always have another request.
const FILLED: [&str; 2] = ["GET uniform", "PUT skewed"];

fn measure(context: &mut Context<'_>, item: &Item, batched: bool) -> Findings {
    let hardware = Hardware::kv_direct();
    let mut open = hardware.clone();
    open.name += "-without-congestion-window";
    open.processor.delay_target_us = 1e6;
    let references = item.references();
    let mut bars: Vec<Option<Bar>> = references.iter().map(|_| None).collect();
    let mut done = 0;
    for kv_bytes in SIZES {
        let mut corpus = Corpus::load(&hardware, LINE_BITS, kv_bytes, context.seed);
        for (index, reference) in references.iter().enumerate() {
            if reference.x() != f64::from(kv_bytes) {
                continue;
            }
            context.progress(done, references.len());
            done += 1;
            let put_share = if reference.series.starts_with("PUT") { 1.0 } else { 0.0 };
            let workload = tuned(&mut corpus, reference.series.ends_with("skewed"), put_share, context.seed);
            let at_load = latency(&mut corpus, &workload, batched, kv_bytes);
            let filled = FILLED.contains(&reference.series.as_str()).then(|| {
                [&hardware, &open].map(|board| {
                    corpus.hardware = board.clone();
                    filled_us(&mut corpus, &workload, batched, kv_bytes)
                })
            });
            corpus.hardware = hardware.clone();
            bars[index] = Some(Bar { at_load, filled });
        }
    }
    let bars: Vec<Bar> = bars.into_iter().flatten().collect();
    let points: Vec<Point> =
        references.iter().zip(&bars).map(|(reference, bar)| Point::new(reference, bar.at_load.mean)).collect();
    Findings {
        curves: curves(&points, &bars),
        setting: setting(&hardware, &points, &bars, batched),
        explanation: explain(&points, &bars),
        points,
    }
}

/// Sizes of the pairs.
const SIZES: [u32; 4] = [5, 15, 62, 254];

fn curves(points: &[Point], bars: &[Bar]) -> Vec<Curve> {
    let curve = |series: &str, name: &str, of: fn(&Bar) -> Option<f64>| {
        let of_series = points.iter().zip(bars).filter(|(point, _)| point.series == series);
        Curve::beside(series, name, of_series.filter_map(|(point, bar)| Some((point.x, of(bar)?))).collect())
    };
    let mut curves = vec![
        curve("PUT uniform", "5th percentile", |bar| Some(bar.at_load.low)),
        curve("PUT uniform", "95th percentile", |bar| Some(bar.at_load.high)),
    ];
    for series in FILLED {
        curves.push(curve(series, "always another request", |bar| bar.filled.map(|filled| filled[1])));
        let name = "always another request, with the congestion window";
        curves.push(curve(series, name, |bar| bar.filled.map(|filled| filled[0])));
    }
    curves
}

fn setting(hardware: &Hardware, points: &[Point], bars: &[Bar], batched: bool) -> String {
    let rates: Vec<String> = points
        .iter()
        .zip(bars)
        .map(|(point, bar)| format!("{} B {:.0}", point.name(), LOAD * bar.at_load.mops))
        .collect();
    let added = SIZES.map(|kv_bytes| format!("{:.2}", fig15::added_by_batching_us(hardware, kv_bytes)));
    let tails = || bars.iter().map(|bar| bar.at_load.high);
    format!(
        "As Figure 16, with load dispatch ratios chosen in the same way, at {:.0} % of its throughput, at regular \
         times. Million/s: {}. The pipeline's latency ({:.0} ns) was fitted to uniform GETs of 5 B without batching, \
         and the confirmation of a write ({:.0} ns) to uniform PUTs of 5 B. So these two bars are no evidence. 95th \
         percentiles from {:.1} to {:.1} µs (paper: {}). Single packets could not carry these rates (Figure 15a). So \
         without batching, an operation is charged the time of its own packets, but no queue for the wire. With \
         batching it is charged {} µs more at 5, 15, 62 and 254 B, as measured for Figure 15b (paper: 1.00, 1.02, \
         0.52, 0.26).",
        100.0 * LOAD,
        rates.join(", "),
        hardware.processor.latency_ns,
        hardware.pcie.write_confirmed_ns,
        tails().fold(f64::INFINITY, f64::min),
        tails().fold(0.0, f64::max),
        if batched { "6.7 to 9.7" } else { "3 to 9 in the text, 5.8 to 9.4 in the plot" },
        added.join(", "),
    )
}

fn explain(points: &[Point], bars: &[Bar]) -> String {
    let point = |series: &str, x: f64| {
        points.iter().find(|point| point.series == series && point.x == x).expect("the paper has all bars")
    };
    let more = |series: &str, x: f64| {
        let (first, second) = (point(series, 5.0), point(series, x));
        format!("{:.2} (paper: {:.2})", second.ours - first.ours, second.paper - first.paper)
    };
    let put_over_get = |keys: &str| {
        let over = |x: f64| {
            let (get, put) = (point(&format!("GET {keys}"), x), point(&format!("PUT {keys}"), x));
            format!("{:.2} ({:.2})", put.ours - get.ours, put.paper - get.paper)
        };
        SIZES.map(|size| over(f64::from(size))).join(", ")
    };
    let most = |of: usize| bars.iter().filter_map(|bar| Some(bar.filled?[of])).fold(0.0, f64::max);
    format!(
        "A pair of 62 or 254 B is one more read than one of 5 B. Over 5 B, this read costs uniform GETs {} and {} \
         µs. In the paper it costs the same at 254 B, where the load of the memory is a quarter. So a queue is not \
         the cause, but a time between two accesses of one operation, which the model does not have. With a long \
         tail the paper's read costs less, and the model's deviates less. A PUT takes longer than a GET, at 5, 15, \
         62 and 254 B, by {} µs with uniform keys (in parentheses the paper's), and by {} µs with a long tail. If \
         clients always have another request, every slot and queue is full, and the mean of the dashed series is up \
         to {:.1} µs (the thesis says above 10). With the congestion window it is up to {:.1} µs.",
        more("GET uniform", 62.0),
        more("GET uniform", 254.0),
        put_over_get("uniform"),
        put_over_get("skewed"),
        most(1),
        most(0),
    )
}
