//! The floor of a block of a log: all effects with versions below it are in the block, or in blocks before it.
//!
//! ```text
//! version       1   2   3   4   5   6   7   8   9
//! session a     ■   ■           ■                    sealed, closed
//! session b                 ■       □                open from 4: its block is not sealed yet
//! session c             ■               ■   □        seals its block now: floor 4
//! ```
//!
//! Each session has a slot, which only it opens and closes:
//!
//! 1. Before its first write since it last sealed a block it loads the newest version `w` and opens its slot from `w + 1`.
//! 2. It writes. Its versions are `w + 1` or above, because it has loaded `w` before.
//! 3. To seal its block it computes a floor: it loads the newest version `n`, then the slots of the other sessions. The
//!    floor is the lowest version from which one of them is open, or else `n + 1`.
//! 4. It puts the block with the floor into the queue that all sessions share, then closes its slot.
//!
//! **Why every effect below the floor is in the block or before it.** Take an effect of another session with version `v`
//! below the floor, so `v ≤ n`.
//!
//! 1. A release fence follows the store that opens the slot, before `v` is allocated. An acquire fence follows the load of
//!    `n`, before the slots are loaded. Versions are allocated by atomic additions, so the load of `n ≥ v` reads from the
//!    release sequence of the addition that made `v`. Hence the slot is read as it was opened for `v`, or later.
//! 2. It was not read as opened for `v`: then the floor were at most `v`.
//! 3. So a later state was read: closed, or opened again. Both are stored with release after the block was queued, and
//!    loaded with acquire. So the block was queued before the caller queues its own.
//!
//! **Why each version gets a floor above it.** A session that is held back by an open slot marks that slot. The owner
//! finds the mark when it closes the slot and computes another floor. The owner removes the mark before it computes the
//! floor of its block: that floor serves those that were held back before. A thread that marks a slot was held back by a
//! version that was allocated before its mark, and the owner loads the newest version after it has seen the mark.

use super::super::sync::{AtomicU64, Ordering, fence};
use super::versions::Versions;

/// The slots of all sessions.
#[derive(Debug)]
pub(crate) struct Floors {
    slots: Box<[Slot]>,
    /// The number of slots up to the last one that was ever used.
    used: AtomicU64,
}

/// Twice the version from which the session is open, with the mark in the lowest bit; [`CLOSED`] if it has no effects that
/// are not sealed. On lines of its own: each session changes its slot twice for each block.
#[derive(Debug)]
#[repr(align(128))]
struct Slot(AtomicU64);

const CLOSED: u64 = 0;
/// Another session has stated a lower floor because of this slot.
const MARK: u64 = 1;

impl Floors {
    /// Creates closed slots.
    pub(crate) fn new(slot_count: usize) -> Self {
        let slots = (0..slot_count).map(|_| Slot(AtomicU64::new(CLOSED))).collect();
        Floors { slots, used: AtomicU64::new(0) }
    }

    /// Notes that a session uses this slot. Returns false if a session before has not closed it.
    pub(crate) fn join(&self, slot: usize) -> bool {
        self.used.fetch_max(slot as u64 + 1, Ordering::Relaxed);
        self.slots[slot].0.load(Ordering::Relaxed) == CLOSED
    }

    /// Opens a closed slot. No write of the session since it was closed has a version yet.
    pub(crate) fn open(&self, slot: usize, versions: &Versions) {
        self.slots[slot].0.store((versions.newest() + 1) << 1, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Begins to seal the block of an open slot: the floor that is computed next serves all sessions that were held back by
    /// the slot.
    pub(crate) fn begin_seal(&self, slot: usize) {
        let word = &self.slots[slot].0;
        let mut opened = word.load(Ordering::Relaxed);
        // Only other sessions set the mark, so the second attempt succeeds.
        while let Err(marked) = word.compare_exchange(opened, opened & !MARK, Ordering::AcqRel, Ordering::Relaxed) {
            opened = marked;
        }
    }

    /// Returns the floor for a block of the session that has this slot. Marks the slot that holds it back.
    pub(crate) fn floor(&self, own: usize, versions: &Versions) -> u64 {
        let newest = versions.newest();
        fence(Ordering::Acquire);
        let used = self.used.load(Ordering::Relaxed) as usize;
        loop {
            let others = (0..used).filter(|slot| *slot != own);
            let opened = others.map(|slot| (self.slots[slot].0.load(Ordering::Acquire), slot));
            let lowest = opened.filter(|(word, _)| *word != CLOSED && *word >> 1 <= newest).min();
            let Some((word, slot)) = lowest else { return newest + 1 };
            // Also if it is marked already: this mark is for versions up to `newest`.
            let marked = word | MARK;
            if self.slots[slot].0.compare_exchange(word, marked, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return word >> 1;
            }
        }
    }

    /// Closes an open slot: the block of its session is in the queue. Returns true if the session has to state another
    /// floor, for a session that was held back meanwhile.
    pub(crate) fn close(&self, slot: usize) -> bool {
        self.slots[slot].0.swap(CLOSED, Ordering::AcqRel) & MARK != 0
    }
}
