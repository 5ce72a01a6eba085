//! The settings of `skep serve`. A flag overrides the configuration file, and the file overrides the defaults.
//!
//! One structure, [`Configuration`], holds both the flags and the file, so that they cannot differ. The defaults are a
//! configuration file too, `default.toml`. It is compiled in, and `--print-config` prints it. Every error in a file is
//! reported with the file name, the line and the field.

mod conflicts;
mod defaults;
mod service_file;
mod values;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use skep::Password;
use skep_server::{Durability, ModuleSource, ServerSettings, TlsSettings};

use crate::failure::{Failure, quoted, reason, requote};
use crate::size::MemorySize;
pub(crate) use service_file::service_configuration;
pub(crate) use values::LogFormat;
use values::{
    ClientCount, DelayMax, DurabilityLevel, InlineThreshold, KvSize, LeaseTime, ListenAddress, MemoryOrOff,
    PortAddress, Ratio, RequiredPassword, SHARD_COUNT_MAX, ShardCount, ValueSize, YesOrNo, port, seconds, switch,
};

/// The defaults, in the format of a user's file.
pub(crate) const DEFAULT_CONFIGURATION: &str = include_str!("default.toml");

/// The settings of a configuration file or of the flags. A setting that is not given is `None`.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Configuration {
    /// Address for native clients: skep cli, skep bench, the client crate [default: 127.0.0.1:7379].
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<ListenAddress>,
    /// Address for Redis clients, or off [default: 127.0.0.1:6379].
    #[arg(long, value_name = "HOST:PORT|off")]
    pub(crate) resp: Option<PortAddress>,
    /// Path of a unix socket over which clients of the same user get shared memory: skep cli --addr shm:PATH, the client
    /// crate; at most 1024 connections, 136KiB each beside --connection-memory [default: no shared memory].
    #[arg(long, value_name = "PATH")]
    pub(crate) shared_memory: Option<PathBuf>,
    /// Port for Redis clients instead of the one in --resp, as redis-server names it; 0 means off.
    #[arg(long, value_name = "PORT")]
    #[serde(default, deserialize_with = "port")]
    pub(crate) port: Option<u16>,
    /// Address for clients of memcached, or off; needs --cache-memory [default: off].
    #[arg(long, value_name = "HOST:PORT|off")]
    pub(crate) memcached: Option<PortAddress>,
    /// UDP address for clients of memcached on this machine, a loopback address, or off; needs --cache-memory
    /// [default: off].
    #[arg(long, value_name = "HOST:PORT|off")]
    pub(crate) memcached_udp: Option<PortAddress>,
    /// Largest value that clients of memcached may store, 1 B to 1MiB [default: 1MiB].
    #[arg(long, value_name = "SIZE")]
    pub(crate) memcached_value_max: Option<ValueSize>,
    /// First UDP port for native clients (udp:HOST:PORT), or off; shard N uses port PORT + N [default: off].
    #[arg(long, value_name = "HOST:PORT|off")]
    pub(crate) udp: Option<PortAddress>,
    /// Address of an RDMA device for native clients: each shard has a TCP port, and this is the first one; or off. It
    /// needs a program that was built with the feature `rdma` [default: off].
    #[arg(long, value_name = "HOST:PORT|off")]
    pub(crate) rdma: Option<PortAddress>,
    /// Address for Prometheus, supervisors and browsers, over HTTP: /metrics, /healthz, /readyz and a page at /; or off. It
    /// needs no password, and shows metrics and no values; hot keys only at an address of this machine [default: off].
    #[arg(long, value_name = "HOST:PORT|off")]
    pub(crate) metrics: Option<PortAddress>,
    /// File whose first line is the password that clients must send [default: no password].
    #[arg(long, value_name = "FILE", conflicts_with = "requirepass")]
    pub(crate) requirepass_file: Option<PathBuf>,
    /// The password itself, as redis-server names it; other users of the machine can see the flags of a process.
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) requirepass: Option<RequiredPassword>,
    /// File of users: a line `user NAME rules...` for each, as Redis has it; SIGHUP and ACL LOAD read it again, and ACL SAVE
    /// writes it [default: one user, default, which may do everything].
    #[arg(long, value_name = "FILE")]
    #[serde(alias = "aclfile")]
    pub(crate) acl_file: Option<PathBuf>,
    /// Without a password, serve only clients on this machine: yes or no [default: yes].
    #[arg(long, value_name = "BOOL")]
    pub(crate) protected_mode: Option<YesOrNo>,
    /// File with the certificate of the server and those that lead from it to a root, in PEM. With it, the native, RESP and
    /// memcached ports over TCP speak TLS only; SIGHUP reads the files again [default: no TLS].
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// File with the private key of that certificate, in PEM.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// File with the certificates that sign those of clients, in PEM; each client over TCP needs one
    /// [default: clients need none].
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Memory of the hash space in all shards together, such as 512MB or 4GiB [default: 1GiB].
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<MemorySize>,
    /// Memory of the ordered space, which all shards share; 0 or off disables the space [default: 256MiB].
    #[arg(long, value_name = "SIZE|off")]
    pub(crate) ordered_memory: Option<MemoryOrOff>,
    /// Memory of the cache space in all shards together, such as 4GiB: 2MiB to 64GiB for each shard; 0 or off disables the
    /// space [default: off].
    #[arg(long, value_name = "SIZE|off")]
    pub(crate) cache_memory: Option<MemoryOrOff>,
    /// Average size of a key and its value in the cache, in bytes; it divides the memory of the cache between index and log
    /// [default: 64].
    #[arg(long, value_name = "BYTES")]
    pub(crate) cache_kv_size: Option<KvSize>,
    /// How long the state of a scan is kept if no further page is requested, 1ms to 3600s [default: 5s].
    #[arg(long, value_name = "TIME")]
    pub(crate) lease_time: Option<LeaseTime>,
    /// Threads with one store each [default: three quarters of the cores, at least 1].
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<ShardCount>,
    /// Average size of a key and its value in the hash space, in bytes. With it, the hash index has a fixed size [default: the
    /// index grows with the pairs].
    #[arg(long, value_name = "BYTES")]
    pub(crate) kv_size: Option<KvSize>,
    /// Share of the memory for the hash index, above 0 and below 1. With it, the index has a fixed size [default: the index
    /// grows with the pairs, or the ratio follows from --kv-size].
    #[arg(long, value_name = "RATIO")]
    pub(crate) hash_index_ratio: Option<Ratio>,
    /// Largest size of a key and its value that are stored in the index, 0 to 50 bytes. With it, the index has a fixed size
    /// [default: 50 except sizes of 26 to 30, or follows from --kv-size; 10 with --hash-index-ratio alone].
    #[arg(long, value_name = "BYTES")]
    pub(crate) inline_threshold: Option<InlineThreshold>,
    /// Memory of all connections together: incomplete requests, complete requests that wait, and replies that clients
    /// have not read yet [default: 256MiB].
    #[arg(long, value_name = "SIZE")]
    pub(crate) connection_memory: Option<MemorySize>,
    /// Most concurrent connections; each needs 16KiB of --connection-memory [default: 10000].
    #[arg(long, value_name = "N")]
    pub(crate) max_clients: Option<ClientCount>,
    /// Longest time from the read of a request to its reply, 1ms to 60s. Operations that would take longer while other
    /// clients wait are refused as BUSY. With off no operation is refused as BUSY, and clients wait [default: off].
    #[arg(long, value_name = "TIME|off")]
    pub(crate) delay_max: Option<DelayMax>,
    /// Close connections that send nothing for this number of seconds; 0 means never [default: 0].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    #[serde(default, deserialize_with = "seconds")]
    pub(crate) timeout: Option<u32>,
    /// Let the kernel check, after this number of seconds without bytes, that the client still exists; 0 means never
    /// [default: 300].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    #[serde(default, deserialize_with = "seconds")]
    pub(crate) tcp_keepalive: Option<u32>,
    /// Directory of the data of spaces 0 and 1 on disk; its parent must exist [default: nothing survives a restart].
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// What a fault may cost: memory (all since the last SAVE), second (the last second) or always (nothing that was
    /// acknowledged) [default: always with --data-dir, otherwise memory].
    #[arg(long, value_name = "LEVEL")]
    pub(crate) durability: Option<DurabilityLevel>,
    /// Start with a damaged log: drops the damaged part and all after it. Copy the data directory before.
    #[arg(long)]
    #[serde(skip)]
    pub(crate) accept_loss: bool,
    /// Touch all memory at the start: the start is slower, and there are no page faults afterwards [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(default, deserialize_with = "switch")]
    pub(crate) prefault: Option<bool>,
    /// Pin each shard to its own core: of the cores that the process may use (taskset), the ones with the fewest pinned
    /// threads [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(default, deserialize_with = "switch")]
    pub(crate) pin_threads: Option<bool>,
    /// Form of the log on standard error: text, or json with an object on each line [default: text].
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// Files with modules of functions that are loaded at the start, and replace those of their names [default: none].
    #[arg(long, value_name = "FILE", num_args = 1..)]
    #[serde(default)]
    pub(crate) functions: Vec<PathBuf>,
}

