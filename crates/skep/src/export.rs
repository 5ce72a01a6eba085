//! `skep export`: writes the pairs of a running server to a file, a pipe or another server.
//!
//! The pairs are read by `SCAN`, `DUMP` and `PEXPIRETIME` over RESP (`transfer/remote.rs`), so the server may also be Redis. They
//! are written while they are read. A file gets its name when all of it is on the disk; until then it ends in `.part`.
//!
//! An export is not a snapshot: a pair that is written meanwhile may have its earlier or its later value. `skep backup` copies
//! one state of a server with a data directory.

use std::cell::Cell;
use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use skep_wire::rdb::Entry;

use crate::cli::{Space, life};
use crate::failure::{Failure, reason};
use crate::password::Login;
use crate::resp_link::{DEFAULT_ADDRESS, is_url};
use crate::tls::LoginSource;
use crate::transfer::{
    Change, Contents, Format, NoSpace, Pair, Position, Progress, Remote, SPACES, Step, Unit, Writer, now,
    remove_at_signal,
};

/// Writes the pairs of a server.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The file to make, or a pipe; `-` is the standard output. Or a running server: redis://HOST:PORT, or rediss://HOST:PORT
    /// with TLS.
    #[arg(value_name = "FILE|URL")]
    target: PathBuf,
    /// Format of the file [default: as its name ends: .rdb, .resp, .csv, .jsonl].
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Space to export [default: hash and ordered; a cache does not list its keys].
    #[arg(long, value_enum)]
    space: Option<Space>,
    /// RESP address of the server: HOST:PORT, tls:HOST:PORT, or a URL as that of a target.
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS)]
    addr: String,
    #[command(flatten)]
    source: LoginSource,
    /// Give up if a server sends nothing for this time, such as 500ms [default: 5s to connect, then 30s].
    #[arg(long, value_name = "TIME", value_parser = life)]
    timeout: Option<Duration>,
}

const AFTER_HELP: &str = "The hash space becomes database 0, the ordered space 1, and the cache space 2. Expiries are kept. Only \
     strings are exported: a server of Redis may have other values, which are left out and counted. A pair that is written \
     during the export may have its earlier or its later value. The password of a target is in its URL: \
     redis://:PASSWORD@HOST:PORT.";

/// Exports the pairs.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.space == Some(Space::Cache) {
        return Err(Failure::Usage("a cache does not list its keys: export the space hash or ordered".to_owned()));
    }
    let target = &arguments.target;
    if let Some(url) = target.to_str().filter(|name| is_url(name)) {
        let mut source = Source::connect(arguments)?;
        let mut remote = Remote::connect(&source.login.of_url(url))?;
        if source.remote.is_same(&remote) {
            let refusal = format!("{} is the server that is read (--addr): name another one", remote.name());
            return Err(Failure::Usage(refusal));
        }
        let contents = source.export(&mut remote, Remote::put)?;
        remote.flush()?;
        return contents.report("exported", "of", io::stdout().lock());
    }
    let refusal = "the name of the target tells no format: write --format rdb, resp, csv or json";
    let format = arguments.format.or_else(|| Format::of_name(target));
    let format = format.ok_or_else(|| Failure::Usage(refusal.to_owned()))?;
    if target.as_os_str() == "-" {
        let mut source = Source::connect(arguments)?;
        let contents = write(&mut source, format, &mut io::stdout().lock(), Path::new("the standard output"))?;
        return contents.report("exported", "of", io::stderr().lock());
    }
    // A link is as the file that it names.
    let is_pipe = target.metadata().is_ok_and(|metadata| !metadata.is_file());
    if !is_pipe && target.symlink_metadata().is_ok() {
        return Err(exists(target));
    }
    let mut source = Source::connect(arguments)?;
    let contents = match is_pipe {
        false => write_file(&mut source, target, format)?,
        true => {
            let pipe = File::options().write(true).open(target);
            write(&mut source, format, &mut pipe.map_err(|error| unwritable(target, &error))?, target)?
        }
    };
    contents.report("exported", "of", io::stdout().lock())
}

/// Writes a file that does not exist. Only its owner can read it.
fn write_file(source: &mut Source, target: &Path, format: Format) -> Result<Contents, Failure> {
    let mut name = target.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let mut file =
        File::options().write(true).create_new(true).mode(0o600).open(&part).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::Usage(format!(
                "{} exists: another export writes it, or one was killed: remove it, or write another name",
                part.display()
            )),
            _ => unwritable(&part, &error),
        })?;
    remove_at_signal(Some(&part));
    let outcome = write(source, format, &mut file, &part).and_then(|contents| {
        let placed = file.sync_all().and_then(|()| place(&part, target));
        match placed {
            Ok(()) => flush_name(target).map(|()| contents),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(target)),
            Err(error) => Err(unwritable(target, &error)),
        }
    });
    if outcome.is_err() {
        // The rest can be removed by hand too.
        _ = fs::remove_file(&part);
    }
    remove_at_signal(None);
    outcome
}

