//! Figure 16: YCSB's reads and updates by size of the pairs, uniform and long-tail.
//!
//! Run: clients that always have another request, in full packets, and the pipeline with its reservation station.
//! The store executes its GETs and PUTs over PCIe and the NIC's DRAM. When the wire is free, all waiting replies are
//! sent in packets. With a long tail, each point has the load dispatch ratio at which the model is fastest.
//!
//! Uniform keys have a ratio of 0: every line uses PCIe. The paper tunes the ratio for each benchmark (section 5.2.1) and
//! calls the gain of uniform keys negligible (section 5.1.4). Two of its figures say that these runs do not have the
//! gain: the lines a second of Figure 16a are those that Figure 14 has with PCIe only, except at 5 B, and the 5th
//! percentiles of Figure 17b's uniform GETs are those of reads over PCIe. A curve has half of the lines cacheable instead.

use super::{
    Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Reference, Sentence, Tolerance, Variant,
};
use crate::dispatcher::Policy;
use crate::hardware::Hardware;
use crate::load::corpus::{Corpus, THETA, Workload};
use crate::load::mix::{Mix, Popularity};
use crate::load::run::Outcome;
use crate::pipeline::Hazard;

pub(super) const UNIFORM: Item = Item {
    name: "fig16a",
    title: "YCSB throughput, uniform",
    paper: include_str!("../../papers/fig16a-ycsb-uniform.csv"),
    x: Axis::logarithmic("key and value (B)"),
    y: Axis::linear("operations (million/s)"),
    tolerance: Tolerance::Relative(0.10),
    no_evidence: &[
        NoEvidence::input(
            "That uniform keys do not use the NIC's DRAM, and that a PUT writes back every bucket, was chosen for these \
             GETs and PUTs.",
            |series, x| ["100% GET", "100% PUT"].contains(&series) && [10.0, 15.0, 62.0].contains(&x),
        ),
        MIXES_ON_THE_WIRE,
        NoEvidence::calculation("Harmonic means of the GETs and PUTs, which Figure 14 gave the model.", |series, _| {
            is_mix(series)
        }),
    ],
    open: &[],
    run: |context| measure(context, &UNIFORM, false),
};

pub(super) const LONG_TAIL: Item = Item {
    name: "fig16b",
    title: "YCSB throughput, long-tail",
    paper: include_str!("../../papers/fig16b-ycsb-longtail.csv"),
    x: Axis::logarithmic("key and value (B)"),
    y: Axis::linear("operations (million/s)"),
    tolerance: Tolerance::Relative(0.10),
    no_evidence: &[
        NoEvidence::input("That a PUT writes back every bucket was tried on these PUTs too.", |series, x| {
            series == "100% PUT" && [10.0, 15.0].contains(&x)
        }),
        MIXES_ON_THE_WIRE,
    ],
    open: &[],
    run: |context| measure(context, &LONG_TAIL, true),
};

/// The mixes whose bound is the network.
const MIXES_ON_THE_WIRE: NoEvidence = NoEvidence::input(
    "That the request of a GET is as long as that of a PUT was chosen for these mixes.",
    |series, x| is_mix(series) && x >= 62.0,
);

fn is_mix(series: &str) -> bool {
    ["5% PUT", "50% PUT"].contains(&series)
}

pub(super) const LINE_BITS: u32 = 18;
const COUNT: u32 = 15_000;

/// Returns GETs and PUTs with this share of PUTs, executed as on the board.
pub(super) fn workload(is_long: bool, put_share: f64, ratio: f64, seed: u64) -> Workload {
    Workload {
        policy: Policy::Dispatch(ratio),
        popularity: if is_long { Popularity::LongTail { theta: THETA } } else { Popularity::Uniform },
        mix: Mix::of_puts(put_share),
        hot_share: 0.0,
        hazard: Hazard::Waits,
        whole_pairs: true,
        count: COUNT,
        seed,
    }
}

/// Returns the same workload with its load dispatch ratio: the best for a long tail, 0 for uniform keys.
pub(super) fn tuned(corpus: &mut Corpus, is_long: bool, put_share: f64, seed: u64) -> Workload {
    let untuned = workload(is_long, put_share, 0.0, seed);
    if !is_long {
        return untuned;
    }
    Workload { policy: Policy::Dispatch(corpus.tuned(&untuned).ratio), ..untuned }
}

