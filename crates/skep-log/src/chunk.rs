//! The chunk: pairs of a part of the store, as a walk over it found them, and when each step of the walk took place.
//!
//! ```text
//! 0     8       12        14      16     20       24         32           36      40          42
//! | crc | magic | version | shard | size | number | snapshot | step count | pairs | from size | ...
//!   u64   "SKch"  u16       u16     u32    u32      u64        u32          u32     u16
//!
//!     42
//! ... | from | step | step | ... | frame | frame | ... | zeros to 4096 |
//!
//! step    0      8       12         14         frame: a native request frame of puts
//!         | mark | pairs | end size | end |
//!           u64    u32     u16
//! ```
//!
//! - *crc*: CRC-64/NVME of all bytes after it, up to the size.
//! - *shard*: the shard; 65535 for the ordered space.
//! - *number*: the chunks of a file have the numbers 0, 1, 2, and so on. *snapshot* is the number of the snapshot.
//! - *from*, *end*: the bounds at which the chunk begins and the step ends; the end is not in the step. At the begin and
//!   the end of the space both are empty. In a shard a bound is a position, with its most significant byte first; in
//!   the ordered space it is a key. So bounds are compared as bytes.
//! - *mark* of a shard: number of the last block that was sealed before the step; 0 if none. The shard's own block was
//!   sealed just before it. *mark* of the ordered space: the version at which the step was read. Marks never
//!   decrease, except that of the last step of the ordered space, which has no pairs: it is the range above the walk.
//! - *pairs*: pairs of the chunk and of the step.
//!
//! A **position** is the secret hash of a key, under the seed of its shard when the snapshot was taken. The walk goes
//! over home buckets, whose number depends on the memory and the pairs. The hash does not, and the buckets are in its order.
//!
//! A pair that expires is written by `StringWrite::Set` with its expiry, another one by a put.
//!
//! **Why a chunk is exact.** Steps run between batches. So a step of a shard has the pairs of its positions as they were
//! after its block, and all later operations on them are in later blocks. [`Boundary`](crate::Boundary) says which
//! operations are applied to them.

use skep_core::operation::{Expiry, Operation, Request};
use skep_wire::native::{
    HASH_SPACE, ORDERED_SPACE, REQUEST_FRAME_SIZE_MAX, RequestFrame, RequestFrameEncoder, WireError,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc64;
use crate::pages::Pages;
use crate::{VERSION, is_readable};

const MAGIC: [u8; 4] = *b"SKch";
/// The shard of a chunk of the ordered space.
const ORDERED: u16 = u16::MAX;

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
    step_count: U32,
    pairs: U32,
    from_size: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct StepHeader {
    mark: U64,
    pairs: U32,
    end_size: U16,
}

const HEADER_SIZE: usize = size_of::<Header>();
const CRC_END: usize = 8;
const _: () = assert!(HEADER_SIZE == 42 && size_of::<StepHeader>() == 14);

/// The part of the store that a file of a snapshot contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotPart {
    /// A shard of the hash space.
    Shard(u16),
    /// The ordered space.
    Ordered,
}

impl SnapshotPart {
    fn code(self) -> u16 {
        match self {
            SnapshotPart::Shard(shard) => shard,
            SnapshotPart::Ordered => ORDERED,
        }
    }

    fn space(self) -> u16 {
        match self {
            SnapshotPart::Shard(_) => HASH_SPACE,
            SnapshotPart::Ordered => ORDERED_SPACE,
        }
    }
}

/// A step of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// The first bound after it: a key, or a position with its most significant byte first. Empty at the end.
    pub end: &'a [u8],
    /// The last block that was sealed before it, or the version at which it was read.
    pub mark: u64,
    /// Its pairs.
    pub pairs: u32,
}

