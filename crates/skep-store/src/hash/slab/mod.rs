//! The slab allocator (KV-Direct, sections 3.3.2 and 4, Fig. 8).
//!
//! ```text
//!        local cache: a stack for each class          host side: pools by class and zone
//!        ┌──────────────────────────┐  batches of 32   ┌─────────────────────────────┐
//! pop ◀──┤ top                  far ├◀─────────────────┤ own class, else a longer    │
//! push ─▶│ end                  end ├─────────────────▶│ stretch, copied             │◀──▶ merge daemon
//!        └──────────────────────────┘                  └─────────────────────────────┘
//! ```
//!
//! 1. An allocation pops the entry on top and takes its first slab. The rest is pushed back.
//! 2. Below the low watermark a batch is copied from the host side, above the high one a batch is moved there, always at the
//!    far end. An entry is four bytes, so a batch is two lines: 2/32 of a line for an allocation.
//! 3. Splitting is this copying: an entry contains its length, so a longer one serves a smaller class.
//! 4. Merging is lazy and runs beside the shard: see `merge.rs`. If there is no slab, `search.rs` merges zone after zone. It
//!    never merges more in a batch than the batch may, and never waits.
//!
//! An operation allocates all the slabs that it needs at once, or none. So a deferred operation has no slabs, and repeated
//! attempts change nothing.
//!
//! Bookkeeping is outside the store's memory: the local cache, which the paper calls the NIC side, has a fixed size. The host
//! side takes four bytes for a free entry and 144 bytes for a zone.

mod entry;
mod front;
mod merge;
mod pool;
mod reserve;
mod search;
mod spare;
mod zone_set;

pub use entry::SlabClass;
pub use front::Front;
pub use merge::MergeDaemon;

use self::entry::SlabEntry;
use self::merge::{Merger, Pass};
use self::pool::HostPools;
use self::search::Search;
use self::spare::Spare;
use crate::memory::{LINE_SIZE, Pointer, UNIT_SIZE};

/// Entries that a stack of the local cache and the host side exchange at once.
const BATCH: usize = 32;
/// A stack of the local cache with this number of entries, or fewer, is refilled.
const LOW_WATERMARK: usize = 4;
/// A batch of a stack of the local cache with more entries is moved to the host side.
const HIGH_WATERMARK: usize = 96;
/// Entries of one zone and shorter than the largest class from which on a pass pays.
const MERGE_WATERMARK_MIN: u32 = 4096;
/// Slabs of each class that the shard keeps when it hands a pass to the daemon: this number, or as many as it hands over.
const RESERVE: u64 = 2 * BATCH as u64;

/// Statistics of the allocator, and of the exchanges between the local cache and the host side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabStatistics {
    /// Slabs allocated.
    pub allocations: u64,
    /// Slabs released.
    pub releases: u64,
    /// Slabs that are allocated, by class.
    pub in_use: [u64; SlabClass::COUNT],
    /// Batches moved either way: memory accesses of a NIC.
    pub batches: u64,
    /// Lines of entries in them.
    pub lines: u64,
    /// Merging passes begun.
    pub merge_passes: u64,
    /// Entries in passes that the shard executed itself, because there was no daemon, or too few slabs to spare.
    pub merged_entries: u64,
}

/// Numbers of slabs by class, for an operation that needs them all.
pub type SlabNeeds = [u32; SlabClass::COUNT];

/// The reason why an operation did not get the slabs that it needs. It got none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSlab {
    /// Merging may yield them: try again in a later batch.
    Later,
    /// Nothing that is free can be joined to them, the slabs with the daemon included. What was released since a zone was last
    /// merged does not count until it is a sixty-fourth of what is free.
    Full,
}

