//! The chunk: pairs of a part of a shard, as a walk over its hash table found them, and the last block executed before
//! each step of the walk.
//!
//! ```text
//! 0     8       12        14      16     20       24         32     40           44      48
//! | crc | magic | version | shard | size | number | snapshot | from | step count | pairs | ...
//!   u64   "SKch"  u16       u16     u32    u32      u64        u64    u32          u32
//!
//!     48
//! ... | step | step | ... | frame | frame | ... | zeros to 4096 |
//!
//! step    0    8       16     24          frame: a native request frame of puts
//!         | to | block | pairs |
//!           u64  u64     u64
//! ```
//!
//! - *crc*: CRC-64/NVME of all bytes after it, up to the size.
//! - *number*: the chunks of a file have the numbers 0, 1, 2, and so on. *snapshot* is the number of the snapshot.
//! - *from*, *to*: the first position of the chunk, and the last position of the step.
//! - *block*: index of the last block that the shard had executed before the step; 0 if none.
//! - *pairs*: pairs of the chunk and of the step.
//!
//! A **position** is the secret hash of a key, under the seed of its shard when the snapshot was taken. The walk goes
//! over home buckets, whose number depends on the memory. The hash does not, and the buckets are in its order: a bucket
//! is `(hash · buckets) >> 64`. [`last_position`] converts.
//!
//! A pair that expires is written by `StringWrite::Set` with its expiry, another one by a put.
//!
//! **Why a chunk is exact.** Steps run between batches. So a step has the pairs of its positions as they were after its
//! block. [`Boundary`](crate::Boundary) says which later operations are applied to them.

use skep_core::operation::{
    Condition, ConditionKind, Expiry, ExpiryChange, Operation, PutCondition, Request, StringWrite,
};
use skep_wire::native::{HASH_SPACE, REQUEST_FRAME_SIZE_MAX, RequestFrame, RequestFrameEncoder, WireError};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::VERSION;
use crate::checksum::crc64;
use crate::pages::Pages;

const MAGIC: [u8; 4] = *b"SKch";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    crc: U64,
    magic: [u8; 4],
    version: U16,
    shard: U16,
    size: U32,
    number: U32,
    snapshot: U64,
    from: U64,
    step_count: U32,
    pairs: U32,
}

#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct StoredStep {
    to: U64,
    block: U64,
    pairs: U64,
}

const HEADER_SIZE: usize = size_of::<Header>();
const CRC_END: usize = 8;
const _: () = assert!(HEADER_SIZE == 48 && size_of::<StoredStep>() == 24);

/// A step of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its last position.
    pub to: u64,
    /// The last block that the shard had executed before it; 0 if none.
    pub block: u64,
    /// Its pairs.
    pub pairs: u64,
}

/// Returns the last position of the home buckets before `next`, which is the bucket with which the next step of the
/// walk begins, or `None` after the last one. The index has `buckets` home buckets.
///
/// # Panics
/// If the next bucket is the first one: no step ends before it.
pub fn last_position(next: Option<u32>, buckets: u32) -> u64 {
    let Some(next) = next.filter(|&next| next < buckets) else { return u64::MAX };
    assert!(next > 0, "a step returns at least one bucket");
    // The first hash of bucket b is the smallest h with h · buckets ≥ b · 2⁶⁴.
    let first = (u128::from(next) << 64).div_ceil(u128::from(buckets));
    (first - 1) as u64
}

/// Writes the chunks of one shard.
#[derive(Debug)]
pub struct ChunkWriter {
    snapshot: u64,
    shard: u16,
    number: u32,
    from: u64,
    steps: Vec<StoredStep>,
    frames: Vec<u8>,
    frame: Option<RequestFrameEncoder>,
    pairs: u32,
    pairs_of_step: u64,
}

impl ChunkWriter {
    /// Returns the writer of a shard's chunks.
    pub fn new(snapshot: u64, shard: u16) -> Self {
        ChunkWriter {
            snapshot,
            shard,
            number: 0,
            from: 0,
            steps: Vec::new(),
            frames: Vec::new(),
            frame: None,
            pairs: 0,
            pairs_of_step: 0,
        }
    }

