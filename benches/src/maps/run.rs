//! Fills the contenders, measures them in rounds, and reports the result.

use std::time::Instant;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use skep_measure::{Effort, Figure, Progress, Rounds, Row as Measurement, Samples, Work};

use super::{Contender, KINDS};
use crate::figures::{cell, millions, percent, ratio_cell};
use crate::keys::{Draw, random_key, random_value};
use crate::plot::{Group, Plot, exact, in_millions, in_millions_text};
use crate::process::{MIMALLOC_HUGE_PAGES, available_size, growth_of, huge_page_policy};
use crate::program::{Measured, number};
use crate::results::Head;
use crate::tables::{Tables, table};
use skep_measure::distribution::THETA;

/// Pairs in one step of the fill.
const FILL_STEP: usize = 1 << 16;
/// Bytes that all contenders together take for a pair, at the most unfavourable capacity of the tables.
const PAIR_MEMORY_MAX: u64 = 420;

/// About how many seconds the fill of a contender takes for each pair, and the comparison of replies for each operation.
const OPERATION_SECONDS: f64 = 250e-9;

/// The amount of work to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct Plan {
    /// Pairs of 8 + 2 bytes in every contender.
    #[arg(long, default_value_t = 20_000_000, value_parser = number(1..=200_000_000))]
    pub pairs: usize,
    /// Operations in a batch.
    #[arg(long, default_value_t = 32, value_parser = number(1..=65_536))]
    pub batch: usize,
    /// Rounds and slices.
    #[command(flatten)]
    pub effort: Effort,
    /// Operations of each case whose replies are compared before the rounds.
    #[arg(long, default_value_t = 1_000_000, value_parser = number(1..=100_000_000))]
    pub operations: usize,
    /// Share of the store's memory that holds keys and values, at most 0.6.
    #[arg(long, default_value_t = 0.3, value_parser = utilization)]
    pub utilization: f64,
}

/// Parses the share. Five pairs of 10 bytes and the header of their bucket are 64 bytes.
fn utilization(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|share| *share > 0.0 && *share <= 0.6)
        .ok_or("write a number above 0, up to 0.6".to_owned())
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// Gets of keys that exist.
    GetUniform,
    /// Puts to keys that exist, values of the same size.
    PutExisting,
    /// Additions that return the old value.
    FetchAdd,
    /// Gets by Zipf's law.
    GetZipf,
}

impl Case {
    /// All cases, in the order of the report.
    pub const ALL: [Case; 4] = [Case::GetUniform, Case::PutExisting, Case::FetchAdd, Case::GetZipf];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        ["get, uniform", "put, existing", "fetch-add", "get, Zipf"][self as usize]
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The kind is `maps`.
    #[serde(flatten)]
    pub head: Head,
    /// See [`Plan::pairs`].
    pub pairs: usize,
    /// See [`Plan::batch`].
    pub batch: usize,
    /// Rounds for each case.
    pub rounds: usize,
    /// The allocator of the maps and its settings for huge pages.
    pub allocator: String,
    /// Share of the store's memory that holds keys and values.
    pub utilization: f64,
    /// One row for each contender, the store first.
    pub rows: Vec<Row>,
    /// For each case, the store's speed divided by that of the fastest map that takes pairs of any size.
    pub over_best: Vec<Figure>,
    /// For each case, the name of that map.
    pub best: Vec<String>,
    /// Bytes per pair of the smallest such map, divided by those of the store.
    pub memory_over_ours: f64,
    /// A hash of the work that was done: the same for the same plan.
    pub work: u64,
}

/// The figures of one contender.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Row {
    /// Name of the contender.
    pub name: String,
    /// True if it takes pairs of any size.
    pub is_variable: bool,
    /// Growth of resident memory during the fill, per pair.
    pub bytes_per_pair: f64,
    /// Share of that growth in huge pages.
    pub huge_pages: f64,
    /// Operations per second of each case, in the order of [`Case::ALL`].
    pub ops_per_s: Vec<Figure>,
}

/// Keys and values of a case, drawn before the clock runs.
struct Drawn {
    keys: Vec<[u8; 8]>,
    values: Vec<[u8; 2]>,
}

