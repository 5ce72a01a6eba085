//! `skep import`: puts the strings of a file, a pipe or a running Redis, with their expiries, into a running server.
//!
//! A file is read twice. The first time only checks it, so a damaged file changes nothing. The second time sends its
//! strings in batches. A pipe, such as the standard input, can be read only once: what is sent before a fault is found stays.
//! So is a server (`transfer/remote.rs`). The number of a database is that of a space, as for `SELECT`.
//!
//! What is not a string, and keys that have expired, are left out and counted. Strings that Skep cannot have are left out
//! too, but then the program fails at the end.
//!
//! An import that has failed or was interrupted continues at a position: the number of entries of a file that are done, or a
//! cursor of the server. Each line of the progress, and the message of a failure, names it.

mod batch;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

use skep::Client;
use skep_wire::rdb::RdbError;

use crate::cli::{DEFAULT_ADDRESS, connect, life, native_address};
use crate::failure::{Failure, reason};
use crate::password::Login;
use crate::tls::LoginSource;
use crate::transfer::{
    Contents, Format, NoSpace, Pair, Position, Progress, ReadError, Reader, Remote, SPACES, Step, Unit, is_server,
    keys, now,
};
use batch::{Batch, has_space};

/// Puts the strings of a file.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The file, such as dump.rdb, or a pipe; `-` is the standard input. Or a running server: redis://HOST:PORT, or
    /// rediss://HOST:PORT with TLS.
    #[arg(value_name = "FILE|URL")]
    file: PathBuf,
    /// Format of the file [default: as its name ends: .rdb, .resp, .csv, .jsonl; else as it begins].
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Continue an import at the position that it has named: a number of entries of a file, or DATABASE:CURSOR of a server.
    #[arg(long, value_name = "POSITION", value_parser = Resume::parse)]
    resume: Option<Resume>,
    /// If an RDB file has a record of a type that is not known, import what is before it. Nothing tells where such a record ends,
    /// so what follows it is left out, the checksum is not checked, and the exit code is 1.
    #[arg(long)]
    skip_unknown: bool,
    /// Native address of the server: HOST:PORT, tls:HOST:PORT, udp:HOST:PORT, rdma:HOST:PORT, or shm:PATH for shared memory.
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS, value_parser = native_address)]
    addr: String,
    #[command(flatten)]
    source: LoginSource,
    /// Give up if the server sends nothing for this time, such as 500ms [default: 5s to connect, then 30s].
    #[arg(long, value_name = "TIME", value_parser = life)]
    timeout: Option<Duration>,
}

const AFTER_HELP: &str = "The strings of database 0 are put into the hash space, those of 1 into the ordered space, and those of 2 into the \
     cache space. Keys that exist are replaced. Lists, sets, sorted sets, hashes, streams, values of modules, functions, \
     and keys that have expired are left out and counted. A file is checked before anything is imported. A pipe is \
     imported while it is read: if it is damaged, what was before the damage stays. The password of a server that is \
     read is in its URL: redis://:PASSWORD@HOST:PORT.";

/// Where an import continues.
#[derive(Clone, Copy, Debug)]
enum Resume {
    Entries(u64),
    Server(Position),
}

impl Resume {
    fn parse(text: &str) -> Result<Resume, String> {
        let position = text.parse().map(Resume::Entries).ok().or_else(|| Position::parse(text).map(Resume::Server));
        position
            .ok_or_else(|| format!("`{text}` is no position: write one that an import has named, such as 4096 or 0:17"))
    }
}

