//! A PCIe link and its DMA engine (KV-Direct, sections 2.4 and 4).
//!
//! ```text
//!              ┌ DMA engine ┐         ┌── link ──┐
//! read   ─ tag ┼─ request ┐ │         │          │
//! write  ──────┼─ words ──┴─┼─ credit ┼── up ────┼▶ host: latency, memory
//!  data  ◀─────┼─ words ◀───┼─ order ◀┼── down ◀─┤   one TLP for up to 256 bytes
//!              └────────────┘         └──────────┘
//! ```
//!
//! Requests of reads and written TLPs take turns on the engine's path to the link, in the order of their arrival. So a
//! mix of reads and writes of a line is about as fast as either alone, and not as fast as both together: Figures 14 and
//! 16a.
//!
//! The receiver acknowledges every TLP by a link packet in the other direction. PCIe posts writes, so a write has no
//! reply. The DMA engine reports it a fixed time after its last TLP has left. A credit returns one round trip after its
//! TLP has left. The host writes to the card in the same way, with credits of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::clock::{self, Clock};
use crate::dram::Dram;
use crate::hardware::Pcie;
use crate::resource::{Credits, Order, Path, Slots};
use crate::time::Time;
use crate::trace::Track;

/// The location of the bytes that a read requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// The processor's cache, as after the processor has written them.
    Cache,
    /// Memory.
    Memory,
}

/// One link of a NIC.
#[derive(Debug)]
pub struct Link {
    clock: Rc<Clock>,
    host: Rc<Dram>,
    spec: Pcie,
    cycle: Time,
    tags: Slots,
    /// Reads are assigned to the queues in turns. In each queue, replies leave in the order of the requests.
    queues: Vec<Order>,
    next_queue: Cell<usize>,
    nonposted: Credits,
    posted: Credits,
    /// Of the host's writes to the card.
    host_posted: Credits,
    up: Path,
    down: Path,
    engine_up: Path,
    engine_down: Path,
    /// Latency of a read from the processor's cache, without the time of engine and link.
    host_cached: Time,
    host_uncached: Vec<(f64, Time)>,
    random: RefCell<Xoshiro256PlusPlus>,
    in_flight: Cell<u32>,
    /// Total time for which tags have been in use.
    tags_held: Cell<Time>,
}

/// The time for which the parts of a link were busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkBusy {
    /// Tags of reads, on average.
    pub read_tags: Time,
    /// Credits of reads, on average.
    pub read_credits: Time,
    /// Credits of writes, on average.
    pub write_credits: Time,
    /// The busier path of the DMA engine.
    pub dma_engine: Time,
    /// From the NIC to the host.
    pub up: Time,
    /// From the host to the NIC.
    pub down: Time,
}

impl Link {
    /// Returns an idle link. The seed decides the latencies of its reads.
    pub fn new(clock: Rc<Clock>, host: Rc<Dram>, spec: &Pcie, seed: u64) -> Self {
        let spec = spec.clone();
        let of_host = |ns: f64| Time::from_ns(ns).saturating_sub(spec.idle_read_of_the_engine());
        Link {
            clock,
            host,
            cycle: Time::cycle(spec.dma_engine.clock_mhz),
            tags: Slots::new(spec.read_tags),
            queues: (0..spec.dma_engine.ordered_queues).map(|_| Order::default()).collect(),
            next_queue: Cell::new(0),
            nonposted: Credits::new(spec.nonposted_credits),
            posted: Credits::new(spec.posted_credits),
            host_posted: Credits::new(spec.host_posted_credits),
            up: Path::default(),
            down: Path::default(),
            engine_up: Path::default(),
            engine_down: Path::default(),
            host_cached: of_host(spec.read_cached_ns),
            host_uncached: spec.read_uncached_ns.iter().map(|(percent, ns)| (percent / 100.0, of_host(*ns))).collect(),
            random: RefCell::new(Xoshiro256PlusPlus::seed_from_u64(seed)),
            in_flight: Cell::new(0),
            tags_held: Cell::default(),
            spec,
        }
    }

