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

impl<T: Trace> OrderedStore<T> {
    /// The values of up to [`GROUP_SIZE`] keys as of a version, shown in the order of the keys.
    pub(super) fn get_group<'g>(
        &'g self,
        keys: &[&[u8]],
        version: u64,
        guard: &'g Guard<'_>,
        mut show: impl FnMut(Option<Value<'g>>),
    ) {
        let count = keys.len();
        assert!(count <= GROUP_SIZE, "a group has a limit");
        let root = self.as_of(Lid::ROOT, version, guard);
        let mut nodes = [root; GROUP_SIZE];
        let mut frames = [root.frame(); GROUP_SIZE];
        let mut lids = [Lid::ROOT; GROUP_SIZE];
        let mut fingerprints = [0; GROUP_SIZE];
        // The segment to read next, and where it begins.
        let mut segments = [(0, 0); GROUP_SIZE];
        for (fingerprint_of, key) in fingerprints.iter_mut().zip(keys) {
            *fingerprint_of = fingerprint(key);
        }
        // The root is hot; the levels below it are not.
        for _ in 0..root.level() {
            for (place, key) in keys.iter().enumerate() {
                segments[place] = interior::find_segment(nodes[place], Target::AtOrBelow(key));
                nodes[place].frame().announce(segments[place].1, LINE_SIZE);
            }
            for (place, key) in keys.iter().enumerate() {
                lids[place] = interior::find_in_segment(nodes[place], segments[place], Target::AtOrBelow(key)).lid;
                self.frames.announce_entry(lids[place]);
            }
            for place in 0..count {
                frames[place] = self.frames.latest(lids[place], guard);
                frames[place].announce(0, INDEX_START + LINE_SIZE);
            }
            for place in 0..count {
                nodes[place] = older_to(frames[place].open(), version);
            }
        }
        let mut in_log = [None; GROUP_SIZE];
        for (place, key) in keys.iter().enumerate() {
            let leaf = nodes[place];
            in_log[place] = leaf::find_in_log(leaf, key, fingerprints[place], version);
            let shortcuts = Shortcuts::open(leaf);
            let segment = shortcuts.find(Target::AtOrBelow(key));
            segments[place] = (segment, shortcuts.segment_start(segment));
            leaf.frame().announce(segments[place].1, 1);
        }
        for place in 0..count {
            let (index, start) = segments[place];
            let segment = Segment::open(nodes[place], start, index);
            let candidates = segment.matching(fingerprints[place]);
            if candidates != 0 && in_log[place].is_none() {
                let (offset, key_size, value_size) = segment.place(candidates.trailing_zeros() as usize);
                nodes[place].frame().announce(offset, key_size + value_size);
            }
        }
        for (place, key) in keys.iter().enumerate() {
            show(match in_log[place] {
                Some(entry) => (!entry.word.flags.is_delete).then_some(entry.value),
                None => {
                    let (index, start) = segments[place];
                    let segment = Segment::open(nodes[place], start, index);
                    let shortcuts = Shortcuts::open(nodes[place]);
                    leaf::find_in_segment(shortcuts, &segment, index, key, fingerprints[place])
                        .map(|item| segment.value(item))
                }
            });
        }
    }
}
