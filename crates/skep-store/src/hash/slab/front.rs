//! The front of the memory, which the hash index takes from the slabs while it grows.
//!
//! Slabs are allocated from the end of the memory down, so its front is free for long. It is taken only if all of it is free,
//! in pieces of any length and without merging. A flush gives it back.

use std::ops::Range;

use super::SlabAllocator;
use super::entry::{SlabClass, SlabEntry};
use super::pool::HostPools;
use crate::memory::{Pointer, UNIT_SIZE};

impl SlabAllocator {
    /// Takes the memory before `end` from the slabs, if all of it is free. Returns false, and takes nothing, if it is not.
    pub fn take_front(&mut self, end: Pointer) -> bool {
        self.take_back();
        let range = self.host.start()..end.unit();
        let size = u64::from(range.end - range.start) * UNIT_SIZE as u64;
        if size > self.free_size() {
            return false;
        }
        for class in SlabClass::all() {
            let count = self.local[class.index()].len();
            self.spill(class, count);
        }
        let is_taken = self.host.take_front(range);
        if is_taken {
            self.free_size -= size;
            self.size -= size;
        }
        is_taken
    }

    /// Returns true if this number of overflow buckets can be allocated without merging.
    pub fn has_buckets(&self, count: usize) -> bool {
        let units: u64 = self.host.units()[SlabClass::BUCKET.index()..].iter().sum();
        let needed = (count as u64) << SlabClass::BUCKET.index();
        !self.has_reserved && needed <= units && needed * UNIT_SIZE as u64 <= self.free_size()
    }
}

impl HostPools {
    /// Takes the memory of a range that begins at the start, if all of it is free. Returns true if it was.
    fn take_front(&mut self, range: Range<u32>) -> bool {
        let zones = self.zone_of(Pointer::new(range.start))..self.zone_of(Pointer::new(range.end)) + 1;
        let is_in = |entry: &SlabEntry| entry.unit() < range.end;
        let units_in = |entry: SlabEntry| (entry.unit() + entry.unit_count()).min(range.end) - entry.unit();
        let free: u32 = zones.clone().flat_map(|zone| self.entries_of(zone)).filter(is_in).map(units_in).sum();
        if free < range.end - range.start {
            return false;
        }
        for zone in zones {
            for entry in self.take_all(zone) {
                let end = entry.unit() + entry.unit_count();
                if end > range.end {
                    self.push_range(entry.unit().max(range.end), end);
                }
            }
        }
        self.set_start(range.end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::seeds;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn the_front_is_taken_only_if_it_is_free() {
        let class = SlabClass::for_size(64).unwrap();
        for seed in seeds(&std::array::from_fn::<u64, 20, _>(|seed| seed as u64)) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let units = random.random_range(1000..60_000);
            let mut slabs = SlabAllocator::new(Pointer::new(10), Pointer::new(units));
            slabs.keep_front();
            // Slabs come from the end.
            let taken: Vec<_> = (0..random.random_range(1..units / 4)).filter_map(|_| slabs.allocate(class)).collect();
            let lowest = taken.iter().map(|slab| slab.unit()).min().unwrap();
            assert!(lowest > units / 3, "SKEP_SEED={seed}: {lowest} of {units}");
            let free = slabs.free_size();
            assert!(!slabs.take_front(Pointer::new(lowest + 1)));
            assert_eq!(slabs.free_size(), free);
            let end = random.random_range(11..=lowest);
            assert!(slabs.take_front(Pointer::new(end)), "SKEP_SEED={seed}");
            assert_eq!(slabs.free_size(), free - u64::from(end - 10) * 32);
            let rest: Vec<_> = std::iter::from_fn(|| slabs.take(SlabClass::for_size(32).unwrap()).ok()).collect();
            assert!(rest.iter().all(|slab| slab.unit() >= end));
            assert_eq!((slabs.free_size(), rest.len() as u64 * 32), (0, free - u64::from(end - 10) * 32));
            // After a flush, all memory is there again.
            slabs.forget();
            while slabs.return_zones(1) {}
            assert_eq!(slabs.free_size(), u64::from(units - 10) * 32);
            assert!(slabs.take_front(Pointer::new(units)));
        }
    }

    #[test]
    fn fragments_at_the_front_count() {
        let class = SlabClass::for_size(32).unwrap();
        let mut slabs = SlabAllocator::new(Pointer::new(0), Pointer::new(4096));
        let all: Vec<_> = std::iter::from_fn(|| slabs.take(class).ok()).collect();
        assert!(!slabs.take_front(Pointer::new(1024)));
        all.iter().filter(|slab| slab.unit() < 1024).for_each(|slab| slabs.release(class, *slab));
        assert!(slabs.take_front(Pointer::new(1024)));
        assert_eq!(slabs.free_size(), 0);
    }
}
