//! The reasons why a server cannot use a data directory.

use skep_core::operation::OperationError;
use skep_log::LogError;
use skep_store::memory::RegionError;
use skep_store::ordered::MissingMemory;

/// The reason why a server cannot use a data directory.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The log has calls of a user function whose module this version or this machine does not compile.
    #[error(
        "the log calls functions of module {module}, which does not compile: {error}; start the version of Skep that wrote \
         the log, on such a machine, and send SAVE: then the log is not needed any more; no file was changed"
    )]
    Functions {
        /// The name of the module.
        module: String,
        /// Why it does not compile.
        error: String,
    },
    /// The directory cannot be opened or made.
    #[error("it cannot be opened: {source}; {advice}", source = .0, advice = advice(.0))]
    Open(std::io::Error),
    /// The directory cannot be used.
    #[error("{0}")]
    Log(#[from] LogError),
    /// The memory of a store cannot be reserved.
    #[error(transparent)]
    Memory(RegionError),
    /// The directory has an ordered space, and the server has none.
    #[error("the data directory has an ordered space: start with one, by --ordered-memory; no file was changed")]
    WithoutOrdered,
    /// The stores have no room.
    #[error(
        "the data directory has more than fits the memory ({0}): start with more, by --memory or --ordered-memory; no file was changed"
    )]
    DoesNotFit(OperationError),
    /// The hash space has no room.
    #[error(
        "the keys of the hash space need at least {missing} bytes more than it has for them: start with --memory of \
         {memory}B or more; no file was changed"
    )]
    HashSpaceDoesNotFit {
        /// Bytes of slab memory that are missing.
        missing: u64,
        /// Bytes of memory with which the keys fit, about.
        memory: u64,
    },
    /// The ordered store has no room.
    #[error(
        "the data directory has more than fits the memory of the ordered space: {} bytes are missing, so start with more, \
         by --ordered-memory; no file was changed",
        .0.bytes
    )]
    OrderedDoesNotFit(MissingMemory),
    /// An operation of the log fails, although it had taken place.
    #[error(
        "an operation of the log fails, although it took place ({0}): the data directory is damaged; restore a backup; no file was changed"
    )]
    Diverged(OperationError),
}

/// Returns what to do if a directory cannot be opened.
fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => "give it to the user of the server (chown), or name another one",
        std::io::ErrorKind::NotFound => "make the directory that is to contain it (mkdir -p)",
        _ => "name a directory",
    }
}

impl From<OperationError> for RecoveryError {
    fn from(error: OperationError) -> RecoveryError {
        if error.is_out_of_memory() { RecoveryError::DoesNotFit(error) } else { RecoveryError::Diverged(error) }
    }
}
