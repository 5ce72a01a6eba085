//! A parsed batch: the decoded requests of a connection until all their replies are in the output, in any protocol.
//!
//! A parsed batch is a barrier:
//!
//! 1. It is decoded from the input. Its requests borrow the input.
//! 2. Its operations are submitted, in parts if there are many.
//! 3. When every reply is in the output, its input is consumed, and the next batch is decoded.

use skep_wire::native::{Hello, ProtocolError};

use crate::access::{Access, Login};
use crate::encoding::Encoding;
use crate::front_end::FrontEnd;
use crate::limits::DECODE_WORK;
use crate::memcached_batch::MemcachedBatch;
use crate::native_batch::NativeBatch;
use crate::reply_queue::ReplyQueue;
use crate::resp_batch::{RespBatch, may_be_watch};
use crate::unix_time::UnixTime;
use crate::vocabulary::{Decoded, Need};

/// The front end of a connection, and its decoded requests.
pub(crate) enum ParsedBatch {
    /// A native connection that has not said hello.
    Handshake,
    /// Native request frames.
    Native(NativeBatch),
    /// RESP commands.
    Resp(Box<RespBatch>),
    /// RESP commands that visit another shard.
    Away,
    /// Commands of memcached's protocol.
    Memcached(Box<MemcachedBatch>),
}

impl ParsedBatch {
    /// Takes complete requests from the input, or decodes the next part of a long one. The last batch must be finished.
    /// Always takes one small request. Takes more only while it holds at most about `memory_max` bytes.
    /// Refuses what the user of the connection may not do.
    pub(crate) fn decode(
        &mut self,
        input: &mut [u8],
        memory_max: usize,
        now: UnixTime,
        access: &Access,
    ) -> Result<Decoded, ProtocolError> {
        match self {
            ParsedBatch::Handshake => {
                Ok(Hello::decode(input)?.map_or(Decoded::NoHello, |(hello, size)| Decoded::Hello(hello, size)))
            }
            ParsedBatch::Native(parsed) => {
                let (queue_size, exhausted) = parsed.decode(input, memory_max, now, access)?;
                Ok(Decoded::Requests {
                    queue_size,
                    request_count: queue_size,
                    exhausted,
                    work: queue_size * DECODE_WORK,
                })
            }
            ParsedBatch::Resp(parsed) => Ok(parsed.decode(input, memory_max, now, access)),
            ParsedBatch::Memcached(parsed) => Ok(parsed.decode(input, memory_max, now, access)),
            ParsedBatch::Away => unreachable!("they are not finished"),
        }
    }

    /// Sets the time at which the next operations are submitted, from which their relative times count.
    #[inline]
    pub(crate) fn set_time(&mut self, now: UnixTime) {
        match self {
            // Native requests have no relative times.
            ParsedBatch::Handshake | ParsedBatch::Away | ParsedBatch::Native(_) => {}
            ParsedBatch::Resp(parsed) => parsed.set_time(now),
            ParsedBatch::Memcached(parsed) => parsed.set_time(now),
        }
    }

    /// Returns true if all replies are in the output.
    pub(crate) fn is_finished(&self) -> bool {
        match self {
            ParsedBatch::Handshake => true,
            ParsedBatch::Native(parsed) => parsed.is_finished(),
            ParsedBatch::Resp(parsed) => parsed.is_finished(),
            ParsedBatch::Memcached(parsed) => parsed.is_finished(),
            ParsedBatch::Away => false,
        }
    }

    /// Returns the memory that the request needs which begins with these bytes and is incomplete.
    pub(crate) fn arriving(&self, input: &[u8]) -> Need {
        match self {
            ParsedBatch::Handshake | ParsedBatch::Away => Need::of_size(None),
            ParsedBatch::Native(parsed) => parsed.arriving(input),
            ParsedBatch::Resp(parsed) => parsed.arriving(input),
            ParsedBatch::Memcached(parsed) => parsed.arriving(),
        }
    }

    /// Returns true if a transaction is being queued.
    pub(crate) fn is_in_transaction(&self) -> bool {
        matches!(self, ParsedBatch::Resp(parsed) if parsed.is_in_transaction())
    }

    /// Returns true if it keeps memory when a request is done: a transaction is being queued, or keys are watched.
    pub(crate) fn keeps_memory(&self) -> bool {
        matches!(self, ParsedBatch::Resp(parsed) if parsed.is_in_transaction() || parsed.watches())
    }

    /// Returns true if the request that these bytes begin keeps memory when it is done.
    pub(crate) fn will_keep_memory(&self, input: &[u8]) -> bool {
        matches!(self, ParsedBatch::Resp(parsed) if parsed.is_in_transaction() || may_be_watch(input))
    }

    /// Returns true if a long request has been decoded in part.
    pub(crate) fn is_decoding(&self) -> bool {
        matches!(self, ParsedBatch::Resp(parsed) if parsed.is_decoding())
    }

    /// Returns true if a part of a reply was encoded, and the rest was not.
    pub(crate) fn is_within_reply(&self) -> bool {
        match self {
            ParsedBatch::Handshake | ParsedBatch::Native(_) => false,
            ParsedBatch::Resp(parsed) => parsed.is_within_reply(),
            ParsedBatch::Memcached(parsed) => parsed.is_within_reply(),
            ParsedBatch::Away => true,
        }
    }

