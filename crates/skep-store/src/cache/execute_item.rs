//! One command of memcached's protocol on a cache, after its lines were prefetched.
//!
//! | command | reads | if the key is missing | else |
//! |---|---|---|---|
//! | put without a condition | its bucket | appends an item | appends an item |
//! | get | its bucket, its item | replies, or appends an empty item | replies; changes expiry and marks in place |
//! | other puts | its bucket, its item | appends an item, or replies | appends an item, or replies |
//! | delete, invalidate | its bucket, its item | replies | empties the entry; changes the marks in place |
//! | arithmetic | its bucket, its item | appends an item, or replies | changes the number in place, if its size stays |
//!
//! - A number that becomes shorter keeps its length: blanks fill it, as in memcached.
//! - If an item gets its first expiry, or loses its expiry, its size changes. So it is appended with the change, and
//!   has another cas number.
//! - A new item has no marks, except that of a key that was written as base64.

use super::bucket::KeyHash;
use super::execute::{Before, Execution, Find, Item, LARGE_SIZE_MIN, Progress, Target, grant};
use super::item::{Attributes, CasNumber, Header, Marks};
use super::item_lines::{item_bytes, item_parts, write_header};
use super::item_request::{
    FIELDS_SIZE, ItemArithmetic, ItemChange, ItemCommand, ItemFields, ItemGet, ItemPut, ItemPutMode, ItemRequest,
    ItemValue,
};
use crate::memory::{Effect, ResidentLines};
use crate::processor::Replies;
use crate::short::equal;
use skep_core::operation::{ExpiryChange, OperationError, Reply};

/// The digits of the largest number.
const DIGITS_MAX: usize = u64::MAX.ilog10() as usize + 1;

