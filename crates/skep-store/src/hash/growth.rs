//! Growth of the hash index: more home buckets when chains get long, as far as the memory is not needed for slabs.
//!
//! ```text
//! memory  ├── index ──┤ ◀── grows ──▶ │ free │ ◀── slabs are allocated from the end down ──┤
//! ```
//!
//! 1. A batch after which there are [too many overflow buckets](HashTable::overflow_max) takes the memory after the index, if
//!    all of it is free: some of its entries, and the next batches the others. Then growth begins. If it is not free, or is
//!    needed for slabs meanwhile, what was taken is given back.
//! 2. That batch and the following ones move some keys each: [`MOVED_PER_INSERTION`] for a pair that they have inserted, and
//!    one for each request, up to [`MOVED_FOR_REQUESTS`]. So the work of growth has a bound for each request, however the
//!    requests are divided into batches. [`Index`](super::index::Index) says where a key is meanwhile.
//! 3. A flush makes the index as small as at the start.
//!
//! **Why the index does not take the memory of the pairs.** The fuller the memory, the more overflow buckets are accepted: from
//! half of it on, the index hardly grows. With short chains, one more home bucket saves accesses; with long ones, the same
//! memory holds more pairs in overflow buckets, which are full except the last.
//!
//! **Why it is right.** Growth runs between batches, when no operation is in flight. Chains are copied before their keys are
//! inserted again, and their slabs are freed after that. A group of buckets is only moved if enough free slabs are at hand
//! without merging, so no insertion fails. Slabs themselves stay where they are.
//!
//! **What it costs.** A key is moved about two times while its store grows to its final size: a read and a write of its bucket,
//! one bucket after the other in the order of addresses, and a read of its slab, if it has one.

use std::ops::Range;

use super::bucket::{Bucket, Entry, SlabSlot};
use super::bucket_index::BucketIndex;
use super::edit::NewEntry;
use super::find::{Lanes, WithLanes};
use super::index::{Moved, OVERFLOW_INLINE};
use super::object;
use super::slab::{Front, SlabClass};
use super::table::HashTable;
use crate::memory::{LINE_SIZE, Memory, Pointer, ResidentLines, UNIT_SIZE};

/// Keys that a batch moves for each pair that it has inserted. A bucket counts as a key too.
const MOVED_PER_INSERTION: u64 = 9;
/// Keys that a batch moves at most for its requests, besides these.
const MOVED_FOR_REQUESTS: u64 = 32;
/// Most keys that a batch moves, and at most the rest of a group: some hundred microseconds.
const MOVED_MAX: u64 = 2048;
/// Slots that count as a key that is moved.
const SLOTS_PER_KEY: usize = 3;
/// Old buckets that are copied at once, about.
const GROUP: u32 = 32;
/// Overflow buckets that the keys of a bucket may need, besides those that they have: the keys of a chain go to three home
/// buckets, and each overflow bucket is at least half full, except the last.
const BUCKETS_PER_MOVED: usize = 4;

/// [`OVERFLOW_INLINE`] if all pairs are in slabs: a chain adds less to what an access costs.
const OVERFLOW_IN_SLABS: f64 = 1.0 / 4.0;
/// The same if no memory is free.
const OVERFLOW_FULL: f64 = 0.9;
/// One in this many bytes of the memory stays free when the index begins to grow: for operations that were promised memory.
const SPARED_PART: u64 = 32;
/// Free entries of the memory that a batch takes for the index instead of moving a key, and at most a zone more.
const TAKEN_ENTRIES_PER_KEY: usize = 8;
/// Memory is plentiful as long as this share of it is free.
const PLENTIFUL: f64 = 0.5;

/// By which part of its home buckets the index grows: the first for which there is memory. Larger parts take fewer moves.
const PARTS: [f64; 2] = [1.0 / 2.0, 1.0 / 8.0];
/// The same while the index has at most one in [`SMALL_PART`] bytes of the memory.
const PARTS_WHILE_SMALL: [f64; 2] = [1.0, 1.0 / 2.0];
const SMALL_PART: u64 = 8;

