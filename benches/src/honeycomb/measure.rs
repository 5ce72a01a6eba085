//! Fills all stores, then measures each case on all stores in turn.

use skep_measure::{Effort, Figure, Progress, Rounds, Row};

use crate::ordered::{Batch, Case, Contender, Draw, execute, execute_on, fill, rate};
use crate::process::cores;
use crate::program::number;

/// The amount of work to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// The figure, such as fig17; each takes a minute or two. An unknown one lists all.
    pub figure: String,
    /// Pairs in every store at the start.
    #[arg(long, default_value_t = 2_000_000, value_parser = number(100..=200_000_000))]
    pub pairs: usize,
    /// Operations in a batch.
    #[arg(long, default_value_t = 32, value_parser = number(1..=65_536))]
    pub batch: usize,
    /// Rounds and slices.
    #[command(flatten)]
    pub effort: Effort,
    /// Operations of each case whose replies are compared before the rounds.
    #[arg(long, default_value_t = 200_000, value_parser = number(1..=100_000_000))]
    pub operations: usize,
}

/// About how many seconds the fill of a store takes for each pair, and the comparison of replies for each operation.
const OPERATION_SECONDS: f64 = 1e-6;

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
    progress: &Progress,
) -> Result<Rates, String> {
    let rows = cases.iter().map(|case| Row::new(case.name, contenders.len())).collect();
    let rounds = Rounds::new(plan.effort, rows);
    let fill_seconds = plan.pairs as f64 * OPERATION_SECONDS;
    let compare_seconds = (plan.operations * cases.len() * contenders.len()) as f64 * OPERATION_SECONDS;
    progress.expect(contenders.len() as f64 * fill_seconds + compare_seconds + rounds.expected_seconds());
    for contender in &mut contenders {
        progress.begin("filling a store", fill_seconds);
        fill(&mut **contender, plan.pairs, |share| progress.advance(share));
    }
    progress.begin("comparing replies", compare_seconds);
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
    let mut samples = rounds.run(progress, |turn| {
        let mut draw = draw.restarted(turn.round as u64 + 2);
        rate(&mut *contenders[turn.side], &cases[turn.row], &mut draw, plan.batch, turn, cores)
    })?;
    let of_contender = |side: usize| samples.iter_mut().map(|of_case| std::mem::take(&mut of_case[side])).collect();
    Ok((0..contenders.len()).map(of_contender).collect())
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