impl Configuration {
    /// Returns the defaults.
    pub(crate) fn embedded() -> Self {
        toml::from_str(DEFAULT_CONFIGURATION).expect("the embedded configuration is valid")
    }

    /// Reads a configuration file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::Usage(format!(
                "cannot read the configuration file {}: {}: `skep serve --print-config` prints one to begin with",
                path.display(),
                reason(&error)
            ))
        })?;
        Self::parse(&text).map_err(|problem| Failure::Usage(format!("{}, {problem}", path.display())))
    }

    /// Parses the text of a configuration file. The error names line and field.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let reason = error.message().lines().collect::<Vec<_>>().join(", ");
            let Some(span) = error.span() else { return reason };
            let start = text.floor_char_boundary(span.start.min(text.len()));
            let line_number = text[..start].matches('\n').count() + 1;
            let line = text.lines().nth(line_number - 1).unwrap_or_default();
            match line.split_once('=').map(|(field, value)| (field.trim(), value.trim())) {
                Some((field, value)) if !field.is_empty() && !field.starts_with('#') => {
                    let reason = requote(&requote(&reason, value.trim_matches('"')), field);
                    format!("line {line_number}, field `{}`: {reason}", quoted(field))
                }
                _ => format!("line {line_number}: {reason}"),
            }
        })
    }

    /// Returns the files with passwords and keys.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Path> {
        [&self.requirepass_file, &self.acl_file, &self.tls_key].into_iter().filter_map(|path| path.as_deref())
    }

    /// Returns these settings, and those of `other` where a setting is `None`.
    pub(crate) fn or(self, other: Configuration) -> Configuration {
        // Both are sources of one setting.
        let (requirepass_file, requirepass) = match (self.requirepass_file, self.requirepass) {
            (None, None) => (other.requirepass_file, other.requirepass),
            own => own,
        };
        Configuration {
            listen: self.listen.or(other.listen),
            resp: self.resp.or(other.resp),
            shared_memory: self.shared_memory.or(other.shared_memory),
            port: self.port.or(other.port),
            memcached: self.memcached.or(other.memcached),
            memcached_udp: self.memcached_udp.or(other.memcached_udp),
            memcached_value_max: self.memcached_value_max.or(other.memcached_value_max),
            udp: self.udp.or(other.udp),
            rdma: self.rdma.or(other.rdma),
            metrics: self.metrics.or(other.metrics),
            log_format: self.log_format.or(other.log_format),
            requirepass_file,
            requirepass,
            acl_file: self.acl_file.or(other.acl_file),
            protected_mode: self.protected_mode.or(other.protected_mode),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_client_ca: self.tls_client_ca.or(other.tls_client_ca),
            timeout: self.timeout.or(other.timeout),
            tcp_keepalive: self.tcp_keepalive.or(other.tcp_keepalive),
            memory: self.memory.or(other.memory),
            ordered_memory: self.ordered_memory.or(other.ordered_memory),
            cache_memory: self.cache_memory.or(other.cache_memory),
            cache_kv_size: self.cache_kv_size.or(other.cache_kv_size),
            lease_time: self.lease_time.or(other.lease_time),
            shards: self.shards.or(other.shards),
            kv_size: self.kv_size.or(other.kv_size),
            hash_index_ratio: self.hash_index_ratio.or(other.hash_index_ratio),
            inline_threshold: self.inline_threshold.or(other.inline_threshold),
            connection_memory: self.connection_memory.or(other.connection_memory),
            max_clients: self.max_clients.or(other.max_clients),
            delay_max: self.delay_max.or(other.delay_max),
            data_dir: self.data_dir.or(other.data_dir),
            durability: self.durability.or(other.durability),
            accept_loss: self.accept_loss || other.accept_loss,
            prefault: self.prefault.or(other.prefault),
            pin_threads: self.pin_threads.or(other.pin_threads),
            functions: if self.functions.is_empty() { other.functions } else { self.functions },
        }
    }

    /// Returns the password, which may be in a file.
    pub(crate) fn password(&self) -> Result<Option<Password>, Failure> {
        match (&self.requirepass_file, &self.requirepass) {
            (Some(_), Some(_)) => {
                Err(Failure::Usage("requirepass-file and requirepass are both set: leave one of them out".to_owned()))
            }
            (Some(path), None) => crate::password::read(path).map(Some),
            (None, Some(RequiredPassword(password))) => Ok(Some(password.clone())),
            (None, None) => Ok(None),
        }
    }

    /// Returns the files of TLS.
    pub(crate) fn tls(&self) -> Result<Option<TlsSettings>, Failure> {
        let client_ca = self.tls_client_ca.clone();
        let missing = match (&self.tls_cert, &self.tls_key, &client_ca) {
            (Some(certificate), Some(key), _) => {
                return Ok(Some(TlsSettings { certificate: certificate.clone(), key: key.clone(), client_ca }));
            }
            (None, None, None) => return Ok(None),
            (None, ..) => "tls-cert",
            (_, None, _) => "tls-key",
        };
        Err(Failure::Usage(format!("TLS needs a certificate and its private key: add --{missing} FILE")))
    }

    /// Returns the address for metrics.
    pub(crate) fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.and_then(PortAddress::address)
    }

    /// Reads the modules of functions.
    pub(crate) fn functions(&self) -> Result<Vec<ModuleSource>, Failure> {
        let read = |path: &PathBuf| {
            let origin = path.display().to_string();
            match fs::read_to_string(path) {
                Ok(source) => Ok(ModuleSource { origin, source }),
                Err(error) => Err(Failure::Usage(format!("cannot read the functions in {origin}: {}", reason(&error)))),
            }
        };
        self.functions.iter().map(read).collect()
    }

    /// Returns the settings of the server, with defaults for those that are not given. The number of shards follows from
    /// `core_count`. The password and the files of TLS are left out.
    pub(crate) fn into_settings(self, core_count: usize) -> ServerSettings {
        let complete = self.or(Self::embedded());
        let given = "the embedded configuration has this setting";
        ServerSettings {
            native: complete.listen.expect(given).0,
            resp: match (complete.resp.expect(given), complete.port) {
                // With another port than 0, that is refused: see `check`.
                (_, Some(0)) | (PortAddress::Off, _) => None,
                (PortAddress::At(address), None) => Some(address),
                (PortAddress::At(address), Some(port)) => Some(SocketAddr::new(address.ip(), port)),
            },
            udp: complete.udp.expect(given).address(),
            rdma: complete.rdma.expect(given).address(),
            users: complete.acl_file,
            shared_memory: complete.shared_memory,
            memcached: complete.memcached.expect(given).address(),
            memcached_udp: complete.memcached_udp.expect(given).address(),
            memcached_value_max: complete.memcached_value_max.expect(given).0,
            tls: None,
            password: None,
            protected_mode: complete.protected_mode.expect(given).0,
            timeout: complete.timeout.expect(given),
            tcp_keepalive: complete.tcp_keepalive.expect(given),
            memory: complete.memory.expect(given).0,
            ordered_memory: complete.ordered_memory.expect(given).0,
            cache_memory: complete.cache_memory.expect(given).0,
            cache_kv_size: complete.cache_kv_size.map(|size| size.0),
            lease_time: complete.lease_time.expect(given).0,
            shards: match complete.shards {
                Some(shards) => shards.0,
                None => default_shards(core_count),
            },
            kv_size: complete.kv_size.map(|size| size.0),
            hash_index_ratio: complete.hash_index_ratio.map(|ratio| ratio.0),
            inline_threshold: complete.inline_threshold.map(|threshold| threshold.0),
            connection_memory: complete.connection_memory.expect(given).0,
            connections_max: complete.max_clients.expect(given).0,
            delay_max: complete.delay_max.expect(given).0,
            durability: match (complete.durability, &complete.data_dir) {
                (Some(level), _) => level.0,
                (None, Some(_)) => Durability::Always,
                (None, None) => Durability::Memory,
            },
            // The server tells it to clients, which may have another working directory.
            data_dir: complete.data_dir.map(|path| std::path::absolute(&path).unwrap_or(path)),
            accept_loss: complete.accept_loss,
            prefault: complete.prefault.expect(given),
            pin_threads: complete.pin_threads.expect(given),
            functions: Vec::new(),
            echo: None,
        }
    }
}

/// Returns the number of shards for a machine of this many cores. The kernel's network work, the threads that merge slabs and
/// clients on the same machine need the rest: with a shard on each of two cores, every request for the other shard's keys waits
/// for a thread to be woken and scheduled.
fn default_shards(core_count: usize) -> u16 {
    u16::try_from(core_count * 3 / 4).unwrap_or(SHARD_COUNT_MAX).clamp(1, SHARD_COUNT_MAX)
}

#[cfg(test)]
mod tests;
