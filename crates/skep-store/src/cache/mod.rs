//! A cache: a store that may forget keys and never refuses a write for lack of memory (MICA's cache mode, NSDI 2014,
//! section 4.3, as HERD uses it, section 4.1).
//!
//! ```text
//!                ┌── index: buckets of one line (`bucket.rs`) ──┐      ┌──── circular log of items (`log.rs`) ────┐
//! hash of a key ─▶ tag │ check │ offset of the item ────────────┼────▶ │ header │ expiry │ flags │ key │ value    │
//!                └──────────────────────────────────────────────┘      └──────────────────────────────────────────┘
//! ```
//!
//! Tag and check are bits of the hash, and the offset is the position of the item in the log (`item.rs` has its fields).
//!
//! - **PUT** appends the item to the log and lets its bucket point to it. Random lines: its bucket. The lines of the log are
//!   written one after another.
//! - **GET** reads the bucket, then the item. Random lines: 2, if key and value have up to 56 bytes together.
//! - **Eviction** has two causes. The log overwrites the oldest items. The index forgets a key when another key with its tag is
//!   put, or when its bucket is full and its item is the oldest of it.
//! - **Correctness.** A GET compares keys in full, so it never returns the value of another key. An item that was overwritten
//!   is a miss, because its offset shows its age.
//! - **Conditions** hold exactly for the keys that the cache still has: these operations read the item (`execute.rs`).
//!
//! # A batch
//!
//! ```text
//! requests ─▶ check, hash ─▶ prefetch buckets ─▶ probe, prefetch items ─▶ execute, in request order ─▶ sweep
//! ```
//!
//! A batch is executed in parts of up to 256 requests. The first three stages are loops over a part (HERD, section 4.1.1: each
//! stage accesses only lines that the stage before has prefetched). The last stage executes the requests one after another in
//! their order (`runs.rs`). It probes the bucket again if an earlier request has changed an entry. So requests on one key need
//! no dependency queue. A request never waits for memory.
//!
//! One thread owns a cache. Time and the seed of the secret hash are arguments.

mod bucket;
mod counts;
mod execute;
mod execute_item;
mod item;
mod item_lines;
mod item_request;
mod log;
mod runs;
mod settings;
mod sweep;
#[cfg(test)]
mod tests;

pub use counts::Statistics;
pub use item::CasNumber;
pub use item_request::{
    ItemArithmetic, ItemChange, ItemCommand, ItemFields, ItemGet, ItemPut, ItemPutMode, ItemRequest, ItemValue,
};
pub use settings::Settings;

use std::collections::HashSet;
use std::hint::cold_path;

use self::bucket::{Bucket, KeyHash, Locator};
use self::counts::Counts;
use self::execute::{Execution, Progress, Run, Target};
use self::item::ITEM_SIZE_MAX;
use self::item_request::{CacheRequest, Checked};
use self::log::{Log, UNIT_COUNT_MAX};
use self::settings::Division;
use self::sweep::Sweep;
use crate::apply::Arena;
use crate::memory::{LINE_SIZE, LocalMemory, Memory, RegionError, ResidentLines, UNIT_SIZE};
use crate::processor::Replies;
use skep_core::operation::{KEY_SIZE_MAX, Operation, PutCondition, Reply, Request, VALUE_SIZE_MAX};

/// Most requests of a part of a batch.
const PART_MAX: usize = 256;

// The oldest entry that the sweep has not checked was stored two wraps and a part ago; an item may leave out as many units.
const _: () = assert!(2 * UNIT_COUNT_MAX + (2 * PART_MAX * ITEM_SIZE_MAX.div_ceil(UNIT_SIZE)) as u64 <= 1 << 32);

/// A cache and the buffers to execute batches on it.
#[derive(Debug)]
pub struct Cache<M = LocalMemory> {
    memory: M,
    locator: Locator,
    log: Log,
    sweep: Sweep,
    counts: Counts,
    /// Milliseconds since 1970.
    now: u64,
    /// The time of the flush that was asked for, if it has not come.
    flush_at: Option<u64>,
    /// The keys of a part.
    targets: Box<[Target; PART_MAX]>,
    /// Keys of a batch whose requests are deferred, by their hashes.
    deferred: HashSet<KeyHash>,
    /// Values that were computed for a batch.
    arena: Arena,
    scratch: Vec<u8>,
}

