//! Commands on all keys of a space.
//!
//! ```text
//!   SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]    a step of a walk, in the shard that the cursor names
//!   KEYS pattern                                         steps until the end, shard after shard; an array
//!   RANDOMKEY                                            steps from a random position until there is a key
//!   DBSIZE                                               a count in each shard; the sum
//!   FLUSHDB  FLUSHALL  [ASYNC|SYNC]                      a flush in each shard, and of the ordered space; OK
//! ```
//!
//! **Cursors.** 0 begins and ends a scan. A cursor of the hash space is a shard and a home bucket:
//!
//! ```text
//!   bit 0         1                33
//!      │ 0        │ home bucket    │ shard             space 0
//!      │ 1        │ see `cursors.rs`                   space 1
//! ```
//!
//! **KEYS** collects the keys that match, encoded as they are sent, in the memory of the connection. If that may not hold
//! them, the reply is an error. When all keys are collected, the reply is written in parts.
//!
//! **DBSIZE** lets each shard remove expired keys before it counts, except those of the cache. That is
//! bounded: a large store with many expiries may count some keys that have expired.
//!
//! These commands are barriers: the operations of a connection before them are done when they begin, and those after them
//! begin when they are done.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use skep_core::operation::Reply;
use skep_wire::native::Response;
use skep_wire::resp::{ReplyWriter, Version};

use super::table::CommandName;
use super::{Arguments, Progress, wire_error};
use crate::access::{KeyAccess, Login, User};
use crate::account::Account;
use crate::cursors::is_ordered;
use crate::glob::Pattern;
use crate::keyspace::{WalkPage, decode_count};
use crate::limits::{
    COUNT_TIMES, KEY_PATTERN_SIZE_MAX, KEYS_STEP, KEYSPACE_PAGE_SIZE, RANDOM_KEYS_MAX, RANDOM_KEYS_STEP,
    USUAL_PATTERN_SIZE,
};
use crate::vocabulary::{END, KeyspaceOperation, Space, Spaces, UNKNOWN, WalkStart};

const INVALID_CURSOR: &str = "ERR invalid cursor";
const SYNTAX: &str = "ERR syntax error";
const FORGOTTEN: &str = "ERR the position of the command was forgotten: too many scans of the ordered space are open";
const NO_MEMORY: &str = "ERR the keys take more than the memory that is free for this connection (--connection-memory)";

/// Bits of a cursor for the upper bits of a position: so that with the shard and a bit for the space it has 53 bits, which a
/// floating-point number holds. A page begins at most 2²⁴ of 2⁶⁴ positions before the end of the last one, so a key in a
/// billion billion is returned twice.
const POSITION_BITS: u32 = 40;

/// A command on all keys of a space.
#[derive(Clone, Debug)]
pub(crate) struct KeyspaceCommand {
    pub(super) name: CommandName,
    /// The user of the connection, if it may not read all keys: others are left out of replies.
    reader: Option<Arc<User>>,
    /// The space, or the first one of several.
    space: Space,
    spaces: Spaces,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Scan {
        position: Position,
        key_count: u32,
        /// The argument with the pattern.
        pattern: Option<usize>,
        /// No key has the type that was asked for.
        is_none: bool,
    },
    Keys,
    RandomKey {
        random: u64,
    },
    Size,
    /// A flush of one space, or of all, in their order.
    Flush,
}

/// The position of a step of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    shard: u16,
    /// The position in the shard, or in the ordered space.
    from: u64,
}

/// The replies to a command so far.
#[derive(Debug, Default)]
pub(crate) struct KeyspaceProgress {
    position: Position,
    /// The keys that were found, encoded.
    blocks: VecDeque<Vec<u8>>,
    key_count: usize,
    /// Shards that were walked to the end, or counts of a shard so far.
    rounds: usize,
    /// All keys were found, and the header of the reply is written.
    is_writing: bool,
    /// A step was made.
    has_begun: bool,
    error: Option<&'static str>,
}

impl KeyspaceProgress {
    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.blocks.capacity() * size_of::<Vec<u8>>() + self.blocks.iter().map(Vec::capacity).sum::<usize>()
    }

    /// Adds a key, encoded.
    fn push(&mut self, key: &[u8], version: Version) {
        self.key_count += 1;
        let is_full = self.blocks.back().is_none_or(|block| block.len() >= KEYSPACE_PAGE_SIZE);
        if is_full {
            self.blocks.push_back(Vec::new());
        }
        let block = self.blocks.back_mut().expect("there is a block");
        ReplyWriter::new(block, version).bulk(key);
    }
}

