//! `CLIENT`: the names of connections, their list, and what others do to them.

use std::fmt::Write;
use std::time::Duration;

use skep_wire::resp::ReplyWriter;

use super::client_filter::ClientFilter;
use super::session::Replies;
use super::table::COMMANDS;
use super::{Arguments, Context, Session, decimal, excerpt};
use crate::account::Account;
use crate::limits::{CLIENT_LIST_SIZE_MAX, CLIENT_WORK, CLIENTS_COPIED_MAX, PAUSE_MAX};
use crate::shared::{Client, Shared};
use crate::vocabulary::Pause;

const HELP: [&str; 30] = [
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are ID, ADDR, LADDR, TYPE, USER, MAXAGE (seconds) and SKIPME (YES|NO).",
    "LIST [TYPE <type>] [ID <id> [<id> ...]]",
    "    Return information about client connections, the oldest first, up to 256 KiB.",
    "NO-EVICT (ON|OFF)",
    "    Accepted; connections are never evicted.",
    "NO-TOUCH (ON|OFF)",
    "    Accepted; accesses are not recorded.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, clients for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETINFO <option> <value>",
    "    Set client meta attr. Options are lib-name and lib-ver.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "UNPAUSE",
    "    Stop the current client pause, resuming traffic.",
    "HELP",
    "    Print this help.",
    "",
];

/// Runs a subcommand, whose number of arguments was checked.
pub(super) fn run(
    arguments: Arguments<'_>,
    writer: &mut ReplyWriter<'_>,
    session: &mut Session,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let subcommand = String::from_utf8_lossy(arguments.get(1)).to_ascii_lowercase();
    match subcommand.as_str() {
        "list" => writer.text(&list(arguments, context.shared, context.account)?),
        "kill" => return ClientFilter::kill(arguments, writer, session, context),
        "pause" => {
            pause(arguments, context)?;
            writer.simple("OK");
        }
        "unpause" => {
            context.shared.orders.unpause();
            context.wake_shards();
            writer.simple("OK");
        }
        "reply" => {
            session.replies = match () {
                () if arguments.is(2, "on") => {
                    writer.simple("OK");
                    Replies::On
                }
                () if arguments.is(2, "off") => Replies::Off,
                () if arguments.is(2, "skip") && session.replies == Replies::Off => Replies::Off,
                () if arguments.is(2, "skip") => Replies::SkipNext,
                () => return Err("ERR syntax error".to_owned()),
            };
        }
        "no-evict" | "no-touch" => {
            if !arguments.is(2, "on") && !arguments.is(2, "off") {
                return Err("ERR syntax error".to_owned());
            }
            writer.simple("OK");
        }
        "help" => writer.lines(&HELP[..HELP.len() - 1]),
        _ => return of_own_connection(&subcommand, arguments, writer, context),
    }
    Ok(())
}

/// Runs a subcommand about the connection itself.
fn of_own_connection(
    subcommand: &str,
    arguments: Arguments<'_>,
    writer: &mut ReplyWriter<'_>,
    context: &Context<'_>,
) -> Result<(), String> {
    let mut clients = context.shared.clients();
    let Some(client) = clients.get_mut(&context.connection) else {
        // It visits this shard, and has ended meanwhile: the reply will not be sent.
        return Err("ERR the connection has ended".to_owned());
    };
    match subcommand {
        "id" => writer.integer(context.connection.cast_signed()),
        "getname" if client.name.is_empty() => writer.null(),
        "getname" => writer.bulk(client.name.as_bytes()),
        "setname" => {
            client.name = printable(arguments, 2, "Client names")?;
            writer.simple("OK");
        }
        "setinfo" => {
            if arguments.is(2, "lib-name") {
                client.library_name = printable(arguments, 3, "lib-name")?;
            } else if arguments.is(2, "lib-ver") {
                client.library_version = printable(arguments, 3, "lib-ver")?;
            } else {
                return Err(format!("ERR Unrecognized option '{}'", excerpt(arguments.get(2), 128)));
            }
            writer.simple("OK");
        }
        "info" => writer.text(&describe(context.connection, client, context.shared)),
        _ => unreachable!("the table has the subcommands"),
    }
    Ok(())
}

