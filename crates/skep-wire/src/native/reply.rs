//! The reply frame: replies to the operations of one request frame, in their order.
//!
//! ```text
//! frame   0      4          8       10  12
//!         | size | sequence | count | 0 | reply | reply | ...
//!
//! reply   | status, flag | value size | value |      status 1
//!           u8             u32, unless SAME_SIZES
//!         | status | code |                          status 4 and 5
//!         | status |                                 the others
//!
//! status, flag   7   6            5 ......... 0
//!                | 0 | SAME_SIZES | status    |
//!
//! status   0 done   1 value   2 not found   3 exists   4 operation error   5 wire error
//! ```
//!
//! The size counts the bytes after the size field, at least 8. `SAME_SIZES`: the value is as long as the last value of
//! the frame. Replies that do not fit one frame are sent in several frames of the same sequence. Each frame has at most
//! 4 MiB and one value or page. The client reads until it has a reply to each operation. It ignores bytes after the
//! last reply of a frame.

use skep_core::operation::{OperationError, Reply};

use super::code::Coded;
use super::{Cursor, ProtocolError, REPLY_FRAME_SIZE_MAX, Response, SIZE_FIELD, WireError, complete_frame, frame_body};

/// Bytes of the header, with the size field.
const HEADER_SIZE: usize = SIZE_FIELD + size_of::<u32>() + 2 * size_of::<u16>();
const _: () = assert!(HEADER_SIZE == 12);
/// Offset of the count, which follows size and sequence.
const COUNT_START: usize = SIZE_FIELD + size_of::<u32>();

const STATUS_DONE: u8 = 0;
const STATUS_VALUE: u8 = 1;
const STATUS_NOT_FOUND: u8 = 2;
const STATUS_EXISTS: u8 = 3;
const STATUS_OPERATION_ERROR: u8 = 4;
const STATUS_WIRE_ERROR: u8 = 5;
/// The value is as long as the last value of the frame.
const SAME_SIZES: u8 = 0x40;

/// Bytes of a number, which is the usual short value.
const NUMBER_SIZE: usize = 8;

/// A reply frame that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct ReplyFrame<'a> {
    /// The sequence of the request frame.
    pub sequence: u32,
    /// Number of replies in this frame.
    pub count: u16,
    replies: &'a [u8],
}

/// Iterates over the replies of a reply frame. If a reply is malformed, it is the last item, even if the count is
/// larger.
#[derive(Clone, Debug)]
pub struct Replies<'a> {
    cursor: Cursor<'a>,
    remaining: u16,
    value_size: Option<u32>,
}

/// Appends a reply frame to a buffer.
#[derive(Debug)]
#[must_use = "a frame is complete only after `finish`"]
pub struct ReplyFrameWriter<'b> {
    output: &'b mut Vec<u8>,
    start: usize,
    count: u16,
    value_size: Option<u32>,
}

impl<'a> ReplyFrame<'a> {
    /// Decodes the frame at the start of the bytes that arrived. Returns it with its size, or `None` until it is
    /// complete.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(ReplyFrame<'a>, usize)>, ProtocolError> {
        let Some(body) = frame_body(bytes, HEADER_SIZE, REPLY_FRAME_SIZE_MAX)? else { return Ok(None) };
        let consumed = SIZE_FIELD + body.len();
        let mut cursor = Cursor { rest: body };
        let frame = (|| {
            let (sequence, count, _) = (cursor.take_u32()?, cursor.take_u16()?, cursor.take_u16()?);
            Some(ReplyFrame { sequence, count, replies: cursor.rest })
        })();
        Ok(frame.map(|frame| (frame, consumed)))
    }

    /// Returns the replies.
    pub fn replies(&self) -> Replies<'a> {
        Replies { cursor: Cursor { rest: self.replies }, remaining: self.count, value_size: None }
    }
}

