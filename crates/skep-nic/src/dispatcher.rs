//! The load dispatcher: which accesses go to the NIC's DRAM and which over PCIe (KV-Direct, section 3.3.4, Fig. 7).
//!
//! ```text
//!            hash of the line < l ─▶ NIC DRAM: look up ─┬─ hit
//! access ─┬─┘                                          └─ miss ─▶ write back, fetch over PCIe, fill
//!         └─ the others ─────────────────────────────────────────▶ PCIe, adjacent lines as one transfer
//! ```
//!
//! What goes over PCIe, the NIC does itself, or the host's cores do for it ([`crate::scatter_gather`]).
//!
//! The hash treats all lines alike, so buckets and slabs are cacheable with the same probability. A line that is
//! written as a whole is not fetched. What a miss displaces was read by the lookup already. Whose turn it is among the
//! links decides how much each has under way.
//!
//! A lookup changes the metadata at once: an access to a line that is being filled counts as a hit. The reservation
//! station keeps operations on one bucket apart, so that this is rare.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::cache::{Cache, HostLine, Lookup};
use crate::clock::{self, Clock};
use crate::hardware::Hardware;
use crate::pcie::{HostMemory, Link, LinkBusy, Residence};
use crate::resource::Path;
use crate::scatter_gather::ScatterGather;
use crate::time::Time;

/// Bytes of a line.
pub const LINE_BYTES: u32 = 64;

/// What the NIC's DRAM is used for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// It caches this share of the lines: the load dispatch ratio l. 0 is PCIe only, 1 a plain cache.
    Dispatch(f64),
    /// This share of the lines lies there and nowhere else: the simple partitioning of section 6.3.1.
    Partition(f64),
}

/// The memory that is dispatched to, in lines. It may be smaller than the board's, of the same proportions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Of the host.
    pub host_lines: u64,
    /// Of the NIC.
    pub nic_lines: u64,
}

impl Extent {
    /// A host memory of this many lines, and a NIC memory in the proportion of the board.
    pub fn scaled(hardware: &Hardware, host_lines: u64) -> Self {
        let nic_lines = (host_lines as f64 * hardware.memory_ratio()).round().max(1.0) as u64;
        Extent { host_lines, nic_lines }
    }
}

/// What went where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchCounts {
    /// Lines that were asked for.
    pub lines: u64,
    /// Of these, lines that the NIC's DRAM may hold.
    pub cacheable: u64,
    /// Of these, lines that it held.
    pub hits: u64,
    /// Lines written back to the host.
    pub write_backs: u64,
    /// Lines that went over PCIe, either way.
    pub far: u64,
}

/// What of the time the parts behind a dispatcher were busy, from 0 to 1; of several links the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryLoad {
    /// Tags of reads.
    pub read_tags: f64,
    /// Credits of reads.
    pub read_credits: f64,
    /// Credits of writes.
    pub write_credits: f64,
    /// DMA engines.
    pub dma_engine: f64,
    /// Links to the host.
    pub up: f64,
    /// Links from the host.
    pub down: f64,
    /// The NIC's DRAM.
    pub nic_dram: f64,
    /// The host's DRAM.
    pub host_dram: f64,
    /// Cores of the host that gather and scatter.
    pub host_cores: f64,
}

/// NIC DRAM, links and the host's memory behind them.
#[derive(Debug)]
pub struct Dispatcher {
    clock: Rc<Clock>,
    host: Rc<HostMemory>,
    ways: Vec<Way>,
    cache: RefCell<Cache>,
    policy: Policy,
    /// A line whose hash is below it belongs to the NIC's DRAM.
    threshold: u64,
    salt: u64,
    dram: Path,
    dram_line: Time,
    dram_latency: Time,
    counts: Cell<DispatchCounts>,
}

/// One way to the host's memory.
#[derive(Debug)]
enum Way {
    Direct(Link),
    Cores(ScatterGather),
}

impl Way {
    async fn read(&self, bytes: u32) {
        match self {
            Way::Direct(link) => link.read(bytes, Residence::Memory).await,
            Way::Cores(cores) => cores.read(bytes).await,
        }
    }

