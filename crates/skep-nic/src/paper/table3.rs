//! Table 3, the rows of KV-Direct: the rate and the delay of one NIC with the long tail, and the rate of ten NICs.
//!
//! Run: GETs and PUTs of 5 B, the size of the printed PUT rate, as in Figures 16b and 17a. They are batched,
//! because otherwise the network does not carry the printed rates (Figure 15a). The operations of the ten NICs are
//! uniform, because the printed totals are ten times the rates of Figure 16a. The rows of other systems are
//! measurements of others. Power is not measured, because a model consumes none.

use super::corpus::Corpus;
use super::fig15::added_by_batching_us;
use super::fig16::{LINE_BITS, tuned};
use super::fig17::latency;
use super::server_corpus::{ServerCorpus, ServerWorkload};
use super::{Axis, Context, Figures, Findings, Item, Point, Sentence, Tolerance};
use crate::hardware::{Hardware, Server};
use crate::time::Time;

pub(super) const ITEM: Item = Item {
    name: "table3",
    title: "KV-Direct with one NIC and with ten: million operations a second (0), average delay in µs (1)",
    paper: include_str!("../../papers/table3-system-comparison.csv"),
    x: Axis::linear("0: million/s, 1: µs"),
    y: Axis::logarithmic("million/s, µs"),
    tolerance: RATES,
    no_evidence: &[],
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
            sides.push(latency(&mut corpus, &workload, true, kv_bytes));
        }
    }
    context.progress(2, 3);
    let ten = ten_nics(context.seed);
    let batching = added_by_batching_us(&hardware, 5);
    let point = |reference: &super::Reference| {
        if reference.series.ends_with("ten NICs") {
            return Point::new(reference, ten[usize::from(reference.series.starts_with("PUT"))]);
        }
        let side = &sides[usize::from(reference.series.starts_with("PUT"))];
        if reference.x() == 0.0 {
            return Point::new(reference, side.mops);
        }
        Point::new(reference, side.mean).within(DELAYS)
    };
    Findings {
        points: ITEM.references().iter().map(point).collect(),
        curves: Vec::new(),
        setting: format!(
            "Long tail, pairs of 5 B, as Figures 16b and 17a with batching. The table's caption says 10 B, but its 114 \
             million PUTs are Figure 16b's at 5 B. Ten NICs: uniform pairs of 5 B, as Figure 16a, each NIC with both \
             links and l = {TEN_RATIO}. The printed 1220 and 610 are ten times that figure's 122.7 and 61.3, although \
             the caption says long-tail and section 6.2 one link each. Figure 20 is measured as in section 6.2. Power \
             cannot be measured on a model."
        ),
        sentences: vec![
            Sentence::fact(
                "The table's delays, 4.3 and 5.4 µs, are between the bars of its own Figure 17 for the long tail: 3.8 \
                 to 4.1 and 4.7 to 5.1 µs without batching, 4.8 to 5.1 and 5.7 to 6.2 µs with it. Its rates need \
                 batching, so ours are batched.",
            ),
            Figures::new("Delays, µs")
                .beside("added by batching at 5 B", batching, 1.00)
                .with("GET without batching", sides[0].mean - batching)
                .with("PUT without batching", sides[1].mean - batching)
                .with("GET of 10 B with batching", sides[2].mean)
                .with("PUT of 10 B with batching", sides[3].mean)
                .sentence(),
            Figures::new("Rates of 10 B, million/s").with("GET", sides[2].mops).with("PUT", sides[3].mops).sentence(),
        ],
    }
}

/// Load dispatch ratio of the ten NICs. A uniform load gains only from lines in the NIC's DRAM, so the ratio is little
/// above the DRAM's share of the memory.
const TEN_RATIO: f64 = 0.1;

/// Returns GETs and PUTs of ten of the boards of Figure 16a, in millions a second.
fn ten_nics(seed: u64) -> [f64; 2] {
    let mut hardware = Hardware::kv_direct();
    hardware.server = Server { nics: 10, memory_nodes: 2 };
    let mut corpus = ServerCorpus::load(&hardware, 15, 5, seed);
    [0.0, 1.0].map(|put_share| {
        let interval = Time::ZERO;
        let workload = ServerWorkload { ratio: TEN_RATIO, is_long: false, put_share, interval, count: 12_000, seed };
        corpus.run(&hardware, &workload).mops
    })
}
