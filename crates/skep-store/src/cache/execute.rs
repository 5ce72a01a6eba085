//! One operation on a cache, after its lines were prefetched.
//!
//! | operation | reads | if the key is missing | else |
//! |---|---|---|---|
//! | put or set without a condition | its bucket | appends an item | appends an item |
//! | GET and other reads | its bucket, its item | replies | replies |
//! | delete | its bucket, its item | replies | empties the entry |
//! | update, count, other computed values | its bucket, its item | appends an item | changes it in place, if its size stays |
//! | put or set with a condition | its bucket, its item | appends an item, or replies | appends an item, or replies |
//!
//! - [`apply`] decides what an operation does, as for all stores. This module carries it out.
//! - A key is compared in full wherever the item is read. An entry whose check differs belongs to another key, so its
//!   item is not read.
//! - An item whose expiry has passed is missing. The first operation that finds it removes its entry.
//! - A new value is appended, so that the log overwrites it last. A changed value stays where it is, so that a counter takes no room of
//!   other items: [`Header::changed`] counts these changes.
//! - An item is complete before its bucket points to it.

use super::bucket::{Bucket, KeyHash};
use super::counts::Counts;
use super::item::{Attributes, CasNumber, Header};
use super::item_lines::{item_bytes, item_parts};
use super::log::{Log, StoredOffset, VirtualOffset};
use crate::apply::{Arena, Edit, Found, NewValue, Outcome, apply, apply_to_missing};
use crate::memory::{Effect, LINE_SIZE, Pointer, ResidentLines, UNIT_SIZE};
use crate::processor::{Grant, Replies};
use crate::short::{equal, overwrite};
use skep_core::operation::{Condition, Expiry, ExpiryChange, Operation, PutCondition, Reply, Request, StringWrite};

/// Smallest value that counts for the budget of replies and work. A batch may exceed it by one such value.
pub(super) const LARGE_SIZE_MIN: usize = 512;

/// The progress of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It has its reply.
    Done,
    /// It is deferred, and so are later ones on its key.
    Deferred,
    /// The budget of the batch is used up: it is deferred, with all later ones.
    Stopped,
}

/// The result of executing adjacent requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Requests that have their replies.
    pub(super) count: usize,
    /// The progress of the request after them; [`Progress::Done`] if there is none, or if it has not begun.
    pub(super) progress: Progress,
}

impl Run {
    /// Returns the run of these requests, which have their replies.
    #[inline(always)]
    pub(super) fn done(count: usize) -> Run {
        Run { count, progress: Progress::Done }
    }

    /// Returns the run of one request.
    pub(super) fn of_one(progress: Progress) -> Run {
        Run { count: usize::from(progress == Progress::Done), progress }
    }
}

/// The entry of a key before it is stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Before {
    /// No entry has its tag.
    Absent,
    /// The item of the key, or of another one that was counted as evicted, has this slot.
    Slot(usize),
}

/// The item of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) slot: usize,
    pub(super) offset: StoredOffset,
    pub(super) pointer: Pointer,
    pub(super) header: Header,
}

/// A key of a part, and its item if the part has probed for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) hash: KeyHash,
    /// The item of the entry that has the tag and the check of the key, or [`Target::NO_ITEM`].
    pub(super) item: Pointer,
}

impl Target {
    /// Beyond the end of any memory.
    pub(super) const NO_ITEM: Pointer = Pointer::to_line_below_end(u32::MAX);
}

impl Default for Target {
    fn default() -> Self {
        Target { hash: KeyHash::default(), item: Target::NO_ITEM }
    }
}

/// The result of a search for a key.
pub(super) enum Find {
    Item(Item),
    /// No item has the key. An entry of this slot has its tag.
    Other(usize),
    Absent,
}

/// The state of a cache while a part of a batch is executed.
pub(super) struct Execution<'a, L> {
    pub(super) lines: L,
    pub(super) log: &'a mut Log,
    pub(super) counts: &'a mut Counts,
    /// Milliseconds since 1970.
    pub(super) now: u64,
    pub(super) arena: &'a Arena,
    /// A copy of a value that is changed and appended.
    pub(super) scratch: &'a mut Vec<u8>,
    /// No entry has changed since the part has probed for its items.
    pub(super) are_targets_valid: bool,
}

