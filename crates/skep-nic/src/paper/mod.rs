//! The figures and tables of the evaluations of KV-Direct and Honeycomb, and two figures of HERD's, measured on the
//! models.
//!
//! An [`Item`] is a figure or a table, in a file that describes what runs. Its [`Findings`] are the paper's points with
//! our measured values, and further curves. A curve is a closed form that a plot follows, or another run of the model.
//! Our values are measured on a running model, and never calculated by a closed form. The exceptions are Tables 5 and
//! 6: they are calculations in the paper too, and have the running model as further curves.
//!
//! A point has a [`Kind`]: only evidence counts for the model. The [`Sentence`]s about the results get their words from
//! numbers, so no sentence depends on the seed for its truth.
//!
//! The same seed gives the same findings, bit for bit. Only `fig12` and `table4` measure time on this machine's cores.
//!
//! To add an item:
//! 1. Copy its CSV into `papers/`.
//! 2. Write `paper/NAME.rs` with a `pub(super) const ITEM: Item`.
//! 3. Add it to [`ITEMS`].

use std::cmp::Ordering;

mod accesses;
mod counted_store;
mod fig03a;
mod fig03b;
mod fig06;
mod fig09;
mod fig10;
mod fig11;
mod fig11_baseline;
mod fig11_pairs;
mod fig12;
mod fig13a;
mod fig13b;
mod fig14;
mod fig15;
mod fig16;
mod fig17;
mod fig18;
mod fig20;
mod herd;
mod hit_rates;
mod honeycomb;
mod life;
mod net200;
mod point;
mod reference;
mod seeds;
mod sentence;
mod table2;
mod table3;
mod table4;
mod table5;
mod table6;

pub use life::{LIFE_KV_BYTES, Life, LifeSettings};
pub use point::{Claim, Judgement, Kind, NoEvidence, Point, Tolerance};
pub use reference::{Reference, references, source};
pub use seeds::merged;
pub use sentence::{Compared, Effect, Figures, Sentence, Variant};

/// All implemented items, in the order of their papers: KV-Direct, Honeycomb, HERD.
pub const ITEMS: &[Item] = &[
    fig03a::ITEM,
    fig03b::ITEM,
    fig06::ITEM,
    fig09::BY_RATIO,
    fig09::BY_UTILIZATION,
    fig10::ITEM,
    fig11::GET_10,
    fig11::PUT_10,
    fig11::GET_254,
    fig11::PUT_254,
    fig12::ITEM,
    fig13a::ITEM,
    fig13b::ITEM,
    fig14::ITEM,
    fig15::THROUGHPUT,
    fig15::LATENCY,
    fig16::UNIFORM,
    fig16::LONG_TAIL,
    fig17::BATCHED,
    fig17::NOT_BATCHED,
    fig18::READ,
    fig18::WRITE,
    fig20::ITEM,
    net200::ITEM,
    table2::ITEM,
    table3::ITEM,
    table4::ITEM,
    table5::ITEM,
    table6::ITEM,
    honeycomb::NODES,
    honeycomb::MEMORY,
    honeycomb::FIG10,
    honeycomb::FIG11,
    honeycomb::FIG12,
    honeycomb::FIG14,
    honeycomb::FIG15,
    honeycomb::FIG16,
    honeycomb::FIG17,
    herd::FIG04,
    herd::FIG06,
];

/// An item whose findings follow from those of another.
#[derive(Clone, Copy, Debug)]
struct Derived {
    /// The item.
    name: &'static str,
    /// The item that is measured.
    from: &'static Item,
    /// Returns the findings of the item with a seed, from those of the measured one with this seed.
    derive: fn(&Findings) -> Findings,
}

const DERIVED: &[Derived] = &[Derived { name: fig17::BATCHED.name, from: &fig17::NOT_BATCHED, derive: fig17::batched }];