    /// Appends a pair of the current step.
    pub fn push(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) {
        let operation = match expiry {
            None => Operation::Put { value, condition: PutCondition::Always },
            Some(expiry) => Operation::StringWrite(StringWrite::Set {
                value,
                condition: Condition { kind: ConditionKind::Always, operand: &[] },
                expiry: ExpiryChange::set(expiry),
                return_old: false,
            }),
        };
        let request = Request { key, operation };
        self.pairs += 1;
        self.pairs_of_step += 1;
        if let Some(frame) = &mut self.frame
            && frame.push(&mut self.frames, &request)
        {
            return;
        }
        self.finish_frame();
        let mut frame = RequestFrameEncoder::begin(&mut self.frames, 0, HASH_SPACE, REQUEST_FRAME_SIZE_MAX);
        assert!(frame.push(&mut self.frames, &request), "a frame has room for each pair");
        self.frame = Some(frame);
    }

    /// Ends a step: its pairs are those of the positions up to `to` ([`last_position`]) as they were after the shard
    /// had executed the block with this index.
    pub fn end_step(&mut self, to: u64, block: u64) {
        let step = StoredStep { to: to.into(), block: block.into(), pairs: self.pairs_of_step.into() };
        match self.steps.last_mut() {
            // Steps without a block between them are one step.
            Some(last) if last.block == step.block => {
                last.pairs = (last.pairs.get() + step.pairs.get()).into();
                last.to = step.to;
            }
            _ => self.steps.push(step),
        }
        self.pairs_of_step = 0;
    }

    /// Returns the bytes of the chunk so far. A chunk is written when it has about 1 MiB.
    pub fn size(&self) -> usize {
        HEADER_SIZE + self.steps.len() * size_of::<StoredStep>() + self.frames.len()
    }

    /// Writes the chunk into a buffer, after a step has ended, and begins the next chunk. Returns false, and writes
    /// nothing, if no step has ended since the last chunk.
    pub fn finish(&mut self, pages: &mut Pages) -> bool {
        debug_assert!(self.pairs_of_step == 0, "a step has ended");
        let Some(last) = self.steps.last() else { return false };
        let to = last.to.get();
        self.finish_frame();
        let header = Header {
            crc: 0.into(),
            magic: MAGIC,
            version: VERSION.into(),
            shard: self.shard.into(),
            size: u32::try_from(self.size()).expect("a chunk is shorter than 4 GiB").into(),
            number: self.number.into(),
            snapshot: self.snapshot.into(),
            from: self.from.into(),
            step_count: (self.steps.len() as u32).into(),
            pairs: self.pairs.into(),
        };
        pages.clear();
        pages.extend(header.as_bytes());
        pages.extend(self.steps.as_bytes());
        pages.extend(&self.frames);
        set_checksum(pages.bytes_mut());
        pages.padded();
        self.steps.clear();
        self.frames.clear();
        self.pairs = 0;
        self.number += 1;
        self.from = to.wrapping_add(1);
        true
    }

    fn finish_frame(&mut self) {
        if let Some(frame) = self.frame.take() {
            frame.finish(&mut self.frames);
        }
    }
}

/// A valid chunk that was read.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Number of the snapshot.
    pub snapshot: u64,
    /// The shard.
    pub shard: u16,
    /// Number of the chunk in its file, from 0.
    pub number: u32,
    /// Its first position.
    pub from: u64,
    /// Its pairs.
    pub pairs: u32,
    /// Its checksum.
    pub crc: u64,
    /// Its bytes, without the zeros after it.
    pub size: usize,
    steps: &'a [StoredStep],
    frames: &'a [u8],
}

/// Returns the size that a header at the start of the bytes states.
pub(crate) fn stated_size(bytes: &[u8]) -> Option<usize> {
    let (header, _) = Header::ref_from_prefix(bytes).ok()?;
    (header.magic == MAGIC).then_some(header.size.get() as usize)
}

