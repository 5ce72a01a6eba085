//! The run of a transaction whose `EXEC` has begun.
//!
//! Commands that are one operation each are executed together, in windows. The others are run one after another. The
//! stores stay with the transaction until it is done, so nothing in it may wait for anything but the stores.

use skep_core::operation::Reply;
use skep_wire::native::Response;

use super::command::{count_error, keys, step};
use super::course::Course;
use super::environment::Environment;
use crate::access::Login;
use crate::keyspace::KeyspaceRequest;
use crate::limits::{
    ERRORS_SIZE_MAX, ISOLATED_REPLY_MAX, ISOLATED_WORK_SIZE, KEYSPACE_STEP_WORK, OPERANDS_SIZE_KEPT, SHORT_REPLY_SIZE,
    TEXT_WORK, TRANSACTION_PART_MAX,
};
use crate::resp_command::table::CommandName;
use crate::resp_command::{Action, Arguments, CommandRequest, Invocation, Operands, Progress, Queue, SessionOutput};
use crate::vocabulary::{Space, Step};

/// The run of a transaction.
#[derive(Debug)]
pub(super) struct Transaction {
    space: Space,
    /// The number of commands that are decoded.
    decoded: usize,
    /// Commands that are decoded and not done.
    items: Vec<Item>,
    /// A command that was decoded, and is not executed together with these.
    after: Option<Item>,
    operands: Operands,
    /// Bytes of error messages.
    errors_size: usize,
}

/// A command of a transaction.
#[derive(Debug)]
struct Item {
    index: usize,
    space: Space,
    action: Action,
}

impl Transaction {
    /// Begins a transaction of this number of commands, in a space.
    pub(super) fn new(space: Space, count: usize) -> Transaction {
        Transaction {
            space,
            decoded: 0,
            items: Vec::with_capacity(count.min(TRANSACTION_PART_MAX)),
            after: None,
            operands: Operands::default(),
            errors_size: 0,
        }
    }

    /// Returns the space of the commands after those that are done.
    pub(super) fn space(&self) -> Space {
        self.space
    }

    /// Returns the bytes of memory held.
    pub(super) fn capacity(&self) -> usize {
        self.operands.capacity() + self.items.capacity() * size_of::<Item>()
    }

