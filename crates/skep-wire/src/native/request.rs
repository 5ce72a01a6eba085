//! The request frame: many operations on one space.
//!
//! ```text
//! 0      4          8       10      12
//! | size | sequence | space | count | operation | operation | ...
//! ```
//!
//! The size counts the bytes after the size field. It is at least 8, and at most the request frame limit of the
//! server's welcome. The client chooses the sequence, and the server repeats it in the reply. Bytes after the last
//! operation are ignored.

use skep_core::operation::{PlainRequest, Request};

use super::encoder_registers::EncoderRegisters;
use super::operation::{self, DecoderRegisters, Fault, SavedRegisters};
use super::{
    Cursor, ProtocolError, REQUEST_FRAME_SIZE_MAX, SIZE_FIELD, WireError, complete_frame, frame_body, similar_put,
};

/// Bytes of the header, with the size field.
const HEADER_SIZE: usize = SIZE_FIELD + size_of::<u32>() + 2 * size_of::<u16>();
const _: () = assert!(HEADER_SIZE == 12);

/// A request frame that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct RequestFrame<'a> {
    /// Number that the client chooses and the server repeats in the reply.
    pub sequence: u32,
    /// The space of the operations.
    pub space: u16,
    /// Number of operations.
    pub count: u16,
    operations: &'a [u8],
}

/// Iterates over the operations of a request frame. Returns exactly as many items as the count of the frame.
#[derive(Clone, Debug)]
pub struct Operations<'a> {
    cursor: Cursor<'a>,
    registers: DecoderRegisters<'a>,
    remaining: u16,
}

/// A position between two operations of a frame, with the decoder's state there. It holds no bytes. So a frame that is
/// executed in parts can be decoded from this position on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// Bytes of the operations before it.
    size: usize,
    /// Operations before it.
    count: u16,
    registers: SavedRegisters,
}

/// Appends a request frame to a buffer.
#[derive(Debug)]
#[must_use = "a frame is complete only after `finish`"]
pub struct RequestFrameWriter<'b> {
    output: &'b mut Vec<u8>,
    encoder: RequestFrameEncoder,
}

/// A request frame that is being appended to a buffer. It does not borrow the buffer: each call is given the same one, and
/// the frame is the last that it contains. [`RequestFrameWriter`] is this with its buffer.
#[derive(Debug)]
#[must_use = "a frame is complete only after `finish`"]
pub struct RequestFrameEncoder {
    start: usize,
    size_max: usize,
    count: u16,
    registers: EncoderRegisters,
}

impl<'a> RequestFrame<'a> {
    /// Decodes the frame at the start of the bytes that arrived. Returns it with its size, or `None` until it is
    /// complete.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(RequestFrame<'a>, usize)>, ProtocolError> {
        let Some(body) = frame_body(bytes, HEADER_SIZE, REQUEST_FRAME_SIZE_MAX)? else { return Ok(None) };
        let consumed = SIZE_FIELD + body.len();
        let mut cursor = Cursor { rest: body };
        let frame = (|| {
            let (sequence, space, count) = (cursor.take_u32()?, cursor.take_u16()?, cursor.take_u16()?);
            Some(RequestFrame { sequence, space, count, operations: cursor.rest })
        })();
        Ok(frame.map(|frame| (frame, consumed)))
    }

    /// Returns the size of the frame that these bytes begin with, when they have its size field.
    pub fn size_of(bytes: &[u8]) -> Option<usize> {
        Cursor { rest: bytes }.take_u32().map(|size| SIZE_FIELD + size as usize)
    }

    /// Returns the operations: exactly [`count`](Self::count) items, even if the frame is malformed. After an operation
    /// that cannot be skipped, all items are [`WireError::Malformed`].
    pub fn operations(&self) -> Operations<'a> {
        Operations {
            cursor: Cursor { rest: self.operations },
            registers: DecoderRegisters::default(),
            remaining: self.count,
        }
    }

    /// Returns the operations after a position that [`position`](Self::position) returned for this frame.
    pub fn operations_from(&self, position: Position) -> Operations<'a> {
        Operations {
            cursor: Cursor { rest: &self.operations[position.size..] },
            registers: position.registers.restore(self.operations),
            remaining: self.count - position.count,
        }
    }

    /// Returns the position of the next operation of `operations`. Expects the operations of this frame.
    pub fn position(&self, operations: &Operations<'a>) -> Position {
        Position {
            size: self.operations.len() - operations.cursor.rest.len(),
            count: self.count - operations.remaining,
            registers: operations.registers.save(self.operations),
        }
    }
}

