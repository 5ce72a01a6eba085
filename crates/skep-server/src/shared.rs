//! The state that all shards share: the settings, the counters of each, and the connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use skep_store::ordered::OrderedStore;

use crate::counter::Counter;
use crate::cursors::Cursors;
use crate::memory_budget::MemoryBudget;
use crate::metrics::Metrics;
use crate::settings::ServerSettings;
use crate::spaces::{OrderedWatches, Space, Spaces};

/// The state that all shards share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The settings of the server, with the ports that were bound.
    pub(crate) settings: ServerSettings,
    /// The ordered store, which all shards work on, unless it is switched off.
    pub(crate) ordered: Option<OrderedStore>,
    /// The keys of the ordered space that connections watch.
    pub(crate) ordered_watches: OrderedWatches,
    /// The cursors of scans of the ordered space.
    pub(crate) cursors: Cursors,
    /// Seed of the hash by which clients find the shard of a key.
    pub(crate) partition_seed: u64,
    /// Names this run of the server.
    pub(crate) run_id: u64,
    /// When the server started.
    pub(crate) started: Instant,
    /// The server is to stop.
    pub(crate) stopping: AtomicBool,
    /// Shards that still have connections, while the server stops.
    pub(crate) shards_busy: AtomicUsize,
    /// Connections at this moment.
    pub(crate) connection_count: AtomicUsize,
    /// The memory that connections share.
    pub(crate) memory_budget: Arc<MemoryBudget>,
    next_connection: AtomicU64,
    next_shard: AtomicU16,
    metrics: Vec<Metrics>,
    clients: Mutex<BTreeMap<u64, Client>>,
}

/// A connection, as `CLIENT LIST` describes it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// The other side.
    pub(crate) address: SocketAddr,
    /// This side.
    pub(crate) local_address: SocketAddr,
    /// When it connected.
    pub(crate) since: Instant,
    /// The name that it gave itself.
    pub(crate) name: String,
    /// The name that its library gave itself.
    pub(crate) library_name: String,
    /// The version of its library.
    pub(crate) library_version: String,
    /// The space that its commands are about.
    pub(crate) space: Space,
    /// The version of RESP it speaks; 0: it speaks the native protocol.
    pub(crate) protocol: u8,
}

impl Shared {
    /// Creates the state at the start.
    pub(crate) fn new(
        settings: ServerSettings,
        ordered: Option<OrderedStore>,
        partition_seed: u64,
        run_id: u64,
    ) -> Self {
        let shard_count = usize::from(settings.shards);
        let budget = usize::try_from(settings.connection_memory).unwrap_or(usize::MAX);
        let memory_budget = Arc::new(MemoryBudget::new(budget, settings.connections_max, shard_count));
        Shared {
            settings,
            ordered,
            ordered_watches: OrderedWatches::default(),
            cursors: Cursors::default(),
            partition_seed,
            run_id,
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            shards_busy: AtomicUsize::new(shard_count),
            connection_count: AtomicUsize::new(0),
            memory_budget,
            next_connection: AtomicU64::new(1),
            next_shard: AtomicU16::new(0),
            metrics: (0..shard_count).map(|_| Metrics::default()).collect(),
            clients: Mutex::new(BTreeMap::new()),
        }
    }

    /// Returns the spaces of the server.
    pub(crate) fn spaces(&self) -> Spaces {
        Spaces { has_ordered: self.ordered.is_some(), shard_count: self.settings.shards }
    }

    /// Returns the number of pairs in a space.
    pub(crate) fn pair_count(&self, space: Space) -> u64 {
        match space {
            Space::Hash => self.sum(|metrics| &metrics.pairs),
            Space::Ordered => self.ordered.as_ref().map_or(0, OrderedStore::pair_count),
        }
    }

    /// Returns the number of pairs in a space whose keys have an expiry.
    pub(crate) fn expiring_count(&self, space: Space) -> u64 {
        match space {
            Space::Hash => self.sum(|metrics| &metrics.expiring),
            Space::Ordered => self.ordered.as_ref().map_or(0, OrderedStore::expiring_count),
        }
    }

    /// Returns the counters of a shard.
    pub(crate) fn metrics(&self, shard: usize) -> &Metrics {
        &self.metrics[shard]
    }

    /// Returns the counters of all shards, in their order.
    pub(crate) fn all_metrics(&self) -> impl Iterator<Item = &Metrics> {
        self.metrics.iter()
    }

    /// Returns the sum of a counter over all shards.
    pub(crate) fn sum(&self, counter: fn(&Metrics) -> &Counter) -> u64 {
        self.metrics.iter().map(|metrics| counter(metrics).get()).sum()
    }

    /// Returns how often all shards replied to a command.
    pub(crate) fn command_count(&self, command: usize) -> u64 {
        self.metrics.iter().map(|metrics| metrics.command_count(command)).sum()
    }

    /// Returns the shard for a connection that may belong to any shard: each in rotation.
    pub(crate) fn any_shard(&self) -> u16 {
        self.next_shard.fetch_add(1, Ordering::Relaxed) % self.settings.shards
    }

    /// Registers a connection; returns its number.
    pub(crate) fn enter(&self, address: SocketAddr, local_address: SocketAddr, protocol: u8) -> u64 {
        let number = self.next_connection.fetch_add(1, Ordering::Relaxed);
        let client = Client {
            address,
            local_address,
            since: Instant::now(),
            name: String::new(),
            library_name: String::new(),
            library_version: String::new(),
            space: Space::default(),
            protocol,
        };
        self.clients().insert(number, client);
        self.connection_count.fetch_add(1, Ordering::Relaxed);
        number
    }

    /// Forgets a connection, and ends the leases that it has.
    pub(crate) fn leave(&self, number: u64) {
        if let Some(ordered) = &self.ordered {
            ordered.end_leases_of(number);
        }
        self.clients().remove(&number);
        self.connection_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Copies the first `count` connections whose numbers are at least `first`.
    pub(crate) fn clients_from(&self, first: u64, count: usize) -> Vec<(u64, Client)> {
        let clients = self.clients();
        clients.range(first..).take(count).map(|(&number, client)| (number, client.clone())).collect()
    }

    /// Locks the connections by number: for connecting, closing and `CLIENT`, never for an operation.
    pub(crate) fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
