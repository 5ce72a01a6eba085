//! The spaces of a server: which store an operation is about, and what a shard has of each.
//!
//! ```text
//!   space 0, hash      a store for each shard; an operation travels to the shard that owns its key
//!   space 1, ordered   one store that all shards share; whoever receives an operation carries it out
//! ```
//!
//! The operations of a batch are kept apart by their space, and so are their replies: a [`Place`] says where an answer
//! lies. A connection's operations on one key stay in order, because both stores keep that of their batches; between
//! spaces there is no order, as there is none between keys.

use std::time::Instant;

use skep_core::operation::{Reply, Request};
use skep_store::ordered::{OrderedStore, OwnerRun, Session};
use skep_store::processor::{Processor, Replies};
use skep_wire::native::{HASH_SPACE, ORDERED_SPACE};

use crate::limits::REPLY_BUDGET;

/// The store that an operation is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Space {
    /// The hash store.
    #[default]
    Hash,
    /// The ordered store.
    Ordered,
}

impl Space {
    /// The number by which clients call it.
    pub(crate) fn number(self) -> u16 {
        match self {
            Space::Hash => HASH_SPACE,
            Space::Ordered => ORDERED_SPACE,
        }
    }
}

/// Which spaces a server has: the ordered one may be switched off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spaces {
    /// Whether there is an ordered one.
    pub(crate) has_ordered: bool,
}

impl Spaces {
    /// The space of this number, if there is one.
    pub(crate) fn find(self, number: u16) -> Option<Space> {
        match number {
            HASH_SPACE => Some(Space::Hash),
            ORDERED_SPACE if self.has_ordered => Some(Space::Ordered),
            _ => None,
        }
    }
}

/// Where an answer lies among the replies of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    space: Space,
    index: u32,
}

impl Place {
    /// The answer to the operation of the hash space that was pushed as number `index`.
    pub(crate) fn hash(index: usize) -> Place {
        Place { space: Space::Hash, index: index as u32 }
    }

    /// Its number in its space.
    pub(crate) fn index(self) -> usize {
        self.index as usize
    }

    /// The place of the answer so many operations of the same space further on.
    #[inline]
    pub(crate) fn ahead(self, count: usize) -> Place {
        Place { index: self.index + count as u32, ..self }
    }
}

/// The operations of a batch.
#[derive(Debug, Default)]
pub(crate) struct SpaceRequests<'a> {
    hash: Vec<Request<'a>>,
    ordered: Vec<Request<'a>>,
    /// Whose operations of the ordered space these are.
    owners: Vec<OwnerRun>,
    /// The connection whose operations are being added.
    owner: u64,
}

impl<'a> SpaceRequests<'a> {
    /// Says that the operations to come are those of a connection: leases that they open are known to it only.
    pub(crate) fn begin(&mut self, connection: u64) {
        self.owner = connection;
    }

    /// Adds an operation; answers where its answer will be.
    #[inline]
    pub(crate) fn push(&mut self, space: Space, request: Request<'a>) -> Place {
        let requests = match space {
            Space::Hash => &mut self.hash,
            Space::Ordered => {
                let end = self.ordered.len() + 1;
                match self.owners.last_mut() {
                    Some(run) if run.owner == self.owner => run.end = end,
                    _ => self.owners.push(OwnerRun { end, owner: self.owner }),
                }
                &mut self.ordered
            }
        };
        requests.push(request);
        Place { space, index: (requests.len() - 1) as u32 }
    }

    /// Number of operations.
    pub(crate) fn len(&self) -> usize {
        self.hash.len() + self.ordered.len()
    }

    /// An empty batch with this one's memory, for requests that live at another time.
    pub(crate) fn recycle<'b>(mut self) -> SpaceRequests<'b> {
        self.owners.clear();
        SpaceRequests { hash: recycle(self.hash), ordered: recycle(self.ordered), owners: self.owners, owner: 0 }
    }
}

/// The answers to a batch.
#[derive(Debug)]
pub(crate) struct SpaceReplies {
    hash: Replies,
    ordered: Replies,
    /// Operations of the last batch that are to be submitted again.
    hash_deferred: usize,
    ordered_deferred: usize,
    /// Puts of the hash space that a test lets be deferred.
    #[cfg(test)]
    deferred_puts: Vec<bool>,
    /// Each two replies of the hash space are swapped: a test must find that.
    #[cfg(test)]
    are_swapped: bool,
}

