//! The replay of a log: operations are executed again, at the times at which they were executed first.
//!
//! A server frees expired keys all the time. A log of many short-lived keys may be far larger than the memory. So its replay
//! frees them too, when an operation finds no memory:
//!
//! 1. The operation and later ones on its key are deferred, so that the order of the key is kept.
//! 2. The caller sees that by [`HashTable::wants_reclaim`], frees keys that have expired, and executes them again.
//! 3. If no key has expired, the operation fails: then there were as many pairs when it was executed first.
//!
//! **Times may go back** between two blocks of a log, if several threads have written it and one replays it. Each thread's
//! time never goes back. So a key that has expired at one time may be found by a later operation of an earlier time. The
//! caller tells the time before which no later operation was executed: keys that have expired by then are freed.

use super::table::HashTable;
use crate::memory::{LINE_SIZE, LocalMemory, Memory, Pointer};

impl HashTable<LocalMemory> {
    /// Opens the spare memory: slabs are taken from it when the memory has none.
    pub(crate) fn open_spare(&mut self) {
        // The last line stays unused, as that of the memory.
        let end = self.memory.open_spare() / LINE_SIZE as u64 - 1;
        self.slabs().open_spare(Pointer::to_line(end));
    }

    /// Closes the spare memory, and gives it back to the system if no slab of it is in use.
    pub(crate) fn close_spare(&mut self) {
        self.slabs().close_spare();
        if self.debt() == 0 {
            self.memory.close_spare();
        }
    }
}

impl<M: Memory> HashTable<M> {
    /// Sets the time of a replay, and the time from which on all later operations were executed.
    pub(crate) fn begin_replay(&self, now: u64, all_after: u64) {
        self.set_time(now);
        self.replayed_until.set(Some(all_after));
    }

    /// Ends a replay, at this time.
    pub(crate) fn end_replay(&self, now: u64) {
        self.replayed_until.set(None);
        self.set_time(now);
    }

    /// Returns true in a replay if keys have expired that can be freed.
    pub(crate) fn may_free_for_replay(&self) -> bool {
        self.replayed_until.get().is_some_and(|time| self.earliest_expiry() <= time)
    }
}
