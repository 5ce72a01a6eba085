//! Merges of writes that must not fail, when only what is kept back is left: they take no more than the leaf has.
//!
//! ```text
//! leaf                a  c  e  g │ log: b, d, g −, e = 5      to be deleted: c
//! all, if it fits     a  b  d  e=5 │
//! else without growth a  e=5       │ log: b, d                removed and replaced in their places; the log keeps the rest
//! ```
//!
//! A merge leaves room for another log, and what its entries become may take more than they took in the log. If each delete
//! took a granule more than it gave back, what is kept back would end long before the deletes do. So the leaf gets a frame of
//! the size that it has, or a smaller one if that holds its pairs and another log. If its pairs fit and little more, it has
//! less room for a log, or none. If they do not fit, the sorted block loses what is removed and gets what replaces values of
//! the same sizes; all other entries stay in the log, each key's newest only.
//!
//! A delete adds no entry, and an overwrite of the same size adds one only in the place of one as large: what stays fits. A
//! smaller value may add an entry to a log that is full. Then there is no such frame, and the write is refused.

use super::super::key_head::Target;
use super::super::leaf::build::{self, LeafPlan, Sorted};
use super::super::leaf::edit::NewEntry;
use super::super::leaf::edit::{Edit, Edits};
use super::super::leaf::find;
use super::super::leaf::merge::pairs_with;
use super::super::memory::frame_state::SealedFrame;
use super::super::memory::number::{GRANULE_MAX, GRANULE_SIZE};
use super::super::node::frame::{LockedNode, Node};
use super::super::node::log::{self, BackPointer, DirectoryWord, Flags, LogBlock};
use super::super::node::segment::{Item, Segment};
use super::super::node::shortcut::Shortcuts;
use super::super::space::Claim;
use super::super::store::OrderedStore;
use super::super::trace::Trace;
use super::super::version::epoch::Guard;
use super::super::version::garbage::Garbage;
use super::attempt::{Attempt, Terms};
use crate::memory::LINE_SIZE;

impl<T: Trace> OrderedStore<T> {
    /// Merges log and sorted block and the new entry into a frame of the leaf's size at most. None if that cannot be.
    pub(crate) fn merge_in_its_size(
        &self,
        leaf: Node<'_, T>,
        new: &NewEntry<'_>,
        place: (BackPointer, bool),
        guard: &Guard<'_>,
        replaced: &mut Vec<Garbage>,
    ) -> Option<Attempt> {
        let Some(locked) = leaf.try_lock() else { return Some(Attempt::Again) };
        let Edits { edits, dropped } = Edits::of_log(leaf, Some((new, place)));
        if pairs_with(leaf, &edits).is_empty() {
            return None;
        }
        if let Some(plan) = plan_with(leaf, &edits).filter(|plan| plan.size() + LINE_SIZE <= leaf.frame_size()) {
            let terms = Terms { claim: Claim::Upkeep, dropped: self.parts_of(&dropped, guard) };
            return Some(self.replace_with_log(locked, &plan, &[], &terms, guard, replaced));
        }
        let (stay, edits): (Vec<Edit<'_>>, Vec<Edit<'_>>) =
            edits.into_iter().partition(|edit| edit.item.is_some() && edit.over.is_none());
        let items: Vec<Item<'_>> = stay.iter().filter_map(|edit| edit.item).collect();
        let log_size: usize = items.iter().map(|item| log::entry_size(item.key, item.value.bytes)).sum();
        // A value of another size than the sorted block has adds an entry: the log may have been full before it.
        if !self.log_block.may_hold(items.len(), log_size) {
            return None;
        }
        let plan = plan_with(leaf, &edits)?;
        if plan.size() + LINE_SIZE + log_size > leaf.frame_size() {
            return None;
        }
        // What lies under an entry that stays is not dropped.
        let under: Vec<&[u8]> = stay.iter().filter_map(|edit| outside_under(leaf, edit)).collect();
        let dropped: Vec<&[u8]> = dropped.into_iter().filter(|reference| !under.contains(reference)).collect();
        let terms = Terms { claim: Claim::Upkeep, dropped: self.parts_of(&dropped, guard) };
        Some(self.replace_with_log(locked, &plan, &items, &terms, guard, replaced))
    }

    /// Gives a leaf a frame of its size at most, with a sorted block as planned and these items in its log.
    fn replace_with_log(
        &self,
        locked: LockedNode<'_, T>,
        plan: &LeafPlan<'_>,
        items: &[Item<'_>],
        terms: &Terms,
        guard: &Guard<'_>,
        replaced: &mut Vec<Garbage>,
    ) -> Attempt {
        let leaf = locked.node();
        let scale = Shortcuts::open(leaf).scale();
        let siblings = (leaf.left(), leaf.right());
        let build = |frame| {
            let sealed = plan.build(self.frames.build(frame), leaf.lid(), scale, siblings, Some(leaf.number()));
            items.iter().for_each(|item| self.append_to_sealed(&sealed, item, guard));
            sealed
        };
        // As a merge with growth does. The frame that is freed is as large, so it serves the next that needs as much.
        let needed = if items.is_empty() { build::granules(plan.size(), self.log_block) } else { GRANULE_MAX };
        self.replace_frame(locked, needed.min(leaf.frame_size() / GRANULE_SIZE), build, terms, replaced)
    }

    /// Appends an entry to the log of a leaf that nobody can reach yet. It is as old as the leaf.
    fn append_to_sealed(&self, sealed: &SealedFrame, item: &Item<'_>, guard: &Guard<'_>) {
        let leaf = self.frames.node(sealed.number(), guard);
        let place = Shortcuts::open(leaf).find(Target::AtOrBelow(item.key));
        let (back, is_exact) = find::sorted_place(leaf, place, item.key, item.fingerprint);
        let (hint, is_followed) = find::log_rank(leaf, item.key, back);
        let flags = Flags { is_delete: false, is_exact, is_followed, is_outside: item.value.is_outside };
        let word = DirectoryWord { offset: leaf.state().log_size(), hint, flags, back };
        let mut locked = leaf.try_lock().expect("nobody else can reach the leaf");
        log::write_entry(locked.log_room(), item.key, item.value.bytes);
        log::write_delta(locked.log_room(), 0);
        locked.publish_entry(log::entry_size(item.key, item.value.bytes), word.to_bits(), item.fingerprint);
    }
}

/// The sorted block of a leaf with these edits, in a frame without room for a log. None if one frame does not hold it.
fn plan_with<'a, T: Trace>(leaf: Node<'a, T>, edits: &'a [Edit<'a>]) -> Option<LeafPlan<'a>> {
    let edited = Sorted::edited(leaf, edits).and_then(|sorted| LeafPlan::new(sorted, LogBlock::LEAST).ok());
    edited.or_else(|| LeafPlan::of_pairs(pairs_with(leaf, edits), LogBlock::LEAST).ok())
}

/// The reference to a value in frames of its own in the sorted block, where an entry has the same key.
fn outside_under<'a, T: Trace>(leaf: Node<'a, T>, edit: &Edit<'a>) -> Option<&'a [u8]> {
    let number = usize::from(edit.place.segment);
    let segment = Segment::open(leaf, Shortcuts::open(leaf).segment_start(number), number);
    let value = edit.is_exact.then(|| segment.value(usize::from(edit.place.index)))?;
    value.is_outside.then_some(value.bytes)
}
