//! Requests that begin one by one while others are under way, as they come from a network (KV-Direct, section 3.3.3).
//!
//! ```text
//!            slot   chain, refilled while it is worked off
//! admit ───▶  17 ─▶ 4 ─▶ 9 ─▶ 12      waits: the future that began with request 4 carries it out
//!       ───▶ 511 ─▶ 13                begins: the caller gets a future to run
//! ```
//!
//! [`Processor::execute`] admits a whole part and works it off in waves, which is best for a core. Here the caller has the
//! clock: a model of a pipeline, which decodes a request a cycle. Chains are those of [`super::chain`], so the answers
//! are the same. A slot is busy until its future has ended, not only until its chain is empty: what the last request
//! changed may still be on its way to memory.

use std::cell::{Cell, RefCell};

use super::Processor;
use super::chain::Batch;
use super::interleaver::IN_FLIGHT_MAX;
use super::replies::Replies;
use super::station::{ChainIndex, Chains, SLOT_COUNT, Waiting};
use crate::hash::Home;
use crate::memory::Memory;
use skep_core::operation::{Reply, Request};

/// Most requests past the station at a time.
const ALONE_MAX: usize = 4 * IN_FLIGHT_MAX;

/// Requests of which some are under way, see [`Processor::flow`].
pub struct Flow<'a, M> {
    batch: Batch<'a, M, FlowStation>,
    slot_of: fn(&Home) -> usize,
}

/// What became of a request that was admitted.
pub enum Admitted<F> {
    /// It begins a chain. The future works off all that joins it, and has to be run to its end.
    Begins(F),
    /// It waits in a chain that is under way, whose future will answer it.
    Waits,
    /// It is answered: it is invalid on any value.
    Refused,
}

impl<M: Memory> Processor<M> {
    /// Lets `drive` admit these requests one by one. `replies` is overwritten with the answers, in the order of the
    /// requests; those never admitted are [`Reply::Deferred`].
    ///
    /// Requests of one key take effect in the order of their admission. A request that finds or stores a value of more
    /// than one slab, which KV-Direct does not have, is left unexecuted and answered [`Reply::Deferred`], with all that
    /// waits behind it.
    ///
    /// # Panics
    /// If a future was not run to its end, after `drive`.
    pub fn flow<R>(
        &mut self,
        requests: &[Request<'_>],
        replies: &mut Replies,
        drive: impl FnOnce(&Flow<'_, M>) -> R,
    ) -> R {
        self.flow_by(requests, replies, |home| home.bucket.0 as usize, drive)
    }

    /// The same; requests with equal numbers depend on each other.
    pub(super) fn flow_by<R>(
        &mut self,
        requests: &[Request<'_>],
        replies: &mut Replies,
        slot_of: fn(&Home) -> usize,
        drive: impl FnOnce(&Flow<'_, M>) -> R,
    ) -> R {
        replies.reset(requests.len());
        // There are no batches, so there is no later one for what a request has to merge.
        self.table.begin_batch(usize::MAX);
        let homes: Vec<Home> = requests.iter().map(|request| self.table.locate(request.key)).collect();
        let station = FlowStation::new(requests.len());
        let batch = Batch {
            table: &self.table,
            requests,
            homes: &homes,
            first_reply: 0,
            station: &station,
            replies: RefCell::new(replies),
            hits: Cell::new(0),
            misses: Cell::new(0),
            deferred: Cell::new(0),
            deferred_keys: RefCell::new(&mut self.deferred_keys),
            large: RefCell::default(),
        };
        let flow = Flow { batch, slot_of };
        let result = drive(&flow);
        let batch = flow.batch;
        let (hits, misses, deferred) = (batch.hits.get(), batch.misses.get(), batch.deferred.get());
        assert!(station.slots.iter().all(|slot| !slot.busy.get()), "a chain was not worked off");
        self.operations += station.admitted.get() - deferred;
        self.hits += hits;
        self.misses += misses;
        result
    }
}

impl<M: Memory> Flow<'_, M> {
    /// Admits the request at this place. Each is admitted once.
    ///
    /// # Panics
    /// If there is no such request.
    pub fn admit(&self, place: usize) -> Admitted<impl Future<Output = ()> + '_> {
        let Some(request) = self.receive(place) else { return Admitted::Refused };
        let slot = (self.slot_of)(&self.batch.homes[place]) % SLOT_COUNT;
        let chain = ChainIndex::at(slot as u16);
        if self.batch.station.join(chain, request) { Admitted::Begins(self.work_off(chain)) } else { Admitted::Waits }
    }

    /// Admits the request at this place past the station, as [`Processor::execute_independent`] does: a pipeline without
    /// one, which has to see to its hazards itself.
    ///
    /// The caller promises that nothing with the same [home bucket](Processor::home_bucket) is under way, unless both only
    /// read. `None`: it is answered, because it is invalid on any value.
    ///
    /// # Panics
    /// If there is no such request, or more than 1024 futures of this kind have not ended.
    pub fn admit_alone(&self, place: usize) -> Option<impl Future<Output = ()> + '_> {
        let station = self.batch.station;
        let request = self.receive(place)?;
        let slot = station.free.borrow_mut().pop().expect("few enough are under way");
        let chain = ChainIndex::at(slot);
        station.join(chain, request);
        Some(async move {
            self.work_off(chain).await;
            station.free.borrow_mut().push(slot);
        })
    }

    /// Calls `visit` with the place of every request that was answered since the last call, in the order of execution.
    pub fn take_answered(&self, visit: impl FnMut(usize)) {
        self.batch.station.answered.borrow_mut().drain(..).map(Waiting::index).for_each(visit);
    }

    /// Counts and checks a request. `None`: it is refused, and answered.
    fn receive(&self, place: usize) -> Option<Waiting> {
        let station = self.batch.station;
        station.admitted.set(station.admitted.get() + 1);
        let request = Waiting::at(u32::try_from(place).expect("memory holds fewer requests"));
        if let Err(error) = self.batch.requests[place].validate_unordered() {
            self.batch.replies.borrow_mut().set(place, Reply::Failed(error));
            station.answered.borrow_mut().push(request);
            return None;
        }
        Some(request)
    }

    async fn work_off(&self, chain: ChainIndex) {
        self.batch.run_chain(chain).await;
        let station = self.batch.station;
        self.batch.deferred.set(self.batch.deferred.get() + station.clear(chain));
        station.slots[chain.index()].busy.set(false);
    }
}

/// The station of a flow: a chain for each slot, joined while it is worked off.
struct FlowStation {
    /// Those of the station, and behind them those of requests that are alone.
    slots: Vec<Slot>,
    /// Of the latter, those that are free.
    free: RefCell<Vec<u16>>,
    /// Behind each request, the next of its chain.
    next: Vec<Cell<Option<Waiting>>>,
    admitted: Cell<u64>,
    /// Requests that left their chains since that was last asked.
    answered: RefCell<Vec<Waiting>>,
}

#[derive(Clone, Default)]
struct Slot {
    front: Cell<Option<Waiting>>,
    last: Cell<Option<Waiting>>,
    /// Whether a future works it off.
    busy: Cell<bool>,
}

impl FlowStation {
    fn new(request_count: usize) -> Self {
        FlowStation {
            slots: vec![Slot::default(); SLOT_COUNT + ALONE_MAX],
            free: RefCell::new((SLOT_COUNT..SLOT_COUNT + ALONE_MAX).map(|slot| slot as u16).collect()),
            next: vec![Cell::new(None); request_count],
            admitted: Cell::new(0),
            answered: RefCell::default(),
        }
    }

