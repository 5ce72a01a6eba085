//! A chunk: the decoded requests of a connection that are worked on, whichever protocol they came by.
//!
//! A chunk is a barrier. It is decoded from the input, its operations are submitted in rounds, and when every answer
//! is in the output its bytes are given up and the next chunk is decoded. The requests borrow the input until then.

use skep_core::operation::Request;
use skep_wire::native::{Hello, ProtocolError, WireError};

use crate::native_chunk::{NativeChunk, NativeOperations};
use crate::resp_chunk::RespChunk;
use crate::resp_command::Context;
use crate::round::Round;
use crate::spaces::{Space, SpaceReplies};

/// What the bytes of a connection are, and the requests among them that are worked on.
pub(crate) enum Chunk {
    /// A native connection that has not said hello.
    Hello,
    /// Native request frames.
    Native(NativeChunk),
    /// RESP commands.
    Resp(RespChunk),
}

/// Which of so many operations that are answered as one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) index: usize,
    pub(crate) count: usize,
}

/// What was found in the input.
pub(crate) enum Decoded {
    /// The hello of a native connection has not arrived.
    NoHello,
    /// The hello of a native connection, and its size.
    Hello(Hello, usize),
    /// A part of a long request, of so many bytes: the next call goes on.
    Part(usize),
    /// Requests, perhaps none.
    Requests {
        /// Operations of the first round.
        round_size: usize,
        /// Operations, or commands if these are more.
        request_count: usize,
        /// Whether what is left in the input is not complete.
        exhausted: bool,
    },
    /// A request is complete that needs this many bytes more to be parsed.
    NeedsMemory(usize),
}

impl Chunk {
    /// Takes complete requests from the input, or decodes the next part of a long one. The last chunk must be finished. Holds no
    /// more than about `memory_max` bytes afterwards, but one request that is small is always taken.
    pub(crate) fn decode(&mut self, input: &mut [u8], memory_max: usize) -> Result<Decoded, ProtocolError> {
        match self {
            Chunk::Hello => {
                Ok(Hello::decode(input)?.map_or(Decoded::NoHello, |hello| Decoded::Hello(hello, Hello::SIZE)))
            }
            Chunk::Native(chunk) => {
                let (round_size, exhausted) = chunk.decode(input, memory_max)?;
                Ok(Decoded::Requests { round_size, request_count: round_size, exhausted })
            }
            Chunk::Resp(chunk) => Ok(chunk.decode(input, memory_max)),
        }
    }

    /// Whether all answers are in the output.
    pub(crate) fn is_finished(&self) -> bool {
        match self {
            Chunk::Hello => true,
            Chunk::Native(chunk) => chunk.is_finished(),
            Chunk::Resp(chunk) => chunk.is_finished(),
        }
    }

    /// Returns true unless it has nothing but empty lines.
    pub(crate) fn has_requests(&self) -> bool {
        match self {
            Chunk::Hello => false,
            Chunk::Native(chunk) => chunk.size() > 0,
            Chunk::Resp(chunk) => chunk.request_count() > 0,
        }
    }

    /// Whether a long request has been decoded in part.
    pub(crate) fn is_decoding(&self) -> bool {
        matches!(self, Chunk::Resp(chunk) if chunk.is_decoding())
    }

    /// Bytes of memory held, without the input.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        match self {
            Chunk::Hello => 0,
            Chunk::Native(chunk) => chunk.capacity(),
            Chunk::Resp(chunk) => chunk.capacity(),
        }
    }

    /// Returns the memory of a finished chunk.
    pub(crate) fn release(&mut self) {
        match self {
            Chunk::Hello => {}
            Chunk::Native(chunk) => chunk.release(),
            Chunk::Resp(chunk) => chunk.release(),
        }
    }

    /// Bytes of the input that the requests take.
    pub(crate) fn size(&self) -> usize {
        match self {
            Chunk::Hello => 0,
            Chunk::Native(chunk) => chunk.size(),
            Chunk::Resp(chunk) => chunk.size(),
        }
    }

    /// Operations whose answers are not in the output; `round` is the one that the chunk is in.
    pub(crate) fn operations_left(&self, round: &Round) -> usize {
        match self {
            Chunk::Hello => 0,
            Chunk::Native(_) => round.remaining(),
            Chunk::Resp(chunk) => chunk.operations_left(),
        }
    }

    /// Forgets the finished requests; answers how many bytes of the input they took.
    pub(crate) fn finish(&mut self) -> usize {
        match self {
            Chunk::Hello => 0,
            Chunk::Native(chunk) => chunk.finish(),
            Chunk::Resp(chunk) => chunk.finish(),
        }
    }

    /// The operations whose answers are not in the output, in order, each with its part in what is answered as one.
    pub(crate) fn operations<'a>(
        &'a self,
        input: &'a [u8],
    ) -> ChunkOperations<'a, impl Iterator<Item = (Part, Space, Request<'a>)>> {
        match self {
            Chunk::Hello => ChunkOperations::None,
            Chunk::Native(chunk) => ChunkOperations::Native(chunk.operations(input)),
            Chunk::Resp(chunk) => ChunkOperations::Resp(chunk.operations(input)),
        }
    }

    /// Which part of what is answered as one an operation is: the one after the first `count` whose answers are not in the
    /// output.
    pub(crate) fn part(&self, count: usize) -> Option<Part> {
        match self {
            Chunk::Hello => None,
            Chunk::Native(_) => Some(Part { index: 0, count: 1 }),
            Chunk::Resp(chunk) => chunk.part(count),
        }
    }

    /// Writes the answers that are there, in order, until they are more than `room` bytes, and begins the next round when
    /// one is finished.
    pub(crate) fn encode(
        &mut self,
        round: &mut Round,
        replies: &SpaceReplies,
        input: &[u8],
        output: &mut Vec<u8>,
        room: usize,
        context: &mut Context<'_>,
    ) {
        match self {
            Chunk::Hello => {}
            Chunk::Native(chunk) => chunk.encode(round, replies, output, room),
            Chunk::Resp(chunk) => {
                chunk.encode(round, replies, input, output, room, context);
                if round.is_finished() && !chunk.is_finished() && !chunk.is_decoding() {
                    round.begin(chunk.round_size());
                }
            }
        }
    }
}

/// The operations of a chunk.
pub(crate) enum ChunkOperations<'a, R> {
    None,
    Native(NativeOperations<'a>),
    Resp(R),
}

impl<'a, R: Iterator<Item = (Part, Space, Request<'a>)>> Iterator for ChunkOperations<'a, R> {
    type Item = (Part, Space, Result<Request<'a>, WireError>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            ChunkOperations::None => None,
            ChunkOperations::Native(operations) => {
                let (space, operation) = operations.next()?;
                // An operation of a frame has an answer of its own.
                Some((Part { index: 0, count: 1 }, space, operation))
            }
            ChunkOperations::Resp(operations) => {
                let (part, space, request) = operations.next()?;
                Some((part, space, Ok(request)))
            }
        }
    }
}
