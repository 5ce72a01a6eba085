//! What the reservation station costs, and what it gains.
//!
//! Cost: the same case on batches of which no two requests share a bucket, by turns with the station and without it, each
//! warmed up. What requests cost that needlessly share a slot is in it. Gain: Zipf reads, which may do without a station, and one key,
//! where the alternative is to stall: every request waits for the one before.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use skep_measure::{Figure, Work};
use skep_store::memory::LocalMemory;

use super::case::{CASES, Case, Draw, execute};
use super::corpus::Corpus;
use crate::bench::engine::measure::Effort;

/// How the requests of a case are drawn, and what the station is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    /// Requests of different buckets, and no station.
    Apart,
    /// Any requests, and no station: they only read.
    Reads,
    /// Any requests, each in a batch of its own.
    Stalling,
}

const COMPARISONS: [(&str, Comparison); 5] = [
    ("get_uniform", Comparison::Apart),
    ("put_existing", Comparison::Apart),
    ("fetch_add_uniform", Comparison::Apart),
    ("ycsb_c_zipf", Comparison::Reads),
    ("fetch_add_one_key", Comparison::Stalling),
];

/// What the station costs in a case.
#[derive(Debug, serde::Serialize)]
pub(in super::super) struct Cost {
    pub(in super::super) case: &'static str,
    /// Time with the station / time without it: below one it gains.
    pub(in super::super) time_over_without: Figure,
}

/// Compares all cases.
pub(super) fn costs(corpus: &mut Corpus<LocalMemory>, draw: &mut Draw, effort: Effort) -> Vec<Cost> {
    let case_named = |name| CASES.into_iter().find(|case| case.name == name).expect("a case of this name");
    let cost = |(name, comparison): (&'static str, Comparison)| {
        let case = case_named(name);
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..effort.rounds {
            for (rates, station) in rates.iter_mut().zip([true, false]) {
                let run = |at_least| {
                    Ok::<_, Infallible>(run(corpus, draw, &case, comparison, effort.batch, station, at_least))
                };
                let Ok(work) = effort.times.measure(run);
                rates.push(work.rate());
            }
        }
        let [with, without] = &rates;
        Cost { case: name, time_over_without: Figure::of_ratio(without, with) }
    };
    COMPARISONS.into_iter().map(cost).collect()
}

/// Runs a case with the station or without it, at least for this long.
fn run(
    corpus: &mut Corpus<LocalMemory>,
    draw: &mut Draw,
    case: &Case,
    comparison: Comparison,
    batch: usize,
    station: bool,
    at_least: Duration,
) -> Work {
    let mut work = Work::default();
    let mut records = Vec::new();
    while work.spent < at_least {
        draw.batch(case, batch, &mut records);
        if comparison == Comparison::Apart {
            let mut buckets = HashSet::new();
            let shape = corpus.shape;
            records.retain(|(record, _)| {
                buckets.insert(corpus.processor.home_bucket(&shape.key(*record)[..shape.key_size]))
            });
        }
        let spent = execute(corpus, case, &records, |corpus, requests| {
            let (processor, replies) = (&mut corpus.processor, &mut corpus.replies);
            let begun = Instant::now();
            match (station, comparison) {
                (true, _) => processor.execute(requests, replies),
                (false, Comparison::Stalling) => {
                    requests.iter().for_each(|request| processor.execute(std::slice::from_ref(request), replies));
                }
                (false, _) => processor.execute_independent(requests, replies),
            }
            begun.elapsed()
        });
        work.add(spent, records.len());
    }
    work
}
