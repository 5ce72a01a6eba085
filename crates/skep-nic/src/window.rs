//! The congestion window: limits the operations that clients may have in flight by their delay (KV-Direct, thesis
//! chapter, "Congestion Avoidance").
//!
//! ```text
//! credit ─▶ wire ─▶ KV processor ─▶ wire ─▶ credit back, with the delay
//!                                              │ mean of a window's worth of operations
//!            window ◀── shrinks above the target, grows below ──┘
//! ```
//!
//! If every buffer may fill, an operation waits for all operations before it, but the throughput is no higher. RDMA's
//! credits limit the clients. According to the paper, the window follows the running average of the delay, as in TCP
//! Vegas. The paper does not give the parameters. The parameters here are a target delay, and steps of a sixteenth of
//! the window.

use std::cell::Cell;

use crate::resource::{Slot, Slots};
use crate::time::Time;

/// The window grows or shrinks by one part in this number at a time.
const STEP: u32 = 16;

/// A congestion window that follows the delay.
#[derive(Debug)]
pub struct Window {
    credits: Slots,
    size: Cell<u32>,
    size_max: u32,
    target: Time,
    /// Number of credits to remove when they return.
    owed: Cell<u32>,
    /// Operations since the size was last set, and the sum of their delays.
    count: Cell<u32>,
    delays: Cell<Time>,
}

impl Window {
    /// Returns a window of the largest size.
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

    /// Returns the largest number of operations in flight, at this time.
    pub fn size(&self) -> u32 {
        self.size.get()
    }

    /// Waits for a credit.
    pub async fn take(&self) -> Slot<'_> {
        self.credits.take().await
    }

    /// Returns a credit, for an operation with this delay.
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

    /// Runs operations that use one path, so that each waits for all others in flight. Returns the final size and the
    /// end.
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
            // Operations of 10 ns each: this number of them makes up the target.
            let wanted = target / 10.0;
            assert!((f64::from(size) / wanted - 1.0).abs() < 0.15, "{size} for {target} ns");
            assert_eq!(end, span, "the path is never idle");
        }
    }
}
