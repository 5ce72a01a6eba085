//! Writes the pairs of an export.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use skep_wire::rdb::RdbWriter;

use super::csv::COLUMNS;
use super::{Format, SPACES};

/// A pair, and the number of its space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) space: u16,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Milliseconds since 1970.
    pub(crate) expiry: Option<i64>,
}

/// Writes pairs in a format.
pub(crate) enum Writer<W: Write> {
    Rdb(Box<RdbWriter<W>>),
    /// The last number is the space of the commands so far.
    Resp(W, u16),
    Csv(Box<csv::Writer<W>>),
    Json(W),
}

/// A line of JSON, as `json.rs` reads it.
#[derive(Serialize)]
struct Line<'a> {
    space: &'static str,
    #[serde(flatten)]
    pair: JsonPair<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<i64>,
}

/// A key and a value in JSON: each in one of two fields.
#[derive(Serialize)]
struct JsonPair<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

impl<W: Write> Writer<W> {
    /// Writes the head of a file.
    pub(crate) fn new(format: Format, output: W) -> io::Result<Self> {
        Ok(match format {
            Format::Rdb => Writer::Rdb(Box::new(RdbWriter::new(output)?)),
            Format::Resp => Writer::Resp(output, u16::MAX),
            Format::Csv => {
                let mut writer = csv::Writer::from_writer(output);
                writer.write_record(COLUMNS).map_err(io_error)?;
                Writer::Csv(Box::new(writer))
            }
            Format::Json => Writer::Json(output),
        })
    }

    /// Writes a pair.
    pub(crate) fn pair(&mut self, pair: &Pair<'_>) -> io::Result<()> {
        let Pair { space, key, value, expiry } = *pair;
        match self {
            Writer::Rdb(writer) => writer.pair(space.into(), key, value, expiry),
            Writer::Resp(output, selected) => {
                if *selected != space {
                    *selected = space;
                    command(output, &[b"SELECT", space.to_string().as_bytes()])?;
                }
                match expiry {
                    Some(expiry) => command(output, &[b"SET", key, value, b"PXAT", expiry.to_string().as_bytes()]),
                    None => command(output, &[b"SET", key, value]),
                }
            }
            Writer::Csv(writer) => {
                let expiry = expiry.map_or_else(String::new, |expiry| expiry.to_string());
                let is_text = str::from_utf8(key).is_ok() && str::from_utf8(value).is_ok();
                let (space, time) = (name(space).as_bytes(), expiry.as_bytes());
                let written = match is_text {
                    true => writer.write_record([space, key, value, time, b"text"]),
                    false => {
                        let (key, value) = (STANDARD.encode(key), STANDARD.encode(value));
                        writer.write_record([space, key.as_bytes(), value.as_bytes(), time, b"base64"])
                    }
                };
                written.map_err(io_error)
            }
            Writer::Json(output) => {
                let (key, key_base64) = text_or_base64(key);
                let (value, value_base64) = text_or_base64(value);
                let pair = JsonPair { key, key_base64, value, value_base64 };
                let line = Line { space: name(space), pair, expires_at_ms: expiry };
                serde_json::to_writer(&mut *output, &line).map_err(io::Error::from)?;
                output.write_all(b"\n")
            }
        }
    }

    /// Writes the end. Returns the output.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Writer::Rdb(writer) => writer.finish(),
            Writer::Csv(writer) => writer.into_inner().map_err(csv::IntoInnerError::into_error),
            Writer::Resp(output, _) | Writer::Json(output) => Ok(output),
        }
    }
}

/// Returns the error of the output in one of the CSV writer.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    }
}

/// Writes a command as an array of bulk strings.
fn command(output: &mut impl Write, arguments: &[&[u8]]) -> io::Result<()> {
    write!(output, "*{}\r\n", arguments.len())?;
    for argument in arguments {
        write!(output, "${}\r\n", argument.len())?;
        output.write_all(argument)?;
        output.write_all(b"\r\n")?;
    }
    Ok(())
}

fn name(space: u16) -> &'static str {
    SPACES.into_iter().find(|(number, _)| *number == space).map_or("hash", |(_, name)| name)
}

/// Returns text as it is, and other bytes as base64.
pub(crate) fn text_or_base64(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}
