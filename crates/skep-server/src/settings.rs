//! The settings of a server, and the reasons why it may not start.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use skep_core::operation::VALUE_SIZE_MAX;
use skep_store::cache::Settings as CacheSettings;
use skep_store::hash::Settings;
use skep_store::ordered::{LEASE_TIME, OrderedSettings};
use skep_transport::shared;
use skep_wire::native::Password;

use crate::certificates::TlsSettings;
use crate::echo::EchoSettings;
use crate::limits::{
    DATAGRAM_MEMORY, DELAY_BOUND_MAX, DELAY_BOUND_MIN, FREED_BUFFERS_KEPT, LEASE_TIME_MAX, LEASE_TIME_MIN,
    MEMCACHED_DATAGRAM_MEMORY, ORDERED_SHARDS_MAX, RDMA_MEMORY, SHARD_MEMORY, SHARDS_MAX,
    SHARED_MEMORY_CONNECTIONS_MAX, TLS_SESSION_SIZE, connection_memory_min,
};
use crate::memory_available::memory_available;
use crate::start_error::{PORTS_END, StartError};
use crate::vocabulary::Durability;

/// The size of a pair, in bytes, for which memory is divided if there is to be a fixed division and none is given.
const KV_SIZE: usize = 64;

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Where native clients connect. Port 0: any free port.
    pub native: SocketAddr,
    /// Where RESP clients connect, if they may. Port 0: any free port.
    pub resp: Option<SocketAddr>,
    /// The path of a unix socket over which native clients of the same user get shared memory; none: there is no shared
    /// memory.
    pub shared_memory: Option<PathBuf>,
    /// Where native clients send UDP packets, if they may: each shard has a port, and this is the first one. Port 0: any
    /// free ports.
    pub udp: Option<SocketAddr>,
    /// Where native clients over RDMA connect, if they may: an address of an RDMA device. Each shard has a TCP port, and
    /// this is the first one. Port 0: any free ports. It needs the feature `rdma`.
    pub rdma: Option<SocketAddr>,
    /// Where clients of memcached connect, if they may. Port 0: any free port. It needs a cache.
    pub memcached: Option<SocketAddr>,
    /// The UDP address for clients of memcached on this machine, if there is one: a loopback address. It needs a cache.
    pub memcached_udp: Option<SocketAddr>,
    /// Bytes of the largest value that clients of memcached may store, up to a mebibyte.
    pub memcached_value_max: usize,
    /// The certificates, if the native, RESP and memcached ports over TCP are to speak TLS only.
    pub tls: Option<TlsSettings>,
    /// Memory of the hash space, of all shards together, in bytes.
    pub memory: u64,
    /// Memory of the ordered space, which all shards share, in bytes; 0: there is none.
    pub ordered_memory: u64,
    /// Memory of the cache space, of all shards together, in bytes; 0: there is none.
    pub cache_memory: u64,
    /// Expected size of a key and its value in the cache, in bytes, from which the division of its memory follows. `None`: 64.
    pub cache_kv_size: Option<usize>,
    /// The time for which the state of a scan is kept when no page of it is asked for, between a millisecond and an
    /// hour.
    pub lease_time: Duration,
    /// Number of shards, at least 1. Each is a thread with a part of the keys and of the memory.
    pub shards: u16,
    /// Expected size of a key and its value, in bytes, from which the shape of the index follows once. `None`: the index of the
    /// hash space grows with the pairs.
    pub kv_size: Option<usize>,
    /// Part of the memory that is hash index, between 0 and 1, instead of the one that follows from `kv_size`.
    pub hash_index_ratio: Option<f64>,
    /// Largest pair kept in the index itself, in bytes, instead of the one that follows from `kv_size`.
    pub inline_threshold: Option<usize>,
    /// Most connections at a time; fewer if the system grants fewer file descriptors. Each has a share of 8 KiB of the
    /// memory for connections, and all shares together are at most half of it.
    pub connections_max: usize,
    /// Memory of all connections together, in bytes: requests that are not executed, as bytes and as parsed batches,
    /// and the replies that their clients have not taken. One connection may hold up to half of it.
    pub connection_memory: u64,
    /// Longest time from the read of a request to its reply, between a millisecond and a minute: a request that would
    /// take longer while other connections wait is refused with `BUSY`. Without it, nothing is refused.
    pub delay_max: Option<Duration>,
    /// The password of the user `default`, if there is one.
    pub password: Option<Password>,
    /// The file of users, if there is one: see `docs/security.md`.
    pub users: Option<PathBuf>,
    /// Refuses clients on other machines while there is no password.
    pub protected_mode: bool,
    /// Seconds after which a connection without requests is closed; 0: never.
    pub timeout: u32,
    /// Seconds of silence after which the kernel asks for the peer of a connection; 0: it does not.
    pub tcp_keepalive: u32,
    /// The directory of the log, from which the hash space comes back after a restart; none: nothing survives one.
    pub data_dir: Option<PathBuf>,
    /// What a fault may cost. A level above `memory` needs a data directory.
    pub durability: Durability,
    /// Starts although acknowledged operations in the data directory are damaged, without them and all later ones.
    pub accept_loss: bool,
    /// Touches the memory at the start, and not when it is first used.
    pub prefault: bool,
    /// Pins each shard to a core of its own, of those that the process may use.
    pub pin_threads: bool,
    /// Modules of user functions that are loaded before the first client is served, and replace those of their names.
    pub functions: Vec<ModuleSource>,
    /// For measurements: the server only echoes.
    pub echo: Option<EchoSettings>,
}

