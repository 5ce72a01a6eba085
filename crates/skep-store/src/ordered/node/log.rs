//! The log block of a leaf: recent changes, in the order in which they were made (Honeycomb, sections 3.1, 3.5, 4.3).
//!
//! ```text
//! directory word   0          8            12      16          24      32
//!                  offset / 4 │ order hint │ flags │ segment │ index          back pointer: 16 bits
//! entry            0                5            7              9
//!                  version delta 5 │ key size 2 │ value size 2 │ key │ value │ to a multiple of 4
//! ```
//!
//! - **Back pointer**: segment and index of the first sorted item whose key is not below the entry's. The segment is
//!   always the one that would hold the key; the index may be the segment's count. Flag `exact`: that item has the same
//!   key.
//! - **Order hint**: number of entries with a lower key when the entry was made. So the newest entry of a key comes
//!   first. Flag `followed`: the next entry in this order has the same key.
//!
//! With these, entries are put in order and merged with the sorted block without comparing keys.

use super::super::key_head::lanes::{Ranks, compare_ranks};
use super::frame::{LOG_COUNT_MAX, Node};
use super::value::Value;
use crate::memory::LINE_SIZE;
use crate::short;

/// The size of a leaf's log block: when it is full, a write merges it with the sorted block (Honeycomb, section 6.4,
/// Figure 17). The default is the paper's 512 bytes, plus the rest of the last allocation unit of the leaf's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBlock {
    /// The size that every leaf has room for.
    size: u16,
    /// The most that a log block uses if the frame has room.
    size_max: u16,
    entry_count_max: u8,
}

impl LogBlock {
    /// Bytes of the smallest log block: only its directory. Every write merges.
    pub const SIZE_MIN: usize = LINE_SIZE;
    /// Bytes of the largest log block: offsets in the directory reach no further.
    pub const SIZE_MAX: usize = LINE_SIZE + (OFFSET_UNIT << 8);
    /// Most entries of any log block: an order hint has four bits.
    pub const ENTRY_COUNT_MAX: usize = LOG_COUNT_MAX;

    /// The log block of a leaf without room for more: its directory, and the rest of the last unit.
    pub(crate) const LEAST: LogBlock =
        LogBlock { size: Self::SIZE_MIN as u16, size_max: Self::SIZE_MAX as u16, entry_count_max: LOG_COUNT_MAX as u8 };

    /// Returns a log block of exactly `size` bytes, its directory of 64 bytes included, with at most this many entries.
    /// Returns `None` if a number exceeds the constants.
    pub fn new(size: usize, entry_count_max: usize) -> Option<Self> {
        let exists = (Self::SIZE_MIN..=Self::SIZE_MAX).contains(&size) && entry_count_max <= Self::ENTRY_COUNT_MAX;
        exists.then_some(LogBlock { size: size as u16, size_max: size as u16, entry_count_max: entry_count_max as u8 })
    }

    /// Returns the bytes that a leaf is built with room for, the directory included.
    pub(crate) fn size(self) -> usize {
        usize::from(self.size)
    }

    /// Returns the bytes that the log block of a leaf may use.
    #[inline]
    pub(crate) fn room(self, leaf: Node<'_>) -> usize {
        usize::from(self.size_max).min(leaf.frame_size() - leaf.log_start())
    }

    /// Returns the most entries.
    pub(crate) fn entry_count_max(self) -> usize {
        usize::from(self.entry_count_max)
    }

    /// Returns true if a leaf has room for another entry of this size.
    #[inline]
    pub(crate) fn has_room(self, leaf: Node<'_>, entry_size: usize) -> bool {
        let state = leaf.state();
        state.log_count() < self.entry_count_max() && LINE_SIZE + state.log_size() + entry_size <= self.room(leaf)
    }

    /// Returns true if a log block can hold entries of this number and total size, if the frame has room.
    pub(crate) fn may_hold(self, entry_count: usize, log_size: usize) -> bool {
        entry_count <= self.entry_count_max() && LINE_SIZE + log_size <= usize::from(self.size_max)
    }