impl<L: ResidentLines> Execution<'_, L> {
    /// Stores a value, whether or not the key exists.
    #[inline(always)]
    pub(super) fn put_item(
        &mut self,
        index: usize,
        key: &[u8],
        hash: KeyHash,
        put: &ItemPut<'_>,
        replies: &mut Replies,
    ) -> Progress {
        if put.value.len() >= LARGE_SIZE_MIN
            && let Some(progress) = grant(index, put.value.len(), 0, replies)
        {
            return progress;
        }
        let attributes = new_attributes(put);
        let cas = self.put_unseen(key, hash, put.value, attributes);
        reply_to_put(index, put, attributes, put.value.len(), cas, replies);
        Progress::Done
    }

    /// Returns the flags and the value of an item, and marks it as read.
    #[inline(always)]
    pub(super) fn read_value(&mut self, index: usize, key: &[u8], target: &Target, replies: &mut Replies) -> Progress {
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
            && let Some(progress) = grant(index, size, size + ItemValue::OVERHEAD, replies)
        {
            return progress;
        }
        let header = parts.header;
        let begin = replies.bytes_mut().len();
        ItemValue { flags: parts.flags(), value: parts.value }.append(replies.bytes_mut());
        replies.finish_value(index, begin);
        if !header.marks().has(Marks::FETCHED) {
            write_header(&mut self.lines, pointer, header.with_marks(header.marks().with(Marks::FETCHED, true)));
        }
        self.counts.hits += 1;
        Progress::Done
    }

    /// Executes any command on the item of its key.
    #[inline(never)]
    pub(super) fn access_item(
        &mut self,
        index: usize,
        request: &ItemRequest<'_>,
        hash: KeyHash,
        replies: &mut Replies,
    ) -> Progress {
        let found = self.find_unexpired(request.key, hash);
        let Find::Item(item) = found else {
            return self.execute_missing(index, request, hash, &found, replies);
        };
        let cas = self.cas(item);
        let is_expected = request.cas.is_none_or(|expected| expected == cas);
        match &request.command {
            ItemCommand::Read
            | ItemCommand::ReadValue
            | ItemCommand::Get(_)
            | ItemCommand::Delete
            | ItemCommand::Invalidate { .. }
                if !is_expected =>
            {
                replies.set(index, Reply::Exists);
                Progress::Done
            }
            ItemCommand::Read => self.get_item(index, request.key, hash, item, &ItemGet::PLAIN, replies),
            ItemCommand::ReadValue => {
                let target = Target { hash, item: item.pointer };
                self.read_value(index, request.key, &target, replies)
            }
            ItemCommand::Get(get) => self.get_item(index, request.key, hash, item, get, replies),
            ItemCommand::Put(put) => {
                let is_older = is_stale(request, put, cas);
                match put.mode {
                    ItemPutMode::IfAbsent => {
                        replies.set(index, Reply::Exists);
                        Progress::Done
                    }
                    ItemPutMode::Append | ItemPutMode::Prepend if is_expected => {
                        self.extend_item(index, request.key, hash, item, put, replies)
                    }
                    ItemPutMode::Always | ItemPutMode::IfPresent if is_expected || is_older => {
                        self.replace_item(index, request, hash, item, put, replies)
                    }
                    _ => {
                        replies.set(index, Reply::Exists);
                        Progress::Done
                    }
                }
            }
            ItemCommand::Delete => {
                self.remove(hash, item.slot);
                replies.set(index, Reply::Done);
                Progress::Done
            }
            ItemCommand::Invalidate { expiry } => {
                let before = self.attributes(item);
                let marks = before.marks.without(Marks::WON).with(Marks::STALE, true);
                let after = Attributes { expiry: expiry.apply(before.expiry), marks, ..before };
                if let Some(progress) = grant(index, item.header.value_size(), 0, replies) {
                    return progress;
                }
                self.change_attributes(request.key, hash, item, after, true);
                replies.set(index, Reply::Done);
                Progress::Done
            }
            ItemCommand::Arithmetic(arithmetic) => self.calculate(index, request, hash, item, arithmetic, replies),
        }
    }

    /// Executes a command on a missing key.
    fn execute_missing(
        &mut self,
        index: usize,
        request: &ItemRequest<'_>,
        hash: KeyHash,
        found: &Find,
        replies: &mut Replies,
    ) -> Progress {
        let mut digits = [0; DIGITS_MAX];
        let (value, attributes) = match &request.command {
            ItemCommand::Get(ItemGet { create: Some(expiry), is_access, .. }) => {
                let marks = Marks::WON.with(Marks::FETCHED, *is_access);
                (&[][..], Attributes { expiry: expiry.apply(None), marks, ..Attributes::default() })
            }
            ItemCommand::Arithmetic(ItemArithmetic { create: Some((number, expiry)), .. }) => {
                let attributes = Attributes { expiry: expiry.apply(None), ..Attributes::default() };
                (decimal(*number, &mut digits), attributes)
            }
            ItemCommand::Put(put) if put.mode == ItemPutMode::IfAbsent => (put.value, new_attributes(put)),
            ItemCommand::Put(put) if put.mode == ItemPutMode::Always && request.cas.is_none() => {
                (put.value, new_attributes(put))
            }
            ItemCommand::Read | ItemCommand::ReadValue => return self.miss(index, replies),
            ItemCommand::Get(get) => {
                self.counts.misses += u64::from(get.returns_value);
                replies.set(index, Reply::NotFound);
                return Progress::Done;
            }
            _ => {
                replies.set(index, Reply::NotFound);
                return Progress::Done;
            }
        };
        if let Some(progress) = grant(index, value.len(), 0, replies) {
            return progress;
        }
        let mut cas = CasNumber::default();
        if !self.has_passed(attributes.expiry) {
            let before = self.before(hash, found);
            cas = self.append_item(request.key, hash, before, attributes, value);
        }
        if let ItemCommand::Put(put) = &request.command {
            reply_to_put(index, put, attributes, value.len(), cas, replies);
        } else {
            let is_won = attributes.marks.has(Marks::WON);
            let fields = ItemFields { is_won, is_created: true, ..fields_of(attributes, value.len(), cas) };
            replies.slot(index).set_item(&fields.encode(), value);
        }
        Progress::Done
    }

    /// Returns an item, and changes its expiry and its marks.
    #[inline(always)]
    fn get_item(
        &mut self,
        index: usize,
        key: &[u8],
        hash: KeyHash,
        item: Item,
        get: &ItemGet,
        replies: &mut Replies,
    ) -> Progress {
        let header = item.header;
        let bytes = item_bytes(&mut self.lines, item.pointer);
        let before = header.attributes(bytes);
        let size = header.value_size();
        if size >= LARGE_SIZE_MIN
            && let Some(progress) = grant(index, size, if get.returns_value { size + FIELDS_SIZE } else { 0 }, replies)
        {
            return progress;
        }
        let expires_soon =
            get.recache_before.is_some_and(|time| before.expiry.is_some_and(|expiry| expiry.milliseconds() < time));
        let (is_stale, is_won_by_other) = (before.marks.has(Marks::STALE), before.marks.has(Marks::WON));
        let is_won = get.may_win && !is_won_by_other && (is_stale || expires_soon);
        let cas = header.cas(self.log.virtual_offset(item.offset));
        let fields = ItemFields {
            was_fetched: before.marks.has(Marks::FETCHED),
            has_base64_key: before.marks.has(Marks::BASE64_KEY),
            is_stale,
            is_won_by_other,
            is_won,
            ..fields_of(before, size, cas)
        };
        let marks = before.marks.with(Marks::FETCHED, get.is_access).with(Marks::WON, is_won);
        let after = Attributes { expiry: get.expiry.apply(before.expiry), marks, ..before };
        let cas_after = if after == before { cas } else { self.change_attributes(key, hash, item, after, false) };
        let value = match get.returns_value {
            false => &[],
            true if cas_after == cas => header.value(item_bytes(&mut self.lines, item.pointer)),
            // The item was appended, so its old offset may have other bytes now.
            true => &self.scratch[..],
        };
        replies.slot(index).set_item(&ItemFields { cas: cas_after, ..fields }.encode(), value);
        self.counts.hits += u64::from(get.returns_value);
        Progress::Done
    }

    /// Replaces an item by a put, as a stale value if the client's number is an older one.
    fn replace_item(
        &mut self,
        index: usize,
        request: &ItemRequest<'_>,
        hash: KeyHash,
        item: Item,
        put: &ItemPut<'_>,
        replies: &mut Replies,
    ) -> Progress {
        if let Some(progress) = grant(index, put.value.len(), 0, replies) {
            return progress;
        }
        let mut attributes = new_attributes(put);
        if is_stale(request, put, self.cas(item)) {
            let before = self.attributes(item);
            attributes.expiry = before.expiry;
            attributes.marks = attributes.marks.with(Marks::STALE, true).with(Marks::WON, before.marks.has(Marks::WON));
        }
        let mut cas = CasNumber::default();
        if self.has_passed(attributes.expiry) {
            self.remove(hash, item.slot);
        } else {
            let before = self.before(hash, &Find::Item(item));
            cas = self.append_item(request.key, hash, before, attributes, put.value);
        }
        reply_to_put(index, put, attributes, put.value.len(), cas, replies);
        Progress::Done
    }

    /// Adds bytes to the value of an item.
    fn extend_item(
        &mut self,
        index: usize,
        key: &[u8],
        hash: KeyHash,
        item: Item,
        put: &ItemPut<'_>,
        replies: &mut Replies,
    ) -> Progress {
        let size = item.header.value_size() + put.value.len();
        if size > put.size_max {
            replies.set(index, Reply::NotFound);
            return Progress::Done;
        }
        if let Some(progress) = grant(index, size, 0, replies) {
            return progress;
        }
        let attributes = Attributes { marks: Marks::default(), ..self.attributes(item) };
        let old = item.header.value(item_bytes(&mut self.lines, item.pointer));
        let parts = if put.mode == ItemPutMode::Append { [old, put.value] } else { [put.value, old] };
        self.scratch.clear();
        parts.iter().for_each(|part| self.scratch.extend_from_slice(part));
        let cas = self.append_scratch(key, hash, item, attributes);
        reply_to_put(index, put, attributes, size, cas, replies);
        Progress::Done
    }

    /// Changes the number of an item, if the item is the one that the client expects.
    fn calculate(
        &mut self,
        index: usize,
        request: &ItemRequest<'_>,
        hash: KeyHash,
        item: Item,
        arithmetic: &ItemArithmetic,
        replies: &mut Replies,
    ) -> Progress {
        let cas = self.cas(item);
        let is_expected = request.cas.is_none_or(|expected| expected == cas);
        let bytes = item_bytes(&mut self.lines, item.pointer);
        let (value, before) = (item.header.value(bytes), item.header.attributes(bytes));
        let number = match number(value) {
            _ if !value.is_empty() && !is_expected => {
                replies.set(index, Reply::Exists);
                return Progress::Done;
            }
            None => {
                replies.set(index, Reply::Failed(OperationError::NotAnInteger));
                return Progress::Done;
            }
            Some(number) => match arithmetic.change {
                ItemChange::Add(delta) => number.wrapping_add(delta),
                ItemChange::Subtract(delta) => number.saturating_sub(delta),
            },
        };
        let size = value.len();
        let mut digits = [0; DIGITS_MAX];
        let text = decimal(number, &mut digits);
        if let Some(progress) = grant(index, size, 0, replies) {
            return progress;
        }
        let is_longer = text.len() > size;
        self.scratch.clear();
        self.scratch.extend_from_slice(text);
        self.scratch.resize(size.max(text.len()), b' ');
        let marks = if is_longer { Marks::default() } else { before.marks };
        let after = Attributes { expiry: arithmetic.expiry.apply(before.expiry), marks, ..before };
        let cas = if self.has_passed(after.expiry) {
            self.remove(hash, item.slot);
            cas
        } else {
            let value = std::mem::take(self.scratch);
            let in_place = self.overwrite(item, after, &value);
            *self.scratch = value;
            in_place.unwrap_or_else(|| self.append_scratch(request.key, hash, item, after))
        };
        replies.slot(index).set_item(&fields_of(before, text.len(), cas).encode(), text);
        Progress::Done
    }

    /// Returns the number of an item by which clients recognise its state.
    fn cas(&self, item: Item) -> CasNumber {
        item.header.cas(self.log.virtual_offset(item.offset))
    }

    /// Returns the attributes of an item.
    fn attributes(&mut self, item: Item) -> Attributes {
        item.header.attributes(item_bytes(&mut self.lines, item.pointer))
    }

    /// Changes the attributes of an item, in place if they need as many bytes, else with its value in the scratch
    /// buffer. Gives it another number if it `has_new_state`. Removes it if it has expired now. Returns its number.
    fn change_attributes(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        item: Item,
        attributes: Attributes,
        has_new_state: bool,
    ) -> CasNumber {
        let at = self.log.virtual_offset(item.offset);
        if self.has_passed(attributes.expiry) {
            self.remove(hash, item.slot);
            return item.header.cas(at);
        }
        let bytes = item_bytes(&mut self.lines, item.pointer);
        let header = if has_new_state { item.header.changed() } else { Some(item.header) };
        if let Some(header) = header.map(|header| header.with_marks(attributes.marks))
            && Header::new(key.len(), header.value_size(), attributes).has_shape_of(header)
        {
            header.write(bytes);
            header.write_attributes(bytes, attributes);
            self.lines.note(item.pointer.span(header.size()), Effect::Changed);
            return header.cas(at);
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(item.header.value(bytes));
        self.append_scratch(key, hash, item, attributes)
    }

    /// Appends an item with the value in the scratch buffer, in place of another one.
    fn append_scratch(&mut self, key: &[u8], hash: KeyHash, item: Item, attributes: Attributes) -> CasNumber {
        let value = std::mem::take(self.scratch);
        self.counts.items -= 1;
        let cas = self.append_item(key, hash, Before::Slot(item.slot), attributes, &value);
        *self.scratch = value;
        cas
    }
}

