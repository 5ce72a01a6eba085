//! Overflow values: over 469 bytes (Honeycomb, section 3.1), stored in frames of their own that are linked.
//!
//! ```text
//! reference, in the node   0              4              8
//!                          size of value │ LID of the first part
//! frame of a part          LID of the next 4 │ up to 8188 bytes of the value
//! ```
//!
//! 1. The frames are written before the reference is published, and never after.
//! 2. Merges of the node copy the reference.
//! 3. The merge that drops the reference retires the parts. They are not moved any more; frames and LIDs are free when
//!    an epoch has passed.
//!
//! Each part has a LID, so its frame can be moved like a node's without changing its references.

use std::ops::Range;

use super::super::memory::number::{FRAME_SIZE_MAX, Lid, UNIT_512_SIZE};
use super::super::version::epoch::Guard;
use super::frame::Frames;

/// Bytes of the largest value in a node.
pub(crate) const VALUE_IN_NODE_SIZE_MAX: usize = 469;
/// Bytes of a reference.
pub(crate) const REFERENCE_SIZE: usize = 8;
pub(crate) const LINK_SIZE: usize = 4;
/// Most bytes of a value in one frame.
pub(crate) const PART_SIZE_MAX: usize = FRAME_SIZE_MAX - LINK_SIZE;

/// The link of the last part: the LID of the root, which is never a part.
pub(crate) const NO_PART: Lid = Lid::ROOT;

/// A part of an overflow value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) lid: Lid,
    pub(crate) units: usize,
}

/// Returns the bytes of the value that a reference names.
pub(crate) fn value_size(reference: &[u8]) -> usize {
    u32::from_le_bytes(*reference.first_chunk().expect("a reference has eight bytes")) as usize
}

/// Returns the LID of the first part of the value that a reference names.
pub(crate) fn first_part(reference: &[u8; REFERENCE_SIZE]) -> Lid {
    Lid::from_bytes(*reference.last_chunk().expect("a reference ends with a LID"))
}

/// Calls `f` with each part of a value in order.
pub(crate) fn with_parts<'g>(
    frames: &'g Frames,
    reference: &[u8],
    guard: &'g Guard<'_>,
    mut f: impl FnMut(Lid, &'g [u8]),
) {
    let mut left = value_size(reference);
    let mut next = Lid::from_bytes(*reference[4..].first_chunk().expect("a reference has eight bytes"));
    while next != NO_PART {
        let part = left.min(PART_SIZE_MAX);
        let bytes = frames.value(next, LINK_SIZE + part, guard);
        f(next, &bytes[LINK_SIZE..]);
        left -= part;
        next = Lid::from_bytes(*bytes.first_chunk().expect("a frame begins with a link"));
    }
}

/// Sets `out` to a range of the bytes of a value.
pub(crate) fn copy_range(frames: &Frames, reference: &[u8], range: Range<usize>, out: &mut Vec<u8>, guard: &Guard<'_>) {
    out.clear();
    let mut offset = 0;
    with_parts(frames, reference, guard, |_, part| {
        let within = |position: usize| position.saturating_sub(offset).min(part.len());
        out.extend_from_slice(&part[within(range.start)..within(range.end)]);
        offset += part.len();
    });
}

/// Returns the parts of a value.
pub(crate) fn parts(frames: &Frames, reference: &[u8], guard: &Guard<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    with_parts(frames, reference, guard, |lid, bytes| parts.push(Part { lid, units: units_of(bytes.len()) }));
    parts
}

/// Returns true if a value has several parts, which are freed at once instead of at the next merge.
pub(crate) fn is_large(reference: &[u8]) -> bool {
    value_size(reference) > PART_SIZE_MAX
}

/// Returns the units of the frame of a part of this size.
pub(crate) fn units_of(part_size: usize) -> usize {
    (LINK_SIZE + part_size).div_ceil(UNIT_512_SIZE)
}

/// Returns the bytes of the frames of a value.
pub(crate) fn frame_bytes(reference: &[u8]) -> u64 {
    let size = value_size(reference);
    let last = if size.is_multiple_of(PART_SIZE_MAX) { 0 } else { units_of(size % PART_SIZE_MAX) * UNIT_512_SIZE };
    (size / PART_SIZE_MAX * FRAME_SIZE_MAX + last) as u64
}
