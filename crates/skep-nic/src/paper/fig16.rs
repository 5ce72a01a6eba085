//! Figure 16: YCSB's reads and updates by size of the pairs, uniform and long-tail.
//!
//! What runs: clients that always have more, in full packets; the pipeline with its reservation station; the store's own
//! GETs and PUTs over PCIe and the NIC's DRAM; and answers in packets of what waits when the wire is free.

use super::corpus::{Corpus, Outcome, Workload};
use super::{Axis, Context, Curve, Findings, Item, Point, Tolerance};
use crate::dispatcher::Policy;
use crate::hardware::Hardware;
use crate::pipeline::Hazard;

pub(super) const UNIFORM: Item = Item {
    name: "fig16a",
    title: "YCSB throughput, uniform",
    paper: include_str!("../../papers/fig16a-ycsb-uniform.csv"),
    x: Axis::logarithmic("key and value (B)"),
    y: Axis::linear("operations (million/s)"),
    tolerance: Tolerance::Relative(0.10),
    run: |context| measure(context, &UNIFORM, false),
};

pub(super) const LONG_TAIL: Item = Item {
    name: "fig16b",
    title: "YCSB throughput, long-tail",
    paper: include_str!("../../papers/fig16b-ycsb-longtail.csv"),
    x: Axis::logarithmic("key and value (B)"),
    y: Axis::linear("operations (million/s)"),
    tolerance: Tolerance::Relative(0.10),
    run: |context| measure(context, &LONG_TAIL, true),
};

pub(super) const LINE_BITS: u32 = 18;
const COUNT: u32 = 20_000;

/// Load dispatch ratios. The paper tunes one for each point (section 5.2.1); these are chosen once, by reasoning: a uniform
/// load gains only what lies in the NIC's DRAM, so a share little above its size, and half of the lines for a long tail,
/// as Figure 14 has it.
pub(super) fn ratio(is_long: bool) -> f64 {
    if is_long { 0.5 } else { 0.1 }
}

/// GETs and PUTs of one share, the board's way.
pub(super) fn workload(corpus: &Corpus, is_long: bool, put_share: f64, seed: u64) -> Workload {
    Workload {
        policy: Policy::Dispatch(ratio(is_long)),
        long_tail: is_long.then_some(f64::from(corpus.key_count)),
        put_share,
        hazard: Hazard::Waits,
        count: COUNT,
        seed,
    }
}

fn measure(context: &mut Context<'_>, item: &Item, is_long: bool) -> Findings {
    let hardware = Hardware::kv_direct();
    let references = item.references();
    let mut ours = vec![0.0; references.len()];
    let mut done = 0;
    let (mut accesses, mut faster) = (Vec::new(), Vec::new());
    for kv_bytes in [5, 10, 15, 62, 126, 254] {
        let mut corpus = Corpus::load(&hardware, LINE_BITS, kv_bytes, context.seed);
        for (place, reference) in references.iter().enumerate() {
            if reference.x() != f64::from(kv_bytes) {
                continue;
            }
            context.progress(done, references.len());
            done += 1;
            let put_share = put_share(&reference.series);
            let outcome = corpus.run(&workload(&corpus, is_long, put_share, context.seed));
            ours[place] = outcome.carried_mops;
            if put_share == 0.0 || put_share == 1.0 {
                accesses.push(describe(kv_bytes, put_share, &outcome));
            }
        }
        if is_long {
            let network = &mut corpus.hardware.network;
            network.bandwidth_gb_per_s = 25.0;
            network.packet_max_bytes = network.header_bytes + network.operation_header_bytes + kv_bytes;
            let outcome = corpus.run(&workload(&corpus, is_long, 0.0, context.seed));
            faster.push((f64::from(kv_bytes), outcome.carried_mops));
        }
    }
    let points: Vec<Point> =
        references.iter().zip(&ours).map(|(reference, ours)| Point::new(reference, *ours)).collect();
    let text = accesses.join("; ");
    let network = |kv: f64| 5e3 / ((kv + 1.0) * 1496.0 / 1408.0);
    let bound = [62.0, 126.0, 254.0].map(|kv| (kv, network(kv))).to_vec();
    let mut curves = vec![Curve::new("closed form: 5 GB/s / ((size + 1 B) × 1496/1408), the network", bound)];
    let mut unbatched = String::new();
    if is_long {
        // Section 6.3.1 asks whether a network of 200 Gb/s needs no batching.
        unbatched = format!(
            " With 200 Gb/s and one operation a packet, GETs of 5 B reach {:.0} million/s (section 6.3.1).",
            faster[0].1
        );
        curves.push(Curve::beside("100% GET", "200 Gb/s, one operation a packet", faster));
    }
    Findings {
        points,
        curves,
        setting: format!(
            "2^{LINE_BITS} lines of 64 B instead of 2^30, half full, keys of 4 B, l = {}, {COUNT} operations a point. Before \
             the network: {text}.{unbatched}",
            ratio(is_long)
        ),
        explanation: "PUTs of 10 and 15 B: Figure 16 lies on twice the accesses of a GET (2.21 and 2.49), Figure 11b on one \
            more than a GET; the store measures one more, because a chain is read and one of its lines written. Mixes: the \
            paper's are harmonic means of GETs and PUTs, as if the two met in one place; over full duplex links reads and \
            writes pass each other, so a mix is faster than that. Network: the paper charges each operation its whole pair \
            in one direction; in ours a PUT carries it to the NIC and a GET's value comes back without its key, so a mix \
            has both directions. What is said of the mixes and of the network is inferred, not measured."
            .to_owned(),
    }
}

fn describe(kv_bytes: u32, put_share: f64, outcome: &Outcome) -> String {
    format!(
        "{} of {kv_bytes} B {:.0} million/s, {:.2} lines each, of which the NIC's DRAM had {:.0} % ({:.0} % of those it may \
         hold), {:.0} % of operations forwarded",
        if put_share == 0.0 { "GETs" } else { "PUTs" },
        outcome.mops,
        outcome.lines,
        100.0 * outcome.near_share,
        100.0 * outcome.hit_rate,
        100.0 * outcome.forwarded_share,
    )
}

/// The share of PUTs in a series' name: `5% PUT`, `100% GET`.
fn put_share(series: &str) -> f64 {
    let percent: f64 = series.split('%').next().and_then(|number| number.parse().ok()).expect("it begins with a share");
    if series.ends_with("GET") { 1.0 - percent / 100.0 } else { percent / 100.0 }
}
