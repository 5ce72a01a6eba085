//! Tells whether all shards make progress, for a watchdog outside of the server.
//!
//! A pulse is an order to all shards that asks for nothing ([`crate::orders`]). A shard takes orders in each turn, also if it
//! waits for memory, for the disk or for another shard. A shard that is stuck within a turn does not take them. Shards that
//! sleep are woken. Without a pulse, a turn costs nothing more.

use std::sync::Arc;

use crate::shared::Shared;
use crate::waker::Waker;

/// The pulse of a running server. It may outlive the server; then there is none.
#[derive(Debug)]
pub struct Pulse {
    shared: Arc<Shared>,
    wakers: Vec<Arc<Waker>>,
    /// The version of the orders when the pulse was last taken.
    asked: u64,
}

impl Pulse {
    pub(crate) fn new(shared: Arc<Shared>, wakers: Vec<Arc<Waker>>) -> Pulse {
        Pulse { shared, wakers, asked: 0 }
    }

    /// Returns true if each shard has begun a turn since the last call, or if this is the first call. Does not wait: call it
    /// at intervals that are long beside a turn, which takes milliseconds.
    pub fn take(&mut self) -> bool {
        let orders = &self.shared.orders;
        let is_there = orders.are_taken(self.asked);
        orders.change();
        self.asked = orders.version();
        for waker in &self.wakers {
            waker.wake();
        }
        is_there
    }
}
