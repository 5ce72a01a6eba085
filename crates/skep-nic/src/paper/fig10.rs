//! Figure 10: how the hash index ratio is chosen. A larger ratio reduces the accesses of a GET, but also the largest
//! utilization.
//!
//! Run: for each ratio, a store that is filled with 10 B pairs until it refuses one. A second store has the
//! wanted utilization of 0.6, and its pairs are read.

use skep_store::hash::Settings;
use skep_store::hash::poisson::{mean_position, overflow_buckets};

use super::counted_store::Corpus;
use super::sentence::farthest;
use super::{Axis, Context, Curve, Figures, Findings, Item, Point, Sentence, Tolerance, Variant};

pub(super) const ITEM: Item = Item {
    name: "fig10",
    title: "Largest utilization and accesses of a GET by hash index ratio",
    paper: include_str!("../../papers/fig10-index-ratio-choice.csv"),
    x: Axis::linear("hash index ratio (%)"),
    y: Axis::linear("utilization, or memory accesses of a GET"),
    tolerance: Tolerance::Relative(0.05),
    no_evidence: &[],
    open: &["maximal memory utilization"],
    run: measure,
};

const MEMORY: u64 = 2 << 20;
const PAIR: usize = 10;
/// Inline pairs of a bucket.
const PAIRS_PER_BUCKET: u32 = 5;
/// The utilization of the drawn example.
const WANTED: f64 = 0.6;
const STEP: usize = 3;
/// Two points of the published curve, in percent, between which it seems to be straight.
const SPARSE: [f64; 2] = [5.0, 10.0];

fn measure(context: &mut Context<'_>) -> Findings {
    let references = ITEM.references();
    let mut points = Vec::new();
    let (mut utilization, mut position) = (Vec::new(), Vec::new());
    for (done, reference) in references.iter().enumerate() {
        context.progress(done, references.len());
        let ratio = reference.x() / 100.0;
        let is_utilization = reference.series.ends_with("utilization");
        let ours = if is_utilization { utilization_max(ratio, context.seed) } else { accesses(ratio, context.seed) };
        points.push(Point::new(reference, ours));
        if is_utilization {
            utilization.push((reference.x(), utilization_of_full(ratio)));
        } else {
            position.push((reference.x(), mean_position(pairs_per_bucket(ratio), PAIRS_PER_BUCKET)));
        }
    }
    // The drawn example is the last row of the file and is also at 57 %.
    utilization.pop();
    position.pop();
    // Our points at these ratios, and a straight line between them.
    let accesses_at = |percent: f64| {
        let is = |point: &&Point| point.series == "memory accesses per GET" && point.x == percent;
        points.iter().find(is).expect("the figure has it")
    };
    let [from, to] = SPARSE.map(|percent| accesses_at(percent).ours);
    let between = |percent: f64| from + (to - from) * (percent - SPARSE[0]) / (SPARSE[1] - SPARSE[0]);
    let straight = [5.0, 6.0, 7.0, 8.0, 9.0, 10.0].map(|percent| (percent, between(percent)));
    let from_form = farthest(position.iter().map(|(percent, form)| (accesses_at(*percent).ours, *form)));
    let sentences = vec![
        Figures::new("Largest distance of our accesses from the closed form, in %")
            .with("", 100.0 * from_form)
            .sentence(),
        Sentence::Variant(Variant::of(
            "if the plot has no points of its own between ratios of 5 and 10 %, but a straight line",
            &ITEM,
            &points,
            "memory accesses per GET",
            &straight,
        )),
        Sentence::fact("At a ratio of 95 % a store keeps a sixteenth of the memory for slabs, and the paper does not."),
    ];
    Findings {
        curves: vec![
            Curve::beside("memory accesses per GET", "straight between ours at 5 and 10 %", straight.to_vec()),
            Curve::beside(
                "maximal memory utilization",
                "closed form: Poisson chains fill what is not index",
                utilization,
            ),
            Curve::beside("memory accesses per GET", "closed form: Poisson", position),
        ],
        setting: format!(
            "{PAIR} B pairs in {} MiB. Every {STEP}rd pair is read, at utilization {WANTED}. Above a ratio of 57 % \
             that corpus no longer fits, but the published curve continues. There the memory is twice as large with \
             the same index, so the chains are the same. A store keeps at least a sixteenth of the memory for slabs, \
             so the largest ratio is 93.75 % here, and not 95 %.",
            MEMORY >> 20
        ),
        sentences,
        points,
    }
}

/// Returns the utilization at which a store refuses a pair.
fn utilization_max(hash_index_ratio: f64, seed: u64) -> f64 {
    let settings = Settings { memory: MEMORY, hash_index_ratio, inline_threshold: PAIR, grows: false, seed };
    let mut corpus = Corpus::new(&settings, |_| PAIR);
    assert!(!corpus.fill(MEMORY), "more pairs than bytes");
    corpus.utilization()
}

/// Returns the accesses of a GET on a corpus of the wanted utilization.
fn accesses(ratio: f64, seed: u64) -> f64 {
    let scale = if ratio > 0.57 { 2 } else { 1 };
    let settings = Settings {
        memory: MEMORY * scale,
        hash_index_ratio: ratio / scale as f64,
        inline_threshold: PAIR,
        grows: false,
        seed,
    };
    let mut corpus = Corpus::new(&settings, |_| PAIR);
    let pair_count = (WANTED * MEMORY as f64 / PAIR as f64) as u64;
    assert!(corpus.fill(pair_count), "full at {} instead of {WANTED}", corpus.utilization());
    corpus.count_gets(STEP).mean()
}

fn pairs_per_bucket(ratio: f64) -> f64 {
    64.0 * WANTED / (PAIR as f64 * ratio)
}

/// Returns the utilization at which index and overflow buckets fill the whole memory.
fn utilization_of_full(ratio: f64) -> f64 {
    let (mut low, mut high) = (0.0, 0.8);
    for _ in 0..40 {
        let utilization = f64::midpoint(low, high);
        let mean = 64.0 * utilization / (PAIR as f64 * ratio);
        let fits = ratio * (1.0 + overflow_buckets(mean, PAIRS_PER_BUCKET)) <= 1.0;
        *(if fits { &mut low } else { &mut high }) = utilization;
    }
    low
}
