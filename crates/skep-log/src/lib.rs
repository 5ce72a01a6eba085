//! The log and the snapshots of Skep on disk: formats, writers, readers and recovery. It has no threads.
//!
//! ```text
//! shard   BlockWriter ── Block ──▶ ┐               ┌─ Write ─▶ Segments ─▶ Disk
//! shard   BlockWriter ── Block ──▶ ┴▶ GroupWriter ─┤
//!                                                  └─ durable blocks ◀─ written
//! shard   ChunkWriter ── Pages ──▶ SnapshotWriter ─▶ Disk            Directory: manifests, recovery
//! ```
//!
//! | module | content |
//! |---|---|
//! | `block` | operations of one shard that took place, in their order |
//! | `group`, `group_writer` | blocks of all shards that are written together; which of them are durable |
//! | `segment`, `segments` | files of the log: their header; how they are prepared and used again |
//! | `chunk`, `snapshot_file` | pairs that a walk over a shard found; their file |
//! | `boundary` | which operations of the log are applied to a snapshot |
//! | `manifest`, `directory` | what a data directory consists of; how it is accepted and continued |
//! | `recovery` | how the log is read, and whether its end is torn or damaged |
//! | `disk`, `files`, `simulated` | the calls of a disk; a directory; a disk that forgets, tears and lies |
//!
//! **Use.** A server opens a [`Directory`], reads its snapshot and its log, and begins. From then on:
//! 1. A shard appends each operation that took place to its [`BlockWriter`], and seals a block after a batch.
//! 2. The thread of the disk pushes the blocks to the [`GroupWriter`], makes its writes, and returns the results. It
//!    prepares a segment when the writer needs one.
//! 3. A reply leaves when the block of its shard is durable.
//!
//! To take a snapshot:
//! 1. Note [`GroupWriter::next_group`] and, for each shard, the index of its next block.
//! 2. Walk over each shard between batches. Before each step seal the block of the shard. After it call
//!    [`ChunkWriter::end_step`] with the index of this block. So no block has operations from before and after a step.
//! 3. When all files are complete, and all blocks that were sealed before the walk ended are durable, write a manifest
//!    with the noted numbers. Then remove the old snapshots, and trim and recycle segments.

mod block;
mod boundary;
mod checksum;
mod chunk;
mod directory;
mod disk;
mod error;
mod files;
#[cfg(feature = "simulated")]
mod fuzzing;
mod group;
mod group_writer;
mod manifest;
mod pages;
mod recovery;
mod segment;
mod segments;
#[cfg(any(test, feature = "simulated"))]
mod simulated;
mod snapshot_file;
#[cfg(test)]
mod tests;

pub use block::{BLOCK_SIZE_MAX, Block, BlockView, BlockWriter, SectionView, Transaction};
pub use boundary::Boundary;
pub use chunk::{Chunk, ChunkWriter, Step, last_position};
pub use directory::{Directory, LogSettings};
pub use disk::Disk;
pub use error::{Damage, LogError, ShardLoss};
pub use files::{Files, OpenFile};
#[cfg(feature = "simulated")]
pub use fuzzing::{set_chunk_checksum, set_group_checksums, set_manifest_checksum};
pub use group::Group;
pub use group_writer::{GROUP_SIZE, GroupWriter, UsedSegment, WRITES_IN_FLIGHT, Write, WriteFailure};
pub use manifest::{Manifest, ManifestFault, ManifestShard, SHARDS_MAX, SnapshotFile};
pub use pages::{PAGE_SIZE, Page, Pages, padded_size};
pub use recovery::LogEnd;
pub use segment::SegmentHeader;
pub use segments::{SEGMENT_SIZE, SEGMENT_SIZE_MIN, Segments};
#[cfg(any(test, feature = "simulated"))]
pub use simulated::{SimulatedDisk, SimulatedFile, WriteInFlight};
pub use snapshot_file::SnapshotWriter;

/// The version of all formats of this crate.
pub const VERSION: u16 = 1;
