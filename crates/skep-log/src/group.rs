//! The group: blocks that are written to a segment together, by one write, and are recovered together or not at all.
//!
//! ```text
//! 0       4     8         10     12            16    24       32        40     44           48       52  56
//! | magic | crc | version | kind | block count | uid | number | durable | size | blocks crc | before | 0 | ...
//!   "SKgr"  u32   u16       u16    u32           u64   u64      u64       u32    u32          u32
//!
//!     56            64
//! ... | first block | block | block | ... | zeros to 4096 |
//!       u64
//! ```
//!
//! - *crc*: CRC-32C of the header after it.
//! - *kind*: 0: blocks. 1: the end of a segment that is continued by the next one; it has no blocks.
//! - *uid*: that of the segment, chosen anew each time a segment is prepared.
//! - *number*: groups have the numbers 1, 2, 3, and so on. The end of a segment has that of the next group.
//! - *durable*: the last group that was known to be durable, with all groups before it, when this one was written.
//! - *size*: bytes of the header and the blocks.
//! - *blocks crc*: CRC-32C of the checksums of all blocks, in their order. It is computed in pieces of 64 checksums; each
//!   begins with the result of the piece before, the first with 0.
//! - *first block*: number of the first block; without blocks, that of the next one.
//! - *before*: the checksum in the header of the group before this one; 0 in the first.
//!
//! **Why a group is whole.** The header has its own checksum. It states the checksums of its blocks, and each block has
//! one over its content. So a group is valid only if the header and all blocks are those that were written together. A
//! block from an earlier use of the file, which a torn write has left behind, has another checksum. The header also
//! states that of the group before, so a valid sequence of groups is the sequence that was written.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::block::{self, Block, BlockView};
use crate::checksum::crc32;
use crate::pages::{Pages, padded_size};
use crate::{VERSION, is_readable};

const MAGIC: [u8; 4] = *b"SKgr";
/// Kind of a group that has blocks, or none if it only states what is durable.
const BLOCKS: u16 = 0;
/// Kind of the end of a segment.
const END: u16 = 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    crc: U32,
    version: U16,
    kind: U16,
    block_count: U32,
    uid: U64,
    number: U64,
    durable: U64,
    size: U32,
    blocks_crc: U32,
    before: U32,
    zeros: [u8; 4],
    first_block: U64,
}

pub(crate) const HEADER_SIZE: usize = size_of::<Header>();
const CRC_START: usize = 4;
const CRC_END: usize = CRC_START + size_of::<U32>();
const _: () = assert!(HEADER_SIZE == 64);

/// The fields of a group that it does not compute itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupPosition {
    /// Uid of the segment.
    pub(crate) uid: u64,
    /// Number of the group.
    pub(crate) number: u64,
    /// Number of the first block.
    pub(crate) first_block: u64,
    /// Checksum of the group before.
    pub(crate) before: u32,
}

/// A valid group that was read.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Uid of the segment for which it was written.
    pub uid: u64,
    /// Number of the group.
    pub number: u64,
    /// The last group that was known to be durable when this one was written.
    pub durable: u64,
    /// Number of the first block.
    pub first_block: u64,
    /// Number of blocks.
    pub block_count: u32,
    /// Checksum of the header of the group before.
    pub before: u32,
    /// Checksum of this header.
    pub crc: u32,
    /// True if it is the end of a segment that the next one continues.
    pub is_end: bool,
    /// Bytes of the header and the blocks.
    pub size: usize,
    bytes: &'a [u8],
}

/// Writes a group into an empty buffer. Returns the checksum of its header.
pub(crate) fn encode<'a>(
    pages: &mut Pages,
    position: GroupPosition,
    durable: u64,
    blocks: impl Iterator<Item = &'a Block>,
) -> u32 {
    encode_kind(pages, position, durable, BLOCKS, blocks)
}

