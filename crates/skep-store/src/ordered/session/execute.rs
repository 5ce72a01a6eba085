//! Batches of all operations on an ordered store.
//!
//! ```text
//! requests   get a │ get b │ put c │ get d │ put b │ get c │ scan
//! executed                   put c   a b d   put b   get c   scan        the reads of a group descend in lock step
//! ```
//!
//! 1. Reads wait until a group of them is complete, until a write to one of their keys follows, or until something follows
//!    that may use up the budget before they are executed.
//! 2. Writes and scans take effect in the order of the requests; a group of them descends in lock step.
//!    Short scans that follow each other run as a group (`scans`).
//! 3. A write returns when its version is readable.
//! 4. A write that finds no memory while garbage waits is deferred, and later requests may overtake it (`deferred`).

use std::ops::Range;
use std::time::Instant;

use super::super::node::overflow;
use super::super::node::value::{Content, Value};
use super::super::read::descent::{GROUP_SIZE, KeyPosition};
use super::super::read::group::KeyPositions;
use super::super::store::OrderedStore;
use super::super::version::clock::Snapshot;
use super::super::version::epoch::Guard;
use super::super::version::reclaim::Reclaimer;
use super::super::write::attempt::Writer;
use super::super::write::change::{Change, found_of};
use super::deferred::Deferred;
use super::scans::{PAIR_WORK, SCANS_AT_ONCE, short_scan};
use super::{Outcome, Session};
use crate::apply::{self, Arena, Found, apply, old_value_size_max};
use crate::processor::{Grant, Replies};
use skep_core::operation::{Operation, OperationError, PAGE_SIZE_GOAL, PageWriter, Reply, Request, Scan, ScanLease};

/// The progress of a group of requests.
enum Progress {
    Done,
    /// There was no memory for the request at this index.
    NoMemory(usize),
    /// The rest is for a later batch.
    Deferred,
}

/// Requests of a batch that one owner has submitted. Leases that they open belong to that owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRun {
    /// The index after the last of these requests.
    pub end: usize,
    /// The owner. Only the owner of a lease can use it.
    pub owner: u64,
}

/// The context of the requests of a batch.
#[derive(Clone, Copy)]
struct Context<'c> {
    owners: &'c [OwnerRun],
    now: Instant,
}

impl Context<'_> {
    /// Returns the owner of the request at this index.
    fn owner_of(self, index: usize) -> u64 {
        let run = self.owners.partition_point(|run| run.end <= index);
        self.owners.get(run).map_or(0, |run| run.owner)
    }
}

/// Defers a request whose reply was not granted. Returns false if the batch has to end with it.
fn defer_reply(grant: Grant, index: usize, deferred: &mut Deferred, replies: &mut Replies) -> bool {
    if grant == Grant::NoRoom {
        replies.defer_for_room(index);
    }
    let has_place = !deferred.is_full();
    if has_place {
        deferred.push(index);
    }
    has_place
}

/// Finds the positions of the keys of requests that are executed one by one: writes, and scans that are not short. A
/// single one finds its position itself.
#[inline]
fn positions_of_lone<'g>(
    store: &'g OrderedStore,
    requests: &[Request<'_>],
    guard: &'g Guard<'_>,
) -> Option<KeyPositions<'g>> {
    let mut keys: [&[u8]; GROUP_SIZE] = [&[]; GROUP_SIZE];
    let is_lone = |request: &&Request<'_>| !request.operation.is_read() && short_scan(request).is_none();
    let lone = requests.iter().filter(is_lone);
    let count = keys.iter_mut().zip(lone).map(|(key, request)| *key = request.key).count();
    if count <= 1 {
        return None;
    }
    let mut positions = store.positions_at_root(guard);
    store.find_positions(&keys[..count], &mut positions, guard);
    Some(positions)
}

/// Reads that wait for their group, as indexes in the batch.
struct Reads {
    indexes: [usize; GROUP_SIZE],
    count: usize,
}

