//! Replies that may not leave yet, because what they rest on is not on disk.
//!
//! ```text
//!   output   │ may leave │ until block 7 │ until block 9 │ open │
//! ```
//!
//! Each part of the output states what it rests on: all blocks of the log up to a number, and all versions of the ordered
//! space up to one. Replies of a command that is not done rest on a block that is still open: it has no number. Parts
//! become free in their order.

use crate::vocabulary::{Reached, Release};
use std::collections::VecDeque;

/// The parts of an output that may not leave: they are at its end.
#[derive(Debug, Default)]
pub(super) struct HeldReplies {
    /// What each part rests on, and its size in bytes. An open one is the last.
    parts: VecDeque<(Option<Reached>, usize)>,
    size: usize,
}

impl HeldReplies {
    /// Returns the number of bytes that may not leave.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Adds replies at the end of the output. If the block of the last part was open, it is complete now, unless these
    /// rest on an open block too.
    pub(super) fn append(&mut self, release: Release, size: usize) {
        let reached = match release {
            Release::Same => return self.append_free(size),
            Release::Now => Some(Reached::default()),
            Release::After(reached) => Some(reached),
            Release::AfterOpen => None,
        };
        if let (Some(reached), Some((open @ None, _))) = (reached, self.parts.back_mut()) {
            *open = Some(reached);
        }
        if release == Release::Now {
            self.append_free(size);
            self.release(Reached::default());
            return;
        }
        match self.parts.back_mut() {
            Some((last, sum)) if *last == reached => *sum += size,
            _ if size == 0 => {}
            _ => self.parts.push_back((reached, size)),
        }
        self.size += size;
    }

    /// Adds bytes that rest on nothing. They stay behind those that may not leave.
    pub(super) fn append_free(&mut self, size: usize) {
        if let Some((_, sum)) = self.parts.back_mut() {
            *sum += size;
            self.size += size;
        }
    }

    /// Frees the parts that rest on what is on disk. Returns true if there were any.
    pub(super) fn release(&mut self, durable: Reached) -> bool {
        let before = self.size;
        while let Some((Some(reached), size)) = self.parts.front()
            && durable.covers(*reached)
        {
            self.size -= size;
            self.parts.pop_front();
        }
        self.size < before
    }
}

#[cfg(test)]
mod tests {
    use super::HeldReplies;
    use crate::vocabulary::{Reached, Release};

    fn block(block: u64) -> Reached {
        Reached { block, version: 0 }
    }

    #[test]
    fn parts_become_free_in_their_order() {
        let mut held = HeldReplies::default();
        held.append(Release::Now, 10);
        assert_eq!(held.size(), 0, "nothing is before it that may not leave");
        held.append(Release::After(block(3)), 10);
        held.append(Release::After(block(3)), 5);
        held.append(Release::Now, 2);
        held.append(Release::After(block(7)), 1);
        assert!(!held.release(block(2)));
        assert_eq!((held.size(), held.parts.len()), (18, 2));
        assert!(held.release(block(6)));
        assert_eq!(held.size(), 1, "the free bytes left with those before them");
        assert!(held.release(block(7)) && held.parts.is_empty());
    }

    #[test]
    fn an_open_part_is_free_if_its_block_is_on_disk() {
        let mut held = HeldReplies::default();
        held.append(Release::After(block(3)), 1);
        held.append(Release::AfterOpen, 2);
        held.append_free(4);
        assert_eq!((held.size(), held.parts.len()), (7, 2), "bytes that rest on nothing do not complete it");
        held.append(Release::Now, 8);
        assert_eq!((held.size(), held.parts.len()), (15, 2));
        assert!(held.release(block(3)) && held.size() == 0, "it leaves with the part before it");
        held.append(Release::AfterOpen, 2);
        held.append(Release::Same, 0);
        assert_eq!((held.size(), held.parts.len()), (2, 1));
        held.append(Release::Now, 0);
        assert_eq!((held.size(), held.parts.len()), (0, 0));
    }

    #[test]
    fn a_part_waits_for_its_block_and_its_version() {
        let mut held = HeldReplies::default();
        held.append(Release::After(Reached { block: 3, version: 9 }), 1);
        assert!(!held.release(Reached { block: 3, version: 8 }) && !held.release(Reached { block: 2, version: 9 }));
        assert!(held.release(Reached { block: 3, version: 9 }));
    }

    #[test]
    fn an_open_part_gets_its_block_from_the_next_write() {
        let mut held = HeldReplies::default();
        held.append(Release::AfterOpen, 4);
        held.append(Release::AfterOpen, 4);
        assert!(!held.release(block(u64::MAX)), "it rests on a block without a number");
        held.append(Release::After(block(5)), 0);
        assert!(!held.release(block(4)) && held.release(block(5)));
        assert_eq!(held.size(), 0);
    }
}
