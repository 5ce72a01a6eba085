//! The witnesses: two well-behaved clients next to the attacks. Every reply to them is compared with a naive model.
//!
//! A witness executes one operation at a time on its own keys, in both spaces. It knows their values, so each reply
//! must be the one of the model. Only one refusal is right: OUT_OF_MEMORY for a put of a new key, or of a value of
//! another size. Deletes and overwrites of the same size must succeed, however full the store is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_client::{Client, ClientError, KeyRange};
use skep_wire::native::{HASH_SPACE, ORDERED_SPACE};

use super::resp::{Reply as RespReply, Resp};

/// Keys of a witness in each space.
const KEY_COUNT: u32 = 300;
/// Sizes of the values.
const VALUE_SIZES: [usize; 6] = [0, 5, 16, 100, 700, 20_000];
/// Pairs in a scan: as many as fit into a page of 64 KiB, so that no lease is needed.
const SCAN_LIMIT: usize = 3;
/// Pause between two operations: a witness measures delays and must not add to the load.
const PAUSE: Duration = Duration::from_millis(1);
/// Intended time between two operations, in microseconds. See [`Findings::over_time`].
const INTERVAL_MICROS: u64 = 2000;
/// Most errors that are reported in words.
const ERRORS_SHOWN: usize = 5;
/// Most slow operations that are reported in words.
const SLOW_SHOWN: usize = 40;
/// An operation is slow from this latency on.
const SLOW: Duration = Duration::from_millis(100);
/// The longest latency that the histograms hold, in microseconds.
const LATENCY_MAX: u64 = 600_000_000;

/// The protocol of a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Resp,
    Native,
}

/// Signals between the main thread and a witness.
pub(super) struct Signals {
    pub(super) begun: Instant,
    pub(super) stop: AtomicBool,
    /// True after the witness has stopped.
    pub(super) ended: AtomicBool,
    /// Milliseconds from the start to the last reply.
    pub(super) last_reply: AtomicU64,
}

/// The result of a witness.
pub(super) struct Findings {
    pub(super) operations: u64,
    pub(super) out_of_memory: u64,
    pub(super) error_count: u64,
    /// Descriptions of the first errors.
    pub(super) errors: Vec<String>,
    /// Descriptions of the first slow operations.
    pub(super) slow: Vec<String>,
    /// Latencies of the operations, in microseconds.
    pub(super) latencies: Histogram<u64>,
    /// These latencies, and those of operations that could not begin in time because another one was in flight. Each of
    /// them counts as if it had begun in time. A stall of one second is one operation in `latencies`, and five hundred
    /// here.
    pub(super) over_time: Histogram<u64>,
}

/// An operation on one key, or a scan that begins at it.
#[derive(Clone, Debug)]
enum Step {
    Get,
    Put(Vec<u8>),
    Delete,
    Scan,
}

/// A valid reply.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    Done,
    Value(Option<Vec<u8>>),
    /// True if the key existed.
    Deleted(bool),
    Pairs(Vec<Pair>),
}

/// Any other outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Trouble {
    OutOfMemory(String),
    /// An error reply.
    Refused(String),
    /// The connection has failed. The operation may have taken effect.
    Broken(String),
}

type Pair = (Vec<u8>, Vec<u8>);
type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Compares a reply with the model and updates the model. Returns true if the operation was refused for lack of memory,
/// or an error that describes a wrong reply.
fn check(pairs: &mut Pairs, key: &[u8], step: &Step, reply: Result<Reply, Trouble>) -> Result<bool, String> {
    let expected = match step {
        Step::Get => Reply::Value(pairs.get(key).cloned()),
        Step::Put(_) => Reply::Done,
        Step::Delete => Reply::Deleted(pairs.contains_key(key)),
        Step::Scan => {
            let from = pairs.range(key.to_vec()..).take(SCAN_LIMIT);
            Reply::Pairs(from.map(|(key, value)| (key.clone(), value.clone())).collect())
        }
    };
    let name = || format!("{} of {}", step.name(), key.escape_ascii());
    match reply {
        Ok(reply) if reply == expected => {}
        Ok(reply) => return Err(format!("{}: wrong reply: {}, not {}", name(), reply.text(), expected.text())),
        Err(Trouble::OutOfMemory(reason)) => {
            return match step {
                Step::Put(value) if pairs.get(key).is_none_or(|old| old.len() != value.len()) => Ok(true),
                _ => Err(format!("{}: must not need memory: {reason}", name())),
            };
        }
        Err(Trouble::Refused(reason) | Trouble::Broken(reason)) => return Err(format!("{}: {reason}", name())),
    }
    match step {
        Step::Put(value) => _ = pairs.insert(key.to_vec(), value.clone()),
        Step::Delete => _ = pairs.remove(key),
        Step::Get | Step::Scan => {}
    }
    Ok(false)
}

