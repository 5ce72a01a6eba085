//! The front of the memory, which the hash index takes from the slabs while it grows.
//!
//! ```text
//! memory  ├─ index ─┤─ taken ─▶ start ─── zone ───┤─── zone ───┤ end …
//!                             a call goes on here, up to its bound of work
//! ```
//!
//! Slabs are allocated from the end of the memory down, so its front is free for long. It is taken zone by zone, as far as all
//! of it is free, in pieces of any length and without merging. What was taken in vain is given back. So is all of it by a
//! flush.

use std::ops::Range;

use super::SlabAllocator;
use super::entry::{SlabClass, SlabEntry};
use super::pool::HostPools;
use crate::memory::{Pointer, UNIT_SIZE};

/// How far the front was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// To the end that was asked for.
    Taken,
    /// As far as the work allowed. The next call goes on.
    Begun,
    /// To the first zone that is not free.
    InUse,
}

impl SlabAllocator {
    /// Returns the first address that is not taken.
    pub fn start(&self) -> Pointer {
        Pointer::new(self.host.start())
    }

    /// Takes the memory before `end` from the slabs, as far as it is free. Takes zones until these had `entries_max` free
    /// entries, and at least one.
    pub fn take_front(&mut self, end: Pointer, entries_max: usize) -> Front {
        self.take_back();
        if size_of_units(self.host.start()..end.unit()) > self.free_size() {
            return Front::InUse;
        }
        for class in SlabClass::all() {
            let count = self.local[class.index()].len();
            self.spill(class, count);
        }
        let mut entries = 0;
        while self.host.start() < end.unit() {
            if entries >= entries_max {
                return Front::Begun;
            }
            let before = self.host.start();
            let Some(taken) = self.host.take_front_zone(end.unit()) else { return Front::InUse };
            entries += taken;
            self.free_size -= size_of_units(before..self.host.start());
            self.size -= size_of_units(before..self.host.start());
        }
        Front::Taken
    }

    /// Gives the memory from `start` on back that was taken.
    pub fn give_front_back(&mut self, start: Pointer) {
        let taken = start.unit()..self.host.start();
        if !taken.is_empty() {
            self.host.set_start(taken.start);
            self.host.push_range(taken.start, taken.end);
            self.free_size += size_of_units(taken.clone());
            self.size += size_of_units(taken);
        }
    }

    /// Returns true if this number of overflow buckets can be allocated without merging.
    pub fn has_buckets(&self, count: usize) -> bool {
        let units: u64 = self.host.units()[SlabClass::BUCKET.index()..].iter().sum();
        let needed = (count as u64) << SlabClass::BUCKET.index();
        !self.has_reserved && needed <= units && needed * UNIT_SIZE as u64 <= self.free_size()
    }
}

/// Returns the bytes of a range of units.
fn size_of_units(units: Range<u32>) -> u64 {
    units.len() as u64 * UNIT_SIZE as u64
}

impl HostPools {
    /// Takes the memory from the start to the end of its zone, or to `end`, if all of it is free. Returns the number of free
    /// entries that it had.
    fn take_front_zone(&mut self, end: u32) -> Option<usize> {
        let start = self.start();
        let zone = self.zone_of(Pointer::new(start));
        let end = end.min(self.end_of_zone(zone));
        let units_in = |entry: SlabEntry| (entry.unit() + entry.unit_count()).min(end).saturating_sub(entry.unit());
        if self.entries_of(zone).map(units_in).sum::<u32>() < end - start {
            return None;
        }
        let entries = self.take_all(zone);
        for entry in &entries {
            let entry_end = entry.unit() + entry.unit_count();
            if entry_end > end {
                self.push_range(entry.unit().max(end), entry_end);
            }
        }
        self.set_start(end);
        Some(entries.len())
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
            assert_eq!(slabs.take_front(Pointer::new(lowest + 1), usize::MAX), Front::InUse);
            slabs.give_front_back(Pointer::new(10));
            assert_eq!(slabs.free_size(), free);
            let end = random.random_range(11..=lowest);
            let entries_max = random.random_range(1..100);
            while slabs.take_front(Pointer::new(end), entries_max) == Front::Begun {
                assert!(slabs.start().unit() < end);
            }
            assert_eq!(slabs.start(), Pointer::new(end), "SKEP_SEED={seed}");
            assert_eq!(slabs.free_size(), free - u64::from(end - 10) * 32);
            let rest: Vec<_> = std::iter::from_fn(|| slabs.take(SlabClass::for_size(32).unwrap()).ok()).collect();
            assert!(rest.iter().all(|slab| slab.unit() >= end));
            assert_eq!((slabs.free_size(), rest.len() as u64 * 32), (0, free - u64::from(end - 10) * 32));
            // After a flush, all memory is there again.
            slabs.forget();
            while slabs.return_zones(1) {}
            assert_eq!(slabs.free_size(), u64::from(units - 10) * 32);
            assert_eq!(slabs.take_front(Pointer::new(units), usize::MAX), Front::Taken);
        }
    }

    #[test]
    fn fragments_at_the_front_count() {
        let class = SlabClass::for_size(32).unwrap();
        let mut slabs = SlabAllocator::new(Pointer::new(0), Pointer::new(4096));
        let all: Vec<_> = std::iter::from_fn(|| slabs.take(class).ok()).collect();
        assert_eq!(slabs.take_front(Pointer::new(1024), usize::MAX), Front::InUse);
        all.iter().filter(|slab| slab.unit() < 1024).for_each(|slab| slabs.release(class, *slab));
        assert_eq!(
            slabs.take_front(Pointer::new(1024), 1),
            Front::Begun,
            "the second call goes on with the second zone"
        );
        assert_eq!(slabs.take_front(Pointer::new(1024), usize::MAX), Front::Taken);
        assert_eq!(slabs.free_size(), 0);
    }
}
