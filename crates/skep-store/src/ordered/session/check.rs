//! Checks the invariants of a tree without writers, by walking all of it.

use std::collections::{HashMap, HashSet};

use super::super::key_head::encoding::Encoding;
use super::super::key_head::{Target, fingerprint};
use super::super::leaf::cursor::LeafCursor;
use super::super::leaf::find::{self, SortedPosition};
use super::super::memory::number::{FrameNumber, Lid, UNIT_512_SIZE};
use super::super::node::frame::Node;
use super::super::node::interior::{self, Child};
use super::super::node::log::{Entry, LogBlock, LogOrder};
use super::super::node::overflow;
use super::super::node::segment::{ITEM_COUNT_MAX, Item, Segment};
use super::super::node::shortcut::{SEGMENT_ALIGNMENT, Shortcuts};
use super::super::node::value::{Content, Value};
use super::super::space::Owner;
use super::super::store::OrderedStore;
use super::super::version::clock::Snapshot;
use super::super::version::epoch::Guard;
use super::Session;
use crate::memory::LINE_SIZE;

/// The counts of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Pairs in the tree, also those whose keys have expired.
    pub pairs: u64,
    /// Of these, pairs whose keys have an expiry.
    pub expiring: u64,
    /// Their bytes.
    pub pair_bytes: u64,
    /// Leaves.
    pub leaves: u64,
    /// Interior nodes.
    pub interior_nodes: u64,
    /// Bytes of the frames of nodes and values.
    pub frame_bytes: u64,
}

/// A walk through the tree in order.
struct Walk<'g> {
    store: &'g OrderedStore,
    guard: &'g Guard<'g>,
    lids: HashSet<Lid>,
    /// Units and owner of each frame, by its number.
    frames: HashMap<u32, (usize, Owner)>,
    /// The previous leaf, and the right sibling that it names.
    before: Option<(Lid, Option<Lid>)>,
    checked: Checked,
}

impl Session<'_> {
    /// Walks through the tree and checks its invariants. No session may write meanwhile.
    /// # Panics
    /// If an invariant does not hold.
    pub fn check(&mut self) -> Checked {
        self.collect();
        let (store, guard) = self.enter();
        let mut walk = Walk {
            store,
            guard: &guard,
            lids: HashSet::new(),
            frames: HashMap::new(),
            before: None,
            checked: Checked::default(),
        };
        let root = store.latest(Lid::ROOT, &guard);
        walk.node(root, None, None);
        let (_, right) = walk.before.expect("there is a leaf");
        assert_eq!(right, None, "the last leaf has no right sibling");
        assert_eq!(store.versions.read(), store.versions.newest(), "all versions are released");
        assert_eq!(walk.checked.pairs, store.pair_count(), "inserts and deletes are counted");
        assert_eq!(walk.checked.expiring, store.statistics().expiring, "keys with an expiry are counted");
        store.space().check(&walk.frames);
        walk.checked
    }
}

impl<'g> Walk<'g> {
    fn node(&mut self, node: Node<'g>, low: Option<&'g [u8]>, high: Option<&'g [u8]>) {
        assert!(self.lids.insert(node.lid()), "a node has one parent");
        self.frame(node.number(), node.frame_size() / UNIT_512_SIZE, Owner::Node(node.lid()));
        assert!(!node.state().is_locked(), "a node that is reached is open");
        assert!(node.version() <= self.store.versions.newest());
        self.checked.frame_bytes += node.frame_size() as u64;
        match node.level() {
            0 => self.leaf(node, low, high),
            _ => self.interior(node, low, high),
        }
    }

    fn frame(&mut self, number: FrameNumber, units: usize, owner: Owner) {
        let before = self.frames.insert(number.bits(), (units, owner));
        assert_eq!(before, None, "a frame is one node's, or one part's of a value");
    }

    fn interior(&mut self, node: Node<'g>, low: Option<&'g [u8]>, high: Option<&'g [u8]>) {
        self.checked.interior_nodes += 1;
        let children = interior::children(node);
        assert!(children.len() >= 2, "an interior node has two children");
        assert!(children[0].separator.is_empty());
        let separators: Vec<&[u8]> = children[1..].iter().map(|child| child.separator).collect();
        assert!(separators.is_sorted_by(|a, b| a < b), "separators ascend");
        assert_within(&separators, low, high);
        let encoding = interior::encoding_of(&children, low, high);
        assert_eq!(
            (Shortcuts::open(node).encoding(), node.frame().outer_bound_words()),
            (encoding.encoding(), encoding.outer_bound_words())
        );
        for (position, Child { separator, lid, .. }) in children.iter().enumerate() {
            let low = if position == 0 { low } else { Some(*separator) };
            let high = children.get(position + 1).map(|next| next.separator).or(high);
            let child = self.store.latest(*lid, self.guard);
            assert_eq!(child.lid(), *lid, "the page table leads to the node");
            assert_eq!(child.level() + 1, node.level());
            self.node(child, low, high);
        }
    }

