//! A client of the simulation: it sends random requests in pieces, takes the replies when it likes, and checks each of
//! them against a naive store of its own. No other client uses its keys, so its replies do not depend on the order of
//! clients.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::{Operation, PutCondition, Reply, Request};
use skep_store::naive::{
    EXPIRIES_END, Generator, GeneratorSettings, Mix, NaiveReply, NaiveStore, OwnedRequest, SizeWeights,
};
use skep_wire::native::{Hello, ORDERED_SPACE, ReplyFrame, RequestFrameWriter, Welcome, WireError};

use crate::transport::pipe::ClientEnd;

/// Requests that a client has sent, and that have no reply, from which on it sends no more.
const OUTSTANDING_MAX: usize = 300;
/// A client that speaks RESP asks for all keys, or for their number, once in this number of requests.
const REQUESTS_PER_KEYS: usize = 40;

/// A request that has no reply.
enum Asked {
    /// An operation on a key.
    Operation(OwnedRequest),
    /// `KEYS *`
    Keys,
    /// `DBSIZE`
    Size,
}

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Native frames, to a space. The client waits for its welcome first.
    Native {
        space: u16,
        is_welcome: bool,
    },
    Resp,
}

/// A client.
pub(super) struct Client {
    pub(super) number: usize,
    end: ClientEnd,
    protocol: Protocol,
    generator: Generator,
    naive: NaiveStore,
    /// Requests that are still to be made.
    left: usize,
    outstanding: VecDeque<Asked>,
    /// The keys of all requests that have a reply.
    keys: BTreeSet<Vec<u8>>,
    unsent: Vec<u8>,
    received: Vec<u8>,
    /// It takes a few bytes now and then.
    is_slow: bool,
    /// The number of requests after which it vanishes.
    vanishes_at: Option<usize>,
    pub(super) state: State,
    /// Replies so far, and those of them that were refusals.
    pub(super) replies: u64,
    pub(super) refusals: u64,
}

/// How far a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It sends requests, or waits for replies.
    Active,
    /// It has all replies, and has closed its side.
    Finished,
    /// It has vanished.
    Vanished,
}

/// Returns the mix of a space: only an ordered space has scans, and RESP has few commands.
fn mix(protocol: Protocol) -> Mix {
    let all = Mix {
        get: 8,
        contains: 2,
        put: 8,
        put_if_absent: 2,
        put_if_present: 2,
        delete: 2,
        update: 4,
        reduce: 2,
        filter: 2,
        add_decimal: 3,
        string_read: 3,
        string_write: 4,
        call: 4,
        scan: 0,
    };
    match protocol {
        Protocol::Native { space: ORDERED_SPACE, .. } => Mix { scan: 4, ..all },
        Protocol::Native { .. } => all,
        Protocol::Resp => Mix { update: 0, reduce: 0, filter: 0, string_read: 0, string_write: 0, call: 0, ..all },
    }
}

impl Client {
    pub(super) fn new(
        number: usize,
        seed: u64,
        protocol: Protocol,
        end: ClientEnd,
        random: &mut Xoshiro256PlusPlus,
    ) -> Client {
        let generator = Generator::new(GeneratorSettings {
            seed,
            key_count: 60,
            // Long enough that no other client has the same key.
            key_size: 16..=40,
            sizes: SizeWeights { empty: 1, inline: 10, slab: 10, large: 3 },
            large_size_max: 20_000,
            mix: mix(protocol),
            invalid_per_mille: if protocol == Protocol::Resp { 0 } else { 20 },
        });
        let is_ordered = protocol == Protocol::Native { space: ORDERED_SPACE, is_welcome: false };
        let unsent = match protocol {
            Protocol::Native { .. } => Hello::new(None).encode().to_vec(),
            Protocol::Resp => Vec::new(),
        };
        let left = random.random_range(200..600);
        let mut naive = if is_ordered { NaiveStore::ordered() } else { NaiveStore::new() };
        naive.set_now(EXPIRIES_END);
        Client {
            number,
            end,
            protocol,
            generator,
            naive,
            left,
            outstanding: VecDeque::new(),
            keys: BTreeSet::new(),
            unsent,
            received: Vec::new(),
            is_slow: random.random_ratio(1, 4),
            vanishes_at: random.random_ratio(1, 5).then(|| random.random_range(0..left)),
            state: State::Active,
            replies: 0,
            refusals: 0,
        }
    }

    /// Returns the client's end of the pipe.
    pub(super) fn end(&self) -> &ClientEnd {
        &self.end
    }

