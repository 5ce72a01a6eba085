//! Measures the ordered store. It is loaded in random order, then read, written and scanned, one operation after the
//! other or in batches.
//!
//! Lines are counted on a second store of the same size and source, one operation at a time. Each line that an operation reads
//! counts once, and adjacent lines are one access. Lines that an operation writes are not counted.

mod access;
mod case;
mod corpus;

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_measure::{EngineCase, EngineReport, SPREAD_MAX, TreeStatistics, Work};
use skep_store::counted::{self, LinesTouched, observed};
use skep_store::memory::LINE_SIZE;
use skep_store::ordered::{OrderedSettings, OrderedStore};

use self::access::Access;
use self::case::{CASES, Case, Draw, Operation};
use self::corpus::{Corpus, KV_SIZE_MIN, Shape};
use super::limit::Ideal;
use super::measure::{Subject, measure as measure_rounds, side_count};
use super::report::figures;
use super::work::{self, measure_limit_with_work};
use super::{Arguments, Setup, bare_loop};
use crate::failure::Failure;
use skep_measure::machine;

/// Default size of a pair, in bytes: the paper's.
const KV_SIZE: u64 = 32;
/// About how many seconds the loads of a gibibyte take: of the store, and of the one whose lines are counted.
const LOAD_SECONDS_PER_GIB: [f64; 2] = [10.0, 20.0];
/// Number of operations for which lines are counted.
const COUNTED_OPERATIONS: usize = 4 << 10;
/// Seed of these operations.
const COUNTED_SEED: u64 = 3;

/// A store with its pairs, and the generator of its operations.
struct Ordered<S> {
    corpus: Corpus<S>,
    draw: Draw,
    batch: usize,
}

impl<S: Access> Ordered<S> {
    /// Deletes the keys that a mix has inserted.
    fn restore(&mut self, case: &Case) -> Result<(), String> {
        if case.opposite().is_some() {
            return Ok(());
        }
        let inserted: Vec<_> =
            std::iter::from_fn(|| self.draw.next_inserted()).map(|record| (record, Operation::Delete)).collect();
        self.corpus.execute(&inserted, false).map(|_| ())
    }

    /// Undoes the operations of a case whose keys have run out. This is not measured.
    fn undo(&mut self, case: &Case) -> Result<(), String> {
        let opposite = case.opposite().expect("only the keys of inserts and deletes run out");
        let mut operations = Vec::new();
        loop {
            self.draw.batch(&opposite, self.batch, &mut operations);
            if operations.is_empty() {
                return Ok(());
            }
            self.corpus.execute(&operations, opposite.is_batched)?;
        }
    }
}

impl<S: Access> Subject for Ordered<S> {
    type Case = Case;

    fn name(case: &Case) -> &'static str {
        case.name
    }

    fn ideal(&self, case: &Case) -> Ideal {
        case.ideal(self.corpus.shape.key_size + self.corpus.shape.value_size)
    }

    fn run(&mut self, case: &Case, at_least: Duration) -> Result<Work, String> {
        let mut work = Work::default();
        let mut operations = Vec::new();
        while work.spent < at_least {
            self.draw.batch(case, self.batch, &mut operations);
            if operations.is_empty() {
                self.undo(case)?;
                continue;
            }
            let spent = self.corpus.execute(&operations, case.is_batched);
            work.add(spent.map_err(|reason| format!("{}: {reason}", case.name))?, operations.len());
        }
        self.restore(case)?;
        Ok(work)
    }
}

