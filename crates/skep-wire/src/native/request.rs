//! The request frame: many operations on one space.
//!
//! ```text
//! 0      4          8       10      12
//! | size | sequence | space | count | operation | operation | ...
//! ```
//!
//! The size counts what follows it: at least 8 bytes, at most the request frame limit of the server's welcome. The
//! sequence is the client's own; it comes back in the reply. What follows the last operation is ignored.

use skep_core::operation::Request;

use super::operation::{self, DecoderRegisters, EncoderRegisters, Fault, SavedRegisters};
use super::{Cursor, ProtocolError, REQUEST_FRAME_SIZE_MAX, SIZE_FIELD, WireError, frame_body};

/// Bytes of the header, with the size field.
const HEADER_SIZE: usize = SIZE_FIELD + size_of::<u32>() + 2 * size_of::<u16>();
const _: () = assert!(HEADER_SIZE == 12);

/// A request frame that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct RequestFrame<'a> {
    /// Chosen by the client, to be repeated in the reply.
    pub sequence: u32,
    /// The space that the operations are about.
    pub space: u16,
    /// Number of operations.
    pub count: u16,
    operations: &'a [u8],
}

/// The operations of a request frame: exactly as many as its count says.
#[derive(Clone, Debug)]
pub struct Operations<'a> {
    cursor: Cursor<'a>,
    registers: DecoderRegisters<'a>,
    remaining: u16,
}

/// A place between two operations of a frame, with what decoding has to remember there. It holds no bytes, so a frame that
/// is worked off in parts can be decoded on from there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// Bytes of the operations before it.
    size: usize,
    /// Operations before it.
    count: u16,
    registers: SavedRegisters,
}

/// Writes a request frame behind what the buffer already holds.
#[derive(Debug)]
#[must_use = "a frame is complete only after `finish`"]
pub struct RequestFrameWriter<'b> {
    output: &'b mut Vec<u8>,
    start: usize,
    size_max: usize,
    count: u16,
    registers: EncoderRegisters,
}

impl<'a> RequestFrame<'a> {
    /// The frame at the front of the bytes that arrived and the bytes it takes, or `None` until it is complete.
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

    /// The operations: exactly [`count`](Self::count) items, whatever the frame holds. After one that cannot be
    /// stepped over, all are [`WireError::Malformed`].
    pub fn operations(&self) -> Operations<'a> {
        Operations {
            cursor: Cursor { rest: self.operations },
            registers: DecoderRegisters::default(),
            remaining: self.count,
        }
    }

    /// The operations from a place on that [`position`](Self::position) found in this frame.
    pub fn operations_from(&self, position: Position) -> Operations<'a> {
        Operations {
            cursor: Cursor { rest: &self.operations[position.size..] },
            registers: position.registers.restore(self.operations),
            remaining: self.count - position.count,
        }
    }

    /// The place of the next operation of `operations`, which are those of this frame.
    pub fn position(&self, operations: &Operations<'a>) -> Position {
        Position {
            size: self.operations.len() - operations.cursor.rest.len(),
            count: self.count - operations.remaining,
            registers: operations.registers.save(self.operations),
        }
    }
}

impl Position {
    /// How many operations of the frame are before it.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Request<'a>, WireError>;

    // A request that is not inlined to where it goes is copied on the way, several times.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        Some(operation::decode(&mut self.cursor, &mut self.registers).map_err(|fault| match fault {
            Fault::Operation(error) => error,
            Fault::Frame(error) => {
                // Without bytes, whatever else is asked for is malformed.
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

    /// Begins a frame whose size field says at most `size_max`: what the server's welcome allows.
    pub fn with_size_max(output: &'b mut Vec<u8>, sequence: u32, space: u16, size_max: usize) -> Self {
        let start = output.len();
        output.extend_from_slice(&[0; SIZE_FIELD]);
        output.extend_from_slice(&sequence.to_le_bytes());
        output.extend_from_slice(&space.to_le_bytes());
        output.extend_from_slice(&[0; size_of::<u16>()]);
        RequestFrameWriter { output, start, size_max, count: 0, registers: EncoderRegisters::default() }
    }

    /// Appends an operation. If it does not fit, writes nothing and answers `false`: begin another frame. An empty
    /// frame takes every request whose [`operation_size`](super::operation_size) leaves room for the header of 8
    /// bytes; except an invalid one, if its key size does not fit 16 bits or its Σ is not one element.
    #[inline]
    pub fn push(&mut self, request: &Request<'_>) -> bool {
        let Some(count) = self.count.checked_add(1) else { return false };
        let size_max = (self.start + SIZE_FIELD).saturating_add(self.size_max);
        let pushed = operation::encode(request, &mut self.registers, self.output, size_max);
        if pushed {
            self.count = count;
        }
        pushed
    }

    /// Number of operations so far.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Bytes of the frame so far, header included.
    pub fn size(&self) -> usize {
        self.output.len() - self.start
    }

    /// Completes the frame.
    pub fn finish(self) {
        let size = u32::try_from(self.size() - SIZE_FIELD).expect("a frame is no longer than its limit");
        let header = &mut self.output[self.start..][..HEADER_SIZE];
        header[..SIZE_FIELD].copy_from_slice(&size.to_le_bytes());
        header[HEADER_SIZE - size_of::<u16>()..].copy_from_slice(&self.count.to_le_bytes());
    }
}
