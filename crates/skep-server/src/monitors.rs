//! Connections that get the commands of all others (`MONITOR`).
//!
//! ```text
//!   commands of a turn ─▶ lines of the shard ─▶ feed of each monitor ─▶ output of its connection
//! ```
//!
//! A shard collects lines while it makes replies, and copies them to every feed at the end of the turn. The shard of a
//! monitor moves the bytes of its feed to the output of the connection. A feed is bounded: a monitor that does not read
//! loses its connection, and slows others only by the copying. Without monitors, a turn costs one comparison.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::MONITORS_MAX;
use crate::memory_budget::MemoryBudget;
use crate::vocabulary::Token;

/// The monitors of the server.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    count: AtomicUsize,
    feeds: Mutex<Vec<Arc<Feed>>>,
}

/// The bytes for one monitor that its shard has not taken.
#[derive(Debug)]
pub(crate) struct Feed {
    /// The number of the connection.
    pub(crate) number: u64,
    /// The shard of the connection, and its token there.
    pub(crate) shard: u16,
    pub(crate) token: Token,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    /// There were more bytes than a feed may hold: lines are missing.
    is_overrun: bool,
    /// The connection has ended.
    is_over: bool,
}

impl Monitors {
    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Adds a connection. Returns false if there are too many.
    pub(crate) fn add(&self, number: u64, shard: u16, token: Token) -> bool {
        let mut feeds = self.feeds();
        if feeds.len() >= MONITORS_MAX {
            return false;
        }
        if feeds.iter().all(|feed| feed.number != number) {
            feeds.push(Arc::new(Feed { number, shard, token, state: Mutex::default() }));
        }
        self.count.store(feeds.len(), Ordering::Relaxed);
        true
    }

    /// Removes a connection, if it is a monitor.
    pub(crate) fn remove(&self, number: u64, budget: &MemoryBudget) {
        let mut feeds = self.feeds();
        let Some(index) = feeds.iter().position(|feed| feed.number == number) else { return };
        let feed = feeds.swap_remove(index);
        self.count.store(feeds.len(), Ordering::Relaxed);
        drop(feeds);
        let mut state = feed.state();
        state.is_over = true;
        budget.record_batch(std::mem::take(&mut state.bytes).capacity(), 0);
    }

    /// Returns the monitors, or those of one shard.
    pub(crate) fn all(&self, shard: Option<u16>) -> Vec<Arc<Feed>> {
        self.feeds().iter().filter(|feed| shard.is_none_or(|shard| feed.shard == shard)).cloned().collect()
    }

    fn feeds(&self) -> MutexGuard<'_, Vec<Arc<Feed>>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed {
    /// Appends lines, or records that there is no room for them: a feed holds at most `size_max` bytes.
    pub(crate) fn append(&self, lines: &[u8], size_max: usize, budget: &MemoryBudget) {
        let mut state = self.state();
        if state.is_overrun || state.is_over {
            return;
        }
        if state.bytes.len() + lines.len() > size_max {
            state.is_overrun = true;
            budget.record_batch(std::mem::take(&mut state.bytes).capacity(), 0);
            return;
        }
        let before = state.bytes.capacity();
        state.bytes.extend_from_slice(lines);
        budget.record_batch(before, state.bytes.capacity());
    }

    /// Takes all bytes.
    pub(crate) fn take(&self, budget: &MemoryBudget) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.state().bytes);
        budget.record_batch(bytes.capacity(), 0);
        bytes
    }

    /// Returns true if there is nothing to take.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().bytes.is_empty()
    }

    /// Returns true if lines are missing.
    pub(crate) fn is_overrun(&self) -> bool {
        self.state().is_overrun
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Monitors;
    use crate::limits::MONITORS_MAX;
    use crate::memory_budget::MemoryBudget;
    use crate::vocabulary::Token;

    #[test]
    fn a_feed_is_bounded_and_its_memory_is_counted() {
        let (monitors, budget) = (Monitors::default(), MemoryBudget::new(64 << 20, 100, 1));
        assert!(monitors.is_empty());
        assert!(monitors.add(7, 0, Token::default()) && monitors.add(7, 0, Token::default()));
        let [feed] = &monitors.all(Some(0))[..] else { panic!("one monitor") };
        assert!(monitors.all(Some(1)).is_empty() && !monitors.is_empty());
        feed.append(b"12345", 8, &budget);
        assert!(budget.batches() >= 5);
        assert_eq!(feed.take(&budget), b"12345");
        assert_eq!(budget.batches(), 0);
        feed.append(b"12345", 8, &budget);
        feed.append(b"6789", 8, &budget);
        assert!(feed.is_overrun() && feed.is_empty());
        assert_eq!(budget.batches(), 0);
        monitors.remove(7, &budget);
        feed.append(b"1", 8, &budget);
        assert!(monitors.is_empty() && feed.is_empty());
        let added = (0..100).filter(|&number| monitors.add(number, 0, Token::default())).count();
        assert_eq!(added, MONITORS_MAX);
    }
}
