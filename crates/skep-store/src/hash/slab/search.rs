//! The search for a slab when none is free: zones are merged one after the other, until one yields the needed slab.
//!
//! ```text
//! zones    0   1   2   3   4   5   6   7   ...
//!          └ merged ┘  └ with the ─┘   └ next
//!                        daemon
//! ```
//!
//! One search serves all operations that lack slabs, of every class. It visits all zones once. Another search begins when
//! enough was released to make another outcome likely. A zone whose short entries hold less than two units is skipped. The
//! others are merged:
//!
//! 1. The local cache is moved to the host side, so that the zone has all of its free entries.
//! 2. A zone with few short entries, at most [`FEW`], is merged by the shard itself: that takes less time than to hand it over.
//! 3. The daemon gets the others, if there is a daemon and the shard keeps slabs of each class without them: two batches, or
//!    as many as go. So small operations go on.
//! 4. Otherwise the shard merges the zone itself, as far as the batch has work left.
//!
//! After a flush, memory that the allocator has forgotten is returned first, zone by zone.
//!
//! The search never waits. If the daemon has the most passes, or the batch has no work left, the outcome is
//! [`NoSlab::Later`] and the search continues in the next batch.
//!
//! **Every operation is done or refused after two searches**, one that was begun before it and a whole one, although others
//! take what merging yields, and release slabs that make another search worthwhile. One that tries seldom may wait for two
//! more:
//!
//! 1. An operation that is told to try later is a *waiter* ([`SlabAllocator::may_wait`]). It has the number of the search that
//!    was the last one to begin before it.
//! 2. A search has ended when all zones were merged and no pass is with the daemon. A waiter that still lacks slabs when a later
//!    search than its own has ended is refused: what was free in any zone was joined since it came, and nothing that fits was
//!    left to it. It does not matter that there are newer searches.
//! 3. Another search begins when an operation lacks slabs and so much was released since the last one began that it may have
//!    another outcome: a sixty-fourth of what is free.
//! 4. A waiter is known by its key only. If it has not tried since the last ended search began, or for more than [`AWAY`]
//!    batches, its client may have gone, and this is another operation on the key. So it counts once as one that has just
//!    come.
//! 5. A waiter that does not try again is forgotten after [`LAPSE`] batches.

use std::collections::HashMap;

use super::merge::{Pass, merge};
use super::{NoSlab, RESERVE, SlabAllocator, SlabClass, SlabNeeds};
use crate::memory::{Pointer, UNIT_SIZE};

/// The cost of passing over a zone, or merging one, besides its entries.
const ZONE_WORK: usize = 8;

/// Short entries of a zone up to which the shard merges it itself: some microseconds.
const FEW: usize = 256;

/// Batches after which a waiter that has not tried again is forgotten. A hold may be as many batches.
const LAPSE: u64 = 1 << 14;
/// Batches without an attempt after which a waiter that is to be refused may be another operation on the same key. Operations
/// of other shards, which try again after a moment, usually have fewer between two attempts.
const AWAY: u64 = 64;

/// Batches without progress after which a search counts as given up, until an operation lacks slabs again.
const STALLED: u32 = 64;

/// Most waiters. Others wait without being counted among them until there are fewer.
const WAITERS_MAX: usize = 1 << 16;
/// Waiters that the memory is kept for.
const WAITERS_KEPT: usize = 1 << 10;

/// An operation that was told to try later.
#[derive(Debug)]
struct Waiter {
    /// The number of the last search that had begun before it came.
    search: u64,
    /// The number of the last search that had begun when it tried last.
    seen: u64,
    /// It was taken for one that had just come.
    is_renewed: bool,
    /// The batch in which it tried last.
    tried: u64,
}

/// The state of the search for slabs, and its waiters.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The number of searches so far, with this one.
    number: u64,
    /// The number of the last one that has ended.
    ended: u64,
    next_zone: usize,
    /// `changed_size` when it began.
    changed_before: u64,
    waiters: HashMap<u64, Waiter>,
    /// Batches so far.
    batches: u64,
    /// Batches since it last made progress, and none was with the daemon.
    stalled: u32,
}

/// The result of merging.
enum Outcome {
    /// Something came back: try again now.
    Retry,
    Later,
    Full,
}

