//! Commands to which the server replies without its stores.

use skep_wire::resp::{ReplyWriter, Version};

use super::table::CommandName;
use super::{Arguments, Context, DISCARDED, REDIS_VERSION, client_command, command_command, config_command, info};
use super::{excerpt, object_command, wrong_argument_count};
use crate::spaces::Space;

/// Runs a command and writes its reply. On an error, returns the error message. The number of arguments has been
/// checked against the table.
pub(super) fn run(
    name: CommandName,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
    version: &mut Version,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let mut writer = ReplyWriter::new(output, *version);
    match name {
        CommandName::Ping => match arguments.count() {
            1 => writer.simple("PONG"),
            2 => writer.bulk(arguments.get(1)),
            _ => return Err(wrong_argument_count("ping")),
        },
        CommandName::Echo => writer.bulk(arguments.get(1)),
        CommandName::Hello => return hello(arguments, output, version, context),
        CommandName::Auth => {
            match arguments.count() {
                2 => {
                    return Err("ERR AUTH <password> called without any password configured for the default user. \
                                 Are you sure your configuration is correct?"
                        .to_owned());
                }
                3 => authenticate(arguments, 1)?,
                _ => return Err("ERR syntax error".to_owned()),
            }
            writer.simple("OK");
        }
        CommandName::Time => {
            let (seconds, microseconds) = context.time.seconds_and_microseconds();
            writer.array(2);
            writer.bulk(seconds.to_string().as_bytes());
            writer.bulk(microseconds.to_string().as_bytes());
        }
        CommandName::Lolwut => writer.text(concat!("Skep ver. ", env!("CARGO_PKG_VERSION"), "\n")),
        CommandName::Reset => {
            *version = Version::Two;
            if let Some(client) = context.shared.clients().get_mut(&context.connection) {
                client.protocol = protocol_number(*version);
                client.space = Space::default();
                client.name.clear();
            }
            ReplyWriter::new(output, *version).simple("RESET");
        }
        CommandName::Multi | CommandName::Discard | CommandName::Unwatch => writer.simple("OK"),
        // Any other `EXEC` is isolated.
        CommandName::Exec => return Err(format!("{DISCARDED} of previous errors.")),
        CommandName::Object => object_command::object_help(&mut writer),
        CommandName::Memory => object_command::memory_help(&mut writer),
        CommandName::Quit => {
            writer.simple("OK");
            context.closing = true;
        }
        CommandName::Info => writer.text(&info::text(arguments, context.shared)),
        CommandName::Client => return client_command::run(arguments, &mut writer, context),
        CommandName::Command => return command_command::run(arguments, &mut writer),
        CommandName::Config => return config_command::run(arguments, &mut writer, context.shared),
        _ => unreachable!("commands on keys and SELECT are decoded as such"),
    }
    Ok(())
}

/// Runs `HELLO [version [AUTH user password] [SETNAME name]]`.
fn hello(
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
    version: &mut Version,
    context: &Context<'_>,
) -> Result<(), String> {
    let mut chosen = *version;
    if arguments.count() > 1 {
        chosen = match arguments.integer(1) {
            None => return Err("ERR Protocol version is not an integer or out of range".to_owned()),
            Some(2) => Version::Two,
            Some(3) => Version::Three,
            Some(_) => return Err("NOPROTO unsupported protocol version".to_owned()),
        };
    }
    let mut name = None;
    let mut index = 2;
    while index < arguments.count() {
        if arguments.is(index, "AUTH") && index + 2 < arguments.count() {
            authenticate(arguments, index + 1)?;
            index += 3;
        } else if arguments.is(index, "SETNAME") && index + 1 < arguments.count() {
            name = Some(client_command::printable(arguments, index + 1, "Client names")?);
            index += 2;
        } else {
            return Err(format!("ERR Syntax error in HELLO option '{}'", excerpt(arguments.get(index), 128)));
        }
    }
    *version = chosen;
    if let Some(client) = context.shared.clients().get_mut(&context.connection) {
        client.protocol = protocol_number(chosen);
        if let Some(name) = name {
            client.name = name;
        }
    }
    let mut writer = ReplyWriter::new(output, chosen);
    writer.map(7);
    writer.bulk(b"server");
    writer.bulk(b"redis");
    writer.bulk(b"version");
    writer.bulk(REDIS_VERSION.as_bytes());
    writer.bulk(b"proto");
    writer.integer(i64::from(protocol_number(chosen)));
    writer.bulk(b"id");
    writer.integer(context.connection.cast_signed());
    writer.bulk(b"mode");
    writer.bulk(b"standalone");
    writer.bulk(b"role");
    writer.bulk(b"master");
    writer.bulk(b"modules");
    writer.array(0);
    Ok(())
}

/// Checks a user and a password. There is one user, `default`, who needs none.
fn authenticate(arguments: Arguments<'_>, user: usize) -> Result<(), String> {
    if arguments.get(user) == b"default" {
        Ok(())
    } else {
        Err("WRONGPASS invalid username-password pair or user is disabled.".to_owned())
    }
}

fn protocol_number(version: Version) -> u8 {
    match version {
        Version::Two => 2,
        Version::Three => 3,
    }
}
