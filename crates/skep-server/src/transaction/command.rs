//! The steps of an isolated command that is no transaction.

use skep_core::operation::{Operation, Reply, Request};
use skep_wire::resp::ReplyWriter;

use super::course::{Course, Halt};
use super::environment::Environment;
use super::several;
use crate::limits::{ISOLATED_PART_MAX, ISOLATED_READS_MAX, ISOLATED_REPLY_MAX, TEXT_WORK, WATCHED_KEYS_MAX};
use crate::resp_command::{Invocation, Isolated, KeyCommand, SessionOutput, store_error};
use crate::vocabulary::Step;

/// Continues a command that is no transaction. Counts it when it is done, and drops its reply if the client wants none.
pub(super) fn step(
    command: &Isolated,
    invocation: Invocation<'_>,
    course: &mut Course,
    may_pause: bool,
    output: &mut SessionOutput<'_>,
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    let begin = output.len();
    let done = execute(command, invocation, course, may_pause, output, environment);
    if done.is_ok() {
        let Invocation { name, arguments, .. } = invocation;
        environment.context.count_command(name, arguments, command.weight(arguments.count()));
        count_error(course, &output.bytes[begin..], environment);
        if course.kept.capacity() > 0 {
            environment.stores.spare_value = std::mem::take(&mut course.kept);
        }
    }
    course.is_reply_begun |= output.len() > begin;
    output.remove_if_silent(begin);
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
    invocation: Invocation<'_>,
    course: &mut Course,
    may_pause: bool,
    output: &mut SessionOutput<'_>,
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    let mut writer = output.writer();
    let done = match command {
        Isolated::Keys(command) => return keys(command, invocation, course, may_pause, output, environment),
        Isolated::SetMany(command) => command.step(course, invocation, environment, &mut writer),
        Isolated::Rename { if_absent } => several::rename(*if_absent, course, invocation, environment, &mut writer),
        Isolated::Copy { to, replace } => several::copy(*to, *replace, course, invocation, environment, &mut writer),
        Isolated::Combine(function) => function.step(course, invocation, environment, &mut writer),
        Isolated::Watch => watch(course, invocation, environment, &mut writer),
        Isolated::Exec(_) => unreachable!("a transaction is not in another one"),
    };
    match done {
        Ok(()) => Ok(()),
        Err(Halt::Step(step)) => Err(step),
        Err(Halt::Failed(error)) => {
            writer.error(&store_error(error));
            Ok(())
        }
    }
}

/// Continues the operations of a command on keys. Writes each reply when those before it are written.
pub(super) fn keys(
    command: &KeyCommand,
    invocation: Invocation<'_>,
    course: &mut Course,
    may_pause: bool,
    output: &mut SessionOutput<'_>,
    environment: &mut Environment<'_, '_, '_>,
) -> Result<(), Step> {
    let Invocation { arguments, operands, space, .. } = invocation;
    let count = command.operation_count(arguments.count());
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
        let mut writer = output.writer();
        while let Some((index, response)) = window.next() {
            match response {
                Some(response) => {
                    if command.reply(arguments, *next + index, response, progress, &mut writer) {
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
    command.finish(&course.progress, &mut output.writer());
    Ok(())
}

/// Continues `WATCH`.
fn watch(
    course: &mut Course,
    invocation: Invocation<'_>,
    environment: &mut Environment<'_, '_, '_>,
    writer: &mut ReplyWriter<'_>,
) -> Result<(), Halt> {
    let Invocation { arguments, space, .. } = invocation;
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
    course.check(course.window.len())?;
    let Environment { stores, context, watched, .. } = environment;
    let watched = watched.get_or_insert_default();
    for (index, key) in keys().enumerate() {
        let exists = course.window.response(index) == Ok(Reply::Done);
        stores.with_watches(space, context.partition.shard_of(key), |table| watched.add(space, key, exists, table));
    }
    writer.simple("OK");
    Ok(())
}