/// The allocator of one shard.
#[derive(Debug)]
pub struct SlabAllocator {
    local: [Vec<SlabEntry>; SlabClass::COUNT],
    host: HostPools,
    merger: Merger,
    /// For each zone, the count of short entries that starts a pass.
    merge_watermarks: Vec<u32>,
    search: Search,
    spare: Spare,
    /// Slabs that are allocated for the next operations: see [`SlabAllocator::reserve`].
    reserved: [Vec<Pointer>; SlabClass::COUNT],
    has_reserved: bool,
    /// Entries that searches may merge in this batch.
    merge_work_max: usize,
    /// Those of them that are left.
    merge_work: usize,
    /// Bytes of the memory, less those that the index has taken.
    size: u64,
    free_size: u64,
    /// Bytes that were released or split, which another search may find joinable.
    changed_size: u64,
    statistics: SlabStatistics,
}

impl SlabAllocator {
    /// Returns an allocator of the memory between two pointers, all of it free.
    pub fn new(start: Pointer, end: Pointer) -> Self {
        let local_capacity = HIGH_WATERMARK + BATCH + Pointer::BITS as usize;
        let host = HostPools::new(start.unit(), end.unit());
        SlabAllocator {
            local: std::array::from_fn(|_| Vec::with_capacity(local_capacity)),
            merge_watermarks: vec![MERGE_WATERMARK_MIN; host.zone_count()],
            host,
            merger: Merger::default(),
            search: Search::default(),
            spare: Spare::new(end),
            reserved: std::array::from_fn(|_| Vec::new()),
            has_reserved: false,
            merge_work_max: usize::MAX,
            merge_work: usize::MAX,
            size: u64::from(end.unit() - start.unit()) * UNIT_SIZE as u64,
            free_size: u64::from(end.unit() - start.unit()) * UNIT_SIZE as u64,
            changed_size: 0,
            statistics: SlabStatistics::default(),
        }
    }

    /// Lets the front of the memory be used last: the index may take it.
    pub fn keep_front(&mut self) {
        self.host.keep_front();
    }

    /// Lets all memory be used as it comes.
    pub fn use_front(&mut self) {
        self.host.use_front();
    }

    /// Returns a daemon that merges, which the caller runs on its own thread.
    pub fn merge_daemon(&mut self) -> MergeDaemon {
        self.merger.daemon()
    }

    /// Returns the bytes that are free, in pieces of any size.
    pub fn free_size(&self) -> u64 {
        self.free_size.saturating_sub(self.spare.debt())
    }

    /// Returns the bytes that the allocator takes besides the memory that it manages.
    pub fn bookkeeping_size(&self) -> u64 {
        let local: usize = self.local.iter().map(Vec::capacity).sum();
        (local * size_of::<SlabEntry>() + self.merge_watermarks.len() * size_of::<u32>()) as u64
            + self.host.bookkeeping_size()
    }

    /// Returns the statistics so far.
    pub fn statistics(&self) -> SlabStatistics {
        self.statistics
    }

    /// Allocates a slab of the class, if there is one without merging.
    pub fn allocate(&mut self, class: SlabClass) -> Option<Pointer> {
        if self.has_reserved
            && let Some(pointer) = self.reserved[class.index()].pop()
        {
            return Some(pointer);
        }
        if self.free_size < self.spare.debt() + class.size() as u64 {
            return None;
        }
        if self.local[class.index()].len() <= LOW_WATERMARK {
            self.refill(class);
        }
        let entry = self.local[class.index()].pop().or_else(|| self.steal(class))?;
        if entry.doublings() as usize > class.index() {
            self.local[class.index()].extend(entry.rest_after(class));
        }
        self.count_allocation(class);
        self.free_size -= class.size() as u64;
        Some(entry.pointer())
    }

    pub(super) fn count_allocation(&mut self, class: SlabClass) {
        self.statistics.allocations += 1;
        self.statistics.in_use[class.index()] += 1;
    }

    /// Takes back a slab that was allocated and not used, as if it had not been allocated.
    pub(crate) fn take_back_unused(&mut self, class: SlabClass, pointer: Pointer) {
        self.statistics.allocations -= 1;
        self.put_back(class, pointer);
    }

