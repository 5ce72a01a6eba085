//! The parsed batch of a RESP connection: commands. Some are operations on keys. To others, the server replies itself.
//!
//! The server runs its own commands when their turn in the replies comes, so that they see the effects of the commands
//! before them. The same holds for isolated commands ([`crate::transaction`]), which the shard runs. All commands on keys
//! that follow an isolated one in the parsed batch are isolated too: so they are not executed before it.
//!
//! A command of a million arguments takes longer to decode than a turn may last. Such a command is alone in its parsed
//! batch. Its arguments are found and its numbers converted in parts, one for each call of [`RespBatch::decode`].

mod command;
mod isolated;
mod memory;
mod operations;
mod simple;

pub(crate) use self::operations::RespOperations;

pub(crate) use self::memory::may_be_watch;

use skep_wire::resp::{Argument, Parsed, ReplyWriter, RequestParser};

use self::command::{Command, is_on_key};
use self::isolated::queue;
use self::memory::watch_growth;
use self::simple::SimpleRequest;
use crate::access::{Access, Gate};
use crate::encoding::Encoding;
use crate::limits::{
    DECODE_WORK, LONG_COMMAND, OPERAND_BYTE_WORK, OPERANDS_PART, PARSED_OPERATIONS_MAX, PARSED_SIZE_MAX, TEXT_WORK,
};
use crate::resp_command::table::CommandName;
use crate::resp_command::{Action, Arguments, Growth, Isolated, Multi, Operands, Progress, Session};
use crate::transaction::{Judgement, Run};
use crate::unix_time::UnixTime;
use crate::vocabulary::{Decoded, ShardSet, Space, Spaces, make_room};
use crate::watches::Watched;

/// The decoded commands, and the state of the one that is arriving.
#[derive(Debug)]
pub(crate) struct RespBatch {
    spaces: Spaces,
    /// The space of the commands after the last one. `SELECT` changes it.
    space: Space,
    parser: RequestParser,
    session: Session,
    /// The time from which relative times of the commands count.
    time: UnixTime,
    requests: Requests,
    replies: Replies,
    isolated: IsolatedCommands,
    /// The transaction that is being queued.
    multi: Multi,
    /// The keys that are watched.
    watched: Option<Box<Watched>>,
    /// Bytes of memory for the keys of a `WATCH` that is decoded and not done.
    watch_room: usize,
}

/// The commands of a parsed batch, as decoded.
#[derive(Debug, Default)]
struct Requests {
    commands: Vec<Command>,
    /// Those of all runs of simple commands.
    simple: Vec<SimpleRequest>,
    arguments: Vec<Argument>,
    /// Operands of vector commands, in binary form.
    operands: Operands,
    /// Bytes of the error messages of refused commands.
    message_bytes: usize,
    /// Bytes of the queues of transactions that are to be executed.
    queued_bytes: usize,
    /// Work of decoding the commands that was not yet told, in bytes touched.
    work: usize,
    /// The last command waits for its operands.
    is_decoding: bool,
    /// Bytes of the input that the commands take.
    size: usize,
    /// The server replies to no command after these.
    ended: bool,
    /// One of the commands is isolated.
    has_isolated: bool,
    /// A command has a relative time.
    counts_from_now: bool,
}

/// How far the replies to a parsed batch are.
#[derive(Debug, Default)]
struct Replies {
    /// Index of the command with the first reply that is not in the output.
    command: usize,
    /// Index of that reply's operation in the command.
    operation: usize,
    /// Operations from there to the end.
    operations_left: usize,
    /// The replies of the command so far.
    progress: Progress,
    /// Bytes of the replies of the next command, which is isolated and has waited for room for them.
    needed: usize,
    /// A part of the command's reply is in the output.
    is_begun: bool,
}

/// The isolated commands of a parsed batch.
#[derive(Debug, Default)]
struct IsolatedCommands {
    /// The one that has begun.
    run: Option<Box<Run>>,
    /// The shards of the next command, if that is isolated and they are known.
    next_shards: Option<ShardSet>,
    /// What is known of its effort.
    judgement: Judgement,
    /// It waits, and its shards must be held until it is done.
    is_blocked: bool,
    /// Arguments of those that are not done.
    left: usize,
}

