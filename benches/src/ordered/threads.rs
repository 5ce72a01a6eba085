//! Executes the same batches on one thread or on several, each on its own core.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use super::{Batch, Case, Contender, execute};
use crate::process::pin_to;

/// Executes batches on one thread for each of these cores, an equal share on each. Returns the sum of all replies, and
/// the seconds until the last thread has ended.
pub fn execute_on<const N: usize>(
    contender: &dyn Contender<N>,
    case: &Case,
    batches: &[Batch<N>],
    cores: &[usize],
) -> Result<(u64, f64), String> {
    let barrier = Barrier::new(cores.len());
    let share = batches.len().div_ceil(cores.len()).max(1);
    let shares = batches.chunks(share).chain(std::iter::repeat(&[][..]));
    let handles = cores.iter().map(|_| contender.handle()).collect::<Result<Vec<_>, String>>()?;
    let outcomes: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = handles
            .into_iter()
            .zip(shares)
            .zip(cores)
            .map(|((mut handle, batches), core)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let pinned = pin_to(*core);
                    barrier.wait();
                    let begun = Instant::now();
                    let sum = execute(&mut *handle, case, batches);
                    pinned.map(|()| (sum, begun, Instant::now()))
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a thread does not panic")).collect()
    });
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, String>>()?;
    let begun = outcomes.iter().map(|outcome| outcome.1).min().expect("there is a thread");
    let ended = outcomes.iter().map(|outcome| outcome.2).max().expect("there is a thread");
    let sum = outcomes.iter().fold(0_u64, |sum, outcome| sum.wrapping_add(outcome.0));
    Ok((sum, (ended - begun).as_secs_f64()))
}
