//! The pipeline executes the store's own operations on the memory of the model, and decodes one per cycle (KV-Direct,
//! section 3.3.3, Fig. 4).
//!
//! ```text
//! arrivals ─▶ decoder ──▶ reservation station ─▶ main pipeline ─▶ memory: PCIe, NIC DRAM
//!             1 a cycle    1024 slots, 256          │ first of a queue
//!                ▲         in flight ───────────────┼─▶ engine, 1 a cycle ─▶ replies
//!                └──────────── freed ◀──────────────┘    those that get its value
//! ```
//!
//! [`skep_store`] defines the effects of an operation. The model only decides the times. When the value of a key
//! arrives, all waiting operations on this key are executed on it. They leave the engine at one per cycle. The
//! write-back begins at that time. The paper's write-back begins after the scan. Both keep one access of a key in
//! flight, and in both the engine is the bound.
//!
//! Without the reservation station ([`Hazard::Stalls`]) the decoder stops at an operation that depends on one in
//! flight, as in section 5.1.3. There, two operations depend on each other if their keys are equal and one of them is
//! not a read. Here they do if their buckets are equal, because the store requires that. The reads of one key then all
//! access memory. [`Hazard::Drains`] and [`Hazard::InOrder`] are stricter. They test which rule would explain Figure
//! 13b.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use skep_core::operation::Request;
use skep_store::processor::{Admitted, Flow, Processor, Replies};

use crate::clock::{Clock, both, run};
use crate::dispatcher::{Dispatcher, LINE_BYTES};
use crate::hardware::Hardware;
use crate::memory::NicMemory;
use crate::resource::{Order, Path, Slot, Slots};
use crate::time::Time;
use crate::window::Window;

/// The behaviour of the pipeline for an operation that depends on one in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hazard {
    /// The operation waits in the reservation station, and other operations pass it.
    Waits,
    /// The decoder stops until the other operation is done.
    Stalls,
    /// The decoder stops before every operation that is not a read, until nothing is in flight. It stops again after
    /// this operation, until the operation is done. No rule that stalls only for such operations could cost more. An
    /// operation that is not a read is done when a read after its write returns, because in PCIe this shows that the
    /// write has arrived.
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
    processor.flow(requests, replies, |flow| {
        let pipeline = Pipeline::new(&clock, flow, hardware, feed);
        let operation = async |index: usize| pipeline.operation(index).await;
        run(&clock, ring_width(hardware), (0..requests.len()).map(operation));
        pipeline.passages()
    })
}

/// Returns the number of futures in flight for one pipeline. The window is larger than the number of operations in
/// flight for two reasons. A dependency queue may outlast the operation that began it, and the next operations already
/// wait for the decoder.
pub(crate) fn ring_width(hardware: &Hardware) -> usize {
    2 * hardware.processor.operations_in_flight as usize + 2
}

/// The pipeline of one NIC during a run.
pub(crate) struct Pipeline<'a, 'f> {
    clock: &'a Clock,
    flow: &'a Flow<'f, NicMemory>,
    requests: &'a [Request<'a>],
    hazard: Hazard,
    cycle: Time,
    /// Serializes the decoding of operations in their order.
    turn: Slots,
    decoder: Path,
    engine: Path,
    in_flight: Slots,
    operations: Vec<OperationState>,
    /// The operations in flight of each bucket. This field and those up to `order` are for a decoder that stalls.
    by_bucket: RefCell<HashMap<u32, InFlight>>,
    /// The operations in flight of all buckets.
    of_all: Cell<InFlight>,
    buckets: Vec<u32>,
    stalled: RefCell<Option<Waker>>,
    /// Operations that have to end in the order in which they began.
    order: Order,
    dispatcher: Rc<Dispatcher>,
    clients: Clients<'a>,
    start: Time,
    /// The congestion window. It and the wires of requests and replies are for closed clients.
    window: Window,
    wires: [Path; 2],
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
    is_done: Cell<bool>,
    passage: Cell<Passage>,
    waker: RefCell<Option<Waker>>,
}

/// The input of a pipeline.
pub(crate) struct Feed<'a> {
    hazard: Hazard,
    requests: &'a [Request<'a>],
    clients: Clients<'a>,
    /// Home buckets of the requests, for a decoder that stalls.
    buckets: Vec<u32>,
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
        Feed { hazard, requests, clients, buckets, dispatcher: processor.memory().dispatcher() }
    }
}

impl<'a, 'f> Pipeline<'a, 'f> {
    /// Returns an empty pipeline that starts at the current time of the clock.
    pub(crate) fn new(clock: &'a Clock, flow: &'a Flow<'f, NicMemory>, hardware: &Hardware, feed: Feed<'a>) -> Self {
        let spec = &hardware.processor;
        Pipeline {
            clock,
            flow,
            requests: feed.requests,
            hazard: feed.hazard,
            cycle: Time::cycle(spec.clock_mhz),
            turn: Slots::new(1),
            decoder: Path::default(),
            engine: Path::default(),
            in_flight: Slots::new(spec.operations_in_flight),
            operations: feed.requests.iter().map(|_| OperationState::default()).collect(),
            by_bucket: RefCell::default(),
            of_all: Cell::default(),
            buckets: feed.buckets,
            stalled: RefCell::default(),
            order: Order::default(),
            dispatcher: feed.dispatcher,
            clients: feed.clients,
            start: clock.now(),
            window: Window::new(spec.operations_in_flight, Time::from_ns(spec.delay_target_us * 1e3)),
            wires: [Path::default(), Path::default()],
        }
    }

