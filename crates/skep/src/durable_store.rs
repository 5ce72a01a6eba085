//! The durable store for embedding: a store, and a data directory with its snapshot and its log.

use std::path::Path;
use std::sync::Arc;

use skep_core::operation::{Operation, OperationError};
use skep_log::{Damage, LogError, LogSettings};
use skep_server::{RecoveryError, embedding};
use skep_store::hash::Settings;
use skep_store::processor::{Replies, Statistics};

use crate::Request;
use crate::durable_log::Log;
use crate::store::{OpenError, Store};

/// Bytes of a segment of the log: far fewer than those of a server, whose log is longer.
const SEGMENT_SIZE: u64 = 16 << 20;
/// An opening takes a snapshot if the log has at least this many bytes, and at least those of all pairs. Each opening
/// begins a segment.
const LOG_SIZE: u64 = 4 * SEGMENT_SIZE;

/// The reasons why [`DurableStore::open`] refuses a directory. No file that was there has been changed, unless the error
/// is one of input and output, or of the thread.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The store cannot be opened, with or without a directory.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(LogError),
    /// Operations that were flushed are damaged.
    #[error(
        "{0}; restore the data directory from a backup, or drop this and all later groups: start and stop `skep serve \
         --accept-loss --ordered-memory off --data-dir DIR`"
    )]
    Damaged(Damage),
    /// A segment of the log is missing, or is shorter than it was written.
    #[error(
        "{0}; restore the data directory from a backup, or drop what is missing and all operations after it: start and \
         stop `skep serve --accept-loss --ordered-memory off --data-dir DIR`"
    )]
    LogIncomplete(String),
    /// The directory cannot be opened or made.
    #[error("the data directory cannot be opened: {0}; name one of this user, or a new one in a directory that exists")]
    Open(std::io::Error),
    /// The directory is that of a server with an ordered space.
    #[error("the data directory has an ordered space, and a durable store has none: start a server with it")]
    HasOrderedSpace,
    /// The directory has more pairs than the memory can hold.
    #[error("the keys of the data directory need {missing} bytes more than the store has: open it with {memory} bytes")]
    DoesNotFit {
        /// Bytes of slab memory that the store lacks.
        missing: u64,
        /// Bytes of memory with which the keys fit, about.
        memory: u64,
    },
    /// An operation of the log fails, although it had taken place.
    #[error(
        "an operation of the log fails, although it took place ({0}): the data directory is damaged; restore it from a backup"
    )]
    Diverged(OperationError),
    /// The log has calls of a user function whose module this version or this machine does not compile.
    #[error(
        "the log calls functions of module {module}, which does not compile: {error}; start the version of Skep that wrote \
         the log, on such a machine, and send SAVE: then the log is not needed any more"
    )]
    Functions {
        /// The name of the module.
        module: String,
        /// Why it does not compile.
        error: String,
    },
    /// The thread of the log cannot be started.
    #[error("the thread of the log cannot be started: {0}; end other threads, or raise their limit")]
    Thread(std::io::Error),
}

impl From<RecoveryError> for DirectoryError {
    fn from(error: RecoveryError) -> DirectoryError {
        match error {
            RecoveryError::Log(LogError::Damaged(damage)) => DirectoryError::Damaged(damage),
            RecoveryError::Log(LogError::LogIncomplete { what }) => DirectoryError::LogIncomplete(what),
            RecoveryError::Log(error) => DirectoryError::Directory(error),
            RecoveryError::Functions { module, error } => DirectoryError::Functions { module, error },
            RecoveryError::Open(error) => DirectoryError::Open(error),
            RecoveryError::Memory(error) => DirectoryError::Store(error.into()),
            RecoveryError::WithoutOrdered | RecoveryError::OrderedDoesNotFit(_) => DirectoryError::HasOrderedSpace,
            RecoveryError::HashSpaceDoesNotFit { missing, memory } => DirectoryError::DoesNotFit { missing, memory },
            RecoveryError::DoesNotFit(error) | RecoveryError::Diverged(error) => DirectoryError::Diverged(error),
        }
    }
}

/// The reasons why a [`DurableStore`] cannot write.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A write of the log has failed, or the disk is full. A failed write is not repeated, because it is unknown what is on
    /// disk. From now on the store executes reads only.
    #[error(
        "{0}; operations since the last flush may be lost, and writes are refused: check the disk, and open the store again"
    )]
    Log(Arc<str>),
    /// A snapshot could not be written, or old files not removed. The log goes on, so nothing is lost.
    #[error(transparent)]
    Snapshot(LogError),
    /// The batch has an update by a user function. No operation of it was executed.
    #[error("a durable store runs no updates by user functions: a later opening could not run them again")]
    Function,
}

