//! Table 2: atomic increments of a vector in the store, one key for each element of the vector, and a fetch of the
//! vector to the client.
//!
//! Run: the store's vector update, an `UPDATE` of one operand on all elements. All updates change the same
//! vector, so the reservation station forwards it from one operation to the next. Then λ processes the vector, a line
//! per cycle, and packets occupy the wire in both directions. With one key per element, the elements of the vector take
//! turns. The row of fetches is the vector over a round trip and both wires, as the paper must have calculated it: its
//! numbers leave no time for the NIC. A curve has one client on the whole model, with one request in flight.
//!
//! ```text
//! request ─▶ wire ─▶ decoder, station, memory ─▶ λ, 64 B a cycle ─▶ wire ─▶ the vector, or "done"
//! ```

use skep_core::function::{Element, UpdateFunction};
use skep_core::operation::{Operation, PutCondition, Reply, Request, Shape, Update};
use skep_store::hash::Settings;
use skep_store::processor::Replies;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Axis, Context, Curve, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use crate::dispatcher::{LINE_BYTES, Policy};
use crate::hardware::Hardware;
use crate::load::corpus::processor;
use crate::memory::Pace;
use crate::network::{carry, packet_bytes};
use crate::pipeline::{Clients, Hazard, run_pipeline};
use crate::resource::{Path, mops};
use crate::time::Time;

pub(super) const ITEM: Item = Item {
    name: "table2",
    title: "Vector operations and their alternatives",
    paper: include_str!("../../papers/table2-vector-throughput.csv"),
    x: Axis::logarithmic("vector (B)"),
    y: Axis::logarithmic("vectors (GB/s)"),
    tolerance: Tolerance::Relative(0.10),
    no_evidence: &[
        NoEvidence::input("A line in each cycle of the clock, which the model was given.", |series, _| {
            series == UPDATE
        }),
        NoEvidence::input("The sizes of an element and of its key were chosen for this row.", |series, _| {
            series == "one key per element"
        }),
        NoEvidence::calculation("The vector over a round trip and both wires.", |series, _| {
            series == "fetch to client"
        }),
    ],
    open: &[],
    run: measure,
};

const KEY_BYTES: usize = 8;
/// Largest part of a vector under one key: together with its key it must fit a slab of 512 B.
const PIECE_BYTES_MAX: usize = 256;
/// Size of an element. The paper does not state it. Below 11.6 B, the row of one key per element would exceed the clock
/// rate. This size is two numbers of 8 B.
const ELEMENT_BYTES: usize = 16;
/// Size of the keys of elements. A key contains the vector and the index of the element.
const ELEMENT_KEY_BYTES: usize = 16;
const COUNT: u32 = 20_000;
/// Number of fetches of the one client.
const FETCHES: u32 = 200;
/// Number of vectors in the runs that access memory.
const VECTORS: u32 = 1024;

/// Operations on pieces of vectors, and their hardware.
struct Run<'a> {
    hardware: &'a Hardware,
    policy: Policy,
    /// The value of each key.
    value: Vec<u8>,
    key_bytes: usize,
    keys: u32,
    operation: Operation<'a>,
    /// True if keys are drawn at random. Otherwise they take turns.
    at_random: bool,
    /// Bytes of a reply.
    reply_bytes: u32,
    seed: u64,
}

