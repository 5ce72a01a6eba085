//! A thread's way to an ordered store.

mod check;
mod deferred;
mod execute;
mod shortage;

use std::time::Instant;

pub use check::Checked;
pub use execute::OwnerRun;
use shortage::{Shortage, pause};

use super::key_head::{Target, fingerprint};
use super::leaf::find;
use super::leaf::range::Range;
use super::node::overflow as outside;
use super::read::group::GROUP_SIZE;
use super::store::OrderedStore;
use super::trace::{Trace, Untraced};
use super::version::epoch::{Guard, Participant};
use super::version::garbage::BATCH_SIZE;
use super::version::reclaim::PART_SIZE_MAX;
use super::write::attempt::Writer;
use super::write::change::Change;
use skep_core::operation::{Operation, OperationError, PutCondition, Reply, Request};

/// Works on a store, one operation at a time. Sessions of several threads work side by side.
#[derive(Debug)]
pub struct Session<'s, T: Trace = Untraced> {
    pub(crate) store: &'s OrderedStore<T>,
    pub(crate) participant: Participant<'s>,
    pub(crate) writer: Writer,
    /// A value that lies outside its node, put together; kept for its memory.
    pub(crate) whole: Vec<u8>,
    /// Whether memory is short for the writes of batches.
    pub(crate) shortage: Shortage,
    /// How many pieces of garbage were freed when a single call gave up waiting for more.
    given_up_at: Option<u64>,
}

impl<T: Trace> OrderedStore<T> {
    /// A thread's way to the store. None if there are 128 already.
    pub fn session(&self) -> Option<Session<'_, T>> {
        Some(Session::new(self, self.reclaimer.epochs.join()?))
    }
}

impl<'s, T: Trace> Session<'s, T> {
    fn new(store: &'s OrderedStore<T>, participant: Participant<'s>) -> Self {
        let (writer, whole, shortage) = (Writer::default(), Vec::new(), Shortage::default());
        Session { store, participant, writer, whole, shortage, given_up_at: None }
    }

    /// Appends the value of a key to `value`. Whether there is one; an invalid key has none.
    pub fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool {
        let guard = self.participant.enter();
        let version = self.store.versions.read();
        let leaf = self.store.find_leaf(Target::AtOrBelow(key), version, &guard);
        let Some(found) = find::get(leaf, key, fingerprint(key), version) else { return false };
        match found.is_outside {
            false => value.extend_from_slice(found.bytes),
            true => {
                outside::visit(&self.store.frames, found.bytes, &guard, |_, part| value.extend_from_slice(part));
            }
        }
        true
    }

    /// Shows the values of many keys in their order, all as of one moment. What is prefetched for one key travels while
    /// others are worked on; so a batch takes a fraction of the time of as many single gets.
    pub fn get_batch(&mut self, keys: &[&[u8]], mut show: impl FnMut(Option<&[u8]>)) {
        let Session { store, participant, whole, .. } = self;
        let guard = participant.enter();
        let version = store.versions.read();
        for group in keys.chunks(GROUP_SIZE) {
            store.get_group(group, version, &guard, |value| {
                show(value.map(|value| outside::in_full(&store.frames, value, whole, &guard)));
            });
        }
    }