impl Step {
    fn name(&self) -> String {
        match self {
            Step::Get => "GET".to_owned(),
            Step::Put(value) => format!("PUT of {} B", value.len()),
            Step::Delete => "DELETE".to_owned(),
            Step::Scan => "scan".to_owned(),
        }
    }
}

impl Reply {
    /// Describes the reply in a few words: values by their sizes.
    fn text(&self) -> String {
        match self {
            Reply::Value(value) => format!("value of {:?} B", value.as_ref().map(Vec::len)),
            Reply::Pairs(pairs) => format!("{} pairs", pairs.len()),
            other => format!("{other:?}"),
        }
    }
}

/// The connection of a witness to one space.
enum Link {
    Resp(Resp),
    Native(Box<Client>),
}

impl Link {
    fn connect(protocol: Protocol, address: SocketAddr, space: u16) -> Result<Self, String> {
        if protocol == Protocol::Native {
            let client = Client::connect(address, space).map_err(|error| error.to_string())?;
            return Ok(Link::Native(Box::new(client)));
        }
        // The main thread kills the server if a witness waits too long, which ends the connection.
        let mut resp = Resp::connect(address, None).map_err(|error| error.to_string())?;
        match resp.call(&[b"SELECT", space.to_string().as_bytes()]) {
            Ok(RespReply::Simple(_)) => Ok(Link::Resp(resp)),
            other => Err(format!("SELECT: {other:?}")),
        }
    }

    fn execute(&mut self, prefix: &[u8], key: &[u8], step: &Step) -> Result<Reply, Trouble> {
        match self {
            Link::Native(client) => {
                let reply = native(client, prefix, key, step).map_err(|error| match error {
                    ClientError::Operation(error) if error.is_out_of_memory() => {
                        Trouble::OutOfMemory(error.to_string())
                    }
                    ClientError::Operation(_) | ClientError::Rejected(_) => Trouble::Refused(error.to_string()),
                    _ => Trouble::Broken(error.to_string()),
                })?;
                // The client repeats reads by itself, but the server must not close its connection.
                match client.reconnection_count() {
                    0 => Ok(reply),
                    _ => Err(Trouble::Broken("the server closed the connection".to_owned())),
                }
            }
            Link::Resp(resp) => resp_step(resp, prefix, key, step),
        }
    }
}

fn native(client: &mut Client, prefix: &[u8], key: &[u8], step: &Step) -> Result<Reply, ClientError> {
    Ok(match step {
        Step::Get => Reply::Value(client.get(key)?),
        Step::Put(value) => {
            client.put(key, value)?;
            Reply::Done
        }
        Step::Delete => Reply::Deleted(client.delete(key)?),
        Step::Scan => {
            let range = KeyRange::prefix(prefix).at_or_above(key).limit(SCAN_LIMIT as u64);
            Reply::Pairs(client.scan(range)?)
        }
    })
}

