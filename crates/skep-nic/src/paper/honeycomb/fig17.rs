//! Figure 17: the effect of log blocks on SCANs of one item.
//!
//! Run: the same operations on the same tree, with its log blocks and as if its leaves had none.

use super::super::{Axis, Context, Figures, Findings, Item, Point, Tolerance};
use super::{Load, setting, with_cache};
use crate::honeycomb::fetch::Fetch;
use crate::honeycomb::tree::Reading;

pub(in super::super) const ITEM: Item = Item {
    name: "honeycomb-fig17",
    title: "Effect of Honeycomb's log blocks on its SCANs",
    paper: include_str!("../../../papers/honeycomb-fig17.csv"),
    x: Axis::linear("log block (B)"),
    y: Axis::linear("SCAN throughput over no log block"),
    tolerance: Tolerance::Relative(0.05),
    no_evidence: &[],
    open: &[],
    run: measure,
};

fn measure(context: &mut Context<'_>) -> Findings {
    let load = Load::of(context, Reading::Scan(1));
    let mut done = 0;
    let [with, without] = [Fetch::Paper, Fetch::WithoutLog].map(|fetch| {
        let outcome = load.run(fetch, with_cache(load.card.cache.size_mib));
        done += 1;
        context.progress(done, 2);
        outcome
    });
    Findings {
        points: ITEM.references().iter().map(|reference| Point::new(reference, with.mops / without.mops)).collect(),
        curves: Vec::new(),
        setting: format!(
            "{} Without log blocks, the leaves have the same sorted blocks. The card runs alone; the paper says so of its \
             Figure 16 only.",
            setting(&load)
        ),
        sentences: vec![
            Figures::new("Mreq/s").with("with log blocks", with.mops).with("without", without.mops).sentence(),
        ],
    }
}
