//! The circular log of a cache: the position of the next item, and the items that can be read (MICA, NSDI 2014, section 4.3;
//! HERD, section 4.1).
//!
//! ```text
//! physical   0                                tail                            unit count
//!            ├──────── newest items ───────────┼─────────── oldest items ─────────┤
//! virtual    …                                tail
//!            ├─ lost ─┼───────────── kept ─────┤     kept ≤ unit count
//!                     first offset kept
//! ```
//!
//! 1. A [`VirtualOffset`] counts units of 32 bytes since the log was created. It only grows, so each item has one that no
//!    other item ever has.
//! 2. A [`PhysicalOffset`] is the position in the memory. The two differ by the number of times that the log has wrapped
//!    around.
//! 3. The index stores a [`StoredOffset`]: the lower 32 bits of a virtual offset. Its *age* is the number of units from it to
//!    the tail. An item is kept if its age is at most [`Log::kept`]. Items that are older were overwritten or flushed.
//!
//! An item is never split: if it does not fit before the end of the log, it begins at physical offset 0. An item of two units
//! is never in two lines. The units that are left out belong to no item.
//!
//! **Why an age has one meaning.** The log has at most [`UNIT_COUNT_MAX`] units. The sweep (`sweep.rs`) checks every bucket once
//! per wrap. So the oldest entry is at most two wraps and one part of a batch old, which is less than 2³² units (asserted in
//! `cache/mod.rs`).
//!
//! **What a flush costs.** It sets [`Log::kept`] to zero. The memory is not touched.

use std::hint::cold_path;

use crate::memory::{LINE_SIZE, Pointer, UNIT_SIZE};

/// Units of a line.
const LINE_UNITS: u32 = (LINE_SIZE / UNIT_SIZE) as u32;
/// Most units of a log: twice as many, and those of a part of a batch, are less than 2³².
pub(super) const UNIT_COUNT_MAX: u64 = (1 << 31) - (1 << 24);

/// The virtual offset at which a log begins. It is not 0, because memcached's clients may take a cas number of 0 for none.
const BEGIN: VirtualOffset = VirtualOffset(1);

/// Units of 32 bytes from the creation of the log to the begin of an item, plus 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VirtualOffset(u64);

impl VirtualOffset {
    /// Returns the number of units.
    pub(super) fn units(self) -> u64 {
        self.0
    }

    /// Returns the lower bits, which the index stores.
    #[inline(always)]
    pub(super) fn stored(self) -> StoredOffset {
        StoredOffset(self.0 as u32)
    }
}

/// Units of 32 bytes from the begin of the log's memory to the begin of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PhysicalOffset(u32);

/// The lower 32 bits of a [`VirtualOffset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredOffset(pub(super) u32);

/// The number of units from the begin of an item to the tail of the log. An item has at least one unit, so its age is at
/// least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Age(u32);

/// The state of an item in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It can be read.
    Kept,
    /// Newer items have overwritten it.
    Overwritten,
    /// A flush has removed it.
    Flushed,
}

/// The positions of a circular log. Its bytes are in a memory.
#[derive(Debug)]
pub(super) struct Log {
    /// The first unit in the memory, at the begin of a line.
    first_unit: u32,
    unit_count: u32,
    tail: VirtualOffset,
    tail_at: PhysicalOffset,
    /// Units before the tail whose items can be read.
    kept: u32,
    /// The tail at the last flush.
    flushed: VirtualOffset,
}

impl Log {
    /// Returns an empty log that takes these lines of a memory.
    ///
    /// # Panics
    /// If it has no line, or more than [`UNIT_COUNT_MAX`] units.
    pub(super) fn new(first_line: u64, line_count: u64) -> Self {
        let unit_count = line_count * u64::from(LINE_UNITS);
        assert!((1..=UNIT_COUNT_MAX).contains(&unit_count), "a log has a line, and less than 64 GiB");
        Log {
            first_unit: Pointer::to_line(first_line).unit(),
            unit_count: unit_count as u32,
            tail: BEGIN,
            tail_at: PhysicalOffset(0),
            kept: 0,
            flushed: BEGIN,
        }
    }

