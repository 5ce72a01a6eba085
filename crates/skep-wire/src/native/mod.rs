//! The native batch protocol: the batch packets of KV-Direct (section 4, "vector operation decoder") over a byte
//! stream. `docs/protocol.md` describes it for authors of clients in other languages.
//!
//! ```text
//! client                               server
//!   hello (16 B)              ─▶
//!                             ◀─       welcome (32 B)
//!   request frame, sequence 0 ─▶
//!   request frame, sequence 1 ─▶
//!                             ◀─       reply frame, sequence 0
//!                             ◀─       reply frame, sequence 0, the rest of the replies
//!                             ◀─       reply frame, sequence 1
//! ```
//!
//! All integers are little-endian. The server replies to frames in the order in which they were sent, and to the
//! operations of a frame in their order.
//!
//! A client can send two kinds of invalid input. A [`WireError`] is the reply to one operation, and the connection
//! stays open. So each operation of a frame gets exactly one reply. A [`ProtocolError`] means that the bytes are not
//! frames. Then no later byte can be decoded, and the connection is closed.
//!
//! Decoding borrows a request's key and operand from the bytes that arrived. It allocates nothing for an operation.

mod call;
mod code;
#[cfg(test)]
mod documented;
mod encoder_registers;
pub mod functions;
mod hello;
mod opcode;
mod operation;
mod password;
mod reply;
mod request;
mod scan;
mod similar_put;
mod string;
#[cfg(test)]
mod tests;

pub use hello::{Hello, Refusal, USER_SIZE_MAX, Welcome};
pub use operation::operation_size;
pub use password::{PASSWORD_SIZE_MAX, Password};
pub use reply::{Replies, ReplyFrame, ReplyFrameWriter};
pub use request::{Operations, Position, RequestFrame, RequestFrameEncoder, RequestFrameWriter};

use skep_core::operation::{PAGE_SIZE_MAX, Reply, VALUE_SIZE_MAX};

/// The version of the protocol that both ends must speak.
pub const VERSION: u8 = 1;

/// Largest size of a request frame, in bytes, as stated in its size field. A put of the longest value fits.
pub const REQUEST_FRAME_SIZE_MAX: usize = VALUE_SIZE_MAX + (64 << 10);

/// Size of a reply frame, in bytes, from which on the server begins another frame.
pub const REPLY_FRAME_SIZE_FULL: usize = 4 << 20;

/// Largest size of a reply frame, in bytes, as stated in its size field. It is the sum of two parts: one byte less than
/// a full frame, and the longest page of a scan. The longest page is longer than the longest value.
pub const REPLY_FRAME_SIZE_MAX: usize = REPLY_FRAME_SIZE_FULL + PAGE_SIZE_MAX + 16;

/// The space number of the hash store.
pub const HASH_SPACE: u16 = 0;

/// The space number of the ordered store.
pub const ORDERED_SPACE: u16 = 1;
/// The space of the cache, if the server has one.
pub const CACHE_SPACE: u16 = 2;
/// The functions of users, as a space: [`functions`] has its keys and values.
pub const FUNCTIONS_SPACE: u16 = 3;

/// The reply of a server to one operation.
pub type Response<'a> = Result<Reply<'a>, WireError>;

/// The reason why the server did not execute an operation. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum WireError {
    /// The opcode is not defined in [`VERSION`]. The rest of the frame cannot be decoded either.
    #[error("unknown operation code")]
    UnknownOperation = 1,
    /// No update function, fold or predicate has this code.
    #[error("unknown function code")]
    UnknownFunction = 2,
    /// No element type has this code.
    #[error("unknown element type code")]
    UnknownElement = 3,
    /// The operation's header contradicts itself, or the frame ends before the operation does.
    #[error("malformed operation")]
    Malformed = 4,
    /// The server has no space with this number.
    #[error("the server does not have this space: 1 (ordered) needs --ordered-memory, 2 (cache) needs --cache-memory")]
    UnknownSpace = 5,
    /// The server has no room for the operation now. The client can send it again later.
    #[error("server is busy, send the operation again later")]
    Busy = 6,
    /// The server cannot write its log, so it refuses operations that may change keys.
    #[error("the server cannot write its log: writes are refused until it can (skep_log_trouble in INFO tells why)")]
    NotDurable = 7,
    /// A call names earlier code of its function. Only the log does.
    #[error("a call names the newest code of a function: set its revision to 0")]
    EarlierCode = 8,
    /// The functions of users have no such operation.
    #[error("functions have only put, put if absent, get, contains and delete")]
    NotOfFunctions = 9,
    /// The user of the connection may not do this, or not with this key or in this space.
    #[error("the user has no permission for this operation, key or space: ACL LOG tells for which")]
    NotPermitted = 10,
    /// The user of the connection has had all operations or bytes of this second. The client can send it again later.
    #[error("the user has had all operations or bytes of this second: send the operation again later")]
    TooFast = 11,
}

/// The reason why a connection is closed: the bytes that arrived are not the native protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The first bytes are not those of a hello or welcome.
    #[error("the other end does not speak Skep's native protocol")]
    BadHello,
    /// The peer uses another version.
    #[error("the other end speaks version {0} of the native protocol, this one version {VERSION}")]
    UnsupportedVersion(u8),
    /// The size of a frame is less than its header or more than the limit.
    #[error("a frame of {0} bytes is outside the limits")]
    FrameSize(u32),
    /// A reply frame's content contradicts itself.
    #[error("malformed reply frame")]
    Malformed,
    /// The server does not serve this client.
    #[error("the server refuses the connection: {0}")]
    Refused(Refusal),
}

impl WireError {
    /// All errors, in the order of their codes.
    pub const ALL: [WireError; 11] = [
        WireError::UnknownOperation,
        WireError::UnknownFunction,
        WireError::UnknownElement,
        WireError::Malformed,
        WireError::UnknownSpace,
        WireError::Busy,
        WireError::NotDurable,
        WireError::EarlierCode,
        WireError::NotOfFunctions,
        WireError::NotPermitted,
        WireError::TooFast,
    ];

    /// Returns the error with this code on the wire.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Returns the code of the error on the wire, from 1.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// The bytes that arrived and are not yet decoded.
#[derive(Clone, Copy, Debug)]
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[inline]
    fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    fn take_u8(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    #[inline]
    fn take_u16(&mut self) -> Option<u16> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u16::from_le_bytes(*bytes))
    }

    #[inline]
    fn take_u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u32::from_le_bytes(*bytes))
    }
}

/// Returns the bytes after the size field of the first frame, once all of them have arrived.
fn frame_body(bytes: &[u8], header_size: usize, size_max: usize) -> Result<Option<&[u8]>, ProtocolError> {
    let mut cursor = Cursor { rest: bytes };
    let Some(size) = cursor.take_u32() else { return Ok(None) };
    if !(header_size - SIZE_FIELD..=size_max).contains(&(size as usize)) {
        return Err(ProtocolError::FrameSize(size));
    }
    Ok(cursor.take(size as usize))
}

/// Completes a frame that was written: sets its size, and its number of entries at this offset.
fn complete_frame(frame: &mut [u8], count_start: usize, count: u16) {
    let size = u32::try_from(frame.len() - SIZE_FIELD).expect("a frame is no longer than its limit");
    frame[..SIZE_FIELD].copy_from_slice(&size.to_le_bytes());
    frame[count_start..][..size_of::<u16>()].copy_from_slice(&count.to_le_bytes());
}

/// Bytes of a frame's size field, which does not count itself.
const SIZE_FIELD: usize = size_of::<u32>();
