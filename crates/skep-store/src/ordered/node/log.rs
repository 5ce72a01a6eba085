//! The log block of a leaf: recent changes, in the order in which they were made (Honeycomb, sections 3.1, 3.5, 4.3).
//!
//! ```text
//! directory word   0          8            12      16          24      32
//!                  offset / 4 │ order hint │ flags │ segment │ index          back pointer: 16 bits
//! entry            0                5            7              9
//!                  version delta 5 │ key size 2 │ value size 2 │ key │ value │ to a multiple of 4
//! ```
//!
//! The **back pointer** names the first sorted item whose key is not below the entry's, by segment and index; the index
//! may be the segment's count. It is always in the segment that would hold the key. Flag `exact` says that the item has
//! the same key. The **order hint** is the number of entries with a lower key when the entry was made, so the newest of one
//! key comes first; flag `followed` says that the next in order has the same key. So entries are put in order, and merged
//! with the sorted block, without comparing keys.

use super::super::trace::Trace;
use super::frame::{LOG_COUNT_MAX, Node};
use super::segment::Value;
use crate::memory::LINE_SIZE;
use crate::short;

/// How large the log block of a leaf may become: beyond it a write merges it with the sorted block (Honeycomb, section 6.4,
/// Figure 17). The default is the paper's 512 bytes, and what is left of the last granule of the leaf's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBlock {
    /// What every leaf has room for.
    size: u16,
    /// What a log block takes if the frame is large enough.
    size_max: u16,
    entry_count_max: u8,
}

impl LogBlock {
    /// Bytes of the smallest one: its directory alone. Every write merges.
    pub const SIZE_MIN: usize = LINE_SIZE;
    /// Bytes of the largest one: as far as offsets in the directory reach.
    pub const SIZE_MAX: usize = LINE_SIZE + (OFFSET_UNIT << 8);
    /// Most entries of any: an order hint has four bits.
    pub const ENTRY_COUNT_MAX: usize = LOG_COUNT_MAX;

    /// What a leaf can do with that has no room for more: its directory, and what is left of the last granule.
    pub(crate) const LEAST: LogBlock =
        LogBlock { size: Self::SIZE_MIN as u16, size_max: Self::SIZE_MAX as u16, entry_count_max: LOG_COUNT_MAX as u8 };

    /// A block of `size` bytes and not more, its directory of 64 included, and of so many entries. None if there is no such
    /// block, see the constants.
    pub fn new(size: usize, entry_count_max: usize) -> Option<Self> {
        let exists = (Self::SIZE_MIN..=Self::SIZE_MAX).contains(&size) && entry_count_max <= Self::ENTRY_COUNT_MAX;
        exists.then_some(LogBlock { size: size as u16, size_max: size as u16, entry_count_max: entry_count_max as u8 })
    }

    /// Bytes that a leaf is built with room for, the directory included.
    pub(crate) fn size(self) -> usize {
        usize::from(self.size)
    }

    /// Bytes that the block of a leaf may take.
    #[inline]
    pub(crate) fn room<T: Trace>(self, leaf: Node<'_, T>) -> usize {
        usize::from(self.size_max).min(leaf.frame_size() - leaf.log_start())
    }

    /// Most entries.
    pub(crate) fn entry_count_max(self) -> usize {
        usize::from(self.entry_count_max)
    }

    /// Whether an entry of this size can be appended to what a leaf has.
    #[inline]
    pub(crate) fn has_room<T: Trace>(self, leaf: Node<'_, T>, entry_size: usize) -> bool {
        let state = leaf.state();
        state.log_count() < self.entry_count_max() && LINE_SIZE + state.log_size() + entry_size <= self.room(leaf)
    }

    /// Returns true if this many entries of this size in all fit a block, where the frame has room for it.
    pub(crate) fn may_hold(self, entry_count: usize, log_size: usize) -> bool {
        entry_count <= self.entry_count_max() && LINE_SIZE + log_size <= usize::from(self.size_max)
    }

    /// Whether another entry as large as those that a leaf has would find no room.
    pub(crate) fn is_full<T: Trace>(self, leaf: Node<'_, T>) -> bool {
        let (count, size) = (leaf.state().log_count(), leaf.state().log_size());
        !self.has_room(leaf, size.checked_div(count).unwrap_or(0))
    }
}

