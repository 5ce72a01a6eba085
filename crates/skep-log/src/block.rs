//! The block: operations of one shard that took place, in their order, as the log stores them.
//!
//! ```text
//! 0     4      8       10      12      16      24            32
//! | crc | size | shard | parts | count | index | transaction | section | section | ...
//!   u32   u32    u16     u16     u32     u64     u64
//!
//! section   0     8
//!           | now | native request frame: size, kind, space, count, operations |
//!             u64
//! ```
//!
//! - *crc*: CRC-32C of all bytes after it, up to the size.
//! - *size*: bytes of the block, with this header.
//! - *count*: operations in all sections.
//! - *index*: the blocks of a shard have the indexes 1, 2, 3, and so on, also after a restart.
//! - *transaction*, *parts*: number of the transaction to which the block belongs, and the number of its blocks; zeros
//!   for a block that belongs to none.
//! - *now*: time of the batch, in milliseconds since 1970. Operations are replayed at this time. So keys expire in the
//!   replay as they did before, and no expiry is logged as a delete.
//! - *kind*: the field that a client uses as the sequence of the frame. 0: operations. No other kind exists yet.
//!
//! The frame is that of the native protocol, so an operation of the same sizes as the one before it takes one byte more
//! than its key and operand. All integers are little-endian.
//!
//! **Why a block is read as it was written.** [`BlockView::decode`] compares the checksum and then checks that the
//! sections and their frames fill the block and that their counts add up. What remains unchecked are the operations,
//! each of which is decoded when it is replayed. A block that was written by [`BlockWriter`] contains only operations
//! that can be decoded.

use skep_core::operation::Request;
use skep_wire::native::{Operations, REQUEST_FRAME_SIZE_MAX, RequestFrame, RequestFrameEncoder};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32;

/// Most bytes of a block: far above all that one batch or transaction can change.
pub const BLOCK_SIZE_MAX: usize = 1 << 30;

/// Kind of a section of operations.
const OPERATIONS: u32 = 0;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    crc: U32,
    size: U32,
    shard: U16,
    parts: U16,
    count: U32,
    index: U64,
    transaction: U64,
}

const HEADER_SIZE: usize = size_of::<Header>();
const CRC_SIZE: usize = size_of::<U32>();
const NOW_SIZE: usize = size_of::<u64>();
const _: () = assert!(HEADER_SIZE == 32);

/// The transaction to which a block belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Number of the transaction. It differs from those of all transactions whose blocks are in the same group, such as
    /// all of the same run of the server.
    pub number: u64,
    /// Number of its blocks, at least 1. Each is of another shard.
    pub parts: u16,
}

/// A block that is complete.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    shard: u16,
    index: u64,
    transaction: Option<Transaction>,
}

impl Block {
    /// Returns the bytes, with the header.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the shard.
    pub fn shard(&self) -> u16 {
        self.shard
    }

    /// Returns the index.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns the transaction to which the block belongs.
    pub fn transaction(&self) -> Option<Transaction> {
        self.transaction
    }
}

/// Writes the blocks of one shard. It allocates nothing if it gets back the blocks that are no longer needed.
#[derive(Debug)]
pub struct BlockWriter {
    shard: u16,
    index: u64,
    bytes: Vec<u8>,
    count: u32,
    section: Option<Section>,
    spare: Vec<Vec<u8>>,
}

/// The section that is being written.
#[derive(Debug)]
struct Section {
    space: u16,
    now: u64,
    frame: RequestFrameEncoder,
}

impl BlockWriter {
    /// Returns the writer of a shard whose next block has this index: 1 in a new log.
    pub fn new(shard: u16, index: u64) -> Self {
        let mut writer = BlockWriter { shard, index, bytes: Vec::new(), count: 0, section: None, spare: Vec::new() };
        writer.clear();
        writer
    }

    /// Returns the index of the block that is being written.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns the bytes of the block so far.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of operations of the block so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Appends an operation that took place at the time `now`, in milliseconds since 1970, in a space of the native
    /// protocol. Returns false, and appends nothing, if the operation is longer than a frame of the native protocol
    /// ([`REQUEST_FRAME_SIZE_MAX`]). This is possible for an update of a vector by operands that are longer than a
    /// value; append its effect then, as a put.
    ///
    /// # Panics
    /// If the block is longer than [`BLOCK_SIZE_MAX`].
    #[inline]
    pub fn append(&mut self, space: u16, now: u64, request: &Request<'_>) -> bool {
        if let Some(section) = &mut self.section
            && section.space == space
            && section.now == now
            && section.frame.push(&mut self.bytes, request)
        {
            self.count += 1;
            return true;
        }
        self.append_to_new_section(space, now, request)
    }

