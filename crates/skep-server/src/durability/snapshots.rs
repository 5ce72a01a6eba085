//! The snapshots of a server, as shards and commands see them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::walk::OrderedWalk;

/// The snapshot that is being taken, and those before it.
#[derive(Debug)]
pub(crate) struct Snapshots {
    /// The number of the one that is being taken; 0: none is.
    number: AtomicU64,
    /// When it began, in milliseconds after `epoch`.
    begun_at: AtomicI64,
    epoch: Instant,
    /// Snapshots that were completed since the start.
    completed: AtomicU64,
    /// The last request before the beginning of a snapshot that has ended, and of one that was completed.
    ended_request: AtomicU64,
    completed_request: AtomicU64,
    /// When the last complete one was, in seconds since 1970: at first that of the start.
    last_at: AtomicI64,
    /// How long the last one took, in seconds; -1: there was none.
    last_time: AtomicI64,
    /// The last one was given up.
    has_failed: AtomicBool,
    /// The walk over the ordered space, in which the shards take their turns.
    pub(super) ordered: Mutex<OrderedWalk>,
}

impl Default for Snapshots {
    fn default() -> Snapshots {
        Snapshots {
            number: AtomicU64::new(0),
            begun_at: AtomicI64::new(0),
            epoch: Instant::now(),
            completed: AtomicU64::new(0),
            ended_request: AtomicU64::new(0),
            completed_request: AtomicU64::new(0),
            last_at: AtomicI64::new(unix_milliseconds() / 1000),
            last_time: AtomicI64::new(-1),
            has_failed: AtomicBool::new(false),
            ordered: Mutex::default(),
        }
    }
}

fn unix_milliseconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as i64)
}

impl Snapshots {
    /// Returns the number of the snapshot that is being taken; 0 if none is.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Returns how long the present one has taken, in seconds.
    pub(crate) fn seconds(&self) -> Option<i64> {
        (self.number() != 0).then(|| (self.milliseconds() - self.begun_at.load(Ordering::Relaxed)) / 1000)
    }

    /// Returns the milliseconds since `epoch`. The machine's time of day may jump.
    fn milliseconds(&self) -> i64 {
        self.epoch.elapsed().as_millis() as i64
    }

    /// Returns the last request whose snapshot has ended.
    pub(crate) fn ended_request(&self) -> u64 {
        self.ended_request.load(Ordering::Acquire)
    }

    /// Returns the last request whose snapshot was completed.
    pub(crate) fn completed_request(&self) -> u64 {
        self.completed_request.load(Ordering::Acquire)
    }

    /// Returns the number of those that were completed since the start.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Returns when the last complete one was, in seconds since 1970.
    pub(crate) fn last_at(&self) -> i64 {
        self.last_at.load(Ordering::Relaxed)
    }

    /// Returns how long the last one took, in seconds; -1 if there was none.
    pub(crate) fn last_time(&self) -> i64 {
        self.last_time.load(Ordering::Relaxed)
    }

    /// Returns true if the last one was given up.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Begins one: shards walk as soon as they see its number.
    pub(crate) fn begin(&self, number: u64) {
        self.begun_at.store(self.milliseconds(), Ordering::Relaxed);
        self.number.store(number, Ordering::Release);
    }

    /// Ends the present one. It was begun after this request.
    pub(crate) fn end(&self, is_complete: bool, request: u64) {
        // One that could not begin took no time.
        let seconds = self.seconds().unwrap_or(0);
        self.last_time.store(seconds, Ordering::Relaxed);
        self.has_failed.store(!is_complete, Ordering::Relaxed);
        if is_complete {
            self.last_at.store(unix_milliseconds() / 1000, Ordering::Relaxed);
            self.completed.fetch_add(1, Ordering::Relaxed);
            self.completed_request.store(request, Ordering::Release);
        }
        self.number.store(0, Ordering::Release);
        self.ended_request.store(request, Ordering::Release);
    }
}
