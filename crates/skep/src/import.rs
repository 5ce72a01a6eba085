//! `skep import`: puts the strings of a file of Redis or Valkey (RDB), with their expiries, into a running server.
//!
//! A file is read twice. The first time only checks it, so a damaged file changes nothing. The second time sends its
//! strings in batches. A pipe, such as the standard input, can be read only once: what is sent before a fault is found stays. The number of a database is that of a space, as for `SELECT`.
//!
//! What is not a string, and keys that have expired, are left out and counted. Strings that Skep cannot have are left out
//! too, but then the program fails at the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressStyle};
use skep::{
    CACHE_SPACE, Client, ClientError, Condition, ConditionKind, Expiry, ExpiryChange, HASH_SPACE, ORDERED_SPACE,
    Operation, PutCondition, Reply, Request, Responses, StringWrite, WireError,
};
use skep_wire::rdb::{Entry, Kind, RdbError, RdbReader};

use crate::cli::{DEFAULT_ADDRESS, connect, life, native_address};
use crate::failure::{Failure, reason, with_options};
use crate::password::Login;
use crate::tls::LoginSource;

/// Puts the strings of a file.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The file, such as dump.rdb, or a pipe; `-` is the standard input.
    file: PathBuf,
    /// If the file has a record of a type that is not known, import what is before it. Nothing tells where such a record ends,
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
     imported while it is read: if it is damaged, what was before the damage stays.";

/// The spaces, by the number of their database.
const SPACES: [(u16, &str); 3] = [(HASH_SPACE, "hash"), (ORDERED_SPACE, "ordered"), (CACHE_SPACE, "cache")];

/// Pairs, and bytes of them, that are sent together; the client divides them into frames.
const BATCH_PAIRS_MAX: usize = 16 << 10;
const BATCH_BYTES_MAX: usize = 4 << 20;

/// The longest time for which a batch is sent again while the server is busy, and the pause before that.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// What a file has.
#[derive(Debug, Default)]
struct Contents {
    /// Number of strings for each space, and of those with an expiry.
    strings: [(u64, u64); SPACES.len()],
    expired: u64,
    others: BTreeMap<Kind, u64>,
    /// Number of strings that Skep cannot have, and a description of the first one.
    out_of_bounds: u64,
    first_out_of_bounds: String,
    /// The record of an unknown type that ended the import.
    unknown: Option<RdbError>,
}

/// Imports the file.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let mut login = arguments.source.login(&arguments.addr)?;
    if let Some(timeout) = arguments.timeout {
        (login.settings.connect_timeout, login.settings.reply_timeout) = (timeout, timeout);
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
    let bar = progress("checking", Some(size));
    let contents = read(&file, arguments, &bar, |_, _, _, _| Ok(())).map_err(|stop| stop.failure(path))?;
    bar.finish_and_clear();
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
    let bar = progress("importing", size);
    let mut batch = Batch::new(client);
    let outcome = read(input, arguments, &bar, |space, key, value, expiry| batch.push(space, key, value, expiry));
    let outcome = outcome.and_then(|contents| batch.send().map_err(Stop::Server).map(|()| contents));
    bar.finish_and_clear();
    match outcome {
        Ok(contents) => report(&contents),
        Err(stop) => {
            let failure = stop.failure(name);
            let message = failure.message().unwrap_or_default();
            Err(Failure::Runtime(format!("{message}: at least {} were imported before", keys(batch.sent))))
        }
    }
}

/// Returns a progress bar on standard error; nothing is shown if that is not a terminal. The size of a pipe is not known.
fn progress(name: &'static str, size: Option<u64>) -> ProgressBar {
    let (bar, template) = match size {
        Some(size) => (ProgressBar::new(size), "{prefix} {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}"),
        None => (ProgressBar::no_length(), "{prefix} {binary_bytes}"),
    };
    bar.with_style(ProgressStyle::with_template(template).expect("the template is valid")).with_prefix(name)
}

/// The reason why an import ends early.
enum Stop {
    File(RdbError),
    /// The strings of a database without a space.
    Database(u64),
    Server(String),
}

