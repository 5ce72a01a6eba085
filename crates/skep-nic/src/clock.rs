//! The discrete-event engine: a clock that jumps from event to event.
//!
//! ```text
//! now ──▶ (at, sequence, task) ──▶ (at, sequence, task) ──▶ …        a heap; the sequence decides between equals
//! ```
//!
//! An operation is a future. An action that takes time registers an event and waits for it. [`run`] polls the futures
//! that an event has woken. When all of them wait, it advances the clock to the next event. Operations occupy a ring.
//! Each entry is refilled when its operation ends, because in hardware completions arrive in any order. An event names
//! the entry that it wakes, the *task*. Resources wake each other's waiters with wakers.
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
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::time::Time;
use crate::trace::Recorder;

/// Virtual time and the events that are due.
#[derive(Debug, Default)]
pub struct Clock {
    now: Cell<Time>,
    sequence: Cell<u64>,
    events: RefCell<BinaryHeap<Reverse<Event>>>,
    /// The task that [`run`] polls.
    task: Cell<usize>,
    is_running: Cell<bool>,
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
    task: usize,
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
        poll_fn(|_| {
            if self.now() >= at {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut registered, true) {
                let sequence = self.sequence.replace(self.sequence.get() + 1);
                self.events.borrow_mut().push(Reverse(Event { at, sequence, task: self.task.get() }));
            }
            Poll::Pending
        })
        .await;
    }

    /// Waits for a duration.
    pub async fn after(&self, span: Time) {
        self.until(self.now() + span).await;
    }

    /// Advances to the next event. Returns true if there was an event.
    pub fn advance(&self) -> bool {
        self.next_task().is_some()
    }

    /// Advances to the next event. Returns the task that it wakes.
    fn next_task(&self) -> Option<usize> {
        let Reverse(event) = self.events.borrow_mut().pop()?;
        self.now.set(event.at);
        Some(event.task)
    }
}

/// The tasks that are due to be polled, in the order in which they were woken. None is there twice: otherwise the next
/// future of an entry would be polled before futures that began earlier in other entries.
#[derive(Default)]
struct Due {
    tasks: VecDeque<usize>,
    is_due: Vec<bool>,
}

impl Due {
    fn wake(&mut self, task: usize) {
        // An event of an earlier run may name an entry that this ring does not have.
        if self.is_due.get(task) == Some(&false) {
            self.is_due[task] = true;
            self.tasks.push_back(task);
        }
    }

    fn next(&mut self) -> Option<usize> {
        let task = self.tasks.pop_front()?;
        self.is_due[task] = false;
        Some(task)
    }
}

/// The tasks that wakers have woken since the last poll.
#[derive(Default)]
struct Woken {
    any: AtomicBool,
    tasks: Mutex<Vec<usize>>,
}

impl Woken {
    fn drain_to(&self, due: &mut Due) {
        if self.any.swap(false, Ordering::Relaxed) {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.drain(..).for_each(|task| due.wake(task));
        }
    }
}

struct RingEntry {
    task: usize,
    woken: Arc<Woken>,
}

impl Wake for RingEntry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(self.task);
        self.woken.any.store(true, Ordering::Relaxed);
    }
}

/// Runs all the work, with `width` futures at a time. When one ends, the next begins. They begin in their order.
///
/// # Panics
/// If all futures in flight wait and no event is due: they wait for each other. If this clock has another run: events name
/// the tasks of one.
pub fn run<F: Future<Output = ()>>(clock: &Clock, width: usize, work: impl IntoIterator<Item = F>) {
    assert!(!clock.is_running.replace(true), "a clock has one run at a time");
    let mut work = work.into_iter();
    let woken = Arc::<Woken>::default();
    let mut due = Due::default();
    let mut ring: Vec<Option<Pin<Box<F>>>> = work.by_ref().take(width).map(|future| Some(Box::pin(future))).collect();
    let waker = |task: usize| Waker::from(Arc::new(RingEntry { task, woken: Arc::clone(&woken) }));
    let wakers: Vec<Waker> = (0..ring.len()).map(waker).collect();
    due.is_due.resize(ring.len(), false);
    (0..ring.len()).for_each(|task| due.wake(task));
    let mut in_flight = ring.len();
    while in_flight > 0 {
        let Some(task) = due.next() else {
            let next = clock.next_task();
            due.wake(next.unwrap_or_else(|| panic!("{in_flight} operations wait, and no event is due")));
            continue;
        };
        let Some(future) = &mut ring[task] else { continue };
        clock.task.set(task);
        let polled = future.as_mut().poll(&mut Context::from_waker(&wakers[task]));
        woken.drain_to(&mut due);
        if polled.is_ready() {
            // The box is reused, so that a long run does not allocate for each operation.
            match work.next() {
                Some(next) => {
                    future.set(next);
                    due.wake(task);
                }
                None => {
                    ring[task] = None;
                    in_flight -= 1;
                }
            }
        }
    }
    clock.is_running.set(false);
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
