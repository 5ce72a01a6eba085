//! The rings between shards: the path of an operation to the shard that owns its key, and of its reply back.
//!
//! Between two shards there are two bounded rings in each direction, one for requests and one for replies. Each has one
//! producer and one consumer:
//!
//! ```text
//!             requests ──▶ slots
//!   shard A                           shard B          and the same from B to A
//!             ◀── replies  slots
//! ```
//!
//! A [`ForwardedBatch`] has the operations of one connection for one owner, and room for their replies. Or it carries
//! the commands of a connection that visit the owner. It makes a round trip and is returned to a pool, so its memory is
//! used again.
//!
//! A shard that has no memory for a forwarded batch does not keep it: that would close the path to others. It returns
//! the batch with a [`Shortage`], and the requests are sent again later. Batches of connections whose last ones were
//! returned have at most half of the slots.
//!
//! A ring has a slot for each of the connections that wait for its other end, as far as memory allows: with fewer, most
//! connections would wait for those of a few. [`slot_count`] says how many.
//!
//! Invariant: A has at most as many batches at B as there are slots. So no ring is ever full when a batch is put into
//! it: the slot of the replies is reserved before the requests leave. A shard without a free slot keeps the requests, reads
//! no more from that connection, and continues with everything else. It never waits for a ring.

mod visit;

pub(crate) use self::visit::Visit;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crate::batch::{ItemBatch, ReplyBatch, RequestBatch};
use crate::limits::{
    FORWARDED_BATCHES_MAX, FORWARDED_BATCHES_MIN, FORWARDED_BATCHES_OF_SHARD, FORWARDED_POOL_SIZE_MAX,
    FORWARDED_RETRIES_PART, POOLED_SIZE_MAX,
};
use crate::start::Steps;
use crate::start_error::StartError;
use crate::vocabulary::{KeyspaceOperation, List, Space, Token};
use crate::waker::Waker;

/// The reason why nothing of a forwarded batch was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The store has no memory at the moment, or others have used up the bytes that it may copy for one batch.
    Store,
    /// There is no memory for the replies.
    Replies,
    /// There is memory for the reply to one request only.
    ManyReplies,
}

/// Operations for the shard that owns their keys, and their replies on the way back.
#[derive(Debug, Default)]
pub(crate) struct ForwardedBatch {
    /// The connection that waits for the replies, at the shard that sent the batch.
    pub(crate) connection: Token,
    /// The list that all operations of the batch belong to.
    pub(crate) list: List,
    /// The requests, on keys of one space.
    pub(crate) requests: RequestBatch,
    /// Commands of memcached's protocol, instead of requests.
    pub(crate) items: ItemBatch,
    /// An operation on all keys that the owner has of a space, instead of requests.
    pub(crate) keyspace: Option<(Space, KeyspaceOperation)>,
    /// Commands that visit the owner, instead of requests.
    pub(crate) visit: Option<Visit>,
    /// Their replies, after the return.
    pub(crate) replies: ReplyBatch,
    /// The replies to commands, as the client gets them.
    pub(crate) encoded: Vec<u8>,
    /// Bytes for which it was counted among the memory of connections.
    pub(crate) counted: usize,
    /// Work of a visit, in bytes touched.
    pub(crate) work: usize,
    /// The reason why nothing was executed, if nothing was.
    pub(crate) shortage: Option<Shortage>,
    /// The connection's last forwarded batches were returned.
    is_retry: bool,
}

impl ForwardedBatch {
    /// Returns the number of operations.
    pub(crate) fn len(&self) -> usize {
        self.requests.len() + self.items.len() + usize::from(self.keyspace.is_some() || self.visit.is_some())
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        let of_visit = self.visit.as_ref().map_or(0, Visit::capacity) + self.encoded.capacity();
        self.requests.capacity() + self.items.capacity() + self.replies.capacity() + of_visit
    }
}

/// One shard's end of the rings to and from another.
#[derive(Debug)]
pub(crate) struct Peer {
    requests_out: SyncSender<Box<ForwardedBatch>>,
    replies_in: Receiver<Box<ForwardedBatch>>,
    requests_in: Receiver<Box<ForwardedBatch>>,
    replies_out: SyncSender<Box<ForwardedBatch>>,
    /// Forwarded batches that may still be sent.
    slots: usize,
    /// Forwarded batches that may still be sent again.
    retries: usize,
    /// Forwarded batches that came back.
    #[expect(clippy::vec_box, reason = "the rings move boxes: a slot of a ring is a pointer")]
    pool: Vec<Box<ForwardedBatch>>,
    /// Bytes of memory that they hold.
    pool_size: usize,
    waker: Arc<Waker>,
}

impl Peer {
    /// Returns the number of batches that may be sent now.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Returns an empty forwarded batch, if there is a slot for it and for its replies. `is_retry` says that the last
    /// batches of its connection were returned.
    pub(crate) fn forwarded_batch(&mut self, is_retry: bool) -> Option<Box<ForwardedBatch>> {
        if self.slots == 0 || is_retry && self.retries == 0 {
            return None;
        }
        let mut forwarded = self.pool.pop().unwrap_or_default();
        self.pool_size -= forwarded.capacity();
        forwarded.is_retry = is_retry;
        Some(forwarded)
    }

    /// Sends the batch that [`Peer::forwarded_batch`] returned last.
    pub(crate) fn send_requests(&mut self, forwarded: Box<ForwardedBatch>) {
        self.slots -= 1;
        self.retries -= usize::from(forwarded.is_retry);
        // A peer that has ended will not reply: the server ends, and so does this shard after its turn. Such requests
        // can only be those of a connection that was handed over late.
        let sent = self.requests_out.try_send(forwarded);
        debug_assert!(!matches!(sent, Err(TrySendError::Full(_))), "a slot is reserved");
        self.waker.wake();
    }

