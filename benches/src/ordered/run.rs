//! The fill, the rounds, and the report.

use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Contender, KINDS, PART_SIZE, Part};
use crate::figures::{Figure, millions};
use crate::process::{huge_page_size, resident_size};
use crate::results::Origin;
use crate::tables::{Tables, table};

/// Pairs of one step of the fill.
const FILL_STEP: usize = 1 << 16;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Pairs that every contender holds.
    pub pairs: usize,
    /// Gets of a batch.
    pub batch: usize,
    /// Pairs of a scan.
    pub scan: usize,
    /// Rounds, at least one.
    pub rounds: usize,
    /// Operations of a case in a round.
    pub operations: usize,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// Gets of keys that exist, in batches where that can be had.
    GetBatch,
    /// Gets of keys that exist, one after the other.
    GetSingle,
    /// Scans from a key that exists, in batches where that can be had.
    ScanBatch,
    /// The same scans, one after the other.
    ScanSingle,
    /// Puts to keys that exist.
    PutExisting,
}

impl Case {
    /// All cases, in the order of the report.
    pub const ALL: [Case; 5] = [Case::GetBatch, Case::GetSingle, Case::ScanBatch, Case::ScanSingle, Case::PutExisting];
}

/// What was found.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Always `ordered`.
    pub kind: String,
    /// When and where.
    #[serde(flatten)]
    pub origin: Origin,
    /// As in [`Plan`].
    pub pairs: usize,
    /// As in [`Plan`].
    pub batch: usize,
    /// As in [`Plan`].
    pub scan: usize,
    /// As in [`Plan`].
    pub rounds: usize,
    /// The allocator of the maps, and how huge pages were asked for.
    pub allocator: String,
    /// One for each contender, the store first.
    pub rows: Vec<Row>,
    /// For each case, the store's speed over that of the fastest peer.
    pub over_best: Vec<Figure>,
    /// The sum of all answers: the same for the same plan.
    pub work: u64,
}

/// A contender's figures.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Row {
    /// Which one.
    pub name: String,
    /// Memory after the fill, for a byte of keys and values.
    pub memory_per_raw_byte: f64,
    /// Share of the growth of resident memory in huge pages.
    pub huge_pages: f64,
    /// Nanoseconds of an insert, while it was filled.
    pub insert_ns: f64,
    /// Operations a second for each case, in the order of [`Case::ALL`].
    pub ops_per_s: Vec<Figure>,
}

/// The pair of a record. Records are inserted in this order, which is random for their keys.
fn pair(record: usize) -> (Part, Part) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(record as u64);
    (random.random(), random.random())
}

