//! Shards without threads and without time of their own: tests and the simulation drive them turn by turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use skep_store::cache::Cache;
use skep_store::naive::EXPIRIES_END;
use skep_store::processor::Processor;
use skep_wire::partition::Partition;

use super::{Handover, Parts, Shard};
use crate::endpoint::Endpoint;
use crate::exchange::connect_shards;
use crate::shared::Shared;
use crate::spaces::Stores;
use crate::start::Steps;
use crate::start_error::StartError;
use crate::unix_time::UnixTime;
use crate::waker::Waker;

/// A shard and its stores.
pub(crate) struct Driven<'s> {
    pub(super) shard: Shard,
    pub(crate) stores: Stores<'s>,
    /// The moment that counts as the beginning of 1970.
    begin: Instant,
}

/// Makes the shards of a server. They have no listeners: connections are handed over to them.
pub(crate) fn driven_shards<'s>(
    shared: &'s Arc<Shared>,
    now: Instant,
    steps: &mut Steps,
) -> Result<Vec<Driven<'s>>, StartError> {
    let rings = connect_shards(usize::from(shared.settings.shards), steps)?;
    let wakers: Vec<Arc<Waker>> = rings.iter().map(|(waker, _)| waker.clone()).collect();
    let (handovers, incoming) = Handover::all(wakers.iter().cloned());
    (0..shared.settings.shards)
        .zip(rings.into_iter().zip(incoming))
        .map(|(index, ((waker, peers), incoming))| {
            let store = shared.settings.store(u64::from(index));
            let processor = steps.reserve(|| Processor::new(&store), StartError::HashMemory)?;
            let cache = match shared.settings.cache(u64::from(index)) {
                Some(settings) => Some(steps.reserve(|| Cache::new(&settings), StartError::CacheMemory)?),
                None => None,
            };
            let parts = Parts {
                index,
                shared: shared.clone(),
                partition: Partition::new(shared.partition_seed, shared.settings.shards),
                listeners: None,
                datagrams: None,
                memcached_socket: None,
                #[cfg(feature = "rdma")]
                rdma: None,
                waker,
                peers,
                incoming,
                handovers: handovers.clone(),
                wakers: wakers.clone(),
            };
            let shard = Shard::new(parts, &processor.statistics(), now, steps)?;
            Ok(Driven { shard, stores: Stores::new(processor, cache, index, Some(shared)), begin: now })
        })
        .collect()
}

impl Driven<'_> {
    /// Gives the shard a connection, as another shard does.
    pub(crate) fn hand_over(&self, endpoint: Endpoint) {
        let handover = &self.shard.parts.handovers[usize::from(self.shard.parts.index)];
        handover.sender.send(Box::new(endpoint)).expect("the shard takes connections");
    }

    /// Gives the connections the events of their simulated transports.
    pub(crate) fn deliver_events(&mut self, now: Instant) {
        let endpoints = self.shard.connections.iter_mut();
        let events = endpoints.filter_map(|(token, endpoint)| Some((token, endpoint.transport.take_event()?)));
        for (token, event) in events.collect::<Vec<_>>() {
            self.shard.on_event(token, event, now);
        }
    }

    /// Makes a turn. Returns the number of executed operations, or `None` if the shard found nothing to do.
    pub(crate) fn turn(&mut self, now: Instant) -> Option<usize> {
        self.shard.poll(now);
        // As if the generator's requests with expiries came after all of these.
        let time = UnixTime::after(now - self.begin + Duration::from_millis(EXPIRIES_END));
        let worked = self.shard.work(&mut self.stores, now, time);
        self.shard.lend_after_turn(&mut self.stores);
        worked.then_some(self.shard.execution.executed)
    }

    /// Returns true if a command on the shard's keys has begun and is not done.
    pub(crate) fn has_begun(&self) -> bool {
        self.shard.holds.have_own_run()
    }

    /// Makes a step for a snapshot, if there is one to make.
    pub(crate) fn walk(&mut self) {
        if !self.shard.holds.is_held() && self.stores.may_walk() {
            self.stores.walk_step();
        }
    }

    /// Ends a turn, which took `spent`.
    pub(crate) fn measure(&mut self, now: Instant, spent: Duration) {
        self.shard.measure(now, spent);
    }

    /// Does the work that is due.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.shard.tick(now);
    }

    /// Returns true if the shard has no connections, and holds no memory for any.
    pub(crate) fn is_empty(&self) -> bool {
        self.shard.connections.is_empty()
            && self.shard.arrivals.visitors.is_empty()
            && self.shard.waits.later.is_empty()
            && self.shard.shard_budget.used() == 0
    }
}