fn resp_step(resp: &mut Resp, prefix: &[u8], key: &[u8], step: &Step) -> Result<Reply, Trouble> {
    let (start, end) = ([b"[", key].concat(), [b"(", prefix, b"\xff"].concat());
    let limit = SCAN_LIMIT.to_string();
    let words: &[&[u8]] = match step {
        Step::Get => &[b"GET", key],
        Step::Put(value) => &[b"SET", key, value],
        Step::Delete => &[b"DEL", key],
        Step::Scan => &[b"SKEP.SCAN", &start, &end, b"LIMIT", limit.as_bytes()],
    };
    match (step, resp.call(words).map_err(|error| Trouble::Broken(error.to_string()))?) {
        (_, RespReply::Error(text)) if text.starts_with("OOM ") => Err(Trouble::OutOfMemory(text)),
        (_, RespReply::Error(text)) => Err(Trouble::Refused(text)),
        (Step::Get, RespReply::Bulk(value)) => Ok(Reply::Value(value)),
        (Step::Put(_), RespReply::Simple(text)) if text == "OK" => Ok(Reply::Done),
        (Step::Delete, RespReply::Integer(count @ 0..=1)) => Ok(Reply::Deleted(count == 1)),
        (Step::Scan, RespReply::Array(parts)) => match pairs_of(parts) {
            Some(pairs) => Ok(Reply::Pairs(pairs)),
            None => Err(Trouble::Refused("a page that cannot be decoded".to_owned())),
        },
        (_, other) => Err(Trouble::Refused(format!("a reply of the wrong type: {other:?}"))),
    }
}

