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

use super::epoch::Guard;
use super::frame::{FRAME_SIZE_MAX, Frames, GRANULE_SIZE};
use super::garbage::Garbage;
use super::header::Lid;
use super::segment::Value;
use super::space::{Claim, Owner};
use super::trace::Trace;
use super::tree::OrderedStore;

/// Longest value that lies in its node.
pub(super) const VALUE_INSIDE_SIZE_MAX: usize = 469;
/// Bytes of a reference.
pub(super) const REFERENCE_SIZE: usize = 8;
const LINK_SIZE: usize = 4;
/// Bytes of a value that a frame holds.
const PART_SIZE_MAX: usize = FRAME_SIZE_MAX - LINK_SIZE;

/// In the place of the LID of a part behind the last: that of the root, which is no part.
const NO_PART: Lid = Lid::ROOT;

/// A part of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) lid: Lid,
    pub(super) granules: usize,
}

/// A value in frames of its own that no node refers to yet.
#[derive(Debug)]
pub(super) struct OutsideValue {
    pub(super) reference: [u8; REFERENCE_SIZE],
    parts: Vec<Part>,
}

impl<T: Trace> OrderedStore<T> {
    /// Writes a value to frames of its own, if there is room.
    pub(super) fn write_outside(&self, value: &[u8], claim: Claim) -> Option<OutsideValue> {
        let granules: Vec<usize> = value.chunks(PART_SIZE_MAX).map(|part| granules_of(part.len())).collect();
        let free = self.allocate_value(&granules, claim)?;
        let mut next = NO_PART;
        let mut parts = Vec::with_capacity(free.len());
        for (bytes, (lid, frame)) in value.chunks(PART_SIZE_MAX).zip(free).rev() {
            parts.push(Part { lid, granules: frame.granules() });
            let mut builder = self.frames.build(frame);
            builder.bytes()[..LINK_SIZE].copy_from_slice(&next.to_bytes());
            builder.bytes()[LINK_SIZE..][..bytes.len()].copy_from_slice(bytes);
            self.frames.publish(lid, &builder.seal_value());
            next = lid;
        }
        // Complete: from here on the parts may be moved.
        let mut space = self.space();
        parts.iter().for_each(|part| space.give(self.frames.latest_number(part.lid), Owner::Value(part.lid)));
        let mut reference = [0; REFERENCE_SIZE];
        reference[..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
        reference[4..].copy_from_slice(&next.to_bytes());
        Some(OutsideValue { reference, parts })
    }

    /// Gives the parts of a value back that no node has ever referred to.
    pub(super) fn discard_outside(&self, value: &OutsideValue) {
        let mut space = self.space();
        for part in &value.parts {
            // Parts are copied and moved under the same lock, so nobody reads the frame.
            space.free(self.frames.replaced_value(self.frames.latest_number(part.lid), part.granules).reuse());
            space.free_value_lid(part.lid);
        }
    }

    /// Retires the parts of values whose references were dropped: frames and LIDs are garbage.
    pub(super) fn retire_outside(&self, parts: &[Part], replaced: &mut Vec<Garbage>) {
        if parts.is_empty() {
            return;
        }
        let mut space = self.space();
        for part in parts {
            // Which frame the LID names is settled here.
            let number = self.frames.latest_number(part.lid);
            space.retire(number);
            space.forget_value_lid();
            replaced.push(Garbage::Frame(self.frames.replaced_value(number, part.granules)));
            replaced.push(Garbage::Lid(part.lid));
        }
    }
}

/// Bytes of a value, wherever it lies.
pub(super) fn size_of(value: Value<'_>) -> usize {
    if value.is_outside { value_size(value.bytes) } else { value.bytes.len() }
}

/// Bytes of the value that a reference names.
pub(super) fn value_size(reference: &[u8]) -> usize {
    u32::from_le_bytes(*reference.first_chunk().expect("a reference has eight bytes")) as usize
}

/// Shows the parts of a value in order.
pub(super) fn visit<'g, T: Trace>(
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
pub(super) fn in_full<'v, T: Trace>(
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
pub(super) fn parts<T: Trace>(frames: &Frames<T>, reference: &[u8], guard: &Guard<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    visit(frames, reference, guard, |lid, bytes| parts.push(Part { lid, granules: granules_of(bytes.len()) }));
    parts
}

/// Whether a value is so large that what is left of it is freed at once rather than with the next merge.
pub(super) fn is_large(reference: &[u8]) -> bool {
    value_size(reference) > PART_SIZE_MAX
}

fn granules_of(part_size: usize) -> usize {
    (LINK_SIZE + part_size).div_ceil(GRANULE_SIZE)
}

/// Bytes of the frames of a value.
pub(super) fn frame_bytes(reference: &[u8]) -> u64 {
    let size = value_size(reference);
    let last = if size.is_multiple_of(PART_SIZE_MAX) { 0 } else { granules_of(size % PART_SIZE_MAX) * GRANULE_SIZE };
    (size / PART_SIZE_MAX * FRAME_SIZE_MAX + last) as u64
}
