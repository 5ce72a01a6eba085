//! The level of durability, and what keeps the log from being written, as all threads see them.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::vocabulary::Durability;

/// The numbers of file systems in memory (`linux/magic.h`): tmpfs and ramfs.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

const LEVELS: [Durability; 3] = [Durability::Memory, Durability::Second, Durability::Always];

/// The time between two statements of the time in the log, in milliseconds.
const TIME_STEP: u64 = 100;

/// The latest time that the log states, in milliseconds since 1970; that of operations may be later by [`TIME_STEP`]. At the
/// level `memory`, snapshots and the end of the server state it.
#[derive(Debug, Default)]
pub(crate) struct StatedTime {
    last: AtomicU64,
    /// Keys have had an expiry since the start: those may have expired that are gone.
    is_needed: AtomicBool,
    /// An operation was executed since the start.
    has_executed: AtomicBool,
}

impl StatedTime {
    /// Begins with the time that the log states. `is_needed` says that keys have an expiry.
    pub(crate) fn new(last: u64, is_needed: bool) -> StatedTime {
        StatedTime { last: AtomicU64::new(last), is_needed: AtomicBool::new(is_needed), ..StatedTime::default() }
    }

    pub(crate) fn get(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Notes that operations were executed. Returns true if these are the first ones.
    pub(crate) fn note_execution(&self) -> bool {
        !self.has_executed.load(Ordering::Relaxed) && !self.has_executed.swap(true, Ordering::Relaxed)
    }

    /// Returns true if keys may be removed from memory that have expired by the clock of this server. Before the first
    /// operation no client has met that clock, which may be wrong: a snapshot is to have these keys.
    pub(crate) fn removes_keys(&self) -> bool {
        self.has_executed.load(Ordering::Relaxed)
    }

    /// Returns true if the log is to state this time: then the caller appends it. `has_expiries` says that keys have an
    /// expiry. All shards read what one of them has written, so this counts for all.
    pub(crate) fn note(&self, now: u64, has_expiries: impl FnOnce() -> bool) -> bool {
        if !self.is_needed.load(Ordering::Relaxed) {
            if !has_expiries() {
                return false;
            }
            self.is_needed.store(true, Ordering::Relaxed);
        }
        let last = self.get();
        let is_due = now >= last.saturating_add(TIME_STEP);
        is_due && self.last.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// A level that changes while the server runs.
#[derive(Debug)]
pub(crate) struct AtomicLevel(AtomicU8);

impl AtomicLevel {
    pub(crate) fn new(level: Durability) -> AtomicLevel {
        AtomicLevel(AtomicU8::new(level as u8))
    }

    pub(crate) fn get(&self) -> Durability {
        LEVELS[usize::from(self.0.load(Ordering::Acquire))]
    }

    pub(crate) fn set(&self, level: Durability) {
        self.0.store(level as u8, Ordering::Release);
    }
}

/// The size of the data directory, and the room beside it.
#[derive(Debug, Default)]
pub(crate) struct DiskSpace {
    used: AtomicU64,
    free: AtomicU64,
}

impl DiskSpace {
    /// Measures the directory. Returns false if it is gone, or has no files any more. What cannot be read is left out.
    pub(crate) fn measure(&self, path: &Path) -> bool {
        let files = match std::fs::read_dir(path) {
            Ok(files) => files,
            Err(error) => return error.kind() != ErrorKind::NotFound,
        };
        let (mut used, mut count) = (0, 0);
        for file in files.flatten() {
            used += file.metadata().map_or(0, |file| file.len());
            count += 1;
        }
        let free = rustix::fs::statvfs(path).map_or(0, |disk| disk.f_bavail * disk.f_frsize);
        self.used.store(used, Ordering::Relaxed);
        self.free.store(free, Ordering::Relaxed);
        count > 0
    }

    /// Returns true if a directory is in memory: a flush keeps nothing there when the machine stops.
    pub(crate) fn is_in_memory(path: &Path) -> bool {
        rustix::fs::statfs(path).is_ok_and(|disk| IN_MEMORY.contains(&disk.f_type))
    }

    /// Returns the bytes of the directory's files.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the bytes that its disk has left.
    pub(crate) fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }
}

/// A reason why the log cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A write has failed. A fresh log and a snapshot end it.
    Failed = 1,
    /// The next segment could not be prepared. It is tried again.
    NoSegment = 2,
    /// The data directory is gone.
    NoDirectory = 4,
}

/// The reasons why the log cannot be written. While there are any, writes are refused.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    bits: AtomicU8,
    /// Failures of the log since the start.
    failures: AtomicU64,
    /// The attempt to begin a fresh log has failed too.
    are_given_up: AtomicBool,
    /// What the disk has reported for each of them, the last one at the end.
    reasons: Mutex<Vec<(Trouble, String)>>,
}

impl Troubles {
    /// Returns true if there are any.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.bits.load(Ordering::Acquire) != 0
    }

    /// Returns the number of the failure that is not over; 0 if there is none.
    pub(crate) fn failure(&self) -> u64 {
        // In this order: a failure that begins later is not taken for an earlier one.
        let number = self.failures.load(Ordering::Acquire);
        if self.have(Trouble::Failed) { number } else { 0 }
    }

    /// Returns true if there is this one.
    pub(crate) fn have(&self, trouble: Trouble) -> bool {
        self.bits.load(Ordering::Acquire) & trouble as u8 != 0
    }

    /// Returns what the disk reported last.
    pub(crate) fn reason(&self) -> Option<String> {
        let reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        reasons.last().map(|(_, reason)| reason.clone())
    }

    /// Returns true if the attempt to begin a fresh log has failed too.
    pub(crate) fn are_given_up(&self) -> bool {
        self.are_given_up.load(Ordering::Acquire)
    }

    /// Notes that the attempt to begin a fresh log has failed too, or that another one begins.
    pub(crate) fn set_given_up(&self, are_given_up: bool) {
        self.are_given_up.store(are_given_up, Ordering::Release);
    }

    /// Begins one, for this reason, or ends it.
    pub(crate) fn set(&self, trouble: Trouble, reason: Option<String>) {
        if trouble == Trouble::Failed && reason.is_some() {
            self.failures.fetch_add(1, Ordering::AcqRel);
        }
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        match &reason {
            Some(_) => self.bits.fetch_or(trouble as u8, Ordering::AcqRel),
            None => self.bits.fetch_and(!(trouble as u8), Ordering::AcqRel),
        };
        reasons.retain(|(earlier, _)| *earlier != trouble);
        reasons.extend(reason.map(|reason| (trouble, reason)));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{DiskSpace, Trouble, Troubles};

    #[test]
    fn directories_in_memory_are_known() {
        assert!(DiskSpace::is_in_memory(Path::new("/dev/shm")) && !DiskSpace::is_in_memory(Path::new("/proc")));
    }

    #[test]
    fn each_trouble_ends_alone() {
        let troubles = Troubles::default();
        troubles.set(Trouble::Failed, Some("EIO".to_owned()));
        troubles.set(Trouble::NoSegment, Some("ENOSPC".to_owned()));
        assert_eq!(troubles.reason().as_deref(), Some("ENOSPC"));
        troubles.set(Trouble::NoSegment, None);
        assert_eq!(troubles.reason().as_deref(), Some("EIO"));
        assert!(troubles.are_any() && troubles.have(Trouble::Failed) && !troubles.have(Trouble::NoSegment));
        troubles.set(Trouble::Failed, None);
        assert!(!troubles.are_any() && troubles.reason().is_none());
    }
}
