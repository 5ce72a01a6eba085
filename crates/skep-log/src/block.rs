//! The block: operations that one thread executed, in their order, as the log stores them.
//!
//! ```text
//! 0     4      8       16      20
//! | crc | size | floor | count | section | section | ...
//!   u32   u32    u64     u32
//!
//! section        0        8
//!                | number | native request frame: size, kind, space, count, operations | differences |
//!                  u64
//! ```
//!
//! - *crc*: CRC-32C of all bytes after it, up to the size.
//! - *size*: bytes of the block, with this header.
//! - *floor*: all effects with lower versions are in this block or in blocks before it.
//! - *count*: operations, effects and flushes in all sections, after additions were folded.
//! - *kind*: the field that a client uses as the sequence of the frame. It decides what the number is:
//!
//! | kind | content | number |
//! |---|---|---|
//! | 0: operations | the frame | time of the batch, in milliseconds since 1970 |
//! | 1: flush | nothing: all keys of a shard were removed | the shard, and the number of shards << 16 |
//! | 2: effects | puts and deletes of the frame; then, for each, the version less the one before, as LEB128 | the first version |
//!
//! Operations are replayed at their time. So keys expire in the replay as they did before, and no expiry is logged as a
//! delete. A section without operations only states that its time was reached: later operations saw keys that had expired by
//! then. Effects are for a space in which two threads may write one key: [`EffectOrder`](crate::EffectOrder) hands
//! them out in the order of their versions.
//!
//! The frame is that of the native protocol, so an operation of the same sizes as the one before it takes one byte more
//! than its key and operand. All integers are little-endian. The number of a block follows from the header of its
//! group.
//!
//! **Why a block is read as it was written.** [`BlockView::decode`] compares the checksum and then checks that the
//! sections and their frames fill the block and that their counts add up. What remains unchecked are the operations,
//! each of which is decoded when it is replayed. A block that was written by [`BlockWriter`] contains only operations
//! that can be decoded.

use skep_core::operation::Request;
use skep_wire::native::{Operations, REQUEST_FRAME_SIZE_MAX, RequestFrame, RequestFrameEncoder};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::NUMBER_END;
use crate::additions::{Addition, Additions};
use crate::checksum::crc32;
use crate::effects::{self, Effects};

/// Most bytes of a block: far above all that one batch or transaction can change.
pub const BLOCK_SIZE_MAX: usize = 1 << 30;

/// Kinds of sections.
const OPERATIONS: u32 = 0;
const FLUSH: u32 = 1;
const EFFECTS: u32 = 2;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    crc: U32,
    size: U32,
    floor: U64,
    count: U32,
}

pub(crate) const HEADER_SIZE: usize = size_of::<Header>();
const CRC_SIZE: usize = size_of::<U32>();
const NUMBER_SIZE: usize = size_of::<u64>();
const _: () = assert!(HEADER_SIZE == 20);

/// A block that is complete.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    floor: u64,
}

impl Block {
    /// Returns the bytes, with the header.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the floor: all effects with lower versions are in this block or in blocks before it.
    pub fn floor(&self) -> u64 {
        self.floor
    }
}

/// Writes the blocks of one thread. It allocates nothing if it gets back the blocks that are no longer needed.
#[derive(Debug)]
pub struct BlockWriter {
    bytes: Vec<u8>,
    count: u32,
    section: Option<OpenSection>,
    /// A time was appended.
    has_time: bool,
    /// Differences of the versions of the section.
    differences: Vec<u8>,
    /// Additions that are not in the block yet.
    additions: Additions,
    spare: Vec<Vec<u8>>,
}

/// The section that is being written.
#[derive(Debug)]
struct OpenSection {
    kind: u32,
    space: u16,
    /// The time of operations; the last version of effects.
    number: u64,
    frame: RequestFrameEncoder,
}

impl Default for BlockWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl BlockWriter {
    /// Returns a writer with an empty block.
    pub fn new() -> Self {
        BlockWriter {
            bytes: vec![0; HEADER_SIZE],
            count: 0,
            section: None,
            has_time: false,
            differences: Vec::new(),
            additions: Additions::default(),
            spare: Vec::new(),
        }
    }

