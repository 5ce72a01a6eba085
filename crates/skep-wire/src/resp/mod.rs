//! RESP, the protocol of Redis, as far as a server speaks it: requests come in, replies go out.
//!
//! It is a second door to the same operations as the native protocol, for the clients that exist already. A
//! request is an array of bulk strings, or a line of words that a person types:
//!
//! ```text
//!   *3\r\n $3\r\nSET\r\n $1\r\na\r\n $2\r\n41\r\n        three arguments
//!   SET a "41"\r\n                                        the same, inline
//! ```
//!
//! A reply begins with one byte that says what it is; version 3 adds types that version 2 writes as something
//! older:
//!
//! ```text
//!             version 2                 version 3
//!   simple    +OK\r\n                   the same
//!   error     -ERR sentence\r\n         the same
//!   integer   :42\r\n                   the same
//!   bulk      $2\r\n41\r\n              the same
//!   array     *2\r\n …                  the same
//!   null      $-1\r\n                   _\r\n
//!   map       *2n\r\n …                 %n\r\n …
//!   double    as a bulk                 ,1.5\r\n
//!   number    as a bulk                 (18446744073709551615\r\n
//!   text      as a bulk                 =6\r\ntxt:41\r\n
//! ```
//!
//! Invariants: no input makes the parser panic; it allocates nothing, neither for bytes that are only announced nor for
//! arguments that have arrived. It checks each byte of a request once, in however many pieces it arrives, and reads the
//! lines that announce arguments once more when a request did not arrive in one piece.

mod reply;
mod request;

pub use reply::{ReplyWriter, Version};
pub use request::{Argument, Parsed, RequestError, RequestParser};

use skep_core::operation::VALUE_SIZE_MAX;

/// Longest bulk string of a request, in bytes. It is a little more than the longest value, so that a value that is
/// just too long is refused by the store with a sentence that says so, and the connection goes on.
pub const BULK_SIZE_MAX: usize = VALUE_SIZE_MAX + (64 << 10);
/// Most arguments of a request.
pub const ARGUMENT_COUNT_MAX: usize = 1 << 20;
/// Longest inline request, and longest line that announces a count or a size, in bytes.
pub const LINE_SIZE_MAX: usize = 64 << 10;
/// Longest request, in bytes: sixteen values of the largest size, less their framing.
pub const REQUEST_SIZE_MAX: usize = 16 << 20;