/// The smallest pairs that are not in the index.
const NOT_INLINE: u32 = 62;

/// Measurements with other assumptions.
#[derive(Default)]
struct Readings {
    /// A PUT writes only what it changes. For pairs in the index, with PUTs only.
    changed_only: Vec<Point>,
    /// Half of the lines are cacheable. For uniform keys, with GETs or PUTs only.
    cached: Vec<Point>,
    /// A GET's request has only the key.
    keys_alone: Vec<Point>,
    /// The gain of a long tail.
    gains: Vec<Gain>,
}

/// The gain of a long tail over uniform keys, for pairs in the index.
struct Gain {
    /// Our rate over that of the same operations on uniform keys.
    ours: f64,
    /// The same quotient of the paper's two figures.
    paper: f64,
    /// Share of the lines that the NIC's DRAM held.
    near: f64,
    /// Share of the operations that got their value from another operation.
    forwarded: f64,
    /// The same share if keys are as popular as in the scaled corpus alone, with the resulting rate.
    forwarded_in_scaled: f64,
    in_scaled: Point,
}

impl Readings {
    fn of_memory(&mut self, corpus: &mut Corpus, workload: &Workload, outcome: &Outcome, reference: &Reference) {
        let inline = reference.x() < f64::from(NOT_INLINE);
        let put_share = workload.mix.put;
        let is_long = workload.popularity != Popularity::Uniform;
        if !is_long && put_share != 0.5 {
            let cached = Workload { policy: Policy::Dispatch(0.5), ..*workload };
            self.cached.push(Point::new(reference, corpus.run(&cached).carried_mops));
        }
        if put_share == 1.0 && inline {
            corpus.hardware.processor.writes_read_buckets = false;
            self.changed_only.push(Point::new(reference, corpus.run(workload).carried_mops));
            corpus.hardware.processor.writes_read_buckets = true;
        }
        if is_long && inline && put_share >= 0.5 {
            let uniform = Workload { policy: Policy::Dispatch(0.0), popularity: Popularity::Uniform, ..*workload };
            let popularity = Popularity::Among { keys: f64::from(corpus.key_count), theta: THETA };
            let in_scaled = corpus.run(&Workload { popularity, ..*workload });
            self.gains.push(Gain {
                ours: outcome.carried_mops / corpus.run(&uniform).carried_mops,
                paper: reference.y / published_uniform(reference),
                near: outcome.near_share,
                forwarded: outcome.forwarded_share,
                forwarded_in_scaled: in_scaled.forwarded_share,
                in_scaled: Point::new(reference, in_scaled.carried_mops),
            });
        }
    }
}

/// Returns the point of Figure 16a that corresponds to one of Figure 16b.
fn published_uniform(reference: &Reference) -> f64 {
    let points = UNIFORM.references();
    let same = |point: &&Reference| point.series == reference.series && point.x == reference.x;
    points.iter().find(same).expect("both figures have the same points").y
}

/// The gain over a uniform rate according to the text's own figures: 60 % hits of 60 % of the lines, and 15 % of the
/// operations merged.
const GAIN_OF_THE_TEXT: f64 = 1.0 / ((1.0 - 0.6 * 0.6) * (1.0 - 0.15));

