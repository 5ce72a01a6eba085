//! Observers of the ordered store: the lines that it reads, the bytes that it writes, its page table and its read version.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::memory::LINE_SIZE;

/// Observes the reads and writes of a store.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Is called for each read of bytes of the region, by their offset from its start. The page table follows the frames.
    fn touch(&self, offset: usize, size: usize);

    /// Is called for each read of the page table, after [`Observer::touch`], with the LID.
    fn enter_node(&self, _lid: usize) {}

    /// Is called by a writer before each change of the page table, so that a test can stop it.
    fn before_publish(&self) {}

    /// Is called when a writer has changed bytes of the region that readers may read: a frame before the page table names
    /// it, then log entries and headers. The bytes are those that readers see from now on. In the order of the changes, if
    /// one thread writes.
    fn wrote(&self, _offset: usize, _bytes: &[u8]) {}

    /// Is called for each change of the page table: with the LID, and the frame in allocation units of 512 bytes from the
    /// start of the region.
    fn set_entry(&self, _lid: usize, _frame: u32) {}

    /// Is called when a writer has published its version, with the version that readers read from now on.
    fn set_read_version(&self, _version: u64) {}
}

/// The observer of a store, if it has one.
#[derive(Debug)]
pub(crate) struct Lines(Option<Arc<dyn Observer>>);

impl Lines {
    /// Returns the observer of a store that is not observed.
    pub(crate) fn none() -> Self {
        Lines(None)
    }

    /// Reports to this observer.
    pub(crate) fn observed(observer: Arc<dyn Observer>) -> Self {
        Lines(Some(observer))
    }

    /// Reports a read of bytes of the region.
    pub(crate) fn touch(&self, offset: usize, size: usize) {
        if let Some(observer) = &self.0 {
            observer.touch(offset, size);
        }
    }

    /// Reports that the page table was read for a node, or for a part of an overflow value.
    pub(crate) fn enter_node(&self, lid: usize) {
        if let Some(observer) = &self.0 {
            observer.enter_node(lid);
        }
    }

    /// Reports that the page table is about to change.
    pub(crate) fn before_publish(&self) {
        if let Some(observer) = &self.0 {
            observer.before_publish();
        }
    }

    /// Reports bytes of the region that were changed.
    pub(crate) fn wrote(&self, offset: usize, bytes: impl FnOnce() -> Vec<u8>) {
        if let Some(observer) = &self.0 {
            observer.wrote(offset, &bytes());
        }
    }

    /// Reports a change of the page table.
    pub(crate) fn set_entry(&self, lid: usize, frame: u32) {
        if let Some(observer) = &self.0 {
            observer.set_entry(lid, frame);
        }
    }

    /// Reports the read version.
    pub(crate) fn set_read_version(&self, version: impl FnOnce() -> u64) {
        if let Some(observer) = &self.0 {
            observer.set_read_version(version());
        }
    }
}

/// The lines that were touched, each once.
#[derive(Debug, Default)]
pub struct LinesTouched(Mutex<HashSet<usize>>);

/// Counts of touched lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Different lines.
    pub lines: usize,
    /// Runs of adjacent lines.
    pub runs: usize,
}

impl LinesTouched {
    /// Returns the counts of the lines that were touched since the last call.
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

impl Observer for LinesTouched {
    fn touch(&self, offset: usize, size: usize) {
        let lines = offset / LINE_SIZE..(offset + size).div_ceil(LINE_SIZE);
        self.0.lock().expect("no thread panicked while it counted").extend(lines);
    }
}
