//! A running server of RESP as the source or the target of pairs, such as `redis://HOST:PORT`.
//!
//! The keys of a database are read in pages by `SCAN`. For each page:
//!
//! 1. `TYPE` tells which keys have strings, and `STRLEN` which of these are too long. The others are never read.
//! 2. `PEXPIRETIME`, `DUMP` and `PEXPIRETIME` again read the pairs, in groups of a bounded number of bytes. If the expiry has
//!    changed in between, the pair is read again. A server before Redis 7 has no `PEXPIRETIME`; then `PTTL` and the clock of
//!    this machine tell the expiry.
//!
//! A page has the values of some moment while it is read. A key that exists all the time is returned once or more;
//! one that is written or removed meanwhile may be missing. The cursor after a page continues there later, in the
//! same run of the server.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Instant;

use redis::{Cmd, Value};
use skep::{HASH_SPACE, ORDERED_SPACE};
use skep_core::operation::{KEY_SIZE_MAX, VALUE_SIZE_MAX};
use skep_wire::rdb::{Entry, Kind, payload};

use super::link::{Link, says};
use super::{Pair, entry, keys as keys_text, now, shown};
use crate::failure::Failure;
use crate::password::Login;

/// Keys of a page, about.
const PAGE_KEYS: usize = 512;
/// Bytes of values that are read or written together, unless one value has more.
const GROUP_BYTES: usize = 4 << 20;
/// Pairs that are written together.
const GROUP_PAIRS: usize = 4096;
/// Attempts to read a pair whose expiry changes.
const READ_ATTEMPTS: usize = 10;

/// Where a scan continues: the number of a database and a cursor in it, which is valid in one run of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) database: u64,
    pub(crate) cursor: u64,
    /// The last 16 digits of the run's id, if the server has one.
    pub(crate) run: Option<u64>,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.database, self.cursor)?;
        match self.run.filter(|_| self.cursor > 0) {
            Some(run) => write!(formatter, ":{run:016x}"),
            None => Ok(()),
        }
    }
}

impl Position {
    /// The first key.
    pub(crate) const BEGIN: Position = Position { database: 0, cursor: 0, run: None };

    /// Reads what `Display` has written.
    pub(crate) fn parse(text: &str) -> Option<Position> {
        let (database, rest) = text.split_once(':')?;
        let (cursor, run) = match rest.split_once(':') {
            Some((cursor, run)) => (cursor, Some(u64::from_str_radix(run, 16).ok()?)),
            None => (rest, None),
        };
        Some(Position { database: database.parse().ok()?, cursor: cursor.parse().ok()?, run })
    }
}

/// A step of a scan.
pub(crate) enum Step<'a> {
    Entry(Entry<'a>),
    /// The end of a page, and where the next one begins.
    PageEnd(Position),
}

/// A connection to a server.
pub(crate) struct Remote {
    link: Link,
    /// The program and its version, as `INFO` names them.
    program: String,
    information: String,
    /// The last 16 digits of the id of its run.
    run: Option<u64>,
    has_expiry_time: bool,
    /// Pairs that were not written yet: their commands, and their bytes.
    commands: Vec<Cmd>,
    command_bytes: usize,
    selected: Option<u16>,
    /// Databases that the user may not select.
    refused: Vec<u64>,
    /// Keys of the cache space of Skep, which lists none.
    cache_keys: u64,
    /// Keys that the server counts, and those that it has shown.
    counted_keys: u64,
    shown_keys: u64,
    /// Keys that were changed too often to be read.
    changed_keys: u64,
}

impl Remote {
    /// Connects to a server. Refuses a node of a cluster.
    pub(crate) fn connect(login: &Login) -> Result<Remote, Failure> {
        let mut link = Link::connect(login)?;
        // A user with few rights may not ask for it.
        let information = link.query::<String>(&redis::cmd("INFO")).unwrap_or_default();
        let field = |name: &str| {
            let mut values = information.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            values.next().map(str::trim)
        };
        if field("cluster_enabled") == Some("1") {
            return Err(Failure::Runtime(format!(
                "{} is a node of a cluster, and has a part of the keys: save an RDB file of each node, and import these",
                link.name
            )));
        }
        let programs = [("Skep", "skep_version"), ("Valkey", "valkey_version"), ("Redis", "redis_version")];
        let program = programs.iter().find_map(|(name, version)| Some(format!("{name} {}", field(version)?)));
        let run = field("run_id").and_then(|id| u64::from_str_radix(id.get(id.len().checked_sub(16)?..)?, 16).ok());
        Ok(Remote {
            program: program.unwrap_or_else(|| "a server".to_owned()),
            run,
            information,
            link,
            has_expiry_time: true,
            commands: Vec::new(),
            command_bytes: 0,
            selected: None,
            refused: Vec::new(),
            cache_keys: 0,
            counted_keys: 0,
            shown_keys: 0,
            changed_keys: 0,
        })
    }

