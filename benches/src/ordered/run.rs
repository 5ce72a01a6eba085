//! Fills the contenders, measures them in rounds, and reports the result.

use skep_measure::mix::Mix;
use skep_measure::{Effort, Figure, Progress, Rounds, Row as Measurement};

use super::{Case, Contender, Draw, KINDS, Keys, Read, execute, execute_on, fill, rate};
use crate::figures::{cell, millions, percent, ratio_cell};
use crate::plot::{Group, Plot, exact, in_millions, in_millions_text};
use crate::process::{MIMALLOC_HUGE_PAGES, cores, growth_of};
use crate::program::{Measured, number};
use crate::results::Head;
use crate::tables::{Tables, table};

/// The amount of work to measure. With its default settings a run takes less than three minutes.
#[derive(clap::Args, Clone, Debug)]
#[command(mut_arg("rounds", |argument| argument.default_value("3")))]
pub struct Plan {
    /// Pairs of 16 + 16 bytes in every contender.
    #[arg(long, default_value_t = 2_000_000, value_parser = number(1..=200_000_000))]
    pub pairs: usize,
    /// Operations in a batch.
    #[arg(long, default_value_t = 32, value_parser = number(2..=65_536))]
    pub batch: usize,
    /// Pairs in a scan.
    #[arg(long, default_value_t = 24, value_parser = number(1..=10_000))]
    pub scan: usize,
    /// Rounds and slices.
    #[command(flatten)]
    pub effort: Effort,
    /// Operations of each case whose replies are compared before the rounds.
    #[arg(long, default_value_t = 20_000, value_parser = number(1..=100_000_000))]
    pub operations: usize,
    /// Measure also all other mixes of YCSB and of cloud storage, which takes three times as long.
    #[arg(long)]
    pub all: bool,
}

/// About how many seconds the fill of a contender takes for each pair, and the comparison of replies for each operation.
const OPERATION_SECONDS: f64 = 1.5e-6;

/// Returns the cases on one thread: all of them, or those that differ most.
fn cases(plan: &Plan) -> Vec<Case> {
    let scan = plan.scan;
    let mut cases = vec![
        Case::reads("GET in batches (YCSB C, uniform)", Read::Get),
        Case::reads("GET, one at a time", Read::GetSingle),
        Case::reads("scans in batches", Read::Scan(scan, scan)),
        Case::reads("scan, one at a time", Read::ScanSingle(scan)),
        Case::puts("PUT"),
        Case::mix("YCSB A, Zipf", Mix::A, Keys::Zipf),
        Case::mix("YCSB D, latest", Mix::D, Keys::Latest),
        Case::mix("YCSB E, Zipf", Mix::E, Keys::Zipf),
        Case::mix("YCSB F, Zipf", Mix::F, Keys::Zipf),
        Case::mix("cloud storage, 80% scans, uniform", Mix::cloud_storage(80), Keys::Uniform),
    ];
    if plan.all {
        cases.extend(other_cases());
    }
    cases
}

/// Returns the other mixes.
fn other_cases() -> [Case; 10] {
    [
        Case::mix("YCSB A, uniform", Mix::A, Keys::Uniform),
        Case::mix("YCSB B, uniform", Mix::B, Keys::Uniform),
        Case::mix("YCSB B, Zipf", Mix::B, Keys::Zipf),
        Case::mix("YCSB C, Zipf", Mix::C, Keys::Zipf),
        Case::mix("YCSB D, uniform", Mix::D, Keys::Uniform),
        Case::mix("YCSB E, uniform", Mix::E, Keys::Uniform),
        Case::mix("YCSB F, uniform", Mix::F, Keys::Uniform),
        Case::mix("cloud storage, 80% scans, Zipf", Mix::cloud_storage(80), Keys::Zipf),
        Case::mix("cloud storage, 90% scans, uniform", Mix::cloud_storage(90), Keys::Uniform),
        Case::mix("cloud storage, 90% scans, Zipf", Mix::cloud_storage(90), Keys::Zipf),
    ]
}

