//! Table 3, the rows of KV-Direct: the rate and the delay of one NIC with the long tail, and the rate of ten NICs.
//!
//! Run: GETs and PUTs of 5 B, the size of the printed PUT rate, as in Figures 16b and 17a. They are batched,
//! because otherwise the network does not carry the printed rates (Figure 15a). Ten NICs are those of Figure 20. The
//! rows of other systems are measurements of others. Power is not measured, because a model consumes none.

use super::fig15::added_by_batching_us;
use super::fig16::{LINE_BITS, tuned};
use super::fig17::latency;
use super::fig20::ten_nics;
use super::{Axis, Context, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use crate::hardware::Hardware;
use crate::load::corpus::Corpus;

pub(super) const ITEM: Item = Item {
    name: "table3",
    title: "KV-Direct with one NIC and with ten: million operations a second (0), average delay in µs (1)",
    paper: include_str!("../../papers/table3-system-comparison.csv"),
    x: Axis::linear("0: million/s, 1: µs"),
    y: Axis::logarithmic("million/s, µs"),
    tolerance: RATES,
    no_evidence: &[NoEvidence::calculation("Ten NICs of Figure 20.", |series, _| series.ends_with("ten NICs"))],
    open: &["GET", "PUT"],
    run: measure,
};

/// Tolerance of the rates.
const RATES: Tolerance = Tolerance::Relative(0.08);
/// Tolerance of the delays.
const DELAYS: Tolerance = Tolerance::Relative(0.20);

fn measure(context: &mut Context<'_>) -> Findings {
    let hardware = Hardware::kv_direct();
    let mut sides = Vec::new();
    for (kv_bytes, done) in [(5, 0), (10, 1)] {
        let mut corpus = Corpus::load(&hardware, LINE_BITS, kv_bytes, context.seed);
        for put_share in [0.0, 1.0] {
            context.progress(done, 3);
            let workload = tuned(&mut corpus, true, put_share, context.seed);
            sides.push((latency(&mut corpus, &workload, kv_bytes), added_by_batching_us(&hardware, kv_bytes)));
        }
    }
    context.progress(2, 3);
    let ten = ten_nics(context.seed);
    let point = |reference: &super::Reference| {
        if reference.series.ends_with("ten NICs") {
            return Point::new(reference, ten[usize::from(reference.series.starts_with("PUT"))]);
        }
        let (side, batching) = &sides[usize::from(reference.series.starts_with("PUT"))];
        if reference.x() == 0.0 {
            return Point::new(reference, side.mops);
        }
        Point::new(reference, side.mean + batching).within(DELAYS)
    };
    Findings {
        points: ITEM.references().iter().map(point).collect(),
        curves: Vec::new(),
        setting: "Long tail, pairs of 5 B, as Figures 16b and 17a with batching. The table's caption says 10 B, but its 114 \
             million PUTs are Figure 16b's at 5 B. Ten NICs: Figure 20, long-tail and one link each, as the caption and \
             section 6.2 say. The printed 1220 and 610 are also ten times the 122.7 and 61.3 of Figure 16a. Power \
             cannot be measured on a model."
            .to_owned(),
        sentences: vec![
            Sentence::fact(
                "The table's delays, 4.3 and 5.4 µs, are between the bars of its own Figure 17 for the long tail: 3.8 \
                 to 4.1 and 4.7 to 5.1 µs without batching, 4.8 to 5.1 and 5.7 to 6.2 µs with it. Its rates need \
                 batching, so ours are batched.",
            ),
            Figures::new("Delays, µs")
                .beside("added by batching at 5 B", sides[0].1, 1.00)
                .with("GET without batching", sides[0].0.mean)
                .with("PUT without batching", sides[1].0.mean)
                .with("GET of 10 B with batching", sides[2].0.mean + sides[2].1)
                .with("PUT of 10 B with batching", sides[3].0.mean + sides[3].1)
                .sentence(),
            Figures::new("Rates of 10 B, million/s").with("GET", sides[2].0.mops).with("PUT", sides[3].0.mops).sentence(),
        ],
    }
}