impl SlabAllocator {
    /// Begins a batch, in which the shard itself merges until it has had `merge_work` entries, and then at most the rest of
    /// a zone.
    pub fn begin_batch(&mut self, merge_work: usize) {
        self.merge_work_max = if self.spare.is_open() { usize::MAX } else { merge_work };
        self.merge_work = self.merge_work_max;
        self.search.batches += 1;
        if self.search.batches.is_multiple_of(LAPSE) {
            self.forget_lapsed();
        }
        if self.is_searching() {
            let has_progress = self.take_back() || !self.merger.is_idle();
            self.search.stalled = if has_progress { 0 } else { self.search.stalled + 1 };
        }
    }

    /// Returns the work that merging was to the shard itself in this batch: entries, and some for each zone.
    pub fn work_of_merging(&self) -> usize {
        self.merge_work_max - self.merge_work
    }

    /// Notes that an operation was told to try later. Returns false if it is to be refused instead, because a whole search
    /// found too little for it.
    pub fn may_wait(&mut self, waiter: u64) -> bool {
        self.note_end();
        let Search { number, ended, batches, waiters, .. } = &mut self.search;
        match waiters.get_mut(&waiter) {
            Some(waiter) if *batches - waiter.tried <= LAPSE => {
                let was_away = waiter.seen < *ended || *batches - waiter.tried > AWAY;
                if waiter.search < *ended && was_away && !waiter.is_renewed {
                    (waiter.search, waiter.is_renewed) = (*number, true);
                }
                (waiter.seen, waiter.tried) = (*number, *batches);
                waiter.search >= *ended
            }
            known => {
                if known.is_some() || waiters.len() < WAITERS_MAX {
                    let new = Waiter { search: *number, seen: *number, is_renewed: false, tried: *batches };
                    waiters.insert(waiter, new);
                }
                true
            }
        }
    }

    /// Returns true if operations wait, or have waited and were not tried again.
    #[inline(always)]
    pub fn has_waiters(&self) -> bool {
        !self.search.waiters.is_empty()
    }

    /// Notes that an operation, which may have waited, is done or refused.
    pub fn end_wait(&mut self, waiter: u64) {
        self.search.waiters.remove(&waiter);
    }

    /// Forgets the waiters that have not tried again.
    fn forget_lapsed(&mut self) {
        let Search { waiters, batches, .. } = &mut self.search;
        waiters.retain(|_, waiter| *batches - waiter.tried <= LAPSE);
        waiters.shrink_to(WAITERS_KEPT);
    }

    /// Returns true if a search has begun, has not ended and was not given up.
    pub(super) fn is_searching(&self) -> bool {
        self.search.next_zone > 0 && !self.has_ended() && self.search.stalled <= STALLED
    }

    /// Returns true if all zones were merged.
    fn has_ended(&self) -> bool {
        self.search.next_zone == self.host.zone_count() && self.merger.is_idle()
    }

    /// Notes the end of the search, if it has ended.
    pub(super) fn note_end(&mut self) {
        if self.has_ended() {
            self.search.ended = self.search.number;
        }
    }

    /// Allocates a slab of the class.
    pub fn take(&mut self, class: SlabClass) -> Result<Pointer, NoSlab> {
        let taken = self.merging(|slabs| slabs.allocate(class).ok_or(class));
        if taken.is_err() && self.spare.is_open() { self.take_with_spare(class) } else { taken }
    }

    /// Allocates all slabs that are needed, the largest first; or none.
    pub fn take_all(&mut self, needs: &SlabNeeds, mut give: impl FnMut(SlabClass, Pointer)) -> Result<(), NoSlab> {
        let taken = self.take_all_of_memory(needs, &mut give);
        if taken.is_err() && self.spare.is_open() { self.take_all_with_spare(needs, &mut give) } else { taken }
    }

    fn take_all_of_memory(
        &mut self,
        needs: &SlabNeeds,
        give: &mut impl FnMut(SlabClass, Pointer),
    ) -> Result<(), NoSlab> {
        let size = |class: SlabClass| u64::from(self.beyond_reserved(needs, class)) * class.size() as u64;
        let needed: u64 = SlabClass::all().map(size).sum();
        if needed > self.free_size() {
            return Err(NoSlab::Full);
        }
        self.merging(|slabs| slabs.lacking(needs).map_or(Ok(()), Err))?;
        for class in SlabClass::all().rev() {
            for _ in 0..needs[class.index()] {
                give(class, self.allocate(class).expect("none is lacking"));
            }
        }
        Ok(())
    }

    /// Returns true if there is a slab of the class without merging.
    pub fn has(&self, class: SlabClass) -> bool {
        let mut needs = SlabNeeds::default();
        needs[class.index()] = 1;
        self.lacking(&needs).is_none()
    }

