//! Figure 15: throughput and latency of the network, with one operation in a packet and with as many as fit.
//!
//! Run: in (a), clients that always have another operation. In (b), clients have an operation at regular times, at the
//! rate that was carried in (a). They fill a packet before they send it. The decoder replies to each operation at once, and
//! replies that wait share packets.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Reference, Sentence, Tolerance};
use crate::clock::{Clock, run};
use crate::hardware::Hardware;
use crate::network::{NetworkPath, carry, operations_per_packet, packet_bytes};
use crate::resource::Meter;
use crate::time::Time;

pub(super) const THROUGHPUT: Item = Item {
    name: "fig15a",
    title: "Network batching: throughput",
    paper: include_str!("../../papers/fig15a-net-batching-throughput.csv"),
    x: Axis::logarithmic("key and value (B)"),
    y: Axis::linear("operations (million/s)"),
    tolerance: Tolerance::Relative(0.10),
    no_evidence: &[NoEvidence::input(
        "The header of an operation was fitted to these curves, and the shorter one of a repeated size too.",
        |_, _| true,
    )],
    open: &[],
    run: measure_throughput,
};

pub(super) const LATENCY: Item = Item {
    name: "fig15b",
    title: "Network batching: latency",
    paper: include_str!("../../papers/fig15b-net-batching-latency.csv"),
    x: Axis::logarithmic("key and value (B)"),
    y: Axis::linear("latency (µs)"),
    tolerance: Tolerance::Relative(0.10),
    no_evidence: &[NoEvidence::input(
        "The curves are 2 µs + packet / 5 GB/s + rate / 180 M/s, whose last term has no unit, and the size of a packet \
         was fitted to them. The bounds in the text are the evidence.",
        |series, _| !series.starts_with("text"),
    )],
    open: &["text: less than 1 µs added"],
    run: measure_latency,
};

/// Largest number of packets in flight; more than the wire holds during the network's delay.
const WIDTH: usize = 512;
const PACKETS: u32 = 6_000;

fn batch(hardware: &Hardware, reference: &Reference) -> (u32, u32) {
    let kv_bytes = reference.x() as u32;
    let batched = reference.series == "batching";
    (if batched { operations_per_packet(&hardware.network, kv_bytes) } else { 1 }, kv_bytes)
}

fn measure_throughput(context: &mut Context<'_>) -> Findings {
    let hardware = Hardware::kv_direct();
    let references = THROUGHPUT.references();
    let mut points = Vec::new();
    for (done, reference) in references.iter().enumerate() {
        context.progress(done, references.len());
        let (operations, kv_bytes) = batch(&hardware, reference);
        points.push(Point::new(reference, mops(&hardware, operations, kv_bytes)));
    }
    let sizes = [8.0_f64, 16.0, 32.0, 64.0, 128.0, 256.0];
    let gain = |of: fn(&Point) -> f64| {
        let (single, batched) = points.split_at(sizes.len());
        single.iter().zip(batched).map(|(single, batched)| of(batched) / of(single)).fold(0.0, f64::max)
    };
    let gains = (gain(|point| point.paper), gain(|point| point.ours));
    Findings {
        points,
        curves: vec![Curve::beside(
            "batching",
            "closed form: min(180 million/s, 5 GB/s / (size + 1 B))",
            sizes.map(|size| (size, (5e3 / (size + 1.0)).min(180.0))).to_vec(),
        )],
        setting: format!(
            "{PACKETS} packets of each kind. Batches are packets of up to {} B.",
            hardware.network.packet_max_bytes
        ),
        sentences: vec![
            Figures::new("Largest gain by batching").beside("", gains.1, gains.0).sentence(),
            Sentence::fact(
                "The paper's batches have no packet header: 5 GB/s / (size + 1 B). Ours have one, as in the paper's \
                 Figure 16.",
            ),
        ],
    }
}

