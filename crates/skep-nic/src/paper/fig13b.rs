//! Figure 13b: the long tail by the share of PUTs, with and without the reservation station.
//!
//! Run: GETs and PUTs of pairs of 10 B. One run has the station. In the other, the decoder stalls when two
//! operations on one key meet and one of them is a PUT. The figure belongs to the measurements of single parts (section
//! 5.1). Its rate at 100 % PUT is the clock rate, which exceeds the rate of the board's memory in Figure 16b. So the
//! memory here is never the bound: it has 16 links with the board's latency, and twice the operations in flight, because a
//! PUT holds its slot until its write is confirmed. The board itself is shown as a separate curve. Keys are as popular as among the billion of section 6.3.1, where the first key has 4 % of all operations. In
//! a scaled corpus it would have 7 %.
//!
//! Two stricter decoders test which rule could explain the paper's curve: see [`Hazard::Drains`] and
//! [`Hazard::InOrder`].

use super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use crate::dispatcher::Policy;
use crate::hardware::Hardware;
use crate::load::corpus::{Corpus, THETA, Workload};
use crate::load::mix::{Mix, Popularity};
use crate::pipeline::Hazard;

pub(super) const ITEM: Item = Item {
    name: "fig13b",
    title: "The long tail with and without out-of-order execution",
    paper: include_str!("../../papers/fig13b-ooo-longtail.csv"),
    x: Axis::linear("PUT (%)"),
    y: Axis::logarithmic("operations (million/s)"),
    tolerance: Tolerance::Relative(0.10),
    no_evidence: &[NoEvidence::input(
        "The memory is never the bound here, so the rate is the clock's, which the model was given.",
        |series, _| series == "with OoO",
    )],
    open: &[],
    run: measure,
};

const LINE_BITS: u32 = 17;
const KV_BYTES: u32 = 10;
/// Load dispatch ratio of the unmodified board.
const RATIO: f64 = 0.5;
/// Keys of the paper's corpus.
const KEYS: f64 = 1e9;
/// Number of links. With this number, no operation waits for a link.
const LINKS: u32 = 16;
const PUT_PERCENTS: [f64; 5] = [0.0, 1.0, 10.0, 50.0, 100.0];

fn measure(context: &mut Context<'_>) -> Findings {
    let board = Hardware::kv_direct();
    let mut hardware = board.clone();
    hardware.name += "-many-links";
    hardware.pcie.links = LINKS;
    hardware.processor.operations_in_flight *= 2;
    let seed = context.seed;
    let references = ITEM.references();
    let steps = references.len() + 5 * PUT_PERCENTS.len();
    let mut done = 0;
    let mut run = |corpus: &mut Corpus, put_percent: f64, hazard: Hazard, long_tail: f64, ratio: f64| {
        context.progress(done, steps);
        done += 1;
        let workload = Workload {
            policy: Policy::Dispatch(ratio),
            popularity: Popularity::Among { keys: long_tail, theta: THETA },
            mix: Mix::of_puts(put_percent / 100.0),
            hot_share: 0.0,
            hazard,
            whole_pairs: true,
            count: if hazard == Hazard::Waits { 40_000 } else { 20_000 },
            seed,
        };
        corpus.run(&workload)
    };
    let mut corpus = Corpus::load(&hardware, LINE_BITS, KV_BYTES, seed);
    let mut findings = Findings::default();
    let mut merged = 0.0_f64;
    for reference in &references {
        let hazard = if reference.series == "with OoO" { Hazard::Waits } else { Hazard::Stalls };
        let outcome = run(&mut corpus, reference.x(), hazard, KEYS, 0.0);
        findings.points.push(Point::new(reference, outcome.mops));
        merged = merged.max(outcome.forwarded_share);
    }
    let keys = f64::from(corpus.key_count);
    let mut curve = |corpus: &mut Corpus, name: &str, hazard: Hazard, long_tail: f64, ratio: f64| {
        let series = if hazard == Hazard::Waits { "with OoO" } else { "without OoO" };
        // Without PUTs, GETs never wait for each other: the paper's rate there is the clock's.
        let percents = PUT_PERCENTS.iter().skip(usize::from(hazard == Hazard::InOrder));
        let points = percents.map(|percent| (*percent, run(corpus, *percent, hazard, long_tail, ratio).mops));
        Curve::beside(series, name, points.collect())
    };
    let mut curves = vec![
        curve(&mut corpus, "every PUT alone in the pipeline", Hazard::Drains, KEYS, 0.0),
        curve(
            &mut corpus,
            "in order, GETs of one key stall too, PUTs wait for their writes",
            Hazard::InOrder,
            KEYS,
            0.0,
        ),
        curve(&mut corpus, "popular as among the keys of the scaled corpus", Hazard::Stalls, keys, 0.0),
    ];
    let mut corpus = Corpus::load(&board, LINE_BITS, KV_BYTES, seed);
    curves.push(curve(&mut corpus, "the board as it is", Hazard::Waits, keys, RATIO));
    curves.push(curve(&mut corpus, "the board as it is", Hazard::Stalls, KEYS, RATIO));
    findings.curves = curves;
    findings.setting = setting(&hardware, keys);
    findings.sentences = sentences(&findings, merged);
    findings
}

/// Returns the conditions of the run.
fn setting(hardware: &Hardware, keys: f64) -> String {
    format!(
        "{keys} pairs of {KV_BYTES} B in 2^{LINE_BITS} lines, with {LINKS} links and {} operations in flight, \
         without NIC DRAM and network. The unmodified board has l = {RATIO}. The paper's 180 million PUTs a second \
         would be 360 million accesses, so its figure shows only the engine. Without the station, an operation waits \
         for one in flight on its key if one of the two is a PUT, as in the text.",
        hardware.processor.operations_in_flight,
    )
}

/// Compares the stalling curve with those of other rules.
fn sentences(findings: &Findings, merged: f64) -> Vec<Sentence> {
    let [drains, in_order, scaled, whole, whole_stalls] = &findings.curves[..] else {
        unreachable!("these are the five")
    };
    let of = |name: &str, curve: &Curve| Sentence::variant(name, &ITEM, &findings.points, "without OoO", curve);
    vec![
        of("if every PUT is alone in the pipeline until its write is confirmed", drains),
        of("if all operations of one key stall, in order, until writes are confirmed", in_order),
        of("if keys are as popular as among those of the scaled corpus", scaled),
        Sentence::fact(
            "By the text's rule, only PUTs stall. The second rule contradicts the paper's Figure 13a, where an atomic \
             holds its key for one access.",
        ),
        Figures::new("Operations that the station forwards at most, in %").beside("", 100.0 * merged, 15.0).sentence(),
        Figures::new("The unmodified board, million/s")
            .with("100 % PUT with the station", last(whole))
            .with("0 % PUT without it, where all GETs of one key access memory", whole_stalls.points[0].1)
            .sentence(),
    ]
}

/// Returns the rate of a curve's last point.
fn last(curve: &Curve) -> f64 {
    curve.points.last().map_or(0.0, |point| point.1)
}
