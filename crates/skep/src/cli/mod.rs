//! `skep cli`: sends one command, given as words on the command line, to a server. Without one, reads commands from
//! standard input (`interactive.rs`).
//!
//! The words are those of the RESP commands `SKEP.*`. Standard output gets the result of the command and nothing else.
//! If a key does not exist, or on any other failure, standard error gets one line and the exit code is 1.

mod escape;
mod interactive;
mod json;
mod line_help;
mod output;
mod request;
mod scan;
mod words;

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::Duration;

use skep::{
    CACHE_SPACE, Client, ClientError, HASH_SPACE, ORDERED_SPACE, Operation, OperationError, Refusal, Reply, Request,
    Responses, WireError,
};

use crate::failure::{Failure, quoted, reason};
use crate::password::Login;
use crate::tls::LoginSource;
pub(crate) use escape::escape;
use output::print;
use request::Command;
use scan::ScanWords;
use words::Words;

/// Default address of `skep serve`.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:7379";
/// Most bytes of the name of a host, in the domain name system.
const HOST_SIZE_MAX: usize = 255;

/// Sends one command. Without one, reads commands: from a terminal, with history and completion, or line by line from a pipe.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Native address of the server: HOST:PORT, tls:HOST:PORT, udp:HOST:PORT, rdma:HOST:PORT, or shm:PATH for shared memory.
    #[arg(long, global = true, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS, value_parser = native_address)]
    addr: String,
    #[command(flatten)]
    source: LoginSource,
    /// Give up if the server sends nothing for this time, such as 500ms [default: 5s to connect, then 30s].
    #[arg(long, global = true, value_name = "TIME", value_parser = life)]
    timeout: Option<Duration>,
    /// Space of the server for the command [default: hash; ordered for scan, prefix and count].
    #[arg(long, global = true, value_enum)]
    space: Option<Space>,
    /// Print each result, and each pair of a scan, as a JSON object on a line; a failure too, on standard error. A key or value
    /// that is not UTF-8 is in a field with _base64 after its name.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<Words>,
}

/// The spaces of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Space {
    /// The hash store.
    Hash,
    /// The ordered store.
    Ordered,
    /// The cache.
    Cache,
}

/// Sends the command and prints the result.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let is_json = arguments.json;
    let outcome = send(arguments);
    if is_json { outcome.map_err(|failure| json::report(failure, None)) } else { outcome }
}

fn send(arguments: Arguments) -> Result<(), Failure> {
    let mut login = arguments.source.login(&arguments.addr)?;
    if let Some(timeout) = arguments.timeout {
        (login.settings.connect_timeout, login.settings.reply_timeout) = (timeout, timeout);
    }
    let Some(words) = arguments.command else { return interactive::run(&login, arguments.space, arguments.json) };
    // The command is checked before the connection, so that its error is the same with and without a server.
    let prepared = Prepared::new(words, Source::CommandLine)?;
    let mut client = connect(&login).map_err(Failure::Runtime)?;
    let form = match (arguments.json, io::stdout().is_terminal()) {
        (true, _) => Form::Json,
        (false, true) => Form::Line,
        (false, false) => Form::Bytes,
    };
    prepared.execute(&mut client, arguments.space, form)
}

/// Where the words of a command come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The command line of this program: standard input may have a value.
    CommandLine,
    /// A line of standard input. If its last word `-` is in quotes, it is that text.
    Line { is_dash_quoted: bool },
}

/// How a value is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Its bytes unchanged, so that it can be put again.
    Bytes,
    /// Readable text, and the end of a line.
    Line,
    /// One line, escaped, so that different values are different lines.
    Escaped,
    /// An object on a line (`json.rs`).
    Json,
}

/// A command that was checked.
enum Prepared {
    Ping,
    Scan(ScanWords),
    OnKey(Command),
}

impl Prepared {
    /// Checks a command.
    fn new(words: Words, source: Source) -> Result<Prepared, Failure> {
        let command = match words {
            Words::Scan(words) => return Ok(Prepared::Scan(words)),
            Words::Ping => return Ok(Prepared::Ping),
            words => words::command(words, source)?,
        };
        if command.lacks_operands() {
            return Err(Failure::Usage(command.failed(OperationError::OperandLength)));
        }
        command.request().validate().map_err(|error| Failure::Usage(command.failed(error)))?;
        Ok(Prepared::OnKey(command))
    }

    /// Sends the command and prints the result.
    fn execute(&self, client: &mut Client, space: Option<Space>, form: Form) -> Result<(), Failure> {
        match self {
            Prepared::Ping => ping(client, form),
            Prepared::Scan(words) => {
                client.select(space.unwrap_or(Space::Ordered).number());
                scan::run(words, client, form)
            }
            Prepared::OnKey(command) => execute(command, client, space.unwrap_or(Space::Hash), form),
        }
    }
}

