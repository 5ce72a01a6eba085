//! Section 6.3.1: tests if a network of 200 Gb/s needs no batching, and finds the bottleneck.
//!
//! Run: Figure 16b with one operation a packet, and a network of another speed. The bottleneck is found by
//! doubling one part of the board after the other. It is the part whose doubling increases the rate most, if any does.

use super::fig15::added_by_batching_us;
use super::fig16::{LINE_BITS, workload};
use super::fig17::latency;
use super::{Axis, Context, Curve, Figures, Findings, Item, Point, Sentence, Tolerance};
use crate::hardware::Hardware;
use crate::load::corpus::{Corpus, Workload};

pub(super) const ITEM: Item = Item {
    name: "net200",
    title: "Throughput without batching in a network of 200 Gb/s",
    paper: include_str!("../../papers/net200-unbatched.csv"),
    x: Axis::logarithmic("network (Gb/s)"),
    y: Axis::linear("operations (million/s)"),
    tolerance: Tolerance::Relative(0.05),
    no_evidence: &[],
    open: &[],
    run: measure,
};

const SIZES: [u32; 4] = [5, 15, 62, 254];
const SPEEDS: [f64; 5] = [40.0, 100.0, 200.0, 400.0, 800.0];
/// Load dispatch ratio, as in Figure 14. With a ratio that is tuned for a point, clock and memory limit equally, and no
/// part is the bottleneck.
const RATIO: f64 = 0.5;
/// A part is not the bottleneck if its doubling gains less.
const GAIN_LEAST: f64 = 0.05;
/// Operations of a run that only compares parts.
const COMPARED: u32 = 8_000;

/// Returns the paper's board in another network, with one operation a packet.
fn board(gb_per_s: f64) -> Hardware {
    let mut hardware = Hardware::kv_direct();
    let network = &mut hardware.network;
    network.bandwidth_gb_per_s = gb_per_s / 8.0;
    // There is no room for a second operation. The first is sent at any size.
    network.packet_max_bytes = network.header_bytes + network.operation_header_bytes + 1;
    hardware
}

/// A part of the board.
struct Part {
    name: &'static str,
    double: fn(&mut Hardware),
}

const PARTS: [Part; 4] = [
    Part { name: "the clock", double: |hardware| hardware.card.clock_mhz *= 2.0 },
    Part { name: "the network", double: |hardware| hardware.network.bandwidth_gb_per_s *= 2.0 },
    Part { name: "PCIe", double: |hardware| hardware.pcie.links *= 2 },
    Part { name: "NIC DRAM", double: |hardware| hardware.nic_dram.bandwidth_gb_per_s *= 2.0 },
];

fn rate(corpus: &mut Corpus, hardware: &Hardware, workload: &Workload) -> f64 {
    corpus.hardware = hardware.clone();
    corpus.run(workload).carried_mops
}

/// Returns the part whose doubling gains most, and that gain.
fn bottleneck(corpus: &mut Corpus, workload: &Workload) -> (&'static str, f64) {
    let workload = &Workload { count: COMPARED, ..*workload };
    let before = rate(corpus, &board(200.0), workload);
    let gains = PARTS.map(|Part { name, double }| {
        let mut hardware = board(200.0);
        double(&mut hardware);
        (name, rate(corpus, &hardware, workload) / before - 1.0)
    });
    let most = gains.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)).expect("a board has parts");
    if most.1 < GAIN_LEAST { ("no single part", most.1) } else { most }
}

fn measure(context: &mut Context<'_>) -> Findings {
    let mut found = Figures::new("At 200 Gb/s, million/s, and the gain in % by doubling the part that helps most");
    let mut curves = Vec::new();
    let mut in_time = [0.0; 2];
    let mut ours = f64::NAN;
    for (done, kv_bytes) in SIZES.into_iter().enumerate() {
        context.progress(done, SIZES.len());
        let mut corpus = Corpus::load(&board(200.0), LINE_BITS, kv_bytes, context.seed);
        for (name, put_share) in [("GET", 0.0), ("PUT", 1.0)] {
            let workload = workload(true, put_share, RATIO, context.seed);
            let workload = Workload { whole_pairs: false, ..workload };
            let mut points = Vec::new();
            for speed in SPEEDS {
                points.push((speed, rate(&mut corpus, &board(speed), &workload)));
            }
            let at_200 = points[2].1;
            let (part, gain) = bottleneck(&mut corpus, &workload);
            found = found.with(format!("{name} {kv_bytes} B"), at_200).with(part, 100.0 * gain);
            if (name, kv_bytes) == ("GET", SIZES[0]) {
                ours = at_200;
                corpus.hardware = board(200.0);
                in_time[0] = latency(&mut corpus, &workload, kv_bytes).mean;
                corpus.hardware = Hardware::kv_direct();
                let batching = added_by_batching_us(&corpus.hardware, kv_bytes);
                in_time[1] = latency(&mut corpus, &workload, kv_bytes).mean + batching;
            }
            curves.push(Curve::beside("GET", &format!("{name} of {kv_bytes} B, model"), points));
        }
    }
    let spec = board(200.0).network;
    let held = 25e3 / 180.0 - f64::from(spec.header_bytes + spec.operation_header_bytes);
    Findings {
        points: ITEM.references().iter().map(|reference| Point::new(reference, ours)).collect(),
        curves,
        setting: format!(
            "Long tail as Figure 16b with l = {RATIO}, one operation in each packet of {} B and more.",
            spec.header_bytes + spec.operation_header_bytes,
        ),
        sentences: vec![
            found.sentence(),
            Figures::new("A GET of 5 B, µs")
                .with("in single packets at 200 Gb/s", in_time[0])
                .with("in full packets at 40 Gb/s", in_time[1])
                .sentence(),
            Sentence::fact(format!(
                "At 180 million packets a second, 25 GB/s carry {held:.0} B of key and value, after the header."
            )),
        ],
    }
}
