//! The load dispatcher: decides which accesses use the NIC's DRAM, and which use PCIe (KV-Direct, section 3.3.4, Fig.
//! 7).
//!
//! ```text
//!            hash of the line < l ─▶ NIC DRAM: look up ─┬─ hit
//! access ─┬─┘                                          └─ miss ─▶ write back, fetch over PCIe, fill
//!         └─ the others ─────────────────────────────────────────▶ PCIe, adjacent lines as one transfer
//! ```
//!
//! The NIC carries out PCIe accesses itself, or the host's cores do it for the NIC ([`crate::scatter_gather`]).
//!
//! The hash treats all lines alike, so buckets and slabs are cacheable with the same probability. A line that is
//! written completely is not fetched. On a miss, the lookup has already read the replaced line. An access uses the link
//! with the fewest transfers in flight.
//!
//! A lookup changes the metadata at once, so an access to a line that is being filled counts as a hit. This is rare,
//! because the reservation station serializes operations on one bucket.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::cache::{Cache, HostLine, Lookup};
use crate::clock::{self, Clock};
use crate::dram::Dram;
use crate::hardware::Hardware;
use crate::pcie::{Link, LinkBusy, Residence};
use crate::scatter_gather::ScatterGather;
use crate::time::Time;

/// Bytes of a line.
pub const LINE_BYTES: u32 = 64;

/// The use of the NIC's DRAM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// The DRAM caches this share of the lines: the load dispatch ratio l. 0 is PCIe only, 1 a plain cache.
    Dispatch(f64),
    /// The DRAM is the only storage of this share of the lines: the simple partitioning of section 6.3.1.
    Partition(f64),
}

/// The sizes of both memories, in lines. They may be smaller than the board's, in the same proportion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Lines of the host memory.
    pub host_lines: u64,
    /// Lines of the NIC memory.
    pub nic_lines: u64,
}

impl Extent {
    /// Returns a host memory of this many lines, and a NIC memory in the proportion of the board.
    pub fn scaled(hardware: &Hardware, host_lines: u64) -> Self {
        let nic_lines = (host_lines as f64 * hardware.memory_ratio()).round().max(1.0) as u64;
        Extent { host_lines, nic_lines }
    }
}

/// Statistics of the dispatcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchCounts {
    /// Lines that were accessed.
    pub lines: u64,
    /// Of these, lines that the NIC's DRAM may hold.
    pub cacheable: u64,
    /// Of these, lines that it held.
    pub hits: u64,
    /// Lines written back to the host.
    pub write_backs: u64,
    /// Lines that were transferred over PCIe, in either direction.
    pub far: u64,
    /// Lines of free slabs that the allocator's stacks exchanged with the host. They are in no other count.
    pub slabs: u64,
}

impl DispatchCounts {
    /// Adds the statistics of another dispatcher.
    pub fn add(&mut self, other: DispatchCounts) {
        self.lines += other.lines;
        self.cacheable += other.cacheable;
        self.hits += other.hits;
        self.write_backs += other.write_backs;
        self.far += other.far;
        self.slabs += other.slabs;
    }
}

/// The share of the time in which the dispatcher's resources were busy, from 0 to 1. For several links it is the mean.
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

/// NIC DRAM, links and the host's memory.
#[derive(Debug)]
pub struct Dispatcher {
    clock: Rc<Clock>,
    host: Rc<Dram>,
    paths: Vec<HostPath>,
    cache: RefCell<Cache>,
    policy: Policy,
    /// A line whose hash is below this is cacheable in the NIC's DRAM.
    threshold: u64,
    salt: u64,
    dram: Dram,
    dram_latency: Time,
    counts: Cell<DispatchCounts>,
}

/// A path to the host's memory.
#[derive(Debug)]
enum HostPath {
    Direct(Link),
    Cores(ScatterGather),
}

