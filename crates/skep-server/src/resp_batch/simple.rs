//! The simple commands of a parsed batch: one operation on one key each, and the most frequent commands.
//!
//! ```text
//!   commands   │ run of 40 │ MGET │ run of 7 │ …        a run is one command with as many operations
//!                │             │      └──────────────┐
//!   simple     │ GET │ SET │ … │ GET │ … │             28 bytes each
//! ```
//!
//! Each loop over the commands of a run does one step for all of them: one decodes ([`RespBatch::take_run`]), one makes the
//! requests ([`super::RespOperations`]), one writes the replies ([`RespBatch::encode_run`]).

use skep_wire::native::Response;
use skep_wire::resp::{Argument, ReplyWriter, ShortRequest};

use skep_core::operation::{PlainRequest, Request};

use super::{Command, Replies, RespBatch};
use crate::encoding::Encoding;
use crate::limits::{DECODE_WORK, PARSED_OPERATIONS_MAX, PARSED_SIZE_MAX};
use crate::resp_command::table::CommandName;
use crate::resp_command::{Action, Arguments, Context, Progress, Session, SimpleCommand};
use crate::vocabulary::make_room;

/// A simple command of a run. The arguments are in the input of the parsed batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimpleRequest {
    name: CommandName,
    command: SimpleCommand,
    /// The position of the request.
    start: u32,
    key: Argument,
    /// The value, or nothing.
    value: Argument,
}

impl SimpleRequest {
    /// Decodes the request at a position of the input, if it is an array and a simple command. Returns its size too.
    #[inline(always)]
    fn decode(input: &[u8], start: usize) -> Option<(SimpleRequest, usize)> {
        let request = &input[start..];
        let ShortRequest { name, key, value, size } = ShortRequest::parse(request)?;
        let (name, command) = match (&request[name.range()], value) {
            // The most frequent ones, as most clients write them.
            (b"GET", None) => (CommandName::Get, SimpleCommand::Get),
            (b"SET", Some(_)) => (CommandName::Set, SimpleCommand::Set),
            (name, value) => {
                let name = CommandName::find(name)?;
                (name, SimpleCommand::find(name, 2 + usize::from(value.is_some()))?)
            }
        };
        let value = value.map_or(Argument::EMPTY, |value| value.at(start));
        Some((SimpleRequest { name, command, start: start as u32, key: key.at(start), value }, size))
    }

    /// Returns the operation, if that is a get or a plain put.
    #[inline(always)]
    pub(super) fn plain(self, input: &[u8]) -> Option<PlainRequest<'_>> {
        self.command.plain(&input[self.key.range()], &input[self.value.range()])
    }

    /// Returns the operation.
    pub(super) fn request(self, input: &[u8]) -> Request<'_> {
        self.command.request(&input[self.key.range()], &input[self.value.range()])
    }

    /// Writes the reply, if that is an error or if the command is shown to those who want to see it.
    #[cold]
    fn write_other(
        self,
        response: Response<'_>,
        input: &[u8],
        progress: &mut Progress,
        output: &mut Vec<u8>,
        session: &Session,
        context: &mut Context<'_>,
    ) {
        let request = &input[self.start as usize..];
        let ShortRequest { name, key, value, .. } = ShortRequest::parse(request).expect("it was decoded before");
        let ranges = [name, key, value.unwrap_or(Argument::EMPTY)];
        let arguments = Arguments::new(request, &ranges[..2 + usize::from(value.is_some())]);
        let (begin, command) = (output.len(), self.command.on_key());
        let mut writer = ReplyWriter::new(output, session.version);
        command.reply(arguments, 0, response, progress, &mut writer);
        context.count_command(self.name, arguments, 1);
        command.finish(progress, &mut writer);
        progress.clear();
        if output.get(begin) == Some(&b'-') {
            context.count_error(&output[begin..]);
        }
    }
}