/// Fills all contenders and measures them.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Report, String> {
    let needed = plan.pairs as u64 * PAIR_MEMORY_MAX;
    if let Some(available) = available_size().filter(|available| *available < needed) {
        return Err(format!(
            "{} pairs in every map may take {} MiB, and {} MiB are available: choose fewer --pairs",
            plan.pairs,
            needed >> 20,
            available >> 20
        ));
    }
    let rows = Case::ALL.map(|case| Measurement::new(case.name(), KINDS.len())).to_vec();
    let rounds = Rounds::new(plan.effort, rows);
    let fill_seconds = plan.pairs as f64 * OPERATION_SECONDS;
    let compare_seconds = (plan.operations * Case::ALL.len() * KINDS.len()) as f64 * OPERATION_SECONDS;
    progress.expect(KINDS.len() as f64 * fill_seconds + compare_seconds + rounds.expected_seconds());
    let mut contenders = Vec::new();
    let mut rows = Vec::new();
    for kind in &KINDS {
        progress.begin(format!("filling {}", kind.name), fill_seconds);
        let (contender, growth) = growth_of(|| {
            let mut contender = (kind.new)(plan)?;
            fill(&mut *contender, plan);
            Ok(contender)
        })?;
        rows.push(Row {
            name: kind.name.to_owned(),
            is_variable: kind.is_variable,
            bytes_per_pair: growth.resident / plan.pairs as f64,
            huge_pages: growth.huge_pages,
            ops_per_s: Vec::new(),
        });
        contenders.push(contender);
    }

    progress.begin("comparing replies", compare_seconds);
    let work = compare_replies(&mut contenders, plan)?;
    let rates = measure(&mut contenders, plan, &rounds, progress)?;
    for (contender, row) in rows.iter_mut().enumerate() {
        row.ops_per_s = rates.iter().map(|rates| Figure::of(&rates[contender])).collect();
    }
    let peers: Vec<usize> = (1..rows.len()).filter(|&peer| rows[peer].is_variable).collect();
    let best = |case: usize| {
        // A contender whose own figure is noisy can still be the fastest.
        let speed = |peer: usize| rates[case][peer].iter().sum::<f64>();
        peers.iter().copied().max_by(|&a, &b| speed(a).total_cmp(&speed(b))).expect("there are peers")
    };
    let best: Vec<usize> = (0..Case::ALL.len()).map(best).collect();
    let over_best = best.iter().enumerate().map(|(case, &best)| Figure::of_ratio(&rates[case][0], &rates[case][best]));
    let leanest = peers.iter().map(|&peer| rows[peer].bytes_per_pair).min_by(f64::total_cmp);
    Ok(Report {
        head: Head::here("maps"),
        pairs: plan.pairs,
        batch: plan.batch,
        rounds: plan.effort.rounds,
        allocator: format!("mimalloc with {MIMALLOC_HUGE_PAGES}; transparent huge pages: {}", huge_page_policy()),
        utilization: contenders[0].utilization().unwrap_or_default(),
        over_best: over_best.collect(),
        best: best.iter().map(|&best| rows[best].name.clone()).collect(),
        memory_over_ours: leanest.expect("there are peers") / rows[0].bytes_per_pair,
        rows,
        work,
    })
}

/// Measures all contenders by turns. Returns the rates of each contender in each case, round by round.
fn measure(
    contenders: &mut [Box<dyn Contender>],
    plan: &Plan,
    rounds: &Rounds,
    progress: &Progress,
) -> Result<Samples<f64>, String> {
    rounds.run(progress, |turn| {
        let case = Case::ALL[turn.row];
        // All contenders get the same sequence of keys; a faster one uses more of it.
        let mut draw = draw(case, turn.round as u64 + 2, plan);
        let contender = &mut *contenders[turn.side];
        turn.rate(|at_least| {
            Work::of_steps(at_least, |operations| {
                let drawn = Drawn::new(&mut draw, turn.round as u64, operations);
                Ok(time(contender, case, &drawn, plan.batch).1)
            })
        })
    })
}

/// Runs the same operations of each case on all contenders. Returns the hash of their replies, which must agree.
fn compare_replies(contenders: &mut [Box<dyn Contender>], plan: &Plan) -> Result<u64, String> {
    let mut work = 0u64;
    for case in Case::ALL {
        let drawn = Drawn::new(&mut draw(case, 1, plan), 0, plan.operations);
        let sums: Vec<u64> =
            contenders.iter_mut().map(|contender| time(&mut **contender, case, &drawn, plan.batch).0).collect();
        if let Some(wrong) = sums.iter().position(|sum| *sum != sums[0]) {
            return Err(format!("{} and {} reply differently to {case:?}", KINDS[0].name, KINDS[wrong].name));
        }
        work = work.rotate_left(9) ^ sums[0];
    }
    Ok(work)
}

/// Returns the generator of a case's records.
fn draw(case: Case, seed: u64, plan: &Plan) -> Draw {
    let random = Xoshiro256PlusPlus::seed_from_u64(seed);
    if case == Case::GetZipf { Draw::zipf(random, plan.pairs as u64) } else { Draw::uniform(random, plan.pairs as u64) }
}

