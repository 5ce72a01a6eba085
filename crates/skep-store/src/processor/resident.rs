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
//! 3. The rest runs as futures, with the same searches and edits: allocations, and edits of more than one bucket. Without
//!    resident lines, every request is a future.
//!
//! The loops are plain `for` loops over [`ResidentLines`], with a `continue` where a request is completed. Closures and a
//! borrowed [`Arrivals`] were measured: the compiler left calls in the loops, or kept their state in memory.

use std::hint::cold_path;

use super::execution::{execute, execute_on_missing};
use super::interleaver::IN_FLIGHT_MAX;
use super::queue::Batch;
use super::replies::{Entry, Replies, ReplySlot};
use super::station::{Admission, Arrivals, QueueIndex, Queues};
use crate::apply::{ShortOutcome, apply_short};
use crate::hash::{
    Bucket, BucketAccess, HashTable, Home, Lanes, Probe, QuickProbe, SlabSlot, WithLanes, find_short_value, probe,
};
use crate::memory::{Effect, LINE_SIZE, Memory, Pointer, ResidentLines};
use skep_core::operation::{Operation, Request};

/// The lists between the stages, whose memory is used again. Each lists queues with the next need of their heads.
#[derive(Debug)]
pub(super) struct Stages {
    /// A probe of this prefetched bucket.
    buckets: Vec<(QueueIndex, Pointer)>,
    /// A probe of this bucket of the chain, which is not prefetched.
    chained: Vec<(QueueIndex, Pointer)>,
    /// An access to this bucket, which was probed.
    probed: Vec<(QueueIndex, Pointer, Probe)>,
    /// An access to this slab, which may contain the pair.
    slabs: Vec<(QueueIndex, SlabSlot)>,
    /// A future, after [`Batch::run_resident`].
    pub(super) remaining: Vec<QueueIndex>,
    pub(super) counts: StageCounts,
}

/// Numbers of dependency queues for whose heads each stage was used. They tell if two memories are served by the same stages.
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
            remaining: Vec::with_capacity(IN_FLIGHT_MAX),
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
            } else if let Some(queue) = arrivals.admit(index, admission) {
                stages.enter(queue, at, bucket, probe);
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
    entry: &mut Entry,
    hits: &mut u64,
) -> Option<QuickProbe> {
    let bucket = Bucket::from_line_mut(lines.line(at));
    let quick = find_short_value(lanes, bucket, request.key);
    let QuickProbe::Short(position) = quick else { return Some(quick) };
    let word = position.load_word(bucket);
    if let Operation::Get = request.operation {
        *hits += 1;
        *entry = Entry::short(word, position.size());
        return None;
    }
    let value = position.value_of(word);
    let Some(ShortOutcome { returns_value, changed }) = apply_short(&request.operation, value, position.size()) else {
        return Some(quick);
    };
    *entry = if returns_value { Entry::short(word, position.size()) } else { Entry::DONE };
    if let Some(changed) = changed {
        position.store(bucket, changed);
        lines.note(at.span(LINE_SIZE), Effect::Changed);
    }
    None
}

/// Probes a bucket for the head of each queue, if the memory has the buckets resident. Returns true if it has. Executes a
/// request on a short value that is alone in its queue.
struct ProbeBuckets<'a, 'b, M> {
    batch: &'a Batch<'b, M>,
    stages: &'a mut Stages,
    replies: &'a mut [Entry],
}

impl<M: Memory> WithLanes for ProbeBuckets<'_, '_, M> {
    type Output = bool;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> bool {
        let ProbeBuckets { batch, stages, replies } = self;
        let Some(mut lines) = batch.table.memory().resident() else { return false };
        let mut hits = 0;
        let buckets = std::mem::take(&mut stages.buckets);
        for &(queue, at) in &buckets {
            let first = batch.station.first(queue);
            let request = &batch.requests[first.index()];
            let mut quick = QuickProbe::Unclear;
            if batch.station.after(first).is_none() {
                let entry = &mut replies[first.index()];
                match execute_short_value(lanes, &mut lines, at, request, entry, &mut hits) {
                    Some(found) => quick = found,
                    None => {
                        batch.station.clear(queue);
                        continue;
                    }
                }
            }
            let bucket = Bucket::from_line_mut(lines.line(at));
            let secondary = batch.homes[first.index()].secondary();
            stages.enter(queue, at, bucket, probe(lanes, bucket, request.key, secondary, quick));
        }
        stages.counts.buckets += buckets.len() as u64;
        stages.buckets = buckets;
        stages.buckets.clear();
        batch.hits.set(batch.hits.get() + hits);
        true
    }
}

