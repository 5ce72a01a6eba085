//! Table 5: the best load dispatch ratio, by r (NIC DRAM / PCIe throughput) and k (NIC / host memory).
//!
//! The paper's table is a calculation, and so is ours: [`crate::balance`]. A further curve is the ratio at which both
//! sides are equally busy with the measured hit rates of the model's direct-mapped cache.

use super::hit_rates::HitRates;
use super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use crate::balance::{Balance, KEYS_OF_TABLES, solve};

pub(super) const ITEM: Item = Item {
    name: "table5",
    title: "Optimal load dispatch ratio, long tail",
    paper: include_str!("../../papers/table5-load-dispatch-ratio.csv"),
    x: Axis::logarithmic("k = NIC memory / host memory"),
    y: Axis::linear("load dispatch ratio l"),
    tolerance: Tolerance::Absolute(0.02),
    no_evidence: &[NoEvidence::calculation("Both are the same solver's.", |_, _| true)],
    open: &[],
    run: measure,
};

/// Returns r of a series.
pub(super) fn throughput_ratio(series: &str) -> f64 {
    series.strip_prefix("r=").and_then(|number| number.parse().ok()).expect("the series are named r=0.5 to r=8")
}

/// Returns the different items, in the order of their first occurrence.
pub(super) fn each<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

fn measure(context: &mut Context<'_>) -> Findings {
    let references = ITEM.references();
    let of =
        |keys: f64, series: &str, k: f64| Balance { throughput_ratio: throughput_ratio(series), memory_ratio: k, keys };
    let point = |reference: &super::Reference| {
        Point::new(reference, of(KEYS_OF_TABLES, &reference.series, reference.x()).dispatch_ratio())
    };
    let points: Vec<Point> = references.iter().map(point).collect();
    let series = each(points.iter().map(|point| point.series.as_str()));
    let ks = each(points.iter().map(|point| point.x));
    let hit_rates = HitRates::measure(&ks, context);
    let curve = |series: &str| {
        let at = |k: f64| solve(throughput_ratio(series), 1e-3, |l| hit_rates.at(k, l));
        Curve::beside(series, "hit rates of the running cache", ks.iter().map(|k| (*k, at(*k))).collect())
    };
    let corpus =
        |reference: &super::Reference| (of(1e9, &reference.series, reference.x()).dispatch_ratio() - reference.y).abs();
    let with_a_billion = references.iter().map(corpus).fold(0.0, f64::max);
    let curves: Vec<Curve> = series.iter().map(|series| curve(series)).collect();
    let wider = curves.iter().flat_map(|curve| &curve.points).zip(&points);
    let distance = wider.map(|(running, point)| running.1 - point.ours).fold(0.0, |most: f64, one| most.max(one.abs()));
    Findings {
        points,
        setting: format!(
            "Ours is the solver with n = 10^10; with the text's billion keys it would differ by up to \
             {with_a_billion:.3}. Dashed: the same balance with measured hit rates. {}",
            hit_rates.setting()
        ),
        sentences: vec![
            Figures::new("Largest distance of l with the hit rates of the running cache from the solver's")
                .with("", distance)
                .sentence(),
            Sentence::fact(
                "The running cache is direct-mapped, so popular lines replace each other. The formula's always holds \
                 the most popular lines.",
            ),
        ],
        curves,
    }
}
