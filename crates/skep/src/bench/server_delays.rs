//! The server's own delays: the time from the read of a request to its reply. No client can measure it.
//!
//! `INFO congestion` counts delays since the start of the server. The delays of a run are the difference between two
//! snapshots.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use skep::Password;

use crate::failure::reason;

/// Timeout for the server.
const PATIENCE: Duration = Duration::from_secs(10);
/// What to do if it is not the server.
const ADVICE: &str = "write the address of its RESP port, that of `skep serve --resp`, or leave --resp out";
/// Time between two snapshots. If both are equal, the server is at rest.
const REST: Duration = Duration::from_millis(50);
/// The most snapshots of a server that is not at rest.
const REST_SNAPSHOTS_MAX: u32 = 20;

/// The delays that a server has counted up to a moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot {
    /// The bound for delays, in microseconds.
    bound: f64,
    /// Number of operations in each bucket. The key is the upper end of the bucket in nanoseconds.
    buckets: BTreeMap<u64, u64>,
    refused: u64,
    reads_throttled: u64,
}

/// The delays that a server has counted between two snapshots. Times are in microseconds and at most a quarter too
/// large.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct ServerDelays {
    /// The bound that the server keeps; 0 if there is none.
    pub(crate) bound_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    /// Number of operations with a delay, including refused ones.
    pub(crate) operations: u64,
    pub(crate) refused: u64,
    /// Number of times that a turn of the shard had enough work and left a connection for the next turn.
    #[serde(rename = "reads_held_back")]
    pub(crate) reads_throttled: u64,
}

impl Snapshot {
    /// Reads snapshots from this RESP address until two of them are equal. A shard counts at the end of the turn that
    /// wrote the replies. That may be after a client has received them and has sent a request to another shard. If
    /// other clients use the server, the snapshots differ, and the wait ends after a while.
    pub(crate) fn at_rest(address: &str, password: Option<&Password>) -> Result<Snapshot, String> {
        let mut snapshot = Snapshot::at(address, password)?;
        for _ in 0..REST_SNAPSHOTS_MAX {
            thread::sleep(REST);
            let next = Snapshot::at(address, password)?;
            if next == snapshot {
                break;
            }
            snapshot = next;
        }
        Ok(snapshot)
    }

    fn at(address: &str, password: Option<&Password>) -> Result<Snapshot, String> {
        let text = ask(address, password)
            .map_err(|error| format!("no RESP server replies at {address}: {}: {ADVICE}", reason(&error)))?;
        Snapshot::parse(&text).ok_or_else(|| format!("the server at {address} is not a Skep server: {ADVICE}"))
    }

    fn parse(text: &str) -> Option<Snapshot> {
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let mut buckets = BTreeMap::new();
        for bucket in field("skep_delay_buckets_usec")?.split(',').filter(|bucket| !bucket.is_empty()) {
            let (microseconds, count) = bucket.split_once('=')?;
            let nanoseconds = (microseconds.parse::<f64>().ok()? * 1000.0).round() as u64;
            buckets.insert(nanoseconds, count.parse().ok()?);
        }
        Some(Snapshot {
            bound: field("skep_delay_bound_usec")?.parse().ok()?,
            buckets,
            refused: field("skep_operations_refused")?.parse().ok()?,
            reads_throttled: field("skep_reads_held_back")?.parse().ok()?,
        })
    }

    /// Returns the delays since an earlier snapshot.
    pub(crate) fn since(&self, earlier: &Snapshot) -> ServerDelays {
        let before = |end: &u64| earlier.buckets.get(end).copied().unwrap_or_default();
        let counts: Vec<_> = self
            .buckets
            .iter()
            .map(|(end, count)| (*end, count - before(end)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let operations: u64 = counts.iter().map(|(_, count)| count).sum();
        let quantile = |quantile: f64| {
            let wanted = (operations as f64 * quantile).ceil() as u64;
            let mut reached = 0;
            let found = counts.iter().find(|(_, count)| {
                reached += count;
                reached >= wanted
            });
            found.map_or(0.0, |(end, _)| *end as f64 / 1000.0)
        };
        ServerDelays {
            bound_us: self.bound,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: quantile(1.0),
            operations,
            refused: self.refused - earlier.refused,
            reads_throttled: self.reads_throttled - earlier.reads_throttled,
        }
    }
}

fn ask(address: &str, password: Option<&Password>) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    if let Some(password) = password {
        write!(stream, "*2\r\n$4\r\nAUTH\r\n${}\r\n", password.bytes().len())?;
        stream.write_all(password.bytes())?;
        stream.write_all(b"\r\n")?;
    }
    stream.write_all(b"INFO congestion\r\n")?;
    let mut reader = BufReader::new(stream);
    let mut header = String::new();
    if password.is_some() {
        reader.by_ref().take(128).read_line(&mut header)?;
        if header.trim() != "+OK" {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, header.trim().to_owned()));
        }
        header.clear();
    }
    reader.by_ref().take(32).read_line(&mut header)?;
    let size: Option<u64> = header.strip_prefix('$').and_then(|size| size.trim().parse().ok());
    let size =
        size.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("the reply is {}", header.trim())))?;
    let mut text = String::new();
    reader.take(size).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::Snapshot;

    fn snapshot(buckets: &str, refused: u64) -> Snapshot {
        let text = format!(
            "# Congestion\r\nskep_delay_bound_usec:100000.000\r\nskep_delay_buckets_usec:{buckets}\r\n\
             skep_reads_held_back:{}\r\nskep_operations_refused:{refused}\r\n",
            2 * refused
        );
        Snapshot::parse(&text).expect("the text has all fields")
    }

    #[test]
    fn delays_are_counted_between_two_snapshots() {
        let (first, second) = (snapshot("10.240=1000,81920.000=5", 1), snapshot("10.240=1990,12.288=9,81920.000=6", 4));
        let delays = second.since(&first);
        assert_eq!((delays.operations, delays.refused, delays.reads_throttled), (1000, 3, 6));
        assert_eq!((delays.p50_us, delays.p99_us, delays.p999_us, delays.max_us), (10.24, 10.24, 12.288, 81_920.0));
        let nothing = snapshot("", 0).since(&snapshot("", 0));
        assert_eq!((nothing.operations, nothing.max_us, nothing.bound_us), (0, 0.0, 100_000.0));
        assert_eq!(Snapshot::parse("# Server\r\n"), None);
    }
}
