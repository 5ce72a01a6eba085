//! Forwarded batches of other shards: requests that wait for a batch of this shard, and replies that came back. Of visits,
//! only the way is the same: see `visits.rs`.

use std::collections::VecDeque;
use std::time::Instant;

use skep_core::operation::Reply;

use super::Shard;
use super::visits::{Visitor, Visitors};
use crate::endpoint::Endpoint;
use crate::exchange::{ForwardedBatch, Peer, Shortage};
use crate::limits::{COSTLY_WORK, OPERATIONS_WITHOUT_MEMORY_MAX, TURN_SIZE_MAX};
use crate::spaces::SpaceRequests;
use crate::vocabulary::{List, ReplyIndex, Space};

/// Requests of another shard that wait for a batch.
pub(super) struct Arrival {
    shard: usize,
    forwarded: Box<ForwardedBatch>,
    /// The index of the first reply of those that are in the batch, and their number.
    first: ReplyIndex,
    submitted: usize,
    /// There is no memory for that number of replies: the requests are sent back.
    is_refused: bool,
}

impl Arrival {
    /// Refuses the requests if memory `is_low`, unless they are few.
    pub(super) fn refuse_if(&mut self, is_low: bool) {
        self.is_refused = is_low && self.forwarded.len() > OPERATIONS_WITHOUT_MEMORY_MAX;
    }

    /// Returns true if the requests are sent back, because there is no memory for that number of replies.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }
}

/// What other shards have sent, and a turn has not taken on.
#[derive(Default)]
pub(super) struct Arrivals {
    /// Requests.
    pub(super) inbox: VecDeque<Arrival>,
    /// Visits that have not begun.
    pub(super) visitors: Visitors,
    /// The shard whose batches are taken first.
    first_peer: usize,
    /// Replies were left for the next turn.
    has_more_replies: bool,
}

impl Arrivals {
    /// Returns true if a turn has something of them to do.
    pub(super) fn have_work(&self) -> bool {
        !self.inbox.is_empty() || !self.visitors.is_empty() || self.has_more_replies
    }

    /// Returns the number of batches and visits that wait.
    pub(super) fn len(&self) -> usize {
        self.inbox.len() + self.visitors.len()
    }
}

impl Shard {
    /// Takes the batches that other shards sent: replies go to the connections that wait for them, requests into the
    /// inbox. Takes from the shards in rotation, until there is enough for this turn.
    pub(super) fn receive(&mut self, now: Instant) {
        let shard_count = self.parts.peers.len();
        let (mut size, mut empty) = (0, 0);
        let mut shard = self.arrivals.first_peer;
        while empty < shard_count && size < TURN_SIZE_MAX {
            let forwarded = self.parts.peers[shard].as_mut().and_then(Peer::receive_replies);
            if let Some(forwarded) = forwarded {
                empty = 0;
                size += forwarded.replies.size() + self.take_replies(shard, forwarded, now);
            } else {
                empty += 1;
            }
            shard = (shard + 1) % shard_count;
        }
        self.arrivals.has_more_replies = empty < shard_count;
        empty = 0;
        // Visits do not count: there are at most as many as slots, and they must not keep requests waiting.
        let mut operations: usize = self.arrivals.inbox.iter().map(|arrival| arrival.forwarded.len()).sum();
        while empty < shard_count && operations < self.window.limit() {
            let forwarded = self.parts.peers[shard].as_mut().and_then(Peer::receive_requests);
            if let Some(forwarded) = forwarded {
                empty = 0;
                let first = ReplyIndex::hash(0);
                match Visitor::new(shard, forwarded) {
                    Ok(visitor) => {
                        self.turn.time = self.turn.time.max(visitor.time());
                        self.arrivals.visitors.push(visitor);
                    }
                    Err(forwarded) => {
                        operations += forwarded.len();
                        self.arrivals.inbox.push_back(Arrival {
                            shard,
                            forwarded,
                            first,
                            submitted: 0,
                            is_refused: false,
                        });
                    }
                }
            } else {
                empty += 1;
            }
            shard = (shard + 1) % shard_count;
        }
        self.arrivals.first_peer = shard;
    }

