//! The parsed batch of a memcached connection: text and meta commands. Most are operations on keys of the cache. The server
//! executes the others itself, when it writes their replies.
//!
//! Keys, values and flags stay in the input, where the parser has found them. A command has their positions
//! (`command.rs`). A retrieval has one operation for each of its keys. `flush_all` has one for each shard, and is alone in
//! its parsed batch, so that no operation of the connection overtakes it. Plain commands, a `get` of one key and a `set`,
//! are the most frequent ones: they are parsed, dispatched and replied to in loops of their own.

mod command;
mod permission;
mod reply;

pub(crate) use self::command::Operation;

use std::sync::Arc;

use skep_store::cache::ItemRequest;
use skep_wire::memcached::{Parsed, RequestParser, Words};

use self::command::{Action, Command, Decoder, Item, Span};
use self::reply::PlainCounts;
use crate::access::{Access, Gate, Login};
use crate::cache_flushes::CacheFlushes;
use crate::encoding::Encoding;
use crate::limits::{DECODE_WORK, LOCKED_REQUEST_MAX, LOCKED_VALUE_MAX, PARSED_OPERATIONS_MAX, PARSED_SIZE_MAX};
use crate::settings::ServerSettings;
use crate::unix_time::UnixTime;
use crate::vocabulary::{Decoded, Need, make_room};

/// The decoded commands, and the state of the one that is arriving.
#[derive(Debug)]
pub(crate) struct MemcachedBatch {
    parser: RequestParser,
    value_size_max: usize,
    shard_count: u16,
    /// The user of the connection.
    login: Login,
    commands: Vec<Command>,
    /// The operations on keys that are neither retrievals nor plain.
    items: Vec<Item>,
    /// Bytes of the input that the commands take.
    size: usize,
    /// The server replies to no command after these.
    ended: bool,
    /// Index of the command with the first reply that is not in the output.
    command: usize,
    /// Index of that reply's operation in the command.
    operation: usize,
    /// Bytes of the words of the command, if it is a retrieval, whose replies are in the output.
    words_done: usize,
    /// An operation of the command was refused.
    is_refused: bool,
    /// Operations whose replies are not in the output.
    operations_left: usize,
    /// The time from which relative times of the commands count.
    time: UnixTime,
    /// The flushes of the cache.
    flushes: Arc<CacheFlushes>,
}

impl MemcachedBatch {
    /// Returns a batch without commands.
    pub(crate) fn boxed(settings: &ServerSettings, login: Login, flushes: Arc<CacheFlushes>) -> Box<MemcachedBatch> {
        Box::new(MemcachedBatch {
            flushes,
            parser: RequestParser::new(settings.memcached_value_max),
            value_size_max: settings.memcached_value_max,
            shard_count: settings.shards,
            login,
            commands: Vec::new(),
            items: Vec::new(),
            size: 0,
            ended: false,
            command: 0,
            operation: 0,
            words_done: 0,
            is_refused: false,
            operations_left: 0,
            time: UnixTime::default(),
        })
    }