impl<'a> Replies<'a> {
    #[inline]
    fn decode_next(&mut self) -> Option<Response<'a>> {
        let first = self.cursor.take_u8()?;
        Some(match first {
            STATUS_DONE => Ok(Reply::Done),
            STATUS_NOT_FOUND => Ok(Reply::NotFound),
            STATUS_EXISTS => Ok(Reply::Exists),
            STATUS_OPERATION_ERROR => Ok(Reply::Failed(OperationError::from_code(self.cursor.take_u8()?)?)),
            STATUS_WIRE_ERROR => Err(WireError::from_code(self.cursor.take_u8()?)?),
            _ if first & !SAME_SIZES == STATUS_VALUE => {
                if first & SAME_SIZES == 0 {
                    self.value_size = Some(self.cursor.take_u32()?);
                }
                Ok(Reply::Value(self.cursor.take(self.value_size? as usize)?))
            }
            _ => return None,
        })
    }
}

impl<'a> Iterator for Replies<'a> {
    type Item = Result<Response<'a>, ProtocolError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        let response = self.decode_next();
        if response.is_none() {
            self.remaining = 0;
        }
        Some(response.ok_or(ProtocolError::Malformed))
    }
}

impl<'b> ReplyFrameWriter<'b> {
    /// Begins a frame that replies to the request frame with this sequence.
    pub fn new(output: &'b mut Vec<u8>, sequence: u32) -> Self {
        let start = output.len();
        output.extend_from_slice(&[0; SIZE_FIELD]);
        output.extend_from_slice(&sequence.to_le_bytes());
        output.extend_from_slice(&[0; 2 * size_of::<u16>()]);
        ReplyFrameWriter { output, start, count: 0, value_size: None }
    }

    /// Appends a reply. [`Reply::Deferred`] is encoded as [`WireError::Busy`]: the server had no room for the
    /// operation.
    ///
    /// # Panics
    /// After 65535 replies: no request frame has more operations.
    #[inline(always)]
    pub fn push(&mut self, response: Response<'_>) {
        self.count = self.count.checked_add(1).expect("a request frame has at most 65535 operations");
        match response {
            Ok(Reply::Value(value)) if value.len() == NUMBER_SIZE && self.value_size == Some(NUMBER_SIZE as u32) => {
                // One copy of constant size: numbers are usual, and most follow another one.
                let mut reply = [STATUS_VALUE | SAME_SIZES; 1 + NUMBER_SIZE];
                reply[1..].copy_from_slice(&value[..NUMBER_SIZE]);
                self.output.extend_from_slice(&reply);
            }
            Ok(Reply::Done) => self.output.push(STATUS_DONE),
            response => self.push_any(response),
        }
    }

    #[inline(never)]
    fn push_any(&mut self, response: Response<'_>) {
        match response {
            Ok(Reply::Done) => self.output.push(STATUS_DONE),
            Ok(Reply::NotFound) => self.output.push(STATUS_NOT_FOUND),
            Ok(Reply::Exists) => self.output.push(STATUS_EXISTS),
            Ok(Reply::Failed(error)) => self.output.extend_from_slice(&[STATUS_OPERATION_ERROR, error.code()]),
            Ok(Reply::Deferred) => self.output.extend_from_slice(&[STATUS_WIRE_ERROR, WireError::Busy.code()]),
            Err(error) => self.output.extend_from_slice(&[STATUS_WIRE_ERROR, error.code()]),
            Ok(Reply::Value(value)) => {
                let size = u32::try_from(value.len()).expect("a value is no longer than its limit");
                if self.value_size == Some(size) {
                    self.output.push(STATUS_VALUE | SAME_SIZES);
                } else {
                    self.output.push(STATUS_VALUE);
                    self.output.extend_from_slice(&size.to_le_bytes());
                    self.value_size = Some(size);
                }
                self.output.extend_from_slice(value);
            }
        }
    }

    /// Returns the number of replies so far.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Returns the bytes of the frame so far, including the header. When it reaches
    /// [`REPLY_FRAME_SIZE_FULL`](super::REPLY_FRAME_SIZE_FULL), the server finishes the frame and begins another of the
    /// same sequence.
    pub fn size(&self) -> usize {
        self.output.len() - self.start
    }

    /// Completes the frame.
    pub fn finish(self) {
        complete_frame(&mut self.output[self.start..], COUNT_START, self.count);
    }
}
