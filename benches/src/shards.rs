//! Measures several shards in one process, and computes how unequal their loads are.
//!
//! ```text
//! keys ─ public partition hash ─▶ shard 0: thread, core, store      every thread executes its own operations,
//!                               └▶ shard 1: thread, core, store      drawn and divided before the clock runs
//! ```
//!
//! The rate counts all operations until the last shard has ended, so a hot shard lowers it. The load of the hottest
//! shard is computed, not measured: the probabilities of all keys by Zipf's law are summed up for each shard. KV-Direct
//! (section 6.2) reports 1.5 times the average for ten NICs under a long tail.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_measure::{Effort, Figure, Progress, Rounds, Row as Measurement, Work, median};
use skep_wire::partition::Partition;

use crate::figures::{cell, millions, percent};
use crate::keys::{Draw, random_key, record_of_rank};
use crate::maps::{Contender, Store};
use crate::plot::{Group, Plot, exact, in_millions, in_millions_text};
use crate::process::{cores, run_on_cores};
use crate::program::{Measured, number};
use crate::results::Head;
use crate::tables::{Tables, table};
use skep_measure::distribution::THETA;

/// Numbers of shards that are measured.
const SHARD_COUNTS: [u16; 2] = [1, 2];
/// Numbers of shards for which loads are computed.
const LOAD_SHARD_COUNTS: [u16; 3] = [2, 4, 10];
/// Number of seeds of the partition hash; a server draws its own.
const SEED_COUNT: u64 = 9;
/// Pairs in one step of the fill.
const FILL_STEP: u64 = 1 << 16;

/// The amount of work to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// Pairs of 8 + 2 bytes in all shards together.
    #[arg(long, default_value_t = 20_000_000, value_parser = number(1..=200_000_000))]
    pub pairs: usize,
    /// Operations in a batch.
    #[arg(long, default_value_t = 256, value_parser = number(1..=65_536))]
    pub batch: usize,
    /// Rounds and slices.
    #[command(flatten)]
    pub effort: Effort,
    /// Operations of each case whose replies are compared between one shard and two, before the rounds.
    #[arg(long, default_value_t = 4_000_000, value_parser = number(1..=100_000_000))]
    pub operations: usize,
}

/// Share of the stores' memory that holds the pairs.
const UTILIZATION: f64 = 0.3;
/// About how many seconds the fill of a store takes for each pair, and the computation of a load for each key.
const PAIR_SECONDS: f64 = 250e-9;

/// The cases: name, true for puts, true for Zipf's law. All keys exist.
const CASES: [(&str, bool, bool); 4] = [
    ("get, uniform", false, false),
    ("put, uniform", true, false),
    ("get, Zipf", false, true),
    ("put, Zipf", true, true),
];

/// The result of a comparison.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The kind is `shards`.
    #[serde(flatten)]
    pub head: Head,
    /// See [`Plan::pairs`].
    pub pairs: usize,
    /// See [`Plan::batch`].
    pub batch: usize,
    /// Rounds for each case.
    pub rounds: usize,
    /// Share of the stores' memory that holds the pairs.
    pub utilization: f64,
    /// One row for each case.
    pub rows: Vec<Row>,
    /// The loads of the hottest shard under Zipf's law.
    pub hottest: Vec<Hottest>,
    /// A hash of the work that was done: the same for the same plan.
    pub work: u64,
}

/// The figures of one case.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Row {
    /// Name of the case.
    pub case: String,
    /// Operations per second of all shards together: with one shard, and with two.
    pub ops_per_s: [Figure; 2],
    /// The rate of two shards divided by that of one, round by round.
    pub speedup: Figure,
}

/// The load of the hottest of several shards.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct Hottest {
    /// Number of shards.
    pub shards: u16,
    /// Load of the hottest shard divided by the average, for several seeds of the partition hash.
    pub over_average: Seeds,
}

/// A number that depends on the seed of a hash. It is computed, not measured, so it is never noisy.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct Seeds {
    /// The median of the seeds.
    pub median: f64,
    /// (Largest − smallest) / median.
    pub spread: f64,
}

impl Seeds {
    fn of(seeds: &[f64]) -> Self {
        Seeds { median: median(seeds), spread: Figure::of(seeds).spread() }
    }
}

/// Fills the stores and measures them. Two shards need two cores.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Report, String> {
    match cores()?.len() {
        1 => Err("two shards need two cores: run on a machine with more cores, or with a wider taskset".to_owned()),
        _ => measure(plan, progress),
    }
}