impl Cache<LocalMemory> {
    /// Returns an empty cache in a new region, which is reserved but not touched.
    pub fn new(settings: &Settings) -> Result<Self, RegionError> {
        Self::with_memory(LocalMemory::new(settings.memory)?, settings)
    }
}

impl<M: Memory> Cache<M> {
    /// Returns an empty cache in a memory of zeros that has its lines [resident](Memory::resident).
    pub fn with_memory(memory: M, settings: &Settings) -> Result<Self, RegionError> {
        let Division { bucket_count, log_line_count } = settings.divide(memory.size())?;
        Ok(Cache {
            memory,
            locator: Locator::new(settings.seed, bucket_count),
            log: Log::new(bucket_count.into(), log_line_count),
            sweep: Sweep::default(),
            counts: Counts::default(),
            now: 0,
            flush_at: None,
            targets: Box::new([Target::default(); PART_MAX]),
            deferred: HashSet::new(),
            arena: Arena::default(),
            scratch: Vec::new(),
        })
    }

    /// Executes all requests, in their order. Overwrites `replies`, in the order of the requests.
    ///
    /// An operation on a key that the cache has forgotten has the reply that it has on a missing key. No operation fails for
    /// lack of memory. [`Operation::Scan`] fails with `NotOrdered`.
    ///
    /// A request may be deferred, with [`Reply::Deferred`]. Then all later requests on its key are deferred too, except those
    /// that are invalid for every value. Submit them again. A request is deferred in these cases:
    ///
    /// - The reply budget is used up, or too many bytes of values from 512 bytes on were read or written for one batch. Then
    ///   all later requests are deferred.
    /// - Its reply does not fit the [room](Replies::set_room), or too many values were computed for one batch. Requests on
    ///   other keys are executed.
    ///
    /// # Panics
    /// If the memory has no lines resident.
    pub fn execute(&mut self, requests: &[Request<'_>], replies: &mut Replies) {
        self.execute_parts(requests, replies);
    }

    /// Does the same for commands of memcached's protocol. The operations of both act on the same keys.
    pub fn execute_items(&mut self, requests: &[ItemRequest<'_>], replies: &mut Replies) {
        self.execute_parts(requests, replies);
    }

    /// Removes all keys. Takes the same time for every number of keys: items from before are too old from now on.
    pub fn flush(&mut self) {
        self.flush_at = None;
        self.log.flush();
        self.counts.items = 0;
    }

    /// Removes all keys that the cache has at this time, in milliseconds since 1970: at the first [`Cache::set_now`] from then
    /// on. Replaces the time of an earlier call.
    pub fn flush_at(&mut self, time: u64) {
        if time <= self.now { self.flush() } else { self.flush_at = Some(time) }
    }

    /// Sets the time for expiries, in milliseconds since 1970. It does not go back.
    pub fn set_now(&mut self, now: u64) {
        self.now = self.now.max(now);
        if self.flush_at.is_some_and(|time| time <= self.now) {
            self.flush();
        }
    }

    /// Returns the memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the statistics.
    pub fn statistics(&self) -> Statistics {
        let index_bytes = u64::from(self.locator.bucket_count) * LINE_SIZE as u64;
        let Counts { items, operations, hits, misses, index_evictions, log_evictions, expired } = self.counts;
        Statistics {
            items,
            memory_bytes: self.memory.size(),
            index_bytes,
            log_bytes: self.log.bytes(),
            log_used_bytes: self.log.used_bytes(),
            operations,
            hits,
            misses,
            index_evictions,
            log_evictions,
            expired,
        }
    }

    /// Executes a batch.
    #[inline(always)]
    fn execute_parts<R: CacheRequest>(&mut self, requests: &[R], replies: &mut Replies) {
        replies.reset(requests.len());
        self.arena.empty();
        if !self.deferred.is_empty() {
            self.deferred.clear();
        }
        for (part, requests) in requests.chunks(PART_MAX).enumerate() {
            let is_complete = self.execute_part(requests, part * PART_MAX, replies);
            // A later request could overtake a deferred one of its key.
            if !is_complete || !replies.within_budget() {
                break;
            }
        }
        replies.touch_large(self.arena.work());
    }

    /// Executes a part of a batch. Returns false if the budget was used up, and some are deferred.
    #[inline(always)]
    fn execute_part<R: CacheRequest>(&mut self, requests: &[R], first_reply: usize, replies: &mut Replies) -> bool {
        let Checked { are_valid, read_items } = self.prefetch_buckets(requests);
        if read_items {
            self.prefetch_items(requests);
        }
        let Cache { memory, log, sweep, counts, targets, deferred, arena, scratch, .. } = self;
        let lines = memory.resident().expect("a cache needs a memory whose lines are resident");
        let (arena, now) = (&*arena, self.now);
        let mut execution = Execution { lines, log, counts, now, arena, scratch, are_targets_valid: read_items };
        let (mut is_complete, mut are_checked) = (true, !are_valid);
        let (mut index, mut deferred_count) = (0, 0);
        while index < requests.len() {
            let mut run = Run { count: 0, progress: Progress::Done };
            let mut end = requests.len();
            if are_checked {
                cold_path();
                if let Err(error) = requests[index].validate() {
                    replies.set(first_reply + index, Reply::Failed(error));
                    index += 1;
                    continue;
                }
                end = index + 1;
                if deferred.contains(&targets[index].hash) {
                    run.progress = Progress::Deferred;
                }
            }
            if run.progress == Progress::Done {
                let (requests, targets) = (&requests[index..end], &targets[index..end]);
                run = R::execute_run(requests, targets, &mut execution, first_reply + index, replies);
            }
            index += run.count;
            match run.progress {
                Progress::Done => {}
                Progress::Deferred => {
                    cold_path();
                    deferred.insert(targets[index].hash);
                    are_checked = true;
                    deferred_count += 1;
                    index += 1;
                }
                Progress::Stopped => {
                    cold_path();
                    is_complete = false;
                    break;
                }
            }
        }
        let Execution { mut lines, log, counts, .. } = execution;
        counts.operations += (index - deferred_count) as u64;
        sweep.step(&mut lines, log, self.locator.bucket_count, counts);
        is_complete
    }

    /// Checks requests, hashes their keys and prefetches their buckets.
    #[inline(always)]
    fn prefetch_buckets<R: CacheRequest>(&mut self, requests: &[R]) -> Checked {
        // A later part has the deferred keys of those before it.
        let mut all = Checked { are_valid: self.deferred.is_empty(), read_items: false };
        for (request, target) in requests.iter().zip(&mut self.targets[..]) {
            let checked = request.check();
            all.are_valid &= checked.are_valid;
            all.read_items |= checked.read_items;
            target.hash = self.locator.hash(request.key());
        }
        // This loop only prefetches, so that the page walks of adjacent prefetches overlap.
        for target in &self.targets[..requests.len()] {
            self.memory.prefetch_line(target.hash.pointer());
        }
        all
    }

    /// Probes the buckets of requests that may read an item, and prefetches the items.
    #[inline(always)]
    fn prefetch_items<R: CacheRequest>(&mut self, requests: &[R]) {
        let Cache { memory, log, targets, .. } = self;
        let mut lines = memory.resident().expect("a cache needs a memory whose lines are resident");
        for (request, target) in requests.iter().zip(&mut targets[..]) {
            target.item = Target::NO_ITEM;
            if request.reads_item()
                && let Some(entry) = Bucket::from_line_mut(lines.line(target.hash.pointer())).find(target.hash)
                && entry.has_check
                && let Some(at) = log.locate(entry.offset)
            {
                target.item = log.pointer(at);
            }
        }
        for target in &targets[..requests.len()] {
            if target.item != Target::NO_ITEM {
                memory.prefetch_line(target.item);
            }
        }
    }
}

/// Checks a request. Most requests are GETs and puts, which need few checks.
#[inline(always)]
fn check(request: &Request<'_>) -> Checked {
    let is_key = matches!(request.key.len(), 1..=KEY_SIZE_MAX);
    match request.operation {
        Operation::Get => Checked { are_valid: is_key, read_items: true },
        Operation::Put { value, condition } => Checked {
            are_valid: is_key & (value.len() <= VALUE_SIZE_MAX),
            read_items: condition != PutCondition::Always,
        },
        _ => Checked { are_valid: request.validate_unordered().is_ok(), read_items: true },
    }
}
