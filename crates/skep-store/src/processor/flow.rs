//! Requests that begin one by one while others are in flight, as they arrive from a network (KV-Direct, section 3.3.3).
//!
//! ```text
//!            slot   queue, extended while it is executed
//! admit ───▶  17 ─▶ 4 ─▶ 9 ─▶ 12      blocked: the future that began with request 4 executes it
//!       ───▶ 511 ─▶ 13                begins: the caller runs the queue
//! ```
//!
//! [`Processor::execute`] admits a whole part and executes it in waves, which is best for a core. Here the caller has the
//! clock: a model of a pipeline, which decodes one request in a cycle. The queues are those of [`super::queue`], so the
//! replies are the same. A slot is busy until its future has ended, not only until its queue is empty, because the write of
//! the last request may still be in flight.

use std::cell::{Cell, RefCell};

use super::Processor;
use super::interleaver::IN_FLIGHT_MAX;
use super::queue::Batch;
use super::replies::Replies;
use super::station::{QueueIndex, Queues, RequestIndex, SLOT_COUNT};
use crate::hash::Home;
use crate::memory::Memory;
use skep_core::operation::{Reply, Request};

/// Most requests in flight without the station.
const ALONE_MAX: usize = 4 * IN_FLIGHT_MAX;

/// Requests that will be admitted one by one, see [`Processor::plan`].
pub struct Plan<'a> {
    requests: &'a [Request<'a>],
    homes: Vec<Home>,
    station: FlowStation,
    slot_of: fn(&Home) -> usize,
    is_used: Cell<bool>,
}

/// Requests of which some are in flight, see [`Processor::flow`].
#[must_use = "the operations of a flow that is not ended are not counted"]
pub struct Flow<'a, M> {
    batch: Batch<'a, M, FlowStation>,
    slot_of: fn(&Home) -> usize,
    /// The operations, hits and misses of the processor.
    counts: [&'a mut u64; 3],
}

/// The state of a request after its admission.
pub enum Admitted {
    /// It begins a queue, which the caller runs.
    Begins(Begun),
    /// It is in a queue that is in flight, whose future will execute it.
    Waits,
    /// It is invalid on any value, and has its reply.
    Refused,
}

/// A queue that has begun.
#[must_use = "the requests of a queue that is not run get no reply"]
pub struct Begun(QueueIndex);