/// Short scans that wait for their group, as indexes in the batch.
#[derive(Default)]
struct Scans {
    indexes: [usize; GROUP_SIZE],
    count: usize,
}

impl Session<'_> {
    /// Executes all requests for one owner of leases, as [`Session::execute_for`] does.
    pub fn execute(&mut self, requests: &[Request<'_>], replies: &mut Replies, now: Instant) {
        self.execute_for(&[], requests, replies, now);
    }

    /// Executes all requests. Requests on one key take effect in their order, and so do writes and scans; other reads
    /// in any order. `replies` is overwritten with the replies, in the order of the requests. `owners` are the owners
    /// of the requests, `now` is the time for leases and for waiting.
    ///
    /// Requests may be deferred: their reply is [`Reply::Deferred`]. Then all later requests on the same key are
    /// deferred too, except scans that begin above it. This happens when the reply budget is used up, when overflow
    /// values exceed the work of a batch, or when a write finds no memory while garbage is being freed. A deferred
    /// write is submitted again until it is executed, or refused because no garbage was freed for a second. Writes to
    /// other keys may overtake it.
    pub fn execute_for(&mut self, owners: &[OwnerRun], requests: &[Request<'_>], replies: &mut Replies, now: Instant) {
        self.store.reclaimer.leases.expire_due(&self.store.reclaimer.epochs, now);
        replies.reset(requests.len());
        let context = Context { owners, now };
        let mut reads = Reads { indexes: [0; GROUP_SIZE], count: 0 };
        let (mut deferred, mut is_memory_short) = (Deferred::default(), false);
        let mut next = 0;
        while next < requests.len() && !deferred.is_full() {
            let group = next..requests.len().min(next + GROUP_SIZE);
            next = match self.execute_group(requests, group.clone(), &mut reads, &mut deferred, replies, context) {
                Progress::Done => group.end,
                Progress::NoMemory(index) => {
                    if !self.execute_with_memory(&requests[index], index, replies, context) {
                        is_memory_short = true;
                        if deferred.is_full() {
                            break;
                        }
                        deferred.push(index);
                    }
                    index + 1
                }
                Progress::Deferred => break,
            };
            self.collect_batch();
        }
        if !is_memory_short {
            self.end_shortage();
        }
        let Session { store, participant, scratch, .. } = self;
        store.read_group(requests, &mut reads, &mut deferred, replies, scratch, &participant.enter());
    }

    /// Executes requests as one operation. Its writes and scans descend in lock step. Reads may be left to wait for
    /// their group.
    fn execute_group(
        &mut self,
        requests: &[Request<'_>],
        group: Range<usize>,
        reads: &mut Reads,
        deferred: &mut Deferred,
        replies: &mut Replies,
        context: Context<'_>,
    ) -> Progress {
        let Session { store, participant, writer, scratch, pages, .. } = self;
        let guard = participant.enter();
        let mut scans = Scans::default();
        let positions = positions_of_lone(store, &requests[group.clone()], &guard);
        let mut numbers = 0..;
        for (index, request) in group.clone().zip(&requests[group]) {
            let is_read = request.operation.is_read();
            let is_short_scan = short_scan(request).is_some();
            if !is_short_scan && !store.scan_group_of(requests, &mut scans, deferred, replies, pages, context, &guard) {
                return Progress::Deferred;
            }
            let number = if is_read || is_short_scan { None } else { numbers.next() };
            let known = number.and_then(|number| Some(positions.as_ref()?.of(number)));
            if let Err(error) = request.validate() {
                replies.set(index, Reply::Failed(error));
                continue;
            }
            let waits_for_it = |read: &usize| requests[*read].key == request.key;
            let is_waited_for = !is_read && reads.indexes[..reads.count].iter().any(waits_for_it);
            // Large writes and scans leave no part of the budget to reads that wait.
            let takes_much = replies.has_touched_large() || is_short_scan && scans.count == 0;
            let is_overtaken = !is_read && reads.count > 0 && takes_much;
            if (is_waited_for || is_overtaken) && !store.read_group(requests, reads, deferred, replies, scratch, &guard)
            {
                return Progress::Deferred;
            }
            if !deferred.is_empty() && deferred.have_key_of(request, requests) {
                if matches!(request.operation, Operation::Scan(_)) {
                    store.scan_group_of(requests, &mut scans, deferred, replies, pages, context, &guard);
                    return Progress::Deferred;
                }
                continue;
            }
            if is_short_scan {
                scans.indexes[scans.count] = index;
                scans.count += 1;
                continue;
            }
            if is_read {
                reads.indexes[reads.count] = index;
                reads.count += 1;
                if reads.count == GROUP_SIZE && !store.read_group(requests, reads, deferred, replies, scratch, &guard) {
                    return Progress::Deferred;
                }
                continue;
            }
            let old_value_size = old_value_size_max(&request.operation);
            let may_go_on = if old_value_size.is_some() { replies.may_touch_large(true) } else { replies.may_go_on() };
            if !may_go_on {
                return Progress::Deferred;
            }
            // Opening and continuing change a lease, so its page must have room before.
            let is_leased = matches!(request.operation, Operation::Scan(scan) if scan.lease != ScanLease::None);
            if !replies.has_room(if is_leased { PAGE_SIZE_GOAL } else { old_value_size.unwrap_or(0) }) {
                if !defer_reply(Grant::NoRoom, index, deferred, replies) || is_leased {
                    return Progress::Deferred;
                }
                continue;
            }
            if let Operation::Scan(scan) = &request.operation {
                if !store.scan_alone(request.key, scan, index, replies, context, &guard) {
                    defer_reply(Grant::NoRoom, index, deferred, replies);
                    return Progress::Deferred;
                }
            } else if !store.write_alone(request, index, known, writer, replies, &guard) {
                return Progress::NoMemory(index);
            }
        }
        match store.scan_group_of(requests, &mut scans, deferred, replies, pages, context, &guard) {
            true => Progress::Done,
            false => Progress::Deferred,
        }
    }

    /// Executes a write for which there was no memory, if memory can be freed. Refuses it otherwise. Returns false if
    /// it is to be deferred.
    #[cold]
    fn execute_with_memory(
        &mut self,
        request: &Request<'_>,
        index: usize,
        replies: &mut Replies,
        context: Context<'_>,
    ) -> bool {
        let outcome = self.free_and_try(context.now, |session| {
            let Session { store, participant, writer, .. } = session;
            store.write_alone(request, index, None, writer, replies, &participant.enter())
        });
        if matches!(outcome, Outcome::Refused) {
            replies.set(index, Reply::Failed(OperationError::NodesFull));
        }
        !matches!(outcome, Outcome::Waits)
    }
}

impl OrderedStore {
    /// Executes the reads that wait, all as of one snapshot, even if the budget is used up; large values need a part of it.
    /// Returns true if the batch may go on.
    fn read_group(
        &self,
        requests: &[Request<'_>],
        reads: &mut Reads,
        deferred: &mut Deferred,
        replies: &mut Replies,
        scratch: &mut Vec<u8>,
        guard: &Guard<'_>,
    ) -> bool {
        let indexes = &reads.indexes[..std::mem::take(&mut reads.count)];
        let mut keys: [&[u8]; GROUP_SIZE] = [&[]; GROUP_SIZE];
        for (key, index) in keys.iter_mut().zip(indexes) {
            *key = requests[*index].key;
        }
        let snapshot = self.snapshot();
        let mut next = indexes.iter();
        let mut is_within_budget = true;
        // Reads compute nothing that needs memory.
        let arena = Arena::default();
        self.get_group(&keys[..indexes.len()], snapshot, guard, |value| {
            let index = *next.next().expect("as many values as keys");
            let operation = &requests[index].operation;
            let is_after_deferred = || !deferred.is_empty() && deferred.have_key_of(&requests[index], requests);
            // Left for later, like all requests after it, which may have its key.
            if !is_within_budget || is_after_deferred() {
                return;
            }
            if let (Operation::Call(_), Some(value)) = (operation, value) {
                is_within_budget = self.read_by_call(operation, value, index, deferred, replies, guard);
                return;
            }
            let read = match apply(operation, value.map(|value| move || found_of(value)), &arena) {
                apply::Outcome::Read(read) => read,
                apply::Outcome::Reply(reply) => return replies.set(index, reply),
                _ => unreachable!("a read changes nothing, and is computed from any pieces"),
            };
            match value.expect("what is read exists").content() {
                Content::Inside(bytes) => replies.slot(index).set_read(read, bytes),
                Content::Overflow(_) if let apply::Read::Number(_) = read => replies.slot(index).set_read(read, &[]),
                Content::Overflow(reference) => {
                    let value_size = overflow::value_size(reference);
                    let range = read.range(value_size);
                    let reply_size = read.reply_size_max(value_size);
                    if !replies.may_touch_large(reply_size > 0) {
                        is_within_budget = false;
                        return;
                    }
                    let grant = replies.grant(reply_size);
                    if grant != Grant::Granted {
                        is_within_budget = defer_reply(grant, index, deferred, replies);
                        return;
                    }
                    replies.touch_large_for(index, read.work(range.len()));
                    let start = range.start;
                    overflow::copy_range(&self.frames, reference, range, scratch, guard);
                    replies.slot(index).set_read_of_part(read, start, scratch);
                }
            }
        });
        is_within_budget && replies.may_go_on()
    }

    /// Executes a reduce or a filter by a user function, on the value in one piece. Returns false if the batch has to
    /// end before it.
    fn read_by_call(
        &self,
        operation: &Operation<'_>,
        value: Value<'_>,
        index: usize,
        deferred: &mut Deferred,
        replies: &mut Replies,
        guard: &Guard<'_>,
    ) -> bool {
        if !replies.may_touch_large(true) {
            return false;
        }
        let mut copy = Vec::new();
        let bytes = match value.content() {
            Content::Inside(bytes) => bytes,
            Content::Overflow(reference) => {
                overflow::with_parts(&self.frames, reference, guard, |_, part| copy.extend_from_slice(part));
                &copy
            }
        };
        let arena = Arena::default();
        let outcome = apply(operation, Some(|| Found::bytes(bytes, value.expiry())), &arena);
        replies.touch_large_for(index, copy.len() + arena.work());
        match outcome {
            apply::Outcome::Read(read) => {
                let grant = replies.grant(read.reply_size_max(bytes.len()));
                if grant != Grant::Granted {
                    return defer_reply(grant, index, deferred, replies);
                }
                replies.slot(index).set_read(read, bytes);
            }
            apply::Outcome::Reply(reply) => replies.set(index, reply),
            _ => unreachable!("a reduce or a filter changes nothing, and the value is in one piece"),
        }
        true
    }

    /// Executes the short scans that wait, in groups whose pages have room even if all are full. A group has at least one
    /// scan. Returns false if the batch has to end.
    #[expect(clippy::too_many_arguments, reason = "the fields of a session, except its participant")]
    fn scan_group_of(
        &self,
        requests: &[Request<'_>],
        scans: &mut Scans,
        deferred: &mut Deferred,
        replies: &mut Replies,
        pages: &mut [Vec<u8>; SCANS_AT_ONCE],
        context: Context<'_>,
        guard: &Guard<'_>,
    ) -> bool {
        let mut waiting = &scans.indexes[..std::mem::take(&mut scans.count)];
        while !waiting.is_empty() {
            if !replies.may_go_on() {
                return false;
            }
            let has_room = |count: &usize| replies.has_room(count * PAGE_SIZE_GOAL);
            let count = (1..=waiting.len().min(SCANS_AT_ONCE)).rev().find(has_room).unwrap_or(1);
            let (done, has_room) = self.scan_pages(requests, &waiting[..count], pages, replies, guard);
            waiting = &waiting[done..];
            if done == count {
                continue;
            }
            // Scans after this one must not overtake it.
            let index = waiting[0];
            if !has_room {
                defer_reply(Grant::NoRoom, index, deferred, replies);
                return false;
            }
            // Its page begins with a value that is larger than a page.
            let Operation::Scan(scan) = &requests[index].operation else { unreachable!("only scans wait") };
            if !replies.may_go_on() {
                return false;
            }
            if !self.scan_alone(requests[index].key, scan, index, replies, context, guard) {
                defer_reply(Grant::NoRoom, index, deferred, replies);
                return false;
            }
            waiting = &waiting[1..];
        }
        true
    }

    /// Executes a write, whose position may be known. Returns false if there is no memory for it.
    fn write_alone(
        &self,
        request: &Request<'_>,
        index: usize,
        known: Option<KeyPosition<'_>>,
        writer: &mut Writer,
        replies: &mut Replies,
        guard: &Guard<'_>,
    ) -> bool {
        let Some(outcome) = self.write(request.key, Change::Execute(&request.operation), known, writer, guard) else {
            replies.touch_large(writer.scratch.work());
            return false;
        };
        let (reply, written_size) = writer.scratch.reply(outcome);
        if written_size > overflow::VALUE_IN_NODE_SIZE_MAX {
            replies.touch_large_for(index, written_size);
        }
        if let Reply::Value(value) = reply {
            replies.use_room(value.len());
        }
        replies.set(index, reply);
        true
    }

    /// Executes a valid scan that is not a part of a group. Returns false, and has done nothing, if there is no room for
    /// its page.
    fn scan_alone(
        &self,
        key: &[u8],
        scan: &Scan<'_>,
        index: usize,
        replies: &mut Replies,
        context: Context<'_>,
        guard: &Guard<'_>,
    ) -> bool {
        let start = replies.bytes_mut().len();
        match self.scan_page(key, scan, context.owner_of(index), context.now, guard, replies.bytes_mut()) {
            Ok(count) => {
                let size = replies.bytes_mut().len() - start;
                // With a lease, there was room before, unless the page is one large value.
                if scan.lease == ScanLease::None && !replies.has_room(size) {
                    replies.bytes_mut().truncate(start);
                    replies.touch_large(size + count * PAIR_WORK);
                    return false;
                }
                replies.finish_value(index, start);
                replies.use_room(size);
                replies.touch_large_for(index, size + count * PAIR_WORK);
            }
            Err(error) => replies.set(index, Reply::Failed(error)),
        }
        true
    }

    /// Appends a page of a valid scan of an owner. Returns the number of its pairs and of expired keys that it skipped.
    fn scan_page(
        &self,
        key: &[u8],
        scan: &Scan<'_>,
        owner: u64,
        now: Instant,
        guard: &Guard<'_>,
        out: &mut Vec<u8>,
    ) -> Result<usize, OperationError> {
        let Reclaimer { leases, epochs, .. } = &self.reclaimer;
        let reading = match scan.lease {
            ScanLease::None => None,
            // Without versions there is no state that pages could share.
            _ if !self.versions.are_on() => return Err(OperationError::LeaseExpired),
            ScanLease::Open => Some(leases.open(epochs, &self.versions, owner, now)),
            ScanLease::Continue(number) => Some(leases.resume(epochs, number, owner, now)),
        };
        let reading = reading.map(|reading| reading.ok_or(OperationError::LeaseExpired)).transpose()?;
        // A page of a lease shows the lease's version without the keys that have expired now.
        let (snapshot, guard) = match &reading {
            Some(reading) => {
                let (version, guard) = reading.as_of(guard);
                (Snapshot { version, now: self.clock.now() }, guard)
            }
            None => (self.snapshot(), guard),
        };
        let mut page = PageWriter::new(out, scan.answer);
        let end = self.fill_page(key, scan, snapshot, guard, &mut page);
        let count = page.count() as usize + end.skipped;
        let lease = reading.as_ref().and_then(|reading| reading.conclude(end.more));
        // The last key is in a frame that the reading pins, and borrows from it.
        page.finish(end.last_key, end.more, lease);
        Ok(count)
    }
}
