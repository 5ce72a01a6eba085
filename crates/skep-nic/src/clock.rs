//! The discrete-event engine: a clock that jumps from event to event.
//!
//! ```text
//! now ──▶ (at, sequence, waker) ──▶ (at, sequence, waker) ──▶ …        a heap; the sequence decides between equals
//! ```
//!
//! An operation is a future. An action that takes time registers an event and waits for it. [`run`] polls the futures
//! that an event has woken. When all of them wait, it advances the clock to the next event. Operations occupy a ring.
//! Each entry is refilled when its operation ends, because in hardware completions arrive in any order.
//!
//! A run depends only on its inputs, not on addresses, threads or real time. Every future of the model checks its
//! condition whenever it is polled. So another driver works as well: it may ignore wakers and poll all futures after
//! each [`Clock::advance`].

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::time::Time;
use crate::trace::Recorder;

/// Virtual time and the events that are due.
#[derive(Debug, Default)]
pub struct Clock {
    now: Cell<Time>,
    sequence: Cell<u64>,
    events: RefCell<BinaryHeap<Reverse<Event>>>,
    recorder: Recorder,
}

/// An event that has not ended. It ends when this value is dropped.
#[derive(Debug)]
#[must_use = "the event ends when this is dropped"]
pub struct OpenEvent<'a> {
    clock: &'a Clock,
    number: Option<usize>,
}

impl Drop for OpenEvent<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.clock.recorder.end(number, self.clock.now());
        }
    }
}

#[derive(Debug)]
struct Event {
    at: Time,
    sequence: u64,
    waker: Waker,
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Event {}

impl Clock {
    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.now.get()
    }

    /// Returns the recorder of events.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Begins an event, which ends when the returned value is dropped. Calls `name` only if events are recorded.
    pub fn span(&self, name: impl FnOnce() -> String) -> OpenEvent<'_> {
        OpenEvent { clock: self, number: self.recorder.begin(name, self.now()) }
    }

    /// Waits until a time. Returns at once if it has passed.
    pub async fn until(&self, at: Time) {
        let mut registered = false;
        poll_fn(|context| {
            if self.now() >= at {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut registered, true) {
                let sequence = self.sequence.replace(self.sequence.get() + 1);
                self.events.borrow_mut().push(Reverse(Event { at, sequence, waker: context.waker().clone() }));
            }
            Poll::Pending
        })
        .await;
    }

    /// Waits for a duration.
    pub async fn after(&self, span: Time) {
        self.until(self.now() + span).await;
    }

    /// Advances to the next event and wakes its future. Returns true if there was an event.
    pub fn advance(&self) -> bool {
        let Some(Reverse(event)) = self.events.borrow_mut().pop() else {
            return false;
        };
        self.now.set(event.at);
        event.waker.wake();
        true
    }
}

/// The indexes of the woken futures, in the order in which they were woken.
type Woken = Arc<Mutex<VecDeque<usize>>>;

struct RingEntry {
    index: usize,
    woken: Woken,
    /// True if the index is in `woken`. It must not be there twice: otherwise the next future of this entry would be
    /// polled before futures that began earlier in other entries.
    is_woken: AtomicBool,
}

impl Wake for RingEntry {
    fn wake(self: Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::Relaxed) {
            self.woken.lock().expect("no thread panics with the lock").push_back(self.index);
        }
    }
}

