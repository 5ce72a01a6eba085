//! Orders to this shard, and connections that are held: they are not served for a while, and no thread waits for them.
//!
//! - `CLIENT PAUSE` holds connections whose next command must wait. All are released at its end.
//! - `DEBUG SLEEP` holds its own connection.
//!
//! A held connection counts as queued, so that its events do not serve it. But it takes replies that were made before. A
//! client that has only ended its requests (`printf … | nc`) gets all replies; one that has closed the connection looks the
//! same until something is sent to it. So a connection is closed while it is held only if the transport reports an error,
//! such as the reset that follows a reply or a keepalive probe. A stopping server holds none.

use std::time::{Duration, Instant};

use super::Shard;
use crate::connection::Next;
use crate::limits::SLEEP_MAX;
use crate::transport::Event;
use crate::vocabulary::{Pause, Token};

/// The connections of a shard that are held.
#[derive(Default)]
pub(super) struct Held {
    /// The version of the orders that were taken.
    version: u64,
    /// The pause in force, if there is one.
    pause: Option<Pause>,
    /// Connections that are held by the pause.
    paused: Vec<Token>,
    /// Connections that are held until a time of their own.
    sleeping: Vec<(Instant, Token)>,
    /// Entries of connections that have ended.
    left: usize,
}

impl Shard {
    /// Takes new orders, if there are any.
    pub(super) fn take_orders(&mut self) {
        let orders = &self.parts.shared.orders;
        let version = orders.version();
        if version == self.waits.held.version {
            return;
        }
        self.waits.held.version = version;
        orders.set_taken(self.parts.index, version);
        let (kills, pause) = (orders.take_kills(self.parts.index), orders.current_pause());
        self.waits.held.pause = pause;
        self.monitoring.feeds = self.parts.shared.monitors.all(Some(self.parts.index));
        for token in kills {
            self.close(token);
        }
    }

    /// Returns true if there are no orders that were not taken.
    pub(super) fn knows_orders(&self) -> bool {
        self.parts.shared.orders.version() == self.waits.held.version
    }

    /// Returns the pause that is in force `now`.
    pub(super) fn pause(&self, now: Instant) -> Option<Pause> {
        self.waits.held.pause.filter(|pause| now < pause.until && self.stop.until.is_none())
    }

    /// Holds a connection until the pause ends.
    pub(super) fn hold_for_pause(&mut self, token: Token) {
        if self.hold(token) {
            self.waits.held.paused.push(token);
        }
    }

    /// Holds a connection whose next command is to be tried again at `until`, which may be the end of the pause.
    pub(super) fn hold_until(&mut self, token: Token, pause: Option<Pause>, until: Instant) {
        if pause.is_some_and(|pause| pause.until == until) {
            self.hold_for_pause(token);
        } else if self.hold(token) {
            self.waits.held.sleeping.push((until, token));
        }
    }

    /// Marks a connection as held, unless it has ended: then returns false.
    fn hold(&mut self, token: Token) -> bool {
        let Some(endpoint) = self.connections.get_mut(token) else { return false };
        (endpoint.is_queued, endpoint.is_held) = (true, true);
        true
    }

    /// Takes an event of a held connection: it is closed if the transport has ended, and writes what waits to be written.
    pub(super) fn on_event_of_held(&mut self, token: Token, event: Event, now: Instant) {
        let Some(endpoint) = self.connections.get_mut(token) else { return };
        let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
        if event.is_over || endpoint.flush(metrics, now, &mut self.shard_budget) == Next::Close {
            self.close(token);
            // Its entry is removed with those of others, so that each costs little.
            self.waits.held.left += 1;
            if self.waits.held.left > self.waits.held.paused.len().max(self.waits.held.sleeping.len()) / 2 {
                self.waits.held.left = 0;
                self.waits.held.paused.retain(|token| self.connections.connection(*token).is_some());
                self.waits.held.sleeping.retain(|(_, token)| self.connections.connection(*token).is_some());
            }
        }
        self.list_session(token);
    }

    /// Releases the connections whose time has come.
    pub(super) fn release_held(&mut self, now: Instant) {
        if !self.waits.held.paused.is_empty() && self.pause(now).is_none() {
            for token in std::mem::take(&mut self.waits.held.paused) {
                self.release(token);
            }
        }
        let is_stopping = self.stop.until.is_some();
        let released: Vec<Token> = self
            .waits
            .held
            .sleeping
            .extract_if(.., |(until, _)| is_stopping || now >= *until)
            .map(|(_, token)| token)
            .collect();
        for token in released {
            self.release(token);
        }
    }

    fn release(&mut self, token: Token) {
        if let Some(endpoint) = self.connections.get_mut(token) {
            (endpoint.is_queued, endpoint.is_held) = (false, false);
            self.queue(token);
        }
    }

    /// Returns the time until a held connection is released.
    pub(super) fn held_wait(&self, now: Instant) -> Option<Duration> {
        let pause_end = self.waits.held.pause.filter(|_| !self.waits.held.paused.is_empty()).map(|pause| pause.until);
        let ends = self.waits.held.sleeping.iter().map(|(until, _)| *until).chain(pause_end);
        // The clock of the system may wake the shard a little early.
        ends.min().map(|end| end.saturating_duration_since(now).min(SLEEP_MAX) + Duration::from_millis(1))
    }
}
