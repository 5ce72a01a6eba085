//! The commands with names: `get`, `set` and the others.
//!
//! `noreply` is the last word of a line. As in memcached, it also suppresses the error message if the line is refused
//! for another reason than the number of its words. Another word in its place is ignored, except after `delete`.

use super::line::{Line, STATED_SIZE_MAX, Value, is_key, value_of};
use super::words::{Words, signed, unsigned, unsigned_32};
use super::{Direction, ErrorReply, Exptime, Request, Statistics, Store, StoreMode};

/// Parses a line after its command.
pub(super) fn parse_text<'b>(command: &[u8], words: Words<'b>, body: &'b [u8], value_size_max: usize) -> Line<'b> {
    let store = |mode| parse_store(mode, false, words, body, value_size_max);
    match command {
        b"get" => parse_get(words, false),
        b"gets" => parse_get(words, true),
        b"gat" => parse_get_and_touch(words, false),
        b"gats" => parse_get_and_touch(words, true),
        b"set" => store(StoreMode::Set),
        b"add" => store(StoreMode::Add),
        b"replace" => store(StoreMode::Replace),
        b"append" => store(StoreMode::Append),
        b"prepend" => store(StoreMode::Prepend),
        b"cas" => parse_store(StoreMode::Set, true, words, body, value_size_max),
        b"incr" => parse_arithmetic(Direction::Increment, words),
        b"decr" => parse_arithmetic(Direction::Decrement, words),
        b"delete" => parse_delete(words),
        b"touch" => parse_touch(words),
        b"flush_all" => parse_flush_all(words),
        b"stats" => parse_statistics(words),
        b"verbosity" => parse_verbosity(words),
        b"version" => Line::Complete(Request::Version, 0),
        b"quit" => Line::Complete(Request::Quit, 0),
        b"shutdown" => refused(ErrorReply::Shutdown, false),
        // A browser was told to send its request here. What follows is not for this server.
        _ if words.last().is_some_and(|word| word.starts_with(b"HTTP/")) => Line::Close,
        _ => refused(ErrorReply::Command, false),
    }
}

fn refused<'b>(error: ErrorReply, is_quiet: bool) -> Line<'b> {
    Line::Refused(error, 0, is_quiet)
}

/// Returns true if the last word is `noreply`.
fn is_quiet(words: &[&[u8]]) -> bool {
    words.last().is_some_and(|&word| word == b"noreply")
}