fn measure(context: &mut Context<'_>, item: &Item, is_long: bool) -> Findings {
    let hardware = Hardware::kv_direct();
    let references = item.references();
    let mut points: Vec<Option<Point>> = references.iter().map(|_| None).collect();
    let mut done = 0;
    let mut faster = Vec::new();
    let mut runs = Runs::default();
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
            runs.count(reference, &workload, &outcome);
            if kv_bytes >= NOT_INLINE && put_share == 0.5 {
                let alone = corpus.run(&Workload { whole_pairs: false, ..workload });
                readings.keys_alone.push(Point::new(reference, alone.carried_mops));
            }
            if kv_bytes <= NOT_INLINE {
                readings.of_memory(&mut corpus, &workload, &outcome, reference);
            }
        }
        if is_long && kv_bytes < NOT_INLINE {
            // Section 6.3.1 asks if a network of 200 Gb/s needs no batching.
            let workload = tuned(&mut corpus, is_long, 0.0, context.seed);
            let network = &mut corpus.hardware.network;
            network.bandwidth_gb_per_s = 25.0;
            network.packet_max_bytes = network.header_bytes + network.operation_header_bytes + kv_bytes;
            faster.push((f64::from(kv_bytes), corpus.run(&workload).carried_mops));
        }
    }
    let points: Vec<Point> = points.into_iter().flatten().collect();
    let mut sentences = sentences(item, &points, &readings, is_long);
    sentences.extend(runs.sentences());
    if let Some((_, mops)) = faster.first() {
        let unbatched = Figures::new("GETs of 5 B with 200 Gb/s and one operation a packet, million/s (section 6.3.1)");
        sentences.push(unbatched.beside("", *mops, 180.0).sentence());
    }
    Findings {
        curves: curves(&references, &readings, is_long, faster),
        sentences,
        points,
        setting: format!(
            "2^{LINE_BITS} lines of 64 B instead of 2^30, half full, keys of 4 B, {COUNT} operations a point. Every \
             request is as long as a PUT's, because the figure has one network bound from 62 B on for every mix. A PUT \
             writes back every bucket that it reads, because the paper's PUTs have twice the accesses of its GETs. {}",
            if is_long {
                "Load dispatch ratios are the middle of those within 3 % of the fastest."
            } else {
                "Every line uses PCIe."
            }
        ),
    }
}

/// The figures of the runs.
struct Runs {
    ratios: Figures,
    lines: Figures,
    near: Figures,
    hits: Figures,
    forwarded: Figures,
}

impl Default for Runs {
    fn default() -> Self {
        Runs {
            ratios: Figures::new("Load dispatch ratios"),
            lines: Figures::new("Lines of an operation"),
            near: Figures::new("Lines that the NIC's DRAM had, in %"),
            hits: Figures::new("Of those that it may hold, in %"),
            forwarded: Figures::new("Operations that were forwarded, in %"),
        }
    }
}

impl Runs {
    fn count(&mut self, reference: &Reference, workload: &Workload, outcome: &Outcome) {
        let name = format!("{} {} B", reference.series, reference.x);
        if let Policy::Dispatch(ratio) = workload.policy {
            append(&mut self.ratios, &name, ratio);
        }
        if workload.mix.put == 0.0 || workload.mix.put == 1.0 {
            append(&mut self.lines, &name, outcome.lines);
            append(&mut self.near, &name, 100.0 * outcome.near_share);
            append(&mut self.hits, &name, 100.0 * outcome.hit_rate);
            append(&mut self.forwarded, &name, 100.0 * outcome.forwarded_share);
        }
    }

    fn sentences(self) -> [Sentence; 5] {
        [self.ratios, self.lines, self.near, self.hits, self.forwarded].map(Sentence::Figures)
    }
}

fn append(figures: &mut Figures, name: &str, ours: f64) {
    *figures = std::mem::replace(figures, Figures::new("")).with(name, ours);
}

/// Returns the curves beside the points: closed forms, the runs with other assumptions, and for a long tail those with a
/// faster network.
fn curves(references: &[Reference], readings: &Readings, is_long: bool, faster: Vec<(f64, f64)>) -> Vec<Curve> {
    let network = |kv: f64| 5e3 / ((kv + 1.0) * 1496.0 / 1408.0);
    let bound = [62.0, 126.0, 254.0].map(|kv| (kv, network(kv))).to_vec();
    let curve = |series: &str, what: &str, points: &[Point]| {
        let of_series = points.iter().filter(|point| point.series == series);
        Curve::beside(series, what, of_series.map(|point| (point.x, point.ours)).collect())
    };
    let mut curves = vec![
        Curve::new("closed form: 5 GB/s / ((size + 1 B) × 1496/1408), the network", bound),
        curve("100% PUT", "only what changes is written", &readings.changed_only),
        curve("50% PUT", "a GET's request is its key alone", &readings.keys_alone),
    ];
    if is_long {
        for series in ["50% PUT", "100% PUT"] {
            let inline = |point: &&Reference| point.series == series && point.x() < f64::from(NOT_INLINE);
            let gained = |point: &Reference| (point.x(), published_uniform(point) * GAIN_OF_THE_TEXT);
            let name =
                "closed form: Figure 16a / ((1 - 0.6 × 0.6) × (1 - 0.15)), the text's hits and merged operations";
            curves.push(Curve::beside(series, name, references.iter().filter(inline).map(gained).collect()));
        }
        let in_scaled: Vec<Point> = readings.gains.iter().map(|gain| gain.in_scaled.clone()).collect();
        curves.push(curve("100% PUT", "popular as in the scaled corpus", &in_scaled));
        curves.push(Curve::beside("100% GET", "200 Gb/s, one operation a packet", faster));
    } else {
        for series in ["100% GET", "100% PUT"] {
            curves.push(curve(series, "half of the lines cacheable", &readings.cached));
        }
    }
    curves
}

