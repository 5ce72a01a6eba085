//! The stages of a batch on a memory that has prefetched lines resident: tight loops over many requests instead of futures.
//!
//! ```text
//! prefetched at    short values       dependency    probe of the       what is left of them
//! admission  ───▶  of inline pairs ─▶ queues  ────▶ home bucket  ────▶ ─┬─▶ the pair in its bucket, or an edit of it
//!                  (most requests)      ▲                               ├─▶ prefetch slabs, access them
//!                                       │                               ├─▶ prefetch chained buckets, probe them
//!                                       └── queues that are not empty ──┤
//!                                                                       └─▶ futures
//! ```
//!
//! 1. [`ExecuteShort`] takes the requests in their order. It completes each whose key has an inline pair with a value of one
//!    to eight bytes, if it leaves the size as it is. All others go to the reservation station, and so do later requests of
//!    the same slot. So the order of a key's requests is kept, and a completed request never was in the station.
//! 2. [`Batch::run_resident`] works on the front of every dependency queue: on its home bucket, then on its slab or the
//!    chained buckets. Queues that are not empty after that begin again with a probe of the home bucket. Prefetches are adjacent, so that their page walks overlap.
//! 3. The rest goes through the same searches and edits as a future: allocations, and edits of more than one bucket. So does
//!    everything on a memory that has nothing resident.

use std::hint::cold_path;

use super::chain::{Batch, creates, edit_of};
use super::execution::{Short, execute_short};
use super::interleaver::IN_FLIGHT_MAX;
use super::replies::{Entry, Replies};
use super::station::{Admission, Arrivals, ChainIndex};
use crate::hash::{
    FirstLine, HashTable, Home, Lanes, Probe, QuickProbe, SecondaryHash, SlabSlot, Visit, WithLanes, find_short_value,
    probe, probe_slabs,
};
use crate::memory::{Effect, Memory, Pointer};
use skep_core::operation::{Operation, Request};

/// The lists between the stages, kept from batch to batch. Each has a queue with what its front needs next.
#[derive(Debug)]
pub(super) struct Stages {
    /// A probe of its home bucket.
    active: Vec<ChainIndex>,
    /// What its home bucket allows, which was probed.
    probed: Vec<(ChainIndex, Probe)>,
    /// This slab, which may hold its pair.
    slabs: Vec<(ChainIndex, SlabSlot)>,
    /// A probe of this bucket of the chain.
    chained: Vec<(ChainIndex, Pointer)>,
    /// The same, while `chained` is worked on.
    chained_next: Vec<(ChainIndex, Pointer)>,
    /// A future, after [`Batch::run_resident`].
    pub(super) waiting: Vec<ChainIndex>,
}

impl Default for Stages {
    fn default() -> Self {
        Stages {
            active: Vec::with_capacity(IN_FLIGHT_MAX),
            probed: Vec::with_capacity(IN_FLIGHT_MAX),
            slabs: Vec::with_capacity(IN_FLIGHT_MAX),
            chained: Vec::with_capacity(IN_FLIGHT_MAX),
            chained_next: Vec::with_capacity(IN_FLIGHT_MAX),
            waiting: Vec::with_capacity(IN_FLIGHT_MAX),
        }
    }
}

/// Executes requests on short values of inline pairs, in order, if the memory has lines resident; `None` if it has not.
/// Admits all others to the station. The output is the number of GETs that found their key.
pub(super) struct ExecuteShort<'a, 's, 'k, M, A> {
    pub(super) table: &'a HashTable<M>,
    pub(super) requests: &'a [Request<'k>],
    pub(super) homes: &'a [Home],
    pub(super) answers: &'a mut [Entry],
    pub(super) arrivals: &'a mut Arrivals<'s>,
    pub(super) stages: &'a mut Stages,
    pub(super) admission: A,
}

