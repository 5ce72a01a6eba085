//! Epochs by vector timestamp (Honeycomb, section 3.2): they tell when retired memory can be used again.
//!
//! Every thread has a slot with the number of its current operation. When a write is readable, its retired frames are
//! tagged with the numbers of all operations in flight. They are free when all of these operations have ended.
//!
//! ```text
//! slot     0      1      2      3
//! number   7 ▶    4 –    9 ▶    0 –        ▶ in flight, – idle
//! tag      7             9                 waits until slot 0 has left 7 and slot 2 has left 9
//! ```
//!
//! 1. A reader stores its number, passes a SeqCst fence, then loads the version that it reads.
//! 2. A writer publishes its change, passes a SeqCst fence, then loads the numbers for the tag.
//!
//! Of the two fences one is first. Either the tag has the reader's number, or the reader begins after the change. Then
//! no path leads it to the retired frames.

use super::super::sync::{AtomicU64, Ordering, fence, store_then_fence};
use super::asks::Asks;

/// The slots of all threads, followed by those of pins.
#[derive(Debug)]
pub(crate) struct Epochs {
    slots: Box<[Slot]>,
    participant_max: usize,
    /// The asks for the requests of an accelerator.
    pub(super) asks: Asks,
}

/// The state that a thread shares. Only its owner writes these lines.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    /// The number of an operation; its lowest bit is set while the operation is in flight. [`Slot::FREE`] if the slot
    /// has no owner.
    number: AtomicU64,
    /// Pairs that its owners have inserted, minus those that they have deleted, modulo 2⁶⁴.
    pairs: AtomicU64,
    /// The same for keys with an expiry.
    expiring: AtomicU64,
}

impl Slot {
    const FREE: u64 = u64::MAX - 1;

    fn new(number: u64) -> Self {
        Slot { number: AtomicU64::new(number), pairs: AtomicU64::new(0), expiring: AtomicU64::new(0) }
    }
}

const IN_FLIGHT: u64 = 1;

/// A thread's slot.
#[derive(Debug)]
pub(crate) struct Participant<'e> {
    epochs: &'e Epochs,
    slot: usize,
}

/// Proof that an operation is in flight: memory that it can reach is not reused.
#[derive(Debug)]
pub(crate) struct Guard<'p> {
    slot: &'p Slot,
    number: u64,
}

/// An operation without a thread: memory that it can reach is not reused until it is unpinned.
#[derive(Debug)]
pub(crate) struct Pin {
    slot: usize,
    number: u64,
}

/// Identifies a pin. No other pin ever has the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PinName {
    slot: usize,
    number: u64,
}

/// The operations that were in flight when memory was retired.
#[derive(Debug, Default)]
pub(crate) struct Tag {
    /// Those of threads and pins: their slots and numbers.
    operations: Vec<(usize, u64)>,
    /// The ask for those of an accelerator.
    ask: Option<u64>,
}

impl Epochs {
    /// Creates slots for these numbers of participants and pins.
    pub(crate) fn new(participant_max: usize, pin_max: usize) -> Self {
        let participants = (0..participant_max).map(|_| Slot::new(Slot::FREE));
        let pins = (0..pin_max).map(|_| Slot::new(0));
        Epochs { slots: participants.chain(pins).collect(), participant_max, asks: Asks::new() }
    }

    /// Gives the caller a free slot. Returns `None` if there is none.
    pub(crate) fn join(&self) -> Option<Participant<'_>> {
        let free =
            |slot: &Slot| slot.number.compare_exchange(Slot::FREE, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let slot = self.slots[..self.participant_max].iter().position(free)?;
        Some(Participant { epochs: self, slot })
    }

    /// Begins an operation without a thread. Returns `None` if all slots of pins are in use.
    pub(crate) fn pin(&self) -> Option<Pin> {
        for (slot, Slot { number: word, .. }) in self.slots.iter().enumerate().skip(self.participant_max) {
            let before = word.load(Ordering::Relaxed);
            // The number of an earlier pin must not come again: a tag that waits for that pin would wait for this one
            // too.
            let number = (before + 2) | IN_FLIGHT;
            if before & IN_FLIGHT == 0
                && word.compare_exchange(before, number, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                fence(Ordering::SeqCst);
                return Some(Pin { slot, number });
            }
        }
        None
    }