/// Returns the value and the change of the expiry if an operation stores a value in any case, so that its item is not read.
#[inline(always)]
pub(super) fn unconditional<'a>(operation: &Operation<'a>) -> Option<(&'a [u8], ExpiryChange)> {
    match operation {
        Operation::Put { value, condition: PutCondition::Always } => Some((value, ExpiryChange::CLEAR)),
        Operation::StringWrite(StringWrite::Set { value, condition: Condition::ALWAYS, expiry, return_old: false })
            if *expiry != ExpiryChange::KEEP =>
        {
            Some((value, *expiry))
        }
        _ => None,
    }
}

impl<'a, L: ResidentLines> Execution<'a, L> {
    /// Executes an operation that is less frequent. Sets the reply at `index`, unless it is deferred.
    #[inline(always)]
    pub(super) fn execute_other(
        &mut self,
        index: usize,
        request: &'a Request<'a>,
        hash: KeyHash,
        replies: &mut Replies,
    ) -> Progress {
        if let Some((value, change)) = unconditional(&request.operation) {
            let expiry = change.apply(None);
            if !self.has_passed(expiry) {
                return self.put(index, request.key, hash, value, expiry, replies);
            }
        }
        self.access(index, request, hash, replies)
    }

    /// Executes a GET.
    #[inline(always)]
    pub(super) fn get(&mut self, index: usize, key: &[u8], target: &Target, replies: &mut Replies) -> Progress {
        let Some(pointer) = self.item_of(target) else {
            return self.miss(index, replies);
        };
        let parts = item_parts(&mut self.lines, pointer);
        if !equal(parts.key, key) {
            return self.miss(index, replies);
        }
        if parts.expiry().is_some_and(|expiry| expiry.has_passed(self.now)) {
            self.expire_entry(target.hash);
            return self.miss(index, replies);
        }
        let size = parts.value.len();
        if size >= LARGE_SIZE_MIN
            && let Some(progress) = grant(index, size, size, replies)
        {
            return progress;
        }
        replies.slot(index).set_value(parts.value);
        self.counts.hits += 1;
        Progress::Done
    }

    /// Returns the item of the entry that has the tag and the check of a key, if it is kept.
    #[inline(always)]
    pub(super) fn item_of(&mut self, target: &Target) -> Option<Pointer> {
        if self.are_targets_valid && target.item != Target::NO_ITEM {
            return Some(target.item);
        }
        let entry = Bucket::from_line_mut(self.lines.line(target.hash.pointer())).find(target.hash)?;
        if !entry.has_check {
            return None;
        }
        let Some(at) = self.log.locate(entry.offset) else {
            self.lose(target.hash, entry.slot);
            return None;
        };
        Some(self.log.pointer(at))
    }

    /// Removes the entry of an item that has expired, and has the tag of a key.
    #[cold]
    pub(super) fn expire_entry(&mut self, hash: KeyHash) {
        let entry = Bucket::from_line_mut(self.lines.line(hash.pointer())).find(hash);
        self.expire(hash, entry.expect("the item has an entry").slot);
    }

    /// Executes a delete.
    #[inline(always)]
    pub(super) fn delete(&mut self, index: usize, key: &[u8], hash: KeyHash, replies: &mut Replies) -> Progress {
        let reply = if let Find::Item(item) = self.find_unexpired(key, hash) {
            self.remove(hash, item.slot);
            Reply::Done
        } else {
            Reply::NotFound
        };
        replies.set(index, reply);
        Progress::Done
    }

    /// Replies to a GET that has not found its key.
    #[inline(never)]
    pub(super) fn miss(&mut self, index: usize, replies: &mut Replies) -> Progress {
        self.counts.misses += 1;
        replies.set(index, Reply::NotFound);
        Progress::Done
    }

