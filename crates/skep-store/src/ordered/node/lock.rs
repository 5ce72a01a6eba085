//! The state of a node: lock word and sizes of its log block in one word, so that one store publishes an entry and
//! unlocks the node (Honeycomb, section 3.4).
//!
//! ```text
//! bit   0            31     32          48             56      64
//!       ├─ sequence ─┼ lock ┼ log bytes ┼ log entries  ┼─ zero ─┤
//! ```
//!
//! Only the holder of the lock writes the log block. Bytes, directory words and fingerprints of the published entries
//! never change again. The state of a retired frame stays locked for ever.

use super::super::sync::{AtomicU64, Ordering};

/// The word of a node, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(u64);

const SEQUENCE_BITS: u32 = 31;
const LOCK: u64 = 1 << SEQUENCE_BITS;
const LOG_SIZE_SHIFT: u32 = 32;
const LOG_COUNT_SHIFT: u32 = LOG_SIZE_SHIFT + 16;

impl State {
    /// The state of a new node: unlocked, its log block empty.
    pub(crate) const NEW: State = State(0);

    /// Loads the word. The entries that it publishes can be read.
    #[inline]
    pub(crate) fn load(word: &AtomicU64) -> State {
        State(word.load(Ordering::Acquire))
    }

    /// Returns the state with these bits.
    pub(crate) fn of_bits(bits: u64) -> State {
        State(bits)
    }

    /// Returns the bits of the word.
    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Returns true if a writer holds the lock.
    #[inline]
    pub(crate) fn is_locked(self) -> bool {
        self.0 & LOCK != 0
    }

    /// Returns the bytes of log entries.
    #[inline]
    pub(crate) fn log_size(self) -> usize {
        usize::from((self.0 >> LOG_SIZE_SHIFT) as u16)
    }

    /// Returns the number of log entries.
    #[inline]
    pub(crate) fn log_count(self) -> usize {
        usize::from((self.0 >> LOG_COUNT_SHIFT) as u8)
    }

    /// Takes the lock if the state is still `seen`. Fails, without waiting, if another writer holds it or has changed
    /// the state.
    #[inline]
    pub(crate) fn try_lock(word: &AtomicU64, seen: State) -> bool {
        !seen.is_locked() && word.compare_exchange(seen.0, seen.0 | LOCK, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Unlocks a state that was locked at `seen`, and publishes the entries that were written since.
    #[inline]
    pub(crate) fn publish(word: &AtomicU64, seen: State, log_size: usize, log_count: usize) {
        let sequence = (seen.0 + 1) & (LOCK - 1);
        let sizes = (log_size as u64) << LOG_SIZE_SHIFT | (log_count as u64) << LOG_COUNT_SHIFT;
        word.store(sequence | sizes, Ordering::Release);
    }

    /// Unlocks a state that was locked at `seen`, without a change.
    #[inline]
    pub(crate) fn unlock(word: &AtomicU64, seen: State) {
        word.store(seen.0, Ordering::Release);
    }
}
