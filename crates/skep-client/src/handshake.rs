//! Hello and welcome on one connection, without the socket.
//!
//! The clients wait for the welcome with a timeout. Without it they could wait forever: a RESP server takes the hello
//! for the start of a command, and waits for its end.

use skep_wire::native::{Hello, Password, ProtocolError, Welcome};

use crate::address::ResolvedAddress;
use crate::error::{ClientError, NotWelcome};
use crate::settings::ClientSettings;

/// The first bytes of an alert of TLS.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// A hello whose welcome has not arrived.
#[derive(Debug)]
pub(crate) struct Handshake {
    address: ResolvedAddress,
    user: String,
    password: Option<Password>,
    /// The requested shard, and the welcome of an earlier connection to the same server.
    expected: Option<(u16, Welcome)>,
    arrived: [u8; Welcome::SIZE],
    size: usize,
}

impl Handshake {
    /// Returns the handshake of the first connection to a server, or of a connection to one shard of the server with
    /// this welcome.
    pub(crate) fn new(address: &ResolvedAddress, settings: &ClientSettings, expected: Option<(u16, Welcome)>) -> Self {
        let (user, password) = (settings.user.clone(), settings.password.clone());
        Handshake { address: address.clone(), user, password, expected, arrived: [0; Welcome::SIZE], size: 0 }
    }

    /// Returns the bytes to send first.
    pub(crate) fn hello(&self) -> Vec<u8> {
        Hello { shard: self.expected.map(|(shard, _)| shard), user: self.user.clone(), password: self.password.clone() }
            .encode()
    }

    /// Returns the buffer for the bytes that arrive. It is not longer than the missing part of the welcome.
    pub(crate) fn receive_buffer(&mut self) -> &mut [u8] {
        &mut self.arrived[self.size..]
    }

    /// Processes this many bytes that arrived; zero means that the connection was closed. Returns the welcome once it
    /// is complete.
    pub(crate) fn received(&mut self, size: usize) -> Result<Option<Welcome>, ClientError> {
        if size == 0 {
            return Err(self.failed(NotWelcome::Closed));
        }
        self.size += size;
        let welcome = Welcome::decode(&self.arrived[..self.size]).map_err(|error| match error {
            // That of a server of TLS which cannot decode the hello.
            _ if self.arrived.starts_with(&TLS_ALERT) => self.failed(NotWelcome::SpeaksTls),
            ProtocolError::Refused(reason) => ClientError::Refused { address: self.address.clone(), reason },
            error => self.failed(error.into()),
        })?;
        let Some(welcome) = welcome else { return Ok(None) };
        match self.expected {
            Some((shard, first)) if welcome != (Welcome { shard, ..first }) => Err(self.failed(NotWelcome::Changed)),
            _ => Ok(Some(welcome)),
        }
    }

    /// Returns the error for an event that occurred in place of a welcome.
    pub(crate) fn failed(&self, reason: NotWelcome) -> ClientError {
        ClientError::NotWelcome { address: self.address.clone(), reason }
    }
}
