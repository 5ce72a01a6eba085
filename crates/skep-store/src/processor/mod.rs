//! The processor: batches of operations on one shard's hash table (KV-Direct, section 3.3, Fig. 4).
//!
//! ```text
//!             ┌─────────────────────── admission ───────────────────────┐
//! requests ─▶ validate, hash ─▶ prefetch ─▶ short values in request order ─▶ replies: most requests end here
//!                                           │ the rest
//!                                           ▼
//!                                           reservation station ─▶ resident stages ─▶ futures ─▶ values above 4 KiB
//!                                           queues of dependent    loops over         a future   one at a time
//!                                           requests               prefetched lines   per queue
//! ```
//!
//! 1. A batch is executed in parts of up to 256 requests, the most that may be in flight.
//! 2. Admission is three tight loops over a part. The first one hashes keys. It compares the keys of a run of requests on
//!    one key instead, see `same_key.rs`. The second one only prefetches: adjacent prefetches overlap their page walks. If the
//!    prefetched lines are resident, the third one executes requests on short inline values. It admits all others to
//!    the reservation station.
//! 3. The stages of `resident.rs` work on the queues of the station.
//! 4. The remaining requests run as futures, in waves. Operations on values above 4 KiB run after the waves, one at a time.
//!
//! If the memory cannot show resident lines, all requests enter the station and run as futures.
//!
//! When [`Processor::execute`] returns, all changes are written back: no operation is in flight between batches.
//! [`Processor::flow`] executes the same queues for a caller with its own clock.

mod execution;
mod flow;
mod interleaver;
mod large;
mod queue;
mod replay;
mod replies;
mod resident;
mod resident_large;
mod same_key;
mod station;
mod walk;

pub use flow::{Admitted, Begun, Flow, Plan};
pub use replies::Replies;
pub use resident::StageCounts;

pub(crate) use interleaver::drive;
pub(crate) use replies::Grant;

use std::cell::Cell;
use std::collections::HashSet;
use std::hint::cold_path;

use self::interleaver::{IN_FLIGHT_MAX, interleave};
use self::queue::Batch;
use self::resident::{ExecuteShort, Stages};
use self::same_key::SameKeys;
use self::station::{Admission, QueueIndex, Station};
use crate::apply::{Arena, NewValue};
use crate::hash::slab::{MergeDaemon, SlabStatistics};
use crate::hash::{
    Bucket, BucketIndex, Division, HashTable, Home, KeyHash, Lanes, NotStored, Reclaim, Room, Settings, WithLanes,
};
use crate::memory::{LocalMemory, Memory, RegionError};
use crate::short::equal;
use skep_core::operation::{Operation, OperationError, Reply, Request, StringWrite, VALUE_SIZE_MAX};

/// Free slabs that a batch may merge in the shard itself, plus at most the rest of a zone: a millisecond's work.
const MERGE_WORK_MAX: usize = 1 << 15;

/// One shard: a hash table, and the buffers to execute batches on it.
#[derive(Debug)]
pub struct Processor<M = LocalMemory> {
    table: HashTable<M>,
    station: Station,
    /// The homes of the requests of a part: that of request i is at i + 1. The first one is of no request.
    homes: Box<[Home; IN_FLIGHT_MAX + 1]>,
    stages: Stages,
    same_keys: SameKeys,
    /// Hashes of the keys of a batch whose requests are deferred.
    deferred_keys: HashSet<u64>,
    /// Values that were computed for a batch.
    arena: Arena,
    reclaim: Reclaim,
    /// Chains of a step of a walk; kept for its memory.
    walked: Vec<(BucketIndex, Bucket)>,
    operations: u64,
    hits: u64,
    misses: u64,
}

