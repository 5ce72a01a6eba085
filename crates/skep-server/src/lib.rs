//! Skep's server: the keys are spread over shards, each of which is a thread with a store of its own.
//!
//! ```text
//!   native port ─┐                     ┌─ shard 0: connections, processor, memory
//!                ├─ shard 0 listens ─▶ ├─ shard 1: connections, processor, memory     rings between every two
//!   RESP port ───┤                     └─ …
//!   memcached ───┘
//! ```
//!
//! A connection belongs to one shard. That shard executes operations on its own keys, and forwards the others to their
//! owners by bounded rings. All shards share the ordered store. A command on several keys of one other shard visits it
//! (`shard/visits.rs`). For a command on keys of several shards, the owners lend their stores to one shard
//! (`shard/hold.rs`). Nothing else is shared while requests are served.
//!
//! Promises: operations of one connection on one key are executed in order, and replies leave in the
//! order of the requests; operations on one key are linearizable. RESP commands of several keys, and transactions, are
//! isolated (`transaction/`). A batch of the native protocol is not a transaction.

mod access;
mod account;
mod activity;
mod adjustable;
mod batch;
mod buffer;
mod cache_flushes;
mod certificates;
mod command_metrics;
mod connection;
mod connections;
mod cores;
mod counter;
mod cursors;
mod delays;
mod dispatch;
mod durability;
mod echo;
mod encoding;
mod endpoint;
mod exchange;
mod front_end;
mod function_loader;
mod glob;
mod hot_keys;
mod keeper;
mod keyspace;
mod limits;
mod listen;
mod memcached_batch;
mod memcached_counts;
mod memcached_statistics;
mod memory_available;
mod memory_budget;
mod metrics;
mod monitors;
mod native_batch;
mod observation;
mod orders;
mod parsed_batch;
mod pulse;
mod recovery_error;
mod reply_queue;
mod resp_batch;
mod resp_command;
mod settings;
mod shard;
mod shared;
#[cfg(test)]
mod simulation;
mod slow_log;
mod sockets;
mod spaces;
mod start;
mod start_error;
mod threads;
mod totals;
mod transaction;
mod transport;
mod unix_time;
mod vocabulary;
mod waker;
mod watches;
mod window;

pub use crate::access::UsersError;
pub use crate::certificates::{TlsError, TlsSettings};
pub use crate::limits::FREED_BUFFERS_KEPT;
pub use crate::recovery_error::RecoveryError;
pub use crate::start_error::StartError;
pub use crate::vocabulary::Durability;
pub use durability::embedding;
pub use echo::EchoSettings;
pub use hot_keys::HotKey;
pub use observation::{
    CommandFigures, ConnectionFigures, DelayFigures, EvictionFigures, HashFigures, LogFigures, Observation, Observer,
    OperationFigures, ShardFigures, SlowFigures, SpaceFigures,
};
pub use pulse::Pulse;
pub use settings::{ModuleSource, ServerSettings};
pub use skep_wire::native::{PASSWORD_SIZE_MAX, Password};

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use skep_core::function::count_calls_of_shard;
use skep_log::LogSettings;
use skep_store::cache::Cache;
use skep_store::hash::Settings;
use skep_store::ordered::OrderedStore;
use skep_store::processor::Processor;
use skep_wire::partition::Partition;

use crate::waker::Waker;
use access::{Access, DEFAULT};
use certificates::Certificates;
use cores::pin_to;
use durability::loading::{Progress, Told};
use durability::{Log, Patience, loading, recovery};
use exchange::connect_shards;
use function_loader::FunctionLoader;
use listen::Listeners;
use resp_command::{read_users, read_users_again};
use shard::{Handover, Parts, Shard};
use shared::Shared;
use sockets::Sockets;
use start::Steps;
use threads::Threads;
use unix_time::{SharedClock, read_clocks};