/// Sends a command on a key of a space and prints the result.
fn execute(command: &Command, client: &mut Client, space: Space, form: Form) -> Result<(), Failure> {
    client.select(space.number());
    let mut responses = Responses::default();
    client.execute(&[command.request()], &mut responses).map_err(|error| Failure::Lost(reason(&error)))?;
    match responses.get(0) {
        Ok(Reply::Done) => print(command, None, form),
        Ok(Reply::Value(value)) => print(command, Some(value), form),
        Ok(Reply::NotFound) => not_found(command, space, form),
        Ok(Reply::Exists) => {
            Err(Failure::Runtime(format!("key {} exists: without --if-absent it is replaced", command.shown_key())))
        }
        Ok(Reply::Failed(error)) => {
            let failed = match error {
                OperationError::NotAnInteger => {
                    command.failed(error) + &binary_hint(client, command).unwrap_or_default()
                }
                OperationError::ElementWidth => wrong_width(client, command).unwrap_or_else(|| command.failed(error)),
                _ => command.failed(error),
            };
            Err(Failure::Runtime(format!("key {}: {failed}", command.shown_key())))
        }
        Ok(Reply::Deferred) => Err(Failure::Runtime("the server deferred the only request: try again".to_owned())),
        Err(error) => Err(Failure::Runtime(format!("the server refused the request: {error}"))),
    }
}

impl Space {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Space::Hash => "hash",
            Space::Ordered => "ordered",
            Space::Cache => "cache",
        }
    }

    pub(crate) fn number(self) -> u16 {
        match self {
            Space::Hash => HASH_SPACE,
            Space::Ordered => ORDERED_SPACE,
            Space::Cache => CACHE_SPACE,
        }
    }
}

/// Explains why a value is not a decimal number: it is binary. Returns nothing if it is text or no longer exists.
fn binary_hint(client: &mut Client, command: &Command) -> Option<String> {
    let value = client.get(command.key()).ok()??;
    let digits = value.strip_prefix(b"-").unwrap_or(&value);
    if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = value.len();
    Some(format!(": it holds {size} bytes that are not decimal text: `update` and `get-vector` work on binary numbers"))
}

/// Explains why the value of a key is not a vector of the elements of a command. Returns nothing if it is one by now.
fn wrong_width(client: &mut Client, command: &Command) -> Option<String> {
    let value = client.get(command.key()).ok()??;
    request::wrong_width(command.element()?, &value)
}

/// Reports a missing key. For `exists` that is not an error: the exit code says it.
fn not_found(command: &Command, space: Space, form: Form) -> Result<(), Failure> {
    if matches!(command, Command::Exists { .. }) {
        match form {
            Form::Json => json::Object::default().bytes("key", command.key()).with("exists", false).print()?,
            _ => writeln!(io::stdout(), "no")?,
        }
        return Err(Failure::No);
    }
    Err(Failure::Runtime(command.not_found(space)))
}

/// Connects to a server. The error says what to do.
pub(crate) fn connect(login: &Login) -> Result<Client, String> {
    let address = login.address.as_str();
    Client::connect_with(address, HASH_SPACE, &login.settings).map_err(|error| match error {
        ClientError::Connect { source, .. } => not_connected(address, &source),
        ClientError::Refused { reason: refusal @ (Refusal::PasswordNeeded | Refusal::PasswordWrong), .. } => {
            format!(
                "the server at {address} refuses the connection: {refusal}: name the file that holds it with \
                     --password-file, or set SKEP_PASSWORD"
            )
        }
        error => reason(&error),
    })
}

/// Explains why no connection was made, by the transport of the address.
fn not_connected(address: &str, source: &io::Error) -> String {
    let (cause, address) = (reason(source), &*quoted(address));
    match address.split_once(':') {
        Some(("shm", path)) => match source.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => format!(
                "no server listens at {address}: start one with `skep serve --shared-memory {path}`, or name another \
                 address with --addr"
            ),
            ErrorKind::PermissionDenied => {
                format!("{address} belongs to another user: run as the user of the server, or use its port (HOST:PORT)")
            }
            _ => format!("cannot connect to {address}: {cause}: use the port of the server (HOST:PORT)"),
        },
        Some(("tls", _)) => format!(
            "no server replies at {address}: {cause}: start one with `skep serve --tls-cert FILE --tls-key FILE`, or \
             name its native address with --addr"
        ),
        Some(("udp", first)) => format!(
            "no server replies at {address}: {cause}: start one with `skep serve --udp {first}`, or name its first UDP \
             port with --addr"
        ),
        Some(("rdma", _)) if source.kind() == ErrorKind::Unsupported => {
            format!("cannot connect to {address}: {cause}: name another address with --addr")
        }
        // The cause may also be the device of this machine.
        Some(("rdma", first)) => format!(
            "cannot connect to {address}: {cause}: start a server with `skep serve --rdma {first}`, or name its first \
             port for RDMA with --addr"
        ),
        _ => format!(
            "no server replies at {address}: {cause}: start one with `skep serve`, or name its native address with --addr"
        ),
    }
}

