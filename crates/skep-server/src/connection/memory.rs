//! The memory that a connection holds, and waits for when it may not hold more: see [`crate::memory_budget`].
//!
//! ```text
//!   head of a request ─▶ ask ─┬─▶ granted: it is read ─▶ executed ─▶ end of the grant
//!                             └─▶ waits in the queue of the server, is not read ─▶ admitted ─▶ …
//! ```

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::Connection;
use super::progress::Progress;
use crate::buffer::Input;
use crate::limits::{
    CLIENT_SIZE, INPUT_GROWTH_MAX, INPUT_ROOM_MIN, KEPT_BESIDES_MAX, OUTPUT_ROOM_MIN, SHARE, SHARE_FOR_INPUT,
    SHARE_FOR_REPLIES, SMALL_REQUEST_MAX,
};
use crate::memory_budget::{Class, Loan, MemoryBudget, Permit, ShardBudget, Waiter};
use crate::metrics::Metrics;
use crate::parsed_batch::ParsedBatch;
use crate::transport::Transport;
use crate::vocabulary::Token;

/// Bytes of a connection besides its buffers: itself, and its entry in `CLIENT LIST`.
const CONNECTION_SIZE: usize = size_of::<Connection>() + size_of::<Transport>() + CLIENT_SIZE;

/// The memory that a connection holds, and waits for.
#[derive(Debug, Default)]
pub(super) struct Holding {
    pub(super) loan: Loan,
    /// Bytes that the next request needs, if decoding found that there were fewer.
    pub(super) needed: usize,
    want: Want,
    /// The ticket of its request, if that or a reply to it has waited for memory.
    ticket: Option<u64>,
    /// Its client does not take replies, and no more of them may be held.
    pub(super) is_full: bool,
    progress: Progress,
    /// Bytes that were read, and those of them that were read until it last kept no memory for requests.
    read: u64,
    proven: u64,
    /// The permit of the command that has begun.
    permit: Option<Permit>,
}

/// The purpose for which a connection wants memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Want {
    #[default]
    Nothing,
    /// A step, such as a reply.
    Step,
    /// This many bytes more for a request, which may need still more later unless it `is_whole`.
    Request { bytes: usize, is_whole: bool },
    /// This many bytes for all replies of a transaction.
    Replies { bytes: usize },
}

