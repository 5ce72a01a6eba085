//! Virtual time in integer picoseconds, so that sums are exact and a run can be repeated bit for bit.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Mul, Sub};

/// A time since the start of a run, or a duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The start, or a duration of zero.
    pub const ZERO: Time = Time(0);

    /// Returns this many picoseconds.
    pub const fn from_ps(picoseconds: u64) -> Self {
        Time(picoseconds)
    }

    /// Returns this many nanoseconds, rounded to picoseconds. A negative number is zero.
    pub fn from_ns(nanoseconds: f64) -> Self {
        Time((nanoseconds * 1e3).round() as u64)
    }

    /// Returns the cycle of a clock.
    pub fn cycle(mhz: f64) -> Self {
        Time::from_ns(1e3 / mhz)
    }

    /// Returns the time that this many bytes take on a path of this bandwidth. A GB is 10⁹ bytes.
    pub fn of_bytes(bytes: u64, gb_per_s: f64) -> Self {
        Time::from_ns(bytes as f64 / gb_per_s)
    }

    /// Returns the time in picoseconds.
    pub fn as_ps(self) -> u64 {
        self.0
    }

    /// Returns the time in nanoseconds.
    pub fn as_ns(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Returns the time in microseconds.
    pub fn as_us(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the first edge of a clock at this time or after it.
    pub fn next_edge(self, cycle: Time) -> Time {
        Time(self.0.next_multiple_of(cycle.0.max(1)))
    }

    /// Returns one of `parts` equal parts, rounded down.
    pub fn part(self, parts: u64) -> Time {
        Time(self.0 / parts)
    }

    /// Returns this duration as a share of another.
    pub fn share_of(self, span: Time) -> f64 {
        self.0 as f64 / span.0 as f64
    }

    /// Returns the difference to `earlier`, or zero if it would be negative.
    pub fn saturating_sub(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Time {
    type Output = Time;

    fn add(self, span: Time) -> Time {
        Time(self.0 + span.0)
    }
}

impl Sub for Time {
    type Output = Time;

    fn sub(self, earlier: Time) -> Time {
        Time(self.0 - earlier.0)
    }
}

impl Mul<u64> for Time {
    type Output = Time;

    fn mul(self, count: u64) -> Time {
        Time(self.0 * count)
    }
}

impl Sum for Time {
    fn sum<I: Iterator<Item = Time>>(spans: I) -> Time {
        spans.fold(Time::ZERO, Add::add)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ns", self.as_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn units_agree() {
        assert_eq!(Time::cycle(250.0), Time::from_ns(4.0));
        assert_eq!(Time::of_bytes(64, 12.8), Time::from_ps(5000));
        assert_eq!(Time::from_ns(4.001).next_edge(Time::from_ns(4.0)), Time::from_ns(8.0));
        assert_eq!(Time::from_ns(8.0).next_edge(Time::from_ns(4.0)), Time::from_ns(8.0));
        assert_eq!(Time::from_ns(1500.0).as_us(), 1.5);
    }
}