    #[cold]
    fn append_to_new_section(&mut self, space: u16, now: u64, request: &Request<'_>) -> bool {
        self.finish_section();
        assert!(self.bytes.len() <= BLOCK_SIZE_MAX - REQUEST_FRAME_SIZE_MAX, "a block has at most 1 GiB");
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&now.to_le_bytes());
        let mut frame = RequestFrameEncoder::begin(&mut self.bytes, OPERATIONS, space, REQUEST_FRAME_SIZE_MAX);
        if !frame.push(&mut self.bytes, request) {
            self.bytes.truncate(start);
            return false;
        }
        self.count += 1;
        self.section = Some(Section { space, now, frame });
        true
    }

    /// Completes the block and begins the next. Returns `None` if the block has no operations, unless it belongs to a
    /// transaction.
    pub fn seal(&mut self, transaction: Option<Transaction>) -> Option<Block> {
        if self.count == 0 && transaction.is_none() {
            return None;
        }
        self.finish_section();
        let header = Header {
            crc: 0.into(),
            size: u32::try_from(self.bytes.len()).expect("a block has at most 1 GiB").into(),
            shard: self.shard.into(),
            parts: transaction.map_or(0, |transaction| transaction.parts).into(),
            count: self.count.into(),
            index: self.index.into(),
            transaction: transaction.map_or(0, |transaction| transaction.number).into(),
        };
        self.bytes[..HEADER_SIZE].copy_from_slice(header.as_bytes());
        set_checksum(&mut self.bytes);
        let bytes = std::mem::replace(&mut self.bytes, self.spare.pop().unwrap_or_default());
        let block = Block { bytes, shard: self.shard, index: self.index, transaction };
        self.index += 1;
        self.clear();
        Some(block)
    }

    /// Takes back the memory of a block that is no longer needed, of any shard.
    pub fn reuse(&mut self, block: Block) {
        self.spare.push(block.bytes);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; HEADER_SIZE]);
        self.count = 0;
    }

    fn finish_section(&mut self) {
        if let Some(section) = self.section.take() {
            section.frame.finish(&mut self.bytes);
        }
    }
}

/// Returns the checksum that the header of a block contains.
pub(crate) fn stored_checksum(block: &[u8]) -> [u8; CRC_SIZE] {
    block[..CRC_SIZE].try_into().expect("four bytes")
}

/// Writes the checksum of a whole block into its header.
pub(crate) fn set_checksum(block: &mut [u8]) {
    let crc = crc32(&block[CRC_SIZE..]);
    block[..CRC_SIZE].copy_from_slice(&crc.to_le_bytes());
}

/// Returns the size that the header of a block states, if there is a header.
#[cfg(feature = "simulated")]
pub(crate) fn stated_size(bytes: &[u8]) -> Option<usize> {
    let (header, _) = Header::ref_from_prefix(bytes).ok()?;
    Some(header.size.get() as usize)
}

/// A block that was read and whose checksum and structure are valid.
#[derive(Clone, Copy, Debug)]
pub struct BlockView<'a> {
    /// The shard.
    pub shard: u16,
    /// The index.
    pub index: u64,
    /// Number of operations.
    pub count: u32,
    /// The transaction to which the block belongs.
    pub transaction: Option<Transaction>,
    sections: &'a [u8],
}

/// Operations of a block on one space at one time.
#[derive(Clone, Debug)]
pub struct SectionView<'a> {
    /// Time at which the operations ran, in milliseconds since 1970.
    pub now: u64,
    /// The space of the native protocol.
    pub space: u16,
    /// The operations.
    pub operations: Operations<'a>,
}

impl<'a> BlockView<'a> {
    /// Decodes the block at the start of the bytes. Returns it with its size, or `None` if it is not valid.
    pub fn decode(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (block, size) = Self::parse(bytes)?;
        let is_valid = stored_checksum(bytes) == crc32(&bytes[CRC_SIZE..size]).to_le_bytes();
        (is_valid && block.is_well_formed()).then_some((block, size))
    }

    /// Returns the block at the start of the bytes, whose checksum and sections are valid, with its size.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (header, _) = Header::ref_from_prefix(bytes).ok()?;
        let size = header.size.get() as usize;
        if !(HEADER_SIZE..=BLOCK_SIZE_MAX).contains(&size) {
            return None;
        }
        let transaction = match (header.transaction.get(), header.parts.get()) {
            (0, 0) => None,
            (_, 0) => return None,
            (number, parts) => Some(Transaction { number, parts }),
        };
        let block = BlockView {
            shard: header.shard.get(),
            index: header.index.get(),
            count: header.count.get(),
            transaction,
            sections: bytes.get(HEADER_SIZE..size)?,
        };
        Some((block, size))
    }

    /// Returns true if the sections fill the block and have its number of operations.
    fn is_well_formed(&self) -> bool {
        let mut rest = self.sections;
        let mut count = 0_u64;
        while let Some((section, after)) = take_section(rest) {
            count += section.operations.len() as u64;
            rest = after;
        }
        rest.is_empty() && count == u64::from(self.count)
    }

    /// Iterates over the sections, in their order.
    pub fn sections(&self) -> impl Iterator<Item = SectionView<'a>> + use<'a> {
        let mut rest = self.sections;
        std::iter::from_fn(move || {
            let (section, after) = take_section(rest)?;
            rest = after;
            Some(section)
        })
    }
}

