//! RESP commands: their operations on the stores or on the server, and their replies.
//!
//! A command that arrives becomes an [`Action`]. All names, options and numbers are checked before any operation is
//! submitted. If a command has several operations, so are all keys and values. So a command that is refused has no
//! effect. Its operations are made from its arguments when they are submitted, and its reply is made after the replies
//! of earlier commands. Error messages are those of Redis 7.2, because clients read them.
//!
//! Commands of several keys are isolated: see [`crate::transaction`].

mod acl_command;
mod acl_file;
mod acl_rules;
mod admin_command;
mod allowed;
mod bit_command;
mod bound;
#[cfg(test)]
mod bound_tests;
mod call_command;
mod client_command;
mod client_filter;
mod command_command;
mod config_command;
mod context;
mod decode;
#[cfg(test)]
mod decode_tests;
#[cfg(test)]
mod documented;
mod element_type;
mod elements;
mod error_messages;
mod expire_command;
mod expiry;
mod function_command;
mod info;
mod info_fields;
mod info_statistics;
mod invocation;
mod isolated;
mod isolated_command;
mod key_command;
mod keys;
mod keyspace_command;
mod lengths;
mod monitor_command;
mod monitor_line;
mod object_command;
mod operands;
mod part;
mod permission;
mod queue;
mod relative_times;
mod restore_command;
mod save_command;
mod scan_command;
mod server_command;
mod session;
mod set_command;
mod shown;
mod simple_command;
mod slow_entry;
mod slow_log_command;
mod string_command;
mod subcommands;
pub(crate) mod table;
mod vector_command;
mod work;

pub(crate) use acl_command::{list_denied_operation, note_administration, note_denied, note_refused_login};
pub(crate) use acl_file::{read as read_users, read_again as read_users_again};
pub(crate) use bound::{Bound, KeySums};
pub(crate) use context::{Context, Outcome};
pub(crate) use error_messages::{NOT_IN_TRANSACTION, store_error, wire_error};
pub(crate) use function_command::is_change as changes_functions;
pub(crate) use invocation::{Invocation, SessionOutput};
pub(crate) use isolated::{BitFunction, Isolated, SetMany};
pub(crate) use key_command::KeyCommand;
pub(crate) use keys::shards_of_key;
pub(crate) use lengths::Lengths;
pub(crate) use operands::Operands;
pub(crate) use permission::{FunctionsPermission, may_reset_statistics, may_use_functions, name_of_space};
pub(crate) use queue::{Growth, Multi, Queue, TooLong};
pub(crate) use scan_command::common_prefix;
pub(crate) use session::Session;
pub(crate) use simple_command::SimpleCommand;
#[cfg(test)]
pub(crate) use subcommands::full_names;
pub(crate) use table::{begins_with_key, command_name};

use std::time::Duration;

use skep_core::operation::{OperationError, Request};
use skep_wire::native::{CACHE_SPACE, ORDERED_SPACE};
use skep_wire::rdb::payload;
use skep_wire::resp::{Argument, ReplyWriter, Version, error_text};

use crate::access::Gate;
use crate::account::operations_work;
use crate::limits::{BIT_FIELD_ARGUMENT_SIZE, ELEMENT_SIZE_MAX, OPERATION_WORK, SERVER_ARGUMENTS_MAX};
use crate::unix_time::UnixTime;
use crate::vocabulary::KeyspaceOperation;
use crate::vocabulary::{Space, Spaces};
use error_messages::{
    DISCARDED, excerpt, is_rejection, not_for_caches, unknown_command, unknown_subcommand, wrong_argument_count,
};
use keyspace_command::{KeyspaceCommand, KeyspaceProgress};
use scan_command::Resume;
use table::CommandName;

/// A command that waits looks again after this time.
const LOOK_TIME: Duration = Duration::from_millis(5);

/// The version of Redis whose behaviour clients may expect.
const REDIS_VERSION: &str = "7.2.4";

/// The arguments of a request, the name of the command first.
#[derive(Clone, Copy)]
pub(crate) struct Arguments<'a> {
    request: &'a [u8],
    ranges: &'a [Argument],
}