impl Position {
    /// Returns the cursor of the position.
    fn cursor(self, space: Space) -> u64 {
        match space {
            Space::Hash => (u64::from(self.shard) << POSITION_BITS | self.from >> (u64::BITS - POSITION_BITS)) << 1,
            Space::Ordered => self.from,
            Space::Cache => unreachable!("a cache is not walked"),
        }
    }

    /// Returns the position of a cursor.
    fn of(cursor: u64, space: Space, shard_count: u16) -> Option<Position> {
        let is_of_space = cursor == 0 || is_ordered(cursor) == (space == Space::Ordered);
        if !is_of_space {
            return None;
        }
        if space == Space::Ordered {
            return Some(Position { shard: 0, from: cursor });
        }
        let shard = u16::try_from(cursor >> (POSITION_BITS + 1)).ok().filter(|shard| *shard < shard_count)?;
        Some(Position { shard, from: cursor >> 1 << (u64::BITS - POSITION_BITS) })
    }

    /// Returns the position after a step of this one; `None` at the end.
    fn after(self, next: u64, space: Space, shard_count: u16) -> Option<Position> {
        match space {
            _ if next != END => Some(Position { from: next, ..self }),
            Space::Hash if self.shard + 1 < shard_count => Some(Position { shard: self.shard + 1, from: 0 }),
            _ => None,
        }
    }
}

impl CommandName {
    /// Returns true if the command is one of these.
    pub(super) fn is_on_all_keys(self) -> bool {
        use CommandName::{DbSize, FlushAll, FlushDb, Keys, RandomKey, Scan};
        matches!(self, Scan | Keys | RandomKey | DbSize | FlushDb | FlushAll)
    }
}

/// Decodes the command. `None` if it is none of these.
pub(super) fn decode(
    name: CommandName,
    arguments: Arguments<'_>,
    space: Space,
    spaces: Spaces,
) -> Option<Result<KeyspaceCommand, String>> {
    let kind = match name {
        CommandName::Scan => scan(arguments, space, spaces),
        CommandName::Keys => check_pattern(arguments.get(1)).map(|()| Kind::Keys),
        CommandName::RandomKey => Ok(Kind::RandomKey { random: RandomState::new().hash_one(()) }),
        CommandName::DbSize => Ok(Kind::Size),
        CommandName::FlushDb | CommandName::FlushAll => check_flush(arguments).map(|()| Kind::Flush),
        _ => return None,
    };
    // All spaces begin with the hash space.
    let space = if name == CommandName::FlushAll { Space::Hash } else { space };
    Some(kind.map(|kind| KeyspaceCommand { name, reader: None, space, spaces, kind }))
}

/// Decodes `SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]`.
fn scan(arguments: Arguments<'_>, space: Space, spaces: Spaces) -> Result<Kind, String> {
    let cursor = cursor(arguments.get(1)).ok_or(INVALID_CURSOR)?;
    let (mut key_count, mut pattern, mut is_none) = (10, None, false);
    let mut index = 2;
    while index < arguments.count() {
        if index + 1 == arguments.count() {
            return Err(SYNTAX.to_owned());
        }
        if arguments.is(index, "COUNT") {
            let count = arguments.integer(index + 1).ok_or("ERR value is not an integer or out of range")?;
            key_count = u32::try_from(count.clamp(0, u32::MAX.into())).expect("clamped");
            if key_count == 0 {
                return Err(SYNTAX.to_owned());
            }
        } else if arguments.is(index, "MATCH") {
            check_pattern(arguments.get(index + 1))?;
            pattern = Some(index + 1);
        } else if arguments.is(index, "TYPE") {
            is_none = !arguments.is(index + 1, "string");
        } else {
            return Err(SYNTAX.to_owned());
        }
        index += 2;
    }
    let position = Position::of(cursor, space, spaces.shard_count).ok_or(INVALID_CURSOR)?;
    Ok(Kind::Scan { position, key_count, pattern, is_none })
}

/// Returns the number in a cursor, as Redis takes it: with a sign, and 0 if there is nothing.
fn cursor(text: &[u8]) -> Option<u64> {
    match std::str::from_utf8(text).ok()? {
        "" | "-0" => Some(0),
        text => text.parse().ok(),
    }
}