impl RespBatch {
    /// Takes the simple commands at the head of the input that is left, as a run. Returns false if the next command is
    /// another one, or has not arrived as a whole.
    #[inline]
    pub(super) fn take_run(&mut self, input: &[u8], memory_max: usize) -> bool {
        if self.multi.is_open() || self.requests.has_isolated || !self.parser.is_at_begin() {
            return false;
        }
        let held = self.capacity() - self.requests.simple.capacity() * size_of::<SimpleRequest>();
        let is_first = self.requests.commands.is_empty();
        let simple = &mut self.requests.simple;
        let first = simple.len();
        let taken = self.replies.operations_left + self.requests.commands.len() + first;
        // Each takes the place of an operation and of a command.
        let count_max = (2 * PARSED_OPERATIONS_MAX - taken).div_ceil(2);
        let mut size = self.requests.size;
        while simple.len() - first < count_max && size < PARSED_SIZE_MAX {
            let Some((request, request_size)) = SimpleRequest::decode(input, size) else { break };
            let is_allowed = is_first || held + size_of::<SimpleRequest>() <= memory_max;
            if simple.len() == simple.capacity() && !(is_allowed && make_room(simple, held, memory_max)) {
                break;
            }
            simple.push(request);
            size += request_size;
        }
        let count = simple.len() - first;
        if count == 0 {
            return false;
        }
        let start = std::mem::replace(&mut self.requests.size, size);
        self.requests.work += DECODE_WORK * count;
        self.replies.operations_left += count;
        self.requests.commands.push(Command {
            space: self.space,
            start,
            first_argument: first,
            argument_count: 0,
            action: Action::Run,
            operation_count: count,
            is_on_key: false,
        });
        true
    }

    /// Writes the replies to the run of simple commands that is the next command, as far as they have arrived and until the
    /// output is full. Returns true if all are written: then the command after the run is the next one.
    pub(super) fn encode_run(&mut self, encoding: &mut Encoding<'_, '_>) -> bool {
        let Encoding { queue, replies, input, output, end, context } = encoding;
        let end = *end;
        let RespBatch {
            requests,
            replies: Replies { progress, command: index, operation: next, operations_left, .. },
            session,
            ..
        } = self;
        let run = requests.commands[*index].run(&requests.simple);
        let shows_commands = context.shows_commands();
        while *next < run.len() && output.len() <= end {
            // Each that gets no reply is looked at by itself.
            let count_max = if session.replies.is_on() { run.len() } else { *next + 1 };
            let begin = output.len();
            let mut alike = Alike { name: run[*next].name, count: 0 };
            let mut requests = run[*next..count_max].iter();
            let count = queue.take(count_max - *next, replies, |response| {
                let request = requests.next().expect("there are as many requests as replies");
                let mut writer = ReplyWriter::new(output, session.version);
                if shows_commands || !request.command.write(response, &mut writer) {
                    // The commands before it come first, so that the last one is known.
                    alike.restart(request.name, context);
                    request.write_other(response, input, progress, output, session, context);
                } else {
                    if alike.name != request.name {
                        alike.restart(request.name, context);
                    }
                    alike.count += 1;
                }
                output.len() <= end
            });
            alike.restart(alike.name, context);
            *next += count;
            *operations_left -= count;
            if count == 0 {
                return false;
            }
            if !session.replies.is_on() {
                if session.replies.is_silent() {
                    // It has cost the turn as much as one that is sent.
                    context.account.spend(output.len() - begin);
                    output.truncate(begin);
                }
                session.replies.end_command();
            }
        }
        if *next < run.len() {
            return false;
        }
        (*index, *next) = (*index + 1, 0);
        true
    }
}

impl Command {
    /// Returns the requests of a run, of those of all runs.
    #[inline]
    pub(super) fn run<'s>(&self, simple: &'s [SimpleRequest]) -> &'s [SimpleRequest] {
        match self.action {
            Action::Run => &simple[self.first_argument..][..self.operation_count],
            _ => &[],
        }
    }
}

/// Adjacent commands of one name that were executed, and are not yet counted.
struct Alike {
    name: CommandName,
    count: usize,
}

impl Alike {
    /// Counts them, and begins with no command of this name.
    #[inline]
    fn restart(&mut self, name: CommandName, context: &mut Context<'_>) {
        if self.count > 0 {
            context.count_alike(self.name, self.count);
        }
        *self = Alike { name, count: 0 };
    }
}