/// Returns the attributes of the item that a put stores.
#[inline(always)]
fn new_attributes(put: &ItemPut<'_>) -> Attributes {
    let expiry = if put.expiry == ExpiryChange::KEEP { None } else { put.expiry.apply(None) };
    let marks = Marks::default().with(Marks::BASE64_KEY, put.has_base64_key);
    Attributes { expiry, flags: put.flags, marks }
}

#[inline(always)]
fn fields_of(attributes: Attributes, size: usize, cas: CasNumber) -> ItemFields {
    let Attributes { expiry, flags, .. } = attributes;
    ItemFields { flags, size: size as u32, cas, expiry, ..ItemFields::default() }
}

/// Replies to a put that has stored an item.
#[inline(always)]
fn reply_to_put(
    index: usize,
    put: &ItemPut<'_>,
    attributes: Attributes,
    size: usize,
    cas: CasNumber,
    replies: &mut Replies,
) {
    if put.returns_fields {
        replies.slot(index).set_item(&fields_of(attributes, size, cas).encode(), &[]);
    } else {
        replies.set(index, Reply::Done);
    }
}

/// Returns the number that a value begins with, as memcached reads it: blanks and a sign may precede the digits, and blanks
/// end the number.
fn number(value: &[u8]) -> Option<u64> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = value.iter().position(|byte| !is_blank(byte));
    let text = start.map_or(&[][..], |start| &value[start..]);
    let (is_negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 {
        return None;
    }
    let digits = std::str::from_utf8(&text[..end]).expect("digits are ASCII");
    let number: u64 = digits.parse().ok()?;
    let is_ended = text.get(end).is_none_or(is_blank);
    (is_ended && (!is_negative || number == 0)).then_some(number)
}

/// Returns true if a put makes a stale value, because the client's number is older than that of the item.
fn is_stale(request: &ItemRequest<'_>, put: &ItemPut<'_>, cas: CasNumber) -> bool {
    request.cas.is_some_and(|expected| expected < cas) && put.may_be_stale
}

/// Returns the text of a number.
fn decimal(mut number: u64, digits: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut start = DIGITS_MAX;
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_written() {
        for (text, expected) in [
            ("0", Some(0)),
            ("12 ", Some(12)),
            (" +7\r", Some(7)),
            ("12 abc", Some(12)),
            ("18446744073709551615", Some(u64::MAX)),
            ("-0", Some(0)),
            ("", None),
            (" ", None),
            (" abc", None),
            ("-1", None),
            ("12a", None),
            ("18446744073709551616", None),
            ("x", None),
        ] {
            assert_eq!(number(text.as_bytes()), expected, "{text:?}");
        }
        let mut digits = [0; DIGITS_MAX];
        for number in [0, 9, 10, u64::MAX] {
            assert_eq!(decimal(number, &mut digits), number.to_string().as_bytes());
        }
    }
}
