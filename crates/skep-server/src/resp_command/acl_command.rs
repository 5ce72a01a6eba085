//! `ACL`: commands about users, and what is noted when a user is denied something.

use std::sync::Arc;
use std::thread;

use ring::rand::{SecureRandom, SystemRandom};
use skep_wire::resp::ReplyWriter;

use super::acl_file::{self, FILE_SIZE_MAX};
use super::acl_rules::{apply, describe, names_of_category, own_rules};
use super::error_messages::DISCARDED;
use super::permission::{self, Place, Refused};
use super::session::FileWork;
use super::table::{CATEGORIES, COMMANDS, CommandName};
use super::{Arguments, Context, LOOK_TIME, Session, client_command, excerpt, subcommands, wrong_argument_count};
use crate::access::{
    DEFAULT, Denial, DeniedOperation, LimitedUser, Login, OBJECT_SIZE_MAX, Reason, USERS_MAX, User, UserTable, log_text,
};
use crate::limits::{CLIENT_WORK, LOOK_WORK, SERVER_ARGUMENTS_MAX};
use crate::shared::Shared;
use crate::unix_time::UnixTime;

const HELP: [&str; 32] = [
    "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CAT [<category>]",
    "    List all commands that belong to <category>, or all command categories",
    "    when no category is specified.",
    "DELUSER <username> [<username> ...]",
    "    Delete a list of users.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Returns whether the user can execute the given command without executing the command.",
    "GETUSER <username>",
    "    Get the user's details.",
    "GENPASS [<bits>]",
    "    Generate a secure 256-bit user password. The optional `bits` argument can",
    "    be used to specify a different size.",
    "LIST",
    "    Show users details in config file format.",
    "LOAD",
    "    Reload users from the ACL file.",
    "LOG [<count> | RESET]",
    "    Show the ACL log entries.",
    "SAVE",
    "    Save the current config to the ACL file.",
    "SETUSER <username> <attribute> [<attribute> ...]",
    "    Create or modify a user with the specified attributes. Those of Skep are",
    "    space:hash, space:ordered, space:cache, allspaces, and limits, of which 0 is none:",
    "    connections:<n>, operations:<n per second>, bytes:<n per second>.",
    "USERS",
    "    List all the registered usernames.",
    "WHOAMI",
    "    Return the current connection username.",
    "HELP",
    "    Print this help.",
    "",
];

const NO_FILE: &str = "ERR Skep has no file of users: start it with --acl-file";
const WRONG_NAME: &str = "ERR Usernames can't contain spaces or null characters";

/// Entries that `ACL LOG` returns if it is not said.
const LOG_ENTRIES: usize = 10;

/// The most bits of a password that `ACL GENPASS` makes.
const PASSWORD_BITS_MAX: usize = 4096;

/// Runs a subcommand, whose number of arguments was checked. Spends the work from the account, except that of the text.
pub(super) fn run(
    arguments: Arguments<'_>,
    writer: &mut ReplyWriter<'_>,
    session: &mut Session,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let subcommand = arguments.get(1).to_ascii_lowercase();
    let access = &context.shared.access;
    match subcommand.as_slice() {
        b"whoami" => writer.bulk(session.login.name().as_bytes()),
        b"users" => {
            let users = access.users();
            writer.array(users.len());
            users.keys().for_each(|name| writer.bulk(name.as_bytes()));
        }
        b"list" => {
            let users = access.users();
            writer.array(users.len());
            users.values().for_each(|user| writer.bulk(&describe(user)));
        }
        b"getuser" => get_user(arguments, writer, context),
        b"setuser" => {
            set_user(arguments, context)?;
            writer.simple("OK");
        }
        b"deluser" => writer.integer(delete_users(arguments, context)?),
        b"dryrun" => dry_run(arguments, writer, context)?,
        b"log" => log(arguments, writer, context)?,
        b"cat" => categories(arguments, writer, context)?,
        b"genpass" => writer.bulk(generate_password(arguments)?.as_bytes()),
        b"load" | b"save" => {
            let Some(users) = use_file(subcommand == b"load", session, context)? else { return Ok(()) };
            if subcommand == b"load" {
                put_in_force(users, context);
            }
            writer.simple("OK");
        }
        _ => writer.lines(&HELP[..HELP.len() - 1]),
    }
    Ok(())
}

