//! Figure 18: random reads and writes of the host's memory by the NIC itself and through cores that gather and scatter.
//!
//! What runs: batches of 256 operations, always four for each core, and two where latency is measured; and direct DMA as in
//! Figure 3a.

use std::cell::RefCell;
use std::rc::Rc;

use super::fig03a::requests_per_us;
use super::{Axis, Context, Findings, Item, Point, Tolerance};
use crate::clock::{Clock, run};
use crate::hardware::Hardware;
use crate::pcie::{HostMemory, Link};
use crate::resource::Meter;
use crate::scatter_gather::ScatterGather;
use crate::time::Time;

pub(super) const READ: Item = Item {
    name: "fig18a",
    title: "Reads: direct DMA and cores that gather",
    paper: include_str!("../../papers/fig18a-scatter-gather-read.csv"),
    x: Axis::logarithmic("payload (B)"),
    y: Axis::linear("operations (million/s)"),
    tolerance: Tolerance::Relative(0.15),
    run: |context| measure(&READ, false, context),
};

pub(super) const WRITE: Item = Item {
    name: "fig18b",
    title: "Writes: direct DMA and cores that scatter",
    paper: include_str!("../../papers/fig18b-scatter-gather-write.csv"),
    run: |context| measure(&WRITE, true, context),
    ..READ
};

const BATCHES: u32 = 300;

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
                batches(&hardware, cores, 4, bytes, writes, context.seed).0
            }
            None => requests_per_us(&hardware, writes, bytes, context.seed),
        };
        points.push(Point::new(reference, mops));
    }
    let gains = points.iter().filter(|point| point.series != "cpu-bypass").map(|point| {
        let direct = points.iter().find(|direct| direct.series == "cpu-bypass" && direct.x == point.x);
        point.ours / direct.map_or(f64::NAN, |direct| direct.ours)
    });
    let gain = gains.fold(0.0, f64::max);
    let (_, latency, batch) = batches(&hardware, 1, 2, 64, writes, context.seed);
    let cpu = &hardware.host_cpu;
    Findings {
        points,
        curves: Vec::new(),
        setting: format!(
            "{BATCHES} batches of {} operations. A core takes {} ns for a random line and {} ns for each that follows, as \
             the paper's own measurements of one core say, and {} ns to copy a line, fitted to 1 core here. The largest gain \
             over direct DMA is {:.0} % (paper, reads: 79 %). With one core and 64 B a batch occupies the core for {:.1} µs \
             (paper: 10) and an operation takes {:.1} µs in all if another batch is before it (paper: about 20).",
            cpu.doorbell_operations,
            cpu.first_line_ns,
            cpu.next_line_ns,
            cpu.copy_line_ns,
            100.0 * (gain - 1.0),
            batch.as_us(),
            latency.as_us(),
        ),
        explanation: String::new(),
    }
}

/// Millions of operations a second, the mean latency of a batch, and how long it occupies a core.
fn batches(
    hardware: &Hardware,
    cores: u32,
    batches_per_core: u32,
    bytes: u32,
    writes: bool,
    seed: u64,
) -> (f64, Time, Time) {
    let clock = Rc::new(Clock::default());
    let host = Rc::new(HostMemory::new(&hardware.host_dram));
    let link = Link::new(Rc::clone(&clock), host, hardware, seed);
    let gatherers = ScatterGather::new(Rc::clone(&clock), link, hardware.host_cpu.clone(), cores);
    let meter = Meter::default();
    let latencies = RefCell::new(Vec::new());
    let batch = async |_: u32| {
        let begun = clock.now();
        if writes {
            gatherers.scatter(bytes).await;
        } else {
            gatherers.gather(bytes).await;
        }
        latencies.borrow_mut().push(clock.now() - begun);
        meter.count(&clock);
    };
    run(&clock, (batches_per_core * cores) as usize, (0..BATCHES).map(batch));
    let mean = latencies.borrow().iter().copied().sum::<Time>().as_ns() / f64::from(BATCHES);
    let operations = f64::from(hardware.host_cpu.doorbell_operations);
    (meter.mops() * operations, Time::from_ns(mean), gatherers.batch_span(bytes))
}
