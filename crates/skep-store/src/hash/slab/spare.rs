//! Spare memory: address space after the memory of an allocator, for recovery only.
//!
//! ```text
//! memory ├──────────── size ────────────┤├ spare ┤
//!                                         ▲ next: slabs are taken from here on, and are never given out again
//! ```
//!
//! The same pairs may need slightly more memory in another layout, because chains of buckets depend on the order in which
//! pairs were inserted. So while the spare memory is *open*, an allocation that finds no slab takes one of it. The pages
//! are readable and writable from then on, and not before.
//!
//! Afterwards the bytes that were taken are a **debt**: as much of the memory is not given out. So all slabs together never
//! take more than the memory, once pairs were deleted, and a later recovery needs no more spare memory than this one. A
//! slab that is released reduces the debt. When all are released, the spare memory is as new.
//!
//! **Other allocators** may have to keep memory free for debts: all of them together have a bound, and what one of them owes
//! beyond it, the others hold back ([`SlabAllocator::hold_back`]). As debts are paid, they hold back less.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::entry::{SlabClass, SlabEntry};
use super::{NoSlab, SlabAllocator, SlabNeeds};
use crate::memory::{Pointer, UNIT_SIZE};

/// The state of the spare memory.
#[derive(Debug)]
pub(super) struct Spare {
    /// Its units.
    range: Range<u32>,
    /// The first unit that was not taken.
    next: u32,
    /// Bytes of the slabs that were taken and not released.
    debt: u64,
    is_open: bool,
    /// Bytes of the debt that others hold back memory for, as far as all debts exceed their bound.
    owed: u64,
    /// Bytes that are held back for the debts of others at most.
    held_max: u64,
    /// Bytes by which the debts of all allocators exceed their bound.
    excess: Arc<AtomicU64>,
}

impl Spare {
    /// Returns spare memory from a pointer on, closed.
    pub(super) fn new(start: Pointer) -> Spare {
        let start = start.unit().next_multiple_of(SlabClass::LARGEST.unit_count());
        Spare {
            range: start..start,
            next: start,
            debt: 0,
            is_open: false,
            owed: 0,
            held_max: 0,
            excess: Arc::default(),
        }
    }

    /// Returns the bytes of the memory that are not given out.
    #[inline]
    pub(super) fn debt(&self) -> u64 {
        if self.is_open { 0 } else { self.debt + self.held() }
    }

    /// Returns the bytes that are held back for the debts of others.
    #[inline]
    fn held(&self) -> u64 {
        if self.held_max == 0 { 0 } else { self.held_max.min(self.excess.load(Ordering::Relaxed)) }
    }

    /// Notes that some of the debt is paid.
    fn pay(&mut self, size: u64) {
        let paid = self.owed.min(size);
        self.owed -= paid;
        let less = |excess: u64| Some(excess.saturating_sub(paid));
        _ = self.excess.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Returns true if allocations may take spare memory.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns true if a slab is part of it.
    #[inline]
    pub(super) fn contains(&self, pointer: Pointer) -> bool {
        pointer.unit() >= self.range.start
    }

    /// Frees a slab.
    #[cold]
    pub(super) fn release(&mut self, class: SlabClass) {
        self.debt -= class.size() as u64;
        self.pay(class.size() as u64);
        if self.debt == 0 {
            self.forget();
        }
    }

    /// Frees all slabs.
    pub(super) fn forget(&mut self) {
        (self.next, self.debt) = (self.range.start, 0);
        self.pay(self.owed);
    }

    fn has_room(&self, size: u64) -> bool {
        size <= u64::from(self.range.end.saturating_sub(self.next)) * UNIT_SIZE as u64
    }

    fn take(&mut self, class: SlabClass) -> Option<Pointer> {
        let unit = self.next.next_multiple_of(class.unit_count());
        let end = unit.checked_add(class.unit_count()).filter(|end| *end <= self.range.end)?;
        (self.next, self.debt) = (end, self.debt + class.size() as u64);
        Some(Pointer::new(unit))
    }
}

impl SlabAllocator {
    /// Opens the spare memory, which ends there. While it is open, nothing is handed to the merge daemon.
    pub fn open_spare(&mut self, end: Pointer) {
        (self.spare.range.end, self.spare.is_open) = (end.unit(), true);
    }

    /// Closes the spare memory: no more of it is taken.
    pub fn close_spare(&mut self) {
        self.spare.is_open = false;
    }

    /// Holds back this number of bytes at most, while the debts of all allocators exceed their bound. `owed` is the part of the
    /// debt of this one that is counted there.
    pub fn hold_back(&mut self, held_max: u64, owed: u64, excess: &Arc<AtomicU64>) {
        self.spare.held_max = held_max;
        self.spare.owed = owed;
        self.spare.excess = Arc::clone(excess);
    }

    /// Returns the bytes of slabs in the spare memory.
    pub fn debt(&self) -> u64 {
        self.spare.debt
    }

    /// Allocates a slab of the memory or of the spare memory.
    pub(super) fn take_with_spare(&mut self, class: SlabClass) -> Result<Pointer, NoSlab> {
        let pointer = self.spare.take(class).ok_or(NoSlab::Full)?;
        self.count_allocation(class);
        Ok(pointer)
    }