/// Fills the stores and measures them. If there are fewer cores than shards, shards share cores.
fn measure(plan: &Plan, progress: &Progress) -> Result<Report, String> {
    let cores = cores()?;
    let seconds = plan.pairs as f64 * PAIR_SECONDS;
    let rounds = Rounds::new(plan.effort, CASES.map(|(name, ..)| Measurement::new(name, SHARD_COUNTS.len())).to_vec());
    progress.expect((SHARD_COUNTS.len() + 1) as f64 * seconds + rounds.expected_seconds());
    let mut groups = Vec::new();
    for shard_count in SHARD_COUNTS {
        progress.begin(format!("filling shards: {shard_count}"), seconds);
        groups.push(Stores::new(plan, shard_count)?);
    }
    let draw = |seed: usize, is_zipf: bool| {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed as u64);
        if is_zipf { Draw::zipf(random, plan.pairs as u64) } else { Draw::uniform(random, plan.pairs as u64) }
    };
    let mut work = 0u64;
    for (_, is_put, is_zipf) in CASES {
        let records = draw(0, is_zipf).records(plan.operations);
        let sums: Vec<u64> = groups
            .iter_mut()
            .map(|group| Ok(group.execute(&records, is_put, plan.batch, &cores)?.0))
            .collect::<Result<_, String>>()?;
        if sums[0] != sums[1] {
            return Err("one shard and two shards reply differently".to_owned());
        }
        work = work.rotate_left(9) ^ sums[0];
    }
    let rates = rounds.run(progress, |turn| {
        let (_, is_put, is_zipf) = CASES[turn.row];
        let mut draw = draw(turn.round + 1, is_zipf);
        turn.rate(|at_least| {
            Work::of_steps(at_least, |operations| {
                let records = draw.records(operations);
                Ok::<_, String>(groups[turn.side].execute(&records, is_put, plan.batch, &cores)?.1)
            })
        })
    })?;
    let row = |((name, _, _), rates): (&(&str, bool, bool), &Vec<Vec<f64>>)| Row {
        case: (*name).to_owned(),
        ops_per_s: [0, 1].map(|side| Figure::of(&rates[side])),
        speedup: Figure::of_ratio(&rates[1], &rates[0]),
    };
    progress.begin("adding up loads", seconds);
    Ok(Report {
        head: Head::here("shards"),
        pairs: plan.pairs,
        batch: plan.batch,
        rounds: plan.effort.rounds,
        utilization: UTILIZATION,
        rows: CASES.iter().zip(&rates).map(row).collect(),
        hottest: hottest(plan.pairs as u64),
        work,
    })
}

/// The stores of one server's shards, without the server.
struct Stores {
    partition: Partition,
    stores: Vec<Store>,
}

impl Stores {
    /// Opens the stores and puts all pairs.
    fn new(plan: &Plan, shard_count: u16) -> Result<Self, String> {
        let partition = Partition::new(1, shard_count);
        // Shares differ by chance. One per cent more memory is enough for the largest.
        let pairs = plan.pairs.div_ceil(usize::from(shard_count)) + plan.pairs / 100;
        let stores = (0..shard_count).map(|_| Store::new(pairs, UTILIZATION)).collect::<Result<_, _>>()?;
        let mut group = Stores { partition, stores };
        for first in (0..plan.pairs as u64).step_by(FILL_STEP as usize) {
            let records: Vec<u64> = (first..(first + FILL_STEP).min(plan.pairs as u64)).collect();
            let keys = group.partition_keys(&records);
            for (store, keys) in group.stores.iter_mut().zip(&keys) {
                let [keys, values] = slices(keys);
                store.put(&keys, &values, plan.batch);
            }
        }
        Ok(group)
    }

    /// Returns the keys of these records, grouped by shard.
    fn partition_keys(&self, records: &[u64]) -> Vec<Vec<[u8; 8]>> {
        let mut keys = vec![Vec::new(); self.stores.len()];
        for record in records {
            let key = random_key(*record);
            keys[usize::from(self.partition.shard_of(&key))].push(key);
        }
        keys
    }

    /// Executes each operation on its shard. Returns the sum of all replies, and the time until the last shard has
    /// ended.
    fn execute(&mut self, records: &[u64], is_put: bool, batch: usize, cores: &[usize]) -> Result<(u64, Work), String> {
        let keys = self.partition_keys(records);
        let jobs = self.stores.iter_mut().zip(&keys).zip(cores.iter().cycle()).map(|((store, keys), core)| {
            let prepare = move || {
                let [keys, values] = slices(keys);
                move || match is_put {
                    true => {
                        store.put(&keys, &values, batch);
                        0
                    }
                    false => store.get(&keys, batch),
                }
            };
            (*core, prepare)
        });
        let (sum, spent) = run_on_cores(jobs.collect())?;
        Ok((sum, Work { spent, operations: records.len() }))
    }
}

/// Returns the keys as slices, and their values: the first two bytes of each key.
fn slices(keys: &[[u8; 8]]) -> [Vec<&[u8]>; 2] {
    [keys.iter().map(|key| &key[..]).collect(), keys.iter().map(|key| &key[..2]).collect()]
}