impl Default for LogBlock {
    fn default() -> Self {
        LogBlock { size: 512, size_max: Self::SIZE_MAX as u16, entry_count_max: LOG_COUNT_MAX as u8 }
    }
}

/// Version deltas have five bytes: a larger one forces a merge.
pub(crate) const DELTA_MAX: u64 = (1 << (8 * DELTA_SIZE)) - 1;

const DELTA_SIZE: usize = 5;
const KEY_SIZE_PLACE: usize = DELTA_SIZE;
const VALUE_SIZE_PLACE: usize = KEY_SIZE_PLACE + 2;
const HEAD_SIZE: usize = VALUE_SIZE_PLACE + 2;
const OFFSET_UNIT: usize = 4;
const _: () = assert!(LOG_COUNT_MAX <= 1 << 4);

/// Bytes of an entry that are prefetched: the sizes of its key and value are not known yet.
const ANNOUNCED_SIZE: usize = HEAD_SIZE + 32;

const HINT_SHIFT: u32 = 8;
const FLAGS_SHIFT: u32 = HINT_SHIFT + 4;
const BACK_SHIFT: u32 = FLAGS_SHIFT + 4;

/// A place in the sorted block, ordered as its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BackPointer {
    pub(crate) segment: u8,
    pub(crate) index: u8,
}

impl BackPointer {
    /// A number in whose order places are.
    #[inline]
    pub(crate) fn rank(self) -> u16 {
        u16::from_be_bytes([self.segment, self.index])
    }

