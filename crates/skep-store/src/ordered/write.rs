//! Writes: append to the log of a leaf, or merge log and sorted block (Honeycomb, sections 3.4 and 3.5).

use std::collections::HashSet;

use super::change::{Change, Decision, Draft};
use super::epoch::Guard;
use super::frame::{FreeFrame, LockedNode, Node, SealedFrame};
use super::garbage::Garbage;
use super::leaf::{self, LeafCursor};
use super::log::{self, BackPointer, DELTA_MAX, DirectoryWord, Flags};
use super::outside;
use super::segment::{Item, Segment, Value};
use super::shortcut::Shortcuts;
use super::sorted::{self, LEAF_SIZE_LOW, LeafPlan};
use super::trace::Trace;
use super::tree::OrderedStore;
use super::window::{Target, fingerprint};
use crate::operation::Reply;

/// How an attempt to write ended.
#[derive(Debug)]
pub(super) enum Attempt {
    /// Done or refused, on the ground of data up to a version that has to be readable before the answer is given.
    Settled { reply: Reply<'static>, version: u64 },
    /// Another writer was in the way: begin again.
    Again,
    /// There was no frame or LID. Nothing has changed.
    NoMemory,
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

/// What a write puts into a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEntry<'a> {
    pub(super) key: &'a [u8],
    pub(super) fingerprint: u8,
    /// None removes the key.
    pub(super) value: Option<Value<'a>>,
}

impl<T: Trace> OrderedStore<T> {
    /// Tries once to carry out a write: looks at the key's leaf, decides, and changes the leaf if it is still as it was.
    pub(super) fn attempt(
        &self,
        key: &[u8],
        change: &Change<'_>,
        draft: &mut Draft,
        guard: &Guard<'_>,
        replaced: &mut Vec<Garbage>,
    ) -> Attempt {
        let fingerprint = fingerprint(key);
        let leaf = self.find_leaf(Target::AtOrBelow(key), u64::MAX, guard);
        if leaf.state().is_locked() {
            return Attempt::Again;
        }
        let (back, is_exact) = leaf::sorted_place(leaf, key, fingerprint);
        let logged = leaf::find_in_log(leaf, key, leaf::log_candidates(leaf, fingerprint), u64::MAX);
        let exists = logged.map_or(is_exact, |entry| !entry.word.flags.is_delete);
        let found = || exists.then(|| logged.map_or_else(|| leaf::sorted_value(leaf, back), |entry| entry.value));
        let value = match change.decide(self, exists, found, draft, guard) {
            Decision::Set(value) => Some(value),
            Decision::Remove => None,
            Decision::Refuse(reply) => return Attempt::Settled { reply, version: leaf::newest_version(leaf) },
            Decision::NoMemory => return Attempt::NoMemory,
        };
        let (is_outside, stays) = (value.is_some_and(|value| value.is_outside), value.is_some());
        let attempt = self.change_leaf(leaf, &NewEntry { key, fingerprint, value }, back, is_exact, guard, replaced);
        if matches!(attempt, Attempt::Settled { .. }) {
            if is_outside {
                draft.settle();
            }
            if exists != stays {
                guard.count_pairs(if stays { 1 } else { -1 });
            }
        }
        attempt
    }

