//! The run of an isolated command, step by step.
//!
//! 1. A step executes operations on the stores that the shard has, and writes the replies to the output of the
//!    connection.
//! 2. It ends when the command is done, or when a store defers all that is left, or after the operations of a turn. The
//!    next step continues. The stores stay with the command meanwhile.
//! 3. A command that only reads, or deletes, and is longer than [`ISOLATED_READS_MAX`], or whose replies are more than
//!    its permit allows, is run in parts: it *pauses*, and other operations may be executed before the next part.
//! 4. A transaction never pauses. It is admitted whole or refused whole, before anything of it is executed
//!    (`forecast.rs`). So is any other command that cannot be run in parts.

use std::cell::Cell;
use std::time::Instant;

use skep_core::operation::{Operation, OperationError, Reply, Request, StringRead};
use skep_store::hash::Room;
use skep_wire::partition::Partition;
use skep_wire::resp::{ReplyWriter, Version};

use super::exec::Transaction;
use super::forecast::{Commands, Forecast, Verdict};
use super::several;
use crate::account::operations_work;
use crate::limits::{
    ISOLATED_PART_MAX, ISOLATED_READ_SIZE, ISOLATED_READS_MAX, ISOLATED_REPLY_MAX, ISOLATED_WORK_SIZE, TEXT_WORK,
    TRANSACTION_WORK_MAX, WATCHED_KEYS_MAX,
};
use crate::memory_budget::ReplyAccount;
use crate::resp_command::table::CommandName;
use crate::resp_command::{Arguments, Bound, Context, Isolated, KeyCommand, Progress, Session, store_error};
use crate::spaces::{Stores, Window};
use crate::vocabulary::{Extents, Space, Spaces, Step};
use crate::watches::Watched;

/// The stores, the connection and the time of a step.
pub(crate) struct Environment<'e, 's, 'c> {
    /// The stores of the shards that the command involves.
    pub(crate) stores: &'e mut Stores<'s>,
    pub(crate) partition: &'e Partition,
    pub(crate) context: &'e mut Context<'c>,
    /// The keys that the connection watches.
    pub(crate) watched: &'e mut Option<Box<Watched>>,
    pub(crate) spaces: Spaces,
    /// The account that permits the replies of a transaction.
    pub(crate) replies: ReplyAccount<'e>,
    pub(crate) now: Instant,
    /// Operations that may still be executed in this turn.
    pub(crate) left: usize,
    /// The part of it that an operation takes.
    pub(crate) operation_work: usize,
    /// Operations that were executed.
    pub(crate) executed: usize,
    /// Work of the operations, in bytes touched.
    pub(crate) touched: usize,
}

/// The course of a command that has begun.
#[derive(Debug, Default)]
pub(super) struct Course {
    pub(super) phase: u8,
    /// Index of the first operation that is not done.
    pub(super) next: usize,
    pub(super) window: Window,
    /// The window of the writes, while the other one has what they write.
    pub(super) writes: Window,
    /// A value that is computed or copied.
    pub(super) kept: Vec<u8>,
    /// The room that the writes need in each shard.
    pub(super) rooms: Vec<(u16, Room)>,
    pub(super) progress: Progress,
    /// A part of the reply is written.
    pub(super) is_reply_begun: bool,
    /// Bytes of replies, and operations, since the last pause.
    pub(super) written: usize,
    since_pause: usize,
}

impl Course {
    /// Begins anew, with the memory of the windows.
    pub(super) fn reset(&mut self) {
        let Course { mut window, mut writes, mut rooms, .. } = std::mem::take(self);
        window.end();
        writes.end();
        rooms.clear();
        *self = Course { window, writes, rooms, ..Course::default() };
    }

    /// Pauses between two parts. It may wait for the memory of the next part, so it holds none meanwhile: values that it
    /// has read and not written are read again. Only a command that reads pauses within a window.
    fn pause(&mut self) {
        self.next += self.window.taken();
        self.window = Window::default();
        (self.written, self.since_pause) = (0, 0);
    }
}

/// The run of an isolated command.
#[derive(Debug, Default)]
pub(crate) struct Run {
    course: Course,
    /// The forecast of the commands, if they are not yet admitted.
    forecast: Option<Forecast>,
    /// What the commands take at most, if they are admitted, and what they have taken.
    admitted: Option<Bound>,
    taken: Bound,
    transaction: Option<Transaction>,
}

