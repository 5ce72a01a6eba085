//! What an import or an export has found, and the report of it.

use std::collections::BTreeMap;
use std::io::Write;

use skep_wire::rdb::{Entry, Kind};

use super::{Pair, SPACES};
use crate::failure::Failure;

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
}

/// The number of a database that has no space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoSpace(pub(crate) u64);

impl Contents {
    /// Counts an entry. Returns it if it is a string that has not expired.
    pub(crate) fn take<'a>(&mut self, entry: Entry<'a>, now: i64) -> Result<Option<Pair<'a>>, NoSpace> {
        match entry {
            Entry::String { expiry: Some(expiry), .. } | Entry::OutOfBounds { expiry: Some(expiry), .. }
                if expiry <= now =>
            {
                self.expired += 1;
            }
            Entry::String { database, key, value, expiry } => {
                let index = usize::try_from(database).ok().filter(|index| *index < SPACES.len());
                let index = index.ok_or(NoSpace(database))?;
                let (strings, with_expiry) = &mut self.strings[index];
                *strings += 1;
                *with_expiry += u64::from(expiry.is_some());
                return Ok(Some(Pair { space: SPACES[index].0, key, value, expiry }));
            }
            Entry::OutOfBounds { key, key_size, value_size, .. } => {
                if self.out_of_bounds == 0 {
                    let shown = if key.is_empty() { String::new() } else { format!(" `{}`", key.escape_ascii()) };
                    self.first_out_of_bounds = format!("key{shown} of {key_size} B with a value of {value_size} B");
                }
                self.out_of_bounds += 1;
            }
            Entry::Other(kind) => *self.others.entry(kind).or_default() += 1,
        }
        Ok(None)
    }

    /// Returns the number of strings.
    pub(crate) fn string_count(&self) -> u64 {
        self.strings.iter().map(|(count, _)| count).sum()
    }

    /// Prints what was imported into the spaces, or exported from them, and what was left out. Fails if that is a string.
    pub(crate) fn report(&self, done: &str, preposition: &str, mut out: impl Write) -> Result<(), Failure> {
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
        out.flush()?;
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
        if faults.is_empty() { Ok(()) } else { Err(Failure::Runtime(faults.join("; "))) }
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
