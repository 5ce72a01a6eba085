//! What a server says about its delays: the time from the read of a request to its reply, which no client can measure.
//!
//! `INFO congestion` counts delays since the start of the server; what came between two looks is the difference.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::failure::reason;

/// How long to wait for the server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Two looks this far apart that show the same are of a server at rest.
const REST: Duration = Duration::from_millis(50);
/// Most looks at a server that is not.
const REST_LOOKS_MAX: u32 = 20;

/// What a server had counted at a moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Look {
    /// Microseconds.
    bound: f64,
    /// Operations whose delays lie in the bucket that ends there, in nanoseconds.
    buckets: BTreeMap<u64, u64>,
    refused: u64,
    reads_held_back: u64,
}

/// What a server has counted between two looks. Times are in microseconds, at most a quarter too large.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct ServerDelays {
    /// What the server promises; 0: nothing.
    pub(crate) bound_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    /// Operations with such a delay, refused ones too.
    pub(crate) operations: u64,
    pub(crate) refused: u64,
    /// How often a connection was left for the next turn, because a turn had enough to do.
    pub(crate) reads_held_back: u64,
}

impl Look {
    /// Asks the server at this RESP address until it has counted all that is answered: a shard counts at the end of the
    /// turn that wrote the replies, perhaps after whoever got them has asked another shard. One that others use too is not
    /// waited for.
    pub(crate) fn at_rest(address: &str) -> Result<Look, String> {
        let mut look = Look::at(address)?;
        for _ in 0..REST_LOOKS_MAX {
            thread::sleep(REST);
            let next = Look::at(address)?;
            if next == look {
                break;
            }
            look = next;
        }
        Ok(look)
    }

    fn at(address: &str) -> Result<Look, String> {
        let text = ask(address).map_err(|error| format!("no RESP server answers at {address}: {}", reason(&error)))?;
        Look::parse(&text).ok_or_else(|| format!("the server at {address} does not tell its delays"))
    }

    fn parse(text: &str) -> Option<Look> {
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let mut buckets = BTreeMap::new();
        for bucket in field("skep_delay_buckets_usec")?.split(',').filter(|bucket| !bucket.is_empty()) {
            let (microseconds, count) = bucket.split_once('=')?;
            let nanoseconds = (microseconds.parse::<f64>().ok()? * 1000.0).round() as u64;
            buckets.insert(nanoseconds, count.parse().ok()?);
        }
        Some(Look {
            bound: field("skep_delay_bound_usec")?.parse().ok()?,
            buckets,
            refused: field("skep_operations_refused")?.parse().ok()?,
            reads_held_back: field("skep_reads_held_back")?.parse().ok()?,
        })
    }

    /// What came since an earlier look.
    pub(crate) fn since(&self, earlier: &Look) -> ServerDelays {
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
            let mut met = 0;
            let found = counts.iter().find(|(_, count)| {
                met += count;
                met >= wanted
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
            reads_held_back: self.reads_held_back - earlier.reads_held_back,
        }
    }
}

fn ask(address: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"INFO congestion\r\n")?;
    let mut reader = BufReader::new(stream);
    let mut header = String::new();
    reader.by_ref().take(32).read_line(&mut header)?;
    let size: Option<u64> = header.strip_prefix('$').and_then(|size| size.trim().parse().ok());
    let size = size.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("it says {}", header.trim())))?;
    let mut text = String::new();
    reader.take(size).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::Look;

    fn look(buckets: &str, refused: u64) -> Look {
        let text = format!(
            "# Congestion\r\nskep_delay_bound_usec:100000.000\r\nskep_delay_buckets_usec:{buckets}\r\n\
             skep_reads_held_back:{}\r\nskep_operations_refused:{refused}\r\n",
            2 * refused
        );
        Look::parse(&text).expect("all fields are there")
    }

    #[test]
    fn what_came_between_is_what_counts() {
        let (first, second) = (look("10.240=1000,81920.000=5", 1), look("10.240=1990,12.288=9,81920.000=6", 4));
        let delays = second.since(&first);
        assert_eq!((delays.operations, delays.refused, delays.reads_held_back), (1000, 3, 6));
        assert_eq!((delays.p50_us, delays.p99_us, delays.p999_us, delays.max_us), (10.24, 10.24, 12.288, 81_920.0));
        let nothing = look("", 0).since(&look("", 0));
        assert_eq!((nothing.operations, nothing.max_us, nothing.bound_us), (0, 0.0, 100_000.0));
        assert_eq!(Look::parse("# Server\r\n"), None);
    }
}
