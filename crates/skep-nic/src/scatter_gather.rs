//! Cores of the host that gather and scatter for the NIC (KV-Direct, section 6.1, Fig. 18, 19).
//!
//! ```text
//! gather   NIC ─ addresses ─▶ request queue ─▶ core: random reads ─▶ response queue ─ doorbell ─▶ NIC reads it, 256 B a TLP
//! scatter  NIC ─ addresses and data ─▶ request queue ─▶ core: random writes ─ doorbell ─▶ NIC may use the queue again
//! ```
//!
//! PCIe then carries full TLPs only. What it costs is a core's time and a batch's latency: all operations of a batch
//! share one doorbell.

use std::rc::Rc;

use crate::clock::Clock;
use crate::hardware::HostCpu;
use crate::pcie::{Link, Residence};
use crate::resource::Slots;
use crate::time::Time;

/// Bytes that say where an operation's data lie.
const ADDRESS_BYTES: u32 = 8;
const LINE_BYTES: u32 = 64;

/// Cores that work for one link.
#[derive(Debug)]
pub struct ScatterGather {
    clock: Rc<Clock>,
    link: Link,
    spec: HostCpu,
    cores: Slots,
}

impl ScatterGather {
    /// Idle cores.
    pub fn new(clock: Rc<Clock>, link: Link, spec: HostCpu, cores: u32) -> Self {
        ScatterGather { clock, link, spec, cores: Slots::new(cores) }
    }

    /// Reads a batch of random runs of so many bytes each.
    pub async fn gather(&self, bytes: u32) {
        let operations = self.spec.doorbell_operations;
        let arrival = self.link.write(operations * ADDRESS_BYTES).await;
        self.clock.until(arrival).await;
        self.work(bytes).await;
        self.link.read(operations * bytes, Residence::Cache).await;
    }

    /// Writes a batch of random runs of so many bytes each.
    pub async fn scatter(&self, bytes: u32) {
        let arrival = self.link.write(self.spec.doorbell_operations * (ADDRESS_BYTES + bytes)).await;
        self.clock.until(arrival).await;
        self.work(bytes).await;
    }

    /// What a core takes for a batch, with the doorbell's way to the NIC.
    async fn work(&self, bytes: u32) {
        let core = self.cores.take().await;
        self.clock.after(self.batch_span(bytes)).await;
        drop(core);
        self.clock.after(self.link.one_way()).await;
    }

    /// How long a core is busy with a batch.
    pub fn batch_span(&self, bytes: u32) -> Time {
        let spec = &self.spec;
        let lines = f64::from(bytes.div_ceil(LINE_BYTES));
        let access = spec.first_line_ns + spec.next_line_ns * (lines - 1.0);
        let copied = lines + f64::from(ADDRESS_BYTES) / f64::from(LINE_BYTES);
        Time::from_ns((access + spec.copy_line_ns * copied) * f64::from(spec.doorbell_operations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::run;
    use crate::hardware::Hardware;
    use crate::pcie::HostMemory;

    #[test]
    fn a_batch_takes_the_core_and_both_ways() {
        let hardware = Hardware::kv_direct_one_link();
        let clock = Rc::new(Clock::default());
        let host = Rc::new(HostMemory::new(&hardware.host_dram));
        let link = Link::new(Rc::clone(&clock), host, &hardware, 1);
        let cores = ScatterGather::new(Rc::clone(&clock), link, hardware.host_cpu, 1);
        run(&clock, 1, [cores.gather(64)]);
        let core = cores.batch_span(64);
        // Sent, 250 ns; worked on; 250 ns; 16 KiB read, of which the first bytes take 800 ns.
        let rest = (clock.now() - core).as_us();
        assert!((9.0..11.0).contains(&core.as_us()) && (3.5..4.5).contains(&rest), "{core} and {rest} µs");
    }
}