thread_local! {
    /// The memory of the last run: an isolated command allocates nothing. A shard has a thread of its own.
    static SPARE: Cell<Option<Box<Run>>> = const { Cell::new(None) };
}

impl Environment<'_, '_, '_> {
    /// Returns the extents of the spaces, of which all shards are held.
    pub(super) fn extents(&self) -> Extents {
        let (hash, ordered) = self.stores.extents();
        Extents { spaces: self.spaces, hash, ordered, clients: self.context.shared.clients().len() }
    }

    /// Counts work of a command besides its operations, as that of this number of them. Fails if there is no time for it in
    /// this turn.
    pub(super) fn work(&mut self, count: usize) -> Result<(), Step> {
        if self.left == 0 {
            return Err(Step::More);
        }
        self.spend_on(count);
        Ok(())
    }

    /// Counts work of a command besides its operations, as that of this number of them.
    pub(super) fn spend_on(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count * self.operation_work);
        self.context.account.spend_operations(count, 0);
    }

    /// Executes the operations of a window that have no reply. Fails if none can be executed now.
    pub(super) fn execute<'a>(
        &mut self,
        window: &mut Window,
        request: impl Fn(usize) -> (Space, Request<'a>),
    ) -> Result<(), Step> {
        if self.left == 0 {
            return Err(Step::More);
        }
        let before = window.size();
        let executed = self.stores.execute_window(window, self.partition, self.context.connection, self.now, request);
        let bytes = executed.bytes.max(window.size() - before);
        self.spend(executed.operations, bytes);
        #[cfg(test)]
        if self.stores.is_broken && !window.is_complete() {
            return Err(Step::More);
        }
        if executed.operations == 0 { Err(Step::Wait) } else { Ok(()) }
    }

    /// Spends the work of operations that have touched this many bytes.
    pub(super) fn spend(&mut self, operations: usize, bytes: usize) {
        self.left = self.left.saturating_sub(operations * self.operation_work + bytes / ISOLATED_WORK_SIZE);
        self.executed += operations;
        self.context.account.spend_operations(operations, bytes);
        self.touched += operations_work(operations, bytes);
    }

    /// Reads a value, and calls `take` with each part of it in order. Parts of [`ISOLATED_READ_SIZE`] stay in the cache of
    /// the processor until they are taken, so that a value passes through memory once. Returns false if the key does not exist.
    ///
    /// Time stands still within a step. If the step ends after `take` was called, the caller begins anew, because the key may
    /// expire until the next one.
    pub(super) fn read_value(
        &mut self,
        (space, key): (Space, &[u8]),
        mut take: impl FnMut(&[u8]),
    ) -> Result<Result<bool, OperationError>, Step> {
        if self.left == 0 {
            return Err(Step::More);
        }
        let mut offset = 0;
        loop {
            let (start, end) = (offset as i64, (offset + ISOLATED_READ_SIZE) as i64 - 1);
            let request = Request { key, operation: Operation::StringRead(StringRead::Slice { start, end }) };
            let owner = self.context.connection;
            let (read, executed) =
                self.stores.execute_one((space, request), self.partition, owner, self.now, |reply| match reply {
                    Reply::Value(part) => {
                        take(part);
                        Ok(Some(part.len()))
                    }
                    Reply::Failed(error) => Err(error),
                    _ => Ok(None),
                });
            let size = if let Some(Ok(Some(size))) = read { size } else { 0 };
            self.spend(executed.operations, executed.bytes.max(size));
            offset += size;
            match read {
                None => return Err(Step::Wait),
                Some(Err(error)) => return Ok(Err(error)),
                Some(Ok(None)) => return Ok(Ok(false)),
                Some(Ok(Some(size))) if size < ISOLATED_READ_SIZE => return Ok(Ok(true)),
                Some(Ok(Some(_))) => {}
            }
        }
    }

    /// Gives a command the buffer of the shard for a value, unless it has one.
    pub(super) fn buffer<'b>(&mut self, kept: &'b mut Vec<u8>) -> &'b mut Vec<u8> {
        if kept.capacity() == 0 {
            *kept = std::mem::take(&mut self.stores.spare_value);
            kept.clear();
        }
        kept
    }

    /// Executes all operations of a window.
    pub(super) fn complete<'a>(
        &mut self,
        window: &mut Window,
        request: impl Fn(usize) -> (Space, Request<'a>),
    ) -> Result<(), Step> {
        while !window.is_complete() {
            self.execute(window, &request)?;
        }
        Ok(())
    }
}

