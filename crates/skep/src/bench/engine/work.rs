//! The limit with additional work: the largest share of the limit that a store can reach on this machine.
//!
//! A prefetch that misses the TLB blocks the instructions after it until its page walk has ended. Work therefore
//! overlaps with lines only as far as the machine's page walks are short. The bare loop with additional work for each
//! line shows how far that is. First the work is timed where all lines are in the cache. Then the same loop runs where
//! no line is in the cache, which gives a share of the limit. A store whose operation takes as long in the cache cannot
//! be expected to exceed that share.
//!
//! ```text
//! batch   prefetch every line │ read each, compute on its contents
//! ```

use std::convert::Infallible;

use skep_measure::{Figure, LimitWithWork};

use super::effort::Effort;
use super::limit::BareLoop;

/// Steps of work for each line.
const STEPS: [u32; 5] = [4, 8, 16, 32, 64];
/// Number of lines that stay in the first-level cache.
const CACHED_LINE_COUNT: u64 = 256;

/// Measures all amounts of work in all rounds.
pub(super) fn measure_limit_with_work(
    bare_loop: &BareLoop,
    effort: Effort,
    random: &mut impl FnMut() -> u64,
) -> Vec<LimitWithWork> {
    let all = bare_loop.line_count();
    let mut rate = |steps, line_count| {
        let run =
            |at_least| Ok::<_, Infallible>(bare_loop.run_with_work(steps, line_count, effort.batch, at_least, random));
        let Ok(work) = effort.times.measure(run);
        work.rate()
    };
    let mut of_steps = |steps: u32| {
        let (mut without, mut with, mut cached) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..effort.rounds {
            without.push(rate(0, all));
            with.push(rate(steps, all));
            cached.push(1e9 / rate(steps, CACHED_LINE_COUNT));
        }
        let [nanoseconds, of_limit] = Figure::row([Figure::of(&cached), Figure::of_ratio(&with, &without)]);
        LimitWithWork { nanoseconds, of_limit }
    };
    STEPS.into_iter().map(&mut of_steps).collect()
}
