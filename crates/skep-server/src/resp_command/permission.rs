//! What the user of a connection may do: the check that each command passes before it is executed.
//!
//! A command is checked when it is decoded ([`super::allowed`]), and one of a transaction also when it is
//! queued. It is checked as a whole: a command on a hundred keys of which one is forbidden does nothing. No store is
//! asked before, so a refusal says nothing about a key.
//!
//! The decisions on commands and keys are those of Redis, key by key. Ranges of the ordered space, which Redis does not
//! have, must lie within one pattern, such as `user:*`, that allows reading.

use super::scan_command;
use super::subcommands::{SUBCOMMANDS, Subcommand};
use super::table::{COMMANDS, CommandName};
use super::{Arguments, chosen_space_at};
use crate::access::{COMMANDS_MAX, CommandSet, KeyAccess, LimitedUser, SPACES, SpaceSet};
use crate::limits::LONG_COMMAND;
use crate::vocabulary::{Space, Spaces};

const _: () = assert!(COMMANDS.len() + SUBCOMMANDS.len() <= COMMANDS_MAX);

/// The most arguments of a command whose keys are compared with the patterns of a user: all are compared in one turn.
const COMPARED_ARGUMENTS_MAX: usize = LONG_COMMAND;

/// The reason why a command is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The command or its subcommand.
    Command,
    /// The key that is this argument.
    Key(usize),
    /// The range of keys.
    Range,
    Space(Space),
    /// The command has too many keys for a user with patterns.
    TooManyKeys,
    /// The user has had all operations or bytes of this second.
    TooFast,
}

/// The place of a command: where it is to be executed.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The chosen space. `None`: the command is queued, and checked again when it is executed.
    pub(crate) space: Option<Space>,
    pub(crate) spaces: Spaces,
}

/// Returns the number of a command in sets of commands.
pub(super) fn number_of_command(name: CommandName) -> usize {
    name as usize
}

/// Returns the number of the subcommand at this index of the table.
pub(super) fn number_of_subcommand(index: usize) -> usize {
    COMMANDS.len() + index
}

/// Returns the number of the command or subcommand that the arguments name.
fn number(name: CommandName, arguments: Arguments<'_>) -> usize {
    Subcommand::index_of(name, arguments).map_or(number_of_command(name), number_of_subcommand)
}

/// Returns the name of the command, with that of its subcommand, such as `config|get`.
pub(super) fn full_name(name: CommandName, arguments: Arguments<'_>) -> String {
    match Subcommand::index_of(name, arguments) {
        Some(index) => SUBCOMMANDS[index].full_name(),
        None => name.text().to_owned(),
    }
}

/// Checks a command, whose number of arguments was checked.
pub(super) fn check(
    user: LimitedUser<'_>,
    name: CommandName,
    arguments: Arguments<'_>,
    place: Place,
) -> Result<(), Refused> {
    // A user that may do nothing may still become another one.
    if name.info().has("no_auth") {
        return Ok(());
    }
    if !user.commands().has(number(name, arguments)) {
        return Err(Refused::Command);
    }
    if !user.spaces().is_all() {
        check_spaces(user.spaces(), name, arguments, place)?;
    }
    if !user.keys().is_all() {
        check_keys(user, name, arguments)?;
    }
    Ok(())
}

/// What a client of another front end does with the functions of users: as the subcommand of `SKEP.FUNCTION` of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FunctionsPermission {
    List,
    Show,
    Load,
    Delete,
}

/// Returns true if a user with these commands may do that.
pub(crate) fn may_use_functions(commands: &CommandSet, needed: FunctionsPermission) -> bool {
    let name = match needed {
        FunctionsPermission::List => "list",
        FunctionsPermission::Show => "show",
        FunctionsPermission::Load => "load",
        FunctionsPermission::Delete => "delete",
    };
    has_subcommand(commands, CommandName::SkepFunction, name)
}

/// Returns true if a user with these commands may set the statistics to zero.
pub(crate) fn may_reset_statistics(commands: &CommandSet) -> bool {
    has_subcommand(commands, CommandName::Config, "resetstat")
}

fn has_subcommand(commands: &CommandSet, command: CommandName, name: &str) -> bool {
    let is_needed = |subcommand: &Subcommand| subcommand.command == command && subcommand.name == name;
    SUBCOMMANDS.iter().position(is_needed).is_some_and(|index| commands.has(number_of_subcommand(index)))
}

