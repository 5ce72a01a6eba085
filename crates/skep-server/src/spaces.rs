//! The spaces of a server: the store of an operation, and the part of each store that a shard has.
//!
//! ```text
//!   space 0, hash      a store for each shard; an operation is forwarded to the shard that owns its key
//!   space 1, ordered   one store that all shards share; the shard that receives an operation executes it
//!   space 2, cache     a cache for each shard; as space 0. Commands of memcached's protocol are operations on it too
//! ```
//!
//! A batch keeps the operations of each space apart, and their replies too, and so it does with operations on all keys of
//! a space. A [`ReplyIndex`] is the list and the index of a reply. A connection's operations on one key stay in order,
//! because all stores keep the order of their batches. There is no order between spaces, as there is none between keys.

mod held;
mod isolated_window;
mod keyspace;
mod replies;
mod upkeep;

pub(crate) use isolated_window::Window;
pub(crate) use replies::SpaceReplies;

use std::time::Instant;

use skep_core::operation::Request;
use skep_store::cache::{Cache, ItemRequest};
use skep_store::ordered::{OwnerRun, Session};
use skep_store::processor::{Processor, Replies};

use self::held::{Route, record_ordered_writes};
use crate::cache_flushes::CachePart;
use crate::durability::ShardLog;
use crate::durability::walk::Walk;
use crate::echo::Echo;
use crate::hot_keys::HotKeys;
use crate::keyspace::KeyspaceRequest;
use crate::limits::REPLY_BUDGET;
use crate::shared::Shared;
use crate::unix_time::UnixTime;
use crate::vocabulary::{KeyspaceOperation, List, ReplyIndex, Space};
use crate::watches::WatchTable;

/// The operations of a batch.
#[derive(Debug, Default)]
pub(crate) struct SpaceRequests<'a> {
    hash: Vec<Request<'a>>,
    ordered: Vec<Request<'a>>,
    cache: Vec<Request<'a>>,
    items: Vec<ItemRequest<'a>>,
    /// The connections that sent the operations of the ordered space.
    owners: Vec<OwnerRun>,
    /// The connection whose operations are being added.
    owner: u64,
    keyspace: Vec<KeyspaceRequest>,
}

impl<'a> SpaceRequests<'a> {
    /// Begins the operations of a connection. Only this connection may use the leases that they open.
    pub(crate) fn begin(&mut self, connection: u64) {
        self.owner = connection;
    }

    /// Adds an operation. Returns the index of its reply.
    #[inline]
    pub(crate) fn push(&mut self, space: Space, request: Request<'a>) -> ReplyIndex {
        let requests = self.of(space);
        requests.push(request);
        let index = requests.len() - 1;
        self.record_owner(space);
        ReplyIndex { list: List::of(space), index: index as u32 }
    }

    /// Adds a command of memcached's protocol. Returns the index of its reply.
    #[inline]
    pub(crate) fn push_item(&mut self, item: ItemRequest<'a>) -> ReplyIndex {
        self.items.push(item);
        ReplyIndex { list: List::Items, index: (self.items.len() - 1) as u32 }
    }

    /// Adds commands of memcached's protocol. Returns the index of the first reply, and the number of commands.
    #[inline]
    pub(crate) fn extend_items(&mut self, items: impl Iterator<Item = ItemRequest<'a>>) -> (ReplyIndex, usize) {
        let begin = self.items.len();
        self.items.extend(items);
        (ReplyIndex { list: List::Items, index: begin as u32 }, self.items.len() - begin)
    }

    /// Adds an operation on all keys of a space. Returns the index of its reply.
    pub(crate) fn push_keyspace(&mut self, space: Space, operation: KeyspaceOperation) -> ReplyIndex {
        self.keyspace.push(KeyspaceRequest { space, operation, connection: self.owner });
        ReplyIndex { list: List::Keyspace, index: (self.keyspace.len() - 1) as u32 }
    }

    /// Adds the operations of one space that `add` appends. Returns the index of the first reply, and the number of
    /// operations.
    #[inline]
    pub(crate) fn extend(&mut self, space: Space, add: impl FnOnce(&mut Vec<Request<'a>>)) -> (ReplyIndex, usize) {
        let requests = self.of(space);
        let begin = requests.len();
        add(requests);
        let count = requests.len() - begin;
        self.record_owner(space);
        (ReplyIndex { list: List::of(space), index: begin as u32 }, count)
    }

    fn of(&mut self, space: Space) -> &mut Vec<Request<'a>> {
        match space {
            Space::Hash => &mut self.hash,
            Space::Ordered => &mut self.ordered,
            Space::Cache => &mut self.cache,
        }
    }

