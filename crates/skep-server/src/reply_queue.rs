//! The reply queue of a connection: its operations in request order, with the replies that have arrived.
//!
//! A connection decodes a batch of operations. It decodes the next batch when every reply is in the output. So replies
//! leave in the order of their requests. Operations of one connection on one key are executed in order, by any shard.
//!
//! ```text
//!   slots    │ ready │ ready │ pending │ forwarded │ buffered │ …        those in the output are removed
//!   ranges   │ 2             │ 1       │ 1         │ 1        │ …        adjacent slots that are alike
//! ```
//!
//! A slot that is `Pending` is submitted to a store. If the store defers the operation, it is submitted again. The
//! order is kept: a store that defers one operation on a key defers the later ones too, and a queue is only submitted
//! again when no operation of it is in flight.

use skep_core::operation::Reply;
use skep_wire::native::Response;

use crate::batch::{OwnedReply, ReplyBatch};
use crate::limits::{BUFFERED_SIZE_MAX, IDLE_QUEUE_SIZE_MAX, IDLE_RANGES_MAX};
use crate::spaces::SpaceReplies;
use crate::vocabulary::ReplyIndex;

/// The state of an operation of the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Slot {
    /// To be submitted.
    Pending,
    /// In a forwarded batch to this shard.
    Forwarded(u16),
    /// Has its reply at this index of the shard's [`SpaceReplies`], only until the shard's next batch.
    Ready(ReplyIndex),
    /// Has its reply, which was copied.
    Buffered(OwnedReply),
}

/// Adjacent slots that are alike: the first one, and their number. Ready replies have adjacent indexes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReplyRange {
    slot: Slot,
    count: usize,
}

impl ReplyRange {
    /// Creates a range of one slot.
    #[inline]
    pub(crate) fn one(slot: Slot) -> ReplyRange {
        ReplyRange { slot, count: 1 }
    }

    /// Creates a range of ready replies, of which this is the first.
    #[inline]
    pub(crate) fn of_ready(first: ReplyIndex, count: usize) -> ReplyRange {
        ReplyRange { slot: Slot::Ready(first), count }
    }

    /// Returns the number of slots.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns true if its operations are to be submitted.
    pub(crate) fn is_pending(&self) -> bool {
        self.slot == Slot::Pending
    }

    /// Returns true if one of its operations was deferred because there is no room for its reply.
    pub(crate) fn is_deferred_for_room(&self, replies: &SpaceReplies) -> bool {
        let Slot::Ready(first) = self.slot else { return false };
        (0..self.count).any(|index| replies.is_deferred_for_room(first.plus(index)))
    }

    /// Returns the bytes that its operations have touched, without those that have touched few each.
    pub(crate) fn bytes_touched(&self, replies: &SpaceReplies) -> usize {
        self.ready().map_or(0, |first| replies.bytes_touched_by(first, self.count))
    }

    /// Returns the index of the first reply, if its replies are ready.
    pub(crate) fn ready(&self) -> Option<ReplyIndex> {
        if let Slot::Ready(index) = self.slot { Some(index) } else { None }
    }

    /// Returns true if `next` continues it.
    #[inline]
    fn continues_with(&self, next: &ReplyRange) -> bool {
        match (self.slot, next.slot) {
            (Slot::Pending, Slot::Pending) => true,
            (Slot::Forwarded(shard), Slot::Forwarded(other)) => shard == other,
            (Slot::Ready(index), Slot::Ready(other)) => index.plus(self.count) == other,
            _ => false,
        }
    }

    /// Takes its first `count` slots.
    #[inline]
    fn take(&mut self, count: usize) -> ReplyRange {
        let taken = ReplyRange { slot: self.slot, count };
        self.count -= count;
        if let Slot::Ready(index) = self.slot {
            self.slot = Slot::Ready(index.plus(count));
        }
        taken
    }
}

