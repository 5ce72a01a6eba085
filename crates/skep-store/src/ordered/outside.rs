//! Values that are too long for a node (Honeycomb, section 3.1: over 469 bytes): frames of their own, linked.
//!
//! ```text
//! reference, in the node   0              4              8
//!                          size of value │ first frame
//! frame                    next frame 4 │ up to 8188 bytes of the value
//! ```
//!
//! The frames are written before the reference is published and never after. They outlive the node's merges, which copy
//! the reference, and are given back when a merge drops it and an epoch has passed.

use std::num::NonZeroU32;

use super::epoch::Guard;
use super::frame::{FRAME_SIZE_MAX, Frames, GRANULE_SIZE, Replaced, SealedFrame};
use super::header::FrameNumber;
use super::segment::Value;
use super::space::Space;
use super::trace::Trace;

/// Longest value that lies in its node.
pub(super) const VALUE_INSIDE_SIZE_MAX: usize = 469;
/// Bytes of a reference.
pub(super) const REFERENCE_SIZE: usize = 8;
const LINK_SIZE: usize = 4;
/// Bytes of a value that a frame holds.
const PART_SIZE_MAX: usize = FRAME_SIZE_MAX - LINK_SIZE;

/// A value in frames of its own that no node refers to yet.
#[derive(Debug)]
pub(super) struct OutsideValue {
    pub(super) reference: [u8; REFERENCE_SIZE],
    frames: Vec<SealedFrame>,
}

impl OutsideValue {
    /// Writes a value, if there is room.
    pub(super) fn new<T: Trace>(
        frames: &Frames<T>,
        mut allocate: impl FnMut(&[usize]) -> Option<Vec<super::frame::FreeFrame>>,
        value: &[u8],
    ) -> Option<Self> {
        let granules: Vec<usize> = value.chunks(PART_SIZE_MAX).map(|part| granules_of(part.len())).collect();
        let mut next = 0_u32;
        let mut sealed = Vec::with_capacity(granules.len());
        let free = allocate(&granules)?;
        for (part, frame) in value.chunks(PART_SIZE_MAX).zip(free).rev() {
            let number = frame.number();
            let mut builder = frames.build(frame);
            builder.bytes()[..LINK_SIZE].copy_from_slice(&next.to_le_bytes());
            builder.bytes()[LINK_SIZE..][..part.len()].copy_from_slice(part);
            sealed.push(builder.seal_value());
            next = number.bits();
        }
        let mut reference = [0; REFERENCE_SIZE];
        reference[..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
        reference[4..].copy_from_slice(&next.to_le_bytes());
        Some(OutsideValue { reference, frames: sealed })
    }

    /// Gives the frames back unused.
    pub(super) fn discard(self, space: &mut Space) {
        for frame in self.frames {
            space.free(frame.discard());
        }
    }
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
    mut visit: impl FnMut(FrameNumber, &'g [u8]),
) {
    let mut left = value_size(reference);
    let mut next = u32::from_le_bytes(*reference[4..].first_chunk().expect("a reference has eight bytes"));
    while let Some(number) = NonZeroU32::new(next).map(FrameNumber::from_bits) {
        let part = left.min(PART_SIZE_MAX);
        let bytes = frames.value(number, LINK_SIZE + part, guard);
        visit(number, &bytes[LINK_SIZE..]);
        left -= part;
        next = u32::from_le_bytes(*bytes.first_chunk().expect("a frame begins with a link"));
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

/// The frames of a value whose reference is being dropped.
pub(super) fn replaced<T: Trace>(frames: &Frames<T>, reference: &[u8], guard: &Guard<'_>) -> Vec<Replaced> {
    let mut parts = Vec::new();
    visit(frames, reference, guard, |number, part| parts.push(frames.replaced_value(number, granules_of(part.len()))));
    parts
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
