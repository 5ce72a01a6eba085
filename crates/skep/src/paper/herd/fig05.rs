//! Figure 5: ECHOs per second, by transport (section 3.2).
//!
//! The paper compares combinations of verbs for request and response, and shows the gain of each optimization. Here the
//! transports are Skep's, and one thing varies: the number of ECHOs in a batch, whose costs they share.
//!
//! Run: one shard on a core, one client on another, 32 B values, no store. See [`crate::bench::transport`].

use skep_measure::Figure;
use skep_nic::paper::Axis;

use super::published::rows;
use super::{Curve, Found, Item, Plan, Statement, millions};
use crate::bench::transport::{self, Measured, Verb};
use crate::failure::Failure;
use crate::local_server::Cores;

pub(super) const ITEM: Item = Item {
    name: "herd-fig05",
    title: "ECHOs of 32 B, by transport",
    paper: include_str!("../../../papers/herd-fig05-echo-throughput.csv"),
    x: Axis::logarithmic("ECHOs in a batch"),
    y: Axis::logarithmic("ECHOs (million/s)"),
    run: measure,
};

/// Bytes of an ECHO's value, as in the paper.
pub(super) const VALUE_SIZE: u16 = 32;
/// ECHOs in a batch, each more than the one before.
const DEPTHS: [u32; 4] = [1, 16, 256, 4096];
const ECHO: usize = Verb::Echo as usize;

fn measure(plan: &Plan, progress: &mut dyn FnMut(f64)) -> Result<Found, Failure> {
    let cores = Cores::divide(1)?;
    let measured = transport::measure(
        &transport::Plan {
            records: 1,
            value_size: VALUE_SIZE,
            verbs: &[Verb::Echo],
            depths: &DEPTHS,
            rounds: plan.rounds,
            slice: plan.slice,
            timed_count: 0,
        },
        &cores,
        progress,
    )?;
    let published = rows(ITEM.paper).into_iter().map(|row| {
        let reason = match row.x.as_str() {
            "WRITE / WRITE" => "verbs of an RDMA NIC. Shared memory has the same path, in which each side writes to the memory of the other, but no NIC",
            "WRITE / SEND over UD" => "verbs of an RDMA NIC. The RDMA transport has the same path but needs such a NIC and is not measured here",
            _ => "verbs of an RDMA NIC. UDP sessions send datagrams both ways, but through the kernel, and they repeat lost ones",
        };
        row.not_measured(reason)
    });
    Ok(Found {
        published: published.collect(),
        curves: measured.iter().map(curve).collect(),
        statements: measured.iter().flat_map(ladder).collect(),
        setting: format!(
            "One client waits for all replies of a batch before it sends the next one; {}. Medians of {} rounds, in \
             which all transports and batches take turns. The paper's steps (unreliable, unsignalled, inlined) are \
             those of a NIC and are not stated as numbers. The steps here are larger batches.",
            on_cores(&cores),
            plan.rounds
        ),
    })
}

/// Describes the cores of a shard and a client.
pub(super) fn on_cores(cores: &Cores) -> &'static str {
    if cores.are_apart() { "shard and client have a core each" } else { "shard and client share a core" }
}

/// Returns the name of a transport for people.
pub(super) fn name(measured: &Measured) -> &'static str {
    match measured.name {
        "shm" => "shared memory",
        "udp" => "UDP",
        _ => "TCP",
    }
}

fn curve(measured: &Measured) -> Curve {
    let rates = DEPTHS.iter().zip(&measured.rates);
    let points = rates.map(|(depth, rates)| (f64::from(*depth), Figure::of(&millions(&rates[ECHO]))));
    Curve { name: format!("Skep, {}", name(measured)), points: points.collect() }
}

/// Returns a statement for each step: a larger batch is not slower.
fn ladder(measured: &Measured) -> Vec<Statement> {
    let steps = DEPTHS.windows(2).zip(measured.rates.windows(2));
    let statement = |(depths, rates): (&[u32], &[_])| {
        let [before, after]: [&transport::Rates; 2] = [&rates[0], &rates[1]];
        Statement {
            text: format!("{}: ECHOs with {} in a batch over {}", name(measured), depths[1], depths[0]),
            ratio: Figure::of_ratio(&after[ECHO], &before[ECHO]),
            at_least: 1.0,
        }
    };
    steps.map(statement).collect()
}
