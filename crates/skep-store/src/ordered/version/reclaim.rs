//! Reclamation: turns garbage into free memory, and ends leases if it has to.
//!
//! ```text
//! hand_over ──▶ garbage ── past its epoch, at most 64 pieces ──▶ space
//!                  └─ waits for leases alone, and is too much or needed ──▶ the oldest of these leases ends
//! ```
//!
//! Space, garbage and leases have a lock each. No function of the store holds two of them: it removes data under one
//! lock, unlocks it, then takes the next. So the locks have no order. A part has at most 64 pieces, which bounds the
//! time that a thread waits for a lock.
//!
//! A thread may be between removing a part from the list and freeing it. That part counts as waiting until it is in the
//! space, so that a write that finds no memory waits for it. Therefore the numbers of pieces handed over and freed are
//! kept beside the locks.

use super::super::space::{Space, SpaceStatistics};
use super::super::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use super::epoch::Epochs;
use super::garbage::{Garbage, GarbageList};
use super::lease::Leases;

/// Most pieces of garbage that are freed at a time.
pub(crate) const PART_SIZE_MAX: usize = 64;

/// The memory of a store that is free or waits to be free.
#[derive(Debug)]
pub(crate) struct Reclaimer {
    pub(crate) epochs: Epochs,
    pub(crate) leases: Leases,
    /// Bytes of garbage beyond which leases end.
    garbage_budget: u64,
    space: Mutex<Space>,
    garbage: Mutex<GarbageList>,
    /// Pieces that were ever handed over, and their bytes.
    handed_over: AtomicU64,
    handed_over_bytes: AtomicU64,
    /// Pieces among these that were freed, and their bytes.
    freed: AtomicU64,
    freed_bytes: AtomicU64,
}

/// The numbers of pieces of garbage until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GarbageCounts {
    /// Pieces that were handed over.
    pub(crate) handed_over: u64,
    /// Pieces among these that were freed.
    pub(crate) freed: u64,
}

impl Reclaimer {
    /// Creates a reclaimer without garbage. Parts of the space may be in use.
    pub(crate) fn new(epochs: Epochs, leases: Leases, space: Space, garbage_budget: u64) -> Self {
        Reclaimer {
            epochs,
            leases,
            garbage_budget,
            space: Mutex::new(space),
            garbage: Mutex::new(GarbageList::default()),
            handed_over: AtomicU64::new(0),
            handed_over_bytes: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            freed_bytes: AtomicU64::new(0),
        }
    }

    /// Locks the space.
    pub(crate) fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock()
    }

    /// Returns the statistics of the space.
    pub(crate) fn space_statistics(&self) -> SpaceStatistics {
        self.space.lock().statistics()
    }

    /// Returns the bytes of frames that were handed over and are not free yet.
    pub(crate) fn garbage_bytes(&self) -> u64 {
        let freed = self.freed_bytes.load(Ordering::Acquire);
        self.handed_over_bytes.load(Ordering::Acquire) - freed
    }

    /// Returns the counts of garbage. Pieces that are counted as freed are in the space.
    pub(crate) fn counts(&self) -> GarbageCounts {
        // In this order, so that no piece is counted as freed but not as handed over.
        let freed = self.freed.load(Ordering::Acquire);
        GarbageCounts { handed_over: self.handed_over.load(Ordering::Acquire), freed }
    }

    /// Adds garbage whose change is readable.
    pub(crate) fn hand_over(&self, pieces: Vec<Garbage>) {
        let (count, bytes) = (pieces.len() as u64, pieces.iter().map(Garbage::size).sum());
        let tag = self.epochs.tag();
        self.handed_over.fetch_add(count, Ordering::AcqRel);
        self.handed_over_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.garbage.lock().push(tag, pieces);
    }

    /// Frees a part of the garbage that no operation can reach. Ends leases if garbage exceeds the budget because of
    /// them alone. Returns the number of pieces that it has freed.
    pub(crate) fn collect(&self) -> usize {
        let mut freed = self.free_part();
        while freed == 0 && self.garbage_bytes() > self.garbage_budget && self.end_oldest_lease() {
            freed = self.free_part();
        }
        freed
    }

    /// Frees a part of the garbage for a thread that has found no memory. Ends leases if the oldest garbage waits only
    /// for them. Returns the number of pieces that it has freed.
    pub(crate) fn make_room(&self) -> usize {
        let mut freed = self.free_part();
        while freed == 0 && self.end_oldest_lease() {
            freed = self.free_part();
        }
        freed
    }

    fn free_part(&self) -> usize {
        let part = self.garbage.lock().take_past(&self.epochs, PART_SIZE_MAX);
        if part.is_empty() {
            return 0;
        }
        let (count, bytes) = (part.len(), part.iter().map(Garbage::size).sum());
        let mut space = self.space.lock();
        for piece in part {
            match piece {
                Garbage::Frame(frame) => space.recycle(frame.reuse()),
                Garbage::Lid(lid) => space.free_lid(lid),
            }
        }
        drop(space);
        self.freed_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.freed.fetch_add(count as u64, Ordering::AcqRel);
        count
    }

    /// Ends the oldest of the leases that the oldest garbage waits for, if it waits only for leases. Returns true if it
    /// was unpinned: a lease that is being read ends after its page.
    fn end_oldest_lease(&self) -> bool {
        let pins = self.garbage.lock().pins_of_oldest(&self.epochs);
        !pins.is_empty() && self.leases.end_oldest_of(&self.epochs, &pins)
    }
}
