//! The store's memory as the NIC accesses it. Each access takes the virtual time of the hardware.
//!
//! The bytes are stored in one [`LocalMemory`]. The model only adds metadata and time. A read returns the bytes, and a
//! write changes them, at the end of the access. So operations have the same effects as on local memory, only at other
//! times.
//!
//! A corpus is loaded in no time, see [`Pace`]. After that, accesses take time.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use skep_store::memory::{Effect, Line, LocalLines, LocalMemory, Memory, Pointer, Span};

use crate::clock::{self, Clock};
use crate::dispatcher::{Dispatcher, LINE_BYTES};
use crate::hardware::Hardware;
use crate::time::Time;

/// Memory accessed through a dispatcher.
#[derive(Debug)]
pub struct NicMemory {
    bytes: LocalMemory,
    clock: Rc<Clock>,
    dispatcher: RefCell<Rc<Dispatcher>>,
    /// The time of [`Memory::pause`]: a cycle of the pipeline.
    cycle: Time,
    /// The time from a read to the request of the next one of the same operation.
    next_read: Time,
    pace: Cell<Pace>,
    /// The lines of accesses in the pace [`Pace::Noted`].
    noted: RefCell<Vec<Noted>>,
    /// False if a write ends as soon as it has left.
    waits_for_confirmation: Cell<bool>,
    accesses: Rc<Cell<QueueAccesses>>,
}

/// The accesses of one queue of operations. A caller that polls several queues sets it before it polls one of them, and
/// gets it after that.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueAccesses {
    /// Writes that have begun and not ended.
    pub writes_in_flight: u32,
    /// True if the next write also writes back the home bucket, if the search has passed it. The operation that has begun
    /// the queue decides, also for those that have joined it.
    writes_passed_bucket: bool,
    /// The home bucket that the search has read.
    home: Option<Span>,
    /// The home bucket, when the search has passed it.
    passed: Option<Span>,
}

/// A line that an operation accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// Its number.
    pub line: u32,
    /// True if it was written.
    pub changes: bool,
}

impl QueueAccesses {
    /// Returns those of a queue that begins.
    pub fn new(writes_passed_bucket: bool) -> Self {
        QueueAccesses { writes_passed_bucket, ..QueueAccesses::default() }
    }
}

/// The effects of an access besides moving its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// None, to load a corpus.
    AtOnce,
    /// Its lines are noted, to warm caches with them.
    Noted,
    /// It uses the hardware and takes time.
    Timed,
}

impl NicMemory {
    /// Returns a memory with these bytes. The dispatcher's extent should be that of the bytes.
    pub fn new(bytes: LocalMemory, clock: Rc<Clock>, dispatcher: Rc<Dispatcher>, hardware: &Hardware) -> Self {
        NicMemory {
            bytes,
            clock,
            dispatcher: RefCell::new(dispatcher),
            cycle: Time::cycle(hardware.card.clock_mhz),
            next_read: Time::from_ns(hardware.processor.next_read_ns),
            pace: Cell::new(Pace::Timed),
            noted: RefCell::default(),
            waits_for_confirmation: Cell::new(true),
            accesses: Rc::default(),
        }
    }

    /// Sets the effects of the accesses that follow.
    pub fn set_pace(&self, pace: Pace) {
        self.pace.set(pace);
    }

    /// Returns the lines that were noted since the last call, in the order of the accesses.
    pub fn take_noted(&self) -> Vec<Noted> {
        self.noted.take()
    }

    /// Sets if a write ends when it is confirmed, as at the start, or already when it has left.
    pub fn set_waits_for_confirmation(&self, waits: bool) {
        self.waits_for_confirmation.set(waits);
    }

    /// Returns the accesses of the queue that is polled.
    pub fn accesses(&self) -> Rc<Cell<QueueAccesses>> {
        Rc::clone(&self.accesses)
    }

    /// Replaces the dispatcher by another one with the same clock. No operation may be in flight.
    pub fn set_dispatcher(&self, dispatcher: Rc<Dispatcher>) {
        self.dispatcher.replace(dispatcher);
    }

