//! One connection: its socket, its buffers, the chunk of requests that is worked on, and the answers it waits for.
//!
//! ```text
//!   socket ─▶ input ─▶ chunk ─▶ round ─▶ output ─▶ socket
//! ```
//!
//! A connection holds at most one incomplete request and one read of input, and reads no more while a chunk is
//! worked on or while it has bytes to send and may not hold more: a client that does not read its replies
//! stops itself, and nobody else. How much a connection may hold is decided by its shard's [`Purse`]: it is asked before
//! a step that needs memory, and told after each turn what is held. One read brings no more than its share of the shard's window, so what it holds complete
//! was all completed by its last read. That is the moment from which its delay counts, or, if its client let it
//! wait for room in the output, the moment when there was room again.
//!
//! A connection that ends on our side first says so to the peer and then swallows what the peer still sends, for a
//! while: closing at once would destroy the last reply on its way.

mod memory;

use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use skep_core::operation::Request;
use skep_wire::native::{Hello, ProtocolError, Welcome, WireError, operation_size};

use crate::batch::Answers;
use crate::buffer::{Input, Output};
use crate::chunk::{Chunk, Decoded};
use crate::ledger::{Purse, SHARE, SHARE_FOR_REPLIES};
use crate::metrics::Metrics;
use crate::native_chunk::NativeChunk;
use crate::resp_command::Context;
use crate::round::{Round, Run};
use crate::spaces::{Space, SpaceReplies, Spaces};

/// Operations that are submitted at a time have no more bytes than this and those of the last one. They may have more
/// than arrived: the copy flags let a frame name one value tens of thousands of times, and each that travels to
/// another shard is copied.
const SUBMISSION_SIZE_MAX: usize = 1 << 20;
/// Fewest and most bytes taken from a socket before its requests are worked on, unless an incomplete request is longer.
const READ_MIN: usize = 4 << 10;
const READ_MAX: usize = 256 << 10;
/// Bytes of replies that are encoded at a time, and one reply more.
const ENCODED_MAX: usize = 1 << 20;
/// Bytes by which a chunk that is decoded may grow.
const CHUNK_GROWTH_MAX: usize = 64 << 10;
/// Bytes of input that a share always covers: a connection without memory reads requests of this size.
const SHARE_FOR_INPUT: usize = 2 << 10;
/// What an operation is taken to have before any has arrived, in bytes: little, or the first read would bring too many.
const OPERATION_SIZE: usize = 8;
/// An output of up to this size is written at once, however much others have written in the turn.
const SMALL_OUTPUT_SIZE_MAX: usize = 16 << 10;
/// How long a closed connection still swallows input.
const LINGER: Duration = Duration::from_millis(500);
/// How many bytes it swallows.
const LINGER_SIZE_MAX: usize = 4 << 20;

/// A connection.
pub(crate) struct Connection {
    stream: TcpStream,
    /// Its number in the server.
    pub(crate) number: u64,
    /// Whether it is in the queue of its shard.
    pub(crate) queued: bool,
    /// The turn of its shard since which it has waited, if it waits.
    pub(crate) waits_since: Option<u64>,
    input: Input,
    output: Output,
    chunk: Chunk,
    round: Round,
    /// Whether the socket may have something to read.
    readable: bool,
    /// Whether the socket may take something.
    writable: bool,
    /// Whether the peer has closed its side; there may still be something to read before that.
    peer_finished: bool,
    /// Whether no more is read: the peer has finished, or the server stops.
    ended: bool,
    /// Whether nothing of the input is a complete request.
    exhausted: bool,
    /// From when on the requests at hand have waited for us.
    read_at: Instant,
    /// Whether they wait for the client to take replies.
    stalled: bool,
    /// Bytes of memory that the next request takes, if it was found to need more than there were.
    memory_needed: usize,
    /// About how many operations lie in the input behind the chunk.
    undecoded: usize,
    /// About how many bytes an operation of this connection takes.
    operation_size: usize,
    /// Whether other shards have carried out something since its last submission, and whether they returned all of it.
    has_progress: bool,
    is_returned: bool,
    /// How many operations it may submit at a time.
    quota: usize,
    /// Bytes that were read and decoded since the last [`Connection::take_work`].
    work: usize,
    /// Bytes of memory that it held when its shard last counted them.
    held: usize,
    /// Bytes of its output when its shard last counted them.
    held_output: usize,
    /// Whether a step needs more memory than it may hold.
    starved: bool,
    /// Whether a request needs more memory than it may hold.
    wants_room: bool,
    /// Whether it may borrow all that is free.
    is_senior: bool,
    /// Whether requests were done since its memory was counted.
    is_request_done: bool,
    /// Whether it stands in its shard's list of connections that wait for memory.
    pub(crate) waits_for_memory: bool,
    /// Whether its client does not take replies, and no more of them may be held.
    full: bool,
    /// When it last read or wrote a byte.
    progress_at: Instant,
    /// Whether it closes when the output is empty, whatever else arrives.
    closing: bool,
    /// Whether it is of no more use.
    broken: bool,
    lingering: Option<Linger>,
}

