//! The resources that operations of the model wait for: paths that carry one transfer at a time, credits, tags, and
//! order.
//!
//! A waiting future must be polled to its end. If it is dropped before its turn, its turn is lost.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::clock::Clock;
use crate::time::Time;

/// A path that carries one transfer after the other: a direction of a link, a DRAM channel, a pipeline.
#[derive(Debug, Default)]
pub struct Path {
    free_at: Cell<Time>,
    busy: Cell<Time>,
}

impl Path {
    /// Appends a transfer to all earlier ones. Returns the time at which its last byte has passed.
    pub fn reserve(&self, now: Time, span: Time) -> Time {
        let end = self.free_at.get().max(now) + span;
        self.free_at.set(end);
        self.busy.set(self.busy.get() + span);
        end
    }

    /// Returns the total duration of all transfers so far.
    pub fn busy(&self) -> Time {
        self.busy.get()
    }
}

/// Credits that return a known time after they were used: PCIe's flow control.
#[derive(Debug)]
pub struct Credits {
    /// The time at which each credit is available.
    returns: RefCell<BinaryHeap<Reverse<Time>>>,
    away: Cell<Time>,
}

impl Credits {
    /// Returns `count` credits, all available.
    pub fn new(count: u32) -> Self {
        Credits { returns: RefCell::new((0..count).map(|_| Reverse(Time::ZERO)).collect()), away: Cell::default() }
    }

    /// Waits for a credit and uses it for a transfer that begins at once. The credit returns `span` after that. Returns
    /// the result of `transfer`, which is the end of the transfer.
    pub async fn spend(&self, clock: &Clock, span: Time, transfer: impl FnOnce() -> Time) -> Time {
        loop {
            let back = self.returns.borrow().peek().expect("there are as many as there were").0;
            if back <= clock.now() {
                break;
            }
            clock.until(back).await;
        }
        self.returns.borrow_mut().pop();
        let end = transfer();
        self.returns.borrow_mut().push(Reverse(end + span));
        self.away.set(self.away.get() + (end + span - clock.now()));
        end
    }

    /// Returns how long a credit was in use so far, on average.
    pub fn away(&self) -> Time {
        self.away.get().part(self.returns.borrow().len() as u64)
    }
}

/// Slots that are in use for an unknown time, such as tags of reads. They are granted in the order of the requests.
#[derive(Debug)]
pub struct Slots {
    free: Cell<u32>,
    queue: RefCell<VecDeque<Rc<Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    granted: Cell<bool>,
    waker: Waker,
}

/// A slot in use. Dropping it frees it.
#[derive(Debug)]
#[must_use = "a slot that is dropped is free"]
pub struct Slot<'a>(&'a Slots);

impl Slots {
    /// Returns `count` free slots.
    pub fn new(count: u32) -> Self {
        Slots { free: Cell::new(count), queue: RefCell::default() }
    }

    /// Waits for a slot.
    pub async fn take(&self) -> Slot<'_> {
        let mut joined: Option<Rc<Waiting>> = None;
        poll_fn(|context| match &joined {
            Some(waiting) if waiting.granted.get() => Poll::Ready(()),
            Some(_) => Poll::Pending,
            None if self.free.get() > 0 => {
                self.free.set(self.free.get() - 1);
                Poll::Ready(())
            }
            None => {
                let waiting = Rc::new(Waiting { granted: Cell::new(false), waker: context.waker().clone() });
                self.queue.borrow_mut().push_back(Rc::clone(&waiting));
                joined = Some(waiting);
                Poll::Pending
            }
        })
        .await;
        Slot(self)
    }

    /// Returns true if a request would get a slot at once.
    pub fn has_free(&self) -> bool {
        self.free.get() > 0
    }

    /// Adds slots.
    pub fn add(&self, count: u32) {
        (0..count).for_each(|_| drop(Slot(self)));
    }
}

impl Slot<'_> {
    /// Removes the slot from use.
    pub fn retire(self) {
        std::mem::forget(self);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        match self.0.queue.borrow_mut().pop_front() {
            // The slot is passed on directly, so no other future can take it in between.
            Some(waiting) => {
                waiting.granted.set(true);
                waiting.waker.wake_by_ref();
            }
            None => self.0.free.set(self.0.free.get() + 1),
        }
    }
}

