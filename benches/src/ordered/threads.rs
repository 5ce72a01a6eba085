//! Executes the same batches on one thread or on several, each on its own core.

use std::time::Duration;

use super::{Batch, Case, Contender, execute};
use crate::process::run_on_cores;

/// Executes batches on one thread for each of these cores, an equal share on each. Returns the sum of all replies, and
/// the time until the last thread has ended.
pub fn execute_on<const N: usize>(
    contender: &dyn Contender<N>,
    case: &Case,
    batches: &[Batch<N>],
    cores: &[usize],
) -> Result<(u64, Duration), String> {
    let share = batches.len().div_ceil(cores.len()).max(1);
    let shares = batches.chunks(share).chain(std::iter::repeat(&[][..]));
    let handles = cores.iter().map(|_| contender.handle()).collect::<Result<Vec<_>, String>>()?;
    let jobs = handles.into_iter().zip(shares).zip(cores).map(|((mut handle, batches), core)| {
        let execute_share = move || execute(&mut *handle, case, batches);
        (*core, move || execute_share)
    });
    run_on_cores(jobs.collect())
}
