//! The replies to one batch, in the order of its requests. They are set in any order.

use std::ops::Range;

use super::interleaver::IN_FLIGHT_MAX;
use crate::apply::{InPlace, Read, Reader, update_piece};
use crate::hash::PAIR_SIZE_MAX;
use crate::short::{SHORT_SIZE_MAX, load_short};
use skep_core::operation::{OperationError, PAGE_SIZE_MAX, Reply};

/// Largest reply budget: with the bytes that may exceed it, a batch's replies take less than 4 GiB.
const BUDGET_MAX: usize = 2 << 30;

const _: () = assert!(BUDGET_MAX + PAGE_SIZE_MAX + IN_FLIGHT_MAX * PAIR_SIZE_MAX <= u32::MAX as usize);

/// The replies to a batch. Its buffers are kept from batch to batch, so a steady state allocates nothing.
#[derive(Debug)]
pub struct Replies {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    budget: usize,
    /// Bytes that large values, overflow values and pages of scans may take in the replies of a batch.
    room: usize,
    /// The part of `room` that is left for this batch.
    room_left: usize,
    /// Bytes of the replies that are larger than [`MEDIUM_SIZE_MAX`].
    huge_bytes: usize,
    /// Bytes of large values that were read or written, in replies or not.
    large_bytes: usize,
    /// The bytes of each request that has touched many, in the order of their indexes.
    costly: Vec<(u32, u32)>,
}

/// The slot of the reply to one request.
pub(crate) struct ReplySlot<'r> {
    entry: &'r mut Entry,
    /// The bytes of all replies.
    bytes: &'r mut Vec<u8>,
}

/// Larger replies have a budget of their own, as large as that of the others. Otherwise a client that reads 64 KiB
/// would wait for all clients that read a mebibyte.
const MEDIUM_SIZE_MAX: usize = 64 << 10;

/// The decision on a request by the size of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// It is executed.
    Granted,
    /// It is deferred, because the budget for replies of this size is used up.
    Later,
    /// It is deferred, because there is no room for its reply.
    NoRoom,
}

/// Bytes of large values that a batch may read or write for each byte of its budget. A fold of a megabyte returns eight
/// bytes and takes a tenth of a millisecond, and a batch of them must not delay all other clients.
const LARGE_BYTES_PER_BUDGET: usize = 8;

/// Bytes that a request touches at least, so that it is listed with its cost.
const COSTLY_SIZE_MIN: usize = 16 << 10;

/// One reply in sixteen bytes. It contains a value of up to eight bytes; a longer one is in the bytes of all replies.
///
/// ```text
/// byte 0          8        12     13
///      ├──────────┼────────┼──────┼──────┤
///      │ word     │ size   │ kind │error │     word: a short value ends the word; bytes before it are
///      │          │ u32    │      │      │     undefined. Or the start of a longer value
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Entry {
    word: [u8; SHORT_SIZE_MAX],
    size: u32,
    kind: Kind,
    error: Option<OperationError>,
}

const _: () = assert!(size_of::<Entry>() == 16 && PAGE_SIZE_MAX <= u32::MAX as usize);

/// The kind of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Deferred,
    /// Deferred because its reply does not fit the room for replies.
    DeferredForRoom,
    Done,
    NotFound,
    Exists,
    Short,
    Long,
    Failed,
}

impl Entry {
    const DEFERRED: Entry = Entry::plain(Kind::Deferred);
    pub(super) const DONE: Entry = Entry::plain(Kind::Done);

    const fn plain(kind: Kind) -> Self {
        Entry { word: [0; SHORT_SIZE_MAX], size: 0, kind, error: None }
    }

    /// Returns the entry of a value that is the upper `size` bytes of a number.
    #[inline(always)]
    pub(super) fn short(word: u64, size: usize) -> Self {
        Entry { word: word.to_le_bytes(), size: size as u32, ..Entry::plain(Kind::Short) }
    }

    /// Returns the entry of a value of at most eight bytes.
    #[inline]
    fn short_value(value: &[u8]) -> Self {
        let unused_bits = 64 - 8 * value.len() as u32;
        Entry::short(load_short(value).checked_shl(unused_bits).unwrap_or(0), value.len())
    }

    fn long(start: usize, size: usize) -> Self {
        Entry { word: (start as u64).to_le_bytes(), size: size as u32, ..Entry::plain(Kind::Long) }
    }

