//! The number of a home bucket.

use crate::memory::Pointer;

/// Number of a home bucket. The other buckets of its chain have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketIndex(pub(crate) u32);

impl BucketIndex {
    #[inline(always)]
    pub(crate) fn pointer(self) -> Pointer {
        Pointer::to_line_below_end(self.0)
    }
}
