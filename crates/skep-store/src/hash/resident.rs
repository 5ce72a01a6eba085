//! Edits of pairs whose buckets and slabs are resident, without a search and without an await.
//!
//! They have the same effect and the same accesses as the edits of `edit.rs`. Two kinds are left to `edit.rs`: a pair
//! that moves to another bucket, and an allocation for which slabs have to be merged.

use super::bucket::{Bucket, InlinePair, SLOT_COUNT, SlabSlot};
use super::bucket_index::BucketIndex;
use super::edit::NewEntry;
use super::object;
use super::resident_slab::{ResidentPair, ResidentSlab};
use super::slab::SlabClass;
use super::table::{HashTable, Home};
use crate::apply::{Edit, NewValue};
use crate::memory::{Effect, LINE_SIZE, Memory, Pointer, ResidentLines};
use skep_core::operation::Expiry;

impl<M: Memory> HashTable<M> {
    /// Inserts a pair into a resident chain. Returns false, and does nothing, if the pair is not inline or no bucket can
    /// be allocated for it.
    #[inline(always)]
    pub(crate) fn insert_inline_resident(
        &self,
        lines: &mut impl ResidentLines,
        home: &Home,
        key: &[u8],
        new: &NewValue<'_>,
    ) -> bool {
        if !self.is_inline(key.len(), new.size(), new.expiry().apply(None))
            || !self.push_resident(lines, home.bucket, &NewEntry::Inline(key, new))
        {
            return false;
        }
        self.count_insertion(home.bucket);
        self.count_pair_size((key.len() + new.size()) as i64);
        self.end_wait(home.hash);
        true
    }

    /// Removes the inline pair that was found in the bucket at `at`.
    #[inline(always)]
    pub(crate) fn remove_inline_resident(
        &self,
        lines: &mut impl ResidentLines,
        home: &Home,
        at: Pointer,
        pair: InlinePair,
    ) {
        self.remove_resident(lines, home, at, pair.slot(), pair.slot_count());
        self.count_removal();
        self.count_pair_size(-((pair.key_size() + pair.value_size()) as i64));
        self.end_wait(home.hash);
    }

    /// Edits the pair in a resident slab, if the edit removes the pair or keeps it in this slab. Returns true if it
    /// did.
    #[inline(never)]
    pub(super) fn edit_resident_slab(
        &self,
        lines: &mut impl ResidentLines,
        home: &Home,
        pair: &ResidentPair<'_>,
        edit: &Edit<'_>,
    ) -> bool {
        let ResidentPair { slab: ResidentSlab { slab, .. }, key, value_size, expiry } = *pair;
        match edit {
            Edit::Remove(_) => {
                self.remove_resident_slab(lines, home, pair);
                return true;
            }
            Edit::Store(new) => {
                let after = new.expiry().apply(expiry.filter(|_| !self.has_expired(expiry)));
                let class = object::class_for_pair(key.len(), new.size(), after.is_some());
                let stays = !self.has_expired(after) && class == Some(slab.class);
                if self.is_inline(key.len(), new.size(), after) || !stays {
                    return false;
                }
                let span = slab.pointer.span(slab.class.size());
                write_pair(lines.span(span), slab, key, new, after);
                self.count_expiring(expiry, after);
                lines.note(span, Effect::Changed);
                self.count_pair_size(new.size() as i64 - value_size as i64);
            }
        }
        self.end_wait(home.hash);
        true
    }

    /// Removes the pair in a resident slab.
    #[inline(always)]
    pub(super) fn remove_resident_slab(&self, lines: &mut impl ResidentLines, home: &Home, pair: &ResidentPair<'_>) {
        let ResidentSlab { at, slot, slab } = pair.slab;
        self.remove_resident(lines, home, at, slot.into(), 1);
        self.release(slab.class, slab.pointer);
        self.count_removal();
        self.count_expiring(pair.expiry, None);
        self.count_pair_size(-((pair.key.len() + pair.value_size) as i64));
        self.end_wait(home.hash);
    }

    /// Allocates a slab for a pair that is to be inserted, if it takes one slab. [`HashTable::insert_resident`] inserts
    /// it.
    #[inline(always)]
    pub(crate) fn allocate_for(&self, home: &Home, key: &[u8], new: &NewValue<'_>) -> Option<SlabSlot> {
        let expiry = new.expiry().apply(None);
        if self.is_inline(key.len(), new.size(), expiry) || self.has_expired(expiry) {
            return None;
        }
        let class = object::class_for_pair(key.len(), new.size(), expiry.is_some())?;
        let pointer = self.take_free_slab(class)?;
        Some(SlabSlot { class, pointer, secondary: home.secondary() })
    }

