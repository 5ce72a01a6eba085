//! Figure 12: latency against throughput of SCANs of three items.
//!
//! Run: the card alone, with a growing number of requests in flight. The text says that at low load the latency is mostly
//! that of accesses over PCIe and of on-board DRAM.

use super::super::{Axis, Context, Curve, Figures, Findings, Item, Point, Tolerance};
use super::{LITTLE_WARMING, Load, setting, with_cache};
use crate::honeycomb::fetch::Fetch;
use crate::honeycomb::run::Outcome;
use crate::honeycomb::tree::Reading;

pub(in super::super) const ITEM: Item = Item {
    name: "honeycomb-fig12",
    title: "Latency of Honeycomb's card against its throughput",
    paper: include_str!("../../../papers/honeycomb-fig12.csv"),
    x: Axis::linear("Mreq/s"),
    y: Axis::linear("mean µs, without the network's delay"),
    tolerance: Tolerance::StatedAtLeast,
    no_evidence: &[],
    open: &[],
    run: measure,
};

/// Requests in flight.
const IN_FLIGHT: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// The share that stands for *mostly*.
const MOSTLY: f64 = 0.5;

fn measure(context: &mut Context<'_>) -> Findings {
    let mut load = Load::warmed(context, Reading::Scan(3), LITTLE_WARMING);
    let size = load.card.cache.size_mib;
    let runs = IN_FLIGHT.map(|in_flight| {
        context.progress(in_flight as usize, 128);
        load.card.accelerator.requests_in_flight = in_flight;
        (in_flight, load.run(Fetch::Paper, with_cache(size)))
    });
    let (_, idle) = runs[0];
    let units_us = units_us(&load, &idle);
    let share = 1.0 - (units_us + load.card.accelerator.latency_ns / 1e3) / idle.latency_us;
    let series = "share of the memories in the time of a request alone";
    Findings {
        points: vec![Point::further(series, 1.0, MOSTLY, share).within(Tolerance::StatedAtLeast)],
        curves: vec![Curve::new("SCANs of three items", runs.map(|(_, run)| (run.mops, run.latency_us)).to_vec())],
        setting: format!("{} More than a half stands for the text's \"mostly\".", setting(&load)),
        sentences: vec![
            Figures::new("A request alone, µs")
                .with("all", idle.latency_us)
                .with("units", units_us)
                .with("outside the search engines", load.card.accelerator.latency_ns / 1e3)
                .sentence(),
            runs.iter()
                .fold(Figures::new("Requests in flight"), |figures, (in_flight, run)| {
                    figures.with(format!("{in_flight}: Mreq/s"), run.mops).with("µs", run.latency_us)
                })
                .sentence(),
        ],
    }
}

/// Returns the time of all units for a request that was alone, in µs. Some of it overlaps with accesses.
fn units_us(load: &Load, alone: &Outcome) -> f64 {
    let (units, busy) = (&load.card.accelerator, alone.units);
    let kinds = [
        (busy.key_search, units.key_search_units),
        (busy.shortcut, units.shortcut_units),
        (busy.log, units.log_units),
        (busy.sorted, units.sorted_units),
    ];
    kinds.iter().map(|(busy, count)| busy * f64::from(*count)).sum::<f64>() * alone.latency_us
}
