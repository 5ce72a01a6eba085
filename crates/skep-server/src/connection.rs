//! One connection as a state machine: it takes bytes and gives bytes. It has no socket and no clock; its shard joins it
//! with a transport in an [`Endpoint`](crate::endpoint::Endpoint), and time is an argument.
//!
//! ```text
//!   bytes that arrive ─▶ input ─▶ parsed batch ─▶ reply queue ─▶ output ─▶ bytes that leave
//!          read          decode       submit         encode       write
//! ```
//!
//! `life.rs` has its states, `requests.rs` the steps from requests to replies, `submissions.rs` the number of
//! operations that are submitted at a time, `memory.rs` the memory that it holds or waits for.
//!
//! A connection holds at most one incomplete request and the bytes of one read. It reads no more while a parsed batch
//! is worked on, or while it has bytes to send and may not hold more: a client that does not read its replies stops
//! only itself. Its shard's [`ShardBudget`] decides how much it may hold: it is asked before a step that needs memory,
//! and told after each turn how much is held.
//!
//! The delay of requests is measured from `read_at`: the last read, or the moment when the output had room again. One
//! start suffices for all requests in the input, because a read brings at most the connection's share of operations.

mod held_replies;
mod life;
mod memory;
mod progress;
mod requests;
mod submissions;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::access::Access;
use crate::buffer::{Input, Output};
use crate::front_end::FrontEnd;
use crate::limits::{
    FIRST_OPERATION_SIZE, PIPELINE_INPUT_MAX, READ_MAX, READ_MIN, SHARE, SHARE_FOR_INPUT, SMALL_OUTPUT_SIZE_MAX,
};
use crate::memory_budget::ShardBudget;
use crate::metrics::Metrics;
use crate::parsed_batch::ParsedBatch;
use crate::reply_queue::ReplyQueue;
use crate::transport::Event;
use crate::vocabulary::{Doubt, EncodedReplies, Reached, Release};
use held_replies::HeldReplies;
use life::{Drain, Life, Readiness};
use memory::Holding;
use submissions::Submissions;

/// A connection.
pub(crate) struct Connection {
    /// Its number in the server.
    pub(crate) number: u64,
    life: Life,
    readiness: Readiness,
    input: Input,
    output: Output,
    /// The bytes of the output that may not leave yet.
    held_replies: HeldReplies,
    /// A write of the log has failed while operations were in work, and some are not done.
    is_doubtful: bool,
    parsed: ParsedBatch,
    queue: ReplyQueue,
    intake: Intake,
    submissions: Submissions,
    holding: Holding,
    /// Requests were done since its memory was counted.
    is_request_done: bool,
    /// When it was last seen without need to log in, or began.
    known_at: Instant,
    /// When it last read or wrote a byte.
    progress_at: Instant,
}

/// The state of the bytes in the input.
#[derive(Debug)]
struct Intake {
    /// The input has no complete request except those of the parsed batch.
    is_exhausted: bool,
    /// The time from which on the requests in the input have waited for the server.
    read_at: Instant,
    /// They wait for the client to take replies.
    waits_for_client: bool,
    /// About how many operations are in the input after the parsed batch.
    undecoded: usize,
    /// About how many bytes an operation of this connection takes.
    operation_size: usize,
    /// Bytes that were read and decoded since the last [`Connection::take_work`].
    work: usize,
}

/// The next step of a connection. Its shard acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Continues at once.
    Work,
    /// Waits for its transport, or for other shards.
    Wait,
    /// Waits for memory, and perhaps for its transport.
    Starve,
    /// Has sent everything, and waits until that is delivered, or for the end of the input.
    Drain,
    /// Is dropped.
    Close,
}

impl Connection {
    /// Creates a connection that begins `now`.
    pub(crate) fn new(number: u64, parsed: ParsedBatch, now: Instant) -> Connection {
        Connection {
            number,
            life: Life::Open,
            readiness: Readiness::new(),
            input: Input::default(),
            output: Output::default(),
            held_replies: HeldReplies::default(),
            is_doubtful: false,
            parsed,
            queue: ReplyQueue::default(),
            intake: Intake {
                is_exhausted: true,
                read_at: now,
                waits_for_client: false,
                undecoded: 0,
                operation_size: FIRST_OPERATION_SIZE,
                work: 0,
            },
            submissions: Submissions::new(),
            holding: Holding::default(),
            is_request_done: false,
            known_at: now,
            progress_at: now,
        }
    }

    /// Returns true if its transport has ended: its requests matter to none.
    pub(crate) fn has_ended(&self) -> bool {
        self.life == Life::Closed
    }

    /// Returns true if its client has not yet sent an acceptable hello.
    pub(crate) fn waits_for_hello(&self) -> bool {
        matches!(self.parsed, ParsedBatch::Handshake)
    }

    /// Ends the connection as if its transport had ended.
    pub(crate) fn end(&mut self) {
        self.life = Life::Closed;
    }

    /// Takes over an event of the transport.
    pub(crate) fn on_event(&mut self, event: Event) {
        if event.is_over {
            // A connection that waits for memory does not read, so it would not see the end of the transport.
            self.life = Life::Closed;
        }
        self.readiness.on_event(event);
    }

