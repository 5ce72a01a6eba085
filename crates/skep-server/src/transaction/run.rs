//! The run of an isolated command, step by step.
//!
//! 1. A step executes operations on the stores that the shard has, and writes the replies to the output of the
//!    connection.
//! 2. It ends when the command is done, or when a store defers all that is left, or after the operations of a turn. The
//!    next step continues. The stores stay with the command meanwhile.
//! 3. A command that only reads, or deletes, and is longer than [`ISOLATED_READS_MAX`], or whose replies are more than
//!    [`ISOLATED_REPLY_MAX`], is run in parts: it *pauses*, and other operations may be executed before the next part.
//! 4. A transaction never pauses. If its replies are too large, its other commands are refused, and not executed.
//!
//! Commands of a transaction that are one operation each are executed together, in windows.

use std::time::Instant;

use skep_core::operation::{Operation, Reply, Request};
use skep_store::hash::Room;
use skep_wire::native::Response;
use skep_wire::partition::Partition;
use skep_wire::resp::{ReplyWriter, Version};

use super::{Isolated, Queue, Watched, Window, several};
use crate::limits::{
    ISOLATED_PART_MAX, ISOLATED_READS_MAX, ISOLATED_REPLY_MAX, ISOLATED_WORK_SIZE, KEYSPACE_STEP_WORK,
    TRANSACTION_PART_MAX, WATCHED_KEYS_MAX,
};
use crate::resp_command::table::CommandName;
use crate::resp_command::{Action, Arguments, CommandRequest, Context, KeyCommand, Operands, Progress, store_error};
use crate::spaces::{Space, Spaces, Stores};

/// The reason why a step has ended before its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The stores have deferred all that is left: nothing else is executed until the next step.
    Wait,
    /// The operations of a turn are used up: nothing else is executed until the next step.
    More,
    /// The command is run in parts: other operations may be executed before the next one.
    Pause,
}

/// The stores, the connection and the time of a step.
pub(crate) struct Environment<'e, 's, 'c> {
    /// The stores of the shards that the command involves.
    pub(crate) stores: &'e mut Stores<'s>,
    pub(crate) partition: &'e Partition,
    pub(crate) context: &'e mut Context<'c>,
    /// The keys that the connection watches.
    pub(crate) watched: &'e mut Option<Box<Watched>>,
    pub(crate) spaces: Spaces,
    pub(crate) now: Instant,
    /// Operations that may still be executed in this turn.
    pub(crate) left: usize,
    /// Operations that were executed.
    pub(crate) executed: usize,
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
    /// A value that is computed.
    pub(super) kept: Vec<u8>,
    /// The room that the writes need in each shard.
    pub(super) rooms: Vec<(u16, Room)>,
    progress: Progress,
    /// Bytes of replies, and operations, since the last pause.
    written: usize,
    since_pause: usize,
}

impl Course {
    /// Begins anew, with the memory of the windows.
    fn reset(&mut self) {
        let Course { mut window, mut writes, mut rooms, .. } = std::mem::take(self);
        window.end();
        writes.end();
        rooms.clear();
        *self = Course { window, writes, rooms, ..Course::default() };
    }
}

/// The run of an isolated command.
#[derive(Debug, Default)]
pub(crate) struct Run {
    course: Course,
    transaction: Option<Transaction>,
}

/// The run of a transaction.
#[derive(Debug)]
struct Transaction {
    space: Space,
    /// The number of commands that are decoded.
    decoded: usize,
    /// Commands that are decoded and not done.
    items: Vec<Item>,
    /// A command that was decoded, and is not executed together with these.
    after: Option<Item>,
    operands: Operands,
    /// Bytes of replies.
    written: usize,
}

/// A command of a transaction.
#[derive(Debug)]
struct Item {
    index: usize,
    space: Space,
    action: Action,
}

