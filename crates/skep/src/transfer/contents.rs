//! What an import or an export has found, and the report of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde_json::json;
use skep_wire::rdb::{Entry, Kind};

use super::{Format, Pair, SPACES, text_or_base64};
use crate::failure::{Failure, reason};

/// The entries of a source.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Number of strings for each space, and of those with an expiry.
    pub(crate) strings: [(u64, u64); SPACES.len()],
    expired: u64,
    others: BTreeMap<Kind, u64>,
    /// Number of strings that Skep cannot have, and a description of the first one.
    out_of_bounds: u64,
    first_out_of_bounds: String,
    /// Why the rest of the source was left out.
    pub(crate) rest_left_out: Option<String>,
    /// True if the source has fewer entries than were to be skipped.
    pub(crate) is_short: bool,
    /// Lines for the end of the report.
    pub(crate) notes: Vec<String>,
    /// The file with a line for each of these strings, and why it cannot be written.
    list: Option<File>,
    list_failure: Option<io::Error>,
    /// Spaces of databases that have not the number of a space, or that go into another one.
    spaces: Vec<(u64, u16)>,
    /// True if the source is a series of changes, not of keys that differ: an earlier value of a key is removed if the
    /// later one has expired or is left out.
    has_changes: bool,
}

/// A change of a store that an entry asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    Put(Pair<'a>),
    /// The pair has expired, or Skep cannot have it: an earlier value of its key is removed.
    Delete {
        space: u16,
        key: &'a [u8],
    },
}

/// The number of a database that has no space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoSpace(pub(crate) u64);

impl Contents {
    /// Begins without entries. `spaces` are those of databases that are not the spaces of their numbers.
    pub(crate) fn new(spaces: &[(u64, u16)]) -> Contents {
        Contents { spaces: spaces.to_vec(), ..Contents::default() }
    }

    /// Sets the format. In a text format, a pair that has expired or is too long removes its key.
    pub(crate) fn set_format(&mut self, format: Format) {
        self.has_changes = format != Format::Rdb;
    }

    /// Writes a line for each string that is left out into a file that does not exist.
    pub(crate) fn list_left_out(&mut self, path: &Path) -> Result<(), Failure> {
        let file = File::options().write(true).create_new(true).open(path);
        let file =
            file.map_err(|error| Failure::Usage(format!("cannot write {}: {}", path.display(), reason(&error))))?;
        self.list = Some(file);
        Ok(())
    }

    /// Adds a line to the list, at once: a signal may end the program, and an import that continues does not list it.
    fn list(&mut self, database: u64, key: &[u8], key_size: u64, value_size: u64) {
        let Some(list) = &mut self.list else { return };
        let (text, base64) = text_or_base64(key);
        let name = if base64.is_some() { "key_base64" } else { "key" };
        let key = base64.unwrap_or_else(|| text.unwrap_or_default().to_owned());
        let line = json!({ "database": database, name: key, "key_size": key_size, "value_size": value_size });
        let written = list.write_all(format!("{line}\n").as_bytes());
        self.list_failure = self.list_failure.take().or(written.err());
    }

    /// Returns the space of a database.
    pub(crate) fn space(&self, database: u64) -> Option<u16> {
        self.index(database).map(|index| SPACES[index].0)
    }

    /// Returns the index of the space of a database in [`SPACES`].
    fn index(&self, database: u64) -> Option<usize> {
        let chosen = self.spaces.iter().find(|(number, _)| *number == database);
        let space = chosen.map_or(database, |(_, space)| u64::from(*space));
        SPACES.iter().position(|(number, _)| u64::from(*number) == space)
    }