    /// Stores a value, whether or not the key exists.
    #[inline(always)]
    pub(super) fn put(
        &mut self,
        index: usize,
        key: &[u8],
        hash: KeyHash,
        value: &[u8],
        expiry: Option<Expiry>,
        replies: &mut Replies,
    ) -> Progress {
        if value.len() >= LARGE_SIZE_MIN
            && let Some(progress) = grant(index, value.len(), 0, replies)
        {
            return progress;
        }
        self.put_unseen(key, hash, value, Attributes { expiry, ..Attributes::default() });
        replies.set(index, Reply::Done);
        Progress::Done
    }

    /// Stores a value, whether or not the key exists. Reads no item. Returns the number of the new one.
    #[inline(always)]
    pub(super) fn put_unseen(&mut self, key: &[u8], hash: KeyHash, value: &[u8], attributes: Attributes) -> CasNumber {
        let bucket = Bucket::from_line_mut(self.lines.line(hash.pointer()));
        let before = match bucket.find(hash) {
            None => Before::Absent,
            Some(entry) => {
                if entry.has_check && self.log.is_kept(entry.offset) {
                    // It is overwritten, not evicted.
                    self.counts.items -= 1;
                } else {
                    self.counts.evict(self.log.presence(entry.offset));
                }
                Before::Slot(entry.slot)
            }
        };
        self.append_item(key, hash, before, attributes, value)
    }

    /// Appends a new item, and lets the bucket of its key point to it. Returns its number.
    #[inline(always)]
    pub(super) fn append_item(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        before: Before,
        attributes: Attributes,
        value: &[u8],
    ) -> CasNumber {
        let header = Header::new(key.len(), value.len(), attributes);
        let (item, bytes) = self.append(attributes.item_size(key.len(), value.len()));
        header.write_item(bytes, attributes, key, value);
        self.enter(hash, before, item);
        header.cas(item)
    }

    /// Executes any operation on the item of its key.
    #[inline(never)]
    fn access(&mut self, index: usize, request: &'a Request<'a>, hash: KeyHash, replies: &mut Replies) -> Progress {
        let operation = &request.operation;
        if operation.computes() && self.arena.is_used_up() {
            return Progress::Deferred;
        }
        let item = match self.find_unexpired(request.key, hash) {
            Find::Item(item) => item,
            found => return self.access_missing(index, request, hash, &found, replies),
        };
        let header = item.header;
        let bytes = item_bytes(&mut self.lines, item.pointer);
        let attributes = header.attributes(bytes);
        let touches_value = !matches!(operation, Operation::Contains | Operation::Delete);
        let work = if touches_value { header.value_size() } else { 0 };
        if work >= LARGE_SIZE_MIN && !replies.may_touch_large(false) {
            return Progress::Stopped;
        }
        let found = || Found::bytes(header.value(bytes), attributes.expiry);
        let outcome = apply(operation, Some(found), self.arena);
        let work = match &outcome {
            Outcome::Read(read) => read.work(read.range(header.value_size()).len()),
            Outcome::Edit(Edit::Store(new)) => work.max(new.size()),
            _ => work,
        };
        if let Some(progress) = grant(index, work, outcome.reply_size_max(header.value_size()), replies) {
            return progress;
        }
        match outcome {
            Outcome::Reply(reply) => replies.set(index, reply),
            Outcome::Read(read) => {
                self.counts.hits += u64::from(matches!(operation, Operation::Get));
                replies.slot(index).set_read(read, header.value(bytes));
            }
            Outcome::Update(update) => {
                self.update(request.key, hash, item, attributes, |value| {
                    replies.slot(index).set_updated(update, value);
                });
            }
            Outcome::Edit(edit @ Edit::Remove(_)) => {
                self.remove(hash, item.slot);
                replies.set(index, edit.reply());
            }
            Outcome::Edit(Edit::Store(new)) => {
                let is_new =
                    matches!(operation, Operation::Put { .. } | Operation::StringWrite(StringWrite::Set { .. }));
                let kept = if is_new { Attributes::default() } else { attributes };
                let after = Attributes { expiry: new.expiry().apply(attributes.expiry), ..kept };
                replies.set(index, new.reply());
                if self.has_passed(after.expiry) {
                    self.remove(hash, item.slot);
                } else if is_new || self.overwrite(item, after, new.bytes()).is_none() {
                    // The new item takes the entry of the old one.
                    self.counts.items -= 1;
                    self.store(request.key, hash, Before::Slot(item.slot), after, &new);
                }
            }
            Outcome::Part(_) | Outcome::Expire(_) | Outcome::Whole => unreachable!("the value is in one piece"),
        }
        Progress::Done
    }

