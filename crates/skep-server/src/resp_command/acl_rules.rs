//! The rules by which a user is described and changed: those of Redis, and some of Skep's own.
//!
//! ```text
//!   on  off                              may it log in?
//!   >password  <password  #hash  !hash   adds, removes a password
//!   nopass  resetpass                    any password is right; none is
//!   +command  -command  +command|sub     allows, denies a command or one of its subcommands
//!   +@category  -@category               the same for all commands of a category; @all: for all
//!   allcommands  nocommands              +@all, -@all
//!   ~pattern  %R~pattern  %W~pattern     allows keys; for reading; for writing
//!   allkeys  resetkeys                   all keys; none
//!   space:hash  allspaces                allows a space; all of them, as at first          Skep's own
//!   connections:N  operations:N  bytes:N limits; 0: none                                   Skep's own
//!   &pattern  allchannels  resetchannels kept: there are no channels
//!   reset                                as a new user is
//! ```
//!
//! Rules are applied from left to right. Error texts are those of Redis, because tools show them.

use skep_wire::native::PASSWORD_SIZE_MAX;

use super::permission::{number_of_command, number_of_subcommand};
use super::subcommands::{SUBCOMMANDS, Subcommand};
use super::table::{CATEGORIES, COMMANDS, CommandName};
use crate::access::{
    CommandSet, KeyAccess, KeyPatterns, PASSWORDS_MAX, PasswordHash, PatternError, SPACES, SpaceSet, User, UserLimits,
};

const UNKNOWN: &str = "Unknown command or category name in ACL";
const SYNTAX: &str = "Syntax error";
const AFTER_ALL_KEYS: &str = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have \
                              any effect. Try 'resetkeys' to start with an empty list of patterns";
const AFTER_ALL_CHANNELS: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does \
                                  not have any effect. Try 'resetchannels' to start with an empty list of channels";
const WRONG_HASH: &str = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
                          characters";
const NO_PASSWORD: &str = "The password you are trying to remove from the user does not exist";
const TOO_MUCH: &str = "The user would have too many passwords, patterns or rules, or too long ones";
const SELECTORS: &str = "Selectors, which are rules in parentheses, are not supported: make another user";

/// The most bytes of the rules of a user on commands, and of its channels.
const RULES_SIZE_MAX: usize = 4 << 10;

/// Changes a user by a rule. Returns what is wrong with it, and has then changed nothing.
pub(super) fn apply(user: &mut User, rule: &[u8]) -> Result<(), &'static str> {
    let Ok(text) = std::str::from_utf8(rule) else { return apply_bytes(user, rule) };
    let permissions = &mut user.permissions;
    match text.to_ascii_lowercase().as_str() {
        "on" => user.is_on = true,
        "off" => user.is_on = false,
        "nopass" => (user.takes_any_password, user.passwords) = (true, Vec::new()),
        "resetpass" => (user.takes_any_password, user.passwords) = (false, Vec::new()),
        "allkeys" | "~*" => permissions.keys = KeyPatterns::all(),
        "resetkeys" => permissions.keys = KeyPatterns::default(),
        "allchannels" | "&*" => permissions.channels = vec!["*".to_owned()],
        "resetchannels" => permissions.channels.clear(),
        "allcommands" | "+@all" => choose_all(user, true),
        "nocommands" | "-@all" => choose_all(user, false),
        "allspaces" => permissions.spaces = SpaceSet::ALL,
        // What Redis has for data types that Skep does not have.
        "sanitize-payload" | "skip-sanitize-payload" | "clearselectors" => {}
        "reset" => {
            let new = User::new(&user.name);
            *user = User { name: user.name.clone(), usage: user.usage.clone(), ..new };
        }
        lower => match lower.split_once(':') {
            Some(("space", name)) => {
                let space = SPACES.iter().find(|(other, _)| *other == name).ok_or(SYNTAX)?;
                permissions.spaces.choose(space.1);
            }
            Some((name @ ("connections" | "operations" | "bytes"), number)) => limit(&mut user.limits, name, number)?,
            _ => return apply_bytes(user, rule),
        },
    }
    Ok(())
}