    /// Reads a last time, also bytes that no event has reported: the server stops.
    pub(crate) fn end_input(
        &mut self,
        source: impl Read,
        metrics: &Metrics,
        now: Instant,
        shard_budget: &mut ShardBudget,
    ) {
        let takes_more = self.life == Life::Open;
        self.life.end_input();
        if takes_more {
            self.take_bytes(source, READ_MAX, usize::MAX, metrics, now, shard_budget);
        }
        self.intake.is_exhausted = false;
    }

    /// Returns true if the connection should read: its parsed batch is finished, no complete request is buffered, and
    /// there is room for replies.
    fn would_read(&self) -> bool {
        let is_wanted = self.intake.is_exhausted && self.parsed.is_finished() && self.has_room();
        is_wanted && self.life == Life::Open && self.readiness.is_readable && !self.waits_in_queue()
    }

    /// Reads if `would_read` returns true: about `share` operations, or as many bytes as an incomplete request has so
    /// far. A connection that drains discards the bytes that it reads.
    pub(crate) fn read(
        &mut self,
        source: impl Read,
        metrics: &Metrics,
        share: usize,
        now: Instant,
        shard_budget: &mut ShardBudget,
    ) {
        if let Life::Draining(drain) = &mut self.life {
            if drain.discard(source) {
                self.life = Life::Closed;
            }
        } else if self.would_read() {
            let size = (share * self.intake.operation_size).max(READ_MIN).max(self.input.bytes().len()).min(READ_MAX);
            let Ok(end) = self.secure_request(metrics, shard_budget) else { return };
            // The beginning of the next request stays within the share.
            let end = end.map_or(usize::MAX, |end| end + SHARE_FOR_INPUT);
            let size = if end < usize::MAX { READ_MAX.min(end - self.input.bytes().len()) } else { size };
            self.take_bytes(source, size, end, metrics, now, shard_budget);
        }
    }

    /// Adds work that its transport has done for it.
    pub(crate) fn add_work(&mut self, work: usize) {
        self.intake.work += work;
    }

    /// Reads up to `size_max` bytes; the input grows to no more than `end` bytes.
    fn take_bytes(
        &mut self,
        source: impl Read,
        size_max: usize,
        end: usize,
        metrics: &Metrics,
        now: Instant,
        shard_budget: &mut ShardBudget,
    ) {
        self.intake.read_at = now;
        let (held, capacity) = (self.memory(), self.input.capacity());
        let room = self.room_to_grow(self.input.growth_max(size_max), PIPELINE_INPUT_MAX, shard_budget);
        // The rest of a share is for the parsed requests and the replies.
        let from_share = SHARE.saturating_sub(held).min(SHARE_FOR_INPUT.saturating_sub(capacity));
        let capacity_max = capacity + room.saturating_sub(SHARE.saturating_sub(held)).max(from_share);
        let capacity_max = capacity_max.min(end);
        let Ok(moved) = self.input.read(source, size_max, capacity_max, end < usize::MAX) else {
            self.life = Life::Closed;
            return;
        };
        self.count_read(moved.size, now);
        self.record_growth(shard_budget);
        if moved.size == 0 && moved.full && self.life == Life::Open {
            let _ = self.ask_for_input(metrics, shard_budget);
        }
        metrics.input_bytes.add(moved.size as u64);
        self.intake.work += moved.size;
        self.intake.is_exhausted &= moved.size == 0;
        self.readiness.on_read(moved);
        if moved.ended {
            self.life.end_input();
        }
    }

    /// Writes the output and then the replies that were just encoded, unless these are to be held, and keeps the bytes
    /// that the sink does not take. Unless it `may_write_much`, a large output waits for the next turn. Returns the
    /// next step, or `None` when everything is sent: the peer is to be told so, and [`Connection::end_output`] follows.
    pub(crate) fn write(
        &mut self,
        encoded: EncodedReplies<'_>,
        sink: impl Write,
        may_write_much: bool,
        metrics: &Metrics,
        now: Instant,
        shard_budget: &mut ShardBudget,
    ) -> Option<Next> {
        let EncodedReplies { bytes: mut replies, release } = encoded;
        self.count_replies(replies.len());
        if !matches!(release, Release::Now | Release::Same) || self.held_replies.size() > 0 {
            self.output.append(replies);
            self.held_replies.append(release, replies.len());
            replies = &[];
        }
        let free = self.output.waiting() - self.held_replies.size();
        let size = free + replies.len();
        let is_postponed = self.readiness.is_writable && !may_write_much && size > SMALL_OUTPUT_SIZE_MAX;
        if !self.readiness.is_writable || is_postponed {
            self.output.append(replies);
        } else if size > 0 {
            match self.output.write(free, replies, sink) {
                Ok(moved) => {
                    metrics.output_bytes.add(moved.size as u64);
                    self.readiness.on_write(moved);
                    self.count_written(moved.size, now);
                }
                Err(_) => self.life = Life::Closed,
            }
        }
        self.record_memory(shard_budget);
        self.end_permit(shard_budget);
        if std::mem::take(&mut self.is_request_done) {
            self.end_request(shard_budget);
        }
        self.look_for_room(shard_budget);
        if self.intake.waits_for_client && self.has_room() {
            self.intake.read_at = now;
        }
        self.intake.waits_for_client = !self.has_room();
        self.next(is_postponed, now)
    }

