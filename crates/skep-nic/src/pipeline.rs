//! The pipeline executes the store's own operations on the memory of the model, and decodes one per cycle (KV-Direct,
//! section 3.3.3, Fig. 4).
//!
//! ```text
//! arrivals ─▶ latency ─▶ decoder ──▶ reservation station ─▶ main pipeline ─▶ memory: PCIe, NIC DRAM
//!                        1 a cycle    1024 slots, 256          │ first of a queue
//!                           ▲         in flight ───────────────┼─▶ engine, 1 a cycle ─▶ replies
//!                           └──────────── freed ◀──────────────┘    those that get its value
//! ```
//!
//! [`skep_store`] defines the effects of an operation. The model only decides the times. The store reports when it has
//! executed an operation, and this module decides what follows from that:
//!
//! 1. When the value of a key arrives, the main pipeline executes the first operation of the queue, and the engine
//!    executes all waiting operations on this key. They leave the engine at one per cycle, with their replies. The
//!    write-back begins at that time. The paper's write-back begins after the scan. Both keep one access of a key in
//!    flight, and in both the engine is the bound.
//! 2. The first operation is answered with its value if it is a read. Otherwise it is answered when its write is
//!    confirmed. It holds its slot, and the queue holds its key, until that time.
//! 3. While the write is in flight, the station holds the latest value. Operations on this key that arrive meanwhile are
//!    executed by the engine at once. The store executes them later, in the same order, with the same effects.
//!
//! Without the reservation station ([`Hazard::Stalls`]) the decoder stops at an operation that depends on one in
//! flight, as in section 5.1.3. There, two operations depend on each other if their keys are equal and one of them is
//! not a read. Here they do if their buckets are equal, because the store requires that. The reads of one key then all
//! access memory. [`Hazard::Drains`] and [`Hazard::InOrder`] are stricter. They test which rule would explain Figure
//! 13b.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use skep_core::operation::Request;
use skep_store::processor::{Admitted, Begun, Flow, Processor, Replies};

use crate::clock::{Clock, both, run};
use crate::dispatcher::Dispatcher;
use crate::hardware::Hardware;
use crate::memory::{NicMemory, QueueAccesses};
use crate::resource::{Order, Path, Slot, Slots};
use crate::time::Time;
use crate::trace::Track;
use crate::window::Window;

/// The behaviour of the pipeline for an operation that depends on one in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hazard {
    /// The operation waits in the reservation station, and other operations pass it.
    Waits,
    /// The decoder stops until the other operation is done. An operation that is not a read is done when its write has
    /// left, because PCIe keeps a later read behind it. Figure 13a has the rate of one such operation per read.
    Stalls,
    /// The decoder stops before every operation that is not a read, until nothing is in flight. It stops again after
    /// this operation, until the operation is done. No rule that stalls only for such operations could cost more. An
    /// operation that is not a read is done when its write is confirmed.
    Drains,
    /// The decoder stops at every operation on a key that is in flight. Operations end in the order in which they
    /// began. An operation that is not a read is done as in [`Hazard::Drains`].
    InOrder,
}

/// The times of an operation, since the start of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// The time at which its client had a credit for it. If clients need no credit, the start.
    pub sent: Time,
    /// The time at which it had arrived and the decoder was free for it.
    pub decoded: Time,
    /// The time at which its reply left the pipeline, or the wire, if the wire is part of the run.
    pub replied: Time,
    /// True if it got its value from another operation on its key, without an access of its own.
    pub forwarded: bool,
}

/// The source of the requests.
#[derive(Clone, Copy, Debug)]
pub enum Clients<'a> {
    /// Each request arrives at its time, in order, relative to the start of the run. Without times, all arrive at the
    /// start.
    Open(&'a [Time]),
    /// Clients always have another request. The congestion window limits their operations in flight. For each request:
    /// the times that the request and its reply occupy the two wires.
    Closed(&'a [(Time, Time)]),
}

/// Runs all requests. Returns the times of each operation, relative to the start of the run.
///
/// # Panics
/// If a request finds or stores a value of more than one slab.
pub fn run_pipeline(
    processor: &mut Processor<NicMemory>,
    hardware: &Hardware,
    hazard: Hazard,
    requests: &[Request<'_>],
    clients: Clients<'_>,
    replies: &mut Replies,
) -> Vec<Passage> {
    let clock = Rc::clone(processor.memory().clock());
    let feed = Feed::new(processor, hazard, requests, clients);
    let plan = processor.plan(requests);
    let pipeline = Pipeline::new(&clock, processor.flow(&plan, replies), hardware, feed);
    run(&clock, ring_width(hardware), (0..requests.len()).map(|index| pipeline.operation(index)));
    pipeline.end()
}

/// Returns the number of futures in flight for one pipeline. The window is larger than the number of operations in
/// flight for two reasons. A dependency queue may outlast the operation that began it, and the next operations already
/// wait for the decoder.
pub(crate) fn ring_width(hardware: &Hardware) -> usize {
    2 * hardware.processor.operations_in_flight as usize + 2
}

/// The pipeline of one NIC during a run.
pub(crate) struct Pipeline<'a> {
    clock: &'a Clock,
    flow: Flow<'a, NicMemory>,
    requests: &'a [Request<'a>],
    hazard: Hazard,
    cycle: Time,
    /// Serializes the decoding of operations in their order.
    turn: Slots,
    latency: Time,
    decoder: Path,
    engine: Path,
    in_flight: Slots,
    operations: Vec<OperationState>,
    stalls: Stalls,
    /// Operations that have to end in the order in which they began.
    order: Order,
    /// The keys whose latest values the station holds, because their writes are in flight.
    held_keys: RefCell<HashSet<&'a [u8]>>,
    memory: MemorySide,
    clients: Clients<'a>,
    start: Time,
    /// The congestion window. It and the wires of requests and replies are for closed clients.
    window: Window,
    wires: [Path; 2],
}

