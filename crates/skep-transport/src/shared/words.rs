//! The words by which the two sides of a connection tell each other how far they are, and that they wait.
//!
//! A wait word is:
//!
//! ```text
//! bit 63                    3  2      1     0
//! ┌─────────────────────────┬──┬──────┬─────┐
//! │ number of the wait      │ended│room│bytes│
//! └─────────────────────────┴──┴──────┴─────┘
//! ```
//!
//! - number of the wait: grows with each wait, so the other side rings the doorbell once for each.
//! - ended: the writer of the word sends no more.
//! - room: it waits until the other side has taken bytes out of its ring.
//! - bytes: it waits until the other side has put bytes into the other ring.

use super::sync::{AtomicU64, Ordering, fence};

/// Bits of a wait word.
pub(crate) const WAITS_FOR_BYTES: u64 = 1;
pub(crate) const WAITS_FOR_ROOM: u64 = 1 << 1;
pub(crate) const ENDED: u64 = 1 << 2;
/// The difference between the wait words of two waits.
pub(crate) const NEXT_WAIT: u64 = 1 << 3;

/// Words that the other side writes: this side can only load them.
#[derive(Clone, Copy)]
pub(crate) struct PeerWords<'w>(&'w [AtomicU64]);

impl<'w> PeerWords<'w> {
    /// Gives these words.
    pub(crate) fn new(words: &'w [AtomicU64]) -> Self {
        PeerWords(words)
    }

    /// Loads a word. Bytes that were written before the word was published can be read afterwards.
    #[inline]
    pub(crate) fn load(self, index: usize) -> u64 {
        // Only a relaxed load works on memory that cannot be written.
        let value = self.0[index].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        value
    }

    /// Loads a word of the ring. The words before it are not ordered.
    #[inline]
    pub(crate) fn load_relaxed(self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }

    /// Returns the words from an index on.
    pub(crate) fn from(self, index: usize) -> Self {
        PeerWords(&self.0[index..])
    }

    /// Returns all words, in order, as they are loaded.
    #[inline]
    pub(crate) fn iter(self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Returns the number of words.
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }
}

/// Publishes a word: what was written before can be read by the side that loads it.
#[inline]
pub(crate) fn publish(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
}

/// Sets the wait word. The caller then checks once more for that which it waits for.
pub(crate) fn begin_wait(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
    // If the fence of `wait_of_peer` is later, that side sees this word. If it is earlier, the last check here sees the
    // word that it has published.
    fence(Ordering::SeqCst);
}

/// Returns the wait word of the other side, after a word was published.
#[inline]
pub(crate) fn wait_of_peer(words: PeerWords<'_>, index: usize) -> u64 {
    fence(Ordering::SeqCst);
    words.load_relaxed(index)
}