/// Writes the end of a segment into an empty buffer. It has the number of the group that follows in the next segment.
pub(crate) fn encode_end(pages: &mut Pages, position: GroupPosition) {
    encode_kind(pages, position, position.number - 1, END, std::iter::empty());
}

fn encode_kind<'a>(
    pages: &mut Pages,
    position: GroupPosition,
    durable: u64,
    kind: u16,
    blocks: impl Iterator<Item = &'a Block>,
) -> u32 {
    debug_assert!(pages.size() == 0);
    pages.set_size(HEADER_SIZE);
    let mut block_count = 0;
    let mut blocks_crc = BlocksChecksum::default();
    for block in blocks {
        pages.extend(block.bytes());
        blocks_crc.add(block.bytes());
        block_count += 1;
    }
    let mut header = Header {
        magic: MAGIC,
        crc: 0.into(),
        version: VERSION.into(),
        kind: kind.into(),
        block_count: u32::into(block_count),
        uid: position.uid.into(),
        number: position.number.into(),
        durable: durable.into(),
        size: u32::try_from(pages.size()).expect("a group is shorter than 4 GiB").into(),
        blocks_crc: blocks_crc.value().into(),
        before: position.before.into(),
        zeros: [0; 4],
        first_block: position.first_block.into(),
    };
    let crc = crc32(&header.as_bytes()[CRC_END..]);
    header.crc = crc.into();
    pages.bytes_mut()[..HEADER_SIZE].copy_from_slice(header.as_bytes());
    pages.padded();
    crc
}

/// The checksum of the checksums of blocks. It takes them in groups of 64, so that it needs no memory of its own:
/// checksum = CRC-32C of (checksum before, up to 64 checksums of blocks).
struct BlocksChecksum {
    bytes: [u8; 4 * 65],
    size: usize,
}

impl Default for BlocksChecksum {
    fn default() -> Self {
        BlocksChecksum { bytes: [0; 4 * 65], size: 4 }
    }
}

impl BlocksChecksum {
    fn add(&mut self, block: &[u8]) {
        if self.size == self.bytes.len() {
            self.fold();
        }
        self.bytes[self.size..][..4].copy_from_slice(&block::stored_checksum(block));
        self.size += 4;
    }

    fn fold(&mut self) {
        let crc = crc32(&self.bytes[..self.size]);
        self.bytes[..4].copy_from_slice(&crc.to_le_bytes());
        self.size = 4;
    }

    fn value(mut self) -> u32 {
        self.fold();
        u32::from_le_bytes(self.bytes[..4].try_into().expect("four bytes"))
    }
}

/// Returns true if the bytes begin with the header of a group for the segment with this uid. The group need not be whole.
pub(crate) fn is_begun(bytes: &[u8], uid: u64) -> bool {
    Header::ref_from_prefix(bytes).is_ok_and(|(header, _)| header.magic == MAGIC && header.uid.get() == uid)
}

/// Returns the size that a valid header at the start of the bytes states for its group.
pub(crate) fn stated_size(bytes: &[u8]) -> Option<usize> {
    let (header, _) = Header::ref_from_prefix(bytes).ok()?;
    let crc = crc32(&bytes[CRC_END..HEADER_SIZE]);
    let size = header.size.get() as usize;
    let is_valid = header.magic == MAGIC
        && header.crc.get() == crc
        && is_readable(header.version.get())
        && header.zeros == [0; 4]
        && matches!(header.kind.get(), BLOCKS | END)
        && size >= HEADER_SIZE;
    is_valid.then_some(size)
}

