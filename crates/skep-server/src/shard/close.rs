//! The end of a connection.

use std::time::Instant;

use super::Shard;
use crate::endpoint::Endpoint;
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
                self.tell_of_handshake(&endpoint);
            }
            self.parts.end_session(token, &endpoint.transport);
            self.parts.shared.leave(endpoint.connection.number);
        }
    }

    /// Tells the log why a handshake of TLS was refused: as of a login, some lines for each address. A client that has only
    /// left has none.
    fn tell_of_handshake(&self, endpoint: &Endpoint) {
        let shared = &self.parts.shared;
        let Some(failure) = endpoint.transport.tls_failure() else { return };
        let address = shared.clients().get(&endpoint.connection.number).map(|client| client.address.clone());
        if let Some(address) = address
            && shared.access.may_tell(address.ip(), Instant::now())
        {
            tracing::warn!(%address, "handshake of TLS refused: {failure}");
        }
    }
}