impl<'a> Arguments<'a> {
    /// Creates the arguments that are at `ranges` of `request`.
    pub(crate) fn new(request: &'a [u8], ranges: &'a [Argument]) -> Self {
        Arguments { request, ranges }
    }

    /// Returns their number, with the name.
    pub(crate) fn count(self) -> usize {
        self.ranges.len()
    }

    /// Returns the argument at this index; the name is at 0.
    pub(crate) fn get(self, index: usize) -> &'a [u8] {
        &self.request[self.ranges[index].range()]
    }

    /// Returns the name. An empty request has none.
    #[inline]
    fn name(self) -> Option<&'a [u8]> {
        self.ranges.first().map(|argument| &self.request[argument.range()])
    }

    /// Returns the arguments from this index on.
    pub(crate) fn from(self, index: usize) -> impl Iterator<Item = &'a [u8]> {
        self.ranges[index..].iter().map(move |argument| &self.request[argument.range()])
    }

    /// Returns the bytes of all arguments.
    pub(crate) fn size(self) -> usize {
        self.ranges.iter().map(|argument| argument.range().len()).sum()
    }

    /// Returns the argument as text for an error message.
    pub(crate) fn text(self, index: usize) -> std::borrow::Cow<'a, str> {
        error_text(self.get(index))
    }

    /// Returns true if the argument is this word, in small or capital letters.
    pub(crate) fn is(self, index: usize, word: &str) -> bool {
        self.get(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// Returns the argument as a decimal number, as Redis takes it: without a plus, leading zeros and blanks.
    pub(crate) fn integer(self, index: usize) -> Option<i64> {
        decimal(self.get(index))
    }

    /// Returns the bytes of memory that the operands of the command need at most, before it is decoded.
    pub(crate) fn operand_memory(self) -> usize {
        let Some(name) = self.name() else { return 0 };
        let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
        match name.len() {
            // Commands of vectors are those that Redis does not have.
            5.. if name[..5].eq_ignore_ascii_case(b"SKEP.") => self.count() * ELEMENT_SIZE_MAX,
            7 if is(b"RESTORE") && self.count() > 3 => payload::value_size(self.get(3)),
            8 | 11 if is(b"BITFIELD") || is(b"BITFIELD_RO") => self.count() * BIT_FIELD_ARGUMENT_SIZE,
            _ => 0,
        }
    }
}

/// Returns the number in a text, as [`Arguments::integer`] does.
fn decimal(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    if text == "0" || matches!(digits.as_bytes(), [b'1'..=b'9', ..]) { text.parse().ok() } else { None }
}

/// The work of a command.
#[derive(Debug)]
pub(crate) enum Action {
    /// A run of simple commands, with an operation each. The parsed batch has them in a list of their own.
    Run,
    /// An operation on a key.
    Keys(CommandName, KeyCommand),
    /// An isolated command.
    Isolated(CommandName, Isolated),
    /// A command that was added to the transaction.
    Queued(CommandName),
    /// Operations on all keys of a space.
    Keyspace(KeyspaceCommand),
    /// A change to another space for the commands after it.
    Select(Space),
    /// A reply that the server makes itself.
    Server(CommandName),
    /// A refusal with this error message.
    Refuse(String),
    /// A refusal with this error message, and the end of the connection.
    Close(String),
}

/// An operation of a command.
pub(crate) enum CommandRequest<'a> {
    /// One on a key.
    Key(Request<'a>),
    /// One on all keys of a space. In the hash space, it is for this shard.
    Keyspace(Space, u16, KeyspaceOperation),
}

/// The replies to a command of several operations so far.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Keys for which something was done.
    done: i64,
    /// The first error.
    error: Option<OperationError>,
    /// The command was refused, and that reply is already written.
    refused: bool,
    /// The position of a count that takes more than one page.
    resume: Option<Resume>,
    /// Elements of a long vector that are written.
    written: usize,
    keyspace: KeyspaceProgress,
}

