//! `skep import`: puts the strings of a file, a pipe or a running Redis, with their expiries, into a running server.
//!
//! A file is read twice. The first time only checks it, so a damaged file changes nothing. The second time sends its
//! strings in batches. A pipe, such as the standard input, can be read only once: the pairs before a fault stay.
//! So is a server (`transfer/remote.rs`). The number of a database is that of a space, as for `SELECT`.
//!
//! Values that are not strings, and pairs that have expired, are left out and counted; in a text format, a pair that
//! has expired removes its key. Strings that Skep cannot have are left out too, but then the program fails at the
//! end.
//!
//! An import that has failed or was interrupted continues at a position: the number of entries of a file that are
//! done, or a cursor of the server. Each line of the progress, and the message of a failure, names it. After a lost
//! connection to the target, it is right only if the target keeps each write that it has acknowledged.

mod batch;
mod input;

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use skep::{CACHE_SPACE, Client};
use skep_wire::rdb::RdbError;

use crate::cli::{DEFAULT_ADDRESS, connect, life, native_address};
use crate::failure::{Failure, reason};
use crate::password::Login;
use crate::resp_link::is_url;
use crate::tls::LoginSource;
use crate::transfer::{
    Change, Contents, Format, NoSpace, Pair, Position, Progress, ReadError, Reader, Remote, SPACES, Step, Unit, keys,
    now,
};
use batch::{Batch, has_space};
use input::Input;

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
    /// Continue an import at the position that it has named: a number of entries of a file, or DATABASE:CURSOR:RUN of
    /// a server.
    #[arg(long, value_name = "POSITION", value_parser = Resume::parse)]
    resume: Option<Resume>,
    /// If an RDB file has a record of a type that is not known, import the records before it. Nothing tells where such a record ends,
    /// so the records after it are left out, the checksum is not checked, and the exit code is 1.
    #[arg(long)]
    skip_unknown: bool,
    /// Put the strings of database 2 into the cache space, which forgets keys and does not survive a restart. Without
    /// it, they are refused.
    #[arg(long)]
    into_cache: bool,
    /// Put the strings of a database into this space, such as 5=hash; a key that several databases have gets one of
    /// their values. Can be repeated.
    #[arg(long = "database", value_name = "NUMBER=SPACE", value_parser = database)]
    databases: Vec<(u64, u16)>,
    /// Write a line of JSON for each string that Skep cannot have and that is left out into this file.
    #[arg(long, value_name = "FILE")]
    left_out: Option<PathBuf>,
    /// Native address of the server: HOST:PORT, tls:HOST:PORT, udp:HOST:PORT, rdma:HOST:PORT, or shm:PATH for shared memory.
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS, value_parser = native_address)]
    addr: String,
    #[command(flatten)]
    source: LoginSource,
    /// Give up if the server, or a server that is read, sends nothing for this time, such as 500ms [default: 5s to
    /// connect, then 30s].
    #[arg(long, value_name = "TIME", value_parser = life)]
    timeout: Option<Duration>,
}

const AFTER_HELP: &str = "The strings of database 0 are put into the hash space, those of 1 into the ordered space, and those of 2 into the \
     cache space (--into-cache). Keys that exist are replaced. Lists, sets, sorted sets, hashes, streams, values of modules, functions, \
     and keys that have expired are left out and counted. A file is checked before anything is imported. A pipe is \
     imported while it is read: if it is damaged, the pairs before the damage stay. The password of a server that is \
     read is in its URL: redis://:PASSWORD@HOST:PORT.";

impl Arguments {
    /// Begins the report. A list of the strings that are left out is made if it is wanted.
    fn contents(&self) -> Result<Contents, Failure> {
        let mut contents = Contents::new(&self.databases);
        if let Some(path) = &self.left_out {
            contents.list_left_out(path)?;
        }
        Ok(contents)
    }

    /// Returns the number of entries of a file that were imported before.
    fn entries(&self) -> u64 {
        match self.resume {
            Some(Resume::Entries(count)) => count,
            _ => 0,
        }
    }
}

/// Reads the space of a database.
fn database(text: &str) -> Result<(u64, u16), String> {
    let refusal = || format!("`{text}` is not a database and a space: write both, such as 5=hash");
    let (number, name) = text.split_once('=').ok_or_else(refusal)?;
    let space = SPACES.iter().find(|(_, space)| *space == name).ok_or_else(refusal)?;
    Ok((number.parse().map_err(|_| refusal())?, space.0))
}

/// Where an import continues.
#[derive(Clone, Copy, Debug)]
enum Resume {
    Entries(u64),
    Server(Position),
}

impl Resume {
    fn parse(text: &str) -> Result<Resume, String> {
        let position = text.parse().map(Resume::Entries).ok().or_else(|| Position::parse(text).map(Resume::Server));
        position.ok_or_else(|| {
            format!("`{text}` is no position: write one that an import has named, such as 4096 or 0:17:RUN")
        })
    }
}

