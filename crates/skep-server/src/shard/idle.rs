//! Closes connections whose clients send nothing for `timeout` seconds, do not finish the handshake of TLS in time, or do
//! not log in, in time, if they must.
//!
//! Once a second a pass over the connections begins. A tick looks at up to [`IDLE_LOOKS_MAX`] of them, so a pass may
//! take more than a second if a shard has tens of thousands. A connection is not idle while it waits for the server: while a
//! request is in work or waits for memory, or a reply waits for the disk.

use std::time::{Duration, Instant};

use super::Shard;
use crate::limits::{IDLE_LOOKS_MAX, IDLE_PASS_TIME, LOGIN_TIME, LOGIN_TIME_WHEN_CROWDED, TICK};

/// The progress of the passes.
pub(super) struct IdlePass {
    /// The slot to look at next.
    next_slot: usize,
    /// When the next pass begins.
    next_pass: Instant,
}

impl IdlePass {
    /// Creates the state before the first pass.
    pub(super) fn new(now: Instant) -> IdlePass {
        IdlePass { next_slot: 0, next_pass: now }
    }
}

impl Shard {
    /// Makes a part of a pass, if one is due.
    pub(super) fn close_idle(&mut self, now: Instant) {
        if !self.looks_for_idle() {
            return;
        }
        let (timeout, login_time) = (self.timeout(), self.login_time());
        if self.ticks.idle_pass.next_slot == 0 {
            if now < self.ticks.idle_pass.next_pass {
                return;
            }
            self.ticks.idle_pass.next_pass = now + IDLE_PASS_TIME;
        }
        let end = self.connections.slot_count().min(self.ticks.idle_pass.next_slot + IDLE_LOOKS_MAX);
        for slot in self.ticks.idle_pass.next_slot..end {
            let Some((token, endpoint)) = self.connections.at_mut(slot) else { continue };
            let is_stranger = endpoint.connection.is_stranger(&self.parts.shared.access, now, login_time);
            let is_idle = endpoint.transport.timeout(timeout).is_some_and(|timeout| {
                endpoint.connection.is_idle(now, timeout) && endpoint.activity.monitors.get() == 0
            });
            let closed = &self.metrics().connections;
            match (is_stranger, is_idle) {
                (true, _) => closed.closed_without_login.add(1),
                (false, true) => closed.closed_idle.add(1),
                (false, false) => continue,
            }
            self.close(token);
        }
        self.ticks.idle_pass.next_slot = if end == self.connections.slot_count() { 0 } else { end };
    }

    /// Returns the time after which the shard must look for idle connections, also while nothing else happens.
    pub(super) fn idle_wait(&self) -> Option<Duration> {
        if !self.looks_for_idle() || self.connections.is_empty() {
            None
        } else if self.ticks.idle_pass.next_slot > 0 {
            Some(TICK)
        } else {
            Some(IDLE_PASS_TIME)
        }
    }

    /// Returns true if a connection can be idle.
    fn looks_for_idle(&self) -> bool {
        let access = &self.parts.shared.access;
        access.certificates.is_some() || self.timeout().is_some() || access.needs_password()
    }

    /// Returns the time in which a client must log in, if it must.
    fn login_time(&self) -> Duration {
        let shared = &self.parts.shared;
        let is_crowded = shared.connection_count() > shared.settings.connections_max / 4 * 3;
        if is_crowded { LOGIN_TIME_WHEN_CROWDED } else { LOGIN_TIME }
    }

    fn timeout(&self) -> Option<Duration> {
        let seconds = u64::try_from(self.parts.shared.adjustable.timeout.get()).ok()?;
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }
}
