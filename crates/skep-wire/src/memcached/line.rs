//! A line: what it means, its key, and the value after it.

use super::{ErrorReply, KEY_SIZE_MAX, Request};

/// The largest size of a value that a line can state.
pub(super) const STATED_SIZE_MAX: u64 = i32::MAX as u64 - 2;

/// The meaning of a line and of the bytes after it, its body.
pub(super) enum Line<'b> {
    /// A request, and the size of its body. The rest of the body may be missing if the request does not need it.
    Complete(Request<'b>, usize),
    /// The body is incomplete: it has this size.
    NeedsBody(usize),
    /// A refused request, the size of its body, and `noreply`.
    Refused(ErrorReply, usize, bool),
    /// The connection is useless.
    Close,
}

/// Returns true if a word is a key. As in memcached, a key may have control bytes, except those that end a word or a
/// line. A byte 0 is refused.
#[inline]
pub(super) fn is_key(word: &[u8]) -> bool {
    word.len() <= KEY_SIZE_MAX && !word.contains(&0)
}

/// The value at the start of a body.
pub(super) enum Value<'b> {
    /// The value.
    Complete(&'b [u8]),
    /// Bytes are missing.
    Incomplete,
    /// No line end follows the value.
    Invalid,
}

/// Returns the value of this size, which a line end follows.
#[inline]
pub(super) fn value_of(body: &[u8], size: usize) -> Value<'_> {
    match body.split_at_checked(size) {
        Some((value, [b'\r', b'\n', ..])) => Value::Complete(value),
        Some((_, [_, _, ..])) => Value::Invalid,
        _ => Value::Incomplete,
    }
}
