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
//! - A key is compared in full wherever the item is read. An entry whose check differs belongs to another key for sure, so
//!   its item is not read.
//! - An item whose expiry has passed is missing. The first operation that finds it removes its entry.
//! - A new value is appended, so that it is young. A changed value stays where it is, so that a counter takes no room of
//!   other items: [`Header::changed`] counts these changes.
//! - An item is complete before its bucket points to it.

use super::bucket::{Bucket, Home};
use super::counts::Counts;
use super::item::{Attributes, CasNumber, Header};
use super::log::{Log, StoredOffset, VirtualOffset};
use crate::apply::{Arena, Edit, Found, NewValue, Outcome, apply, apply_to_missing, update_piece};
use crate::memory::{Effect, LINE_SIZE, Pointer, ResidentLines, UNIT_SIZE};
use crate::processor::{Grant, Replies};
use crate::short::{equal, overwrite};
use skep_core::operation::{
    Condition, Expiry, ExpiryChange, Operation, PutCondition, Reply, Request, StringWrite, Update,
};

/// Smallest value that counts for the budget of replies and work. A batch may exceed it by one such value.
const LARGE_SIZE_MIN: usize = 512;

/// What a request to a cache may have besides its operation: the fields of memcached's protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemOptions {
    /// The flags of the item that is stored. `None`: a put or set stores 0, other operations keep the flags.
    pub flags: Option<u32>,
    /// The operation takes place only if the item has this number. Otherwise the reply is `Exists`, or `NotFound` for a
    /// missing key.
    pub cas: Option<CasNumber>,
}

/// The fields of an item besides its key and value, after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemFields {
    /// The flags of the client.
    pub flags: u32,
    /// The number of this state of the key.
    pub cas: CasNumber,
    /// The time from which on the key is missing.
    pub expiry: Option<Expiry>,
}

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

/// The entry of a key before it is stored.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// No entry has its tag.
    Absent,
    /// The item of the key, or of another one that was counted as evicted, has this slot.
    Slot(usize),
}

/// The item of a key.
#[derive(Clone, Copy, Debug)]
struct Item {
    slot: usize,
    offset: StoredOffset,
    pointer: Pointer,
    header: Header,
}

/// The result of a search for a key.
enum Sought {
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
    /// The fields of the items, one for each request, if the caller asks for them.
    pub(super) fields: Option<&'a mut [Option<ItemFields>]>,
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
    /// Executes a valid operation. Sets the reply at `index`, unless it is deferred.
    #[inline(always)]
    pub(super) fn execute(
        &mut self,
        index: usize,
        request: &'a Request<'a>,
        home: Home,
        options: ItemOptions,
        replies: &mut Replies,
    ) -> Progress {
        if let Operation::Get = request.operation
            && options.cas.is_none()
        {
            return self.get(index, request.key, home, replies);
        }
        if let Some((value, change)) = unconditional(&request.operation)
            && options.cas.is_none()
        {
            let expiry = change.apply(None);
            if !self.has_passed(expiry) {
                let attributes = Attributes { expiry, flags: options.flags.unwrap_or(0) };
                return self.put(index, request.key, home, value, attributes, replies);
            }
        }
        self.access(index, request, home, options, replies)
    }

    /// Executes a GET.
    #[inline(always)]
    fn get(&mut self, index: usize, key: &[u8], home: Home, replies: &mut Replies) -> Progress {
        let Sought::Item(item) = self.find(key, home) else {
            return self.miss(index, replies);
        };
        let (header, bytes) = (item.header, item_bytes(&mut self.lines, item.pointer));
        if header.has_options() && header.expiry(bytes).is_some_and(|expiry| expiry.has_passed(self.now)) {
            self.expire(home, item.slot);
            return self.miss(index, replies);
        }
        if header.value_size() >= LARGE_SIZE_MIN
            && let Some(progress) = grant(index, header.value_size(), header.value_size(), replies)
        {
            return progress;
        }
        replies.slot(index).set_value(header.value(bytes));
        self.counts.hits += 1;
        if self.fields.is_some() {
            let attributes = header.attributes(bytes);
            self.set_fields(index, header, item.offset, attributes);
        }
        Progress::Done
    }

