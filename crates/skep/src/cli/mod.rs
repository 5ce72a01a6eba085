//! `skep cli`: sends one command, given as words on the command line, to a server.
//!
//! The words are those of the RESP commands `SKEP.*`. Standard output gets the result of the command and nothing else.
//! If a key does not exist, or on any other failure, standard error gets one line and the exit code is 1.

mod escape;
mod output;
mod request;
mod scan;

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skep::limits::VALUE_SIZE_MAX;
use skep::{
    CACHE_SPACE, Client, ClientError, Element, Expiry, ExpiryChange, Fold, HASH_SPACE, ORDERED_SPACE, Operation,
    OperationError, Predicate, PutCondition, Refusal, Reply, Request, Responses, UpdateFunction,
};

use crate::failure::{Failure, reason};
use crate::password::Login;
use crate::tls::LoginSource;
use output::print;
use request::Command;
use scan::ScanWords;

/// Default address of `skep serve`.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:7379";

/// Sends one command.
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
    #[command(subcommand)]
    command: Words,
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

/// The commands and their arguments.
#[derive(clap::Subcommand, Debug)]
enum Words {
    /// Print pong if the server takes the password and a shard replies.
    Ping,
    /// Print the value of a key: its bytes unchanged, or on a terminal with a newline, and escaped if it is not text.
    Get {
        /// The key.
        key: OsString,
    },
    /// Set the value of a key; `-` reads the value from standard input.
    Put {
        /// The key.
        key: OsString,
        /// The value, or `-`.
        #[arg(allow_hyphen_values = true)]
        value: OsString,
        /// Only if the key does not exist.
        #[arg(long, conflicts_with = "if_present")]
        if_absent: bool,
        /// Only if the key exists.
        #[arg(long)]
        if_present: bool,
        /// Let the key expire after this time, such as 500ms, 10s or 1h30m.
        #[arg(long, value_name = "TIME", value_parser = life)]
        expires_in: Option<Duration>,
    },
    /// Let a key expire after a time.
    Expire {
        /// The key.
        key: OsString,
        /// The time, such as 500ms, 10s or 1h30m.
        #[arg(value_parser = life)]
        time: Duration,
    },
    /// Remove the expiry of a key.
    Persist {
        /// The key.
        key: OsString,
    },
    /// Print the time until a key expires, or never.
    Expiry {
        /// The key.
        key: OsString,
    },
    /// Remove a key.
    Delete {
        /// The key.
        key: OsString,
    },
    /// Print yes if a key exists; otherwise print no and exit with code 1.
    Exists {
        /// The key.
        key: OsString,
    },
    /// Add to a number stored as decimal text, and print the sum; a missing key counts as 0.
    Incr {
        /// The key.
        key: OsString,
        /// The number to add.
        #[arg(allow_negative_numbers = true, default_value_t = 1)]
        delta: i64,
    },
    /// Replace every element of a value by a function of it, and print the old elements.
    #[command(after_help = UPDATE_HELP)]
    Update {
        /// The key.
        key: OsString,
        /// add, sub, mul, min, max, and, or, xor, swap, cas or wrap.
        #[arg(value_parser = function)]
        function: UpdateFunction,
        /// Type of the elements: u8 to u64, i8 to i64, f32, f64.
        #[arg(value_parser = element)]
        element: Element,
        /// One operand for all elements, or one for each; cas (expected, new) and wrap (delta, refill) take two.
        #[arg(allow_negative_numbers = true)]
        operands: Vec<String>,
        /// Elements to begin with if the key is missing.
        #[arg(long, value_name = "ELEMENT", num_args = 1.., allow_negative_numbers = true)]
        init: Vec<String>,
        /// Do not print the old elements.
        #[arg(long)]
        no_return: bool,
    },
    /// Fold the elements of a value to one, beginning with INITIAL.
    Reduce {
        /// The key.
        key: OsString,
        /// sum, min, max, dot, count, or wide-sum, whose sum has eight bytes.
        #[arg(value_parser = fold)]
        fold: Fold,
        /// Type of the elements: u8 to u64, i8 to i64, f32, f64.
        #[arg(value_parser = element)]
        element: Element,
        /// The number that the fold begins with.
        #[arg(allow_negative_numbers = true)]
        initial: String,
        /// For dot: a constant for each element.
        #[arg(allow_negative_numbers = true)]
        constants: Vec<String>,
    },
    /// Print the elements of a value for which a predicate holds.
    Filter {
        /// The key.
        key: OsString,
        /// eq, gt, lt, or nonzero, which needs no operand.
        #[arg(value_parser = predicate)]
        predicate: Predicate,
        /// Type of the elements: u8 to u64, i8 to i64, f32, f64.
        #[arg(value_parser = element)]
        element: Element,
        /// The element to compare with.
        #[arg(allow_negative_numbers = true)]
        operand: Option<String>,
    },
    /// Set the value of a key to a vector of elements.
    SetVector {
        /// The key.
        key: OsString,
        /// Type of the elements: u8 to u64, i8 to i64, f32, f64.
        #[arg(value_parser = element)]
        element: Element,
        /// The elements.
        #[arg(required = true, allow_negative_numbers = true)]
        elements: Vec<String>,
    },
    /// Print the value of a key as a vector of elements.
    GetVector {
        /// The key.
        key: OsString,
        /// Type of the elements: u8 to u64, i8 to i64, f32, f64.
        #[arg(value_parser = element)]
        element: Element,
    },
    #[command(flatten)]
    Scan(ScanWords),
}

