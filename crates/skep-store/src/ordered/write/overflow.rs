//! Writes and drops overflow values.

use super::super::node::overflow::{LINK_SIZE, NO_PART, PART_SIZE_MAX, Part, REFERENCE_SIZE, units_of};
use super::super::space::{Claim, Owner};
use super::super::store::OrderedStore;
use super::super::version::garbage::Garbage;

/// An overflow value without a reference in a node.
#[derive(Debug)]
pub(crate) struct OverflowValue {
    pub(crate) reference: [u8; REFERENCE_SIZE],
    parts: Vec<Part>,
}

impl OrderedStore {
    /// Writes a value to frames of its own. Returns `None` if there is no memory.
    pub(crate) fn write_overflow(&self, value: &[u8], claim: Claim) -> Option<OverflowValue> {
        let units: Vec<usize> = value.chunks(PART_SIZE_MAX).map(|part| units_of(part.len())).collect();
        let free = self.allocate_value(&units, claim)?;
        let mut next = NO_PART;
        let mut parts = Vec::with_capacity(free.len());
        for (bytes, (lid, frame)) in value.chunks(PART_SIZE_MAX).zip(free).rev() {
            parts.push(Part { lid, units: frame.units() });
            let mut builder = self.frames.build(frame);
            builder.bytes()[..LINK_SIZE].copy_from_slice(&next.to_bytes());
            builder.bytes()[LINK_SIZE..][..bytes.len()].copy_from_slice(bytes);
            self.frames.publish(lid, &builder.seal_value());
            next = lid;
        }
        // It is complete: from now on its parts may be moved.
        let mut space = self.space();
        parts.iter().for_each(|part| space.give(self.frames.latest_number(part.lid), Owner::Value(part.lid)));
        let mut reference = [0; REFERENCE_SIZE];
        reference[..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
        reference[4..].copy_from_slice(&next.to_bytes());
        Some(OverflowValue { reference, parts })
    }

    /// Frees the parts of a value whose reference was never in a node.
    pub(crate) fn discard_overflow(&self, value: &OverflowValue) {
        let mut space = self.space();
        for part in &value.parts {
            // Parts are copied and moved under the same lock, so the frame has no reader.
            space.free(self.frames.retired_value(self.frames.latest_number(part.lid), part.units).reuse());
            space.free_value_lid(part.lid);
        }
    }

    /// Retires the parts of values whose references were dropped: frames and LIDs become garbage.
    pub(crate) fn retire_overflow(&self, parts: &[Part], retired: &mut Vec<Garbage>) {
        if parts.is_empty() {
            return;
        }
        let mut space = self.space();
        for part in parts {
            // Under this lock the LID's frame cannot change any more.
            let number = self.frames.latest_number(part.lid);
            space.retire(number);
            space.forget_value_lid();
            retired.push(Garbage::Frame(self.frames.retired_value(number, part.units)));
            retired.push(Garbage::Lid(part.lid));
        }
    }
}