    /// Takes the replies, or the visit, that `shard` sent back. Returns the bytes that were written to a connection, or
    /// encoded for it.
    fn take_replies(&mut self, shard: usize, mut forwarded: Box<ForwardedBatch>, now: Instant) -> usize {
        self.window.returned(forwarded.len());
        self.metrics().operations.forwarded.add(forwarded.replies.done_count());
        self.shard_budget.take_over(std::mem::take(&mut forwarded.counted));
        if let Some(visit) = forwarded.visit.take() {
            let written = self.end_visit(shard, visit, &forwarded, now);
            let size = written.max(forwarded.encoded.len());
            self.turn.account.spend(size);
            self.shard_budget.balance();
            if let Some(peer) = &mut self.parts.peers[shard] {
                peer.return_to_pool(forwarded);
            }
            return size;
        }
        let (token, shortage) = (forwarded.connection, forwarded.shortage);
        let (mut waits_for_store, mut is_large) = (false, false);
        if let Some(Endpoint { connection, is_queued, .. }) = self.connections.get_mut(token) {
            connection.receive(shard as u16, &forwarded.replies);
            if shortage == Some(Shortage::Replies) {
                connection.starve();
            }
            connection.record_memory(&mut self.shard_budget);
            waits_for_store = shortage == Some(Shortage::Store) && connection.is_returned() && !*is_queued;
            *is_queued |= waits_for_store;
            is_large = connection.operation_size() >= COSTLY_WORK;
        }
        self.shard_budget.balance();
        if let Some(peer) = &mut self.parts.peers[shard] {
            peer.return_to_pool(forwarded);
        }
        match shortage {
            _ if waits_for_store => self.waits.returned.push(token, is_large),
            // Requests for which the owner has no memory are sent again when there may be some.
            Some(Shortage::Replies) => self.starve(token),
            _ => self.queue(token),
        }
        0
    }

    /// Sends back the forwarded batches that were submitted or refused, and keeps the others. Returns true if any of
    /// their operations was executed.
    pub(super) fn reply_to_shards(&mut self) -> bool {
        let mut has_progress = false;
        for _ in 0..self.arrivals.inbox.len() {
            let Some(mut arrival) = self.arrivals.inbox.pop_front() else { break };
            let first = arrival.first;
            let range = 0..std::mem::take(&mut arrival.submitted);
            if range.clone().any(|index| !self.execution.replies.is_deferred(first.plus(index))) {
                has_progress = true;
                let Arrival { shard, mut forwarded, .. } = arrival;
                for index in range.clone() {
                    forwarded.replies.push(self.execution.replies.get(first.plus(index)));
                }
                for _ in range.len()..forwarded.len() {
                    forwarded.replies.push(Reply::Deferred);
                }
                let capacity = forwarded.capacity();
                self.shard_budget
                    .memory_budget()
                    .record_batch(std::mem::replace(&mut forwarded.counted, capacity), capacity);
                if let Some(peer) = &mut self.parts.peers[shard] {
                    peer.send_replies(forwarded);
                }
                continue;
            }
            let shortage = if arrival.is_refused {
                Some(Shortage::ManyReplies)
            } else if range.clone().any(|index| self.execution.replies.is_deferred_for_room(first.plus(index))) {
                Some(Shortage::Replies)
            } else if !range.is_empty() {
                Some(Shortage::Store)
            } else {
                None
            };
            if shortage.is_some() {
                // The sender's connection waits for memory, or sends the requests again later, or sends fewer.
                let Arrival { shard, mut forwarded, .. } = arrival;
                forwarded.shortage = shortage;
                (0..forwarded.len()).for_each(|_| forwarded.replies.push(Reply::Deferred));
                if let Some(peer) = &mut self.parts.peers[shard] {
                    peer.send_replies(forwarded);
                }
                continue;
            }
            self.arrivals.inbox.push_back(arrival);
        }
        has_progress
    }
}

/// Adds the operations of the first forwarded batches to the batch, at least those of one.
pub(super) fn submit_arrivals<'a>(
    arrivals: impl Iterator<Item = &'a mut Arrival>,
    operations_max: usize,
    requests: &mut SpaceRequests<'a>,
) {
    let mut operations = 0;
    for arrival in arrivals {
        if operations >= operations_max || requests.has_flush() {
            return;
        }
        let count = arrival.forwarded.len();
        operations += count;
        let Arrival { forwarded, first, submitted, .. } = arrival;
        *submitted = count;
        // The replies to the operations of a batch have adjacent indexes, because all are of one list.
        let mut begin = |reply: ReplyIndex, index: usize| {
            if index == 0 {
                *first = reply;
            }
        };
        let space = if forwarded.list == List::Cache { Space::Cache } else { Space::Hash };
        for (index, request) in forwarded.requests.iter().enumerate() {
            begin(requests.push(space, request), index);
        }
        for (index, item) in forwarded.items.iter().enumerate() {
            begin(requests.push_item(item), index);
        }
        if let Some((space, operation)) = forwarded.keyspace {
            begin(requests.push_keyspace(space, operation), 0);
        }
    }
}