fn check_spaces(allowed: SpaceSet, name: CommandName, arguments: Arguments<'_>, place: Place) -> Result<(), Refused> {
    let check = |space: Option<Space>| match space {
        Some(space) if !allowed.has(space) => Err(Refused::Space(space)),
        _ => Ok(()),
    };
    let mut keys = name.key_indexes(arguments);
    match name {
        CommandName::Select => check(chosen_space_at(arguments, 1, place.spaces)),
        CommandName::FlushAll => SPACES.iter().try_for_each(|(_, space)| check(Some(*space))),
        _ if keys.next().is_some() || name.info().needs_order || name.is_on_all_keys() => {
            check(place.space)?;
            let mut targets = (3..arguments.count().saturating_sub(1)).filter(|index| arguments.is(*index, "DB"));
            match name {
                CommandName::Copy => {
                    targets.try_for_each(|index| check(chosen_space_at(arguments, index + 1, place.spaces)))
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn check_keys(user: LimitedUser<'_>, name: CommandName, arguments: Arguments<'_>) -> Result<(), Refused> {
    if let Some(prefix) = scan_command::prefix_of(name, arguments) {
        let is_allowed = prefix.is_some_and(|prefix| user.keys().allow_reading_prefix(prefix));
        return if is_allowed { Ok(()) } else { Err(Refused::Range) };
    }
    let mut keys = name.key_indexes(arguments).enumerate().peekable();
    if keys.peek().is_some() && arguments.count() > COMPARED_ARGUMENTS_MAX {
        return Err(Refused::TooManyKeys);
    }
    let denied = keys.find(|(number, index)| {
        let needed = needed(name, *number, arguments);
        !user.keys().allow(arguments.get(*index), needed)
    });
    denied.map_or(Ok(()), |(_, index)| Err(Refused::Key(index)))
}

/// Returns what a command does to the value of a key: that of this number among its keys.
fn needed(name: CommandName, number: usize, arguments: Arguments<'_>) -> KeyAccess {
    let has = |from: usize, words: &[&str]| {
        (from..arguments.count()).any(|index| words.iter().any(|word| arguments.is(index, word)))
    };
    const CONDITIONS: [&str; 4] = ["IFEQ", "IFNE", "IFDEQ", "IFDNE"];
    match name {
        // The reply tells about the old value.
        CommandName::Set if has(3, &["GET"]) || has(3, &CONDITIONS) => return KeyAccess::BOTH,
        CommandName::DelEx if has(2, &CONDITIONS) => return KeyAccess::BOTH,
        CommandName::BitField if only_reads_fields(arguments) => return KeyAccess::READ,
        _ => {}
    }
    let mut parts = name.info().access.split(' ');
    let first = parts.next().unwrap_or_default();
    let access = if number == 0 { first } else { parts.next().unwrap_or(first) };
    KeyAccess { reads: access.contains('r'), writes: access.contains('w') }
}

/// Returns true if a `BITFIELD` changes nothing, as Redis finds it out.
fn only_reads_fields(arguments: Arguments<'_>) -> bool {
    let mut index = 2;
    while index < arguments.count() {
        let left = arguments.count() - index - 1;
        index += match () {
            () if arguments.is(index, "GET") && left >= 2 => 3,
            () if arguments.is(index, "OVERFLOW") && left >= 1 => 2,
            () => return false,
        };
    }
    true
}

impl Refused {
    /// Returns the reason, as `ACL DRYRUN` of Redis tells it to an administrator.
    pub(super) fn told(self, user: LimitedUser<'_>, name: CommandName, arguments: Arguments<'_>) -> String {
        match self {
            Refused::Key(index) => {
                let key = super::excerpt(arguments.get(index), 128);
                format!("User {} has no permissions to access the '{key}' key", user.user.name)
            }
            _ => self.reason(user, name, arguments),
        }
    }

    /// Returns the error message for the client. It does not repeat a key.
    pub(super) fn message(self, user: LimitedUser<'_>, name: CommandName, arguments: Arguments<'_>) -> String {
        let code = if self == Refused::TooFast { "BUSY" } else { "NOPERM" };
        format!("{code} {}", self.reason(user, name, arguments))
    }

    /// Returns the error message for a command of a transaction that was allowed when it was queued.
    pub(super) fn message_at_exec(self, user: LimitedUser<'_>, name: CommandName, arguments: Arguments<'_>) -> String {
        let reason = match self {
            Refused::Command => "no permission to execute the command or subcommand",
            Refused::Key(_) => "no permission to touch the specified keys",
            _ => return self.message(user, name, arguments),
        };
        format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {reason}"
        )
    }

    fn reason(self, user: LimitedUser<'_>, name: CommandName, arguments: Arguments<'_>) -> String {
        let user = &user.user.name;
        match self {
            Refused::Command => {
                format!("User {user} has no permissions to run the '{}' command", full_name(name, arguments))
            }
            Refused::Key(_) => "No permissions to access a key".to_owned(),
            Refused::Range => {
                "No permissions to access a key: a range must lie within one pattern of the user, such as user:*"
                    .to_owned()
            }
            Refused::Space(space) => format!("No permissions to access the {} space", name_of_space(space)),
            Refused::TooManyKeys => {
                format!("a user with key patterns sends at most {COMPARED_ARGUMENTS_MAX} arguments with keys")
            }
            Refused::TooFast => {
                format!("user {user} has had all operations or bytes of this second: send the command again later")
            }
        }
    }
}

/// Returns the name that rules give a space.
pub(crate) fn name_of_space(space: Space) -> &'static str {
    SPACES.iter().find(|(_, other)| *other == space).map_or("", |(name, _)| name)
}