    /// Frees a slab.
    pub fn release(&mut self, class: SlabClass, pointer: Pointer) {
        self.statistics.releases += 1;
        if !self.put_back(class, pointer) {
            return;
        }
        self.changed_size += class.size() as u64;
        if self.local[class.index()].len() > HIGH_WATERMARK {
            self.spill(class, BATCH);
            self.merge_above_watermark(pointer);
        }
    }

    /// Forgets all slabs: all memory is free. [`SlabAllocator::return_zones`] makes it available, a part at a time.
    pub fn forget(&mut self) {
        self.local.iter_mut().for_each(Vec::clear);
        self.host.forget();
        self.merger.forget();
        self.search = Search::default();
        self.spare.forget();
        self.size = self.host.size();
        self.free_size = self.size;
        self.statistics.in_use = Default::default();
    }

    /// Makes the memory of the next `count` zones available that were forgotten. Returns true if there are more.
    pub fn return_zones(&mut self, count: usize) -> bool {
        for _ in 0..count {
            let Some(zone) = self.host.return_zone() else { return false };
            self.merge_watermarks[zone] = MERGE_WATERMARK_MIN;
        }
        self.host.has_forgotten()
    }

    /// Returns the largest class of which there are too few slabs for all that is needed, without merging.
    ///
    /// Lengths are powers of two, so the needs can be met if, for each class, the free entries that are no shorter hold as
    /// much as the needs that are no shorter; and then allocations meet them, the largest class first.
    fn lacking(&self, needs: &SlabNeeds) -> Option<SlabClass> {
        let mut free = self.host.units();
        for entry in self.local.iter().flatten() {
            free[(entry.doublings() as usize).min(SlabClass::COUNT - 1)] += u64::from(entry.unit_count());
        }
        let (mut available, mut needed) = (0, 0);
        SlabClass::all().rev().find(|class| {
            available += free[class.index()];
            needed += u64::from(self.beyond_reserved(needs, *class)) << class.index();
            needed > available
        })
    }

    /// Fills the stack of the local cache from the pool of its class, then with longer stretches.
    fn refill(&mut self, class: SlabClass) {
        self.take_back();
        let slots_of = |entry: SlabEntry| entry.unit_count() as usize >> class.index();
        let stack = &mut self.local[class.index()];
        let (before, mut slots) = (stack.len(), 0);
        while slots < BATCH {
            let room = u32::try_from((BATCH - slots).next_power_of_two() << class.index()).expect("a batch is small");
            let Some(entry) = self.host.pop(class, room) else { break };
            if entry.doublings() as usize > class.index() {
                // What is cut off may be joined again, and no release will tell.
                self.changed_size += SlabClass::LARGEST.size() as u64;
            }
            slots += slots_of(entry);
            stack.push(entry);
        }
        let moved = stack.len() - before;
        // The new entries are at the far end, so that those that were on top stay on top.
        stack.rotate_left(before);
        self.count_batch(moved);
    }

    /// Takes a longer stretch from the local cache of another class: the last resort before a merge.
    fn steal(&mut self, class: SlabClass) -> Option<SlabEntry> {
        let found = |stack: &Vec<SlabEntry>| stack.iter().position(|e| e.doublings() as usize >= class.index());
        let (owner, index) = (0..SlabClass::COUNT).find_map(|owner| Some((owner, found(&self.local[owner])?)))?;
        Some(self.local[owner].swap_remove(index))
    }

    /// Moves entries from the far end to the host side.
    fn spill(&mut self, class: SlabClass, count: usize) {
        for entry in self.local[class.index()].drain(..count) {
            self.host.push(entry);
        }
        self.count_batch(count);
    }

    fn count_batch(&mut self, entry_count: usize) {
        if entry_count > 0 {
            self.statistics.batches += 1;
            self.statistics.lines += (entry_count * size_of::<SlabEntry>()).div_ceil(LINE_SIZE) as u64;
        }
    }