    /// Allocates all slabs that are needed, of the memory as far as it has them and then of the spare memory; or none.
    pub(super) fn take_all_with_spare(
        &mut self,
        needs: &SlabNeeds,
        give: &mut dyn FnMut(SlabClass, Pointer),
    ) -> Result<(), NoSlab> {
        let size = |class: SlabClass| u64::from(needs[class.index()]) * class.size() as u64;
        let needed: u64 = SlabClass::all().map(size).sum();
        if !self.spare.has_room(needed + SlabClass::LARGEST.size() as u64) {
            return Err(NoSlab::Full);
        }
        for class in SlabClass::all().rev() {
            for _ in 0..needs[class.index()] {
                let taken = self.allocate(class).map_or_else(|| self.take_with_spare(class), Ok);
                give(class, taken.expect("the spare memory has room for all"));
            }
        }
        Ok(())
    }

    /// Returns a slab to the local cache, or reduces the debt.
    #[inline]
    pub(super) fn put_back(&mut self, class: SlabClass, pointer: Pointer) -> bool {
        self.statistics.in_use[class.index()] -= 1;
        if self.spare.contains(pointer) {
            self.spare.release(class);
            return false;
        }
        let entry = SlabEntry::slab(class, pointer);
        if self.host.is_in_front(pointer) {
            // What is in the local cache is used next.
            self.host.push(entry);
        } else {
            self.local[class.index()].push(entry);
        }
        self.free_size += class.size() as u64;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(size: usize) -> SlabClass {
        SlabClass::for_size(size).unwrap()
    }

    #[test]
    fn spare_memory_is_given_out_while_it_is_open_and_owed_afterwards() {
        const UNITS: u32 = 128;
        let mut slabs = SlabAllocator::new(Pointer::new(0), Pointer::new(UNITS));
        let take = |slabs: &mut SlabAllocator| slabs.take(class(32)).ok();
        let mut taken: Vec<Pointer> = std::iter::from_fn(|| take(&mut slabs)).collect();
        assert_eq!((taken.len() as u32, slabs.debt()), (UNITS, 0));
        slabs.open_spare(Pointer::new(2 * UNITS));
        let mut in_spare: Vec<Pointer> = (0..4).map(|_| slabs.take(class(32)).unwrap()).collect();
        let mut needs = SlabNeeds::default();
        needs[class(512).index()] = 1;
        slabs.take_all(&needs, |_, pointer| assert_eq!(pointer.unit(), UNITS + 16)).unwrap();
        slabs.close_spare();
        assert_eq!((slabs.debt(), slabs.free_size()), (4 * 32 + 512, 0));
        assert!(in_spare.iter().all(|pointer| pointer.unit() >= UNITS));
        // As much as is owed is not given out.
        for _ in 0..20 {
            slabs.release(class(32), taken.pop().unwrap());
            assert_eq!(
                (slabs.take(class(32)), slabs.allocate(class(32)), slabs.free_size()),
                (Err(NoSlab::Full), None, 0)
            );
        }
        slabs.release(class(32), taken.pop().unwrap());
        assert_eq!(slabs.free_size(), 32);
        let last = slabs.take(class(32)).unwrap();
        assert!(last.unit() < UNITS && slabs.take(class(32)).is_err());
        slabs.release(class(32), in_spare.pop().unwrap());
        assert!(slabs.take(class(32)).unwrap().unit() < UNITS);
        slabs.release(class(512), Pointer::new(UNITS + 16));
        in_spare.drain(..).for_each(|pointer| slabs.release(class(32), pointer));
        assert_eq!((slabs.debt(), slabs.free_size()), (0, 19 * 32));
    }
    #[test]
    fn what_one_owes_beyond_the_bound_another_does_not_give_out() {
        const UNITS: u32 = 128;
        let new = || SlabAllocator::new(Pointer::new(0), Pointer::new(UNITS));
        let (mut debtor, mut other) = (new(), new());
        debtor.open_spare(Pointer::new(2 * UNITS));
        let mut taken: Vec<Pointer> = (0..UNITS + 20).map(|_| debtor.take(class(32)).unwrap()).collect();
        debtor.close_spare();
        // Ten slabs are the bound.
        let excess = Arc::new(AtomicU64::new(10 * 32));
        debtor.hold_back(0, 20 * 32, &excess);
        other.hold_back(10 * 32, 0, &excess);
        assert_eq!(other.free_size(), u64::from(UNITS - 10) * 32);
        let take_all = |slabs: &mut SlabAllocator| std::iter::from_fn(|| slabs.take(class(32)).ok()).count() as u32;
        assert_eq!((take_all(&mut other), take_all(&mut debtor)), (UNITS - 10, 0));
        for paid in 1..=20 {
            debtor.release(class(32), taken.pop().unwrap());
            assert_eq!((take_all(&mut other), take_all(&mut debtor)), (u32::from(paid <= 10), 0), "{paid} are paid");
        }
        debtor.release(class(32), taken.pop().unwrap());
        assert_eq!(take_all(&mut debtor), 1);
        // All keys of the debtor are removed.
        let excess = Arc::new(AtomicU64::new(10 * 32));
        (debtor, other) = (new(), new());
        debtor.hold_back(0, 20 * 32, &excess);
        other.hold_back(10 * 32, 0, &excess);
        debtor.forget();
        assert_eq!(take_all(&mut other), UNITS);
    }
}