/// A store in this process that survives its end: a [`Store`] with a data directory.
///
/// [`DurableStore::execute`] returns before its operations are on disk. A thread writes them within half a second.
/// [`DurableStore::flush`] returns when they are on disk: call it before a result leaves the program. One flush serves
/// all batches before it.
///
/// | fault | what is lost |
/// |---|---|
/// | the process is killed, or power is lost | at most the operations since the last flush |
/// | the store is dropped | nothing |
/// | a write of the log fails | operations since the last flush; the store refuses writes from then on |
/// | the disk is full | operations since the last flush, if more than 16 MiB of them waited for the disk, and otherwise nothing; the store refuses writes from then on |
///
/// Dropping a store reports no error: call [`DurableStore::flush`] before.
///
/// After a fault, the store has all operations before some point in the order of their execution, and none after it. This
/// point is not before the last flush. A batch is not a transaction: the point may be inside it.
///
/// The log grows until [`DurableStore::snapshot`] is called. A store that is full can be opened again with the same settings.
/// If the log cannot be executed again in this memory, it is read several times, and up to a quarter more memory is taken
/// while the store is opened.
pub struct DurableStore {
    store: Store,
    log: Log,
    /// The latest time that the directory stated at the opening, in milliseconds since 1970.
    recovered_time: u64,
    /// The latest time of a batch that the log has been told, in milliseconds since 1970; `None` before the first batch.
    stated_time: Option<u64>,
    /// Keys have had an expiry since the opening: those may have expired that are gone.
    has_seen_expiries: bool,
}

impl DurableStore {
    /// Opens a store with the pairs of a data directory. Creates the directory if it does not exist, but not the
    /// directories above it. It is locked until the store is dropped. The settings may differ from those of the last
    /// time; the secret seed of a directory stays what it was at first. A directory of a server without an ordered space is accepted too. If the log is long, or a server with several
    /// shards has written the directory, a snapshot is written first, if the disk has room for all pairs.
    pub fn open(directory: impl AsRef<Path>, settings: &Settings) -> Result<DurableStore, DirectoryError> {
        settings.validate().map_err(OpenError::Settings)?;
        let log = LogSettings { segment_size: SEGMENT_SIZE, ..LogSettings::default() };
        let (processor, recovered) = embedding::recover_store(directory.as_ref(), settings, log)?;
        let mut store = Store::of(processor);
        let (log_size, recovered_time) = (recovered.log_bytes, recovered.stated_time);
        let needs_snapshot = recovered.needs_snapshot || log_size >= LOG_SIZE.max(store.statistics().pair_bytes);
        let log = Log::begin(recovered, embedding::random_number).map_err(DirectoryError::Thread)?;
        if needs_snapshot {
            // If it cannot be written, such as on a full disk, the log goes on. A later snapshot reports that.
            // Opening the store states no time, so keys that have expired since the last one are in it.
            _ = log.take_snapshot(&mut store.processor, recovered_time);
        }
        let has_seen_expiries = store.statistics().expiring > 0;
        Ok(DurableStore { store, log, recovered_time, stated_time: None, has_seen_expiries })
    }

    /// Executes a batch as [`Store::execute`] does, and logs the operations that took place. Waits for the disk only if
    /// 64 MiB of the log are not on it.
    ///
    /// After a write of the log has failed, a batch with an operation that may change a key is refused: no operation of
    /// it is executed, and `replies` is unchanged. So is a batch with an update by a user function.
    pub fn execute(&mut self, requests: &[Request<'_>], replies: &mut Replies) -> Result<(), DiskError> {
        if let Some(failure) = self.log.failure()
            && requests.iter().any(|request| !request.operation.is_read())
        {
            return Err(DiskError::Log(failure));
        }
        // A later opening could not run them again.
        let is_call = |request: &Request<'_>| matches!(&request.operation, Operation::Call(call) if !call.is_read());
        if requests.iter().any(is_call) {
            return Err(DiskError::Function);
        }
        self.store.begin_batch(requests.len());
        self.stated_time.get_or_insert(0);
        let processor = &mut self.store.processor;
        let reads = processor.read_count();
        processor.execute(requests, replies);
        // A batch of gets alone costs no search for changes.
        if processor.read_count() - reads != requests.len() as u64 {
            self.log.record(processor.now(), requests, replies);
            self.has_seen_expiries = self.has_seen_expiries || processor.reclaim_from().is_some();
        }
        Ok(())
    }

    /// Lets the log state the time, if keys may have expired since it did: a caller may have seen that they are gone.
    fn state_time(&mut self) {
        let now = self.store.processor.now();
        if self.has_seen_expiries && self.stated_time.is_some_and(|stated| now > stated) {
            self.stated_time = Some(now);
            self.log.state_time(now);
        }
    }

    /// Waits until all operations that were executed are on disk. Keys that have been seen to expire are then missing from
    /// all later openings, also if the machine's clock is set back.
    pub fn flush(&mut self) -> Result<(), DiskError> {
        self.state_time();
        self.log.flush().map_err(DiskError::Log)
    }

    /// Writes all pairs into a snapshot, and removes the log before it, so that the directory is small and opens
    /// quickly. Takes about as long as the disk takes to write the pairs. Call it when [`DurableStore::log_size`] is
    /// larger than the pairs, for example. Until it returns, the disk has two snapshots.
    pub fn snapshot(&mut self) -> Result<(), DiskError> {
        self.flush()?;
        // Before the first batch, no caller has met the machine's clock, which may be wrong.
        let processor = &mut self.store.processor;
        let now = self.stated_time.map_or(self.recovered_time, |_| processor.now());
        self.log.take_snapshot(processor, now).map_err(DiskError::Snapshot)
    }

    /// Returns the bytes of the log since the last snapshot, which the next opening reads. The log of earlier openings
    /// counts with whole segments: 16 MiB each, and those of a server up to 256 MiB.
    pub fn log_size(&self) -> u64 {
        self.log.size()
    }

    /// Returns statistics of the pairs and the memory.
    pub fn statistics(&self) -> Statistics {
        self.store.statistics()
    }
}

impl Drop for DurableStore {
    fn drop(&mut self) {
        self.state_time();
    }
}
