//! Figure 14: accesses a second with and without the load dispatcher, l = 0.5, by the share of GETs.
//!
//! Run: independent accesses of one line over both links, with a warm cache. GETs are reads and PUTs are writes.
//! The result is the mean over several placements of the popular lines, because a run changes by percents if the first
//! of them are cacheable.

use super::accesses::{Accesses, Outcome};
use super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use crate::balance::Balance;
use crate::dispatcher::{Extent, Policy};
use crate::hardware::Hardware;
use crate::popularity::Popularity;

pub(super) const ITEM: Item = Item {
    name: "fig14",
    title: "Memory accesses with the DRAM load dispatcher",
    paper: include_str!("../../papers/fig14-load-dispatch-throughput.csv"),
    x: Axis::linear("GET (%)"),
    y: Axis::linear("accesses (million/s)"),
    tolerance: Tolerance::Relative(0.10),
    no_evidence: &[NoEvidence::input(
        "The time that the request of a read takes the DMA engine was fitted to this point.",
        |series, get| series == "baseline" && get == 50.0,
    )],
    open: &[],
    run: measure,
};

const RATIO: f64 = 0.5;
const LINE_BITS: u32 = 18;
const PLACEMENTS: u64 = 5;

/// Means over placements.
struct Mean {
    mops: f64,
    near_share: f64,
    hit_rate: f64,
}

fn measure(context: &mut Context<'_>) -> Findings {
    let hardware = Hardware::kv_direct();
    let references = ITEM.references();
    let curves = [
        ("plain cache (l = 1), long-tail", Policy::Dispatch(1.0)),
        ("simple partitioning, long-tail", Policy::Partition(hardware.memory_ratio())),
    ];
    let get_shares = [50.0, 95.0, 100.0];
    let steps = references.len() + curves.len() * get_shares.len();
    let mut findings = Findings::default();
    let mut long_tail = None;
    for (done, reference) in references.iter().enumerate() {
        context.progress(done, steps);
        let (policy, is_long) = match reference.series.as_str() {
            "baseline" => (Policy::Dispatch(0.0), false),
            "uniform" => (Policy::Dispatch(RATIO), false),
            _ => (Policy::Dispatch(RATIO), true),
        };
        let mean = mean(&hardware, policy, is_long, reference.x() / 100.0, context.seed);
        findings.points.push(Point::new(reference, mean.mops));
        if is_long && reference.x() == 100.0 {
            long_tail = Some(mean);
        }
    }
    for (number, (name, policy)) in curves.into_iter().enumerate() {
        let mut points = Vec::new();
        for (index, get_share) in get_shares.into_iter().enumerate() {
            context.progress(references.len() + number * get_shares.len() + index, steps);
            points.push((get_share, mean(&hardware, policy, true, get_share / 100.0, context.seed).mops));
        }
        findings.curves.push(Curve::new(name, points));
    }
    let tail = long_tail.expect("the paper has the point");
    // The billion keys of the text.
    let formula = Balance { throughput_ratio: 1.0, memory_ratio: hardware.memory_ratio(), keys: 1e9 }.hit_rate(RATIO);
    findings.setting = format!(
        "2^{LINE_BITS} lines of 64 B instead of 2^30, NIC DRAM in the board's proportion, and the mean of \
         {PLACEMENTS} placements of the popular lines. The time that the request of a read takes the DMA engine was \
         fitted to the baseline at 50 % GET. The paper's baseline equals the mean of the two rates of Figure 3a."
    );
    findings.sentences = vec![
        Figures::new("Long tail, GETs only, in %")
            .with("hits among the cacheable reads", 100.0 * tail.hit_rate)
            .beside("of all reads", 100.0 * tail.near_share, 30.0)
            .with("hits by the paper's formula, h = ln(kn) / ln(ln)", 100.0 * formula)
            .with("of all reads by the formula", 100.0 * RATIO * formula)
            .sentence(),
        Sentence::fact("The formula describes a cache that always holds the most popular lines."),
    ];
    findings
}

fn mean(hardware: &Hardware, policy: Policy, is_long: bool, read_share: f64, seed: u64) -> Mean {
    let extent = Extent::scaled(hardware, 1 << LINE_BITS);
    let outcomes: Vec<Outcome> = (0..PLACEMENTS)
        .map(|placement| {
            let seed = seed.wrapping_mul(PLACEMENTS).wrapping_add(placement);
            let popularity =
                if is_long { Popularity::long_tail(LINE_BITS, seed) } else { Popularity::uniform(LINE_BITS) };
            let accesses = Accesses {
                hardware,
                extent,
                policy,
                popularity: &popularity,
                read_share,
                count: 12_000,
                warm_per_line: 2.0,
                seed,
            };
            accesses.run()
        })
        .collect();
    let mean = |figure: fn(&Outcome) -> f64| outcomes.iter().map(figure).sum::<f64>() / outcomes.len() as f64;
    Mean {
        mops: mean(|outcome| outcome.mops),
        near_share: mean(Outcome::near_share),
        hit_rate: mean(Outcome::hit_rate),
    }
}
