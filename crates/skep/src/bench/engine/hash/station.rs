//! The cost and the gain of the reservation station.
//!
//! The cost is measured on batches in which no two requests share a bucket. The same case runs with the station and
//! without it in turn, each warmed up. The cost includes requests that share a slot without sharing a key. The gain is
//! measured in two cases. Zipf reads are correct without a station. For a single key the alternative is a stall: each
//! request waits for the one before.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use skep_measure::{Figure, Rounds, Row, StationCost, Work};
use skep_store::memory::LocalMemory;

use super::case::{CASES, Case, Draw, execute};
use super::corpus::Corpus;
use crate::bench::engine::Setup;

/// How the requests of a case are drawn, and the alternative to the station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    /// Requests of different buckets, compared with no station.
    Apart,
    /// Any requests, compared with no station: they only read.
    Reads,
    /// Any requests, compared with one request in each batch.
    Stalling,
}

const COMPARISONS: [(&str, Comparison); 5] = [
    ("get_uniform", Comparison::Apart),
    ("put_existing", Comparison::Apart),
    ("fetch_add_uniform", Comparison::Apart),
    ("ycsb_c_zipf", Comparison::Reads),
    ("fetch_add_one_key", Comparison::Stalling),
];

/// Returns the number of sides that are measured in a round.
pub(super) const fn side_count() -> usize {
    2 * COMPARISONS.len()
}

/// Compares the time with and without the station in each case.
pub(super) fn costs(corpus: &mut Corpus<LocalMemory>, draw: &mut Draw, setup: Setup<'_>) -> Vec<StationCost> {
    let case_named = |name| CASES.into_iter().find(|case| case.name == name).expect("a case of this name");
    let rows = COMPARISONS.map(|(name, _)| Row::new(format!("{name}, with and without station"), 2));
    let Ok(samples) = Rounds::new(setup.effort, rows.to_vec()).run(setup.progress, |turn| {
        let (name, comparison) = COMPARISONS[turn.row];
        let (case, station) = (case_named(name), turn.side == 0);
        turn.rate(|at_least| Ok::<_, Infallible>(run(corpus, draw, &case, comparison, setup.batch, station, at_least)))
    });
    let cost = |((name, _), rates): (&(&str, Comparison), &Vec<Vec<f64>>)| StationCost {
        case: (*name).to_owned(),
        time_over_without: Figure::of_ratio(&rates[1], &rates[0]),
    };
    COMPARISONS.iter().zip(&samples).map(cost).collect()
}

/// Runs a case with the station or without it, for at least this time.
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