    /// Returns the dispatcher.
    pub fn dispatcher(&self) -> Rc<Dispatcher> {
        Rc::clone(&self.dispatcher.borrow())
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Rc<Clock> {
        &self.clock
    }

    async fn fetch(&self, span: Span) {
        let offset = span.pointer().byte_offset() as u64;
        match self.pace.get() {
            Pace::AtOnce => {}
            Pace::Noted => self.note(span, false),
            Pace::Timed => {
                let bytes = size_of_span(span);
                let _read = self.clock.span(|| format!("reads {bytes} B at {offset}"));
                self.dispatcher().read(offset, bytes).await;
            }
        }
    }

    /// Reads what a read of the same operation has found: the next bucket of a chain, or a slab.
    async fn fetch_next(&self, span: Span) {
        if self.pace.get() == Pace::Timed {
            let _between = self.clock.span(|| "between two reads".to_owned());
            self.clock.after(self.next_read).await;
        }
        self.fetch(span).await;
    }

    async fn store(&self, span: Span) {
        match self.pace.get() {
            Pace::AtOnce => {}
            Pace::Noted => self.note(span, true),
            Pace::Timed => {
                let mut passed = None;
                self.change_accesses(|accesses| {
                    accesses.writes_in_flight += 1;
                    // A deletion may have passed the bucket that it writes.
                    passed = accesses.passed.take().filter(|passed| *passed != span);
                });
                match passed {
                    // It is rare, and in a box it does not make every operation larger.
                    Some(passed) => Box::pin(clock::both(self.write_back(passed), self.write_back(span))).await,
                    None => self.write_back(span).await,
                }
                self.change_accesses(|accesses| accesses.writes_in_flight -= 1);
            }
        }
    }

    /// Writes bytes that are in the pipeline.
    async fn write_back(&self, span: Span) {
        let (offset, bytes) = (span.pointer().byte_offset() as u64, size_of_span(span));
        let _write = self.clock.span(|| format!("writes {bytes} B at {offset}"));
        let confirmed = self.dispatcher().write(offset, bytes).await;
        if self.waits_for_confirmation.get() {
            let _waiting = self.clock.span(|| "waits until the write is confirmed".to_owned());
            self.clock.until(confirmed).await;
        }
    }

    fn change_accesses(&self, change: impl FnOnce(&mut QueueAccesses)) {
        let mut accesses = self.accesses.get();
        change(&mut accesses);
        self.accesses.set(accesses);
    }

    fn note(&self, span: Span, changes: bool) {
        let first = (span.pointer().byte_offset() / LINE_BYTES as usize) as u32;
        let lines = first..first + span.line_count() as u32;
        self.noted.borrow_mut().extend(lines.map(|line| Noted { line, changes }));
    }
}

fn size_of_span(span: Span) -> u32 {
    u32::try_from(span.size()).expect("a span is shorter than 4 GiB")
}

/// Runs an access of local memory, which may yield but takes no virtual time.
fn poll_to_end<F: Future>(access: F) -> F::Output {
    let mut access = pin!(access);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = access.as_mut().poll(&mut context) {
            return output;
        }
    }
}

impl Memory for NicMemory {
    type Resident<'a> = LocalLines<'a>;

    fn size(&self) -> u64 {
        self.bytes.size()
    }

    /// Does nothing, because the pipeline has no prefetch.
    fn prefetch(&self, _span: Span) {}