/// Checks the form of a native address: that of a server's port, perhaps after `tcp:`, `tls:`, `udp:` or `rdma:`, or `shm:` and a path.
pub(crate) fn native_address(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        Some(("shm", "")) => {
            Err(format!("`{}` names no socket: write shm:PATH, such as shm:/run/skep.sock", quoted(text)))
        }
        Some(("shm", _)) => Ok(text.to_owned()),
        Some(("tcp", rest)) => address(rest),
        Some(("tls" | "udp" | "rdma", rest)) => address(rest).map(|_| text.to_owned()),
        _ => address(text).map_err(|refusal| format!("{refusal}, tls:HOST:PORT, udp:HOST:PORT, or shm:PATH")),
    }
}

/// Checks the form of a server's address: a name or an IP address, and a port.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let refusal = || format!("`{}` is not an address: write HOST:PORT, such as {DEFAULT_ADDRESS}", quoted(text));
    let (host, port) = text.rsplit_once(':').ok_or_else(refusal)?;
    let is_ipv6 = host.starts_with('[') && host.ends_with(']');
    if !(1..=HOST_SIZE_MAX).contains(&host.len()) || (host.contains(':') && !is_ipv6) || port.parse::<u16>().is_err() {
        return Err(refusal());
    }
    Ok(text.to_owned())
}

/// Asks a shard for a key, which need not exist and which the user may not be allowed to know of, and prints `pong`.
fn ping(client: &mut Client, form: Form) -> Result<(), Failure> {
    let request = Request { key: b"ping", operation: Operation::Contains };
    let mut responses = Responses::default();
    client.execute(&[request], &mut responses).map_err(|error| Failure::Lost(reason(&error)))?;
    match responses.get(0) {
        Ok(_) | Err(WireError::NotPermitted | WireError::TooFast) => {}
        Err(error) => return Err(Failure::Runtime(format!("the server refused the request: {error}"))),
    }
    match form {
        Form::Json => json::Object::default().with("ok", true).print(),
        _ => Ok(writeln!(io::stdout(), "pong")?),
    }
}

/// Reads a time, such as that after which a key expires: at least a millisecond, the unit of the server's clock.
pub(crate) fn life(text: &str) -> Result<Duration, String> {
    let life = humantime::parse_duration(text).ok().filter(|life| *life >= Duration::from_millis(1));
    let example = "write a number and a unit, such as 500ms, 10s or 1h30m";
    life.ok_or_else(|| format!("`{}` is not a time: {example}", quoted(text)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::{Arguments, Words};

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn words(words: &[&str]) -> Words {
        Program::try_parse_from([&["cli"], words].concat()).unwrap().arguments.command.unwrap()
    }

    #[test]
    fn times_have_a_number_and_a_unit() {
        for (text, milliseconds) in [("1ms", 1), ("500ms", 500), ("10s", 10_000), ("1h30m", 5_400_000)] {
            assert_eq!(super::life(text), Ok(Duration::from_millis(milliseconds)));
        }
        for text in ["", "10", "s", "-1s", "0s", "1us", "soon"] {
            let refusal = super::life(text).unwrap_err();
            assert!(refusal.contains("500ms"), "{text}: {refusal}");
        }
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for text in ["127.0.0.1:7379", "localhost:1", "[::1]:7379"] {
            assert_eq!(super::address(text).as_deref(), Ok(text));
        }
        for text in ["", "foo", "foo:", ":7379", "foo:bar", "foo:70000", "::1", "7379"] {
            let refusal = super::address(text).unwrap_err();
            assert!(refusal.contains("HOST:PORT"), "{text}: {refusal}");
        }
        for text in ["localhost:1", "udp:localhost:1", "shm:a"] {
            assert_eq!(super::native_address(text).as_deref(), Ok(text));
        }
        for text in ["foo", "udp:foo", "udp:", "shm:"] {
            assert!(super::native_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn flags_and_values_that_look_like_flags_are_distinguished() {
        for line in
            [&["put", "k", "--if-absent", "v"], &["put", "--if-absent", "k", "v"], &["put", "k", "v", "--if-absent"]]
        {
            assert!(matches!(words(line), Words::Put { value, if_absent: true, .. } if value == "v"), "{line:?}");
        }
        assert!(matches!(words(&["put", "k", "--", "--if-absent"]), Words::Put { if_absent: false, .. }));
        assert!(matches!(words(&["put", "k", "-5"]), Words::Put { value, .. } if value == "-5"));
        assert!(matches!(words(&["incr", "k", "-5"]), Words::Incr { delta: -5, .. }));
        let update = words(&["update", "k", "add", "f64", "-1.5", "-2e3", "--init", "-1", "--no-return"]);
        assert!(
            matches!(&update, Words::Update { operands, init, no_return: true, .. } if operands.len() == 2 && init == &["-1"]),
            "{update:?}"
        );
    }
}
