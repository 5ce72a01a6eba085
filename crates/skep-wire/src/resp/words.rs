//! The words of an inline request.

use super::argument::Argument;
use super::request_error::RequestError;

/// Splits a line, which begins its request, into words, and removes the quotes in place. Appends the words.
pub fn split_words(line: &mut [u8], words: &mut Vec<Argument>) -> Result<(), RequestError> {
    let mut read = 0;
    loop {
        while read < line.len() && is_blank(line[read]) {
            read += 1;
        }
        if read == line.len() {
            return Ok(());
        }
        let start = read;
        let mut written = start;
        let mut quote = None;
        loop {
            let Some(&byte) = line.get(read) else {
                if quote.is_some() {
                    return Err(RequestError::Quotes);
                }
                break;
            };
            let (meaning, size) = match (quote, byte) {
                (None, _) if is_blank(byte) => break,
                (None, b'"' | b'\'') => {
                    quote = Some(byte);
                    read += 1;
                    continue;
                }
                (Some(open), _) if byte == open => {
                    // A closing quote ends the word, and a blank or the end of the line must follow it.
                    read += 1;
                    match line.get(read) {
                        None => break,
                        Some(&next) if is_blank(next) => break,
                        Some(_) => return Err(RequestError::Quotes),
                    }
                }
                (Some(b'"'), b'\\') => unescape(&line[read..]),
                (Some(b'\''), b'\\') if line.get(read + 1) == Some(&b'\'') => (b'\'', 2),
                _ => (byte, 1),
            };
            line[written] = meaning;
            written += 1;
            read += size;
        }
        words.push(Argument::new(start, written - start));
    }
}

/// Decodes a backslash sequence in double quotes. Returns the byte and the length of the sequence. A backslash at the
/// end of the line is itself; then the closing quote is missing, and the line is refused.
fn unescape(text: &[u8]) -> (u8, usize) {
    match *text {
        [_, b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
            (digit(high) << 4 | digit(low), 4)
        }
        [_, b'n', ..] => (b'\n', 2),
        [_, b'r', ..] => (b'\r', 2),
        [_, b't', ..] => (b'\t', 2),
        [_, b'b', ..] => (8, 2),
        [_, b'a', ..] => (7, 2),
        [_, other, ..] => (other, 2),
        _ => (b'\\', 1),
    }
}

/// Returns true if the byte separates words.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 11
}