const UPDATE_HELP: &str = "Example: skep cli update hits add i64 5 --init 0";

/// Sends the command and prints the result.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let mut login = arguments.source.login(&arguments.addr)?;
    if let Some(timeout) = arguments.timeout {
        (login.settings.connect_timeout, login.settings.reply_timeout) = (timeout, timeout);
    }
    let words = match arguments.command {
        Words::Scan(words) => return scan::run(&words, &login, arguments.space.unwrap_or(Space::Ordered)),
        Words::Ping => return ping(&login),
        words => words,
    };
    let command = command(words)?;
    let request = command.request();
    // The command is checked before the connection, so that its error is the same with and without a server.
    if command.lacks_operands() {
        return Err(Failure::Usage(command.failed(OperationError::OperandLength)));
    }
    request.validate().map_err(|error| Failure::Usage(command.failed(error)))?;

    let mut client = connect(&login).map_err(Failure::Runtime)?;
    client.select(arguments.space.unwrap_or(Space::Hash).number());
    let mut responses = Responses::default();
    client.execute(&[request], &mut responses).map_err(|error| Failure::Runtime(reason(&error)))?;
    match responses.get(0) {
        Ok(Reply::Done) => print(&command, None),
        Ok(Reply::Value(value)) => print(&command, Some(value)),
        Ok(Reply::NotFound) => not_found(&command),
        Ok(Reply::Exists) => {
            Err(Failure::Runtime(format!("key {} exists: without --if-absent it is replaced", command.shown_key())))
        }
        Ok(Reply::Failed(error)) => {
            let hint = if error == OperationError::NotAnInteger { binary_hint(&mut client, &command) } else { None };
            let failed = command.failed(error) + &hint.unwrap_or_default();
            Err(Failure::Runtime(format!("key {}: {failed}", command.shown_key())))
        }
        Ok(Reply::Deferred) => Err(Failure::Runtime("the server deferred the only request: try again".to_owned())),
        Err(error) => Err(Failure::Runtime(format!("the server refused the request: {error}"))),
    }
}

impl Space {
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

/// Reports a missing key. For `exists` that is not an error: the exit code says it.
fn not_found(command: &Command) -> Result<(), Failure> {
    if matches!(command, Command::Exists { .. }) {
        writeln!(io::stdout(), "no")?;
        return Err(Failure::No);
    }
    Err(Failure::Runtime(command.not_found()))
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
    let cause = reason(source);
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
        Some(("shm", "")) => Err(format!("`{text}` names no socket: write shm:PATH, such as shm:/run/skep.sock")),
        Some(("shm", _)) => Ok(text.to_owned()),
        Some(("tcp", rest)) => address(rest),
        Some(("tls" | "udp" | "rdma", rest)) => address(rest).map(|_| text.to_owned()),
        _ => address(text).map_err(|refusal| format!("{refusal}, tls:HOST:PORT, udp:HOST:PORT, or shm:PATH")),
    }
}

/// Checks the form of a server's address: a name or an IP address, and a port.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let refusal = || format!("`{text}` is not an address: write HOST:PORT, such as {DEFAULT_ADDRESS}");
    let (host, port) = text.rsplit_once(':').ok_or_else(refusal)?;
    let is_ipv6 = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || (host.contains(':') && !is_ipv6) || port.parse::<u16>().is_err() {
        return Err(refusal());
    }
    Ok(text.to_owned())
}

/// Asks a shard for a key, which need not exist, and prints `pong`.
fn ping(login: &Login) -> Result<(), Failure> {
    let mut client = connect(login).map_err(Failure::Runtime)?;
    let request = Request { key: b"ping", operation: Operation::Contains };
    let mut responses = Responses::default();
    client.execute(&[request], &mut responses).map_err(|error| Failure::Runtime(reason(&error)))?;
    let refused = |error| Failure::Runtime(format!("the server refused the request: {error}"));
    responses.get(0).map_err(refused)?;
    Ok(writeln!(io::stdout(), "pong")?)
}

