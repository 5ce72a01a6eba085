//! A thread's way to an ordered store.

use super::batch::GROUP_SIZE;
use super::change::Change;
use super::epoch::{Guard, Participant};
use super::garbage::BATCH_SIZE;
use super::range::Range;
use super::trace::{Trace, Untraced};
use super::tree::OrderedStore;
use super::version::wait;
use super::window::{Target, fingerprint};
use super::write::Writer;
use super::{leaf, outside};
use crate::operation::{Operation, OperationError, PutCondition, Reply, Request};

/// Works on a store, one operation at a time. Sessions of several threads work side by side.
#[derive(Debug)]
pub struct Session<'s, T: Trace = Untraced> {
    pub(super) store: &'s OrderedStore<T>,
    pub(super) participant: Participant<'s>,
    pub(super) writer: Writer,
    /// A value that lies outside its node, put together; kept for its memory.
    pub(super) whole: Vec<u8>,
}

impl<'s, T: Trace> Session<'s, T> {
    pub(super) fn new(store: &'s OrderedStore<T>, participant: Participant<'s>) -> Self {
        Session { store, participant, writer: Writer::default(), whole: Vec::new() }
    }

    /// Appends the value of a key to `value`. Whether there is one; an invalid key has none.
    pub fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool {
        let guard = self.participant.enter();
        let version = self.store.versions.read();
        let leaf = self.store.find_leaf(Target::AtOrBelow(key), version, &guard);
        let Some(found) = leaf::get(leaf, key, fingerprint(key), version) else { return false };
        match found.is_outside {
            false => value.extend_from_slice(found.bytes),
            true => {
                outside::visit(&self.store.frames, found.bytes, &guard, |_, part| value.extend_from_slice(part));
            }
        }
        true
    }

    /// Shows the values of many keys in their order, all as of one moment. What is announced for one key travels while
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
    /// [`Reply::NotFound`] or [`Reply::Failed`]; whatever it tells can be read by all.
    pub fn put(&mut self, key: &[u8], value: &[u8], condition: PutCondition) -> Reply<'static> {
        match (Request { key, operation: Operation::Put { value, condition } }).validate() {
            Ok(()) => self.write(key, &Change::Put { value, condition }),
            Err(error) => Reply::Failed(error),
        }
    }

    /// Puts many pairs in their order, as so many single puts would, and shows the answers. What is announced for one key
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

    /// Removes a key. The answer is [`Reply::Done`], [`Reply::NotFound`] or [`Reply::Failed`].
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
    /// range come in the order of their keys until it answers false, in turn with those of others. What is announced for one
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

    /// Hands what was replaced over to be freed, and frees what can be.
    pub fn collect(&mut self) {
        let replaced = &mut self.writer.replaced;
        if !replaced.is_empty() {
            let pieces = std::mem::replace(replaced, Vec::with_capacity(2 * BATCH_SIZE));
            self.store.garbage().push(&self.store.epochs, pieces);
        }
        self.store.collect();
    }

    /// The same if enough was replaced for it.
    #[inline]
    pub(super) fn collect_batch(&mut self) {
        // Others may wait for it when little is free.
        if self.writer.replaced.len() >= BATCH_SIZE || (self.store.is_scarce() && !self.writer.replaced.is_empty()) {
            self.collect();
        }
    }

    /// Begins an operation of another module.
    pub(super) fn enter(&mut self) -> (&'s OrderedStore<T>, Guard<'_>) {
        (self.store, self.participant.enter())
    }

    /// Carries out a write of a valid request.
    fn write(&mut self, key: &[u8], change: &Change<'_>) -> Reply<'static> {
        let reply = self.with_memory(|session| {
            let Session { store, participant, writer, .. } = session;
            store.write(key, change, None, writer, &participant.enter())
        });
        self.collect_batch();
        reply.unwrap_or(Reply::Failed(OperationError::NodesFull))
    }

    /// Tries again for as long as garbage can be freed.
    pub(super) fn with_memory<R>(&mut self, mut attempt: impl FnMut(&mut Self) -> Option<R>) -> Option<R> {
        let mut rounds = 0;
        loop {
            if let Some(result) = attempt(self) {
                return Some(result);
            }
            if !self.writer.replaced.is_empty() {
                self.collect();
            } else if !self.store.collect() && !self.store.leases.expire_oldest(&self.store.epochs) {
                // What is left waits for operations under way, or there is nothing.
                // What is kept back for writes that must not fail may be in use, and is given back without becoming garbage.
                if (self.store.garbage().is_empty() && !self.writer.must_succeed) || rounds > WAITS_FOR_GARBAGE_MAX {
                    return None;
                }
                wait(&mut rounds);
            }
        }
    }
}

/// Rounds of waiting for other operations before a write is answered that memory is full.
const WAITS_FOR_GARBAGE_MAX: u32 = 10_000;

impl<T: Trace> Drop for Session<'_, T> {
    fn drop(&mut self) {
        self.collect();
    }
}