/// Names of the cases that also run on two threads. The last two are measured with all cases only.
const ON_TWO_THREADS: [&str; 4] = ["GET in batches (YCSB C, uniform)", "PUT", "scans in batches", "YCSB B, uniform"];
/// The number of them that is measured by default.
const ON_TWO_THREADS_BY_DEFAULT: usize = 2;

/// The result of a comparison.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The kind is `ordered`.
    #[serde(flatten)]
    pub head: Head,
    /// See [`Plan::pairs`].
    pub pairs: usize,
    /// See [`Plan::batch`].
    pub batch: usize,
    /// See [`Plan::scan`].
    pub scan: usize,
    /// Rounds for each case.
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
pub fn run(plan: &Plan, progress: &Progress) -> Result<Report, String> {
    let cases = cases(plan);
    let cores = cores()?;
    let index_of = |name: &&str| cases.iter().position(|case| case.name == *name);
    let on_two: &[&str] = match cores.len() {
        1 => &[],
        _ if plan.all => &ON_TWO_THREADS,
        _ => &ON_TWO_THREADS[..ON_TWO_THREADS_BY_DEFAULT],
    };
    let shared: Vec<usize> = on_two.iter().filter_map(index_of).collect();
    let rounds = rounds(plan.effort, &cases, &shared);
    let fill_seconds = plan.pairs as f64 * OPERATION_SECONDS;
    let compared = plan.operations * (cases.len() + 2 * shared.len()) * KINDS.len();
    let compare_seconds = compared as f64 * OPERATION_SECONDS;
    progress.expect(KINDS.len() as f64 * fill_seconds + compare_seconds + rounds.expected_seconds());
    let (mut contenders, mut rows) = fill_all(plan, fill_seconds, progress)?;
    let mut draw = Draw::new(plan.pairs);
    progress.begin("comparing replies", compare_seconds);
    let work = compare_replies(&mut contenders, &mut draw, &cases, &shared, plan, &cores)?;
    let rates = rounds.run(progress, |turn| {
        // All contenders draw the same operations; a faster one uses more of them. The keys that they insert are removed
        // again.
        let mut draw = draw.restarted(turn.round as u64 + 2);
        let (case, contender, cores) = match turn.row.checked_sub(cases.len()) {
            None => (turn.row, turn.side, &[][..]),
            Some(row) => (shared[row], turn.side / 2, &cores[..=turn.side % 2]),
        };
        rate(&mut *contenders[contender], &cases[case], &mut draw, plan.batch, turn, cores)
    })?;
    let (alone, on_threads) = rates.split_at(cases.len());
    let threads = |(index, rates): (&usize, &Vec<Vec<f64>>)| Threads {
        case: cases[*index].name.to_owned(),
        over_one: rates.chunks_exact(2).map(|threads| Figure::of_ratio(&threads[1], &threads[0])).collect(),
        over_best: over_best(&rates.iter().skip(1).step_by(2).collect::<Vec<_>>()),
    };
    let threads = shared.iter().zip(on_threads).map(threads).collect();
    let best_insert_ns = rows[1..].iter().map(|row| row.insert_ns).fold(f64::INFINITY, f64::min);
    let insert_over_best = best_insert_ns / rows[0].insert_ns;
    let over_best = alone.iter().map(|rates| over_best(&rates.iter().collect::<Vec<_>>())).collect();
    let best = alone.iter().map(|rates| rows[fastest_peer(rates)].name.clone()).collect();
    for (contender, row) in rows.iter_mut().enumerate() {
        row.ops_per_s = alone.iter().map(|rates| Figure::of(&rates[contender])).collect();
    }
    Ok(Report {
        head: Head::here("ordered"),
        pairs: plan.pairs,
        batch: plan.batch,
        scan: plan.scan,
        rounds: plan.effort.rounds,
        allocator: format!("mimalloc with {MIMALLOC_HUGE_PAGES}"),
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
fn fill_all(plan: &Plan, seconds: f64, progress: &Progress) -> Result<(Vec<Boxed>, Vec<Row>), String> {
    let mut contenders = Vec::new();
    let mut rows = Vec::new();
    for kind in &KINDS {
        let ((contender, seconds), growth) = growth_of(|| {
            let mut contender = (kind.new)(plan.pairs)?;
            progress.begin(format!("filling {}", kind.name), seconds);
            let seconds = fill(&mut *contender, plan.pairs, |share| progress.advance(share));
            Ok((contender, seconds))
        })?;
        let memory = contender.memory().map_or(growth.resident, |memory| memory as f64);
        rows.push(Row {
            name: kind.name.to_owned(),
            memory_per_raw_byte: memory / (plan.pairs * 2 * 16) as f64,
            huge_pages: growth.huge_pages,
            insert_ns: seconds * 1e9 / plan.pairs as f64,
            ops_per_s: Vec::new(),
        });
        contenders.push(contender);
    }
    Ok((contenders, rows))
}

/// Returns the rounds: a row for each case with a side for each contender, and a row for each shared case with two sides
/// for each contender, those of one thread that has a core and of two.
fn rounds(effort: Effort, cases: &[Case], shared: &[usize]) -> Rounds {
    let alone = cases.iter().map(|case| Measurement::new(case.name, KINDS.len()));
    let on_threads = shared.iter().map(|index| {
        let name = format!("{}, one thread and two", cases[*index].name);
        Measurement::new(name, 2 * KINDS.len())
    });
    Rounds::new(effort, alone.chain(on_threads).collect())
}

/// Returns the index of the peer that was the fastest in all rounds of a case together.
fn fastest_peer(rates: &[Vec<f64>]) -> usize {
    let speed = |peer: usize| rates[peer].iter().sum::<f64>();
    (1..rates.len()).max_by(|&a, &b| speed(a).total_cmp(&speed(b))).expect("there are peers")
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

impl Measured for Report {
    fn head(&self) -> &Head {
        &self.head
    }

    fn plot(&self) -> Plot {
        let rates =
            |index: usize| self.rows.iter().map(move |row| (row.name.clone(), in_millions(&row.ops_per_s[index])));
        let of_case = |(index, name): (usize, &String)| Group::new(format!("{name} (million/s)"), rates(index));
        let mut groups: Vec<Group> = self.cases.iter().enumerate().map(of_case).collect();
        let memory = self.rows.iter().map(|row| (row.name.clone(), exact(row.memory_per_raw_byte)));
        groups.push(Group::new("memory (bytes for a byte of keys and values)", memory));
        let pairs = in_millions_text(self.pairs as u64);
        let title = format!("{pairs} million pairs of 16 + 16 B, one thread, batches of {}", self.batch);
        Plot::new(title, self.origin(), groups)
    }

    fn tables(&self) -> Tables {
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
             YCSB E 1 to 100, those of cloud storage 3 or 4 from a floor; these mixes and YCSB D put new keys. A read-modify-write \
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_tiny_run_does_the_same_work() {
        let effort = Effort { rounds: 1, slice: Duration::from_micros(200) };
        let plan = Plan { pairs: 5_000, batch: 32, scan: 24, effort, operations: 500, all: true };
        let run = |plan| run(plan, &Progress::hidden()).unwrap();
        let (one, other) = (run(&plan), run(&plan));
        assert_eq!(one.work, other.work);
        assert_eq!(one.rows.len(), KINDS.len());
        assert_eq!(one.cases.len(), 20);
        assert!(one.rows.iter().all(|row| row.ops_per_s.len() == one.cases.len()));
        assert!(one.tables().text().contains("masstree"));
        assert_eq!(run(&Plan { all: false, ..plan }).cases.len(), 10);
    }
}