/// Imports the file.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let mut login = arguments.source.login(&arguments.addr)?;
    if let Some(timeout) = arguments.timeout {
        (login.settings.connect_timeout, login.settings.reply_timeout) = (timeout, timeout);
    }
    if let Some(url) = path.to_str().filter(|name| is_server(name)) {
        return run_server(url, arguments, &login);
    }
    if let Some(Resume::Server(position)) = arguments.resume {
        let refusal = format!("{position} is a position of a server: a file has a number of entries, such as 4096");
        return Err(Failure::Usage(refusal));
    }
    if path.as_os_str() == "-" {
        return run_pipe(io::stdin().lock(), Path::new("the standard input"), arguments, &login);
    }
    let unreadable = |error: &io::Error| Failure::Usage(format!("cannot read {}: {}", path.display(), reason(error)));
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    let metadata = file.metadata().map_err(|error| unreadable(&error))?;
    if metadata.is_dir() {
        let refusal = format!("{} is not a file: name one that Redis or Valkey has saved", path.display());
        return Err(Failure::Usage(refusal));
    }
    match metadata.is_file() {
        true => run_file(file, metadata.len(), arguments, &login),
        false => run_pipe(file, path, arguments, &login),
    }
}

/// Checks a file, and then imports it.
fn run_file(mut file: File, size: u64, arguments: &Arguments, login: &Login) -> Result<(), Failure> {
    let path = &arguments.file;
    let progress = Progress::start("checking", Unit::Bytes, Some(size));
    let contents = read(&file, arguments, &progress, |_, _| Ok(0)).map_err(|stop| stop.failure(path))?;
    drop(progress);
    let mut client = connect(login).map_err(Failure::Runtime)?;
    for ((space, name), (count, _)) in SPACES.into_iter().zip(contents.strings) {
        if count > 0 {
            has_space(&mut client, space).map_err(|error| Failure::Runtime(format!("{name} space: {error}")))?;
        }
    }
    file.rewind()
        .map_err(|error| Failure::Usage(format!("cannot read {} again: {}", path.display(), reason(&error))))?;
    import(&file, Some(size), path, arguments, client)
}

/// Imports what arrives from a pipe, which `name` describes.
fn run_pipe(input: impl Read, name: &Path, arguments: &Arguments, login: &Login) -> Result<(), Failure> {
    let client = connect(login).map_err(Failure::Runtime)?;
    import(input, None, name, arguments, client)
}

/// Sends the strings to the server.
fn import(
    input: impl Read,
    size: Option<u64>,
    name: &Path,
    arguments: &Arguments,
    client: Client,
) -> Result<(), Failure> {
    let progress = Progress::start("importing", Unit::Bytes, size);
    let mut batch = Batch::new(client);
    let outcome = read(input, arguments, &progress, |number, pair| {
        batch.push(number, pair)?;
        Ok(batch.acknowledged)
    });
    let outcome = outcome.and_then(|contents| batch.send().map_err(Stop::Server).map(|()| contents));
    drop(progress);
    match outcome {
        Ok(contents) => contents.report("imported", "into", io::stdout().lock()),
        Err(stop) => Err(interrupted(stop, name, batch.sent, &batch.acknowledged.to_string())),
    }
}

/// Imports the strings of a running server.
fn run_server(url: &str, arguments: &Arguments, login: &Login) -> Result<(), Failure> {
    let start = match arguments.resume {
        None => Position { database: 0, cursor: 0 },
        Some(Resume::Server(position)) => position,
        Some(Resume::Entries(_)) => {
            return Err(Failure::Usage(
                "a server has positions such as 0:17: write one that an import has named".to_owned(),
            ));
        }
    };
    let mut remote = Remote::connect(&Login::of_url(url))?;
    let name = crate::resp_link::without_password(url);
    let databases = remote.databases()?;
    if let Some((database, _)) = databases.iter().find(|(database, _)| *database >= SPACES.len() as u64) {
        return Err(Stop::Database(*database).failure(Path::new(&name)));
    }
    let mut batch = Batch::new(connect(login).map_err(Failure::Runtime)?);
    let progress = Progress::start("importing", Unit::Keys, Some(databases.iter().map(|(_, keys)| keys).sum()));
    let (mut contents, mut reached, mut number) = (Contents::default(), start, 0);
    let databases = databases.into_iter().map(|(database, _)| database);
    let outcome = remote.scan(start, databases, |step| {
        match step {
            Step::Entry(entry) => {
                number += 1;
                if let Some(pair) = contents.take(entry, now())? {
                    batch.push(number, &pair).map_err(Stop::Server)?;
                }
            }
            Step::PageEnd(next) => {
                batch.send().map_err(Stop::Server)?;
                reached = next;
                progress.set(number, number);
                progress.set_resume(next.to_string());
            }
        }
        Ok(())
    });
    drop(progress);
    match outcome {
        Ok(()) => contents.report("imported", "into", io::stdout().lock()),
        Err(stop) => Err(interrupted(stop, Path::new(&name), batch.sent, &reached.to_string())),
    }
}

