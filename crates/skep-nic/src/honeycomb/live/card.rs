//! What a card keeps of the store: its page table, the cache of interior nodes with their bytes, the read version, and the
//! requests in flight (Honeycomb, sections 4.1 and 5).

use std::collections::{BTreeSet, VecDeque};

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_store::counted::ordered::{Block, Content};

use super::host::Message;

/// Bytes of a chunk of a cached node.
const CHUNK_SIZE: usize = 256;
/// Bytes of the largest node.
const NODE_SIZE_MAX: usize = 8192;
/// Nodes of a set.
const WAYS: usize = 4;
/// The offset of a node's level in its header.
const LEVEL_OFFSET: usize = 14;

/// Parts of a card that a test removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Safeguards {
    /// A request reads all blocks of a node from the frame of the first one.
    pub node_address_table: bool,
    /// An entry of the page table removes the node from the cache, and stops a fill of its old frame.
    pub invalidation: bool,
}

/// A node in the cache.
#[derive(Clone, Debug)]
struct Cached {
    lid: usize,
    frame: u32,
    /// A bit for each chunk that was filled.
    chunks: u32,
    bytes: Vec<u8>,
}

/// Counts of what a card has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardCounts {
    /// Blocks that the cache had.
    pub hits: u64,
    /// Blocks of a node whose LID had another frame by then, in the cache or in the page table.
    pub moved: u64,
    /// Nodes that an entry of the page table has removed from the cache.
    pub invalidations: u64,
    /// Nodes that made room for others.
    pub evictions: u64,
    /// Fills that came after the entry had changed, and were stopped.
    pub stopped_fills: u64,
    /// Old frames that were read.
    pub older: u64,
}

/// The state of a card.
#[derive(Debug)]
pub(super) struct CardState {
    safeguards: Safeguards,
    page_table: Vec<u32>,
    read_version: u64,
    sets: Vec<Vec<Cached>>,
    /// The number of the newest request.
    newest: u64,
    in_flight: BTreeSet<u64>,
    /// Asks of writers, with the newest request when each arrived.
    asks: VecDeque<(u64, u64)>,
    counts: CardCounts,
}

/// The memory that serves a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The cache: the frame of the bytes, and a copy of them.
    Cache(u32, Vec<u8>),
    /// The host, from this frame.
    Host(u32),
}

impl CardState {
    /// Returns the state of a card that was told nothing, with a cache of this number of nodes besides the root.
    pub(super) fn new(safeguards: Safeguards, cache_nodes: usize) -> Self {
        CardState {
            safeguards,
            page_table: Vec::new(),
            read_version: 0,
            // The first set has the root alone.
            sets: vec![Vec::new(); 1 + cache_nodes.div_ceil(WAYS)],
            newest: 0,
            in_flight: BTreeSet::new(),
            asks: VecDeque::new(),
            counts: CardCounts::default(),
        }
    }

    /// Returns the counts so far.
    pub(super) fn counts(&self) -> CardCounts {
        self.counts
    }

    /// Takes a message of the host. Returns the ask that has passed, if there is one.
    pub(super) fn take(&mut self, message: Message) -> Option<u64> {
        match message {
            Message::Entry(lid, frame) => {
                self.page_table.resize(self.page_table.len().max(lid + 1), 0);
                self.page_table[lid] = frame;
                if self.safeguards.invalidation {
                    let set = self.set_of(lid);
                    let before = self.sets[set].len();
                    self.sets[set].retain(|cached| cached.lid != lid);
                    self.counts.invalidations += (before - self.sets[set].len()) as u64;
                }
            }
            Message::Version(version) => self.read_version = self.read_version.max(version),
            Message::Ask(ask) => self.asks.push_back((ask, self.newest)),
        }
        self.pass()
    }

    /// Begins a request. Returns its sequence number and its read version.
    pub(super) fn begin(&mut self) -> (u64, u64) {
        self.newest += 1;
        self.in_flight.insert(self.newest);
        (self.newest, self.read_version)
    }

    /// Ends a request. Returns the ask that has passed, if there is one.
    pub(super) fn end(&mut self, request: u64) -> Option<u64> {
        self.in_flight.remove(&request);
        self.pass()
    }