    /// Returns the number of transfers in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.get()
    }

    /// Returns how long its parts were busy so far.
    pub fn busy(&self) -> LinkBusy {
        LinkBusy {
            read_tags: self.tags_held.get().part(self.spec.read_tags.into()),
            read_credits: self.nonposted.away(),
            write_credits: self.posted.away(),
            dma_engine: self.engine_up.busy().max(self.engine_down.busy()),
            up: self.up.busy(),
            down: self.down.busy(),
        }
    }

    /// Reads adjacent bytes of the host in requests of at most a TLP's payload, which are in flight together.
    pub async fn read(&self, offset: u64, bytes: u32, residence: Residence) {
        self.in_flight.set(self.in_flight.get() + 1);
        if bytes <= self.spec.payload_max_bytes {
            self.read_request(offset, bytes, residence).await;
        } else {
            let width = self.spec.read_tags as usize;
            let mut at = offset;
            let requests = self.parts(bytes).map(|part| {
                let request = self.read_request(at, part, residence);
                at += u64::from(part);
                request
            });
            clock::all(width, requests).await;
        }
        self.in_flight.set(self.in_flight.get() - 1);
    }

    /// Writes bytes of the card from the host: posted, with the card's credits. Ends when they have arrived.
    pub async fn host_write(&self, bytes: u32) {
        let packet = async |part: u32| {
            let data = || self.send(&self.down, part + self.spec.tlp_overhead_bytes);
            let sent = self.host_posted.spend(&self.clock, self.round_trip(), data).await;
            self.send(&self.up, self.spec.link_packet_bytes);
            self.clock.until(sent + self.one_way()).await;
        };
        clock::all(self.spec.host_posted_credits as usize, self.parts(bytes).map(packet)).await;
    }

    /// Writes adjacent bytes of the host. Ends when they have left. Returns the time at which they arrive.
    pub async fn write(&self, bytes: u32) -> Time {
        self.in_flight.set(self.in_flight.get() + 1);
        let arrival = Cell::new(Time::ZERO);
        let packet = async |part: u32| arrival.set(self.write_packet(part).await + self.one_way());
        if bytes <= self.spec.payload_max_bytes {
            packet(bytes).await;
        } else {
            // While one packet is on the link, the words of the next pass the engine.
            clock::all(2, self.parts(bytes).map(packet)).await;
        }
        self.in_flight.set(self.in_flight.get() - 1);
        arrival.get()
    }

    /// Returns the time after the last TLP of a write until the engine reports the write.
    pub fn write_confirmed(&self) -> Time {
        Time::from_ns(self.spec.write_confirmed_ns)
    }

    /// Returns the time from one end of the link to the other.
    fn one_way(&self) -> Time {
        Time::from_ns(self.spec.round_trip_ns / 2.0)
    }

    fn parts(&self, bytes: u32) -> impl Iterator<Item = u32> {
        let max = self.spec.payload_max_bytes;
        (0..bytes).step_by(max as usize).map(move |start| max.min(bytes - start))
    }

    /// Returns the number of TLPs in which the host sends adjacent bytes.
    fn completions(&self, offset: u64, bytes: u32) -> u32 {
        let boundary = u64::from(self.spec.read_completion_bytes);
        ((offset + u64::from(bytes)).div_ceil(boundary) - offset / boundary) as u32
    }

    /// Carries bytes that no operation waits for: lines of free slabs. Each is charged as a read, also if it is written.
    pub fn carry_aside(&self, bytes: u32) {
        self.through_engine(&self.engine_up, self.spec.dma_engine.read_request_cycles, 0);
        let completions = self.completions(0, bytes);
        let sent = self.send(&self.up, self.spec.tlp_overhead_bytes + self.spec.link_packet_bytes * completions);
        self.host.reserve(sent, bytes);
        self.send(&self.down, bytes + self.spec.tlp_overhead_bytes * completions + self.spec.link_packet_bytes);
        self.through_engine(&self.engine_down, self.spec.dma_engine.read_header_cycles * completions, bytes);
    }

    async fn read_request(&self, offset: u64, bytes: u32, residence: Residence) {
        let waiting = self.clock.span(|| "waits for a tag".to_owned());
        let _tag = self.tags.take().await;
        drop(waiting);
        let begun = self.clock.now();
        let queue = &self.queues[self.next_queue.get()];
        self.next_queue.set((self.next_queue.get() + 1) % self.queues.len());
        let number = queue.join();
        let requesting = self.clock.span(|| "request through the DMA engine".to_owned());
        self.clock.until(self.through_engine(&self.engine_up, self.spec.dma_engine.read_request_cycles, 0)).await;
        drop(requesting);
        // The request's direction also carries the link packets for the data, and the data's direction that for the
        // request.
        let completions = self.completions(offset, bytes);
        let acknowledged = self.spec.link_packet_bytes * completions;
        let request = || self.send(&self.up, self.spec.tlp_overhead_bytes + acknowledged);
        let waiting = self.clock.span(|| "waits for a credit".to_owned());
        let sent = self.nonposted.spend(&self.clock, self.round_trip(), request).await;
        drop(waiting);
        let recorder = self.clock.recorder();
        recorder.add(Track::Nic, "read request on the link", self.clock.now(), sent);
        let ready = match residence {
            Residence::Cache => sent + self.host_cached,
            Residence::Memory => self.host.reserve(sent, bytes).max(sent + self.uncached()),
        };
        recorder.add(Track::Nic, "both directions and the host's memory", sent, ready);
        self.clock.until(ready).await;
        let on_link = self.clock.span(|| format!("{bytes} B on the link"));
        let data = bytes + self.spec.tlp_overhead_bytes * completions + self.spec.link_packet_bytes;
        self.clock.until(self.send(&self.down, data)).await;
        drop(on_link);
        let waiting = self.clock.span(|| "waits for earlier replies".to_owned());
        queue.leave(number).await;
        drop(waiting);
        let _engine = self.clock.span(|| format!("{bytes} B through the DMA engine"));
        let headers = self.spec.dma_engine.read_header_cycles * completions;
        self.clock.until(self.through_engine(&self.engine_down, headers, bytes)).await;
        self.tags_held.set(self.tags_held.get() + (self.clock.now() - begun));
    }

    async fn write_packet(&self, bytes: u32) -> Time {
        let engine = self.clock.span(|| format!("{bytes} B through the DMA engine"));
        self.clock.until(self.through_engine(&self.engine_up, self.spec.dma_engine.write_header_cycles, bytes)).await;
        drop(engine);
        let _on_link = self.clock.span(|| format!("{bytes} B on the link"));
        let data = || self.send(&self.up, bytes + self.spec.tlp_overhead_bytes);
        let sent = self.posted.spend(&self.clock, self.round_trip(), data).await;
        self.send(&self.down, self.spec.link_packet_bytes);
        self.host.reserve(sent, bytes);
        self.clock.until(sent).await;
        sent
    }

    /// Sends bytes in one direction of the link. Returns the time at which the last of them has passed.
    fn send(&self, path: &Path, bytes: u32) -> Time {
        path.reserve(self.clock.now(), Time::of_bytes(bytes.into(), self.spec.bandwidth_gb_per_s))
    }

    /// Moves a header and its payload on a path of the engine. Returns the time at which that is done.
    fn through_engine(&self, path: &Path, header_cycles: u32, payload: u32) -> Time {
        let cycles = header_cycles + payload.div_ceil(self.spec.dma_engine.word_bytes);
        path.reserve(self.clock.now().next_edge(self.cycle), self.cycle * u64::from(cycles))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::run;
    use crate::hardware::Hardware;

    fn link(hardware: &Hardware) -> (Link, Rc<Clock>) {
        let clock = Rc::new(Clock::default());
        let host = Rc::new(Dram::of_host(&hardware.host_dram));
        (Link::new(Rc::clone(&clock), host, &hardware.pcie, 5), clock)
    }

    /// Returns the duration of transfers that are requested at once.
    fn span(hardware: &Hardware, bytes: u32, count: usize, writes: bool) -> Time {
        let (link, clock) = link(hardware);
        let transfer = async |_: usize| {
            if writes {
                link.write(bytes).await;
            } else {
                link.read(0, bytes, Residence::Cache).await;
            }
        };
        run(&clock, count, (0..count).map(transfer));
        assert_eq!(link.in_flight(), 0);
        clock.now()
    }

    #[test]
    fn an_idle_read_has_the_latency_of_the_board() {
        assert_eq!(span(&Hardware::kv_direct(), 64, 1, false), Time::from_ns(800.0));
        let (link, clock) = link(&Hardware::kv_direct());
        for _ in 0..1000 {
            let begun = clock.now();
            run(&clock, 1, [link.read(0, 64, Residence::Memory)]);
            let latency = (clock.now() - begun).as_ns();
            // The end waits for an edge of the engine's clock.
            assert!((748.0..=1372.0).contains(&latency) && latency % 4.0 == 0.0, "{latency}");
        }
    }

    #[test]
    fn tags_and_credits_bound_the_transfers_in_flight() {
        let mut board = Hardware::kv_direct();
        // So that 64 tags are a bound of reads from the processor's cache, and the engine is not.
        board.pcie.dma_engine.read_request_cycles = 1;
        let many = span(&board, 64, 640, false);
        assert!((8.0..9.5).contains(&many.as_us()), "ten rounds of 64 tags: {many}");
        board.pcie.read_tags = 16;
        let few = span(&board, 64, 640, false);
        assert!((32.0..35.0).contains(&few.as_us()), "forty rounds of 16 tags: {few}");
        let mut board = Hardware::kv_direct();
        board.pcie.nonposted_credits = 8;
        let few = span(&board, 64, 640, false);
        assert!((40.0..42.0).contains(&few.as_us()), "eighty round trips of the link: {few}");
        board.pcie.posted_credits = 8;
        let few = span(&board, 64, 640, true);
        assert!((40.0..42.0).contains(&few.as_us()), "eighty round trips of the link: {few}");
    }

    #[test]
    fn the_saturated_part_is_busy_all_the_time() {
        type Change = fn(&mut Hardware);
        let busy = |change: Change, writes: bool| {
            let mut board = Hardware::kv_direct();
            change(&mut board);
            let (link, clock) = link(&board);
            let transfer = async |_: u32| {
                if writes {
                    link.write(64).await;
                } else {
                    link.read(0, 64, Residence::Cache).await;
                }
            };
            run(&clock, 2000, (0..2000).map(transfer));
            let busy = link.busy();
            let parts = [busy.read_tags, busy.read_credits, busy.write_credits, busy.dma_engine, busy.up, busy.down];
            parts.map(|part| part.share_of(clock.now()))
        };
        let cases: [(Change, bool, usize); 4] = [
            (|board| board.pcie.read_tags = 16, false, 0),
            (|board| board.pcie.nonposted_credits = 8, false, 1),
            (|board| board.pcie.posted_credits = 8, true, 2),
            (|_| (), true, 3),
        ];
        for (change, writes, saturated) in cases {
            let busy = busy(change, writes);
            assert!(busy[saturated] > 0.93 && busy.iter().all(|share| *share <= 1.01), "{saturated}: {busy:?}");
            // Where credits are short, reads hold a tag while they wait for a credit.
            let others = busy.iter().enumerate().filter(|(part, _)| *part != saturated && (saturated, *part) != (1, 0));
            assert!(others.map(|(_, share)| *share).all(|share| share < 0.9), "{saturated}: {busy:?}");
        }
    }

    #[test]
    fn long_transfers_are_packets_of_at_most_256_bytes() {
        let board = Hardware::kv_direct();
        // The engine passes two full packets of 2 + 8 cycles. The last 32 bytes pass while the second packet is on the
        // link.
        let link = Time::of_bytes(256 + 26, 7.87) + Time::of_bytes(32 + 26, 7.87);
        assert_eq!(span(&board, 512 + 32, 1, true), Time::cycle(250.0) * (10 + 10) + link);
        let (whole, parts) = (span(&board, 1024, 1, false), span(&board, 256, 4, false));
        assert_eq!(whole, parts, "a long read is as many short ones");
    }

    /// Returns a link of this bandwidth without latency, with enough tags and credits, behind a fast engine.
    fn only_bytes(gb_per_s: f64, read_completion_bytes: u32) -> (Link, Rc<Clock>) {
        const MANY: u32 = 1 << 12;
        let mut board = Hardware::kv_direct();
        board.host_dram.bandwidth_gb_per_s = 1e6;
        let pcie = &mut board.pcie;
        pcie.bandwidth_gb_per_s = gb_per_s;
        pcie.read_completion_bytes = read_completion_bytes;
        (pcie.read_tags, pcie.dma_engine.ordered_queues) = (MANY, MANY);
        (pcie.nonposted_credits, pcie.posted_credits, pcie.host_posted_credits) = (MANY, MANY, MANY);
        (pcie.round_trip_ns, pcie.read_cached_ns) = (0.001, 0.001);
        (pcie.dma_engine.clock_mhz, pcie.dma_engine.word_bytes) = (10_000.0, 256);
        link(&board)
    }

    /// Checks the rate of each direction against the bytes of headers, acknowledgements and flow control.
    #[test]
    fn without_latency_the_bytes_on_the_link_are_the_bound() {
        const COUNT: u32 = 2000;
        let boards = [("Gen3 x8", 7.877), ("Gen4 x16", 31.508), ("Gen5 x16", 63.015)];
        for (name, gb_per_s, boundary) in boards.iter().flat_map(|(name, gb)| [(name, *gb, 64), (name, *gb, 256)]) {
            for bytes in [64, 128, 256, 512, 1024] {
                let (packets, completions) =
                    (f64::from(bytes).max(256.0) / 256.0, f64::from(bytes / boundary).max(1.0));
                let payload = f64::from(bytes);
                // The bytes in the direction of the data. Those of reads also acknowledge their requests.
                let of_writes = payload + 26.0 * packets;
                let of_reads = payload + 26.0 * completions + 8.0 * packets;
                // Of a read and a write together, both directions acknowledge the other's packets.
                let up = of_writes + 26.0 * packets + 8.0 * completions;
                let down = of_reads + 8.0 * packets;
                for (kind, on_link) in [of_writes, of_reads, of_writes, up.max(down)].into_iter().enumerate() {
                    let (link, clock) = only_bytes(gb_per_s, boundary);
                    let transfer = async |_: u32| match kind {
                        0 => _ = link.write(bytes).await,
                        1 => link.read(0, bytes, Residence::Cache).await,
                        2 => link.host_write(bytes).await,
                        _ => {
                            let write = async { _ = link.write(bytes).await };
                            clock::both(write, link.read(0, bytes, Residence::Cache)).await;
                        }
                    };
                    run(&clock, 512, (0..COUNT).map(transfer));
                    let one = clock.now().as_ns() / f64::from(COUNT) * gb_per_s;
                    assert!(
                        (one / on_link - 1.0).abs() < 0.03,
                        "{name}, {boundary}, {bytes} B, {kind}: {one}, {on_link}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_host_divides_the_data_of_a_read_at_multiples_of_the_boundary() {
        let (link, _) = link(&Hardware::kv_direct());
        let counts = [(0, 64), (0, 256), (32, 256), (192, 64), (224, 64), (96, 512)];
        assert_eq!(counts.map(|(offset, bytes)| link.completions(offset, bytes)), [1, 1, 2, 1, 2, 3]);
    }

    #[test]
    fn the_credits_of_the_card_bound_the_writes_of_the_host() {
        let mut board = Hardware::kv_direct();
        board.pcie.host_posted_credits = 8;
        let (link, clock) = link(&board);
        run(&clock, 640, (0..640).map(|_| link.host_write(64)));
        // The last of 80 round trips ends when the last packet has arrived.
        assert!((39.7..41.0).contains(&clock.now().as_us()), "{}", clock.now());
    }

    #[test]
    fn reads_and_writes_share_the_way_to_the_link() {
        let board = Hardware::kv_direct();
        // Returns millions of accesses of a line in a second. Of each ten, this number are reads.
        let rate = |reads: u32| {
            let (link, clock) = link(&board);
            let access = async |number: u32| {
                // 7 and 10 have no common factor, so reads are spread evenly.
                if number * 7 % 10 < reads {
                    link.read(0, 64, Residence::Memory).await;
                } else {
                    link.write(64).await;
                }
            };
            run(&clock, 256, (0..10_000).map(access));
            10_000.0 / clock.now().as_us()
        };
        let (writes, reads) = (rate(0), rate(10));
        assert!((61.0..63.0).contains(&writes) && (58.0..61.0).contains(&reads), "{writes} and {reads}");
        for share in 1..10 {
            let harmonic = 10.0 / (f64::from(share) / reads + f64::from(10 - share) / writes);
            let mix = rate(share);
            assert!((mix / harmonic - 1.0).abs() < 0.05, "{share} of 10 are reads: {mix}, not {harmonic}");
        }
    }
}