fn measure_latency(context: &mut Context<'_>) -> Findings {
    let hardware = Hardware::kv_direct();
    let references = LATENCY.references();
    let mut points = Vec::new();
    let mut fills = 0.0_f64;
    let mut ticked = Vec::new();
    for (done, reference) in references.iter().enumerate() {
        context.progress(done, references.len());
        let (operations, kv_bytes) = batch(&hardware, reference);
        let rate = mops(&hardware, operations, kv_bytes);
        let (latency, fill) = latency_us(&hardware, operations, kv_bytes, rate, Time::ZERO);
        let (late, _) = latency_us(&hardware, operations, kv_bytes, rate, Time::from_ns(1e3));
        ticked.push((reference.x(), late));
        points.push(Point::new(reference, latency));
        fills = fills.max(fill);
    }
    let closed = |series: &str| {
        let of = |reference: &Reference| {
            let (operations, kv_bytes) = batch(&hardware, reference);
            let bytes = if operations > 1 { 1500 } else { packet_bytes(&hardware.network, 1, kv_bytes) };
            let rate = (5e3 / f64::from(kv_bytes + if operations > 1 { 1 } else { 91 })).min(180.0);
            (reference.x(), 2.0 + f64::from(bytes) / 5e3 + rate / 180.0)
        };
        let points = references.iter().filter(|reference| reference.series == series).map(of).collect();
        Curve::beside(series, "closed form: 2 µs + packet / 5 GB/s + rate / (180 million/s) µs", points)
    };
    let (single_ticked, batch_ticked) = ticked.split_at(ticked.len() / 2);
    let curves = vec![
        closed("no-batching"),
        closed("batching"),
        Curve::beside("no-batching", "sent once a microsecond", single_ticked.to_vec()),
        Curve::beside("batching", "sent once a microsecond", batch_ticked.to_vec()),
    ];
    let slowest = points.iter().max_by(|one, other| one.ours.total_cmp(&other.ours)).expect("there are points");
    let slowest = (slowest.x, slowest.ours);
    let added = points[6..].iter().zip(&points).map(|(batched, single)| batched.ours - single.ours);
    let added = added.fold(0.0, f64::max);
    let tick = "if a client collects operations for a microsecond";
    let sentences = vec![
        Sentence::variant(tick, &LATENCY, &points, "no-batching", &curves[2]),
        Sentence::variant(tick, &LATENCY, &points, "batching", &curves[3]),
        Sentence::fact(
            "The last term of the paper's curves is the time to decode all operations that arrive in a microsecond, \
             even where a packet holds a single one. The model has no such wait: an operation waits until its packet \
             is full, is sent, travels, is decoded after the others of its packet, and its reply travels back.",
        ),
        Figures::new("Longest wait for a full packet, µs").with("", fills).sentence(),
    ];
    points.push(Point::further("text: below 3.5 µs", slowest.0, 3.5, slowest.1).within(Tolerance::AtMost));
    points.push(Point::further("text: less than 1 µs added", slowest.0, 1.0, added).within(Tolerance::AtMost));
    Findings {
        points,
        curves,
        setting: format!(
            "{PACKETS} packets of each kind, operations at regular times at the rate of Figure 15a, the mean over \
             operations. The text states two bounds: below 3.5 µs with batching, and less than 1 µs more than without."
        ),
        sentences,
    }
}

/// Returns millions of operations a second, when clients have more than the network carries.
fn mops(hardware: &Hardware, operations: u32, kv_bytes: u32) -> f64 {
    let clock = Rc::new(Clock::default());
    let path = NetworkPath::new(Rc::clone(&clock), hardware);
    let meter = Meter::default();
    let packet = async |_: u32| {
        _ = path.carry(operations, kv_bytes).await;
        meter.count(&clock);
    };
    run(&clock, WIDTH, (0..PACKETS).map(packet));
    meter.mops() * f64::from(operations)
}

/// Returns the mean latency that batching in full packets adds to an operation of this size, when clients use the full
/// rate of the network.
pub(super) fn added_by_batching_us(hardware: &Hardware, kv_bytes: u32) -> f64 {
    let latency = |operations: u32| {
        let rate = mops(hardware, operations, kv_bytes);
        latency_us(hardware, operations, kv_bytes, rate, Time::ZERO).0
    };
    latency(operations_per_packet(&hardware.network, kv_bytes)) - latency(1)
}

/// Returns two means: the time from the begin of an operation at a client until its reply has returned, and the part of
/// it until its packet is sent. A packet is sent when it is full, or at the next tick if there are ticks. Replies have no
/// values.
fn latency_us(hardware: &Hardware, operations: u32, kv_bytes: u32, rate_mops: f64, tick: Time) -> (f64, f64) {
    let clock = Rc::new(Clock::default());
    let path = NetworkPath::new(Rc::clone(&clock), hardware);
    let interval = Time::from_ns(1e3 / rate_mops);
    let (begins, filling) = (Cell::new(Time::ZERO), Cell::new(Time::ZERO));
    let replies = RefCell::new(Vec::new());
    let packet = async |number: u32| {
        let first = interval * (u64::from(number) * u64::from(operations));
        let begun = |index: u32| first + interval * u64::from(index);
        let full = begun(operations - 1).next_edge(tick);
        clock.until(full).await;
        filling.set(filling.get() + (0..operations).map(|index| full - begun(index)).sum());
        let decoded = path.carry(operations, kv_bytes).await;
        begins.set(begins.get() + (0..operations).map(begun).sum());
        replies.borrow_mut().extend(decoded.map(|decoded| (decoded, 0)));
    };
    run(&clock, WIDTH, (0..PACKETS).map(packet));
    let ends: Time = carry(&hardware.network, &replies.take()).into_iter().sum();
    let mean = |sum: Time| sum.as_us() / f64::from(PACKETS * operations);
    (mean(ends) - mean(begins.get()) + hardware.network.delay_us, mean(filling.get()))
}