impl Stages {
    /// Adds a queue to the list of what its head needs after a probe of this bucket.
    #[inline(always)]
    fn enter(&mut self, queue: QueueIndex, at: Pointer, bucket: &Bucket, probe: Probe) {
        match (probe, bucket.chain()) {
            (Probe::Slab(slab), _) => self.slabs.push((queue, slab)),
            (Probe::Absent, Some(next)) => self.chained.push((queue, next)),
            (probe, _) => self.probed.push((queue, at, probe)),
        }
    }

    /// Empties all lists. They are empty already, unless a batch has panicked.
    pub(super) fn clear(&mut self) {
        let Stages { buckets, chained, probed, slabs, remaining, counts: _ } = self;
        buckets.clear();
        chained.clear();
        probed.clear();
        slabs.clear();
        remaining.clear();
    }

    /// Lets a queue begin with a probe of its home bucket.
    #[inline]
    pub(super) fn activate(&mut self, queue: QueueIndex, home: Home) {
        self.buckets.push((queue, home.bucket.pointer()));
    }
}

impl<M: Memory> Batch<'_, M> {
    /// Executes the requests of all dependency queues that need no future.
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
                let (replies, _) = replies.parts_mut(self.first_reply, self.requests.len());
                if !self.table.search().run(ProbeBuckets { batch: self, stages, replies }) {
                    stages.remaining.extend(stages.buckets.drain(..).map(|(queue, _)| queue));
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
        stages.counts.futures += stages.remaining.len() as u64;
    }

    /// Executes the head of each queue that needs only one bucket, and the requests of the same key after it. The bucket has
    /// the pair, or shows that there is none.
    #[inline(never)]
    fn access_probed(&self, stages: &mut Stages, replies: &mut Replies) {
        let mut lines = self.table.memory().resident().expect("the buckets were probed");
        for (queue, at, probe) in stages.probed.drain(..) {
            let bucket = Bucket::from_line_mut(lines.line(at));
            let first = self.station.first(queue);
            let request = &self.requests[first.index()];
            // An edit of a chained bucket may need others of the chain.
            let may_edit = at == self.homes[first.index()].bucket.pointer();
            let access = |value: Option<&mut [u8]>| self.access(queue, first, value, replies);
            let (effect, accessed) = self.table.access_bucket(bucket, probe, request.key, may_edit, access);
            lines.note(at.span(LINE_SIZE), effect);
            match accessed {
                BucketAccess::Done => {}
                BucketAccess::Edited(edit) => self.end_first(queue, first, edit.reply(), replies),
                BucketAccess::Left(..) | BucketAccess::Elsewhere => {
                    stages.remaining.push(queue);
                    continue;
                }
            }
            self.activate(&mut stages.buckets, queue);
        }
    }

    /// Searches a slab for the key of each head.
    #[inline(never)]
    fn access_slabs(&self, stages: &mut Stages, replies: &mut Replies) {
        for (_, slab) in &stages.slabs {
            self.table.prefetch_slab(*slab);
        }
        let mut lines = self.table.memory().resident().expect("the buckets were probed");
        for (queue, slab) in stages.slabs.drain(..) {
            let first = self.station.first(queue);
            let request = &self.requests[first.index()];
            let access = |value: &mut [u8]| self.forward(queue, first, value, replies);
            if self.table.access_resident_slab(&mut lines, slab, request.key, access) {
                self.activate(&mut stages.buckets, queue);
            } else {
                stages.remaining.push(queue);
            }
        }
    }

    /// Lets a queue begin again with a probe of its home bucket, if it is not empty.
    #[inline]
    fn activate(&self, buckets: &mut Vec<(QueueIndex, Pointer)>, queue: QueueIndex) {
        if let Some(first) = self.head(queue) {
            buckets.push((queue, self.homes[first.index()].bucket.pointer()));
        }
    }
}