/// Splits the first section off, if there is one that is valid.
fn take_section(bytes: &[u8]) -> Option<(SectionView<'_>, &[u8])> {
    let (now, rest) = bytes.split_first_chunk::<NOW_SIZE>()?;
    let (frame, size) = RequestFrame::decode(rest).ok()??;
    let section = SectionView { now: u64::from_le_bytes(*now), space: frame.space, operations: frame.operations() };
    (frame.sequence == OPERATIONS).then_some((section, &rest[size..]))
}

#[cfg(test)]
mod tests {
    use skep_core::operation::{Operation, PutCondition};

    use super::*;

    fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
        Request { key, operation: Operation::Put { value, condition: PutCondition::Always } }
    }

    /// Returns space, time and requests of all sections.
    fn content<'a>(block: &BlockView<'a>) -> Vec<(u16, u64, Vec<Request<'a>>)> {
        let of = |section: SectionView<'a>| {
            (section.space, section.now, section.operations.map(|operation| operation.unwrap()).collect())
        };
        block.sections().map(of).collect()
    }

    #[test]
    fn operations_return_with_their_space_and_time() {
        let mut writer = BlockWriter::new(3, 7);
        assert!(writer.seal(None).is_none());
        assert!(writer.append(0, 1000, &put(b"a", b"1")));
        assert!(writer.append(0, 1000, &put(b"b", b"2")));
        assert!(writer.append(1, 1000, &put(b"c", b"3")));
        assert!(writer.append(0, 1001, &Request { key: b"a", operation: Operation::Delete }));
        let block = writer.seal(None).unwrap();
        let (view, size) = BlockView::decode(block.bytes()).unwrap();
        assert_eq!((size, view.shard, view.index, view.count), (block.bytes().len(), 3, 7, 4));
        let expected = [
            (0, 1000, vec![put(b"a", b"1"), put(b"b", b"2")]),
            (1, 1000, vec![put(b"c", b"3")]),
            (0, 1001, vec![Request { key: b"a", operation: Operation::Delete }]),
        ];
        assert_eq!(content(&view), expected);

        writer.reuse(block);
        let part = Transaction { number: 9, parts: 2 };
        let block = writer.seal(Some(part)).unwrap();
        let (view, _) = BlockView::decode(block.bytes()).unwrap();
        assert_eq!((view.index, view.count, view.transaction), (8, 0, Some(part)));
    }

    #[test]
    fn a_full_frame_is_followed_by_another() {
        let mut writer = BlockWriter::new(0, 1);
        let count = 70_000_u32;
        for number in 0..count {
            assert!(writer.append(0, 5, &put(&number.to_le_bytes(), b"value")));
        }
        let value = vec![1; skep_core::operation::VALUE_SIZE_MAX];
        assert!(writer.append(0, 5, &put(b"long", &value)));
        let too_long = vec![1; REQUEST_FRAME_SIZE_MAX];
        assert!(!writer.append(0, 5, &put(b"too long", &too_long)));
        assert!(writer.append(0, 5, &put(b"last", b"")));
        let block = writer.seal(None).unwrap();
        let (view, _) = BlockView::decode(block.bytes()).unwrap();
        assert_eq!((view.count, view.sections().count()), (count + 2, 3));
        let all = content(&view).into_iter().flat_map(|(_, _, requests)| requests);
        assert!(
            all.take(count as usize).enumerate().all(|(number, request)| request.key == (number as u32).to_le_bytes())
        );
    }

    #[test]
    fn a_put_takes_its_key_and_value_and_little_more() {
        let mut writer = BlockWriter::new(0, 1);
        for number in 0..256_u32 {
            let number = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            assert!(writer.append(0, 5, &put(&number[..5], &number[3..])));
        }
        let size = writer.seal(None).unwrap().bytes().len();
        assert!(size <= 256 * 10 + 256 * 13 / 10, "{size} bytes");
    }

    #[test]
    fn a_changed_byte_is_found() {
        let mut writer = BlockWriter::new(0, 1);
        writer.append(0, 5, &put(b"key", b"value"));
        let bytes = writer.seal(Some(Transaction { number: 1, parts: 1 })).unwrap().bytes().to_vec();
        for offset in 0..bytes.len() {
            for mask in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[offset] ^= mask;
                assert!(BlockView::decode(&changed).is_none(), "byte {offset}");
            }
            assert!(BlockView::decode(&bytes[..offset]).is_none());
        }
    }
}
