//! Warms the NICs' DRAM before a run, with the lines that earlier operations of the same workload would have accessed.
//!
//! ```text
//! draws of a seed   │ chunk │ chunk │ chunk │ …      the store executes a chunk once; the lines it accesses are noted
//! l = 1             ├──────▶│ run                    each run warms its caches with as many chunks as it needs,
//! l = 0.2           ├──────────────────────▶│ run    and draws its requests from the state after the last of them
//! ```
//!
//! The tuner runs one workload with several load dispatch ratios. A small ratio needs more chunks, but which lines they
//! access does not depend on the ratio. So the store executes them for the first run that needs them. Insertions and
//! deletions change which lines those are, so the lines of such a workload are noted anew for each run. The home buckets
//! that PUTs write back without a change are not noted as changed.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::mix::{Mix, Popularity};
use crate::dispatcher::Dispatcher;
use crate::memory::Noted;

/// What decides about the operations that warm a cache.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Source {
    pub(super) popularity: Popularity,
    pub(super) mix: Mix,
    pub(super) hot_share: f64,
    pub(super) seed: u64,
}

/// The noted lines of a source.
pub(super) struct Warming {
    source: Source,
    start: Xoshiro256PlusPlus,
    chunks: Vec<Chunk>,
}

/// The lines of some operations in a row.
pub(super) struct Chunk {
    /// The lines that the operations accessed in the memory of each NIC.
    pub(super) lines: Vec<Vec<Noted>>,
    /// The state of the random numbers after them.
    pub(super) after: Xoshiro256PlusPlus,
}

impl Warming {
    /// Returns the lines of a source, of which none is noted.
    pub(super) fn of(source: Source) -> Self {
        Warming { source, start: Xoshiro256PlusPlus::seed_from_u64(source.seed), chunks: Vec::new() }
    }

    /// Returns true if it has the lines of this source, and a later run may use them.
    pub(super) fn serves(&self, source: &Source) -> bool {
        self.source == *source && source.mix.insert + source.mix.delete == 0.0
    }

    /// Notes chunks with `note`, which draws their operations, until there are this many. Warms the caches with as many.
    /// Returns the state of the random numbers after them.
    pub(super) fn warm(
        &mut self,
        count: usize,
        dispatchers: &[impl AsRef<Dispatcher>],
        mut note: impl FnMut(Xoshiro256PlusPlus) -> Chunk,
    ) -> Xoshiro256PlusPlus {
        while self.chunks.len() < count {
            let chunk = note(self.after(self.chunks.len()));
            self.chunks.push(chunk);
        }
        for chunk in &self.chunks[..count] {
            for (dispatcher, lines) in dispatchers.iter().zip(&chunk.lines) {
                lines.iter().for_each(|noted| dispatcher.as_ref().warm(noted.line.into(), noted.changes));
            }
        }
        self.after(count)
    }

    /// Returns the state of the random numbers after this many chunks.
    fn after(&self, chunks: usize) -> Xoshiro256PlusPlus {
        let last = chunks.checked_sub(1).map(|last| &self.chunks[last].after);
        last.unwrap_or(&self.start).clone()
    }
}