impl Step<'_> {
    /// Returns true if the step may be the range that the walk over the ordered space has not reached.
    pub(crate) fn is_above_walk(&self, part: SnapshotPart) -> bool {
        part == SnapshotPart::Ordered && self.end.is_empty() && self.pairs == 0
    }

    /// Returns the last position of a step of a shard. Returns `None` if its end is not a position.
    pub fn last_position(&self) -> Option<u64> {
        if self.end.is_empty() {
            return Some(u64::MAX);
        }
        u64::from_be_bytes(self.end.try_into().ok()?).checked_sub(1)
    }
}

/// Returns the last position of a step before `next`, which is the position with which the next step of the walk begins, or
/// `None` after the last one.
///
/// # Panics
/// If the next position is the first one: no step ends before it.
pub fn last_position(next: Option<u64>) -> u64 {
    next.map_or(u64::MAX, |next| next.checked_sub(1).expect("a step returns at least one bucket"))
}

/// Writes the chunks of one part of the store.
#[derive(Debug)]
pub struct ChunkWriter {
    snapshot: u64,
    part: SnapshotPart,
    number: u32,
    from: Vec<u8>,
    /// The steps that are complete, and the mark and pairs of the one after them, if a step with this mark has ended.
    steps: Vec<u8>,
    step_count: u32,
    open: Option<(u64, u32)>,
    /// End of the last step.
    end: Vec<u8>,
    frames: Vec<u8>,
    frame: Option<RequestFrameEncoder>,
    pairs: u32,
    pairs_of_step: u32,
}

impl ChunkWriter {
    /// Returns the writer of the chunks of a part.
    pub fn new(snapshot: u64, part: SnapshotPart) -> Self {
        ChunkWriter {
            snapshot,
            part,
            number: 0,
            from: Vec::new(),
            steps: Vec::new(),
            step_count: 0,
            open: None,
            end: Vec::new(),
            frames: Vec::new(),
            frame: None,
            pairs: 0,
            pairs_of_step: 0,
        }
    }

    /// Returns the number of the snapshot.
    pub fn snapshot(&self) -> u64 {
        self.snapshot
    }

    /// Returns the part of the store.
    pub fn part(&self) -> SnapshotPart {
        self.part
    }

    /// Appends a pair of the current step.
    pub fn push(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) {
        let request = Request { key, operation: Operation::put(value, expiry.into()) };
        self.pairs += 1;
        self.pairs_of_step += 1;
        if let Some(frame) = &mut self.frame
            && frame.push(&mut self.frames, &request)
        {
            return;
        }
        self.finish_frame();
        let mut frame = RequestFrameEncoder::begin(&mut self.frames, 0, self.part.space(), REQUEST_FRAME_SIZE_MAX);
        assert!(frame.push(&mut self.frames, &request), "a frame has room for each pair");
        self.frame = Some(frame);
    }

    /// Ends a step of a shard: its pairs are those of the positions up to `to` ([`last_position`]) as they were when the
    /// block with this number was the last one that any thread had sealed. The shard's own block was sealed just before.
    pub fn end_step(&mut self, to: u64, block: u64) {
        debug_assert!(self.part != SnapshotPart::Ordered);
        match to.checked_add(1) {
            Some(next) => self.end_at(&next.to_be_bytes(), block),
            None => self.end_at(&[], block),
        }
    }

    /// Ends a step of the ordered space: its pairs are those of the keys before `end`, or of all later keys, at this
    /// version. The last step has no pairs. It is the range above the walk, which is as it was when the walk began, so its
    /// version may be lower than those before it.
    pub fn end_ordered_step(&mut self, end: Option<&[u8]>, version: u64) {
        debug_assert!(self.part == SnapshotPart::Ordered && end.is_none_or(|end| !end.is_empty()));
        self.end_at(end.unwrap_or_default(), version);
    }

    fn end_at(&mut self, end: &[u8], mark: u64) {
        let pairs = std::mem::take(&mut self.pairs_of_step);
        match &mut self.open {
            // Steps with one mark are one step.
            Some((of_open, pairs_of_open)) if *of_open == mark => *pairs_of_open += pairs,
            _ => {
                self.write_step();
                self.open = Some((mark, pairs));
            }
        }
        self.end.clear();
        self.end.extend_from_slice(end);
    }

