//! The stages of a batch on a memory that has prefetched lines resident: tight loops over many requests instead of futures.
//!
//! ```text
//! prefetched at    home bucket,      dependent ones:      what is left of them
//! admission  ───▶  in one loop  ───▶ probe again    ───▶ ─┬─▶ the pair in its bucket, or an edit of it
//!                  (most requests)      ▲                  ├─▶ prefetch slabs, access them
//!                                       │                  ├─▶ prefetch chained buckets ──▶ again a probe
//!                                       └── dependency ────┤
//!                                           queues that    └─▶ futures
//!                                           are not empty
//! ```
//!
//! 1. [`ExecuteOnBuckets`] takes the requests in their order. It completes each that needs only its home bucket: values of
//!    one to eight bytes first, without a call, then other inline values, inserted and removed pairs, and missing keys. All
//!    others enter the reservation station, and so do later requests of the same slot. So the order of a key's requests is
//!    kept, and a completed request never was in the station.
//! 2. [`Batch::run_resident`] works on the head of every dependency queue: on the chained buckets, then on its bucket or
//!    slab. Queues that are not empty after that begin again with a probe of the home bucket. Prefetches are adjacent, so
//!    that their page walks overlap. A request that is alone in its queue is completed by the probe if its value is short.
//! 3. The rest goes through the same searches and edits as a future: allocations, and edits of more than one bucket. So does
//!    everything on a memory that has nothing resident.
//!
//! The loops are plain `for` loops over [`ResidentLines`], with a `continue` where a request is completed. Closures, a
//! borrowed [`Arrivals`] and other ends of the loop were measured: the compiler left calls in the loops, or kept their state
//! in memory.

use std::hint::cold_path;

use super::chain::Batch;
use super::execution::{execute, execute_on_missing};
use super::interleaver::IN_FLIGHT_MAX;
use super::replies::{Entry, Replies, ReplySlot};
use super::station::{Admission, Arrivals, ChainIndex, Chains};
use crate::apply::{ShortOutcome, apply_short};
use crate::hash::{
    Bucket, BucketAccess, HashTable, Home, Lanes, Probe, QuickProbe, SlabSlot, WithLanes, find_short_value, probe,
};
use crate::memory::{Effect, LINE_SIZE, Memory, Pointer, ResidentLines};
use skep_core::operation::{Operation, Request};

/// The lists between the stages, kept from batch to batch. Each has a queue with what its front needs next.
#[derive(Debug)]
pub(super) struct Stages {
    /// A probe of this prefetched bucket.
    buckets: Vec<(ChainIndex, Pointer)>,
    /// A probe of this bucket of the chain, which is not prefetched.
    chained: Vec<(ChainIndex, Pointer)>,
    /// What this bucket allows, which was probed.
    probed: Vec<(ChainIndex, Pointer, Probe)>,
    /// This slab, which may hold its pair.
    slabs: Vec<(ChainIndex, SlabSlot)>,
    /// A future, after [`Batch::run_resident`].
    pub(super) waiting: Vec<ChainIndex>,
    pub(super) counts: StageCounts,
}

/// Numbers of dependency queues whose front each stage was used for. They tell if two memories are served by the same
/// stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    /// Requests, not queues, of the loop over home buckets.
    pub requests: u64,
    /// Probes of chained buckets, and of the home buckets of queues that begin again.
    pub buckets: u64,
    /// Accesses to a bucket that was probed.
    pub probed: u64,
    /// Accesses to a slab.
    pub slabs: u64,
    /// Futures that began after the stages.
    pub futures: u64,
}

impl Default for Stages {
    fn default() -> Self {
        Stages {
            buckets: Vec::with_capacity(IN_FLIGHT_MAX),
            chained: Vec::with_capacity(IN_FLIGHT_MAX),
            probed: Vec::with_capacity(IN_FLIGHT_MAX),
            slabs: Vec::with_capacity(IN_FLIGHT_MAX),
            waiting: Vec::with_capacity(IN_FLIGHT_MAX),
            counts: StageCounts::default(),
        }
    }
}

/// Executes requests on their home buckets, in order, if the memory has lines resident; `None` if it has not. Admits the
/// requests to the station that need more than their home bucket, or depend on such a request.
pub(super) struct ExecuteOnBuckets<'a, 's, 'k, M, A> {
    pub(super) table: &'a HashTable<M>,
    pub(super) requests: &'a [Request<'k>],
    pub(super) homes: &'a [Home],
    /// The entries of the replies, and the bytes of all replies.
    pub(super) replies: (&'a mut [Entry], &'a mut Vec<u8>),
    pub(super) arrivals: Arrivals<'s>,
    pub(super) stages: &'a mut Stages,
    pub(super) admission: A,
}

/// The numbers of GETs that found their key, and of those that did not.
#[derive(Clone, Copy, Default)]
pub(super) struct GetCounts {
    pub(super) hits: u64,
    pub(super) misses: u64,
}