/// Finds the user that an argument names.
fn find_user(name: &[u8], context: &Context<'_>) -> Option<Arc<User>> {
    context.shared.access.user(std::str::from_utf8(name).ok()?)
}

/// Runs `ACL GETUSER name`.
fn get_user(arguments: Arguments<'_>, writer: &mut ReplyWriter<'_>, context: &Context<'_>) {
    let Some(user) = find_user(arguments.get(2), context) else { return writer.null() };
    let join = |rules: &[Vec<u8>]| rules.join(&b' ');
    writer.map(8);
    writer.bulk(b"flags");
    let flags = [Some(if user.is_on { "on" } else { "off" }), user.takes_any_password.then_some("nopass")];
    writer.set(flags.iter().flatten().count());
    flags.iter().flatten().for_each(|flag| writer.bulk(flag.as_bytes()));
    writer.bulk(b"passwords");
    writer.array(user.passwords.len());
    user.passwords.iter().for_each(|hash| writer.bulk(hash.to_string().as_bytes()));
    writer.bulk(b"commands");
    writer.bulk(user.permissions.command_rules.as_bytes());
    writer.bulk(b"keys");
    writer.bulk(&join(&user.permissions.keys.rules()));
    writer.bulk(b"channels");
    let channels = user.permissions.channels.iter().map(|channel| format!("&{channel}").into_bytes());
    writer.bulk(&join(&channels.collect::<Vec<_>>()));
    writer.bulk(b"selectors");
    writer.array(0);
    let (spaces, limits): (Vec<String>, Vec<String>) =
        own_rules(&user).into_iter().partition(|rule| rule.starts_with("space:"));
    writer.bulk(b"spaces");
    writer.bulk(if spaces.is_empty() { "allspaces".to_owned() } else { spaces.join(" ") }.as_bytes());
    writer.bulk(b"limits");
    writer.bulk(limits.join(" ").as_bytes());
}

/// Runs `ACL SETUSER name [rule…]`: all rules are applied, or none.
fn set_user(arguments: Arguments<'_>, context: &mut Context<'_>) -> Result<(), String> {
    let mut size = 0;
    let new = acl_file::new_user(arguments.get(2)).ok_or(WRONG_NAME)?;
    context.shared.access.change_users(|users| {
        let mut user = users.get(&new.name).map_or(new, |user| User::clone(user));
        for rule in arguments.from(3) {
            apply(&mut user, rule).map_err(|reason| {
                // It may be a password.
                let shown = if rule.first() == Some(&b'>') { &b">(hidden)"[..] } else { rule };
                format!("ERR Error in ACL SETUSER modifier '{}': {reason}", excerpt(shown, 128))
            })?;
        }
        users.insert(user.name.clone(), Arc::new(user));
        size = users.values().map(|user| describe(user).len() + 1).sum();
        match users.len() > USERS_MAX || size > FILE_SIZE_MAX {
            true => Err(format!("ERR there are at most {USERS_MAX} users, whose rules have {FILE_SIZE_MAX} bytes")),
            false => Ok(()),
        }
    })?;
    context.account.spend(size);
    Ok(())
}

/// Runs `ACL DELUSER name…`. Returns how many users there were.
fn delete_users(arguments: Arguments<'_>, context: &mut Context<'_>) -> Result<i64, String> {
    if arguments.from(2).any(|name| name == DEFAULT.as_bytes()) {
        return Err("ERR The 'default' user cannot be removed".to_owned());
    }
    let deleted = context.shared.access.change_users(|users| {
        let names = arguments.from(2).filter_map(|name| std::str::from_utf8(name).ok());
        let deleted: Vec<Arc<str>> =
            names.filter_map(|name| users.remove(name)).map(|user| user.name.clone()).collect();
        Ok::<_, String>(deleted)
    })?;
    end_connections(&deleted, context);
    Ok(deleted.len() as i64)
}

