//! Interior search and leaf scan (Honeycomb, sections 4.2 and 4.3).
//!
//! ```text
//! interior   header, shortcuts ─▶ key search unit ─▶ segment ─▶ key search unit ─▶ next level
//! leaf       slot ─▶ header, shortcuts ─┬▶ shortcut unit ─▶ segment ─▶ sorted unit ─▶ …
//!                                       └▶ log block ─▶ log unit: sorts one entry a cycle, then scans
//! ```
//!
//! A tree of a model is smaller than that of the paper. So operations are on copies of it, whose nodes differ for the
//! cache.
//!
//! A unit takes a block in words after the adapter has delivered it: the two do not overlap. Requests overlap in any
//! order. Free units, the adapters' reads in flight and the leaf slots limit their number.

use std::cell::Cell;
use std::rc::Rc;

use super::card::HoneycombCard;
use super::fetch::{Block, Content, Fetch, LINE_SIZE, SHORTCUT_BLOCK_SIZE};
use super::memory::{CardMemory, Place};
use super::tree::{Tree, Visit};
use crate::clock::{self, Clock};
use crate::resource::{Path, Slots};
use crate::time::Time;
use skep_store::counted::ordered::NodeLayout;

/// Units of one kind.
#[derive(Debug)]
struct Units {
    free: Slots,
    count: u32,
    busy: Cell<Time>,
}

/// The engines of a card, with its network.
#[derive(Debug)]
pub struct Engine<'t> {
    clock: Rc<Clock>,
    memory: CardMemory,
    nodes: &'t [NodeLayout],
    /// Copies of the tree, which have as many pairs together as the cache is made for. They share the root.
    copies: u32,
    /// LIDs of a copy.
    lids: u32,
    fetch: Fetch,
    card: HoneycombCard,
    key_search: Units,
    shortcut: Units,
    log: Units,
    sorted: Units,
    leaf_slots: Slots,
    wire: Path,
}

/// Shares of a time in which the units and the wire were busy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnitsBusy {
    /// Key search units.
    pub key_search: f64,
    /// Shortcut units.
    pub shortcut: f64,
    /// Log units.
    pub log: f64,
    /// Sorted units.
    pub sorted: f64,
    /// The wire to the clients.
    pub network: f64,
}

impl Units {
    fn new(count: u32) -> Self {
        Units { free: Slots::new(count), count, busy: Cell::default() }
    }

    async fn work(&self, clock: &Clock, span: Time) {
        let _unit = self.free.take().await;
        self.busy.set(self.busy.get() + span);
        clock.after(span).await;
    }

    fn busy(&self, span: Time) -> f64 {
        self.busy.get().part(self.count.into()).share_of(span)
    }
}

impl<'t> Engine<'t> {
    /// Returns idle engines.
    pub fn new(memory: CardMemory, clock: &Rc<Clock>, card: &HoneycombCard, tree: &'t Tree, fetch: Fetch) -> Self {
        let units = &card.accelerator;
        Engine {
            clock: Rc::clone(clock),
            memory,
            nodes: tree.nodes(),
            lids: tree.nodes().iter().map(|node| node.lid as u32 + 1).max().unwrap_or_default(),
            copies: ((card.cache.pairs as f64 / tree.pairs() as f64).round() as u32).max(1),
            fetch,
            key_search: Units::new(units.key_search_units),
            shortcut: Units::new(units.shortcut_units),
            log: Units::new(units.log_units),
            sorted: Units::new(units.sorted_units),
            leaf_slots: Slots::new(units.leaf_slots),
            wire: Path::default(),
            card: card.clone(),
        }
    }

    /// Returns the number of copies of the tree.
    pub fn copies(&self) -> u32 {
        self.copies
    }

    /// Returns the memory.
    pub fn memory(&self) -> &CardMemory {
        &self.memory
    }

    /// Returns how busy the units were in a time span that contains all operations.
    pub fn busy(&self, span: Time) -> UnitsBusy {
        UnitsBusy {
            key_search: self.key_search.busy(span),
            shortcut: self.shortcut.busy(span),
            log: self.log.busy(span),
            sorted: self.sorted.busy(span),
            network: self.wire.busy().share_of(span),
        }
    }

    /// Fills the cache with all blocks of a node of a copy, without time.
    pub fn warm_all(&self, node: &'t NodeLayout, copy: u32) {
        let blocks = std::iter::once((Content::Shortcut, 0..SHORTCUT_BLOCK_SIZE as usize));
        let blocks = blocks.chain(node.segments.iter().map(|segment| (Content::Segment, segment.clone())));
        blocks.for_each(|(content, bytes)| self.memory.warm(self.place(node, copy), Block::new(content, &bytes)));
    }