    async fn write(&self, bytes: u32) {
        match self {
            Way::Direct(link) => _ = link.write(bytes).await,
            Way::Cores(cores) => cores.write(bytes).await,
        }
    }

    fn under_way(&self) -> u32 {
        match self {
            Way::Direct(link) => link.under_way(),
            Way::Cores(cores) => cores.under_way(),
        }
    }

    fn link(&self) -> &Link {
        match self {
            Way::Direct(link) => link,
            Way::Cores(cores) => cores.link(),
        }
    }
}

/// A part of an access that goes one way.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Adjacent bytes over PCIe.
    Direct(u32),
    /// Bytes of a line that the NIC's DRAM may hold.
    Near(HostLine, u32),
}

impl Dispatcher {
    /// Idle hardware. The seed decides latencies and which lines are cacheable.
    ///
    /// # Panics
    /// If the spare bits hold no tag for this extent.
    pub fn new(clock: &Rc<Clock>, hardware: &Hardware, extent: Extent, policy: Policy, seed: u64) -> Self {
        let host = Rc::new(HostMemory::new(&hardware.host_dram));
        Dispatcher::beside_others(clock, &host, hardware, extent, policy, seed)
    }

    /// The same, over memory that the links of other NICs share.
    ///
    /// # Panics
    /// If the spare bits hold no tag for this extent.
    pub fn beside_others(
        clock: &Rc<Clock>,
        host: &Rc<HostMemory>,
        hardware: &Hardware,
        extent: Extent,
        policy: Policy,
        seed: u64,
    ) -> Self {
        let way = |number: u32| {
            let seed = seed.wrapping_mul(64).wrapping_add(u64::from(number));
            let link = Link::new(Rc::clone(clock), Rc::clone(host), hardware, seed);
            match hardware.host_cpu.cores_per_link {
                0 => Way::Direct(link),
                _ => Way::Cores(ScatterGather::new(Rc::clone(clock), link, hardware.host_cpu.clone())),
            }
        };
        let (Policy::Dispatch(share) | Policy::Partition(share)) = policy;
        Dispatcher {
            clock: Rc::clone(clock),
            ways: (0..hardware.pcie.links).map(way).collect(),
            host: Rc::clone(host),
            cache: RefCell::new(Cache::new(extent.nic_lines, extent.host_lines, hardware.nic_dram.spare_bits)),
            policy,
            // A share of 1 saturates; the one hash value that it misses changes nothing.
            threshold: (share * 2_f64.powi(64)) as u64,
            salt: hash(seed),
            dram: Path::default(),
            dram_line: Time::of_bytes(LINE_BYTES.into(), hardware.nic_dram.bandwidth_gb_per_s),
            dram_latency: Time::from_ns(hardware.nic_dram.latency_ns),
            counts: Cell::default(),
        }
    }

    /// What went where so far.
    pub fn counts(&self) -> DispatchCounts {
        self.counts.get()
    }

    /// How busy its parts were in a span that holds all it has done.
    pub fn load(&self, span: Time) -> MemoryLoad {
        let of_links = |part: fn(&LinkBusy) -> Time| {
            self.ways.iter().map(|way| part(&way.link().busy()).share_of(span)).sum::<f64>() / self.ways.len() as f64
        };
        let of_cores = self.ways.iter().map(|way| match way {
            Way::Direct(_) => 0.0,
            Way::Cores(cores) => cores.busy().share_of(span),
        });
        MemoryLoad {
            read_tags: of_links(|busy| busy.read_tags),
            read_credits: of_links(|busy| busy.read_credits),
            write_credits: of_links(|busy| busy.write_credits),
            dma_engine: of_links(|busy| busy.dma_engine),
            up: of_links(|busy| busy.up),
            down: of_links(|busy| busy.down),
            nic_dram: self.dram.busy().share_of(span),
            host_dram: self.host.busy().share_of(span),
            host_cores: of_cores.sum::<f64>() / self.ways.len() as f64,
        }
    }

