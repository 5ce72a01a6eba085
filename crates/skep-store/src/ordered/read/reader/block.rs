//! The blocks of the store that a reader wants, and the error of blocks that do not belong together.

use std::ops::Range;

/// Bytes of header and shortcut block, which a reader fetches at once (Honeycomb, section 3.3).
pub const SHORTCUT_BLOCK_SIZE: usize = 512;

/// The content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The page table's entry of a LID: the frame, without bytes.
    Entry,
    /// Header and shortcut block of the frame that the entry has named.
    Shortcuts,
    /// Header and shortcut block of the frame that a newer one has replaced.
    Older,
    /// A segment of an interior node.
    Children,
    /// A segment of a leaf.
    Segment,
    /// The log block of a leaf, as far as it was in use when the header was read.
    Log,
    /// The bytes of an overflow value in one frame, and the link before them.
    Part,
}

/// A block that a reader wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its content.
    pub content: Content,
    /// The LID of its node, or of the part of a value.
    pub lid: usize,
    /// The frame, in allocation units of 512 bytes from the start of the region: that of the header for other blocks of the
    /// node. 0 for an entry.
    pub frame: u32,
    /// The bytes in use, counted from the start of the frame.
    pub bytes: Range<usize>,
}

/// Blocks that do not belong together, or are none of the store: no frame, or bytes beyond a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the blocks of a node do not belong together")]
pub struct Inconsistent;

/// A pair that a reader has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPair {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}
