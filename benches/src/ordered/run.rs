//! Fills the contenders, measures them in rounds, and reports the result.

use std::time::Duration;

use skep_measure::mix::Mix;
use skep_measure::{Figure, Progress, Times};

use super::{Case, Contender, Draw, KINDS, Keys, Read, execute, execute_on, fill, rate};
use crate::figures::{cell, millions, percent, ratio_cell};
use crate::process::{cores, huge_page_size, resident_size};
use crate::results::Origin;
use crate::tables::{Tables, table};

/// The amount of work to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Pairs in every contender.
    pub pairs: usize,
    /// Operations in a batch.
    pub batch: usize,
    /// Pairs in a scan.
    pub scan: usize,
    /// Number of rounds, at least one.
    pub rounds: usize,
    /// Operations of each case whose replies are compared before the rounds.
    pub operations: usize,
    /// Measured time of a case in a round, after a warm-up.
    pub slice: Duration,
}

/// Returns the cases on one thread: the paper's mixes, and scans of this length.
fn cases(scan: usize) -> Vec<Case> {
    vec![
        Case::reads("GET in batches (YCSB C, uniform)", Read::Get),
        Case::reads("GET, one at a time", Read::GetSingle),
        Case::reads("scans in batches", Read::Scan(scan, scan)),
        Case::reads("scan, one at a time", Read::ScanSingle(scan)),
        Case::puts("PUT"),
        Case::mix("YCSB A, uniform", Mix::A, Keys::Uniform),
        Case::mix("YCSB A, Zipf", Mix::A, Keys::Zipf),
        Case::mix("YCSB B, uniform", Mix::B, Keys::Uniform),
        Case::mix("YCSB B, Zipf", Mix::B, Keys::Zipf),
        Case::mix("YCSB C, Zipf", Mix::C, Keys::Zipf),
        Case::mix("YCSB D, uniform", Mix::D, Keys::Uniform),
        Case::mix("YCSB D, latest", Mix::D, Keys::Latest),
        Case::mix("YCSB E, uniform", Mix::E, Keys::Uniform),
        Case::mix("YCSB E, Zipf", Mix::E, Keys::Zipf),
        Case::mix("YCSB F, uniform", Mix::F, Keys::Uniform),
        Case::mix("YCSB F, Zipf", Mix::F, Keys::Zipf),
        Case::mix("cloud storage, 80% scans, uniform", Mix::cloud_storage(80), Keys::Uniform),
        Case::mix("cloud storage, 80% scans, Zipf", Mix::cloud_storage(80), Keys::Zipf),
        Case::mix("cloud storage, 90% scans, uniform", Mix::cloud_storage(90), Keys::Uniform),
        Case::mix("cloud storage, 90% scans, Zipf", Mix::cloud_storage(90), Keys::Zipf),
    ]
}

/// Names of the cases that also run on two threads.
const ON_TWO_THREADS: [&str; 6] = [
    "GET in batches (YCSB C, uniform)",
    "GET, one at a time",
    "scans in batches",
    "PUT",
    "YCSB B, uniform",
    "cloud storage, 80% scans, uniform",
];

/// The result of a comparison.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Always `ordered`.
    pub kind: String,
    /// Date and machine.
    #[serde(flatten)]
    pub origin: Origin,
    /// See [`Plan::pairs`].
    pub pairs: usize,
    /// See [`Plan::batch`].
    pub batch: usize,
    /// See [`Plan::scan`].
    pub scan: usize,
    /// See [`Plan::rounds`].
    pub rounds: usize,
    /// The allocator of the maps and its settings for huge pages.
    pub allocator: String,
    /// Names of the cases.
    pub cases: Vec<String>,
    /// One row for each contender, the store first.
    pub rows: Vec<Row>,
    /// For each case, the store's speed divided by that of the fastest peer.
    pub over_best: Vec<Figure>,
    /// For each case, the name of the peer that was the fastest in all rounds together.
    pub best: Vec<String>,
    /// Time of an insert into the fastest peer during the fill, divided by the store's.
    pub insert_over_best: f64,
    /// Figures of two threads, if there are two cores.
    pub threads: Vec<Threads>,
    /// The sum of all replies: the same for the same plan.
    pub work: u64,
}

