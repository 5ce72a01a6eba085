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

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::corpus::{Corpus, Workload};
use super::mix::{Draw, Kind, Mix, Popularity};
use super::requests::Drawn;
use crate::dispatcher::{Dispatcher, Extent, LINE_BYTES, Policy};
use crate::memory::{Noted, Pace};

/// Most accesses that warm the caches, for each line of the memory.
const WARM_PER_LINE: f64 = 2.0;
/// Operations of a chunk.
const CHUNK: usize = 1 << 12;

/// What decides about the operations that warm a cache.
#[derive(Clone, Copy, PartialEq)]
struct Source {
    popularity: Popularity,
    mix: Mix,
    hot_share: f64,
    seed: u64,
}

/// The noted lines of a source.
pub(super) struct Warming {
    source: Source,
    start: Xoshiro256PlusPlus,
    chunks: Vec<Chunk>,
}

struct Chunk {
    /// The lines that the operations accessed in the memory of each NIC.
    lines: Vec<Vec<Noted>>,
    /// The state of the random numbers after them.
    after: Xoshiro256PlusPlus,
}

impl Corpus {
    /// Warms the caches of these dispatchers for a workload. Returns the random numbers that draw its requests.
    pub(super) fn warm(
        &mut self,
        workload: &Workload,
        draw: &Draw,
        dispatchers: &[impl AsRef<Dispatcher>],
    ) -> Xoshiro256PlusPlus {
        let &Workload { popularity, mix, hot_share, seed, .. } = workload;
        let source = Source { popularity, mix, hot_share, seed };
        let known = self.warming.take().filter(|known| known.source == source);
        let start = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut warming = known.unwrap_or_else(|| Warming { source, start, chunks: Vec::new() });
        let needed = self.warming_chunks(workload);
        while warming.chunks.len() < needed {
            let mut random = warming.after(warming.chunks.len());
            let lines = self.noted_lines(workload, draw, &mut random);
            warming.chunks.push(Chunk { lines, after: random });
        }
        for chunk in &warming.chunks[..needed] {
            for (dispatcher, lines) in dispatchers.iter().zip(&chunk.lines) {
                lines.iter().for_each(|noted| dispatcher.as_ref().warm(noted.line.into(), noted.changes));
            }
        }
        let after = warming.after(needed);
        self.warming = (mix.insert + mix.delete == 0.0).then_some(warming);
        after
    }

    /// Returns the number of chunks that warm the caches for a workload.
    ///
    /// They access twice as many cacheable lines as the caches have. A long tail needs more draws for its unpopular
    /// lines, but never more than two for each line of the memory. The share of changed lines is then dirty, and their
    /// write-backs are part of the run.
    fn warming_chunks(&self, workload: &Workload) -> usize {
        let Policy::Dispatch(ratio) = workload.policy else { return 0 };
        if ratio == 0.0 {
            return 0;
        }
        let rounds = if matches!(workload.popularity, Popularity::Uniform) { 2.0 } else { 6.0 };
        let Extent { nic_lines, host_lines } = self.extent;
        let wanted = (nic_lines as f64 * rounds / ratio).min(host_lines as f64 * WARM_PER_LINE);
        let of_nic = wanted / (self.pairs.mean() / f64::from(LINE_BYTES)).max(1.0);
        (of_nic * self.processors.len() as f64) as usize / CHUNK + 1
    }

    /// Executes a chunk of operations in no time. Returns the lines that they access, for each NIC.
    fn noted_lines(&mut self, workload: &Workload, draw: &Draw, random: &mut Xoshiro256PlusPlus) -> Vec<Vec<Noted>> {
        let mut drawn = Vec::new();
        for _ in 0..CHUNK {
            let key = workload.key(draw, random);
            match workload.mix.draw(random) {
                Kind::Get => Drawn::append(&self.pairs, key, Kind::Get, &mut drawn),
                Kind::Put | Kind::Update => Drawn::append(&self.pairs, key, Kind::Put, &mut drawn),
                // The keys of the run exist later. Their lines are anywhere, as those of a random key.
                Kind::Insert | Kind::Delete => {
                    let other = random.random_range(0..self.key_count);
                    Drawn::append(&self.pairs, other, Kind::Put, &mut drawn);
                }
            }
        }
        self.set_pace(Pace::Noted);
        self.execute(&drawn);
        self.processors.iter().map(|processor| processor.memory().take_noted()).collect()
    }
}

impl Warming {
    /// Returns the state of the random numbers after this many chunks.
    fn after(&self, chunks: usize) -> Xoshiro256PlusPlus {
        let last = chunks.checked_sub(1).map(|last| &self.chunks[last].after);
        last.unwrap_or(&self.start).clone()
    }
}
