//! Measures the hash store: its cases, and the cost of its reservation station. Accesses are counted on a smaller store
//! of the same utilization.

mod case;
mod corpus;
mod station;

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_core::operation::Reply;
use skep_measure::{EngineReport, SPREAD_MAX, Work};
use skep_store::hash::Settings;
use skep_store::memory::{CountingMemory, LocalMemory, Memory};

use self::case::{CASES, Case, Draw, execute};
use self::corpus::{Corpus, Shape};
use super::limit::Ideal;
use super::measure::{Speed, Subject, measure as measure_rounds, side_count};
use super::report::figures;
use super::work::{self, measure_limit_with_work};
use super::{Arguments, Setup, bare_loop};
use crate::failure::Failure;
use skep_measure::machine;

/// Default size of a pair, in bytes.
const KV_SIZE: u64 = 10;
/// About how many seconds the load of a gibibyte takes, with that of the bare loop.
const LOAD_SECONDS_PER_GIB: f64 = 5.0;
/// Memory of the store that counts accesses.
const COUNTED_MEMORY_SIZE: u64 = 32 << 20;
/// Number of operations for which accesses are counted.
const COUNTED_OPERATIONS: usize = 64 << 10;

/// A store with its pairs, and the generator of its operations.
struct Hash {
    corpus: Corpus<LocalMemory>,
    draw: Draw,
    batch: usize,
    is_inline: bool,
    kv_size: usize,
}

impl Subject for Hash {
    type Case = Case;

    fn name(case: &Case) -> &'static str {
        case.name
    }

    fn ideal(&self, case: &Case) -> Ideal {
        case.ideal(self.is_inline, self.kv_size)
    }

    fn run(&mut self, case: &Case, at_least: Duration) -> Result<Work, String> {
        let mut work = Work::default();
        let mut records = Vec::new();
        while work.spent < at_least {
            self.draw.batch(case, self.batch, &mut records);
            if records.is_empty() {
                self.undo(case)?;
                continue;
            }
            work.add(self.execute(case, &records)?, records.len());
        }
        Ok(work)
    }
}

impl Hash {
    /// Executes a batch. Returns the time that it took.
    fn execute(&mut self, case: &Case, records: &[(u64, bool)]) -> Result<Duration, String> {
        let spent = execute(&mut self.corpus, case, records, |corpus, requests| {
            let begun = Instant::now();
            corpus.processor.execute(requests, &mut corpus.replies);
            begun.elapsed()
        });
        let mut replies = self.corpus.replies.iter();
        match replies.find(|reply| !matches!(reply, Reply::Done | Reply::Value(_))) {
            Some(reply) => Err(format!("{}: the reply is {reply:?}", case.name)),
            None => Ok(spent),
        }
    }

    /// Undoes the operations of a case whose keys have run out. This is not measured.
    fn undo(&mut self, case: &Case) -> Result<(), String> {
        let opposite = case.opposite().expect("only new keys run out");
        let mut records = Vec::new();
        loop {
            self.draw.batch(&opposite, self.batch, &mut records);
            if records.is_empty() {
                return Ok(());
            }
            self.execute(&opposite, &records)?;
        }
    }
}

