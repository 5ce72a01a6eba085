//! The manifest: what a data directory consists of, and where recovery begins.
//!
//! ```text
//! 0       8     16        18  20     24           32          48               56       64        72
//! | magic | crc | version | 0 | size | generation | server id | partition seed | memory | kv size | ...
//!   8 B     u64   u16           u32    u64          16 B        u64              u64      u64
//!
//!     72            80              88              96              104       112        120           124
//! ... | first group | durable group | durable block | durable floor | segment | snapshot | shard count | 0 | ...
//!       u64           u64             u64             u64             u64       u64        u32
//!
//!     128            144         152          160         168
//! ... | ordered file | gap after | gap before | last time | shard | shard | ... | zeros to 4096 |
//!       16 B           u64         u64          u64
//!
//! shard   0             8                    file   0        4   8
//!         | secret seed | file |   24 B             | chunks | 0 | chunks crc |   16 B
//!           u64                                       u32          u64
//! ```
//!
//! - *crc*: CRC-64/NVME of all bytes after it, up to the size.
//! - *generation*: grows with each manifest. There are two files, `manifest.a` and `manifest.b`. The older one is
//!   overwritten, so one of them is always valid.
//! - *first group*: recovery applies the log from this group on.
//! - *durable group*: the log is known to be durable up to this group. If a part of it cannot be read, it is damaged.
//!   *durable block*, *durable floor*: the last block of these groups, and their greatest floor. The snapshot contains no
//!   later block, and no effect from this version on. Later blocks have greater numbers, also if these are lost.
//! - *segment*: a segment that exists, or 0.
//! - *snapshot*: number of the snapshot that recovery loads first, or 0. *chunks*, *chunks crc* of a file of it: number
//!   of the chunks, and CRC-64/NVME of their checksums. Without chunks of the ordered space there is no such file.
//! - *gap after*, *gap before*: blocks between these two are not applied; zeros without a gap. While a server keeps no
//!   log, and takes snapshots only, the gap has no end yet: `gap before` is the greatest number.
//! - *last time*: a time in milliseconds since 1970 that the server had reached. Keys that have expired at this time are
//!   gone, also if the machine's clock is set back later. A manifest of version 1 does not have it: its shards begin at 160.
//! - *secret seed*: that of the hash which places the keys of the shard. Positions in the snapshot depend on it.
//!
//! **Why a changed byte is found.** All bytes up to the size are covered by the checksum. If the newest manifest is not
//! valid, the other one is used. Then recovery reads a longer log, with the same result, or refuses a log whose first
//! groups have been trimmed.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc64;
use crate::pages::Pages;
use crate::{NUMBER_END, VERSION, is_readable};

const MAGIC: [u8; 8] = *b"SKEPman\0";
/// The names of the two files.
pub(crate) const NAMES: [&str; 2] = ["manifest.a", "manifest.b"];
/// Most shards of a manifest.
pub const SHARDS_MAX: usize = 1 << 12;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    crc: U64,
    version: U16,
    zeros: [u8; 2],
    size: U32,
    generation: U64,
    server_id: [u8; 16],
    partition_seed: U64,
    memory: U64,
    kv_size: U64,
    first_group: U64,
    durable: Durable,
    segment: U64,
    snapshot: U64,
    shard_count: U32,
    more_zeros: [u8; 4],
    ordered: File,
    gap: Gap,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Durable {
    group: U64,
    block: U64,
    floor: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Gap {
    after: U64,
    before: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Shard {
    secret_seed: U64,
    file: File,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct File {
    chunk_count: U32,
    zeros: [u8; 4],
    chunks_crc: U64,
}

const HEADER_SIZE: usize = size_of::<Header>();
const CRC_END: usize = 16;
const TIME_SIZE: usize = size_of::<U64>();
const _: () = assert!(HEADER_SIZE == 160 && size_of::<Shard>() == 24);
/// Most bytes of a manifest.
pub(crate) const SIZE_MAX: usize = HEADER_SIZE + TIME_SIZE + SHARDS_MAX * size_of::<Shard>();
/// The version whose manifests have no last time.
const WITHOUT_TIME: u16 = 1;

/// What a data directory consists of. [`Directory`](crate::Directory) sets the generation, what is durable, and
/// the segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Grows with each manifest of the directory.
    pub generation: u64,
    /// Identity of the server, random.
    pub server_id: [u8; 16],
    /// The public seed that assigns keys to shards.
    pub partition_seed: u64,
    /// Bytes of the store's memory.
    pub memory: u64,
    /// Bytes of a pair for which the store was configured.
    pub kv_size: u64,
    /// The first group that recovery needs.
    pub first_group: u64,
    /// The log is known to be durable up to this group.
    pub durable_group: u64,
    /// The last durable block.
    pub durable_block: u64,
    /// The greatest floor of the durable blocks.
    pub durable_floor: u64,
    /// A segment that exists; 0 if there may be none.
    pub segment: u64,
    /// Number of the snapshot that recovery loads, from 1.
    pub snapshot: Option<u64>,
    /// The file of the ordered space in the snapshot; zeros without one.
    pub ordered: SnapshotFile,
    /// Blocks between these two are not applied: shards have recorded only a part of what took place then.
    pub gap: Option<(u64, u64)>,
    /// A time in milliseconds since 1970 that the server had reached: keys that have expired then are gone.
    pub last_time: u64,
    /// The shards, at least one and at most [`SHARDS_MAX`].
    pub shards: Vec<ManifestShard>,
}

/// What a manifest states about a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManifestShard {
    /// The secret seed of its hash table.
    pub secret_seed: u64,
    /// The shard's file of the snapshot; zeros without a snapshot.
    pub file: SnapshotFile,
}

/// A complete file of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFile {
    /// Chunks in the file.
    pub chunk_count: u32,
    /// CRC-64/NVME of the checksums of the chunks, in their order.
    pub chunks_crc: u64,
}

