//! Frames that no reader can find: free, sealed (complete but not yet published), retired.
//!
//! ```text
//! FreeFrame ─ builder ─▶ SealedFrame ─ page table ─▶ node ─ replaced ─▶ RetiredFrame ─ epoch ─▶ FreeFrame
//! ```

use std::num::NonZeroU32;

use super::number::{FrameNumber, UNIT_512_SIZE};

/// A frame that no other part of the store can use. Not copied, so one owner has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FreeFrame {
    number: FrameNumber,
    units: u8,
}

impl FreeFrame {
    /// Returns the frame that begins at this unit. For the allocator, and for frames that stop being a node.
    pub(crate) fn carved(number: u32, units: usize) -> Self {
        let number = FrameNumber::from_bits(NonZeroU32::new(number).expect("the first units are not used"));
        FreeFrame { number, units: u8::try_from(units).expect("frames are small") }
    }

    pub(crate) fn number(&self) -> FrameNumber {
        self.number
    }

    pub(crate) fn units(&self) -> usize {
        usize::from(self.units)
    }
}

/// A complete frame that is not reachable yet.
#[derive(Debug)]
pub(crate) struct SealedFrame(FreeFrame);

impl SealedFrame {
    /// Returns a sealed frame. For the builder alone, which has written all of it.
    pub(crate) fn new(frame: FreeFrame) -> Self {
        SealedFrame(frame)
    }

    pub(crate) fn number(&self) -> FrameNumber {
        self.0.number
    }

    /// Returns its bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.units() * UNIT_512_SIZE
    }
}

/// A frame that is unreachable for operations that begin once the change is readable.
#[derive(Debug)]
pub(crate) struct RetiredFrame(FreeFrame);

impl RetiredFrame {
    /// Returns a retired frame. For the thread that has removed the last path to it.
    pub(crate) fn new(frame: FreeFrame) -> Self {
        RetiredFrame(frame)
    }

    /// Returns the frame for reuse. The caller has seen all operations end that were in flight when it was retired.
    pub(crate) fn reuse(self) -> FreeFrame {
        self.0
    }

    pub(crate) fn units(&self) -> usize {
        self.0.units()
    }
}
