//! What the user of a memcached connection may do: a command needs the permission for the RESP command that does the same,
//! so no front end allows what another one denies. All its keys are in the cache space.

use skep_wire::memcached::{Direction, Exptime, MetaFlags, Request, Statistics, Store, StoreMode};

use super::command::{Action, Command, Denied, Span};
use crate::access::{KeyAccess, Login};
use crate::resp_command::may_reset_statistics;
use crate::resp_command::table::CommandName;
use crate::vocabulary::Space;

/// The most keys of a retrieval of a user whose keys are limited: each is compared with the patterns. The error message
/// has the number too.
const COMPARED_KEYS_MAX: usize = 1024;

/// Checks a command of `size` bytes in an input that begins at `base`, and counts it for the limits of the user. Returns
/// the command in its place if it is denied.
pub(super) fn denied(login: &Login, request: &Request<'_>, size: usize, base: *const u8) -> Option<Command> {
    let user = login.limited()?;
    let (command, needed) = needs(request)?;
    let denied_change = changes_besides(request).filter(|command| !user.commands().has(*command as usize));
    let has_patterns = !user.keys().is_all();
    let key_denied = || keys(request).find(|key| has_patterns && !user.keys().allow(key, needed));
    let reason = match denied_change {
        _ if !user.may_operate(size) => Denied::Rate,
        _ if matches!(request, Request::Statistics(Statistics::Reset)) && !may_reset_statistics(user.commands()) => {
            Denied::Command(CommandName::Config)
        }
        _ if !user.commands().has(command as usize) || !user.spaces().has(Space::Cache) => Denied::Command(command),
        Some(denied) => Denied::Command(denied),
        None if has_patterns && keys(request).nth(COMPARED_KEYS_MAX).is_some() => Denied::TooManyKeys,
        None => match key_denied() {
            Some(key) => Denied::Key(Span::new(key, base)),
            None => return None,
        },
    };
    Some(Command::new(Action::Deny { reason, is_quiet: is_quiet(request) }))
}

/// Returns the command that does the same, and what it does to the keys. `None`: every user may do this.
fn needs(request: &Request<'_>) -> Option<(CommandName, KeyAccess)> {
    Some(match request {
        Request::Get { exptime: None, .. } | Request::MetaDebug { .. } => (CommandName::Get, KeyAccess::READ),
        Request::Get { exptime: Some(_), .. } => (CommandName::GetEx, KeyAccess::BOTH),
        Request::MetaGet { flags: MetaFlags { vivify: Some(_), .. }, .. } => (CommandName::Set, KeyAccess::BOTH),
        Request::MetaGet { .. } if changes_besides(request).is_some() => (CommandName::Get, KeyAccess::BOTH),
        Request::MetaGet { .. } => (CommandName::Get, KeyAccess::READ),
        Request::Store { store, .. } | Request::MetaStore { store, .. } => (of_store(store), KeyAccess::WRITE),
        Request::StoreTooLarge { .. } => (CommandName::Set, KeyAccess::WRITE),
        Request::Delete { .. } | Request::MetaDelete { .. } => (CommandName::Del, KeyAccess::WRITE),
        Request::Arithmetic { direction, .. } | Request::MetaArithmetic { direction, .. } => match direction {
            Direction::Increment => (CommandName::IncrBy, KeyAccess::BOTH),
            Direction::Decrement => (CommandName::DecrBy, KeyAccess::BOTH),
        },
        Request::Touch { .. } => (CommandName::Expire, KeyAccess::WRITE),
        Request::FlushAll { .. } => (CommandName::FlushDb, KeyAccess::NONE),
        Request::Statistics(_) => (CommandName::Info, KeyAccess::NONE),
        Request::Version | Request::Verbosity { .. } | Request::Quit | Request::MetaNoOperation => return None,
    })
}

/// Returns the command that makes a meta command's further change: of the expiry, or of the mark that a client was told to
/// store a new value. `mg` sets that mark of a stale value for every reader.
fn changes_besides(request: &Request<'_>) -> Option<CommandName> {
    match request {
        Request::MetaGet { flags: MetaFlags { exptime, recache, .. }, .. } if exptime.or(*recache).is_some() => {
            Some(CommandName::GetEx)
        }
        Request::MetaArithmetic { flags: MetaFlags { exptime, vivify, .. }, .. }
            if exptime.is_some() || vivify.is_some_and(|exptime| exptime != Exptime(0)) =>
        {
            Some(CommandName::Expire)
        }
        Request::MetaDelete { flags: MetaFlags { exptime: Some(_), is_invalidation: true, .. }, .. } => {
            Some(CommandName::Expire)
        }
        _ => None,
    }
}

fn of_store(store: &Store<'_>) -> CommandName {
    match store.mode {
        StoreMode::Add => CommandName::SetNx,
        StoreMode::Append | StoreMode::Prepend => CommandName::Append,
        _ => CommandName::Set,
    }
}

/// Returns the keys of a command.
fn keys<'b>(request: &Request<'b>) -> impl Iterator<Item = &'b [u8]> {
    let (one, several) = match request {
        Request::Get { keys, .. } => (None, Some(*keys)),
        Request::StoreTooLarge { removed_key, .. } => (*removed_key, None),
        Request::Store { store, .. } | Request::MetaStore { store, .. } => (Some(store.key), None),
        Request::Delete { key, .. }
        | Request::Arithmetic { key, .. }
        | Request::Touch { key, .. }
        | Request::MetaGet { key, .. }
        | Request::MetaDelete { key, .. }
        | Request::MetaArithmetic { key, .. }
        | Request::MetaDebug { key, .. } => (Some(*key), None),
        _ => (None, None),
    };
    one.into_iter().chain(several.into_iter().flatten())
}

/// Returns true if the client waits for no reply. To meta commands, errors are always told.
fn is_quiet(request: &Request<'_>) -> bool {
    match request {
        Request::Store { is_quiet, .. }
        | Request::StoreTooLarge { is_quiet, .. }
        | Request::Delete { is_quiet, .. }
        | Request::Arithmetic { is_quiet, .. }
        | Request::Touch { is_quiet, .. }
        | Request::FlushAll { is_quiet, .. } => *is_quiet,
        _ => false,
    }
}