    /// Returns the newest ask before which all requests in flight had begun and have ended.
    fn pass(&mut self) -> Option<u64> {
        let oldest = self.in_flight.first().copied().unwrap_or(u64::MAX);
        std::iter::from_fn(|| self.asks.pop_front_if(|(_, newest)| *newest < oldest)).last().map(|ask| ask.0)
    }

    /// Returns the frame that the card has for a LID: that of the cache, or else that of the page table. 0 for none.
    pub(super) fn frame_of(&self, lid: usize) -> u32 {
        let of_table = self.page_table.get(lid).copied().unwrap_or(0);
        self.cached(lid).map_or(of_table, |cached| cached.frame)
    }

    /// Decides which memory serves a block of a node or a value.
    pub(super) fn source(&mut self, block: &Block) -> Source {
        let of_node = matches!(block.content, Content::Children | Content::Segment | Content::Log);
        let is_moved = of_node && self.frame_of(block.lid) != block.frame;
        self.counts.moved += u64::from(is_moved);
        self.counts.older += u64::from(block.content == Content::Older);
        let takes_any_frame = of_node && !self.safeguards.node_address_table;
        let wanted = chunks_of(&block.bytes);
        if let Some(cached) = self.cached(block.lid)
            && cached.chunks & wanted == wanted
            && (cached.frame == block.frame || takes_any_frame)
        {
            let source = Source::Cache(cached.frame, cached.bytes[block.bytes.clone()].to_vec());
            self.counts.hits += 1;
            return source;
        }
        Source::Host(if takes_any_frame { self.page_table[block.lid] } else { block.frame })
    }

    /// Returns the bytes that are fetched from the host for a block: whole chunks.
    pub(super) fn fetched(block: &Block) -> std::ops::Range<usize> {
        match block.content {
            Content::Shortcuts | Content::Children => {
                let start = block.bytes.start / CHUNK_SIZE * CHUNK_SIZE;
                start..block.bytes.end.next_multiple_of(CHUNK_SIZE)
            }
            _ => block.bytes.clone(),
        }
    }

    /// Fills chunks of an interior node into the cache. A header makes room for its node, in the place of a random one.
    pub(super) fn fill(&mut self, block: &Block, frame: u32, bytes: &[u8], random: &mut Xoshiro256PlusPlus) {
        let is_header = block.content == Content::Shortcuts && bytes[LEVEL_OFFSET] > 0;
        if !is_header && block.content != Content::Children {
            return;
        }
        if self.safeguards.invalidation && self.page_table[block.lid] != frame {
            self.counts.stopped_fills += 1;
            return;
        }
        let (at, set, fetched) = (block.lid, self.set_of(block.lid), CardState::fetched(block));
        let nodes = &mut self.sets[set];
        let position = nodes.iter().position(|cached| cached.lid == at && cached.frame == frame);
        let position = match position {
            Some(position) => position,
            None if !is_header => return,
            None => {
                nodes.retain(|cached| cached.lid != at);
                if nodes.len() == WAYS {
                    nodes.swap_remove(random.random_range(0..WAYS));
                    self.counts.evictions += 1;
                }
                nodes.push(Cached { lid: at, frame, chunks: 0, bytes: vec![0; NODE_SIZE_MAX] });
                nodes.len() - 1
            }
        };
        nodes[position].chunks |= chunks_of(&fetched);
        nodes[position].bytes[fetched].copy_from_slice(bytes);
    }

    fn cached(&self, lid: usize) -> Option<&Cached> {
        self.sets[self.set_of(lid)].iter().find(|cached| cached.lid == lid)
    }

    fn set_of(&self, lid: usize) -> usize {
        if lid == 0 { 0 } else { 1 + lid % (self.sets.len() - 1) }
    }
}

/// Returns a bit for each chunk of these bytes.
fn chunks_of(bytes: &std::ops::Range<usize>) -> u32 {
    (bytes.start / CHUNK_SIZE..bytes.end.div_ceil(CHUNK_SIZE)).fold(0, |chunks, chunk| chunks | 1 << chunk)
}