/// Returns the pairs of a page. Its second part holds keys and values alternately.
fn pairs_of(parts: Vec<RespReply>) -> Option<Vec<Pair>> {
    let RespReply::Array(words) = parts.into_iter().nth(1)? else { return None };
    let word = |word| if let RespReply::Bulk(Some(word)) = word { Some(word) } else { None };
    let words: Vec<Vec<u8>> = words.into_iter().map(word).collect::<Option<_>>()?;
    Some(words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

/// Executes operations until `signals.stop` is set.
pub(super) fn run(protocol: Protocol, address: SocketAddr, seed: u64, signals: &Signals) -> Findings {
    let latencies = Histogram::new_with_bounds(1, LATENCY_MAX, 3).expect("the bounds are valid");
    let mut findings = Findings {
        operations: 0,
        out_of_memory: 0,
        error_count: 0,
        errors: Vec::new(),
        slow: Vec::new(),
        over_time: latencies.clone(),
        latencies,
    };
    let prefix = format!("witness:{protocol:?}:").into_bytes();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut spaces = [HASH_SPACE, ORDERED_SPACE].map(|space| (space, Pairs::new(), None));
    while !signals.stop.load(Ordering::Relaxed) {
        let index = random.random_range(0..spaces.len());
        let (space, pairs, link) = &mut spaces[index];
        let key = [prefix.as_slice(), format!("{:03}", random.random_range(0..KEY_COUNT)).as_bytes()].concat();
        let step = draw(&mut random, *space == ORDERED_SPACE);
        let begun = Instant::now();
        let reply = execute(link, protocol, address, *space, &prefix, &key, &step);
        if let Err(Trouble::Broken(_)) = &reply {
            *link = None;
            // A read over a new connection shows whether the operation took effect.
            match execute(link, protocol, address, *space, &prefix, &key, &Step::Get) {
                Ok(Reply::Value(Some(value))) => _ = pairs.insert(key.clone(), value),
                Ok(_) => _ = pairs.remove(&key),
                Err(_) => *link = None,
            }
            thread::sleep(100 * PAUSE);
        }
        let is_reply = !matches!(reply, Err(Trouble::Broken(_)));
        match check(pairs, &key, &step, reply) {
            Ok(out_of_memory) => findings.out_of_memory += u64::from(out_of_memory),
            Err(error) => findings.error(format!("{:?}, space {space}: {error}", begun - signals.begun)),
        }
        if is_reply {
            findings.operations += 1;
            if begun.elapsed() >= SLOW && findings.slow.len() < SLOW_SHOWN {
                let (at, waited) = (begun - signals.begun, begun.elapsed());
                findings.slow.push(format!("at {at:.1?}, space {space}: {} waited {waited:.1?}", step.name()));
            }
            let micros = (begun.elapsed().as_micros() as u64).clamp(1, LATENCY_MAX);
            findings.latencies.saturating_record(micros);
            findings.over_time.record_correct(micros, INTERVAL_MICROS).expect("the latency is within the bounds");
            signals.last_reply.store(signals.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
        thread::sleep(PAUSE);
    }
    signals.ended.store(true, Ordering::Relaxed);
    findings
}

/// Executes a step on the connection to a space. Opens the connection if there is none.
fn execute(
    link: &mut Option<Link>,
    protocol: Protocol,
    address: SocketAddr,
    space: u16,
    prefix: &[u8],
    key: &[u8],
    step: &Step,
) -> Result<Reply, Trouble> {
    if link.is_none() {
        *link = Some(Link::connect(protocol, address, space).map_err(Trouble::Broken)?);
    }
    link.as_mut().expect("it was opened above").execute(prefix, key, step)
}

/// Draws a step. Half of the puts have a size that the key probably has already.
fn draw(random: &mut Xoshiro256PlusPlus, is_ordered: bool) -> Step {
    match random.random_range(0..10) {
        0..=3 => Step::Get,
        4..=6 => {
            let size = VALUE_SIZES[if random.random_bool(0.5) { 2 } else { random.random_range(0..VALUE_SIZES.len()) }];
            Step::Put((0..size).map(|_| random.random()).collect())
        }
        7 | 8 => Step::Delete,
        _ if is_ordered => Step::Scan,
        _ => Step::Get,
    }
}

impl Findings {
    fn error(&mut self, description: String) {
        self.error_count += 1;
        if self.errors.len() < ERRORS_SHOWN {
            self.errors.push(description);
        }
    }

    /// Returns median, 99th percentile and maximum of the latencies, and the 99th percentile over time, in milliseconds.
    pub(super) fn latencies(&self) -> [f64; 4] {
        let latency = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        let [median, p99, max] = [0.5, 0.99, 1.0].map(|quantile| latency(&self.latencies, quantile));
        [median, p99, max, latency(&self.over_time, 0.99)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"k";

    fn pairs() -> Pairs {
        Pairs::from([(KEY.to_vec(), b"old".to_vec())])
    }

    fn out_of_memory() -> Result<Reply, Trouble> {
        Err(Trouble::OutOfMemory("full".to_owned()))
    }

    #[test]
    fn right_replies_update_the_model() {
        let mut pairs = pairs();
        let mut right = |step, reply| assert_eq!(check(&mut pairs, KEY, &step, Ok(reply)), Ok(false), "{step:?}");
        right(Step::Get, Reply::Value(Some(b"old".to_vec())));
        right(Step::Put(b"new value".to_vec()), Reply::Done);
        right(Step::Get, Reply::Value(Some(b"new value".to_vec())));
        right(Step::Scan, Reply::Pairs(vec![(KEY.to_vec(), b"new value".to_vec())]));
        right(Step::Delete, Reply::Deleted(true));
        right(Step::Delete, Reply::Deleted(false));
        right(Step::Get, Reply::Value(None));
        right(Step::Scan, Reply::Pairs(Vec::new()));
    }

    #[test]
    fn other_replies_are_errors() {
        for (step, reply) in [
            (Step::Get, Reply::Value(None)),
            (Step::Get, Reply::Value(Some(b"new".to_vec()))),
            (Step::Delete, Reply::Deleted(false)),
            (Step::Scan, Reply::Pairs(Vec::new())),
        ] {
            assert!(check(&mut pairs(), KEY, &step, Ok(reply)).is_err(), "{step:?}");
        }
        let busy = Err(Trouble::Refused("busy".to_owned()));
        assert!(check(&mut pairs(), KEY, &Step::Get, busy).is_err());
    }

    #[test]
    fn only_puts_of_new_keys_and_of_other_sizes_may_need_memory() {
        let mut pairs = pairs();
        let longer = Step::Put(b"a longer one".to_vec());
        assert_eq!(check(&mut pairs, KEY, &longer, out_of_memory()), Ok(true));
        assert_eq!(check(&mut pairs, b"another", &Step::Put(Vec::new()), out_of_memory()), Ok(true));
        assert_eq!(check(&mut pairs, KEY, &Step::Get, Ok(Reply::Value(Some(b"old".to_vec())))), Ok(false));
        for step in [Step::Put(b"new".to_vec()), Step::Delete, Step::Get, Step::Scan] {
            assert!(check(&mut pairs, KEY, &step, out_of_memory()).is_err(), "{step:?}");
        }
    }
}
