//! Orders from one connection to the shards of others: end connections (`CLIENT KILL`), hold back commands
//! (`CLIENT PAUSE`).
//!
//! An order is stored, then the version is increased, then sleeping shards are woken. A shard compares the version once
//! in each turn, after it has read requests and before it executes any. So a request that a client sends after the
//! reply to the order finds the order in force, in any shard. No shard waits for another one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::vocabulary::{Pause, Token};

/// The orders that are in force, or not taken yet.
#[derive(Debug)]
pub(crate) struct Orders {
    version: AtomicU64,
    /// The version that each shard has taken.
    taken: Vec<AtomicU64>,
    /// Connections to end, by shard. A connection is killed once, so there are no more than connections.
    kills: Vec<Mutex<Vec<Token>>>,
    pause: Mutex<Option<Pause>>,
}

impl Orders {
    /// Creates the state without orders.
    pub(crate) fn new(shard_count: usize) -> Orders {
        Orders {
            version: AtomicU64::new(0),
            taken: (0..shard_count).map(|_| AtomicU64::new(0)).collect(),
            kills: (0..shard_count).map(|_| Mutex::default()).collect(),
            pause: Mutex::default(),
        }
    }

    /// Returns a number that changes with each order.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Ends a connection of a shard.
    pub(crate) fn kill(&self, shard: u16, token: Token) {
        self.kills[usize::from(shard)].lock().unwrap_or_else(PoisonError::into_inner).push(token);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Takes the connections of a shard that are to end.
    pub(crate) fn take_kills(&self, shard: u16) -> Vec<Token> {
        std::mem::take(&mut self.kills[usize::from(shard)].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that a shard is about to take the orders of this version.
    pub(crate) fn set_taken(&self, shard: u16, version: u64) {
        self.taken[usize::from(shard)].store(version, Ordering::Relaxed);
    }

    /// Returns true if all shards have taken the orders of this version, or later ones.
    pub(crate) fn are_taken(&self, version: u64) -> bool {
        self.taken.iter().all(|taken| taken.load(Ordering::Relaxed) >= version)
    }

    /// Lets all shards look for a change, such as a new monitor.
    pub(crate) fn change(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Adds a pause to the one in force: the later end and the wider effect of both hold, as in Redis.
    pub(crate) fn pause(&self, pause: Pause, now: Instant) {
        let mut current = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(match *current {
            Some(other) if other.until > now => {
                Pause { until: pause.until.max(other.until), writes_only: pause.writes_only && other.writes_only }
            }
            _ => pause,
        });
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Ends the pause.
    pub(crate) fn unpause(&self) {
        *self.pause.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Returns the pause that was ordered last. It may have ended.
    pub(crate) fn current_pause(&self) -> Option<Pause> {
        *self.pause.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Orders;
    use crate::vocabulary::Pause;

    #[test]
    fn orders_are_taken_when_the_last_shard_has_taken_them() {
        let orders = Orders::new(3);
        assert!(orders.are_taken(0));
        orders.change();
        assert!(!orders.are_taken(1));
        for (shard, all) in [(1, false), (0, false), (2, true)] {
            orders.set_taken(shard, orders.version());
            assert_eq!(orders.are_taken(1), all, "after shard {shard}");
        }
        orders.change();
        orders.set_taken(1, 2);
        assert!(orders.are_taken(1) && !orders.are_taken(2));
    }

    #[test]
    fn pauses_add_up() {
        let (orders, now) = (Orders::new(1), Instant::now());
        let pause = |seconds, writes_only| Pause { until: now + Duration::from_secs(seconds), writes_only };
        orders.pause(pause(5, true), now);
        orders.pause(pause(3, false), now);
        assert_eq!(orders.current_pause(), Some(pause(5, false)));
        orders.pause(pause(6, true), now + Duration::from_secs(5));
        assert_eq!(orders.current_pause(), Some(pause(6, true)), "the earlier pause has ended");
        orders.unpause();
        assert_eq!(orders.current_pause(), None);
        assert_eq!(orders.version(), 4);
    }
}
