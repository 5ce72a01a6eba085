//! Table 3, the rows of KV-Direct with one NIC: what the long tail reaches, and how long an operation takes.
//!
//! What runs: GETs and PUTs of 5 B, the size that the printed PUT rate belongs to, as in Figures 16b and 17a: with batching,
//! because the network does not carry the printed rates without it (Figure 15a). The other
//! systems' rows are others' measurements. Power is not ours to measure: a model consumes none.

use super::corpus::Corpus;
use super::fig16::{LINE_BITS, tuned};
use super::fig17::latency;
use super::{Axis, Context, Findings, Item, Point, Tolerance};
use crate::hardware::Hardware;

pub(super) const ITEM: Item = Item {
    name: "table3",
    title: "KV-Direct with one NIC: million operations a second (0), average delay in µs (1)",
    paper: include_str!("../../papers/table3-system-comparison.csv"),
    x: Axis::linear("0: million/s, 1: µs"),
    y: Axis::logarithmic("million/s, µs"),
    tolerance: Tolerance::Relative(0.20),
    run: measure,
};

fn measure(context: &mut Context<'_>) -> Findings {
    let hardware = Hardware::kv_direct();
    let mut sides = Vec::new();
    for (kv_bytes, done) in [(5, 0), (10, 1)] {
        let mut corpus = Corpus::load(&hardware, LINE_BITS, kv_bytes, context.seed);
        for put_share in [0.0, 1.0] {
            context.progress(done, 2);
            let workload = tuned(&mut corpus, true, put_share, context.seed);
            sides.push(latency(&mut corpus, &workload, true, kv_bytes));
        }
    }
    let point = |reference: &super::Reference| {
        let side = &sides[usize::from(reference.series.starts_with("PUT"))];
        Point::new(reference, if reference.x() == 0.0 { side.mops } else { side.mean })
    };
    Findings {
        points: ITEM.references().iter().map(point).collect(),
        curves: Vec::new(),
        setting: format!(
            "Long tail, pairs of 5 B, as Figures 16b and 17a with batching. The table's caption says 10 B, where we have \
             {:.0} and {:.0} million/s, {:.2} and {:.2} µs; its 114 million PUTs are Figure 16b's at 5 B. Power is not ours \
             to measure, and the rows with ten NICs are not in this item.",
            sides[2].mops, sides[3].mops, sides[2].mean, sides[3].mean
        ),
        explanation: "The table's delays, 4.3 and 5.4 µs, lie between the bars of its own Figure 17 for the long tail: 3.8 to 4.1 and \
            4.7 to 5.1 µs without batching, 4.8 to 5.1 and 5.7 to 6.2 µs with it. Its rates need batching, so ours have it."
            .to_owned(),
    }
}
