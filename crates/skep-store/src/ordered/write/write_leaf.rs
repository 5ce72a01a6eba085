//! Writes: append to the log of a leaf, or merge log and sorted block (Honeycomb, sections 3.4 and 3.5).

use std::cmp::Ordering;

use super::super::key_head::{Target, fingerprint};
use super::super::leaf::build::{self, LEAF_SIZE_LOW, LeafPlan, Sorted};
use super::super::leaf::cursor::LeafCursor;
use super::super::leaf::edit::Edits;
use super::super::leaf::edit::NewEntry;
use super::super::leaf::find;
use super::super::leaf::merge::pairs_with;
use super::super::memory::frame_state::{FreeFrame, SealedFrame};
use super::super::node::frame::{LockedNode, Node};
use super::super::node::log::{self, BackPointer, DELTA_MAX, DirectoryWord, Flags};
use super::super::node::overflow::{self as outside, Part};
use super::super::node::segment::Value;
use super::super::node::shortcut::Shortcuts;
use super::super::read::descent::KeyPlace;
use super::super::space::Claim;
use super::super::store::OrderedStore;
use super::super::trace::Trace;
use super::super::version::epoch::Guard;
use super::super::version::garbage::Garbage;
use super::super::version::versions::wait;
use super::attempt::{AbortOnPanic, Attempt, Terms, Writer};
use super::change::{Change, Decision};
use crate::memory::LINE_SIZE;
use skep_core::operation::Reply;

/// Refused attempts that move frames while memory is short: what can be moved for ever must not keep a write waiting.
const MOVES_OF_REFUSED_MAX: u32 = 64;

/// Whether the merge of a write may make a leaf larger when only the memory is left that is kept back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// No, nor may it use that memory: the write adds bytes, and may fail.
    IfUnreserved,
    /// No: its value is smaller than the one before. A leaf of pairs of several sizes may take more than one of pairs of one
    /// size, so puts of smaller values without end would use up the memory that deletes need.
    No,
    /// Yes: it is a delete or has a value of the same size, and must not fail. It seldom needs more than the leaf has.
    AsNeeded,
}

