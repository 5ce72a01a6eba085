//! Edits: the changes of the sorted block by a log and a write, and their application to a segment of one pair size.
//!
//! ```text
//! log, in order    b 7 │ d 2 │ d 1 │ e −          of a key the newest, e is removed
//! edits               ▼ insert   ▼ replace  ▼ remove
//! segment          a 5     c 9   d 0     e 4      the runs between are copied
//! ```

use std::ops::Range;

use super::super::node::frame::{LOG_COUNT_MAX, LockedNode, Node};
use super::super::node::log::{BackPointer, Entry, LogOrder};
use super::super::node::segment::{FINGERPRINTS_START, ITEM_COUNT_MAX, Item, Segment, UNIFORM, UNIFORM_HEAD_SIZE};
use super::super::node::shortcut::Shortcuts;
use super::super::node::value::Value;
use super::find::{self, LogRank, SortedPosition};
use crate::short;

/// The entry that a write puts into a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) fingerprint: u8,
    /// None removes the key.
    pub(crate) value: Option<Value<'a>>,
}

/// The change of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit<'a> {
    /// The first sorted item whose key is not below this one.
    pub(crate) position: BackPointer,
    /// True if that item has the key.
    pub(crate) is_exact: bool,
    /// The newest pair; none if the key is removed.
    pub(crate) item: Option<Item<'a>>,
    /// The offset of its value in the leaf, if it replaces another of the same kind and size.
    pub(crate) over: Option<u16>,
}

/// The edits of a leaf in the order of their keys.
#[derive(Debug)]
pub(crate) struct Edits<'a> {
    pub(crate) edits: Vec<Edit<'a>>,
    /// References to overflow values that are lost with these edits.
    pub(crate) dropped: Vec<&'a [u8]>,
}

impl<'a> Edits<'a> {
    /// Returns the changes by the log of a leaf.
    pub(crate) fn of_log(leaf: Node<'a>) -> Self {
        Edits::collect(leaf, None, LogRank { below: usize::MAX, is_followed: false })
    }

    /// Returns the changes by the log of a locked leaf and by another entry, whose position in the sorted block is
    /// known.
    pub(crate) fn of_log_and(locked: &LockedNode<'a>, new: &NewEntry<'a>, position: SortedPosition) -> Self {
        let SortedPosition { back, is_exact } = position;
        let item = new.value.map(|value| Item { key: new.key, value, fingerprint: new.fingerprint });
        let edit = Edit { position: back, is_exact, item, over: None };
        Edits::collect(locked.node(), Some(edit), find::log_rank(locked, new.key, back))
    }

    /// Returns the changes by the log of a leaf, and another one that has this place among them.
    fn collect(leaf: Node<'a>, new: Option<Edit<'a>>, LogRank { below, is_followed }: LogRank) -> Self {
        let order = LogOrder::read(leaf);
        let fingerprints = leaf.log_fingerprints();
        let shortcuts = Shortcuts::open(leaf);
        let mut all = Edits { edits: Vec::with_capacity(LOG_COUNT_MAX + 1), dropped: Vec::new() };
        let mut is_older = false;
        for position in 0..=order.count() {
            if let (true, Some(new)) = (position == below, new) {
                all.add(leaf, shortcuts, new);
                is_older = is_followed;
            }
            if position == order.count() {
                break;
            }
            let entry = order.entry(position);
            let Entry { word, key, value, .. } = Entry::read(leaf, entry);
            if is_older {
                all.dropped.extend(value.reference());
            } else {
                let item = (!word.flags.is_delete).then_some(Item { key, value, fingerprint: fingerprints[entry] });
                all.add(leaf, shortcuts, Edit { position: word.back, is_exact: word.flags.is_exact, item, over: None });
            }
            is_older = word.flags.is_followed;
        }
        all
    }