impl Stop {
    fn failure(self, path: &Path) -> Failure {
        let path = path.display();
        Failure::Runtime(match self {
            Stop::File(error @ RdbError::UnknownType { .. }) => {
                format!("{path}: {}; --skip-unknown imports what is before it", reason(&error))
            }
            Stop::File(error) => format!("{path}: {}", reason(&error)),
            Stop::Database(number) => format!(
                "{path} has strings in database {number}, and Skep has the spaces 0 (hash), 1 (ordered) and 2 (cache): \
                 move them to one of these databases (MOVE), or remove them, and save again"
            ),
            Stop::Server(message) => message,
        })
    }
}

/// Reads the file, and gives each string that has not expired to `put`, with the number of its space.
fn read(
    input: impl Read,
    arguments: &Arguments,
    progress: &ProgressBar,
    mut put: impl FnMut(u16, &[u8], &[u8], Option<i64>) -> Result<(), String>,
) -> Result<Contents, Stop> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as i64);
    let mut reader = RdbReader::new(input).map_err(Stop::File)?;
    let mut contents = Contents::default();
    let mut count = 0_u64;
    loop {
        let entry = match reader.next_entry() {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(contents),
            Err(error @ RdbError::UnknownType { .. }) if arguments.skip_unknown => {
                contents.unknown = Some(error);
                return Ok(contents);
            }
            Err(error) => return Err(Stop::File(error)),
        };
        match entry {
            Entry::String { expiry: Some(expiry), .. } | Entry::OutOfBounds { expiry: Some(expiry), .. }
                if expiry <= now =>
            {
                contents.expired += 1;
            }
            Entry::String { database, key, value, expiry } => {
                let index = usize::try_from(database).ok().filter(|index| *index < SPACES.len());
                let index = index.ok_or(Stop::Database(database))?;
                let (strings, with_expiry) = &mut contents.strings[index];
                *strings += 1;
                *with_expiry += u64::from(expiry.is_some());
                put(SPACES[index].0, key, value, expiry).map_err(Stop::Server)?;
            }
            Entry::OutOfBounds { key, key_size, value_size, .. } => {
                if contents.out_of_bounds == 0 {
                    let shown = if key.is_empty() { String::new() } else { format!(" `{}`", key.escape_ascii()) };
                    contents.first_out_of_bounds = format!("key{shown} of {key_size} B with a value of {value_size} B");
                }
                contents.out_of_bounds += 1;
            }
            Entry::Other(kind) => *contents.others.entry(kind).or_default() += 1,
        }
        count += 1;
        if count.is_multiple_of(1024) {
            progress.set_position(reader.offset());
        }
    }
}

/// Checks that the server has a space.
fn has_space(client: &mut Client, space: u16) -> Result<(), String> {
    client.select(space);
    match client.contains(b"x") {
        Ok(_) => Ok(()),
        Err(ClientError::Rejected(WireError::Busy)) => Ok(()),
        Err(error) => Err(reason(&error)),
    }
}

/// Pairs of one space that are sent together.
struct Batch {
    client: Client,
    space: u16,
    /// Keys and values.
    bytes: Vec<u8>,
    pairs: Vec<Pair>,
    /// Number of pairs that the server has acknowledged.
    sent: u64,
}

struct Pair {
    key: Range<usize>,
    value: Range<usize>,
    expiry: ExpiryChange,
}

impl Batch {
    fn new(client: Client) -> Self {
        Batch { client, space: HASH_SPACE, bytes: Vec::new(), pairs: Vec::new(), sent: 0 }
    }

    /// Adds a pair, and first sends those before it if they are many or of another space.
    fn push(&mut self, space: u16, key: &[u8], value: &[u8], expiry: Option<i64>) -> Result<(), String> {
        let is_full = self.pairs.len() == BATCH_PAIRS_MAX || self.bytes.len() >= BATCH_BYTES_MAX;
        if is_full || self.space != space {
            self.send()?;
            self.space = space;
        }
        let key_begin = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let value_begin = self.bytes.len();
        self.bytes.extend_from_slice(value);
        // No key lives until the latest expiry, which is a million years away.
        let set = |time| ExpiryChange::set(Expiry::at(time).unwrap_or(Expiry::MAX));
        self.pairs.push(Pair {
            key: key_begin..value_begin,
            value: value_begin..self.bytes.len(),
            expiry: expiry.map_or(ExpiryChange::CLEAR, set),
        });
        Ok(())
    }

