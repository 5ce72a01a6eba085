//! The time of day, which a caller reads once a turn: for expiries, which are times of day too.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time since 1970 began (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnixTime(Duration);

impl UnixTime {
    /// Returns the time of a clock. A clock before 1970 counts as its beginning.
    pub(crate) fn of(clock: SystemTime) -> Self {
        UnixTime(clock.duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// Returns the time that is this long after 1970 began.
    pub(crate) fn after(duration: Duration) -> Self {
        UnixTime(duration)
    }

    /// Returns the milliseconds.
    pub(crate) fn milliseconds(self) -> i64 {
        self.0.as_millis() as i64
    }

    /// Returns the seconds, and the microseconds of the last one.
    pub(crate) fn seconds_and_microseconds(self) -> (u64, u32) {
        (self.0.as_secs(), self.0.subsec_micros())
    }
}