    #[inline]
    fn add(&mut self, leaf: Node<'a>, shortcuts: Shortcuts<'a>, mut edit: Edit<'a>) {
        if edit.is_exact {
            let (segment_index, index) = (usize::from(edit.position.segment), usize::from(edit.position.index));
            let segment = Segment::open(leaf, shortcuts.segment_start(segment_index), segment_index);
            let (offset, key_size, value_size) = segment.layout(index);
            let is_marked = segment.is_marked(index);
            if is_marked {
                self.dropped.extend(segment.value(index).reference());
            }
            let is_alike = |item: Item<'_>| (item.value.bytes.len(), item.value.is_marked) == (value_size, is_marked);
            edit.over = edit.item.is_some_and(is_alike).then_some((offset + key_size) as u16);
        } else if edit.item.is_none() {
            return;
        }
        self.edits.push(edit);
    }

    /// Returns true if all are new pairs above the sorted ones: a load in ascending order.
    pub(crate) fn are_ascending(&self, leaf: Node<'_>) -> bool {
        let Some(first) = self.edits.first() else { return false };
        let shortcuts = Shortcuts::open(leaf);
        let last = shortcuts.segment_count() - 1;
        let is_last = usize::from(first.position.segment) == last && !first.is_exact;
        let item_count = || Segment::open(leaf, shortcuts.segment_start(last), last).count();
        is_last && usize::from(first.position.index) == item_count()
    }

    /// Returns true if all replace values in place, so that the sorted block keeps its layout.
    pub(crate) fn are_in_place(&self) -> bool {
        self.edits.iter().all(|edit| edit.over.is_some())
    }
}

/// Counts the items of a segment after these edits. Returns `None` if it cannot be edited, also not as two. It can if
/// all edits replace values by others of their sizes. It also can if it has one pair size and keeps it, and keeps its
/// first item if the key of that is in the shortcut block.
pub(crate) fn count_with(segment: &Segment<'_>, edits: &[Edit<'_>]) -> Option<usize> {
    let (mut inserted, mut removed) = (0, 0);
    for edit in edits {
        match edit.item {
            Some(_) if edit.is_exact => _ = edit.over?,
            Some(item) => {
                let (_, key_size, value_size) = segment.is_uniform().then(|| segment.layout(1))?;
                if (item.key.len(), item.value.bytes.len()) != (key_size, value_size) {
                    return None;
                }
                inserted += 1;
            }
            None if segment.is_run_from(usize::from(edit.position.index)) => removed += 1,
            None => return None,
        }
    }
    let count = segment.count();
    // While a segment is edited it may not have more items than there are fingerprints.
    let fits = removed == 0 || removed < count && count + inserted <= ITEM_COUNT_MAX;
    fits.then_some(count + inserted - removed)
}

/// The point at which an edited segment is divided in two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Middle {
    /// The first item of the second segment.
    pub(crate) item: usize,
    /// Number of edits of the first segment.
    pub(crate) edits: usize,
    /// Number of items of the first segment after its edits.
    pub(crate) count: usize,
}

/// Returns the middle of a segment that has `count` items after its edits. It is at an item that stays and is not the
/// first.
pub(crate) fn middle_with(segment: &Segment<'_>, edits: &[Edit<'_>], count: usize) -> Option<Middle> {
    let mut middle = Middle { item: 0, edits: 0, count: 0 };
    while middle.item < segment.count() {
        let at_item = |edit: &&Edit<'_>| usize::from(edit.position.index) == middle.item;
        let inserted = edits[middle.edits..].iter().take_while(|edit| at_item(edit) && !edit.is_exact).count();
        let own = edits.get(middle.edits + inserted).filter(at_item);
        let stays = own.is_none_or(|edit| edit.item.is_some());
        middle.edits += inserted;
        middle.count += inserted;
        if stays && middle.item > 0 && 2 * middle.count >= count {
            return Some(middle);
        }
        middle.edits += usize::from(own.is_some());
        middle.count += usize::from(stays);
        middle.item += 1;
    }
    None
}