    /// Lets the client do something. The bytes that it sends arrive at `due`. Replies go to `trace`; a wrong one is an
    /// error. A server that stops may end the connection before all replies.
    pub(super) fn act(
        &mut self,
        due: Instant,
        is_stopping: bool,
        random: &mut Xoshiro256PlusPlus,
        trace: impl FnMut(&[u8]),
    ) -> Result<(), String> {
        if self.vanishes_at.is_some_and(|left| self.left <= left) {
            self.end.reset();
            self.state = State::Vanished;
            return Ok(());
        }
        let may_ask = !matches!(self.protocol, Protocol::Native { is_welcome: false, .. });
        if may_ask && self.left > 0 && self.outstanding.len() < OUTSTANDING_MAX && random.random_ratio(1, 2) {
            self.ask(random.random_range(1..=150));
        }
        let size = match random.random_range(0..4) {
            0 => 1,
            1 => random.random_range(1..=40),
            _ => usize::MAX,
        };
        let sent = self.end.send(&self.unsent[..self.unsent.len().min(size)], due);
        self.unsent.drain(..sent);
        if !self.is_slow || random.random_ratio(1, 8) {
            let count = if self.is_slow { random.random_range(1..=2000) } else { usize::MAX };
            self.received.extend(self.end.take(count));
            self.check(trace)?;
        }
        if self.left == 0 && self.outstanding.is_empty() {
            self.end.finish();
            self.state = State::Finished;
        } else if self.end.has_ended() && is_stopping {
            self.state = State::Finished;
        } else if self.end.has_ended() {
            return Err(format!("the server ended the connection, {} replies are missing", self.outstanding.len()));
        }
        Ok(())
    }

    /// Makes requests.
    fn ask(&mut self, count: usize) {
        let mut requests: Vec<OwnedRequest> = (&mut self.generator).take(count.min(self.left)).collect();
        match self.protocol {
            Protocol::Native { space, .. } => {
                let mut writer = RequestFrameWriter::new(&mut self.unsent, 0, space);
                let fitting = requests.iter().take_while(|request| writer.push(&request.as_request())).count();
                writer.finish();
                // An invalid request may not fit a frame at all.
                self.left -= usize::from(fitting == 0);
                requests.truncate(fitting);
            }
            Protocol::Resp => {}
        }
        for request in requests {
            if self.protocol == Protocol::Resp {
                self.ask_about_all();
                self.unsent.extend(command(&request));
            }
            self.left -= 1;
            self.outstanding.push_back(Asked::Operation(request));
        }
    }

    /// Asks for all keys, or for their number, now and then.
    fn ask_about_all(&mut self) {
        let (command, asked) = match self.left % REQUESTS_PER_KEYS {
            0 => ("KEYS *\r\n", Asked::Keys),
            1 => ("DBSIZE\r\n", Asked::Size),
            _ => return,
        };
        self.unsent.extend(command.as_bytes());
        self.outstanding.push_back(asked);
    }

    /// Checks the replies that have arrived as a whole.
    fn check(&mut self, mut trace: impl FnMut(&[u8])) -> Result<(), String> {
        let received = std::mem::take(&mut self.received);
        let mut rest = &received[..];
        loop {
            let size = match self.protocol {
                Protocol::Native { space, is_welcome: false } => {
                    let welcome = Welcome::decode(rest).map_err(|error| error.to_string())?;
                    let is_welcome = welcome.is_some();
                    self.protocol = Protocol::Native { space, is_welcome };
                    if is_welcome { Some(Welcome::SIZE) } else { None }
                }
                Protocol::Native { .. } => match ReplyFrame::decode(rest).map_err(|error| error.to_string())? {
                    Some((frame, size)) => {
                        for response in frame.replies() {
                            self.check_response(response.map_err(|error| error.to_string())?)?;
                        }
                        Some(size)
                    }
                    None => None,
                },
                Protocol::Resp => match resp_size(rest) {
                    Some(size) => {
                        self.check_resp(&rest[..size])?;
                        Some(size)
                    }
                    None => None,
                },
            };
            let Some(size) = size else { break };
            trace(&rest[..size]);
            rest = &rest[size..];
        }
        self.received = rest.to_vec();
        Ok(())
    }

    fn next_request(&mut self) -> Result<Asked, String> {
        self.replies += 1;
        self.outstanding.pop_front().ok_or_else(|| "a reply that no request has".to_owned())
    }

    /// Returns the keys of this client that exist.
    fn existing_keys(&mut self) -> BTreeSet<Vec<u8>> {
        let Client { keys, naive, .. } = self;
        let exists =
            |key: &&Vec<u8>| naive.execute(&Request { key, operation: Operation::Contains }) == NaiveReply::Done;
        keys.iter().filter(exists).cloned().collect()
    }

