//! An argument of a request: where its bytes are.

use std::ops::Range;

/// The range of an argument, relative to the first byte of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    pub(super) start: u32,
    pub(super) size: u32,
}

impl Argument {
    /// An argument without bytes.
    pub const EMPTY: Argument = Argument { start: 0, size: 0 };

    /// Returns the range of the argument in the bytes of its request.
    pub fn range(self) -> Range<usize> {
        self.start as usize..(self.start + self.size) as usize
    }

    /// Returns the bytes of the argument, in a request or an input that has it at `base`.
    #[inline(always)]
    pub fn at(self, base: usize) -> Argument {
        Argument { start: self.start + base as u32, size: self.size }
    }

    pub(super) fn new(start: usize, size: usize) -> Self {
        let narrow = |n: usize| u32::try_from(n).expect("a request has at most REQUEST_SIZE_MAX bytes");
        Argument { start: narrow(start), size: narrow(size) }
    }
}