    fn resident(&self) -> Option<LocalLines<'_>> {
        if self.pace.get() == Pace::AtOnce { self.bytes.resident() } else { None }
    }

    async fn update_prefetched_line<R>(&self, pointer: Pointer, f: impl FnOnce(&mut Line) -> (Effect, R)) -> R {
        let span = pointer.span(LINE_BYTES as usize);
        self.change_accesses(|accesses| (accesses.home, accesses.passed) = (None, None));
        self.fetch(span).await;
        let (effect, result) = self.bytes.with_line(pointer, f);
        if effect == Effect::Changed {
            self.store(span).await;
        } else {
            self.change_accesses(|accesses| accesses.home = Some(span));
        }
        result
    }

    /// Reads the next bucket of a chain.
    async fn read_line(&self, pointer: Pointer) -> Line {
        self.change_accesses(|accesses| {
            if accesses.writes_passed_bucket
                && let Some(home) = accesses.home.take()
            {
                accesses.passed = Some(home);
            }
        });
        self.fetch_next(pointer.span(LINE_BYTES as usize)).await;
        self.bytes.with_line(pointer, |line| *line)
    }

    async fn write_line(&self, pointer: Pointer, line: &Line) {
        self.store(pointer.span(LINE_BYTES as usize)).await;
        self.bytes.with_line(pointer, |bytes| *bytes = *line);
    }

    async fn read<R>(&self, span: Span, f: impl FnOnce(&[u8]) -> R) -> R {
        self.fetch_next(span).await;
        poll_to_end(self.bytes.read(span, f))
    }

    async fn update<R>(&self, span: Span, f: impl FnOnce(&mut [u8]) -> (Effect, R)) -> R {
        self.fetch_next(span).await;
        let mut effect = Effect::Unchanged;
        let result = poll_to_end(self.bytes.update(span, |bytes| {
            let (this, result) = f(bytes);
            effect = this;
            (this, result)
        }));
        if effect == Effect::Changed {
            self.store(span).await;
        }
        result
    }

    async fn write(&self, span: Span, fill: impl FnOnce(&mut [u8])) {
        self.store(span).await;
        poll_to_end(self.bytes.write(span, fill));
    }

    async fn pause(&self) {
        if self.pace.get() == Pace::Timed {
            self.clock.after(self.cycle).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::clock::run;
    use crate::dispatcher::{Extent, Policy};

    const LINES: u64 = 1 << 10;

    fn nic_memory(ratio: f64, seed: u64) -> (NicMemory, Rc<Clock>) {
        let clock = Rc::new(Clock::default());
        let hardware = Hardware::kv_direct();
        let extent = Extent::scaled(&hardware, LINES);
        let dispatcher = Rc::new(Dispatcher::new(&clock, &hardware, extent, Policy::Dispatch(ratio), seed));
        let bytes = LocalMemory::new(LINES * u64::from(LINE_BYTES)).unwrap();
        (NicMemory::new(bytes, Rc::clone(&clock), dispatcher, &hardware), clock)
    }

    /// Makes one access that is derived from a number, and returns the bytes that it read.
    async fn access(memory: &impl Memory, number: u64) -> Vec<u8> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(number);
        let size: usize = random.random_range(1..=300);
        let last = LINES as u32 * 2 - 1 - size.div_ceil(32) as u32;
        let span = Pointer::new(random.random_range(0..last)).span(size);
        let line = Pointer::to_line(random.random_range(0..LINES));
        let fill: u8 = random.random();
        match random.random_range(0..6) {
            0 => memory.read_line(line).await.0.to_vec(),
            1 => {
                memory.write_line(line, &Line([fill; 64])).await;
                Vec::new()
            }
            2 => memory.read(span, <[u8]>::to_vec).await,
            3 => {
                memory.write(span, |bytes| bytes.fill(fill)).await;
                Vec::new()
            }
            4 => {
                let change = |bytes: &mut [u8]| {
                    let before = bytes.to_vec();
                    let changes = before[0].is_multiple_of(2);
                    if changes {
                        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(fill | 1));
                    }
                    (if changes { Effect::Changed } else { Effect::Unchanged }, before)
                };
                memory.update(span, change).await
            }
            _ => {
                let change = |bytes: &mut Line| (Effect::Changed, std::mem::replace(&mut bytes.0, [fill; 64]).to_vec());
                memory.update_prefetched_line(line, change).await
            }
        }
    }

    #[test]
    fn it_holds_the_same_bytes_as_local_memory() {
        for (seed, ratio) in [(1, 0.0), (2, 0.5), (3, 1.0)] {
            let (nic, clock) = nic_memory(ratio, seed);
            let local = LocalMemory::new(LINES * u64::from(LINE_BYTES)).unwrap();
            for number in 0..3000 {
                let number = seed << 32 | number;
                let mut seen = Vec::new();
                run(&clock, 1, [async { seen = access(&nic, number).await }]);
                assert_eq!(seen, poll_to_end(access(&local, number)), "access {number}");
            }
            for line in (0..LINES).map(Pointer::to_line) {
                let byte = nic.bytes.with_line(line, |bytes| *bytes);
                assert_eq!(byte, local.with_line(line, |bytes| *bytes), "seed {seed}");
            }
            assert!(nic.dispatcher().counts().lines > 6000 && clock.now() > Time::from_ns(1e6), "seed {seed}");
        }
    }

    /// Operations in flight together keep to their own bytes, even if two of them share a line.
    #[test]
    fn concurrent_operations_do_not_disturb_each_other() {
        let (nic, clock) = nic_memory(0.5, 4);
        let operation = async |unit: u32| {
            let span = Pointer::new(unit).span(32);
            for round in 1..=20_u8 {
                let before = nic.update(span, |bytes| {
                    let before = bytes[0];
                    bytes.fill(round);
                    (Effect::Changed, before)
                });
                assert_eq!(before.await, round - 1);
                assert_eq!(nic.read(span, |bytes| bytes[31]).await, round);
                nic.pause().await;
            }
        };
        run(&clock, 200, (0..2000).map(operation));
        assert_eq!(nic.size(), LINES * 64);
    }

    /// Checks the store's own drivers, which have no wakers and poll every waiting operation.
    #[test]
    fn operations_need_no_waker() {
        let (nic, clock) = nic_memory(0.5, 6);
        let mut waiting: Vec<_> = (0..300).map(|number| Box::pin(access(&nic, number))).collect();
        let mut context = Context::from_waker(Waker::noop());
        loop {
            waiting.retain_mut(|operation| operation.as_mut().poll(&mut context).is_pending());
            if !clock.advance() {
                break;
            }
        }
        assert_eq!(waiting.len(), 0);
        assert!(clock.now() > Time::from_ns(2000.0), "{}", clock.now());
    }
}
