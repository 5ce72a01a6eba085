//! The commands of `skep cli` that go through a range of keys: all of it, page by page, as of one moment.
//!
//! A pair is a line: key, tab, value. What is no text of one line is escaped, for a pipe too, or lines could not be told
//! apart.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use skep::KeyRange;

use super::{Space, connect};
use crate::failure::{Failure, reason};

/// The commands, as they are typed.
#[derive(clap::Subcommand, Debug)]
pub(super) enum ScanWords {
    /// Print the pairs from one key to another, a line each: key, tab, value; escaped if they are not text.
    Scan {
        /// The lowest key, included; left out, the scan begins with the lowest of all.
        start: Option<OsString>,
        /// The greatest key, included; left out, the scan ends with the greatest of all.
        end: Option<OsString>,
        #[command(flatten)]
        options: Options,
    },
    /// Print the pairs whose keys begin with a prefix, a line each: key, tab, value; escaped if they are not text.
    Prefix {
        /// The prefix.
        prefix: OsString,
        #[command(flatten)]
        options: Options,
    },
    /// Print how many pairs lie between two keys, or have a prefix.
    Count {
        /// The lowest key, included; left out, the lowest of all.
        start: Option<OsString>,
        /// The greatest key, included; left out, the greatest of all.
        end: Option<OsString>,
        /// Count the keys that begin with this prefix.
        #[arg(long, conflicts_with = "start")]
        prefix: Option<OsString>,
    },
}

/// What is printed of a range.
#[derive(clap::Args, Debug)]
pub(super) struct Options {
    /// Most pairs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// The greatest key first.
    #[arg(long)]
    reverse: bool,
    /// Keys without their values.
    #[arg(long)]
    keys: bool,
}

/// Sends the command and prints the answer.
pub(super) fn run(words: &ScanWords, address: &str, space: Space) -> Result<(), Failure> {
    let mut client = connect(address).map_err(Failure::Runtime)?;
    client.select(space.number());
    let mut out = io::stdout().lock();
    let (range, options) = match words {
        ScanWords::Scan { start, end, options } => (between(start.as_deref(), end.as_deref()), options),
        ScanWords::Prefix { prefix, options } => (KeyRange::prefix(prefix.as_bytes()), options),
        ScanWords::Count { start, end, prefix } => {
            let between = between(start.as_deref(), end.as_deref());
            let range = prefix.as_ref().map_or(between, |prefix| KeyRange::prefix(prefix.as_bytes()));
            let count = client.count(range).map_err(|error| Failure::Runtime(reason(&error)))?;
            writeln!(out, "{count}")?;
            return Ok(());
        }
    };
    let mut range = range.limit(options.limit.unwrap_or(u64::MAX));
    if options.reverse {
        range = range.reverse();
    }
    let pages = if options.keys { client.key_pages(range) } else { client.pages(range) };
    for page in pages {
        let mut lines = String::new();
        for (key, value) in page.map_err(|error| Failure::Runtime(reason(&error)))? {
            lines += &shown(&key);
            if !options.keys {
                lines.push('\t');
                lines += &shown(&value);
            }
            lines.push('\n');
        }
        out.write_all(lines.as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

/// From one key to another, both included.
fn between<'k>(start: Option<&'k OsStr>, end: Option<&'k OsStr>) -> KeyRange<'k> {
    let mut range = KeyRange::all();
    if let Some(start) = start {
        range = range.at_or_above(start.as_bytes());
    }
    if let Some(end) = end {
        range = range.at_or_below(end.as_bytes());
    }
    range
}

/// Bytes as a part of a line.
fn shown(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn a_line_stays_one() {
        for (bytes, text) in [
            (&b"plain text"[..], "plain text"),
            ("zwölf".as_bytes(), "zwölf"),
            (b"a\tb\n", "a\\tb\\n"),
            (b"\xff", "\\xff"),
        ] {
            assert_eq!(shown(bytes), text);
        }
    }
}
