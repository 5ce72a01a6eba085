//! The reasons why a server does not start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use skep_core::operation::VALUE_SIZE_MAX;
use skep_store::memory::RegionError;

use crate::access::UsersError;
use crate::certificates::TlsError;
use crate::limits::{
    DELAY_BOUND_MAX, DELAY_BOUND_MIN, LEASE_TIME_MAX, LEASE_TIME_MIN, ORDERED_SHARDS_MAX, SHARDS_MAX,
    connection_memory_min,
};
use crate::recovery_error::RecoveryError;

/// The number after the largest port.
pub(crate) const PORTS_END: u32 = u16::MAX as u32 + 1;

/// The reason why a server did not start. Each message says what to change.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Too few or too many shards.
    #[error("{0} shards: choose a number from 1 to {SHARDS_MAX}")]
    Shards(u16),
    /// More shards than an ordered store serves.
    #[error(
        "{0} shards: an ordered space serves up to {ORDERED_SHARDS_MAX}; choose fewer shards, or switch the space off by an \
         ordered memory of 0"
    )]
    OrderedShards(u16),
    /// A bound of the delay that cannot be kept, or that is none.
    #[error("a delay of at most {0:?}: choose one from {DELAY_BOUND_MIN:?} to {DELAY_BOUND_MAX:?}")]
    Delay(Duration),
    /// A lease that is over before it can be used, or that is kept without end.
    #[error("leases that are kept for {0:?}: choose a time from {LEASE_TIME_MIN:?} to {LEASE_TIME_MAX:?}")]
    Lease(Duration),
    /// Too little memory for as many connections.
    #[error(
        "connection memory of {connection_memory} bytes is too little for {connections_max} connections: choose at least \
         {} bytes, or fewer connections",
        connection_memory_min(*connections_max)
    )]
    ConnectionMemory {
        /// Bytes for all connections together.
        connection_memory: u64,
        /// Most connections at a time.
        connections_max: usize,
    },
    /// A module of functions that cannot be loaded.
    #[error("{origin}: {reason}")]
    Functions {
        /// Where its source is from.
        origin: String,
        /// What is wrong.
        reason: String,
    },
    /// Certificates that cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A file of users that cannot be used.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// No connections at all.
    #[error("0 connections: choose at least 1")]
    Connections,
    /// Clients of memcached, and no cache for them.
    #[error("a memcached port needs a cache: choose a cache memory, such as --cache-memory 1GiB, or no memcached port")]
    MemcachedWithoutCache,
    /// A size of the cache's pairs, and no cache for them.
    #[error("an average size of the cache's pairs needs a cache: choose a cache memory, such as --cache-memory 1GiB")]
    CacheSizeWithoutCache,
    /// A UDP port for clients of memcached on other machines.
    #[error(
        "UDP for clients of memcached at {0}: it serves only this machine, because the address of a datagram can be forged: \
         choose a loopback address, such as 127.0.0.1:{port}", port = .0.port()
    )]
    MemcachedUdp(SocketAddr),
    /// Values of memcached's clients that the cache does not store.
    #[error("values of up to {0} bytes from memcached's clients: choose 1 to {VALUE_SIZE_MAX}")]
    MemcachedValue(usize),
    /// A setting of the store out of its limits.
    #[error("{0}")]
    Store(String),
    /// More memory than there is.
    #[error(
        "memory of {memory} bytes, ordered memory of {ordered_memory} bytes, cache memory of {cache_memory} bytes and \
         {connection_memory} bytes for connections are more than 90% of the {available} bytes available: choose at most {} bytes together",
        available / 10 * 9
    )]
    MemoryAvailable {
        /// Bytes asked for, for the hash space.
        memory: u64,
        /// Bytes asked for, for the ordered space.
        ordered_memory: u64,
        /// Bytes asked for, for the cache space.
        cache_memory: u64,
        /// Bytes for connections: those asked for, and those that the shards need to serve them.
        connection_memory: u64,
        /// Bytes that the machine and the control groups have to spare.
        available: u64,
    },
    /// Another program listens on an address.
    #[error("{front_end} address {address} is in use: stop the program that listens there, or choose another port")]
    AddressInUse {
        /// Which of the addresses.
        front_end: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// Another program has the UDP port of a shard.
    #[error(
        "{front_end} address {address} (of shard {shard}) is in use: stop the program that uses it, or choose another first port"
    )]
    ShardPortInUse {
        /// Which of the addresses.
        front_end: &'static str,
        /// The address of the shard.
        address: SocketAddr,
        /// The number of the shard.
        shard: u16,
    },
    /// The ports of the shards, one for each, do not end before the largest port.
    #[error(
        "{front_end} address {address}: {shards} shards need {shards} ports from this one on: choose a first port of at most {}",
        PORTS_END - u32::from(*shards)
    )]
    ShardPorts {
        /// Which of the addresses.
        front_end: &'static str,
        /// The address of the first shard.
        address: SocketAddr,
        /// Shards asked for.
        shards: u16,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {front_end} address {address}: {source}: choose another address")]
    Listen {
        /// Which of the addresses.
        front_end: &'static str,
        /// The address.
        address: SocketAddr,
        /// The reason that the system gives.
        source: std::io::Error,
    },
    /// Another process gives out shared memory at a path.
    #[error(
        "the path {} for shared memory is in use: stop the program that listens there, or choose another path",
        .0.display()
    )]
    SharedMemoryInUse(PathBuf),
    /// The path for shared memory is a file, but no socket.
    #[error("a file that is no socket exists at {}: remove it, or choose another path", .0.display())]
    SharedMemoryFile(PathBuf),
    /// There is an address for RDMA, and the feature `rdma` is missing.
    #[error("this program was built without RDMA: choose another transport, or build it with the feature `rdma`")]
    WithoutRdma,
    /// No RDMA device can be used at an address.
    #[error("cannot use RDMA at {address}: {source}: choose the address of an RDMA device")]
    Rdma {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// No unix socket can be created at a path.
    #[error("cannot listen at {} for shared memory: {source}: choose another path", .path.display())]
    SharedMemory {
        /// The path.
        path: PathBuf,
        /// The reason that the system gives.
        source: std::io::Error,
    },
    /// Shards are to be pinned, and there are not enough cores for it.
    #[error(
        "{shards} shards cannot be pinned to a core each, because the process may use {cores}: choose fewer shards, or do \
         not pin threads"
    )]
    Cores {
        /// Shards asked for.
        shards: u16,
        /// Cores of the process's affinity.
        cores: usize,
    },
    /// Shards are to be pinned, and the system does not say to which cores they may be.
    #[error("the system does not say which cores may be used: {0}: choose not to pin threads")]
    Affinity(#[source] std::io::Error),
    /// The memory of a shard's hash store cannot be reserved.
    #[error("{}", with_advice(.0, "--memory", " or another number of --shards"))]
    HashMemory(#[source] RegionError),
    /// The memory of the ordered store cannot be reserved.
    #[error("{}", with_advice(.0, "--ordered-memory", ""))]
    OrderedMemory(#[source] RegionError),
    /// The memory of a shard's cache cannot be reserved.
    #[error("{}", with_advice(.0, "--cache-memory", " or another number of --shards"))]
    CacheMemory(#[source] RegionError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDirectory(RecoveryError),
    /// There is nowhere to keep anything.
    #[error("this level of durability needs a data directory: choose one, or the level memory")]
    WithoutDataDirectory,
    /// The system refuses a socket or an event queue.
    #[error("the system refuses {what}: {source}: raise the limit of open files (ulimit -n), or choose fewer shards")]
    Descriptor {
        /// Its purpose.
        what: String,
        /// The reason that the system gives.
        source: std::io::Error,
    },
    /// The system refuses a thread.
    #[error(
        "the system refuses the thread {name}: {source}: raise the limit of processes (ulimit -u, the pids limit of the \
         container), or choose fewer shards"
    )]
    Thread {
        /// The name of the thread.
        name: String,
        /// The reason that the system gives.
        source: std::io::Error,
    },
}

/// Returns the error, and which option to change in which direction.
fn with_advice(error: &RegionError, option: &str, alternative: &str) -> String {
    let direction = match error {
        RegionError::TooSmall { .. } => "larger",
        RegionError::TooLarge { .. } | RegionError::Refused { .. } => "smaller",
    };
    format!("{error}: choose a {direction} {option}{alternative}")
}
