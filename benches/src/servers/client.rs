//! The client: one thread, many connections, one batch in flight on each.
//!
//! ```text
//! connection   send batch ─▶ count reply bytes until all have arrived ─▶ send the next
//! ```
//!
//! The client polls instead of sleeping, because waking up is slow in a virtual machine and would be measured too. The
//! time between a poll that found nothing and the next one that found something counts as waiting.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustls::ClientConfig;
use skep_wire::native::{Hello, ReplyFrame, Welcome};

use super::echo::PREFACE_SIZE;
use super::stream::Stream;
use super::template::{Protocol, Template};
use crate::keys::Draw;
use crate::process::processor_seconds_of_thread;

/// One of this many batches of a connection is compared byte by byte.
const SAMPLED_IN: u64 = 64;
/// The most bytes in one read.
const BUFFER_SIZE: usize = 64 << 10;
/// A server that sends nothing for this long has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a reply that an error shows.
const SHOWN: usize = 120;

/// The records of the requests.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Random records, without end.
    Drawn(Draw),
    /// Each record once; the last batch is filled up with the last record.
    Each(Range<u64>),
}

/// The end of a run: after this time, or `None` for the end of the source.
pub(crate) type Limit = Option<Duration>;

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tally {
    /// Number of requests with a reply.
    pub(crate) operations: u64,
    /// Duration in seconds.
    pub(crate) seconds: f64,
    /// Processor time of the client, divided by the duration.
    pub(crate) client_cpu: f64,
    /// Share of the time in which no reply was available.
    pub(crate) waiting: f64,
    /// Number of gets whose key was missing. Only a cache may miss any.
    pub(crate) misses: u64,
}

impl Tally {
    /// Returns the requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

/// Connections to one server.
pub(crate) struct Client {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    template: Template,
    records: Vec<u64>,
    misses: u64,
    /// Nanoseconds from the send of each batch to its last reply, if they are asked for.
    pub(crate) latencies: Option<Histogram<u64>>,
}

struct Connection {
    stream: Stream,
    /// True if a batch is in flight.
    is_waiting: bool,
    /// When it was sent, if latencies are asked for.
    sent_at: Option<Instant>,
    /// Bytes of the current replies that have arrived.
    received: usize,
    batches: u64,
    /// Bytes of native replies that have arrived.
    frames: Vec<u8>,
    /// For a batch that is compared: the expected replies, and the bytes that have arrived.
    sample: Option<(Vec<u8>, Vec<u8>)>,
    /// The last bytes that arrived, if the replies have an [end](Template::end), and the line end before them.
    tail: Vec<u8>,
    /// The first bytes that arrived, for error messages.
    head: Vec<u8>,
}

impl Client {
    /// Connects and performs the handshake of the protocol.
    pub(crate) fn connect(address: SocketAddr, template: Template, count: usize) -> Result<Self, String> {
        Client::connect_by(address, None, template, count)
    }