    /// Returns true if the block has no operations, and no time alone.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && !self.has_time && self.additions.is_empty()
    }

    /// Returns the bytes of the block so far, without additions that may still be folded (at most 64).
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Appends an operation that took place at the time `now`, in milliseconds since 1970, in a space of the native
    /// protocol. Integer additions to one key are folded into one: `additions.rs` says which. Returns false, and
    /// appends nothing, if the operation is longer than a frame of the native protocol ([`REQUEST_FRAME_SIZE_MAX`]).
    /// This is possible for an update of a vector by operands that are longer than a value; append its effect then, as
    /// a put.
    ///
    /// # Panics
    /// If the block is longer than [`BLOCK_SIZE_MAX`].
    #[inline]
    pub fn append(&mut self, space: u16, now: u64, request: &Request<'_>) -> bool {
        if self.additions.is_empty() && !Addition::is_possible(request) {
            return self.push(space, now, request);
        }
        self.append_beside_additions(space, now, request)
    }

    /// Appends puts as [`append`](Self::append) does, as long as they are like the operation before: short, of its sizes, at
    /// its time and in its space. `is_included` returns true for the index of a put that took place. Returns their number;
    /// the next operation is appended by `append`. Most of a log is appended so, several times faster.
    #[inline]
    pub fn append_similar_puts(
        &mut self,
        space: u16,
        now: u64,
        requests: &[Request<'_>],
        is_included: impl Fn(usize) -> bool,
    ) -> usize {
        match &mut self.section {
            Some(section)
                if (section.kind, section.space, section.number) == (OPERATIONS, space, now)
                    && self.additions.is_empty() =>
            {
                let count = section.frame.push_similar_puts(&mut self.bytes, requests, is_included);
                self.count += count as u32;
                count
            }
            _ => 0,
        }
    }

    #[inline]
    fn push(&mut self, space: u16, now: u64, request: &Request<'_>) -> bool {
        if let Some(section) = &mut self.section
            && section.kind == OPERATIONS
            && section.space == space
            && section.number == now
            && section.frame.push(&mut self.bytes, request)
        {
            self.count += 1;
            return true;
        }
        self.push_to_new_section(OPERATIONS, space, now, request)
    }

    #[cold]
    fn push_to_new_section(&mut self, kind: u32, space: u16, number: u64, request: &Request<'_>) -> bool {
        self.finish_section();
        assert!(self.bytes.len() <= BLOCK_SIZE_MAX - REQUEST_FRAME_SIZE_MAX, "a block has at most 1 GiB");
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&number.to_le_bytes());
        let mut frame = RequestFrameEncoder::begin(&mut self.bytes, kind, space, REQUEST_FRAME_SIZE_MAX);
        if !frame.push(&mut self.bytes, request) {
            self.bytes.truncate(start);
            return false;
        }
        self.count += 1;
        self.section = Some(OpenSection { kind, space, number, frame });
        true
    }

    /// Appends an operation while additions may wait in the table. An addition that waits is written before another
    /// operation on its key, and before operations of another space or time.
    fn append_beside_additions(&mut self, space: u16, now: u64, request: &Request<'_>) -> bool {
        if self.additions.section != (space, now) {
            self.write_additions();
            self.additions.section = (space, now);
        }
        let slot = Additions::slot(request.key);
        let addition = Addition::of(request);
        if let Some(addition) = addition
            && self.additions.fold(slot, request.key, addition)
        {
            return true;
        }
        if addition.is_some() || self.additions.is_of(slot, request.key) {
            self.write_addition(slot);
        }
        match addition {
            Some(addition) => {
                self.additions.insert(slot, request.key, addition);
                true
            }
            None => self.push(space, now, request),
        }
    }

    /// Writes the addition that waits in a slot of the table, if there is one.
    fn write_addition(&mut self, slot: usize) {
        if let Some(waiting) = self.additions.take(slot) {
            let (space, now) = self.additions.section;
            let is_pushed = waiting.with_request(|request| self.push(space, now, request));
            assert!(is_pushed, "a frame has room for an addition");
            self.additions.give_back(slot, waiting);
        }
    }

    fn write_additions(&mut self) {
        while let Some(slot) = self.additions.first() {
            self.write_addition(slot);
        }
    }

    /// Appends the effect of an operation that took place at a version of its space: a put without a condition, or a
    /// delete. Returns false, and appends nothing, if it is longer than a frame of the native protocol.
    ///
    /// # Panics
    /// If the block is longer than [`BLOCK_SIZE_MAX`].
    pub fn append_effect(&mut self, space: u16, version: u64, request: &Request<'_>) -> bool {
        self.write_additions();
        let mut difference = 0;
        if let Some(section) = &mut self.section
            && section.kind == EFFECTS
            && section.space == space
            && section.number <= version
            && section.frame.push(&mut self.bytes, request)
        {
            self.count += 1;
            difference = version - std::mem::replace(&mut section.number, version);
        } else if !self.push_to_new_section(EFFECTS, space, version, request) {
            return false;
        }
        effects::write_difference(&mut self.differences, difference);
        true
    }

    /// Appends that all keys of a shard were removed from a space. The shard is one of this number, under the partition
    /// seed of the manifest.
    pub fn append_flush(&mut self, space: u16, shard: u16, shard_count: u16) {
        self.write_additions();
        self.finish_section();
        let number = u64::from(shard) | u64::from(shard_count) << 16;
        self.bytes.extend_from_slice(&number.to_le_bytes());
        RequestFrameEncoder::begin(&mut self.bytes, FLUSH, space, REQUEST_FRAME_SIZE_MAX).finish(&mut self.bytes);
        self.count += 1;
    }

    /// Appends that operations were executed at the time `now`, in milliseconds since 1970, also if they have changed nothing.
    pub fn append_time(&mut self, now: u64) {
        self.write_additions();
        self.finish_section();
        self.bytes.extend_from_slice(&now.to_le_bytes());
        RequestFrameEncoder::begin(&mut self.bytes, OPERATIONS, 0, REQUEST_FRAME_SIZE_MAX).finish(&mut self.bytes);
        self.has_time = true;
    }

    /// Completes the block and begins the next. Returns `None` if the block is empty. All effects with versions below
    /// the floor must be in this block or in blocks before it. Without effects the floor is 0.
    pub fn seal(&mut self, floor: u64) -> Option<Block> {
        self.write_additions();
        (!self.is_empty()).then(|| self.seal_floor(floor))
    }

    /// Completes the block as [`seal`](Self::seal) does, also if it is empty: then it states a floor only.
    pub fn seal_floor(&mut self, floor: u64) -> Block {
        self.write_additions();
        self.finish_section();
        let header = Header {
            crc: 0.into(),
            size: u32::try_from(self.bytes.len()).expect("a block has at most 1 GiB").into(),
            floor: floor.into(),
            count: self.count.into(),
        };
        self.bytes[..HEADER_SIZE].copy_from_slice(header.as_bytes());
        set_checksum(&mut self.bytes);
        let mut next = self.spare.pop().unwrap_or_default();
        next.clear();
        next.extend_from_slice(&[0; HEADER_SIZE]);
        (self.count, self.has_time) = (0, false);
        Block { bytes: std::mem::replace(&mut self.bytes, next), floor }
    }

    /// Takes back the memory of a block that is no longer needed, of any writer.
    pub fn reuse(&mut self, block: Block) {
        self.spare.push(block.bytes);
    }

    fn finish_section(&mut self) {
        if let Some(section) = self.section.take() {
            section.frame.finish(&mut self.bytes);
            self.bytes.append(&mut self.differences);
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
    /// Its number. The blocks of a log have the numbers 1, 2, 3, and so on, also after a restart.
    pub number: u64,
    /// All effects with lower versions are in this block or in blocks before it.
    pub floor: u64,
    /// Number of operations, effects and flushes.
    pub count: u32,
    /// True if it is the first block after a recovery: effects that no floor covered before it are dropped.
    pub(crate) begins_run: bool,
    sections: &'a [u8],
}

/// A part of a block.
#[derive(Clone, Debug)]
pub enum Section<'a> {
    /// Operations that took place.
    Operations {
        /// Time at which they ran, in milliseconds since 1970.
        now: u64,
        /// The space of the native protocol.
        space: u16,
        /// The operations.
        operations: Operations<'a>,
    },
    /// All keys of a shard were removed from a space.
    Flush {
        /// The space of the native protocol.
        space: u16,
        /// The shard.
        shard: u16,
        /// The number of shards at that time.
        shard_count: u16,
    },
    /// Effects: puts and deletes, with their versions. [`EffectOrder`](crate::EffectOrder) reads them.
    Effects {
        /// The space of the native protocol.
        space: u16,
        /// The effects.
        effects: Effects<'a>,
    },
}

