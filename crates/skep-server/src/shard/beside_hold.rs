//! A turn of a shard that may not use its store: it is lent, or belongs to a command that has begun.
//!
//! The shard reads and decodes connections as ever. It writes the replies that the server makes itself, such as those to
//! `PING`, `INFO`, `CLIENT KILL` and `SHUTDOWN`, as far as no earlier command of the connection needs a store. A connection
//! whose next command needs one waits aside until the shard has its store again, before the other connections.

use std::time::Instant;

use super::Shard;
use super::waits::Waits;
use crate::connection::Connection;
use crate::limits::{BESIDE_WORK, RESUMED_MAX};
use crate::spaces::Stores;

impl Shard {
    /// Serves connections whose next commands need no store. Returns true if there were some.
    pub(super) fn serve_beside_hold(&mut self, stores: &mut Stores<'_>, now: Instant) -> bool {
        self.put_aside();
        if !self.waits.have_ready() {
            return false;
        }
        self.turn.number += 1;
        // The command that has the store may have spent the account of the turn.
        let spent_before = self.turn.account.spent();
        while self.turn.batch.len() < RESUMED_MAX
            && (self.turn.batch.is_empty() || self.turn.account.spent() - spent_before < BESIDE_WORK)
            && let Some(token) = self.waits.postponed.pop_front().or_else(|| self.waits.ready.pop_front())
        {
            self.take_on(token, now);
        }
        (self.turn.resumed, self.turn.kinds.ready) = (0, 0);
        self.execution.destinations.clear();
        self.reply_to_connections(false, stores, now);
        self.put_aside();
        true
    }

    /// Moves the connections aside whose next commands need a store.
    fn put_aside(&mut self) {
        let Shard { waits: Waits { ready, aside, .. }, connections, .. } = self;
        ready.retain(|token, is_costly| {
            let waits = connections.connection(token).is_some_and(Connection::needs_store);
            if waits {
                aside.push_back((token, is_costly));
            }
            !waits
        });
    }
}
