//! A dependency queue of the reservation station, executed from its head (KV-Direct, section 3.3.3).
//!
//! ```text
//! head ─▶ find its key ─▶ value resident? ─yes─▶ execute it, then all later requests of the same key
//!   ▲                          │ no                 │ each is executed on the value that the one before left
//!   │                          ▼                    ▼
//!   │                      main path            one write back, if anything changed
//!   └───────────────── next of the queue ◀──────────┘
//! ```
//!
//! The value is forwarded in place: in the copy of its bucket, or in its slab. So a hundred updates of one counter are
//! one read and one write. Forwarding ends at an operation of the key that cannot be done in place. Requests on other
//! keys keep their position in the queue. A forwarded operation never needs memory, so no reply becomes wrong because
//! the memory is full.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use super::execution::{execute, execute_on_missing};
use super::replies::Replies;
use super::station::{QueueIndex, Queues, RequestIndex, Station};
use crate::apply::{Arena, Edit, Found, Outcome, apply, apply_to_missing, size_if_missing};
use crate::hash::{Access, HashTable, Home, Location, NotStored, ResidentValue, Sought, is_large};
use crate::memory::{Effect, Memory};
use crate::short::equal;
use skep_core::operation::{Operation, Reply, Request};

/// The state that all queues of a batch share.
pub(super) struct Batch<'a, M, S = Station> {
    pub(super) table: &'a HashTable<M>,
    pub(super) requests: &'a [Request<'a>],
    pub(super) homes: &'a [Home],
    /// Index of the first request in the replies.
    pub(super) first_reply: usize,
    pub(super) station: &'a S,
    pub(super) replies: RefCell<&'a mut Replies>,
    /// Values that were computed for this batch.
    pub(super) arena: &'a Arena,
    pub(super) hits: Cell<u64>,
    pub(super) misses: Cell<u64>,
    /// Number of deferred requests.
    pub(super) deferred: Cell<u64>,
    /// Hashes of the keys with a request that was deferred for lack of slabs or of room for its reply. All later
    /// requests on them are deferred too.
    pub(super) deferred_keys: RefCell<&'a mut HashSet<u64>>,
    /// Operations that have found or store a large value. They run after the waves.
    pub(super) large: RefCell<Vec<LargeOperation<'a>>>,
}

/// An operation that has found or stores a large value. It is the head of its queue.
pub(super) struct LargeOperation<'a> {
    pub(super) queue: QueueIndex,
    pub(super) first: RequestIndex,
    /// The end of its search. It stays valid, because no other request of the queue is in flight.
    pub(super) location: Location,
    pub(super) outcome: Outcome<'a>,
}

