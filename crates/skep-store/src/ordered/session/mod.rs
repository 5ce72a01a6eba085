//! A thread's access to an ordered store.

mod check;
mod deferred;
mod effects;
mod execute;
mod flush;
mod layout;
mod load;
mod random_key;
mod reclaim;
mod scans;
mod shortage;
mod snapshot;

use std::time::Instant;

pub use check::Checked;
pub use effects::{Effect, Effects};
pub use execute::OwnerRun;
pub use flush::{FLUSH_KEYS_MAX, FlushStep};
pub use layout::NodeLayout;
pub use load::{Load, MissingMemory};
pub use reclaim::STEP_KEYS_MAX;
use scans::SCANS_AT_ONCE;
use shortage::{Shortage, pause};
pub use snapshot::{SnapshotStep, SnapshotWalk};

use super::key_head::{Target, fingerprint};
use super::leaf::cursor::Seen;
use super::leaf::find;
use super::node::overflow;
use super::node::value::{Content, Value};
use super::read::descent::GROUP_SIZE;
use super::store::OrderedStore;
use super::version::clock::Snapshot;
use super::version::epoch::{Guard, Participant};
use super::version::garbage::BATCH_SIZE;
use super::version::reclaim::PART_SIZE_MAX;
use super::write::attempt::Writer;
use super::write::change::Change;
use skep_core::operation::{
    KEY_SIZE_MAX, Operation, OperationError, PutCondition, Range, Reply, Request, VALUE_SIZE_MAX,
};

/// Executes operations on a store, one at a time. Sessions of several threads run concurrently.
#[derive(Debug)]
pub struct Session<'s> {
    pub(crate) store: &'s OrderedStore,
    pub(crate) participant: Participant<'s>,
    pub(crate) writer: Writer,
    /// The bytes of an overflow value; kept for its memory.
    pub(crate) scratch: Vec<u8>,
    /// The pages of a group of scans; empty, kept for their memory.
    pages: [Vec<u8>; SCANS_AT_ONCE],
    /// The shortage of memory for the writes of batches.
    pub(crate) shortage: Shortage,
    /// Pieces of garbage that were freed when a single call stopped waiting for more.
    given_up_at: Option<u64>,
    /// Expired keys that it has removed.
    expired: u64,
}

impl OrderedStore {
    /// Opens a session for a thread. Returns `None` if there are 128 already.
    pub fn session(&self) -> Option<Session<'_>> {
        Some(Session::new(self, self.reclaimer.epochs.join()?))
    }
}

impl<'s> Session<'s> {
    fn new(store: &'s OrderedStore, participant: Participant<'s>) -> Self {
        let (writer, scratch, shortage) = (Writer::default(), Vec::new(), Shortage::default());
        let (pages, given_up_at, expired) = (Default::default(), None, 0);
        Session { store, participant, writer, scratch, pages, shortage, given_up_at, expired }
    }

    /// Appends the value of a key to `value`. Returns true if the key exists; an invalid key does not.
    pub fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool {
        let guard = self.participant.enter();
        let Snapshot { version, now } = self.store.snapshot();
        let leaf = self.store.find_leaf(Target::AtOrBelow(key), version, &guard);
        let found = find::get(leaf, key, fingerprint(key), version).filter(|found| !found.has_expired(now));
        match found.map(Value::content) {
            None => return false,
            Some(Content::Inside(bytes)) => value.extend_from_slice(bytes),
            Some(Content::Overflow(reference)) => {
                overflow::with_parts(&self.store.frames, reference, &guard, |_, part| value.extend_from_slice(part));
            }
        }
        true
    }

    /// Calls `f` with the values of many keys in their order, all as of one moment. Cache misses of different keys
    /// overlap, so a batch takes a fraction of the time of single gets.
    pub fn get_batch(&mut self, keys: &[&[u8]], mut f: impl FnMut(Option<&[u8]>)) {
        let Session { store, participant, scratch, .. } = self;
        let guard = participant.enter();
        let snapshot = store.snapshot();
        for group in keys.chunks(GROUP_SIZE) {
            store.get_group(group, snapshot, &guard, |value| {
                f(value.map(|value| value.in_full(&store.frames, scratch, &guard)));
            });
        }
    }