/// A connection that has said everything and waits for the peer to notice.
struct Linger {
    until: Instant,
    size: usize,
}

/// What becomes of a connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It can go on at once.
    Work,
    /// It waits for its socket or for other shards.
    Wait,
    /// It waits for memory, and perhaps for its socket.
    Starve,
    /// It waits for its peer to notice the end, until then.
    Linger(Instant),
    /// It is to be dropped.
    Close,
}

impl Connection {
    /// A connection that was just accepted; the socket does not block.
    pub(crate) fn new(stream: TcpStream, number: u64, chunk: Chunk) -> Connection {
        Connection {
            stream,
            number,
            queued: false,
            waits_since: None,
            input: Input::default(),
            output: Output::default(),
            chunk,
            round: Round::default(),
            readable: true,
            writable: true,
            peer_finished: false,
            ended: false,
            exhausted: true,
            read_at: Instant::now(),
            stalled: false,
            memory_needed: 0,
            undecoded: 0,
            operation_size: OPERATION_SIZE,
            has_progress: false,
            is_returned: false,
            quota: usize::MAX,
            work: 0,
            held: 0,
            held_output: 0,
            starved: false,
            wants_room: false,
            is_senior: false,
            is_request_done: false,
            waits_for_memory: false,
            full: false,
            progress_at: Instant::now(),
            closing: false,
            broken: false,
            lingering: None,
        }
    }

    /// The socket.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Takes note of what epoll says.
    pub(crate) fn notice(&mut self, readable: bool, writable: bool, finished: bool, is_over: bool) {
        // Both directions are closed, or there was an error: one that waits for memory would not find out by itself.
        self.broken |= is_over;
        self.readable |= readable;
        self.writable |= writable;
        self.peer_finished |= finished;
    }

    /// Takes what has arrived, also since epoll was asked, and reads no more after that: the server stops.
    pub(crate) fn end_input(&mut self, metrics: &Metrics, now: Instant, purse: &mut Purse) {
        let takes_more = !self.ended && !self.closing;
        self.ended = true;
        if takes_more {
            self.read_socket(metrics, READ_MAX, now, purse);
        }
        self.exhausted = false;
    }

    /// Whether the next chunk can begin and has to be read.
    pub(crate) fn would_read(&self) -> bool {
        let wanted = self.exhausted && self.chunk.is_finished() && self.has_room() && !self.ended && !self.closing;
        wanted && self.readable
    }

    /// Reads the socket if the next chunk can begin and has not arrived: about as many operations as `share`, or what
    /// an incomplete request may take to be complete.
    pub(crate) fn read(&mut self, metrics: &Metrics, share: usize, now: Instant, purse: &mut Purse) {
        if let Some(linger) = &mut self.lingering {
            self.broken |= swallow(&self.stream, linger);
            return;
        }
        if self.would_read() {
            let size = (share * self.operation_size).max(READ_MIN).max(self.input.bytes().len());
            self.read_socket(metrics, size.min(READ_MAX), now, purse);
        }
    }

