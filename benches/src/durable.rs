//! The cost of the log to a store inside a program: the same batches on a store with a data directory and on one
//! without, by turns.
//!
//! All requests are drawn before the clock runs. The time with a log includes the last flush, so the log keeps pace with
//! the store. After each round a snapshot trims the log, while no clock runs.

use std::path::Path;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skep::{DurableStore, Operation, PutCondition, Replies, Request, Store, StoreSettings};
use skep_measure::{Figure, Times, Work};

use crate::figures::{cell, millions, ratio_cell};
use crate::tables::{Tables, table};

/// Bytes of a pair: a key of 8 and a value of 2.
const KV_SIZE: usize = 10;
/// Share of the memory that keys and values take.
const UTILIZATION: f64 = 0.3;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Pairs of each store.
    pub pairs: u64,
    /// Requests of a batch.
    pub batch: usize,
    /// Requests that are drawn, and executed again and again.
    pub requests: usize,
    /// Rounds of both stores.
    pub rounds: usize,
    /// Time of each store in a round, after a warm-up.
    pub slice: Duration,
}

/// The rates of one operation.
#[derive(Debug)]
pub struct Case {
    operation: &'static str,
    without: Figure,
    with: Figure,
    ratio: Figure,
}

/// Measures puts and gets. The directory must not exist. It is left there.
pub fn run(plan: &Plan, directory: &Path) -> Result<Vec<Case>, String> {
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
    let mut cases = Vec::new();
    for name in ["put", "get"] {
        let draw = |number| {
            let operation = if name == "put" { put(number) } else { Operation::Get };
            Request { key: &keys[random.random_range(0..keys.len())], operation }
        };
        let requests: Vec<Request<'_>> = (0..plan.requests).map(draw).collect();
        let times = Times::for_slice(plan.slice);
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let mut batches = requests.chunks(plan.batch).cycle();
        for _ in 0..plan.rounds {
            let work = times.measure(|at_least| {
                timed(at_least, || {
                    let requests = batches.next().expect("they repeat");
                    plain.execute(requests, &mut replies);
                    Ok(requests.len())
                })
            })?;
            without.push(work.rate());
            let work = times.measure(|at_least| {
                let mut work = timed(at_least, || {
                    let requests = batches.next().expect("they repeat");
                    durable.execute(requests, &mut replies).map(|()| requests.len()).map_err(|error| error.to_string())
                })?;
                let begun = Instant::now();
                durable.flush().map_err(|error| error.to_string())?;
                work.add(begun.elapsed(), 0);
                Ok::<_, String>(work)
            })?;
            with.push(work.rate());
            durable.snapshot().map_err(|error| error.to_string())?;
        }
        let ratio = Figure::of_ratio(&with, &without);
        cases.push(Case { operation: name, without: Figure::of(&without), with: Figure::of(&with), ratio });
    }
    Ok(cases)
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
pub fn tables(plan: &Plan, directory: &Path, cases: &[Case]) -> Tables {
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
        plan.rounds,
        directory.display(),
    );
    Tables { tables: vec![table(&header, 1, rows)], note }
}

#[cfg(test)]
mod tests {
    use super::{Plan, run, tables};
    use std::time::Duration;

    #[test]
    fn both_operations_are_measured() {
        let plan = Plan { pairs: 2000, batch: 100, requests: 5000, rounds: 2, slice: Duration::from_millis(1) };
        let directory = std::env::temp_dir().join(format!("skep-durable-{}", std::process::id()));
        let cases = run(&plan, &directory);
        _ = std::fs::remove_dir_all(&directory);
        let text = tables(&plan, &directory, &cases.unwrap()).text();
        assert!(text.contains("put") && text.contains("get"), "{text}");
    }
}