/// Applies a rule that begins with a sign. What follows it need not be text.
fn apply_bytes(user: &mut User, rule: &[u8]) -> Result<(), &'static str> {
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| SYNTAX);
    match rule {
        [b'>' | b'<', password @ ..] if password.len() > PASSWORD_SIZE_MAX => Err(TOO_MUCH),
        [b'>', password @ ..] => add_password(user, PasswordHash::of(password)),
        [b'#', hash @ ..] => add_password(user, text(hash)?.parse().map_err(|()| WRONG_HASH)?),
        [b'<', password @ ..] => remove_password(user, &PasswordHash::of(password)),
        [b'!', hash @ ..] => remove_password(user, &text(hash)?.parse().map_err(|()| WRONG_HASH)?),
        [b'~', pattern @ ..] => add_pattern(user, pattern, KeyAccess::BOTH),
        [b'%', ..] if user.permissions.keys.is_all() => Err(AFTER_ALL_KEYS),
        [b'%', rest @ ..] => {
            let signs = rest.iter().position(|byte| *byte == b'~').ok_or(SYNTAX)?;
            let access = match rest[..signs].to_ascii_uppercase().as_slice() {
                b"R" => KeyAccess::READ,
                b"W" => KeyAccess::WRITE,
                b"RW" | b"WR" => KeyAccess::BOTH,
                _ => return Err(SYNTAX),
            };
            add_pattern(user, &rest[signs + 1..], access)
        }
        [b'&', pattern @ ..] => add_channel(user, text(pattern)?),
        [sign @ (b'+' | b'-'), name @ ..] => choose(user, text(name)?, *sign == b'+'),
        [b'(', ..] => Err(SELECTORS),
        _ => Err(SYNTAX),
    }
}

fn limit(limits: &mut UserLimits, name: &str, number: &str) -> Result<(), &'static str> {
    let number: u32 = number.parse().map_err(|_| "A limit is a number from 0 to 4294967295")?;
    let most = (number > 0).then_some(number);
    match name {
        "connections" => limits.connections = most,
        "operations" => limits.operations = most,
        _ => limits.bytes = most,
    }
    Ok(())
}

fn add_password(user: &mut User, hash: PasswordHash) -> Result<(), &'static str> {
    if !user.passwords.contains(&hash) {
        if user.passwords.len() == PASSWORDS_MAX {
            return Err(TOO_MUCH);
        }
        user.passwords.push(hash);
    }
    user.takes_any_password = false;
    Ok(())
}

fn remove_password(user: &mut User, hash: &PasswordHash) -> Result<(), &'static str> {
    let index = user.passwords.iter().position(|other| other == hash).ok_or(NO_PASSWORD)?;
    user.passwords.remove(index);
    Ok(())
}

fn add_pattern(user: &mut User, pattern: &[u8], access: KeyAccess) -> Result<(), &'static str> {
    if has_blanks(pattern) && !user.permissions.keys.is_all() {
        return Err(SYNTAX);
    }
    user.permissions.keys.add(pattern, access).map_err(|error| match error {
        PatternError::AfterAll => AFTER_ALL_KEYS,
        PatternError::TooMuch => TOO_MUCH,
    })
}

fn add_channel(user: &mut User, pattern: &str) -> Result<(), &'static str> {
    let channels = &mut user.permissions.channels;
    if channels.iter().any(|channel| channel == "*") {
        return Err(AFTER_ALL_CHANNELS);
    }
    if has_blanks(pattern.as_bytes()) {
        return Err(SYNTAX);
    }
    if !channels.iter().any(|channel| channel == pattern) {
        if channels.iter().map(String::len).sum::<usize>() + pattern.len() + channels.len() > RULES_SIZE_MAX {
            return Err(TOO_MUCH);
        }
        channels.push(pattern.to_owned());
    }
    Ok(())
}

/// Returns true if a text would not be read again from a file of users as it is.
fn has_blanks(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0)
}

fn choose_all(user: &mut User, is_allowed: bool) {
    user.permissions.commands = if is_allowed { CommandSet::ALL } else { CommandSet::default() };
    user.permissions.command_rules = if is_allowed { "+@all" } else { "-@all" }.to_owned();
}

