//! The time that a write waits for memory.
//!
//! A write that finds no memory is not refused while garbage waits to be freed, which may be all that it needs. It
//! waits until one of these holds, and is refused if there is still no memory:
//!
//! 1. As much garbage was freed as there was when memory ran short. Then memory is full of pairs, and the write could
//!    wait for the garbage of later writes for ever.
//! 2. No garbage was freed for a second. Then an operation in flight does not end, such as a scan that is paused.
//!
//! A write that must not fail, see [`Claim`](super::super::space::Claim), is refused only if it has waited a second
//! itself.
//!
//! In batches time is an argument, and the write is deferred: its thread does other work. A single call waits in its
//! thread, in steps that are counted.

use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use super::super::version::reclaim::GarbageCounts;

/// The time that writes wait while no garbage is freed.
pub(crate) const MEMORY_WAIT: Duration = Duration::from_secs(1);

/// Steps of waiting in which a thread yields, and steps in which it sleeps.
const YIELD_COUNT: u32 = 64;
const SLEEP: Duration = Duration::from_millis(1);
const STEP_COUNT: u32 = YIELD_COUNT + (MEMORY_WAIT.as_millis() / SLEEP.as_millis()) as u32;

/// The shortage of memory that a session's batches are in.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Pieces of garbage that have been freed when the waiting writes are refused.
    end: Option<u64>,
    /// Pieces that were freed when the session last saw garbage wait, and the time when it first saw that number.
    seen: Option<(u64, Instant)>,
    /// The time since which writes wait that must not fail.
    must_succeed_since: Option<Instant>,
}

impl Shortage {
    /// Returns true if a write is to be refused that has just found no memory. `before` was read before the attempt. A
    /// write that must not fail still waits when no garbage is left: other threads are using the reserve and return it.
    pub(crate) fn is_over(&mut self, before: GarbageCounts, must_succeed: bool, now: Instant) -> bool {
        if before.freed >= *self.end.get_or_insert(before.handed_over) && !must_succeed {
            return true;
        }
        let since = match self.seen {
            Some((freed, since)) if freed == before.freed => since,
            _ => now,
        };
        self.seen = Some((before.freed, since));
        // It waits a second of its own, since others that were refused have not waited for it. Writes that wait with it
        // are refused with it; otherwise many would be refused one by one, each after a second.
        let since = if must_succeed { since.max(*self.must_succeed_since.get_or_insert(now)) } else { since };
        now.saturating_duration_since(since) >= MEMORY_WAIT
    }

    /// Notes that a waiting write has added to the garbage that will be freed.
    pub(crate) fn prolong(&mut self, handed_over: u64) {
        self.end = Some(handed_over);
    }

    /// Notes that no write waits any more. The time since which no garbage was freed is kept.
    pub(crate) fn end(&mut self) {
        self.end = None;
        self.must_succeed_since = None;
    }
}

/// Lets time pass while other threads end their operations. Returns false after a second.
pub(crate) fn pause(step: &mut u32) -> bool {
    *step += 1;
    if *step > YIELD_COUNT {
        sleep(SLEEP);
    } else {
        yield_now();
    }
    *step < STEP_COUNT
}
