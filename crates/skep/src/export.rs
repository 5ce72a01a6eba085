//! `skep export`: writes the pairs of a running server to a file, a pipe or another server.
//!
//! The pairs are read by `SCAN`, `DUMP` and `PEXPIRETIME` over RESP (`transfer/remote.rs`), so the server may also be Redis. They
//! are written while they are read. A file gets its name when all of it is on the disk; until then it ends in `.part`.
//!
//! An export is not a snapshot: a pair that is written meanwhile may have its earlier or its later value. `skep backup` copies
//! one state of a server with a data directory.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::cli::Space;
use crate::failure::{Failure, reason};
use crate::password::Login;
use crate::resp_link::{DEFAULT_ADDRESS, without_password};
use crate::tls::LoginSource;
use crate::transfer::{
    Contents, Format, NoSpace, Pair, Position, Progress, Remote, SPACES, Step, Unit, Writer, is_server, now,
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
    if let Some(url) = target.to_str().filter(|name| is_server(name)) {
        let remote = Remote::connect(&Login::of_url(url))?;
        let (contents, mut remote) = export(arguments, remote, Remote::put)?;
        remote.flush()?;
        return contents.report("exported", "of", io::stdout().lock());
    }
    let refusal = "the name of the target tells no format: write --format rdb, resp, csv or json";
    let format = arguments.format.or_else(|| Format::of_name(target));
    let format = format.ok_or_else(|| Failure::Usage(refusal.to_owned()))?;
    if target.as_os_str() == "-" {
        let contents = write(arguments, format, io::stdout().lock(), Path::new("the standard output"))?.0;
        return contents.report("exported", "of", io::stderr().lock());
    }
    let contents = match target.symlink_metadata() {
        Err(_) => write_file(arguments, format)?,
        Ok(metadata) if metadata.is_file() => {
            let refusal = "it exists: remove it, or write another name";
            return Err(Failure::Usage(format!("{}: {refusal}", target.display())));
        }
        Ok(_) => {
            let pipe = File::options().write(true).open(target).map_err(|error| unwritable(target, &error))?;
            write(arguments, format, pipe, target)?.0
        }
    };
    contents.report("exported", "of", io::stdout().lock())
}

/// Writes a file that does not exist.
fn write_file(arguments: &Arguments, format: Format) -> Result<Contents, Failure> {
    let target = &arguments.target;
    let mut name = target.clone().into_os_string();
    name.push(".part");
    let part = PathBuf::from(name);
    let file = File::create(&part).map_err(|error| unwritable(&part, &error))?;
    let outcome = write(arguments, format, file, &part).and_then(|(contents, file)| {
        file.sync_all().and_then(|()| std::fs::rename(&part, target)).map_err(|error| unwritable(target, &error))?;
        Ok(contents)
    });
    if outcome.is_err() {
        // What is left can be removed by hand too.
        _ = std::fs::remove_file(&part);
    }
    outcome
}

/// Writes pairs in a format. Returns what was written, and the output.
fn write<W: Write>(arguments: &Arguments, format: Format, output: W, name: &Path) -> Result<(Contents, W), Failure> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::ReaderGone,
        _ => unwritable(name, &error),
    };
    let writer = Writer::new(format, BufWriter::with_capacity(64 << 10, output)).map_err(failed)?;
    let (contents, writer) = export(arguments, writer, |writer, pair| writer.pair(pair).map_err(failed))?;
    let output = writer.finish().and_then(|output| output.into_inner().map_err(io::IntoInnerError::into_error));
    Ok((contents, output.map_err(failed)?))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::Runtime(format!("cannot write {}: {}", path.display(), reason(error)))
}

/// Reads the pairs of the server, and puts each into a target. Returns what was read, and the target.
fn export<T>(
    arguments: &Arguments,
    mut target: T,
    mut put: impl FnMut(&mut T, &Pair<'_>) -> Result<(), Failure>,
) -> Result<(Contents, T), Failure> {
    let mut remote = Remote::connect(&arguments.source.login(&arguments.addr)?)?;
    let mut databases = remote.databases()?;
    databases.retain(|(database, _)| arguments.space.is_none_or(|space| u64::from(space.number()) == *database));
    if let Some((number, _)) = databases.iter().find(|(number, _)| *number >= SPACES.len() as u64) {
        return Err(Failure::Runtime(format!(
            "{} has keys in database {number}, and an export has 0, 1 and 2: move them to one of these (MOVE), or name one \
             with --space",
            without_password(&arguments.addr)
        )));
    }
    let progress = Progress::start("exporting", Unit::Keys, Some(databases.iter().map(|(_, keys)| keys).sum()));
    let (mut contents, mut number) = (Contents::default(), 0);
    let start = Position { database: 0, cursor: 0 };
    remote.scan(start, databases.into_iter().map(|(database, _)| database), |step| {
        match step {
            Step::Entry(entry) => {
                number += 1;
                // Only databases that are spaces were chosen.
                if let Ok(Some(pair)) = contents.take(entry, now()).map_err(|NoSpace(_)| ()) {
                    put(&mut target, &pair)?;
                }
            }
            Step::PageEnd(_) => progress.set(number, number),
        }
        Ok::<_, Failure>(())
    })?;
    Ok((contents, target))
}
