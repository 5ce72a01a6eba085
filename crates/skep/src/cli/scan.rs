//! The commands of `skep cli` that read a range of keys, page by page, in the state at the start of the scan.
//!
//! A pair is one line: key, tab, value, both escaped (`escape.rs`), even for a pipe. So each line is one pair, and different
//! pairs are different lines.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use skep::{Client, KeyRange};

use super::Form;
use super::escape::escape;
use super::json::Object;
use crate::failure::{Failure, reason};

/// The commands and their arguments.
#[derive(clap::Subcommand, Debug)]
pub(super) enum ScanWords {
    /// Print the pairs from one key to another, a line each: key, tab, value.
    ///
    /// A backslash is printed as \\, a tab as \t, a newline as \n, a carriage return as \r, and other bytes that are not
    /// visible text as \xNN. So different keys give different lines, and `printf %b` of bash returns the bytes.
    #[command(after_help = "Example: skep cli scan user:1 user:9 --limit 10")]
    Scan {
        /// The lowest key, included; without it the scan begins at the lowest key of all.
        start: Option<OsString>,
        /// The greatest key, included; without it the scan ends at the greatest key of all.
        end: Option<OsString>,
        /// Begin at the greatest key that is not above START, or at the lowest key of all if there is none.
        #[arg(long, requires = "start")]
        floor: bool,
        #[command(flatten)]
        options: Options,
    },
    /// Print the pairs whose keys begin with a prefix, a line each: key, tab, value.
    ///
    /// A backslash is printed as \\, a tab as \t, a newline as \n, a carriage return as \r, and other bytes that are not
    /// visible text as \xNN. So different keys give different lines, and `printf %b` of bash returns the bytes.
    #[command(after_help = "Example: skep cli prefix user: --keys")]
    Prefix {
        /// The prefix.
        prefix: OsString,
        #[command(flatten)]
        options: Options,
    },
    /// Print the number of pairs between two keys, or with a prefix.
    #[command(after_help = "Example: skep cli count --prefix user:")]
    Count {
        /// The lowest key, included [default: the lowest of all].
        start: Option<OsString>,
        /// The greatest key, included [default: the greatest of all].
        end: Option<OsString>,
        /// Count the keys with this prefix.
        #[arg(long, conflicts_with = "start")]
        prefix: Option<OsString>,
    },
}

/// The part of a range that is printed.
#[derive(clap::Args, Debug)]
pub(super) struct Options {
    /// Most pairs to print.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print the greatest key first.
    #[arg(long)]
    reverse: bool,
    /// Print keys without their values.
    #[arg(long)]
    keys: bool,
}

/// Sends the command and prints the result.
pub(super) fn run(words: &ScanWords, client: &mut Client, form: Form) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let (range, options) = match words {
        ScanWords::Scan { start, end, floor, options } => {
            let range = between(start.as_deref(), end.as_deref());
            let from_floor = start.as_deref().filter(|_| *floor).map(|start| range.from_floor(start.as_bytes()));
            (from_floor.unwrap_or(range), options)
        }
        ScanWords::Prefix { prefix, options } => (KeyRange::prefix(prefix.as_bytes()), options),
        ScanWords::Count { start, end, prefix } => {
            let between = between(start.as_deref(), end.as_deref());
            let range = prefix.as_ref().map_or(between, |prefix| KeyRange::prefix(prefix.as_bytes()));
            let count = client.count(range).map_err(|error| Failure::Lost(reason(&error)))?;
            let line = match form {
                Form::Json => Object::default().with("count", count).line(),
                _ => format!("{count}\n"),
            };
            return Ok(out.write_all(line.as_bytes())?);
        }
    };
    let mut range = range.limit(options.limit.unwrap_or(u64::MAX));
    if options.reverse {
        range = range.reverse();
    }
    let pages = if options.keys { client.key_pages(range) } else { client.pages(range) };
    for page in pages {
        let mut lines = String::new();
        for (key, value) in page.map_err(|error| Failure::Lost(reason(&error)))? {
            lines += &match (form, options.keys) {
                (Form::Json, true) => Object::default().bytes("key", &key).line(),
                (Form::Json, false) => Object::default().bytes("key", &key).bytes("value", &value).line(),
                (_, true) => format!("{}\n", escape(&key)),
                (_, false) => format!("{}\t{}\n", escape(&key), escape(&value)),
            };
        }
        out.write_all(lines.as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

/// Returns the range between two keys, both included.
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
