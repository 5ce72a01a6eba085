//! Commands of administrators: `ROLE`, `WAIT`, `DEBUG`, `SHUTDOWN`.

use std::time::Duration;

use skep_wire::resp::ReplyWriter;

use super::expiry::integer;
use super::{Arguments, Context, Session, excerpt, save_command};
use crate::limits::PAUSE_MAX;

/// Runs `ROLE`: a master that has replicated nothing, without replicas.
pub(super) fn role(writer: &mut ReplyWriter<'_>) {
    writer.array(3);
    writer.bulk(b"master");
    writer.integer(0);
    writer.array(0);
}

/// Runs `WAIT replicas timeout`. There are no replicas, and waiting would not change that, so it replies at once.
pub(super) fn wait(arguments: Arguments<'_>, writer: &mut ReplyWriter<'_>) -> Result<(), String> {
    integer(arguments, 1)?;
    let timeout = arguments.integer(2).ok_or("ERR timeout is not an integer or out of range")?;
    if timeout < 0 {
        return Err("ERR timeout is negative".to_owned());
    }
    writer.integer(0);
    Ok(())
}

/// Runs `DEBUG SLEEP seconds`, which delays only its own connection.
pub(super) fn debug(
    arguments: Arguments<'_>,
    writer: &mut ReplyWriter<'_>,
    session: &mut Session,
    context: &mut Context<'_>,
) -> Result<(), String> {
    if arguments.is(1, "help") && arguments.count() == 2 {
        writer.lines(&[
            "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "SLEEP <seconds>",
            "    Delay the commands of this connection for <seconds>. Decimals allowed.",
            "HELP",
            "    Print this help.",
        ]);
        return Ok(());
    }
    if !arguments.is(1, "sleep") || arguments.count() != 3 {
        let name = excerpt(arguments.get(1), 128);
        return Err(format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP."));
    }
    // Redis takes a text that is no number for 0.
    let seconds = arguments.text(2).parse::<f64>().unwrap_or(0.0).clamp(0.0, PAUSE_MAX.as_secs_f64());
    let seconds = if seconds.is_nan() { 0.0 } else { seconds };
    let until = *session.sleeps_until.get_or_insert(context.now + Duration::from_secs_f64(seconds));
    if context.now < until && !context.is_stopping() {
        context.outcome.held_until = Some(until);
        return Ok(());
    }
    session.sleeps_until = None;
    writer.simple("OK");
    Ok(())
}

/// Runs `SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] [ABORT]`: the server stops as after a SIGTERM, and there is no reply. With
/// `SAVE` it takes a snapshot first.
pub(super) fn shut_down(
    arguments: Arguments<'_>,
    session: &mut Session,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let has = |word: &str| (1..arguments.count()).any(|index| arguments.is(index, word));
    let is_known =
        |index: usize| ["nosave", "save", "now", "force", "abort"].iter().any(|word| arguments.is(index, word));
    if !(1..arguments.count()).all(is_known) || has("nosave") && has("save") || has("abort") && arguments.count() > 2 {
        return Err("ERR syntax error".to_owned());
    }
    if has("abort") {
        return Err("ERR No shutdown in progress.".to_owned());
    }
    if has("save") {
        match save_command::take_snapshot(session, context) {
            Ok(false) => return Ok(()),
            Err(reason) if !has("force") => {
                tracing::warn!("SHUTDOWN SAVE was refused: {reason}");
                return Err("ERR Errors trying to SHUTDOWN. Check logs.".to_owned());
            }
            _ => {}
        }
    }
    if !context.shared.shut_down() {
        return Err("ERR Errors trying to SHUTDOWN. Check logs.".to_owned());
    }
    context.outcome.closing = true;
    Ok(())
}
