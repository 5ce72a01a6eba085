//! The operations of a turn on their way to the stores, and what came back. The lists keep their memory between turns.

use std::time::Instant;

use crate::command_metrics::TurnCalls;
use crate::dispatch::Outgoing;
use crate::front_end::FrontEnd;
use crate::reply_queue::ReplyRange;
use crate::spaces::{SpaceReplies, SpaceRequests};

/// Operations of a front end that got their replies, which were read at the same time.
pub(super) struct Replied {
    pub(super) front_end: FrontEnd,
    pub(super) count: usize,
    pub(super) read_at: Instant,
}

/// What a turn hands to the stores, and what they reply.
pub(super) struct Execution {
    /// The destinations of the operations of the batch, connection by connection.
    pub(super) destinations: Vec<ReplyRange>,
    /// Empty between batches.
    pub(super) requests: SpaceRequests<'static>,
    /// For each shard, the batch to it that is being filled.
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) replies: SpaceReplies,
    /// Operations that the stores executed in the turn.
    pub(super) executed: usize,
    /// Operations of the turn that got their replies, with the time of their read.
    pub(super) replied: Vec<Replied>,
    /// Replies of a connection, before they are sent. Empty between connections.
    pub(super) encoded: Vec<u8>,
    /// Commands of the turn.
    pub(super) calls: TurnCalls,
}

impl Execution {
    /// Creates the lists for a server of this many shards.
    pub(super) fn new(shard_count: usize) -> Execution {
        Execution {
            destinations: Vec::new(),
            requests: SpaceRequests::default(),
            outgoing: (0..shard_count).map(|_| Outgoing::Nothing).collect(),
            replies: SpaceReplies::new(),
            executed: 0,
            replied: Vec::new(),
            encoded: Vec::new(),
            calls: TurnCalls::default(),
        }
    }
}