    /// Executes an operation on a missing key.
    fn access_missing(
        &mut self,
        index: usize,
        request: &'a Request<'a>,
        hash: KeyHash,
        found: &Find,
        replies: &mut Replies,
    ) -> Progress {
        match apply_to_missing(&request.operation, self.arena) {
            Outcome::Reply(reply) => {
                self.counts.misses += u64::from(matches!(request.operation, Operation::Get));
                replies.set(index, reply);
            }
            Outcome::Edit(Edit::Store(new)) => {
                if let Some(progress) = grant(index, new.size(), 0, replies) {
                    return progress;
                }
                replies.set(index, new.reply());
                let attributes = Attributes { expiry: new.expiry().apply(None), ..Attributes::default() };
                if self.has_passed(attributes.expiry) {
                    return Progress::Done;
                }
                let before = self.before(hash, found);
                self.store(request.key, hash, before, attributes, &new);
            }
            Outcome::Edit(Edit::Remove(_))
            | Outcome::Read(_)
            | Outcome::Update(_)
            | Outcome::Part(_)
            | Outcome::Expire(_)
            | Outcome::Whole => unreachable!("a missing key has no value"),
        }
        Progress::Done
    }

    /// Returns the item of a key, if it has not expired. Removes the entry of an expired item.
    #[inline(always)]
    pub(super) fn find_unexpired(&mut self, key: &[u8], hash: KeyHash) -> Find {
        let Some(entry) = Bucket::from_line_mut(self.lines.line(hash.pointer())).find(hash) else {
            return Find::Absent;
        };
        if !entry.has_check {
            return Find::Other(entry.slot);
        }
        let Some(at) = self.log.locate(entry.offset) else {
            self.lose(hash, entry.slot);
            return Find::Absent;
        };
        let pointer = self.log.pointer(at);
        let parts = item_parts(&mut self.lines, pointer);
        if !equal(parts.key, key) {
            return Find::Other(entry.slot);
        }
        let header = parts.header;
        if parts.expiry().is_some_and(|expiry| expiry.has_passed(self.now)) {
            self.expire(hash, entry.slot);
            return Find::Absent;
        }
        Find::Item(Item { slot: entry.slot, offset: entry.offset, pointer, header })
    }

    /// Removes the entry of an item that has expired.
    #[cold]
    fn expire(&mut self, hash: KeyHash, slot: usize) {
        self.remove(hash, slot);
        self.counts.expired += 1;
    }

    #[inline(always)]
    pub(super) fn has_passed(&self, expiry: Option<Expiry>) -> bool {
        expiry.is_some_and(|expiry| expiry.has_passed(self.now))
    }

    /// Removes the entry of an item that is lost.
    #[cold]
    fn lose(&mut self, hash: KeyHash, slot: usize) {
        self.are_targets_valid = false;
        let at = hash.pointer();
        self.counts.lose(Bucket::from_line_mut(self.lines.line(at)), 1 << slot, self.log);
        self.lines.note(at.span(LINE_SIZE), Effect::Changed);
    }

    /// Counts the item of an entry that is about to be overwritten.
    pub(super) fn before(&mut self, hash: KeyHash, found: &Find) -> Before {
        match *found {
            Find::Item(item) => {
                self.counts.items -= 1;
                Before::Slot(item.slot)
            }
            Find::Other(slot) => {
                let bucket = Bucket::from_line_mut(self.lines.line(hash.pointer()));
                if let Some(item) = bucket.offset(slot) {
                    self.counts.evict(self.log.presence(item));
                }
                Before::Slot(slot)
            }
            Find::Absent => Before::Absent,
        }
    }

    /// Removes the entry of an item.
    pub(super) fn remove(&mut self, hash: KeyHash, slot: usize) {
        self.are_targets_valid = false;
        let at = hash.pointer();
        Bucket::from_line_mut(self.lines.line(at)).clear(slot);
        self.lines.note(at.span(LINE_SIZE), Effect::Changed);
        self.counts.items -= 1;
    }