/// The figures of one contender.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Row {
    /// Name of the contender.
    pub name: String,
    /// Memory after the fill, per byte of keys and values.
    pub memory_per_raw_byte: f64,
    /// Share of the growth of resident memory in huge pages.
    pub huge_pages: f64,
    /// Nanoseconds of an insert during the fill.
    pub insert_ns: f64,
    /// Operations per second of each case.
    pub ops_per_s: Vec<Figure>,
}

/// The figures of two threads that work on the same pairs.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Threads {
    /// Name of the case.
    pub case: String,
    /// For each contender, the rate of two threads divided by that of one.
    pub over_one: Vec<Figure>,
    /// The store's rate divided by that of the fastest peer, both with two threads.
    pub over_best: Figure,
}

/// Fills all contenders and measures them.
pub fn run(plan: &Plan, allocator: &str) -> Result<Report, String> {
    let cases = cases(plan.scan);
    let (mut contenders, mut rows) = fill_all(plan)?;
    let mut draw = Draw::new(plan.pairs);
    let cores = cores()?;
    let index_of = |name: &&str| cases.iter().position(|case| case.name == *name).expect("the name of a case");
    let on_two: &[&str] = if cores.len() < 2 { &[] } else { &ON_TWO_THREADS };
    let shared: Vec<usize> = on_two.iter().map(index_of).collect();
    let work = compare_replies(&mut contenders, &mut draw, &cases, &shared, plan, &cores)?;
    let rates = Rates::measure(&mut contenders, &draw, &cases, &shared, plan, &cores)?;
    let threads = |(index, rates): (&usize, &Vec<[Vec<f64>; 2]>)| Threads {
        case: cases[*index].name.to_owned(),
        over_one: rates.iter().map(|[one, two]| Figure::of_ratio(two, one)).collect(),
        over_best: over_best(&rates.iter().map(|[_, two]| two).collect::<Vec<_>>()),
    };
    let threads = shared.iter().zip(&rates.on_threads).map(threads).collect();
    let best_insert_ns = rows[1..].iter().map(|row| row.insert_ns).fold(f64::INFINITY, f64::min);
    let insert_over_best = best_insert_ns / rows[0].insert_ns;
    let over_best = (0..cases.len()).map(|case| over_best(&rates.of_case(case))).collect();
    let best = (0..cases.len()).map(|case| rows[rates.fastest_peer(case)].name.clone()).collect();
    for (row, rates) in rows.iter_mut().zip(rates.alone) {
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
        cases: cases.iter().map(|case| case.name.to_owned()).collect(),
        rows,
        over_best,
        best,
        insert_over_best,
        threads,
        work,
    })
}

/// A contender with keys of 16 B.
type Boxed = Box<dyn Contender<16>>;

/// Returns all contenders with their pairs, and their rows, which have no speeds yet.
fn fill_all(plan: &Plan) -> Result<(Vec<Boxed>, Vec<Row>), String> {
    let mut contenders = Vec::new();
    let mut rows = Vec::new();
    for kind in &KINDS {
        let (resident, huge) = (resident_size(), huge_page_size());
        let mut contender = (kind.new)(plan.pairs)?;
        let seconds = fill(&mut *contender, plan.pairs);
        let grown = resident_size().saturating_sub(resident).max(1) as f64;
        let memory = contender.memory().map_or(grown, |memory| memory as f64);
        rows.push(Row {
            name: kind.name.to_owned(),
            memory_per_raw_byte: memory / (plan.pairs * 2 * 16) as f64,
            huge_pages: huge_page_size().saturating_sub(huge) as f64 / grown,
            insert_ns: seconds * 1e9 / plan.pairs as f64,
            ops_per_s: Vec::new(),
        });
        contenders.push(contender);
    }
    Ok((contenders, rows))
}

