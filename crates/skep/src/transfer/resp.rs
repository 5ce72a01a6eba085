//! RESP: commands, as `redis-cli --pipe` reads them: arrays of bulk strings, or lines.
//!
//! Commands that set strings are imported: `SELECT`, `SET` (`EX`, `PX`, `EXAT`, `PXAT`), `SETEX`, `PSETEX`, `MSET`, and
//! `RESTORE`. A file with others is refused at the first of them, since their effect depends on the values in the store.
//! The RESP port of a server executes them.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;

use skep_wire::rdb::{Entry, payload};
use skep_wire::resp::{Argument, Parsed, RequestParser};

use super::{ReadError, entry, now, shown};

/// Bytes that are read at once.
const READ_SIZE: usize = 64 << 10;

/// Reads commands.
#[derive(Debug)]
pub(crate) struct RespReader<R> {
    input: R,
    parser: RequestParser,
    /// Bytes from the input; those before `begin` are commands that were read.
    buffer: Vec<u8>,
    begin: usize,
    arguments: Vec<Argument>,
    /// The number of the last command, and the bytes up to the buffer.
    number: u64,
    before: u64,
    database: u64,
    /// The pairs of the last command that were not returned yet.
    pairs: VecDeque<Pair>,
    /// The value of a `RESTORE`.
    restored: Vec<u8>,
}

/// A pair of a command: where it is in the buffer. The value of a `RESTORE` is elsewhere.
#[derive(Debug)]
struct Pair {
    key: Range<usize>,
    value: Option<Range<usize>>,
    expiry: Option<i64>,
}

impl<R: Read> RespReader<R> {
    pub(super) fn new(input: R) -> Self {
        RespReader {
            input,
            parser: RequestParser::default(),
            buffer: Vec::new(),
            begin: 0,
            arguments: Vec::with_capacity(16),
            number: 0,
            before: 0,
            database: 0,
            pairs: VecDeque::new(),
            restored: Vec::new(),
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.before + self.begin as u64
    }

    pub(super) fn next_entry(&mut self) -> Result<Option<Entry<'_>>, ReadError> {
        while self.pairs.is_empty() {
            let Some(size) = self.read_command()? else { return Ok(None) };
            if !self.arguments.is_empty() {
                self.number += 1;
                self.understand().map_err(|fault| self.failed(fault))?;
            }
            self.begin += size;
        }
        let pair = self.pairs.pop_front().expect("there is one");
        let value = pair.value.map_or(&self.restored[..], |value| &self.buffer[value]);
        Ok(Some(entry(self.database, &self.buffer[pair.key], value, pair.expiry)))
    }

    /// Reads a command. Returns its size; nothing at the end of the input.
    fn read_command(&mut self) -> Result<Option<usize>, ReadError> {
        self.arguments.clear();
        loop {
            let parsed = self.parser.parse(&mut self.buffer[self.begin..], &mut self.arguments);
            match parsed.map_err(|error| self.failed_next(error.to_string()))? {
                Parsed::Complete(size) => return Ok(Some(size)),
                Parsed::NeedsCapacity(count) => self.arguments.reserve(count),
                Parsed::Part(_) => {}
                Parsed::Incomplete => {
                    if !self.fill()? {
                        return match self.begin == self.buffer.len() {
                            true => Ok(None),
                            false => Err(self.failed_next("the file ends within it: it is cut off".to_owned())),
                        };
                    }
                }
            }
        }
    }

