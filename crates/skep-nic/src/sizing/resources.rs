//! The resources of a board: how busy they were, the rate that each alone would allow, and the rate if it is doubled.
//!
//! | part | bound |
//! |---|---|
//! | decoder, DMA engine, directions of a link, DRAM, wires, cores | operations over the sum of their transfers' times |
//! | credits | the same: a credit is away for the round trip of a packet |
//! | tags | tags over the reads of an operation and the latency of a read on an idle link |
//! | operations in flight | their largest number over the time in flight at half the load |
//!
//! So a bound has no waiting times in it. The simulated rate is below the lowest bound, because waiting times of several
//! parts add up, and because the load of a part varies.

use super::GAIN_MIN;
use crate::hardware::Hardware;
use crate::load::run::Outcome;
use crate::network::{operations_per_packet, packet_bytes};
use crate::time::Time;

/// A resource that can be the bottleneck.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Its name.
    pub name: &'static str,
    /// Its parts, at least one.
    pub parts: Vec<Part>,
    /// Millions of operations a second if it is doubled and l is chosen again.
    pub mops_if_doubled: f64,
}

/// A part of a resource. With several NICs, it is that of the busiest one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// The share of the time in which it was busy.
    pub busy: f64,
    /// Millions of operations a second that it alone would allow, of all NICs: infinite if it is not used.
    pub bound_mops: f64,
}

/// A change of the hardware.
pub(super) struct Change {
    /// The name of what is doubled.
    pub(super) name: &'static str,
    /// Doubles it.
    pub(super) apply: fn(&mut Hardware),
}

/// The doublings of all resources. A board may lack the last one.
pub(super) const DOUBLINGS: [Change; 7] = [
    Change { name: "clock", apply: |board| board.card.clock_mhz *= 2.0 },
    Change { name: "operations in flight", apply: |board| board.processor.operations_in_flight *= 2 },
    Change { name: "PCIe", apply: |board| board.pcie.links *= 2 },
    Change { name: "NIC DRAM", apply: |board| board.nic_dram.bandwidth_gb_per_s *= 2.0 },
    Change { name: "host DRAM", apply: |board| board.host_dram.bandwidth_gb_per_s *= 2.0 },
    Change { name: "network", apply: |board| board.network.bandwidth_gb_per_s *= 2.0 },
    Change { name: HOST_CORES, apply: |board| board.host_cpu.cores_per_link *= 2 },
];

/// The resource that a board may lack.
pub(super) const HOST_CORES: &str = "host cores";

/// The parts of PCIe that can be widened without a second link.
pub(super) const PARTS_OF_PCIE: [Change; 4] = [
    Change { name: "clock of the DMA engine", apply: |board| board.pcie.dma_engine.clock_mhz *= 2.0 },
    Change { name: "bandwidth of the link", apply: |board| board.pcie.bandwidth_gb_per_s *= 2.0 },
    Change {
        name: "tags and credits",
        apply: |board| {
            board.pcie.read_tags *= 2;
            board.pcie.nonposted_credits *= 2;
            board.pcie.posted_credits *= 2;
        },
    },
    Change {
        name: "all three",
        apply: |board| {
            board.pcie.dma_engine.clock_mhz *= 2.0;
            board.pcie.bandwidth_gb_per_s *= 2.0;
            board.pcie.read_tags *= 2;
            board.pcie.nonposted_credits *= 2;
            board.pcie.posted_credits *= 2;
        },
    },
];

/// The runs from which shares of busy time and bounds follow.
pub(super) struct Observed<'a> {
    pub(super) hardware: &'a Hardware,
    /// The run at the full rate.
    pub(super) run: &'a Outcome,
    /// Mean time in flight of a request at half the load.
    pub(super) unhindered: Time,
}

impl Resource {
    /// Returns the busiest part.
    pub fn busiest(&self) -> Part {
        self.parts.iter().copied().max_by(|one, other| one.busy.total_cmp(&other.busy)).expect("it has a part")
    }

    /// Returns the part with the lowest bound, which limits the others.
    pub fn narrowest(&self) -> Part {
        let lowest = self.parts.iter().copied().min_by(|one, other| one.bound_mops.total_cmp(&other.bound_mops));
        lowest.expect("it has a part")
    }
}