    fn read_socket(&mut self, metrics: &Metrics, size_max: usize, now: Instant, purse: &mut Purse) {
        self.read_at = now;
        let (held, capacity) = (self.memory(), self.input.capacity());
        let room = purse.secure(held, self.is_senior, self.input.growth_max(size_max));
        // Of a share, the rest is for what the bytes become.
        let from_share = SHARE.saturating_sub(held).min(SHARE_FOR_INPUT.saturating_sub(capacity));
        let capacity_max = capacity + room.saturating_sub(SHARE.saturating_sub(held)).max(from_share);
        match self.input.read(&self.stream, size_max, capacity_max) {
            Ok(moved) => {
                if moved.size > 0 {
                    self.progress_at = now;
                } else if moved.full && !self.ended {
                    self.want_memory(SHARE_FOR_INPUT, metrics, purse);
                }
                metrics.input_bytes.add(moved.size as u64);
                self.work += moved.size;
                // The end was announced together with the last bytes, so it must be looked for.
                self.readable = moved.more || self.peer_finished && !moved.ended;
                self.ended |= moved.ended;
                self.exhausted &= moved.size == 0;
            }
            Err(_) => self.broken = true,
        }
    }

    /// Decodes the next chunk if the last one is finished, or the next part of a long request. Returns the hello of a
    /// native connection.
    pub(crate) fn decode(&mut self, metrics: &Metrics, purse: &mut Purse) -> Option<Hello> {
        let may_decode = self.chunk.is_finished() || self.chunk.is_decoding();
        if self.exhausted || !may_decode || !self.has_room() || self.closing {
            return None;
        }
        if self.is_held_back(purse) {
            self.starved = true;
            return None;
        }
        let held = self.memory();
        let room = purse.secure(held, self.is_senior, CHUNK_GROWTH_MAX.max(self.memory_needed));
        let memory_max = self.chunk.capacity() + room.saturating_sub(SHARE_FOR_REPLIES);
        match self.chunk.decode(self.input.bytes_mut(), memory_max) {
            Ok(Decoded::Requests { round_size, request_count, exhausted }) => {
                if matches!(self.chunk, Chunk::Native(_)) {
                    metrics.operations_native.add(round_size as u64);
                }
                self.exhausted = exhausted;
                let size = self.chunk.size();
                self.memory_needed = 0;
                // What a longer request has more was looked at when it was read.
                self.work += size.min(READ_MAX);
                if size > 0 {
                    self.operation_size = (size / request_count.max(1)).max(1);
                }
                let behind = self.input.bytes().len() - size;
                self.undecoded = if exhausted { 0 } else { behind / self.operation_size };
                self.round.begin(round_size);
                self.finish_chunk();
            }
            Ok(Decoded::Part(size)) => self.work += size,
            Ok(Decoded::NeedsMemory(size)) => {
                self.memory_needed = size + SHARE_FOR_REPLIES;
                // As a rule it is there, and the next turn goes on with it.
                if purse.secure(held, self.is_senior, self.memory_needed) < self.memory_needed {
                    self.want_memory(self.memory_needed, metrics, purse);
                }
            }
            Ok(Decoded::NoHello) => self.exhausted = true,
            Ok(Decoded::Hello(hello, size)) => {
                self.input.consume(size);
                return Some(hello);
            }
            Err(error) => self.refuse(error, metrics),
        }
        None
    }

    /// Answers the hello; the connection now belongs to the shard that the welcome names.
    pub(crate) fn welcome(&mut self, welcome: &Welcome, spaces: Spaces) {
        self.output.append(&welcome.encode());
        self.chunk = Chunk::Native(NativeChunk::new(spaces));
    }

    /// Whether operations are to be submitted.
    pub(crate) fn wants_submission(&self) -> bool {
        !self.broken && !self.is_starved() && self.round.wants_submission()
    }

    /// How many operations that may be, if the connection's share of the window is `share`.
    pub(crate) fn submission_max(&self, share: usize) -> usize {
        self.round.remaining().min(self.round.submission_max()).min(self.quota).min(share)
    }