impl<M: Memory, A: Fn(&Home) -> Admission> WithLanes for ExecuteShort<'_, '_, '_, M, A> {
    type Output = Option<u64>;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> Self::Output {
        let ExecuteShort { table, requests, homes, answers, arrivals, stages, admission } = self;
        let mut hits = 0;
        let all = requests.iter().zip(homes).zip(answers).enumerate();
        let buckets =
            all.map(|(place, ((request, home), answer))| (home.bucket.pointer(), (place, request, home, answer)));
        let is_resident = table.with_resident_buckets(buckets, |bucket, (place, request, home, answer)| {
            let admission = admission(home);
            let mut quick = QuickProbe::Unclear;
            if !arrivals.is_blocked(admission) {
                quick = find_short_value(lanes, bucket, request.key);
                if let QuickProbe::Short(position) = quick {
                    let value = position.load(bucket);
                    if let Operation::Get = request.operation {
                        hits += 1;
                        *answer = Entry::short(Some(value), position.size());
                        return Effect::Unchanged;
                    }
                    if let Some(Short { answer: reply, left }) =
                        execute_short(&request.operation, value, position.size())
                    {
                        *answer = Entry::short(reply, position.size());
                        let Some(left) = left else { return Effect::Unchanged };
                        position.store(bucket, left);
                        return Effect::Changed;
                    }
                }
            }
            cold_path();
            if let Some(chain) = arrivals.admit(place, admission) {
                let secondary = SecondaryHash::from_hash(home.hash.0);
                let probe = match quick {
                    QuickProbe::NoPair => probe_slabs(lanes, bucket, secondary),
                    QuickProbe::Short(position) => Probe::Pair(position.pair(request.key.len())),
                    QuickProbe::Unclear => probe(lanes, bucket, request.key, secondary),
                };
                stages.enter(chain, probe, bucket.chain());
            }
            Effect::Unchanged
        });
        is_resident.then_some(hits)
    }
}

/// Probes the home buckets of the fronts of all active queues, if the memory has them resident; returns true if it has.
struct ProbeHomes<'a, 'b, M> {
    batch: &'a Batch<'b, M>,
    stages: &'a mut Stages,
}

impl<M: Memory> WithLanes for ProbeHomes<'_, '_, M> {
    type Output = bool;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> bool {
        let ProbeHomes { batch, stages } = self;
        let active = std::mem::take(&mut stages.active);
        let buckets = active.iter().map(|chain| {
            let first = batch.station.first(*chain).index();
            let home = batch.homes[first];
            (home.bucket.pointer(), (*chain, batch.requests[first].key, home.hash.0))
        });
        let is_resident = batch.table.with_resident_buckets(buckets, |bucket, (chain, key, hash)| {
            stages.enter(chain, probe(lanes, bucket, key, SecondaryHash::from_hash(hash)), bucket.chain());
            Effect::Unchanged
        });
        stages.active = active;
        if is_resident {
            stages.active.clear();
        }
        is_resident
    }
}

impl Stages {
    /// Puts a queue into the list of what its front needs after a probe of its home bucket, which has this next one.
    #[inline(always)]
    fn enter(&mut self, chain: ChainIndex, probe: Probe, next: Option<Pointer>) {
        match (probe, next) {
            (Probe::Slab(slab), _) => self.slabs.push((chain, slab)),
            (Probe::Absent, Some(next)) => self.chained.push((chain, next)),
            (probe, _) => self.probed.push((chain, probe)),
        }
    }

    /// Empties all lists. They are empty already, unless a batch has panicked.
    pub(super) fn clear(&mut self) {
        let Stages { active, probed, slabs, chained, chained_next, waiting } = self;
        active.clear();
        probed.clear();
        slabs.clear();
        chained.clear();
        chained_next.clear();
        waiting.clear();
    }

    /// Lets queues begin with a probe of their home buckets.
    pub(super) fn activate(&mut self, chains: impl Iterator<Item = ChainIndex>) {
        self.active.extend(chains);
    }
}