    /// Replies to a GET that has not found its key.
    fn miss(&mut self, index: usize, replies: &mut Replies) -> Progress {
        self.counts.misses += 1;
        replies.set(index, Reply::NotFound);
        Progress::Done
    }

    /// Stores a value, whether or not the key exists. Reads no item.
    #[inline(always)]
    fn put(
        &mut self,
        index: usize,
        key: &[u8],
        home: Home,
        value: &[u8],
        attributes: Attributes,
        replies: &mut Replies,
    ) -> Progress {
        if value.len() >= LARGE_SIZE_MIN
            && let Some(progress) = grant(index, value.len(), 0, replies)
        {
            return progress;
        }
        let bucket = Bucket::from_line_mut(self.lines.line(home.pointer()));
        let before = match bucket.find(home) {
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
        let header = Header::new(key.len(), value.len(), attributes);
        let item = self.append(header, |item| header.write_item(item, attributes, key, value));
        self.enter(home, before, item);
        replies.set(index, Reply::Done);
        if self.fields.is_some() {
            self.set_fields(index, header, item.stored(), attributes);
        }
        Progress::Done
    }

    /// Executes any operation on the item of its key.
    #[inline(never)]
    fn access(
        &mut self,
        index: usize,
        request: &'a Request<'a>,
        home: Home,
        options: ItemOptions,
        replies: &mut Replies,
    ) -> Progress {
        let operation = &request.operation;
        if let Operation::StringWrite(write) = operation
            && write.computes_value()
            && self.arena.is_used_up()
        {
            return Progress::Deferred;
        }
        let item = match self.find_unexpired(request.key, home) {
            Sought::Item(item) => item,
            sought => return self.access_missing(index, request, home, &sought, options, replies),
        };
        let header = item.header;
        let bytes = item_bytes(&mut self.lines, item.pointer);
        let attributes = header.attributes(bytes);
        if options.cas.is_some_and(|cas| cas != header.cas(self.log.virtual_offset(item.offset))) {
            replies.set(index, Reply::Exists);
            self.set_fields(index, header, item.offset, attributes);
            return Progress::Done;
        }
        let touches_value = !matches!(operation, Operation::Contains | Operation::Delete);
        let work = if touches_value { header.value_size() } else { 0 };
        if work >= LARGE_SIZE_MIN && !replies.may_touch_large(false) {
            return Progress::Stopped;
        }
        let found = || Found::bytes(header.value(bytes), attributes.expiry);
        let outcome = apply(operation, Some(found), self.arena);
        let work = work.max(if let Outcome::Edit(Edit::Store(new)) = &outcome { new.size() } else { 0 });
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
                let old = if update.return_old { Reply::Value(header.value(bytes)) } else { Reply::Done };
                replies.set(index, old);
                self.update(index, request.key, home, item, attributes, update);
                return Progress::Done;
            }
            Outcome::Edit(edit @ Edit::Remove(_)) => {
                self.remove(home, item.slot);
                replies.set(index, edit.reply());
                return Progress::Done;
            }
            Outcome::Edit(Edit::Store(new)) => {
                let is_new =
                    matches!(operation, Operation::Put { .. } | Operation::StringWrite(StringWrite::Set { .. }));
                let flags = options.flags.unwrap_or(if is_new { 0 } else { attributes.flags });
                let after = Attributes { expiry: new.expiry().apply(attributes.expiry), flags };
                replies.set(index, new.reply());
                if self.has_passed(after.expiry) {
                    self.remove(home, item.slot);
                } else if is_new || !self.overwrite(index, item, after, &new) {
                    // The new item takes the entry of the old one.
                    self.counts.items -= 1;
                    self.store(index, request.key, home, Before::Slot(item.slot), after, &new);
                }
                return Progress::Done;
            }
            Outcome::Expire(_) | Outcome::Whole => unreachable!("the value is in one piece"),
        }
        self.set_fields(index, header, item.offset, attributes);
        Progress::Done
    }

    /// Executes an operation on a missing key.
    fn access_missing(
        &mut self,
        index: usize,
        request: &'a Request<'a>,
        home: Home,
        sought: &Sought,
        options: ItemOptions,
        replies: &mut Replies,
    ) -> Progress {
        let outcome = match options.cas {
            Some(_) => Outcome::Reply(Reply::NotFound),
            None => apply_to_missing(&request.operation, self.arena),
        };
        match outcome {
            Outcome::Reply(reply) => {
                self.counts.misses += u64::from(matches!(request.operation, Operation::Get));
                replies.set(index, reply);
            }
            Outcome::Edit(Edit::Store(new)) => {
                if let Some(progress) = grant(index, new.size(), 0, replies) {
                    return progress;
                }
                replies.set(index, new.reply());
                let attributes = Attributes { expiry: new.expiry().apply(None), flags: options.flags.unwrap_or(0) };
                if self.has_passed(attributes.expiry) {
                    return Progress::Done;
                }
                let before = match *sought {
                    Sought::Other(slot) => {
                        self.evict(home, slot);
                        Before::Slot(slot)
                    }
                    Sought::Item(_) | Sought::Absent => Before::Absent,
                };
                self.store(index, request.key, home, before, attributes, &new);
            }
            Outcome::Edit(Edit::Remove(_))
            | Outcome::Read(_)
            | Outcome::Update(_)
            | Outcome::Expire(_)
            | Outcome::Whole => unreachable!("a missing key has no value"),
        }
        Progress::Done
    }

    /// Returns the item of a key, if it has not expired. Removes the entry of an expired item.
    #[inline(always)]
    fn find_unexpired(&mut self, key: &[u8], home: Home) -> Sought {
        let sought = self.find(key, home);
        if let Sought::Item(item) = sought {
            let expiry = item.header.expiry(item_bytes(&mut self.lines, item.pointer));
            if self.has_passed(expiry) {
                self.expire(home, item.slot);
                return Sought::Absent;
            }
        }
        sought
    }

    /// Removes the entry of an item that has expired.
    #[cold]
    fn expire(&mut self, home: Home, slot: usize) {
        self.remove(home, slot);
        self.counts.expired += 1;
    }

    /// Returns the item of a key.
    #[inline(always)]
    fn find(&mut self, key: &[u8], home: Home) -> Sought {
        let Some(entry) = Bucket::from_line_mut(self.lines.line(home.pointer())).find(home) else {
            return Sought::Absent;
        };
        if !entry.has_check {
            return Sought::Other(entry.slot);
        }
        let Some(at) = self.log.locate(entry.offset) else {
            self.lose(home, entry.slot);
            return Sought::Absent;
        };
        let pointer = self.log.pointer(at);
        let bytes = item_bytes(&mut self.lines, pointer);
        let header = Header::of(bytes);
        if equal(header.key(bytes), key) {
            Sought::Item(Item { slot: entry.slot, offset: entry.offset, pointer, header })
        } else {
            Sought::Other(entry.slot)
        }
    }

    #[inline(always)]
    fn has_passed(&self, expiry: Option<Expiry>) -> bool {
        expiry.is_some_and(|expiry| expiry.has_passed(self.now))
    }

    /// Removes the entry of an item that is lost.
    #[cold]
    fn lose(&mut self, home: Home, slot: usize) {
        let at = home.pointer();
        self.counts.lose(Bucket::from_line_mut(self.lines.line(at)), 1 << slot, self.log);
        self.lines.note(at.span(LINE_SIZE), Effect::Changed);
    }

    /// Counts the eviction of the item of a slot, which is about to be overwritten.
    fn evict(&mut self, home: Home, slot: usize) {
        let bucket = Bucket::from_line_mut(self.lines.line(home.pointer()));
        if let Some(item) = bucket.offset(slot) {
            self.counts.evict(self.log.presence(item));
        }
    }

    /// Removes the entry of an item.
    fn remove(&mut self, home: Home, slot: usize) {
        let at = home.pointer();
        Bucket::from_line_mut(self.lines.line(at)).clear(slot);
        self.lines.note(at.span(LINE_SIZE), Effect::Changed);
        self.counts.items -= 1;
    }

    /// Appends a new item with a value.
    fn store(
        &mut self,
        index: usize,
        key: &[u8],
        home: Home,
        before: Before,
        attributes: Attributes,
        new: &NewValue<'_>,
    ) {
        let header = Header::new(key.len(), new.size(), attributes);
        let item = self.append(header, |item| {
            header.write_item(item, attributes, key, new.bytes());
            new.finish(0, header.value_mut(item));
        });
        self.enter(home, before, item);
        self.set_fields(index, header, item.stored(), attributes);
    }

    /// Overwrites the value and the attributes of an item in place. Returns false, and does nothing, if the item would have
    /// another size, or has counted all its changes.
    fn overwrite(&mut self, index: usize, item: Item, attributes: Attributes, new: &NewValue<'_>) -> bool {
        let bytes = item_bytes(&mut self.lines, item.pointer);
        let key_size = item.header.key(bytes).len();
        let Some(header) = item.header.changed() else { return false };
        if !Header::new(key_size, new.size(), attributes).has_shape_of(header) {
            return false;
        }
        header.write(bytes);
        header.write_attributes(bytes, attributes);
        overwrite(header.value_mut(bytes), new.bytes());
        self.lines.note(item.pointer.span(header.size()), Effect::Changed);
        self.set_fields(index, header, item.offset, attributes);
        true
    }

    /// Updates all elements of an item.
    fn update(
        &mut self,
        index: usize,
        key: &[u8],
        home: Home,
        item: Item,
        attributes: Attributes,
        update: &Update<'_>,
    ) {
        let bytes = item_bytes(&mut self.lines, item.pointer);
        if let Some(header) = item.header.changed() {
            update_piece(update, 0, header.value_mut(bytes));
            header.write(bytes);
            self.lines.note(item.pointer.span(header.size()), Effect::Changed);
            self.set_fields(index, header, item.offset, attributes);
            return;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(item.header.value(bytes));
        update_piece(update, 0, self.scratch);
        let value = std::mem::take(self.scratch);
        self.counts.items -= 1;
        self.store(index, key, home, Before::Slot(item.slot), attributes, &NewValue::Put(&value));
        *self.scratch = value;
    }

    /// Appends an item to the log. `fill` writes its bytes.
    #[inline(always)]
    fn append(&mut self, header: Header, fill: impl FnOnce(&mut [u8])) -> VirtualOffset {
        let (item, at) = self.log.append(header.units());
        fill(self.lines.new_span(self.log.pointer(at).span(header.size())));
        item
    }

    /// Lets the bucket of a key point to its new item.
    #[inline(always)]
    fn enter(&mut self, home: Home, before: Before, item: VirtualOffset) {
        let at = home.pointer();
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
        bucket.set(slot, home, item.stored());
        self.counts.items += 1;
        self.lines.note(at.span(LINE_SIZE), Effect::Changed);
    }

    /// Reports the fields of an item, if the caller asks for them.
    fn set_fields(&mut self, index: usize, header: Header, item: StoredOffset, attributes: Attributes) {
        if let Some(fields) = &mut self.fields {
            let cas = header.cas(self.log.virtual_offset(item));
            fields[index] = Some(ItemFields { flags: attributes.flags, cas, expiry: attributes.expiry });
        }
    }
}

/// Returns the bytes of an item. Uses one line if that has all of it.
#[inline(always)]
fn item_bytes<L: ResidentLines>(lines: &mut L, pointer: Pointer) -> &mut [u8] {
    const LINE_UNITS: u32 = (LINE_SIZE / UNIT_SIZE) as u32;
    let line = Pointer::to_line_below_end(pointer.unit() / LINE_UNITS);
    let begin = (pointer.unit() % LINE_UNITS) as usize * UNIT_SIZE;
    let size = Header::of(&lines.line(line).0[begin..]).size();
    if begin + size <= LINE_SIZE {
        &mut lines.line(line).0[begin..begin + size]
    } else {
        lines.span(pointer.span(size))
    }
}

/// Counts the work on a value of `work` bytes, and a reply of `reply_size` bytes. Returns `None` if the batch may do it.
#[inline(never)]
fn grant(index: usize, work: usize, reply_size: usize, replies: &mut Replies) -> Option<Progress> {
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
    replies.touch_large(work);
    None
}