impl<T: Trace> OrderedStore<T> {
    /// Tries until a write is done or refused, and all can read on what ground. None if there is no memory for it. Its key's
    /// place may be known from before.
    pub(crate) fn write(
        &self,
        key: &[u8],
        change: &Change<'_>,
        known: Option<KeyPlace<'_, T>>,
        writer: &mut Writer,
        guard: &Guard<'_>,
    ) -> Option<Reply<'static>> {
        let mut rounds = 0;
        let (replaced_before, mut outside) = (writer.replaced.len(), false);
        let settled = loop {
            match self.attempt(key, change, known, writer, &mut outside, guard) {
                Attempt::Settled { reply, version } => break Ok((reply, version)),
                Attempt::Restructured { version } => self.versions.wait_until_readable(version),
                Attempt::Again => wait(&mut rounds),
                Attempt::NoMemory(claim) => break Err(claim),
            }
        };
        writer.draft.discard(self);
        writer.must_succeed = settled.as_ref().is_err_and(|claim| *claim != Claim::Growth);
        let may_move = match settled {
            Ok(_) => outside || writer.replaced.len() > replaced_before,
            Err(_) => {
                writer.moves_of_refused = (writer.moves_of_refused + 1).min(MOVES_OF_REFUSED_MAX + 1);
                writer.moves_of_refused <= MOVES_OF_REFUSED_MAX
            }
        };
        if may_move && self.is_scarce() {
            self.evacuate(&mut writer.replaced, guard);
        }
        let (reply, version) = settled.ok()?;
        self.versions.wait_until_readable(version);
        Some(reply)
    }

    /// Tries once to carry out a write: looks at the key's leaf, decides, and changes the leaf if it is still as it was.
    #[inline]
    fn attempt(
        &self,
        key: &[u8],
        change: &Change<'_>,
        known: Option<KeyPlace<'_, T>>,
        Writer { draft, replaced, .. }: &mut Writer,
        has_written_outside: &mut bool,
        guard: &Guard<'_>,
    ) -> Attempt {
        // As it is now.
        let known = known.map(|known| KeyPlace { leaf: known.leaf.frame().open(), ..known });
        // A leaf that was replaced stays locked: one that is open is the key's.
        let place = known.filter(|known| !known.leaf.state().is_locked()).unwrap_or_else(|| self.place_of(key, guard));
        let KeyPlace { leaf, segment, fingerprint } = place;
        if leaf.state().is_locked() {
            return Attempt::Again;
        }
        let (back, is_exact) = find::sorted_place(leaf, segment, key, fingerprint);
        let logged = find::find_in_log(leaf, key, find::log_candidates(leaf, fingerprint), u64::MAX);
        let exists = logged.map_or(is_exact, |entry| !entry.word.flags.is_delete);
        let found = || exists.then(|| logged.map_or_else(|| find::sorted_value(leaf, back), |entry| entry.value));
        let value = match change.decide(self, exists, found, draft, guard) {
            Decision::Set(value) => Some(value),
            Decision::Remove => None,
            Decision::Refuse(reply) => return Attempt::Settled { reply, version: find::newest_version(leaf) },
            Decision::NoMemory(claim) => return Attempt::NoMemory(claim),
        };
        let (is_outside, stays) = (value.is_some_and(|value| value.is_outside), value.is_some());
        let new = NewEntry { key, fingerprint, value };
        let attempt = self.change_leaf(leaf, &new, (back, is_exact), found, guard, replaced);
        if matches!(attempt, Attempt::Settled { .. }) {
            if is_outside {
                draft.settle();
                *has_written_outside = true;
            }
            if exists != stays {
                guard.count_pairs(if stays { 1 } else { -1 });
            }
        }
        attempt
    }

    /// Goes the way to a key. What lies at its end is prefetched.
    fn place_of<'g>(&'g self, key: &[u8], guard: &'g Guard<'_>) -> KeyPlace<'g, T> {
        let leaf = self.find_leaf(Target::AtOrBelow(key), u64::MAX, guard);
        log::prefetch_end(leaf);
        let shortcuts = Shortcuts::open(leaf);
        let segment = shortcuts.find(Target::AtOrBelow(key));
        shortcuts.prefetch_segment(usize::from(segment.segment));
        KeyPlace { leaf, segment, fingerprint: fingerprint(key) }
    }

    /// Puts an entry into a leaf, if the leaf is still as it was seen. `old` finds the value before, if there is one.
    #[inline]
    fn change_leaf<'g>(
        &'g self,
        leaf: Node<'g, T>,
        entry: &NewEntry<'_>,
        (back, is_exact): (BackPointer, bool),
        old: impl Fn() -> Option<Value<'g>>,
        guard: &'g Guard<'_>,
        replaced: &mut Vec<Garbage>,
    ) -> Attempt {
        let value = entry.value;
        let size = log::entry_size(entry.key, value.map_or(&[], |value| value.bytes));
        let has_room = self.log_block.has_room(leaf, size);
        // Far enough below the largest delta that no writers in flight can take the versions between. The leaf's own version
        // may not be readable yet.
        let delta_fits = self.versions.read().saturating_sub(leaf.version()) < DELTA_MAX / 2;
        // A leaf does not stay without pairs: nothing may ever be written to it again.
        let has_others = || {
            let mut cursor = LeafCursor::new(leaf, 0, u64::MAX);
            cursor.next().is_some() && cursor.next().is_some()
        };
        // A value in frames of its own is freed by the merge that drops it. That comes at once if it frees much, or if little
        // is free.
        let frees = |old: Value<'_>| old.is_outside && (self.is_scarce() || outside::is_large(old.bytes));
        let must_free = || self.has_values() && old().is_some_and(frees);
        let can_append = has_room && delta_fits && (value.is_some() || has_others());
        if can_append && !must_free() {
            return self.append(leaf, entry, back, is_exact);
        }
        let growth = match value.map(|value| old().map(|old| outside::size_of(value).cmp(&outside::size_of(old)))) {
            None | Some(Some(Ordering::Equal)) => Growth::AsNeeded,
            Some(Some(Ordering::Less)) => Growth::No,
            Some(_) => Growth::IfUnreserved,
        };
        match self.merge(leaf, entry, (back, is_exact), growth, guard, replaced) {
            Attempt::NoMemory(_) if can_append => self.append(leaf, entry, back, is_exact),
            attempt => attempt,
        }
    }

    /// Appends to the log block.
    fn append(&self, leaf: Node<'_, T>, new: &NewEntry<'_>, back: BackPointer, is_exact: bool) -> Attempt {
        let (hint, is_followed) = find::log_rank(leaf, new.key, back);
        let value = new.value.map_or(&[][..], |value| value.bytes);
        let is_outside = new.value.is_some_and(|value| value.is_outside);
        let flags = Flags { is_delete: new.value.is_none(), is_exact, is_followed, is_outside };
        let word = DirectoryWord { offset: leaf.state().log_size(), hint, flags, back };
        let Some(mut locked) = leaf.try_lock() else { return Attempt::Again };
        log::write_entry(locked.log_room(), new.key, value);
        let _abort = AbortOnPanic;
        let version = self.versions.take();
        log::write_delta(locked.log_room(), version - leaf.version());
        locked.publish_entry(log::entry_size(new.key, value), word.to_bits(), new.fingerprint);
        self.versions.release(version);
        Attempt::Settled { reply: Reply::Done, version }
    }

    /// Merges log and sorted block and the new entry into another frame. If they need two leaves, or too small a part of one,
    /// the leaf is split, or joined with another, without the new entry.
    fn merge(
        &self,
        leaf: Node<'_, T>,
        new: &NewEntry<'_>,
        place: (BackPointer, bool),
        growth: Growth,
        guard: &Guard<'_>,
        replaced: &mut Vec<Garbage>,
    ) -> Attempt {
        let attempt = self.merge_with(leaf, new, place, Claim::Growth, guard, replaced);
        if !matches!(attempt, Attempt::NoMemory(_)) || growth == Growth::IfUnreserved {
            return attempt;
        }
        let in_its_size = self.merge_in_its_size(leaf, new, place, guard, replaced);
        in_its_size.unwrap_or_else(|| match growth {
            Growth::AsNeeded => self.merge_with(leaf, new, place, Claim::Upkeep, guard, replaced),
            Growth::No | Growth::IfUnreserved => attempt,
        })
    }

    fn merge_with(
        &self,
        leaf: Node<'_, T>,
        new: &NewEntry<'_>,
        place: (BackPointer, bool),
        claim: Claim,
        guard: &Guard<'_>,
        replaced: &mut Vec<Garbage>,
    ) -> Attempt {
        let Some(locked) = leaf.try_lock() else { return Attempt::Again };
        leaf.frame().prefetch(leaf.log_start(), LINE_SIZE + leaf.state().log_size());
        leaf.frame().prefetch(LINE_SIZE, leaf.log_start() - LINE_SIZE);
        let edits = Edits::of_log(leaf, Some((new, place)));
        let terms = Terms { claim, dropped: self.parts_of(&edits.dropped, guard) };
        // A small leaf that grows is joined with no other: an ascending load splits off small ones, and fills them.
        let is_alone = leaf.left().is_none() && leaf.right().is_none();
        let is_large = |size: usize| size >= LEAF_SIZE_LOW.min(leaf.log_start()) || is_alone;
        if edits.are_in_place() && is_large(leaf.log_start()) {
            let build = |frame| build::build_in_place(self.frames.build(frame), leaf, &edits.edits);
            let granules = build::granules(leaf.log_start(), self.log_block);
            return self.replace_frame(locked, granules, build, &terms, replaced);
        }
        if let Some(sorted) = Sorted::edited(leaf, &edits.edits) {
            match LeafPlan::new(sorted, self.log_block) {
                Ok(plan) if is_large(plan.size()) => return self.replace_leaf(locked, &plan, &terms, replaced),
                Ok(_) => {}
                // What ascends leaves segments half full: their pairs may fit one leaf if they are divided evenly.
                Err(sorted) if sorted.parts.len() > 1 && !edits.are_ascending(leaf) => {
                    return self.split_leaf(locked, new.key, claim, guard, replaced);
                }
                Err(_) => {}
            }
        }
        match LeafPlan::of_pairs(pairs_with(leaf, &edits.edits), self.log_block) {
            Ok(plan) if is_alone || is_large(plan.size()) && !plan.pairs().is_empty() => {
                self.replace_leaf(locked, &plan, &terms, replaced)
            }
            Ok(plan) => self.join_leaf(locked, &plan, new.key, &terms, guard, replaced),
            Err(_) => self.split_leaf(locked, new.key, claim, guard, replaced),
        }
    }

    /// Gives a leaf a frame that is built as planned.
    pub(crate) fn replace_leaf(
        &self,
        locked: LockedNode<'_, T>,
        plan: &LeafPlan<'_>,
        terms: &Terms,
        replaced: &mut Vec<Garbage>,
    ) -> Attempt {
        let leaf = locked.node();
        let scale = Shortcuts::open(leaf).scale();
        let siblings = (leaf.left(), leaf.right());
        let build = |frame| plan.build(self.frames.build(frame), leaf.lid(), scale, siblings, Some(leaf.number()));
        self.replace_frame(locked, plan.granules(), build, terms, replaced)
    }

    /// Gives a leaf a frame of this size that `build` makes.
    pub(crate) fn replace_frame(
        &self,
        locked: LockedNode<'_, T>,
        granules: usize,
        build: impl FnOnce(FreeFrame) -> SealedFrame,
        terms: &Terms,
        replaced: &mut Vec<Garbage>,
    ) -> Attempt {
        let frame = self.allocate_for(locked.node(), granules, terms.claim);
        let Some(frame) = frame else { return Attempt::NoMemory(terms.claim) };
        let sealed = build(frame);
        let _abort = AbortOnPanic;
        let version = self.versions.take();
        self.frames.set_version(&sealed, version);
        let old = self.frames.replace(locked, &sealed);
        self.versions.release(version);
        replaced.push(Garbage::Frame(old));
        self.retire_outside(&terms.dropped, replaced);
        Attempt::Settled { reply: Reply::Done, version }
    }

    /// The parts of the values that these references name.
    pub(crate) fn parts_of(&self, references: &[&[u8]], guard: &Guard<'_>) -> Vec<Part> {
        references.iter().flat_map(|reference| outside::parts(&self.frames, reference, guard)).collect()
    }
}