/// Appends a range to those from index `begin` on.
#[inline]
pub(crate) fn push_range(ranges: &mut Vec<ReplyRange>, begin: usize, range: ReplyRange) {
    match ranges[begin..].last_mut() {
        Some(last) if last.continues_with(&range) => last.count += range.count,
        _ if range.count == 0 => {}
        _ => ranges.push(range),
    }
}

/// Operations and their replies.
#[derive(Debug, Default)]
pub(crate) struct ReplyQueue {
    /// The ranges of the operations, in request order.
    ranges: Vec<ReplyRange>,
    /// Index of the first range that is not in the output.
    first: usize,
    /// Empty; it keeps its memory.
    spare: Vec<ReplyRange>,
    /// Slots from the first range on.
    remaining: usize,
    /// The values of buffered replies.
    bytes: Vec<u8>,
    /// Forwarded batches in flight.
    forwarded_count: usize,
}

impl ReplyQueue {
    /// Begins with `count` operations. The last ones must be finished.
    pub(crate) fn begin(&mut self, count: usize) {
        debug_assert!(self.is_finished());
        self.clear();
        push_range(&mut self.ranges, 0, ReplyRange { slot: Slot::Pending, count });
        self.remaining = count;
    }

    fn clear(&mut self) {
        self.ranges.clear();
        self.ranges.shrink_to(IDLE_RANGES_MAX);
        self.spare.shrink_to(IDLE_RANGES_MAX);
        self.first = 0;
        self.bytes.clear();
        self.bytes.shrink_to(IDLE_QUEUE_SIZE_MAX);
    }

