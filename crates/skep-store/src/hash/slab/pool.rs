//! The host-side pools of free slabs (KV-Direct, sections 3.3.2 and 4).
//!
//! Slab memory is divided into up to sixteen zones by address. Each zone has a stack of entries for each class and one
//! for longer stretches:
//!
//! ```text
//!            32 B   64 B   128 B  256 B  512 B  longer
//! zone 0     [..]   [...]  []     [.]    []     [..]      low addresses: used first
//! zone 1     [.]    []     [..]   []     [.]    [.]
//! ...
//! ```
//!
//! A zone is what one merging pass takes: whoever has all free entries of a stretch of memory can join all neighbours
//! in it, and most of the pools stays with the shard.

use super::entry::{SlabClass, SlabEntry};
use crate::memory::{GRAIN_SIZE, Pointer};

/// Most zones of a memory.
pub(super) const ZONE_COUNT_MAX: usize = 16;
/// Smallest zone, in grains: 4 KiB.
const ZONE_GRAINS_MIN_LOG2: u32 = 7;
/// Stacks of a zone: one for each class, one for longer stretches.
pub(super) const STACK_COUNT: usize = SlabClass::COUNT + 1;

/// The free entries of a zone by their length.
#[derive(Debug, Default)]
pub(super) struct ZonePool {
    stacks: [Vec<SlabEntry>; STACK_COUNT],
}

/// The stack that holds entries of this length.
fn stack_of(entry: SlabEntry) -> usize {
    (entry.doublings() as usize).min(SlabClass::COUNT)
}

impl ZonePool {
    pub(super) fn push(&mut self, entry: SlabEntry) {
        self.stacks[stack_of(entry)].push(entry);
    }

    /// The entries of all lengths.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = SlabEntry> {
        self.stacks.iter_mut().flat_map(|stack| stack.drain(..))
    }

    /// Adds the entries of another; the longer list of each length is kept in its place.
    fn absorb(&mut self, other: ZonePool) {
        for (stack, mut others) in self.stacks.iter_mut().zip(other.stacks) {
            if others.len() > stack.len() {
                std::mem::swap(stack, &mut others);
            }
            stack.append(&mut others);
        }
    }
}

/// The pools of all zones.
#[derive(Debug)]
pub(super) struct HostPools {
    zones: Vec<ZonePool>,
    /// For each stack, the zones in which it is not empty.
    filled: [u16; STACK_COUNT],
    /// A pointer's zone is its grain shifted right by this.
    zone_shift: u32,
}

impl HostPools {
    /// Pools that hold all memory from `start` to `end`, in grains.
    pub(super) fn new(start: u32, end: u32) -> Self {
        let mut zone_shift = ZONE_GRAINS_MIN_LOG2;
        while end.saturating_sub(1) >> zone_shift >= ZONE_COUNT_MAX as u32 {
            zone_shift += 1;
        }
        let zone_count = (end.saturating_sub(1) >> zone_shift) as usize + 1;
        let zones = (0..zone_count).map(|_| ZonePool::default()).collect();
        let mut pools = HostPools { zones, filled: [0; STACK_COUNT], zone_shift };
        let mut grain = start;
        while grain < end {
            let aligned = if grain == 0 { zone_shift } else { grain.trailing_zeros() };
            let doublings = aligned.min((end - grain).ilog2()).min(zone_shift);
            pools.push(SlabEntry::new(grain, doublings));
            grain += 1 << doublings;
        }
        pools
    }

    pub(super) fn zone_count(&self) -> usize {
        self.zones.len()
    }

    /// All zones, a bit for each.
    pub(super) fn all_zones(&self) -> u16 {
        u16::MAX >> (ZONE_COUNT_MAX - self.zones.len())
    }

    /// Number of the zone that an address lies in.
    pub(super) fn zone_of(&self, pointer: Pointer) -> usize {
        (pointer.grain() >> self.zone_shift) as usize
    }

    pub(super) fn push(&mut self, entry: SlabEntry) {
        let zone = self.zone_of(entry.pointer());
        let stack = stack_of(entry);
        self.zones[zone].stacks[stack].push(entry);
        self.filled[stack] |= 1 << zone;
    }