impl Position {
    /// Returns the number of operations of the frame before this position.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }
}

impl<'a> Operations<'a> {
    /// Takes the next operation if it is plain. If this returns `None`, the next one is of another kind or malformed, or
    /// there is none.
    #[inline(always)]
    pub fn next_plain(&mut self) -> Option<PlainRequest<'a>> {
        let remaining = self.remaining.checked_sub(1)?;
        let plain = operation::decode_plain(&mut self.cursor, &mut self.registers)?;
        self.remaining = remaining;
        Some(plain)
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Request<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        Some(operation::decode(&mut self.cursor, &mut self.registers).map_err(|fault| match fault {
            Fault::Operation(error) => error,
            Fault::Frame(error) => {
                // Without bytes, all later items are malformed.
                self.cursor.rest = &[];
                error
            }
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.remaining), Some(usize::from(self.remaining)))
    }
}

impl ExactSizeIterator for Operations<'_> {}

impl<'b> RequestFrameWriter<'b> {
    /// Begins a frame of at most [`REQUEST_FRAME_SIZE_MAX`] bytes.
    pub fn new(output: &'b mut Vec<u8>, sequence: u32, space: u16) -> Self {
        Self::with_size_max(output, sequence, space, REQUEST_FRAME_SIZE_MAX)
    }

    /// Begins a frame of at most `size_max` bytes, as limited by the server's welcome.
    pub fn with_size_max(output: &'b mut Vec<u8>, sequence: u32, space: u16, size_max: usize) -> Self {
        let encoder = RequestFrameEncoder::begin(output, sequence, space, size_max);
        RequestFrameWriter { output, encoder }
    }

    /// Appends an operation. If it does not fit, appends nothing and returns `false`; then begin another frame. An
    /// operation always fits an empty frame if its [`operation_size`](super::operation_size) leaves room for the header
    /// of 8 bytes. The exceptions are invalid requests: a key whose size does not fit 16 bits, or a Σ that is not one
    /// element.
    #[inline]
    pub fn push(&mut self, request: &Request<'_>) -> bool {
        self.encoder.push(self.output, request)
    }

    /// Returns the number of operations so far.
    pub fn count(&self) -> u16 {
        self.encoder.count
    }

    /// Returns the bytes of the frame so far, including the header.
    pub fn size(&self) -> usize {
        self.output.len() - self.encoder.start
    }

    /// Completes the frame.
    pub fn finish(self) {
        self.encoder.finish(self.output);
    }
}

impl RequestFrameEncoder {
    /// Begins a frame of at most `size_max` bytes at the end of the buffer.
    pub fn begin(output: &mut Vec<u8>, sequence: u32, space: u16, size_max: usize) -> Self {
        let start = output.len();
        output.extend_from_slice(&[0; SIZE_FIELD]);
        output.extend_from_slice(&sequence.to_le_bytes());
        output.extend_from_slice(&space.to_le_bytes());
        output.extend_from_slice(&[0; size_of::<u16>()]);
        RequestFrameEncoder { start, size_max, count: 0, registers: EncoderRegisters::default() }
    }

    /// Appends an operation, as [`RequestFrameWriter::push`] does.
    #[inline]
    pub fn push(&mut self, output: &mut Vec<u8>, request: &Request<'_>) -> bool {
        let Some(count) = self.count.checked_add(1) else { return false };
        let size_max = (self.start + SIZE_FIELD).saturating_add(self.size_max);
        let pushed = operation::encode(request, &mut self.registers, output, size_max);
        if pushed {
            self.count = count;
        }
        pushed
    }

    /// Appends puts as [`push`](Self::push) does, as long as they are short and have the sizes of the operation before, and
    /// `is_included` returns true for their index. Returns their number. It is much faster than `push`.
    #[inline]
    pub fn push_similar_puts(
        &mut self,
        output: &mut Vec<u8>,
        requests: &[Request<'_>],
        is_included: impl Fn(usize) -> bool,
    ) -> usize {
        let requests = &requests[..requests.len().min(usize::from(u16::MAX - self.count))];
        let size_max = (self.start + SIZE_FIELD).saturating_add(self.size_max);
        let count = similar_put::encode_all(requests, is_included, &mut self.registers, output, size_max);
        self.count += count as u16;
        count
    }

    /// Completes the frame.
    pub fn finish(self, output: &mut [u8]) {
        complete_frame(&mut output[self.start..], HEADER_SIZE - size_of::<u16>(), self.count);
    }
}
