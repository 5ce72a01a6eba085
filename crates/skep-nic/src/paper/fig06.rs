//! Figure 6: memory accesses of a GET by utilization, for four inline thresholds.
//!
//! The paper publishes neither its mix of pair sizes nor the hash index ratio. Run: a store with one ratio for
//! all curves, and a mix of pairs. The share of pairs above each threshold is that at the left end of its curve.

use skep_store::hash::Settings;

use super::counted_store::Corpus;
use super::{Axis, Context, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};

pub(super) const ITEM: Item = Item {
    name: "fig06",
    title: "Memory accesses of a GET by inline threshold",
    paper: include_str!("../../papers/fig06-inline-threshold.csv"),
    x: Axis::linear("memory utilization (%)"),
    y: Axis::linear("memory accesses"),
    tolerance: Tolerance::Relative(0.1),
    no_evidence: &[NoEvidence::input(
        "The shares of the pairs above each threshold are the left ends of these curves.",
        |_, utilization| utilization == 5.0,
    )],
    open: &[],
    run: measure,
};

const MEMORY: u64 = 8 << 20;
const STEP: usize = 5;
/// Pair sizes, with the number of pairs of each size among 1000: 48.7 % above 10 B, 23.6 % above 15 B, 11.3 % above 20
/// B, 5.5 % above 25 B.
const MIX: [(usize, u64); 5] = [(10, 513), (15, 251), (20, 123), (25, 58), (30, 55)];

/// Index over memory. The paper does not state it. This ratio fits all four curves best.
const HASH_INDEX_RATIO: f64 = 0.35;
/// Factor by which the memory is larger than in the calculated utilization. The extra memory is slabs only: the index
/// is that of `MEMORY`.
const SCALE: u64 = 2;

fn measure(context: &mut Context<'_>) -> Findings {
    let references = ITEM.references();
    let mean_size = MIX.iter().map(|(size, weight)| *size as f64 * *weight as f64).sum::<f64>() / 1000.0;
    let mut points: Vec<Point> = Vec::new();
    let mut corpus: Option<Corpus> = None;
    for (done, reference) in references.iter().enumerate() {
        context.progress(done, references.len());
        if points.last().is_none_or(|last| last.series != reference.series) {
            let inline_threshold = reference.series.trim_end_matches('B').parse().expect("a series is a threshold");
            let hash_index_ratio = HASH_INDEX_RATIO / SCALE as f64;
            let memory = MEMORY * SCALE;
            let settings = Settings { memory, hash_index_ratio, inline_threshold, grows: false, seed: context.seed };
            corpus = Some(Corpus::new(&settings, pair_size));
        }
        let corpus = corpus.as_mut().expect("a series has a store");
        assert!(
            corpus.fill((reference.x() / 100.0 * MEMORY as f64 / mean_size) as u64),
            "{} is full",
            reference.series
        );
        points.push(Point::new(reference, corpus.count_gets(STEP).mean()));
    }
    let utilizations: Vec<f64> =
        points.iter().filter(|point| point.series == points[0].series).map(|point| point.x).collect();
    let best = |of: fn(&Point) -> f64, x: f64| {
        points.iter().filter(|point| point.x == x).min_by(|a, b| of(a).total_cmp(&of(b))).map(|point| &point.series)
    };
    let same = utilizations.iter().filter(|x| best(|point| point.paper, **x) == best(|point| point.ours, **x)).count();
    let setting = format!(
        "Pairs of 10, 15, 20, 25 and 30 B in shares of 51.3, 25.1, 12.3, 5.8 and 5.5 %. So the shares above each \
         threshold are those at the left ends of the curves. The hash index ratio is {HASH_INDEX_RATIO} of {} MiB. \
         Both are assumptions, because the paper publishes neither. The slab memory is larger, because with 15 B \
         pairs in slabs of 32 B some thresholds could not reach 55 %. The chains depend only on the index. Every \
         {STEP}th pair is read.",
        MEMORY >> 20
    );
    let sentences = vec![
        Sentence::fact(
            "The paper publishes neither the mix nor the hash index ratio. One ratio was chosen for all four curves.",
        ),
        Figures::new("Utilizations at which the best threshold is the published one")
            .with("", same as f64)
            .with("of", utilizations.len() as f64)
            .sentence(),
    ];
    Findings { points, setting, sentences, ..Findings::default() }
}

/// Returns the size of a pair by its number, as if drawn from the mix.
fn pair_size(number: u64) -> usize {
    let mut draw = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    draw = (draw * 1000) >> 32;
    for (size, weight) in MIX {
        if draw < weight {
            return size;
        }
        draw -= weight;
    }
    unreachable!("the weights add to 1000")
}
