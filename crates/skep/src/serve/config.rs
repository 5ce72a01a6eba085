//! The settings of `skep serve`. A flag overrides the configuration file, and the file overrides the defaults.
//!
//! One structure, [`Configuration`], holds both the flags and the file, so that they cannot differ. The defaults are a
//! configuration file too, `default.toml`. It is compiled in, and `--print-config` prints it. Every error in a file is
//! reported with the file name, the line and the field.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use skep::Password;
use skep_server::ServerSettings;

use crate::failure::{Failure, reason};
use crate::size::MemorySize;

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
    /// crate [default: no shared memory].
    #[arg(long, value_name = "PATH")]
    pub(crate) shared_memory: Option<PathBuf>,
    /// Port for Redis clients instead of the one in --resp, as redis-server names it; 0 means off.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Address for clients of memcached, or off; needs --cache-memory [default: off].
    #[arg(long, value_name = "HOST:PORT|off")]
    pub(crate) memcached: Option<PortAddress>,
    /// Largest value that clients of memcached may store, 1 B to 1MiB [default: 1MiB].
    #[arg(long, value_name = "SIZE")]
    pub(crate) memcached_value_max: Option<MemorySize>,
    /// UDP address for native clients: each shard has a port, and this is the first one; or off [default: off].
    #[arg(long, value_name = "HOST:PORT|off")]
    pub(crate) udp: Option<PortAddress>,
    /// Address of an RDMA device for native clients: each shard has a TCP port, and this is the first one; or off. It
    /// needs a program that was built with the feature `rdma` [default: off].
    #[arg(long, value_name = "HOST:PORT|off")]
    pub(crate) rdma: Option<PortAddress>,
    /// File whose first line is the password that clients must send [default: no password].
    #[arg(long, value_name = "FILE", conflicts_with = "requirepass")]
    pub(crate) requirepass_file: Option<PathBuf>,
    /// The password itself, as redis-server names it; other users of the machine can see the flags of a process.
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) requirepass: Option<RequiredPassword>,
    /// Without a password, serve only clients on this machine: yes or no [default: yes].
    #[arg(long, value_name = "BOOL")]
    pub(crate) protected_mode: Option<YesOrNo>,
    /// Memory of the hash space in all shards together, such as 512MB or 4GiB [default: 1GiB].
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<MemorySize>,
    /// Memory of the ordered space, which all shards share; 0 or off disables the space [default: 256MiB].
    #[arg(long, value_name = "SIZE|off")]
    pub(crate) ordered_memory: Option<MemoryOrOff>,
    /// Memory of the cache space in all shards together, such as 4GiB; 0 or off disables the space [default: off].
    #[arg(long, value_name = "SIZE|off")]
    pub(crate) cache_memory: Option<MemoryOrOff>,
    /// How long the state of a scan is kept if no further page is requested, 1ms to 3600s [default: 5s].
    #[arg(long, value_name = "TIME")]
    pub(crate) lease_time: Option<LeaseTime>,
    /// Threads with one store each [default: three quarters of the cores, at least 1].
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<ShardCount>,
    /// Average size of a key and its value in bytes; it divides the memory between index and slabs [default: 64].
    #[arg(long, value_name = "BYTES")]
    pub(crate) kv_size: Option<KvSize>,
    /// Share of the memory for the hash index, above 0 and below 1 [default: computed from --kv-size].
    #[arg(long, value_name = "RATIO")]
    pub(crate) hash_index_ratio: Option<Ratio>,
    /// Largest size of a key and its value that are stored in the index, 0 to 50 bytes [default: computed from
    /// --kv-size].
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
    pub(crate) timeout: Option<u32>,
    /// Ask for the peer of a silent connection after this number of seconds; 0 means never [default: 300].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    pub(crate) tcp_keepalive: Option<u32>,
    /// Touch all memory at the start: the start is slower, and there are no page faults afterwards [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(default, deserialize_with = "switch")]
    pub(crate) prefault: Option<bool>,
    /// Pin each shard to its own core: of the cores that the process may use (taskset), the ones with the fewest pinned
    /// threads [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(default, deserialize_with = "switch")]
    pub(crate) pin_threads: Option<bool>,
}

/// The address for native clients.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct ListenAddress(SocketAddr);

