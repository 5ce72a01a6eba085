//! The state that all shards share: the settings, the counters of each, and the connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use skep_store::ordered::OrderedStore;

use crate::access::Access;
use crate::account::Account;
use crate::activity::Activity;
use crate::adjustable::Adjustable;
use crate::cache_flushes::CacheFlushes;
use crate::command_metrics::COMMAND_COUNT;
use crate::command_metrics::ERROR_PREFIXES;
use crate::counter::Counter;
use crate::cursors::Cursors;
use crate::durability::Log;
use crate::function_loader::FunctionLoader;
use crate::hot_keys::HotKeys;
use crate::memcached_counts::COUNT_COUNT;
use crate::memory_budget::MemoryBudget;
use crate::metrics::Metrics;
use crate::monitors::Monitors;
use crate::orders::Orders;
use crate::settings::ServerSettings;
use crate::slow_log::SlowLog;
use crate::totals::{Baseline, CommandTotals, Totals};
use crate::unix_time::SharedClock;
use crate::vocabulary::{Address, Space, Spaces, Token};
use crate::watches::OrderedWatches;

/// The state that all shards share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The settings of the server, with the ports that were bound.
    pub(crate) settings: ServerSettings,
    /// The ordered store, which all shards work on, unless it is switched off.
    pub(crate) ordered: Option<OrderedStore>,
    /// The flushes of the cache by memcached's clients.
    pub(crate) cache_flushes: Arc<CacheFlushes>,
    /// The log, if the server has a data directory.
    pub(crate) log: Option<Arc<Log>>,
    /// The keys of the ordered space that connections watch.
    pub(crate) ordered_watches: OrderedWatches,
    /// The cursors of scans of the ordered space.
    pub(crate) cursors: Cursors,
    /// Seed of the hash by which clients find the shard of a key.
    pub(crate) partition_seed: u64,
    /// This run of the server.
    pub(crate) run: Run,
    /// The time of day.
    pub(crate) clock: SharedClock,
    /// The server is to stop.
    pub(crate) stopping: AtomicBool,
    /// Orders from one connection to the shards of others.
    pub(crate) orders: Orders,
    /// The settings that change at run time.
    pub(crate) adjustable: Adjustable,
    /// Loads the user functions.
    pub(crate) loader: Arc<FunctionLoader>,
    /// The users, the protected mode, and the certificates.
    pub(crate) access: Access,
    /// The memory that connections share.
    pub(crate) memory_budget: Arc<MemoryBudget>,
    /// Stops the program, if it can be stopped by a command.
    on_shutdown: OnShutdown,
    /// The connections that get the commands of all others.
    pub(crate) monitors: Monitors,
    /// The last slow commands.
    pub(crate) slow_log: SlowLog,
    connected: Connected,
    measured: Measured,
}

/// A run of the server.
#[derive(Debug)]
pub(crate) struct Run {
    /// Its name, a random number.
    pub(crate) id: u64,
    /// When it began.
    pub(crate) started: Instant,
}

/// The connections of all shards.
#[derive(Debug, Default)]
struct Connected {
    /// Connections at this moment, without datagrams of memcached, which have a bound of their own.
    count: AtomicUsize,
    /// Connections of these over shared memory.
    over_shared_memory: AtomicUsize,
    /// Connections so far: the number of the last one.
    last: AtomicU64,
    /// The shard that gets the next one.
    next_shard: AtomicU16,
    clients: Mutex<BTreeMap<u64, Client>>,
    /// Shards that still have connections, while the server stops.
    busy_shards: AtomicUsize,
}

/// What the shards have counted.
#[derive(Debug)]
struct Measured {
    metrics: Vec<Metrics>,
    baseline: Mutex<Baseline>,
    rates: Mutex<Rates>,
    hot_keys: HotKeys,
}

/// The function that stops the program; it is called once.
#[derive(Default)]
struct OnShutdown(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl std::fmt::Debug for OnShutdown {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OnShutdown")
    }
}

