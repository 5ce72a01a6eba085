//! Figure 3b: the latency of random DMA reads that miss the processor's cache.
//!
//! Run: one read of 64 bytes after the other on an idle link.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Axis, Context, Figures, Findings, Item, NoEvidence, Point, Sentence, Tolerance};
use crate::clock::{Clock, run};
use crate::dram::Dram;
use crate::hardware::Hardware;
use crate::pcie::{Link, Residence};
use crate::time::Time;

pub(super) const ITEM: Item = Item {
    name: "fig03b",
    title: "Latency of random uncached DMA reads",
    paper: include_str!("../../papers/fig03b-pcie-dma-latency-cdf.csv"),
    x: Axis::linear("percentile (%)"),
    y: Axis::linear("latency (ns)"),
    tolerance: Tolerance::Relative(0.15),
    no_evidence: &[NoEvidence::input("The distribution is an input of the model.", |_, _| true)],
    open: &[],
    run: measure,
};

const READS: usize = 20_000;

fn measure(context: &mut Context<'_>) -> Findings {
    let hardware = Hardware::kv_direct_one_link();
    let mut latencies = latencies(&hardware, Residence::Memory, context.seed);
    context.progress(1, 2);
    let cached = latencies_mean(&self::latencies(&hardware, Residence::Cache, context.seed));
    let mean = latencies_mean(&latencies);
    latencies.sort_unstable();
    // The file has latencies on the x axis and percentiles on the y axis. The latencies at each percentile are
    // compared.
    let at = |percentile: f64| latencies[((percentile / 100.0 * READS as f64) as usize).min(READS) - 1].as_ns();
    let of = |reference: &super::Reference| {
        Point::further(reference.series.clone(), reference.y, reference.x(), at(reference.y))
    };
    Findings {
        points: ITEM.references().iter().map(of).collect(),
        curves: Vec::new(),
        setting: format!(
            "{READS} reads of 64 B, one after the other. The distribution is an input of the model, as 14 of these \
             100 points. The run only checks that link, DMA engine and host together reproduce it."
        ),
        sentences: vec![
            Figures::new("Mean latency, ns")
                .beside("from memory", mean, 974.0)
                .beside("from the processor's cache", cached, 800.0)
                .sentence(),
            Sentence::fact("The text's 800 + 250 ns is not the mean of this figure, which is 974 ns."),
        ],
    }
}

fn latencies(hardware: &Hardware, residence: Residence, seed: u64) -> Vec<Time> {
    let clock = Rc::new(Clock::default());
    let link = Link::new(Rc::clone(&clock), Rc::new(Dram::of_host(&hardware.host_dram)), &hardware.pcie, seed);
    let latencies = RefCell::new(Vec::with_capacity(READS));
    let read = async |_: usize| {
        let begun = clock.now();
        link.read(0, 64, residence).await;
        latencies.borrow_mut().push(clock.now() - begun);
    };
    run(&clock, 1, (0..READS).map(read));
    latencies.into_inner()
}

fn latencies_mean(latencies: &[Time]) -> f64 {
    latencies.iter().copied().sum::<Time>().as_ns() / latencies.len() as f64
}