/// The address for clients of another protocol, or off.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) enum PortAddress {
    /// There is no such port.
    Off,
    /// The port has this address.
    At(SocketAddr),
}

/// A password, or none.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct RequiredPassword(Option<Password>);

/// A setting of Redis that is yes or no.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct YesOrNo(bool);

/// The memory of a space in bytes; 0 if there is none.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct MemoryOrOff(u64);

/// The time after which an unused lease expires, 1 ms to an hour.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct LeaseTime(Duration);

/// 1 to [`SHARD_COUNT_MAX`] shards.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct ShardCount(u16);

/// 1 to [`CLIENT_COUNT_MAX`] connections.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct ClientCount(usize);

/// The average size of a key and its value, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct KvSize(usize);

/// A share, above 0 and below 1.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct Ratio(f64);

/// 0 to 50 bytes, the size of ten slots in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct InlineThreshold(usize);

/// The bound for the delay of a request, 1 ms to a minute, or none.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct DelayMax(Option<Duration>);

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
            match line.split_once('=').map(|(field, _)| field.trim()) {
                Some(field) if !field.is_empty() && !field.starts_with('#') => {
                    format!("line {line_number}, field `{field}`: {reason}")
                }
                _ => format!("line {line_number}: {reason}"),
            }
        })
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
            memcached_value_max: self.memcached_value_max.or(other.memcached_value_max),
            udp: self.udp.or(other.udp),
            rdma: self.rdma.or(other.rdma),
            requirepass_file,
            requirepass,
            protected_mode: self.protected_mode.or(other.protected_mode),
            timeout: self.timeout.or(other.timeout),
            tcp_keepalive: self.tcp_keepalive.or(other.tcp_keepalive),
            memory: self.memory.or(other.memory),
            ordered_memory: self.ordered_memory.or(other.ordered_memory),
            cache_memory: self.cache_memory.or(other.cache_memory),
            lease_time: self.lease_time.or(other.lease_time),
            shards: self.shards.or(other.shards),
            kv_size: self.kv_size.or(other.kv_size),
            hash_index_ratio: self.hash_index_ratio.or(other.hash_index_ratio),
            inline_threshold: self.inline_threshold.or(other.inline_threshold),
            connection_memory: self.connection_memory.or(other.connection_memory),
            max_clients: self.max_clients.or(other.max_clients),
            delay_max: self.delay_max.or(other.delay_max),
            prefault: self.prefault.or(other.prefault),
            pin_threads: self.pin_threads.or(other.pin_threads),
        }
    }

    /// Returns the password, which may be in a file.
    pub(crate) fn password(&self) -> Result<Option<Password>, Failure> {
        match (&self.requirepass_file, &self.requirepass) {
            (Some(_), Some(_)) => {
                Err(Failure::Usage("requirepass-file and requirepass are both set: leave one of them out".to_owned()))
            }
            (Some(path), None) => crate::password::read(path).map(Some),
            (None, Some(RequiredPassword(password))) => Ok(password.clone()),
            (None, None) => Ok(None),
        }
    }

    /// Returns the settings of the server, with defaults for those that are not given. The number of shards follows from
    /// `core_count`. The password is left out.
    pub(crate) fn into_settings(self, core_count: usize) -> ServerSettings {
        let complete = self.or(Self::embedded());
        let given = "the embedded configuration has this setting";
        ServerSettings {
            native: complete.listen.expect(given).0,
            resp: match (complete.resp.expect(given), complete.port) {
                (_, Some(0)) | (PortAddress::Off, None) => None,
                (PortAddress::Off, Some(port)) => Some(SocketAddr::from(([127, 0, 0, 1], port))),
                (PortAddress::At(address), None) => Some(address),
                (PortAddress::At(address), Some(port)) => Some(SocketAddr::new(address.ip(), port)),
            },
            udp: match complete.udp.expect(given) {
                PortAddress::Off => None,
                PortAddress::At(address) => Some(address),
            },
            rdma: match complete.rdma.expect(given) {
                PortAddress::Off => None,
                PortAddress::At(address) => Some(address),
            },
            shared_memory: complete.shared_memory,
            memcached: match complete.memcached.expect(given) {
                PortAddress::Off => None,
                PortAddress::At(address) => Some(address),
            },
            memcached_value_max: usize::try_from(complete.memcached_value_max.expect(given).0).unwrap_or(usize::MAX),
            password: None,
            protected_mode: complete.protected_mode.expect(given).0,
            timeout: complete.timeout.expect(given),
            tcp_keepalive: complete.tcp_keepalive.expect(given),
            memory: complete.memory.expect(given).0,
            ordered_memory: complete.ordered_memory.expect(given).0,
            cache_memory: complete.cache_memory.expect(given).0,
            lease_time: complete.lease_time.expect(given).0,
            shards: match complete.shards {
                Some(shards) => shards.0,
                None => default_shards(core_count),
            },
            kv_size: complete.kv_size.expect(given).0,
            hash_index_ratio: complete.hash_index_ratio.map(|ratio| ratio.0),
            inline_threshold: complete.inline_threshold.map(|threshold| threshold.0),
            connection_memory: complete.connection_memory.expect(given).0,
            connections_max: complete.max_clients.expect(given).0,
            delay_max: complete.delay_max.expect(given).0,
            prefault: complete.prefault.expect(given),
            pin_threads: complete.pin_threads.expect(given),
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

/// Every shard has a ring to every other one; the server allows this many shards.
const SHARD_COUNT_MAX: u16 = 256;
/// No process has this many file descriptors.
const CLIENT_COUNT_MAX: usize = 1 << 30;
/// The largest possible average: the longest key and the longest value.
const KV_SIZE_MAX: usize = skep_core::operation::KEY_SIZE_MAX + skep_core::operation::VALUE_SIZE_MAX;
/// Ten slots of five bytes.
const INLINE_THRESHOLD_MAX: usize = 50;

/// Resolves an address or a name, both with a port. The first IPv4 address of a name is preferred: `localhost` is then
/// 127.0.0.1, as in the defaults and the examples.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text = crate::cli::address(text)?;
    let found: Vec<_> = text.to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    found.iter().find(|address| address.is_ipv4()).or(found.first()).copied().ok_or_else(|| {
        format!("`{text}` is a name that this machine cannot resolve: write an IP address and a port, such as 127.0.0.1:7379")
    })
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_address(text).map(ListenAddress)
    }
}

