//! Operations on all keys of a space: the parts of `SCAN`, `KEYS`, `RANDOMKEY`, `DBSIZE` and `FLUSHALL`
//! that a shard executes.
//!
//! ```text
//!   reply to a walk   next u64 │ key size u16 │ key │ key size u16 │ key │ …
//!   reply to a count  keys u64 │ is exact u8
//!   reply to a flush  next u64
//! ```
//!
//! `next` is the position of the next step, or [`END`], or [`UNKNOWN`]. In the hash space, a position is a home
//! bucket of the shard. In the ordered space, it is a cursor of [`Cursors`](crate::cursors::Cursors).
//!
//! A shard executes these operations after the others of its batch, when no operation is in flight. So a flush is the last
//! operation of its batch: what other connections send later is executed in the next turn, after the flush. All steps of one batch
//! together are bounded: the operations that exceed the bound are deferred.

use std::ops::Range;

use skep_core::operation::KEY_SIZE_MAX;
use skep_store::hash::WalkLimit;
use skep_store::memory::LINE_SIZE;
use skep_store::processor::Processor;

use crate::limits::{COUNT_STEPS, KEYSPACE_PAGE_SIZE, KEYSPACE_WORK_MAX, SHARE_FOR_REPLIES};
use crate::vocabulary::{END, KeyspaceOperation, Space, WalkStart};

/// Work of a slab that a walk reads, in home buckets.
const SLAB_WORK: usize = 16;

/// Work of a count that removes keys, in home buckets.
const COUNT_WORK: usize = COUNT_STEPS * 16;

/// Work of a step of a flush, in home buckets.
const FLUSH_WORK: usize = 16 << 10;

/// An operation on all keys of a space, or on those that a shard has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyspaceRequest {
    pub(crate) space: Space,
    pub(crate) operation: KeyspaceOperation,
    /// The connection that has sent it. The cursor of a step counts towards its share.
    pub(crate) connection: u64,
}

/// The replies to the operations of a batch.
#[derive(Debug, Default)]
pub(crate) struct KeyspaceReplies {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// Bytes that the replies may take.
    room: usize,
    /// Work of the operations so far, in home buckets.
    work: usize,
    /// That work after each of them.
    work_after: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Deferred,
    DeferredForRoom,
    /// The end of the bytes of the reply, which begin where those of the reply before end.
    Done(usize),
}

impl KeyspaceReplies {
    /// Sets the number of bytes that the replies to a batch may take.
    pub(crate) fn set_room(&mut self, room: usize) {
        self.room = room;
    }

    /// Begins the replies to a batch.
    pub(crate) fn begin(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        self.bytes.shrink_to(2 * KEYSPACE_PAGE_SIZE);
        self.work = 0;
        self.work_after.clear();
    }

    /// Returns true if the operation at this index is to be submitted again.
    pub(crate) fn is_deferred(&self, index: usize) -> bool {
        !matches!(self.entries[index], Entry::Done(_))
    }

    /// Returns true if it was deferred because there is no room for its reply.
    pub(crate) fn is_deferred_for_room(&self, index: usize) -> bool {
        self.entries[index] == Entry::DeferredForRoom
    }

    /// Returns the number of operations that were deferred.
    pub(crate) fn deferred_count(&self) -> usize {
        (0..self.entries.len()).filter(|index| self.is_deferred(*index)).count()
    }

    /// Returns the bytes of the reply to the operation at this index, unless it was deferred.
    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        let Entry::Done(end) = self.entries[index] else { return None };
        let ends = self.entries[..index].iter().rev();
        let start = ends.filter_map(|entry| if let Entry::Done(end) = entry { Some(*end) } else { None }).next();
        Some(&self.bytes[start.unwrap_or(0)..end])
    }

    /// Returns true if another operation may be executed. If not, notes that it is deferred.
    pub(crate) fn may_execute(&mut self) -> bool {
        let left = self.room.saturating_sub(self.bytes.len());
        let deferred = if self.work >= KEYSPACE_WORK_MAX || self.bytes.len() >= KEYSPACE_PAGE_SIZE {
            Entry::Deferred
        } else if left < SHARE_FOR_REPLIES / 2 {
            Entry::DeferredForRoom
        } else {
            return true;
        };
        self.push(deferred);
        false
    }

    /// Returns the bytes that the operations so far have touched: their work, in lines.
    pub(crate) fn bytes_touched(&self) -> usize {
        self.work * LINE_SIZE
    }

    /// Returns the bytes that these operations of the batch have touched.
    pub(crate) fn bytes_touched_by(&self, operations: Range<usize>) -> usize {
        let after = |count: usize| match count {
            0 => 0,
            _ => self.work_after.get(count - 1).copied().unwrap_or(self.work),
        };
        (after(operations.end) - after(operations.start)) * LINE_SIZE
    }

    /// Adds the entry of an operation.
    fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
        self.work_after.push(self.work);
    }

    /// Returns the number of keys of any size that fit the room for a page, and have about this number of bytes.
    pub(crate) fn keys_max(&self, size: usize) -> u32 {
        const USUAL_KEY_SIZE: usize = 32;
        let of_room = (self.room - self.bytes.len()) / (2 * KEY_SIZE_MAX);
        u32::try_from((size / USUAL_KEY_SIZE).min(of_room)).unwrap_or(u32::MAX).max(1)
    }

    /// Drops a page that was begun: the store has deferred the operation.
    pub(crate) fn defer_page(&mut self, start: usize) {
        self.bytes.truncate(start);
        self.push(Entry::Deferred);
    }

    /// Walks over the keys of a shard's part of the hash space.
    pub(crate) fn walk(&mut self, store: &mut Processor, from: WalkStart, key_count: u32, size: u32) {
        let (WalkStart::At(from) | WalkStart::Random(from)) = from;
        // A key of one byte takes three.
        let left = (self.room - self.bytes.len()) / 3;
        let limit = WalkLimit { keys: key_count as usize, size: left.min(size as usize) };
        let page = self.begin_page();
        let step = store.walk(from, limit, |key| self.push_key(key));
        self.work += step.buckets as usize + SLAB_WORK * step.slabs;
        self.end_page(page, step.next.unwrap_or(END));
    }

    /// Adds the reply to a count.
    pub(crate) fn count(&mut self, keys: u64, is_exact: bool) {
        let start = self.begin_page();
        self.bytes.push(u8::from(is_exact));
        self.work += COUNT_WORK;
        self.end_page(start, keys);
    }

    /// Adds the reply to a flush.
    pub(crate) fn flush(&mut self, next: u64) {
        let start = self.begin_page();
        self.work += FLUSH_WORK;
        self.end_page(start, next);
    }

    /// Begins a page. Returns its position.
    pub(crate) fn begin_page(&mut self) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&END.to_le_bytes());
        start
    }

    /// Appends a key to the page.
    pub(crate) fn push_key(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(key);
    }

    /// Ends the page.
    pub(crate) fn end_page(&mut self, start: usize, next: u64) {
        self.bytes[start..start + size_of::<u64>()].copy_from_slice(&next.to_le_bytes());
        self.work += (self.bytes.len() - start) / size_of::<u64>();
        self.push(Entry::Done(self.bytes.len()));
    }
}