    /// Inserts or replaces the value of a key, if the condition holds. Returns [`Reply::Done`], [`Reply::Exists`],
    /// [`Reply::NotFound`] or [`Reply::Failed`], once the data that decided it is readable. If memory is short it waits
    /// while garbage is being freed, and fails when none was freed for a second.
    pub fn put(&mut self, key: &[u8], value: &[u8], condition: PutCondition) -> Reply<'static> {
        if let Err(error) = validate_put(key, value) {
            return Reply::Failed(error);
        }
        let operation = Operation::Put { value, condition };
        let change = Change::Execute(&operation);
        let done = self.try_write_inlined(key, change);
        self.end_write(key, change, done)
    }

    /// Puts many pairs in their order, as single puts would, and calls `f` with the replies. Cache misses of different
    /// keys overlap.
    pub fn put_batch(&mut self, pairs: &[(&[u8], &[u8])], condition: PutCondition, mut f: impl FnMut(Reply<'static>)) {
        let mut rest = pairs;
        while !rest.is_empty() {
            let done = self.put_group(&rest[..rest.len().min(GROUP_SIZE)], condition, &mut f);
            rest = &rest[done..];
            if let (0, Some(((key, value), others))) = (done, rest.split_first()) {
                // There is no memory, perhaps because the group holds garbage.
                f(self.put(key, value, condition));
                rest = others;
            }
        }
    }

    /// Puts pairs until all are put, or there is no memory for one. Returns the number of pairs that were put.
    fn put_group(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        condition: PutCondition,
        f: &mut impl FnMut(Reply<'static>),
    ) -> usize {
        let Session { store, participant, writer, .. } = self;
        let guard = participant.enter();
        let mut keys: [&[u8]; GROUP_SIZE] = [&[]; GROUP_SIZE];
        keys.iter_mut().zip(pairs).for_each(|(slot, (key, _))| *slot = key);
        let mut positions = store.positions_at_root(&guard);
        store.find_positions(&keys[..pairs.len()], &mut positions, &guard);
        let mut done = pairs.len();
        for (index, (key, value)) in pairs.iter().enumerate() {
            let operation = Operation::Put { value, condition };
            let reply = match validate_put(key, value) {
                Ok(()) => {
                    let position = || positions.of(index).at_present();
                    store.write_at(key, Change::Execute(&operation), position, writer, &guard)
                }
                Err(error) => Some(Reply::Failed(error)),
            };
            let Some(reply) = reply else {
                done = index;
                break;
            };
            f(reply);
        }
        drop(guard);
        self.collect_batch();
        done
    }

    /// Removes a key. Returns [`Reply::Done`], [`Reply::NotFound`] or [`Reply::Failed`]. Waits for memory as
    /// [`Session::put`] does.
    pub fn delete(&mut self, key: &[u8]) -> Reply<'static> {
        match (Request { key, operation: Operation::Delete }).validate() {
            Ok(()) => self.write(key, Change::Execute(&Operation::Delete)),
            Err(error) => Reply::Failed(error),
        }
    }

    /// Calls `f` with the pairs of a range in the order of their keys, all as of one moment, until it returns false.
    pub fn scan(&mut self, range: Range<'_>, mut f: impl FnMut(&[u8], &[u8]) -> bool) {
        let Session { store, participant, scratch, .. } = self;
        let guard = participant.enter();
        let snapshot = store.snapshot();
        store.scan(range, snapshot, &guard, |key, seen| match seen {
            Seen::Pair(value) => f(key, value.in_full(&store.frames, scratch, &guard)),
            Seen::Expired(_) => true,
        });
    }

    /// Calls `f` with the pairs of many ranges, all as of one moment: with the index of the range, key and value. Pairs
    /// of one range come in the order of their keys until `f` returns false, in turn with those of other ranges. Cache
    /// misses of different ranges overlap.
    pub fn scan_batch(&mut self, ranges: &[Range<'_>], mut f: impl FnMut(usize, &[u8], &[u8]) -> bool) {
        let Session { store, participant, scratch, .. } = self;
        let guard = participant.enter();
        let snapshot = store.snapshot();
        for (group, ranges) in ranges.chunks(GROUP_SIZE).enumerate() {
            store.scan_group(ranges, snapshot, &guard, |index, key, seen| {
                let Seen::Pair(value) = seen else { return true };
                f(group * GROUP_SIZE + index, key, value.in_full(&store.frames, scratch, &guard))
            });
        }
    }

    /// Does the same as [`Session::scan`], from the greatest key to the lowest.
    pub fn scan_reverse(&mut self, range: Range<'_>, mut f: impl FnMut(&[u8], &[u8]) -> bool) {
        let Session { store, participant, scratch, .. } = self;
        let guard = participant.enter();
        let snapshot = store.snapshot();
        store.scan_reverse(range, snapshot, &guard, |key, seen| match seen {
            Seen::Pair(value) => f(key, value.in_full(&store.frames, scratch, &guard)),
            Seen::Expired(_) => true,
        });
    }

    /// Hands over all garbage of the session and frees all garbage that can be freed. The locks are free between parts
    /// of 64 pieces, so other threads wait only for one part.
    pub fn collect(&mut self) {
        while self.collect_part() {}
    }

    /// Hands over the garbage of the session and frees at most 64 pieces of garbage. Returns true if it has freed any:
    /// then there may be more.
    pub fn collect_part(&mut self) -> bool {
        self.hand_over();
        self.store.reclaimer.collect() > 0
    }

    fn hand_over(&mut self) {
        let retired = &mut self.writer.retired;
        if !retired.is_empty() {
            let pieces = std::mem::replace(retired, Vec::with_capacity(2 * BATCH_SIZE));
            self.store.reclaimer.hand_over(pieces);
        }
    }

    /// Frees a part if the session has enough garbage.
    #[inline]
    pub(crate) fn collect_batch(&mut self) {
        // Other threads may wait for it when memory is scarce.
        let count = self.writer.retired.len();
        if count >= BATCH_SIZE || (count > 0 && self.store.is_scarce()) {
            self.collect_parts(count);
        }
    }

    /// Hands over the garbage of the session, `count` pieces, and frees at least as many if they can be freed.
    #[inline(never)]
    fn collect_parts(&mut self, count: usize) {
        let parts = 1 + count / PART_SIZE_MAX;
        let _ = (0..parts).take_while(|_| self.collect_part()).count();
    }

    /// Begins an operation for another module.
    pub(crate) fn enter(&mut self) -> (&'s OrderedStore, Guard<'_>) {
        (self.store, self.participant.enter())
    }

    /// Executes a valid write.
    fn write(&mut self, key: &[u8], change: Change<'_>) -> Reply<'static> {
        let done = self.try_write(key, change);
        self.end_write(key, change, done)
    }

    /// Ends a write, for which there may have been no memory.
    #[inline(always)]
    fn end_write(&mut self, key: &[u8], change: Change<'_>, done: Option<Reply<'static>>) -> Reply<'static> {
        let reply = done.or_else(|| self.write_with_memory(key, change));
        self.collect_batch();
        reply.unwrap_or(Reply::Failed(OperationError::NodesFull))
    }

    fn try_write(&mut self, key: &[u8], change: Change<'_>) -> Option<Reply<'static>> {
        self.try_write_inlined(key, change)
    }

    /// Does the same without a call.
    #[inline(always)]
    fn try_write_inlined(&mut self, key: &[u8], change: Change<'_>) -> Option<Reply<'static>> {
        let Session { store, participant, writer, .. } = self;
        let guard = participant.enter();
        let position = store.position_of(key, &guard);
        store.write_at(key, change, || position, writer, &guard)
    }

    /// Waits for memory, and executes a write that has found none.
    #[cold]
    fn write_with_memory(&mut self, key: &[u8], change: Change<'_>) -> Option<Reply<'static>> {
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
            if !self.writer.retired.is_empty() {
                // It has moved frames, but was aborted: the memory of the old frames will be free too.
                self.hand_over();
                end = self.store.reclaimer.counts().handed_over;
            }
            if before >= end && self.writer.must_succeed {
                // The reserve is in use by other threads, which return it, some of it as garbage of later writes.
                if self.store.reclaimer.make_room() == 0 && !pause(&mut step) {
                    return None;
                }
            } else if before >= end || !self.wait_for_garbage(before) {
                // The memory that was freed before the attempt was not enough.
                return None;
            }
        }
    }

    /// Waits until more than `before` pieces of garbage have been freed. Returns false if none was freed for a second.
    fn wait_for_garbage(&mut self, before: u64) -> bool {
        let reclaimer = &self.store.reclaimer;
        let mut step = 0;
        loop {
            if reclaimer.make_room() > 0 || reclaimer.counts().freed > before {
                return true;
            }
            // The call before has waited for the same already. A write that must not fail waits nevertheless.
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

    /// Frees garbage for a write of a batch that has found no memory, and attempts it again.
    pub(crate) fn free_and_try(&mut self, now: Instant, mut attempt: impl FnMut(&mut Self) -> bool) -> Outcome {
        self.hand_over();
        for count in 1.. {
            let freed = self.store.reclaimer.make_room();
            let before = self.store.reclaimer.counts();
            if attempt(self) {
                return Outcome::Done;
            }
            let has_moved = !self.writer.retired.is_empty();
            if has_moved {
                // It has moved frames, but was aborted: the memory of the old frames will be free too.
                self.hand_over();
                self.shortage.prolong(self.store.reclaimer.counts().handed_over);
            }
            if self.shortage.is_over(before, self.writer.must_succeed, now) {
                self.store.expiries.end_pause();
                return Outcome::Refused;
            }
            // While frames are moved there is more to free; `moves_of_refused` bounds that.
            if !has_moved && (freed == 0 || count >= ATTEMPT_COUNT_MAX) {
                break;
            }
        }
        Outcome::Waits
    }
}

/// Checks a put.
#[inline(always)]
fn validate_put(key: &[u8], value: &[u8]) -> Result<(), OperationError> {
    if !key.is_empty() && key.len() <= KEY_SIZE_MAX && value.len() <= VALUE_SIZE_MAX {
        // As nearly all: without a call.
        return Ok(());
    }
    (Request { key, operation: Operation::Put { value, condition: PutCondition::Always } }).validate()
}

/// The outcome of a write that had found no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was executed after garbage was freed.
    Done,
    /// Memory is full.
    Refused,
    /// There is garbage that may be freed.
    Waits,
}

/// Most attempts of a write of a batch at once: each merges a leaf and is aborted.
const ATTEMPT_COUNT_MAX: u32 = 4;

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.collect();
    }
}
