//! The log and the snapshots of Skep on disk: formats, writers, readers and recovery. It has no threads.
//!
//! ```text
//! thread  BlockWriter ── Block ──▶ ┐               ┌─ Write ─▶ Segments ─▶ Disk
//! thread  BlockWriter ── Block ──▶ ┴▶ GroupWriter ─┤
//!                                                  └─ durable block ◀─ written
//! thread  ChunkWriter ── Pages ──▶ SnapshotWriter ─▶ Disk            Directory: manifests, recovery
//! ```
//!
//! | module | content |
//! |---|---|
//! | `block`, `additions` | operations that one thread executed, in their order; integer additions that are folded |
//! | `effects`, `effect_order` | effects of the ordered space; how they are replayed in the order of their versions |
//! | `group`, `group_writer` | blocks that are written together; which of them are durable |
//! | `segment`, `segments` | files of the log: their header; how they are prepared and used again |
//! | `chunk`, `snapshot_file`, `snapshot_name` | pairs that a walk found; their file and its name |
//! | `boundary` | which operations of the log are applied to a snapshot |
//! | `manifest`, `directory` | what a data directory consists of; how it is accepted and continued |
//! | `functions_file` | the sources of functions that users have loaded, and their numbers |
//! | `recovery`, `log_end` | how the log is read, and whether its end is torn or damaged |
//! | `check`, `copy` | how a directory is read without a store; how it is copied, also while a server uses it |
//! | `disk`, `files`, `simulated` | the calls of a disk; a directory; a disk that forgets, tears and lies |
//!
//! **Use.** A server opens a [`Directory`], reads its snapshot and its log, and begins. From then on:
//! 1. A thread appends each operation that took place to its [`BlockWriter`], and seals a block after a batch. It gives
//!    the block to one queue under one lock, which numbers the blocks: 1, 2, 3, and so on.
//! 2. All operations of a transaction are appended by the thread that executes it, and are sealed in one block.
//! 3. The thread of the disk pushes the blocks to the [`GroupWriter`] in the order of the queue, makes its writes, and
//!    returns the results. It prepares a segment when the writer needs one.
//! 4. A reply leaves when the block of its operation is durable. An effect of the ordered space must also be below the
//!    durable floor.
//!
//! **Floor.** The floor of a block is the lowest version of the effects that other threads have not sealed yet, or the
//! next version if there are none. It is determined under the lock of the queue. A server without an ordered space
//! seals with 0. After a recovery the versions begin at [`LogEnd::floor`].
//!
//! To take a snapshot:
//! 1. Note [`GroupWriter::next_group`] before the walk.
//! 2. Walk over each shard between batches. Before each step seal the block of the shard. After it call
//!    [`ChunkWriter::end_step`] with the number of the last block that any thread has sealed before the step. So no block
//!    has operations on the positions of a step from before and after it.
//! 3. Walk over the ordered space, and call [`ChunkWriter::end_ordered_step`] with the version at which a range was read.
//! 4. When all files are complete, the blocks that were sealed before the walk ended are durable, and the durable floor is
//!    above all versions of steps, write a manifest with the noted group. Then remove the old snapshots, and trim and
//!    recycle segments.
//!
//! After a failed write nothing more becomes durable. A server may begin again once: return all writes, give up the
//! snapshot that is being taken, call [`Directory::begin_fresh`], and take a snapshot. It acknowledges nothing until the
//! manifest with this snapshot is written.

/// Numbers of groups, blocks, versions, segments and manifests are below this. So the next number always exists.
const NUMBER_END: u64 = 1 << 62;

mod additions;
mod block;
mod boundary;
mod check;
mod checksum;
mod chunk;
mod copy;
mod directory;
mod disk;
mod effect_order;
mod effects;
mod error;
mod files;
mod functions_file;
#[cfg(feature = "simulated")]
mod fuzzing;
mod group;
mod group_writer;
mod log_end;
mod manifest;
mod pages;
mod recovery;
mod segment;
mod segments;
#[cfg(any(test, feature = "simulated"))]
mod simulated;
mod snapshot_file;
mod snapshot_name;
#[cfg(test)]
mod tests;

pub use block::{BLOCK_SIZE_MAX, Block, BlockView, BlockWriter, Section};
pub use boundary::{Boundary, OrderedBoundary};
pub use check::{CheckedFunctions, CheckedLog, CheckedSnapshot};
pub use chunk::{Chunk, ChunkWriter, SnapshotPart, Step, last_position};
pub use copy::{Copied, CopyError, copy};
pub use directory::{Directory, LogSettings};
pub use disk::Disk;
pub use effect_order::EffectOrder;
pub use effects::Effects;
pub use error::{Damage, LogError};
pub use files::{Files, OpenFile};
pub use functions_file::{
    FUNCTION_NAME_SIZE_MAX, FUNCTION_NAMES_MAX, FUNCTION_SOURCE_SIZE_MAX, FUNCTIONS_SIZE_MAX, FunctionsFault,
    FunctionsFile, StoredFunctions, StoredModule,
};
#[cfg(feature = "simulated")]
pub use fuzzing::{set_chunk_checksum, set_functions_checksum, set_group_checksums, set_manifest_checksum};
pub use group::Group;
pub use group_writer::{GROUP_SIZE, GroupWriter, UsedSegment, WRITES_IN_FLIGHT, Write, WriteFailure};
pub use log_end::LogEnd;
pub use manifest::{Manifest, ManifestFault, ManifestShard, SHARDS_MAX, SnapshotFile};
pub use pages::{PAGE_SIZE, Page, Pages, padded_size};
pub use segment::{SegmentHeader, SegmentKind, name as segment_name};
pub use segments::{SEGMENT_SIZE, SEGMENT_SIZE_MIN, Segments};
#[cfg(any(test, feature = "simulated"))]
pub use simulated::{SimulatedDisk, SimulatedFile, WriteInFlight};
pub use snapshot_file::SnapshotWriter;

/// The version of all formats of this crate, which is written.
///
/// | version | what is new |
/// |---|---|
/// | 1 | |
/// | 2 | The manifest states a last time. The last step of an ordered snapshot has the version at which the snapshot began, which may be lower than those of the steps before it. |
/// | 3 | The header of a segment states the server. |
/// | 4 | Operations may be calls of functions that users have loaded. Their sources are in files of their own. |
///
/// All earlier versions are read. A directory of a later version is refused by its manifest.
pub const VERSION: u16 = 4;

/// Returns true if this program reads files of this version.
fn is_readable(version: u16) -> bool {
    (1..=VERSION).contains(&version)
}