    fn is_deferred(&self) -> bool {
        matches!(self.kind, Kind::Deferred | Kind::DeferredForRoom)
    }

    fn failed(error: OperationError) -> Self {
        Entry { error: Some(error), ..Entry::plain(Kind::Failed) }
    }
}

impl Replies {
    /// Returns buffers for replies of about `budget` bytes, at most 2 GiB. Values of up to eight bytes are not counted.
    ///
    /// When the budget is used up, requests for large values are deferred, and so are all requests from the next 256 of
    /// the batch on. So replies exceed the budget by at most one large value and 256 small ones. One value always fits,
    /// unless the budget is 0: then every large value is deferred.
    pub fn with_budget(budget: usize) -> Self {
        Replies {
            entries: Vec::new(),
            bytes: Vec::new(),
            budget: budget.min(BUDGET_MAX),
            room: usize::MAX,
            room_left: usize::MAX,
            huge_bytes: 0,
            large_bytes: 0,
            costly: Vec::new(),
        }
    }

    /// Sets the bytes that large values, overflow values and pages of scans may take in the replies of each following
    /// batch. Requests whose replies do not fit are deferred, and [`Replies::is_deferred_for_room`] returns true for
    /// them. All others are executed.
    pub fn set_room(&mut self, room: usize) {
        self.room = room;
    }

    /// Returns the bytes of this room that the last batch has not used.
    pub fn room_left(&self) -> usize {
        self.room_left
    }

    /// Returns the bytes that the last batch has read and written of large values, overflow values and scanned pairs, and what
    /// its computations and the merging of free memory have cost, as bytes. The other operations touch a few lines each,
    /// which are not counted: their number is known.
    pub fn bytes_touched(&self) -> usize {
        self.large_bytes
    }

    /// Returns the number of replies.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no replies.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns true if the request at this index of the batch was deferred.
    #[inline]
    pub fn is_deferred(&self, index: usize) -> bool {
        self.entries[index].is_deferred()
    }

    /// Returns true if the request at this index was deferred because its reply does not fit the room for replies.
    pub fn is_deferred_for_room(&self, index: usize) -> bool {
        self.entries[index].kind == Kind::DeferredForRoom
    }

    /// Returns the number of requests that were deferred.
    pub fn deferred_count(&self) -> usize {
        self.entries.iter().filter(|entry| entry.is_deferred()).count()
    }