impl SpaceReplies {
    /// Without answers.
    pub(crate) fn new() -> SpaceReplies {
        let replies = || Replies::with_budget(REPLY_BUDGET);
        SpaceReplies {
            hash: replies(),
            ordered: replies(),
            hash_deferred: 0,
            ordered_deferred: 0,
            #[cfg(test)]
            deferred_puts: Vec::new(),
            #[cfg(test)]
            are_swapped: false,
        }
    }

    /// Sets how many bytes the large replies of each space may take in the next batch. Requests for others are deferred.
    pub(crate) fn set_room(&mut self, room: usize) {
        self.hash.set_room(room);
        self.ordered.set_room(room);
    }

    /// Returns true if the operation at this place was deferred because there is no room for its reply.
    pub(crate) fn is_deferred_for_room(&self, place: Place) -> bool {
        let index = place.index as usize;
        match place.space {
            Space::Hash => self.hash.is_deferred_for_room(index),
            Space::Ordered => self.ordered.is_deferred_for_room(index),
        }
    }

    /// The answer at this place.
    #[inline]
    pub(crate) fn get(&self, place: Place) -> Reply<'_> {
        let index = place.index as usize;
        #[cfg(test)]
        if self.are_swapped && place.space == Space::Hash {
            return self.swapped(index);
        }
        match place.space {
            Space::Hash => self.hash.get(index),
            Space::Ordered => self.ordered.get(index),
        }
    }

    /// Returns the reply to the operation of the hash space after or before this one, if both are done.
    #[cfg(test)]
    fn swapped(&self, index: usize) -> Reply<'_> {
        let other = index ^ 1;
        let is_done = |index| index < self.hash.len() && !self.hash.is_deferred(index);
        self.hash.get(if is_done(index) && is_done(other) { other } else { index })
    }

    /// Whether operations of this place's space are to be submitted again.
    pub(crate) fn have_deferred(&self, place: Place) -> bool {
        match place.space {
            Space::Hash => self.hash_deferred > 0,
            Space::Ordered => self.ordered_deferred > 0,
        }
    }

    /// Whether the operation at this place is to be submitted again.
    pub(crate) fn is_deferred(&self, place: Place) -> bool {
        let index = place.index as usize;
        #[cfg(test)]
        if self.deferred_puts.get(index).is_some_and(|is_deferred| *is_deferred) {
            return true;
        }
        match place.space {
            Space::Hash => self.hash.is_deferred(index),
            Space::Ordered => self.ordered.is_deferred(index),
        }
    }
}

/// The stores that a shard works on.
#[derive(Debug)]
pub(crate) struct Stores<'s> {
    hash: Processor,
    ordered: Option<Session<'s>>,
    /// Whether the session may hold what its writes replaced.
    holds_garbage: bool,
    /// Lets the hash store defer all puts, as if there were no memory for them at the moment.
    #[cfg(test)]
    pub(crate) defers_puts: bool,
    /// Swaps replies, for the control of the simulation.
    #[cfg(test)]
    pub(crate) swaps_replies: bool,
}

