//! An ordered store with random keys, and the nodes that its operations read.
//!
//! ```text
//! counted store ── page table entry of a LID ─▶ a visit of that node begins
//!               └─ bytes of the region ───────▶ granules of the node, as bits of the visit
//! ```
//!
//! The store is the product's, compiled with an observer. It is loaded once by inserts in random order, so its leaves
//! and their logs are filled as those of the paper. Recorded operations read it and change nothing.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{PutCondition, Reply};
use skep_store::counted::ordered::{End, LogBlock, NodeLayout, OrderedSettings, OrderedStore, Range, Start};
use skep_store::counted::{Observer, observed};

use super::Stream;
use super::insertion::{Insertion, InsertionRecorder};
use crate::dispatcher::hash;

/// Bytes of a key, and of a value (section 6.2).
pub const KEY_SIZE: usize = 16;
/// Most bytes of a key, and of a value.
pub const SIZE_MAX: usize = 256;
/// Fewest bytes of a key: all keys differ in these.
pub const KEY_SIZE_MIN: usize = 8;
/// Bytes of a key and its value.
pub const PAIR_SIZE: usize = 2 * KEY_SIZE;
/// Bytes of a log block (section 3.1).
pub const LOG_BLOCK_SIZE: usize = 512;
/// Most entries of a log block.
const LOG_ENTRIES_MAX: usize = LogBlock::ENTRY_COUNT_MAX;
/// Bytes of a granule, the unit in which reads are recorded: the store's segments are aligned to it.
pub const GRANULE_SIZE: usize = 32;
/// Granules of the largest node.
const GRANULE_COUNT_MAX: usize = 256;
/// Pairs that are put at once.
const BATCH: u64 = 32;
/// The last pairs of a load, whose insertions are recorded; and their most share of it.
const INSERTIONS: u64 = 20_000;
const INSERTIONS_SHARE: u64 = 4;

/// The granules of a node that an operation has read, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granules([u128; 2]);

/// The reads of one node by one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The index of the node in [`Tree::nodes`].
    pub node: u32,
    /// The granules that were read.
    pub read: Granules,
}

/// Operations with the nodes that they have read, from the root to the leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    visits: Vec<Visit>,
    /// The end of the visits of each operation.
    ends: Vec<usize>,
    /// Pairs that each operation has returned.
    pub items: u32,
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A GET.
    Get,
    /// A scan of this many pairs from the greatest key on that is not above a key: the paper's SCAN.
    Scan(u32),
}

/// Sizes of all pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairSizes {
    /// Bytes of a key.
    pub key: usize,
    /// Bytes of a value.
    pub value: usize,
}

/// A loaded store.
pub struct Tree {
    store: OrderedStore,
    recorder: Arc<Recorder>,
    nodes: Vec<NodeLayout>,
    insertions: Vec<Insertion>,
    pairs: u64,
    sizes: PairSizes,
    /// Locked while operations are recorded.
    recording: Mutex<()>,
}

/// Observes the store while an operation is recorded.
#[derive(Debug, Default)]
struct Recorder {
    is_on: AtomicBool,
    recorded: Mutex<Recorded>,
    /// True while insertions are recorded.
    inserts: AtomicBool,
    insertion: Mutex<InsertionRecorder>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// The index of each LID's node, and its frame.
    nodes: Vec<Option<NodeFrame>>,
    visits: Vec<Visit>,
    /// The frame of the last visit.
    frame: NodeFrame,
}

#[derive(Clone, Copy, Debug, Default)]
struct NodeFrame {
    index: u32,
    offset: usize,
    size: usize,
}

impl Granules {
    fn add(&mut self, offset: usize, size: usize) {
        for granule in offset / GRANULE_SIZE..(offset + size).div_ceil(GRANULE_SIZE) {
            assert!(granule < GRANULE_COUNT_MAX, "a node has a largest size");
            self.0[granule / 128] |= 1 << (granule % 128);
        }
    }

    /// Returns true if some of these bytes were read.
    pub fn has_some_of(self, bytes: std::ops::Range<usize>) -> bool {
        let mut granules = bytes.start / GRANULE_SIZE..bytes.end.div_ceil(GRANULE_SIZE);
        granules.any(|granule| self.0[granule / 128] >> (granule % 128) & 1 == 1)
    }
}

impl Recorder {
    /// Calls this for the insertion that is recorded, if one is.
    fn of_insertion(&self, f: impl FnOnce(&mut InsertionRecorder)) {
        if self.inserts.load(Ordering::Relaxed) {
            f(&mut self.insertion.lock().expect("no thread panicked while it recorded"));
        }
    }
}

impl Observer for Recorder {
    fn touch(&self, offset: usize, size: usize) {
        self.of_insertion(|insertion| insertion.touch(offset, size));
        if self.is_on.load(Ordering::Relaxed) {
            self.recorded.lock().expect("no thread panicked while it recorded").touch(offset, size);
        }
    }

    fn enter_node(&self, lid: usize) {
        if self.is_on.load(Ordering::Relaxed) {
            self.recorded.lock().expect("no thread panicked while it recorded").enter(lid);
        }
    }

