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

use std::time::Duration;

use super::limit::{BareLoop, Ideal};

/// What is measured without a break.
pub(super) const SLICE: Duration = Duration::from_millis(10);
/// What the store runs unmeasured before that.
const WARM_UP: Duration = Duration::from_millis(10);

/// A store with the cases that it is measured in.
pub(super) trait Subject {
    /// A case.
    type Case;

    /// What an ideal store touches in a case.
    fn ideal(&self, case: &Self::Case) -> Ideal;

    /// How long a case can go on.
    fn course(&self, case: &Self::Case) -> Course;

    /// Runs a case at least for this long, or until its keys have run out.
    fn run(&mut self, case: &Self::Case, at_least: Duration) -> Result<Work, String>;
}

/// How long a case can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// For ever: it leaves the store as it was.
    Steady,
    /// Until so many pairs are new as may be.
    Filling,
    /// Until all of these are gone. It always goes to its end.
    Emptying,
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) batch: usize,
    pub(super) rounds: u64,
    /// Time of a case in a round.
    pub(super) at_least: Duration,
}

/// What all rounds have measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    /// Random lines that the bare loop reads a second.
    pub(super) reads: Vec<f64>,
    /// Random lines that it reads and writes a second.
    pub(super) writes: Vec<f64>,
    /// For each case, operations a second and their share of the limit, round by round.
    pub(super) cases: Vec<Vec<(f64, f64)>>,
}

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

/// Runs all cases in rounds, each by turns with its bare loop.
pub(super) fn measure<S: Subject>(
    subject: &mut S,
    cases: &[S::Case],
    effort: Effort,
    bare_loop: &BareLoop,
    random: &mut impl FnMut() -> u64,
) -> Result<Rounds, String> {
    let mut rounds = Rounds { cases: vec![Vec::new(); cases.len()], ..Rounds::default() };
    // A round more than is counted: a host that has put pages away brings them back in the first one.
    for number in 0..=effort.rounds {
        let [read, write] = limits(bare_loop, effort, random);
        let mut found = Vec::with_capacity(cases.len());
        for case in cases {
            let ideal = subject.ideal(case);
            let mut bare_slice = |at_least| bare_loop.run(ideal, effort.batch, at_least, random);
            found.push(round(subject, case, effort.at_least, &mut bare_slice)?);
        }
        if number > 0 {
            rounds.reads.push(1.0 / read);
            rounds.writes.push(1.0 / write);
            rounds.cases.iter_mut().zip(found).for_each(|(case, found)| case.push(found));
        }
    }
    Ok(rounds)
}

/// Runs a case and its bare loop at least for this long each. The store's operations a second, and its share of the
/// limit.
fn round<S: Subject>(
    subject: &mut S,
    case: &S::Case,
    at_least: Duration,
    bare_slice: &mut impl FnMut(Duration) -> Work,
) -> Result<(f64, f64), String> {
    let mut total = Work::default();
    let mut of_limit = Vec::new();
    let slice = SLICE.min(at_least);
    let course = subject.course(case);
    while total.spent < at_least || course == Course::Emptying {
        if course == Course::Steady {
            subject.run(case, WARM_UP.min(at_least))?;
        }
        let ours = subject.run(case, slice)?;
        if ours.operations == 0 {
            break;
        }
        total.add(ours.spent, ours.operations);
        of_limit.push(bare_slice(slice).seconds() / ours.seconds());
    }
    Ok((1.0 / total.seconds(), median(&of_limit).0))
}

/// Reads of random lines, and read-modify-writes, by turns; seconds for one of each.
fn limits(bare_loop: &BareLoop, effort: Effort, random: &mut impl FnMut() -> u64) -> [f64; 2] {
    let mut works = [Work::default(); 2];
    while works[1].spent < effort.at_least {
        for (work, writes_in_256) in works.iter_mut().zip([0, 256]) {
            let ideal = Ideal { dependent_lines: 0, writes_in_256 };
            let slice = bare_loop.run(ideal, effort.batch, SLICE.min(effort.at_least), random);
            work.add(slice.spent, slice.operations);
        }
    }
    works.map(Work::seconds)
}

/// The median, and (largest − smallest) / median.
pub(super) fn median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    (median, (sorted[sorted.len() - 1] - sorted[0]) / median)
}
