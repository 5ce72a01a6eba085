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
//! as section 5.1.3 has it: one of the two is no read, and their keys are equal.

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
    let in_flight = hardware.processor.operations_in_flight;
    let passages = processor.flow(requests, replies, |flow| {
        let pipeline = Pipeline {
            clock: &clock,
            flow,
            requests,
            hazard,
            cycle: Time::cycle(hardware.processor.clock_mhz),
            turn: Slots::new(1),
            decoder: Path::default(),
            engine: Path::default(),
            in_flight: Slots::new(in_flight),
            operations: requests.iter().map(|_| Under::default()).collect(),
            by_key: RefCell::default(),
            stalled: RefCell::default(),
        };
        let arrival = |place: usize| start + arrivals.get(place).copied().unwrap_or_default();
        let operation = async |place: usize| pipeline.operation(place, arrival(place)).await;
        // A chain may outlast the operation that began it, and the next ones already wait for the decoder.
        let width = 2 * in_flight as usize + 2;
        run(&clock, width, (0..requests.len()).map(operation));
        pipeline.operations.iter().map(|operation| operation.passage.get()).collect::<Vec<_>>()
    });
    let since_start = |mut passage: Passage| {
        passage.decoded = passage.decoded - start;
        passage.answered = passage.answered - start;
        passage
    };
    passages.into_iter().map(since_start).collect()
}

struct Pipeline<'a, 'f> {
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
    /// Of each key in flight, how many operations, and how many of them are no reads. For [`Hazard::Stalls`].
    by_key: RefCell<HashMap<&'a [u8], (u32, u32)>>,
    stalled: RefCell<Option<Waker>>,
}

/// What is known of an operation under way.
#[derive(Default)]
struct Under {
    is_answered: Cell<bool>,
    passage: Cell<Passage>,
    waker: RefCell<Option<Waker>>,
}

impl Pipeline<'_, '_> {
    async fn operation(&self, place: usize, arrival: Time) {
        let turn = self.turn.take().await;
        self.clock.until(arrival).await;
        let slot = self.in_flight.take().await;
        if self.hazard == Hazard::Stalls {
            self.stall(place).await;
        }
        self.clock.until(self.decoder.reserve(self.clock.now(), self.cycle)).await;
        self.update(place, |passage| passage.decoded = self.clock.now());
        drop(turn);
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
            let mut by_key = self.by_key.borrow_mut();
            let counts = by_key.get_mut(self.requests[place].key).expect("it is in flight");
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
            let mut by_key = self.by_key.borrow_mut();
            let counts = by_key.entry(request.key).or_default();
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
