//! The commands that a user may run: each is decoded here, after its check.

use super::error_messages::DISCARDED;
use super::permission::{self, Place, Refused};
use super::table::CommandName;
use super::{Action, Arguments, Operands};
use crate::access::{LimitedUser, Login};
use crate::unix_time::UnixTime;
use crate::vocabulary::{Space, Spaces};

/// Checks a command that is about to be executed or queued, and counts it for the limits of its user.
fn check_and_count(
    user: LimitedUser<'_>,
    name: CommandName,
    arguments: Arguments<'_>,
    place: Place,
) -> Result<(), Refused> {
    // What is denied counts too.
    if is_uncounted(name) || user.may_operate(arguments.size()) {
        permission::check(user, name, arguments, place)
    } else {
        Err(Refused::TooFast)
    }
}

/// Returns true if a command does not count for the limits of a user. The commands of a transaction count when they are
/// queued. A limit divides none, so its begin and end do not count.
fn is_uncounted(name: CommandName) -> bool {
    name.info().has("no_auth") || matches!(name, CommandName::Multi | CommandName::Exec | CommandName::Discard)
}

impl Action {
    /// Returns true if the reply does not count for the limits of a user: an error, because the command is not executed, or
    /// the reply to a command that does not count. The array of an `EXEC` is the reply of an isolated action, and counts.
    pub(crate) fn is_uncounted(&self) -> bool {
        match self {
            Action::Refuse(_) | Action::Close(_) => true,
            Action::Server(name) => is_uncounted(*name),
            _ => false,
        }
    }

    /// Decodes the request. Numbers written as text are left for `operands` to convert. Relative times begin at `now`.
    /// Refuses what the user of the login may not do.
    pub(crate) fn decode(
        arguments: Arguments<'_>,
        space: Space,
        spaces: Spaces,
        operands: &mut Operands,
        now: UnixTime,
        login: &Login,
    ) -> Action {
        let name = match Action::name(arguments, login.gate()) {
            Ok(name) => name,
            Err(refusal) => return refusal,
        };
        if let Some(user) = login.limited()
            && let Err(refused) = check_and_count(user, name, arguments, Place { space: Some(space), spaces })
        {
            return Action::Refuse(refused.message(user, name, arguments));
        }
        Action::decode_allowed(name, arguments, space, spaces, operands, now).limited_to(login)
    }

    /// Decodes a command of a transaction, whose name and number of arguments were checked: see [`Action::decode`].
    pub(crate) fn decode_queued(
        name: CommandName,
        arguments: Arguments<'_>,
        space: Space,
        spaces: Spaces,
        operands: &mut Operands,
        now: UnixTime,
        login: &Login,
    ) -> Action {
        if let Some(user) = login.limited()
            && let Err(refused) = permission::check(user, name, arguments, Place { space: Some(space), spaces })
        {
            return Action::Refuse(refused.message_at_exec(user, name, arguments));
        }
        Action::decode_allowed(name, arguments, space, spaces, operands, now).limited_to(login)
    }

    /// Lets a command that returns keys leave out those that the user may not read.
    fn limited_to(self, login: &Login) -> Action {
        match self {
            Action::Keyspace(command) => Action::Keyspace(command.limited_to(login)),
            action => action,
        }
    }

    /// Returns the name of a command for a transaction, or a refusal: see [`Action::name`]. Also if the user of the login
    /// may not run it.
    pub(crate) fn name_to_queue(
        arguments: Arguments<'_>,
        spaces: Spaces,
        login: &Login,
    ) -> Result<CommandName, Action> {
        let name = Action::name(arguments, login.gate())?;
        let Some(user) = login.limited() else { return Ok(name) };
        let refused = check_and_count(user, name, arguments, Place { space: None, spaces });
        refused.map(|()| name).map_err(|refused| {
            let message = refused.message(user, name, arguments);
            Action::Refuse(if name == CommandName::Exec { format!("{DISCARDED} of: {message}") } else { message })
        })
    }
}
