//! Figure 17: latency under load, by size of the pairs, with and without network batching.
//!
//! Run: Figure 16 at 90 % of its throughput, so that no queue grows without bound. Operations arrive one by one at
//! regular times. The latency of an operation begins with its packet, ends when its reply has left the wire, and
//! includes the network. The figures with batching are those without, and the delay of Figure 15b's run at this size:
//! the wait for a full packet, and the packet.
//!
//! The three latencies of the board that no other figure shows were fitted to three bars without batching, all of them
//! uniform: the pipeline's to GETs of 5 B, the confirmation of a write to PUTs of 5 B, and the time between two reads
//! to GETs of 62 B. All other bars follow.
//!
//! Further curves have clients that always have another request, with and without the congestion window.

use super::fig15;
use super::fig16::{LINE_BITS, tuned};
use super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Reference, Sentence, Tolerance};
use crate::hardware::Hardware;
use crate::load::corpus::{Corpus, Workload};
use crate::network::packet_bytes;
use crate::time::Time;

pub(super) const BATCHED: Item = Item {
    name: "fig17a",
    title: "Latency with network batching",
    paper: include_str!("../../papers/fig17a-latency-batched.csv"),
    x: Axis::logarithmic("key and value (B)"),
    y: Axis::linear("latency (µs)"),
    tolerance: Tolerance::Relative(0.12),
    no_evidence: &[NoEvidence::calculation("Figure 17b with the delay of Figure 15b's run added.", |_, _| true)],
    open: &[],
    run: |context| batched(&measure(context)),
};

pub(super) const NOT_BATCHED: Item = Item {
    name: "fig17b",
    title: "Latency without network batching",
    paper: include_str!("../../papers/fig17b-latency-nonbatched.csv"),
    x: Axis::logarithmic("key and value (B)"),
    y: Axis::linear("latency (µs)"),
    tolerance: Tolerance::Relative(0.12),
    no_evidence: &[
        NoEvidence::input(
            "The pipeline's latency, the confirmation of a write, and the time between two reads were fitted to these \
             bars.",
            |series, x| [("GET uniform", 5.0), ("PUT uniform", 5.0), ("GET uniform", 62.0)].contains(&(series, x)),
        ),
        NoEvidence::input(
            "That uniform keys do not use the NIC's DRAM was chosen for these, and for Figure 16a.",
            |series, _| series == "GET uniform, 5th percentile",
        ),
        NoEvidence::input(
            "That a write to the NIC's DRAM is confirmed when it is there was chosen for this bar.",
            |series, x| (series, x) == ("PUT skewed", 5.0),
        ),
        NoEvidence::calculation("The difference of two bars, each of which is judged.", |series, _| {
            series.starts_with(DIFFERENCE)
        }),
    ],
    open: &["GET uniform, 95th percentile", "PUT skewed, 5th percentile"],
    run: measure,
};

/// Begins the names of differences.
const DIFFERENCE: &str = "PUT minus GET";
/// Percentiles and differences may deviate more than means.
const WIDE: Tolerance = Tolerance::Relative(0.20);

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

/// Runs a workload below its throughput and returns its latencies, without batching.
pub(super) fn latency(corpus: &mut Corpus, workload: &Workload, kv_bytes: u32) -> Latency {
    let mops = corpus.run(workload).carried_mops;
    let delays = corpus.run_spread(workload, Time::from_ns(1e3 / (LOAD * mops)));
    let network = network_us(&corpus.hardware, kv_bytes);
    // In the first tenth, the pipeline fills. In the last tenth, it empties.
    let middle = &delays[delays.len() / 10..delays.len() * 9 / 10];
    let mut latencies: Vec<f64> = middle.iter().map(|delay| network + delay.as_us()).collect();
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    Latency { mops, mean: latencies.iter().sum::<f64>() / latencies.len() as f64, low: at(0.05), high: at(0.95) }
}

