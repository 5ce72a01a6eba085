//! `CLIENT`: the names of connections, and their list.

use std::fmt::Write;

use skep_wire::resp::ReplyWriter;

use super::{Arguments, Context, excerpt, unknown_subcommand, wrong_argument_count};
use crate::limits::{CLIENT_LIST_SIZE_MAX, CLIENTS_COPIED_MAX};
use crate::shared::{Client, Shared};

const HELP: [&str; 9] = [
    "CLIENT <subcommand> [<arg> ...]. Subcommands are:",
    "GETNAME -- Return the name of this connection.",
    "ID -- Return the number of this connection.",
    "INFO -- Return what is known of this connection.",
    "LIST -- Return what is known of all connections, the oldest first, up to 256 KiB.",
    "NO-EVICT (ON|OFF) -- Accepted; connections are never evicted.",
    "NO-TOUCH (ON|OFF) -- Accepted; reads leave no traces.",
    "SETINFO <option> <value> -- Set lib-name or lib-ver of this connection.",
    "SETNAME <name> -- Assign a name to this connection.",
];

/// Runs a subcommand.
pub(super) fn run(arguments: Arguments<'_>, writer: &mut ReplyWriter<'_>, context: &Context<'_>) -> Result<(), String> {
    let subcommand = String::from_utf8_lossy(arguments.get(1)).to_ascii_lowercase();
    let expected = match subcommand.as_str() {
        "id" | "getname" | "info" | "help" => Some(2),
        "setname" | "no-evict" | "no-touch" => Some(3),
        "setinfo" => Some(4),
        _ => None,
    };
    if expected.is_some_and(|expected| expected != arguments.count()) {
        return Err(wrong_argument_count(&format!("client|{subcommand}")));
    }
    if subcommand == "list" {
        if arguments.count() > 2 {
            return Err("ERR syntax error".to_owned());
        }
        writer.text(&list(context.shared));
        return Ok(());
    }
    let mut clients = context.shared.clients();
    let Some(client) = clients.get_mut(&context.connection) else { unreachable!("connections are registered") };
    match subcommand.as_str() {
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
        "info" => writer.text(&describe(context.connection, client)),
        "no-evict" | "no-touch" => {
            if !arguments.is(2, "on") && !arguments.is(2, "off") {
                return Err("ERR syntax error".to_owned());
            }
            writer.simple("OK");
        }
        "help" => {
            writer.array(HELP.len());
            for line in HELP {
                writer.simple(line);
            }
        }
        _ => return Err(unknown_subcommand(arguments)),
    }
    Ok(())
}

/// Describes the connections, the oldest first, in whole lines of at most [`CLIENT_LIST_SIZE_MAX`] bytes together.
/// Other threads that connect or close wait for a few copies only: the text is made while the lock is not held.
fn list(shared: &Shared) -> String {
    let mut text = String::new();
    let mut next = 0;
    loop {
        let clients = shared.clients_from(next, CLIENTS_COPIED_MAX);
        let Some((last, _)) = clients.last() else { return text };
        next = last + 1;
        for (number, client) in &clients {
            let line = describe(*number, client);
            if text.len() + line.len() > CLIENT_LIST_SIZE_MAX {
                return text;
            }
            text += &line;
        }
    }
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

fn describe(number: u64, client: &Client) -> String {
    let mut line = String::new();
    let Client { address, local_address, since, name, library_name, library_version, space, protocol } = client;
    let space = space.number();
    let age = since.elapsed().as_secs();
    writeln!(
        line,
        "id={number} addr={address} laddr={local_address} name={name} age={age} db={space} user=default resp={protocol} \
         lib-name={library_name} lib-ver={library_version}"
    )
    .expect("a String takes every text");
    line
}