impl Environment<'_, '_, '_> {
    /// Counts work of a command besides its operations. Fails if there is no time for it in this turn.
    pub(super) fn work(&mut self, count: usize) -> Result<(), Step> {
        if self.left == 0 {
            return Err(Step::More);
        }
        self.left = self.left.saturating_sub(count);
        Ok(())
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
        let work = executed + (window.size() - before) / ISOLATED_WORK_SIZE;
        self.left = self.left.saturating_sub(work);
        self.executed += executed;
        #[cfg(test)]
        if self.stores.is_broken && !window.is_complete() {
            return Err(Step::More);
        }
        if executed == 0 { Err(Step::Wait) } else { Ok(()) }
    }

    fn count_command(&self, name: CommandName) {
        self.context.shared.metrics(self.context.shard).command(name as usize);
    }

    fn count_error(&self, is_error: bool) {
        self.context.shared.metrics(self.context.shard).error_replies.add(u64::from(is_error));
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
    /// Forgets the command, and keeps some memory for another one.
    pub(crate) fn reset(&mut self) {
        self.course.reset();
        self.transaction = None;
    }

    /// Returns the bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        let of_transaction = self.transaction.as_ref().map_or(0, |transaction| {
            transaction.operands.capacity() + transaction.items.capacity() * size_of::<Item>()
        });
        let Course { window, writes, kept, .. } = &self.course;
        window.capacity() + writes.capacity() + kept.capacity() + of_transaction
    }

    /// Continues a command. Returns the space that is chosen after it, or the reason why it is not done.
    pub(crate) fn step(
        &mut self,
        command: &Isolated,
        arguments: Arguments<'_>,
        operands: &[u8],
        space: Space,
        (output, version): (&mut Vec<u8>, &mut Version),
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<Space, Step> {
        let Run { course, transaction } = self;
        let Isolated::Exec(queue) = command else {
            step(command, course, (arguments, operands, space), true, (output, *version), environment)?;
            return Ok(space);
        };
        let transaction = match transaction {
            Some(transaction) => transaction,
            None => {
                let is_valid = is_valid(course, environment)?;
                *environment.watched = None;
                if !is_valid {
                    ReplyWriter::new(output, *version).null_array();
                    return Ok(space);
                }
                ReplyWriter::new(output, *version).array(queue.len());
                course.reset();
                transaction.insert(Transaction {
                    space,
                    decoded: 0,
                    items: Vec::with_capacity(queue.len().min(TRANSACTION_PART_MAX)),
                    after: None,
                    operands: Operands::default(),
                    written: 0,
                })
            }
        };
        while transaction.decode(queue, environment) {
            transaction.step(queue, course, (output, version), environment)?;
        }
        Ok(transaction.space)
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

/// Continues a command that is no transaction.
fn step(
    command: &Isolated,
    course: &mut Course,
    (arguments, operands, space): (Arguments<'_>, &[u8], Space),
    may_pause: bool,
    (output, version): (&mut Vec<u8>, Version),
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    if let Isolated::Keys(command) = command {
        return keys(command, course, (arguments, operands, space), may_pause, (output, version), environment);
    }
    let start = output.len();
    let mut writer = ReplyWriter::new(output, version);
    let done = match command {
        Isolated::SetMany(command) => command.step(course, arguments, space, environment, &mut writer),
        Isolated::Rename { if_absent } => {
            several::rename(*if_absent, course, arguments, space, environment, &mut writer)
        }
        Isolated::Copy { to, replace } => {
            several::copy((*to, *replace), course, arguments, space, environment, &mut writer)
        }
        Isolated::Combine(function) => function.step(course, arguments, space, environment, &mut writer),
        Isolated::Watch => watch(course, arguments, space, environment, &mut writer),
        Isolated::Keys(_) | Isolated::Exec(_) => unreachable!("a transaction is not in another one"),
    };
    environment.count_error(output.get(start) == Some(&b'-'));
    done
}

/// Continues the operations of a command on keys. Writes each reply when those before it are written.
fn keys(
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
        let is_too_much = course.written >= ISOLATED_REPLY_MAX;
        let is_long = course.since_pause >= ISOLATED_READS_MAX && !course.window.is_open();
        if may_pause && (is_too_much || is_long) {
            (course.written, course.since_pause) = (0, 0);
            return Err(Step::Pause);
        }
        if !course.window.is_open() {
            course.window.begin((count - course.next).min(ISOLATED_PART_MAX));
        }
        let Course { next, window, progress, written, since_pause, .. } = course;
        if !is_too_much || may_pause {
            let resume = progress.resume();
            environment
                .execute(window, |index| (space, command.request(arguments, operands, *next + index, resume)))?;
        }
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
                None if is_too_much && !may_pause => {
                    too_much(command.operation_count(argument_count), *next + index, &mut writer);
                }
                None => break,
            }
            window.advance();
        }
        *written += output.len() - before;
        if window.next().is_none() {
            *next += window.len();
            *since_pause += window.len();
            window.end();
        }
    }
    command.finish(&course.progress, &mut ReplyWriter::new(output, version));
    environment.count_error(course.progress.has_failed());
    Ok(())
}