/// A running server. It stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    wakers: Vec<Arc<Waker>>,
    /// Dropped last, because the drop waits until the threads have ended.
    _threads: Threads,
}

impl Server {
    /// Binds the ports, reserves the memory and starts the shards; when it returns, clients are served. If the system
    /// refuses a step, all earlier ones are undone.
    pub fn start(settings: &ServerSettings) -> Result<Server, StartError> {
        Self::start_in_steps(settings, Steps::default())
    }

    /// Starts in two parts: first the steps that the system may refuse, threads included, then those that cannot fail.
    fn start_in_steps(settings: &ServerSettings, mut steps: Steps) -> Result<Server, StartError> {
        settings.check()?;
        let mut settings = settings.clone();
        let connections_wanted = settings.connections_max;
        settings.connections_max = threads::connections_granted(connections_wanted);
        let certificates = settings.tls.as_ref().map(Certificates::read).transpose()?;
        let access = Access::new(settings.password.as_ref(), settings.protected_mode).with_certificates(certificates);
        let access = with_users(access, settings.users.as_deref())?;
        let sockets = Sockets::bind(&mut settings, &mut steps)?;
        let cores = cores_for_shards(&settings, &mut steps)?;
        let loader = Arc::new(FunctionLoader::new(usize::from(settings.shards)));
        let (stores, ordered, recovered) =
            fill_stores(&settings, &sockets.listeners, cores.as_deref(), &loader, &mut steps)?;
        for ModuleSource { origin, source } in &settings.functions {
            let loaded = loader.load(source, true);
            loaded.map_err(|reason| StartError::Functions { origin: origin.clone(), reason })?;
        }
        let rings = connect_shards(stores.len(), &mut steps)?;
        let wakers: Vec<Arc<Waker>> = rings.iter().map(|(waker, _)| waker.clone()).collect();
        let (handovers, incoming) = Handover::all(wakers.iter().cloned());
        let shared = share(settings, ordered, recovered.as_ref(), loader).with_access(access);
        let shared = Arc::new(shared);
        let mut threads = Threads::default();
        if let Some((recovered, log)) = recovered.zip(shared.log.clone()) {
            log.set_wakers(wakers.clone());
            keeper::spawn(&mut threads, log, shared.clone(), recovered, &mut steps)?;
        }
        // All shards, and this thread, continue when the memory of all is prepared.
        let prepared = Arc::new(Barrier::new(stores.len() + 1));
        let sockets = sockets.divide(stores.len(), &mut steps)?;
        for (index, (((stores, (waker, peers)), incoming), sockets)) in
            (0_u16..).zip(stores.into_iter().zip(rings).zip(incoming).zip(sockets))
        {
            let parts = Parts {
                index,
                shared: shared.clone(),
                partition: Partition::new(shared.partition_seed, shared.settings.shards),
                listeners: sockets.listeners,
                datagrams: sockets.datagrams,
                memcached_socket: sockets.memcached,
                #[cfg(feature = "rdma")]
                rdma: sockets.rdma,
                waker,
                peers,
                incoming,
                handovers: handovers.clone(),
                wakers: wakers.clone(),
            };
            let core = cores.as_ref().map(|cores| cores[usize::from(index)]);
            spawn_shard(&mut threads, parts, stores, prepared.clone(), core, &mut steps)?;
        }
        threads.begin();
        prepared.wait();
        let connections_max = shared.settings.connections_max;
        if connections_max < connections_wanted {
            tracing::warn!("the limit of open files leaves room for {connections_max} connections");
        }
        Ok(Server { shared, wakers, _threads: threads })
    }

    /// Returns the address of the native port.
    pub fn native_address(&self) -> SocketAddr {
        self.shared.settings.native
    }

    /// Returns the address of the RESP port, if there is one.
    pub fn resp_address(&self) -> Option<SocketAddr> {
        self.shared.settings.resp
    }