/// The statistics of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Keys in the store, with those that have expired and whose memory is not free yet.
    pub pairs: u64,
    /// Of these, keys with an expiry.
    pub expiring: u64,
    /// Keys that have expired and were removed since, unless a write has replaced them before.
    pub expired: u64,
    /// Bytes of all keys and values.
    pub pair_bytes: u64,
    /// Bytes of the memory.
    pub memory_bytes: u64,
    /// Of these, bytes of hash index.
    pub index_bytes: u64,
    /// Buckets of chains, besides those of the index.
    pub overflow_buckets: u64,
    /// Of the memory, bytes of slabs that are free.
    pub slab_free_bytes: u64,
    /// Bytes that the allocator takes besides the memory.
    pub bookkeeping_bytes: u64,
    /// Requests executed. Deferred ones are not counted.
    pub operations: u64,
    /// `get` that found its key.
    pub hits: u64,
    /// `get` that did not.
    pub misses: u64,
    /// Exchanges between the two sides of the slab allocator.
    pub slab: SlabStatistics,
}

impl Processor<LocalMemory> {
    /// Returns an empty store in a new region, which is reserved but not touched.
    pub fn new(settings: &Settings) -> Result<Self, RegionError> {
        Self::with_spare(settings, 0)
    }

    /// Returns an empty store, whose region has spare address space for [`Processor::begin_packing`]: this number of bytes, or
    /// as many as pointers reach and the system grants.
    pub fn with_spare(settings: &Settings, spare: u64) -> Result<Self, RegionError> {
        let reserve = |spare| LocalMemory::with_spare(settings.memory, spare);
        let memory = reserve(spare).or_else(|_| reserve(spare / 16)).or_else(|_| reserve(0))?;
        Self::with_memory(memory, settings)
    }
}

impl<M: Memory> Processor<M> {
    /// Returns an empty store in a memory of zeros.
    pub fn with_memory(memory: M, settings: &Settings) -> Result<Self, RegionError> {
        let table = HashTable::new(memory, settings)?;
        Ok(Processor {
            table,
            station: Station::new(),
            homes: Box::new([Home { hash: KeyHash(0), bucket: BucketIndex(0) }; IN_FLIGHT_MAX + 1]),
            stages: Stages::default(),
            same_keys: SameKeys::default(),
            deferred_keys: HashSet::new(),
            arena: Arena::default(),
            reclaim: Reclaim::default(),
            walked: Vec::new(),
            operations: 0,
            hits: 0,
            misses: 0,
        })
    }

