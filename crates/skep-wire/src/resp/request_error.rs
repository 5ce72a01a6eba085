//! The errors of requests. Their texts are those of Redis 7, because clients depend on them.

/// The reason why bytes are not a request. No later byte can be decoded either. The server replies with `ERR` and the
/// error message, and closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The line with the number of arguments does not end.
    #[error("Protocol error: too big mbulk count string")]
    CountLineTooLong,
    /// The number of arguments is not a number, or is over [`ARGUMENT_COUNT_MAX`](super::ARGUMENT_COUNT_MAX).
    #[error("Protocol error: invalid multibulk length")]
    Count,
    /// The line with the length of an argument does not end.
    #[error("Protocol error: too big bulk count string")]
    SizeLineTooLong,
    /// The length of an argument is not a number, or is over [`BULK_SIZE_MAX`](super::BULK_SIZE_MAX).
    #[error("Protocol error: invalid bulk length")]
    Size,
    /// An argument does not begin with `$`.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0).escape_default())]
    NoBulk(u8),
    /// An argument is longer than its stated length.
    #[error("Protocol error: expected CRLF after a bulk string")]
    BulkEnd,
    /// An inline request is longer than [`LINE_SIZE_MAX`](super::LINE_SIZE_MAX).
    #[error("Protocol error: too big inline request")]
    InlineTooLong,
    /// A quote of an inline request is not closed, or no blank follows it.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// The request is longer than [`REQUEST_SIZE_MAX`](super::REQUEST_SIZE_MAX).
    #[error("Protocol error: too big request")]
    RequestTooLong,
    /// A client that has not sent the password sends more than
    /// [`LOCKED_ARGUMENT_COUNT_MAX`](super::LOCKED_ARGUMENT_COUNT_MAX) arguments.
    #[error("Protocol error: unauthenticated multibulk length")]
    LockedCount,
    /// A client that has not sent the password sends an argument over [`LOCKED_BULK_SIZE_MAX`](super::LOCKED_BULK_SIZE_MAX).
    #[error("Protocol error: unauthenticated bulk length")]
    LockedSize,
}
