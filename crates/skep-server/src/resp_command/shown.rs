//! A command as others may see it, in the slow log and by `MONITOR`: without passwords.

use std::borrow::Cow;

use super::Arguments;
use super::table::CommandName;

/// What stands in place of a password.
const REDACTED: &[u8] = b"(redacted)";

/// Returns the arguments of a command, the name first, with passwords replaced.
pub(super) fn arguments_shown<'a>(
    name: CommandName,
    arguments: Arguments<'a>,
) -> impl Iterator<Item = Cow<'a, [u8]>> + 'a {
    // The password, or the user and the password, follow the last argument that may be shown.
    let shown = match name {
        CommandName::Auth => 1,
        CommandName::Hello => {
            (1..arguments.count()).find(|&index| arguments.is(index, "AUTH")).map_or(usize::MAX, |index| index + 1)
        }
        CommandName::Config if arguments.count() > 2 && arguments.is(1, "SET") => {
            let is_password = |&index: &usize| arguments.is(index, "requirepass");
            (2..arguments.count()).step_by(2).find(is_password).map_or(usize::MAX, |index| index + 1)
        }
        // The rules of a user may be passwords, and so may the arguments of a command that is tried.
        CommandName::Acl if arguments.count() > 2 && arguments.is(1, "SETUSER") => 3,
        CommandName::Acl if arguments.count() > 3 && arguments.is(1, "DRYRUN") => 4,
        _ => usize::MAX,
    };
    arguments.from(0).enumerate().map(move |(index, argument)| match index < shown {
        true => Cow::Borrowed(argument),
        false => Cow::Borrowed(REDACTED),
    })
}
