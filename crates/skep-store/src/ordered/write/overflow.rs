//! Writing and dropping values that are too long for a node.

use super::super::node::overflow::{LINK_SIZE, NO_PART, PART_SIZE_MAX, Part, REFERENCE_SIZE, granules_of};
use super::super::space::{Claim, Owner};
use super::super::store::OrderedStore;
use super::super::trace::Trace;
use super::super::version::garbage::Garbage;

/// A value in frames of its own that no node refers to yet.
#[derive(Debug)]
pub(crate) struct OutsideValue {
    pub(crate) reference: [u8; REFERENCE_SIZE],
    parts: Vec<Part>,
}

impl<T: Trace> OrderedStore<T> {
    /// Writes a value to frames of its own, if there is room.
    pub(crate) fn write_outside(&self, value: &[u8], claim: Claim) -> Option<OutsideValue> {
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
    pub(crate) fn discard_outside(&self, value: &OutsideValue) {
        let mut space = self.space();
        for part in &value.parts {
            // Parts are copied and moved under the same lock, so nobody reads the frame.
            space.free(self.frames.replaced_value(self.frames.latest_number(part.lid), part.granules).reuse());
            space.free_value_lid(part.lid);
        }
    }

    /// Retires the parts of values whose references were dropped: frames and LIDs are garbage.
    pub(crate) fn retire_outside(&self, parts: &[Part], replaced: &mut Vec<Garbage>) {
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
