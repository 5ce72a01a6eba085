//! The figures: which setting each varies, and the points that the paper publishes.

use skep_measure::mix::{self, Mix, Write};
use skep_store::ordered::{LogBlock, OrderedSettings};

use super::measure::{Plan, Rates, Threads, by_turns, of, over};
use super::{Bound, Curve, PaperPoint, Report};
use crate::ordered::{Case, Contender, Keys, Masstree, Read, Skep};
use crate::results::Head;
use skep_measure::{Figure as Rounds, Progress};

/// A figure of the paper.
pub struct Figure {
    /// Name on the command line and in the saved result.
    pub name: &'static str,
    /// Title of the figure.
    pub title: &'static str,
    x: &'static str,
    y: &'static str,
    note: &'static str,
    points: &'static [(&'static str, &'static str, f64, Bound)],
    run: fn(&Plan, &Progress) -> Result<Found, String>,
}

/// The labels along x, and a figure for each of them.
struct Found {
    labels: Vec<String>,
    curves: Vec<Curve>,
    rates: Vec<Curve>,
}

const UNIFORM: &str = "uniform";
const ZIPF: &str = "Zipf or latest";
const OVER_MASSTREE: &str = "operations a second, Skep over masstree";
const MASSTREE_NOTE: &str = "Ours is one thread of this machine over the masstree crate, without a network; the paper's is \
                             ten threads and an FPGA over eRPC-Masstree: the shapes can be compared, not the heights.";

/// All figures, in the order of the paper.
pub const FIGURES: [Figure; 6] = [
    Figure {
        name: "fig10",
        title: "YCSB",
        x: "workload",
        y: OVER_MASSTREE,
        note: "Ours is one thread of this machine over the masstree crate, without a network; the paper's is ten threads and an \
               FPGA over eRPC-Masstree: the shapes can be compared, not the heights. A read-modify-write of F is one atomic \
               update of Skep, and a get and a put of masstree.",
        points: &[
            (UNIFORM, "B", 1.9, Bound::Exact),
            (UNIFORM, "C", 1.9, Bound::Exact),
            (UNIFORM, "D", 1.9, Bound::Exact),
            (UNIFORM, "E", 2.9, Bound::Most),
            (ZIPF, "B", 1.8, Bound::Exact),
            (ZIPF, "C", 1.8, Bound::Exact),
            (ZIPF, "D", 1.8, Bound::Exact),
            (ZIPF, "E", 2.9, Bound::Most),
        ],
        run: fig10,
    },
    Figure {
        name: "fig11",
        title: "cloud storage: scans of 3 or 4 pairs from a floor, inserts of random keys",
        x: "reads, %",
        y: OVER_MASSTREE,
        note: "A scan begins at the greatest key that is not above one between two keys; of masstree these are two scans, the first \
               one backwards. Ours is one thread of this machine over the masstree crate, without a network; the paper's is \
               ten threads and an FPGA over eRPC-Masstree: the shapes can be compared, not the heights.",
        points: &[
            (UNIFORM, "0", 0.58, Bound::Exact),
            (UNIFORM, "50", 1.2, Bound::Exact),
            (UNIFORM, "80", 2.3, Bound::Least),
            (ZIPF, "80", 2.0, Bound::Least),
        ],
        run: fig11,
    },
    Figure {
        name: "fig13",
        title: "scan length",
        x: "pairs of a scan",
        y: OVER_MASSTREE,
        note: MASSTREE_NOTE,
        points: &[(UNIFORM, "24", 4.0, Bound::Exact)],
        run: fig13,
    },
    Figure {
        name: "fig14",
        title: "size of keys and values, scans of 1 pair",
        x: "bytes of a key, and of a value",
        y: "operations a second over those with 8 B, each store for itself",
        note: "The paper has no figures, only that both fall as keys grow.",
        points: &[],
        run: fig14,
    },
    Figure {
        name: "fig15",
        title: "cost of MVCC, cloud storage",
        x: "reads, %",
        y: "operations a second with versions off, over versions on",
        note: "All cores of this machine; the paper's ten threads meet more often in the versions. It gives the most for \
               inserts alone and calls the rest negligible.",
        points: &[(UNIFORM, "0", 1.14, Bound::Most), (UNIFORM, "100", 1.0, Bound::Exact)],
        run: fig15,
    },
    Figure {
        name: "fig17",
        title: "log block size",
        x: "bytes of the log block",
        y: "operations a second over those without a log",
        note: "64 B are the directory alone: every write merges. A log has at most 16 entries, which are 768 B of these pairs. \
               The paper's scans are the FPGA's; of inserts it says that 512 B have most of the gain.",
        points: &[("scan of 1 pair", "512", 0.92, Bound::Exact)],
        run: fig17,
    },
];

