//! Names and sizes in the memory of nodes: LIDs, frame numbers, and the units in which frames are measured.

use std::num::NonZeroU32;

/// Bytes that frame numbers count in.
pub(crate) const GRANULE_SIZE: usize = 512;
/// Granules of the largest frame.
pub(crate) const GRANULE_MAX: usize = 16;
/// Bytes of the largest frame.
pub(crate) const FRAME_SIZE_MAX: usize = GRANULE_MAX * GRANULE_SIZE;
/// The region's first granules are never handed out, so that zero is no frame's number.
pub(crate) const GRANULES_UNUSED: u32 = GRANULE_MAX as u32;
/// Granules of a chunk.
pub(crate) const CHUNK_GRANULES: u32 = 512;

/// A logical id: the name of a node for as long as its range of keys is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lid(u32);

impl Lid {
    /// Bytes of a LID in a node: the paper's six without two that are zero, since page tables end at 2³² nodes.
    pub(crate) const SIZE: usize = 4;
    /// The root, whatever its frame and level.
    pub(crate) const ROOT: Lid = Lid(0);
    /// In the place of a sibling that does not exist.
    const NONE: u64 = (1 << 48) - 1;

    pub(crate) fn new(index: u32) -> Self {
        Lid(index)
    }

    /// Its place in the page table.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }

    pub(crate) fn to_bytes(self) -> [u8; Lid::SIZE] {
        self.0.to_le_bytes()
    }

    #[inline]
    pub(crate) fn from_bytes(bytes: [u8; Lid::SIZE]) -> Self {
        Lid(u32::from_le_bytes(bytes))
    }

    /// The word of a sibling.
    #[inline]
    pub(crate) fn to_word(sibling: Option<Lid>) -> u64 {
        sibling.map_or(Lid::NONE, |lid| u64::from(lid.0))
    }

    #[inline]
    pub(crate) fn from_word(word: u64) -> Option<Lid> {
        (word != Lid::NONE).then_some(Lid(word as u32))
    }
}

/// Where a frame begins, in granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrameNumber(NonZeroU32);

impl FrameNumber {
    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0.get()
    }

    /// For what was written with [`FrameNumber::bits`].
    #[inline]
    pub(crate) fn from_bits(bits: NonZeroU32) -> Self {
        FrameNumber(bits)
    }

    #[inline]
    pub(crate) fn byte_offset(self) -> usize {
        self.0.get() as usize * GRANULE_SIZE
    }
}
