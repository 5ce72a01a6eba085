//! The error replies of memcached 1.6, word for word, since clients and their tests compare them.

/// An error reply. The connection stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrorReply {
    /// There is no such command, or it has another number of words.
    #[error("ERROR")]
    Command,
    /// A word of the line is not what the command needs.
    #[error("CLIENT_ERROR bad command line format")]
    Format,
    /// The words after the key of a `delete` are neither `0` nor `noreply`.
    #[error("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]")]
    DeleteUsage,
    /// An exptime is not a number.
    #[error("CLIENT_ERROR invalid exptime argument")]
    Exptime,
    /// The operand of `incr` or `decr` is not a number.
    #[error("CLIENT_ERROR invalid numeric delta argument")]
    Delta,
    /// No line end follows the value.
    #[error("CLIENT_ERROR bad data chunk")]
    ValueEnd,
    /// A flag occurs twice, or is not ASCII.
    #[error("CLIENT_ERROR duplicate flag")]
    DuplicateFlag,
    /// There is no such flag.
    #[error("CLIENT_ERROR invalid flag")]
    UnknownFlag,
    /// A flag of `md` or `ma` is not right.
    #[error("CLIENT_ERROR invalid or duplicate flag")]
    Flag,
    /// There are too many flags for `mg`.
    #[error("CLIENT_ERROR options flags are too long")]
    GetFlagCount,
    /// There are too many flags for `ms`, `md` or `ma`.
    #[error("CLIENT_ERROR options flags too long")]
    FlagCount,
    /// The token of a flag is not a number.
    #[error("CLIENT_ERROR bad token in command line format")]
    Token,
    /// The key is not base64.
    #[error("CLIENT_ERROR error decoding key")]
    Base64,
    /// The opaque token is longer than [`OPAQUE_SIZE_MAX`](super::OPAQUE_SIZE_MAX).
    #[error("CLIENT_ERROR opaque token too long")]
    OpaqueTooLong,
    /// The token of the flag `M` does not have one letter.
    #[error("CLIENT_ERROR incorrect length for M token")]
    ModeSize,
    /// There is no such mode of `ms`.
    #[error("CLIENT_ERROR invalid mode for ms M token")]
    SetMode,
    /// There is no such mode of `ma`.
    #[error("CLIENT_ERROR invalid mode for ma M token")]
    ArithmeticMode,
    /// The token of the flag `J` is not a number.
    #[error("CLIENT_ERROR invalid numeric initial value")]
    InitialValue,
    /// The token of the flag `D` is not a number.
    #[error("CLIENT_ERROR invalid numeric delta value")]
    DeltaValue,
    /// The value to increment is not a number.
    #[error("CLIENT_ERROR cannot increment or decrement non-numeric value")]
    NotNumeric,
    /// A client cannot stop the server.
    #[error("ERROR: shutdown not enabled")]
    Shutdown,
    /// The value is longer than the parser's limit.
    #[error("SERVER_ERROR object too large for cache")]
    TooLarge,
    /// The store has no memory for the pair.
    #[error("SERVER_ERROR out of memory storing object")]
    OutOfMemory,
}
