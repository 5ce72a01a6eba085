//! An RDMA NIC: how it gets work requests, and how it handles verbs (HERD, section 3.3).
//!
//! ```text
//! process ─ work request in units of 64 B ─▶ PIO ─▶ one of the units ─ context? ─▶ engine ─▶ network
//!                                                          │ miss
//!                                                          └▶ read of the host's memory over PCIe
//! network ─▶ engine for inbound verbs, which needs no context
//! ```
//!
//! A unit has one verb at a time, from the lookup of its context to the end of its time in the engine. Verbs are
//! assigned to units in the order in which their work requests arrive. A READ holds one of the slots of its queue pair
//! until its data have arrived.
//!
//! The rates of the engine are constants. They contain all that the NIC does for a verb, such as DMA of the payload.

use std::cell::RefCell;
use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::card::RdmaNic;
use super::contexts::ContextCache;
use crate::clock::Clock;
use crate::dram::Dram;
use crate::pcie::{Link, Residence};
use crate::resource::{Path, Slots};
use crate::time::Time;

/// An outbound verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A WRITE over a connection, whose payload is in the work request.
    Write,
    /// A SEND as a datagram, whose payload is in the work request.
    Send,
    /// A READ over a connection. Its payload arrives later.
    Read,
}

/// An RDMA NIC.
#[derive(Debug)]
pub struct Nic {
    clock: Rc<Clock>,
    card: RdmaNic,
    pio: Path,
    units: Slots,
    contexts: RefCell<ContextCache>,
    link: Link,
    outbound: Path,
    inbound: Path,
    /// Of each queue pair.
    reads: Vec<Slots>,
}

impl Verb {
    /// Returns the bytes of the work request.
    pub fn work_request_bytes(self, card: &RdmaNic, payload: u32) -> u32 {
        let parts = &card.work_request;
        let inlined = parts.inline_header_bytes + payload;
        parts.control_bytes
            + match self {
                Verb::Write => parts.remote_address_bytes + inlined,
                Verb::Send => parts.datagram_bytes + inlined,
                Verb::Read => parts.remote_address_bytes + parts.data_pointer_bytes,
            }
    }

    /// Returns the units that the CPU writes for the work request.
    pub fn pio_units(self, card: &RdmaNic, payload: u32) -> u32 {
        self.work_request_bytes(card, payload).div_ceil(card.pio.unit_bytes)
    }

    /// Returns the time of the engine. The work for a SEND is that for a WRITE (section 3.3).
    fn engine_time(self, card: &RdmaNic) -> Time {
        Time::cycle(match self {
            Verb::Write | Verb::Send => card.engine.outbound_write_mops,
            Verb::Read => card.engine.outbound_read_mops,
        })
    }
}

impl Nic {
    /// Returns an idle NIC with this number of queue pairs. The seed decides which contexts are replaced, and the
    /// latencies of its reads.
    pub fn new(clock: Rc<Clock>, card: &RdmaNic, queue_pairs: u32, seed: u64) -> Self {
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(seed);
        let host = Rc::new(Dram::of_host(&card.host_dram));
        Nic {
            pio: Path::default(),
            units: Slots::new(card.engine.units),
            contexts: RefCell::new(ContextCache::new(card.contexts.cached, queue_pairs, seeds.random())),
            link: Link::new(Rc::clone(&clock), host, &card.pcie, seeds.random()),
            outbound: Path::default(),
            inbound: Path::default(),
            reads: (0..queue_pairs).map(|_| Slots::new(card.engine.reads_in_flight)).collect(),
            card: card.clone(),
            clock,
        }
    }

    /// Handles an outbound verb. Ends when the engine has handled it, and for a READ when its data have arrived.
    pub async fn outbound(&self, verb: Verb, payload: u32, queue_pair: u32) {
        let unit = Time::cycle(self.card.pio.million_units_per_s);
        let written = unit * u64::from(verb.pio_units(&self.card, payload));
        self.clock.until(self.pio.reserve(self.clock.now(), written)).await;
        let _read = match verb {
            Verb::Read => Some(self.reads[queue_pair as usize].take().await),
            Verb::Write | Verb::Send => None,
        };
        self.with_context(verb, queue_pair).await;
        if verb == Verb::Read {
            self.clock.after(Time::from_ns(self.card.network.round_trip_us * 1e3)).await;
        }
    }

    /// Handles an inbound WRITE.
    pub async fn inbound_write(&self) {
        let time = Time::cycle(self.card.engine.inbound_write_mops);
        self.clock.until(self.inbound.reserve(self.clock.now(), time)).await;
    }

    /// Returns how long the path of work requests was busy.
    pub fn pio_busy(&self) -> Time {
        self.pio.busy()
    }

    /// Returns how long the engine was busy with outbound verbs.
    pub fn outbound_busy(&self) -> Time {
        self.outbound.busy()
    }

