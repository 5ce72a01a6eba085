//! What the reservation station costs, and what it gains.
//!
//! Cost: the same case on batches of which no two requests share a bucket, by turns with the station and without it. What
//! requests cost that needlessly share a slot is in it. Gain: Zipf reads, which may do without a station, and one key,
//! where the alternative is to stall: every request waits for the one before.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use skep_store::memory::LocalMemory;

use super::case::{CASES, Case, Draw, execute};
use super::corpus::Corpus;
use crate::bench::engine::measure::{Effort, SLICE, Work, median};

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
    /// Time with the station / time without it, less one: below zero it gains.
    pub(in super::super) cost: f64,
    /// (Largest − smallest) of the rounds' costs.
    pub(in super::super) spread: f64,
}

/// Compares all cases.
pub(super) fn costs(corpus: &mut Corpus<LocalMemory>, draw: &mut Draw, effort: Effort) -> Vec<Cost> {
    let Effort { batch, rounds, at_least } = effort;
    let case_named = |name| CASES.into_iter().find(|case| case.name == name).expect("a case of this name");
    let cost = |(name, comparison): (&'static str, Comparison)| {
        let case = case_named(name);
        let ratios: Vec<f64> = (0..rounds).map(|_| round(corpus, draw, &case, comparison, batch, at_least)).collect();
        let (ratio, spread) = median(&ratios);
        Cost { case: name, cost: ratio - 1.0, spread: spread * ratio }
    };
    COMPARISONS.into_iter().map(cost).collect()
}

/// Time with the station / time without it: the median of neighbouring slices.
fn round(
    corpus: &mut Corpus<LocalMemory>,
    draw: &mut Draw,
    case: &Case,
    comparison: Comparison,
    batch: usize,
    at_least: Duration,
) -> f64 {
    let mut ratios = Vec::new();
    let mut spent = Duration::ZERO;
    while spent < at_least {
        let [with, without] = [true, false].map(|station| slice(corpus, draw, case, comparison, batch, station));
        spent += with.spent;
        ratios.push(with.seconds() / without.seconds());
    }
    median(&ratios).0
}

fn slice(
    corpus: &mut Corpus<LocalMemory>,
    draw: &mut Draw,
    case: &Case,
    comparison: Comparison,
    batch: usize,
    station: bool,
) -> Work {
    let mut work = Work::default();
    let mut records = Vec::new();
    while work.spent < SLICE {
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
