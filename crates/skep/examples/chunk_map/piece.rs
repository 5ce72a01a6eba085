//! The pieces of a file, their bytes in a map, and how a write changes them.

use std::ops::Range;

/// A part of a chunk, at an offset of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) chunk: u64,
    /// Bytes of the chunk before the part.
    pub(crate) skip: u32,
    pub(crate) size: u32,
}

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        self.offset + u64::from(self.size)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.chunk.to_be_bytes()[..], &self.skip.to_be_bytes(), &self.size.to_be_bytes()].concat()
    }

    pub(crate) fn decode(offset: &[u8], bytes: &[u8]) -> Option<Piece> {
        let offset = u64::from_be_bytes(offset.try_into().ok()?);
        let (chunk, sizes) = bytes.split_first_chunk()?;
        let (skip, size) = sizes.split_first_chunk()?;
        let [skip, size] = [*skip, size.try_into().ok()?].map(u32::from_be_bytes);
        Some(Piece { offset, chunk: u64::from_be_bytes(*chunk), skip, size })
    }
}

/// Returns the pieces that replace `old` when the bytes of a range become those of a new chunk. The range begins in the
/// first of them and ends in the last one.
pub(crate) fn replaced(old: &[Piece], range: Range<u64>, chunk: u64) -> Vec<Piece> {
    let new = Piece { offset: range.start, chunk, skip: 0, size: (range.end - range.start) as u32 };
    let first = old.first().filter(|first| first.offset < range.start);
    let first = first.map(|first| Piece { size: (range.start - first.offset) as u32, ..*first });
    let last = old.last().filter(|last| last.end() > range.end).map(|last| {
        let cut = (range.end - last.offset) as u32;
        Piece { offset: range.end, skip: last.skip + cut, size: last.size - cut, ..*last }
    });
    first.into_iter().chain([new]).chain(last).collect()
}

/// Returns the entries of a table that have bytes of a range.
pub(crate) fn overlap(table: &[Piece], range: &Range<u64>) -> Range<usize> {
    let first = table.partition_point(|piece| piece.end() <= range.start);
    first..table.partition_point(|piece| piece.offset < range.end)
}

pub(crate) fn encode_table(table: &[Piece]) -> Vec<u8> {
    table.iter().flat_map(|piece| [&piece.offset.to_be_bytes()[..], &piece.encode()].concat()).collect()
}

pub(crate) fn decode_table(bytes: &[u8]) -> Result<Vec<Piece>, String> {
    let pieces = bytes.chunks(24).map(|entry| Piece::decode(entry.get(..8)?, entry.get(8..)?));
    pieces.collect::<Option<Vec<_>>>().ok_or("the table has another form".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Piece, replaced};

    #[test]
    fn a_write_cuts_the_pieces_at_its_ends() {
        let piece = |offset, chunk, skip, size| Piece { offset, chunk, skip, size };
        let old = [piece(0, 1, 0, 10), piece(10, 2, 5, 10), piece(20, 3, 0, 10)];
        assert_eq!(replaced(&old, 4..23, 9), [piece(0, 1, 0, 4), piece(4, 9, 0, 19), piece(23, 3, 3, 7)]);
        assert_eq!(replaced(&old, 0..30, 9), [piece(0, 9, 0, 30)]);
        assert_eq!(replaced(&old[1..2], 12..15, 9), [piece(10, 2, 5, 2), piece(12, 9, 0, 3), piece(15, 2, 10, 5)]);
    }
}