impl Run {
    /// Begins a run, with the memory of the last one of this thread.
    pub(crate) fn begin() -> Box<Run> {
        SPARE.take().unwrap_or_default()
    }

    /// Ends the run, and keeps some of its memory for another one.
    pub(crate) fn end(mut self: Box<Run>) {
        self.course.reset();
        (self.transaction, self.forecast, self.admitted, self.taken) = (None, None, None, Bound::default());
        SPARE.set(Some(self));
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        let of_transaction = self.transaction.as_ref().map_or(0, Transaction::capacity);
        let Course { window, writes, kept, .. } = &self.course;
        let of_forecast = self.forecast.as_ref().map_or(0, Forecast::capacity);
        window.capacity() + writes.capacity() + kept.capacity() + of_transaction + of_forecast
    }

    /// Returns the work of commands that do not begin yet.
    pub(super) fn forecast(
        &mut self,
        commands: Commands<'_>,
        space: Space,
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<usize, Step> {
        self.course.reset();
        let work = Forecast::new(space).work(commands, space, &mut self.course, environment);
        self.course.reset();
        environment.touched = 0;
        work
    }

    /// Continues a command. Returns the space that is chosen after it, or the reason why it is not done.
    pub(crate) fn step(
        &mut self,
        name: CommandName,
        command: &Isolated,
        (arguments, operands, space): (Arguments<'_>, &[u8], Space),
        (output, session): (&mut Vec<u8>, &mut Session),
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<Space, Step> {
        let commands = match command {
            Isolated::Exec(queue) => Some(Commands::Queue(queue)),
            // They are run in parts, or are short.
            Isolated::Keys(_) | Isolated::Watch => None,
            _ => Some(Commands::One(name, arguments)),
        };
        let begin = output.len();
        if let Some(commands) = commands
            && self.admitted.is_none()
            && let Some(refusal) = self.admit(commands, space, environment)?
        {
            refusal.write(name, &mut ReplyWriter::new(output, session.version));
            environment.context.count_command(name, arguments, command.weight(arguments.count()));
            if output.get(begin) == Some(&b'-') {
                environment.context.count_error(&output[begin..]);
            }
            if session.replies.is_silent() {
                output.truncate(begin);
            }
            return Ok(space);
        }
        let done = self.run(name, command, (arguments, operands, space), (output, session), environment);
        if let Some(admitted) = self.admitted {
            self.taken.add(Bound { work: environment.touched, reply: output.len() - begin });
            let Bound { work, reply } = self.taken;
            debug_assert!(work <= admitted.work && reply <= admitted.reply, "{work} and {reply} of {admitted:?}");
        }
        done
    }

    /// Continues a command that is admitted, as [`Run::step`] does.
    fn run(
        &mut self,
        name: CommandName,
        command: &Isolated,
        (arguments, operands, space): (Arguments<'_>, &[u8], Space),
        (output, session): (&mut Vec<u8>, &mut Session),
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<Space, Step> {
        let Run { course, transaction, .. } = self;
        let Isolated::Exec(queue) = command else {
            let parts = (arguments, operands, space);
            step(name, command, course, parts, true, (output, session), environment)?;
            return Ok(space);
        };
        let transaction = match transaction {
            Some(transaction) => transaction,
            None => {
                let begin = output.len();
                ReplyWriter::new(output, session.version).array(queue.len());
                if session.replies.is_silent() {
                    output.truncate(begin);
                }
                transaction.insert(Transaction::new(space, queue.len()))
            }
        };
        while transaction.decode(queue, environment) {
            transaction.step(queue, course, (output, session), environment)?;
        }
        environment.context.count_command(name, arguments, command.weight(arguments.count()));
        Ok(transaction.space())
    }
}

impl Run {
    /// Returns the most bytes of the replies of commands that wait for room for them.
    pub(crate) fn reply_needed(&self) -> usize {
        self.forecast.as_ref().map_or(0, Forecast::reply_max)
    }

    /// Continues the admission of commands that are executed whole. Returns the reason if they are refused.
    fn admit(
        &mut self,
        commands: Commands<'_>,
        space: Space,
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<Option<Refused>, Step> {
        let Run { course, forecast, .. } = self;
        let is_exec = matches!(commands, Commands::Queue(_));
        if forecast.is_none() && is_exec && !is_valid(course, environment)? {
            *environment.watched = None;
            return Ok(Some(Refused::Changed));
        }
        let forecast = forecast.get_or_insert_with(|| {
            course.reset();
            Forecast::new(space)
        });
        let verdict = forecast.step(commands, space, course, environment)?;
        self.forecast = None;
        self.course.reset();
        environment.touched = 0;
        if is_exec {
            *environment.watched = None;
        }
        Ok(match verdict {
            Verdict::Admitted(bound) => {
                self.admitted = Some(bound);
                None
            }
            Verdict::TooMuchWork(work) => Some(Refused::Work(work)),
            Verdict::TooLargeReplies(size) => Some(Refused::Replies(size, environment.replies.most())),
        })
    }
}

/// The reason why commands are refused that are executed whole, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// A key that the connection watches has changed.
    Changed,
    /// They would take this work.
    Work(usize),
    /// They may have replies of these bytes, and the connection may hold those.
    Replies(usize, usize),
}

impl Refused {
    fn write(self, name: CommandName, writer: &mut ReplyWriter<'_>) {
        let reason = match self {
            Refused::Changed => return writer.null_array(),
            Refused::Work(work) => format!(
                "may touch {work} bytes, more than the limit of {TRANSACTION_WORK_MAX}: use fewer or shorter values"
            ),
            Refused::Replies(size, most) => format!(
                "may have replies of {size} bytes, more than the {most} that this connection may hold: read fewer values, \
                 or raise --connection-memory"
            ),
        };
        match name {
            CommandName::Exec => writer.error(&format!("EXECABORT Transaction discarded because it {reason}")),
            _ => writer.error(&format!("ERR '{}' {reason}", name.text())),
        }
    }
}

/// Returns true if no key that the connection watches has changed or expired.
fn is_valid(course: &mut Course, environment: &mut Environment<'_, '_, '_>) -> Result<bool, Step> {
    let Some(watched) = environment.watched.take() else { return Ok(true) };
    let keys: Vec<_> = watched.keys().iter().filter(|key| key.existed).collect();
    if !course.window.is_open() {
        course.window.begin(keys.len());
    }
    let completed = environment.complete(&mut course.window, |index| {
        (keys[index].space, Request { key: &keys[index].key, operation: Operation::Contains })
    });
    let all_exist = (0..course.window.len()).all(|index| course.window.response(index) == Ok(Reply::Done));
    let is_valid = all_exist && !watched.is_dirty();
    *environment.watched = Some(watched);
    completed.map(|()| is_valid)
}

/// Continues a command that is no transaction. Counts it when it is done, and drops its reply if the client wants none.
pub(super) fn step(
    name: CommandName,
    command: &Isolated,
    course: &mut Course,
    (arguments, operands, space): (Arguments<'_>, &[u8], Space),
    may_pause: bool,
    (output, session): (&mut Vec<u8>, &mut Session),
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    let begin = output.len();
    let parts = (arguments, operands, space);
    let done = execute(command, course, parts, may_pause, (output, session.version), environment);
    if done.is_ok() {
        environment.context.count_command(name, arguments, command.weight(arguments.count()));
        count_error(course, &output[begin..], environment);
        if course.kept.capacity() > 0 {
            environment.stores.spare_value = std::mem::take(&mut course.kept);
        }
    }
    course.is_reply_begun |= output.len() > begin;
    if session.replies.is_silent() {
        output.truncate(begin);
    }
    done
}

/// Counts the reply to a command if it is an error. `reply` is what the last step has written.
pub(super) fn count_error(course: &Course, reply: &[u8], environment: &mut Environment<'_, '_, '_>) {
    if !course.is_reply_begun && reply.first() == Some(&b'-') {
        environment.context.count_error(reply);
    }
}

fn execute(
    command: &Isolated,
    course: &mut Course,
    (arguments, operands, space): (Arguments<'_>, &[u8], Space),
    may_pause: bool,
    (output, version): (&mut Vec<u8>, Version),
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    let mut writer = ReplyWriter::new(output, version);
    match command {
        Isolated::Keys(command) => {
            keys(command, course, (arguments, operands, space), may_pause, (output, version), environment)
        }
        Isolated::SetMany(command) => command.step(course, arguments, space, environment, &mut writer),
        Isolated::Rename { if_absent } => {
            several::rename(*if_absent, course, arguments, space, environment, &mut writer)
        }
        Isolated::Copy { to, replace } => {
            several::copy((*to, *replace), course, arguments, space, environment, &mut writer)
        }
        Isolated::Combine(function) => function.step(course, arguments, space, environment, &mut writer),
        Isolated::Watch => watch(course, arguments, space, environment, &mut writer),
        Isolated::Exec(_) => unreachable!("a transaction is not in another one"),
    }
}

/// Continues the operations of a command on keys. Writes each reply when those before it are written.
pub(super) fn keys(
    command: &KeyCommand,
    course: &mut Course,
    (arguments, operands, space): (Arguments<'_>, &[u8], Space),
    may_pause: bool,
    (output, version): (&mut Vec<u8>, Version),
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    let argument_count = arguments.count();
    let count = command.operation_count(argument_count);
    while course.next < count {
        let reply_max = if may_pause { environment.context.reply_max } else { ISOLATED_REPLY_MAX };
        let is_too_much = course.written >= reply_max;
        let is_long = course.since_pause >= ISOLATED_READS_MAX && !course.window.is_open();
        if may_pause && (is_too_much || is_long) {
            course.pause();
            return Err(Step::Pause);
        }
        if !course.window.is_open() {
            course.window.begin((count - course.next).min(ISOLATED_PART_MAX));
        }
        let Course { next, window, progress, written, since_pause, .. } = course;
        let resume = progress.resume();
        environment.execute(window, |index| (space, command.request(arguments, operands, *next + index, resume)))?;
        let before = output.len();
        let mut writer = ReplyWriter::new(output, version);
        while let Some((index, response)) = window.next() {
            match response {
                Some(response) => {
                    if command.reply(argument_count, *next + index, response, progress, &mut writer) {
                        window.repeat();
                        break;
                    }
                }
                None => break,
            }
            window.advance();
        }
        let size = output.len() - before;
        *written += size;
        if command.elements().is_some() {
            environment.spend(0, TEXT_WORK * size);
        }
        if window.next().is_none() {
            *next += window.len();
            *since_pause += window.len();
            window.end();
        }
    }
    command.finish(&course.progress, &mut ReplyWriter::new(output, version));
    Ok(())
}

/// Continues `WATCH`.
fn watch(
    course: &mut Course,
    arguments: Arguments<'_>,
    space: Space,
    environment: &mut Environment<'_, '_, '_>,
    writer: &mut ReplyWriter<'_>,
) -> Result<(), Step> {
    let keys = || arguments.from(1);
    if !course.window.is_open() {
        let watched = environment.watched.as_ref().map_or(0, |watched| watched.keys().len());
        if watched + keys().count() > WATCHED_KEYS_MAX {
            writer.error(&format!("ERR a connection watches at most {WATCHED_KEYS_MAX} keys"));
            return Ok(());
        }
        course.window.begin(keys().count());
    }
    environment.complete(&mut course.window, |index| {
        (space, Request { key: arguments.get(1 + index), operation: Operation::Contains })
    })?;
    if let Some(error) = (0..course.window.len()).find_map(|index| several::failure(course, index)) {
        writer.error(&store_error(error));
        return Ok(());
    }
    let Environment { stores, partition, watched, .. } = environment;
    let watched = watched.get_or_insert_default();
    for (index, key) in keys().enumerate() {
        let exists = course.window.response(index) == Ok(Reply::Done);
        stores.with_watches(space, partition.shard_of(key), |table| watched.add(space, key, exists, table));
    }
    writer.simple("OK");
    Ok(())
}
