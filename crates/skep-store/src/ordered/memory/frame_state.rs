//! Frames that no reader can find: free, complete but not yet published, replaced.
//!
//! ```text
//! FreeFrame ─ builder ─▶ SealedFrame ─ page table ─▶ a node ─ another frame for its LID ─▶ Replaced ─ epoch ─▶ FreeFrame
//! ```

use std::num::NonZeroU32;

use super::number::FrameNumber;

/// A frame that nobody knows. Not copied: it is in one hand.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FreeFrame {
    number: FrameNumber,
    granules: u8,
}

impl FreeFrame {
    /// For the allocator alone: granules that it has carved out of the region.
    pub(crate) fn carved(number: u32, granules: usize) -> Self {
        let number = FrameNumber::from_bits(NonZeroU32::new(number).expect("the first granules are not used"));
        FreeFrame { number, granules: u8::try_from(granules).expect("frames are small") }
    }

    pub(crate) fn number(&self) -> FrameNumber {
        self.number
    }

    pub(crate) fn granules(&self) -> usize {
        usize::from(self.granules)
    }
}

/// A complete frame that is not reachable yet.
#[derive(Debug)]
pub(crate) struct SealedFrame(FreeFrame);

impl SealedFrame {
    /// For the builder alone, which has written all of the frame.
    pub(crate) fn new(frame: FreeFrame) -> Self {
        SealedFrame(frame)
    }

    pub(crate) fn number(&self) -> FrameNumber {
        self.0.number
    }
}

/// A frame that no path leads to for operations that begin once the change is readable.
#[derive(Debug)]
pub(crate) struct Replaced(FreeFrame);

impl Replaced {
    /// For the holder of what led to the frame: nothing leads there from now on.
    pub(crate) fn new(frame: FreeFrame) -> Self {
        Replaced(frame)
    }

    /// For the garbage list: all operations that were under way have ended.
    pub(crate) fn reuse(self) -> FreeFrame {
        self.0
    }

    pub(crate) fn granules(&self) -> usize {
        self.0.granules()
    }
}