    /// Reads more bytes. Returns false if there are none.
    fn fill(&mut self) -> Result<bool, ReadError> {
        self.before += self.begin as u64;
        self.buffer.drain(..self.begin);
        self.begin = 0;
        let end = self.buffer.len();
        self.buffer.resize(end + READ_SIZE, 0);
        // One read: the commands of a pipe do not wait for those after them.
        let read = loop {
            match self.input.read(&mut self.buffer[end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer.truncate(end + read.as_ref().map_or(0, |size| *size));
        read.map(|size| size > 0).map_err(ReadError::Read)
    }

    /// Finds the pairs of the command.
    fn understand(&mut self) -> Result<(), String> {
        let begin = self.begin;
        let ranges: Vec<_> = self
            .arguments
            .iter()
            .map(|argument| {
                let range = argument.range();
                begin + range.start..begin + range.end
            })
            .collect();
        let at = |index: usize| ranges.get(index).map_or(&b""[..], |range| &self.buffer[range.clone()]);
        let name = at(0).to_ascii_uppercase();
        let options: Vec<_> = (3..ranges.len()).map(at).collect();
        let pair = |key: usize, value: usize, expiry: Option<i64>| Pair {
            key: ranges[key].clone(),
            value: Some(ranges[value].clone()),
            expiry,
        };
        match (&name[..], ranges.len()) {
            (b"SELECT", 2) => self.database = number(at(1))?.cast_unsigned(),
            (b"SET", 3..) => self.pairs.push_back(pair(1, 2, expiry(&options)?)),
            (b"SETEX", 4) => self.pairs.push_back(pair(1, 3, Some(after(at(2), 1000)?))),
            (b"PSETEX", 4) => self.pairs.push_back(pair(1, 3, Some(after(at(2), 1)?))),
            (b"MSET", count @ 3..) if count % 2 == 1 => {
                self.pairs.extend((1..count).step_by(2).map(|key| pair(key, key + 1, None)));
            }
            (b"RESTORE", 4..) => {
                let restored = restored(at(3), &mut self.restored);
                let expiry = restore_expiry(at(2), &options[1..])?;
                restored?;
                self.pairs.push_back(Pair { key: ranges[1].clone(), value: None, expiry });
            }
            (b"SELECT" | b"SET" | b"SETEX" | b"PSETEX" | b"MSET" | b"RESTORE", _) => {
                return Err(format!("{} has a wrong number of arguments", shown(&name)));
            }
            _ => {
                return Err(format!(
                    "{} is not imported, only SELECT, SET, SETEX, PSETEX, MSET and RESTORE are: `redis-cli --pipe` sends \
                     other commands to the RESP port",
                    shown(&name)
                ));
            }
        }
        Ok(())
    }

    fn failed(&self, fault: String) -> ReadError {
        ReadError::Record { place: "command", number: self.number, fault }
    }

    /// Returns the error about the command after the last one.
    fn failed_next(&self, fault: String) -> ReadError {
        ReadError::Record { place: "command", number: self.number + 1, fault }
    }
}

/// Reads the value of a `RESTORE`.
fn restored(bytes: &[u8], value: &mut Vec<u8>) -> Result<(), String> {
    value.clear();
    payload::decode(bytes, value).map_err(|error| match error {
        payload::PayloadError::Checksum => "the checksum of its value is wrong".to_owned(),
        payload::PayloadError::Format => "its value is not a string, and Skep has strings only".to_owned(),
        payload::PayloadError::TooLong => "its value is longer than 1 MiB".to_owned(),
    })
}

/// Reads the expiry of a `RESTORE`, which is relative without `ABSTTL`.
fn restore_expiry(time: &[u8], options: &[&[u8]]) -> Result<Option<i64>, String> {
    let mut is_absolute = false;
    for option in options {
        match option.to_ascii_uppercase().as_slice() {
            b"ABSTTL" => is_absolute = true,
            b"REPLACE" => {}
            _ => return Err(format!("its option {} is not imported", shown(option))),
        }
    }
    match number(time)? {
        0 => Ok(None),
        time if is_absolute => Ok(Some(time)),
        _ => after(time, 1).map(Some),
    }
}

/// Reads the expiry in the options of a `SET`.
fn expiry(options: &[&[u8]]) -> Result<Option<i64>, String> {
    let [name, time] = match options {
        [] => return Ok(None),
        [name, time] => [name, time],
        [name, ..] => return Err(format!("its option {} is not imported", shown(name))),
    };
    match name.to_ascii_uppercase().as_slice() {
        b"EX" => after(time, 1000).map(Some),
        b"PX" => after(time, 1).map(Some),
        b"EXAT" => Ok(Some(number(time)?.saturating_mul(1000))),
        b"PXAT" => number(time).map(Some),
        _ => Err(format!("its option {} is not imported", shown(name))),
    }
}

/// Returns the time after a number of units from now on.
fn after(time: &[u8], unit: i64) -> Result<i64, String> {
    Ok(now().saturating_add(number(time)?.saturating_mul(unit)))
}

fn number(text: &[u8]) -> Result<i64, String> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok()).filter(|number| *number >= 0);
    number.ok_or_else(|| format!("`{}` is not a whole number from 0 on", shown(text)))
}
