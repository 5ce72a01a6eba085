//! The usual RESP request: an array of a few short arguments that has arrived as a whole.

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

/// The most digits of a number in a request that [`parse_whole`] takes.
const DIGITS_MAX: usize = 5;

const _: () =
    assert!(10_usize.pow(DIGITS_MAX as u32) <= ARGUMENT_COUNT_MAX && 10_usize.pow(DIGITS_MAX as u32) <= BULK_SIZE_MAX);

/// Returns the number in the line at `position`, which begins with `kind`, and the position after the line. `None` if
/// the line is not complete, not right or long.
#[inline(always)]
fn short_number(input: &[u8], position: usize, kind: u8) -> Option<(usize, usize)> {
    let line = input.get(position..)?;
    // Most numbers have one digit.
    if let Some(&[begin, digit @ b'0'..=b'9', b'\r', b'\n']) = line.first_chunk()
        && begin == kind
    {
        return Some((usize::from(digit - b'0'), position + 4));
    }
    let (&[begin, digit], rest) = line.split_first_chunk()?;
    let mut number = usize::from(digit.wrapping_sub(b'0'));
    if begin != kind || number > 9 {
        return None;
    }
    for (index, &byte) in rest.iter().enumerate().take(DIGITS_MAX) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let end = index + 1;
            return (byte == b'\r' && rest.get(end) == Some(&b'\n')).then_some((number, position + 2 + end + 1));
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
    use super::parse_whole;

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