impl<M: Memory> HashTable<M> {
    /// Lets the index grow, for a batch of `count` requests, after which the table has `inserted` more pairs.
    #[inline]
    pub(crate) async fn grow(&self, count: usize, inserted: u64, group: &mut Vec<(BucketIndex, Bucket)>) {
        if self.index.is_growing() || self.growth.is_due(self.overflow_count()) || self.growth.is_taking() {
            let keys = (inserted * MOVED_PER_INSERTION + MOVED_FOR_REQUESTS.min(count as u64)).min(MOVED_MAX);
            self.continue_to_grow(keys as usize, group).await;
        }
    }

    #[cold]
    async fn continue_to_grow(&self, keys: usize, group: &mut Vec<(BucketIndex, Bucket)>) {
        if self.is_flushing() || self.memory().resident().is_none() {
            return;
        }
        if !(self.index.is_growing() || self.begin_to_grow(keys * TAKEN_ENTRIES_PER_KEY)) {
            return;
        }
        let mut left = keys;
        let mut homes_max = GROUP;
        while left > 0
            && let Some(end) = self.index.end_of_old()
        {
            // Buckets of a chain, on average.
            let chain = 1 + self.overflow_count() / u64::from(end);
            let homes = (homes_max / chain as u32).clamp(1, end).min(left as u32);
            // Before the chains are read, as far as their length is known.
            if !self.slabs().has_buckets(homes as usize * BUCKETS_PER_MOVED) {
                return;
            }
            self.read_group(group, end - homes..end).await;
            if !self.slabs().has_buckets(group.len() * BUCKETS_PER_MOVED) {
                if homes == 1 {
                    return;
                }
                homes_max = 1;
                continue;
            }
            let moved = self.index.next_to_move(end - homes);
            (moved.first_new..moved.end_new).for_each(|new| self.prefetch(BucketIndex(new)));
            let slots: usize = group.iter().map(|(_, bucket)| bucket.used_slot_count()).sum();
            self.move_group(&moved, group);
            left = left.saturating_sub(group.len() + slots / SLOTS_PER_KEY);
        }
    }

    /// Begins to grow, if there are too many overflow buckets and memory for more home buckets. Returns true if it has begun.
    /// Otherwise, it may have taken a part of the memory: this number of its free entries, and at most a zone more.
    fn begin_to_grow(&self, entries_max: usize) -> bool {
        let is_small = self.index_size() <= self.memory().size() / SMALL_PART;
        for part in if is_small { PARTS_WHILE_SMALL } else { PARTS } {
            let grown = self.grown(part);
            match self.take_for_growth(grown, entries_max) {
                Front::Taken => {
                    self.index.begin_to_grow(grown);
                    self.slabs().give_front_back(Pointer::to_line(grown.into()));
                    self.growth.set_taking(false);
                    return true;
                }
                Front::Begun => {
                    self.growth.set_taking(true);
                    return false;
                }
                Front::InUse => {}
            }
        }
        self.slabs().give_front_back(Pointer::to_line(self.index.count().into()));
        self.growth.set_taking(false);
        self.growth.refuse(self.overflow_count());
        false
    }

    /// Returns the number of home buckets after growth by a part.
    fn grown(&self, part: f64) -> u32 {
        let count = self.index.count();
        (count + (f64::from(count) * part).ceil() as u32).min(self.growth.count_max)
    }

    /// Takes the memory for this number of home buckets, if there are too many overflow buckets, and enough memory.
    fn take_for_growth(&self, grown: u32, entries_max: usize) -> Front {
        let count = self.index.count();
        let (start, end) = (self.slabs().start(), Pointer::to_line(grown.into()));
        let more = u64::from(end.unit().saturating_sub(start.unit())) * UNIT_SIZE as u64;
        let spared = self.memory().size() / SPARED_PART;
        let needed = 2 * GROUP as usize * BUCKETS_PER_MOVED + ((spared + more) / LINE_SIZE as u64) as usize;
        if grown == count
            || self.overflow_count() <= self.overflow_max(count, more)
            || !self.slabs().has_buckets(needed)
        {
            return Front::InUse;
        }
        self.slabs().take_front(end, entries_max)
    }

