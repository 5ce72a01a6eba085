//! What a shard does from time to time, also while nothing else happens.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Shard;
use super::idle::IdlePass;
use crate::connection::Next;
use crate::limits::TICK;

/// The times at which something is due.
pub(super) struct Ticks {
    /// The shard may read the clock itself. In tests time is an argument.
    pub(super) has_clock: bool,
    /// The time of the next tick.
    next_tick: Instant,
    /// The time of the next scan of the memory of connections.
    pub(super) next_memory_scan: Instant,
    pub(super) idle_pass: IdlePass,
}

impl Ticks {
    /// All is due now.
    pub(super) fn new(now: Instant) -> Ticks {
        Ticks { has_clock: false, next_tick: now, next_memory_scan: now, idle_pass: IdlePass::new(now) }
    }
}

impl Shard {
    /// Does the work that is due: ends draining, listens again after a pause, and stops when the server does.
    pub(super) fn tick(&mut self, now: Instant) {
        if now >= self.ticks.next_tick {
            self.ticks.next_tick = now + TICK;
            self.drain(now);
            self.scan_memory(now);
            self.close_idle(now);
        }
        if let Some(listeners) = &mut self.parts.listeners
            && let Err(error) = listeners.resume(&self.poller, now)
        {
            tracing::warn!(%error, "cannot listen again");
        }
        if self.parts.shared.stopping.load(Ordering::Relaxed) {
            self.stop(now);
        }
        self.take_orders();
        self.release_held(now);
    }

    /// Writes to the connections that drain, and closes those that are done.
    fn drain(&mut self, now: Instant) {
        for token in std::mem::take(&mut self.waits.draining) {
            let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
            let next = match self.connections.get_mut(token) {
                Some(endpoint) => endpoint.flush(metrics, now, &mut self.shard_budget),
                None => continue,
            };
            self.list_session(token);
            if next == Next::Drain { self.waits.draining.push(token) } else { self.close(token) }
        }
    }
}