    /// Sends the pairs. Sends those again that the server refuses for a while: it is busy, or its disk has stopped.
    fn send(&mut self) -> Result<(), String> {
        self.client.select(self.space);
        let until = Instant::now() + PATIENCE;
        let mut responses = Responses::default();
        while !self.pairs.is_empty() {
            let requests: Vec<_> = self.pairs.iter().map(|pair| request(pair, &self.bytes)).collect();
            self.client.execute(&requests, &mut responses).map_err(|error| reason(&error))?;
            let mut refused = Vec::new();
            for (pair, response) in self.pairs.drain(..).zip(responses.iter()) {
                let key = &self.bytes[pair.key.clone()];
                match response {
                    Ok(Reply::Done) => self.sent += 1,
                    Err(WireError::Busy | WireError::NotDurable) if Instant::now() < until => refused.push(pair),
                    Ok(Reply::Failed(error)) => {
                        return Err(format!("key `{}`: {}", key.escape_ascii(), with_options(error)));
                    }
                    Err(error) => return Err(format!("key `{}`: {error}", key.escape_ascii())),
                    Ok(_) => return Err(format!("key `{}` has a reply to another request", key.escape_ascii())),
                }
            }
            if !refused.is_empty() {
                thread::sleep(PAUSE);
            }
            self.pairs = refused;
        }
        self.bytes.clear();
        Ok(())
    }
}

fn request<'a>(pair: &Pair, bytes: &'a [u8]) -> Request<'a> {
    let value = &bytes[pair.value.clone()];
    let operation = match pair.expiry {
        ExpiryChange::CLEAR => Operation::Put { value, condition: PutCondition::Always },
        expiry => {
            let condition = Condition { kind: ConditionKind::Always, operand: &[] };
            Operation::StringWrite(StringWrite::Set { value, condition, expiry, return_old: false })
        }
    };
    Request { key: &bytes[pair.key.clone()], operation }
}

/// Prints what was imported and what was left out. Fails if a string could not be imported.
fn report(contents: &Contents) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let is_empty = contents.strings.iter().all(|(count, _)| *count == 0);
    for ((_, name), (count, with_expiry)) in SPACES.into_iter().zip(contents.strings) {
        if count > 0 || (is_empty && name == "hash") {
            let with_expiry = if with_expiry == 0 { String::new() } else { format!(", {with_expiry} with an expiry") };
            writeln!(out, "imported {} into the {name} space{with_expiry}", keys(count))?;
        }
    }
    if contents.expired > 0 {
        writeln!(out, "left out {} that had expired", keys(contents.expired))?;
    }
    for (kind, count) in &contents.others {
        writeln!(out, "left out {}", counted(*kind, *count))?;
    }
    out.flush()?;
    let mut faults = Vec::new();
    if let Some(error) = &contents.unknown {
        faults
            .push(format!("the rest of the file was left out: {}; nothing tells where the record ends", reason(error)));
    }
    if contents.out_of_bounds > 0 {
        let count = contents.out_of_bounds;
        faults.push(format!(
            "{} {} not imported, because Skep has keys of 1 to 460 bytes and values up to 1 MiB; the first: {}",
            keys(count),
            if count == 1 { "with a string was" } else { "with strings were" },
            contents.first_out_of_bounds
        ));
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::Runtime(faults.join("; "))) }
}

fn keys(count: u64) -> String {
    format!("{count} key{}", if count == 1 { "" } else { "s" })
}

fn counted(kind: Kind, count: u64) -> String {
    let (one, more) = match kind {
        Kind::List => ("list", "lists"),
        Kind::Set => ("set", "sets"),
        Kind::SortedSet => ("sorted set", "sorted sets"),
        Kind::Hash => ("hash", "hashes"),
        Kind::Stream => ("stream", "streams"),
        Kind::Module => ("value of a module", "values of modules"),
        Kind::Functions => ("library of functions", "libraries of functions"),
    };
    format!("{count} {}", if count == 1 { one } else { more })
}
