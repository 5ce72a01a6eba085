//! The host-side pools of free slabs (KV-Direct, sections 3.3.2 and 4).
//!
//! Slab memory is divided into zones by address: up to sixteen in a small memory, and of 1 MiB in a large one. Each zone
//! has a stack of entries for each class and one for longer stretches:
//!
//! ```text
//!            32 B   64 B   128 B  256 B  512 B  longer
//! zone 0     [..]   [...]  []     [.]    []     [..]
//! zone 1     [.]    []     [..]   []     [.]    [.]       high addresses: used first
//! ...        └───── a merging pass ────┘
//! ```
//!
//! A merging pass takes the short entries of a zone: with all free entries of a stretch of memory it can join all
//! neighbours in it. A zone has at most 32,768 of them, so a pass is short for every size of memory. Entries from 512 B up
//! need no joining and stay.

use std::ops::Range;

use super::entry::{SlabClass, SlabEntry};
use super::zone_set::{ZONE_COUNT_MAX, ZoneSet};
use crate::memory::{Pointer, UNIT_SIZE};

/// Zones of a memory in which they need not be longer than [`ZONE_GRAINS_MAX_LOG2`].
const SMALL_ZONE_COUNT: u32 = 16;
/// Smallest zone, in units: 4 KiB.
const ZONE_GRAINS_MIN_LOG2: u32 = 7;
/// Largest zone, in units: 1 MiB.
const ZONE_GRAINS_MAX_LOG2: u32 = 15;
/// Stacks of a zone: one for each class, one for longer stretches.
const STACK_COUNT: usize = SlabClass::COUNT + 1;
/// Stacks that a pass takes: those of entries shorter than the largest class.
const SHORT_STACK_COUNT: usize = SlabClass::COUNT - 1;

const _: () = assert!((1 << 31 >> ZONE_GRAINS_MAX_LOG2) <= ZONE_COUNT_MAX);

/// The free entries of a zone by their length.
#[derive(Debug, Default)]
pub(super) struct ZonePool {
    stacks: [Vec<SlabEntry>; STACK_COUNT],
}

/// Returns the number of the stack for entries of this length.
fn stack_of(entry: SlabEntry) -> usize {
    (entry.doublings() as usize).min(SlabClass::COUNT)
}

impl ZonePool {
    pub(super) fn push(&mut self, entry: SlabEntry) {
        self.stacks[stack_of(entry)].push(entry);
    }

    /// Removes and returns the entries of all lengths.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = SlabEntry> {
        self.stacks.iter_mut().flat_map(|stack| stack.drain(..))
    }

    /// Adds the entries of another pool. Of each length, the longer list is kept and the other one is copied.
    fn absorb(&mut self, other: ZonePool) {
        for (stack, mut others) in self.stacks.iter_mut().zip(other.stacks) {
            if others.len() > stack.len() {
                std::mem::swap(stack, &mut others);
            }
            stack.append(&mut others);
        }
    }

    /// Returns the units of the entries in each stack.
    fn units(&self) -> [u64; STACK_COUNT] {
        let mut units = std::array::from_fn(|stack| (self.stacks[stack].len() as u64) << stack);
        let longer = &self.stacks[SlabClass::COUNT];
        units[SlabClass::COUNT] = longer.iter().map(|entry| u64::from(entry.unit_count())).sum();
        units
    }

    /// Returns the entries for which its lists have room.
    fn capacity(&self) -> usize {
        self.stacks.iter().map(Vec::capacity).sum()
    }

    /// Returns the number of its entries.
    pub(super) fn len(&self) -> usize {
        self.stacks.iter().map(Vec::len).sum()
    }
}

/// The pools of all zones.
#[derive(Debug)]
pub(super) struct HostPools {
    zones: Vec<ZonePool>,
    /// For each stack, the zones in which it is not empty.
    filled: [ZoneSet; STACK_COUNT],
    /// For each stack, the units of its entries in all zones.
    units: [u64; STACK_COUNT],
    /// Entries for which all lists have room.
    capacity: usize,
    /// A pointer's zone is its unit shifted right by this.
    zone_shift: u32,
    /// The units of the memory, less those that the index has taken.
    range: Range<u32>,
    /// The first unit of all.
    first: u32,
    /// The memory from the start to the end of this zone is used last: the index may grow there.
    front_zone: Option<usize>,
    /// The first zone whose entries were forgotten and not returned.
    next_forgotten: usize,
}

impl HostPools {
    /// Returns pools with all memory from `start` to `end`, in units.
    pub(super) fn new(start: u32, end: u32) -> Self {
        let last = end.saturating_sub(1);
        let mut zone_shift = ZONE_GRAINS_MIN_LOG2;
        while zone_shift < ZONE_GRAINS_MAX_LOG2 && last >> zone_shift >= SMALL_ZONE_COUNT {
            zone_shift += 1;
        }
        let zone_count = (last >> zone_shift) as usize + 1;
        let mut pools = HostPools {
            zones: (0..zone_count).map(|_| ZonePool::default()).collect(),
            filled: std::array::from_fn(|_| ZoneSet::new(zone_count)),
            units: [0; STACK_COUNT],
            capacity: 0,
            zone_shift,
            range: start..end,
            first: start,
            front_zone: None,
            next_forgotten: zone_count,
        };
        pools.push_range(start, end);
        pools
    }

