//! Figure 3a: random DMA requests a second over one link, by payload.
//!
//! Run: random requests of one size on one link. There are always more requests than the DMA engine can carry
//! out.

use std::rc::Rc;

use super::{Axis, Context, Curve, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use crate::clock::{Clock, run};
use crate::dram::Dram;
use crate::hardware::Hardware;
use crate::pcie::{Link, Residence};
use crate::resource::Meter;

pub(super) const ITEM: Item = Item {
    name: "fig03a",
    title: "Random DMA over one PCIe Gen3 x8 link",
    paper: include_str!("../../papers/fig03a-pcie-dma-throughput.csv"),
    x: Axis::logarithmic("payload (B)"),
    y: Axis::linear("requests (million/s)"),
    tolerance: Tolerance::Relative(0.15),
    no_evidence: &[
        NoEvidence::input("The DMA engine's cycles for a written TLP are those of this curve.", |series, _| {
            series == "write"
        }),
        NoEvidence::input("The number of queues in which replies are ordered was fitted to them.", |series, bytes| {
            series == "read" && bytes <= 64.0
        }),
    ],
    open: &[],
    run: measure,
};

/// Requests that wait or are in flight at any time; more than there are tags and credits.
const WIDTH: usize = 256;
const REQUESTS: u32 = 20_000;

fn measure(context: &mut Context<'_>) -> Findings {
    let hardware = Hardware::kv_direct_one_link();
    let references = ITEM.references();
    let mut points = Vec::new();
    for (done, reference) in references.iter().enumerate() {
        context.progress(done, references.len());
        let mops = requests_per_us(&hardware, reference.series == "write", reference.x() as u32, context.seed);
        points.push(Point::new(reference, mops));
    }
    let sizes: Vec<f64> = points.iter().filter(|point| point.series == "read").map(|point| point.x).collect();
    let reads_with = |queues: u32| {
        let mut other = hardware.clone();
        other.pcie.dma_engine.ordered_queues = queues;
        let at = |size: f64| requests_per_us(&other, false, size as u32, context.seed);
        sizes.iter().map(|size| (*size, at(*size))).collect()
    };
    let tags = hardware.pcie.read_tags;
    let closed_form = sizes.iter().map(|size| (*size, (64e3 / 974.0_f64).min(6980.0 / size))).collect();
    let curves = vec![
        Curve::beside("read", "replies in one order", reads_with(1)),
        Curve::beside("read", "replies in any order", reads_with(tags)),
        Curve::new("closed form, read: 64 tags / 974 ns, at most 6.98 GB/s", closed_form),
        closed_form_of_writes(&hardware, &sizes),
    ];
    Findings {
        points,
        curves,
        setting: format!(
            "{REQUESTS} requests of each size, {WIDTH} waiting or in flight at a time, on the board {}. Tags, \
             credits, latencies and packet sizes are the paper's. Two parameters were fitted to this figure: the DMA \
             engine's cycles for a TLP, and the number of queues ({}) in which it restores the order of replies. The \
             dashed curves have one queue, and one queue for each tag.",
            hardware.name, hardware.pcie.dma_engine.ordered_queues,
        ),
        sentences: vec![Sentence::fact(format!(
            "The engine alone would carry {:.1} million requests of reads, and {tags} tags with a latency of 974 ns \
             65.7 million.",
            hardware.pcie.dma_engine.clock_mhz / f64::from(hardware.pcie.dma_engine.read_request_cycles),
        ))],
    }
}

fn closed_form_of_writes(hardware: &Hardware, sizes: &[f64]) -> Curve {
    let engine = &hardware.pcie.dma_engine;
    let packets = |size: f64| (size / f64::from(hardware.pcie.payload_max_bytes)).ceil();
    let cycles =
        |size: f64| packets(size) * f64::from(engine.write_header_cycles) + size / f64::from(engine.word_bytes);
    let points = sizes.iter().map(|size| (*size, engine.clock_mhz / cycles(*size))).collect();
    Curve::new("closed form, write: 250 MHz / (2 for each TLP + payload / 32 B)", points)
}

/// Returns millions of requests a second, with more requests than the link can carry.
pub(super) fn requests_per_us(hardware: &Hardware, writes: bool, bytes: u32, seed: u64) -> f64 {
    let clock = Rc::new(Clock::default());
    let host = Rc::new(Dram::of_host(&hardware.host_dram));
    let link = Link::new(Rc::clone(&clock), host, &hardware.pcie, seed);
    let meter = Meter::default();
    let request = async |_: u32| {
        if writes {
            link.write(bytes).await;
        } else {
            link.read(0, bytes, Residence::Memory).await;
        }
        meter.count(&clock);
    };
    run(&clock, WIDTH, (0..REQUESTS).map(request));
    meter.mops()
}