/// Loads the store and measures all cases.
pub(super) fn measure(arguments: &Arguments, setup: Setup<'_>) -> Result<EngineReport, Failure> {
    let kv_size = arguments.kv_size.unwrap_or(KV_SIZE) as usize;
    let utilization = arguments.utilization;
    let settings = |memory| {
        // One per cent more than the corpus needs, for the pairs that are put and deleted again.
        Settings::for_utilization(memory, kv_size, utilization + 0.01, 1).filter(|_| utilization > 0.0).ok_or_else(
            || {
                Failure::Usage(format!(
                    "pairs of {kv_size} bytes cannot fill {utilization} of a memory: choose another --utilization"
                ))
            },
        )
    };
    let store_settings = settings(setup.memory.0)?;
    let runtime = Failure::Runtime;
    let cases: Vec<Case> = CASES.into_iter().filter(|case| case.takes_part(arguments.distribution)).collect();
    let sides = side_count(cases.len()) + station::side_count() + work::side_count();
    let load_seconds = LOAD_SECONDS_PER_GIB * setup.memory.0 as f64 / f64::from(1 << 30);
    setup.progress.expect(load_seconds + cases.len() as f64 * setup.warm_up_seconds() + setup.seconds(sides));
    setup.progress.begin(format!("loading a store of {}", setup.memory), load_seconds);
    let memory = LocalMemory::new(setup.memory.0).map_err(|error| runtime(error.to_string()))?;
    memory.prefault();
    let shape = |memory| Shape::new(kv_size, memory, utilization);
    let corpus = Corpus::new(memory, &store_settings, shape(setup.memory.0), |share| setup.progress.advance(share))
        .map_err(runtime)?;
    // The bare loop is created after the corpus. A host that reclaims idle memory would take the loop's memory while
    // the corpus is filled.
    let mut random = {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        move || rand::Rng::next_u64(&mut random)
    };
    let bare_loop = bare_loop(setup.memory.0, &mut random)?;
    let draw = Draw::new(Xoshiro256PlusPlus::seed_from_u64(1), corpus.shape.pair_count);
    let is_inline = kv_size <= store_settings.inline_threshold;
    let mut hash = Hash { corpus, draw, batch: setup.batch, is_inline, kv_size };
    let measured = measure_rounds(&mut hash, &cases, setup, &bare_loop, &mut random).map_err(runtime)?;
    let station = station::costs(&mut hash.corpus, &mut hash.draw, setup);
    let limit_with_work = measure_limit_with_work(&bare_loop, setup, &mut random);

    let counted_settings = settings(COUNTED_MEMORY_SIZE)?;
    let counted_memory = LocalMemory::new(COUNTED_MEMORY_SIZE).map_err(|error| runtime(error.to_string()))?;
    let counted_memory = CountingMemory::new(counted_memory);
    let mut counted =
        Corpus::new(counted_memory, &counted_settings, shape(COUNTED_MEMORY_SIZE), |_| ()).map_err(runtime)?;
    let mut counted_draw = Draw::new(Xoshiro256PlusPlus::seed_from_u64(3), counted.shape.pair_count);
    let count_and_report = |(case, speed): (&Case, &Speed)| {
        let (accesses, lines) = count(&mut counted, &mut counted_draw, case, setup.batch);
        figures(case.name, *speed, accesses, lines)
    };
    Ok(EngineReport {
        skep: env!("CARGO_PKG_VERSION").to_owned(),
        machine: machine(),
        engine: "hash".to_owned(),
        memory: setup.memory.0,
        kv_size: kv_size as u64,
        utilization,
        hash_index_ratio: Some(store_settings.hash_index_ratio),
        tree: None,
        batch: arguments.batch,
        rounds: setup.effort.rounds as u64,
        spread_max: SPREAD_MAX,
        limit_read: measured.reads,
        limit_rmw: measured.writes,
        cases: cases.iter().zip(&measured.cases).map(count_and_report).collect(),
        station,
        limit_with_work,
    })
}

/// Returns the accesses and lines of an operation.
fn count<M: Memory>(corpus: &mut Corpus<CountingMemory<M>>, draw: &mut Draw, case: &Case, batch: usize) -> (f64, f64) {
    let mut records = Vec::new();
    let before = corpus.processor.memory().counts();
    let mut done = 0;
    while done < COUNTED_OPERATIONS {
        draw.batch(case, batch, &mut records);
        if records.is_empty() {
            break;
        }
        done += records.len();
        execute(corpus, case, &records, |corpus, requests| corpus.processor.execute(requests, &mut corpus.replies));
    }
    let counts = corpus.processor.memory().counts() - before;
    (counts.accesses() as f64 / done.max(1) as f64, counts.lines() as f64 / done.max(1) as f64)
}