impl<'s> Stores<'s> {
    /// A shard's part of the hash store, and its way to the ordered one if there is one.
    pub(crate) fn new(hash: Processor, ordered: Option<&'s OrderedStore>) -> Stores<'s> {
        let ordered = ordered.map(|store| store.session().expect("there are no more shards than sessions"));
        Stores {
            hash,
            ordered,
            holds_garbage: false,
            #[cfg(test)]
            defers_puts: false,
            #[cfg(test)]
            swaps_replies: false,
        }
    }

    /// The shard's part of the hash store.
    pub(crate) fn hash(&self) -> &Processor {
        &self.hash
    }

    /// Carries out a batch. Answers how many of its operations are done: those that are deferred will be submitted
    /// again. `now` is for the leases of scans.
    pub(crate) fn execute(&mut self, batch: &SpaceRequests<'_>, replies: &mut SpaceReplies, now: Instant) -> usize {
        let mut done = 0;
        #[cfg(test)]
        {
            replies.are_swapped = self.swaps_replies;
            if self.defers_puts {
                return self.execute_without_puts(batch, replies);
            }
            replies.deferred_puts.clear();
        }
        if !batch.hash.is_empty() {
            self.hash.execute(&batch.hash, &mut replies.hash);
            replies.hash_deferred = replies.hash.deferred_count();
            done += batch.hash.len() - replies.hash_deferred;
        }
        if !batch.ordered.is_empty() {
            let session = self.ordered.as_mut().expect("nobody has chosen a space that there is not");
            session.execute_for(&batch.owners, &batch.ordered, &mut replies.ordered, now);
            self.holds_garbage = true;
            replies.ordered_deferred = replies.ordered.deferred_count();
            done += batch.ordered.len() - replies.ordered_deferred;
        }
        done
    }

    /// Carries out the operations of a batch of the hash space, except puts and what follows them on their keys.
    #[cfg(test)]
    fn execute_without_puts(&mut self, batch: &SpaceRequests<'_>, replies: &mut SpaceReplies) -> usize {
        use skep_core::operation::Operation;
        let mut keys = std::collections::HashSet::new();
        let mut is_deferred = |request: &Request<'_>| {
            let is_put = matches!(request.operation, Operation::Put { .. });
            is_put && keys.insert(request.key.to_vec()) || keys.contains(request.key)
        };
        replies.deferred_puts = batch.hash.iter().map(&mut is_deferred).collect();
        replies.hash_deferred = replies.deferred_puts.iter().filter(|is_deferred| **is_deferred).count();
        let requests: Vec<_> = std::iter::zip(&batch.hash, &replies.deferred_puts)
            .map(|(request, is_deferred)| match is_deferred {
                true => Request { key: request.key, operation: Operation::Contains },
                false => *request,
            })
            .collect();
        self.hash.execute(&requests, &mut replies.hash);
        requests.len() - replies.hash_deferred
    }

    /// Hands over what others may wait for, and frees a part of it: the shard is going to sleep. Returns true if there may be
    /// more to free, so that the shard looks for other work first.
    pub(crate) fn rest(&mut self) -> bool {
        if let Some(session) = &mut self.ordered
            && self.holds_garbage
        {
            self.holds_garbage = session.collect_part();
        }
        self.holds_garbage
    }
}

/// The memory of a vector of requests, for requests that live at another time. The vector is emptied; collecting
/// into the same place keeps its memory.
fn recycle<'a>(mut requests: Vec<Request<'_>>) -> Vec<Request<'a>> {
    requests.clear();
    requests.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{Operation, Request};
    use skep_store::ordered::OwnerRun;

    use super::{Place, Space, SpaceRequests, Spaces};

    #[test]
    fn a_batch_keeps_spaces_apart_and_its_memory() {
        let (hash, ordered, owners) = (Vec::with_capacity(100), Vec::with_capacity(50), Vec::with_capacity(10));
        let mut batch = SpaceRequests { hash, ordered, owners, owner: 0 };
        let memory = |batch: &SpaceRequests<'_>| {
            let hash = (batch.hash.as_ptr() as usize, batch.hash.capacity());
            (hash, batch.ordered.as_ptr() as usize, batch.owners.as_ptr() as usize)
        };
        let before = memory(&batch);
        let get = Request { key: b"k", operation: Operation::Get };
        assert_eq!(batch.push(Space::Ordered, get), Place { space: Space::Ordered, index: 0 });
        assert_eq!(batch.push(Space::Hash, get), Place::hash(0));
        assert_eq!(batch.push(Space::Hash, get), Place::hash(1));
        assert_eq!(batch.len(), 3);
        batch.begin(7);
        batch.push(Space::Ordered, get);
        batch.push(Space::Ordered, get);
        assert_eq!(batch.owners, [OwnerRun { end: 1, owner: 0 }, OwnerRun { end: 3, owner: 7 }]);
        let batch = batch.recycle();
        assert_eq!((batch.len(), memory(&batch)), (0, before));
    }

    #[test]
    fn spaces_have_numbers() {
        for has_ordered in [false, true] {
            let spaces = Spaces { has_ordered };
            assert_eq!(spaces.find(Space::Hash.number()), Some(Space::Hash));
            assert_eq!(spaces.find(Space::Ordered.number()), has_ordered.then_some(Space::Ordered));
            assert_eq!((spaces.find(2), spaces.find(u16::MAX)), (None, None));
        }
    }
}