impl<M: Memory, A: Fn(&Home) -> Admission> WithLanes for ExecuteOnBuckets<'_, '_, '_, M, A> {
    type Output = Option<GetCounts>;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> Self::Output {
        let ExecuteOnBuckets { table, requests, homes, replies: (entries, bytes), mut arrivals, stages, admission } =
            self;
        let mut lines = table.memory().resident()?;
        stages.counts.requests += requests.len() as u64;
        let mut counts = GetCounts::default();
        for (index, ((request, home), entry)) in requests.iter().zip(homes).zip(entries).enumerate() {
            let at = home.bucket.pointer();
            let admission = admission(home);
            if arrivals.is_blocked(admission) {
                cold_path();
                arrivals.admit(index, admission);
                continue;
            }
            let Some(quick) = execute_short_value(lanes, &mut lines, at, request, entry, &mut counts.hits) else {
                continue;
            };
            cold_path();
            let bucket = Bucket::from_line_mut(lines.line(at));
            let probe = probe(lanes, bucket, request.key, home.secondary(), quick);
            let reply = ReplySlot { entry, bytes };
            if let Some(effect) = execute_on_bucket(table, bucket, probe, request, reply, &mut counts) {
                lines.note(at.span(LINE_SIZE), effect);
            } else if let Some(chain) = arrivals.admit(index, admission) {
                stages.enter(chain, at, bucket, probe);
            }
        }
        Some(counts)
    }
}

/// Executes a request on its home bucket, after a probe of it, if it needs nothing else.
#[inline(never)]
fn execute_on_bucket<M: Memory>(
    table: &HashTable<M>,
    bucket: &mut Bucket,
    probe: Probe,
    request: &Request<'_>,
    mut reply: ReplySlot<'_>,
    counts: &mut GetCounts,
) -> Option<Effect> {
    let is_get = matches!(request.operation, Operation::Get);
    let access = |value: Option<&mut [u8]>| match value {
        Some(value) => {
            counts.hits += u64::from(is_get);
            execute(&request.operation, value, reply.reborrow())
        }
        None => {
            counts.misses += u64::from(is_get);
            execute_on_missing(&request.operation, reply.reborrow())
        }
    };
    let (effect, accessed) = table.access_bucket(bucket, probe, request.key, true, access);
    match accessed {
        BucketAccess::Done => {}
        BucketAccess::Edited(edit) => reply.set(edit.reply()),
        BucketAccess::Left(..) | BucketAccess::Elsewhere => return None,
    }
    Some(effect)
}

/// Executes a request on the short value of its inline pair, if that is in this bucket. Otherwise, returns what the quick
/// probe has shown.
#[inline(always)]
fn execute_short_value(
    lanes: impl Lanes,
    lines: &mut impl ResidentLines,
    at: Pointer,
    request: &Request<'_>,
    answer: &mut Entry,
    hits: &mut u64,
) -> Option<QuickProbe> {
    let bucket = Bucket::from_line_mut(lines.line(at));
    let quick = find_short_value(lanes, bucket, request.key);
    let QuickProbe::Short(position) = quick else { return Some(quick) };
    let word = position.load_word(bucket);
    if let Operation::Get = request.operation {
        *hits += 1;
        *answer = Entry::short(word, position.size());
        return None;
    }
    let value = position.value_of(word);
    let Some(ShortOutcome { returns_value, changed }) = apply_short(&request.operation, value, position.size()) else {
        return Some(quick);
    };
    *answer = if returns_value { Entry::short(word, position.size()) } else { Entry::DONE };
    if let Some(changed) = changed {
        position.store(bucket, changed);
        lines.note(at.span(LINE_SIZE), Effect::Changed);
    }
    None
}

/// Probes a bucket for the front of each queue, if the memory has the buckets resident; returns true if it has. A request on
/// a short value that is alone in its queue is executed.
struct ProbeBuckets<'a, 'b, M> {
    batch: &'a Batch<'b, M>,
    stages: &'a mut Stages,
    answers: &'a mut [Entry],
}

impl<M: Memory> WithLanes for ProbeBuckets<'_, '_, M> {
    type Output = bool;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> bool {
        let ProbeBuckets { batch, stages, answers } = self;
        let Some(mut lines) = batch.table.memory().resident() else { return false };
        let mut hits = 0;
        let buckets = std::mem::take(&mut stages.buckets);
        for &(chain, at) in &buckets {
            let first = batch.station.first(chain);
            let request = &batch.requests[first.index()];
            let mut quick = QuickProbe::Unclear;
            if batch.station.after(first).is_none() {
                let answer = &mut answers[first.index()];
                match execute_short_value(lanes, &mut lines, at, request, answer, &mut hits) {
                    Some(found) => quick = found,
                    None => {
                        batch.station.clear(chain);
                        continue;
                    }
                }
            }
            let bucket = Bucket::from_line_mut(lines.line(at));
            let secondary = batch.homes[first.index()].secondary();
            stages.enter(chain, at, bucket, probe(lanes, bucket, request.key, secondary, quick));
        }
        stages.counts.buckets += buckets.len() as u64;
        stages.buckets = buckets;
        stages.buckets.clear();
        batch.hits.set(batch.hits.get() + hits);
        true
    }
}

