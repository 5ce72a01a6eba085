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
//! store needs that; the reads of one key then all go to memory.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};

use skep_store::operation::{Operation, Request};
use skep_store::processor::{Admitted, Flow, Processor, Replies};

use crate::clock::{Clock, both, run};
use crate::hardware::Hardware;
use crate::memory::NicMemory;
use crate::resource::{Path, Slot, Slots};
use crate::time::Time;

/// What the pipeline does about an operation that depends on one in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hazard {
    /// It waits in the reservation station, and others pass.
    Waits,
    /// The decoder stops until the other is done.
    Stalls,
}

/// When an operation was where, since the start of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// It had arrived, and the decoder was free for it.
    pub decoded: Time,
    /// Its answer left the pipeline.
    pub answered: Time,
    /// Whether it got its value from another of its key, without an access of its own.
    pub forwarded: bool,
}

/// Runs all requests. Each arrives at the moment in `arrivals`, which are in order, relative to the start of the run;
/// without any, all are there from the start. Answers when each was where, on the same scale.
///
/// # Panics
/// If a request finds or stores a value of more than one slab.
pub fn run_pipeline(
    processor: &mut Processor<NicMemory>,
    hardware: &Hardware,
    hazard: Hazard,
    requests: &[Request<'_>],
    arrivals: &[Time],
    replies: &mut Replies,
) -> Vec<Passage> {
    let clock = std::rc::Rc::clone(processor.memory().clock());
    let start = clock.now();
    let buckets = match hazard {
        Hazard::Waits => Vec::new(),
        Hazard::Stalls => requests.iter().map(|request| processor.home_bucket(request.key)).collect(),
    };
    processor.flow(requests, replies, |flow| {
        let pipeline = Pipeline::new(&clock, flow, hardware, hazard, requests, buckets);
        let arrival = |place: usize| start + arrivals.get(place).copied().unwrap_or_default();
        let operation = async |place: usize| pipeline.operation(place, arrival(place)).await;
        run(&clock, ring_width(hardware), (0..requests.len()).map(operation));
        pipeline.passages(start)
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
    /// Of each bucket, how many operations are in flight, and how many of them are no reads. For [`Hazard::Stalls`].
    by_bucket: RefCell<HashMap<u32, (u32, u32)>>,
    buckets: Vec<u32>,
    stalled: RefCell<Option<Waker>>,
}

/// What is known of an operation under way.
#[derive(Default)]
struct Under {
    is_answered: Cell<bool>,
    passage: Cell<Passage>,
    waker: RefCell<Option<Waker>>,
}

impl<'a, 'f> Pipeline<'a, 'f> {
    /// An empty one for these requests, whose home buckets matter to [`Hazard::Stalls`] alone.
    pub(crate) fn new(
        clock: &'a Clock,
        flow: &'a Flow<'f, NicMemory>,
        hardware: &Hardware,
        hazard: Hazard,
        requests: &'a [Request<'a>],
        buckets: Vec<u32>,
    ) -> Self {
        Pipeline {
            clock,
            flow,
            requests,
            hazard,
            cycle: Time::cycle(hardware.processor.clock_mhz),
            turn: Slots::new(1),
            decoder: Path::default(),
            engine: Path::default(),
            in_flight: Slots::new(hardware.processor.operations_in_flight),
            operations: requests.iter().map(|_| Under::default()).collect(),
            by_bucket: RefCell::default(),
            buckets,
            stalled: RefCell::default(),
        }
    }

    /// When each operation was where, since `start`.
    pub(crate) fn passages(&self, start: Time) -> Vec<Passage> {
        let since_start = |operation: &Under| {
            let mut passage = operation.passage.get();
            passage.decoded = passage.decoded - start;
            passage.answered = passage.answered - start;
            passage
        };
        self.operations.iter().map(since_start).collect()
    }

    /// The operation at this place, from its arrival until its answer has left, and its chain if it begins one.
    pub(crate) async fn operation(&self, place: usize, arrival: Time) {
        let turn = self.turn.take().await;
        self.clock.until(arrival).await;
        let slot = self.in_flight.take().await;
        if self.hazard == Hazard::Stalls {
            self.stall(place).await;
        }
        let decoding = self.clock.span(|| "decoder".to_owned());
        self.clock.until(self.decoder.reserve(self.clock.now(), self.cycle)).await;
        drop(decoding);
        let _operation = self.clock.span(|| "reservation station and main pipeline".to_owned());
        self.update(place, |passage| passage.decoded = self.clock.now());
        drop(turn);
        if self.hazard == Hazard::Stalls {
            match self.flow.admit_alone(place) {
                // What it wrote has to be there before another may read.
                Some(chain) => self.watch(chain).await,
                None => self.take_answered(),
            }
            return self.answer(place, slot).await;
        }
        match self.flow.admit(place) {
            Admitted::Begins(chain) => both(self.watch(chain), self.answer(place, slot)).await,
            Admitted::Waits => self.answer(place, slot).await,
            Admitted::Refused => {
                self.take_answered();
                self.answer(place, slot).await;
            }
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

    /// Waits until the operation is answered and out of the engine, and frees its place.
    async fn answer(&self, place: usize, slot: Slot<'_>) {
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
        drop(slot);
        if self.hazard == Hazard::Stalls {
            let mut by_bucket = self.by_bucket.borrow_mut();
            let counts = by_bucket.get_mut(&self.buckets[place]).expect("it is in flight");
            counts.0 -= 1;
            counts.1 -= u32::from(!reads(&self.requests[place]));
            if let Some(waker) = self.stalled.take() {
                waker.wake();
            }
        }
    }

    /// Waits until nothing in flight depends on the request, nor it on anything.
    async fn stall(&self, place: usize) {
        let request = &self.requests[place];
        poll_fn(|context| {
            let mut by_bucket = self.by_bucket.borrow_mut();
            let counts = by_bucket.entry(self.buckets[place]).or_default();
            let conflicts = if reads(request) { counts.1 > 0 } else { counts.0 > 0 };
            if conflicts {
                self.stalled.replace(Some(context.waker().clone()));
                return Poll::Pending;
            }
            counts.0 += 1;
            counts.1 += u32::from(!reads(request));
            Poll::Ready(())
        })
        .await;
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
    use std::rc::Rc;

    use skep_store::hash::Settings;
    use skep_store::memory::LocalMemory;
    use skep_store::naive::{Generator, GeneratorSettings, OwnedRequest, SizeWeights};
    use skep_store::operation::{PutCondition, Reply};

    use super::*;
    use crate::dispatcher::{Dispatcher, Extent, Policy};

    const MEMORY: u64 = 1 << 20;

    fn nic(settings: &Settings, policy: Policy, seed: u64) -> Processor<NicMemory> {
        let hardware = Hardware::kv_direct();
        let clock = Rc::new(Clock::default());
        let extent = Extent::scaled(&hardware, MEMORY / 64);
        let dispatcher = Rc::new(Dispatcher::new(&clock, &hardware, extent, policy, seed));
        let bytes = LocalMemory::new(MEMORY).unwrap();
        let memory = NicMemory::new(bytes, clock, dispatcher, Time::cycle(hardware.processor.clock_mhz));
        Processor::with_memory(memory, settings).unwrap()
    }

    /// Random operations of all kinds, on few keys and few buckets: the same answers as on local memory, in any case.
    #[test]
    fn the_same_operations_have_the_same_answers_as_on_local_memory() {
        let settings = Settings { memory: MEMORY, hash_index_ratio: 0.02, inline_threshold: 24, seed: 3 };
        for (seed, hazard) in (0..8).map(|seed| (seed, if seed % 4 == 3 { Hazard::Stalls } else { Hazard::Waits })) {
            let sizes = SizeWeights { empty: 1, inline: 6, slab: 3, large: 0 };
            let generator =
                GeneratorSettings { seed, key_count: 150, key_size: 4..=20, sizes, ..GeneratorSettings::default() };
            let owned: Vec<OwnedRequest> = Generator::new(generator).take(6000).collect();
            let requests: Vec<Request<'_>> = owned.iter().map(OwnedRequest::as_request).filter(fits).collect();
            let mut local = Processor::new(&settings).unwrap();
            let [mut expected, mut replies] = [(); 2].map(|()| Replies::with_budget(usize::MAX));
            local.execute(&requests, &mut expected);
            let mut nic = nic(&settings, Policy::Dispatch(0.5), seed);
            let passages = run_pipeline(&mut nic, &Hardware::kv_direct(), hazard, &requests, &[], &mut replies);
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
            let passages = run_pipeline(&mut nic, &hardware, hazard, &requests, &[], &mut replies);
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
