//! RESP, the protocol of Redis: the server's side, which parses requests and writes replies.
//!
//! RESP is a second front end to the operations of the native protocol, for existing clients. A request is an array of
//! bulk strings, or a line of words as a user types it:
//!
//! ```text
//!   *3\r\n $3\r\nSET\r\n $1\r\na\r\n $2\r\n41\r\n        three arguments
//!   SET a "41"\r\n                                        the same, inline
//! ```
//!
//! The first byte of a reply is its type. Version 3 adds types, which version 2 writes as one of its own types:
//!
//! ```text
//!             version 2                 version 3
//!   simple    +OK\r\n                   the same
//!   error     -ERR message\r\n          the same
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
//! Invariants: no input makes the parser panic. The parser allocates nothing, neither for the stated size of a request
//! nor for arguments that have arrived. It checks each byte of a request once, even if the request arrives in many
//! pieces. One exception: if the request did not arrive in one piece, or the caller's vector has no capacity for its
//! arguments, some lines are read a second time.

mod argument;
mod reply;
mod request;
mod request_error;
mod whole;
mod words;

pub use argument::Argument;
pub use reply::{ReplyWriter, Version, error_text};
pub use request::{Arriving, Parsed, RequestParser};
pub use request_error::RequestError;
pub use whole::ShortRequest;
pub use words::split_words;

use skep_core::operation::VALUE_SIZE_MAX;

/// Longest bulk string of a request, in bytes. It is a little more than the longest value. So if a value is only
/// slightly too long, the store refuses it with an error message, and the connection stays open.
pub const BULK_SIZE_MAX: usize = VALUE_SIZE_MAX + (64 << 10);
/// Most arguments of a request.
pub const ARGUMENT_COUNT_MAX: usize = 1 << 20;
/// Most arguments that the parser checks, and most that it appends, before it returns [`Parsed::Part`]: about half a
/// millisecond of work.
pub const ARGUMENTS_PART: usize = 32 << 10;
/// Most arguments of a request of a client that has not sent the password.
pub const LOCKED_ARGUMENT_COUNT_MAX: usize = 10;
/// Longest bulk string of such a request, in bytes.
pub const LOCKED_BULK_SIZE_MAX: usize = 16 << 10;
/// Longest inline request, and longest line with a count or a size, in bytes.
pub const LINE_SIZE_MAX: usize = 64 << 10;
/// Longest request, in bytes: sixteen values of the largest size, less their framing.
pub const REQUEST_SIZE_MAX: usize = 16 << 20;
