//! Values that are too long for a node (Honeycomb, section 3.1: over 469 bytes): frames of their own, linked.
//!
//! ```text
//! reference, in the node   0              4              8
//!                          size of value │ LID of the first part
//! frame of a part          LID of the next 4 │ up to 8188 bytes of the value
//! ```
//!
//! Each part has a LID, so its frame can be moved as a node's can, without a change to what refers to it. The frames are
//! written before the reference is published and never after. They outlive the node's merges, which copy the reference. A
//! merge that drops it retires the parts: from then on none of them is moved, and frames and LIDs are given back when an
//! epoch has passed.

use super::super::memory::number::{FRAME_SIZE_MAX, GRANULE_SIZE, Lid};
use super::super::trace::Trace;
use super::super::version::epoch::Guard;
use super::frame::Frames;
use super::segment::Value;

/// Longest value that lies in its node.
pub(crate) const VALUE_INSIDE_SIZE_MAX: usize = 469;
/// Bytes of a reference.
pub(crate) const REFERENCE_SIZE: usize = 8;
pub(crate) const LINK_SIZE: usize = 4;
/// Bytes of a value that a frame holds.
pub(crate) const PART_SIZE_MAX: usize = FRAME_SIZE_MAX - LINK_SIZE;

/// In the place of the LID of a part behind the last: that of the root, which is no part.
pub(crate) const NO_PART: Lid = Lid::ROOT;

/// A part of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) lid: Lid,
    pub(crate) granules: usize,
}

/// Bytes of a value, wherever it lies.
pub(crate) fn size_of(value: Value<'_>) -> usize {
    if value.is_outside { value_size(value.bytes) } else { value.bytes.len() }
}

/// Bytes of the value that a reference names.
pub(crate) fn value_size(reference: &[u8]) -> usize {
    u32::from_le_bytes(*reference.first_chunk().expect("a reference has eight bytes")) as usize
}

/// Shows the parts of a value in order.
pub(crate) fn visit<'g, T: Trace>(
    frames: &'g Frames<T>,
    reference: &[u8],
    guard: &'g Guard<'_>,
    mut visit: impl FnMut(Lid, &'g [u8]),
) {
    let mut left = value_size(reference);
    let mut next = Lid::from_bytes(*reference[4..].first_chunk().expect("a reference has eight bytes"));
    while next != NO_PART {
        let part = left.min(PART_SIZE_MAX);
        let bytes = frames.value(next, LINK_SIZE + part, guard);
        visit(next, &bytes[LINK_SIZE..]);
        left -= part;
        next = Lid::from_bytes(*bytes.first_chunk().expect("a frame begins with a link"));
    }
}

/// The bytes of a value, put together in `whole` if it lies outside its node.
#[inline(always)]
pub(crate) fn in_full<'v, T: Trace>(
    frames: &Frames<T>,
    value: Value<'v>,
    whole: &'v mut Vec<u8>,
    guard: &Guard<'_>,
) -> &'v [u8] {
    if value.is_outside {
        put_together(frames, value.bytes, whole, guard);
        return whole;
    }
    value.bytes
}

#[cold]
#[inline(never)]
fn put_together<T: Trace>(frames: &Frames<T>, reference: &[u8], whole: &mut Vec<u8>, guard: &Guard<'_>) {
    whole.clear();
    visit(frames, reference, guard, |_, part| whole.extend_from_slice(part));
}

/// The parts of a value.
pub(crate) fn parts<T: Trace>(frames: &Frames<T>, reference: &[u8], guard: &Guard<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    visit(frames, reference, guard, |lid, bytes| parts.push(Part { lid, granules: granules_of(bytes.len()) }));
    parts
}

/// Whether a value is so large that what is left of it is freed at once rather than with the next merge.
pub(crate) fn is_large(reference: &[u8]) -> bool {
    value_size(reference) > PART_SIZE_MAX
}

/// Granules of the frame of a part of this size.
pub(crate) fn granules_of(part_size: usize) -> usize {
    (LINK_SIZE + part_size).div_ceil(GRANULE_SIZE)
}

/// Bytes of the frames of a value.
pub(crate) fn frame_bytes(reference: &[u8]) -> u64 {
    let size = value_size(reference);
    let last = if size.is_multiple_of(PART_SIZE_MAX) { 0 } else { granules_of(size % PART_SIZE_MAX) * GRANULE_SIZE };
    (size / PART_SIZE_MAX * FRAME_SIZE_MAX + last) as u64
}
