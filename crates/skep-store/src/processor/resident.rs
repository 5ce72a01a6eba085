//! What a batch does at once, where the memory has lines resident: tight stages over the whole part instead of futures.
//!
//! ```text
//! prefetched at    active     first look:        the same key        other first lines,     visit
//! admission  ───▶ chains ──▶ short values ────▶ behind it? ───────▶ prefetch slabs ──────▶ slabs
//!                   ▲                                                  │ what has to wait    │ other key in it
//!                   │                                                  └──────▶ futures ◀────┤
//!                   └───────────────── chains that are not empty ◀───────────────────────────┘
//! ```
//!
//! A first look, with what it does to a value of up to eight bytes, is one loop without a call. Prefetches of slabs stand
//! close together, so that their page walks overlap. What waits goes through the same searches and edits as a future, and
//! so does everything on a memory that has nothing resident.

use super::chain::{Batch, edit_of};
use super::execution::{Short, execute_short};
use super::interleaver::IN_FLIGHT_MAX;
use super::replies::{Entry, Replies};
use super::station::{ChainIndex, Chains};
use crate::hash::{FirstLine, Lanes, ShortValue, Sighting, SlabSlot, WithLanes, is_same_key};
use crate::memory::{Effect, Memory};
use skep_core::operation::Operation;

/// The lists between the stages, kept from batch to batch.
#[derive(Debug)]
pub(super) struct Stages {
    /// Chains that are not empty.
    active: Vec<ChainIndex>,
    /// Chains with more behind a front that was answered from a short value, which is here: the first so many.
    short: Box<[(ChainIndex, [u8; 2]); IN_FLIGHT_MAX]>,
    short_count: usize,
    /// Chains with a front that was not, and what its first line showed: the first so many.
    sighted: Box<[(ChainIndex, Sighting); IN_FLIGHT_MAX]>,
    sighted_count: usize,
    /// Chains with a front that may lie in this slab.
    slabs: Vec<(ChainIndex, SlabSlot)>,
    /// Chains that have to wait, after [`Batch::run_resident`].
    pub(super) waiting: Vec<ChainIndex>,
}

impl Default for Stages {
    fn default() -> Self {
        Stages {
            active: Vec::with_capacity(IN_FLIGHT_MAX),
            short: Box::new([(ChainIndex::at(0), [0; 2]); IN_FLIGHT_MAX]),
            short_count: 0,
            sighted: Box::new([(ChainIndex::at(0), Sighting::Nothing); IN_FLIGHT_MAX]),
            sighted_count: 0,
            slabs: Vec::with_capacity(IN_FLIGHT_MAX),
            waiting: Vec::with_capacity(IN_FLIGHT_MAX),
        }
    }
}

