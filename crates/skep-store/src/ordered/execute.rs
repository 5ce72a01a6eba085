//! Batches of all operations on an ordered store, as the processor runs them on a hash store.
//!
//! ```text
//! requests   get a │ get b │ put c │ get d │ put b │ get c │ scan
//! worked on                  put c   a b d   put b   get c   scan        reads of a group go through the tree together
//! ```
//!
//! Reads of one key wait until a group of them is together, or until a write of one of their keys comes. Writes and scans
//! take effect in the order of the requests, their keys announced a group at a time. A write is answered when all can read it.

use std::time::Instant;

use super::batch::GROUP_SIZE;
use super::change::Change;
use super::lease::LeaseReading;
use super::outside;
use super::segment::Value;
use super::session::Session;
use super::trace::Trace;
use crate::operation::{Operation, OperationError, PageWriter, Reply, Request, Scan, ScanLease};
use crate::processor::{Replies, answer_filter, answer_reduce};

/// What a pair that a scan passes counts for, in bytes of large values, beside what it answers: a line.
const PAIR_WORK: usize = crate::memory::LINE_SIZE;

/// Reads that wait for their group: places in the batch.
struct Reads {
    places: [usize; GROUP_SIZE],
    count: usize,
}

impl<T: Trace> Session<'_, T> {
    /// Executes all requests. Those of one key take effect in their order, and so do writes and scans; other reads in any.
    /// `replies` is overwritten with the answers, in the order of the requests. `now` is the time for leases.
    ///
    /// When the reply budget is used up, or too much of large values was read or written for one batch, requests may be left
    /// unexecuted and answered [`Reply::Deferred`]: if one of a key is, so are all later ones of the same key.
    pub fn execute(&mut self, requests: &[Request<'_>], replies: &mut Replies, now: Instant) {
        self.store.leases.expire_due(&self.store.epochs, now);
        replies.reset(requests.len());
        let mut reads = Reads { places: [0; GROUP_SIZE], count: 0 };
        for (place, request) in requests.iter().enumerate() {
            if place.is_multiple_of(GROUP_SIZE) {
                self.announce_writes(&requests[place..requests.len().min(place + GROUP_SIZE)]);
            }
            if let Err(error) = request.validate() {
                replies.set(place, Reply::Failed(error));
                continue;
            }
            if is_read(&request.operation) {
                reads.places[reads.count] = place;
                reads.count += 1;
                if reads.count == GROUP_SIZE && !self.read_group(requests, &mut reads, replies) {
                    return;
                }
                continue;
            }
            let waits_for_it = |read: &usize| requests[*read].key == request.key;
            let is_waited_for = reads.places[..reads.count].iter().any(waits_for_it);
            if is_waited_for && !self.read_group(requests, &mut reads, replies) {
                return;
            }
            if !replies.may_touch_large(true) {
                break;
            }
            self.execute_alone(request, place, replies, now);
        }
        self.read_group(requests, &mut reads, replies);
    }

    /// Announces the keys of writes, and where scans begin, if there are several: what lies on their way travels side by side.
    fn announce_writes(&mut self, requests: &[Request<'_>]) {
        let mut keys: [&[u8]; GROUP_SIZE] = [&[]; GROUP_SIZE];
        let written = requests.iter().filter(|request| !is_read(&request.operation) && request.validate().is_ok());
        let count = keys.iter_mut().zip(written).map(|(key, request)| *key = request.key).count();
        if count > 1 {
            self.announce(&keys[..count]);
        }
    }

    /// Answers the reads that wait, all as of one moment. Whether all could be within the budget.
    fn read_group(&mut self, requests: &[Request<'_>], reads: &mut Reads, replies: &mut Replies) -> bool {
        let places = &reads.places[..std::mem::take(&mut reads.count)];
        if !replies.may_touch_large(true) {
            return places.is_empty();
        }
        let mut keys: [&[u8]; GROUP_SIZE] = [&[]; GROUP_SIZE];
        for (key, place) in keys.iter_mut().zip(places) {
            *key = requests[*place].key;
        }
        let Session { store, participant, whole, .. } = self;
        let guard = participant.enter();
        let version = store.versions.read();
        let mut next = places.iter();
        let mut is_within_budget = true;
        store.get_group(&keys[..places.len()], version, &guard, |value| {
            let place = *next.next().expect("as many answers as keys");
            let operation = &requests[place].operation;
            match value {
                // Left for later, and whatever comes after it, which may have its key.
                _ if !is_within_budget => {}
                None => replies.set(place, Reply::NotFound),
                Some(Value { bytes, is_outside: false }) => answer_read(operation, bytes, place, replies),
                Some(_) if matches!(operation, Operation::Contains) => replies.set(place, Reply::Done),
                Some(_) if !replies.may_touch_large(!matches!(operation, Operation::Reduce(_))) => {
                    is_within_budget = false;
                }
                Some(Value { bytes: reference, .. }) => {
                    replies.touch_large(outside::value_size(reference));
                    whole.clear();
                    outside::visit(&store.frames, reference, &guard, |_, part| whole.extend_from_slice(part));
                    answer_read(operation, whole, place, replies);
                }
            }
        });
        is_within_budget
    }

    /// Carries out a write or a scan.
    fn execute_alone(&mut self, request: &Request<'_>, place: usize, replies: &mut Replies, now: Instant) {
        let key = request.key;
        match &request.operation {
            Operation::Put { value, condition } => {
                if value.len() > outside::VALUE_INSIDE_SIZE_MAX {
                    replies.touch_large(value.len());
                }
                replies.set(place, self.write(key, &Change::Put { value, condition: *condition }));
            }
            Operation::Delete => replies.set(place, self.write(key, &Change::Delete)),
            Operation::Update(update) => {
                let reply = self.write(key, &Change::Update(update));
                if self.draft.new.len() > outside::VALUE_INSIDE_SIZE_MAX {
                    replies.touch_large(self.draft.new.len());
                }
                replies.set(
                    place,
                    match reply {
                        Reply::Done if update.return_old => Reply::Value(&self.draft.old),
                        reply => reply,
                    },
                );
            }
            Operation::AddDecimal { delta } => {
                let reply = self.write(key, &Change::AddDecimal { delta: *delta });
                replies.set(place, if reply == Reply::Done { Reply::Value(&self.draft.new) } else { reply });
            }
            Operation::Scan(scan) => {
                let start = replies.bytes_mut().len();
                match self.scan_page(key, scan, now, replies.bytes_mut()) {
                    Ok(count) => {
                        let size = replies.bytes_mut().len() - start;
                        replies.finish_value(place, start);
                        replies.touch_large(size + count as usize * PAIR_WORK);
                    }
                    Err(error) => replies.set(place, Reply::Failed(error)),
                }
            }
            Operation::Get | Operation::Contains | Operation::Reduce(_) | Operation::Filter(_) => {
                unreachable!("reads go in groups")
            }
        }
    }

    /// Appends a page of a valid scan. The number of its pairs.
    fn scan_page(
        &mut self,
        key: &[u8],
        scan: &Scan<'_>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<u32, OperationError> {
        let (store, guard) = self.enter();
        let reading = match scan.lease {
            ScanLease::None => None,
            // There is no state that pages could have in common.
            _ if !store.versions.are_on() => return Err(OperationError::LeaseExpired),
            ScanLease::Open => Some(store.leases.open(&store.epochs, &store.versions, now)),
            ScanLease::Continue(number) => Some(store.leases.resume(&store.epochs, number, now)),
        };
        let reading = reading.map(|reading| reading.ok_or(OperationError::LeaseExpired)).transpose()?;
        let version = reading.as_ref().map_or_else(|| store.versions.read(), LeaseReading::version);
        let mut page = PageWriter::new(out, scan.answer);
        let end = store.fill_page(key, scan, version, &guard, &mut page);
        let count = page.count();
        let lease = reading.and_then(|reading| reading.end(end.more));
        page.finish(end.last_key, end.more, lease);
        Ok(count)
    }
}

/// Whether the operation reads one key.
fn is_read(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Get | Operation::Contains | Operation::Reduce(_) | Operation::Filter(_))
}

/// Answers a read from the value of its key.
fn answer_read(operation: &Operation<'_>, value: &[u8], place: usize, replies: &mut Replies) {
    match operation {
        Operation::Contains => replies.set(place, Reply::Done),
        Operation::Reduce(operation) => answer_reduce(operation, value, place, replies),
        Operation::Filter(operation) => answer_filter(operation, value, place, replies),
        _ => replies.set_value(place, value),
    }
}
