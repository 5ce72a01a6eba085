//! Figure 15: the gain of turning MVCC off.
//!
//! Run: insertions alone, and beside SCANs of three items, with versions and without.

use super::super::{Axis, Context, Curve, Figures, Findings, Item, Point, Sentence, Tolerance};
use super::{LITTLE_WARMING, Load, mixed_setting, with_cache};
use crate::honeycomb::mixed::{Mix, MixedOutcome};
use crate::honeycomb::tree::{Reading, Tree};

pub(in super::super) const ITEM: Item = Item {
    name: "honeycomb-fig15",
    title: "Gain of turning Honeycomb's MVCC off",
    paper: include_str!("../../../papers/honeycomb-fig15.csv"),
    x: Axis::linear("reads (%)"),
    y: Axis::linear("rate without MVCC over that with it"),
    tolerance: Tolerance::Relative(0.03),
    no_evidence: &[],
    open: &[],
    run: measure,
};

const LIMITED: &str = "limited by insertions (at most)";
const READ_HEAVY: &str = "read-heavy";
/// Shares of reads, in percent.
const SHARES: [f64; 5] = [0.0, 50.0, 90.0, 95.0, 100.0];
/// Times of a message for which the gain of insertions alone is shown, as multiples of the card's.
const MESSAGES: [f64; 4] = [0.0, 1.0, 2.0, 4.0];
const LIMIT: f64 = 1.14;

fn measure(context: &mut Context<'_>) -> Findings {
    let load = Load::warmed(context, Reading::Scan(3), LITTLE_WARMING);
    let mut done = 0;
    let mut pair = |load: &Load, reads: f64| {
        let outcome = |has_versions: bool| {
            load.run_mixed(Mix { reads: reads / 100.0, has_versions }, with_cache(load.card.cache.size_mib))
        };
        done += 1;
        context.progress(done, SHARES.len() + MESSAGES.len());
        (outcome(true), outcome(false))
    };
    let runs = SHARES.map(|reads| (reads, pair(&load, reads)));
    let by_message = MESSAGES.map(|factor| {
        let mut load = load.clone();
        load.card.host.message_ns *= factor;
        let (on, off) = pair(&load, 0.0);
        (load.card.host.message_ns, off.mops / on.mops)
    });
    let gains: Vec<(f64, f64)> = runs.iter().map(|(reads, (on, off))| (*reads, off.mops / on.mops)).collect();
    Findings {
        points: points(&gains),
        curves: vec![Curve::new("rate without MVCC over that with it", gains)],
        setting: format!(
            "{} At most 1.14 is judged with no reads and with half, and more than 1 with no reads; read-heavy with 90 % reads \
             and more.",
            mixed_setting(&load)
        ),
        sentences: sentences(&load, &runs, &by_message),
    }
}

fn points(gains: &[(f64, f64)]) -> Vec<Point> {
    let gain = |reads: f64| gains.iter().find(|gain| gain.0 == reads).expect("the share was run").1;
    let published = ITEM.references().into_iter().map(|reference| {
        let point = Point::new(&reference, gain(reference.x()));
        if point.series == LIMITED { point.within(Tolerance::AtMost) } else { point }
    });
    let mut points: Vec<Point> = published.collect();
    points.push(Point::further(LIMITED, 50.0, LIMIT, gain(50.0)).within(Tolerance::AtMost));
    points.extend([95.0, 100.0].map(|reads| Point::further(READ_HEAVY, reads, 1.0, gain(reads))));
    points.push(Point::further("a gain with insertions", 0.0, 1.0, gain(0.0)).within(Tolerance::StatedAtLeast));
    points
}

fn sentences(load: &Load, runs: &[(f64, (MixedOutcome, MixedOutcome))], by_message: &[(f64, f64)]) -> Vec<Sentence> {
    let (_, (on, _)) = runs[0];
    vec![
        insertions(super::tree()),
        Figures::new("Insertions alone, with MVCC")
            .with("M/s", on.mops)
            .with("µs from a core to the reply", on.insertion_us)
            .with("share of a core's time that waits for smaller versions", on.waiting)
            .sentence(),
        runs.iter()
            .fold(Figures::new("With MVCC"), |figures, (reads, (on, _))| {
                figures
                    .with(format!("{reads} % reads, Mreq/s"), on.mops)
                    .with("cores busy", on.cores)
                    .with("share of the reads on cores", on.reads_by_cores)
                    .with("PCIe busy", on.memory.pcie)
            })
            .sentence(),
        by_message
            .iter()
            .fold(Figures::new("Gain of insertions alone by the time of a message"), |figures, (ns, gain)| {
                figures.with(format!("{ns} ns"), *gain)
            })
            .sentence(),
        Sentence::fact(format!(
            "The paper has no times of a core. A message takes {} ns, and a line {} ns, by assumption.",
            load.card.host.message_ns, load.card.host.line_ns
        )),
    ]
}

/// Returns a sentence about the mean insertion.
fn insertions(tree: &Tree) -> Sentence {
    let insertions = tree.insertions();
    let mean = |of: &dyn Fn(usize) -> f64| (0..insertions.len()).map(of).sum::<f64>() / insertions.len() as f64;
    Figures::new("A mean insertion")
        .with("lines read", mean(&|index| insertions[index].read_lines.into()))
        .with("lines written", mean(&|index| insertions[index].written_lines.into()))
        .with("entries of the page table", mean(&|index| insertions[index].lids.len() as f64))
        .sentence()
}