    /// Takes replies that came back. The caller then calls [`Peer::return_to_pool`].
    pub(crate) fn receive_replies(&mut self) -> Option<Box<ForwardedBatch>> {
        self.replies_in.try_recv().ok()
    }

    /// Returns a forwarded batch to the pool after its replies were taken.
    pub(crate) fn return_to_pool(&mut self, mut forwarded: Box<ForwardedBatch>) {
        forwarded.requests.clear();
        forwarded.items.clear();
        forwarded.keyspace = None;
        forwarded.visit = None;
        forwarded.replies.clear();
        forwarded.encoded.clear();
        forwarded.encoded.shrink_to(POOLED_SIZE_MAX);
        (forwarded.work, forwarded.shortage) = (0, None);
        self.slots += 1;
        self.retries += usize::from(forwarded.is_retry);
        if self.pool_size + forwarded.capacity() <= FORWARDED_POOL_SIZE_MAX {
            self.pool_size += forwarded.capacity();
            self.pool.push(forwarded);
        }
    }

    /// Takes requests of the peer. The caller replies to every batch by [`Peer::send_replies`].
    pub(crate) fn receive_requests(&mut self) -> Option<Box<ForwardedBatch>> {
        self.requests_in.try_recv().ok()
    }

    /// Sends a forwarded batch back.
    pub(crate) fn send_replies(&mut self, forwarded: Box<ForwardedBatch>) {
        // A peer that has ended needs no replies: shards end together, after the last reply was taken.
        let _ = self.replies_out.try_send(forwarded);
        self.waker.wake();
    }
}

/// A shard's waker and its ends of the rings, by shard, `None` for itself.
pub(crate) type Ends = (Arc<Waker>, Vec<Option<Peer>>);

/// Returns the number of forwarded batches that each of these shards may have at each of the others.
pub(crate) fn slot_count(shard_count: usize) -> usize {
    let share = FORWARDED_BATCHES_OF_SHARD / shard_count.saturating_sub(1).max(1);
    share.clamp(FORWARDED_BATCHES_MIN, FORWARDED_BATCHES_MAX)
}

/// Makes the rings. Returns the ends that each shard has.
pub(crate) fn connect_shards(shard_count: usize, steps: &mut Steps) -> Result<Vec<Ends>, StartError> {
    let slots = slot_count(shard_count);
    let mut wakers = Vec::with_capacity(shard_count);
    for shard in 0..shard_count {
        wakers.push(Arc::new(steps.open(format!("the event that wakes shard {shard}"), Waker::new)?));
    }
    let mut shards: Vec<Ends> =
        wakers.iter().map(|waker| (waker.clone(), (0..shard_count).map(|_| None).collect())).collect();
    for one in 0..shard_count {
        for other in 0..one {
            let (requests_to_other, requests_from_one) = sync_channel(slots);
            let (replies_to_one, replies_from_other) = sync_channel(slots);
            let (requests_to_one, requests_from_other) = sync_channel(slots);
            let (replies_to_other, replies_from_one) = sync_channel(slots);
            shards[one].1[other] = Some(Peer {
                requests_out: requests_to_other,
                replies_in: replies_from_other,
                requests_in: requests_from_other,
                replies_out: replies_to_other,
                slots,
                retries: slots / FORWARDED_RETRIES_PART,
                pool: Vec::new(),
                pool_size: 0,
                waker: wakers[other].clone(),
            });
            shards[other].1[one] = Some(Peer {
                requests_out: requests_to_one,
                replies_in: replies_from_one,
                requests_in: requests_from_one,
                replies_out: replies_to_one,
                slots,
                retries: slots / FORWARDED_RETRIES_PART,
                pool: Vec::new(),
                pool_size: 0,
                waker: wakers[one].clone(),
            });
        }
    }
    Ok(shards)
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{Operation, Reply, Request};

    use super::{connect_shards, slot_count};
    use crate::start::Steps;
    use crate::vocabulary::Token;

    #[test]
    fn a_peer_that_is_gone_takes_nothing_along() {
        let mut shards = connect_shards(2, &mut Steps::default()).unwrap();
        let mut first = shards.swap_remove(0).1.swap_remove(1).unwrap();
        drop(shards);
        for _ in 0..slot_count(2) {
            let forwarded = first.forwarded_batch(false).expect("a slot");
            first.send_requests(forwarded);
        }
        assert!(first.receive_replies().is_none());
    }

    #[test]
    fn a_slot_is_reserved_for_every_reply() {
        let mut shards = connect_shards(2, &mut Steps::default()).unwrap();
        let mut second = shards.pop().unwrap().1.swap_remove(0).unwrap();
        let mut first = shards.pop().unwrap().1.swap_remove(1).unwrap();
        for generation in 0..3 {
            for index in 0..slot_count(2) {
                let mut forwarded = first.forwarded_batch(false).expect("a slot");
                forwarded.connection = Token { index: index as u32, generation };
                forwarded.requests.push(&Request { key: b"k", operation: Operation::Get });
                first.send_requests(forwarded);
            }
            assert!(first.forwarded_batch(false).is_none());
            while let Some(mut forwarded) = second.receive_requests() {
                assert_eq!(forwarded.requests.len(), 1);
                forwarded.replies.push(Reply::NotFound);
                second.send_replies(forwarded);
            }
            for index in 0..slot_count(2) {
                let forwarded = first.receive_replies().expect("a reply");
                assert_eq!(forwarded.connection, Token { index: index as u32, generation });
                assert_eq!(forwarded.replies.iter().count(), 1);
                first.return_to_pool(forwarded);
            }
            assert!(first.receive_replies().is_none());
        }
    }
}