/// Returns the number of keys in the reply to a count, and true if it is exact.
pub(crate) fn decode_count(bytes: &[u8]) -> (u64, bool) {
    let (keys, is_exact) = bytes.split_first_chunk().expect("a count has a number");
    (u64::from_le_bytes(*keys), is_exact != [0])
}

/// The reply to a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkPage<'a> {
    /// The position of the next step, or [`END`].
    pub(crate) next: u64,
    keys: &'a [u8],
}

impl<'a> WalkPage<'a> {
    /// Decodes the reply.
    pub(crate) fn decode(bytes: &'a [u8]) -> WalkPage<'a> {
        let (next, keys) = bytes.split_first_chunk().expect("a page has a position");
        WalkPage { next: u64::from_le_bytes(*next), keys }
    }

    /// Returns true if it has no keys.
    pub(crate) fn is_empty(self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the keys.
    pub(crate) fn keys(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        let mut rest = self.keys;
        std::iter::from_fn(move || {
            let (size, after) = rest.split_first_chunk()?;
            let (key, after) = after.split_at(u16::from_le_bytes(*size).into());
            rest = after;
            Some(key)
        })
    }
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{Operation, PutCondition, Request};
    use skep_store::hash::Settings;
    use skep_store::processor::{Processor, Replies};

    use super::{KeyspaceReplies, WalkPage};
    use crate::limits::{KEYSPACE_PAGE_SIZE, KEYSPACE_WORK_MAX};
    use crate::vocabulary::{END, WalkStart};

    fn store(keys: u32) -> Processor {
        let mut store = Processor::new(&Settings::for_kv_size(1 << 20, 40, 0)).unwrap();
        let mut replies = Replies::with_budget(1 << 20);
        for number in 0..keys {
            let operation = Operation::Put { value: &[1; 32], condition: PutCondition::Always };
            store.execute(&[Request { key: &number.to_be_bytes(), operation }], &mut replies);
        }
        store
    }

    #[test]
    fn the_pages_of_a_walk_have_all_keys() {
        let mut store = store(5000);
        let (mut keys, mut next, mut pages) = (Vec::new(), 0, 0);
        while next != END {
            let mut replies = KeyspaceReplies::default();
            replies.set_room(usize::MAX);
            assert!(replies.may_execute());
            replies.walk(&mut store, WalkStart::At(next), 100, u32::MAX);
            let page = WalkPage::decode(replies.get(0).unwrap());
            keys.extend(page.keys().map(|key| u32::from_be_bytes(key.try_into().unwrap())));
            next = page.next;
            pages += 1;
        }
        keys.sort_unstable();
        assert_eq!(keys, (0..5000).collect::<Vec<_>>());
        assert!((30..=50).contains(&pages), "{pages}");
    }

    #[test]
    fn the_walks_of_a_batch_are_bounded_together() {
        let mut store = store(5000);
        for room in [usize::MAX, 8 << 10, 100] {
            let mut replies = KeyspaceReplies::default();
            replies.set_room(room);
            for batch in 0..2 {
                replies.begin();
                for _ in 0..100 {
                    if replies.may_execute() {
                        replies.walk(&mut store, WalkStart::Random(1 << 40), 1000, u32::MAX);
                    }
                }
                let done = 100 - replies.deferred_count();
                assert!(replies.work < 2 * KEYSPACE_WORK_MAX && replies.bytes.len() < 2 * KEYSPACE_PAGE_SIZE);
                assert!(replies.bytes.len() <= room, "batch {batch}");
                assert_eq!((0..100).filter(|index| replies.get(*index).is_some()).count(), done);
                assert_eq!(done > 0, room > 100);
                assert_eq!(replies.is_deferred_for_room(99), room < usize::MAX);
            }
        }
    }
}
