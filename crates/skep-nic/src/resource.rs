//! What operations of the model wait for: paths that carry one thing after the other, credits, tags, their turn.
//!
//! Who waits must go on waiting: a future that is dropped before its turn would take it along.

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
    /// Puts a transfer behind all earlier ones; answers when its last byte has passed.
    pub fn reserve(&self, now: Time, span: Time) -> Time {
        let end = self.free_at.get().max(now) + span;
        self.free_at.set(end);
        self.busy.set(self.busy.get() + span);
        end
    }

    /// How long all transfers so far take together.
    pub fn busy(&self) -> Time {
        self.busy.get()
    }
}

/// Credits that come back a known time after they were used: PCIe's flow control.
#[derive(Debug)]
pub struct Credits {
    /// When each is there, or back.
    returns: RefCell<BinaryHeap<Reverse<Time>>>,
    away: Cell<Time>,
}

impl Credits {
    /// So many credits, all resident.
    pub fn new(count: u32) -> Self {
        Credits { returns: RefCell::new((0..count).map(|_| Reverse(Time::ZERO)).collect()), away: Cell::default() }
    }

    /// Waits for a credit, uses it for a transfer that begins at once, and answers with what `transfer` does: the end of
    /// the transfer. The credit is back `span` later.
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

    /// How long the credits have been away so far, on average.
    pub fn away(&self) -> Time {
        self.away.get().part(self.returns.borrow().len() as u64)
    }
}

/// Things that are held for as long as it takes, such as tags of reads: first come, first served.
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

/// A slot in use; dropping it frees it.
#[derive(Debug)]
#[must_use = "a slot that is dropped is free"]
pub struct Slot<'a>(&'a Slots);

impl Slots {
    /// So many slots, all free.
    pub fn new(count: u32) -> Self {
        Slots { free: Cell::new(count), queue: RefCell::default() }
    }

    /// Waits for a slot.
    pub async fn take(&self) -> Slot<'_> {
        let mut place: Option<Rc<Waiting>> = None;
        poll_fn(|context| match &place {
            Some(waiting) if waiting.granted.get() => Poll::Ready(()),
            Some(_) => Poll::Pending,
            None if self.free.get() > 0 => {
                self.free.set(self.free.get() - 1);
                Poll::Ready(())
            }
            None => {
                let waiting = Rc::new(Waiting { granted: Cell::new(false), waker: context.waker().clone() });
                self.queue.borrow_mut().push_back(Rc::clone(&waiting));
                place = Some(waiting);
                Poll::Pending
            }
        })
        .await;
        Slot(self)
    }

    /// Adds slots.
    pub fn add(&self, count: u32) {
        (0..count).for_each(|_| drop(Slot(self)));
    }
}

impl Slot<'_> {
    /// Takes it out of use.
    pub fn retire(self) {
        std::mem::forget(self);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        match self.0.queue.borrow_mut().pop_front() {
            // It goes from hand to hand, so nobody can take it in between.
            Some(waiting) => {
                waiting.granted.set(true);
                waiting.waker.wake_by_ref();
            }
            None => self.0.free.set(self.0.free.get() + 1),
        }
    }
}

/// A line in which everybody leaves in the order of joining: what restores the order of answers.
#[derive(Debug, Default)]
pub struct Order {
    /// Who has joined and not left; the front has the number `left`.
    line: RefCell<VecDeque<Option<Waker>>>,
    left: Cell<u64>,
}

/// A place in an [`Order`].
#[derive(Clone, Copy, Debug)]
#[must_use = "who does not leave holds up all who come later"]
pub struct OrderNumber(u64);

impl Order {
    /// Takes the next place.
    pub fn join(&self) -> OrderNumber {
        self.line.borrow_mut().push_back(None);
        OrderNumber(self.left.get() + self.line.borrow().len() as u64 - 1)
    }

    /// Waits until all who joined before have left, and leaves.
    pub async fn leave(&self, number: OrderNumber) {
        poll_fn(|context| {
            let place = number.0 - self.left.get();
            if place == 0 {
                return Poll::Ready(());
            }
            let mut line = self.line.borrow_mut();
            line[usize::try_from(place).expect("a line fits into memory")] = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        let mut line = self.line.borrow_mut();
        line.pop_front();
        self.left.set(self.left.get() + 1);
        if let Some(Some(waker)) = line.front() {
            waker.wake_by_ref();
        }
    }
}

/// Counts completions, and says how fast they came.
#[derive(Debug, Default)]
pub struct Meter {
    completions: RefCell<Vec<Time>>,
}

impl Meter {
    /// One more is done now.
    pub fn count(&self, clock: &Clock) {
        self.completions.borrow_mut().push(clock.now());
    }

    /// How fast they came, see [`mops`].
    pub fn mops(&self) -> f64 {
        mops(self.completions.borrow().clone())
    }
}

/// Completions in a microsecond, which are millions a second, without the first and the last tenth, in which places of
/// the ring are still empty or empty again.
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
    fn a_path_carries_one_thing_after_the_other() {
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
    fn slots_are_given_in_the_order_of_asking() {
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
