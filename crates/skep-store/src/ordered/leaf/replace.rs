//! Values that replace others in place: the merge of a log that only overwrites, which is usual once all keys exist.
//!
//! ```text
//! log, in time     b 7 │ d 2 │ b 8        no key is new, no size changes
//! sorted block     a 5   b 7→8   c 9   d 0→2          a copy of it, in which values are overwritten
//! ```
//!
//! The entries need no order: values are written as the entries were made, so the newest one of a key stays.

use super::super::memory::frame_state::SealedFrame;
use super::super::node::builder::FrameBuilder;
use super::super::node::frame::{LOG_COUNT_MAX, Node};
use super::super::node::header::Extent;
use super::super::node::log::{self, BackPointer, DirectoryWord};
use super::super::node::segment::Segment;
use super::super::node::shortcut::Shortcuts;
use super::edit::{Edits, NewEntry};
use super::find::SortedPosition;
use crate::memory::LINE_SIZE;
use crate::short;

/// A value that replaces another of the same kind and size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replacement<'a> {
    /// The offset of the other value in the leaf.
    pub(crate) over: u16,
    pub(crate) value: &'a [u8],
}

/// The values that replace all of a log and of a write, the oldest first.
#[derive(Debug)]
pub(crate) struct Replacements<'a> {
    all: [Replacement<'a>; LOG_COUNT_MAX + 1],
    count: usize,
}

impl<'a> Replacements<'a> {
    /// Returns an empty list.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Replacements { all: [Replacement { over: 0, value: &[] }; LOG_COUNT_MAX + 1], count: 0 }
    }

    /// Takes the values of a log and of a new entry, whose position is known. Returns `None` unless each replaces a
    /// sorted value of its size, and neither is marked.
    #[inline(always)]
    pub(crate) fn take_log(&mut self, leaf: Node<'a>, new: &NewEntry<'a>, position: SortedPosition) -> Option<()> {
        let value = new.value.filter(|value| position.is_exact && !value.is_marked)?;
        let shortcuts = Shortcuts::open(leaf);
        for bits in leaf.log_words() {
            if !DirectoryWord::is_plain_overwrite(bits) {
                return None;
            }
            let word = DirectoryWord::from_bits(bits);
            self.add(leaf, shortcuts, word.back, log::value(leaf, word).bytes)?;
        }
        self.add(leaf, shortcuts, position.back, value.bytes)
    }

    /// Adds a value. Returns `None` if that of its item is marked or has another size.
    #[inline(always)]
    fn add(&mut self, leaf: Node<'a>, shortcuts: Shortcuts<'a>, back: BackPointer, value: &'a [u8]) -> Option<()> {
        let (index, item) = (usize::from(back.segment), usize::from(back.index));
        let segment = Segment::open(leaf, shortcuts.segment_start(index), index);
        let (offset, key_size, value_size) = segment.layout(item);
        if value_size != value.len() || segment.is_marked(item) {
            return None;
        }
        *self.all.get_mut(self.count)? = Replacement { over: (offset + key_size) as u16, value };
        self.count += 1;
        Some(())
    }

    /// Returns them, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Replacement<'a>> {
        self.all[..self.count].iter().copied()
    }
}

/// Returns the values that edits in place replace.
pub(crate) fn replacements_of<'a>(edits: &Edits<'a>) -> impl Iterator<Item = Replacement<'a>> {
    edits.edits.iter().filter_map(|edit| Some(Replacement { over: edit.over?, value: edit.item?.value.bytes }))
}

/// Writes a copy of a leaf in which values are replaced.
#[inline]
pub(crate) fn build_in_place<'a>(
    mut frame: FrameBuilder<'_>,
    leaf: Node<'_>,
    replacements: impl Iterator<Item = Replacement<'a>>,
) -> SealedFrame {
    let end = leaf.log_start();
    let bytes = &mut frame.bytes()[..end];
    bytes[LINE_SIZE..].copy_from_slice(leaf.read(LINE_SIZE, end - LINE_SIZE));
    for Replacement { over, value } in replacements {
        short::overwrite(&mut bytes[usize::from(over)..][..value.len()], value);
    }
    let extent = Extent::new(Some(leaf.number()), end, Shortcuts::open(leaf).encoding());
    frame.seal_leaf(leaf.lid(), extent, leaf.siblings())
}
