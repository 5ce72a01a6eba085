//! The buffer of a reader: the blocks of one node, each at its offset. It has the memory of a frame, so that the searches of
//! the store read it as a node.

use super::super::super::lines::Lines;
use super::super::super::memory::frame_state::{FreeFrame, SealedFrame};
use super::super::super::memory::number::{CHUNK_UNITS, FRAME_SIZE_MAX, FRAME_UNITS_MAX};
use super::super::super::node::frame::{Frames, LOG_COUNT_MAX, Node};
use super::super::super::node::header::{Extent, Identity, word};
use super::super::super::node::lock::State;
use super::super::super::node::shortcut::BOUNDARIES_START;
use super::block::Inconsistent;
use crate::memory::{LINE_SIZE, RegionError};

/// The only frame of a buffer. Its number is not zero.
const FRAME: u32 = FRAME_UNITS_MAX as u32;

/// No version is as great.
const VERSION_MAX: u64 = 1 << 63;

/// Memory for the blocks of a node.
#[derive(Debug)]
pub struct FrameBuffer {
    frames: Frames,
    /// The frame, if it has a header.
    sealed: Option<SealedFrame>,
}

impl FrameBuffer {
    /// Returns an empty buffer.
    pub fn new() -> Result<Self, RegionError> {
        Ok(FrameBuffer { frames: Frames::new(CHUNK_UNITS, Lines::none())?, sealed: None })
    }

    /// Begins with the header and shortcut block of a node. Removes all other blocks.
    pub(super) fn begin(&mut self, header: &[u8]) -> Result<(), Inconsistent> {
        self.sealed = None;
        if !is_header(header) {
            return Err(Inconsistent);
        }
        let mut builder = self.frames.build(FreeFrame::carved(FRAME, FRAME_UNITS_MAX));
        let (block, others) = builder.bytes().split_at_mut(header.len());
        block.copy_from_slice(header);
        others.fill(0);
        self.sealed = Some(builder.seal_received());
        Ok(())
    }

    /// Adds a block of the node at an offset after the header.
    pub(super) fn add(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Inconsistent> {
        let end = offset.checked_add(bytes.len()).filter(|end| *end <= FRAME_SIZE_MAX).ok_or(Inconsistent)?;
        if self.sealed.take().is_none() || offset < LINE_SIZE {
            return Err(Inconsistent);
        }
        let mut builder = self.frames.build(FreeFrame::carved(FRAME, FRAME_UNITS_MAX));
        builder.bytes()[offset..end].copy_from_slice(bytes);
        self.sealed = Some(builder.seal_received());
        Ok(())
    }

    /// Returns the node whose blocks it has.
    pub(super) fn node(&self) -> Result<Node<'_>, Inconsistent> {
        Ok(self.frames.received(self.sealed.as_ref().ok_or(Inconsistent)?))
    }
}

/// Returns true if the blocks that a header names are within a frame. Other bytes than those of a header may do so too.
fn is_header(bytes: &[u8]) -> bool {
    let word_at = |index: usize| bytes[index * 8..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    if bytes.len() < BOUNDARIES_START || bytes.len() > FRAME_SIZE_MAX {
        return false;
    }
    let (identity, state) = (Identity::from_word(word_at(word::IDENTITY)), State::of_bits(word_at(word::STATE)));
    let log_start = usize::from(Extent::from_word(word_at(word::EXTENT)).log_start);
    let directory_size = if identity.level == 0 { LINE_SIZE } else { 0 };
    log_start.is_multiple_of(LINE_SIZE)
        && log_start >= BOUNDARIES_START
        && log_start + directory_size + state.log_size() <= FRAME_SIZE_MAX
        && state.log_count() <= LOG_COUNT_MAX
        && word_at(word::VERSION) < VERSION_MAX
}