/// Returns the mean latency of clients that always have another request.
fn filled_us(corpus: &mut Corpus, workload: &Workload, kv_bytes: u32) -> f64 {
    let passages = corpus.run_closed(workload);
    // In the first half, the window adjusts. In the last tenth, the pipeline empties.
    let middle = &passages[passages.len() / 2..passages.len() * 9 / 10];
    let total: Time = middle.iter().map(|passage| passage.replied - passage.sent).sum();
    network_us(&corpus.hardware, kv_bytes) + total.as_us() / middle.len() as f64
}

/// Returns the network's part of a latency: the delay there and back, and the packets.
fn network_us(hardware: &Hardware, kv_bytes: u32) -> f64 {
    let spec = &hardware.network;
    // Time that a separate packet occupies the wires beyond its share of a full packet, without a queue.
    let packet = Time::of_bytes(packet_bytes(spec, 1, kv_bytes).into(), spec.bandwidth_gb_per_s);
    2.0 * (spec.delay_us + packet.as_us())
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

/// Returns the findings with batching that follow from those without.
pub(super) fn batched(alone: &Findings) -> Findings {
    let hardware = Hardware::kv_direct();
    let added = SIZES.map(|kv_bytes| (f64::from(kv_bytes), fig15::added_by_batching_us(&hardware, kv_bytes)));
    let shifted = |x: f64, y: f64| y + added.iter().find(|added| added.0 == x).map_or(f64::NAN, |added| added.1);
    let references = BATCHED.references();
    let ours = |series: &str, x: f64| shifted(x, bar(&alone.points, series, x).ours);
    let point = |reference: &Reference| Point::new(reference, ours(&reference.series, reference.x()));
    let further = references.iter().flat_map(|reference| {
        ends(reference).map(|(series, paper)| {
            let ours = ours(&series, reference.x());
            Point::further(series, reference.x(), paper, ours).within(WIDE)
        })
    });
    let curve = |curve: &Curve| {
        let points = curve.points.iter().map(|(x, y)| (*x, shifted(*x, *y)));
        Curve { points: points.collect(), ..curve.clone() }
    };
    let mut by_size = Figures::new("Added by batching, µs");
    for ((kv_bytes, added), paper) in added.into_iter().zip([1.00, 1.02, 0.52, 0.26]) {
        by_size = by_size.beside(format!("{kv_bytes} B"), added, paper);
    }
    Findings {
        points: references.iter().map(point).chain(further).collect(),
        curves: alone.curves.iter().map(curve).collect(),
        setting: format!("{} With batching, it is charged the additional delay of Figure 15b's run.", alone.setting),
        sentences: vec![by_size.sentence()],
    }
}

fn measure(context: &mut Context<'_>) -> Findings {
    let hardware = Hardware::kv_direct();
    let mut open = hardware.clone();
    open.name += "-without-congestion-window";
    open.processor.delay_target_us = 1e6;
    let references = NOT_BATCHED.references();
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
            let at_load = latency(&mut corpus, &workload, kv_bytes);
            let filled = FILLED.contains(&reference.series.as_str()).then(|| {
                [&hardware, &open].map(|board| {
                    corpus.hardware = board.clone();
                    filled_us(&mut corpus, &workload, kv_bytes)
                })
            });
            corpus.hardware = hardware.clone();
            bars[index] = Some(Bar { at_load, filled });
        }
    }
    let bars: Vec<Bar> = bars.into_iter().flatten().collect();
    let points: Vec<Point> =
        references.iter().zip(&bars).map(|(reference, bar)| Point::new(reference, bar.at_load.mean)).collect();
    let mut findings = Findings {
        curves: curves(&points, &bars),
        setting: setting(&hardware),
        sentences: sentences(&points, &bars),
        points,
    };
    let further = percentiles(&references, &bars).chain(differences(&findings.points));
    let further: Vec<Point> = further.collect();
    findings.points.extend(further);
    findings
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