/// A connection, as `CLIENT LIST` describes it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// The other side.
    pub(crate) address: Address,
    /// This side.
    pub(crate) local_address: Address,
    /// When it connected.
    pub(crate) since: Instant,
    /// The name that it gave itself.
    pub(crate) name: String,
    /// The name that its library gave itself.
    pub(crate) library_name: String,
    /// The version of its library.
    pub(crate) library_version: String,
    /// The name of its user.
    pub(crate) user: Arc<str>,
    /// The space that its commands are about.
    pub(crate) space: Space,
    /// The version of RESP it speaks; 0: it speaks the native protocol.
    pub(crate) protocol: u8,
    /// Its shard, and its token there; none while it is handed over.
    pub(crate) home: Option<(u16, Token)>,
    /// It ends as soon as its shard knows.
    pub(crate) is_killed: bool,
    /// It counts as a connection.
    is_counted: bool,
    /// What its shard tells about it.
    pub(crate) activity: Arc<Activity>,
}

/// Counters at a moment, and how fast they grew before it.
#[derive(Debug, Default)]
struct Rates {
    at: Option<Instant>,
    counts: [u64; 3],
    rates: [f64; 3],
}

impl Shared {
    /// Creates the state at the start; `clock` has just begun.
    pub(crate) fn new(
        settings: ServerSettings,
        ordered: Option<OrderedStore>,
        log: Option<Arc<Log>>,
        partition_seed: u64,
        run_id: u64,
        clock: SharedClock,
    ) -> Self {
        let shard_count = usize::from(settings.shards);
        let budget = usize::try_from(settings.connection_memory).unwrap_or(usize::MAX);
        let memory_budget = Arc::new(MemoryBudget::new(budget, settings.connections_max, shard_count));
        let adjustable = Adjustable::new(settings.timeout, settings.tcp_keepalive);
        let access = Access::new(settings.password.as_ref(), settings.protected_mode);
        Shared {
            settings,
            loader: Arc::new(FunctionLoader::new(0)),
            access,
            adjustable,
            orders: Orders::new(shard_count),
            ordered,
            cache_flushes: Arc::default(),
            log,
            ordered_watches: OrderedWatches::default(),
            cursors: Cursors::default(),
            partition_seed,
            run: Run { id: run_id, started: Instant::now() },
            clock,
            stopping: AtomicBool::new(false),
            memory_budget,
            on_shutdown: OnShutdown::default(),
            connected: Connected { busy_shards: AtomicUsize::new(shard_count), ..Connected::default() },
            measured: Measured {
                metrics: (0..shard_count).map(|_| Metrics::default()).collect(),
                baseline: Mutex::default(),
                rates: Mutex::default(),
                hot_keys: HotKeys::new(shard_count),
            },
            monitors: Monitors::default(),
            slow_log: SlowLog::default(),
        }
    }

    /// Returns the state with these functions.
    pub(crate) fn with_functions(self, loader: Arc<FunctionLoader>) -> Self {
        Shared { loader, ..self }
    }

    /// Returns the state with this access.
    pub(crate) fn with_access(self, access: Access) -> Self {
        Shared { access, ..self }
    }

    /// Notes that a shard has no more connections. The last one ends the log.
    pub(crate) fn finish_shard(&self) {
        // Release and acquire: the last shard to finish ends them all, and none may miss a reply that was sent before.
        let busy = self.connected.busy_shards.fetch_sub(1, Ordering::AcqRel);
        if let Some(log) = self.log.as_ref().filter(|_| busy == 1) {
            log.end();
        }
    }

    /// Returns true if no shard has connections, after all were told to stop.
    pub(crate) fn have_shards_finished(&self) -> bool {
        self.connected.busy_shards.load(Ordering::Acquire) == 0
    }

    /// Returns the number of connections, without datagrams of memcached.
    pub(crate) fn connection_count(&self) -> usize {
        self.connected.count.load(Ordering::Relaxed)
    }

    /// Sets the function that stops the program.
    pub(crate) fn set_on_shutdown(&self, stop: Box<dyn FnOnce() + Send>) {
        *self.on_shutdown.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
    }

    /// Stops the program. Returns false if that is not possible.
    pub(crate) fn shut_down(&self) -> bool {
        let stop = self.on_shutdown.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_possible = stop.is_some();
        stop.into_iter().for_each(|stop| stop());
        is_possible
    }

    /// Returns the number of connections over shared memory.
    pub(crate) fn shared_memory_connections(&self) -> usize {
        self.connected.over_shared_memory.load(Ordering::Relaxed)
    }

    /// Returns the spaces of the server.
    pub(crate) fn spaces(&self) -> Spaces {
        let has_cache = self.settings.cache_memory > 0;
        Spaces {
            has_ordered: self.ordered.is_some(),
            has_cache,
            shard_count: self.settings.shards,
            functions: self.loader.functions(),
        }
    }