    /// Takes an entry of exactly this class.
    pub(super) fn pop(&mut self, class: SlabClass) -> Option<SlabEntry> {
        self.pop_stack(class.index())
    }

    /// Takes an entry longer than the class, the shortest there is, cut down to at most `grain_count_max` grains.
    pub(super) fn pop_longer(&mut self, class: SlabClass, grain_count_max: u32) -> Option<SlabEntry> {
        let mut entry = (class.index() + 1..STACK_COUNT).find_map(|stack| self.pop_stack(stack))?;
        while entry.grain_count() > grain_count_max {
            let (lower, upper) = entry.halve();
            self.push(upper);
            entry = lower;
        }
        Some(entry)
    }

    fn pop_stack(&mut self, stack: usize) -> Option<SlabEntry> {
        if self.filled[stack] == 0 {
            return None;
        }
        let zone = self.filled[stack].trailing_zeros() as usize;
        let entries = &mut self.zones[zone].stacks[stack];
        let entry = entries.pop();
        if entries.is_empty() {
            self.filled[stack] &= !(1 << zone);
        }
        entry
    }

    /// Takes all entries of a zone.
    pub(super) fn take_zone(&mut self, zone: usize) -> ZonePool {
        for filled in &mut self.filled {
            *filled &= !(1 << zone);
        }
        std::mem::take(&mut self.zones[zone])
    }

    /// Adds entries to a zone.
    pub(super) fn give_zone(&mut self, zone: usize, pool: ZonePool) {
        self.zones[zone].absorb(pool);
        for (filled, stack) in self.filled.iter_mut().zip(&self.zones[zone].stacks) {
            *filled |= u16::from(!stack.is_empty()) << zone;
        }
    }

    /// Entries of the zone that are shorter than the class, and their bytes.
    pub(super) fn shorter_than(&self, class: SlabClass, zone: usize) -> (usize, u64) {
        let stacks = &self.zones[zone].stacks[..class.index()];
        let count = stacks.iter().map(Vec::len).sum();
        let size_of = |stack: usize| (GRAIN_SIZE as u64) << stack;
        let size = stacks.iter().enumerate().map(|(i, stack)| stack.len() as u64 * size_of(i)).sum();
        (count, size)
    }

    /// Bytes that the pools themselves take.
    pub(super) fn bookkeeping_size(&self) -> u64 {
        let capacity: usize = self.zones.iter().flat_map(|zone| &zone.stacks).map(Vec::capacity).sum();
        (capacity * size_of::<SlabEntry>()) as u64
    }

    /// All entries.
    #[cfg(test)]
    pub(super) fn entries(&self) -> impl Iterator<Item = SlabEntry> + '_ {
        self.zones.iter().flat_map(|zone| zone.stacks.iter().flatten().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entries_cover_the_memory_without_gap_or_overlap() {
        for (start, end) in [(0, 128), (48, 4096), (1000, 65_537), (16, 17), (0, 1 << 31), (5, (1 << 31) - 3)] {
            let pools = HostPools::new(start, end);
            assert!(pools.zone_count() <= ZONE_COUNT_MAX);
            let mut entries: Vec<_> = pools.entries().collect();
            entries.sort_unstable_by_key(|entry| entry.grain());
            let mut next = start;
            for entry in entries {
                assert_eq!(entry.grain(), next);
                assert_eq!(
                    pools.zone_of(entry.pointer()),
                    (entry.grain() + entry.grain_count() - 1) as usize >> pools.zone_shift
                );
                next += entry.grain_count();
            }
            assert_eq!(next, end);
        }
    }

    #[test]
    fn a_longer_entry_is_cut_and_its_rest_stays() {
        let mut pools = HostPools::new(0, 4096);
        let class = SlabClass::for_size(64).unwrap();
        assert_eq!(pools.pop(class), None);
        let entry = pools.pop_longer(class, 64).unwrap();
        assert_eq!(entry.grain_count(), 64);
        let rest: u64 = pools.entries().map(SlabEntry::size).sum();
        assert_eq!(rest, (4096 - 64) * GRAIN_SIZE as u64);
    }
}