    /// Appends a new item with a value.
    fn store(&mut self, key: &[u8], hash: KeyHash, before: Before, attributes: Attributes, new: &NewValue<'_>) {
        let header = Header::new(key.len(), new.size(), attributes);
        let (item, bytes) = self.append(attributes.item_size(key.len(), new.size()));
        header.write_item(bytes, attributes, key, new.bytes());
        new.finish(0, header.value_mut(bytes));
        self.enter(hash, before, item);
    }

    /// Overwrites the value and the attributes of an item in place. Returns its number, or `None`, and does nothing, if the
    /// item would have another size, or has counted all its changes.
    pub(super) fn overwrite(&mut self, item: Item, attributes: Attributes, value: &[u8]) -> Option<CasNumber> {
        let bytes = item_bytes(&mut self.lines, item.pointer);
        let key_size = item.header.key(bytes).len();
        let header = item.header.changed()?.with_marks(attributes.marks);
        if !Header::new(key_size, value.len(), attributes).has_shape_of(header) {
            return None;
        }
        header.write(bytes);
        header.write_attributes(bytes, attributes);
        overwrite(header.value_mut(bytes), value);
        self.lines.note(item.pointer.span(header.size()), Effect::Changed);
        Some(header.cas(self.log.virtual_offset(item.offset)))
    }

    /// Updates all elements of an item.
    fn update(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        item: Item,
        attributes: Attributes,
        change: impl FnOnce(&mut [u8]),
    ) {
        let bytes = item_bytes(&mut self.lines, item.pointer);
        if let Some(header) = item.header.changed() {
            change(header.value_mut(bytes));
            header.write(bytes);
            self.lines.note(item.pointer.span(header.size()), Effect::Changed);
            return;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(item.header.value(bytes));
        change(self.scratch);
        let value = std::mem::take(self.scratch);
        self.counts.items -= 1;
        self.append_item(key, hash, Before::Slot(item.slot), attributes, &value);
        *self.scratch = value;
    }

    /// Appends an item of `size` bytes to the log. Returns its offset, and its bytes, which are to be written.
    #[inline(always)]
    fn append(&mut self, size: u32) -> (VirtualOffset, &mut [u8]) {
        let (item, at) = self.log.append((size - 1) / UNIT_SIZE as u32 + 1);
        (item, self.lines.new_span(self.log.pointer(at).span(size as usize)))
    }

    /// Lets the bucket of a key point to its new item.
    #[inline(always)]
    fn enter(&mut self, hash: KeyHash, before: Before, item: VirtualOffset) {
        self.are_targets_valid = false;
        let at = hash.pointer();
        let bucket = Bucket::from_line_mut(self.lines.line(at));
        let slot = match before {
            Before::Slot(slot) => slot,
            Before::Absent => {
                let slot = bucket.oldest(self.log);
                if let Some(oldest) = bucket.offset(slot) {
                    self.counts.evict(self.log.presence(oldest));
                }
                slot
            }
        };
        bucket.set(slot, hash, item.stored());
        self.counts.items += 1;
        self.lines.note(at.span(LINE_SIZE), Effect::Changed);
    }
}

/// Counts the work on a value of `work` bytes, and a reply of `reply_size` bytes. Returns `None` if the batch may do it.
#[inline(never)]
pub(super) fn grant(index: usize, work: usize, reply_size: usize, replies: &mut Replies) -> Option<Progress> {
    if work < LARGE_SIZE_MIN && reply_size < LARGE_SIZE_MIN {
        return None;
    }
    let is_returned = reply_size >= LARGE_SIZE_MIN;
    if !replies.may_touch_large(is_returned) {
        return Some(Progress::Stopped);
    }
    if is_returned {
        match replies.grant(reply_size) {
            Grant::Granted => {}
            Grant::Later => return Some(Progress::Deferred),
            Grant::NoRoom => {
                replies.defer_for_room(index);
                return Some(Progress::Deferred);
            }
        }
    }
    replies.touch_large_for(index, work);
    None
}