    /// Returns the number of pairs in a space.
    pub(crate) fn pair_count(&self, space: Space) -> u64 {
        match space {
            Space::Hash => self.sum(|metrics| &metrics.store.pairs),
            Space::Ordered => self.ordered.as_ref().map_or(0, OrderedStore::pair_count),
            Space::Cache => self.sum(|metrics| &metrics.cache.items),
        }
    }

    /// Returns the number of pairs in a space whose keys have an expiry.
    pub(crate) fn expiring_count(&self, space: Space) -> u64 {
        match space {
            Space::Hash => self.sum(|metrics| &metrics.store.expiring),
            Space::Ordered => self.ordered.as_ref().map_or(0, OrderedStore::expiring_count),
            // A cache does not count them.
            Space::Cache => 0,
        }
    }

    /// Returns the counters of a shard.
    pub(crate) fn metrics(&self, shard: usize) -> &Metrics {
        &self.measured.metrics[shard]
    }

    /// Returns the counters of all shards, in their order.
    pub(crate) fn all_metrics(&self) -> impl Iterator<Item = &Metrics> {
        self.measured.metrics.iter()
    }

    /// Returns the sum of a counter over all shards.
    pub(crate) fn sum(&self, counter: fn(&Metrics) -> &Counter) -> u64 {
        self.measured.metrics.iter().map(|metrics| counter(metrics).get()).sum()
    }

    /// Returns the keys that are counted while they are watched.
    #[inline]
    pub(crate) fn hot_keys(&self) -> &HotKeys {
        &self.measured.hot_keys
    }

    /// Returns the sums of counters since `CONFIG RESETSTAT`.
    pub(crate) fn totals(&self) -> Totals {
        self.baseline().totals(self.measured.metrics.iter())
    }

    /// Returns the number of commands since `CONFIG RESETSTAT`.
    pub(crate) fn call_total(&self) -> u64 {
        self.baseline().calls(self.measured.metrics.iter())
    }

    /// Returns the sums of a command since `CONFIG RESETSTAT`.
    pub(crate) fn command_totals(&self, command: usize) -> CommandTotals {
        self.baseline().command(command, self.measured.metrics.iter())
    }

    /// Returns the numbers of errors since `CONFIG RESETSTAT`, in the order of their prefixes.
    pub(crate) fn error_totals(&self) -> [u64; ERROR_PREFIXES.len()] {
        self.baseline().errors(&self.measured.metrics.iter())
    }

    /// Returns the counts of memcached's commands since the last reset.
    pub(crate) fn memcached_counts(&self) -> [u64; COUNT_COUNT] {
        self.baseline().memcached(self.measured.metrics.iter())
    }

    /// Returns how fast these counters grow, each in units a second, since the last call that was at least `time_min`
    /// ago. A call before that returns the last result.
    pub(crate) fn rates(&self, counts: [u64; 3], time_min: Duration) -> [f64; 3] {
        let mut last = self.measured.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let spent = last.at.map_or_else(|| self.run.started.elapsed(), |at| at.elapsed());
        if spent >= time_min {
            last.rates = std::array::from_fn(|index| {
                counts[index].saturating_sub(last.counts[index]) as f64 / spent.as_secs_f64()
            });
            last.counts = counts;
            last.at = Some(Instant::now());
        }
        last.rates
    }

    /// Lets the sums begin at 0. Spends the work from the account.
    pub(crate) fn reset_totals(&self, account: &mut Account) {
        account.spend(COMMAND_COUNT * self.command_totals_work());
        self.reset_memcached_totals(account);
        let baseline = Baseline::of(self.measured.metrics.iter());
        *self.baseline() = baseline;
    }

    /// Lets the sums begin at 0 that the statistics of memcached's protocol show. Those of the commands of RESP go on: there
    /// are thousands. Spends the work from the account.
    pub(crate) fn reset_memcached_totals(&self, account: &mut Account) {
        account.spend(size_of::<Metrics>() * self.measured.metrics.len());
        self.baseline().reset_memcached(self.measured.metrics.iter());
    }

    /// Returns the work of adding the counters of a command in all shards, in bytes touched.
    pub(crate) fn command_totals_work(&self) -> usize {
        size_of::<CommandTotals>() * (self.measured.metrics.len() + 1)
    }