/// Flushes the folder of a file, so that the file keeps its name after a power cut.
fn flush_name(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| {
        Failure::Runtime(format!(
            "{} is whole, but its folder cannot be flushed, so a power cut may remove its name: {}",
            path.display(),
            reason(&error)
        ))
    })
}

/// Gives a file another name, unless that exists.
fn place(part: &Path, target: &Path) -> io::Result<()> {
    match renameat_with(CWD, part, CWD, target, RenameFlags::NOREPLACE) {
        // Not each file system can do it.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            fs::hard_link(part, target)?;
            fs::remove_file(part)
        }
        outcome => Ok(outcome?),
    }
}

/// An output that takes no more bytes after a failure: a reader must not take a part of the pairs for all.
struct Output<W> {
    output: W,
    is_abandoned: Rc<Cell<bool>>,
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_abandoned.get() { Ok(bytes.len()) } else { self.output.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// Writes pairs in a format. Returns their numbers.
fn write<W: Write>(source: &mut Source, format: Format, output: &mut W, name: &Path) -> Result<Contents, Failure> {
    let failed = |error: io::Error| match error.kind() {
        // The reader has left with a part of the pairs, and knows it.
        io::ErrorKind::BrokenPipe => Failure::Told { is_usage: false },
        _ => unwritable(name, &error),
    };
    let is_abandoned = Rc::new(Cell::new(false));
    let output = Output { output, is_abandoned: is_abandoned.clone() };
    let mut writer = Writer::new(format, BufWriter::with_capacity(64 << 10, output)).map_err(failed)?;
    source.is_unique = format == Format::Rdb && !source.remote.is_skep();
    let outcome = source.export(&mut writer, |writer, pair| writer.pair(pair).map_err(failed));
    let contents = outcome.inspect_err(|_| is_abandoned.set(true))?;
    writer.finish().and_then(|mut output| output.flush()).map_err(failed)?;
    Ok(contents)
}

/// Keys, each as a hash of 128 bits.
#[derive(Default)]
struct KeySet {
    hashes: HashSet<[u64; 2]>,
    states: [RandomState; 2],
}

impl KeySet {
    /// Inserts a key. Returns true if it was not there.
    fn insert(&mut self, database: u64, key: &[u8]) -> bool {
        self.hashes.insert(self.states.each_ref().map(|state| state.hash_one((database, key))))
    }
}

fn exists(target: &Path) -> Failure {
    Failure::Usage(format!("{}: it exists: remove it, or write another name", target.display()))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::Runtime(format!("cannot write {}: {}", path.display(), reason(error)))
}

/// A server whose pairs are read.
struct Source {
    login: Login,
    remote: Remote,
    databases: Vec<(u64, u64)>,
    /// True if a key must not be written twice. Redis refuses such an RDB file, and lists a key twice while its table
    /// grows.
    is_unique: bool,
}

impl Source {
    fn connect(arguments: &Arguments) -> Result<Source, Failure> {
        let mut login = arguments.source.login(&arguments.addr)?;
        login.set_timeout(arguments.timeout);
        let mut remote = Remote::connect(&login)?;
        let databases = remote.databases(arguments.space.map(|space| u64::from(space.number())))?;
        if let Some((number, keys)) = databases.iter().find(|(number, _)| *number >= SPACES.len() as u64) {
            return Err(Failure::Runtime(format!(
                "{} has {keys} keys in database {number}, and an export has 0, 1 and 2: move them to one of these (MOVE), or \
                 name one with --space",
                remote.name()
            )));
        }
        Ok(Source { login, remote, databases, is_unique: false })
    }

    /// Reads the pairs, and puts each into a target. Returns their numbers.
    fn export<T>(
        &mut self,
        target: &mut T,
        mut put: impl FnMut(&mut T, &Pair<'_>) -> Result<(), Failure>,
    ) -> Result<Contents, Failure> {
        let total = self.databases.iter().map(|(_, keys)| keys).sum();
        let progress = Progress::start("exporting", Unit::Keys, Some(total));
        let (mut contents, mut number) = (Contents::default(), 0);
        let databases = self.databases.iter().map(|(database, _)| *database);
        let mut written = self.is_unique.then(KeySet::default);
        self.remote.scan(Position::BEGIN, databases, |step| {
            match step {
                Step::Entry(entry) => {
                    if let (Entry::String { database, key, .. }, Some(written)) = (&entry, &mut written)
                        && !written.insert(*database, key)
                    {
                        return Ok(());
                    }
                    number += 1;
                    // Only databases that are spaces were chosen.
                    if let Ok(Some(Change::Put(pair))) = contents.take(entry, now()).map_err(|NoSpace(_)| ()) {
                        put(target, &pair)?;
                    }
                }
                Step::PageEnd(_) => progress.set(number, number),
            }
            Ok::<_, Failure>(())
        })?;
        contents.notes = self.remote.notes();
        Ok(contents)
    }
}
