//! The rounds of all cases. In each round every case and its bare loop run in turn. Both are warmed up until their
//! rates are steady.
//!
//! ```text
//! warm up, store │ slice, store │ warm up, bare loop │ slice, bare loop      a round of a case: two rates and a share
//! ```
//!
//! The two sides have different working sets, so each is warmed up again after the other; `skep_measure` decides how
//! long. The bare loop evicts popular keys from the caches, and the warm-up brings them back.

use skep_measure::{Figure, Rounds, Row, Work};

use super::Setup;
use super::limit::{BareLoop, Ideal};

/// A store, and the cases in which it is measured.
pub(super) trait Subject {
    /// A case.
    type Case;

    /// Returns the name of a case.
    fn name(case: &Self::Case) -> &'static str;

    /// Returns the lines that an ideal store touches in a case.
    fn ideal(&self, case: &Self::Case) -> Ideal;

    /// Runs a case for at least this time. Afterwards any case can run.
    fn run(&mut self, case: &Self::Case, at_least: std::time::Duration) -> Result<Work, String>;
}

/// The results of all rounds.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Random lines per second that the bare loop reads.
    pub(super) reads: Figure,
    /// Random lines per second that the bare loop reads and writes.
    pub(super) writes: Figure,
    /// One speed for each case.
    pub(super) cases: Vec<Speed>,
}

/// The speed of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    pub(super) ops_per_s: Figure,
    /// Lines per second that the bare loop of this case touches.
    pub(super) limit_lines_per_s: Figure,
    /// Operations per second divided by those of the bare loop, round by round.
    pub(super) of_limit: Figure,
    /// Lines that the bare loop touches for an operation.
    pub(super) limit_lines: u64,
}

/// The bare loops that only read, and that also write.
const LIMITS: [(&str, Ideal); 2] = [
    ("bare loop, reads", Ideal { dependent_lines: 0, writes_in_256: 0 }),
    ("bare loop, writes", Ideal { dependent_lines: 0, writes_in_256: 256 }),
];

/// Returns the number of sides that a measurement of this many cases has in a round.
pub(super) fn side_count(cases: usize) -> usize {
    LIMITS.len() + 2 * cases
}

/// Runs all cases in rounds, each by turns with its bare loop.
pub(super) fn measure<S: Subject>(
    subject: &mut S,
    cases: &[S::Case],
    setup: Setup<'_>,
    bare_loop: &BareLoop,
    random: &mut impl FnMut() -> u64,
) -> Result<Measured, String> {
    // Each case runs once before the rounds, so that a host that has paged memory out brings it back.
    for case in cases {
        setup.progress.begin(format!("{}, warming up", S::name(case)), setup.warm_up_seconds());
        setup.effort.times().warm_up(&mut |at_least| subject.run(case, at_least))?;
    }
    let limits = LIMITS.iter().map(|(name, _)| Row::new(*name, 1));
    let rows = limits.chain(cases.iter().map(|case| Row::new(S::name(case), 2))).collect();
    let samples = Rounds::new(setup.effort, rows).run(setup.progress, |turn| {
        let case = turn.row.checked_sub(LIMITS.len()).map(|case| &cases[case]);
        let ideal = case.map_or_else(|| LIMITS[turn.row].1, |case| subject.ideal(case));
        match case {
            Some(case) if turn.side == 0 => turn.rate(|at_least| subject.run(case, at_least)),
            _ => turn.rate(|at_least| Ok(bare_loop.run(ideal, setup.batch, at_least, random))),
        }
    })?;
    let (limits, of_cases) = samples.split_at(LIMITS.len());
    let speeds = cases.iter().zip(of_cases).map(|(case, rates)| speed(subject.ideal(case), &rates[0], &rates[1]));
    Ok(Measured { reads: Figure::of(&limits[0][0]), writes: Figure::of(&limits[1][0]), cases: speeds.collect() })
}

/// Returns the speed of a case with this ideal, from the operations per second of store and bare loop, round by round.
fn speed(ideal: Ideal, ours: &[f64], bare: &[f64]) -> Speed {
    let limit_lines = ideal.lines();
    let lines_per_s: Vec<f64> = bare.iter().map(|rate| rate * limit_lines as f64).collect();
    let (ops_per_s, limit_lines_per_s) = (Figure::of(ours), Figure::of(&lines_per_s));
    Speed { ops_per_s, limit_lines_per_s, of_limit: Figure::of_ratio(ours, bare), limit_lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_computed_from_the_limit_that_is_printed() {
        let (ours, bare) = ([18.0e6, 19.0e6, 18.5e6], [45.0e6, 50.0e6, 46.0e6]);
        let speed = speed(Ideal { dependent_lines: 3, writes_in_256: 0 }, &ours, &bare);
        let [ours, lines, share] =
            [speed.ops_per_s, speed.limit_lines_per_s, speed.of_limit].map(|figure| figure.median().unwrap());
        assert_eq!((ours, lines, speed.limit_lines), (18.5e6, 4.0 * 46.0e6, 4));
        assert!((share - 0.4).abs() < 0.003, "{share}");
    }

    #[test]
    fn a_noisy_limit_does_not_hide_the_rate_beside_it() {
        let speed = speed(Ideal { dependent_lines: 0, writes_in_256: 0 }, &[18.0, 18.1], &[30.0, 50.0]);
        assert_eq!(speed.ops_per_s.median(), Some(18.05));
        assert!(speed.limit_lines_per_s.is_noisy() && speed.of_limit.is_noisy());
        assert_eq!(speed.limit_lines_per_s.noisy_median(), Some(40.0));
    }
}