    /// Returns true if the next write probably merges a leaf: there is no room for an entry of usual size.
    #[inline]
    pub(crate) fn is_probably_full(self, leaf: Node<'_>) -> bool {
        let end = leaf.log_start() + LINE_SIZE + leaf.state().log_size();
        leaf.state().log_count() >= self.entry_count_max() || end + PREFETCHED_SIZE > leaf.frame_size()
    }
}

impl Default for LogBlock {
    fn default() -> Self {
        LogBlock { size: 512, size_max: Self::SIZE_MAX as u16, entry_count_max: LOG_COUNT_MAX as u8 }
    }
}

/// The largest version delta, which has five bytes: a larger one forces a merge.
pub(crate) const DELTA_MAX: u64 = (1 << (8 * DELTA_SIZE)) - 1;

const DELTA_SIZE: usize = 5;
const KEY_SIZE_OFFSET: usize = DELTA_SIZE;
const VALUE_SIZE_OFFSET: usize = KEY_SIZE_OFFSET + 2;
const HEAD_SIZE: usize = VALUE_SIZE_OFFSET + 2;
const OFFSET_UNIT: usize = 4;
const _: () = assert!(LOG_COUNT_MAX <= 1 << 4);

/// Bytes of an entry that are prefetched before the sizes of its key and value are known.
const PREFETCHED_SIZE: usize = HEAD_SIZE + 32;

const HINT_SHIFT: u32 = 8;
const FLAGS_SHIFT: u32 = HINT_SHIFT + 4;
const BACK_SHIFT: u32 = FLAGS_SHIFT + 4;
const _: () = assert!(BACK_SHIFT == 16, "the back pointer is the upper half of a directory word");

/// The position of an item in the sorted block. Back pointers have the order of the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BackPointer {
    pub(crate) segment: u8,
    pub(crate) index: u8,
}

impl BackPointer {
    /// Returns a number with the same order, which is not negative.
    #[inline]
    pub(crate) fn rank(self) -> i16 {
        i16::from_be_bytes([self.segment, self.index])
    }

    /// Compares the back pointers of directory words with this one.
    #[inline(always)]
    pub(crate) fn compare(self, words: &[u32; LOG_COUNT_MAX]) -> Ranks {
        compare_ranks(words, self.rank())
    }
}

/// The flags of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Flags {
    /// It removes the key; it has no value.
    pub(crate) is_delete: bool,
    /// The back pointer names an item with the same key.
    pub(crate) is_exact: bool,
    /// The next entry in order has the same key, and is older.
    pub(crate) is_followed: bool,
    /// The value is marked: it is a reference to an overflow value, or has an expiry.
    pub(crate) is_marked: bool,
}

/// A word of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryWord {
    /// Bytes from the first entry to this one.
    pub(crate) offset: usize,
    pub(crate) hint: usize,
    pub(crate) flags: Flags,
    pub(crate) back: BackPointer,
}

impl DirectoryWord {
    #[inline(always)]
    pub(crate) fn to_bits(self) -> u32 {
        let Flags { is_delete, is_exact, is_followed, is_marked } = self.flags;
        let flags =
            u32::from(is_delete) | u32::from(is_exact) << 1 | u32::from(is_followed) << 2 | u32::from(is_marked) << 3;
        (self.offset / OFFSET_UNIT) as u32
            | (self.hint as u32) << HINT_SHIFT
            | flags << FLAGS_SHIFT
            | u32::from(self.back.index) << (BACK_SHIFT + 8)
            | u32::from(self.back.segment) << BACK_SHIFT
    }

    /// Returns true if the entry of this word gives a sorted key another value, and is not marked.
    #[inline(always)]
    pub(crate) fn is_plain_overwrite(bits: u32) -> bool {
        const EXACT: u32 = 0b0010;
        const FOLLOWED: u32 = 0b0100;
        bits >> FLAGS_SHIFT & (0xf & !FOLLOWED) == EXACT
    }

