//! Figure 16: YCSB's reads and updates by size of the pairs, uniform and long-tail.
//!
//! What runs: clients that always have more, in full packets; the pipeline with its reservation station; the store's own
//! GETs and PUTs over PCIe and the NIC's DRAM; and answers in packets of what waits when the wire is free. Each point has
//! the load dispatch ratio at which the model is fastest. What the paper's points seem to assume is run beside it.

use super::corpus::{Corpus, Outcome, Workload};
use super::{Axis, Context, Curve, Findings, Item, Point, Reference, Tolerance};
use crate::dispatcher::Policy;
use crate::hardware::Hardware;
use crate::pipeline::Hazard;

pub(super) const UNIFORM: Item = Item {
    name: "fig16a",
    title: "YCSB throughput, uniform",
    paper: include_str!("../../papers/fig16a-ycsb-uniform.csv"),
    x: Axis::logarithmic("key and value (B)"),
    y: Axis::linear("operations (million/s)"),
    tolerance: Tolerance::Relative(0.10),
    run: |context| measure(context, &UNIFORM, false),
};

pub(super) const LONG_TAIL: Item = Item {
    name: "fig16b",
    title: "YCSB throughput, long-tail",
    paper: include_str!("../../papers/fig16b-ycsb-longtail.csv"),
    x: Axis::logarithmic("key and value (B)"),
    y: Axis::linear("operations (million/s)"),
    tolerance: Tolerance::Relative(0.10),
    run: |context| measure(context, &LONG_TAIL, true),
};

pub(super) const LINE_BITS: u32 = 18;
const COUNT: u32 = 20_000;

/// GETs and PUTs of one share, the board's way.
pub(super) fn workload(corpus: &Corpus, is_long: bool, put_share: f64, ratio: f64, seed: u64) -> Workload {
    Workload {
        policy: Policy::Dispatch(ratio),
        long_tail: is_long.then_some(f64::from(corpus.key_count)),
        put_share,
        hazard: Hazard::Waits,
        whole_pairs: true,
        writes_unchanged: false,
        count: COUNT,
        seed,
    }
}

/// The same with the load dispatch ratio that suits it best.
pub(super) fn tuned(corpus: &mut Corpus, is_long: bool, put_share: f64, seed: u64) -> Workload {
    let untuned = workload(corpus, is_long, put_share, 0.0, seed);
    Workload { policy: Policy::Dispatch(corpus.tuned_ratio(&untuned)), ..untuned }
}

/// A board whose DMA engine takes four cycles for a line, whether it is read or written: reads and writes exclude each
/// other, and 62.5 million of either, or of both, pass each link in a second.
fn exclusive(board: &Hardware) -> Hardware {
    let mut hardware = board.clone();
    hardware.name += "-exclusive";
    let engine = &mut hardware.pcie.dma_engine;
    (engine.read_header_cycles, engine.turnaround_cycles) = (engine.write_header_cycles, 0);
    hardware
}

/// The smallest pairs that are not in the index.
const NOT_INLINE: u32 = 62;

/// What the paper's curves seem to be made of, measured.
#[derive(Default)]
struct Readings {
    /// Reads and writes exclude each other.
    exclusive: Vec<Point>,
    /// A PUT writes every bucket that it reads. Of pairs in the index, PUTs alone.
    twice: Vec<Point>,
    /// Both, and of a uniform load every line over PCIe.
    both: Vec<Point>,
    /// A GET's request has the key alone.
    keys_alone: Vec<Point>,
}

impl Readings {
    fn of_memory(
        &mut self,
        corpus: &mut Corpus,
        [hardware, exclusive]: [&Hardware; 2],
        workload: &Workload,
        reference: &Reference,
    ) {
        let inline = reference.x() < f64::from(NOT_INLINE);
        let twice = Workload { writes_unchanged: workload.put_share == 1.0 && inline, ..*workload };
        let policy = if workload.long_tail.is_some() { workload.policy } else { Policy::Dispatch(0.0) };
        if twice.writes_unchanged {
            self.twice.push(Point::new(reference, corpus.run(&twice).carried_mops));
        }
        corpus.hardware = exclusive.clone();
        self.exclusive.push(Point::new(reference, corpus.run(workload).carried_mops));
        self.both.push(Point::new(reference, corpus.run(&Workload { policy, ..twice }).carried_mops));
        corpus.hardware = hardware.clone();
    }
}

