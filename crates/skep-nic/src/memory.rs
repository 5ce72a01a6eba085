//! The store's memory as the NIC accesses it. Each access takes the virtual time of the hardware.
//!
//! The bytes are stored in one [`LocalMemory`]. The model only adds metadata and time. A read returns the bytes, and a
//! write changes them, at the end of the access. So operations have the same effects as on local memory, only at other
//! times.
//!
//! A corpus is loaded and the cache warmed in no time, see [`Pace`]. After that, accesses take time.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use skep_store::memory::{Effect, Line, LocalLines, LocalMemory, Memory, Pointer, Span};

use crate::clock::Clock;
use crate::dispatcher::{Dispatcher, LINE_BYTES};
use crate::time::Time;

/// Memory accessed through a dispatcher.
#[derive(Debug)]
pub struct NicMemory {
    bytes: LocalMemory,
    clock: Rc<Clock>,
    dispatcher: RefCell<Rc<Dispatcher>>,
    /// The time of [`Memory::pause`]: a cycle of the pipeline.
    cycle: Time,
    pace: Cell<Pace>,
    writes_unchanged: Cell<bool>,
    /// False if a write ends as soon as it has left.
    waits_for_confirmation: Cell<bool>,
    /// Writes that have begun and not ended.
    writes_in_flight: Rc<Cell<u32>>,
}

/// The effects of an access besides moving its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// None, to load a corpus.
    AtOnce,
    /// It changes the metadata of the NIC's DRAM, to begin with a warm cache.
    Warming,
    /// It uses the hardware and takes time.
    Timed,
}

impl NicMemory {
    /// Returns a memory with these bytes. The dispatcher's extent should be that of the bytes.
    pub fn new(bytes: LocalMemory, clock: Rc<Clock>, dispatcher: Rc<Dispatcher>, cycle: Time) -> Self {
        NicMemory {
            bytes,
            clock,
            dispatcher: RefCell::new(dispatcher),
            cycle,
            pace: Cell::new(Pace::Timed),
            writes_unchanged: Cell::default(),
            waits_for_confirmation: Cell::new(true),
            writes_in_flight: Rc::default(),
        }
    }

    /// Sets the effects of the accesses that follow.
    pub fn set_pace(&self, pace: Pace) {
        self.pace.set(pace);
    }

    /// Sets if the first bucket of a search is written back although the operation leaves it unchanged.
    pub fn set_writes_unchanged(&self, writes: bool) {
        self.writes_unchanged.set(writes);
    }

    /// Sets if a write ends when it is confirmed, as at the start, or already when it has left.
    pub fn set_waits_for_confirmation(&self, waits: bool) {
        self.waits_for_confirmation.set(waits);
    }

    /// Returns the number of writes that have begun and not ended. A caller that polls several accesses may set it for
    /// each of them before it polls it, and read it after that.
    pub fn writes_in_flight(&self) -> Rc<Cell<u32>> {
        Rc::clone(&self.writes_in_flight)
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
            Pace::Warming => self.warm(span, false),
            Pace::Timed => {
                let bytes = size_of_span(span);
                let _read = self.clock.span(|| format!("reads {bytes} B at {offset}"));
                self.dispatcher().read(offset, bytes).await;
            }
        }
    }

    async fn store(&self, span: Span) {
        let offset = span.pointer().byte_offset() as u64;
        match self.pace.get() {
            Pace::AtOnce => {}
            Pace::Warming => self.warm(span, true),
            Pace::Timed => {
                let bytes = size_of_span(span);
                let _write = self.clock.span(|| format!("writes {bytes} B at {offset}"));
                self.writes_in_flight.set(self.writes_in_flight.get() + 1);
                let confirmed = self.dispatcher().write(offset, bytes).await;
                if self.waits_for_confirmation.get() {
                    let _waiting = self.clock.span(|| "waits until the write is confirmed".to_owned());
                    self.clock.until(confirmed).await;
                }
                self.writes_in_flight.set(self.writes_in_flight.get() - 1);
            }
        }
    }

    fn warm(&self, span: Span, changes: bool) {
        let first = span.pointer().byte_offset() as u64 / u64::from(LINE_BYTES);
        for line in first..first + span.line_count() as u64 {
            self.dispatcher.borrow().warm(line, changes);
        }
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
        self.fetch(span).await;
        let (effect, result) = self.bytes.with_line(pointer, f);
        if effect == Effect::Changed || self.writes_unchanged.get() {
            self.store(span).await;
        }
        result
    }

    async fn read_line(&self, pointer: Pointer) -> Line {
        self.fetch(pointer.span(LINE_BYTES as usize)).await;
        self.bytes.with_line(pointer, |line| *line)
    }

    async fn write_line(&self, pointer: Pointer, line: &Line) {
        self.store(pointer.span(LINE_BYTES as usize)).await;
        self.bytes.with_line(pointer, |bytes| *bytes = *line);
    }

    async fn read<R>(&self, span: Span, f: impl FnOnce(&[u8]) -> R) -> R {
        self.fetch(span).await;
        poll_to_end(self.bytes.read(span, f))
    }

    async fn update<R>(&self, span: Span, f: impl FnOnce(&mut [u8]) -> (Effect, R)) -> R {
        self.fetch(span).await;
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
    use crate::hardware::Hardware;

    const LINES: u64 = 1 << 10;

    fn nic_memory(ratio: f64, seed: u64) -> (NicMemory, Rc<Clock>) {
        let clock = Rc::new(Clock::default());
        let hardware = Hardware::kv_direct();
        let extent = Extent::scaled(&hardware, LINES);
        let dispatcher = Rc::new(Dispatcher::new(&clock, &hardware, extent, Policy::Dispatch(ratio), seed));
        let bytes = LocalMemory::new(LINES * u64::from(LINE_BYTES)).unwrap();
        let cycle = Time::cycle(hardware.card.clock_mhz);
        (NicMemory::new(bytes, Rc::clone(&clock), dispatcher, cycle), clock)
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