/// Allows or denies a command, one of its subcommands, or a category.
fn choose(user: &mut User, name: &str, is_allowed: bool) -> Result<(), &'static str> {
    let name = name.to_ascii_lowercase();
    let rules = with_rule(&user.permissions.command_rules, &name, is_allowed);
    if rules.len() > RULES_SIZE_MAX {
        return Err(TOO_MUCH);
    }
    let commands = &mut user.permissions.commands;
    if let Some(category) = name.strip_prefix('@') {
        if !CATEGORIES.contains(&category) {
            return Err(UNKNOWN);
        }
        choose_category(commands, category, is_allowed);
    } else if let Some(command) = CommandName::find(name.as_bytes()) {
        choose_command(commands, command, is_allowed);
    } else {
        let index = SUBCOMMANDS.iter().position(|subcommand| subcommand.full_name() == name).ok_or(UNKNOWN)?;
        commands.set(number_of_subcommand(index), is_allowed);
    }
    user.permissions.command_rules = rules;
    Ok(())
}

/// Allows or denies a command with all its subcommands.
fn choose_command(commands: &mut CommandSet, command: CommandName, is_allowed: bool) {
    commands.set(number_of_command(command), is_allowed);
    for (index, subcommand) in SUBCOMMANDS.iter().enumerate() {
        if subcommand.command == command {
            commands.set(number_of_subcommand(index), is_allowed);
        }
    }
}

/// Allows or denies the commands of a category with all their subcommands, and the subcommands of the category.
fn choose_category(commands: &mut CommandSet, category: &str, is_allowed: bool) {
    for info in COMMANDS.iter().filter(|info| info.categories().any(|other| other == category)) {
        if let Some(command) = CommandName::find(info.name.as_bytes()) {
            choose_command(commands, command, is_allowed);
        }
    }
    for (index, subcommand) in SUBCOMMANDS.iter().enumerate() {
        if subcommand.categories().any(|other| other == category) {
            commands.set(number_of_subcommand(index), is_allowed);
        }
    }
}

/// Returns the rules on commands with another one at the end. Earlier ones that it makes useless are left out.
fn with_rule(rules: &str, name: &str, is_allowed: bool) -> String {
    let is_overruled = |rule: &str| {
        let other = &rule[1..];
        other == name || other.strip_prefix(name).is_some_and(|rest| rest.starts_with('|'))
    };
    let mut rules: Vec<&str> = rules.split(' ').filter(|rule| !is_overruled(rule)).collect();
    let rule = format!("{}{name}", if is_allowed { '+' } else { '-' });
    rules.push(&rule);
    rules.join(" ")
}

/// Describes a user by rules that make the same user of a new one, as a line of the file of users.
pub(super) fn describe(user: &User) -> Vec<u8> {
    let mut line = format!("user {} {}", user.name, if user.is_on { "on" } else { "off" }).into_bytes();
    let mut add = |rule: &[u8]| {
        line.push(b' ');
        line.extend_from_slice(rule);
    };
    if user.takes_any_password {
        add(b"nopass");
    }
    user.passwords.iter().for_each(|hash| add(format!("#{hash}").as_bytes()));
    user.permissions.keys.rules().iter().for_each(|rule| add(rule));
    match user.permissions.channels.as_slice() {
        [all] if all == "*" => add(b"&*"),
        channels => {
            add(b"resetchannels");
            channels.iter().for_each(|channel| add(format!("&{channel}").as_bytes()));
        }
    }
    own_rules(user).iter().for_each(|rule| add(rule.as_bytes()));
    add(user.permissions.command_rules.as_bytes());
    line
}

/// Returns the rules of a user that Redis does not have.
pub(super) fn own_rules(user: &User) -> Vec<String> {
    let mut rules = Vec::new();
    if !user.permissions.spaces.is_all() {
        rules.extend(user.permissions.spaces.names().map(|name| format!("space:{name}")));
    }
    let UserLimits { connections, operations, bytes } = user.limits;
    for (name, most) in [("connections", connections), ("operations", operations), ("bytes", bytes)] {
        rules.extend(most.map(|most| format!("{name}:{most}")));
    }
    rules
}

/// Returns the names of the commands and subcommands of a category.
pub(super) fn names_of_category(category: &str) -> Vec<String> {
    let commands = COMMANDS.iter().filter(|info| info.categories().any(|other| other == category));
    let subcommands = SUBCOMMANDS.iter().filter(|subcommand| subcommand.categories().any(|other| other == category));
    commands.map(|info| info.name.to_owned()).chain(subcommands.map(Subcommand::full_name)).collect()
}