impl Progress {
    /// Forgets the replies to a command on keys, for the next command.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.done, self.error, self.refused, self.resume, self.written) = (0, None, false, None, 0);
    }

    /// Returns the bytes of memory held, besides those of a few keys.
    pub(crate) fn capacity(&self) -> usize {
        self.keyspace.capacity()
    }

    /// Returns the position of a count that takes more than one page.
    pub(crate) fn resume(&self) -> Option<&Resume> {
        self.resume.as_ref()
    }
}

impl Action {
    /// Decodes a command that the user may run, if it may use the keys: see [`Action::decode`].
    fn decode_allowed(
        name: CommandName,
        arguments: Arguments<'_>,
        space: Space,
        spaces: Spaces,
        operands: &mut Operands,
        now: UnixTime,
    ) -> Action {
        let info = name.info();
        if name == CommandName::Select {
            return select(arguments, spaces).map_or_else(Action::Refuse, Action::Select);
        }
        if info.needs_order && space != Space::Ordered {
            return Action::Refuse(store_error(OperationError::NotOrdered));
        }
        if !info.is_for_caches && space == Space::Cache {
            return Action::Refuse(not_for_caches(info.name));
        }
        // Most commands are on keys.
        match decode::key_command(name, arguments, operands, spaces.functions, now) {
            Ok(Some(command)) => {
                return match command.validate(arguments, operands.bytes()) {
                    Ok(()) if command.operation_count(arguments.count()) > 1 => {
                        Action::Isolated(name, Isolated::Keys(command))
                    }
                    Ok(()) => Action::Keys(name, command),
                    Err(error) => Action::Refuse(store_error(error)),
                };
            }
            Ok(None) => {}
            Err(message) => return Action::Refuse(message),
        }
        if let Some(command) = keyspace_command::decode(name, arguments, space, spaces) {
            return command.map_or_else(Action::Refuse, Action::Keyspace);
        }
        match isolated_command::decode(name, arguments, space, spaces, now) {
            Ok(Some(command)) => Action::Isolated(name, command),
            // `COMMAND` has bounds of its own for the names after its subcommands.
            Ok(None) if arguments.count() > SERVER_ARGUMENTS_MAX && name != CommandName::Command => {
                Action::Refuse(wrong_argument_count(info.name))
            }
            Ok(None) => Action::Server(name),
            Err(message) => Action::Refuse(message),
        }
    }

    /// Returns the name of the command, or a refusal: if there is none, if it has another number of arguments or no such
    /// subcommand, or if its client must log in first.
    fn name(arguments: Arguments<'_>, gate: Gate) -> Result<CommandName, Action> {
        let Some(name) = CommandName::find(arguments.get(0)) else {
            // A web page can make a browser send an HTTP request to a port of its machine, with commands in the body.
            if arguments.is(0, "POST") || arguments.is(0, "Host:") {
                return Err(Action::Close("ERR Protocol error: HTTP is not spoken here".to_owned()));
            }
            // Some clients ask every server if it belongs to a cluster, and know this error.
            if arguments.is(0, "CLUSTER") && arguments.count() > 1 {
                return Err(Action::Refuse("ERR This instance has cluster support disabled".to_owned()));
            }
            return Err(Action::Refuse(unknown_command(arguments)));
        };
        let info = name.info();
        let count = arguments.count() as i64;
        let message = if (info.arity >= 0 && count != info.arity) || count < -info.arity {
            wrong_argument_count(info.name)
        } else if let Err(message) = subcommands::check(name, arguments) {
            message
        } else if gate == Gate::Locked && !info.has("no_auth") {
            "NOAUTH Authentication required.".to_owned()
        } else {
            return Ok(name);
        };
        Err(Action::Refuse(match name {
            CommandName::Exec => format!("{DISCARDED} of: {}", message.trim_start_matches("ERR ")),
            _ => message,
        }))
    }

    /// Returns true if the command is isolated: the shard runs it when its turn in the replies comes.
    #[inline]
    pub(crate) fn is_isolated(&self) -> bool {
        matches!(self, Action::Isolated(..))
    }

    /// Returns the command as an isolated one, if it is on keys.
    pub(crate) fn isolated(self) -> Action {
        match self {
            Action::Keys(name, command) => Action::Isolated(name, Isolated::Keys(command)),
            action => action,
        }
    }

