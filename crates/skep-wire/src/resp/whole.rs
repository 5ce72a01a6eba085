//! The usual RESP requests: arrays of a few short arguments that have arrived as a whole.
//!
//! [`ShortRequest`] is the most frequent one: a name, a key, and perhaps a value.

use super::argument::Argument;
use super::{ARGUMENT_COUNT_MAX, BULK_SIZE_MAX, REQUEST_SIZE_MAX};

/// Parses an array that has arrived as a whole, if the lines of its numbers have at most [`DIGITS_MAX`] digits and its
/// arguments fit the capacity. Returns its size. Appends nothing if it is anything else: that is for the parser to
/// decide.
#[inline]
pub(super) fn parse_whole(input: &[u8], arguments: &mut Vec<Argument>) -> Option<usize> {
    let (count, mut position) = short_number(input, 0, b'*')?;
    let first = arguments.len();
    if count == 0 || count > arguments.capacity() - first {
        return None;
    }
    for _ in 0..count {
        let argument = short_number(input, position, b'$').filter(|&(size, start)| {
            position = start + size + 2;
            input.get(start + size..position) == Some(b"\r\n")
        });
        let Some((size, start)) = argument else {
            arguments.truncate(first);
            return None;
        };
        arguments.push(Argument { start: start as u32, size: size as u32 });
    }
    if position > REQUEST_SIZE_MAX {
        arguments.truncate(first);
        return None;
    }
    Some(position)
}

/// An array of a name, a key and perhaps a value, which has arrived as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortRequest {
    /// The name, of one to nine bytes.
    pub name: Argument,
    /// The argument after it.
    pub key: Argument,
    /// The last of three arguments.
    pub value: Option<Argument>,
    /// Bytes of the request.
    pub size: usize,
}

impl ShortRequest {
    /// Parses the request that `input` begins with, if it is of this kind, and its numbers have at most five digits.
    /// All others are for the parser.
    #[inline(always)]
    pub fn parse(input: &[u8]) -> Option<ShortRequest> {
        // Two numbers of one digit each: those of the arguments and of the bytes of the name.
        const HEAD: &[u8; 8] = b"*\0\r\n$\0\r\n";
        const DIGITS: u64 = u64::from_le_bytes(*b"\0\xFF\0\0\0\xFF\0\0");
        let head = input.first_chunk()?;
        if u64::from_le_bytes(*head) & !DIGITS != u64::from_le_bytes(*HEAD) {
            return None;
        }
        let name_size = usize::from(head[5].wrapping_sub(b'0'));
        if !(1..=9).contains(&name_size) || !matches!(head[1], b'2' | b'3') {
            return None;
        }
        let name = Argument { start: HEAD.len() as u32, size: name_size as u32 };
        let position = after_line_end(input, HEAD.len() + name_size)?;
        let (key, mut size) = bulk(input, position)?;
        let mut value = None;
        if head[1] == b'3' {
            let (argument, end) = bulk(input, size)?;
            (value, size) = (Some(argument), end);
        }
        Some(ShortRequest { name, key, value, size })
    }
}

/// Returns the argument whose line with the size is at `position`, and the position after it.
#[inline(always)]
fn bulk(input: &[u8], position: usize) -> Option<(Argument, usize)> {
    let (size, start) = short_number(input, position, b'$')?;
    let end = after_line_end(input, start + size)?;
    Some((Argument { start: start as u32, size: size as u32 }, end))
}

/// Returns the position after the end of line at `position`, if there is one.
#[inline(always)]
fn after_line_end(input: &[u8], position: usize) -> Option<usize> {
    let end = input.get(position..)?.first_chunk()?;
    (end == b"\r\n").then_some(position + end.len())
}

/// The most digits of a number in a request that [`parse_whole`] takes.
const DIGITS_MAX: usize = 5;

const _: () =
    assert!(10_usize.pow(DIGITS_MAX as u32) <= ARGUMENT_COUNT_MAX && 10_usize.pow(DIGITS_MAX as u32) <= BULK_SIZE_MAX);

/// Returns the number in the line at `position`, which begins with `kind`, and the position after the line. `None` if
/// the line is not complete, not right or long.
#[inline(always)]
fn short_number(input: &[u8], position: usize, kind: u8) -> Option<(usize, usize)> {
    let line = input.get(position..)?;
    // Most numbers have one or two digits.
    if let Some(&[begin, tens, ones, end, _]) = line.first_chunk()
        && begin == kind
    {
        let (tens, digit) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
        if tens <= 9 && ones == b'\r' && end == b'\n' {
            return Some((usize::from(tens), position + 4));
        }
        if matches!(tens, 1..=9) && digit <= 9 && end == b'\r' && line[4] == b'\n' {
            return Some((10 * usize::from(tens) + usize::from(digit), position + 5));
        }
    }
    long_number(line, kind).map(|(number, size)| (number, position + size))
}

