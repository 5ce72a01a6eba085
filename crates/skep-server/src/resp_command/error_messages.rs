//! The texts of errors.

use std::borrow::Cow;

use skep_core::operation::OperationError;
use skep_wire::native::{HASH_SPACE, ORDERED_SPACE, WireError};
use skep_wire::resp::error_text;

use super::Arguments;

/// The error message of a command that must not be queued, after `ERR`.
pub(crate) const NOT_IN_TRANSACTION: &str = "Command not allowed inside a transaction";

/// The beginning of the error message of a transaction that was discarded.
pub(super) const DISCARDED: &str = "EXECABORT Transaction discarded because";

/// Returns the error message of a command that the cache space does not have.
pub(super) fn not_for_caches(command: &str) -> String {
    let name = command.to_ascii_uppercase();
    format!("ERR {name} is not for the cache space, which may forget keys at any time (SELECT {HASH_SPACE})")
}

/// Returns true if Redis counts a refusal with this message as rejected, and not as a call that failed.
pub(super) fn is_rejection(message: &str) -> bool {
    let reason = message.strip_prefix(DISCARDED).and_then(|reason| reason.strip_prefix(" of: "));
    let reason = reason.unwrap_or(message.strip_prefix("ERR ").unwrap_or(message));
    let beginnings =
        ["wrong number of arguments for", "unknown subcommand", "NOAUTH", "NOPERM", "BUSY", NOT_IN_TRANSACTION];
    beginnings.iter().any(|beginning| reason.starts_with(beginning))
}

/// Returns the error message for an error of the store.
pub(crate) fn store_error(error: OperationError) -> String {
    match error {
        error if error.is_out_of_memory() => {
            format!("OOM command not allowed when used memory > 'maxmemory'. {error}")
        }
        OperationError::NotOrdered => format!("ERR {error} (SELECT {ORDERED_SPACE})"),
        _ => format!("ERR {error}"),
    }
}

/// Returns the error message for an operation that never reached a store.
pub(crate) fn wire_error(error: WireError) -> String {
    match error {
        WireError::Busy => "BUSY the server is busy: send the command again later".to_owned(),
        WireError::NotPermitted => format!("NOPERM {error}"),
        WireError::NotDurable => format!("MISCONF {error}"),
        _ => format!("ERR {error}"),
    }
}

pub(super) fn wrong_argument_count(command: &str) -> String {
    format!("ERR wrong number of arguments for '{command}' command")
}

pub(super) fn unknown_subcommand(arguments: Arguments<'_>) -> String {
    let name = error_text(arguments.get(0)).to_ascii_uppercase();
    format!("ERR unknown subcommand '{}'. Try {name} HELP.", excerpt(arguments.get(1), 128))
}

pub(super) fn unknown_command(arguments: Arguments<'_>) -> String {
    let mut beginning = String::new();
    for argument in arguments.from(1) {
        if beginning.len() >= 128 {
            break;
        }
        beginning += &format!("'{}' ", excerpt(argument, 128 - beginning.len()));
    }
    format!("ERR unknown command '{}', with args beginning with: {beginning}", excerpt(arguments.get(0), 128))
}

/// Returns the first bytes of an argument, for an error message.
pub(super) fn excerpt(argument: &[u8], size_max: usize) -> Cow<'_, str> {
    error_text(&argument[..argument.len().min(size_max)])
}
