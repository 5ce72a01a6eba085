//! Commands to which the server replies without its stores.

use skep_wire::resp::{ReplyWriter, Version};

use super::table::CommandName;
use super::{
    Arguments, Context, DISCARDED, REDIS_VERSION, Session, client_command, command_command, config_command, info,
};
use super::{
    acl_command, admin_command, excerpt, function_command, monitor_command, object_command, save_command,
    slow_log_command, wrong_argument_count,
};
use crate::access::{DEFAULT, Gate, Login, LoginRefusal};
use crate::vocabulary::Space;

/// Runs a command and writes its reply. On an error, returns the error message. The number of arguments has been
/// checked against the table.
pub(super) fn run(
    name: CommandName,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
    session: &mut Session,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let mut writer = ReplyWriter::new(output, session.version);
    match name {
        CommandName::Ping => match arguments.count() {
            1 => writer.simple("PONG"),
            2 => writer.bulk(arguments.get(1)),
            _ => return Err(wrong_argument_count("ping")),
        },
        CommandName::Echo => writer.bulk(arguments.get(1)),
        CommandName::Hello => return hello(arguments, output, session, context),
        CommandName::Auth => {
            session.login = auth(arguments, session, context)?;
            context.note_user(session.login.name());
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
            monitor_command::end(context);
            let login = Login::anonymous_again(Some(&session.login), &context.shared.access);
            *session = Session::new(login);
            context.note_user(session.login.name());
            if let Some(client) = context.shared.clients().get_mut(&context.connection) {
                client.protocol = protocol_number(session.version);
                client.space = Space::default();
                client.name.clear();
            }
            ReplyWriter::new(output, session.version).simple("RESET");
        }
        CommandName::Multi | CommandName::Discard | CommandName::Unwatch => writer.simple("OK"),
        // Any other `EXEC` is isolated.
        CommandName::Exec => return Err(format!("{DISCARDED} of previous errors.")),
        CommandName::Object => object_command::object_help(&mut writer),
        CommandName::Memory => object_command::memory_help(&mut writer),
        CommandName::Quit => {
            writer.simple("OK");
            context.outcome.closing = true;
        }
        CommandName::Info => writer.text(&info::text(arguments, context.shared, context.account)),
        CommandName::Client => return client_command::run(arguments, &mut writer, session, context),
        CommandName::Command => return command_command::run(arguments, &mut writer, context.account),
        CommandName::Config => return config_command::run(arguments, &mut writer, context),
        CommandName::Acl => return acl_command::run(arguments, &mut writer, session, context),
        CommandName::SlowLog => return slow_log_command::slow_log(arguments, &mut writer, context),
        CommandName::Latency => return slow_log_command::latency(arguments, &mut writer, context),
        CommandName::Monitor => {
            monitor_command::monitor(context)?;
            writer.simple("OK");
        }
        CommandName::SkepFunction => return function_command::run(arguments, &mut writer, session, context),
        CommandName::Role => admin_command::role(&mut writer),
        CommandName::Wait => return admin_command::wait(arguments, &mut writer),
        CommandName::WaitAof => return save_command::wait(arguments, &mut writer, session, context),
        CommandName::Save => return save_command::save(&mut writer, session, context),
        CommandName::BgSave => return save_command::background_save(arguments, &mut writer, context),
        CommandName::BgRewriteAof => return save_command::rewrite(&mut writer, context),
        CommandName::LastSave => save_command::last_save(&mut writer, context),
        CommandName::Debug => return admin_command::debug(arguments, &mut writer, session, context),
        CommandName::Shutdown => return admin_command::shut_down(arguments, session, context),
        _ => unreachable!("commands on keys and SELECT are decoded as such"),
    }
    Ok(())
}

/// Runs `AUTH [user] password`: fails unless the password is right.
fn auth(arguments: Arguments<'_>, session: &Session, context: &Context<'_>) -> Result<Login, String> {
    match arguments.count() {
        2 if !context.shared.access.needs_password() => {
            Err("ERR AUTH <password> called without any password configured for the default user. \
                         Are you sure your configuration is correct?"
                .to_owned())
        }
        2 => authenticate(DEFAULT.as_bytes(), arguments.get(1), "AUTH", session, context),
        3 => authenticate(arguments.get(1), arguments.get(2), "AUTH", session, context),
        _ => Err("ERR syntax error".to_owned()),
    }
}

/// Runs `HELLO [version [AUTH user password] [SETNAME name]]`.
fn hello(
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
    session: &mut Session,
    context: &mut Context<'_>,
) -> Result<(), String> {
    let mut chosen = session.version;
    if arguments.count() > 1 {
        chosen = match arguments.integer(1) {
            None => return Err("ERR Protocol version is not an integer or out of range".to_owned()),
            Some(2) => Version::Two,
            Some(3) => Version::Three,
            Some(_) => return Err("NOPROTO unsupported protocol version".to_owned()),
        };
    }
    let mut name = None;
    let mut login = None;
    let mut index = 2;
    while index < arguments.count() {
        if arguments.is(index, "AUTH") && index + 2 < arguments.count() {
            login = Some(authenticate(arguments.get(index + 1), arguments.get(index + 2), "HELLO", session, context)?);
            index += 3;
        } else if arguments.is(index, "SETNAME") && index + 1 < arguments.count() {
            name = Some(client_command::printable(arguments, index + 1, "Client names")?);
            index += 2;
        } else {
            return Err(format!("ERR Syntax error in HELLO option '{}'", excerpt(arguments.get(index), 128)));
        }
    }
    if login.is_none() && session.login.gate() == Gate::Locked {
        return Err(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> \
                    <pass> option can be used to authenticate the client and select the RESP protocol version at the \
                    same time"
                .to_owned(),
        );
    }
    if let Some(login) = login {
        session.login = login;
        context.note_user(session.login.name());
    }
    session.version = chosen;
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

/// Checks a user and a password, which came with this command.
fn authenticate(
    user: &[u8],
    password: &[u8],
    command: &str,
    session: &Session,
    context: &Context<'_>,
) -> Result<Login, String> {
    let address = context.shared.clients().get(&context.connection).map(|client| client.address.ip());
    let Some(address) = address else { return Err("ERR the connection has ended".to_owned()) };
    context.shared.access.log_in(user, password, Some(&session.login), address, context.now).map_err(|refused| {
        context.shared.metrics(context.shard).passwords_refused.add(1);
        if refused.is_told {
            acl_command::note_refused_login(user, command, context);
        }
        match refused.reason {
            LoginRefusal::Wrong => "WRONGPASS invalid username-password pair or user is disabled.",
            LoginRefusal::TooManyGuesses => {
                "ERR too many wrong passwords from this address: wait a few seconds, then try again"
            }
            LoginRefusal::Full => "ERR max number of clients of this user reached",
        }
        .to_owned()
    })
}

fn protocol_number(version: Version) -> u8 {
    match version {
        Version::Two => 2,
        Version::Three => 3,
    }
}