/// Ends the connections of users that were deleted.
fn end_connections(users: &[Arc<str>], context: &mut Context<'_>) {
    if users.is_empty() {
        return;
    }
    context.account.spend(LOOK_WORK * context.shared.connection_count());
    context.shared.end_connections_of(users, |number| {
        // It ends after its reply.
        let is_own = number == context.connection;
        context.outcome.closing |= is_own;
        is_own
    });
    context.wake_shards();
}

/// Puts the users of a file in force.
fn put_in_force(users: UserTable, context: &mut Context<'_>) {
    let deleted = context.shared.access.replace_users(users);
    end_connections(&deleted, context);
}

/// Runs `ACL DRYRUN user command [argument…]`.
fn dry_run(arguments: Arguments<'_>, writer: &mut ReplyWriter<'_>, context: &Context<'_>) -> Result<(), String> {
    let user = find_user(arguments.get(2), context)
        .ok_or_else(|| format!("ERR User '{}' not found", excerpt(arguments.get(2), 128)))?;
    let command = Arguments { request: arguments.request, ranges: &arguments.ranges[3..] };
    let not_found = || format!("ERR Command '{}' not found", excerpt(command.get(0), 128));
    let name = CommandName::find(command.get(0)).ok_or_else(not_found)?;
    let (arity, count) = (name.info().arity, command.count() as i64);
    if (arity >= 0 && count != arity) || count < -arity {
        return Err(wrong_argument_count(name.text()));
    }
    subcommands::check(name, command).map_err(|message| match message.starts_with("ERR unknown") {
        true => not_found(),
        false => message,
    })?;
    let space = context.shared.clients().get(&context.connection).map(|client| client.space);
    let place = Place { space, spaces: context.shared.spaces() };
    let limited = LimitedUser { user: &user, time: context.time };
    match permission::check(limited, name, command, place) {
        Ok(()) => writer.simple("OK"),
        Err(refused) => writer.bulk(refused.told(limited, name, command).as_bytes()),
    }
    Ok(())
}

/// Runs `ACL LOG [count|RESET]`.
fn log(arguments: Arguments<'_>, writer: &mut ReplyWriter<'_>, context: &Context<'_>) -> Result<(), String> {
    let denials = &context.shared.access.denials;
    if arguments.count() > 3 {
        return Err("ERR syntax error".to_owned());
    }
    if arguments.count() == 3 && arguments.is(2, "RESET") {
        denials.clear();
        writer.simple("OK");
        return Ok(());
    }
    let count = match arguments.count() {
        2 => LOG_ENTRIES,
        _ => arguments.integer(2).ok_or("ERR value is not an integer or out of range")?.max(0) as usize,
    };
    let (entries, now) = (denials.newest(count), context.time.milliseconds());
    writer.array(entries.len());
    for entry in &entries {
        let denial = &entry.denial;
        let context = if denial.is_in_transaction { "multi" } else { "toplevel" };
        writer.map(10);
        writer.bulk(b"count");
        writer.integer(entry.count.cast_signed());
        let age = format!("{:.3}", (now - entry.created).max(0) as f64 / 1000.0);
        let texts: [(&str, &[u8]); 6] = [
            ("reason", denial.reason.text().as_bytes()),
            ("context", context.as_bytes()),
            ("object", &denial.object),
            ("username", denial.user.as_bytes()),
            ("age-seconds", age.as_bytes()),
            ("client-info", denial.client.as_bytes()),
        ];
        for (name, text) in texts {
            writer.bulk(name.as_bytes());
            writer.bulk(text);
        }
        let numbers = [
            ("entry-id", entry.number.cast_signed()),
            ("timestamp-created", entry.created),
            ("timestamp-last-updated", entry.updated),
        ];
        for (name, number) in numbers {
            writer.bulk(name.as_bytes());
            writer.integer(number);
        }
    }
    Ok(())
}