    /// Bytes that were read and decoded since the last call.
    pub(crate) fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.work)
    }

    /// Gives at most `count_max` operations that are to be submitted to `visit`, in order, and no more once they have
    /// `size_max` bytes. The others are submitted when these are answered. If it is too late for what has not been begun,
    /// that is refused: a command of many keys as a whole or not at all, and only if its operations are all of this round.
    /// Returns how many bytes were given.
    pub(crate) fn visit<'a>(
        &'a self,
        count_max: usize,
        size_max: usize,
        is_late: bool,
        mut visit: impl FnMut(Space, Result<Request<'a>, WireError>),
    ) -> usize {
        let mut left = count_max;
        let size_max = size_max.min(SUBMISSION_SIZE_MAX);
        let mut size = 0;
        let mut refused = false;
        let mut operations = self.chunk.operations(self.input.bytes());
        for run in self.round.runs() {
            for alike in (1..=run.count()).rev() {
                if left == 0 || size >= size_max {
                    return size;
                }
                let Some((part, space, mut operation)) = operations.next() else { return size };
                if !run.is_unanswered() {
                    refused = false;
                    continue;
                }
                if part.index == 0 {
                    refused = is_late && part.count <= alike;
                }
                if refused {
                    operation = Err(WireError::Busy);
                } else {
                    left -= 1;
                }
                size += operation.as_ref().map_or(0, operation_size);
                visit(space, operation);
            }
        }
        size
    }

    /// Whether the first operation that is to be submitted may be refused.
    pub(crate) fn may_be_refused(&self) -> bool {
        let mut before = 0;
        let unanswered = self.round.runs().iter().find(|run| {
            before += if run.is_unanswered() { 0 } else { run.count() };
            run.is_unanswered()
        });
        let part = self.chunk.part(before);
        unanswered.zip(part).is_some_and(|(run, part)| part.index == 0 && part.count <= run.count())
    }

    /// Takes note of where the operations went that [`Connection::visit`] gave; its share of the window is `share`, and
    /// `has_company` says whether something before them in the batch was carried out. Returns how many of them are done or
    /// are with other shards.
    pub(crate) fn place(
        &mut self,
        places: &[Run],
        parcel_count: usize,
        replies: &SpaceReplies,
        share: usize,
        has_company: bool,
    ) -> usize {
        let visited: usize = places.iter().map(Run::count).sum();
        let done = visited - self.round.place(places, parcel_count, replies);
        self.quota = match done {
            // What was carried out before them may have used up what they needed.
            0 if has_company => (visited / 2).max(1),
            _ if done < visited => done.max(1),
            _ if self.quota < share => 2 * self.quota,
            _ => usize::MAX,
        };
        self.is_returned &= done == 0 || parcel_count > 0;
        done
    }

    /// Takes the answers of a parcel that came back from `shard`.
    pub(crate) fn receive(&mut self, shard: u16, answers: &Answers) {
        let done = answers.done_count() as usize;
        if done < answers.len() {
            self.quota = self.quota.min(done.max(1));
        }
        self.round.receive(shard, answers);
        self.has_progress |= done > 0;
        if !self.round.waits_for_parcels() {
            self.is_returned = !std::mem::take(&mut self.has_progress);
        }
    }

    /// Returns true if other shards carried out nothing of its last submission to them.
    pub(crate) fn is_returned(&self) -> bool {
        self.is_returned
    }

    /// From when on the requests at hand have waited for us.
    pub(crate) fn read_at(&self) -> Instant {
        self.read_at
    }

    /// About how many operations were read and are not answered. Those that wait for the client to take replies are
    /// not for us to hurry with.
    pub(crate) fn operations_left(&self) -> usize {
        if self.broken || self.closing || self.is_starved() {
            return 0;
        }
        self.chunk.operations_left(&self.round) + self.undecoded
    }

    /// Writes the answers that are there to the output, in order, and keeps the others; answers how many were there.
    pub(crate) fn encode(
        &mut self,
        replies: &SpaceReplies,
        output: &mut Vec<u8>,
        context: &mut Context<'_>,
        purse: &Purse,
    ) -> usize {
        let before = self.chunk.operations_left(&self.round);
        let room = if purse.is_overdrawn() { 0 } else { purse.room(self.held, false).min(ENCODED_MAX) };
        // The share covers a few small ones: beside a senior, there is no room for a connection that has borrowed.
        let room = room.max(SHARE_FOR_REPLIES);
        if self.is_held_back(purse) {
            self.starved = true;
        } else if self.has_room() {
            self.chunk.encode(&mut self.round, replies, self.input.bytes(), output, room, context);
        }
        self.round.keep(replies);
        let after = self.chunk.operations_left(&self.round);
        context.turn_room = context.turn_room.saturating_sub(output.len());
        self.closing |= context.closing;
        self.finish_chunk();
        before - after
    }

    /// Bytes of the output that wait for the socket.
    pub(crate) fn output_size(&self) -> usize {
        self.output.waiting()
    }

    /// Writes the output and then the replies that were just encoded to the socket, keeps what it does not take, and says
    /// what is next. Unless it `may_write_much`, a large output waits for the next turn.
    pub(crate) fn write(
        &mut self,
        replies: &[u8],
        may_write_much: bool,
        metrics: &Metrics,
        now: Instant,
        purse: &mut Purse,
    ) -> Next {
        let size = self.output.waiting() + replies.len();
        let is_postponed = self.writable && !may_write_much && size > SMALL_OUTPUT_SIZE_MAX;
        if !self.writable || is_postponed {
            self.output.append(replies);
        } else if size > 0 {
            match self.output.write(replies, &self.stream) {
                Ok(moved) => {
                    metrics.output_bytes.add(moved.size as u64);
                    self.writable = moved.more;
                    if moved.size > 0 {
                        self.progress_at = now;
                    }
                }
                Err(_) => self.broken = true,
            }
        }
        self.settle(purse);
        if std::mem::take(&mut self.is_request_done) {
            self.resign(purse);
        }
        self.full = self.output.waiting() > 0 && !self.may_hold_more(purse);
        if self.stalled && self.has_room() {
            self.read_at = now;
        }
        self.stalled = !self.has_room();
        if self.broken {
            // Parcels that are under way find nobody when they come back.
            return Next::Close;
        }
        if is_postponed {
            return Next::Work;
        }
        if let Some(linger) = &self.lingering {
            return if self.ended || now >= linger.until { Next::Close } else { Next::Linger(linger.until) };
        }
        let answered = self.chunk.is_finished() && (self.exhausted || self.closing);
        if (self.closing || self.ended) && answered {
            return if self.output.waiting() == 0 { self.begin_linger(now) } else { Next::Wait };
        }
        if self.round.waits_for_parcels() {
            return Next::Wait;
        }
        if self.starved || self.full {
            return Next::Starve;
        }
        if !self.chunk.is_finished() || !self.exhausted || self.readable { Next::Work } else { Next::Wait }
    }

    /// Gives up the input of a chunk whose answers are all in the output.
    fn finish_chunk(&mut self) {
        // A chunk without requests keeps the memory that was made for the next one.
        if self.chunk.is_finished() && self.chunk.size() > 0 {
            self.is_request_done |= self.chunk.has_requests();
            let size = self.chunk.finish();
            self.input.consume(size);
        }
    }

    /// Returns true unless its client does not take replies, and no more of them may be held.
    fn has_room(&self) -> bool {
        !self.full
    }

    fn refuse(&mut self, error: ProtocolError, metrics: &Metrics) {
        metrics.protocol_errors.add(1);
        tracing::debug!(connection = self.number, %error, "closing a native connection");
        self.closing = true;
    }

    /// Says to the peer that nothing more comes.
    fn begin_linger(&mut self, now: Instant) -> Next {
        let mut linger = Linger { until: now + LINGER, size: 0 };
        let over = self.stream.shutdown(Shutdown::Write).is_err() || swallow(&self.stream, &mut linger);
        // A peer that has finished, and one that the stopping server leaves, are not waited for.
        if over || self.ended {
            return Next::Close;
        }
        let until = linger.until;
        self.lingering = Some(linger);
        Next::Linger(until)
    }
}

/// Throws away what a closed connection still receives; answers whether that was the end of it.
fn swallow(mut stream: &TcpStream, linger: &mut Linger) -> bool {
    let mut waste = [0; 16 << 10];
    while linger.size < LINGER_SIZE_MAX {
        match stream.read(&mut waste) {
            Ok(0) => return true,
            Ok(size) => linger.size += size,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return true,
        }
    }
    true
}

/// The two ends of a socket.
pub(crate) fn addresses(stream: &TcpStream) -> std::io::Result<(SocketAddr, SocketAddr)> {
    Ok((stream.peer_addr()?, stream.local_addr()?))
}
