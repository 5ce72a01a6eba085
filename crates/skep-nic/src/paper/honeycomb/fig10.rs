//! Figures 10 and 13: YCSB, and SCANs of 24 items, over eRPC-Masstree.
//!
//! Run: GETs, SCANs of 24 and of 50 items, alone or with 5 % insertions, on the card and on cores. Masstree's times follow
//! from Figure 11, and from the ratios for GETs and for SCANs of 24 items, which are inputs.

use super::super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Tolerance};
use super::masstree::{GETS, Masstree, SCANS_OF_24};
use super::{LITTLE_WARMING, Load, mixed_setting, with_cache};
use crate::honeycomb::mixed::Mix;
use crate::honeycomb::tree::Reading;

pub(in super::super) const ITEM: Item = Item {
    name: "honeycomb-fig10",
    title: "Honeycomb over Masstree, YCSB and longer SCANs",
    paper: include_str!("../../../papers/honeycomb-fig10.csv"),
    x: Axis::linear("reads (%)"),
    y: Axis::linear("rate over Masstree's"),
    tolerance: Tolerance::Relative(0.10),
    no_evidence: &[
        NoEvidence::input("Masstree's times of a GET and of a SCAN of 24 items follow from them.", |series, _| {
            series == C || series == SCANS
        }),
        NoEvidence::calculation("They follow from Masstree's times and from our rates.", |series, _| {
            series == B_AND_D || series == E
        }),
    ],
    open: &[],
    run: measure,
};

const C: &str = "YCSB C";
const B_AND_D: &str = "YCSB B and D";
const E: &str = "YCSB E (at most)";
const SCANS: &str = "SCANs of 24 items";
/// Items of the longer scans: those of Figure 13, and the mean of YCSB E.
const LONGER: [u32; 5] = [8, 16, 24, 50, 100];

fn measure(context: &mut Context<'_>) -> Findings {
    let mut done = 0;
    let mut rate = |reading: Reading, reads: f64| {
        let load = Load::warmed(context, reading, LITTLE_WARMING);
        let run = load.run_mixed(Mix { reads, has_versions: true }, with_cache(load.card.cache.size_mib));
        done += 1;
        context.progress(done, 5 + LONGER.len());
        run.mops
    };
    let [insertions, three] = [0.0, 1.0].map(|reads| rate(Reading::Scan(3), reads));
    let [c, b_and_d] = [1.0, 0.95].map(|reads| rate(Reading::Scan(1), reads));
    let e = rate(Reading::Scan(50), 0.95);
    let longer = LONGER.map(|items| (f64::from(items), rate(Reading::Scan(items), 1.0)));
    let masstree = Masstree::from_ours(insertions, three);
    let of_24 = longer[2].1;
    // The time of a SCAN of Masstree is a constant and a time for each item.
    let item_us = (SCANS_OF_24 / of_24 - masstree.scan_of_three_us) / 21.0;
    let scan_us = |items: f64| masstree.scan_of_three_us + (items - 3.0) * item_us;
    let get_us = GETS / c;
    let ours = |series: &str| match series {
        C => (c * get_us, ITEM.tolerance),
        B_AND_D => (b_and_d / masstree.rate(0.95, get_us), ITEM.tolerance),
        E => (e / masstree.rate(0.95, scan_us(50.5)), Tolerance::AtMost),
        SCANS => (of_24 * scan_us(24.0), ITEM.tolerance),
        other => unreachable!("{other} is in no row"),
    };
    let points = ITEM.references().into_iter().map(|reference| {
        let (ours, tolerance) = ours(&reference.series);
        Point::new(&reference, ours).within(tolerance)
    });
    let gains = [(3.0, three)].into_iter().chain(longer).map(|(items, rate)| (items, rate * scan_us(items)));
    let load = Load::warmed(context, Reading::Scan(1), LITTLE_WARMING);
    Findings {
        points: points.collect(),
        curves: vec![Curve::new("SCANs alone, over the number of items instead", gains.clone().collect())],
        setting: format!(
            "{} The card executes a GET as a SCAN of one item. YCSB E has SCANs of 1 to 100 items, and ours have 50. \
             Masstree's times of an insertion and of a SCAN of three items are those of honeycomb-fig11; of a SCAN, a \
             constant and a time for each item.",
            mixed_setting(&load)
        ),
        sentences: vec![
            Figures::new("Ours, Mreq/s")
                .with("YCSB C", c)
                .with("YCSB B and D", b_and_d)
                .with("YCSB E", e)
                .with("insertions", insertions)
                .with("SCANs of 3 items", three)
                .sentence(),
            longer
                .iter()
                .fold(Figures::new("SCANs alone, Mreq/s"), |figures, (items, rate)| {
                    figures.with(format!("{items} items"), *rate)
                })
                .sentence(),
            gains
                .fold(Figures::new("Over Masstree, by the number of items"), |figures, (items, gain)| {
                    figures.with(format!("{items}"), gain)
                })
                .sentence(),
            Figures::new("Masstree's times by the ratios, in µs of all cores")
                .with("GET", get_us)
                .with("insertion", masstree.insertion_us)
                .with("SCAN of three items", masstree.scan_of_three_us)
                .with("each further item", item_us)
                .sentence(),
        ],
    }
}
