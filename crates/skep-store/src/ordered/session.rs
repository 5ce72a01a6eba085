//! A thread's way to an ordered store.

use super::batch::GROUP_SIZE;
use super::epoch::{Guard, Participant};
use super::garbage::{BATCH_SIZE, Garbage};
use super::outside;
use super::scan::{End, Start};
use super::segment::Value;
use super::trace::{Trace, Untraced};
use super::tree::OrderedStore;
use super::version::wait;
use super::window::{Target, fingerprint};
use super::write::{Attempt, Change};
use super::{leaf, outside::OutsideValue};
use crate::operation::{KEY_SIZE_MAX, OperationError, PutCondition, Reply, VALUE_SIZE_MAX};

/// Works on a store, one operation at a time. Sessions of several threads work side by side.
#[derive(Debug)]
pub struct Session<'s, T: Trace = Untraced> {
    store: &'s OrderedStore<T>,
    participant: Participant<'s>,
    /// What this session replaced and has not tagged yet. All of it is readable.
    replaced: Vec<Garbage>,
}

impl<'s, T: Trace> Session<'s, T> {
    pub(super) fn new(store: &'s OrderedStore<T>, participant: Participant<'s>) -> Self {
        Session { store, participant, replaced: Vec::with_capacity(2 * BATCH_SIZE) }
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
        let guard = self.participant.enter();
        let version = self.store.versions.read();
        let mut whole = Vec::new();
        for group in keys.chunks(GROUP_SIZE) {
            self.store.get_group(group, version, &guard, |value| match value {
                Some(value) if value.is_outside => {
                    whole.clear();
                    outside::visit(&self.store.frames, value.bytes, &guard, |_, part| whole.extend_from_slice(part));
                    show(Some(&whole));
                }
                value => show(value.map(|value| value.bytes)),
            });
        }
    }

    /// Inserts or replaces the value of a key, if the condition holds. The answer is [`Reply::Done`], [`Reply::Exists`],
    /// [`Reply::NotFound`] or [`Reply::Failed`]; whatever it tells can be read by all.
    pub fn put(&mut self, key: &[u8], value: &[u8], condition: PutCondition) -> Reply<'static> {
        if let Err(error) = validate_key(key) {
            return Reply::Failed(error);
        }
        if value.len() > VALUE_SIZE_MAX {
            return Reply::Failed(OperationError::ValueTooLong);
        }
        if value.len() <= outside::VALUE_INSIDE_SIZE_MAX {
            let value = Value { bytes: value, is_outside: false };
            return self.write(key, Change::Put { value, condition });
        }
        let Some(outside) = self.with_memory(|session| session.write_outside(value)) else {
            return Reply::Failed(OperationError::NodesFull);
        };
        let reference = outside.reference;
        let reply = self.write(key, Change::Put { value: Value { bytes: &reference, is_outside: true }, condition });
        if reply != Reply::Done {
            outside.discard(&mut self.store.space());
        }
        reply
    }

    /// Removes a key. The answer is [`Reply::Done`], [`Reply::NotFound`] or [`Reply::Failed`].
    pub fn delete(&mut self, key: &[u8]) -> Reply<'static> {
        match validate_key(key) {
            Ok(()) => self.write(key, Change::Delete),
            Err(error) => Reply::Failed(error),
        }
    }

    /// Shows the pairs of a range in the order of their keys, all as of one moment, until `visit` answers false. A value is
    /// shown in parts: one, or several if it lies outside its node.
    pub fn scan(&mut self, start: Start<'_>, end: End<'_>, mut visit: impl FnMut(&[u8], &[u8]) -> bool) {
        let guard = self.participant.enter();
        let version = self.store.versions.read();
        let mut whole = Vec::new();
        self.store.scan(start, end, version, &guard, |key, value| {
            if !value.is_outside {
                return visit(key, value.bytes);
            }
            whole.clear();
            outside::visit(&self.store.frames, value.bytes, &guard, |_, part| whole.extend_from_slice(part));
            visit(key, &whole)
        });
    }

    /// As [`Session::scan`], from the greatest key to the lowest.
    pub fn scan_reverse(&mut self, start: Start<'_>, end: End<'_>, mut visit: impl FnMut(&[u8], &[u8]) -> bool) {
        let guard = self.participant.enter();
        let version = self.store.versions.read();
        let mut whole = Vec::new();
        self.store.scan_reverse(start, end, version, &guard, |key, value| {
            if !value.is_outside {
                return visit(key, value.bytes);
            }
            whole.clear();
            outside::visit(&self.store.frames, value.bytes, &guard, |_, part| whole.extend_from_slice(part));
            visit(key, &whole)
        });
    }

    /// Hands what was replaced over to be freed, and frees what can be.
    pub fn collect(&mut self) {
        if !self.replaced.is_empty() {
            let pieces = std::mem::replace(&mut self.replaced, Vec::with_capacity(2 * BATCH_SIZE));
            self.store.garbage().push(&self.store.epochs, pieces);
        }
        self.store.collect();
    }

    /// Begins an operation of another module.
    pub(super) fn enter(&mut self) -> (&'s OrderedStore<T>, Guard<'_>) {
        (self.store, self.participant.enter())
    }

    fn write(&mut self, key: &[u8], change: Change<'_>) -> Reply<'static> {
        let fingerprint = fingerprint(key);
        let reply = self.with_memory(|session| session.write_or_find_full(key, fingerprint, change));
        if self.replaced.len() >= BATCH_SIZE {
            self.collect();
        }
        reply.unwrap_or(Reply::Failed(OperationError::NodesFull))
    }

    /// Tries until the write is done, or refused, or finds no memory.
    fn write_or_find_full(&mut self, key: &[u8], fingerprint: u8, change: Change<'_>) -> Option<Reply<'static>> {
        let mut rounds = 0;
        loop {
            let guard = self.participant.enter();
            let attempt = self.store.attempt(key, fingerprint, change, &guard, &mut self.replaced);
            drop(guard);
            match attempt {
                Attempt::Settled { reply, version } => {
                    self.store.versions.wait_until_readable(version);
                    return Some(reply);
                }
                Attempt::Again => wait(&mut rounds),
                Attempt::NoMemory => return None,
            }
        }
    }

    fn write_outside(&mut self, value: &[u8]) -> Option<OutsideValue> {
        OutsideValue::new(&self.store.frames, |granules| self.store.allocate(granules), value)
    }

    /// Tries again for as long as garbage can be freed.
    fn with_memory<R>(&mut self, mut attempt: impl FnMut(&mut Self) -> Option<R>) -> Option<R> {
        let mut rounds = 0;
        loop {
            if let Some(result) = attempt(self) {
                return Some(result);
            }
            if !self.replaced.is_empty() {
                self.collect();
            } else if !self.store.collect() {
                // What is left waits for operations under way, or there is nothing.
                if self.store.garbage().is_empty() || rounds > WAITS_FOR_GARBAGE_MAX {
                    return None;
                }
                wait(&mut rounds);
            }
        }
    }
}

/// Rounds of waiting for other operations before a write is answered that memory is full: a lease may hold garbage for
/// seconds.
const WAITS_FOR_GARBAGE_MAX: u32 = 10_000;

impl<T: Trace> Drop for Session<'_, T> {
    fn drop(&mut self) {
        self.collect();
    }
}

fn validate_key(key: &[u8]) -> Result<(), OperationError> {
    match key.len() {
        0 => Err(OperationError::KeyEmpty),
        1..=KEY_SIZE_MAX => Ok(()),
        _ => Err(OperationError::KeyTooLong),
    }
}
