//! The reply to an operation that changes nothing, computed from the pieces of a value.

use std::ops::Range;

use super::call_reader::CallReader;
use skep_core::function::{BitFields, count_bits, filter, find_bit, reduce};
use skep_core::operation::{Call, Digester, Filter, Reduce, digest};

/// A computation of a reply from a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Read<'a> {
    /// The value itself.
    Value,
    /// A fold of its elements.
    Reduce(&'a Reduce<'a>),
    /// The elements that pass.
    Filter(&'a Filter<'a>),
    /// A reduce or a filter by a user function that cannot fail.
    Call(&'a Call<'a>),
    /// A reply that was computed already.
    Computed(&'a [u8]),
    /// A number of eight bytes, which is known.
    Number(i64),
    /// The bytes between two positions.
    Slice(usize, usize),
    /// The number of bits between two positions that are 1.
    CountBits(usize, usize),
    /// The position of a bit.
    FindBit(BitSearch),
    /// The digest of a value of this size.
    Digest(usize),
    /// Fields of bits, which are in the bytes between two positions.
    Fields(BitFields<'a>, usize, usize),
}

/// A search for the first bit of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitSearch {
    /// The value of the bit.
    pub(super) bit: bool,
    /// The first bit of the range.
    pub(super) start: usize,
    /// The bit after the range.
    pub(super) end: usize,
    /// The reply if it is not in the range.
    pub(super) otherwise: i64,
}

impl Read<'_> {
    /// Returns the most bytes of the reply for a value of this size, but 0 for one of up to eight bytes.
    pub(crate) fn reply_size_max(self, value_size: usize) -> usize {
        match self {
            Read::Value | Read::Filter(_) => value_size,
            Read::Slice(start, end) => end - start,
            Read::Fields(fields, ..) => fields.reply_size(),
            Read::Call(call) => call.reply_size_max(value_size),
            Read::Computed(reply) => reply.len(),
            Read::Reduce(_) | Read::Number(_) | Read::CountBits(..) | Read::FindBit(_) | Read::Digest(_) => 0,
        }
    }

    /// Returns the work of reading this many bytes of a value, as bytes that could be read in that time.
    pub(crate) fn work(self, size: usize) -> usize {
        match self {
            Read::Filter(filter) => filter.predicate.work(filter.element, size),
            Read::Reduce(reduce) => reduce.fold.work(reduce.element, size),
            _ => size,
        }
    }

    /// Returns the bytes that are read of a value of this size.
    pub(crate) fn range(self, value_size: usize) -> Range<usize> {
        match self {
            Read::Value | Read::Filter(_) | Read::Reduce(_) | Read::Call(_) | Read::Digest(_) => 0..value_size,
            Read::Number(_) | Read::Computed(_) => 0..0,
            Read::Slice(start, end) | Read::Fields(_, start, end) => start..end,
            Read::CountBits(start, end) | Read::FindBit(BitSearch { start, end, .. }) => start / 8..end.div_ceil(8),
        }
    }
}

/// Computes a reply from the pieces of a value, in their order. It needs only those that have a part of [`Read::range`], and
/// of these only the bytes of the range.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    read: Read<'a>,
    /// The result so far: one element of a fold, the number of bits, or the position of the bit.
    accumulator: [u8; 8],
    is_found: bool,
    /// The digest of the pieces so far, of a value in several.
    digester: Option<Box<Digester>>,
    /// The bytes with fields so far, of a value in several pieces.
    part: Vec<u8>,
    /// What a user function has computed so far.
    call: Option<Box<CallReader<'a>>>,
}

impl<'a> Reader<'a> {
    /// Returns a reader that has read no piece.
    pub(crate) fn new(read: Read<'a>) -> Self {
        let mut accumulator = [0; 8];
        let mut call = None;
        match read {
            Read::Call(function) => call = Some(Box::new(CallReader::new(function))),
            Read::Reduce(reduce) => accumulator[..reduce.initial.len()].copy_from_slice(reduce.initial),
            Read::Number(number) | Read::FindBit(BitSearch { otherwise: number, .. }) => {
                accumulator = number.to_le_bytes();
            }
            // No piece follows.
            Read::Digest(0) => accumulator = digest(&[]).to_le_bytes(),
            _ => {}
        }
        Reader { read, accumulator, is_found: false, digester: None, part: Vec::new(), call }
    }