impl From<SnapshotFile> for File {
    fn from(file: SnapshotFile) -> Self {
        File { chunk_count: file.chunk_count.into(), zeros: [0; 4], chunks_crc: file.chunks_crc.into() }
    }
}

impl From<&File> for SnapshotFile {
    fn from(file: &File) -> Self {
        SnapshotFile { chunk_count: file.chunk_count.get(), chunks_crc: file.chunks_crc.get() }
    }
}

/// The reason why a manifest cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestFault {
    /// It is not a manifest, or it is damaged.
    Invalid,
    /// It has a later version than [`VERSION`].
    Newer(u16),
}

impl Manifest {
    /// Returns true if a block is not applied.
    pub(crate) fn leaves_out(&self, block: u64) -> bool {
        self.gap.is_some_and(|(after, before)| after < block && block < before)
    }

    /// Writes the manifest into an empty buffer.
    ///
    /// # Panics
    /// If it has no shards, or more than [`SHARDS_MAX`].
    pub fn encode(&self, pages: &mut Pages) {
        let size = HEADER_SIZE + TIME_SIZE + self.shards.len() * size_of::<Shard>();
        assert!((1..=SHARDS_MAX).contains(&self.shards.len()), "a store has 1 to 4096 shards");
        let (after, before) = self.gap.unwrap_or((0, 0));
        let header = Header {
            magic: MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            zeros: [0; 2],
            size: (size as u32).into(),
            generation: self.generation.into(),
            server_id: self.server_id,
            partition_seed: self.partition_seed.into(),
            memory: self.memory.into(),
            kv_size: self.kv_size.into(),
            first_group: self.first_group.into(),
            durable: Durable {
                group: self.durable_group.into(),
                block: self.durable_block.into(),
                floor: self.durable_floor.into(),
            },
            segment: self.segment.into(),
            snapshot: self.snapshot.unwrap_or(0).into(),
            shard_count: (self.shards.len() as u32).into(),
            more_zeros: [0; 4],
            ordered: self.ordered.into(),
            gap: Gap { after: after.into(), before: before.into() },
        };
        pages.extend(header.as_bytes());
        pages.extend(&self.last_time.to_le_bytes());
        for shard in &self.shards {
            let shard = Shard { secret_seed: shard.secret_seed.into(), file: shard.file.into() };
            pages.extend(shard.as_bytes());
        }
        set_checksum(pages.bytes_mut());
        pages.padded();
    }

    /// Decodes a manifest.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestFault> {
        let (header, _) = Header::ref_from_prefix(bytes).map_err(|_| ManifestFault::Invalid)?;
        let bytes = bytes.get(..header.size.get() as usize).ok_or(ManifestFault::Invalid)?;
        if header.magic != MAGIC || bytes.len() < HEADER_SIZE || header.crc.get() != crc64(&bytes[CRC_END..]) {
            return Err(ManifestFault::Invalid);
        }
        if header.version.get() > VERSION {
            return Err(ManifestFault::Newer(header.version.get()));
        }
        let rest = &bytes[HEADER_SIZE..];
        let (last_time, rest) = match header.version.get() {
            WITHOUT_TIME => (U64::ZERO, rest),
            _ => U64::read_from_prefix(rest).map_err(|_| ManifestFault::Invalid)?,
        };
        let shards = <[Shard]>::ref_from_bytes(rest).map_err(|_| ManifestFault::Invalid)?;
        let shard_count = header.shard_count.get() as usize;
        let is_count_valid = shard_count == shards.len() && (1..=SHARDS_MAX).contains(&shard_count);
        if !is_readable(header.version.get()) || !is_count_valid {
            return Err(ManifestFault::Invalid);
        }
        let numbers = [
            &header.generation,
            &header.first_group,
            &header.durable.group,
            &header.durable.block,
            &header.durable.floor,
            &header.segment,
            &header.snapshot,
        ];
        if header.first_group.get() == 0 || numbers.iter().any(|number| number.get() >= NUMBER_END) {
            return Err(ManifestFault::Invalid);
        }
        let shard = |shard: &Shard| ManifestShard { secret_seed: shard.secret_seed.get(), file: (&shard.file).into() };
        Ok(Manifest {
            generation: header.generation.get(),
            server_id: header.server_id,
            partition_seed: header.partition_seed.get(),
            memory: header.memory.get(),
            kv_size: header.kv_size.get(),
            first_group: header.first_group.get(),
            durable_group: header.durable.group.get(),
            durable_block: header.durable.block.get(),
            durable_floor: header.durable.floor.get(),
            segment: header.segment.get(),
            snapshot: Some(header.snapshot.get()).filter(|&number| number != 0),
            ordered: (&header.ordered).into(),
            gap: Some((header.gap.after.get(), header.gap.before.get())).filter(|&(_, before)| before != 0),
            last_time: last_time.get(),
            shards: shards.iter().map(shard).collect(),
        })
    }
}

