//! Line 0 of every node: the 48-byte header (Honeycomb, section 3.1), then the fingerprints of the log entries.
//!
//! ```text
//! word   0        1                        2         3                                4      5       6, 7
//!        state    LID 48 level 8 units 8   version   old frame 32 log start 16 offset left   right   16 fingerprints
//! ```
//!
//! Words 1, 2 and 3 are fixed when the node is published. Words 4 and 5 change under its lock; words 0, 6 and 7 change
//! when entries are appended. An interior node has no siblings and no log: its words 4 to 7 are the outer bound if it
//! is at an end of the tree, zero otherwise. Its leftmost child is the first of segment 0.

use std::num::NonZeroU32;

use super::super::key_head::encoding::Encoding;
use super::super::memory::number::{FrameNumber, Lid};

/// The content of word 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) lid: Lid,
    /// 0 for a leaf.
    pub(crate) level: u8,
    /// Units of the frame.
    pub(crate) units: u8,
}

impl Identity {
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.lid.number()) | u64::from(self.level) << 48 | u64::from(self.units) << 56
    }

    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        Identity { lid: Lid::new(word as u32), level: (word >> 48) as u8, units: (word >> 56) as u8 }
    }
}

/// The content of word 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The frame that this one replaced.
    pub(crate) old: Option<FrameNumber>,
    /// The offset in the frame at which the sorted block ends and the log block begins.
    pub(crate) log_start: u16,
    /// The offset of the key-head encoding, which has no room in the shortcut block.
    pub(crate) key_head_offset: u16,
}

impl Extent {
    pub(crate) fn new(old: Option<FrameNumber>, log_start: usize, encoding: Encoding) -> Self {
        Extent { old, log_start: log_start as u16, key_head_offset: encoding.offset }
    }

    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.old.map_or(0, FrameNumber::bits))
            | u64::from(self.log_start) << 32
            | u64::from(self.key_head_offset) << 48
    }

    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        let old = NonZeroU32::new(word as u32).map(FrameNumber::from_bits);
        Extent { old, log_start: (word >> 32) as u16, key_head_offset: (word >> 48) as u16 }
    }
}

/// The words of the header, by their indexes.
pub(crate) mod word {
    pub(crate) const STATE: usize = 0;
    pub(crate) const IDENTITY: usize = 1;
    pub(crate) const VERSION: usize = 2;
    pub(crate) const EXTENT: usize = 3;
    pub(crate) const LEFT: usize = 4;
    pub(crate) const RIGHT: usize = 5;
    pub(crate) const FINGERPRINTS: usize = 6;
    /// Of an interior node.
    pub(crate) const OUTER_BOUND: usize = 4;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_as_they_are_drawn() {
        let identity = Identity { lid: Lid::new(0x0a0b_0c0d), level: 2, units: 16 };
        assert_eq!(identity.to_word(), 0x1002_0000_0a0b_0c0d);
        assert_eq!(Identity::from_word(identity.to_word()), identity);
        let old = NonZeroU32::new(0x0102_0304).map(FrameNumber::from_bits);
        let extent = Extent { old, log_start: 0x0506, key_head_offset: 0x0708 };
        assert_eq!(extent.to_word(), 0x0708_0506_0102_0304);
        assert_eq!(Extent::from_word(extent.to_word()), extent);
        assert_eq!(Extent::from_word(0).old, None);
    }
}