    /// Attempts something until it succeeds or merging yields no more slabs of the class that it lacks.
    fn merging<T>(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<T, SlabClass>) -> Result<T, NoSlab> {
        loop {
            let lacking = match attempt(self) {
                Ok(taken) => return Ok(taken),
                Err(class) => class,
            };
            if lacking.size() as u64 > self.free_size() {
                return Err(NoSlab::Full);
            }
            match self.search() {
                Outcome::Retry => {}
                Outcome::Later => return Err(NoSlab::Later),
                Outcome::Full => return Err(NoSlab::Full),
            }
        }
    }

    /// Continues the search.
    #[cold]
    fn search(&mut self) -> Outcome {
        if self.take_back() {
            return Outcome::Retry;
        }
        if self.host.has_forgotten() {
            if self.merge_work == 0 {
                return Outcome::Later;
            }
            self.merge_work = self.merge_work.saturating_sub(ZONE_WORK);
            self.return_zones(1);
            return Outcome::Retry;
        }
        if self.search.next_zone == self.host.zone_count() {
            if !self.merger.is_idle() {
                return Outcome::Later;
            }
            if self.changed_size - self.search.changed_before < (self.free_size / 64).max(UNIT_SIZE as u64) {
                return Outcome::Full;
            }
            self.note_end();
            self.search.number += 1;
            (self.search.next_zone, self.search.stalled) = (0, 0);
            self.search.changed_before = self.changed_size;
        }
        if self.merge_work == 0 || !self.merger.has_room() || self.merger.is_away(self.search.next_zone) {
            return Outcome::Later;
        }
        for near_class in SlabClass::all() {
            let count = self.local[near_class.index()].len();
            self.spill(near_class, count);
        }
        self.search_zones()
    }

    /// Merges the next zones, or has them merged.
    fn search_zones(&mut self) -> Outcome {
        loop {
            let zone = self.search.next_zone;
            if zone == self.host.zone_count() {
                return Outcome::Retry;
            }
            // What is with the daemon was taken for another reason, without the local cache: the zone has its turn later.
            if self.merge_work == 0 || self.merger.is_away(zone) {
                return Outcome::Later;
            }
            self.merge_work = self.merge_work.saturating_sub(ZONE_WORK);
            let (count, size) = self.host.shorter_than(SlabClass::LARGEST, zone);
            let is_joinable = size >= 2 * UNIT_SIZE as u64;
            let is_for_daemon =
                count > FEW && self.merger.has_daemon() && !self.spare.is_open() && self.host.can_spare(zone, RESERVE);
            if is_joinable && is_for_daemon && !self.merger.has_room() {
                return Outcome::Later;
            }
            (self.search.next_zone, self.search.stalled) = (zone + 1, 0);
            if is_joinable && is_for_daemon {
                self.hand_over(zone);
            } else if is_joinable {
                self.merge_here(zone);
                return Outcome::Retry;
            }
        }
    }