    /// That of the back pointer in a directory word.
    #[inline]
    pub(crate) fn rank_of(word: u32) -> u16 {
        ((word >> BACK_SHIFT) as u16).swap_bytes()
    }
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Flags {
    /// It removes the key; it has no value.
    pub(crate) is_delete: bool,
    /// The back pointer names an item with the same key.
    pub(crate) is_exact: bool,
    /// The next entry in order has the same key, and is older.
    pub(crate) is_followed: bool,
    /// The value is a reference.
    pub(crate) is_outside: bool,
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
    pub(crate) fn to_bits(self) -> u32 {
        let Flags { is_delete, is_exact, is_followed, is_outside } = self.flags;
        let flags = [is_delete, is_exact, is_followed, is_outside];
        let flags: u32 = flags.iter().enumerate().map(|(bit, flag)| u32::from(*flag) << bit).sum();
        (self.offset / OFFSET_UNIT) as u32
            | (self.hint as u32) << HINT_SHIFT
            | flags << FLAGS_SHIFT
            | u32::from(self.back.index) << (BACK_SHIFT + 8)
            | u32::from(self.back.segment) << BACK_SHIFT
    }

    #[inline]
    pub(crate) fn from_bits(bits: u32) -> Self {
        let flag = |bit: u32| bits >> (FLAGS_SHIFT + bit) & 1 == 1;
        DirectoryWord {
            offset: usize::from(bits as u8) * OFFSET_UNIT,
            hint: (bits >> HINT_SHIFT & 0xf) as usize,
            flags: Flags { is_delete: flag(0), is_exact: flag(1), is_followed: flag(2), is_outside: flag(3) },
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
    #[inline]
    pub(crate) fn read<T: Trace>(node: Node<'g, T>, entry: usize) -> Self {
        Entry::of_word(node, DirectoryWord::from_bits(node.log_word(entry)))
    }

    /// The entry of this directory word.
    #[inline]
    pub(crate) fn of_word<T: Trace>(node: Node<'g, T>, word: DirectoryWord) -> Self {
        let head = node.log_bytes(word.offset, HEAD_SIZE);
        let u16_at = |place: usize| usize::from(u16::from_le_bytes([head[place], head[place + 1]]));
        let (key_size, value_size) = (u16_at(KEY_SIZE_PLACE), u16_at(VALUE_SIZE_PLACE));
        let key = node.log_bytes(word.offset + HEAD_SIZE, key_size);
        let value = node.log_bytes(word.offset + HEAD_SIZE + key_size, value_size);
        let value = Value { bytes: value, is_outside: word.flags.is_outside };
        Entry { word, delta: delta(head), key, value }
    }
}

/// Says that a published entry will be read soon. Its directory word is resident.
#[inline(always)]
pub(crate) fn prefetch<T: Trace>(node: Node<'_, T>, entry: usize) {
    let word = DirectoryWord::from_bits(node.log_word(entry));
    node.frame().prefetch(node.log_start() + LINE_SIZE + word.offset, ANNOUNCED_SIZE);
}

/// Says that an entry will be written soon.
#[inline(always)]
pub(crate) fn prefetch_end<T: Trace>(leaf: Node<'_, T>) {
    leaf.frame().prefetch_line(leaf.log_start());
    leaf.frame().prefetch(leaf.log_start() + LINE_SIZE + leaf.state().log_size(), ANNOUNCED_SIZE);
}

/// The version of an entry, above the node's.
#[inline]
pub(crate) fn read_delta<T: Trace>(node: Node<'_, T>, word: DirectoryWord) -> u64 {
    delta(node.log_bytes(word.offset, DELTA_SIZE))
}

#[inline]
fn delta(head: &[u8]) -> u64 {
    let [a, b, c, d, e] = *head.first_chunk().expect("an entry begins with its delta");
    u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
}

/// Bytes that an entry takes.
pub(crate) fn entry_size(key: &[u8], value: &[u8]) -> usize {
    (HEAD_SIZE + key.len() + value.len()).next_multiple_of(OFFSET_UNIT)
}

/// Writes an entry but for its delta.
pub(crate) fn write_entry(room: &mut [u8], key: &[u8], value: &[u8]) {
    room[KEY_SIZE_PLACE..][..2].copy_from_slice(&(key.len() as u16).to_le_bytes());
    room[VALUE_SIZE_PLACE..][..2].copy_from_slice(&(value.len() as u16).to_le_bytes());
    short::overwrite(&mut room[HEAD_SIZE..][..key.len()], key);
    short::overwrite(&mut room[HEAD_SIZE + key.len()..][..value.len()], value);
}

/// Writes the delta of an entry.
pub(crate) fn write_delta(room: &mut [u8], delta: u64) {
    assert!(delta <= DELTA_MAX, "a larger delta would have forced a merge");
    room[..DELTA_SIZE].copy_from_slice(&delta.to_le_bytes()[..DELTA_SIZE]);
}

/// The entries of a log in the order of their keys, four bits each: Figures 7 and 8 of the paper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogOrder {
    entries: u64,
    count: usize,
}

impl LogOrder {
    /// Puts the published entries in order.
    #[inline]
    pub(crate) fn read<T: Trace>(node: Node<'_, T>) -> Self {
        LogOrder::read_from(node, 0).0
    }

    /// The same, and how many of the entries belong to segments before this one.
    #[inline(always)]
    pub(crate) fn read_from<T: Trace>(node: Node<'_, T>, segment: usize) -> (Self, usize) {
        let (mut entries, mut before) = (0_u64, 0);
        for (entry, word) in (0_u64..).zip(node.log_words()) {
            let place = 4 * (word >> HINT_SHIFT & 0xf);
            let lower = (1_u64 << place) - 1;
            entries = entries & lower | entry << place | (entries & !lower) << 4;
            before += usize::from((word >> BACK_SHIFT & 0xff) < segment as u32);
        }
        (LogOrder { entries, count: node.state().log_count() }, before)
    }

    #[inline]
    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// The number of the entry at this place in the order.
    #[inline]
    pub(crate) fn entry(self, place: usize) -> usize {
        (self.entries >> (4 * place) & 0xf) as usize
    }

    /// Its directory word.
    #[inline]
    pub(crate) fn word<T: Trace>(self, node: Node<'_, T>, place: usize) -> DirectoryWord {
        DirectoryWord::from_bits(node.log_word(self.entry(place)))
    }

    /// The segment that its back pointer names.
    #[inline]
    pub(crate) fn segment<T: Trace>(self, node: Node<'_, T>, place: usize) -> usize {
        (node.log_word(self.entry(place)) >> BACK_SHIFT & 0xff) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        for bits in (0..=u32::MAX).step_by(65_537) {
            let word = DirectoryWord::from_bits(bits);
            assert_eq!((word.to_bits(), word.back.rank()), (bits, BackPointer::rank_of(bits)));
        }
        let low = BackPointer { segment: 1, index: 9 };
        assert!(low < BackPointer { segment: 2, index: 0 } && low < BackPointer { segment: 1, index: 10 });
    }
}
