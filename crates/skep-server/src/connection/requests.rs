//! From requests to replies: what a connection decodes, submits to the stores, and encodes.

use std::time::Instant;

use skep_core::operation::Request;
use skep_wire::native::{Hello, ProtocolError, Welcome, WireError, operation_size};

use super::Connection;
use crate::batch::Answers;
use crate::chunk::{Chunk, Decoded};
use crate::ledger::Purse;
use crate::limits::{ENCODED_MAX, PARSED_GROWTH_MAX, READ_MAX, SHARE_FOR_REPLIES, SUBMISSION_SIZE_MAX};
use crate::metrics::Metrics;
use crate::native_chunk::NativeChunk;
use crate::resp_command::Context;
use crate::round::Run;
use crate::spaces::{Space, SpaceReplies, Spaces};

impl Connection {
    /// Decodes the next chunk if the last one is finished, or the next part of a long request. Returns the hello of a
    /// native connection.
    pub(crate) fn decode(&mut self, metrics: &Metrics, purse: &mut Purse) -> Option<Hello> {
        let may_decode = self.chunk.is_finished() || self.chunk.is_decoding();
        if self.intake.is_exhausted || !may_decode || !self.has_room() || !self.life.takes_requests() {
            return None;
        }
        if self.is_held_back(purse) {
            self.starve();
            return None;
        }
        let held = self.memory();
        let room = purse.secure(held, self.is_senior(), PARSED_GROWTH_MAX.max(self.holding.needed));
        let memory_max = self.chunk.capacity() + room.saturating_sub(SHARE_FOR_REPLIES);
        match self.chunk.decode(self.input.bytes_mut(), memory_max) {
            Ok(Decoded::Requests { round_size, request_count, exhausted }) => {
                if matches!(self.chunk, Chunk::Native(_)) {
                    metrics.operations_native.add(round_size as u64);
                }
                self.holding.needed = 0;
                let size = self.chunk.size();
                let intake = &mut self.intake;
                intake.is_exhausted = exhausted;
                // The other bytes of a longer request were counted when they were read.
                intake.work += size.min(READ_MAX);
                if size > 0 {
                    intake.operation_size = (size / request_count.max(1)).max(1);
                }
                let rest = self.input.bytes().len() - size;
                intake.undecoded = if exhausted { 0 } else { rest / intake.operation_size };
                self.round.begin(round_size);
                self.finish_chunk();
            }
            Ok(Decoded::Part(size)) => self.intake.work += size,
            Ok(Decoded::NeedsMemory(size)) => {
                self.holding.needed = size + SHARE_FOR_REPLIES;
                // As a rule it is there, and the next turn goes on with it.
                if purse.secure(held, self.is_senior(), self.holding.needed) < self.holding.needed {
                    self.want_memory(self.holding.needed, metrics, purse);
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

    /// Replies to the hello. The connection now belongs to the shard that the welcome names.
    pub(crate) fn welcome(&mut self, welcome: &Welcome, spaces: Spaces) {
        self.output.append(&welcome.encode());
        self.chunk = Chunk::Native(NativeChunk::new(spaces));
    }

    /// Returns true if operations are to be submitted.
    pub(crate) fn wants_submission(&self) -> bool {
        self.life != super::Life::Closed && !self.is_starved() && self.round.wants_submission()
    }

    /// Returns the number of operations that may be submitted, if the connection's part of the window is `share`.
    pub(crate) fn submission_max(&self, share: usize) -> usize {
        self.round.remaining().min(self.round.submission_max()).min(self.submissions.quota).min(share)
    }

    /// Returns the bytes that were read and decoded since the last call.
    pub(crate) fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.intake.work)
    }

    /// Calls `f` with the operations that are to be submitted, in order: at most `count_max`, and no more once they have
    /// `size_max` bytes. The others are submitted when these have their replies.
    ///
    /// If it is too late for operations that have not begun, `f` gets a refusal for them. A command of several keys is refused as
    /// a whole or not at all, and only if all of its operations are in this round. Returns the bytes of the operations.
    pub(crate) fn for_each_operation<'a>(
        &'a self,
        count_max: usize,
        size_max: usize,
        is_late: bool,
        mut f: impl FnMut(Space, Result<Request<'a>, WireError>),
    ) -> usize {
        let mut left = count_max;
        let size_max = size_max.min(SUBMISSION_SIZE_MAX);
        let mut size = 0;
        let mut is_refused = false;
        let mut operations = self.chunk.operations(self.input.bytes());
        for run in self.round.runs() {
            for alike in (1..=run.count()).rev() {
                if left == 0 || size >= size_max {
                    return size;
                }
                let Some((part, space, mut operation)) = operations.next() else { return size };
                if !run.is_unanswered() {
                    is_refused = false;
                    continue;
                }
                if part.index == 0 {
                    is_refused = is_late && part.count <= alike;
                }
                if is_refused {
                    operation = Err(WireError::Busy);
                } else {
                    left -= 1;
                }
                size += operation.as_ref().map_or(0, operation_size);
                f(space, operation);
            }
        }
        size
    }

    /// Returns true if the first operation that is to be submitted may be refused.
    pub(crate) fn may_be_refused(&self) -> bool {
        let mut before = 0;
        let unanswered = self.round.runs().iter().find(|run| {
            before += if run.is_unanswered() { 0 } else { run.count() };
            run.is_unanswered()
        });
        let part = self.chunk.part(before);
        unanswered.zip(part).is_some_and(|(run, part)| part.index == 0 && part.count <= run.count())
    }

    /// Records where the operations of [`Connection::for_each_operation`] went. The connection's part of the window is `share`;
    /// `has_company` says that something before them in the batch was executed. Returns the number of those that are done or
    /// with other shards.
    pub(crate) fn place(
        &mut self,
        places: &[Run],
        parcel_count: usize,
        replies: &SpaceReplies,
        share: usize,
        has_company: bool,
    ) -> usize {
        let count: usize = places.iter().map(Run::count).sum();
        let done = count - self.round.place(places, parcel_count, replies);
        self.submissions.submitted(count, done, parcel_count, share, has_company);
        done
    }

    /// Takes the answers of a parcel that came back from `shard`.
    pub(crate) fn receive(&mut self, shard: u16, answers: &Answers) {
        self.round.receive(shard, answers);
        let is_last = !self.round.waits_for_parcels();
        self.submissions.returned(answers.len(), answers.done_count() as usize, is_last);
    }

    /// Returns true if other shards executed nothing of its last submission to them.
    pub(crate) fn is_returned(&self) -> bool {
        self.submissions.is_returned
    }

    /// Returns the time from which on the requests in the input have waited for the server.
    pub(crate) fn read_at(&self) -> Instant {
        self.intake.read_at
    }

    /// Returns about how many operations were read and have no reply. Those that wait for the client to take replies do not
    /// count.
    pub(crate) fn operations_left(&self) -> usize {
        if !self.life.takes_requests() || self.is_starved() {
            return 0;
        }
        self.chunk.operations_left(&self.round) + self.intake.undecoded
    }

    /// Encodes the replies that are there into `output`, in order, and buffers the others. Returns the number of those that
    /// were encoded.
    pub(crate) fn encode(
        &mut self,
        replies: &SpaceReplies,
        output: &mut Vec<u8>,
        context: &mut Context<'_>,
        purse: &Purse,
    ) -> usize {
        let before = self.chunk.operations_left(&self.round);
        let room = if purse.is_overdrawn() { 0 } else { purse.room(self.held(), false).min(ENCODED_MAX) };
        // The share covers a few small ones: beside a senior, there is no room for a connection that has borrowed.
        let room = room.max(SHARE_FOR_REPLIES);
        if self.is_held_back(purse) {
            self.starve();
        } else if self.has_room() {
            self.chunk.encode(&mut self.round, replies, self.input.bytes(), output, room, context);
        }
        self.round.keep(replies);
        let after = self.chunk.operations_left(&self.round);
        context.turn_room = context.turn_room.saturating_sub(output.len());
        if context.closing {
            self.life.end_requests();
        }
        self.finish_chunk();
        before - after
    }

    /// Consumes the input of a chunk whose replies are all in the output.
    pub(super) fn finish_chunk(&mut self) {
        // A chunk without requests keeps the memory that was made for the next one.
        if self.chunk.is_finished() && self.chunk.size() > 0 {
            self.is_request_done |= self.chunk.has_requests();
            let size = self.chunk.finish();
            self.input.consume(size);
        }
    }

    fn refuse(&mut self, error: ProtocolError, metrics: &Metrics) {
        metrics.protocol_errors.add(1);
        tracing::debug!(connection = self.number, %error, "closing a native connection");
        self.life.end_requests();
    }
}
