//! A running server of RESP as the source or the target of pairs, such as `redis://HOST:PORT`.
//!
//! The keys of a database are read in pages by `SCAN`. For each page:
//!
//! 1. `TYPE` tells which keys have strings, and `STRLEN` which of these are too long. The others are never read.
//! 2. `PEXPIRETIME` and `DUMP` read the pairs, in groups of a bounded number of bytes. A server before Redis 7 has no
//!    `PEXPIRETIME`; then `PTTL` and the clock of this machine tell the expiry.
//!
//! A page has the values of some moment while it is read. A key that exists all the time is returned once or more; one that is
//! written or removed meanwhile may be missing. The cursor after a page continues there later.

use std::collections::BTreeSet;
use std::fmt;

use redis::{Cmd, Connection, ConnectionLike, FromRedisValue, Pipeline, RedisError, Value};
use skep::{HASH_SPACE, ORDERED_SPACE};
use skep_core::operation::{KEY_SIZE_MAX, VALUE_SIZE_MAX};
use skep_wire::rdb::{Entry, Kind, payload};

use super::{Pair, entry, now, shown};
use crate::failure::Failure;
use crate::password::Login;
use crate::resp_link::{connect, describe, without_password};

/// Keys of a page, about.
const PAGE_KEYS: usize = 512;
/// Bytes of values that are read or written together, unless one value has more.
const GROUP_BYTES: usize = 4 << 20;
/// Pairs that are written together.
const GROUP_PAIRS: usize = 4096;

/// Where a scan continues: the number of a database and a cursor in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) database: u64,
    pub(crate) cursor: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.database, self.cursor)
    }
}

impl Position {
    /// Reads what `Display` has written.
    pub(crate) fn parse(text: &str) -> Option<Position> {
        let (database, cursor) = text.split_once(':')?;
        Some(Position { database: database.parse().ok()?, cursor: cursor.parse().ok()? })
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
    connection: Connection,
    name: String,
    has_expiry_time: bool,
    /// Pairs that were not written yet: their commands, and their bytes.
    commands: Pipeline,
    command_bytes: usize,
    selected: Option<u16>,
}

/// Returns true if a source or target is a server: redis://HOST:PORT, or rediss:// with TLS.
pub(crate) fn is_server(name: &str) -> bool {
    name.starts_with("redis://") || name.starts_with("rediss://")
}

impl Remote {
    /// Connects to a server.
    pub(crate) fn connect(login: &Login) -> Result<Remote, Failure> {
        let (connection, name) = (connect(login)?, without_password(&login.address));
        let (commands, has_expiry_time) = (Pipeline::new(), true);
        Ok(Remote { connection, name, has_expiry_time, commands, command_bytes: 0, selected: None })
    }

    /// Returns the databases with keys, and the number of these. The cache space of Skep lists no keys, so it is left out.
    pub(crate) fn databases(&mut self) -> Result<Vec<(u64, u64)>, Failure> {
        let information: String = self.query(redis::cmd("INFO").arg("keyspace"))?;
        let lines = information.lines().filter_map(|line| line.strip_prefix("db")?.split_once(':')?.0.parse().ok());
        // A server of Skep counts the keys of the last moment a little later.
        let numbers: BTreeSet<u64> = lines.chain([HASH_SPACE, ORDERED_SPACE].map(u64::from)).collect();
        let mut databases = Vec::new();
        for number in numbers {
            let commands =
                [redis::cmd("SELECT").arg(number).take(), redis::cmd("DBSIZE"), redis::cmd("SCAN").arg(0).take()];
            let replies = self.ask(commands.into_iter())?;
            let [selected, size, scan] = replies.try_into().map_err(|_| self.odd())?;
            let says = |reply: &Value, text| matches!(reply, Value::ServerError(error) if error.details().is_some_and(|all| all.contains(text)));
            if !says(&selected, "out of range") && !says(&scan, "not for the cache space") {
                self.value::<Value>(selected)?;
                databases.push((number, self.value(size)?));
            }
        }
        databases.retain(|(_, keys)| *keys > 0);
        Ok(databases)
    }

