//! Figure 20: throughput of several NICs in one server.
//!
//! Run: section 6.2. Each NIC has one link, a region of the host's memory, and a part of the keys, divided by
//! their hash. The clients draw keys of a long tail, with 256 operations in flight for each NIC, without regard to the
//! owners of the keys.

use super::server_corpus::{ServerCorpus, ServerOutcome, ServerWorkload, hottest};
use super::{Axis, Context, Curve, Findings, Item, Point, Tolerance};
use crate::hardware::Hardware;
use crate::time::Time;

pub(super) const ITEM: Item = Item {
    name: "fig20",
    title: "Throughput of several NICs in one server",
    paper: include_str!("../../papers/fig20-multi-nic.csv"),
    x: Axis::linear("NICs"),
    y: Axis::linear("operations (million/s)"),
    tolerance: Tolerance::Relative(0.15),
    run: measure,
};

const KV_BYTES: u32 = 5;
const LINE_BITS: u32 = 15;
const COUNT: u32 = 12_000;
/// Load dispatch ratio, as for the long tail of Figure 16.
const RATIO: f64 = 0.5;
/// At this ratio the busiest NIC's clock is the bound.
const HIGH_RATIO: f64 = 0.8;

/// Returns a server with this many NICs of section 6.2.
fn server(nics: u32) -> Hardware {
    let mut hardware = Hardware::kv_direct_ten_nics();
    hardware.server.nics = nics;
    hardware
}

fn measure(context: &mut Context<'_>) -> Findings {
    let counts = [2, 4, 6, 8, 10];
    let seed = context.seed;
    let interval = Time::ZERO;
    let workload =
        |ratio, is_long, put_share| ServerWorkload { ratio, is_long, put_share, interval, count: COUNT, seed };
    let (mut gets, mut puts, mut high, mut uniform) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut others = Vec::new();
    for (done, nics) in counts.into_iter().enumerate() {
        context.progress(done, counts.len());
        let mut hardware = server(nics);
        let mut corpus = ServerCorpus::load(&hardware, LINE_BITS, KV_BYTES, seed);
        gets.push(corpus.run(&hardware, &workload(RATIO, true, 0.0)));
        puts.push(corpus.run(&hardware, &workload(RATIO, true, 1.0)));
        high.push(corpus.run(&hardware, &workload(HIGH_RATIO, true, 0.0)));
        uniform.push(corpus.run(&hardware, &workload(HIGH_RATIO, false, 0.0)));
        if nics == 10 {
            let gets = workload(HIGH_RATIO, true, 0.0);
            hardware.host_dram.bandwidth_gb_per_s *= 1e3;
            others.push(corpus.run(&hardware, &gets));
            let mut hardware = server(nics);
            hardware.processor.clock_mhz *= 2.0;
            others.push(corpus.run(&hardware, &gets));
        }
    }
    let point = |reference: &super::Reference| {
        let index = counts.iter().position(|nics| f64::from(*nics) == reference.x()).expect("2, 4, … 10 NICs");
        let runs = if reference.series == "GET" { &gets } else { &puts };
        Point::new(reference, runs[index].mops)
    };
    let curve = |what: &str, runs: &[ServerOutcome]| {
        Curve::beside(
            "GET",
            what,
            counts.iter().map(|nics| f64::from(*nics)).zip(runs.iter().map(|run| run.mops)).collect(),
        )
    };
    Findings {
        points: ITEM.references().iter().map(point).collect(),
        curves: vec![
            curve(&format!("l = {HIGH_RATIO}"), &high),
            curve(&format!("uniform, l = {HIGH_RATIO}"), &uniform),
        ],
        setting: setting(&gets[4], seed),
        explanation: explanation(&high, &others, &uniform),
    }
}

/// Returns the conditions of the run, with the figures of ten NICs.
fn setting(last: &ServerOutcome, seed: u64) -> String {
    let ten = server(10);
    let [mean, least, most] = hottest(&ten, KV_BYTES, seed);
    format!(
        "Long tail, pairs of {KV_BYTES} B, half full, l = {RATIO} as in Figure 16. Each NIC has {COUNT} \
         operations, and the second half of them is counted. Regions are of {} GiB (not in the paper: ten of them \
         fill its server), scaled to 2^{LINE_BITS} lines, with NIC DRAM in proportion. The first thousand keys \
         have the shares that they have in a corpus of full size. Of ten NICs the busiest gets {:.2} times the \
         average (paper: 1.5). Over 20 ways to divide the keys, it is {mean:.2} on average, and {least:.2} to \
         {most:.2}. Its additional operations are on popular keys, and {:.0} % of its GETs are forwarded, {:.0} % \
         of all. The NICs' DRAM serves {:.0} % of the lines.",
        ten.host_dram.size_gib,
        last.busiest.over_average,
        100.0 * last.busiest.forwarded,
        100.0 * last.forwarded,
        100.0 * last.near_share,
    )
}

/// Explains why the paper's GETs fall: by the runs in which the clock of the busiest NIC is the bound, those with another
/// bound removed, and those of uniform keys.
fn explanation(high: &[ServerOutcome], others: &[ServerOutcome], uniform: &[ServerOutcome]) -> String {
    let busy = &high[4];
    format!(
        "Between 2 and 10 NICs, the paper's GETs fall from 139.5 to 122.2 million/s a NIC, and its PUTs do not. \
         The model shows this where the memory of a NIC allows enough GETs that the clock of the busiest NIC \
         becomes the bound. With l = {HIGH_RATIO}, it reaches {:.1} million/s a NIC with 2, {:.1} with 6, and \
         {:.1} with 10. The busiest of the 10 decodes in {:.0} % of its cycles, while the clients' operations \
         wait for it and the others are idle. The same run reaches {:.1} with a host memory of a thousand times \
         the bandwidth, and {:.1} with a clock of twice the rate. So neither the shared memory nor a PCIe lane is \
         the bound, but the clock, and PUTs are too slow to reach it. This is measured on the model. For the \
         paper's server it is inferred: 180 / 1222 is a share of 1.47 times the average. With l = {RATIO} the \
         memory is the bound of all NICs except the busiest. So small numbers of NICs are slower than the \
         paper's, which tuned l for each point and does not give its values. Uniform GETs have no popular keys \
         and cannot reach the figure with one link: {:.1} million/s a NIC.",
        high[0].mops / 2.0,
        high[2].mops / 6.0,
        busy.mops / 10.0,
        100.0 * busy.busiest.decoder,
        others[0].mops / 10.0,
        others[1].mops / 10.0,
        uniform[4].mops / 10.0,
    )
}
