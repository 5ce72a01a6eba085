//! Writes to one leaf: append to its log, or merge log and sorted block (Honeycomb, sections 3.4 and 3.5).

use std::cmp::Ordering;

use super::super::key_head::{Target, fingerprint};
use super::super::leaf::build::{self, LEAF_SIZE_LOW, LeafPlan, Sorted};
use super::super::leaf::cursor::LeafCursor;
use super::super::leaf::edit::{Edits, NewEntry};
use super::super::leaf::find::{self, LogRank, SortedPosition};
use super::super::leaf::merge::pairs_with;
use super::super::leaf::replace::{self, Replacements};
use super::super::memory::frame_state::{FreeFrame, SealedFrame};
use super::super::node::frame::{LockedNode, Node};
use super::super::node::log::{self, DELTA_MAX, DirectoryWord, Flags};
use super::super::node::overflow::{self, Part};
use super::super::node::shortcut::Shortcuts;
use super::super::node::value::Value;
use super::super::read::descent::KeyPosition;
use super::super::space::Claim;
use super::super::store::OrderedStore;
use super::super::version::clock::Snapshot;
use super::super::version::epoch::Guard;
use super::super::version::garbage::Garbage;
use super::super::version::versions::wait;
use super::attempt::{AbortOnPanic, Appended, Attempt, Terms, Writer};
use super::change::{Change, Decision, decide};
use super::plain_put::plain_value;
use crate::memory::LINE_SIZE;
use skep_core::operation::Reply;

/// Most refused attempts that move frames while memory is short. Frames could be moved for ever, and a write must not
/// wait for that.
const MOVES_OF_REFUSED_MAX: u32 = 64;

/// Tells if the merge of a write may make a leaf larger when only the reserve is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// No, nor may it use the reserve: the write adds bytes, and may fail.
    IfUnreserved,
    /// No: its value is smaller than the one before. A leaf of pairs of several sizes may need more memory than one of
    /// pairs of one size, so puts of smaller values could use up the memory that deletes need.
    No,
    /// Yes: it is a delete or has a value of the same size, and must not fail. It seldom needs more than the leaf has.
    AsNeeded,
}