/// Checks the option of a flush. Both have the same meaning: no key is left when the command returns, and the memory is
/// cleared later.
fn check_flush(arguments: Arguments<'_>) -> Result<(), String> {
    match arguments.count() {
        1 => Ok(()),
        2 if arguments.is(1, "ASYNC") || arguments.is(1, "SYNC") => Ok(()),
        _ => Err(SYNTAX.to_owned()),
    }
}

fn check_pattern(pattern: &[u8]) -> Result<(), String> {
    match pattern.len() {
        ..=KEY_PATTERN_SIZE_MAX => Ok(()),
        _ => Err(format!("ERR the pattern has more than {KEY_PATTERN_SIZE_MAX} bytes")),
    }
}

impl KeyspaceCommand {
    /// Returns the command for the user of a login.
    pub(super) fn limited_to(self, login: &Login) -> KeyspaceCommand {
        let user = login.limited().map(|limited| limited.user).filter(|user| !user.permissions.keys.is_all());
        KeyspaceCommand { reader: user.cloned(), ..self }
    }

    /// Returns true if the user of the connection may read a key.
    fn may_read(&self, key: &[u8]) -> bool {
        self.reader.as_ref().is_none_or(|user| user.permissions.keys.allow(key, KeyAccess::READ))
    }

    /// Returns the number of operations.
    pub(super) fn operation_count(&self) -> usize {
        match self.kind {
            Kind::Scan { is_none: true, .. } => 0,
            Kind::Size => self.part_count(self.space),
            Kind::Flush => self.flushed_spaces().map(|space| self.part_count(space)).sum(),
            _ => 1,
        }
    }

    /// Returns the number of shards that have a part of a space.
    fn part_count(&self, space: Space) -> usize {
        if space.is_divided() { self.spaces.shard_count.into() } else { 1 }
    }

    /// Returns the spaces of a flush.
    fn flushed_spaces(&self) -> impl Iterator<Item = Space> {
        let Spaces { has_ordered, has_cache, .. } = self.spaces;
        let all = [(Space::Hash, true), (Space::Ordered, has_ordered), (Space::Cache, has_cache)];
        let is_all = self.name == CommandName::FlushAll;
        all.into_iter()
            .filter_map(move |(space, exists)| (if is_all { exists } else { space == self.space }).then_some(space))
    }

    /// Returns the operation at this index, and the space and shard that it is for; a walk continues where it stopped.
    pub(super) fn request(
        &self,
        arguments: Arguments<'_>,
        index: usize,
        progress: Option<&KeyspaceProgress>,
    ) -> (Space, u16, KeyspaceOperation) {
        let so_far = progress.map_or(Position::default(), |progress| progress.position);
        let (position, key_count) = match self.kind {
            Kind::Scan { position, key_count, .. } => {
                (if so_far == Position::default() { position } else { so_far }, key_count)
            }
            Kind::Keys => (so_far, KEYS_STEP),
            Kind::RandomKey { random } if progress.is_none_or(|progress| !progress.has_begun) => {
                let from = WalkStart::Random(random);
                return (self.space, self.first_shard(random), KeyspaceOperation::Walk { from, key_count: 1, size: 1 });
            }
            Kind::RandomKey { .. } if self.reader.is_some() => (so_far, RANDOM_KEYS_STEP),
            Kind::RandomKey { .. } => (so_far, 1),
            Kind::Size => return (self.space, index as u16, KeyspaceOperation::Count),
            Kind::Flush => {
                let mut shard = index;
                let space = self.flushed_spaces().find(|space| {
                    let count = self.part_count(*space);
                    shard < count || {
                        shard -= count;
                        false
                    }
                });
                let space = space.expect("a flush has as many operations as its spaces have parts");
                return (space, shard as u16, KeyspaceOperation::Flush { from: so_far.from });
            }
        };
        let pattern_size = self.pattern(arguments).map_or(0, <[u8]>::len);
        let size = KEYSPACE_PAGE_SIZE * USUAL_PATTERN_SIZE / pattern_size.max(USUAL_PATTERN_SIZE);
        let from = WalkStart::At(position.from);
        (self.space, position.shard, KeyspaceOperation::Walk { from, key_count, size: size as u32 })
    }