/// Returns the failure of an import that has begun, and how to continue it.
fn interrupted(stop: Stop, name: &Path, sent: u64, position: &str) -> Failure {
    let failure = stop.failure(name);
    let message = failure.message().unwrap_or_default();
    Failure::Runtime(format!(
        "{message}: at least {} were imported before, and --resume {position} continues there",
        keys(sent)
    ))
}

/// The reason why an import ends early.
enum Stop {
    Input(ReadError),
    /// The strings of a database without a space.
    Database(u64),
    Server(String),
    Source(Failure),
}

impl From<NoSpace> for Stop {
    fn from(NoSpace(database): NoSpace) -> Self {
        Stop::Database(database)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Source(failure)
    }
}

impl Stop {
    fn failure(self, path: &Path) -> Failure {
        let path = path.display();
        Failure::Runtime(match self {
            Stop::Input(ReadError::Rdb(error @ RdbError::UnknownType { .. })) => {
                format!("{path}: {}; --skip-unknown imports what is before it", reason(&error))
            }
            Stop::Input(error) => format!("{path}: {}", reason(&error)),
            Stop::Database(number) => format!(
                "{path} has strings in database {number}, and Skep has the spaces 0 (hash), 1 (ordered) and 2 (cache): \
                 move them to one of these databases (MOVE), or remove them, and save again"
            ),
            Stop::Server(message) => message,
            Stop::Source(failure) => return failure,
        })
    }
}

/// Reads the input, and gives each string that has not expired to `put`, with the number of its entry. `put` returns the number
/// of the last entry that is done.
fn read(
    input: impl Read,
    arguments: &Arguments,
    progress: &Progress,
    mut put: impl FnMut(u64, &Pair<'_>) -> Result<u64, String>,
) -> Result<Contents, Stop> {
    let now = now();
    let mut input = BufReader::with_capacity(64 << 10, input);
    let mut reader = Reader::new(format(arguments, &mut input)?, input).map_err(Stop::Input)?;
    let skipped = match arguments.resume {
        Some(Resume::Entries(count)) => count,
        _ => 0,
    };
    let mut contents = Contents::default();
    let mut number = 0_u64;
    loop {
        let entry = match reader.next_entry() {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(contents),
            Err(ReadError::Rdb(error @ RdbError::UnknownType { .. })) if arguments.skip_unknown => {
                let error = reason(&error);
                contents.rest_left_out =
                    Some(format!("the rest of the file was left out: {error}; nothing tells where the record ends"));
                return Ok(contents);
            }
            Err(error) => return Err(Stop::Input(error)),
        };
        number += 1;
        if number <= skipped {
            continue;
        }
        if let Some(pair) = contents.take(entry, now)? {
            let done = put(number, &pair).map_err(Stop::Server)?;
            if done > 0 {
                progress.set_resume(done.to_string());
            }
        }
        if number.is_multiple_of(1024) {
            progress.set(reader.offset(), number);
        }
    }
}

/// Returns the format of the input: the chosen one, that of its name, or that of its first bytes.
fn format(arguments: &Arguments, input: &mut impl BufRead) -> Result<Format, Stop> {
    if let Some(format) = arguments.format.or_else(|| Format::of_name(&arguments.file)) {
        return Ok(format);
    }
    let of_content = Format::of_content(input).map_err(|error| Stop::Input(ReadError::Read(error)))?;
    of_content.ok_or_else(|| {
        let path = arguments.file.display();
        Stop::Server(format!(
            "{path}: it is not an RDB file, and neither its name nor its first bytes tell another format: write --format resp, \
             csv or json"
        ))
    })
}
