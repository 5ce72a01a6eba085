//! The memory of the card: page table, cache, balancer, and the links to the host (Honeycomb, section 5).
//!
//! ```text
//! block ─┬─ root ─────────▶ SRAM
//!        ├─ interior node ▶ metadata ─┬─ hit ─▶ balancer ─┬▶ NIC DRAM
//!        │                            │                   └▶ PCIe
//!        │                            └─ miss ▶ page table ▶ PCIe, whole chunks ─▶ written to NIC DRAM
//!        └─ leaf ─────────▶ page table ▶ PCIe
//! ```
//!
//! A request reads the page table once for a node: the node address table keeps the frame for the other blocks. The
//! entry of a cached node has the frame too.
//!
//! The balancer sends a hit to the interface that is expected to deliver it earlier, by the operations and bytes in
//! flight on both, and to NIC DRAM if that is idle. The paper names these counts and no rule. If the latencies counted
//! too, PCIe would be idle for a tenth of the time with 256 MB, and the rate less than the paper's.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::Stream;
use super::cache::{Cache, Filled, MetadataTraffic};
use super::card::HoneycombCard;
use super::fetch::{Block, Content, LINE_SIZE};
use crate::clock::Clock;
use crate::dram::Dram;
use crate::pcie::{Link, Residence};
use crate::resource::{Path, Slots};
use crate::time::Time;
use skep_store::counted::ordered::NodeLayout;

const LINE_BYTES: u32 = LINE_SIZE as u32;
/// Bytes of a read version (section 3.2).
const VERSION_BYTES: u32 = 8;

/// The parts of the memory that a run switches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// True if the root is on the chip.
    pub root_on_chip: bool,
    /// Size of the cache. 0 for none.
    pub cache_mib: f64,
    /// True if some hits are read over PCIe.
    pub balances: bool,
    /// Time of an access of NIC DRAM in addition to its transfer, instead of a least time between two accesses.
    pub opening_ns: f64,
}

impl Options {
    /// Returns the options of the paper's card with a cache of this size.
    pub const fn of_the_paper(cache_mib: f64) -> Self {
        Options { root_on_chip: true, cache_mib, balances: true, opening_ns: 0.0 }
    }
}

/// Accesses and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of accesses.
    pub accesses: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The bytes of the lines that DRAM moves for them.
    pub moved_bytes: u64,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounts {
    /// Blocks of interior nodes that were not on the chip.
    pub interior_blocks: u64,
    /// Those of them that the cache had.
    pub hits: u64,
    /// Reads of cached blocks from NIC DRAM.
    pub cache_reads: Traffic,
    /// Writes of missed blocks to NIC DRAM.
    pub cache_writes: Traffic,
    /// Reads and writes of metadata in NIC DRAM.
    pub metadata: Traffic,
    /// Reads of the page table, and writes of changed entries.
    pub page_table: Traffic,
    /// Reads over PCIe.
    pub pcie: Traffic,
    /// Those of them that the cache had.
    pub balanced: Traffic,
}

/// A node of a copy of the tree.
#[derive(Clone, Copy, Debug)]
pub struct Place<'t> {
    /// The node.
    pub node: &'t NodeLayout,
    /// Its LID among those of all copies.
    pub lid: u32,
}

/// Operations and bytes in flight on an interface.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    operations: u32,
    bytes: u32,
}

/// An adapter between the units and the memory.
#[derive(Debug)]
struct Adapter {
    slots: Slots,
    words: Path,
}

/// The memory of a card and its links to the host.
#[derive(Debug)]
pub struct CardMemory {
    clock: Rc<Clock>,
    card: HoneycombCard,
    options: Options,
    dram: Dram,
    links: Vec<Link>,
    cache: RefCell<Option<Cache>>,
    adapters: Vec<Adapter>,
    next_adapter: Cell<usize>,
    dram_in_flight: Cell<InFlight>,
    pcie_in_flight: Cell<InFlight>,
    counts: Cell<MemoryCounts>,
}

