//! CSV: a line with the names of the columns, and a record for each pair.
//!
//! ```text
//! space,key,value,expires_at_ms,encoding
//! hash,greeting,good morning,4000000000123,text
//! ordered,/wA=,YQ==,,base64
//! ```
//!
//! The columns `key` and `value` are needed; they may be in any order. `encoding` says how both are written. The last
//! line needs an end: so a file that is cut off within a record is noticed. A field with a comma, a quote or an end
//! of line is in quotes.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use csv::{ByteRecord, ErrorKind};
use skep_wire::rdb::Entry;

use super::{LINE_SIZE_MAX, ReadError, database_of, decode, entry, shown};

/// The columns, in the order in which they are written.
pub(super) const COLUMNS: [&str; 5] = ["space", "key", "value", "expires_at_ms", "encoding"];

/// Reads records.
pub(crate) struct CsvReader<R: Read> {
    reader: csv::Reader<Bounded<R>>,
    state: Rc<Cell<State>>,
    /// The position of each of [`COLUMNS`] in a record.
    columns: [Option<usize>; COLUMNS.len()],
    record: ByteRecord,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The state of an input, which its reader cannot ask the CSV reader for.
#[derive(Clone, Copy)]
struct State {
    /// Bytes that may be read for the record.
    left: u64,
    /// Where the last byte that was read is.
    place: Place,
    is_at_end: bool,
}

/// A place in a record, as the CSV reader sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    RecordBegin,
    FieldBegin,
    Unquoted,
    Quoted,
    /// After a quote within quotes: the end of them, or the first of two.
    Quote,
}

impl Place {
    fn after(self, byte: u8) -> Place {
        match (self, byte) {
            (Place::Quoted, b'"') => Place::Quote,
            (Place::Quoted, _) | (Place::RecordBegin | Place::FieldBegin | Place::Quote, b'"') => Place::Quoted,
            (_, b',') => Place::FieldBegin,
            (_, b'\n' | b'\r') => Place::RecordBegin,
            _ => Place::Unquoted,
        }
    }
}

/// An input of which only some bytes may be read for each record, so that a quote that is not closed costs bounded
/// memory. It knows where it ends.
struct Bounded<R> {
    input: R,
    state: Rc<Cell<State>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let State { left, place, .. } = self.state.get();
        if left == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let size = self.input.read(buffer)?;
        let place = buffer[..size].iter().fold(place, |place, byte| place.after(*byte));
        self.state.set(State { left: left.saturating_sub(size as u64), place, is_at_end: size == 0 });
        Ok(size)
    }
}

impl<R: Read> CsvReader<R> {
    /// Reads the names of the columns.
    pub(super) fn new(input: R) -> Result<Self, ReadError> {
        let begin = State { left: LINE_SIZE_MAX, place: Place::RecordBegin, is_at_end: false };
        let state = Rc::new(Cell::new(begin));
        let input = Bounded { input, state: state.clone() };
        let reader = csv::ReaderBuilder::new().has_headers(false).buffer_capacity(64 << 10).from_reader(input);
        let (columns, record) = ([None; COLUMNS.len()], ByteRecord::new());
        let mut reader = CsvReader { reader, state, columns, record, key: Vec::new(), value: Vec::new() };
        if reader.read()? {
            reader.name_columns().map_err(|fault| reader.failed(fault))?;
        }
        Ok(reader)
    }

    pub(super) fn offset(&self) -> u64 {
        self.reader.position().byte()
    }

    pub(super) fn next_entry(&mut self) -> Result<Option<Entry<'_>>, ReadError> {
        if !self.read()? {
            return Ok(None);
        }
        let (database, expiry) = self.parse().map_err(|fault| self.failed(fault))?;
        Ok(Some(entry(database, &self.key, &self.value, expiry)))
    }

    /// Reads a record. Returns false after the last one.
    fn read(&mut self) -> Result<bool, ReadError> {
        self.state.set(State { left: LINE_SIZE_MAX, ..self.state.get() });
        let line = self.reader.position().line();
        let failed = |fault: String| ReadError::Record { place: "line", number: line, fault };
        let is_read = self.reader.read_byte_record(&mut self.record).map_err(|error| match error.into_kind() {
            ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                failed("the record from here on is longer than 8 MiB: is a quote (\") not closed?".to_owned())
            }
            ErrorKind::Io(error) => ReadError::Read(error),
            ErrorKind::UnequalLengths { expected_len, len, .. } => failed(format!(
                "it has {len} fields, and the first line names {expected_len} columns: is the file cut off, or a comma not \
                 in quotes?"
            )),
            kind => failed(format!("{kind:?}")),
        })?;
        let State { place, is_at_end, .. } = self.state.get();
        match place {
            Place::Quoted if is_at_end => Err(failed("the file ends within quotes (\"): is it cut off?".to_owned())),
            Place::RecordBegin => Ok(is_read),
            _ if is_at_end => {
                Err(failed("the file ends within the line: if it is not cut off, end the line".to_owned()))
            }
            _ => Ok(is_read),
        }
    }

    fn name_columns(&mut self) -> Result<(), String> {
        for (index, name) in self.record.iter().enumerate() {
            let column = COLUMNS.iter().position(|column| column.as_bytes() == name.trim_ascii());
            let column = column.ok_or_else(|| {
                if name.contains(&b';') || name.contains(&b'\t') {
                    return "the first line has no commas, and a comma separates the columns".to_owned();
                }
                format!("`{}` is no column: the first line names some of {}", shown(name), COLUMNS.join(","))
            })?;
            if self.columns[column].replace(index).is_some() {
                return Err(format!("the column {} is there twice", COLUMNS[column]));
            }
        }
        match self.columns {
            [_, Some(_), Some(_), ..] => Ok(()),
            _ => Err("the columns key and value are needed: name them in the first line".to_owned()),
        }
    }

    /// Reads the pair of the record. Returns its database and its expiry.
    fn parse(&mut self) -> Result<(u64, Option<i64>), String> {
        let field = |column: Option<usize>| column.and_then(|column| self.record.get(column)).unwrap_or_default();
        let [space, key, value, expiry, encoding] = self.columns.map(field);
        (self.key, self.value) = match encoding {
            b"" | b"text" => (key.to_vec(), value.to_vec()),
            b"base64" => (decode(key)?, decode(value)?),
            other => return Err(format!("`{}` is no encoding: write text or base64", shown(other))),
        };
        let database = if space.is_empty() { 0 } else { database_of(&String::from_utf8_lossy(space))? };
        let expiry =
            match expiry {
                b"" => None,
                text => Some(str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| {
                    format!("`{}` is no expiry: write milliseconds since 1970, or nothing", shown(text))
                })?),
            };
        Ok((database, expiry))
    }

    fn failed(&self, fault: String) -> ReadError {
        let number = self.record.position().map_or(1, csv::Position::line);
        ReadError::Record { place: "line", number, fault }
    }
}
