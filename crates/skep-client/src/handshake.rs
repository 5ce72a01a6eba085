//! Hello and welcome on one connection, without the socket.

use std::net::SocketAddr;
use std::time::Duration;

use skep_wire::native::{Hello, Welcome};

use crate::error::{ClientError, NotWelcome};

/// How long to wait for a connection, and then for its welcome. A RESP server would wait for ever for the rest of
/// what it takes for a command.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// A hello that waits for its welcome.
#[derive(Debug)]
pub(crate) struct Handshake {
    address: SocketAddr,
    /// The shard that was asked for, and what its server said on an earlier connection.
    expected: Option<(u16, Welcome)>,
    arrived: [u8; Welcome::SIZE],
    size: usize,
}

impl Handshake {
    /// A hello on the first connection to a server, or to one shard of the server that said this welcome.
    pub(crate) fn new(address: SocketAddr, expected: Option<(u16, Welcome)>) -> Self {
        Handshake { address, expected, arrived: [0; Welcome::SIZE], size: 0 }
    }

    /// The bytes to send first.
    pub(crate) fn hello(&self) -> [u8; Hello::SIZE] {
        Hello { shard: self.expected.map(|(shard, _)| shard) }.encode()
    }

    /// Where bytes that arrive are to be put. No longer than what is missing.
    pub(crate) fn receive_buffer(&mut self) -> &mut [u8] {
        &mut self.arrived[self.size..]
    }

    /// This many bytes arrived; none means that the connection was closed. Answers the welcome once it is complete.
    pub(crate) fn received(&mut self, size: usize) -> Result<Option<Welcome>, ClientError> {
        if size == 0 {
            return Err(self.failed(NotWelcome::Closed));
        }
        self.size += size;
        let welcome = Welcome::decode(&self.arrived[..self.size]).map_err(|error| self.failed(error.into()))?;
        let Some(welcome) = welcome else { return Ok(None) };
        match self.expected {
            Some((shard, first)) if welcome != (Welcome { shard, ..first }) => Err(self.failed(NotWelcome::Changed)),
            _ => Ok(Some(welcome)),
        }
    }

    /// The error for what happened instead of a welcome.
    pub(crate) fn failed(&self, reason: NotWelcome) -> ClientError {
        ClientError::NotWelcome { address: self.address, reason }
    }
}
