//! A round of a case: the store and its bare loop by turns, in slices so short that what else the machine does meets
//! both alike.
//!
//! ```text
//! warm up, store │ bare loop │ warm up, store │ bare loop │ …      until both have run for the time of a round
//! └────── one ratio ─────────┘ └────── one ratio ─────────┘        the round's share of the limit is their median
//! ```
//!
//! The bare loop leaves the caches full of its lines. It never meets one again, but the store does meet its popular
//! ones: before each of its slices it runs for a while unmeasured, so that they are where they would be without the bare
//! loop.

use std::time::{Duration, Instant};

use skep_store::memory::{CountingMemory, LocalMemory, Memory};
use skep_store::operation::Reply;

use super::case::{Case, Draw, execute};
use super::corpus::Corpus;
use super::limit::{BareLoop, Ideal};

/// What is measured without a break.
pub(super) const SLICE: Duration = Duration::from_millis(10);
/// What the store runs unmeasured before that.
const WARM_UP: Duration = Duration::from_millis(10);
/// Operations over which accesses are counted.
const COUNTED_OPERATIONS: usize = 64 << 10;

/// Operations, and the time that they took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) spent: Duration,
    pub(super) operations: usize,
}

impl Work {
    pub(super) fn add(&mut self, spent: Duration, operations: usize) {
        self.spent += spent;
        self.operations += operations;
    }

    /// Seconds for an operation.
    pub(super) fn seconds(self) -> f64 {
        self.spent.as_secs_f64() / self.operations.max(1) as f64
    }
}

/// Runs a case and its bare loop at least for this long each. The store's operations a second, and its share of the
/// limit.
pub(super) fn round(
    corpus: &mut Corpus<LocalMemory>,
    draw: &mut Draw,
    case: &Case,
    batch: usize,
    at_least: Duration,
    bare_slice: &mut impl FnMut(Duration) -> Work,
) -> Result<(f64, f64), String> {
    let mut total = Work::default();
    let mut of_limit = Vec::new();
    let slice = SLICE.min(at_least);
    // Deleting ends when it has restored the corpus.
    while total.spent < at_least || case.is_delete() {
        if !case.is_fresh() {
            run(corpus, draw, case, batch, WARM_UP.min(at_least))?;
        }
        let ours = run(corpus, draw, case, batch, slice)?;
        if ours.operations == 0 {
            break;
        }
        total.add(ours.spent, ours.operations);
        of_limit.push(bare_slice(slice).seconds() / ours.seconds());
    }
    Ok((1.0 / total.seconds(), median(&of_limit).0))
}

/// Reads of random lines, and read-modify-writes, by turns; seconds for one of each.
pub(super) fn limits(
    bare_loop: &BareLoop,
    batch: usize,
    at_least: Duration,
    random: &mut impl FnMut() -> u64,
) -> [f64; 2] {
    let mut works = [Work::default(); 2];
    while works[1].spent < at_least {
        for (work, writes_in_256) in works.iter_mut().zip([0, 256]) {
            let ideal = Ideal { dependent_lines: 0, writes_in_256 };
            let slice = bare_loop.run(ideal, batch, SLICE.min(at_least), random);
            work.add(slice.spent, slice.operations);
        }
    }
    works.map(Work::seconds)
}

/// Runs a case at least for this long, or until fresh keys have run out.
fn run(
    corpus: &mut Corpus<LocalMemory>,
    draw: &mut Draw,
    case: &Case,
    batch: usize,
    at_least: Duration,
) -> Result<Work, String> {
    let mut work = Work::default();
    let mut records = Vec::new();
    while work.spent < at_least {
        draw.batch(case, batch, &mut records);
        if records.is_empty() {
            break;
        }
        let spent = execute(corpus, case, &records, |corpus, requests| {
            let begun = Instant::now();
            corpus.processor.execute(requests, &mut corpus.replies);
            begun.elapsed()
        });
        if let Some(reply) = corpus.replies.iter().find(|reply| !matches!(reply, Reply::Done | Reply::Value(_))) {
            return Err(format!("{}: answered {reply:?}", case.name));
        }
        work.add(spent, records.len());
    }
    Ok(work)
}

/// Accesses and lines of an operation.
pub(super) fn count<M: Memory>(
    corpus: &mut Corpus<CountingMemory<M>>,
    draw: &mut Draw,
    case: &Case,
    batch: usize,
) -> (f64, f64) {
    let mut records = Vec::new();
    let before = corpus.processor.memory().counts();
    let mut done = 0;
    while done < COUNTED_OPERATIONS {
        draw.batch(case, batch, &mut records);
        if records.is_empty() {
            break;
        }
        done += records.len();
        execute(corpus, case, &records, |corpus, requests| corpus.processor.execute(requests, &mut corpus.replies));
    }
    let counts = corpus.processor.memory().counts() - before;
    (counts.accesses() as f64 / done.max(1) as f64, counts.lines() as f64 / done.max(1) as f64)
}

/// The median, and (largest − smallest) / median.
pub(super) fn median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    (median, (sorted[sorted.len() - 1] - sorted[0]) / median)
}