    /// Puts an entry into a leaf, if the leaf is still as it was seen.
    #[inline]
    fn change_leaf(
        &self,
        leaf: Node<'_, T>,
        entry: &NewEntry<'_>,
        back: BackPointer,
        is_exact: bool,
        guard: &Guard<'_>,
        replaced: &mut Vec<Garbage>,
    ) -> Attempt {
        let value = entry.value;
        let size = log::entry_size(entry.key, value.map_or(&[], |value| value.bytes));
        let has_room = self.log_block.has_room(leaf.state(), size);
        // Far enough below the largest delta that no writers in flight can take the versions between.
        let delta_fits = self.versions.newest() - leaf.version() < DELTA_MAX / 2;
        // A leaf does not stay without pairs: nothing may ever be written to it again.
        let has_others = || {
            let mut cursor = LeafCursor::new(leaf, 0, u64::MAX);
            cursor.next().is_some() && cursor.next().is_some()
        };
        if has_room && delta_fits && (value.is_some() || has_others()) {
            self.append(leaf, entry, back, is_exact)
        } else {
            self.merge(leaf, entry, (back, is_exact), guard, replaced)
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

    /// Merges log and sorted block and the new entry into another frame, or divides the leaf, or joins it with another.
    fn merge(
        &self,
        leaf: Node<'_, T>,
        new: &NewEntry<'_>,
        (back, is_exact): (BackPointer, bool),
        guard: &Guard<'_>,
        replaced: &mut Vec<Garbage>,
    ) -> Attempt {
        let Some(locked) = leaf.try_lock() else { return Attempt::Again };
        let is_large = |size: usize| size >= LEAF_SIZE_LOW || (leaf.left().is_none() && leaf.right().is_none());
        if is_large(leaf.log_start())
            && let Some(patches) = sorted::Patches::new(leaf, new, (back, is_exact), self.log_block)
        {
            let build = |frame| patches.build(self.frames.build(frame), leaf);
            return self.replace_leaf(locked, patches.granules(), build, Vec::new, replaced);
        }
        let mut items = pairs_of(leaf);
        apply(&mut items, new);
        let plan = match LeafPlan::new(&items, self.log_block) {
            Some(plan) if is_large(plan.size()) => plan,
            plan => return self.restructure(locked, items, plan, new.key, guard, replaced),
        };
        self.replace_pairs(locked, &items, &plan, guard, replaced)
    }

    /// Gives a leaf another frame with these pairs.
    pub(super) fn replace_pairs(
        &self,
        locked: LockedNode<'_, T>,
        items: &[Item<'_>],
        plan: &LeafPlan,
        guard: &Guard<'_>,
        replaced: &mut Vec<Garbage>,
    ) -> Attempt {
        let leaf = locked.node();
        let siblings = (leaf.left(), leaf.right());
        let prefix_size = Shortcuts::open(leaf).prefix_size();
        let build = |frame| {
            let builder = self.frames.build(frame);
            plan.build(builder, leaf.lid(), prefix_size, items, siblings, Some(leaf.number()))
        };
        let dropped = || self.dropped_values(&[leaf], items, guard);
        self.replace_leaf(locked, plan.granules(), build, dropped, replaced)
    }

    /// Gives a leaf the frame that `build` makes.
    fn replace_leaf(
        &self,
        locked: LockedNode<'_, T>,
        granules: usize,
        build: impl FnOnce(FreeFrame) -> SealedFrame,
        dropped: impl FnOnce() -> Vec<Garbage>,
        replaced: &mut Vec<Garbage>,
    ) -> Attempt {
        let Some(frame) = self.allocate_frame(granules) else { return Attempt::NoMemory };
        let sealed = build(frame);
        let dropped = dropped();
        let _abort = AbortOnPanic;
        let version = self.versions.take();
        self.frames.set_version(&sealed, version);
        let old = self.frames.replace(locked, &sealed);
        self.versions.release(version);
        replaced.push(Garbage::Frame(old));
        replaced.extend(dropped);
        Attempt::Settled { reply: Reply::Done, version }
    }

    /// Frames of values that leaves refer to and that are not among the pairs that take the leaves' place.
    pub(super) fn dropped_values(&self, leaves: &[Node<'_, T>], items: &[Item<'_>], guard: &Guard<'_>) -> Vec<Garbage> {
        let references: Vec<&[u8]> = leaves.iter().flat_map(|leaf| references_of(*leaf)).collect();
        if references.is_empty() {
            return Vec::new();
        }
        let kept: HashSet<&[u8]> =
            items.iter().filter(|item| item.value.is_outside).map(|item| item.value.bytes).collect();
        let dropped = references.into_iter().filter(|reference| !kept.contains(reference));
        let frames = dropped.flat_map(|reference| outside::replaced(&self.frames, reference, guard));
        frames.map(Garbage::Frame).collect()
    }
}

/// The newest pairs of a leaf.
pub(super) fn pairs_of<'g, T: Trace>(leaf: Node<'g, T>) -> Vec<Item<'g>> {
    LeafCursor::announce(leaf, 0);
    let mut cursor = LeafCursor::new(leaf, 0, u64::MAX);
    let mut items = Vec::with_capacity(256);
    loop {
        cursor.announce_ahead();
        cursor.visit_segment(|item| {
            items.push(item);
            true
        });
        if !cursor.next_segment() {
            return items;
        }
    }
}

/// Carries a change out on pairs in order.
fn apply<'a>(items: &mut Vec<Item<'a>>, new: &NewEntry<'a>) {
    let place = items.binary_search_by(|item| item.key.cmp(new.key));
    let item = new.value.map(|value| Item { key: new.key, value, fingerprint: new.fingerprint });
    match (place, item) {
        (Ok(place), Some(item)) => items[place] = item,
        (Ok(place), None) => drop(items.remove(place)),
        (Err(place), Some(item)) => items.insert(place, item),
        (Err(_), None) => {}
    }
}

/// All references to values outside that a leaf holds, those that are no longer valid included.
fn references_of<'g, T: Trace>(leaf: Node<'g, T>) -> Vec<&'g [u8]> {
    let mut references = Vec::new();
    let mut add = |value: Value<'g>| {
        if value.is_outside {
            references.push(value.bytes);
        }
    };
    let shortcuts = Shortcuts::open(leaf);
    for index in 0..shortcuts.segment_count() {
        let segment = Segment::open(leaf, shortcuts.segment_start(index), index);
        if segment.outside() != 0 {
            (0..segment.count()).for_each(|item| add(segment.value(item)));
        }
    }
    (0..leaf.state().log_count()).for_each(|entry| add(log::Entry::read(leaf, entry).value));
    references
}