    fn leaf(&mut self, leaf: Node<'g>, low: Option<&'g [u8]>, high: Option<&'g [u8]>) {
        self.checked.leaves += 1;
        let (left, right) = (leaf.left(), leaf.right());
        assert_eq!(left, self.before.map(|(lid, _)| lid), "the left sibling is the leaf before");
        assert!(self.before.is_none_or(|(_, right)| right == Some(leaf.lid())), "the leaf before leads here");
        self.before = Some((leaf.lid(), right));
        let pairs = pairs_of(leaf);
        let keys: Vec<&[u8]> = pairs.iter().map(|pair| pair.key).collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "keys ascend");
        assert_within(&keys, low, high);
        let references = references_of(leaf);
        for part in references.iter().flat_map(|value| overflow::parts(&self.store.frames, value, self.guard)) {
            assert!(self.lids.insert(part.lid), "a part is one value's");
            self.frame(self.store.frames.latest_number(part.lid), part.units, Owner::Value(part.lid));
        }
        for pair in &pairs {
            assert_eq!(pair.fingerprint, fingerprint(pair.key));
            let found = find::get(leaf, pair.key, pair.fingerprint, u64::MAX);
            assert_eq!(found, Some(pair.value), "a search finds what a scan finds");
            self.value(pair.value);
            self.checked.pairs += 1;
            self.checked.pair_bytes += pair.key.len() as u64;
        }
        assert_eq!(
            Shortcuts::open(leaf).encoding(),
            Encoding::between(low, high),
            "the encoding is that of the fences"
        );
        check_segments(leaf);
        check_log(leaf, self.store.log_block, self.store.versions.are_on());
    }

    fn value(&mut self, value: Value<'g>) {
        self.checked.pair_bytes += value.size() as u64;
        self.checked.expiring += u64::from(value.expiry().is_some());
        let Content::Overflow(reference) = value.content() else { return };
        let mut size = 0;
        overflow::with_parts(&self.store.frames, reference, self.guard, |_, part| size += part.len());
        assert_eq!(size, overflow::value_size(reference));
        self.checked.frame_bytes += overflow::frame_bytes(reference);
    }
}

/// Returns the newest pairs of a leaf.
fn pairs_of(leaf: Node<'_>) -> Vec<Item<'_>> {
    let mut cursor = LeafCursor::new(leaf, 0, Snapshot::ALL);
    std::iter::from_fn(|| cursor.next()).collect()
}

/// Returns the references to overflow values, also those that newer entries have replaced.
fn references_of(leaf: Node<'_>) -> Vec<&[u8]> {
    let shortcuts = Shortcuts::open(leaf);
    let mut values: Vec<Value<'_>> =
        (0..leaf.state().log_count()).map(|entry| Entry::read(leaf, entry).value).collect();
    for index in 0..shortcuts.segment_count() {
        let segment = Segment::open(leaf, shortcuts.segment_start(index), index);
        values.extend((0..segment.count()).map(|item| segment.value(item)));
    }
    values.into_iter().filter_map(Value::reference).collect()
}

fn assert_within(keys: &[&[u8]], low: Option<&[u8]>, high: Option<&[u8]>) {
    assert!(keys.first().is_none_or(|first| low.is_none_or(|low| low <= *first)), "no key is below the low fence");
    assert!(keys.last().is_none_or(|last| high.is_none_or(|high| *last < high)), "all keys are below the high fence");
}

/// Checks that segments follow each other without lost room, and that the shortcut block leads to them.
fn check_segments(leaf: Node<'_>) {
    let shortcuts = Shortcuts::open(leaf);
    let count = shortcuts.segment_count();
    for (index, key) in std::iter::once(&[][..]).chain(shortcuts.boundary_keys()).enumerate() {
        let start = shortcuts.segment_start(index);
        let segment = Segment::open(leaf, start, index);
        assert!(segment.count() <= ITEM_COUNT_MAX && (segment.count() > 0 || count == 1), "segments have items");
        let (next, room) = match index + 1 < count {
            true => (shortcuts.segment_start(index + 1), SEGMENT_ALIGNMENT),
            // A segment that was kept may have the bytes that filled it up.
            false => (leaf.log_start(), LINE_SIZE + SEGMENT_ALIGNMENT),
        };
        let end = start + segment.size();
        assert!(end <= next && next - end < room, "segment {index} of {count}: {end}, {next}");
        if index > 0 {
            assert_eq!(
                shortcuts.key_head(index - 1),
                shortcuts.encoding().key_head(key),
                "key heads are made from the keys"
            );
        }
    }
}

/// Checks order hints, back pointers and flags of a log against its keys.
fn check_log(leaf: Node<'_>, log_block: LogBlock, mvcc: bool) {
    let count = leaf.state().log_count();
    assert!(count <= log_block.entry_count_max() && LINE_SIZE + leaf.state().log_size() <= log_block.room(leaf));
    let order = LogOrder::read(leaf);
    let entries: Vec<Entry<'_>> = (0..count).map(|position| Entry::read(leaf, order.entry(position))).collect();
    for (position, pair) in entries.windows(2).enumerate() {
        let is_newer = order.entry(position) > order.entry(position + 1);
        assert_eq!(pair[0].word.flags.is_followed, pair[0].key == pair[1].key);
        assert!(pair[0].key < pair[1].key || (pair[0].key == pair[1].key && is_newer), "entries are in order");
    }
    assert!(entries.last().is_none_or(|last| !last.word.flags.is_followed));
    for entry in &entries {
        let position = Shortcuts::open(leaf).find(Target::AtOrBelow(entry.key));
        let sorted = find::search_sorted(leaf.frame(), position, entry.key, fingerprint(entry.key));
        let logged = SortedPosition { back: entry.word.back, is_exact: entry.word.flags.is_exact };
        assert_eq!(logged, sorted, "back pointers are right");
    }
    let deltas: Vec<u64> = (0..count).map(|entry| Entry::read(leaf, entry).delta).collect();
    if mvcc {
        // Entries that a merge has left in the log have the leaf's version.
        assert!(deltas.is_sorted_by(|a, b| a < b || *b == 0), "entries are in the order of their versions");
    } else {
        assert!(leaf.version() == 0 && deltas.iter().all(|delta| *delta == 0), "there are no versions");
    }
}