impl Section<'_> {
    /// Returns the number of operations, effects and flushes.
    pub fn count(&self) -> usize {
        match self {
            Section::Operations { operations, .. } => operations.len(),
            Section::Flush { .. } => 1,
            Section::Effects { effects, .. } => effects.len(),
        }
    }
}

impl<'a> BlockView<'a> {
    /// Returns the bytes of the block, with its header.
    pub fn size(&self) -> usize {
        HEADER_SIZE + self.sections.len()
    }

    /// Decodes the block at the start of the bytes. Returns it with its size, or `None` if it is not valid.
    pub fn decode(number: u64, bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (block, size) = Self::parse(number, bytes)?;
        let is_valid = stored_checksum(bytes) == crc32(&bytes[CRC_SIZE..size]).to_le_bytes();
        (is_valid && block.is_well_formed()).then_some((block, size))
    }

    /// Returns the block at the start of the bytes, whose checksum and sections are valid, with its size.
    pub(crate) fn parse(number: u64, bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (header, _) = Header::ref_from_prefix(bytes).ok()?;
        let size = header.size.get() as usize;
        if !(HEADER_SIZE..=BLOCK_SIZE_MAX).contains(&size) || header.floor.get() >= NUMBER_END {
            return None;
        }
        let (floor, count) = (header.floor.get(), header.count.get());
        let sections = bytes.get(HEADER_SIZE..size)?;
        Some((BlockView { number, floor, count, begins_run: false, sections }, size))
    }