/// Returns the 5th and 95th percentiles of all bars.
fn percentiles(references: &[Reference], bars: &[Bar]) -> impl Iterator<Item = Point> {
    references.iter().zip(bars).flat_map(|(reference, bar)| {
        let [low, high] = ends(reference);
        [(low, bar.at_load.low), (high, bar.at_load.high)]
            .map(|((series, paper), ours)| Point::further(series, reference.x(), paper, ours).within(WIDE))
    })
}

/// Returns the ends of a bar of the paper, with the names of their series.
fn ends(reference: &Reference) -> [(String, f64); 2] {
    let (low, high) = reference.bounds.expect("the paper has both ends of each bar");
    [("5th", low), ("95th", high)]
        .map(|(percentile, paper)| (format!("{}, {percentile} percentile", reference.series), paper))
}

/// Returns the bar of a series at a size.
fn bar<'a>(points: &'a [Point], series: &str, kv_bytes: f64) -> &'a Point {
    let is_meant = |point: &&Point| point.series == series && point.x == kv_bytes;
    points.iter().find(is_meant).expect("the paper has all bars")
}

/// Returns the times that a PUT takes longer than a GET, for each kind of keys and each size.
fn differences(points: &[Point]) -> impl Iterator<Item = Point> {
    ["uniform", "skewed"].into_iter().flat_map(move |keys| {
        SIZES.map(|size| {
            let [put, get] = ["PUT", "GET"].map(|name| bar(points, &format!("{name} {keys}"), f64::from(size)));
            let (paper, ours) = (put.paper - get.paper, put.ours - get.ours);
            Point::further(format!("{DIFFERENCE}, {keys}"), f64::from(size), paper, ours).within(WIDE)
        })
    })
}

fn setting(hardware: &Hardware) -> String {
    format!(
        "As Figure 16, with load dispatch ratios chosen in the same way, at {:.0} % of its throughput, at regular \
         times. The pipeline's latency ({:.0} ns) was fitted to uniform GETs of 5 B without batching, the confirmation \
         of a write ({:.0} ns) to uniform PUTs of 5 B, and the time between two reads of an operation ({:.0} ns) to \
         uniform GETs of 62 B. Single packets could not carry these rates (Figure 15a). So without batching, an \
         operation is charged the time of its own packets, but no queue for the wire.",
        100.0 * LOAD,
        hardware.processor.latency_ns,
        hardware.pcie.write_confirmed_ns,
        hardware.processor.next_read_ns,
    )
}

fn sentences(points: &[Point], bars: &[Bar]) -> Vec<Sentence> {
    let more = |figures: Figures, x: f64| {
        let (first, second) = (bar(points, "GET uniform", 5.0), bar(points, "GET uniform", x));
        figures.beside(format!("{x} B"), second.ours - first.ours, second.paper - first.paper)
    };
    let read = Figures::new("A pair of 62 or 254 B is one more read than one of 5 B. This read costs uniform GETs, µs");
    let most = |of: usize| bars.iter().filter_map(|bar| Some(bar.filled?[of])).fold(0.0, f64::max);
    let mut rates = Figures::new("Rates, million/s");
    for (point, bar) in points.iter().zip(bars) {
        rates = rates.with(format!("{} B", point.name()), LOAD * bar.at_load.mops);
    }
    vec![
        more(more(read, 62.0), 254.0).sentence(),
        Sentence::fact(
            "In the paper this read costs the same at 62 and at 254 B, where the load of the memory is a quarter. So a \
             queue is not the cause, but a time between two reads of one operation. Figure 13a, where an atomic holds \
             its key for the time of one read, does not contradict: an atomic on an inline pair has no second read.",
        ),
        rates.sentence(),
        Figures::new("Longest mean of clients that always have another request, µs")
            .with("without the congestion window (the thesis says above 10)", most(1))
            .with("with it", most(0))
            .sentence(),
    ]
}