impl OrderedStore {
    /// Attempts a write until it is done or refused, and the data that decided it is readable. Returns `None` if there
    /// is no memory for it. The position of its key may be known.
    pub(crate) fn write(
        &self,
        key: &[u8],
        change: Change<'_>,
        known: Option<KeyPosition<'_>>,
        writer: &mut Writer,
        guard: &Guard<'_>,
    ) -> Option<Reply<'static>> {
        let position = known.map_or_else(|| self.position_of(key, guard), KeyPosition::at_present);
        self.write_at(key, change, || position, writer, guard)
    }

    /// Does the same. `position` returns the position of the key, in a recent state of its leaf. Inlined for callers
    /// that write much.
    #[inline(always)]
    pub(crate) fn write_at<'g>(
        &'g self,
        key: &[u8],
        change: Change<'_>,
        position: impl Fn() -> KeyPosition<'g>,
        writer: &mut Writer,
        guard: &'g Guard<'_>,
    ) -> Option<Reply<'static>> {
        if let Some(effects) = &mut writer.effects {
            effects.open(self, change);
        }
        if let Some(value) = plain_value(change)
            && let Some(version) = self.put_plainly(key, value, change, position(), writer, guard)
        {
            self.versions.wait_until_readable(version);
            return Some(Reply::Done);
        }
        self.write_any(key, change, position(), writer, guard)
    }

    /// Does the same for any write, whose effects can be recorded.
    #[inline(never)]
    fn write_any(
        &self,
        key: &[u8],
        change: Change<'_>,
        known: KeyPosition<'_>,
        writer: &mut Writer,
        guard: &Guard<'_>,
    ) -> Option<Reply<'static>> {
        let mut rounds = 0;
        let (retired_before, mut has_overflow) = (writer.retired.len(), false);
        let outcome = loop {
            match self.attempt(key, change, known, writer, &mut has_overflow, guard) {
                Attempt::Committed { reply, version } => break Ok((reply, version)),
                Attempt::Restructured { version } => {
                    if let Some(effects) = &mut writer.effects {
                        effects.has_versions = true;
                    }
                    self.versions.wait_until_readable(version);
                }
                Attempt::Conflict => wait(&mut rounds),
                Attempt::NoMemory(claim) => break Err(claim),
            }
        };
        writer.scratch.discard(self);
        writer.must_succeed = outcome.as_ref().is_err_and(|claim| *claim != Claim::Growth);
        let may_move = match outcome {
            Ok(_) => has_overflow || writer.retired.len() > retired_before,
            Err(_) => {
                writer.moves_of_refused = (writer.moves_of_refused + 1).min(MOVES_OF_REFUSED_MAX + 1);
                writer.moves_of_refused <= MOVES_OF_REFUSED_MAX
            }
        };
        if may_move && self.is_scarce() {
            self.evacuate(&mut writer.retired, guard);
        }
        let (reply, version) = outcome.ok()?;
        self.versions.wait_until_readable(version);
        Some(reply)
    }

    /// Attempts a write once: finds the value, decides, and changes the leaf if it is unchanged. A function of its own: in
    /// the loop around it, every write would prepare what only further attempts need.
    #[inline(never)]
    fn attempt(
        &self,
        key: &[u8],
        change: Change<'_>,
        known: KeyPosition<'_>,
        Writer { scratch, retired, effects, .. }: &mut Writer,
        has_written_overflow: &mut bool,
        guard: &Guard<'_>,
    ) -> Attempt {
        let mut position = known.at_present();
        // A replaced leaf stays locked, so an unlocked one still has the key's range.
        if position.leaf.state().is_locked() {
            position = self.position_of(key, guard);
        }
        let KeyPosition { leaf, segment, fingerprint, item } = position;
        if leaf.state().is_locked() {
            return Attempt::Conflict;
        }
        let position = find::sorted_position(leaf, segment, item, key, fingerprint);
        let SortedPosition { back, is_exact } = position;
        let logged = find::find_in_log(leaf, key, find::log_candidates(leaf, fingerprint), u64::MAX)
            .map(|entry| (!entry.word.flags.is_delete).then_some(entry.value));
        let is_there = logged.map_or(is_exact, |value| value.is_some());
        let found = move || logged.unwrap_or_else(|| is_exact.then(|| find::sorted_value(leaf, back)));
        let expiry = if self.clock.is_needed() { found().and_then(Value::expiry) } else { None };
        let value = match decide(change, self, is_there, expiry, found, scratch, guard) {
            Decision::Set(value) => Some(value),
            Decision::Remove => None,
            Decision::Refuse(reply) => return Attempt::Committed { reply, version: find::newest_version(leaf) },
            Decision::NoMemory(claim) => return Attempt::NoMemory(claim),
        };
        let is_overflow = value.is_some_and(|value| value.reference().is_some());
        let (stays, new_expiry) = (value.is_some(), value.and_then(Value::expiry));
        let new = NewEntry { key, fingerprint, value };
        let attempt = self.change_leaf(leaf, &new, position, found, guard, retired);
        if let Attempt::Committed { version, .. } = attempt {
            if let Some(effects) = effects {
                effects.record(self, change, version, &new, guard);
                effects.inserted += u64::from(stays && !is_there);
            }
            if is_overflow {
                scratch.commit();
                *has_written_overflow = true;
            }
            if is_there != stays {
                guard.count_pairs(if stays { 1 } else { -1 });
            }
            if expiry.is_some() != new_expiry.is_some() {
                guard.count_expiring(if new_expiry.is_some() { 1 } else { -1 });
            }
            if let Some(expiry) = new_expiry {
                self.expiries.note(expiry);
            }
        }
        attempt
    }

    /// Descends to a key and prefetches its position.
    #[inline(always)]
    pub(crate) fn position_of<'g>(&'g self, key: &[u8], guard: &'g Guard<'_>) -> KeyPosition<'g> {
        let leaf = self.find_leaf(Target::AtOrBelow(key), u64::MAX, guard);
        log::prefetch_end(leaf);
        let segment = Shortcuts::open(leaf).find(Target::AtOrBelow(key));
        find::prefetch_segment(leaf, segment);
        let fingerprint = fingerprint(key);
        KeyPosition { leaf, segment, fingerprint, item: find::first_item(leaf, segment, fingerprint) }
    }

    /// Puts an entry into a leaf if it is unchanged. `old` returns the value before, if there is one.
    #[inline(always)]
    fn change_leaf<'g>(
        &'g self,
        leaf: Node<'g>,
        entry: &NewEntry<'_>,
        position: SortedPosition,
        old: impl Fn() -> Option<Value<'g>>,
        guard: &'g Guard<'_>,
        retired: &mut Vec<Garbage>,
    ) -> Attempt {
        let value = entry.value;
        let size = log::entry_size(entry.key, value.map_or(&[], |value| value.bytes));
        // A leaf must keep a pair: it might never be written again.
        let has_others = || {
            let mut cursor = LeafCursor::new(leaf, 0, Snapshot::ALL);
            cursor.next().is_some() && cursor.next().is_some()
        };
        // The merge that drops an overflow value frees it. The write merges at once if that frees much, or if memory is
        // scarce.
        let frees = |old: Value<'_>| old.reference().is_some_and(|old| self.is_scarce() || overflow::is_large(old));
        let must_free = || self.has_values() && old().is_some_and(frees);
        let can_append = self.may_append(leaf, size) && (value.is_some() || has_others());
        if !can_append || must_free() {
            // With equal sizes, a value that has an expiry has more bytes than one that has none. To lose it is no growth.
            let added_expiry =
                |value: Value<'_>, old: Value<'_>| value.bytes.len().cmp(&old.bytes.len()).max(Ordering::Equal);
            let added = |value: Value<'_>, old: Value<'_>| value.size().cmp(&old.size()).then(added_expiry(value, old));
            let growth = match value.map(|value| old().map(|old| added(value, old))) {
                None | Some(Some(Ordering::Equal)) => Growth::AsNeeded,
                Some(Some(Ordering::Less)) => Growth::No,
                Some(_) => Growth::IfUnreserved,
            };
            let attempt = self.merge(leaf, entry, position, growth, guard, retired);
            if !(can_append && matches!(attempt, Attempt::NoMemory(_))) {
                return attempt;
            }
        }
        match self.append(leaf, entry, position) {
            Some(Appended { version, .. }) => Attempt::Committed { reply: Reply::Done, version },
            None => Attempt::Conflict,
        }
    }

    /// Returns true if the log of a leaf has room for an entry of this size.
    #[inline(always)]
    pub(super) fn may_append(&self, leaf: Node<'_>, entry_size: usize) -> bool {
        // Half of the largest delta, so that the writers in flight cannot allocate the versions in between. The leaf's
        // own version may not be readable yet.
        let delta_fits = || self.versions.read().saturating_sub(leaf.version()) < DELTA_MAX / 2;
        self.log_block.has_room(leaf, entry_size) && delta_fits()
    }

    /// Appends to the log block, which has room. Returns `None` if the leaf has changed.
    #[inline(always)]
    pub(super) fn append(&self, leaf: Node<'_>, new: &NewEntry<'_>, position: SortedPosition) -> Option<Appended> {
        let SortedPosition { back, is_exact } = position;
        let value = new.value.map_or(&[][..], |value| value.bytes);
        let is_marked = new.value.is_some_and(|value| value.is_marked);
        let mut locked = leaf.try_lock()?;
        let LogRank { below, is_followed } = find::log_rank(&locked, new.key, back);
        let flags = Flags { is_delete: new.value.is_none(), is_exact, is_followed, is_marked };
        let word = DirectoryWord { offset: leaf.state().log_size(), hint: below, flags, back };
        let room = locked.log_room();
        log::write_pair(room, new.key, value);
        let abort = AbortOnPanic;
        let version = self.versions.allocate();
        log::write_head(room, version - leaf.version(), new.key.len(), value.len());
        locked.publish_entry(log::entry_size(new.key, value), word.to_bits(), new.fingerprint);
        self.publish_version(version);
        abort.end();
        Some(Appended { version, is_followed })
    }

    /// Merges log, sorted block and new entry into another frame. If they need two leaves, or too small a part of one,
    /// splits the leaf or joins it with another, without the new entry.
    #[inline(never)]
    fn merge(
        &self,
        leaf: Node<'_>,
        new: &NewEntry<'_>,
        position: SortedPosition,
        growth: Growth,
        guard: &Guard<'_>,
        retired: &mut Vec<Garbage>,
    ) -> Attempt {
        let attempt = self.merge_with(leaf, new, position, Claim::Growth, guard, retired);
        if !matches!(attempt, Attempt::NoMemory(_)) || growth == Growth::IfUnreserved {
            return attempt;
        }
        let in_its_size = self.merge_in_its_size(leaf, new, position, guard, retired);
        in_its_size.unwrap_or_else(|| match growth {
            Growth::AsNeeded => self.merge_with(leaf, new, position, Claim::Upkeep, guard, retired),
            Growth::No | Growth::IfUnreserved => attempt,
        })
    }

    fn merge_with(
        &self,
        leaf: Node<'_>,
        new: &NewEntry<'_>,
        position: SortedPosition,
        claim: Claim,
        guard: &Guard<'_>,
        retired: &mut Vec<Garbage>,
    ) -> Attempt {
        let Some(locked) = leaf.try_lock() else { return Attempt::Conflict };
        leaf.frame().prefetch(leaf.log_start(), LINE_SIZE + leaf.state().log_size());
        leaf.frame().prefetch_first(leaf.log_start());
        // A small leaf that grows is not joined: a load in ascending order splits off small leaves and fills them.
        let is_alone = leaf.left().is_none() && leaf.right().is_none();
        let is_large = |size: usize| size >= LEAF_SIZE_LOW.min(leaf.log_start()) || is_alone;
        let units_in_place = build::units(leaf.log_start(), self.log_block);
        let mut replacements = Replacements::new();
        if replacements.take_log(leaf, new, position).is_some() {
            let build = |frame| replace::build_in_place(self.frames.build(frame), leaf, replacements.iter());
            let terms = Terms { claim, dropped: Vec::new() };
            return self.replace_frame(locked, units_in_place, build, &terms, retired);
        }
        let edits = Edits::of_log_and(&locked, new, position);
        let terms = Terms { claim, dropped: self.parts_of(&edits.dropped, guard) };
        if edits.are_in_place() {
            let build =
                |frame| replace::build_in_place(self.frames.build(frame), leaf, replace::replacements_of(&edits));
            return self.replace_frame(locked, units_in_place, build, &terms, retired);
        }
        if let Some(sorted) = Sorted::edited(leaf, &edits.edits) {
            match LeafPlan::new(sorted, self.log_block) {
                Ok(plan) if is_large(plan.size()) => return self.replace_leaf(locked, &plan, &terms, retired),
                Ok(_) => {}
                // A load in ascending order leaves segments half full: the pairs may fit one leaf if they are divided
                // evenly.
                Err(sorted) if sorted.parts.len() > 1 && !edits.are_ascending(leaf) => {
                    return self.split_leaf(locked, new.key, claim, guard, retired);
                }
                Err(_) => {}
            }
        }
        match LeafPlan::of_pairs(pairs_with(leaf, &edits.edits), self.log_block) {
            Ok(plan) if is_alone || is_large(plan.size()) && !plan.pairs().is_empty() => {
                self.replace_leaf(locked, &plan, &terms, retired)
            }
            Ok(plan) => self.join_leaf(locked, &plan, new.key, &terms, guard, retired),
            Err(_) => self.split_leaf(locked, new.key, claim, guard, retired),
        }
    }

    /// Gives a leaf a frame that is built as planned.
    pub(crate) fn replace_leaf(
        &self,
        locked: LockedNode<'_>,
        plan: &LeafPlan<'_>,
        terms: &Terms,
        retired: &mut Vec<Garbage>,
    ) -> Attempt {
        let leaf = locked.node();
        let encoding = Shortcuts::open(leaf).encoding();
        let siblings = leaf.siblings();
        let build = |frame| plan.build(self.frames.build(frame), leaf.lid(), encoding, siblings, Some(leaf.number()));
        self.replace_frame(locked, plan.units(), build, terms, retired)
    }

    /// Gives a leaf a frame of this size that `build` writes.
    pub(crate) fn replace_frame(
        &self,
        locked: LockedNode<'_>,
        units: usize,
        build: impl FnOnce(FreeFrame) -> SealedFrame,
        terms: &Terms,
        retired: &mut Vec<Garbage>,
    ) -> Attempt {
        let frame = self.allocate_for(locked.node(), units, terms.claim);
        let Some(frame) = frame else { return Attempt::NoMemory(terms.claim) };
        let sealed = build(frame);
        let _abort = AbortOnPanic;
        let version = self.versions.allocate();
        self.frames.set_version(&sealed, version);
        let old = self.frames.replace(locked, &sealed);
        self.publish_version(version);
        retired.push(Garbage::Frame(old));
        self.retire_overflow(&terms.dropped, retired);
        Attempt::Committed { reply: Reply::Done, version }
    }

    /// Returns the parts of the values of these references.
    pub(crate) fn parts_of(&self, references: &[&[u8]], guard: &Guard<'_>) -> Vec<Part> {
        references.iter().flat_map(|reference| overflow::parts(&self.frames, reference, guard)).collect()
    }
}