    /// Inserts a pair into a resident chain, in a slab that was allocated for it. Returns false, and takes the slab back, if no
    /// bucket can be allocated for the chain.
    #[inline(always)]
    pub(crate) fn insert_resident(
        &self,
        lines: &mut impl ResidentLines,
        home: &Home,
        slab: SlabSlot,
        key: &[u8],
        new: &NewValue<'_>,
    ) -> bool {
        let expiry = new.expiry().apply(None);
        write_pair(lines.new_span(slab.pointer.span(slab.class.size())), slab, key, new, expiry);
        if !self.push_resident(lines, home.bucket, &NewEntry::Slab(slab)) {
            self.take_back_unused(slab.class, slab.pointer);
            return false;
        }
        self.count_expiring(None, expiry);
        self.count_insertion(home.bucket);
        self.count_pair_size((key.len() + new.size()) as i64);
        self.end_wait(home.hash);
        true
    }

    /// Adds an entry to the first bucket of a resident chain that has room, or to a new one. Returns false if none can
    /// be allocated.
    #[inline(always)]
    pub(super) fn push_resident(
        &self,
        lines: &mut impl ResidentLines,
        home: BucketIndex,
        entry: &NewEntry<'_>,
    ) -> bool {
        let mut at = home.pointer();
        loop {
            let bucket = Bucket::from_line_mut(lines.line(at));
            if bucket.free_slot_count() >= entry.slot_count() {
                entry.push(bucket);
                break;
            }
            if let Some(next) = bucket.chain() {
                at = next;
                continue;
            }
            let Some(next) = self.take_free_slab(SlabClass::BUCKET) else { return false };
            // Complete before the chain points to it.
            let mut last = Bucket::EMPTY;
            entry.push(&mut last);
            lines.new_span(next.span(LINE_SIZE)).copy_from_slice(&last.as_line().0);
            Bucket::from_line_mut(lines.line(at)).set_chain(Some(next));
            self.count_overflow(1);
            break;
        }
        lines.note(at.span(LINE_SIZE), Effect::Changed);
        true
    }

    /// Removes the entry at these slots of a resident bucket. Frees the next bucket if its entries fit into this one. Frees this
    /// one if it is an overflow bucket, empty and the last of its chain.
    #[inline(always)]
    fn remove_resident(
        &self,
        lines: &mut impl ResidentLines,
        home: &Home,
        at: Pointer,
        slot: usize,
        slot_count: usize,
    ) {
        let bucket = Bucket::from_line_mut(lines.line(at));
        let free_slot_count = bucket.free_slot_count() + slot_count;
        if free_slot_count == SLOT_COUNT && bucket.chain().is_none() && at != home.bucket.pointer() {
            self.unlink_resident(lines, home, at);
            return;
        }
        bucket.remove_slots(slot, slot_count);
        // As in `edit.rs`: reading the next bucket costs an access.
        if let Some(next_at) = bucket.chain()
            && free_slot_count >= SLOT_COUNT / 2
        {
            let next = *Bucket::from_line_mut(lines.line(next_at));
            if next.used_slot_count() <= free_slot_count {
                Bucket::from_line_mut(lines.line(at)).absorb(&next);
                self.release(SlabClass::BUCKET, next_at);
                self.count_overflow(-1);
            }
        }
        lines.note(at.span(LINE_SIZE), Effect::Changed);
    }

    /// Removes the last bucket of a resident chain, which is not the home bucket.
    #[inline(never)]
    fn unlink_resident(&self, lines: &mut impl ResidentLines, home: &Home, last: Pointer) {
        let mut at = home.bucket.pointer();
        while let Some(next) = Bucket::from_line_mut(lines.line(at)).chain().filter(|next| *next != last) {
            at = next;
        }
        Bucket::from_line_mut(lines.line(at)).set_chain(None);
        lines.note(at.span(LINE_SIZE), Effect::Changed);
        self.release(SlabClass::BUCKET, last);
        self.count_overflow(-1);
    }
}

#[inline(always)]
fn write_pair(bytes: &mut [u8], slab: SlabSlot, key: &[u8], new: &NewValue<'_>, expiry: Option<Expiry>) {
    let range = object::write_pair(slab.class, bytes, key, new.bytes(), expiry);
    new.finish(0, &mut bytes[range]);
}
