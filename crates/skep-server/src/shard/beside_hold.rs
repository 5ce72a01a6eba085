//! A turn of a shard that may not use its store: it is lent, or belongs to a command that has begun.
//!
//! The shard reads and decodes connections as ever. It writes the replies that the server makes itself, such as those to
//! `PING`, `INFO`, `CLIENT KILL` and `SHUTDOWN`, as far as no earlier command of the connection needs a store. A connection
//! whose next command needs one waits aside until the shard has its store again, before the other connections.

use std::time::Instant;

use super::Shard;
use crate::connection::Connection;
use crate::limits::{BESIDE_WORK, RESUMED_MAX};
use crate::spaces::Stores;

impl Shard {
    /// Serves connections whose next commands need no store. Returns true if there were some.
    pub(super) fn serve_beside_hold(&mut self, stores: &mut Stores<'_>, now: Instant) -> bool {
        self.put_aside();
        if self.ready.is_empty() && self.postponed.is_empty() {
            return false;
        }
        self.turns += 1;
        // The command that has the store may have spent the account of the turn.
        let spent_before = self.account.spent();
        while self.batch.len() < RESUMED_MAX
            && (self.batch.is_empty() || self.account.spent() - spent_before < BESIDE_WORK)
            && let Some(token) = self.postponed.pop_front().or_else(|| self.ready.pop_front())
        {
            self.take_on(token, now);
        }
        (self.resumed, self.kinds.ready) = (0, 0);
        self.destinations.clear();
        self.reply_to_connections(false, stores, now);
        self.put_aside();
        true
    }

    /// Moves the connections aside whose next commands need a store.
    fn put_aside(&mut self) {
        let Shard { ready, aside, connections, .. } = self;
        ready.retain(|token, is_costly| {
            let waits = connections.connection(token).is_some_and(Connection::needs_store);
            if waits {
                aside.push_back((token, is_costly));
            }
            !waits
        });
    }

    /// Returns the connections that have waited aside to the heads of their queues.
    pub(super) fn end_aside(&mut self) {
        while let Some((token, is_costly)) = self.aside.pop_back() {
            self.ready.push_front(token, is_costly);
        }
    }
}
