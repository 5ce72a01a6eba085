//! The rings between shards: how a request reaches the shard that owns its key, and how the answer comes back.
//!
//! Between two shards there are two bounded rings in each direction, one for requests and one for answers, each
//! with one producer and one consumer:
//!
//! ```text
//!             requests ──▶ FORWARDED_BATCHES_MAX places
//!   shard A                                      shard B          and the same from B to A
//!             ◀── answers  FORWARDED_BATCHES_MAX places
//! ```
//!
//! A shard that has no memory for what a parcel asks for does not keep it: that would close the path to others. It is
//! returned with a [`Shortage`], and the requests are sent again later. Parcels of connections whose last ones were
//! returned have at most half of the places.
//!
//! What travels is a [`Parcel`]: the requests of one round of one connection for one owner, and room for their
//! answers. It comes back as a whole, so its memory serves again.
//!
//! Invariant: A has at most FORWARDED_BATCHES_MAX parcels at B. So neither ring is ever full when something is put into it:
//! the place of the answer is reserved before the request leaves. A shard without a free place keeps the request,
//! reads no more from that connection, and goes on with everything else; nobody ever waits for a ring.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rustix::event::{EventfdFlags, eventfd};

use crate::batch::{Answers, RequestBatch};
use crate::connections::Token;
use crate::limits::{FORWARDED_BATCHES_MAX, FORWARDED_POOL_MAX, FORWARDED_RETRIES_MAX};
use crate::settings::StartError;
use crate::start::Steps;

/// Why nothing of a parcel was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The store has no memory at the moment, or others have used up what it may copy for one batch.
    Store,
    /// There is no memory for the replies.
    Replies,
    /// There is memory for the reply to one request only.
    ManyReplies,
}

/// Requests on their way to the shard that owns their keys, or their answers on the way back.
#[derive(Debug, Default)]
pub(crate) struct Parcel {
    /// The connection that waits for the answers, at the shard that sent the parcel.
    pub(crate) connection: Token,
    /// What is asked.
    pub(crate) requests: RequestBatch,
    /// What was answered.
    pub(crate) answers: Answers,
    /// Bytes for which it was counted among the memory of connections.
    pub(crate) counted: usize,
    /// Why nothing was answered, if nothing was.
    pub(crate) shortage: Option<Shortage>,
    /// Whether the connection's last parcels were returned.
    is_retry: bool,
}

impl Parcel {
    /// Bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.requests.capacity() + self.answers.capacity()
    }
}

/// Wakes a shard that sleeps.
#[derive(Debug)]
pub(crate) struct Waker {
    event: OwnedFd,
    asleep: AtomicBool,
}

impl Waker {
    fn new() -> rustix::io::Result<Waker> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Waker { event, asleep: AtomicBool::new(false) })
    }

    /// Says that the shard is about to sleep. What it must not miss it has to look for once more after this.
    pub(crate) fn will_sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        // Either the other side's fence comes later, and it sees `asleep`, or earlier, and the last look sees what
        // it left.
        fence(Ordering::SeqCst);
    }

    /// Says that the shard is awake.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Wakes the shard if it sleeps. Comes after what it shall find.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            // The only failure is a counter at its limit, and then the event is pending anyway.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// One shard's end of the rings to and from another.
#[derive(Debug)]
pub(crate) struct Peer {
    requests_out: SyncSender<Parcel>,
    answers_in: Receiver<Parcel>,
    requests_in: Receiver<Parcel>,
    answers_out: SyncSender<Parcel>,
    /// Parcels that may still be sent.
    places: usize,
    /// Those of them that were sent again.
    retries: usize,
    /// Parcels that came back.
    spare: Vec<Parcel>,
    waker: Arc<Waker>,
}

impl Peer {
    /// An empty parcel, if there is a place for it and for its answers. `is_retry` says that the last parcels of its
    /// connection were returned.
    pub(crate) fn parcel(&mut self, is_retry: bool) -> Option<Parcel> {
        let has_place = self.places > 0 && !(is_retry && self.retries >= FORWARDED_RETRIES_MAX);
        has_place.then(|| Parcel { is_retry, ..self.spare.pop().unwrap_or_default() })
    }

    /// Sends requests. The parcel is one that [`Peer::parcel`] gave, the last one that it gave.
    pub(crate) fn send_requests(&mut self, parcel: Parcel) {
        self.places -= 1;
        self.retries += usize::from(parcel.is_retry);
        // A peer that is gone will not answer: the server ends, and so does this shard after its turn. A connection
        // that was handed over late can bring requests so far.
        let sent = self.requests_out.try_send(parcel);
        debug_assert!(!matches!(sent, Err(TrySendError::Full(_))), "a place is reserved");
        self.waker.wake();
    }

