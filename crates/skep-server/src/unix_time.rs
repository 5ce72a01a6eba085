//! The time of day, which a caller reads once a turn: for expiries, which are times of day too.
//!
//! The clock of a machine may jump: by hand, by a wrong time server, or because the machine slept. So a server has a
//! [`Clock`] of its own:
//!
//! ```text
//!   time after a reading = time before it + what the monotonic clock has counted + a correction
//!
//!   machine's time less the server's   correction                                           why
//!   at most 1 s                        towards it, by at most a tenth of the time counted   usual steps of NTP
//!   more, for less than a minute       none                                                 it may be wrong
//!   ahead by more, for a minute        the whole difference                                 it was wrong before
//!   behind by more, for a minute       back, by half of the time counted                    it was wrong before
//! ```
//!
//! 1. So the time never goes back, and it never stands still: it counts at least half of each second.
//! 2. A jump that lasts a minute is followed: ahead at once, back by an hour in two hours. The minute begins again if
//!    the machine's time jumps again meanwhile.
//! 3. A jump that is taken back within a minute changes nothing.
//! 4. The time of a start is the latest that the data directory states, if the machine's is earlier. Then this is a jump back
//!    too: the directory's time is where the clock begins, and no bound for later.
//!
//! All shards share one clock ([`SharedClock`]). The first shard whose turn begins 10 ms after the last reading makes the
//! next one, and those that begin one meanwhile wait for it: the last reading may be long ago. In all other turns the
//! time is that of the turn on the monotonic clock and an offset.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Times in a clock are microseconds, so that 64 bits hold any date.
const SECOND: i64 = 1_000_000;
/// A larger difference from the machine's time is a jump.
const JUMP: i64 = SECOND;
/// The part of the time counted by which a smaller difference is corrected: a second in ten seconds. So a key lives at most
/// a ninth longer or shorter than its time to live, and never by more than a second.
const SLEW_PART: i64 = 10;
/// The time after which a jump is followed.
const HOLD: i64 = 60 * SECOND;
/// The part of the time counted by which a jump back is followed.
const BACK_PART: i64 = 2;
/// The time between two readings of the shared clock.
const READING_TIME: Duration = Duration::from_millis(10);
/// The time between two warnings about jumps. All of them are counted.
const WARNING_TIME: i64 = 60 * SECOND;

/// The time since 1970 began (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnixTime(Duration);

impl UnixTime {
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

/// Returns the time of a machine's clock after 1970 began. A clock before 1970 counts as its beginning.
pub(crate) fn since_1970(clock: SystemTime) -> Duration {
    clock.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn microseconds(duration: Duration) -> i64 {
    // Half of the range: a sum of two times does not overflow.
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX).min(i64::MAX / 2)
}

/// A clock that follows that of the machine, but not its jumps.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The time since 1970, at the last reading.
    time: i64,
    /// The monotonic clock then.
    monotonic: i64,
    /// The machine's time less that of this clock.
    error: i64,
    /// The jump that lasts.
    jump: Option<Jump>,
    /// Jumps so far.
    jumps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Jump {
    /// The machine's time less the monotonic clock, at the last reading.
    offset: i64,
    /// The first reading after the jump, on the monotonic clock.
    since: i64,
}

impl Clock {
    /// Begins at the machine's time `wall`, or at `not_before` if that is later; both are times after 1970 began.
    /// `monotonic` counts from any moment.
    pub fn new(monotonic: Duration, wall: Duration, not_before: Duration) -> Clock {
        let (wall, monotonic) = (microseconds(wall), microseconds(monotonic));
        let time = wall.max(microseconds(not_before));
        let mut clock = Clock { time, monotonic, error: wall - time, jump: None, jumps: 0 };
        clock.note_jump(wall - monotonic);
        clock
    }

    /// Takes a reading of both clocks. Returns true if the machine's time has jumped since the last one.
    pub fn read(&mut self, monotonic: Duration, wall: Duration) -> bool {
        let (wall, monotonic) = (microseconds(wall), microseconds(monotonic).max(self.monotonic));
        let counted = monotonic - self.monotonic;
        self.monotonic = monotonic;
        self.time += counted;
        self.error = wall - self.time;
        let has_jumped = self.note_jump(wall - monotonic);
        let correction_max = match self.jump {
            None => counted / SLEW_PART,
            Some(jump) if monotonic - jump.since < HOLD => 0,
            Some(_) if self.error > 0 => self.error,
            Some(_) => counted / BACK_PART,
        };
        let correction = self.error.clamp(-correction_max, correction_max);
        self.time += correction;
        self.error -= correction;
        has_jumped
    }

