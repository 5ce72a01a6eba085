//! A bulk load: builds the tree of an empty store from pairs in the order of their keys.
//!
//! ```text
//! pairs ─▶ pending ─▶ leaf 1 ◀──▶ leaf 2 ◀──▶ ...        then the nodes above them, level by level, and at last the root
//! memory is short: leaf 1, leaf 2, ... ─▶ pending ─▶ tight leaves; each is freed before its pairs are written again
//! ```
//!
//! 1. Leaves are filled as far as an ascending load fills them, with room for a log.
//! 2. If there is no memory for one beside the reserve, all leaves are packed again, tightly, and so are all later ones.
//!    They may take the reserve.
//! 3. No reader finds a node before the root is published.
//!
//! **Why a store that was recovered fits its memory.** The layout depends on the pairs alone, not on the order in which
//! they were written. Tight leaves have more pairs in a byte than those that writes leave, and writes that make a store
//! grow leave the reserve: a block in each chunk, and forty.
//!
//! If the pairs do not fit nevertheless, the load goes on without building, and counts the memory that is missing.

use super::super::key_head::encoding::Encoding;
use super::super::key_head::{fingerprint, separator};
use super::super::leaf::build::LeafPlan;
use super::super::leaf::merge::pairs_with;
use super::super::leaf::pack::Packing;
use super::super::memory::frame_state::{FreeFrame, SealedFrame};
use super::super::memory::number::{CHUNK_UNITS, FRAME_SIZE_MAX, FRAME_UNITS_MAX, Lid, UNIT_512_SIZE};
use super::super::node::builder::Siblings;
use super::super::node::hint::NO_HINT;
use super::super::node::interior::{self, CHILD_COUNT_HIGH, Child, InteriorPlan};
use super::super::node::overflow::{PART_SIZE_MAX, REFERENCE_SIZE, units_of};
use super::super::node::segment::{ITEM_COUNT_MAX, Item};
use super::super::node::shortcut::SEGMENT_COUNT_MAX;
use super::super::node::value::{Content, Value, is_inside, write_expiring};
use super::super::space::Claim;
use super::Session;
use skep_core::operation::{Expiry, Operation, OperationError, PutCondition, Request};

/// The memory that the pairs of a load need and the store does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingMemory {
    /// Bytes that are missing.
    pub bytes: u64,
}

/// A bulk load into a new store, which nothing else uses.
#[derive(Debug)]
pub struct Load<'s> {
    session: Session<'s>,
    pending: Pending,
    /// The leaves that were built, with the lowest key that each may have; that of the first is empty.
    leaves: Vec<Below>,
    /// The same of the next leaf, and its LID, to which the last one is linked.
    low: Vec<u8>,
    next: Option<Lid>,
    is_tight: bool,
    /// Units for which there was no memory. Nothing more is built from then on.
    missing_units: u64,
    /// Pairs so far, and those whose keys expire.
    pairs: (i64, i64),
    scratch: Vec<u8>,
}

/// A node, and the lowest key that it may have.
type Below = (Vec<u8>, Lid);

/// Pairs that are not in a leaf yet.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    items: Vec<PendingItem>,
}

#[derive(Clone, Copy, Debug)]
struct PendingItem {
    start: usize,
    key_size: usize,
    value_size: usize,
    is_marked: bool,
    fingerprint: u8,
}

impl Pending {
    fn push(&mut self, item: &Item<'_>) {
        let Item { key, value, fingerprint } = *item;
        let (start, key_size, value_size) = (self.bytes.len(), key.len(), value.bytes.len());
        self.items.push(PendingItem { start, key_size, value_size, is_marked: value.is_marked, fingerprint });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.bytes);
    }

    fn items(&self) -> Vec<Item<'_>> {
        let item = |&PendingItem { start, key_size, value_size, is_marked, fingerprint }: &PendingItem| {
            let (key, bytes) = self.bytes[start..start + key_size + value_size].split_at(key_size);
            Item { key, value: Value { bytes, is_marked }, fingerprint }
        };
        self.items.iter().map(item).collect()
    }

    /// Returns true if one leaf cannot have all of them.
    fn is_full(&self) -> bool {
        self.bytes.len() >= FRAME_SIZE_MAX || self.items.len() > SEGMENT_COUNT_MAX * ITEM_COUNT_MAX
    }

    /// Removes the first pairs.
    fn remove(&mut self, count: usize) {
        let size = self.items.get(count).map_or(self.bytes.len(), |item| item.start);
        self.bytes.drain(..size);
        self.items.drain(..count);
        self.items.iter_mut().for_each(|item| item.start -= size);
    }
}