/// Runs `CLIENT PAUSE timeout [WRITE|ALL]`.
fn pause(arguments: Arguments<'_>, context: &mut Context<'_>) -> Result<(), String> {
    let writes_only = match arguments.count() {
        3 => false,
        4 if arguments.is(3, "write") => true,
        4 if arguments.is(3, "all") => false,
        _ => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".to_owned()),
    };
    let milliseconds = arguments.integer(2).ok_or("ERR timeout is not an integer or out of range")?;
    let milliseconds = u64::try_from(milliseconds).map_err(|_| "ERR timeout is negative")?;
    // A moment that far in the future may not be representable.
    let until = context.now + Duration::from_millis(milliseconds).min(PAUSE_MAX);
    context.shared.orders.pause(Pause { until, writes_only }, context.now);
    context.wake_shards();
    Ok(())
}

/// Describes the connections, the oldest first, in whole lines of at most [`CLIENT_LIST_SIZE_MAX`] bytes together.
/// Other threads that connect or close wait for a few copies only: the text is made while the lock is not held.
/// Spends the work from the account, except that of the text.
fn list(arguments: Arguments<'_>, shared: &Shared, account: &mut Account) -> Result<String, String> {
    let mut text = String::new();
    if arguments.count() == 4 && arguments.is(2, "type") {
        if !super::client_filter::is_normal(arguments.get(3))? {
            return Ok(text);
        }
    } else if arguments.count() > 3 && arguments.is(2, "id") {
        let numbers: Option<Vec<u64>> =
            arguments.from(3).map(|number| decimal(number).and_then(|number| u64::try_from(number).ok())).collect();
        for number in numbers.ok_or("ERR Invalid client ID")? {
            account.spend(CLIENT_WORK);
            let client = shared.clients().get(&number).filter(|client| !client.is_killed).cloned();
            if !client.is_none_or(|client| append(&mut text, number, &client, shared)) {
                break;
            }
        }
        return Ok(text);
    } else if arguments.count() > 2 {
        return Err("ERR syntax error".to_owned());
    }
    let mut next = 0;
    loop {
        let clients = shared.clients_from(next, CLIENTS_COPIED_MAX);
        account.spend(CLIENT_WORK * clients.len());
        let Some((last, _)) = clients.last() else { return Ok(text) };
        next = last + 1;
        for (number, client) in clients.iter().filter(|(_, client)| !client.is_killed) {
            if !append(&mut text, *number, client, shared) {
                return Ok(text);
            }
        }
    }
}

/// Appends the line of a connection if there is room.
fn append(text: &mut String, number: u64, client: &Client, shared: &Shared) -> bool {
    let line = describe(number, client, shared);
    let has_room = text.len() + line.len() <= CLIENT_LIST_SIZE_MAX;
    if has_room {
        *text += &line;
    }
    has_room
}

/// Returns an argument that may become a name: printable, without blanks.
pub(super) fn printable(arguments: Arguments<'_>, index: usize, what: &str) -> Result<String, String> {
    let text = arguments.get(index);
    // A name is kept as long as its connection, and told to everybody.
    if text.len() <= 256 && text.iter().all(u8::is_ascii_graphic) {
        Ok(arguments.text(index).into_owned())
    } else {
        Err(format!("ERR {what} cannot contain spaces, newlines or special characters."))
    }
}

pub(super) fn describe(number: u64, client: &Client, shared: &Shared) -> String {
    let mut line = String::new();
    let Client { address, local_address, since, name, library_name, library_version, user, space, protocol, .. } =
        client;
    let space = space.number();
    let age = since.elapsed().as_secs();
    let uptime = shared.run.started.elapsed().as_millis() as u64;
    let idle = uptime.saturating_sub(client.activity.at.get()) / 1000;
    let flags = if client.activity.monitors.get() == 1 { "O" } else { "N" };
    let command = client.activity.command.get() as usize;
    let command = command.checked_sub(1).and_then(|index| COMMANDS.get(index)).map_or("NULL", |info| info.name);
    writeln!(
        line,
        "id={number} addr={address} laddr={local_address} name={name} age={age} idle={idle} flags={flags} db={space} \
         cmd={command} user={user} resp={protocol} lib-name={library_name} lib-ver={library_version}"
    )
    .expect("a String takes every text");
    line
}