/// Imports the file.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let mut login = arguments.source.login(&arguments.addr)?;
    login.set_timeout(arguments.timeout);
    if let Some(url) = path.to_str().filter(|name| is_url(name)) {
        return run_server(url, arguments, &login);
    }
    if let Some(Resume::Server(position)) = arguments.resume {
        let refusal = format!("{position} is a position of a server: a file has a number of entries, such as 4096");
        return Err(Failure::Usage(refusal));
    }
    if path.as_os_str() == "-" {
        let name = Path::new("the standard input");
        let file = io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let file =
            file.map_err(|error| Failure::Usage(format!("cannot read {}: {}", name.display(), reason(&error))))?;
        return run_pipe(&file, name, arguments, &login);
    }
    if let Some(refusal) = of_append_only_file(path) {
        return Err(Failure::Usage(refusal));
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
        false => run_pipe(&file, path, arguments, &login),
    }
}

/// Returns the refusal of a part of an append-only file of Redis.
fn of_append_only_file(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let is_part = name.ends_with(".incr.aof") || name.ends_with(".aof.manifest");
    let is_folder = name == "appendonlydir" && path.is_dir();
    (is_part || is_folder).then(|| {
        format!(
            "{} is a part of an append-only file of Redis, without the others: run `redis-cli SAVE`, and import dump.rdb",
            path.display()
        )
    })
}

/// Checks a file, and then imports it.
fn run_file(mut file: File, size: u64, arguments: &Arguments, login: &Login) -> Result<(), Failure> {
    let path = &arguments.file;
    let progress = Progress::start("checking", Unit::Bytes, Some(size));
    let contents = Contents::new(&arguments.databases);
    let contents = read(&file, arguments, contents, &progress, |_, _| Ok(0)).map_err(|stop| stop.failure(path))?;
    drop(progress);
    let mut client = connect(login).map_err(Failure::Runtime)?;
    if let Some(Resume::Entries(count)) = arguments.resume.filter(|_| contents.is_short) {
        let refusal = format!("{} has fewer entries than the {count} of --resume: is it another file?", path.display());
        return Err(Failure::Usage(refusal));
    }
    for ((space, name), (count, _)) in SPACES.into_iter().zip(contents.strings) {
        if count > 0 {
            let failed = |error| Failure::Runtime(format!("{} for the {name} space: {error}", keys(count)));
            has_space(&mut client, space).map_err(failed)?;
        }
    }
    file.rewind()
        .map_err(|error| Failure::Usage(format!("cannot read {} again: {}", path.display(), reason(&error))))?;
    import(&file, Some(size), path, arguments, client)
}

/// Imports what arrives from a pipe, which `name` describes.
fn run_pipe(file: &File, name: &Path, arguments: &Arguments, login: &Login) -> Result<(), Failure> {
    let client = connect(login).map_err(Failure::Runtime)?;
    import(file, None, name, arguments, client)
}

/// Sends the strings to the server.
fn import(file: &File, size: Option<u64>, name: &Path, arguments: &Arguments, client: Client) -> Result<(), Failure> {
    let progress = Progress::start("importing", Unit::Bytes, size);
    let batch = RefCell::new(Batch::new(client, arguments.entries()));
    let input = Input { file, batch: &batch, progress: &progress };
    let outcome = read(input, arguments, arguments.contents()?, &progress, |number, change| {
        let mut batch = batch.borrow_mut();
        batch.push(number, change)?;
        Ok(batch.acknowledged())
    });
    let mut batch = batch.into_inner();
    let outcome = match batch.failure.take().map_or(outcome, |failure| Err(Stop::Server(failure))) {
        // The pairs before a fault of the input are imported.
        outcome @ (Ok(_) | Err(Stop::Input(_))) => batch.send().map_err(Stop::Server).and(outcome),
        outcome => outcome,
    };
    drop(progress);
    match outcome {
        Ok(contents) if contents.is_short => Err(Failure::Runtime(format!(
            "{} has ended before the position of --resume: nothing was imported",
            name.display()
        ))),
        Ok(contents) => contents.report("imported", "into", io::stdout().lock()),
        Err(stop) => Err(interrupted(stop, name, &batch, &batch.acknowledged().to_string())),
    }
}