fn fill(contender: &mut dyn Contender, plan: &Plan) {
    for first in (0..plan.pairs).step_by(FILL_STEP) {
        let records = first as u64..plan.pairs.min(first + FILL_STEP) as u64;
        let keys: Vec<_> = records.clone().map(random_key).collect();
        let values: Vec<_> = records.map(random_value).collect();
        contender.put(&slices(&keys), &slices(&values), plan.batch);
    }
}

/// Runs the operations of a case. Returns the sum of their replies and the time that they took.
fn time(contender: &mut dyn Contender, case: Case, drawn: &Drawn, batch: usize) -> (u64, Work) {
    let (keys, values) = (slices(&drawn.keys), slices(&drawn.values));
    let (keys, batch) = std::hint::black_box((&keys[..], batch));
    let begun = Instant::now();
    let sum = match case {
        Case::GetUniform | Case::GetZipf => contender.get(keys, batch),
        Case::PutExisting => {
            contender.put(keys, &values, batch);
            0
        }
        Case::FetchAdd => contender.fetch_add(keys, 1, batch),
    };
    (sum, Work { spent: begun.elapsed(), operations: keys.len() })
}

fn slices<const SIZE: usize>(arrays: &[[u8; SIZE]]) -> Vec<&[u8]> {
    arrays.iter().map(|array| &array[..]).collect()
}

impl Drawn {
    fn new(draw: &mut Draw, round: u64, count: usize) -> Self {
        let keys = (0..count).map(|_| random_key(draw.next_record())).collect();
        let values = (0..count as u64).map(|index| random_value(index ^ round << 32)).collect();
        Drawn { keys, values }
    }
}

impl Measured for Report {
    fn head(&self) -> &Head {
        &self.head
    }

    fn plot(&self) -> Plot {
        let rates =
            |index: usize| self.rows.iter().map(move |row| (row.name.clone(), in_millions(&row.ops_per_s[index])));
        let mut groups: Vec<Group> = Case::ALL
            .into_iter()
            .enumerate()
            .map(|(index, case)| Group::new(format!("{} (million/s)", case.name()), rates(index)))
            .collect();
        let memory = self.rows.iter().map(|row| (row.name.clone(), exact(row.bytes_per_pair)));
        groups.push(Group::new("memory (bytes a pair)", memory));
        let pairs = in_millions_text(self.pairs as u64);
        let title = format!("{pairs} million pairs of 8 + 2 B, one thread, batches of {}", self.batch);
        Plot::new(title, self.origin(), groups)
    }

    fn tables(&self) -> Tables {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for row in &self.rows {
            let mut cells = vec![row.name.clone()];
            cells.extend(row.ops_per_s.iter().map(|figure| cell(figure, millions)));
            cells.extend([format!("{:.1}", row.bytes_per_pair), percent(row.huge_pages)]);
            rows.push(cells);
        }
        let mut cells = vec!["skep / best of any size".to_owned()];
        cells.extend(self.over_best.iter().map(ratio_cell));
        cells.extend([format!("1 / {:.2}", self.memory_over_ours), String::new()]);
        rows.push(cells);
        let header = ["map", "get M/s", "put M/s", "fetch-add M/s", "get, Zipf M/s", "B/pair", "huge pages"];
        let note = format!(
            "{} pairs of 8 + 2 B, batches of {}, medians of {} rounds; store {} full; uniform, and Zipf {THETA}. Maps: {}; all \
             hash with rapidhash. Work {:016x}.",
            self.pairs,
            self.batch,
            self.rounds,
            percent(self.utilization),
            self.allocator,
            self.work,
        );
        Tables { tables: vec![table(&header, 1, rows)], note }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Draws a result that was saved and read back: every case has a bar for each contender.
    #[test]
    fn a_saved_result_can_be_drawn() {
        let effort = Effort { rounds: 1, slice: Duration::from_micros(200) };
        let plan = Plan { pairs: 500, batch: 32, effort, operations: 100, utilization: 0.3 };
        let saved = serde_json::to_string(&run(&plan, &Progress::hidden()).unwrap()).unwrap();
        let plot = serde_json::from_str::<Report>(&saved).unwrap().plot();
        assert_eq!(plot.groups.len(), Case::ALL.len() + 1);
        assert!(plot.groups.iter().all(|group| group.bars.len() == KINDS.len()));
    }

    /// Checks that all contenders reply alike, and that the work has not changed since this was written.
    #[test]
    fn the_comparison_runs() {
        let plan = Plan {
            pairs: 3000,
            batch: 32,
            effort: Effort { rounds: 3, slice: Duration::from_micros(200) },
            operations: 1000,
            utilization: 0.5,
        };
        let report = run(&plan, &Progress::hidden()).unwrap();
        assert_eq!(format!("{:016x}", report.work), "000f9c53a0f75822");
        assert_eq!(report.rows.len(), KINDS.len());
        assert!(report.tables().text().contains("papaya"));
    }
}