    fn write_step(&mut self) {
        if let Some((mark, pairs)) = self.open.take() {
            let end_size = u16::try_from(self.end.len()).expect("a key is shorter than 64 KiB");
            let header = StepHeader { mark: mark.into(), pairs: pairs.into(), end_size: end_size.into() };
            self.steps.extend_from_slice(header.as_bytes());
            self.steps.extend_from_slice(&self.end);
            self.step_count += 1;
        }
    }

    /// Returns the bytes of the chunk so far. A chunk is written when it has about 1 MiB.
    pub fn size(&self) -> usize {
        HEADER_SIZE + self.from.len() + self.steps.len() + self.frames.len()
    }

    /// Writes the chunk into a buffer, after a step has ended, and begins the next chunk. Returns false, and writes
    /// nothing, if no step has ended since the last chunk.
    pub fn finish(&mut self, pages: &mut Pages) -> bool {
        debug_assert!(self.pairs_of_step == 0, "a step has ended");
        if self.open.is_none() {
            return false;
        }
        self.write_step();
        self.finish_frame();
        let header = Header {
            crc: 0.into(),
            magic: MAGIC,
            version: VERSION.into(),
            shard: self.part.code().into(),
            size: u32::try_from(self.size()).expect("a chunk is shorter than 4 GiB").into(),
            number: self.number.into(),
            snapshot: self.snapshot.into(),
            step_count: self.step_count.into(),
            pairs: self.pairs.into(),
            from_size: (self.from.len() as u16).into(),
        };
        pages.clear();
        pages.extend(header.as_bytes());
        pages.extend(&self.from);
        pages.extend(&self.steps);
        pages.extend(&self.frames);
        set_checksum(pages.bytes_mut());
        pages.padded();
        self.steps.clear();
        self.frames.clear();
        (self.step_count, self.pairs) = (0, 0);
        self.number += 1;
        self.from.clone_from(&self.end);
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
    /// The part of the store.
    pub part: SnapshotPart,
    /// Number of the chunk in its file, from 0.
    pub number: u32,
    /// Its first bound.
    pub from: &'a [u8],
    /// Its pairs.
    pub pairs: u32,
    /// Its checksum.
    pub crc: u64,
    /// Its bytes, without the zeros after it.
    pub size: usize,
    step_count: u32,
    steps: &'a [u8],
    frames: &'a [u8],
}

/// Returns the size that a header at the start of the bytes states.
pub(crate) fn stated_size(bytes: &[u8]) -> Option<usize> {
    let (header, _) = Header::ref_from_prefix(bytes).ok()?;
    (header.magic == MAGIC).then_some(header.size.get() as usize)
}

/// Splits a step off.
fn take_step(bytes: &[u8]) -> Option<(Step<'_>, &[u8])> {
    let (header, rest) = StepHeader::ref_from_prefix(bytes).ok()?;
    let (end, rest) = rest.split_at_checked(header.end_size.get().into())?;
    Some((Step { end, mark: header.mark.get(), pairs: header.pairs.get() }, rest))
}

impl<'a> Chunk<'a> {
    /// Decodes the chunk at the start of the bytes. Returns `None` if it is not valid.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let bytes = bytes.get(..stated_size(bytes)?)?;
        let (header, rest) = Header::ref_from_prefix(bytes).ok()?;
        if !is_readable(header.version.get()) || header.crc.get() != crc64(&bytes[CRC_END..]) {
            return None;
        }
        let (from, rest) = rest.split_at_checked(header.from_size.get().into())?;
        let part = match header.shard.get() {
            ORDERED => SnapshotPart::Ordered,
            shard => SnapshotPart::Shard(shard),
        };
        let chunk = Chunk {
            snapshot: header.snapshot.get(),
            part,
            number: header.number.get(),
            from,
            pairs: header.pairs.get(),
            crc: header.crc.get(),
            size: bytes.len(),
            step_count: header.step_count.get(),
            steps: rest,
            frames: &[],
        };
        chunk.with_frames()
    }

