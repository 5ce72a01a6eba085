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

use skep_measure::{Figure, LimitWithWork, Rounds, Row};

use super::Setup;
use super::limit::BareLoop;

/// Steps of work for each line.
const STEPS: [u32; 5] = [4, 8, 16, 32, 64];
/// Number of lines that stay in the first-level cache.
const CACHED_LINE_COUNT: u64 = 256;

/// The sides of an amount of work: without it, with it, and with it in the cache.
const SIDE_COUNT: usize = 3;

/// Returns the number of sides that are measured in a round.
pub(super) const fn side_count() -> usize {
    SIDE_COUNT * STEPS.len()
}

/// Measures all amounts of work in all rounds.
pub(super) fn measure_limit_with_work(
    bare_loop: &BareLoop,
    setup: Setup<'_>,
    random: &mut impl FnMut() -> u64,
) -> Vec<LimitWithWork> {
    let all = bare_loop.line_count();
    let rows = STEPS.map(|steps| Row::new(format!("bare loop, {steps} steps of work"), SIDE_COUNT));
    let Ok(samples) = Rounds::new(setup.effort, rows.to_vec()).run(setup.progress, |turn| {
        let (steps, line_count) = [(0, all), (STEPS[turn.row], all), (STEPS[turn.row], CACHED_LINE_COUNT)][turn.side];
        turn.rate(|at_least| {
            Ok::<_, Infallible>(bare_loop.run_with_work(steps, line_count, setup.batch, at_least, random))
        })
    });
    let of_steps = |rates: &Vec<Vec<f64>>| {
        let cached: Vec<f64> = rates[2].iter().map(|rate| 1e9 / rate).collect();
        LimitWithWork { nanoseconds: Figure::of(&cached), of_limit: Figure::of_ratio(&rates[1], &rates[0]) }
    };
    samples.iter().map(of_steps).collect()
}