/// What the pipeline tells its memory, and learns from it.
struct MemorySide {
    /// The accesses of the queue that is polled.
    accesses: Rc<Cell<QueueAccesses>>,
    writes_read_buckets: bool,
    dispatcher: Rc<Dispatcher>,
    /// Lines of free slabs that were exchanged so far.
    slab_lines: Cell<u64>,
}

/// The operations on which a decoder may stall.
struct Stalls {
    /// The operations in flight of each bucket.
    by_bucket: RefCell<HashMap<u32, InFlight>>,
    /// The operations in flight of all buckets.
    of_all: Cell<InFlight>,
    /// Home buckets of the requests.
    buckets: Vec<u32>,
    stalled: RefCell<Option<Waker>>,
}

impl Stalls {
    /// Waits until no operation in flight conflicts with the request.
    async fn pass(&self, index: usize, hazard: Hazard, reads: bool) {
        poll_fn(|context| {
            let mut by_bucket = self.by_bucket.borrow_mut();
            let counts = by_bucket.entry(self.buckets[index]).or_default();
            let hazards = match hazard {
                Hazard::Waits => 0,
                Hazard::Stalls => counts.hazards(reads),
                Hazard::Drains => self.of_all.get().hazards(reads),
                Hazard::InOrder => counts.all,
            };
            if hazards > 0 {
                self.stalled.replace(Some(context.waker().clone()));
                return Poll::Pending;
            }
            counts.begin(reads);
            self.count(|of_all| of_all.begin(reads));
            Poll::Ready(())
        })
        .await;
    }

    /// Ends an operation, and wakes the decoder if it has stalled.
    fn end(&self, index: usize, reads: bool) {
        self.by_bucket.borrow_mut().get_mut(&self.buckets[index]).expect("it is in flight").end(reads);
        self.count(|of_all| of_all.end(reads));
        if let Some(waker) = self.stalled.take() {
            waker.wake();
        }
    }

    fn count(&self, change: impl FnOnce(&mut InFlight)) {
        let mut of_all = self.of_all.get();
        change(&mut of_all);
        self.of_all.set(of_all);
    }
}

/// The resources that an operation holds until its reply is sent.
struct Permits<'a> {
    slot: Slot<'a>,
    credit: Option<Slot<'a>>,
}

/// Number of operations in flight.
#[derive(Clone, Copy, Default)]
struct InFlight {
    all: u32,
    /// Number of those that are not reads.
    writes: u32,
}

impl InFlight {
    fn begin(&mut self, reads: bool) {
        self.all += 1;
        self.writes += u32::from(!reads);
    }

    fn end(&mut self, reads: bool) {
        self.all -= 1;
        self.writes -= u32::from(!reads);
    }

    /// Returns the number of operations in flight that an operation depends on.
    fn hazards(self, reads: bool) -> u32 {
        if reads { self.writes } else { self.all }
    }
}

/// The state of an operation in flight.
#[derive(Default)]
struct OperationState {
    /// True if the time of its reply is known.
    is_answered: Cell<bool>,
    /// True if its slot is free when it has replied.
    is_released: Cell<bool>,
    passage: Cell<Passage>,
    waker: RefCell<Option<Waker>>,
}

