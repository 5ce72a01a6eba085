//! The input and output of encoding the replies of a connection, the same for all front ends.

use crate::reply_queue::ReplyQueue;
use crate::resp_command::Context;
use crate::spaces::SpaceReplies;

/// The encoding of the replies of one connection.
pub(crate) struct Encoding<'a, 'c> {
    /// The queue of the parsed batch.
    pub(crate) queue: &'a mut ReplyQueue,
    /// The replies of the shard's batch.
    pub(crate) replies: &'a SpaceReplies,
    /// The bytes of the parsed batch.
    pub(crate) input: &'a [u8],
    pub(crate) output: &'a mut Vec<u8>,
    /// When the output has more bytes than this, no further reply is encoded.
    pub(crate) end: usize,
    pub(crate) context: &'a mut Context<'c>,
}
