//! The writer of RESP replies, versions 2 and 3.
//!
//! The writer appends to the output of a connection. An array or a map is a header and then its parts: after a header
//! of `n`, the caller writes `n` parts. The caller chooses the most specific type. The writer maps it to a type of
//! version 2 if necessary.

use std::borrow::Cow;

use skep_core::function::DecimalText;
use skep_core::short::append;

/// The version of the protocol on a connection. A connection begins with version 2, and `HELLO` changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Version {
    /// Version 2, which every client supports.
    #[default]
    Two,
    /// Version 3, which has maps, numbers and its own null.
    Three,
}

/// The character that stands for the byte 0x80; the others of its kind follow. They are private characters, the last ones.
const FIRST_STAND_IN: char = '\u{10ff80}';

/// Returns bytes of a client as text for an error. Bytes that are not UTF-8 become private characters, which
/// [`ReplyWriter::error`] writes as the same bytes, so that a client finds its own bytes in the error, as in Redis.
pub fn error_text(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) if !text.contains(|character| character >= FIRST_STAND_IN) => Cow::Borrowed(text),
        _ => {
            let mut text = String::with_capacity(bytes.len());
            for chunk in bytes.utf8_chunks() {
                for character in chunk.valid().chars() {
                    match character {
                        // Such a character of the client: each of its bytes gets its own.
                        FIRST_STAND_IN.. => {
                            character.encode_utf8(&mut [0; 4]).bytes().for_each(|b| text.push(stand_in(b)));
                        }
                        _ => text.push(character),
                    }
                }
                chunk.invalid().iter().for_each(|byte| text.push(stand_in(*byte)));
            }
            Cow::Owned(text)
        }
    }
}

/// Returns the character for a byte from 0x80 on.
fn stand_in(byte: u8) -> char {
    char::from_u32(FIRST_STAND_IN as u32 - 0x80 + u32::from(byte)).expect("the last characters are private ones")
}

/// Appends replies to the output of a connection.
#[derive(Debug)]
pub struct ReplyWriter<'b> {
    out: &'b mut Vec<u8>,
    version: Version,
}

impl<'b> ReplyWriter<'b> {
    /// Returns a writer that appends to `out`.
    pub fn new(out: &'b mut Vec<u8>, version: Version) -> Self {
        ReplyWriter { out, version }
    }

    /// Returns the bytes of the output, with those that were there before.
    pub fn written(&self) -> usize {
        self.out.len()
    }

    /// Returns the version of the replies.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Writes a short text without line ends, such as `OK`.
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']));
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes the text `OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// Writes an error: its prefix in capitals, a blank, an error message. Replaces line ends in it, which may be input
    /// of a user, by blanks.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text);
    }

    /// Writes a signed number.
    pub fn integer(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// Writes a signed number that is given as decimal text.
    pub fn decimal(&mut self, text: &[u8]) {
        self.out.push(b':');
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes any bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len() as i64);
        append(self.out, bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a null: there is no value.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// Writes the null that takes the place of an array.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Two => b"*-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// Writes the header of an array. The caller then writes `count` replies.
    pub fn array(&mut self, count: usize) {
        self.header(b'*', count as i64);
    }

    /// Writes the header of a set. The caller then writes `count` replies.
    pub fn set(&mut self, count: usize) {
        match self.version {
            Version::Two => self.array(count),
            Version::Three => self.header(b'~', count as i64),
        }
    }

    /// Writes the header of a map. The caller then writes `count` keys, each followed by its value.
    pub fn map(&mut self, count: usize) {
        match self.version {
            Version::Two => self.array(2 * count),
            Version::Three => self.header(b'%', count as i64),
        }
    }

    /// Writes an array of short texts, such as a help page.
    pub fn lines(&mut self, lines: &[&str]) {
        self.array(lines.len());
        lines.iter().for_each(|line| self.simple(line));
    }

    /// Writes a floating-point number in decimal text.
    pub fn double(&mut self, text: &str) {
        match self.version {
            Version::Two => self.bulk(text.as_bytes()),
            // The only number that RESP3 spells otherwise.
            Version::Three => self.line(b',', if text == "NaN" { "nan" } else { text }),
        }
    }

    /// Writes an integer, in decimal text, that a signed number of 64 bits cannot hold.
    pub fn big_number(&mut self, text: &str) {
        match self.version {
            Version::Two => self.bulk(text.as_bytes()),
            Version::Three => self.line(b'(', text),
        }
    }

    /// Writes a text for users, which a client shows unchanged.
    pub fn text(&mut self, text: &str) {
        match self.version {
            Version::Two => self.bulk(text.as_bytes()),
            Version::Three => {
                self.header(b'=', text.len() as i64 + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn line(&mut self, kind: u8, text: &str) {
        self.out.push(kind);
        for character in text.chars() {
            match character {
                '\r' | '\n' => self.out.push(b' '),
                FIRST_STAND_IN.. => self.out.push(character as u8),
                _ => self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn header(&mut self, kind: u8, number: i64) {
        if (0..10).contains(&number) {
            self.out.extend_from_slice(&[kind, b'0' + number as u8, b'\r', b'\n']);
        } else if (10..100).contains(&number) {
            let (tens, ones) = ((number / 10) as u8, (number % 10) as u8);
            self.out.extend_from_slice(&[kind, b'0' + tens, b'0' + ones, b'\r', b'\n']);
        } else {
            self.out.push(kind);
            self.out.extend_from_slice(DecimalText::new(number).as_bytes());
            self.out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ReplyWriter, Version, error_text};

    fn written(version: Version, write: impl Fn(&mut ReplyWriter<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut ReplyWriter::new(&mut out, version));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_error_has_the_bytes_of_the_client() {
        let all: Vec<u8> = (0..=255).filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
        for bytes in [&all[..], b"", b"a\xff\xfeb", "zw\u{f6}lf \u{10ff80}\u{10ffff}".as_bytes(), b"\xf4\x8f\xbe"] {
            let mut out = Vec::new();
            ReplyWriter::new(&mut out, Version::Two).error(&format!("ERR '{}'", error_text(bytes)));
            assert_eq!(out, [b"-ERR '", bytes, b"'\r\n"].concat(), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn both_versions() {
        type Case = (fn(&mut ReplyWriter<'_>), &'static str, &'static str);
        let cases: [Case; 15] = [
            (|w| w.simple("OK"), "+OK\r\n", "+OK\r\n"),
            (|w| w.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|w| w.integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (|w| w.integer(9), ":9\r\n", ":9\r\n"),
            (|w| w.bulk(b"\r\n"), "$2\r\n\r\n\r\n", "$2\r\n\r\n\r\n"),
            (|w| w.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (|w| w.bulk(b"0123456789"), "$10\r\n0123456789\r\n", "$10\r\n0123456789\r\n"),
            (|w| w.null(), "$-1\r\n", "_\r\n"),
            (|w| w.array(12), "*12\r\n", "*12\r\n"),
            (|w| w.map(6), "*12\r\n", "%6\r\n"),
            (|w| w.set(6), "*6\r\n", "~6\r\n"),
            (|w| w.double("1.5"), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|w| w.double("NaN"), "$3\r\nNaN\r\n", ",nan\r\n"),
            (|w| w.big_number("18446744073709551615"), "$20\r\n18446744073709551615\r\n", "(18446744073709551615\r\n"),
            (|w| w.text("41"), "$2\r\n41\r\n", "=6\r\ntxt:41\r\n"),
        ];
        for (write, two, three) in cases {
            assert_eq!(written(Version::Two, write), two);
            assert_eq!(written(Version::Three, write), three);
        }
    }
}
