//! The stages of a batch on a memory that has prefetched lines resident: tight loops over many requests instead of
//! futures.
//!
//! ```text
//! prefetched at    short values      all others: probe    what is left of them
//! admission  ───▶  of inline pairs ─▶ of the bucket  ───▶ ─┬─▶ the pair in its bucket, or an edit of it
//!                  (most requests)      ▲                  ├─▶ prefetch slabs, old or new, access them
//!                                       │                  ├─▶ prefetch chained buckets ──▶ again a probe
//!                                       └── dependency ────┤
//!                                           queues that    └─▶ futures
//!                                           are not empty
//! ```
//!
//! 1. [`ExecuteShort`] takes the requests in their order. It completes a request if (a) no earlier request of its
//!    station slot is queued, (b) the pair is inline, with a key of up to 16 bytes and a value of one to eight bytes,
//!    and (c) the size of the value does not change. All others enter the station. So the order of a key's requests is
//!    kept, and a completed request was never in the station. If a request becomes the head of a queue, the loop also
//!    probes its home bucket.
//! 2. [`Batch::run_resident`] works on the head of every dependency queue: it probes the chained buckets, then accesses
//!    the bucket or slab of the pair. Queues that are not empty after that begin again with a probe of the home bucket.
//!    Prefetches are adjacent instructions, so that their page walks overlap. The probe completes a request that is
//!    alone in its queue if the value is short.
//! 3. The rest runs as futures: large values, the edits that `hash/resident.rs` leaves, and keys whose secondary hash
//!    is equal to that of another key. Without resident lines, every queue is a future.
//!
//! The loops are plain `for` loops over [`ResidentLines`], with a `continue` where a request is completed. Closures and
//! a borrowed [`Arrivals`] were measured: the compiler left calls in the loops, or kept their state in memory. So did a
//! call in the first loop that completes edits of home buckets: it saved instructions of the edits, and cost a GET
//! five.

use std::hint::cold_path;

use super::interleaver::IN_FLIGHT_MAX;
use super::queue::Batch;
use super::replies::{Entry, Replies};
use super::station::{Admission, Arrivals, QueueIndex, Queues};
use crate::apply::{Edit, Outcome, ShortOutcome, apply_short, apply_to_missing};
use crate::hash::{
    Bucket, BucketAccess, HashTable, Home, Lanes, Probe, QuickProbe, ResidentSlab, ResidentValue, SlabSlot, WithLanes,
    find_short_value, probe,
};
use crate::memory::{Effect, LINE_SIZE, Memory, Pointer, ResidentLines};
use skep_core::operation::{Operation, Request};

/// The lists between the stages. They keep their memory. Each list holds queues whose heads need the same next step.
#[derive(Debug)]
pub(super) struct Stages {
    /// A probe of this prefetched bucket.
    buckets: Vec<(QueueIndex, Pointer)>,
    /// A probe of this bucket of the chain, which is not prefetched.
    chained: Vec<(QueueIndex, Pointer)>,
    /// An access to this bucket, which was probed.
    probed: Vec<(QueueIndex, Pointer, Probe)>,
    /// An access to this slab, which may contain the pair.
    slabs: Vec<(QueueIndex, ResidentSlab)>,
    /// An insertion of its pair with this new slab.
    inserts: Vec<(QueueIndex, SlabSlot)>,
    /// A future, after [`Batch::run_resident`].
    pub(super) remaining: Vec<QueueIndex>,
    pub(super) counts: StageCounts,
}

/// For each stage, the number of queue heads that used it. They show if two memories are served by the same stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    /// Requests, not queues, of the loop over short values.
    pub requests: u64,
    /// Probes of chained buckets, and of the home buckets of queues that begin again.
    pub buckets: u64,
    /// Accesses to a bucket that was probed.
    pub probed: u64,
    /// Accesses to a slab, and insertions of new slabs.
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
            inserts: Vec::with_capacity(IN_FLIGHT_MAX),
            remaining: Vec::with_capacity(IN_FLIGHT_MAX),
            counts: StageCounts::default(),
        }
    }
}

/// Executes requests on short values of inline pairs, in order, and admits all others to the station. The output is the
/// number of GETs that found their key, or `None` if the memory has no lines resident: then nothing was done.
pub(super) struct ExecuteShort<'a, 's, 'k, M, A> {
    pub(super) table: &'a HashTable<M>,
    pub(super) requests: &'a [Request<'k>],
    pub(super) homes: &'a [Home],
    pub(super) entries: &'a mut [Entry],
    pub(super) arrivals: Arrivals<'s>,
    pub(super) stages: &'a mut Stages,
    pub(super) admission: A,
}

impl<M: Memory, A: Fn(&Home) -> Admission> WithLanes for ExecuteShort<'_, '_, '_, M, A> {
    type Output = Option<u64>;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> Self::Output {
        let ExecuteShort { table, requests, homes, entries, mut arrivals, stages, admission } = self;
        let mut lines = table.memory().resident()?;
        stages.counts.requests += requests.len() as u64;
        let mut hits = 0;
        for (index, ((request, home), entry)) in requests.iter().zip(homes).zip(entries).enumerate() {
            let at = home.bucket.pointer();
            let admission = admission(home);
            let mut quick = QuickProbe::Unclear;
            if !arrivals.is_blocked(admission) {
                match execute_short_value(lanes, &mut lines, at, request, entry, &mut hits) {
                    None => continue,
                    Some(found) => quick = found,
                }
            }
            cold_path();
            if let Some(queue) = arrivals.admit(index, admission) {
                let bucket = Bucket::from_line_mut(lines.line(at));
                stages.enter(queue, at, bucket, probe(lanes, bucket, request.key, home.secondary(), quick));
            }
        }
        Some(hits)
    }
}