/// The rates of all rounds.
struct Rates {
    /// For each contender and case, on the thread of the program.
    alone: Vec<Vec<Vec<f64>>>,
    /// For each shared case and contender, on one thread that has a core, and on two.
    on_threads: Vec<Vec<[Vec<f64>; 2]>>,
}

impl Rates {
    /// Measures all contenders by turns.
    fn measure(
        contenders: &mut [Boxed],
        draw: &Draw,
        cases: &[Case],
        shared: &[usize],
        plan: &Plan,
        cores: &[usize],
    ) -> Result<Self, String> {
        let mut alone = vec![vec![Vec::new(); cases.len()]; contenders.len()];
        let mut on_threads = vec![vec![[Vec::new(), Vec::new()]; contenders.len()]; shared.len()];
        let times = Times::for_slice(plan.slice);
        let mut progress = Progress::new(plan.rounds * contenders.len() * (cases.len() + 2 * shared.len()));
        for round in 0..plan.rounds {
            // All contenders draw the same operations; a faster one uses more of them. The keys that they insert are
            // removed again.
            let seed = round as u64 + 2;
            let order = |turn| (turn + round) % KINDS.len();
            for (index, case) in cases.iter().enumerate() {
                for turn in (0..contenders.len()).map(order) {
                    let mut draw = draw.restarted(seed);
                    alone[turn][index].push(rate(&mut *contenders[turn], case, &mut draw, plan.batch, times, &[])?);
                    progress.step();
                }
            }
            for (index, rates) in shared.iter().zip(&mut on_threads) {
                for turn in (0..contenders.len()).map(order) {
                    for (threads, rates) in rates[turn].iter_mut().enumerate() {
                        let mut draw = draw.restarted(seed);
                        let cores = &cores[..=threads];
                        let contender = &mut *contenders[turn];
                        rates.push(rate(contender, &cases[*index], &mut draw, plan.batch, times, cores)?);
                        progress.step();
                    }
                }
            }
        }
        Ok(Rates { alone, on_threads })
    }

    /// Returns the rates of each contender in a case.
    fn of_case(&self, case: usize) -> Vec<&Vec<f64>> {
        self.alone.iter().map(|rates| &rates[case]).collect()
    }

    /// Returns the index of the peer that was the fastest in all rounds of a case together.
    fn fastest_peer(&self, case: usize) -> usize {
        let speed = |peer: usize| self.alone[peer][case].iter().sum::<f64>();
        (1..self.alone.len()).max_by(|&a, &b| speed(a).total_cmp(&speed(b))).expect("there are peers")
    }
}

/// Returns the rate of the first contender, divided in each round by that of the fastest other one.
fn over_best(rates: &[&Vec<f64>]) -> Figure {
    let best_of = |round: usize| rates[1..].iter().map(|rates| rates[round]).fold(0.0, f64::max);
    Figure::of_ratio(rates[0], &(0..rates[0].len()).map(best_of).collect::<Vec<_>>())
}

/// Runs the same operations of each case on all contenders, those of the shared cases on one thread and on two. Returns
/// the hash of their replies, which must agree.
fn compare_replies(
    contenders: &mut [Boxed],
    draw: &mut Draw,
    cases: &[Case],
    shared: &[usize],
    plan: &Plan,
    cores: &[usize],
) -> Result<u64, String> {
    let mut work = 0_u64;
    for case in cases {
        let batches = draw.batches(case, plan.operations, plan.batch);
        let sums: Vec<u64> = contenders.iter_mut().map(|contender| execute(&mut **contender, case, &batches)).collect();
        work = work.rotate_left(7) ^ agreed(&sums, case)?;
    }
    for case in shared.iter().map(|index| &cases[*index]) {
        for threads in 1..=2 {
            let batches = draw.batches(case, plan.operations, plan.batch);
            let sums = contenders
                .iter()
                .map(|contender| Ok(execute_on(&**contender, case, &batches, &cores[..threads])?.0))
                .collect::<Result<Vec<_>, String>>()?;
            // A read of one thread may or may not see a put of the other: scc's map removes and inserts.
            if case.puts == 0.0 {
                work = work.rotate_left(7) ^ agreed(&sums, case)?;
            }
        }
    }
    Ok(work)
}

