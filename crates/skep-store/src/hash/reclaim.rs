//! Frees the memory of expired keys that no request touches.
//!
//! ```text
//! positions     ├──────────────────────▶ cursor ───────────────────────┤   a pass: once over all buckets
//! a step                                ▐ 16 buckets: prefetch them, then the slabs to which they point,
//!                                         then remove the keys whose time has come
//! ```
//!
//! 1. A pass begins when the earliest expiry has come. It is known from the last pass, and from the writes since then. So a
//!    store without expiries does nothing here.
//! 2. A step visits [`STEP_BUCKETS`] home buckets with their chains and removes at most [`STEP_KEYS_MAX`] keys. Steps run
//!    between batches, when no operation is in flight.
//! 3. While a flush runs, no pass does: there are stale buckets (`flush.rs`).
//! 4. A pass that has removed few keys is followed by a pause of [`PAUSE_FACTOR`] times its duration. Otherwise keys that
//!    expire one by one would let passes follow each other without end.
//!
//! A key that has expired is missing already before it is removed: every operation compares its expiry with the time.

use super::bucket::{Bucket, SLOT_COUNT, SlabSlot};
use super::bucket_index::BucketIndex;
use super::location::{BucketCopy, Location};
use super::object::{self, Content, Object};
use super::table::HashTable;
use crate::memory::{LINE_SIZE, Memory};

/// Home buckets of a step.
const STEP_BUCKETS: u32 = 16;
/// Most keys that a step removes.
pub const STEP_KEYS_MAX: usize = 64;
/// A pass removes many keys if it removes at least one of this number that have an expiry, and one in this number of
/// buckets.
const MANY_PART: u64 = 16;
const BUCKETS_PER_KEY: u64 = 64;
/// Slabs of large values from which on a step ends.
const STEP_SLABS_MAX: usize = 4096;
/// How many times longer than a pass that has removed few keys the pause after it is.
const PAUSE_FACTOR: u64 = 8;
/// The longest pause, in milliseconds.
const PAUSE_MAX: u64 = 60_000;

/// The position of the passes.
#[derive(Debug)]
pub(crate) struct Reclaim {
    /// A pass has begun and has not ended.
    is_running: bool,
    /// The position with which the next step begins.
    next: u64,
    /// Earliest expiry that the pass has seen.
    earliest: u64,
    /// Keys with an expiry that the pass has seen, and how many of them it has removed.
    seen: u64,
    removed: u64,
    /// When the pass began.
    begun: u64,
    /// No pass begins before.
    not_before: u64,
    /// A write was refused for lack of memory before the pass began.
    is_urgent: bool,
    /// Keys that all passes have removed.
    removed_in_all: u64,
    /// Slabs of a step; kept for its memory.
    slabs: Vec<(BucketIndex, SlabSlot)>,
}

impl Default for Reclaim {
    fn default() -> Self {
        Reclaim {
            is_running: false,
            next: 0,
            earliest: u64::MAX,
            seen: 0,
            removed: 0,
            begun: 0,
            not_before: 0,
            is_urgent: false,
            removed_in_all: 0,
            slabs: Vec::new(),
        }
    }
}

impl Reclaim {
    /// Returns true if writes have been refused for lack of memory, and the pass may free some.
    pub(crate) fn is_urgent(&self) -> bool {
        self.is_running && self.is_urgent
    }

    /// Returns the number of keys that all passes have removed.
    pub(crate) fn removed_in_all(&self) -> u64 {
        self.removed_in_all
    }

    /// Forgets the pass, and the pause after it, but not what all passes have removed.
    pub(crate) fn forget_pass(&mut self) {
        let (slabs, removed_in_all) = (std::mem::take(&mut self.slabs), self.removed_in_all);
        *self = Reclaim { removed_in_all, slabs, ..Reclaim::default() };
    }

    /// Ends the pause after a pass.
    pub(crate) fn end_pause(&mut self) {
        self.not_before = 0;
    }
}

impl<M: Memory> HashTable<M> {
    /// Returns the time from which on [`HashTable::reclaim`] has work, in milliseconds since 1970. `None` if no key has an
    /// expiry.
    #[inline]
    pub(crate) fn reclaim_from(&self, reclaim: &Reclaim) -> Option<u64> {
        match self.earliest_expiry() {
            _ if self.is_flushing() => None,
            _ if reclaim.is_running => Some(0),
            u64::MAX => None,
            earliest if self.wants_reclaim() => Some(earliest),
            earliest => Some(earliest.max(reclaim.not_before)),
        }
    }

