//! The formats that `skep import` reads and `skep export` writes.
//!
//! | format | a pair |
//! |---|---|
//! | RDB | a record of Redis's files |
//! | RESP | a command: `SELECT`, `SET … PXAT` |
//! | CSV | a line below a line with the names of the columns |
//! | JSON lines | an object on a line |
//!
//! All have the space, the key, the value and the expiry of a pair. Each reader returns one pair after another, in
//! memory for one: a pair that is longer than the longest one is refused, or passed over. Each text format numbers
//! its lines or its commands, so that a fault is named with its number.

mod contents;
mod csv;
mod json;
mod link;
mod progress;
mod remote;
mod resp;
mod writer;

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use skep::{CACHE_SPACE, HASH_SPACE, ORDERED_SPACE};
use skep_core::operation::{KEY_SIZE_MAX, VALUE_SIZE_MAX};
use skep_wire::rdb::{Entry, RdbError, RdbReader};

pub(crate) use contents::{Change, Contents, NoSpace, keys};
pub(crate) use progress::{Progress, Unit, remove_at_signal};
pub(crate) use remote::{Position, Remote, Step};
pub(crate) use writer::{Pair, Writer, text_or_base64};

/// The spaces, by the number of their database.
pub(crate) const SPACES: [(u16, &str); 3] = [(HASH_SPACE, "hash"), (ORDERED_SPACE, "ordered"), (CACHE_SPACE, "cache")];

/// The longest line of text with a pair: a character of JSON may take six bytes.
const LINE_SIZE_MAX: u64 = 8 << 20;
const _: () = assert!(LINE_SIZE_MAX > 6 * (KEY_SIZE_MAX + VALUE_SIZE_MAX + 1024) as u64);

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// The files of Redis and Valkey (dump.rdb).
    Rdb,
    /// Commands, as `redis-cli --pipe` reads them.
    Resp,
    /// A line for each pair, below a line with the names of the columns.
    Csv,
    /// A JSON object on a line for each pair.
    Json,
}

impl Format {
    /// Returns the format that the name of a file tells.
    pub(crate) fn of_name(path: &Path) -> Option<Format> {
        Some(match path.extension()?.to_str()? {
            "rdb" => Format::Rdb,
            "resp" | "aof" => Format::Resp,
            "csv" => Format::Csv,
            "json" | "jsonl" | "ndjson" => Format::Json,
            _ => return None,
        })
    }

    /// Returns the format that the first bytes of an input tell. Reads them ahead.
    pub(crate) fn of_content(input: &mut impl BufRead) -> io::Result<Option<Format>> {
        Ok(match input.fill_buf()?.first() {
            Some(b'R' | b'V') => Some(Format::Rdb),
            Some(b'*') => Some(Format::Resp),
            Some(b'{') => Some(Format::Json),
            _ => None,
        })
    }
}

/// The reason why an input cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// An RDB file has a fault.
    #[error("{0}")]
    Rdb(RdbError),
    /// The system returns no bytes.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    /// A line or a command has a fault.
    #[error("{place} {number}: {fault}")]
    Record { place: &'static str, number: u64, fault: String },
}

/// Reads the pairs of an input.
pub(crate) enum Reader<R: Read> {
    Rdb(Box<RdbReader<R>>),
    Resp(resp::RespReader<R>),
    Csv(csv::CsvReader<R>),
    Json(json::JsonReader<BufReader<R>>),
}

impl<R: Read> Reader<R> {
    /// Reads the head of an input.
    pub(crate) fn new(format: Format, input: R) -> Result<Self, ReadError> {
        Ok(match format {
            Format::Rdb => Reader::Rdb(Box::new(RdbReader::new(input).map_err(ReadError::Rdb)?)),
            Format::Resp => Reader::Resp(resp::RespReader::new(input)),
            Format::Csv => Reader::Csv(csv::CsvReader::new(input)?),
            Format::Json => Reader::Json(json::JsonReader::new(BufReader::with_capacity(64 << 10, input))),
        })
    }

    /// Reads the next entry. Returns nothing after the last one.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry<'_>>, ReadError> {
        match self {
            Reader::Rdb(reader) => reader.next_entry().map_err(ReadError::Rdb),
            Reader::Resp(reader) => reader.next_entry(),
            Reader::Csv(reader) => reader.next_entry(),
            Reader::Json(reader) => reader.next_entry(),
        }
    }

    /// Returns the number of bytes of the entries that were read.
    pub(crate) fn offset(&self) -> u64 {
        match self {
            Reader::Rdb(reader) => reader.offset(),
            Reader::Resp(reader) => reader.offset(),
            Reader::Csv(reader) => reader.offset(),
            Reader::Json(reader) => reader.offset(),
        }
    }
}