impl Connection {
    /// Returns the bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.request_memory() + self.parsed.reply_memory() + self.output.capacity() + self.queue.capacity()
    }

    /// Returns the bytes of memory held by the connection itself and by its requests. It may wait for more while it holds
    /// them.
    fn request_memory(&self) -> usize {
        CONNECTION_SIZE + self.input.capacity() + self.parsed.capacity() - self.parsed.reply_memory()
    }

    /// Returns true if it may not continue because the reserve is used up. A connection within its share always may.
    pub(crate) fn is_throttled(&self, shard_budget: &ShardBudget) -> bool {
        shard_budget.is_exhausted() && self.memory() > SHARE
    }

    /// Records the memory that is held now.
    pub(crate) fn record_memory(&mut self, shard_budget: &mut ShardBudget) {
        let (held, requests, outputs) = (self.memory(), self.request_memory(), self.output.waiting());
        shard_budget.record(&mut self.holding.loan, held, requests, outputs);
    }

    /// Records memory beyond the share, after a step for which it was secured: the next step of another connection may
    /// return what is not recorded.
    pub(super) fn record_growth(&mut self, shard_budget: &mut ShardBudget) {
        if self.memory() > SHARE {
            self.record_memory(shard_budget);
        }
    }

    /// Records that no memory is held: the connection ends, or is handed over to another shard.
    pub(crate) fn leave(&mut self, shard_budget: &mut ShardBudget) {
        shard_budget.leave(&mut self.holding.loan, self.number);
    }

    /// Counts bytes that were read.
    pub(super) fn count_read(&mut self, size: usize, now: Instant) {
        if size > 0 {
            self.progress_at = now;
            self.holding.progress.moved += size as u64;
            self.holding.read += size as u64;
        }
    }

    /// Counts bytes that were written.
    pub(super) fn count_written(&mut self, size: usize, now: Instant) {
        if size > 0 {
            self.progress_at = now;
            self.holding.progress.count_written(size as u64);
        }
    }

    /// Lets the step that was waiting for memory be tried again. A request waits until it is admitted.
    pub(crate) fn retry(&mut self, shard_budget: &ShardBudget) {
        if self.holding.want == Want::Step {
            self.holding.want = Want::Nothing;
        }
        self.look_for_room(shard_budget);
    }

    /// Finds out if the client has to take replies before more are encoded.
    pub(super) fn look_for_room(&mut self, shard_budget: &ShardBudget) {
        self.holding.is_full = self.output.waiting() > 0 && !self.may_hold_more(shard_budget);
    }

    /// Waits for memory, because it lacks memory for its next step.
    pub(crate) fn starve(&mut self) {
        if self.holding.want == Want::Nothing {
            self.holding.want = Want::Step;
        }
    }

    /// Returns true if more replies may be held. A client that takes none must leave memory to others.
    fn may_hold_more(&self, shard_budget: &ShardBudget) -> bool {
        !shard_budget.memory_budget().is_tight()
            && shard_budget.room_for_replies(self.held()) >= OUTPUT_ROOM_MIN.min(shard_budget.one_max() / 8)
    }

    /// Returns the bytes by which its requests may grow, at most `wanted` beyond the share. While others wait, it may hold
    /// `small_max`.
    pub(super) fn room_to_grow(&self, wanted: usize, small_max: usize, shard_budget: &mut ShardBudget) -> usize {
        let (held, requests) = (self.memory(), self.request_memory());
        let granted = shard_budget.room_to_grow(&self.holding.loan, held, requests, wanted, small_max);
        SHARE.saturating_sub(held) + granted
    }

    /// Asks for the memory of the request that is arriving, if its head has told its size. Returns the bytes of the input
    /// up to its end, if these are known and granted, or `None`: the input grows as it may. Fails if it has to wait.
    pub(super) fn secure_request(
        &mut self,
        metrics: &Metrics,
        shard_budget: &mut ShardBudget,
    ) -> Result<Option<usize>, Waits> {
        let need = self.parsed.arriving(self.input.bytes());
        if need.size_min + need.besides <= self.input.capacity().max(SHARE_FOR_INPUT) || self.input.bytes().is_empty() {
            return Ok(None);
        }
        if !self.holding.loan.is_granted() {
            self.input.fit();
        }
        let growth = need.size_min + need.besides - self.input.capacity();
        if !need.is_size_known {
            // What it never gets is refused before it is read.
            return if self.fits(growth, shard_budget) {
                Ok(None)
            } else {
                self.refuse_memory(growth, metrics, shard_budget)
            };
        }
        if self.holding.loan.granted_left(self.request_memory()) < growth {
            let is_whole = !self.parsed.will_keep_memory(self.input.bytes());
            let besides = SHARE_FOR_INPUT + SHARE_FOR_REPLIES;
            self.ask(growth + besides, need.perhaps, is_whole, metrics, shard_budget)?;
        }
        Ok(Some(need.size_min))
    }

    /// Asks for memory for more bytes of a request whose size is not known.
    pub(super) fn ask_for_input(&mut self, metrics: &Metrics, shard_budget: &mut ShardBudget) -> Result<(), Waits> {
        let growth = self.input.bytes().len().clamp(INPUT_ROOM_MIN, INPUT_GROWTH_MAX);
        self.ask(SHARE_FOR_INPUT, growth - SHARE_FOR_INPUT, false, metrics, shard_budget)
    }

    /// Asks for `bytes`, and for up to as many as `perhaps` in addition, and waits unless they are granted. Ends the
    /// connection if it may never hold that many.
    pub(super) fn ask(
        &mut self,
        bytes: usize,
        perhaps: usize,
        is_whole: bool,
        metrics: &Metrics,
        shard_budget: &mut ShardBudget,
    ) -> Result<(), Waits> {
        if !self.fits(bytes, shard_budget) {
            return self.refuse_memory(bytes, metrics, shard_budget).map(|_: Option<usize>| ());
        }
        self.record_memory(shard_budget);
        // What is granted and not in use is a part of it: together they are not more than one connection may hold.
        let granted = self.holding.loan.granted_left(self.request_memory());
        let bytes = (bytes + perhaps).min(shard_budget.one_max() - self.memory()).saturating_sub(granted);
        if bytes == 0 {
            return Ok(());
        }
        if shard_budget.grant(&mut self.holding.loan, bytes, is_whole) {
            return Ok(());
        }
        debug_assert!(self.holding.loan.class() != Class::Whole, "a request that was admitted as a whole waits again");
        // While it waits, it holds no more than it needs.
        self.release_unused();
        self.record_memory(shard_budget);
        debug_assert!(
            self.holding.loan.charge() + bytes <= shard_budget.one_max(),
            "the first one that waits gets what it asks for when all others have left"
        );
        self.holding.want = Want::Request { bytes, is_whole };
        Err(Waits)
    }

    /// Returns true if it may hold as many bytes more at some time.
    fn fits(&self, bytes: usize, shard_budget: &ShardBudget) -> bool {
        self.memory() + bytes <= shard_budget.one_max()
    }

    /// Waits until the client has taken its replies, if the request fits then. Else ends the connection.
    fn refuse_memory<T>(&mut self, bytes: usize, metrics: &Metrics, shard_budget: &ShardBudget) -> Result<T, Waits> {
        if self.output.waiting() > 0 && self.memory() - self.output.capacity() + bytes <= shard_budget.one_max() {
            self.starve();
        } else {
            self.end_with_error("the request needs more memory than one connection may hold", metrics);
        }
        Err(Waits)
    }

    /// Ends the grant of a request that is done. Returns memory that may not be kept for the next one.
    pub(super) fn end_request(&mut self, shard_budget: &mut ShardBudget) {
        let keeps_memory = self.parsed.keeps_memory();
        if !keeps_memory {
            self.holding.proven = self.holding.read.saturating_sub(self.input.bytes().len() as u64);
            self.holding.progress.moved_unkept = self.holding.progress.moved;
        }
        if !self.parsed.is_in_transaction() {
            self.holding.ticket = None;
        }
        if self.holding.loan.is_granted() || self.holding.loan.class() != Class::Growing {
            if !shard_budget.may_keep(&self.holding.loan, self.request_memory()) {
                self.release(shard_budget);
            }
            shard_budget.end_grant(&mut self.holding.loan, self.number, keeps_memory);
        } else if shard_budget.memory_budget().has_waiting() {
            self.release(shard_budget);
        }
    }

    /// Ends a connection that holds memory and transfers too slowly. Returns true if only the reason is left to be sent: a
    /// client that has read all replies is told it.
    pub(crate) fn end_slow(&mut self, metrics: &Metrics) -> bool {
        let is_idle = self.output.waiting() == 0 && self.parsed.is_finished() && self.life.takes_requests();
        self.end_with_error("memory for connections is short, and this one transfers too slowly", metrics);
        is_idle
    }

    /// Gives up the input and the transaction that is being queued, and sends a last error unless the connection speaks the
    /// native protocol. Counts and logs the reason.
    fn end_with_error(&mut self, reason: &str, metrics: &Metrics) {
        metrics.connections.closed_for_memory.add(1);
        if let Some(left_out) = metrics.closed_lines.line() {
            let (connection, bytes) = (self.number, self.held());
            tracing::warn!(connection, bytes, left_out, "closing a connection: {reason}");
        }
        if let ParsedBatch::Resp(_) | ParsedBatch::Away = self.parsed {
            self.append_free(format!("-ERR {reason} (--connection-memory)\r\n").as_bytes());
        } else if let ParsedBatch::Memcached(_) = self.parsed {
            self.append_free(format!("SERVER_ERROR {reason} (--connection-memory)\r\n").as_bytes());
        }
        self.finish_parsed();
        if let ParsedBatch::Resp(parsed) = &mut self.parsed {
            parsed.end_transaction();
        }
        if self.parsed.size() == 0 {
            // No request refers to it.
            self.input = Input::default();
        }
        self.life.end_requests();
        self.intake.is_exhausted = true;
        // The next write ends what was granted.
        self.is_request_done = true;
    }

    /// Returns the permit for the reply to its next command, which is isolated, beside `written` bytes of replies. If there
    /// is no memory, it waits.
    pub(crate) fn permit(&mut self, written: usize, shard_budget: &mut ShardBudget) -> Option<Permit> {
        if !self.takes_permit() {
            return Some(Permit::for_short_reply());
        }
        if !self.is_blocked() || self.holding.permit.is_none() {
            self.holding.permit = shard_budget.permit(&mut self.holding.loan, written);
        }
        if self.holding.permit.is_none() {
            self.starve();
        }
        self.holding.permit
    }

    /// Waits until the replies of its transaction are permitted, which take `bytes`.
    pub(super) fn wait_for_replies(&mut self, bytes: usize, shard_budget: &mut ShardBudget) {
        // It holds none of them meanwhile.
        shard_budget.end_permit(&mut self.holding.loan);
        self.holding.want = Want::Replies { bytes };
    }

    /// Ends the permit, unless its command goes on or is still to begin: the replies are recorded.
    pub(super) fn end_permit(&mut self, shard_budget: &mut ShardBudget) {
        let is_kept =
            matches!(&self.parsed, ParsedBatch::Resp(parsed) if parsed.is_blocked() || parsed.reply_needed() > 0);
        if !is_kept {
            self.holding.permit = None;
            if self.holding.loan.is_permitted() {
                shard_budget.end_permit(&mut self.holding.loan);
            }
        }
    }

    /// Ends the permit of its transaction, which a visit has taken over.
    pub(crate) fn end_visit_permit(&mut self, shard_budget: &mut ShardBudget) {
        shard_budget.end_permit(&mut self.holding.loan);
    }

    /// Returns the permitted bytes of replies that are still to come.
    pub(crate) fn permitted_left(&self) -> usize {
        self.holding.loan.permitted_left()
    }

    /// Returns true if it holds more than its share, or was granted more.
    pub(crate) fn borrows(&self) -> bool {
        self.held() > SHARE || self.holding.loan.charge() + self.holding.loan.small_part() > 0
    }

    /// Returns true if it waits for memory, also for room in its output.
    pub(crate) fn is_starved(&self) -> bool {
        self.holding.want != Want::Nothing || self.holding.is_full
    }

    /// Returns true if it waits in the queue of the server: for its request, or for the replies of its transaction.
    pub(crate) fn waits_in_queue(&self) -> bool {
        matches!(self.holding.want, Want::Request { .. } | Want::Replies { .. })
    }

    /// Returns its place in the order of those that wait for a step: first those that wait only for the server, in the order
    /// in which their requests began to wait.
    pub(crate) fn step_rank(&self) -> (bool, Option<u64>) {
        (self.holding.is_full, self.holding.ticket)
    }

    /// Takes a ticket when it begins to wait. It keeps it until its request is done.
    pub(crate) fn take_ticket(&mut self, memory_budget: &MemoryBudget) -> u64 {
        *self.holding.ticket.get_or_insert_with(|| memory_budget.next_ticket())
    }

    /// Returns its entry in the queue of the server, if it waits there.
    pub(crate) fn waiter(&self, shard: u16, token: Token, ticket: u64) -> Option<Waiter> {
        let (bytes, class, is_small) = match self.holding.want {
            Want::Request { bytes, is_whole: false } => (bytes, Class::Growing, false),
            Want::Request { bytes, is_whole: true } => (bytes, Class::Whole, bytes <= SMALL_REQUEST_MAX),
            Want::Replies { bytes } => (bytes, Class::Whole, false),
            Want::Nothing | Want::Step => return None,
        };
        let (connection, proven) = (self.number, self.holding.proven);
        Some(Waiter { shard, token, connection, bytes, class, ticket, proven, is_small, is_in_small_part: false })
    }

    /// Lets it wait for the memory of a request.
    #[cfg(test)]
    pub(crate) fn wait_for_request(&mut self, bytes: usize) {
        self.holding.want = Want::Request { bytes, is_whole: true };
    }

    /// Takes what was granted to it, which has waited in the queue.
    pub(crate) fn accept(&mut self, waiter: &Waiter, shard_budget: &mut ShardBudget) {
        match std::mem::take(&mut self.holding.want) {
            Want::Replies { .. } => shard_budget.accept_replies(&mut self.holding.loan, waiter),
            _ => shard_budget.accept(&mut self.holding.loan, waiter),
        }
    }

    /// Counts bytes of its requests among those of a visit, which it does not hold.
    pub(crate) fn set_away(&mut self, bytes: usize, shard_budget: &mut ShardBudget) {
        let (held, requests) = (self.memory(), self.request_memory());
        shard_budget.set_away(&mut self.holding.loan, bytes, held, requests);
    }

    /// Returns true if replies wait for the transport.
    fn has_replies_to_write(&self) -> bool {
        self.output.waiting() > self.held_replies.size()
    }

    /// Returns true if it waits for its client: to take replies, or to send the rest of a request.
    pub(crate) fn waits_for_client(&self) -> bool {
        if self.has_replies_to_write() {
            !self.readiness.is_writable
        } else {
            !self.is_starved() && self.parsed.is_finished() && self.intake.is_exhausted && !self.readiness.is_readable
        }
    }

    /// Looks at its progress while others wait for memory. `acknowledged` tells how many bytes the client has acknowledged,
    /// if the transport knows it. Returns the bytes and the time by which it is compared with others, the slowest first, if
    /// it is too slow.
    pub(crate) fn slowness(
        &mut self,
        now: Instant,
        acknowledged: impl FnOnce() -> Option<u64>,
    ) -> Option<(u64, Reverse<Duration>)> {
        let waits_for_client = self.waits_for_client();
        let acknowledged = if self.has_replies_to_write() { acknowledged() } else { None };
        // A client that keeps memory and transfers something else would keep the others waiting for ever.
        let most = 2 * self.request_memory() as u64 + KEPT_BESIDES_MAX;
        self.holding.progress.moved_max = self.parsed.keeps_memory().then(|| self.holding.progress.moved_unkept + most);
        self.holding.progress.look(now, waits_for_client, acknowledged)
    }

    /// Returns true if it waits for memory and its client has closed its side. A request that waits for its admission is
    /// served all the same.
    pub(crate) fn is_left(&self) -> bool {
        self.is_starved() && !self.waits_in_queue() && self.readiness.is_peer_finished
    }

    /// Returns true if it waits in the queue for the rest of a request that never comes: its client has closed its side, and
    /// no more than `arrived` bytes are left to be read. A request that has arrived as a whole is served all the same.
    pub(crate) fn is_left_in_queue(&self, arrived: impl FnOnce() -> usize) -> bool {
        let waits = matches!(self.holding.want, Want::Request { .. }) && self.holding.needed == 0;
        waits && self.readiness.is_peer_finished && {
            let bytes = self.input.bytes();
            bytes.len().saturating_add(arrived()) < self.parsed.arriving(bytes).size_min.max(bytes.len() + 1)
        }
    }

    /// Returns the bytes of memory that it held when they were last counted.
    pub(crate) fn held(&self) -> usize {
        self.holding.loan.held()
    }

    /// Returns the time at which it last read or wrote a byte.
    pub(crate) fn progress_at(&self) -> Instant {
        self.progress_at
    }

    /// Returns the memory of empty buffers, and of an input that has only the beginning of a request.
    pub(crate) fn release(&mut self, shard_budget: &mut ShardBudget) {
        if self.parsed.is_finished() && self.queue.is_finished() {
            self.release_unused();
            self.record_memory(shard_budget);
        }
    }

    fn release_unused(&mut self) {
        // Each byte of a long pipeline is moved a few times only.
        let left = self.input.bytes().len();
        if left <= SHARE || self.input.capacity() >= 2 * left {
            self.input.fit();
        }
        if self.parsed.is_finished() && self.queue.is_finished() {
            self.parsed.release();
            self.queue.release();
        }
    }
}

/// The connection waits for memory, or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waits;