    /// Counts bytes of replies for the limit of the user. All replies pass here, of each front end and of each kind of
    /// command, when they have been encoded and before they wait or leave.
    #[inline]
    fn count_replies(&mut self, bytes: usize) {
        if bytes > 0
            && let Some(login) = self.parsed.login_mut()
        {
            login.count_replies(bytes);
        }
    }

    /// Appends bytes to the output that rest on nothing and are no reply. They do not overtake those before them.
    fn append_free(&mut self, bytes: &[u8]) {
        if let Some(login) = self.parsed.login() {
            login.count_lines(bytes.len());
        }
        self.output.append(bytes);
        self.held_replies.append_free(bytes.len());
    }

    /// Lets the replies leave that rest on what is on disk. Returns true if there are any.
    pub(crate) fn release_replies(&mut self, durable: Reached) -> bool {
        self.held_replies.release(durable)
    }

    /// Returns true if operations are in work.
    pub(crate) fn has_work(&self) -> bool {
        !self.parsed.is_finished()
    }

    /// Calls `f` with what replies to operations in work may rest on, which it may settle.
    pub(crate) fn with_doubt<R>(&mut self, f: impl FnOnce(&mut Doubt) -> R) -> R {
        let mut doubt = Doubt { is_doubtful: self.is_doubtful, has_work: self.has_work() };
        let result = f(&mut doubt);
        self.is_doubtful = doubt.is_doubtful;
        result
    }

    /// Notes whether replies to operations in work may rest on what the log does not have.
    pub(crate) fn set_doubtful(&mut self, is_doubtful: bool) {
        self.is_doubtful = is_doubtful;
    }

    /// Returns true if replies are held.
    pub(crate) fn holds_replies(&self) -> bool {
        self.held_replies.size() > 0
    }

    /// Returns true if replies that are held, or are to come, may rest on what the log does not have.
    pub(crate) fn rests_on_log(&self) -> bool {
        self.is_doubtful || self.held_replies.size() > 0
    }

    /// Returns the next step after a write, as [`Connection::write`] does.
    fn next(&mut self, is_postponed: bool, now: Instant) -> Option<Next> {
        let is_answered = self.parsed.is_finished() && (self.intake.is_exhausted || !self.life.takes_requests());
        Some(match self.life {
            // The replies of forwarded batches in flight are dropped when they come back.
            Life::Closed => Next::Close,
            _ if is_postponed => Next::Work,
            Life::Draining(drain) if now >= drain.until => Next::Close,
            Life::Draining(_) => Next::Drain,
            Life::Finishing | Life::Closing { .. } if is_answered && self.output.waiting() > 0 => Next::Wait,
            Life::Finishing | Life::Closing { .. } if is_answered => return None,
            _ if self.queue.waits_for_forwarded() => Next::Wait,
            _ if self.is_starved() => Next::Starve,
            _ if self.parsed.is_finished() && self.intake.is_exhausted && !self.readiness.is_readable => Next::Wait,
            _ => Next::Work,
        })
    }

    /// Ends a connection that has sent everything, and whose peer was told so. `is_over` says that nothing more
    /// arrives.
    pub(crate) fn end_output(&mut self, source: impl Read, is_over: bool, now: Instant) -> Next {
        let mut drain = Drain::new(now);
        let is_over = is_over || drain.discard(source);
        self.life.end_output(drain, is_over);
        if let Life::Draining(_) = self.life { Next::Drain } else { Next::Close }
    }

    /// Returns true if its client has sent and taken nothing for this time, no request is in work or waits for memory, and no
    /// reply waits for the disk.
    pub(crate) fn is_idle(&self, now: Instant, timeout: Duration) -> bool {
        let waits_for_server = !self.parsed.is_finished() || self.waits_in_queue() || self.holds_replies();
        !waits_for_server && now.saturating_duration_since(self.progress_at) >= timeout
    }

    /// Returns true if it must log in and has not done so in this time. Is called in each pass, because a client may log out
    /// again (`RESET`).
    pub(crate) fn is_stranger(&mut self, access: &Access, now: Instant, time: Duration) -> bool {
        let is_locked = match self.parsed.login() {
            Some(login) => login.is_missing(access),
            None => self.waits_for_hello() && access.needs_password(),
        };
        if !is_locked {
            self.known_at = now;
        }
        now.saturating_duration_since(self.known_at) >= time
    }

    /// Returns its front end.
    pub(crate) fn front_end(&self) -> FrontEnd {
        self.parsed.front_end()
    }

    /// Returns the bytes of the output that wait for the transport.
    pub(crate) fn output_size(&self) -> usize {
        self.output.waiting()
    }

    /// Returns true if the output is empty, or may grow while the client does not take replies.
    fn has_room(&self) -> bool {
        !self.holding.is_full
    }
}