/// Fills all contenders and measures them.
pub fn run(plan: &Plan, allocator: &str) -> Result<Report, String> {
    let mut contenders = Vec::new();
    let mut rows = Vec::new();
    for kind in &KINDS {
        let (resident, huge) = (resident_size(), huge_page_size());
        let mut contender = (kind.new)(plan.pairs)?;
        let seconds = fill(&mut *contender, plan);
        let grown = resident_size().saturating_sub(resident).max(1) as f64;
        let memory = contender.memory().map_or(grown, |memory| memory as f64);
        rows.push(Row {
            name: kind.name.to_owned(),
            memory_per_raw_byte: memory / (plan.pairs * 2 * PART_SIZE) as f64,
            huge_pages: huge_page_size().saturating_sub(huge) as f64 / grown,
            insert_ns: seconds * 1e9 / plan.pairs as f64,
            ops_per_s: Vec::new(),
        });
        contenders.push(contender);
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut rates = vec![vec![Vec::new(); Case::ALL.len()]; contenders.len()];
    let mut work = 0_u64;
    // The first round warms up.
    for round in 0..=plan.rounds {
        for (place, case) in Case::ALL.into_iter().enumerate() {
            let pairs: Vec<(Part, Part)> =
                (0..plan.operations).map(|_| pair(random.random_range(0..plan.pairs))).collect();
            let keys: Vec<Part> = pairs.iter().map(|(key, _)| *key).collect();
            let mut sums = Vec::new();
            for turn in 0..contenders.len() {
                let turn = (turn + round) % contenders.len();
                let contender = &mut contenders[turn];
                let begin = Instant::now();
                let sum = match case {
                    Case::GetBatch => contender.get(&keys, plan.batch),
                    Case::GetSingle => contender.get(&keys, 1),
                    Case::ScanBatch => contender.scan(&keys, plan.scan, plan.batch),
                    Case::ScanSingle => contender.scan(&keys, plan.scan, 1),
                    Case::PutExisting => {
                        contender.put(&pairs);
                        0
                    }
                };
                let rate = plan.operations as f64 / begin.elapsed().as_secs_f64();
                sums.push(sum);
                if round > 0 {
                    rates[turn][place].push(rate);
                }
            }
            if sums.iter().any(|sum| *sum != sums[0]) {
                return Err(format!("the contenders answer differently in {case:?}: {sums:?}"));
            }
            work = work.rotate_left(7) ^ sums[0];
        }
    }
    let best_of = |case: usize, round: usize| rates[1..].iter().map(|rates| rates[case][round]).fold(0.0, f64::max);
    let over_best = (0..Case::ALL.len())
        .map(|case| {
            let best: Vec<f64> = (0..plan.rounds).map(|round| best_of(case, round)).collect();
            Figure::of_ratio(&rates[0][case], &best)
        })
        .collect();
    for (row, rates) in rows.iter_mut().zip(rates) {
        row.ops_per_s = rates.iter().map(|rounds| Figure::of(rounds)).collect();
    }
    Ok(Report {
        kind: "ordered".to_owned(),
        origin: Origin::here(),
        pairs: plan.pairs,
        batch: plan.batch,
        scan: plan.scan,
        rounds: plan.rounds,
        allocator: allocator.to_owned(),
        rows,
        over_best,
        work,
    })
}

/// Inserts all records. The seconds that it took, without the drawing.
fn fill(contender: &mut dyn Contender, plan: &Plan) -> f64 {
    let mut seconds = 0.0;
    for first in (0..plan.pairs).step_by(FILL_STEP) {
        let pairs: Vec<(Part, Part)> = (first..plan.pairs.min(first + FILL_STEP)).map(pair).collect();
        let begin = Instant::now();
        contender.put(&pairs);
        seconds += begin.elapsed().as_secs_f64();
    }
    seconds
}

impl Report {
    /// The report as tables.
    pub fn tables(&self) -> Tables {
        let scan = format!("scan of {}, in batches", self.scan);
        let header = [
            "",
            "GET in batches, M/s",
            "one at a time",
            &scan,
            "one at a time",
            "PUT",
            "insert, ns",
            "memory / raw byte",
            "huge pages",
        ];
        let rows = self.rows.iter().map(|row| {
            let figures = row.ops_per_s.iter().map(|figure| millions(figure.median));
            let rest = [
                format!("{:.0}", row.insert_ns),
                format!("{:.2}", row.memory_per_raw_byte),
                format!("{:.0}%", 100.0 * row.huge_pages),
            ];
            std::iter::once(row.name.clone()).chain(figures).chain(rest).collect()
        });
        let ratios = self.over_best.iter().map(|figure| format!("{:.2}", figure.median));
        let ratios = std::iter::once("skep over the best of the others".to_owned()).chain(ratios);
        let ratios = ratios.chain(std::iter::repeat_n(String::new(), 3)).collect();
        Tables {
            tables: vec![table(&header, 1, rows.chain([ratios]))],
            note: format!(
                "{} pairs of 16 + 16 bytes, batches of {}, {} rounds, one thread; allocator of the others: {}.",
                self.pairs, self.batch, self.rounds, self.allocator
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_run_does_the_same_work() {
        let plan = Plan { pairs: 5_000, batch: 32, scan: 24, rounds: 1, operations: 500 };
        let (one, other) = (run(&plan, "tests").unwrap(), run(&plan, "tests").unwrap());
        assert_eq!(one.work, other.work);
        assert_eq!(one.rows.len(), KINDS.len());
        assert!(one.tables().text().contains("masstree"));
    }
}
