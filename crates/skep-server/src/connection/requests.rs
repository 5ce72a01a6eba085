//! The steps of a connection from requests to replies: decode, submit to the stores, encode.

use std::time::Instant;

use skep_wire::native::{Hello, ProtocolError, Welcome, WireError};
use skep_wire::partition::Partition;

use super::Connection;
use crate::access::{Access, Login};
use crate::batch::ReplyBatch;
use crate::buffer::Input;
use crate::encoding::Encoding;
use crate::limits::{
    ENCODED_MAX, PARSED_GROWTH_MAX, PIPELINE_SIZE_MAX, READ_MAX, SHARE_FOR_INPUT, SHARE_FOR_REPLIES, SPARE_PART,
};
use crate::memory_budget::{Class, Permit, ReplyAccount, ShardBudget, VISIT_COPIES};
use crate::metrics::Metrics;
use crate::native_batch::NativeBatch;
use crate::parsed_batch::ParsedBatch;
use crate::reply_queue::ReplyRange;
use crate::resp_batch::RespBatch;
use crate::resp_command::Context;
use crate::spaces::SpaceReplies;
use crate::transaction::Bounds;
use crate::unix_time::UnixTime;
use crate::vocabulary::{Decoded, Effort, Refusal, ShardSet, Spaces, Step};

impl Connection {
    /// Decodes the next parsed batch if the last one is finished, or the next part of a long request. Returns the hello
    /// of a native connection. Until the next call, operations are submitted at this time.
    pub(crate) fn decode(
        &mut self,
        metrics: &Metrics,
        time: UnixTime,
        access: &Access,
        shard_budget: &mut ShardBudget,
    ) -> Option<Hello> {
        self.parsed.set_time(time);
        let may_decode = (self.parsed.is_finished() || self.parsed.is_decoding()) && !self.waits_in_queue();
        if self.intake.is_exhausted || !may_decode || !self.has_room() || !self.life.takes_requests() {
            return None;
        }
        if self.is_throttled(shard_budget) {
            self.starve();
            return None;
        }
        let room = self.room_to_grow(PARSED_GROWTH_MAX.max(self.holding.needed), PIPELINE_SIZE_MAX, shard_budget);
        let memory_max = self.parsed.capacity() + room.saturating_sub(SHARE_FOR_REPLIES);
        match self.parsed.decode(self.input.bytes_mut(), memory_max, time, access) {
            Ok(Decoded::Requests { queue_size, request_count, exhausted, work }) => {
                if matches!(self.parsed, ParsedBatch::Native(_)) {
                    metrics.operations.native.add(queue_size as u64);
                }
                self.holding.needed = 0;
                let size = self.parsed.size();
                let intake = &mut self.intake;
                intake.is_exhausted = exhausted;
                // Bytes beyond `READ_MAX` were counted when they were read.
                intake.work += size.min(READ_MAX) + work;
                if size > 0 {
                    intake.operation_size = (size / request_count.max(1)).max(1);
                }
                let rest = self.input.bytes().len() - size;
                intake.undecoded = if exhausted { 0 } else { rest / intake.operation_size };
                self.queue.begin(queue_size);
                self.record_growth(shard_budget);
                self.finish_parsed();
            }
            Ok(Decoded::Part(size)) => {
                self.intake.work += size;
                self.record_growth(shard_budget);
            }
            Ok(Decoded::NeedsMemory { bytes, perhaps }) => {
                // And for the command itself.
                let bytes = bytes + SHARE_FOR_REPLIES + SHARE_FOR_INPUT;
                self.holding.needed = bytes + perhaps;
                // Usually the memory is available, and the next turn decodes the request.
                if self.room_to_grow(self.holding.needed, PIPELINE_SIZE_MAX, shard_budget) < self.holding.needed {
                    let is_whole = !self.parsed.will_keep_memory(self.input.bytes());
                    // After the arguments come the operands.
                    let need = self.parsed.arriving(self.input.bytes());
                    let perhaps = perhaps + if need.is_size_known { need.perhaps } else { 0 };
                    let _ = self.ask(bytes, perhaps, is_whole, metrics, shard_budget);
                }
            }
            Ok(Decoded::NoHello) => self.intake.is_exhausted = true,
            Ok(Decoded::Hello(hello, size)) => {
                self.input.consume(size);
                return Some(hello);
            }
            Err(error) => self.refuse(error, metrics),
        }
        None
    }

