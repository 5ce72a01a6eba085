//! Counting of lines: what a read of the tree touches, reported to an observer.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::memory::LINE_SIZE;

/// Observes all reads of frames and page table.
pub trait Trace: Sync {
    /// Bytes of the region were read, by their offset from its start. The page table follows the frames.
    fn touch(&self, offset: usize, size: usize);

    /// Is called by a writer each time before it changes the page table, where a test can stop it.
    #[inline(always)]
    fn before_publish(&self) {}
}

/// No observer: costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untraced;

impl Trace for Untraced {
    #[inline(always)]
    fn touch(&self, _offset: usize, _size: usize) {}
}

/// The lines that were touched, each once.
#[derive(Debug, Default)]
pub struct LinesTouched(Mutex<HashSet<usize>>);

/// Counts of touched lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Different lines.
    pub lines: usize,
    /// Runs of adjacent ones.
    pub runs: usize,
}

impl LinesTouched {
    /// Returns the lines that were touched since the last call.
    ///
    /// # Panics
    /// If a thread that was counting has panicked.
    pub fn take(&self) -> Touched {
        let mut lines = self.0.lock().expect("no thread panicked while it counted");
        let runs = lines.iter().filter(|line| !lines.contains(&line.wrapping_sub(1))).count();
        let touched = Touched { lines: lines.len(), runs };
        lines.clear();
        touched
    }
}

impl Trace for LinesTouched {
    fn touch(&self, offset: usize, size: usize) {
        let lines = offset / LINE_SIZE..(offset + size).div_ceil(LINE_SIZE);
        self.0.lock().expect("no thread panicked while it counted").extend(lines);
    }
}
