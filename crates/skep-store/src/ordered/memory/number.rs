//! Numbers and sizes in the memory of nodes: LIDs, frame numbers, and the allocation unit in which frames are measured.

use std::num::NonZeroU32;

/// Bytes of an allocation unit. Frame numbers count these units.
pub(crate) const UNIT_512_SIZE: usize = 512;
/// Most units of a frame.
pub(crate) const FRAME_UNITS_MAX: usize = 16;
/// Most bytes of a frame.
pub(crate) const FRAME_SIZE_MAX: usize = FRAME_UNITS_MAX * UNIT_512_SIZE;
/// Number of units at the start of the region that are never allocated, so that no frame has the number zero.
pub(crate) const UNITS_UNUSED: u32 = FRAME_UNITS_MAX as u32;
/// Units of a chunk.
pub(crate) const CHUNK_UNITS: u32 = 512;

/// A logical id: it identifies a node as long as its key range stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lid(u32);

impl Lid {
    /// Bytes of a LID in a node. The paper has six; page tables end at 2³² nodes, so two would always be zero.
    pub(crate) const SIZE: usize = 4;
    /// The LID of the root, which never changes.
    pub(crate) const ROOT: Lid = Lid(0);
    /// The word of a sibling that does not exist.
    const NONE: u64 = (1 << 48) - 1;

    pub(crate) fn new(index: u32) -> Self {
        Lid(index)
    }

    /// Returns its index in the page table.
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

    /// Returns the word that stores a sibling.
    #[inline]
    pub(crate) fn to_word(sibling: Option<Lid>) -> u64 {
        sibling.map_or(Lid::NONE, |lid| u64::from(lid.0))
    }

    #[inline]
    pub(crate) fn from_word(word: u64) -> Option<Lid> {
        (word != Lid::NONE).then_some(Lid(word as u32))
    }
}

/// The offset of a frame in the region, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrameNumber(NonZeroU32);

impl FrameNumber {
    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0.get()
    }

    /// Returns the number whose [`FrameNumber::bits`] are these.
    #[inline]
    pub(crate) fn from_bits(bits: NonZeroU32) -> Self {
        FrameNumber(bits)
    }

    #[inline]
    pub(crate) fn byte_offset(self) -> usize {
        self.0.get() as usize * UNIT_512_SIZE
    }
}