    /// Returns the path of the socket for shared memory, if there is one.
    pub fn shared_memory_path(&self) -> Option<&Path> {
        self.shared.settings.shared_memory.as_deref()
    }

    /// Returns the first of the UDP addresses, if there are any; each further shard has the next port.
    pub fn udp_address(&self) -> Option<SocketAddr> {
        self.shared.settings.udp
    }

    /// Returns the first of the addresses for RDMA, if there are any; each further shard has the next port.
    pub fn rdma_address(&self) -> Option<SocketAddr> {
        self.shared.settings.rdma
    }

    /// Returns the address of the memcached port, if there is one.
    pub fn memcached_address(&self) -> Option<SocketAddr> {
        self.shared.settings.memcached
    }

    /// Returns the address of the UDP port for clients of memcached, if there is one.
    pub fn memcached_udp_address(&self) -> Option<SocketAddr> {
        self.shared.settings.memcached_udp
    }

    /// Returns an observer, which reads the state of the server at any time.
    pub fn observer(&self) -> Observer {
        Observer::new(self.shared.clone())
    }

    /// Returns the pulse of the shards, for a watchdog.
    pub fn pulse(&self) -> Pulse {
        Pulse::new(self.shared.clone(), self.wakers.clone())
    }

    /// Reads the certificates again. New connections begin with them; the others stay. If a file is wrong, the certificates
    /// before stay in force. Returns false if the server does not speak TLS.
    pub fn read_certificates(&self) -> Result<bool, TlsError> {
        let Some(certificates) = &self.shared.access.certificates else { return Ok(false) };
        certificates.read_again().map(|()| true)
    }

    /// Returns true if a connection must log in: the user `default` has a password, or is off.
    pub fn needs_password(&self) -> bool {
        self.shared.access.needs_password()
    }

    /// Reads the file of users again. Connections stay, but those of users that it lacks. If it is wrong, the users before
    /// stay in force. Returns false if the server has no such file.
    pub fn read_users(&self) -> Result<bool, UsersError> {
        let access = &self.shared.access;
        let Some(path) = &access.file else { return Ok(false) };
        let deleted = access.replace_users(read_users_again(path, &access.users())?);
        self.shared.end_connections_of(&deleted, |_| false);
        self.wakers.iter().for_each(|waker| waker.wake());
        Ok(true)
    }

    /// Lets the command `SHUTDOWN` call this function once, from a thread of the server. The function must return soon,
    /// and let the owner of the server stop it. Without one, the command is an error.
    pub fn on_shutdown(&self, stop: impl FnOnce() + Send + 'static) {
        self.shared.set_on_shutdown(Box::new(stop));
    }

    /// Accepts and reads no more, executes the requests that have arrived, sends the replies, and ends. Waits two
    /// seconds for peers that do not take their replies.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        for waker in &self.wakers {
            waker.wake();
        }
        self.shared.loader.stop();
    }
}

/// Puts the users of a file in force, if there is one.
fn with_users(mut access: Access, path: Option<&Path>) -> Result<Access, UsersError> {
    if let Some(path) = path {
        let users = read_users(path)?;
        if access.needs_password() && users.contains_key(DEFAULT) {
            tracing::warn!(
                "{} has rules for the user 'default', so the password that the server was started with is not used",
                path.display()
            );
        }
        access.replace_users(users);
        access.file = Some(path.to_owned());
    }
    Ok(access)
}

/// The hash store of a shard, and its part of the cache.
struct ShardStores {
    processor: Processor,
    cache: Option<Cache>,
}

/// The stores of all shards, the ordered store, and what was recovered into them.
type FilledStores = (Vec<ShardStores>, Option<OrderedStore>, Option<recovery::Recovered>);

