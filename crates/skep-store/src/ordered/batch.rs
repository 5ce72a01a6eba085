//! Batches of gets: all of a group go through the tree in step, so that their cache misses overlap.
//!
//! ```text
//! level by level   page table entry ─▶ header and shortcut index ─▶ segment of children ─▶ next level
//! leaf             page table entry ─▶ header and shortcut index ─▶ head of a segment ─▶ item ─▶ answer
//! ```
//!
//! Each arrow is a loop over the group: it visits what the loop before has announced, and announces what the next one
//! will visit. The stages are written out by hand over the same searches as a single get: as futures they would take
//! about fifty nanoseconds more each. All gets of a batch are one operation and read one version.

use super::epoch::Guard;
use super::frame::{Frame, Node};
use super::header::Lid;
use super::segment::{Segment, Value};
use super::shortcut::{INDEX_START, Shortcuts};
use super::trace::Trace;
use super::tree::{OrderedStore, older_to};
use super::window::{Target, fingerprint};
use super::{interior, leaf};
use crate::memory::LINE_SIZE;

/// Gets that are under way together: enough to keep all misses in flight that a core can have.
pub(super) const GROUP_SIZE: usize = 32;

/// Where a get has come to.
struct Step<'g, T> {
    lid: Lid,
    frame: Frame<'g, T>,
    node: Node<'g, T>,
    /// The segment to read next, and where it begins.
    segment: usize,
    start: usize,
    /// The item in which the fingerprint is found.
    item: Option<usize>,
    fingerprint: u8,
    answer: Answer<'g>,
}

/// What is known of a get.
enum Answer<'g> {
    Open,
    Found(Option<Value<'g>>),
}

impl<T: Trace> OrderedStore<T> {
    /// The values of up to [`GROUP_SIZE`] keys as of a version, shown in the order of the keys.
    pub(super) fn get_group<'g>(
        &'g self,
        keys: &[&[u8]],
        version: u64,
        guard: &'g Guard<'_>,
        mut show: impl FnMut(Option<Value<'g>>),
    ) {
        assert!(keys.len() <= GROUP_SIZE, "a group has a limit");
        let root = self.as_of(Lid::ROOT, version, guard);
        let first = |key: &&[u8]| Step {
            lid: Lid::ROOT,
            frame: root.frame(),
            node: root,
            segment: 0,
            start: 0,
            item: None,
            fingerprint: fingerprint(key),
            answer: Answer::Open,
        };
        let mut places: [Option<Step<'g, T>>; GROUP_SIZE] = [const { None }; GROUP_SIZE];
        for (place, key) in places.iter_mut().zip(keys) {
            *place = Some(first(key));
        }
        let mut each = |visit: &mut dyn FnMut(&mut Step<'g, T>, &[u8])| {
            for (place, key) in places.iter_mut().zip(keys) {
                visit(place.as_mut().expect("a place for each key"), key);
            }
        };
        // The root is hot; its levels below are not.
        for _ in 0..root.level() {
            each(&mut |step, key| {
                let target = Target::AtOrBelow(key);
                (step.segment, step.start) = interior::find_segment(step.node, target);
                step.frame = step.node.frame();
                step.frame.announce(step.start, LINE_SIZE);
            });
            each(&mut |step, key| {
                step.lid = interior::find_in_segment(step.node, step.segment, Target::AtOrBelow(key)).lid;
                self.frames.announce_entry(step.lid);
            });
            each(&mut |step, _| {
                step.frame = self.frames.latest(step.lid, guard);
                step.frame.announce(0, INDEX_START + LINE_SIZE);
            });
            each(&mut |step, _| step.node = older_to(step.frame.open(), version));
        }
        each(&mut |step, key| {
            if let Some(entry) = leaf::find_in_log(step.node, key, step.fingerprint, version) {
                step.answer = Answer::Found((!entry.word.flags.is_delete).then_some(entry.value));
                return;
            }
            let shortcuts = Shortcuts::open(step.node);
            step.segment = shortcuts.find(Target::AtOrBelow(key));
            step.start = shortcuts.segment_start(step.segment);
            step.node.frame().announce(step.start, 1);
        });
        each(&mut |step, _| {
            if let Answer::Open = step.answer {
                let segment = Segment::open(step.node, step.start, step.segment);
                let candidates = segment.matching(step.fingerprint);
                step.item = (candidates != 0).then(|| candidates.trailing_zeros() as usize);
                if let Some(item) = step.item {
                    let (offset, key_size, value_size) = segment.place(item);
                    step.node.frame().announce(offset, key_size + value_size);
                }
            }
        });
        for (place, key) in places.iter_mut().zip(keys) {
            let step = place.as_mut().expect("a place for each key");
            show(match step.answer {
                Answer::Found(value) => value,
                Answer::Open if step.item.is_none() => None,
                Answer::Open => {
                    let segment = Segment::open(step.node, step.start, step.segment);
                    let shortcuts = Shortcuts::open(step.node);
                    leaf::find_in_segment(shortcuts, &segment, step.segment, key, step.fingerprint)
                        .map(|item| segment.value(item))
                }
            });
        }
    }
}
