//! Table 6: throughput with load dispatch over that of partitioning the keys, by r and k.
//!
//! The paper's table is a calculation, and so is ours: [`crate::balance`], as printed. There are two further curves.
//! The first is the result of the same formulas if PCIe has to serve the misses. The second is the result of the
//! running model. Its NIC has a DRAM of r times the rate of PCIe and k times the size of the host's memory. The keys
//! have a Zipf distribution. The model runs once dispatched with the l of Table 5, and once partitioned.

use super::accesses::Accesses;
use super::table5::{each, throughput_ratio};
use super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use crate::balance::{Balance, KEYS_OF_TABLES};
use crate::dispatcher::{Extent, LINE_BYTES, Policy};
use crate::hardware::Hardware;
use crate::popularity::Popularity;

pub(super) const ITEM: Item = Item {
    name: "table6",
    title: "Load dispatch over simple partitioning, long tail",
    paper: include_str!("../../papers/table6-load-dispatch-speedup.csv"),
    x: Axis::logarithmic("k = NIC memory / host memory"),
    y: Axis::linear("throughput ratio"),
    tolerance: Tolerance::Relative(0.03),
    no_evidence: &[NoEvidence::calculation("Both are the same solver's.", |_, _| true)],
    open: &[],
    run: measure,
};

const LINE_BITS: u32 = 16;

fn measure(context: &mut Context<'_>) -> Findings {
    let references = ITEM.references();
    let board = |series: &str, k: f64| Balance {
        throughput_ratio: throughput_ratio(series),
        memory_ratio: k,
        keys: KEYS_OF_TABLES,
    };
    let point =
        |reference: &super::Reference| Point::new(reference, board(&reference.series, reference.x()).gain_as_printed());
    let points: Vec<Point> = references.iter().map(point).collect();
    let series = each(points.iter().map(|point| point.series.as_str()));
    let ks = each(points.iter().map(|point| point.x));
    let pcie = mops(&hardware(None), 1.0, Policy::Dispatch(0.0), context.seed);
    let mut curves = Vec::new();
    let mut lowest = f64::INFINITY;
    for (number, series) in series.iter().enumerate() {
        let possible = ks.iter().map(|k| (*k, board(series, *k).gain_as_possible())).collect();
        let mut running = Vec::new();
        for (index, k) in ks.iter().enumerate() {
            context.progress(number * ks.len() + index, points.len());
            let board = board(series, *k);
            let hardware = hardware(Some(pcie * board.throughput_ratio));
            let dispatched = mops(&hardware, *k, Policy::Dispatch(board.dispatch_ratio()), context.seed);
            let partitioned = mops(&hardware, *k, Policy::Partition(board.partition_share()), context.seed);
            running.push((*k, dispatched / partitioned));
            lowest = lowest.min(dispatched / partitioned / board.gain_as_printed());
        }
        curves.push(Curve::beside(series, "as physics allows", possible));
        curves.push(Curve::beside(series, "running model", running));
    }
    let saturated = |reference: &&super::Reference| board(&reference.series, reference.x()).dispatch_ratio() == 1.0;
    let possible =
        |reference: &super::Reference| format!("{:.2}", board(&reference.series, reference.x()).gain_as_possible());
    let possible: Vec<String> = references.iter().filter(saturated).map(possible).collect();
    Findings {
        points,
        curves,
        setting: format!(
            "Ours is the solver with n = 10^10, counting the DRAM side alone, as the table does. The running model has \
             2^{LINE_BITS} lines, Zipf 0.99, no limit from the clock, and the l of Table 5."
        ),
        sentences: vec![
            Figures::new("Running model").with("accesses over PCIe, million/s", pcie).sentence(),
            Figures::new("Smallest gain of the running model, over the printed one").with("", lowest).sentence(),
            Sentence::fact(format!(
                "Where l = 1 (r=4 with k=1/1024; r=8 with k up to 1/64) PCIe still has to serve the misses: the \
                 possible gains are {}, not the printed 4 to 8. In a direct-mapped cache, popular lines replace each \
                 other, and a miss costs two accesses of its DRAM (look up, fill), where the formula counts one.",
                possible.join(", ")
            )),
        ],
    }
}

/// Returns the paper's board without the clock's limit, and with a DRAM of this many accesses per microsecond.
fn hardware(dram_mops: Option<f64>) -> Hardware {
    let mut hardware = Hardware::kv_direct();
    hardware.card.clock_mhz = 4000.0;
    hardware.processor.operations_in_flight = 1024;
    hardware.nic_dram.spare_bits = u16::BITS;
    if let Some(mops) = dram_mops {
        hardware.nic_dram.bandwidth_gb_per_s = mops * f64::from(LINE_BYTES) / 1e3;
    }
    hardware
}

fn mops(hardware: &Hardware, memory_ratio: f64, policy: Policy, seed: u64) -> f64 {
    let host_lines = 1 << LINE_BITS;
    let nic_lines = (host_lines as f64 * memory_ratio).round() as u64;
    let accesses = Accesses {
        hardware,
        extent: Extent { host_lines, nic_lines },
        policy,
        popularity: &Popularity::long_tail(LINE_BITS, seed),
        read_share: 1.0,
        count: 12_000,
        warm_per_line: 1.5,
        seed,
    };
    accesses.run().mops
}
