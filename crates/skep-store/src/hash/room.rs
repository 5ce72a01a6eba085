//! Room for several pairs: the slabs that storing them needs at most, and their reservation.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::edit::NotStored;
use super::slab::{NoSlab, SlabClass, SlabNeeds};
use super::table::{Access, HashTable, Home, Sought};
use super::{bucket::slots_for, is_large, large_layout, object};
use crate::apply::NewValue;
use crate::memory::{Effect, Memory};
use skep_core::operation::{Expiry, OperationError};

/// The slabs that storing some pairs needs at most.
#[derive(Clone, Debug, Default)]
pub struct Room {
    needs: SlabNeeds,
}

impl Room {
    /// Returns the most slabs that a pair with a value of this size takes: data, their index, a root and a bucket.
    pub fn slab_count_max(value_size: usize) -> u64 {
        const SLAB_SIZE_MIN: usize = 256;
        4 + (value_size / SLAB_SIZE_MIN) as u64
    }
}

impl<M: Memory> HashTable<M> {
    /// Adds the slabs that storing a pair needs at most. A pair that replaces one in place needs none, however full the
    /// memory is.
    pub(crate) async fn count_room(&self, home: Home, key: &[u8], new: &NewValue<'_>, room: &mut Room) {
        let mut found = None;
        let sought = self
            .find(key, home, 0, |value| {
                found = value.map(|value| (value.bytes.len(), value.expiry));
                Access::Done(Effect::Unchanged)
            })
            .await;
        let is_large_now = matches!(sought, Sought::Large(..));
        let old_expiry = match &sought {
            Sought::Large(location, _) => location.expiry(),
            _ => found.and_then(|(_, expiry)| expiry),
        };
        let expiry = new.expiry().apply(old_expiry);
        let needs = &mut room.needs;
        let bucket = SlabClass::BUCKET.index();
        // The old pair, if it is in its bucket, takes as many slots as its size tells.
        let inline_slots = found
            .filter(|(size, expiry)| self.is_inline(key.len(), *size, *expiry))
            .map(|(size, _)| slots_for(key.len() + size));
        let exists = is_large_now || found.is_some();
        if is_large(key.len(), new.size(), expiry.is_some()) {
            let root = large_layout::root_pointer_count(new.size());
            std::iter::zip(&mut *needs, large_layout::needs(new.size())).for_each(|(need, more)| *need += more);
            needs[object::class_for_root(key.len(), root, expiry.is_some()).index()] += 1;
            needs[bucket] += u32::from(!exists);
        } else if self.is_inline(key.len(), new.size(), expiry) {
            let slots = slots_for(key.len() + new.size());
            // A slab has one slot.
            let old_slots = inline_slots.unwrap_or(usize::from(exists));
            needs[bucket] += u32::from(slots > old_slots);
        } else {
            let class_of = |size: usize, expires: bool| object::class_for_pair(key.len(), size, expires);
            let class = class_of(new.size(), expiry.is_some()).expect("the value is not large");
            let old_class = match found {
                Some((size, expiry)) if inline_slots.is_none() => class_of(size, expiry.is_some()),
                _ => None,
            };
            needs[class.index()] += u32::from(old_class != Some(class));
            needs[bucket] += u32::from(!exists);
        }
    }

    /// Holds back memory for the debts of other tables: see [`SlabAllocator::hold_back`](super::slab::SlabAllocator::hold_back).
    pub(crate) fn hold_back(&self, held_max: u64, owed: u64, excess: &Arc<AtomicU64>) {
        self.slabs().hold_back(held_max, owed, excess);
    }

    /// Returns the bytes of spare memory that were taken.
    pub(crate) fn debt(&self) -> u64 {
        self.slabs().debt()
    }

    /// Returns the most bytes of slab memory that a pair takes: a bucket, and its slabs unless it is inline.
    pub(crate) fn slab_size_max(&self, key_size: usize, value_size: usize, expiry: Option<Expiry>) -> u64 {
        let expires = expiry.is_some();
        let slabs = if self.is_inline(key_size, value_size, expiry) {
            0
        } else if is_large(key_size, value_size, expires) {
            let root = object::class_for_root(key_size, large_layout::root_pointer_count(value_size), expires);
            root.size() + large_layout::footprint(value_size)
        } else {
            object::class_for_pair(key_size, value_size, expires).expect("the value is not large").size()
        };
        (SlabClass::BUCKET.size() + slabs) as u64
    }

    /// Returns true if this number of slabs can be allocated for sure.
    pub(crate) fn has_plenty(&self, slab_count: u64) -> bool {
        self.slabs().has_plenty(slab_count)
    }

    /// Reserves room for pairs. It is there until [`HashTable::end_reservation`].
    pub(crate) fn reserve(&self, room: &Room) -> Result<(), NotStored> {
        self.slabs().reserve(&room.needs).map_err(|none| match none {
            NoSlab::Later => NotStored::Later(OperationError::SlabFull),
            NoSlab::Full => NotStored::Failed(OperationError::SlabFull),
        })
    }

    /// Frees the room that was reserved and not used.
    pub(crate) fn end_reservation(&self) {
        self.slabs().end_reservation();
    }
}
