//! The requests of memcached's clients. A request borrows its key, value and flags from the bytes that arrived.

use super::{Exptime, MetaFlags, Words};

/// A request. `is_quiet` means `noreply`: the server sends no reply, not even an error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'b> {
    /// `get`, `gets`, `gat`, `gats`: returns the pairs that exist, then `END`.
    Get {
        /// The keys, each checked. Only `gat` may have none.
        keys: Words<'b>,
        /// The number of keys.
        key_count: usize,
        /// The reply states the cas of each pair.
        with_cas: bool,
        /// The new expiry of each pair.
        exptime: Option<Exptime>,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store {
        /// The pair and the condition.
        store: Store<'b>,
        /// Sends no reply.
        is_quiet: bool,
    },
    /// A store whose value is too long. The parser drops the value. The reply is `ErrorReply::TooLarge`.
    StoreTooLarge {
        /// The key of a `set` or `ms`. The server removes its pair, so that no client reads the value that the refused
        /// one was meant to replace.
        removed_key: Option<&'b [u8]>,
        /// Sends no reply.
        is_quiet: bool,
    },
    /// `delete`.
    Delete {
        /// The key.
        key: &'b [u8],
        /// Sends no reply.
        is_quiet: bool,
    },
    /// `incr`, `decr`.
    Arithmetic {
        /// The key.
        key: &'b [u8],
        /// The operation.
        direction: Direction,
        /// The operand.
        delta: u64,
        /// Sends no reply.
        is_quiet: bool,
    },
    /// `touch`.
    Touch {
        /// The key.
        key: &'b [u8],
        /// The new expiry.
        exptime: Exptime,
        /// Sends no reply.
        is_quiet: bool,
    },
    /// `flush_all`: removes all pairs.
    FlushAll {
        /// The time at which it runs. `NEVER` and a time in the past mean at once.
        delay: Exptime,
        /// Sends no reply.
        is_quiet: bool,
    },
    /// `stats`.
    Statistics(Statistics),
    /// `version`.
    Version,
    /// `verbosity`: the reply is `OK`.
    Verbosity {
        /// Sends no reply.
        is_quiet: bool,
    },
    /// `quit`: closes the connection after the replies to earlier requests.
    Quit,
    /// `mg`.
    MetaGet {
        /// The key, decoded.
        key: &'b [u8],
        /// The flags.
        flags: MetaFlags<'b>,
    },
    /// `ms`.
    MetaStore {
        /// The pair and the condition.
        store: Store<'b>,
        /// The flags.
        flags: MetaFlags<'b>,
    },
    /// `md`.
    MetaDelete {
        /// The key, decoded.
        key: &'b [u8],
        /// The flags.
        flags: MetaFlags<'b>,
    },
    /// `ma`.
    MetaArithmetic {
        /// The key, decoded.
        key: &'b [u8],
        /// The operation.
        direction: Direction,
        /// The flags.
        flags: MetaFlags<'b>,
    },
    /// `me`: returns data about a pair.
    MetaDebug {
        /// The key, decoded.
        key: &'b [u8],
        /// The key was base64.
        is_base64: bool,
    },
    /// `mn`: the reply is `MN`.
    MetaNoOperation,
}

/// A value to store, and the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'b> {
    /// The key, decoded.
    pub key: &'b [u8],
    /// The value.
    pub value: &'b [u8],
    /// Selects the operation.
    pub mode: StoreMode,
    /// The client's flags. Append and prepend ignore them.
    pub flags: u32,
    /// The expiry. Append and prepend ignore it.
    pub exptime: Exptime,
    /// The pair must exist and have this cas.
    pub cas: Option<u64>,
}

/// The operation of a [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// Stores the value.
    Set,
    /// Stores the value if there is none.
    Add,
    /// Stores the value if there is one.
    Replace,
    /// Adds the bytes after those of the value.
    Append,
    /// Adds the bytes before those of the value.
    Prepend,
}

/// The operation on a decimal number of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Adds the operand modulo 2⁶⁴.
    Increment,
    /// Subtracts the operand, or all if the number is smaller.
    Decrement,
}

/// The statistics that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// No word: general ones.
    General,
    /// `reset`: sets the counts to 0. The reply is `RESET`.
    Reset,
    /// `settings`.
    Settings,
    /// `items`.
    Items,
    /// `slabs`.
    Slabs,
    /// `sizes`.
    Sizes,
    /// `conns`.
    Connections,
}
