//! A chain of the reservation station, worked off from its front (KV-Direct, section 3.3.3).
//!
//! ```text
//! front ─▶ find its key ─▶ value resident? ─yes─▶ execute it, and behind it whatever has the same key
//!   ▲                          │ no                 │ each answers from the value as the one before left it
//!   │                          ▼                    ▼
//!   │                      main path            one write back, if anything changed
//!   └───────────────── next of the chain ◀──────────┘
//! ```
//!
//! The value is forwarded where it lies: in the copy of its bucket, or in its slab. So a hundred updates of one counter
//! are one read and one write. Forwarding ends at an operation of the key that cannot be done in place; what waits for
//! other keys keeps its turn. A forwarded operation never needs space, so an answer that was given is never lost to a
//! full memory.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use super::execution::{InPlace, execute_in_place, update_in_place};
use super::replies::Replies;
use super::station::{ChainIndex, Chains, Station, Waiting};
use crate::hash::{Edit, FirstLine, HashTable, Home, Location, NotStored, PAIR_SIZE_MAX, Visit};
use crate::memory::{Effect, Memory};
use crate::short::equal;
use skep_core::function::{DecimalText, update};
use skep_core::operation::{Operation, PutCondition, Reply, Request};

/// What all chains of a batch share while they are under way.
pub(super) struct Batch<'a, M, S = Station> {
    pub(super) table: &'a HashTable<M>,
    pub(super) requests: &'a [Request<'a>],
    pub(super) homes: &'a [Home],
    /// Place of the first request in the replies.
    pub(super) first_reply: usize,
    pub(super) station: &'a S,
    pub(super) replies: RefCell<&'a mut Replies>,
    pub(super) hits: Cell<u64>,
    pub(super) misses: Cell<u64>,
    /// Requests left for later.
    pub(super) deferred: Cell<u64>,
    /// Hashes of the keys with a request that was left for later, for slabs to be merged or for its reply to have room: all later
    /// requests on them are left too.
    pub(super) deferred_keys: RefCell<&'a mut HashSet<u64>>,
    /// Operations that found or store a large value, for after the waves.
    pub(super) large: RefCell<Vec<LargeOperation>>,
}

/// The first operation of a chain, and where its search ended. That stays true: nothing else of the chain is under way.
pub(super) struct LargeOperation {
    pub(super) chain: ChainIndex,
    pub(super) first: Waiting,
    pub(super) location: Location,
}

