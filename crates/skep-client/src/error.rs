//! What can go wrong for a client, and what its user can do.

use std::io;
use std::net::SocketAddr;

use skep_core::operation::OperationError;
use skep_wire::native::{ProtocolError, WireError};

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection could be made.
    #[error("cannot connect to {address}: {source}; is the server running, and is this its native port?")]
    Connect {
        /// The address, as it was given or found.
        address: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// Something listens at the address, but it does not welcome a client of the native protocol.
    #[error(
        "{address} is not a native port of Skep that this client can use: {reason}; RESP clients have a port of \
         their own, see what `skep serve` printed at its start"
    )]
    NotWelcome {
        /// The address that was connected to.
        address: SocketAddr,
        /// What it did instead.
        reason: NotWelcome,
    },
    /// Reading or writing failed. What was sent may have taken effect.
    #[error("connection to {address} failed: {source}; connect again")]
    Io {
        /// The server's address.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// The server closed the connection. What was sent may have taken effect.
    #[error("the server at {address} closed the connection, it may have been stopped; connect again")]
    Closed {
        /// The server's address.
        address: SocketAddr,
    },
    /// What the server sent cannot be understood.
    #[error("the server at {address} sent what this client cannot understand: {source}; are both of one version?")]
    Protocol {
        /// The server's address.
        address: SocketAddr,
        /// What is wrong with it.
        source: ProtocolError,
    },
    /// The server did not try the operation.
    #[error("the server refused the operation: {0}")]
    Rejected(#[from] WireError),
    /// The operation could not be carried out. Nothing changed.
    #[error("{0}")]
    Operation(#[from] OperationError),
    /// The server's answer is not one that the operation has.
    #[error("the server's answer does not fit the operation; are client and server of one version?")]
    UnexpectedReply,
    /// A request does not fit the longest frame that the server takes. Nothing was sent.
    #[error("request {index} takes {size} bytes, the server takes {size_max}; send fewer or shorter operands")]
    RequestTooLarge {
        /// Its place in the batch.
        index: usize,
        /// Bytes that the request takes.
        size: usize,
        /// Bytes that the server takes.
        size_max: usize,
    },
    /// Answers to an earlier call may still be under way, so the connections are of no use any more.
    #[error("an earlier call of this client failed or was abandoned; connect again")]
    Broken,
}

/// What somebody who was said hello to did instead of a welcome.
#[derive(Debug, thiserror::Error)]
pub enum NotWelcome {
    /// It sent something else.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    /// It closed the connection.
    #[error("it closed the connection when it was said hello to")]
    Closed,
    /// It sent nothing, or not enough.
    #[error("it did not answer a hello within {0:?}")]
    Silent(std::time::Duration),
    /// The connections lead to servers that differ.
    #[error("its shards contradict each other, perhaps because it was restarted; connect again")]
    Changed,
}

impl ClientError {
    /// The error of a connection on which reading or writing failed.
    pub(crate) fn of_connection(address: SocketAddr, source: io::Error) -> Self {
        if is_closed(&source) { ClientError::Closed { address } } else { ClientError::Io { address, source } }
    }
}

/// Whether the other end closed the connection.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
    )
}
