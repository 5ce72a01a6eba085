//! Stores side by side: filled, then measured case by case, all by turns.

use std::time::Duration;

use skep_measure::{Figure, Times};

use crate::ordered::{Batch, Case, Contender, Draw, execute, execute_on, fill, rate};
use crate::process::cores;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Pairs that each store holds at first.
    pub pairs: usize,
    /// Operations of a batch.
    pub batch: usize,
    /// Rounds, at least one.
    pub rounds: usize,
    /// Operations of a case for which the answers of all stores are compared, before the rounds.
    pub operations: usize,
    /// What is measured of a case in a round, after a warm-up.
    pub slice: Duration,
}

/// Where operations run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Threads {
    /// On the thread that asks.
    One,
    /// On every core that there is.
    AllCores,
}

/// Operations a second: for each contender and case, those of the rounds.
pub(super) type Rates = Vec<Vec<Vec<f64>>>;

/// Fills the contenders, compares their answers in all cases, and measures all cases on all of them, round by round. What a
/// slice inserts is removed after it.
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
        // What one thread reads of another's puts is a matter of time.
        let is_decided = threads == Threads::One || case.puts == 0.0;
        if is_decided && sums.iter().any(|sum| *sum != sums[0]) {
            return Err(format!("the stores answer differently in {}: {sums:?}", case.name));
        }
    }
    let times = Times::for_slice(plan.slice);
    let mut rates = vec![vec![Vec::new(); cases.len()]; contenders.len()];
    for round in 0..plan.rounds {
        for (place, case) in cases.iter().enumerate() {
            for turn in 0..contenders.len() {
                let turn = (turn + round) % contenders.len();
                let mut draw = draw.restarted(round as u64 + 2);
                rates[turn][place].push(rate(&mut *contenders[turn], case, &mut draw, plan.batch, times, cores)?);
            }
        }
    }
    Ok(rates)
}

/// For each case, one contender's rate over another's, round by round.
pub(super) fn over(rates: &Rates, one: usize, other: usize) -> Vec<Option<Figure>> {
    let cases = rates[one].iter().zip(&rates[other]);
    cases.map(|(one, other)| Some(Figure::of_ratio(one, other))).collect()
}

/// For each case, a contender's rate.
pub(super) fn of(rates: &Rates, contender: usize) -> Vec<Option<Figure>> {
    rates[contender].iter().map(|rounds| Some(Figure::of(rounds))).collect()
}