impl<M: Memory, S: Chains> Batch<'_, M, S> {
    /// Works off a chain, until it is empty or its first operation has to read or write a large value.
    pub(super) async fn run_chain(&self, chain: ChainIndex) {
        while let Some(first) = self.front(chain) {
            let request = &self.requests[first.index()];
            let home = self.homes[first.index()];
            let mut sum = None;
            let visit =
                |value: &mut [u8]| self.forward(chain, first, request, value, &mut sum, &mut self.replies.borrow_mut());
            let edit = |found| edit_of(request, found);
            let location = match self.table.seek(request.key, home, self.needed_slots(request), visit, edit).await {
                Ok(location) => location,
                Err(first_line) => {
                    self.answer_first_line(chain, first, &first_line, &mut self.replies.borrow_mut());
                    continue;
                }
            };
            if let (Location::Large { .. }, Operation::Contains) = (&location, &request.operation) {
                self.answer(first, Reply::Done);
                self.station.retire(chain, None, first);
                continue;
            }
            if matches!(location, Location::Large { .. }) || stored_size(request) > PAIR_SIZE_MAX {
                self.large.borrow_mut().push(LargeOperation { chain, first, location });
                return;
            }
            let outcome = self.main_path(request, home, &location, sum, first).await;
            self.finish(chain, first, outcome);
        }
    }

    /// Takes the first request of a chain out of it, which was answered unless it was not stored.
    pub(super) fn finish(&self, chain: ChainIndex, first: Waiting, outcome: Result<(), NotStored>) {
        let hash = self.homes[first.index()].hash;
        match outcome {
            Ok(()) => {}
            Err(NotStored::Later(_)) if self.table.may_wait(hash) => return self.defer(chain, first),
            Err(NotStored::Failed(error) | NotStored::Later(error)) => self.answer(first, Reply::Failed(error)),
        }
        self.table.end_wait(hash);
        self.station.retire(chain, None, first);
    }

    /// Leaves the first request of a chain for later, and all behind it that have the same key.
    #[cold]
    pub(super) fn defer(&self, chain: ChainIndex, first: Waiting) {
        let key = self.requests[first.index()].key;
        self.deferred_keys.borrow_mut().insert(self.homes[first.index()].hash.0);
        let (mut before, mut at) = (None, Some(first));
        while let Some(waiting) = at {
            at = self.station.after(waiting);
            if self.requests[waiting.index()].key == key {
                self.station.retire(chain, before, waiting);
                self.deferred.set(self.deferred.get() + 1);
            } else {
                before = Some(waiting);
            }
        }
    }

    /// Answers the first request of a chain, if the first line was enough for it and no visit has answered. Whether the
    /// first line was enough.
    #[inline]
    pub(super) fn answer_first_line(
        &self,
        chain: ChainIndex,
        first: Waiting,
        first_line: &FirstLine,
        replies: &mut Replies,
    ) -> bool {
        let request = &self.requests[first.index()];
        let reply = match first_line {
            FirstLine::Visited => return true,
            FirstLine::Edited => Reply::Done,
            FirstLine::Absent if !creates(request) => Reply::NotFound,
            _ => return false,
        };
        self.answer_in(replies, first, reply);
        self.station.retire(chain, None, first);
        true
    }

    #[inline]
    pub(super) fn front(&self, chain: ChainIndex) -> Option<Waiting> {
        self.station.front(chain)
    }

    pub(super) fn answer(&self, request: Waiting, reply: Reply<'_>) {
        self.answer_in(&mut self.replies.borrow_mut(), request, reply);
    }

    #[inline(always)]
    fn answer_in(&self, replies: &mut Replies, request: Waiting, reply: Reply<'_>) {
        if let (Operation::Get, Reply::NotFound) = (&self.requests[request.index()].operation, reply) {
            self.misses.set(self.misses.get() + 1);
        }
        replies.set(self.first_reply + request.index(), reply);
    }

    /// Executes the first request of a chain on its value, and those behind it that have the same key, in order, up to
    /// one that cannot be done in place.
    #[inline(always)]
    pub(super) fn forward(
        &self,
        chain: ChainIndex,
        first: Waiting,
        request: &Request<'_>,
        value: &mut [u8],
        sum: &mut Option<DecimalText>,
        replies: &mut Replies,
    ) -> Visit {
        let InPlace::Answered(effect) = self.execute(first, request, value, replies, sum) else { return Visit::Left };
        let next = self.station.after(first);
        self.station.retire(chain, None, first);
        let forwarded = match next {
            Some(next) => self.forward_on(chain, first, next, value, replies),
            None => Effect::Unchanged,
        };
        Visit::Done(if forwarded == Effect::Changed { forwarded } else { effect })
    }

    /// Executes what waits from `next` on and has the key of `first`.
    #[inline(never)]
    fn forward_on(
        &self,
        chain: ChainIndex,
        first: Waiting,
        next: Waiting,
        value: &mut [u8],
        replies: &mut Replies,
    ) -> Effect {
        let key = self.requests[first.index()].key;
        let mut effect = Effect::Unchanged;
        let (mut before, mut at) = (None, Some(next));
        while let Some(waiting) = at {
            at = self.station.after(waiting);
            let request = &self.requests[waiting.index()];
            if !equal(request.key, key) {
                before = Some(waiting);
                continue;
            }
            // A number whose text changes its length takes the main path when its turn comes.
            let InPlace::Answered(changed) = self.execute(waiting, request, value, replies, &mut None) else { break };
            if changed == Effect::Changed {
                effect = changed;
            }
            self.station.retire(chain, before, waiting);
        }
        effect
    }

    /// Executes a request on the value of its key, if that can be done in place.
    #[inline(always)]
    fn execute(
        &self,
        waiting: Waiting,
        request: &Request<'_>,
        value: &mut [u8],
        replies: &mut Replies,
        sum: &mut Option<DecimalText>,
    ) -> InPlace {
        let place = self.first_reply + waiting.index();
        match &request.operation {
            Operation::Get => {
                self.hits.set(self.hits.get() + 1);
                replies.set_value(place, value);
                InPlace::Answered(Effect::Unchanged)
            }
            Operation::Update(operation) => update_in_place(operation, value, place, replies),
            _ => execute_in_place(request, value, place, replies, sum),
        }
    }

    /// Carries out an operation that finds no key, removes it, or changes the size of its value.
    async fn main_path(
        &self,
        request: &Request<'_>,
        home: Home,
        location: &Location,
        sum: Option<DecimalText>,
        waiting: Waiting,
    ) -> Result<(), NotStored> {
        let missing = matches!(location, Location::Missing { .. });
        let key = request.key;
        let reply = match &request.operation {
            Operation::Delete if !missing => {
                self.table.remove(home, location, key.len()).await;
                Reply::Done
            }
            Operation::Put { value, condition } if !missing || *condition != PutCondition::IfPresent => {
                self.table.store(home, location, key, value, |_| ()).await?;
                Reply::Done
            }
            Operation::AddDecimal { delta } => {
                let sum = sum.unwrap_or_else(|| DecimalText::new(*delta));
                self.table.store(home, location, key, sum.as_bytes(), |_| ()).await?;
                self.answer(waiting, Reply::Value(sum.as_bytes()));
                return Ok(());
            }
            Operation::Update(operation) if operation.initial.is_some() => {
                let initial = operation.initial.unwrap_or_default();
                let finish = |value: &mut [u8]| {
                    update(operation.function, operation.element, operation.shape, operation.operand, value);
                };
                self.table.store(home, location, key, initial, finish).await?;
                if operation.return_old { Reply::Value(initial) } else { Reply::Done }
            }
            _ => Reply::NotFound,
        };
        self.answer(waiting, reply);
        Ok(())
    }

    /// Slots that the request may need in a bucket, if its key does not exist.
    pub(super) fn needed_slots(&self, request: &Request<'_>) -> usize {
        let value_size = match &request.operation {
            Operation::Put { value, condition } if *condition != PutCondition::IfPresent => value.len(),
            Operation::Update(operation) => match operation.initial {
                Some(initial) => initial.len(),
                None => return 0,
            },
            Operation::AddDecimal { delta } => DecimalText::new(*delta).as_bytes().len(),
            _ => return 0,
        };
        self.table.slot_count(request.key.len(), value_size)
    }
}

/// What the request does to a pair as a whole, as far as that is known without its value.
#[inline]
pub(super) fn edit_of<'a>(request: &Request<'a>, found: bool) -> Edit<'a> {
    match request.operation {
        Operation::Delete => Edit::Remove,
        Operation::Put { value, condition } if found || condition != PutCondition::IfPresent => Edit::Store(value),
        _ => Edit::None,
    }
}

/// Whether the request stores a pair where there is none.
pub(super) fn creates(request: &Request<'_>) -> bool {
    match &request.operation {
        Operation::Put { condition, .. } => *condition != PutCondition::IfPresent,
        Operation::Update(operation) => operation.initial.is_some(),
        Operation::AddDecimal { .. } => true,
        _ => false,
    }
}

/// Bytes of the pair that the request would store.
pub(super) fn stored_size(request: &Request<'_>) -> usize {
    let value_size = match &request.operation {
        Operation::Put { value, .. } => value.len(),
        Operation::Update(operation) => operation.initial.map_or(0, <[u8]>::len),
        _ => return 0,
    };
    request.key.len() + value_size
}
