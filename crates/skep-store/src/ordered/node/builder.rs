//! Writes a frame before it is reachable.

use super::super::key_head::encoding::OUTER_BOUND_WORD_COUNT;
use super::super::memory::frame_state::{FreeFrame, SealedFrame};
use super::super::memory::number::Lid;
use super::super::sync::{AtomicU32, Ordering};
use super::header::{Extent, Identity, word};
use super::lock::State;
use crate::memory::LINE_SIZE;

/// The leaves beside a leaf.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Siblings {
    pub(crate) left: Option<Lid>,
    pub(crate) right: Option<Lid>,
}

/// A frame that one thread writes.
#[derive(Debug)]
pub(crate) struct FrameBuilder<'r> {
    bytes: &'r mut [u8],
    frame: FreeFrame,
}

impl<'r> FrameBuilder<'r> {
    pub(crate) fn new(bytes: &'r mut [u8], frame: FreeFrame) -> Self {
        FrameBuilder { bytes, frame }
    }

    /// Returns all bytes of the frame. They are left from an earlier use.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Writes a word of line 0.
    fn set_word(&mut self, index: usize, value: u64) {
        self.bytes[index * 8..][..8].copy_from_slice(&value.to_ne_bytes());
    }

    /// Completes a leaf: line 0 with an open lock and an empty log block. The version is set later.
    pub(crate) fn seal_leaf(mut self, lid: Lid, extent: Extent, siblings: Siblings) -> SealedFrame {
        assert!(usize::from(extent.log_start) + LINE_SIZE <= self.bytes.len(), "blocks are within the frame");
        self.set_word(word::LEFT, Lid::to_word(siblings.left));
        self.set_word(word::RIGHT, Lid::to_word(siblings.right));
        self.seal_node(lid, 0, extent)
    }

    /// Completes an interior node in the same way.
    pub(crate) fn seal_interior(
        mut self,
        lid: Lid,
        level: u8,
        extent: Extent,
        outer_bound: [u64; OUTER_BOUND_WORD_COUNT],
    ) -> SealedFrame {
        assert!(usize::from(extent.log_start) <= self.bytes.len(), "blocks are within the frame");
        outer_bound.iter().enumerate().for_each(|(index, word)| self.set_word(word::OUTER_BOUND + index, *word));
        self.seal_node(lid, level, extent)
    }

    fn seal_node(mut self, lid: Lid, level: u8, extent: Extent) -> SealedFrame {
        assert!(usize::from(extent.log_start).is_multiple_of(LINE_SIZE), "the log directory is a line");
        let identity = Identity { lid, level, units: self.frame.units() as u8 };
        self.set_word(word::STATE, State::NEW.bits());
        self.set_word(word::IDENTITY, identity.to_word());
        self.set_word(word::VERSION, 0);
        self.set_word(word::EXTENT, extent.to_word());
        SealedFrame::new(self.frame)
    }

    /// Completes a copy of a node: the same bytes and the same log, with an open lock.
    pub(super) fn seal_copy(mut self, words: &[AtomicU32], state: State) -> SealedFrame {
        assert_eq!(words.len() * size_of::<u32>(), self.bytes.len(), "a copy has the size of the node");
        for (to, word) in self.bytes.chunks_exact_mut(size_of::<u32>()).zip(words) {
            to.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        self.set_word(word::STATE, state.bits());
        SealedFrame::new(self.frame)
    }

    /// Completes a node that was fetched from another memory. The caller has checked that the blocks of its header are
    /// within the frame.
    pub(crate) fn seal_received(self) -> SealedFrame {
        SealedFrame::new(self.frame)
    }

    /// Completes a part of an overflow value.
    pub(crate) fn seal_value(self) -> SealedFrame {
        SealedFrame::new(self.frame)
    }
}
