//! What a visit carries: the commands of a connection whose keys another shard owns, and their input.

use std::time::Instant;

use crate::buffer::Input;
use crate::resp_batch::RespBatch;
use crate::unix_time::UnixTime;

/// The commands of a connection that visit another shard.
#[derive(Debug)]
pub(crate) struct Visit {
    /// The number of the connection.
    pub(crate) number: u64,
    /// The time from which on the commands have waited.
    pub(crate) read_at: Instant,
    /// Operations of the connection without a reply.
    pub(crate) operations_left: usize,
    pub(crate) parsed: Box<RespBatch>,
    pub(crate) input: Input,
    /// The time of the shard that has sent it, so that no clock is set back on the way.
    pub(crate) time: UnixTime,
    /// Commands that were run or refused.
    pub(crate) commands: usize,
    /// Operations that were executed.
    pub(crate) executed: usize,
    /// Its first command is known to be more than a small effort.
    pub(crate) is_larger: bool,
    /// The number of the last command, and one more; 0: none is done.
    pub(crate) last_command: usize,
    /// The connection ends after the replies.
    pub(crate) is_closing: bool,
    /// Bytes of replies of its transaction that are permitted, and counted with the batch.
    pub(crate) permitted: usize,
    /// The most bytes that the replies of a transaction may take.
    pub(crate) reply_max: usize,
}

impl Visit {
    /// Returns the bytes of memory held.
    pub(super) fn capacity(&self) -> usize {
        self.parsed.capacity() + self.input.capacity()
    }
}