    fn wrote(&self, offset: usize, bytes: &[u8]) {
        self.of_insertion(|insertion| insertion.wrote(offset, bytes.len()));
    }

    fn set_entry(&self, lid: usize, _frame: u32) {
        self.of_insertion(|insertion| insertion.set_entry(lid));
    }
}

impl Recorded {
    fn enter(&mut self, lid: usize) {
        self.frame = self.nodes[lid].expect("only nodes are read: no value is outside its leaf");
        self.visits.push(Visit { node: self.frame.index, read: Granules::default() });
    }

    fn touch(&mut self, offset: usize, size: usize) {
        let NodeFrame { offset: start, size: frame_size, .. } = self.frame;
        // Other reads are those of the page table, which come before the visit of the node.
        if let (Some(visit), true) = (self.visits.last_mut(), (start..start + frame_size).contains(&offset)) {
            visit.read.add(offset - start, size);
        }
    }
}

impl Tree {
    /// Loads a store of this many pairs. Its keys, and their order, are the same in every run.
    pub fn load(pairs: u64) -> Self {
        Tree::load_sized(pairs, PairSizes { key: KEY_SIZE, value: KEY_SIZE })
    }

    /// Loads a store of this many pairs of these sizes.
    ///
    /// # Panics
    /// If a key has less than [`KEY_SIZE_MIN`] bytes, or a key or a value more than [`SIZE_MAX`].
    pub fn load_sized(pairs: u64, sizes: PairSizes) -> Self {
        assert!(sizes.key >= KEY_SIZE_MIN && sizes.most() <= SIZE_MAX, "keys differ, and values are in their leaves");
        let recorder = Arc::new(Recorder::default());
        let log_block = LogBlock::new(LOG_BLOCK_SIZE, LOG_ENTRIES_MAX).expect("the paper's log block is possible");
        // Twice the pairs, and some room for small stores. Memory that is not used is not touched.
        let memory = 2 * sizes.sum() as u64 * pairs + (64 << 20);
        let settings = OrderedSettings { log_block, ..OrderedSettings::new(memory) };
        let store = observed(&settings, recorder.clone()).expect("the region is reserved");
        let mut session = store.session().expect("it is the first session");
        let in_batches = pairs - INSERTIONS.min(pairs / INSERTIONS_SHARE);
        for first in (0..in_batches).step_by(BATCH as usize) {
            let all: Vec<Bytes> = (first..in_batches.min(first + BATCH)).map(|number| sizes.bytes(number)).collect();
            let batch: Vec<(&[u8], &[u8])> = all.iter().map(|bytes| sizes.pair(bytes)).collect();
            session.put_batch(&batch, PutCondition::Always, |reply| assert_eq!(reply, Reply::Done));
        }
        recorder.inserts.store(true, Ordering::Relaxed);
        let insertion = |number: u64| {
            let bytes = sizes.bytes(number);
            let (key, value) = sizes.pair(&bytes);
            assert_eq!(session.put(key, value, PutCondition::Always), Reply::Done);
            recorder.insertion.lock().expect("no thread panicked while it recorded").take()
        };
        let insertions = (in_batches..pairs).map(insertion).collect();
        recorder.inserts.store(false, Ordering::Relaxed);
        session.collect();
        let nodes = session.layouts();
        drop(session);
        let mut recorded = recorder.recorded.lock().expect("nothing was recorded");
        recorded.nodes = vec![None; nodes.iter().map(|node| node.lid + 1).max().unwrap_or_default()];
        for (index, node) in nodes.iter().enumerate() {
            let frame = NodeFrame { index: index as u32, offset: node.offset, size: node.frame_size };
            recorded.nodes[node.lid] = Some(frame);
        }
        drop(recorded);
        Tree { store, recorder, nodes, insertions, pairs, sizes, recording: Mutex::default() }
    }

    /// Returns the last insertions of the load, which were into a tree of nearly this size.
    pub fn insertions(&self) -> &[Insertion] {
        &self.insertions
    }

    /// Returns the layouts of all nodes. The first is the root.
    pub fn nodes(&self) -> &[NodeLayout] {
        &self.nodes
    }

    /// Returns the number of nodes of a level.
    pub fn nodes_of_level(&self, level: u8) -> usize {
        self.nodes.iter().filter(|node| node.level == level).count()
    }

    /// Returns the number of pairs.
    pub fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Returns the bytes of a key and its value.
    pub fn pair_size(&self) -> usize {
        self.sizes.sum()
    }

    /// Returns the bytes of memory, page table included, for each byte of keys and values.
    pub fn bytes_for_a_raw_byte(&self) -> f64 {
        let space = self.store.statistics().space;
        let bytes = space.touched_bytes + space.lids * size_of::<u32>() as u64;
        bytes as f64 / (self.pair_size() as u64 * self.pairs) as f64
    }

