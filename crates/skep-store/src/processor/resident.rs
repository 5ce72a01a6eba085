//! The stages of a batch on a memory that has prefetched lines resident: tight loops over many requests instead of
//! futures.
//!
//! ```text
//! prefetched at    short values      all others: probe    what is left of them
//! admission  ───▶  of inline pairs ─▶ of the bucket  ───▶ ─┬─▶ the pair in its bucket, or an edit of it
//!                  (most requests)      ▲                  ├─▶ prefetch slabs, old or new, access them
//!                                       │                  ├─▶ prefetch overflow buckets ──▶ again a probe
//!                                       └── dependency ────┤
//!                                           queues that    ├─▶ prefetch the slabs of a value in several, access them
//!                                           are not empty  └─▶ futures
//! ```
//!
//! 1. [`ExecuteShort`] takes the requests in their order. It completes a request if (a) no earlier request of its
//!    station slot is queued, (b) the pair is inline, with a key of up to 16 bytes and a value of one to eight bytes,
//!    and (c) the size of the value does not change. All others enter the station. So the order of a key's requests is
//!    kept, and a completed request was never in the station. If a request becomes the head of a queue, the loop also
//!    probes its home bucket. Adjacent requests on one key are executed by [`ExecuteSameKey`].
//! 2. [`Batch::run_resident`] works on the head of every dependency queue: it probes the overflow buckets, then accesses
//!    the bucket or slab of the pair. Queues that are not empty after that begin again with a probe of the home bucket.
//!    Prefetches are adjacent instructions, so that their page walks overlap. The probe completes a request that is
//!    alone in its queue if the value is short.
//!    A value in several slabs, up to 4 KiB, has a stage of its own (`resident_large`).
//! 3. The rest runs as futures: larger values, the edits that `hash/resident.rs` leaves, and keys whose secondary hash
//!    is equal to that of another key. Without resident lines, every queue is a future.
//!
//! The loops are plain `for` loops over [`ResidentLines`], with a `continue` where a request is completed. Closures and
//! a borrowed [`Arrivals`] were measured: the compiler left calls in the loops, or kept their state in memory. So did a
//! call in the first loop that completes edits of home buckets: it saved instructions of the edits, and cost a GET
//! five.

use std::hint::cold_path;

use super::interleaver::IN_FLIGHT_MAX;
use super::queue::Batch;
use super::replies::{Entry, Replies, ReplySlot};
use super::resident_large::LargeValue;
use super::same_key::{ExecuteSameKey, SameKeys, execute_on_word};
use super::station::{Admission, Arrivals, QueueIndex, Queues, RequestIndex};
use crate::apply::{Edit, NewValue, Outcome, apply_to_any, apply_to_missing, put_if_missing};
use crate::hash::{
    Bucket, BucketAccess, HashTable, Home, InlinePair, Lanes, Probe, QuickProbe, ResidentSlab, ResidentValue,
    SlabAccess, SlabSlot, WithLanes, find_short_value, probe,
};
use crate::memory::{Effect, LINE_SIZE, Memory, Pointer, ResidentLines};
use crate::short::overwrite;
use skep_core::operation::{Operation, PutCondition, Reply, Request};

/// The lists between the stages. They keep their memory. Each list holds queues whose heads need the same next step.
#[derive(Debug)]
pub(super) struct Stages {
    /// A probe of this prefetched bucket.
    buckets: Vec<(QueueIndex, Pointer)>,
    /// A probe of this bucket of the chain, which is not prefetched.
    overflow: Vec<(QueueIndex, Pointer)>,
    /// An access to this inline pair of this bucket.
    pairs: Vec<(QueueIndex, Pointer, InlinePair)>,
    /// An operation on a missing key.
    missing: Vec<QueueIndex>,
    /// An access to this slab, which may contain the pair.
    slabs: Vec<(QueueIndex, ResidentSlab)>,
    /// An insertion of its pair with this new slab.
    inserts: Vec<(QueueIndex, SlabSlot)>,
    /// An access to a value in several slabs.
    large: Vec<LargeValue>,
    /// A future, after [`Batch::run_resident`].
    pub(super) remaining: Vec<QueueIndex>,
    pub(super) counts: StageCounts,
}

