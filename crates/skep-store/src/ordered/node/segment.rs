//! A segment of a leaf's sorted block (Honeycomb, section 3.1).
//!
//! ```text
//! offset    0            1   2           4           6             8
//! uniform   count | 128  0   marked 2    key size 2  value size 2  fingerprints      to 32
//!           then key and value of each item; of the boundary key the value only, last
//! varied    count        0   marked 2    0           0             fingerprints, ends (2 B each), key sizes (2 B each)
//!           then key and value of each item; of the boundary key the value only, first
//! ```
//!
//! `count` is at most 16, one comparison of fingerprints. A bit of `marked` is set if the item's value is a reference to
//! an overflow value, or has an expiry (`value`). Ends count from the start of the segment. If all keys have one size and all values have one
//! size, which is usual, the segment is uniform: it stores only fingerprints besides them, and items of 16 + 16 bytes
//! never straddle lines.

use super::super::key_head::FINGERPRINT_COUNT_MAX;
use super::super::key_head::lanes::equal;
use super::frame::{Frame, Node};
use super::shortcut::SEGMENT_ALIGNMENT;
use super::value::Value;
use crate::short;

/// The size of a segment to aim at. The paper has at least 256 bytes; a segment ends with the item that reaches it.
pub(crate) const SEGMENT_SIZE_GOAL: usize = 320;
/// Most items of a segment.
pub(crate) const ITEM_COUNT_MAX: usize = FINGERPRINT_COUNT_MAX;
pub(crate) const UNIFORM: u8 = 128;
pub(crate) const FINGERPRINTS_START: usize = 8;
/// Bytes before the items of a uniform segment.
pub(crate) const UNIFORM_HEAD_SIZE: usize = 32;
const _: () = assert!(FINGERPRINTS_START + ITEM_COUNT_MAX <= UNIFORM_HEAD_SIZE);
/// Bytes that the head of a varied segment has for each item.
const VARIED_ITEM_HEAD_SIZE: usize = 1 + 2 + 2;

/// A pair that is to be written, or has been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'n> {
    pub(crate) key: &'n [u8],
    pub(crate) value: Value<'n>,
    pub(crate) fingerprint: u8,
}

/// The position and sizes of an item in its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemPosition {
    pub(crate) offset: u16,
    pub(crate) key_size: u16,
    pub(crate) value_size: u16,
    pub(crate) is_marked: bool,
}

impl ItemPosition {
    /// The position of an item that does not exist: line 0 contains no items.
    pub(crate) const NONE: ItemPosition = ItemPosition { offset: 0, key_size: 0, value_size: 0, is_marked: false };

    /// Returns true unless it is [`ItemPosition::NONE`].
    #[inline(always)]
    pub(crate) fn exists(self) -> bool {
        self.offset != 0
    }

    /// Reads the key (empty for the boundary key) and the value.
    #[inline(always)]
    pub(crate) fn read(self, node: Node<'_>) -> (&[u8], Value<'_>) {
        let (key_size, value_size) = (usize::from(self.key_size), usize::from(self.value_size));
        let (key, bytes) = node.read(usize::from(self.offset), key_size + value_size).split_at(key_size);
        (key, Value { bytes, is_marked: self.is_marked })
    }
}

/// A segment that can be read.
#[derive(Debug)]
pub(crate) struct Segment<'g> {
    node: Node<'g>,
    start: usize,
    head: &'g [u8; UNIFORM_HEAD_SIZE],
    /// True if the key of item 0 is in the shortcut block.
    has_boundary: bool,
}

impl<'g> Segment<'g> {
    /// Reads the head of the segment with this index, which begins at `start`.
    #[inline]
    pub(crate) fn open(node: Node<'g>, start: usize, index: usize) -> Self {
        let head = node.read(start, UNIFORM_HEAD_SIZE).first_chunk().expect("32 bytes were read");
        Segment { node, start, head, has_boundary: index > 0 }
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        usize::from(self.head[0] & !UNIFORM)
    }

    #[inline]
    pub(crate) fn is_uniform(&self) -> bool {
        self.head[0] & UNIFORM != 0
    }

