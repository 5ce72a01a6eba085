//! When what was replaced can be used again: epochs by vector timestamp (Honeycomb, section 3.2).
//!
//! Every thread has a slot with the number of its current operation. What a write replaced is tagged, once that write is
//! readable, with the numbers of all threads that are under way; it is free when each of them has gone on.
//!
//! ```text
//! slot     0      1      2      3
//! number   7 ▶    4 –    9 ▶    0 –        ▶ under way, – idle
//! tag      7             9                 waits until slot 0 has left 7 and slot 2 has left 9
//! ```
//!
//! A reader stores its number, then passes a SeqCst fence, then reads where to begin. A tag is made after the change
//! was released and after a SeqCst fence. Of the two fences one comes first: either the tag has the reader's number, or
//! the reader begins after the change, from where no path leads to what was replaced.

use super::super::sync::{AtomicU64, Ordering, fence, store_then_fence};

/// The slots of all threads, and behind them those of holds.
#[derive(Debug)]
pub(crate) struct Epochs {
    slots: Box<[Slot]>,
    participant_max: usize,
}

/// What a thread tells the others, on lines that only its owner writes.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    /// The number of an operation, the lowest bit set while it is under way; [`Slot::FREE`] while nobody owns the slot.
    number: AtomicU64,
    /// Pairs that its owners have inserted, less those that they have deleted, modulo 2⁶⁴.
    pairs: AtomicU64,
}

impl Slot {
    const FREE: u64 = u64::MAX - 1;

    fn new(number: u64) -> Self {
        Slot { number: AtomicU64::new(number), pairs: AtomicU64::new(0) }
    }
}

const UNDER_WAY: u64 = 1;

/// A thread's place among the slots.
#[derive(Debug)]
pub(crate) struct Participant<'e> {
    epochs: &'e Epochs,
    slot: usize,
}

/// Proof that an operation is under way: what it can reach stays where it is.
#[derive(Debug)]
pub(crate) struct Guard<'p> {
    slot: &'p Slot,
    number: u64,
}

/// An operation that no thread is within: what it can reach stays where it is until it is let go.
#[derive(Debug)]
pub(crate) struct Hold {
    slot: usize,
    number: u64,
}

/// Names a hold. No other hold ever has the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldName {
    slot: usize,
    number: u64,
}

/// The operations that were under way when something was replaced.
#[derive(Debug, Default)]
pub(crate) struct Tag(Vec<(usize, u64)>);

impl Epochs {
    /// Slots for so many participants and so many holds.
    pub(crate) fn new(participant_max: usize, hold_max: usize) -> Self {
        let participants = (0..participant_max).map(|_| Slot::new(Slot::FREE));
        let holds = (0..hold_max).map(|_| Slot::new(0));
        Epochs { slots: participants.chain(holds).collect(), participant_max }
    }

    /// Gives the caller a slot, unless all are taken.
    pub(crate) fn join(&self) -> Option<Participant<'_>> {
        let free =
            |slot: &Slot| slot.number.compare_exchange(Slot::FREE, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let slot = self.slots[..self.participant_max].iter().position(free)?;
        Some(Participant { epochs: self, slot })
    }

    /// Begins an operation of its own, unless there are as many as can be.
    pub(crate) fn hold(&self) -> Option<Hold> {
        for (slot, Slot { number: word, .. }) in self.slots.iter().enumerate().skip(self.participant_max) {
            let before = word.load(Ordering::Relaxed);
            // Never the number of an earlier hold, or what waited for that one would wait for this one too.
            let number = (before + 2) | UNDER_WAY;
            if before & UNDER_WAY == 0
                && word.compare_exchange(before, number, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                fence(Ordering::SeqCst);
                return Some(Hold { slot, number });
            }
        }
        None
    }

    /// Ends the operation of a hold.
    #[expect(clippy::needless_pass_by_value, reason = "a hold is let go once")]
    pub(crate) fn let_go(&self, hold: Hold) {
        self.slots[hold.slot].number.store(hold.number & !UNDER_WAY, Ordering::Release);
    }

    /// The operations that may still reach what was replaced before this call.
    pub(crate) fn tag(&self) -> Tag {
        fence(Ordering::SeqCst);
        let number = |(slot, word): (usize, &Slot)| {
            // Acquire: of an operation that has ended, all reads lie before what is done with the replaced.
            let number = word.number.load(Ordering::Acquire);
            (number & UNDER_WAY != 0).then_some((slot, number))
        };
        Tag(self.slots.iter().enumerate().filter_map(number).collect())
    }

    /// Returns the holds that a tag waits for, if it waits for holds alone: none while an operation of a thread is among
    /// those that have not ended, since letting holds go would free nothing.
    pub(crate) fn holds_of(&self, tag: &Tag) -> Vec<HoldName> {
        let is_under_way = |&&(slot, number): &&(usize, u64)| self.slots[slot].number.load(Ordering::Relaxed) == number;
        let left = || tag.0.iter().filter(is_under_way);
        match left().any(|&(slot, _)| slot < self.participant_max) {
            true => Vec::new(),
            false => left().map(|&(slot, number)| HoldName { slot, number }).collect(),
        }
    }

    /// Whether all operations of a tag have ended. What they have read can then be overwritten.
    pub(crate) fn is_past(&self, tag: &Tag) -> bool {
        tag.0.iter().all(|&(slot, number)| self.slots[slot].number.load(Ordering::Acquire) != number)
    }

    /// Pairs that all threads together have inserted and not deleted. Exact while nobody writes; one that is inserted
    /// by one thread and deleted by another meanwhile may be missed, or missing.
    pub(crate) fn pair_count(&self) -> u64 {
        let counts = self.slots.iter().map(|slot| slot.pairs.load(Ordering::Relaxed));
        u64::try_from(counts.fold(0, u64::wrapping_add).cast_signed()).unwrap_or(0)
    }
}

impl Hold {
    /// Its place among the slots, which is nobody else's until it is let go.
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> HoldName {
        HoldName { slot: self.slot, number: self.number }
    }
}

impl Participant<'_> {
    /// Begins an operation.
    #[inline]
    pub(crate) fn enter(&mut self) -> Guard<'_> {
        let slot = &self.epochs.slots[self.slot];
        // Only the owner writes its slot. One that changes hands counts from zero again: an old tag may then wait for an
        // operation that it does not mean, but never miss one that it does.
        let number = (slot.number.load(Ordering::Relaxed) + 2) | UNDER_WAY;
        store_then_fence(&slot.number, number);
        Guard { slot, number }
    }
}

impl Guard<'_> {
    /// Counts a pair that the operation has inserted (1) or deleted (−1).
    #[inline]
    pub(crate) fn count_pairs(&self, change: i64) {
        // Only the owner of the slot writes it.
        let pairs = self.slot.pairs.load(Ordering::Relaxed).wrapping_add_signed(change);
        self.slot.pairs.store(pairs, Ordering::Relaxed);
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.number.store(self.number & !UNDER_WAY, Ordering::Release);
    }
}

impl Drop for Participant<'_> {
    fn drop(&mut self) {
        self.epochs.slots[self.slot].number.store(Slot::FREE, Ordering::Release);
    }
}