    /// Reads the keys of databases, from a position on. Gives each key, and the end of each page, to `take`.
    pub(crate) fn scan<E: From<Failure>>(
        &mut self,
        start: Position,
        databases: impl IntoIterator<Item = u64>,
        mut take: impl FnMut(Step<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for database in databases.into_iter().filter(|database| *database >= start.database) {
            self.query::<Value>(redis::cmd("SELECT").arg(database))?;
            let mut cursor = if database == start.database { start.cursor } else { 0 };
            loop {
                cursor = self.page(Position { database, cursor }, |entry| take(Step::Entry(entry)))?;
                if cursor == 0 {
                    break;
                }
                take(Step::PageEnd(Position { database, cursor }))?;
            }
            take(Step::PageEnd(Position { database: database + 1, cursor: 0 }))?;
        }
        Ok(())
    }

    /// Reads a page. Gives each key to `take`. Returns the cursor of the page after it; 0 after the last one.
    fn page<E: From<Failure>>(
        &mut self,
        position: Position,
        mut take: impl FnMut(Entry<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let Position { database, cursor } = position;
        let scan: (u64, Vec<Vec<u8>>) = self.query(redis::cmd("SCAN").arg(cursor).arg("COUNT").arg(PAGE_KEYS))?;
        let (next, keys) = scan;
        let types = self.ask(keys.iter().map(|key| redis::cmd("TYPE").arg(key).take()))?;
        let mut strings = Vec::new();
        for (key, kind) in keys.iter().zip(types) {
            match self.value::<String>(kind)?.as_str() {
                "string" => strings.push(key),
                "none" => {}
                other => take(Entry::Other(kind_of(other)))?,
            }
        }
        let sizes = self.ask(strings.iter().map(|key| redis::cmd("STRLEN").arg(key).take()))?;
        let (mut group, mut group_bytes) = (Vec::new(), 0);
        for (key, size) in strings.into_iter().zip(sizes) {
            let size: usize = self.value(size)?;
            if key.is_empty() || key.len() > KEY_SIZE_MAX || size > VALUE_SIZE_MAX {
                let key_shown: &[u8] = if key.len() > KEY_SIZE_MAX { &[] } else { key };
                let (key_size, value_size) = (key.len() as u64, size as u64);
                let found = Entry::OutOfBounds { database, key: key_shown, key_size, value_size, expiry: None };
                take(found)?;
                continue;
            }
            if group_bytes + size > GROUP_BYTES {
                self.read(database, &std::mem::take(&mut group), &mut take)?;
                group_bytes = 0;
            }
            group.push(key.as_slice());
            group_bytes += size;
        }
        self.read(database, &group, &mut take)?;
        Ok(next)
    }

    /// Reads the pairs of keys.
    fn read<E: From<Failure>>(
        &mut self,
        database: u64,
        keys: &[&[u8]],
        take: &mut impl FnMut(Entry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let command = if self.has_expiry_time { "PEXPIRETIME" } else { "PTTL" };
        let commands = keys.iter().flat_map(|key| [command, "DUMP"].map(|name| redis::cmd(name).arg(key).take()));
        let replies = self.ask(commands)?;
        let now = now();
        let mut value = Vec::new();
        for (key, replies) in keys.iter().zip(replies.chunks_exact(2)) {
            let [time, dump] = replies else { unreachable!("a key has two replies") };
            if let (Value::ServerError(error), true) = (time, self.has_expiry_time)
                && error.details().is_some_and(|text| text.contains("unknown command"))
            {
                self.has_expiry_time = false;
                return self.read(database, keys, take);
            }
            let expiry = match self.value::<i64>(time.clone())? {
                // The key has gone.
                -2 => continue,
                -1 => None,
                time if self.has_expiry_time => Some(time),
                left => Some(now.saturating_add(left)),
            };
            let dump = match dump {
                Value::BulkString(dump) => dump,
                Value::Nil => continue,
                other => return Err(self.value::<Vec<u8>>(other.clone()).err().unwrap_or_else(|| self.odd()).into()),
            };
            value.clear();
            payload::decode(dump, &mut value).map_err(|error| {
                Failure::Runtime(format!("{}: key `{}`: its dump is refused: {error:?}", self.name, shown(key)))
            })?;
            take(entry(database, key, &value, expiry))?;
        }
        Ok(())
    }

    /// Adds a pair to those that are written together, and writes these if they are many.
    pub(crate) fn put(&mut self, pair: &Pair<'_>) -> Result<(), Failure> {
        if self.selected != Some(pair.space) {
            self.selected = Some(pair.space);
            self.commands.cmd("SELECT").arg(pair.space);
        }
        let command = self.commands.cmd("SET").arg(pair.key).arg(pair.value);
        if let Some(expiry) = pair.expiry {
            command.arg("PXAT").arg(expiry);
        }
        self.command_bytes += pair.key.len() + pair.value.len();
        let is_full = self.command_bytes >= GROUP_BYTES || self.commands.len() >= GROUP_PAIRS;
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Writes the pairs that were added.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let commands = std::mem::take(&mut self.commands);
        self.command_bytes = 0;
        for reply in self.run(&commands)? {
            if let Value::ServerError(_) = reply {
                self.value::<Value>(reply)?;
            }
        }
        Ok(())
    }

    /// Sends commands. Returns their replies, of which some may be errors.
    fn ask(&mut self, commands: impl Iterator<Item = Cmd>) -> Result<Vec<Value>, Failure> {
        let mut pipeline = Pipeline::new();
        commands.for_each(|command| _ = pipeline.add_command(command));
        self.run(&pipeline)
    }

    fn run(&mut self, commands: &Pipeline) -> Result<Vec<Value>, Failure> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let replies = self.connection.req_packed_commands(&commands.get_packed_pipeline(), 0, commands.len());
        let replies = replies.map_err(|error| self.failed(&error))?;
        if replies.len() == commands.len() { Ok(replies) } else { Err(self.odd()) }
    }

    fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Failure> {
        let reply = command.query(&mut self.connection);
        reply.map_err(|error| self.failed(&error))
    }

    /// Returns the value of a reply that is no error.
    fn value<T: FromRedisValue>(&self, reply: Value) -> Result<T, Failure> {
        let reply = reply.extract_error().map_err(|error| self.failed(&error))?;
        T::from_redis_value(reply).map_err(|_| self.odd())
    }

    fn failed(&self, error: &RedisError) -> Failure {
        Failure::Runtime(format!("{}: {}", self.name, describe(error)))
    }

    fn odd(&self) -> Failure {
        Failure::Runtime(format!("{} has sent a reply to another command: is it a server of Redis?", self.name))
    }
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