/// The source of a module of user functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSource {
    /// Where it is from, for error messages.
    pub origin: String,
    /// The source.
    pub source: String,
}

impl Default for ServerSettings {
    /// Returns one shard of 1 GiB, 256 MiB for the ordered space, no cache, 10,000 connections,
    /// nothing refused, on the loopback ports 7379 and 6379.
    fn default() -> Self {
        ServerSettings {
            native: SocketAddr::from(([127, 0, 0, 1], 7379)),
            resp: Some(SocketAddr::from(([127, 0, 0, 1], 6379))),
            shared_memory: None,
            udp: None,
            rdma: None,
            memcached: None,
            memcached_udp: None,
            memcached_value_max: VALUE_SIZE_MAX,
            tls: None,
            memory: 1 << 30,
            ordered_memory: 256 << 20,
            cache_memory: 0,
            cache_kv_size: None,
            lease_time: LEASE_TIME,
            shards: 1,
            kv_size: None,
            hash_index_ratio: None,
            inline_threshold: None,
            connections_max: 10_000,
            connection_memory: 256 << 20,
            delay_max: None,
            password: None,
            users: None,
            protected_mode: true,
            timeout: 0,
            tcp_keepalive: 300,
            data_dir: None,
            durability: Durability::Memory,
            accept_loss: false,
            prefault: false,
            pin_threads: false,
            functions: Vec::new(),
            echo: None,
        }
    }
}

impl ServerSettings {
    /// Returns the least memory for as many connections: twice their shares, in whole mebibytes, and so much that half
    /// of it holds the largest value twice.
    pub fn connection_memory_min(connections_max: usize) -> u64 {
        connection_memory_min(connections_max)
    }