/// Reserves the memory of all stores, and fills them from the data directory, if there is one.
fn fill_stores(
    settings: &ServerSettings,
    listeners: &Listeners,
    cores: Option<&[usize]>,
    loader: &FunctionLoader,
    steps: &mut Steps,
) -> Result<FilledStores, StartError> {
    let opened = settings.data_dir.as_deref().map(recovery::Opened::new).transpose();
    let opened = opened.map_err(StartError::DataDirectory)?;
    let seed_of = |shard| opened.as_ref().and_then(|opened| opened.secret_seed(shard, settings.shards.into()));
    let (mut stores, tables) = reserve_stores(settings, seed_of, steps)?;
    let mut ordered = match settings.ordered(random_number()) {
        Some(settings) => Some(steps.reserve(|| OrderedStore::new(&settings), StartError::OrderedMemory)?),
        None => None,
    };
    let Some((path, opened)) = settings.data_dir.as_deref().zip(opened) else {
        return Ok((stores, ordered, None));
    };
    let progress = Progress::of(path);
    let load = || {
        if settings.prefault {
            prefault_all(&mut stores, ordered.as_mut(), cores)?;
        }
        recover_stores(settings, opened, &mut stores, &tables, ordered.as_mut(), loader, &progress)
    };
    let told = match (&settings.tls, settings.password.is_some() || settings.users.is_some()) {
        (Some(_), _) => Told::Nothing,
        (None, true) => Told::Loading,
        (None, false) => Told::Progress,
    };
    let recovered = loading::answer_during(listeners, told, &progress, steps, load)??;
    Ok((stores, ordered, Some(recovered)))
}

/// Returns what the shards share.
fn share(
    settings: ServerSettings,
    ordered: Option<OrderedStore>,
    recovered: Option<&recovery::Recovered>,
    loader: Arc<FunctionLoader>,
) -> Shared {
    let partition_seed = recovered.map_or_else(random_number, |recovered| recovered.manifest.partition_seed);
    let log = recovered.map(|recovered| {
        let log = Log::new(settings.durability, recovered.reached, Patience::of(settings.delay_max));
        Arc::new(log.with_recovery(recovered))
    });
    let clock = SharedClock::new(read_clocks(), recovered.map_or(0, |recovered| recovered.last_time));
    Shared::new(settings, ordered, log, partition_seed, random_number(), clock).with_functions(loader)
}

/// Spawns the threads of a shard.
fn spawn_shard(
    threads: &mut Threads,
    parts: Parts,
    stores: ShardStores,
    prepared: Arc<Barrier>,
    core: Option<usize>,
    steps: &mut Steps,
) -> Result<(), StartError> {
    let ShardStores { mut processor, cache } = stores;
    let (index, shared) = (parts.index, parts.shared.clone());
    let daemon = processor.merge_daemon();
    spawn(threads, &format!("skep-merge-{index}"), None, || daemon.run(), steps)?;
    let shard = Shard::new(parts, &processor.statistics(), Instant::now(), steps)?;
    let work = move || {
        // Before a data directory was read, all memory was touched.
        if shared.settings.prefault && shared.log.is_none() {
            let ordered = shared.ordered.as_ref().filter(|_| index == 0);
            prefault(&processor, cache.as_ref(), ordered);
        }
        prepared.wait();
        count_calls_of_shard(usize::from(index));
        shard.run(processor, cache);
    };
    spawn(threads, &format!("skep-shard-{index}"), core, work, steps)
}

/// Reserves the memory of the stores that are divided among the shards. `seed_of` returns the seed that a shard had before.
/// Returns the settings of the hash stores too.
fn reserve_stores(
    settings: &ServerSettings,
    seed_of: impl Fn(usize) -> Option<u64>,
    steps: &mut Steps,
) -> Result<(Vec<ShardStores>, Vec<Settings>), StartError> {
    let (mut stores, mut tables) = (Vec::new(), Vec::new());
    // With another number of shards before, one of them may get the keys of all.
    let spare = if settings.data_dir.is_some() { settings.memory } else { 0 };
    for shard in 0..usize::from(settings.shards) {
        let table = settings.store(seed_of(shard).unwrap_or_else(random_number));
        let processor = steps.reserve(|| Processor::with_spare(&table, spare), StartError::HashMemory)?;
        tables.push(table);
        let cache = match settings.cache(random_number()) {
            Some(settings) => Some(steps.reserve(|| Cache::new(&settings), StartError::CacheMemory)?),
            None => None,
        };
        stores.push(ShardStores { processor, cache });
    }
    Ok((stores, tables))
}

