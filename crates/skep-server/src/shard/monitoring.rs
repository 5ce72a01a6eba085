//! The work of a shard for monitors: see [`crate::monitors`].

use std::sync::Arc;

use super::Shard;
use crate::connection::Connection;
use crate::limits::{MONITOR_OUTPUT_MAX, MONITOR_PART};
use crate::monitors::Feed;

/// The monitors of a shard, and what they are to see.
#[derive(Default)]
pub(super) struct Monitoring {
    /// The monitors among the connections.
    pub(super) feeds: Vec<Arc<Feed>>,
    /// The commands of the turn. Empty between turns.
    pub(super) lines: Vec<u8>,
}

impl Shard {
    /// Copies the lines of the turn to all monitors.
    pub(super) fn feed_monitors(&mut self) {
        if self.monitoring.lines.is_empty() {
            return;
        }
        let shared = &self.parts.shared;
        let size_max = usize::try_from(shared.settings.connection_memory).unwrap_or(usize::MAX) / MONITOR_PART;
        for feed in shared.monitors.all(None) {
            feed.append(&self.monitoring.lines, size_max, &shared.memory_budget);
            self.parts.handovers[usize::from(feed.shard)].waker.wake();
        }
        self.monitoring.lines.clear();
        self.monitoring.lines.shrink_to(MONITOR_OUTPUT_MAX);
    }

    /// Moves the bytes of feeds to the connections of this shard, as far as their clients take them. Closes a monitor
    /// for which lines are missing.
    pub(super) fn serve_monitors(&mut self) {
        for index in 0..self.monitoring.feeds.len() {
            let feed = self.monitoring.feeds[index].clone();
            if feed.is_overrun() {
                self.metrics().monitors_closed.add(1);
                if let Some(left_out) = self.metrics().closed_lines.line() {
                    tracing::warn!(connection = feed.number, left_out, "closing a monitor that does not read");
                }
                self.close(feed.token);
            } else if let Some(connection) = self.connections.connection_mut(feed.token)
                && takes_lines(connection)
                && !feed.is_empty()
            {
                connection.append_output(&feed.take(&self.parts.shared.memory_budget));
                self.queue(feed.token);
            }
        }
    }

    /// Returns true if [`Shard::serve_monitors`] has something to do.
    pub(super) fn has_monitored(&self) -> bool {
        self.monitoring.feeds.iter().any(|feed| {
            let connection = self.connections.connection(feed.token);
            connection.is_some_and(takes_lines) && !feed.is_empty() || connection.is_some() && feed.is_overrun()
        })
    }
}

/// Returns true if lines may be written to a monitor: it reads, and no reply is half written.
fn takes_lines(connection: &Connection) -> bool {
    connection.output_size() < MONITOR_OUTPUT_MAX && !connection.is_within_reply()
}