/// Returns the loads of the hottest shard under Zipf's law: all probabilities are summed up.
fn hottest(pairs: u64) -> Vec<Hottest> {
    let partitions: Vec<Vec<Partition>> = LOAD_SHARD_COUNTS
        .iter()
        .map(|&shards| (0..SEED_COUNT).map(|seed| Partition::new(seed, shards)).collect())
        .collect();
    let mut loads: Vec<Vec<Vec<f64>>> =
        LOAD_SHARD_COUNTS.iter().map(|&shards| vec![vec![0.0; usize::from(shards)]; SEED_COUNT as usize]).collect();
    let mut total = 0.0;
    for rank in 0..pairs {
        let weight = ((rank + 1) as f64).powf(-THETA);
        total += weight;
        let key = random_key(record_of_rank(rank, pairs));
        for (partitions, loads) in partitions.iter().zip(&mut loads) {
            for (partition, loads) in partitions.iter().zip(loads) {
                loads[usize::from(partition.shard_of(&key))] += weight;
            }
        }
    }
    let over_average = |loads: &Vec<f64>| loads.iter().copied().fold(0.0, f64::max) * loads.len() as f64 / total;
    let figures = loads.iter().map(|of_seeds| Seeds::of(&of_seeds.iter().map(over_average).collect::<Vec<_>>()));
    LOAD_SHARD_COUNTS.into_iter().zip(figures).map(|(shards, over_average)| Hottest { shards, over_average }).collect()
}

impl Measured for Report {
    fn head(&self) -> &Head {
        &self.head
    }

    fn plot(&self) -> Plot {
        let names = ["skep, 1 shard", "skep, 2 shards"].map(str::to_owned);
        let group = |row: &Row| {
            let bars = names.iter().cloned().zip(row.ops_per_s.iter().map(in_millions));
            Group::new(format!("{} (million/s)", row.case), bars)
        };
        let mut groups: Vec<Group> = self.rows.iter().map(group).collect();
        let load = |hottest: &Hottest| (format!("skep, {} shards", hottest.shards), exact(hottest.over_average.median));
        groups.push(Group::new("load of the hottest shard / average, Zipf", self.hottest.iter().map(load)));
        let pairs = in_millions_text(self.pairs as u64);
        Plot::new(format!("{pairs} million pairs of 8 + 2 B, a core for each shard"), self.origin(), groups)
    }

    fn tables(&self) -> Tables {
        let two_digits = |number: f64| format!("{number:.2}");
        let rows = self.rows.iter().map(|row| {
            let [one, two] = row.ops_per_s.each_ref().map(|figure| cell(figure, millions));
            vec![row.case.clone(), one, two, cell(&row.speedup, two_digits)]
        });
        let loads = self.hottest.iter().map(|hottest| {
            let Seeds { median, spread } = hottest.over_average;
            vec![hottest.shards.to_string(), format!("{median:.2} ±{}", percent(spread / 2.0))]
        });
        let note = format!(
            "{} pairs of 8 + 2 B, stores {} full, batches of {}, medians of {} rounds; a thread and a core for each shard; \
             uniform, and Zipf {THETA}. The hottest shard: medians of {SEED_COUNT} seeds of the partition hash; all keys' \
             probabilities are summed up, nothing is drawn. Work {:016x}.",
            self.pairs,
            percent(self.utilization),
            self.batch,
            self.rounds,
            self.work,
        );
        let tables = vec![
            table(&["", "1 shard, M/s", "2 shards, M/s", "2 / 1"], 1, rows),
            table(&["shards", "load of the hottest / average, Zipf"], 1, loads),
        ];
        Tables { tables, note }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Checks that one shard and two reply alike, and that the work has not changed since this was written.
    #[test]
    fn the_comparison_runs() {
        let effort = Effort { rounds: 2, slice: Duration::from_micros(200) };
        let plan = Plan { pairs: 3000, batch: 32, effort, operations: 1000 };
        let report = measure(&plan, &Progress::hidden()).unwrap();
        assert_eq!(format!("{:016x}", report.work), "000aa64dc035d600");
        assert!(report.tables().text().contains("2 shards"));
    }

    /// Checks the share of the most popular of 100 000 keys: it has 8% of the load, and its shard has a tenth of the
    /// rest.
    #[test]
    fn the_hottest_shard_has_the_most_popular_key() {
        let over_average: Vec<f64> = hottest(100_000).iter().map(|hottest| hottest.over_average.median).collect();
        let zeta: f64 = (1..=100_000).map(|rank| f64::from(rank).powf(-THETA)).sum();
        for (shards, over_average) in LOAD_SHARD_COUNTS.iter().zip(over_average) {
            let of_one_key = 1.0 + f64::from(*shards - 1) / zeta;
            assert!((of_one_key * 0.95..of_one_key * 1.3).contains(&over_average), "{shards}: {over_average}");
        }
    }
}