    /// Takes whole commands from the input, as many as a batch may have and as `memory_max` allows.
    pub(crate) fn decode(&mut self, input: &mut [u8], memory_max: usize, now: UnixTime, access: &Access) -> Decoded {
        self.set_time(now);
        let gate = self.login.refresh(access, now);
        let is_locked = gate == Gate::Locked;
        self.parser.set_value_size_max(if is_locked { LOCKED_VALUE_MAX } else { self.value_size_max });
        let base = input.as_ptr();
        let (mut is_incomplete, mut compared) = (false, 0);
        while !self.is_full() && self.make_room(memory_max) {
            if gate == Gate::Open && self.take_plain(input, memory_max) {
                continue;
            }
            if !self.make_room_for_item(memory_max) {
                break;
            }
            let rest = &mut input[self.size..];
            let rest_size = rest.len();
            let (size, command) = match self.parser.parse(rest) {
                Parsed::Incomplete if is_locked && rest_size > LOCKED_REQUEST_MAX => (0, Command::new(Action::Close)),
                Parsed::Incomplete => {
                    is_incomplete = true;
                    break;
                }
                Parsed::Dropped(size) => {
                    self.size += size;
                    continue;
                }
                Parsed::Close => (0, Command::new(Action::Close)),
                Parsed::Refused { size, error, is_quiet } => (size, Command::new(Action::Refuse { error, is_quiet })),
                Parsed::Complete { size, request } if is_locked => (size, Command::locked(&request, base)),
                Parsed::Complete { size, request } => {
                    let mut decoder = Decoder { base, value_size_max: self.value_size_max, items: &mut self.items };
                    let denied = permission::denied(&self.login, &request, size, base);
                    compared += self.login.limited().map_or(0, |user| user.keys().work(size));
                    (size, denied.unwrap_or_else(|| decoder.decode(&request, self.shard_count, now)))
                }
            };
            if command.is_alone() && !self.commands.is_empty() {
                // The next batch parses it again.
                break;
            }
            if command.is_flush_at_once() {
                self.flushes.begin();
            }
            self.size += size;
            self.ended |= command.is_last();
            self.operations_left += command.operation_count;
            let is_end = command.is_alone();
            self.commands.push(command);
            if is_end {
                break;
            }
        }
        let exhausted = is_incomplete || self.ended;
        let (queue_size, request_count) = (self.queue_size(), self.request_count());
        let work = DECODE_WORK * self.commands.len() + compared;
        Decoded::Requests { queue_size, request_count, exhausted, work }
    }

    /// Takes the plain commands at the head of the input that is left. Returns false if the next command is another one, or
    /// has not arrived.
    fn take_plain(&mut self, input: &[u8], memory_max: usize) -> bool {
        let (first, base) = (self.commands.len(), input.as_ptr());
        // Each takes the place of an operation and of a command.
        let count_max = (2 * PARSED_OPERATIONS_MAX - self.operations_left - first).div_ceil(2);
        let mut size = self.size;
        while self.commands.len() - first < count_max && size < PARSED_SIZE_MAX && self.make_room(memory_max) {
            let Some((plain_size, plain)) = self.parser.parse_plain(&input[size..]) else { break };
            self.commands.push(Command::plain(plain, base));
            size += plain_size;
        }
        self.size = size;
        self.operations_left += self.commands.len() - first;
        self.commands.len() > first
    }

    /// Makes room for a command. Returns false if there is no memory for it.
    #[inline]
    fn make_room(&mut self, memory_max: usize) -> bool {
        make_room(&mut self.commands, self.items.capacity() * size_of::<Item>(), memory_max)
    }

    /// Makes room for an item. Returns false if there is no memory for it. The first command of a batch has some always.
    fn make_room_for_item(&mut self, memory_max: usize) -> bool {
        let held = self.commands.capacity() * size_of::<Command>();
        let is_allowed = self.commands.is_empty() || held + size_of::<Item>() <= memory_max;
        is_allowed && make_room(&mut self.items, held, memory_max)
    }

    /// Sets the time at which the next operations are submitted, from which relative times count.
    pub(crate) fn set_time(&mut self, now: UnixTime) {
        self.time = now;
    }

    /// Returns the memory that the command needs which is arriving.
    pub(crate) fn arriving(&self) -> Need {
        Need::of_size(self.parser.arriving_size())
    }

    /// Returns true if the parsed batch has enough commands.
    fn is_full(&self) -> bool {
        self.operations_left + self.commands.len() >= 2 * PARSED_OPERATIONS_MAX
            || self.size >= PARSED_SIZE_MAX
            || self.ended
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.commands.capacity() * size_of::<Command>() + self.items.capacity() * size_of::<Item>()
    }

    /// Returns the memory of a finished parsed batch.
    pub(crate) fn release(&mut self) {
        self.commands = Vec::new();
        self.items = Vec::new();
    }

    /// Returns the bytes of the input that the commands take.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of operations whose replies are not in the output.
    pub(crate) fn operations_left(&self) -> usize {
        self.operations_left
    }