/// Fills the stores from the data directory.
fn recover_stores(
    settings: &ServerSettings,
    opened: recovery::Opened,
    stores: &mut [ShardStores],
    tables: &[Settings],
    ordered: Option<&mut OrderedStore>,
    loader: &FunctionLoader,
    progress: &Progress,
) -> Result<recovery::Recovered, StartError> {
    let log = LogSettings { segment_size: recovery::segment_size(settings), ..LogSettings::default() };
    let processors = stores.iter_mut().map(|stores| &mut stores.processor).collect();
    let new = recovery::NewStores { processors, tables, ordered, loader };
    recovery::recover(opened, settings, log, new, random_number, progress).map_err(StartError::DataDirectory)
}

/// Spawns a thread, on a core if one is given. It begins when all threads are there.
fn spawn(
    threads: &mut Threads,
    name: &str,
    core: Option<usize>,
    work: impl FnOnce() + Send + 'static,
    steps: &mut Steps,
) -> Result<(), StartError> {
    let refused = |source| StartError::Thread { name: name.to_owned(), source };
    steps.take(|| threads.spawn(name.to_owned(), core, work), refused)
}

/// Returns a core for each shard, if they are to be pinned.
fn cores_for_shards(settings: &ServerSettings, steps: &mut Steps) -> Result<Option<Vec<usize>>, StartError> {
    if !settings.pin_threads {
        return Ok(None);
    }
    let allowed = steps.take(cores::allowed, StartError::Affinity)?;
    let refusal = StartError::Cores { shards: settings.shards, cores: allowed.len() };
    cores::choose(allowed, usize::from(settings.shards)).map(Some).ok_or(refusal)
}

/// Touches the memory of a shard, and that of the ordered store with the first one. The threads of the shards do that,
/// side by side: the one that started the server remains free to take signals.
fn prefault(processor: &Processor, cache: Option<&Cache>, ordered: Option<&OrderedStore>) {
    processor.memory().prefault();
    if let Some(cache) = cache {
        cache.memory().prefault();
    }
    if let Some(ordered) = ordered {
        ordered.prefault();
    }
}

/// Touches the memory of all shards, each on its core: a machine may have memory that is nearer to some of them. Other
/// threads fill it from a data directory.
fn prefault_all(
    stores: &mut [ShardStores],
    mut ordered: Option<&mut OrderedStore>,
    cores: Option<&[usize]>,
) -> Result<(), StartError> {
    thread::scope(|scope| {
        for (index, ShardStores { processor, cache }) in stores.iter_mut().enumerate() {
            let (ordered, core) = (ordered.take(), cores.map(|cores| cores[index]));
            let touch = move || {
                if let Some(core) = core {
                    pin_to(core);
                }
                prefault(processor, cache.as_ref(), ordered.as_deref());
            };
            let name = format!("skep-memory-{index}");
            let refusal = |source| StartError::Thread { name: name.clone(), source };
            thread::Builder::new().name(name.clone()).spawn_scoped(scope, touch).map_err(refusal)?;
        }
        Ok(())
    })
}

/// Returns the memory of this machine in bytes, or the limit of the tightest control group that this process is in. Returns
/// `None` where the system does not say.
pub fn memory_total() -> Option<u64> {
    memory_available::memory_total(Path::new("/"))
}

/// Returns a number that cannot be guessed: the hash of nothing under keys from the system's random source.
pub fn random_number() -> u64 {
    RandomState::new().hash_one(())
}