/// Returns the effects of the assumptions on the series, and what the paper's text says about them.
fn sentences(item: &Item, points: &[Point], readings: &Readings, is_long: bool) -> Vec<Sentence> {
    let variant = |name: &str, series: &str, of: &[Point], inline: bool| {
        let is_meant = |point: &&Point| point.series == series && (point.x < f64::from(NOT_INLINE)) == inline;
        let of_variant: Vec<(f64, f64)> = of.iter().filter(is_meant).map(|point| (point.x, point.ours)).collect();
        Sentence::Variant(Variant::of(name, item, points, series, &of_variant))
    };
    let (mixes, puts) = ("50% PUT", "100% PUT");
    let mut sentences = vec![
        Sentence::fact(
            "The paper's mixes are harmonic means of its GETs and PUTs. Its PUTs have twice the accesses of a GET, \
             2.21 and 2.49 at 10 and 15 B. In its Figure 11b and in our store they have one access more than a GET.",
        ),
        variant("if a PUT writes only what it changes (pairs in the index)", puts, &readings.changed_only, true),
        variant(
            "if requests of GETs are as short as their keys (62 B and more), so that a mix uses both directions of \
             the wire",
            mixes,
            &readings.keys_alone,
            false,
        ),
    ];
    if is_long {
        let in_scaled: Vec<Point> = readings.gains.iter().map(|gain| gain.in_scaled.clone()).collect();
        let name = "if keys are as popular as among those of the scaled corpus (pairs in the index)";
        sentences.extend([mixes, puts].map(|series| variant(name, series, &in_scaled, true)));
        sentences.extend(long_tail(&readings.gains));
    } else {
        sentences.push(Sentence::fact(
            "The paper's Figure 14 gains 6 % from the NIC's DRAM with a uniform load, and its text calls this \
             negligible. Figure 16a does not have the gain.",
        ));
        let name = "if half of the lines are cacheable";
        for (series, inline) in [("100% GET", true), (puts, true), ("100% GET", false), (puts, false)] {
            let pairs = if inline { "pairs in the index" } else { "62 B" };
            sentences.push(variant(&format!("{name} ({pairs})"), series, &readings.cached, inline));
        }
    }
    sentences
}

/// Returns our gains of a long tail over uniform keys, for pairs in the index, beside the paper's, with the shares that
/// cause them.
fn long_tail(gains: &[Gain]) -> [Sentence; 3] {
    let mut gained = Figures::new("Gain of a long tail over uniform keys");
    let mut shares = Figures::new("Causes of these gains, in % of the lines or of the operations");
    for gain in gains {
        let name = gain.in_scaled.name();
        gained = gained.beside(format!("{name} B"), gain.ours, gain.paper);
        shares = shares.with(format!("{name} B in the NIC's DRAM"), 100.0 * gain.near);
        shares = shares.with("forwarded", 100.0 * gain.forwarded);
        shares =
            shares.with("forwarded with keys as among those of the scaled corpus", 100.0 * gain.forwarded_in_scaled);
    }
    let text = format!(
        "The figures of the text give a gain of {GAIN_OF_THE_TEXT:.2}: 60 % hits of 60 % of the lines, 15 % merged. A \
         PUT has just read the lines that it writes back, so the NIC's DRAM has all of them that it may hold."
    );
    [gained.sentence(), shares.sentence(), Sentence::fact(text)]
}

/// Returns the share of PUTs in a series' name: `5% PUT`, `100% GET`.
fn put_share(series: &str) -> f64 {
    let percent: f64 = series.split('%').next().and_then(|number| number.parse().ok()).expect("it begins with a share");
    if series.ends_with("GET") { 1.0 - percent / 100.0 } else { percent / 100.0 }
}