    fn pattern<'a>(&self, arguments: Arguments<'a>) -> Option<&'a [u8]> {
        match self.kind {
            Kind::Scan { pattern, .. } => pattern.map(|index| arguments.get(index)),
            Kind::Keys => Some(arguments.get(1)),
            Kind::RandomKey { .. } | Kind::Size | Kind::Flush => None,
        }
    }

    /// Takes the reply to an operation. Returns true if the next step is to be submitted. `room` is the number of bytes
    /// that the connection may hold in addition. The work on the keys is spent from the account.
    pub(crate) fn reply(
        &self,
        arguments: Arguments<'_>,
        response: Response<'_>,
        progress: &mut Progress,
        room: usize,
        account: &mut Account,
        writer: &mut ReplyWriter<'_>,
    ) -> bool {
        let bytes = match response {
            Ok(Reply::Value(bytes)) => bytes,
            Ok(reply) => unreachable!("the reply to an operation on all keys has bytes: {reply:?}"),
            Err(error) => {
                // A command is refused as a whole, and has one reply.
                if !std::mem::replace(&mut progress.refused, true) {
                    progress.keyspace = KeyspaceProgress::default();
                    writer.error(&wire_error(error));
                }
                return false;
            }
        };
        if self.kind == Kind::Size {
            return self.sum_up(bytes, progress);
        }
        let page = WalkPage::decode(bytes);
        account.spend(bytes.len());
        let mut pattern = self.pattern(arguments).map(|pattern| Pattern::new(pattern, account));
        let is_wanted = |key: &&[u8]| pattern.as_mut().is_none_or(|pattern| pattern.matches(key, account));
        let keys: Vec<&[u8]> = page.keys().filter(|key| self.may_read(key)).filter(is_wanted).collect();
        match self.kind {
            Kind::Scan { .. } if page.next == UNKNOWN => {
                progress.refused = true;
                writer.error(INVALID_CURSOR);
                false
            }
            Kind::Scan { position, .. } => {
                let so_far = &mut progress.keyspace.position;
                let position = if *so_far == Position::default() { position } else { *so_far };
                let next = position.after(page.next, self.space, self.spaces.shard_count);
                if let Some(next) = next
                    && page.is_empty()
                    && page.next == END
                {
                    // The rest of the shard has no keys: the step continues in the next one.
                    *so_far = next;
                    return true;
                }
                write_page(next.map_or(0, |next| next.cursor(self.space)), &keys, writer);
                false
            }
            Kind::Keys => self.collect(page, &keys, &mut progress.keyspace, room, writer.version()),
            Kind::RandomKey { random } => {
                let index = (u128::from(random) * keys.len() as u128) >> u64::BITS;
                if let Some(key) = keys.get(index as usize) {
                    writer.bulk(key);
                    return false;
                }
                progress.keyspace.key_count += page.keys().count();
                let is_over = self.pass_by(page.next, random, &mut progress.keyspace)
                    || progress.keyspace.key_count >= RANDOM_KEYS_MAX;
                if is_over {
                    writer.null();
                }
                !is_over
            }
            Kind::Size => unreachable!("the reply to a count is no page"),
            Kind::Flush => {
                progress.keyspace.position.from = if page.next == END { 0 } else { page.next };
                page.next != END
            }
        }
    }

    /// Takes a step of `RANDOMKEY` that has found no key. Returns true if all shards were walked to their ends, the first
    /// one also from its beginning.
    fn pass_by(&self, next: u64, random: u64, progress: &mut KeyspaceProgress) -> bool {
        if !std::mem::replace(&mut progress.has_begun, true) {
            progress.position.shard = self.first_shard(random);
        }
        if next != END && next != UNKNOWN {
            progress.position.from = next;
            return false;
        }
        let shard_count = if self.space == Space::Hash { self.spaces.shard_count } else { 1 };
        progress.rounds += 1;
        progress.position = Position { shard: (progress.position.shard + 1) % shard_count, from: 0 };
        progress.rounds > usize::from(shard_count)
    }

    /// Returns the shard in which `RANDOMKEY` begins. The upper bits of the random number choose the position there.
    fn first_shard(&self, random: u64) -> u16 {
        (((random & u64::from(u32::MAX)) * u64::from(self.spaces.shard_count)) >> u32::BITS) as u16
    }

    /// Takes the count of a shard. Returns true if it is not exact yet, and the shard is to count again.
    fn sum_up(&self, bytes: &[u8], progress: &mut Progress) -> bool {
        let (keys, is_exact) = decode_count(bytes);
        progress.keyspace.rounds += 1;
        if !is_exact && progress.keyspace.rounds < COUNT_TIMES {
            return true;
        }
        progress.keyspace.rounds = 0;
        progress.done = progress.done.saturating_add_unsigned(keys);
        false
    }

    /// Takes a page of `KEYS`.
    fn collect(
        &self,
        page: WalkPage<'_>,
        keys: &[&[u8]],
        progress: &mut KeyspaceProgress,
        room: usize,
        version: Version,
    ) -> bool {
        // The memory of a block may double when it grows.
        let growth = 2 * keys.iter().map(|key| key.len() + ENCODING_SIZE).sum::<usize>();
        let block = progress.blocks.back().map_or(0, Vec::capacity);
        let is_forgotten = page.next == UNKNOWN;
        if growth > 0 && growth + block > room || is_forgotten {
            let error = Some(if is_forgotten { FORGOTTEN } else { NO_MEMORY });
            *progress = KeyspaceProgress { error, ..KeyspaceProgress::default() };
            return false;
        }
        keys.iter().for_each(|key| progress.push(key, version));
        let next = progress.position.after(page.next, self.space, self.spaces.shard_count);
        progress.position = next.unwrap_or_default();
        next.is_some()
    }

    /// Writes the reply that follows all operations, or the next part of it: about `room` bytes. Returns true if it is
    /// complete.
    pub(super) fn finish(&self, progress: &mut Progress, room: usize, output: &mut Vec<u8>, version: Version) -> bool {
        let Progress { keyspace: progress, done, refused, .. } = progress;
        match (self.kind, progress.error) {
            (_, Some(message)) => ReplyWriter::new(output, version).error(message),
            (Kind::Scan { is_none: true, .. }, _) => {
                write_page(0, &[], &mut ReplyWriter::new(output, version));
            }
            _ if *refused => {}
            (Kind::Scan { .. } | Kind::RandomKey { .. }, _) => {}
            (Kind::Size, _) => ReplyWriter::new(output, version).integer(*done),
            (Kind::Flush, _) => ReplyWriter::new(output, version).simple("OK"),
            (Kind::Keys, _) => {
                if !std::mem::replace(&mut progress.is_writing, true) {
                    ReplyWriter::new(output, version).array(progress.key_count);
                }
                let begin = output.len();
                while output.len() - begin < room
                    && let Some(block) = progress.blocks.pop_front()
                {
                    output.extend_from_slice(&block);
                }
                return progress.blocks.is_empty();
            }
        }
        true
    }
}

