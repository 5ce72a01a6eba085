//! What an insertion takes of the host's memory, and what the card is told of it.

use std::collections::HashSet;

use crate::dispatcher::LINE_BYTES;

const LINE_SIZE: usize = LINE_BYTES as usize;

/// An insertion into the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Insertion {
    /// Different lines that it has read.
    pub read_lines: u32,
    /// Different lines that it has written.
    pub written_lines: u32,
    /// The LIDs whose entries of the page table it has changed.
    pub lids: Vec<u32>,
}

/// The lines and entries of the present insertion.
#[derive(Debug, Default)]
pub(super) struct InsertionRecorder {
    read: HashSet<usize>,
    written: HashSet<usize>,
    lids: Vec<u32>,
}

impl InsertionRecorder {
    pub(super) fn touch(&mut self, offset: usize, size: usize) {
        self.read.extend(lines(offset, size));
    }

    pub(super) fn wrote(&mut self, offset: usize, size: usize) {
        self.written.extend(lines(offset, size));
    }

    pub(super) fn set_entry(&mut self, lid: usize) {
        self.lids.push(u32::try_from(lid).expect("LIDs have 32 bits"));
    }

    /// Ends the insertion.
    pub(super) fn take(&mut self) -> Insertion {
        let count = |lines: &mut HashSet<usize>| {
            let count = u32::try_from(lines.len()).expect("an insertion touches few lines");
            lines.clear();
            count
        };
        Insertion {
            read_lines: count(&mut self.read),
            written_lines: count(&mut self.written),
            lids: std::mem::take(&mut self.lids),
        }
    }
}

fn lines(offset: usize, size: usize) -> std::ops::Range<usize> {
    offset / LINE_SIZE..(offset + size).div_ceil(LINE_SIZE)
}
