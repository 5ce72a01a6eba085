//! The two most frequent requests, parsed in one pass: `get` of one key, and `set` of a pair that has arrived.
//!
//! ```text
//!   get KEY\r\n                  set KEY FLAGS EXPTIME SIZE\r\nVALUE\r\n
//!       └ ends before the first byte that is a blank or a control byte: eight bytes are compared at a time
//! ```
//!
//! All other requests, and unusual forms of these two, are left to [`super::RequestParser::parse`], which has the same
//! result for these.

use super::line::{Value, value_of};
use super::{Exptime, KEY_SIZE_MAX};

/// Most digits of a number that is parsed here.
const DIGITS_MAX: usize = 9;

/// A frequent request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain<'b> {
    /// `get` of one key.
    Get {
        /// The key.
        key: &'b [u8],
    },
    /// `set` that wants a reply.
    Set {
        /// The key.
        key: &'b [u8],
        /// The client's flags.
        flags: u32,
        /// The expiry.
        exptime: Exptime,
        /// The value.
        value: &'b [u8],
    },
}

/// Parses the request that begins with the first byte of `input`. Returns it and its size, or `None` if it is another
/// one, or is incomplete.
#[inline]
pub(super) fn parse_plain(input: &[u8], value_size_max: usize) -> Option<(usize, Plain<'_>)> {
    let (name, rest) = input.split_first_chunk::<4>()?;
    match name {
        b"get " => {
            let (key, rest) = take_key(rest)?;
            let rest = rest.strip_prefix(b"\r\n")?;
            Some((input.len() - rest.len(), Plain::Get { key }))
        }
        b"set " => parse_set(input, rest, value_size_max),
        _ => None,
    }
}

/// Parses a `set` after its name.
#[inline]
fn parse_set<'b>(input: &'b [u8], rest: &'b [u8], value_size_max: usize) -> Option<(usize, Plain<'b>)> {
    let (key, rest) = take_key(rest)?;
    let (flags, rest) = take_number(rest.strip_prefix(b" ")?)?;
    let (exptime, rest) = take_number(rest.strip_prefix(b" ")?)?;
    let (size, rest) = take_number(rest.strip_prefix(b" ")?)?;
    let body = rest.strip_prefix(b"\r\n")?;
    let size = size as usize;
    if size > value_size_max {
        return None;
    }
    let Value::Complete(value) = value_of(body, size) else { return None };
    let request = Plain::Set { key, flags, exptime: Exptime(exptime.into()), value };
    Some((input.len() - body.len() + size + 2, request))
}

/// Takes a key, up to the first byte that is a blank or a control byte. Returns it and the bytes after it.
#[inline]
fn take_key(input: &[u8]) -> Option<(&[u8], &[u8])> {
    /// Of each byte, the highest bit.
    const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; 8]);
    /// Added to a byte of seven bits above the blank, this sets its highest bit.
    const ABOVE_BLANK: u64 = u64::from_ne_bytes([0x7f - b' '; 8]);
    let (words, _) = input.as_chunks::<8>();
    let mut size = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let is_above = (((word & !HIGH_BITS) + ABOVE_BLANK) | word) & HIGH_BITS;
        if is_above != HIGH_BITS {
            size += (is_above ^ HIGH_BITS).trailing_zeros() as usize / 8;
            return split_key(input, size);
        }
        size += 8;
        if size > KEY_SIZE_MAX {
            return None;
        }
    }
    size += input[size..].iter().position(|&byte| byte <= b' ')?;
    split_key(input, size)
}

#[inline]
fn split_key(input: &[u8], size: usize) -> Option<(&[u8], &[u8])> {
    matches!(size, 1..=KEY_SIZE_MAX).then(|| input.split_at(size))
}

/// Takes a number without a sign, of at most [`DIGITS_MAX`] digits. Returns it and the bytes after it.
#[inline(always)]
fn take_number(input: &[u8]) -> Option<(u32, &[u8])> {
    // Most have one digit.
    match input {
        [digit @ b'0'..=b'9', b' ' | b'\r', ..] => Some((u32::from(digit - b'0'), &input[1..])),
        _ => take_long_number(input),
    }
}