    /// The same, over TLS if there is a configuration of it.
    pub(crate) fn connect_by(
        address: SocketAddr,
        tls: Option<&Arc<ClientConfig>>,
        template: Template,
        count: usize,
    ) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("cannot connect to {address}: {error}");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| failed(&error))?;
        let mut connections = Vec::new();
        for index in 0..count {
            let stream = handshake(address, tls, &template).map_err(|error| failed(&error))?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN).map_err(|error| failed(&error))?;
            let head = Vec::with_capacity(SHOWN);
            let (is_waiting, received, batches, sample) = (false, 0, 0, None);
            let (frames, tail) = (Vec::new(), Vec::new());
            let sent_at = None;
            connections.push(Connection { stream, is_waiting, sent_at, received, batches, frames, sample, tail, head });
        }
        Ok(Client { epoll, connections, template, records: Vec::new(), misses: 0, latencies: None })
    }

    /// Sends batches until the limit or the end of the source, and waits for all replies.
    pub(crate) fn run(&mut self, source: &mut Source, limit: Limit) -> Result<Tally, String> {
        let begun = Instant::now();
        let processor_begun = processor_seconds_of_thread();
        self.misses = 0;
        let mut operations = 0;
        let mut in_flight = 0;
        for index in 0..self.connections.len() {
            in_flight += usize::from(self.send(index, source)?);
        }
        let mut buffer = vec![0; BUFFER_SIZE];
        let mut events = Vec::with_capacity(self.connections.len());
        let (mut waited, mut waiting_since) = (Duration::ZERO, None);
        while in_flight > 0 {
            events.clear();
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&at_once)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(format!("cannot poll: {error}")),
            }
            if events.is_empty() {
                let since = *waiting_since.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    return Err(self.describe("no more replies"));
                }
                continue;
            }
            let now = Instant::now();
            if let Some(since) = waiting_since.take() {
                waited += now - since;
            }
            let is_over = limit.is_some_and(|limit| now - begun >= limit);
            for event in &events {
                let index = event.data.u64() as usize;
                if self.receive(index, &mut buffer)? {
                    operations += self.template.depth() as u64;
                    if is_over || !self.send(index, source)? {
                        in_flight -= 1;
                    }
                }
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        Ok(Tally {
            operations,
            seconds,
            client_cpu: (processor_seconds_of_thread() - processor_begun) / seconds,
            waiting: waited.as_secs_f64() / seconds,
            misses: self.misses,
        })
    }

    /// Sends a batch. Returns false if the source has no more records.
    fn send(&mut self, index: usize, source: &mut Source) -> Result<bool, String> {
        self.records.clear();
        match source {
            Source::Drawn(draw) => self.records.extend((0..self.template.depth()).map(|_| draw.next_record())),
            Source::Each(range) if range.is_empty() => return Ok(false),
            Source::Each(range) => {
                let last = range.end - 1;
                self.records.extend((0..self.template.depth()).map(|_| range.next().unwrap_or(last)));
            }
        }
        let connection = &mut self.connections[index];
        if connection.batches.is_multiple_of(SAMPLED_IN) {
            connection.sample = Some((self.template.reply(&self.records), Vec::new()));
        }
        connection.batches += 1;
        connection.received = 0;
        connection.tail.clear();
        connection.tail.extend_from_slice(b"\r\n");
        connection.is_waiting = true;
        connection.sent_at = self.latencies.is_some().then(Instant::now);
        write_all(&mut connection.stream, self.template.fill(&self.records))
            .map_err(|error| format!("cannot send: {error}"))?;
        Ok(true)
    }

    /// Reads the bytes that have arrived. Returns true if the replies to a batch are complete.
    fn receive(&mut self, index: usize, buffer: &mut [u8]) -> Result<bool, String> {
        let connection = &mut self.connections[index];
        let size = match connection.stream.read(buffer) {
            Ok(0) => return Err(self.describe("the server closed a connection")),
            Ok(size) => size,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(error) => return Err(format!("cannot receive: {error}")),
        };
        if connection.received == 0 {
            connection.head.clear();
            connection.head.extend_from_slice(&buffer[..size.min(SHOWN)]);
        }
        connection.received += size;
        if let Some((_, arrived)) = &mut connection.sample {
            arrived.extend_from_slice(&buffer[..size]);
        }
        let is_right = if self.template.protocol == Protocol::Native {
            connection.frames.extend_from_slice(&buffer[..size]);
            if frames(&connection.frames).map(|frame| usize::from(frame.count)).sum::<usize>() < self.template.depth() {
                return Ok(false);
            }
            let expected = connection.sample.take().map(|(expected, _)| expected);
            let is_right = is_right(&connection.frames, self.template.reply_size, expected.as_deref());
            connection.frames.clear();
            is_right
        } else {
            let is_end = self.template.end().is_some_and(|end| {
                connection.tail.extend_from_slice(&buffer[size.saturating_sub(end.len())..size]);
                connection.tail.drain(..connection.tail.len().saturating_sub(end.len()));
                connection.tail == end
            });
            if connection.received < self.template.reply_size && !is_end {
                return Ok(false);
            }
            let sample = connection.sample.take();
            let is_same = sample.is_none_or(|(expected, arrived)| self.template.is_same(&expected, &arrived));
            let misses = self.template.misses(connection.received);
            self.misses += misses.unwrap_or(0);
            misses.is_some() && is_same
        };
        if !is_right {
            return Err(self.describe("wrong replies"));
        }
        connection.is_waiting = false;
        if let (Some(latencies), Some(sent_at)) = (&mut self.latencies, connection.sent_at) {
            latencies.saturating_record(sent_at.elapsed().as_nanos() as u64);
        }
        Ok(true)
    }

    /// Describes an error, with the first bytes that the first waiting connection has received.
    fn describe(&self, what: &str) -> String {
        let waiting = self.connections.iter().find(|connection| connection.is_waiting);
        let seen = waiting.map_or(String::new(), |connection| {
            let head = String::from_utf8_lossy(&connection.head);
            format!(": {} of {} bytes, beginning {head:?}", connection.received, self.template.reply_size)
        });
        format!("{what} over {:?}{seen}", self.template.protocol)
    }
}

