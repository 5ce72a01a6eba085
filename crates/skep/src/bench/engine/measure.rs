//! The rounds of all cases. In each round every case and its bare loop run in turn. Both are warmed up until their
//! rates are steady.
//!
//! ```text
//! warm up, store │ slice, store │ warm up, bare loop │ slice, bare loop      a round of a case: two rates and a share
//! ```
//!
//! The two sides have different working sets, so each is warmed up again after the other; `skep_measure` decides how
//! long. The bare loop evicts popular keys from the caches, and the warm-up brings them back.

use skep_measure::{Figure, Progress, Work};

use super::effort::Effort;
use super::limit::{BareLoop, Ideal};

/// A store, and the cases in which it is measured.
pub(super) trait Subject {
    /// A case.
    type Case;

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

/// The speed of a case. If one of the spreads is too large, all medians are withheld.
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

/// Operations per second of store and bare loop, round by round.
#[derive(Clone, Debug, Default)]
struct Rates {
    ours: Vec<f64>,
    bare: Vec<f64>,
}

/// Runs all cases in rounds, each by turns with its bare loop.
pub(super) fn measure<S: Subject>(
    subject: &mut S,
    cases: &[S::Case],
    effort: Effort,
    bare_loop: &BareLoop,
    random: &mut impl FnMut() -> u64,
) -> Result<Measured, String> {
    let times = effort.times;
    // Each case runs once before the rounds, so that a host that has paged memory out brings it back.
    let mut progress = Progress::new(cases.len() * (1 + effort.rounds as usize));
    for case in cases {
        times.warm_up(&mut |at_least| subject.run(case, at_least))?;
        progress.step();
    }
    let limits = [Ideal { dependent_lines: 0, writes_in_256: 0 }, Ideal { dependent_lines: 0, writes_in_256: 256 }];
    let mut limit_rates = [Vec::new(), Vec::new()];
    let mut rates = vec![Rates::default(); cases.len()];
    for _ in 0..effort.rounds {
        for (ideal, rates) in limits.into_iter().zip(&mut limit_rates) {
            rates.push(bare_loop.rate(ideal, effort, random));
        }
        for (case, rates) in cases.iter().zip(&mut rates) {
            rates.ours.push(times.measure(|at_least| subject.run(case, at_least))?.rate());
            rates.bare.push(bare_loop.rate(subject.ideal(case), effort, random));
            progress.step();
        }
    }
    let cases = cases.iter().zip(&rates).map(|(case, rates)| speed(subject.ideal(case), rates)).collect();
    let [reads, writes] = limit_rates.map(|rates| Figure::of(&rates));
    Ok(Measured { reads, writes, cases })
}

/// Returns the speed of a case with this ideal.
fn speed(ideal: Ideal, rates: &Rates) -> Speed {
    let limit_lines = ideal.lines();
    let lines_per_s: Vec<f64> = rates.bare.iter().map(|rate| rate * limit_lines as f64).collect();
    let [ops_per_s, limit_lines_per_s, of_limit] =
        Figure::row([Figure::of(&rates.ours), Figure::of(&lines_per_s), Figure::of_ratio(&rates.ours, &rates.bare)]);
    Speed { ops_per_s, limit_lines_per_s, of_limit, limit_lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_computed_from_the_limit_that_is_printed() {
        let rates = Rates { ours: vec![18.0e6, 19.0e6, 18.5e6], bare: vec![45.0e6, 50.0e6, 46.0e6] };
        let speed = speed(Ideal { dependent_lines: 3, writes_in_256: 0 }, &rates);
        let [ours, lines, share] =
            [speed.ops_per_s, speed.limit_lines_per_s, speed.of_limit].map(|figure| figure.median().unwrap());
        assert_eq!((ours, lines, speed.limit_lines), (18.5e6, 4.0 * 46.0e6, 4));
        assert!((share - 0.4).abs() < 0.003, "{share}");
    }

    #[test]
    fn a_row_whose_limit_spreads_is_not_measured() {
        let rates = Rates { ours: vec![18.0, 18.1], bare: vec![30.0, 50.0] };
        let speed = speed(Ideal { dependent_lines: 0, writes_in_256: 0 }, &rates);
        for figure in [speed.ops_per_s, speed.limit_lines_per_s, speed.of_limit] {
            assert_eq!(figure.median(), None);
        }
        assert!(speed.ops_per_s.spread() < 0.01 && speed.limit_lines_per_s.spread() > 0.4);
    }
}