    #[inline]
    fn head_u16(&self, offset: usize) -> usize {
        usize::from(u16::from_le_bytes([self.head[offset], self.head[offset + 1]]))
    }

    /// Returns a bit for each item with this fingerprint, item 0 lowest.
    #[inline(always)]
    pub(crate) fn matching(&self, fingerprint: u8) -> u32 {
        let fingerprints = self.head[FINGERPRINTS_START..].first_chunk().expect("sixteen bytes of the head");
        equal(fingerprints, fingerprint) & ((1 << self.count()) - 1)
    }

    #[inline(always)]
    pub(crate) fn fingerprint(&self, item: usize) -> u8 {
        debug_assert!(item < ITEM_COUNT_MAX);
        self.head[FINGERPRINTS_START + item % ITEM_COUNT_MAX]
    }

    /// Returns the node.
    #[inline(always)]
    pub(crate) fn node(&self) -> Node<'g> {
        self.node
    }

    /// Returns true if the items from this one on have one size and are contiguous, with keys and values in full.
    #[inline(always)]
    pub(crate) fn is_run_from(&self, item: usize) -> bool {
        self.is_uniform() && self.marked_bits() == 0 && !(self.has_boundary && item == 0)
    }

    /// Returns the items of a run from `first` to `end`, the size of each key, and the size of each pair.
    #[inline(always)]
    pub(crate) fn run(&self, first: usize, end: usize) -> (&'g [u8], usize, usize) {
        let (offset, key_size, value_size) = self.layout(first);
        let pair_size = key_size + value_size;
        (self.node.read(offset, (end - first) * pair_size), key_size, pair_size)
    }

    /// Returns the size of the keys if all have one size; otherwise zero.
    #[inline(always)]
    pub(crate) fn key_size(&self) -> usize {
        self.head_u16(4)
    }

    /// Returns the size of the pairs if all have one size; otherwise zero.
    #[inline]
    pub(crate) fn pair_size(&self) -> usize {
        self.head_u16(4) + self.head_u16(6)
    }

    /// Returns the size of the pairs, or an estimate of their average. `end` is the offset in the frame at which the
    /// segment ends.
    #[inline(always)]
    pub(crate) fn pair_size_mean(&self, end: usize) -> usize {
        let size = if self.is_uniform() { self.pair_size() } else { (end - self.start) / self.count() };
        size.max(1)
    }

    /// Returns the bytes of the segment.
    pub(crate) fn size(&self) -> usize {
        if self.is_uniform() {
            return self.size_with(self.count(), self.has_boundary);
        }
        let (start, key_size, value_size) = self.layout(self.count() - 1);
        start + key_size + value_size - self.start
    }

    /// Returns the bytes of the segment with `count` items if it is uniform; otherwise its present bytes.
    pub(crate) fn size_with(&self, count: usize, has_boundary: bool) -> usize {
        if !self.is_uniform() {
            return self.size();
        }
        let boundary = if has_boundary { self.key_size() } else { 0 };
        UNIFORM_HEAD_SIZE + count * self.pair_size() - boundary
    }

    /// Returns a bit for each item whose value is marked, item 0 lowest.
    #[inline(always)]
    pub(crate) fn marked_bits(&self) -> usize {
        self.head_u16(2)
    }

    #[inline(always)]
    pub(crate) fn is_marked(&self, item: usize) -> bool {
        self.marked_bits() >> item & 1 == 1
    }

    /// Returns the layout of an item: its offset in the frame, the key size, the value size.
    #[inline(always)]
    pub(crate) fn layout(&self, item: usize) -> (usize, usize, usize) {
        if !self.is_uniform() {
            return varied_layout(self.node.frame(), self.start, item);
        }
        let (key_size, value_size) = (self.head_u16(4), self.head_u16(6));
        let items = self.start + UNIFORM_HEAD_SIZE;
        if !self.has_boundary {
            (items + item * (key_size + value_size), key_size, value_size)
        } else if item == 0 {
            (items + (self.count() - 1) * (key_size + value_size), 0, value_size)
        } else {
            (items + (item - 1) * (key_size + value_size), key_size, value_size)
        }
    }

    /// Returns the position of an item.
    #[inline(always)]
    pub(crate) fn item_position(&self, item: usize) -> ItemPosition {
        let (offset, key_size, value_size) = self.layout(item);
        let is_marked = self.is_marked(item);
        ItemPosition { offset: offset as u16, key_size: key_size as u16, value_size: value_size as u16, is_marked }
    }

    /// Returns the key of an item (empty for the boundary key) and its value.
    #[inline(always)]
    pub(crate) fn pair(&self, item: usize) -> (&'g [u8], Value<'g>) {
        let (offset, key_size, value_size) = self.layout(item);
        let (key, bytes) = self.node.read(offset, key_size + value_size).split_at(key_size);
        (key, Value { bytes, is_marked: self.is_marked(item) })
    }

    #[inline]
    pub(crate) fn value(&self, item: usize) -> Value<'g> {
        self.pair(item).1
    }
}

