//! The transport of the simulation: two streams in memory. Bytes arrive late, in pieces and in order.
//!
//! ```text
//!   client ── send ──▶ in flight, until a time ──▶ arrived ── read ──▶ server
//!   client ◀─ take ─── arrived ◀── in flight, until a time ◀── write ─ server
//! ```
//!
//! A stream takes a limited number of bytes, so that a client that does not take its replies stops the server from
//! writing. Like epoll with edges, a pipe reports each change once.

use std::collections::VecDeque;
use std::io::{ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::transport::Event;

/// The server's end.
#[derive(Debug)]
pub(crate) struct Pipe(Arc<Mutex<Streams>>);

/// The client's end.
#[derive(Debug)]
pub(crate) struct ClientEnd(Arc<Mutex<Streams>>);

#[derive(Debug)]
struct Streams {
    to_server: Stream,
    to_client: Stream,
    event: Event,
    /// The last write of the server found no room.
    is_blocked: bool,
    /// The server knows that the client sends no more.
    is_end_reported: bool,
    /// The client is gone, with all bytes that were in flight.
    is_reset: bool,
    /// The server has dropped its end.
    is_dropped: bool,
    /// The time, and the delay after which the bytes arrive that the server writes.
    now: Instant,
    delay: Duration,
}

#[derive(Debug)]
struct Stream {
    in_flight: VecDeque<(Instant, Vec<u8>)>,
    arrived: VecDeque<u8>,
    /// Bytes that are in flight or have arrived, and the most there may be.
    size: usize,
    capacity: usize,
    is_finished: bool,
}

impl Stream {
    fn new(capacity: usize) -> Stream {
        Stream { in_flight: VecDeque::new(), arrived: VecDeque::new(), size: 0, capacity, is_finished: false }
    }

    /// Takes the first of the bytes that fit. Returns how many these are.
    fn push(&mut self, bytes: &[u8], due: Instant) -> usize {
        let count = bytes.len().min(self.capacity - self.size);
        if count > 0 {
            // In order.
            let due = self.in_flight.back().map_or(due, |(last, _)| due.max(*last));
            self.in_flight.push_back((due, bytes[..count].to_vec()));
            self.size += count;
        }
        count
    }

    /// Lets the bytes arrive whose time has come. Returns true if there are any.
    fn deliver(&mut self, now: Instant) -> bool {
        let mut has_arrived = false;
        while let Some((due, _)) = self.in_flight.front()
            && *due <= now
            && let Some((_, bytes)) = self.in_flight.pop_front()
        {
            self.arrived.extend(bytes);
            has_arrived = true;
        }
        has_arrived
    }

    /// Returns true if nothing more arrives.
    fn has_ended(&self) -> bool {
        self.is_finished && self.in_flight.is_empty()
    }

    fn take(&mut self, buffer: &mut [u8]) -> usize {
        let count = buffer.len().min(self.arrived.len());
        buffer.iter_mut().zip(self.arrived.drain(..count)).for_each(|(to, from)| *to = from);
        self.size -= count;
        count
    }
}

fn lock(streams: &Mutex<Streams>) -> MutexGuard<'_, Streams> {
    streams.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a pipe whose streams take as many bytes.
pub(crate) fn pipe(capacity_to_server: usize, capacity_to_client: usize, now: Instant) -> (ClientEnd, Pipe) {
    let streams = Arc::new(Mutex::new(Streams {
        to_server: Stream::new(capacity_to_server),
        to_client: Stream::new(capacity_to_client),
        event: Event::default(),
        is_blocked: false,
        is_end_reported: false,
        is_reset: false,
        is_dropped: false,
        now,
        delay: Duration::ZERO,
    }));
    (ClientEnd(streams.clone()), Pipe(streams))
}

impl Pipe {
    /// Tells the client that no more bytes will leave.
    pub(crate) fn finish(&self) -> Result<()> {
        let mut streams = lock(&self.0);
        streams.to_client.is_finished = true;
        if streams.is_reset { Err(ErrorKind::NotConnected.into()) } else { Ok(()) }
    }

    /// Reads the bytes that have arrived.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let mut streams = lock(&self.0);
        if streams.is_reset {
            return Err(ErrorKind::ConnectionReset.into());
        }
        match streams.to_server.take(buffer) {
            0 if !streams.to_server.has_ended() && !buffer.is_empty() => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    /// Writes as many bytes as the stream takes.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<usize> {
        let mut streams = lock(&self.0);
        if streams.is_reset {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let due = streams.now + streams.delay;
        let count = streams.to_client.push(bytes, due);
        streams.is_blocked = count < bytes.len();
        if count > 0 { Ok(count) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    /// Returns the event since the last call.
    pub(crate) fn take_event(&self) -> Option<Event> {
        let event = std::mem::take(&mut lock(&self.0).event);
        (event != Event::default()).then_some(event)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        lock(&self.0).is_dropped = true;
    }
}

impl ClientEnd {
    /// Sends the first of the bytes that fit, which arrive at a time. Returns how many these are.
    pub(crate) fn send(&self, bytes: &[u8], due: Instant) -> usize {
        lock(&self.0).to_server.push(bytes, due)
    }

    /// Sends no more. The client still takes replies.
    pub(crate) fn finish(&self) {
        lock(&self.0).to_server.is_finished = true;
    }

    /// Vanishes: all that is in flight is lost.
    pub(crate) fn reset(&self) {
        let mut streams = lock(&self.0);
        streams.is_reset = true;
        streams.event = Event { is_readable: true, is_writable: true, is_finished: true, is_over: true };
    }

    /// Advances the time: bytes arrive, and those that the server writes from now on arrive after `delay`.
    pub(crate) fn advance(&self, now: Instant, delay: Duration) {
        let mut streams = lock(&self.0);
        (streams.now, streams.delay) = (now, delay);
        let has_arrived = streams.to_server.deliver(now);
        streams.to_client.deliver(now);
        streams.event.is_readable |= has_arrived;
        if streams.to_server.has_ended() && !std::mem::replace(&mut streams.is_end_reported, true) {
            streams.event.is_readable = true;
            streams.event.is_finished = true;
        }
    }

    /// Takes at most `count` bytes of those that have arrived.
    pub(crate) fn take(&self, count: usize) -> Vec<u8> {
        let mut streams = lock(&self.0);
        let mut bytes = vec![0; count.min(streams.to_client.arrived.len())];
        streams.to_client.take(&mut bytes);
        if !bytes.is_empty() && std::mem::take(&mut streams.is_blocked) {
            streams.event.is_writable = true;
        }
        bytes
    }

    /// Returns true if the server has ended the connection, and all that it sent was taken.
    pub(crate) fn has_ended(&self) -> bool {
        let streams = lock(&self.0);
        let stream = &streams.to_client;
        streams.is_dropped || stream.has_ended() && stream.arrived.is_empty()
    }

    /// Returns true if the server has dropped the connection.
    pub(crate) fn is_dropped(&self) -> bool {
        lock(&self.0).is_dropped
    }
}