    /// Ends the operation of a pin.
    #[expect(clippy::needless_pass_by_value, reason = "a pin is unpinned once")]
    pub(crate) fn unpin(&self, pin: Pin) {
        self.slots[pin.slot].number.store(pin.number & !IN_FLIGHT, Ordering::Release);
    }

    /// Returns the operations that may still reach memory that was retired before this call.
    pub(crate) fn tag(&self) -> Tag {
        fence(Ordering::SeqCst);
        let mut operations = Vec::new();
        for (slot, word) in self.slots.iter().enumerate() {
            // Acquire: the reads of an operation that has ended happen before the memory is reused.
            let number = word.number.load(Ordering::Acquire);
            if number & IN_FLIGHT != 0 {
                operations.push((slot, number));
            }
        }
        Tag { operations, ask: self.asks.ask() }
    }

    /// Returns the pins that a tag waits for. Returns none while it also waits for the operation of a thread or of an
    /// accelerator: then unpinning would free nothing.
    pub(crate) fn pins_of(&self, tag: &Tag) -> Vec<PinName> {
        let is_in_flight = |&&(slot, number): &&(usize, u64)| self.slots[slot].number.load(Ordering::Relaxed) == number;
        let left = || tag.operations.iter().filter(is_in_flight);
        match !self.has_passed(tag) || left().any(|&(slot, _)| slot < self.participant_max) {
            true => Vec::new(),
            false => left().map(|&(slot, number)| PinName { slot, number }).collect(),
        }
    }

    /// Returns true if all operations of a tag have ended. The memory that they have read can then be overwritten.
    pub(crate) fn is_past(&self, tag: &Tag) -> bool {
        let has_ended = |&(slot, number): &(usize, u64)| self.slots[slot].number.load(Ordering::Acquire) != number;
        tag.operations.iter().all(has_ended) && self.has_passed(tag)
    }

    /// Returns true if the requests of the accelerator have ended, if there is one.
    fn has_passed(&self, tag: &Tag) -> bool {
        tag.ask.is_none_or(|ask| self.asks.is_past(ask))
    }

    /// Returns the number of pairs that all threads have inserted and not deleted. It is exact while there are no
    /// writers. Otherwise a pair that one thread inserts and another deletes may be counted wrongly.
    pub(crate) fn pair_count(&self) -> u64 {
        self.sum_of(|slot| &slot.pairs)
    }

    /// Returns the number of keys with an expiry, as exact as the number of pairs.
    pub(crate) fn expiring_count(&self) -> u64 {
        self.sum_of(|slot| &slot.expiring)
    }

    fn sum_of(&self, word: impl Fn(&Slot) -> &AtomicU64) -> u64 {
        let counts = self.slots.iter().map(|slot| word(slot).load(Ordering::Relaxed));
        u64::try_from(counts.fold(0, u64::wrapping_add).cast_signed()).unwrap_or(0)
    }
}

impl Pin {
    /// Returns its slot, which is not used again until it is unpinned.
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> PinName {
        PinName { slot: self.slot, number: self.number }
    }
}

impl Participant<'_> {
    /// Returns its slot, which no other participant has at the same time.
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Begins an operation.
    #[inline]
    pub(crate) fn enter(&mut self) -> Guard<'_> {
        let slot = &self.epochs.slots[self.slot];
        // Only the owner writes its slot. A new owner counts from zero: an old tag may then wait for an operation that
        // it does not mean, but it never misses one.
        let number = (slot.number.load(Ordering::Relaxed) + 2) | IN_FLIGHT;
        store_then_fence(&slot.number, number);
        Guard { slot, number }
    }
}

impl Guard<'_> {
    /// Counts a pair that the operation has inserted (1) or deleted (−1).
    #[inline]
    pub(crate) fn count_pairs(&self, change: i64) {
        add(&self.slot.pairs, change);
    }

    /// Counts a key that the operation has given an expiry (1) or whose expiry it has removed (−1).
    #[cold]
    pub(crate) fn count_expiring(&self, change: i64) {
        add(&self.slot.expiring, change);
    }
}

/// Changes a word that only its owner writes.
#[inline]
fn add(word: &AtomicU64, change: i64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Relaxed);
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.number.store(self.number & !IN_FLIGHT, Ordering::Release);
    }
}

impl Drop for Participant<'_> {
    fn drop(&mut self) {
        self.epochs.slots[self.slot].number.store(Slot::FREE, Ordering::Release);
    }
}