    /// Returns true unless no key has expired and is still counted.
    pub(crate) fn may_have_expired(&self, reclaim: &Reclaim) -> bool {
        reclaim.is_running || self.earliest_expiry() <= self.now()
    }

    /// Makes a step, if it is time for one. Returns the number of keys that it has removed.
    pub(crate) async fn reclaim(&self, reclaim: &mut Reclaim) -> usize {
        let now = self.now();
        if self.reclaim_from(reclaim).is_none_or(|from| from > now) {
            return 0;
        }
        if !reclaim.is_running {
            reclaim.forget_pass();
            (reclaim.is_running, reclaim.begun, reclaim.is_urgent) = (true, now, self.wants_reclaim());
            // Expiries that are written from now on are noted again.
            self.forget_earliest_expiry();
            self.forget_want();
        }
        let begin = self.index.bucket(reclaim.next).0;
        let end = self.index.end_of_run(begin).min(begin + STEP_BUCKETS);
        for bucket in begin..end {
            self.prefetch(BucketIndex(bucket));
        }
        let mut slabs = std::mem::take(&mut reclaim.slabs);
        for bucket in (begin..end).map(BucketIndex) {
            let mut at = Some(bucket.pointer());
            while let Some(pointer) = at {
                let copy = Bucket::from_line(self.memory().read_line(pointer).await);
                slabs.extend((0..SLOT_COUNT).filter_map(|slot| copy.slab_slot(slot)).map(|slab| (bucket, slab)));
                at = copy.chain();
            }
        }
        for (_, slab) in &slabs {
            self.prefetch_slab(*slab);
        }
        let (mut removed, mut freed, mut complete_before) = (0, 0, end);
        for (bucket, slab) in slabs.drain(..) {
            let first_line = slab.pointer.span(slab.class.size().min(LINE_SIZE));
            let expiry = self.memory().read(first_line, |bytes| object::expiry(slab.class, bytes)).await;
            let Some(expiry) = expiry else { continue };
            if !expiry.has_passed(now) {
                reclaim.seen += 1;
                reclaim.earliest = reclaim.earliest.min(expiry.milliseconds());
            } else if removed < STEP_KEYS_MAX && freed < STEP_SLABS_MAX {
                reclaim.seen += 1;
                removed += 1;
                freed += self.remove_slab(bucket, slab).await;
            } else {
                // The next step continues with this bucket.
                complete_before = complete_before.min(bucket.0);
            }
        }
        reclaim.slabs = slabs;
        reclaim.removed += removed as u64;
        reclaim.removed_in_all += removed as u64;
        if let Some(next) = self.index.next(complete_before) {
            reclaim.next = self.index.first_position(next);
        } else {
            self.note_expiry(reclaim.earliest);
            reclaim.is_running = false;
            let has_removed_many = reclaim.removed * MANY_PART >= reclaim.seen
                && reclaim.removed * BUCKETS_PER_KEY >= u64::from(self.bucket_count());
            let pause = if has_removed_many { 0 } else { ((now - reclaim.begun) * PAUSE_FACTOR).min(PAUSE_MAX) };
            reclaim.not_before = now + pause;
        }
        removed
    }

    /// Removes the pair of a slab to which the chain of a home bucket points. Returns the number of slabs that are freed.
    async fn remove_slab(&self, bucket: BucketIndex, slab: SlabSlot) -> usize {
        let at = bucket.pointer();
        let mut copy = BucketCopy::home(at, Bucket::from_line(self.memory().read_line(at).await));
        let slot = loop {
            let is_it = |slot: &usize| copy.bucket.slab_slot(*slot).is_some_and(|found| found.pointer == slab.pointer);
            if let Some(slot) = (0..SLOT_COUNT).find(is_it) {
                break slot;
            }
            let next = copy.bucket.chain().expect("the chain has pointed to the slab in this step");
            copy = copy.next(next, Bucket::from_line(self.memory().read_line(next).await));
        };
        let span = slab.pointer.span(slab.class.size());
        let (key_size, Object { content, expiry }) = self
            .memory()
            .read(span, |bytes| {
                let (key, object) = object::read(slab.class, bytes);
                (key.len(), object)
            })
            .await;
        match content {
            Content::Value(range) => {
                let location = Location::Slab { copy, slot, slab, value_size: range.len(), expiry };
                self.remove(&location, key_size).await;
                1
            }
            Content::Large(root) => {
                let location = Location::Large { copy, slot, slab, root, expiry };
                let pieces = self.pieces(&root).await;
                self.remove(&location, key_size).await;
                self.release_pieces(&pieces);
                pieces.slab_count()
            }
        }
    }
}
