//! Batches of all operations on an ordered store, as the processor runs them on a hash store.
//!
//! ```text
//! requests   get a │ get b │ put c │ get d │ put b │ get c │ scan
//! worked on                  put c   a b d   put b   get c   scan        reads of a group go through the tree together
//! ```
//!
//! Reads of one key wait until a group of them is together, or until a write of one of their keys comes. Writes and scans
//! take effect in the order of the requests; the ways to the keys of a group of them are gone in step. A write is answered
//! when all can read it. A write that finds no memory while garbage waits is deferred, and later requests may overtake it
//! (`deferred`).

use std::ops::Range;
use std::time::Instant;

use super::batch::GROUP_SIZE;
use super::change::found_of;
use super::deferred::Deferred;
use super::epoch::Guard;
use super::outside;
use super::reclaim::Reclaimer;
use super::segment::Value;
use super::session::{Outcome, Session};
use super::trace::Trace;
use super::tree::OrderedStore;
use super::write::{KeyPlace, Writer};
use crate::apply::{self, apply};
use crate::processor::{Grant, Replies};
use skep_core::operation::{
    Operation, OperationError, PAGE_SIZE_GOAL, PageWriter, Reply, Request, Scan, ScanLease, Shape, VALUE_SIZE_MAX,
};

/// What a pair that a scan passes counts for, in bytes of large values, beside what it answers: a line.
const PAIR_WORK: usize = crate::memory::LINE_SIZE;

/// How far a group of requests was executed.
enum Progress {
    Done,
    /// There was no memory for the request at this place.
    NoMemory(usize),
    /// What is left is for a later batch.
    Deferred,
}

/// Requests of a batch that one owner has submitted: leases that they open are that owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRun {
    /// The number of requests of the batch up to the last of these.
    pub end: usize,
    /// Who has submitted them. A lease is known to its owner only.
    pub owner: u64,
}

/// What the requests of a batch are carried out with.
#[derive(Clone, Copy)]
struct Context<'c> {
    owners: &'c [OwnerRun],
    now: Instant,
}

impl Context<'_> {
    /// Returns the owner of the request at this place.
    fn owner_of(self, place: usize) -> u64 {
        let run = self.owners.partition_point(|run| run.end <= place);
        self.owners.get(run).map_or(0, |run| run.owner)
    }
}

/// Returns the bytes that the reply to a write or a scan may have beyond those of a value inside a node.
fn reply_size_max(operation: &Operation<'_>) -> usize {
    match operation {
        Operation::Scan(_) => PAGE_SIZE_GOAL,
        Operation::Update(update) if update.return_old => match update.shape {
            Shape::ScalarToScalar => 0,
            Shape::ScalarToVector => VALUE_SIZE_MAX,
            Shape::VectorToVector => update.operand.len(),
        },
        _ => 0,
    }
}

/// Leaves a request for later whose reply was not granted. Returns false if the batch has to end with it.
fn defer_reply(grant: Grant, place: usize, deferred: &mut Deferred, replies: &mut Replies) -> bool {
    if grant == Grant::NoRoom {
        replies.defer_for_room(place);
    }
    let has_place = !deferred.is_full();
    if has_place {
        deferred.push(place);
    }
    has_place
}

/// Reads that wait for their group: places in the batch.
struct Reads {
    places: [usize; GROUP_SIZE],
    count: usize,
}

