//! Figure 18: random reads and writes of the host's memory, by the NIC itself or by cores that gather and scatter.
//!
//! Run: random accesses through the dispatcher of a board that hands its PCIe accesses to cores. Each core has
//! four batches of 256 in flight, or two where latency is measured. Also run: direct DMA as in Figure 3a, and the store
//! on that board with its pipeline.

use std::cell::Cell;
use std::rc::Rc;

use super::fig03a::requests_per_us;
use super::fig16::workload;
use super::{Axis, Context, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use crate::clock::{Clock, run};
use crate::dispatcher::{Dispatcher, Extent, Policy};
use crate::hardware::Hardware;
use crate::load::corpus::{Corpus, Workload};
use crate::resource::Meter;
use crate::time::Time;

pub(super) const READ: Item = Item {
    name: "fig18a",
    title: "Reads: direct DMA and cores that gather",
    paper: include_str!("../../papers/fig18a-scatter-gather-read.csv"),
    x: Axis::logarithmic("payload (B)"),
    y: Axis::linear("operations (million/s)"),
    tolerance: Tolerance::Relative(0.15),
    no_evidence: &[
        NoEvidence::input("The time to copy a line was fitted to this curve.", |series, _| series == "1 core"),
        NoEvidence::input("Figure 3a, to which the number of ordered queues was fitted.", |series, bytes| {
            series == DIRECT && bytes <= 64.0
        }),
        NoEvidence::calculation("The runs of Figure 3a.", |series, _| series == DIRECT),
    ],
    open: &[],
    run: |context| measure(&READ, false, context),
};

pub(super) const WRITE: Item = Item {
    name: "fig18b",
    title: "Writes: direct DMA and cores that scatter",
    paper: include_str!("../../papers/fig18b-scatter-gather-write.csv"),
    no_evidence: &[NoEvidence::input("Figure 3a, whose writes gave the DMA engine's cycles.", |series, _| {
        series == DIRECT
    })],
    open: &[],
    run: |context| measure(&WRITE, true, context),
    ..READ
};

/// The series without cores.
const DIRECT: &str = "cpu-bypass";
/// Full batches of a run.
const BATCHES: u32 = 100;
/// Lines of the store's memory, as a power of two.
const LINE_BITS: u32 = 15;
/// Bytes of a pair in the store.
const KV_BYTES: u32 = 10;
const CORES: u32 = 4;

/// Returns the board of section 6.1 with this number of cores that gather and scatter.
fn board(cores: u32) -> Hardware {
    let mut hardware = Hardware::kv_direct_one_link();
    hardware.host_cpu.cores_per_link = cores;
    hardware
}

fn measure(item: &Item, writes: bool, context: &mut Context<'_>) -> Findings {
    let hardware = Hardware::kv_direct_one_link();
    let references = item.references();
    let mut points = Vec::new();
    for (done, reference) in references.iter().enumerate() {
        context.progress(done, references.len());
        let bytes = reference.x() as u32;
        let mops = match reference.series.split_once(' ') {
            Some((cores, _)) => {
                let cores = cores.parse().expect("the series are named 1 core, 2 cores, …");
                batches(&board(cores), 4, bytes, writes, context.seed).0
            }
            None => requests_per_us(&hardware, writes, bytes, context.seed),
        };
        points.push(Point::new(reference, mops));
    }
    let gains = points.iter().filter(|point| point.series != DIRECT).map(|point| {
        let direct = points.iter().find(|direct| direct.series == DIRECT && direct.x == point.x);
        point.ours / direct.map_or(f64::NAN, |direct| direct.ours)
    });
    let gain = 100.0 * (gains.fold(0.0, f64::max) - 1.0);
    let gained = Figures::new("Largest gain over direct DMA, in %");
    let (_, latency, batch) = batches(&board(1), 2, 64, writes, context.seed);
    let cpu = &hardware.host_cpu;
    let put_share = if writes { 1.0 } else { 0.0 };
    let [direct, few, many] = store(put_share, context.seed);
    Findings {
        points,
        curves: Vec::new(),
        setting: format!(
            "{BATCHES} batches of {} operations. A core takes {} ns for a random line and {} ns for each line after \
             it, as the paper measured on one core. It takes {} ns to copy a line, fitted to 1 core of the reads. The \
             whole store on this board was run too, with uniform {} of {KV_BYTES} B and l = 0.",
            cpu.doorbell_operations,
            cpu.first_line_ns,
            cpu.next_line_ns,
            cpu.copy_line_ns,
            if writes { "PUTs" } else { "GETs" },
        ),
        sentences: vec![
            if writes { gained.with("", gain) } else { gained.beside("", gain, 79.0) }.sentence(),
            Figures::new("One core, 64 B, µs")
                .beside("for which a batch occupies the core", batch.as_us(), 10.0)
                .beside("of an operation if another batch is before its own", latency.as_us(), 20.0)
                .sentence(),
            Figures::new("The whole store, million/s")
                .with("over the link itself", direct)
                .with(format!("through {CORES} cores with the pipeline's operations in flight"), few)
                .with(format!("through {CORES} cores with {MANY}"), many)
                .sentence(),
            Sentence::fact("A PUT of the store waits for two batches, and a GET for one."),
        ],
    }
}

/// Returns millions of accesses a second, their mean latency, and the time for which a batch occupies a core.
fn batches(hardware: &Hardware, batches_per_core: u32, bytes: u32, writes: bool, seed: u64) -> (f64, Time, Time) {
    let cpu = &hardware.host_cpu;
    let clock = Rc::new(Clock::default());
    let extent = Extent::scaled(hardware, 1 << LINE_BITS);
    let dispatcher = Dispatcher::new(&clock, hardware, extent, Policy::Dispatch(0.0), seed);
    let meter = Meter::default();
    let waited = Cell::new(Time::ZERO);
    let access = async |_: u32| {
        let begun = clock.now();
        // The address makes no difference, because each access is a random access of a core.
        if writes {
            dispatcher.write(0, bytes).await;
        } else {
            dispatcher.read(0, bytes).await;
        }
        waited.set(waited.get() + (clock.now() - begun));
        meter.count(&clock);
    };
    let count = BATCHES * cpu.doorbell_operations;
    let width = batches_per_core * cpu.cores_per_link * cpu.doorbell_operations;
    run(&clock, width as usize, (0..count).map(access));
    let mean = Time::from_ns(waited.get().as_ns() / f64::from(count));
    (meter.mops(), mean, cpu.operation_span(bytes) * u64::from(cpu.doorbell_operations))
}

/// A number of operations in flight at which cores are worth their latency.
const MANY: u32 = 2048;

/// Returns millions of uniform operations a second on the store: over the link itself, through cores, and through cores
/// with more operations in flight.
fn store(put_share: f64, seed: u64) -> [f64; 3] {
    let mut many = board(CORES);
    many.processor.operations_in_flight = MANY;
    let mut corpus = Corpus::load(&board(0), LINE_BITS, KV_BYTES, seed);
    [board(0), board(CORES), many].map(|hardware| {
        corpus.hardware = hardware;
        let workload = workload(false, put_share, 0.0, seed);
        corpus.run(&Workload { count: 20 * MANY, ..workload }).carried_mops
    })
}