    /// Executes operations on random keys and records the nodes that they read.
    ///
    /// # Panics
    /// If a reply is wrong.
    pub fn record(&self, reading: Reading, operations: usize, seed: u64) -> Recording {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(Stream::Keys.seed(seed));
        let _alone = self.recording.lock().expect("no thread panicked while it recorded");
        let mut session = self.store.session().expect("there is one at a time");
        let mut value = Vec::new();
        let mut ends = Vec::with_capacity(operations);
        self.recorder.is_on.store(true, Ordering::Relaxed);
        for _ in 0..operations {
            let bytes = self.sizes.bytes(random.random_range(0..self.pairs));
            let (key, expected) = self.sizes.pair(&bytes);
            match reading {
                Reading::Get => {
                    value.clear();
                    assert!(session.get(key, &mut value) && value == expected, "a GET returns the value");
                }
                Reading::Scan(items) => {
                    let range = Range::new(Start::Floor(key), End::Last).limit(items as usize);
                    let mut first = true;
                    session.scan(range, |found, _| {
                        assert!(!std::mem::take(&mut first) || found == key, "a scan begins at its floor");
                        true
                    });
                }
            }
            ends.push(self.recorder.recorded.lock().expect("no thread panicked while it recorded").visits.len());
        }
        self.recorder.is_on.store(false, Ordering::Relaxed);
        let visits = std::mem::take(&mut self.recorder.recorded.lock().expect("as above").visits);
        Recording { visits, ends, items: if let Reading::Scan(items) = reading { items } else { 1 } }
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tree of {} pairs in {} nodes", self.pairs, self.nodes.len())
    }
}

impl Recording {
    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the visits of an operation.
    pub fn visits(&self, operation: usize) -> &[Visit] {
        let start = operation.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.visits[start..self.ends[operation]]
    }
}

/// The bytes of which a key and a value are the first.
type Bytes = [u8; SIZE_MAX];

impl PairSizes {
    fn most(self) -> usize {
        self.key.max(self.value)
    }

    fn sum(self) -> usize {
        self.key + self.value
    }

    /// Returns the bytes of the pair with a number. They are random, so the order of the numbers is random among the keys.
    fn bytes(self, number: u64) -> Bytes {
        let mut bytes = [0; SIZE_MAX];
        for (part, bytes) in bytes[..self.most().next_multiple_of(16)].chunks_exact_mut(16).enumerate() {
            let number = number ^ (part as u64) << 56;
            bytes[..8].copy_from_slice(&hash(number).to_be_bytes());
            bytes[8..].copy_from_slice(&hash(!number).to_be_bytes());
        }
        bytes
    }

    fn pair(self, bytes: &Bytes) -> (&[u8], &[u8]) {
        (&bytes[..self.key], &bytes[..self.value])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_visits_one_node_of_each_level_and_reads_its_header_and_shortcuts() {
        let tree = Tree::load(200_000);
        let height = usize::from(tree.nodes()[0].level) + 1;
        assert!(height >= 3);
        for reading in [Reading::Get, Reading::Scan(1)] {
            let recording = tree.record(reading, 1000, 5);
            assert_eq!((recording.len(), recording.items), (1000, 1));
            for operation in 0..recording.len() {
                let visits = recording.visits(operation);
                assert_eq!(visits.len(), height, "{reading:?}");
                for (visit, level) in visits.iter().zip((0..height).rev()) {
                    let node = &tree.nodes()[visit.node as usize];
                    assert_eq!(usize::from(node.level), level);
                    assert!(visit.read.has_some_of(0..64) && visit.read.has_some_of(64..128));
                    let segments = node.segments.iter().filter(|segment| visit.read.has_some_of((*segment).clone()));
                    // The store's GET reads no segment if it finds the key in the log.
                    let found_in_log = reading == Reading::Get && visit.read.has_some_of(node.log.clone());
                    assert!(segments.count() == 1 || found_in_log, "{reading:?}, level {level}");
                }
            }
            assert_eq!(recording, tree.record(reading, 1000, 5), "the same seed reads the same nodes");
        }
    }

    #[test]
    fn a_long_scan_reads_several_segments_and_follows_the_right_siblings() {
        let tree = Tree::load(20_000);
        let recording = tree.record(Reading::Scan(1000), 100, 6);
        let height = usize::from(tree.nodes()[0].level) + 1;
        let leaves = |operation| recording.visits(operation).len() - (height - 1);
        // One in twenty begins so near to the last pair that it returns fewer.
        let long = (0..recording.len()).filter(|operation| (4..=20).contains(&leaves(*operation)));
        assert!(long.count() >= 80);
    }

    #[test]
    fn layouts_are_those_of_the_frames() {
        let tree = Tree::load(100_000);
        let leaves = tree.nodes().iter().filter(|node| node.level == 0);
        let mut log_count = 0;
        for node in leaves {
            assert!(node.shortcut_end <= 512 && node.frame_size <= 8192);
            assert!(node.segments.iter().is_sorted_by_key(|segment| segment.start));
            assert_eq!(node.segments.last().unwrap().end, node.log.start);
            assert_eq!(node.log.is_empty(), node.log_count == 0);
            assert!(node.log.len() <= LOG_BLOCK_SIZE && node.log.end <= node.frame_size);
            log_count += node.log_count;
        }
        assert!(log_count > 0, "some logs have entries");
        assert!(tree.bytes_for_a_raw_byte() > 1.0);
    }
}