    /// Records the connection that has sent the last operations of the ordered space.
    #[inline]
    fn record_owner(&mut self, space: Space) {
        if space.is_divided() {
            return;
        }
        let end = self.ordered.len();
        match self.owners.last_mut() {
            Some(run) if run.owner == self.owner => run.end = end,
            Some(run) if run.end == end => {}
            _ if end == 0 => {}
            _ => self.owners.push(OwnerRun { end, owner: self.owner }),
        }
    }

    /// Returns the number of operations.
    pub(crate) fn len(&self) -> usize {
        self.hash.len() + self.ordered.len() + self.cache.len() + self.items.len() + self.keyspace.len()
    }

    /// Counts the keys of the operations.
    #[cold]
    fn count_keys(&self, hot_keys: &HotKeys, shard: u16, now: Instant) {
        let lists = [(Space::Hash, &self.hash), (Space::Ordered, &self.ordered), (Space::Cache, &self.cache)];
        for (space, requests) in lists {
            hot_keys.count(shard, space, requests.len(), |index| requests[index].key, now);
        }
        hot_keys.count(shard, Space::Cache, self.items.len(), |index| self.items[index].key, now);
    }

    /// Returns an empty batch with this one's memory, for requests of another lifetime.
    pub(crate) fn recycle<'b>(mut self) -> SpaceRequests<'b> {
        self.owners.clear();
        self.keyspace.clear();
        let SpaceRequests { hash, ordered, cache, mut items, owners, keyspace, .. } = self;
        items.clear();
        SpaceRequests {
            hash: recycle(hash),
            ordered: recycle(ordered),
            cache: recycle(cache),
            items: items.into_iter().map(|_| unreachable!("the vector is empty")).collect(),
            owners,
            owner: 0,
            keyspace,
        }
    }
}

/// The work that the stores have done for a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Executed {
    /// Operations that have their reply.
    pub(crate) operations: usize,
    /// Bytes that they have touched besides the few lines of each: see [`Replies::bytes_touched`]. Operations that were
    /// deferred may have touched some too.
    pub(crate) bytes: usize,
}

impl Executed {
    /// Adds operations that have their reply, and the bytes touched.
    #[inline]
    pub(crate) fn add(&mut self, operations: usize, bytes: usize) {
        self.operations += operations;
        self.bytes += bytes;
    }
}

/// The stores that a shard works on.
#[derive(Debug)]
pub(crate) struct Stores<'s> {
    /// This shard's part of the divided spaces, unless it is lent.
    own_part: Option<Box<ShardPart>>,
    /// The parts that other shards have lent, with their shards.
    borrowed: Vec<(u16, Box<ShardPart>)>,
    pub(crate) own: u16,
    pub(crate) ordered: Option<Session<'s>>,
    pub(crate) shared: Option<&'s Shared>,
    /// What the shard has executed since the last seal, if the server has a log.
    pub(crate) log: Option<ShardLog>,
    /// The shard's part in snapshots, if the server has a log.
    walk: Option<Walk>,
    /// Replies in place of the hash store, if the server only echoes.
    echo: Option<Echo>,
    /// Replies to scans of the ordered space for operations on all keys.
    pub(crate) pages: Replies,
    /// The memory of a value that an isolated command has computed or copied, for the next one.
    pub(crate) spare_value: Vec<u8>,
    /// The replies to the operations of isolated commands.
    isolated_replies: Replies,
    /// Empty between them; they keep their memory.
    routes: Vec<(Route, u32)>,
    isolated_requests: Vec<Request<'static>>,
    /// The session may hold nodes and values that its writes replaced.
    pub(crate) holds_garbage: bool,
    /// Lets the hash store defer all puts, as if there were no memory for them at the moment.
    #[cfg(test)]
    pub(crate) defers_puts: bool,
    /// The number of operations of isolated commands that are executed before all others are deferred.
    #[cfg(test)]
    pub(crate) isolated_left: usize,
    /// Bytes of values that the windows of isolated commands have copied.
    #[cfg(test)]
    pub(crate) bytes_kept: usize,
    /// Swaps replies, for the control of the simulation.
    #[cfg(test)]
    pub(crate) swaps_replies: bool,
    /// Executes one operation of an isolated command at a time, and gives the stores back, or ends the turn, after each. It is
    /// for the control of the simulation.
    #[cfg(test)]
    pub(crate) is_broken: bool,
}

