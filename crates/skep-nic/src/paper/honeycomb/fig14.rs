//! Figure 14: the effect of the size of keys and values on SCANs of one item.
//!
//! Run: the card alone, on trees of pairs of several sizes. The text says that the rate drops as keys grow, that the depth
//! of the tree does not change, and that the card fetches larger segments.

use std::sync::OnceLock;

use super::super::{Axis, Context, Curve, Figures, Findings, Item, Point, Tolerance};
use super::{TIMED, with_cache};
use crate::honeycomb::card::HoneycombCard;
use crate::honeycomb::fetch::Fetch;
use crate::honeycomb::run::{Outcome, Run, run_recorded};
use crate::honeycomb::tree::{PairSizes, Reading, Tree};

pub(in super::super) const ITEM: Item = Item {
    name: "honeycomb-fig14",
    title: "Effect of the size of keys and values on Honeycomb's card",
    paper: include_str!("../../../papers/honeycomb-fig14.csv"),
    x: Axis::linear("bytes of a key, and of a value"),
    y: Axis::linear("Mreq/s"),
    tolerance: Tolerance::StatedAtMost,
    no_evidence: &[],
    open: &[],
    run: measure,
};

const SIZES: [usize; 4] = [8, 16, 24, 32];
/// Pairs of each tree. The card runs operations on as many copies as have the pairs of the paper's.
const PAIRS: u64 = 1_000_000;
const WARMING: usize = 4_000;

fn measure(context: &mut Context<'_>) -> Findings {
    static TREES: OnceLock<Vec<Tree>> = OnceLock::new();
    let trees =
        TREES.get_or_init(|| SIZES.map(|size| Tree::load_sized(PAIRS, PairSizes { key: size, value: size })).into());
    let card = HoneycombCard::of_the_paper();
    let runs: Vec<(f64, Outcome, f64)> = trees
        .iter()
        .zip(SIZES)
        .enumerate()
        .map(|(done, (tree, size))| {
            let recording = tree.record(Reading::Scan(1), WARMING + TIMED, context.seed);
            context.progress(done + 1, SIZES.len());
            let run = Run { timed: TIMED, seed: context.seed };
            let outcome = run_recorded(&card, tree, &recording, Fetch::Paper, with_cache(card.cache.size_mib), run);
            (size as f64, outcome, f64::from(tree.nodes()[0].level) + 1.0)
        })
        .collect();
    let mut points: Vec<Point> = runs
        .windows(2)
        .map(|two| {
            let [(_, smaller, _), (size, larger, _)] = [two[0], two[1]];
            Point::further("rate over that of the smaller size", size, 1.0, larger.mops / smaller.mops)
        })
        .collect();
    let depths = runs.iter().map(|run| run.2);
    let difference = depths.clone().fold(0.0, f64::max) - depths.fold(f64::MAX, f64::min);
    points.push(Point::further("difference of the depths", SIZES[3] as f64, 0.0, difference));
    Findings {
        points,
        curves: vec![Curve::new("SCANs of one item", runs.iter().map(|(size, run, _)| (*size, run.mops)).collect())],
        setting: format!(
            "{TIMED} SCANs of one item after {WARMING}, on copies of trees of {} million pairs whose keys and values have \
             these sizes, with all interior nodes in the cache; on the card {} alone.",
            PAIRS / 1_000_000,
            card.name
        ),
        sentences: vec![
            runs.iter()
                .fold(Figures::new("Keys and values"), |figures, (size, run, depth)| {
                    figures
                        .with(format!("{size} B: Mreq/s"), run.mops)
                        .with("bytes over PCIe and of the cache", bytes(run))
                        .with("levels", *depth)
                        .with("PCIe busy", run.memory.pcie)
                })
                .sentence(),
        ],
    }
}

/// Returns the bytes that an operation reads.
fn bytes(run: &Outcome) -> f64 {
    (run.counts.pcie.bytes + run.counts.cache_reads.bytes) as f64 / run.operations as f64
}