/// Returns the number in a line of any length, and the size of the line.
fn long_number(line: &[u8], kind: u8) -> Option<(usize, usize)> {
    let (&[begin, digit], rest) = line.split_first_chunk()?;
    let mut number = usize::from(digit.wrapping_sub(b'0'));
    if begin != kind || number > 9 {
        return None;
    }
    for (index, &byte) in rest.iter().enumerate().take(DIGITS_MAX) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let end = index + 1;
            return (byte == b'\r' && rest.get(end) == Some(&b'\n')).then_some((number, 2 + end + 1));
        }
        // No leading zeros.
        if number == 0 {
            return None;
        }
        number = 10 * number + usize::from(digit);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::argument::Argument;
    use super::super::{Parsed, RequestParser};
    use super::{ShortRequest, parse_whole};

    /// Usual requests with some pieces replaced, cut anywhere: what is taken as a short request is what the parser returns.
    #[test]
    fn short_requests_are_what_the_parser_returns() {
        use proptest::prop_assert_eq;
        use proptest::test_runner::{Config, TestRunner};
        const USUAL: [&str; 12] =
            ["*3\r\n", "$3\r\n", "SET", "\r\n", "$12", "\r\n", "key:00000042", "\r\n", "$1\r\n", "x", "\r", "\n"];
        const PIECES: &[&str] = &[
            "*2\r\n",
            "*4\r\n",
            "*3\n",
            "$0\r\n\r\n",
            "$9\r\n",
            "INCRBYABC",
            "$10\r\n",
            "$011",
            "$13",
            "$99",
            "$100",
            "\n",
            "\r",
            "x",
            "123456789012",
            "$-1\r\n",
            "",
        ];
        let replaced = proptest::collection::vec((0..USUAL.len(), proptest::sample::select(PIECES)), 0..4);
        let taken = std::cell::Cell::new(0);
        let result = TestRunner::new(Config::with_cases(20_000)).run(&(replaced, 0..16_usize), |(replaced, cut)| {
            let mut request = USUAL;
            replaced.iter().for_each(|(index, piece)| request[*index] = piece);
            let mut input = request.concat().into_bytes();
            input.truncate(input.len().saturating_sub(cut / 8));
            let Some(short) = ShortRequest::parse(&input) else { return Ok(()) };
            let mut arguments = Vec::with_capacity(4);
            prop_assert_eq!(
                RequestParser::default().parse(&mut input, &mut arguments),
                Ok(Parsed::Complete(short.size))
            );
            prop_assert_eq!(
                arguments,
                [Some(short.name), Some(short.key), short.value].into_iter().flatten().collect::<Vec<_>>()
            );
            taken.set(taken.get() + 1);
            Ok(())
        });
        result.unwrap();
        assert!(taken.get() > 1000, "{}", taken.get());
        assert!(ShortRequest::parse(&USUAL.concat().into_bytes()).is_some());
    }

    #[test]
    fn usual_requests_are_taken_as_a_whole() {
        let whole = |bytes: &[u8], capacity| {
            let mut arguments = Vec::with_capacity(capacity);
            parse_whole(bytes, &mut arguments).map(|size| (size, arguments))
        };
        let get = b"*2\r\n$3\r\nGET\r\n$12\r\nkey:00000042\r\n";
        let arguments = vec![Argument::new(8, 3), Argument::new(18, 12)];
        assert_eq!(whole(&[&get[..], b"*2\r\n"].concat(), 2), Some((get.len(), arguments)));
        assert_eq!(whole(get, 1), None, "there is no capacity");
        for end in 0..get.len() {
            assert_eq!(whole(&get[..end], 2), None);
        }
        for odd in [
            "*01\r\n$1\r\na\r\n",
            "*1\n$1\r\na\r\n",
            "*1\r\n$1\na\r\n",
            "*1\r\n$1\r\naa\n",
            "*1\r\n#1\r\na\r\n",
            "*0\r\n",
            "*-1\r\n",
            "*1\r\n$-1\r\n",
            "*1\r\n$000001\r\na\r\n",
        ] {
            assert_eq!(whole(odd.as_bytes(), 2), None, "{odd:?}");
        }
        let long = [&b"*1\r\n$99999\r\n"[..], &[b'x'; 99_999], b"\r\n"].concat();
        assert_eq!(whole(&long, 1).map(|(size, _)| size), Some(long.len()));
        let longer = [&b"*1\r\n$100000\r\n"[..], &[b'x'; 100_000], b"\r\n"].concat();
        assert_eq!(whole(&longer, 1), None);
    }
}