/// Writes a segment to the start of `to`: some items of a segment, or all, with their edits. `had_boundary` is true if
/// the key of the segment's first item is in the shortcut block.
pub(crate) fn write(to: &mut [u8], segment: &[u8], had_boundary: bool, items: Range<usize>, edits: &[Edit<'_>]) {
    if segment[0] & UNIFORM == 0 {
        return write_replaced(to, segment, edits);
    }
    let u16_at = |offset: usize| usize::from(u16::from_le_bytes([segment[offset], segment[offset + 1]]));
    let (key_size, value_size) = (u16_at(4), u16_at(6));
    let pair_size = key_size + value_size;
    let start_of = |item: usize| UNIFORM_HEAD_SIZE + (item - usize::from(had_boundary)) * pair_size;
    let mut marked_bits = u16_at(2) >> items.start;
    let fingerprints = u128::from_le_bytes(*segment[FINGERPRINTS_START..].first_chunk().expect("a head"));
    let mut fingerprints = fingerprints >> (8 * items.start);
    // The key of the first item is omitted, and its value written last.
    let has_boundary = had_boundary || items.start > 0;
    let first_value = match items.start {
        0 => start_of(usize::from(segment[0] & !UNIFORM)),
        item => start_of(item) + key_size,
    };
    let mut first_value = if has_boundary { &segment[first_value..][..value_size] } else { &[] };
    // The end of the copied part of the segment, and the end of the new one.
    let (mut copied, mut end) = (start_of(items.start + usize::from(has_boundary)), UNIFORM_HEAD_SIZE);
    let (mut inserted, mut removed) = (0, 0);
    for edit in edits {
        let index = usize::from(edit.position.index);
        if index == items.start && has_boundary {
            first_value = edit.item.map_or(first_value, |item| item.value.bytes);
            continue;
        }
        let position = index - items.start + inserted - removed;
        let (below, fingerprints_below) = ((1_usize << position) - 1, (1_u128 << (8 * position)) - 1);
        let start = start_of(index);
        let is_replaced = edit.is_exact && edit.item.is_some();
        let kept = &segment[copied..if is_replaced { start + key_size } else { start }];
        to[end..end + kept.len()].copy_from_slice(kept);
        end += kept.len();
        copied = if edit.is_exact { start + pair_size } else { start };
        let Some(item) = edit.item else {
            marked_bits = marked_bits & below | marked_bits >> 1 & !below;
            fingerprints = fingerprints & fingerprints_below | fingerprints >> 8 & !fingerprints_below;
            removed += 1;
            continue;
        };
        if !edit.is_exact {
            marked_bits =
                marked_bits & below | (marked_bits & !below) << 1 | usize::from(item.value.is_marked) << position;
            fingerprints = fingerprints & fingerprints_below
                | (fingerprints & !fingerprints_below) << 8
                | u128::from(item.fingerprint) << (8 * position);
            short::overwrite(&mut to[end..end + key_size], item.key);
            end += key_size;
            inserted += 1;
        }
        short::overwrite(&mut to[end..end + value_size], item.value.bytes);
        end += value_size;
    }
    let kept = &segment[copied..start_of(items.end)];
    to[end..end + kept.len()].copy_from_slice(kept);
    end += kept.len();
    short::overwrite(&mut to[end..end + first_value.len()], first_value);
    let count = items.len() + inserted - removed;
    marked_bits &= (1 << count) - 1;
    fingerprints &= u128::MAX >> (8 * (ITEM_COUNT_MAX - count));
    to[0] = count as u8 | UNIFORM;
    to[1] = 0;
    to[2..4].copy_from_slice(&(marked_bits as u16).to_le_bytes());
    to[4..FINGERPRINTS_START].copy_from_slice(&segment[4..FINGERPRINTS_START]);
    to[FINGERPRINTS_START..][..ITEM_COUNT_MAX].copy_from_slice(&fingerprints.to_le_bytes());
}

/// Writes a varied segment in which values are replaced by others of their sizes.
fn write_replaced(to: &mut [u8], segment: &[u8], edits: &[Edit<'_>]) {
    to[..segment.len()].copy_from_slice(segment);
    for edit in edits {
        let item = edit.item.expect("nothing is removed");
        let (index, value) = (usize::from(edit.position.index), item.value.bytes);
        let end = FINGERPRINTS_START + usize::from(segment[0]) + 2 * index;
        let end = usize::from(u16::from_le_bytes([segment[end], segment[end + 1]]));
        short::overwrite(&mut to[end - value.len()..end], value);
    }
}