/// Runs `ACL CAT [category]`.
fn categories(arguments: Arguments<'_>, writer: &mut ReplyWriter<'_>, context: &mut Context<'_>) -> Result<(), String> {
    let names = match arguments.count() {
        2 => CATEGORIES.iter().map(|category| (*category).to_owned()).collect(),
        3 => {
            let Some(wanted) = CATEGORIES.iter().find(|category| arguments.is(2, category)) else {
                return Err(format!("ERR Unknown category '{}'", excerpt(arguments.get(2), 128)));
            };
            context.account.spend(LOOK_WORK * COMMANDS.len() * CATEGORIES.len() / 4);
            names_of_category(wanted)
        }
        _ => return Err(wrong_argument_count("acl|cat")),
    };
    writer.array(names.len());
    names.iter().for_each(|name| writer.bulk(name.as_bytes()));
    Ok(())
}

/// Runs `ACL GENPASS [bits]`: returns random bits as hexadecimal digits.
fn generate_password(arguments: Arguments<'_>) -> Result<String, String> {
    const WRONG: &str = "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up \
                         to 4096";
    let bits = match arguments.count() {
        2 => 256,
        3 => arguments.integer(2).ok_or("ERR value is not an integer or out of range")?,
        _ => return Err(wrong_argument_count("acl|genpass")),
    };
    let bits = usize::try_from(bits).ok().filter(|bits| (1..=PASSWORD_BITS_MAX).contains(bits)).ok_or(WRONG)?;
    let digits = bits.div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "ERR the system gives no random numbers".to_owned())?;
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(digits);
    Ok(text)
}

/// Reads or writes the file of users, by a thread of its own. `None`: it goes on, and the command is called again.
fn use_file(reads: bool, session: &mut Session, context: &mut Context<'_>) -> Result<Option<UserTable>, String> {
    let Some(work) = &session.file_work else {
        let path = context.shared.access.file.clone().ok_or(NO_FILE)?;
        let (work, users) = (FileWork::default(), context.shared.access.users());
        session.file_work = Some(work.clone());
        let run = move || match reads {
            true => acl_file::read_again(&path, &users).map_err(|error| format!("ERR {error}")),
            false => acl_file::write(&path, &users)
                .map(|()| users)
                .map_err(|reason| format!("ERR There was an error trying to save the ACLs: {reason}")),
        };
        thread::Builder::new()
            .name("skep-users".to_owned())
            .spawn(move || _ = work.set(run()))
            .map_err(|error| format!("ERR the system refuses a thread for the file of users: {error}"))
            .inspect_err(|_| session.file_work = None)?;
        context.outcome.held_until = Some(context.now + LOOK_TIME);
        return Ok(None);
    };
    let Some(done) = work.get().cloned() else {
        context.outcome.held_until = Some(context.now + LOOK_TIME);
        return Ok(None);
    };
    session.file_work = None;
    done.map(Some)
}

/// Notes a command that was refused with this message, if a user was denied it.
#[cold]
pub(super) fn note_denial(
    message: &str,
    name: CommandName,
    arguments: Arguments<'_>,
    session: &Session,
    context: &mut Context<'_>,
) {
    // A transaction is refused with the reason that ends it.
    let of_denial = message.strip_prefix(DISCARDED).and_then(|rest| rest.strip_prefix(" of: ")).unwrap_or(message);
    let (Some(user), Some(_)) = (session.login.limited(), of_denial.strip_prefix("NOPERM ")) else { return };
    context.account.spend(CLIENT_WORK);
    let space = context.shared.clients().get(&context.connection).map(|client| client.space);
    let place = Place { space, spaces: context.shared.spaces() };
    let (reason, object) = match permission::check(user, name, arguments, place) {
        Err(Refused::Key(index)) => (Reason::Key, head(arguments.get(index))),
        Err(Refused::Range) => (Reason::Key, head(arguments.from(1).next().unwrap_or_default())),
        Err(Refused::Space(space)) => (Reason::Space, permission::name_of_space(space).as_bytes().to_vec()),
        _ => (Reason::Command, permission::full_name(name, arguments).into_bytes()),
    };
    // The text of Redis that only a transaction has.
    let is_in_transaction = message.contains("the transaction was accumulated");
    note(
        Denial { reason, is_in_transaction, object, user: user.user.name.to_string(), client: String::new() },
        context,
    );
}

