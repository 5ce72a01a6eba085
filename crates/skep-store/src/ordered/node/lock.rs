//! The state of a node: lock word and sizes of its log block in one word, so that one store publishes an entry and opens
//! the lock (Honeycomb, section 3.4).
//!
//! ```text
//! bit   0            31     32          48             56      64
//!       ├─ sequence ─┼ lock ┼ log bytes ┼ log entries  ┼─ zero ─┤
//! ```
//!
//! Whoever holds the lock is the only one to write the log block. Bytes, directory words and fingerprints of the published
//! entries never change again. The state of a frame that was replaced stays locked for ever.

use super::super::sync::{AtomicU64, Ordering};

/// What the word of a node said at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(u64);

const SEQUENCE_BITS: u32 = 31;
const LOCK: u64 = 1 << SEQUENCE_BITS;
const LOG_SIZE_SHIFT: u32 = 32;
const LOG_COUNT_SHIFT: u32 = LOG_SIZE_SHIFT + 16;

impl State {
    /// A node just built: open, its log block empty.
    pub(crate) const NEW: State = State(0);

    /// Reads the word. What it says is published can be read.
    #[inline]
    pub(crate) fn load(word: &AtomicU64) -> State {
        State(word.load(Ordering::Acquire))
    }

    /// The bits of the word.
    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Whether a writer holds the node.
    #[inline]
    pub(crate) fn is_locked(self) -> bool {
        self.0 & LOCK != 0
    }

    /// Bytes of log entries.
    #[inline]
    pub(crate) fn log_size(self) -> usize {
        usize::from((self.0 >> LOG_SIZE_SHIFT) as u16)
    }

    /// Number of log entries.
    #[inline]
    pub(crate) fn log_count(self) -> usize {
        usize::from((self.0 >> LOG_COUNT_SHIFT) as u8)
    }

    /// Takes the lock if the node is as it was seen. Fails, without waiting, if another writer holds it or has changed it.
    #[inline]
    pub(crate) fn try_lock(word: &AtomicU64, seen: State) -> bool {
        !seen.is_locked() && word.compare_exchange(seen.0, seen.0 | LOCK, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Opens a lock that was taken at `seen`, and publishes the entries that were written since.
    #[inline]
    pub(crate) fn publish(word: &AtomicU64, seen: State, log_size: usize, log_count: usize) {
        let sequence = (seen.0 + 1) & (LOCK - 1);
        let sizes = (log_size as u64) << LOG_SIZE_SHIFT | (log_count as u64) << LOG_COUNT_SHIFT;
        word.store(sequence | sizes, Ordering::Release);
    }

    /// Opens a lock that was taken at `seen` under which nothing changed.
    #[inline]
    pub(crate) fn unlock(word: &AtomicU64, seen: State) {
        word.store(seen.0, Ordering::Release);
    }
}