    /// Starts a pass over the zone of a released slab if short entries pile up there.
    fn merge_above_watermark(&mut self, released: Pointer) {
        self.take_back();
        // Merging in the shard would stall it; without a daemon it is done in need only. A search that operations wait for merges
        // each zone anyway.
        if !self.merger.has_daemon() || !self.merger.is_idle() || self.is_searching() {
            return;
        }
        let zone = self.host.zone_of(released);
        let (count, _) = self.host.shorter_than(SlabClass::LARGEST, zone);
        if count > self.merge_watermarks[zone] as usize && self.host.can_spare(zone, RESERVE) {
            // While the daemon has a pass, no search counts as ended.
            self.note_end();
            self.hand_over(zone);
        }
    }

    /// Sends the short entries of a zone to the daemon.
    fn hand_over(&mut self, zone: usize) {
        self.statistics.merge_passes += 1;
        let pool = self.host.take_short(zone);
        self.merger.begin(Pass { zone, pool });
    }

    /// Takes back what the daemon has merged. Returns true if there was anything.
    fn take_back(&mut self) -> bool {
        let mut any = false;
        while let Some(pass) = self.merger.poll() {
            self.end_pass(pass);
            any = true;
        }
        any
    }

    fn end_pass(&mut self, pass: Pass) {
        self.host.give(pass.zone, pass.pool);
        let (left, _) = self.host.shorter_than(SlabClass::LARGEST, pass.zone);
        // Twice what cannot be joined now: the work of merging stays in proportion to what is released.
        self.merge_watermarks[pass.zone] = (2 * left as u32).max(MERGE_WATERMARK_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use std::collections::BTreeMap;

    fn allocator(size: usize) -> SlabAllocator {
        SlabAllocator::new(Pointer::new(0), Pointer::new((size / UNIT_SIZE) as u32))
    }

    fn class(size: usize) -> SlabClass {
        SlabClass::for_size(size).unwrap()
    }

    /// Allocates, merging in need, as a store does.
    fn allocate(allocator: &mut SlabAllocator, class: SlabClass) -> Option<Pointer> {
        loop {
            match allocator.take(class) {
                Ok(pointer) => return Some(pointer),
                Err(NoSlab::Later) => std::thread::yield_now(),
                Err(NoSlab::Full) => return None,
            }
        }
    }

    #[test]
    fn every_byte_can_be_allocated_in_any_class_and_again_in_another() {
        let size = 1 << 18;
        let mut allocator = allocator(size);
        for class in SlabClass::all().chain(SlabClass::all().rev()) {
            let slabs: Vec<_> = std::iter::from_fn(|| allocate(&mut allocator, class)).collect();
            assert_eq!(slabs.len() * class.size(), size, "{class:?}");
            assert_eq!(allocator.free_size(), 0);
            for slab in slabs {
                allocator.release(class, slab);
            }
        }
    }

    /// The last units that a pointer of 31 bits names, and memory of 64 GiB: arithmetic alone, no memory is touched.
    #[test]
    fn the_end_of_what_pointers_reach_is_allocated() {
        let end = Pointer::new((1 << 31) - 2);
        let start = Pointer::new(end.unit() - 4094);
        let mut allocator = SlabAllocator::new(start, end);
        for class in SlabClass::all() {
            let slabs: Vec<_> = std::iter::from_fn(|| allocate(&mut allocator, class)).collect();
            let units = class.size() as u32 / UNIT_SIZE as u32;
            let whole = (end.unit() / units - start.unit().div_ceil(units)) as usize;
            assert_eq!(slabs.len(), whole, "{class:?}");
            assert!(slabs.iter().all(|slab| slab.unit() >= start.unit() && slab.unit() + units <= end.unit()));
            for slab in slabs {
                allocator.release(class, slab);
            }
        }
        let mut allocator = SlabAllocator::new(Pointer::new(2), end);
        assert_eq!(allocator.free_size(), (64 << 30) - 128);
        assert_eq!(allocate(&mut allocator, class(512)).unwrap().unit() % 16, 0);
    }

    #[test]
    fn an_allocation_costs_less_than_eight_hundredths_of_a_line() {
        for slab_size in [32, 64, 128, 256, 512] {
            let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(slab_size as u64);
            let mut allocator = allocator(1 << 30);
            let mut slabs = Vec::new();
            let class = class(slab_size);
            // Up and down in long runs: the worst for a stack.
            for _ in 0..40 {
                for _ in 0..20_000 {
                    slabs.push(allocator.allocate(class).unwrap());
                }
                for _ in 0..random.random_range(5_000..20_000) {
                    let index = random.random_range(0..slabs.len());
                    allocator.release(class, slabs.swap_remove(index));
                }
            }
            let statistics = allocator.statistics();
            let share = statistics.lines as f64 / (statistics.allocations + statistics.releases) as f64;
            assert!(share < 0.08, "{slab_size} B slabs: {share} lines for an allocation or release");
            assert!(statistics.batches > 100, "the host side took part");
        }
    }

    /// Random allocations and releases of all classes: no two slabs overlap, and all comes back.
    fn stress(mut allocator: SlabAllocator, size: usize, steps: usize, seed: u64) -> SlabAllocator {
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut taken = BTreeMap::new();
        for step in 0..steps {
            // Phases of small and of large slabs, so that splitting and merging alternate.
            let favoured = step / 5_000 % SlabClass::COUNT;
            if random.random_bool(0.55) {
                let wanted = if random.random_bool(0.8) { favoured } else { random.random_range(0..SlabClass::COUNT) };
                let class = SlabClass::all().nth(wanted).unwrap();
                if let Some(pointer) = allocate(&mut allocator, class) {
                    assert!(pointer.unit().is_multiple_of(1 << class.index()), "a slab is aligned to its size");
                    let end = pointer.byte_offset() + class.size();
                    assert!(end <= size);
                    let below = taken.range(..end).next_back();
                    let free =
                        below.is_none_or(|(start, c): (&usize, &SlabClass)| start + c.size() <= pointer.byte_offset());
                    assert!(free, "seed {seed} step {step}: slabs overlap");
                    taken.insert(pointer.byte_offset(), class);
                }
            } else if let Some((&start, &class)) = taken.range(random.random_range(0..size)..).next() {
                taken.remove(&start);
                allocator.release(class, Pointer::new((start / UNIT_SIZE) as u32));
            }
        }
        for (start, class) in taken {
            allocator.release(class, Pointer::new((start / UNIT_SIZE) as u32));
        }
        assert_eq!(allocator.free_size(), size as u64);
        allocator
    }

    #[test]
    fn slabs_never_overlap_and_all_come_back() {
        for seed in 0..4 {
            let size = 1 << (14 + 2 * seed);
            let mut allocator = stress(allocator(size), size, 60_000, seed);
            let all = std::iter::from_fn(|| allocate(&mut allocator, SlabClass::LARGEST)).count();
            assert_eq!(all * 512, size, "seed {seed}: everything merges back");
            assert!(allocator.statistics().merge_passes > 0);
        }
    }

    #[test]
    fn slabs_never_overlap_beside_a_daemon() {
        let size = 1 << 20;
        let mut allocator = allocator(size);
        let daemon = allocator.merge_daemon();
        let thread = std::thread::spawn(move || daemon.run());
        let mut allocator = stress(allocator, size, 200_000, 77);
        let all = std::iter::from_fn(|| allocate(&mut allocator, SlabClass::LARGEST)).count();
        assert_eq!(all * 512, size);
        drop(allocator);
        thread.join().unwrap();
    }

    /// A store full of fragments, in which each put uses up what the delete before it made possible.
    #[test]
    fn merging_for_one_slab_at_a_time_does_not_sort_everything_each_time() {
        let mut allocator = allocator(1 << 20);
        let (small, wanted) = (class(32), class(64));
        let mut slabs: Vec<_> = std::iter::from_fn(|| allocate(&mut allocator, small)).collect();
        slabs.sort_unstable();
        for slab in slabs.iter().step_by(2) {
            allocator.release(small, *slab);
        }
        let (mut found, deletes) = (0, slabs.len() / 4);
        for slab in slabs[1..].iter().step_by(2).take(deletes) {
            allocator.release(small, *slab);
            found += usize::from(allocate(&mut allocator, wanted).is_some());
        }
        let passes = allocator.statistics().merge_passes as usize;
        assert!(passes < deletes / 10, "{passes} passes for {deletes} deletes");
        // All but the sixty-fourth part of the free half.
        assert!(deletes - found <= deletes / 16, "{found} slabs of 64 B for {deletes} joined pairs");
    }

    /// While at most 2 KiB are free, every release counts, so `Full` is exact.
    #[test]
    fn a_small_memory_is_full_only_if_nothing_can_be_joined() {
        let size = 4096;
        let mut fulls = 0;
        for seed in 0..200 {
            let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut allocator = allocator(size);
            let mut free = vec![true; size / UNIT_SIZE];
            let mut taken = Vec::new();
            for step in 0..400 {
                if random.random_bool(0.6) {
                    let class = SlabClass::all().nth(random.random_range(0..SlabClass::COUNT)).unwrap();
                    let units = class.size() / UNIT_SIZE;
                    match allocate(&mut allocator, class) {
                        Some(pointer) => {
                            free[pointer.unit() as usize..][..units].fill(false);
                            taken.push((class, pointer));
                        }
                        None if allocator.free_size() > 2048 => {}
                        None => {
                            fulls += 1;
                            let joinable = free.chunks(units).any(|slab| slab.iter().all(|free| *free));
                            assert!(!joinable, "seed {seed} step {step}: {class:?}");
                        }
                    }
                } else if !taken.is_empty() {
                    let (class, pointer) = taken.swap_remove(random.random_range(0..taken.len()));
                    free[pointer.unit() as usize..][..class.size() / UNIT_SIZE].fill(true);
                    allocator.release(class, pointer);
                }
            }
        }
        assert!(fulls > 1000);
    }

    /// A daemon that goes away, before its pass or instead of another, takes no entry with it.
    #[test]
    fn a_daemon_that_is_dropped_takes_nothing_with_it() {
        let size = 1 << 18;
        for replaced in [false, true] {
            let mut allocator = allocator(size);
            let daemon = allocator.merge_daemon();
            let slabs: Vec<_> = std::iter::from_fn(|| allocator.allocate(class(32))).collect();
            for slab in slabs {
                allocator.release(class(32), slab);
            }
            // The first passes are in the channel, and no thread runs the daemon.
            assert_eq!(allocator.allocate(class(512)), None);
            assert_eq!(allocator.take(class(512)), Err(NoSlab::Later));
            let successor = replaced.then(|| allocator.merge_daemon());
            drop(daemon);
            let thread = successor.map(|daemon| std::thread::spawn(move || daemon.run()));
            let all = std::iter::from_fn(|| allocate(&mut allocator, class(512))).count();
            assert_eq!(all * 512, size);
            drop(allocator);
            if let Some(thread) = thread {
                thread.join().unwrap();
            }
        }
    }

    /// Slabs that cannot be joined are not sorted again for each allocation that fails.
    #[test]
    fn a_memory_full_of_fragments_fails_cheaply() {
        let mut allocator = allocator(1 << 20);
        let small = class(32);
        let slabs: Vec<_> = std::iter::from_fn(|| allocate(&mut allocator, small)).collect();
        for slab in slabs.iter().step_by(2) {
            allocator.release(small, *slab);
        }
        assert_eq!(allocate(&mut allocator, class(64)), None);
        let passes = allocator.statistics().merge_passes;
        assert!(passes > 0);
        for _ in 0..1000 {
            assert_eq!(allocate(&mut allocator, class(64)), None);
        }
        assert_eq!(allocator.statistics().merge_passes, passes);
        for slab in slabs.iter().skip(1).step_by(2) {
            allocator.release(small, *slab);
        }
        assert!(allocate(&mut allocator, class(64)).is_some());
    }
}