    /// Returns the share of the outbound verbs whose contexts were not on the NIC.
    pub fn miss_ratio(&self) -> f64 {
        self.contexts.borrow().miss_ratio()
    }

    async fn with_context(&self, verb: Verb, queue_pair: u32) {
        let _unit = self.units.take().await;
        let is_cached = self.contexts.borrow_mut().look_up(queue_pair);
        if !is_cached {
            let bytes = self.card.contexts.bytes;
            self.link.read(u64::from(queue_pair) * u64::from(bytes), bytes, Residence::Memory).await;
            self.contexts.borrow_mut().load(queue_pair);
        }
        self.clock.until(self.outbound.reserve(self.clock.now(), verb.engine_time(&self.card))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::run;
    use crate::resource::Meter;

    /// Returns a NIC with these queue pairs, on which only the engine takes time.
    fn nic(change: impl FnOnce(&mut RdmaNic), queue_pairs: u32) -> (Nic, Rc<Clock>) {
        let mut card = RdmaNic::of_herd();
        card.pio.million_units_per_s = 1e6;
        change(&mut card);
        let clock = Rc::new(Clock::default());
        (Nic::new(Rc::clone(&clock), &card, queue_pairs, 1), clock)
    }

    #[test]
    fn work_requests_are_written_in_whole_units() {
        let mut card = RdmaNic::of_herd();
        for (verb, payload, bytes, units) in [
            (Verb::Write, 0, 36, 1),
            (Verb::Write, 28, 64, 1),
            (Verb::Write, 29, 65, 2),
            (Verb::Write, 92, 128, 2),
            (Verb::Write, 256, 292, 5),
            (Verb::Send, 0, 68, 2),
            (Verb::Send, 60, 128, 2),
            (Verb::Send, 61, 129, 3),
            (Verb::Read, 1024, 48, 1),
        ] {
            assert_eq!(verb.work_request_bytes(&card, payload), bytes, "{verb:?}, {payload} B");
            assert_eq!(verb.pio_units(&card, payload), units, "{verb:?}, {payload} B");
        }
        card.pio.unit_bytes = 8;
        assert_eq!([28, 29, 36, 37].map(|payload| Verb::Write.pio_units(&card, payload)), [8, 9, 9, 10]);
    }

    #[test]
    fn the_engine_handles_one_verb_after_the_other() {
        for (verb, mops) in [(Verb::Write, 40.0), (Verb::Send, 40.0), (Verb::Read, 10.0)] {
            let change = |card: &mut RdmaNic| {
                card.engine.outbound_write_mops = 40.0;
                card.engine.outbound_read_mops = 10.0;
            };
            let (nic, clock) = nic(change, 16);
            let meter = Meter::default();
            let post = async |number: u32| {
                nic.outbound(verb, 0, number % 16).await;
                meter.count(&clock);
            };
            run(&clock, 256, (0..4000).map(post));
            assert!((meter.mops() / mops - 1.0).abs() < 0.01, "{verb:?}: {}", meter.mops());
        }
        let (nic, clock) = nic(|card| card.engine.inbound_write_mops = 50.0, 1);
        run(&clock, 8, (0..100).map(|_| nic.inbound_write()));
        assert_eq!(clock.now(), Time::from_ns(2000.0));
    }

    /// 16 READs in a round trip of 2 µs and their time in the engine are fewer than the engine could handle.
    #[test]
    fn reads_of_one_queue_pair_are_bound_by_their_slots() {
        let (nic, clock) = nic(|card| card.engine.outbound_read_mops = 100.0, 1);
        let meter = Meter::default();
        let post = async |_: u32| {
            nic.outbound(Verb::Read, 32, 0).await;
            meter.count(&clock);
        };
        run(&clock, 64, (0..1600).map(post));
        assert!((7.5..8.0).contains(&meter.mops()), "{}", meter.mops());
    }

    /// Every verb misses, and `units` reads of a fixed latency are in flight.
    #[test]
    fn misses_are_bound_by_the_reads_that_the_units_wait_for() {
        for units in [1, 2, 8] {
            let change = |card: &mut RdmaNic| {
                (card.engine.units, card.engine.outbound_write_mops) = (units, 1e3);
                card.contexts.cached = 1;
                card.pcie.read_uncached_ns = vec![(0.0, 1000.0), (100.0, 1000.0)];
                card.contexts.bytes = 64;
            };
            let (nic, clock) = nic(change, 4096);
            let meter = Meter::default();
            let post = async |number: u32| {
                nic.outbound(Verb::Write, 0, 1 + number % 4095).await;
                meter.count(&clock);
            };
            run(&clock, 64, (0..4000).map(post));
            let expected = f64::from(units) / 1.001;
            assert!((meter.mops() / expected - 1.0).abs() < 0.03, "{units}: {}, not {expected}", meter.mops());
            assert_eq!(nic.miss_ratio(), 1.0);
        }
    }
}