/// Takes a number of any length.
fn take_long_number(input: &[u8]) -> Option<(u32, &[u8])> {
    let mut number = 0;
    for (index, byte) in input.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (index > 0).then(|| (number, &input[index..]));
        }
        if index == DIGITS_MAX {
            return None;
        }
        number = 10 * number + u32::from(digit);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcached::{Parsed, Request, RequestParser, Store, StoreMode};

    const VALUE_SIZE_MAX: usize = 100;

    /// Returns what the parser of all requests makes of the same bytes, if it is one of the frequent requests.
    fn by_parser(input: &[u8]) -> Option<(usize, String)> {
        let mut input = input.to_vec();
        let Parsed::Complete { size, request } = RequestParser::new(VALUE_SIZE_MAX).parse(&mut input) else {
            return None;
        };
        let plain = match request {
            Request::Get { mut keys, key_count: 1, with_cas: false, exptime: None } => {
                Plain::Get { key: keys.next().unwrap() }
            }
            Request::Store { store, is_quiet: false } => {
                let Store { key, value, mode: StoreMode::Set, flags, exptime, cas: None } = store else { return None };
                Plain::Set { key, flags, exptime, value }
            }
            _ => return None,
        };
        Some((size, format!("{plain:?}")))
    }

    fn plain(input: &[u8]) -> Option<(usize, String)> {
        parse_plain(input, VALUE_SIZE_MAX).map(|(size, plain)| (size, format!("{plain:?}")))
    }

    #[test]
    fn usual_requests_are_parsed() {
        let long = format!("get {}\r\n", "k".repeat(KEY_SIZE_MAX));
        let inputs = [&b"get k\r\n"[..], b"get \x7f\xff12345678\r\nget", b"set key 0 0 1\r\n\n\r\n", long.as_bytes()];
        for input in inputs.into_iter().chain([&b"set k 123456789 10 10\r\n0123456789\r\nget"[..]]) {
            assert!(plain(input).is_some() && plain(input) == by_parser(input), "{}", input.escape_ascii());
        }
    }

    #[test]
    fn unusual_requests_are_left_to_the_parser() {
        let long = format!("get {}\r\n", "k".repeat(KEY_SIZE_MAX + 1));
        let others = [
            "get",
            "get ",
            "get k",
            "get k\r",
            "get k\n",
            "get  k\r\n",
            "get k \r\n",
            "get k k\r\n",
            "get a\tb\r\n",
            "get \r\n",
            "gets k\r\n",
            "GET k\r\n",
            " get k\r\n",
            "set k 0 0 1 noreply\r\nx\r\n",
            "set k 0 0 1\r\nx",
            "set k 0 0 1\r\nxy\r\n",
            "set k 0 -1 1\r\nx\r\n",
            "set k +0 0 1\r\nx\r\n",
            "set k 0 0 101\r\n",
            "set k 0 0\r\n",
            "set k 0 0 \r\n\r\n",
            "set k 1234567890 0 1\r\nx\r\n",
            "set k 0 0 1\nx\r\n",
            "set  0 0 1\r\nx\r\n",
            &long,
        ];
        for other in others {
            assert_eq!(plain(other.as_bytes()), None, "{}", other.escape_debug());
        }
    }

    /// Usual requests with some pieces replaced, cut anywhere.
    #[test]
    fn what_is_parsed_is_what_the_parser_returns() {
        use proptest::arbitrary::any;
        use proptest::prop_assert_eq;
        use proptest::test_runner::{Config, TestRunner};
        const USUAL: [&str; 9] = ["set ", "key", " ", "0", " ", "0", " ", "1", "\r\nx\r\n"];
        const PIECES: &[&str] =
            &["get ", "set ", "k", "12345678", " ", "7", "99", "\r\n", "\n", "\r", "\0", "\u{ff}\t", "-", " noreply"];
        let replaced = proptest::collection::vec((0..USUAL.len(), proptest::sample::select(PIECES)), 0..4);
        let parsed = std::cell::Cell::new(0);
        let mut runner = TestRunner::new(Config::with_cases(20_000));
        let result = runner.run(&(replaced, 0..16_usize, any::<bool>()), |(replaced, cut, is_get)| {
            let mut request = USUAL;
            replaced.iter().for_each(|(index, piece)| request[*index] = piece);
            let text = if is_get { format!("get {}\r\n", request[1..3].concat()) } else { request.concat() };
            let input = &text.as_bytes()[..text.len().saturating_sub(cut / 10)];
            let found = plain(input);
            if found.is_some() {
                prop_assert_eq!(found, by_parser(input));
                parsed.set(parsed.get() + 1);
            }
            Ok(())
        });
        result.unwrap();
        assert!(parsed.get() > 1000, "{}", parsed.get());
    }
}