impl HostPath {
    async fn read(&self, offset: u64, bytes: u32) {
        match self {
            HostPath::Direct(link) => link.read(offset, bytes, Residence::Memory).await,
            HostPath::Cores(cores) => cores.read(bytes).await,
        }
    }

    /// Writes adjacent bytes. Ends when they have left the NIC. Returns how long after that the write is confirmed.
    async fn write(&self, bytes: u32) -> Time {
        match self {
            HostPath::Direct(link) => {
                link.write(bytes).await;
                link.write_confirmed()
            }
            // The doorbell of the cores is the confirmation.
            HostPath::Cores(cores) => {
                cores.write(bytes).await;
                Time::ZERO
            }
        }
    }

    fn in_flight(&self) -> u32 {
        match self {
            HostPath::Direct(link) => link.in_flight(),
            HostPath::Cores(cores) => cores.in_flight(),
        }
    }

    fn link(&self) -> &Link {
        match self {
            HostPath::Direct(link) => link,
            HostPath::Cores(cores) => cores.link(),
        }
    }
}

/// A part of an access that uses one path.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Adjacent bytes over PCIe, from an offset.
    Direct(u64, u32),
    /// Bytes of a line that the NIC's DRAM may hold.
    Cacheable(HostLine, u32),
}

impl Dispatcher {
    /// Returns idle hardware. The seed decides latencies and which lines are cacheable.
    ///
    /// # Panics
    /// If the spare bits hold no tag for this extent.
    pub fn new(clock: &Rc<Clock>, hardware: &Hardware, extent: Extent, policy: Policy, seed: u64) -> Self {
        let host = Rc::new(Dram::of_host(&hardware.host_dram));
        Dispatcher::beside_others(clock, &host, hardware, extent, policy, seed)
    }

    /// Returns a dispatcher whose host memory is shared with the links of other NICs.
    ///
    /// # Panics
    /// If the spare bits hold no tag for this extent.
    pub fn beside_others(
        clock: &Rc<Clock>,
        host: &Rc<Dram>,
        hardware: &Hardware,
        extent: Extent,
        policy: Policy,
        seed: u64,
    ) -> Self {
        let path = |number: u32| {
            let seed = seed.wrapping_mul(64).wrapping_add(u64::from(number));
            let link = Link::new(Rc::clone(clock), Rc::clone(host), &hardware.pcie, seed);
            match hardware.host_cpu.cores_per_link {
                0 => HostPath::Direct(link),
                _ => HostPath::Cores(ScatterGather::new(Rc::clone(clock), link, hardware.host_cpu.clone())),
            }
        };
        let (Policy::Dispatch(share) | Policy::Partition(share)) = policy;
        Dispatcher {
            clock: Rc::clone(clock),
            paths: (0..hardware.pcie.links).map(path).collect(),
            host: Rc::clone(host),
            cache: RefCell::new(Cache::new(extent.nic_lines, extent.host_lines, hardware.nic_dram.spare_bits)),
            policy,
            // A share of 1 saturates. It misses one hash value, which changes nothing.
            threshold: (share * 2_f64.powi(64)) as u64,
            salt: hash(seed),
            dram: Dram::of_nic(&hardware.nic_dram),
            dram_latency: Time::from_ns(hardware.nic_dram.latency_ns),
            counts: Cell::default(),
        }
    }

    /// Returns the statistics so far.
    pub fn counts(&self) -> DispatchCounts {
        self.counts.get()
    }