    fn baseline(&self) -> MutexGuard<'_, Baseline> {
        self.measured.baseline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the shard for a connection that may belong to any shard: each in rotation.
    pub(crate) fn any_shard(&self) -> u16 {
        self.connected.next_shard.fetch_add(1, Ordering::Relaxed) % self.settings.shards
    }

    /// Registers a connection; returns its number.
    pub(crate) fn enter(&self, address: impl Into<Address>, local_address: impl Into<Address>, protocol: u8) -> u64 {
        self.connected.count.fetch_add(1, Ordering::Relaxed);
        self.register(address.into(), local_address.into(), protocol, true)
    }

    /// Registers a datagram of memcached; returns its number. It takes no place of a connection.
    pub(crate) fn enter_datagram(&self, address: SocketAddr, local_address: SocketAddr) -> u64 {
        self.register(address.into(), local_address.into(), 0, false)
    }

    fn register(&self, address: Address, local_address: Address, protocol: u8, is_counted: bool) -> u64 {
        if let Address::SharedMemory(_) = address {
            self.connected.over_shared_memory.fetch_add(1, Ordering::Relaxed);
        }
        let number = self.connected.last.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Client {
            address,
            local_address,
            since: Instant::now(),
            name: String::new(),
            library_name: String::new(),
            library_version: String::new(),
            user: self.access.default_name(),
            space: Space::default(),
            protocol,
            home: None,
            is_killed: false,
            is_counted,
            activity: Arc::default(),
        };
        client.activity.at.set(self.run.started.elapsed().as_millis() as u64);
        self.clients().insert(number, client);
        number
    }

    /// Records that a shard serves a connection. Returns its activity, or `None` if it is to end at once.
    pub(crate) fn settle(&self, number: u64, shard: u16, token: Token) -> Option<Arc<Activity>> {
        let mut clients = self.clients();
        let client = clients.get_mut(&number)?;
        client.home = Some((shard, token));
        (!client.is_killed).then(|| client.activity.clone())
    }

    /// Records that a connection is handed over to another shard.
    pub(crate) fn unsettle(&self, number: u64) {
        if let Some(client) = self.clients().get_mut(&number) {
            client.home = None;
        }
    }

    /// Ends a connection: its shard closes it before it executes another request. Returns false if it has ended or was
    /// killed before. The caller then wakes the shards.
    pub(crate) fn kill(&self, client: &mut Client) -> bool {
        if client.is_killed {
            return false;
        }
        client.is_killed = true;
        if let Some((shard, token)) = client.home {
            self.orders.kill(shard, token);
        }
        true
    }

    /// Ends the connections of users, but those that `spares` spares, by their numbers. The caller then wakes the shards.
    pub(crate) fn end_connections_of(&self, users: &[Arc<str>], mut spares: impl FnMut(u64) -> bool) {
        for (number, client) in self.clients().iter_mut() {
            if users.contains(&client.user) && !spares(*number) {
                self.kill(client);
            }
        }
    }

    /// Forgets a connection, and ends the leases that it has. Its cursors stay, as those of a connection that has ended.
    pub(crate) fn leave(&self, number: u64) {
        if let Some(ordered) = &self.ordered {
            ordered.end_leases_of(number);
            self.cursors.end_of_connection(number);
        }
        let client = self.clients().remove(&number);
        if client.as_ref().is_some_and(|client| matches!(client.address, Address::SharedMemory(_))) {
            self.connected.over_shared_memory.fetch_sub(1, Ordering::Relaxed);
        }
        if client.as_ref().is_some_and(|client| client.is_counted) {
            self.connected.count.fetch_sub(1, Ordering::Relaxed);
        }
        if client.is_some_and(|client| client.activity.monitors.get() == 1) {
            self.monitors.remove(number, &self.memory_budget);
            self.orders.change();
        }
    }

    /// Copies the first `count` connections whose numbers are at least `first`.
    pub(crate) fn clients_from(&self, first: u64, count: usize) -> Vec<(u64, Client)> {
        let clients = self.clients();
        clients.range(first..).take(count).map(|(&number, client)| (number, client.clone())).collect()
    }

    /// Locks the connections by number: for connecting, closing and `CLIENT`, never for an operation.
    pub(crate) fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, Client>> {
        self.connected.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
