//! How a shard waits for work: for a moment it looks for it, and gives its core to other threads meanwhile. Then it sleeps.
//!
//! A thread that computes keeps a core that is given to it for milliseconds. A shard that sleeps instead gets the core back
//! as soon as there is work. So after such a loss, a shard does not look for work, but sleeps at once, for a while.

use std::time::{Duration, Instant};

use crate::limits::{CORE_SHARED_TIME, SPIN_TIME, YIELD_MAX};

/// The time until which a shard looks for work.
#[derive(Debug)]
pub(super) struct Spin {
    until: Instant,
    /// Until then, another thread is taken to want the core.
    shared_until: Instant,
}

impl Spin {
    pub(super) fn new(now: Instant) -> Spin {
        Spin { until: now, shared_until: now }
    }

    /// Looks for work from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        self.until = if now < self.shared_until { now } else { now + SPIN_TIME };
    }

    /// Looks for work no longer.
    pub(super) fn end(&mut self, now: Instant) {
        self.until = now;
    }

    /// Returns true if the shard looks for work.
    pub(super) fn is_on(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Records that another thread had the core for this time, until now.
    pub(super) fn gave_core(&mut self, time: Duration, now: Instant) {
        if time > YIELD_MAX {
            self.shared_until = now + CORE_SHARED_TIME;
            self.end(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_another_thread_keeps_is_not_given_away_again() {
        let now = Instant::now();
        let mut spin = Spin::new(now);
        assert!(!spin.is_on(now));
        spin.begin(now);
        spin.gave_core(YIELD_MAX, now);
        assert!(spin.is_on(now) && !spin.is_on(now + SPIN_TIME));
        spin.gave_core(YIELD_MAX + Duration::from_nanos(1), now);
        assert!(!spin.is_on(now));
        for (after, is_on) in [(Duration::ZERO, false), (CORE_SHARED_TIME / 2, false), (CORE_SHARED_TIME, true)] {
            spin.begin(now + after);
            assert_eq!(spin.is_on(now + after), is_on, "{after:?}");
        }
    }
}