impl<M: Memory> Batch<'_, M> {
    /// Works off all chains as far as that can be done at once.
    #[inline(never)]
    pub(super) fn run_resident(&self, stages: &mut Stages) {
        let mut replies = self.replies.borrow_mut();
        stages.waiting.clear();
        stages.active.extend(self.station.chains());
        while !stages.active.is_empty() {
            let first_looks = FirstLooks { batch: self, stages, replies: &mut replies };
            if !self.table.search().run(first_looks) {
                stages.waiting.append(&mut stages.active);
                break;
            }
            self.forward_short(stages, &mut replies);
            self.look_again(stages, &mut replies);
            self.visit_slabs(stages, &mut replies);
        }
    }

    /// Executes what waits behind a request that was answered from a short value, and has the same key.
    #[inline(never)]
    fn forward_short(&self, stages: &mut Stages, replies: &mut Replies) {
        let Stages { active, short, short_count, .. } = stages;
        let answers = replies.entries_mut(self.first_reply, self.requests.len());
        let mut hits = 0;
        let homes = short[..*short_count].iter().copied().map(|(chain, place)| {
            let first = self.station.first(chain);
            (self.homes[first.index()], (chain, first, ShortValue::unpack(place)))
        });
        self.table.second_looks(homes, |bucket, (chain, first, place)| {
            let key = self.requests[first.index()].key;
            let mut value = bucket.short_value(place);
            let mut effect = Effect::Unchanged;
            self.station.retire(chain, None, first);
            let (mut before, mut at) = (None, self.front(chain));
            while let Some(waiting) = at {
                at = self.station.after(waiting);
                let request = &self.requests[waiting.index()];
                if !is_same_key(request.key, key) {
                    before = Some(waiting);
                    continue;
                }
                let Some(Short { answer, left }) = execute_short(&request.operation, value, place.size()) else {
                    break;
                };
                answers[waiting.index()] = Entry::short(answer, place.size());
                if let Some(left) = left {
                    (value, effect) = (left, Effect::Changed);
                }
                hits += u64::from(matches!(request.operation, Operation::Get));
                self.station.retire(chain, before, waiting);
            }
            if effect == Effect::Changed {
                bucket.set_short_value(place, value);
            }
            if self.front(chain).is_some() {
                active.push(chain);
            }
            effect
        });
        self.hits.set(self.hits.get() + hits);
    }

    /// Works off the front of each chain that a first look was not enough for, and what has the same key behind it.
    #[inline(never)]
    fn look_again(&self, stages: &mut Stages, replies: &mut Replies) {
        let Stages { sighted, sighted_count, active, slabs, waiting, .. } = stages;
        let homes = sighted[..*sighted_count].iter().copied().map(|(chain, sighting)| {
            let first = self.station.first(chain);
            (self.homes[first.index()], (chain, first, sighting))
        });
        self.table.second_looks(homes, |bucket, (chain, first, sighting)| {
            let request = &self.requests[first.index()];
            let home = self.homes[first.index()];
            let visit = |value: &mut [u8]| self.forward(chain, first, request, value, &mut None, replies);
            let edit = |found| edit_of(request, found);
            let (effect, line) = self.table.look_on(bucket, sighting, request.key, home, visit, edit);
            match line {
                FirstLine::Slab(slab) => slabs.push((chain, slab)),
                FirstLine::Visited if self.front(chain).is_none() => {}
                FirstLine::Visited => active.push(chain),
                other if !self.answer_first_line(chain, first, &other, replies) => waiting.push(chain),
                _ if self.front(chain).is_none() => {}
                _ => active.push(chain),
            }
            effect
        });
    }

    /// Looks for the key of each front in a slab.
    #[inline(never)]
    fn visit_slabs(&self, stages: &mut Stages, replies: &mut Replies) {
        let Stages { active, slabs, waiting, .. } = stages;
        for (_, slab) in slabs.iter() {
            self.table.prefetch_slab(*slab);
        }
        for (chain, slab) in slabs.drain(..) {
            let first = self.station.first(chain);
            let request = &self.requests[first.index()];
            let visit = |value: &mut [u8]| self.forward(chain, first, request, value, &mut None, replies);
            if !self.table.access_resident_slab(slab, request.key, visit) {
                waiting.push(chain);
            } else if self.front(chain).is_some() {
                active.push(chain);
            }
        }
    }
}

/// A first look for the front of each active chain, if the memory has lines resident; whether it has. What can be done
/// with a short value is done, without a call: so nothing has to be saved for one.
struct FirstLooks<'a, 'b, M> {
    batch: &'a Batch<'b, M>,
    stages: &'a mut Stages,
    replies: &'a mut Replies,
}

impl<M: Memory> WithLanes for FirstLooks<'_, '_, M> {
    type Output = bool;

    #[inline(always)]
    fn run(self, lanes: impl Lanes) -> bool {
        let FirstLooks { batch, stages, replies } = self;
        let (table, requests, station) = (batch.table, batch.requests, batch.station);
        // A future's batch may be longer, but then nothing is resident.
        let Some(homes) = batch.homes.first_chunk::<IN_FLIGHT_MAX>() else { return false };
        let answers = replies.entries_mut(batch.first_reply, requests.len());
        let Stages { active, short, sighted, slabs, .. } = stages;
        let (mut short_count, mut sighted_count, mut hits) = (0, 0, 0);
        let sought = active.iter().map(|chain| {
            let first = station.first(*chain).index();
            (requests[first].key, homes[first % IN_FLIGHT_MAX], *chain)
        });
        let is_resident = table.first_looks(
            lanes,
            sought,
            |bucket, pair, chain| {
                let first = station.first(chain);
                let place = pair.short_value()?;
                let value = bucket.short_value(place);
                let mut effect = Effect::Unchanged;
                match &requests[first.index()].operation {
                    Operation::Get => {
                        answers[first.index()] = Entry::short(Some(value), place.size());
                        hits += 1;
                    }
                    operation => {
                        let Short { answer, left } = execute_short(operation, value, place.size())?;
                        answers[first.index()] = Entry::short(answer, place.size());
                        if let Some(left) = left {
                            bucket.set_short_value(place, left);
                            effect = Effect::Changed;
                        }
                    }
                }
                short[short_count % IN_FLIGHT_MAX] = (chain, place.pack());
                short_count += usize::from(station.has_more(first));
                Some(effect)
            },
            |sighting, chain| match sighting {
                Sighting::Slab(slab) => slabs.push((chain, slab)),
                sighting => {
                    sighted[sighted_count % IN_FLIGHT_MAX] = (chain, sighting);
                    sighted_count += 1;
                }
            },
        );
        if is_resident {
            active.clear();
        }
        (stages.short_count, stages.sighted_count) = (short_count, sighted_count);
        batch.hits.set(batch.hits.get() + hits);
        is_resident
    }
}