impl OperationState {
    /// Waits until this flag of the operation is set.
    async fn until(&self, flag: &Cell<bool>) {
        poll_fn(|context| {
            if flag.get() {
                return Poll::Ready(());
            }
            self.waker.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The input of a pipeline.
pub(crate) struct Feed<'a> {
    hazard: Hazard,
    requests: &'a [Request<'a>],
    clients: Clients<'a>,
    /// Home buckets of the requests, for a decoder that stalls.
    buckets: Vec<u32>,
    accesses: Rc<Cell<QueueAccesses>>,
    dispatcher: Rc<Dispatcher>,
}

impl<'a> Feed<'a> {
    pub(crate) fn new(
        processor: &Processor<NicMemory>,
        hazard: Hazard,
        requests: &'a [Request<'a>],
        clients: Clients<'a>,
    ) -> Self {
        let buckets = match hazard {
            Hazard::Waits => Vec::new(),
            _ => requests.iter().map(|request| processor.home_bucket(request.key)).collect(),
        };
        let memory = processor.memory();
        memory.set_waits_for_confirmation(hazard != Hazard::Stalls);
        Feed { hazard, requests, clients, buckets, accesses: memory.accesses(), dispatcher: memory.dispatcher() }
    }
}

impl<'a> Pipeline<'a> {
    /// Returns an empty pipeline that starts at the current time of the clock.
    pub(crate) fn new(clock: &'a Clock, flow: Flow<'a, NicMemory>, hardware: &Hardware, feed: Feed<'a>) -> Self {
        let spec = &hardware.processor;
        let slab_lines = Cell::new(flow.slab_lines());
        Pipeline {
            clock,
            flow,
            requests: feed.requests,
            hazard: feed.hazard,
            cycle: Time::cycle(hardware.card.clock_mhz),
            turn: Slots::new(1),
            latency: Time::from_ns(spec.latency_ns),
            decoder: Path::default(),
            engine: Path::default(),
            in_flight: Slots::new(spec.operations_in_flight),
            operations: feed.requests.iter().map(|_| OperationState::default()).collect(),
            stalls: Stalls {
                by_bucket: RefCell::default(),
                of_all: Cell::default(),
                buckets: feed.buckets,
                stalled: RefCell::default(),
            },
            order: Order::default(),
            held_keys: RefCell::default(),
            memory: MemorySide {
                accesses: feed.accesses,
                writes_read_buckets: spec.writes_read_buckets,
                dispatcher: feed.dispatcher,
                slab_lines,
            },
            clients: feed.clients,
            start: clock.now(),
            window: Window::new(ring_width(hardware) as u32, Time::from_ns(spec.delay_target_us * 1e3)),
            wires: [Path::default(), Path::default()],
        }
    }

    /// Ends the run. Returns the times of each operation, since the start.
    pub(crate) fn end(self) -> Vec<Passage> {
        self.flow.end();
        let since_start = |operation: &OperationState| {
            let mut passage = operation.passage.get();
            passage.sent = passage.sent.saturating_sub(self.start);
            passage.decoded = passage.decoded - self.start;
            passage.replied = passage.replied - self.start;
            passage
        };
        self.operations.iter().map(since_start).collect()
    }

    /// Runs the operation at this index from its arrival until its reply has left. Runs its dependency queue if it
    /// begins one.
    pub(crate) async fn operation(&self, index: usize) {
        let credit = match self.clients {
            Clients::Open(_) => None,
            Clients::Closed(spans) => {
                let credit = self.window.take().await;
                self.update(index, |passage| passage.sent = self.clock.now());
                self.clock.until(self.wires[0].reserve(self.clock.now(), spans[index].0)).await;
                self.pass_latency(self.clock.now()).await;
                Some(credit)
            }
        };
        let turn = self.turn.take().await;
        if let Clients::Open(arrivals) = self.clients {
            self.pass_latency(self.start + arrivals.get(index).copied().unwrap_or_default()).await;
        }
        let permits = Permits { slot: self.in_flight.take().await, credit };
        if self.hazard != Hazard::Waits {
            self.stalls.pass(index, self.hazard, reads(&self.requests[index])).await;
        }
        let decoding = self.clock.span(|| "decoder".to_owned());
        self.clock.until(self.decoder.reserve(self.clock.now(), self.cycle)).await;
        drop(decoding);
        let _operation = self.clock.span(|| "reservation station and main pipeline".to_owned());
        self.update(index, |passage| passage.decoded = self.clock.now());
        drop(turn);
        if self.hazard != Hazard::Waits {
            return self.operation_alone(index, permits).await;
        }
        match self.flow.admit(index) {
            Admitted::Begins(queue) => {
                let (queue, finish) = (pin!(self.run_queue(index, queue)), pin!(self.finish(index, permits)));
                both(queue, finish).await;
            }
            Admitted::Waits => {
                if self.held_keys.borrow().contains(self.requests[index].key) {
                    self.execute_in_engine(index);
                }
                self.finish(index, permits).await;
            }
            Admitted::Refused => {
                self.refuse();
                self.finish(index, permits).await;
            }
        }
    }

