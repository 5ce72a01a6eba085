//! JSON lines: an object for each pair.
//!
//! ```text
//! {"space":"hash","key":"greeting","value":"good morning","expires_at_ms":4000000000123}
//! {"key_base64":"/wA=","value":"text"}
//! ```
//!
//! A key or a value that is not text is in a field with `_base64` after its name. `space` is `hash` if it is absent, and
//! without `expires_at_ms` a pair does not expire. Another field is refused, so that a misspelt one is not lost.

use std::io::{BufRead, Read};

use serde::Deserialize;
use skep_wire::rdb::Entry;

use super::{LINE_SIZE_MAX, ReadError, database_of, decode, entry};

/// A line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    space: Option<String>,
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
    expires_at_ms: Option<i64>,
}

/// Reads lines.
#[derive(Debug)]
pub(crate) struct JsonReader<R> {
    input: R,
    /// The number of the last line that was read, and the bytes up to its end.
    number: u64,
    offset: u64,
    line: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<R: BufRead> JsonReader<R> {
    pub(super) fn new(input: R) -> Self {
        JsonReader { input, number: 0, offset: 0, line: Vec::new(), key: Vec::new(), value: Vec::new() }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn next_entry(&mut self) -> Result<Option<Entry<'_>>, ReadError> {
        loop {
            self.line.clear();
            let mut limited = Read::by_ref(&mut self.input).take(LINE_SIZE_MAX);
            let size = limited.read_until(b'\n', &mut self.line).map_err(ReadError::Read)? as u64;
            (self.number, self.offset) = (self.number + 1, self.offset + size);
            match size {
                0 => return Ok(None),
                LINE_SIZE_MAX if self.line.last() != Some(&b'\n') => {
                    let fault =
                        "it is longer than 8 MiB, and no pair needs that: each pair must be on a line of its own";
                    return Err(self.failed(fault.to_owned()));
                }
                _ if self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf") => {
                    // The mark that some editors write.
                    self.line.drain(..3);
                    if !self.line.trim_ascii().is_empty() {
                        break;
                    }
                }
                _ if self.line.trim_ascii().is_empty() => {}
                _ => break,
            }
        }
        let (database, expiry) = self.parse().map_err(|fault| self.failed(fault))?;
        Ok(Some(entry(database, &self.key, &self.value, expiry)))
    }

    /// Reads the pair of the line. Returns its database and its expiry.
    fn parse(&mut self) -> Result<(u64, Option<i64>), String> {
        if self.line.trim_ascii_start().starts_with(b"[") {
            return Err("it is an array: write an object on each line, without commas between them".to_owned());
        }
        let line: Line = serde_json::from_slice(self.line.trim_ascii_end()).map_err(|error| {
            let error = shortened(&error.to_string());
            // The parser sees one line; its own number is always 1.
            let column = error.replace(" at line 1 column ", ", at its byte ");
            format!("{column}: write {{\"key\":\"…\",\"value\":\"…\"}}, as `skep export --format json` does")
        })?;
        self.key = bytes("key", line.key, line.key_base64)?;
        self.value = bytes("value", line.value, line.value_base64)?;
        let database = line.space.map_or(Ok(0), |space| database_of(&space))?;
        Ok((database, line.expires_at_ms))
    }

    fn failed(&self, fault: String) -> ReadError {
        ReadError::Record { place: "line", number: self.number, fault }
    }
}

/// Returns an error message without the middle of a long name in it.
fn shortened(error: &str) -> String {
    const PART_MAX: usize = 120;
    let count = error.chars().count();
    if count <= 2 * PART_MAX {
        return error.to_owned();
    }
    let begin: String = error.chars().take(PART_MAX).collect();
    begin + "…" + &error.chars().skip(count - PART_MAX).collect::<String>()
}

/// Returns the bytes of a field, which is text or base64.
fn bytes(name: &str, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => decode(base64.as_bytes()),
        (None, None) => Err(format!("it has no {name}: add \"{name}\" or \"{name}_base64\"")),
        (Some(_), Some(_)) => Err(format!("it has both {name} and {name}_base64: leave one out")),
    }
}