    /// Takes answers that came back. The caller returns the parcel by [`Peer::put_back`].
    pub(crate) fn receive_answers(&mut self) -> Option<Parcel> {
        self.answers_in.try_recv().ok()
    }

    /// Returns a parcel whose answers have been taken out.
    pub(crate) fn put_back(&mut self, mut parcel: Parcel) {
        parcel.requests.clear();
        parcel.answers.clear();
        parcel.shortage = None;
        self.places += 1;
        self.retries -= usize::from(parcel.is_retry);
        if self.spare.len() < FORWARDED_POOL_MAX {
            self.spare.push(parcel);
        }
    }

    /// Takes requests of the peer. The caller answers every parcel by [`Peer::send_answers`].
    pub(crate) fn receive_requests(&mut self) -> Option<Parcel> {
        self.requests_in.try_recv().ok()
    }

    /// Sends a parcel back.
    pub(crate) fn send_answers(&mut self, parcel: Parcel) {
        // A peer that is gone needs no answers: shards end together, after the last answer was taken.
        let _ = self.answers_out.try_send(parcel);
        self.waker.wake();
    }
}

/// A shard's waker and its ends of the rings, by shard, `None` for itself.
pub(crate) type Ends = (Arc<Waker>, Vec<Option<Peer>>);

/// Makes the rings, and what each shard has of them.
pub(crate) fn connect_shards(shard_count: usize, steps: &mut Steps) -> Result<Vec<Ends>, StartError> {
    let mut wakers = Vec::with_capacity(shard_count);
    for shard in 0..shard_count {
        wakers.push(Arc::new(steps.open(format!("the event that wakes shard {shard}"), Waker::new)?));
    }
    let mut shards: Vec<Ends> =
        wakers.iter().map(|waker| (waker.clone(), (0..shard_count).map(|_| None).collect())).collect();
    for one in 0..shard_count {
        for other in 0..one {
            let (requests_to_other, requests_from_one) = sync_channel(FORWARDED_BATCHES_MAX);
            let (answers_to_one, answers_from_other) = sync_channel(FORWARDED_BATCHES_MAX);
            let (requests_to_one, requests_from_other) = sync_channel(FORWARDED_BATCHES_MAX);
            let (answers_to_other, answers_from_one) = sync_channel(FORWARDED_BATCHES_MAX);
            shards[one].1[other] = Some(Peer {
                requests_out: requests_to_other,
                answers_in: answers_from_other,
                requests_in: requests_from_other,
                answers_out: answers_to_other,
                places: FORWARDED_BATCHES_MAX,
                retries: 0,
                spare: Vec::new(),
                waker: wakers[other].clone(),
            });
            shards[other].1[one] = Some(Peer {
                requests_out: requests_to_one,
                answers_in: answers_from_one,
                requests_in: requests_from_one,
                answers_out: answers_to_one,
                places: FORWARDED_BATCHES_MAX,
                retries: 0,
                spare: Vec::new(),
                waker: wakers[one].clone(),
            });
        }
    }
    Ok(shards)
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{Operation, Reply, Request};

    use super::{FORWARDED_BATCHES_MAX, connect_shards};
    use crate::connections::Token;
    use crate::start::Steps;

    #[test]
    fn a_peer_that_is_gone_takes_nothing_along() {
        let mut shards = connect_shards(2, &mut Steps::default()).unwrap();
        let mut first = shards.swap_remove(0).1.swap_remove(1).unwrap();
        drop(shards);
        for _ in 0..FORWARDED_BATCHES_MAX {
            let parcel = first.parcel(false).expect("a place");
            first.send_requests(parcel);
        }
        assert!(first.receive_answers().is_none());
    }

    #[test]
    fn a_place_is_reserved_for_every_answer() {
        let mut shards = connect_shards(2, &mut Steps::default()).unwrap();
        let mut second = shards.pop().unwrap().1.swap_remove(0).unwrap();
        let mut first = shards.pop().unwrap().1.swap_remove(1).unwrap();
        for round in 0..3 {
            for index in 0..FORWARDED_BATCHES_MAX {
                let mut parcel = first.parcel(false).expect("a place");
                parcel.connection = Token { index: index as u32, generation: round };
                parcel.requests.push(&Request { key: b"k", operation: Operation::Get });
                first.send_requests(parcel);
            }
            assert!(first.parcel(false).is_none());
            while let Some(mut parcel) = second.receive_requests() {
                assert_eq!(parcel.requests.len(), 1);
                parcel.answers.push(Reply::NotFound);
                second.send_answers(parcel);
            }
            for index in 0..FORWARDED_BATCHES_MAX {
                let parcel = first.receive_answers().expect("an answer");
                assert_eq!(parcel.connection, Token { index: index as u32, generation: round });
                assert_eq!(parcel.answers.iter().count(), 1);
                first.put_back(parcel);
            }
            assert!(first.receive_answers().is_none());
        }
    }
}