    #[inline]
    pub(crate) fn from_bits(bits: u32) -> Self {
        let flag = |bit: u32| bits >> (FLAGS_SHIFT + bit) & 1 == 1;
        DirectoryWord {
            offset: usize::from(bits as u8) * OFFSET_UNIT,
            hint: (bits >> HINT_SHIFT & 0xf) as usize,
            flags: Flags { is_delete: flag(0), is_exact: flag(1), is_followed: flag(2), is_marked: flag(3) },
            back: BackPointer { segment: (bits >> BACK_SHIFT) as u8, index: (bits >> (BACK_SHIFT + 8)) as u8 },
        }
    }
}

/// A published entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'g> {
    pub(crate) word: DirectoryWord,
    pub(crate) delta: u64,
    pub(crate) key: &'g [u8],
    pub(crate) value: Value<'g>,
}

impl<'g> Entry<'g> {
    #[inline(always)]
    pub(crate) fn read(node: Node<'g>, entry: usize) -> Self {
        Entry::of_word(node, DirectoryWord::from_bits(node.log_word(entry)))
    }

    /// Reads the entry of this directory word.
    #[inline(always)]
    pub(crate) fn of_word(node: Node<'g>, word: DirectoryWord) -> Self {
        let head = node.log_bytes(word.offset, HEAD_SIZE);
        let u16_at = |offset: usize| usize::from(u16::from_le_bytes([head[offset], head[offset + 1]]));
        let (key_size, value_size) = (u16_at(KEY_SIZE_OFFSET), u16_at(VALUE_SIZE_OFFSET));
        let (key, bytes) = node.log_bytes(word.offset + HEAD_SIZE, key_size + value_size).split_at(key_size);
        let value = Value { bytes, is_marked: word.flags.is_marked };
        Entry { word, delta: delta(head), key, value }
    }
}

/// Returns the value of the entry of this directory word.
#[inline(always)]
pub(crate) fn value<'g>(node: Node<'g>, word: DirectoryWord) -> Value<'g> {
    let head = node.log_bytes(word.offset, HEAD_SIZE);
    let u16_at = |offset: usize| usize::from(u16::from_le_bytes([head[offset], head[offset + 1]]));
    let bytes = node.log_bytes(word.offset + HEAD_SIZE + u16_at(KEY_SIZE_OFFSET), u16_at(VALUE_SIZE_OFFSET));
    Value { bytes, is_marked: word.flags.is_marked }
}

/// Returns true if a fetched log block can be read beside this number of segments: its entries are in it, and each entry
/// that is followed has a successor.
pub(crate) fn is_readable(node: Node<'_>, segment_count: usize) -> bool {
    let (count, log_size) = (node.state().log_count(), node.state().log_size());
    let is_inside = |entry: usize| {
        let word = DirectoryWord::from_bits(node.log_word(entry));
        let body = word.offset + HEAD_SIZE;
        if body > log_size || usize::from(word.back.segment) >= segment_count {
            return false;
        }
        let sizes = &node.log_bytes(word.offset, HEAD_SIZE)[KEY_SIZE_OFFSET..];
        let size: usize = sizes.as_chunks::<2>().0.iter().map(|size| usize::from(u16::from_le_bytes(*size))).sum();
        body + size <= log_size
    };
    // With inconsistent hints, an entry may have no position in the order, or two.
    let order = LogOrder::read(node);
    let is_last_followed = || count > 0 && order.word(node, count - 1).flags.is_followed;
    (0..count).all(is_inside) && !is_last_followed()
}

/// Prefetches a published entry. Its directory word is resident.
#[inline(always)]
pub(crate) fn prefetch(node: Node<'_>, entry: usize) {
    let word = DirectoryWord::from_bits(node.log_word(entry));
    node.frame().prefetch(node.log_start() + LINE_SIZE + word.offset, PREFETCHED_SIZE);
}

/// Prefetches the bytes of the next entry for writing.
#[inline(always)]
pub(crate) fn prefetch_end(leaf: Node<'_>) {
    let (frame, end) = (leaf.frame(), leaf.log_start() + LINE_SIZE + leaf.state().log_size());
    frame.prefetch_line(leaf.log_start());
    frame.prefetch_line(end);
    frame.prefetch_line(end + PREFETCHED_SIZE - 1);
}