/// Returns the sum of the replies if all contenders have the same one.
fn agreed(sums: &[u64], case: &Case) -> Result<u64, String> {
    match sums {
        [] => Ok(0),
        [first, rest @ ..] if rest.iter().all(|sum| sum == first) => Ok(*first),
        _ => Err(format!("the contenders reply differently in {}: {sums:?}", case.name)),
    }
}

impl Report {
    /// Returns the tables and a note on their settings.
    pub fn tables(&self) -> Tables {
        let names: Vec<&str> = self.rows.iter().map(|row| row.name.as_str()).collect();
        let rates = self.cases.iter().enumerate().map(|(index, case)| {
            let of_row = |row: &Row| cell(&row.ops_per_s[index], millions);
            let over_best = ratio_cell(&self.over_best[index]);
            [vec![case.clone()], self.rows.iter().map(of_row).collect(), vec![over_best]].concat()
        });
        let fill = self.rows.iter().map(|row| {
            let (insert, memory) = (format!("{:.0}", row.insert_ns), format!("{:.2}", row.memory_per_raw_byte));
            vec![row.name.clone(), insert, memory, percent(row.huge_pages)]
        });
        let threads = self.threads.iter().map(|threads| {
            let over_one = threads.over_one.iter().map(|figure| cell(figure, |number| format!("{number:.2}")));
            let over_best = ratio_cell(&threads.over_best);
            [vec![threads.case.clone()], over_one.collect(), vec![over_best]].concat()
        });
        let header = |first| [&[first], &names[..], &["skep / best other"]].concat();
        let mut tables = vec![
            table(&header("M/s, one thread"), 1, rates),
            table(&["filling", "insert, ns", "memory / raw byte", "huge pages"], 1, fill),
        ];
        if !self.threads.is_empty() {
            tables.push(table(&header("two threads / one"), 1, threads));
        }
        let note = format!(
            "{} pairs of 16 + 16 B, batches of {}, medians of {} rounds; Zipf 0.99. A batch has its gets first, then its scans, \
             then its puts; the others execute one operation after the other, since none offers batches. Scans have {} pairs, those of \
             YCSB E 1 to 100, those of cloud storage 3 or 4; these mixes and YCSB D put new keys. A read-modify-write \
             of YCSB F is one atomic update of the store, a get and a put of the others. Inserts during the fill: {:.2} times \
             as fast as the fastest of the others. Allocator of the others: {}.{} Work {:016x}.",
            self.pairs,
            self.batch,
            self.rounds,
            self.scan,
            self.insert_over_best,
            self.allocator,
            if self.threads.is_empty() { "" } else { " The two threads run on the first two cores of the machine." },
            self.work,
        );
        Tables { tables, note }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_run_does_the_same_work() {
        let plan =
            Plan { pairs: 5_000, batch: 32, scan: 24, rounds: 1, operations: 500, slice: Duration::from_micros(200) };
        let (one, other) = (run(&plan, "tests").unwrap(), run(&plan, "tests").unwrap());
        assert_eq!(one.work, other.work);
        assert_eq!(one.rows.len(), KINDS.len());
        assert!(one.rows.iter().all(|row| row.ops_per_s.len() == one.cases.len()));
        assert!(one.tables().text().contains("masstree"));
    }
}
