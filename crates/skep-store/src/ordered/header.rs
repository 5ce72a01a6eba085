//! Line 0 of every node: the 48-byte header (Honeycomb, section 3.1), and behind it the fingerprints of the log entries.
//!
//! ```text
//! word   0        1                        2         3                              4      5       6, 7
//!        state    LID 48 level 8 size 8    version   old frame 32 log start 16 base left   right   16 fingerprints
//! ```
//!
//! Words 1, 2 and 3 are fixed when the node is published, 4 and 5 change under its lock, 0, 6 and 7 as entries are
//! appended. Interior nodes have no siblings and no log: words 4 to 7 are the edge of a node at an end of the tree, zero of
//! others. Their leftmost child is the first of segment 0.

use std::num::NonZeroU32;

use super::frame::GRANULE_SIZE;
use super::scale::Scale;

/// A logical id: the name of a node for as long as its range of keys is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lid(u32);

impl Lid {
    /// Bytes of a LID in a node: the paper's six without two that are zero, since page tables end at 2³² nodes.
    pub(super) const SIZE: usize = 4;
    /// The root, whatever its frame and level.
    pub(super) const ROOT: Lid = Lid(0);
    /// In the place of a sibling that does not exist.
    const NONE: u64 = (1 << 48) - 1;

    pub(super) fn new(index: u32) -> Self {
        Lid(index)
    }

    /// Its place in the page table.
    #[inline]
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn number(self) -> u32 {
        self.0
    }

    pub(super) fn to_bytes(self) -> [u8; Lid::SIZE] {
        self.0.to_le_bytes()
    }

    #[inline]
    pub(super) fn from_bytes(bytes: [u8; Lid::SIZE]) -> Self {
        Lid(u32::from_le_bytes(bytes))
    }

    /// The word of a sibling.
    #[inline]
    pub(super) fn to_word(sibling: Option<Lid>) -> u64 {
        sibling.map_or(Lid::NONE, |lid| u64::from(lid.0))
    }

    #[inline]
    pub(super) fn from_word(word: u64) -> Option<Lid> {
        (word != Lid::NONE).then_some(Lid(word as u32))
    }
}

/// Where a frame begins, in granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FrameNumber(NonZeroU32);

impl FrameNumber {
    #[inline]
    pub(super) fn bits(self) -> u32 {
        self.0.get()
    }

    /// For what was written with [`FrameNumber::bits`].
    #[inline]
    pub(super) fn from_bits(bits: NonZeroU32) -> Self {
        FrameNumber(bits)
    }

    #[inline]
    pub(super) fn byte_offset(self) -> usize {
        self.0.get() as usize * GRANULE_SIZE
    }
}

/// What word 1 says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) lid: Lid,
    /// 0 for a leaf.
    pub(super) level: u8,
    /// Size of the frame.
    pub(super) granules: u8,
}

impl Identity {
    pub(super) fn to_word(self) -> u64 {
        u64::from(self.lid.0) | u64::from(self.level) << 48 | u64::from(self.granules) << 56
    }

    #[inline]
    pub(super) fn from_word(word: u64) -> Self {
        Identity { lid: Lid(word as u32), level: (word >> 48) as u8, granules: (word >> 56) as u8 }
    }
}

/// What word 3 says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The node as of the version before.
    pub(super) old: Option<FrameNumber>,
    /// Where the sorted block ends and the log block begins, in bytes from the start of the frame.
    pub(super) log_start: u16,
    /// The base of the node's scale, which has no room in the shortcut block.
    pub(super) window_base: u16,
}

impl Extent {
    pub(super) fn new(old: Option<FrameNumber>, log_start: usize, scale: Scale) -> Self {
        Extent { old, log_start: log_start as u16, window_base: scale.base }
    }

    pub(super) fn to_word(self) -> u64 {
        u64::from(self.old.map_or(0, FrameNumber::bits))
            | u64::from(self.log_start) << 32
            | u64::from(self.window_base) << 48
    }

    #[inline]
    pub(super) fn from_word(word: u64) -> Self {
        let old = NonZeroU32::new(word as u32).map(FrameNumber::from_bits);
        Extent { old, log_start: (word >> 32) as u16, window_base: (word >> 48) as u16 }
    }
}

/// The words of the header, by their numbers.
pub(super) mod word {
    pub(in super::super) const STATE: usize = 0;
    pub(in super::super) const IDENTITY: usize = 1;
    pub(in super::super) const VERSION: usize = 2;
    pub(in super::super) const EXTENT: usize = 3;
    pub(in super::super) const LEFT: usize = 4;
    pub(in super::super) const RIGHT: usize = 5;
    pub(in super::super) const FINGERPRINTS: usize = 6;
    /// Of an interior node.
    pub(in super::super) const EDGE: usize = 4;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_as_they_are_drawn() {
        let identity = Identity { lid: Lid::new(0x0a0b_0c0d), level: 2, granules: 16 };
        assert_eq!(identity.to_word(), 0x1002_0000_0a0b_0c0d);
        assert_eq!(Identity::from_word(identity.to_word()), identity);
        let old = NonZeroU32::new(0x0102_0304).map(FrameNumber::from_bits);
        let extent = Extent { old, log_start: 0x0506, window_base: 0x0708 };
        assert_eq!(extent.to_word(), 0x0708_0506_0102_0304);
        assert_eq!(Extent::from_word(extent.to_word()), extent);
        assert_eq!(Extent::from_word(0).old, None);
    }
}