    /// Notes the offset of a reading. Returns true if a jump was between it and the one before.
    fn note_jump(&mut self, offset: i64) -> bool {
        if self.error.abs() <= JUMP {
            self.jump = None;
            return false;
        }
        let is_known = self.jump.is_some_and(|jump| (jump.offset - offset).abs() <= JUMP);
        let since = self.jump.filter(|_| is_known).map_or(self.monotonic, |jump| jump.since);
        self.jump = Some(Jump { offset, since });
        self.jumps += u64::from(!is_known);
        !is_known
    }

    /// Returns the time after 1970 began, at the last reading.
    pub fn time(&self) -> Duration {
        Duration::from_micros(self.time.max(0).cast_unsigned())
    }
}

/// The clock of a server.
#[derive(Debug)]
pub(crate) struct SharedClock {
    /// Where the monotonic clock begins.
    origin: Instant,
    /// The time less the monotonic clock, at the last reading.
    offset: AtomicI64,
    /// When the next reading is due, on the monotonic clock.
    next_reading: AtomicI64,
    /// Milliseconds by which the machine's time was ahead, and jumps so far.
    ahead: AtomicI64,
    jumps: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    clock: Clock,
    /// No jump is warned about before, on the monotonic clock.
    next_warning: i64,
}

/// A reading of both clocks.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    monotonic: Instant,
    /// The clock of the machine.
    wall: SystemTime,
}

impl SharedClock {
    /// Begins with this reading, but not before a time in milliseconds since 1970.
    pub(crate) fn new(reading: Reading, not_before: u64) -> SharedClock {
        let clock = Clock::new(Duration::ZERO, since_1970(reading.wall), Duration::from_millis(not_before));
        if clock.error < -JUMP {
            tracing::warn!(
                seconds = -clock.error / SECOND,
                "the machine's clock is behind the last time in the data directory: time begins there, and if that lasts a \
                 minute, it runs at half speed until both are equal"
            );
        }
        SharedClock {
            origin: reading.monotonic,
            offset: AtomicI64::new(clock.time),
            next_reading: AtomicI64::new(0),
            ahead: AtomicI64::new(clock.error / 1000),
            jumps: AtomicU64::new(clock.jumps),
            state: Mutex::new(State { clock, next_warning: 0 }),
        }
    }

    /// Returns the time `now`. Calls `read` for a reading of both clocks if one is due. A thread may see an earlier time
    /// than another one, or than it has seen before, by less than the time of a reading.
    pub(crate) fn time(&self, now: Instant, read: impl FnOnce() -> Reading) -> UnixTime {
        let now = self.since_origin(now);
        if self.is_due(now) {
            self.read(now, read);
        }
        let time = now + self.offset.load(Ordering::Relaxed);
        UnixTime::after(Duration::from_micros(time.max(0).cast_unsigned()))
    }

    /// Returns true if a reading is due `now`. If not, the offset is at least as new as the last reading.
    fn is_due(&self, now: i64) -> bool {
        now >= self.next_reading.load(Ordering::Acquire)
    }

    /// Returns the time now, for what is not part of a turn.
    pub(crate) fn time_now(&self) -> UnixTime {
        self.time(Instant::now(), read_clocks)
    }

    /// Makes a reading, unless another thread has made one after `now` while this one waited for it.
    fn read(&self, now: i64, read: impl FnOnce() -> Reading) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_due(now) {
            return;
        }
        let State { clock, next_warning } = &mut *state;
        let Reading { monotonic, wall } = read();
        let has_jumped = clock.read(monotonic.saturating_duration_since(self.origin), since_1970(wall));
        let ahead = clock.error / 1000;
        let warns = has_jumped && clock.monotonic >= *next_warning;
        if warns {
            *next_warning = clock.monotonic + WARNING_TIME;
        }
        self.jumps.store(clock.jumps, Ordering::Relaxed);
        self.ahead.store(ahead, Ordering::Relaxed);
        self.offset.store(clock.time - clock.monotonic, Ordering::Relaxed);
        self.next_reading.store(clock.monotonic + microseconds(READING_TIME), Ordering::Release);
        drop(state);
        if warns {
            tracing::warn!(
                ahead_milliseconds = ahead,
                "the machine's clock has jumped: it is followed if that lasts a minute"
            );
        }
    }

    fn since_origin(&self, now: Instant) -> i64 {
        microseconds(now.saturating_duration_since(self.origin))
    }

    /// Returns the milliseconds by which the machine's time is ahead of this clock.
    pub(crate) fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Returns the number of jumps of the machine's time.
    pub(crate) fn jumps(&self) -> u64 {
        self.jumps.load(Ordering::Relaxed)
    }
}

/// Reads the monotonic clock and that of the machine, one after the other.
pub(crate) fn read_clocks() -> Reading {
    Reading { monotonic: Instant::now(), wall: SystemTime::now() }
}

#[cfg(test)]
mod tests;
