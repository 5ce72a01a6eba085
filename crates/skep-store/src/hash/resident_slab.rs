//! A slab whose lines are in the cache already, so that reading and editing its pair needs no future.

use super::bucket::SlabSlot;
use super::object::{self, Content, LargeRoot, Object};
use super::table::{Access, HashTable, Home, ResidentValue};
use crate::apply::Edit;
use crate::memory::{Effect, Memory, Pointer, ResidentLines};
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

    /// Returns the value, to be overwritten, if the slab has this key without an expiry and a value of this size.
    #[inline(always)]
    pub(crate) fn value_of_size<'l>(
        &self,
        lines: &'l mut impl ResidentLines,
        key: &[u8],
        size: usize,
    ) -> Option<&'l mut [u8]> {
        let span = self.slab.pointer.span(self.slab.class.size());
        let range = object::find_value(self.slab.class, lines.span(span), key).filter(|range| range.len() == size)?;
        lines.note(span, Effect::Changed);
        Some(&mut lines.span(span)[range])
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

/// The result of an access to a resident slab.
pub(crate) enum SlabAccess<'e> {
    /// The operation was executed, and has its reply.
    Done,
    /// The edit was made. The operation has no reply yet.
    Edited(Edit<'e>),
    /// The slab has the root of the key's value, and its expiry.
    Large(LargeRoot, Option<Expiry>),
    /// The slab has another key, or the edit needs more than this slab.
    Elsewhere,
}

impl<M: Memory> HashTable<M> {
    /// Removes the pair in a resident slab, if the slab has this key without an expiry. Returns false, and does nothing, if not.
    #[inline(always)]
    pub(crate) fn remove_plain_slab(
        &self,
        lines: &mut impl ResidentLines,
        home: &Home,
        slab: ResidentSlab,
        key: &[u8],
    ) -> bool {
        let Some(value_size) = slab.value(lines, key).map(<[u8]>::len) else { return false };
        self.remove_resident_slab(lines, home, &ResidentPair { slab, key, value_size, expiry: None });
        true
    }

    /// Accesses a resident slab. If it holds the pair, `access` gets the value, or `None` if the key has expired. An edit
    /// is made if it needs only the slab and its bucket. The root of a large value is returned.
    #[inline(always)]
    pub(crate) fn access_resident_slab<'e>(
        &self,
        lines: &mut impl ResidentLines,
        home: &Home,
        resident: &ResidentSlab,
        key: &[u8],
        access: impl FnOnce(Option<ResidentValue<'_>>) -> Access<'e>,
    ) -> SlabAccess<'e> {
        let slab = resident.slab;
        let span = slab.pointer.span(slab.class.size());
        let bytes = lines.span(span);
        let (range, expiry) = match object::find_value(slab.class, bytes, key) {
            Some(range) => (range, None),
            None => match object::find(slab.class, bytes, key) {
                Some(Object { content: Content::Value(range), expiry }) => (range, expiry),
                Some(Object { content: Content::Large(root), expiry }) => return SlabAccess::Large(root, expiry),
                None => return SlabAccess::Elsewhere,
            },
        };
        let value_size = range.len();
        let value =
            if self.has_expired(expiry) { None } else { Some(ResidentValue { bytes: &mut bytes[range], expiry }) };
        match access(value) {
            Access::Done(effect) => {
                lines.note(span, effect);
                SlabAccess::Done
            }
            Access::Edit(edit) => {
                let pair = ResidentPair { slab: *resident, key, value_size, expiry };
                match self.edit_resident_slab(lines, home, &pair, &edit) {
                    true => SlabAccess::Edited(edit),
                    false => SlabAccess::Elsewhere,
                }
            }
        }
    }
}