impl<'a> Group<'a> {
    /// Decodes the group at the start of the bytes. Returns `None` if it is not valid.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let size = stated_size(bytes)?;
        let (header, _) = Header::ref_from_prefix(bytes).ok()?;
        let is_end = header.kind.get() == END;
        let group = Group {
            uid: header.uid.get(),
            number: header.number.get(),
            durable: header.durable.get(),
            first_block: header.first_block.get(),
            before: header.before.get(),
            crc: header.crc.get(),
            is_end,
            size,
            block_count: header.block_count.get(),
            bytes: bytes.get(..size)?,
        };
        (group.has_valid_blocks(header.blocks_crc.get()) && !(is_end && size > HEADER_SIZE)).then_some(group)
    }

    /// Returns true if the blocks fill the group, are those of the header.
    fn has_valid_blocks(&self, expected: u32) -> bool {
        let mut rest = &self.bytes[HEADER_SIZE..];
        let mut blocks_crc = BlocksChecksum::default();
        for number in 0..self.block_count {
            let number = self.first_block.wrapping_add(number.into());
            let Some((_, size)) = BlockView::decode(number, rest) else { return false };
            blocks_crc.add(rest);
            rest = &rest[size..];
        }
        rest.is_empty() && blocks_crc.value() == expected
    }

    /// Returns its bytes, with the header and without the zeros after it.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the bytes of the group in its segment: whole pages.
    pub fn padded_size(&self) -> u64 {
        padded_size(self.size as u64)
    }

    /// Iterates over the blocks, in their order.
    pub fn blocks(&self) -> impl Iterator<Item = BlockView<'a>> + use<'a> {
        let (mut rest, mut number) = (&self.bytes[HEADER_SIZE..], self.first_block);
        std::iter::from_fn(move || {
            let (block, size) = BlockView::parse(number, rest)?;
            (rest, number) = (&rest[size..], number.wrapping_add(1));
            Some(block)
        })
    }
}

/// Writes valid checksums into a group, so that a fuzzer reaches the code that they protect.
#[cfg(feature = "simulated")]
pub(crate) fn set_checksums(bytes: &mut [u8]) {
    let mut blocks_crc = BlocksChecksum::default();
    let mut start = HEADER_SIZE;
    while let Some(size) = bytes.get(start..).and_then(block::stated_size)
        && size >= block::HEADER_SIZE
        && size <= bytes.len() - start
    {
        block::set_checksum(&mut bytes[start..start + size]);
        blocks_crc.add(&bytes[start..]);
        start += size;
    }
    if let Some(header) = bytes.get_mut(..HEADER_SIZE) {
        let (header, _) = Header::mut_from_prefix(header).expect("a whole header");
        header.magic = MAGIC;
        header.version = VERSION.into();
        header.blocks_crc = blocks_crc.value().into();
        header.crc = crc32(&header.as_bytes()[CRC_END..]).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockWriter;
    use skep_core::operation::{Operation, Request};

    #[test]
    fn groups_return_and_each_changed_byte_is_found() {
        let mut writer = BlockWriter::new();
        let mut block = |floor| {
            writer.append(0, 1, &Request { key: b"key", operation: Operation::Delete });
            writer.seal(floor).unwrap()
        };
        let blocks: Vec<Block> = (0..200).map(&mut block).collect();
        let position = GroupPosition { uid: 77, number: 12, first_block: 1000, before: 99 };
        let mut pages = Pages::default();
        let crc = encode(&mut pages, position, 10, blocks.iter());
        let group = Group::decode(pages.bytes()).unwrap();
        assert_eq!((group.uid, group.number, group.durable, group.before, group.crc), (77, 12, 10, 99, crc));
        assert_eq!((group.size, group.is_end, group.padded_size() % 4096), (pages.size(), false, 0));
        assert!(group.blocks().map(|block| (block.number, block.floor)).eq((0..200).map(|n| (1000 + n, n))));

        let bytes = pages.bytes().to_vec();
        for offset in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[offset] ^= 1 << (offset % 8);
            assert!(Group::decode(&changed).is_none(), "byte {offset}");
        }
        for size in 0..bytes.len() {
            assert!(Group::decode(&bytes[..size]).is_none());
        }
        // A valid block of another group.
        pages.clear();
        encode(&mut pages, position, 10, blocks[..1].iter());
        pages.bytes_mut()[HEADER_SIZE..].copy_from_slice(blocks[1].bytes());
        assert!(Group::decode(pages.bytes()).is_none());
    }
}