    /// Returns true if the sections fill the block and have its number of operations.
    fn is_well_formed(&self) -> bool {
        let mut rest = self.sections;
        let mut count = 0_u64;
        while let Some((section, after)) = take_section(rest) {
            count += section.count() as u64;
            rest = after;
        }
        rest.is_empty() && count == u64::from(self.count)
    }

    /// Iterates over the sections, in their order.
    pub fn sections(&self) -> impl Iterator<Item = Section<'a>> + use<'a> {
        let mut rest = self.sections;
        std::iter::from_fn(move || {
            let (section, after) = take_section(rest)?;
            rest = after;
            Some(section)
        })
    }
}

/// Splits the first section off, if there is one that is valid.
fn take_section(bytes: &[u8]) -> Option<(Section<'_>, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_SIZE>()?;
    let number = u64::from_le_bytes(*number);
    let (frame, size) = RequestFrame::decode(rest).ok()??;
    let (space, rest) = (frame.space, &rest[size..]);
    match frame.sequence {
        OPERATIONS => Some((Section::Operations { now: number, space, operations: frame.operations() }, rest)),
        FLUSH => {
            let number = u32::try_from(number).ok()?;
            let (shard, shard_count) = (number as u16, (number >> 16) as u16);
            (shard < shard_count).then_some((Section::Flush { space, shard, shard_count }, rest))
        }
        EFFECTS => {
            let (effects, rest) = Effects::decode(number, frame.operations(), rest)?;
            Some((Section::Effects { space, effects }, rest))
        }
        _ => None,
    }
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
        let of = |section: Section<'a>| match section {
            Section::Operations { now, space, operations } => (space, now, operations.map(Result::unwrap).collect()),
            Section::Flush { space, shard, .. } => (space, shard.into(), vec![]),
            Section::Effects { space, effects } => {
                let effects: Vec<_> = effects.map(Result::unwrap).collect();
                (space, effects[0].0, effects.into_iter().map(|(_, request)| request).collect())
            }
        };
        block.sections().map(of).collect()
    }

    #[test]
    fn sections_return_in_their_order() {
        let delete = Request { key: b"a", operation: Operation::Delete };
        let mut writer = BlockWriter::new();
        assert!(writer.seal(7).is_none() && writer.is_empty());
        assert!(writer.append(0, 1000, &put(b"a", b"1")));
        assert!(writer.append(0, 1000, &put(b"b", b"2")));
        writer.append_flush(0, 9, 10);
        assert!(writer.append(2, 1000, &put(b"c", b"3")));
        assert!(writer.append(0, 1001, &delete));
        for (version, request) in [(5, put(b"d", b"4")), (600, delete), (599, delete)] {
            assert!(writer.append_effect(1, version, &request));
        }
        let block = writer.seal(8).unwrap();
        let (view, size) = BlockView::decode(3, block.bytes()).unwrap();
        assert_eq!((size, view.number, view.count, view.floor), (block.bytes().len(), 3, 8, 8));
        let expected = [
            (0, 1000, vec![put(b"a", b"1"), put(b"b", b"2")]),
            (0, 9, vec![]),
            (2, 1000, vec![put(b"c", b"3")]),
            (0, 1001, vec![delete]),
            (1, 5, vec![put(b"d", b"4"), delete]),
            (1, 599, vec![delete]),
        ];
        assert_eq!(content(&view), expected);
        let Some(Section::Effects { effects, .. }) = view.sections().nth(4) else { panic!("effects") };
        assert!(effects.map(|effect| effect.unwrap().0).eq([5, 600]));

        writer.reuse(block);
        assert!(writer.seal(9).is_none());
    }

    #[test]
    fn a_time_may_be_alone_in_a_block() {
        let mut writer = BlockWriter::new();
        writer.append_time(7000);
        assert!(!writer.is_empty());
        let block = writer.seal(0).unwrap();
        let (view, size) = BlockView::decode(3, block.bytes()).unwrap();
        assert_eq!((size, view.count), (block.bytes().len(), 0));
        assert_eq!(content(&view), [(0, 7000, vec![])]);
        assert!(writer.is_empty() && writer.seal(0).is_none());
    }

    #[test]
    fn a_full_frame_is_followed_by_another() {
        let mut writer = BlockWriter::new();
        let count = 70_000_u32;
        for number in 0..count {
            assert!(writer.append(0, 5, &put(&number.to_le_bytes(), b"value")));
        }
        let value = vec![1; skep_core::operation::VALUE_SIZE_MAX];
        assert!(writer.append(0, 5, &put(b"long", &value)));
        let too_long = vec![1; REQUEST_FRAME_SIZE_MAX];
        assert!(!writer.append(0, 5, &put(b"too long", &too_long)));
        assert!(writer.append(0, 5, &put(b"last", b"")));
        for number in 0..count {
            assert!(writer.append_effect(1, number.into(), &put(&number.to_le_bytes(), b"value")));
        }
        let block = writer.seal(0).unwrap();
        let (view, _) = BlockView::decode(1, block.bytes()).unwrap();
        assert_eq!((view.count, view.sections().count()), (2 * count + 2, 5));
        let all = content(&view).into_iter().flat_map(|(_, _, requests)| requests);
        assert!(
            all.take(count as usize).enumerate().all(|(number, request)| request.key == (number as u32).to_le_bytes())
        );
    }

    #[test]
    fn a_put_takes_its_key_and_value_and_little_more() {
        let mut writer = BlockWriter::new();
        for number in 0..256_u32 {
            let number = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            assert!(writer.append(0, 5, &put(&number[..5], &number[3..])));
        }
        let size = writer.seal(0).unwrap().bytes().len();
        assert!(size <= 256 * 10 + 256 * 13 / 10, "{size} bytes");
    }

    #[test]
    fn a_changed_byte_is_found() {
        let mut writer = BlockWriter::new();
        writer.append(0, 5, &put(b"key", b"value"));
        writer.append_flush(0, 1, 2);
        writer.append_effect(1, 5, &put(b"key", b"value"));
        let bytes = writer.seal(1).unwrap().bytes().to_vec();
        for offset in 0..bytes.len() {
            for mask in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[offset] ^= mask;
                assert!(BlockView::decode(1, &changed).is_none(), "byte {offset}");
            }
            assert!(BlockView::decode(1, &bytes[..offset]).is_none());
        }
    }
}
