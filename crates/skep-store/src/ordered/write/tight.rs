//! Merges of writes that must not fail, when only the reserve is left: they take no more memory than the leaf has.
//!
//! ```text
//! leaf                a  c  e  g │ log: b, d, g −, e = 5      to be deleted: c
//! all, if it fits     a  b  d  e=5 │
//! else without growth a  e=5       │ log: b, d                removed and replaced in place; the log keeps the rest
//! ```
//!
//! A merge leaves room for another log, and its entries may need more bytes in the sorted block than in the log. If
//! each delete took a unit more than it returns, the reserve would end long before the deletes. So the leaf gets a
//! frame of its present size or a smaller one:
//!
//! 1. A smaller frame if that can have its pairs and another log.
//! 2. If the pairs fit but not a log, the leaf has less room for a log, or none.
//! 3. If the pairs do not fit, the sorted block only loses removed items and replaces values of the same sizes. All
//!    other entries stay in the log, only the newest of each key.
//!
//! A delete adds no entry. An overwrite of the same size adds one only if it replaces one as large. So in case 3 the
//! rest fits. A smaller value may add an entry to a full log; then there is no such frame, and the write is refused.

use super::super::key_head::Target;
use super::super::leaf::build::{self, LeafPlan, Sorted};
use super::super::leaf::edit::{Edit, Edits, NewEntry};
use super::super::leaf::find::{self, LogRank, SortedPosition};
use super::super::leaf::merge::pairs_with;
use super::super::memory::frame_state::SealedFrame;
use super::super::memory::number::{FRAME_UNITS_MAX, UNIT_512_SIZE};
use super::super::node::frame::{LockedNode, Node};
use super::super::node::log::{self, DirectoryWord, Flags, LogBlock};
use super::super::node::segment::{Item, Segment};
use super::super::node::shortcut::Shortcuts;
use super::super::space::Claim;
use super::super::store::OrderedStore;
use super::super::version::epoch::Guard;
use super::super::version::garbage::Garbage;
use super::attempt::{Attempt, Terms};
use crate::memory::LINE_SIZE;

impl OrderedStore {
    /// Merges log, sorted block and new entry into a frame of at most the leaf's size. Returns `None` if that is
    /// impossible.
    pub(crate) fn merge_in_its_size(
        &self,
        leaf: Node<'_>,
        new: &NewEntry<'_>,
        position: SortedPosition,
        guard: &Guard<'_>,
        retired: &mut Vec<Garbage>,
    ) -> Option<Attempt> {
        let Some(locked) = leaf.try_lock() else { return Some(Attempt::Conflict) };
        let Edits { edits, dropped } = Edits::of_log_and(&locked, new, position);
        if pairs_with(leaf, &edits).is_empty() {
            return None;
        }
        if let Some(plan) = plan_with(leaf, &edits).filter(|plan| plan.size() + LINE_SIZE <= leaf.frame_size()) {
            let terms = Terms { claim: Claim::Upkeep, dropped: self.parts_of(&dropped, guard) };
            return Some(self.replace_with_log(locked, &plan, &[], &terms, guard, retired));
        }
        let (stay, edits): (Vec<Edit<'_>>, Vec<Edit<'_>>) =
            edits.into_iter().partition(|edit| edit.item.is_some() && edit.over.is_none());
        let items: Vec<Item<'_>> = stay.iter().filter_map(|edit| edit.item).collect();
        let log_size: usize = items.iter().map(|item| log::entry_size(item.key, item.value.bytes)).sum();
        // A value of another size than that in the sorted block adds an entry, and the log may have been full.
        if !self.log_block.may_hold(items.len(), log_size) {
            return None;
        }
        let plan = plan_with(leaf, &edits)?;
        if plan.size() + LINE_SIZE + log_size > leaf.frame_size() {
            return None;
        }
        // A value is not dropped if an entry for its key stays in the log.
        let under: Vec<&[u8]> = stay.iter().filter_map(|edit| overflow_under(leaf, edit)).collect();
        let dropped: Vec<&[u8]> = dropped.into_iter().filter(|reference| !under.contains(reference)).collect();
        let terms = Terms { claim: Claim::Upkeep, dropped: self.parts_of(&dropped, guard) };
        Some(self.replace_with_log(locked, &plan, &items, &terms, guard, retired))
    }

    /// Gives a leaf a frame of at most its size, with the planned sorted block and these items in its log.
    fn replace_with_log(
        &self,
        locked: LockedNode<'_>,
        plan: &LeafPlan<'_>,
        items: &[Item<'_>],
        terms: &Terms,
        guard: &Guard<'_>,
        retired: &mut Vec<Garbage>,
    ) -> Attempt {
        let leaf = locked.node();
        let encoding = Shortcuts::open(leaf).encoding();
        let siblings = leaf.siblings();
        let build = |frame| {
            let sealed = plan.build(self.frames.build(frame), leaf.lid(), encoding, siblings, Some(leaf.number()));
            items.iter().for_each(|item| self.append_to_sealed(&sealed, item, guard));
            sealed
        };
        // The same as a merge with growth. The freed frame is as large, so it serves the next write that needs as much.
        let needed = if items.is_empty() { build::units(plan.size(), self.log_block) } else { FRAME_UNITS_MAX };
        self.replace_frame(locked, needed.min(leaf.frame_size() / UNIT_512_SIZE), build, terms, retired)
    }

    /// Appends an entry to the log of a leaf that is not reachable yet. It has the leaf's version.
    fn append_to_sealed(&self, sealed: &SealedFrame, item: &Item<'_>, guard: &Guard<'_>) {
        let leaf = self.frames.node(sealed.number(), guard);
        let position = Shortcuts::open(leaf).find(Target::AtOrBelow(item.key));
        let SortedPosition { back, is_exact } = find::search_sorted(leaf.frame(), position, item.key, item.fingerprint);
        let mut locked = leaf.try_lock().expect("the leaf is not reachable yet");
        let LogRank { below, is_followed } = find::log_rank(&locked, item.key, back);
        let flags = Flags { is_delete: false, is_exact, is_followed, is_marked: item.value.is_marked };
        let word = DirectoryWord { offset: leaf.state().log_size(), hint: below, flags, back };
        log::write_pair(locked.log_room(), item.key, item.value.bytes);
        log::write_head(locked.log_room(), 0, item.key.len(), item.value.bytes.len());
        locked.publish_entry(log::entry_size(item.key, item.value.bytes), word.to_bits(), item.fingerprint);
    }
}

/// Plans the sorted block of a leaf after these edits, in a frame without room for a log. Returns `None` if one frame
/// is too small.
fn plan_with<'a>(leaf: Node<'a>, edits: &'a [Edit<'a>]) -> Option<LeafPlan<'a>> {
    let edited = Sorted::edited(leaf, edits).and_then(|sorted| LeafPlan::new(sorted, LogBlock::LEAST).ok());
    edited.or_else(|| LeafPlan::of_pairs(pairs_with(leaf, edits), LogBlock::LEAST).ok())
}

/// Returns the reference to an overflow value in the sorted block that an entry replaces.
fn overflow_under<'a>(leaf: Node<'a>, edit: &Edit<'a>) -> Option<&'a [u8]> {
    let index = usize::from(edit.position.segment);
    let segment = Segment::open(leaf, Shortcuts::open(leaf).segment_start(index), index);
    edit.is_exact.then(|| segment.value(usize::from(edit.position.index)))?.reference()
}