impl<'g> Segment<'g> {
    /// Appends some of its items. `boundary_key` is the key of item 0, if it is in the shortcut block.
    pub(crate) fn collect(
        &self,
        boundary_key: Option<&'g [u8]>,
        range: std::ops::Range<usize>,
        to: &mut Vec<Item<'g>>,
    ) {
        let mut next = range.start;
        if let (0, Some(key), false) = (next, boundary_key, range.is_empty()) {
            to.push(Item { key, value: self.value(0), fingerprint: self.fingerprint(0) });
            next = 1;
        }
        if next >= range.end {
            return;
        }
        let item = |index: usize, (key, bytes)| {
            let value = Value { bytes, is_marked: self.is_marked(index) };
            Item { key, value, fingerprint: self.fingerprint(index) }
        };
        if self.is_run_from(next) {
            let (offset, key_size, _) = self.layout(next);
            let run = self.node.read(offset, (range.end - next) * self.pair_size());
            let pairs = run.chunks_exact(self.pair_size()).map(|pair| pair.split_at(key_size));
            to.extend((next..range.end).zip(pairs).map(|(index, pair)| item(index, pair)));
        } else {
            to.extend((next..range.end).map(|index| {
                let (key, value) = self.pair(index);
                item(index, (key, value.bytes))
            }));
        }
    }
}

/// Returns the layout of an item of a varied segment. The arguments fit registers, so callers need not write to memory
/// for this call.
#[inline(never)]
fn varied_layout(frame: Frame<'_>, start: usize, item: usize) -> (usize, usize, usize) {
    let node = frame.open();
    let u16_at = |offset: usize| {
        let bytes = node.read(start + offset, 2);
        usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))
    };
    let count = usize::from(node.read(start, 1)[0]);
    let ends = FINGERPRINTS_START + count;
    let first = match item {
        0 => FINGERPRINTS_START + count * VARIED_ITEM_HEAD_SIZE,
        _ => u16_at(ends + (item - 1) * 2),
    };
    let end = u16_at(ends + item * 2);
    let key_size = u16_at(ends + count * 2 + item * 2);
    (start + first, key_size, end - first - key_size)
}

/// Returns true if a fetched segment can be searched: all its items are in the node.
pub(crate) fn is_searchable(node: Node<'_>, start: usize, index: usize) -> bool {
    if start + UNIFORM_HEAD_SIZE > node.log_start() {
        return false;
    }
    let segment = Segment::open(node, start, index);
    let (count, room) = (segment.count(), node.log_start() - start);
    if count > ITEM_COUNT_MAX || FINGERPRINTS_START + count * VARIED_ITEM_HEAD_SIZE > room {
        return false;
    }
    if segment.is_uniform() {
        let boundary = if index > 0 { segment.key_size() } else { 0 };
        return count == 0 || UNIFORM_HEAD_SIZE + count * segment.pair_size() <= room + boundary;
    }
    let head = node.read(start + FINGERPRINTS_START + count, count * (VARIED_ITEM_HEAD_SIZE - 1));
    let (ends, key_sizes) = head.as_chunks::<2>().0.split_at(count);
    let mut first = FINGERPRINTS_START + count * VARIED_ITEM_HEAD_SIZE;
    ends.iter().zip(key_sizes).all(|(end, key_size)| {
        let (end, key_size) = (usize::from(u16::from_le_bytes(*end)), usize::from(u16::from_le_bytes(*key_size)));
        let start = std::mem::replace(&mut first, end);
        start + key_size <= end && end <= room
    })
}