    /// Waits until a packet that arrives at this time has reached the decoder.
    async fn pass_latency(&self, arrival: Time) {
        self.clock.until(arrival).await;
        let reached = arrival + self.latency;
        self.clock.recorder().add(Track::Nic, "from the packet to the reservation station", arrival, reached);
        self.clock.until(reached).await;
    }

    /// Runs an operation after decoding, without the reservation station.
    async fn operation_alone(&self, index: usize, permits: Permits<'_>) {
        let in_order = self.hazard == Hazard::InOrder;
        let number = in_order.then(|| self.order.join());
        match self.flow.admit_alone(index) {
            Some(queue) => self.run_queue(index, queue).await,
            None => self.refuse(),
        }
        let reads = reads(&self.requests[index]);
        if let Some(number) = number {
            self.order.leave(number).await;
            self.update(index, |passage| passage.replied = self.clock.now());
        }
        self.finish(index, permits).await;
        self.stalls.end(index, reads);
    }

    /// Runs the dependency queue that an operation has begun. Answers and releases its operations.
    async fn run_queue(&self, index: usize, queue: Begun) {
        let mut queue = pin!(self.flow.run(queue));
        let mut accesses = QueueAccesses::new(self.memory.writes_read_buckets && !reads(&self.requests[index]));
        // The operation in the main pipeline, after it was executed and until its write is confirmed.
        let mut first = None;
        poll_fn(|context| {
            self.memory.accesses.set(accesses);
            let polled = queue.as_mut().poll(context);
            accesses = self.memory.accesses.get();
            self.exchange_slabs();
            first = self.take_executed().or(first);
            let Some(index) = first else { return polled };
            if accesses.writes_in_flight > 0 {
                self.held_keys.borrow_mut().insert(self.requests[index].key);
                return polled;
            }
            self.held_keys.borrow_mut().remove(self.requests[index].key);
            self.answer(index, self.clock.now(), false);
            self.release(index);
            first = None;
            polled
        })
        .await;
    }

    /// Exchanges the lines of free slabs that the store has exchanged since the last call.
    fn exchange_slabs(&self) {
        let lines = self.flow.slab_lines();
        let exchanged = lines - self.memory.slab_lines.replace(lines);
        if exchanged > 0 {
            self.memory.dispatcher.exchange_slabs(exchanged);
        }
    }

    /// Notes which operations the store has executed on a value. Returns the first of them.
    fn take_executed(&self) -> Option<usize> {
        let mut first = None;
        self.flow.take_replied(|index| {
            if first.is_some() {
                return self.execute_in_engine(index);
            }
            first = Some(index);
            if reads(&self.requests[index]) {
                self.answer(index, self.clock.now(), false);
            }
        });
        first
    }

    /// Answers an operation that was refused.
    fn refuse(&self) {
        self.flow.take_replied(|index| {
            self.answer(index, self.clock.now(), false);
            self.release(index);
        });
    }

    /// Executes an operation on a value in the station, unless that was already done.
    fn execute_in_engine(&self, index: usize) {
        if !self.operations[index].is_answered.get() {
            self.answer(index, self.engine.reserve(self.clock.now(), self.cycle), true);
            self.release(index);
        }
    }

    /// Sets the time of an operation's reply, unless it has one.
    fn answer(&self, index: usize, replied: Time, forwarded: bool) {
        if !self.operations[index].is_answered.replace(true) {
            self.update(index, |passage| (passage.replied, passage.forwarded) = (replied, forwarded));
            self.operations[index].wake();
        }
    }

    /// Lets an operation free its slot.
    fn release(&self, index: usize) {
        self.operations[index].is_released.set(true);
        self.operations[index].wake();
    }

    /// Waits until the operation is answered and its reply has left the wire, and frees its slot when it is released.
    async fn finish(&self, index: usize, permits: Permits<'_>) {
        let operation = &self.operations[index];
        operation.until(&operation.is_answered).await;
        self.clock.until(operation.passage.get().replied).await;
        if let (Clients::Closed(spans), Some(credit)) = (self.clients, permits.credit) {
            self.clock.until(self.wires[1].reserve(self.clock.now(), spans[index].1)).await;
            self.update(index, |passage| passage.replied = self.clock.now());
            self.window.give_back(credit, self.clock.now() - operation.passage.get().sent);
        }
        operation.until(&operation.is_released).await;
        drop(permits.slot);
    }

    fn update(&self, index: usize, change: impl FnOnce(&mut Passage)) {
        let mut passage = self.operations[index].passage.get();
        change(&mut passage);
        self.operations[index].passage.set(passage);
    }
}

fn reads(request: &Request<'_>) -> bool {
    request.operation.is_read()
}

#[cfg(test)]
mod tests;
