//! A parsed batch: the decoded requests of a connection until all their replies are in the output, in either protocol.
//!
//! A parsed batch is a barrier:
//!
//! 1. It is decoded from the input. Its requests borrow the input.
//! 2. Its operations are submitted, in parts if there are many.
//! 3. When every reply is in the output, its input is consumed, and the next batch is decoded.

use skep_core::operation::Request;
use skep_wire::native::{Hello, ProtocolError, WireError};

use crate::decoded::{Decoded, Part};
use crate::native_batch::{NativeBatch, NativeOperations};
use crate::reply_queue::ReplyQueue;
use crate::resp_batch::RespBatch;
use crate::resp_command::Context;
use crate::spaces::{Space, SpaceReplies};
use crate::unix_time::UnixTime;

/// The front end of a connection, and its decoded requests.
pub(crate) enum ParsedBatch {
    /// A native connection that has not said hello.
    Handshake,
    /// Native request frames.
    Native(NativeBatch),
    /// RESP commands.
    Resp(RespBatch),
}

impl ParsedBatch {
    /// Takes complete requests from the input, or decodes the next part of a long one. The last batch must be finished.
    /// Always takes one small request. Takes more only while it holds at most about `memory_max` bytes.
    pub(crate) fn decode(
        &mut self,
        input: &mut [u8],
        memory_max: usize,
        now: UnixTime,
    ) -> Result<Decoded, ProtocolError> {
        match self {
            ParsedBatch::Handshake => {
                Ok(Hello::decode(input)?.map_or(Decoded::NoHello, |hello| Decoded::Hello(hello, Hello::SIZE)))
            }
            ParsedBatch::Native(parsed) => {
                let (queue_size, exhausted) = parsed.decode(input, memory_max)?;
                Ok(Decoded::Requests { queue_size, request_count: queue_size, exhausted })
            }
            ParsedBatch::Resp(parsed) => Ok(parsed.decode(input, memory_max, now)),
        }
    }

    /// Returns true if all replies are in the output.
    pub(crate) fn is_finished(&self) -> bool {
        match self {
            ParsedBatch::Handshake => true,
            ParsedBatch::Native(parsed) => parsed.is_finished(),
            ParsedBatch::Resp(parsed) => parsed.is_finished(),
        }
    }

    /// Returns true unless it has nothing but empty lines.
    pub(crate) fn has_requests(&self) -> bool {
        match self {
            ParsedBatch::Handshake => false,
            ParsedBatch::Native(parsed) => parsed.size() > 0,
            ParsedBatch::Resp(parsed) => parsed.request_count() > 0,
        }
    }

    /// Returns true if a long request has been decoded in part.
    pub(crate) fn is_decoding(&self) -> bool {
        matches!(self, ParsedBatch::Resp(parsed) if parsed.is_decoding())
    }

    /// Returns the bytes of memory held, without the input.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        match self {
            ParsedBatch::Handshake => 0,
            ParsedBatch::Native(parsed) => parsed.capacity(),
            ParsedBatch::Resp(parsed) => parsed.capacity(),
        }
    }

    /// Returns the memory of a finished parsed batch.
    pub(crate) fn release(&mut self) {
        match self {
            ParsedBatch::Handshake => {}
            ParsedBatch::Native(parsed) => parsed.release(),
            ParsedBatch::Resp(parsed) => parsed.release(),
        }
    }

    /// Returns the bytes of the input that the requests take.
    pub(crate) fn size(&self) -> usize {
        match self {
            ParsedBatch::Handshake => 0,
            ParsedBatch::Native(parsed) => parsed.size(),
            ParsedBatch::Resp(parsed) => parsed.size(),
        }
    }

    /// Returns the number of operations whose replies are not in the output; `queue` is the one of the batch.
    pub(crate) fn operations_left(&self, queue: &ReplyQueue) -> usize {
        match self {
            ParsedBatch::Handshake => 0,
            ParsedBatch::Native(_) => queue.remaining(),
            ParsedBatch::Resp(parsed) => parsed.operations_left(),
        }
    }

    /// Forgets the finished requests. Returns the bytes of the input that they took.
    pub(crate) fn finish(&mut self) -> usize {
        match self {
            ParsedBatch::Handshake => 0,
            ParsedBatch::Native(parsed) => parsed.finish(),
            ParsedBatch::Resp(parsed) => parsed.finish(),
        }
    }

    /// Returns the operations whose replies are not in the output, in order, each with its part of the reply.
    pub(crate) fn operations<'a>(
        &'a self,
        input: &'a [u8],
    ) -> ParsedOperations<'a, impl Iterator<Item = (Part, Space, Request<'a>)>> {
        match self {
            ParsedBatch::Handshake => ParsedOperations::None,
            ParsedBatch::Native(parsed) => ParsedOperations::Native(parsed.operations(input)),
            ParsedBatch::Resp(parsed) => ParsedOperations::Resp(parsed.operations(input)),
        }
    }

    /// Skips the first `count` operations whose replies are not in the output. Returns the part of the next one in its
    /// command.
    pub(crate) fn part(&self, count: usize) -> Option<Part> {
        match self {
            ParsedBatch::Handshake => None,
            ParsedBatch::Native(_) => Some(Part { index: 0, count: 1 }),
            ParsedBatch::Resp(parsed) => parsed.part(count),
        }
    }

    /// Writes the replies that have arrived, in order, until they are more than `room` bytes. Begins the next reply
    /// queue when one is finished.
    pub(crate) fn encode(
        &mut self,
        queue: &mut ReplyQueue,
        replies: &SpaceReplies,
        input: &[u8],
        output: &mut Vec<u8>,
        room: usize,
        context: &mut Context<'_>,
    ) {
        match self {
            ParsedBatch::Handshake => {}
            ParsedBatch::Native(parsed) => parsed.encode(queue, replies, output, room),
            ParsedBatch::Resp(parsed) => {
                parsed.encode(queue, replies, input, output, room, context);
                if queue.is_finished() && !parsed.is_finished() && !parsed.is_decoding() {
                    queue.begin(parsed.queue_size());
                }
            }
        }
    }
}

/// The operations of a parsed batch.
pub(crate) enum ParsedOperations<'a, R> {
    None,
    Native(NativeOperations<'a>),
    Resp(R),
}

impl<'a, R: Iterator<Item = (Part, Space, Request<'a>)>> Iterator for ParsedOperations<'a, R> {
    type Item = (Part, Space, Result<Request<'a>, WireError>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            ParsedOperations::None => None,
            ParsedOperations::Native(operations) => {
                let (space, operation) = operations.next()?;
                // Each operation of a frame has its own reply.
                Some((Part { index: 0, count: 1 }, space, operation))
            }
            ParsedOperations::Resp(operations) => {
                let (part, space, request) = operations.next()?;
                Some((part, space, Ok(request)))
            }
        }
    }
}