    /// Returns the number of operations that were just decoded, or that of commands if it is larger.
    pub(crate) fn request_count(&self) -> usize {
        self.operations_left.max(self.commands.len())
    }

    /// Returns the login of the connection, to be changed.
    #[inline]
    pub(crate) fn login_mut(&mut self) -> &mut Login {
        &mut self.login
    }

    /// Returns the login of the connection.
    #[inline]
    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// Returns true if all replies are in the output.
    pub(crate) fn is_finished(&self) -> bool {
        self.command == self.commands.len()
    }

    /// Returns true if a part of a reply is in the output, and the rest is not.
    pub(crate) fn is_within_reply(&self) -> bool {
        self.words_done > 0
    }

    /// Returns the number of operations of the next reply queue.
    pub(crate) fn queue_size(&self) -> usize {
        self.operations_left.min(PARSED_OPERATIONS_MAX)
    }

    /// Forgets the commands. Returns the bytes of the input that they took.
    pub(crate) fn finish(&mut self) -> usize {
        self.commands.clear();
        self.commands.shrink_to(PARSED_OPERATIONS_MAX);
        self.items.clear();
        self.items.shrink_to(PARSED_OPERATIONS_MAX);
        self.command = 0;
        std::mem::take(&mut self.size)
    }

    /// Returns the operations whose replies are not in the output, in order.
    pub(crate) fn operations<'a>(&'a self, input: &'a [u8]) -> MemcachedOperations<'a> {
        MemcachedOperations::new(self, input)
    }

    /// Returns true if the operation after the first `count` whose replies are not in the output may be refused, when
    /// `pending` operations from it on are to be submitted.
    pub(crate) fn may_be_refused(&self, count: usize, pending: usize) -> bool {
        let mut index = self.operation + count;
        for command in &self.commands[self.command..] {
            if index < command.operation_count {
                return index == 0 && command.operation_count <= pending && command.may_be_refused(&self.items);
            }
            index -= command.operation_count;
        }
        false
    }

    /// Writes the replies that have arrived, in order, until the output is full.
    pub(crate) fn encode(&mut self, encoding: &mut Encoding<'_, '_>) {
        let Encoding { queue, replies, input, output, end, context } = encoding;
        while let Some(command) = self.commands.get(self.command) {
            if command.is_plain() {
                if output.len() > *end {
                    return;
                }
                let (mut plain, mut counts) = (self.commands[self.command..].iter(), PlainCounts::default());
                let mut next = plain.next();
                let count = queue.take(usize::MAX, replies, |response| {
                    let command = next.expect("the next command is plain");
                    command.reply_plain(response, input, output, &mut counts, context);
                    next = plain.next().filter(|command| command.is_plain());
                    next.is_some() && output.len() <= *end
                });
                counts.count(context);
                self.command += count;
                self.operations_left -= count;
                if count == 0 {
                    return;
                }
                continue;
            }
            let mut words = Words::new(&command.words(input)[self.words_done..]);
            while self.operation < command.operation_count {
                if output.len() > *end {
                    return;
                }
                let Some(response) = queue.next(replies) else { return };
                let key = words.next();
                self.is_refused |= response.is_err();
                command.reply(response, key, &self.items, input, output, context);
                self.words_done = command.words(input).len() - words.rest().len();
                queue.advance();
                self.operation += 1;
                self.operations_left -= 1;
            }
            if output.len() > *end {
                return;
            }
            if command.operation_count == 0 && !context.may_execute(command.is_small()) {
                return;
            }
            let before = output.len();
            if let Some(login) = command.finish(self.is_refused, &self.login, input, output, context) {
                self.login = login;
            }
            if command.is_uncounted() {
                self.login.leave_uncounted(output.len() - before);
            }
            (self.operation, self.words_done, self.is_refused) = (0, 0, false);
            self.command += 1;
        }
    }
}

/// The position of an operation among those of its command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) index: usize,
    pub(crate) count: usize,
    /// The command may be refused.
    pub(crate) may_be_refused: bool,
}

