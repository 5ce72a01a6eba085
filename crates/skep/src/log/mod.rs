//! `skep log`: reads the log and the snapshot of a data directory that no server uses. It changes no file.
//!
//! `check` reads all of it as a server does when it starts, and prints what it found. `dump` prints the operations.

mod dump;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use skep_log::{
    CheckedFunctions, CheckedLog, CheckedSnapshot, Directory, Files, LogEnd, LogError, Manifest, segment_name,
};

use crate::failure::{Failure, reason};
use crate::size::MemorySize;

/// Checks or prints a data directory.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// The commands and their arguments.
#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Read all of a data directory, print what it has, and exit with code 1 if a part of it is damaged.
    #[command(after_help = CHECK_HELP)]
    Check {
        /// The data directory, or a backup.
        directory: PathBuf,
    },
    /// Print the operations of the log, a line each: block, time or version, space, operation, key, operands.
    #[command(after_help = DUMP_HELP)]
    Dump {
        /// The data directory, or a backup.
        directory: PathBuf,
        #[command(flatten)]
        options: dump::Options,
    },
}

const CHECK_HELP: &str = "It reads what a server reads when it starts, and changes no file. If a group of the log was \
being written when a server ended, it is cut off, since nothing in it was acknowledged: this is no damage.\n\n\
While a server uses the directory, make a backup and check that.";

const DUMP_HELP: &str = "The columns are separated by tabs. Keys and values are escaped; long ones are cut, and their \
length follows. A call has the name of its function, its revision, and the bytes of its operands. The log begins before \
the snapshot was complete, so the snapshot has some of its operations already. Where the log is damaged, the output \
ends, and the exit code is 1.";

/// Checks or prints a data directory.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Check { directory } => check(directory),
        Command::Dump { directory, options } => {
            dump::dump(&open(directory)?, options).map_err(|failure| match failure {
                Failure::Runtime(message) => failed(directory, &message),
                failure => failure,
            })
        }
    }
}

/// Returns the failure of a directory.
pub(crate) fn failed(path: &Path, error: &impl Display) -> Failure {
    Failure::Runtime(format!("{}: {}", path.display(), reason(error)))
}

/// Opens a directory that has a manifest, and locks it against servers.
fn open(path: &Path) -> Result<Directory<Files>, Failure> {
    let files = Files::open_to_read(path).map_err(|error| unreadable(path, &error))?;
    let directory = Directory::open(Arc::new(files)).map_err(|error| match error {
        LogError::Locked => {
            failed(path, &"a server uses it: stop the server, or make a backup (skep backup) and read that")
        }
        error => not_read(path, &error),
    })?;
    if directory.manifest().is_none() {
        return Err(failed(path, &"it is empty: name the data directory of a server, or a backup"));
    }
    Ok(directory)
}

/// Returns the failure of a directory whose contents cannot be used.
pub(crate) fn not_read(path: &Path, error: &LogError) -> Failure {
    match error {
        LogError::Foreign { name } => failed(
            path,
            &format!("it contains {name}, and no manifest of Skep: name the data directory of a server, or a backup"),
        ),
        error => failed(path, error),
    }
}

/// Returns the failure of a directory that cannot be opened.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Failure {
    failed(path, &format!("{}: name the data directory of a server, or a backup", reason(error)))
}

fn check(path: &Path) -> Result<(), Failure> {
    let directory = open(path)?;
    let manifest = directory.manifest().expect("it was looked for");
    let mut out = io::stdout().lock();
    writeln!(out, "{}", describe_manifest(manifest))?;
    if let Some(name) = directory.damaged_manifest() {
        writeln!(
            out,
            "              {name} is not valid, as after a crash while it was written: the other one is used"
        )?;
    }
    let snapshot = directory.check_snapshot();
    match &snapshot {
        Ok(snapshot) => writeln!(out, "{}", describe_snapshot(manifest, snapshot))?,
        Err(error) => writeln!(out, "snapshot      {}", describe_fault(error))?,
    }
    let log = directory.check_log();
    match &log {
        Ok(log) => writeln!(out, "{}\n{}", describe_log(log), describe_end(&log.end))?,
        Err(error) => writeln!(out, "log           {}", describe_fault(error))?,
    }
    let functions = directory.check_functions();
    match &functions {
        Ok(functions) => writeln!(out, "{}", describe_functions(functions))?,
        Err(error) => writeln!(out, "functions     {}", describe_fault(error))?,
    }
    out.flush()?;
    let faults: Vec<_> = [snapshot.err(), log.err(), functions.err()].into_iter().flatten().collect();
    if !faults.is_empty() {
        let faults: Vec<_> = faults.iter().map(LogError::to_string).collect();
        return Err(failed(path, &faults.join("; ")));
    }
    writeln!(out, "result        all that a start reads is valid")?;
    out.flush()?;
    Ok(())
}

/// Tells damage from files that cannot be read.
fn describe_fault(error: &LogError) -> &'static str {
    if matches!(error, LogError::Io { .. }) { "not read" } else { "damaged" }
}

/// Describes a manifest on one line.
pub(crate) fn describe_manifest(manifest: &Manifest) -> String {
    let Manifest { generation, shards, memory, kv_size, .. } = manifest;
    let (shards, memory) = (counted(shards.len() as u64, "shard"), MemorySize(*memory));
    let kv_size = if *kv_size == 0 { String::new() } else { format!(", --kv-size {kv_size}") };
    format!("manifest      generation {generation}, {shards}, --memory {memory}{kv_size}")
}

/// Describes a snapshot on one line.
pub(crate) fn describe_snapshot(manifest: &Manifest, snapshot: &CheckedSnapshot) -> String {
    let CheckedSnapshot { files, bytes, pairs } = snapshot;
    match manifest.snapshot {
        Some(number) => {
            let (files, pairs) = (counted(*files, "file"), counted(*pairs, "pair"));
            format!("snapshot      number {number}, {files}, {pairs}, {}", counted(*bytes, "byte"))
        }
        None => "snapshot      none: the log has everything".to_owned(),
    }
}

/// Describes a log on one line.
pub(crate) fn describe_log(log: &CheckedLog) -> String {
    let CheckedLog { operations, end } = log;
    let segments = counted(end.segment_count() as u64, "segment");
    let (groups, blocks) = (counted(end.groups, "group"), counted(end.blocks, "block"));
    format!("log           {segments}, {groups}, {blocks}, {}", counted(*operations, "operation"))
}

/// Describes the functions that users have loaded, on one line, or two if one of their files is not valid.
pub(crate) fn describe_functions(functions: &CheckedFunctions) -> String {
    let CheckedFunctions { modules, sources, names, damaged } = functions;
    let described = match (sources, names) {
        (0, 0) => "functions     none".to_owned(),
        _ => {
            let (modules, sources) = (counted(*modules, "module"), counted(*sources, "source"));
            format!("functions     {}, {modules}, {sources}", counted(*names, "name"))
        }
    };
    match damaged {
        Some(file) => format!(
            "{described}\n              {file} is not valid, as after a crash while it was written: the other one is used"
        ),
        None => described,
    }
}

/// Returns a number with its noun, in the singular for 1.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Describes the end of a log on one line.
fn describe_end(end: &LogEnd) -> String {
    match (end.cut, end.position) {
        (Some((segment, offset)), _) => format!(
            "end           offset {offset} of {}: a group that was being written when the server ended is cut off",
            segment_name(segment)
        ),
        (None, (0, _)) => "end           there are no groups".to_owned(),
        (None, (segment, offset)) => {
            format!("end           offset {offset} of {}: no group is cut off", segment_name(segment))
        }
    }
}