    /// Returns the reply to the request at this index of the batch.
    #[inline]
    pub fn get(&self, index: usize) -> Reply<'_> {
        let entry = &self.entries[index];
        match entry.kind {
            Kind::Deferred | Kind::DeferredForRoom => Reply::Deferred,
            Kind::Done => Reply::Done,
            Kind::NotFound => Reply::NotFound,
            Kind::Exists => Reply::Exists,
            Kind::Short => Reply::Value(&entry.word[SHORT_SIZE_MAX - entry.size as usize..]),
            Kind::Long => {
                let start = u64::from_le_bytes(entry.word) as usize;
                Reply::Value(&self.bytes[start..][..entry.size as usize])
            }
            Kind::Failed => Reply::Failed(entry.error.expect("a failed entry has its error")),
        }
    }

    /// Returns the replies in the order of the requests.
    pub fn iter(&self) -> impl Iterator<Item = Reply<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Returns true if another large value may be added. The first value is always allowed, so that it is not deferred
    /// forever.
    pub(crate) fn within_budget(&self) -> bool {
        let size = self.bytes.len().saturating_sub(self.huge_bytes);
        size == 0 || size < self.budget
    }

    /// Returns true if another large value may be read or written, and added to the replies if `is_returned`. The first
    /// one always may.
    pub(crate) fn may_touch_large(&self, is_returned: bool) -> bool {
        self.budget > 0 && self.may_work() && (!is_returned || self.within_budget())
    }

    /// Decides on a reply of `size` bytes, for a request that touches no more than [`Replies::may_touch_large`] allows.
    pub(crate) fn grant(&mut self, size: usize) -> Grant {
        if !self.has_room(size) {
            return Grant::NoRoom;
        }
        if size > MEDIUM_SIZE_MAX {
            if self.huge_bytes > 0 && self.huge_bytes + size > self.budget {
                return Grant::Later;
            }
            self.huge_bytes += size;
        }
        self.use_room(size);
        Grant::Granted
    }

    /// Returns true if there is room for a reply of `size` bytes.
    pub(crate) fn has_room(&self, size: usize) -> bool {
        size <= self.room_left
    }

    /// Counts a reply of `size` bytes.
    pub(crate) fn use_room(&mut self, size: usize) {
        self.room_left = self.room_left.saturating_sub(size);
    }

    /// Returns true if the batch may continue with requests that touch no large value.
    pub(crate) fn may_go_on(&self) -> bool {
        self.may_work() && self.within_budget()
    }

    fn may_work(&self) -> bool {
        self.large_bytes == 0 || self.large_bytes / LARGE_BYTES_PER_BUDGET < self.budget
    }

    /// Returns true if the batch has read or written a large value.
    pub(crate) fn has_touched_large(&self) -> bool {
        self.large_bytes > 0
    }

    /// Counts a large value that was read or written.
    pub(crate) fn touch_large(&mut self, value_size: usize) {
        self.large_bytes += value_size;
    }

    /// Counts a large value that the request at this index has read or written.
    pub(crate) fn touch_large_for(&mut self, index: usize, value_size: usize) {
        self.touch_large(value_size);
        self.list_cost(index, value_size);
    }

    /// Lists the bytes that the request at this index has touched, which are counted.
    pub(crate) fn list_cost(&mut self, index: usize, bytes: usize) {
        if bytes < COSTLY_SIZE_MIN {
            return;
        }
        let place = self.costly.partition_point(|(listed, _)| (*listed as usize) < index);
        self.costly.insert(place, (index as u32, bytes as u32));
    }

    /// Returns the bytes that these requests of the batch have touched, without those that have touched few each.
    pub fn bytes_touched_by(&self, requests: Range<usize>) -> usize {
        let first = self.costly.partition_point(|(index, _)| (*index as usize) < requests.start);
        let listed = self.costly[first..].iter().take_while(|(index, _)| (*index as usize) < requests.end);
        listed.map(|(_, bytes)| *bytes as usize).sum()
    }

    /// Prepares the replies to a batch of `count` requests. All are [`Reply::Deferred`] until set.
    pub(crate) fn reset(&mut self, count: usize) {
        self.entries.clear();
        self.entries.resize(count, Entry::DEFERRED);
        self.bytes.clear();
        self.large_bytes = 0;
        self.costly.clear();
        self.room_left = self.room;
        self.huge_bytes = 0;
        // The memory of a batch of large values is not kept.
        if self.bytes.capacity() > self.budget.max(1 << 20).saturating_mul(4) {
            self.bytes.shrink_to(self.budget);
        }
    }

    /// Sets the same reply for all requests of a batch.
    pub fn set_all(&mut self, count: usize, reply: Reply<'_>) {
        self.reset(count);
        (0..count).for_each(|index| self.set(index, reply));
    }

    /// Defers a request because its reply does not fit the room for replies.
    pub(crate) fn defer_for_room(&mut self, index: usize) {
        self.entries[index] = Entry::plain(Kind::DeferredForRoom);
    }

    /// Sets a reply. A value is copied.
    #[inline(always)]
    pub(crate) fn set(&mut self, index: usize, reply: Reply<'_>) {
        self.slot(index).set(reply);
    }

    /// Returns the slot of a reply.
    #[inline]
    pub(crate) fn slot(&mut self, index: usize) -> ReplySlot<'_> {
        ReplySlot { entry: &mut self.entries[index], bytes: &mut self.bytes }
    }

    /// Returns the entries of the `count` requests from `first` on.
    #[inline]
    pub(super) fn entries_mut(&mut self, first: usize, count: usize) -> &mut [Entry] {
        &mut self.entries[first..first + count]
    }

    /// Returns the bytes of the replies so far. [`Replies::finish_value`] makes a value of bytes that are appended.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Sets a reply to the value of all bytes from `start` on.
    pub(crate) fn finish_value(&mut self, index: usize, start: usize) {
        self.slot(index).finish_value(start);
    }
}