/// Returns the bytes of a segment of these items.
pub(crate) fn size(items: &[Item<'_>], has_boundary: bool) -> usize {
    let boundary = if has_boundary { items[0].key.len() } else { 0 };
    let pairs = match items.first() {
        Some(first) if is_uniform(items) => items.len() * (first.key.len() + first.value.bytes.len()),
        _ => items.iter().map(|item| item.key.len() + item.value.bytes.len()).sum(),
    };
    head_size(items) + pairs - boundary
}

fn head_size(items: &[Item<'_>]) -> usize {
    if is_uniform(items) { UNIFORM_HEAD_SIZE } else { FINGERPRINTS_START + items.len() * VARIED_ITEM_HEAD_SIZE }
}

#[inline]
fn is_uniform(items: &[Item<'_>]) -> bool {
    let Some((first, others)) = items.split_first() else { return true };
    let (key_size, value_size) = (first.key.len(), first.value.bytes.len());
    others.iter().all(|item| item.key.len() == key_size && item.value.bytes.len() == value_size)
}

/// Writes a segment to the start of `bytes`.
pub(crate) fn write(bytes: &mut [u8], items: &[Item<'_>], has_boundary: bool) {
    assert!(items.len() <= ITEM_COUNT_MAX, "fingerprints are compared at once");
    let uniform = is_uniform(items);
    let count = items.len() as u8;
    bytes[..FINGERPRINTS_START].fill(0);
    bytes[0] = if uniform { count | UNIFORM } else { count };
    let marked_bits: u16 = items.iter().enumerate().map(|(index, item)| u16::from(item.value.is_marked) << index).sum();
    bytes[2..4].copy_from_slice(&marked_bits.to_le_bytes());
    for (index, item) in items.iter().enumerate() {
        bytes[FINGERPRINTS_START + index] = item.fingerprint;
    }
    if uniform {
        let Some(first) = items.first() else { return };
        let (key_size, value_size) = (first.key.len(), first.value.bytes.len());
        bytes[4..6].copy_from_slice(&(key_size as u16).to_le_bytes());
        bytes[6..8].copy_from_slice(&(value_size as u16).to_le_bytes());
        let in_full = &items[usize::from(has_boundary)..];
        let (pairs, rest) = bytes[UNIFORM_HEAD_SIZE..].split_at_mut(in_full.len() * (key_size + value_size));
        for (pair, item) in pairs.chunks_exact_mut(key_size + value_size).zip(in_full) {
            let (key, value) = pair.split_at_mut(key_size);
            short::overwrite(key, item.key);
            short::overwrite(value, item.value.bytes);
        }
        if has_boundary {
            short::overwrite(&mut rest[..value_size], first.value.bytes);
        }
        return;
    }
    let mut end = head_size(items);
    let mut put = |bytes: &mut [u8], part: &[u8]| {
        bytes[end..][..part.len()].copy_from_slice(part);
        end += part.len();
        end
    };
    let ends = FINGERPRINTS_START + items.len();
    let key_sizes = ends + 2 * items.len();
    for (index, item) in items.iter().enumerate() {
        let key = if has_boundary && index == 0 { &[] } else { item.key };
        put(bytes, key);
        let end = put(bytes, item.value.bytes);
        bytes[ends + 2 * index..][..2].copy_from_slice(&(end as u16).to_le_bytes());
        bytes[key_sizes + 2 * index..][..2].copy_from_slice(&(key.len() as u16).to_le_bytes());
    }
}

const _: () = assert!(UNIFORM_HEAD_SIZE <= SEGMENT_ALIGNMENT);