/// Δ: one number for all elements, or the numbers of one element.
const DELTA: [u8; ELEMENT_BYTES] = [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

fn measure(context: &mut Context<'_>) -> Findings {
    let hardware = Hardware::kv_direct();
    let references = ITEM.references();
    let sizes = [64, 128, 256, 512, 1024];
    let steps = references.len() + 6 * sizes.len();
    let mut findings = Findings::default();
    for (done, reference) in references.iter().enumerate() {
        context.progress(done, steps);
        let bytes = reference.x() as usize;
        let (series, ours) = match reference.series.as_str() {
            // The labels are swapped in print: this row is that of updates with short replies.
            "vector update with return" => {
                (UPDATE, Run::update(&hardware, bytes, false, false, context.seed).gb_per_s())
            }
            "vector update without return" => {
                (UPDATE_RETURN, Run::update(&hardware, bytes, true, false, context.seed).gb_per_s())
            }
            "one key per element" => {
                ("one key per element", Run::elements(&hardware, bytes, 1, false, context.seed).gb_per_s())
            }
            _ => ("fetch to client", bytes as f64 / round_trip_us(&hardware, bytes) / 1e3),
        };
        findings.points.push(Point { series: series.to_owned(), ..Point::new(reference, ours) });
    }
    let seed = context.seed;
    let mut curve = |number: usize, series: &str, what: &str, gb_per_s: &dyn Fn(usize) -> f64| {
        let points = sizes.iter().enumerate().map(|(index, bytes)| {
            context.progress(references.len() + number * sizes.len() + index, steps);
            (*bytes as f64, gb_per_s(*bytes))
        });
        findings.curves.push(Curve::beside(series, what, points.collect()));
    };
    curve(0, UPDATE, "vectors anywhere in memory", &|bytes| {
        Run::update(&hardware, bytes, false, true, seed).gb_per_s()
    });
    curve(1, "one key per element", "vectors anywhere in memory", &|bytes| {
        Run::elements(&hardware, bytes, VECTORS, true, seed).gb_per_s()
    });
    curve(2, "fetch to client", "many requests in flight", &|bytes| Run::fetch(&hardware, bytes, seed).gb_per_s());
    let from_host = Policy::Dispatch(0.0);
    curve(3, UPDATE, "one vector in the host's memory", &|bytes| {
        Run { policy: from_host, ..Run::update(&hardware, bytes, false, false, seed) }.gb_per_s()
    });
    curve(4, "fetch to client", "from the host's memory", &|bytes| fetched(&hardware, bytes, from_host, seed));
    let cached = Policy::Dispatch(1.0);
    curve(5, "fetch to client", "on the whole model", &|bytes| fetched(&hardware, bytes, cached, seed));
    let paper_network = |bytes: f64| 5.0 * 1408.0 / 1496.0 * bytes / (bytes + 4.9);
    findings.curves.push(Curve::beside(
        UPDATE_RETURN,
        "closed form: 5 GB/s × 1408/1496 × size / (size + 4.9 B)",
        sizes.map(|bytes| (bytes as f64, paper_network(bytes as f64))).to_vec(),
    ));
    Findings { setting: setting(), sentences: sentences(&findings, &hardware), ..findings }
}

/// Returns the rate of a point of a curve.
fn rate_at(findings: &Findings, curve: usize, point: usize) -> f64 {
    findings.curves[curve].points[point].1
}

/// Returns the conditions of the runs.
fn setting() -> String {
    format!(
        "One vector, which the NIC's DRAM holds, elements of {ELEMENT_BYTES} B with keys of {ELEMENT_KEY_BYTES} B, \
         {COUNT} operations a point. Vectors of 512 and 1024 B are divided into pieces of {PIECE_BYTES_MAX} B with \
         one operation each, because no slab holds them with a key."
    )
}

/// Explains the rows of the table.
fn sentences(findings: &Findings, hardware: &Hardware) -> Vec<Sentence> {
    let at = |curve: usize, point: usize| rate_at(findings, curve, point);
    vec![
        Sentence::fact(
            "The labels of the first two rows are swapped in print: 11.52 GB/s is a line in each cycle of 180 MHz, and \
             vectors at that rate could not return through a network of 5 GB/s. The rate of one key per element \
             follows from the size of an element and its key, which the paper does not give. The printed row of \
             fetches leaves no time for the NIC: it is one fetch in each round trip of 2 µs, and its time on the wires. \
             Its 0.03 GB/s are rounded by up to 17 %.",
        ),
        Figures::new("A fetch by one client, µs")
            .with("64 B from the NIC's DRAM", 64.0 / at(5, 0) / 1e3)
            .with("1024 B", 1024.0 / at(5, 4) / 1e3)
            .with("of which the pipeline", hardware.processor.latency_ns / 1e3)
            .with("the time between two reads", hardware.processor.next_read_ns / 1e3)
            .with("and the NIC's DRAM, each for bucket and slab", hardware.nic_dram.latency_ns / 1e3)
            .with("64 B from the host's memory", 64.0 / at(4, 0) / 1e3)
            .sentence(),
        Figures::new("Further runs, GB/s")
            .with("fetches of 64 B, many in flight", at(2, 0))
            .with("one vector of 64 B in the host's memory", at(3, 0))
            .with(format!("{VECTORS} vectors at random over PCIe, 64 B"), at(0, 0))
            .with("256 B", at(0, 2))
            .with("with one key per element", at(1, 0))
            .sentence(),
    ]
}

const UPDATE: &str = "vector update, reply short (printed: with return)";
const UPDATE_RETURN: &str = "vector update, vector returned (printed: without return)";

impl<'a> Run<'a> {
    /// Returns increments of a whole vector.
    fn update(hardware: &'a Hardware, bytes: usize, return_old: bool, anywhere: bool, seed: u64) -> Self {
        let piece = bytes.min(PIECE_BYTES_MAX);
        let pieces = (bytes / piece) as u32;
        let update = Update {
            function: UpdateFunction::Add,
            element: Element::U64,
            shape: Shape::ScalarToVector,
            operand: &DELTA[..8],
            initial: None,
            return_old,
        };
        Run {
            hardware,
            // If all operations use the same vector, it is in the NIC's DRAM.
            policy: Policy::Dispatch(if anywhere { 0.0 } else { 1.0 }),
            value: vec![0; piece],
            key_bytes: KEY_BYTES,
            keys: if anywhere { VECTORS * pieces } else { pieces },
            operation: Operation::Update(update),
            at_random: anywhere,
            reply_bytes: if return_old { piece as u32 } else { 0 },
            seed,
        }
    }

    /// Returns increments of elements that have their own keys.
    fn elements(hardware: &'a Hardware, bytes: usize, vectors: u32, anywhere: bool, seed: u64) -> Self {
        let keys = vectors * (bytes / ELEMENT_BYTES) as u32;
        let mut run = Run::update(hardware, ELEMENT_BYTES, false, anywhere, seed);
        if let Operation::Update(update) = &mut run.operation {
            (update.shape, update.operand) = (Shape::VectorToVector, &DELTA);
        }
        // Limited to the number of lines, because the memory is scaled.
        Run { keys: keys.min(VECTORS * 16), key_bytes: ELEMENT_KEY_BYTES, ..run }
    }

    /// Returns fetches of vectors.
    fn fetch(hardware: &'a Hardware, bytes: usize, seed: u64) -> Self {
        let run = Run::update(hardware, bytes, true, false, seed);
        Run { operation: Operation::Get, ..run }
    }

    /// Returns the bytes of vectors per time, at the largest rate.
    fn gb_per_s(&self) -> f64 {
        let count = if self.at_random { COUNT / 2 } else { COUNT };
        let ends = self.reply_times(count, Time::ZERO).into_iter().map(|(_, end)| end).collect();
        mops(ends) * self.value.len() as f64 / 1e3
    }

    /// Returns the times at which each operation was sent and its reply had left the wire, without the network's delay,
    /// in the order of the replies. After each `interval`, clients have all pieces of another vector.
    fn reply_times(&self, count: u32, interval: Time) -> Vec<(Time, Time)> {
        let inline_threshold = 50;
        let settings =
            Settings { memory: 8 << 20, hash_index_ratio: 0.5, inline_threshold, grows: false, seed: self.seed };
        let (mut processor, _) = processor(self.hardware, &settings, self.policy, self.seed);
        let mut replies = Replies::with_budget(usize::MAX);
        let keys: Vec<Vec<u8>> = (0..self.keys).map(|key| padded(key, self.key_bytes)).collect();
        let put = Operation::Put { value: &self.value, condition: PutCondition::Always };
        let puts: Vec<_> = keys.iter().map(|key| Request { key, operation: put }).collect();
        processor.memory().set_pace(Pace::AtOnce);
        for puts in puts.chunks(1 << 12) {
            processor.execute(puts, &mut replies);
            assert!(replies.iter().all(|reply| reply == Reply::Done), "the vectors fit");
        }
        // The NIC's DRAM initially holds the lines of the vectors.
        processor.memory().set_pace(Pace::Noted);
        let gets: Vec<_> = keys.iter().map(|key| Request { key, operation: Operation::Get }).collect();
        processor.execute(&gets[..gets.len().min(64)], &mut replies);
        let memory = processor.memory();
        memory.take_noted().iter().for_each(|noted| memory.dispatcher().warm(noted.line.into(), noted.changes));
        memory.set_pace(Pace::Timed);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut next = |index: u32| if self.at_random { random.random_range(0..self.keys) } else { index % self.keys };
        let request = |key: u32| Request { key: &keys[key as usize], operation: self.operation };
        let requests: Vec<_> = (0..count).map(|index| request(next(index))).collect();
        let operand = match &self.operation {
            Operation::Update(update) => update.operand.len(),
            _ => 0,
        };
        let bytes = (self.key_bytes + operand) as u32;
        let sent: Vec<_> = (0..count).map(|index| (interval * u64::from(index / self.keys), bytes)).collect();
        let spec = &self.hardware.network;
        let arrivals = carry(spec, &sent);
        let passages = run_pipeline(
            &mut processor,
            self.hardware,
            Hazard::Waits,
            &requests,
            Clients::Open(&arrivals),
            &mut replies,
        );
        assert!(
            replies.iter().all(|reply| matches!(reply, Reply::Done | Reply::Value(_))),
            "every operation found its vector"
        );
        // λ processes a line per cycle. As in the paper, it is duplicated until it keeps up with PCIe.
        let lambda = Path::default();
        let lines = (self.value.len() as u64).div_ceil(u64::from(LINE_BYTES));
        let lines = if self.operation == Operation::Get { 0 } else { lines };
        let cycles = Time::cycle(self.hardware.card.clock_mhz) * lines;
        let mut done: Vec<_> =
            passages.iter().zip(&sent).map(|(passage, (sent, _))| (passage.replied, *sent)).collect();
        done.sort_unstable();
        let waiting: Vec<_> = done.iter().map(|(done, _)| (lambda.reserve(*done, cycles), self.reply_bytes)).collect();
        done.iter().zip(carry(spec, &waiting)).map(|((_, sent), end)| (*sent, end)).collect()
    }
}

/// Returns the time of a fetch without the NIC: the delay in both directions, and the packets on both wires.
fn round_trip_us(hardware: &Hardware, bytes: usize) -> f64 {
    let spec = &hardware.network;
    let on_wire =
        |bytes: usize| Time::of_bytes(packet_bytes(spec, 1, bytes as u32).into(), spec.bandwidth_gb_per_s).as_us();
    2.0 * spec.delay_us + on_wire(KEY_BYTES) + on_wire(bytes)
}

/// Runs one client with one fetch in flight. Returns the bytes of a vector over the time of a fetch.
fn fetched(hardware: &Hardware, bytes: usize, policy: Policy, seed: u64) -> f64 {
    let run = Run { policy, ..Run::fetch(hardware, bytes, seed) };
    // The interval is so long that no two fetches overlap.
    let reply_times = run.reply_times(FETCHES * run.keys, Time::from_ns(20_000.0));
    let last = reply_times.chunks(run.keys as usize).filter_map(|pieces| pieces.last());
    let total: Time = last.map(|(sent, end)| *end - *sent).sum();
    let mean_us = total.as_us() / f64::from(FETCHES) + 2.0 * hardware.network.delay_us;
    bytes as f64 / mean_us / 1e3
}

fn padded(key: u32, bytes: usize) -> Vec<u8> {
    let mut padded = key.to_le_bytes().to_vec();
    padded.resize(bytes, 0);
    padded
}