/// Published figures and tables that are not items, with the reasons.
pub const NO_ITEMS: &[(&str, &str)] = &[
    ("Table 1; Figures 1, 2, 4, 5, 7, 8, 19", "they have no measurements"),
    ("Table 3, power", "a model consumes none, and the rates and delays of other systems are not those of this board"),
    (
        "thesis, throughput of a CPU and its random accesses",
        "they are properties of the authors' processor, and constants of the board's host_cpu; \
     docs/performance.md has those of another machine",
    ),
    (
        "thesis, congestion avoidance",
        "its latencies have no unit and its workload is not stated; Figure 17 runs the same window, \
     and runs without it",
    ),
    ("thesis, an SSD behind the NIC", "no part of the store"),
    (
        "Honeycomb, Figures 10 and 11, Zipf and latest",
        "there Masstree gains by the caches of a CPU, which no model has",
    ),
    ("Honeycomb, Tables 1 and 2", "they have no measurements of throughput or latency"),
];

/// One figure or table.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Its name, which is that of its CSV: `fig03a`.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The published numbers, as the text of their file.
    pub paper: &'static str,
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// Largest deviation from the paper that needs no explanation, of points without a tolerance of their own.
    pub tolerance: Tolerance,
    /// Its points that are no evidence. All others are evidence.
    pub no_evidence: &'static [NoEvidence],
    /// Series whose deviations may have no explanation: no variant is about them.
    pub open: &'static [&'static str],
    /// Measures the item.
    pub run: fn(&mut Context<'_>) -> Findings,
}

/// One axis of a plot.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The quantity, with its unit.
    pub label: &'static str,
    /// True if equal ratios have equal distances.
    pub logarithmic: bool,
}

/// The input of a run: its seed, and a callback for its progress.
pub struct Context<'a> {
    /// Seed of everything that is random.
    pub seed: u64,
    progress: &'a mut dyn FnMut(f64),
}

/// The results of an item.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// The paper's points, with ours.
    pub points: Vec<Point>,
    /// Further curves.
    pub curves: Vec<Curve>,
    /// The conditions of the run: scaled sizes, and omitted measurements. They are the same for every seed.
    pub setting: String,
    /// The causes of the deviations, and further results. There are some if a point exceeds the tolerance.
    pub sentences: Vec<Sentence>,
}

/// A curve without points in the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name: `closed form: …`, or a description of another run of the model.
    pub name: String,
    /// The series that it belongs to, if any. It has the colour of that series.
    pub series: Option<String>,
    /// Its points from left to right.
    pub points: Vec<(f64, f64)>,
}

impl Axis {
    /// Returns an axis on which equal differences have equal distances.
    pub const fn linear(label: &'static str) -> Self {
        Axis { label, logarithmic: false }
    }

    /// Returns an axis on which equal ratios have equal distances.
    pub const fn logarithmic(label: &'static str) -> Self {
        Axis { label, logarithmic: true }
    }
}

impl Curve {
    /// Returns a curve that belongs to no series.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Curve { name: name.into(), series: None, points }
    }

    /// Returns a curve that belongs to a series, whose name it begins with.
    pub fn beside(series: &str, what: &str, points: Vec<(f64, f64)>) -> Self {
        Curve { name: format!("{series}, {what}"), series: Some(series.to_owned()), points }
    }
}

impl Context<'_> {
    /// Reports that `done` of `steps` steps are done.
    pub fn progress(&mut self, done: usize, steps: usize) {
        (self.progress)(done as f64 / steps as f64);
    }
}