/// Tells `decode` how to continue.
#[derive(Clone, Copy, PartialEq)]
enum After {
    /// With another command of the same parsed batch.
    Command,
    /// Not in this parsed batch: the next command begins another one.
    End,
    /// Not now: the next command has not arrived.
    Incomplete,
    /// In a later call: this many bytes of a long command were read again.
    Part(usize),
    /// Not before there is memory for the next command: the bytes that it needs.
    NeedsMemory(usize),
    /// The same, for a command of a transaction.
    NeedsRoom(Growth),
}

impl RespBatch {
    /// Returns a batch without commands; they may choose among these spaces.
    pub(crate) fn boxed(spaces: Spaces, session: Session) -> Box<RespBatch> {
        Box::new(RespBatch {
            spaces,
            space: Space::default(),
            parser: RequestParser::default(),
            session,
            time: UnixTime::default(),
            requests: Requests::default(),
            replies: Replies::default(),
            isolated: IsolatedCommands::default(),
            multi: Multi::default(),
            watched: None,
            watch_room: 0,
        })
    }

    /// Takes whole commands from the input, as many as a batch may have and as `memory_max` allows, or decodes the next
    /// part of a long one.
    pub(crate) fn decode(&mut self, input: &mut [u8], memory_max: usize, now: UnixTime, access: &Access) -> Decoded {
        self.set_time(now);
        let gate = self.session.login.refresh(access, now);
        self.parser.restrict(gate == Gate::Locked);
        let mut after = After::Command;
        while after == After::Command && !self.requests.is_decoding && !self.is_full() {
            if gate == Gate::Open && self.has_room(memory_max) && self.take_run(input, memory_max) {
                continue;
            }
            after = self.parse(&mut input[self.requests.size..], memory_max, now, gate);
        }
        match after {
            After::NeedsMemory(bytes) if self.requests.commands.is_empty() => {
                return Decoded::NeedsMemory { bytes, perhaps: 0 };
            }
            After::NeedsRoom(Growth { least, most }) if self.requests.commands.is_empty() => {
                self.multi.note_asked();
                return Decoded::NeedsMemory { bytes: least, perhaps: most - least };
            }
            _ => {}
        }
        if let After::Part(size) = after {
            return Decoded::Part(size);
        }
        if self.requests.is_decoding {
            let work = self.decode_operands(input);
            if self.requests.is_decoding {
                return Decoded::Part(work);
            }
            self.requests.work += work;
        }
        let exhausted = after == After::Incomplete || self.requests.ended;
        let (queue_size, request_count) = (self.queue_size(), self.request_count());
        Decoded::Requests { queue_size, request_count, exhausted, work: std::mem::take(&mut self.requests.work) }
    }

    /// Sets the time at which the next operations are submitted. Relative times of commands that have not begun count from
    /// it: a command may have waited since it was decoded.
    pub(crate) fn set_time(&mut self, now: UnixTime) {
        let milliseconds = now.milliseconds() - self.time.milliseconds();
        if milliseconds <= 0 {
            return;
        }
        self.time = now;
        if self.requests.counts_from_now {
            let first = self.replies.command + usize::from(self.isolated.run.is_some());
            for command in self.requests.commands.get_mut(first..).into_iter().flatten() {
                command.action.postpone(milliseconds);
            }
        }
    }

