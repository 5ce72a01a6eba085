//! The time of a store, and the state that an operation reads: a version and a time.
//!
//! The caller sets the time. Sessions share it, and it does not go back. A key whose expiry has passed is missing from then
//! on, without a write and without a version. So readers take version and time from one moment:
//!
//! 1. Load the time, the read version, and the time again.
//! 2. If the time has changed, begin again.
//!
//! Otherwise a reader could combine an old time with a newer version. It would show an expired key beside a write of a
//! thread that has found that key missing.

use super::super::sync::{AtomicU32, AtomicU64, Ordering};
use super::versions::Versions;

/// The time, in milliseconds since 1970. On a line of its own: all operations read it, and it changes seldom.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Clock {
    now: AtomicU64,
    /// 1 from the first write on that gives a key an expiry.
    is_needed: AtomicU32,
}

/// The state of a store that an operation reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// All writes up to this version.
    pub(crate) version: u64,
    /// Without the keys whose expiry has passed at this time.
    pub(crate) now: u64,
}

impl Snapshot {
    /// All that was written, also keys that have expired.
    pub(crate) const ALL: Snapshot = Snapshot { version: u64::MAX, now: 0 };
}

impl Clock {
    /// Returns the time.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    /// Sets the time, unless it is later already.
    pub(crate) fn advance_to(&self, now: u64) {
        // It seldom changes, so the line stays in the caches of all cores.
        if self.now() < now {
            self.now.fetch_max(now, Ordering::AcqRel);
        }
    }

    /// Returns the newest state that can be read: at one moment it had this version and this time.
    #[inline]
    pub(crate) fn snapshot(&self, versions: &Versions) -> Snapshot {
        let mut now = self.now();
        loop {
            let version = versions.read();
            let before = std::mem::replace(&mut now, self.now());
            if now == before {
                return Snapshot { version, now };
            }
        }
    }

    /// Returns true if a key may have an expiry. A thread that can see a key with an expiry sees this too.
    #[inline]
    pub(crate) fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Relaxed) != 0
    }

    /// Notes that a key will get an expiry.
    pub(crate) fn need(&self) {
        if !self.is_needed() {
            self.is_needed.store(1, Ordering::Relaxed);
        }
    }
}