    /// Returns its address, without the password.
    pub(crate) fn name(&self) -> &str {
        &self.link.name
    }

    /// Returns true if it is a server of Skep.
    pub(crate) fn is_skep(&self) -> bool {
        self.program.starts_with("Skep")
    }

    /// Returns true if both are the same run of a server.
    pub(crate) fn is_same(&self, other: &Remote) -> bool {
        self.run.is_some() && self.run == other.run
    }

    /// Returns lines for a report: which server it is, and which keys were not read.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let hidden = self.counted_keys.saturating_sub(self.shown_keys);
        if hidden > 16 && hidden > self.counted_keys / 100 {
            notes.push(format!(
                "the server counts {} and shows {}: the user may not read the others, or they have expired",
                keys_text(self.counted_keys),
                self.shown_keys
            ));
        }
        for database in &self.refused {
            notes.push(format!("left out database {database}: the user may not read it"));
        }
        if self.cache_keys > 0 {
            notes.push(format!("left out the cache space: {}", keys_text(self.cache_keys)));
        }
        if self.changed_keys > 0 {
            notes.push(format!("left out {} that changed while they were read", keys_text(self.changed_keys)));
        }
        notes.push(format!("read from {} at {}", self.program, self.link.name));
        notes
    }

    /// Returns the databases with keys, and the number of these: of all, or one. Those that the user may not select are
    /// left out, unless these are all. So is the cache space of Skep, which lists no keys.
    pub(crate) fn databases(&mut self, wanted: Option<u64>) -> Result<Vec<(u64, u64)>, Failure> {
        let of_line = |line: &str| line.strip_prefix("db")?.split_once(':')?.0.parse().ok();
        let listed = self.information.lines().filter_map(of_line);
        // A server of Skep counts the keys of the last moment a little later.
        let mut numbers: BTreeSet<u64> = listed.chain([HASH_SPACE, ORDERED_SPACE].map(u64::from)).collect();
        numbers.retain(|number| wanted.is_none_or(|wanted| wanted == *number));
        let (mut databases, mut selected_count, mut refusal) = (Vec::new(), 0, None);
        for number in numbers {
            let commands =
                [redis::cmd("SELECT").arg(number).take(), redis::cmd("DBSIZE"), redis::cmd("SCAN").arg(0).take()];
            let [selected, size, scan] = self.link.ask(commands)?.try_into().map_err(|_| self.link.odd())?;
            if says(&selected, "out of range") {
                continue;
            }
            if has_code(&selected, "NOPERM") {
                self.refused.push(number);
                refusal = Some(selected);
                continue;
            }
            selected_count += 1;
            if says(&scan, "not for the cache space") {
                self.cache_keys = self.link.value(size)?;
                continue;
            }
            self.link.value::<Value>(selected)?;
            databases.push((number, self.link.value(size)?));
        }
        if let Some(refusal) = refusal.filter(|_| selected_count == 0) {
            self.link.value::<Value>(refusal)?;
        }
        databases.retain(|(_, keys)| *keys > 0);
        Ok(databases)
    }

    /// Checks that a scan can continue at a position: its cursor is of this run, and the server has the database.
    pub(crate) fn check(&self, start: Position, databases: &[(u64, u64)]) -> Result<(), Failure> {
        let Position { database, cursor, run } = start;
        if cursor > 0 && run.is_none() && self.run.is_some() {
            return Err(Failure::Usage(format!(
                "the position {start} has no run: write all of it, such as {start}:RUN; --resume {database}:0 reads database \
                 {database} again, from its beginning"
            )));
        }
        if cursor > 0 && run != self.run {
            return Err(Failure::Usage(format!(
                "{} has started again since {start} was named, and its cursors are others: --resume {database}:0 reads database \
                 {database} again, from its beginning",
                self.link.name
            )));
        }
        let last = databases.last().map_or(0, |(database, _)| *database);
        // An import that has ended names the database after the last one.
        if database > last + 1 || (cursor > 0 && !databases.iter().any(|(number, _)| *number == database)) {
            return Err(Failure::Usage(format!("{} has no keys in database {database} of --resume", self.link.name)));
        }
        Ok(())
    }

    /// Returns true if a database has a string.
    pub(crate) fn has_string(&mut self, database: u64) -> Result<bool, Failure> {
        self.link.query::<Value>(redis::cmd("SELECT").arg(database))?;
        let mut cursor = 0;
        loop {
            let (next, keys) = self.keys(cursor)?;
            let types = self.link.ask(keys.iter().map(|key| redis::cmd("TYPE").arg(key).take()))?;
            for kind in types {
                if self.link.value::<String>(kind)? == "string" {
                    return Ok(true);
                }
            }
            if next == 0 {
                return Ok(false);
            }
            cursor = next;
        }
    }

    /// Reads the keys of databases, from a position on. Gives each key, and the end of each page, to `take`.
    pub(crate) fn scan<E: From<Failure>>(
        &mut self,
        start: Position,
        databases: impl IntoIterator<Item = u64>,
        mut take: impl FnMut(Step<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let run = self.run;
        for database in databases.into_iter().filter(|database| *database >= start.database) {
            self.link.query::<Value>(redis::cmd("SELECT").arg(database))?;
            let counted: u64 = self.link.query(&redis::cmd("DBSIZE"))?;
            let begin = if database == start.database { start.cursor } else { 0 };
            let (mut cursor, mut shown) = (begin, 0);
            loop {
                let counting = |entry: Entry<'_>| take(Step::Entry(entry));
                let (next, keys) = self.page(database, cursor, counting)?;
                (cursor, shown) = (next, shown + keys);
                if cursor == 0 {
                    break;
                }
                take(Step::PageEnd(Position { database, cursor, run }))?;
            }
            if begin == 0 {
                // Keys that were written or removed meanwhile are not hidden ones.
                self.counted_keys += counted.min(self.link.query(&redis::cmd("DBSIZE"))?);
                self.shown_keys += shown;
            }
            take(Step::PageEnd(Position { database: database + 1, cursor: 0, run }))?;
        }
        Ok(())
    }

    /// Reads the keys after a cursor. Returns them and the next cursor, which is 0 after the last ones.
    fn keys(&mut self, cursor: u64) -> Result<(u64, Vec<Vec<u8>>), Failure> {
        let found: (u64, Vec<Vec<u8>>) = self.link.query(redis::cmd("SCAN").arg(cursor).arg("COUNT").arg(PAGE_KEYS))?;
        if found.0 == cursor && cursor != 0 {
            let name = &self.link.name;
            return Err(Failure::Runtime(format!(
                "{name} has returned the cursor {cursor} again: its keys have no end"
            )));
        }
        Ok(found)
    }

    /// Reads a page. Gives each key to `take`. Returns the cursor of the page after it, which is 0 after the last
    /// one, and the number of the keys.
    fn page<E: From<Failure>>(
        &mut self,
        database: u64,
        cursor: u64,
        mut take: impl FnMut(Entry<'_>) -> Result<(), E>,
    ) -> Result<(u64, u64), E> {
        let (next, keys) = self.keys(cursor).map_err(|failure| match failure {
            Failure::Runtime(message) if message.contains("invalid cursor") => Failure::Runtime(format!(
                "{message}: --resume {database}:0 reads this database again, from its beginning"
            )),
            failure => failure,
        })?;
        let types = self.link.ask(keys.iter().map(|key| redis::cmd("TYPE").arg(key).take()))?;
        let mut strings = Vec::new();
        for (key, kind) in keys.iter().zip(types) {
            match self.link.value::<String>(kind)?.as_str() {
                "string" => strings.push(key),
                "none" => {}
                other => take(Entry::Other(kind_of(other)))?,
            }
        }
        let sizes = self.link.ask(strings.iter().map(|key| redis::cmd("STRLEN").arg(key).take()))?;
        let (mut group, mut group_bytes) = (Vec::new(), 0);
        for (key, size) in strings.into_iter().zip(sizes) {
            if has_code(&size, "WRONGTYPE") {
                self.changed_keys += 1;
                continue;
            }
            let size: i64 = self.link.value(size)?;
            let size = usize::try_from(size).map_err(|_| self.link.odd())?;
            if key.is_empty() || key.len() > KEY_SIZE_MAX || size > VALUE_SIZE_MAX {
                let key_shown: &[u8] = if key.len() > KEY_SIZE_MAX { &[] } else { key };
                let (key_size, value_size) = (key.len() as u64, size as u64);
                let found = Entry::OutOfBounds { database, key: key_shown, key_size, value_size, expiry: None };
                take(found)?;
                continue;
            }
            if group_bytes + size > GROUP_BYTES {
                self.read(database, std::mem::take(&mut group), &mut take)?;
                group_bytes = 0;
            }
            group.push(key.as_slice());
            group_bytes += size;
        }
        self.read(database, group, &mut take)?;
        Ok((next, keys.len() as u64))
    }

    /// Reads the pairs of keys.
    fn read<E: From<Failure>>(
        &mut self,
        database: u64,
        mut keys: Vec<&[u8]>,
        take: &mut impl FnMut(Entry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for _ in 0..READ_ATTEMPTS {
            keys = self.read_stable(database, keys, take)?;
        }
        self.changed_keys += keys.len() as u64;
        Ok(())
    }

    /// Reads the pairs of keys whose expiry does not change meanwhile. Returns the keys of the others.
    fn read_stable<'k, E: From<Failure>>(
        &mut self,
        database: u64,
        keys: Vec<&'k [u8]>,
        take: &mut impl FnMut(Entry<'_>) -> Result<(), E>,
    ) -> Result<Vec<&'k [u8]>, E> {
        let time = if self.has_expiry_time { "PEXPIRETIME" } else { "PTTL" };
        let commands = keys.iter().flat_map(|key| [time, "DUMP", time].map(|name| redis::cmd(name).arg(key).take()));
        let begun = Instant::now();
        let replies = self.link.ask(commands)?;
        let (now, elapsed) = (now(), begun.elapsed().as_millis() as i64);
        if self.has_expiry_time && replies.first().is_some_and(|reply| says(reply, "unknown command")) {
            self.has_expiry_time = false;
            return Ok(keys);
        }
        let (mut changed, mut value) = (Vec::new(), Vec::new());
        let mut replies = replies.into_iter();
        for key in keys {
            let mut reply = || replies.next().unwrap_or(Value::Nil);
            let (before, dump, after) = (reply(), reply(), reply());
            let [before, after]: [i64; 2] = [self.link.value(before)?, self.link.value(after)?];
            let expiry = match before {
                _ if before == -2 || after == -2 || dump == Value::Nil => continue,
                -1 if after == -1 => None,
                time if self.has_expiry_time && time == after => Some(time),
                left if !self.has_expiry_time && after >= 0 && (0..=elapsed + 1).contains(&(left - after)) => {
                    Some(now.saturating_add(left))
                }
                _ => {
                    changed.push(key);
                    continue;
                }
            };
            let dump: Vec<u8> = self.link.value(dump)?;
            value.clear();
            match payload::decode(&dump, &mut value) {
                Ok(()) => take(entry(database, key, &value, expiry))?,
                // Another type, or a longer value, since its type and its size were read.
                Err(payload::PayloadError::Format | payload::PayloadError::TooLong) => self.changed_keys += 1,
                Err(payload::PayloadError::Checksum) => {
                    let (name, key) = (&self.link.name, shown(key));
                    let refusal = format!("{name}: key `{key}`: the checksum of its dump is wrong");
                    return Err(Failure::Runtime(refusal).into());
                }
            }
        }
        Ok(changed)
    }

    /// Adds a pair to those that are written together, and writes these if they are many or of another space.
    pub(crate) fn put(&mut self, pair: &Pair<'_>) -> Result<(), Failure> {
        if self.selected != Some(pair.space) {
            self.flush()?;
            self.link.query::<Value>(redis::cmd("SELECT").arg(pair.space))?;
            self.selected = Some(pair.space);
        }
        let mut command = redis::cmd("SET").arg(pair.key).arg(pair.value).take();
        if let Some(expiry) = pair.expiry {
            command.arg("PXAT").arg(expiry);
        }
        self.commands.push(command);
        self.command_bytes += pair.key.len() + pair.value.len();
        let is_full = self.command_bytes >= GROUP_BYTES || self.commands.len() >= GROUP_PAIRS;
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Writes the pairs that were added.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.command_bytes = 0;
        for reply in self.link.ask(std::mem::take(&mut self.commands))? {
            if let Value::ServerError(_) = reply {
                self.link.value::<Value>(reply)?;
            }
        }
        Ok(())
    }
}

/// Returns true if a reply is an error with this code.
fn has_code(reply: &Value, code: &str) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == code)
}

/// Returns the kind of a type that `TYPE` names.
fn kind_of(name: &str) -> Kind {
    match name {
        "list" => Kind::List,
        "set" => Kind::Set,
        "zset" => Kind::SortedSet,
        "hash" => Kind::Hash,
        "stream" => Kind::Stream,
        _ => Kind::Module,
    }
}