fn measure(context: &mut Context<'_>, item: &Item, is_long: bool) -> Findings {
    let hardware = Hardware::kv_direct();
    let exclusive = exclusive(&hardware);
    let references = item.references();
    let mut points: Vec<Option<Point>> = references.iter().map(|_| None).collect();
    let mut done = 0;
    let (mut accesses, mut faster, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut readings = Readings::default();
    for kv_bytes in [5, 10, 15, 62, 126, 254] {
        let mut corpus = Corpus::load(&hardware, LINE_BITS, kv_bytes, context.seed);
        for (place, reference) in references.iter().enumerate() {
            if reference.x() != f64::from(kv_bytes) {
                continue;
            }
            context.progress(done, references.len());
            done += 1;
            let put_share = put_share(&reference.series);
            let workload = tuned(&mut corpus, is_long, put_share, context.seed);
            let outcome = corpus.run(&workload);
            points[place] = Some(Point::new(reference, outcome.carried_mops));
            if let Policy::Dispatch(ratio) = workload.policy {
                ratios.push(format!("{} {kv_bytes} B {ratio:.1}", reference.series));
            }
            if put_share == 0.0 || put_share == 1.0 {
                accesses.push(describe(kv_bytes, put_share, &outcome));
            }
            if kv_bytes >= NOT_INLINE {
                let alone = corpus.run(&Workload { whole_pairs: false, ..workload });
                readings.keys_alone.push(Point::new(reference, alone.carried_mops));
            }
            if put_share >= 0.5 && kv_bytes <= NOT_INLINE {
                readings.of_memory(&mut corpus, [&hardware, &exclusive], &workload, reference);
            }
        }
        if is_long && kv_bytes < NOT_INLINE {
            // Section 6.3.1 asks whether a network of 200 Gb/s needs no batching.
            let workload = tuned(&mut corpus, is_long, 0.0, context.seed);
            let network = &mut corpus.hardware.network;
            network.bandwidth_gb_per_s = 25.0;
            network.packet_max_bytes = network.header_bytes + network.operation_header_bytes + kv_bytes;
            faster.push((f64::from(kv_bytes), corpus.run(&workload).carried_mops));
        }
    }
    let points: Vec<Point> = points.into_iter().flatten().collect();
    let text = accesses.join("; ");
    let network = |kv: f64| 5e3 / ((kv + 1.0) * 1496.0 / 1408.0);
    let bound = [62.0, 126.0, 254.0].map(|kv| (kv, network(kv))).to_vec();
    let curve = |series: &str, what: &str, points: &[Point]| {
        let of_series = points.iter().filter(|point| point.series == series);
        Curve::beside(series, what, of_series.map(|point| (point.x, point.ours)).collect())
    };
    let both = if is_long { "both" } else { "both, and every line over PCIe" };
    let mut curves = vec![
        Curve::new("closed form: 5 GB/s / ((size + 1 B) × 1496/1408), the network", bound),
        curve("50% PUT", "reads and writes exclude each other", &readings.exclusive),
        curve("100% PUT", "every bucket that is read is written", &readings.twice),
        curve("100% PUT", both, &readings.both),
        curve("50% PUT", both, &readings.both),
        curve("50% PUT", "a GET's request is its key alone", &readings.keys_alone),
    ];
    let mut unbatched = String::new();
    if is_long {
        unbatched = format!(
            " With 200 Gb/s and one operation a packet, GETs of 5 B reach {:.0} million/s (section 6.3.1).",
            faster[0].1
        );
        curves.push(Curve::beside("100% GET", "200 Gb/s, one operation a packet", faster));
    }
    let explanation = explain(&points, &readings);
    Findings {
        points,
        curves,
        setting: format!(
            "2^{LINE_BITS} lines of 64 B instead of 2^30, half full, keys of 4 B, {COUNT} operations a point. Every request is as \
             long as a PUT's: the figure has one network bound from 62 B on, whatever the mix. Load dispatch ratios, each the \
             fastest of the tenths: {}. Before the network: {text}.{unbatched}",
            ratios.join(", ")
        ),
        explanation,
    }
}

/// What each reading does to the points of one series, as the range of deviations.
fn explain(points: &[Point], readings: &Readings) -> String {
    let range = |points: &[Point], series: &str, inline: bool| {
        let of_series =
            points.iter().filter(|point| point.series == series && (point.x < f64::from(NOT_INLINE)) == inline);
        let deviations: Vec<f64> = of_series.map(|point| 100.0 * point.deviation()).collect();
        let least = deviations.iter().copied().fold(f64::INFINITY, f64::min);
        let most = deviations.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if least == most { format!("{least:+.0} %") } else { format!("{least:+.0} to {most:+.0} %") }
    };
    let (mixes, puts) = ("50% PUT", "100% PUT");
    format!(
        "Of pairs in the index, 50 % PUT deviates by {}, 100 % PUT by {}. Three assumptions were run. Mixes: the paper's are \
         harmonic means of GETs and PUTs, as if reads and writes took turns in one place. On a board where they do (each line \
         takes the DMA engine the same 16 ns), 50 % PUT deviates by {}; that board cannot pass the reads of 128 B of Figure 3a. \
         PUTs: the paper's take twice the accesses of a GET, 2.21 and 2.49 at 10 and 15 B, while its Figure 11b and our store \
         take one more than a GET. With every bucket that a PUT reads written back, 100 % PUT deviates by {}. With both, and \
         uniform loads over PCIe alone (the text calls what the NIC's DRAM does for them negligible, in the model it \
         is the few percent that it holds), 50 % PUT deviates by {} and 100 % PUT by {}; at 62 B by {} and {}. Network: from 62 B on, 50 % PUT deviates by \
         {}; with requests of GETs as short as their keys, which is how ours are sent, by {}: a mix then has both directions of \
         the wire.",
        range(points, mixes, true),
        range(points, puts, true),
        range(&readings.exclusive, mixes, true),
        range(&readings.twice, puts, true),
        range(&readings.both, mixes, true),
        range(&readings.both, puts, true),
        range(&readings.both, mixes, false),
        range(&readings.both, puts, false),
        range(points, mixes, false),
        range(&readings.keys_alone, mixes, false),
    )
}

fn describe(kv_bytes: u32, put_share: f64, outcome: &Outcome) -> String {
    format!(
        "{} of {kv_bytes} B {:.0} million/s, {:.2} lines each, of which the NIC's DRAM had {:.0} % ({:.0} % of those it may \
         hold), {:.0} % of operations forwarded",
        if put_share == 0.0 { "GETs" } else { "PUTs" },
        outcome.mops,
        outcome.lines,
        100.0 * outcome.near_share,
        100.0 * outcome.hit_rate,
        100.0 * outcome.forwarded_share,
    )
}

/// The share of PUTs in a series' name: `5% PUT`, `100% GET`.
fn put_share(series: &str) -> f64 {
    let percent: f64 = series.split('%').next().and_then(|number| number.parse().ok()).expect("it begins with a share");
    if series.ends_with("GET") { 1.0 - percent / 100.0 } else { percent / 100.0 }
}
