//! Writes: append to the log of a leaf, or merge log and sorted block (Honeycomb, sections 3.4 and 3.5).

use std::cmp::Ordering;

use super::change::{Change, Decision, Draft, decide};
use super::cursor::LeafCursor;
use super::edit::Edits;
use super::epoch::Guard;
use super::frame::{FreeFrame, LockedNode, Node, SealedFrame};
use super::garbage::Garbage;
use super::leaf;
use super::log::{self, BackPointer, DELTA_MAX, DirectoryWord, Flags};
use super::merge::pairs_with;
use super::outside::{self, Part};
use super::segment::Value;
use super::shortcut::{SegmentPlace, Shortcuts};
use super::sorted::{self, LEAF_SIZE_LOW, LeafPlan, Sorted};
use super::space::Claim;
use super::trace::Trace;
use super::tree::OrderedStore;
use super::version::wait;
use super::window::{Target, fingerprint};
use crate::memory::LINE_SIZE;
use skep_core::operation::Reply;

/// How an attempt to write ended.
#[derive(Debug)]
pub(super) enum Attempt {
    /// Done or refused, on the ground of data up to a version that has to be readable before the answer is given.
    Settled { reply: Reply<'static>, version: u64 },
    /// The leaf was split, or joined with another, and holds the same pairs as before: begin again when this version is
    /// readable.
    Restructured { version: u64 },
    /// Another writer was in the way: begin again.
    Again,
    /// There was no frame or LID for this. Nothing has changed.
    NoMemory(Claim),
}

/// Ends the process if a writer panics between taking a version and releasing it: readers would never see later ones.
pub(super) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// Where a key lies, or would.
#[derive(Debug)]
pub(super) struct KeyPlace<'g, T> {
    pub(super) leaf: Node<'g, T>,
    pub(super) segment: SegmentPlace,
    pub(super) fingerprint: u8,
}

impl<T> Clone for KeyPlace<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for KeyPlace<'_, T> {}

/// What a session keeps from write to write.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The values of the last write.
    pub(super) draft: Draft,
    /// What was replaced and has not been tagged yet. All of it is readable.
    pub(super) replaced: Vec<Garbage>,
    /// Whether the last write found no memory though it must not fail: others are using what is kept back for it.
    pub(super) must_succeed: bool,
    /// Refused attempts that have moved frames since memory ran short.
    pub(super) moves_of_refused: u32,
}

/// Refused attempts that move frames while memory is short: what can be moved for ever must not keep a write waiting.
const MOVES_OF_REFUSED_MAX: u32 = 64;

/// What a merge takes of memory, and what it drops.
#[derive(Debug)]
pub(super) struct Terms {
    /// Whether it may use what is kept back.
    pub(super) claim: Claim,
    /// Parts of values that nothing refers to after it.
    pub(super) dropped: Vec<Part>,
}

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

/// What a write puts into a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEntry<'a> {
    pub(super) key: &'a [u8],
    pub(super) fingerprint: u8,
    /// None removes the key.
    pub(super) value: Option<Value<'a>>,
}

impl<T: Trace> OrderedStore<T> {
    /// Tries until a write is done or refused, and all can read on what ground. None if there is no memory for it. Its key's
    /// place may be known from before.
    pub(super) fn write(
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
        let (back, is_exact) = leaf::sorted_place(leaf, segment, key, fingerprint);
        let logged = leaf::find_in_log(leaf, key, leaf::log_candidates(leaf, fingerprint), u64::MAX);
        let exists = logged.map_or(is_exact, |entry| !entry.word.flags.is_delete);
        let found = || exists.then(|| logged.map_or_else(|| leaf::sorted_value(leaf, back), |entry| entry.value));
        let value = match decide(change, self, exists, found, draft, guard) {
            Decision::Set(value) => Some(value),
            Decision::Remove => None,
            Decision::Refuse(reply) => return Attempt::Settled { reply, version: leaf::newest_version(leaf) },
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
        let (hint, is_followed) = leaf::log_rank(leaf, new.key, back);
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
            let build = |frame| sorted::build_in_place(self.frames.build(frame), leaf, &edits.edits);
            let granules = sorted::granules(leaf.log_start(), self.log_block);
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
    pub(super) fn replace_leaf(
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
    pub(super) fn replace_frame(
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
    pub(super) fn parts_of(&self, references: &[&[u8]], guard: &Guard<'_>) -> Vec<Part> {
        references.iter().flat_map(|reference| outside::parts(&self.frames, reference, guard)).collect()
    }
}