impl ReplySlot<'_> {
    /// Sets the reply. A value is copied.
    #[inline(always)]
    pub(crate) fn set(&mut self, reply: Reply<'_>) {
        *self.entry = match reply {
            Reply::Value(value) => return self.set_value(value),
            Reply::Done => Entry::plain(Kind::Done),
            Reply::NotFound => Entry::plain(Kind::NotFound),
            Reply::Exists => Entry::plain(Kind::Exists),
            Reply::Failed(error) => Entry::failed(error),
            Reply::Deferred => Entry::DEFERRED,
        };
    }

    /// Sets the reply to a value, which is copied.
    #[inline]
    pub(crate) fn set_value(&mut self, value: &[u8]) {
        *self.entry = if value.len() <= SHORT_SIZE_MAX {
            Entry::short_value(value)
        } else {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(value);
            Entry::long(start, value.len())
        };
    }

    /// Sets the reply to the fields of an item and the value after them.
    #[inline]
    pub(crate) fn set_item(&mut self, fields: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.reserve(fields.len() + value.len());
        self.bytes.extend_from_slice(fields);
        self.bytes.extend_from_slice(value);
        *self.entry = Entry::long(start, fields.len() + value.len());
    }

    /// Sets the reply to what an operation reads from a value.
    #[inline]
    pub(crate) fn set_read(&mut self, read: Read<'_>, value: &[u8]) {
        match read {
            Read::Value => self.set_value(value),
            computed => self.set_read_of_part(computed, 0, value),
        }
    }

    /// Sets the reply to what an operation reads from a part of a value that begins at `offset`.
    #[inline(never)]
    pub(crate) fn set_read_of_part(&mut self, read: Read<'_>, offset: usize, part: &[u8]) {
        let start = self.bytes.len();
        let mut reader = Reader::new(read);
        reader.read(offset, part, self.bytes);
        reader.finish(self.bytes);
        self.finish_value(start);
    }

    /// Updates a whole value in place, and sets the reply.
    #[inline(always)]
    pub(crate) fn set_updated(&mut self, update: InPlace<'_>, value: &mut [u8]) {
        match update {
            InPlace::BuiltIn(update) => {
                // Most of these values are short, and are not appended.
                self.set(if update.return_old { Reply::Value(value) } else { Reply::Done });
                update_piece(update, 0, value);
            }
            InPlace::User(_) => self.set_updated_by_user(update, value),
        }
    }

    #[inline(never)]
    fn set_updated_by_user(&mut self, update: InPlace<'_>, value: &mut [u8]) {
        let start = self.bytes.len();
        update.update_piece(0, value, self.bytes);
        if update.replies_with_value() {
            self.finish_value(start);
        } else {
            self.set(Reply::Done);
        }
    }

    /// Sets the reply to the value of all bytes from `start` on.
    #[inline]
    fn finish_value(&mut self, start: usize) {
        let value = &self.bytes[start..];
        if value.len() <= SHORT_SIZE_MAX {
            *self.entry = Entry::short_value(value);
            self.bytes.truncate(start);
        } else {
            *self.entry = Entry::long(start, value.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reply_is_returned() {
        let mut replies = Replies::with_budget(1 << 20);
        let values: Vec<Vec<u8>> = (0..40).map(|size| (1..=size).collect()).collect();
        let mut expected: Vec<Reply<'_>> = values.iter().map(|value| Reply::Value(value)).collect();
        expected.extend([Reply::Done, Reply::NotFound, Reply::Exists, Reply::Deferred]);
        expected.extend(OperationError::ALL.map(Reply::Failed));
        replies.reset(expected.len());
        assert!(replies.iter().all(|reply| reply == Reply::Deferred));
        assert_eq!(replies.deferred_count(), expected.len());
        for (index, reply) in expected.iter().enumerate().rev() {
            replies.set(index, *reply);
        }
        assert_eq!(replies.iter().collect::<Vec<_>>(), expected);
        let deferred = (0..expected.len()).filter(|index| replies.is_deferred(*index));
        assert!(deferred.eq((0..expected.len()).filter(|index| expected[*index] == Reply::Deferred)));
        assert_eq!(replies.deferred_count(), 1);
    }

    #[test]
    fn the_bytes_that_each_request_has_touched_are_told_apart() {
        let mut replies = Replies::with_budget(1 << 20);
        replies.reset(10);
        for (index, size) in [(7, 1 << 20), (2, 20_000), (3, 100), (9, 30_000)] {
            replies.touch_large_for(index, size);
        }
        assert_eq!(replies.bytes_touched(), (1 << 20) + 50_100);
        let touched = [0..10, 0..2, 2..3, 3..7, 3..8, 8..10].map(|requests| replies.bytes_touched_by(requests));
        assert_eq!(touched, [(1 << 20) + 50_000, 0, 20_000, 0, 1 << 20, 30_000]);
        replies.reset(10);
        assert_eq!(replies.bytes_touched_by(0..10), 0);
    }
}
