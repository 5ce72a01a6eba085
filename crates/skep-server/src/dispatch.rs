//! Dispatches the operations of a connection: each is added to the shard's batch, or forwarded to the shard that owns
//! its key, or refused.
//!
//! ```text
//!   operations     │ own │ own │ own │ of shard 2 │ own │ malformed │
//!   destinations   │ 3 of the batch  │ 1 forward  │ 1   │ 1 refused │    a range for each run of operations alike
//! ```
//!
//! Most operations are own ones: a native client chooses the shard. [`Dispatch::extend`] adds a run of them to the batch
//! and records one range for all.

mod memcached;
mod native;
mod resp;

use skep_core::operation::{KEY_SIZE_MAX, Request};
use skep_store::cache::ItemRequest;
use skep_wire::native::WireError;
use skep_wire::partition::Partition;

use crate::access::DeniedOperation;
use crate::batch::OwnedReply;
use crate::exchange::{ForwardedBatch, Peer};
use crate::parsed_batch::ParsedBatch;
use crate::reply_queue::{ReplyRange, Slot, push_range};
use crate::spaces::SpaceRequests;
use crate::vocabulary::{KeyspaceOperation, Limit, List, OperationSource, Refusal, Space};

/// The operations that one connection sends to one other shard.
pub(crate) enum Outgoing {
    Nothing,
    /// There is no slot; these operations are submitted later.
    NoSlot,
    Batch(Box<ForwardedBatch>),
}

/// Takes the operations of one connection.
pub(crate) struct Dispatch<'s, 'a> {
    /// The batch of the shard.
    pub(crate) requests: &'s mut SpaceRequests<'a>,
    /// The destinations of the operations of all connections.
    pub(crate) destinations: &'s mut Vec<ReplyRange>,
    /// Index of the first destination of this connection.
    pub(crate) start: usize,
    /// The shard that has received the operations.
    pub(crate) own: u16,
    pub(crate) partition: &'s Partition,
    /// The other shards, and the operations that are forwarded to each.
    pub(crate) peers: &'s mut [Option<Peer>],
    pub(crate) outgoing: &'s mut [Outgoing],
    /// Other shards returned the connection's last forwarded batches.
    pub(crate) is_retry: bool,
    /// Operations that were refused because they would be executed too late.
    pub(crate) busy: u64,
    /// Operations beyond the limits of the user of the connection.
    pub(crate) too_fast: u64,
    /// Operations that the user of the connection may not do.
    pub(crate) denied: u64,
    /// Why the first of them was denied.
    pub(crate) denial: Option<DeniedOperation>,
}