/// A queue whose members leave in the order of joining. It restores the order of replies.
#[derive(Debug, Default)]
pub struct Order {
    /// The wakers of the members. The head has the number `left`.
    queue: RefCell<VecDeque<Option<Waker>>>,
    left: Cell<u64>,
}

/// The number of a member of an [`Order`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a member that does not leave blocks all later members"]
pub struct OrderNumber(u64);

impl Order {
    /// Appends a member.
    pub fn join(&self) -> OrderNumber {
        self.queue.borrow_mut().push_back(None);
        OrderNumber(self.left.get() + self.queue.borrow().len() as u64 - 1)
    }

    /// Waits until all earlier members have left, and leaves.
    pub async fn leave(&self, number: OrderNumber) {
        poll_fn(|context| {
            let ahead = number.0 - self.left.get();
            if ahead == 0 {
                return Poll::Ready(());
            }
            let mut queue = self.queue.borrow_mut();
            queue[usize::try_from(ahead).expect("a queue fits into memory")] = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        let mut queue = self.queue.borrow_mut();
        queue.pop_front();
        self.left.set(self.left.get() + 1);
        if let Some(Some(waker)) = queue.front() {
            waker.wake_by_ref();
        }
    }
}

/// Counts completions and measures their rate.
#[derive(Debug, Default)]
pub struct Meter {
    completions: RefCell<Vec<Time>>,
}

impl Meter {
    /// Counts a completion now.
    pub fn count(&self, clock: &Clock) {
        self.completions.borrow_mut().push(clock.now());
    }

    /// Returns the rate, see [`mops`].
    pub fn mops(&self) -> f64 {
        mops(self.completions.borrow().clone())
    }
}

/// Returns the completions per microsecond, which are millions per second. Ignores the first and the last tenth, in
/// which the ring is not full.
pub fn mops(mut completions: Vec<Time>) -> f64 {
    completions.sort_unstable();
    let (from, to) = (completions.len() / 10, completions.len() * 9 / 10);
    (to - from) as f64 / (completions[to] - completions[from]).as_us()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::run;

    #[test]
    fn a_path_carries_one_transfer_at_a_time() {
        let path = Path::default();
        let ns = Time::from_ns;
        assert_eq!(path.reserve(ns(0.0), ns(5.0)), ns(5.0));
        assert_eq!(path.reserve(ns(2.0), ns(5.0)), ns(10.0));
        assert_eq!(path.reserve(ns(30.0), ns(5.0)), ns(35.0));
    }

    #[test]
    fn credits_bound_the_rate() {
        let clock = Clock::default();
        let credits = Credits::new(2);
        let spend = async |_: u32| {
            let end = credits.spend(&clock, Time::from_ns(99.0), || clock.now() + Time::from_ns(1.0)).await;
            assert_eq!(end, clock.now() + Time::from_ns(1.0));
        };
        run(&clock, 10, (0..10).map(spend));
        assert_eq!(clock.now(), Time::from_ns(400.0));
    }

    #[test]
    fn slots_are_granted_in_the_order_of_the_requests() {
        let clock = Clock::default();
        let slots = Slots::new(2);
        let ends = RefCell::new(Vec::new());
        let hold = async |name: u32| {
            let _slot = slots.take().await;
            clock.after(Time::from_ns(10.0)).await;
            ends.borrow_mut().push((name, clock.now().as_ns()));
        };
        run(&clock, 5, (1..=5).map(hold));
        assert_eq!(*ends.borrow(), [(1, 10.0), (2, 10.0), (3, 20.0), (4, 20.0), (5, 30.0)]);
        assert_eq!(slots.free.get(), 2);
    }

    #[test]
    fn an_order_is_restored() {
        let clock = Clock::default();
        let order = Order::default();
        let ends = RefCell::new(Vec::new());
        let pass = async |(name, ns): (u32, f64)| {
            let number = order.join();
            clock.after(Time::from_ns(ns)).await;
            order.leave(number).await;
            ends.borrow_mut().push((name, clock.now().as_ns()));
        };
        run(&clock, 3, [(1, 20.0), (2, 5.0), (3, 40.0), (4, 1.0)].map(pass));
        assert_eq!(*ends.borrow(), [(1, 20.0), (2, 20.0), (3, 40.0), (4, 40.0)]);
    }
}