/// Decodes the reply frames that have arrived.
fn frames(mut bytes: &[u8]) -> impl Iterator<Item = ReplyFrame<'_>> {
    std::iter::from_fn(move || {
        let (frame, size) = ReplyFrame::decode(bytes).ok()??;
        bytes = &bytes[size..];
        Some(frame)
    })
}

/// Returns true if complete native replies are right. Replies in one frame must have `reply_size` bytes; a server may
/// split them into several frames. If the batch is compared, the replies must equal the expected ones.
fn is_right(arrived: &[u8], reply_size: usize, expected: Option<&[u8]>) -> bool {
    let replies = || frames(arrived).flat_map(|frame| frame.replies());
    match expected {
        Some(expected) => replies().eq(frames(expected).flat_map(|frame| frame.replies())),
        None => {
            arrived.len() == reply_size
                || frames(arrived).count() > 1 && replies().all(|reply| matches!(reply, Ok(Ok(_))))
        }
    }
}

/// Connects and performs the handshake of the protocol.
fn handshake(address: SocketAddr, tls: Option<&Arc<ClientConfig>>, template: &Template) -> std::io::Result<Stream> {
    let mut stream = Stream::connect(address, tls)?;
    match template.protocol {
        Protocol::Native => {
            stream.write_all(&Hello::new(None).encode())?;
            let mut welcome = [0; Welcome::SIZE];
            stream.read_exact(&mut welcome)?;
            Welcome::decode(&welcome).map_err(|error| std::io::Error::new(ErrorKind::InvalidData, error))?;
        }
        Protocol::Echo => {
            let mut preface = [0; PREFACE_SIZE];
            preface[..4].copy_from_slice(&(template.request_size() as u32).to_le_bytes());
            preface[4..].copy_from_slice(&(template.reply_size as u32).to_le_bytes());
            stream.write_all(&preface)?;
        }
        Protocol::Resp | Protocol::Memcached => {}
    }
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Writes all bytes. Batches are smaller than a socket's buffer, so this rarely waits.
fn write_all(stream: &mut Stream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(size) => bytes = &bytes[size..],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use skep_server::{Server, ServerSettings, TlsSettings};

    use super::*;
    use crate::keys::PairForm;
    use crate::servers::stream::TlsFiles;
    use crate::servers::template::Verb;

    const KEYS: u64 = 2000;

    fn run(address: SocketAddr, protocol: Protocol, verb: Verb, depth: usize, source: Source) -> Result<Tally, String> {
        let template = Template::new(protocol, verb, PairForm::Random, depth);
        let limit = matches!(source, Source::Drawn(_)).then_some(Duration::from_millis(20));
        Client::connect(address, template, 3)?.run(&mut { source }, limit)
    }

    fn drawn() -> Source {
        Source::Drawn(Draw::uniform(Xoshiro256PlusPlus::seed_from_u64(9), KEYS))
    }

    #[test]
    fn both_front_ends_send_the_expected_replies() {
        let any = "127.0.0.1:0".parse().unwrap();
        let settings =
            ServerSettings { native: any, resp: Some(any), memory: 16 << 20, shards: 1, ..ServerSettings::default() };
        let server = Server::start(&settings).unwrap();
        let front_ends =
            [(server.native_address(), Protocol::Native), (server.resp_address().unwrap(), Protocol::Resp)];
        let tally = run(front_ends[0].0, Protocol::Native, Verb::Set, 64, Source::Each(0..KEYS)).unwrap();
        assert_eq!(tally.operations, KEYS.next_multiple_of(64));
        for (address, protocol) in front_ends {
            for (verb, depth) in [(Verb::Get, 1), (Verb::Set, 7), (Verb::Get, 1000)] {
                let tally = run(address, protocol, verb, depth, drawn()).unwrap();
                assert!(tally.operations >= depth as u64 && tally.operations.is_multiple_of(depth as u64));
            }
        }
        server.stop();
    }

    #[test]
    fn both_front_ends_send_the_expected_replies_over_tls() {
        let any = "127.0.0.1:0".parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let TlsFiles { certificate, key, clients } = TlsFiles::make(folder.path()).unwrap();
        let settings = ServerSettings {
            native: any,
            resp: Some(any),
            tls: Some(TlsSettings { certificate, key, client_ca: None }),
            memory: 16 << 20,
            shards: 1,
            ..ServerSettings::default()
        };
        let server = Server::start(&settings).unwrap();
        let run = |address, protocol, verb, depth, mut source: Source| {
            let template = Template::new(protocol, verb, PairForm::Random, depth);
            let limit = matches!(source, Source::Drawn(_)).then_some(Duration::from_millis(20));
            Client::connect_by(address, Some(&clients), template, 3).unwrap().run(&mut source, limit).unwrap()
        };
        run(server.native_address(), Protocol::Native, Verb::Set, 64, Source::Each(0..KEYS));
        for (address, protocol) in
            [(server.native_address(), Protocol::Native), (server.resp_address().unwrap(), Protocol::Resp)]
        {
            // The replies of the deepest take several packets.
            for depth in [1, 64, 4000] {
                let tally = run(address, protocol, Verb::Get, depth, drawn());
                assert!(tally.operations >= depth as u64 && tally.operations.is_multiple_of(depth as u64));
            }
        }
        let template = Template::new(Protocol::Resp, Verb::Get, PairForm::Random, 1);
        let mut plain = Client::connect(server.resp_address().unwrap(), template, 1).unwrap();
        assert!(plain.run(&mut drawn(), Some(Duration::from_millis(20))).is_err(), "the port speaks TLS alone");
        server.stop();
    }

    /// A cache that is too small for all pairs: gets of lost ones are counted.
    #[test]
    fn a_cache_may_miss_keys() {
        let any = "127.0.0.1:0".parse().unwrap();
        let settings = ServerSettings {
            native: any,
            resp: None,
            memcached: Some(any),
            memory: 16 << 20,
            cache_memory: 2 << 20,
            shards: 1,
            ..ServerSettings::default()
        };
        let server = Server::start(&settings).unwrap();
        let address = server.memcached_address().unwrap();
        const KEYS: u64 = 100_000;
        let run = |verb, depth| {
            let template = Template::new(Protocol::Memcached, verb, PairForm::Item, depth);
            Client::connect(address, template, 3)?.run(&mut Source::Each(0..KEYS), None)
        };
        assert_eq!(run(Verb::Set, 64).unwrap().misses, 0);
        let misses = run(Verb::Get, 64).unwrap().misses;
        assert!(misses > KEYS / 4 && misses < KEYS, "{misses}");
        for (verb, depth) in [(Verb::Get, 1), (Verb::GetEach, 1), (Verb::GetEach, 100)] {
            let tally = run(verb, depth).unwrap();
            assert!(tally.misses >= misses - 64 && tally.misses <= misses + 64, "{verb:?}: {} misses", tally.misses);
        }
        server.stop();
    }

    #[test]
    fn a_wrong_reply_is_an_error() {
        let any = "127.0.0.1:0".parse().unwrap();
        let settings =
            ServerSettings { native: any, resp: None, memory: 16 << 20, shards: 1, ..ServerSettings::default() };
        let server = Server::start(&settings).unwrap();
        let address = server.native_address();
        // Puts values of other records: the same number of bytes, but different ones.
        let put = |key: u64, value: [u8; 2]| {
            let mut template = Template::new(Protocol::Native, Verb::Set, PairForm::Random, 1);
            let mut stream = handshake(address, None, &template).unwrap();
            let mut bytes = template.fill(&[key]).to_vec();
            let end = bytes.len();
            bytes[end - 2..].copy_from_slice(&value);
            write_all(&mut stream, &bytes).unwrap();
            stream.set_nonblocking(false).unwrap();
            stream.read_exact(&mut vec![0; template.reply_size]).unwrap();
        };
        (0..4).for_each(|key| put(key, *b"??"));
        let error = run(address, Protocol::Native, Verb::Get, 4, Source::Each(0..4)).unwrap_err();
        assert!(error.contains("wrong replies"), "{error}");
        server.stop();
    }

    #[test]
    fn the_echo_replies() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || crate::servers::echo::serve_on(&listener));
        for (verb, depth) in [(Verb::Get, 1), (Verb::Set, 64), (Verb::Get, 1024)] {
            let tally = run(address, Protocol::Echo, verb, depth, drawn()).unwrap();
            assert!(tally.operations > 0 && tally.waiting < 1.0);
        }
    }
}
