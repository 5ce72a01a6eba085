//! The entries of the slow log.

use std::time::Duration;

use super::Arguments;
use super::shown::arguments_shown;
use super::table::CommandName;
use crate::limits::{SLOW_ARGUMENT_SIZE_MAX, SLOW_ARGUMENTS_MAX};
use crate::shared::Shared;
use crate::slow_log::SlowCommand;
use crate::unix_time::UnixTime;

/// Enters a command in the slow log, with the first of its arguments and their first bytes.
pub(super) fn enter(
    name: CommandName,
    arguments: Arguments<'_>,
    duration: Duration,
    connection: u64,
    time: UnixTime,
    shared: &Shared,
) {
    let (client, client_name) = match shared.clients().get(&connection) {
        Some(client) => (Some(client.address.clone()), client.name.clone()),
        None => (None, String::new()),
    };
    let count = arguments.count();
    let shown_count = if count > SLOW_ARGUMENTS_MAX { SLOW_ARGUMENTS_MAX - 1 } else { count };
    let shorten = |argument: &[u8]| match argument.split_at_checked(SLOW_ARGUMENT_SIZE_MAX) {
        Some((begin, rest)) if !rest.is_empty() => {
            [begin, format!("... ({} more bytes)", rest.len()).as_bytes()].concat()
        }
        _ => argument.to_vec(),
    };
    let mut shown: Vec<Vec<u8>> =
        arguments_shown(name, arguments).take(shown_count).map(|argument| shorten(&argument)).collect();
    if shown_count < count {
        shown.push(format!("... ({} more arguments)", count - shown_count).into_bytes());
    }
    let (time, _) = time.seconds_and_microseconds();
    let command = SlowCommand { number: 0, time, duration, arguments: shown, client, client_name };
    let length = usize::try_from(shared.adjustable.slow_log_length.get()).unwrap_or(0);
    shared.slow_log.enter(command, length);
}