impl Observed<'_> {
    /// Returns the parts of a resource.
    pub(super) fn parts(&self, name: &str) -> Vec<Part> {
        let Observed { hardware, run, .. } = self;
        let (busiest, load) = (&run.busiest, &run.busiest.load);
        match name {
            "clock" => {
                let cycles = Time::cycle(hardware.card.clock_mhz) * u64::from(busiest.requests);
                vec![self.part("decoder", cycles.share_of(run.span))]
            }
            "operations in flight" => {
                let slots = f64::from(hardware.processor.operations_in_flight);
                let busy = busiest.held.share_of(run.span) / slots;
                let unhindered = self.unhindered.as_us() * f64::from(busiest.requests) / slots;
                vec![Part { bound_mops: self.operations() / unhindered, ..self.part("in flight", busy) }]
            }
            "PCIe" => vec![
                self.read_tags(),
                self.part("read credits", load.read_credits),
                self.part("write credits", load.write_credits),
                self.part("DMA engine", load.dma_engine),
                self.part("link to the host", load.up),
                self.part("link from the host", load.down),
            ],
            "NIC DRAM" => vec![self.part("channels of the NIC", load.nic_dram)],
            "host DRAM" => vec![self.part("channels of the host", load.host_dram)],
            HOST_CORES => vec![self.part("cores", load.host_cores)],
            _ => {
                let [requests, replies] = busiest.carried_bytes.map(|bytes| self.on_wire(bytes));
                vec![self.part("requests", requests), self.part("replies", replies)]
            }
        }
    }

    /// Returns the tags of reads. A read credit is away for the round trip of a packet, which tells the number of reads.
    fn read_tags(&self) -> Part {
        let (pcie, load) = (&self.hardware.pcie, &self.run.busiest.load);
        let reads = load.read_credits * f64::from(pcie.nonposted_credits) * self.run.span.as_ns() / pcie.round_trip_ns;
        let points = &pcie.read_uncached_ns;
        let idle_ns: f64 =
            points.windows(2).map(|two| (two[1].0 - two[0].0) / 100.0 * f64::midpoint(two[0].1, two[1].1)).sum();
        let held_us = reads * idle_ns / 1e3 / f64::from(pcie.read_tags);
        Part { bound_mops: self.operations() / held_us, ..self.part("read tags", load.read_tags) }
    }

    /// Returns a part that is never idle at its bound.
    fn part(&self, name: &'static str, busy: f64) -> Part {
        Part { name, busy, bound_mops: self.operations() / (busy * self.run.span.as_us()) }
    }

    /// Returns the operations of all NICs in the run.
    fn operations(&self) -> f64 {
        self.run.latencies.len() as f64
    }

    /// Returns the share of the time that a wire needs for these bytes. Packets that are not full would occupy the wire
    /// at any load. The figure for full packets shows the required bandwidth.
    fn on_wire(&self, bytes: u64) -> f64 {
        let (spec, requests) = (&self.hardware.network, f64::from(self.run.busiest.requests));
        let mean = (bytes as f64 / requests).round() as u32;
        let together = operations_per_packet(spec, mean);
        let packet = Time::of_bytes(packet_bytes(spec, together, mean).into(), spec.bandwidth_gb_per_s);
        packet.as_us() / f64::from(together) * requests / self.run.span.as_us()
    }
}

/// A resource that is busy for a smaller share of the time is not the bottleneck.
pub(super) const BUSY_MIN: f64 = 0.4;

/// Returns the resource whose doubling gains most, of those that are busy. If none gains, because two are balanced,
/// returns the busiest.
pub(super) fn bottleneck(resources: &[Resource], mops: f64) -> &'static str {
    let most = |of: fn(&Resource) -> f64| {
        resources.iter().max_by(|one, other| of(one).total_cmp(&of(other))).expect("there are resources")
    };
    let gain = |resource: &Resource| {
        if resource.busiest().busy < BUSY_MIN { 0.0 } else { resource.mops_if_doubled }
    };
    let gains = most(gain);
    let is_gain = gains.mops_if_doubled > (1.0 + GAIN_MIN) * mops;
    if is_gain { gains.name } else { most(|resource| resource.busiest().busy).name }
}
