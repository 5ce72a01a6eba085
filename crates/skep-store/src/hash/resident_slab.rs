//! A slab whose lines are in the cache already, so that reading and editing its pair needs no future.

use super::bucket::SlabSlot;
use super::object;
use crate::memory::{Effect, Pointer, ResidentLines};
use skep_core::operation::Expiry;

/// A slab whose lines are resident, and the slot that points to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResidentSlab {
    /// The address of the bucket with the slot.
    pub(crate) at: Pointer,
    pub(crate) slot: u8,
    pub(crate) slab: SlabSlot,
}

impl ResidentSlab {
    /// Reads the value, if the slab has this key without an expiry.
    #[inline(always)]
    pub(crate) fn value<'l>(&self, lines: &'l mut impl ResidentLines, key: &[u8]) -> Option<&'l [u8]> {
        let span = self.slab.pointer.span(self.slab.class.size());
        let range = object::find_value(self.slab.class, lines.span(span), key)?;
        lines.note(span, Effect::Unchanged);
        Some(&lines.span(span)[range])
    }
}

/// A pair in a slab whose lines are resident. The key may have expired.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResidentPair<'k> {
    pub(super) slab: ResidentSlab,
    pub(super) key: &'k [u8],
    pub(super) value_size: usize,
    pub(super) expiry: Option<Expiry>,
}