    /// Returns true if requests were decoded by rules of the user that are no longer in force, and are not done.
    #[inline]
    pub(crate) fn has_other_rules(&self, access: &Access) -> bool {
        !self.parsed.is_finished() && self.parsed.login().is_some_and(|login| login.has_other_rules(access))
    }

    /// Replies to the hello. The connection now belongs to the shard that the welcome names.
    pub(crate) fn welcome(&mut self, welcome: &Welcome, spaces: Spaces, login: Login) {
        self.append_free(&welcome.encode());
        self.parsed = ParsedBatch::Native(NativeBatch::new(spaces, login));
    }

    /// Ends a connection that the server does not serve, with these bytes as its reason.
    pub(crate) fn reject(&mut self, reason: &[u8]) {
        self.append_free(reason);
        self.life.end_requests();
        self.intake.is_exhausted = true;
    }

    /// Returns true if a part of a reply is in the output, and the rest is not yet made.
    pub(crate) fn is_within_reply(&self) -> bool {
        self.parsed.is_within_reply()
    }

    /// Appends bytes to the output that are no reply.
    pub(crate) fn append_output(&mut self, bytes: &[u8]) {
        self.append_free(bytes);
    }

    /// Returns true if operations are to be submitted. Not while a vector is written in parts to a client that takes them:
    /// more values would arrive than are written.
    pub(crate) fn wants_submission(&self) -> bool {
        let is_open = self.life != super::Life::Closed && !self.is_starved();
        is_open && self.queue.wants_submission() && !(self.queue.has_much_to_write() && self.writes_vector())
    }

    /// Returns true if the next reply is a vector, and there is room for more of it in the output.
    fn writes_vector(&self) -> bool {
        self.has_room() && matches!(&self.parsed, ParsedBatch::Resp(parsed) if parsed.is_next_vector())
    }

    /// Returns true if its next command needs a store.
    pub(crate) fn needs_store(&self) -> bool {
        self.awaits_replies() || matches!(&self.parsed, ParsedBatch::Resp(parsed) if parsed.is_next_isolated())
    }

    /// Returns the number of operations that may be submitted, if the connection's part of the window is `share`.
    pub(crate) fn submission_max(&self, share: usize) -> usize {
        self.queue.remaining().min(self.queue.submission_max()).min(self.submissions.quota).min(share)
    }

    /// Returns the bytes of an operation of the last decoded requests, on average.
    pub(crate) fn operation_size(&self) -> usize {
        self.intake.operation_size
    }