/// Most bytes that the encoding of a key takes besides the key.
const ENCODING_SIZE: usize = "$460\r\n\r\n".len();

fn write_page(cursor: u64, keys: &[&[u8]], writer: &mut ReplyWriter<'_>) {
    writer.array(2);
    writer.bulk(cursor.to_string().as_bytes());
    writer.array(keys.len());
    keys.iter().for_each(|key| writer.bulk(key));
}

#[cfg(test)]
mod tests {
    use super::{Position, cursor};
    use crate::vocabulary::{END, Space};

    #[test]
    fn cursors_name_a_shard_and_a_position_and_are_not_those_of_the_other_space() {
        let of = |cursor| Position::of(cursor, Space::Hash, 3);
        for position in [Position::default(), Position { shard: 2, from: u64::MAX << 24 }] {
            assert_eq!(of(position.cursor(Space::Hash)), Some(position));
        }
        // The lower bits are lost: a page begins earlier, and not later.
        let cursor = Position { shard: 1, from: (5 << 24) + 7 }.cursor(Space::Hash);
        assert_eq!(of(cursor), Some(Position { shard: 1, from: 5 << 24 }));
        assert_eq!(of(Position { shard: 3, from: 0 }.cursor(Space::Hash)), None);
        assert_eq!((of(7), Position::of(8, Space::Ordered, 3)), (None, None));
        assert_eq!(Position::of(7, Space::Ordered, 3).unwrap().cursor(Space::Ordered), 7);
        assert!(Position { shard: 4095, from: u64::MAX }.cursor(Space::Hash) < 1 << 53);
    }

    #[test]
    fn a_walk_goes_from_shard_to_shard() {
        let step = |shard, next| Position { shard, from: 5 }.after(next, Space::Hash, 2);
        assert_eq!(step(0, 9), Some(Position { shard: 0, from: 9 }));
        assert_eq!(step(0, END), Some(Position { shard: 1, from: 0 }));
        assert_eq!(step(1, END), None);
        assert_eq!(Position::default().after(END, Space::Ordered, 2), None);
    }

    #[test]
    fn cursors_are_numbers() {
        assert_eq!([&b""[..], b"0", b"+7", b"007", b"-0"].map(cursor), [0, 0, 7, 7, 0].map(Some));
        assert_eq!([&b"x"[..], b" 1", b"1 ", b"-1", b"99999999999999999999"].map(cursor), [None; 5]);
    }
}