impl<'a> Dispatch<'_, 'a> {
    /// Dispatches pending operations of a parsed batch, in order, until the limit is reached; `ranges` are those of the
    /// operations whose replies are not in the output. If it is too late for operations that have not begun, they are
    /// refused.
    pub(crate) fn submit(
        &mut self,
        parsed: &'a ParsedBatch,
        input: &'a [u8],
        ranges: &[ReplyRange],
        refusal: Refusal,
        limit: &mut Limit,
    ) {
        match parsed {
            ParsedBatch::Handshake | ParsedBatch::Away => {}
            ParsedBatch::Native(parsed) => self.submit_native(parsed.operations(input), ranges, refusal, limit),
            ParsedBatch::Resp(parsed) => self.submit_resp(parsed.operations(input), ranges, refusal, limit),
            ParsedBatch::Memcached(parsed) => {
                self.submit_memcached(parsed.operations(input), ranges, refusal == Refusal::Late, limit);
            }
        }
    }

    /// Dispatches at most `count_max` operations of a space, until the limit is reached.
    #[inline]
    pub(crate) fn extend(
        &mut self,
        space: Space,
        operations: &mut impl OperationSource<'a>,
        count_max: usize,
        limit: &mut Limit,
    ) {
        if limit.is_reached() {
            return;
        }
        let (own, partition) = (self.own, self.partition);
        let all_own = !space.is_divided() || partition.shard_count() == 1;
        let is_own = |key: &[u8]| all_own || partition.shard_of(key) == own;
        let count_max = count_max.min(limit.count);
        let (mut left, mut size) = (count_max, limit.size);
        loop {
            let mut other = None;
            let (first, count) = self.requests.extend(space, |requests| {
                while left > 0 && size < limit.size_max {
                    if let Some(plain) = operations.next_plain() {
                        (left, size) = (left - 1, size + plain.size());
                        if is_own(plain.key) {
                            plain.push_to(requests);
                            continue;
                        }
                        other = Some(Ok(plain.request()));
                        return;
                    }
                    let Some(operation) = operations.next_other() else { return };
                    (left, size) = (left - 1, size + operation.as_ref().map_or(0, Request::size));
                    match operation {
                        Ok(request) if is_own(request.key) => requests.push(request),
                        operation => {
                            other = Some(operation);
                            return;
                        }
                    }
                }
            });
            push_range(self.destinations, self.start, ReplyRange::of_ready(first, count));
            match other {
                Some(Ok(request)) => self.push(space, request),
                Some(Err(error)) => self.refuse(error, 1),
                None => break,
            }
        }
        (limit.count, limit.size) = (limit.count - (count_max - left), size);
    }

    /// Dispatches a request.
    #[inline]
    pub(crate) fn push(&mut self, space: Space, request: Request<'a>) {
        // A request that is refused anyway need not be forwarded.
        let is_own = !space.is_divided() || request.key.len() > KEY_SIZE_MAX;
        let owner = if is_own { self.own } else { self.partition.shard_of(request.key) };
        let slot = if owner == self.own {
            Slot::Ready(self.requests.push(space, request))
        } else {
            self.forward_by(owner, List::of(space), |forwarded| forwarded.requests.push(&request))
        };
        push_range(self.destinations, self.start, ReplyRange::one(slot));
    }

    /// Dispatches a command of memcached's protocol, on a key of the cache.
    #[inline]
    pub(crate) fn push_item(&mut self, item: ItemRequest<'a>) {
        let owner = if self.partition.shard_count() == 1 { self.own } else { self.partition.shard_of(item.key) };
        let slot = if owner == self.own {
            Slot::Ready(self.requests.push_item(item))
        } else {
            self.forward_by(owner, List::Items, |forwarded| forwarded.items.push(&item))
        };
        push_range(self.destinations, self.start, ReplyRange::one(slot));
    }

    /// Dispatches an operation on all keys of a space: of a divided one, those that a shard has.
    pub(crate) fn push_keyspace(&mut self, space: Space, shard: u16, operation: KeyspaceOperation) {
        let slot = if space.is_divided() && shard != self.own {
            self.forward_by(shard, List::Keyspace, |forwarded| forwarded.keyspace = Some((space, operation)))
        } else {
            Slot::Ready(self.requests.push_keyspace(space, operation))
        };
        push_range(self.destinations, self.start, ReplyRange::one(slot));
    }

    /// Adds an operation of a list to the forwarded batch for its owner. It stays pending if there is no slot for a batch,
    /// or if the batch has operations of another list. An operation on all keys is alone in its batch.
    fn forward_by(&mut self, owner: u16, list: List, add: impl FnOnce(&mut ForwardedBatch)) -> Slot {
        let outgoing = &mut self.outgoing[usize::from(owner)];
        if let Outgoing::Nothing = outgoing {
            let peer = self.peers[usize::from(owner)].as_mut().expect("every other shard is a peer");
            *outgoing = peer.forwarded_batch(self.is_retry).map_or(Outgoing::NoSlot, Outgoing::Batch);
        }
        let Outgoing::Batch(forwarded) = outgoing else { return Slot::Pending };
        if forwarded.len() > 0 && (forwarded.list != list || list == List::Keyspace) {
            return Slot::Pending;
        }
        forwarded.list = list;
        add(forwarded);
        Slot::Forwarded(owner)
    }

    /// Refuses the next `count` operations.
    pub(crate) fn refuse(&mut self, error: WireError, count: usize) {
        match error {
            WireError::Busy => self.busy += count as u64,
            WireError::TooFast => self.too_fast += count as u64,
            WireError::NotPermitted => self.denied += count as u64,
            _ => {}
        }
        let refused = ReplyRange::one(Slot::Buffered(OwnedReply::Unserved(error)));
        (0..count).for_each(|_| push_range(self.destinations, self.start, refused));
    }
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{Operation, PlainRequest, Request};
    use skep_wire::native::WireError;
    use skep_wire::partition::Partition;

    use super::{Dispatch, Outgoing};
    use crate::batch::OwnedReply;
    use crate::exchange::connect_shards;
    use crate::reply_queue::{ReplyRange, Slot, push_range};
    use crate::spaces::SpaceRequests;
    use crate::start::Steps;
    use crate::vocabulary::{Limit, OperationSource, ReplyIndex, Space};

    /// The operations of a list: each second one may be taken as a plain one.
    struct Listed<'l, 'a>(&'l [Result<Request<'a>, WireError>]);

    impl<'a> OperationSource<'a> for Listed<'_, 'a> {
        fn next_plain(&mut self) -> Option<PlainRequest<'a>> {
            let Some((Ok(Request { key, operation: Operation::Get }), rest)) = self.0.split_first() else {
                return None;
            };
            let plain = (rest.len() % 2 == 0).then_some(PlainRequest { key, value: None })?;
            self.0 = rest;
            Some(plain)
        }

        fn next_other(&mut self) -> Option<Result<Request<'a>, WireError>> {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            Some(*first)
        }
    }

    #[test]
    fn adjacent_operations_of_one_destination_are_one_range() {
        let partition = Partition::new(42, 2);
        let numbers: Vec<[u8; 8]> = (0..100_u64).map(u64::to_le_bytes).collect();
        let get = |key| Ok(Request { key, operation: Operation::Get });
        let of_shard =
            |shard| numbers.iter().filter(move |key| partition.shard_of(*key) == shard).map(|key| get(&key[..]));
        let own: Vec<_> = of_shard(0).take(5).collect();
        let foreign: Vec<_> = of_shard(1).take(2).collect();
        let malformed = [Err(WireError::Malformed)];
        let operations = [&own[..3], &foreign, &own[3..4], &malformed, &own[4..]].concat();

        let (mut requests, mut destinations) = (SpaceRequests::default(), Vec::new());
        let mut peers = connect_shards(2, &mut Steps::default()).unwrap().swap_remove(0).1;
        let mut outgoing = [Outgoing::Nothing, Outgoing::Nothing];
        let mut dispatch = Dispatch {
            requests: &mut requests,
            destinations: &mut destinations,
            start: 0,
            own: 0,
            partition: &partition,
            peers: &mut peers,
            outgoing: &mut outgoing,
            is_retry: false,
            busy: 0,
            too_fast: 0,
            denied: 0,
            denial: None,
        };
        let mut limit = Limit { count: 100, size_max: 1000, size: 0, holds_writes: false, is_held: false };
        dispatch.extend(Space::Hash, &mut Listed(&operations), usize::MAX, &mut limit);
        assert_eq!((limit.count, limit.size, dispatch.busy), (100 - operations.len(), 7 * 8, 0));

        // Each limit is reached after two operations of eight bytes.
        for (count, size_max) in [(2, 1000), (10, 15)] {
            let mut limit = Limit { count, size_max, size: 0, holds_writes: false, is_held: false };
            dispatch.extend(Space::Hash, &mut Listed(&own), usize::MAX, &mut limit);
            assert!(limit.is_reached() && limit.size == 16);
        }
        dispatch.refuse(WireError::Busy, 2);
        dispatch.refuse(WireError::NotPermitted, 3);
        assert_eq!((dispatch.busy, dispatch.denied), (2, 3));

        let ready = |first, count| ReplyRange::of_ready(ReplyIndex::hash(first), count);
        let refused = |error| ReplyRange::one(Slot::Buffered(OwnedReply::Unserved(error)));
        let forwarded = ReplyRange::one(Slot::Forwarded(1));
        let malformed = refused(WireError::Malformed);
        let busy = refused(WireError::Busy);
        let mut expected = Vec::new();
        let denied = refused(WireError::NotPermitted);
        let refused = [busy, busy, denied, denied, denied];
        let others = [ready(0, 3), forwarded, forwarded, ready(3, 1), malformed, ready(4, 5)];
        for range in others.into_iter().chain(refused) {
            push_range(&mut expected, 0, range);
        }
        assert_eq!(destinations, expected);
        assert_eq!((destinations.len(), requests.len()), (10, 9));
        assert!(matches!(&outgoing[1], Outgoing::Batch(forwarded) if forwarded.requests.len() == 2));
    }
}