    /// Returns the bytes that were read and decoded since the last call.
    pub(crate) fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.intake.work)
    }

    /// Returns the parsed batch, its input, and the ranges of the operations whose replies are not in the output.
    #[inline]
    pub(crate) fn submission(&self) -> (&ParsedBatch, &[u8], &[ReplyRange]) {
        (&self.parsed, self.input.bytes(), self.queue.ranges())
    }

    /// Returns true if the first operation that is to be submitted may be refused.
    pub(crate) fn may_be_refused(&self) -> bool {
        let mut before = 0;
        let pending = self.queue.ranges().iter().find(|range| {
            before += if range.is_pending() { 0 } else { range.count() };
            range.is_pending()
        });
        pending.is_some_and(|range| self.parsed.may_be_refused(before, range.count()))
    }

    /// Records where the operations of [`Connection::submission`] went. The connection's part of the window is
    /// `share`; `has_company` says that an earlier operation of the batch was executed. Returns the number of
    /// operations that are done or with other shards.
    pub(crate) fn record_submission(
        &mut self,
        destinations: &[ReplyRange],
        forwarded_count: usize,
        replies: &SpaceReplies,
        share: usize,
        has_company: bool,
    ) -> usize {
        let count: usize = destinations.iter().map(ReplyRange::count).sum();
        let done = count - self.queue.record_submission(destinations, forwarded_count, replies);
        self.submissions.submitted(count, done, forwarded_count, share, has_company);
        done
    }

    /// Takes the replies of a forwarded batch that came back from `shard`.
    pub(crate) fn receive(&mut self, shard: u16, replies: &ReplyBatch) {
        self.queue.receive(shard, replies);
        let is_last = !self.queue.waits_for_forwarded();
        self.submissions.returned(replies.len(), replies.done_count() as usize, is_last);
    }

    /// Returns true if other shards executed nothing of its last submission to them.
    pub(crate) fn is_returned(&self) -> bool {
        self.submissions.is_returned
    }

    /// Returns the time from which on the requests in the input have waited for the server.
    pub(crate) fn read_at(&self) -> Instant {
        self.intake.read_at
    }

    /// Returns the approximate number of operations that were read and have no reply. Those that wait for the client to
    /// take replies do not count.
    pub(crate) fn operations_left(&self) -> usize {
        if !self.life.takes_requests() || self.is_starved() {
            return 0;
        }
        let isolated = if let ParsedBatch::Resp(parsed) = &self.parsed { parsed.isolated_left() } else { 0 };
        self.parsed.operations_left(&self.queue) + isolated + self.intake.undecoded
    }

    /// Encodes the replies that have arrived into `output`, in order, as far as there is room. Copies the other replies
    /// of the batch, because the shard's next batch overwrites them. Returns the number of replies that were encoded.
    pub(crate) fn encode(
        &mut self,
        replies: &SpaceReplies,
        output: &mut Vec<u8>,
        context: &mut Context<'_>,
        shard_budget: &ShardBudget,
    ) -> usize {
        let (before, begin) = (self.parsed.operations_left(&self.queue), output.len());
        let room =
            if shard_budget.is_overdrawn() { 0 } else { shard_budget.room_for_replies(self.held()).min(ENCODED_MAX) };
        // `SHARE_FOR_REPLIES` is always allowed: a connection that has borrowed may have no other room.
        let room = room.max(SHARE_FOR_REPLIES);
        context.may_hold_reply = shard_budget.may_reply(output.len());
        if self.is_throttled(shard_budget) {
            self.starve();
        } else if self.has_room() {
            let (queue, input) = (&mut self.queue, self.input.bytes());
            self.parsed.encode(&mut Encoding { queue, replies, input, end: begin + room, output, context });
        }
        if std::mem::take(&mut context.outcome.lacks_memory) {
            self.starve();
        }
        self.queue.buffer(replies);
        let after = self.parsed.operations_left(&self.queue);
        context.account.spend(output.len() - begin);
        if context.outcome.closing {
            self.life.end_requests();
        }
        self.finish_parsed();
        before - after
    }

    /// Returns true if an isolated command is in the parsed batch.
    #[inline]
    pub(crate) fn has_isolated(&self) -> bool {
        matches!(&self.parsed, ParsedBatch::Resp(parsed) if parsed.has_isolated())
    }

    /// Returns true if the next command counts what the stores have.
    pub(crate) fn reads_statistics(&self) -> bool {
        matches!(&self.parsed, ParsedBatch::Resp(parsed) if parsed.is_next_statistics())
    }

    /// Returns the shards that the next command involves, if that is an isolated one that may be run.
    pub(crate) fn isolated_shards(&mut self, partition: &Partition, shard_budget: &ShardBudget) -> Option<ShardSet> {
        let ParsedBatch::Resp(parsed) = &mut self.parsed else { return None };
        let shards = parsed.isolated_shards(partition, self.input.bytes())?;
        if parsed.is_blocked() {
            return Some(shards);
        }
        if self.is_throttled(shard_budget) {
            self.starve();
        }
        (self.life != super::Life::Closed && !self.is_starved()).then_some(shards)
    }

    /// Returns the effort of the next command, which is isolated, as far as it is known.
    pub(crate) fn effort(&mut self) -> Effort {
        if let ParsedBatch::Resp(parsed) = &mut self.parsed { parsed.effort() } else { Effort::Small }
    }

    /// Returns true if the next command, which is isolated, begins with a permit.
    pub(crate) fn takes_permit(&self) -> bool {
        matches!(&self.parsed, ParsedBatch::Resp(parsed) if parsed.takes_permit())
    }

    /// Returns true if an isolated command has begun, and the shards that it involves must be held until it is done.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(&self.parsed, ParsedBatch::Resp(parsed) if parsed.is_blocked())
    }

    /// Returns the room of the input and of the queue before a transaction begins, if it is a large part of what one
    /// connection may hold: the replies may have that part instead. What was granted for the queue is not needed any more.
    pub(crate) fn release_spare(&mut self, shard_budget: &mut ShardBudget) {
        let ParsedBatch::Resp(parsed) = &mut self.parsed else { return };
        let Some(spare) = parsed.spare_of_transaction() else { return };
        let spare = spare + self.input.capacity() - self.input.bytes().len();
        if self.holding.loan.class() != Class::Whole && spare >= shard_budget.one_max() / SPARE_PART {
            parsed.fit_transaction();
            self.input.fit();
            self.record_memory(shard_budget);
            shard_budget.end_grant(&mut self.holding.loan, self.number, true);
        }
    }

    /// Continues the next command, which is isolated. Returns the reason if it is not done.
    pub(crate) fn run_isolated(
        &mut self,
        output: &mut Vec<u8>,
        bounds: &mut Bounds<'_, '_>,
        context: &mut Context<'_>,
        permit: Permit,
        shard_budget: &mut ShardBudget,
    ) -> Result<(), Step> {
        self.release_spare(shard_budget);
        let ParsedBatch::Resp(parsed) = &mut self.parsed else { unreachable!("only RESP has isolated commands") };
        let account = ReplyAccount::new(&mut self.holding.loan, output.len(), shard_budget);
        let done = parsed.run_isolated(self.input.bytes(), output, bounds, context, account, permit);
        let reply_needed = parsed.reply_needed();
        if done == Err(Step::Room) {
            self.wait_for_replies(reply_needed, shard_budget);
        }
        if context.outcome.closing {
            self.life.end_requests();
        }
        done
    }

    /// Returns true if the next command, which is isolated, has not begun and must wait for the end of a pause.
    pub(crate) fn is_isolated_paused(&self, context: &mut Context<'_>) -> bool {
        matches!(&self.parsed, ParsedBatch::Resp(parsed) if parsed.is_isolated_paused(context))
    }

    /// Takes out the commands and their bytes, which visit another shard.
    pub(crate) fn begin_visit(&mut self) -> (Box<RespBatch>, Input) {
        let parsed = std::mem::replace(&mut self.parsed, ParsedBatch::Away);
        let ParsedBatch::Resp(parsed) = parsed else { unreachable!("only RESP has isolated commands") };
        (parsed, std::mem::take(&mut self.input))
    }

    /// Returns true if its commands visit another shard.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.parsed, ParsedBatch::Away)
    }

    /// Takes back the commands that have visited another shard. If it `is_closing`, it ends after their replies. If it
    /// `lacks_memory`, it waits for the memory of the next reply: a transaction in the queue of the server, for its
    /// replies in the visit and in the output.
    pub(crate) fn end_visit(
        &mut self,
        parsed: Box<RespBatch>,
        input: Input,
        is_closing: bool,
        lacks_memory: bool,
        shard_budget: &mut ShardBudget,
    ) {
        let reply_needed = parsed.reply_needed();
        self.parsed = ParsedBatch::Resp(parsed);
        self.input = input;
        self.set_away(0, shard_budget);
        if is_closing {
            self.life.end_requests();
        }
        match lacks_memory {
            true if reply_needed > 0 => self.wait_for_replies(VISIT_COPIES * reply_needed, shard_budget),
            true => self.starve(),
            false => {}
        }
        self.finish_parsed();
    }

    /// Returns true if there are operations whose replies are not in the output.
    pub(crate) fn awaits_replies(&self) -> bool {
        !self.queue.ranges().is_empty()
    }

    /// Returns the error for the next command, which is isolated, if it is refused.
    pub(crate) fn isolated_refusal(&self, refusal: Refusal, access: &Access) -> Option<WireError> {
        if let ParsedBatch::Resp(parsed) = &self.parsed { parsed.isolated_refusal(refusal, access) } else { None }
    }

    /// Refuses the next command, which is isolated.
    pub(crate) fn refuse_isolated(&mut self, error: WireError, output: &mut Vec<u8>, context: &mut Context<'_>) {
        if let ParsedBatch::Resp(parsed) = &mut self.parsed {
            parsed.refuse_isolated(error, output, context);
        }
    }

    /// Consumes the input of a parsed batch whose replies are all in the output.
    pub(super) fn finish_parsed(&mut self) {
        // A parsed batch without requests keeps the memory that was made for the next one.
        if self.parsed.is_finished() && self.parsed.size() > 0 {
            self.is_request_done = true;
            let size = self.parsed.finish();
            self.input.consume(size);
        }
    }

    fn refuse(&mut self, error: ProtocolError, metrics: &Metrics) {
        metrics.protocol_errors.add(1);
        tracing::debug!(connection = self.number, %error, "closing a native connection");
        self.life.end_requests();
    }
}
