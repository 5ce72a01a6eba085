//! The cost of the log to a store inside a program: the same batches on a store with a data directory and on one
//! without, by turns.
//!
//! All requests are drawn before the clock runs. The time with a log includes the last flush, so the log keeps pace with
//! the store. After each round a snapshot trims the log, while no clock runs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep::{DurableStore, Operation, PutCondition, Replies, Request, Store, StoreSettings};
use skep_measure::{Effort, Figure, Progress, Rounds, Row, Work};

use crate::figures::{cell, millions, ratio_cell};
use crate::program::number;
use crate::tables::{Tables, table};

/// Bytes of a pair: a key of 8 and a value of 2.
const KV_SIZE: usize = 10;
/// Share of the memory that keys and values take.
const UTILIZATION: f64 = 0.3;

/// Requests that are drawn for an operation, and executed again and again.
const REQUESTS: usize = 1 << 20;
/// The operations.
const OPERATIONS: [&str; 2] = ["put", "get"];
/// About how many seconds the load of a pair takes.
const PAIR_SECONDS: f64 = 500e-9;

/// What is measured.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// Where the data directory is created, and removed at the end: by default in memory, so that no disk is measured.
    #[arg(long, default_value = "/dev/shm")]
    pub parent: PathBuf,
    /// Pairs of 8 + 2 bytes in each store.
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1000..=200_000_000))]
    pub pairs: u64,
    /// Operations in a batch.
    #[arg(long, default_value_t = 256, value_parser = number(1..=65_536))]
    pub batch: usize,
    /// Rounds and slices.
    #[command(flatten)]
    pub effort: Effort,
}

/// The rates of one operation.
#[derive(Debug)]
struct Case {
    operation: &'static str,
    without: Figure,
    with: Figure,
    ratio: Figure,
}

/// Measures puts and gets, and returns their table.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Tables, String> {
    let directory = plan.parent.join(format!("skep-durable-{}", std::process::id()));
    let cases = measure(plan, &directory, progress);
    _ = std::fs::remove_dir_all(&directory);
    Ok(tables(plan, &directory, &cases?))
}

/// Measures puts and gets. The directory must not exist. It is left there.
fn measure(plan: &Plan, directory: &Path, progress: &Progress) -> Result<Vec<Case>, String> {
    let rounds = Rounds::new(plan.effort, OPERATIONS.map(|name| Row::new(name, 2)).to_vec());
    let load_seconds = plan.pairs as f64 * PAIR_SECONDS;
    progress.expect(load_seconds + rounds.expected_seconds());
    progress.begin("loading both stores", load_seconds);
    let memory = (plan.pairs as f64 * KV_SIZE as f64 / UTILIZATION) as u64;
    let settings = StoreSettings::for_utilization(memory.max(1 << 20), KV_SIZE, UTILIZATION, 7)
        .ok_or("the memory has no room for the pairs")?;
    let mut plain = Store::open(&settings).map_err(|error| error.to_string())?;
    let mut durable = DurableStore::open(directory, &settings).map_err(|error| error.to_string())?;
    let mut replies = Replies::with_budget(1 << 20);
    let keys: Vec<[u8; 8]> = (0..plan.pairs).map(u64::to_le_bytes).collect();
    let values: Vec<[u8; 2]> = (0..=u16::MAX).map(u16::to_le_bytes).collect();
    let put = |number: usize| Operation::Put { value: &values[number % values.len()], condition: PutCondition::Always };
    let all: Vec<Request<'_>> =
        keys.iter().enumerate().map(|(number, key)| Request { key, operation: put(number) }).collect();
    for requests in all.chunks(plan.batch) {
        plain.execute(requests, &mut replies);
        durable.execute(requests, &mut replies).map_err(|error| error.to_string())?;
    }
    drop(all);
    if [plain.statistics().pairs, durable.statistics().pairs] != [plan.pairs; 2] {
        return Err("the stores do not have all pairs".to_owned());
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let requests = OPERATIONS.map(|name| -> Vec<Request<'_>> {
        let draw = |number| {
            let operation = if name == "put" { put(number) } else { Operation::Get };
            Request { key: &keys[random.random_range(0..keys.len())], operation }
        };
        (0..REQUESTS).map(draw).collect()
    });
    let mut batches = requests.each_ref().map(|requests| requests.chunks(plan.batch).cycle());
    let samples = rounds.run(progress, |turn| {
        let batches = &mut batches[turn.row];
        let mut next = || batches.next().expect("they repeat");
        if turn.side == 0 {
            return turn.rate(|at_least| {
                timed(at_least, || {
                    let requests = next();
                    plain.execute(requests, &mut replies);
                    Ok(requests.len())
                })
            });
        }
        let rate = turn.rate(|at_least| {
            let mut work = timed(at_least, || {
                let requests = next();
                durable.execute(requests, &mut replies).map(|()| requests.len()).map_err(|error| error.to_string())
            })?;
            let begun = Instant::now();
            durable.flush().map_err(|error| error.to_string())?;
            work.add(begun.elapsed(), 0);
            Ok::<_, String>(work)
        })?;
        durable.snapshot().map_err(|error| error.to_string())?;
        Ok(rate)
    })?;
    let case = |(operation, rates): (&'static str, &Vec<Vec<f64>>)| Case {
        operation,
        without: Figure::of(&rates[0]),
        with: Figure::of(&rates[1]),
        ratio: Figure::of_ratio(&rates[1], &rates[0]),
    };
    Ok(OPERATIONS.into_iter().zip(&samples).map(case).collect())
}

/// Executes batches for this time. `execute` returns the operations of one.
fn timed(at_least: Duration, mut execute: impl FnMut() -> Result<usize, String>) -> Result<Work, String> {
    /// Batches between two readings of the clock.
    const BATCHES: usize = 16;
    let (begun, mut operations) = (Instant::now(), 0);
    while begun.elapsed() < at_least {
        for _ in 0..BATCHES {
            operations += execute()?;
        }
    }
    Ok(Work { spent: begun.elapsed(), operations })
}

/// Returns the table of the cases.
fn tables(plan: &Plan, directory: &Path, cases: &[Case]) -> Tables {
    let rows = cases.iter().map(|case| {
        let rates = [&case.without, &case.with].map(|figure| cell(figure, millions));
        [case.operation.to_owned()].into_iter().chain(rates).chain([ratio_cell(&case.ratio)]).collect()
    });
    let header = ["10 B pairs", "without log, M/s", "with log, M/s", "with / without"];
    let note = format!(
        "{} pairs, one core, batches of {}, medians of {} rounds by turns. The log is in {}, flushed at the end of each \
         round, within its time.",
        plan.pairs,
        plan.batch,
        plan.effort.rounds,
        directory.display(),
    );
    Tables { tables: vec![table(&header, 1, rows)], note }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn both_operations_are_measured() {
        let effort = Effort { rounds: 2, slice: Duration::from_millis(1) };
        let plan = Plan { parent: std::env::temp_dir(), pairs: 2000, batch: 100, effort };
        let text = run(&plan, &Progress::hidden()).unwrap().text();
        assert!(text.contains("put") && text.contains("get"), "{text}");
    }
}
