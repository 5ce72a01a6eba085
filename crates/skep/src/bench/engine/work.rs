//! The limit with work beside it: what a share of the limit can be on this machine.
//!
//! A prefetch that misses the TLB holds up what follows it until its page walk has ended, so work overlaps with lines only
//! as far as the machine's page walks are short. The bare loop with some work for each line shows how far that is: the
//! work takes a known time where all lines are in the cache, and leaves a share of the limit where none is. A store whose
//! operation takes as long in the cache cannot be expected above that share.
//!
//! ```text
//! batch   announce every line │ read each, compute on what it holds
//! ```

use super::limit::BareLoop;
use super::measure::{Effort, SLICE, Work, median};

/// Steps of work with each line.
const STEPS: [u32; 5] = [4, 8, 16, 32, 64];
/// Lines that stay in the first level of the cache.
const CACHED_LINE_COUNT: u64 = 256;

/// The bare loop with work for each line.
#[derive(Debug, serde::Serialize)]
pub(super) struct WorkBeside {
    /// Nanoseconds that line and work take in the cache.
    pub(super) nanoseconds: f64,
    /// Lines a second with the work over lines a second without it, none in the cache.
    pub(super) of_limit: f64,
    /// (Largest − smallest) / median of that over the rounds.
    pub(super) of_limit_spread: f64,
}

/// Measures all amounts of work.
pub(super) fn work_beside(bare_loop: &BareLoop, effort: Effort, random: &mut impl FnMut() -> u64) -> Vec<WorkBeside> {
    let Effort { batch, rounds, at_least } = effort;
    let mut of_steps = |steps: u32| {
        let all = bare_loop.line_count();
        let mut run = |steps, line_count| bare_loop.run_with_work(steps, line_count, batch, SLICE, random);
        let (mut shares, mut cached) = (Vec::new(), Work::default());
        for _ in 0..rounds {
            let (mut without, mut with) = (Work::default(), Work::default());
            while with.spent < at_least {
                for (sum, slice) in [(&mut without, run(0, all)), (&mut with, run(steps, all))] {
                    sum.add(slice.spent, slice.operations);
                }
                let slice = run(steps, CACHED_LINE_COUNT);
                cached.add(slice.spent, slice.operations);
            }
            shares.push(without.seconds() / with.seconds());
        }
        let (of_limit, of_limit_spread) = median(&shares);
        WorkBeside { nanoseconds: 1e9 * cached.seconds(), of_limit, of_limit_spread }
    };
    STEPS.into_iter().map(&mut of_steps).collect()
}
