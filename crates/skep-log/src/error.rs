//! The reasons why a directory is refused. Each message says what to do.

use std::io;

use skep_wire::native::WireError;

use crate::segment;

/// The reason why a data directory cannot be used. No file has been changed, unless the error is one of input and
/// output.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process uses the directory.
    #[error("another process uses the data directory; stop it, or name another directory")]
    Locked,
    /// The directory contains something else.
    #[error(
        "the data directory contains {name}, and no manifest of Skep: name an empty or new directory, or one of Skep"
    )]
    Foreign {
        /// A file that is not Skep's.
        name: String,
    },
    /// The directory was written by a later version.
    #[error("the data directory has format {found}, and this program reads up to {supported}: start a newer program")]
    Newer {
        /// Version of the directory.
        found: u16,
        /// Version of this program.
        supported: u16,
    },
    /// Neither manifest is valid.
    #[error("no manifest in the data directory is valid: restore the directory from a backup")]
    ManifestDamaged,
    /// The functions that users have loaded cannot be read.
    #[error("the functions in the data directory are damaged, in both files: restore the directory from a backup")]
    FunctionsDamaged,
    /// There are more functions than a data directory can have. Nothing was written.
    #[error("the functions exceed what a data directory can have, {limit}: load fewer or shorter modules")]
    FunctionsExceed {
        /// The limit.
        limit: String,
    },
    /// A file is missing or shorter than it was written.
    #[error(
        "{what}: the data directory was copied only in part, or is damaged: copy all of it while no server uses it, or \
         restore a backup"
    )]
    Incomplete {
        /// The file, and what is missing.
        what: String,
    },
    /// A segment of the log is missing or shorter than it was written. What is before it can be read.
    #[error(
        "{what}: the data directory was copied only in part, or is damaged: copy all of it while no server uses it, \
         restore a backup, or start with --accept-loss, which drops what is missing and all operations after it"
    )]
    LogIncomplete {
        /// The file, and what is missing.
        what: String,
    },
    /// A file of a snapshot is damaged.
    #[error("the snapshot file {name} is damaged at offset {offset}: restore the data directory from a backup")]
    SnapshotDamaged {
        /// The file.
        name: String,
        /// Offset of the first chunk that is not valid, in bytes.
        offset: u64,
    },
    /// Acknowledged operations in the log are damaged.
    #[error(
        "{0}; restore the data directory from a backup, or start with --accept-loss, which drops this and all later groups"
    )]
    Damaged(Damage),
    /// The log contains an operation that this program cannot decode.
    #[error(
        "{}, group {group}: block {block} has an operation that is not known ({source}): start a newer program, or restore \
         a backup", segment::name(*.segment)
    )]
    Unknown {
        /// Number of the segment.
        segment: u64,
        /// Number of the group.
        group: u64,
        /// Number of the block.
        block: u64,
        /// The fault of the operation.
        source: WireError,
    },
    /// A call of the disk failed.
    #[error("cannot {action} {name} in the data directory: {source}; {}", advice(.source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        name: String,
        /// What the disk reported.
        source: io::Error,
    },
}

/// Acknowledged operations that can no longer be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Number of the segment.
    pub segment: u64,
    /// Offset of the first group that is not valid, in bytes.
    pub offset: u64,
    /// Number of this group.
    pub group: u64,
    /// Number of its first block.
    pub first_block: u64,
    /// Groups after it in its segment and later ones that can be read, but are not applied.
    pub later_groups: u64,
    /// Their blocks.
    pub later_blocks: u64,
    /// Operations of these blocks. Those in the damaged group are unknown.
    pub later_operations: u64,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Damage { segment, offset, group, first_block, later_groups, later_blocks, later_operations } = self;
        let name = segment::name(*segment);
        write!(
            f,
            "acknowledged operations are damaged from block {first_block} on: group {group} at offset {offset} "
        )?;
        write!(
            f,
            "of {name}; later groups: {later_groups}, with {later_blocks} blocks of {later_operations} operations"
        )
    }
}

/// Returns true if the disk has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns what to do about an error of the disk.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        _ if is_full(error) => "the disk is full: make room",
        io::ErrorKind::FileTooLarge => "raise the limit of file sizes (ulimit -f)",
        io::ErrorKind::PermissionDenied => "give its files to this user (chown)",
        _ => "check its disk",
    }
}

impl LogError {
    /// Returns a function that makes an error of a failed call.
    pub(crate) fn io(action: &'static str, name: impl Into<String>) -> impl FnOnce(io::Error) -> LogError {
        let name = name.into();
        move |source| LogError::Io { action, name, source }
    }
}