    /// Adds the memory between two units, as the longest entries that it has.
    pub(super) fn push_range(&mut self, start: u32, end: u32) {
        let mut unit = start;
        while unit < end {
            let aligned = if unit == 0 { self.zone_shift } else { unit.trailing_zeros() };
            let doublings = aligned.min((end - unit).ilog2()).min(self.zone_shift);
            self.push(SlabEntry::new(unit, doublings));
            unit += 1 << doublings;
        }
    }

    /// Forgets all entries. [`HostPools::return_zone`] returns all memory, zone by zone. No entry of a zone may be pushed
    /// before its memory is returned.
    pub(super) fn forget(&mut self) {
        self.set_start(self.first);
        self.filled = std::array::from_fn(|_| ZoneSet::new(self.zones.len()));
        self.units = [0; STACK_COUNT];
        self.next_forgotten = 0;
    }

    /// Returns the memory of the next forgotten zone. Returns its number, if there is one.
    pub(super) fn return_zone(&mut self) -> Option<usize> {
        let zone = self.next_forgotten;
        let entries = self.zones.get_mut(zone)?;
        self.next_forgotten += 1;
        self.capacity -= entries.capacity();
        *entries = ZonePool::default();
        let (start, end) = ((zone as u64) << self.zone_shift, (zone as u64 + 1) << self.zone_shift);
        let start = self.range.start.max(start as u32);
        let end = u64::from(self.range.end).min(end) as u32;
        self.push_range(start, end);
        Some(zone)
    }

    /// Returns true if the memory of zones is forgotten.
    pub(super) fn has_forgotten(&self) -> bool {
        self.next_forgotten < self.zones.len()
    }

    /// Returns the bytes of all units.
    pub(super) fn size(&self) -> u64 {
        u64::from(self.range.end - self.range.start) * UNIT_SIZE as u64
    }

    /// Returns the first unit.
    pub(super) fn start(&self) -> u32 {
        self.range.start
    }

    /// Sets the first unit. No entry is before it.
    pub(super) fn set_start(&mut self, start: u32) {
        self.range.start = start;
        if self.front_zone.is_some() {
            self.keep_front();
        }
    }

    /// Returns the end of a zone, in units.
    pub(super) fn end_of_zone(&self, zone: usize) -> u32 {
        u64::from(self.range.end).min((zone as u64 + 1) << self.zone_shift) as u32
    }