/// Writes a valid checksum into a manifest.
pub(crate) fn set_checksum(bytes: &mut [u8]) {
    let Ok((header, _)) = Header::ref_from_prefix(bytes) else { return };
    let size = (header.size.get() as usize).clamp(HEADER_SIZE, bytes.len());
    let crc = crc64(&bytes[CRC_END..size]);
    bytes[8..CRC_END].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn example() -> Manifest {
        let shard = |number: u64| ManifestShard {
            secret_seed: number * 3,
            file: SnapshotFile { chunk_count: 4, chunks_crc: number << 40 },
        };
        Manifest {
            generation: 8,
            server_id: [7; 16],
            partition_seed: 1 << 50,
            memory: 1 << 30,
            kv_size: 64,
            first_group: 5,
            durable_group: 9,
            durable_block: 33,
            durable_floor: 44,
            gap: Some((20, 30)),
            last_time: 1 << 41,
            segment: 2,
            snapshot: Some(3),
            ordered: SnapshotFile { chunk_count: 6, chunks_crc: 7 },
            shards: (1..=3).map(shard).collect(),
        }
    }

    /// The next number would not exist.
    #[test]
    fn a_number_that_no_directory_reaches_is_refused() {
        let change = |change: fn(&mut Manifest)| {
            let (mut manifest, mut pages) = (example(), Pages::default());
            change(&mut manifest);
            manifest.encode(&mut pages);
            Manifest::decode(pages.bytes())
        };
        assert!(change(|manifest| manifest.durable_group = NUMBER_END - 1).is_ok());
        let changes: [fn(&mut Manifest); 8] = [
            |manifest| manifest.generation = NUMBER_END,
            |manifest| manifest.first_group = 0,
            |manifest| manifest.first_group = u64::MAX,
            |manifest| manifest.durable_group = u64::MAX,
            |manifest| manifest.durable_block = u64::MAX,
            |manifest| manifest.durable_floor = u64::MAX,
            |manifest| manifest.segment = u64::MAX,
            |manifest| manifest.snapshot = Some(u64::MAX),
        ];
        assert!(changes.into_iter().all(|fields| change(fields) == Err(ManifestFault::Invalid)));
    }

    #[test]
    fn a_manifest_returns_and_each_changed_byte_is_found() {
        let mut pages = Pages::default();
        example().encode(&mut pages);
        let bytes = pages.bytes().to_vec();
        assert_eq!(Manifest::decode(&bytes), Ok(example()));
        for offset in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[offset] ^= 0x40;
            assert_eq!(Manifest::decode(&changed), Err(ManifestFault::Invalid), "byte {offset}");
            assert_eq!(Manifest::decode(&bytes[..offset]), Err(ManifestFault::Invalid));
        }
    }

    /// Turns a manifest into one of version 1.
    pub(crate) fn to_version_1(bytes: &mut Vec<u8>) {
        bytes.drain(HEADER_SIZE..HEADER_SIZE + TIME_SIZE);
        bytes.extend([0; TIME_SIZE]);
        let (header, _) = Header::mut_from_prefix(bytes).unwrap();
        header.version = WITHOUT_TIME.into();
        header.size -= TIME_SIZE as u32;
        set_checksum(bytes);
    }

    #[test]
    fn a_manifest_of_version_1_is_read_without_a_time() {
        let mut pages = Pages::default();
        example().encode(&mut pages);
        let mut bytes = pages.bytes().to_vec();
        to_version_1(&mut bytes);
        assert_eq!(Manifest::decode(&bytes), Ok(Manifest { last_time: 0, ..example() }));
    }

    #[test]
    fn a_later_version_is_told_apart_from_damage() {
        let mut pages = Pages::default();
        example().encode(&mut pages);
        let mut bytes = pages.bytes().to_vec();
        bytes[16] = 9;
        set_checksum(&mut bytes);
        assert_eq!(Manifest::decode(&bytes), Err(ManifestFault::Newer(9)));
    }
}