impl<T: Trace> Session<'_, T> {
    /// Executes all requests for one owner of leases, as [`Session::execute_for`] does.
    pub fn execute(&mut self, requests: &[Request<'_>], replies: &mut Replies, now: Instant) {
        self.execute_for(&[], requests, replies, now);
    }

    /// Executes all requests. Those of one key take effect in their order, and so do writes and scans; other reads in any.
    /// `replies` is overwritten with the answers, in the order of the requests. `owners` says who has submitted them, `now` is
    /// the time for leases and for waiting.
    ///
    /// Requests may be left unexecuted and answered [`Reply::Deferred`]: if one of a key is, so are all later ones of the same
    /// key, except scans that begin above it. This happens when the reply budget is used up, or too much of large values was
    /// read or written for one batch, and to a write for which there is no memory as long as garbage is being freed: submit
    /// it again, so that it is carried out or, when no garbage was freed for a second, refused. Writes of other keys may
    /// overtake it.
    pub fn execute_for(&mut self, owners: &[OwnerRun], requests: &[Request<'_>], replies: &mut Replies, now: Instant) {
        self.store.reclaimer.leases.expire_due(&self.store.reclaimer.epochs, now);
        replies.reset(requests.len());
        let context = Context { owners, now };
        let mut reads = Reads { places: [0; GROUP_SIZE], count: 0 };
        let (mut deferred, mut is_memory_short) = (Deferred::default(), false);
        let mut next = 0;
        while next < requests.len() && !deferred.is_full() {
            let group = next..requests.len().min(next + GROUP_SIZE);
            next = match self.execute_group(requests, group.clone(), &mut reads, &mut deferred, replies, context) {
                Progress::Done => group.end,
                Progress::NoMemory(place) => {
                    if !self.execute_with_memory(&requests[place], place, replies, context) {
                        is_memory_short = true;
                        if deferred.is_full() {
                            break;
                        }
                        deferred.push(place);
                    }
                    place + 1
                }
                Progress::Deferred => break,
            };
            self.collect_batch();
        }
        if !is_memory_short {
            self.end_shortage();
        }
        let Session { store, participant, whole, .. } = self;
        store.read_group(requests, &mut reads, &mut deferred, replies, whole, &participant.enter());
    }

    /// Executes requests as one operation, in which the ways to the keys that they write, and to where scans begin, are gone
    /// in step. Reads may be left to wait for their group.
    fn execute_group(
        &mut self,
        requests: &[Request<'_>],
        group: Range<usize>,
        reads: &mut Reads,
        deferred: &mut Deferred,
        replies: &mut Replies,
        context: Context<'_>,
    ) -> Progress {
        let Session { store, participant, writer, whole, .. } = self;
        let guard = participant.enter();
        let mut keys: [&[u8]; GROUP_SIZE] = [&[]; GROUP_SIZE];
        let alone = requests[group.clone()].iter().filter(|request| !request.operation.is_read());
        let alone_count = keys.iter_mut().zip(alone).map(|(key, request)| *key = request.key).count();
        let places = (alone_count > 1).then(|| store.places_of_group(&keys[..alone_count], &guard));
        let mut numbers = 0..alone_count;
        for (place, request) in group.clone().zip(&requests[group]) {
            let is_read = request.operation.is_read();
            let number = if is_read { None } else { numbers.next() };
            let known = number.and_then(|number| Some(places.as_ref()?.of(number)));
            if let Err(error) = request.validate() {
                replies.set(place, Reply::Failed(error));
                continue;
            }
            let waits_for_it = |read: &usize| requests[*read].key == request.key;
            let is_waited_for = !is_read && reads.places[..reads.count].iter().any(waits_for_it);
            if is_waited_for && !store.read_group(requests, reads, deferred, replies, whole, &guard) {
                return Progress::Deferred;
            }
            if !deferred.is_empty() && deferred.have_key_of(request, requests) {
                if matches!(request.operation, Operation::Scan(_)) {
                    return Progress::Deferred;
                }
                continue;
            }
            if is_read {
                reads.places[reads.count] = place;
                reads.count += 1;
                if reads.count == GROUP_SIZE && !store.read_group(requests, reads, deferred, replies, whole, &guard) {
                    return Progress::Deferred;
                }
                continue;
            }
            let replies_with_value = matches!(request.operation, Operation::Update(update) if update.return_old);
            let may_go_on = if replies_with_value { replies.may_touch_large(true) } else { replies.may_go_on() };
            if !may_go_on {
                return Progress::Deferred;
            }
            if !replies.has_room(reply_size_max(&request.operation)) {
                let is_scan = matches!(request.operation, Operation::Scan(_));
                if !defer_reply(Grant::NoRoom, place, deferred, replies) || is_scan {
                    return Progress::Deferred;
                }
                continue;
            }
            if !store.execute_alone(request, place, known, writer, replies, context, &guard) {
                return Progress::NoMemory(place);
            }
        }
        Progress::Done
    }

    /// Executes a write for which there was no memory, if memory can be freed. Otherwise refuses it; or returns false if it is to
    /// be deferred.
    #[cold]
    fn execute_with_memory(
        &mut self,
        request: &Request<'_>,
        place: usize,
        replies: &mut Replies,
        context: Context<'_>,
    ) -> bool {
        let outcome = self.free_and_try(context.now, |session| {
            let Session { store, participant, writer, .. } = session;
            store.execute_alone(request, place, None, writer, replies, context, &participant.enter())
        });
        if matches!(outcome, Outcome::Refused) {
            replies.set(place, Reply::Failed(OperationError::NodesFull));
        }
        !matches!(outcome, Outcome::Waits)
    }
}

impl<T: Trace> OrderedStore<T> {
    /// Answers the reads that wait, all as of one moment. Whether all could be within the budget.
    fn read_group(
        &self,
        requests: &[Request<'_>],
        reads: &mut Reads,
        deferred: &mut Deferred,
        replies: &mut Replies,
        whole: &mut Vec<u8>,
        guard: &Guard<'_>,
    ) -> bool {
        let places = &reads.places[..std::mem::take(&mut reads.count)];
        if !replies.may_go_on() {
            return places.is_empty();
        }
        let mut keys: [&[u8]; GROUP_SIZE] = [&[]; GROUP_SIZE];
        for (key, place) in keys.iter_mut().zip(places) {
            *key = requests[*place].key;
        }
        let version = self.versions.read();
        let mut next = places.iter();
        let mut is_within_budget = true;
        self.get_group(&keys[..places.len()], version, guard, |value| {
            let place = *next.next().expect("as many answers as keys");
            let operation = &requests[place].operation;
            let is_after_deferred = || !deferred.is_empty() && deferred.have_key_of(&requests[place], requests);
            // Left for later, and whatever comes after it, which may have its key.
            if !is_within_budget || is_after_deferred() {
                return;
            }
            let read = match apply(operation, value.map(|value| move || found_of(value))) {
                apply::Outcome::Read(read) => read,
                apply::Outcome::Reply(reply) => return replies.set(place, reply),
                apply::Outcome::Update(_) | apply::Outcome::Edit(_) => unreachable!("a read changes nothing"),
            };
            match value.expect("what is read exists") {
                Value { bytes, is_outside: false } => replies.slot(place).set_read(read, bytes),
                Value { bytes: reference, .. } => {
                    let value_size = outside::value_size(reference);
                    let reply_size = read.reply_size_max(value_size);
                    if !replies.may_touch_large(reply_size > 0) {
                        is_within_budget = false;
                        return;
                    }
                    let grant = replies.grant(reply_size);
                    if grant != Grant::Granted {
                        is_within_budget = defer_reply(grant, place, deferred, replies);
                        return;
                    }
                    replies.touch_large(value_size);
                    whole.clear();
                    outside::visit(&self.frames, reference, guard, |_, part| whole.extend_from_slice(part));
                    replies.slot(place).set_read(read, whole);
                }
            }
        });
        is_within_budget
    }

    /// Carries out a write, the place of whose key may be known, or a scan. False if there is no memory for it.
    #[expect(clippy::too_many_arguments, reason = "what a session consists of, without its place among the epochs")]
    fn execute_alone(
        &self,
        request: &Request<'_>,
        place: usize,
        known: Option<KeyPlace<'_, T>>,
        writer: &mut Writer,
        replies: &mut Replies,
        context: Context<'_>,
        guard: &Guard<'_>,
    ) -> bool {
        if let Operation::Scan(scan) = &request.operation {
            let start = replies.bytes_mut().len();
            match self.scan_page(request.key, scan, (context.owner_of(place), context.now), guard, replies.bytes_mut())
            {
                Ok(count) => {
                    let size = replies.bytes_mut().len() - start;
                    replies.finish_value(place, start);
                    replies.use_room(size);
                    replies.touch_large(size + count as usize * PAIR_WORK);
                }
                Err(error) => replies.set(place, Reply::Failed(error)),
            }
            return true;
        }
        let Some(outcome) = self.write(request.key, &request.operation, known, writer, guard) else { return false };
        let (reply, written_size) = writer.draft.reply(outcome);
        if written_size > outside::VALUE_INSIDE_SIZE_MAX {
            replies.touch_large(written_size);
        }
        if let Reply::Value(value) = reply {
            replies.use_room(value.len());
        }
        replies.set(place, reply);
        true
    }

    /// Appends a page of a valid scan of an owner. Returns the number of its pairs.
    fn scan_page(
        &self,
        key: &[u8],
        scan: &Scan<'_>,
        (owner, now): (u64, Instant),
        guard: &Guard<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u32, OperationError> {
        let Reclaimer { leases, epochs, .. } = &self.reclaimer;
        let reading = match scan.lease {
            ScanLease::None => None,
            // There is no state that pages could have in common.
            _ if !self.versions.are_on() => return Err(OperationError::LeaseExpired),
            ScanLease::Open => Some(leases.open(epochs, &self.versions, owner, now)),
            ScanLease::Continue(number) => Some(leases.resume(epochs, number, owner, now)),
        };
        let reading = reading.map(|reading| reading.ok_or(OperationError::LeaseExpired)).transpose()?;
        let (version, guard) = match &reading {
            Some(reading) => reading.as_of(guard),
            None => (self.versions.read(), guard),
        };
        let mut page = PageWriter::new(out, scan.answer);
        let end = self.fill_page(key, scan, version, guard, &mut page);
        let count = page.count();
        let lease = reading.as_ref().and_then(|reading| reading.conclude(end.more));
        // The last key lies in a frame that the reading keeps, and borrows from it.
        page.finish(end.last_key, end.more, lease);
        Ok(count)
    }
}