    /// Reads bytes of the host's memory, all parts at once.
    pub async fn read(&self, offset: u64, bytes: u32) {
        match self.parts(offset, bytes)[..] {
            [part] => self.read_part(part).await,
            ref parts => clock::all(parts.len(), parts.iter().map(|part| self.read_part(*part))).await,
        }
    }

    /// Writes bytes of the host's memory; ends when they have left the NIC, or are in its DRAM.
    pub async fn write(&self, offset: u64, bytes: u32) {
        match self.parts(offset, bytes)[..] {
            [part] => self.write_part(part).await,
            ref parts => clock::all(parts.len(), parts.iter().map(|part| self.write_part(*part))).await,
        }
    }

    /// Whether there is a cache to warm.
    pub fn caches(&self) -> bool {
        matches!(self.policy, Policy::Dispatch(share) if share > 0.0)
    }

    /// Moves the metadata as an access would, and takes no time: to begin a run with a warm cache.
    pub fn warm(&self, line: HostLine, changes: bool) {
        if self.caches() && self.is_near(line) {
            self.cache.borrow_mut().look_up(line, changes);
        }
    }

    async fn read_part(&self, part: Part) {
        match part {
            Part::Direct(bytes) => {
                let _direct = self.clock.span(|| format!("PCIe read of {bytes} B"));
                self.way().read(bytes).await;
            }
            Part::Near(line, _) => self.near(line, false, true).await,
        }
    }

    async fn write_part(&self, part: Part) {
        match part {
            Part::Direct(bytes) => {
                let _direct = self.clock.span(|| format!("PCIe write of {bytes} B"));
                self.way().write(bytes).await;
            }
            Part::Near(line, bytes) => self.near(line, true, bytes < LINE_BYTES).await,
        }
    }

    async fn near(&self, line: HostLine, changes: bool, fetches: bool) {
        let mut counts = self.counts.get();
        counts.cacheable += 1;
        if let Policy::Partition(_) = self.policy {
            counts.hits += 1;
            self.counts.set(counts);
            return if changes { self.dram_write() } else { self.dram_read().await };
        }
        self.counts.set(counts);
        self.dram_read().await;
        let found = self.cache.borrow_mut().look_up(line, changes);
        let mut counts = self.counts.get();
        match found {
            Lookup::Hit => counts.hits += 1,
            Lookup::Miss { write_back } => {
                counts.write_backs += u64::from(write_back.is_some());
                counts.far += u64::from(write_back.is_some()) + u64::from(fetches);
                self.counts.set(counts);
                let way = self.way();
                let old = async {
                    if write_back.is_some() {
                        let _old =
                            self.clock.span(|| format!("miss: PCIe write of the {LINE_BYTES} B that were there"));
                        way.write(LINE_BYTES).await;
                    }
                };
                let new = async {
                    if fetches {
                        let _new = self.clock.span(|| format!("miss: PCIe read of {LINE_BYTES} B"));
                        way.read(LINE_BYTES).await;
                    }
                };
                clock::both(old, new).await;
                self.dram_write();
                return;
            }
        }
        self.counts.set(counts);
        if changes {
            self.dram_write();
        }
    }

    async fn dram_read(&self) {
        let _read = self.clock.span(|| format!("NIC DRAM looks up {LINE_BYTES} B"));
        let end = self.dram.reserve(self.clock.now(), self.dram_line);
        self.clock.until(end + self.dram_latency.saturating_sub(self.dram_line)).await;
    }

    /// Nobody waits for it.
    fn dram_write(&self) {
        self.dram.reserve(self.clock.now(), self.dram_line);
    }

    /// The way with the least under way.
    fn way(&self) -> &Way {
        self.ways.iter().min_by_key(|way| way.under_way()).expect("a board has at least one link")
    }

    fn is_near(&self, line: HostLine) -> bool {
        hash(line ^ self.salt) < self.threshold
    }