/// Loads the store and measures all cases.
pub(super) fn measure(arguments: &Arguments, setup: Setup<'_>) -> Result<EngineReport, Failure> {
    let kv_size = arguments.kv_size.unwrap_or(KV_SIZE) as usize;
    let utilization = arguments.utilization;
    if kv_size < KV_SIZE_MIN {
        return Err(Failure::Usage(format!(
            "pairs of {kv_size} bytes have keys that are too short to be random: write --kv-size {KV_SIZE_MIN} or more"
        )));
    }
    if !(utilization > 0.0 && utilization < 1.0) {
        return Err(Failure::Usage(format!("a store cannot be {utilization} full: choose another --utilization")));
    }
    let runtime = Failure::Runtime;
    let settings = OrderedSettings::new(setup.memory.0);
    let shape = Shape::new(kv_size, setup.memory.0, utilization);
    let cases: Vec<Case> = CASES.into_iter().filter(|case| case.takes_part(arguments.distribution)).collect();
    let progress = setup.progress;
    let load_seconds = LOAD_SECONDS_PER_GIB.map(|seconds| seconds * setup.memory.0 as f64 / f64::from(1 << 30));
    let sides = side_count(cases.len()) + work::side_count();
    progress.expect(load_seconds.iter().sum::<f64>() + cases.len() as f64 * setup.warm_up_seconds());
    progress.expect(setup.seconds(sides));
    progress.begin(format!("loading a store of {}", setup.memory), load_seconds[0]);

    let store = OrderedStore::new(&settings).map_err(|error| runtime(error.to_string()))?;
    let session = store.session().expect("the first session");
    let corpus = Corpus::new(session, shape, |share| progress.advance(share)).map_err(runtime)?;
    let statistics = store.statistics();
    let memory_used = statistics.space.touched_bytes + statistics.space.lids * size_of::<u32>() as u64;
    let memory_per_raw_byte = memory_used as f64 / (shape.pair_count * kv_size as u64) as f64;
    let tree = TreeStatistics { pairs: shape.pair_count, height: statistics.height, memory_per_raw_byte };
    let mut random = {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        move || rand::Rng::next_u64(&mut random)
    };
    let bare_loop = bare_loop(memory_used, &mut random)?;
    let draw = Draw::new(Xoshiro256PlusPlus::seed_from_u64(1), shape.pair_count);
    let mut ordered = Ordered { corpus, draw, batch: setup.batch };
    let measured = measure_rounds(&mut ordered, &cases, setup, &bare_loop, &mut random).map_err(runtime)?;
    let limit_with_work = measure_limit_with_work(&bare_loop, setup, &mut random);
    drop((ordered, bare_loop));
    drop(store);

    progress.begin("loading the store whose lines are counted", load_seconds[1]);
    let counts = count_all(setup, shape, &cases).map_err(runtime)?;
    let reported = cases.iter().zip(&measured.cases).zip(counts).map(|((case, speed), (accesses, lines))| {
        let bytes_read = Some(lines * LINE_SIZE as f64);
        EngineCase { bytes_read, ..figures(case.name, *speed, accesses, lines) }
    });
    Ok(EngineReport {
        skep: env!("CARGO_PKG_VERSION").to_owned(),
        machine: machine(),
        engine: "ordered".to_owned(),
        memory: setup.memory.0,
        kv_size: kv_size as u64,
        utilization,
        hash_index_ratio: None,
        tree: Some(tree),
        batch: arguments.batch,
        rounds: setup.effort.rounds as u64,
        spread_max: SPREAD_MAX,
        limit_read: measured.reads,
        limit_rmw: measured.writes,
        cases: reported.collect(),
        station: Vec::new(),
        limit_with_work,
    })
}

/// Loads another store, and returns the accesses and lines that an operation of each case reads.
fn count_all(setup: Setup<'_>, shape: Shape, cases: &[Case]) -> Result<Vec<(f64, f64)>, String> {
    let touched = Arc::new(LinesTouched::default());
    let settings = counted::ordered::OrderedSettings::new(setup.memory.0);
    let store = observed(&settings, touched.clone()).map_err(|error| error.to_string())?;
    let session = store.session().expect("the first session");
    let corpus = Corpus::new(session, shape, |share| {
        setup.progress.advance(share);
        _ = touched.take();
    })?;
    let draw = Draw::new(Xoshiro256PlusPlus::seed_from_u64(COUNTED_SEED), shape.pair_count);
    let mut counted = Ordered { corpus, draw, batch: 1 };
    cases.iter().map(|case| count(&mut counted, &touched, case)).collect()
}

/// Returns the accesses and lines that an operation reads.
fn count<S: Access>(counted: &mut Ordered<S>, touched: &LinesTouched, case: &Case) -> Result<(f64, f64), String> {
    let (mut accesses, mut lines, mut done) = (0, 0, 0);
    let mut operations = Vec::new();
    touched.take();
    while done < COUNTED_OPERATIONS {
        counted.draw.batch(case, 1, &mut operations);
        if operations.is_empty() {
            break;
        }
        counted.corpus.execute(&operations, case.is_batched)?;
        let counts = touched.take();
        accesses += counts.runs;
        lines += counts.lines;
        done += 1;
    }
    counted.restore(case)?;
    Ok((accesses as f64 / done.max(1) as f64, lines as f64 / done.max(1) as f64))
}