    /// Returns true if the reply does not depend on the pieces that follow.
    pub(crate) fn is_done(&self) -> bool {
        self.is_found
    }

    /// Reads the piece that begins at `offset`. Appends to the reply.
    pub(crate) fn read(&mut self, offset: usize, piece: &[u8], reply: &mut Vec<u8>) {
        match self.read {
            Read::Value => reply.extend_from_slice(piece),
            Read::Filter(selection) => {
                filter(selection.predicate, selection.element, selection.operand, piece, reply);
            }
            Read::Reduce(fold) => {
                let constants = fold.constants.get(offset..offset + piece.len()).unwrap_or_default();
                reduce(fold.fold, fold.element, &mut self.accumulator[..fold.initial.len()], piece, constants);
            }
            Read::Slice(start, end) => {
                let within = |position: usize| position.clamp(offset, offset + piece.len()) - offset;
                reply.extend_from_slice(&piece[within(start)..within(end)]);
            }
            Read::CountBits(start, end) => {
                let bits = bits_within(start..end, offset, piece);
                let count = u64::from_le_bytes(self.accumulator) + count_bits(piece, bits) as u64;
                self.accumulator = count.to_le_bytes();
            }
            Read::FindBit(BitSearch { bit, start, end, .. }) => {
                if !self.is_found
                    && let Some(at) = find_bit(piece, bits_within(start..end, offset, piece), bit)
                {
                    self.accumulator = ((offset * 8 + at) as u64).to_le_bytes();
                    self.is_found = true;
                }
            }
            Read::Digest(size) if piece.len() == size => self.accumulator = digest(piece).to_le_bytes(),
            Read::Digest(_) => self.digester.get_or_insert_with(|| Box::new(Digester::new())).add(piece),
            Read::Fields(fields, start, end) if offset <= start && end <= offset + piece.len() => {
                fields.read(start, &piece[start - offset..end - offset], reply);
                self.is_found = true;
            }
            Read::Fields(_, start, end) => {
                let within = |position: usize| position.clamp(offset, offset + piece.len()) - offset;
                self.part.extend_from_slice(&piece[within(start)..within(end)]);
            }
            Read::Call(_) => {
                let result = self.call.as_mut().map(|call| call.read(offset, piece, reply));
                debug_assert_eq!(result, Some(Ok(())), "the function cannot fail");
            }
            Read::Number(_) | Read::Computed(_) => {}
        }
    }

    /// Appends the end of the reply, after the last piece.
    pub(crate) fn finish(&self, reply: &mut Vec<u8>) {
        match self.read {
            Read::Reduce(fold) => reply.extend_from_slice(&self.accumulator[..fold.initial.len()]),
            Read::Number(_) | Read::CountBits(..) | Read::FindBit(_) => reply.extend_from_slice(&self.accumulator),
            Read::Computed(computed) => reply.extend_from_slice(computed),
            Read::Call(_) => {
                if let Some(call) = &self.call {
                    call.finish(reply);
                }
            }
            Read::Digest(_) => match &self.digester {
                Some(digester) => reply.extend_from_slice(&digester.finish().to_le_bytes()),
                None => reply.extend_from_slice(&self.accumulator),
            },
            Read::Fields(fields, start, _) if !self.is_found => fields.read(start, &self.part, reply),
            Read::Value | Read::Filter(_) | Read::Slice(..) | Read::Fields(..) => {}
        }
    }
}

/// Returns the bits of a range that are in the piece that begins at `offset`, by their positions in it.
fn bits_within(range: Range<usize>, offset: usize, piece: &[u8]) -> Range<usize> {
    let (begin, end) = (offset * 8, (offset + piece.len()) * 8);
    range.start.clamp(begin, end) - begin..range.end.clamp(begin, end) - begin
}