    /// Returns true if a transaction is being queued.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.multi.is_open()
    }

    /// Returns true if keys are watched, or are about to be.
    pub(crate) fn watches(&self) -> bool {
        self.watched.is_some() || self.watch_room > 0
    }

    /// Returns true if the parsed batch has enough commands.
    fn is_full(&self) -> bool {
        let commands = self.requests.commands.len() + self.requests.simple.len();
        self.replies.operations_left + commands >= 2 * PARSED_OPERATIONS_MAX
            || self.requests.size.max(self.requests.operands.bytes().len()) >= PARSED_SIZE_MAX
            || self.requests.ended
    }

    /// Makes room for a command. Returns false if there is no memory for it.
    fn has_room(&mut self, memory_max: usize) -> bool {
        if self.requests.commands.len() < self.requests.commands.capacity() {
            return true;
        }
        let held = self.capacity() - self.requests.commands.capacity() * size_of::<Command>();
        make_room(&mut self.requests.commands, held, memory_max)
    }

    /// Takes the command that `input` begins with.
    fn parse(&mut self, input: &mut [u8], memory_max: usize, now: UnixTime, gate: Gate) -> After {
        if !self.has_room(memory_max) {
            return After::End;
        }
        if gate != Gate::Locked
            && let Some(after) = self.needed_by_inline(input, memory_max)
        {
            return after;
        }
        let start = self.requests.size;
        let first_argument = self.requests.arguments.len() - self.parser.collected();
        let action = match self.parser.parse(input, &mut self.requests.arguments) {
            Ok(Parsed::Incomplete) => return After::Incomplete,
            Ok(Parsed::NeedsCapacity(count)) => {
                return match self.make_room_for_arguments(count, memory_max) {
                    Ok(()) => After::Command,
                    Err(needed) => After::NeedsMemory(needed),
                };
            }
            Ok(Parsed::Part(_)) if !self.requests.commands.is_empty() => {
                self.requests.arguments.truncate(first_argument);
                self.parser.leave_part();
                return After::End;
            }
            Ok(Parsed::Part(size)) => return After::Part(size),
            Ok(Parsed::Complete(size)) => {
                let request = &input[..size];
                match self.take(request, first_argument, memory_max, now) {
                    Ok(Some(action)) => action,
                    Ok(None) => return After::Command,
                    Err(after) => {
                        self.requests.arguments.truncate(first_argument);
                        return after;
                    }
                }
            }
            Err(error) => Action::Close(format!("ERR {error}")),
        };
        self.push(action, start, first_argument)
    }

    /// Decodes a request, whose arguments begin at `first_argument`, or puts it into the transaction. Returns `None` if it
    /// is empty, and what follows if there is no memory for it.
    fn take(
        &mut self,
        request: &[u8],
        first_argument: usize,
        memory_max: usize,
        now: UnixTime,
    ) -> Result<Option<Action>, After> {
        let arguments = Arguments::new(request, &self.requests.arguments[first_argument..]);
        // Array requests can be parsed again from the same bytes. Inline requests cannot, because they lost their quotes.
        let may_wait = request[0] == b'*';
        let is_long = arguments.count() > LONG_COMMAND;
        let room = if self.multi.is_open() { self.room_in_transaction(memory_max) } else { 0 };
        if may_wait {
            self.admit(arguments, request.len(), room, memory_max)?;
            if !self.multi.is_open() {
                self.requests.operands.reserve(arguments.operand_memory());
            }
        }
        self.requests.size += request.len();
        if arguments.count() == 0 {
            return Ok(None);
        }
        let operands_before = self.requests.operands.bytes().len();
        let (login, ranges) = (&self.session.login, &self.requests.arguments[first_argument..]);
        let mut action = match self.multi.is_open() {
            false => Action::decode(arguments, self.space, self.spaces, &mut self.requests.operands, now, login),
            true => queue(&mut self.multi, request, ranges, room, self.spaces, login),
        };
        self.requests.work += login.limited().map_or(0, |user| user.keys().work(request.len()));
        if let Action::Isolated(_, Isolated::Watch) = action {
            let growth = watch_growth(arguments);
            if may_wait && growth > self.room_in_transaction(memory_max) {
                self.requests.size -= request.len();
                return Err(After::NeedsMemory(growth));
            }
            self.watch_room = growth;
        }
        // The numbers of a long command are converted in parts. Most commands have none.
        let is_ready = is_long || self.requests.operands.is_complete();
        let mut convert =
            || self.requests.operands.convert(arguments, LONG_COMMAND).map(|work| self.requests.work += work);
        if !is_ready && let Err(message) = convert() {
            action = Action::Refuse(message);
        }
        let operands = self.requests.operands.bytes().len().saturating_sub(operands_before);
        self.requests.work += DECODE_WORK + OPERAND_BYTE_WORK * operands;
        Ok(Some(action))
    }

    /// Adds a command that begins at `start`, with its arguments from `first_argument` on. Returns what follows.
    #[inline]
    fn push(&mut self, mut action: Action, start: usize, first_argument: usize) -> After {
        match &action {
            Action::Select(space) => self.space = *space,
            Action::Server(CommandName::Reset) => {
                self.space = Space::default();
                self.multi.close();
            }
            Action::Server(CommandName::Multi) => self.multi.open(),
            Action::Refuse(message) | Action::Close(message) => {
                self.requests.message_bytes += message.capacity();
                self.requests.work += TEXT_WORK * message.len();
            }
            _ => {}
        }
        let argument_count = self.requests.arguments.len() - first_argument;
        // The ordinary operations end at the first isolated command.
        self.requests.has_isolated |= action.is_isolated();
        if self.requests.has_isolated {
            action = action.isolated();
        }
        self.isolated.left += if action.is_isolated() { argument_count } else { 0 };
        let operation_count = action.operation_count(argument_count);
        self.replies.operations_left += operation_count;
        self.requests.counts_from_now |= action.counts_from_now();
        self.requests.ended |= action.is_last();
        let is_end = action.ends_batch() || action.is_barrier();
        if let Action::Isolated(_, Isolated::Exec(queue)) = &action {
            self.requests.queued_bytes += queue.capacity();
        }
        let (space, is_on_key) = (self.space, is_on_key(&action, operation_count));
        let command = Command { space, start, first_argument, argument_count, action, operation_count, is_on_key };
        self.requests.commands.push(command);
        self.requests.is_decoding = !self.requests.operands.is_complete();
        if is_end { After::End } else { After::Command }
    }

    /// Converts the next part of the last command's operands. An operand that is not a number refuses the command.
    /// Returns the work of the part.
    fn decode_operands(&mut self, input: &[u8]) -> usize {
        let command = self.requests.commands.last_mut().expect("a command waits for its operands");
        let work =
            match self.requests.operands.convert(command.arguments(input, &self.requests.arguments), OPERANDS_PART) {
                Ok(work) => work,
                Err(message) => {
                    self.replies.operations_left -= std::mem::take(&mut command.operation_count);
                    self.isolated.left -= if command.action.is_isolated() { command.argument_count } else { 0 };
                    self.requests.message_bytes += message.capacity();
                    command.action = Action::Refuse(message);
                    0
                }
            };
        self.requests.is_decoding = !self.requests.operands.is_complete();
        work
    }

    /// Returns the bytes of the input that the commands take.
    pub(crate) fn size(&self) -> usize {
        self.requests.size
    }

    /// Returns true if the last command waits for its operands, or a long one for the rest of its arguments.
    pub(crate) fn is_decoding(&self) -> bool {
        self.requests.is_decoding || self.parser.is_partial()
    }

    /// Returns the number of operations whose replies are not in the output.
    pub(crate) fn operations_left(&self) -> usize {
        self.replies.operations_left
    }

    /// Returns about how many operations isolated commands have that are not done.
    pub(crate) fn isolated_left(&self) -> usize {
        self.isolated.left
    }

    /// Returns the number of operations that were just decoded, or that of commands if it is larger.
    pub(crate) fn request_count(&self) -> usize {
        self.replies.operations_left.max(self.requests.commands.len())
    }

    /// Returns true if all replies are in the output.
    pub(crate) fn is_finished(&self) -> bool {
        self.replies.command == self.requests.commands.len() && !self.parser.is_partial()
    }

    /// Returns the number of operations of the next reply queue.
    pub(crate) fn queue_size(&self) -> usize {
        self.replies.operations_left.min(PARSED_OPERATIONS_MAX)
    }

    /// Forgets the commands. Returns the bytes of the input that they took.
    pub(crate) fn finish(&mut self) -> usize {
        self.requests.commands.clear();
        self.requests.commands.shrink_to(PARSED_OPERATIONS_MAX);
        self.requests.simple.clear();
        self.requests.simple.shrink_to(PARSED_OPERATIONS_MAX);
        self.requests.arguments.clear();
        self.requests.arguments.shrink_to(8 * PARSED_OPERATIONS_MAX);
        self.requests.operands.clear(PARSED_SIZE_MAX);
        (self.requests.message_bytes, self.requests.queued_bytes, self.watch_room) = (0, 0, 0);
        self.replies.command = 0;
        (self.requests.has_isolated, self.requests.counts_from_now) = (false, false);
        std::mem::take(&mut self.requests.size)
    }

    /// Returns true if a part of a reply may have been written, and the rest was not.
    pub(crate) fn is_within_reply(&self) -> bool {
        self.replies.is_begun || self.isolated.run.is_some()
    }

    /// Writes the replies that have arrived, in order, until the output is full.
    pub(crate) fn encode(&mut self, encoding: &mut Encoding<'_, '_>) {
        while self.replies.command < self.requests.commands.len() {
            if let Action::Run = self.requests.commands[self.replies.command].action {
                if self.encode_run(encoding) {
                    continue;
                }
                return;
            }
            if self.encode_keys(encoding) {
                continue;
            }
            let (index, reply_begin) = (self.replies.command, encoding.output.len());
            let is_done = self.encode_command(encoding);
            let Encoding { output, context, .. } = encoding;
            let is_error = !self.replies.is_begun && output.get(reply_begin) == Some(&b'-');
            if is_done && is_error {
                context.count_error(&output[reply_begin..]);
            }
            self.replies.is_begun = !is_done && (self.replies.is_begun || output.len() > reply_begin);
            if self.session.replies.is_silent() {
                // It has cost the turn as much as one that is sent.
                context.account.spend(output.len() - reply_begin);
                output.truncate(reply_begin);
            }
            if !is_done {
                return;
            }
            let login = &mut self.session.login;
            if login.counts_replies() && self.requests.commands[index].action.is_uncounted() {
                login.leave_uncounted(output.len() - reply_begin);
            }
            self.session.replies.end_command();
        }
    }

    /// Writes the replies of adjacent commands on keys that have arrived, until the output is full. Returns true if
    /// there was one. Leaves a command whose reply has begun, and commands that get no reply.
    fn encode_keys(&mut self, encoding: &mut Encoding<'_, '_>) -> bool {
        let Encoding { queue, replies, input, output, end, context } = encoding;
        let end = *end;
        let RespBatch { requests, replies: Replies { progress, command: next, .. }, session, .. } = self;
        let Requests { commands, arguments: ranges, .. } = requests;
        let is_on_key = |index: usize| commands.get(index).is_some_and(|command: &Command| command.on_key().is_some());
        if !session.replies.is_on() || self.replies.operation > 0 || output.len() > end || !is_on_key(*next) {
            return false;
        }
        let count = queue.take(usize::MAX, replies, |response| {
            let command = &commands[*next];
            let (name, on_key) = command.on_key().expect("it was looked at before");
            let begin = output.len();
            let mut writer = ReplyWriter::new(output, session.version);
            *next += 1;
            let arguments = command.arguments(input, ranges);
            on_key.reply(arguments, 0, response, progress, &mut writer);
            context.count_command(name, arguments, 1);
            on_key.finish(progress, &mut writer);
            progress.clear();
            if output.get(begin) == Some(&b'-') {
                context.count_error(&output[begin..]);
            }
            output.len() <= end && is_on_key(*next)
        });
        self.replies.operations_left -= count;
        count > 0
    }

    /// Writes what has arrived of the reply to the next command, until the output is full. Returns true if the
    /// reply is complete; the command after it is then the next one.
    fn encode_command(&mut self, encoding: &mut Encoding<'_, '_>) -> bool {
        let Encoding { queue, replies, input, output, end, context } = encoding;
        let end = *end;
        let RespBatch { requests, replies: Replies { progress, .. }, session, .. } = self;
        let Requests { commands, arguments: ranges, .. } = requests;
        let command = &commands[self.replies.command];
        if command.action.is_isolated() {
            return false;
        }
        let arguments = command.arguments(input, ranges);
        while self.replies.operation < command.operation_count {
            if output.len() > end {
                return false;
            }
            let Some(response) = queue.next(replies) else { return false };
            let elements = command.action.write_elements(response, progress, end, output, session.version, context);
            if elements == Some(false) || command.action.is_barrier() && !context.may_execute(false) {
                return false;
            }
            let left = end.saturating_sub(output.len());
            let mut writer = ReplyWriter::new(output, session.version);
            let continues = match &command.action {
                _ if elements.is_some() => false,
                Action::Keys(_, on_key) => {
                    on_key.reply(arguments, self.replies.operation, response, progress, &mut writer)
                }
                Action::Keyspace(on_all) => {
                    on_all.reply(arguments, response, progress, left, context.account, &mut writer)
                }
                _ => false,
            };
            if continues {
                queue.resubmit();
                return false;
            }
            queue.advance();
            self.replies.operation += 1;
            self.replies.operations_left -= 1;
        }
        if output.len() > end {
            return false;
        }
        let action = &command.action;
        if action.is_of_server() && (action.is_paused(context) || !context.may_execute(action.is_small(arguments))) {
            return false;
        }
        if !action.write_part(progress, end.saturating_sub(output.len()), output, session.version) {
            return false;
        }
        action.finish(arguments, progress, output, session, context);
        if context.outcome.is_postponed || context.outcome.held_until.is_some() {
            return false;
        }
        if action.ends_watch() {
            self.watched = None;
        }
        match action {
            Action::Keyspace(_) => *progress = Progress::default(),
            _ => progress.clear(),
        }
        self.replies.operation = 0;
        self.replies.command += 1;
        true
    }
}