    /// Returns the bytes of memory held.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        (self.ranges.capacity() + self.spare.capacity()) * size_of::<ReplyRange>() + self.bytes.capacity()
    }

    /// Returns the memory of a finished queue.
    pub(crate) fn release(&mut self) {
        (self.ranges, self.spare, self.bytes) = (Vec::new(), Vec::new(), Vec::new());
        self.first = 0;
    }

    /// Returns true if every reply is in the output.
    pub(crate) fn is_finished(&self) -> bool {
        self.remaining == 0
    }

    /// Returns true if operations are to be submitted: some are pending and none is in flight.
    pub(crate) fn wants_submission(&self) -> bool {
        self.forwarded_count == 0 && self.ranges().iter().any(ReplyRange::is_pending)
    }

    /// Returns true if many bytes of replies are buffered, of which the first one could be written.
    pub(crate) fn has_much_to_write(&self) -> bool {
        let is_first_buffered = || matches!(self.ranges().first(), Some(ReplyRange { slot: Slot::Buffered(_), .. }));
        self.bytes.len() > IDLE_QUEUE_SIZE_MAX && is_first_buffered()
    }

    /// Returns the number of pending operations that may be submitted. If many buffered bytes already wait for an
    /// earlier reply, this is one.
    pub(crate) fn submission_max(&self) -> usize {
        if self.bytes.len() > BUFFERED_SIZE_MAX { 1 } else { usize::MAX }
    }

    /// Returns true if replies are in flight.
    pub(crate) fn waits_for_forwarded(&self) -> bool {
        self.forwarded_count > 0
    }

    /// Returns the number of operations whose replies are not in the output.
    pub(crate) fn remaining(&self) -> usize {
        self.remaining
    }

    /// Returns the ranges of these operations. Adjacent ones differ.
    pub(crate) fn ranges(&self) -> &[ReplyRange] {
        &self.ranges[self.first..]
    }

    /// Records the destinations of the pending operations, in order, and the number of forwarded batches. Local ones
    /// that the store deferred stay pending, and so do those for which there was no forwarded batch. Returns the number
    /// of submitted operations that stay pending.
    pub(crate) fn record_submission(
        &mut self,
        destinations: &[ReplyRange],
        forwarded_count: usize,
        replies: &SpaceReplies,
    ) -> usize {
        self.forwarded_count = forwarded_count;
        let mut pending = 0;
        let mut destinations = destinations.iter().copied();
        let mut destination = destinations.next();
        self.replace(|mut range, ranges, _| {
            while let Some(next) = &mut destination
                && range.is_pending()
                && range.count > 0
            {
                let part = next.take(range.take(next.count.min(range.count)).count);
                match part.ready() {
                    Some(first) if replies.have_deferred(first) => {
                        for index in (0..part.count).map(|index| first.plus(index)) {
                            let is_deferred = replies.is_deferred(index);
                            pending += usize::from(is_deferred);
                            let slot = if is_deferred { Slot::Pending } else { Slot::Ready(index) };
                            push_range(ranges, 0, ReplyRange::one(slot));
                        }
                    }
                    _ => {
                        pending += if part.is_pending() { part.count } else { 0 };
                        push_range(ranges, 0, part);
                    }
                }
                if next.count == 0 {
                    destination = destinations.next();
                }
            }
            push_range(ranges, 0, range);
        });
        pending
    }

    /// Replaces each range by the ranges that `replace` appends. It may also append values of buffered replies.
    fn replace(&mut self, mut replace: impl FnMut(ReplyRange, &mut Vec<ReplyRange>, &mut Vec<u8>)) {
        for &range in &self.ranges[self.first..] {
            replace(range, &mut self.spare, &mut self.bytes);
        }
        std::mem::swap(&mut self.ranges, &mut self.spare);
        self.spare.clear();
        self.first = 0;
    }

    /// Calls `write` with the replies that have arrived, in order: at most `count_max`, and until it returns false.
    /// Returns the number of calls. Then these replies are in the output.
    #[inline]
    pub(crate) fn take<'a>(
        &'a mut self,
        count_max: usize,
        replies: &'a SpaceReplies,
        mut write: impl FnMut(Response<'_>) -> bool,
    ) -> usize {
        let mut taken = 0;
        let mut wants_more = count_max > 0;
        while wants_more && let Some(range) = self.ranges.get_mut(self.first) {
            let count = range.count.min(count_max - taken);
            let mut written = 0;
            match range.slot {
                Slot::Pending | Slot::Forwarded(_) => break,
                Slot::Ready(first) => {
                    let list = replies.list(first.list);
                    while wants_more && written < count {
                        let index = first.plus(written);
                        let reply = list.map_or_else(|| replies.get(index), |list| list.get(index.index as usize));
                        wants_more = write(Ok(reply));
                        written += 1;
                    }
                }
                Slot::Buffered(reply) => {
                    wants_more = write(reply.response(&self.bytes));
                    written = 1;
                }
            }
            range.take(written);
            self.first += usize::from(range.count == 0);
            taken += written;
            wants_more &= taken < count_max;
        }
        self.remaining -= taken;
        taken
    }

    /// Returns the reply to the first operation whose reply is not in the output, if it is there.
    pub(crate) fn next<'a>(&'a self, replies: &'a SpaceReplies) -> Option<Response<'a>> {
        match self.ranges.get(self.first)?.slot {
            Slot::Pending | Slot::Forwarded(_) => None,
            Slot::Ready(index) => Some(Ok(replies.get(index))),
            Slot::Buffered(reply) => Some(reply.response(&self.bytes)),
        }
    }

    /// Removes the reply that [`ReplyQueue::next`] returned: it is in the output.
    pub(crate) fn advance(&mut self) {
        let range = &mut self.ranges[self.first];
        range.take(1);
        self.first += usize::from(range.count == 0);
        self.remaining -= 1;
    }

    /// Makes the first operation pending again: its reply from [`ReplyQueue::next`] was written, and the operation
    /// continues.
    pub(crate) fn resubmit(&mut self) {
        let mut is_first = true;
        self.replace(|mut range, ranges, _| {
            if std::mem::take(&mut is_first) {
                range.take(1);
                push_range(ranges, 0, ReplyRange::one(Slot::Pending));
            }
            push_range(ranges, 0, range);
        });
    }

    /// Copies the replies that are still in the shard's `replies`, before its next batch overwrites them.
    pub(crate) fn buffer(&mut self, replies: &SpaceReplies) {
        if self.is_finished() {
            return self.clear();
        }
        if self.ranges().iter().any(|range| range.ready().is_some()) {
            self.replace(|range, ranges, bytes| match range.ready() {
                Some(first) => ranges.extend((0..range.count).map(|index| {
                    ReplyRange::one(Slot::Buffered(OwnedReply::copy(replies.get(first.plus(index)), bytes)))
                })),
                None => ranges.push(range),
            });
        }
        let is_needed = |range: &ReplyRange| matches!(range.slot, Slot::Buffered(OwnedReply::Value { .. }));
        if !self.bytes.is_empty() && !self.ranges().iter().any(is_needed) {
            // The values are all in the output. Their memory is returned at once, because the rest of the queue may
            // wait long for a deferred operation.
            self.bytes.clear();
            self.bytes.shrink_to(IDLE_QUEUE_SIZE_MAX);
        } else if self.bytes.len() > BUFFERED_SIZE_MAX {
            self.forget_encoded();
        }
    }

    /// Drops the values that are in the output already, if these are at least half of all: so each value is moved a few
    /// times at most, however many wait.
    fn forget_encoded(&mut self) {
        let size = |range: &ReplyRange| match range.slot {
            Slot::Buffered(OwnedReply::Value { size, .. }) => size,
            _ => 0,
        };
        if 2 * self.ranges().iter().map(size).sum::<usize>() > self.bytes.len() {
            return;
        }
        let mut bytes = Vec::new();
        for range in &mut self.ranges[self.first..] {
            if let Slot::Buffered(owned @ OwnedReply::Value { .. }) = &mut range.slot
                && let Ok(reply) = owned.response(&self.bytes)
            {
                *owned = OwnedReply::copy(reply, &mut bytes);
            }
        }
        self.bytes = bytes;
    }

    /// Takes the replies of a forwarded batch that `shard` sent back.
    pub(crate) fn receive(&mut self, shard: u16, replies: &ReplyBatch) {
        self.forwarded_count -= 1;
        let mut replies = replies.iter();
        self.replace(|mut range, ranges, bytes| {
            while range.slot == Slot::Forwarded(shard)
                && range.count > 0
                && let Some(response) = replies.next()
            {
                range.take(1);
                let slot = match response {
                    Ok(Reply::Deferred) => Slot::Pending,
                    Ok(reply) => Slot::Buffered(OwnedReply::copy(reply, bytes)),
                    Err(error) => Slot::Buffered(OwnedReply::Unserved(error)),
                };
                push_range(ranges, 0, ReplyRange::one(slot));
            }
            push_range(ranges, 0, range);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use skep_core::operation::{Operation, PutCondition, Reply, Request};
    use skep_store::hash::Settings;
    use skep_store::processor::Processor;

    use super::{BUFFERED_SIZE_MAX, IDLE_QUEUE_SIZE_MAX, IDLE_RANGES_MAX, ReplyQueue, ReplyRange, Slot, push_range};
    use crate::batch::{OwnedReply, ReplyBatch};
    use crate::spaces::{SpaceReplies, SpaceRequests, Stores};
    use crate::vocabulary::Space;

    /// Returns the replies that can be encoded.
    fn encode(queue: &mut ReplyQueue, replies: &SpaceReplies) -> Vec<Vec<u8>> {
        let mut encoded = Vec::new();
        while let Some(response) = queue.next(replies) {
            encoded.push(match response.unwrap() {
                Reply::Value(value) => value.to_vec(),
                reply => format!("{reply:?}").into_bytes(),
            });
            queue.advance();
        }
        encoded
    }

    #[test]
    fn replies_leave_in_order_and_deferred_ones_are_submitted_again() {
        let replies = SpaceReplies::new();
        let mut queue = ReplyQueue::default();
        assert!(queue.is_finished());
        queue.begin(5);
        assert!(queue.wants_submission());
        let destinations = [
            Slot::Buffered(OwnedReply::Done),
            Slot::Forwarded(1),
            Slot::Forwarded(2),
            Slot::Forwarded(1),
            Slot::Buffered(OwnedReply::NotFound),
        ];
        queue.record_submission(&destinations.map(ReplyRange::one), 2, &replies);
        assert!(!queue.wants_submission() && queue.waits_for_forwarded());
        assert_eq!(encode(&mut queue, &replies), [b"Done"]);

        let mut returned = ReplyBatch::default();
        returned.push(Reply::Value(b"one"));
        returned.push(Reply::Deferred);
        queue.receive(1, &returned);
        assert_eq!(encode(&mut queue, &replies), [b"one"]);
        assert!(!queue.wants_submission(), "one batch is still in flight");
        returned.clear();
        returned.push(Reply::Value(b"two"));
        queue.receive(2, &returned);
        assert_eq!(encode(&mut queue, &replies), [b"two"]);

        assert!(queue.wants_submission());
        assert_eq!(queue.remaining(), 2);
        assert_eq!(queue.ranges(), [Slot::Pending, Slot::Buffered(OwnedReply::NotFound)].map(ReplyRange::one));
        queue.record_submission(&[ReplyRange::one(Slot::Buffered(OwnedReply::Exists))], 0, &replies);
        assert_eq!(encode(&mut queue, &replies), [b"Exists".to_vec(), b"NotFound".to_vec()]);
        assert!(queue.is_finished() && !queue.wants_submission());
    }

    #[test]
    fn operations_of_a_range_that_a_store_deferred_are_submitted_again_after_it() {
        const COUNT: usize = 12;
        let value = vec![7; 200 << 10];
        let processor = Processor::new(&Settings::for_kv_size(64 << 20, value.len(), 0)).unwrap();
        let (mut stores, mut replies) = (Stores::new(processor, None, 0, None), SpaceReplies::new());
        let put = Operation::Put { value: &value, condition: PutCondition::Always };
        let mut batch = SpaceRequests::default();
        batch.push(Space::Hash, Request { key: b"k", operation: put });
        assert_eq!(stores.execute(&batch, &mut replies, Instant::now()).operations, 1);

        let mut queue = ReplyQueue::default();
        queue.begin(COUNT + 1);
        let (mut submissions, mut sizes) = (0, Vec::new());
        while !queue.is_finished() {
            assert!(queue.wants_submission());
            let count: usize = queue.ranges().iter().filter(|range| range.is_pending()).map(ReplyRange::count).sum();
            let (mut batch, mut destinations) = (SpaceRequests::default(), Vec::new());
            for _ in 0..count {
                let index = batch.push(Space::Hash, Request { key: b"k", operation: Operation::Get });
                push_range(&mut destinations, 0, ReplyRange::one(Slot::Ready(index)));
            }
            assert_eq!(destinations.len(), 1, "adjacent indexes are one range");
            let done = stores.execute(&batch, &mut replies, Instant::now()).operations;
            assert!(submissions > 0 || 0 < done && done < COUNT, "the budget is for some of them");
            queue.record_submission(&destinations, 0, &replies);
            assert!(queue.ranges().len() <= 2);
            // Replies come in order, whether they are taken one at a time or as a range.
            if submissions % 2 == 0 {
                assert!(matches!(queue.next(&replies), Some(Ok(Reply::Value(_)))));
                queue.advance();
                sizes.push(value.len());
            }
            queue.take(COUNT, &replies, |response| match response {
                Ok(Reply::Value(value)) => {
                    sizes.push(value.len());
                    true
                }
                other => panic!("{other:?}"),
            });
            queue.buffer(&replies);
            submissions += 1;
        }
        assert_eq!(sizes, [value.len(); COUNT + 1]);
        assert!(submissions > 1);
    }

    #[test]
    fn values_that_wait_are_moved_a_few_times() {
        const COUNT: usize = 100;
        let (replies, value) = (SpaceReplies::new(), [7; 64 << 10]);
        let mut queue = ReplyQueue::default();
        let mut returned = ReplyBatch::default();
        (0..COUNT).for_each(|_| returned.push(Reply::Value(&value)));
        queue.begin(COUNT);
        queue.record_submission(&[ReplyRange { slot: Slot::Forwarded(1), count: COUNT }], 1, &replies);
        queue.receive(1, &returned);
        let (mut moved, mut before) = (0, queue.bytes.as_ptr());
        for left in (0..COUNT).rev() {
            assert!(matches!(queue.next(&replies), Some(Ok(Reply::Value(bytes))) if bytes == value));
            queue.advance();
            queue.buffer(&replies);
            moved += if queue.bytes.as_ptr() == before { 0 } else { left };
            before = queue.bytes.as_ptr();
            assert!(queue.bytes.len() <= 2 * left * value.len() + BUFFERED_SIZE_MAX);
        }
        assert!(moved <= COUNT, "{moved} values were moved");
    }

    #[test]
    fn a_finished_queue_returns_its_memory() {
        let replies = SpaceReplies::new();
        let mut queue = ReplyQueue::default();
        let mut returned = ReplyBatch::default();
        returned.push(Reply::Value(&[1; BUFFERED_SIZE_MAX / 2]));
        queue.begin(65_535);
        queue.record_submission(&vec![ReplyRange::one(Slot::Buffered(OwnedReply::Done)); 65_534], 0, &replies);
        queue.record_submission(&[ReplyRange::one(Slot::Forwarded(1))], 1, &replies);
        queue.receive(1, &returned);
        assert_eq!(encode(&mut queue, &replies).len(), 65_535);
        queue.buffer(&replies);
        assert!(queue.ranges.capacity() <= IDLE_RANGES_MAX && queue.spare.capacity() <= IDLE_RANGES_MAX);
        assert!(queue.bytes.capacity() <= IDLE_QUEUE_SIZE_MAX);
    }

    #[test]
    fn buffered_bytes_are_bounded() {
        let replies = SpaceReplies::new();
        let mut queue = ReplyQueue::default();
        queue.begin(100);
        let mut returned = ReplyBatch::default();
        returned.push(Reply::Value(&[1; BUFFERED_SIZE_MAX]));
        for index in 0..100 {
            assert_eq!(queue.submission_max(), usize::MAX);
            queue.record_submission(&[ReplyRange::one(Slot::Forwarded(1))], 1, &replies);
            queue.receive(1, &returned);
            assert_eq!(encode(&mut queue, &replies).len(), 1, "{index}");
            queue.buffer(&replies);
            assert!(queue.bytes.len() <= BUFFERED_SIZE_MAX);
        }
        queue.begin(3);
        queue.record_submission(&[Slot::Forwarded(1), Slot::Forwarded(2)].map(ReplyRange::one), 2, &replies);
        returned.push(Reply::Value(b"more"));
        queue.receive(2, &returned);
        returned.clear();
        returned.push(Reply::Deferred);
        queue.receive(1, &returned);
        queue.buffer(&replies);
        assert_eq!(queue.submission_max(), usize::MAX);
        returned.clear();
        returned.push(Reply::Value(b"some"));
        queue.record_submission(
            &[Slot::Buffered(OwnedReply::Deferred), Slot::Forwarded(3)].map(ReplyRange::one),
            1,
            &replies,
        );
        queue.receive(3, &returned);
        queue.buffer(&replies);
        assert_eq!(queue.submission_max(), 1);
    }
}
