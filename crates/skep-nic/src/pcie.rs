//! A PCIe link and the DMA engine before it (KV-Direct, sections 2.4 and 4).
//!
//! ```text
//!              ┌ DMA engine ┐         ┌── link ──┐
//! read   ─ tag ┼────────────┼─ credit ┼── up ────┼▶ host: latency, memory
//!        ◀─────┼─ words ◀───┼─ order ◀┼── down ◀─┤   one TLP for up to 256 bytes
//! write  ──────┼─ words ────┼─ credit ┼── up ────┼▶
//!              └ half duplex┘         └──────────┘
//! ```
//!
//! Every TLP is answered by a link packet in the other direction. A write is done, for who asked for it, when its
//! last TLP has left; PCIe posts writes. Credits come back a round trip after their TLP has left.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::clock::{self, Clock};
use crate::hardware::{Hardware, HostDram, Pcie};
use crate::resource::{Credits, Order, Path, Slots};
use crate::time::Time;

/// Where the host has the bytes that a read asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// In the processor's cache, as after the processor has written them.
    Cache,
    /// In memory.
    Memory,
}

/// Memory of the host, which all links share.
#[derive(Debug)]
pub struct HostMemory {
    bandwidth_gb_per_s: f64,
    channels: Path,
}

impl HostMemory {
    /// Idle memory.
    pub fn new(spec: &HostDram) -> Self {
        HostMemory { bandwidth_gb_per_s: spec.bandwidth_gb_per_s, channels: Path::default() }
    }

    /// Moves whole lines; answers when that is done.
    pub fn reserve(&self, now: Time, bytes: u32) -> Time {
        let bytes = u64::from(bytes.next_multiple_of(64));
        self.channels.reserve(now, Time::of_bytes(bytes, self.bandwidth_gb_per_s))
    }
}

/// One link of a NIC.
#[derive(Debug)]
pub struct Link {
    clock: Rc<Clock>,
    host: Rc<HostMemory>,
    spec: Pcie,
    cycle: Time,
    tags: Slots,
    /// Reads take turns among them; in each, answers leave in the order of the requests.
    queues: Vec<Order>,
    next_queue: Cell<usize>,
    nonposted: Credits,
    posted: Credits,
    up: Path,
    down: Path,
    engine: Path,
    engine_direction: Cell<Direction>,
    /// Of a read, apart from what the engine and the link take.
    host_cached: Time,
    host_uncached: Vec<(f64, Time)>,
    random: RefCell<Xoshiro256PlusPlus>,
    under_way: Cell<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

impl Link {
    /// An idle link. The seed decides the latencies of its reads.
    pub fn new(clock: Rc<Clock>, host: Rc<HostMemory>, hardware: &Hardware, seed: u64) -> Self {
        let spec = hardware.pcie.clone();
        let of_host = |ns: f64| Time::from_ns(ns).saturating_sub(hardware.idle_read_of_the_engine());
        Link {
            clock,
            host,
            cycle: Time::cycle(spec.dma_engine.clock_mhz),
            tags: Slots::new(spec.read_tags),
            queues: (0..spec.dma_engine.ordered_queues).map(|_| Order::default()).collect(),
            next_queue: Cell::new(0),
            nonposted: Credits::new(spec.nonposted_credits),
            posted: Credits::new(spec.posted_credits),
            up: Path::default(),
            down: Path::default(),
            engine: Path::default(),
            engine_direction: Cell::new(Direction::Read),
            host_cached: of_host(spec.read_cached_ns),
            host_uncached: spec.read_uncached_ns.iter().map(|(percent, ns)| (percent / 100.0, of_host(*ns))).collect(),
            random: RefCell::new(Xoshiro256PlusPlus::seed_from_u64(seed)),
            under_way: Cell::new(0),
            spec,
        }
    }

    /// Transfers that have begun and not ended.
    pub fn under_way(&self) -> u32 {
        self.under_way.get()
    }