impl<'a> Chunk<'a> {
    /// Decodes the chunk at the start of the bytes. Returns `None` if it is not valid.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let bytes = bytes.get(..stated_size(bytes)?)?;
        let (header, rest) = Header::ref_from_prefix(bytes).ok()?;
        if header.version.get() != VERSION || header.crc.get() != crc64(&bytes[CRC_END..]) {
            return None;
        }
        let (steps, frames) =
            <[StoredStep]>::ref_from_prefix_with_elems(rest, header.step_count.get() as usize).ok()?;
        let chunk = Chunk {
            snapshot: header.snapshot.get(),
            shard: header.shard.get(),
            number: header.number.get(),
            from: header.from.get(),
            pairs: header.pairs.get(),
            crc: header.crc.get(),
            size: bytes.len(),
            steps,
            frames,
        };
        chunk.is_well_formed().then_some(chunk)
    }

    /// Returns true if the steps are in their order, and the frames fill the chunk and have its number of pairs.
    fn is_well_formed(&self) -> bool {
        let mut next = Some(self.from);
        let mut block = 0;
        let mut pairs = 0_u64;
        for step in self.steps() {
            if next.is_none_or(|next| step.to < next) || step.block < block {
                return false;
            }
            next = step.to.checked_add(1);
            block = step.block;
            pairs = pairs.saturating_add(step.pairs);
        }
        let mut rest = self.frames;
        let mut operations = 0_u64;
        while let Ok(Some((frame, size))) = RequestFrame::decode(rest) {
            operations += u64::from(frame.count);
            rest = &rest[size..];
        }
        rest.is_empty() && !self.steps.is_empty() && [pairs, operations] == [u64::from(self.pairs); 2]
    }

    /// Iterates over the steps, in the order of their positions.
    pub fn steps(&self) -> impl Iterator<Item = Step> + use<'a> {
        let step = |step: &StoredStep| Step { to: step.to.get(), block: step.block.get(), pairs: step.pairs.get() };
        self.steps.iter().map(step)
    }

    /// Iterates over the pairs, as requests that put them.
    pub fn requests(&self) -> impl Iterator<Item = Result<Request<'a>, WireError>> + use<'a> {
        let mut rest = self.frames;
        let frames = std::iter::from_fn(move || {
            let (frame, size) = RequestFrame::decode(rest).ok()??;
            rest = &rest[size..];
            Some(frame)
        });
        frames.flat_map(|frame| frame.operations())
    }
}

/// Writes a valid checksum into a chunk.
pub(crate) fn set_checksum(bytes: &mut [u8]) {
    if bytes.len() >= HEADER_SIZE {
        let size = stated_size(bytes).unwrap_or(bytes.len()).clamp(HEADER_SIZE, bytes.len());
        let crc = crc64(&bytes[CRC_END..size]);
        bytes[..CRC_END].copy_from_slice(&crc.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_and_steps_return_and_each_changed_byte_is_found() {
        let mut writer = ChunkWriter::new(9, 2);
        let mut pages = Pages::default();
        assert!(!writer.finish(&mut pages));
        writer.push(b"a", b"1", None);
        writer.push(b"b", b"2", Expiry::at(77));
        writer.end_step(10, 5);
        writer.end_step(20, 5);
        writer.push(b"c", b"", None);
        writer.end_step(1000, 6);
        assert!(writer.finish(&mut pages));
        let chunk = Chunk::decode(pages.bytes()).unwrap();
        assert_eq!((chunk.snapshot, chunk.shard, chunk.number, chunk.from, chunk.pairs), (9, 2, 0, 0, 3));
        assert!(chunk.steps().eq([Step { to: 20, block: 5, pairs: 2 }, Step { to: 1000, block: 6, pairs: 1 }]));
        let requests: Vec<Request<'_>> = chunk.requests().map(|request| request.unwrap()).collect();
        let put = |value| Operation::Put { value, condition: PutCondition::Always };
        assert_eq!((requests[0].key, requests[0].operation), (b"a".as_slice(), put(b"1")));
        assert!(matches!(requests[1].operation, Operation::StringWrite(StringWrite::Set { value: b"2", expiry, .. })
            if expiry == ExpiryChange::set(Expiry::at(77).unwrap())));
        assert_eq!((requests[2].key, requests[2].operation), (b"c".as_slice(), put(b"")));

        let bytes = pages.bytes().to_vec();
        for offset in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[offset] ^= 4;
            assert!(Chunk::decode(&changed).is_none(), "byte {offset}");
            assert!(Chunk::decode(&bytes[..offset]).is_none());
        }
        writer.end_step(u64::MAX, 8);
        assert!(writer.finish(&mut pages));
        let chunk = Chunk::decode(pages.bytes()).unwrap();
        assert_eq!((chunk.number, chunk.from, chunk.pairs), (1, 1001, 0));
    }

    #[test]
    fn positions_separate_the_buckets() {
        let bucket = |hash: u64, buckets: u32| ((u128::from(hash) * u128::from(buckets)) >> 64) as u32;
        for buckets in [1, 2, 3, 7, 64, 1000, 12_345_677, u32::MAX] {
            for next in [1, 2, buckets / 3, buckets / 2, buckets - 1] {
                if next == 0 || next >= buckets {
                    continue;
                }
                let last = last_position(Some(next), buckets);
                assert_eq!((bucket(last, buckets), bucket(last + 1, buckets)), (next - 1, next), "{next} of {buckets}");
            }
            assert_eq!([last_position(None, buckets), last_position(Some(buckets), buckets)], [u64::MAX; 2]);
        }
    }
}