impl Stages {
    /// Puts a queue into the list of what its front needs after a probe of this bucket.
    #[inline(always)]
    fn enter(&mut self, chain: ChainIndex, at: Pointer, bucket: &Bucket, probe: Probe) {
        match (probe, bucket.chain()) {
            (Probe::Slab(slab), _) => self.slabs.push((chain, slab)),
            (Probe::Absent, Some(next)) => self.chained.push((chain, next)),
            (probe, _) => self.probed.push((chain, at, probe)),
        }
    }

    /// Empties all lists. They are empty already, unless a batch has panicked.
    pub(super) fn clear(&mut self) {
        let Stages { buckets, chained, probed, slabs, waiting, counts: _ } = self;
        buckets.clear();
        chained.clear();
        probed.clear();
        slabs.clear();
        waiting.clear();
    }

    /// Lets a queue begin with a probe of its home bucket.
    #[inline]
    pub(super) fn activate(&mut self, chain: ChainIndex, home: Home) {
        self.buckets.push((chain, home.bucket.pointer()));
    }
}

impl<M: Memory> Batch<'_, M> {
    /// Works on all dependency queues as far as that needs no future.
    #[inline(never)]
    pub(super) fn run_resident(&self, stages: &mut Stages) {
        let mut replies = self.replies.borrow_mut();
        loop {
            if !stages.chained.is_empty() {
                for (_, at) in &stages.chained {
                    self.table.memory().prefetch_line(*at);
                }
                stages.buckets.append(&mut stages.chained);
            }
            if !stages.buckets.is_empty() {
                let (answers, _) = replies.parts_mut(self.first_reply, self.requests.len());
                if !self.table.search().run(ProbeBuckets { batch: self, stages, answers }) {
                    stages.waiting.extend(stages.buckets.drain(..).map(|(chain, _)| chain));
                    break;
                }
                continue;
            }
            if stages.probed.is_empty() && stages.slabs.is_empty() {
                break;
            }
            stages.counts.probed += stages.probed.len() as u64;
            stages.counts.slabs += stages.slabs.len() as u64;
            self.access_probed(stages, &mut replies);
            self.access_slabs(stages, &mut replies);
        }
        stages.counts.futures += stages.waiting.len() as u64;
    }

    /// Executes the front of each queue that a bucket is enough for, and what has the same key in the queue: the bucket has
    /// its pair or shows that there is none.
    #[inline(never)]
    fn access_probed(&self, stages: &mut Stages, replies: &mut Replies) {
        let mut lines = self.table.memory().resident().expect("the buckets were probed");
        for (chain, at, probe) in stages.probed.drain(..) {
            let bucket = Bucket::from_line_mut(lines.line(at));
            let first = self.station.first(chain);
            let request = &self.requests[first.index()];
            // An edit of a chained bucket may need others of the chain.
            let may_edit = at == self.homes[first.index()].bucket.pointer();
            let access = |value: Option<&mut [u8]>| self.access(chain, first, value, replies);
            let (effect, accessed) = self.table.access_bucket(bucket, probe, request.key, may_edit, access);
            lines.note(at.span(LINE_SIZE), effect);
            match accessed {
                BucketAccess::Done => {}
                BucketAccess::Edited(edit) => self.end_first(chain, first, edit.reply(), replies),
                BucketAccess::Left(..) | BucketAccess::Elsewhere => {
                    stages.waiting.push(chain);
                    continue;
                }
            }
            self.activate(&mut stages.buckets, chain);
        }
    }

    /// Searches a slab for the key of each front.
    #[inline(never)]
    fn access_slabs(&self, stages: &mut Stages, replies: &mut Replies) {
        for (_, slab) in &stages.slabs {
            self.table.prefetch_slab(*slab);
        }
        let mut lines = self.table.memory().resident().expect("the buckets were probed");
        for (chain, slab) in stages.slabs.drain(..) {
            let first = self.station.first(chain);
            let request = &self.requests[first.index()];
            let access = |value: &mut [u8]| self.forward(chain, first, value, replies);
            if self.table.access_resident_slab(&mut lines, slab, request.key, access) {
                self.activate(&mut stages.buckets, chain);
            } else {
                stages.waiting.push(chain);
            }
        }
    }

    /// Lets a queue begin again with a probe of its home bucket, if it is not empty.
    #[inline]
    fn activate(&self, buckets: &mut Vec<(ChainIndex, Pointer)>, chain: ChainIndex) {
        if let Some(first) = self.front(chain) {
            buckets.push((chain, self.homes[first.index()].bucket.pointer()));
        }
    }
}