/// For each stage, the number of queue heads that used it. They show if two memories are served by the same stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    /// Requests, not queues, of the loop over short values.
    pub requests: u64,
    /// Of these, requests of a run on one key that were executed on a value in a register.
    pub same_key: u64,
    /// Probes of overflow buckets, and of the home buckets of queues that begin again.
    pub buckets: u64,
    /// Accesses to inline pairs, and operations on missing keys.
    pub probed: u64,
    /// Accesses to a slab, and insertions of new slabs.
    pub slabs: u64,
    /// Accesses to a value in several slabs.
    pub large: u64,
    /// Futures that began after the stages.
    pub futures: u64,
}

impl Default for Stages {
    fn default() -> Self {
        Stages {
            buckets: Vec::with_capacity(IN_FLIGHT_MAX),
            overflow: Vec::with_capacity(IN_FLIGHT_MAX),
            pairs: Vec::with_capacity(IN_FLIGHT_MAX),
            missing: Vec::with_capacity(IN_FLIGHT_MAX),
            slabs: Vec::with_capacity(IN_FLIGHT_MAX),
            inserts: Vec::with_capacity(IN_FLIGHT_MAX),
            large: Vec::new(),
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
    pub(super) same_keys: &'a SameKeys,
    pub(super) admission: A,
}

impl<M: Memory, A: Fn(&Home) -> Admission> WithLanes for ExecuteShort<'_, '_, '_, M, A> {
    type Output = Option<u64>;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> Self::Output {
        let ExecuteShort { table, requests, homes, entries, mut arrivals, stages, same_keys, admission } = self;
        let mut lines = table.memory().resident()?;
        let count = requests.len();
        let (homes, entries) = (&homes[..count], &mut entries[..count]);
        stages.counts.requests += count as u64;
        let (mut begin, mut hits) = (0, 0);
        for same_key in same_keys.iter().chain(std::iter::once(count..count)) {
            let others = begin..same_key.start;
            let requests_of_others = others.clone().zip(&requests[others.clone()]);
            let slots_of_others = homes[others.clone()].iter().zip(&mut entries[others]);
            for ((index, request), (home, entry)) in requests_of_others.zip(slots_of_others) {
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
            begin = same_key.start;
            if let Some(home) = homes.get(begin)
                && !arrivals.is_blocked(admission(home))
            {
                let at = home.bucket.pointer();
                let bucket = Bucket::from_line_mut(lines.line(at));
                let (requests, entries) = (&requests[same_key.clone()], &mut entries[same_key]);
                let executed = table.search().run(ExecuteSameKey { bucket, requests, entries });
                lines.note(at.span(LINE_SIZE), executed.effect);
                stages.counts.same_key += executed.count as u64;
                (begin, hits) = (begin + executed.count, hits + executed.hits);
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
    let mut word = position.load_word(bucket);
    match execute_on_word(&request.operation, position, &mut word, entry, hits) {
        None => return Some(quick),
        Some(Effect::Unchanged) => {}
        Some(Effect::Changed) => {
            position.store_word(bucket, word);
            lines.note(at.span(LINE_SIZE), Effect::Changed);
        }
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

/// Accesses to inline pairs, and operations on missing keys.
///
/// Runs under `Search::run` only so that it is compiled with BMI2: an edit shifts the marks of a bucket.
struct AccessProbed<'a, 'b, M> {
    batch: &'a Batch<'b, M>,
    stages: &'a mut Stages,
    replies: &'a mut Replies,
}

impl<M: Memory> WithLanes for AccessProbed<'_, '_, M> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: impl Lanes) {
        let AccessProbed { batch, stages, replies } = self;
        batch.access_pairs(stages, replies);
        batch.access_missing_keys(stages, replies);
    }
}

impl Stages {
    /// Adds a queue to the list of its head's next stage, after a probe of this bucket.
    #[inline(always)]
    fn enter(&mut self, queue: QueueIndex, at: Pointer, bucket: &Bucket, probe: Probe) {
        match (probe, bucket.chain()) {
            (Probe::Slab(slot, slab), _) => self.slabs.push((queue, ResidentSlab { at, slot, slab })),
            (Probe::Absent, Some(next)) => self.overflow.push((queue, next)),
            (Probe::Absent, None) => self.missing.push(queue),
            (Probe::Pair(pair), _) => self.pairs.push((queue, at, pair)),
        }
    }

    /// Empties all lists. They are empty already, unless a batch has panicked.
    pub(super) fn clear(&mut self) {
        let Stages { buckets, overflow, pairs, missing, slabs, inserts, large, remaining, counts: _ } = self;
        buckets.clear();
        overflow.clear();
        pairs.clear();
        missing.clear();
        slabs.clear();
        inserts.clear();
        large.clear();
        remaining.clear();
    }

    /// Lets a queue begin with a probe of its home bucket.
    #[inline]
    pub(super) fn activate(&mut self, queue: QueueIndex, home: Home) {
        self.buckets.push((queue, home.bucket.pointer()));
    }
}

impl<'a, M: Memory> Batch<'a, M> {
    /// Executes the requests of all dependency queues that need no future.
    #[inline(never)]
    pub(super) fn run_resident(&self, stages: &mut Stages) {
        let mut replies = self.replies.borrow_mut();
        loop {
            if !stages.overflow.is_empty() {
                for (_, at) in &stages.overflow {
                    self.table.memory().prefetch_line(*at);
                }
                stages.buckets.append(&mut stages.overflow);
            }
            if !stages.buckets.is_empty() {
                let replies = replies.entries_mut(self.first_reply, self.requests.len());
                if !self.table.search().run(ProbeBuckets { batch: self, stages, replies }) {
                    stages.remaining.extend(stages.buckets.drain(..).map(|(queue, _)| queue));
                    break;
                }
                continue;
            }
            if stages.pairs.is_empty() && stages.missing.is_empty() && stages.slabs.is_empty() {
                break;
            }
            stages.counts.probed += (stages.pairs.len() + stages.missing.len()) as u64;
            self.table.search().run(AccessProbed { batch: self, stages, replies: &mut replies });
            stages.counts.slabs += (stages.slabs.len() + stages.inserts.len()) as u64;
            self.access_slabs(stages, &mut replies);
            self.insert_slabs(stages, &mut replies);
            if !stages.large.is_empty() {
                let Stages { large, buckets, remaining, counts, .. } = stages;
                counts.large += large.len() as u64;
                self.access_large(large, buckets, remaining, &mut replies);
                large.clear();
            }
        }
        stages.counts.futures += stages.remaining.len() as u64;
    }

    /// Returns the head of a queue. If the batch may compute no more values and the head computes one, returns `None`
    /// and leaves the queue to a future.
    #[inline(always)]
    fn begin(
        &self,
        queue: QueueIndex,
        remaining: &mut Vec<QueueIndex>,
    ) -> Option<(RequestIndex, &'a Request<'a>, &'a Home)> {
        let first = self.station.first(queue);
        let request = &self.requests[first.index()];
        if self.has_no_room_for(request) {
            remaining.push(queue);
            return None;
        }
        Some((first, request, &self.homes[first.index()]))
    }

    /// Executes the head of each queue whose inline pair was found, and the requests of the same key after it.
    #[inline(always)]
    fn access_pairs(&self, stages: &mut Stages, replies: &mut Replies) {
        let mut lines = self.table.memory().resident().expect("the buckets were probed");
        // The removal of a pair reads the next bucket, which it may absorb.
        for (queue, at, _) in &stages.pairs {
            let first = self.station.first(*queue);
            if let Operation::Delete = self.requests[first.index()].operation
                && let Some(next) = Bucket::from_line_mut(lines.line(*at)).chain()
            {
                self.table.memory().prefetch_line(next);
            }
        }
        for (queue, at, pair) in stages.pairs.drain(..) {
            let Some((first, request, home)) = self.begin(queue, &mut stages.remaining) else { continue };
            // Most are removals.
            if let Some(Outcome::Edit(edit @ Edit::Remove(_))) = apply_to_any(&request.operation) {
                self.table.remove_inline_resident(&mut lines, home, at, pair);
                self.end_first(queue, first, edit.reply(), replies);
                self.activate(&mut stages.buckets, queue);
                continue;
            }
            let bucket = Bucket::from_line_mut(lines.line(at));
            let home_bucket = (at == home.bucket.pointer()).then_some(home.bucket);
            let access = |value: Option<ResidentValue<'_>>| self.access(queue, first, value, replies);
            let (effect, accessed) =
                self.table.access_bucket(bucket, Probe::Pair(pair), request.key, home_bucket, access);
            lines.note(at.span(LINE_SIZE), effect);
            match accessed {
                BucketAccess::Done => {}
                BucketAccess::Edited(edit) => {
                    self.table.end_wait(home.hash);
                    self.end_first(queue, first, edit.reply(), replies);
                }
                BucketAccess::Left(..) | BucketAccess::Elsewhere => {
                    stages.remaining.push(queue);
                    continue;
                }
            }
            self.activate(&mut stages.buckets, queue);
        }
    }

    /// Executes the head of each queue whose key is missing.
    #[inline(always)]
    fn access_missing_keys(&self, stages: &mut Stages, replies: &mut Replies) {
        let mut lines = self.table.memory().resident().expect("the buckets were probed");
        for queue in stages.missing.drain(..) {
            let Some((first, request, home)) = self.begin(queue, &mut stages.remaining) else { continue };
            // Most are puts, which are compiled by themselves.
            if let Some(put) = put_if_missing(&request.operation) {
                if self.table.insert_inline_resident(&mut lines, home, request.key, &put) {
                    self.end_first(queue, first, put.reply(), replies);
                    self.activate(&mut stages.buckets, queue);
                } else {
                    match self.table.allocate_for(home, request.key, &put) {
                        Some(slab) => stages.inserts.push((queue, slab)),
                        None => stages.remaining.push(queue),
                    }
                }
                continue;
            }
            match apply_to_missing(&request.operation, self.arena) {
                Outcome::Edit(Edit::Store(new)) => {
                    if self.insert_computed(&mut lines, home, request.key, &new) {
                        self.end_first(queue, first, new.reply(), replies);
                    } else {
                        match self.table.allocate_for(home, request.key, &new) {
                            Some(slab) => stages.inserts.push((queue, slab)),
                            None => stages.remaining.push(queue),
                        }
                        continue;
                    }
                }
                _ => {
                    self.access(queue, first, None, replies);
                }
            }
            self.activate(&mut stages.buckets, queue);
        }
    }

    /// Inserts an inline pair whose value is not that of a put.
    #[inline(never)]
    fn insert_computed(&self, lines: &mut impl ResidentLines, home: &Home, key: &[u8], new: &NewValue<'_>) -> bool {
        self.table.insert_inline_resident(lines, home, key, new)
    }

    /// Searches a slab for the key of each head.
    #[inline(never)]
    fn access_slabs(&self, stages: &mut Stages, replies: &mut Replies) {
        for (_, resident) in &stages.slabs {
            self.table.prefetch_slab(resident.slab);
        }
        let mut lines = self.table.memory().resident().expect("the buckets were probed");
        let mut hits = 0;
        for (queue, resident) in stages.slabs.drain(..) {
            let Some((first, request, home)) = self.begin(queue, &mut stages.remaining) else { continue };
            // Most are alone in their queues.
            if self.station.after(first).is_none() {
                let mut reply = replies.slot(self.first_reply + first.index());
                let is_done = match request.operation {
                    Operation::Get => {
                        let value = resident.value(&mut lines, request.key);
                        value.map(|value| (reply.set_value(value), hits += 1)).is_some()
                    }
                    Operation::Put { .. } | Operation::Delete => {
                        self.write_on_slab(&mut lines, home, resident, request, reply)
                    }
                    _ => false,
                };
                if is_done {
                    self.station.clear(queue);
                    continue;
                }
            }
            let access = |value: Option<ResidentValue<'_>>| self.access(queue, first, value, replies);
            match self.table.access_resident_slab(&mut lines, home, &resident, request.key, access) {
                SlabAccess::Done => {}
                SlabAccess::Edited(edit) => self.end_first(queue, first, edit.reply(), replies),
                SlabAccess::Large(root, expiry) if root.has_no_index() => {
                    stages.large.push(LargeValue { queue, root, expiry });
                    continue;
                }
                SlabAccess::Large(..) | SlabAccess::Elsewhere => {
                    stages.remaining.push(queue);
                    continue;
                }
            }
            self.activate(&mut stages.buckets, queue);
        }
        self.hits.set(self.hits.get() + hits);
    }

    /// Executes a put that keeps the size, or a delete, on a resident slab that has its key without an expiry. Returns false, and
    /// does nothing, if it is none of these, or if it is left to the other path.
    #[inline(never)]
    fn write_on_slab(
        &self,
        lines: &mut impl ResidentLines,
        home: &Home,
        slab: ResidentSlab,
        request: &Request<'_>,
        mut reply: ReplySlot<'_>,
    ) -> bool {
        match &request.operation {
            Operation::Put { value: new, condition } if *condition != PutCondition::IfAbsent => {
                let Some(value) = slab.value_of_size(lines, request.key, new.len()) else { return false };
                overwrite(value, new);
            }
            Operation::Delete if self.table.remove_plain_slab(lines, home, slab, request.key) => {}
            _ => return false,
        }
        reply.set(Reply::Done);
        true
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
            let reply = replies.slot(self.first_reply + first.index());
            // Most are puts, which are compiled by themselves.
            let is_inserted = match put_if_missing(&request.operation) {
                Some(put) => insert_on_slab(self.table, &mut lines, home, slab, request.key, &put, reply),
                None => self.insert_computed_on_slab(&mut lines, home, slab, request, reply),
            };
            if is_inserted {
                self.station.remove(queue, None, first);
                self.activate(&mut stages.buckets, queue);
            } else {
                stages.remaining.push(queue);
            }
        }
    }

    /// Inserts a pair whose value is not that of a put, with a slab that was allocated for it.
    #[inline(never)]
    fn insert_computed_on_slab(
        &self,
        lines: &mut impl ResidentLines,
        home: &Home,
        slab: SlabSlot,
        request: &Request<'a>,
        reply: ReplySlot<'_>,
    ) -> bool {
        let Outcome::Edit(Edit::Store(new)) = apply_to_missing(&request.operation, self.arena) else {
            unreachable!("a slab was allocated for a pair to be stored");
        };
        insert_on_slab(self.table, lines, home, slab, request.key, &new, reply)
    }

    /// Lets a queue begin again with a probe of its home bucket, if it is not empty.
    #[inline]
    pub(super) fn activate(&self, buckets: &mut Vec<(QueueIndex, Pointer)>, queue: QueueIndex) {
        if let Some(first) = self.head(queue) {
            buckets.push((queue, self.homes[first.index()].bucket.pointer()));
        }
    }
}

/// Inserts a pair with a slab that was allocated for it, and sets the reply. Returns false, and does nothing, if that is left to
/// the other path.
#[inline(always)]
fn insert_on_slab<M: Memory>(
    table: &HashTable<M>,
    lines: &mut impl ResidentLines,
    home: &Home,
    slab: SlabSlot,
    key: &[u8],
    new: &NewValue<'_>,
    mut reply: ReplySlot<'_>,
) -> bool {
    let is_inserted = table.insert_resident(lines, home, slab, key, new);
    if is_inserted {
        reply.set(new.reply());
    }
    is_inserted
}