    /// Returns how busy the resources were in a time span that contains all accesses.
    pub fn load(&self, span: Time) -> MemoryLoad {
        let of_links = |part: fn(&LinkBusy) -> Time| {
            self.paths.iter().map(|path| part(&path.link().busy()).share_of(span)).sum::<f64>()
                / self.paths.len() as f64
        };
        let of_cores = self.paths.iter().map(|path| match path {
            HostPath::Direct(_) => 0.0,
            HostPath::Cores(cores) => cores.busy().share_of(span),
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
            host_cores: of_cores.sum::<f64>() / self.paths.len() as f64,
        }
    }

    /// Reads bytes of the host's memory, all parts in parallel.
    pub async fn read(&self, offset: u64, bytes: u32) {
        let mut parts = self.parts(offset, bytes);
        match [parts.next(), parts.next()] {
            [Some(part), None] => self.read_part(part).await,
            first => {
                let parts = first.into_iter().flatten().chain(parts);
                clock::all(usize::MAX, parts.map(|part| self.read_part(part))).await;
            }
        }
    }

    /// Writes bytes of the host's memory. Ends when they have left the NIC, or are on their way to its DRAM. Returns the
    /// time at which the write is confirmed: a fixed time after it has left over PCIe, or when it is in the NIC's DRAM.
    pub async fn write(&self, offset: u64, bytes: u32) -> Time {
        let confirmed = Cell::new(Time::ZERO);
        let write = async |part: Part| {
            let after = self.write_part(part).await;
            confirmed.set(confirmed.get().max(self.clock.now() + after));
        };
        let mut parts = self.parts(offset, bytes);
        match [parts.next(), parts.next()] {
            [Some(part), None] => write(part).await,
            first => clock::all(usize::MAX, first.into_iter().flatten().chain(parts).map(write)).await,
        }
        confirmed.get()
    }

    /// Exchanges lines of free slabs with the host's stacks. No operation waits for them.
    pub fn exchange_slabs(&self, lines: u64) {
        let mut counts = self.counts.get();
        counts.slabs += lines;
        self.counts.set(counts);
        self.path().link().carry_aside(lines as u32 * LINE_BYTES);
    }

    /// Returns true if there is a cache to warm.
    pub fn caches(&self) -> bool {
        matches!(self.policy, Policy::Dispatch(share) if share > 0.0)
    }

    /// Changes the metadata as an access would, but takes no time. It warms the cache before a run.
    pub fn warm(&self, line: HostLine, changes: bool) {
        if self.caches() && self.is_cacheable(line) {
            self.cache.borrow_mut().look_up(line, changes);
        }
    }

    async fn read_part(&self, part: Part) {
        match part {
            Part::Direct(offset, bytes) => {
                let _direct = self.clock.span(|| format!("PCIe read of {bytes} B"));
                self.path().read(offset, bytes).await;
            }
            Part::Cacheable(line, _) => _ = self.access_cacheable(line, false, true).await,
        }
    }

    /// Writes a part. Returns how long after that the write is confirmed.
    async fn write_part(&self, part: Part) -> Time {
        match part {
            Part::Direct(_, bytes) => {
                let _direct = self.clock.span(|| format!("PCIe write of {bytes} B"));
                self.path().write(bytes).await
            }
            Part::Cacheable(line, bytes) => {
                let in_dram = self.access_cacheable(line, true, bytes < LINE_BYTES).await;
                in_dram.saturating_sub(self.clock.now())
            }
        }
    }

    /// Accesses a line that the NIC's DRAM may hold. Returns the time at which the line is in the DRAM.
    async fn access_cacheable(&self, line: HostLine, changes: bool, fetches: bool) -> Time {
        let mut counts = self.counts.get();
        counts.cacheable += 1;
        if let Policy::Partition(_) = self.policy {
            counts.hits += 1;
            self.counts.set(counts);
            if changes {
                return self.reserve_dram();
            }
            self.dram_read().await;
            return self.clock.now();
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
                let path = self.path();
                let old = async {
                    if write_back.is_some() {
                        let _old =
                            self.clock.span(|| format!("miss: PCIe write of the {LINE_BYTES} B that were replaced"));
                        path.write(LINE_BYTES).await;
                    }
                };
                let new = async {
                    if fetches {
                        let _new = self.clock.span(|| format!("miss: PCIe read of {LINE_BYTES} B"));
                        path.read(line * u64::from(LINE_BYTES), LINE_BYTES).await;
                    }
                };
                clock::both(old, new).await;
                return self.reserve_dram();
            }
        }
        self.counts.set(counts);
        if changes { self.reserve_dram() } else { self.clock.now() }
    }