/// Returns a pair as an entry.
fn entry<'a>(database: u64, key: &'a [u8], value: &'a [u8], expiry: Option<i64>) -> Entry<'a> {
    if key.is_empty() || key.len() > KEY_SIZE_MAX || value.len() > VALUE_SIZE_MAX {
        let shown = if key.len() > KEY_SIZE_MAX { &[] } else { key };
        let (key_size, value_size) = (key.len() as u64, value.len() as u64);
        return Entry::OutOfBounds { database, key: shown, key_size, value_size, expiry };
    }
    Entry::String { database, key, value, expiry }
}

/// Returns the number of the space that a text names, by its name or its number.
fn database_of(space: &str) -> Result<u64, String> {
    let of_name = SPACES.into_iter().find(|(_, name)| *name == space).map(|(number, _)| u64::from(number));
    of_name
        .or_else(|| space.parse().ok())
        .ok_or_else(|| format!("`{}` is no space: write hash, ordered or cache", shown(space.as_bytes())))
}

/// Returns the time in milliseconds since 1970.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as i64)
}

/// Decodes base64 text.
fn decode(text: &[u8]) -> Result<Vec<u8>, String> {
    use base64::Engine;
    let decoded = base64::engine::general_purpose::STANDARD.decode(text);
    decoded.map_err(|error| format!("its base64 is wrong: {error}"))
}

/// Formats bytes of an input for a message, at most some of them.
fn shown(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 40;
    let rest = if bytes.len() > SHOWN_MAX { "…" } else { "" };
    format!("{}{rest}", bytes[..bytes.len().min(SHOWN_MAX)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys and values.
    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    /// Returns the keys and values of an input up to its end or its first fault, and true if there is a fault.
    fn read(format: Format, bytes: &[u8]) -> (Pairs, bool) {
        let mut pairs = Pairs::new();
        let Ok(mut reader) = Reader::new(format, bytes) else { return (pairs, true) };
        loop {
            match reader.next_entry() {
                Ok(Some(Entry::String { key, value, .. })) => pairs.push((key.to_vec(), value.to_vec())),
                Ok(Some(_)) => panic!("another entry"),
                Ok(None) => return (pairs, false),
                Err(_) => return (pairs, true),
            }
        }
    }

    #[test]
    fn a_file_that_is_cut_off_has_no_other_pairs() {
        let pairs = [(&b"k1"[..], &b"v, with \"quotes\"\r\nand lines"[..]), (b"\xff2", b"\0"), (b"k3", b"")];
        for format in [Format::Rdb, Format::Resp, Format::Csv, Format::Json] {
            let mut writer = Writer::new(format, Vec::new()).unwrap();
            for (key, value) in pairs {
                writer.pair(&Pair { space: 0, key, value, expiry: None }).unwrap();
            }
            let bytes = writer.finish().unwrap();
            let whole: Vec<_> = pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).into();
            assert_eq!(read(format, &bytes), (whole.clone(), false), "{format:?}");
            for size in 0..bytes.len() {
                let (found, has_fault) = read(format, &bytes[..size]);
                assert!(whole.starts_with(&found), "{format:?}, {size} B: {found:?}");
                let is_between = size == 0 || bytes[size - 1] == b'\n' || bytes[size - 1] == b'}';
                assert!(has_fault || (is_between && format != Format::Rdb), "{format:?}, {size} B");
            }
        }
    }

    #[test]
    fn quotes_of_csv_are_closed() {
        for (text, count, has_fault) in [
            ("key,value\nk1,\"v1\nk2,v2\nk3,v3\n", 0, true),
            ("key,value\nk1,v1\nk2,\"long va", 1, true),
            ("key,value\nk1,v1\nk2,long va", 1, true),
            ("key,value\nk1,5\" disk\nk2,\"a\"\"b\"\nk3,\"\"\r\n", 3, false),
            ("\u{feff}key,value\nk1,v1\n", 1, false),
            ("key,value\rk1,v1\r", 1, false),
        ] {
            let (found, fault) = read(Format::Csv, text.as_bytes());
            assert_eq!((found.len(), fault), (count, has_fault), "{text:?}");
        }
    }
}