/// Notes a key, or a command, that a user of another front end was denied.
pub(crate) fn note_denied(reason: Reason, object: &[u8], login: &Login, context: &Context<'_>) {
    let (user, object) = (login.name().to_string(), head(object));
    note(Denial { reason, is_in_transaction: false, object, user, client: String::new() }, context);
}

/// Copies what the log keeps of a name or a key.
fn head(object: &[u8]) -> Vec<u8> {
    object[..object.len().min(OBJECT_SIZE_MAX)].to_vec()
}

/// Notes a login that was refused; it came with this command.
pub(crate) fn note_refused_login(user: &[u8], command: &str, context: &Context<'_>) {
    let denial = Denial {
        reason: Reason::Login,
        is_in_transaction: false,
        object: command.as_bytes().to_vec(),
        user: excerpt(user, 128).into_owned(),
        client: String::new(),
    };
    note(denial, context);
}

/// Adds a denial of this connection.
fn note(denial: Denial, context: &Context<'_>) {
    let client = client_line(context.connection, context.shared);
    context.shared.access.denials.add(Denial { client, ..denial }, context.time.milliseconds());
}

/// Lists an operation over the native protocol that was denied; it is counted with others.
pub(crate) fn list_denied_operation(
    denied: DeniedOperation,
    login: &Login,
    connection: u64,
    shared: &Shared,
    now: UnixTime,
) {
    let DeniedOperation { reason, object } = denied;
    let (user, client) = (login.name().to_string(), client_line(connection, shared));
    shared.access.denials.list(Denial { reason, is_in_transaction: false, object, user, client }, now.milliseconds());
}

/// Returns the line of `CLIENT LIST` for a connection.
fn client_line(connection: u64, shared: &Shared) -> String {
    let client = shared.clients().get(&connection).cloned();
    client
        .map_or_else(String::new, |client| client_command::describe(connection, &client, shared).trim_end().to_owned())
}

/// Tells the log of a command of an administrator, and whether it was done.
pub(super) fn audit(
    name: CommandName,
    arguments: Arguments<'_>,
    is_done: bool,
    session: &Session,
    context: &Context<'_>,
) {
    use CommandName::{
        Acl, BgRewriteAof, BgSave, Client, Config, Debug, Latency, Monitor, Save, Shutdown, SkepFunction, SlowLog,
    };
    if !matches!(
        name,
        Acl | BgRewriteAof
            | BgSave
            | Client
            | Config
            | Debug
            | Latency
            | Monitor
            | Save
            | Shutdown
            | SkepFunction
            | SlowLog
    ) {
        return;
    }
    let subcommand = subcommands::Subcommand::index_of(name, arguments).map(|index| &subcommands::SUBCOMMANDS[index]);
    let is_administrative = subcommand.is_none_or(|subcommand| !subcommand.flags.is_empty());
    if !is_administrative || arguments.count() > SERVER_ARGUMENTS_MAX {
        return;
    }
    let command = permission::full_name(name, arguments);
    // The name of what is changed. The arguments after it may be passwords.
    let target = if arguments.count() > 2 { arguments.get(2) } else { b"" };
    if subcommand.is_some_and(subcommands::Subcommand::only_shows) {
        let ((user, address), target) = (user_and_address(&session.login, context), log_text(target));
        tracing::debug!(user, address, command, target, done = is_done, "administrative command");
    } else {
        note_administration(&command, target, is_done, &session.login, context);
    }
}

/// Tells the log of a change of an administrator; this is the command of RESP that does the same, what it changes, and
/// whether it was done.
pub(crate) fn note_administration(command: &str, target: &[u8], is_done: bool, login: &Login, context: &Context<'_>) {
    let ((user, address), target) = (user_and_address(login, context), log_text(target));
    tracing::info!(user, address, command, target, done = is_done, "administrative command");
}

/// Returns the user and the address of the connection.
fn user_and_address<'l>(login: &'l Login, context: &Context<'_>) -> (&'l str, String) {
    let address = context.shared.clients().get(&context.connection).map(|client| client.address.to_string());
    (login.name(), address.unwrap_or_default())
}