/// Reads the version of an entry, relative to the node's.
#[inline]
pub(crate) fn read_delta(node: Node<'_>, word: DirectoryWord) -> u64 {
    delta(node.log_bytes(word.offset, DELTA_SIZE))
}

#[inline]
fn delta(head: &[u8]) -> u64 {
    let [a, b, c, d, e] = *head.first_chunk().expect("an entry begins with its delta");
    u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
}

/// Returns the bytes of an entry.
pub(crate) fn entry_size(key: &[u8], value: &[u8]) -> usize {
    (HEAD_SIZE + key.len() + value.len()).next_multiple_of(OFFSET_UNIT)
}

/// Writes key and value of an entry.
#[inline(always)]
pub(crate) fn write_pair(room: &mut [u8], key: &[u8], value: &[u8]) {
    let (to_key, to_value) = room[HEAD_SIZE..HEAD_SIZE + key.len() + value.len()].split_at_mut(key.len());
    short::overwrite(to_key, key);
    short::overwrite(to_value, value);
}

/// Writes the head of an entry: its delta, and the sizes of its key and value.
#[inline(always)]
pub(crate) fn write_head(room: &mut [u8], delta: u64, key_size: usize, value_size: usize) {
    assert!(delta <= DELTA_MAX, "a larger delta would have forced a merge");
    const _: () = assert!(HEAD_SIZE == size_of::<u64>() + 1);
    let [value_low, value_high] = (value_size as u16).to_le_bytes();
    let first =
        delta | u64::from(key_size as u16) << (8 * KEY_SIZE_OFFSET) | u64::from(value_low) << (8 * VALUE_SIZE_OFFSET);
    let (head, last) = room[..HEAD_SIZE].split_at_mut(size_of::<u64>());
    head.copy_from_slice(&first.to_le_bytes());
    last[0] = value_high;
}

/// The entries of a log in the order of their keys, four bits each (Figures 7 and 8 of the paper).
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogOrder {
    entries: u64,
    count: usize,
}

impl LogOrder {
    /// Puts the published entries in order.
    #[inline]
    pub(crate) fn read(node: Node<'_>) -> Self {
        LogOrder::read_from(node, 0).0
    }

    /// Does the same, and counts the entries whose segments are before this one.
    #[inline(always)]
    pub(crate) fn read_from(node: Node<'_>, segment: usize) -> (Self, usize) {
        let (mut entries, mut before) = (0_u64, 0);
        for (entry, word) in (0_u64..).zip(node.log_words()) {
            let shift = 4 * (word >> HINT_SHIFT & 0xf);
            let lower = (1_u64 << shift) - 1;
            entries = entries & lower | entry << shift | (entries & !lower) << 4;
            before += usize::from((word >> BACK_SHIFT & 0xff) < segment as u32);
        }
        (LogOrder { entries, count: node.state().log_count() }, before)
    }

    #[inline]
    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// Returns the index of the entry at this position.
    #[inline]
    pub(crate) fn entry(self, position: usize) -> usize {
        (self.entries >> (4 * position) & 0xf) as usize
    }

    /// Returns its directory word.
    #[inline]
    pub(crate) fn word(self, node: Node<'_>, position: usize) -> DirectoryWord {
        DirectoryWord::from_bits(node.log_word(self.entry(position)))
    }

    /// Returns the segment that its back pointer names.
    #[inline]
    pub(crate) fn segment(self, node: Node<'_>, position: usize) -> usize {
        (node.log_word(self.entry(position)) >> BACK_SHIFT & 0xff) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        for bits in (0..=u32::MAX).step_by(65_537) {
            let word = DirectoryWord::from_bits(bits);
            assert_eq!((word.to_bits(), word.back.compare(&[bits; LOG_COUNT_MAX]).equal), (bits, 0xffff));
        }
        let low = BackPointer { segment: 1, index: 9 };
        assert!(low < BackPointer { segment: 2, index: 0 } && low < BackPointer { segment: 1, index: 10 });
    }
}