/// Imports the strings of a running server.
fn run_server(url: &str, arguments: &Arguments, login: &Login) -> Result<(), Failure> {
    let start = match arguments.resume {
        None => Position::BEGIN,
        Some(Resume::Server(position)) => position,
        Some(Resume::Entries(_)) => {
            return Err(Failure::Usage(
                "a server has positions such as 0:17:RUN: write one that an import has named".to_owned(),
            ));
        }
    };
    let mut remote = Remote::connect(&login.of_url(url))?;
    let name = remote.name().to_owned();
    let databases = remote.databases(None)?;
    remote.check(start, &databases)?;
    let mut contents = arguments.contents()?;
    for (database, keys) in &databases {
        let space = contents.space(*database);
        let is_refused = space.is_none_or(|space| space == CACHE_SPACE && !arguments.into_cache);
        if is_refused && remote.has_string(*database)? {
            let stop = if space.is_none() { Stop::Database(*database, Some(*keys)) } else { Stop::Cache };
            return Err(stop.failure(Path::new(&name)));
        }
    }
    let mut batch = Batch::new(connect(login).map_err(Failure::Runtime)?, 0);
    let progress = Progress::start("importing", Unit::Keys, Some(databases.iter().map(|(_, keys)| keys).sum()));
    let (mut reached, mut number) = (start, 0);
    let databases = databases.into_iter().map(|(database, _)| database);
    let outcome = remote.scan(start, databases, |step| {
        match step {
            Step::Entry(entry) => {
                number += 1;
                if let Some(change) = contents.take(entry, now())?
                    && is_permitted(&change, arguments)?
                {
                    batch.push(number, &change).map_err(Stop::Server)?;
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
        Ok(()) => {
            contents.notes = remote.notes();
            contents.report("imported", "into", io::stdout().lock())
        }
        Err(stop) => Err(interrupted(stop, Path::new(&name), &batch, &reached.to_string())),
    }
}

/// Returns the failure of an import that has begun, and how to continue it.
fn interrupted(stop: Stop, name: &Path, batch: &Batch, position: &str) -> Failure {
    let failure = stop.failure(name);
    let (message, were) = (failure.message().unwrap_or_default(), if batch.sent == 1 { "was" } else { "were" });
    let sent = keys(batch.sent);
    Failure::Runtime(match batch.is_connection_lost {
        false => {
            format!("{message}: at least {sent} {were} imported before, and --resume {position} continues there")
        }
        true => format!(
            "{message}: {sent} {were} acknowledged before; if the server has kept them (--durability always), --resume {position} \
             continues there, else start again from the beginning"
        ),
    })
}

/// The reason why an import ends early.
enum Stop {
    Input(ReadError),
    /// The strings of a database without a space, and how many keys it has.
    Database(u64, Option<u64>),
    /// Strings for the cache space, which were not asked for.
    Cache,
    Server(String),
    Source(Failure),
}

impl From<NoSpace> for Stop {
    fn from(NoSpace(database): NoSpace) -> Self {
        Stop::Database(database, None)
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
                format!("{path}: {}; --skip-unknown imports the records before it", reason(&error))
            }
            Stop::Input(error) => format!("{path}: {}", reason(&error)),
            Stop::Database(number, count) => {
                let count = count.map_or_else(String::new, |count| format!(", of {}", keys(count)));
                format!(
                    "{path} has strings in database {number}{count}, and Skep has the spaces 0 (hash), 1 (ordered) and 2 (cache): \
                     --database {number}=hash puts them into a space; or move them (MOVE), or remove them, and save again"
                )
            }
            Stop::Cache => format!(
                "{path} has strings in database 2, which is the cache space: it forgets keys and does not survive a restart; \
                 --into-cache puts them there, and --database 2=hash into the hash space"
            ),
            Stop::Server(message) => message,
            Stop::Source(failure) => return failure,
        })
    }
}

/// Reads the input, and gives each change to `put`, with the number of its entry. `put` returns the number of the
/// last entry that is done.
fn read(
    input: impl Read,
    arguments: &Arguments,
    mut contents: Contents,
    progress: &Progress,
    mut put: impl FnMut(u64, &Change<'_>) -> Result<u64, String>,
) -> Result<Contents, Stop> {
    let now = now();
    let mut input = BufReader::with_capacity(64 << 10, input);
    let format = format(arguments, &mut input)?;
    let mut reader = Reader::new(format, input).map_err(Stop::Input)?;
    contents.set_format(format);
    let skipped = arguments.entries();
    let mut number = 0_u64;
    loop {
        let entry = match reader.next_entry() {
            Ok(Some(entry)) => entry,
            Ok(None) => {
                contents.is_short = number < skipped;
                return Ok(contents);
            }
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
        if let Some(change) = contents.take(entry, now)?
            && is_permitted(&change, arguments)?
        {
            let done = put(number, &change).map_err(Stop::Server)?;
            if done > 0 {
                progress.set_resume(done.to_string());
            }
        }
        if number.is_multiple_of(1024) {
            progress.set(reader.offset(), number);
        }
    }
}

/// Returns true if a change may be sent: without `--into-cache`, a key of the cache space is not removed. Fails if it
/// is a string for that space.
fn is_permitted(change: &Change<'_>, arguments: &Arguments) -> Result<bool, Stop> {
    match change {
        _ if arguments.into_cache => Ok(true),
        Change::Put(Pair { space: CACHE_SPACE, .. }) => Err(Stop::Cache),
        Change::Delete { space: CACHE_SPACE, .. } => Ok(false),
        _ => Ok(true),
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