    /// Checks the reply to `KEYS *`: of the keys of this client, it has those that exist. Other clients have other keys.
    fn check_keys(&mut self, reply: &[u8]) -> Result<(), String> {
        if reply.starts_with(b"-ERR the keys take more") {
            self.refusals += 1;
            return Ok(());
        }
        let mut found = BTreeSet::new();
        let mut rest = &reply[line_size(reply).ok_or("no line")?..];
        while let Some(line) = line_size(rest) {
            let size = resp_size(rest).ok_or("no whole key")?;
            found.insert(rest[line..size - 2].to_vec());
            rest = &rest[size..];
        }
        let expected = self.existing_keys();
        let missing = expected.difference(&found).next();
        if let Some(key) = missing {
            return Err(format!("KEYS lacks {}", key.escape_ascii()));
        }
        let is_removed = |key: &&Vec<u8>| !expected.contains(*key) && self.keys.contains(*key);
        match found.iter().find(is_removed) {
            Some(key) => Err(format!("KEYS has {}, which does not exist", key.escape_ascii())),
            None => Ok(()),
        }
    }

    /// Checks the reply to `DBSIZE`: there are at least the keys of this client.
    fn check_size(&mut self, reply: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(reply).map_err(|error| error.to_string())?;
        let size = text.trim_end().strip_prefix(':').and_then(|number| number.parse().ok());
        let own = self.existing_keys().len();
        if size.is_some_and(|size: usize| size >= own) {
            Ok(())
        } else {
            Err(format!("{text} to DBSIZE, of {own} keys"))
        }
    }

    fn check_response(&mut self, response: Result<Reply<'_>, WireError>) -> Result<(), String> {
        let Asked::Operation(request) = self.next_request()? else {
            return Err("a native reply to a command".to_owned());
        };
        match response {
            Err(WireError::Busy) => self.refusals += 1,
            Err(error) => return Err(format!("{error} to {request:?}")),
            Ok(reply) => self
                .naive
                .check(&request.as_request(), reply)
                .map_err(|expected| format!("{reply:?} to {request:?}, expected {expected:?}"))?,
        }
        Ok(())
    }

    fn check_resp(&mut self, reply: &[u8]) -> Result<(), String> {
        let request = match self.next_request()? {
            Asked::Operation(request) => request,
            Asked::Keys => return self.check_keys(reply),
            Asked::Size => return self.check_size(reply),
        };
        self.keys.insert(request.key.clone());
        if reply.starts_with(b"-BUSY") {
            self.refusals += 1;
            return Ok(());
        }
        let expected = encoded(&request, self.naive.execute(&request.as_request()));
        let is_right = if expected == b"-" { reply.starts_with(b"-ERR") } else { reply == expected };
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        if is_right { Ok(()) } else { Err(format!("{} to {request:?}, expected {}", text(reply), text(&expected))) }
    }
}

/// Returns the command of a request.
fn command(request: &OwnedRequest) -> Vec<u8> {
    let key = &request.key[..];
    let number;
    let arguments: Vec<&[u8]> = match request.as_request().operation {
        Operation::Get => vec![b"GET", key],
        Operation::Contains => vec![b"EXISTS", key],
        Operation::Delete => vec![b"DEL", key],
        Operation::Put { value, condition: PutCondition::Always } => vec![b"SET", key, value],
        Operation::Put { value, condition: PutCondition::IfAbsent } => vec![b"SET", key, value, b"NX"],
        Operation::Put { value, condition: PutCondition::IfPresent } => vec![b"SET", key, value, b"XX"],
        Operation::AddDecimal { delta } => {
            number = delta.to_string();
            vec![b"INCRBY", key, number.as_bytes()]
        }
        operation => unreachable!("no command for {operation:?}"),
    };
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
        bytes.extend(argument);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Returns the encoded reply to a command; `-` for any error.
fn encoded(request: &OwnedRequest, reply: NaiveReply) -> Vec<u8> {
    let is_counted = matches!(request.as_request().operation, Operation::Contains | Operation::Delete);
    match reply {
        NaiveReply::Failed(_) => b"-".to_vec(),
        NaiveReply::Done if is_counted => b":1\r\n".to_vec(),
        _ if is_counted => b":0\r\n".to_vec(),
        NaiveReply::Done => b"+OK\r\n".to_vec(),
        NaiveReply::NotFound | NaiveReply::Exists => b"$-1\r\n".to_vec(),
        NaiveReply::Value(value) => match request.as_request().operation {
            Operation::AddDecimal { .. } => [&b":"[..], &value, b"\r\n"].concat(),
            _ => [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat(),
        },
    }
}

/// Returns the size of the first line, with its end.
fn line_size(bytes: &[u8]) -> Option<usize> {
    Some(bytes.windows(2).position(|pair| pair == b"\r\n")? + 2)
}

/// Returns the size of the first reply, if it has arrived as a whole.
fn resp_size(bytes: &[u8]) -> Option<usize> {
    let line = line_size(bytes)?;
    let size = match bytes[0] {
        b'*' => {
            let count: usize = std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse().ok()?;
            (0..count).try_fold(line, |size, _| Some(size + resp_size(&bytes[size..])?))?
        }
        b'$' => match std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok()? {
            -1 => line,
            size => line + usize::try_from(size).ok()? + 2,
        },
        _ => line,
    };
    (bytes.len() >= size).then_some(size)
}