impl FromStr for PortAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(PortAddress::Off),
            _ => match parse_address(text) {
                Ok(address) => Ok(PortAddress::At(address)),
                Err(refusal) => Err(format!("{refusal}, or off")),
            },
        }
    }
}

impl FromStr for RequiredPassword {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        crate::password::parse(text).map(RequiredPassword)
    }
}

impl TryFrom<toml::Value> for RequiredPassword {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match value.as_str() {
            Some(text) => text.parse(),
            // The value may be the password, so the message does not repeat it.
            None => Err("the password has the wrong type: write it in quotes".to_owned()),
        }
    }
}

impl FromStr for YesOrNo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "yes" | "true" => Ok(YesOrNo(true)),
            "no" | "false" => Ok(YesOrNo(false)),
            _ => Err(format!("`{text}` is neither yes nor no: write yes or no")),
        }
    }
}

impl TryFrom<toml::Value> for YesOrNo {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match (value.as_bool(), value.as_str()) {
            (Some(is_yes), _) => Ok(YesOrNo(is_yes)),
            (None, Some(text)) => text.parse(),
            _ => Err(format!("`{value}` is neither true nor false: write true or false, without quotes")),
        }
    }
}

impl FromStr for MemoryOrOff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" | "0" => Ok(MemoryOrOff(0)),
            _ => match text.parse() {
                Ok(MemorySize(size)) => Ok(MemoryOrOff(size)),
                Err(refusal) => Err(format!("{refusal}, or off")),
            },
        }
    }
}

impl TryFrom<toml::Value> for MemoryOrOff {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match value.as_str() {
            Some(text) => text.parse(),
            None => MemorySize::try_from(value).map(|size| MemoryOrOff(size.0)),
        }
    }
}

impl FromStr for ShardCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(count @ 1..=SHARD_COUNT_MAX) => Ok(ShardCount(count)),
            _ => Err(format!("`{text}` is not a number of shards: write a whole number, 1 to {SHARD_COUNT_MAX}")),
        }
    }
}

impl FromStr for ClientCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(count @ 1..=CLIENT_COUNT_MAX) => Ok(ClientCount(count)),
            _ => Err(format!("`{text}` is not a number of connections: write a whole number, at least 1")),
        }
    }
}