/// A shard's part of the divided spaces: an object that the shard may lend to another one.
#[derive(Debug)]
pub(crate) struct ShardPart {
    /// Its part of the hash space.
    pub(crate) processor: Processor,
    /// Its part of the cache, if the server has one.
    pub(crate) cache: Option<CachePart>,
    /// The keys of the hash space that connections watch.
    pub(crate) watches: WatchTable,
    /// The expired keys that its shard had removed from the ordered store when it lent the part.
    expired_in_order: u64,
}

impl ShardPart {
    /// Returns the part of the cache.
    pub(crate) fn cache(&mut self) -> &mut Cache {
        self.cache.as_mut().expect("a space was chosen that the server has").current()
    }

    /// Executes requests on the hash space, and sets the flags of connections that watch the keys that they have changed.
    fn execute(&mut self, requests: &[Request<'_>], replies: &mut Replies) {
        self.processor.execute(requests, replies);
        if !self.watches.is_empty() {
            self.watches.record(requests, |index| replies.get(index));
        }
    }
}

impl<'s> Stores<'s> {
    /// Joins the stores that a shard owns with a session of the ordered store, if there is one.
    pub(crate) fn new(processor: Processor, cache: Option<Cache>, own: u16, shared: Option<&'s Shared>) -> Stores<'s> {
        let store = shared.and_then(|shared| shared.ordered.as_ref());
        let log = shared.and_then(|shared| shared.log.clone());
        let mut ordered = store.map(|store| store.session().expect("there are no more shards than sessions"));
        if let (Some(session), Some(_)) = (&mut ordered, &log) {
            session.record_effects();
        }
        Stores {
            own_part: Some(Box::new(ShardPart {
                processor,
                cache: cache.map(|cache| CachePart::new(cache, shared.map(|shared| &shared.cache_flushes))),
                watches: WatchTable::default(),
                expired_in_order: 0,
            })),
            borrowed: Vec::new(),
            own,
            ordered,
            shared,
            log: log.clone().map(|log| ShardLog::new(log, shared.map_or(1, |shared| shared.settings.shards))),
            walk: log.map(|log| Walk::new(log, own, store.is_some())),
            echo: shared.and_then(|shared| shared.settings.echo).map(Echo::new),
            pages: Replies::with_budget(REPLY_BUDGET),
            spare_value: Vec::new(),
            isolated_replies: Replies::with_budget(REPLY_BUDGET),
            routes: Vec::new(),
            isolated_requests: Vec::new(),
            holds_garbage: false,
            #[cfg(test)]
            defers_puts: false,
            #[cfg(test)]
            isolated_left: usize::MAX,
            #[cfg(test)]
            bytes_kept: 0,
            #[cfg(test)]
            swaps_replies: false,
            #[cfg(test)]
            is_broken: false,
        }
    }

    /// Executes a batch. The operations that are deferred will be submitted again. `now` is for the leases of scans.
    pub(crate) fn execute(&mut self, batch: &SpaceRequests<'_>, replies: &mut SpaceReplies, now: Instant) -> Executed {
        let mut done = Executed::default();
        self.note_execution();
        if let Some(shared) = self.shared
            && shared.hot_keys().are_watched()
        {
            batch.count_keys(shared.hot_keys(), self.own, now);
        }
        #[cfg(test)]
        {
            replies.are_swapped = self.swaps_replies;
            if self.defers_puts {
                return self.execute_without_puts(batch, replies);
            }
            replies.deferred_puts.clear();
        }
        if let (Some(echo), Some(part)) = (&mut self.echo, &self.own_part) {
            echo.execute(&batch.hash, part.processor.memory(), &mut replies.hash);
            done.add(batch.hash.len(), 0);
        } else if !batch.hash.is_empty() {
            let part = self.part(self.own);
            let before = part.processor.statistics().operations;
            part.execute(&batch.hash, &mut replies.hash);
            let executed = (part.processor.statistics().operations - before) as usize;
            replies.hash_deferred = batch.hash.len() - executed;
            debug_assert_eq!(replies.hash_deferred, replies.hash.deferred_count());
            done.add(executed, replies.hash.bytes_touched());
            if let Some(log) = &mut self.log {
                log.record(Space::Hash, &batch.hash, |index| replies.hash.get(index));
            }
        }
        if !batch.ordered.is_empty() {
            let session = self.ordered.as_mut().expect("a space was chosen that the server has");
            session.execute_for(&batch.owners, &batch.ordered, &mut replies.ordered, now);
            self.holds_garbage = true;
            record_ordered_writes(self.shared, &batch.ordered, &replies.ordered);
            replies.ordered_deferred = replies.ordered.deferred_count();
            done.add(batch.ordered.len() - replies.ordered_deferred, replies.ordered.bytes_touched());
        }
        if !batch.cache.is_empty() {
            self.part(self.own).cache().execute(&batch.cache, &mut replies.cache);
            replies.cache_deferred = replies.cache.deferred_count();
            done.add(batch.cache.len() - replies.cache_deferred, replies.cache.bytes_touched());
        }
        if !batch.items.is_empty() {
            if !batch.cache.is_empty() {
                // The two lists share the room of their space.
                replies.items.set_room(replies.cache.room_left());
            }
            self.part(self.own).cache().execute_items(&batch.items, &mut replies.items);
            replies.items_deferred = replies.items.deferred_count();
            done.add(batch.items.len() - replies.items_deferred, replies.items.bytes_touched());
        }
        let SpaceReplies { keyspace, keyspace_deferred, .. } = replies;
        let of_keyspace = self.execute_keyspace(self.own, &batch.keyspace, keyspace, keyspace_deferred, now);
        done.add(of_keyspace.operations, of_keyspace.bytes);
        done
    }

    /// Executes the operations of a batch of the hash space, except puts and the later operations on their keys.
    #[cfg(test)]
    fn execute_without_puts(&mut self, batch: &SpaceRequests<'_>, replies: &mut SpaceReplies) -> Executed {
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
        self.part(self.own).execute(&requests, &mut replies.hash);
        Executed { operations: requests.len() - replies.hash_deferred, bytes: replies.hash.bytes_touched() }
    }

    /// Sets the time of day for expiries.
    pub(crate) fn set_time(&mut self, time: UnixTime) {
        let now = time.milliseconds().cast_unsigned();
        if let Some(log) = &mut self.log {
            log.set_now(now);
        }
        for part in self.own_part.iter_mut().chain(self.borrowed.iter_mut().map(|(_, part)| part)) {
            part.processor.set_now(now);
            if let Some(cache) = &mut part.cache {
                cache.set_now(now);
            }
        }
        if let Some(session) = &self.ordered {
            session.set_now(now);
        }
    }
}

/// Returns the memory of a vector of requests, for requests of another lifetime. The vector is emptied; collecting
/// in place keeps its memory.
fn recycle<'a>(mut requests: Vec<Request<'_>>) -> Vec<Request<'a>> {
    requests.clear();
    requests.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{Operation, Request};
    use skep_store::ordered::OwnerRun;

