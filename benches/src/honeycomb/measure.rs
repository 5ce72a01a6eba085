//! Fills all stores, then measures each case on all stores in turn.

use std::time::Duration;

use skep_measure::{Figure, Times};

use crate::ordered::{Batch, Case, Contender, Draw, execute, execute_on, fill, rate};
use crate::process::cores;

/// The amount of work to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Pairs in each store at the start.
    pub pairs: usize,
    /// Operations in a batch.
    pub batch: usize,
    /// Number of rounds, at least one.
    pub rounds: usize,
    /// Operations of each case whose replies are compared before the rounds.
    pub operations: usize,
    /// Measured time of a case in a round, after a warm-up.
    pub slice: Duration,
}

/// The threads that execute operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Threads {
    /// The calling thread.
    One,
    /// One thread on every core.
    AllCores,
}

/// Operations per second: for each contender and case, one number for each round.
pub(super) type Rates = Vec<Vec<Vec<f64>>>;

/// Fills the contenders, compares their replies in all cases, and measures all cases on all of them, round by round.
/// The keys that a slice inserts are removed after it.
pub(super) fn by_turns<const N: usize>(
    mut contenders: Vec<Box<dyn Contender<N>>>,
    cases: &[Case],
    plan: &Plan,
    threads: Threads,
) -> Result<Rates, String> {
    for contender in &mut contenders {
        fill(&mut **contender, plan.pairs);
    }
    let all = cores()?;
    let cores: &[usize] = if threads == Threads::One { &[] } else { &all };
    let mut draw = Draw::new(plan.pairs);
    for case in cases {
        let batches: Vec<Batch<N>> = draw.batches(case, plan.operations, plan.batch);
        let mut sums = Vec::new();
        for contender in &mut contenders {
            sums.push(match threads {
                Threads::One => execute(&mut **contender, case, &batches),
                Threads::AllCores => execute_on(&**contender, case, &batches, cores)?.0,
            });
        }
        // A read of one thread may or may not see a put of another, so replies are compared only where they are
        // determined.
        let is_determined = threads == Threads::One || case.puts == 0.0;
        if is_determined && sums.iter().any(|sum| *sum != sums[0]) {
            return Err(format!("the stores reply differently in {}: {sums:?}", case.name));
        }
    }
    let times = Times::for_slice(plan.slice);
    let mut rates = vec![vec![Vec::new(); cases.len()]; contenders.len()];
    for round in 0..plan.rounds {
        for (index, case) in cases.iter().enumerate() {
            for turn in 0..contenders.len() {
                let turn = (turn + round) % contenders.len();
                let mut draw = draw.restarted(round as u64 + 2);
                rates[turn][index].push(rate(&mut *contenders[turn], case, &mut draw, plan.batch, times, cores)?);
            }
        }
    }
    Ok(rates)
}

/// Returns one contender's rate over another's for each case, round by round.
pub(super) fn over(rates: &Rates, one: usize, other: usize) -> Vec<Option<Figure>> {
    let cases = rates[one].iter().zip(&rates[other]);
    cases.map(|(one, other)| Some(Figure::of_ratio(one, other))).collect()
}

/// Returns a contender's rate for each case.
pub(super) fn of(rates: &Rates, contender: usize) -> Vec<Option<Figure>> {
    rates[contender].iter().map(|rounds| Some(Figure::of(rounds))).collect()
}