    /// Returns true if the server replies to nothing that follows on the connection.
    pub(crate) fn is_last(&self) -> bool {
        matches!(self, Action::Server(CommandName::Quit) | Action::Close(_))
    }

    /// Returns true if the server makes the reply itself.
    pub(crate) fn is_of_server(&self) -> bool {
        !matches!(self, Action::Run | Action::Keys(..) | Action::Keyspace(_))
    }

    /// Returns true if the command must wait for the end of a pause. Commands that end a pause, or their connection, do
    /// not wait.
    pub(crate) fn is_paused(&self, context: &mut Context<'_>) -> bool {
        use CommandName::{Client, Quit, Shutdown};
        let Some(pause) = context.pause else { return false };
        let waits = match self {
            Action::Server(Client | Quit | Shutdown) | Action::Close(_) => false,
            Action::Isolated(_, Isolated::Exec(queue)) => !pause.writes_only || queue.writes(),
            Action::Server(name) | Action::Queued(name) | Action::Isolated(name, _) => {
                !pause.writes_only || name.info().has("write")
            }
            _ => !pause.writes_only,
        };
        if waits {
            context.outcome.held_until = Some(pause.until);
        }
        waits
    }

    /// Returns true if the commands after it belong to the next parsed batch, because they must not be decoded or
    /// executed before its reply is made: it counts the pairs of the stores, takes memory for keys that it watches, loads
    /// the functions that they name, or decides if later commands are allowed, must wait, or find the connection at its end.
    pub(crate) fn ends_batch(&self) -> bool {
        use CommandName::{Acl, Auth, Client, Hello, Info, Monitor, Reset, Shutdown, SkepFunction};
        match self {
            Action::Server(name) => {
                matches!(name, Acl | Auth | Client | Hello | Info | Monitor | Reset | Shutdown | SkepFunction)
            }
            Action::Isolated(_, Isolated::Exec(queue)) => queue.ends_batch(),
            Action::Isolated(_, Isolated::Watch) => true,
            _ => false,
        }
    }

    /// Returns true if the command counts the pairs of the stores.
    pub(crate) fn reads_statistics(&self) -> bool {
        matches!(self, Action::Server(CommandName::Info))
    }

    /// Returns true if the operations of the command begin when all operations of the connection before them are done,
    /// and those after it begin when they are done.
    pub(crate) fn is_barrier(&self) -> bool {
        matches!(self, Action::Keyspace(_))
    }

    /// Returns true if the connection watches no keys after the command.
    pub(crate) fn ends_watch(&self) -> bool {
        use CommandName::{Discard, Exec, Reset, Unwatch};
        matches!(self, Action::Server(Discard | Exec | Reset | Unwatch)) || self.discards()
    }

    /// Returns true if the command is a wrong `EXEC`, which discards the transaction.
    pub(crate) fn discards(&self) -> bool {
        matches!(self, Action::Refuse(message) if message.starts_with(DISCARDED))
    }

    /// Returns the number of operations of a command of this many arguments.
    #[inline]
    pub(crate) fn operation_count(&self, argument_count: usize) -> usize {
        match self {
            Action::Keys(_, command) => command.operation_count(argument_count),
            Action::Keyspace(command) => command.operation_count(),
            _ => 0,
        }
    }