impl<M: Memory> Processor<M> {
    /// Returns a plan to admit these requests one by one.
    pub fn plan<'a>(&self, requests: &'a [Request<'a>]) -> Plan<'a> {
        self.plan_by(requests, |home| home.bucket.0 as usize)
    }

    /// Returns such a plan. Requests with equal numbers depend on each other.
    pub(super) fn plan_by<'a>(&self, requests: &'a [Request<'a>], slot_of: fn(&Home) -> usize) -> Plan<'a> {
        let homes = requests.iter().map(|request| self.table.locate(request.key)).collect();
        Plan { requests, homes, station: FlowStation::new(requests.len()), slot_of, is_used: Cell::new(false) }
    }

    /// Begins to execute a plan of this processor. Overwrites `replies`, in the order of the requests. Those never admitted
    /// are [`Reply::Deferred`].
    ///
    /// Requests of one key take effect in the order of their admission. A request that has to read or write a value of more
    /// than one slab, which KV-Direct does not have, is deferred with all later requests of its queue.
    ///
    /// # Panics
    /// If the plan was used before.
    pub fn flow<'a>(&'a mut self, plan: &'a Plan<'a>, replies: &'a mut Replies) -> Flow<'a, M> {
        assert!(!plan.is_used.replace(true), "a plan is used once");
        replies.reset(plan.requests.len());
        self.arena.empty();
        while self.flush_step() {}
        // There are no batches, so a request cannot leave merging to a later one.
        self.table.begin_batch(usize::MAX);
        let Plan { requests, homes, station, slot_of, .. } = plan;
        let deferred_keys = &mut self.deferred_keys;
        let batch = Batch::new(&self.table, station, requests, homes, replies, deferred_keys, &self.arena);
        Flow { batch, slot_of: *slot_of, counts: [&mut self.operations, &mut self.hits, &mut self.misses] }
    }
}

impl<M: Memory> Flow<'_, M> {
    /// Ends the flow.
    ///
    /// # Panics
    /// If a queue was not run to its end.
    pub fn end(self) {
        let Flow { batch, counts: [operations, hits, misses], .. } = self;
        assert!(batch.station.slots.iter().all(|slot| !slot.busy.get()), "a queue was not polled to its end");
        *operations += batch.station.admitted.get() - batch.deferred.get();
        *hits += batch.hits.get();
        *misses += batch.misses.get();
    }

    /// Admits the request at this index. Each is admitted once.
    ///
    /// # Panics
    /// If there is no such request.
    pub fn admit(&self, index: usize) -> Admitted {
        let Some(request) = self.receive(index) else { return Admitted::Refused };
        let slot = (self.slot_of)(&self.batch.homes[index]) % SLOT_COUNT;
        let queue = QueueIndex::at(slot as u16);
        if self.batch.station.join(queue, request) { Admitted::Begins(Begun(queue)) } else { Admitted::Waits }
    }

    /// Admits the request at this index without the station, as [`Processor::execute_independent`] does. A pipeline without a
    /// station has to prevent hazards itself. Returns `None` if the request is invalid on any value, and has its reply.
    ///
    /// The caller promises that no request with the same [home bucket](Processor::home_bucket) is in flight, unless both only
    /// read.
    ///
    /// # Panics
    /// If there is no such request, or more than 1024 queues of this kind have not ended.
    pub fn admit_alone(&self, index: usize) -> Option<Begun> {
        let station = self.batch.station;
        let request = self.receive(index)?;
        let slot = station.free.borrow_mut().pop().expect("few enough are in flight");
        let queue = QueueIndex::at(slot);
        station.join(queue, request);
        Some(Begun(queue))
    }

    /// Executes all requests of a queue of this flow, also those that join it meanwhile. The future must be polled to its
    /// end.
    pub async fn run(&self, begun: Begun) {
        let Begun(queue) = begun;
        self.batch.run_queue(queue).await;
        let station = self.batch.station;
        self.batch.deferred.set(self.batch.deferred.get() + station.clear(queue));
        station.slots[queue.index()].busy.set(false);
        if queue.index() >= SLOT_COUNT {
            station.free.borrow_mut().push(queue.index() as u16);
        }
    }

    /// Returns the lines of free slabs that the allocator's two sides have exchanged so far (section 3.3.2).
    pub fn slab_lines(&self) -> u64 {
        self.batch.table.slab_statistics().lines
    }

    /// Calls `f` with the index of every request that got its reply since the last call, in the order of execution.
    pub fn take_replied(&self, f: impl FnMut(usize)) {
        self.batch.station.replied.borrow_mut().drain(..).map(RequestIndex::index).for_each(f);
    }

    /// Counts and checks a request. Returns `None` if it is invalid, and has its reply.
    fn receive(&self, index: usize) -> Option<RequestIndex> {
        let station = self.batch.station;
        station.admitted.set(station.admitted.get() + 1);
        let request = RequestIndex::at(u32::try_from(index).expect("memory holds fewer requests"));
        if let Err(error) = self.batch.requests[index].validate_unordered() {
            self.batch.replies.borrow_mut().set(index, Reply::Failed(error));
            station.replied.borrow_mut().push(request);
            return None;
        }
        Some(request)
    }
}

/// The station of a flow: a queue for each slot, which requests join while it is executed.
struct FlowStation {
    /// The slots of the station, and after them those of requests that are alone.
    slots: Vec<Slot>,
    /// The latter slots that are free.
    free: RefCell<Vec<u16>>,
    /// For each request, the next of its queue.
    next: Vec<Cell<Option<RequestIndex>>>,
    admitted: Cell<u64>,
    /// Requests that were removed from their queues since [`Flow::take_replied`].
    replied: RefCell<Vec<RequestIndex>>,
}

#[derive(Clone, Default)]
struct Slot {
    head: Cell<Option<RequestIndex>>,
    last: Cell<Option<RequestIndex>>,
    /// True while a future executes it.
    busy: Cell<bool>,
}

impl FlowStation {
    fn new(request_count: usize) -> Self {
        FlowStation {
            slots: vec![Slot::default(); SLOT_COUNT + ALONE_MAX],
            free: RefCell::new((SLOT_COUNT..SLOT_COUNT + ALONE_MAX).map(|slot| slot as u16).collect()),
            next: vec![Cell::new(None); request_count],
            admitted: Cell::new(0),
            replied: RefCell::default(),
        }
    }

    /// Appends a request to a queue. Returns true if no future executes the queue.
    fn join(&self, queue: QueueIndex, request: RequestIndex) -> bool {
        let slot = &self.slots[queue.index()];
        match slot.last.replace(Some(request)) {
            Some(last) => self.next[last.index()].set(Some(request)),
            None => slot.head.set(Some(request)),
        }
        !slot.busy.replace(true)
    }

    /// Removes all requests from a queue. Returns their number.
    fn clear(&self, queue: QueueIndex) -> u64 {
        let mut count = 0;
        while let Some(first) = self.head(queue) {
            self.remove(queue, None, first);
            count += 1;
        }
        count
    }
}

impl Queues for FlowStation {
    fn head(&self, queue: QueueIndex) -> Option<RequestIndex> {
        self.slots[queue.index()].head.get()
    }

    fn after(&self, request: RequestIndex) -> Option<RequestIndex> {
        self.next[request.index()].get()
    }

    fn remove(&self, queue: QueueIndex, before: Option<RequestIndex>, request: RequestIndex) {
        let slot = &self.slots[queue.index()];
        let next = self.after(request);
        match before {
            Some(before) => self.next[before.index()].set(next),
            None => slot.head.set(next),
        }
        if next.is_none() {
            slot.last.set(before);
        }
        self.replied.borrow_mut().push(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_joined_while_it_is_executed() {
        let station = FlowStation::new(6);
        let (queue, at) = (QueueIndex::at(5), RequestIndex::at);
        let left = || std::iter::successors(station.head(queue), |request| station.after(*request));
        assert!(station.join(queue, at(0)));
        assert!(!station.join(queue, at(1)) && !station.join(queue, at(2)));
        // The last request of the queue is removed, and another one joins.
        station.remove(queue, Some(at(1)), at(2));
        assert!(!station.join(queue, at(3)));
        assert!(left().map(RequestIndex::index).eq([0, 1, 3]));
        assert_eq!(station.clear(queue), 3);
        // Empty, but still in flight.
        assert!(!station.join(queue, at(4)));
        assert!(left().map(RequestIndex::index).eq([4]));
        assert!(station.join(QueueIndex::at(6), at(5)));
        assert!(station.replied.take().into_iter().map(RequestIndex::index).eq([2, 0, 1, 3]));
    }
}