/// Runs all the work, with `width` futures at a time. When one ends, the next begins. They begin in their order.
///
/// # Panics
/// If all futures in flight wait and no event is due: they wait for each other.
pub fn run<F: Future<Output = ()>>(clock: &Clock, width: usize, work: impl IntoIterator<Item = F>) {
    let mut work = work.into_iter();
    let woken = Woken::default();
    let mut ring: Vec<Option<Pin<Box<F>>>> = Vec::new();
    let mut wakers: Vec<(Arc<RingEntry>, Waker)> = Vec::new();
    for (index, future) in work.by_ref().take(width).enumerate() {
        let entry = Arc::new(RingEntry { index, woken: Arc::clone(&woken), is_woken: AtomicBool::default() });
        let waker = Waker::from(Arc::clone(&entry));
        waker.wake_by_ref();
        ring.push(Some(Box::pin(future)));
        wakers.push((entry, waker));
    }
    let mut in_flight = ring.len();
    while in_flight > 0 {
        let next = woken.lock().expect("no thread panics with the lock").pop_front();
        let Some(index) = next else {
            assert!(clock.advance(), "{in_flight} operations wait, and no event is due");
            continue;
        };
        let (entry, waker) = &wakers[index];
        entry.is_woken.store(false, Ordering::Relaxed);
        let Some(future) = &mut ring[index] else {
            continue;
        };
        if future.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            // The box is reused, so that a long run does not allocate for each operation.
            match work.next() {
                Some(next) => {
                    future.set(next);
                    waker.wake_by_ref();
                }
                None => {
                    ring[index] = None;
                    in_flight -= 1;
                }
            }
        }
    }
}

/// Waits for all parts of a transfer. Up to `width` of them are in flight at a time, as in hardware.
pub async fn all<F: Future<Output = ()>>(width: usize, parts: impl IntoIterator<Item = F>) {
    let mut parts = parts.into_iter().fuse();
    let mut waiting: Vec<Pin<Box<F>>> = Vec::new();
    poll_fn(|context| {
        waiting.retain_mut(|part| part.as_mut().poll(context).is_pending());
        while waiting.len() < width
            && let Some(part) = parts.next()
        {
            let mut part = Box::pin(part);
            if part.as_mut().poll(context).is_pending() {
                waiting.push(part);
            }
        }
        if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Waits for both futures.
pub async fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut one_done, mut other_done) = (false, false);
    poll_fn(|context| {
        one_done = one_done || one.as_mut().poll(context).is_ready();
        other_done = other_done || other.as_mut().poll(context).is_ready();
        if one_done && other_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the order also holds if an ended future is woken again.
    #[test]
    fn work_begins_in_its_order() {
        let clock = Clock::default();
        let begun = RefCell::new(Vec::new());
        let wakers = RefCell::new(Vec::<Waker>::new());
        let work = async |number: usize| {
            begun.borrow_mut().push(number);
            poll_fn(|context| {
                wakers.borrow_mut().push(context.waker().clone());
                Poll::Ready(())
            })
            .await;
            clock.after(Time::from_ns((number * 7 % 4) as f64)).await;
            wakers.borrow().iter().for_each(Waker::wake_by_ref);
        };
        run(&clock, 5, (0..200).map(work));
        assert!(begun.borrow().is_sorted(), "{:?}", begun.borrow());
    }

    #[test]
    fn events_happen_in_the_order_of_their_times() {
        let clock = Clock::default();
        let order = RefCell::new(Vec::new());
        let wait = async |name: u32, ns: f64| {
            clock.after(Time::from_ns(ns)).await;
            order.borrow_mut().push((name, clock.now()));
        };
        run(&clock, 3, [(1, 30.0), (2, 10.0), (3, 30.0), (4, 5.0)].map(|(name, ns)| wait(name, ns)));
        // The fourth operation begins when the second ends. Of two events that are due together, the first registered
        // is the first.
        let expected = [(2, 10.0), (4, 15.0), (1, 30.0), (3, 30.0)].map(|(name, ns)| (name, Time::from_ns(ns)));
        assert_eq!(*order.borrow(), expected);
        assert!(!clock.advance());
    }

    #[test]
    fn parts_overlap() {
        let clock = Clock::default();
        run(&clock, 1, [all(2, [3.0, 9.0, 4.0].map(|ns| clock.after(Time::from_ns(ns))))]);
        assert_eq!(clock.now(), Time::from_ns(9.0));
        run(&clock, 1, [both(clock.after(Time::from_ns(2.0)), clock.after(Time::from_ns(4.0)))]);
        assert_eq!(clock.now(), Time::from_ns(13.0));
    }

    #[test]
    #[should_panic(expected = "no event is due")]
    fn a_deadlock_panics() {
        run(&Clock::default(), 1, [std::future::pending::<()>()]);
    }
}