/// Measures the figure of the plan.
pub fn run(plan: &Plan, progress: &Progress) -> Result<Report, String> {
    let figure = FIGURES.iter().find(|figure| figure.name == plan.figure).ok_or_else(|| {
        let known = FIGURES.iter().map(|figure| format!("  {}  {}", figure.name, figure.title));
        format!("there is no figure `{}`; there are\n{}", plan.figure, known.collect::<Vec<_>>().join("\n"))
    })?;
    let Found { labels, curves, rates } = (figure.run)(plan, progress)?;
    let point = |(curve, label, y, bound): &(&str, &str, f64, Bound)| PaperPoint {
        curve: (*curve).to_owned(),
        label: (*label).to_owned(),
        y: *y,
        bound: *bound,
    };
    let note = format!(
        "{} {} pairs at first, batches of {}, medians of {} rounds.",
        figure.note, plan.pairs, plan.batch, plan.effort.rounds
    );
    Ok(Report {
        head: Head::here("honeycomb"),
        figure: figure.name.to_owned(),
        title: figure.title.to_owned(),
        x: figure.x.to_owned(),
        y: figure.y.to_owned(),
        note,
        labels,
        curves,
        points: figure.points.iter().map(point).collect(),
        rates,
    })
}

fn curve(name: &str, figures: Vec<Option<Rounds>>) -> Curve {
    Curve { name: name.to_owned(), figures }
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(T::to_string).collect()
}

/// Returns Skep and masstree, in this order.
fn beside_masstree<const N: usize>(pairs: usize) -> Result<Vec<Box<dyn Contender<N>>>, String> {
    Ok(vec![Box::new(Skep::new::<N>(pairs)?), Box::new(Masstree::default())])
}

/// Returns the ratios and rates of both stores. The cases of one set of labels follow each other: first all uniform
/// ones, then all others.
fn found_beside_masstree(labels: Vec<String>, rates: &Rates, names: &[&str]) -> Found {
    let count = labels.len();
    let part = |figures: Vec<Option<Rounds>>, number: usize| figures[number * count..][..count].to_vec();
    let of_name = |(number, name): (usize, &&str)| curve(name, part(over(rates, 0, 1), number));
    let curves = names.iter().enumerate().map(of_name).collect();
    let rates_of = |(number, name): (usize, &&str)| {
        let of = |store, index| curve(&format!("{store}, {name}"), part(of(rates, index), number));
        [of("skep", 0), of("masstree", 1)]
    };
    Found { labels, curves, rates: names.iter().enumerate().flat_map(rates_of).collect() }
}

