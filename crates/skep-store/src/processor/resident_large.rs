//! The stage for values in several slabs without an index, up to 4 KiB: a loop over their prefetched slabs.
//!
//! It reads, updates and overwrites values in place. All else is left to a future, as are operations for which the batch has
//! no room; `large` defers them. The requests that follow on the key are executed on the same slabs.

use super::queue::Batch;
use super::replies::{Grant, Replies};
use super::station::{QueueIndex, Queues, RequestIndex};
use crate::apply::{Edit, Found, InPlace, NewValue, Outcome, Read, Reader, apply};
use crate::hash::LargeRoot;
use crate::memory::{Effect, Memory, Pointer, ResidentLines};
use crate::short::equal;
use skep_core::operation::{Expiry, Reply};

/// Values that are prefetched ahead of the one in work, into the second cache of a core.
const VALUES_AHEAD: usize = 8;

/// A large value without an index, whose key is that of the head of a queue.
#[derive(Debug)]
pub(super) struct LargeValue {
    pub(super) queue: QueueIndex,
    pub(super) root: LargeRoot,
    pub(super) expiry: Option<Expiry>,
}

impl<M: Memory> Batch<'_, M> {
    /// Executes the head of each queue whose large value was found, and the requests of the same key after it. What is left of
    /// a queue begins again with a probe of a bucket, or remains for a future.
    #[inline(never)]
    pub(super) fn access_large(
        &self,
        values: &[LargeValue],
        buckets: &mut Vec<(QueueIndex, Pointer)>,
        remaining: &mut Vec<QueueIndex>,
        replies: &mut Replies,
    ) {
        let mut lines = self.table.memory().resident().expect("the buckets were probed");
        values.iter().take(VALUES_AHEAD).for_each(|value| self.table.prefetch_data(&value.root));
        for (index, value) in values.iter().enumerate() {
            if let Some(ahead) = values.get(index + VALUES_AHEAD) {
                self.table.prefetch_data(&ahead.root);
            }
            if self.run_on_large(value, &mut lines, replies) {
                self.activate(buckets, value.queue);
            } else {
                remaining.push(value.queue);
            }
        }
    }

    /// Executes the requests of a queue up to one on another key. Returns false if the head is left to a future.
    fn run_on_large(&self, value: &LargeValue, lines: &mut impl ResidentLines, replies: &mut Replies) -> bool {
        let key = self.requests[self.station.first(value.queue).index()].key;
        while let Some(first) = self.head(value.queue) {
            if !equal(self.requests[first.index()].key, key) {
                break;
            }
            if !self.execute_on_large(first, value, lines, replies) {
                return false;
            }
            self.station.remove(value.queue, None, first);
        }
        true
    }

    /// Executes a request. Returns false, and does nothing, if that is left to a future.
    fn execute_on_large(
        &self,
        request: RequestIndex,
        value: &LargeValue,
        lines: &mut impl ResidentLines,
        replies: &mut Replies,
    ) -> bool {
        let (index, request) = (self.first_reply + request.index(), &self.requests[request.index()]);
        let LargeValue { ref root, expiry, .. } = *value;
        if self.has_no_room_for(request) || self.table.has_expired(expiry) {
            return false;
        }
        let size = root.value_size as usize;
        let outcome = apply(&request.operation, Some(|| Found::in_pieces(size, expiry)), self.arena);
        let is_in_place = match &outcome {
            Outcome::Reply(_) | Outcome::Read(_) | Outcome::Update(_) => true,
            Outcome::Edit(Edit::Store(new)) => new.size() == size && new.expiry().apply(expiry) == expiry,
            Outcome::Edit(Edit::Remove(_)) | Outcome::Part(_) | Outcome::Expire(_) | Outcome::Whole => false,
        };
        let reply_size = outcome.reply_size_max(size);
        if !is_in_place || !replies.may_touch_large(reply_size > 0) || replies.grant(reply_size) != Grant::Granted {
            return false;
        }
        let touched_before = replies.bytes_touched();
        match outcome {
            Outcome::Reply(reply) => replies.set(index, reply),
            Outcome::Read(read) => self.read_resident(index, read, root, lines, replies),
            Outcome::Update(update) => update_resident(index, update, root, lines, replies),
            Outcome::Edit(edit) => {
                if let Edit::Store(new) = &edit {
                    overwrite_resident(new, root, lines);
                    replies.touch_large(size);
                }
                replies.set(index, edit.reply());
            }
            Outcome::Part(_) | Outcome::Expire(_) | Outcome::Whole => unreachable!("it is not done in place"),
        }
        let touched = replies.bytes_touched() - touched_before;
        replies.list_cost(index, touched);
        true
    }

    /// Computes a reply from the slabs of a value.
    fn read_resident(
        &self,
        index: usize,
        read: Read<'_>,
        root: &LargeRoot,
        lines: &mut impl ResidentLines,
        replies: &mut Replies,
    ) {
        if let Read::Number(_) | Read::Computed(_) = read {
            return replies.slot(index).set_read(read, &[]);
        }
        if let Read::Value = read {
            self.hits.set(self.hits.get() + 1);
        }
        let (mut reader, mut size, start) = (Reader::new(read), 0, replies.bytes_mut().len());
        for (offset, span) in root.data_spans(read.range(root.value_size as usize)) {
            reader.read(offset, lines.span(span), replies.bytes_mut());
            lines.note(span, Effect::Unchanged);
            size += span.size();
            if reader.is_done() {
                break;
            }
        }
        reader.finish(replies.bytes_mut());
        replies.touch_large(read.work(size));
        replies.finish_value(index, start);
    }
}

/// Updates the slabs of a value.
fn update_resident(
    index: usize,
    update: InPlace<'_>,
    root: &LargeRoot,
    lines: &mut impl ResidentLines,
    replies: &mut Replies,
) {
    let (size, start) = (root.value_size as usize, replies.bytes_mut().len());
    for (offset, span) in root.data_spans(0..size) {
        update.update_piece(offset, lines.span(span), replies.bytes_mut());
        lines.note(span, Effect::Changed);
    }
    replies.touch_large(size);
    if update.replies_with_value() {
        replies.finish_value(index, start);
    } else {
        replies.set(index, Reply::Done);
    }
}

/// Writes a value over another one of its size.
fn overwrite_resident(new: &NewValue<'_>, root: &LargeRoot, lines: &mut impl ResidentLines) {
    for (offset, span) in root.data_spans(0..new.size()) {
        let piece = lines.span(span);
        piece.copy_from_slice(&new.bytes()[offset..][..piece.len()]);
        new.finish(offset, piece);
        lines.note(span, Effect::Changed);
    }
}
