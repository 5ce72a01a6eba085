//! Measures the rate of one contender in one case and restores its contents.

use std::time::Instant;

use skep_measure::{Turn, Work};

use super::{Batch, Case, Contender, Draw, execute, execute_on, pair};

/// Measures the operations per second of a contender: on one thread for each of these cores, or on this thread if there
/// are none. The keys that the operations insert are removed again; the removal is not measured.
pub fn rate<const N: usize>(
    contender: &mut dyn Contender<N>,
    case: &Case,
    draw: &mut Draw,
    batch: usize,
    turn: Turn,
    cores: &[usize],
) -> Result<f64, String> {
    turn.rate(|at_least| {
        let work = Work::of_steps(at_least, |operations| {
            let batches: Vec<Batch<N>> = draw.batches(case, operations, batch);
            let spent = if cores.is_empty() {
                let begun = Instant::now();
                std::hint::black_box(execute(contender, case, &batches));
                begun.elapsed()
            } else {
                execute_on(contender, case, &batches, cores)?.1
            };
            Ok::<_, String>(Work { spent, operations })
        })?;
        let inserted: Vec<[u8; N]> = draw.take_inserted().map(|record| pair(record).0).collect();
        contender.remove(&inserted);
        Ok(work)
    })
}