fn fig10(plan: &Plan, progress: &Progress) -> Result<Found, String> {
    let cases = |keys, of_d| {
        [
            Case::mix("A", Mix::A, keys),
            Case::mix("B", Mix::B, keys),
            Case::mix("C", Mix::C, keys),
            Case::mix("D", Mix::D, of_d),
            Case::mix("E", Mix::E, keys),
            Case::mix("F", Mix::F, keys),
        ]
    };
    let cases = [cases(Keys::Uniform, Keys::Uniform), cases(Keys::Zipf, Keys::Latest)].concat();
    let rates = by_turns::<16>(beside_masstree(pairs_max(plan, &cases))?, &cases, plan, Threads::One, progress)?;
    Ok(found_beside_masstree(texts(&["A", "B", "C", "D", "E", "F"]), &rates, &[UNIFORM, ZIPF]))
}

/// The most pairs that a slice inserts before they are removed: twice as many as any store inserts in half a second.
const SLICE_INSERTS_MAX: usize = 4_000_000;

/// Returns the number of pairs in a store if every put of the cases inserts a new one.
fn pairs_max(plan: &Plan, cases: &[Case]) -> usize {
    plan.pairs + cases.len() * plan.operations + SLICE_INSERTS_MAX
}

/// Inserts alone.
const INSERTS: Mix = Mix::new(mix::Read::Get, Write::Insert, 100);

/// Returns the cloud-storage mixes with these shares of reads, in percent.
fn cloud(reads: &[u32], keys: Keys) -> Vec<Case> {
    reads.iter().map(|reads| Case::mix("cloud storage", Mix::cloud_storage(*reads), keys)).collect()
}

fn fig11(plan: &Plan, progress: &Progress) -> Result<Found, String> {
    let reads = [0, 50, 60, 70, 80, 90, 100];
    let cases = [cloud(&reads, Keys::Uniform), cloud(&reads, Keys::Zipf)].concat();
    let rates = by_turns::<16>(beside_masstree(pairs_max(plan, &cases))?, &cases, plan, Threads::One, progress)?;
    Ok(found_beside_masstree(texts(&reads), &rates, &[UNIFORM, ZIPF]))
}

fn fig13(plan: &Plan, progress: &Progress) -> Result<Found, String> {
    let sizes = [1, 2, 3, 4, 8, 12, 16, 24];
    let cases = sizes.map(|size| Case::reads("scan", Read::Scan(size, size)));
    let rates = by_turns::<16>(beside_masstree(plan.pairs)?, &cases, plan, Threads::One, progress)?;
    Ok(found_beside_masstree(texts(&sizes), &rates, &[UNIFORM]))
}

fn fig14(plan: &Plan, progress: &Progress) -> Result<Found, String> {
    fn with<const N: usize>(plan: &Plan, progress: &Progress) -> Result<[Vec<f64>; 2], String> {
        let cases = [Case::reads("scan", Read::Scan(1, 1))];
        let mut rates = by_turns::<N>(beside_masstree(plan.pairs)?, &cases, plan, Threads::One, progress)?;
        Ok([0, 1].map(|store| std::mem::take(&mut rates[store][0])))
    }
    let of_sizes = [
        with::<8>(plan, progress)?,
        with::<16>(plan, progress)?,
        with::<32>(plan, progress)?,
        with::<64>(plan, progress)?,
        with::<128>(plan, progress)?,
    ];
    let names = ["skep", "masstree"];
    let over_smallest = |store: usize| {
        // Stores of different sizes do not exist at the same time, so the spread of a ratio is the sum of both spreads.
        let smallest = Rounds::of(&of_sizes[0][store]);
        let figure = |rounds: &[Vec<f64>; 2]| {
            let rate = Rounds::of(&rounds[store]);
            let ratio =
                rate.noisy_median().zip(smallest.noisy_median()).map_or(f64::NAN, |(rate, smallest)| rate / smallest);
            Some(Rounds::with_spread(ratio, rate.spread() + smallest.spread()))
        };
        curve(names[store], of_sizes.iter().map(figure).collect())
    };
    let rates = |store: usize| {
        let figures = of_sizes.iter().map(|rounds| Some(Rounds::of(&rounds[store])));
        curve(names[store], figures.collect())
    };
    let (curves, rates) = ([0, 1].map(over_smallest).to_vec(), [0, 1].map(rates).to_vec());
    Ok(Found { labels: texts(&[8, 16, 32, 64, 128]), curves, rates })
}

