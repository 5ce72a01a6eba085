//! Where a log ends, for the run that continues it.

use crate::error::Damage;
use crate::group_writer::UsedSegment;

/// Where the log ends. It is given to [`Directory::begin`](crate::Directory::begin).
#[derive(Clone, Debug)]
pub struct LogEnd {
    /// Groups that were read.
    pub groups: u64,
    /// Blocks that were handed over.
    pub blocks: u64,
    /// Segment and offset at which a torn group was cut off, if there was one. Nothing acknowledged was in it.
    pub cut: Option<(u64, u64)>,
    /// The loss that was accepted.
    pub loss: Option<Damage>,
    /// What is missing, and was accepted too.
    pub missing: Option<String>,
    /// Names of files that are named like segments and are not of this directory. They are left as they are.
    pub foreign: Vec<String>,
    /// Segment and offset after the last group that was read; zeros without a segment.
    pub position: (u64, u64),
    pub(crate) next_block: u64,
    pub(crate) floor: u64,
    pub(crate) next_group: u64,
    pub(crate) before: u32,
    pub(crate) used: Vec<UsedSegment>,
    pub(crate) segment_bytes: u64,
    /// Segments that can be used again.
    pub(crate) unused: Vec<u64>,
    /// Segments whose groups were cut off. They are removed, because their groups have numbers that are used again.
    pub(crate) dead: Vec<u64>,
    pub(crate) last_number: u64,
}

impl LogEnd {
    /// Returns true if the log that was read is a whole one without a segment after it: nothing was cut off that only the next
    /// segment takes out of the log, or that was accepted as lost.
    pub(crate) fn can_wait(&self) -> bool {
        !self.used.is_empty() && self.dead.is_empty() && self.loss.is_none() && self.missing.is_none()
    }

    /// Returns the number of the next block.
    pub fn next_block(&self) -> u64 {
        self.next_block
    }

    /// Lets the next run begin with a greater floor: its store has used the versions below it.
    pub fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
    }

    /// Returns the number of segments that were read.
    pub fn segment_count(&self) -> usize {
        self.used.len()
    }

    /// Returns the bytes of the segments that were read, with those after the end of the log.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Returns the greatest floor: effects from this version on were dropped, and their versions are used again.
    pub fn floor(&self) -> u64 {
        self.floor
    }
}