    /// Merges a zone in the shard.
    fn merge_here(&mut self, zone: usize) {
        self.statistics.merge_passes += 1;
        let pool = self.host.take_short(zone);
        self.statistics.merged_entries += pool.len() as u64;
        self.merge_work = self.merge_work.saturating_sub(pool.len());
        self.end_pass(Pass { zone, pool: merge(pool) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(size: usize) -> SlabClass {
        SlabClass::for_size(size).unwrap()
    }

    /// Returns an allocator of 64 KiB, all of it allocated as slabs of 32 B.
    fn full() -> (SlabAllocator, Vec<Pointer>) {
        full_of(1 << 11)
    }

    /// Returns an allocator of this number of units, which are all allocated.
    fn full_of(units: u32) -> (SlabAllocator, Vec<Pointer>) {
        let mut allocator = SlabAllocator::new(Pointer::new(0), Pointer::new(units));
        let mut slabs: Vec<_> = std::iter::from_fn(|| allocator.allocate(class(32))).collect();
        slabs.sort_unstable();
        (allocator, slabs)
    }

    /// If a pass would take nearly all free slabs, the shard merges itself: allocations succeed beside a daemon that does
    /// nothing.
    #[test]
    fn the_last_free_slabs_stay_with_the_shard() {
        let (mut allocator, slabs) = full();
        let _held_back = allocator.merge_daemon();
        for slab in slabs.iter().step_by(2).take(60) {
            allocator.release(class(32), *slab);
        }
        assert_eq!(allocator.take(class(64)), Err(NoSlab::Full), "no two are neighbours");
        assert!((0..60).all(|_| allocator.allocate(class(32)).is_some()), "none was away");
    }

    #[test]
    fn passes_leave_a_reserve_of_each_class() {
        const FREE: u64 = 1 << 14;
        let (mut allocator, slabs) = full_of(2 * FREE as u32);
        let _held_back = allocator.merge_daemon();
        for slab in slabs.iter().step_by(2) {
            allocator.release(class(32), *slab);
        }
        assert_eq!(allocator.take(class(64)), Err(NoSlab::Later));
        let left = std::iter::from_fn(|| allocator.allocate(class(32))).count() as u64;
        assert!((RESERVE..FREE - RESERVE).contains(&left), "{left} of {FREE} are not with the daemon");
    }

    #[test]
    fn an_operation_gets_all_slabs_that_it_needs_or_none() {
        let (mut allocator, slabs) = full();
        for slab in &slabs[64..64 + 32 + 8 + 1] {
            allocator.release(class(32), *slab);
        }
        let (free, statistics) = (allocator.free_size(), allocator.statistics());
        let mut taken = Vec::new();
        for needs in [[0, 0, 0, 0, 3], [0, 5, 0, 0, 2], [10, 0, 0, 0, 2]] {
            assert_eq!(allocator.take_all(&needs, |_, _| panic!("none is given")), Err(NoSlab::Full), "{needs:?}");
        }
        assert_eq!((allocator.free_size(), allocator.statistics().allocations), (free, statistics.allocations));
        let give = |class: SlabClass, pointer: Pointer| taken.push((pointer.unit(), class.size()));
        assert_eq!(allocator.take_all(&[1, 0, 2, 0, 2], give), Ok(()));
        taken.sort_unstable();
        assert_eq!(taken, [(64, 512), (80, 512), (96, 128), (100, 128), (104, 32)]);
        assert_eq!(allocator.free_size(), 0);
    }

    /// An operation that lacks slabs is tried again in every batch: that alone begins no other search.
    #[test]
    fn trying_again_does_not_prolong_a_search() {
        let (mut allocator, slabs) = full();
        for slab in slabs.iter().step_by(2) {
            allocator.release(class(32), *slab);
        }
        // The only neighbours are enough for one of the two slabs of 64 B, again and again.
        allocator.release(class(32), slabs[1]);
        let mut batches = 0;
        let mut none = NoSlab::Later;
        while none == NoSlab::Later {
            allocator.begin_batch(1);
            none = allocator.take_all(&[1, 2, 0, 0, 0], |_, _| panic!("there are no two")).unwrap_err();
            batches += 1;
        }
        assert!(batches <= 2 * 16 + 2, "{batches} batches for 16 zones");
    }

    /// Another client takes slabs and releases them, and between the two it begins searches of its own: so after each search more
    /// is free than when it began.
    #[test]
    fn an_operation_waits_for_two_searches_however_many_others_begin() {
        const OWN: u64 = 7;
        let (mut allocator, slabs) = full_of(1 << 13);
        slabs.iter().step_by(2).for_each(|slab| allocator.release(class(32), *slab));
        let mut attempts = 0;
        loop {
            allocator.begin_batch(1 << 11);
            let none = allocator.take(class(512)).expect_err("no two are neighbours");
            assert_eq!(none, NoSlab::Later, "attempt {attempts}");
            attempts += 1;
            if !allocator.may_wait(OWN) {
                break;
            }
            assert!(attempts < 8, "the operation waits");
            let taken: Vec<_> = (0..300).filter_map(|_| allocator.allocate(class(32))).collect();
            allocator.begin_batch(1 << 11);
            assert!(allocator.take(class(512)).is_err());
            taken.iter().for_each(|slab| allocator.release(class(32), *slab));
        }
        assert!(allocator.search.number > 1);
    }

    /// An operation was told to try later, and its client has gone. After searches of others much is released, and another client
    /// stores a pair with the same key.
    #[test]
    fn an_operation_is_not_refused_for_another_one_that_did_not_try_again() {
        const KEY: u64 = 7;
        let (mut allocator, slabs) = full_of(1 << 13);
        slabs.iter().step_by(2).for_each(|slab| allocator.release(class(32), *slab));
        allocator.begin_batch(1 << 11);
        assert_eq!(allocator.take(class(512)), Err(NoSlab::Later));
        assert!(allocator.may_wait(KEY));
        for _ in 0..3 {
            while allocator.take(class(512)) == Err(NoSlab::Later) {
                allocator.begin_batch(1 << 11);
            }
            let taken: Vec<_> = (0..300).filter_map(|_| allocator.allocate(class(32))).collect();
            taken.iter().for_each(|slab| allocator.release(class(32), *slab));
        }
        slabs.iter().skip(1).step_by(2).for_each(|slab| allocator.release(class(32), *slab));
        allocator.begin_batch(0);
        assert_eq!(allocator.take(class(512)), Err(NoSlab::Later));
        assert!(allocator.may_wait(KEY), "it waits for its first search");
        allocator.begin_batch(1 << 11);
        assert!(allocator.take(class(512)).is_ok());
    }

    /// An operation was told to try later. Its client has gone during the last search, and much was released since. Another
    /// client stores a pair with the same key.
    #[test]
    fn an_operation_is_not_refused_for_another_one_that_has_seen_the_last_search() {
        const KEY: u64 = 7;
        let (mut allocator, slabs) = full_of(1 << 13);
        slabs.iter().step_by(2).for_each(|slab| allocator.release(class(32), *slab));
        let mut searches = Vec::new();
        for waits in [false, true, true] {
            allocator.begin_batch(1 << 11);
            assert_eq!(allocator.take(class(512)), Err(NoSlab::Later));
            assert!(!waits || allocator.may_wait(KEY), "two searches");
            searches.push(allocator.search.number);
            while allocator.take(class(512)) == Err(NoSlab::Later) {
                allocator.begin_batch(1 << 11);
            }
            let taken: Vec<_> = (0..300).filter_map(|_| allocator.allocate(class(32))).collect();
            taken.iter().for_each(|slab| allocator.release(class(32), *slab));
        }
        assert_eq!(searches[1] + 1, searches[2]);
        slabs.iter().skip(1).step_by(2).for_each(|slab| allocator.release(class(32), *slab));
        (0..AWAY).for_each(|_| allocator.begin_batch(0));
        assert_eq!(allocator.take(class(512)), Err(NoSlab::Later));
        assert!(allocator.may_wait(KEY), "it waits for its first search");
        allocator.begin_batch(1 << 11);
        assert!(allocator.take(class(512)).is_ok());
    }

    /// More is free after each search than before it, and the operation tries once in a search, after many batches.
    #[test]
    fn an_operation_that_seldom_tries_waits_for_four_searches() {
        const KEY: u64 = 7;
        let (mut allocator, slabs) = full_of(1 << 13);
        slabs.iter().step_by(2).for_each(|slab| allocator.release(class(32), *slab));
        for attempts in 1.. {
            (0..2 * AWAY).for_each(|_| allocator.begin_batch(1 << 11));
            assert_eq!(allocator.take(class(512)), Err(NoSlab::Later));
            if !allocator.may_wait(KEY) {
                assert!((3..=4).contains(&attempts), "{attempts} attempts, each in another search");
                break;
            }
            while allocator.take(class(512)) == Err(NoSlab::Later) {
                allocator.begin_batch(1 << 11);
            }
            let taken: Vec<_> = (0..300).filter_map(|_| allocator.allocate(class(32))).collect();
            taken.iter().for_each(|slab| allocator.release(class(32), *slab));
        }
    }

    /// Slabs of 64 B that a pass for other operations has taken are free: an operation that needs them is not refused.
    #[test]
    fn slabs_with_the_daemon_are_waited_for() {
        let (mut allocator, slabs) = full();
        slabs.iter().for_each(|slab| allocator.release(class(32), *slab));
        let mut pairs: Vec<_> = std::iter::from_fn(|| allocator.take(class(64)).ok()).collect();
        pairs.sort_unstable();
        // One in each zone stays.
        let in_zones: Vec<_> = pairs.iter().copied().step_by(64).collect();
        pairs.iter().filter(|pair| !in_zones.contains(pair)).for_each(|pair| allocator.release(class(64), *pair));
        let mut slabs: Vec<_> = std::iter::from_fn(|| allocator.allocate(class(32))).collect();
        slabs.sort_unstable();
        let daemon = allocator.merge_daemon();
        slabs.iter().step_by(2).for_each(|slab| allocator.release(class(32), *slab));
        while allocator.take(class(64)) == Err(NoSlab::Later) {
            daemon.run_waiting();
        }
        in_zones[..7].iter().for_each(|pair| allocator.release(class(64), *pair));
        let _ = allocator.take(class(128));
        for number in 0..7 {
            let mut taken = allocator.take(class(64));
            if taken == Err(NoSlab::Later) {
                daemon.run_waiting();
                taken = allocator.take(class(64));
            }
            assert!(taken.is_ok(), "{taken:?} is the outcome for slab {number} of 7 that are free");
        }
    }
}
