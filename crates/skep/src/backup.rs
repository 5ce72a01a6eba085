//! `skep backup` and `skep restore`: copy a data directory to a new place, and check the copy.
//!
//! Both are the same copy. A backup is a data directory: a server can start in it. `skep_log::copy` says why a copy is
//! right while a server writes to the directory.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use skep_log::{Copied, CopyError, Files, copy};

use crate::failure::{Failure, reason};
use crate::log::{
    describe_functions, describe_log, describe_manifest, describe_snapshot, failed, not_read, unreadable,
};
use crate::size::MemorySize;

/// Copies a data directory.
#[derive(clap::Args, Debug)]
#[command(after_help = BACKUP_HELP)]
pub(crate) struct BackupArguments {
    /// The data directory (--data-dir of the server).
    from: PathBuf,
    /// A new or an empty directory for the backup.
    to: PathBuf,
}

/// Copies a backup.
#[derive(clap::Args, Debug)]
#[command(after_help = RESTORE_HELP)]
pub(crate) struct RestoreArguments {
    /// The backup.
    from: PathBuf,
    /// A new or an empty directory for the server (--data-dir).
    to: PathBuf,
}

const BACKUP_HELP: &str = "A server may use the directory meanwhile: it is not stopped. The backup has all that was on \
disk when the command began, and perhaps operations that followed, up to one moment. At --durability always this is all \
that was acknowledged; at second, all but the last second; at memory, the last SAVE.\n\n\
The backup is a data directory, and it is checked after it was written. Check an older one with skep log check.";

const RESTORE_HELP: &str = "The copy is checked. Then start a server with --data-dir TO. It may have another number of \
shards or more memory than the one before. A backup that is damaged is refused, and nothing is restored.";

/// Makes a backup.
pub(crate) fn backup(arguments: &BackupArguments) -> Result<(), Failure> {
    run(&arguments.from, &arguments.to)
}

/// Makes a data directory from a backup.
pub(crate) fn restore(arguments: &RestoreArguments) -> Result<(), Failure> {
    run(&arguments.from, &arguments.to)
}

fn run(from: &Path, to: &Path) -> Result<(), Failure> {
    let source = Files::open_to_read(from).map_err(|error| unreadable(from, &error))?;
    let is_new = !to.exists();
    let above = to.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let (Ok(from), Ok(above)) = (from.canonicalize(), above.canonicalize())
        && above.starts_with(&from)
    {
        return Err(failed(to, &"it is inside the directory that is copied: name one beside it"));
    }
    let target = Files::open(to).map_err(|error| {
        failed(to, &format!("cannot be made: {}: name a new directory in one that exists", reason(&error)))
    })?;
    match copy(&Arc::new(source), &Arc::new(target)) {
        Ok(copied) => report(&copied, to),
        Err(error) => {
            if is_new {
                // If they stay, the directory has no manifest and can be named again.
                _ = fs::remove_file(to.join("lock"));
                _ = fs::remove_dir(to);
            }
            Err(match error {
                CopyError::Target(_) | CopyError::NotEmpty { .. } => failed(to, &error),
                CopyError::Source(error) => not_read(from, &error),
                CopyError::Empty | CopyError::Changing => failed(from, &error),
            })
        }
    }
}

fn report(copied: &Copied, to: &Path) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", describe_manifest(&copied.manifest))?;
    writeln!(out, "{}", describe_snapshot(&copied.manifest, &copied.snapshot))?;
    writeln!(out, "{}", describe_log(&copied.log))?;
    writeln!(out, "{}", describe_functions(&copied.functions))?;
    if copied.snapshot.pairs == 0 && copied.log.operations == 0 {
        writeln!(
            out,
            "note          it has no pairs; at --durability memory, only SAVE and BGSAVE write them to disk"
        )?;
    }
    writeln!(out, "copied        {} to {}, and checked", MemorySize(copied.bytes), to.display())?;
    out.flush()?;
    Ok(())
}
