//! The pipeline: the store's own operations, decoded one a cycle, over the memory of the model (KV-Direct, section 3.3.3,
//! Fig. 4).
//!
//! ```text
//! arrivals ─▶ decoder ──▶ reservation station ─▶ main pipeline ─▶ memory: PCIe, NIC DRAM
//!             1 a cycle    1024 slots, 256          │ first of a chain
//!                ▲         in flight ───────────────┼─▶ engine, 1 a cycle ─▶ answers
//!                └──────────── freed ◀──────────────┘    those that get its value
//! ```
//!
//! What an operation does is what [`skep_store`] does; only moments are the model's. All of one key that wait when its value
//! comes are carried out on it then, and leave the engine one a cycle. The write back begins at that moment, while the
//! paper's begins after the scan: both keep one access of a key under way, and the engine is the bound in both.
//!
//! Without the reservation station ([`Hazard::Stalls`]) the decoder stops at an operation that depends on one in flight,
//! as section 5.1.3 has it: one of the two is no read, and their keys are equal. Ours are if their buckets are, because the
//! store needs that; the reads of one key then all go to memory. [`Hazard::Drains`] and [`Hazard::InOrder`] are stricter, to
//! see what would explain Figure 13b.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use skep_core::operation::{Operation, Request};
use skep_store::processor::{Admitted, Flow, Processor, Replies};

use crate::clock::{Clock, both, run};
use crate::dispatcher::{Dispatcher, LINE_BYTES};
use crate::hardware::Hardware;
use crate::memory::NicMemory;
use crate::resource::{Order, Path, Slot, Slots};
use crate::time::Time;
use crate::window::Window;

/// What the pipeline does about an operation that depends on one in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hazard {
    /// It waits in the reservation station, and others pass.
    Waits,
    /// The decoder stops until the other is done.
    Stalls,
    /// The decoder stops at every operation that is no read until nothing is in flight, and at any behind it until it is
    /// done: the most that any rule could cost by which only these stall. One that is no read is done when a read behind
    /// its write is answered, which is how PCIe tells that a write has arrived.
    Drains,
    /// The decoder stops at an operation on a key that is in flight, whatever both are; operations end in the order in
    /// which they began; and one that is no read is done as in [`Hazard::Drains`].
    InOrder,
}

/// When an operation was where, since the start of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// Its client had a credit for it, where clients need one; else the start.
    pub sent: Time,
    /// It had arrived, and the decoder was free for it.
    pub decoded: Time,
    /// Its answer left the pipeline, or the wire behind it, where that is part of the run.
    pub answered: Time,
    /// Whether it got its value from another of its key, without an access of its own.
    pub forwarded: bool,
}

/// Where requests come from.
#[derive(Clone, Copy, Debug)]
pub enum Clients<'a> {
    /// Each arrives at its moment, in order, relative to the start of the run; without any, all are there from the start.
    Open(&'a [Time]),
    /// Clients always have more, and have as many in flight as the congestion window lets them. Of each, what its
    /// request and its answer take of the two wires.
    Closed(&'a [(Time, Time)]),
}

/// Runs all requests. Answers when each was where, relative to the start of the run.
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
        let operation = async |place: usize| pipeline.operation(place).await;
        run(&clock, ring_width(hardware), (0..requests.len()).map(operation));
        pipeline.passages()
    })
}

/// Futures under way for one pipeline: a chain may outlast the operation that began it, and the next ones already wait for
/// the decoder.
pub(crate) fn ring_width(hardware: &Hardware) -> usize {
    2 * hardware.processor.operations_in_flight as usize + 2
}

/// One NIC's pipeline, while its operations are under way.
pub(crate) struct Pipeline<'a, 'f> {
    clock: &'a Clock,
    flow: &'a Flow<'f, NicMemory>,
    requests: &'a [Request<'a>],
    hazard: Hazard,
    cycle: Time,
    /// Operations are decoded in their order.
    turn: Slots,
    decoder: Path,
    engine: Path,
    in_flight: Slots,
    operations: Vec<Under>,
    /// Of each bucket, what is in flight. This and what follows is for a decoder that stalls.
    by_bucket: RefCell<HashMap<u32, InFlight>>,
    /// The same of all buckets.
    of_all: Cell<InFlight>,
    buckets: Vec<u32>,
    stalled: RefCell<Option<Waker>>,
    /// Operations that have to end as they began.
    order: Order,
    dispatcher: Rc<Dispatcher>,
    clients: Clients<'a>,
    start: Time,
    /// This and the wires, of requests and of answers, are for closed clients.
    window: Window,
    wires: [Path; 2],
}

