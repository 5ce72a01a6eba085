//! What is possible for links and their DMA engines.

use super::{HardwareError, Pcie, bounds, refuse};
use crate::time::Time;

/// Largest number of links. Each link has its own seed and queues.
const LINKS_MAX: u32 = 64;

impl Pcie {
    /// Checks that all values are possible.
    pub(crate) fn check(&self) -> Result<(), HardwareError> {
        let engine = &self.dma_engine;
        bounds::sizes_and_times(&[
            ("pcie.bandwidth_gb_per_s", self.bandwidth_gb_per_s),
            ("pcie.round_trip_ns", self.round_trip_ns),
            ("pcie.read_cached_ns", self.read_cached_ns),
            ("pcie.write_confirmed_ns", self.write_confirmed_ns),
            ("pcie.dma_engine.clock_mhz", engine.clock_mhz),
        ])?;
        bounds::counts(&[
            ("pcie.read_tags", self.read_tags),
            ("pcie.nonposted_credits", self.nonposted_credits),
            ("pcie.posted_credits", self.posted_credits),
            ("pcie.host_posted_credits", self.host_posted_credits),
            ("pcie.dma_engine.ordered_queues", engine.ordered_queues),
        ])?;
        if !(1..=LINKS_MAX).contains(&self.links) {
            return refuse("pcie.links", format!("{} is not between 1 and {LINKS_MAX}", self.links));
        }
        bounds::counts_or_zero(&[
            ("pcie.tlp_overhead_bytes", self.tlp_overhead_bytes),
            ("pcie.link_packet_bytes", self.link_packet_bytes),
            ("pcie.dma_engine.write_header_cycles", engine.write_header_cycles),
            ("pcie.dma_engine.read_request_cycles", engine.read_request_cycles),
            ("pcie.dma_engine.read_header_cycles", engine.read_header_cycles),
        ])?;
        self.check_together()
    }

    /// Checks values that are possible alone but may contradict each other.
    fn check_together(&self) -> Result<(), HardwareError> {
        let payload = self.payload_max_bytes;
        if !(64..=4096).contains(&payload) || !payload.is_power_of_two() {
            return refuse("pcie.payload_max_bytes", format!("{payload} is not one of 64, 128, … 4096"));
        }
        let part = self.read_completion_bytes;
        if !(64..=payload).contains(&part) || !part.is_power_of_two() {
            let reason = format!("{part} is not a power of two from 64 to the {payload} of payload_max_bytes");
            return refuse("pcie.read_completion_bytes", reason);
        }
        if !self.dma_engine.word_bytes.is_power_of_two() || self.dma_engine.word_bytes > payload {
            let word = self.dma_engine.word_bytes;
            return refuse("pcie.dma_engine.word_bytes", format!("{word} is not a power of two up to {payload}"));
        }
        let points = &self.read_uncached_ns;
        let ends = (points.first().map(|point| point.0), points.last().map(|point| point.0));
        if ends != (Some(0.0), Some(100.0)) {
            return refuse("pcie.read_uncached_ns", "the percentiles are not from 0 to 100".to_owned());
        }
        if let Some(pair) = points.windows(2).find(|pair| !(pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1)) {
            return refuse("pcie.read_uncached_ns", format!("{:?} is not below {:?}", pair[0], pair[1]));
        }
        let own = self.idle_read_of_the_engine().as_ns();
        let fastest = points[0].1.min(self.read_cached_ns);
        if !(fastest > own && points[points.len() - 1].1 <= 1e9) {
            let reason =
                format!("{fastest} ns for 64 bytes is too fast: the link and its engine alone take {own:.1} ns");
            return refuse("pcie.read_uncached_ns", reason);
        }
        if self.round_trip_ns > fastest {
            let reason = format!("{} is more than the {fastest} ns of a whole read", self.round_trip_ns);
            return refuse("pcie.round_trip_ns", reason);
        }
        Ok(())
    }

    /// Returns a warning if the link is faster than its DMA engine.
    pub(crate) fn warning(&self) -> Option<String> {
        let (link, engine) = (self.bandwidth_gb_per_s, &self.dma_engine);
        let moved = engine.clock_mhz * f64::from(engine.word_bytes) / 1e3;
        let is_slower = moved < link;
        let warning = || {
            format!(
                "pcie.bandwidth_gb_per_s: {link} is more than the {moved} GB/s of pcie.dma_engine, {} MHz times {} B: the \
                 engine limits the link",
                engine.clock_mhz, engine.word_bytes
            )
        };
        is_slower.then(warning)
    }

    /// Returns the time that a read of 64 bytes spends in the engine and on an idle link. The rest of its latency is
    /// the host's.
    pub(crate) fn idle_read_of_the_engine(&self) -> Time {
        let bytes = 2 * (self.tlp_overhead_bytes + self.link_packet_bytes) + 64;
        let engine = &self.dma_engine;
        let cycles = engine.read_request_cycles + engine.read_header_cycles + 64_u32.div_ceil(engine.word_bytes.max(1));
        Time::of_bytes(bytes.into(), self.bandwidth_gb_per_s) + Time::cycle(engine.clock_mhz) * u64::from(cycles)
    }
}
