//! An entry of the allocator's stacks: a free stretch of slab memory in four bytes.
//!
//! A stretch is a power of two of units and aligned to its size. An entry is twice its pointer plus its size in
//! units, so the lowest bit that is set tells the size: the paper's "address field and slab type field" in 32 bits.
//!
//! ```text
//! entry = pointer << 1 | size      example: pointer 96, 32 units (1 KiB)
//!                                  1100 0000 | 10 0000 = 1110 0000
//! ```
//!
//! One entry may cover several slots of the pool it is in. It is divided when it is used, never computed with before.

use crate::memory::{Pointer, UNIT_SIZE};

/// A size of slab: 32, 64, 128, 256 or 512 bytes (KV-Direct, section 3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlabClass(u8);

impl SlabClass {
    /// The number of classes.
    pub const COUNT: usize = 5;
    /// The largest class, 512 bytes.
    pub const LARGEST: SlabClass = SlabClass(4);
    /// The class of an overflow bucket, 64 bytes.
    pub const BUCKET: SlabClass = SlabClass(1);

    /// Returns all classes, smallest first.
    pub fn all() -> impl DoubleEndedIterator<Item = SlabClass> {
        (0..Self::COUNT as u8).map(SlabClass)
    }

    /// Returns the smallest class that holds `size` bytes, if one does.
    pub fn for_size(size: usize) -> Option<SlabClass> {
        let doublings = size.div_ceil(UNIT_SIZE).max(1).next_power_of_two().trailing_zeros();
        (doublings < Self::COUNT as u32).then_some(SlabClass(doublings as u8))
    }

    /// Returns the bytes of a slab.
    #[inline]
    pub fn size(self) -> usize {
        UNIT_SIZE << self.0
    }

    /// Returns the units of a slab.
    pub(super) fn unit_count(self) -> u32 {
        1 << self.0
    }

    /// Returns the number of the class, from 0 for 32 bytes.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the type in a slot of the index: 1 to 5.
    #[inline]
    pub fn code(self) -> u32 {
        u32::from(self.0) + 1
    }

    /// Returns the class with this type in a slot of the index.
    #[inline]
    pub fn from_code(code: u32) -> Option<SlabClass> {
        (1..=Self::COUNT as u32).contains(&code).then(|| SlabClass(code as u8 - 1))
    }
}

/// A free stretch of slab memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SlabEntry(u32);

impl SlabEntry {
    /// Returns the stretch of `1 << doublings` units at `unit`, which is a multiple of that.
    pub(super) fn new(unit: u32, doublings: u32) -> Self {
        debug_assert!(unit.trailing_zeros() >= doublings);
        SlabEntry(unit << 1 | 1 << doublings)
    }

    /// Returns the slab of this class at this pointer.
    pub(super) fn slab(class: SlabClass, pointer: Pointer) -> Self {
        SlabEntry::new(pointer.unit(), u32::from(class.0))
    }

    /// Returns the number of its first unit.
    pub(super) fn unit(self) -> u32 {
        (self.0 & (self.0 - 1)) >> 1
    }

    /// Returns its address.
    pub(super) fn pointer(self) -> Pointer {
        Pointer::new(self.unit())
    }

    /// Returns the logarithm of its units: they are `1 << doublings`.
    pub(super) fn doublings(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// Returns its units.
    pub(super) fn unit_count(self) -> u32 {
        1 << self.doublings()
    }

    /// Returns its bytes.
    #[cfg(test)]
    pub(super) fn size(self) -> u64 {
        u64::from(self.unit_count()) * UNIT_SIZE as u64
    }

    /// Returns the rest of the stretch after its first slab of the class, the larger halves first.
    pub(super) fn rest_after(self, class: SlabClass) -> impl Iterator<Item = SlabEntry> {
        let rest = (u32::from(class.0)..self.doublings()).rev();
        rest.map(move |doublings| SlabEntry::new(self.unit() + (1 << doublings), doublings))
    }

    /// Returns the lower and the upper half.
    pub(super) fn halve(self) -> (SlabEntry, SlabEntry) {
        let doublings = self.doublings() - 1;
        (SlabEntry::new(self.unit(), doublings), SlabEntry::new(self.unit() + (1 << doublings), doublings))
    }

    /// Returns the stretch of this one, a lower half, and `upper`.
    pub(super) fn join(self, upper: SlabEntry) -> Option<SlabEntry> {
        let size = self.unit_count();
        let buddies = upper.unit_count() == size && self.unit() & size == 0 && upper.unit() == self.unit() + size;
        buddies.then(|| SlabEntry::new(self.unit(), self.doublings() + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_the_papers() {
        assert_eq!(SlabClass::all().map(SlabClass::size).collect::<Vec<_>>(), [32, 64, 128, 256, 512]);
        assert_eq!(SlabClass::for_size(0), Some(SlabClass(0)));
        assert_eq!(SlabClass::for_size(33).unwrap().size(), 64);
        assert_eq!(SlabClass::for_size(512), Some(SlabClass::LARGEST));
        assert_eq!(SlabClass::for_size(513), None);
        assert_eq!(SlabClass::BUCKET.size(), crate::memory::LINE_SIZE);
    }

    #[test]
    fn an_entry_keeps_place_and_size() {
        for doublings in 0..31 {
            let last = (u32::MAX >> 1) >> doublings << doublings;
            for unit in [0, 1 << doublings, last] {
                let entry = SlabEntry::new(unit, doublings);
                assert_eq!((entry.unit(), entry.doublings()), (unit, doublings));
            }
        }
    }

    #[test]
    fn a_slab_and_the_rest_leave_no_gap_and_joining_undoes_halving() {
        let entry = SlabEntry::new(96, 5);
        let rest: Vec<_> = entry.rest_after(SlabClass(1)).map(|e| (e.unit(), e.unit_count())).collect();
        assert_eq!(rest, [(112, 16), (104, 8), (100, 4), (98, 2)]);
        let (lower, upper) = entry.halve();
        assert_eq!(lower.join(upper), Some(entry));
        assert_eq!(upper.join(lower), None);
        assert_eq!(upper.join(SlabEntry::new(128, 4)), None, "neighbours of different stretches");
    }
}