    /// Checks all limits that can be checked without taking anything.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        if !(1..=SHARDS_MAX).contains(&self.shards) {
            return Err(StartError::Shards(self.shards));
        }
        if self.ordered_memory > 0 && self.shards > ORDERED_SHARDS_MAX {
            return Err(StartError::OrderedShards(self.shards));
        }
        if let Some(delay) = self.delay_max.filter(|delay| !(DELAY_BOUND_MIN..=DELAY_BOUND_MAX).contains(delay)) {
            return Err(StartError::Delay(delay));
        }
        if !(LEASE_TIME_MIN..=LEASE_TIME_MAX).contains(&self.lease_time) {
            return Err(StartError::Lease(self.lease_time));
        }
        self.check_functions()?;
        let ServerSettings { memory, ordered_memory, cache_memory, connection_memory, connections_max, .. } = *self;
        if self.memcached.or(self.memcached_udp).is_some() && cache_memory == 0 {
            return Err(StartError::MemcachedWithoutCache);
        }
        if self.cache_kv_size.is_some() && cache_memory == 0 {
            return Err(StartError::CacheSizeWithoutCache);
        }
        if let Some(address) = self.memcached_udp.filter(|address| !address.ip().is_loopback()) {
            return Err(StartError::MemcachedUdp(address));
        }
        if !(1..=VALUE_SIZE_MAX).contains(&self.memcached_value_max) {
            return Err(StartError::MemcachedValue(self.memcached_value_max));
        }
        for (front_end, first) in [("UDP", self.udp), ("RDMA", self.rdma)] {
            if let Some(address) = first.filter(|first| u32::from(first.port()) + u32::from(self.shards) > PORTS_END) {
                return Err(StartError::ShardPorts { front_end, address, shards: self.shards });
            }
        }
        if self.rdma.is_some() && !cfg!(feature = "rdma") {
            return Err(StartError::WithoutRdma);
        }
        if self.data_dir.is_none() && (self.durability != Durability::Memory || self.accept_loss) {
            return Err(StartError::WithoutDataDirectory);
        }
        if connections_max == 0 {
            return Err(StartError::Connections);
        }
        if connection_memory < Self::connection_memory_min(connections_max) {
            return Err(StartError::ConnectionMemory { connection_memory, connections_max });
        }
        self.store(0).validate().map_err(StartError::Store)?;
        match memory_available(Path::new("/")) {
            Some(available) if self.memory_needed() > available / 10 * 9 => {
                let connection_memory = connection_memory.saturating_add(self.memory_beside());
                Err(StartError::MemoryAvailable { memory, ordered_memory, cache_memory, connection_memory, available })
            }
            _ => Ok(()),
        }
    }

    /// Returns all memory that the server takes, in bytes.
    pub fn memory_needed(&self) -> u64 {
        let parts = [self.memory, self.ordered_memory, self.cache_memory, self.connection_memory, self.memory_beside()];
        parts.iter().fold(0, |sum, size| sum.saturating_add(*size))
    }

    /// Returns the memory of shards and transports beside the spaces and the memory of connections, in bytes.
    fn memory_beside(&self) -> u64 {
        let rings =
            if self.shared_memory.is_some() { SHARED_MEMORY_CONNECTIONS_MAX * shared::CONNECTION_SIZE } else { 0 };
        let of_udp = if self.udp.is_some() { DATAGRAM_MEMORY } else { 0 };
        let of_rdma = if self.rdma.is_some() { RDMA_MEMORY } else { 0 };
        let of_shard = SHARD_MEMORY + of_udp + of_rdma;
        let of_shards = u64::from(self.shards) * of_shard;
        let of_datagrams = if self.memcached_udp.is_some() { MEMCACHED_DATAGRAM_MEMORY } else { 0 };
        let sessions = if self.tls.is_some() { self.connections_max * TLS_SESSION_SIZE } else { 0 };
        of_shards + (rings + sessions) as u64 + of_datagrams + FREED_BUFFERS_KEPT as u64
    }

    /// Refuses sources that are wrong, and two of one module: the second would replace the first.
    fn check_functions(&self) -> Result<(), StartError> {
        let mut origins = HashMap::new();
        for ModuleSource { origin, source } in &self.functions {
            let refused = |reason: String| StartError::Functions { origin: origin.clone(), reason };
            let name = skep_function::check(source).map_err(|error| refused(error.to_string()))?.name;
            if let Some(first) = origins.insert(name.clone(), origin) {
                return Err(refused(format!(
                    "the module '{name}' is in {first} too: leave out one of the two, or rename it"
                )));
            }
        }
        Ok(())
    }

    /// Returns the settings of the ordered store, if there is to be one. `lease_seed` is secret.
    pub(crate) fn ordered(&self, lease_seed: u64) -> Option<OrderedSettings> {
        let lease_time = self.lease_time;
        let settings = OrderedSettings { lease_time, lease_seed, ..OrderedSettings::new(self.ordered_memory) };
        (self.ordered_memory > 0).then_some(settings)
    }

    /// Returns the settings of one shard's cache, if there is to be one. `seed` is secret.
    pub(crate) fn cache(&self, seed: u64) -> Option<CacheSettings> {
        let memory = self.cache_memory / u64::from(self.shards);
        let kv_size = self.cache_kv_size.unwrap_or(KV_SIZE);
        (self.cache_memory > 0).then_some(CacheSettings { memory, kv_size, seed })
    }

    /// Returns the settings of one shard's store. `seed` is secret.
    pub(crate) fn store(&self, seed: u64) -> Settings {
        let memory = self.memory / u64::from(self.shards);
        if (self.kv_size, self.hash_index_ratio, self.inline_threshold) == (None, None, None) {
            return Settings::growing(memory, seed);
        }
        let mut settings = Settings::for_kv_size(memory, self.kv_size.unwrap_or(KV_SIZE), seed);
        if let Some(ratio) = self.hash_index_ratio {
            settings.hash_index_ratio = ratio;
        }
        if let Some(threshold) = self.inline_threshold {
            settings.inline_threshold = threshold;
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_space_has_its_average_pair() {
        let settings = ServerSettings { cache_memory: 16 << 20, cache_kv_size: Some(100), ..ServerSettings::default() };
        assert!(settings.store(0).grows);
        assert_eq!(settings.cache(0).unwrap().kv_size, 100);
        let settings = ServerSettings { kv_size: Some(10), cache_kv_size: None, ..settings };
        assert!(!settings.store(0).grows);
        assert_eq!(settings.cache(0).unwrap().kv_size, KV_SIZE);
    }
}