    /// Counts an entry. Returns the change that it asks for.
    pub(crate) fn take<'a>(&mut self, entry: Entry<'a>, now: i64) -> Result<Option<Change<'a>>, NoSpace> {
        match entry {
            Entry::String { database, key, expiry: Some(expiry), .. }
            | Entry::OutOfBounds { database, key, expiry: Some(expiry), .. }
                if expiry <= now =>
            {
                self.expired += 1;
                return Ok(self.removal(database, key));
            }
            Entry::String { database, key, value, expiry } => {
                let index = self.index(database).ok_or(NoSpace(database))?;
                let (strings, with_expiry) = &mut self.strings[index];
                *strings += 1;
                *with_expiry += u64::from(expiry.is_some());
                return Ok(Some(Change::Put(Pair { space: SPACES[index].0, key, value, expiry })));
            }
            Entry::OutOfBounds { database, key, key_size, value_size, .. } => {
                self.list(database, key, key_size, value_size);
                if self.out_of_bounds == 0 {
                    let shown = if key.is_empty() { String::new() } else { format!(" `{}`", key.escape_ascii()) };
                    self.first_out_of_bounds = format!("key{shown} of {key_size} B with a value of {value_size} B");
                }
                self.out_of_bounds += 1;
                return Ok(self.removal(database, key));
            }
            Entry::Other(kind) => *self.others.entry(kind).or_default() += 1,
        }
        Ok(None)
    }

    /// Returns the change that removes an earlier value of a key, if the source may have one.
    fn removal<'a>(&self, database: u64, key: &'a [u8]) -> Option<Change<'a>> {
        let index = self.index(database).filter(|_| self.has_changes && !key.is_empty())?;
        Some(Change::Delete { space: SPACES[index].0, key })
    }

    /// Returns the number of strings.
    pub(crate) fn string_count(&self) -> u64 {
        self.strings.iter().map(|(count, _)| count).sum()
    }

    /// Prints how many pairs were imported into the spaces, or exported from them, and how many were left out. Fails
    /// if a string was left out, even if the reader of the report has gone.
    pub(crate) fn report(mut self, done: &str, preposition: &str, out: impl Write) -> Result<(), Failure> {
        let mut faults = self.faults(done);
        let printed = self.print(done, preposition, out).map_err(Failure::from);
        match printed {
            Err(Failure::Runtime(error)) => {
                let sum = keys(self.string_count());
                faults.insert(0, format!("{done} {sum}, but the report of it cannot be written: {error}"));
            }
            outcome if faults.is_empty() => return outcome,
            _ => {}
        }
        Err(Failure::Runtime(faults.join("; ")))
    }

    /// Returns the reasons why not all was imported or exported.
    fn faults(&mut self, done: &str) -> Vec<String> {
        let mut faults: Vec<String> = self.rest_left_out.iter().cloned().collect();
        if self.out_of_bounds > 0 {
            let count = self.out_of_bounds;
            faults.push(format!(
                "{} {} not {done}, because Skep has keys of 1 to 460 bytes and values up to 1 MiB; the first: {}",
                keys(count),
                if count == 1 { "with a string was" } else { "with strings were" },
                self.first_out_of_bounds
            ));
        }
        if let Some(error) = self.list_failure.take() {
            faults.push(format!("the list of strings that were left out cannot be written: {}", reason(&error)));
        }
        faults
    }

    fn print(&self, done: &str, preposition: &str, mut out: impl Write) -> io::Result<()> {
        let is_empty = self.string_count() == 0;
        for ((_, name), (count, with_expiry)) in SPACES.into_iter().zip(self.strings) {
            if count > 0 || (is_empty && name == "hash") {
                let with_expiry =
                    if with_expiry == 0 { String::new() } else { format!(", {with_expiry} with an expiry") };
                writeln!(out, "{done} {} {preposition} the {name} space{with_expiry}", keys(count))?;
            }
        }
        if self.expired > 0 {
            writeln!(out, "left out {} that had expired", keys(self.expired))?;
        }
        for (kind, count) in &self.others {
            writeln!(out, "left out {}", counted(*kind, *count))?;
        }
        for note in &self.notes {
            writeln!(out, "{note}")?;
        }
        out.flush()
    }
}

/// Formats a number of keys.
pub(crate) fn keys(count: u64) -> String {
    format!("{count} key{}", if count == 1 { "" } else { "s" })
}

fn counted(kind: Kind, count: u64) -> String {
    let (one, more) = match kind {
        Kind::List => ("list", "lists"),
        Kind::Set => ("set", "sets"),
        Kind::SortedSet => ("sorted set", "sorted sets"),
        Kind::Hash => ("hash", "hashes"),
        Kind::Stream => ("stream", "streams"),
        Kind::Module => ("value of a module", "values of modules"),
        Kind::Functions => ("library of functions", "libraries of functions"),
    };
    format!("{count} {}", if count == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_list_is_in_the_file_before_the_report() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        let mut contents = Contents::new(&[]);
        contents.list_left_out(&path).unwrap();
        let entry = Entry::OutOfBounds { database: 0, key: b"k", key_size: 1, value_size: 2 << 20, expiry: None };
        assert!(matches!(contents.take(entry, 0), Ok(None)));
        let line = "{\"database\":0,\"key\":\"k\",\"key_size\":1,\"value_size\":2097152}\n";
        assert_eq!(std::fs::read_to_string(path).unwrap(), line);
    }
}