    /// Returns the times of each operation, since the start.
    pub(crate) fn passages(&self) -> Vec<Passage> {
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
                Some(credit)
            }
        };
        let turn = self.turn.take().await;
        if let Clients::Open(arrivals) = self.clients {
            self.clock.until(self.start + arrivals.get(index).copied().unwrap_or_default()).await;
        }
        let permits = Permits { slot: self.in_flight.take().await, credit };
        if self.hazard != Hazard::Waits {
            self.stall(index).await;
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
            Admitted::Begins(queue) => both(self.run_queue(queue), self.finish(index, permits)).await,
            Admitted::Waits => self.finish(index, permits).await,
            Admitted::Refused => {
                self.record_replies();
                self.finish(index, permits).await;
            }
        }
    }

    /// Runs an operation after decoding, without the reservation station.
    async fn operation_alone(&self, index: usize, permits: Permits<'_>) {
        let in_order = self.hazard == Hazard::InOrder;
        let number = in_order.then(|| self.order.join());
        match self.flow.admit_alone(index) {
            // Its write must have arrived before another operation may read.
            Some(queue) => self.run_queue(queue).await,
            None => self.record_replies(),
        }
        let reads = reads(&self.requests[index]);
        if self.hazard != Hazard::Stalls && !reads {
            self.dispatcher.read(u64::from(self.buckets[index]) * u64::from(LINE_BYTES), LINE_BYTES).await;
        }
        if let Some(number) = number {
            self.order.leave(number).await;
            self.update(index, |passage| passage.replied = self.clock.now());
        }
        self.finish(index, permits).await;
        self.by_bucket.borrow_mut().get_mut(&self.buckets[index]).expect("it is in flight").end(reads);
        self.count(|of_all| of_all.end(reads));
        if let Some(waker) = self.stalled.take() {
            waker.wake();
        }
    }

    /// Runs a dependency queue, and wakes the operations that it completes.
    async fn run_queue(&self, queue: impl Future<Output = ()>) {
        let mut queue = pin!(queue);
        poll_fn(|context| {
            let polled = queue.as_mut().poll(context);
            self.record_replies();
            polled
        })
        .await;
    }

    fn record_replies(&self) {
        let mut forwarded = false;
        self.flow.take_replied(|index| {
            let now = self.clock.now();
            // The main pipeline executed the first operation. The engine executes the others, one per cycle.
            let replied = if forwarded { self.engine.reserve(now, self.cycle) } else { now };
            self.update(index, |passage| (passage.replied, passage.forwarded) = (replied, forwarded));
            forwarded = true;
            self.operations[index].is_done.set(true);
            if let Some(waker) = self.operations[index].waker.take() {
                waker.wake();
            }
        });
    }

    /// Waits until the operation has left the engine and its reply the wire, and frees its slot.
    async fn finish(&self, index: usize, permits: Permits<'_>) {
        let operation = &self.operations[index];
        poll_fn(|context| {
            if operation.is_done.get() {
                return Poll::Ready(());
            }
            operation.waker.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
        self.clock.until(operation.passage.get().replied).await;
        if let (Clients::Closed(spans), Some(credit)) = (self.clients, permits.credit) {
            self.clock.until(self.wires[1].reserve(self.clock.now(), spans[index].1)).await;
            self.update(index, |passage| passage.replied = self.clock.now());
            self.window.give_back(credit, self.clock.now() - operation.passage.get().sent);
        }
        drop(permits.slot);
    }

    /// Waits until no operation in flight conflicts with the request.
    async fn stall(&self, index: usize) {
        let reads = reads(&self.requests[index]);
        poll_fn(|context| {
            let mut by_bucket = self.by_bucket.borrow_mut();
            let counts = by_bucket.entry(self.buckets[index]).or_default();
            let hazards = match self.hazard {
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

    fn count(&self, change: impl FnOnce(&mut InFlight)) {
        let mut of_all = self.of_all.get();
        change(&mut of_all);
        self.of_all.set(of_all);
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
mod tests {
    use skep_core::operation::{Operation, PutCondition, Reply, StringWrite};
    use skep_store::hash::Settings;
    use skep_store::memory::LocalMemory;
    use skep_store::naive::{Generator, GeneratorSettings, OwnedRequest, SizeWeights};

    use super::*;
    use crate::dispatcher::{Extent, Policy};

    const MEMORY: u64 = 1 << 20;
    const STALLS: [Hazard; 3] = [Hazard::Stalls, Hazard::Drains, Hazard::InOrder];

    fn nic(settings: &Settings, policy: Policy, seed: u64) -> Processor<NicMemory> {
        nic_on(&Hardware::kv_direct(), settings, policy, seed)
    }

    fn nic_on(hardware: &Hardware, settings: &Settings, policy: Policy, seed: u64) -> Processor<NicMemory> {
        let clock = Rc::new(Clock::default());
        let extent = Extent::scaled(hardware, MEMORY / 64);
        let dispatcher = Rc::new(Dispatcher::new(&clock, hardware, extent, policy, seed));
        let bytes = LocalMemory::new(MEMORY).unwrap();
        let memory = NicMemory::new(bytes, clock, dispatcher, Time::cycle(hardware.processor.clock_mhz));
        Processor::with_memory(memory, settings).unwrap()
    }

    /// Runs random operations of all kinds on few keys and few buckets. The replies equal those on local memory for
    /// every hazard, and also if the host's cores gather and scatter.
    #[test]
    fn the_same_operations_have_the_same_replies_as_on_local_memory() {
        let settings = Settings { memory: MEMORY, hash_index_ratio: 0.02, inline_threshold: 24, seed: 3 };
        for (seed, hazard) in
            (0..12).map(|seed| (seed, if seed % 4 == 3 { STALLS[seed as usize / 4 % 3] } else { Hazard::Waits }))
        {
            let sizes = SizeWeights { empty: 1, inline: 6, slab: 3, large: 0 };
            let generator =
                GeneratorSettings { seed, key_count: 150, key_size: 4..=20, sizes, ..GeneratorSettings::default() };
            let owned: Vec<OwnedRequest> = Generator::new(generator).take(6000).collect();
            let requests: Vec<Request<'_>> = owned.iter().map(OwnedRequest::as_request).filter(fits).collect();
            let mut local = Processor::new(&settings).unwrap();
            let [mut expected, mut replies] = [(); 2].map(|()| Replies::with_budget(usize::MAX));
            local.execute(&requests, &mut expected);
            let mut hardware = Hardware::kv_direct();
            hardware.host_cpu.cores_per_link = seed as u32 % 3;
            let mut nic = nic_on(&hardware, &settings, Policy::Dispatch(0.5), seed);
            let passages = run_pipeline(&mut nic, &hardware, hazard, &requests, Clients::Open(&[]), &mut replies);
            for (index, request) in requests.iter().enumerate() {
                assert_eq!(replies.get(index), expected.get(index), "seed {seed}, {index}: {request:?}");
            }
            let (ours, theirs) = (nic.statistics(), local.statistics());
            assert_eq!((ours.pairs, ours.pair_bytes, ours.hits), (theirs.pairs, theirs.pair_bytes, theirs.hits));
            assert!(passages.iter().all(|passage| passage.replied >= passage.decoded));
            assert_eq!(passages.iter().any(|passage| passage.forwarded), hazard == Hazard::Waits);
        }
    }

    /// Returns true if the value fits one slab, because the pipeline has no larger values.
    fn fits(request: &Request<'_>) -> bool {
        let size = match &request.operation {
            Operation::Put { value, .. } => value.len(),
            Operation::Update(update) => update.initial.map_or(0, <[u8]>::len),
            // An expiry takes eight bytes more. Of the other writes, some let values grow.
            Operation::StringWrite(StringWrite::Set { value, .. }) => value.len(),
            Operation::StringWrite(StringWrite::Remove { .. } | StringWrite::Expire { .. }) => 0,
            Operation::StringWrite(_) => return false,
            _ => 0,
        };
        request.key.len() + size <= 500
    }

    /// Runs operations on one key. With the station, they run at the clock's rate and with one access at a time.
    /// Without it, one runs after the other.
    #[test]
    fn operations_on_one_key_are_decoded_one_a_cycle_and_stall_without_the_station() {
        let settings = Settings { memory: MEMORY, hash_index_ratio: 0.5, inline_threshold: 24, seed: 3 };
        let values: Vec<[u8; 4]> = (0..2000_u32).map(u32::to_le_bytes).collect();
        let put = |value| Request { key: b"key", operation: Operation::Put { value, condition: PutCondition::Always } };
        let requests: Vec<_> = values.iter().map(|value| put(value)).collect();
        let hardware = Hardware::kv_direct();
        let cycle = Time::cycle(hardware.processor.clock_mhz);
        for (hazard, span) in [(Hazard::Waits, 11.0..14.0), (Hazard::Stalls, 1600.0..2600.0)] {
            let mut nic = nic(&settings, Policy::Dispatch(0.0), 5);
            let mut replies = Replies::with_budget(usize::MAX);
            let passages = run_pipeline(&mut nic, &hardware, hazard, &requests, Clients::Open(&[]), &mut replies);
            assert!(replies.iter().all(|reply| reply == Reply::Done));
            let last = passages[1999].replied;
            assert!(span.contains(&last.as_us()), "{hazard:?}: {last}");
            assert!(passages.windows(2).all(|two| two[1].decoded >= two[0].decoded + cycle), "one is decoded a cycle");
            let mut ends: Vec<Time> = passages.iter().filter(|one| one.forwarded).map(|one| one.replied).collect();
            ends.sort_unstable();
            assert!(ends.windows(2).all(|two| two[1] >= two[0] + cycle), "the engine executes one a cycle");
        }
    }
}