    async fn dram_read(&self) {
        let _read = self.clock.span(|| format!("NIC DRAM looks up {LINE_BYTES} B"));
        self.clock.until(self.reserve_dram()).await;
    }

    /// Occupies the DRAM for an access of a line. Returns the time at which it is done.
    fn reserve_dram(&self) -> Time {
        let end = self.dram.reserve(self.clock.now(), LINE_BYTES);
        end + self.dram_latency.saturating_sub(self.dram.line())
    }

    /// Returns the path with the fewest transfers in flight.
    fn path(&self) -> &HostPath {
        self.paths.iter().min_by_key(|path| path.in_flight()).expect("a board has at least one link")
    }

    fn is_cacheable(&self, line: HostLine) -> bool {
        hash(line ^ self.salt) < self.threshold
    }

    /// Divides adjacent bytes into parts, each for one path, and counts their lines.
    fn parts(&self, offset: u64, bytes: u32) -> impl Iterator<Item = Part> + '_ {
        let (mut at, end) = (offset, offset + u64::from(bytes));
        let of_line = move |at: u64| (end.min((at / u64::from(LINE_BYTES) + 1) * u64::from(LINE_BYTES)) - at) as u32;
        std::iter::from_fn(move || {
            if at == end {
                return None;
            }
            let mut counts = self.counts.get();
            let (begin, line) = (at, at / u64::from(LINE_BYTES));
            let is_cacheable = self.is_cacheable(line);
            loop {
                at += u64::from(of_line(at));
                counts.lines += 1;
                counts.far += u64::from(!is_cacheable);
                if is_cacheable || at == end || self.is_cacheable(at / u64::from(LINE_BYTES)) {
                    break;
                }
            }
            self.counts.set(counts);
            let bytes = (at - begin) as u32;
            Some(if is_cacheable { Part::Cacheable(line, bytes) } else { Part::Direct(begin, bytes) })
        })
    }
}

/// Distributes line numbers evenly over all values: the finaliser of SplitMix64.
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
            true => _ = dispatcher.write(offset, bytes).await,
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
    fn a_hit_takes_the_time_of_the_nic_dram_and_a_miss_that_of_both() {
        let line = 64 * EXTENT.nic_lines;
        let all = Policy::Dispatch(1.0);
        let (_, miss) = after(all, &[(line, 64, false)]);
        let (counts, both) = after(all, &[(line, 64, false), (line, 64, false)]);
        // The second read waits until the line is filled.
        assert_eq!((counts.hits, both - miss), (1, Time::from_ns(155.0)));
        assert!((900.0..1520.0).contains(&miss.as_ns()), "{miss}");
    }

    #[test]
    fn a_completely_written_line_is_not_fetched_and_is_written_back_when_replaced() {
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
    fn a_write_is_confirmed_a_fixed_time_after_it_has_left_or_when_it_is_in_the_nic_dram() {
        let board = Hardware::kv_direct();
        for (ratio, after_ns) in [(0.0, board.pcie.write_confirmed_ns), (1.0, board.nic_dram.latency_ns)] {
            let clock = Rc::new(Clock::default());
            let dispatcher = Dispatcher::new(&clock, &board, EXTENT, Policy::Dispatch(ratio), 3);
            // One line, and 600 bytes in three packets or ten lines.
            let write = async |bytes: u32| {
                let confirmed = dispatcher.write(0, bytes).await;
                let after = confirmed - clock.now();
                let expected = Time::from_ns(after_ns);
                // Lines that are written together wait for the channels of the DRAM.
                assert!(
                    after >= expected && after <= expected + Time::from_ns(60.0),
                    "{bytes} B, ratio {ratio}: {after}"
                );
            };
            run(&clock, 1, [64, 600].map(write));
        }
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
