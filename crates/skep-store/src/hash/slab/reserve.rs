//! Reservations: slabs for several operations, which are allocated before the first of them.
//!
//! While there is a reservation, an allocation takes a slab of it, if it has one of the class. So operations that together need
//! no more than was reserved cannot fail for lack of slabs. The order of their allocations does not matter.

use super::entry::SlabClass;
use super::{BATCH, HIGH_WATERMARK, NoSlab, SlabAllocator, SlabNeeds};

impl SlabAllocator {
    /// Reserves all slabs that are needed, or none.
    pub fn reserve(&mut self, needs: &SlabNeeds) -> Result<(), NoSlab> {
        debug_assert!(!self.has_reserved);
        let mut reserved = std::mem::take(&mut self.reserved);
        let taken = self.take_all(needs, |class, pointer| reserved[class.index()].push(pointer));
        self.reserved = reserved;
        self.has_reserved = taken.is_ok();
        taken
    }

    /// Returns true if this number of slabs of any classes can be allocated in any order for sure: there are four times as many
    /// of the largest class, and those that stacks of the local cache may be filled with.
    pub fn has_plenty(&self, slab_count: u64) -> bool {
        let class = SlabClass::LARGEST.index();
        self.spare.debt() == 0
            && self.host.units()[class] >> class >= 4 * slab_count + 2 * (SlabClass::COUNT * BATCH) as u64
    }

    /// Frees the slabs that were reserved and not used.
    pub fn end_reservation(&mut self) {
        self.has_reserved = false;
        for class in SlabClass::all() {
            for pointer in std::mem::take(&mut self.reserved[class.index()]) {
                self.take_back_unused(class, pointer);
                if self.local[class.index()].len() > HIGH_WATERMARK {
                    self.spill(class, BATCH);
                }
            }
        }
    }

    /// Returns the number of slabs of a class that are needed in addition to those that are reserved.
    pub(super) fn beyond_reserved(&self, needs: &SlabNeeds, class: SlabClass) -> u32 {
        needs[class.index()].saturating_sub(self.reserved[class.index()].len() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::{NoSlab, SlabAllocator, SlabClass, SlabNeeds};
    use crate::memory::Pointer;
    use crate::naive::seeds;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn needs(of: &[(SlabClass, u32)]) -> SlabNeeds {
        let mut needs = SlabNeeds::default();
        of.iter().for_each(|(class, count)| needs[class.index()] = *count);
        needs
    }

    #[test]
    fn what_is_reserved_can_be_allocated_in_any_order() {
        const SIZE: usize = 1 << 20;
        let classes: Vec<SlabClass> = SlabClass::all().collect();
        let (small, large) = (classes[0], SlabClass::LARGEST);
        let mut slabs = SlabAllocator::new(Pointer::new(0), Pointer::new((SIZE / 32) as u32));
        // All memory, half of it as the smallest slabs.
        let count = |class: SlabClass| (SIZE / 2 / class.size()) as u32;
        slabs.reserve(&needs(&[(small, count(small)), (large, count(large))])).unwrap();
        assert_eq!(slabs.free_size(), 0);
        for class in [small, large] {
            for _ in 0..count(class) {
                assert!(slabs.allocate(class).is_some());
            }
        }
        assert_eq!(slabs.allocate(small), None);
        slabs.end_reservation();
        assert_eq!(slabs.free_size(), 0);
    }

    #[test]
    fn a_reservation_takes_all_or_nothing_and_gives_back_what_is_left() {
        const SIZE: usize = 1 << 16;
        let mut slabs = SlabAllocator::new(Pointer::new(0), Pointer::new((SIZE / 32) as u32));
        let class = SlabClass::LARGEST;
        let all = (SIZE / class.size()) as u32;
        assert_eq!(slabs.reserve(&needs(&[(class, all + 1)])), Err(NoSlab::Full));
        assert_eq!(slabs.free_size(), SIZE as u64);
        slabs.reserve(&needs(&[(class, all)])).unwrap();
        // Two operations need all slabs of their own, and one has them.
        let mut taken = 0;
        slabs.take_all(&needs(&[(class, all)]), |_, _| taken += 1).unwrap();
        assert_eq!((taken, slabs.free_size()), (all, 0));
        slabs.end_reservation();
        slabs.reserve(&needs(&[])).unwrap();
        slabs.end_reservation();
        let mut slabs = SlabAllocator::new(Pointer::new(0), Pointer::new((SIZE / 32) as u32));
        slabs.reserve(&needs(&[(class, all / 2)])).unwrap();
        slabs.end_reservation();
        assert_eq!((slabs.free_size(), slabs.statistics().allocations), (SIZE as u64, 0));
    }

    #[test]
    fn plenty_is_enough_for_slabs_of_any_classes_in_any_order() {
        const SIZE: usize = 1 << 20;
        let classes: Vec<SlabClass> = SlabClass::all().collect();
        let mut checked = 0;
        for seed in seeds(&(1..=100).collect::<Vec<_>>()) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut slabs = SlabAllocator::new(Pointer::new(0), Pointer::new((SIZE / 32) as u32));
            let mut taken = Vec::new();
            let only = classes[random.random_range(0..classes.len())];
            for _ in 0..random.random_range(0..8000) {
                let class =
                    if random.random_ratio(1, 2) { only } else { classes[random.random_range(0..classes.len())] };
                if random.random_ratio(2, 3) {
                    taken.extend(slabs.allocate(class).map(|pointer| (class, pointer)));
                } else if !taken.is_empty() {
                    let (class, pointer) = taken.swap_remove(random.random_range(0..taken.len()));
                    slabs.release(class, pointer);
                }
            }
            let count = (1..).take_while(|count| slabs.has_plenty(*count)).count();
            let last = classes[random.random_range(0..classes.len())];
            for index in 0..count {
                let class =
                    if random.random_ratio(1, 2) { last } else { classes[random.random_range(0..classes.len())] };
                assert!(slabs.allocate(class).is_some(), "seed {seed}: slab {index} of {count}");
            }
            checked += usize::from(count > 0);
        }
        assert!(checked > 20, "{checked} allocators had plenty");
    }
}