/// What an operation holds until it is answered.
struct Held<'a> {
    slot: Slot<'a>,
    credit: Option<Slot<'a>>,
}

/// How many operations are in flight.
#[derive(Clone, Copy, Default)]
struct InFlight {
    all: u32,
    /// Of them, those that are no reads.
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

    /// How many of them an operation has to wait for that waits for no read if it is one itself.
    fn hazards(self, reads: bool) -> u32 {
        if reads { self.writes } else { self.all }
    }
}

/// What is known of an operation under way.
#[derive(Default)]
struct Under {
    is_answered: Cell<bool>,
    passage: Cell<Passage>,
    waker: RefCell<Option<Waker>>,
}

/// What a pipeline is to do.
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
    /// An empty one, from this moment of the clock on.
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
            operations: feed.requests.iter().map(|_| Under::default()).collect(),
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

    /// When each operation was where, since the start.
    pub(crate) fn passages(&self) -> Vec<Passage> {
        let since_start = |operation: &Under| {
            let mut passage = operation.passage.get();
            passage.sent = passage.sent.saturating_sub(self.start);
            passage.decoded = passage.decoded - self.start;
            passage.answered = passage.answered - self.start;
            passage
        };
        self.operations.iter().map(since_start).collect()
    }

    /// The operation at this place, from its arrival until its answer has left, and its chain if it begins one.
    pub(crate) async fn operation(&self, place: usize) {
        let credit = match self.clients {
            Clients::Open(_) => None,
            Clients::Closed(spans) => {
                let credit = self.window.take().await;
                self.update(place, |passage| passage.sent = self.clock.now());
                self.clock.until(self.wires[0].reserve(self.clock.now(), spans[place].0)).await;
                Some(credit)
            }
        };
        let turn = self.turn.take().await;
        if let Clients::Open(arrivals) = self.clients {
            self.clock.until(self.start + arrivals.get(place).copied().unwrap_or_default()).await;
        }
        let held = Held { slot: self.in_flight.take().await, credit };
        if self.hazard != Hazard::Waits {
            self.stall(place).await;
        }
        let decoding = self.clock.span(|| "decoder".to_owned());
        self.clock.until(self.decoder.reserve(self.clock.now(), self.cycle)).await;
        drop(decoding);
        let _operation = self.clock.span(|| "reservation station and main pipeline".to_owned());
        self.update(place, |passage| passage.decoded = self.clock.now());
        drop(turn);
        if self.hazard != Hazard::Waits {
            return self.operation_alone(place, held).await;
        }
        match self.flow.admit(place) {
            Admitted::Begins(chain) => both(self.watch(chain), self.answer(place, held)).await,
            Admitted::Waits => self.answer(place, held).await,
            Admitted::Refused => {
                self.take_answered();
                self.answer(place, held).await;
            }
        }
    }

    /// What comes after decoding without the reservation station.
    async fn operation_alone(&self, place: usize, held: Held<'_>) {
        let in_order = self.hazard == Hazard::InOrder;
        let number = in_order.then(|| self.order.join());
        match self.flow.admit_alone(place) {
            // What it wrote has to be there before another may read.
            Some(chain) => self.watch(chain).await,
            None => self.take_answered(),
        }
        let reads = reads(&self.requests[place]);
        if self.hazard != Hazard::Stalls && !reads {
            self.dispatcher.read(u64::from(self.buckets[place]) * u64::from(LINE_BYTES), LINE_BYTES).await;
        }
        if let Some(number) = number {
            self.order.leave(number).await;
            self.update(place, |passage| passage.answered = self.clock.now());
        }
        self.answer(place, held).await;
        self.by_bucket.borrow_mut().get_mut(&self.buckets[place]).expect("it is in flight").end(reads);
        self.count(|of_all| of_all.end(reads));
        if let Some(waker) = self.stalled.take() {
            waker.wake();
        }
    }

    /// Runs a chain, and tells those that it answers.
    async fn watch(&self, chain: impl Future<Output = ()>) {
        let mut chain = pin!(chain);
        poll_fn(|context| {
            let polled = chain.as_mut().poll(context);
            self.take_answered();
            polled
        })
        .await;
    }

    fn take_answered(&self) {
        let mut forwarded = false;
        self.flow.take_answered(|place| {
            let now = self.clock.now();
            // The first was carried out by the main pipeline, those behind it one a cycle by the engine.
            let answered = if forwarded { self.engine.reserve(now, self.cycle) } else { now };
            self.update(place, |passage| (passage.answered, passage.forwarded) = (answered, forwarded));
            forwarded = true;
            self.operations[place].is_answered.set(true);
            if let Some(waker) = self.operations[place].waker.take() {
                waker.wake();
            }
        });
    }

    /// Waits until the operation is answered and out of the engine, and its answer out of the wire, and frees its place.
    async fn answer(&self, place: usize, held: Held<'_>) {
        let operation = &self.operations[place];
        poll_fn(|context| {
            if operation.is_answered.get() {
                return Poll::Ready(());
            }
            operation.waker.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
        self.clock.until(operation.passage.get().answered).await;
        if let (Clients::Closed(spans), Some(credit)) = (self.clients, held.credit) {
            self.clock.until(self.wires[1].reserve(self.clock.now(), spans[place].1)).await;
            self.update(place, |passage| passage.answered = self.clock.now());
            self.window.give_back(credit, self.clock.now() - operation.passage.get().sent);
        }
        drop(held.slot);
    }

    /// Waits until nothing in flight depends on the request, nor it on anything.
    async fn stall(&self, place: usize) {
        let reads = reads(&self.requests[place]);
        poll_fn(|context| {
            let mut by_bucket = self.by_bucket.borrow_mut();
            let counts = by_bucket.entry(self.buckets[place]).or_default();
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

    fn update(&self, place: usize, change: impl FnOnce(&mut Passage)) {
        let mut passage = self.operations[place].passage.get();
        change(&mut passage);
        self.operations[place].passage.set(passage);
    }
}

fn reads(request: &Request<'_>) -> bool {
    matches!(request.operation, Operation::Get | Operation::Contains | Operation::Reduce(_) | Operation::Filter(_))
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{PutCondition, Reply};
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

    /// Random operations of all kinds, on few keys and few buckets: the same answers as on local memory, in any case, also
    /// where the host's cores gather and scatter.
    #[test]
    fn the_same_operations_have_the_same_answers_as_on_local_memory() {
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
            for (place, request) in requests.iter().enumerate() {
                assert_eq!(replies.get(place), expected.get(place), "seed {seed}, {place}: {request:?}");
            }
            let (ours, theirs) = (nic.statistics(), local.statistics());
            assert_eq!((ours.pairs, ours.pair_bytes, ours.hits), (theirs.pairs, theirs.pair_bytes, theirs.hits));
            assert!(passages.iter().all(|passage| passage.answered >= passage.decoded));
            assert_eq!(passages.iter().any(|passage| passage.forwarded), hazard == Hazard::Waits);
        }
    }

    /// The pipeline has no values of more than one slab.
    fn fits(request: &Request<'_>) -> bool {
        let size = match &request.operation {
            Operation::Put { value, .. } => value.len(),
            Operation::Update(update) => update.initial.map_or(0, <[u8]>::len),
            _ => 0,
        };
        request.key.len() + size <= 500
    }

    /// One key: with the station at the clock's rate, and never two accesses of it at a time; without, one after the other.
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
            let last = passages[1999].answered;
            assert!(span.contains(&last.as_us()), "{hazard:?}: {last}");
            assert!(passages.windows(2).all(|two| two[1].decoded >= two[0].decoded + cycle), "one is decoded a cycle");
            let mut ends: Vec<Time> = passages.iter().filter(|one| one.forwarded).map(|one| one.answered).collect();
            ends.sort_unstable();
            assert!(ends.windows(2).all(|two| two[1] >= two[0] + cycle), "the engine answers one a cycle");
        }
    }
}