impl<M: Memory> Batch<'_, M> {
    /// Works on all dependency queues as far as that needs no future.
    #[inline(never)]
    pub(super) fn run_resident(&self, stages: &mut Stages) {
        let mut replies = self.replies.borrow_mut();
        loop {
            self.access_homes(stages, &mut replies);
            self.access_chained(stages, &mut replies);
            self.access_slabs(stages, &mut replies);
            if stages.active.is_empty() {
                break;
            }
            if !self.table.search().run(ProbeHomes { batch: self, stages }) {
                stages.waiting.append(&mut stages.active);
                break;
            }
        }
    }

    /// Executes the front of each queue whose home bucket has its pair or shows that there is none, and what has the same key
    /// in the queue.
    #[inline(never)]
    fn access_homes(&self, stages: &mut Stages, replies: &mut Replies) {
        let Stages { probed, active, waiting, .. } = stages;
        let buckets = probed.drain(..).map(|(chain, probe)| {
            let first = self.station.first(chain);
            (self.homes[first.index()].bucket.pointer(), (chain, first, probe))
        });
        self.table.with_resident_buckets(buckets, |bucket, (chain, first, probe)| {
            let request = &self.requests[first.index()];
            let visit = |value: &mut [u8]| self.forward(chain, first, request, value, &mut None, replies);
            let edit = |found| edit_of(request, found);
            let (effect, line) = self.table.access_probed(bucket, probe, request.key, visit, edit);
            if self.answer_first_line(chain, first, &line, replies) {
                self.activate(active, chain);
            } else {
                waiting.push(chain);
            }
            effect
        });
    }

    /// Searches the chained buckets for the key of each front.
    #[inline(never)]
    fn access_chained(&self, stages: &mut Stages, replies: &mut Replies) {
        while !stages.chained.is_empty() {
            let Stages { active, slabs, chained, chained_next, waiting, .. } = stages;
            for (_, at) in chained.iter() {
                self.table.memory().prefetch_line(*at);
            }
            let buckets = chained.drain(..).map(|(chain, at)| (at, chain));
            self.table.with_resident_buckets(buckets, |bucket, chain| {
                let first = self.station.first(chain);
                let request = &self.requests[first.index()];
                match (self.table.probe(bucket, request.key, self.homes[first.index()]), bucket.chain()) {
                    (Probe::Slab(slab), _) => slabs.push((chain, slab)),
                    (Probe::Absent, Some(next)) => chained_next.push((chain, next)),
                    (Probe::Absent, None) if creates(request) => waiting.push(chain),
                    (Probe::Absent, None) => {
                        self.answer_first_line(chain, first, &FirstLine::Absent, replies);
                        self.activate(active, chain);
                    }
                    (Probe::Pair(pair), _) => {
                        let value = bucket.inline_value_mut(pair);
                        match self.forward(chain, first, request, value, &mut None, replies) {
                            Visit::Left => waiting.push(chain),
                            Visit::Done(effect) => {
                                self.activate(active, chain);
                                return effect;
                            }
                        }
                    }
                }
                Effect::Unchanged
            });
            std::mem::swap(chained, chained_next);
        }
    }

    /// Lets a queue begin again, if it is not empty.
    #[inline]
    fn activate(&self, active: &mut Vec<ChainIndex>, chain: ChainIndex) {
        if self.front(chain).is_some() {
            active.push(chain);
        }
    }

    /// Searches a slab for the key of each front.
    #[inline(never)]
    fn access_slabs(&self, stages: &mut Stages, replies: &mut Replies) {
        let Stages { active, slabs, waiting, .. } = stages;
        for (_, slab) in slabs.iter() {
            self.table.prefetch_slab(*slab);
        }
        for (chain, slab) in slabs.drain(..) {
            let first = self.station.first(chain);
            let request = &self.requests[first.index()];
            let visit = |value: &mut [u8]| self.forward(chain, first, request, value, &mut None, replies);
            if self.table.access_resident_slab(slab, request.key, visit) {
                self.activate(active, chain);
            } else {
                waiting.push(chain);
            }
        }
    }
}
