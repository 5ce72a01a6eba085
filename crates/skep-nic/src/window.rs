//! The congestion window: how many operations the clients may have in flight, by how long they take (KV-Direct, thesis
//! chapter, "Congestion Avoidance").
//!
//! ```text
//! credit ─▶ wire ─▶ KV processor ─▶ wire ─▶ credit back, with the delay
//!                                              │ mean of a window's worth of operations
//!            window ◀── shrinks above the target, grows below ──┘
//! ```
//!
//! Where every buffer may fill, an operation waits behind all that wait with it, and the throughput is no higher for it.
//! RDMA's credits hold clients back. The paper says that the window follows the running average of the delay in the way
//! of TCP Vegas, and not by which figures; those here are a target and a sixteenth of the window each time.

use std::cell::Cell;

use crate::resource::{Slot, Slots};
use crate::time::Time;

/// Of the window, what it grows or shrinks by at a time.
const STEP: u32 = 16;

/// A window that follows the delay.
#[derive(Debug)]
pub struct Window {
    credits: Slots,
    size: Cell<u32>,
    size_max: u32,
    target: Time,
    /// Credits that are taken out of use as they come back.
    owed: Cell<u32>,
    /// Operations since the size was last set, and their delays together.
    count: Cell<u32>,
    delays: Cell<Time>,
}

impl Window {
    /// An open window.
    pub fn new(size_max: u32, target: Time) -> Self {
        Window {
            credits: Slots::new(size_max),
            size: Cell::new(size_max),
            size_max,
            target,
            owed: Cell::default(),
            count: Cell::default(),
            delays: Cell::default(),
        }
    }

    /// Operations in flight at most, now.
    pub fn size(&self) -> u32 {
        self.size.get()
    }

    /// Waits for a credit.
    pub async fn take(&self) -> Slot<'_> {
        self.credits.take().await
    }

    /// Gives a credit back, for an operation that took so long.
    pub fn give_back(&self, credit: Slot<'_>, delay: Time) {
        self.count.set(self.count.get() + 1);
        self.delays.set(self.delays.get() + delay);
        if self.count.get() >= self.size.get() {
            self.adapt();
        }
        match self.owed.get() {
            0 => drop(credit),
            owed => {
                self.owed.set(owed - 1);
                credit.retire();
            }
        }
    }

    fn adapt(&self) {
        let mean = self.delays.replace(Time::ZERO).as_us() / f64::from(self.count.replace(0));
        let size = self.size.get();
        let step = size.div_ceil(STEP);
        if mean > self.target.as_us() {
            let step = step.min(size - 1);
            self.size.set(size - step);
            self.owed.set(self.owed.get() + step);
        } else {
            let step = step.min(self.size_max - size);
            self.size.set(size + step);
            let owed = self.owed.get();
            self.owed.set(owed.saturating_sub(step));
            self.credits.add(step.saturating_sub(owed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, run};
    use crate::resource::Path;

    /// Operations that take a path one after the other: each waits for all others in flight.
    fn settled(size_max: u32, target: Time) -> (u32, Time) {
        let clock = Clock::default();
        let (window, path) = (Window::new(size_max, target), Path::default());
        let operation = async |_: u32| {
            let credit = window.take().await;
            let begun = clock.now();
            clock.until(path.reserve(begun, Time::from_ns(10.0))).await;
            window.give_back(credit, clock.now() - begun);
        };
        run(&clock, 400, (0..40_000).map(operation));
        (window.size(), clock.now())
    }

    #[test]
    fn it_follows_the_delay_and_costs_no_throughput() {
        let span = Time::from_ns(400_000.0);
        assert_eq!(settled(256, Time::from_ns(1e6)), (256, span), "nothing to avoid");
        for target in [500.0, 1000.0, 2000.0] {
            let (size, end) = settled(256, Time::from_ns(target));
            // Of 10 ns each, so many make up the target.
            let wanted = target / 10.0;
            assert!((f64::from(size) / wanted - 1.0).abs() < 0.15, "{size} for {target} ns");
            assert_eq!(end, span, "the path is never idle");
        }
    }
}