/// Executes a request on the short value of its inline pair, if that is in this bucket. Otherwise, returns the result
/// of the quick probe.
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

/// Probes a bucket for the head of each queue. Executes a request on a short value if it is alone in its queue. The
/// output is false if the memory has no lines resident: then nothing was done.
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
    /// Adds a queue to the list of its head's next stage, after a probe of this bucket.
    #[inline(always)]
    fn enter(&mut self, queue: QueueIndex, at: Pointer, bucket: &Bucket, probe: Probe) {
        match (probe, bucket.chain()) {
            (Probe::Slab(slot, slab), _) => self.slabs.push((queue, ResidentSlab { at, slot, slab })),
            (Probe::Absent, Some(next)) => self.chained.push((queue, next)),
            (probe, _) => self.probed.push((queue, at, probe)),
        }
    }

    /// Empties all lists. They are empty already, unless a batch has panicked.
    pub(super) fn clear(&mut self) {
        let Stages { buckets, chained, probed, slabs, inserts, remaining, counts: _ } = self;
        buckets.clear();
        chained.clear();
        probed.clear();
        slabs.clear();
        inserts.clear();
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
                let replies = replies.entries_mut(self.first_reply, self.requests.len());
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
            self.access_probed(stages, &mut replies);
            stages.counts.slabs += (stages.slabs.len() + stages.inserts.len()) as u64;
            self.access_slabs(stages, &mut replies);
            self.insert_slabs(stages, &mut replies);
        }
        stages.counts.futures += stages.remaining.len() as u64;
    }

    /// Executes the head of each queue that needs only one bucket, and the requests of the same key after it. The
    /// bucket has the pair, or shows that the key is missing.
    #[inline(never)]
    fn access_probed(&self, stages: &mut Stages, replies: &mut Replies) {
        let mut lines = self.table.memory().resident().expect("the buckets were probed");
        // The removal of a pair reads the next bucket, which it may absorb.
        for (queue, at, probe) in &stages.probed {
            let first = self.station.first(*queue);
            if let (Probe::Pair(_), Operation::Delete) = (probe, &self.requests[first.index()].operation)
                && let Some(next) = Bucket::from_line_mut(lines.line(*at)).chain()
            {
                self.table.memory().prefetch_line(next);
            }
        }
        for (queue, at, probe) in stages.probed.drain(..) {
            let bucket = Bucket::from_line_mut(lines.line(at));
            let first = self.station.first(queue);
            let request = &self.requests[first.index()];
            let home = &self.homes[first.index()];
            let is_home = at == home.bucket.pointer();
            let access = |value: Option<ResidentValue<'_>>| self.access(queue, first, value, replies);
            let (effect, accessed) = self.table.access_bucket(bucket, probe, request.key, is_home, access);
            lines.note(at.span(LINE_SIZE), effect);
            match accessed {
                BucketAccess::Done => {}
                BucketAccess::Edited(edit) => {
                    self.table.end_wait(home.hash);
                    self.end_first(queue, first, edit.reply(), replies);
                }
                BucketAccess::Left(found, edit)
                    if self.table.edit_resident(&mut lines, home, at, found, request.key, &edit) =>
                {
                    self.end_first(queue, first, edit.reply(), replies);
                }
                BucketAccess::Left(None, Edit::Store(new)) => {
                    match self.table.allocate_for(home, request.key, &new) {
                        Some(slab) => stages.inserts.push((queue, slab)),
                        None => stages.remaining.push(queue),
                    }
                    continue;
                }
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
        for (_, resident) in &stages.slabs {
            self.table.prefetch_slab(resident.slab);
        }
        let mut lines = self.table.memory().resident().expect("the buckets were probed");
        for (queue, resident) in stages.slabs.drain(..) {
            let first = self.station.first(queue);
            let request = &self.requests[first.index()];
            let access = |value: Option<ResidentValue<'_>>| self.access(queue, first, value, replies);
            let home = &self.homes[first.index()];
            match self.table.access_resident_slab(&mut lines, home, &resident, request.key, access) {
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

    /// Inserts the pair of each head for which a slab was allocated.
    #[inline(never)]
    fn insert_slabs(&self, stages: &mut Stages, replies: &mut Replies) {
        for (_, slab) in &stages.inserts {
            self.table.prefetch_slab(*slab);
        }
        let mut lines = self.table.memory().resident().expect("the buckets were probed");
        for (queue, slab) in stages.inserts.drain(..) {
            let first = self.station.first(queue);
            let request = &self.requests[first.index()];
            let home = &self.homes[first.index()];
            let Outcome::Edit(edit @ Edit::Store(new)) = apply_to_missing(&request.operation, self.arena) else {
                unreachable!("a slab was allocated for a pair to be stored");
            };
            if self.table.insert_resident(&mut lines, home, slab, request.key, &new) {
                self.end_first(queue, first, edit.reply(), replies);
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
