//! The stores that shards lend to each other, and the operations of isolated commands on them.

use std::sync::atomic::Ordering;
use std::time::Instant;

use skep_core::operation::{KEY_SIZE_MAX, Reply, Request};
use skep_store::ordered::{OwnerRun, Session};
use skep_store::processor::{Replies, Statistics};
use skep_wire::partition::Partition;

use super::{Executed, ShardPart, SpaceRequests, Stores, Window, recycle};
use crate::keyspace::{KeyspaceReplies, KeyspaceRequest};
use crate::shared::Shared;
use crate::vocabulary::{Extent, List, Space};
use crate::watches::WatchTable;

/// Bytes of the smallest slab.
const SLAB_SIZE_MIN: usize = 32;

/// The store of an operation of an isolated command: the space, and the shard if the space is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Route {
    list: List,
    shard: u16,
}

impl SpaceRequests<'_> {
    /// Returns true if the batch has a flush. No operations are added then: they would be executed before the flush,
    /// which was sent before them.
    pub(crate) fn has_flush(&self) -> bool {
        self.keyspace.last().is_some_and(|request| request.operation.is_flush())
    }
}

impl Stores<'_> {
    /// Publishes the metrics of the parts that the shard has. The expired keys that a shard has removed
    /// from the ordered store count too.
    pub(crate) fn publish(&self, shared: &Shared) {
        let publish = |shard: u16, part: &ShardPart, expired_in_order: u64| {
            let statistics = part.processor.statistics();
            let expired = statistics.expired + expired_in_order;
            let metrics = shared.metrics(usize::from(shard));
            metrics.publish(&Statistics { expired, ..statistics });
            if let Some(cache) = &part.cache {
                metrics.publish_cache(&cache.statistics());
            }
        };
        if let Some(part) = &self.own_part {
            publish(self.own, part, self.expired_in_order());
        }
        for (shard, part) in self.lent_parts() {
            publish(shard, part, part.expired_in_order);
        }
    }

    /// Returns the extents of the hash space, of the shards that the shard has, and of the ordered space.
    pub(crate) fn extents(&self) -> (Extent, Extent) {
        let mut hash = Extent::default();
        let parts = self.own_part.iter().chain(self.lent_parts().map(|(_, part)| part));
        for statistics in parts.map(|part| part.processor.statistics()) {
            let used = statistics.memory_bytes - statistics.index_bytes.min(statistics.memory_bytes);
            let pairs = statistics.pairs as usize;
            hash.pairs += pairs;
            hash.slabs += pairs.min((used - statistics.slab_free_bytes.min(used)) as usize / SLAB_SIZE_MIN);
            hash.key_bytes += (pairs * KEY_SIZE_MAX).min(statistics.pair_bytes as usize);
            hash.index_bytes += statistics.index_bytes as usize;
            hash.expiring += statistics.expiring as usize;
        }
        let ordered = self.shared.and_then(|shared| shared.ordered.as_ref()).map_or(Extent::default(), |store| {
            let (pairs, used_bytes) = (store.pair_count() as usize, store.statistics().space.used_bytes as usize);
            let key_bytes = (pairs * KEY_SIZE_MAX).min(used_bytes);
            let (expiring, value_size_max) = (store.expiring_count() as usize, store.value_size_max());
            Extent { pairs, slabs: pairs, key_bytes, index_bytes: 0, expiring, value_size_max }
        });
        (hash, ordered)
    }

    fn expired_in_order(&self) -> u64 {
        self.ordered.as_ref().map_or(0, Session::expired_count)
    }

    fn lent_parts(&self) -> impl Iterator<Item = (u16, &Box<ShardPart>)> {
        self.borrowed.iter().map(|(shard, part)| (*shard, part))
    }

    /// Changes between the open blocks of the log: see [`crate::durability::ShardLog::swap_open`].
    pub(crate) fn swap_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.swap_open();
        }
    }

    /// Takes the shard's own part, to lend it. `None` if it is lent.
    pub(crate) fn lend(&mut self) -> Option<Box<ShardPart>> {
        let mut part = self.own_part.take()?;
        part.expired_in_order = self.expired_in_order();
        Some(part)
    }

    /// Takes the shard's own part back.
    pub(crate) fn take_back(&mut self, part: Box<ShardPart>) {
        self.own_part = Some(part);
    }

    /// Takes the part that another shard has lent.
    pub(crate) fn borrow(&mut self, shard: u16, part: Box<ShardPart>) {
        self.borrowed.push((shard, part));
    }

    /// Returns the parts that other shards have lent, which are given back.
    pub(crate) fn give_back(&mut self) -> impl Iterator<Item = (u16, Box<ShardPart>)> {
        self.borrowed.drain(..)
    }

    /// Calls `f` with the watched keys of a store: that of the ordered space, or of the shard that owns a key. Keys of the
    /// cache are not watched.
    pub(crate) fn with_watches(&mut self, space: Space, shard: u16, f: impl FnOnce(&mut WatchTable)) {
        match space {
            Space::Cache => {}
            Space::Hash => f(&mut self.part(shard).watches),
            Space::Ordered => self.shared.expect("a server has it").ordered_watches.with(f),
        }
    }

    /// Returns the part of a shard, which the shard owns or has borrowed.
    pub(crate) fn part(&mut self, shard: u16) -> &mut ShardPart {
        if shard == self.own {
            return self.own_part.as_deref_mut().expect("a shard that has lent its store executes nothing");
        }
        let borrowed = self.borrowed.iter_mut().find(|(of, _)| *of == shard);
        borrowed.map(|(_, part)| &mut **part).expect("the shards of an isolated command are held")
    }

    /// Executes the operations of a window that have no reply, on the stores of all shards that are held. Operations on one
    /// key take effect in their order. Leases belong to `owner`.
    pub(crate) fn execute_window<'a>(
        &mut self,
        window: &mut Window,
        partition: &Partition,
        owner: u64,
        now: Instant,
        request: impl Fn(usize) -> (Space, Request<'a>),
    ) -> Executed {
        self.note_execution();
        let mut routes = std::mem::take(&mut self.routes);
        routes.extend(window.pending().map(|index| {
            let (space, request) = request(index);
            let shard = if space.is_divided() { partition.shard_of(request.key) } else { 0 };
            (Route { list: List::of(space), shard }, index as u32)
        }));
        #[cfg(test)]
        routes.truncate(match () {
            () if self.defers_puts => 0,
            () if self.is_broken => 1,
            () => self.isolated_left,
        });
        #[cfg(test)]
        (self.isolated_left = self.isolated_left.saturating_sub(routes.len()));
        routes.sort_unstable();
        let mut executed = Executed::default();
        for group in routes.chunk_by(|one, other| one.0 == other.0) {
            let mut requests = recycle(std::mem::take(&mut self.isolated_requests));
            requests.extend(group.iter().map(|(_, index)| request(*index as usize).1));
            executed.bytes += self.execute_group(group[0].0, &requests, owner, now);
            for (place, (_, index)) in group.iter().enumerate() {
                if !self.isolated_replies.is_deferred(place) {
                    window.set(*index as usize, self.isolated_replies.get(place));
                    #[cfg(test)]
                    if let Reply::Value(value) = self.isolated_replies.get(place) {
                        self.bytes_kept += value.len();
                    }
                    executed.operations += 1;
                }
            }
            self.isolated_requests = recycle(requests);
        }
        routes.clear();
        self.routes = routes;
        executed
    }

    /// Executes an operation on the stores that are held, and calls `take` with its reply. Returns what `take` returns, or
    /// nothing if the store has deferred the operation.
    pub(crate) fn execute_one<T>(
        &mut self,
        space: Space,
        request: Request<'_>,
        partition: &Partition,
        owner: u64,
        now: Instant,
        take: impl FnOnce(Reply<'_>) -> T,
    ) -> (Option<T>, Executed) {
        self.note_execution();
        #[cfg(test)]
        if self.defers_puts || self.isolated_left == 0 {
            return (None, Executed::default());
        }
        #[cfg(test)]
        (self.isolated_left -= 1);
        let shard = if space.is_divided() { partition.shard_of(request.key) } else { 0 };
        let bytes = self.execute_group(Route { list: List::of(space), shard }, &[request], owner, now);
        let is_done = !self.isolated_replies.is_deferred(0);
        let taken = is_done.then(|| take(self.isolated_replies.get(0)));
        (taken, Executed { operations: usize::from(is_done), bytes })
    }

    /// Executes operations on one store. Their replies are in `isolated_replies`. Returns the bytes touched.
    fn execute_group(&mut self, route: Route, requests: &[Request<'_>], owner: u64, now: Instant) -> usize {
        let Route { list, shard } = route;
        if list == List::Ordered {
            self.execute_ordered(&[OwnerRun { end: requests.len(), owner }], requests, now);
        } else {
            let mut replies = std::mem::replace(&mut self.isolated_replies, Replies::with_budget(0));
            let part = self.part(shard);
            match list {
                List::Cache => part.cache().execute(requests, &mut replies),
                _ => {
                    part.execute(requests, &mut replies);
                    if let Some(log) = &mut self.log {
                        log.record(Space::Hash, requests, |index| replies.get(index));
                    }
                }
            }
            self.isolated_replies = replies;
        }
        self.bound_block();
        self.isolated_replies.bytes_touched()
    }

    /// Executes an operation on all keys of a space: of a divided one, on the part of a shard. Calls `take` with its reply,
    /// unless the store has deferred it.
    pub(crate) fn execute_on_all_keys(
        &mut self,
        shard: u16,
        request: KeyspaceRequest,
        now: Instant,
        take: impl FnOnce(&[u8]),
    ) -> Executed {
        self.note_execution();
        let mut replies = KeyspaceReplies::default();
        replies.set_room(usize::MAX);
        let executed = self.execute_keyspace(shard, &[request], &mut replies, &mut 0, now);
        self.bound_block();
        if let Some(bytes) = replies.get(0) {
            take(bytes);
        }
        executed
    }

    /// Returns true if all parts of the hash space that the shard has can store this number of slabs for sure.
    pub(crate) fn have_plenty(&self, slab_count: u64) -> bool {
        self.own_part
            .iter()
            .chain(self.lent_parts().map(|(_, part)| part))
            .all(|part| part.processor.has_plenty(slab_count))
    }

    /// Returns true if the ordered space has room for sure for pairs whose keys and values have these sizes, while no other
    /// shard writes.
    pub(crate) fn has_ordered_room(&self, sizes: impl ExactSizeIterator<Item = (usize, usize)>) -> bool {
        self.shared.and_then(|shared| shared.ordered.as_ref()).is_some_and(|store| store.has_room_for(sizes))
    }

    fn execute_ordered(&mut self, owners: &[OwnerRun], requests: &[Request<'_>], now: Instant) {
        let session = self.ordered.as_mut().expect("a space was chosen that the server has");
        session.execute_for(owners, requests, &mut self.isolated_replies, now);
        self.holds_garbage = true;
        record_ordered_writes(self.shared, requests, &self.isolated_replies);
    }
}

/// Sets the flags of connections that watch the keys that a batch has changed.
pub(super) fn record_ordered_writes(shared: Option<&Shared>, requests: &[Request<'_>], replies: &Replies) {
    if let Some(Shared { ordered_watches: watches, .. }) = shared
        && watches.is_used.load(Ordering::Relaxed)
    {
        watches.with(|table| table.record(requests, |index| replies.get(index)));
    }
}