/// Shares of a time in which the parts were busy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryBusy {
    /// From the host to the card, of all links on average.
    pub pcie: f64,
    /// The tags of reads.
    pub pcie_tags: f64,
    /// Channels of NIC DRAM on average.
    pub nic_dram: f64,
    /// The words of the adapters.
    pub adapters: f64,
}

impl MemoryCounts {
    /// Returns the accesses of NIC DRAM: those of page table and metadata, and those of cached nodes.
    pub fn nic_dram(&self) -> [Traffic; 2] {
        [[self.page_table, self.metadata], [self.cache_reads, self.cache_writes]].map(|[one, other]| Traffic {
            accesses: one.accesses + other.accesses,
            bytes: one.bytes + other.bytes,
            moved_bytes: one.moved_bytes + other.moved_bytes,
        })
    }
}

impl Traffic {
    fn add(&mut self, bytes: u32) {
        self.accesses += 1;
        self.bytes += u64::from(bytes);
        self.moved_bytes += u64::from(bytes.next_multiple_of(LINE_BYTES));
    }
}

impl CardMemory {
    /// Returns idle memory. The seed decides latencies of the host and evictions, which have streams of their own.
    pub fn new(clock: &Rc<Clock>, card: &HoneycombCard, options: Options, seed: u64) -> Self {
        let host_dram = &card.host_dram;
        let host = Rc::new(Dram::of_host(host_dram));
        let link = |number: u32| {
            let seed = Stream::Link(number).seed(seed);
            Link::new(Rc::clone(clock), Rc::clone(&host), &card.pcie, seed)
        };
        let adapter =
            |_: u32| Adapter { slots: Slots::new(card.accelerator.adapter_reads_in_flight), words: Path::default() };
        let dram = &card.nic_dram;
        CardMemory {
            clock: Rc::clone(clock),
            options,
            dram: Dram::new(dram.channels, dram.bandwidth_gb_per_s, dram.access_ns).with_opening(options.opening_ns),
            links: (0..card.pcie.links).map(link).collect(),
            cache: RefCell::new(Cache::new(&card.cache, options.cache_mib, Stream::Evictions.seed(seed))),
            adapters: (0..card.accelerator.memory_adapters).map(adapter).collect(),
            next_adapter: Cell::default(),
            dram_in_flight: Cell::default(),
            pcie_in_flight: Cell::default(),
            counts: Cell::default(),
            card: card.clone(),
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> MemoryCounts {
        self.counts.get()
    }

    /// Returns how busy the parts were in a time span that contains all reads.
    pub fn busy(&self, span: Time) -> MemoryBusy {
        let links = |part: fn(&Link) -> Time| {
            self.links.iter().map(|link| part(link).share_of(span)).sum::<f64>() / self.links.len() as f64
        };
        let words = self.adapters.iter().map(|adapter| adapter.words.busy().share_of(span)).sum::<f64>();
        MemoryBusy {
            pcie: links(|link| link.busy().down),
            pcie_tags: links(|link| link.busy().read_tags),
            nic_dram: self.dram.busy().share_of(span),
            adapters: words / self.adapters.len() as f64,
        }
    }

    /// Returns true if there is a cache.
    pub fn has_cache(&self) -> bool {
        self.cache.borrow().is_some()
    }

    /// Fills the cache as a read of this block does, without time and counts.
    pub fn warm(&self, place: Place<'_>, block: Block) {
        if place.node.level == 0 || self.is_on_chip(place.node) {
            return;
        }
        if let Some(cache) = &mut *self.cache.borrow_mut() {
            let lid = place.lid;
            cache.load_metadata(lid);
            if !cache.has(lid, block.offset, block.bytes) {
                let (offset, bytes) = cache.whole_chunks(block.offset, block.bytes);
                cache.fill(lid, offset, bytes, block.content == Content::Shortcut);
            }
        }
    }

    /// Reads a block of a node. `is_first` is true for the first block of the node that a request reads.
    pub async fn read(&self, place: Place<'_>, block: Block, is_first: bool) {
        let node = place.node;
        let adapter = &self.adapters[self.next_adapter.get()];
        self.next_adapter.set((self.next_adapter.get() + 1) % self.adapters.len());
        let _slot = adapter.slots.take().await;
        if !self.is_on_chip(node) {
            if node.level > 0 && self.cache.borrow().is_some() {
                self.read_through_cache(place, block, is_first).await;
            } else {
                if node.level > 0 {
                    self.count(|counts| counts.interior_blocks += 1);
                }
                self.read_from_host(node, block, is_first).await;
            }
        }
        let cycle = Time::cycle(self.card.card.clock_mhz);
        let words = block.bytes.div_ceil(self.card.accelerator.adapter_word_bytes);
        self.clock.until(adapter.words.reserve(self.clock.now(), cycle * u64::from(words))).await;
    }

    fn is_on_chip(&self, node: &NodeLayout) -> bool {
        // The root keeps its LID.
        self.options.root_on_chip && node.lid == 0
    }

    async fn read_through_cache(&self, place: Place<'_>, block: Block, is_first: bool) {
        let node = place.node;
        let (lid, set_bytes) = (place.lid, self.card.cache.ways * self.card.cache.metadata_entry_bytes);
        let metadata = self.with_cache(|cache| cache.load_metadata(lid));
        if metadata.is_written {
            self.count(|counts| counts.metadata.add(set_bytes));
            self.dram.reserve(self.clock.now(), set_bytes);
        }
        if metadata.is_read {
            self.count(|counts| counts.metadata.add(set_bytes));
            self.access_dram(set_bytes).await;
        }
        let is_hit = self.with_cache(|cache| cache.has(lid, block.offset, block.bytes));
        self.count(|counts| {
            counts.interior_blocks += 1;
            counts.hits += u64::from(is_hit);
        });
        if is_hit {
            return self.read_hit(node, block).await;
        }
        let (offset, bytes) = self.with_cache(|cache| cache.whole_chunks(block.offset, block.bytes));
        self.read_from_host(node, Block { offset, bytes, ..block }, is_first).await;
        let allocates = block.content == Content::Shortcut;
        let Filled { is_kept, metadata } = self.with_cache(|cache| cache.fill(lid, offset, bytes, allocates));
        // The request does not wait for these.
        self.access_metadata(metadata);
        if is_kept {
            self.count(|counts| counts.cache_writes.add(bytes));
            self.dram.reserve(self.clock.now(), bytes);
        }
    }

    async fn read_hit(&self, node: &NodeLayout, block: Block) {
        if self.options.balances && self.pcie_delivers_earlier(block.bytes) {
            self.count(|counts| counts.balanced.add(block.bytes));
            self.read_over_pcie(node, block).await;
        } else {
            self.count(|counts| counts.cache_reads.add(block.bytes));
            self.access_dram(block.bytes).await;
        }
    }

    async fn read_from_host(&self, node: &NodeLayout, block: Block, is_first: bool) {
        if is_first {
            let bytes = self.card.cache.page_table_entry_bytes;
            self.count(|counts| counts.page_table.add(bytes));
            self.access_dram(bytes).await;
        }
        self.read_over_pcie(node, block).await;
    }

    async fn access_dram(&self, bytes: u32) {
        let latency = Time::from_ns(self.card.nic_dram.latency_ns);
        let done = self.dram.reserve(self.clock.now(), bytes) + latency;
        with_in_flight(&self.dram_in_flight, bytes, self.clock.until(done)).await;
    }

    async fn read_over_pcie(&self, node: &NodeLayout, block: Block) {
        self.count(|counts| counts.pcie.add(block.bytes));
        let read = self.read_host(node.offset as u64 + u64::from(block.offset), block.bytes);
        with_in_flight(&self.pcie_in_flight, block.bytes, read).await;
    }

    /// Reads bytes of the host over the link with the fewest reads in flight.
    pub(super) async fn read_host(&self, offset: u64, bytes: u32) {
        let link = self.links.iter().min_by_key(|link| link.in_flight()).expect("there is a link");
        link.read(offset, bytes, Residence::Memory).await;
    }

    /// Receives an entry of the page table from the host, which removes its node from the cache.
    pub async fn receive_entry(&self, lid: u32) {
        let bytes = self.card.cache.page_table_entry_bytes;
        self.receive(bytes).await;
        self.count(|counts| counts.page_table.add(bytes));
        self.dram.reserve(self.clock.now(), bytes);
        let removed = self.cache.borrow_mut().as_mut().map(|cache| cache.remove(lid));
        self.access_metadata(removed.unwrap_or_default());
    }

    /// Receives a read version from the host. The chip keeps it.
    pub async fn receive_version(&self) {
        self.receive(VERSION_BYTES).await;
    }

    async fn receive(&self, bytes: u32) {
        self.links[0].host_write(bytes).await;
    }

    /// Accesses metadata in NIC DRAM. Nothing waits for it.
    fn access_metadata(&self, traffic: MetadataTraffic) {
        let bytes = self.card.cache.ways * self.card.cache.metadata_entry_bytes;
        for _ in 0..u32::from(traffic.is_read) + u32::from(traffic.is_written) {
            self.count(|counts| counts.metadata.add(bytes));
            self.dram.reserve(self.clock.now(), bytes);
        }
    }

    /// Returns true if a block is expected earlier over PCIe than from NIC DRAM: if the bytes in flight there, and those of
    /// the block, take less time. Latencies do not count, but an idle NIC DRAM is faster.
    fn pcie_delivers_earlier(&self, bytes: u32) -> bool {
        if self.dram_in_flight.get().operations == 0 {
            return false;
        }
        let (dram, pcie) = (&self.card.nic_dram, &self.card.pcie);
        let [of_dram, of_pcie] = [&self.dram_in_flight, &self.pcie_in_flight].map(|in_flight| {
            let InFlight { operations, bytes: in_flight } = in_flight.get();
            (f64::from(operations + 1), f64::from(in_flight + bytes))
        });
        let channels = f64::from(dram.channels);
        let bytes_ns = of_dram.1 / dram.bandwidth_gb_per_s + of_dram.0 * self.options.opening_ns / channels;
        let dram_ns = (of_dram.0 * dram.access_ns / channels).max(bytes_ns);
        let overhead = f64::from(pcie.tlp_overhead_bytes) / f64::from(pcie.read_completion_bytes);
        let pcie_ns = of_pcie.1 * (1.0 + overhead) / (f64::from(pcie.links) * pcie.bandwidth_gb_per_s);
        pcie_ns < dram_ns
    }

    fn with_cache<R>(&self, f: impl FnOnce(&mut Cache) -> R) -> R {
        f(self.cache.borrow_mut().as_mut().expect("the caller has seen a cache"))
    }

    fn count(&self, f: impl FnOnce(&mut MemoryCounts)) {
        let mut counts = self.counts.get();
        f(&mut counts);
        self.counts.set(counts);
    }
}

/// Waits for a transfer, which is among those in flight until then.
async fn with_in_flight(in_flight: &Cell<InFlight>, bytes: u32, transfer: impl Future<Output = ()>) {
    let InFlight { operations, bytes: before } = in_flight.get();
    in_flight.set(InFlight { operations: operations + 1, bytes: before + bytes });
    transfer.await;
    let InFlight { operations, bytes: before } = in_flight.get();
    in_flight.set(InFlight { operations: operations - 1, bytes: before - bytes });
}