impl<'a, M: Memory, S: Queues> Batch<'a, M, S> {
    /// Returns a batch of requests of which none is executed. Their replies begin at index 0, unless the caller sets
    /// another one.
    pub(super) fn new(
        table: &'a HashTable<M>,
        station: &'a S,
        requests: &'a [Request<'a>],
        homes: &'a [Home],
        replies: &'a mut Replies,
        deferred_keys: &'a mut HashSet<u64>,
        arena: &'a Arena,
    ) -> Self {
        Batch {
            table,
            requests,
            homes,
            first_reply: 0,
            station,
            replies: RefCell::new(replies),
            arena,
            hits: Cell::new(0),
            misses: Cell::new(0),
            deferred: Cell::new(0),
            deferred_keys: RefCell::new(deferred_keys),
            large: RefCell::default(),
        }
    }

    /// Executes the requests of a queue, until it is empty or its head has to read or write a large value.
    pub(super) async fn run_queue(&self, queue: QueueIndex) {
        while let Some(first) = self.head(queue) {
            let request = &self.requests[first.index()];
            if self.has_no_room_for(request) {
                self.defer(queue, first);
                continue;
            }
            let home = self.homes[first.index()];
            let access =
                |value: Option<ResidentValue<'_>>| self.access(queue, first, value, &mut self.replies.borrow_mut());
            let (location, outcome) = match self.table.find(request.key, home, self.needed_slots(request), access).await
            {
                Sought::Done => continue,
                Sought::Edited(edit) => {
                    self.table.end_wait(home.hash);
                    self.end_first(queue, first, edit.reply(), &mut self.replies.borrow_mut());
                    continue;
                }
                Sought::Left(location, edit) => (location, Outcome::Edit(edit)),
                Sought::Large(location, root) => {
                    let expiry = location.expiry();
                    let found = || Found::in_pieces(root.value_size as usize, expiry);
                    let found = (!self.table.has_expired(expiry)).then_some(found);
                    (location, apply(&request.operation, found, self.arena))
                }
            };
            match outcome {
                Outcome::Reply(reply) => {
                    // A large value that has expired.
                    let is_miss = matches!(request.operation, Operation::Get);
                    self.misses.set(self.misses.get() + u64::from(is_miss));
                    self.end_first(queue, first, reply, &mut self.replies.borrow_mut());
                }
                Outcome::Edit(edit) if !self.is_large(request.key, &edit, &location) => {
                    let edited = self.edit(home, request.key, &location, &edit).await;
                    self.finish(queue, first, edited.map(|()| edit.reply()));
                }
                outcome => {
                    self.large.borrow_mut().push(LargeOperation { queue, first, location, outcome });
                    return;
                }
            }
        }
    }

    /// Edits a pair that is not large and does not become large.
    async fn edit(&self, home: Home, key: &[u8], location: &Location, edit: &Edit<'_>) -> Result<(), NotStored> {
        match edit {
            Edit::Remove(_) => self.table.remove(location, key.len()).await,
            Edit::Store(new) if self.table.expires_at_once(location, new) => {
                if location.value_size().is_some() {
                    self.table.remove(location, key.len()).await;
                }
            }
            Edit::Store(new) => self.table.store(home, location, key, new).await?,
        }
        Ok(())
    }

    /// Ends the head of a queue with this reply, or with an error if its pair was not stored. Defers it if it may be
    /// stored later.
    pub(super) fn finish(&self, queue: QueueIndex, first: RequestIndex, outcome: Result<Reply<'_>, NotStored>) {
        let hash = self.homes[first.index()].hash;
        let reply = match outcome {
            Ok(reply) => reply,
            Err(NotStored::Later(_)) if self.table.may_wait(hash) => return self.defer(queue, first),
            Err(NotStored::Failed(error) | NotStored::Later(error))
                if error.is_out_of_memory() && self.table.may_free_for_replay() =>
            {
                self.table.end_wait(hash);
                self.table.want_reclaim();
                return self.defer(queue, first);
            }
            Err(NotStored::Failed(error) | NotStored::Later(error)) => {
                self.table.want_reclaim();
                Reply::Failed(error)
            }
        };
        self.table.end_wait(hash);
        self.end_first(queue, first, reply, &mut self.replies.borrow_mut());
    }

    /// Returns true if the request may compute a value and the batch has computed too many bytes.
    #[inline]
    pub(super) fn has_no_room_for(&self, request: &Request<'_>) -> bool {
        request.operation.computes() && self.arena.is_used_up()
    }

    /// Defers the head of a queue, and all later requests of its key.
    #[cold]
    pub(super) fn defer(&self, queue: QueueIndex, first: RequestIndex) {
        let key = self.requests[first.index()].key;
        self.deferred_keys.borrow_mut().insert(self.homes[first.index()].hash.0);
        let (mut before, mut at) = (None, Some(first));
        while let Some(current) = at {
            at = self.station.after(current);
            if self.requests[current.index()].key == key {
                self.station.remove(queue, before, current);
                self.deferred.set(self.deferred.get() + 1);
            } else {
                before = Some(current);
            }
        }
    }

    #[inline]
    pub(super) fn head(&self, queue: QueueIndex) -> Option<RequestIndex> {
        self.station.head(queue)
    }

    /// Sets the reply to the head of a queue, and removes it.
    #[inline]
    pub(super) fn end_first(&self, queue: QueueIndex, first: RequestIndex, reply: Reply<'_>, replies: &mut Replies) {
        replies.set(self.first_reply + first.index(), reply);
        self.station.remove(queue, None, first);
    }

    /// Executes the head of a queue on its value, or on a missing key. Requests on the value that can be done in place
    /// are executed after it, if they have the same key.
    #[inline(always)]
    pub(super) fn access(
        &self,
        queue: QueueIndex,
        first: RequestIndex,
        value: Option<ResidentValue<'_>>,
        replies: &mut Replies,
    ) -> Access<'a> {
        match value {
            Some(value) => self.forward(queue, first, value, replies),
            None => self.access_missing(queue, first, replies),
        }
    }

    /// Executes the head of a queue on a missing key.
    #[inline(never)]
    fn access_missing(&self, queue: QueueIndex, first: RequestIndex, replies: &mut Replies) -> Access<'a> {
        let operation = &self.requests[first.index()].operation;
        let access = execute_on_missing(operation, replies.slot(self.first_reply + first.index()), self.arena);
        if let Access::Done(_) = access {
            self.misses.set(self.misses.get() + u64::from(matches!(operation, Operation::Get)));
            self.station.remove(queue, None, first);
        }
        access
    }

    /// Executes the head of a queue on its value, and then all later requests of its key in order, up to one that
    /// cannot be done in place.
    #[inline(always)]
    pub(super) fn forward(
        &self,
        queue: QueueIndex,
        first: RequestIndex,
        value: ResidentValue<'_>,
        replies: &mut Replies,
    ) -> Access<'a> {
        let ResidentValue { bytes, expiry } = value;
        let effect = match self.execute(first, ResidentValue { bytes: &mut *bytes, expiry }, replies) {
            Access::Done(effect) => effect,
            edit @ Access::Edit(_) => return edit,
        };
        let next = self.station.after(first);
        self.station.remove(queue, None, first);
        let forwarded = match next {
            Some(next) => self.forward_on(queue, first, next, ResidentValue { bytes, expiry }, replies),
            None => Effect::Unchanged,
        };
        Access::Done(if forwarded == Effect::Changed { forwarded } else { effect })
    }

    /// Executes the requests from `next` on that have the key of `first`.
    #[inline(never)]
    fn forward_on(
        &self,
        queue: QueueIndex,
        first: RequestIndex,
        next: RequestIndex,
        value: ResidentValue<'_>,
        replies: &mut Replies,
    ) -> Effect {
        let ResidentValue { bytes, expiry } = value;
        let key = self.requests[first.index()].key;
        let mut effect = Effect::Unchanged;
        let (mut before, mut at) = (None, Some(next));
        while let Some(current) = at {
            at = self.station.after(current);
            let request = &self.requests[current.index()];
            if !equal(request.key, key) {
                before = Some(current);
                continue;
            }
            if self.has_no_room_for(request) {
                break;
            }
            // An edit, such as of a number whose text changes its length, takes the main path when it is the head.
            let value = ResidentValue { bytes: &mut *bytes, expiry };
            let Access::Done(changed) = self.execute(current, value, replies) else { break };
            if changed == Effect::Changed {
                effect = changed;
            }
            self.station.remove(queue, before, current);
        }
        effect
    }

    /// Executes a request on the value of its key, if that can be done in place.
    #[inline(always)]
    fn execute(&self, request: RequestIndex, value: ResidentValue<'_>, replies: &mut Replies) -> Access<'a> {
        let operation = &self.requests[request.index()].operation;
        if let Operation::Get = operation {
            self.hits.set(self.hits.get() + 1);
        }
        execute(operation, value, replies.slot(self.first_reply + request.index()), self.arena)
    }

    /// Returns the slots that the request needs in a bucket if its key is missing; 0 if it inserts no pair.
    fn needed_slots(&self, request: &Request<'_>) -> usize {
        let key_size = request.key.len();
        if let Some(size) = size_if_missing(&request.operation) {
            return self.table.slot_count(key_size, size, None);
        }
        match apply_to_missing(&request.operation, self.arena) {
            Outcome::Edit(Edit::Store(new)) => self.table.slot_count(key_size, new.size(), new.expiry().apply(None)),
            _ => 0,
        }
    }

    /// Returns true if the pair of a key takes several slabs before or after the edit.
    fn is_large(&self, key: &[u8], edit: &Edit<'_>, location: &Location) -> bool {
        let becomes_large = match edit {
            Edit::Store(new) => {
                let expires = self.table.expiry_after(location, new).is_some();
                is_large(key.len(), new.size(), expires)
            }
            Edit::Remove(_) => false,
        };
        becomes_large || matches!(location, Location::Large { .. })
    }
}