    /// Divides adjacent bytes by the way that they go.
    fn parts(&self, offset: u64, bytes: u32) -> Vec<Part> {
        let (mut at, end) = (offset, offset + u64::from(bytes));
        let mut counts = self.counts.get();
        let mut parts: Vec<Part> = Vec::with_capacity(1);
        while at < end {
            let line = at / u64::from(LINE_BYTES);
            let bytes = (end.min((line + 1) * u64::from(LINE_BYTES)) - at) as u32;
            counts.lines += 1;
            match parts.last_mut() {
                _ if self.is_near(line) => parts.push(Part::Near(line, bytes)),
                Some(Part::Direct(before)) => {
                    counts.far += 1;
                    *before += bytes;
                }
                _ => {
                    counts.far += 1;
                    parts.push(Part::Direct(bytes));
                }
            }
            at += u64::from(bytes);
        }
        self.counts.set(counts);
        parts
    }
}

/// Spreads line numbers evenly over all values: the finaliser of SplitMix64.
pub(crate) fn hash(line: u64) -> u64 {
    let mut bits = line.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::run;

    const EXTENT: Extent = Extent { host_lines: 1 << 14, nic_lines: 1 << 10 };

    fn after(policy: Policy, accesses: &[(u64, u32, bool)]) -> (DispatchCounts, Time) {
        let clock = Rc::new(Clock::default());
        let dispatcher = Dispatcher::new(&clock, &Hardware::kv_direct(), EXTENT, policy, 3);
        let access = async |(offset, bytes, writes): (u64, u32, bool)| match writes {
            true => dispatcher.write(offset, bytes).await,
            false => dispatcher.read(offset, bytes).await,
        };
        run(&clock, 1, accesses.iter().copied().map(access));
        (dispatcher.counts(), clock.now())
    }

    #[test]
    fn the_ratio_is_the_share_of_lines_that_are_cacheable() {
        for ratio in [0.0, 0.3, 1.0] {
            let reads: Vec<_> = (0..EXTENT.host_lines).map(|line| (64 * line, 64, false)).collect();
            let (counts, _) = after(Policy::Dispatch(ratio), &reads);
            let share = counts.cacheable as f64 / counts.lines as f64;
            assert!((share - ratio).abs() < 0.02, "{share} of {ratio}");
            assert_eq!(counts.lines, EXTENT.host_lines);
        }
    }

    #[test]
    fn a_hit_takes_the_time_of_the_near_memory_and_a_miss_that_of_both() {
        let line = 64 * EXTENT.nic_lines;
        let all = Policy::Dispatch(1.0);
        let (_, miss) = after(all, &[(line, 64, false)]);
        let (counts, both) = after(all, &[(line, 64, false), (line, 64, false)]);
        // The second read waits for the line to be filled in.
        assert_eq!((counts.hits, both - miss), (1, Time::from_ns(155.0)));
        assert!((900.0..1520.0).contains(&miss.as_ns()), "{miss}");
    }

    #[test]
    fn a_whole_line_is_not_fetched_and_goes_back_when_it_is_displaced() {
        let (line, rival) = (64 * EXTENT.nic_lines, 128 * EXTENT.nic_lines);
        let all = Policy::Dispatch(1.0);
        let (_, whole) = after(all, &[(line, 64, true)]);
        let (_, part) = after(all, &[(line, 32, true)]);
        assert_eq!(whole, Time::from_ns(150.0));
        assert!(part > Time::from_ns(800.0), "{part}");
        let (counts, _) = after(all, &[(line, 64, true), (rival, 64, false), (line, 64, false)]);
        assert_eq!((counts.write_backs, counts.hits), (1, 0));
    }

    #[test]
    fn adjacent_lines_are_one_transfer() {
        let (counts, together) = after(Policy::Dispatch(0.0), &[(32, 256, false)]);
        let (_, apart) = after(Policy::Dispatch(0.0), &[(32, 32, false), (64, 64, false), (128, 64, false)]);
        assert_eq!((counts.lines, counts.cacheable), (5, 0));
        assert!(together < Time::from_ns(1500.0) && apart > Time::from_ns(2200.0), "{together}, {apart}");
    }

    #[test]
    fn a_partition_always_hits() {
        let (counts, _) =
            after(Policy::Partition(0.5), &(0..100).map(|line| (64 * line, 64, false)).collect::<Vec<_>>());
        assert!(counts.hits == counts.cacheable && (30..70).contains(&counts.hits), "{counts:?}");
    }
}