fn fig15(plan: &Plan, progress: &Progress) -> Result<Found, String> {
    let reads = [0, 50, 80, 90, 100];
    let cases = cloud(&reads, Keys::Uniform);
    let pairs = pairs_max(plan, &cases);
    let with = |mvcc| Skep::with::<16>(pairs, |settings| OrderedSettings { mvcc, ..settings });
    let stores: Vec<Box<dyn Contender<16>>> = vec![Box::new(with(false)?), Box::new(with(true)?)];
    let rates = by_turns(stores, &cases, plan, Threads::AllCores, progress)?;
    let both = vec![curve("versions off", of(&rates, 0)), curve("versions on", of(&rates, 1))];
    Ok(Found { labels: texts(&reads), curves: vec![curve(UNIFORM, over(&rates, 0, 1))], rates: both })
}

fn fig17(plan: &Plan, progress: &Progress) -> Result<Found, String> {
    let sizes = [LogBlock::SIZE_MIN, 128, 192, 256, 384, 512, 768];
    let names = ["scan of 1 pair", "insert"];
    let cases = [Case::reads(names[0], Read::Scan(1, 1)), Case::mix(names[1], INSERTS, Keys::Uniform)];
    let pairs = pairs_max(plan, &cases);
    let store = |size: &usize| -> Result<Box<dyn Contender<16>>, String> {
        let log_block = LogBlock::new(*size, LogBlock::ENTRY_COUNT_MAX).ok_or("a log block cannot have this size")?;
        Ok(Box::new(Skep::with::<16>(pairs, |settings| OrderedSettings { log_block, ..settings })?))
    };
    let stores = sizes.iter().map(store).collect::<Result<Vec<_>, String>>()?;
    let rates = by_turns(stores, &cases, plan, Threads::One, progress)?;
    let over_none = |case: usize| {
        let figures = rates.iter().map(|store| Some(Rounds::of_ratio(&store[case], &rates[0][case])));
        curve(names[case], figures.collect())
    };
    let absolute = |case: usize| {
        let figures = rates.iter().map(|store| Some(Rounds::of(&store[case])));
        curve(names[case], figures.collect())
    };
    Ok(Found { labels: texts(&sizes), curves: vec![over_none(0), over_none(1)], rates: vec![absolute(0), absolute(1)] })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skep_measure::Effort;

    use super::*;
    use crate::program::Measured;

    /// Measures every figure with tiny settings: each curve has a figure for each label, and each point of the paper
    /// has a curve.
    #[test]
    fn all_figures_are_measured_and_drawn() {
        let effort = Effort { rounds: 1, slice: Duration::from_micros(200) };
        for figure in &FIGURES {
            let plan = Plan { figure: figure.name.to_owned(), pairs: 2_000, batch: 32, effort, operations: 300 };
            let report = run(&plan, &Progress::hidden()).unwrap();
            for curve in report.curves.iter().chain(&report.rates) {
                assert_eq!(curve.figures.len(), report.labels.len(), "{} {}", figure.name, curve.name);
            }
            for point in &report.points {
                assert!(report.labels.contains(&point.label), "{} {point:?}", figure.name);
                assert!(report.curves.iter().any(|curve| curve.name == point.curve), "{} {point:?}", figure.name);
            }
            // One bar for each of our figures, and one for each of the paper's.
            let bars: usize = report.plot().groups.iter().map(|group| group.bars.len()).sum();
            let ours: usize = report.curves.iter().map(|curve| curve.figures.iter().flatten().count()).sum();
            assert_eq!(bars, ours + report.points.len(), "{}", figure.name);
            assert!(report.tables().markdown().contains(&report.labels[0]), "{}", figure.name);
        }
    }
}