/// Refuses an operation of a transaction whose replies are too large.
fn too_much(count: usize, index: usize, writer: &mut ReplyWriter<'_>) {
    if index == 0 && count > 1 {
        writer.array(count);
    }
    writer.error(&format!("ERR the replies of the transaction are more than {ISOLATED_REPLY_MAX} bytes"));
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

impl Transaction {
    /// Decodes the next commands, unless some are left: one, or some that are executed together. Returns false if none is
    /// left.
    fn decode(&mut self, queue: &Queue, environment: &mut Environment<'_, '_, '_>) -> bool {
        if !self.items.is_empty() {
            return true;
        }
        if let Some(item) = self.after.take() {
            self.items.push(item);
            return true;
        }
        self.operands.clear(0);
        while self.decoded < queue.len() && self.items.len() < TRANSACTION_PART_MAX {
            let index = self.decoded;
            self.decoded += 1;
            let arguments = queue.arguments(index);
            let time = environment.context.time;
            let action = Action::decode(arguments, self.space, environment.spaces, &mut self.operands, time);
            let refusal = self.operands.convert(arguments, u32::MAX as usize).err();
            let item = Item { index, space: self.space, action: refusal.map_or(action, Action::Refuse) };
            let is_single = item.is_single_operation();
            if !is_single && !self.items.is_empty() {
                self.after = Some(item);
                break;
            }
            self.items.push(item);
            if !is_single {
                break;
            }
        }
        !self.items.is_empty()
    }

    /// Continues the commands that are decoded.
    fn step(
        &mut self,
        queue: &Queue,
        course: &mut Course,
        (output, version): (&mut Vec<u8>, &mut Version),
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<(), Step> {
        let before = output.len();
        let is_too_much = self.written >= ISOLATED_REPLY_MAX;
        let Transaction { items, operands, .. } = self;
        let item = &items[0];
        let arguments = queue.arguments(item.index);
        let done = match &item.action {
            Action::Keys(..) if item.is_single_operation() => {
                single_operations(queue, items, course, operands, is_too_much, (output, *version), environment)
            }
            _ if is_too_much && !course.window.is_open() => {
                too_much(1, 0, &mut ReplyWriter::new(output, *version));
                Ok(())
            }
            Action::Keys(name, command) => {
                let parts = (arguments, operands.bytes(), item.space);
                keys(command, course, parts, false, (output, *version), environment)
                    .map(|()| environment.count_command(*name))
            }
            Action::Isolated(name, command) => {
                let parts = (arguments, operands.bytes(), item.space);
                step(command, course, parts, false, (output, *version), environment)
                    .map(|()| environment.count_command(*name))
            }
            action @ Action::Keyspace(_) => keyspace(action, course, arguments, (output, *version), environment),
            action => {
                environment.stores.publish(environment.context.shared);
                action.finish(arguments, &Progress::default(), output, version, environment.context);
                Ok(())
            }
        };
        self.written += output.len() - before;
        done?;
        if let Action::Select(space) = items[0].action {
            self.space = space;
        }
        self.items.clear();
        course.reset();
        Ok(())
    }
}

/// Continues a command on all keys of a space.
fn keyspace(
    action: &Action,
    course: &mut Course,
    arguments: Arguments<'_>,
    (output, mut version): (&mut Vec<u8>, Version),
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    let Course { next, progress, .. } = course;
    while *next < action.operation_count(arguments.count()) {
        environment.work(KEYSPACE_STEP_WORK)?;
        let request = action.request(arguments, &[], *next, Some(progress));
        let CommandRequest::Keyspace(space, shard, operation) = request else { unreachable!("it is on all keys") };
        let room = ISOLATED_REPLY_MAX.saturating_sub(progress.capacity());
        let mut goes_on = true;
        let is_done = environment.stores.execute_on_all_keys(space, shard, operation, environment.now, |bytes| {
            let response = Ok(Reply::Value(bytes));
            goes_on = action.reply(arguments, *next, response, progress, room, (&mut *output, version));
        });
        environment.executed += usize::from(is_done);
        if !is_done {
            return Err(Step::Wait);
        }
        *next += usize::from(!goes_on);
    }
    while !action.write_part(progress, ISOLATED_REPLY_MAX, output, version) {}
    action.finish(arguments, progress, output, &mut version, environment.context);
    Ok(())
}

/// Continues commands that are one operation each, as one window.
fn single_operations(
    queue: &Queue,
    items: &[Item],
    course: &mut Course,
    operands: &Operands,
    is_too_much: bool,
    (output, version): (&mut Vec<u8>, Version),
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    let window = &mut course.window;
    if !window.is_open() {
        window.begin(items.len());
    }
    while window.next().is_some() {
        let is_too_much = is_too_much || course.written >= ISOLATED_REPLY_MAX;
        if !is_too_much {
            environment.execute(window, |index| {
                let Item { index, space, action } = &items[index];
                match action.request(queue.arguments(*index), operands.bytes(), 0, None) {
                    CommandRequest::Key(request) => (*space, request),
                    CommandRequest::Keyspace(..) => unreachable!("the commands are on keys"),
                }
            })?;
        }
        let before = output.len();
        while let Some((index, response)) = window.next() {
            let Item { index, action, .. } = &items[index];
            match response {
                Some(response) => reply(action, queue.arguments(*index), response, (output, version), environment),
                None if is_too_much => too_much(1, 0, &mut ReplyWriter::new(output, version)),
                None => break,
            }
            window.advance();
        }
        course.written += output.len() - before;
    }
    Ok(())
}

/// Writes the reply of a command that is one operation.
fn reply(
    action: &Action,
    arguments: Arguments<'_>,
    response: Response<'_>,
    (output, mut version): (&mut Vec<u8>, Version),
    environment: &mut Environment<'_, '_, '_>,
) {
    let mut progress = Progress::default();
    action.reply(arguments, 0, response, &mut progress, 0, (&mut *output, version));
    action.finish(arguments, &progress, output, &mut version, environment.context);
}

impl Item {
    /// Returns true if the command is one operation, whose reply is final.
    fn is_single_operation(&self) -> bool {
        matches!(&self.action, Action::Keys(_, command) if !command.may_continue())
    }
}