    /// Puts a request at the end of a chain. Whether nobody works it off yet.
    fn join(&self, chain: ChainIndex, request: Waiting) -> bool {
        let slot = &self.slots[chain.index()];
        match slot.last.replace(Some(request)) {
            Some(last) => self.next[last.index()].set(Some(request)),
            None => slot.front.set(Some(request)),
        }
        !slot.busy.replace(true)
    }

    /// Takes all requests out of a chain; how many.
    fn clear(&self, chain: ChainIndex) -> u64 {
        let mut count = 0;
        while let Some(first) = self.front(chain) {
            self.retire(chain, None, first);
            count += 1;
        }
        count
    }
}

impl Chains for FlowStation {
    fn front(&self, chain: ChainIndex) -> Option<Waiting> {
        self.slots[chain.index()].front.get()
    }

    fn after(&self, request: Waiting) -> Option<Waiting> {
        self.next[request.index()].get()
    }

    fn retire(&self, chain: ChainIndex, before: Option<Waiting>, request: Waiting) {
        let slot = &self.slots[chain.index()];
        let next = self.after(request);
        match before {
            Some(before) => self.next[before.index()].set(next),
            None => slot.front.set(next),
        }
        if next.is_none() {
            slot.last.set(before);
        }
        self.answered.borrow_mut().push(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_joined_while_it_is_worked_off() {
        let station = FlowStation::new(6);
        let (chain, at) = (ChainIndex::at(5), Waiting::at);
        let left = || std::iter::successors(station.front(chain), |request| station.after(*request));
        assert!(station.join(chain, at(0)));
        assert!(!station.join(chain, at(1)) && !station.join(chain, at(2)));
        // The last of the chain leaves from behind another one, and a request joins behind that.
        station.retire(chain, Some(at(1)), at(2));
        assert!(!station.join(chain, at(3)));
        assert!(left().map(Waiting::index).eq([0, 1, 3]));
        assert_eq!(station.clear(chain), 3);
        // Empty, but still worked off.
        assert!(!station.join(chain, at(4)));
        assert!(left().map(Waiting::index).eq([4]));
        assert!(station.join(ChainIndex::at(6), at(5)));
        assert!(station.answered.take().into_iter().map(Waiting::index).eq([2, 0, 1, 3]));
    }
}