    /// Finds the frames after the steps. Returns `None` unless the steps are in their order, and the frames fill the
    /// chunk and have its number of pairs.
    fn with_frames(mut self) -> Option<Self> {
        let (mut rest, mut from, mut mark, mut pairs) = (self.steps, self.from, 0, 0_u64);
        for number in 0..self.step_count {
            let (step, after) = take_step(rest)?;
            let is_last = number + 1 == self.step_count;
            let is_in_order = if step.end.is_empty() { is_last } else { step.end > from };
            if !is_in_order || step.mark < mark && !step.is_above_walk(self.part) {
                return None;
            }
            (rest, from, mark) = (after, step.end, step.mark);
            pairs += u64::from(step.pairs);
        }
        self.frames = rest;
        let mut operations = 0_u64;
        while let Ok(Some((frame, size))) = RequestFrame::decode(rest) {
            operations += u64::from(frame.count);
            rest = &rest[size..];
        }
        let is_whole = rest.is_empty() && self.step_count > 0 && [pairs, operations] == [u64::from(self.pairs); 2];
        is_whole.then_some(self)
    }

    /// Iterates over the steps, in the order of their bounds.
    pub fn steps(&self) -> impl Iterator<Item = Step<'a>> + use<'a> {
        let mut rest = self.steps;
        (0..self.step_count).map_while(move |_| {
            let (step, after) = take_step(rest)?;
            rest = after;
            Some(step)
        })
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
    use skep_core::operation::{ExpiryChange, PutCondition, StringWrite};

    use super::*;

    #[test]
    fn pairs_and_steps_return_and_each_changed_byte_is_found() {
        let mut writer = ChunkWriter::new(9, SnapshotPart::Shard(2));
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
        let part = SnapshotPart::Shard(2);
        assert_eq!((chunk.snapshot, chunk.part, chunk.number, chunk.from, chunk.pairs), (9, part, 0, &[][..], 3));
        let steps: Vec<Step<'_>> = chunk.steps().collect();
        let of_step = |step: &Step<'_>| (step.last_position(), step.mark, step.pairs);
        assert_eq!([of_step(&steps[0]), of_step(&steps[1])], [(Some(20), 5, 2), (Some(1000), 6, 1)]);
        assert_eq!(steps.len(), 2);
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
        assert_eq!((chunk.number, chunk.from, chunk.pairs), (1, &1001_u64.to_be_bytes()[..], 0));
        assert_eq!(chunk.steps().next().unwrap().last_position(), Some(u64::MAX));
    }

    #[test]
    fn steps_of_the_ordered_space_end_at_keys() {
        let mut writer = ChunkWriter::new(9, SnapshotPart::Ordered);
        let mut pages = Pages::default();
        for (key, end, version) in [(b"a", Some(&b"b"[..]), 5), (b"b", Some(b"c"), 5), (b"c", None, 8)] {
            writer.push(key, b"value", None);
            writer.end_ordered_step(end, version);
        }
        assert!(writer.finish(&mut pages));
        let chunk = Chunk::decode(pages.bytes()).unwrap();
        assert_eq!((chunk.part, chunk.pairs), (SnapshotPart::Ordered, 3));
        assert!(chunk.steps().eq([Step { end: b"c", mark: 5, pairs: 2 }, Step { end: b"", mark: 8, pairs: 1 }]));
    }

    #[test]
    fn only_the_range_above_the_walk_may_have_an_earlier_version() {
        let is_valid = |end: Option<&[u8]>, has_pair: bool| {
            let (mut writer, mut pages) = (ChunkWriter::new(9, SnapshotPart::Ordered), Pages::default());
            writer.push(b"a", b"value", None);
            writer.end_ordered_step(Some(b"b"), 8);
            if has_pair {
                writer.push(b"b", b"value", None);
            }
            writer.end_ordered_step(end, 5);
            assert!(writer.finish(&mut pages));
            Chunk::decode(pages.bytes()).is_some()
        };
        assert!(is_valid(None, false));
        assert!(!is_valid(None, true) && !is_valid(Some(b"c"), false));
    }
}