#[inline]
fn parse_get(keys: Words<'_>, with_cas: bool) -> Line<'_> {
    if { keys }.next().is_none() {
        return refused(ErrorReply::Command, false);
    }
    complete_get(keys, with_cas, None)
}

fn parse_get_and_touch(mut words: Words<'_>, with_cas: bool) -> Line<'_> {
    let Some(exptime) = words.next() else { return refused(ErrorReply::Command, false) };
    match signed(exptime) {
        None => refused(ErrorReply::Exptime, false),
        Some(exptime) => complete_get(words, with_cas, Some(Exptime(exptime))),
    }
}

#[inline]
fn complete_get(keys: Words<'_>, with_cas: bool, exptime: Option<Exptime>) -> Line<'_> {
    let mut key_count = 0;
    for key in keys {
        if !is_key(key) {
            return refused(ErrorReply::Format, false);
        }
        key_count += 1;
    }
    Line::Complete(Request::Get { keys, key_count, with_cas, exptime }, 0)
}

fn parse_store<'b>(
    mode: StoreMode,
    has_cas: bool,
    words: Words<'b>,
    body: &'b [u8],
    value_size_max: usize,
) -> Line<'b> {
    let (words, count) = words.array::<6>();
    let needed = if has_cas { 5 } else { 4 };
    if count != needed && count != needed + 1 {
        return refused(ErrorReply::Command, false);
    }
    let is_quiet = is_quiet(&words[..count]);
    let [key, flags, exptime, size, cas, _] = words;
    let numbers = (unsigned_32(flags), signed(exptime), unsigned(size).filter(|&size| size <= STATED_SIZE_MAX));
    let (Some(flags), Some(exptime), Some(size)) = numbers else { return refused(ErrorReply::Format, is_quiet) };
    let cas = if has_cas { unsigned(cas) } else { None };
    if !is_key(key) || cas.is_some() != has_cas {
        return refused(ErrorReply::Format, is_quiet);
    }
    let size = size as usize;
    if size > value_size_max {
        let removed_key = (mode == StoreMode::Set && !has_cas).then_some(key);
        return Line::Complete(Request::StoreTooLarge { removed_key, is_quiet }, size + 2);
    }
    match value_of(body, size) {
        Value::Incomplete => Line::NeedsBody(size + 2),
        Value::Invalid => Line::Refused(ErrorReply::ValueEnd, size + 2, is_quiet),
        Value::Complete(value) => {
            let store = Store { key, value, mode, flags, exptime: Exptime(exptime), cas };
            Line::Complete(Request::Store { store, is_quiet }, size + 2)
        }
    }
}

fn parse_arithmetic(direction: Direction, words: Words<'_>) -> Line<'_> {
    let (words, count) = words.array::<3>();
    if !(2..=3).contains(&count) {
        return refused(ErrorReply::Command, false);
    }
    let is_quiet = is_quiet(&words[..count]);
    let [key, delta, _] = words;
    match unsigned(delta) {
        _ if !is_key(key) => refused(ErrorReply::Format, is_quiet),
        None => refused(ErrorReply::Delta, is_quiet),
        Some(delta) => Line::Complete(Request::Arithmetic { key, direction, delta, is_quiet }, 0),
    }
}

/// Old clients send a 0 after the key, the time during which the key was to stay locked.
fn parse_delete(words: Words<'_>) -> Line<'_> {
    let (words, count) = words.array::<3>();
    if !(1..=3).contains(&count) {
        return refused(ErrorReply::Command, false);
    }
    let is_quiet = count > 1 && is_quiet(&words[..count]);
    let [key, time, _] = words;
    let is_usual = match count {
        1 => true,
        2 => time == b"0" || is_quiet,
        _ => time == b"0" && is_quiet,
    };
    if !is_usual {
        return refused(ErrorReply::DeleteUsage, is_quiet);
    }
    if !is_key(key) {
        return refused(ErrorReply::Format, is_quiet);
    }
    Line::Complete(Request::Delete { key, is_quiet }, 0)
}

fn parse_touch(words: Words<'_>) -> Line<'_> {
    let (words, count) = words.array::<3>();
    if !(2..=3).contains(&count) {
        return refused(ErrorReply::Command, false);
    }
    let is_quiet = is_quiet(&words[..count]);
    let [key, exptime, _] = words;
    match signed(exptime) {
        _ if !is_key(key) => refused(ErrorReply::Format, is_quiet),
        None => refused(ErrorReply::Exptime, is_quiet),
        Some(exptime) => Line::Complete(Request::Touch { key, exptime: Exptime(exptime), is_quiet }, 0),
    }
}

fn parse_flush_all(words: Words<'_>) -> Line<'_> {
    let (words, count) = words.array::<2>();
    if count > 2 {
        return refused(ErrorReply::Command, false);
    }
    let is_quiet = is_quiet(&words[..count]);
    let has_delay = count > usize::from(is_quiet);
    let delay = if has_delay { signed(words[0]) } else { Some(0) };
    match delay {
        None => refused(ErrorReply::Exptime, is_quiet),
        Some(delay) => Line::Complete(Request::FlushAll { delay: Exptime(delay), is_quiet }, 0),
    }
}

fn parse_statistics(mut words: Words<'_>) -> Line<'_> {
    let statistics = match words.next() {
        None => Statistics::General,
        Some(b"reset") => Statistics::Reset,
        Some(b"settings") => Statistics::Settings,
        Some(b"items") => Statistics::Items,
        Some(b"slabs") => Statistics::Slabs,
        Some(b"sizes") => Statistics::Sizes,
        Some(b"conns") => Statistics::Connections,
        Some(_) => return refused(ErrorReply::Command, false),
    };
    Line::Complete(Request::Statistics(statistics), 0)
}

fn parse_verbosity(words: Words<'_>) -> Line<'_> {
    let (words, count) = words.array::<2>();
    if !(1..=2).contains(&count) {
        return refused(ErrorReply::Command, false);
    }
    let is_quiet = is_quiet(&words[..count]);
    match unsigned_32(words[0]) {
        None => refused(ErrorReply::Format, is_quiet),
        Some(_) => Line::Complete(Request::Verbosity { is_quiet }, 0),
    }
}