    /// Decodes the next commands, unless some are left: one, or some that are executed together. What the user of the login
    /// may not do is refused. Returns false if none is left.
    pub(super) fn decode(
        &mut self,
        queue: &Queue,
        login: &mut Login,
        environment: &mut Environment<'_, '_, '_>,
    ) -> bool {
        if !self.items.is_empty() {
            return true;
        }
        if let Some(item) = self.after.take() {
            self.items.push(item);
            return true;
        }
        self.operands.clear(0);
        // Its user may have changed since the commands were queued, or a command of the transaction has changed it.
        login.refresh_for_transaction(&environment.context.shared.access, environment.context.time);
        while self.decoded < queue.len()
            && self.items.len() < TRANSACTION_PART_MAX
            && self.operands.bytes().len() < OPERANDS_SIZE_KEPT
        {
            let (index, before) = (self.decoded, self.operands.bytes().len());
            self.decoded += 1;
            let arguments = queue.arguments(index);
            let time = environment.context.time;
            let name = queue.name(index);
            let (spaces, operands) = (environment.spaces, &mut self.operands);
            let action = Action::decode_queued(name, arguments, self.space, spaces, operands, time, login);
            let is_ready = self.operands.is_complete();
            let refusal = if is_ready { None } else { self.operands.convert(arguments, u32::MAX as usize).err() };
            let refusal = refusal.or_else(|| refusal_in_transaction(&action, arguments));
            let item = Item { index, space: self.space, action: refusal.map_or(action, Action::Refuse) };
            environment.left =
                environment.left.saturating_sub((self.operands.bytes().len() - before) / ISOLATED_WORK_SIZE);
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
    pub(super) fn step(
        &mut self,
        queue: &Queue,
        course: &mut Course,
        output: &mut SessionOutput<'_>,
        environment: &mut Environment<'_, '_, '_>,
    ) -> Result<(), Step> {
        let before = output.len();
        let Transaction { items, operands, errors_size, .. } = self;
        let item = &items[0];
        let arguments = queue.arguments(item.index);
        let invocation =
            |name: CommandName| Invocation { name, arguments, operands: operands.bytes(), space: item.space };
        let done = match &item.action {
            Action::Keys(..) if item.is_single_operation() => {
                single_operations(queue, items, course, operands, errors_size, output, environment)
            }
            Action::Keys(name, command) => {
                let done = keys(command, invocation(*name), course, false, output, environment);
                if done.is_ok() {
                    let count = command.operation_count(arguments.count());
                    environment.context.count_command(*name, arguments, count);
                    count_error(course, &output.bytes[before..], environment);
                }
                course.is_reply_begun |= output.len() > before;
                done
            }
            Action::Isolated(name, command) => step(command, invocation(*name), course, false, output, environment),
            action @ Action::Keyspace(_) => keyspace(action, course, arguments, output, environment),
            action => {
                environment.work(1)?;
                environment.stores.publish(environment.context.shared);
                let spent = environment.context.account.spent();
                let done = finish(action, course, arguments, before, output, environment);
                let work = environment.context.account.spent() - spent;
                environment.left = environment.left.saturating_sub(work / ISOLATED_WORK_SIZE);
                done
            }
        };
        // Each reply of single operations was cut by itself.
        if !course.is_reply_begun && !items[0].is_single_operation() {
            cut_error(before, output.bytes, errors_size);
        }
        output.remove_if_silent(before);
        done?;
        if let Action::Select(space) = items[0].action {
            self.space = space;
        }
        self.items.clear();
        course.reset();
        Ok(())
    }
}

/// Returns the refusal of a command that would wait while the stores are held.
fn refusal_in_transaction(action: &Action, arguments: Arguments<'_>) -> Option<String> {
    match action {
        Action::Server(CommandName::Monitor) => Some("ERR MONITOR isn't allowed for DENY BLOCKING client".to_owned()),
        Action::Server(CommandName::Debug) if arguments.is(1, "sleep") => {
            Some("ERR DEBUG SLEEP isn't allowed in a transaction".to_owned())
        }
        _ => None,
    }
}

/// Ends a command of a transaction: writes the rest of its reply, which begins at `begin`, and counts it. Fails if the
/// command goes on in the next turn.
fn finish(
    action: &Action,
    course: &Course,
    arguments: Arguments<'_>,
    begin: usize,
    output: &mut SessionOutput<'_>,
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    action.finish(arguments, &course.progress, output.bytes, output.session, environment.context);
    if std::mem::take(&mut environment.context.outcome.is_postponed) {
        return Err(Step::More);
    }
    count_error(course, &output.bytes[begin..], environment);
    Ok(())
}

/// Continues a command on all keys of a space.
fn keyspace(
    action: &Action,
    course: &mut Course,
    arguments: Arguments<'_>,
    output: &mut SessionOutput<'_>,
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    let Action::Keyspace(command) = action else { unreachable!("it is on all keys") };
    let begin = output.len();
    let Course { next, progress, is_reply_begun, .. } = course;
    while *next < action.operation_count(arguments.count()) {
        environment.work(KEYSPACE_STEP_WORK)?;
        let request = action.request(arguments, &[], *next, Some(progress));
        let CommandRequest::Keyspace(space, shard, operation) = request else { unreachable!("it is on all keys") };
        let room = ISOLATED_REPLY_MAX.saturating_sub(progress.capacity());
        let mut goes_on = true;
        let request = KeyspaceRequest { space, operation, connection: environment.context.connection };
        let account = &mut *environment.context.account;
        let before = account.spent();
        let executed = environment.stores.execute_on_all_keys(shard, request, environment.now, |bytes| {
            let response = Ok(Reply::Value(bytes));
            goes_on = command.reply(arguments, response, progress, room, account, &mut output.writer());
        });
        let work = environment.context.account.spent() - before;
        environment.left = environment.left.saturating_sub(work / ISOLATED_WORK_SIZE);
        environment.executed += executed.operations;
        environment.touched += executed.bytes.max(work);
        if executed.operations == 0 {
            *is_reply_begun |= output.len() > begin;
            return Err(Step::Wait);
        }
        *next += usize::from(!goes_on);
    }
    while !action.write_part(progress, ISOLATED_REPLY_MAX, output.bytes, output.session.version) {}
    finish(action, course, arguments, begin, output, environment)
}

/// Continues commands that are one operation each, as one window.
fn single_operations(
    queue: &Queue,
    items: &[Item],
    course: &mut Course,
    operands: &Operands,
    errors_size: &mut usize,
    output: &mut SessionOutput<'_>,
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    let window = &mut course.window;
    if !window.is_open() {
        window.begin(items.len());
    }
    while let Some((_, response)) = window.next() {
        if response.is_none() {
            environment.execute(window, |index| {
                let Item { index, space, action } = &items[index];
                match action.request(queue.arguments(*index), operands.bytes(), 0, None) {
                    CommandRequest::Key(request) => (*space, request),
                    CommandRequest::Keyspace(..) => unreachable!("the commands are on keys"),
                }
            })?;
        }
        while let Some((index, response)) = window.next() {
            let Item { index, action, .. } = &items[index];
            let begin = output.len();
            let Some(response) = response else { break };
            if action.has_elements() {
                // A text of elements takes long: as many replies as there is time for.
                environment.work(0)?;
            }
            reply(action, queue.arguments(*index), response, output, environment);
            if output.bytes.get(begin) == Some(&b'-') {
                environment.context.count_error(&output.bytes[begin..]);
                cut_error(begin, output.bytes, errors_size);
            }
            window.advance();
        }
    }
    Ok(())
}

/// Cuts the reply that begins there and ends the output, if it is an error, at its code, such as `OOM`, if there are many of
/// them: the forecast of the replies counts the code only.
fn cut_error(begin: usize, output: &mut Vec<u8>, errors_size: &mut usize) {
    if output.get(begin) != Some(&b'-') {
        return;
    }
    let code = output[begin..].iter().position(|byte| *byte == b' ');
    if let Some(code) =
        code.filter(|code| *errors_size + output.len() - begin > ERRORS_SIZE_MAX && code + 2 <= SHORT_REPLY_SIZE)
    {
        output.truncate(begin + code);
        output.extend_from_slice(b"\r\n");
    } else {
        *errors_size += output.len() - begin;
    }
}

/// Writes the reply of a command that is one operation.
fn reply(
    action: &Action,
    arguments: Arguments<'_>,
    response: Response<'_>,
    output: &mut SessionOutput<'_>,
    environment: &mut Environment<'_, '_, '_>,
) {
    let mut progress = Progress::default();
    let before = output.len();
    let Action::Keys(_, command) = action else { unreachable!("the commands are on keys") };
    command.reply(arguments, 0, response, &mut progress, &mut output.writer());
    if action.has_elements() {
        environment.spend(0, TEXT_WORK * (output.len() - before));
    }
    action.finish(arguments, &progress, output.bytes, output.session, environment.context);
}

impl Item {
    /// Returns true if the command is one operation, whose reply is final.
    fn is_single_operation(&self) -> bool {
        matches!(&self.action, Action::Keys(_, command) if !command.may_continue())
    }
}
