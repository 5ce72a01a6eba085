//! The end of a shard, when the server stops.

use std::time::Instant;

use super::Shard;
use crate::limits::FLUSH_TIME;
use crate::vocabulary::Token;

/// How far a shard has stopped.
#[derive(Debug, Default)]
pub(super) struct Stop {
    /// Set when the server stops: the time at which all connections are closed.
    pub(super) until: Option<Instant>,
    /// This shard has told the others that it has no more connections.
    is_finished: bool,
}

impl Shard {
    /// Stops step by step. First no more connections and no more input are taken. When every reply is sent, or too much
    /// time has passed, all connections end.
    pub(super) fn stop(&mut self, now: Instant) {
        let Some(until) = self.stop.until else {
            self.stop.until = Some(now + FLUSH_TIME);
            self.parts.listeners = None;
            if let Some(socket) = self.parts.memcached_socket.take() {
                socket.deregister(&self.poller);
            }
            let tokens: Vec<Token> = self.connections.tokens().collect();
            for token in tokens {
                // One whose commands visit another shard reads when they are back.
                if let Some(endpoint) = self.connections.get_mut(token)
                    && !endpoint.connection.is_away()
                {
                    let metrics = self.parts.shared.metrics(usize::from(self.parts.index));
                    endpoint.end_input(metrics, now, &mut self.shard_budget);
                }
                self.queue(token);
            }
            return;
        };
        if now >= until {
            self.holds.abandon();
            let tokens: Vec<Token> = self.connections.tokens().collect();
            for token in tokens {
                self.close(token);
            }
        }
        if self.connections.is_empty() && !self.stop.is_finished {
            self.stop.is_finished = true;
            self.parts.shared.finish_shard();
            for handover in &self.parts.handovers {
                handover.waker.wake();
            }
        }
    }

    /// Returns true if all shards have finished. Until then this one replies to the others.
    pub(super) fn is_over(&self) -> bool {
        self.stop.is_finished && self.parts.shared.have_shards_finished()
    }
}