impl Item {
    /// Returns the item with this name.
    pub fn named(name: &str) -> Option<&'static Item> {
        ITEMS.iter().find(|item| item.name == name)
    }

    /// Measures the item. Calls `progress` with the share that is done.
    pub fn measure(&self, seed: u64, progress: &mut dyn FnMut(f64)) -> Findings {
        (self.run)(&mut Context { seed, progress })
    }

    /// Returns the item whose measurement has the findings of this one: most often itself.
    pub fn measured(&'static self) -> &'static Item {
        self.derived().map_or(self, |derived| derived.from)
    }

    /// Returns the findings of this item from those of [`Item::measured`] with the same seed.
    pub fn of_measured(&self, measured: &Findings) -> Findings {
        self.derived().map_or_else(|| measured.clone(), |derived| (derived.derive)(measured))
    }

    fn derived(&self) -> Option<&'static Derived> {
        DERIVED.iter().find(|derived| derived.name == self.name)
    }

    /// Returns the worth of a point as evidence.
    pub fn kind(&self, point: &Point) -> Kind {
        let of_point = self.no_evidence.iter().find(|group| (group.includes)(&point.series, point.x));
        of_point.map_or(Kind::Evidence, |group| group.kind)
    }

    /// Returns true if it measures time on this machine's cores. Then the seed decides nothing, and other work disturbs.
    pub fn is_real_time(&self) -> bool {
        ["fig12", "table4"].contains(&self.name)
    }

    /// Returns the tolerance of a point.
    pub fn tolerance_of(&self, point: &Point) -> Tolerance {
        point.tolerance.unwrap_or(self.tolerance)
    }

    /// Returns the form in which the paper gives a point.
    pub fn claim(&self, point: &Point) -> Claim {
        self.tolerance_of(point).claim()
    }

    /// Returns the quotient of our figure and the paper's, minus one. Returns `None` if the paper has no figure.
    pub fn deviation(&self, point: &Point) -> Option<f64> {
        (self.claim(point) == Claim::Figure).then(|| point.deviation())
    }

    /// Returns true if the deviation of a point is within its tolerance.
    pub fn is_within(&self, point: &Point) -> bool {
        self.tolerance_of(point).allows(point.ours, point.paper)
    }

    /// Judges a point by the range of its figures.
    pub fn judge(&self, point: &Point) -> Judgement {
        let side = |ours: f64| self.tolerance_of(point).side(ours, point.paper);
        match [side(point.low), side(point.high)] {
            [Ordering::Equal, Ordering::Equal] => Judgement::Within,
            [low, high] if low == high => Judgement::Beyond,
            _ => Judgement::Undecided,
        }
    }

    /// Returns the evidence beyond its tolerance that no variant of its series is about.
    pub fn without_variant<'a>(&self, findings: &'a Findings) -> impl Iterator<Item = &'a Point> {
        let has_variant = |point: &Point| {
            let mut variants = findings.sentences.iter().filter_map(Sentence::as_variant);
            variants.any(|variant| variant.series == point.series)
        };
        let is_beyond = move |point: &&Point| self.kind(point) == Kind::Evidence && !self.is_within(point);
        findings.points.iter().filter(is_beyond).filter(move |point| !has_variant(point))
    }

    /// Returns the evidence beyond its tolerance without a variant, except that of open series.
    pub fn unexplained<'a>(&self, findings: &'a Findings) -> impl Iterator<Item = &'a Point> {
        self.without_variant(findings).filter(|point| !self.open.contains(&&*point.series))
    }

    /// Returns the published points.
    pub fn references(&self) -> Vec<Reference> {
        references(self.paper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_has_its_points_explains_what_is_beyond_its_tolerance_and_repeats_itself() {
        let mut unexplained = Vec::new();
        // Those of real time measure several cores. The tests in their files check the code whose time they measure.
        for item in ITEMS.iter().filter(|item| !item.is_real_time()) {
            let paper = match item.name.split_once('-') {
                Some(("honeycomb", _)) => "Honeycomb",
                Some(("herd", _)) => "HERD",
                _ => "KV-Direct",
            };
            assert!(source(item.paper).starts_with(paper), "{}", item.name);
            let mut heard = 0.0;
            let (findings, again) = std::thread::scope(|scope| {
                let again = scope.spawn(|| item.measure(7, &mut |_| ()));
                let findings = item.measure(7, &mut |share| {
                    assert!((heard..=1.0).contains(&share), "{}: {share}", item.name);
                    heard = share;
                });
                (findings, again.join().expect("measuring again does not fail"))
            });
            let published = findings.points.iter().take(item.references().len());
            assert_eq!(published.len(), item.references().len(), "{}", item.name);
            unexplained.extend(item.unexplained(&findings).map(|point| format!("{}: {}", item.name, point.name())));
            for group in item.no_evidence {
                let is_meant = |point: &Point| (group.includes)(&point.series, point.x);
                assert!(findings.points.iter().any(is_meant), "{}: nothing is meant by {}", item.name, group.reason);
            }
            assert!(findings.points.iter().all(|point| point.ours.is_finite()), "{}", item.name);
            assert_eq!(findings, again, "{}: the same seed found something else", item.name);
        }
        assert_eq!(unexplained, Vec::<String>::new(), "no variant is about them, and they are not known as open");
    }

    #[test]
    fn the_seed_matters() {
        let item = Item::named("fig03b").unwrap();
        assert_ne!(item.measure(1, &mut |_| ()), item.measure(2, &mut |_| ()));
        assert!(Item::named("fig99").is_none());
    }
}