    use super::SpaceRequests;
    use crate::vocabulary::{Functions, List, ReplyIndex, Space, Spaces};

    #[test]
    fn a_batch_keeps_spaces_apart_and_its_memory() {
        let (hash, ordered, owners) = (Vec::with_capacity(100), Vec::with_capacity(50), Vec::with_capacity(10));
        let mut batch = SpaceRequests { hash, ordered, owners, ..SpaceRequests::default() };
        let memory = |batch: &SpaceRequests<'_>| {
            let hash = (batch.hash.as_ptr() as usize, batch.hash.capacity());
            (hash, batch.ordered.as_ptr() as usize, batch.owners.as_ptr() as usize)
        };
        let before = memory(&batch);
        let get = Request { key: b"k", operation: Operation::Get };
        assert_eq!(batch.push(Space::Ordered, get), ReplyIndex { list: List::Ordered, index: 0 });
        assert_eq!(batch.push(Space::Hash, get), ReplyIndex::hash(0));
        assert_eq!(batch.push(Space::Hash, get), ReplyIndex::hash(1));
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
        for (has_ordered, has_cache) in [(false, true), (true, false)] {
            let spaces = Spaces { has_ordered, has_cache, shard_count: 1, functions: Functions::leaked() };
            assert_eq!(spaces.find(Space::Hash.number()), Some(Space::Hash));
            assert_eq!(spaces.find(Space::Ordered.number()), has_ordered.then_some(Space::Ordered));
            assert_eq!(spaces.find(Space::Cache.number()), has_cache.then_some(Space::Cache));
            assert_eq!((spaces.find(3), spaces.find(u16::MAX)), (None, None));
        }
    }
}