    /// Fills the cache as an operation on a copy does, without time.
    pub fn warm(&self, visits: &[Visit], copy: u32) {
        for visit in visits {
            let node = self.node(*visit);
            for block in self.fetch.blocks(node, *visit) {
                self.memory.warm(self.place(node, copy), block);
            }
        }
    }

    /// Executes an operation that visits these nodes of a copy and replies with these bytes of items.
    pub async fn execute(&self, visits: &[Visit], copy: u32, reply_bytes: u32) {
        self.clock.after(Time::from_ns(self.card.accelerator.latency_ns)).await;
        let interior = visits.iter().take_while(|visit| self.node(**visit).level > 0).count();
        for (depth, visit) in visits[..interior].iter().enumerate() {
            let place = self.place(self.node(*visit), copy);
            for (number, block) in self.interior_blocks(&visits[..interior], depth).into_iter().enumerate() {
                self.memory.read(place, block, number == 0).await;
                self.key_search.work(&self.clock, self.span(block)).await;
            }
        }
        let slot = self.leaf_slots.take().await;
        for visit in &visits[interior..] {
            self.scan_leaf(*visit, copy).await;
        }
        // The buffers of the slot have the reply until it has left.
        self.reply(reply_bytes).await;
        drop(slot);
    }

    /// Returns the blocks of an interior node. The root of all copies has the children of all their roots, so its
    /// segments have the size of those of other interior nodes. It is read like the node below it.
    fn interior_blocks(&self, interior: &[Visit], depth: usize) -> Vec<Block> {
        let stands_for_all = self.copies > 1 && depth == 0 && interior.len() > 1;
        let visit = interior[depth + usize::from(stands_for_all)];
        self.fetch.blocks(self.node(visit), visit)
    }

    async fn scan_leaf(&self, visit: Visit, copy: u32) {
        let place = self.place(self.node(visit), copy);
        let blocks = self.fetch.blocks(place.node, visit);
        let mut shortcuts = blocks.iter().filter(|block| block.content == Content::Shortcut);
        let first = *shortcuts.next().expect("a leaf has a header");
        self.memory.read(place, first, true).await;
        let sorted = async {
            self.shortcut.work(&self.clock, self.span(first)).await;
            // Boundary keys are read line by line if the index has a tie.
            for block in shortcuts {
                self.memory.read(place, *block, false).await;
                self.shortcut.work(&self.clock, self.span(*block)).await;
            }
            for block in blocks.iter().filter(|block| block.content == Content::Segment) {
                self.memory.read(place, *block, false).await;
                self.sorted.work(&self.clock, self.span(*block)).await;
            }
        };
        let log = async {
            for block in blocks.iter().filter(|block| matches!(block.content, Content::Log(_))) {
                self.memory.read(place, *block, false).await;
                self.log.work(&self.clock, self.span(*block)).await;
            }
        };
        clock::both(sorted, log).await;
    }

    /// Receives an entry of the page table of a copy from the host.
    pub async fn receive_entry(&self, lid: u32, copy: u32) {
        self.memory.receive_entry(if lid == 0 { 0 } else { lid + copy * self.lids }).await;
    }

    /// Returns the lines that the store itself reads for an operation.
    pub fn lines(&self, visits: &[Visit]) -> u32 {
        let bytes =
            |visit: &Visit| Fetch::Lines.blocks(self.node(*visit), *visit).iter().map(|block| block.bytes).sum::<u32>();
        visits.iter().map(bytes).sum::<u32>().div_ceil(LINE_SIZE as u32)
    }

    /// Sends a reply with these bytes of items to a client.
    pub async fn reply(&self, bytes: u32) {
        let network = &self.card.network;
        let packets = bytes.div_ceil(network.packet_max_bytes - network.header_bytes).max(1);
        let span = Time::of_bytes((bytes + packets * network.header_bytes).into(), network.bandwidth_gb_per_s);
        self.clock.until(self.wire.reserve(self.clock.now(), span)).await;
    }

    /// Returns the time that a unit needs for a block.
    fn span(&self, block: Block) -> Time {
        let units = &self.card.accelerator;
        let entries = if let Content::Log(entries) = block.content { entries } else { 0 };
        let cycles = block.bytes.div_ceil(units.unit_word_bytes) + units.block_cycles + entries;
        Time::cycle(self.card.card.clock_mhz) * u64::from(cycles)
    }

    /// Returns the place of a node. The root is that of all copies. The LIDs of a copy follow those of the one before.
    fn place(&self, node: &'t NodeLayout, copy: u32) -> Place<'t> {
        let lid = node.lid as u32 + copy * self.lids;
        Place { node, lid: if node.lid == 0 { 0 } else { lid } }
    }

    fn node(&self, visit: Visit) -> &'t NodeLayout {
        &self.nodes[visit.node as usize]
    }
}
