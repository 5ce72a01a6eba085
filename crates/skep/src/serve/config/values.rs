//! The values of settings, as text of a flag and as values of the file: each says what it accepts.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use skep::Password;
use skep_core::operation::{KEY_SIZE_MAX, VALUE_SIZE_MAX};
use skep_server::Durability;

use crate::size::MemorySize;

/// The address for native clients.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct ListenAddress(pub(super) SocketAddr);

/// The address for clients of another protocol, or off.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) enum PortAddress {
    /// There is no such port.
    Off,
    /// The port has this address.
    At(SocketAddr),
}

/// A password.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct RequiredPassword(pub(super) Password);

/// A setting of Redis that is yes or no.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct YesOrNo(pub(super) bool);

/// The largest value of a memcached client in bytes, 1 B to 1 MiB.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct ValueSize(pub(super) usize);

/// The memory of a space in bytes; 0 if there is none.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct MemoryOrOff(pub(super) u64);

/// The time after which an unused lease expires, 1 ms to an hour.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct LeaseTime(pub(super) Duration);

/// 1 to [`SHARD_COUNT_MAX`] shards.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct ShardCount(pub(super) u16);

/// 1 to [`CLIENT_COUNT_MAX`] connections.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct ClientCount(pub(super) usize);

/// The average size of a key and its value, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct KvSize(pub(super) usize);

/// A share, above 0 and below 1.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct Ratio(pub(super) f64);

/// 0 to 50 bytes, the size of ten slots in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct InlineThreshold(pub(super) usize);

/// What a fault may cost.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct DurabilityLevel(pub(super) Durability);

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// The bound for the delay of a request, 1 ms to a minute, or none.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct DelayMax(pub(super) Option<Duration>);

/// Every shard has a ring to every other one; the server allows this many shards.
pub(super) const SHARD_COUNT_MAX: u16 = 256;
/// No process has this many file descriptors.
const CLIENT_COUNT_MAX: usize = 1 << 30;
/// The largest possible average: the longest key and the longest value.
const KV_SIZE_MAX: usize = KEY_SIZE_MAX + VALUE_SIZE_MAX;
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

impl PortAddress {
    /// Returns the address, unless there is none.
    pub(super) fn address(self) -> Option<SocketAddr> {
        match self {
            PortAddress::Off => None,
            PortAddress::At(address) => Some(address),
        }
    }
}

impl FromStr for PortAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(PortAddress::Off),
            _ => parse_address(text).map(PortAddress::At).map_err(|refusal| format!("{refusal}, or off")),
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

impl FromStr for ValueSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse().map(|MemorySize(size)| usize::try_from(size)) {
            Ok(Ok(size @ 1..=VALUE_SIZE_MAX)) => Ok(ValueSize(size)),
            _ => Err(format!(
                "`{text}` is not the size of a value: write a number and a unit, 1B to 1MiB, such as 64KiB"
            )),
        }
    }
}

impl FromStr for MemoryOrOff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" | "0" => Ok(MemoryOrOff(0)),
            _ => text.parse().map(|MemorySize(size)| MemoryOrOff(size)).map_err(|refusal| format!("{refusal}, or off")),
        }
    }
}

impl TryFrom<toml::Value> for MemoryOrOff {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match value.as_str() {
            Some(text) => text.parse(),
            None if value.as_integer() == Some(0) => Ok(MemoryOrOff(0)),
            None => MemorySize::try_from(value)
                .map(|size| MemoryOrOff(size.0))
                .map_err(|refusal| format!("{refusal}, or \"off\"")),
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

impl FromStr for DurabilityLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "memory" => Ok(DurabilityLevel(Durability::Memory)),
            "second" => Ok(DurabilityLevel(Durability::Second)),
            "always" => Ok(DurabilityLevel(Durability::Always)),
            _ => Err(format!("`{text}` is no level of durability: write memory, second or always")),
        }
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(format!("`{text}` is no form of the log: write text or json")),
        }
    }
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
    ValueSize: Text, "\"64KiB\"";
    ShardCount: Number, "4, a whole number without quotes";
    ClientCount: Number, "10000, a whole number without quotes";
    KvSize: Number, "64, a whole number of bytes without quotes";
    Ratio: Number, "0.5, a number without quotes";
    DurabilityLevel: Text, "\"memory\", \"second\" or \"always\"";
    DelayMax: Text, "\"100ms\" or \"off\"";
    LogFormat: Text, "\"text\" or \"json\"";
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

/// Parses a port.
pub(super) fn port<'a, D: serde::Deserializer<'a>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    let hint = "is not a port: write a number from 1 to 65535, or 0 for none, without quotes";
    number(deserializer, u16::MAX.into(), hint).map(|port| u16::try_from(port).ok())
}

/// Parses a number of seconds.
pub(super) fn seconds<'a, D: serde::Deserializer<'a>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let hint = "is not a number of seconds: write a whole number from 0 to 2147483647, without quotes";
    number(deserializer, i32::MAX as u32, hint).map(Some)
}

/// Parses a whole number from 0 to the greatest. The hint says what to write.
fn number<'a, D: serde::Deserializer<'a>>(deserializer: D, greatest: u32, hint: &str) -> Result<u32, D::Error> {
    let value = <toml::Value as serde::Deserialize>::deserialize(deserializer)?;
    let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
    let refusal = || serde::de::Error::custom(format!("`{value}` {hint}"));
    number.filter(|number| *number <= greatest).ok_or_else(refusal)
}

/// Parses `true` or `false`.
pub(super) fn switch<'a, D: serde::Deserializer<'a>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    let value = <toml::Value as serde::Deserialize>::deserialize(deserializer)?;
    let refusal = || {
        serde::de::Error::custom(format!("`{value}` is neither true nor false: write true or false, without quotes"))
    };
    value.as_bool().map(Some).ok_or_else(refusal)
}