/// The operations whose replies are not in the output, from a position on.
pub(crate) struct MemcachedOperations<'a> {
    parsed: &'a MemcachedBatch,
    input: &'a [u8],
    /// The next command, the index of its next operation, and its words from there on.
    command: usize,
    index: usize,
    words: Words<'a>,
}

impl<'a> MemcachedOperations<'a> {
    fn new(parsed: &'a MemcachedBatch, input: &'a [u8]) -> Self {
        let words = parsed.commands.get(parsed.command).map_or(&[][..], |command| command.words(input));
        let words = Words::new(&words[parsed.words_done..]);
        MemcachedOperations { parsed, input, command: parsed.command, index: parsed.operation, words }
    }
}

impl<'a> Iterator for MemcachedOperations<'a> {
    /// The operation, and its part in its command.
    type Item = (Part, Operation<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let command = self.parsed.commands.get(self.command)?;
            let index = self.index;
            if index < command.operation_count {
                let items = &self.parsed.items;
                let part =
                    Part { index, count: command.operation_count, may_be_refused: command.may_be_refused(items) };
                let word = self.words.next();
                self.index += 1;
                if self.index == command.operation_count {
                    // The command after it may be a plain one.
                    self.command += 1;
                    self.begin_command();
                }
                return Some((part, command.operation(index, word, items, self.input, self.parsed.time)));
            }
            self.command += 1;
            self.begin_command();
        }
    }
}

impl<'a> MemcachedOperations<'a> {
    /// Returns the next operation if it is that of a plain command. When this has returned `None`,
    /// [`MemcachedOperations::begin_command`] is to be called if it has returned an operation before.
    #[inline]
    pub(crate) fn next_plain(&mut self) -> Option<ItemRequest<'a>> {
        let command = self.parsed.commands.get(self.command).filter(|command| command.is_plain() && self.index == 0)?;
        self.command += 1;
        Some(command.plain_operation(self.input, self.parsed.time))
    }

    /// Sets the position to the first operation of the command.
    pub(crate) fn begin_command(&mut self) {
        self.index = 0;
        let words = self.parsed.commands.get(self.command).map_or(Span::default(), |command| command.words);
        self.words = Words::new(words.of(self.input));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also after commands without operations, and after a part of the operations was skipped.
    #[test]
    fn plain_commands_are_recognised_after_all_others() {
        let mut parsed = MemcachedBatch::boxed(&ServerSettings::default(), Login::default(), Arc::default());
        let mut input = b"mn\r\nget a b\r\nget c\r\nset d 0 0 1 noreply\r\nx\r\nset e 0 0 1\r\nx\r\nget f\r\n".to_vec();
        parsed.decode(&mut input, usize::MAX, UnixTime::default(), &Access::new(None, true));
        let mut operations = parsed.operations(&input);
        let mut keys = Vec::new();
        for plain_before in [0, 0, 1, 2] {
            let plain: Vec<_> = std::iter::from_fn(|| operations.next_plain()).collect();
            assert_eq!(plain.len(), plain_before, "after {keys:?}");
            if plain_before > 0 {
                operations.begin_command();
            }
            keys.extend(plain.iter().map(|item| item.key));
            if let Some((_, Operation::Item(item))) = operations.next() {
                keys.push(item.key);
            }
        }
        assert_eq!(keys, [b"a", b"b", b"c", b"d", b"e", b"f"]);
    }

    /// A client that wants no reply would not learn that its command was refused.
    #[test]
    fn quiet_text_commands_are_not_refused() {
        for (command, expected) in [
            ("delete k\r\n", true),
            ("get k\r\n", true),
            ("md k q\r\n", true),
            ("delete k noreply\r\n", false),
            ("set k 0 0 1 noreply\r\nx\r\n", false),
            ("flush_all\r\n", false),
        ] {
            let mut parsed = MemcachedBatch::boxed(&ServerSettings::default(), Login::default(), Arc::default());
            parsed.decode(&mut command.as_bytes().to_vec(), usize::MAX, UnixTime::default(), &Access::new(None, true));
            assert_eq!(parsed.may_be_refused(0, 1), expected, "{command:?}");
        }
    }
}