impl<'s> Load<'s> {
    /// Begins to load pairs into the new store of a session.
    pub fn new(session: Session<'s>) -> Self {
        Load {
            session,
            pending: Pending::default(),
            leaves: Vec::new(),
            low: Vec::new(),
            next: None,
            is_tight: false,
            missing_units: 0,
            pairs: (0, 0),
            scratch: Vec::new(),
        }
    }

    /// Adds a pair, whose key is greater than all before it. Fails if the key or the value is too long.
    pub fn push(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<(), OperationError> {
        Request { key, operation: Operation::Put { value, condition: PutCondition::Always } }.validate()?;
        let reference;
        let content = if is_inside(value.len(), expiry.is_some()) {
            Content::Inside(value)
        } else {
            reference = self.write_overflow(value);
            Content::Overflow(&reference)
        };
        let value = match (content, expiry) {
            (Content::Inside(bytes), None) => Value::inside(bytes),
            (Content::Overflow(bytes), None) => Value { bytes, is_marked: true },
            (_, Some(expiry)) => {
                write_expiring(&mut self.scratch, expiry, content);
                self.session.store.clock.need();
                self.session.store.expiries.note(expiry);
                Value { bytes: &self.scratch, is_marked: true }
            }
        };
        self.pending.push(&Item { key, value, fingerprint: fingerprint(key) });
        self.pairs = (self.pairs.0 + 1, self.pairs.1 + i64::from(expiry.is_some()));
        while self.pending.is_full() {
            self.build_leaf();
        }
        Ok(())
    }

    /// Builds what is left, and publishes the tree.
    pub fn finish(mut self) -> Result<(), MissingMemory> {
        loop {
            while !self.pending.items.is_empty() {
                self.build_leaf();
            }
            if self.missing_units > 0 || self.build_interior() {
                break;
            }
            match self.is_tight {
                true => self.missing_units += (self.leaves.len() * FRAME_UNITS_MAX / CHILD_COUNT_HIGH) as u64,
                false => self.pack_tightly(),
            }
        }
        if self.missing_units > 0 {
            // With the nodes above the leaves.
            let units = self.missing_units + self.missing_units / 16 + u64::from(CHUNK_UNITS);
            let bytes = units.next_multiple_of(CHUNK_UNITS.into()) * UNIT_512_SIZE as u64;
            return Err(MissingMemory { bytes });
        }
        let guard = self.session.participant.enter();
        guard.count_pairs(self.pairs.0);
        guard.count_expiring(self.pairs.1);
        Ok(())
    }

    /// Writes a value to frames of its own. Returns its reference, or zeros if there is no memory.
    fn write_overflow(&mut self, value: &[u8]) -> [u8; REFERENCE_SIZE] {
        while self.missing_units == 0 {
            if let Some(written) = self.session.store.write_overflow(value, self.claim()) {
                return written.reference;
            }
            if self.is_tight {
                break;
            }
            self.pack_tightly();
        }
        self.missing_units += value.chunks(PART_SIZE_MAX).map(|part| units_of(part.len()) as u64).sum::<u64>();
        [0; REFERENCE_SIZE]
    }

    fn claim(&self) -> Claim {
        if self.is_tight { Claim::Upkeep } else { Claim::Growth }
    }

    /// Builds a leaf of the first pending pairs. If there is no memory, packs all leaves tightly instead, or counts what is
    /// missing.
    fn build_leaf(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let items = pending.items();
        let packing = if self.is_tight { Packing::TIGHT } else { Packing::with_log(self.session.store.log_block) };
        let plan = packing.plan(&items);
        let count = plan.pairs().len();
        let high = items.get(count).map(|next| separator(items[count - 1].key, next.key));
        let is_built = self.missing_units == 0 && self.try_leaf(&plan, high);
        let units = plan.units() as u64;
        drop((plan, items));
        self.pending = pending;
        if is_built {
            self.pending.remove(count);
        } else if self.is_tight {
            self.missing_units += units;
            self.pending.remove(count);
        } else {
            self.pack_tightly();
        }
    }

    /// Builds a leaf. `high` is the lowest key of the next one. Returns false if there is no memory.
    fn try_leaf(&mut self, plan: &LeafPlan<'_>, high: Option<&[u8]>) -> bool {
        let store = self.session.store;
        let is_root = self.leaves.is_empty() && high.is_none();
        if self.next.is_none() && !is_root {
            self.next = store.space().allocate_lid();
        }
        let lid = if is_root { Some(Lid::ROOT) } else { self.next };
        let Some(lid) = lid else { return false };
        let right = high.and_then(|_| store.space().allocate_lid());
        if right.is_none() && high.is_some() {
            return false;
        }
        let frame = store.allocate_nodes(&[(lid, plan.units())], &[], self.claim()).and_then(|mut frames| frames.pop());
        let Some(frame) = frame else {
            right.into_iter().for_each(|lid| store.space().free_lid(lid));
            return false;
        };
        let low = (!self.leaves.is_empty()).then_some(&self.low[..]);
        let siblings = Siblings { left: self.leaves.last().map(|(_, lid)| *lid), right };
        let sealed = plan.build(store.frames.build(frame), lid, Encoding::between(low, high), siblings, None);
        self.publish(lid, &sealed);
        self.leaves.push((std::mem::replace(&mut self.low, high.unwrap_or_default().to_vec()), lid));
        self.next = right;
        true
    }

    /// Names the frame of a node in the page table. That of the root replaces the frame of the empty tree.
    fn publish(&mut self, lid: Lid, frame: &SealedFrame) {
        let Session { store, participant, .. } = &mut self.session;
        if lid != Lid::ROOT {
            return store.frames.publish(lid, frame);
        }
        let guard = participant.enter();
        let empty = store.latest(lid, &guard).try_lock().expect("nothing else uses the store");
        let empty = store.frames.replace(empty, frame).reuse();
        store.space().free(empty);
    }

    /// Frees a node that is not reachable.
    fn free(&mut self, lid: Lid) {
        let Session { store, participant, .. } = &mut self.session;
        let guard = participant.enter();
        let node = store.latest(lid, &guard).try_lock().expect("nothing else uses the store");
        let frame: FreeFrame = node.into_retired().reuse();
        let mut space = store.space();
        space.free(frame);
        if lid != Lid::ROOT {
            space.free_lid(lid);
        }
    }

    /// Packs the pairs of all leaves again, and lets later ones be packed tightly too.
    fn pack_tightly(&mut self) {
        self.is_tight = true;
        let rest = std::mem::take(&mut self.pending);
        let store = self.session.store;
        self.low.clear();
        if let Some(next) = self.next.take() {
            store.space().free_lid(next);
        }
        for (_, lid) in std::mem::take(&mut self.leaves) {
            let guard = self.session.participant.enter();
            pairs_with(store.latest(lid, &guard), &[]).iter().for_each(|item| self.pending.push(item));
            drop(guard);
            self.free(lid);
            while self.pending.is_full() {
                self.build_leaf();
            }
        }
        rest.items().iter().for_each(|item| self.pending.push(item));
    }

    /// Builds the nodes above the leaves. Returns false, and frees them, if there is no memory.
    fn build_interior(&mut self) -> bool {
        let leaves = std::mem::take(&mut self.leaves);
        let mut built = Vec::new();
        let mut level = 1;
        let mut top = if leaves.len() > 1 { self.build_level(level, &leaves, &mut built) } else { Some(Vec::new()) };
        while let Some(nodes) = top.as_ref().filter(|nodes| nodes.len() > 1) {
            level += 1;
            top = self.build_level(level, nodes, &mut built);
        }
        if top.is_none() {
            built.into_iter().for_each(|lid| self.free(lid));
        }
        self.leaves = leaves;
        top.is_some()
    }

    /// Builds the nodes above these. Returns `None` if there is no memory.
    fn build_level(&mut self, level: u8, below: &[Below], built: &mut Vec<Lid>) -> Option<Vec<Below>> {
        let store = self.session.store;
        let mut above = Vec::new();
        let mut start = 0;
        while start < below.len() {
            let (children, plan) = first_node(&below[start..]);
            let end = start + children.len();
            let is_root = children.len() == below.len();
            let lid = if is_root { Lid::ROOT } else { store.space().allocate_lid()? };
            let frame =
                store.allocate_nodes(&[(lid, plan.units())], &[], Claim::Upkeep).and_then(|mut frames| frames.pop());
            let Some(frame) = frame else {
                if !is_root {
                    store.space().free_lid(lid);
                }
                return None;
            };
            let low = (start > 0).then(|| &below[start].0[..]);
            let encoding = interior::encoding_of(&children, low, below.get(end).map(|(low, _)| &low[..]));
            let sealed = plan.build(store.frames.build(frame), lid, level, &encoding, &children, None);
            self.publish(lid, &sealed);
            built.push(lid);
            above.push((below[start].0.clone(), lid));
            start = end;
        }
        Some(above)
    }
}

/// Returns the children of the first node above these, as many as fit so that the nodes after it have similar numbers, and
/// its plan.
fn first_node(below: &[Below]) -> (Vec<Child<'_>>, InteriorPlan) {
    let mut count = below.len().div_ceil(below.len().div_ceil(CHILD_COUNT_HIGH));
    loop {
        // A node has at least two children.
        if below.len() - count == 1 {
            count -= 1;
        }
        let mut children: Vec<Child<'_>> =
            below[..count].iter().map(|(low, lid)| Child { separator: low, lid: *lid, hint: NO_HINT }).collect();
        children[0].separator = &[];
        if let Some(plan) = InteriorPlan::new(&children) {
            return (children, plan);
        }
        count = (count - count / 8).min(count - 1);
    }
}