    /// Returns an operation of the command; `progress` has the replies so far.
    pub(crate) fn request<'a>(
        &self,
        arguments: Arguments<'a>,
        operands: &'a [u8],
        index: usize,
        progress: Option<&'a Progress>,
    ) -> CommandRequest<'a> {
        match self {
            Action::Keys(_, command) => {
                let resume = progress.and_then(|progress| progress.resume.as_ref());
                CommandRequest::Key(command.request(arguments, operands, index, resume))
            }
            Action::Keyspace(command) => {
                let progress = progress.map(|progress| &progress.keyspace);
                let (space, shard, operation) = command.request(arguments, index, progress);
                CommandRequest::Keyspace(space, shard, operation)
            }
            _ => unreachable!("only commands on keys have operations of their own"),
        }
    }

    /// Writes the next part of a reply that takes more than one turn, about `room` bytes. Returns true if there is none.
    pub(crate) fn write_part(
        &self,
        progress: &mut Progress,
        room: usize,
        output: &mut Vec<u8>,
        version: Version,
    ) -> bool {
        match self {
            Action::Keyspace(command) => command.finish(progress, room, output, version),
            _ => true,
        }
    }

    /// Writes the part of the reply that follows all operations.
    pub(crate) fn finish(
        &self,
        arguments: Arguments<'_>,
        progress: &Progress,
        output: &mut Vec<u8>,
        session: &mut Session,
        context: &mut Context<'_>,
    ) {
        context.outcome.executed = None;
        match self {
            Action::Keys(name, command) => {
                context.count_command(*name, arguments, command.operation_count(arguments.count()));
                command.finish(progress, &mut ReplyWriter::new(output, session.version));
            }
            Action::Run => unreachable!("each command of a run is finished by itself"),
            Action::Isolated(..) => unreachable!("the shard runs isolated commands"),
            Action::Keyspace(command) => {
                context.count_command(command.name, arguments, 0);
            }
            Action::Queued(_) => {
                context.account.spend(OPERATION_WORK);
                ReplyWriter::new(output, session.version).simple("QUEUED");
            }
            Action::Select(space) => {
                context.account.spend(OPERATION_WORK);
                if let Some(client) = context.shared.clients().get_mut(&context.connection) {
                    client.space = *space;
                }
                context.count_command(CommandName::Select, arguments, 0);
                ReplyWriter::new(output, session.version).simple("OK");
            }
            Action::Server(name) => {
                let before = output.len();
                let reply = server_command::run(*name, arguments, output, session, context);
                context.account.spend(operations_work(1, name.text_work(output.len() - before)));
                if context.outcome.is_postponed || context.outcome.held_until.is_some() {
                    return;
                }
                context.count_command(*name, arguments, 0);
                acl_command::audit(*name, arguments, reply.is_ok(), session, context);
                if let Err(message) = reply {
                    ReplyWriter::new(output, session.version).error(&message);
                }
            }
            Action::Refuse(message) => {
                context.account.spend(OPERATION_WORK);
                match CommandName::find(arguments.get(0)) {
                    Some(name) if is_rejection(message) => {
                        acl_command::note_denial(message, name, arguments, session, context);
                        context.shared.metrics(context.shard).commands.of(name as usize).rejected.add(1);
                    }
                    Some(name) => context.count_command(name, arguments, 0),
                    None => {}
                }
                ReplyWriter::new(output, session.version).error(message);
            }
            Action::Close(message) => {
                context.shared.metrics(context.shard).protocol_errors.add(1);
                ReplyWriter::new(output, session.version).error(message);
                context.outcome.closing = true;
            }
        }
    }
}

/// Returns the space that a `SELECT` chooses, if there is one of this number.
pub(crate) fn chosen_space(arguments: Arguments<'_>, spaces: Spaces) -> Option<Space> {
    chosen_space_at(arguments, 1, spaces)
}

/// Returns the space whose number is the argument at this index, if there is one.
fn chosen_space_at(arguments: Arguments<'_>, index: usize, spaces: Spaces) -> Option<Space> {
    u16::try_from(arguments.integer(index)?).ok().and_then(|number| spaces.find(number))
}

/// Returns the space that a `SELECT` chooses, or the error message.
fn select(arguments: Arguments<'_>, spaces: Spaces) -> Result<Space, String> {
    let number = arguments.integer(1).ok_or("ERR value is not an integer or out of range")?;
    chosen_space(arguments, spaces).ok_or_else(|| match u16::try_from(number) {
        Ok(ORDERED_SPACE) => "ERR DB index is out of range: the ordered space is switched off; restart with \
                              --ordered-memory SIZE"
            .to_owned(),
        Ok(CACHE_SPACE) => {
            "ERR DB index is out of range: the cache space is switched off; restart with --cache-memory SIZE".to_owned()
        }
        _ => "ERR DB index is out of range".to_owned(),
    })
}