    /// Inserts or replaces the value of a key, if the condition holds. The answer is [`Reply::Done`], [`Reply::Exists`],
    /// [`Reply::NotFound`] or [`Reply::Failed`]; whatever it tells can be read by all. If memory is short the call waits while
    /// garbage is being freed, and fails when none was freed for a second.
    pub fn put(&mut self, key: &[u8], value: &[u8], condition: PutCondition) -> Reply<'static> {
        match (Request { key, operation: Operation::Put { value, condition } }).validate() {
            Ok(()) => self.write(key, &Change::Put { value, condition }),
            Err(error) => Reply::Failed(error),
        }
    }

    /// Puts many pairs in their order, as so many single puts would, and shows the answers. What is prefetched for one key
    /// travels while others are worked on.
    pub fn put_batch(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        condition: PutCondition,
        mut show: impl FnMut(Reply<'static>),
    ) {
        let mut rest = pairs;
        while !rest.is_empty() {
            let done = self.put_group(&rest[..rest.len().min(GROUP_SIZE)], condition, &mut show);
            rest = &rest[done..];
            if let (0, Some(((key, value), others))) = (done, rest.split_first()) {
                // No memory, perhaps since the group holds what it has replaced.
                show(self.put(key, value, condition));
                rest = others;
            }
        }
    }

    /// Puts pairs until all are put, or there is no memory for one. How many.
    fn put_group(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        condition: PutCondition,
        show: &mut impl FnMut(Reply<'static>),
    ) -> usize {
        let Session { store, participant, writer, .. } = self;
        let guard = participant.enter();
        let mut keys: [&[u8]; GROUP_SIZE] = [&[]; GROUP_SIZE];
        keys.iter_mut().zip(pairs).for_each(|(place, (key, _))| *place = key);
        let places = store.places_of_group(&keys[..pairs.len()], &guard);
        let mut done = pairs.len();
        for (number, (key, value)) in pairs.iter().enumerate() {
            let request = Request { key, operation: Operation::Put { value, condition } };
            let change = Change::Put { value, condition };
            let reply = match request.validate() {
                Ok(()) => store.write(key, &change, Some(places.of(number)), writer, &guard),
                Err(error) => Some(Reply::Failed(error)),
            };
            let Some(reply) = reply else {
                done = number;
                break;
            };
            show(reply);
        }
        drop(guard);
        self.collect_batch();
        done
    }

    /// Removes a key. The answer is [`Reply::Done`], [`Reply::NotFound`] or [`Reply::Failed`]. Waits for memory as
    /// [`Session::put`] does.
    pub fn delete(&mut self, key: &[u8]) -> Reply<'static> {
        match (Request { key, operation: Operation::Delete }).validate() {
            Ok(()) => self.write(key, &Change::Delete),
            Err(error) => Reply::Failed(error),
        }
    }

    /// Shows the pairs of a range in the order of their keys, all as of one moment, until `visit` answers false.
    pub fn scan(&mut self, range: Range<'_>, mut visit: impl FnMut(&[u8], &[u8]) -> bool) {
        let Session { store, participant, whole, .. } = self;
        let guard = participant.enter();
        let version = store.versions.read();
        store.scan(range, version, &guard, |key, value| {
            visit(key, outside::in_full(&store.frames, value, whole, &guard))
        });
    }

    /// Shows the pairs of many ranges, all as of one moment. `visit` gets the number of the range, key and value; pairs of one
    /// range come in the order of their keys until it answers false, in turn with those of others. What is prefetched for one
    /// range travels while others are worked on.
    pub fn scan_batch(&mut self, ranges: &[Range<'_>], mut visit: impl FnMut(usize, &[u8], &[u8]) -> bool) {
        let Session { store, participant, whole, .. } = self;
        let guard = participant.enter();
        let version = store.versions.read();
        for (group, ranges) in ranges.chunks(GROUP_SIZE).enumerate() {
            store.scan_group(ranges, version, &guard, |number, key, value| {
                let value = outside::in_full(&store.frames, value, whole, &guard);
                visit(group * GROUP_SIZE + number, key, value)
            });
        }
    }

    /// As [`Session::scan`], from the greatest key to the lowest.
    pub fn scan_reverse(&mut self, range: Range<'_>, mut visit: impl FnMut(&[u8], &[u8]) -> bool) {
        let Session { store, participant, whole, .. } = self;
        let guard = participant.enter();
        let version = store.versions.read();
        store.scan_reverse(range, version, &guard, |key, value| {
            visit(key, outside::in_full(&store.frames, value, whole, &guard))
        });
    }

    /// Hands what was replaced over to be freed, and frees all that can be. The locks are free between parts of 64 pieces, so
    /// other threads are not kept waiting.
    pub fn collect(&mut self) {
        while self.collect_part() {}
    }

    /// Hands what was replaced over to be freed, and frees at most 64 pieces of garbage. Returns true if it has freed any:
    /// then there may be more.
    pub fn collect_part(&mut self) -> bool {
        self.hand_over();
        self.store.reclaimer.collect() > 0
    }

    fn hand_over(&mut self) {
        let replaced = &mut self.writer.replaced;
        if !replaced.is_empty() {
            let pieces = std::mem::replace(replaced, Vec::with_capacity(2 * BATCH_SIZE));
            self.store.reclaimer.hand_over(pieces);
        }
    }

    /// Frees a part if enough was replaced for it.
    #[inline]
    pub(crate) fn collect_batch(&mut self) {
        // Others may wait for it when little is free.
        let count = self.writer.replaced.len();
        if count >= BATCH_SIZE || (self.store.is_scarce() && count > 0) {
            // At least as many as are handed over.
            let parts = 1 + count / PART_SIZE_MAX;
            let _ = (0..parts).take_while(|_| self.collect_part()).count();
        }
    }

    /// Begins an operation of another module.
    pub(crate) fn enter(&mut self) -> (&'s OrderedStore<T>, Guard<'_>) {
        (self.store, self.participant.enter())
    }

    /// Carries out a write of a valid request.
    fn write(&mut self, key: &[u8], change: &Change<'_>) -> Reply<'static> {
        let reply = self.try_write(key, change).or_else(|| self.write_with_memory(key, change));
        self.collect_batch();
        reply.unwrap_or(Reply::Failed(OperationError::NodesFull))
    }

    fn try_write(&mut self, key: &[u8], change: &Change<'_>) -> Option<Reply<'static>> {
        let Session { store, participant, writer, .. } = self;
        store.write(key, change, None, writer, &participant.enter())
    }

    /// Carries out a write that has found no memory, and waits for memory.
    #[cold]
    fn write_with_memory(&mut self, key: &[u8], change: &Change<'_>) -> Option<Reply<'static>> {
        self.writer.moves_of_refused = 0;
        self.hand_over();
        let mut end = self.store.reclaimer.counts().handed_over;
        self.store.reclaimer.make_room();
        let mut step = 0;
        loop {
            let before = self.store.reclaimer.counts().freed;
            if let Some(reply) = self.try_write(key, change) {
                return Some(reply);
            }
            if !self.writer.replaced.is_empty() {
                // It has moved frames in vain: what they leave will be free too.
                self.hand_over();
                end = self.store.reclaimer.counts().handed_over;
            }
            if before >= end && self.writer.must_succeed {
                // What is kept back for it is in use by others, who give it back, some of it as garbage of later writes.
                if self.store.reclaimer.make_room() == 0 && !pause(&mut step) {
                    return None;
                }
            } else if before >= end || !self.wait_for_garbage(before) {
                // What was freed before it tried has not helped.
                return None;
            }
        }
    }

    /// Waits until more than so many pieces of garbage have been freed. Returns false if none was for a second.
    fn wait_for_garbage(&mut self, before: u64) -> bool {
        let reclaimer = &self.store.reclaimer;
        let mut step = 0;
        loop {
            if reclaimer.make_room() > 0 || reclaimer.counts().freed > before {
                return true;
            }
            // The call before has waited for the same already. A write that must not fail waits all the same.
            if (!self.writer.must_succeed && self.given_up_at == Some(before)) || !pause(&mut step) {
                self.given_up_at = Some(before);
                return false;
            }
        }
    }

    /// Notes that no write waits for memory any more.
    #[inline]
    pub(crate) fn end_shortage(&mut self) {
        self.shortage.end();
        self.writer.moves_of_refused = 0;
    }

    /// Frees garbage for a write of a batch that has found no memory, and tries it again.
    pub(crate) fn free_and_try(&mut self, now: Instant, mut attempt: impl FnMut(&mut Self) -> bool) -> Outcome {
        self.hand_over();
        for count in 1.. {
            let freed = self.store.reclaimer.make_room();
            let before = self.store.reclaimer.counts();
            if attempt(self) {
                return Outcome::Done;
            }
            let has_moved = !self.writer.replaced.is_empty();
            if has_moved {
                // It has moved frames in vain: what they leave will be free too.
                self.hand_over();
                self.shortage.prolong(self.store.reclaimer.counts().handed_over);
            }
            if self.shortage.is_over(before, self.writer.must_succeed, now) {
                return Outcome::Refused;
            }
            // While frames are moved there is more to free; that ends, see `moves_of_refused`.
            if !has_moved && (freed == 0 || count >= ATTEMPT_COUNT_MAX) {
                break;
            }
        }
        Outcome::Waits
    }
}

/// What became of a write that had found no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was carried out after garbage was freed.
    Done,
    /// Memory is full.
    Refused,
    /// There is garbage that may be freed.
    Waits,
}

/// Times that a write of a batch is tried again at once: it merges a leaf in vain each time.
const ATTEMPT_COUNT_MAX: u32 = 4;

impl<T: Trace> Drop for Session<'_, T> {
    fn drop(&mut self) {
        self.collect();
    }
}
