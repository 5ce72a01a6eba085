//! The end of a connection.

use super::Shard;
use crate::transport::Transport;
use crate::vocabulary::Token;

impl Shard {
    /// Drops a connection. One whose isolated command has begun is dropped after it.
    pub(super) fn close(&mut self, token: Token) {
        if self.holds.keep(token) {
            if let Some(connection) = self.connections.connection_mut(token) {
                connection.end();
            }
            return;
        }
        if let Some(mut endpoint) = self.connections.remove(token) {
            self.leave_memory(&mut endpoint);
            if let Transport::SharedMemory(shared) = &endpoint.transport
                && let Some(invalid) = shared.end().invalid_word()
            {
                self.metrics().shared_memory_invalid.add(1);
                if let Some(left_out) = self.metrics().closed_lines.line() {
                    tracing::warn!(
                        connection = endpoint.connection.number,
                        left_out,
                        "closing a connection: {invalid}"
                    );
                }
            }
            if endpoint.transport.is_handshaking() {
                self.metrics().connections.handshakes_failed.add(1);
            }
            self.parts.end_session(token, &endpoint.transport);
            self.parts.shared.leave(endpoint.connection.number);
        }
    }
}