    /// Executes all requests. Requests on one key take effect in their order, others in any order. Overwrites
    /// `replies`, in the order of the requests.
    ///
    /// Never waits. A request may be deferred, with [`Reply::Deferred`]. Then all later requests on its key are
    /// deferred too, except those that are invalid for every value. A request is deferred in these cases:
    ///
    /// - The reply budget is used up, or too many bytes of large values were read or written for one batch.
    /// - Its reply does not fit the [room](Replies::set_room). All requests on other keys are executed.
    /// - It needs a slab that must first be joined from smaller free ones, and one batch may not join enough of them.
    ///   All requests on other keys are executed.
    ///
    /// Submit deferred requests again. Each batch makes progress: it executes a request or joins free slabs, until none
    /// is left to join. Without a [merge daemon](Processor::merge_daemon) every batch joins slabs. With one, the daemon
    /// joins them.
    pub fn execute(&mut self, requests: &[Request<'_>], replies: &mut Replies) {
        self.execute_admitted_by(requests, replies, |home| Admission::To(home.bucket));
    }

    /// Executes requests that do not depend on each other, without the reservation station. The difference in time to
    /// [`Processor::execute`] is the cost of the station.
    ///
    /// The caller promises that no two of them have the same [home bucket](Processor::home_bucket), now, unless both only
    /// read. Otherwise one may undo the other.
    pub fn execute_independent(&mut self, requests: &[Request<'_>], replies: &mut Replies) {
        self.execute_admitted_by(requests, replies, |_| Admission::Alone);
    }

    /// Returns the number of a key's home bucket.
    pub fn home_bucket(&self, key: &[u8]) -> u32 {
        self.table.locate(key).bucket.0
    }

    /// Executes all requests; those admitted to the same bucket depend on each other.
    fn execute_admitted_by(
        &mut self,
        requests: &[Request<'_>],
        replies: &mut Replies,
        admission: impl Fn(&Home) -> Admission + Copy,
    ) {
        let pairs_before = self.table.pair_count();
        replies.reset(requests.len());
        self.arena.empty();
        self.table.begin_batch(MERGE_WORK_MAX);
        if !self.deferred_keys.is_empty() {
            self.deferred_keys.clear();
        }
        for (part, requests) in requests.chunks(IN_FLIGHT_MAX).enumerate() {
            let deferred = self.admit(requests, part * IN_FLIGHT_MAX, replies, admission);
            let is_complete = self.execute_admitted(requests, part * IN_FLIGHT_MAX, replies);
            self.operations -= deferred;
            // A later request could overtake a deferred one of its key.
            if !is_complete || !replies.within_budget() {
                break;
            }
        }
        replies.touch_large(self.arena.work() + self.table.bytes_merged());
        let inserted = self.table.pair_count().saturating_sub(pairs_before);
        drive(self.table.grow(requests.len(), inserted, &mut self.walked));
    }

    /// Adds the memory that some puts and sets need at most. The others of the requests need none.
    pub fn count_room(&mut self, requests: &[Request<'_>], room: &mut Room) {
        for request in requests {
            let new = match &request.operation {
                Operation::Put { value, .. } => NewValue::Put(value),
                Operation::StringWrite(StringWrite::Set { value, expiry, .. }) => NewValue::Set(value, *expiry),
                _ => continue,
            };
            let home = self.table.locate(request.key);
            drive(self.table.clear_stale(home.bucket));
            drive(self.table.count_room(home, request.key, &new, room));
        }
    }

    /// Returns true if there is memory for this number of slabs for sure: then nothing has to be reserved.
    pub fn has_plenty(&self, slab_count: u64) -> bool {
        self.table.has_plenty(slab_count)
    }

    /// Reserves memory that was counted, until [`Processor::end_reservation`]. Until then, requests that were counted do not
    /// run out of memory, if no others that store are executed before them. Returns false if it is not free yet: try again
    /// later. `waiter` is the same each time. [`Processor::bytes_merged`] tells what it has cost.
    pub fn reserve(&mut self, room: &Room, waiter: &[u8]) -> Result<bool, OperationError> {
        self.table.begin_batch(MERGE_WORK_MAX);
        let hash = self.table.locate(waiter).hash;
        let reserved = match self.table.reserve(room) {
            Ok(()) => Ok(true),
            Err(NotStored::Later(_)) if self.table.may_wait(hash) => return Ok(false),
            Err(NotStored::Failed(error) | NotStored::Later(error)) => Err(error),
        };
        self.table.end_wait(hash);
        reserved
    }

    /// Returns the bytes that the store has touched in the last batch, or reservation, to merge free memory.
    pub fn bytes_merged(&self) -> usize {
        self.table.bytes_merged()
    }

    /// Frees the memory that was reserved and not used.
    pub fn end_reservation(&mut self) {
        self.table.end_reservation();
    }

    /// Sets the time for expiries, in milliseconds since 1970. It does not go back.
    pub fn set_now(&mut self, now: u64) {
        self.table.set_now(now);
    }

    /// Returns the time for expiries, in milliseconds since 1970.
    pub fn now(&self) -> u64 {
        self.table.now()
    }

    /// Returns the number of requests that were counted as hits or misses. None of them has changed anything.
    pub fn read_count(&self) -> u64 {
        self.hits + self.misses
    }

    /// Returns the time from which on [`Processor::reclaim`] has work, in milliseconds since 1970. `None` if no key has an
    /// expiry.
    pub fn reclaim_from(&self) -> Option<u64> {
        self.table.reclaim_from(&self.reclaim)
    }

    /// Returns true if [`Processor::reclaim`] has work now.
    pub fn is_reclaim_due(&self) -> bool {
        self.reclaim_from().is_some_and(|from| from <= self.table.now())
    }

    /// Returns true if writes were refused for lack of memory, and [`Processor::reclaim`] may free some.
    pub fn is_reclaim_urgent(&self) -> bool {
        self.reclaim.is_urgent()
    }

    /// Frees the memory of some keys that have expired, if it is time to look for them: at most [`STEP_KEYS_MAX`] keys.
    /// Returns their number.
    ///
    /// [`STEP_KEYS_MAX`]: crate::hash::STEP_KEYS_MAX
    pub fn reclaim(&mut self) -> usize {
        drive(self.table.reclaim(&mut self.reclaim))
    }

    /// Frees the memory of keys that have expired, in at most this number of steps, also in a pause between passes. Returns
    /// true if no more keys have expired: then the store has as many keys as it counts.
    pub fn reclaim_all(&mut self, steps: usize) -> bool {
        self.reclaim.end_pause();
        for _ in 0..steps {
            if !self.table.may_have_expired(&self.reclaim) {
                return true;
            }
            if self.is_flushing() {
                self.flush_step();
            } else {
                self.reclaim();
            }
        }
        !self.table.may_have_expired(&self.reclaim)
    }

    /// Removes all keys: operations after it find none. The memory is cleared in steps, see [`Processor::flush_step`], and is
    /// available at once.
    pub fn flush(&mut self) {
        self.reclaim.forget_pass();
        self.table.flush();
    }

    /// Makes a step of clearing the memory of a flush: at most [`FLUSH_STEP_BUCKETS`] lines. Returns true if there is another
    /// one to make.
    ///
    /// [`FLUSH_STEP_BUCKETS`]: crate::hash::FLUSH_STEP_BUCKETS
    pub fn flush_step(&mut self) -> bool {
        drive(self.table.flush_step())
    }

    /// Returns true if [`Processor::flush_step`] has work.
    pub fn is_flushing(&self) -> bool {
        self.table.is_flushing()
    }

    /// Returns the number of home buckets; while the index grows, the number that there will be.
    pub fn home_bucket_count(&self) -> u32 {
        self.table.bucket_count()
    }

    /// Returns a daemon that merges free slabs, to be run on its own thread. Without one, the shard merges a part in
    /// each batch after an allocation has failed.
    pub fn merge_daemon(&mut self) -> MergeDaemon {
        self.table.merge_daemon()
    }

    /// Returns the memory of the table.
    pub fn memory(&self) -> &M {
        self.table.memory()
    }

    /// Returns the statistics of the shard.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            pairs: self.table.pair_count(),
            expiring: self.table.expiring_count(),
            expired: self.reclaim.removed_in_all(),
            pair_bytes: self.table.pair_size(),
            memory_bytes: self.table.memory().size(),
            index_bytes: self.table.index_size(),
            overflow_buckets: self.table.overflow_count(),
            slab_free_bytes: self.table.slab_free_size(),
            bookkeeping_bytes: self.table.bookkeeping_size(),
            operations: self.operations,
            hits: self.hits,
            misses: self.misses,
            slab: self.table.slab_statistics(),
        }
    }

    /// Returns the use of each stage so far.
    pub fn stage_counts(&self) -> StageCounts {
        self.stages.counts
    }

    /// Executes the requests that were admitted. Returns false if the budget was used up, and some are deferred.
    fn execute_admitted(&mut self, requests: &[Request<'_>], first_reply: usize, replies: &mut Replies) -> bool {
        let (homes, deferred_keys) = (&self.homes[1..], &mut self.deferred_keys);
        let mut batch = Batch::new(&self.table, &self.station, requests, homes, replies, deferred_keys, &self.arena);
        batch.first_reply = first_reply;
        batch.run_resident(&mut self.stages);
        let remaining = &mut self.stages.remaining;
        let is_complete = remaining.is_empty() || run_remaining(&batch, remaining, &self.station, &self.arena);
        let (hits, misses, deferred) = (batch.hits.get(), batch.misses.get(), batch.deferred.get());
        self.operations += requests.len() as u64 - deferred;
        self.hits += hits;
        self.misses += misses;
        is_complete
    }

    /// Checks, hashes and prefetches all requests, executes those on resident short values, and admits the others to
    /// the station. Returns the number of requests that are deferred because an earlier one on their key is.
    fn admit(
        &mut self,
        requests: &[Request<'_>],
        first_reply: usize,
        replies: &mut Replies,
        admission: impl Fn(&Home) -> Admission,
    ) -> u64 {
        let homes = &mut self.homes[..=requests.len()];
        self.same_keys.clear();
        let locate = Locate { table: &self.table, requests, homes, same_keys: &mut self.same_keys };
        let all_valid = self.table.search().run(locate);
        let homes = &mut self.homes[1..=requests.len()];
        // This loop only prefetches: a prefetch that misses the TLB blocks the retirement of later instructions, so
        // page walks overlap only if the prefetches are adjacent instructions. After an invalid request, home buckets
        // of an earlier batch are prefetched, which does no harm.
        let (groups, others) = homes.as_chunks::<8>();
        for group in groups {
            group.iter().for_each(|home| self.table.prefetch(home.bucket));
        }
        others.iter().for_each(|home| self.table.prefetch(home.bucket));
        if self.table.is_flushing() {
            cold_path();
            for home in homes.iter() {
                drive(self.table.clear_stale(home.bucket));
            }
        }
        self.stages.clear();
        let mut deferred = 0;
        if all_valid && self.deferred_keys.is_empty() {
            let execute_short = ExecuteShort {
                table: &self.table,
                requests,
                homes,
                entries: replies.entries_mut(first_reply, requests.len()),
                arrivals: self.station.begin(),
                stages: &mut self.stages,
                same_keys: &self.same_keys,
                admission: &admission,
            };
            match self.table.search().run(execute_short) {
                Some(hits) => self.hits += hits,
                None => {
                    let mut arrivals = self.station.begin();
                    for (index, home) in homes.iter().enumerate() {
                        if let Some(queue) = arrivals.admit(index, admission(home)) {
                            self.stages.activate(queue, *home);
                        }
                    }
                }
            }
        } else {
            cold_path();
            let mut arrivals = self.station.begin();
            for (index, (request, home)) in requests.iter().zip(homes.iter_mut()).enumerate() {
                *home = self.table.locate(request.key);
                drive(self.table.clear_stale(home.bucket));
                match request.validate_unordered() {
                    Ok(()) if self.deferred_keys.contains(&home.hash.0) => deferred += 1,
                    Ok(()) => {
                        if let Some(queue) = arrivals.admit(index, admission(home)) {
                            self.stages.activate(queue, *home);
                        }
                    }
                    Err(error) => replies.set(first_reply + index, Reply::Failed(error)),
                }
            }
        }
        deferred
    }
}

/// Executes the queues that the stages have left. Returns false if the budget was used up, and some requests are
/// deferred.
///
/// The futures take half a mebibyte of stack, and a function touches each page of its stack first. So this one is never
/// inlined: most batches do without it.
#[inline(never)]
fn run_remaining<M: Memory>(
    batch: &Batch<'_, M>,
    remaining: &mut [QueueIndex],
    station: &Station,
    arena: &Arena,
) -> bool {
    let mut is_complete = true;
    // In the order of the requests, so that one that was deferred comes before those that came later.
    remaining.sort_unstable_by_key(|queue| station.first(*queue));
    // The stages have computed values for some of these queues.
    arena.forget_waste();
    interleave(remaining.len(), |index| batch.run_queue(remaining[index]));
    // Each remaining queue begins with an operation on a large value.
    let mut large_operations = batch.large.take();
    large_operations.sort_unstable_by_key(|large| large.first);
    for large in large_operations {
        let (queue, mut next) = (large.queue, Some(large));
        while let Some(large) = next {
            is_complete &= drive(batch.run_large(large));
            drive(batch.run_queue(queue));
            next = batch.large.borrow_mut().pop();
        }
    }
    is_complete
}

/// Checks requests and hashes their keys, up to the first invalid one. Notes each key that is the same as
/// that of the request before.
/// The output is true if all requests are valid.
///
/// Runs under `Search::run` only so that it is compiled with BMI2 (`mulx`).
struct Locate<'a, 'k, M> {
    table: &'a HashTable<M>,
    requests: &'a [Request<'k>],
    /// One more than requests: the first is not of this part.
    homes: &'a mut [Home],
    same_keys: &'a mut SameKeys,
}

impl<M: Memory> WithLanes for Locate<'_, '_, M> {
    type Output = bool;

    #[inline(always)]
    fn run(self, _: impl Lanes) -> bool {
        let Locate { table, requests, homes, same_keys } = self;
        let division = table.division();
        let mut end = 0;
        while end < requests.len() {
            let cells = Cell::from_mut(&mut homes[end..]).as_slice_of_cells();
            let Some(count) = locate_others(table, division, &requests[end..], cells) else { return false };
            end += count;
            let Some([before, last]) = requests[..end].last_chunk() else { continue };
            if equal(before.key, last.key) {
                let begin = end - 2;
                let is_repeated = |request: &&Request<'_>| equal(request.key, last.key) && is_valid(request);
                end += requests[end..].iter().take_while(is_repeated).count();
                let home = homes[begin + 1];
                homes[begin + 1..=end].fill(home);
                same_keys.push(begin..end);
            }
        }
        true
    }
}

/// Checks requests and hashes their keys, up to one whose hash is that of the request before. Returns their number, or
/// `None` if one is invalid. `homes` begins with the request before the first.
#[inline(always)]
fn locate_others<M: Memory>(
    table: &HashTable<M>,
    division: Division,
    requests: &[Request<'_>],
    homes: &[Cell<Home>],
) -> Option<usize> {
    for (index, (request, homes)) in requests.iter().zip(homes.windows(2)).enumerate() {
        // Most keys are one or two words. They need fewer checks, also in the hash function.
        let is_short = matches!(request.key.len(), 8..=16);
        let home = match is_short && is_valid(request) {
            true => table.locate_in(division, request.key),
            false => locate_any(table, request)?,
        };
        homes[1].set(home);
        if home.hash == homes[0].get().hash {
            return Some(index + 1);
        }
    }
    Some(requests.len())
}

/// Returns true if the request is valid, apart from its key.
#[inline(always)]
fn is_valid(request: &Request<'_>) -> bool {
    is_get(request) || is_valid_other(&request.operation)
}

/// Returns true if the operation is valid. Puts and deletes need no room on the stack for the checks of the others.
#[inline(never)]
fn is_valid_other(operation: &Operation<'_>) -> bool {
    #[inline(never)]
    fn is_valid_of_other_kind(operation: &Operation<'_>) -> bool {
        operation.validate_unordered().is_ok()
    }
    match operation {
        Operation::Put { value, .. } => value.len() <= VALUE_SIZE_MAX,
        Operation::Delete => true,
        Operation::Update(update) => update.validate().is_ok(),
        other => is_valid_of_other_kind(other),
    }
}

/// Returns true if the request is a GET, which needs no check. Without the hint the compiler tests for all operations
/// at once.
#[inline(always)]
fn is_get(request: &Request<'_>) -> bool {
    let is_get = matches!(request.operation, Operation::Get);
    if !is_get {
        cold_path();
    }
    is_get
}

/// Checks a request and hashes its key, of any size.
#[inline(never)]
fn locate_any<M: Memory>(table: &HashTable<M>, request: &Request<'_>) -> Option<Home> {
    request.validate_unordered().ok().map(|()| table.locate(request.key))
}

#[cfg(test)]
mod tests;