    /// Returns the bytes of memory held, without the input.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        match self {
            ParsedBatch::Handshake | ParsedBatch::Away => 0,
            ParsedBatch::Native(parsed) => parsed.capacity(),
            ParsedBatch::Resp(parsed) => parsed.capacity(),
            ParsedBatch::Memcached(parsed) => parsed.capacity(),
        }
    }

    /// Returns the part of [`ParsedBatch::capacity`] that is memory of replies: the permit of their command covers it.
    #[inline]
    pub(crate) fn reply_memory(&self) -> usize {
        if let ParsedBatch::Resp(parsed) = self { parsed.reply_memory() } else { 0 }
    }

    /// Returns the memory of a finished parsed batch.
    pub(crate) fn release(&mut self) {
        match self {
            ParsedBatch::Handshake | ParsedBatch::Away => {}
            ParsedBatch::Native(parsed) => parsed.release(),
            ParsedBatch::Resp(parsed) => parsed.release(),
            ParsedBatch::Memcached(parsed) => parsed.release(),
        }
    }

    /// Returns the bytes of the input that the requests take.
    pub(crate) fn size(&self) -> usize {
        match self {
            ParsedBatch::Handshake | ParsedBatch::Away => 0,
            ParsedBatch::Native(parsed) => parsed.size(),
            ParsedBatch::Resp(parsed) => parsed.size(),
            ParsedBatch::Memcached(parsed) => parsed.size(),
        }
    }

    /// Returns the number of operations whose replies are not in the output; `queue` is the one of the batch.
    pub(crate) fn operations_left(&self, queue: &ReplyQueue) -> usize {
        match self {
            ParsedBatch::Handshake | ParsedBatch::Away => 0,
            ParsedBatch::Native(parsed) => queue.remaining() + parsed.functions_left(),
            ParsedBatch::Resp(parsed) => parsed.operations_left(),
            ParsedBatch::Memcached(parsed) => parsed.operations_left(),
        }
    }

    /// Forgets the finished requests. Returns the bytes of the input that they took.
    pub(crate) fn finish(&mut self) -> usize {
        match self {
            ParsedBatch::Handshake | ParsedBatch::Away => 0,
            ParsedBatch::Native(parsed) => parsed.finish(),
            ParsedBatch::Resp(parsed) => parsed.finish(),
            ParsedBatch::Memcached(parsed) => parsed.finish(),
        }
    }

    /// Returns true if the operation after the first `count` whose replies are not in the output may be refused, when
    /// `pending` operations from it on are to be submitted.
    pub(crate) fn may_be_refused(&self, count: usize, pending: usize) -> bool {
        match self {
            ParsedBatch::Handshake | ParsedBatch::Away => false,
            ParsedBatch::Native(_) => pending > 0,
            ParsedBatch::Resp(parsed) => parsed.may_be_refused(count, pending),
            ParsedBatch::Memcached(parsed) => parsed.may_be_refused(count, pending),
        }
    }

    /// Writes the replies that have arrived, in order, until the output is full. Begins the next reply queue when one is
    /// finished.
    pub(crate) fn encode(&mut self, encoding: &mut Encoding<'_, '_>) {
        match self {
            ParsedBatch::Handshake | ParsedBatch::Away => {}
            ParsedBatch::Native(parsed) => parsed.encode(encoding),
            ParsedBatch::Resp(parsed) => {
                parsed.encode(encoding);
                if encoding.queue.is_finished() && !parsed.is_finished() && !parsed.is_decoding() {
                    encoding.queue.begin(parsed.queue_size());
                }
            }
            ParsedBatch::Memcached(parsed) => {
                parsed.encode(encoding);
                if encoding.queue.is_finished() && !parsed.is_finished() {
                    encoding.queue.begin(parsed.queue_size());
                }
            }
        }
    }

    /// Returns the front end of the connection.
    pub(crate) fn front_end(&self) -> FrontEnd {
        match self {
            ParsedBatch::Handshake | ParsedBatch::Native(_) => FrontEnd::Native,
            ParsedBatch::Resp(_) | ParsedBatch::Away => FrontEnd::Resp,
            ParsedBatch::Memcached(_) => FrontEnd::Memcached,
        }
    }

    /// Returns the login of the connection, to be changed.
    #[inline]
    pub(crate) fn login_mut(&mut self) -> Option<&mut Login> {
        match self {
            ParsedBatch::Handshake | ParsedBatch::Away => None,
            ParsedBatch::Native(parsed) => Some(parsed.login_mut()),
            ParsedBatch::Resp(parsed) => Some(parsed.login_mut()),
            ParsedBatch::Memcached(parsed) => Some(parsed.login_mut()),
        }
    }

    /// Returns the login of the connection, if it has said hello.
    pub(crate) fn login(&self) -> Option<&Login> {
        match self {
            ParsedBatch::Handshake | ParsedBatch::Away => None,
            ParsedBatch::Native(parsed) => Some(parsed.login()),
            ParsedBatch::Resp(parsed) => Some(parsed.login()),
            ParsedBatch::Memcached(parsed) => Some(parsed.login()),
        }
    }
}
