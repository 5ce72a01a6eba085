//! Figure 11: the cloud-storage workload over eRPC-Masstree.
//!
//! Run: SCANs of three items and insertions in several mixes, on the card and on cores. Masstree's rates follow from the
//! ratios at both ends, so these are inputs; the times of our cores were fitted to the ratios at 0, 50 and 100 % reads.

use super::super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Tolerance};
use super::masstree::Masstree;
use super::{LITTLE_WARMING, Load, mixed_setting, with_cache};
use crate::honeycomb::mixed::{Mix, MixedOutcome};
use crate::honeycomb::tree::Reading;

pub(in super::super) const ITEM: Item = Item {
    name: "honeycomb-fig11",
    title: "Honeycomb over Masstree, cloud-storage workload",
    paper: include_str!("../../../papers/honeycomb-fig11.csv"),
    x: Axis::linear("reads (%)"),
    y: Axis::linear("rate over Masstree's"),
    tolerance: Tolerance::Relative(0.10),
    no_evidence: &[
        NoEvidence::input("Masstree's rates follow from the first and the last.", |series, x| {
            series == THROUGHPUT && [0.0, 50.0, 100.0].contains(&x)
        }),
        NoEvidence::calculation("They follow from Masstree's rates and from ours.", |series, x| {
            series == THROUGHPUT && (51.0..100.0).contains(&x)
        }),
        NoEvidence::calculation("The throughput over watts that are given.", |series, _| series == PER_WATT),
    ],
    open: &[],
    run: measure,
};

const THROUGHPUT: &str = "throughput";
const PER_WATT: &str = "throughput per watt";
/// Watts of the server with Masstree (section 6.3).
const MASSTREE_WATTS: f64 = 127.0;
/// Shares of reads, in percent.
const SHARES: [f64; 7] = [0.0, 25.0, 50.0, 70.0, 80.0, 90.0, 100.0];

fn measure(context: &mut Context<'_>) -> Findings {
    let load = Load::warmed(context, Reading::Scan(3), LITTLE_WARMING);
    let runs: Vec<(f64, MixedOutcome)> = SHARES
        .iter()
        .enumerate()
        .map(|(done, reads)| {
            context.progress(done + 1, SHARES.len());
            let mix = Mix { reads: reads / 100.0, has_versions: true };
            (*reads, load.run_mixed(mix, with_cache(load.card.cache.size_mib)))
        })
        .collect();
    let [first, last] = [runs[0], runs[runs.len() - 1]].map(|(_, outcome)| outcome.mops);
    let masstree = Masstree::from_ours(first, last);
    let of_masstree = |reads: f64| masstree.rate(reads / 100.0, masstree.scan_of_three_us);
    let gains: Vec<(f64, f64)> = runs.iter().map(|(reads, run)| (*reads, run.mops / of_masstree(*reads))).collect();
    let gain = |reads: f64| gains.iter().find(|gain| gain.0 == reads).expect("the share was run").1;
    let watts = MASSTREE_WATTS / load.card.card.watts.unwrap_or(MASSTREE_WATTS);
    let published = ITEM.references().into_iter().map(|reference| {
        let gain = gain(reference.x());
        Point::new(&reference, if reference.series == PER_WATT { gain * watts } else { gain })
    });
    let mut points: Vec<Point> = published.collect();
    points.extend([90.0, 100.0].map(|reads| Point::further(THROUGHPUT, reads, 2.3, gain(reads))));
    Findings {
        points,
        curves: vec![Curve::beside(THROUGHPUT, "all mixes", gains.clone())],
        setting: format!(
            "{} Masstree's rates follow from the ratios with no reads and with reads alone. Watts are those of section 6.3.",
            mixed_setting(&load)
        ),
        sentences: vec![
            runs.iter()
                .fold(Figures::new("Ours"), |figures, (reads, run)| {
                    figures
                        .with(format!("{reads} % reads, Mreq/s"), run.mops)
                        .with("cores busy", run.cores)
                        .with("share of the reads on cores", run.reads_by_cores)
                        .with("PCIe busy", run.memory.pcie)
                })
                .sentence(),
            SHARES
                .iter()
                .fold(Figures::new("Masstree's by the two ratios"), |figures, reads| {
                    figures.with(format!("{reads} % reads, Mreq/s"), of_masstree(*reads))
                })
                .sentence(),
        ],
    }
}