impl FromStr for KvSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(size @ 2..=KV_SIZE_MAX) => Ok(KvSize(size)),
            _ => Err(format!(
                "`{text}` is not the size of a key and a value: write a whole number of bytes, 2 to {KV_SIZE_MAX}"
            )),
        }
    }
}

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(ratio) if ratio > 0.0 && ratio < 1.0 => Ok(Ratio(ratio)),
            _ => Err(format!("`{text}` is not a share: write a number above 0 and below 1, such as 0.5")),
        }
    }
}

impl FromStr for InlineThreshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(size @ 0..=INLINE_THRESHOLD_MAX) => Ok(InlineThreshold(size)),
            _ => Err(format!(
                "`{text}` is not an inline threshold: write a whole number of bytes, 0 to {INLINE_THRESHOLD_MAX}"
            )),
        }
    }
}

/// The units of time. `ms` is before `s`, because it ends with `s`.
const TIME_UNITS: [(&str, f64); 3] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
/// The range that the server accepts, in seconds.
const DELAY_MAX_SECONDS: RangeInclusive<f64> = 0.001..=60.0;
const LEASE_TIME_SECONDS: RangeInclusive<f64> = 0.001..=3600.0;

/// Parses a number with a unit. Returns nothing if it is not within these seconds.
fn parse_time(text: &str, within: &RangeInclusive<f64>) -> Option<Duration> {
    let (number, factor) =
        TIME_UNITS.into_iter().find_map(|(name, factor)| Some((text.strip_suffix(name)?, factor)))?;
    let seconds = number.trim().parse::<f64>().ok()? * factor;
    within.contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

impl FromStr for DelayMax {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(DelayMax(None));
        }
        parse_time(text, &DELAY_MAX_SECONDS).map(|delay| DelayMax(Some(delay))).ok_or_else(|| {
            format!("`{text}` is not a bound for delays: write a number and a unit, 1ms to 60s, such as 100ms, or off")
        })
    }
}

impl FromStr for LeaseTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_time(text, &LEASE_TIME_SECONDS).map(LeaseTime).ok_or_else(|| {
            format!("`{text}` is not a time to keep leases: write a number and a unit, 1ms to 3600s, such as 5s")
        })
    }
}

/// Converts a value of the file by parsing it like the text of the flag. Text must be in quotes and numbers must not,
/// as TOML requires.
macro_rules! from_file {
    ($($setting:ty: $kind:ident, $example:literal;)*) => {$(
        impl TryFrom<toml::Value> for $setting {
            type Error = String;

            fn try_from(value: toml::Value) -> Result<Self, String> {
                if kind_of(&value) == Kind::$kind {
                    value.as_str().map_or_else(|| value.to_string(), str::to_owned).parse()
                } else {
                    Err(format!(concat!("`{}` has the wrong type: write it like ", $example), value))
                }
            }
        }
    )*};
}
from_file! {
    ListenAddress: Text, "\"127.0.0.1:7379\"";
    PortAddress: Text, "\"127.0.0.1:6379\" or \"off\"";
    ShardCount: Number, "4, a whole number without quotes";
    ClientCount: Number, "10000, a whole number without quotes";
    KvSize: Number, "64, a whole number of bytes without quotes";
    Ratio: Number, "0.5, a number without quotes";
    DelayMax: Text, "\"100ms\" or \"off\"";
    LeaseTime: Text, "\"5s\"";
    InlineThreshold: Number, "20, a whole number of bytes without quotes";
}

/// The type of a value in the file.
#[derive(PartialEq)]
enum Kind {
    Text,
    Number,
    Other,
}

fn kind_of(value: &toml::Value) -> Kind {
    match value {
        toml::Value::String(_) => Kind::Text,
        toml::Value::Integer(_) | toml::Value::Float(_) => Kind::Number,
        _ => Kind::Other,
    }
}

/// Parses `true` or `false`.
fn switch<'a, D: serde::Deserializer<'a>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    let value = <toml::Value as serde::Deserialize>::deserialize(deserializer)?;
    let refusal = || {
        serde::de::Error::custom(format!("`{value}` is neither true nor false: write true or false, without quotes"))
    };
    value.as_bool().map(Some).ok_or_else(refusal)
}

#[cfg(test)]
mod tests;
