//! The errors of a client, and advice for its user.

use std::io;
use std::time::Duration;

use skep_core::operation::OperationError;
use skep_wire::native::{ProtocolError, Refusal, WireError};

use crate::address::ResolvedAddress;
use crate::system_error::reason;
use crate::tls::TlsFailure;

/// The reason why a call failed.
///
/// Only after [`ClientError::MayHaveHappened`] can an update of the call have taken effect. Of a batch, some updates may
/// then have happened and others not. After all other errors no update has happened, except that a reply which does not
/// fit its operation ([`ClientError::UnexpectedReply`]) says nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection could be made.
    #[error("cannot connect to {address}: {}; {}", reason(.source), question(.address))]
    Connect {
        /// The address, as given or as resolved.
        address: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The client and the server do not speak TLS with each other.
    #[error("no TLS with {address}: {reason}")]
    Tls {
        /// The address, as given or as resolved.
        address: String,
        /// The reason, and what to do.
        reason: TlsFailure,
    },
    /// A server listens at the address, but it did not send a welcome of the native protocol.
    #[error(
        "{address} is not a native port of Skep that this client can use: {reason}; RESP and memcached clients have \
         ports of their own, see what `skep serve` printed at its start"
    )]
    NotWelcome {
        /// The address of the server.
        address: ResolvedAddress,
        /// The event that occurred in place of a welcome.
        reason: NotWelcome,
    },
    /// The server does not serve this client, for example because it needs a password.
    #[error("the server at {address} refuses the connection: {reason}")]
    Refused {
        /// The address of the server.
        address: ResolvedAddress,
        /// The reason that the server gave.
        reason: Refusal,
    },
    /// Reading or writing failed.
    #[error("connection to {address} failed: {}", reason(.source))]
    Io {
        /// The server's address.
        address: ResolvedAddress,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The server closed the connection.
    #[error("the server at {address} closed the connection, it may have been stopped")]
    Closed {
        /// The server's address.
        address: ResolvedAddress,
    },
    /// The server has not replied in time. The client has closed the connection, so that a late reply is lost.
    #[error("the server at {address} did not reply within {limit:?}")]
    TimedOut {
        /// The server's address.
        address: ResolvedAddress,
        /// The [`reply_timeout`](crate::ClientSettings::reply_timeout) of the client.
        limit: Duration,
    },
    /// The connection failed after an update was sent: it may have happened, or it may not. The client does not send it
    /// again, because that could execute it twice.
    #[error("the update was sent and may have happened: {source}; read the key before you send it again")]
    MayHaveHappened {
        /// The failure of the connection.
        source: Box<ClientError>,
    },
    /// The bytes from the server cannot be decoded.
    #[error(
        "the server at {address} sent bytes that this client cannot decode: {source}; do both have the same version?"
    )]
    Protocol {
        /// The server's address.
        address: ResolvedAddress,
        /// The error of the decoder.
        source: ProtocolError,
    },
    /// The server refused to execute the operation.
    #[error("the server refused the operation: {0}")]
    Rejected(#[from] WireError),
    /// The store could not carry out the operation. Nothing changed.
    #[error("{0}")]
    Operation(#[from] OperationError),
    /// The server does not load or remove a module of functions. Nothing changed.
    #[error("the server refuses the module: {reason}")]
    Module {
        /// The reason, for a source with its line and column.
        reason: String,
    },
    /// The operation does not have the reply that the server sent.
    #[error("the server's reply does not fit the operation; do client and server have the same version?")]
    UnexpectedReply,
    /// A request is larger than the longest frame that the server accepts, so it was not sent.
    #[error("request {index} takes {size} bytes, the server takes {size_max}; send fewer or shorter operands")]
    RequestTooLarge {
        /// Index of the request in the batch.
        index: usize,
        /// Bytes of the request.
        size: usize,
        /// Limit of the server in bytes.
        size_max: usize,
    },
}

/// The event that occurred in place of a welcome.
#[derive(Debug, thiserror::Error)]
pub enum NotWelcome {
    /// The server sent other bytes.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    /// The server speaks TLS.
    #[error("it speaks TLS: connect to tls:HOST:PORT (skep cli --tls)")]
    SpeaksTls,
    /// The server closed the connection.
    #[error("it closed the connection after the hello")]
    Closed,
    /// The server sent nothing, or too few bytes.
    #[error("it did not reply to a hello within {0:?}")]
    Silent(Duration),
    /// The connections reach servers that differ.
    #[error("its shards contradict each other, perhaps because it was restarted")]
    Changed,
}

/// Returns what to check if no server replies at an address.
fn question(address: &str) -> &'static str {
    match address.split_once(':') {
        Some(("shm", _)) => "is a server with --shared-memory running at this path?",
        Some(("udp", _)) => "is a server with --udp running, and is this its first port?",
        Some(("rdma", _)) => "is a server with --rdma running, and is this its first port for RDMA?",
        _ => "is the server running, and is this its native port?",
    }
}

impl ClientError {
    /// Returns the error of a connection on which reading or writing failed.
    pub(crate) fn of_connection(address: &ResolvedAddress, source: io::Error) -> Self {
        if let Some(reason) = TlsFailure::of(&source) {
            return ClientError::Tls { address: address.to_string(), reason };
        }
        let address = address.clone();
        if is_closed(&source) { ClientError::Closed { address } } else { ClientError::Io { address, source } }
    }

    /// Returns the error of a connection that could not be made.
    pub(crate) fn of_connect(address: &ResolvedAddress, source: io::Error) -> Self {
        let failure = match address {
            ResolvedAddress::Tls { .. } => TlsFailure::of_handshake(source),
            _ => Err(source),
        };
        let address = address.to_string();
        match failure {
            Ok(reason) => ClientError::Tls { address, reason },
            Err(source) => ClientError::Connect { address, source },
        }
    }

    /// Returns true if the same requests may succeed over a new connection. A reply timeout is reported at once: another
    /// wait for the same reply would exceed the time that the caller allows.
    pub(crate) fn is_repeatable(&self) -> bool {
        use NotWelcome::{Changed, Closed, Silent};
        match self {
            ClientError::Connect { .. } | ClientError::Io { .. } | ClientError::Closed { .. } => true,
            // A server that stops closes its connections.
            ClientError::Tls { reason, .. } => matches!(reason, TlsFailure::Closed),
            ClientError::NotWelcome { reason, .. } => matches!(reason, Closed | Silent(_) | Changed),
            _ => false,
        }
    }
}

/// Returns true if the error means that the server closed the connection.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            // The end of a socket without that of its TLS session.
            | io::ErrorKind::UnexpectedEof
    )
}
