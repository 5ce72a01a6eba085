//! The levels of durability: the one in force, the one that is wanted, and how one comes after the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Log;
use super::state::{AtomicLevel, Trouble};
use crate::vocabulary::Durability;

/// The levels of durability.
#[derive(Debug)]
pub(super) struct Levels {
    /// The level that is in force.
    level: AtomicLevel,
    /// The level that comes into force with the snapshot that is being taken.
    pub(super) wanted: AtomicLevel,
    /// The last level that was asked for and is not `memory`.
    with_log: AtomicLevel,
    /// Held while one of these changes.
    changing: Mutex<()>,
    /// Shards record what takes place: the level is not `memory`, or a snapshot is being taken.
    records: AtomicBool,
}

impl Levels {
    pub(super) fn new(level: Durability) -> Levels {
        Levels {
            level: AtomicLevel::new(level),
            wanted: AtomicLevel::new(level),
            with_log: AtomicLevel::new(if level == Durability::Second { level } else { Durability::Always }),
            changing: Mutex::default(),
            records: AtomicBool::new(level != Durability::Memory),
        }
    }
}

impl Log {
    /// Returns the level that is in force.
    pub(crate) fn level(&self) -> Durability {
        self.levels.level.get()
    }

    /// Returns the level that was asked for last.
    pub(crate) fn wanted_level(&self) -> Durability {
        self.levels.wanted.get()
    }

    /// Returns the level that `appendonly yes` means: the last one with a log.
    pub(crate) fn level_with_log(&self) -> Durability {
        self.levels.with_log.get()
    }

    /// Changes the level, and the one that `appendonly yes` means. Up from `memory` it comes into force with a snapshot, which
    /// the keeper takes first.
    pub(crate) fn set_levels(&self, level: Durability, with_log: Durability) {
        let _changing = self.lock_level();
        self.levels.with_log.set(with_log);
        let before = self.levels.wanted.get();
        if before != level {
            tracing::warn!("the level of durability changes from {before} to {level}");
            self.levels.wanted.set(level);
            self.pursue(level);
        }
    }

    fn lock_level(&self) -> MutexGuard<'_, ()> {
        self.levels.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins what leads to a level.
    fn pursue(&self, level: Durability) {
        match (self.level(), level) {
            (Durability::Memory, Durability::Memory) => {}
            (Durability::Memory, _) => _ = self.tasks.take_snapshot(),
            (_, level) => {
                self.levels.level.set(level);
                self.tasks.note_level();
                self.flush();
                // They may have held replies, or have stopped because of the disk.
                self.wake_shards();
            }
        }
    }

    /// Takes back the change to the level `memory`: it could not be noted on disk. Another one may have been asked for
    /// meanwhile.
    pub(crate) fn refuse_level(&self) {
        let _changing = self.lock_level();
        if self.levels.wanted.get() == Durability::Memory {
            self.levels.wanted.set(Durability::Second);
        }
        self.levels.level.set(self.levels.wanted.get());
    }

    /// Brings the level into force for which the manifest of a snapshot was written. Another one may have been asked for
    /// meanwhile.
    pub(crate) fn settle_level(&self, level: Durability) {
        let _changing = self.lock_level();
        let queue = self.lock();
        // While the queue is locked: a block is dropped at the level `memory` only.
        self.levels.level.set(level);
        let is_broken = queue.is_broken;
        drop(queue);
        self.set_records(level != Durability::Memory);
        if is_broken && level != Durability::Memory && !self.troubles.have(Trouble::Failed) {
            self.fail("the disk was too slow for the log to begin".to_owned());
        }
        // Blocks that have waited by the rule of the level before are due.
        self.flush();
        if self.levels.wanted.get() != level {
            self.pursue(self.levels.wanted.get());
        }
    }

    /// Returns true if shards record what takes place.
    #[inline]
    pub(crate) fn records(&self) -> bool {
        self.levels.records.load(Ordering::Acquire)
    }

    pub(crate) fn set_records(&self, records: bool) {
        self.levels.records.store(records, Ordering::Release);
    }
}