    /// Returns the number of overflow buckets that this number of home buckets may have, before `more` bytes are taken for others.
    fn overflow_max(&self, home_count: u32, more: u64) -> u64 {
        let statistics = self.slab_statistics();
        let slabs: u64 = statistics.in_use.iter().sum::<u64>() - self.overflow_count();
        let share_in_slabs = (slabs as f64 / self.pair_count().max(1) as f64).min(1.0);
        let usual = OVERFLOW_INLINE + share_in_slabs * (OVERFLOW_IN_SLABS - OVERFLOW_INLINE);
        let free = self.slab_free_size().saturating_sub(more) as f64 / self.memory().size() as f64;
        let scarcity = (1.0 - free / PLENTIFUL).clamp(0.0, 1.0).powi(2);
        (f64::from(home_count) * (usual + scarcity * (OVERFLOW_FULL - usual))) as u64
    }

    /// Lets the index of an empty table have this many home buckets, if it grows and has fewer. It does not grow until
    /// [`HashTable::unfix_index`], and slabs may be anywhere.
    pub(crate) async fn fix_index(&self, count: u32) {
        let before = self.index.count();
        let is_taken = self.growth.is_possible()
            && count > before
            && self.slabs().take_front(Pointer::to_line(count.into()), usize::MAX) == Front::Taken;
        if is_taken {
            for bucket in before..count {
                self.memory().write_line(BucketIndex(bucket).pointer(), Bucket::EMPTY.as_line()).await;
            }
            self.index.reset(count);
        }
        self.slabs().give_front_back(Pointer::to_line(self.index.count().into()));
        self.growth.stop();
        self.slabs().use_front();
    }

    /// Lets the index grow again, if it does.
    pub(crate) fn unfix_index(&self) {
        self.growth.consider_at(self.index.count());
        if self.growth.is_possible() {
            self.slabs().keep_front();
        }
    }

    /// Moves the keys of old buckets. The group has copies of these and of their overflow buckets.
    fn move_group(&self, moved: &Moved, group: &[(BucketIndex, Bucket)]) {
        self.search().run(MoveEntries { table: self, group, new: moved.first_new..moved.end_new });
        self.used.set_all(moved.first_new..(moved.end_new + 1).min(self.index.count()));
        if self.index.note_moved(moved) {
            self.growth.consider_at(self.index.count());
        }
        // Not before: releases may hand free slabs to the merge daemon, which are needed here.
        for next in group.iter().filter_map(|(_, bucket)| bucket.chain()) {
            self.release(SlabClass::BUCKET, next);
            self.count_overflow(-1);
        }
    }

    /// Returns the position of the key of a slab.
    fn position_of_slab(&self, lines: &mut impl ResidentLines, slab: SlabSlot) -> u64 {
        let first_line = lines.span(slab.pointer.span(slab.class.size().min(LINE_SIZE)));
        let (key, _) = object::key(slab.class, first_line);
        match first_line.get(key.clone()) {
            Some(key) => self.position(key),
            None => self.position(&lines.span(slab.pointer.span(key.end))[key]),
        }
    }
}

/// Empties new home buckets, and inserts the entries of old ones into their new chains. The group has copies of the old ones.
///
/// Runs under `Search::run` only so that it is compiled with BMI2: it shifts the marks of buckets.
struct MoveEntries<'a, M> {
    table: &'a HashTable<M>,
    group: &'a [(BucketIndex, Bucket)],
    new: Range<u32>,
}

impl<M: Memory> WithLanes for MoveEntries<'_, M> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: impl Lanes) {
        let MoveEntries { table, group, new } = self;
        let mut lines = table.memory().resident().expect("an index grows on resident lines");
        for bucket in new.map(BucketIndex) {
            lines.new_span(bucket.pointer().span(LINE_SIZE)).copy_from_slice(&Bucket::EMPTY.as_line().0);
        }
        for (_, bucket) in group {
            for (slot, entry) in bucket.entries() {
                let position = match entry {
                    Entry::Inline(pair) => table.position(bucket.inline_key(pair)),
                    Entry::Slab(slab) => table.position_of_slab(&mut lines, slab),
                };
                let home = table.index.new_bucket(position);
                let is_inserted =
                    table.push_resident(&mut lines, home, &NewEntry::Of(bucket, slot, entry.slot_count()));
                assert!(is_inserted, "there are free slabs for overflow buckets");
            }
        }
    }
}
