//! Commands about the log and snapshots: `SAVE`, `BGSAVE`, `BGREWRITEAOF`, `LASTSAVE`, `WAITAOF`.
//!
//! A snapshot is what Redis calls an RDB file and a rewritten AOF in one, so both kinds of commands take one.

use std::time::{Duration, Instant};

use skep_store::ordered::OrderedStore;
use skep_wire::resp::ReplyWriter;

use super::{Arguments, Context, LOOK_TIME, Session};
use crate::durability::Log;
use crate::vocabulary::{Durability, Reached};

const WITHOUT_DIRECTORY: &str = "ERR the server has no data directory: start it with --data-dir";
const IN_PROGRESS: &str = "ERR Background save already in progress";

/// What a command that is being executed waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// The end of the snapshot that was begun after this request.
    Snapshot { request: u64 },
    /// The end of the turn: then the blocks of the commands before it are sealed. The time ends then.
    Turn { until: Option<Instant> },
    /// This is on disk, or the time is over.
    Disk { reached: Reached, until: Option<Instant> },
}

fn log<'c>(context: &'c Context<'_>) -> Result<&'c Log, String> {
    context.shared.log.as_deref().ok_or_else(|| WITHOUT_DIRECTORY.to_owned())
}

/// Runs `SAVE`: the reply comes when the snapshot is complete. Other connections do not wait.
pub(super) fn save(
    writer: &mut ReplyWriter<'_>,
    session: &mut Session,
    context: &mut Context<'_>,
) -> Result<(), String> {
    if take_snapshot(session, context)? {
        writer.simple("OK");
    }
    Ok(())
}

/// Takes a snapshot. Returns false if the command is to be called again, because it is not complete.
pub(super) fn take_snapshot(session: &mut Session, context: &mut Context<'_>) -> Result<bool, String> {
    let log = log(context)?;
    let Some(Awaited::Snapshot { request }) = session.awaited else {
        session.awaited = Some(Awaited::Snapshot { request: log.tasks.take_snapshot() });
        context.outcome.held_until = Some(context.now + LOOK_TIME);
        return Ok(false);
    };
    if log.snapshots.ended_request() < request && !context.is_stopping() {
        context.outcome.held_until = Some(context.now + LOOK_TIME);
        return Ok(false);
    }
    session.awaited = None;
    if log.snapshots.completed_request() < request {
        return Err("ERR the snapshot was given up: see the server's log".to_owned());
    }
    Ok(true)
}

/// Runs `BGSAVE [SCHEDULE]`: begins a snapshot.
pub(super) fn background_save(
    arguments: Arguments<'_>,
    writer: &mut ReplyWriter<'_>,
    context: &Context<'_>,
) -> Result<(), String> {
    let is_scheduled = arguments.count() == 2 && arguments.is(1, "schedule");
    if arguments.count() > 1 && !is_scheduled {
        return Err("ERR syntax error".to_owned());
    }
    let log = log(context)?;
    let is_taken = log.is_saving();
    if is_taken && !is_scheduled {
        return Err(IN_PROGRESS.to_owned());
    }
    log.tasks.take_snapshot();
    writer.simple(if is_taken { "Background saving scheduled" } else { "Background saving started" });
    Ok(())
}

/// Runs `BGREWRITEAOF`: begins a snapshot, after which the log is short.
pub(super) fn rewrite(writer: &mut ReplyWriter<'_>, context: &Context<'_>) -> Result<(), String> {
    let log = log(context)?;
    let is_taken = log.is_saving();
    log.tasks.take_snapshot();
    writer.simple(match is_taken {
        true => "Background append only file rewriting scheduled",
        false => "Background append only file rewriting started",
    });
    Ok(())
}

/// Runs `LASTSAVE`: when the last snapshot was complete, or when the server started.
pub(super) fn last_save(writer: &mut ReplyWriter<'_>, context: &Context<'_>) {
    let started = || {
        let now = context.time.milliseconds() / 1000;
        now - context.shared.run.started.elapsed().as_secs().cast_signed()
    };
    writer.integer(context.shared.log.as_ref().map_or_else(started, |log| log.snapshots.last_at()));
}

/// Runs `WAITAOF numlocal numreplicas timeout`: the reply comes when what was executed before is on this server's disk. There
/// are no replicas.
pub(super) fn wait(
    arguments: Arguments<'_>,
    writer: &mut ReplyWriter<'_>,
    session: &mut Session,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let integer = |index| arguments.integer(index).ok_or("ERR value is not an integer or out of range");
    let (local, replicas) = (integer(1)?, integer(2)?);
    if !(0..=1).contains(&local) {
        return Err("ERR value is out of range, must be between 0 and 1".to_owned());
    }
    if replicas < 0 {
        return Err("ERR value is out of range, must be positive".to_owned());
    }
    let timeout = arguments.integer(3).ok_or("ERR timeout is not an integer or out of range")?;
    if timeout < 0 {
        return Err("ERR timeout is negative".to_owned());
    }
    let log = context.shared.log.as_deref().filter(|log| log.level() != Durability::Memory);
    let Some(log) = log else {
        if local > 0 {
            return Err("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.".to_owned());
        }
        write_wait(writer, 0);
        return Ok(());
    };
    let (reached, until) = match session.awaited {
        Some(Awaited::Disk { reached, until }) => (reached, until),
        Some(Awaited::Turn { until }) => {
            log.flush();
            let version = context.shared.ordered.as_ref().map_or(0, OrderedStore::read_version);
            (Reached { block: log.sealed(), version }, until)
        }
        _ => {
            let until = (timeout > 0).then(|| context.now + Duration::from_millis(timeout.cast_unsigned()));
            session.awaited = Some(Awaited::Turn { until });
            context.outcome.held_until = Some(context.now);
            return Ok(());
        }
    };
    let is_durable = log.reached().covers(reached);
    if !is_durable && local > 0 && until.is_none_or(|until| context.now < until) && !context.is_stopping() {
        session.awaited = Some(Awaited::Disk { reached, until });
        context.outcome.held_until = Some(context.now + LOOK_TIME);
        return Ok(());
    }
    session.awaited = None;
    write_wait(writer, i64::from(is_durable));
    Ok(())
}

fn write_wait(writer: &mut ReplyWriter<'_>, local: i64) {
    writer.array(2);
    writer.integer(local);
    writer.integer(0);
}