    /// Returns the entries of a zone, if there is such a zone.
    pub(super) fn entries_of(&self, zone: usize) -> impl Iterator<Item = SlabEntry> + '_ {
        self.zones.get(zone).into_iter().flat_map(|zone| zone.stacks.iter().flatten().copied())
    }

    /// Removes and returns the entries of a zone, if there is such a zone.
    pub(super) fn take_all(&mut self, zone: usize) -> Vec<SlabEntry> {
        let Some(entries) = self.zones.get_mut(zone) else { return Vec::new() };
        for (units, taken) in self.units.iter_mut().zip(entries.units()) {
            *units -= taken;
        }
        self.filled.iter_mut().for_each(|filled| filled.remove(zone));
        entries.drain().collect()
    }

    pub(super) fn zone_count(&self) -> usize {
        self.zones.len()
    }

    /// Returns the number of an address's zone.
    pub(super) fn zone_of(&self, pointer: Pointer) -> usize {
        (pointer.unit() >> self.zone_shift) as usize
    }

    pub(super) fn push(&mut self, entry: SlabEntry) {
        let zone = self.zone_of(entry.pointer());
        let stack = stack_of(entry);
        let entries = &mut self.zones[zone].stacks[stack];
        if entries.is_empty() {
            self.filled[stack].insert(zone);
        }
        let capacity = entries.capacity();
        entries.push(entry);
        self.capacity += entries.capacity() - capacity;
        self.units[stack] += u64::from(entry.unit_count());
    }

    /// Lets the front of the memory be used last: as much as the index has before it, and at most a quarter of the memory.
    pub(super) fn keep_front(&mut self) {
        let size = self.range.start.min((self.range.end - self.first) / 4);
        let end = (self.range.start + size).min(self.range.end - 1);
        self.front_zone = Some(self.zone_of(Pointer::new(end)));
    }

    /// Returns true if an address is of the front that is used last.
    #[inline]
    pub(super) fn is_in_front(&self, pointer: Pointer) -> bool {
        self.front_zone.is_some_and(|front| self.zone_of(pointer) <= front)
    }

    /// Lets all memory be used as it comes.
    pub(super) fn use_front(&mut self) {
        self.front_zone = None;
    }

    /// Removes and returns the shortest entry that is as long as the class, not split, or else longer, split to at most
    /// `unit_count_max` units.
    pub(super) fn pop(&mut self, class: SlabClass, unit_count_max: u32) -> Option<SlabEntry> {
        let front_zone = self.front_zone;
        let behind_front = |pools: &Self, stack: usize| {
            pools.filled[stack].last().filter(|zone| front_zone.is_none_or(|front| *zone > front))
        };
        let behind = (class.index()..STACK_COUNT).find(|stack| behind_front(self, *stack).is_some());
        let stack = behind.or_else(|| (class.index()..STACK_COUNT).find(|stack| self.filled[*stack].last().is_some()));
        let mut entry = self.pop_stack(stack?)?;
        while entry.unit_count() > unit_count_max {
            let (lower, upper) = entry.halve();
            self.push(lower);
            entry = upper;
        }
        Some(entry)
    }

    fn pop_stack(&mut self, stack: usize) -> Option<SlabEntry> {
        let zone = self.filled[stack].last()?;
        let entries = &mut self.zones[zone].stacks[stack];
        let entry = entries.pop()?;
        if entries.is_empty() {
            self.filled[stack].remove(zone);
        }
        self.units[stack] -= u64::from(entry.unit_count());
        Some(entry)
    }

    /// Removes and returns the entries of a zone that are shorter than the largest class.
    pub(super) fn take_short(&mut self, zone: usize) -> ZonePool {
        let mut taken = ZonePool::default();
        for stack in 0..SHORT_STACK_COUNT {
            taken.stacks[stack] = std::mem::take(&mut self.zones[zone].stacks[stack]);
            self.filled[stack].remove(zone);
        }
        for (units, taken) in self.units.iter_mut().zip(taken.units()) {
            *units -= taken;
        }
        self.capacity -= taken.capacity();
        taken
    }

    /// Adds entries to a zone.
    pub(super) fn give(&mut self, zone: usize, pool: ZonePool) {
        for (units, given) in self.units.iter_mut().zip(pool.units()) {
            *units += given;
        }
        let entries = &mut self.zones[zone];
        let capacity = entries.capacity();
        entries.absorb(pool);
        self.capacity = self.capacity - capacity + entries.capacity();
        for (filled, stack) in self.filled.iter_mut().zip(&entries.stacks) {
            if !stack.is_empty() {
                filled.insert(zone);
            }
        }
    }

    /// Returns the number of entries of the zone that are shorter than the class, and their bytes.
    pub(super) fn shorter_than(&self, class: SlabClass, zone: usize) -> (usize, u64) {
        let stacks = &self.zones[zone].stacks[..class.index()];
        let count = stacks.iter().map(Vec::len).sum();
        let size_of = |stack: usize| (UNIT_SIZE as u64) << stack;
        let size = stacks.iter().enumerate().map(|(i, stack)| stack.len() as u64 * size_of(i)).sum();
        (count, size)
    }

    /// Returns true if, of each class, as many slabs stay as go when the short entries of a zone are taken, or `slab_count`.
    pub(super) fn can_spare(&self, zone: usize, slab_count: u64) -> bool {
        let mut staying = self.units[SHORT_STACK_COUNT..].iter().sum::<u64>();
        (0..SHORT_STACK_COUNT).rev().all(|stack| {
            let taken = self.zones[zone].stacks[stack].len() as u64;
            staying += self.units[stack] - (taken << stack);
            staying >> stack >= taken.min(slab_count)
        })
    }

    /// Returns the units of the entries of each class. Longer stretches count for the largest.
    pub(super) fn units(&self) -> [u64; SlabClass::COUNT] {
        let mut units: [u64; SlabClass::COUNT] = std::array::from_fn(|class| self.units[class]);
        units[SlabClass::COUNT - 1] += self.units[SlabClass::COUNT];
        units
    }

    /// Returns the bytes that the pools themselves take.
    pub(super) fn bookkeeping_size(&self) -> u64 {
        (self.capacity * size_of::<SlabEntry>() + self.zones.len() * size_of::<ZonePool>()) as u64
    }

    /// Returns all entries.
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
            assert!(pools.zone_count() <= (end as usize).div_ceil(1 << ZONE_GRAINS_MAX_LOG2).max(16));
            assert_eq!(pools.units().iter().sum::<u64>(), u64::from(end - start));
            let mut entries: Vec<_> = pools.entries().collect();
            entries.sort_unstable_by_key(|entry| entry.unit());
            let mut next = start;
            for entry in entries {
                assert_eq!(entry.unit(), next);
                assert_eq!(
                    pools.zone_of(entry.pointer()),
                    (entry.unit() + entry.unit_count() - 1) as usize >> pools.zone_shift
                );
                next += entry.unit_count();
            }
            assert_eq!(next, end);
        }
    }

    #[test]
    fn a_longer_entry_is_cut_and_its_rest_stays() {
        let mut pools = HostPools::new(0, 4096);
        let class = SlabClass::for_size(64).unwrap();
        let entry = pools.pop(class, 64).unwrap();
        assert_eq!(entry.unit_count(), 64);
        let rest: u64 = pools.entries().map(SlabEntry::size).sum();
        assert_eq!(rest, (4096 - 64) * UNIT_SIZE as u64);
    }
}