    /// Returns the number of units.
    pub(super) fn unit_count(&self) -> u32 {
        self.unit_count
    }

    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.unit_count) * UNIT_SIZE as u64
    }

    /// Returns the bytes of the log that were written since the last flush, at most all.
    pub(super) fn used_bytes(&self) -> u64 {
        u64::from(self.kept) * UNIT_SIZE as u64
    }

    /// Returns the number of units that were appended since the log was created, with those that were left out.
    pub(super) fn appended_units(&self) -> u64 {
        self.tail.0 - BEGIN.0
    }

    /// Returns the age of an item.
    #[inline(always)]
    pub(super) fn age(&self, item: StoredOffset) -> Age {
        Age((self.tail.0 as u32).wrapping_sub(item.0))
    }

    /// Returns the age of the oldest items that can be read.
    #[inline(always)]
    pub(super) fn age_max(&self) -> Age {
        Age(self.kept)
    }

    /// Returns true if the item can be read.
    #[inline(always)]
    pub(super) fn is_kept(&self, item: StoredOffset) -> bool {
        self.age(item) <= self.age_max()
    }

    /// Returns the state of an item.
    pub(super) fn presence(&self, item: StoredOffset) -> Presence {
        if self.is_kept(item) {
            Presence::Kept
        } else if u64::from(self.age(item).0) > self.tail.0 - self.flushed.0 {
            Presence::Flushed
        } else {
            Presence::Overwritten
        }
    }

    /// Returns the virtual offset of an item that is kept.
    pub(super) fn virtual_offset(&self, item: StoredOffset) -> VirtualOffset {
        VirtualOffset(self.tail.0 - u64::from(self.age(item).0))
    }

    /// Returns the physical offset of an item. `None` if it is not kept.
    #[inline(always)]
    pub(super) fn locate(&self, item: StoredOffset) -> Option<PhysicalOffset> {
        let Age(age) = self.age(item);
        if age > self.kept {
            return None;
        }
        let at = self.tail_at.0.wrapping_sub(age);
        Some(PhysicalOffset(if self.tail_at.0 < age { at.wrapping_add(self.unit_count) } else { at }))
    }

    /// Returns the address of an item.
    #[inline(always)]
    pub(super) fn pointer(&self, at: PhysicalOffset) -> Pointer {
        Pointer::below_end(self.first_unit + at.0)
    }

    /// Takes the next `units` units for an item, and loses the items that were there. Never fails.
    ///
    /// # Panics
    /// If the log has fewer units.
    #[inline(always)]
    pub(super) fn append(&mut self, units: u32) -> (VirtualOffset, PhysicalOffset) {
        let tail = self.tail_at.0;
        // An item of one line begins at a line.
        let mut begin = if units == LINE_UNITS { tail.next_multiple_of(LINE_UNITS) } else { tail };
        let mut left_out = begin - tail;
        if units > self.unit_count - begin {
            cold_path();
            assert!(units <= self.unit_count, "an item is larger than the log");
            left_out = self.unit_count - tail;
            begin = 0;
        }
        let item = VirtualOffset(self.tail.0 + u64::from(left_out));
        self.tail = VirtualOffset(item.0 + u64::from(units));
        // The tail may be at the end of the memory: the next item begins at 0 then.
        self.tail_at = PhysicalOffset(begin + units);
        // The sum has 32 bits: fewer units are left out than the item has, or one.
        self.kept = self.unit_count.min(self.kept + left_out + units);
        (item, PhysicalOffset(begin))
    }

    /// Loses all items.
    pub(super) fn flush(&mut self) {
        self.kept = 0;
        self.flushed = self.tail;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::naive::{SplitMix64, test_seeds};

    /// Items of random sizes are kept until another one takes their units, and no longer than the log is.
    #[test]
    fn an_item_is_kept_until_it_is_overwritten() {
        for seed in test_seeds() {
            let mut random = SplitMix64::new(seed);
            let mut log = Log::new(3, 50);
            // Near the end of the stored bits.
            (log.tail, log.flushed) = (VirtualOffset((1 << 32) - 5000), VirtualOffset((1 << 32) - 5000));
            let mut owners: Vec<Option<u64>> = vec![None; 100];
            let mut items: VecDeque<(VirtualOffset, PhysicalOffset, u32)> = VecDeque::new();
            let (mut wraps, mut last) = (0, 0);
            for _ in 0..20_000 {
                let units = if random.chance(1, 50) { 100 } else { 1 + random.below(9) as u32 };
                let (item, at) = log.append(units);
                wraps += u32::from(at.0 < last);
                last = at.0;
                assert!(at.0 + units <= 100, "seed {seed}: an item is split");
                assert!(units != 2 || at.0.is_multiple_of(2), "seed {seed}: a line is split");
                assert_eq!(log.pointer(at).unit(), 6 + at.0);
                owners[at.0 as usize..(at.0 + units) as usize].fill(Some(item.0));
                items.push_back((item, at, units));
                if items.len() > 150 {
                    items.pop_front();
                }
                for (item, at, units) in &items {
                    let is_intact =
                        owners[at.0 as usize..(at.0 + units) as usize].iter().all(|owner| *owner == Some(item.0));
                    // The units that are left out at the end overwrite nothing, but what is there counts as lost.
                    let is_too_old = log.tail.0 - item.0 > 100;
                    let expected = (is_intact && !is_too_old).then_some(*at);
                    assert!(is_intact || is_too_old, "seed {seed}: an item is overwritten too early");
                    assert_eq!(log.locate(item.stored()), expected, "seed {seed}");
                    let presence = if expected.is_some() { Presence::Kept } else { Presence::Overwritten };
                    assert_eq!(log.presence(item.stored()), presence, "seed {seed}");
                    if expected.is_some() {
                        assert_eq!(log.virtual_offset(item.stored()), *item, "seed {seed}");
                    }
                }
            }
            assert!(wraps > 500 && log.tail.0 > 1 << 32, "seed {seed}: {wraps} wraps");
        }
    }

    #[test]
    fn a_flush_loses_all_items_and_none_of_later() {
        let mut log = Log::new(0, 8);
        let (before, _) = log.append(3);
        log.flush();
        assert_eq!(log.presence(before.stored()), Presence::Flushed);
        assert_eq!((log.locate(before.stored()), log.used_bytes()), (None, 0));
        let (after, at) = log.append(1);
        assert_eq!((log.locate(after.stored()), log.used_bytes()), (Some(at), 32));
        for _ in 0..16 {
            log.append(1);
        }
        assert_eq!(log.presence(after.stored()), Presence::Overwritten);
        assert_eq!(log.presence(before.stored()), Presence::Flushed);
        assert_eq!(log.used_bytes(), 16 * 32);
    }

    #[test]
    #[should_panic(expected = "larger than the log")]
    fn an_item_larger_than_the_log_panics() {
        Log::new(0, 1).append(3);
    }
}