/// Builds the command from the words.
fn command(words: Words) -> Result<Command, Failure> {
    Ok(match words {
        Words::Get { key } => Command::Get { key: bytes(key) },
        Words::Put { key, value, if_absent, if_present, expires_in } => Command::Put {
            key: bytes(key),
            value: value_or_input(value)?,
            condition: request::condition(if_absent, if_present),
            expiry: expires_in.map_or(ExpiryChange::CLEAR, expires_in_from_now),
        },
        Words::Expire { key, time } => Command::Expire { key: bytes(key), expiry: expires_in_from_now(time) },
        Words::Persist { key } => Command::Expire { key: bytes(key), expiry: ExpiryChange::CLEAR },
        Words::Expiry { key } => Command::Expiry { key: bytes(key) },
        Words::Delete { key } => Command::Delete { key: bytes(key) },
        Words::Exists { key } => Command::Exists { key: bytes(key) },
        Words::Incr { key, delta } => Command::Increment { key: bytes(key), delta },
        Words::Update { key, function, element, operands, init, no_return } => Command::Update {
            key: bytes(key),
            function,
            element,
            operand: parse(element, &operands)?,
            initial: if init.is_empty() { None } else { Some(parse(element, &init)?) },
            return_old: !no_return,
        },
        Words::Reduce { key, fold, element, initial, constants } => Command::Reduce {
            key: bytes(key),
            fold,
            element,
            initial: parse(fold.sigma(element), &[initial])?,
            constants: parse(element, &constants)?,
        },
        Words::Filter { key, predicate, element, operand } => {
            Command::Filter { key: bytes(key), predicate, element, operand: parse(element, operand.as_slice())? }
        }
        Words::SetVector { key, element, elements } => Command::Put {
            key: bytes(key),
            value: parse(element, &elements)?,
            condition: PutCondition::Always,
            expiry: ExpiryChange::CLEAR,
        },
        Words::GetVector { key, element } => Command::GetVector { key: bytes(key), element },
        Words::Scan(_) | Words::Ping => unreachable!("it is not a request on one key"),
    })
}

fn bytes(word: OsString) -> Vec<u8> {
    use std::os::unix::ffi::OsStringExt;
    word.into_vec()
}

/// Reads a time, such as that after which a key expires: at least a millisecond, the unit of the server's clock.
pub(crate) fn life(text: &str) -> Result<Duration, String> {
    let life = humantime::parse_duration(text).ok().filter(|life| *life >= Duration::from_millis(1));
    life.ok_or_else(|| format!("`{text}` is not a time: write a number and a unit, such as 500ms, 10s or 1h30m"))
}

/// Returns the change to the expiry that is this long after now.
fn expires_in_from_now(life: Duration) -> ExpiryChange {
    let time = SystemTime::now().checked_add(life).and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let expiry = time.and_then(|time| Expiry::at(i64::try_from(time.as_millis()).ok()?));
    ExpiryChange::set(expiry.unwrap_or(Expiry::MAX))
}

/// Returns the word itself, or the standard input if it is `-`.
fn value_or_input(word: OsString) -> Result<Vec<u8>, Failure> {
    if word != "-" {
        return Ok(bytes(word));
    }
    let mut value = Vec::new();
    // Reads one byte more than allowed, so that a value which is too long is refused and not truncated.
    io::stdin().lock().take(VALUE_SIZE_MAX as u64 + 1).read_to_end(&mut value)?;
    Ok(value)
}

fn parse(element: Element, words: &[String]) -> Result<Vec<u8>, Failure> {
    let mut elements = Vec::with_capacity(words.len() * element.width());
    for word in words {
        element
            .parse(word, &mut elements)
            .map_err(|error| Failure::Usage(format!("`{word}` is not of type {}: {error}", element.name())))?;
    }
    Ok(elements)
}

fn element(name: &str) -> Result<Element, String> {
    Element::from_name(name).ok_or_else(|| {
        format!("`{name}` is not an element type: write one of {}", names(&Element::ALL.map(Element::name)))
    })
}

fn function(name: &str) -> Result<UpdateFunction, String> {
    UpdateFunction::from_name(name)
        .ok_or_else(|| not_built_in(name, "function", &UpdateFunction::ALL.map(UpdateFunction::name), "UPDATE"))
}

fn fold(name: &str) -> Result<Fold, String> {
    Fold::from_name(name).ok_or_else(|| not_built_in(name, "fold", &Fold::ALL.map(Fold::name), "REDUCE"))
}

fn predicate(name: &str) -> Result<Predicate, String> {
    Predicate::from_name(name)
        .ok_or_else(|| not_built_in(name, "predicate", &Predicate::ALL.map(Predicate::name), "FILTER"))
}

/// Says what to write instead of a name that is not built in. Names of user functions have a dot.
fn not_built_in(name: &str, kind: &str, all: &[&str], command: &str) -> String {
    if name.contains('.') {
        return format!("`{name}` is a user function: send SKEP.{command} to the RESP port, as with redis-cli");
    }
    format!("`{name}` is not a {kind}: write one of {}", names(all))
}

fn names(all: &[&str]) -> String {
    all.join(", ")
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
        Program::try_parse_from([&["cli"], words].concat()).unwrap().arguments.command
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