    /// Reads adjacent bytes of the host, in requests of at most a TLP's payload that are under way together.
    pub async fn read(&self, bytes: u32, residence: Residence) {
        self.under_way.set(self.under_way.get() + 1);
        if bytes <= self.spec.payload_max_bytes {
            self.read_request(bytes, residence).await;
        } else {
            let width = self.spec.read_tags as usize;
            clock::all(width, self.parts(bytes).map(|part| self.read_request(part, residence))).await;
        }
        self.under_way.set(self.under_way.get() - 1);
    }

    /// Writes adjacent bytes of the host; ends when they have left. Answers when they arrive.
    pub async fn write(&self, bytes: u32) -> Time {
        self.under_way.set(self.under_way.get() + 1);
        let mut sent = self.clock.now();
        for part in self.parts(bytes) {
            sent = self.write_packet(part).await;
        }
        self.under_way.set(self.under_way.get() - 1);
        sent + self.one_way()
    }

    /// From one end of the link to the other.
    pub fn one_way(&self) -> Time {
        Time::from_ns(self.spec.round_trip_ns / 2.0)
    }

    fn parts(&self, bytes: u32) -> impl Iterator<Item = u32> {
        let max = self.spec.payload_max_bytes;
        (0..bytes).step_by(max as usize).map(move |start| max.min(bytes - start))
    }

    async fn read_request(&self, bytes: u32, residence: Residence) {
        let _tag = self.tags.take().await;
        let queue = &self.queues[self.next_queue.get()];
        self.next_queue.set((self.next_queue.get() + 1) % self.queues.len());
        let number = queue.join();
        // The request makes room for the answer to the data, and the data for the answer to the request.
        let request = || self.send(&self.up, self.spec.tlp_overhead_bytes + self.spec.link_packet_bytes);
        let sent = self.nonposted.spend(&self.clock, self.round_trip(), request).await;
        let ready = match residence {
            Residence::Cache => sent + self.host_cached,
            Residence::Memory => self.host.reserve(sent, bytes).max(sent + self.uncached()),
        };
        self.clock.until(ready).await;
        let data = bytes + self.spec.tlp_overhead_bytes + self.spec.link_packet_bytes;
        self.clock.until(self.send(&self.down, data)).await;
        queue.leave(number).await;
        self.clock.until(self.through_engine(Direction::Read, bytes)).await;
    }

    async fn write_packet(&self, bytes: u32) -> Time {
        self.clock.until(self.through_engine(Direction::Write, bytes)).await;
        let data = || self.send(&self.up, bytes + self.spec.tlp_overhead_bytes);
        let sent = self.posted.spend(&self.clock, self.round_trip(), data).await;
        self.send(&self.down, self.spec.link_packet_bytes);
        self.host.reserve(sent, bytes);
        self.clock.until(sent).await;
        sent
    }

    /// Puts bytes on one direction of the link; answers when the last of them has passed.
    fn send(&self, path: &Path, bytes: u32) -> Time {
        path.reserve(self.clock.now(), Time::of_bytes(bytes.into(), self.spec.bandwidth_gb_per_s))
    }

    fn through_engine(&self, direction: Direction, payload: u32) -> Time {
        let engine = &self.spec.dma_engine;
        let mut cycles = payload.div_ceil(engine.word_bytes);
        cycles += match direction {
            Direction::Read => engine.read_header_cycles,
            Direction::Write => engine.write_header_cycles,
        };
        if self.engine_direction.replace(direction) != direction {
            cycles += engine.turnaround_cycles;
        }
        self.engine.reserve(self.clock.now().next_edge(self.cycle), self.cycle * u64::from(cycles))
    }

    fn round_trip(&self) -> Time {
        Time::from_ns(self.spec.round_trip_ns)
    }

    /// Draws the host's part of the latency of a read from memory.
    fn uncached(&self) -> Time {
        let drawn: f64 = self.random.borrow_mut().random();
        let above = self.host_uncached.partition_point(|(share, _)| *share <= drawn);
        let (from, to) = (self.host_uncached[above - 1], self.host_uncached[above]);
        let part = (drawn - from.0) / (to.0 - from.0);
        from.1 + Time::from_ns((to.1 - from.1).as_ns() * part)
    }
}
