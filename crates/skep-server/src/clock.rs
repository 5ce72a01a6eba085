//! The time of the day, for expiries.
//!
//! A turn has one time, an [`Instant`] that is an argument. The clock knows which time of the day an instant is. It is set
//! again at every tick of a shard, because the system's clock may be set while the server runs. A simulation never sets
//! it, so the same seed gives the same times.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Tells the time of the day of an instant.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
    /// Milliseconds from 1970 to the origin.
    origin_milliseconds: AtomicU64,
}

impl Clock {
    /// Returns a clock that is right now.
    pub(crate) fn new() -> Self {
        let clock = Clock { origin: Instant::now(), origin_milliseconds: AtomicU64::new(0) };
        clock.set(clock.origin, SystemTime::now());
        clock
    }

    /// Sets the clock: `now` is this time of the day.
    pub(crate) fn set(&self, now: Instant, time: SystemTime) {
        let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        self.origin_milliseconds.store(since_1970.saturating_sub(self.since_origin(now)), Ordering::Relaxed);
    }

    /// Returns the milliseconds from the beginning of 1970 to `now`.
    pub(crate) fn milliseconds(&self, now: Instant) -> u64 {
        self.origin_milliseconds.load(Ordering::Relaxed) + self.since_origin(now)
    }

    fn since_origin(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.origin).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_goes_on_from_the_time_to_which_it_was_set() {
        let clock = Clock::new();
        let now = clock.origin + Duration::from_millis(1500);
        clock.set(now, UNIX_EPOCH + Duration::from_millis(9000));
        assert_eq!(clock.milliseconds(now), 9000);
        assert_eq!(clock.milliseconds(now + Duration::from_micros(2900)), 9002);
        clock.set(now, UNIX_EPOCH);
        assert_eq!(clock.milliseconds(now), 1500, "a clock never shows a time before its origin was 1970");
    }
}
